"""The ledger of claims: what the five sources show and say, as data, and the rules that it must keep.

It is ``book/reference/claims/*.toml``, one file for each source: a ``[[claim]]`` for every figure, table, theorem,
algorithm, experiment, data set, open question and testable sentence, an ``[[erratum]]`` for every slip, and a file with
the work that is open. :mod:`scorecard` writes the book's pages from it, ``tests/book/test_claims.py`` judges it.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
FOLDER = BOOK / "reference" / "claims"
SOURCES = ("amitai-2018", "zheng-2015", "foulds-2016", "bernstein-2020", "bernstein-sheldon-2019", "open-work")

VERDICTS = ("agrees", "with conditions", "differs", "not testable")
KINDS = (
    "definition",
    "theorem",
    "algorithm",
    "method",
    "figure",
    "table",
    "experiment",
    "data set",
    "sentence",
    "related work",
    "open question",
)
MEASURED = ("figure", "experiment", "data set")  # kinds whose size in the source and here must be said


@dataclass(frozen=True)
class Number:
    """A number that a claim quotes, and how it is computed again.

    From a stored table: the rows of ``file`` (chapter/study) that a pandas query ``where`` selects, the expression
    ``column`` of them, and what to ``take``. Or from ``glue``, a number that a notebook stored (chapter/section:name),
    or from a ``formula``. A number that counts by a test or a threshold names its ``measure`` and ``yardstick``, which
    stands in ``where``.
    """

    text: str
    form: str = ""
    file: str = ""
    where: str = ""
    column: str = ""
    take: str = "only"
    times: float = 1.0
    glue: str = ""
    formula: str = ""
    measure: str = ""
    yardstick: str = ""


@dataclass(frozen=True)
class Deviation:
    """In what ours differs from the source, and why; ``open`` names the work that would close it, if any will."""

    what: str
    reason: str = ""
    open: str = ""


@dataclass(frozen=True)
class Size:
    """Grid, trials, noise, chains, methods and data of the source and of ours."""

    source: str
    ours: str
    deviations: tuple[Deviation, ...] = ()


@dataclass(frozen=True)
class Claim:
    """One claim of a source, what became of it, and what shows that.

    ``evidence`` holds labels of the book (thm-, fig-, erratum- ...), sections (book/chapter/section), stored results
    (book/chapter/results/name.csv) and functions (dpbook.module.name). ``searches`` are names in the ledger of
    chapter 6, whose checks and searches belong to the claim. ``headline`` claims are on the scorecard.
    """

    id: str
    where: str
    says: str
    kind: str
    verdict: str
    table: str
    evidence: tuple[str, ...] = ()
    remark: str = ""
    size: Size | None = None
    numbers: tuple[Number, ...] = ()
    searches: tuple[str, ...] = ()
    headline: bool = False


@dataclass(frozen=True)
class Erratum:
    """A slip of a source, which claims name as evidence.

    ``breaks`` and ``cost`` say what a promise of privacy loses by it, if one is at stake.
    """

    id: str
    title: str
    printed: str = ""
    holds: str = ""
    breaks: str = ""
    cost: str = ""


@dataclass(frozen=True)
class Ledger:
    """All claims and errata, the titles of the tables, and the work that is open."""

    claims: tuple[Claim, ...]
    errata: tuple[Erratum, ...]
    tables: Mapping[str, str]
    work: Mapping[str, str] = field(default_factory=dict)

    def of(self, table: str) -> list[Claim]:
        """Return the claims of one table."""
        return [claim for claim in self.claims if claim.table == table]


# Reading --------------------------------------------------------------------------------------------------------------


def read_claim(raw: Mapping[str, Any], table: str = "") -> Claim:
    """Return a claim from its TOML; an unknown key raises."""
    parts = dict(raw) | {"table": raw.get("table", table)}
    for name in ("evidence", "searches"):
        parts[name] = tuple(raw.get(name, ()))
    parts["numbers"] = tuple(Number(**each) for each in raw.get("numbers", ()))
    if size := raw.get("size"):
        deviations = tuple(Deviation(**each) for each in size.get("deviations", ()))
        parts["size"] = Size(**(dict(size) | {"deviations": deviations}))
    return Claim(**parts)


def load(folder: Path = FOLDER) -> Ledger:
    """Read all files of the ledger, in the order of the sources."""
    claims: list[Claim] = []
    errata: list[Erratum] = []
    tables: dict[str, str] = {}
    work: dict[str, str] = {}
    for path in sorted(folder.glob("*.toml"), key=lambda each: SOURCES.index(each.stem)):
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        own = raw.get("tables", {})
        tables |= own
        work |= raw.get("work", {})
        first = next(iter(own), "")
        claims += [read_claim(each, first) for each in raw.get("claim", ())]
        errata += [Erratum(**each) for each in raw.get("erratum", ())]
    return Ledger(tuple(claims), tuple(errata), tables, work)


@cache
def labels() -> frozenset[str]:
    """Return everything in the book that can be referred to."""
    found: set[str] = set()
    for page in BOOK.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        found |= set(re.findall(r"^\s*:?(?:label|name): +([a-z]+-\S+)$", text, re.M))
        found |= set(re.findall(r"^\(([a-z]+-\S+)\)=$", text, re.M)) | set(re.findall(r"\$\$ \((eq-\S+)\)", text))
    return frozenset(found)


def _stored(file: str) -> Path:
    chapter, study = file.split("/")
    return BOOK / chapter / "results" / f"{study}.csv"


@cache
def results(file: str) -> pd.DataFrame:
    """Return a stored table, chapter/study."""
    return pd.read_csv(_stored(file), comment="#")


@cache
def header(file: str) -> dict[str, str]:
    """Return the facts in the first line of a stored table."""
    with _stored(file).open(encoding="utf-8") as stored:
        return dict(re.findall(r"(\w+)=(\S+)", stored.readline()))


@cache
def glued(section: str) -> dict[str, str]:
    """Return the numbers that the notebook of a section stored."""
    notebook = json.loads((BOOK / f"{section}.ipynb").read_text(encoding="utf-8"))
    found = {}
    for output in (each for cell in notebook["cells"] for each in cell.get("outputs", [])):
        if name := output.get("metadata", {}).get("scrapbook", {}).get("name"):
            (text,) = output["data"].values()
            found[name] = str(ast.literal_eval("".join(text)))
    return found


# Judging --------------------------------------------------------------------------------------------------------------


def ratio(file: str, column: str, where: str, over: str, under: str) -> float:
    """Return the mean of a column of a stored table over some rows, divided by that over others."""
    rows = results(file).query(where)
    above, below = (float(rows.query(each)[column].mean()) for each in (over, under))
    return above / below


def computed(number: Number) -> str:
    """Return the number as it should be quoted, from what is stored."""
    if number.glue:
        section, _, name = number.glue.partition(":")
        return glued(section)[name]
    if number.formula:
        known = {name: value for name, value in vars(math).items() if not name.startswith("_")}
        value = eval(number.formula, {"__builtins__": {}, **known, "ratio": ratio})  # a formula of ours
        return format(value, number.form)
    rows = results(number.file)
    rows = rows.query(number.where) if number.where else rows
    if number.take == "count":
        return format(len(rows), number.form)
    values = pd.Series(rows.eval(number.column), dtype=float)
    if number.take == "only" and len(values) != 1:
        raise ValueError(f"{len(values)} rows where one is meant")
    take = {"only": values.mean, "mean": values.mean, "min": values.min, "max": values.max}[number.take]
    return format(number.times * float(take()), number.form)


def exists(evidence: str) -> bool:
    """Say whether a piece of evidence is there: a label, a section, a stored table or a function."""
    if evidence.startswith("dpbook."):
        return _importable(evidence)
    if evidence.startswith("book/"):
        return (ROOT / evidence).is_file() if evidence.endswith(".csv") else (ROOT / f"{evidence}.md").is_file()
    return evidence in labels()


def _importable(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for each in parts[cut:]:
            found = getattr(found, each, None)
        return found is not None
    return False


# Names of parts of a source, whose numbers are no results.
_PARTS = r"(?:§+|[Ff]igs?\.|[Ee]qs?\.|[Pp]rop\.|[Ll]emma|[Aa]lg\.|[Cc]h\.|[Cc]hapters?|[Ss]ections?) ?[A-C0-9][\w.,–-]*"


def quoted(text: str) -> list[str]:
    """Return the numbers that a text quotes: digits outside formulas, roles, code and references to the source."""
    plain = re.sub(r"\$[^$]*\$|\{[a-z:]+\}`[^`]*`|`[^`]*`|" + _PARTS, " ", text)
    return re.findall(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)", plain)


def problems(claim: Claim, ledger: Ledger) -> list[str]:
    """Say what is wrong with a claim."""
    found = [f"has no {name}" for name in ("id", "where", "says") if not getattr(claim, name)]
    found += [f"has the unknown verdict {claim.verdict!r}"] * (claim.verdict not in VERDICTS)
    found += [f"is of the unknown kind {claim.kind!r}"] * (claim.kind not in KINDS)
    found += [f"is in the unknown table {claim.table!r}"] * (claim.table not in ledger.tables)
    found += ["has no evidence"] * (not claim.evidence)
    found += [f"names evidence that does not exist: {each}" for each in claim.evidence if not exists(each)]
    found += ["says no more than its verdict"] * (claim.verdict != "agrees" and not claim.remark)
    found += ["does not say at which size"] * (claim.kind in MEASURED and claim.size is None)
    return [f"{claim.id} {each}" for each in found + _of_size(claim, ledger) + _of_numbers(claim)]


def _of_size(claim: Claim, ledger: Ledger) -> list[str]:
    if claim.size is None:
        return []
    found = [f"has a deviation without a reason: {each.what}" for each in claim.size.deviations if not each.reason]
    unknown = [each.open for each in claim.size.deviations if each.open and each.open not in ledger.work]
    found += [f"waits for unknown work: {each}" for each in unknown]
    stored = [each for each in claim.evidence if each.endswith(".csv") and exists(each)]
    names = [each.removeprefix("book/").removesuffix(".csv").replace("/results/", "/") for each in stored]
    trials = {header(name).get("trials") for name in names}
    said = [each.replace(",", "") for each in re.findall(r"(\d[\d,]*) trials", claim.size.ours)]
    return found + [f"speaks of {each} trials, and its tables do not" for each in said if stored and each not in trials]


def _of_numbers(claim: Claim) -> list[str]:
    text = " ".join([claim.remark, claim.size.ours if claim.size else ""])
    found = []
    for number in claim.numbers:
        found += [f"does not quote {number.text}"] * (number.text not in text)
        try:
            value = computed(number)
        except (KeyError, ValueError, OSError, SyntaxError, NameError) as error:
            found.append(f"quotes {number.text}, which cannot be computed: {error}")
            continue
        found += [f"quotes {number.text} where the results have {value}"] * (value != number.text)
        found += [f"counts {number.text} without a yardstick"] * ("p_" in number.where and not number.yardstick)
        found += [f"has a yardstick that it does not use: {number.yardstick}"] * (number.yardstick not in number.where)
    known = {number.text for number in claim.numbers}
    unknown = [each for each in quoted(claim.remark) if each not in known]
    return found + [f"quotes {each} without saying where it comes from" for each in unknown]


def problems_of_all(ledger: Ledger) -> list[str]:
    """Say what is wrong with the ledger as a whole."""
    ids = Counter(claim.id for claim in ledger.claims)
    found = [f"{name} is the id of {count} claims" for name, count in ids.items() if count > 1]
    for table in ledger.tables:
        used: dict[str, set[str]] = defaultdict(set)
        for number in (each for claim in ledger.of(table) for each in claim.numbers if each.yardstick):
            used[number.measure].add(number.yardstick)
        found += [f"table {table} measures {what} by {len(by)} yardsticks" for what, by in used.items() if len(by) > 1]
        found += [f"table {table} is empty"] * (not ledger.of(table))
    named = {each for claim in ledger.claims for each in claim.evidence}
    found += [f"{each.id} concerns no claim" for each in ledger.errata if f"erratum-{each.id.lower()}" not in named]
    waited = {each.open for claim in ledger.claims if claim.size for each in claim.size.deviations}
    return found + [f"nothing waits for the work {each}" for each in ledger.work if each not in waited]
