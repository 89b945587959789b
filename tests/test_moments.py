"""The engine of noisy sums: moments of clipped records, and posteriors drawn from them, against exact computations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from dpbook._arrays import Array
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.moments import NoisySums, Pullback, clipped_normal, mode, normal_nodes, normal_scores, sample, sample_error


@pytest.mark.parametrize(
    ("mean", "sd", "low", "high"), [(0.0, 1.0, -1, 1), (0.7, 0.3, -1, 1), (-3.0, 0.5, -1, 1), (0.2, 2.0, -0.5, 1)]
)
def test_moments_of_a_clipped_normal_are_its_integrals(mean: float, sd: float, low: float, high: float) -> None:
    found = clipped_normal(np.array(mean), np.array(sd), low, high)
    law = stats.norm(mean, sd)
    for k in range(1, 5):
        inside, _ = integrate.quad(lambda v, k=k: v**k * law.pdf(v), low, high, epsabs=1e-13)
        assert found.moments[k - 1] == pytest.approx(inside + low**k * law.cdf(low) + high**k * law.sf(high), abs=1e-11)
    assert found.inside == pytest.approx(law.cdf(high) - law.cdf(low), abs=1e-14)


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 1.0), (0.7, 0.3), (-1.4, 0.5), (0.99, 0.01)])
def test_derivatives_of_a_clipped_normal_are_those_of_its_moments(mean: float, sd: float) -> None:
    step = 1e-6 * sd
    found = clipped_normal(np.array(mean), np.array(sd))
    for by, shift in ((found.by_mean, (step, 0.0)), (found.by_sd, (0.0, step))):
        ends = [clipped_normal(np.array(mean + s * shift[0]), np.array(sd + s * shift[1])).moments for s in (-1, 1)]
        np.testing.assert_allclose(by, (ends[1] - ends[0]) / (2 * step), atol=1e-7)


def test_a_clipped_normal_far_outside_sits_at_the_bound() -> None:
    found = clipped_normal(np.array([40.0, -40.0]), np.array(0.1))
    np.testing.assert_allclose(found.moments, [[1, -1], [1, 1], [1, -1], [1, 1]], atol=1e-12)
    np.testing.assert_allclose(found.by_mean, 0.0, atol=1e-12)


def test_the_fixed_sample_is_fixed_and_even() -> None:
    scores = normal_scores(1024, 3)
    np.testing.assert_array_equal(scores, normal_scores(1024, 3))
    assert not np.isin(scores, normal_scores(1024, 3, second=True)).any()
    # A plain random sample would miss the first two by 0.03 and more, the third by 0.15.
    np.testing.assert_allclose(scores.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(scores.T @ scores / 1024, np.eye(3), atol=1e-12)
    np.testing.assert_allclose((scores**4).mean(axis=0), 3.0, atol=0.15)
    with pytest.raises(ValueError, match=r"size must be a power of two, .*got 1000"):
        normal_scores(1000, 2)
    with pytest.raises(ValueError, match="larger than twice the dimension 8, got 16"):
        normal_scores(16, 8)


class NormalMean:
    """A record x ~ N(position, 1), or x = position itself, with prior N(0, tau²): the sum's posterior is known."""

    dim = 1

    def __init__(self, tau: float, *, certain: bool = False) -> None:
        self.tau, self.certain = tau, np.array([certain])

    def moments(self, position: Array) -> tuple[Array, Array, Pullback]:
        cov = np.full((position.shape[1], 1, 1), 0.0 if self.certain[0] else 1.0)
        return position.T.copy(), cov, lambda by_mean, _: by_mean.T

    def mean(self, position: Array) -> Array:
        return position.T.copy()

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        return -0.5 * (position[0] / self.tau) ** 2, -position / self.tau**2

    def start(self, sums: NoisySums) -> Array:
        return (sums.noisy / sums.n[:, None]).T


