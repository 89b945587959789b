"""The analyst's side: from a noisy aggregate to the full-data posterior probability or quantile, with an interval.

Nothing here reads data. The point estimates follow the source, corrected; the intervals account for the Laplace noise
and for what averaging over partitions loses, by the theory of chapter 2.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, TypeAlias, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import isotonic_regression

from dpbook import _html
from dpbook._arrays import Array
from dpbook._validation import at_least, fraction, one_of
from dpbook.aggregate.laws import RESCALES, aggregate_mean, aggregate_sd, fisher_probability, rescale_probability
from dpbook.latent_noise import normal_laplace_cdf
from dpbook.release import Release

__all__ = ["Combined", "CombinedProbability", "CombinedQuantile", "infer"]

Z_GRID = np.linspace(-9.0, 9.0, 1801)  # full-data z-scores considered; beyond, a probability is 0 or 1 to 18 digits
# Sd of what the centred bounds clip on one side more than on the other, in full-data posterior sds; measured.
CLIPPING_SD = 0.15
DRAWS = 4000

# A number where one question was asked, an array where several were.
Estimate: TypeAlias = Any


@overload
def infer(release: Release, *, rescale: str | None = None) -> CombinedProbability | CombinedQuantile: ...
@overload
def infer(
    release: Sequence[Release], *, rescale: str | None = None
) -> list[CombinedProbability | CombinedQuantile]: ...
def infer(
    release: Release | Sequence[Release], *, rescale: str | None = None
) -> CombinedProbability | CombinedQuantile | list[CombinedProbability | CombinedQuantile]:
    """Return what a release says of the full-data posterior probabilities or quantiles, with intervals.

    Post-processing: it reads the release alone, so the privacy of the release is untouched, and its answers stay in
    range whatever the noise. Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.

    Parameters
    ----------
    release : Release or sequence of Release
        From :func:`release_probability` or :func:`release_quantile`.
    rescale : {"corrected", "source"}, optional
        How a mean of probabilities is sharpened to a point estimate; ``"source"`` leaves the source's bias in it.

    Returns
    -------
    CombinedProbability or CombinedQuantile
        A :class:`Combined`, under the name ``"probability"`` or ``"quantile"``; a list of them for a sequence.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=20_000)
    >>> rows = np.column_stack([x, 1 + 2 * x + rng.normal(size=20_000)])
    >>> release = aggregate.release_probability(
    ...     rows, [1.99, 2.0], posterior=aggregate.ConjugateRegression(), partitions=200, epsilon=2.0, rng=rng
    ... )
    >>> answer = aggregate.infer(release)
    >>> answer
    CombinedProbability(Pr(x ≤ 1.99) about 0.023, Pr(x ≤ 2) about 0.520; 200 partitions, epsilon=2)
    >>> answer.summary(0.9).round(2)
                  estimate  mean    sd    5%   95%
    Pr(x ≤ 1.99)      0.02  0.03  0.04  0.00  0.10
    Pr(x ≤ 2)         0.52  0.52  0.16  0.26  0.77
    """
    if isinstance(release, Release):
        return _combined(release, rescale)
    if isinstance(release, (str, bytes, Mapping)) or not isinstance(release, Sequence):
        raise TypeError(f"release must be a Release or a sequence of them, got {release!r}")
    return [_combined(each, rescale) for each in release]


def _combined(release: Any, rescale: str | None) -> CombinedProbability | CombinedQuantile:
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release or a sequence of them, got {release!r}")
    models = {"posterior probability", "posterior quantile"}
    if release.model not in models:
        raise ValueError(f"release must be of model {' or '.join(map(repr, sorted(models)))}, got {release.model!r}")
    release.require(model=release.model, several=False)  # each was split into partitions of its own
    if release.model == "posterior quantile":
        if rescale is not None:
            raise ValueError("rescale applies to a release of a posterior probability, not of a quantile")
        return CombinedQuantile(release)
    if rescale is not None and release.settings["method"] != "normality":
        raise ValueError("rescale applies to method 'normality' only")
    return CombinedProbability(release, "corrected" if rescale is None else one_of("rescale", rescale, RESCALES))


class Combined(abc.ABC):
    """What :func:`infer` returns, in the words of a :class:`~dpbook.Posterior`.

    What the analyst knows of the full-data answers is a law that the intervals come from, for each cutoff, or
    probability, by itself. ``mean``, ``sd`` and ``draws`` are of 4,000 equally likely values of it; nothing is drawn at
    random. Answers have the shape that was asked for; without a ``name``, ``"probability"`` or ``"quantile"``, they
    stand in a dictionary. Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=20_000)
    >>> rows = np.column_stack([x, 1 + 2 * x + rng.normal(size=20_000)])
    >>> how = {"posterior": aggregate.ConjugateRegression(), "partitions": 200, "epsilon": 2.0, "rng": rng}
    >>> answer = aggregate.infer(aggregate.release_quantile(rows, 0.5, **how, bounds=(0.0, 4.0)))
    >>> answer.summary().index.tolist(), answer.labels
    (['50% quantile of x'], {'quantile': ('50% quantile of x',)})
    >>> print(answer.estimate.round(2), answer.mean("quantile").round(2), answer.sd("quantile").round(3))
    1.99 1.99 0.021
    >>> print(answer.quantile([0.1, 0.9], "quantile").round(2), answer.interval(0.8, "quantile").round(2))
    [1.96 2.02] [1.96 2.02]
    >>> answer.draws["quantile"].shape
    (1, 4000)
    """

    release: Release
    name: ClassVar[str]
    _digits: ClassVar[str]  # of a point estimate in words

    @property
    @abc.abstractmethod
    def estimate(self) -> Estimate:
        """The point estimate, which does not decrease with the cutoff or probability."""

    @property
    @abc.abstractmethod
    def _questions(self) -> list[str]:
        """What was asked, in words, one question for each number that was released."""

    @abc.abstractmethod
    def _ends(self, tails: Array, bias: float = 0.0) -> tuple[Array, Array]:
        """Return the points with so much probability (at most 1/2) below, and above: (..., tails) each."""

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """What the components are called in tables."""
        return {self.name: tuple(self._questions)}

    @cached_property
    def draws(self) -> Mapping[str, Array]:
        """Equally likely values by name, of shape (1, draw, ...): one chain."""
        below, above = self._ends((np.arange(DRAWS // 2) + 0.5) / DRAWS)
        return {self.name: np.moveaxis(np.concatenate([below, above[..., ::-1]], axis=-1), -1, 0)[None]}

    def mean(self, name: str | None = None) -> Estimate:
        """Return the mean of the law of ``name``; NaN where a search for bounds may have failed."""
        with np.errstate(invalid="ignore"):
            return self._named(name, self.draws[self.name][0].mean(axis=0))

    def sd(self, name: str | None = None) -> Estimate:
        """Return the standard deviation of the law of ``name``; infinite where a search for bounds may have failed."""
        drawn = self.draws[self.name][0]
        with np.errstate(invalid="ignore"):
            spread = np.where(np.isfinite(drawn).all(axis=0), drawn.std(axis=0, ddof=1), np.inf)
        return self._named(name, spread)

    def quantile(self, q: ArrayLike, name: str | None = None) -> Estimate:
        """Return quantiles of the law of ``name``; for several probabilities ``q`` with one more axis, the last."""
        levels = np.asarray(q)
        flat = np.array([fraction("q", level) for level in levels.ravel()])
        below, above = self._ends(np.minimum(flat, 1 - flat))
        found = np.where(flat < 0.5, below, np.where(flat > 0.5, above, np.asarray(self._middle)[..., None]))
        return self._named(name, found.reshape((*found.shape[:-1], *levels.shape)))

    def interval(self, level: float = 0.95, name: str | None = None, *, bias: float = 0.0) -> Estimate:
        """Return a confidence interval for the full-data answer, for each cutoff or probability by itself.

        The level is that of repeated data and noise, for partitions whose posteriors are nearly normal and unbiased;
        small partitions of skewed records are not. Noise, what averaging loses, and the chance that a search for bounds
        fails are accounted for; bounds that were given are trusted.

        Parameters
        ----------
        level : float, default 0.95
            In (0, 1).
        name : str, optional
            ``"probability"`` or ``"quantile"``; without it, a dictionary.
        bias : float, default 0.0
            By how much small partitions may mislead, all in one direction: for a probability in full-data posterior
            sds, for a quantile in its own unit. Both ends give way by so much.

        Returns
        -------
        array or dict
            Whose last axis is (low, high); the whole public range (or plus and minus infinity) where the search for
            bounds is too likely to have failed.
        """
        tail = (1 - fraction("level", level)) / 2
        low, high = self._ends(np.array([tail]), at_least("bias", bias, 0.0))
        return self._named(name, np.concatenate([low, high], axis=-1))

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Return a table, a row for each cutoff or probability: estimate, mean, sd, ends of the ``level`` interval."""
        tail = (1 - fraction("level", level)) / 2
        ends = self.interval(level, self.name).reshape(-1, 2)
        columns = {
            "estimate": np.ravel(self.estimate),
            "mean": np.ravel(self.mean(self.name)),
            "sd": np.ravel(self.sd(self.name)),
            f"{100 * tail:g}%": ends[:, 0],
            f"{100 * (1 - tail):g}%": ends[:, 1],
        }
        return pd.DataFrame(columns, index=self._questions)

    @property
    def _middle(self) -> Estimate:
        """The median of the law."""
        low, high = self._ends(np.array([0.5]))
        return ((low + high) / 2)[..., 0]

    def _named(self, name: str | None, value: Any) -> Any:
        found = np.asarray(value)[()]
        return {self.name: found} if name is None else {self.name: found}[one_of("name", name, (self.name,))]

    def _parameter(self) -> str:
        return str(self.release.settings.get("parameter", "parameter"))

    def _made(self) -> str:
        return f"{self.release.settings['partitions']} partitions, epsilon={self.release.epsilon:g}"

    def __repr__(self) -> str:
        rows = zip(self._questions, np.ravel(self.estimate).tolist(), strict=True)
        shown = [f"{question} about {value:{self._digits}}" for question, value in rows]
        more = [f"{len(shown) - 3} more"] if len(shown) > 4 else []
        return f"{type(self).__name__}({', '.join([*shown[: 3 if more else 4], *more])}; {self._made()})"

    def _repr_html_(self) -> str:
        return _html.of_frame(f"Full-data posterior {self.name}: {self._made()}", self.summary())


