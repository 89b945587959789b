"""What an aggregate over partitions stands for: its law given the full-data answer, and the way back.

For partitions with equal normal posteriors the mean of their probabilities, and the sum of their -2 log p, have known
means and spreads given the full-data z-score. Both sides need them, before a release and after it; chapter 2 has the
proofs. Nothing here reads data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbook._arrays import Array
from dpbook._validation import fraction, integer, one_of

__all__ = ["fisher_probability", "fisher_slope", "rescale_probability", "residual_sd"]

METHODS = ("normality", "fisher")
RESCALES = ("corrected", "source")
SPREAD = 0.15  # share of epsilon that the differences between partitions and their halves take
HALVED = 0.35  # where these differences are clipped, on the scale on which answers lie in [-1, 1]
P_MIN = 0.001  # smaller probabilities count as this one in a sum of -2 log p


def rescale_probability(mean: ArrayLike, partitions: int, *, rescale: str = "corrected") -> Any:
    """Return the full-data posterior probability that a mean of partitions' probabilities stands for.

    Partition estimates scatter about the full-data one by as much as each posterior is wide, so their probabilities
    average to a normal curve √(2 - 1/M) times as wide as each, and √(2M - 1) times as wide as the full-data one. The
    source multiplies z-scores by √M only. A mean outside [1/(2M), 1 - 1/(2M)] is moved to the nearest end. Explained in
    :doc:`/book/sample-and-aggregate/posterior-probabilities`.

    Parameters
    ----------
    mean : float or array
        The (noisy) mean.
    partitions : int
        M.
    rescale : {"corrected", "source"}
        √(2M - 1), or the source's √M.

    Returns
    -------
    float or ndarray
        In (0, 1), closed where floats end.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> print(*(f"{aggregate.rescale_probability(0.51, 1000, rescale=how):.3f}" for how in ("corrected", "source")))
    0.869 0.786
    """
    m = integer("partitions", partitions, least=2)
    factor = math.sqrt(2 * m - 1) if one_of("rescale", rescale, RESCALES) == "corrected" else math.sqrt(m)
    inside = np.clip(np.asarray(mean, dtype=np.float64), 1 / (2 * m), 1 - 1 / (2 * m))
    return special.ndtr(factor * special.ndtri(inside))[()]


def fisher_probability(total: ArrayLike, partitions: int) -> Any:
    """Return the source's reading of a (noisy) sum of -2 log p: the upper tail of chi-squared with 2M degrees.

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.

    Parameters
    ----------
    total, partitions : float or array, int
        The (noisy) sum, and M.

    Returns
    -------
    float or ndarray
        In [0, 1].

    Examples
    --------
    >>> from dpbook import aggregate
    >>> print(f"{aggregate.fisher_probability(2000.0, 1000):.3f}")
    0.496
    """
    m = integer("partitions", partitions, least=2)
    inside = np.maximum(np.asarray(total, dtype=np.float64), 0.0)
    return special.chdtrc(2 * m, inside)[()]


def residual_sd(
    partitions: int,
    *,
    method: str = "normality",
    p_min: float = P_MIN,
    size: int | None = None,
    nuisance: int = 1,
) -> float:
    """Return the sd, at z = 0, of the z-score that a noiseless aggregate gives, about the full-data z-score.

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.

    Parameters
    ----------
    partitions : int
        M.
    method : {"normality", "fisher"}
        Which aggregate.
    p_min : float
        Where -2 log p is clipped.
    size : int, optional
        Records per partition; by default partitions so large that their variances are equal.
    nuisance : int, default 1
        Other coefficients that each partition estimates, the intercept among them.

    Returns
    -------
    float
        In full-data posterior standard deviations: .217 for the normality method as M grows, .42 for Fisher's read as
        in the source (.43 without clipping).

    Examples
    --------
    >>> from dpbook import aggregate
    >>> print(f"{aggregate.residual_sd(1000):.3f}", f"{aggregate.residual_sd(1000, method='fisher'):.2f}")
    0.217 0.42
    """
    m = integer("partitions", partitions, least=2)
    sd = float(aggregate_sd(0.0, m, method=method, p_min=p_min, size=size, nuisance=nuisance))
    if method == "fisher":  # -2 log p sums are read on the scale of a chi-squared with 2M degrees, of sd 2√M
        return sd / (2 * math.sqrt(m))
    return sd * math.sqrt((2 * m - 1) * 2 * math.pi)


def fisher_slope() -> float:
    """Return the slope, at z = 0, of Fisher's z-score on the full-data z-score: the integral of φ²/Φ, .903.

    With p = Φ(d + e), the sum of -2 log p moves by -2 E[φ/Φ] per unit of d, and its sd under the null is 2√M. The rest
    of a variance of 1 is the residual: √(1 - .903²) = .43. Explained in
    :doc:`/book/sample-and-aggregate/posterior-probabilities`.

    Returns
    -------
    float

    Examples
    --------
    >>> from dpbook import aggregate
    >>> print(f"{aggregate.fisher_slope():.4f}")
    0.9032
    """
    t = np.linspace(-38, 12, 200_001)
    return float(np.trapezoid(np.exp(-(t**2) - np.log(2 * np.pi) - special.log_ndtr(t)), t))


def clipped_at(method: str, p_min: float | None) -> float | None:
    """Return where -2 log p is clipped, or None for a mean of probabilities, which has no such option."""
    if one_of("method", method, METHODS) == "fisher":
        return fraction("p_min", P_MIN if p_min is None else p_min)
    if p_min is not None:
        raise ValueError(f"p_min is an option of method 'fisher', not of {method!r}")
    return None


@dataclass(frozen=True)
class Score:
    """What a partition adds to an aggregate, as a function of its z-score, mapped onto [-1, 1] so that it rises."""

    largest: float | None  # of -2 log p, where that is added up

    def __call__(self, z: Array) -> Array:
        """Return the score of each z-score."""
        if self.largest is None:
            return np.asarray(2 * special.ndtr(z) - 1)
        return np.asarray(1 - 2 * np.minimum(-2 * special.log_ndtr(z), self.largest) / self.largest)

    def of(self, p: Array) -> Array:
        """Return the score of each probability."""
        if self.largest is None:
            return 2 * p - 1
        with np.errstate(divide="ignore"):
            return np.asarray(1 - 2 * np.minimum(-2 * np.log(p), self.largest) / self.largest)

    @property
    def middle(self) -> float:
        """Its mean where the cutoff is the true value: -2 log of a uniform p has mean 2 (1 - p_min) where clipped."""
        return 0.0 if self.largest is None else 1 - 4 * -math.expm1(-self.largest / 2) / self.largest


@lru_cache(maxsize=32)
def score_of(method: str, p_min: float | None) -> Score:
    """Return the score of a method."""
    smallest = clipped_at(method, p_min)
    return Score(None if smallest is None else -2 * math.log(smallest))


def halving(whole: Array, one: Array, other: Array, middle: float) -> Array:
    """Return how a score differs from that of its halves: a bias that falls with the root of the records shows."""
    return (whole - middle) - math.sqrt(2) * ((one + other) / 2 - middle)


def aggregate_mean(z: ArrayLike, partitions: int, *, method: str = "normality", p_min: float = P_MIN) -> Array:
    """Return the expected aggregate given full-data z-scores, for equal normal posteriors in every partition.

    With d = z/√M and e normal with variance 1 - 1/M (the scatter of a partition about the whole), it is the mean of
    Φ(d + e) for the normality method, which is Φ(z/√(2M - 1)), and M times the mean of min(-2 log Φ(d + e), c) for
    Fisher's.
    """
    m = integer("partitions", partitions, least=2)
    scores = np.asarray(z, dtype=np.float64)
    if one_of("method", method, METHODS) == "normality":
        return np.asarray(special.ndtr(scores / math.sqrt(2 * m - 1)))
    first, _, _ = _fisher_moments(scores / math.sqrt(m), fraction("p_min", p_min), math.sqrt(1 - 1 / m))
    return m * first


def aggregate_sd(
    z: ArrayLike,
    partitions: int,
    *,
    method: str = "normality",
    p_min: float = P_MIN,
    size: int | None = None,
    nuisance: int = 1,
) -> Array:
    """Return the sd of the aggregate given the full-data z-score: what averaging itself loses, before any noise.

    With f the function that is averaged, it is √((Var f - Cov(f, e)²) / M) for a mean: knowing the full-data estimate
    takes away what is linear in e. Partitions of a finite size m add a little: their posterior variances differ, by a
    relative variance of about 2/m each for covariates and errors, and each spends records on nuisance parameters that
    the whole estimates once, which loses a share of 1/m of the information for each.
    """
    m = integer("partitions", partitions, least=2)
    d = np.asarray(z, dtype=np.float64) / math.sqrt(m)
    one = 0.0 if size is None else 1 / integer("size", size, least=1)
    lost = (0.5 + integer("nuisance", nuisance, least=0)) * one
    if one_of("method", method, METHODS) == "normality":
        mean = special.ndtr(d / math.sqrt(2))
        square = mean - 2 * special.owens_t(d / math.sqrt(2), 1 / math.sqrt(3))  # E Φ(d + e)², e standard normal
        slope = np.exp(-(d**2) / 4) / math.sqrt(4 * math.pi)
        tilt = np.exp(-(d**2) / 3) / (2 * math.pi * 3**1.5)  # about E[(φ(d + e) e)²]
        variance = square - mean**2 - slope**2 * (1 - lost) + tilt * one / 2
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) / m))
    first, second, slope = _fisher_moments(d, fraction("p_min", p_min), 1.0)
    variance = second - first**2 - slope**2 * (1 - lost)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0) * m))


def _fisher_moments(d: Array, p_min: float, sd: float) -> tuple[Array, Array, Array]:
    """Return E f, E f² and Cov(f, e)/sd for f = min(-2 log Φ(d + sd e), -2 log p_min), e standard normal."""
    e = np.linspace(-9, 9, 1801)
    weight = np.exp(-(e**2) / 2)
    weight /= weight.sum()
    flat = np.ravel(d)
    f = np.minimum(-2 * special.log_ndtr(flat[:, None] + sd * e), -2 * math.log(p_min))
    moments = (f @ weight, f**2 @ weight, f @ (weight * e))
    first, second, slope = (each.reshape(np.shape(d)) for each in moments)
    return first, second, slope


def checked_partitions(partitions: Any, n: int | None, least: int) -> int:
    """Return the number of partitions; raise unless there are two or more, each with ``least`` records or more."""
    count = integer("partitions", partitions, least=2)
    if n is not None and n // count < least:
        raise ValueError(
            f"partitions must leave at least {least} records in each for this posterior: "
            f"{count} partitions of {n} records leave {n // count}"
        )
    return count
