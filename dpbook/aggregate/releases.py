"""The curator's side of chapter 2: posterior probabilities and quantiles by sample-and-aggregate.

Split the records at random, ask each partition for its posterior's answer, average, add noise. Every release is private
for replace-one neighbours, n public, for *any* posterior: a replaced record changes one partition, and one partition's
answer is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from dpbook import noise
from dpbook._arrays import Array
from dpbook._validation import (
    finite_array,
    finite_number,
    flag,
    fraction,
    integer,
    interval,
    one_of,
    positive,
    seeded_generator,
)
from dpbook.aggregate import bounds as searches
from dpbook.aggregate.combining import CENTRED_WIDTH, RESCALES, aggregate_sd
from dpbook.aggregate.regression import _Regression
from dpbook.aggregate.samplers import ask_all, check_portable, checked_schema, examples, made_up, rehearse, takes
from dpbook.aggregate.splitting import Moments, checked_partitions, count_records, partition_frames, records_of
from dpbook.budget import PrivacyBudget, charge
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.records import exact_sum, grid_unit
from dpbook.release import Release
from dpbook.schema import Schema
from dpbook.sensitivity import bounded_sum, rounded

__all__ = [
    "ProbabilityPreview",
    "QuantilePreview",
    "partition_probabilities",
    "partition_quantiles",
    "preview_probability",
    "preview_quantile",
    "probability_nonprivate",
    "quantile_nonprivate",
    "release_probability",
    "release_quantile",
]

METHODS = ("normality", "fisher")


def release_probability(
    data: Any,
    cutoff: ArrayLike,
    *,
    posterior: Any,
    partitions: int,
    epsilon: float,
    method: str = "normality",
    rescale: str = "corrected",
    p_min: float = 0.001,
    schema: Schema | None = None,
    dry_run: bool = True,
    n: int | None = None,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release a noisy aggregate of the partitions' posterior probabilities that a parameter is at most a cutoff.

    epsilon-DP for replace-one neighbours, n public, whatever the posterior. Which partition a record goes to depends
    on its place and on random labels alone, so a replaced record changes one partition's probability, a number in
    [0, 1]. A posterior of yours is given frames that are functions of their own records alone
    (:func:`partition_frames`). A partition that fails on its data (singular, not finite, an error in a function of
    yours, a worker that dies) contributes the probability 1/2, silently: an error would leak. Without a schema, NaN, an
    infinite value or text in the data of a built-in regression raises before any budget is spent; with one, what the
    schema refuses does. Only the curator may see these errors.

    Parameters
    ----------
    data : array, DataFrame, pyarrow Table, mapping of columns, list of rows, Dask collection, or iterator of chunks
        One row per record. Built-in regressions read a stream in memory that does not grow with it; other posteriors
        hold the records.
    cutoff : float or sequence of float
        Where. Several cutoffs share epsilon equally: with K of them each has K times the noise.
    posterior : object
        A :class:`ConjugateRegression`, a :class:`FromSampler`, or any object with ``probability(partition, cutoff)``.
    partitions : int
        M, at least 2.
    epsilon : float
        The privacy loss of the whole release.
    method : {"normality", "fisher"}
        Average the probabilities; or add up -2 log p.
    rescale : {"corrected", "source"}
        For :func:`combine`: how a mean is sharpened.
    p_min : float, default 0.001
        With ``"fisher"``, smaller probabilities count as this one.
    schema : Schema, optional
        What a record is. Partitions then have its columns and types, numbers within its bounds and known labels alone.
    dry_run : bool, default True
        Before anything is charged, a posterior of yours is asked about made-up records: drawn from the schema or,
        without one, numbers under the names of the columns. (A list of rows has no such names, since a record's
        form is its own; without a schema it gets no dry run.) If it fails on all of four such tables, that is an error,
        and nothing is spent. Give False to a posterior that cannot work on made-up records.
    n : int, optional
        The public number of records, for an iterator. With it partitions have equal sizes and the release is that of
        the same data in memory; without it each record picks its partition independently.
    rng : numpy.random.Generator, optional
        Seeded labels and teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before posteriors are computed and noise is drawn.

    Returns
    -------
    Release
        With the noisy ``"mean"`` (normality) or ``"sum"`` (Fisher) as the only entry of ``.values``; :func:`combine`
        reads it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=10_000)
    >>> rows = np.column_stack([x, 1 + 2 * x + rng.normal(size=10_000)])
    >>> release = aggregate.release_probability(
    ...     rows, 2.01, posterior=aggregate.ConjugateRegression(), partitions=100, epsilon=1.0, rng=rng
    ... )
    >>> print(f"{release['mean']:.2f}", release.scale["mean"])
    0.43 0.01

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    one_of("method", method, METHODS)
    one_of("rescale", rescale, RESCALES)
    cutoffs = _points("cutoff", cutoff)
    epsilon, p_min = _epsilon(epsilon), fraction("p_min", p_min)
    dry_run, rng = flag("dry_run", dry_run), seeded_generator(rng)
    size, largest = cutoffs.size, 1.0 if method == "normality" else -2 * math.log(p_min)
    unit, bound = grid_unit(largest), bounded_sum(np.zeros(size), np.full(size, largest))
    if method != "normality":  # probabilities end at 0 and 1, which are on the grid
        bound = rounded(bound, size, unit)
    noise.require_laplace_on_sum(unit, bound, epsilon, rng)
    split = _Split.read(data, posterior, "probability", partitions, n, rng, schema=schema)
    if dry_run and (budget is None or budget.can_spend(epsilon)):
        _rehearse(split, "probability", cutoffs.ravel())
    charge(budget, epsilon, 0.0, label=f"posterior probability ({method})")
    p = split.probabilities(cutoffs.ravel())
    if method != "normality":
        with np.errstate(divide="ignore"):
            p = np.minimum(-2 * np.log(p), largest)
    total = exact_sum(p, _as_they_are, unit=unit)
    noisy, scale = noise.add_laplace_to_sum(total, bound, epsilon, rng)
    name, divisor = ("mean", split.partitions) if method == "normality" else ("sum", 1)
    settings: dict[str, Any] = {"method": method, "partitions": split.partitions, "cutoff": cutoffs.tolist()}
    settings["nuisance"] = split.nuisance
    settings |= {"rescale": rescale} if method == "normality" else {"rescale": "corrected", "p_min": p_min}
    return Release(
        values={name: (noisy / divisor).reshape(cutoffs.shape)},
        model="posterior probability",
        mechanism="laplace",
        scale={name: scale / divisor},
        sensitivity={name: bound / divisor},
        epsilon=epsilon,
        n=split.n,
        settings=settings,
        float_safe=rng is None,
    )


def release_quantile(
    data: Any,
    probability: ArrayLike,
    *,
    posterior: Any,
    partitions: int,
    epsilon: float,
    split: float | None = None,
    bounds: str | tuple[float, float] = "centred",
    public_range: tuple[float, float] | None = None,
    theta: float = 0.95,
    start: float = 1.0,
    doublings: int = 30,
    resolution: int = searches.RESOLUTION,
    schema: Schema | None = None,
    dry_run: bool = True,
    n: int | None = None,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release a noisy mean of the partitions' posterior quantiles, each with its likelihood raised to the power M.

    epsilon-DP for replace-one neighbours, n public, whatever the posterior. The M-th power makes each partition's
    posterior as narrow as the full-data one; the quantiles are clipped to bounds and averaged. Finding bounds
    privately costs a share of epsilon. A partition that fails on its data contributes the centre of the bounds,
    silently: an error would leak.

    Parameters
    ----------
    data : array, DataFrame, pyarrow Table, mapping of columns, list of rows, Dask collection, or iterator of chunks
        As in :func:`release_probability`.
    probability : float or sequence of float
        Of which quantiles, between 0 and 1. Several share one search for bounds, and the rest of epsilon equally.
    posterior : object
        A :class:`ConjugateRegression`, :class:`SemiConjugateRegression`, :class:`FromSampler`, or any object with
        ``quantile(partition, p, power=M)``.
    partitions : int
        M, at least 2.
    epsilon : float
        The privacy loss of the whole release.
    split : float, optional
        The share of epsilon that the search for bounds spends. By default 1/2 for ``"sparse-vector"``, and for
        ``"centred"`` 1/2 but no more than an epsilon of 200 / M, beyond which better bounds hardly help.
    bounds : {"centred", "sparse-vector"} or (low, high)
        How the bounds are found (:func:`centred_bounds`, :func:`doubled_bounds`), or bounds known without the data.
    public_range : (low, high), optional
        Where the quantiles can lie; needed by ``"centred"``.
    theta, start, doublings
        Of ``"sparse-vector"``.
    resolution
        Of ``"centred"``.
    schema, dry_run, n, rng, budget
        As in :func:`release_probability`.

    Returns
    -------
    Release
        With the noisy ``"quantile"`` and, where they were searched for, the private ``"bounds"`` in ``.values``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=10_000)
    >>> rows = np.column_stack([x, 1 + 2 * x + rng.normal(size=10_000)])
    >>> release = aggregate.release_quantile(
    ...     rows, 0.5, posterior=aggregate.ConjugateRegression(), partitions=100, epsilon=4.0,
    ...     public_range=(-10, 10), rng=rng,
    ... )
    >>> bool(abs(release["quantile"] - 2) < 0.05)
    True

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """
    points = _points("probability", probability)
    if not ((points > 0) & (points < 1)).all():
        raise ValueError(f"probability must lie strictly between 0 and 1, got {probability!r}")
    search = _Search.check(bounds, public_range, theta, start, doublings, resolution)
    epsilon = _epsilon(epsilon)
    count = integer("partitions", partitions, least=2)
    spent = search.spends(epsilon, count, split)
    dry_run, rng = flag("dry_run", dry_run), seeded_generator(rng)
    size = points.size
    # Whatever the bounds turn out to be, the noise spans as many steps of their grid as for a half-width of 1.
    noise.require_laplace_on_sum(grid_unit(1.0), _two_sided(1.0, size), epsilon - spent, rng)
    parts = _Split.read(data, posterior, "quantile", partitions, n, rng, schema=schema)
    if dry_run and (budget is None or budget.can_spend(epsilon)):
        _rehearse(parts, "quantile", points.ravel())
    charge(budget, epsilon, 0.0, label="posterior quantile")
    q = parts.quantiles(points.ravel())
    middle = (q.min(axis=1) + q.max(axis=1)) / 2
    low, high = search.find(middle, spent, rng)
    centre, half = (low + high) / 2, (high - low) / 2
    inside = np.nan_to_num(np.clip(q - centre, -half, half), nan=0.0)
    unit, bound = grid_unit(half), _two_sided(half, size)
    noisy, scale = noise.add_laplace_to_sum(exact_sum(inside, _as_they_are, unit=unit), bound, epsilon - spent, rng)
    values = {"quantile": (centre + noisy / count).reshape(points.shape)}
    scales, sensitivities = {"quantile": scale / count}, {"quantile": bound / count}
    if search.kind != "given":
        values["bounds"] = np.array([low, high])
        scales["bounds"], sensitivities["bounds"] = 2 / spent, 1.0
    return Release(
        values=values,
        model="posterior quantile",
        mechanism="laplace",
        scale=scales,
        sensitivity=sensitivities,
        epsilon=epsilon,
        n=parts.n,
        bounds=search.public,
        settings={
            "partitions": count,
            "probability": points.tolist(),
            "bounds": search.kind,
            "epsilon_bounds": spent,
            "failure": search.failure(count, spent, high - low),
            "nuisance": parts.nuisance,
        },
        float_safe=rng is None,
    )


