"""The curator's side of chapter 2: posterior probabilities and quantiles by sample-and-aggregate.

Split the records at random, ask each partition for its posterior's answer, average, add noise. Every release is private
for replace-one neighbours, n public, for *any* posterior: a replaced record changes one partition, and one partition's
answer is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpbook import noise
from dpbook._arrays import Array
from dpbook._validation import at_least, flag, integer, positive, seeded_generator
from dpbook.aggregate.asking import Split, points_of
from dpbook.aggregate.bounds import Centred, Given, Plan, SparseVector, plan_of
from dpbook.aggregate.laws import HALVED, SPREAD, clipped_at, halving, score_of
from dpbook.budget import PrivacyBudget, charge
from dpbook.mechanisms import above_threshold
from dpbook.records import exact_sum, grid_unit
from dpbook.release import Release
from dpbook.schema import Schema
from dpbook.sensitivity import answers_and_halves, bounded_sum, rounded

__all__ = ["FoundBounds", "release_bounds", "release_probability", "release_quantile"]


def release_probability(  # noqa: PLR0913 - keywords, most of which have defaults
    data: Any,
    cutoff: ArrayLike,
    *,
    posterior: Any,
    partitions: int,
    epsilon: float,
    method: str = "normality",
    p_min: float | None = None,
    spread: float | None = None,
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
    schema refuses does. Only the curator may see these errors. Explained in
    :doc:`/book/sample-and-aggregate/posterior-probabilities`.

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
    p_min : float, optional
        Of ``"fisher"``: smaller probabilities count as this one, by default 0.001.
    spread : float, optional
        The share of epsilon that tells how much partitions differ, without which intervals trust that they do not
        (:doc:`/book/sample-and-aggregate/when-parts-differ`). Each partition is then asked three times: as a whole, and
        its two halves. By default 0.15, and 0, which asks once, where a half has too few records for the posterior.
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
        With the noisy ``"mean"`` (normality) or ``"sum"`` (Fisher) in ``.values``; and with a ``spread`` the means over
        partitions of the ``"square"`` of an answer, mapped onto [-1, 1], of how it differs from its halves
        (``"halved"``, ``"halved_square"``) and the share that ``"failed"``. :func:`infer` reads them.

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
    >>> print(f"{release['mean']:.2f} {release.scale['mean']:.4f}", *list(release.values)[1:])
    0.44 0.0118 square halved halved_square failed
    """
    cutoffs, smallest = points_of("cutoff", cutoff), clipped_at(method, p_min)
    epsilon, dry_run, rng = _epsilon(epsilon), flag("dry_run", dry_run), seeded_generator(rng)
    size, largest = cutoffs.size, 1.0 if smallest is None else -2 * math.log(smallest)
    told, halved = _Told(size, _share(spread)), None if spread is None else spread > 0
    unit, bound = grid_unit(largest), bounded_sum(np.zeros(size), np.full(size, largest))
    if smallest is not None:  # probabilities end at 0 and 1, which are on the grid; logarithms do not
        bound = rounded(bound, size, unit)
    noise.require_laplace_on_sum(*(told.grid if told.share else (unit, bound)), epsilon, rng)
    split = Split.read(data, posterior, "probability", partitions, schema=schema, n=n, rng=rng, halved=halved)
    if dry_run and (budget is None or budget.can_spend(epsilon)):
        split.rehearse(cutoffs.ravel())
    paid = charge(budget, epsilon, 0.0, label=f"posterior probability ({method})")
    name, divisor = ("mean", split.partitions) if smallest is None else ("sum", 1)
    if split.halves is None:
        p = split.answers(cutoffs.ravel())
        if smallest is not None:
            with np.errstate(divide="ignore"):
                p = np.minimum(-2 * np.log(p), largest)
        noisy, scale = noise.add_laplace_to_sum(exact_sum(p, _as_they_are, unit=unit), bound, epsilon, rng)
        made = _Made.of(name, noisy / divisor, scale / divisor, bound / divisor)
    else:
        made = told.scores(split, cutoffs.ravel(), method, smallest, epsilon, rng)
        unit = 0.5 if smallest is None else split.partitions * largest / 2
        made = made.renamed(name, unit, unit)
    public = Release(
        values=made.shaped(cutoffs.shape),
        model="posterior probability",
        mechanism="laplace",
        scale=made.scale,
        sensitivity=made.sensitivity,
        epsilon=epsilon,
        n=split.n,
        settings={
            "method": method,
            "partitions": split.partitions,
            "cutoff": cutoffs.tolist(),
            **split.public,
            **told.settings(split),
            **({} if smallest is None else {"p_min": smallest}),
        },
        float_safe=rng is None,
    )
    return paid.entered(public)


