"""The reference pages: letters with several meanings are listed, works are cited, typed numbers are those of tables."""

import re
from pathlib import Path

import pandas as pd
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


# Numbers that are typed on the scorecard, which runs no code ----------------------------------------------------------


def scorecard() -> str:
    return " ".join((BOOK / "reference" / "scorecard.md").read_text(encoding="utf-8").split())


def table(chapter: str, name: str) -> pd.DataFrame:
    return pd.read_csv(BOOK / chapter / "results" / f"{name}.csv", comment="#")


def test_the_scorecard_counts_rejections_by_one_yardstick() -> None:
    rows = table("exponential-families", "calibration")
    aware = rows[rows["method"].isin(["exact", "collapsed", "gibbs"])]
    naive = rows[rows["method"] == "naive"]
    counts = [(each["p_study"] < 0.05).sum() for each in (aware, naive)]
    own = [(each["p_holm"] < 0.05).sum() for each in (aware, naive)]
    assert counts[0] == 0
    assert (
        f"none of {len(aware)} noise-aware rows is rejected after the correction over the study, "
        f"and {own[0]} are by the tests of their own row"
    ) in scorecard()
    assert (
        f"rejected in {counts[1]} of {len(naive)} rows after the correction over the study, "
        f"in {own[1]} by the tests of their own row"
    ) in scorecard()


def test_the_scorecard_says_which_reader_noise_once_is_better_for() -> None:
    rows = table("graphical-models", "hmm_utility").query("states == 2")
    distance = rows.groupby(["epsilon", "method"])["distance"].mean().unstack().dropna(subset=["exponential"])
    assert (distance["noise-aware"] < distance["exponential"]).all()
    assert (distance["naive"] > distance["exponential"]).tolist() == [True, True, False, False, False]
    assert distance.index[1] == 0.1
    naive, heat = distance["naive"].iloc[0], distance["exponential"].iloc[0]
    assert distance.index[0] == 0.03
    typed = f"distance of {naive:.3f} against {heat:.3f}"
    assert typed in scorecard()


def test_the_scorecard_counts_the_rejected_regressions() -> None:
    rows = table("regression", "calibration")
    rejected = rows[rows["p_study"] < 0.05].groupby("method").size()
    typed = (
        f"the collapsed sampler is rejected in {rejected.get('collapsed', 0)} of "
        f"{(rows['method'] == 'collapsed').sum()} rows, naive in {rejected['naive']}, "
        f"Gibbs-Prior in {rejected['gibbs-prior']} (misspecified), Gibbs-Noisy in {rejected['gibbs-noisy']}, "
        f"Gibbs-Update in {rejected['gibbs-update']}"
    )
    assert typed in scorecard()
    covered = rows[rows["method"] == "collapsed"]["coverage"]
    naive = rows[rows["method"] == "naive"]["coverage"]
    assert f"covers {100 * covered.min():.0f} to {100 * covered.max():.0f} % in every cell" in scorecard()
    assert f"naive intervals down to {100 * naive.min():.1f} %" in scorecard()


def test_nobody_is_said_to_have_used_a_ridge_that_is_ours() -> None:
    for page in BOOK.rglob("*.md"):
        assert not re.search(r"source's (tiny )?ridge", page.read_text(encoding="utf-8")), page
