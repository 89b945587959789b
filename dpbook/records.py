"""Exact sums over records, from an array, a table, a stream of chunks or a Dask collection.

Every release of the book adds noise to a sum over records, and its proof needs the *computed* sum to have the stated
sensitivity. Sums of floats do not: float addition is not associative, so the order of the records, the size of the
chunks and the roundings made on the way all move the result, and one record can move a sum by much more than its own
size (Mironov 2012 on the noise; Casacuberta, Shoemate, Vadhan and Wagaman 2022 on the sum itself). Here each
record's clipped statistics are first rounded to whole multiples of a public ``unit``, a power of two, and the
multiples are summed as integers. Division by a power of two is exact, integer addition is associative, and so the
same records give the same :class:`ExactSum` in any order and any form. What the rounding costs is known beforehand:
replacing one record moves each total by at most one ``unit`` more than its range, which
:func:`dpbook.sensitivity.rounded` adds. Explained in :doc:`/book/background/where-privacy-breaks`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook._columns import column_of, numbers_of_texts
from dpbook._dask import Partitions, dask_partitions, is_dask
from dpbook._late import pd
from dpbook._sources import Stream, source_of
from dpbook._validation import (
    clear_chunk,
    finite_array,
    flag,
    integer,
    positive,
    present_array,
    present_columns,
    real_array,
)

__all__ = ["ExactSum", "as_chunks", "code_chunks", "exact_sum", "grid_unit", "side_by_side"]

# Rows handed to `statistics` at a time: large enough for NumPy's speed, small enough for wide statistics.
_BLOCK_ROWS = 2**14
# 2**33 units per record times fewer than 2**30 records stays below 2**63, so no int64 total can overflow.
_LARGEST_MULTIPLE = 2.0**33
_MOST_RECORDS = 2**30 - 1
_FINEST, _COARSEST = 2.0**-1022, 2.0**958

Statistics = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class ExactSum(NamedTuple):
    """A sum over records, held as whole multiples of ``unit``, a power of two.

    ``totals`` (k,) are the sums of the statistics, in units: not private, a release adds noise before they go anywhere.
    ``n`` is the number of records, public under replace-one neighbours. Explained in
    :doc:`/book/background/where-privacy-breaks`.

    Examples
    --------
    >>> ExactSum(np.array([3, -5]), 0.25, 2).values
    array([ 0.75, -1.25])
    """

    totals: NDArray[np.int64]
    unit: float
    n: int

    @property
    def values(self) -> NDArray[np.float64]:
        """The sums as floats, ``totals * unit``."""
        return self.totals.astype(np.float64) * self.unit


def grid_unit(magnitude: float) -> float:
    """Return the width of the fixed-point grid for statistics of absolute value at most ``magnitude``.

    The grid is the power of two 2**(ceil(log2(magnitude)) - 32): fine enough that its rounding error, relative to
    the bound, stays below 2**-32; coarse enough that a billion records sum without overflow. Explained in
    :doc:`/book/background/where-privacy-breaks`.

    Parameters
    ----------
    magnitude : float
        From a statistic's public bounds (never from the data); between 2**-990 and 2**990.

    Returns
    -------
    float
        A power of two.

    Examples
    --------
    >>> grid_unit(1.0) == 2.0**-32, grid_unit(100.0) == 2.0**-25
    (True, True)
    """
    significand, exponent = math.frexp(positive("magnitude", magnitude))
    # magnitude = significand * 2**exponent with significand in [1/2, 1): exact where log2 would round.
    unit = math.ldexp(1.0, exponent - (significand == 0.5) - 32)
    # Below, multiples of the unit are not exact; above, the total of a billion records could overflow, for some data.
    if not _FINEST <= unit <= _COARSEST:
        raise ValueError(f"magnitude must lie between 2**-990 and 2**990, got {magnitude}")
    return unit


def exact_sum(
    data: Any, statistics: Statistics, *, unit: float, columns: str | Sequence[str] | None = None, name: str = "data"
) -> ExactSum:
    """Sum the statistics of all records exactly, on a grid of width ``unit``.

    Two data sets that differ in one record (replace-one neighbours, n public) have totals that differ, statistic by
    statistic, by at most the range of that statistic plus one unit. That holds for the numbers computed, not only
    on paper. The sum itself is *not* private, and neither are the errors: a missing value (NaN, None, masked) or text
    raises, and only the curator may see that. Infinite values and integers beyond the floats go to ``statistics`` as
    infinities, to be clipped like any other value outside the bounds. Explained in
    :doc:`/book/background/where-privacy-breaks`.

    Parameters
    ----------
    data : array_like, table, path, Arrow data set, iterator of such chunks, or Dask collection
        One row per record; one-dimensional data are one column. Tables and columns are those of pandas, pyarrow
        (Table, RecordBatch, RecordBatchReader, Dataset, Array, ChunkedArray), or of a library that speaks Arrow's
        stream protocol, as polars and DuckDB do. A path names a Parquet, Arrow or CSV file, or a folder of Parquet
        files. A file, a data set and an iterator are read once, piece by piece, in memory that does not grow with
        their length. A Dask collection is reduced where its partitions live; only integer partial sums come back, and
        ``statistics`` must then be picklable.
    statistics : callable
        Takes a read-only float array (rows, columns) and returns an array (rows, k) of *clipped* statistics, each
        row computed from the same row of its argument alone.
    unit : float
        Width of the grid, a power of two; usually ``grid_unit(magnitude)``.
    columns : str or sequence of str, optional
        The columns of a table to read, in this order; all of them by default.
    name : str
        What errors call ``data``.

    Returns
    -------
    ExactSum

    Raises
    ------
    ValueError
        If ``data`` hold no record, missing values, too many records (2**30 or more) or chunks with different columns;
        if ``columns`` are missing; or if a statistic is not finite or exceeds 2**33 units, which cannot happen to
        statistics clipped to the magnitude from which ``unit`` was made.
    TypeError
        If ``data`` are not numeric, or of a kind that is not read (the error names it and says what to do).

    Examples
    --------
    >>> def clipped(rows):
    ...     return np.clip(rows, 0, 1)
    >>> halves = (chunk for chunk in ([0.5], [0.25, 7.0]))
    >>> [exact_sum(data, clipped, unit=grid_unit(1.0)).values for data in ([0.5, 0.25, 7.0], halves)]
    [array([1.75]), array([1.75])]
    """
    width = _power_of_two("unit", unit)
    if is_dask(data):
        partial = _dask_sum(data, statistics, width, columns, name)
    else:
        partial = _partial_sum(data, statistics, width, columns, name)
    if partial is None:
        raise ValueError(f"{name} must hold at least one record, got none")
    totals, n = partial
    totals.flags.writeable = False
    return ExactSum(totals, width, n)


def as_chunks(
    data: Any, columns: str | Sequence[str] | None = None, name: str = "data", *, infinite: bool = False
) -> Iterator[NDArray[np.float64]]:
    """Yield the records as read-only float arrays (rows, columns) of at most 16,384 rows.

    This is how every module of the package reads data, whatever their form. Nothing here is private, the errors
    included: they are for the curator. Explained in :doc:`/book/background/where-privacy-breaks`.

    Parameters
    ----------
    data, columns, name
        As in :func:`exact_sum`. A Dask collection is fetched partition by partition.
    infinite : bool, default False
        Whether infinite values are handed on, for a caller that clips them, or raise.

    Yields
    ------
    ndarray of float64, shape (rows, columns)
        Values without a missing one, at least one row; nothing for empty data.

    Raises
    ------
    ValueError
        At missing values (NaN, None, masked), infinite ones unless they are asked for, missing ``columns``, or chunks
        with different columns.
    TypeError
        At values that are not numbers or booleans.

    Examples
    --------
    >>> table = pd.DataFrame({"age": [31, 50], "pay": [20.67, 24.28]})
    >>> [chunk.tolist() for chunk in as_chunks(table, columns="age")]
    [[[31.0], [50.0]]]
    """
    wanted, checked_array = _column_names(columns), present_array if flag("infinite", infinite) else finite_array
    first: tuple[Any, ...] | None = None
    for labels, block in _blocks(data, wanted, name):
        if block.shape[1] == 0:
            raise ValueError(f"{name} must have at least one column, got none")
        first = labels if first is None else first
        if labels != first:
            raise ValueError(f"{name} must have the same columns in every chunk, got {first} and then {labels}")
        checked = checked_array(name, block)[:]
        checked.flags.writeable = False  # of this view only: statistics must not write into the caller's data
        yield checked


def code_chunks(
    data: Any, sizes: Sequence[int], columns: str | Sequence[str] | None = None, name: str = "data"
) -> Iterator[NDArray[np.int64]]:
    """Yield records of a discrete domain as integer codes (rows, attributes), each checked against the domain.

    Explained in :doc:`/book/background/where-privacy-breaks`.

    Parameters
    ----------
    data, columns, name
        As in :func:`exact_sum`, attribute j coded as 0, ..., ``sizes[j] - 1``.
    sizes : sequence of int
        How many values each attribute can take: public, from the code book.

    Yields
    ------
    ndarray of int64, shape (rows, attributes)

    Raises
    ------
    ValueError
        At a code that is not whole or lies outside its domain. The error is not private.

    Examples
    --------
    >>> [codes.tolist() for codes in code_chunks([[0, 2], [1, 0]], sizes=[2, 3])]
    [[[0, 2], [1, 0]]]
    """
    domain = np.array([integer(f"sizes[{j}]", size, least=1) for j, size in enumerate(sizes)])
    for chunk in as_chunks(data, columns, name, infinite=True):
        if chunk.shape[1] != len(domain):
            raise ValueError(f"{name} must have {len(domain)} columns, one per entry of sizes, got {chunk.shape[1]}")
        if (chunk != np.rint(chunk)).any() or (chunk < 0).any() or (chunk >= domain).any():
            raise ValueError(f"{name} must hold whole codes from 0 to sizes - 1: a value lies outside the domain")
        yield chunk.astype(np.int64)


def side_by_side(
    left: Any, right: Any, names: tuple[str, str] = ("X", "y"), *, right_columns: int | None = None
) -> Any:
    """Pair the records of two collections by position, whatever form they have; never by an index or a name.

    Record i is row i of ``left`` followed by row i of ``right``. An index, as pandas and Dask have one, plays no part:
    a label that occurs twice, or in one of the two only, would pair records by their values, and then one record
    could move all others. Dask collections are paired partition by partition, where those live, and each pair of
    partitions must have as many rows; then the whole is paired by position too. Explained in
    :doc:`/book/background/where-privacy-breaks`.

    Parameters
    ----------
    left, right : array_like, table, iterator of chunks, or both a Dask collection
        As :func:`exact_sum` takes them, in chunks of any sizes.
    names : pair of str
        What errors call them.
    right_columns : int, optional
        How many columns ``right`` must have.

    Returns
    -------
    iterator of arrays, or partitions
        What :func:`exact_sum` and :func:`as_chunks` read. They raise ValueError where one side has more rows than the
        other (the number of records is public).

    Raises
    ------
    TypeError, ValueError
        If one side alone is a Dask collection; if two have different numbers of partitions.

    Examples
    --------
    >>> ages, pay = pd.Series([31, 50], index=[7, 8]), pd.Series([20.0, 24.0], index=[8, 7])
    >>> [rows.tolist() for rows in as_chunks(side_by_side(ages, pay))]
    [[[31.0, 20.0], [50.0, 24.0]]]
    """
    if is_dask(left) or is_dask(right):
        return _dask_pairs(left, right, names, right_columns)
    return _paired(left, right, names, right_columns)


def _paired(left: Any, right: Any, names: tuple[str, str], right_columns: int | None) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of paired records from two sources that may come in blocks of other sizes."""
    sources = tuple(as_chunks(side, name=name, infinite=True) for side, name in zip((left, right), names, strict=True))
    nothing = np.empty((0, 1))
    xs, ys = nothing, nothing
    while True:
        xs = xs if len(xs) else next(sources[0], nothing)
        ys = ys if len(ys) else next(sources[1], nothing)
        if len(xs) == 0 or len(ys) == 0:
            break
        if ys.shape[1] != (right_columns or ys.shape[1]):
            words = "one column" if right_columns == 1 else f"{right_columns} columns"
            raise ValueError(f"{names[1]} must have {words}, got {ys.shape[1]}")
        rows = min(len(xs), len(ys))
        yield np.concatenate([xs[:rows], ys[:rows]], axis=1)
        xs, ys = xs[rows:], ys[rows:]
    if len(xs) or len(ys):
        raise ValueError(f"{names[0]} and {names[1]} must have as many rows: one of them ends before the other")


