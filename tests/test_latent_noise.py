from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import mpmath as mp  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from dpbook.latent_noise import (
    draw_noise_variance,
    draw_statistic,
    draw_statistics,
    inverse_gaussian,
    normal_laplace_cdf,
    normal_laplace_logcdf,
    normal_laplace_logpdf,
)

FloatArray = NDArray[np.float64]
LEVEL = 1e-6  # of every statistical test below: its probability of a false alarm, were the seed not fixed


# ---- inverse Gaussian draws


@pytest.mark.parametrize(("mean", "shape"), [(1.0, 1.0), (0.01, 3.0), (5.0, 0.2), (1000.0, 1.0), (2.0, 400.0)])
def test_inverse_gaussian_draws_follow_the_density(mean: float, shape: float) -> None:
    """Kolmogorov-Smirnov test; SciPy writes IG(mean, shape) as invgauss(mean/shape, scale=shape)."""
    draws = inverse_gaussian(np.full(50_000, mean), shape, np.random.default_rng(1))
    assert stats.kstest(draws, stats.invgauss(mean / shape, scale=shape).cdf).pvalue > LEVEL


def test_an_infinite_mean_gives_levy_draws() -> None:
    draws = inverse_gaussian(np.full(50_000, np.inf), 3.0, np.random.default_rng(2))
    assert stats.kstest(draws, stats.levy(scale=3.0).cdf).pvalue > LEVEL


def test_huge_means_approach_the_levy_law_where_numpy_fails() -> None:
    """At mean 10^17 NumPy's own sampler has returned zeros; ours is still Lévy (the difference is of order 10^-8)."""
    draws = inverse_gaussian(np.full(50_000, 1e17), 1.0, np.random.default_rng(3))
    assert (draws > 0).all()
    assert stats.kstest(draws, stats.levy.cdf).pvalue > LEVEL


@pytest.mark.parametrize("mean", [1e-310, 1e-300, 1e-20, 1e-8])
def test_tiny_means_give_nearly_normal_draws_of_relative_variance_mean_over_shape(mean: float) -> None:
    draws = inverse_gaussian(np.full(50_000, mean), 1.0, np.random.default_rng(4))
    assert (np.abs(draws / mean - 1) < 7 * np.sqrt(mean) + 1e-14).all()
    if mean == 1e-8:
        assert stats.kstest((draws / mean - 1) / np.sqrt(mean), "norm").pvalue > LEVEL


def test_inverse_gaussian_broadcasts_and_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draws = inverse_gaussian([[1e-200], [1.0], [1e200], [np.inf]], [1.0, 1e-5, 1e5], np.random.default_rng(5))
    assert draws.shape == (4, 3)
    assert (draws > 0).all()
    assert np.isfinite(draws).all()


# ---- Laplace noise as a mixture of normals


@pytest.mark.parametrize(("residual", "scale"), [(0.7, 1.0), (-12.0, 2.0), (0.0, 3.0), (1e-9, 0.5)])
def test_noise_variance_follows_its_conditional_law(residual: float, scale: float) -> None:
    """Against N(residual; 0, v) · Exponential(v; mean 2 scale^2), integrated numerically in log v."""
    grid = np.linspace(-70.0, 12.0, 40_001)
    log_density = -np.exp(-grid) * residual**2 / 2 + grid / 2 - np.exp(grid) / (2 * scale**2)  # times dv = v dlog v
    cdf = integrate.cumulative_simpson(np.exp(log_density), x=grid, initial=0)
    draws = draw_noise_variance(np.full(50_000, residual), scale, np.random.default_rng(6))
    assert stats.kstest(np.log(draws), lambda t: np.interp(t, grid, cdf / cdf[-1])).pvalue > LEVEL


def test_redrawing_the_variance_leaves_the_joint_law_of_variance_and_laplace_noise_unchanged() -> None:
    """Noise from NumPy's Laplace sampler: the drawn variance is exponential, the noise over its root normal."""
    rng = np.random.default_rng(7)
    noise = rng.laplace(scale=2.5, size=50_000)
    variance = draw_noise_variance(noise, 2.5, rng)
    standard = noise / np.sqrt(variance)
    assert stats.kstest(variance, stats.expon(scale=2 * 2.5**2).cdf).pvalue > LEVEL
    assert stats.kstest(standard, "norm").pvalue > LEVEL
    # Independent of each other, too: Fisher's z of the correlation of magnitudes.
    assert abs(np.corrcoef(variance, np.abs(standard))[0, 1]) < stats.norm.isf(LEVEL / 2) / np.sqrt(50_000)


