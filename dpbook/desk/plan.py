"""A plan: the columns of a table, the project's budget, and the releases that are to be made, read from a TOML file.

Everything in it is public and is checked before any data are read.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpbook._validation import delta_value, finite_number, flag, one_of, positive
from dpbook.accountants import NAMES as ACCOUNTINGS
from dpbook.accountants import Loss, accountant
from dpbook.accounting import gaussian_loss, gaussian_scale
from dpbook.schema import Category, Flag, Integer, Number, Schema

__all__ = ["Plan", "Request"]

COLUMN_KINDS = ("number", "integer", "flag", "category")
_PROJECT = {"unit", "epsilon", "delta", "accounting"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
Column = Number | Integer | Flag | Category


@dataclass(frozen=True)
class Request:
    """One release that a plan asks for.

    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    name : str
        Of the release, and of its file.
    kind : str
        What is released, such as ``"mean"`` or ``"regression"``.
    epsilon, delta : float
        What it may cost; delta 0 means Laplace noise.
    options : mapping of str to value
        What else the kind takes, such as the column.

    Examples
    --------
    >>> from dpbook.desk import Request
    >>> Request("age", "mean", 0.5, options={"column": "age"}).mechanism
    'laplace'
    """

    name: str
    kind: str
    epsilon: float
    delta: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mechanism(self) -> str:
        """The noise, Laplace without a delta and Gaussian with one."""
        return "gaussian" if self.delta > 0 else "laplace"

    @property
    def loss(self) -> Loss:
        """What it will be charged, as every accounting counts it."""
        if self.delta == 0:
            return Loss(self.epsilon, 0.0)
        scale = gaussian_scale(sensitivity=1.0, epsilon=self.epsilon, delta=self.delta)
        return Loss(self.epsilon, self.delta, **gaussian_loss(sensitivity=1.0, scale=scale))


@dataclass(frozen=True)
class Plan:
    """What a table holds, the budget of a project, and the releases to be made from it.

    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    unit : str
        The unit of privacy in the data's own words.
    epsilon, delta, accounting
        The total, as in :class:`dpbook.PrivacyBudget`.
    columns : mapping of str to Number, Integer, Flag or Category
        What the table holds.
    missing : mapping of str to value
        What is put in the place of missing values; columns that it does not name must have none.
    requests : sequence of Request
        In the order in which they are made.
    counted : set of str
        The columns whose missing values are counted: a label of a category, a statistic beside a mean.

    Examples
    --------
    >>> from dpbook.desk import Plan
    >>> plan = Plan.from_toml('''
    ... [project]
    ... unit = "one patient"
    ... epsilon = 1.0
    ... [columns.age]
    ... kind = "number"
    ... low = 0
    ... high = 110
    ... [release.mean-age]
    ... kind = "mean"
    ... column = "age"
    ... epsilon = 0.25
    ... ''')
    >>> plan.epsilon, [request.name for request in plan.requests]
    (1.0, ['mean-age'])
    >>> plan.bounds("age"), plan.column("age"), plan.schema(["age"]).missing
    ((0.0, 110.0), Number(low=0.0, high=110.0), mappingproxy({}))
    >>> Plan.read("plan.toml")  # doctest: +SKIP
    """

    unit: str
    epsilon: float
    delta: float
    accounting: str
    columns: Mapping[str, Column]
    missing: Mapping[str, Any]
    requests: Sequence[Request]
    counted: frozenset[str] = frozenset()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Plan:
        """Return the plan in the file at ``path``; a ValueError says what is wrong with it, and where."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{os.fspath(path)}: a plan is a text in UTF-8") from None
        try:
            return cls.from_toml(text)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """Return the plan that ``text`` describes; see ``dpbook plan``, which writes one to be filled in."""
        content = tomllib.loads(text)
        _known("the plan", content, {"project", "columns", "release"})
        project = _table(content, "project")
        _known("[project]", project, _PROJECT)
        columns = _columns(_table(content, "columns"))
        missing = {
            name: entry["missing"]
            for name, entry in content["columns"].items()
            if "missing" in entry and name in columns
        }
        Schema(columns, missing=missing)  # which checks both
        counted = _counted(content["columns"], missing)
        requests = tuple(_requests(_table(content, "release") if "release" in content else {}))
        if not isinstance(project.get("unit"), str) or not project["unit"].strip():
            raise ValueError('unit of [project] must say what is protected, such as unit = "one patient"')
        return cls(
            unit=project["unit"],
            epsilon=positive("epsilon of [project]", project.get("epsilon")),
            delta=delta_value("delta of [project]", project.get("delta", 0.0)),
            accounting=one_of("accounting of [project]", project.get("accounting", "addition"), ACCOUNTINGS),
            columns=columns,
            missing=missing,
            requests=requests,
            counted=counted,
        )

    @property
    def total(self) -> float:
        """The epsilon of all releases together, as the accounting of the project adds them up."""
        way = accountant(self.accounting, self.epsilon, self.delta)
        costs = [way.cost(request.loss) for request in self.requests]
        return way.stated((sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)))[0]

    def schema(self, names: Sequence[str]) -> Schema:
        """Return the schema of the columns called ``names``, and what becomes of their missing values."""
        columns = {name: self.column(name) for name in names}
        counted = [name for name in names if name in self.counted]
        if counted and len(counted) < len(columns):
            others = [name for name in names if name not in counted]
            raise ValueError(f"count_missing must be set for all columns of a table or none; {others} have it not")
        if counted:
            return Schema(columns, missing="category")
        return Schema(columns, missing={name: value for name, value in self.missing.items() if name in columns})

    def bounds(self, name: str) -> tuple[float, float]:
        """Return the public bounds of the column called ``name``, which must hold numbers."""
        kind = self.column(name)
        if not isinstance(kind, Number | Integer):
            raise ValueError(f"column {name!r} must be a number or an integer for that, got a {_name_of(kind)}")
        return float(kind.low), float(kind.high)

    def column(self, name: str) -> Column:
        """Return the kind of the column called ``name``."""
        if name not in self.columns:
            raise ValueError(f"column must be one of {', '.join(map(repr, self.columns))}, got {name!r}")
        return self.columns[name]


