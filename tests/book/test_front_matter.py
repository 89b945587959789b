"""The front matter keeps its word: its code runs when pasted, and its tables agree with the book and the package."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from notebooks import read_source, tags

from dpbook import expfam
from dpbook.datasets import load_fair
from dpbook.plotting import METHODS

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
CHAPTERS = [
    "background",
    "sample-and-aggregate",
    "exponential-families",
    "regression",
    "graphical-models",
    "theory",
    "any-model",
]
MARKERS = {
    "o": "circle",
    "X": "cross",
    "D": "diamond",
    "s": "square",
    "^": "triangle up",
    "v": "triangle down",
    "<": "triangle left",
    "P": "plus",
    ">": "triangle right",
    "h": "hexagon",
    "p": "pentagon",
    "d": "thin diamond",
    "*": "star",
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


def test_the_landing_page_states_how_often_the_two_intervals_hold_the_truth() -> None:
    """Two thousand surveys of the picture's size: standard errors of 1.1 and 0.5 points, at a fixed seed."""
    rng, trials, covered = np.random.default_rng(1), 2000, Counter[str]()
    for share in rng.random(trials):
        answers = (rng.random(199) < share).astype(int)
        release = expfam.release(answers, expfam.Binomial(), epsilon=0.1, rng=rng)
        for method in ("naive", "exact"):
            below = expfam.posterior_density(release, expfam.Beta(1, 1), method=method).cdf(share)
            covered[method] += bool(0.025 <= below <= 0.975)
    page = " ".join((BOOK / "index.md").read_text(encoding="utf-8").split())
    naive, aware = (f"{100 * covered[method] / trials:.0f} %" for method in ("naive", "exact"))
    assert f"the naive 95 % interval held the true share {naive} of the time, the noise-aware one {aware}." in page
    assert len(load_fair()[::32]) == 199


def test_the_landing_page_names_the_chapters_as_the_sidebar_does() -> None:
    """A link without words of its own takes the chapter's title."""
    page = (BOOK / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\[([^\]]*)\]\(\S+/index\.md\)", page) == [""] * len(CHAPTERS)


def test_the_capstone_skeletons_exchange_a_release(tmp_path: Path) -> None:
    steward, analyst, auditor = python_blocks("how-to-use.md")
    assert "left: 0" in run(steward, tmp_path)
    assert (tmp_path / "release-1.md").read_text(encoding="utf-8").startswith("- **Guarantee.**")
    assert re.search(r"naive: \[.*noise-aware: \[", run(analyst, tmp_path), re.S)
    assert run(auditor, tmp_path).startswith("Not refuted")


def test_the_palette_that_contributors_read_is_that_of_the_package() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r'^\| (.*?) \| `"(.*?)"` \| `(#\w+)` \| (.*?) \| (.*?) \|$', page, re.M)
    expected = [
        (style.label, name, style.color, MARKERS[style.marker], LINES[style.linestyle])
        for name, style in METHODS.items()
    ]
    assert rows == expected


def chapter_sections(chapter: str) -> list[str]:
    """Return the sections of a chapter in the order of the table of contents."""
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    entries = [entry for part in parts for entry in part["chapters"]]
    entry = next(entry for entry in entries if entry["file"] == f"book/{chapter}/index")
    return [Path(section["file"]).stem for section in entry["sections"]]


def reading_minutes(chapter: str, section: str) -> float:
    """Return the minutes that the words and code outside the exercises take, at 200 words and 10 lines a minute."""
    words = lines = 0
    in_exercises = False
    for cell in read_source(BOOK / chapter / f"{section}.md").cells:
        if cell.cell_type == "markdown":
            for part in re.split(r"(?=^## )", cell.source, flags=re.M):
                if part.startswith("## "):
                    in_exercises = part.startswith("## Exercises")
                words += 0 if in_exercises else len(part.split())
        elif not in_exercises and not tags(cell) & {"remove-cell", "remove-input", "hide-input"}:
            lines += len(cell.source.splitlines())
    return words / 200 + lines / 10


def exercises(chapter: str, section: str) -> list[int]:
    """Return the minutes of a section's exercises: those that it states, else a quarter of an hour."""
    text = (BOOK / chapter / f"{section}.md").read_text(encoding="utf-8")
    stated = re.findall(r"^`{3,}\{exercise(?:-start)?\}.*\n:label: \S+\n\n(?:●+ (\d+) minutes)?", text, re.M)
    return [int(minutes or 15) for minutes in stated]


def listed(chapter: str) -> list[tuple[str, int, int]]:
    """Return the sections that a chapter's opening page lists, with their minutes and exercises."""
    page = (BOOK / chapter / "index.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^  - \{{doc\}}`/book/{chapter}/(\S+)`\n  - .*\n  - (\d+), (\d+)$", page, re.M)
    return [(name, int(minutes), int(count)) for name, minutes, count in rows]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_chapter_opens_with_all_its_sections_in_order(chapter: str) -> None:
    assert [name for name, _, _ in listed(chapter)] == chapter_sections(chapter)


@pytest.mark.parametrize(
    ("chapter", "section", "minutes", "count"), [(chapter, *row) for chapter in CHAPTERS for row in listed(chapter)]
)
def test_the_reading_time_of_the_section_is_right_to_a_third_and_its_exercises_are_counted(
    chapter: str, section: str, minutes: int, count: int
) -> None:
    assert abs(math.log(minutes / reading_minutes(chapter, section))) < math.log(4 / 3)
    assert len(exercises(chapter, section)) == count


def test_the_landing_page_offers_the_chapters_that_exist_with_their_hours() -> None:
    page = (BOOK / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"\]\((\S+)/index\.md\)\n  - .*\n  - (\d+) hours to read, (\d+) with the exercises", page)
    assert [chapter for chapter, _, _ in rows] == CHAPTERS
    for chapter, to_read, with_exercises in rows:
        sections = chapter_sections(chapter)
        hours = sum(reading_minutes(chapter, section) for section in sections) / 60
        more = sum(sum(exercises(chapter, section)) for section in sections) / 60
        assert abs(hours - int(to_read)) < 0.75
        assert abs(hours + more - int(with_exercises)) < 0.75


def test_the_course_reads_every_section_of_the_chapters_that_exist() -> None:
    page = (BOOK / "how-to-use.md").read_text(encoding="utf-8").split("(syllabus)=")[1].split("(capstone)=")[0]
    read = re.findall(r"\{doc\}`/book/(\S+?)/(\S+?)`", page)
    assert set(read) == {(chapter, section) for chapter in CHAPTERS for section in chapter_sections(chapter)}


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