def test_noise_variances_of_extreme_residuals_are_positive_and_finite() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        variance = draw_noise_variance([[0.0], [1e-300], [1e100]], [1e-3, 1.0, 1e8], np.random.default_rng(8))
    assert variance.shape == (3, 3)
    assert ((variance > 0) & np.isfinite(variance)).all()


# ---- the normal-Laplace distribution


def _by_quadrature(z: float, variance: float, scale: float) -> tuple[float, float]:
    """Log density and log distribution function at z, from the convolution integral itself, in 20 digits."""
    with mp.workdps(20):
        sd, b = mp.sqrt(mp.mpf(variance)), mp.mpf(scale)
        cuts = sorted({-mp.inf, mp.inf, mp.mpf(0), *(mp.mpf(z) + k * sd for k in (-30, -8, -2, 0, 2, 8, 30))})

        def normal(noise: Any) -> Any:
            return mp.npdf(z - noise, 0, sd) * mp.exp(-abs(noise) / b) / (2 * b)

        def below(noise: Any) -> Any:
            return mp.ncdf((z - noise) / sd) * mp.exp(-abs(noise) / b) / (2 * b)

        return float(mp.log(mp.quad(normal, cuts))), float(mp.log(mp.quad(below, cuts)))


def _by_formula(z: float, variance: float, scale: float) -> tuple[float, float]:
    """The same from the textbook formula, in 60 digits. Left of the mean only: there nothing cancels."""
    with mp.workdps(60):
        z, sd, b = mp.mpf(z), mp.sqrt(mp.mpf(variance)), mp.mpf(scale)
        grown = mp.exp((sd / b) ** 2 / 2) / 2
        right = grown * mp.exp(-z / b) * mp.ncdf(z / sd - sd / b)
        left = grown * mp.exp(z / b) * mp.ncdf(-z / sd - sd / b)
        return float(mp.log((right + left) / b)), float(mp.log(mp.ncdf(z / sd) - right + left))


def test_normal_laplace_agrees_with_quadrature_at_random_parameters() -> None:
    rng = np.random.default_rng(9)
    for _ in range(8):
        scale = 10 ** rng.uniform(-2, 2)
        variance = (scale * 10 ** rng.uniform(-1, 1)) ** 2
        z = np.sqrt(variance + 2 * scale**2) * rng.normal(scale=3)
        log_density, log_probability = _by_quadrature(z, variance, scale)
        assert normal_laplace_logpdf(z, 0.0, variance, scale) == pytest.approx(log_density, rel=1e-10, abs=1e-10)
        assert normal_laplace_logcdf(z, 0.0, variance, scale) == pytest.approx(log_probability, rel=1e-10, abs=1e-12)


def test_normal_laplace_keeps_its_digits_in_far_tails_and_at_extreme_ratios() -> None:
    """Up to a thousand standard deviations out, and sd/scale from 1/1000 to 1000, against 60-digit arithmetic."""
    rng = np.random.default_rng(10)
    for _ in range(300):
        scale = 10 ** rng.uniform(-3, 3)
        variance = (scale * 10 ** rng.uniform(-3, 3)) ** 2
        z = -np.sqrt(variance + 2 * scale**2) * 10 ** rng.uniform(-4, 3)
        log_density, log_probability = _by_formula(z, variance, scale)
        assert normal_laplace_logpdf(z, 0.0, variance, scale) == pytest.approx(log_density, rel=1e-14, abs=3e-15)
        assert normal_laplace_logcdf(z, 0.0, variance, scale) == pytest.approx(log_probability, rel=1e-14)


def test_a_thousand_standard_deviations_out_the_density_is_the_laplace_tail() -> None:
    """Far out the tail is exp(s²/2b² - |z|/b)/2b exactly, to double precision."""
    assert normal_laplace_logpdf(-1000.0, 0.0, 1.0, 1.0) == pytest.approx(-1000 + 0.5 - np.log(2), rel=1e-15)
    assert normal_laplace_logcdf(-1000.0, 0.0, 1.0, 1.0) == pytest.approx(-1000 + 0.5 - np.log(2), rel=1e-15)


@pytest.mark.parametrize("variance", [0.0, 1e-300, 1e-20])
def test_without_variance_the_law_is_laplace(variance: float) -> None:
    y = np.array([-700.0, -1.0, 0.5, 1.0, 4.0])
    laplace = stats.laplace(loc=1.0, scale=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(normal_laplace_logpdf(y, 1.0, variance, 2.0), laplace.logpdf(y), rtol=1e-9)
        np.testing.assert_allclose(normal_laplace_logcdf(y, 1.0, variance, 2.0), laplace.logcdf(y), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-300, 1e-10])
