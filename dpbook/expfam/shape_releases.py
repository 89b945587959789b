"""The curator's side of means and histograms that assume no family: :func:`release_mean`, :func:`release_histogram`.

Every release is private for replace-one neighbours, n public. The section on a mean that assumes little explains them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbook import noise
from dpbook._arrays import Array
from dpbook._validation import interval, privacy_loss, seeded_generator
from dpbook.budget import PrivacyBudget, charge
from dpbook.expfam.cells import Bins, bins_between
from dpbook.expfam.described import described
from dpbook.expfam.families import Multinomial
from dpbook.expfam.family import require_moderate
from dpbook.expfam.gap_releases import release_mean_of_present
from dpbook.expfam.reading import coded
from dpbook.expfam.weights import weights_for
from dpbook.records import exact_sum, grid_unit
from dpbook.release import Release
from dpbook.schema import Schema
from dpbook.sensitivity import histogram, mean_and_shape, rounded

__all__ = ["release_histogram", "release_mean"]

_FEWEST = 3  # records: with fewer, nothing tells a mean from a spread


def release_mean(
    data: Any,
    bounds: tuple[float, float] | None = None,
    *,
    epsilon: float,
    schema: Schema | None = None,
    bins: int | ArrayLike = 10,
    shape: float = 0.1,
    mechanism: str = "laplace",
    delta: float = 0.0,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release what a mean needs, without a family: the sum, the sum of squares and a coarse histogram, jointly.

    epsilon-DP (Laplace) or (epsilon, delta)-DP (Gaussian) for replace-one neighbours, n public. Records are clipped to
    the bounds, and scaled to [-1, 1] by them, before they are summed and squared; the histogram counts them unclipped,
    and has a cell for what lies below the bounds and one for what lies above. One noise is calibrated to the joint
    sensitivity of all three, in which the squares cost nothing. A missing value raises, and only the curator may see
    that. Explained in :doc:`/book/exponential-families/a-mean-that-assumes-little`.

    Parameters
    ----------
    data : array, Series, table of one column, path, Arrow stream, iterator of chunks, or Dask collection
        The records, at least three.
    bounds : (low, high), optional
        Public bounds, set without looking at the records; by default those of the schema.
    epsilon : float
        The privacy loss of all three together.
    schema : Schema, optional
        The one column to release, of a table that may have others. With ``missing="category"`` missing values are
        allowed: their number is released too, at no cost (:func:`~dpbook.sensitivity.mean_with_missing`), and the mean
        is that of records that are there.
    bins : int or sequence of float, default 10
        The histogram's bins: how many of equal width, or their edges, which begin and end at the bounds.
    shape : float, default 0.1
        The share of the privacy loss that the histogram takes, between 0 and 1.
    mechanism : {"laplace", "gaussian"}
        The noise.
    delta : float, default 0.0
        0 for Laplace noise, greater than 0 for Gaussian noise.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    Release
        With ``.values["sum"]`` and ``["squares"]``, of records scaled to [-1, 1], and the counts ``["histogram"]``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> rng = np.random.default_rng(1)
    >>> incomes = rng.lognormal(3, 0.8, 2000)
    >>> noisy = expfam.release_mean(incomes, (0, 200), epsilon=1.0, rng=rng)
    >>> expfam.infer(noisy, rng=rng).interval(0.95, "mean").round()
    array([26., 29.])
    """
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    data, known, _, gaps = described(data, schema, gaps=True)
    low, high = _pair(known if bounds is None else bounds)
    require_moderate("bounds", (low, high))
    cells = bins_between((low, high), bins)
    weights = weights_for(shape, mechanism)
    if gaps:
        settings: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "mechanism": mechanism, "shape": shape}
        return release_mean_of_present(data, cells, weights, rng=seeded_generator(rng), budget=budget, **settings)
    norm, unit = 1 if mechanism == "laplace" else 2, grid_unit(max(1.0, *weights))
    bound = rounded(mean_and_shape(squares=weights[0], cells=weights[1], norm=norm), len(cells.edges) + 3, unit, norm)
    statistics = functools.partial(_mean_statistics, cells=cells, weights=weights)
    size, rng = len(cells.edges) + 3, seeded_generator(rng)
    on_sum = noise.on_sum(mechanism, bound, epsilon, delta, rng, unit=unit, statistics=size)
    total = exact_sum(data, statistics, unit=unit, name="data")
    if total.n < _FEWEST:
        raise ValueError(f"data must hold at least {_FEWEST} records, got {total.n}")
    paid = charge(budget, epsilon, delta, label="mean", **on_sum.loss)
    noisy, scale = on_sum.add(total)
    each = {"sum": 1.0, "squares": weights[0], "histogram": weights[1]}
    parts = {"sum": noisy[:1], "squares": noisy[1:2], "histogram": noisy[2:]}
    made = Release(
        values={name: part / each[name] for name, part in parts.items()},
        model="mean",
        mechanism=mechanism,
        scale={name: scale / weight for name, weight in each.items()},
        sensitivity={name: bound / weight for name, weight in each.items()},
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds={"x": (low, high)},
        settings={"edges": cells.edges, "shape": float(shape)},
        float_safe=rng is None,
    )
    return paid.entered(made)


