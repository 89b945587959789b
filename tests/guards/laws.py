"""Exact privacy losses between two runs, from their looks: no sampling, no use of the package's own accounting.

Two runs of one call on neighbouring data, the second repeating the first one's outputs, differ in what each look saw.
From the law of the look follows how much likelier any output is on one data set than on the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from guards.observe import FAR, Broken, Look, Run

# Our own rounding, in sums of logarithms of weights up to some thousands; the package gets no allowance.
ROUNDING = 1e-9


def distances(one: Look, other: Look) -> np.ndarray:
    """Return |change| of what two looks saw, entry by entry; whole numbers are subtracted as such."""
    if one.whole or other.whole:
        pairs = zip(one.seen.ravel().tolist(), other.seen.ravel().tolist(), strict=True)
        return np.array([float(abs(int(a) - int(b))) for a, b in pairs])
    return np.abs(np.asarray(one.seen, dtype=float) - np.asarray(other.seen, dtype=float)).ravel()


def pair_up(first: Run, second: Run) -> list[tuple[Look, Look]]:
    """Return the looks of two runs side by side; raise where law, shape or scale depend on the data."""
    if len(first.looks) != len(second.looks):
        raise Broken(f"{len(first.looks)} looks at one data set, {len(second.looks)} at its neighbour")
    for one, other in zip(first.looks, second.looks, strict=True):
        if one.law != other.law or one.seen.shape != other.seen.shape:
            raise Broken(
                f"a look is {one.law} {one.seen.shape} on one data set, {other.law} {other.seen.shape} on the other"
            )
        if one.scale != other.scale:
            raise Broken(f"the scale of the noise depends on the data: {one.scale} and {other.scale}")
    return list(zip(first.looks, second.looks, strict=True))


def pure_loss(pairs: Sequence[tuple[Look, Look]]) -> float:
    """Return the largest log ratio of all looks together: each look's, over all of its outputs, added up."""
    return math.fsum(_LOSSES[one.law](one, other) for one, other in pairs)


def _laplace(one: Look, other: Look) -> float:
    return math.fsum(distances(one, other)) / one.scale


def _log_law(look: Look) -> np.ndarray:
    weights = np.asarray(look.seen, dtype=float)
    return weights - special.logsumexp(weights, axis=-1, keepdims=True)


def _softmax(one: Look, other: Look) -> float:
    """Rows are independent draws, so the largest ratio of all rows together is the sum of the rows' largest."""
    laws = _log_law(one), _log_law(other)
    possible = np.isfinite(laws[0]) | np.isfinite(laws[1])
    change = np.where(possible, np.subtract(*laws, where=possible, out=np.zeros_like(laws[0])), 0.0)
    return max(float(change.max(axis=-1).sum()), float(-change.min(axis=-1).sum()))


def _uniform(one: Look, other: Look) -> float:
    """At the output that came out: which of the categories, cut at the levels along the last axis."""
    if one.seen.ndim == 0:
        return 0.0 if one.seen == other.seen else math.inf
    drawn = np.asarray(one.out).sum(axis=-1)
    total = 0.0
    for look, sign in ((one, 1), (other, -1)):
        ends = np.zeros((*look.seen.shape[:-1], 1))
        chances = np.diff(np.concatenate([ends, look.seen, ends + 1], axis=-1), axis=-1)
        chosen = np.take_along_axis(chances, drawn[..., None], axis=-1)
        with np.errstate(divide="ignore"):
            total += sign * float(np.log(chosen).sum())
    return total


def realised_loss(pairs: Sequence[tuple[Look, Look]]) -> float:
    """Return the log ratio of choices at the candidates that came out, row by row."""
    total = 0.0
    for one, other in pairs:
        chosen = np.argmax(np.asarray(one.out), axis=-1)[..., None]
        change = np.take_along_axis(_log_law(one), chosen, -1) - np.take_along_axis(_log_law(other), chosen, -1)
        total += float(change.sum())
    return total


def _response(one: Look, other: Look) -> float:
    """Each report that is of another code: odds of the truth against one lie in particular."""
    codes, categories = one.seen.reshape(2, -1)
    changed = int((codes != other.seen.reshape(2, -1)[0]).sum())
    return changed * math.log(one.scale * (int(categories[0]) - 1) / (1 - one.scale)) if changed else 0.0


_LOSSES = {"laplace": _laplace, "softmax": _softmax, "uniform": _uniform, "response": _response}


