"""How private a release is by itself: exact curves of delta against epsilon over the worst neighbours.

Neighbours are replace-one throughout, n public. Release types, with the poster's numbers: ``"estimate"`` (I, the most
likely parameter), ``"sample"`` (II, one posterior draw), ``"synthetic-plugin"`` (III, records simulated from an
estimate) and ``"synthetic-bayes"`` (IV, records simulated from posterior draws).

The error bound: a returned delta is within a relative 1e-10 of the exact one where it exceeds 1e-280 (in the tests
against 50-digit arithmetic, within 1e-12), and 0 below the smallest float. Two cases are looser and say so: a vector of
counts (``redraw=k``) that is too large to enumerate gives an upper bound, within 1e-3 as a rule
(:func:`profile_bounds` returns both sides); and where no theorem names the worst neighbours they are searched for, up
to a relative 1e-6 where whole blocks of pairs can be bounded, and on a refined mesh where the output is truncated
(:func:`worst_pair` returns what a proof leaves open).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from dpbook._arrays import Array
from dpbook._late import optimize
from dpbook._validation import at_least, delta_value, finite_array, non_negative_array
from dpbook.theory import _bells, _coins
from dpbook.theory._search import TOLERANCE
from dpbook.theory._setting import RELEASE_TYPES, Model, Options, Search, Setting, make_setting
from dpbook.theory.models import BetaBernoulli

__all__ = [
    "RELEASE_TYPES",
    "WorstPair",
    "epsilon_for",
    "pair_profile",
    "privacy_profile",
    "profile_bounds",
    "worst_pair",
]


class WorstPair(NamedTuple):
    """The neighbours that a release tells apart best.

    ``data`` and ``neighbour`` are what the release depends on: the number of ones (coins) or the mean of the records
    (bells); ``delta`` is that of ``data`` against ``neighbour``; ``excess`` by how much, relatively, another pair may
    exceed it, at most. 0 only where a proof, or a list of all pairs, says that none does. After a search it is what the
    search could not rule out: a bound, often far from reached, and infinite where there is none. Explained in
    :doc:`/book/theory/coins`.

    Examples
    --------
    >>> from dpbook import theory
    >>> theory.worst_pair("sample", theory.BetaBernoulli(2, 2), 10, epsilon=1.0).excess <= 1e-6
    True
    """

    data: float
    neighbour: float
    delta: float
    excess: float


def over_neighbours(setting: Setting, epsilon: Array, *, quick: bool = False, certify: bool = False) -> Search:
    """Return log delta over the worst neighbours; ``quick`` looks at the likely ones only.

    The excess is a proved one where ``certify`` is set, which may take longer, and otherwise infinite after a search
    on a mesh.
    """
    if setting.kind == "estimate":
        zeros = np.zeros(epsilon.shape)
        return Search(zeros, zeros, zeros)
    if isinstance(setting.model, BetaBernoulli):
        return _coins.worst(setting, epsilon, quick=quick, certify=certify)
    return _bells.worst(setting, epsilon, certify=certify)


def pure_epsilon(setting: Setting) -> float:
    """Return the epsilon at delta = 0; infinite where there is none."""
    if setting.kind == "estimate":
        return math.inf
    return _coins.pure_epsilon(setting) if isinstance(setting.model, BetaBernoulli) else _bells.pure_epsilon(setting)


@overload
def privacy_profile(
    release_type: str, model: Model, n: int, *, epsilon: float, log: bool = ..., **options: Unpack[Options]
) -> float: ...


@overload
def privacy_profile(
    release_type: str, model: Model, n: int, *, epsilon: ArrayLike, log: bool = ..., **options: Unpack[Options]
) -> Any: ...


def privacy_profile(
    release_type: str, model: Model, n: int, *, epsilon: ArrayLike, log: bool = False, **options: Unpack[Options]
) -> Any:
    """Return the smallest delta for which a release is (epsilon, delta)-differentially private.

    For replace-one neighbours, n public, maximised over all pairs of neighbouring data sets. Non-increasing in
    epsilon; at epsilon = 0 it is the largest total variation distance between neighbours. Explained in
    :doc:`/book/theory/four-ways-to-release`.

    Parameters
    ----------
    release_type : {"estimate", "sample", "synthetic-plugin", "synthetic-bayes"}
        What is released: the most likely parameter, one posterior draw, records simulated from an estimate, or
        records simulated from posterior draws.
    model : BetaBernoulli or NormalKnownVariance
        The model with its prior and bounds.
    n : int
        The number of records.
    epsilon : float or array
        At least 0; all values are computed at once.
    log : bool, default False
        Return the natural logarithm of delta.
    **options
        More about the release:

        - ``m`` (int, default 1): how many synthetic records.
        - ``redraw`` (bool or int, default True): for ``"synthetic-bayes"``, True draws the parameter anew for each
          record, False keeps one draw, and k makes k draws with m/k records from each, as in multiple imputation.
        - ``estimator`` (``"mode"`` or ``"mean"``): for ``"synthetic-plugin"`` of coins, the posterior's mode, as the
          poster has it and by default, or its mean.
        - ``truncate`` ((low, high), optional): restrict the draw, or the single synthetic record of a normal model, to
          an interval.
        - ``restriction`` (``"reject"`` or ``"clamp"``): draw again until the output is inside, or move it to the
          nearest end.
        - ``temperature`` (float, default 1.0): for ``"sample"``, draw from the posterior to the power
          ``1/temperature``.

    Returns
    -------
    float or ndarray
        Delta, in the shape of epsilon. For ``redraw=k`` with too many outcomes to list, an upper bound.

    Examples
    --------
    >>> from dpbook import theory
    >>> round(theory.privacy_profile("sample", theory.BetaBernoulli(1, 1), 1, epsilon=1.0), 12)  # 1 / (1 + e)
    0.26894142137
    >>> bells = theory.NormalKnownVariance(sigma=1, bound=5)
    >>> f"{theory.privacy_profile('synthetic-plugin', bells, 100, epsilon=1.0):.1e}"
    '1.2e-25'
    """
    setting = make_setting(release_type, model, n, **options)
    epsilons = non_negative_array("epsilon", epsilon)
    found = over_neighbours(setting, np.atleast_1d(epsilons).ravel()).log_delta
    return _in_shape(found if log else np.exp(found), epsilons)


def _in_shape(found: Array, epsilons: Array) -> Any:
    """Return values, one per epsilon, in the epsilons' shape; a float for a single one."""
    return float(found[0]) if epsilons.ndim == 0 else found.reshape(epsilons.shape)


