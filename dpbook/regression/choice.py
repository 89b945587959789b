"""Which method a release gets where the analyst names none, and why.

Sums of few records are not normal: latent records, which are exact. Where records reach far from the bounds nothing
need be assumed of the covariates: the fixed design. In between, sums of normal records that were clipped and sums of
skewed ones that were not can be the same, and no release of sums tells which: both readings get half of the draws, so
that a 95 % interval keeps at least 90 of its 95 % whichever is right.
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


class Choice(NamedTuple):
    """The methods that share the draws, and a sentence that says why."""

    methods: tuple[str, ...]
    why: str


def choose(task: Task, rng: np.random.Generator) -> list[Choice]:
    """Return the methods of every release of a task."""
    share, shift = clipping(task, rng)
    return [
        Choice(("records",), f"n = {n:.0f} is too few for sums to be normal")
        if n < _FEW
        else _either(part)
        if moved > _SHIFT
        else Choice(
            ("fixed-design",),
            "hardly any response was clipped; of the covariates nothing is assumed but that their bounds hold",
        )
        for n, part, moved in zip(task.n, share, shift, strict=True)
    ]


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
