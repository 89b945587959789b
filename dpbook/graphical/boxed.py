"""Minimise a smooth convex function in a box: a projected quasi-Newton method, for functions that certify their end.

SciPy's L-BFGS-B needs as many evaluations, but converts its bounds variable by variable at every call. The problems of
chapter 5 have a thousand variables and need a dozen evaluations of a tenth of a millisecond each, so that the
conversion would take most of the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array

__all__ = ["minimise_in_box"]

_MEMORY = 6  # pairs of steps and changes of slope that stand for the curvature
_ENOUGH = 1e-4  # the part of the promised decrease that a step must keep
_SHORTEST = 1e-8  # a step that had to be cut to this part cannot be told from rounding


def minimise_in_box(
    function: Callable[[Array], tuple[float, Array]],
    start: Array,
    bound: Array,
    *,
    curvature: Array,
    settled: Callable[[], bool],
    iterations: int,
) -> Array:
    """Minimise a smooth function of x over ``|x| ≤ bound``, until the caller says that it is settled.

    ``function`` returns value and slope; ``curvature`` is a guess at the second derivative in each variable, to begin
    with; a bound is ``inf`` for a free variable. Variables that lie at a bound and are pushed against it stay there;
    the others move by L-BFGS, and are cut off at their bounds. The step is halved until the function falls by enough.
    """
    x = start
    value, slope = function(x)
    pairs: deque[tuple[Array, Array]] = deque(maxlen=_MEMORY)
    for _ in range(iterations):
        free = ~(((x <= -bound) & (slope > 0)) | ((x >= bound) & (slope < 0)))
        direction = _direction(slope, free, pairs, curvature)
        if float(slope @ direction) >= 0:  # the remembered curvature misleads: forget it
            pairs.clear()
            direction = _direction(slope, free, pairs, curvature)
        length = 1.0
        while True:
            there = np.clip(x + length * direction, -bound, bound)
            new_value, new_slope = function(there)
            if settled():
                return there
            promised = float(slope @ (there - x))
            if new_value <= value + _ENOUGH * promised:
                break
            excess = new_value - value - promised  # positive: half a parabola's curvature along the step
            length *= float(np.clip(-promised / (2 * excess), 0.1, 0.5))
            if length < _SHORTEST:
                return x
        step, change = there - x, new_slope - slope
        if float(step @ change) > 0:
            pairs.append((step, change))
        x, value, slope = there, new_value, new_slope
    return x


def _direction(slope: Array, free: NDArray[np.bool_], pairs: deque[tuple[Array, Array]], curvature: Array) -> Array:
    """Return the quasi-Newton direction among the free variables (the two loops of L-BFGS)."""
    rest = np.where(free, slope, 0.0)
    used = []
    for step, change in reversed(pairs):
        step, change = np.where(free, step, 0.0), np.where(free, change, 0.0)
        product = float(step @ change)
        if product <= 1e-10 * np.sqrt(float(step @ step) * float(change @ change)):
            continue  # the pair's curvature lies in variables that are held
        weight = float(step @ rest) / product
        rest = rest - weight * change
        used.append((step, change, product, weight))
    if used:
        _, change, product, _ = used[0]
        rest = rest * (product / float(change @ (change / curvature)))
    rest = rest / curvature
    for step, change, product, weight in reversed(used):
        rest = rest + (weight - float(change @ rest) / product) * step
    return -rest
