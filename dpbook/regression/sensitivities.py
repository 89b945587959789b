"""How much noise a release of a regression needs: the joint sensitivity of its rounded sums, from the bounds.

The release and its preview both ask; nothing here reads data.
"""

from __future__ import annotations

import functools

from dpbook.regression.coordinates import Coordinates
from dpbook.regression.design import Design
from dpbook.sensitivity import fourth_moments, moments_by_cell, rounded, second_moments

__all__: list[str] = []

Exponents = tuple[tuple[int, ...], ...]

UNIT = 2.0**-32  # records.grid_unit(1.0): in coordinates no statistic exceeds 1; previews must not import records


def sensitivity_of(inside: Coordinates, moments: bool, mechanism: str, statistics: int) -> float:
    """Return the joint sensitivity of the rounded sums, in coordinates: in L1 for Laplace noise, else in L2."""
    norm = 1 if mechanism == "laplace" else 2
    lower, upper = (tuple(side.tolist()) for side in inside.box)
    return rounded(_unrounded(lower, upper, inside.intercept, moments, norm), statistics, UNIT, norm)


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
