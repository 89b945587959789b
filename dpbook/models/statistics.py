"""Statistics of a record with public ranges: what is summed, known to both sides.

Every statistic is scaled to its range before it is summed: numbers to [-1, 1] by the bounds of their column, a function
of your own by its range, membership in a cell is 0 or 1. So none of them can be larger than the noise was made for,
whatever a record holds or a function returns.
"""

from __future__ import annotations

import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpbook._arrays import Array
from dpbook._validation import finite_array, integer, interval, positive
from dpbook.schema import Category, Flag, Integer, Number, Schema
from dpbook.sensitivity import bounded_sum, fourth_moments, histogram, second_moments

__all__ = ["Columns", "Histogram", "Indicator", "Own", "Powers", "Product", "Statistic", "Table", "statistic_of"]

Columns = Mapping[str, Array]

_MOST_CELLS = 1000  # of a table or histogram: every cell has noise of its own
_DEGREES = (1, 2, 3, 4)


class Statistic(ABC):
    """A public function of a record, or several of one kind, with a public range.

    Parameters are those of its kinds: :class:`Powers`, :class:`Product`, :class:`Table`, :class:`Histogram`,
    :class:`Indicator` and :class:`Own`. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Attributes
    ----------
    weight : float
        What it is multiplied by before noise of one scale is added to everything that is released, and divided by
        afterwards: a statistic of weight 2 has half the noise, at the others' expense.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import Schema, models
    >>> from dpbook.schema import Number
    >>> schema, powers = Schema({"wait": Number(0, 30)}), models.Powers("wait", degree=2)
    >>> powers.check(schema)
    >>> powers.labels(schema), powers.values({"wait": np.array([0.0, 15.0])}, schema).tolist()
    (('wait', 'wait²'), [[-1.0, 1.0], [0.0, 0.0]])
    >>> powers.sensitivity(schema, norm=1), powers.attained(schema), powers.settings()["kind"]
    (2.25, True, 'powers')
    """

    kind: ClassVar[str]
    weight: float

    @property
    @abstractmethod
    def name(self) -> str:
        """What its values are called in a release."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Raise unless the columns are there, in ``schema``, and of the right kinds."""

    @abstractmethod
    def labels(self, schema: Schema) -> tuple[str, ...]:
        """Return what its components are called, for records of ``schema``."""

    @abstractmethod
    def values(self, records: Columns, schema: Schema) -> Array:
        """Return its components (..., k) for ``records`` of ``schema``, arrays by column; labels are codes."""

    @abstractmethod
    def sensitivity(self, schema: Schema, norm: int) -> float:
        """Return the sensitivity of its sum for records of ``schema``, in L1 or L2 ``norm``, without the weight."""

    def attained(self, schema: Schema) -> bool:
        """Return whether two records of ``schema`` move it as much as its sensitivity says."""
        return True

    def settings(self) -> dict[str, Any]:
        """Return what JSON carries: its kind and its public numbers."""
        shown = {name: getattr(self, name) for name in self.__dataclass_fields__}  # type: ignore[attr-defined]
        return {"kind": self.kind, **{name: each for name, each in shown.items() if not callable(each)}}


def _names(value: Any) -> tuple[str, ...]:
    """Return one or several names of columns as a tuple."""
    given = (value,) if isinstance(value, str) else tuple(value)
    if not given or not all(isinstance(each, str) for each in given):
        raise TypeError(f"columns must be one or more names, got {value!r}")
    return given


def _require(schema: Schema, names: Sequence[str], kinds: tuple[type, ...], what: str) -> None:
    for name in names:
        if name not in schema.columns:
            raise ValueError(f"statistics must be of columns of the schema ({', '.join(schema.names)}), got {name!r}")
        if not isinstance(schema.columns[name], kinds):
            held = type(schema.columns[name]).__name__
            takes = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"statistics: {what} must be of {takes} columns, and {name!r} is a {held}")


_NUMBERS: tuple[type, ...] = (Number, Integer, Flag)
_DISCRETE: tuple[type, ...] = (Category, Flag, Integer)


def scaled(values: Array, low: float, high: float) -> Array:
    """Return values moved to [-1, 1] as low and high are to its ends, and clipped to it."""
    return np.clip((np.clip(values, low, high) - low) / (high - low) * 2 - 1, -1.0, 1.0)


