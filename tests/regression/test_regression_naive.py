"""The naive posterior and the non-private one: conjugate formulas, limits, and wild releases."""

import numpy as np
import pytest
from scipy import stats

from dpbook import Release, regression
from dpbook.regression.coordinates import Coordinates
from dpbook.regression.layout import Layout

PRIOR = regression.NormalInverseGamma(0.0, 0.5, 3.0, 1.0)


def simulated(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, d))
    return X, 0.2 + X @ np.linspace(-0.3, 0.3, d) + 0.1 * rng.normal(size=n)


def wild(sums, n=20, d=1, intercept=True, scale=5.0):
    """A release with these noisy sums, in coordinates that are the units."""
    inside = Coordinates(-np.ones(d + 1), np.ones(d + 1), intercept)
    return Release(
        values={"sums": np.asarray(sums, dtype=float)},
        model="linear regression",
        mechanism="laplace",
        scale={"sums": scale},
        sensitivity={"sums": scale},
        epsilon=1.0,
        n=n,
        bounds=inside.bounds,
        settings=inside.settings,
        float_safe=False,
    )


def marginals(X, y, prior, intercept=True):
    """The exact marginal laws of each coefficient and of the error variance, by the textbook's formulas."""
    w = np.column_stack([np.ones(len(y)), X]) if intercept else np.asarray(X)
    mean, precision = prior.sized(w.shape[1], "prior")
    after = w.T @ w + precision
    centre = np.linalg.solve(after, w.T @ y + precision @ mean)
    shape = prior.shape + len(y) / 2
    rate = prior.rate + 0.5 * (y @ y + mean @ precision @ mean - centre @ after @ centre)
    scale = np.sqrt(rate / shape * np.diag(np.linalg.inv(after)))
    return [stats.t(2 * shape, loc, each) for loc, each in zip(centre, scale, strict=True)], stats.invgamma(
        shape, scale=rate
    )


def assert_drawn_from(posterior, laws, law_of_variance):
    """KS at the 1e-4 level for each parameter; the draws are independent."""
    for j, law in enumerate(laws):
        assert stats.kstest(posterior.draws["theta"][..., j].ravel(), law.cdf).pvalue > 1e-4
    assert stats.kstest(posterior.draws["sigma2"].ravel(), law_of_variance.cdf).pvalue > 1e-4


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_nonprivate_posterior_is_the_conjugate_one(d, intercept):
    X, y = simulated(40, d)
    X = 1000 + 50 * X  # far from zero: the arithmetic must not cancel
    prior = regression.NormalInverseGamma(0.0, 0.01, 3.0, 1.0)
    posterior = regression.infer_nonprivate(X, y, prior, intercept=intercept, rng=np.random.default_rng(1))
    assert_drawn_from(posterior, *marginals(X, y, prior, intercept))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [1, 3])
def test_at_a_huge_epsilon_the_naive_posterior_is_the_nonprivate_one(d, intercept):
    X, y = simulated(60, d)
    made = regression.release(
        X, y, x_bounds=(-1, 1), y_bounds=(-2, 2), epsilon=1e9, intercept=intercept, rng=np.random.default_rng(2)
    )
    posterior = regression.infer(made, PRIOR, method="naive", rng=np.random.default_rng(3))
    assert_drawn_from(posterior, *marginals(X, y, PRIOR, intercept))


def test_the_naive_posterior_takes_the_noisy_sums_for_the_truth():
    """Equal to the conjugate posterior of two records' worth of made-up data with exactly these sums."""
    layout = Layout(1, True)
    rng = np.random.default_rng(4)
    u = np.column_stack([np.ones(20), rng.uniform(-1, 1, size=(20, 2))])
    posterior = regression.infer(wild(layout.vector(u.T @ u)), PRIOR, method="naive", rng=rng)
    assert_drawn_from(posterior, *marginals(u[:, 1:2], u[:, 2], PRIOR))


def test_the_naive_posterior_fails_where_a_noise_aware_one_does_not():
    """n = 100, epsilon = 1: 90 % intervals cover far less than 90 % of 200 slopes (binomial, 1e-6)."""
    rng = np.random.default_rng(5)
    prior = regression.NormalInverseGamma([0.0, 0.0], 0.4, 20, 0.5)
    drawn = prior.draw(200, rng)
    truth, sigma2 = drawn[:, :-1], drawn[:, -1]
    made = []
    for theta, variance in zip(truth, sigma2, strict=True):
        x = rng.normal(scale=0.15, size=100)
        y = theta[0] + theta[1] * x + np.sqrt(variance) * rng.normal(size=100)
        made.append(regression.release(x, y, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=1.0, rng=rng))
    found = regression.infer(made, prior, method="naive", draws=400, rng=rng)
    inside = [
        low <= theta[1] <= high
        for p, theta in zip(found, truth, strict=True)
        for low, high in [p.interval(0.9, "theta")[1]]
    ]
    assert np.mean(inside) < 0.7


