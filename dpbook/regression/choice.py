"""Which method a release gets where the analyst names none, and why.

Sums of few records are not normal: latent records, which are exact. Where records reach far from the bounds nothing
need be assumed of the covariates: the fixed design. In between, sums of normal records that were clipped and sums of
skewed ones that were not can be the same, and no release of sums tells which: both readings get half of the draws, so
that an interval holds whichever is right. (A response that has two values, its bounds, was not clipped.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpbook.regression.fixed_design import clipping
from dpbook.regression.task import Task

__all__: list[str] = []

_FEW = 20  # records below which sums are not taken as normal
# Of the sums by clipping, in units of sampling plus noise. Where it is 0.3, no coefficient moves by more than that
# part of its standard deviation, and a 95 % interval that knows nothing of clipping still covers 94 %.
_SHIFT = 0.3
# Of y² in coordinates where the bounds are ±1. Normal responses would have more if three in four were clipped; nobody
# chooses such bounds, but a response with two values has 1.
_AT_BOUNDS = 0.85


class Choice(NamedTuple):
    """The methods that share the draws, and a sentence that says why."""

    methods: tuple[str, ...]
    why: str


def choose(task: Task, rng: np.random.Generator) -> list[Choice]:
    """Return the methods of every release of a task."""
    return [_one(*each) for each in zip(task.n, *clipping(task, rng), strict=True)]


def _one(n: float, share: float, shift: float, square: float) -> Choice:
    """Return the methods of one release, from what a short look says of clipping."""
    if n < _FEW:
        return Choice(("records",), f"n = {n:.0f} is too few for sums to be normal")
    if shift <= _SHIFT:
        return Choice(
            ("fixed-design",),
            "hardly any response was clipped; of the covariates nothing is assumed but that their bounds hold",
        )
    if square > _AT_BOUNDS:
        return Choice(("fixed-design",), "nearly all responses sit at a bound, as answers of two kinds do")
    return _either(share)


def _either(share: float) -> Choice:
    """Return both readings of sums that clipping may have moved."""
    why = (
        f"were responses clipped ({_percent(share)} or more, if records are normal), or do the bounds hold them all? "
        "The sums do not tell, so each reading has half of the draws. If you know, say it: "
        'method="moments" for clipped records, "fixed-design" for bounds that hold'
    )
    return Choice(("fixed-design", "moments"), why)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.01 else f"{100 * share:.0f} %"