def release_histogram(
    data: Any,
    bins: ArrayLike | None = None,
    *,
    labels: Any = None,
    epsilon: float,
    schema: Schema | None = None,
    mechanism: str = "laplace",
    delta: float = 0.0,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the counts of records in bins, or by label, with noise.

    epsilon-DP (Laplace) or (epsilon, delta)-DP (Gaussian) for replace-one neighbours, n public: a replaced record
    leaves one cell and enters another. A missing value or an unknown label raises, and only the curator may see that.
    Explained in :doc:`/book/exponential-families/a-mean-that-assumes-little`.

    Parameters
    ----------
    data : array, Series, table of one column, path, Arrow stream, iterator of chunks, or Dask collection
        The records.
    bins : sequence of float, optional
        Edges of the bins, in order; what lies below the first or above the last is counted in two cells more.
    labels : sequence of str or numbers, or Category, optional
        The labels that records hold, instead of bins.
    epsilon : float
        The privacy loss.
    schema : Schema, optional
        The one column to release, of a table that may have others, and by default its labels; with
        ``missing="category"``, the label ``"missing"`` is one of them.
    mechanism : {"laplace", "gaussian"}
        The noise.
    delta : float, default 0.0
        0 for Laplace noise, greater than 0 for Gaussian noise.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    Release
        With the noisy counts as ``.values["histogram"]``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> noisy = expfam.release_histogram(
    ...     ["yes"] * 30 + ["no"] * 20, labels=["yes", "no"], epsilon=1.0, rng=np.random.default_rng(0))
    >>> noisy["histogram"].round()
    array([31., 19.])
    """
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    data, _, known, _ = described(data, schema, labels=bins is None, gaps=bins is None)
    labels = known if labels is None and bins is None else labels
    if (bins is None) == (labels is None):
        raise TypeError("bins or labels must be given, one of them: edges of numbers, or what records may hold")
    family = None if labels is None else Multinomial(labels=labels)
    cells = None if family is not None else Bins(tuple(np.atleast_1d(np.asarray(bins, dtype=object)).tolist()))
    count = family.k if family is not None else len(cells.edges) + 1  # type: ignore[union-attr]
    norm, unit = 1 if mechanism == "laplace" else 2, grid_unit(1.0)
    bound = histogram(norm=norm)
    statistics = functools.partial(_indicators, cells=cells, count=count)
    rng = seeded_generator(rng)
    on_sum = noise.on_sum(mechanism, bound, epsilon, delta, rng, unit=unit, statistics=count)
    total = exact_sum(data if family is None else coded(data, family), statistics, unit=unit, name="data")
    paid = charge(budget, epsilon, delta, label="histogram", **on_sum.loss)
    noisy, scale = on_sum.add(total)
    public = {"edges": cells.edges} if cells is not None else {"labels": family.categories}  # type: ignore[union-attr]
    made = Release(
        values={"histogram": noisy},
        model="histogram",
        mechanism=mechanism,
        scale={"histogram": scale},
        sensitivity={"histogram": bound},
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds={} if cells is None else {"x": (cells.edges[0], cells.edges[-1])},
        settings=public,
        float_safe=rng is None,
    )
    return paid.entered(made)


def _pair(bounds: Any) -> tuple[float, float]:
    """Return the bounds; where they are no pair, records may have been passed in their place, and are not shown."""
    if np.size(bounds) != 2:
        raise TypeError(
            "bounds must be a pair (low, high), after the data: release_mean(data, bounds, …); "
            f"got {type(bounds).__name__} of size {np.size(bounds)}"
        )
    return interval("bounds", bounds)


def _mean_statistics(rows: Array, *, cells: Bins, weights: tuple[float, float]) -> Array:
    """Return, of each record, its clipped value in [-1, 1], the weighted square, and the weighted cell it is in."""
    low, high = cells.edges[0], cells.edges[-1]
    records = _one_column(rows)
    # Clipped first: a record may lie further away than the largest float of half-widths.
    scaled = np.clip((np.clip(records, low, high) - (low + high) / 2) / ((high - low) / 2), -1.0, 1.0)
    return np.column_stack([scaled, weights[0] * scaled**2, weights[1] * cells.indicators(records)])


def _indicators(rows: Array, *, cells: Bins | None, count: int) -> Array:
    """Return, of each record, the cell that it is in."""
    records = _one_column(rows)
    if cells is not None:
        return cells.indicators(records)
    table = np.zeros((records.size, count))
    table[np.arange(records.size), records.astype(np.int64)] = 1.0
    return table


def _one_column(rows: Array) -> Array:
    if rows.shape[1] != 1:
        raise ValueError(f"data must have one column, got {rows.shape[1]}")
    return rows[:, 0]