def _dask_pairs(left: Any, right: Any, names: tuple[str, str], right_columns: int | None) -> Partitions:
    """Pair the partitions of two Dask collections by their numbers, as they are, and their rows on the workers."""
    one, other = names
    remedy = f"Put both into one table and pass {other} as the name of its column, so that records travel together"
    if not (is_dask(left) and is_dask(right)):
        raise TypeError(f"{one} and {other} must both be Dask collections, or neither. {remedy}")
    if all(hasattr(side, "rechunk") for side in (left, right)) and not math.isnan(sum((*left.shape, *right.shape))):
        if left.shape[0] != right.shape[0]:
            words = f"got {left.shape[0]} and {right.shape[0]}"
            raise ValueError(f"{one} and {other} must have as many rows: one of them ends before the other; {words}")
        right = right.rechunk({0: left.chunks[0]})
    # Unoptimised: a reader that is asked for fewer columns may merge partitions, and differently for the two sides.
    parts = [dask_partitions(side, None, name, optimise=False) for side, name in zip((left, right), names, strict=True)]
    if len(parts[0]) != len(parts[1]):
        words = f"got {len(parts[0])} and {len(parts[1])}"
        raise ValueError(f"{one} and {other} must have as many partitions, paired one by one; {words}. {remedy}")
    dask: Any = importlib.import_module("dask")
    pair = dask.delayed(_pair_of_partitions, pure=False)
    return Partitions([pair(xs, ys, names, right_columns, remedy) for xs, ys in zip(*parts, strict=True)])


