"""The law of the sums behind a release, given theta: how well it fits the noisy sums, and draws of the exact ones.

By the central limit theorem the sums are normal. :class:`NormalSums` has any mean and covariance; :class:`TableSums`
is that of counts in k categories, whose covariance is a diagonal less a rank-one matrix, so that nothing is inverted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook._arrays import Array
from dpbook.latent_noise import covariance_root

if TYPE_CHECKING:
    from dpbook.expfam.family import Family

__all__ = ["NormalSums", "SumsLaw", "TableSums", "chosen", "truncated_normal"]

_TRIES = 6  # draws of impossible sums that are thrown away before the nearest possible ones are taken


class SumsLaw(Protocol):
    """The law of released and sufficient sums given theta, for a batch of parameters."""

    def log_density(self, noisy: Array, noise: Array) -> Array:
        """Return the log density of the noisy sums given theta and the noise variances, sums integrated out."""

    def draw(self, noisy: Array, noise: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw the released sums and the sufficient ones, given the noisy sums and the noise variances."""

    def switched(self, accepted: NDArray[np.bool_], other: Any) -> SumsLaw:
        """Return the other law where it was accepted, and this one elsewhere."""


def chosen(accepted: NDArray[np.bool_], new: Array, old: Array) -> Array:
    """Return ``new`` where accepted, whatever axes its entries have, and ``old`` elsewhere."""
    return np.where(accepted.reshape(accepted.shape + (1,) * (new.ndim - accepted.ndim)), new, old)


