"""The cells of a histogram, which both sides know: bins between public bounds and what lies beyond, or labels.

Curator and analyst read them from the same public edges. The section on a mean that assumes little explains them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbook._arrays import Array
from dpbook._validation import finite_array, integer, interval
from dpbook.expfam.families import Multinomial
from dpbook.expfam.family import require_moderate
from dpbook.release import Release

__all__ = ["Bins", "bins_between", "cells_of", "labels_of"]

_MOST = 10_000  # bins: a histogram is coarse, and every cell has noise of its own


@dataclass(frozen=True)
class Bins:
    """Bins between edges, closed on the left, the last one also on the right, and a cell beyond either end."""

    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        edges = finite_array("bins", self.edges, ndim=1)
        if not 2 <= edges.size <= _MOST + 1 or (np.diff(edges) <= 0).any():
            raise ValueError(
                f"bins must be from 1 to {_MOST} in number, with increasing edges, and come after the data; "
                f"got {edges.size} edges"
            )
        require_moderate("bins", (float(edges[0]), float(edges[-1])))
        object.__setattr__(self, "edges", tuple(edges.tolist()))

    @property
    def labels(self) -> tuple[str, ...]:
        """What the cells are called, from what lies below to what lies above."""
        ends = [f"{edge:.6g}" for edge in self.edges]
        if len(set(ends)) < len(ends):
            ends = [repr(edge) for edge in self.edges]
        pairs = list(itertools.pairwise(ends))
        inner = [f"[{low}, {high})" for low, high in pairs[:-1]] + [f"[{pairs[-1][0]}, {pairs[-1][1]}]"]
        return (f"below {ends[0]}", *inner, f"above {ends[-1]}")

    def codes(self, records: Array) -> NDArray[np.int64]:
        """Return the number of each record's cell."""
        edges = np.asarray(self.edges)
        found = np.searchsorted(edges, records, side="right")
        return np.asarray(np.where(records == edges[-1], edges.size - 1, found), dtype=np.int64)

    def indicators(self, records: Array) -> Array:
        """Return, for each record, a row with a one in its cell and zeros elsewhere."""
        table = np.zeros((records.size, len(self.edges) + 1))
        table[np.arange(records.size), self.codes(records)] = 1.0
        return table


def bins_between(bounds: Any, bins: int | ArrayLike) -> Bins:
    """Return the bins that a number of them, or their edges, describes between the bounds."""
    low, high = interval("bounds", bounds)
    if np.ndim(bins) == 0:
        return Bins(tuple(np.linspace(low, high, integer("bins", bins, least=1) + 1).tolist()))
    edges = Bins(tuple(finite_array("bins", bins, ndim=1).tolist()))
    if (edges.edges[0], edges.edges[-1]) != (low, high):
        raise ValueError(f"bins must begin and end at the bounds, ({low:g}, {high:g}), got {edges.edges!r:.80}")
    return edges


def cells_of(release: Release) -> Bins | None:
    """Return the bins of a release's histogram, None where its cells are labels."""
    edges = release.settings.get("edges")
    return None if edges is None else Bins(tuple(edges))


def labels_of(release: Release) -> tuple[str, ...]:
    """Return what the cells of a release's histogram are called."""
    bins = cells_of(release)
    labels: Sequence[Any] = release.settings["labels"] if bins is None else bins.labels
    return bins.labels if bins is not None else Multinomial(labels=labels).labels
