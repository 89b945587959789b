"""The reference pages: letters with several meanings are listed, works are cited, nobody is given what is ours."""

import re
from pathlib import Path

from pybtex.database import parse_file

from dpbook import doubts

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


NAMED = "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma varsigma tau"
NAMED += " phi varphi chi psi omega ell Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
CHAPTERS_OF = {
    "Sample and aggregate": ["sample-and-aggregate"],
    "Regression": ["regression"],
    "Graphical models": ["graphical-models"],
    "Any model": ["any-model"],
}


def formulas(text: str) -> list[str]:
    """The formulas of a page, displayed and in the text; code, shown or in backticks, has none."""
    prose = re.sub(r"^(`{3,})(?:\{code-cell\}|python|text).*?^\1$", "", text, flags=re.M | re.S)
    prose = re.sub(r"(?<!`)`[^`\n]*`", "", prose)
    displayed = re.findall(r"\$\$(.+?)\$\$", prose, re.S)
    return displayed + re.findall(r"\$([^$]+)\$", re.sub(r"\$\$.+?\$\$", "", prose, flags=re.S))


def symbols(formula: str) -> set[str]:
    """The letters of a formula, Latin and Greek, script and blackboard; words in it are none."""
    bare = re.sub(r"\\(?:begin|end|text|operatorname|mathrm|mathsf|texttt)\*?\s*(?:\{[^}]*\}|[A-Z])", "", formula)
    styled = r"\\math(?:cal|bb|bf)\s*\{?\s*[A-Za-z0-9]\}?"
    found = {re.sub(r"[\s{}]", "", each) for each in re.findall(styled, bare) if not re.search(r"\d", each)}
    for word, letter in re.findall(r"\\([A-Za-z]+)|([A-Za-z])", re.sub(styled, "", bare)):
        if letter or word in NAMED.split():
            found.add(letter or f"\\{word}")
    return found


def spaced(formula: str) -> str:
    """A formula as its signs with spaces between them, without sizes and braces: one can look for parts of it."""
    bare = re.sub(r"\\[,;!:|]|\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])", "", formula)
    signs = re.findall(r"\\[A-Za-z]+|[^\s{}]", bare)
    return f" {' '.join(signs)} "


def heads(section: str) -> list[str]:
    """The symbols that a table of the notation page explains, one by one, without arguments and right-hand sides."""
    found = []
    for row in rows_of(section):
        for formula in re.findall(r"\$([^$]+)\$", row):
            for part in re.split(r",(?![^()\[\]{}]*[)\]}])", formula):
                left = spaced(re.split(r"=|\\sim", part)[0])
                found.append(re.sub(r"(?<=\S) \([^()]*\) $", " ", left))
    return found


def pages_of(chapters: list[str]) -> list[Path]:
    return [page for chapter in chapters for page in sorted((BOOK / chapter).glob("*.md"))]


ALL_CHAPTERS = sorted({page.parent.name for page in BOOK.glob("*/index.md")})


def undefined(text: str, page: str) -> set[str]:
    """The symbols of a text that no row of the notation page explains."""
    explained = {s for row in rows_of(page) for f in re.findall(r"\$([^$]+)\$", row) for s in symbols(f)}
    return {s for formula in formulas(text) for s in symbols(formula)} - explained


def unused(section: str, text: str) -> list[str]:
    """The symbols of a table of the notation page that a text does not use."""
    used = [spaced(formula) for formula in formulas(text)]
    return [head for head in heads(section) if not any(head in formula for formula in used)]


def test_every_letter_of_a_formula_is_on_the_notation_page() -> None:
    page = (BOOK / "reference" / "notation.md").read_text(encoding="utf-8")
    missing = {each.stem: undefined(each.read_text(encoding="utf-8"), page) for each in pages_of(ALL_CHAPTERS)}
    assert {name: found for name, found in missing.items() if found} == {}


def test_every_row_of_the_notation_page_is_used_in_its_chapter() -> None:
    page = (BOOK / "reference" / "notation.md").read_text(encoding="utf-8")
    for section in re.split(r"\n## ", page)[1:-1]:
        title = section.split("\n")[0]
        if title != "Functions and distributions":  # there a dot or a letter stands for any argument
            pages = pages_of(CHAPTERS_OF.get(title, ALL_CHAPTERS))
            text = "\n\n".join(each.read_text(encoding="utf-8") for each in pages)
            assert unused(section, text) == [], title


def test_a_letter_that_nobody_explained_and_a_row_that_nobody_needs_are_seen() -> None:
    page = "\n* - $x$, $\\bar p$\n  - data\n* - $h(t)$\n  - files\n"
    assert undefined("Let $x = \\mathcal X$ and `$y$` be\n\n$$ \\text{no } \\xi_{p} . $$", page) == {
        "\\mathcalX",
        "\\xi",
    }
    assert unused(page, "Here $\\theta x$, and $\\bar{p} + h(s)$") == []
    assert unused(page, "Here $\\theta = p\\,x$") == [" \\bar p ", " h "]


def test_the_cheat_sheet_and_the_page_of_warnings_have_every_kind_of_doubt() -> None:
    kinds = {kind.__name__ for kind in doubts.Doubt.__subclasses__() if kind.__module__ == doubts.__name__}
    for name in ("cheat-sheet", "doubts"):
        text = (BOOK / "reference" / f"{name}.md").read_text(encoding="utf-8")
        assert set(re.findall(r"\{class\}`~dpbook\.doubts\.(\w+)`", text)) == kinds, name


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
