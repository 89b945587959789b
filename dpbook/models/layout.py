"""The statistics of a release and the schema of its records, together: what is summed, in which order, how it travels.

Both sides read it from the same public settings. The curator's records come as rows of numbers, with codes for labels;
the analyst's simulated ones as arrays by column.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook.models.statistics import Own, Statistic, statistic_of
from dpbook.release import Release
from dpbook.schema import Category, Flag, Integer, Schema
from dpbook.sensitivity import jointly, of_few_records

__all__ = ["MODEL", "Recipe", "layout_of"]

MODEL = "models"  # what releases of this package are called
_EXAMPLES, _SEED = 32, 20170  # made-up records on which functions of one's own are compared
_ENUMERATED = 2000  # kinds of records up to which the sensitivity is found by trying all pairs
_SAME = 1e-6  # of a scaled value: what another processor may differ by


@dataclass(frozen=True)
class Recipe:
    """Statistics of records of a schema; checked when made."""

    statistics: tuple[Statistic, ...]
    schema: Schema

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise TypeError(f"schema must be a Schema, got {self.schema!r}")
        if not self.statistics:
            raise ValueError("statistics must hold one statistic or more, got none")
        for each in self.statistics:
            if not isinstance(each, Statistic):
                raise TypeError(f"statistics must be Powers, Table, Histogram, Indicator, Product or Own, got {each!r}")
            each.check(self.schema)
        names = [each.name for each in self.statistics]
        if len(set(names)) < len(names):
            raise ValueError(f"statistics must have different names, got {names}")
        for name in self.columns:
            if self.schema.missing == "category" and not isinstance(self.schema.columns[name], Category):
                raise ValueError(
                    f"schema must say what replaces missing values of column {name!r}: missing={{{name!r}: value}}"
                )

    @classmethod
    def of(cls, statistics: Any, schema: Any) -> Recipe:
        """Return the layout of one statistic or a sequence of them."""
        given = (statistics,) if isinstance(statistics, Statistic) else statistics
        if not isinstance(given, Sequence):
            raise TypeError(f"statistics must be a statistic or a sequence of them, got {statistics!r}")
        return cls(tuple(given), schema)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, in the schema's order."""
        used = {name for each in self.statistics for name in each.columns}
        return tuple(name for name in self.schema.names if name in used)

    @property
    def labels(self) -> tuple[str, ...]:
        """What all components are called."""
        several = len(self.statistics) > 1
        return tuple(
            f"{each.name}: {label}" if several and label != each.name else label
            for each in self.statistics
            for label in each.labels(self.schema)
        )

    @property
    def weights(self) -> Array:
        """What each component is multiplied by before it is summed, (k,)."""
        sizes = [len(each.labels(self.schema)) for each in self.statistics]
        return np.repeat([each.weight for each in self.statistics], sizes)

    def sensitivity(self, norm: int) -> tuple[float, bool]:
        """Return the sensitivity of all weighted sums together, and whether it is exact or a bound."""
        parts = [each.sensitivity(self.schema, norm) for each in self.statistics]
        bound = jointly(parts, weights=[each.weight for each in self.statistics], norm=norm)
        read = [name for each in self.statistics for name in each.columns]
        exact = len(set(read)) == len(read) and all(each.attained(self.schema) for each in self.statistics)
        every = None if exact else self._every_record()
        if every is None:
            return bound, exact
        return min(bound, of_few_records(self.weights * self.values(every), norm=norm)), True

    def _every_record(self) -> dict[str, Array] | None:
        """Return all records that there can be, where they are few and no function of one's own reads them."""
        sizes = [self.schema.cardinalities.get(name, _ENUMERATED + 1) for name in self.columns]
        if any(isinstance(each, Own) for each in self.statistics) or np.prod(sizes, dtype=float) > _ENUMERATED:
            return None
        grid = np.array(list(itertools.product(*map(range, sizes))), dtype=np.float64)
        return {name: grid[:, i] + self._first(name) for i, name in enumerate(self.columns)}

    def _first(self, name: str) -> float:
        kind = self.schema.columns[name]
        return float(kind.low) if isinstance(kind, Integer) else 0.0

    def values(self, records: Mapping[str, Array], *, private: bool = False) -> Array:
        """Return all components (..., k) of records by column; ``private`` asks own functions record by record."""
        return np.concatenate(
            [
                each.one_by_one(records) if private and isinstance(each, Own) else each.values(records, self.schema)
                for each in self.statistics
            ],
            axis=-1,
        )

    def rows(self, rows: Array) -> Array:
        """Return the weighted components of a curator's rows, whose columns are those that are read."""
        records = {name: rows[:, i] for i, name in enumerate(self.columns)}
        return np.asarray(self.weights * self.values(records, private=True))

    def clipped(self, name: str, values: Array) -> Array:
        """Return simulated values of a column as a release would see them: clipped, rounded; labels as codes."""
        kind = self.schema.columns[name]
        if isinstance(kind, Category):
            return np.clip(np.rint(values), 0, self.schema.cardinalities[name] - 1)
        if isinstance(kind, Flag):
            return np.where(np.isnan(values), np.nan, values != 0)
        held = np.rint(values) if isinstance(kind, Integer) else values
        return np.clip(held, kind.low, kind.high)

    def split(self, values: Array) -> dict[str, Array]:
        """Return components (..., k) by the statistic's name."""
        ends = np.cumsum([len(each.labels(self.schema)) for each in self.statistics])[:-1]
        return dict(zip([each.name for each in self.statistics], np.split(values, ends, axis=-1), strict=True))

    def examples(self, own: Own, *, private: bool) -> list[float]:
        """Return what a function says of some made-up records: its fingerprint, from public numbers alone."""
        frame = self.schema.example(_EXAMPLES, rng=np.random.default_rng(_SEED))
        records = {name: codes_of(frame[name]) for name in own.columns}
        found = own.one_by_one(records) if private else own.values(records, self.schema)
        return [float(each) for each in found[:, 0]]

    def settings(self) -> dict[str, Any]:
        """Return what a release carries: the schema, the statistics, and fingerprints of own functions."""
        described = [
            each.settings() | ({"examples": self.examples(each, private=True)} if isinstance(each, Own) else {})
            for each in self.statistics
        ]
        return {"schema": self.schema.to_json(), "statistics": described}


