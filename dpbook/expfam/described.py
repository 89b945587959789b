"""The curator's side: the one column that a schema describes, of a table in any form, as a release reads it.

The schema decides what a value means and what becomes of a missing one; a release clips, and counts what it clips, so
that numbers are handed on as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dpbook._dask import is_dask
from dpbook.schema import MISSING, Category, Flag, Integer, Number, Schema

__all__ = ["Described", "described"]

_WIDEST = 1e100  # bounds of numbers as they are read


class Described(NamedTuple):
    """What a schema makes of data: a stream of values, their bounds or labels, and whether missing values stay."""

    data: Any
    bounds: tuple[float, float] | None
    labels: tuple[Any, ...] | None
    gaps: bool


def described(data: Any, schema: Any, *, labels: bool = False, gaps: bool = False) -> Described:
    """Return the values of the one column of ``schema``; without a schema, the data as they are.

    ``labels`` asks for labels of whole numbers and truth values too. Missing values that the schema keeps are refused,
    by the schema alone, unless the release has a use for ``gaps``.
    """
    if schema is None:
        return Described(data, None, None, False)
    if not isinstance(schema, Schema):
        raise TypeError(f"schema must be a Schema, got {type(schema).__name__}")
    if len(schema.names) != 1:
        raise ValueError(
            f"schema must have one column here, the one to release: take schema.part([...]) of {schema.names}"
        )
    [name] = schema.names
    kind, kept = schema.columns[name], schema.missing == "category"
    if kept and not gaps:
        raise ValueError(
            "schema must say what becomes of missing values here, which this release has no state for: give "
            "missing={column: value}, or release a mean or a histogram, which count them"
        )
    known = _labels(kind) if labels or isinstance(kind, Category) else None
    wide = Number(-_WIDEST, _WIDEST) if known is None and isinstance(kind, (Number, Integer)) else kind
    reader = Schema({name: wide}, schema.missing)
    bounds = None if isinstance(kind, Category) else (0.0, 1.0) if isinstance(kind, Flag) else (kind.low, kind.high)
    if known is not None and kept:
        known = (*known, MISSING)
    return Described(_values(data, reader, name, known is not None), bounds, known, kept)


def _labels(kind: Any) -> tuple[Any, ...] | None:
    if isinstance(kind, Category):
        return kind.states
    if isinstance(kind, Number):
        return None
    return (0, 1) if isinstance(kind, Flag) else tuple(range(kind.low, kind.high + 1))


def _values(data: Any, reader: Schema, name: str, labels: bool) -> Any:
    """Return the values chunk by chunk, nothing read before it is asked for; of a Dask collection a Dask column."""
    return reader.apply(data)[name] if is_dask(data) else _chunks(data, reader, name, labels)


def _chunks(data: Any, reader: Schema, name: str, labels: bool) -> Iterator[Any]:
    made = reader.apply(data)
    for frame in made if isinstance(made, Iterator) else [made]:
        yield _chunk(frame[name], labels)


def _chunk(column: Any, labels: bool) -> Any:
    if not labels:
        return column.to_numpy(dtype=np.float64)
    values = column.astype(object)
    return values.where(column.notna(), MISSING).to_numpy()
