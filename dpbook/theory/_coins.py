"""Coins over all pairs of neighbours: posterior draws and records simulated from them, under a Beta prior.

Neighbours are replace-one, n public: data sets of n yes-or-no records with ``ones`` and ``ones + 1`` ones. The laws of
one pair are in :mod:`dpbook.theory._draws`, :mod:`dpbook.theory._counts` and, truncated, in
:mod:`dpbook.theory._intervals`; chapter 6 proves which pair is worst, and where that is open it is searched for.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpbook._arrays import Array
from dpbook.theory import _counts, _intervals
from dpbook.theory._draws import log_beta_delta, log_gaussian_delta
from dpbook.theory._search import ROUNDING, TOLERANCE, over_mesh, refined, relative
from dpbook.theory._setting import Search, Setting

__all__ = ["lower_bound", "pair_log_delta", "pure_epsilon", "worst", "worst_counts"]

_LISTED = 300  # pairs of truncated coins that every profile computes one by one
LISTED_ONCE = 20_000  # and that worst_pair does
_EVALUATIONS = 400  # of branch and bound, at most
_FLOOR = -740.0  # log of about the smallest float
_COARSE = 2**12  # grid of the bounds that only rule pairs out

Sides = tuple[float, float]  # (a, b) of a pair: the draws are Beta(a + 1, b) and Beta(a, b + 1)


def _sides(setting: Setting, ones: int) -> Sides:
    """Return (a, b) of the neighbours with ``ones`` and ``ones + 1`` ones among n.

    Simulated records are ones with probability a/(a + b + 1) and (a + 1)/(a + b + 1). A mode is a mean under a prior
    with one imaginary record of each kind less.
    """
    a, b = setting.coins.alpha + ones, setting.coins.beta + setting.n - 1 - ones
    if setting.kind == "synthetic-plugin" and setting.estimator == "mode":
        p, q = _mode(a, b + 1), _mode(a + 1, b)
        a, b = (a - 1, b - 1) if p > 0 and q < 1 else (p / (q - p), (1 - q) / (q - p))
    return a, b


def _mode(a: float, b: float) -> float:
    if a <= 1:
        return 0.0
    return 1.0 if b <= 1 else (a - 1) / (a + b - 2)


def _bounds(setting: Setting, a: float, b: float, epsilon: Array, *, grid: int = _counts.GRID) -> _counts.Bounds:
    """Return bounds on log delta of the data with one more one against its neighbour; they differ if convolved."""
    if setting.kind == "sample":
        exact = log_beta_delta(a, b, epsilon) if setting.temperature == 1 else _tempered(setting, a, b, epsilon)
    elif setting.kind == "synthetic-plugin" or setting.blocks == setting.m:
        exact = _counts.log_delta(_counts.binomial_losses(a, b, setting.m), epsilon)
    elif setting.blocks == 0:
        exact = _counts.log_delta(_counts.count_losses(a, b, setting.m), epsilon)
    else:
        single = _counts.count_losses(a, b, setting.m // setting.blocks)
        return _counts.composed_bounds(single, setting.blocks, epsilon, grid=grid)
    return _counts.Bounds(exact, exact)


def _both_orders(setting: Setting, pairs: list[Sides], epsilon: Array, *, grid: int = _counts.GRID) -> list[Array]:
    """Return, for each (a, b), the larger log delta of the two orders of its pair."""
    if setting.kind == "sample" and setting.temperature == 1 and pairs:
        a, b = np.array(pairs).T[..., None]
        return list(np.maximum(log_beta_delta(a, b, epsilon), log_beta_delta(b, a, epsilon)))
    return [
        np.maximum(*(_bounds(setting, *order, epsilon, grid=grid).upper for order in ((a, b), (b, a))))
        for a, b in pairs
    ]


def pair_log_delta(setting: Setting, data: int, neighbour: int, epsilon: Array) -> Array:
    """Return log delta of one number of ones against a neighbouring one."""
    if data == neighbour:
        return np.full(epsilon.shape, -np.inf)
    if setting.kind == "estimate":
        return np.zeros(epsilon.shape)
    a, b = _sides(setting, min(data, neighbour))
    if data < neighbour:
        a, b = b, a
    if setting.truncate is None:
        return _bounds(setting, a, b, epsilon).upper
    return _tempered(setting if data > neighbour else _mirrored(setting), a, b, epsilon)


def lower_bound(setting: Setting, found: Search, epsilon: Array) -> Array:
    """Return a lower bound on log delta: that of the worst pairs which the upper bound found."""
    if setting.kind != "synthetic-bayes" or setting.blocks in (0, setting.m):
        return found.log_delta
    lower = found.log_delta.copy()
    for ones in np.unique(found.where):
        at = found.where == ones
        a, b = _sides(setting, int(ones))
        lower[at] = np.maximum(*(_bounds(setting, *order, epsilon[at]).lower for order in ((a, b), (b, a))))
    return lower


def pure_epsilon(setting: Setting) -> float:
    """Return the epsilon at delta = 0; infinite where there is none."""
    first, last = _sides(setting, 0), _sides(setting, setting.n - 1)
    if setting.kind == "sample":
        return math.inf if setting.truncate is None else _pure_truncated(setting, first, last)
    least = min(first[0], last[1])
    if least <= 0:
        return math.inf
    blocks = setting.m if setting.kind == "synthetic-plugin" else max(setting.blocks, 1)
    return blocks * math.log1p(setting.m / blocks / least)


# The worst pair -------------------------------------------------------------------------------------------------------


def worst(setting: Setting, epsilon: Array, *, quick: bool, certify: bool) -> Search:
    """Find the worst pair for every epsilon; ``quick`` looks at the ends only, ``certify`` at more truncated pairs."""
    if setting.truncate is not None:
        return _worst_truncated(setting, epsilon, LISTED_ONCE if certify else _LISTED)
    found = _ends(setting, epsilon)
    return found if quick or not found.excess.any() else _worst_inside(setting, epsilon, found)


def worst_counts(setting: Setting, ones: int, epsilon: Array) -> tuple[float, float]:
    """Return the numbers of ones in the worst pair, whose smaller one is ``ones``, in the worse order."""
    more, fewer = ones + 1, ones
    forward = pair_log_delta(setting, more, fewer, epsilon)
    back = pair_log_delta(setting, fewer, more, epsilon)
    return (float(more), float(fewer)) if forward[0] >= back[0] else (float(fewer), float(more))


def _ends(setting: Setting, epsilon: Array) -> Search:
    """Return the worse of the two pairs at the ends: all records equal, or all but one.

    A draw is worst at an end: the chapter proves it. With a single record delta is linear in the two probabilities, so
    an end is worst again. Otherwise the excess is infinite.
    """
    last = setting.n - 1
    pairs = [_sides(setting, ones) for ones in ((0, last) if last else (0,))]
    if len(pairs) == 2 and pairs[0] == pairs[1][::-1]:
        pairs = pairs[:1]  # exchanging ones and zeros maps one end to the other
    best, where = np.full(epsilon.shape, -np.inf), np.zeros(epsilon.shape, dtype=np.int64)
    for ones, found in zip((0, last), _both_orders(setting, pairs, epsilon), strict=False):
        _update(best, where, found, ones)
    proved = setting.temperature == 1 if setting.kind == "sample" else setting.m == 1
    return Search(best, where, np.full(epsilon.shape, 0.0 if last < 2 or proved else np.inf))


def _worst_inside(setting: Setting, epsilon: Array, found: Search) -> Search:
    """Search the pairs between the ends too; what is no float anyway is not searched."""
    seen = found.log_delta > _FLOOR
    if seen.all():
        return _branch_and_bound(setting, epsilon, found)
    # From the pure epsilon on delta is 0 for all pairs.
    best, where, excess = found._replace(excess=np.where(epsilon >= pure_epsilon(setting), 0.0, np.inf))
    if seen.any():
        inner = _branch_and_bound(setting, epsilon[seen], _ends(setting, epsilon[seen]))
        best[seen], where[seen], excess[seen] = inner
    return Search(best, where, excess)


def _branch_and_bound(setting: Setting, epsilon: Array, found: Search) -> Search:
    """Search the pairs between the ends, block by block.

    Delta falls in a and in b: a draw of the pair (a, b), multiplied by an independent Beta variable, is a draw of the
    pair (a, b + c), and thinning records does the same for counts. So no pair with ``low`` to ``high`` ones is worse
    than (a of low, b of high), and whole blocks of pairs are ruled out at once.
    """
    best, where, last = found.log_delta, found.where, setting.n - 1
    # Two halves to begin with: the corner of all pairs together would be weak, and its law the widest of all.
    blocks = [(1, (last - 1) // 2), ((last - 1) // 2 + 1, last - 1)]
    blocks, evaluations = [(low, high) for low, high in blocks if low <= high], 0
    left = np.full(epsilon.shape, -np.inf)  # the largest bound of a block that was not looked into
    while blocks:
        corners = [(_sides(setting, low)[0], _sides(setting, high)[1]) for low, high in blocks]
        above = _both_orders(setting, corners, epsilon, grid=_COARSE)
        evaluations += len(blocks)
        left = np.max([left, *(each for each in above if not _exceeds(each, best))], axis=0)
        bounded = [(block, each) for block, each in zip(blocks, above, strict=True) if _exceeds(each, best)]
        _look_at_single_pairs(setting, [low for (low, high), _ in bounded if low == high], epsilon, best, where)
        blocks = []
        for (low, high), each in bounded:
            if low < high and evaluations <= _EVALUATIONS and _exceeds(each, best):
                middle = _middle(setting, low, high)
                blocks += [(low, middle), (middle + 1, high)]
            elif low < high:
                left = np.maximum(left, each)
    return Search(best, where, relative(left, best))


def _look_at_single_pairs(
    setting: Setting, singles: list[int], epsilon: Array, best: Array, where: NDArray[np.int64]
) -> None:
    pairs = [_sides(setting, ones) for ones in singles]
    for ones, found in zip(singles, _both_orders(setting, pairs, epsilon), strict=True):
        _update(best, where, found, ones)


def _update(best: Array, where: NDArray[np.int64], found: Array, ones: int) -> None:
    better = found > best
    best[better], where[better] = found[better], ones


def _exceeds(above: Array, best: Array) -> bool:
    return bool(np.any(above > best + TOLERANCE))


def _middle(setting: Setting, low: int, high: int) -> int:
    """Return where to split a block, where a, or b, has its geometric mean: near an end the pairs differ most."""
    a_low, b_low = _sides(setting, low)
    a_high, b_high = _sides(setting, high)
    if a_low <= b_high:
        middle = low + round(math.sqrt(a_low * a_high) - a_low)
    else:
        middle = high - 1 - round(math.sqrt(b_low * b_high) - b_high)
    return int(np.clip(middle, low, high - 1))


# Tempered and truncated draws -----------------------------------------------------------------------------------------


def _log_odds(probability: float) -> float:
    with np.errstate(divide="ignore"):
        return float(special.logit(probability))


def _tempered_pair(setting: Setting, a: ArrayLike, b: ArrayLike) -> _intervals.LogOddsPair:
    """Return the log odds of the posterior to the power 1/T."""
    heat = setting.temperature
    ones, zeros = (np.asarray(a, dtype=float) - 1) / heat + 1, np.asarray(b, dtype=float) / heat + 1
    return _intervals.LogOddsPair(ones, zeros, np.full(np.shape(ones), 1 / heat))


def _tempered(setting: Setting, a: ArrayLike, b: ArrayLike, epsilon: ArrayLike) -> Array:
    low, high = (0.0, 1.0) if setting.truncate is None else setting.truncate
    return _intervals.log_truncated_delta(_tempered_pair(setting, a, b), _log_odds(low), _log_odds(high), epsilon)


def _mirrored(setting: Setting) -> Setting:
    """Return the setting with ones and zeros exchanged."""
    low, high = setting.support
    return replace(setting, truncate=(1 - high, 1 - low))


def _pure_truncated(setting: Setting, first: Sides, last: Sides) -> float:
    a, b = np.array([first[0], last[0]]), np.array([first[1], last[1]])
    low, high = setting.support
    up = _intervals.largest_loss(_tempered_pair(setting, a, b), _log_odds(low), _log_odds(high))
    down = _intervals.largest_loss(_tempered_pair(setting, b, a), _log_odds(1 - high), _log_odds(1 - low))
    return float(np.max([up, down]))


def _worst_truncated(setting: Setting, epsilon: Array, listed: int) -> Search:
    """Find the worst pair when draws are truncated, where no monotonicity helps: all pairs, or a refined mesh.

    Up to ``listed`` records every pair is computed. Beyond, a mesh that is dense at both ends, and where the data agree
    with an end of the truncation, is refined around its peaks; what it may have missed is bounded by a theorem.
    """
    model, last, mirrored = setting.coins, setting.n - 1, _mirrored(setting)

    def profile(ones: Array) -> Array:
        a, b = model.alpha + ones, model.beta + last - ones
        return np.maximum(_tempered(setting, a, b, epsilon), _tempered(mirrored, b, a, epsilon))

    if last < listed:
        best, where = np.full(epsilon.shape, -np.inf), np.zeros(epsilon.shape)
        for ones in np.array_split(np.arange(last + 1.0), 1 + last // 2000):
            part = ones[:, None] + 0 * epsilon
            values, places = over_mesh(part, profile(part))
            better = values > best
            best, where = np.where(better, values, best), np.where(better, places, where)
        return Search(best, where.astype(np.int64), np.zeros(epsilon.shape))
    total = model.alpha + model.beta + last
    anchors = [0.0, float(last), *(end * total - model.alpha for end in setting.support)]
    reach = np.concatenate([[0.0], np.geomspace(1.0, last, 40)])
    mesh = np.unique(np.rint(np.clip([anchor + sign * reach for anchor in anchors for sign in (-1, 1)], 0, last)))
    best, where = refined(mesh[:, None] + 0 * epsilon, profile, whole=True)
    left = relative(truncated_bound(setting, epsilon), best)
    return Search(best, where.astype(np.int64), np.maximum(left, ROUNDING))


def truncated_bound(setting: Setting, epsilon: Array) -> Array:
    """Return an upper bound on log delta over all pairs: the Gaussian mechanism of the least curved log density.

    The log odds y have the log density (a y - total log(1 + e^y))/T and neighbours differ by y/T in it. Its curvature,
    total p(1 - p)/T, is least at an end of the truncation, and truncation only helps: see the section on bells.
    """
    model, heat = setting.coins, setting.temperature
    counts = model.alpha + model.beta + setting.n - 2 + 2 * heat  # the two exponents of the tempered law, times T
    curvature = counts / heat * min(end * (1 - end) for end in setting.support)
    if curvature <= 0:
        return np.zeros(epsilon.shape)
    return log_gaussian_delta(1 / heat / math.sqrt(curvature), epsilon)
