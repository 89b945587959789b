"""The curator's side: data of any form as rows of numbers, by a schema, record by record."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._dask import Partitions, dask_partitions, is_dask
from dpbook.models.layout import Recipe, codes_of

__all__ = ["rows_of"]

_BLOCK = 2**14  # rows, of what is read piece by piece


def rows_of(data: Any, layout: Recipe) -> Any:
    """Return the records as rows of the columns that are read: codes for labels; Dask's partitions where they live.

    A missing value or an unknown label that the schema refuses raises, and only the curator may see that.
    """
    if is_dask(data):
        read = importlib.import_module("dask").delayed(_rows, pure=False)
        return Partitions([read(part, layout) for part in dask_partitions(data, None, "data")])
    return _chunks(data, layout)


def _chunks(data: Any, layout: Recipe) -> Iterator[Array]:
    applied = layout.schema.apply(data)
    for frame in applied if isinstance(applied, Iterator) else [applied]:
        yield _numbers(frame, layout)


def _rows(data: Any, layout: Recipe) -> Array:
    return _numbers(layout.schema.apply(data), layout)


def _numbers(frame: Any, layout: Recipe) -> Array:
    return np.stack([codes_of(frame[name]) for name in layout.columns], axis=1)
