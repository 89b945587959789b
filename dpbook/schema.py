"""What a record is, known without the data: columns, their kinds, and what is done with what does not fit.

Types, categories and missing values are properties that a table gives to a whole column, so one record can change them
for all. A :class:`Schema` is public, and turns data of any form into frames whose types, columns, categories, index and
order follow from it alone, record by record: no record's treatment depends on another's.
"""

from __future__ import annotations

import importlib
import json
import math
import numbers
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from dpbook import _html
from dpbook._arrays import Array, IntArray
from dpbook._columns import (
    Column,
    Rows,
    Table,
    labels_of_texts,
    number_of,
    numbers_of,
    numbers_of_texts,
    objects,
    pieces_of,
    row_items,
)
from dpbook._dask import dask_partitions, is_dask
from dpbook._late import pd
from dpbook._sources import Stream, source_of
from dpbook._validation import analyst_generator, finite_number, flag, integer

__all__ = ["Category", "Flag", "Integer", "Number", "Schema"]

MISSING = "missing"  # the label of missing values in a Category, where they are one
_FORMAT = "dpbook.Schema/1"
_WHOLE = 2**53  # up to here every whole number is a float, so that no container can change it
_SHARE_MISSING = 0.1  # of made-up numbers, where missing values are a state of their own


@dataclass(frozen=True)
class Number:
    """A real number between two bounds that are known without the data.

    Numbers beyond a bound are clipped to it, infinite ones too. Truth values are 0 and 1. Text, also ``"12"``, and
    anything else that is no number counts as missing. Explained in
    :doc:`/book/sample-and-aggregate/any-model-any-size`.

    Parameters
    ----------
    low, high : float
        The bounds, low < high.

    Examples
    --------
    >>> from dpbook import Schema
    >>> from dpbook.schema import Number
    >>> schema = Schema({"age": Number(0, 120)}, missing={"age": 40})
    >>> schema.apply({"age": [31, 10**400, "12", None]})["age"].tolist()
    [31.0, 120.0, 40.0, 40.0]
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _set_bounds(self, finite_number("low", self.low), finite_number("high", self.high))

    def _read(self, column: Column) -> Array:
        """Return the numbers of a column within the bounds, NaN where missing."""
        return np.clip(numbers_of(column), self.low, self.high) + 0.0  # no negative zero

    def _fill(self, name: str, value: Any) -> float:
        number = finite_number(name, value)
        if not self.low <= number <= self.high:
            raise ValueError(f"{name} must lie between {self.low} and {self.high}, got {number}")
        return number

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        share = rng.random(n)
        return np.clip(self.low * (1 - share) + self.high * share, self.low, self.high)


@dataclass(frozen=True)
class Integer:
    """A whole number between two bounds that are known without the data.

    Numbers are rounded to the nearest whole one and clipped; what is no number counts as missing, as in
    :class:`Number`. Explained in :doc:`/book/sample-and-aggregate/any-model-any-size`.

    Parameters
    ----------
    low, high : int
        The bounds, low < high, of magnitude at most 2**53.

    Examples
    --------
    >>> from dpbook import Schema
    >>> from dpbook.schema import Integer
    >>> schema = Schema({"visits": Integer(0, 50)})
    >>> schema.apply({"visits": [3, 2.6, 2**70]})["visits"].tolist()
    [3, 3, 50]
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        low, high = integer("low", self.low, least=-_WHOLE), integer("high", self.high)
        if high > _WHOLE:
            raise ValueError(f"high must be at most 2**53, got {high}")
        _set_bounds(self, low, high)

    def _read(self, column: Column) -> Array:
        return np.clip(np.rint(numbers_of(column)), self.low, self.high) + 0.0

    def _fill(self, name: str, value: Any) -> float:
        number = integer(name, value)
        if not self.low <= number <= self.high:
            raise ValueError(f"{name} must lie between {self.low} and {self.high}, got {number}")
        return number

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        return rng.integers(self.low, self.high, size=n, endpoint=True).astype(np.float64)


