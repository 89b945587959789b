"""Which method a release gets where the analyst names none, and why.

Sums of few records are not normal: latent records, which are exact. Where clipping moved the sums by a tenth of their
standard deviation or more it must be modelled: moments of clipped records. Elsewhere nothing need be assumed of the
covariates: the fixed design.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpbook.regression.fixed_design import clipping
from dpbook.regression.task import Task

__all__: list[str] = []

_FEW = 20  # records below which sums are not taken as normal
_SHIFT = 0.1  # of the sums by clipping, in sds of sampling plus noise


class Choice(NamedTuple):
    """A method, and a sentence that says why."""

    method: str
    why: str


def choose(task: Task, rng: np.random.Generator) -> list[Choice]:
    """Return the method of every release of a task."""
    share, shift = clipping(task, rng)
    usual = Choice("fixed-design", "hardly any response was clipped; nothing is assumed of the covariates")
    return [
        Choice("records", f"n = {n:.0f} is too few for sums to be normal")
        if n < _FEW
        else Choice("moments", f"clipping moved the sums: {_percent(part)} of the responses or more were clipped")
        if moved > _SHIFT
        else usual
        for n, part, moved in zip(task.n, share, shift, strict=True)
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.01 else f"{100 * share:.0f} %"