@dataclass(frozen=True, repr=False)
class CombinedProbability(Combined):
    """A private estimate of the full-data posterior probability that a parameter is at most a cutoff.

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.

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
    >>> rows = np.random.default_rng(0).normal(size=(20_000, 2))
    >>> release = aggregate.release_probability(
    ...     rows, [-0.01, 0.0, 0.01], posterior=aggregate.ConjugateRegression(), partitions=200, epsilon=3.0
    ... )
    >>> answer = aggregate.infer(release)
    >>> bool((np.diff(answer.estimate) >= 0).all()), answer.interval(0.95, "probability").shape
    (True, (3, 2))
    """

    release: Release
    rescale: str = "corrected"

    name: ClassVar[str] = "probability"
    _digits: ClassVar[str] = ".3f"

    @property
    def estimate(self) -> Estimate:
        """The probability, in (0, 1); for several cutoffs an array that does not decrease with the cutoff."""
        noisy = np.asarray(next(iter(self.release.values.values())), dtype=np.float64)
        sums = self.release.settings["method"] == "fisher"
        noisy = _in_order(noisy, np.asarray(self.release.settings["cutoff"]), increasing=not sums)
        partitions = int(self.release.settings["partitions"])
        if sums:
            return fisher_probability(noisy, partitions)
        return rescale_probability(noisy, partitions, rescale=self.rescale)

    @property
    def _questions(self) -> list[str]:
        return [f"Pr({self._parameter()} ≤ {cutoff:.8g})" for cutoff in np.ravel(self.release.settings["cutoff"])]

    def _ends(self, tails: Array, bias: float = 0.0) -> tuple[Array, Array]:
        """Invert the law of the noisy aggregate given the full-data z-score: Laplace noise and what averaging loses."""
        settings = self.release.settings
        name, noisy = next(iter(self.release.values.items()))
        partitions, method = int(settings["partitions"]), str(settings["method"])
        size, nuisance = self.release.n // partitions, int(settings["nuisance"])
        centre, sd = _law_of_the_aggregate(method, partitions, size, nuisance, settings.get("p_min"))
        sign = -1.0 if method == "fisher" else 1.0  # the sum falls where the mean rises
        y = sign * np.asarray(noisy, dtype=np.float64)[..., None]
        cdf = normal_laplace_cdf(y, sign * centre, sd**2, self.release.scale[name])
        return special.ndtr(_crossings(cdf, 1 - tails) - bias), special.ndtr(_crossings(cdf, tails) + bias)


