"""Tests that shown code is complete: a reader who types what is visible gets what is shown.

Two rules, for every section. A name that visible code uses is defined or imported in visible code above it. And the
section runs, and prints what the book prints, without the cells that no reader sees.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from notebooks import ROOT, code_cells, execute, find_sources, read_source, tags

BOOK = ROOT / "book"
SECTIONS = find_sources([BOOK])

UNSEEN = {"remove-cell", "remove-input"}  # no reader ever sees their code
FOLDED = {"hide-input", "hide-cell"}  # one click away: figures, which later text must not need


def slug(path: Path) -> str:
    """Return the name by which a test shows a section."""
    return path.relative_to(BOOK).with_suffix("").as_posix()


def shown(notebook: NotebookNode, *, folded: bool) -> list[NotebookNode]:
    """Return the code cells that a reader sees, with or without those that are folded away."""
    left_out = UNSEEN if folded else UNSEEN | FOLDED
    return [cell for cell in code_cells(notebook) if not tags(cell) & left_out]


def undefined_names(sections: dict[str, NotebookNode], folder: Path) -> dict[str, list[str]]:
    """Return, for each section, the names that its visible code uses before visible code has defined them.

    Every cell is read with all visible cells before it; the names that only it leaves undefined are its own.
    """
    for name, notebook in sections.items():
        cells = shown(notebook, folded=False)
        for number in range(len(cells)):
            text = "\n".join(cell.source for cell in cells[: number + 1])
            (folder / f"{name.replace('/', '__')}--{number:03d}.py").write_text(text + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "json"]
    run = subprocess.run([*command, "--no-cache", str(folder)], capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stderr
    found: dict[str, set[str]] = {}
    for fault in json.loads(run.stdout):
        section = Path(fault["filename"]).stem.split("--")[0].replace("__", "/")
        found.setdefault(section, set()).add(fault["message"])
    return {section: sorted(names) for section, names in found.items()}


def text_of(cell: NotebookNode) -> list[Any]:
    """Return what a cell prints, without figures and without what is not comparable from run to run."""
    said: list[Any] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            said.append(output.text)
        elif output.output_type == "error":
            said.append(output.ename)
        elif not any(kind.startswith("image/") for kind in output.get("data", {})):
            said.append(output.data.get("text/plain"))
    return said


def surprises(stored: NotebookNode, folder: Path) -> list[str]:
    """Run the visible cells of an executed section alone; return where they print something else than is stored."""
    expected = shown(stored, folded=False)
    alone = copy.deepcopy(stored)
    alone.cells = copy.deepcopy(expected)
    execute(alone, folder)
    return [
        f"{before.source.splitlines()[0]!r} …: stored {text_of(before)!r}, a reader gets {text_of(after)!r}"
        for before, after in zip(expected, alone.cells, strict=True)
        if "nbval-ignore-output" not in tags(before) and text_of(before) != text_of(after)
    ]


def test_a_name_in_visible_code_is_defined_in_visible_code(tmp_path: Path) -> None:
    sections = {slug(source): read_source(source) for source in SECTIONS}
    assert len(sections) > 40
    assert undefined_names(sections, tmp_path) == {}


@pytest.mark.parametrize("source", SECTIONS, ids=slug)
def test_visible_code_alone_prints_what_the_book_shows(source: Path) -> None:
    stored = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    assert surprises(stored, source.parent) == []


# The rules catch what they are for -----------------------------------------------------------------------------------


def section_of(*cells: tuple[str, list[str]]) -> NotebookNode:
    """Return a notebook of code cells, given as text and tags."""
    made = [nbformat.v4.new_code_cell(text, metadata={"tags": labels}) for text, labels in cells]
    notebook: NotebookNode = nbformat.v4.new_notebook(cells=made)
    return notebook


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        ([("import math", ["remove-cell"]), ("math.pi", [])], "math"),
        ([("x = 1", ["hide-input"]), ("x + 1", [])], "x"),
        ([("y + 1", []), ("y = 1", [])], "y"),
    ],
    ids=["hidden import", "folded definition", "used before it is defined"],
)
def test_an_incomplete_section_is_seen(cells: list[tuple[str, list[str]]], name: str, tmp_path: Path) -> None:
    found = undefined_names({"a/b": section_of(*cells)}, tmp_path)
    assert list(found) == ["a/b"]
    assert f"`{name}`" in found["a/b"][0]


def test_a_hidden_cell_that_moves_a_generator_is_seen(tmp_path: Path) -> None:
    start: tuple[str, list[str]] = ("import random\nrng = random.Random(1)", [])
    section = section_of(start, ("rng.random();", ["remove-cell"]), ("rng.random()", []))
    execute(section, tmp_path)
    assert len(surprises(section, tmp_path)) == 1
    section = section_of(start, ("rng.random()", []))
    execute(section, tmp_path)
    assert surprises(section, tmp_path) == []
