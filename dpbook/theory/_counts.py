"""Exact profiles of synthetic yes-or-no records for one pair of neighbours: counts, and vectors of counts.

A released table of synthetic records says as much as its counts of ones. For one count the log-likelihood ratio
rises with the count, and delta is a sum of positive terms, taken in logarithms. A vector of counts (several posterior
draws, some records from each) is enumerated where it is small, and otherwise convolved on a grid, with an error bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpbook._arrays import Array
from dpbook.theory._draws import log1mexp

__all__ = ["Bounds", "Losses", "binomial_losses", "composed_bounds", "count_losses", "log_delta"]

_DROP = 760.0  # a probability this many nats below the largest is no float
ENUMERATED = 50_000  # vectors of counts, up to reordering, that are listed one by one
GRID = 2**17  # points of the grid on which more of them are convolved
_MERGE = 1e-12  # losses that agree to this are one


class Losses(NamedTuple):
    """Privacy losses in rising order, with the logarithms of their probabilities and the steps between them."""

    loss: Array
    log_p: Array
    step: Array  # loss[j] - loss[j-1]; the first entry is not used


class Bounds(NamedTuple):
    """Logarithms of a lower and an upper bound on delta."""

    lower: Array
    upper: Array


def log_delta(losses: Losses, epsilon: ArrayLike) -> Array:
    """Return log of the sum over losses above epsilon of p (1 - e^(ε - loss)), for all epsilons at once.

    Between two losses delta is linear in e^ε, so the values at the losses themselves obey
    D(j-1) e^(-l(j-1)) = D(j) e^(-l(j)) + (e^(-l(j-1)) - e^(-l(j))) P(at least j): a cumulative sum of positive terms.
    """
    epsilon = np.asarray(epsilon, dtype=float)
    loss, log_p, step = losses
    tail = np.logaddexp.accumulate(log_p[::-1])[::-1]
    with np.errstate(divide="ignore", over="ignore"):
        # log(e^(-l(j-1)) - e^(-l(j))) = -l(j-1) + log(1 - e^(-step))
        rise = -loss[:-1] + log1mexp(step[1:]) + tail[1:]
    area = np.append(np.logaddexp.accumulate(rise[::-1])[::-1], -np.inf)
    j = np.searchsorted(loss, epsilon, side="right")
    inside = j < len(loss)
    j = np.minimum(j, len(loss) - 1)
    with np.errstate(divide="ignore"):
        found = np.logaddexp(epsilon + area[j], log1mexp(np.maximum(loss[j] - epsilon, 0.0)) + tail[j])
    return np.where(inside, np.minimum(found, 0.0), -np.inf)


def count_losses(a: float, b: float, m: int) -> Losses:
    """Return the losses of m records from one draw: Beta-binomial(m, a + 1, b) against Beta-binomial(m, a, b + 1)."""

    def log_ratio(k: Array) -> Array:
        return np.log((m - k) * (a + 1 + k) / ((k + 1) * (b + m - k - 1)))

    def log_p(k: int) -> float:
        return _log_choose(m, k) + math.lgamma(a + 1 + k) + math.lgamma(b + m - k)

    centre = m * a / (a + b - 1) if a + b > 1 and b > 1 else float(m)
    low, high = _window(m, log_p, centre, open_end=b <= 1)
    k = np.arange(low, high + 1, dtype=float)
    loss = np.log1p(k / a) - np.log1p((m - k) / b)
    step = np.log1p(1 / (a + k - 1)) + np.log1p(1 / (b + m - k)) if a + low > 1 else _safe_step(a, b, m, k)
    return Losses(loss, _normalised(log_ratio(k[:-1])), step)


def _safe_step(a: float, b: float, m: int, k: Array) -> Array:
    before = np.maximum(k - 1, 0.0)  # the first entry is not used
    return np.log1p(1 / (a + before)) + np.log1p(1 / (b + m - k))


def binomial_losses(a: float, b: float, m: int) -> Losses:
    """Return the losses of m independent records: Binomial(m, (a+1)/(a+b+1)) against Binomial(m, a/(a+b+1)).

    Either a or b may be 0: then some counts are impossible under one of the two, and their loss is infinite.
    """
    if a == 0:
        one = -math.log1p(1 / b) if b > 0 else -math.inf  # log P(0) of a single record under the first
        return Losses(
            np.array([m * one, np.inf]),
            np.array([m * one, float(log1mexp(-m * one))]),
            np.array([0.0, np.inf]),
        )

    def log_ratio(k: Array) -> Array:
        return np.log((m - k) / (k + 1) * (a + 1) / b)

    if b == 0:  # every record is a one under the first
        return Losses(np.array([m * math.log1p(1 / a)]), np.array([0.0]), np.array([0.0]))
    p, q = (a + 1) / (a + b + 1), b / (a + b + 1)
    low, high = _window(m, lambda k: _log_choose(m, k) + k * math.log(p) + (m - k) * math.log(q), m * p)
    k = np.arange(low, high + 1, dtype=float)
    loss = k * math.log1p(1 / a) - (m - k) * math.log1p(1 / b)
    step = np.full(len(k), math.log1p(1 / a) + math.log1p(1 / b))
    return Losses(loss, _normalised(log_ratio(k[:-1])), step)


def _normalised(log_ratio: Array) -> Array:
    """Return log probabilities from the logarithms of the ratios of neighbours."""
    log_p = np.concatenate([[0.0], np.cumsum(log_ratio)])
    top = log_p.max()
    return np.asarray(log_p - (top + np.log(np.sum(np.exp(log_p - top)))))


def _log_choose(m: int, k: int) -> float:
    return math.lgamma(m + 1) - math.lgamma(k + 1) - math.lgamma(m - k + 1)


def _window(m: int, log_p: Callable[[int], float], mode: float, *, open_end: bool = False) -> tuple[int, int]:
    """Return the first and last count whose probability is a float; rough logarithms are enough to find them.

    Below its mode the law rises. Above it falls, except that with ``open_end`` it may rise again towards m.
    """
    if m <= 512:
        return 0, m
    top = int(min(max(mode, 0.0), m))
    floor = max(log_p(top), log_p(m) if open_end else -math.inf) - _DROP

    def reach(direction: int, limit: int) -> int:
        low, high = 0, 1
        while high < limit and log_p(top + direction * high) > floor:
            low, high = high, 2 * high
        if high >= limit and log_p(top + direction * limit) > floor:
            return limit
        high = min(high, limit)
        while high - low > max(1, low // 16):
            middle = (low + high) // 2
            low, high = (middle, high) if log_p(top + direction * middle) > floor else (low, middle)
        return high

    return top - reach(-1, top), m if open_end else top + reach(1, m - top)


def composed_bounds(single: Losses, copies: int, epsilon: ArrayLike, *, grid: int = GRID) -> Bounds:
    """Return bounds on log delta for ``copies`` independent outputs, each with the given losses.

    Few vectors are enumerated, and then the bounds agree. Otherwise each loss is split between its two neighbours on
    a grid of width h so that both its probabilities are kept: the split pair can be turned back into the true one, so
    its delta is an upper bound for every number of copies. What the split adds is bounded from above too: it spreads
    the total loss by Ξ with E[e^(-Ξ)] = 1, which changes delta only where the total loss is within the spread of ε.
    """
    epsilon = np.atleast_1d(np.asarray(epsilon, dtype=float))
    finite = np.isfinite(single.loss)
    if not finite.all():
        raise ValueError("composed losses must be finite")
    if math.comb(len(single.loss) + copies - 1, copies) <= ENUMERATED:
        exact = log_delta(_enumerated(single, copies), epsilon)
        return Bounds(exact, exact)
    return _convolved(single, copies, epsilon, grid)


def _enumerated(single: Losses, copies: int) -> Losses:
    loss, log_p = single.loss, single.log_p
    for _ in range(copies - 1):
        sums = (loss[:, None] + single.loss).ravel()
        logs = (log_p[:, None] + single.log_p).ravel()
        order = np.argsort(sums, kind="stable")
        sums, logs = sums[order], logs[order]
        first = np.concatenate([[True], np.diff(sums) > _MERGE * max(1.0, float(np.abs(sums).max()))])
        starts = np.flatnonzero(first)
        loss, log_p = sums[starts], np.logaddexp.reduceat(logs, starts)
    return Losses(loss, log_p, np.concatenate([[0.0], np.diff(loss)]))


def _convolved(single: Losses, copies: int, epsilon: Array, grid: int) -> Bounds:
    low, high = float(single.loss[0]), float(single.loss[-1])
    width = copies * (high - low) / (grid - 1 - 2 * copies)
    cells = np.floor((single.loss - low) / width)
    rest = single.loss - low - cells * width
    # A share w of the mass goes up to the next grid point, such that e^(-loss) keeps its mean: both laws are kept.
    up = np.expm1(-rest) / math.expm1(-width)
    size = int(cells[-1]) + 2
    position = cells.astype(int)
    p = np.exp(single.log_p)
    below, above = np.bincount(position, p * (1 - up), size), np.bincount(position + 1, p * up, size)
    mass: Array = np.asarray(below + above, dtype=np.float64)
    points: Array = np.asarray(low + width * np.arange(size), dtype=np.float64)
    totals: Array = np.asarray(copies * low + width * np.arange(copies * (size - 1) + 1), dtype=np.float64)
    lower, upper = np.empty_like(epsilon), np.empty_like(epsilon)
    order = np.argsort(epsilon)
    for block in np.array_split(order, min(len(order), 12)):
        log_mass = _tilted_power(mass, points, copies, totals, float(np.median(epsilon[block])))
        lower[block], upper[block] = _certified(totals, log_mass, width, copies, epsilon[block])
    return Bounds(lower, upper)


def _tilted_power(mass: Array, points: Array, copies: int, totals: Array, aim: float) -> Array:
    """Return the log masses of the sum of ``copies`` losses, by FFT of a law tilted so that ``aim`` is its mean."""
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass)

    def mean(tilt: float) -> float:
        w = log_mass + tilt * points
        w = np.exp(w - w.max())
        return float(np.sum(w * points) / np.sum(w))

    target = aim / copies
    low, high = 0.0, 1.0
    while mean(high) < target and high < 1e6:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < target else (low, middle)
    tilt = low
    logs = log_mass + tilt * points
    norm = float(np.logaddexp.reduce(logs))
    tilted = np.exp(logs - norm)
    length = 1 << (len(totals) - 1).bit_length()
    product = np.fft.irfft(np.fft.rfft(tilted, length) ** copies, length)[: len(totals)]
    # Rounding of the transform is of the size of 1e-15 of the largest entries: what lies below is noise.
    noise = 1e-15 * float(np.sqrt(np.sum(np.maximum(product, 0) ** 2)))
    with np.errstate(divide="ignore"):
        kept = np.where(product > noise, np.log(np.maximum(product, noise)), -np.inf)
    return np.asarray(kept + copies * norm - tilt * totals)


def _certified(totals: Array, log_mass: Array, width: float, copies: int, epsilon: Array) -> tuple[Array, Array]:
    kept = np.flatnonzero(np.isfinite(log_mass))
    losses = Losses(totals[kept], log_mass[kept], np.concatenate([[0.0], np.diff(totals[kept])]))
    upper = log_delta(losses, epsilon)
    # Ξ is within `reach` except with probability `rare` (Hoeffding; each part has range h and mean at most h²/8).
    log_rare = upper - math.log(1e10)
    reach = width * np.sqrt(copies * (math.log(2) - log_rare) / 2) + copies * width**2 / 8
    spread = math.sqrt(math.expm1(copies * math.log1p(math.expm1(width) ** 2 / 4))) / 2
    tail = np.append(np.logaddexp.accumulate(losses.log_p[::-1])[::-1], -np.inf)
    first = np.searchsorted(losses.loss, epsilon - 2 * reach)
    last = np.searchsorted(losses.loss, epsilon + 2 * reach, side="right")
    with np.errstate(divide="ignore"):
        near = tail[first] + log1mexp(np.maximum(tail[first] - tail[last], 0.0))
    near = np.logaddexp(near, log_rare)
    excess = np.logaddexp(near + math.log(spread) + 2 * reach, log_rare)
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = np.where(excess < upper, upper + log1mexp(np.maximum(upper - excess, 0.0)), -np.inf)
    return lower, upper