def profile_bounds(
    release_type: str, model: Model, n: int, *, epsilon: ArrayLike, m: int = 1, redraw: bool | int = True
) -> tuple[Array, Array]:
    """Return a lower and an upper bound on the delta of records simulated from several posterior draws.

    For replace-one neighbours, n public. Everything except ``redraw=k`` is computed directly, and then the bounds
    agree. The lower bound is that of the worst pair which the upper bound found. Explained in
    :doc:`/book/theory/coins`.

    Parameters
    ----------
    release_type, model, n, epsilon, m, redraw
        As for :func:`privacy_profile`.

    Returns
    -------
    tuple of ndarray
        The bounds, in the shape of epsilon.

    Examples
    --------
    >>> from dpbook import theory
    >>> lower, upper = theory.profile_bounds(
    ...     "synthetic-bayes", theory.BetaBernoulli(5, 5), 50, epsilon=1.0, m=120, redraw=4
    ... )
    >>> bool(0.99 * upper < lower <= upper)
    True
    """
    setting = make_setting(release_type, model, n, m=m, redraw=redraw)
    epsilons = non_negative_array("epsilon", epsilon)
    flat = np.atleast_1d(epsilons).ravel()
    found = over_neighbours(setting, flat)
    lower = _coins.lower_bound(setting, found, flat) if isinstance(model, BetaBernoulli) else found.log_delta
    return np.exp(lower).reshape(epsilons.shape), np.exp(found.log_delta).reshape(epsilons.shape)


def worst_pair(release_type: str, model: Model, n: int, *, epsilon: float, **options: Unpack[Options]) -> WorstPair:
    """Return the neighbouring data sets at which a release is least private.

    For replace-one neighbours, n public. Coins: for a posterior draw all records equal, against all equal but one.
    For synthetic records the same as a rule, but not always: pairs between win for some counts under a prior that
    outweighs the data, and are otherwise ruled out by a bound. Bells: a record at one bound against the other; where
    the rest lies matters only when the output is restricted. Where the pair was searched for, ``excess`` bounds what
    the search may have missed. Explained in :doc:`/book/theory/coins`.

    Parameters
    ----------
    release_type, model, n, epsilon, **options
        As for :func:`privacy_profile`, with a single epsilon.

    Returns
    -------
    WorstPair
        The two data sets by what the release depends on, and their delta.

    Examples
    --------
    >>> from dpbook import theory
    >>> pair = theory.worst_pair("sample", theory.BetaBernoulli(2, 2), 10, epsilon=1.0)
    >>> pair.data, pair.neighbour, round(pair.delta, 4)
    (0.0, 1.0, 0.075)
    """
    setting = make_setting(release_type, model, n, **options)
    at = np.array([at_least("epsilon", epsilon, 0.0)])
    found = over_neighbours(setting, at, certify=True)
    if isinstance(model, BetaBernoulli):
        data, neighbour = _coins.worst_counts(setting, int(found.where[0]), at)
    else:
        data, neighbour = _bells.worst_means(setting, float(found.where[0]), at)
    return WorstPair(data, neighbour, float(np.exp(found.log_delta[0])), float(found.excess[0]))


