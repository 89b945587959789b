"""What a release says of clipping: counts, where it has them, and what normal columns with its sums would have lost.

The columns of a record are the covariates and, last, the response, in coordinates. Nothing here reads data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook._arrays import Array
from dpbook.moments import clipped_normal
from dpbook.regression.task import Task

__all__: list[str] = []

LEVEL = 0.05  # probability with which noise alone may look like a clipped record, in all cells of a release together
TWO_VALUED = 0.85  # of the largest variance that bounds allow: normal columns have less unless three in four are cut
_STEPS, _FARTHEST = 60, 30.0  # of Newton's method, and the largest standard deviation that it considers
_AWAY = 2.5  # standard deviations between a count and what a reading expects


class Columns(NamedTuple):
    """About the mean and variance of every column, (release, d + 1), and the noise on both."""

    mean: Array
    variance: Array
    noise: Array  # of a mean: standard deviation
    low: Array
    high: Array
    centred: bool  # whether means were released; without an intercept they are taken as 0

    @property
    def sure(self) -> NDArray[np.bool_]:
        """Where noise leaves no doubt that there is a variance."""
        return np.asarray(self.variance > 3 * self.noise * np.sqrt(1 + 4 * self.mean**2))

    @property
    def two_valued(self) -> NDArray[np.bool_]:
        """Where nearly all sit at a bound: two answers, rather than clipped records."""
        return np.asarray(self.variance >= TWO_VALUED * (self.high - self.mean) * (self.mean - self.low))

    @property
    def crowded(self) -> NDArray[np.bool_]:
        """Where a column spreads more than any with a single peak inside its bounds, beyond noise; two values apart.

        By Khinchine's theorem such a column is a + U (Z - a) with its peak a, U uniform and Z within the bounds. With
        bounds ±1 its mean square is at most (1 + 2 |mean|)/3, that of a uniform column where the mean is 0.
        """
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        at = (self.mean - middle) / half
        square = self.variance / half**2 + at**2
        noise = self.noise / half**2 * np.sqrt(1 + (2 * np.abs(at) + 2 / 3) ** 2)
        return np.asarray((square - (1 + 2 * np.abs(at)) / 3 > 3 * noise) & ~self.two_valued & self.centred)


def columns_of(task: Task) -> Columns:
    """Return what the noisy sums say of every column."""
    layout, first = task.layout, int(task.layout.intercept)
    means = task.noisy / task.n[:, None]
    columns, where = range(first, layout.width), layout.position
    low, high = task.box
    zero = np.zeros(task.releases)
    mean = np.stack([means[:, where[0, j]] if first else zero for j in columns], axis=1)
    mean = np.clip(mean, low, high)
    variance = np.stack([means[:, where[j, j]] for j in columns], axis=1) - mean**2
    noise = np.broadcast_to((np.sqrt(task.noise_variance) / task.n)[:, None], mean.shape)
    return Columns(mean, np.clip(variance, 0.0, 1.0), noise, low, high, bool(first))


class Normal(NamedTuple):
    """Normal columns that, clipped, have given means and variances: their spread before, and what was cut off."""

    sd: Array
    below: Array
    above: Array

    @property
    def cut(self) -> Array:
        """The share that was clipped."""
        return np.asarray(self.below + self.above)


def as_normal(mean: Array, variance: Array, low: Array, high: Array) -> Normal:
    """Return the normal columns that clipping turned into columns of this mean and variance, by Newton's method."""
    half = (high - low) / 2
    m = np.clip((mean - (low + high) / 2) / half, -0.999, 0.999)
    v = np.clip(variance / half**2, 1e-8, 0.98 * (1 - m**2))
    at, log_sd = m.copy(), 0.5 * np.log(v)
    for _ in range(_STEPS):
        sd = np.exp(log_sd)
        cut = clipped_normal(at, sd)
        first, second = cut.moments[:2]
        off = m - first, v - (second - first**2)
        a, b = cut.by_mean[0], cut.by_sd[0] * sd
        c, d = cut.by_mean[1] - 2 * first * a, cut.by_sd[1] * sd - 2 * first * b
        determinant = a * d - b * c
        determinant = np.where(np.abs(determinant) < 1e-14, 1e-14, determinant)
        step = (d * off[0] - b * off[1]) / determinant, (a * off[1] - c * off[0]) / determinant
        slower = np.minimum(1.0, 0.5 / np.maximum(np.abs(step[0]) / sd, np.abs(step[1])).clip(1e-12))
        at = np.clip(at + slower * step[0], -_FARTHEST, _FARTHEST)
        log_sd = np.clip(log_sd + slower * step[1], -12.0, np.log(_FARTHEST))
    sd = np.exp(log_sd)
    return Normal(half * sd, special.ndtr((-1 - at) / sd), special.ndtr((at - 1) / sd))


