"""Tests that shown code is complete: a name that visible code uses is defined or imported in visible code above it.

That a section runs, and prints what the book prints, without the cells that no reader sees, is what the notebooks of
the course edition prove (``tests/course/built``): they hold the visible code alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from notebooks import ROOT, code_cells, find_sources, read_source, tags

BOOK = ROOT / "book"
SECTIONS = find_sources([BOOK])

UNSEEN = {"remove-cell", "remove-input"}  # no reader ever sees their code
FOLDED = {"hide-input", "hide-cell"}  # one click away: figures, which later text must not need


def slug(path: Path) -> str:
    """Return the name by which a test shows a section."""
    return path.relative_to(BOOK).with_suffix("").as_posix()


def shown(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the code cells that a reader sees without a click."""
    return [cell for cell in code_cells(notebook) if not tags(cell) & (UNSEEN | FOLDED)]


def undefined_names(sections: dict[str, NotebookNode], folder: Path) -> dict[str, list[str]]:
    """Return, for each section, the names that its visible code uses before visible code has defined them.

    Every cell is read with all visible cells before it; the names that only it leaves undefined are its own.
    """
    for name, notebook in sections.items():
        cells = shown(notebook)
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


def test_a_name_in_visible_code_is_defined_in_visible_code(tmp_path: Path) -> None:
    sections = {slug(source): read_source(source) for source in SECTIONS}
    assert len(sections) > 40
    assert undefined_names(sections, tmp_path) == {}


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