def _units(records: Columns, names: Sequence[str], schema: Schema) -> list[Array]:
    bounds = schema.bounds
    return [scaled(records[name], *bounds[name]) for name in names]


@dataclass(frozen=True)
class Powers(Statistic):
    """All products of some columns up to a degree: with degree 2 of x and y these are x, y, x², xy and y².

    Columns are scaled to [-1, 1] by their bounds first. The joint sensitivity is exact for degrees 1, 2 and 4; for
    degree 3 it is that of degree 4. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    of : str or sequence of str
        Columns of numbers, whole numbers or flags.
    degree : {1, 2, 3, 4}, default 1
        The highest.
    weight : float, default 1.0
        As in :class:`Statistic`.

    Examples
    --------
    >>> from dpbook import Schema, models
    >>> from dpbook.schema import Number
    >>> models.Powers(["x", "y"], degree=2).labels(Schema({"x": Number(0, 9), "y": Number(0, 9)}))
    ('x', 'y', 'x²', 'xy', 'y²')
    """

    kind = "powers"
    of: str | Sequence[str]
    degree: int = 1
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", _names(self.of))
        if integer("degree", self.degree) not in _DEGREES:
            raise ValueError(f"degree must be one of {_DEGREES}, got {self.degree}")
        object.__setattr__(self, "weight", positive("weight", self.weight))
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"of must name each column once, got {self.of!r}")

    @property
    def name(self) -> str:
        """What its values are called in a release."""
        return f"powers of {', '.join(self.of)}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(self.of)

    def check(self, schema: Schema) -> None:
        """Raise unless all columns hold numbers."""
        _require(schema, self.columns, _NUMBERS, "powers")

    def _products(self) -> list[tuple[int, ...]]:
        """Return the columns that are multiplied, product by product, by their places."""
        places = range(len(self.columns))
        return [each for d in range(1, self.degree + 1) for each in itertools.combinations_with_replacement(places, d)]

    def labels(self, schema: Schema) -> tuple[str, ...]:
        """Return the products as one writes them."""
        names = [[self.columns[place] for place in each] for each in self._products()]
        return tuple(_product_label(each) for each in names)

    def values(self, records: Columns, schema: Schema) -> Array:
        """Return the products of the scaled columns."""
        units = np.broadcast_arrays(*_units(records, self.columns, schema))
        known: dict[tuple[int, ...], Array] = {(i,): unit for i, unit in enumerate(units)}
        for each in self._products():
            if len(each) > 1:
                known[each] = known[each[:-1]] * units[each[-1]]
        return np.stack([known[each] for each in self._products()], axis=-1)

    def sensitivity(self, schema: Schema, norm: int) -> float:
        """Return the exact sensitivity on the box of scaled columns, or that of one degree more."""
        low, high = [-1.0] * len(self.columns), [1.0] * len(self.columns)
        if self.degree == 1:
            return bounded_sum(low, high, norm=norm)
        if self.degree == 2:
            return second_moments(low, high, intercept=True, norm=norm)
        return fourth_moments(low, high, response=False, norm=norm)

    def attained(self, schema: Schema) -> bool:
        """Tell whether it is: for whole numbers the worst pair may not exist, for degree 3 it is a bound."""
        real = all(isinstance(schema.columns[name], Number) for name in self.columns)
        return self.degree == 1 or (real and self.degree != 3)


def _product_label(names: Sequence[str]) -> str:
    powers = {1: "", 2: "²", 3: "³", 4: "⁴"}
    joined = "" if all(len(name) == 1 for name in names) else "·"
    return joined.join(f"{name}{powers[names.count(name)]}" for name in dict.fromkeys(names))


