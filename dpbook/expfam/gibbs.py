"""The noise-aware Gibbs sampler: parameter, latent statistics and noise variances drawn in turn, many chains at once.

Given theta the latent sums are taken as normal (the central limit theorem); given them theta is drawn by exact
conjugacy. The two views are not one joint distribution at small n, so this is a pseudo-Gibbs sampler; where a collapsed
posterior exists, prefer it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook._arrays import Array
from dpbook.expfam.families import Family, Multinomial
from dpbook.latent_noise import _root, draw_noise_variance

__all__ = ["GibbsState", "gibbs_start", "gibbs_step"]

Moments = tuple[Array, Array]  # mean and covariance of one record's statistics; None for tables, which need no matrix
_TRIES = 6  # draws of impossible sums that are thrown away before the nearest possible ones are taken
_CANDIDATES = 10  # of each kind, for the start of a chain


class GibbsState(NamedTuple):
    """Chains of the sampler; every array begins with the axes (chain, release).

    Attributes
    ----------
    theta : ndarray
        The parameter.
    released : ndarray
        The latent exact value of the released sums, (..., k).
    noise_variance : ndarray
        The variance of the noise on each sum, (..., k).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.expfam.gibbs import GibbsState
    >>> GibbsState(np.zeros((4, 1)), np.zeros((4, 1, 1)), np.ones((4, 1, 1))).theta.shape
    (4, 1)

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.
    """

    theta: Array
    released: Array
    noise_variance: Array


def gibbs_start(
    family: Family,
    prior: Any,
    noisy: Array,
    n: Array,
    scale: Array,
    chains: int,
    rng: np.random.Generator,
    *,
    outside: str = "clip",
) -> GibbsState:
    """Start chains apart but not astray: take candidates from the prior and from the release by their likelihood.

    A chain that starts far out may take thousands of sweeps to come back, since where every record is clipped the
    release says nothing of theta. So each chain takes one of twenty candidates, by the likelihood of the release.

    Parameters
    ----------
    family : Family
        The model.
    prior : object
        Its conjugate prior.
    noisy : ndarray
        The released sums, (release, k).
    n, scale : ndarray
        Number of records and noise scale, (release,).
    chains : int
        How many chains a release.
    rng : numpy.random.Generator
        The source of randomness.
    outside : {"clip", "redact"}
        What the release did to records outside the bounds.

    Returns
    -------
    GibbsState
        With leading axes (chain, release).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.expfam import Beta, Binomial
    >>> from dpbook.expfam.gibbs import gibbs_start
    >>> one = np.array([50.0]), np.array([100.0]), np.array([10.0])
    >>> start = gibbs_start(Binomial(), Beta(1, 1), one[0][None], one[1], one[2], 4, np.random.default_rng(0))
    >>> start.released.shape
    (4, 1, 1)

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.
    """
    batch = (_CANDIDATES, chains, len(noisy))
    spread, size = scale[:, None], np.asarray(n, dtype=float)[:, None]
    near = family._nearest_valid(noisy + rng.laplace(scale=spread, size=(*batch, family.size)), n)
    theta = np.concatenate([family._draw_parameter(prior, near, n, rng), prior.draw(batch, rng)])
    mean, variance = family._released_moments(theta, outside)
    total = size * variance + 2 * spread**2
    with np.errstate(all="ignore"):  # a hopeless candidate may overflow
        fit = -0.5 * np.sum((noisy - size * mean) ** 2 / total + np.log(total), axis=-1)
    chosen = np.argmax(np.where(np.isnan(fit), -np.inf, fit) + rng.gumbel(size=fit.shape), axis=0)[None]
    pick = chosen if theta.ndim == 3 else chosen[..., None]
    released = size * np.take_along_axis(mean, chosen[..., None], axis=0)[0]
    return GibbsState(
        np.take_along_axis(theta, pick, axis=0)[0], released, rng.exponential(2 * spread**2, released.shape)
    )


def gibbs_step(
    family: Family,
    prior: Any,
    noisy: Array,
    n: Array,
    scale: Array,
    *,
    outside: str,
    laplace: bool,
    leap: bool = False,
) -> Callable[[np.random.Generator, GibbsState], tuple[GibbsState, None]]:
    """Return the sweep of the sampler: latent sums given theta, theta given them, noise variances given the residuals.

    Parameters
    ----------
    family, prior, noisy, n, scale
        As in :func:`gibbs_start`.
    outside : {"clip", "redact"}
        What the release did to records outside the bounds.
    laplace : bool
        Whether the noise is Laplace, a mixture of normals; otherwise it is normal with sd ``scale``.
    leap : bool, default False
        Whether each sweep begins with a Metropolis step for theta in which the latent sums are integrated out. Where
        noise hides the sums, theta and the sums hold each other fast and plain Gibbs crawls; this step does not.

    Returns
    -------
    callable
        ``step(rng, state) -> (state, info)``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.expfam import Beta, Binomial
    >>> from dpbook.expfam.gibbs import gibbs_start, gibbs_step
    >>> rng = np.random.default_rng(0)
    >>> problem = (Binomial(), Beta(1, 1), np.array([[50.0]]), np.array([100.0]), np.array([10.0]))
    >>> step = gibbs_step(*problem, outside="clip", laplace=True)
    >>> state, info = step(rng, gibbs_start(*problem, 4, rng))
    >>> state.theta.shape
    (4, 1)

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.
    """
    fixed = np.broadcast_to(scale[:, None] ** 2, noisy.shape)

    def step(rng: np.random.Generator, state: GibbsState) -> tuple[GibbsState, None]:
        theta = state.theta
        moments = None if isinstance(family, Multinomial) else family._moments(theta, outside)
        if leap:
            theta, moments = _leap(family, prior, state, moments, noisy, n, outside, rng)
        released, sufficient = _draw_sums(family, theta, moments, noisy, state.noise_variance, n, rng)
        theta = family._draw_parameter(prior, sufficient, n, rng)
        if laplace:
            variance = draw_noise_variance(noisy - released, scale[:, None], rng)
        else:
            variance = np.broadcast_to(fixed, released.shape)
        return GibbsState(theta, released, variance), None

    return step


def _leap(
    family: Family,
    prior: Any,
    state: GibbsState,
    moments: Moments | None,
    noisy: Array,
    n: Array,
    outside: str,
    rng: np.random.Generator,
) -> tuple[Array, Moments | None]:
    """Move theta by a Metropolis step given the noise variances, with the latent sums integrated out.

    The proposal makes up m records from theta and updates the prior with them. As two Gibbs steps it is reversible for
    the prior, so likelihoods of the release alone decide; m, at random between 1 and n, sets the length of the leap.
    """
    count = np.floor(np.exp(rng.random(state.released.shape[:-1]) * np.log(n)))
    made_up = family._simulate_sums(state.theta, count, rng)
    if made_up is None:
        return state.theta, moments
    proposal = family._draw_parameter(prior, made_up, count, rng)
    with np.errstate(all="ignore"):  # a hopeless proposal may overflow; NaN is refused below
        there = None if moments is None else family._moments(proposal, outside)
        gain = _log_fit(proposal, there, state.noise_variance, noisy, n)
        gain -= _log_fit(state.theta, moments, state.noise_variance, noisy, n)
        accepted = np.log(rng.random(gain.shape)) < gain
    theta = _chosen(accepted, proposal, state.theta)
    if moments is None or there is None:
        return theta, None
    return theta, (_chosen(accepted, there[0], moments[0]), _chosen(accepted, there[1], moments[1]))


def _chosen(accepted: NDArray[np.bool_], new: Array, old: Array) -> Array:
    return np.where(accepted.reshape(accepted.shape + (1,) * (new.ndim - accepted.ndim)), new, old)


def _log_fit(theta: Array, moments: Moments | None, noise: Array, noisy: Array, n: Array) -> Array:
    """Return the log density of the noisy sums given theta and the noise variances: N(n m, n C + D)."""
    size, k = np.asarray(n, dtype=float)[..., None], noisy.shape[-1]
    if moments is None:  # a table: C is a diagonal less a rank-one matrix, its determinant and inverse in closed form
        diagonal, gap = size * theta + noise, noisy - size * theta
        factor = np.sum(theta * noise / diagonal, axis=-1)
        along = n * np.sum(theta * gap / diagonal, axis=-1) ** 2 / factor
        return -0.5 * np.asarray(np.sum(np.log(diagonal) + gap**2 / diagonal, axis=-1) + np.log(factor) + along)
    gap = noisy - size * moments[0][..., :k]
    full = size[..., None] * moments[1][..., :k, :k] + noise[..., None, :] * np.eye(k)
    if k == 1:
        return -0.5 * np.asarray((gap**2 / full[..., 0] + np.log(full[..., 0]))[..., 0])
    _, log_determinant = np.linalg.slogdet(full)
    return -0.5 * np.asarray((gap * np.linalg.solve(full, gap[..., None])[..., 0]).sum(axis=-1) + log_determinant)


def _draw_sums(
    family: Family,
    theta: Array,
    moments: Moments | None,
    noisy: Array,
    noise: Array,
    n: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Draw the released sums and the sufficient ones, given theta, the noisy sums and the noise variances."""
    if moments is None:
        assert isinstance(family, Multinomial)
        counts = _draw_table(family, theta, noisy, noise, n, rng)
        return counts, counts
    count = np.asarray(n, dtype=float)[..., None]
    draw = _draw_scalar if family.size == 1 else _draw_vector
    return draw(family, moments[0] * count, moments[1] * count[..., None], noisy, noise, n, rng)


