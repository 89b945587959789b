"""Counts that spread more widely than Poisson counts: sensitivity, moments, posterior, calibration, extremes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from dpbook import Release, expfam
from dpbook.diagnostics import calibrate
from dpbook.expfam import Gamma, MeanAndDispersion, NegativeBinomial
from dpbook.expfam.negative_binomial import CountLaw

X = np.arange(4000.0)


def probabilities(mean, size):
    return stats.nbinom.pmf(X, size, size / (size + mean))


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("bounds", [(0, 7), (3, 11), (0, 1)])
def test_no_pair_of_counts_moves_the_sums_by_more_than_two_and_the_ends_do(bounds, norm, outside):
    family = NegativeBinomial(*bounds)
    released = family.released(np.arange(20.0)[:, None], outside)
    moved = [np.linalg.norm(a - b, ord=norm) for a, b in itertools.combinations(released, 2)]
    assert max(moved) <= family.sensitivity(outside, norm) == 2.0
    if outside == "clip":
        assert max(moved) == pytest.approx(2.0)


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize(("mean", "size"), [(3.0, 0.7), (0.2, 5.0), (9.0, 2.0), (4.0, 1e6)])
def test_moments_are_those_of_enumeration(mean, size, outside):
    family = NegativeBinomial(2, 12)
    mass = probabilities(mean, size)
    values = np.hstack([family.released(X[:, None], outside), family.statistics(X[:, None])])
    expected = mass @ values
    covariance = (values - expected).T @ ((values - expected) * mass[:, None])
    found, cov = family.moments([mean, size], outside)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(cov, covariance, rtol=1e-6, atol=1e-10)
    law = CountLaw(family, family.default_prior, outside)
    first, second, _ = law.moments(np.log([[mean], [size]]))
    np.testing.assert_allclose(first[0], expected[:2], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(second[0], covariance[:2, :2], rtol=1e-7, atol=1e-12)


def test_derivatives_of_the_law_are_those_of_differences():
    rng = np.random.default_rng(0)
    law = CountLaw(NegativeBinomial(1, 15), MeanAndDispersion(Gamma(2, 1), Gamma(1, 1)), "clip")
    at, weights, matrices = np.log([[3.0, 0.5], [0.7, 40.0]]), rng.normal(size=(2, 2)), rng.normal(size=(2, 2, 2))

    def scalar(position):
        mean, cov, _ = law.moments(position)
        return (mean * weights).sum(axis=1) + (cov * matrices).sum(axis=(1, 2))

    gradient, prior = law.moments(at)[2](weights, matrices), law.log_prior(at)[1]
    for i in range(2):
        step = 1e-5 * np.eye(2)[:, [i]]
        assert gradient[i] == pytest.approx((scalar(at + step) - scalar(at - step)) / 2e-5, rel=1e-6)
        slope = (law.log_prior(at + step)[0] - law.log_prior(at - step)[0]) / 2e-5
        assert prior[i] == pytest.approx(slope, rel=1e-6)


def test_the_prior_of_logarithms_is_that_of_mean_and_size():
    prior = MeanAndDispersion(Gamma(2, 1), Gamma(3, 2))
    law = CountLaw(NegativeBinomial(0, 5), prior, "clip")
    theta = np.array([[0.3, 2.0], [4.0, 0.1]])
    by_law = law.log_prior(np.log(theta.T))[0]
    assert np.diff(by_law) == pytest.approx(np.diff(prior.log_density(theta) + np.log(theta).sum(axis=1)))
    assert prior.draw(100_000, np.random.default_rng(1)).mean(axis=0) == pytest.approx([2.0, 1.0], rel=0.03)


def test_probabilities_of_cells_are_those_of_the_distribution_function():
    family = NegativeBinomial(2, 40)
    cells = family.cell_probabilities(np.array([[3.0, 0.7], [12.0, 5.0]]), np.asarray(family.check_edges))
    for found, (mean, size) in zip(cells, [(3.0, 0.7), (12.0, 5.0)], strict=True):
        mass, edges = probabilities(mean, size), [-np.inf, *family.check_edges[:-1], 40.5, np.inf]
        expected = [mass[(low <= X) & (high > X)].sum() for low, high in itertools.pairwise(edges)]
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_posterior_agrees_with_quadrature():
    """A grid of 60 by 60, moments by enumeration; 8,000 draws: means within .06 sd, sds within 6 %."""
    rng, family = np.random.default_rng(2), NegativeBinomial(0, 20)
    prior = MeanAndDispersion(Gamma(3, 1), Gamma(2, 2))
    counts = rng.negative_binomial(0.8, 0.8 / 3.8, 300)
    noisy = expfam.release(counts, family, epsilon=2.0, mechanism="gaussian", delta=1e-6, rng=rng)
    logs = np.stack(np.meshgrid(np.linspace(0.6, 1.7, 60), np.linspace(-1.8, 2.2, 60)), axis=-1).reshape(-1, 2)
    released, log_posterior = family.released(X[:300, None], "clip"), []
    for mean, size in np.exp(logs):
        mass = probabilities(mean, size)[:300]
        centre = mass @ released
        spread = 300 * (released - centre).T @ ((released - centre) * mass[:, None])
        law = stats.multivariate_normal(300 * centre, spread + noisy.scale["sum"] ** 2 * np.eye(2))
        log_posterior.append(law.logpdf(noisy["sum"]) + prior.log_density([mean, size]) + np.log(mean * size))
    weights = np.exp(np.array(log_posterior) - max(log_posterior))
    weights /= weights.sum()
    centre = weights @ logs
    sd = np.sqrt(weights @ (logs - centre) ** 2)
    found = np.log(expfam.infer(noisy, prior, draws=8000, rng=rng).draws["theta"]).reshape(-1, 2)
    assert (np.abs(found.mean(axis=0) - centre) < 0.06 * sd).all()
    assert found.std(axis=0) == pytest.approx(sd, rel=0.06)


@pytest.mark.parametrize(("epsilon", "outside"), [(1.0, "clip"), (10.0, "redact")])
def test_the_posterior_is_calibrated(epsilon, outside):
    """200 trials; KS and variance tests, Holm-corrected: a right posterior fails with probability 1e-3 a case."""
    family, prior = NegativeBinomial(0, 15), MeanAndDispersion(Gamma(6, 2), Gamma(6, 6))

    def simulate(parameters, rng):
        sets = [rng.negative_binomial(size, size / (size + mean), 500) for mean, size in parameters["theta"]]
        return [expfam.release(x, family, epsilon=epsilon, outside=outside, rng=rng) for x in sets]

    found = calibrate(
        lambda rng, count: {"theta": prior.draw(count, rng)},
        simulate,
        lambda releases, rng: expfam.infer(releases, prior, draws=200, chains=4, rng=rng),
        200,
        draws=40,
        rng=np.random.default_rng(3),
    )
    assert found.passed(level=1e-3)


@pytest.mark.filterwarnings("ignore::dpbook.doubts.Doubt")
@pytest.mark.parametrize(("n", "epsilon"), [(5, 0.03), (5, 30.0), (100_000, 0.03), (100_000, 30.0)])
def test_extremes_are_survived(n, epsilon):
    rng = np.random.default_rng(4)
    for counts in (rng.negative_binomial(0.3, 0.1, n), np.zeros(n), np.full(n, 10**6)):
        noisy = expfam.release(counts, NegativeBinomial(0, 30), epsilon=epsilon, check=0.1, rng=rng)
        posterior = expfam.infer(Release.from_json(noisy.to_json()), draws=400, rng=rng)
        assert np.isfinite(posterior.draws["theta"]).all()
        low, high = posterior.interval(0.9, "theta")[0]
        assert 0 < low < high


@pytest.mark.parametrize("bounds", [(0, 2.5), (-1, 4), (0, 10**6)])
def test_bounds_must_be_whole_and_moderate(bounds):
    with pytest.raises(ValueError, match="lower"):
        NegativeBinomial(*bounds)


def test_it_has_no_conjugate_prior_and_says_so():
    with pytest.raises(TypeError, match="no conjugate prior"):
        expfam.infer_nonprivate([1, 2, 3], NegativeBinomial(0, 5), NegativeBinomial(0, 5).default_prior)