WILD = [
    pytest.param([0, 0, -30, 0, -30], id="negative sums of squares"),
    pytest.param([100, -100, 1, 1, 1], id="means beyond the bounds"),
    pytest.param([0, 0, 1e-9, 50, 50], id="a covariate without spread"),
    pytest.param([1e6, -1e6, -1e6, 1e6, 1e6], id="huge noise"),
    pytest.param([0, 0, 0, 0, 0], id="nothing"),
]


@pytest.mark.parametrize("sums", WILD)
@pytest.mark.parametrize("method", ["naive", "gibbs-prior", "gibbs-update"])
@pytest.mark.filterwarnings("ignore::dpbook.posterior.ConvergenceWarning")
def test_no_release_however_wild_makes_inference_raise(sums, method):
    options = {} if method == "naive" else {"burn_in": 50, "thin": 1}
    found = regression.infer(
        wild(sums), PRIOR, method=method, draws=200, chains=4, rng=np.random.default_rng(6), **options
    )
    assert np.isfinite(found.draws["theta"]).all()
    assert (found.draws["sigma2"] > 0).all()


@pytest.mark.parametrize(
    ("X", "y"),
    [
        pytest.param(np.ones((5, 3)), np.zeros(5), id="constant columns and response"),
        pytest.param(np.full((2, 5), 0.3), [0.1, 0.4], id="fewer records than covariates"),
        pytest.param([[0.5]], [0.5], id="one record"),
        pytest.param(
            np.repeat(np.linspace(-1, 1, 30)[:, None], 2, axis=1), np.linspace(-1, 1, 30), id="rank-deficient"
        ),
    ],
)
@pytest.mark.parametrize("method", ["naive", "gibbs-noisy", "gibbs-prior", "gibbs-update"])
@pytest.mark.parametrize("epsilon", [0.01, 1e6])
@pytest.mark.filterwarnings("ignore::dpbook.posterior.ConvergenceWarning")
def test_degenerate_data_give_a_sane_posterior(X, y, method, epsilon):
    made = regression.release(
        X, y, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=epsilon, moments=True, rng=np.random.default_rng(7)
    )
    options = {} if method == "naive" else {"burn_in": 50, "thin": 1}
    found = regression.infer(made, PRIOR, method=method, draws=200, chains=4, rng=np.random.default_rng(8), **options)
    assert np.isfinite(found.draws["theta"]).all()
    if method != "naive":  # which believes the noise
        assert np.abs(found.mean("theta")).max() < 50
        assert 0 < found.mean("sigma2") < 50
    alone = regression.infer_nonprivate(X, y, PRIOR, rng=np.random.default_rng(9))
    assert np.isfinite(alone.draws["theta"]).all()


def test_the_nonprivate_posterior_does_not_clip():
    inside = Coordinates(np.array([0.0, 0.0]), np.array([1.0, 1.0]), True)
    assert inside.records(np.array([[5.0, 5.0]])).tolist() == [[1.0, 1.0]]
    x = np.linspace(0, 100, 50)
    prior = regression.NormalInverseGamma(0, 1e-9, 1, 1e-6)
    found = regression.infer_nonprivate(x, 3 * x, prior, rng=np.random.default_rng(0))
    assert found.mean("theta")[1] == pytest.approx(3, abs=1e-3)
    assert found.method == "non-private"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"prior": 3}, TypeError, "prior must be a regression.NormalInverseGamma"),
        ({"draws": 0}, ValueError, "draws must be at least 1"),
        ({"intercept": None}, TypeError, "intercept must be True or False"),
        ({"prior": regression.NormalInverseGamma([0, 0, 0], 1, 1, 1)}, ValueError, "prior must be for 2 coefficients"),
    ],
)
def test_nonprivate_inference_names_what_is_wrong(change, error, message):
    with pytest.raises(error, match=message):
        regression.infer_nonprivate(**{"X": [1.0, 2.0], "y": [1.0, 2.0], "prior": PRIOR, **change})