def codes_of(column: Any) -> Array:
    """Return a column of a schema's frame as numbers: labels as codes."""
    if hasattr(column, "cat"):
        return np.asarray(column.cat.codes.to_numpy(dtype=np.float64))
    return np.asarray(column.to_numpy(dtype=np.float64))


def layout_of(release: Release, statistics: Any = None) -> Recipe:
    """Return the layout that a release describes; own functions are given again, and compared on made-up records."""
    given = (statistics,) if isinstance(statistics, Statistic) else tuple(statistics or ())
    own = {each.name: each for each in given if isinstance(each, Own)}
    described = [dict(each) for each in release.settings["statistics"]]
    prints = [each.pop("examples", None) for each in described]
    schema = Schema.from_json(release.settings["schema"])
    layout = Recipe(tuple(statistic_of(each, own) for each in described), schema)
    for settings, statistic, known in zip(described, layout.statistics, prints, strict=True):
        if isinstance(statistic, Own):
            public = {name: each for name, each in settings.items() if name != "kind"}
            if statistic != Own(**public, function=statistic.function):
                raise ValueError(
                    f"statistics: {statistic.name!r} has other columns, range or weight than the release's"
                )
            if np.abs(np.subtract(layout.examples(statistic, private=False), known)).max() > _SAME:
                raise ValueError(
                    f"statistics: {statistic.name!r} is another function than the release's, or does not work entry "
                    "by entry: on made-up records of the schema their values differ"
                )
    return layout