def exact(z: float, n: float, scale: float, tau: float, laplace: bool, certain: bool) -> tuple[float, float]:
    """Mean and sd of the posterior, on a grid."""
    grid = np.linspace(-4 * tau, 4 * tau, 40_001)
    if certain:
        fit = -np.abs(z - n * grid) / scale if laplace else -0.5 * ((z - n * grid) / scale) ** 2
    elif laplace:
        fit = normal_laplace_logpdf(z, n * grid, n, scale)
    else:
        fit = -0.5 * (z - n * grid) ** 2 / (n + scale**2)
    weight = np.exp(fit - 0.5 * (grid / tau) ** 2 - fit.max())
    weight /= weight.sum()
    centre = float(weight @ grid)
    return centre, float(np.sqrt(weight @ (grid - centre) ** 2))


@pytest.mark.parametrize("certain", [False, True], ids=["sampled", "certain"])
@pytest.mark.parametrize("laplace", [True, False], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("scale", [0.5, 30.0], ids=["little noise", "much noise"])
def test_draws_have_the_mean_and_sd_of_the_exact_posterior(laplace: bool, scale: float, certain: bool) -> None:
    """2,000 draws a chain, 20 chains: three standard errors of some 5,000 effective draws are 4 % of the sd."""
    n, tau = 50.0, 0.7
    noisy = np.array([[10.0], [-20.0]])
    sums = NoisySums(noisy, np.full(2, scale), np.full(2, n), laplace)
    law = NormalMean(tau, certain=certain)
    drawn = sample(law, sums, per_chain=2000, chains=20, rng=np.random.default_rng(1))
    for release, z in enumerate(noisy[:, 0]):
        centre, sd = exact(z, n, scale, tau, laplace, certain)
        assert abs(drawn[:, :, release].mean() - centre) < 0.05 * sd
        assert drawn[:, :, release].std() == pytest.approx(sd, rel=0.05)


def test_the_mode_is_where_the_posterior_is_highest() -> None:
    sums = NoisySums(np.array([[10.0]]), np.array([3.0]), np.array([50.0]), False)
    shrunk = 10.0 / 50 * 0.7**2 / (0.7**2 + (50 + 9) / 50**2)
    assert mode(NormalMean(0.7), sums)[0, 0] == pytest.approx(shrunk, abs=1e-6)


def test_the_error_of_a_sample_is_in_units_of_the_sums_spread() -> None:
    sums = NoisySums(np.array([[10.0]]), np.array([6.0]), np.array([64.0]), False)
    found = sample_error(NormalMean(1.0), np.full((1, 1), 0.1), sums, np.zeros((1, 1)))
    assert found[0] == pytest.approx(0.1 * 64 / np.sqrt(64 + 36))


@pytest.mark.parametrize("second", [False, True])
def test_a_grid_of_nodes_averages_smooth_functions_exactly_and_kinks_by_the_square_of_its_step(second: bool) -> None:
    points, weights = normal_nodes(64, 1, second=second)
    for power, exact in ((2, 1.0), (4, 3.0), (6, 15.0)):  # what is beyond the grid is 3e-7 of the last
        assert weights @ points[:, 0] ** power == pytest.approx(exact, rel=1e-7)
    clipped = clipped_normal(np.array(0.3), np.array(1.0)).moments[0]
    errors = []
    for size in (64, 128, 256):
        points, weights = normal_nodes(size, 1, second=second)
        errors.append(abs(float(weights @ np.clip(0.3 + points[:, 0], -1, 1)) - float(clipped)))
    # A kink's error is at most step² / 8 times the density there, at both ends.
    assert all(error < 2 * 0.4 * (14 / size) ** 2 / 8 for error, size in zip(errors, (64, 128, 256), strict=True))


def test_nodes_of_several_dimensions_are_the_fixed_sample() -> None:
    points, weights = normal_nodes(256, 2)
    np.testing.assert_array_equal(points, normal_scores(256, 2))
    assert weights.sum() == pytest.approx(1.0)
