"""Every committed table says in its first line how it was made: which study, version and commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(ROOT.glob("book/*/results/*.csv"))


def breaches(path: Path) -> list[str]:
    """Say what the first line of a table lacks."""
    with path.open(encoding="utf-8") as file:
        first = file.readline()
    if not first.startswith("# "):
        return ["has no line that says how it was made"]
    facts = dict(re.findall(r"(\w+)=(\S+)", first))
    wanted = {"study": re.escape(path.stem), "version": r"\d+\.\d+\.\d+\S*", "commit": r"[0-9a-f]{10}\+?"}
    return [f"does not name its {name}" for name, form in wanted.items() if not re.fullmatch(form, facts.get(name, ""))]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: "/".join(path.parts[-3::2]))
def test_a_committed_table_names_its_study_version_and_commit(path: Path) -> None:
    assert breaches(path) == []


def test_there_are_tables() -> None:
    assert len(TABLES) > 50


@pytest.mark.parametrize(
    ("first", "because"),
    [
        ("n,sd", "has no line that says how it was made"),
        ("# study=toy seed=1 version=0.1.0 seconds=3", "does not name its commit"),
        ("# study=toy seed=1 version=0.1.0 commit=unknown", "does not name its commit"),
        ("# study=toy seed=1 commit=0123456789+", "does not name its version"),
        ("# study=other version=0.1.0 commit=0123456789", "does not name its study"),
    ],
)
def test_a_table_that_does_not_say_how_it_was_made_is_caught(tmp_path: Path, first: str, because: str) -> None:
    (tmp_path / "toy.csv").write_text(f"{first}\nn,sd\n1,2\n", encoding="utf-8")
    assert breaches(tmp_path / "toy.csv") == [because]
