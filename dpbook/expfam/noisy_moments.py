"""The mean behind a noisy sum and a noisy sum of squares: exact for the noise, Student's argument for the sampling.

Records are scaled to [-1, 1]. Given mean m and standard deviation s, their sum S is taken as N(n m, n s²) and their
scatter Q = ΣU² - S²/n as s² χ² with n - 1 degrees of freedom, as for the t interval, under flat priors of m and s. Then
(S, √Q) is uniform before the release is seen, so that given it the noise alone decides, on a fine grid; m and s follow
as after Student's t. Q lies between 0 and n. What lies beyond the bounds is moved to them last of all, not cut
off before: an interval that covers still does so where the mean itself is at a bound, or the noise drowns it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpbook._arrays import Array

__all__ = ["NoisyMoments", "draw_mean_and_sd"]

_SUMS, _SCATTERS = 120, 100  # cells of the grid, dense where the noise is
_WIDEST = 1e12  # variance of records in [-1, 1] that a draw may have before it is moved to the bounds
_AT_ONCE = 50  # releases whose grids are held at a time


class NoisyMoments(NamedTuple):
    """Noisy sums and sums of squares of several releases, with the scales of their noise and the numbers of records."""

    total: Array
    squares: Array
    total_scale: Array
    squares_scale: Array
    n: Array
    laplace: bool
    several: tuple[NoisyMoments, ...] = ()  # where the above are means: the observations, each for all releases

    def some(self, part: slice) -> NoisyMoments:
        """Return a part of the releases."""
        total, squares, total_scale, squares_scale, n = (each[part] for each in self[:5])
        several = tuple(each.some(part) for each in self.several)
        return NoisyMoments(total, squares, total_scale, squares_scale, n, self.laplace, several)

    def widened(self) -> NoisyMoments:
        """Return the same with scales that reach over all observations, for a grid to be laid by."""
        seen = self.several or (self,)
        apart = [
            np.max([np.abs(getattr(each, name) - getattr(self, name)) for each in seen], axis=0) / 3
            for name in ("total", "squares")
        ]
        scales = np.hypot(self.total_scale, apart[0]), np.hypot(self.squares_scale, apart[1])
        return self._replace(total_scale=scales[0], squares_scale=scales[1])


def draw_mean_and_sd(moments: NoisyMoments, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw mean and standard deviation of a record in [-1, 1], (release, draw) each, independently."""
    starts = range(0, len(moments.n), _AT_ONCE)
    parts = [_draw_some(moments.some(slice(i, i + _AT_ONCE)), draws, rng) for i in starts]
    return np.concatenate([mean for mean, _ in parts]), np.concatenate([sd for _, sd in parts])


def _draw_some(moments: NoisyMoments, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
    n = moments.n[:, None]
    sums, scatter = _Grid(moments).draw(draws, rng)
    gammas = np.maximum(rng.standard_gamma((n - 2) / 2, scatter.shape), np.finfo(float).tiny)
    sd = np.sqrt(np.minimum(scatter / (2 * gammas), _WIDEST))
    mean = sums / n + sd / np.sqrt(n) * rng.standard_normal(scatter.shape)
    return np.clip(mean, -1.0, 1.0), np.minimum(sd, 1.0)


class _Grid:
    """The law of the exact sum and of the root of the scatter given their noisy values: cells and their masses."""

    def __init__(self, moments: NoisyMoments) -> None:
        n, seen = moments.n[:, None], moments.several or (moments,)
        moments = moments.widened()
        reach = _reach(moments.laplace) * moments.total_scale[:, None]
        noisy = moments.total[:, None]
        self.sums = _edges(noisy, moments.total_scale[:, None], noisy - reach, noisy + reach, _SUMS, moments.laplace)
        middle = (self.sums[:, 1:] + self.sums[:, :-1]) / 2
        of_mean = np.clip(middle, -n, n) ** 2 / n
        scale = moments.squares_scale[:, None]
        left = moments.squares[:, None] - of_mean
        found = _edges(left[..., None], scale[..., None], 0.0, n[..., None], _SCATTERS, moments.laplace)
        self.roots = np.sqrt(found)
        centre = (self.roots[..., 1:] + self.roots[..., :-1]) / 2
        log_mass = np.zeros(centre.shape)
        for each in seen:
            rest = (each.squares[:, None] - of_mean)[..., None] - centre**2
            log_mass += _log_noise(rest / each.squares_scale[:, None, None], moments.laplace)
            of_total = _log_noise((each.total[:, None] - middle) / each.total_scale[:, None], moments.laplace)
            log_mass += of_total[..., None]
        with np.errstate(divide="ignore"):
            log_mass += np.log(np.diff(self.roots)) + np.log(np.diff(self.sums))[..., None]
        mass = np.exp(log_mass - log_mass.max(axis=(1, 2), keepdims=True)).reshape(len(n), -1)
        self.cdf = np.cumsum(mass, axis=1)

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw sums and scatters, (release, draw): a cell by its mass, then a point of it."""
        uniform = rng.random((len(self.cdf), draws)) * self.cdf[:, -1:]
        cell = np.stack([np.searchsorted(own, each, side="right") for own, each in zip(self.cdf, uniform, strict=True)])
        row, column = np.divmod(np.minimum(cell, self.cdf.shape[1] - 1), _SCATTERS)
        which = np.arange(len(self.cdf))[:, None]
        sums = _between(self.sums[which, row], self.sums[which, row + 1], rng)
        roots = _between(self.roots[which, row, column], self.roots[which, row, column + 1], rng)
        return sums, roots**2


def _between(low: Array, high: Array, rng: np.random.Generator) -> Array:
    return np.asarray(low + (high - low) * rng.random(low.shape))


def _reach(laplace: bool) -> float:
    return 18.0 if laplace else 7.5


def _edges(noisy: Array, scale: Array, low: Array | float, high: Array, count: int, laplace: bool) -> Array:
    """Return edges of cells around the possible value nearest to the noisy one, as far as noise may have moved it."""
    reach = _reach(laplace)
    centre = np.clip(noisy, low, high)
    # Beyond an end of what is possible, Gaussian noise falls the faster the further out the noisy value lies.
    fall = scale if laplace else scale / np.maximum(np.abs(noisy - centre) / scale, 1.0)
    ends = [np.arcsinh(np.clip((end - centre) / fall, -reach, reach)) for end in (low, high)]
    steps = ends[0] + (ends[1] - ends[0]) * np.linspace(0, 1, count + 1)
    return np.asarray(np.clip(centre + fall * np.sinh(steps), low, high))


def _log_noise(away: Array, laplace: bool) -> Array:
    return np.asarray(-np.abs(away) if laplace else -0.5 * away**2)
