"""Generated records, neighbours of them, and the containers they come in.

Boxes are narrow, wide, far from zero, tiny and huge; records sit on bounds, next to bounds, beyond them, and at the
ends of what a float can be. A neighbour has one record replaced. The same records come as lists, arrays of several
types, tables (plain, nullable, Arrow), streams cut anywhere, and Dask collections with empty partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow
from hypothesis import strategies as st

Factory = Callable[[], Any]
Box = tuple[float, float]

epsilons = st.one_of(st.sampled_from([0.01, 0.25, 1.0, 3.0, 10.0]), st.floats(0.01, 10.0))
deltas = st.sampled_from([1e-9, 1e-5, 0.01])


@st.composite
def boxes(draw: Any, *, positive: bool = False) -> Box:
    """Draw bounds of five kinds: the unit box, any, high and narrow, low and narrow, enormous or tiny."""
    kind = draw(st.sampled_from(["high", "any", "unit"] if positive else ["unit", "any", "high", "low", "wide"]))
    if kind == "unit":
        return (0.0, 1.0) if positive else (-1.0, 1.0)
    power = draw(st.integers(-9, 9))
    size = draw(st.floats(0.5, 4.0))
    low = size * 10.0**power
    if kind == "any":
        return low, low + draw(st.floats(0.5, 4.0)) * 10.0 ** draw(st.integers(max(-9, power - 12), 9))
    if kind == "high":
        return low, low * (1 + 10.0 ** -draw(st.integers(1, 12)))
    if kind == "low":
        return -low * (1 + 10.0 ** -draw(st.integers(1, 12))), -low
    return -(10.0 ** draw(st.integers(-90, 90))), 10.0 ** draw(st.integers(-90, 90))


def specials(box: Box) -> list[float]:
    """Return records that test a box: on, inside and beside its bounds, and as far outside as can be."""
    low, high = box
    ends = [low, high, (low + high) / 2, low + (high - low) / 4]
    beside = [float(np.nextafter(low, high)), float(np.nextafter(high, low)), float(np.nextafter(high, np.inf))]
    return [*ends, *beside, 0.0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, np.inf, -np.inf, low / 2, -high]


def records(box: Box) -> st.SearchStrategy[float]:
    """Draw a record that may lie anywhere."""
    return st.one_of(st.sampled_from(specials(box)), st.floats(allow_nan=False))


@st.composite
def neighbours(
    draw: Any, record: st.SearchStrategy[Any], *, least: int = 1, most: int = 5
) -> tuple[list[Any], list[Any]]:
    """Draw a list of records, and the same with one of them replaced."""
    rows = draw(st.lists(record, min_size=least, max_size=most))
    place = draw(st.integers(0, len(rows) - 1))
    other = list(rows)
    other[place] = draw(record)
    return rows, other


@st.composite
def cuts(draw: Any, n: int) -> list[tuple[int, int]]:
    """Draw places to cut n rows at; some pieces are empty."""
    ends = sorted(draw(st.lists(st.integers(0, n), max_size=3)))
    return list(zip([0, *ends], [*ends, n], strict=True))


def frozen(value: Any) -> Factory:
    """Return a factory that makes the same value over and over (a list is copied)."""
    return lambda: list(value) if isinstance(value, list) else value


# ---------------------------------------------------------------------------------------------------------------------
# Containers


def _numbers(rows: Sequence[Any]) -> np.ndarray:
    """Return rows as an array; whole numbers stay whole."""
    return np.array(rows)


def exact_types(array: np.ndarray) -> list[str]:
    """Return the NumPy types that hold these numbers without changing any."""
    types = ["float64"]
    with np.errstate(all="ignore"):
        for kind in ("float32", "int8", "int64", "uint8", "bool"):
            if kind != "float32" and not (np.abs(array) < 2**52).all():
                continue
            if (array.astype(kind).astype(np.float64) == array.astype(np.float64)).all():
                types.append(kind)
    return types


NULLABLE = {"float64": "Float64", "int64": "Int64", "int8": "Int8", "uint8": "UInt8", "bool": "boolean"}


@st.composite
def array_of(draw: Any, rows: Sequence[Any]) -> Factory:
    """Draw an array, list or strided view of the rows."""
    array = _numbers(rows)
    kind = draw(st.sampled_from(["list", "array", "fortran", "strided", "tuple"]))
    if kind == "list":
        return lambda: array.tolist()
    if kind == "tuple":
        return lambda: tuple(map(tuple, array.tolist())) if array.ndim == 2 else tuple(array.tolist())
    typed = array.astype(draw(st.sampled_from(exact_types(array))))
    if kind == "fortran":
        return lambda: np.asfortranarray(typed)
    if kind == "strided":
        return lambda: np.repeat(typed, 2, axis=0)[::2]
    return lambda: typed


@st.composite
def frame_of(draw: Any, rows: Sequence[Any], names: Sequence[str]) -> Factory:
    """Draw a pandas table of the rows, with any exact type a column, nullable or Arrow-backed, and any index."""
    array = _numbers(rows).reshape(len(rows), -1)
    frame = pd.DataFrame(index=draw(st.sampled_from([range(len(array)), ["a"] * len(array), range(len(array), 0, -1)])))
    for name, column in zip(names, array.T, strict=True):
        kind = draw(st.sampled_from(exact_types(column)))
        shown = draw(st.sampled_from(["plain", "nullable", "arrow"]))
        values = pd.Series(column.astype(kind), index=frame.index)
        if shown == "nullable" and kind in NULLABLE:
            values = values.astype(NULLABLE[kind])
        elif shown == "arrow" and kind != "float32":
            values = (
                values.convert_dtypes(dtype_backend="pyarrow")
                if kind == "bool"
                else values.astype(f"{_ARROW[kind]}[pyarrow]")
            )
        frame[name] = values
    return lambda: frame.copy()


_ARROW = {"float64": "double", "int64": "int64", "int8": "int8", "uint8": "uint8"}


def dask_pieces(rows: Any, names: Sequence[str], places: list[tuple[int, int]]) -> Any:
    """Return a Dask table cut at these places, each partition with an index that starts at 0, as files have."""
    frame = pd.DataFrame(_numbers(rows).reshape(len(rows), -1).astype(float), columns=list(names))
    pieces = [frame.iloc[a:b].reset_index(drop=True) for a, b in places]
    return dask.dataframe.from_map(lambda piece: piece, pieces, meta=frame.iloc[:0])


@st.composite
def dask_frame_of(draw: Any, rows: Sequence[Any], names: Sequence[str]) -> Factory:
    """Draw a Dask table: several partitions, some empty, divisions known or not, persisted, repartitioned."""
    frame = pd.DataFrame(_numbers(rows).reshape(len(rows), -1).astype(float), columns=list(names))
    places = draw(cuts(len(frame)))
    kind = draw(st.sampled_from(["known", "pieces", "unknown", "persisted", "repartitioned"]))

    def make() -> Any:
        if kind == "known":
            return dask.dataframe.from_pandas(frame, npartitions=min(2, len(frame)))
        parts = dask_pieces(rows, names, places)
        if kind == "unknown":
            return parts.clear_divisions()
        if kind == "persisted":
            return parts.persist()
        return parts.repartition(npartitions=2) if kind == "repartitioned" else parts

    return make


@st.composite
def table_of(draw: Any, rows: Sequence[Any], names: Sequence[str], *, dask_share: bool = True) -> Factory:
    """Draw a table with named columns, in one piece or many."""
    array = _numbers(rows).reshape(len(rows), -1)
    kind = draw(st.sampled_from(["frame", "frame", "frame", "arrow", "stream", *(["dask"] if dask_share else [])]))
    if kind == "arrow":
        return lambda: pyarrow.table({name: column.astype(float) for name, column in zip(names, array.T, strict=True)})
    if kind == "dask":
        return draw(dask_frame_of(rows, names))
    whole = draw(frame_of(rows, names))
    if kind == "frame":
        return whole
    places = draw(cuts(len(array)))
    return lambda: (whole().iloc[a:b] for a, b in places)


@st.composite
def one_column(draw: Any, rows: Sequence[float]) -> Factory:
    """Draw any container of one-dimensional records."""
    kind = draw(st.sampled_from(["array", "array", "series", "table", "stream", "dask array"]))
    if kind == "array":
        return draw(array_of(rows))
    if kind == "series":
        frame = draw(frame_of(rows, ["x"]))
        return lambda: frame()["x"]
    if kind == "table":
        return draw(table_of(rows, ["x"]))
    array, places = _numbers(rows), draw(cuts(len(rows)))
    if kind == "stream":
        return lambda: (array[a:b] for a, b in places)
    sizes = tuple(b - a for a, b in places)
    return lambda: dask.array.from_array(array.astype(float), chunks=(sizes,))