@dataclass(frozen=True)
class Product(Statistic):
    """The product of two to four columns, each scaled to [-1, 1] by its bounds.

    Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    of : sequence of str
        Columns of numbers, whole numbers or flags; one that is named twice is squared.
    weight : float, default 1.0
        As in :class:`Statistic`.

    Examples
    --------
    >>> from dpbook import models
    >>> models.Product(["age", "wage"]).name
    'product of age, wage'
    """

    kind = "product"
    of: Sequence[str]
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", _names(self.of))
        if not 2 <= len(self.of) <= max(_DEGREES):
            raise ValueError(f"of must name two to four columns, got {self.of!r}")
        object.__setattr__(self, "weight", positive("weight", self.weight))

    @property
    def name(self) -> str:
        """What its values are called in a release."""
        return f"product of {', '.join(self.of)}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(dict.fromkeys(self.of))

    def check(self, schema: Schema) -> None:
        """Raise unless all columns hold numbers."""
        _require(schema, self.columns, _NUMBERS, "a product")

    def labels(self, schema: Schema) -> tuple[str, ...]:
        """Return the product as one writes it."""
        return (_product_label(self.of),)

    def values(self, records: Columns, schema: Schema) -> Array:
        """Return the product of the scaled columns."""
        product: Array = np.ones(())
        for unit in _units(records, self.of, schema):
            product = product * unit
        return np.asarray(product)[..., None]

    def sensitivity(self, schema: Schema, norm: int) -> float:
        """Return the width of its range: 2, or 1 where all powers are even."""
        even = all(self.of.count(name) % 2 == 0 for name in self.columns)
        return bounded_sum(0.0 if even else -1.0, 1.0, norm=norm)


@dataclass(frozen=True)
class Table(Statistic):
    """How many records fall into each cell of a table of some columns.

    A replaced record leaves one cell and enters another: the sensitivity is 2 (L1), whatever the number of cells.
    Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    of : str or sequence of str
        Columns of categories, flags or whole numbers; at most 1,000 cells.
    weight : float, default 1.0
        As in :class:`Statistic`.

    Examples
    --------
    >>> from dpbook import Schema, models
    >>> from dpbook.schema import Category, Flag
    >>> schema = Schema({"vote": Category(["A", "B"]), "member": Flag()})
    >>> models.Table(["vote", "member"]).labels(schema)
    ('A, False', 'A, True', 'B, False', 'B, True')
    """

    kind = "table"
    of: str | Sequence[str]
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", _names(self.of))
        object.__setattr__(self, "weight", positive("weight", self.weight))
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"of must name each column once, got {self.of!r}")

    @property
    def name(self) -> str:
        """What its values are called in a release."""
        return f"table of {', '.join(self.of)}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(self.of)

    def check(self, schema: Schema) -> None:
        """Raise unless all columns take few values, and the cells are not too many."""
        _require(schema, self.columns, _DISCRETE, "a table")
        cells = int(np.prod([schema.cardinalities[name] for name in self.columns]))
        if cells > _MOST_CELLS:
            raise ValueError(f"statistics: {self.name} has {cells} cells, and at most {_MOST_CELLS} are released")

    def labels(self, schema: Schema) -> tuple[str, ...]:
        """Return the labels of the cells, the last column fastest."""
        sides = [_states(schema, name) for name in self.columns]
        return tuple(", ".join(map(str, cell)) for cell in itertools.product(*sides))

    def values(self, records: Columns, schema: Schema) -> Array:
        """Return a one in each record's cell."""
        cell: Any = 0
        for name in self.columns:
            size = schema.cardinalities[name]
            cell = cell * size + np.clip(records[name] - _first_code(schema, name), 0, size - 1).astype(np.int64)
        count = int(np.prod([schema.cardinalities[name] for name in self.columns]))
        return np.asarray(np.asarray(cell)[..., None] == np.arange(count), dtype=np.float64)

    def sensitivity(self, schema: Schema, norm: int) -> float:
        """Return that of a histogram."""
        return histogram(norm=norm)


def _states(schema: Schema, name: str) -> tuple[Any, ...]:
    """Return the values that a discrete column can take, in the order of their codes."""
    kind = schema.columns[name]
    if isinstance(kind, Category):
        return (*kind.states, *(("missing",) if schema.missing == "category" else ()))
    return (False, True) if isinstance(kind, Flag) else tuple(range(int(kind.low), int(kind.high) + 1))


def _first_code(schema: Schema, name: str) -> float:
    kind = schema.columns[name]
    return float(kind.low) if isinstance(kind, Integer) else 0.0


