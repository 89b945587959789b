"""A family of one's own: the same answers as a built-in one, moments by quadrature, mistakes named."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpbook import Release, expfam
from dpbook.diagnostics import calibrate
from dpbook.expfam import Beta, Binomial, CustomFamily, Exponential, Gamma, Poisson, posterior_density
from dpbook.expfam.releases import _grid, _sums
from dpbook.latent_noise import normal_laplace_logpdf

pytestmark = pytest.mark.filterwarnings("ignore::dpbook.posterior.ConvergenceWarning")


def exponential(lower=0.0, upper=2.0, name="waiting time", **changes):
    """The exponential family, as a user would write it."""
    parts = {
        "statistic": lambda x: x,
        "log_density": lambda x, theta: np.log(theta) - theta * x,
        "conjugate": lambda prior, s, n, rng: rng.standard_gamma(prior.shape + n, np.shape(s)) / (prior.rate + s),
        "prior_type": Gamma,
    }
    return CustomFamily(name, lower, upper, (0.0, np.inf), **parts | changes)


def geometric(upper=20):
    """Failures before a success; the statistic is their number, the prior of the success probability a Beta."""
    return CustomFamily(
        "geometric",
        0,
        upper,
        (0, np.inf),
        statistic=lambda x: x,
        log_density=lambda x, p: np.log(p) + x * np.log1p(-p),
        conjugate=lambda prior, s, n, rng: rng.beta(prior.alpha + n, prior.beta + s),
        prior_type=Beta,
        discrete=True,
    )


def weibull(lower=0.0, upper=3.0):
    return CustomFamily(
        "weibull-2",
        lower,
        upper,
        (0.0, np.inf),
        statistic=lambda x: x**2,
        log_density=lambda x, theta: np.log(2 * theta * x) - theta * x**2,
        conjugate=lambda prior, s, n, rng: rng.standard_gamma(prior.shape + n, np.shape(s)) / (prior.rate + s),
        prior_type=Gamma,
    )


def renamed(release, name):
    """The same release as one of a family with this name."""
    return Release.from_json(release.to_json().replace(f'"{release.model}"', f'"{name}"'))


@pytest.mark.parametrize("outside", ["clip", "redact"])
def test_a_family_written_by_hand_gives_the_posterior_of_the_built_in_one(outside):
    rng = np.random.default_rng(1)
    release = expfam.release(rng.exponential(0.3, 200), Exponential(0.1, 2), epsilon=0.5, outside=outside, rng=rng)
    ours, prior = exponential(0.1, 2.0), Gamma(8, 2)
    built_in = posterior_density(release, prior)
    by_hand = posterior_density(renamed(release, ours.name), prior, family=ours)
    assert by_hand.mean == pytest.approx(built_in.mean, rel=1e-7)
    assert by_hand.sd == pytest.approx(built_in.sd, rel=1e-6)
    gibbs = expfam.infer(renamed(release, ours.name), prior, method="gibbs", family=ours, rng=rng)
    assert gibbs.mean("theta") == pytest.approx(built_in.mean, abs=0.15 * built_in.sd)
    assert gibbs.sd("theta") == pytest.approx(built_in.sd, rel=0.1)


@pytest.mark.parametrize("outside", ["clip", "redact"])
def test_moments_of_the_weibull_are_those_of_its_square_which_is_exponential(outside):
    """At rates from 1e-4 to 1e6: mass in the far tail, or within a thousandth of the lower bound."""
    rates = np.array([1e-4, 0.1, 1.0, 30.0, 1e6])
    found = weibull(0.5, 3.0).moments(rates, outside)
    expected = Exponential(0.25, 9.0).moments(rates, outside)
    for i in range(len(rates)):
        sd = np.sqrt(np.diagonal(expected[1][i]))
        assert (np.abs(found[0][i] - expected[0][i]) <= 1e-6 * (np.abs(expected[0][i]) + sd)).all()
        assert (np.abs(found[1][i] - expected[1][i]) <= 1e-5 * np.outer(sd, sd) + 1e-15).all()


@pytest.mark.parametrize("p", [0.9, 0.3, 0.01, 1e-4])
def test_moments_of_the_geometric_are_the_closed_ones_however_long_the_tail(p):
    mean, cov = geometric().moments(np.array(p))
    law = stats.geom(p, loc=-1)
    x = np.arange(21.0)
    clipped = (x * law.pmf(x)).sum() + 20 * law.sf(20)
    square = (x**2 * law.pmf(x)).sum() + 400 * law.sf(20)
    assert mean[0] == pytest.approx(clipped, rel=1e-6)
    assert cov[0, 0] == pytest.approx(square - clipped**2, rel=1e-4, abs=1e-9)
    assert mean[1] == pytest.approx(law.mean(), rel=1e-4)
    assert cov[1, 1] == pytest.approx(law.var(), rel=1e-3)


def test_a_wide_discrete_family_costs_few_nodes():
    x, weights = geometric(10**6)._nodes
    assert x.size < 3000
    assert len(np.unique(x)) == x.size
    assert weights.min() > 0
    assert weights[x <= 10**6].sum() == pytest.approx(
        10**6 + 1, rel=1e-12
    )  # every whole number in the bounds is counted once


@pytest.mark.parametrize(
    ("make", "prior", "draw"),
    [
        (weibull, Gamma(8, 4), lambda t, n, g: g.weibull(2, n) / np.sqrt(t)),
        (geometric, Beta(6, 12), lambda t, n, g: g.geometric(t, n) - 1),
    ],
    ids=["weibull", "geometric"],
)
def test_a_custom_family_is_calibrated_and_its_naive_posterior_is_not(make, prior, draw):
    """200 trials; KS and variance tests, Holm-corrected, at the 1e-3 level."""
    family = make()

    def result(method):
        return calibrate(
            lambda rng, count: {"theta": prior.draw(count, rng)},
            lambda parameters, rng: [
                expfam.release(draw(t, 100, rng), family, epsilon=0.3, rng=rng) for t in parameters["theta"]
            ],
            lambda releases, rng: expfam.infer(
                releases, prior, method=method, draws=100, chains=1, family=family, rng=rng
            ),
            200,
            rng=np.random.default_rng(2),
        )

    assert result("collapsed").passed(level=1e-3)
    assert not result("naive").passed(level=1e-3)


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize("n", [5, 300])
def test_a_flat_prior_and_a_heavy_tail_leave_no_mass_near_zero_that_the_release_does_not(outside, n):
    """The whole Beta(1, 1) posterior of a geometric, beside a fine grid from 1e-9 on with moments from SciPy."""
    rng = np.random.default_rng(n)
    release = expfam.release(rng.geometric(0.25, n) - 1, geometric(), epsilon=0.5, outside=outside, rng=rng)
    found = posterior_density(release, Beta(1, 1), family=geometric())
    theta = np.r_[np.geomspace(1e-9, 1e-3, 3000)[:-1], np.linspace(1e-3, 1 - 1e-6, 15_000)]
    law, x, end = stats.geom(theta, loc=-1), np.arange(21.0)[:, None], 20.0 if outside == "clip" else 0.0
    mean = (x * law.pmf(x)).sum(axis=0) + end * law.sf(20)
    variance = ((x - mean) ** 2 * law.pmf(x)).sum(axis=0) + (end - mean) ** 2 * law.sf(20)
    log_density = normal_laplace_logpdf(release["sum"][0], n * mean, n * variance, release.scale["sum"])
    mass = np.exp(log_density - log_density.max()) * np.gradient(theta)
    mass = mass / mass.sum()
    centre = (mass * theta).sum()
    assert found.mean == pytest.approx(centre, rel=1e-3)
    assert found.sd == pytest.approx(np.sqrt((mass * (theta - centre) ** 2).sum()), rel=1e-3)
    for level in (1e-3, 0.01, 0.05):
        assert float(found.cdf(level)) == pytest.approx(mass[theta <= level].sum(), abs=1e-3)


def test_a_custom_family_does_not_travel_and_must_be_the_one_of_the_release():
    family, prior = exponential(), Gamma(8, 2)
    release = expfam.release([0.5, 1.0], family, epsilon=1.0, rng=np.random.default_rng(3))
    with pytest.raises(ValueError, match="pass its family"):
        expfam.infer(release, prior)
    assert expfam.infer(release, prior, family=family, draws=10).draws["theta"].size >= 10
    for wrong in (exponential(name="other"), exponential(upper=3.0), Exponential(0, 2)):
        with pytest.raises(ValueError, match=r"model|family"):
            expfam.infer(release, prior, family=wrong)
    with pytest.raises(TypeError, match="prior"):
        expfam.infer(release, Beta(1, 1), family=family)
    with pytest.raises(TypeError, match="family"):
        expfam.infer(release, prior, family="waiting time")
    known = expfam.release([0.5, 1.0], Exponential(0, 2), epsilon=1.0, rng=np.random.default_rng(3))
    with pytest.raises(ValueError, match="family"):
        expfam.infer(known, prior, family=Exponential(0, 3))
    with pytest.raises(ValueError, match="naive"):
        posterior_density(release, prior, family=family, method="naive")


def test_a_density_that_does_not_integrate_to_one_is_refused():
    family = exponential(log_density=lambda x, theta: -theta * x)  # the rate is forgotten
    release = expfam.release([0.5, 1.0], family, epsilon=1.0, rng=np.random.default_rng(4))
    with pytest.raises(ValueError, match="log_density"):
        expfam.infer(release, Gamma(8, 2), family=family)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"name": "exponential"}, "name"),
        ({"name": ""}, "name"),
        ({"upper": -1.0}, "upper"),
        ({"lower": -1.0}, "support"),
        ({"statistic": 3}, "statistic"),
        ({"log_density": None}, "log_density"),
        ({"conjugate": "gamma"}, "conjugate"),
    ],
)
def test_errors_name_the_argument(changes, named):
    with pytest.raises((TypeError, ValueError), match=named):
        exponential(**changes)
    with pytest.raises(ValueError, match="support"):
        CustomFamily("c", 0, 1, (-np.inf, np.inf), np.abs, special.xlogy, np.add, Gamma, discrete=True)


def test_natural_parameters_of_a_custom_family_are_those_of_the_built_in_one_up_to_constants():
    theta = np.linspace(0.5, 3, 7)
    pairs = [
        (exponential(), Exponential(0, 2), theta),
        (weibull(), Exponential(0, 9), theta),
        (geometric(), None, theta / 4),
        (
            CustomFamily(
                "counts",
                0,
                9,
                (0, np.inf),
                lambda x: x,
                lambda x, t: special.xlogy(x, t) - t - special.gammaln(x + 1),
                lambda *a: a[1],
                Gamma,
                discrete=True,
            ),
            Poisson(0, 9),
            theta,
        ),
    ]
    for custom, known, at in pairs:
        eta, normaliser = custom.natural(at)
        expected = (np.log1p(-at), -np.log(at)) if known is None else known.natural(at)
        np.testing.assert_allclose(np.diff(eta), np.diff(expected[0]), rtol=1e-9)
        np.testing.assert_allclose(np.diff(normaliser), np.diff(expected[1]), rtol=1e-9)
    wrong = exponential(log_density=lambda x, theta: stats.cauchy.logpdf(x, theta))
    with pytest.raises(ValueError, match="exponential family"):
        wrong.natural(theta)
    assert Binomial().natural(np.array([0.5]))[0] == [0.0]


# A statistic that does what it likes ----------------------------------------------------------------------------------


def half_normal_like(lower=-1.0, upper=2.0, statistic=np.square, **changes):
    """Normal records with mean 0 and precision 2θ: the statistic x² is not monotone in x."""
    return CustomFamily(
        "scale of a normal",
        lower,
        upper,
        (-np.inf, np.inf),
        statistic,
        log_density=lambda x, t: 0.5 * np.log(t / np.pi) - t * x**2,
        conjugate=lambda prior, s, n, rng: rng.standard_gamma(prior.shape + n / 2, np.shape(s)) / (prior.rate + s),
        prior_type=Gamma,
        **changes,
    )


def exit_at(x):
    if (np.asarray(x) == 0.5).any():
        raise SystemExit("this record is here")
    return x


def warn_at(x):
    if (np.asarray(x) == 0.5).any():
        warnings.warn("this record is here", stacklevel=1)
    return x


NASTY = {  # functions that are monotone at public points; what they do to the record 0.5, or to all, is their secret
    "a spike": lambda x: np.where(x == 0.5, 1e6, x),
    "minus a spike": lambda x: np.where(x == 0.5, -1e6, x),
    "not a number": lambda x: np.where(x == 0.5, np.nan, x),
    "infinite": lambda x: np.where(x == 0.5, np.inf, x),
    "an error": lambda x: 1 / 0 if (x == 0.5).any() else x,
    "an exit": exit_at,
    "a warning": warn_at,
    "another shape": lambda x: np.ones(3) if (x == 0.5).any() else x,
    "text": lambda x: np.array(["secret"]) if (x == 0.5).any() else x,
    "records mixed": lambda x: x + 1000 * (np.mean(x) - x) * (np.size(x) not in (2, 1)) * (0.5 in x),
    "infinite for some": lambda x: np.where(x > 0.999, 1.0, np.log(x + 1) / np.log(2)),
}


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize("name", NASTY)
@given(data=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, -3.0, 7.0, np.inf]), min_size=2, max_size=6))
def test_no_statistic_can_move_the_sum_by_more_than_its_range(name, outside, data):
    """One record replaced; warnings are errors; the exact sums before noise, in units of the grid."""
    family = exponential(0.0, 1.0, statistic=NASTY[name])
    unit = _grid(family, outside)[1]
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        one, other = (_sums(np.array(x), family, outside) for x in (data, [*data[:-1], 0.5]))
    assert abs(int(one.totals[0]) - int(other.totals[0])) * unit <= family.sensitivity(outside) + unit


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize("statistic", [lambda x: 1 / x, lambda x: np.copysign(1.0, x)])
def test_the_sign_of_one_zero_does_not_become_that_of_others(statistic, outside):
    """1/x is infinite at both zeros, with two signs: equal records share one call, and must be the same to it."""
    family = half_normal_like(-5.0, 5.0, statistic, range_inside=(-1.0, 1.0))
    unit = _grid(family, outside)[1]
    for data in ([0.0] * 9, [-0.0] * 9, [0.0, -0.0] * 4 + [1.0]):
        for first in (0.0, -0.0, -4.0, 4.0):
            one, other = (_sums(np.array(x), family, outside) for x in (data, [first, *data[1:]]))
            assert abs(int(one.totals[0]) - int(other.totals[0])) * unit <= family.sensitivity(outside) + unit


def test_a_statistic_that_is_not_monotone_needs_its_range():
    with pytest.raises(ValueError, match="range_inside"):
        half_normal_like()  # the ends say (1, 4), and 0 lies between the bounds
    with pytest.raises(ValueError, match="range_inside"):
        half_normal_like(-1.0, 1.0)  # the ends say (1, 1)
    family = half_normal_like(range_inside=(0, 4))
    assert (family.sensitivity("clip"), family.released_range, family.statistic_range) == (
        4.0,
        (0.0, 4.0),
        (0.0, np.inf),
    )
    for wrong in ((4, 0), (0, np.inf), "04", (0, 1e200)):
        with pytest.raises((TypeError, ValueError), match="range_inside"):
            half_normal_like(range_inside=wrong)


@pytest.mark.parametrize("upper", [4.0, 2.0])
def test_inference_knows_that_the_statistic_was_clipped_to_its_range(upper):
    """Range (0, 4) clips nothing inside the bounds; (0, 2) does, and moments and posterior must follow."""
    family, theta, rng = half_normal_like(range_inside=(0, upper)), 0.8, np.random.default_rng(31)
    x = rng.normal(size=400_000) / np.sqrt(2 * theta)
    clipped = np.minimum(np.clip(x, -1, 2) ** 2, upper)
    mean, cov = family.moments(np.array(theta))
    assert mean[0] == pytest.approx(clipped.mean(), abs=5 * clipped.std() / np.sqrt(x.size))
    assert cov[0, 0] == pytest.approx(clipped.var(), rel=0.02)
    release = expfam.release(x[:4000], family, epsilon=1.0, rng=rng)
    assert release.settings["range_inside"] == (0.0, upper)
    for method in ("collapsed", "gibbs"):
        posterior = expfam.infer(release, Gamma(2, 2), method=method, family=family, draws=1000, rng=rng)
        assert abs(posterior.mean("theta") - theta) < 4 * posterior.sd("theta")
        assert posterior.sd("theta") < 0.1
    with pytest.raises(ValueError, match="family"):
        expfam.infer(release, Gamma(2, 2), family=half_normal_like(range_inside=(0, 3)))


def test_the_claimed_range_is_found_once():
    """A statistic with a memory cannot claim one range and be clipped to another."""
    calls = []

    def growing(x):
        calls.append(1)
        return np.asarray(x) * (1.0 if len(calls) < 3 else 100.0)

    family = exponential(0.0, 1.0, statistic=growing)
    assert family.sensitivity("clip") == 1.0
    assert _sums(np.array([1.0]), family, "clip").values[0] <= 1.0
