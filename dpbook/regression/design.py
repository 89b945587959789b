"""What a regression on a schema is of: cells of labels, numbers within bounds, and where sums of them sit.

A record lies in one *cell*, a combination of the labels of all categories, and has numbers, in coordinates in which
their bounds are [-1, 1]. The sums that a release holds are over *carriers*, r: the indicators of the cells and the
numbers (products of numbers among them), or, where a slope differs between labels, the numbers cell by cell. They are
the sums of r r', all but what is zero or known, of r y, and of y². The regressors are a linear map of the carriers, in
coordinates and in the data's units, so that both sides of the wall need nothing but this description, which is public.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array
from dpbook._late import pd
from dpbook.regression.coordinates import INTERCEPT
from dpbook.regression.expressions import Expression, expression
from dpbook.release import Release
from dpbook.schema import MISSING, Category, Flag, Schema

__all__: list[str] = []

MODEL = "linear regression on a schema"
MOST_CELLS = 500
_MOST_FACTORS = 2  # numbers in one product: their squares have four, which is what rounding to the grid allows for

Indices = NDArray[np.int64]


class Numeric(NamedTuple):
    """A column of numbers, or a transform of one, with the bounds of its values."""

    source: Expression
    low: float
    high: float

    @property
    def centre(self) -> float:
        """What becomes 0."""
        return (self.low + self.high) / 2

    @property
    def unit(self) -> float:
        """What becomes 1."""
        return (self.high - self.low) / 2

    def values(self, frame: pd.DataFrame) -> Array:
        """Return the values, NaN where they are missing."""
        return np.clip(self.source(frame[self.source.column].to_numpy(np.float64)), self.low, self.high)


class Factor(NamedTuple):
    """Labels of which every record has one, the first of them the reference."""

    name: str
    column: str
    labels: tuple[str, ...]  # of the coefficients
    absent: bool = False  # whether it says that a number is missing

    def codes(self, frame: pd.DataFrame) -> Array:
        """Return the number of every record's label."""
        column = frame[self.column]
        if isinstance(column.dtype, pd.CategoricalDtype):
            return np.asarray(column.cat.codes, dtype=np.float64)
        values = column.to_numpy(np.float64)
        gone = np.isnan(values)
        return gone.astype(np.float64) if self.absent else np.where(gone, 2.0, values)


