"""The analyst's side: from a noisy aggregate to the full-data posterior probability or quantile, with an interval.

Nothing here reads data. The point estimates follow the source, corrected; the intervals account for the Laplace noise
and for what averaging over partitions loses, by the theory of chapter 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import isotonic_regression

from dpbook._arrays import Array
from dpbook._validation import at_least, fraction, integer, one_of
from dpbook.latent_noise import normal_laplace_cdf
from dpbook.release import Release

__all__ = [
    "CombinedProbability",
    "CombinedQuantile",
    "aggregate_mean",
    "aggregate_sd",
    "combine",
    "fisher_probability",
    "fisher_slope",
    "rescale_probability",
    "residual_sd",
]

MODELS = ("posterior probability", "posterior quantile")
RESCALES = ("corrected", "source")
Z_GRID = np.linspace(-9.0, 9.0, 1801)  # full-data z-scores considered; beyond, a probability is 0 or 1 to 18 digits
# Typical width of the centred bounds in standard deviations of the partitions' quantiles.
CENTRED_WIDTH = 6.0
# Sd of what the centred bounds clip on one side more than on the other, in full-data posterior sds; measured.
CLIPPING_SD = 0.15


def combine(release: Release, *, rescale: str | None = None) -> CombinedProbability | CombinedQuantile:
    """Turn a release of :func:`release_probability` or :func:`release_quantile` into an answer, with intervals.

    Post-processing: it reads the release alone, so the privacy of the release is untouched, and its answers stay in
    range whatever the noise.

    Parameters
    ----------
    release : Release
        What the curator published.
    rescale : {"corrected", "source"}, optional
        How a mean of probabilities is sharpened; by default as the release says.

    Returns
    -------
    CombinedProbability or CombinedQuantile
        With ``.probability`` or ``.quantile``, and ``.interval(level)``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=20_000)
    >>> rows = np.column_stack([x, 1 + 2 * x + rng.normal(size=20_000)])
    >>> release = aggregate.release_probability(
    ...     rows, 2.0, posterior=aggregate.ConjugateRegression(), partitions=200, epsilon=1.0, rng=rng
    ... )
    >>> answer = aggregate.combine(release)
    >>> low, high = answer.interval(0.9)
    >>> bool(0 <= low <= answer.probability <= high <= 1)
    True

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release, got {release!r}")
    if release.model not in MODELS:
        raise ValueError(f"release must be of model {' or '.join(map(repr, MODELS))}, got one of {release.model!r}")
    if release.model == MODELS[1]:
        if rescale is not None:
            raise ValueError("rescale applies to a release of a posterior probability, not of a quantile")
        return CombinedQuantile(release)
    if rescale is not None and release.settings["method"] != "normality":
        raise ValueError("rescale applies to method 'normality' only")
    how = release.settings["rescale"] if rescale is None else one_of("rescale", rescale, RESCALES)
    return CombinedProbability(release, str(how))


@dataclass(frozen=True)
class CombinedProbability:
    """A private estimate of the full-data posterior probability that a parameter is at most a cutoff.

    Parameters
    ----------
    release : Release
        Of :func:`release_probability`.
    rescale : {"corrected", "source"}
        How a mean of probabilities is sharpened; ``"source"`` leaves its bias in the point estimate.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=20_000)
    >>> rows = np.column_stack([x, 1 + 2 * x + rng.normal(size=20_000)])
    >>> release = aggregate.release_probability(
    ...     rows, [1.99, 2.0, 2.01], posterior=aggregate.ConjugateRegression(), partitions=200, epsilon=3.0, rng=rng
    ... )
    >>> answer = aggregate.combine(release)
    >>> bool((np.diff(answer.probability) >= 0).all())
    True
    >>> [each.shape for each in answer.interval(0.95)]
    [(3,), (3,)]

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """

    release: Release
    rescale: str = "corrected"

    @property
    def probability(self) -> Any:
        """The estimate, in (0, 1); for several cutoffs an array that does not decrease with the cutoff."""
        noisy = np.asarray(next(iter(self.release.values.values())), dtype=np.float64)
        sums = self.release.settings["method"] == "fisher"
        noisy = _in_order(noisy, np.asarray(self.release.settings["cutoff"]), increasing=not sums)
        partitions = int(self.release.settings["partitions"])
        if sums:
            return fisher_probability(noisy, partitions)
        return rescale_probability(noisy, partitions, rescale=self.rescale)

    def interval(self, level: float = 0.95, *, bias: float = 0.0) -> tuple[Any, Any]:
        """Return a confidence interval for the full-data posterior probability, for each cutoff by itself.

        It inverts the law of the noisy aggregate given the full-data z-score: Laplace noise plus the residual of
        averaging, which does not vanish with epsilon. The level is that of repeated data and noise, for partitions
        whose posteriors are nearly normal and unbiased; small partitions of skewed records are not.

        Parameters
        ----------
        level : float, default 0.95
            In (0, 1).
        bias : float, default 0.0
            Full-data posterior sds by which small partitions may mislead, all in one direction; both ends give way by
            so much.

        Returns
        -------
        tuple
            Lower and upper ends, in [0, 1].
        """
        tail = (1 - fraction("level", level)) / 2
        settings = self.release.settings
        name, noisy = next(iter(self.release.values.items()))
        partitions, method = int(settings["partitions"]), str(settings["method"])
        size, nuisance = self.release.n // partitions, int(settings["nuisance"])
        centre, sd = _law_of_the_aggregate(method, partitions, size, nuisance, settings.get("p_min"))
        sign = -1.0 if method == "fisher" else 1.0  # the sum falls where the mean rises
        y = sign * np.asarray(noisy, dtype=np.float64)[..., None]
        cdf = normal_laplace_cdf(y, sign * centre, sd**2, self.release.scale[name])
        shift = at_least("bias", bias, 0.0)
        low, high = _crossing(cdf, 1 - tail) - shift, _crossing(cdf, tail) + shift
        return special.ndtr(low)[()], special.ndtr(high)[()]


