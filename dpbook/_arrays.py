"""What the modules of the package call an array of floats, and small linear algebra over a leading batch."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "times"]

Array: TypeAlias = NDArray[np.float64]


def times(matrix: Array, vector: Array) -> Array:
    """Return the products of matrices (..., i, j) and vectors (..., j)."""
    return np.asarray((matrix @ vector[..., None])[..., 0])