def pair_profile(
    release_type: str,
    model: Model,
    data: ArrayLike,
    neighbour: ArrayLike,
    *,
    epsilon: ArrayLike,
    log: bool = False,
    **options: Unpack[Options],
) -> Any:
    """Return the delta of one data set against one neighbour: the largest of P(S) - e^epsilon Q(S) over events S.

    One order only: P belongs to ``data``, Q to ``neighbour``. A release is (epsilon, delta)-DP for replace-one
    neighbours when no pair, in either order, exceeds delta. Explained in :doc:`/book/theory/coins`.

    Parameters
    ----------
    release_type, model, epsilon, log, **options
        As for :func:`privacy_profile`.
    data, neighbour : array
        Two data sets of the same size that differ in at most one record, in any order of the records: zeros and ones,
        or numbers within the model's bound.

    Returns
    -------
    float or ndarray
        Delta, in the shape of epsilon.

    Examples
    --------
    >>> from dpbook import theory
    >>> coins = theory.BetaBernoulli(1, 1)
    >>> there = theory.pair_profile("sample", coins, [1, 0, 0], [0, 0, 0], epsilon=1.0)
    >>> back = theory.pair_profile("sample", coins, [0, 0, 0], [1, 0, 0], epsilon=1.0)
    >>> round(there, 3), round(back, 3)
    (0.144, 0.203)
    """
    x, y = finite_array("data", data, ndim=1), finite_array("neighbour", neighbour, ndim=1)
    if len(x) != len(y) or len(x) == 0:
        raise ValueError(f"data and neighbour must have the same size, at least 1, got {len(x)} and {len(y)}")
    setting = make_setting(release_type, model, len(x), **options)
    epsilons = non_negative_array("epsilon", epsilon)
    flat = np.atleast_1d(epsilons).ravel()
    before, after = _difference(x, y)
    if isinstance(model, BetaBernoulli):
        if not np.isin(np.concatenate([x, y]), (0.0, 1.0)).all():
            raise ValueError("data and neighbour must hold zeros and ones only")
        found = _coins.pair_log_delta(setting, int(x.sum()), int(y.sum()), flat)
    else:
        if np.abs(np.concatenate([x, y])).max() > model.bound:
            raise ValueError(f"data and neighbour must lie within the bound {model.bound}")
        found = _bells.pair_log_delta(setting, float(x.sum()), before - after, flat)
    return _in_shape(found if log else np.exp(found), epsilons)


def _difference(x: Array, y: Array) -> tuple[float, float]:
    """Return the record of x that y does not have, and the reverse; raise unless at most one differs."""
    one, other = np.sort(x), np.sort(y)
    # Of sorted sequences that differ in one record only a stretch between its two places differs, by one shift.
    differs = np.flatnonzero(one != other)
    if len(differs) == 0:
        return 0.0, 0.0
    first, last = differs[0], differs[-1] + 1
    if np.array_equal(one[first : last - 1], other[first + 1 : last]):
        return float(one[last - 1]), float(other[first])
    if np.array_equal(one[first + 1 : last], other[first : last - 1]):
        return float(one[first]), float(other[last - 1])
    raise ValueError("data and neighbour must differ in at most one record")


def epsilon_for(release_type: str, model: Model, n: int, *, delta: float, **options: Unpack[Options]) -> float:
    """Return the smallest epsilon for which a release is (epsilon, delta)-differentially private.

    For replace-one neighbours, n public, over all pairs of neighbouring data sets. Explained in
    :doc:`/book/theory/four-ways-to-release`.

    Parameters
    ----------
    release_type, model, n, **options
        As for :func:`privacy_profile`.
    delta : float
        In [0, 1); 0 asks for pure differential privacy.

    Returns
    -------
    float
        Epsilon; 0 where delta is at least the total variation distance, infinite where no epsilon will do.

    Examples
    --------
    >>> from dpbook import theory
    >>> coins = theory.BetaBernoulli(10, 10)
    >>> theory.epsilon_for("sample", coins, 100, delta=0.0)
    inf
    >>> round(theory.epsilon_for("sample", coins, 100, delta=1e-6), 3)
    1.84
    >>> theory.epsilon_for("synthetic-bayes", coins, 100, m=10, redraw=False, delta=0.0)  # log(1 + 10/10)
    0.6931471805599453
    """
    setting = make_setting(release_type, model, n, **options)
    delta = delta_value("delta", delta)
    pure = pure_epsilon(setting)
    if delta == 0:
        return pure
    quick = _solve(setting, delta, pure, quick=True)
    if not isinstance(model, BetaBernoulli) or setting.truncate is not None or not math.isfinite(quick):
        return quick
    # The ends were assumed to be worst; where the full search disagrees, it is solved again.
    if float(over_neighbours(setting, np.array([quick])).log_delta[0]) <= math.log(delta) + 10 * TOLERANCE:
        return quick
    return _solve(setting, delta, pure, quick=False)


def _solve(setting: Setting, delta: float, pure: float, *, quick: bool) -> float:
    target = math.log(delta)

    def gap(epsilon: float) -> float:
        found = float(over_neighbours(setting, np.array([epsilon]), quick=quick).log_delta[0])
        return max(found, -800.0) - target

    if gap(0.0) <= 0:
        return 0.0
    low, high = 0.0, 0.25
    while gap(min(high, pure)) > 0:
        if high >= pure:
            return pure
        low, high = high, 2 * high
        if high > 1e9:
            return math.inf
    return float(optimize.brentq(gap, low, min(high, pure), xtol=1e-13, rtol=1e-13))