@dataclass(frozen=True)
class Flag:
    """A truth value: True or False, or the numbers 1 and 0. Anything else, ``"yes"`` for example, counts as missing.

    Examples
    --------
    >>> from dpbook import Schema
    >>> from dpbook.schema import Flag
    >>> Schema({"smoker": Flag()}, missing={"smoker": False}).apply([[True], [1.0], ["yes"]])["smoker"].tolist()
    [True, True, False]

    Explained in :doc:`/book/sample-and-aggregate/any-model-any-size`.
    """

    def _read(self, column: Column) -> Array:
        found = numbers_of(column)
        return np.where((found == 0) | (found == 1), found + 0.0, np.nan)

    def _fill(self, name: str, value: Any) -> float:
        return flag(name, value)

    def _draw(self, n: int, rng: np.random.Generator) -> Array:
        return rng.integers(2, size=n).astype(np.float64)


@dataclass(frozen=True)
class Category:
    """One of a few labels that are known without the data.

    Parameters
    ----------
    labels : sequence of str or numbers
        The labels, in order. A number in the data is compared as a number, whatever its type; the text ``"1"`` is not
        the label 1.
    other : str or number, optional
        The label, one of these or a further one, that every unknown value gets. By default an unknown value is refused
        with an error, which is not private: only the curator may see it.

    Examples
    --------
    >>> from dpbook import Schema
    >>> from dpbook.schema import Category
    >>> region = Category(["north", "south"], other="elsewhere")
    >>> region.states
    ('north', 'south', 'elsewhere')
    >>> Schema({"region": region}).apply([{"region": "south"}, {"region": "Atlantis"}])["region"].tolist()
    ['south', 'elsewhere']

    Explained in :doc:`/book/sample-and-aggregate/any-model-any-size`.
    """

    labels: tuple[Any, ...]
    other: Any = None

    def __post_init__(self) -> None:
        given = self.labels
        if isinstance(given, (str, bytes, Set, Mapping)) or not isinstance(given, Iterable):  # a set has no order
            raise TypeError(f"labels must be a sequence of strings or numbers, got {given!r}")
        known = tuple(_label("labels", each) for each in given)
        if not known:
            raise ValueError("labels must hold at least one label, got none")
        if len(set(known)) != len(known):
            raise ValueError(f"labels must be different, got {known!r}")
        object.__setattr__(self, "labels", known)
        if self.other is not None:
            object.__setattr__(self, "other", _label("other", self.other))

    @property
    def states(self) -> tuple[Any, ...]:
        """All labels that a record can end up with, ``other`` included."""
        return self.labels if self.other is None or self.other in self.labels else (*self.labels, self.other)

    def _read(self, column: Column, name: str, *, with_missing: bool) -> IntArray:
        """Return the codes of a column's labels, -1 where missing; raise at an unknown one if there is no other."""
        known: dict[Any, int] = {each: code for code, each in enumerate(self.states)}
        if with_missing:
            known.setdefault(MISSING, -1)  # of data to which this schema was applied before
        unknown = -2 if self.other is None else known[self.other]
        codes = _codes(column, known, unknown)
        if (codes == -2).any():
            raise ValueError(
                f"data must hold known labels in column {name!r}: a value is none of {list(self.labels)}. Give "
                "Category(..., other=...) to send unknown values to a label"
            )
        return codes

    def _fill(self, name: str, value: Any) -> Any:
        label = _label(name, value)
        if label not in self.states:
            raise ValueError(f"{name} must be one of {list(self.states)}, got {value!r}")
        return self.states[self.states.index(label)]


Kind = Number | Integer | Flag | Category
_KINDS: dict[str, type[Kind]] = {"number": Number, "integer": Integer, "flag": Flag, "category": Category}


def _set_bounds(kind: Number | Integer, low: float, high: float) -> None:
    if low >= high:
        raise ValueError(f"low must be less than high, got {low} and {high}")
    object.__setattr__(kind, "low", low)
    object.__setattr__(kind, "high", high)


def _label(name: str, value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, str):
        return str(plain)
    if isinstance(plain, bool) or not isinstance(plain, numbers.Real) or not isinstance(plain, (int, float)):
        raise TypeError(f"{name} must be strings or numbers (for truth values there is Flag), got {value!r}")
    if not abs(plain) <= _WHOLE:
        raise ValueError(f"{name} must be numbers of magnitude at most 2**53, got {value!r}")
    return plain


