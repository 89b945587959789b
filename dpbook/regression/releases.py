"""The curator's side: noisy sufficient statistics of a linear regression.

Every release is private for replace-one neighbours, n public: a record is one row, covariates and response together.
Chapter 4 explains them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dpbook import noise
from dpbook._arrays import Array
from dpbook._sources import source_of
from dpbook._validation import column_labels, flag, privacy_loss, seeded_generator
from dpbook.budget import PrivacyBudget, charge
from dpbook.records import as_chunks, exact_sum, side_by_side
from dpbook.regression.cell_releases import release_by_cell
from dpbook.regression.coordinates import MODEL, Coordinates, column_bounds, column_names, covariate_bounds
from dpbook.regression.layout import Layout
from dpbook.regression.planning import by_cell_only, designed
from dpbook.regression.sensitivities import UNIT, Plan
from dpbook.release import Release
from dpbook.schema import Schema
from dpbook.sensitivity import check_share

__all__ = ["release"]


def release(  # noqa: PLR0913 - every keyword is a fact that a curator states
    X: Any,
    y: Any = None,
    *,
    x_bounds: Any = None,
    y_bounds: tuple[float, float] | None = None,
    schema: Schema | None = None,
    formula: str | None = None,
    epsilon: float,
    intercept: bool = True,
    moments: bool = False,
    mechanism: str = "laplace",
    delta: float = 0.0,
    check: float = 0.0,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the sufficient statistics of a linear regression with noise, and how many records were clipped.

    epsilon-DP (Laplace) or (epsilon, delta)-DP (Gaussian) for replace-one neighbours, n public; a record is a row of X
    with its y. Columns are clipped to their bounds, then centred and scaled to [-1, 1] (without an intercept: scaled
    only), so that the noise does not depend on the units, and the noise fits the exact joint sensitivity of the sums.
    Infinite values are clipped like all others beyond the bounds. A missing value (NaN, None, masked) or text raises
    an error, which is not private: only the curator may see it. Nothing else about the values raises.

    Parameters
    ----------
    X : array, table, path, Arrow data set or stream, iterator of chunks, or Dask collection
        The covariates, one column each, without a column of ones; one-dimensional data are one covariate.
    y : array, Series, iterator of chunks, Dask collection, str or int
        The response; or the name of the column of the tables X that holds it, or its position in the arrays X (-1 for
        the last), so that both travel together. A separate y is paired with X by position alone, row by row; an index
        plays no part (:func:`~dpbook.records.side_by_side`), and unequal lengths raise. Dask collections are paired
        partition by partition, whose lengths must agree.
    x_bounds : (low, high), list of (low, high) or mapping of str to (low, high)
        Public bounds of the covariates: one pair for all, a list with a tuple for each, or a mapping from the names of
        X's columns. They come from what is known without the data.
    y_bounds : (low, high)
        Public bounds of the response.
    schema : Schema, optional
        In place of ``x_bounds``: the columns of the table X, of which a Category or a Flag enters by its labels (all
        but the first, the reference), a Number or Integer by its value. Sums are then taken cell by cell of the labels,
        and the noise fits their own, much smaller sensitivity. The response is one of its columns, named by ``y``, or
        comes with ``y_bounds``. Missing values are dealt with as the schema says; with ``missing="category"`` a missing
        label is a label, and a missing number has a coefficient of its own, ``"age[missing]"``. Explained in
        :doc:`/book/regression/categories`.
    formula : str, optional
        Beside a schema, in place of ``y``: ``"wage ~ age + C(region) + age:C(region)"``, with transforms of one column
        by public constants, such as ``np.log(wage)`` (extra ``formula``). What depends on other records is refused.
    epsilon : float
        The privacy loss.
    intercept : bool, default True
        Whether the regression has an intercept; then the sums of the columns themselves are released too.
    moments : bool, default False
        Whether to release the third and fourth moments of the covariates as well, in the same release, for
        ``infer(method="gibbs-noisy")``.
    mechanism : {"laplace", "gaussian"}
        The noise.
    delta : float, default 0.0
        0 for Laplace noise, greater than 0 for Gaussian noise.
    check : float, default 0.0
        The share of the privacy loss, such as 0.1, that counts of clipped records take: :func:`infer` then knows
        whether responses or covariates were clipped, which no sum tells, chooses its method by that, and warns. A
        record of which several columns were clipped counts for each of them in equal parts. Explained in
        :doc:`/book/regression/bounds-and-clipping`.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    Release
        With ``.values["sums"]``, the noisy sums of the products of (1, x, y) in the order of
        :class:`~dpbook.regression.Layout`, every column in [-1, 1]; n itself is exact and not among them. With
        ``moments=True`` also ``.values["moments"]``. With a check also ``.values["clipped"]``, a row for each column,
        the response last, with how many records lay below and above its bounds; and ``["inside"]``, how many records
        were not clipped at all. They add up to n, but for noise. Bounds and settings name the columns as the table
        does; columns without names of their own are x1, x2, … and y.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> rng = np.random.default_rng(1)
    >>> years = rng.uniform(0, 20, size=1000)
    >>> wage = 5 + years + rng.normal(size=1000)
    >>> noisy = regression.release(years, wage, x_bounds=(0, 20), y_bounds=(0, 30), epsilon=1.0, rng=rng)
    >>> noisy["sums"].round(1)  # of x, y, x², xy, y² in [-1, 1]
    array([ -8.9,  -1.6, 336.4, 226.6, 155.3])
    >>> print(f"{noisy.sensitivity['sums']:.3f}")
    5.333

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    if schema is not None or formula is not None:
        design = designed(schema, y, formula, x_bounds, y_bounds)
        by_cell_only(intercept, moments, check)
        epsilon, delta = privacy_loss(epsilon, delta, mechanism)
        settings: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "mechanism": mechanism}
        return release_by_cell(X, y, design, schema, **settings, rng=seeded_generator(rng), budget=budget)
    low, high = column_bounds(x_bounds := covariate_bounds(x_bounds), y_bounds)
    intercept, moments = flag("intercept", intercept), flag("moments", moments)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    rng, check = seeded_generator(rng), check_share(check)
    source = join(X, y)
    box = _Box(x_bounds, (float(low[-1]), float(high[-1])), source.labels, source.own_name, intercept)
    plan_in = functools.partial(Plan.of, moments=moments, mechanism=mechanism, check=check)
    statistics = functools.partial(_statistics, response=source.response, box=box, moments=moments, plan_in=plan_in)
    total = exact_sum(source.data, statistics, unit=UNIT, columns=source.columns, name=source.name)
    layout = _layout_of(len(total.totals), intercept, moments, bool(check))
    inside = box.coordinates(layout.d)
    plan = plan_in(inside)
    # Without an intercept nothing is centred: narrow bounds may span few steps of the grid.
    on_sum = noise.on_sum(mechanism, plan.bound, epsilon, delta, rng, unit=UNIT, statistics=len(total.totals))
    paid = charge(budget, epsilon, delta, label=MODEL, **on_sum.loss)
    noisy, scale = on_sum.add(total)
    values, each = _named(noisy, layout, plan)
    made = Release(
        values=values,
        model=MODEL,
        mechanism=mechanism,
        scale={name: scale / weight for name, weight in each.items()},
        sensitivity={name: plan.bound / weight for name, weight in each.items()},
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds=inside.bounds,
        settings=inside.settings | ({"check": check} if check else {}),
        float_safe=rng is None,
    )
    return paid.entered(made)


class _Box:
    """Public bounds, checked, while the number of covariates is not yet known."""

    def __init__(
        self, x_bounds: Any, y_bounds: tuple[float, float], labels: list[Any] | None, response: Any, intercept: bool
    ) -> None:
        if isinstance(x_bounds, dict):
            if labels is None:
                raise ValueError("x_bounds can be a mapping only where the columns of X have names")
            column_bounds(x_bounds, y_bounds, None, labels)
        self._bounds, self._labels, self._response = (x_bounds, y_bounds), labels, response
        self.intercept = intercept

    def coordinates(self, d: int) -> Coordinates:
        sides = column_bounds(*self._bounds, d, self._labels)
        return Coordinates(*sides, self.intercept, column_names(self._labels, d, self._response))


def _statistics(
    rows: Array, *, response: int, box: _Box, moments: bool, plan_in: Callable[[Coordinates], Plan]
) -> Array:
    """Return the unique statistics of each record, clipped and in coordinates; and whether it was, weighted."""
    rows = _response_last(rows, response)
    if rows.shape[1] < 2:
        raise ValueError("X must have at least one covariate beside the response")
    layout, intercept = Layout(rows.shape[1] - 1, box.intercept), box.intercept
    inside = box.coordinates(layout.d)
    plan = plan_in(inside)
    u = inside.records(rows)
    x = u[:, :-1]
    if intercept:
        u = np.concatenate([np.ones((len(u), 1)), u], axis=1)
    second = u[:, layout.rows] * u[:, layout.columns]
    parts = [second]
    if moments:
        parts.append(np.stack([np.prod(x[:, list(factors)], axis=1) for factors in layout.higher], axis=1))
    if plan.counts:
        parts.append(plan.weight * _cut(rows, inside))
    return np.asarray(plan.shrink * np.concatenate(parts, axis=1))


def _cut(rows: Array, inside: Coordinates) -> Array:
    """Return where each record was clipped (n, 2 (d + 1) + 1): below and above, column by column, last not at all.

    Every row adds up to one: a record of which several columns were clipped is divided among them.
    """
    outside = np.stack([rows < inside.lower, rows > inside.upper], axis=2).reshape(len(rows), -1)
    table = np.concatenate([outside, ~outside.any(axis=1, keepdims=True)], axis=1).astype(np.float64)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def _named(noisy: Array, layout: Layout, plan: Plan) -> tuple[dict[str, Array], dict[str, float]]:
    """Return the noisy numbers by name, and what each was multiplied by before it was summed."""
    sums, counts = noisy[: plan.sums] / plan.shrink, noisy[plan.sums :]
    values, each = {"sums": sums[: layout.size]}, {"sums": plan.shrink}
    if plan.sums > layout.size:
        values, each = values | {"moments": sums[layout.size :]}, each | {"moments": plan.shrink}
    if plan.counts:
        weight = plan.weight * plan.shrink
        counts = counts / weight
        values |= {"clipped": counts[:-1].reshape(-1, 2), "inside": counts[-1:]}
        each |= {"clipped": weight, "inside": weight}
    return values, each


def _layout_of(count: int, intercept: bool, moments: bool, check: bool) -> Layout:
    """Return the layout whose records have ``count`` statistics: d is what the columns of the data made it."""
    for d in itertools.count(1):
        size = Layout(d, intercept).size + moments * (math.comb(d + 3, 4) + intercept * math.comb(d + 2, 3))
        size += check * (2 * (d + 1) + 1)
        if size >= count:
            return Layout(d, intercept)
    raise AssertionError


# ---------------------------------------------------------------------------------------------------------------------
# Covariates and response, travelling together


class _Joined(NamedTuple):
    """Covariates and response as one source of rows: which columns to read, and where among them the response is."""

    data: Any
    columns: list[str] | None
    response: int
    name: str
    labels: list[Any] | None  # the covariates' names, where they have some
    own_name: Any = None  # the response's

    def chunks(self) -> Iterator[Array]:
        """Yield blocks of finite records, the response last."""
        return (_response_last(rows, self.response) for rows in as_chunks(self.data, self.columns, self.name))


def join(X: Any, y: Any) -> _Joined:
    """Bring covariates and response together, whatever form they have, without reading more than a first chunk."""
    first = X = source_of(X, "X")
    if isinstance(X, Iterator) and not hasattr(X, "schema"):  # a reader of Arrow batches knows its columns
        first = next(X, None)
        if first is None:
            raise ValueError("X must hold at least one record, got none")
        X = itertools.chain([first], X)
    labels = column_labels(first)
    if isinstance(y, str):
        return _named_response(X, y, labels, type(first).__name__)
    if isinstance(y, (int, np.integer)) and not isinstance(y, bool):
        own = None
        if labels is not None and -len(labels) <= y < len(labels):
            own = labels.pop(y)
        return _Joined(X, None, int(y), "X", labels, own)
    own = (column_labels(y) or [None])[0]
    return _Joined(side_by_side(X, y, right_columns=1), None, -1, "X and y", labels, own)


def _response_last(rows: Array, response: int) -> Array:
    """Return the rows with the response moved from its position to the end."""
    if not -rows.shape[1] <= response < rows.shape[1]:
        raise ValueError(f"y must be the position of a column of X, which has {rows.shape[1]}; got {response}")
    if response in (-1, rows.shape[1] - 1):
        return rows
    return np.concatenate([np.delete(rows, response, axis=1), rows[:, [response]]], axis=1)


def _named_response(X: Any, y: str, labels: list[Any] | None, kind: str) -> _Joined:
    """Read a table, or the tables of a stream, with the response's column last."""
    if labels is None:
        raise ValueError(f"y can name a column only of a table, and X is of type {kind}")
    if y not in labels:
        raise ValueError(f"y must be an array or the name of a column of X; {y!r} is not one of {labels}")
    others = [label for label in labels if label != y]
    return _Joined(X, [*others, y], -1, "X", others, y)
