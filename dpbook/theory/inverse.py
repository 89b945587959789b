"""What a practitioner asks backwards: which prior, how many records, how many synthetic records suffice.

Each answer is exact for the release that it names, over the worst neighbours (replace-one, n public), and rests on
monotonicity: a stronger prior and more data never make these releases less private, more output never more private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

import numpy as np

from dpbook._late import optimize
from dpbook._validation import at_least, delta_value, integer
from dpbook.theory._setting import Model, Options, make_setting
from dpbook.theory.models import BetaBernoulli, NormalKnownVariance
from dpbook.theory.profiles import over_neighbours, pure_epsilon

__all__ = ["largest_m", "prior_for", "smallest_n"]

_LARGEST = 2**40  # where a search for n or m gives up
_WEAKEST, _STRONGEST = 1e-9, 1e12  # priors that are considered, as numbers of records


def _gap(
    release_type: str, model: Model, n: int, epsilon: float, delta: float, options: Options, *, quick: bool = False
) -> float:
    """Return how far a release is from (epsilon, delta)-DP: at most 0 where it is private.

    In logarithms of delta, or of epsilon where delta is 0; ``quick`` looks at the likely neighbours only.
    """
    setting = make_setting(release_type, model, n, **options)
    if delta > 0:
        found = float(over_neighbours(setting, np.array([epsilon]), quick=quick).log_delta[0])
        return max(found, -800.0) - math.log(delta)
    exact = pure_epsilon(setting)
    if exact == math.inf or epsilon == 0:
        return math.inf if exact > 0 else 0.0
    return math.log(exact / epsilon) - 1e-14


def _private(release_type: str, model: Model, n: int, epsilon: float, delta: float, options: Options) -> bool:
    return _gap(release_type, model, n, epsilon, delta, options) <= 0


def _check_monotone(release_type: str, options: Options) -> None:
    if release_type == "sample" and options.get("truncate") is not None:
        raise ValueError("truncate must be None here: a truncated draw is not always more private with more records")


def _with_strength(model: Model, strength: float) -> Model:
    """Return the model with a prior that is worth ``strength`` records of each kind (coins), or in all (bells)."""
    if isinstance(model, BetaBernoulli):
        return BetaBernoulli(strength, strength)
    return replace(model, prior_sd=model.sigma / math.sqrt(strength))


def prior_for(
    release_type: str, model: Model, n: int, *, epsilon: float, delta: float, **options: Unpack[Options]
) -> Model | None:
    """Return the weakest prior for which a release is (epsilon, delta)-differentially private.

    For replace-one neighbours, n public. Explained in :doc:`/book/theory/choosing-a-prior`.

    Parameters
    ----------
    release_type, n, **options
        As for :func:`privacy_profile`; no ``truncate`` for a draw.
    model : BetaBernoulli or NormalKnownVariance
        What stays fixed: for a normal model sigma, the prior's mean and the bound. Its prior's strength is ignored.
    epsilon, delta : float
        What must hold; delta may be 0.

    Returns
    -------
    BetaBernoulli, NormalKnownVariance or None
        Coins: the smallest ``alpha = beta``. Bells: the largest ``prior_sd``, infinite where a flat prior will do.
        None where no prior helps.

    Examples
    --------
    >>> from dpbook import theory
    >>> round(theory.prior_for("sample", theory.BetaBernoulli(), 100, epsilon=1.0, delta=1e-6).alpha, 2)
    26.95
    >>> theory.prior_for("sample", theory.BetaBernoulli(), 100, epsilon=1.0, delta=0.0) is None
    True
    >>> theory.prior_for("sample", theory.NormalKnownVariance(bound=1), 1000, epsilon=1.0, delta=1e-6).prior_sd
    inf
    """
    n, epsilon, delta = integer("n", n, least=1), at_least("epsilon", epsilon, 0.0), delta_value("delta", delta)
    _check_monotone(release_type, options)

    def gap(strength: float, quick: bool) -> float:
        return _gap(release_type, _with_strength(model, strength), n, epsilon, delta, options, quick=quick)

    if isinstance(model, NormalKnownVariance):
        flat = replace(model, prior_sd=math.inf)
        if _gap(release_type, flat, n, epsilon, delta, options) <= 0:
            return flat
    found = _root(lambda strength: gap(strength, True))
    # The likely neighbours gave the answer; where the others say otherwise, it is solved again with all of them.
    if found is not None and gap(found, False) > 1e-5:
        found = _root(lambda strength: gap(strength, False))
    return None if found is None else _with_strength(model, found)


def _root(gap: Callable[[float], float]) -> float | None:
    """Return the smallest strength at which a falling gap is no longer positive."""
    low, high = 1.0, 10.0
    while gap(high) > 0:
        low, high = high, high * 10
        if high > _STRONGEST:
            return None
    while gap(low) <= 0:
        low, high = low / 10, low
        if low < _WEAKEST:
            return low
    with np.errstate(invalid="ignore"):
        logarithm = optimize.brentq(lambda x: gap(math.exp(x)), math.log(low), math.log(high), xtol=1e-13)
    return math.exp(logarithm)


def smallest_n(release_type: str, model: Model, *, epsilon: float, delta: float, **options: Unpack[Options]) -> float:
    """Return the smallest number of records at which a release is (epsilon, delta)-differentially private.

    For replace-one neighbours, n public. Explained in :doc:`/book/theory/choosing-a-prior`.

    Parameters
    ----------
    release_type, model, **options
        As for :func:`privacy_profile`; no ``truncate`` for a draw.
    epsilon, delta : float
        What must hold; delta may be 0.

    Returns
    -------
    float
        A whole number; infinite where no amount of data will do, as for a posterior draw of coins under a weak prior.

    Examples
    --------
    >>> from dpbook import theory
    >>> theory.smallest_n("sample", theory.NormalKnownVariance(bound=1), epsilon=1.0, delta=1e-6)
    72.0
    >>> theory.smallest_n("sample", theory.BetaBernoulli(1, 1), epsilon=1.0, delta=1e-6)
    inf
    """
    epsilon, delta = at_least("epsilon", epsilon, 0.0), delta_value("delta", delta)
    _check_monotone(release_type, options)

    def private(n: int) -> bool:
        return _private(release_type, model, n, epsilon, delta, options)

    return float(_first(private)) if private(_LARGEST) else math.inf


def largest_m(
    release_type: str, model: Model, n: int, *, epsilon: float, delta: float, **options: Unpack[Options]
) -> float:
    """Return how many synthetic records can be released under (epsilon, delta)-differential privacy.

    For replace-one neighbours, n public. Explained in :doc:`/book/theory/choosing-a-prior`.

    Parameters
    ----------
    release_type : {"synthetic-plugin", "synthetic-bayes"}
        How they are simulated.
    model, n, **options
        As for :func:`privacy_profile`. With ``redraw=k`` only multiples of k count.
    epsilon, delta : float
        What must hold; delta may be 0.

    Returns
    -------
    float
        A whole number; 0 where not even one record, infinite where a posterior draw itself could be released.

    Examples
    --------
    >>> from dpbook import theory
    >>> theory.largest_m("synthetic-bayes", theory.BetaBernoulli(10, 10), 100, epsilon=1.0, delta=0.0, redraw=False)
    17.0
    """
    if release_type not in ("synthetic-plugin", "synthetic-bayes"):
        raise ValueError(f"release_type must be 'synthetic-plugin' or 'synthetic-bayes', got {release_type!r}")
    epsilon, delta = at_least("epsilon", epsilon, 0.0), delta_value("delta", delta)
    redraw = options.get("redraw", True)
    step = 1 if isinstance(redraw, bool) else integer("redraw", redraw, least=1)

    def too_many(blocks: int) -> bool:
        return not _private(release_type, model, n, epsilon, delta, options | {"m": blocks * step})

    # A draw that is kept is worth all records simulated from it, so where it is private there is no limit.
    if release_type == "synthetic-bayes" and redraw is False and _private("sample", model, n, epsilon, delta, {}):
        return math.inf
    return float((_first(too_many) - 1) * step)


def _first(holds: Callable[[int], bool]) -> int:
    """Return the first whole number at which a condition holds that stays true; at most the largest considered."""
    low, high = 0, 1
    while not holds(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            return _LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