def _codes(column: Column, known: Mapping[Any, int], unknown: int) -> IntArray:
    """Return the code of each value of a column; numbers are looked up once for each that occurs."""
    if column.dtype == object:
        return np.fromiter((_code(value, known, unknown) for value in column.tolist()), np.int64, len(column))
    values, places = np.unique(column, return_inverse=True)
    return np.array([_code(value, known, unknown) for value in values.tolist()], dtype=np.int64)[places]


def _code(value: Any, known: Mapping[Any, int], unknown: int) -> int:
    if type(value) is str:
        return known.get(value, unknown)
    number = number_of(value)
    if number is not None:
        return -1 if math.isnan(number) else known.get(number, unknown)
    if isinstance(value, bytes):
        return known.get(value.decode(errors="replace"), unknown)
    return known.get(str(value), unknown) if isinstance(value, str) else unknown


@dataclass(frozen=True, eq=False, repr=False)
class Schema:
    """A public description of a record: its columns, and what each may hold.

    Parameters
    ----------
    columns : mapping of str to Number, Integer, Flag or Category
        The columns, in order, with their kinds.
    missing : {"refuse", "category"} or mapping of str to value
        What becomes of a missing value (None, NaN, NA, a masked entry, text where a number is due). ``"refuse"``, the
        default, raises an error, which is not private: only the curator may see it. ``"category"`` keeps it as a state
        of its own: the label ``"missing"`` in a Category, and NaN in any other column, which is then of floats. A
        mapping gives columns the value that is put in its place; in columns that it does not name a missing value is
        refused.

    Notes
    -----
    Frames have the columns in this order and a fresh index; a Number is of float64, an Integer of int64, a Flag of bool
    and a Category a categorical of its states. Every value is judged by itself, in its record. What was decided before
    the schema sees a value, it cannot undo: a reader that guesses the type of a whole column, such as
    ``pandas.read_csv``, makes text of all its numbers when one is text. Read such columns as text and turn them into
    numbers one by one, with ``pandas.to_numeric(column, errors="coerce")``.

    Examples
    --------
    >>> from dpbook import Schema
    >>> from dpbook.schema import Category, Flag, Integer, Number
    >>> schema = Schema(
    ...     {"age": Number(0, 120), "visits": Integer(0, 50), "region": Category(["north", "south"]), "smoker": Flag()},
    ...     missing={"age": 40, "smoker": False},
    ... )
    >>> frame = schema.apply([{"age": 200, "visits": 3, "region": "north"}, ("n/a", 1, "south", True)])
    >>> frame.values.tolist()
    [[120.0, 3, 'north', False], [40.0, 1, 'south', True]]
    >>> frame.dtypes.astype(str).tolist()
    ['float64', 'int64', 'category', 'bool']
    >>> Schema.from_json(schema.to_json()) == schema
    True
    >>> schema.example(3)["region"].isin(["north", "south"]).all()
    np.True_
    >>> schema.part(["smoker", "age"]).names
    ('smoker', 'age')
    >>> schema.bounds["visits"], schema.cardinalities
    ((0, 50), {'visits': 51, 'region': 2, 'smoker': 2})

    Explained in :doc:`/book/sample-and-aggregate/any-model-any-size`.
    """

    columns: Mapping[str, Kind]
    missing: str | Mapping[str, Any] = "refuse"

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise TypeError(f"columns must map names to Number, Integer, Flag or Category, got {self.columns!r}")
        for name, kind in self.columns.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"columns must have non-empty strings as names, got {name!r}")
            if not isinstance(kind, Kind):
                raise TypeError(f"columns[{name!r}] must be a Number, Integer, Flag or Category, got {kind!r}")
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        object.__setattr__(self, "missing", self._checked_missing())

    def _checked_missing(self) -> str | Mapping[str, Any]:
        if isinstance(self.missing, Mapping):
            unknown = [name for name in self.missing if name not in self.columns]
            if unknown:
                raise ValueError(f"missing must name columns among {list(self.columns)}, got {unknown}")
            fills = {name: self.columns[name]._fill(f"missing[{name!r}]", v) for name, v in self.missing.items()}
            return MappingProxyType(fills)
        if not isinstance(self.missing, str) or self.missing not in ("refuse", "category"):
            raise ValueError(
                f"missing must be 'refuse', 'category' or a mapping of columns to values, got {self.missing!r}"
            )
        if self.missing == "category":
            for name, kind in self.columns.items():
                if isinstance(kind, Category) and MISSING in kind.states:
                    raise ValueError(
                        f"missing = 'category' adds the label {MISSING!r}, which columns[{name!r}] has already: map "
                        "the column to that label instead"
                    )
        return self.missing

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return list(self.columns.items()) == list(other.columns.items()) and self.missing == other.missing

    def __hash__(self) -> int:
        return hash(tuple(self.columns.items()))

    def __repr__(self) -> str:
        missing = dict(self.missing) if isinstance(self.missing, Mapping) else self.missing
        return f"Schema({dict(self.columns)!r}, missing={missing!r})"

    def _repr_html_(self) -> str:
        fills = self.missing if isinstance(self.missing, Mapping) else {}
        otherwise = "a state of its own" if self.missing == "category" else "refused"
        return _html.table(
            f"Schema of {len(self.columns)} column{'s' * (len(self.columns) != 1)}",
            ["column", "kind", "values", "if missing"],
            [[name, _name_of(kind), _span(kind), fills.get(name, otherwise)] for name, kind in self.columns.items()],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        missing = dict(self.missing) if isinstance(self.missing, Mapping) else self.missing
        return Schema, (dict(self.columns), missing)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(self.columns)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each column, ``"number"``, ``"integer"``, ``"flag"`` or ``"category"``."""
        return {name: _name_of(kind) for name, kind in self.columns.items()}

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The bounds of each column that holds numbers or truth values."""
        spans = {name: (0, 1) if isinstance(kind, Flag) else kind for name, kind in self.columns.items()}
        return {
            name: each if isinstance(each, tuple) else (each.low, each.high)
            for name, each in spans.items()
            if not isinstance(each, Category)
        }

    @property
    def cardinalities(self) -> dict[str, int]:
        """How many values each column can take, where they are finitely many, a missing one included."""
        extra = int(self.missing == "category")
        return {
            name: extra + (kind.high - kind.low + 1 if isinstance(kind, Integer) else len(_states(kind)))
            for name, kind in self.columns.items()
            if not isinstance(kind, Number)
        }

    @property
    def dtypes(self) -> dict[str, Any]:
        """The type of each column in the frames that the schema makes."""
        return {name: self._dtype(kind) for name, kind in self.columns.items()}

    def _dtype(self, kind: Kind) -> Any:
        kept = self.missing == "category"
        if isinstance(kind, Category):
            return pd.CategoricalDtype([*kind.states, MISSING] if kept else list(kind.states))
        if kept or isinstance(kind, Number):
            return np.dtype(np.float64)
        return np.dtype(np.int64 if isinstance(kind, Integer) else np.bool_)

    def part(self, names: Sequence[str]) -> Schema:
        """Return the schema of some columns, those called ``names``, in this order."""
        if unknown := [name for name in names if name not in self.columns]:
            raise ValueError(f"names must be columns among {list(self.columns)}, got {unknown}")
        fills = self.missing
        if not isinstance(fills, str):
            fills = {name: fills[name] for name in names if name in fills}
        return Schema({name: self.columns[name] for name in names}, fills)

    def apply(self, data: Any) -> Any:
        """Return ``data`` as frames of this schema, record by record.

        Nothing here is private: the frames are the data, and an error about a value (a missing value or an unknown
        label that is to be refused) is for the curator's eyes alone. Columns that the schema does not name are dropped.

        Parameters
        ----------
        data : DataFrame, Arrow table or data set, path, list of rows, mapping of columns, array, chunks, or Dask
            A table must have all the columns, under their names. An array has them in the schema's order. A row is a
            mapping, in which a name that is not there is missing, or a sequence in the schema's order, in which what
            lies beyond its end is missing. Masked entries are missing. Other tables, of polars for example, are read
            through Arrow. A path is that of a Parquet, Arrow or CSV file; the texts of a CSV file are read as the
            schema says, each by itself: ``"1"`` is then the label 1, and a blank is missing.

        Returns
        -------
        DataFrame, iterator of DataFrame, or Dask DataFrame
            One frame for data in memory, a list of Arrow batches included. An iterator of frames, made one at a time,
            for an iterator of chunks, a path, or an Arrow data set or reader. For a Dask collection a Dask DataFrame,
            whose partitions are made where they live, each with an index of its own.
        """
        source = source_of(data)
        if is_dask(source):
            return self._apply_dask(source)
        if isinstance(source, Stream):
            _check_header(self.names, list(source.column_names))
            return (self._frame([piece]) for piece in pieces_of(source, columns=list(self.names), texts=True))
        if isinstance(data, Iterator):
            return (self._frame(pieces_of(chunk, texts=True)) for chunk in data)
        return self._frame(pieces_of(source))

    def _apply_dask(self, data: Any) -> Any:
        dask: Any = importlib.import_module("dask")
        empty = self._frame(iter(()))
        if hasattr(type(data), "map_partitions") and hasattr(data, "columns"):
            _check_header(self.names, list(data.columns))
            narrow = data[list(self.names)]
            return narrow.map_partitions(self.apply, meta=empty).clear_divisions()
        make = dask.delayed(self.apply, pure=False)
        parts = [make(part) for part in dask_partitions(data, None, "data")]
        return importlib.import_module("dask.dataframe").from_delayed(parts, meta=empty)

    def _frame(self, pieces: Iterable[Table | Rows]) -> pd.DataFrame:
        """Return one frame of all the pieces: every column read piece by piece and value by value."""
        read = [self._read(piece) for piece in pieces]
        columns: dict[str, Any] = {}
        for name, kind in self.columns.items():
            values = [each[name] for each in read] or [np.empty(0)]
            columns[name] = self._typed(name, kind, np.concatenate(values))
        return self._made(columns)

    def _made(self, columns: Mapping[str, Any]) -> pd.DataFrame:
        made = pd.DataFrame(dict(enumerate(columns.values())))
        made.columns = pd.Index(self.names)
        return made

    def _read(self, piece: Table | Rows) -> dict[str, Column]:
        """Return, for each column, numbers or codes of a piece's records: -1 or NaN where missing."""
        found = self._positions(piece) if isinstance(piece, Table) else self._by_row(piece)
        kept = self.missing == "category"
        return {
            name: kind._read(found[name], name, with_missing=kept)
            if isinstance(kind, Category)
            else kind._read(found[name])
            for name, kind in self.columns.items()
        }

    def _positions(self, table: Table) -> dict[str, Column]:
        if table.named:
            _check_header(self.names, list(table.names))
            found = {name: table.columns[table.names.index(name)] for name in self.names}
            return {name: _meant(self.columns[name], each) for name, each in found.items()} if table.texts else found
        if len(table.columns) != len(self.names):
            raise ValueError(
                f"data must, without column names, have {len(self.names)} columns, {', '.join(self.names)}; "
                f"got {len(table.columns)}"
            )
        return dict(zip(self.names, table.columns, strict=True))

    def _by_row(self, piece: Rows) -> dict[str, Column]:
        records = [dict(row_items(row)) for row in piece.rows]
        return {
            name: objects([record.get(name, record.get(place)) for record in records])
            for place, name in enumerate(self.names)
        }

    def _typed(self, name: str, kind: Kind, values: Column) -> Any:
        """Return a column in its final type, missing values dealt with as declared."""
        gone = values < 0 if isinstance(kind, Category) else np.isnan(values)
        if gone.any() and self.missing != "category":
            if self.missing == "refuse" or name not in self.missing:
                raise ValueError(
                    f"data must have no missing values in column {name!r}: there is one, or text where a number is "
                    "due. Give missing='category', or missing={column: value} to put a value in its place"
                )
            fill = cast(Mapping[str, Any], self.missing)[name]
            values = np.where(gone, kind.states.index(fill) if isinstance(kind, Category) else fill, values)
        kept = self._dtype(kind)
        if isinstance(kind, Category):
            codes = np.where(values < 0, len(kind.states), values).astype(np.int64)
            return pd.Categorical.from_codes(cast(Sequence[int], codes), dtype=kept)
        return values.astype(kept)

    def example(self, n: int, *, rng: np.random.Generator | None = None) -> pd.DataFrame:
        """Return ``n`` made-up records, drawn by ``rng`` from the schema alone: to try a model without touching data.

        They are as :meth:`apply` would make them. Columns are independent, numbers uniform between their bounds, labels
        equally likely. Where missing values are a state of their own, ``"missing"`` is such a label, and a tenth
        of the other values are NaN.
        """
        size, generator = integer("n", n, least=0), analyst_generator(rng)
        kept = self.missing == "category"
        columns = {}
        for name, kind in self.columns.items():
            if isinstance(kind, Category):
                values: Any = generator.integers(len(kind.states) + kept, size=size)
                values = np.where(values == len(kind.states), -1, values)
            else:
                values = kind._draw(size, generator)
                values = np.where(generator.random(size) < _SHARE_MISSING, np.nan, values) if kept else values
            columns[name] = self._typed(name, kind, values)
        return self._made(columns)

    def to_json(self) -> str:
        """Return the schema as JSON text that :meth:`from_json` restores."""
        columns = [
            {"name": name, "kind": _name_of(kind), **{each: getattr(kind, each) for each in _fields(type(kind))}}
            for name, kind in self.columns.items()
        ]
        missing = dict(self.missing) if isinstance(self.missing, Mapping) else self.missing
        return json.dumps({"format": _FORMAT, "columns": columns, "missing": missing}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Return the schema of which ``text`` is the :meth:`to_json`; anything else is a ValueError."""
        if not isinstance(text, str):
            raise ValueError(f"text must be a string, got {type(text).__name__}")
        try:
            content = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"text is not JSON of a schema: {error}") from None
        found = content.get("format") if isinstance(content, dict) else None
        if found != _FORMAT:
            raise ValueError(f"text is not a dpbook schema: its format is {found!r}, not {_FORMAT!r}")
        if set(content) != {"format", "columns", "missing"}:
            raise ValueError(f"text has other fields than a schema: {sorted(content)}")
        try:
            return cls(_no_repeats([_column_of_json(each) for each in content["columns"]]), content["missing"])
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as error:
            raise ValueError(f"text does not describe a schema: {error}") from None


def _meant(kind: Kind, texts: Column) -> Column:
    """Return what the texts of a file mean in a column of this kind."""
    return labels_of_texts(texts, kind.states) if isinstance(kind, Category) else numbers_of_texts(texts)


def _states(kind: Kind) -> tuple[Any, ...]:
    """Return the values that a column can take, where the schema lists them: of a Category or a Flag."""
    return kind.states if isinstance(kind, Category) else (False, True)


def _span(kind: Kind) -> str:
    """Return the values that a column can take, for a table."""
    if isinstance(kind, Category):
        return _html.several(kind.states) + (f"; others to {kind.other}" if kind.other is not None else "")
    return "False, True" if isinstance(kind, Flag) else f"{kind.low:.15g} to {kind.high:.15g}"


def _name_of(kind: Kind) -> str:
    return type(kind).__name__.lower()


def _fields(kind: type[Kind]) -> list[str]:
    return list(kind.__dataclass_fields__)


def _check_header(names: Sequence[str], held: list[Hashable]) -> None:
    wrong = [name for name in names if held.count(name) != 1]
    if wrong:
        raise ValueError(f"data must have each column of the schema once: {wrong} do not occur once in {held}")


def _no_repeats(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    known: dict[Any, Any] = {}
    for name, value in pairs:
        if name in known:
            raise ValueError(f"{name!r} occurs twice")
        known[name] = value
    return known


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _column_of_json(content: dict[str, Any]) -> tuple[str, Kind]:
    rest = dict(content)
    name, kind = rest.pop("name"), _KINDS[rest.pop("kind")]
    if set(rest) != set(_fields(kind)):
        raise ValueError(f"column {name!r} has other fields than a {kind.__name__}: {sorted(rest)}")
    return name, kind(**rest)
