"""The analyst's side: from a noisy aggregate to the full-data posterior probability or quantile, with an interval.

Nothing here reads data. The point estimates follow the source, corrected; the intervals account for the Laplace noise
and for what averaging over partitions loses, by the theory of chapter 2.
"""

from __future__ import annotations

import abc
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import isotonic_regression

from dpbook import _html
from dpbook._arrays import Array
from dpbook._late import pd
from dpbook._validation import fraction, one_of
from dpbook.aggregate.laws import (
    RESCALES,
    aggregate_mean,
    aggregate_sd,
    fisher_probability,
    rescale_probability,
    score_of,
)
from dpbook.aggregate.spread import CLIPPING_SD, Doubts, Told, doubts_of_quantile, doubts_of_score
from dpbook.blocks import by_blocks
from dpbook.latent_noise import normal_laplace_cdf
from dpbook.release import Release

__all__ = ["Combined", "CombinedProbability", "CombinedQuantile", "infer"]

Z_GRID = np.linspace(-9.0, 9.0, 1801)  # full-data z-scores considered; beyond, a probability is 0 or 1 to 18 digits
COARSE = Z_GRID[::10]  # where the law is a mixture over what is not known
DRAWS = 4000
TOO_MANY = 0.5  # share of failed partitions with which a search may prefer an empty interval to that of the others
SCATTERED = 1.3  # times the variance of answers that posteriors allow
FAR = 3.3  # posterior sds between a cutoff and the middle that few questions ask for
RULED = 5.0  # the largest bias met in real records, in sds of a partition, times the root of its records
SEEN = 0.98  # share of the values of a bias that have its sign
UNSAFE = 0.025  # a search for bounds that fails with this probability leaves a 95 % interval without ends

# A number where one question was asked, an array where several were.
Estimate: TypeAlias = Any


@overload
def infer(
    release: Release, *, rescale: str | None = None, n_jobs: Any = None
) -> CombinedProbability | CombinedQuantile: ...
@overload
def infer(
    release: Sequence[Release], *, rescale: str | None = None, n_jobs: Any = None
) -> list[CombinedProbability | CombinedQuantile]: ...
def infer(
    release: Release | Sequence[Release], *, rescale: str | None = None, n_jobs: Any = None
) -> CombinedProbability | CombinedQuantile | list[CombinedProbability | CombinedQuantile]:
    """Return what a release says of the full-data posterior probabilities or quantiles, with intervals.

    Post-processing: it reads the release alone, so the privacy of the release is untouched, and its answers stay in
    range whatever the noise. It warns where the release shows that partitions failed, differ widely, scatter by more
    than their posteriors allow, share a bias or lie at their bounds; where a probability is so close to 0 or 1 that a
    bias is as likely a reason; and where a search for bounds may have failed. Explained in
    :doc:`/book/sample-and-aggregate/posterior-probabilities` and :doc:`/book/sample-and-aggregate/when-parts-differ`.

    Parameters
    ----------
    release : Release or sequence of Release
        From :func:`release_probability` or :func:`release_quantile`; not several put :func:`~dpbook.together`, each of
        which was split into partitions of its own.
    rescale : {"corrected", "source"}, optional
        How a mean of probabilities is sharpened to a point estimate; ``"source"`` leaves the source's bias in it.
    n_jobs : int or executor, optional
        Divide a sequence into blocks that run in so many processes (-1: one on every core) or on a Dask client.

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
    CombinedProbability(Pr(x ≤ 1.99) about 0.010, Pr(x ≤ 2) about 0.413; 200 partitions, epsilon=2)
    >>> answer.summary(0.9).round(2)
                  estimate  mean    sd    5%   95%
    Pr(x ≤ 1.99)      0.01  0.05  0.12  0.00  0.28
    Pr(x ≤ 2)         0.41  0.43  0.28  0.02  0.93
    """
    if isinstance(release, Release):
        return _spoken(_combined(release, rescale))
    if isinstance(release, (str, bytes, Mapping)) or not isinstance(release, Sequence):
        raise TypeError(f"release must be a Release or a sequence of them, got {release!r}")
    if n_jobs is None:
        return [_spoken(_combined(each, rescale)) for each in release]
    found = by_blocks(partial(_all_combined, rescale=rescale), release, rng=None, n_jobs=n_jobs)
    return [_spoken(each) for each in found]