def _pair_of_partitions(
    left: Any, right: Any, names: tuple[str, str], right_columns: int | None, remedy: str
) -> NDArray[np.float64]:
    """Return the paired records of two partitions, on the worker that holds them."""
    if len(left) != len(right):
        raise ValueError(
            f"{names[0]} and {names[1]} must have as many rows in every partition, got {len(left)} and {len(right)} in "
            f"one. {remedy}"
        )
    blocks = list(_paired(left, right, names, right_columns))
    return np.concatenate(blocks) if blocks else np.empty((0, 1))


def _power_of_two(name: str, value: float) -> float:
    number = positive(name, value)
    if math.frexp(number)[0] != 0.5:
        raise ValueError(f"{name} must be a power of two (see grid_unit), got {number}")
    return number


def _partial_sum(
    data: Any, statistics: Statistics, unit: float, columns: str | Sequence[str] | None, name: str
) -> tuple[NDArray[np.int64], int] | None:
    """Return the integer totals and the number of records, or None where there is no record."""
    chunks = as_chunks(data, columns, name, infinite=True)
    return _add_up((_round(statistics, chunk, unit), len(chunk)) for chunk in chunks)


def _round(statistics: Statistics, chunk: NDArray[np.float64], unit: float) -> NDArray[np.int64]:
    """Return the sum over the chunk of the statistics in whole units: each row rounded first, then added."""
    with np.errstate(all="ignore"):  # whether arithmetic overflows on its way to a clipped value is the record's secret
        values = finite_array("the output of statistics", statistics(chunk))
    if values.ndim != 2 or len(values) != len(chunk):
        raise ValueError(
            f"statistics must return one row per record: an array ({len(chunk)}, k), got shape {values.shape}"
        )
    with np.errstate(all="ignore"):  # an overflow to infinity is caught by the next line
        multiples = np.rint(values / unit)
    if (np.abs(multiples) > _LARGEST_MULTIPLE).any():
        raise ValueError(
            f"unit is too small for these statistics: they exceed 2**33 units of {unit:g}. Clip them, and take unit "
            "from the largest magnitude that the bounds allow (grid_unit)"
        )
    totals: NDArray[np.int64] = multiples.astype(np.int64).sum(axis=0)
    return totals