@dataclass(frozen=True, repr=False)
class CombinedQuantile(Combined):
    """A private estimate of a full-data posterior quantile.

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.

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
    >>> aggregate.infer(aggregate.release_quantile(
    ...     rows, 0.5, posterior=aggregate.ConjugateRegression(), partitions=200, epsilon=2.0,
    ...     bounds=aggregate.Centred((-10, 10)), rng=rng,
    ... ))
    CombinedQuantile(50% quantile of x about 2; 200 partitions, epsilon=2)
    """

    release: Release

    name: ClassVar[str] = "quantile"
    _digits: ClassVar[str] = ".3g"

    @property
    def estimate(self) -> Estimate:
        """The quantile, within the bounds; for several probabilities an array that does not decrease with them."""
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

    @property
    def _questions(self) -> list[str]:
        asked = np.ravel(self.release.settings["probability"])
        return [f"{100 * p:.8g}% quantile of {self._parameter()}" for p in asked]

    def _ends(self, tails: Array, bias: float = 0.0) -> tuple[Array, Array]:
        failure = float(self.release.settings["failure"])
        noisy = np.asarray(self.release["quantile"], dtype=np.float64)[..., None]
        widest = self.release.bounds.get("public_range", (-math.inf, math.inf))
        grid, cdf = self._law_of_the_error
        half = np.interp(1 - np.maximum((2 * tails - failure) / 2, 0.0), cdf, grid) + bias
        half = np.where(failure >= tails, np.inf, half)
        return np.maximum(noisy - half, widest[0]), np.minimum(noisy + half, widest[1])

    @cached_property
    def _law_of_the_error(self) -> tuple[Array, Array]:
        """A grid of errors above zero, and their distribution: Laplace noise plus what averaging and clipping lose."""
        scale, sd = self.release.scale["quantile"], self._residual_sd()
        grid = np.linspace(0, 60 * max(scale, sd), 200_001)
        return grid, normal_laplace_cdf(grid, 0.0, sd**2, scale)

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


