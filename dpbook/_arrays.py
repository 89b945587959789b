"""What the package calls arrays of floats and of whole numbers, and small things that work over a leading batch."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Array", "IntArray", "project_to_simplex", "times"]

Array: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


def times(matrix: Array, vector: Array) -> Array:
    """Return the products of matrices (..., i, j) and vectors (..., j)."""
    return np.asarray((matrix @ vector[..., None])[..., 0])


def project_to_simplex(points: Array, total: ArrayLike = 1.0) -> Array:
    """Return the nearest points (..., k) with coordinates that are not negative and add up to ``total`` (...).

    Each coordinate less one threshold per point, cut off at 0; sorting finds the threshold (Duchi and others 2008).
    """
    lowered = points - points.max(axis=-1, keepdims=True)  # changes nothing, and spares huge entries a loss of digits
    falling = np.sort(lowered, axis=-1)[..., ::-1]
    excess = np.cumsum(falling, axis=-1) - np.asarray(total, dtype=float)[..., None]
    thresholds = excess / np.arange(1, points.shape[-1] + 1)
    held = falling > thresholds
    last = points.shape[-1] - 1 - np.argmax(held[..., ::-1], axis=-1, keepdims=True)
    return np.asarray(np.maximum(lowered - np.take_along_axis(thresholds, last, axis=-1), 0.0))
