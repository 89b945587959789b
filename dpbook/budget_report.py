"""One page about a ledger, for people who do not read code: what is promised, what it means, and what was released.

The section on composition in chapter 1 explains what stands in it.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpbook.accountants import Accountant, Cost
    from dpbook.budget import Charge, PrivacyBudget

__all__: list[str] = []

_SUMS = {
    "addition": "The losses are added: ε to ε and δ to δ, whatever the releases were, also where one was chosen "
    "after seeing "
    "the answer of another.",
    "zcdp": "The losses are added as ρ of zero-concentrated differential privacy: ε²/2 for a release without δ, "
    "half the squared "
    "sensitivity in noise standard deviations for Gaussian noise. The sum is stated as ε at the project's δ. This "
    "holds also "
    "where one release was chosen after seeing the answer of another.",
    "gaussian": "The squares of μ of Gaussian differential privacy are added, and the sum is stated as ε at the "
    "project's δ. "
    "This is exact for Gaussian noise, and holds also where one release was chosen after seeing the answer of another.",
}
_GUESSES = (0.001, 0.01, 0.1, 0.5)
_BELIEFS = ("thought before", "at most, by what was counted so far", "at most, once all is spent")
_CHARGES = ("time (UTC)", "release", "ε", "δ", "fingerprint")
_STYLE = """
:root { color-scheme: light dark; --text: #1b1b1b; --page: #ffffff; --line: #c8c8c8; --soft: #f4f4f4; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e8e8; --page: #16181c; --line: #4a4e57; --soft: #22252b; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 52rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
details { background: var(--soft); padding: .4rem .8rem; margin: .4rem 0; border-radius: .3rem; }
@media print { details { break-inside: avoid; } }
"""


def in_words(
    budget: PrivacyBudget, accountant: Accountant, room: Cost, spent: tuple[float, float], delta: float
) -> str:
    """Say what is spent, and what the rest pays for."""
    at = "" if budget.accounting == "addition" else f" at δ = {budget.delta:g}"
    words = [f"{spent[0]:.4g} of ε = {budget.epsilon:g}{at} is spent."]
    one, tenth = accountant.pure(room[0]), accountant.pure(room[0] / 10)
    if one < 1e-9 * budget.epsilon:
        return f"{words[0]} Nothing is left."
    text = f"What is left pays for one pure release with ε up to {one:.4g},\nor ten with ε up to {tenth:.4g} each"
    gaussian = accountant.gaussian(room, delta) if delta > 0 else 0.0
    if gaussian > 0:
        text += f"; or for one with Gaussian noise and ε up to {gaussian:.4g} at δ = {delta:g}"
    return " ".join([*words, f"{text}."])


def most(guess: float, epsilon: float) -> float:
    """Return the largest probability that a guess of this probability can have after releases of this epsilon."""
    log_odds = math.log(guess / (1 - guess)) + epsilon
    return 1 / (1 + math.exp(-log_odds)) if log_odds < 700 else 1.0


@dataclass(frozen=True)
class Page:
    """What a report says of a ledger at one moment."""

    budget: PrivacyBudget
    lines: Sequence[Charge]
    spent: tuple[float, float]
    reports: Mapping[str, str]  # what a release says of itself, by its fingerprint

    def markdown(self) -> str:
        """Return the page as Markdown."""
        parts = ["**Privacy report**", "", self._guarantee(), "", *_apart(self._meaning()), "**What it means**", ""]
        parts += [self._odds(), "", *_headed(_BELIEFS)]
        parts += [f"| {' | '.join(row)} |" for row in self._beliefs()]
        parts += ["", "**What was released**", "", *_headed(_CHARGES)]
        parts += [f"| {' | '.join(_escaped(each) for each in row)} |" for row in self._rows()]
        parts += ["", "**How it adds up**", "", _SUMS[self.budget.accounting], "", self._sum()]
        for name, report in self._own_reports():
            parts += ["", f"**{_escaped(name)}**", "", report]
        return "\n".join(parts)

    def html(self) -> str:
        """Return the page as HTML that needs no other file."""
        text = html.escape
        promise = f"<p><strong>{text(self._guarantee())}</strong></p>"
        promise += "".join(f"<p>{text(each)}</p>" for each in self._meaning())
        beliefs, rows = _table(_BELIEFS, self._beliefs(), (0, 1, 2)), _table(_CHARGES, self._rows(), (2, 3))
        own = "".join(
            f"<details><summary>{text(name)}</summary>{_listed(report)}</details>"
            for name, report in self._own_reports()
        )
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>Privacy report</title><style>{_STYLE}</style></head><body><h1>Privacy report</h1>"
            f"{promise}"
            f"<h2>What it means</h2><p>{text(self._odds())}</p>{beliefs}<h2>What was released</h2>{rows}"
            f"<h2>How it adds up</h2><p>{text(_SUMS[self.budget.accounting])}</p><p>{text(self._sum())}</p>"
            + (f"<h2>Each release</h2>{own}" if own else "")
            + "</body></html>"
        )

    def _guarantee(self) -> str:
        delta = f" and {_chance(self.budget.delta)}" if self.budget.delta else ""
        return (
            "Together, all releases listed below are differentially private with ε = "
            f"{self.budget.epsilon:g}{delta} for "
            f"{self.budget.unit}."
        )

    def _meaning(self) -> list[str]:
        said = [
            "That is the promise in force: further releases are refused before they would break it. It holds "
            "whatever else "
            "anybody knows, now or later. It counts the releases that were charged to this ledger; others of the "
            "same data "
            "would add to them. Neighbours: data sets of one size that differ in the record of "
            f"{self.budget.unit} (replace-one).",
        ]
        if self.budget.delta:
            said.append(
                "δ is a probability for which nothing is promised; it should be far below one in the number of people."
            )
        return said

    def _odds(self) -> str:
        total, so_far = (f"{math.exp(min(epsilon, 700.0)):.3g}" for epsilon in (self.budget.epsilon, self.spent[0]))
        return (
            f"Between any two values of {self.budget.unit}, everything that this ledger allows moves nobody's odds "
            "by a "
            f"factor of more than {total}; what was counted so far, ε = {self.spent[0]:.4g}, by {so_far}. Take "
            "somebody "
            "who thinks a claim likely, against one alternative, before seeing anything:"
        )

    def _beliefs(self) -> Iterator[list[str]]:
        for guess in _GUESSES:
            yield [_share(each) for each in (guess, most(guess, self.spent[0]), most(guess, self.budget.epsilon))]

    def _rows(self) -> Iterator[list[str]]:
        for line in self.lines:
            yield _cells(line)
            for key, charges in line.branches:
                for each in charges:
                    time, label, *rest = _cells(each)
                    yield [time, f"· part {key}: {label}", *rest]

    def _sum(self) -> str:
        delta = f", δ = {self.spent[1]:.4g}" if self.spent[1] else ""
        count = len(self.lines)
        return f"{count} {'charge' if count == 1 else 'charges'}; spent together: ε = {self.spent[0]:.6g}{delta}."

    def _own_reports(self) -> Iterator[tuple[str, str]]:
        for line in _flat(self.lines):
            if line.fingerprint in self.reports:
                yield f"{line.label or 'release'} ({line.fingerprint[:12]})", self.reports[line.fingerprint]


def _flat(lines: Sequence[Charge]) -> Iterator[Charge]:
    for line in lines:
        if line.branches:
            for _, charges in line.branches:
                yield from _flat(charges)
        else:
            yield line


def _cells(line: Charge) -> list[str]:
    name = line.label or "(no label)"
    if line.branches:
        name = f"{name} (dearest of {len(line.branches)} parts)"
    return [line.time[:16].replace("T", " "), name, f"{line.epsilon:.4g}", f"{line.delta:.3g}", line.fingerprint[:12]]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """Return a table in HTML; columns of numbers are set flush right."""

    def cells(row: Sequence[str], tag: str) -> str:
        kinds = [' class="number"' if i in numbers else "" for i in range(len(row))]
        each = (f"<{tag}{kind}>{html.escape(cell)}</{tag.split()[0]}>" for cell, kind in zip(row, kinds, strict=True))
        return f"<tr>{''.join(each)}</tr>"

    head, body = cells(columns, 'th scope="col"'), "".join(cells(row, "td") for row in rows)
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _chance(delta: float) -> str:
    return f"δ = {delta:g} (one in {1 / delta:,.0f})"


def _share(probability: float) -> str:
    return f"{100 * probability:.3g} %"


def _apart(paragraphs: Sequence[str]) -> list[str]:
    return [line for each in paragraphs for line in (each, "")]


def _headed(columns: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def _escaped(text: str) -> str:
    """Return text that a Markdown table shows as it is."""
    return re.sub(r"([\\|`*_<>\[\]#$])", r"\\\1", text).replace("\n", " ")


def _listed(report: str) -> str:
    """Return a release's own report, a list in Markdown, as HTML."""
    items = []
    for line in report.splitlines():
        words = html.escape(line.removeprefix("- "))
        strong = re.sub(r"[*][*](.+?)[*][*]", r"<strong>\1</strong>", words)
        items.append(f"<li>{strong}</li>")
    return f"<ul>{''.join(items)}</ul>"
