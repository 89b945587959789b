"""What both sides know of a mean of the records that are there: the weight of the count of those that are not."""

from __future__ import annotations

import math

__all__ = ["MODEL", "missing_weight"]

MODEL = "mean of those present"


def missing_weight(squares: float, cells: float, norm: int) -> float:
    """Return the largest weight of the count of missing records at which it costs nothing, a little rounded down.

    A record at an end of the bounds that goes missing takes 1, the weights of its square and of its cell, and adds this
    one: together no more than a record that goes from one end to the other.
    """
    free = 1 - squares + cells if norm == 1 else math.sqrt(3 - squares**2 + cells**2)
    return free * (1 - 1e-12)