@dataclass(frozen=True)
class Histogram(Statistic):
    """How many numbers of a column fall between edges, and below the first and from the last on.

    Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    of : str
        A column of numbers or whole numbers.
    edges : sequence of float
        Inner edges, in order: e edges make e + 1 cells, closed on the left.
    weight : float, default 1.0
        As in :class:`Statistic`.

    Examples
    --------
    >>> from dpbook import Schema, models
    >>> from dpbook.schema import Number
    >>> models.Histogram("age", [18, 65]).labels(Schema({"age": Number(0, 120)}))
    ('below 18', '[18, 65)', 'from 65')
    """

    kind = "histogram"
    of: str
    edges: ArrayLike
    weight: float = 1.0

    def __post_init__(self) -> None:
        edges = np.atleast_1d(finite_array("edges", self.edges))
        if edges.ndim != 1 or not 1 <= edges.size < _MOST_CELLS or (np.diff(edges) <= 0).any():
            raise ValueError(f"edges must be from 1 to {_MOST_CELLS - 1} increasing numbers, got {self.edges!r:.80}")
        object.__setattr__(self, "edges", tuple(edges.tolist()))
        object.__setattr__(self, "of", _names(self.of)[0])
        object.__setattr__(self, "weight", positive("weight", self.weight))

    @property
    def name(self) -> str:
        """What its values are called in a release."""
        return f"histogram of {self.of}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return (self.of,)

    @property
    def _inner(self) -> Array:
        return np.asarray(self.edges, dtype=np.float64)

    def check(self, schema: Schema) -> None:
        """Raise unless the column holds numbers, and its bounds reach beyond the edges."""
        _require(schema, self.columns, (Number, Integer), "a histogram")
        low, high = schema.bounds[self.of]
        if not (low < self._inner[0] and self._inner[-1] <= high):
            held = self._inner.tolist()
            raise ValueError(f"statistics: edges of {self.name} must lie inside ({low:g}, {high:g}], got {held}")

    def labels(self, schema: Schema) -> tuple[str, ...]:
        """Return the cells as one writes them."""
        ends = [f"{edge:g}" for edge in self._inner]
        return (f"below {ends[0]}", *(f"[{a}, {b})" for a, b in itertools.pairwise(ends)), f"from {ends[-1]}")

    def values(self, records: Columns, schema: Schema) -> Array:
        """Return a one in each record's cell."""
        cell = np.searchsorted(self._inner, records[self.of], side="right")
        return np.asarray(np.asarray(cell)[..., None] == np.arange(self._inner.size + 1), dtype=np.float64)

    def sensitivity(self, schema: Schema, norm: int) -> float:
        """Return that of a histogram."""
        return histogram(norm=norm)


@dataclass(frozen=True)
class Indicator(Statistic):
    """How many records have a label, or a number from low to below high.

    Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    of : str
        A column.
    value : label, True, False, or pair of float
        One label of a category or flag; or (low, high) of a column of numbers, high left out.
    weight : float, default 1.0
        As in :class:`Statistic`.

    Examples
    --------
    >>> from dpbook import models
    >>> models.Indicator("wage", (0, 20)).name, models.Indicator("vote", "A").name
    ('wage in [0, 20)', 'vote is A')
    """

    kind = "indicator"
    of: str
    value: Any
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", _names(self.of)[0])
        object.__setattr__(self, "weight", positive("weight", self.weight))
        if isinstance(self.value, (list, tuple)):
            object.__setattr__(self, "value", interval("value", self.value))

    @property
    def name(self) -> str:
        """What its value is called in a release."""
        if isinstance(self.value, tuple):
            return f"{self.of} in [{self.value[0]:g}, {self.value[1]:g})"
        return f"{self.of} is {self.value}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that it reads."""
        return (self.of,)

    def check(self, schema: Schema) -> None:
        """Raise unless the value is one of the column."""
        if isinstance(self.value, tuple):
            _require(schema, self.columns, (Number, Integer), "an indicator of an interval")
            return
        _require(schema, self.columns, (Category, Flag), "an indicator of a label")
        if self.value not in _states(schema, self.of):
            known = list(_states(schema, self.of))
            raise ValueError(f"statistics: {self.value!r} is no value of column {self.of!r}, which has {known}")

    def labels(self, schema: Schema) -> tuple[str, ...]:
        """Return its name."""
        return (self.name,)

    def values(self, records: Columns, schema: Schema) -> Array:
        """Return one for records of that value, zero for others."""
        held = records[self.of]
        if isinstance(self.value, tuple):
            return np.asarray((held >= self.value[0]) & (held < self.value[1]), dtype=np.float64)[..., None]
        return np.asarray(held == _states(schema, self.of).index(self.value), dtype=np.float64)[..., None]

    def sensitivity(self, schema: Schema, norm: int) -> float:
        """Return one: a record counts or does not."""
        return bounded_sum(0.0, 1.0, norm=norm)


