"""What quantiles of :func:`release_quantiles` would be worth, and what a wanted precision of them costs.

Everything is computed from public numbers. The section on quantiles with intervals explains it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbook._arrays import Array
from dpbook._validation import finite_array, integer, one_of, privacy_loss
from dpbook.expfam.previews import component_of
from dpbook.expfam.quantile_inference import QuantileTests, ends_of
from dpbook.expfam.quantile_tree import CountTree, asked_quantiles
from dpbook.preview import EpsilonPlan, Preview
from dpbook.sensitivity import histogram
from dpbook.widths import NORMAL, OUTER, expected, scale_for, solved

__all__ = ["preview_quantiles", "solve_epsilon_quantiles"]

_SPREAD = 0.2  # of records of which nothing is guessed: a normal law's standard deviation, in widths of the bounds
_RELEASES, _ERRORS = 40, 600
_SEED = 20210520


def preview_quantiles(
    q: float | ArrayLike,
    bounds: tuple[float, float],
    *,
    n: int,
    epsilon: float,
    guess: ArrayLike | None = None,
    branches: Sequence[int] = (10, 10, 10),
    mechanism: str = "laplace",
    delta: float = 0.0,
) -> Preview:
    """Say, before anything is spent, how precise the quantiles of :func:`release_quantiles` would be.

    Explained in :doc:`/book/exponential-families/quantiles-with-intervals`.

    Parameters
    ----------
    q, bounds, epsilon, branches, mechanism, delta
        As in :func:`release_quantiles`.
    n : int
        The public number of records.
    guess : array_like, optional
        Made-up records that lie as you expect the real ones to, never the real ones themselves; by default normal ones
        around the middle of the bounds, with a fifth of their width as standard deviation.

    Returns
    -------
    Preview
        Of every quantile of the population, in the data's units. ``width`` is the median width of the 95 % interval
        over simulated releases, and eight of ten will be between ``width_low`` and ``width_high``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> guess = np.random.default_rng(1).lognormal(3, 0.8, 10_000)
    >>> look = expfam.preview_quantiles([0.5, 0.75], (0, 200), n=2000, epsilon=1.0, guess=guess)
    >>> print(look.summary()["width"].round(1).to_dict())
    {'50%': 2.6, '75%': 5.2}
    """
    plan = _Quantiles.of(q, bounds, n, guess, branches, mechanism)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    scale = scale_for(plan.sensitivity, epsilon, delta, mechanism)
    width, low, high = expected(plan.widths(scale))
    exact = np.median(plan.widths(0.0), axis=0)
    return Preview(
        plan.names,
        plan.sensitivity,
        scale,
        sampling_sd=exact / NORMAL,
        posterior_sd=width / NORMAL,
        nonprivate_sd=exact / NORMAL,
        width=width,
        width_low=low,
        width_high=high,
    )


def solve_epsilon_quantiles(
    width: float,
    q: float | ArrayLike,
    bounds: tuple[float, float],
    *,
    n: int,
    of: str | int | None = None,
    guess: ArrayLike | None = None,
    branches: Sequence[int] = (10, 10, 10),
    mechanism: str = "laplace",
    delta: float = 0.0,
) -> EpsilonPlan:
    """Return the privacy loss at which the 95 % interval of a quantile is expected to have a wanted width.

    The inverse of :func:`preview_quantiles`. Explained in
    :doc:`/book/exponential-families/quantiles-with-intervals`.

    Parameters
    ----------
    width : float
        Of the 95 % interval, in the data's units.
    q, bounds, n, guess, branches, mechanism, delta
        As in :func:`preview_quantiles`.
    of : str or int, optional
        Which of several quantiles, such as ``"50%"``, or its number; by default the one with the widest interval.

    Returns
    -------
    EpsilonPlan
        With ``epsilon``, and the range in which nine of ten realised widths will be.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> guess = np.random.default_rng(1).lognormal(3, 0.8, 10_000)
    >>> plan = expfam.solve_epsilon_quantiles(4.0, 0.5, (0, 200), n=2000, guess=guess)
    >>> print(f"{plan.epsilon:.1f}")
    0.4
    """
    plan = _Quantiles.of(q, bounds, n, guess, branches, mechanism)
    _, delta = privacy_loss(1.0, delta, mechanism)
    widest = int(np.argmax(np.median(plan.widths(0.0), axis=0)))
    which = widest if of is None else component_of(plan.names, of)
    share = plan.asked[which]
    return solved(
        width,
        lambda scale: plan.widths(scale, which)[:, 0],
        sampling=math.sqrt(n * share * (1 - share)),
        sensitivity=plan.sensitivity,
        delta=delta,
        mechanism=mechanism,
    )


class _Quantiles(NamedTuple):
    """Quantiles to be released: the tree, how records are guessed to lie in it, and simulated chance."""

    asked: tuple[float, ...]
    tree: CountTree
    n: int
    sensitivity: float
    sampled: Array  # (release, edge): how many records lie below
    errors: Array  # (draw, edge): what noise of scale 1 adds

    @classmethod
    def of(cls, q: Any, bounds: Any, n: Any, guess: Any, branches: Any, mechanism: str) -> _Quantiles:
        """Check all arguments and return the plan."""
        asked, tree, n = asked_quantiles(q), CountTree(bounds, tuple(branches)), integer("n", n, least=1)
        laplace = one_of("mechanism", mechanism, ("laplace", "gaussian")) == "laplace"
        shares = _shares(tree, guess)
        rng = np.random.default_rng(_SEED)
        counts = rng.multinomial(n, shares, size=_RELEASES)
        sampled = np.concatenate([np.zeros((_RELEASES, 1)), np.cumsum(counts, axis=1)], axis=1)
        errors = tree.errors(_ERRORS, laplace, rng)
        bound = histogram(tables=len(tree.branches), norm=1 if laplace else 2)
        return cls(asked, tree, n, bound, sampled, errors)

    @property
    def names(self) -> tuple[str, ...]:
        """What the quantiles are called."""
        return tuple(f"{100 * q:.6g}%" for q in self.asked)

    def widths(self, scale: float, which: int | None = None) -> Array:
        """Return widths (release, quantile) of intervals, of all quantiles or of one."""
        found, level = self.sampled + scale * self.errors[:_RELEASES], np.array(OUTER)
        asked = self.asked if which is None else self.asked[which : which + 1]
        widths = np.empty((len(found), len(asked)))
        for j, q in enumerate(asked):
            drawn = np.random.default_rng(_SEED).binomial(self.n, q, size=len(self.errors))
            among = np.asarray(drawn - self.n * q, dtype=np.float64)
            tests = QuantileTests.of(self.tree, scale * self.errors, among)
            for row, each in enumerate(found):
                low, high = ends_of(*tests.confidences(each - self.n * q), self.tree.edges, level)
                widths[row, j] = high - low
        return widths


def _shares(tree: CountTree, guess: Any) -> Array:
    """Return how the guessed records are shared between the finest cells."""
    if guess is None:
        low, high = tree.bounds
        reached = special.ndtr((tree.edges - (low + high) / 2) / (_SPREAD * (high - low)))
        reached[[0, -1]] = 0.0, 1.0  # what lies beyond is clipped
        return np.diff(reached)
    records = finite_array("guess", guess, ndim=1)
    if records.size == 0:
        raise ValueError("guess must hold at least one made-up record")
    return np.bincount(tree.codes(records), minlength=tree.cells) / records.size
