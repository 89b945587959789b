"""Counts of records in ever finer cells between public bounds, which curator and analyst both know.

Every cell of a level is divided into as many of the next. Noisy counts of all levels say the same thing several times;
weighted least squares puts them together, in one pass upwards and one downwards (Hay, Rastogi, Miklau and Suciu 2009),
given the number of records, which is public. The section on quantiles with intervals explains it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array
from dpbook._validation import finite_array, integer, interval
from dpbook.expfam.family import require_moderate
from dpbook.release import Release

__all__ = ["MODEL", "CountTree", "asked_quantiles"]

MODEL = "quantiles"
_MOST = 100_000  # cells


@dataclass(frozen=True)
class CountTree:
    """The cells of all levels between two bounds; ``branches`` says into how many a cell of each level is divided."""

    bounds: tuple[float, float]
    branches: tuple[int, ...]

    def __post_init__(self) -> None:
        bounds = interval("bounds", self.bounds)
        require_moderate("bounds", bounds)
        given = self.branches
        if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
            raise TypeError(f"branches must be a sequence of whole numbers, got {given!r}")
        branches = tuple(integer("branches", each, least=2) for each in given)
        if not branches or math.prod(branches) > _MOST:
            raise ValueError(f"branches must make from 2 to {_MOST} cells, got {given!r}")
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "branches", branches)
        if not (np.diff(self.edges) > 0).all():
            raise ValueError(f"branches must make cells that floats can tell apart within {bounds}, got {given!r}")

    @classmethod
    def of(cls, release: Release) -> CountTree:
        """Return the tree of a release."""
        return cls(release.bounds["x"], tuple(release.settings["branches"]))

    @property
    def cells(self) -> int:
        """How many cells the finest level has."""
        return math.prod(self.branches)

    @property
    def sizes(self) -> list[int]:
        """How many cells each level has, the coarsest first."""
        return [math.prod(self.branches[: level + 1]) for level in range(len(self.branches))]

    @property
    def edges(self) -> Array:
        """The edges of the finest cells, which are closed on the left, the last one on both sides."""
        return np.linspace(*self.bounds, self.cells + 1)

    def codes(self, records: Array) -> NDArray[np.int64]:
        """Return the finest cell of each record, clipped to the bounds."""
        found = np.searchsorted(self.edges, np.clip(records, *self.bounds), side="right") - 1
        return np.minimum(found, self.cells - 1).astype(np.int64)

    def levels(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the counts of all levels, the coarsest first, from those of the finest cells."""
        return np.concatenate([counts.reshape(size, -1).sum(axis=1) for size in self.sizes])

    def below(self, noisy: Array, n: float) -> Array:
        """Return the best linear estimates of how many records lie below each edge, from noisy counts (..., cell)."""
        parts = np.split(noisy, np.cumsum(self.sizes)[:-1], axis=-1)
        held, spread = [parts[-1]], 1.0  # of a cell given what lies in it; spread in variances of the noise
        for part, branch in zip(parts[-2::-1], self.branches[:0:-1], strict=True):
            inside = held[0].reshape(*part.shape, branch).sum(axis=-1)
            weight = branch * spread / (1 + branch * spread)
            held.insert(0, weight * part + (1 - weight) * inside)
            spread = weight
        total = np.full((*noisy.shape[:-1], 1), float(n))
        for part, branch in zip(held, self.branches, strict=True):
            groups = part.reshape(*total.shape, branch)
            total = (groups + ((total - groups.sum(axis=-1)) / branch)[..., None]).reshape(part.shape)
        return np.concatenate([np.zeros((*noisy.shape[:-1], 1)), np.cumsum(total, axis=-1)], axis=-1)

    @property
    def windows(self) -> list[int]:
        """How many edges a test looks at together: one, and those of a cell of each level but the coarsest."""
        return [self.cells // size for size in self.sizes[::-1]]

    def beside(self, below: Array, window: int, *, right: bool) -> Array:
        """Return, at each edge, the mean of ``below`` (..., edge) over it and as many beside it as there are."""
        turned = below[..., ::-1] if right else below
        sums = np.concatenate([np.zeros((*below.shape[:-1], 1)), np.cumsum(turned, axis=-1)], axis=-1)
        last = np.arange(1, below.shape[-1] + 1)
        first = np.maximum(last - window, 0)
        mean = (sums[..., last] - sums[..., first]) / (last - first)
        return np.asarray(mean[..., ::-1] if right else mean)

    def errors(self, draws: int, laplace: bool, rng: np.random.Generator) -> Array:
        """Draw errors of :meth:`below` (draw, edge) for noise of scale 1, in pairs of opposite sign."""
        shape = (-(-draws // 2), sum(self.sizes))
        noise = rng.laplace(size=shape) if laplace else rng.standard_normal(shape)
        half = self.below(noise, 0.0)
        half[:, [0, -1]] = 0.0  # all records lie between the bounds
        return np.concatenate([half, -half])


def asked_quantiles(q: Any) -> tuple[float, ...]:
    """Return the quantiles that are asked for; raise unless they are increasing and between 0 and 1."""
    asked = finite_array("q", np.atleast_1d(np.asarray(q, dtype=object)).tolist(), ndim=1)
    if asked.size == 0 or (asked <= 0).any() or (asked >= 1).any() or (np.diff(asked) <= 0).any():
        raise ValueError(f"q must be one or more increasing numbers between 0 and 1, got {q!r:.80}")
    return tuple(asked.tolist())