def probability_nonprivate(data: Any, cutoff: ArrayLike, *, posterior: Any, schema: Schema | None = None) -> Any:
    """Return the full-data posterior probability: the answer that the partitions stand in for. Not private.

    Parameters
    ----------
    data, cutoff, posterior, schema
        As in :func:`release_probability`.

    Returns
    -------
    float or ndarray
        Of the shape of ``cutoff``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rows = np.array([[0.0, 0.1], [1.0, 1.9], [2.0, 4.2], [3.0, 5.9]])
    >>> print(aggregate.probability_nonprivate(rows, 2.0, posterior=aggregate.ConjugateRegression()).round(3))
    0.719

    Explained in :doc:`/book/sample-and-aggregate/split-compute-average`.
    """
    return posterior.probability(_whole(data, posterior, schema), _points("cutoff", cutoff))


def quantile_nonprivate(data: Any, probability: ArrayLike, *, posterior: Any, schema: Schema | None = None) -> Any:
    """Return the full-data posterior quantile: the answer that the partitions stand in for. Not private.

    Parameters
    ----------
    data, probability, posterior, schema
        As in :func:`release_quantile`.

    Returns
    -------
    float or ndarray
        Of the shape of ``probability``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rows = np.array([[0.0, 0.1], [1.0, 1.9], [2.0, 4.2], [3.0, 5.9]])
    >>> model = aggregate.ConjugateRegression(prior=aggregate.Flat())
    >>> print(aggregate.quantile_nonprivate(rows, 0.5, posterior=model).round(3))
    1.97

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """
    return posterior.quantile(_whole(data, posterior, schema), _points("probability", probability), power=1.0)


