"""What notebooks show: accessible tables, escaped, and nothing that the object does not publish already."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from dpbook import Posterior, PrivacyBudget, Release, Schema, _html, graphical
from dpbook.preview import Preview
from dpbook.schema import Category, Flag, Integer, Number

HOSTILE = "<script>alert('x')</script>&\"$x$"


class Table(HTMLParser):
    """Reads a table; raises where an element is closed that is not the last one opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[list[str]] = []
        self.caption = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.cells.append([])
        elif tag in ("th", "td"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] == "caption":
            self.caption += data
        else:
            assert self.open[-1] in ("th", "td")
            self.cells[-1][-1] += data


def a_release(name: str = "sum", model: str = "binomial") -> Release:
    return Release(
        values={name: [12.25, 7.0], "count": 3},
        model=model,
        mechanism="laplace",
        scale={name: 2.0, "count": 4.0},
        sensitivity={name: 1.0, "count": 2.0},
        epsilon=0.5,
        n=40,
        float_safe=False,
    )


def a_budget(label: str = "histogram") -> PrivacyBudget:
    budget = PrivacyBudget(1.0, 1e-6)
    budget.spend(0.25, 1e-7, label=label)
    with budget.parallel(n=4, parts={"a": 2, "b": 2}, fixed_by="design") as group:
        group.branch("a").spend(0.125)
        group.branch("b").spend(0.5)
    return budget


def a_field(name: str = "a") -> graphical.MarkovRandomField:
    return graphical.MarkovRandomField({name: 2, "b": 3}, [(name, "b")], [np.zeros((2, 3))])


def a_posterior(name: str = "theta", method: str = "exact") -> Posterior:
    return Posterior({name: np.random.default_rng(1).normal(size=(4, 50, 2, 2)), "s": np.ones((4, 50))}, method=method)


ORDINARY: dict[str, Any] = {
    "release": a_release(),
    "posterior": a_posterior(),
    "budget": a_budget(),
    "schema": Schema({"age": Number(0, 120), "region": Category(["north", "south"])}),
    "field": a_field(),
    "preview": Preview(["a", "b"], 1.0, 2.0, noise_sd=[0.1, 0.2], posterior_sd=0.3, notes={"share clipped": 0.1}),
    "preview of the noise": Preview(["a"], 1.0, 2.0),
}
WITH_HOSTILE_NAMES: dict[str, Any] = {
    "release": a_release(HOSTILE, HOSTILE),
    "posterior": a_posterior(HOSTILE, HOSTILE),
    "budget": a_budget(HOSTILE),
    "schema": Schema({HOSTILE: Category([HOSTILE], other=HOSTILE)}, missing={HOSTILE: HOSTILE}),
    "field": a_field(HOSTILE),
    "labels": Posterior({"theta": np.ones((1, 4, 1))}, labels={"theta": [HOSTILE]}),
    "preview": Preview([HOSTILE], 1.0, 2.0, noise_sd=0.1, notes={HOSTILE: 1.0}),
}


@pytest.mark.parametrize("thing", ORDINARY.values(), ids=ORDINARY)
def test_tables_are_well_formed_and_accessible(thing: Any) -> None:
    table = Table(thing._repr_html_())
    assert [tag for tag, _ in table.tags][:2] == ["table", "caption"]
    assert table.caption
    assert len({len(row) for row in table.cells}) == 1
    assert all(row[0] for row in table.cells)
    scopes = [attributes.get("scope") for tag, attributes in table.tags if tag == "th"]
    assert scopes == ["col"] * len(table.cells[0]) + ["row"] * (len(table.cells) - 1)


@pytest.mark.parametrize("thing", ORDINARY.values(), ids=ORDINARY)
def test_tables_have_no_colours_of_their_own(thing: Any) -> None:
    allowed = {"class", "scope", "colspan"}
    assert all(set(attributes) <= allowed for _, attributes in Table(thing._repr_html_()).tags)