def _add_up(partials: Iterable[tuple[NDArray[np.int64], int]]) -> tuple[NDArray[np.int64], int] | None:
    """Add partial sums in any order; the number of records is checked before a total could overflow."""
    sums: NDArray[np.int64] | None = None
    n = 0
    for totals, rows in partials:
        n += rows
        if n > _MOST_RECORDS:
            raise ValueError(f"an exact sum takes at most {_MOST_RECORDS} records: 64-bit totals could overflow beyond")
        if sums is not None and len(sums) != len(totals):
            raise ValueError(f"statistics must return the same k for every chunk, got {len(sums)} and {len(totals)}")
        sums = totals if sums is None else sums + totals
    return None if sums is None else (sums, n)


def _column_names(columns: str | Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names or len(set(names)) != len(names):
        raise ValueError(f"columns must name one or more different columns, got {names}")
    return names


def _blocks(data: Any, columns: list[str] | None, name: str) -> Iterator[tuple[tuple[Any, ...], NDArray[Any]]]:
    """Yield (column labels, block of at most _BLOCK_ROWS rows) from data in any accepted form."""
    data = source_of(data, name)
    if isinstance(data, Stream):
        for batch in data.batches(columns, name):
            yield from _text_blocks(batch, name) if data.texts else _blocks(batch, columns, name)
    elif is_dask(data):
        for partition in dask_partitions(data, columns, name):
            yield from _blocks(partition.compute(), columns, name)
    elif isinstance(data, (pd.DataFrame, pd.Series)):
        yield from _table_blocks(data.to_frame() if isinstance(data, pd.Series) else data, columns, name)
    elif isinstance(data, Iterator):
        for chunk in data:
            yield from _blocks(clear_chunk(name, chunk), columns, name)
    elif type(data).__module__.split(".")[0] == "pyarrow":
        yield from _arrow_blocks(data, columns, name)
    else:
        yield from _array_blocks(data, columns, name)


def _arrow_blocks(data: Any, columns: list[str] | None, name: str) -> Iterator[tuple[tuple[Any, ...], NDArray[Any]]]:
    """Yield the numbers of an Arrow table, batch or column, each column taken as it lies in memory."""
    table = hasattr(data, "column_names")
    if not table and not hasattr(data, "to_pylist"):
        raise TypeError(f"{name} is a pyarrow {type(data).__name__}, which is not read: pass a table, or its batches")
    if not table and columns is not None:
        raise ValueError(f"columns selects from a table by name, but {name} has no column names")
    held = list(data.column_names) if table else [0]
    labels = tuple(held if columns is None else present_columns(held, columns, name))
    for piece in data.to_batches(max_chunksize=_BLOCK_ROWS) if hasattr(data, "to_batches") else [data]:
        chosen = [piece.column(held.index(label)) for label in labels] if table else [piece]
        if len(piece):
            numbers = [_arrow_numbers(column, name, label) for label, column in zip(labels, chosen, strict=True)]
            whole = np.stack(numbers).T if numbers else np.empty((len(piece), 0))
            yield from ((labels, whole[at : at + _BLOCK_ROWS]) for at in range(0, len(whole), _BLOCK_ROWS))


def _arrow_numbers(column: Any, name: str, label: Any) -> NDArray[np.float64]:
    types: Any = importlib.import_module("pyarrow").types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)):
        if not types.is_null(kind):
            raise TypeError(f"{name} must be numeric (real numbers or booleans), got {kind} in column {label!r}")
        return np.full(len(column), np.nan)
    return real_array(f"{name} in column {label!r}", column_of(column))


