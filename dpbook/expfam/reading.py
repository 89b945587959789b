"""The curator's side: records that hold labels, in any form, as the codes that a family counts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._columns import pieces_of
from dpbook._dask import Partitions, dask_partitions, is_dask
from dpbook.expfam.family import Family
from dpbook.schema import Category, Schema

__all__ = ["coded"]


def coded(data: Any, family: Family) -> Any:
    """Return the records as numbers: labels as their codes, where the family has categories, else as they are.

    A Dask collection is coded where its partitions live. An unknown label raises, and only the curator may see that.
    """
    if not family.categories:
        return data
    schema = Schema({"data": Category(family.categories, family.other)})
    if is_dask(data):
        code = importlib.import_module("dask").delayed(_codes_at_once, pure=False)
        return Partitions([code(part, schema) for part in dask_partitions(data, None, "data")])
    return _codes(data, schema)


def _codes(data: Any, schema: Schema) -> Iterator[Array]:
    for piece in pieces_of(data):
        columns = piece.take(np.arange(piece.n))
        if piece.n and len(columns) != 1:
            raise ValueError(f"data must have one column, got {len(columns)}")
        for _, column in columns:
            yield schema.apply({"data": column})["data"].cat.codes.to_numpy(dtype=np.float64)


def _codes_at_once(data: Any, schema: Schema) -> Array:
    return np.concatenate([np.empty(0), *_codes(data, schema)])