@pytest.mark.parametrize("thing", WITH_HOSTILE_NAMES.values(), ids=WITH_HOSTILE_NAMES)
def test_names_are_text_whatever_they_hold(thing: Any) -> None:
    table = Table(thing._repr_html_())
    assert {tag for tag, _ in table.tags} <= {"table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"}
    assert HOSTILE in " ".join([table.caption, *(cell for row in table.cells for cell in row)])
    # MathJax would typeset what stands between dollars
    assert {"tex2jax_ignore", "mathjax_ignore"} <= set(str(table.tags[0][1]["class"]).split())


def test_a_release_shows_its_public_fields() -> None:
    table = Table(a_release()._repr_html_())
    assert table.cells == [
        ["statistic", "shape", "values", "sensitivity", "scale"],
        ["sum", "(2,)", "12.25, 7", "1", "2"],
        ["count", "scalar", "3", "2", "4"],
    ]
    for fact in ("binomial", "laplace", "ε = 0.5", "n = 40", "replace-one", "seeded teaching noise"):
        assert fact in table.caption


@pytest.mark.parametrize("thing", [a_release()], ids=["release"])
def test_a_release_from_json_shows_the_same(thing: Release) -> None:
    """So the table holds nothing beyond what the curator published."""
    assert Release.from_json(thing.to_json())._repr_html_() == thing._repr_html_()


def test_a_schema_from_json_shows_the_same() -> None:
    schema = Schema({"age": Number(0, 120), "smoker": Flag(), "visits": Integer(0, 1_000_001)}, missing={"age": 40})
    table = Table(schema._repr_html_())
    assert Schema.from_json(schema.to_json())._repr_html_() == schema._repr_html_()
    assert table.cells[1:] == [
        ["age", "number", "0 to 120", "40"],
        ["smoker", "flag", "False, True", "refused"],
        ["visits", "integer", "0 to 1000001", "refused"],
    ]


def test_a_posterior_shows_its_summary() -> None:
    posterior = a_posterior()
    table, summary = Table(posterior._repr_html_()), posterior.summary()
    assert table.cells[0] == ["parameter", *summary.columns]
    assert [row[0] for row in table.cells[1:]] == list(summary.index)
    shown = np.array([[float(cell) for cell in row[1:]] for row in table.cells[1:]])
    np.testing.assert_allclose(shown, summary.to_numpy(), rtol=6e-4)


def test_a_long_posterior_shows_its_first_components_and_judges_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []
    monkeypatch.setattr("dpbook._mixing.rhat", lambda draws: judged.extend(draws) or np.ones(len(draws)))
    posterior = Posterior({"a": np.ones((2, 8, 3)), "b": np.ones((2, 8, 5000)), "c": np.ones((2, 8))})
    table = Table(posterior._repr_html_())
    assert len(judged) == _html.MOST_ROWS
    assert table.cells[1][0] == "a[0]"
    assert table.cells[_html.MOST_ROWS][0] == f"b[{_html.MOST_ROWS - 4}]"
    assert table.cells[-1] == [f"… and {5004 - _html.MOST_ROWS} more"]


def test_a_budget_shows_its_ledger_and_what_is_left() -> None:
    table = Table(a_budget()._repr_html_())
    assert table.cells == [
        ["charge", "ε", "δ"],
        ["histogram", "0.25", "1e-07"],
        ["parallel by design (dearest of 2)", "0.5", "0"],
        ["spent", "0.75", "1e-07"],
        ["remaining", "0.25", "9e-07"],
    ]
    assert "ε = 1, δ = 1e-06" in table.caption


def test_a_field_is_shown_without_running_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    field = a_field()
    monkeypatch.setattr(field.engine, "infer", lambda *_: pytest.fail("inference ran"))
    table = Table(field._repr_html_())
    assert table.cells[1] == ["a × b", "2 × 3", "1"]
    assert "a (2), b (3); exact inference" in table.caption


def test_long_cells_and_long_lists_are_cut() -> None:
    table = Table(_html.table("t", ["a", "b"], [["x" * 1000, _html.several(list(range(100)))]]))
    assert len(table.cells[1][0]) == 60
    assert table.cells[1][1] == "0, 1, 2, 3, 4, 5, … (100 in all)"
    assert re.fullmatch("x+…", table.cells[1][0])