def _all_combined(
    releases: Sequence[Any], *, rescale: str | None, rng: object
) -> list[CombinedProbability | CombinedQuantile]:
    """Return what a block of releases says, with what takes time computed; nothing is random."""
    found = [_combined(each, rescale) for each in releases]
    for each in found:
        list(each._doubtful())
    return found


def _combined(release: Any, rescale: str | None) -> CombinedProbability | CombinedQuantile:
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release or a sequence of them, got {release!r}")
    models = {"posterior probability", "posterior quantile"}
    if release.model not in models:
        raise ValueError(f"release must be of model {' or '.join(map(repr, sorted(models)))}, got {release.model!r}")
    if release.parts:
        raise ValueError(
            f"release must be a single one here, got {len(release.parts)} put together: each was split into partitions "
            "of its own, and what averages over partitions of the same records lose is neither the same nor "
            "independent; pass the one with the largest epsilon, or make one release with all of epsilon"
        )
    if release.model == "posterior quantile":
        if rescale is not None:
            raise ValueError("rescale applies to a release of a posterior probability, not of a quantile")
        return CombinedQuantile(release)
    if rescale is not None and release.settings["method"] != "normality":
        raise ValueError("rescale applies to method 'normality' only")
    return CombinedProbability(release, "corrected" if rescale is None else one_of("rescale", rescale, RESCALES))


