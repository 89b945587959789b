"""What partitions tell of their own disagreement, read by the analyst: chapter 2, "When the parts differ".

A partition that is cut in half shows in miniature what a split into partitions loses: the difference between its own
answer and that of its two halves has, to first order, the variance with which an average over partitions misses the
full-data answer. Releases hold the noisy mean and mean square of these differences, of the answers themselves, and the
share of partitions that failed. Here they become equally likely values of what an interval needs to know, given
weak priors. Nothing here reads data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from dpbook._arrays import Array
from dpbook.aggregate.laws import halving, score_of
from dpbook.latent_noise import normal_laplace_logpdf

__all__: list[str] = []

KEPT = 128  # equally likely values of what is not known
# Halves differ by less than partitions of heavy-tailed records would make one expect: by up to this factor in variance.
TAIL = 4.0
# By how much heavy-tailed errors may steepen a slope, relative to the loss that halves show.
STEEP = 1.25
# Between these a bias may lie, in units of what halves show of it; 1 where it falls like one over the records.
BIAS = (0.5, 6.0)
# One in so many times the sign of a bias is not the one that halves show: they may be too small for any law.
REVERSED = 4
# Sd of what clipping adds to the mean difference between quantiles and those of halves, in sds of partitions.
_CLIPPED = 0.01
# Sds of a clipped quantile's error from clipping on one side more than on the other, in sds of partitions; measured.
CLIPPING_SD = 0.15
_NODES = 48
_GRID = 160  # values tried, equally likely beforehand, for each thing that is not known
_EVEN = (np.arange(_GRID) + 0.5) / _GRID
_ANGLES = (_EVEN - 0.5) * math.pi  # whose tangents are quantiles of a Cauchy distribution
_MISFIT = 0.25  # prior scale of the logarithm of the spread of answers, relative to theory
_HEAVY = 1.0  # prior mean of the logarithm of how many times more than theory has for normal records halves differ
_NEVER = 0.8  # prior probability that no partition fails
_KURTOSIS = 6.0  # of differences between partitions and their halves
_SKEWNESS = 0.75  # prior scale of a bias that partitions share, in sds of one, times the root of its records
_STUDENT = (2 * _EVEN - 1) / np.sqrt(2 * _EVEN * (1 - _EVEN))  # quantiles of Student's t with two degrees of freedom


@dataclass(frozen=True)
class Told:
    """Noisy means over partitions, for one question: answers in [-1, 1], squares, differences from halves, failures."""

    answer: float
    square: float
    halved: float
    halved_square: float
    failed: float
    scale: tuple[float, ...]  # of the Laplace noise on each, in this order
    partitions: int
    size: int  # records per partition
    nuisance: int
    clip: float  # of the differences from halves


class Doubts(NamedTuple):
    """Equally likely values, (KEPT,) each, of what is not known about an average over partitions.

    ``failed`` is the share of partitions without an answer, ``slope`` how an average of scores moves with the full-data
    score (1 for equal partitions), ``variance`` that of the average about its mean, times the number of partitions,
    ``shift`` a bias that all partitions have in common, as halves show it, ``spread`` the sd of the answers, and
    ``excess`` how many times the variance they have that their posteriors allow.
    """

    failed: Array
    slope: Array
    variance: Array
    shift: Array
    spread: Array
    excess: Array

    @property
    def push(self) -> Array:
        """The bias, with the sign that halves show or, less likely, the other one."""
        return np.where(np.arange(KEPT) % REVERSED == 0, -self.shift, self.shift)


class ScoreLaw(NamedTuple):
    """Moments of a partition's score and of its difference from its halves, for normal posteriors all alike."""

    mean: float
    variance: float
    slope: float
    halved: float
    halved_variance: float


