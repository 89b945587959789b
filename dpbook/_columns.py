"""Tables of any kind read value by value, so that what becomes of one record never depends on the others.

A container decides types for a whole column: one missing answer makes integers floats, one new label widens strings and
adds a category. Here a column is a float array where its container holds nothing but real numbers, and an array of
Python objects otherwise, and both give the same number for the same value. :class:`dpbook.Schema` and the
partitions of chapter 2 are built on it.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import importlib
import itertools
import math
import numbers
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook._dask import dask_partitions, is_dask
from dpbook._late import pd
from dpbook._sources import Stream, source_of
from dpbook._validation import clear_chunk

Column = NDArray[Any]  # of float64, NaN where missing; or of objects
Named = list[tuple[Hashable, Column]]


@dataclass(frozen=True)
class Table:
    """Records that have a header: columns with names, or with positions alone (``named`` is then False)."""

    names: tuple[Hashable, ...]
    columns: tuple[Column, ...]
    n: int
    named: bool = True
    texts: bool = False  # every value is a text of a file, of which the reader decides what it means

    @property
    def header(self) -> tuple[Hashable, ...]:
        """The names of the columns."""
        return self.names

    def take(self, rows: NDArray[np.int64]) -> Named:
        """Return some records, as named columns of their own."""
        return [(name, column[rows]) for name, column in zip(self.names, self.columns, strict=True)]


@dataclass(frozen=True)
class Rows:
    """Records without a header: a list of mappings, sequences or plain values, each with a form of its own."""

    rows: Sequence[Any]

    @property
    def n(self) -> int:
        """How many records."""
        return len(self.rows)

    @property
    def header(self) -> tuple[Hashable, ...]:
        """Nothing: whatever names a record has are its own."""
        return ()

    def take(self, rows: NDArray[np.int64]) -> Named:
        """Return some records as columns: those that the chosen records name, in the order in which they do."""
        records = [dict(row_items(self.rows[place])) for place in rows]
        names = dict.fromkeys(name for record in records for name in record)
        return [(name, objects([record.get(name) for record in records])) for name in names]


def pieces_of(
    data: Any, name: str = "data", *, columns: list[str] | None = None, texts: bool = False
) -> Iterator[Table | Rows]:
    """Yield the records in any accepted form, piece by piece; raise, by the form alone, on what is no table.

    ``columns`` are those that the caller will look at: of a file or a data set no others are read. The texts of a CSV
    file are handed on as such if ``texts`` is True; else each becomes a number if it reads like one, and is missing if
    it is blank.
    """
    data = source_of(data, name)
    if isinstance(data, Stream):
        for batch in data.batches(columns, name):
            yield _of_texts(_piece(batch, name), texts) if data.texts else _piece(batch, name)
    elif is_dask(data):
        dask: Any = importlib.import_module("dask")
        for part in dask.compute(*dask_partitions(data, None, name)):
            yield from pieces_of(part, name)
    elif isinstance(data, Iterator) or holds_tables(data):
        for chunk in data if isinstance(data, Iterator) else element_by_element(data):
            yield from pieces_of(clear_chunk(name, chunk), name)
    else:
        yield _piece(data, name)


def _of_texts(piece: Table | Rows, texts: bool) -> Table:
    """Return a piece of a file of texts, as they are or each read by itself."""
    assert isinstance(piece, Table)
    columns = piece.columns if texts else tuple(objects(map(value_of_text, column)) for column in piece.columns)
    return Table(piece.names, columns, piece.n, texts=texts)


def holds_tables(data: Any) -> bool:
    """Say whether this is a list some of whose elements are tables, such as Arrow batches, and not records."""
    return isinstance(data, (list, tuple)) and any(map(_is_table, set(map(type, data))))


def element_by_element(data: Iterable[Any]) -> Iterator[Any]:
    """Yield the tables of a list, and the records between them as lists: each element is read by its own type alone."""
    for are_tables, run in itertools.groupby(data, lambda element: _is_table(type(element))):
        elements = list(run)
        yield from elements if are_tables else [elements]


def _is_table(kind: type) -> bool:
    if issubclass(kind, (pd.Series, pd.Index)):  # a record of a list may be a Series
        return False
    return issubclass(kind, pd.DataFrame) or hasattr(kind, "__arrow_c_stream__") or _is_arrow_table(kind)


def _is_arrow_table(kind: type) -> bool:
    return _is_arrow(kind) and hasattr(kind, "column_names") and hasattr(kind, "column")


def _is_arrow(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "pyarrow"


def _piece(data: Any, name: str) -> Table | Rows:
    if isinstance(data, pd.DataFrame):
        columns = tuple(column_of(data.iloc[:, j]) for j in range(data.shape[1]))
        return Table(tuple(data.columns), columns, len(data))
    if isinstance(data, pd.Series):
        label = 0 if data.name is None else data.name
        return Table((label,), (column_of(data),), len(data), named=data.name is not None)
    if _is_arrow_table(type(data)):
        names = tuple(data.column_names)
        return Table(names, tuple(column_of(data.column(j)) for j in range(len(names))), data.num_rows)
    if _is_arrow(type(data)) and hasattr(data, "to_pylist"):
        return Table((0,), (column_of(data),), len(data), named=False)
    if isinstance(data, Mapping):
        return _of_columns(data, name)
    if isinstance(data, np.ndarray):
        return _of_array(data, name)
    if isinstance(data, (list, tuple)):
        return Rows(data)
    if hasattr(data, "to_pandas"):
        return _piece(data.to_pandas(), name)
    raise TypeError(
        f"{name} must be a table (pandas, Arrow, a mapping of columns, a structured array), an array or a list with "
        f"one row per record, an iterator of such chunks or a Dask collection; got {type(data).__name__}"
    )


def _of_columns(data: Mapping[Any, Any], name: str) -> Table:
    columns = tuple(column_of(values) for values in data.values())
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise ValueError(f"{name} must, as a mapping, have columns of one length, got lengths {sorted(lengths)}")
    return Table(tuple(data), columns, lengths.pop())


def _of_array(data: NDArray[Any], name: str) -> Table:
    if data.dtype.names is not None and data.ndim == 1:
        return Table(data.dtype.names, tuple(column_of(data[each]) for each in data.dtype.names), len(data))
    if data.ndim not in (1, 2):
        raise ValueError(f"{name} must have 1 or 2 dimensions, one row per record, got shape {data.shape}")
    columns = [data] if data.ndim == 1 else [data[:, j] for j in range(data.shape[1])]
    return Table(tuple(range(len(columns))), tuple(map(column_of, columns)), len(data), named=False)


def row_items(row: Any) -> list[tuple[Hashable, Any]]:
    """Return what one record of a list says, by name or, where it has no names, by position."""
    if isinstance(row, (Mapping, pd.Series)):
        return list(row.items())
    if isinstance(row, np.void) and row.dtype.names is not None:
        return [(name, row[name]) for name in row.dtype.names]
    if isinstance(row, np.ndarray) and row.ndim:
        return list(enumerate(row))
    if isinstance(row, tuple) and hasattr(row, "_fields"):
        return list(zip(row._fields, row, strict=True))
    if isinstance(row, (list, tuple)):
        return list(enumerate(row))
    return [(0, row)]


# ---------------------------------------------------------------------------------------------------------------------
# Columns


def objects(values: Iterable[Any]) -> Column:
    """Return values as an array of objects, each as it is."""
    known = list(values)
    return np.fromiter(known, dtype=object, count=len(known))


def column_of(values: Any) -> Column:
    """Return a column of any container: floats, NaN where missing, if it holds numbers alone; else objects."""
    if isinstance(values, np.ma.MaskedArray):
        column = column_of(np.ma.getdata(values)).copy()
        column[np.ma.getmaskarray(values)] = np.nan  # what a mask hides is no datum
        return column
    if isinstance(values, np.ndarray):
        return _of_numpy(values)
    if isinstance(values, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        return _of_pandas(pd.Series(values))
    if _is_arrow(type(values)) and hasattr(values, "to_pylist"):
        return _of_arrow(values)
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"a column must be an array or a list of values, got {type(values).__name__}")
    return objects(values)


def _of_numpy(values: NDArray[Any]) -> Column:
    if values.ndim != 1:
        raise ValueError(f"a column must have one dimension, got shape {values.shape}")
    if values.dtype.kind in "biuf":
        with np.errstate(over="ignore"):  # a number beyond the largest float is infinite
            return values.astype(np.float64)
    if values.dtype.kind in "mM":  # NumPy's own objects for nanoseconds would be whole numbers
        return objects(_moment(value) for value in values)
    return values if values.dtype == object else objects(values.tolist())


def _of_pandas(series: pd.Series[Any]) -> Column:
    kind = series.dtype
    if isinstance(kind, np.dtype):
        return _of_numpy(series.to_numpy())
    if isinstance(kind, pd.CategoricalDtype):
        labels = column_of(kind.categories)
        if labels.dtype == object:
            return np.append(labels, objects([None]))[series.cat.codes.to_numpy()]  # the code -1 is missing
        return np.append(labels, np.nan)[series.cat.codes.to_numpy()]
    if isinstance(kind, pd.SparseDtype):
        return column_of(np.asarray(series))
    if isinstance(kind, pd.ArrowDtype):
        return _of_arrow(importlib.import_module("pyarrow").array(series.array))
    if pd.api.types.is_bool_dtype(kind) or pd.api.types.is_numeric_dtype(kind):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return series.astype(object).to_numpy()


def _of_arrow(values: Any) -> Column:
    types: Any = importlib.import_module("pyarrow").types
    kind = values.type
    if types.is_dictionary(kind):  # chunk by chunk: whether Arrow can join their dictionaries depends on the labels
        chunks = getattr(values, "chunks", [values])
        parts = [_of_arrow(chunk.dictionary_decode()) for chunk in chunks]
        return np.concatenate(parts) if parts else np.empty(0)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        values = values.cast("uint8") if types.is_boolean(kind) else values
        return np.asarray(_joined(values).to_numpy(zero_copy_only=False), dtype=np.float64)
    try:
        if types.is_string(kind) or types.is_large_string(kind):
            return np.asarray(_joined(values).to_numpy(zero_copy_only=False), dtype=object)
        return objects(values.to_pylist())
    except Exception:  # a moment that Python cannot express, or text that is no UTF-8, must not fail the others
        return objects(_value(each) for each in values)


def _joined(values: Any) -> Any:
    return values.combine_chunks() if hasattr(values, "combine_chunks") else values  # several chunks, or one array


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except Exception:  # the value is then missing
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Texts of a file, each read by itself

_TRUTHS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


def value_of_text(text: Any) -> Any:
    """Return what a text says where nobody knows what it should: a number (of truth values too), nothing, or itself."""
    number = number_of_text(text)
    return text if number is None else number


def number_of_text(text: Any) -> float | None:
    """Return the number that a text reads as, NaN for a blank one, and None for what is no number."""
    try:
        return float(text)
    except ValueError:
        plain_text = text.strip().lower()
        return _TRUTHS.get(plain_text) if plain_text else math.nan


def numbers_of_texts(column: Column) -> NDArray[np.float64]:
    """Return the numbers that texts read as, NaN where one is blank or no number."""
    try:
        return column.astype(np.float64)
    except ValueError:
        found = map(number_of_text, column)
        return np.array([math.nan if each is None else each for each in found], dtype=np.float64)


def labels_of_texts(column: Column, labels: Iterable[Any]) -> Column:
    """Return the labels that texts stand for; a blank one is missing unless it is a label, an unknown one as it is."""
    known = {str(label): label for label in labels}
    return objects(
        known.get(text, text or None) for text in (each if each in known else each.strip() for each in column)
    )


# ---------------------------------------------------------------------------------------------------------------------
# Values


def number_of(value: Any) -> float | None:
    """Return a real number as a float, NaN for a missing value, and None for what is no number, such as text.

    Truth values are 0 and 1, and a number beyond the largest float is infinite: what a NumPy array would make of them.
    """
    if type(value) is float:
        return value
    if type(value) is str:
        return None
    if is_missing(value):
        return math.nan
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return number_of(value[()])
    if isinstance(value, (complex, np.complexfloating)):
        return float(value.real) if value.imag == 0 else None
    if isinstance(value, (np.datetime64, np.timedelta64)):  # the latter is an integer to Python
        return None
    if isinstance(value, (numbers.Real, np.bool_, decimal.Decimal)):
        return _as_float(value)
    return None


def _as_float(value: Any) -> float | None:
    try:
        with np.errstate(over="ignore"):
            return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a signalling NaN
        return math.nan
    except Exception:  # a class that claims to be a number
        return None


def is_missing(value: Any) -> bool:
    """Say whether a value is none: None, a masked entry, NaN, NaT or NA."""
    if value is None or value is pd.NA or value is pd.NaT or value is np.ma.masked:
        return True
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def numbers_of(column: Column) -> NDArray[np.float64]:
    """Return the numbers of a column, NaN where a value is missing or no number."""
    if column.dtype != object:
        return column
    found = (number_of(value) for value in column)
    return np.array([math.nan if each is None else each for each in found], dtype=np.float64)


def own_column(parts: Sequence[Column]) -> Column:
    """Return one column of the records given: float64 where all values are numbers or missing, else objects."""
    if all(part.dtype != object for part in parts):
        return np.concatenate(parts) + 0.0  # no negative zero: a column of complex numbers, by one record, has none
    values = [value for part in parts for value in part.tolist()]
    found = [None if (number := number_of(value)) is None else number + 0.0 for value in values]
    if None not in found:
        return np.array(found, dtype=np.float64)
    return objects(plain(value) if number is None else number for value, number in zip(values, found, strict=True))


def plain(value: Any) -> Any:
    """Return a value that is no number in a form that depends on itself alone and shares nothing that can change."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, (datetime.datetime, datetime.timedelta, np.datetime64, np.timedelta64)):
        return _moment(value)
    if type(value) is datetime.date:
        return value
    try:
        if isinstance(value, pd.Interval):  # whether its ends are whole numbers or floats, the column decides
            ends: list[Any] = [
                end + 0.0 if isinstance(end, numbers.Real) else plain(end) for end in (value.left, value.right)
            ]
            return pd.Interval(ends[0], ends[1], closed=value.closed)
        return copy.deepcopy(value)
    except Exception:  # what cannot be copied cannot be handed on
        return math.nan