class Verdict(NamedTuple):
    """What counts say of each column, (release, d + 1): NaN or False where nothing was counted."""

    clipped: Array  # how many records were clipped there, about
    sides: Array  # (release, d + 1, 2), below and above
    noise: Array  # (release,), the standard deviation of a cell
    seen: NDArray[np.bool_]  # that some were, beyond noise
    too_few: NDArray[np.bool_]  # fewer than normal columns would have lost
    too_many: NDArray[np.bool_]

    @property
    def as_normal(self) -> NDArray[np.bool_]:
        """Where counts are what normal columns would have lost."""
        return np.asarray(~self.too_few & ~self.too_many & np.isfinite(self.clipped))


class Look(NamedTuple):
    """All that a release says of clipping."""

    columns: Columns
    normal: Normal
    verdict: Verdict

    @property
    def steeper(self) -> Array:
        """By what factor slopes of clipped normal covariates exceed those of the covariates before clipping.

        Clipping leaves cov(x, y) times the share inside (Stein's lemma), and of the variance what was released.
        """
        before = self.normal.sd**2 * (1 - self.normal.cut)
        return np.asarray(before / np.maximum(self.columns.variance, 1e-12))


def look_at(task: Task) -> Look:
    """Return what the releases of a task say of clipping, column by column."""
    columns = columns_of(task)
    normal = as_normal(columns.mean, columns.variance, columns.low, columns.high)
    return Look(columns, normal, verdict_of(task, columns, normal))


def verdict_of(task: Task, columns: Columns, normal: Normal) -> Verdict:
    """Compare the counts of clipped records with none at all, and with what normal columns would have lost."""
    sides, scale = task.counts
    cells = 2 * (task.layout.d + 1)
    sd = (np.sqrt(2.0) if task.laplace else 1.0) * scale
    tail = LEVEL / cells
    reach = scale * (-np.log(2 * tail) if task.laplace else special.ndtri(1 - tail))
    share = np.stack([normal.below, normal.above], axis=2)
    spread = task.n[:, None, None] * (_uncertain(columns) if columns.centred else 1.0)  # no mean: nothing is expected
    spread = np.sqrt(sd[:, None, None] ** 2 + spread**2 + task.n[:, None, None] * share * (1 - share))
    off = (sides - task.n[:, None, None] * share) / spread
    with np.errstate(invalid="ignore"):
        seen = (sides > reach[:, None, None]).any(axis=2)
        fewer, more = (np.asarray((sign * off > _AWAY).any(axis=2)) for sign in (-1.0, 1.0))
    return Verdict(sides.sum(axis=2), sides, sd, np.asarray(seen), fewer, more)


def _uncertain(columns: Columns) -> Array:
    """Return the standard deviation that noise leaves in the shares of normal columns, (release, d + 1, 2)."""
    found = np.zeros((*columns.mean.shape, 2))
    for on_mean, on_square in ((1.0, 0.0), (0.0, 1.0)):
        ends = []
        for sign in (-1.0, 1.0):
            moved = columns.mean + sign * on_mean * columns.noise
            variance = columns.variance + columns.mean**2 + sign * on_square * columns.noise - moved**2
            end = as_normal(moved, variance, columns.low, columns.high)
            ends.append(np.stack([end.below, end.above], axis=2))
        found += ((ends[1] - ends[0]) / 2) ** 2
    return np.sqrt(found)


def counted_in(task: Task, names: Sequence[Sequence[str]]) -> list[str]:
    """Return a sentence for each release: how many records were clipped, or that nobody counted them."""
    counts, scale = task.counts
    sd = (np.sqrt(2.0) if task.laplace else 1.0) * np.sqrt(2.0) * scale
    notes = []
    for each, error, of in zip(counts.sum(axis=2), sd, names, strict=True):
        if np.isnan(error):
            notes.append("Clipping is unchecked: release(…, check=0.1) would count clipped records.")
            continue
        parts = ", ".join(f"{max(count, 0.0):.0f} of {name}" for count, name in zip(each, of, strict=True))
        notes.append(f"Clipped records were counted, about: {parts} (each ± {error:.0f}).")
    return notes