@dataclass(frozen=True)
class NormalSums:
    """Sums of n records whose statistics have this mean and covariance; of released ones first, then sufficient."""

    family: Family
    mean: Array
    cov: Array
    n: Array

    def log_density(self, noisy: Array, noise: Array) -> Array:
        """Return the log density of N(n m, n C + D), up to a constant."""
        size, k = np.asarray(self.n, dtype=float)[..., None], noisy.shape[-1]
        gap = noisy - size * self.mean[..., :k]
        full = size[..., None] * self.cov[..., :k, :k] + noise[..., None, :] * np.eye(k)
        if k == 1:
            return -0.5 * np.asarray((gap**2 / full[..., 0] + np.log(full[..., 0]))[..., 0])
        _, log_determinant = np.linalg.slogdet(full)
        return -0.5 * np.asarray((gap * np.linalg.solve(full, gap[..., None])[..., 0]).sum(axis=-1) + log_determinant)

    def draw(self, noisy: Array, noise: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw within the limits of what n records could have."""
        count = np.asarray(self.n, dtype=float)[..., None]
        draw = self._draw_one if self.family.size == 1 else self._draw_several
        return draw(self.mean * count, self.cov * count[..., None], noisy, noise, rng)

    def switched(self, accepted: NDArray[np.bool_], other: NormalSums) -> NormalSums:
        """Return the other moments where they were accepted."""
        return replace(self, mean=chosen(accepted, other.mean, self.mean), cov=chosen(accepted, other.cov, self.cov))

    def _draw_one(
        self, mean: Array, cov: Array, noisy: Array, noise: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Draw one released sum given the noisy one, then the sufficient sum given it, each truncated to its range."""
        centre, variance = mean[..., :1], np.maximum(cov[..., :1, 0], 0.0)
        gain = variance / (variance + noise)
        size = np.asarray(self.n, dtype=float)[..., None]
        low, high = self.family.released_range
        given = centre + gain * (noisy - centre)
        released = truncated_normal(given, variance * (1 - gain), size * low, size * high, rng)
        if self.family.bounded:
            return released, released
        slope = np.divide(cov[..., 1:, 0], variance, out=np.zeros_like(variance), where=variance > 0)
        left = np.maximum(cov[..., 1:, 1] - slope * cov[..., 1:, 0], 0.0)
        bottom, top = self.family.statistic_range
        given = mean[..., 1:] + slope * (released - centre)
        return released, truncated_normal(given, left, size * bottom, size * top, rng)

    def _draw_several(
        self, mean: Array, cov: Array, noisy: Array, noise: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Draw from the joint normal given the noisy sums, in Kalman form: no inverse of C.

        Draw s* ~ N(mean, C) and y* = s*_released + noise, then s = s* + C_r (C_rr + D)^-1 (y - y*). Draws that no data
        could have are drawn again a few times; then the released sums move to the nearest possible ones, the
        sufficient sums follow by their regression on them, and move likewise.
        """
        family, n, k = self.family, self.n, self.family.size
        root, cov = covariance_root(cov * (1 + 1e-10 * np.eye(mean.shape[-1])))  # unclipped, both kinds are the same
        noise = np.maximum(noise, 1e-12 * np.diagonal(cov[..., :k, :k], axis1=-2, axis2=-1))
        total = cov[..., :k, :k] + noise[..., None, :] * np.eye(k)
        gain = np.swapaxes(np.linalg.solve(total, cov[..., :k, :]), -1, -2)

        def draw() -> tuple[Array, NDArray[np.bool_]]:
            sums = mean + (root @ rng.normal(size=(*mean.shape, 1)))[..., 0]
            gap = noisy - sums[..., :k] - np.sqrt(noise) * rng.normal(size=noise.shape)
            sums = sums + (gain @ gap[..., None])[..., 0]
            released, sufficient = sums[..., :k], sums[..., -k:]
            wrong = (family.nearest_released(released, n) != released) | (
                family.nearest_valid(sufficient, n) != sufficient
            )
            return sums, np.asarray(wrong.any(axis=-1))

        sums, wrong = _until_possible(draw)
        released, sufficient = sums[..., :k], sums[..., -k:]
        if not wrong.any():
            return released, sufficient
        nearest = family.nearest_released(released, n)
        if family.bounded:
            return nearest, family.nearest_valid(nearest, n)
        return nearest, family.nearest_valid(sufficient + _regressed(cov, nearest - released), n)


@dataclass(frozen=True)
class TableSums:
    """Counts in k categories of n records with probabilities theta: released and sufficient ones are the same."""

    family: Family
    theta: Array
    n: Array

    def log_density(self, noisy: Array, noise: Array) -> Array:
        """Return the log density of N(n theta, n (diag theta - theta thetaᵀ) + D), up to a constant."""
        theta, size = self.theta, np.asarray(self.n, dtype=float)[..., None]
        diagonal, gap = size * theta + noise, noisy - size * theta
        factor = np.sum(theta * noise / diagonal, axis=-1)
        along = self.n * np.sum(theta * gap / diagonal, axis=-1) ** 2 / factor
        return -0.5 * np.asarray(np.sum(np.log(diagonal) + gap**2 / diagonal, axis=-1) + np.log(factor) + along)

    def draw(self, noisy: Array, noise: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a table; reject tables with negative counts a few times, then move to the nearest valid one."""

        def draw() -> tuple[Array, NDArray[np.bool_]]:
            drawn = self.draw_normal(noisy, noise, rng)
            return drawn, np.asarray((drawn < 0).any(axis=-1))

        counts = self.family.nearest_valid(_until_possible(draw)[0], self.n)
        return counts, counts

    def draw_normal(self, noisy: Array, noise: Array, rng: np.random.Generator) -> Array:
        """Draw from N(n theta, n (diag theta - theta thetaᵀ)) given noisy counts: Kalman form, no matrix.

        The covariance is a diagonal minus a rank-one matrix, so a draw from it is √(n theta) e less its share of the
        total, and the solve is Sherman and Morrison's; its factor Σ theta d / (n theta + d) cannot vanish.
        """
        theta, size = self.theta, np.asarray(self.n, dtype=float)[..., None]
        expected = size * theta
        spread = np.sqrt(expected) * rng.normal(size=expected.shape)
        draw = expected + spread - theta * spread.sum(axis=-1, keepdims=True)
        gap = noisy - draw - np.sqrt(noise) * rng.normal(size=expected.shape)
        diagonal = expected + noise
        weighted = gap / diagonal
        factor = np.sum(theta * noise / diagonal, axis=-1, keepdims=True)
        shift = size * np.sum(theta * weighted, axis=-1, keepdims=True) / factor
        solved = weighted + theta / diagonal * shift
        return np.asarray(draw + expected * (solved - np.sum(theta * solved, axis=-1, keepdims=True)))

    def switched(self, accepted: NDArray[np.bool_], other: TableSums) -> TableSums:
        """Return the other probabilities where they were accepted."""
        return replace(self, theta=chosen(accepted, other.theta, self.theta))


def _until_possible(draw: Callable[[], tuple[Array, NDArray[np.bool_]]]) -> tuple[Array, NDArray[np.bool_]]:
    """Draw again, a few times, those members of a batch that are impossible; say which still are."""
    sums, wrong = draw()
    for _ in range(_TRIES):
        if not wrong.any():
            break
        again, still = draw()
        sums, wrong = np.where(wrong[..., None], again, sums), wrong & still
    return sums, wrong


def _regressed(cov: Array, change: Array) -> Array:
    """Return by how much the second half of a normal vector changes with the first: C_21 C_11^-1 change."""
    k = change.shape[-1]
    sd = np.sqrt(np.diagonal(cov[..., :k, :k], axis1=-2, axis2=-1))
    unit = np.where(sd > 0, sd, 1.0)
    correlation = cov[..., :k, :k] / unit[..., None] / unit[..., None, :] + 1e-10 * np.eye(k)
    weights = np.linalg.solve(correlation, (change / unit)[..., None])[..., 0] / unit
    return np.asarray((cov[..., k:, :k] @ weights[..., None])[..., 0])


def truncated_normal(mean: Array, variance: Array, low: Any, high: Any, rng: np.random.Generator) -> Array:
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