def _moment(value: Any) -> Any:
    """Return a moment or a duration in microseconds, in UTC where it has a zone: units belong to whole columns."""
    try:
        if isinstance(value, (datetime.timedelta, np.timedelta64)):
            return pd.Timedelta(value).as_unit("us")
        moment: Any = pd.Timestamp(value)
        moment = math.nan if moment is pd.NaT else moment.as_unit("us")
        return moment.tz_convert("UTC") if getattr(moment, "tz", None) is not None else moment
    except (ValueError, OverflowError):
        return math.nan


def own_frame(parts: Sequence[Named], sizes: Sequence[int]) -> pd.DataFrame:
    """Return a data frame built from some records alone: its columns, their order, types and index are theirs."""
    columns: dict[tuple[Hashable, int], dict[int, Column]] = {}
    for place, part in enumerate(parts):
        seen: dict[Hashable, int] = {}
        for name, column in part:  # a header may hold a name twice
            seen[name] = seen.get(name, 0) + 1
            columns.setdefault((name, seen[name]), {})[place] = column
    total = [np.full(size, np.nan) for size in sizes]  # for records that do not have a column
    made = [own_column([by.get(place, empty) for place, empty in enumerate(total)]) for by in columns.values()]
    names = [name for name, _ in columns]
    frame = pd.DataFrame(
        {j: pd.Series(column, dtype=column.dtype) for j, column in enumerate(made)}, index=pd.RangeIndex(sum(sizes))
    )
    frame.columns = pd.RangeIndex(len(names)) if names == list(range(len(names))) else pd.Index(names)
    return frame