def _draw_scalar(
    family: Family,
    mean: Array,
    cov: Array,
    noisy: Array,
    noise: Array,
    n: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Draw one released sum given the noisy one, then the sufficient sum given it, each truncated to its range."""
    centre, variance = mean[..., :1], np.maximum(cov[..., :1, 0], 0.0)
    gain = variance / (variance + noise)
    size = np.asarray(n, dtype=float)[..., None]
    low, high = family.released_range
    released = _truncated_normal(
        centre + gain * (noisy - centre),
        variance * (1 - gain),
        size * low,
        size * high,
        rng,
    )
    if family.bounded:
        return released, released
    slope = np.divide(cov[..., 1:, 0], variance, out=np.zeros_like(variance), where=variance > 0)
    left = np.maximum(cov[..., 1:, 1] - slope * cov[..., 1:, 0], 0.0)
    bottom, top = family.statistic_range
    return released, _truncated_normal(
        mean[..., 1:] + slope * (released - centre),
        left,
        size * bottom,
        size * top,
        rng,
    )


def _draw_table(
    family: Multinomial,
    theta: Array,
    noisy: Array,
    noise: Array,
    n: Array,
    rng: np.random.Generator,
) -> Array:
    """Draw a table of counts; reject tables with negative counts a few times, then move to the nearest valid one."""
    counts = family._draw_counts(theta, n, noisy, noise, rng)
    for _ in range(_TRIES):
        wrong = np.asarray((counts < 0).any(axis=-1))
        if not wrong.any():
            break
        counts = np.where(wrong[..., None], family._draw_counts(theta, n, noisy, noise, rng), counts)
    return family._nearest_valid(counts, n)


def _draw_vector(
    family: Family,
    mean: Array,
    cov: Array,
    noisy: Array,
    noise: Array,
    n: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Draw released and sufficient sums from their joint normal given the noisy ones, in Kalman form: no inverse of C.

    Draw s* ~ N(mean, C) and y* = s*_released + noise, then s = s* + C_r (C_rr + D)^-1 (y - y*). Draws that no data
    could have are drawn again a few times; then the released sums move to the nearest possible ones, the sufficient
    sums follow by their regression on them, and move likewise.
    """
    k = family.size
    root, cov = _root(cov * (1 + 1e-10 * np.eye(2 * k)))  # without clipping the two kinds of sums are the same
    noise = np.maximum(noise, 1e-12 * np.diagonal(cov[..., :k, :k], axis1=-2, axis2=-1))
    total = cov[..., :k, :k] + noise[..., None, :] * np.eye(k)
    gain = np.swapaxes(np.linalg.solve(total, cov[..., :k, :]), -1, -2)  # (2k, k)

    def draw() -> tuple[Array, NDArray[np.bool_]]:
        sums = mean + (root @ rng.normal(size=(*mean.shape, 1)))[..., 0]
        gap = noisy - sums[..., :k] - np.sqrt(noise) * rng.normal(size=noise.shape)
        sums = sums + (gain @ gap[..., None])[..., 0]
        released, sufficient = sums[..., :k], sums[..., k:]
        wrong = (family._nearest_released(released, n) != released) | (
            family._nearest_valid(sufficient, n) != sufficient
        )
        return sums, np.asarray(wrong.any(axis=-1))

    sums, wrong = draw()
    for _ in range(_TRIES):
        if not wrong.any():
            return sums[..., :k], sums[..., k:]
        again, still = draw()
        sums, wrong = np.where(wrong[..., None], again, sums), wrong & still
    released = family._nearest_released(sums[..., :k], n)
    moved = sums[..., k:] + _regressed(cov, released - sums[..., :k])
    return released, family._nearest_valid(moved, n)


def _regressed(cov: Array, change: Array) -> Array:
    """Return by how much the second half of a normal vector changes with the first: C_21 C_11^-1 change."""
    k = change.shape[-1]
    sd = np.sqrt(np.diagonal(cov[..., :k, :k], axis1=-2, axis2=-1))
    unit = np.where(sd > 0, sd, 1.0)
    correlation = cov[..., :k, :k] / unit[..., None] / unit[..., None, :] + 1e-10 * np.eye(k)
    weights = np.linalg.solve(correlation, (change / unit)[..., None])[..., 0] / unit
    return np.asarray((cov[..., k:, :k] @ weights[..., None])[..., 0])


def _truncated_normal(mean: Array, variance: Array, low: Any, high: Any, rng: np.random.Generator) -> Array:
    """Draw normals truncated to [low, high] by the inverse cdf, in the left tail's log domain."""
    sd = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
    a, b = (low - mean) / sd, (high - mean) / sd
    mirrored = a > 0
    a, b = np.where(mirrored, -b, a), np.where(mirrored, -a, b)
    u = np.maximum(rng.random(mean.shape), np.finfo(float).tiny)
    log_p = np.logaddexp(np.log1p(-u) + special.log_ndtr(a), np.log(u) + special.log_ndtr(b))
    z = special.ndtri_exp(np.minimum(log_p, 0.0))
    # Infinitely many sds outside the range, the draw is the nearest end of it.
    return np.asarray(np.clip(np.where(np.isfinite(z), mean + sd * np.where(mirrored, -z, z), mean), low, high))
