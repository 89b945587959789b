"""Dask collections, told by their protocol, so that Dask is imported only where it is already in use."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpbook._validation import present_columns

__all__: list[str] = []


class Partitions(NamedTuple):
    """Delayed blocks of records that stand for a Dask collection."""

    delayed: list[Any]


def is_dask(data: Any) -> bool:
    """Tell a Dask collection by its protocol, so that Dask is imported only when it is already in use."""
    return isinstance(data, Partitions) or (hasattr(data, "__dask_graph__") and not isinstance(data, type))


def dask_partitions(data: Any, columns: list[str] | None, name: str, *, optimise: bool = True) -> list[Any]:
    """Return the partitions as delayed objects; a table reads only the columns asked for."""
    if isinstance(data, Partitions):
        return data.delayed
    if not hasattr(type(data), "to_delayed"):  # of the type: a Delayed object claims every attribute
        raise TypeError(f"{name} must be a Dask DataFrame, Series or Array, got {type(data).__name__}")
    if columns is not None and getattr(data, "ndim", 0) == 2 and hasattr(data, "columns"):
        data = data[present_columns(data.columns, columns, name)]
    if getattr(data, "ndim", 0) == 2 and hasattr(data, "rechunk") and data.numblocks[1] > 1:
        data = data.rechunk({1: -1})  # a record must not be split between blocks
    return list(np.ravel(data.to_delayed(optimize_graph=optimise)))