def gaussian_ratio(pairs: Sequence[tuple[Look, Look]], epsilon: float, delta: float) -> float:
    """Return the exact delta of Gaussian looks at epsilon, over the delta that was claimed."""
    looks = [(one, other) for one, other in pairs if one.law == "gaussian"]
    others = [(one, other) for one, other in pairs if one.law != "gaussian"]
    if pure_loss(others) != 0:
        raise Broken("something beside Gaussian noise depends on the data")
    moves = [distances(one, other) for one, other in looks]
    if len(looks) == 1 and looks[0][0].whole:
        moved, sd = moves[0][moves[0] > 0], looks[0][0].scale
        if (moved.size < 2 and sd < 2**16) or (sd < 60 and moved.max() <= 16):
            return discrete_gaussian_delta(moved, sd, epsilon) / delta
    # Elsewhere steps are so fine that the discrete law is the normal one: to 1e-10 (one statistic) or 1e-4 (several).
    squares = [float(((move / one.scale) ** 2).sum()) for move, (one, _) in zip(moves, looks, strict=True)]
    return gaussian_delta(math.sqrt(math.fsum(squares)), epsilon) / delta


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the delta at epsilon of a normal against the same moved by ``mu`` standard deviations."""
    if mu == 0:
        return 0.0
    return float(special.ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)))


def discrete_gaussian_delta(moves: np.ndarray, sd: float, epsilon: float) -> float:
    """Return the delta at epsilon of independent discrete Gaussians against the same moved by whole steps.

    With x drawn around 0 the log ratio is (|m|² - 2 S) / (2 sd²), where S = sum m_i x_i is a whole number, whose law is
    the convolution of the laws of its terms.
    """
    steps = np.arange(-math.ceil(14 * sd) - 2, math.ceil(14 * sd) + 3)
    weights = np.exp(-(steps.astype(float) ** 2) / (2 * sd**2))
    if len(moves) == 1:
        ratio = (float(moves[0]) ** 2 - 2.0 * steps * float(moves[0])) / (2 * sd**2)
        return float((weights * -np.expm1(np.minimum(epsilon - ratio, 0.0))).sum() / weights.sum())
    law, total = np.ones(1), 0
    for move in np.abs(moves).astype(int):
        term = np.zeros(move * (len(steps) - 1) + 1)
        term[:: max(move, 1)] = weights / weights.sum() if move else 1.0
        law, total = np.convolve(law, term), total + int(move) * int(steps[0])
    ratio = (float((moves**2).sum()) - 2.0 * (np.arange(len(law)) + total)) / (2 * sd**2)
    return float((law * -np.expm1(np.minimum(epsilon - ratio, 0.0))).sum())


def first_success_loss(one: Sequence[Look], other: Sequence[Look]) -> float:
    """Return the exact loss of a search for the first query above a noisy bar, over all of its outcomes.

    The first look is the bar; the others are queries, all of which were seen because their outputs were forced low.
    Outcome k has probability E[ P(query k ≥ bar) prod P(query i < bar), i < k ] over the bar, an integral of products
    of exponentials that changes its form at each query's value only: Gauss–Legendre on the pieces is exact to rounding.
    """
    unit = one[0].scale  # in which everything is measured: noise of 2²⁰ steps and more is as good as continuous
    laws = []
    for looks in (one, other):
        bar = _number(looks[0]) / unit
        queries = np.array([_number(look) for look in looks[1:]]) / unit - bar
        scales = np.array([look.scale for look in looks[1:]]) / unit
        laws.append((queries, scales))
    if not np.array_equal(laws[0][1], laws[1][1]):
        raise Broken("the scale of a query's noise depends on the data")
    cuts = np.unique(np.concatenate([[0.0], laws[0][0], laws[1][0]]))
    results = [_outcomes(queries, scales, cuts) for queries, scales in laws]
    return float(np.abs(results[0] - results[1]).max())


def _number(look: Look) -> float:
    return float(int(look.seen.ravel()[0]))


def _outcomes(queries: np.ndarray, scales: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Return the log probabilities of stopping at query 0, 1, … and of never stopping."""
    nodes, weights = special.roots_legendre(40)
    reach = 60.0 * max(1.0, float(scales.max()))
    ends = np.concatenate([[cuts[0] - reach], cuts, [cuts[-1] + reach]])
    # Long pieces are cut again, so that an exponential changes little enough on each.
    ends = np.unique(np.concatenate([np.linspace(a, b, 2 + int((b - a) / 4)) for a, b in itertools.pairwise(ends)]))
    half, middle = np.diff(ends)[:, None] / 2, (ends[:-1] + ends[1:])[:, None] / 2
    bar = (middle + half * nodes).ravel()
    log_mass = (np.log(half) + np.log(weights)).ravel() - np.abs(bar) - math.log(2)
    log_below, log_above = _log_tails((bar - queries[:, None]) / scales[:, None])
    so_far = np.zeros_like(bar)
    outcomes = []
    for below, above in zip(log_below, log_above, strict=True):
        outcomes.append(special.logsumexp(log_mass + so_far + above))
        so_far = so_far + below
    outcomes.append(special.logsumexp(log_mass + so_far))
    return np.array(outcomes)


def _log_tails(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log P(L < x) and log P(L ≥ x) of a Laplace variable of scale 1."""
    small = math.log(0.5) - np.abs(x)
    large = np.log1p(-0.5 * np.exp(-np.abs(x)))
    return np.where(x < 0, small, large), np.where(x < 0, large, small)


def forced_low(place: int, seen: np.ndarray) -> object:
    """Force a bar of 0 and every query far below it, so that a search sees all of its queries."""
    if place == 0:
        return np.zeros(seen.shape, dtype=np.int64)
    return np.full(seen.shape, -FAR, dtype=np.int64)
