"""No two works of the bibliography are cited by the same words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from citation_years import lettered_years, shown_authors
from pybtex.database import parse_file, parse_string

WORKS = dict(parse_file(str(Path(__file__).resolve().parents[2] / "book" / "references.bib")).entries.items())

ALIKE = """
@book{Second, author = {Dwork, C and McSherry, F and Nissim, K}, year = {2006}, title = {Our data}}
@book{First, author = {Dwork, C and Kenthapadi, K and Naor, M}, year = {2006}, title = {calibrating noise}}
@book{Alone, author = {Dwork, C}, year = {2006}, title = {Differential privacy}}
@book{Pair, author = {Dwork, C and Roth, A}, year = {2006}, title = {Foundations}}
"""


def test_letters_follow_the_titles_and_only_works_that_share_authors_and_year_get_one() -> None:
    assert lettered_years(dict(parse_string(ALIKE, "bibtex").entries.items())) == {"First": "2006a", "Second": "2006b"}


def test_no_two_works_are_cited_by_the_same_words() -> None:
    years = lettered_years(WORKS)
    cited = Counter((shown_authors(work), years.get(key, work.fields.get("year"))) for key, work in WORKS.items())
    assert years
    assert [words for words, times in cited.items() if times > 1] == []
