"""Exact tables of all cliques from records in any form: what a release adds noise to; the curator's side, not private.

Chapter 5 explains them. A record of several segments gives each of its segments the weight 1/K, so that it weighs at
most 1 in a table, as any other record does; tables are whole numbers of units, exact in any order of the records.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook._columns import Table, column_of, labels_of_texts, numbers_of_texts, pieces_of
from dpbook._late import pd
from dpbook._sources import Stream, source_of
from dpbook._validation import clear_chunk, finite_array
from dpbook.graphical.domain import Domain, Groups, checked_groups
from dpbook.schema import MISSING, Schema

__all__ = ["CliqueTables", "clique_tables"]

_WEIGHT = 2**32  # a record's weight in whole units: 1/K is rounded down, so that K of them never exceed it
_AT_ONCE = 8  # tables of partitions that a worker adds up
_MOST_RECORDS = 2**30 - 1  # times _WEIGHT stays below 2**63


class CliqueTables(NamedTuple):
    """Exact tables of all cliques, in whole units; not private.

    ``tables`` holds one of int64 per clique (per group of tied cliques); one ``unit`` of them is worth 1 for counts and
    2**-32 for weights; ``n`` is the number of records: of rows or, where a column names the person, of persons.
    Explained in :doc:`/book/graphical-models/log-linear-models`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import clique_tables
    >>> clique_tables(np.array([[3, 0], [1, 2]]), {"a": 2, "b": 2}, [("a",)]).tables[0]
    array([3, 3])
    """

    tables: list[NDArray[np.int64]]
    unit: float
    n: int


def clique_tables(
    data: Any,
    domain: Domain | Mapping[str, Any],
    cliques: Sequence[Any],
    *,
    counts: str | None = None,
    person: str | None = None,
    null: Any = None,
) -> CliqueTables:
    """Return the exact tables that :func:`release` adds noise to; they are not private.

    Parameters
    ----------
    data, domain, cliques, counts, person, null
        As in :func:`release`.

    Returns
    -------
    CliqueTables
        Whole numbers of units, exact in any order and any chunking of the records.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpbook.graphical import chain, clique_tables
    >>> trips = pd.DataFrame({"first": [0, 1], "then": [1, 1], "last": [1, 0]})
    >>> exact = clique_tables(trips, {"first": 2, "then": 2, "last": 2}, chain(list(trips), tied=True))
    >>> exact.tables[1] * exact.unit
    array([[0. , 0.5],
           [0.5, 1. ]])

    Explained in :doc:`/book/graphical-models/log-linear-models`.
    """
    known = Domain.of(domain)
    return exact_tables(data, known, checked_groups(cliques, known), layout_of(domain, counts, person, null))


class Layout(NamedTuple):
    """How records stand in the data: the columns of counts and of persons, and each variable's code of "not seen"."""

    counts: str | None
    person: str | None
    null: dict[str, int]
    schema: Schema | None = None  # what a record is, where the domain is that of a schema

    def unit(self, groups: Groups) -> float:
        """Return what one unit of the tables is worth: a record, or 2**-32 of it where records are split."""
        split = self.person is not None or bool(self.null) or any(len(group) > 1 for group in groups)
        return 1.0 / _WEIGHT if split else 1.0


def layout_of(domain: Domain | Schema | Mapping[str, Any], counts: Any, person: Any, null: Any) -> Layout:
    """Return the layout that these arguments of a release describe; raise, naming one, where they do not."""
    schema, domain = domain if isinstance(domain, Schema) else None, Domain.of(domain)
    for name, column in (("counts", counts), ("person", person)):
        if column is not None and not isinstance(column, str):
            raise TypeError(f"{name} must name a column, got {column!r}")
        if column in domain.names:
            raise ValueError(f"{name} must not be a variable of the domain, got {column!r}")
    if counts is not None and person is not None:
        raise ValueError("counts and person cannot both be given: a row that stands for many has no one person")
    return Layout(counts, person, _null_codes(domain, null), schema)


def _null_codes(domain: Domain, null: Any) -> dict[str, int]:
    """Return each variable's code of the state that means "not seen"; variables without that state have none."""
    if null is None:
        return {}
    found = {}
    for name, size, labels in zip(domain.names, domain.sizes, domain.labels, strict=True):
        if labels is not None and null in labels:
            found[name] = labels.index(null)
        elif labels is None and isinstance(null, (int, np.integer)) and 0 <= null < size:
            found[name] = int(null)
    if not found:
        raise ValueError(f"null must be a state of at least one variable, got {null!r}")
    return found


def exact_tables(data: Any, domain: Domain, groups: Groups, layout: Layout) -> CliqueTables:
    """Return the tables of all groups, chunk by chunk of the data; of a Dask table, on the workers that hold them."""
    if layout.person is None and _is_dask_table(data):
        found = _added(_on_workers(data, domain, groups, layout))
    else:
        found = _tables_of(data, domain, groups, layout)
    if found.n == 0:
        raise ValueError("data must hold at least one record, got none")
    return found


