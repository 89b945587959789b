"""Which method a release gets where the analyst names none, and why.

Sums of few records are not normal: latent records, which are exact. Where records reach far from the bounds nothing
need be assumed of the covariates: the fixed design. In between, sums of normal records that were clipped and sums of
skewed ones that were not can be the same, and no release of sums tells which: both readings get half of the draws, so
that an interval holds whichever is right. (A response that has two values, its bounds, was not clipped.) Counts of
clipped records, where a release has them, tell: the moments of normal records where as many were clipped as normal ones
would have been, the fixed design where none were.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook.regression.clipping import TWO_VALUED, look_at
from dpbook.regression.fixed_design import clipping
from dpbook.regression.task import Task

__all__: list[str] = []

_FEW = 20  # records below which sums are not taken as normal
# Of the sums by clipping, in units of sampling plus noise. Where it is 0.3, no coefficient moves by more than that
# part of its standard deviation, and a 95 % interval that knows nothing of clipping still covers 94 %.
_SHIFT = 0.3
# Of y² in coordinates where the bounds are ±1. Normal responses would have more if three in four were clipped; nobody
# chooses such bounds, but a response with two values has 1.
_AT_BOUNDS = TWO_VALUED
_SHARE = 0.02  # of normal covariates that would have been clipped, from which on counts are asked about them


_HARDLY = "hardly any response was clipped; of the covariates nothing is assumed but that their bounds hold"
Flags = NDArray[np.bool_]


class Choice(NamedTuple):
    """The methods that share the draws, and a sentence that says why."""

    methods: tuple[str, ...]
    why: str


def choose(task: Task, rng: np.random.Generator) -> list[Choice]:
    """Return the methods of every release of a task."""
    columns, normal, verdict = look_at(task)
    found = []
    for i, (n, share, shift, square) in enumerate(zip(task.n, *clipping(task, rng), strict=True)):
        if n < _FEW:
            found.append(Choice(("records",), f"n = {n:.0f} is too few for sums to be normal"))
        elif np.isfinite(verdict.noise[i]):
            expected, asked = (
                np.append(each, shift > _SHIFT) for each in (normal.cut[i, :-1] >= _SHARE, columns.crowded[i, :-1])
            )
            found.append(_counted(verdict.seen[i], verdict.as_normal[i], verdict.too_few[i], expected, asked))
        else:
            found.append(_uncounted(share, shift, square, bool(columns.crowded[i, :-1].any())))
    return found


def _counted(seen: Flags, as_normal: Flags, too_few: Flags, expected: Flags, asked: Flags) -> Choice:
    """Return the methods of a release that counts its clipped records, from what is known of each column.

    ``expected`` are those that would have been clipped, were they normal, so much that it matters; ``asked`` those that
    sums alone would make one ask about.
    """
    clipped, whole = expected & seen & as_normal, expected & ~seen & too_few
    odd = expected & seen & ~as_normal
    if clipped.any() and not whole.any() and not odd.any():
        why = (
            "records were clipped, and the counts are those of normal ones; that what was cut off is normal, too, "
            "no release can confirm"
        )
        return Choice(("moments",), why)
    if not clipped.any() and not odd.any() and (whole[:-1].any() or not (asked & ~whole).any()):
        why = "records were not clipped as normal ones with these sums would have been, the counts say"
        return Choice(("fixed-design",), why if asked.any() else _HARDLY)
    why = (
        "columns were clipped, but not as normal ones would have been"
        if odd.any()
        else "some columns were clipped as normal ones would have been, others were not"
        if clipped.any()
        else "the counts of clipped records are too noisy to tell whether the bounds hold"
    )
    return Choice(("fixed-design", "moments"), f"{why}, so each reading has half of the draws")


def _uncounted(share: float, shift: float, square: float, crowded: bool) -> Choice:
    """Return the methods of one release, from what a short look says of clipping."""
    if crowded:
        why = (
            "covariates spread more than any with a single peak inside their bounds. Were they clipped, or have they "
            "two peaks? The sums do not tell, so each reading has half of the draws"
        )
        return Choice(("fixed-design", "moments"), why)
    if shift <= _SHIFT:
        return Choice(
            ("fixed-design",),
            _HARDLY,
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