def release_quantile(
    data: Any,
    probability: ArrayLike,
    *,
    posterior: Any,
    partitions: int,
    epsilon: float,
    bounds: Centred | SparseVector | tuple[float, float],
    spread: float | None = None,
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
    silently: an error would leak. Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.

    Parameters
    ----------
    data, partitions, epsilon, spread, schema, dry_run, n, rng, budget
        As in :func:`release_probability`.
    probability : float or sequence of float
        Of which quantiles, between 0 and 1. Several share one search for bounds, and the rest of epsilon equally.
    posterior : object
        A :class:`ConjugateRegression`, :class:`SemiConjugateRegression`, :class:`FromSampler`, or any object with
        ``quantile(partition, p, power=M)``.
    bounds : Centred, SparseVector or (low, high)
        How the bounds are searched for, within a public range or from zero outwards; or bounds known without the data.

    Returns
    -------
    Release
        With the noisy ``"quantile"`` in ``.values`` and, where they were searched for, the private ``"bounds"``; with a
        ``spread`` also what :func:`release_probability` names, on a scale on which the bounds are -1 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=10_000)
    >>> rows = np.column_stack([x, 1 + 2 * x + rng.normal(size=10_000)])
    >>> release = aggregate.release_quantile(
    ...     rows, 0.5, posterior=aggregate.ConjugateRegression(), partitions=100, epsilon=4.0,
    ...     bounds=aggregate.Centred((-10, 10)), rng=rng,
    ... )
    >>> bool(abs(release["quantile"] - 2) < 0.05)
    True
    """
    points = points_of("probability", probability)
    if not ((points > 0) & (points < 1)).all():
        raise ValueError(f"probability must lie strictly between 0 and 1, got {probability!r}")
    plan, epsilon = plan_of(bounds), _epsilon(epsilon)
    count = integer("partitions", partitions, least=2)
    spent = plan.spends(epsilon, count)
    dry_run, rng = flag("dry_run", dry_run), seeded_generator(rng)
    told, halved = _Told(points.size, _share(spread)), None if spread is None else spread > 0
    # Whatever the bounds turn out to be, the noise spans as many steps of their grid as for a half-width of 1.
    grid = told.grid if told.share else (grid_unit(1.0), _two_sided(1.0, points.size))
    noise.require_laplace_on_sum(*grid, epsilon - spent, rng)
    split = Split.read(data, posterior, "quantile", partitions, schema=schema, n=n, rng=rng, halved=halved)
    if dry_run and (budget is None or budget.can_spend(epsilon)):
        split.rehearse(points.ravel())
    paid = charge(budget, epsilon, 0.0, label="posterior quantile")
    q = split.answers(points.ravel())
    low, high = _found(plan, q, spent, rng)
    centre, half = (low + high) / 2, (high - low) / 2
    if split.halves is None:
        inside = np.nan_to_num(np.clip(q - centre, -half, half), nan=0.0)
        unit, bound = grid_unit(half), _two_sided(half, points.size)
        noisy, scale = noise.add_laplace_to_sum(exact_sum(inside, _as_they_are, unit=unit), bound, epsilon - spent, rng)
        made = _Made.of("quantile", centre + noisy / count, scale / count, bound / count)
    else:
        made = told.quantiles(split, q, points.ravel(), centre, half, epsilon - spent, rng)
        made = made.renamed("quantile", centre, half)
    values, scales, sensitivities = made.shaped(points.shape), {**made.scale}, {**made.sensitivity}
    if not isinstance(plan, Given):
        values["bounds"] = np.array([low, high])
        scales["bounds"], sensitivities["bounds"] = 2 / spent, 1.0
    public = Release(
        values=values,
        model="posterior quantile",
        mechanism="laplace",
        scale=scales,
        sensitivity=sensitivities,
        epsilon=epsilon,
        n=split.n,
        bounds=plan._public,
        settings={
            "partitions": count,
            "probability": points.tolist(),
            "bounds": plan.kind,
            "epsilon_bounds": spent,
            "failure": plan._failure(count, spent, width=high - low),
            **split.public,
            **told.settings(split),
        },
        float_safe=rng is None,
    )
    return paid.entered(public)


@dataclass(frozen=True)
class _Made:
    """What a release is made of: noisy values by name, with the scale of their noise and their sensitivity."""

    values: Mapping[str, Array]
    scale: Mapping[str, float]
    sensitivity: Mapping[str, float]

    @classmethod
    def of(cls, name: str, values: Array, scale: float, sensitivity: float) -> _Made:
        return cls({name: values}, {name: scale}, {name: sensitivity})

    def renamed(self, name: str, start: float, unit: float) -> _Made:
        """Return the answers under their own name and in their own unit, start + unit times the mean of scores."""
        rest = [key for key in self.values if key != "answer"]
        values = {name: start + unit * self.values["answer"], **{key: self.values[key] for key in rest}}
        scale, sensitivity = (
            {name: unit * given["answer"], **{key: given[key] for key in rest}}
            for given in (self.scale, self.sensitivity)
        )
        return _Made(values, scale, sensitivity)

    def shaped(self, shape: tuple[int, ...]) -> dict[str, Array]:
        """Return the values in the shape of the question; the share that failed is one for all questions."""
        return {name: each if name == "failed" else each.reshape(shape) for name, each in self.values.items()}


@dataclass(frozen=True)
class _Told:
    """Answers of partitions, released together with what they tell of how partitions differ, for ``share`` of epsilon.

    The weights make squares and failures cost nothing, and differences from halves the share.
    """

    questions: int
    share: float

    @property
    def _weights(self) -> dict[str, float]:
        halves = self.share / (1 - self.share)
        weights = {"answer": 1.0, "square": 0.5, "halved": halves, "halved_square": halves / 2}
        return weights | {"failed": self.questions * (1 + halves) / 2}

    @property
    def grid(self) -> tuple[float, float]:
        """The grid of the weighted statistics, and their joint sensitivity."""
        weights = self._weights
        unit = grid_unit(max(weights.values()))
        return unit, rounded(answers_and_halves(self.questions, halves=weights["halved"]), 4 * self.questions + 1, unit)

    def settings(self, split: Split) -> dict[str, float]:
        """Return what a release says of it."""
        return {"spread": 0.0} if split.halves is None else {"spread": self.share, "clip": HALVED}

    def scores(
        self,
        split: Split,
        points: Array,
        method: str,
        p_min: float | None,
        epsilon: float,
        rng: np.random.Generator | None,
    ) -> _Made:
        """Release the means of scores of probabilities; a half that failed says nothing in either direction."""
        score = score_of(method, p_min)
        p, halves = split.found(points), split.found_by_halves(points)
        one, other = np.where(np.isnan(halves), score.middle, score.of(halves))
        answers = score.of(p)
        apart = halving(answers, one, other, score.middle)
        return self._noisy(answers if p_min is None else -answers, apart, epsilon, rng)  # a sum of -2 log p falls

    def quantiles(
        self,
        split: Split,
        q: Array,
        points: Array,
        centre: float,
        half: float,
        epsilon: float,
        rng: np.random.Generator | None,
    ) -> _Made:
        """Release the means of quantiles, in half-widths from the centre, where a half that failed is."""
        answers, halves = (np.clip((each - centre) / half, -1.0, 1.0) for each in (q, split.found_by_halves(points)))
        return self._noisy(answers, answers - np.nan_to_num(halves, nan=0.0).mean(axis=0), epsilon, rng)

    def _noisy(self, answers: Array, apart: Array, epsilon: float, rng: np.random.Generator | None) -> _Made:
        """Release means over partitions; rows of NaN are partitions that failed, and count as 0 in all but that."""
        failed = np.asarray(np.isnan(answers).any(axis=1))[:, None]
        a = np.where(failed, 0.0, answers)
        d = np.where(failed, 0.0, np.clip(apart / HALVED, -1.0, 1.0))
        weights, (unit, bound) = self._weights, self.grid
        rows = {
            "answer": a,
            "square": a**2,
            "halved": d,
            "halved_square": d**2,
            "failed": failed.astype(np.float64),
        }
        table = np.concatenate([weights[name] * each for name, each in rows.items()], axis=1)
        noisy, scale = noise.add_laplace_to_sum(exact_sum(table, _as_they_are, unit=unit), bound, epsilon, rng)
        parts = dict(zip(rows, np.split(noisy, np.arange(1, 5) * self.questions), strict=True))
        units = {"answer": 1.0, "square": 1.0, "halved": HALVED, "halved_square": HALVED**2, "failed": 1.0}
        each = {name: units[name] / (weights[name] * len(answers)) for name in rows}
        return _Made(
            {name: (part[0] if name == "failed" else part) * each[name] for name, part in parts.items()},
            {name: scale * each[name] for name in rows},
            {name: bound * each[name] for name in rows},
        )


def _share(spread: float | None) -> float:
    """Return the share of epsilon that tells how partitions differ."""
    share = SPREAD if spread is None else at_least("spread", spread, 0.0)
    if not (share == 0 or 0.001 <= share <= 0.999):
        raise ValueError(f"spread must be 0 or lie between 0.001 and 0.999, got {spread!r}")
    return share


class FoundBounds(NamedTuple):
    """Bounds found privately: ``low``, ``high``, and whether they were ``found`` before a search by doubling gave up.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> aggregate.FoundBounds(-1.0, 1.0, True).high
    1.0

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """

    low: float
    high: float
    found: bool


def release_bounds(
    data: ArrayLike,
    search: Centred | SparseVector,
    *,
    epsilon: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> FoundBounds:
    """Release bounds for numbers, one per partition: what :func:`release_quantile` does before it clips and averages.

    epsilon-DP for replace-one neighbours, where replacing a record changes one number. Explained in
    :doc:`/book/sample-and-aggregate/posterior-quantiles`.

    Parameters
    ----------
    data : array
        One number per partition.
    search : Centred or SparseVector
        How to look; its ``share`` does not matter here.
    epsilon : float
        The privacy loss of the whole search.
    rng, budget
        As in :func:`release_probability`.

    Returns
    -------
    FoundBounds
        Within the public range, where the search has one.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rng = np.random.default_rng(0)
    >>> values = rng.normal(2, 0.1, 1000)
    >>> found = aggregate.release_bounds(values, aggregate.Centred((-10, 10)), epsilon=1.0, rng=rng)
    >>> bool(1.5 < found.low < 1.8 and 2.2 < found.high < 2.5)
    True
    >>> aggregate.release_bounds(values, aggregate.SparseVector(), epsilon=1.0, rng=rng)
    FoundBounds(low=-4.0, high=4.0, found=True)
    """
    numbers = np.asarray(data, dtype=np.float64)
    if numbers.ndim != 1 or numbers.size == 0:
        raise ValueError(f"data must be a list of at least one number, got shape {numbers.shape}")
    if isinstance(search, Centred):
        return _drawn_interval(numbers, search, positive("epsilon", epsilon), seeded_generator(rng), budget)
    if isinstance(search, SparseVector):
        return _first_that_holds(numbers, search, epsilon, rng, budget)
    raise TypeError(f"search must be Centred(...) or SparseVector(...), got {search!r}")


def _drawn_interval(
    numbers: Array, search: Centred, epsilon: float, rng: np.random.Generator | None, budget: PrivacyBudget | None
) -> FoundBounds:
    noise.require_choice(1.0, epsilon, rng)
    charge(budget, epsilon, 0.0, label="centred bounds")
    best = noise.choose(search._utilities(numbers), 1.0, epsilon, rng)
    return FoundBounds(*search._ends(best), True)


def _first_that_holds(
    numbers: Array, search: SparseVector, epsilon: float, rng: np.random.Generator | None, budget: PrivacyBudget | None
) -> FoundBounds:
    sizes, widths = np.abs(np.nan_to_num(numbers, nan=0.0)), search._half_widths()
    first = above_threshold(
        [float((sizes <= width).sum()) for width in widths],
        search.theta * len(numbers),
        sensitivity=1.0,
        epsilon=epsilon,
        monotone=True,
        rng=rng,
        budget=budget,
        label="doubled bounds",
    )
    low, high = search._within(widths[-1 if first is None else first])
    return FoundBounds(low, high, first is not None)


def _found(plan: Plan, q: Array, epsilon: float, rng: np.random.Generator | None) -> tuple[float, float]:
    """Return the bounds of the partitions' quantiles (M, K): given, or searched for around each row's middle."""
    if isinstance(plan, Given):
        return plan.low, plan.high
    middle = (q.min(axis=1) + q.max(axis=1)) / 2
    low, high, _ = release_bounds(middle, plan, epsilon=epsilon, rng=rng)
    return low, high


def _two_sided(half: float, size: int) -> float:
    """Return the sensitivity of ``size`` sums of values in [-half, half], each rounded to the grid."""
    return rounded(bounded_sum(np.full(size, -half), np.full(size, half)), size, grid_unit(half))


def _epsilon(value: float) -> float:
    """Return epsilon; raise unless noise can be drawn for it, on a grid of 2⁻³² and in floats."""
    epsilon = positive("epsilon", value)
    if not 1e-8 <= epsilon <= 1e15:
        raise ValueError(f"epsilon must lie between 1e-8 and 1e15, got {epsilon}")
    return epsilon


def _as_they_are(rows: Array) -> Array:
    return rows