def partition_probabilities(
    data: Any,
    cutoff: ArrayLike,
    *,
    posterior: Any,
    partitions: int,
    schema: Schema | None = None,
    n: int | None = None,
    rng: np.random.Generator | None = None,
) -> Array:
    """Return every partition's posterior probability: what a release averages. Not private: for the curator's eyes.

    Parameters
    ----------
    data, cutoff, posterior, partitions, schema, n
        As in :func:`release_probability`.
    rng : numpy.random.Generator, optional
        Source of the labels. The same generator gives the split of a seeded release.

    Returns
    -------
    ndarray
        Of shape (M,) for one cutoff, (M, K) for K of them; 1/2 where a partition failed.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(200, 2))
    >>> aggregate.partition_probabilities(rows, 0.0, posterior=aggregate.ConjugateRegression(), partitions=4).shape
    (4,)

    Explained in :doc:`/book/sample-and-aggregate/split-compute-average`.
    """
    cutoffs = _points("cutoff", cutoff)
    split = _Split.read(data, posterior, "probability", partitions, n, seeded_generator(rng), schema=schema)
    return split.probabilities(cutoffs.ravel()).reshape(-1, *cutoffs.shape)


def partition_quantiles(
    data: Any,
    probability: ArrayLike,
    *,
    posterior: Any,
    partitions: int,
    schema: Schema | None = None,
    n: int | None = None,
    rng: np.random.Generator | None = None,
) -> Array:
    """Return every partition's quantile, with its likelihood to the power M. Not private: for the curator's eyes.

    Parameters
    ----------
    data, probability, posterior, partitions, schema, n
        As in :func:`release_quantile`.
    rng : numpy.random.Generator, optional
        Source of the labels. The same generator gives the split of a seeded release.

    Returns
    -------
    ndarray
        Of shape (M,) for one probability, (M, K) for K of them; NaN where a partition failed.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(200, 2))
    >>> aggregate.partition_quantiles(rows, [0.1, 0.9], posterior=aggregate.ConjugateRegression(), partitions=4).shape
    (4, 2)

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """
    points = _points("probability", probability)
    split = _Split.read(data, posterior, "quantile", partitions, n, seeded_generator(rng), schema=schema)
    return split.quantiles(points.ravel()).reshape(-1, *points.shape)