@dataclass(frozen=True)
class CombinedQuantile:
    """A private estimate of a full-data posterior quantile.

    Parameters
    ----------
    release : Release
        Of :func:`release_quantile`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=20_000)
    >>> rows = np.column_stack([x, 1 + 2 * x + rng.normal(size=20_000)])
    >>> release = aggregate.release_quantile(
    ...     rows, 0.5, posterior=aggregate.ConjugateRegression(), partitions=200, epsilon=2.0,
    ...     public_range=(-10, 10), rng=rng,
    ... )
    >>> answer = aggregate.combine(release)
    >>> low, high = answer.interval(0.95)
    >>> bool(low < answer.quantile < high)
    True

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """

    release: Release

    @property
    def quantile(self) -> Any:
        """The estimate, within the bounds; for several probabilities an array that does not decrease with them."""
        noisy = np.asarray(self.release["quantile"], dtype=np.float64)
        ordered = _in_order(noisy, np.asarray(self.release.settings["probability"]), increasing=True)
        return np.clip(ordered, *self.bounds)[()]

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds that the partitions' quantiles were clipped to."""
        if "bounds" in self.release.values:
            low, high = self.release["bounds"]
            return float(low), float(high)
        return self.release.bounds["quantile"]

    def interval(self, level: float = 0.95, *, bias: float = 0.0) -> tuple[Any, Any]:
        """Return a confidence interval for the full-data posterior quantile, for each probability by itself.

        It accounts for the Laplace noise, for the difference between an average over partitions and the whole, and
        for the chance that a private search for bounds fails. It trusts bounds that were given.

        Parameters
        ----------
        level : float, default 0.95
            In (0, 1).
        bias : float, default 0.0
            By how much, in units of the quantile, small partitions may mislead, all in one direction.

        Returns
        -------
        tuple
            Lower and upper ends; the whole public range (or plus and minus infinity) where the search for bounds is
            too likely to have failed.
        """
        error = 1 - fraction("level", level)
        failure = float(self.release.settings["failure"])
        noisy = np.asarray(self.release["quantile"], dtype=np.float64)
        widest = self.release.bounds.get("public_range", (-math.inf, math.inf))
        if failure >= error / 2:
            return np.full(noisy.shape, widest[0])[()], np.full(noisy.shape, widest[1])[()]
        half = self._half_width((error - failure) / 2) + at_least("bias", bias, 0.0)
        return np.maximum(noisy - half, widest[0])[()], np.minimum(noisy + half, widest[1])[()]

    def _half_width(self, tail: float) -> float:
        scale = self.release.scale["quantile"]
        sd = self._residual_sd()
        grid = np.linspace(0, 60 * max(scale, sd), 200_001)
        return float(np.interp(1 - tail, normal_laplace_cdf(grid, 0.0, sd**2, scale), grid))

    def _residual_sd(self) -> float:
        """Return the sd of the averaged quantiles about the full-data quantile, from the width of the bounds.

        With S the spread of the partitions' estimates, the plain average misses the full-data estimate, which weighs
        partitions by their information and estimates nuisance parameters once, by about S √((2 + nuisance)/m) / √M for
        m records in each; clipping adds a little.
        """
        partitions = int(self.release.settings["partitions"])
        size = max(1, self.release.n // partitions)
        low, high = self.bounds
        spread = (high - low) / (5.0 if self.release.settings["bounds"] == "centred" else 4.0)
        lost = (2 + int(self.release.settings["nuisance"])) / size
        return spread * math.sqrt((lost + CLIPPING_SD**2) / partitions)


def rescale_probability(mean: ArrayLike, partitions: int, *, rescale: str = "corrected") -> Any:
    """Return the full-data posterior probability that a mean of partitions' probabilities stands for.

    Partition estimates scatter about the full-data one by as much as each posterior is wide, so their probabilities
    average to a normal curve √(2 - 1/M) times as wide as each, and √(2M - 1) times as wide as the full-data one. The
    source multiplies z-scores by √M only. A mean outside [1/(2M), 1 - 1/(2M)] is moved to the nearest end.

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
    >>> print(f"{aggregate.rescale_probability(0.51, 1000):.3f}")
    0.869
    >>> print(f"{aggregate.rescale_probability(0.51, 1000, rescale='source'):.3f}")
    0.786

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    m = integer("partitions", partitions, least=2)
    factor = math.sqrt(2 * m - 1) if one_of("rescale", rescale, RESCALES) == "corrected" else math.sqrt(m)
    inside = np.clip(np.asarray(mean, dtype=np.float64), 1 / (2 * m), 1 - 1 / (2 * m))
    return special.ndtr(factor * special.ndtri(inside))[()]


def fisher_probability(total: ArrayLike, partitions: int) -> Any:
    """Return the source's reading of a (noisy) sum of -2 log p: the upper tail of chi-squared with 2M degrees.

    Parameters
    ----------
    total : float or array
        The (noisy) sum.
    partitions : int
        M.

    Returns
    -------
    float or ndarray
        In [0, 1].

    Examples
    --------
    >>> from dpbook import aggregate
    >>> print(f"{aggregate.fisher_probability(2000.0, 1000):.3f}")
    0.496

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    m = integer("partitions", partitions, least=2)
    inside = np.maximum(np.asarray(total, dtype=np.float64), 0.0)
    return special.chdtrc(2 * m, inside)[()]


def aggregate_mean(z: ArrayLike, partitions: int, *, method: str = "normality", p_min: float = 0.001) -> Array:
    """Return the expected aggregate given the full-data z-score, for equal normal posteriors in every partition.

    With d = z/√M and e normal with variance 1 - 1/M (the scatter of a partition about the whole), it is the mean of
    Φ(d + e) for the normality method, which is Φ(z/√(2M - 1)), and M times the mean of min(-2 log Φ(d + e), c) for
    Fisher's.

    Parameters
    ----------
    z : array_like
        Full-data z-scores, (cutoff - estimate) / sd.
    partitions : int
        M.
    method : {"normality", "fisher"}
        Which aggregate.
    p_min : float
        Where -2 log p is clipped.

    Returns
    -------
    ndarray
        Of the shape of ``z``.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> print(aggregate.aggregate_mean(0.0, 1000), aggregate.aggregate_mean(0.0, 1000, method="fisher").round(0))
    0.5 1997.0

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    m = integer("partitions", partitions, least=2)
    scores = np.asarray(z, dtype=np.float64)
    if one_of("method", method, ("normality", "fisher")) == "normality":
        return np.asarray(special.ndtr(scores / math.sqrt(2 * m - 1)))
    first, _, _ = _fisher_moments(scores / math.sqrt(m), fraction("p_min", p_min), math.sqrt(1 - 1 / m))
    return m * first


def aggregate_sd(
    z: ArrayLike,
    partitions: int,
    *,
    method: str = "normality",
    p_min: float = 0.001,
    size: int | None = None,
    nuisance: int = 1,
) -> Array:
    """Return the sd of the aggregate given the full-data z-score: what averaging itself loses, before any noise.

    With f the function that is averaged, it is √((Var f - Cov(f, e)²) / M) for a mean: knowing the full-data estimate
    takes away what is linear in e. Partitions of a finite size m add a little: their posterior variances differ, by a
    relative variance of about 2/m each for covariates and errors, and each spends records on nuisance parameters that
    the whole estimates once, which loses a share of 1/m of the information for each.

    Parameters
    ----------
    z : array_like
        Full-data z-scores.
    partitions : int
        M.
    method, p_min
        As in :func:`aggregate_mean`.
    size : int, optional
        Records a partition; by default partitions so large that their variances are equal.
    nuisance : int, default 1
        Other coefficients that each partition estimates, the intercept among them.

    Returns
    -------
    ndarray
        Of the shape of ``z``.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> print(f"{1000**0.5 * aggregate.aggregate_sd(0.0, 1000):.4f}")
    0.0613

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    m = integer("partitions", partitions, least=2)
    d = np.asarray(z, dtype=np.float64) / math.sqrt(m)
    one = 0.0 if size is None else 1 / integer("size", size, least=1)
    lost = (0.5 + integer("nuisance", nuisance, least=0)) * one
    if one_of("method", method, ("normality", "fisher")) == "normality":
        mean = special.ndtr(d / math.sqrt(2))
        square = mean - 2 * special.owens_t(d / math.sqrt(2), 1 / math.sqrt(3))  # E Φ(d + e)², e standard normal
        slope = np.exp(-(d**2) / 4) / math.sqrt(4 * math.pi)
        tilt = np.exp(-(d**2) / 3) / (2 * math.pi * 3**1.5)  # about E[(φ(d + e) e)²]
        variance = square - mean**2 - slope**2 * (1 - lost) + tilt * one / 2
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) / m))
    first, second, slope = _fisher_moments(d, fraction("p_min", p_min), 1.0)
    variance = second - first**2 - slope**2 * (1 - lost)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0) * m))