def draft(
    names: Sequence[str], answers: Mapping[str, Mapping[str, Any]], project: Mapping[str, Any], source: str
) -> str:
    """Return the text of a plan for columns of these names, with what was answered and comments for the rest."""
    lines = [
        f"# A plan for {source}. Everything here is public: set it without looking at the records.",
        "",
        "[project]",
        f"unit = {_toml(project.get('unit', 'one record'))}  # whose privacy is promised: a person, a household, a "
        "visit?",
        f"epsilon = {_toml(project.get('epsilon', 1.0))}  # of all releases together, for the whole life of the table",
        f"delta = {_toml(project.get('delta', 0.0))}  # 0, or far below one in the number of records",
        'accounting = "addition"  # or "zcdp" or "gaussian", for many releases; they need a delta',
        "",
        "# Bounds and labels come from the subject, never from the records: hours of a day, the form's own answers.",
    ]
    for name in names:
        lines += ["", *_drafted(name, answers.get(name, {}))]
    lines += [
        "",
        "# What to release. Kinds: mean, histogram, quantiles, share, regression, tables.",
        "# [release.mean-of-something]",
        '# kind = "mean"',
        '# column = "something"',
        "# epsilon = 0.2",
        "",
        "# [release.pay]",
        '# kind = "regression"',
        '# response = "pay"',
        '# covariates = ["age", "years"]',
        "# epsilon = 0.5",
        "",
    ]
    return "\n".join(lines)


def _drafted(name: str, answer: Mapping[str, Any]) -> Iterator[str]:
    """Give the lines of one column, commented out where nothing was answered."""
    kind = answer.get("kind")
    mark = "# " if kind is None else ""
    yield f"{mark}[columns.{_key(name)}]"
    yield f"{mark}kind = {_toml(kind or 'number')}" + ("  # number, integer, flag or category" if kind is None else "")
    if kind in (None, "number", "integer"):
        yield f"{mark}low = {_toml(answer.get('low', 0))}"
        yield f"{mark}high = {_toml(answer.get('high', 100))}"
    if kind is None:
        yield '# labels = ["no", "yes"]  # of a category, in the place of low and high'
    if kind == "category":
        yield f"labels = {_toml(list(answer.get('labels', [])))}"
    yield "# missing = …  # what takes the place of a missing value; without it there must be none"
    yield "# count_missing = true  # instead: missing values are counted, as a label or beside a mean"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    if not isinstance(found, Mapping):
        raise ValueError(f"a plan needs a table [{name}], got {found!r}")
    return found


def _known(where: str, content: Mapping[str, Any], names: set[str]) -> None:
    if unknown := sorted(set(content) - names):
        raise ValueError(f"{where} takes {', '.join(sorted(names))}; it does not know {', '.join(map(repr, unknown))}")


def _columns(content: Mapping[str, Any]) -> dict[str, Column]:
    """Return the columns of a plan; raise, naming the one that is wrong."""
    found = {}
    for name, entry in content.items():
        where = f"[columns.{_key(name)}]"
        if not isinstance(entry, Mapping):
            raise ValueError(f"{where} must be a table with a kind, got {entry!r}")
        kind = one_of(f"kind of {where}", entry.get("kind"), COLUMN_KINDS)
        takes = {"number": {"low", "high"}, "integer": {"low", "high"}, "flag": set(), "category": {"labels"}}[kind]
        _known(where, entry, {"kind", "missing", "count_missing", *takes})
        if absent := sorted(takes - set(entry)):
            raise ValueError(f"{where} needs {' and '.join(absent)}")
        try:
            found[name] = _column(kind, entry)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: {error}") from error
    if not found:
        raise ValueError("[columns] must describe at least one column")
    return found


def _counted(content: Mapping[str, Any], missing: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns whose missing values are counted; raise where they are replaced, too."""
    for name, entry in content.items():
        if flag(f"count_missing of [columns.{_key(name)}]", entry.get("count_missing", False)) and name in missing:
            raise ValueError(f"[columns.{_key(name)}] must have missing or count_missing, not both")
    return frozenset(name for name, entry in content.items() if entry.get("count_missing", False))


def _column(kind: str, entry: Mapping[str, Any]) -> Column:
    if kind == "number":
        return Number(finite_number("low", entry["low"]), finite_number("high", entry["high"]))
    if kind == "integer":
        return Integer(entry["low"], entry["high"])
    return Flag() if kind == "flag" else Category(entry["labels"])


def _requests(content: Mapping[str, Any]) -> Iterator[Request]:
    for name, entry in content.items():
        where = f"[release.{_key(name)}]"
        if not isinstance(entry, Mapping):
            raise ValueError(f"{where} must be a table with a kind, got {entry!r}")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{where}: the name of a release is that of its file: letters, digits, '.', '_' and '-'")
        if not isinstance(entry.get("kind"), str):
            raise ValueError(f'{where} needs a kind, such as kind = "mean"')
        options = {key: value for key, value in entry.items() if key not in ("kind", "epsilon", "delta")}
        epsilon = positive(f"epsilon of {where}", entry.get("epsilon"))
        yield Request(name, entry["kind"], epsilon, delta_value(f"delta of {where}", entry.get("delta", 0.0)), options)


def _name_of(kind: Column) -> str:
    return type(kind).__name__.lower()
