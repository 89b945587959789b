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
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from dpbook._arrays import Array
from dpbook._validation import (
    at_least,
    delta_value,
    finite_array,
    integer,
    interval,
    non_negative_array,
    one_of,
)
from dpbook.theory import _counts, _intervals
from dpbook.theory._draws import log_beta_delta, log_gaussian_delta
from dpbook.theory.models import BetaBernoulli, NormalKnownVariance

__all__ = [
    "RELEASE_TYPES",
    "WorstPair",
    "epsilon_for",
    "pair_profile",
    "privacy_profile",
    "profile_bounds",
    "worst_pair",
]

Model = BetaBernoulli | NormalKnownVariance

RELEASE_TYPES = ("estimate", "sample", "synthetic-plugin", "synthetic-bayes")
_TOLERANCE = 1e-6  # of the search over neighbours, relative to delta
_EVALUATIONS = 400  # of that search, at most
_FLOOR = -740.0  # log of about the smallest float
_COARSE = 2**12  # grid of the bounds that only rule pairs out
_LISTED = 300  # pairs of truncated coins that every profile computes one by one
_LISTED_ONCE = 20_000  # and that worst_pair does
_TOPS = 3  # peaks of a mesh that are refined
_ROUNDING = 1e-10  # of delta; no search on a mesh claims to be closer
_BLOCKS = 3000  # blocks of centres that a certificate may bound


class WorstPair(NamedTuple):
    """The neighbours that a release tells apart best.

    Attributes
    ----------
    data, neighbour : float
        What the release depends on: the number of ones (coins) or the mean of the records (bells).
    delta : float
        The delta of ``data`` against ``neighbour``.
    excess : float
        By how much, relatively, another pair may exceed it, at most. 0 only where a proof, or a list of all pairs, says
        that none does. After a search it is what the search could not rule out: a bound, often far from reached, and
        infinite where there is none.

    Examples
    --------
    >>> from dpbook import theory
    >>> theory.worst_pair("sample", theory.BetaBernoulli(2, 2), 10, epsilon=1.0).excess <= 1e-6
    True

    Explained in :doc:`/book/theory/coins`.
    """

    data: float
    neighbour: float
    delta: float
    excess: float


@dataclass(frozen=True)
class Setting:
    """Checked arguments of a profile."""

    kind: str
    model: Model
    n: int
    m: int
    blocks: int  # independent draws of theta; 0: one draw kept for all records
    estimator: str
    truncate: tuple[float, float] | None
    clamp: bool
    temperature: float

    @property
    def coins(self) -> bool:
        """Whether the records are tosses of a coin."""
        return isinstance(self.model, BetaBernoulli)


def make_setting(
    release_type: str,
    model: Any,
    n: Any,
    *,
    m: Any = 1,
    redraw: Any = True,
    estimator: str = "mode",
    truncate: Any = None,
    restriction: str = "reject",
    temperature: Any = 1.0,
) -> Setting:
    """Check the arguments of a profile; defaults as in :func:`privacy_profile`."""
    kind = one_of("release_type", release_type, RELEASE_TYPES)
    if not isinstance(model, (BetaBernoulli, NormalKnownVariance)):
        raise TypeError(f"model must be a BetaBernoulli or a NormalKnownVariance, got {model!r}")
    n, m = integer("n", n, least=1), integer("m", m, least=1)
    one_of("estimator", estimator, ("mode", "mean"))
    one_of("restriction", restriction, ("reject", "clamp"))
    temperature = at_least("temperature", temperature, 1.0)
    coins = isinstance(model, BetaBernoulli)
    if isinstance(redraw, (bool, np.bool_)):
        blocks = m if redraw else 0
    else:
        blocks = integer("redraw", redraw, least=1)
        if m % blocks:
            raise ValueError(f"redraw must divide m = {m} evenly, got {blocks}")
        blocks = 0 if blocks == 1 else blocks
    if m == 1:
        blocks = 1
    if temperature != 1 and kind != "sample":
        raise ValueError(f"temperature applies to release_type 'sample' only, got {kind!r}")
    if truncate is not None:
        truncate = interval("truncate", truncate)
        if kind == "estimate" or (coins and kind != "sample"):
            raise ValueError(f"truncate does not apply to release_type {kind!r} of this model")
        if coins and not (truncate[0] >= 0 and truncate[1] <= 1):
            raise ValueError(f"truncate must lie within [0, 1] for coins, got {truncate}")
        if kind != "sample" and m != 1:
            raise ValueError(f"truncate takes a single synthetic record (m = 1), got m = {m}")
    clamp = restriction == "clamp"
    if clamp and (truncate is None or coins):
        raise ValueError("restriction 'clamp' needs truncate and a NormalKnownVariance model")
    return Setting(kind, model, n, m, blocks, estimator, truncate, clamp, temperature)


