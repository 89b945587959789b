"""How much noise a release of a regression needs: the joint sensitivity of its rounded sums, from the bounds.

The release and its preview both ask; nothing here reads data.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from dpbook.regression.coordinates import Coordinates
from dpbook.regression.design import Design
from dpbook.regression.layout import Layout
from dpbook.sensitivity import (
    beside_histogram,
    cell_weight,
    fourth_moments,
    moments_by_cell,
    rounded,
    second_moments,
)

__all__: list[str] = []

Exponents = tuple[tuple[int, ...], ...]

UNIT = 2.0**-32  # records.grid_unit(1.0): in coordinates no statistic exceeds 1; previews must not import records


class Plan(NamedTuple):
    """What is summed, from public numbers: products of columns and, beside them, weighted counts of clipped records.

    Everything is multiplied by ``shrink``, a power of two, so that neither a product nor a weight exceeds 1.
    """

    sums: int  # how many products there are, higher moments included
    counts: int
    bound: float  # the joint sensitivity of what is summed, rounded
    weight: float  # of the counts; 0 without any
    shrink: float

    @classmethod
    def of(cls, inside: Coordinates, moments: bool, mechanism: str, check: float = 0.0) -> Plan:
        """Return the plan of a release: in L1 for Laplace noise, else in L2."""
        norm = 1 if mechanism == "laplace" else 2
        layout = Layout(inside.d, inside.intercept)
        sums = layout.size + (len(layout.higher) if moments else 0)
        lower, upper = (tuple(side.tolist()) for side in inside.box)
        own = _unrounded(lower, upper, inside.intercept, moments, norm)
        weight = cell_weight(check, own, mechanism)
        if not weight:
            return cls(sums, 0, rounded(own, sums, UNIT, norm), 0.0, 1.0)
        shrink = 2.0 ** min(0, -math.frexp(weight)[1])
        joint = beside_histogram(own * shrink, cells=weight * shrink, norm=norm)
        counts = 2 * (inside.d + 1) + 1
        return cls(sums, counts, rounded(joint, sums + counts, UNIT, norm), weight, shrink)

    @property
    def sensitivity(self) -> float:
        """Of the sums and the weighted counts together, in coordinates."""
        return self.bound / self.shrink


@functools.lru_cache(maxsize=256)
def _unrounded(lower: tuple[float, ...], upper: tuple[float, ...], intercept: bool, moments: bool, norm: int) -> float:
    """Remember sensitivities: thousands of releases, one a neighbourhood, share their bounds."""
    return (fourth_moments if moments else second_moments)(lower, upper, intercept=intercept, norm=norm)


def sensitivity_by_cell(design: Design, mechanism: str) -> float:
    """Return the joint sensitivity of the rounded sums of a design: in L1 for Laplace noise, else in L2."""
    norm = 1 if mechanism == "laplace" else 2
    by_cell, overall = (tuple(map(tuple, each.tolist())) for each in design.monomials)
    return rounded(_unrounded_by_cell(by_cell, overall, norm), len(design.pairs), UNIT, norm)


@functools.lru_cache(maxsize=256)
def _unrounded_by_cell(by_cell: Exponents, overall: Exponents, norm: int) -> float:
    return moments_by_cell(by_cell, overall, norm=norm)
