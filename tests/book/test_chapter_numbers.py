"""Chapters carry the numbers that the book calls them by."""

from __future__ import annotations

from pathlib import Path

import chapter_numbers
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("document", "chapter"),
    [
        ("book/background/definition", 1),
        ("book/exponential-families/index", 3),
        ("book/reference/errata", None),
        ("book/index", None),
        ("background/definition", None),
    ],
)
def test_a_document_belongs_to_the_chapter_of_its_folder(document: str, chapter: int | None) -> None:
    assert chapter_numbers.chapter_of(document) == chapter


def test_only_the_first_number_is_replaced() -> None:
    assert chapter_numbers.renumbered((2, 4, 1), 3) == (3, 4, 1)


def test_every_folder_of_sections_has_a_number() -> None:
    folders = {path.parent.name for path in (ROOT / "book").glob("*/index.md")}
    assert folders <= set(chapter_numbers.CHAPTERS)