@lru_cache(maxsize=64)
def score_law(method: str, p_min: float | None, shift: float, clip: float) -> ScoreLaw:
    """Return the moments where the cutoff lies ``shift`` partition sds above the true value, by quadrature."""
    score = score_of(method, p_min)
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weight = np.outer(weights, weights) / weights.sum() ** 2
    one, other = (shift / math.sqrt(2) + each for each in np.meshgrid(nodes, nodes, indexing="ij"))
    whole = (one + other) / math.sqrt(2)
    answer = score(whole)
    apart = np.clip(halving(answer, score(one), score(other), score.middle), -clip, clip)
    mean, difference = float((weight * answer).sum()), float((weight * apart).sum())
    return ScoreLaw(
        mean,
        float((weight * answer**2).sum()) - mean**2,
        float((weight * answer * (whole - shift)).sum()),
        difference,
        float((weight * apart**2).sum()) - difference**2,
    )


def doubts_of_score(told: Told, method: str, p_min: float | None) -> Doubts:
    """Return what is not known about a mean of scores of probabilities."""
    score = score_of(method, p_min)
    failed = _failed(told)
    average = float(np.clip(told.answer / (1 - np.median(failed)), -0.98, 0.98))
    law, null = score_law(method, p_min, _place(score, average), told.clip), score_law(method, p_min, 0.0, told.clip)
    # The spread of the answers: as theory has it, or not.
    room = max((1 - average**2) / law.variance, 1.01)
    factor = np.exp(np.clip(_MISFIT * np.tan(_ANGLES), math.log(1e-3), math.log(room)))
    spread = (1 - failed)[:, None] * factor * law.variance
    noise = 0.4 * spread * np.maximum(1 - spread, 0.05) / told.partitions
    likelihood = normal_laplace_logpdf(told.square, (1 - failed)[:, None] * average**2 + spread, noise, told.scale[1])
    spread = (1 - failed) * factor[_pick(likelihood, 1)] * law.variance
    relative = np.minimum(spread / law.variance, 1.0)
    # What halves differ by beyond what theory has for equal partitions.
    lost = law.slope**2 * (0.5 + told.nuisance) / told.size + 1e-6 * null.slope**2
    excess, halved = _excess(told, lost, law.halved_variance * relative, np.zeros(KEPT), 2)
    shift = _shift(
        told, law.halved, np.minimum(halved, told.clip**2), law.slope * spread / ((1 - failed) * law.variance)
    )
    # Partitions that scatter more than their posteriors say lie further from the cutoff than these have it: where k²
    # is how much more, the variance of 2Φ - 1 is (2/π) arcsin(k²/(1 + k²)), and the cutoff counts as 1/√(1 + k²) of it.
    factor = spread / ((1 - failed) * law.variance)
    sine = np.sin(np.pi / 6 * np.clip(factor, 1.0, 2.9))
    alive = np.minimum(factor, 1.0) * (1 - failed)
    # Unequal information flattens the slope: with a coefficient of variation γ of its root, to 1/√(1 + γ²).
    unequal = excess / (law.slope**2 * relative)
    lessened = alive / (1 + TAIL ** _even(4) * unequal)
    slope = np.sqrt(2 * (1 - sine) * lessened)
    variance = np.maximum(spread - 2 * sine * lessened * law.slope**2, 0.0)
    # Errors with heavy tails make the slope steeper instead: parts without an outlier are too sure of themselves.
    slope *= 1 + STEEP * _even(5) * np.minimum(unequal, 0.5)
    return Doubts(failed, slope, variance, shift, np.sqrt(spread), factor)


def doubts_of_quantile(told: Told) -> Doubts:
    """Return what is not known about a mean of quantiles, in half-widths of their bounds."""
    failed = _failed(told)
    average = np.clip(told.answer / (1 - failed), -1, 1)
    grid = np.exp(np.linspace(math.log(1e-3), 0.0, _GRID))  # sd of the partitions' quantiles
    squares = (1 - failed)[:, None] * (grid**2 + average[:, None] ** 2)
    noise = 2 * grid**4 / told.partitions + 4 * average[:, None] ** 2 * grid**2 / told.partitions
    likelihood = normal_laplace_logpdf(told.square, np.minimum(squares, 1.0), noise, told.scale[1])
    spread = grid[_pick(np.broadcast_to(likelihood, squares.shape), 1)]
    lost = spread**2 * (2 + told.nuisance) / told.size
    excess, halved = _excess(told, lost, np.zeros(KEPT), failed, 2)
    shift = _shift(told, 0.0, np.minimum(halved, told.clip**2) + told.partitions * (_CLIPPED * spread) ** 2, spread)
    variance = TAIL ** _even(4) * excess + (CLIPPING_SD * spread) ** 2
    return Doubts(failed, np.ones(KEPT), variance / (1 - failed), shift, spread, np.ones(KEPT))