@lru_cache(maxsize=32)
def _law_of_the_aggregate(
    method: str, partitions: int, size: int, nuisance: int, p_min: float | None
) -> tuple[Array, Array]:
    """Return the mean and sd of the noiseless aggregate at each point of the grid of z-scores."""
    options: dict[str, Any] = {"method": method} if p_min is None else {"method": method, "p_min": p_min}
    mean = aggregate_mean(Z_GRID, partitions, **options)
    return mean, aggregate_sd(Z_GRID, partitions, size=max(1, size), nuisance=nuisance, **options)


def _in_order(noisy: Array, points: Array, *, increasing: bool) -> Array:
    """Return the nearest values that are monotone in the points (isotonic regression); ties are averaged."""
    if noisy.ndim == 0:
        return noisy
    distinct, where, counts = np.unique(points, return_inverse=True, return_counts=True)
    means = np.bincount(where, weights=noisy) / counts
    if len(distinct) > 1:
        means = isotonic_regression(means, weights=counts.astype(np.float64), increasing=increasing).x
    return np.asarray(means[where])


def _crossings(cdf: Array, levels: Array) -> Array:
    """Return the z-scores where falling curves (..., grid) cross levels, (..., levels); infinite where they do not."""
    falling = np.minimum.accumulate(cdf, axis=-1).reshape(-1, len(Z_GRID))
    above = len(Z_GRID) - np.stack([np.searchsorted(curve[::-1], levels, side="right") for curve in falling])
    i = np.clip(above, 1, len(Z_GRID) - 1)
    left, right = (np.take_along_axis(falling, i - k, axis=-1) for k in (1, 0))
    share = np.divide(left - levels, left - right, out=np.zeros_like(left), where=left > right)
    z = Z_GRID[i - 1] + np.clip(share, 0, 1) * (Z_GRID[1] - Z_GRID[0])
    found = np.where(above == 0, -np.inf, np.where(above == len(Z_GRID), np.inf, z))
    return found.reshape(*cdf.shape[:-1], len(levels))