@dataclass(frozen=True)
class ProbabilityPreview:
    """What a release of a posterior probability would be worth, from public numbers.

    Attributes
    ----------
    noise_scale : float
        The Laplace scale on the mean (normality) or the sum (Fisher).
    noise_sd, residual_sd : float
        Standard deviations, in full-data posterior sds of the parameter, of the z-score at the middle: from the
        noise, and from averaging itself, which no epsilon removes.
    rmse : float
        Expected root mean squared error of the probability where the true one is 1/2, the worst place.
    average_rmse : float
        The same over cutoffs drawn from the full-data posterior itself, where every true probability is as likely.
    records : int
        Records a partition.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> aggregate.preview_probability(n=100_000, partitions=1000, epsilon=0.25).noise_scale
    0.004

    Explained in :doc:`/book/sample-and-aggregate/when-to-use-it`.
    """

    noise_scale: float
    noise_sd: float
    residual_sd: float
    rmse: float
    average_rmse: float
    records: int


def preview_probability(
    *,
    n: int,
    partitions: int,
    epsilon: float,
    method: str = "normality",
    cutoffs: int = 1,
    p_min: float = 0.001,
    nuisance: int = 1,
) -> ProbabilityPreview:
    """Say, before anything is spent, how far a released probability would be from the full-data one.

    Parameters
    ----------
    n, partitions : int
        Records and partitions.
    epsilon : float
        The privacy loss.
    method, p_min
        As in :func:`release_probability`.
    cutoffs : int, default 1
        How many cutoffs share epsilon.
    nuisance : int, default 1
        Other coefficients that each partition estimates, the intercept among them.

    Returns
    -------
    ProbabilityPreview
        For partitions with equal normal posteriors.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> look = aggregate.preview_probability(n=100_000, partitions=1000, epsilon=0.25)
    >>> print(f"{look.noise_sd:.2f} {look.residual_sd:.2f} {look.rmse:.2f} {look.average_rmse:.2f}")
    0.63 0.25 0.21 0.18

    Explained in :doc:`/book/sample-and-aggregate/when-to-use-it`.
    """
    one_of("method", method, METHODS)
    m = checked_partitions(partitions, integer("n", n, least=1), 1)
    epsilon, count = positive("epsilon", epsilon), integer("cutoffs", cutoffs, least=1)
    sd = float(aggregate_sd(0.0, m, method=method, p_min=p_min, size=n // m, nuisance=nuisance))
    if method == "normality":
        scale, stretch = count / (m * epsilon), math.sqrt((2 * m - 1) * 2 * math.pi)
    else:
        scale, stretch = -2 * math.log(p_min) * count / epsilon, 1 / (2 * math.sqrt(m))
    z = np.linspace(-12, 12, 4801)
    weight = np.exp(normal_laplace_logpdf(z, 0.0, (sd * stretch) ** 2, scale * stretch)) * (z[1] - z[0])
    true = special.ndtri((np.arange(40) + 0.5) / 40)[:, None]
    squares = (weight * (special.ndtr(np.stack([true + z, 0 * true + z])) - special.ndtr([true, 0 * true])) ** 2).sum(
        -1
    )
    # What of the noise lies beyond the grid moves the answer to 0 or 1.
    squares += max(0.0, 1 - float(weight.sum())) * (special.ndtr([true, 0 * true])[..., 0] ** 2 + 0.25) / 2
    average, middle = (math.sqrt(each) for each in squares.mean(axis=1))
    return ProbabilityPreview(scale, math.sqrt(2) * scale * stretch, sd * stretch, middle, average, n // m)


@dataclass(frozen=True)
class QuantilePreview:
    """What a release of a posterior quantile would be worth, from public numbers.

    Attributes
    ----------
    noise_scale : float
        The Laplace scale on the quantile.
    noise_sd, residual_sd : float
        Standard deviations of the quantile: from the noise, and from averaging and clipping.
    rmse : float
        Both together.
    epsilon_bounds : float
        What the search for bounds spends.
    failure : float
        A bound on the probability that the search fails.
    records : int
        Records a partition.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> print(f"{aggregate.preview_quantile(n=100_000, partitions=1000, epsilon=0.9).noise_scale:.2f}")
    0.27

    Explained in :doc:`/book/sample-and-aggregate/when-to-use-it`.
    """

    noise_scale: float
    noise_sd: float
    residual_sd: float
    rmse: float
    epsilon_bounds: float
    failure: float
    records: int


def preview_quantile(
    *,
    n: int,
    partitions: int,
    epsilon: float,
    bounds: str | tuple[float, float] = "centred",
    split: float | None = None,
    probabilities: int = 1,
    posterior_sd: float = 1.0,
    public_range: tuple[float, float] | None = None,
    magnitude: float | None = None,
    start: float = 1.0,
) -> QuantilePreview:
    """Say, before anything is spent, how far a released quantile would be from the full-data one.

    Parameters
    ----------
    n, partitions : int
        Records and partitions.
    epsilon : float
        The privacy loss.
    bounds, split, start
        As in :func:`release_quantile`.
    probabilities : int, default 1
        How many quantiles share epsilon.
    posterior_sd : float, default 1.0
        A guess, made without the data, at the full-data posterior sd; 1 gives answers in posterior sds.
    public_range : (low, high), optional
        For ``"centred"``, to say how likely the search is to fail; without it the worst case is told.
    magnitude : float, optional
        For ``"sparse-vector"``, a guess at the quantile's absolute size, in the same unit as ``start``.

    Returns
    -------
    QuantilePreview
        In units of the parameter.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> look = aggregate.preview_quantile(
    ...     n=100_000, partitions=100, epsilon=0.9, posterior_sd=0.03, public_range=(-10, 10)
    ... )
    >>> print(f"{look.noise_sd:.3f}", look.failure < 1e-4)
    0.057 True

    Explained in :doc:`/book/sample-and-aggregate/when-to-use-it`.
    """
    m = checked_partitions(partitions, integer("n", n, least=1), 1)
    epsilon, count = positive("epsilon", epsilon), integer("probabilities", probabilities, least=1)
    sd = positive("posterior_sd", posterior_sd)
    known = public_range is not None or bounds != "centred"
    span = public_range if known else (0.0, 1.0)
    search = _Search.check(bounds, span, 0.95, start, 30, searches.RESOLUTION)
    spent = search.spends(epsilon, m, split)
    spread = math.sqrt(m) * sd
    if search.kind == "centred":
        width = CENTRED_WIDTH * spread
    elif search.kind == "given":
        width = search.given[1] - search.given[0]
    else:
        if magnitude is None:
            raise ValueError("magnitude must be given to preview bounds = 'sparse-vector': they grow from 0 to it")
        reach = abs(finite_number("magnitude", magnitude)) + 2 * spread
        width = 2 * start * 2.0 ** max(0, math.ceil(math.log2(reach / start)))
    scale = width * count / (m * (epsilon - spent))
    residual = sd * math.sqrt(3 / max(1, n // m))
    noise_sd = math.sqrt(2) * scale
    failure = search.failure(m, spent, width if known else None)
    return QuantilePreview(scale, noise_sd, residual, math.hypot(noise_sd, residual), spent, failure, n // m)


# ---------------------------------------------------------------------------------------------------------------------
# The parts of a release


def _two_sided(half: float, size: int) -> float:
    """Return the sensitivity of ``size`` sums of values in [-half, half], each rounded to the grid."""
    return rounded(bounded_sum(np.full(size, -half), np.full(size, half)), size, grid_unit(half))


def _epsilon(value: float) -> float:
    """Return epsilon; raise unless noise can be drawn for it, on a grid of 2⁻³² and in floats."""
    epsilon = positive("epsilon", value)
    if not 1e-8 <= epsilon <= 1e15:
        raise ValueError(f"epsilon must lie between 1e-8 and 1e15, got {epsilon}")
    return epsilon


def _points(name: str, value: ArrayLike) -> Array:
    """Return a number as a 0-d array, or a list of them as a 1-d array."""
    points = finite_array(name, value)
    if points.ndim > 1 or points.size == 0:
        raise ValueError(f"{name} must be a number or a list of numbers, got shape {points.shape}")
    return points


def _as_they_are(rows: Array) -> Array:
    return rows


def _whole(data: Any, posterior: Any, schema: Schema | None) -> Any:
    """Return data in the form in which a posterior takes one partition that is everything."""
    known = _schema_of(schema, posterior)
    if isinstance(posterior, _Regression):
        return data if known is None else known.apply(data)
    return partition_frames(data, partitions=1, schema=known)[0]


def _schema_of(schema: Any, posterior: Any) -> Schema | None:
    """Return the schema of a release: its own, or the one that its posterior brings."""
    given, brought = checked_schema(schema), getattr(posterior, "schema", None)
    if not isinstance(brought, Schema):
        return given
    if given is not None and given != brought:
        raise ValueError("schema must be the one of the posterior, which brings another")
    return brought


def _rehearse(split: _Split, question: str, points: Array) -> None:
    """Raise, before anything is charged, where a posterior that is not built in fails on made-up records."""
    if isinstance(split.posterior, _Regression) or (split.schema is None and not split.header):
        return
    size = max(1, split.n // split.partitions)
    frames = made_up(split.header, size) if split.schema is None else examples(split.schema, size)
    ask, options = getattr(split.posterior, question), split.options(question)
    wrong = rehearse(ask, frames, points, options, n_jobs=getattr(split.posterior, "n_jobs", None))
    if wrong:
        kind = "numbers under the names of the columns" if split.schema is None else "records drawn from the schema"
        hint = "Give schema= so that made-up records look like yours" if split.schema is None else "Mend it"
        raise ValueError(
            f"posterior must answer, and failed in a dry run on {kind}, {list(split.header)}: its method {question!r} "
            f"{wrong}. Nothing was spent. {hint}, or give dry_run=False to go on regardless"
        )


@dataclass(frozen=True)
class _Split:
    """The records, read and split: moments for a built-in regression, data frames for anything else."""

    posterior: Any
    partitions: int
    n: int
    parts: Moments | list[pd.DataFrame]
    rng: np.random.Generator  # for the partitions' own generators; the noise has another
    schema: Schema | None = None
    header: tuple[Hashable, ...] = ()

    @classmethod
    def read(
        cls,
        data: Any,
        posterior: Any,
        question: str,
        partitions: Any,
        n: int | None,
        rng: np.random.Generator | None,
        *,
        schema: Schema | None = None,
    ) -> _Split:
        if isinstance(posterior, type) or not callable(getattr(posterior, question, None)):
            raise TypeError(f"posterior must be an object with a method {question!r}, got {posterior!r}")
        if question == "quantile" and not takes(posterior.quantile, "power"):
            raise TypeError("posterior must have a method quantile(partition, p, power): it does not take power")
        least = integer("least_records", getattr(posterior, "least_records", 1), least=1)
        schema = _schema_of(schema, posterior)
        public = n if n is None else integer("n", n, least=1)
        known = count_records(data)
        count = checked_partitions(partitions, public if known is None else known, least)
        if known == 0:
            raise ValueError("data must hold at least one record, got none")
        # Labels from a generator of their own: the noise then does not depend on how many labels were drawn.
        labels = np.random.default_rng(None if rng is None else rng.integers(2**63, size=2))
        if isinstance(posterior, _Regression):
            moments = posterior._moments(data if schema is None else schema.apply(data), count, public, labels)
            size = int(moments.n.sum())
            checked_partitions(count, size, least)
            return cls(posterior, count, size, moments, labels)
        check_portable(getattr(posterior, question), getattr(posterior, "n_jobs", None))
        records = records_of(data, schema)
        frames = records.split(count, public, labels)
        checked_partitions(count, records.n, least)
        return cls(posterior, count, records.n, frames, labels, schema, records.header)

    @property
    def nuisance(self) -> int:
        """How many other parameters a partition estimates; for a posterior that does not say, one."""
        if isinstance(self.posterior, _Regression):
            return len(self.posterior.names) - 1
        return integer("nuisance", getattr(self.posterior, "nuisance", 1), least=0)

    def options(self, question: str) -> dict[str, float]:
        """Return the powers of likelihood and prior with which partitions are asked."""
        if question == "probability":
            return {"power": 1.0, "prior_power": 1 / self.partitions}
        return {"power": float(self.partitions), "prior_power": 1.0}

    def _ask(self, question: str, points: Array) -> Array:
        options = self.options(question)
        if isinstance(self.parts, Moments):
            batch = getattr(self.posterior, f"_batch_{question}")
            return np.asarray(batch(self.parts, points, **options))
        n_jobs = getattr(self.posterior, "n_jobs", None)
        ask = getattr(self.posterior, question)
        return ask_all(ask, self.parts, points, options, n_jobs=n_jobs, rng=self.rng)

    def probabilities(self, cutoffs: Array) -> Array:
        """Return (M, K) numbers in [0, 1]; 1/2 where a partition failed."""
        p = self._ask("probability", cutoffs)
        failed = np.asarray(~np.isfinite(p).all(axis=1))
        return np.where(failed[:, None], 0.5, np.clip(p, 0.0, 1.0))

    def quantiles(self, points: Array) -> Array:
        """Return (M, K) numbers; NaN where a partition failed."""
        q = self._ask("quantile", points)
        failed = np.asarray(~np.isfinite(q).all(axis=1))
        return np.where(failed[:, None], np.nan, q)


@dataclass(frozen=True)
class _Search:
    """How the bounds of a quantile are found, checked."""

    kind: str
    given: tuple[float, float]
    public: dict[str, tuple[float, float]]
    theta: float
    start: float
    doublings: int
    resolution: int

    @classmethod
    def check(
        cls, bounds: Any, public_range: Any, theta: float, start: float, doublings: int, resolution: int
    ) -> _Search:
        theta, start = fraction("theta", theta), positive("start", start)
        doublings = integer("doublings", doublings, least=0)
        resolution = integer("resolution", resolution, least=2)
        kind, given, public = "given", (0.0, 0.0), {}
        if isinstance(bounds, str):
            kind = one_of("bounds", bounds, ("centred", "sparse-vector"))
            if kind == "centred" and public_range is None:
                raise ValueError("public_range must be given for bounds = 'centred': where can the quantile lie?")
            if kind == "sparse-vector" and math.log2(start) + doublings > 1000:
                raise ValueError(f"doublings must keep the widest bounds finite, got {doublings} from start = {start}")
            if public_range is not None:
                public = {"public_range": interval("public_range", public_range)}
        else:
            given = interval("bounds", bounds)
            if public_range is not None:
                raise ValueError("public_range is not used where bounds are given")
            public = {"quantile": given}
        search = cls(kind, given, public, theta, start, doublings, resolution)
        search._require_grids()
        return search

    def _require_grids(self) -> None:
        """Raise unless all bounds that may be found have a centre and a grid: afterwards it would cost epsilon."""
        with np.errstate(all="ignore"):
            if self.kind == "centred":
                public = self.public["public_range"]
                low, width, _ = searches._candidates(*public, self.resolution)
                high = np.minimum(low + width, public[1])
            else:
                found = [self._within(math.ldexp(self.start, t)) for t in range(self.doublings + 1)]
                low, high = np.array([self.given] if self.kind == "given" else found).T
            half, finite = (high - low) / 2, bool(np.isfinite(low + high).all())
        if not (finite and half.min() >= 2.0**-990 and half.max() <= 2.0**990):
            raise ValueError(
                "bounds, public_range or start must be rescaled: bounds that may be found are too wide, or too narrow "
                f"for floats, with half-widths from {half.min():.3g} to {half.max():.3g}"
            )

    def _within(self, half: float) -> tuple[float, float]:
        """Return the symmetric bounds cut to the public range, or that range where nothing is left."""
        low, high = self.public.get("public_range", (-half, half))
        cut = max(low, -half), min(high, half)
        return cut if cut[0] < cut[1] else (low, high)

    def spends(self, epsilon: float, partitions: int, split: float | None) -> float:
        """Return the epsilon of the search."""
        if self.kind == "given":
            if split is not None:
                raise ValueError("split is not used where bounds are given: all of epsilon goes to the mean")
            return 0.0
        if split is not None:
            spent = epsilon * fraction("split", split)
            if min(spent, epsilon - spent) < 1e-9:
                raise ValueError(f"split must leave at least 1e-9 of epsilon = {epsilon} on both sides, got {split}")
            return spent
        return epsilon / 2 if self.kind == "sparse-vector" else min(epsilon / 2, 200 / partitions)

    def find(self, values: Array, epsilon: float, rng: np.random.Generator | None) -> tuple[float, float]:
        if self.kind == "given":
            return self.given
        if self.kind == "centred":
            public = self.public["public_range"]
            found = searches.centred_bounds(
                values, public_range=public, epsilon=epsilon, resolution=self.resolution, rng=rng
            )
            return found.low, found.high
        found = searches.doubled_bounds(
            values, epsilon=epsilon, theta=self.theta, start=self.start, doublings=self.doublings, rng=rng
        )
        return self._within(found.high)

    def failure(self, partitions: int, epsilon: float, width: float | None) -> float:
        """Bound the probability that the search failed, given the width that it found (None: before it is known)."""
        if self.kind == "centred":
            low, high = self.public["public_range"]
            narrowing = self.resolution if width is None else (high - low) / width
            return searches.centred_failure(partitions, epsilon, narrowing=narrowing, resolution=self.resolution)
        if self.kind == "sparse-vector":
            return searches.doubling_failure(partitions, epsilon, theta=self.theta, doublings=self.doublings)
        return 0.0