def _tables_of(data: Any, domain: Domain, groups: Groups, layout: Layout) -> CliqueTables:
    """Return the tables of some of the records; there may be none."""
    unit = layout.unit(groups)
    tables = [np.zeros(domain.shape(group[0]), dtype=np.int64) for group in groups]
    n = 0
    for codes, times, persons in record_chunks(data, domain, groups, layout):
        n += int(times.sum()) if persons is None else int(persons.max(initial=-1)) + 1
        _check_number(n)
        for table, group in zip(tables, groups, strict=True):
            table += _table(codes, times, persons, group, domain, layout.null, unit < 1)
    return CliqueTables(tables, unit, n)


def _on_workers(data: Any, domain: Domain, groups: Groups, layout: Layout) -> list[CliqueTables]:
    """Return tables whose sum is that of all partitions: counted where they are, and added there eight by eight."""
    dask: Any = importlib.import_module("dask")
    used = dict.fromkeys(name for group in groups for member in group for name in member)
    wanted = [name for name in [*used, *filter(None, (layout.counts,))] if name in data.columns]
    count, add = dask.delayed(_tables_of, pure=False), dask.delayed(_added, pure=False)
    parts = [count(part, domain, groups, layout) for part in data[wanted].to_delayed()]
    while len(parts) > _AT_ONCE:
        parts = [add(parts[i : i + _AT_ONCE]) for i in range(0, len(parts), _AT_ONCE)]
    return list(dask.compute(*parts))


def _added(parts: Sequence[CliqueTables]) -> CliqueTables:
    """Return the sum of tables of different records."""
    n = sum(part.n for part in parts)
    _check_number(n)
    totals = [sum(same[1:], start=same[0]) for same in zip(*(part.tables for part in parts), strict=True)]
    return CliqueTables(totals, parts[0].unit, n)


class _Chunk(NamedTuple):
    codes: NDArray[np.int64]  # (rows, variables)
    times: NDArray[np.int64]  # how many records each row stands for
    persons: NDArray[np.int64] | None  # whose row it is, numbered from 0


def record_chunks(data: Any, domain: Domain, groups: Groups, layout: Layout) -> Iterator[_Chunk]:
    """Return the records' codes, chunk by chunk, from rows in any accepted form or from a table of counts."""
    if not isinstance(data, (np.ndarray, list, tuple)):
        return _chunks(data, domain, groups, layout)
    for name, column in (("person", layout.person), ("counts", layout.counts)):
        if column is not None:
            raise ValueError(f"{name} names a column, but data is a table of counts, which has none")
    return iter([_from_counts(data, domain)])


def _from_counts(data: Any, domain: Domain) -> _Chunk:
    """Return a table of counts as one row a cell."""
    table = finite_array("data", data)
    if table.shape != domain.sizes:
        raise ValueError(
            f"data must, as an array, be the table of counts of all variables, of shape {domain.sizes}, got "
            f"{table.shape}; for rows of codes pass a DataFrame"
        )
    _check_counts(table)
    held = np.nonzero(table)
    return _Chunk(np.stack(held, axis=1).astype(np.int64), table[held].astype(np.int64), None)


def _chunks(data: Any, domain: Domain, groups: Groups, layout: Layout) -> Iterator[_Chunk]:
    counts, person = layout.counts, layout.person
    if person is not None and not isinstance(data, pd.DataFrame):
        raise TypeError("data must be one DataFrame where person is given: a person's rows must not be split")
    used = list(dict.fromkeys(name for group in groups for member in group for name in member))
    wanted = [*used, *filter(None, (counts, person))]
    for frame, texts in _frames(data, wanted):
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            raise ValueError(f"data must have the columns {sorted(missing)}, it has {list(frame.columns)}")
        codes = np.zeros((len(frame), len(domain.names)), dtype=np.int64)
        for name, column in _columns(frame, used, domain, layout.schema, texts):
            codes[:, domain.names.index(name)] = domain.codes(name, column)
        times = np.ones(len(frame), dtype=np.int64) if counts is None else _whole_counts(frame[counts], texts)
        yield _Chunk(codes, times, None if person is None else _owners(frame[person], person))


def _columns(
    frame: pd.DataFrame, used: list[str], domain: Domain, schema: Schema | None, texts: bool
) -> Iterator[tuple[str, Any]]:
    """Give the used columns of a frame: as a schema reads them, where there is one, the texts of a file as states."""
    if schema is not None:
        held = Table(tuple(used), tuple(column_of(frame[name]) for name in used), len(frame), texts=texts)
        made = schema.part(used)._frame([held])
        for name in used:
            column = made[name]
            kept = schema.missing == "category" and not isinstance(column.dtype, pd.CategoricalDtype)
            yield name, column.astype(object).where(column.notna(), MISSING).to_numpy() if kept else column.to_numpy()
        return
    for name in used:
        values, labels = frame[name].to_numpy(), domain.labels[domain.names.index(name)]
        if texts:
            values = numbers_of_texts(values) if labels is None else labels_of_texts(values, labels)
        yield name, values


