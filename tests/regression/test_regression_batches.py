"""One call for many releases: batches give what single calls give, in any mixture of bounds and n, and fast."""

import time
from functools import partial

import numpy as np
import pytest

from dpbook import Release, regression
from dpbook.regression import inference
from dpbook.regression.inference import OPTIONS, sample
from dpbook.regression.layout import Layout
from dpbook.regression.task import Draws, task_of

PRIOR = regression.NormalInverseGamma(0.0, 0.5, 3.0, 1.0)
OURS = ("naive", "gibbs-noisy", "gibbs-prior", "gibbs-update")
SHORT = {"burn_in": 20, "thin": 1}

pytestmark = pytest.mark.filterwarnings("ignore::dpbook.posterior.ConvergenceWarning")


def options(method):
    return {} if method == "naive" else SHORT


def released(n=50, d=1, low=0.0, high=1.0, seed=0, **settings):
    rng = np.random.default_rng(seed)
    X = rng.uniform(low, high, size=(n, d))
    settings = {"x_bounds": (low, high), "y_bounds": (-3, 3), "epsilon": 5.0, "moments": True, **settings}
    return regression.release(X, X.sum(axis=1), **settings, rng=rng)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("method", OURS)
def test_every_method_takes_any_number_of_covariates(method, d, intercept):
    made = released(d=d, intercept=intercept)
    found = regression.infer(
        made, PRIOR, method=method, draws=40, chains=4, rng=np.random.default_rng(1), **options(method)
    )
    assert found.draws["theta"].shape == (4, 10, d + intercept)
    assert found.draws["sigma2"].shape == (4, 10)
    assert np.isfinite(found.draws["theta"]).all()
    assert (found.draws["sigma2"] > 0).all()
    assert (found.method, found.intercept, found.d) == (method, intercept, d)
    assert found.predict(np.zeros((3, d))).shape == (3,)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("method", OURS)
def test_a_sequence_is_inferred_in_one_batch_with_bounds_and_n_of_its_own(method, mechanism):
    """Releases of nearly exact sums, in three different units: each posterior is where its own data are."""
    privacy = {"epsilon": 1e6, "mechanism": mechanism, "delta": 1e-6 * (mechanism == "gaussian")}
    made = [released(n, low=low, high=low + 1, **privacy) for n, low in ((100, 0.0), (300, 0.5), (1000, -0.5))]
    found = regression.infer(
        made, PRIOR, method=method, draws=400, chains=4, rng=np.random.default_rng(2), **options(method)
    )
    assert len(found) == 3
    for n, low, posterior in zip((100, 300, 1000), (0.0, 0.5, -0.5), found, strict=True):
        rng = np.random.default_rng(0)
        X = rng.uniform(low, low + 1, size=(n, 1))
        exact = regression.infer_nonprivate(X, X[:, 0], PRIOR, rng=rng)
        off = (posterior.mean("theta") - exact.mean("theta")) / exact.sd("theta")
        assert np.abs(off).max() < 0.5


@pytest.mark.parametrize("method", OURS)
def test_a_member_of_a_batch_does_not_depend_on_the_others(method):
    """The same release among others: equal means within five Monte-Carlo standard errors of 2,000 draws."""
    one, other = released(n=200, epsilon=50.0), released(n=200, epsilon=50.0, low=5.0, high=6.0, seed=3)
    settings = {"method": method, "draws": 2000, "chains": 20}
    extra = {} if method == "naive" else {"burn_in": 100, "thin": 3}
    alone = regression.infer(one, PRIOR, rng=np.random.default_rng(4), **settings, **extra)
    among = regression.infer([other, one, other], PRIOR, rng=np.random.default_rng(5), **settings, **extra)[1]
    off = (alone.mean("theta") - among.mean("theta")) / alone.sd("theta")
    assert np.abs(off).max() < 5 * np.sqrt(2 / 400)  # 400 effective draws at the very least
    np.testing.assert_allclose(alone.sd("theta"), among.sd("theta"), rtol=0.2)