def _text_blocks(frame: pd.DataFrame, name: str) -> Iterator[tuple[tuple[Any, ...], NDArray[Any]]]:
    """Yield the numbers that a file's texts read as; raise where one is blank or no number."""
    labels = tuple(frame.columns)
    rows = np.stack([numbers_of_texts(frame[label].to_numpy()) for label in labels], axis=1)
    if np.isnan(rows).any():
        wrong = [label for j, label in enumerate(labels) if np.isnan(rows[:, j]).any()]
        raise ValueError(f"{name} must hold numbers: a value is missing or text in the columns {wrong} of the file")
    yield from ((labels, rows[at : at + _BLOCK_ROWS]) for at in range(0, len(rows), _BLOCK_ROWS))


def _table_blocks(
    table: pd.DataFrame, columns: list[str] | None, name: str
) -> Iterator[tuple[tuple[Any, ...], NDArray[Any]]]:
    chosen = table if columns is None else table[present_columns(table.columns, columns, name)]
    labels = tuple(chosen.columns)
    for position, label in enumerate(labels):
        kind = chosen.dtypes.iloc[position]
        if not (_is_real(kind) or kind == np.dtype(object)):
            raise TypeError(f"{name} must be numeric (real numbers or booleans), got {kind} in column {label!r}")
    for start in range(0, len(chosen), _BLOCK_ROWS):
        block = chosen.iloc[start : start + _BLOCK_ROWS]
        if all(map(_is_real, chosen.dtypes)):
            yield labels, block.to_numpy(dtype=np.float64, na_value=np.nan)
        else:  # one large integer makes a column of objects; its records are read one by one
            parts = [_column(block.iloc[:, j], f"{name} in column {label!r}") for j, label in enumerate(labels)]
            yield labels, np.stack(parts, axis=1)