def test_without_noise_the_law_is_normal(scale: float) -> None:
    y = np.array([-30.0, -1.0, 0.5, 1.0, 4.0])
    normal = stats.norm(loc=1.0, scale=2.0)
    np.testing.assert_allclose(normal_laplace_logpdf(y, 1.0, 4.0, scale), normal.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(normal_laplace_logcdf(y, 1.0, 4.0, scale), normal.logcdf(y), rtol=1e-12)


def test_normal_laplace_is_symmetric_and_shifts_with_its_mean() -> None:
    z = np.linspace(-9, 9, 37)
    density = normal_laplace_logpdf(5 + z, 5.0, 3.0, 1.5)
    np.testing.assert_allclose(density, density[::-1], rtol=1e-14)
    np.testing.assert_allclose(density, normal_laplace_logpdf(z, 0.0, 3.0, 1.5), rtol=1e-14)
    below = normal_laplace_cdf(5 + z, 5.0, 3.0, 1.5)
    np.testing.assert_allclose(below + below[::-1], 1, rtol=1e-14)
    assert (np.diff(below) > 0).all()


def test_samples_of_normal_plus_laplace_follow_the_distribution_function() -> None:
    rng = np.random.default_rng(11)
    sample = rng.normal(2.0, 1.5, size=50_000) + rng.laplace(scale=0.8, size=50_000)
    assert stats.kstest(sample, lambda y: normal_laplace_cdf(y, 2.0, 1.5**2, 0.8)).pvalue > LEVEL


def test_normal_laplace_broadcasts_and_gives_a_number_for_numbers() -> None:
    assert isinstance(normal_laplace_logpdf(0.0, 0.0, 1.0, 1.0), float)
    assert isinstance(normal_laplace_logcdf(0.0, 0.0, 1.0, 1.0), float)
    assert normal_laplace_logpdf(np.zeros((3, 1)), 0.0, [0.0, 1.0], 2.0).shape == (3, 2)


# ---- the statistics behind a release


def _mean_and_covariance_agree(draws: FloatArray, mean: NDArray[Any], cov: NDArray[Any]) -> None:
    """Two chi-squared tests, at LEVEL each, of independent normal draws (n, k) against their law."""
    n, k = draws.shape
    white = np.linalg.solve(np.linalg.cholesky(cov), (draws - mean).T).T
    assert stats.chi2.sf(n * (white.mean(axis=0) ** 2).sum(), k) > LEVEL
    # For white normal draws each entry of the second moments has variance 1/n, each diagonal one 2/n.
    off = white.T @ white / n - np.eye(k)
    assert stats.chi2.sf(n * (off**2).sum() / 2, k * (k + 1) / 2) > LEVEL


def _problem(seed: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """A mean, a covariance of statistics of very different sizes, a noisy release and its noise variances."""
    rng = np.random.default_rng(seed)
    size = np.array([1.0, 30.0, 0.01])
    factor = rng.normal(size=(3, 3)) * size[:, None]
    return 4 * size, factor @ factor.T, size * rng.normal(4, 3, size=3), size**2 * rng.uniform(0.2, 3, size=3)


def test_statistics_follow_the_product_of_their_two_normals() -> None:
    """Where both are invertible: precision cov^-1 + D^-1, mean that precision's inverse times the weighted means."""
    mean, cov, noisy, noise_variance = _problem(12)
    precision = np.linalg.inv(cov) + np.diag(1 / noise_variance)
    centre = np.linalg.solve(precision, np.linalg.solve(cov, mean) + noisy / noise_variance)
    draws = draw_statistics(np.tile(mean, (50_000, 1)), cov, noisy, noise_variance, np.random.default_rng(13))
    _mean_and_covariance_agree(draws, centre, np.linalg.inv(precision))


def test_each_member_of_a_batch_follows_its_own_law() -> None:
    problems = [_problem(seed) for seed in (14, 15)]
    mean, cov, noisy, noise_variance = (np.stack(part)[:, None] for part in zip(*problems, strict=True))
    everyone = np.broadcast_to(mean, (2, 30_000, 3))
    draws = draw_statistics(everyone, cov, noisy, noise_variance, np.random.default_rng(16))
    assert draws.shape == (2, 30_000, 3)
    for member, (m, c, y, d) in enumerate(problems):
        gain = c @ np.linalg.inv(c + np.diag(d))
        _mean_and_covariance_agree(draws[member], m + gain @ (y - m), c - gain @ c)


def test_counts_of_a_multinomial_keep_their_sum_and_the_law_of_the_free_ones() -> None:
    """The covariance is singular. Without the last count it is not, and its noise then bears on n minus the others."""
    n, p = 1000, np.array([0.2, 0.3, 0.1, 0.4])
    mean, cov = n * p, n * (np.diag(p) - np.outer(p, p))
    noisy, noise_variance = np.array([230.0, 270.0, 150.0, 420.0]), np.array([300.0, 50.0, 90.0, 200.0])
    draws = draw_statistics(np.tile(mean, (50_000, 1)), cov, noisy, noise_variance, np.random.default_rng(17))
    np.testing.assert_allclose(draws.sum(axis=1), n, rtol=1e-8)
    seen = np.vstack([np.eye(3), -np.ones(3)])  # the four counts as a function of three, up to (0, 0, 0, n)
    precision = np.linalg.inv(cov[:3, :3]) + seen.T @ np.diag(1 / noise_variance) @ seen
    shift = np.linalg.solve(cov[:3, :3], mean[:3]) + seen.T @ ((noisy - [0, 0, 0, n]) / noise_variance)
    _mean_and_covariance_agree(draws[:, :3], np.linalg.solve(precision, shift), np.linalg.inv(precision))


@pytest.mark.parametrize("noise", [1e-8, 1e-30])
def test_noise_far_below_a_singular_covariance_gives_the_release_projected(noise: float) -> None:
    """Two opposite statistics of variance 10^6, released nearly without noise: each is half the released gap."""
    cov = 1e6 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    draws = draw_statistics(np.zeros((100, 2)), cov, [700.0, -500.0], [noise, noise], np.random.default_rng(18))
    np.testing.assert_allclose(draws, np.tile([600.0, -600.0], (100, 1)), atol=0.05)


def test_a_statistic_without_variance_stays_at_its_mean() -> None:
    cov = np.diag([4.0, 0.0, 1.0])
    draws = draw_statistics(
        np.tile([1.0, 7.0, 0.0], (1000, 1)), cov, np.zeros(3), np.ones(3), np.random.default_rng(19)
    )
    assert (draws[:, 1] == 7).all()
    assert (draws[:, [0, 2]].std(axis=0) > 0.5).all()


def test_a_singular_covariance_keeps_statistics_of_every_size() -> None:
    """One relation among large statistics must not drown the variance of a small one (10^-18 of theirs)."""
    cov = np.zeros((3, 3))
    cov[:2, :2] = 1e12
    cov[2, 2] = 1e-6
    draws = draw_statistics(np.zeros((50_000, 3)), cov, np.zeros(3), [1e12, 1e12, 1e-6], np.random.default_rng(20))
    np.testing.assert_allclose(draws[:, 0], draws[:, 1], rtol=1e-6)
    assert stats.kstest(draws[:, 2] / np.sqrt(0.5e-6), "norm").pvalue > LEVEL
    assert stats.kstest(draws[:, 0] / np.sqrt(1e12 / 3), "norm").pvalue > LEVEL


def test_an_indefinite_covariance_is_mended_and_never_raises() -> None:
    """Moments computed from noisy statistics can be impossible; post-processing must go on."""
    cov = np.array([[[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], [[-1.0, 0.5], [0.5, 2.0]]])
    draws = draw_statistics(np.zeros((50_000, 3, 2)), cov, np.zeros(2), np.ones(2), np.random.default_rng(21))
    assert np.isfinite(draws).all()
    # The nearest matrix with eigenvalues (3, 0) makes the first two statistics equal; the neighbour is untouched.
    np.testing.assert_allclose(draws[:, 0, 0], draws[:, 0, 1], atol=1e-9)
    _mean_and_covariance_agree(draws[:, 1], np.zeros(2), np.eye(2) / 2)
    assert (draws[:, 2, 0] == 0).all()


@pytest.mark.parametrize(
    ("variance", "noise_variance"), [(4.0, 1.0), (1e-4, 1e4), (1e4, 1e-4)], ids=["even", "no news", "no noise"]
)
def test_a_scalar_statistic_follows_the_product_of_its_two_normals(variance: float, noise_variance: float) -> None:
    draws = draw_statistic(np.full(50_000, 3.0), variance, 8.0, noise_variance, np.random.default_rng(22))
    precision = 1 / variance + 1 / noise_variance
    centre = (3.0 / variance + 8.0 / noise_variance) / precision
    assert stats.kstest((draws - centre) * np.sqrt(precision), "norm").pvalue > LEVEL


def test_a_scalar_statistic_without_variance_is_its_mean_and_shapes_broadcast() -> None:
    draws = draw_statistic([[1.0], [2.0]], [0.0, 0.0, 1.0], 5.0, 1.0, np.random.default_rng(23))
    assert draws.shape == (2, 3)
    np.testing.assert_array_equal(draws[:, :2], [[1, 1], [2, 2]])


def test_gibbs_by_these_draws_finds_the_normal_laplace_posterior() -> None:
    """The pieces together: s ~ N(0, 9), y = s + Laplace(2) = 5; 20,000 chains, 60 sweeps, against the exact law.

    The last sweeps are independent over chains, so the test has level LEVEL.
    """
    rng = np.random.default_rng(24)
    s = np.full(20_000, 5.0)
    for _ in range(60):
        s = draw_statistic(np.zeros(20_000), 9.0, 5.0, draw_noise_variance(5.0 - s, 2.0, rng), rng)
    grid = np.linspace(-20, 25, 20_001)
    cdf = integrate.cumulative_simpson(np.exp(-(grid**2) / 18 - np.abs(5 - grid) / 2), x=grid, initial=0)
    assert stats.kstest(s, lambda t: np.interp(t, grid, cdf / cdf[-1])).pvalue > LEVEL
    total = cdf[-1] / (np.sqrt(2 * np.pi * 9) * 4)
    assert normal_laplace_logpdf(5.0, 0.0, 9.0, 2.0) == pytest.approx(np.log(total), abs=1e-6)


# ---- determinism and errors


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: inverse_gaussian(np.ones(5), 1.0, rng),
        lambda rng: draw_noise_variance(np.ones(5), 1.0, rng),
        lambda rng: draw_statistic(np.ones(5), 1.0, 2.0, 1.0, rng),
        lambda rng: draw_statistics(np.ones(5), np.eye(5), np.ones(5), np.ones(5), rng),
    ],
    ids=["inverse_gaussian", "draw_noise_variance", "draw_statistic", "draw_statistics"],
)
def test_draws_are_set_by_the_generator_alone(draw: Callable[[Any], FloatArray]) -> None:
    np.testing.assert_array_equal(draw(np.random.default_rng(1)), draw(np.random.default_rng(1)))
    assert not np.isin(draw(np.random.default_rng(1)), draw(np.random.default_rng(2))).any()
    assert not np.isin(draw(None), draw(None)).any()
    with pytest.raises(TypeError, match="rng"):
        draw(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inverse_gaussian(0.0, 1.0), "mean must be greater"),
        (lambda: inverse_gaussian(np.nan, 1.0), "mean must be greater"),
        (lambda: inverse_gaussian(1.0, 0.0), "shape must be greater"),
        (lambda: inverse_gaussian(1.0, np.inf), "shape must be finite"),
        (lambda: draw_noise_variance(np.nan, 1.0), "residual must be finite"),
        (lambda: draw_noise_variance(1.0, [1.0, -1.0]), "scale must be greater"),
        (lambda: normal_laplace_logpdf(np.nan, 0.0, 1.0, 1.0), "y must be finite"),
        (lambda: normal_laplace_logpdf(0.0, np.inf, 1.0, 1.0), "mean must be finite"),
        (lambda: normal_laplace_logpdf(0.0, 0.0, -1.0, 1.0), "variance must be at least 0"),
        (lambda: normal_laplace_cdf(0.0, 0.0, 1.0, 0.0), "scale must be greater"),
        (lambda: draw_statistic(0.0, -1.0, 0.0, 1.0), "variance must be at least 0"),
        (lambda: draw_statistic(0.0, 1.0, 0.0, 0.0), "noise_variance must be greater"),
        (lambda: draw_statistics([0.0], [[1.0]], [0.0], [0.0]), "noise_variance must be greater"),
        (lambda: draw_statistics([0.0, 0.0], np.ones((2, 3)), [0.0, 0.0], [1.0, 1.0]), "cov must have shape"),
        (lambda: draw_statistics([0.0], [[np.nan]], [0.0], [1.0]), "cov must be finite"),
        (lambda: draw_statistics([0.0] * 3, np.eye(2), [0.0] * 2, [1.0] * 2), r"mean, cov .* \(3,\), \(2,\)"),
        (lambda: draw_statistics([0.0] * 2, np.eye(2), [0.0] * 2, [1.0] * 3), r"noise_variance must .* \(3,\)"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