@pytest.mark.parametrize("method", OURS)
def test_results_do_not_depend_on_the_units(method):
    """Celsius or Fahrenheit, metres or miles: with the same noise and the same prior, the same line, draw by draw."""
    rng = np.random.default_rng(6)
    X, y = rng.uniform(size=(80, 2)), rng.uniform(size=80)
    scale, shift, stretch, lift = np.array([4.0, 0.5]), np.array([-8.0, 16.0]), 2.0, 64.0
    root = rng.normal(size=(3, 3))
    prior = regression.NormalInverseGamma([0.3, 0.1, -0.2], root @ root.T + np.eye(3), 4.0, 0.2)
    covariates = regression.NormalInverseWishart([0.4, 0.6], 2.0, [[1.0, 0.2], [0.2, 0.6]], 9.0)
    # y' = stretch y + lift and x' = scale x + shift, so theta = A theta' + b.
    back = np.zeros((3, 3))
    back[0] = [1.0, *shift]
    back[1:, 1:] = np.diag(scale)
    back /= stretch
    offset = np.array([-lift / stretch, 0, 0])
    mean, precision = prior.sized(3, "prior")
    # Given sigma2' = stretch² sigma2 the precision becomes back' precision back · stretch².
    other_prior = regression.NormalInverseGamma(
        np.linalg.solve(back, mean - offset), back.T @ precision @ back * stretch**2, 4.0, 0.2 * stretch**2
    )
    other_covariates = regression.NormalInverseWishart(
        covariates.mean * scale + shift, 2.0, covariates.scale * np.outer(scale, scale), 9.0
    )
    one = regression.release(
        X, y, x_bounds=(0, 1), y_bounds=(0, 1), epsilon=3.0, moments=True, rng=np.random.default_rng(7)
    )
    other = regression.release(
        X * scale + shift,
        y * stretch + lift,
        x_bounds=list(zip(shift, shift + scale, strict=True)),
        y_bounds=(lift, lift + stretch),
        epsilon=3.0,
        moments=True,
        rng=np.random.default_rng(7),
    )
    settings = {"method": method, "draws": 20, "chains": 2, **options(method)}
    here = regression.infer(one, prior, covariates=covariates, rng=np.random.default_rng(8), **settings)
    there = regression.infer(other, other_prior, covariates=other_covariates, rng=np.random.default_rng(8), **settings)
    np.testing.assert_allclose(there.draws["theta"] @ back.T + offset, here.draws["theta"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(there.draws["sigma2"] / stretch**2, here.draws["sigma2"], rtol=1e-4)


def test_no_releases_give_no_posteriors():
    assert regression.infer([], PRIOR) == []


def test_the_same_generator_gives_the_same_draws():
    made = [released(), released(seed=1)]
    runs = [
        regression.infer(made, PRIOR, method="gibbs-update", draws=40, rng=np.random.default_rng(9), **SHORT)
        for _ in range(2)
    ]
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one.draws["theta"], other.draws["theta"])


def test_draws_are_counted_in_all():
    found = regression.infer(released(), PRIOR, method="naive", draws=1001, chains=5, rng=np.random.default_rng(0))
    assert found.draws["sigma2"].shape == (5, 201)


def test_a_batch_costs_far_less_than_its_members_one_by_one():
    """300 releases at once: at least 15 times the throughput of one (some 80 times on an idle machine)."""
    made = [released(seed=s) for s in range(300)]

    def seconds(task, sweeps):
        begin = time.process_time()
        sample(task, method="gibbs-update", draws=sweeps, chains=1, burn_in=0, thin=1, rng=np.random.default_rng(0))
        return (time.process_time() - begin) / sweeps / task.releases

    together, single = task_of(made, PRIOR), task_of(made[:1], PRIOR)
    assert min(seconds(single, 60) for _ in range(3)) > 15 * min(seconds(together, 60) for _ in range(3))


def test_thousands_of_naive_posteriors_are_one_call():
    layout, count = Layout(1, True), 3000
    made = released()
    task = task_of([made] * count, PRIOR)
    drawn = sample(task, method="naive", draws=40, rng=np.random.default_rng(0))
    assert drawn.theta.shape == (count, 4, 10, layout.regressors)


@pytest.mark.parametrize("method", ["collapsed", "exact", "individual"])
def test_a_sampler_is_looked_up_by_name_and_given_the_whole_batch(method, monkeypatch):
    seen = {}

    def stub(task, **settings):
        seen.update(settings, releases=task.releases)
        return Draws(
            np.zeros((task.releases, settings["chains"], settings["per_chain"], 2)),
            np.ones((task.releases, settings["chains"], settings["per_chain"])),
        )

    monkeypatch.setitem(inference._SAMPLERS, method, stub)
    found = regression.infer([released()] * 2, PRIOR, method=method, draws=12, chains=3, progress=False, warm_up=5)
    assert (seen["releases"], seen["per_chain"], seen["chains"], seen["warm_up"]) == (2, 4, 3, 5)
    assert [each.method for each in found] == [method, method]


@pytest.mark.parametrize("method", OPTIONS)
def test_a_method_takes_its_own_options_and_names_the_others(method):
    """None of the names that an error shows is private, and nothing is drawn."""
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    wrong = "warm_up" if "burn_in" in OPTIONS[method] else "burn_in"
    call = partial(regression.infer, MADE, None if method == "fixed-design" else PRIOR, method=method, rng=rng)
    with pytest.raises(TypeError, match=f"method '{method}' does not take '{wrong}' .*would.* Its options: "):
        call(**{wrong: 5})
    with pytest.raises(TypeError, match=f"method '{method}' does not take 'typo'. Its options: "):
        call(typo=5)
    for option, kind in OPTIONS[method].items():
        assert kind.takes
        with pytest.raises((TypeError, ValueError), match=f"^{option} must be"):
            call(**{option: -1})
    assert rng.bit_generator.state == before


MADE = released()
OTHER = Release(
    values={"sum": [1.0]},
    model="binomial",
    mechanism="laplace",
    scale={"sum": 1.0},
    sensitivity={"sum": 1.0},
    epsilon=1.0,
    n=3,
    float_safe=False,
)


@pytest.mark.parametrize(
    ("release", "changes", "error", "message"),
    [
        (3, {}, TypeError, "release must be a Release or a sequence"),
        ([3], {}, TypeError, "release must hold Release objects, got int"),
        (OTHER, {}, ValueError, "release must be of model 'linear regression', got one of model 'binomial'"),
        ([MADE, released(d=2)], {}, ValueError, "release must be a sequence of one number of covariates"),
        ([MADE, released(moments=False)], {}, ValueError, "all with moments or none"),
        ([MADE, released(intercept=False)], {}, ValueError, "all with an intercept or none"),
        ([MADE, released(mechanism="gaussian", delta=1e-6)], {}, ValueError, "one mechanism"),
        (MADE, {"prior": "flat"}, TypeError, "prior must be a regression.NormalInverseGamma"),
        (
            MADE,
            {"prior": regression.NormalInverseGamma([0] * 3, 1, 1, 1)},
            ValueError,
            "prior must be for 2 coefficients",
        ),
        (MADE, {"covariates": 4}, TypeError, "covariates must be a regression.NormalInverseWishart"),
        (
            MADE,
            {"covariates": regression.NormalInverseWishart([0, 0], 1, 1, 5)},
            ValueError,
            "covariates must be for 1 covariates",
        ),
        (MADE, {"method": "gibbs"}, ValueError, "method must be one of 'collapsed', 'naive'"),
        (MADE, {"draws": 0}, ValueError, "draws must be at least 1"),
        (MADE, {"chains": 0}, ValueError, "chains must be at least 1"),
        (MADE, {"rng": 3}, TypeError, "rng must be None"),
    ],
)
def test_what_is_wrong_is_named(release, changes, error, message):
    settings = {"prior": PRIOR, "method": "naive", **changes}
    with pytest.raises(error, match=message):
        regression.infer(release, settings.pop("prior"), **settings)


def test_a_wrong_option_without_a_method_blames_none_that_nobody_named():
    release = regression.release([0.1, 0.2], [0.1, 0.3], x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=1.0)
    with pytest.raises(TypeError, match=r"the method 'chosen by infer' does not take 'warmup'\..*warm_up"):
        regression.infer(release, warmup=3)
    with pytest.raises(TypeError, match="the method 'collapsed' does not take 'warmup'"):
        regression.infer(release, regression.NormalInverseGamma(0, 1, 2, 1), warmup=3)