def _column(column: pd.Series, name: str) -> NDArray[np.float64]:
    """Return one column of a table as floats, missing entries as NaN."""
    if _is_real(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return real_array(name, column.to_numpy(dtype=object))


def _is_real(kind: Any) -> bool:
    types = pd.api.types
    return types.is_bool_dtype(kind) or (types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind))


def _array_blocks(data: Any, columns: list[str] | None, name: str) -> Iterator[tuple[tuple[Any, ...], NDArray[Any]]]:
    if columns is not None:
        raise ValueError(f"columns selects from a table by name, but {name} has no column names")
    plain = isinstance(data, np.ndarray) and data.dtype.kind in "biuf" and not np.ma.isMaskedArray(data)
    array = data if plain else real_array(name, data)  # a plain array is converted block by block, not at once
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have 1 or 2 dimensions, one row per record, got shape {array.shape}")
    rows = array[:, np.newaxis] if array.ndim == 1 else array
    labels = tuple(range(rows.shape[1]))
    for start in range(0, len(rows), _BLOCK_ROWS):
        yield labels, rows[start : start + _BLOCK_ROWS]


def _dask_sum(
    data: Any, statistics: Statistics, unit: float, columns: str | Sequence[str] | None, name: str
) -> tuple[NDArray[np.int64], int] | None:
    """Reduce each partition where it lives, to k integers and a count; add those up here."""
    dask: Any = importlib.import_module("dask")
    names = _column_names(columns)
    reduce = dask.delayed(_partial_sum, pure=False)
    partials = [reduce(part, statistics, unit, names, name) for part in dask_partitions(data, names, name)]
    return _add_up(partial for partial in dask.compute(*partials) if partial is not None)