def residual_sd(
    partitions: int,
    *,
    method: str = "normality",
    p_min: float = 0.001,
    size: int | None = None,
    nuisance: int = 1,
) -> float:
    """Return the sd, at z = 0, of the z-score that a noiseless aggregate gives, about the full-data z-score.

    Parameters
    ----------
    partitions : int
        M.
    method, p_min, size, nuisance
        As in :func:`aggregate_sd`.

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

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    m = integer("partitions", partitions, least=2)
    sd = float(aggregate_sd(0.0, m, method=method, p_min=p_min, size=size, nuisance=nuisance))
    if method == "fisher":  # -2 log p sums are read on the scale of a chi-squared with 2M degrees, of sd 2√M
        return sd / (2 * math.sqrt(m))
    return sd * math.sqrt((2 * m - 1) * 2 * math.pi)


def fisher_slope() -> float:
    """Return the slope, at z = 0, of Fisher's z-score on the full-data z-score: the integral of φ²/Φ, .903.

    With p = Φ(d + e), the sum of -2 log p moves by -2 E[φ/Φ] a unit of d, and its sd under the null is 2√M. The rest
    of a variance of 1 is the residual: √(1 - .903²) = .43.

    Returns
    -------
    float
        The slope.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> print(f"{aggregate.fisher_slope():.4f}")
    0.9032

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    t = np.linspace(-38, 12, 200_001)
    return float(np.trapezoid(np.exp(-(t**2) - np.log(2 * np.pi) - special.log_ndtr(t)), t))