def _place(score: Callable[[Array], Array], average: float) -> float:
    """Return about how many partition sds the cutoff lies from the middle, for an average of scores."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    grid = np.linspace(-4, 4, 161)
    means = score(grid[:, None] + nodes) @ weights / weights.sum()
    return float(np.round(np.interp(average, means, grid), 2))


def _failed(told: Told) -> Array:
    """Draw the share of partitions that failed: none, as is most likely beforehand, else any."""
    some = np.linspace(0.0, 1.0, 201)[1:-1] ** 2
    share, prior = np.append(0.0, some), np.append(_NEVER, np.full(len(some), (1 - _NEVER) / len(some)))
    return np.asarray(share[_pick((np.log(prior) - np.abs(told.failed - share) / told.scale[4])[None], 0)])


def _excess(told: Told, lost: Array | float, base: Array, failed: Array, which: int) -> tuple[Array, Array]:
    """Draw the variance beyond the base that halves show, and return it with the whole of theirs.

    It has a heavy tail above what theory has for normal records, ``lost``.
    """
    found = np.reshape(lost, (-1, 1)) * _EVEN**-_HEAVY
    halved = np.minimum(base[:, None] + found, 4 * told.clip**2)
    alive = (1 - failed)[:, None]
    noise = (_KURTOSIS - 1) * np.minimum(halved, told.clip**2) ** 2 * alive / told.partitions
    expected = alive * _clipped_square(halved, told.clip)
    picked = _pick(normal_laplace_logpdf(told.halved_square, expected, noise, told.scale[3]), which)
    found, halved = np.broadcast_to(found, (KEPT, _GRID)), np.broadcast_to(halved, (KEPT, _GRID))
    rows = np.arange(KEPT)
    return found[rows, picked], halved[rows, picked]


def _clipped_square(variance: Array, clip: float) -> Array:
    """Return the second moment of a centred normal variable clipped at plus and minus ``clip``."""
    k = clip / np.sqrt(variance)
    density = np.exp(-(k**2) / 2) / math.sqrt(2 * math.pi)
    inside = special.erf(k / math.sqrt(2))
    return np.asarray(variance * (inside - 2 * k * density) + clip**2 * (1 - inside))


def _shift(told: Told, expected: float, variance: Array, unit: Array) -> Array:
    """Draw a common bias, of which the mean of the differences from halves shows some part, with the other sign."""
    bias = unit[:, None] * _SKEWNESS / math.sqrt(told.size) * _STUDENT
    times = BIAS[0] * (BIAS[1] / BIAS[0]) ** _even(6)
    shown = expected - bias / times[:, None]
    noise = variance[:, None] / told.partitions
    likelihood = normal_laplace_logpdf(told.halved, np.clip(shown, -told.clip, told.clip), noise, told.scale[2])
    return np.asarray(bias[np.arange(KEPT), _pick(likelihood, 3)])


def _even(dimension: int) -> Array:
    """Return KEPT numbers between 0 and 1, evenly spread, and in no relation to those of another dimension."""
    ratio = 1.0969815577985598  # the root of x⁸ = x + 1: its powers fill seven dimensions evenly
    return np.asarray((0.5 + (np.arange(KEPT) + 1) * ratio ** -(dimension + 1)) % 1)


def _pick(log_weight: Array, dimension: int) -> Array:
    """Pick a place of a grid for each kept value, (KEPT,), in proportion to the weights: rows (KEPT or 1, grid)."""
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    below = np.cumsum(weight, axis=1)
    return np.asarray((below < _even(dimension)[:, None] * below[:, -1:]).sum(axis=1))
