"""Code that a reader sees without a click fits the column, 88 characters; what is folded away may scroll."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from notebooks import ROOT, code_cells, find_sources, is_notebook, read_source, tags

BOOK = ROOT / "book"
COLUMNS = 88
NOT_SHOWN = {"remove-cell", "remove-input", "hide-input", "hide-cell"}


def too_wide(code: str) -> list[str]:
    """Return the lines of code that do not fit."""
    return [line for line in code.splitlines() if len(line) > COLUMNS]


@pytest.mark.parametrize("source", find_sources([BOOK]), ids=lambda path: path.stem)
def test_shown_code_fits_the_column(source: Path) -> None:
    shown = [cell.source for cell in code_cells(read_source(source)) if not tags(cell) & NOT_SHOWN]
    assert [line for code in shown for line in too_wide(code)] == []


@pytest.mark.parametrize("page", [p for p in sorted(BOOK.rglob("*.md")) if not is_notebook(p)], ids=str)
def test_code_on_other_pages_fits_the_column(page: Path) -> None:
    blocks = re.findall(
        r"^```(?:python|\{code-block\}[^\n]*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S
    )
    assert [line for code in blocks for line in too_wide(code)] == []


def test_a_wide_line_is_seen() -> None:
    assert too_wide("x = 1\n" + "y" * 89) == ["y" * 89]