@lru_cache(maxsize=32)
def _law_of_the_aggregate(
    method: str, partitions: int, size: int, nuisance: int, p_min: float | None
) -> tuple[Array, Array]:
    """Return the mean and sd of the noiseless aggregate at each point of the grid of z-scores."""
    options: dict[str, Any] = {"method": method} if p_min is None else {"method": method, "p_min": p_min}
    mean = aggregate_mean(Z_GRID, partitions, **options)
    return mean, aggregate_sd(Z_GRID, partitions, size=max(1, size), nuisance=nuisance, **options)


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


def _in_order(noisy: Array, points: Array, *, increasing: bool) -> Array:
    """Return the nearest values that are monotone in the points (isotonic regression); ties are averaged."""
    if noisy.ndim == 0:
        return noisy
    distinct, where, counts = np.unique(points, return_inverse=True, return_counts=True)
    means = np.bincount(where, weights=noisy) / counts
    if len(distinct) > 1:
        means = isotonic_regression(means, weights=counts.astype(np.float64), increasing=increasing).x
    return np.asarray(means[where])


def _crossing(cdf: Array, level: float) -> Array:
    """Return the z-score where a falling curve over the grid crosses a level; infinite where it does not."""
    falling = np.minimum.accumulate(cdf, axis=-1)
    above = (falling > level).sum(axis=-1)
    i = np.clip(above, 1, len(Z_GRID) - 1)
    left, right = (np.take_along_axis(falling, (i - k)[..., None], axis=-1)[..., 0] for k in (1, 0))
    share = np.divide(left - level, left - right, out=np.zeros_like(left), where=left > right)
    z = Z_GRID[i - 1] + np.clip(share, 0, 1) * (Z_GRID[1] - Z_GRID[0])
    return np.where(above == 0, -np.inf, np.where(above == len(Z_GRID), np.inf, z))
