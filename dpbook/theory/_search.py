"""Searching pairs of neighbours on a mesh, where no theorem names the worst."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpbook._arrays import Array

__all__ = ["ROUNDING", "TOLERANCE", "over_mesh", "refined", "relative"]

TOLERANCE = 1e-6  # of a search by bounds, relative to delta
ROUNDING = 1e-10  # of delta; no search on a mesh claims to be closer
_TOPS = 3  # peaks of a mesh that are refined


def relative(above: Array, best: Array) -> Array:
    """Return by how much the one exceeds the other, both as logarithms; 0 where it does not."""
    with np.errstate(invalid="ignore"):
        return np.where(above > best, np.expm1(np.minimum(above - best, 700.0)), 0.0)


def over_mesh(mesh: Array, values: Array) -> tuple[Array, Array]:
    """Return the largest value of each column of a mesh (points by epsilons), and where it lies."""
    top, columns = np.argmax(values, axis=0), np.arange(mesh.shape[1])
    return values[top, columns], mesh[top, columns]


def refined(mesh: Array, profile: Callable[[Array], Array], *, whole: bool) -> tuple[Array, Array]:
    """Return the largest value over a mesh (points by epsilons) and where, refined around its highest peaks."""
    values = profile(mesh)
    columns = np.arange(mesh.shape[1])
    best, where = over_mesh(mesh, values)
    padded = np.pad(values, ((1, 1), (0, 0)), constant_values=-np.inf)
    peaks = np.where((values >= padded[:-2]) & (values >= padded[2:]), values, -np.inf)
    for at in np.argsort(-peaks, axis=0)[:_TOPS]:
        low, high = mesh[np.maximum(at - 1, 0), columns], mesh[np.minimum(at + 1, len(mesh) - 1), columns]
        for _ in range(40 if whole else 9):
            points = low + np.linspace(0, 1, 9)[:, None] * (high - low)
            points = np.rint(points) if whole else points
            found = profile(points)
            inner = np.argmax(found, axis=0)
            better = found[inner, columns] > best
            best = np.where(better, found[inner, columns], best)
            where = np.where(better, points[inner, columns], where)
            low, high = points[np.maximum(inner - 1, 0), columns], points[np.minimum(inner + 1, 8), columns]
            if whole and np.all(high - low <= 2):
                break
    return best, where