@dataclass(frozen=True)
class Own(Statistic):
    """A function of your own of a record's columns, with a public range.

    A release asks it about one record at a time and clips what it says to the range; an error or NaN counts as the
    lower end. So a release is private whatever the function does with the record that it is given, as long as it keeps
    no memory of other records. It cannot travel in JSON: the analyst passes it to ``infer`` again, where it is compared
    with the curator's on made-up records. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    called : str
        Its name.
    function : callable
        Takes a mapping of column names to arrays of one shape (labels as codes 0, 1, …) and returns an array of that
        shape, entry by entry.
    of : str or sequence of str
        The columns that it reads.
    range : (low, high)
        What values are clipped to, from the formula and not from data.
    weight : float, default 1.0
        As in :class:`Statistic`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import models
    >>> log = models.Own("log wage", lambda record: np.log(record["wage"]), "wage", (0, 5))
    >>> log.name, log.one_by_one({"wage": np.array([1.0, -3.0, 1e9])}).ravel().tolist()
    ('log wage', [-1.0, -1.0, 1.0])
    """

    kind = "own"
    called: str
    function: Callable[[Columns], Any]
    of: str | Sequence[str]
    range: tuple[float, float]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.called, str) or not self.called:
            raise TypeError(f"called must be the name of the statistic, got {self.called!r}")
        if not callable(self.function):
            raise TypeError(f"function must be callable, got {self.function!r}")
        object.__setattr__(self, "of", _names(self.of))
        object.__setattr__(self, "range", interval("range", self.range))
        object.__setattr__(self, "weight", positive("weight", self.weight))

    @property
    def name(self) -> str:
        """What its value is called in a release."""
        return self.called

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(self.of)

    def check(self, schema: Schema) -> None:
        """Raise unless the columns are there."""
        _require(schema, self.columns, (Number, Integer, Flag, Category), "a function")

    def labels(self, schema: Schema) -> tuple[str, ...]:
        """Return its name."""
        return (self.called,)

    def values(self, records: Columns, schema: Schema) -> Array:
        """Return the function of all records at once, scaled and clipped: the analyst's way."""
        given = dict(zip(self.columns, np.broadcast_arrays(*(records[name] for name in self.columns)), strict=True))
        shape = next(iter(given.values())).shape
        with np.errstate(all="ignore"):
            found = np.asarray(self.function(given), dtype=np.float64)
        if found.shape != shape:
            raise ValueError(
                f"statistics: {self.called!r} must return an array of its argument's shape, {shape}, entry by entry; "
                f"got {found.shape}"
            )
        return self._tame(found)[..., None]

    def one_by_one(self, records: Columns) -> Array:
        """Return the function of each of ``records``, by itself, scaled and clipped: the curator's way."""
        rows = np.stack([records[name] + 0.0 for name in self.columns], axis=-1)  # zeros have one sign
        different, place = np.unique(rows, axis=0, return_inverse=True)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = np.array([self._one(row) for row in different])
        return self._tame(found)[place.reshape(-1), None]

    def _one(self, row: Array) -> float:
        """Return what the function says of one record, NaN where it fails: an error would tell of the record."""
        try:
            given = {name: row[i : i + 1].copy() for i, name in enumerate(self.columns)}
            return float(np.asarray(self.function(given), dtype=np.float64).reshape(()))
        except KeyboardInterrupt:
            raise
        except BaseException:
            return float("nan")

    def _tame(self, found: Array) -> Array:
        return scaled(np.where(np.isnan(found), self.range[0], found), *self.range)

    def sensitivity(self, schema: Schema, norm: int) -> float:
        """Return the width of the scaled range."""
        return bounded_sum(-1.0, 1.0, norm=norm)

    def attained(self, schema: Schema) -> bool:
        """Tell that nobody knows: the function may stay far inside its range."""
        return False


_KINDS: dict[str, Callable[..., Statistic]] = {
    each.kind: each for each in (Powers, Product, Table, Histogram, Indicator)
}


def statistic_of(settings: Mapping[str, Any], own: Mapping[str, Own]) -> Statistic:
    """Return the statistic that a release's settings describe; functions of one's own come from ``own`` by name."""
    given = dict(settings)
    kind = given.pop("kind", None)
    if kind == Own.kind:
        name = given["called"]
        if name not in own:
            raise ValueError(f"statistics must hold the release's own function {name!r}: functions do not travel")
        return own[name]
    if kind not in _KINDS:
        raise ValueError(f"release holds a statistic of an unknown kind, {kind!r}")
    return _KINDS[kind](**given)
