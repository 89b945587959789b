"""How a privacy loss is divided between sums and a histogram beside them: public on both sides."""

from __future__ import annotations

import math
from typing import Any

from dpbook._validation import fraction
from dpbook.sensitivity import cell_weight

__all__ = ["cell_weight", "weights_for"]

# The largest weights at which the squares cost nothing (Laplace: 1/2; Gaussian: the root of 2).
_SQUARES = {"laplace": 0.5, "gaussian": 1.4}
_LEAST = 0.001  # of the privacy loss, for either part


def weights_for(shape: Any, mechanism: str) -> tuple[float, float]:
    """Return the weights of squares and histogram for which the latter takes a share ``shape`` of the privacy loss.

    That is the share 2w / (2 + 2w) of the L1 sensitivity, or 2w² / (4 + 2w²) of the squared L2 sensitivity.
    """
    share = fraction("shape", shape)
    if not _LEAST <= share <= 1 - _LEAST:
        raise ValueError(f"shape must lie between {_LEAST} and {1 - _LEAST}, got {shape}")
    odds = share / (1 - share)
    return _SQUARES[mechanism], odds if mechanism == "laplace" else math.sqrt(2 * odds)