def _spoken(answer: CombinedProbability | CombinedQuantile) -> CombinedProbability | CombinedQuantile:
    """Warn of what the release itself casts doubt on, with a remedy."""
    for doubt in answer._doubtful():
        warnings.warn(f"the {answer.name} is in doubt: {doubt}", UserWarning, stacklevel=3)
    return answer


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
    1.99 1.99 0.023
    >>> print(answer.quantile([0.1, 0.9], "quantile").round(2), answer.interval(0.8, "quantile").round(2))
    [1.96 2.01] [1.96 2.01]
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
    def _told(self, place: int) -> Told:
        """Return what was released about one question, in the units of :mod:`dpbook.aggregate.spread`."""

    @cached_property
    @abc.abstractmethod
    def _doubts(self) -> list[Doubts]:
        """What is not known about each average, where partitions told; else empty."""

    @abc.abstractmethod
    def _ends(self, tails: Array) -> tuple[Array, Array]:
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

    def interval(self, level: float = 0.95, name: str | None = None) -> Estimate:
        """Return an interval for the full-data answer, for each cutoff or probability by itself.

        The level is that of repeated data and noise. Noise, what averaging loses, and the chance that a search for
        bounds fails are accounted for, and so is, where the release holds a ``spread``, what partitions tell of how
        they differ, fail, or mislead together; without it they are taken to be alike and unbiased. Bounds that were
        given are trusted.

        Parameters
        ----------
        level : float, default 0.95
            In (0, 1).
        name : str, optional
            ``"probability"`` or ``"quantile"``; without it, a dictionary.

        Returns
        -------
        array or dict
            Whose last axis is (low, high); the whole public range (or plus and minus infinity) where the search for
            bounds is too likely to have failed.
        """
        tail = (1 - fraction("level", level)) / 2
        low, high = self._ends(np.array([tail]))
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

    @property
    def _tells(self) -> bool:
        """Whether the release says how partitions differ."""
        return float(self.release.settings.get("spread", 0.0)) > 0

    def _told_of(self, place: int, answer: float, scale: float) -> Told:
        values = {name: float(np.ravel(self.release[name])[place]) for name in ("square", "halved", "halved_square")}
        m = int(self.release.settings["partitions"])
        return Told(
            answer,
            **values,
            failed=float(self.release["failed"]),
            scale=(scale, *(self.release.scale[name] for name in (*values, "failed"))),
            partitions=m,
            size=max(1, self.release.n // m),
            nuisance=int(self.release.settings["nuisance"]),
            clip=float(self.release.settings["clip"]),
        )

    def _doubtful(self) -> Iterator[str]:
        """Say, in words and with a remedy, what the release casts doubt on."""
        remedy = "give fewer and larger partitions"
        if not self._doubts:
            return
        failed = float(np.median(self._doubts[0].failed))
        if failed > 0.05:
            yield f"about {failed:.0%} of the partitions failed; {remedy}, or a proper prior"
        told = self._told(0)
        # What nine in ten of the values that are equally likely agree on.
        flat = min(float(np.quantile(each.slope / np.sqrt(1 - each.failed), 0.9)) for each in self._doubts)
        lost = max(float(np.quantile(each.variance / each.spread**2, 0.1)) for each in self._doubts)
        usual = 3 * (2 + told.nuisance) / told.size  # of what normal records make partitions differ by
        if self.name == "probability" and self._scattered > SCATTERED:
            yield (
                "the partitions' answers scatter by more than their posteriors allow, as where a few records rule a "
                f"fit or errors differ in spread; {remedy}, or a posterior that is not as sure of itself"
            )
        elif flat < 0.75 or (self.name == "quantile" and lost > max(0.5, usual)):
            yield f"the partitions differ widely in how much they know; {remedy}"
        # A bias is seen where nearly all of the values have the same sign.
        if max(float(np.mean(sign * each.shift > 0)) for each in self._doubts for sign in (-1, 1)) > SEEN:
            yield f"the partitions mislead in the same direction, as small samples of skewed records do; {remedy}"
        elif self._far:
            yield (
                "the partitions put a cutoff far outside of the posterior; it may lie there, or they may share the "
                f"bias of small samples that a few records rule, which noise or halves hide; {remedy}"
            )

    @property
    def _scattered(self) -> float:
        """How many times the variance that posteriors allow the answers have, at least, as nine in ten values agree."""
        return max(float(np.quantile(each.excess, 0.1)) for each in self._doubts)

    @property
    def _far(self) -> bool:
        """Whether an answer is so sure that a bias is as likely a reason, of a size that real records have."""
        return False

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
        if self._tells and self.rescale == "corrected":
            return _in_order(self._middle, np.asarray(self.release.settings["cutoff"]), increasing=True)[()]
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

    def _told(self, place: int) -> Told:
        settings = self.release.settings
        name, noisy = next(iter(self.release.values.items()))
        largest = score_of(settings["method"], settings.get("p_min")).largest
        # A score runs from -1, for a probability of 0 or the largest term of a sum, to 1.
        unit = 0.5 if largest is None else int(settings["partitions"]) * largest / 2
        answer = float(np.ravel(noisy)[place]) / unit - 1
        return self._told_of(place, answer if largest is None else -answer, self.release.scale[name] / unit)

    @cached_property
    def _doubts(self) -> list[Doubts]:
        settings = self.release.settings
        count = np.size(settings["cutoff"]) if self._tells else 0
        return [doubts_of_score(self._told(place), settings["method"], settings.get("p_min")) for place in range(count)]

    @property
    def _far(self) -> bool:
        partitions = int(self.release.settings["partitions"])
        biased = RULED * math.sqrt(partitions / max(1, self.release.n // partitions))
        low, middle, high = np.moveaxis(_crossings(*self._law, np.array([0.975, 0.5, 0.025])), -1, 0)
        away = np.minimum(np.abs(middle), Z_GRID[-1])
        return bool(((low * high > 0) & (away > FAR) & (away < FAR + biased)).any())

    def _ends(self, tails: Array) -> tuple[Array, Array]:
        """Invert the law of the noisy aggregate given the full-data z-score: Laplace noise and what averaging loses."""
        grid, cdf = self._law
        return special.ndtr(_crossings(grid, cdf, 1 - tails)), special.ndtr(_crossings(grid, cdf, tails))

    @cached_property
    def _law(self) -> tuple[Array, Array]:
        """A grid of full-data z-scores, and how likely each makes a mean as small as that released, (..., grid)."""
        settings = self.release.settings
        name, noisy = next(iter(self.release.values.items()))
        if self._tells:
            told = [self._told(place) for place in range(len(self._doubts))]
            how = settings["method"], settings.get("p_min")
            cdf = np.array([_mixture(*pair, *how) for pair in zip(told, self._doubts, strict=True)])
            return COARSE, cdf.reshape(*np.shape(noisy), -1)
        partitions, method = int(settings["partitions"]), str(settings["method"])
        size, nuisance = self.release.n // partitions, int(settings["nuisance"])
        centre, sd = _law_of_the_aggregate(method, partitions, size, nuisance, settings.get("p_min"))
        sign = -1.0 if method == "fisher" else 1.0  # the sum falls where the mean rises
        y = sign * np.asarray(noisy, dtype=np.float64)[..., None]
        return Z_GRID, normal_laplace_cdf(y, sign * centre, sd**2, self.release.scale[name])


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
        noisy = self._middle if self._tells else np.asarray(self.release["quantile"], dtype=np.float64)
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

    def _told(self, place: int) -> Told:
        low, high = self.bounds
        answer = (float(np.ravel(self.release["quantile"])[place]) - (low + high) / 2) * 2 / (high - low)
        return self._told_of(place, answer, self.release.scale["quantile"] * 2 / (high - low))

    @cached_property
    def _doubts(self) -> list[Doubts]:
        count = np.size(self.release.settings["probability"]) if self._tells else 0
        return [doubts_of_quantile(self._told(place)) for place in range(count)]

    @property
    def _failure(self) -> float:
        """The probability that a search for bounds failed; it needs more than half of the partitions to answer."""
        failure = float(self.release.settings["failure"])
        if self._doubts and self.release.settings["bounds"] == "centred":
            failure += float(np.mean(self._doubts[0].failed > TOO_MANY))
        return min(failure, 1.0)

    def _doubtful(self) -> Iterator[str]:
        failure = self._failure
        if failure >= UNSAFE:
            yield (
                f"the search for bounds may have failed, with a probability of up to {failure:.2g}, and 95 % "
                "intervals have no ends but those of the public range; give more epsilon, a larger share to the "
                "search, more partitions, or bounds=(low, high)"
            )
        (low, high), noisy = self.bounds, np.asarray(self.release["quantile"], dtype=np.float64)
        scale, half = self.release.scale["quantile"], (high - low) / 2
        if (np.abs(noisy - (low + high) / 2) > 0.9 * half + 3 * scale).any():
            yield "most partitions lie at or beyond an end of the bounds, which clip them; give wider bounds or range"
        yield from super()._doubtful()

    def _ends(self, tails: Array) -> tuple[Array, Array]:
        failure = self._failure
        widest = self.release.bounds.get("public_range", (-math.inf, math.inf))
        grid, cdf = self._law
        inner = np.maximum((2 * tails - failure) / 2, 0.0)
        shape = np.shape(self.release["quantile"])
        low, high = (
            np.array([np.interp(level, *pair) for pair in zip(cdf, grid, strict=True)]).reshape(*shape, len(tails))
            for level in (inner, 1 - inner)
        )
        low, high = np.where(failure >= tails, -np.inf, low), np.where(failure >= tails, np.inf, high)
        return np.maximum(low, widest[0]), np.minimum(high, widest[1])

    @cached_property
    def _law(self) -> tuple[Array, Array]:
        """Grids of the full-data quantiles, (questions, grid), and their distribution functions."""
        noisy = np.ravel(self.release["quantile"])
        if self._tells:
            return self._mixed_law
        scale, sd = self.release.scale["quantile"], self._residual_sd()
        error = np.linspace(0, 60 * max(scale, sd), 100_001)
        grid = np.concatenate([-error[:0:-1], error])
        cdf = normal_laplace_cdf(grid, 0.0, sd**2, scale)
        return noisy[:, None] + grid, np.broadcast_to(cdf, (len(noisy), len(grid)))

    @property
    def _middle(self) -> Estimate:
        grid, cdf = self._law
        found = np.array([np.interp(0.5, *pair) for pair in zip(cdf, grid, strict=True)])
        return found.reshape(np.shape(self.release["quantile"]))

    @cached_property
    def _mixed_law(self) -> tuple[Array, Array]:
        """The same, over what is not known: partitions that failed are left out of the mean."""
        low, high = self.bounds
        grids, cdfs = [], []
        for place, doubts in enumerate(self._doubts):
            told = self._told(place)
            alive = 1 - doubts.failed[:, None]
            variance, scale = doubts.variance / told.partitions, told.scale[0] / alive
            mean = told.answer / alive - doubts.push[:, None]
            sd = np.sqrt(variance[:, None] + 2 * scale**2)
            middle = float(np.median(mean))
            reach = np.arcsinh(15 * float(np.max(sd + np.abs(mean - middle))) / float(sd.min()))
            grid = middle + float(sd.min()) * np.sinh(np.linspace(-reach, reach, 801))
            cdfs.append(normal_laplace_cdf(grid, mean, variance[:, None], scale).mean(axis=0))
            grids.append((low + high) / 2 + (high - low) / 2 * grid)
        return np.array(grids), np.array(cdfs)

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


@lru_cache(maxsize=32)
def _law_of_scores(method: str, partitions: int, p_min: float | None) -> tuple[Array, Array, Array]:
    """Return z-scores, the mean score that each stands for, and the variance at z relative to that at 0, on COARSE."""
    options: dict[str, Any] = {"method": method} if p_min is None else {"method": method, "p_min": p_min}
    grid = np.linspace(-40, 40, 1601)
    mean, largest = aggregate_mean(grid, partitions, **options), score_of(method, p_min).largest
    sd = aggregate_sd(COARSE, partitions, **options)
    means = 2 * mean - 1 if largest is None else 1 - 2 * mean / (partitions * largest)
    return grid, means, (sd / sd[len(sd) // 2]) ** 2


def _mixture(told: Told, doubts: Doubts, method: str, p_min: float | None) -> Array:
    """Return how likely each z-score of the grid makes a mean of scores as small as that told, given the doubts."""
    m, alive = told.partitions, 1 - doubts.failed[:, None]
    grid, means, relative = _law_of_scores(method, m, p_min)
    scores = np.interp(doubts.slope[:, None] / alive * COARSE, grid, means)
    variance, means = doubts.variance[:, None] / m * relative, alive * scores + doubts.push[:, None]
    return np.asarray(normal_laplace_cdf(told.answer, means, variance, told.scale[0]).mean(axis=0))


def _in_order(noisy: Array, points: Array, *, increasing: bool) -> Array:
    """Return the nearest values that are monotone in the points (isotonic regression); ties are averaged."""
    if noisy.ndim == 0:
        return noisy
    distinct, where, counts = np.unique(points, return_inverse=True, return_counts=True)
    means = np.bincount(where, weights=noisy) / counts
    if len(distinct) > 1:
        means = isotonic_regression(means, weights=counts.astype(np.float64), increasing=increasing).x
    return np.asarray(means[where])


def _crossings(grid: Array, cdf: Array, levels: Array) -> Array:
    """Return the z-scores where falling curves (..., grid) cross levels, (..., levels); infinite where they do not."""
    falling = np.minimum.accumulate(cdf, axis=-1).reshape(-1, len(grid))
    above = len(grid) - np.stack([np.searchsorted(curve[::-1], levels, side="right") for curve in falling])
    i = np.clip(above, 1, len(grid) - 1)
    left, right = (np.take_along_axis(falling, i - k, axis=-1) for k in (1, 0))
    share = np.divide(left - levels, left - right, out=np.zeros_like(left), where=left > right)
    z = grid[i - 1] + np.clip(share, 0, 1) * (grid[1] - grid[0])
    found = np.where(above == 0, -np.inf, np.where(above == len(grid), np.inf, z))
    return found.reshape(*cdf.shape[:-1], len(levels))
