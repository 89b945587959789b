"""The front matter keeps its word: its code runs when pasted, and its tables agree with the book and the package."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from notebooks import read_source, tags

from dpbook.plotting import METHODS

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
MARKERS = {
    "o": "circle",
    "X": "cross",
    "D": "diamond",
    "s": "square",
    "^": "triangle up",
    "v": "triangle down",
    "<": "triangle left",
    "P": "plus",
    "": "none",
}
LINES = {"-": "solid", "--": "dashed", "-.": "dash-dot", ":": "dotted"}


def python_blocks(page: str) -> list[str]:
    """Return the Python code that a page shows, block by block."""
    return re.findall(r"^```python\n(.*?)^```", (BOOK / page).read_text(encoding="utf-8"), re.M | re.S)


def run(code: str, folder: Path) -> str:
    """Run code as a reader would who pastes it into a file; return what it prints."""
    script = folder / "pasted.py"
    script.write_text(code, encoding="utf-8")
    result = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def test_the_two_sides_on_the_landing_page_work_together(tmp_path: Path) -> None:
    curator, analyst = python_blocks("index.md")
    run(curator + analyst + "assert release.mechanism == 'laplace' and budget.remaining == 0.9\n", tmp_path)


def test_the_capstone_skeletons_exchange_a_release(tmp_path: Path) -> None:
    _, steward, analyst, auditor = python_blocks("how-to-use.md")
    assert "left: 0" in run(steward, tmp_path)
    assert (tmp_path / "release-1.md").read_text(encoding="utf-8").startswith("- **Guarantee.**")
    assert re.search(r"naive: \[.*noise-aware: \[", run(analyst, tmp_path), re.S)
    assert run(auditor, tmp_path).startswith("Not refuted")


def test_the_palette_on_the_page_is_that_of_the_package() -> None:
    page = (BOOK / "how-to-use.md").read_text(encoding="utf-8")
    rows = re.findall(r'background-color: (#\w+)"></span> \| (.*?) \| `"(.*?)"` \| (.*?) \| (.*?) \|', page)
    expected = [
        (style.color, style.label, name, MARKERS[style.marker], LINES[style.linestyle])
        for name, style in METHODS.items()
    ]
    assert rows == expected


def chapter_sections() -> list[str]:
    """Return the sections of chapter 1 in the order of the table of contents."""
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    chapters = [chapter for part in parts for chapter in part["chapters"]]
    chapter = next(chapter for chapter in chapters if chapter["file"] == "book/background/index")
    return [Path(section["file"]).stem for section in chapter["sections"]]


def reading_minutes(section: str) -> float:
    """Return the minutes that the words and code outside the exercises take, at 200 words and 10 lines a minute."""
    words = lines = 0
    in_exercises = False
    for cell in read_source(BOOK / "background" / f"{section}.md").cells:
        if cell.cell_type == "markdown":
            for part in re.split(r"(?=^## )", cell.source, flags=re.M):
                if part.startswith("## "):
                    in_exercises = part.startswith("## Exercises")
                words += 0 if in_exercises else len(part.split())
        elif not in_exercises and not tags(cell) & {"remove-cell", "remove-input", "hide-input"}:
            lines += len(cell.source.splitlines())
    return words / 200 + lines / 10


def exercises(section: str) -> int:
    """Return how many exercises a section has."""
    text = (BOOK / "background" / f"{section}.md").read_text(encoding="utf-8")
    return len(re.findall(r"^```\{exercise(?:-start)?\}", text, re.M))


def listed() -> list[tuple[str, int, int]]:
    """Return the sections that the chapter's opening page lists, with their minutes and exercises."""
    page = (BOOK / "background" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^  - \{doc\}`/book/background/(\S+)`\n  - .*\n  - (\d+), (\d+)$", page, re.M)
    return [(name, int(minutes), int(count)) for name, minutes, count in rows]


def test_the_chapter_opens_with_all_its_sections_in_order() -> None:
    assert [name for name, _, _ in listed()] == chapter_sections()


@pytest.mark.parametrize(("section", "minutes", "count"), listed())
def test_the_reading_time_of_the_section_is_right_to_a_third_and_its_exercises_are_counted(
    section: str, minutes: int, count: int
) -> None:
    assert abs(math.log(minutes / reading_minutes(section))) < math.log(4 / 3)
    assert exercises(section) == count


def test_the_glossary_is_in_order_and_names_nothing_twice() -> None:
    body = (BOOK / "reference" / "glossary.md").read_text(encoding="utf-8").split(":::{glossary}\n")[1]
    terms = [line.lower().replace("/", " ") for line in body.splitlines() if line[:1].isalpha()]
    assert terms == sorted(set(terms))


def test_the_entries_of_the_errata_are_numbered_without_gaps_and_can_be_linked_to() -> None:
    text = (BOOK / "reference" / "errata.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\(erratum-(\w+)\)=\n### ([A-Z])(\d+)\. ", text, re.M)
    assert len(entries) == text.count("\n### ")
    assert all(label == f"{letter.lower()}{number}" for label, letter, number in entries)
    by_source: dict[str, list[int]] = {}
    for _, letter, number in entries:
        by_source.setdefault(letter, []).append(int(number))
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_source.values())
