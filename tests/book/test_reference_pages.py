"""The reference pages: letters with several meanings are listed, works are cited, nobody is given what is ours."""

import re
from pathlib import Path

from pybtex.database import parse_file

BOOK = Path(__file__).parents[2] / "book"


def rows_of(section: str) -> list[str]:
    return [row.split("\n")[0] for row in re.split(r"\n\* - ", section)[1:]]


def letters(row: str) -> set[str]:
    """The plain letters that a row of the notation page defines, without indices, arguments and right-hand sides."""
    found = set()
    for formula in re.findall(r"\$([^$]+)\$", row):
        for part in re.split(r",(?![^()\[\]{}]*[)\]}])", formula):
            base = re.sub(r"\(.*\)$", "", part.split("=")[0].strip()).strip()
            if re.fullmatch(r"\\?[A-Za-z]+", base):
                found.add(base)
    return found


def test_every_letter_with_several_rows_is_listed_with_its_meanings() -> None:
    page = (BOOK / "reference" / "notation.md").read_text(encoding="utf-8")
    *sections, last = re.split(r"\n## ", page)
    assert last.startswith("Letters with several meanings")
    seen: dict[str, int] = {}
    for section in sections:
        for row in rows_of(section):
            for letter in letters(row):
                seen[letter] = seen.get(letter, 0) + 1
    several = {letter for letter, count in seen.items() if count > 1}
    listed = set().union(*(letters(row) for row in rows_of(last)))
    assert several - listed == set()


def test_every_work_in_the_bibliography_is_cited_somewhere() -> None:
    works = set(parse_file(str(BOOK / "references.bib")).entries)
    cited = set()
    for page in BOOK.rglob("*.md"):
        for keys in re.findall(r"\{cite:?\w*\}`([^`]+)`", page.read_text(encoding="utf-8")):
            cited |= {key.strip() for key in keys.split(",")}
    assert works - cited == set()


def test_where_a_poster_is_meant_the_poster_is_cited() -> None:
    for page in BOOK.rglob("*.md"):
        text = " ".join(page.read_text(encoding="utf-8").split())
        wrong = re.findall(r"[Pp]oster (?:of|by) \{cite:t\}`(?:Zheng2015|Foulds2016)`", text)
        assert wrong == [], page
        assert "poster {cite:p}`Zheng2015`" not in text
        assert "poster {cite:p}`Foulds2016`" not in text


def test_nobody_is_said_to_have_used_a_ridge_that_is_ours() -> None:
    for page in BOOK.rglob("*.md"):
        assert not re.search(r"source's (tiny )?ridge", page.read_text(encoding="utf-8")), page
