"""How hot an exponential mechanism must draw emissions and states, from public numbers."""

from __future__ import annotations

import math

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import fraction, integer

__all__ = ["assignment_loss", "emission_loss", "lattice_of"]

_FINEST_GRID = 10_000  # the exact draw on the lattice needs its square


def lattice_of(floor: float, grid: int, types: int) -> tuple[int, int]:
    """Return the smallest numerator and the denominator of the lattice of emission probabilities."""
    floor, grid = fraction("floor", floor), integer("grid", grid, least=2 * types)
    if grid > _FINEST_GRID:
        raise ValueError(f"grid must be at most {_FINEST_GRID}, got {grid}")
    least = math.ceil(floor * grid - 1e-9)
    if least * types >= grid:
        raise ValueError(f"floor must leave room for {types} types: less than {1 / types:.3g}, got {floor}")
    return least, grid


def emission_loss(least: int, grid: int, types: int) -> float:
    """Return the range of the change of log-likelihood between neighbours, 2 log(top / floor), on the lattice."""
    return 2 * math.log((grid - (types - 1) * least) / least)


def assignment_loss(emission: Array) -> float:
    """Return a bound on the range, over hidden states, of the change of log-likelihood between neighbours."""
    return 2 * float(np.log(emission.max(axis=-2) / emission.min(axis=-2)).max())