class Regressor(NamedTuple):
    """A product of indicators, (factor, label) each, and of powers of numbers."""

    label: str
    conditions: tuple[tuple[int, int], ...]
    powers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Design:
    """A regression on the columns of a schema: the response, and the terms as tuples of names or transforms."""

    schema: Schema
    response: str
    terms: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError("the regression must have at least one covariate beside the response")
        known = {frozenset(term) for term in self.terms}
        for term in self.terms:
            inside = [part for part in itertools.combinations(term, len(term) - 1) if part]
            for part in inside:
                if frozenset(part) not in known:
                    raise ValueError(
                        f"the term {':'.join(term)} needs {':'.join(part)} beside it, since numbers are centred and "
                        f"labels have a reference: write {'*'.join(term)}"
                    )
        if self.outcome.source.column in {*(each.source.column for each in self.numerics), *self._factor_columns}:
            raise ValueError(f"the response {self.response!r} must not be among the covariates")
        if len({each.label for each in self.regressors}) < len(self.regressors):
            raise ValueError("columns and labels must give coefficients different names")
        if self.cells > MOST_CELLS:
            raise ValueError(
                f"labels must combine to at most {MOST_CELLS} cells, got {self.cells}: leave a category out, or join "
                "labels in the schema"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return Design, (self.schema, self.response, self.terms)

    # -----------------------------------------------------------------------------------------------------------------
    # What the terms are made of

    def _is_factor(self, name: str) -> bool:
        return isinstance(self.schema.columns.get(name), (Category, Flag))

    @cached_property
    def _bounds(self) -> dict[str, tuple[float, float]]:
        kinds = self.schema.columns
        return {name: (float(a), float(b)) for name, (a, b) in self.schema.bounds.items() if name in kinds}

    def _numeric(self, text: str) -> Numeric:
        source, (low, high) = expression(text, self._bounds)
        return Numeric(source, low, high)

    @cached_property
    def outcome(self) -> Numeric:
        """The response."""
        if isinstance(self.schema.columns.get(self.response), Category):
            raise ValueError(f"the response {self.response!r} must be a number or a truth value, not a Category")
        return self._numeric(self.response)

    @cached_property
    def numerics(self) -> tuple[Numeric, ...]:
        """The numbers, in the order in which terms name them."""
        names = dict.fromkeys(name for term in self.terms for name in term if not self._is_factor(name))
        return tuple(self._numeric(name) for name in names)

    @cached_property
    def _factor_columns(self) -> list[str]:
        return list(dict.fromkeys(name for term in self.terms for name in term if self._is_factor(name)))

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        """The categories, and for each column of numbers that may be missing, whether it is."""
        kept = self.schema.missing == "category"
        found = []
        for name in self._factor_columns:
            kind = self.schema.columns[name]
            states = kind.states if isinstance(kind, Category) else (False, True)
            labels = [f"{name}[{state}]" for state in (*states, *[MISSING] * kept)]
            if len(labels) < 2:
                raise ValueError(f"the category {name!r} must have at least two labels to be a covariate")
            found.append(Factor(name, name, tuple(labels)))
        columns = dict.fromkeys(each.source.column for each in self.numerics) if kept else {}
        for name in columns:
            found.append(Factor(f"{name}[{MISSING}]", name, ("", f"{name}[{MISSING}]"), absent=True))
        return tuple(found)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many labels each factor has."""
        return tuple(len(each.labels) for each in self.factors)

    @property
    def cells(self) -> int:
        """K, how many combinations of labels there are; 1 without any."""
        return math.prod(self.sizes)

    @cached_property
    def levels(self) -> Indices:
        """The labels of every cell, (K, factors)."""
        return np.array(list(itertools.product(*map(range, self.sizes))), dtype=np.int64).reshape(
            self.cells, len(self.factors)
        )

    @cached_property
    def regressors(self) -> tuple[Regressor, ...]:
        """The intercept, and what every coefficient multiplies."""
        found = [Regressor(INTERCEPT, (), (0,) * len(self.numerics))]
        names = [each.name for each in self.factors]
        absent = tuple((each.name,) for each in self.factors if each.absent)
        numbers = [each.source.text for each in self.numerics]
        for term in (*self.terms, *absent):
            powers = tuple(term.count(text) for text in numbers)
            if sum(powers) > _MOST_FACTORS:
                raise ValueError(f"the term {':'.join(term)} must have at most {_MOST_FACTORS} numbers")
            places = [names.index(name) if name in names else -1 for name in term]
            for chosen in itertools.product(*(range(1, self.sizes[at]) if at >= 0 else (0,) for at in places)):
                pairs = list(zip(term, places, chosen, strict=True))
                label = ":".join(self.factors[at].labels[level] if at >= 0 else name for name, at, level in pairs)
                found.append(Regressor(label, tuple((at, level) for _, at, level in pairs if at >= 0), powers))
        return tuple(found)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the coefficients are called, the intercept first."""
        return tuple(each.label for each in self.regressors)

    # -----------------------------------------------------------------------------------------------------------------
    # Carriers and statistics

    @cached_property
    def products(self) -> tuple[tuple[int, ...], ...]:
        """The powers of every product of numbers that is a carrier, the numbers themselves among them."""
        return tuple(dict.fromkeys(each.powers for each in self.regressors if any(each.powers)))

    @cached_property
    def crossed(self) -> bool:
        """Whether a slope differs between labels, so that every sum is taken cell by cell."""
        return any(each.conditions and any(each.powers) for each in self.regressors)

    @property
    def carriers(self) -> int:
        """The length of r."""
        m = len(self.products)
        return self.cells * (1 + m) if self.crossed else self.cells + m

    def place(self, cell: int, product: int | None = None) -> int:
        """Return where a cell's indicator is in r, or a product of numbers (in that cell, where they are crossed)."""
        if self.crossed:
            return cell * (1 + len(self.products)) + (0 if product is None else 1 + product)
        return cell if product is None else self.cells + product

    @cached_property
    def held(self) -> NDArray[np.bool_]:
        """Whether a product of numbers can be other than zero in a cell, (K, products): no factor of it is missing."""
        gone = np.zeros((self.cells, len(self.numerics)), dtype=np.bool_)
        for at, factor in enumerate(self.factors):
            if factor.absent:
                of = [each.source.column == factor.column for each in self.numerics]
                gone[:, of] |= (self.levels[:, at] == 1)[:, None]
        used = np.array(self.products, dtype=np.bool_).reshape(len(self.products), len(self.numerics))
        return np.asarray(~((gone[:, None] & used).any(axis=2)))

    @cached_property
    def pairs(self) -> Indices:
        """The statistics, (k, 2): which two of (r, y) each is the product of."""
        m, y = len(self.products), self.carriers
        found: list[tuple[int, int]] = []
        for cell in range(self.cells):
            if self.cells > 1:
                found.append((self.place(cell), self.place(cell)))
            found += [(self.place(cell), self.place(cell, j)) for j in range(m) if self.held[cell, j]]
            if self.crossed:
                inner = itertools.combinations_with_replacement(np.flatnonzero(self.held[cell]).tolist(), 2)
                found += [(self.place(cell, i), self.place(cell, j)) for i, j in inner]
        if not self.crossed:
            inner = itertools.combinations_with_replacement(range(m), 2)
            found += [(self.place(0, i), self.place(0, j)) for i, j in inner]
        found += [(r, y) for r in range(y) if not self.crossed or self.held_carriers[r]]
        return np.array([*found, (y, y)], dtype=np.int64)

    @cached_property
    def held_carriers(self) -> NDArray[np.bool_]:
        """Which carriers can be other than zero."""
        if not self.crossed:
            return np.ones(self.carriers, dtype=np.bool_)
        return np.concatenate([np.ones((self.cells, 1), dtype=np.bool_), self.held], axis=1).ravel()

    @cached_property
    def monomials(self) -> tuple[Indices, Indices]:
        """The exponents (monomials, numbers and response) of what is summed by cell, and of what is summed in all."""
        size = len(self.numerics) + 1
        one, y = np.zeros((1, size), dtype=np.int64), np.eye(size, dtype=np.int64)[-1:]
        x = np.array([(*each, 0) for each in self.products], dtype=np.int64).reshape(len(self.products), size)
        pairs = itertools.combinations_with_replacement(range(len(x)), 2)
        second = np.array([x[i] + x[j] for i, j in pairs], dtype=np.int64).reshape(-1, size)
        first, others = np.concatenate([one, x, y]), np.concatenate([second, x + y])
        if self.cells == 1:
            return np.zeros((0, size), dtype=np.int64), np.concatenate([x, y, others, 2 * y])
        if self.crossed:
            return np.concatenate([first, others]), 2 * y
        return first, np.concatenate([others, 2 * y])

    # -----------------------------------------------------------------------------------------------------------------
    # From carriers to regressors, and to the data's units

    @cached_property
    def from_carriers(self) -> Array:
        """L with regressors w = L r in coordinates, (q, carriers)."""
        matrix = np.zeros((len(self.regressors), self.carriers))
        for row, each in enumerate(self.regressors):
            product = self.products.index(each.powers) if any(each.powers) else None
            cells = [k for k in range(self.cells) if all(self.levels[k, at] == level for at, level in each.conditions)]
            for cell in cells if product is None or self.crossed else cells[:1]:
                matrix[row, self.place(cell, product)] = 1.0
        return matrix

    @cached_property
    def to_units(self) -> Array:
        """T with regressors T w in the data's units, (q, q): products of centre + unit z, multiplied out."""
        place = {(frozenset(each.conditions), each.powers): at for at, each in enumerate(self.regressors)}
        matrix = np.zeros((len(self.regressors),) * 2)
        for row, each in enumerate(self.regressors):
            for lower in itertools.product(*(range(power + 1) for power in each.powers)):
                weight = math.prod(
                    math.comb(power, few) * number.unit**few * number.centre ** (power - few)
                    for number, power, few in zip(self.numerics, each.powers, lower, strict=True)
                )
                matrix[row, place[frozenset(each.conditions), lower]] += weight
        return matrix

    def theta_out(self, theta: Array) -> Array:
        """Return coefficients (..., q) in the data's units."""
        out = self.outcome.unit * theta @ np.linalg.inv(self.to_units)
        out[..., 0] += self.outcome.centre
        return np.asarray(out)

    def sigma2_out(self, sigma2: Array) -> Array:
        """Return error variances in the data's units."""
        return np.asarray(sigma2 * self.outcome.unit**2)

    # -----------------------------------------------------------------------------------------------------------------
    # Records

    def coded(self, frame: pd.DataFrame, *, response: bool = True) -> Array:
        """Return a frame of the schema as numbers: labels, then numbers in coordinates, then the response as it is.

        A number that is missing is put in the middle of its bounds, and a factor says so.
        """
        codes = [each.codes(frame) for each in self.factors]
        inside = [np.clip((each.values(frame) - each.centre) / each.unit, -1.0, 1.0) for each in self.numerics]
        last = [self.outcome.values(frame)] if response else []
        columns = [*codes, *(np.where(np.isnan(each), 0.0, each) for each in inside), *last]
        return np.stack(columns, axis=1) if columns else np.empty((len(frame), 0))

    def carried(self, rows: Array) -> Array:
        """Return the carriers (n, carriers) of coded rows."""
        width, n = len(self.factors), len(rows)
        codes = rows[:, :width].astype(np.int64)
        cell = np.ravel_multi_index(tuple(codes.T), self.sizes) if width else np.zeros(n, dtype=np.int64)
        z = rows[:, width : width + len(self.numerics)]
        carried, every = np.zeros((n, self.carriers)), np.arange(n)
        carried[every, self.place(0) + (self.place(1) - self.place(0)) * cell] = 1.0
        for j, powers in enumerate(self.products):
            first = self.place(0, j)
            step = self.place(1, j) - first
            carried[every, first + step * cell] = np.prod(z ** np.array(powers), axis=1) * self.held[cell, j]
        return carried

    def statistics(self, rows: Array) -> Array:
        """Return the statistics (n, k) of coded rows, the response last."""
        y = np.clip((rows[:, -1] - self.outcome.centre) / self.outcome.unit, -1.0, 1.0)
        u = np.concatenate([self.carried(rows), y[:, None]], axis=1)
        return np.asarray(u[:, self.pairs[:, 0]] * u[:, self.pairs[:, 1]])

    def covariates(self, table: Any) -> Array:
        """Return the regressors (n, q - 1) of new records in the data's units, from a table of the schema's columns."""
        names = [*(each.column for each in self.factors), *(each.source.column for each in self.numerics)]
        narrow = restricted(self.schema, names)
        frame = narrow.apply(table)
        return np.asarray(
            (self.carried(self.coded(frame, response=False)) @ (self.to_units @ self.from_carriers).T)[:, 1:]
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What a release says of the design."""
        return {
            "schema": self.schema.to_json(),
            "response": self.response,
            "terms": [list(each) for each in self.terms],
        }

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The bounds of the numbers and of the response, as they are named in the terms."""
        return {each.source.text: (each.low, each.high) for each in (*self.numerics, self.outcome)}


def restricted(schema: Schema, names: Sequence[str]) -> Schema:
    """Return the schema of some of the columns."""
    columns = {name: kind for name, kind in schema.columns.items() if name in set(names)}
    if isinstance(schema.missing, Mapping):
        return Schema(columns, {name: value for name, value in schema.missing.items() if name in columns})
    return Schema(columns, schema.missing)


def design_of(release: Release) -> Design:
    """Return the design that a release is of, from its public settings."""
    try:
        terms = tuple(tuple(map(str, term)) for term in release.settings["terms"])
        design = Design(Schema.from_json(release.settings["schema"]), str(release.settings["response"]), terms)
        size = len(design.pairs)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"release must have the settings 'schema', 'response' and 'terms' of a design: {error}"
        ) from None
    shapes = {name: value.shape for name, value in release.values.items()}
    if shapes != {"sums": (size,)}:
        raise ValueError(f"release must hold {size} sums for its design, got {shapes}")
    return design
