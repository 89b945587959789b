"""The curator's side of a mean of the records that are there: how many are missing is a noisy statistic of its own.

Private for replace-one neighbours, n public: a record may be replaced by a missing one. The section on quantiles with
intervals explains it.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from dpbook import noise
from dpbook._arrays import Array
from dpbook._dask import Partitions, dask_partitions, is_dask
from dpbook.budget import PrivacyBudget, charge
from dpbook.expfam.cells import Bins
from dpbook.expfam.gap_model import MODEL, missing_weight
from dpbook.records import exact_sum, grid_unit
from dpbook.release import Release
from dpbook.sensitivity import mean_with_missing, rounded

__all__: list[str] = []

_FEWEST = 3  # records


def release_mean_of_present(
    data: Any,
    cells: Bins,
    weights: tuple[float, float],
    *,
    epsilon: float,
    delta: float,
    mechanism: str,
    shape: float,
    rng: np.random.Generator | None,
    budget: PrivacyBudget | None,
) -> Release:
    """Release sum, squares and histogram of the records that are there, and how many are not, which are NaN."""
    norm = 1 if mechanism == "laplace" else 2
    squares, each_cell = weights
    gap = missing_weight(squares, each_cell, norm)
    size, unit = len(cells.edges) + 4, grid_unit(max(1.0, *weights, gap))
    bound = rounded(mean_with_missing(squares=squares, cells=each_cell, missing=gap, norm=norm), size, unit, norm)
    on_sum = noise.on_sum(mechanism, bound, epsilon, delta, rng, unit=unit, statistics=size)
    statistics = functools.partial(_statistics, cells=cells, weights=(squares, each_cell, gap))
    total = exact_sum(_marked(data), statistics, unit=unit, name="data")
    if total.n < _FEWEST:
        raise ValueError(f"data must hold at least {_FEWEST} records, got {total.n}")
    paid = charge(budget, epsilon, delta, label="mean", **on_sum.loss)
    noisy, scale = on_sum.add(total)
    each = {"sum": 1.0, "squares": squares, "histogram": each_cell, "missing": gap}
    parts = {"sum": noisy[:1], "squares": noisy[1:2], "histogram": noisy[2:-1], "missing": noisy[-1:]}
    made = Release(
        values={name: part / each[name] for name, part in parts.items()},
        model=MODEL,
        mechanism=mechanism,
        scale={name: scale / weight for name, weight in each.items()},
        sensitivity={name: bound / weight for name, weight in each.items()},
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds={"x": (cells.edges[0], cells.edges[-1])},
        settings={"edges": cells.edges, "shape": float(shape)},
        float_safe=rng is None,
    )
    return paid.entered(made)


def _marked(data: Any) -> Any:
    """Return each record beside a mark that says whether it is missing, since sums over records take no NaN."""
    if is_dask(data):
        mark = importlib.import_module("dask").delayed(_beside_marks, pure=False)
        return Partitions([mark(part) for part in dask_partitions(data, None, "data")])
    return map(_beside_marks, data)


def _beside_marks(records: Any) -> Array:
    values = np.asarray(records, dtype=np.float64)
    gone = np.isnan(values)
    return np.column_stack([np.where(gone, 0.0, values), gone])


def _statistics(rows: Array, *, cells: Bins, weights: tuple[float, float, float]) -> Array:
    """Return, of each record, its value in [-1, 1], square and cell, all weighted; or the mark of a missing one."""
    low, high = cells.edges[0], cells.edges[-1]
    scaled = np.clip((np.clip(rows[:, 0], low, high) - (low + high) / 2) / ((high - low) / 2), -1.0, 1.0)
    there = 1.0 - rows[:, 1:]
    own = np.column_stack([scaled, weights[0] * scaled**2, weights[1] * cells.indicators(rows[:, 0])])
    return np.hstack([there * own, weights[2] * rows[:, 1:]])
