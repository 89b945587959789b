"""The curator's side where records have a schema: noisy sums by cell of their labels.

Private for replace-one neighbours, n public: a record is one row, covariates and response together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpbook import noise
from dpbook._arrays import Array
from dpbook._dask import is_dask
from dpbook._late import pd
from dpbook.budget import PrivacyBudget, charge
from dpbook.records import exact_sum, side_by_side
from dpbook.regression.design import MODEL, Design
from dpbook.regression.sensitivities import UNIT, sensitivity_by_cell
from dpbook.release import Release
from dpbook.schema import Schema

__all__: list[str] = []


def release_by_cell(
    X: Any,
    y: Any,
    design: Design,
    schema: Schema | None,
    *,
    epsilon: float,
    delta: float,
    mechanism: str,
    rng: np.random.Generator | None,
    budget: PrivacyBudget | None,
) -> Release:
    """Release the sums of a design with noise; all arguments but the records have been checked."""
    source = _coded(X, y, design, schema)
    total = exact_sum(source, design.statistics, unit=UNIT, name="X" if _within(y) else "X and y")
    bound = sensitivity_by_cell(design, mechanism)
    on_sum = noise.on_sum(mechanism, bound, epsilon, delta, rng, unit=UNIT, statistics=len(total.totals))
    paid = charge(budget, epsilon, delta, label=MODEL, **on_sum.loss)
    noisy, scale = on_sum.add(total)
    made = Release(
        values={"sums": noisy},
        model=MODEL,
        mechanism=mechanism,
        scale={"sums": scale},
        sensitivity={"sums": bound},
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds=design.bounds,
        settings=design.settings,
        float_safe=rng is None,
    )
    return paid.entered(made)


def _within(y: Any) -> bool:
    """Say whether the response is a column of the table."""
    return y is None or isinstance(y, str)


def _coded(X: Any, y: Any, design: Design, schema: Schema | None) -> Any:
    """Return the records as coded rows, the response last, in a form that exact sums take."""
    within = _within(y)
    # What has no names has all columns in order, used or not; of a table, only those that the design uses are read.
    nameless = isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype.names is None)
    given = design.schema if schema is None else schema
    whole = not within or (nameless and set(design.schema.names) <= set(given.names))
    frames = (given if whole else design.schema).apply(X)
    if is_dask(frames):
        meta = pd.DataFrame(_rows(frames._meta, design, within))
        rows = frames.map_partitions(_frame, design, within, meta=meta)
    elif isinstance(frames, Iterator):
        rows = (_rows(frame, design, within) for frame in frames)
    else:
        rows = _rows(frames, design, within)
    return rows if within else side_by_side(rows, y, right_columns=1)


def _rows(frame: pd.DataFrame, design: Design, response: bool) -> Array:
    return design.coded(frame, response=response)


def _frame(frame: pd.DataFrame, design: Design, response: bool) -> pd.DataFrame:
    return pd.DataFrame(design.coded(frame, response=response))