# Coins --------------------------------------------------------------------------------------------------------------


def _coin_sides(setting: Setting, ones: int) -> tuple[float, float]:
    """Return (a, b) of the neighbours with ``ones`` and ``ones + 1`` ones among n.

    The draws are Beta(a, b + 1) and Beta(a + 1, b); simulated records are ones with probability a/(a + b + 1) and
    (a + 1)/(a + b + 1). A mode is a mean under a prior with one imaginary record of each kind less.
    """
    model = setting.model
    assert isinstance(model, BetaBernoulli)
    a, b = model.alpha + ones, model.beta + setting.n - 1 - ones
    if setting.kind == "synthetic-plugin" and setting.estimator == "mode":
        p, q = _mode(a, b + 1), _mode(a + 1, b)
        a, b = (a - 1, b - 1) if p > 0 and q < 1 else (p / (q - p), (1 - q) / (q - p))
    return a, b


def _mode(a: float, b: float) -> float:
    if a <= 1:
        return 0.0
    return 1.0 if b <= 1 else (a - 1) / (a + b - 2)


def _coin_log_delta(setting: Setting, a: float, b: float, epsilon: Array, *, grid: int = _counts.GRID) -> Array:
    """Return log delta (an upper bound where it is convolved) of the data with one more one against its neighbour."""
    return _coin_bounds(setting, a, b, epsilon, grid=grid).upper


def _coin_bounds(setting: Setting, a: float, b: float, epsilon: Array, *, grid: int = _counts.GRID) -> _counts.Bounds:
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


class _Search(NamedTuple):
    log_delta: Array
    ones: NDArray[Any]  # where the worst pair lies: the smaller number of ones, or the lower centre
    excess: Array