def _frames(data: Any, wanted: list[str]) -> Iterator[tuple[pd.DataFrame, bool]]:
    """Yield frames that have the wanted columns, and whether they hold the texts of a file."""
    data, library = source_of(data), type(data).__module__.split(".")[0]
    if isinstance(data, pd.DataFrame):
        yield data, False
    elif _is_dask_table(data):
        for partition in data.to_delayed():
            yield partition.compute(), False
    elif isinstance(data, Stream):
        absent = [name for name in wanted if name not in data.column_names]
        if absent:
            raise ValueError(f"data must have the columns {sorted(absent)}, it has {data.column_names}")
        for piece in pieces_of(data, columns=wanted, texts=True):
            yield _frame_of(piece, wanted), data.texts
    elif library == "pyarrow" and hasattr(data, "column_names"):
        for piece in pieces_of(data):
            yield _frame_of(piece, wanted), False
    elif isinstance(data, Iterator):
        for each in data:
            yield from _frames(clear_chunk("data", each), wanted)
    else:
        raise TypeError(
            "data must be a pandas DataFrame, an Arrow table, batch, stream or data set, an iterator of such, a path, "
            f"a Dask DataFrame, or an array of counts, got {type(data).__name__} of {library}; {_advice(library)}"
        )


def _frame_of(piece: Any, wanted: list[str]) -> pd.DataFrame:
    """Return a piece of a table as a frame of those wanted columns that it has."""
    held = dict(zip(piece.names, piece.columns, strict=True))
    return pd.DataFrame({name: held[name] for name in wanted if name in held}, index=pd.RangeIndex(piece.n))


def _is_dask_table(data: Any) -> bool:
    library = type(data).__module__.split(".")[0]
    return library == "dask" and hasattr(type(data), "columns") and data.ndim == 2  # a Delayed claims any attribute


def _advice(library: str) -> str:
    """Say how to turn what a library calls a table into one that is taken."""
    ways = {"polars": "call its to_pandas() first", "dask": "call its to_dask_dataframe() or compute() first"}
    return ways.get(library, "make a DataFrame of it with the variables as columns")


def _whole_counts(column: pd.Series[Any], texts: bool) -> NDArray[np.int64]:
    held = numbers_of_texts(column.to_numpy()) if texts else column.to_numpy()
    values = finite_array("data[counts]", held, ndim=1)
    _check_counts(values)
    return values.astype(np.int64)


def _check_counts(counts: NDArray[np.float64]) -> None:
    if (counts < 0).any():
        raise ValueError("data must hold counts of 0 or more: a count is negative")
    if (counts != np.rint(counts)).any():
        raise ValueError("data must hold whole counts")
    _check_number(float(counts.sum()))  # as floats, which do not wrap around


def _check_number(n: float) -> None:
    if n > _MOST_RECORDS:
        raise ValueError(f"data must number at most {_MOST_RECORDS}: 64-bit totals could overflow beyond")


def _owners(column: pd.Series[Any], person: str) -> NDArray[np.int64]:
    """Return the persons of a column, numbered from 0; a row that is nobody's has no unit of privacy."""
    if column.ndim != 1:
        raise ValueError(f"data must have one column {person!r}")
    numbers = np.asarray(pd.factorize(column)[0], dtype=np.int64)
    if (numbers < 0).any():
        raise ValueError(f"data must say whose each row is: {person!r} has a missing value")
    return numbers


def _table(
    codes: NDArray[np.int64],
    times: NDArray[np.int64],
    persons: NDArray[np.int64] | None,
    group: tuple[tuple[str, ...], ...],
    domain: Domain,
    null: dict[str, int],
    weighted: bool,
) -> NDArray[np.int64]:
    """Return one table's total: each record's cells, weighted 1/K in whole units rounded down, exactly."""
    shape = domain.shape(group[0])
    cells = np.stack(
        [np.ravel_multi_index(tuple(codes[:, domain.indices(member)].T), shape) for member in group], axis=1
    )
    seen = np.ones(cells.shape, dtype=bool)
    for position, member in enumerate(group):
        if all(name in null for name in member):
            columns = [codes[:, domain.names.index(name)] == null[name] for name in member]
            seen[:, position] = ~np.logical_and.reduce(columns)
    size = math.prod(shape)
    if not weighted:
        return _count(cells[:, 0], times, size).reshape(shape)
    parts = np.asarray(seen.sum(axis=1), dtype=np.int64)
    if persons is not None:
        parts = np.asarray(np.bincount(persons, weights=parts), dtype=np.int64)[persons]
    total = np.zeros(size, dtype=np.int64)
    # One exact count for each K: K weights of floor(2**32 / K) stay within 1.
    for k in np.unique(parts[parts > 0]).tolist():
        chosen, members = np.nonzero(seen & (parts == k)[:, None])
        total += _count(cells[chosen, members], times[chosen], size) * (_WEIGHT // k)
    return total.reshape(shape)


def _count(cells: NDArray[np.int64], times: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return how many records fall in each cell; sums of whole numbers below 2**53 are exact."""
    return np.bincount(cells, weights=times, minlength=size).astype(np.int64)