def _search_coins(setting: Setting, epsilon: Array, *, ends_only: bool = False) -> _Search:
    """Find the worst pair of neighbours for every epsilon, by branch and bound.

    Delta falls in a and in b: a draw of the pair (a, b), multiplied by an independent Beta variable, is a draw of the
    pair (a, b + c), and thinning records does the same for counts. So no pair with ``low`` to ``high`` ones is worse
    than (a of low, b of high), and whole blocks of pairs are ruled out at once.
    """
    last = setting.n - 1
    sides = [_coin_sides(setting, ones) for ones in ((0, last) if last else (0,))]
    if len(sides) == 2 and sides[0] == sides[1][::-1]:
        sides = sides[:1]  # exchanging ones and zeros maps one end to the other
    best, where = np.full(epsilon.shape, -np.inf), np.zeros(epsilon.shape, dtype=np.int64)
    for ones, found in zip((0, last), _both_orders(setting, sides, epsilon), strict=False):
        _update(best, where, found, ones)
    excess = np.zeros(epsilon.shape)
    # A draw is worst at an end: the chapter proves it. With a single record delta is linear in the two probabilities,
    # so an end is worst again.
    proved = setting.temperature == 1 if setting.kind == "sample" else setting.m == 1
    if last < 2 or proved:
        return _Search(best, where, excess)
    if ends_only:
        return _Search(best, where, np.where(best > 0, excess, np.inf))
    seen = best > _FLOOR
    if not seen.all():  # what is no float anyway is not searched; from the pure epsilon on it is 0 for all pairs
        excess = np.where(epsilon >= pure_epsilon(setting), 0.0, np.inf)
        if seen.any():
            inner = _search_coins(setting, epsilon[seen])
            best[seen], where[seen], excess[seen] = inner
        return _Search(best, where, excess)
    # Two halves to begin with: the corner of all pairs together would be weak, and its law the widest of all.
    blocks, evaluations = [(1, (last - 1) // 2), ((last - 1) // 2 + 1, last - 1)], 0
    blocks = [(low, high) for low, high in blocks if low <= high]
    left = np.full(epsilon.shape, -np.inf)  # the largest bound of a block that was not looked into
    while blocks:
        corners = [(_coin_sides(setting, low)[0], _coin_sides(setting, high)[1]) for low, high in blocks]
        above = _both_orders(setting, corners, epsilon, grid=_COARSE)
        evaluations += len(blocks)
        open_blocks = [(block, each) for block, each in zip(blocks, above, strict=True) if _exceeds(each, best)]
        left = np.max([left, *(each for each in above if not _exceeds(each, best))], axis=0)
        singles = [low for (low, high), _ in open_blocks if low == high]
        for ones, found in zip(
            singles, _both_orders(setting, [_coin_sides(setting, s) for s in singles], epsilon), strict=True
        ):
            _update(best, where, found, ones)
        blocks = []
        for (low, high), each in open_blocks:
            if low == high:
                continue
            if evaluations > _EVALUATIONS or not _exceeds(each, best):
                left = np.maximum(left, each)
                continue
            middle = _split(setting, low, high)
            blocks += [(low, middle), (middle + 1, high)]
    return _Search(best, where, _relative(left, best))


def _relative(above: Array, best: Array) -> Array:
    """Return by how much the one exceeds the other, both as logarithms; 0 where it does not."""
    with np.errstate(invalid="ignore"):
        return np.where(above > best, np.expm1(np.minimum(above - best, 700.0)), 0.0)


def _both_orders(
    setting: Setting, sides: list[tuple[float, float]], epsilon: Array, *, grid: int = _counts.GRID
) -> list[Array]:
    """Return, for each (a, b), the larger log delta of the two orders of its pair."""
    if setting.kind == "sample" and setting.temperature == 1 and sides:
        a, b = np.array(sides).T[..., None]
        return list(np.maximum(log_beta_delta(a, b, epsilon), log_beta_delta(b, a, epsilon)))
    return [
        np.maximum(*(_coin_log_delta(setting, *order, epsilon, grid=grid) for order in ((a, b), (b, a))))
        for a, b in sides
    ]


def _update(best: Array, where: NDArray[np.int64], found: Array, ones: int) -> None:
    better = found > best
    best[better], where[better] = found[better], ones


def _exceeds(above: Array, best: Array) -> bool:
    return bool(np.any(above > best + _TOLERANCE))


def _split(setting: Setting, low: int, high: int) -> int:
    """Split a block where a, or b, has its geometric mean: near an end the pairs differ most."""
    a_low, b_low = _coin_sides(setting, low)
    a_high, b_high = _coin_sides(setting, high)
    if a_low <= b_high:
        middle = low + round(math.sqrt(a_low * a_high) - a_low)
    else:
        middle = high - 1 - round(math.sqrt(b_low * b_high) - b_high)
    return int(np.clip(middle, low, high - 1))


def _scan_truncated_coins(setting: Setting, epsilon: Array, *, listed: int = _LISTED) -> _Search:
    """Find the worst pair when draws are truncated, where no monotonicity helps: all pairs, or a refined mesh.

    Up to ``listed`` records every pair is computed. Beyond, a mesh that is dense at both ends, and where the data agree
    with an end of the truncation, is refined around its peaks; what it may have missed is bounded by a theorem.
    """
    model, last = setting.model, setting.n - 1
    assert isinstance(model, BetaBernoulli)
    assert setting.truncate is not None
    low, high = setting.truncate
    mirrored = replace(setting, truncate=(1 - high, 1 - low))

    def profile(ones: Array) -> Array:
        a, b = model.alpha + ones, model.beta + last - ones
        return np.maximum(_tempered(setting, a, b, epsilon), _tempered(mirrored, b, a, epsilon))

    if last < listed:
        best, where = np.full(epsilon.shape, -np.inf), np.zeros(epsilon.shape)
        for ones in np.array_split(np.arange(last + 1.0), 1 + last // 2000):
            found = profile(ones[:, None] + 0 * epsilon)
            top = np.argmax(found, axis=0)
            values = found[top, np.arange(len(epsilon))]
            better = values > best
            best, where = np.where(better, values, best), np.where(better, ones[top], where)
        return _Search(best, where.astype(np.int64), np.zeros(epsilon.shape))
    total = model.alpha + model.beta + last
    anchors = [0.0, float(last), *(end * total - model.alpha for end in (low, high))]
    reach = np.concatenate([[0.0], np.geomspace(1.0, last, 40)])
    mesh = np.unique(np.rint(np.clip([anchor + sign * reach for anchor in anchors for sign in (-1, 1)], 0, last)))
    best, where = _refined(mesh[:, None] + 0 * epsilon, profile, whole=True)
    left = _relative(_truncated_coins_bound(setting, epsilon), best)
    return _Search(best, where.astype(np.int64), np.maximum(left, _ROUNDING))


def _truncated_coins_bound(setting: Setting, epsilon: Array) -> Array:
    """Return an upper bound on log delta over all pairs: the Gaussian mechanism of the least curved log density.

    The log odds y have the log density (a y - total log(1 + e^y))/T and neighbours differ by y/T in it. Its curvature,
    total p(1 - p)/T, is least at an end of the truncation, and truncation only helps: see the section on bells.
    """
    model, heat = setting.model, setting.temperature
    assert isinstance(model, BetaBernoulli)
    assert setting.truncate is not None
    counts = model.alpha + model.beta + setting.n - 2 + 2 * heat  # the two exponents of the tempered law, times T
    curvature = counts / heat * min(end * (1 - end) for end in setting.truncate)
    if curvature <= 0:
        return np.zeros(epsilon.shape)
    return log_gaussian_delta(1 / heat / math.sqrt(curvature), epsilon)


def _refined(mesh: Array, profile: Callable[[Array], Array], *, whole: bool) -> tuple[Array, Array]:
    """Return the largest value over a mesh (points by epsilons) and where, refined around its highest peaks."""
    values = profile(mesh)
    columns = np.arange(mesh.shape[1])
    top = np.argmax(values, axis=0)
    best, where = values[top, columns], mesh[top, columns]
    padded = np.pad(values, ((1, 1), (0, 0)), constant_values=-np.inf)
    peaks = np.where((values >= padded[:-2]) & (values >= padded[2:]), values, -np.inf)
    for at in np.argsort(-peaks, axis=0)[:_TOPS]:
        low, high = mesh[np.maximum(at - 1, 0), columns], mesh[np.minimum(at + 1, len(mesh) - 1), columns]
        for _ in range(40 if whole else 9):
            points = low + np.linspace(0, 1, 9)[:, None] * (high - low)
            points = np.rint(points) if whole else points
            found = profile(points)
            inner = np.argmax(found, axis=0)
            better = found[inner, columns] > best
            best = np.where(better, found[inner, columns], best)
            where = np.where(better, points[inner, columns], where)
            low, high = points[np.maximum(inner - 1, 0), columns], points[np.minimum(inner + 1, 8), columns]
            if whole and np.all(high - low <= 2):
                break
    return best, where


# Bells --------------------------------------------------------------------------------------------------------------


def _bell_scale(setting: Setting) -> tuple[float, float]:
    """Return how far the output's centre moves when one record moves by 1, and the sd of what is as good as it."""
    model, n, m = setting.model, setting.n, setting.m
    assert isinstance(model, NormalKnownVariance)
    posterior, sigma = model.posterior_sd(n), model.sigma
    if setting.kind == "sample":
        spread = posterior * math.sqrt(setting.temperature)
    elif setting.kind == "synthetic-plugin":
        spread = sigma / math.sqrt(m)
    else:
        blocks = max(setting.blocks, 1)  # a kept draw is one block of m records
        spread = math.sqrt((posterior**2 + sigma**2 * blocks / m) / blocks)
    return model._weight(n), spread


def _bell_shift(setting: Setting) -> float:
    """Return mu: the largest move of the centre in sds."""
    model = setting.model
    assert isinstance(model, NormalKnownVariance)
    weight, spread = _bell_scale(setting)
    return 2 * model.bound * weight / spread


def _bell_pairs(setting: Setting, lower: ArrayLike, move: float) -> _intervals.NormalPair:
    lower = np.asarray(lower, dtype=float)
    return _intervals.NormalPair(lower, lower + move, np.full(lower.shape, _bell_scale(setting)[1]))


def _restricted(setting: Setting, pair: _intervals.NormalPair, epsilon: ArrayLike) -> Array:
    assert setting.truncate is not None
    low, high = setting.truncate
    if setting.clamp:
        return _intervals.log_clamped_delta(pair, low, high, epsilon)
    return _intervals.log_truncated_delta(pair, low, high, epsilon)


def _mirror(setting: Setting) -> Setting:
    assert setting.truncate is not None
    low, high = setting.truncate
    return replace(setting, truncate=(-high, -low))


def _centres(setting: Setting) -> tuple[float, float, float]:
    """Return the smallest and largest centre of the lower law of a pair, and the move between the two laws."""
    model, n = setting.model, setting.n
    assert isinstance(model, NormalKnownVariance)
    move = 2 * model.bound * model._weight(n)
    low = model._posterior_mean(-n * model.bound, n)
    return low, low + (n - 1) * move, move


def _scan_bells(setting: Setting, epsilon: Array, *, certify: bool = False) -> _Search:
    """Find the worst pair of restricted outputs: one record at either bound, the others anywhere between.

    The laws have monotone likelihood ratios, so delta grows with the distance of their centres: the record that is
    replaced moves from one bound to the other. Where the other records lie is known for clamped outputs, and searched
    on a mesh for truncated ones.
    """
    low, _, move = _centres(setting)

    def profile(lower: Array) -> Array:
        return _pair_of_bells(setting, lower, lower + move, epsilon)

    if setting.n == 1:
        return _Search(profile(np.full(epsilon.shape, low)), np.full(epsilon.shape, low), np.zeros(epsilon.shape))
    mesh = _clamped_centres(setting, epsilon) if setting.clamp else _mesh_of_centres(setting, epsilon)
    if setting.clamp:
        values = profile(mesh)
        top, columns = np.argmax(values, axis=0), np.arange(len(epsilon))
        return _Search(values[top, columns], mesh[top, columns], np.zeros(epsilon.shape))
    best, where = _refined(mesh, profile, whole=False)
    if not certify:
        return _Search(best, where, np.full(epsilon.shape, np.inf))
    left = [_bound_over_centres(setting, mesh[:, [i]], epsilon[[i]], best[i]) for i in range(len(epsilon))]
    return _Search(best, where, np.maximum(_relative(np.array(left), best), _ROUNDING))


def _pair_of_bells(setting: Setting, lower: ArrayLike, upper: ArrayLike, epsilon: ArrayLike) -> Array:
    """Return the larger log delta of the two orders of two restricted laws with the given centres."""
    lower, upper = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    pair = _intervals.NormalPair(lower, upper, np.full(lower.shape, _bell_scale(setting)[1]))
    return np.maximum(_restricted(setting, pair, epsilon), _restricted(_mirror(setting), pair.mirrored(), epsilon))


def _clamped_centres(setting: Setting, epsilon: Array) -> Array:
    """Return, for each order of the pair, the lower centre at which a clamped output is told apart best.

    Without clamping the best events are z > t with t = c + move/2 + ε spread²/move, at every centre c. Clamping leaves
    those with t in the interval, so delta is that of the unrestricted output if some centre puts t there, and
    otherwise largest for the centre that brings t nearest.
    """
    assert setting.truncate is not None
    low, high, move = _centres(setting)
    shift = epsilon * _bell_scale(setting)[1] ** 2 / move
    middle = sum(setting.truncate) / 2 - move / 2
    return np.clip(np.stack([middle - shift, middle + shift]), low, high)


def _mesh_of_centres(setting: Setting, epsilon: Array) -> Array:
    """Return lower centres to begin a search with: evenly spread, and dense where a law or its best event meets an end.

    The distances from such a place are geometric, because the interval may be far narrower or wider than the law.
    """
    assert setting.truncate is not None
    low, high, move = _centres(setting)
    spread, shift = _bell_scale(setting)[1], epsilon * _bell_scale(setting)[1] ** 2 / move
    ends = np.array(setting.truncate)[:, None]
    anchors = np.concatenate([ends - move * part + 0 * shift for part in (0.0, 0.5, 1.0)])
    anchors = np.concatenate([anchors, ends - move / 2 - shift, ends - move / 2 + shift])
    width = setting.truncate[1] - setting.truncate[0]
    reach = np.geomspace(0.1 * min(spread, width), max(high - low, spread), 24)
    around = [anchors + sign * each for each in (0.0, *reach) for sign in (-1, 1)]
    even = np.linspace(low, high, 65)[:, None] + 0 * epsilon
    return np.sort(np.clip(np.concatenate([even, *around]), low, high), axis=0)


def _bound_over_centres(setting: Setting, mesh: Array, epsilon: Array, best: float) -> float:
    """Return an upper bound on log delta over all centres of a truncated output, for one epsilon.

    Two bounds: a truncated pair is never told apart better than the same pair without truncation; and for all lower
    centres between c and c' no pair is worse than c against c' + move. Blocks that exceed ``best`` are split.
    """
    _, _, move = _centres(setting)
    whole = float(log_gaussian_delta(move / _bell_scale(setting)[1], epsilon)[0])
    edges = np.unique(mesh)
    lower, upper, closed, spent = edges[:-1], edges[1:], -np.inf, 0
    while len(lower):
        above = np.minimum(_pair_of_bells(setting, lower, upper + move, epsilon), whole)
        spent += len(lower)
        still = above > best + _TOLERANCE
        closed = max(closed, float(np.max(above[~still], initial=-np.inf)))
        if best >= whole - _TOLERANCE or spent + 2 * still.sum() > _BLOCKS:
            return max(closed, float(np.max(above[still], initial=-np.inf)))
        middle = (lower[still] + upper[still]) / 2
        lower, upper = np.concatenate([lower[still], middle]), np.concatenate([middle, upper[still]])
    return closed


# The public functions -----------------------------------------------------------------------------------------------


def log_delta_over_neighbours(setting: Setting, epsilon: Array, *, quick: bool = False) -> Array:
    """Return log delta over the worst neighbours, or ``quick`` over the likely ones (the ends) only."""
    return _worst(setting, epsilon, quick=quick).log_delta


def _worst(setting: Setting, epsilon: Array, *, quick: bool = False, certify: bool = False) -> _Search:
    """Return log delta over the worst neighbours; ``quick`` looks at the likely ones only.

    The excess is a proved one where ``certify`` is set, which may take longer, and otherwise infinite after a search
    on a mesh.
    """
    zeros = np.zeros(epsilon.shape, dtype=np.int64)
    if setting.kind == "estimate":
        return _Search(np.zeros(epsilon.shape), zeros, np.zeros(epsilon.shape))
    if isinstance(setting.model, BetaBernoulli):
        if setting.truncate is not None:
            return _scan_truncated_coins(setting, epsilon, listed=_LISTED_ONCE if certify else _LISTED)
        return _search_coins(setting, epsilon, ends_only=quick)
    if setting.model.bound == math.inf:
        return _Search(np.zeros(epsilon.shape), zeros, np.zeros(epsilon.shape))
    if setting.truncate is not None:
        return _scan_bells(setting, epsilon, certify=certify)
    return _Search(log_gaussian_delta(_bell_shift(setting), epsilon), zeros, np.zeros(epsilon.shape))


def pure_epsilon(setting: Setting) -> float:
    """Return the epsilon at delta = 0; infinite where there is none."""
    model = setting.model
    if setting.kind == "estimate" or (setting.truncate is None and not setting.coins):
        return math.inf
    if isinstance(model, BetaBernoulli):
        if setting.kind == "sample":
            return _pure_truncated_coins(setting)
        a, b = _coin_sides(setting, 0)[0], _coin_sides(setting, setting.n - 1)[1]
        least = min(a, b)
        if least <= 0:
            return math.inf
        blocks = setting.m if setting.kind == "synthetic-plugin" else max(setting.blocks, 1)
        return blocks * math.log1p(setting.m / blocks / least)
    if model.bound == math.inf or setting.truncate is None:
        return math.inf
    low, high, move = _centres(setting)
    losses = []
    for each, pair in (
        (setting, _bell_pairs(setting, [low, high], move)),
        (_mirror(setting), _bell_pairs(setting, [low, high], move).mirrored()),
    ):
        assert each.truncate is not None
        if setting.clamp:
            ends = [special.log_ndtr((mean - each.truncate[1]) / pair.scale) for mean in (pair.lower, pair.upper)]
            losses.append(ends[1] - ends[0])
        else:
            losses.append(_intervals.largest_loss(pair, *each.truncate))
    return float(np.max(losses))


def _pure_truncated_coins(setting: Setting) -> float:
    if setting.truncate is None:
        return math.inf
    low, high = setting.truncate
    first, last = _coin_sides(setting, 0), _coin_sides(setting, setting.n - 1)
    a, b = np.array([first[0], last[0]]), np.array([first[1], last[1]])
    up = _intervals.largest_loss(_tempered_pair(setting, a, b), _log_odds(low), _log_odds(high))
    down = _intervals.largest_loss(_tempered_pair(setting, b, a), _log_odds(1 - high), _log_odds(1 - low))
    return float(np.max([up, down]))


@overload
def privacy_profile(
    release_type: str,
    model: Model,
    n: int,
    *,
    epsilon: float,
    m: int = ...,
    redraw: bool | int = ...,
    estimator: str = ...,
    truncate: tuple[float, float] | None = ...,
    restriction: str = ...,
    temperature: float = ...,
    log: bool = ...,
) -> float: ...


@overload
def privacy_profile(
    release_type: str,
    model: Model,
    n: int,
    *,
    epsilon: ArrayLike,
    m: int = ...,
    redraw: bool | int = ...,
    estimator: str = ...,
    truncate: tuple[float, float] | None = ...,
    restriction: str = ...,
    temperature: float = ...,
    log: bool = ...,
) -> Any: ...


def privacy_profile(
    release_type: str,
    model: Model,
    n: int,
    *,
    epsilon: ArrayLike,
    m: int = 1,
    redraw: bool | int = True,
    estimator: str = "mode",
    truncate: tuple[float, float] | None = None,
    restriction: str = "reject",
    temperature: float = 1.0,
    log: bool = False,
) -> Any:
    """Return the smallest delta for which a release is (epsilon, delta)-differentially private.

    For replace-one neighbours, n public, maximised over all pairs of neighbouring data sets. Non-increasing in
    epsilon; at epsilon = 0 it is the largest total variation distance between neighbours.

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
    m : int, default 1
        How many synthetic records.
    redraw : bool or int, default True
        For ``"synthetic-bayes"``: True draws the parameter anew for each record, False keeps one draw, and k makes k
        draws with m/k records from each, as in multiple imputation.
    estimator : {"mode", "mean"}
        For ``"synthetic-plugin"`` of coins: the posterior's mode, as the poster has it, or its mean.
    truncate : (low, high), optional
        Restrict the draw, or the single synthetic record of a normal model, to an interval.
    restriction : {"reject", "clamp"}
        Draw again until the output is inside, or move it to the nearest end.
    temperature : float, default 1.0
        For ``"sample"``: draw from the posterior to the power ``1/temperature``.
    log : bool, default False
        Return the natural logarithm of delta.

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

    Explained in :doc:`/book/theory/four-ways-to-release`.
    """
    setting = make_setting(
        release_type,
        model,
        n,
        m=m,
        redraw=redraw,
        estimator=estimator,
        truncate=truncate,
        restriction=restriction,
        temperature=temperature,
    )
    epsilons = non_negative_array("epsilon", epsilon)
    found = _worst(setting, np.atleast_1d(epsilons).ravel()).log_delta.reshape(epsilons.shape)
    found = found if log else np.exp(found)
    return float(found) if epsilons.ndim == 0 else found


def profile_bounds(
    release_type: str,
    model: Model,
    n: int,
    *,
    epsilon: ArrayLike,
    m: int = 1,
    redraw: bool | int = True,
) -> tuple[Array, Array]:
    """Return a lower and an upper bound on the delta of records simulated from several posterior draws.

    For replace-one neighbours, n public. Everything except ``redraw=k`` is computed directly, and then the bounds
    agree. The lower bound is that of the worst pair which the upper bound found.

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

    Explained in :doc:`/book/theory/coins`.
    """
    setting = make_setting(
        release_type,
        model,
        n,
        m=m,
        redraw=redraw,
        estimator="mode",
        truncate=None,
        restriction="reject",
        temperature=1.0,
    )
    epsilons = non_negative_array("epsilon", epsilon)
    flat = np.atleast_1d(epsilons).ravel()
    found = _worst(setting, flat)
    lower = found.log_delta.copy()
    if setting.coins and setting.kind == "synthetic-bayes" and setting.blocks not in (0, setting.m):
        for ones in np.unique(found.ones):
            at = found.ones == ones
            a, b = _coin_sides(setting, int(ones))
            both = [_coin_bounds(setting, *sides, flat[at]).lower for sides in ((a, b), (b, a))]
            lower[at] = np.maximum(*both)
    return np.exp(lower).reshape(epsilons.shape), np.exp(found.log_delta).reshape(epsilons.shape)


def worst_pair(
    release_type: str,
    model: Model,
    n: int,
    *,
    epsilon: float,
    m: int = 1,
    redraw: bool | int = True,
    estimator: str = "mode",
    truncate: tuple[float, float] | None = None,
    restriction: str = "reject",
    temperature: float = 1.0,
) -> WorstPair:
    """Return the neighbouring data sets at which a release is least private.

    For replace-one neighbours, n public. Coins: for a posterior draw all records equal, against all equal but one.
    For synthetic records the same as a rule, but not always: pairs between win for some counts under a prior that
    outweighs the data, and are otherwise ruled out by a bound. Bells: a record at one bound against the other; where
    the rest lies matters only when the output is restricted. Where the pair was searched for, ``excess`` bounds what
    the search may have missed.

    Parameters
    ----------
    release_type, model, n, epsilon, m, redraw, estimator, truncate, restriction, temperature
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

    Explained in :doc:`/book/theory/coins`.
    """
    setting = make_setting(
        release_type,
        model,
        n,
        m=m,
        redraw=redraw,
        estimator=estimator,
        truncate=truncate,
        restriction=restriction,
        temperature=temperature,
    )
    at = np.array([at_least("epsilon", epsilon, 0.0)])
    found = _worst(setting, at, certify=True)
    delta, excess = float(np.exp(found.log_delta[0])), float(found.excess[0])
    if setting.coins:
        ones = int(found.ones[0])
        data, neighbour = _order_of_coins(setting, ones, at)
        return WorstPair(data, neighbour, delta, excess)
    return WorstPair(*_order_of_bells(setting, float(found.ones[0]), at), delta, excess)


def _order_of_coins(setting: Setting, ones: int, epsilon: Array) -> tuple[float, float]:
    forward, back = (_given_coins(setting, *order, epsilon) for order in ((ones + 1, ones), (ones, ones + 1)))
    return (ones + 1.0, float(ones)) if forward[0] >= back[0] else (float(ones), ones + 1.0)


def _order_of_bells(setting: Setting, lower: float, epsilon: Array) -> tuple[float, float]:
    model = setting.model
    assert isinstance(model, NormalKnownVariance)
    if model.bound == math.inf:
        return math.inf, -math.inf
    step = 2 * model.bound / setting.n
    if setting.truncate is None or setting.n == 1:
        return step - model.bound, -model.bound
    low, _, move = _centres(setting)
    mean = -model.bound + (lower - low) / move * step
    pair = _bell_pairs(setting, lower, move)
    forward = _restricted(setting, pair, epsilon)
    back = _restricted(_mirror(setting), pair.mirrored(), epsilon)
    return (mean + step, mean) if forward[0] >= back[0] else (mean, mean + step)


def _given_coins(setting: Setting, data: int, neighbour: int, epsilon: Array) -> Array:
    """Return log delta of one count of ones against a neighbouring one."""
    if data == neighbour:
        return np.full(epsilon.shape, -np.inf)
    if setting.kind == "estimate":
        return np.zeros(epsilon.shape)
    a, b = _coin_sides(setting, min(data, neighbour))
    if data < neighbour:
        a, b = b, a
    if setting.truncate is None:
        return _coin_log_delta(setting, a, b, epsilon)
    low, high = setting.truncate
    each = setting if data > neighbour else replace(setting, truncate=(1 - high, 1 - low))
    return _tempered(each, a, b, epsilon)


def pair_profile(
    release_type: str,
    model: Model,
    data: ArrayLike,
    neighbour: ArrayLike,
    *,
    epsilon: ArrayLike,
    m: int = 1,
    redraw: bool | int = True,
    estimator: str = "mode",
    truncate: tuple[float, float] | None = None,
    restriction: str = "reject",
    temperature: float = 1.0,
) -> Any:
    """Return the delta of one data set against one neighbour: the largest of P(S) - e^epsilon Q(S) over events S.

    One order only: P belongs to ``data``, Q to ``neighbour``. A release is (epsilon, delta)-DP for replace-one
    neighbours when no pair, in either order, exceeds delta.

    Parameters
    ----------
    release_type, model, epsilon, m, redraw, estimator, truncate, restriction, temperature
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

    Explained in :doc:`/book/theory/coins`.
    """
    x, y = finite_array("data", data, ndim=1), finite_array("neighbour", neighbour, ndim=1)
    if len(x) != len(y) or len(x) == 0:
        raise ValueError(f"data and neighbour must have the same size, at least 1, got {len(x)} and {len(y)}")
    setting = make_setting(
        release_type,
        model,
        len(x),
        m=m,
        redraw=redraw,
        estimator=estimator,
        truncate=truncate,
        restriction=restriction,
        temperature=temperature,
    )
    epsilons = non_negative_array("epsilon", epsilon)
    flat = np.atleast_1d(epsilons).ravel()
    before, after = _difference(x, y)
    if isinstance(setting.model, BetaBernoulli):
        if not np.isin(np.concatenate([x, y]), (0.0, 1.0)).all():
            raise ValueError("data and neighbour must hold zeros and ones only")
        found = _given_coins(setting, int(x.sum()), int(y.sum()), flat)
    else:
        if np.abs(np.concatenate([x, y])).max() > setting.model.bound:
            raise ValueError(f"data and neighbour must lie within the bound {setting.model.bound}")
        found = _given_bells(setting, float(x.sum()), before - after, flat)
    result = np.exp(found).reshape(epsilons.shape)
    return float(result) if epsilons.ndim == 0 else result


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


def _given_bells(setting: Setting, total: float, moved: float, epsilon: Array) -> Array:
    model, n = setting.model, setting.n
    assert isinstance(model, NormalKnownVariance)
    if moved == 0:
        return np.full(epsilon.shape, -np.inf)
    if setting.kind == "estimate":
        return np.zeros(epsilon.shape)
    weight, spread = _bell_scale(setting)
    move = abs(moved) * weight
    if setting.truncate is None:
        return log_gaussian_delta(move / spread, epsilon)
    centre = model._posterior_mean(total, n)
    if moved > 0:
        return _restricted(setting, _bell_pairs(setting, centre - move, move), epsilon)
    pair = _bell_pairs(setting, centre, move).mirrored()
    return _restricted(_mirror(setting), pair, epsilon)


def epsilon_for(
    release_type: str,
    model: Model,
    n: int,
    *,
    delta: float,
    m: int = 1,
    redraw: bool | int = True,
    estimator: str = "mode",
    truncate: tuple[float, float] | None = None,
    restriction: str = "reject",
    temperature: float = 1.0,
) -> float:
    """Return the smallest epsilon for which a release is (epsilon, delta)-differentially private.

    For replace-one neighbours, n public, over all pairs of neighbouring data sets.

    Parameters
    ----------
    release_type, model, n, m, redraw, estimator, truncate, restriction, temperature
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

    Explained in :doc:`/book/theory/four-ways-to-release`.
    """
    setting = make_setting(
        release_type,
        model,
        n,
        m=m,
        redraw=redraw,
        estimator=estimator,
        truncate=truncate,
        restriction=restriction,
        temperature=temperature,
    )
    delta = delta_value("delta", delta)
    pure = pure_epsilon(setting)
    if delta == 0:
        return pure
    quick = _solve(setting, delta, pure, quick=True)
    if not setting.coins or setting.truncate is not None or not math.isfinite(quick):
        return quick
    # The ends were assumed to be worst; where the full search disagrees, it is solved again.
    if float(_worst(setting, np.array([quick])).log_delta[0]) <= math.log(delta) + 10 * _TOLERANCE:
        return quick
    return _solve(setting, delta, pure, quick=False)


def _solve(setting: Setting, delta: float, pure: float, *, quick: bool) -> float:
    target = math.log(delta)

    def gap(epsilon: float) -> float:
        found = float(_worst(setting, np.array([epsilon]), quick=quick).log_delta[0])
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
