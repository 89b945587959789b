"""The ledger of claims: what it quotes is what is stored, its evidence exists, and the pages are written from it.

Every rule is a function of :mod:`claims_ledger`; the last part of this file breaks a claim in each way, and sees it
caught.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from claims_ledger import (
    KINDS,
    VERDICTS,
    Claim,
    Deviation,
    Erratum,
    Ledger,
    Number,
    Size,
    labels,
    load,
    problems,
    problems_of_all,
    quoted,
    read_claim,
    results,
)
from scorecard import BADGES, PAGES, filled, shown

BOOK = Path(__file__).resolve().parents[2] / "book"
LEDGER = load()

# Figures of the sources, as they are numbered there.
FIGURES = {
    "amitai": ["3.1", "3.2", "3.3", "3.4", "4.1", "4.2"],
    "foundations": ["1.1"],
    "graphical": ["3.1", "3.2", "3.3", "3.4", "3.5", "3.6"],
    "families": ["4.1", "4.2", "4.3", "4.4", "B.1"],
    "regression": ["1", "2", "3a", "3b", "3c", "3d", "3e", "3f", "4", "5.1", "5.2", "5.3", "5.9", "C.1"],
    "tracts": ["5.10", "5.11", "5.12", "5.13", "5.14", "5.15", "5.16"],
}


# What holds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", LEDGER.tables)
def test_every_claim_of_a_table_has_evidence_that_exists_and_numbers_that_are_stored(table: str) -> None:
    assert [each for claim in LEDGER.of(table) for each in problems(claim, LEDGER)] == []


def test_ids_are_unique_and_no_table_counts_by_two_yardsticks() -> None:
    assert problems_of_all(LEDGER) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pages_are_written_from_the_ledger(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "% ledger: " in text
    assert filled(text, LEDGER) == text


def test_the_ledger_is_as_large_as_the_sources() -> None:
    assert len(LEDGER.claims) >= 228
    assert {claim.kind for claim in LEDGER.claims} == set(KINDS)
    assert {claim.verdict for claim in LEDGER.claims} == set(VERDICTS) == set(BADGES)


@pytest.mark.parametrize(("table", "figure"), [(table, figure) for table, own in FIGURES.items() for figure in own])
def test_every_figure_of_the_sources_is_a_claim(table: str, figure: str) -> None:
    drawn = [claim.where for claim in LEDGER.of(table) if claim.kind == "figure"]
    assert any(re.search(rf"(?<![\w.]){re.escape(figure)}(?![\w.]*\w)", where) for where in drawn)


def test_every_block_of_a_page_names_something() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(re.findall(r"^% ledger: end$", text, re.M)) == len(re.findall(r"^% ledger: (?!end)", text, re.M))
    blocks = re.findall(r"^% ledger: all (\S+)$", PAGES[1].read_text(encoding="utf-8"), re.M)
    assert sorted(blocks) == sorted(LEDGER.tables)
    entries = re.findall(r"^% ledger: erratum (\S+)$", PAGES[2].read_text(encoding="utf-8"), re.M)
    assert sorted(entries) == sorted(entry.id for entry in LEDGER.errata)


def test_every_number_of_the_scorecard_comes_from_somewhere() -> None:
    assert sum(len(claim.numbers) for claim in LEDGER.claims) > 30
    assert quoted("rejected in 67 of 72 rows, $n = 100$, {ref}`A1 <erratum-a1>`, Fig. 3.1, 1,000 or 0.3 %") == [
        "67",
        "72",
        "1,000",
        "0.3",
    ]


# The ledger of chapter 6 ----------------------------------------------------------------------------------------------


def theory() -> pd.DataFrame:
    return results("theory/ledger").set_index("claim")


def test_every_check_of_chapter_6_belongs_to_one_claim() -> None:
    used = [name for claim in LEDGER.claims for name in claim.searches]
    assert sorted(used) == sorted(theory().index)


def test_every_search_for_a_counterexample_belongs_to_a_claim() -> None:
    used = {name for claim in LEDGER.claims for name in claim.searches}
    assert set(results("theory/attacks")["claim"]) <= used


@pytest.mark.parametrize("claim", [each for each in LEDGER.claims if each.searches], ids=lambda each: each.id)
def test_a_verdict_is_that_of_the_checks_of_chapter_6(claim: Claim) -> None:
    found = theory().loc[list(claim.searches)]
    own = set(found.loc[~found["source"].str.startswith("this book"), "verdict"])
    assert "not refuted" not in own  # what the posters claim is proved or refuted
    if "fails as printed" in own:
        assert claim.verdict == "differs"
    elif "fails" in own or "proved with a condition" in own:
        assert claim.verdict in ("with conditions", "differs")
    elif own:
        assert claim.verdict in ("agrees", "with conditions")


# What the rows say in words -------------------------------------------------------------------------------------------


def test_the_naive_rows_that_are_spared_have_a_large_epsilon_and_samples_are_wider_than_the_prior() -> None:
    grid = results("exponential-families/calibration")
    naive, samples = grid.query("method == 'naive'"), grid.query("method == 'posterior samples'")
    assert (naive.query("p_study >= 0.05")["epsilon"] == 1).all()
    assert len(samples) == 9
    assert (samples["contraction"] < 0).all()


def test_noise_once_is_better_at_every_epsilon_for_a_reader_who_knows_of_it() -> None:
    rows = results("graphical-models/hmm_utility").query("states == 2")
    distance = rows.groupby(["epsilon", "method"])["distance"].mean().unstack().dropna(subset=["exponential"])
    assert (distance["noise-aware"] < distance["exponential"]).all()
    assert (distance["naive"] > distance["exponential"]).tolist() == [True, True, False, False, False]
    assert distance.index[1] == 0.1


def test_cgm_beats_gradients_on_the_itineraries_only_where_noise_is_small() -> None:
    rows = results("graphical-models/mobility_holdout").dropna()
    likely = rows.groupby(["epsilon", "method"])["log_likelihood"].mean().unstack()
    ahead = (likely["cgm"] - likely["dp-sgd"]).dropna()
    assert ahead[10.0] > 0.1
    assert abs(ahead[3.0]) < 0.05
    assert (ahead[ahead.index <= 1] < 0).all()


def test_noise_aware_points_beat_naive_ones_in_every_cell() -> None:
    error = results("regression/point_estimates").pivot(index=["n", "epsilon"], columns="method", values="rmse")
    assert (error["collapsed"] < error["naive"] * 1.02).all()


def test_nobody_is_said_to_have_used_a_number_of_trials_that_is_not_stored() -> None:
    claim = next(each for each in LEDGER.claims if each.id == "b20-fig-4.3")
    assert claim.size is not None
    wrong = replace(claim, size=replace(claim.size, ours="500 trials"))
    assert "b20-fig-4.3 speaks of 500 trials, and its tables do not" in problems(wrong, LEDGER)


# Proofs ---------------------------------------------------------------------------------------------------------------


def guards() -> pd.DataFrame:
    table = pd.read_csv(BOOK / "reference" / "results" / "guards_table.csv", comment="#")
    return table[table["proof"].str.startswith("thm-")]


def section_of(label: str) -> str:
    (text,) = [
        text for page in BOOK.rglob("*.md") if f":label: {label}\n" in (text := page.read_text(encoding="utf-8"))
    ]
    return text


def statement(label: str) -> str:
    return section_of(label).split(f":label: {label}\n")[1].split("\n```")[0]


def without_neighbours(text: str) -> list[str]:
    """Say what a theorem on privacy or sensitivity does not name."""
    plain = " ".join(text.split())
    found = ["its neighbours"] * (not re.search(r"replace|neighbour", plain, re.IGNORECASE))
    return found + ["what is public"] * (not re.search(r"public", plain))


SENSITIVITIES = ["thm-mechanisms-sums", "thm-sensitivities-l1", "thm-sensitivities-l2", "thm-sensitivities-fourth"]
SENSITIVITIES += ["thm-split-compute-average-sensitivity", "thm-mobility-sensitivity", "thm-synthetic-people-privacy"]
SENSITIVITIES += ["thm-is-the-family-right-sensitivity", "thm-errata-gibbs", "thm-mechanisms-tempered"]
SENSITIVITIES += ["thm-where-ops", "thm-where-privacy-breaks-discrete", "thm-posterior-quantiles-histogram"]


@pytest.mark.parametrize("label", sorted({*guards()["proof"], *SENSITIVITIES}))
def test_a_theorem_that_a_release_relies_on_names_its_neighbours_and_what_is_public(label: str) -> None:
    assert without_neighbours(statement(label)) == []


@pytest.mark.parametrize(("release", "label"), [*guards()[["release", "proof"]].itertuples(index=False)])
def test_a_proof_links_to_the_guards_that_attack_it(release: str, label: str) -> None:
    after = section_of(label).split(f":label: {label}\n")[1]
    (links,) = re.findall(r"^\{ref\}`Guards <promises-guards>` attack this theorem as code: (.*)\.$", after, re.M)[:1]
    assert f"`{release}`" in links


def test_a_statement_without_neighbours_is_caught() -> None:
    assert without_neighbours("The sum has sensitivity 2.") == ["its neighbours", "what is public"]
    assert without_neighbours("For replace-one neighbours the sum has sensitivity 2.") == ["what is public"]


def test_the_proof_of_a_tempered_draw_is_given_once() -> None:
    proofs = [
        proof
        for page in BOOK.rglob("*.md")
        for proof in re.findall(r"^```\{prf:proof\}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    ]
    normalised = [proof for proof in proofs if re.search(r"normalis", proof) and "e^{\\pm" in proof]
    assert normalised == []
    assert sum("thm-mechanisms-tempered" in proof for proof in proofs) >= 4


# Each rule can fail ---------------------------------------------------------------------------------------------------

GOOD = Claim(
    id="toy",
    where="§1",
    says="something",
    kind="figure",
    verdict="with conditions",
    table="amitai",
    evidence=("thm-mechanisms-laplace", "dpbook.regression.infer", "book/background/mechanisms"),
    remark="in 67 rows",
    size=Size("ten trials", "the same", (Deviation("other data", "theirs are secret"),)),
    numbers=(
        Number(
            "67",
            "d",
            "exponential-families/calibration",
            "method == 'naive' and p_study < 0.05",
            take="count",
            measure="rejections",
            yardstick="p_study < 0.05",
        ),
    ),
)
NUMBER = GOOD.numbers[0]


def test_a_good_claim_has_no_problems() -> None:
    assert problems(GOOD, LEDGER) == []


@pytest.mark.parametrize(
    ("broken", "because"),
    [
        (replace(GOOD, evidence=()), "toy has no evidence"),
        (replace(GOOD, evidence=("thm-nowhere",)), "toy names evidence that does not exist: thm-nowhere"),
        (replace(GOOD, evidence=("book/background/nowhere",)), "does not exist: book/background/nowhere"),
        (replace(GOOD, evidence=("book/theory/results/no.csv",)), "does not exist: book/theory/results/no.csv"),
        (replace(GOOD, evidence=("dpbook.regression.guess",)), "does not exist: dpbook.regression.guess"),
        (replace(GOOD, evidence=("dpbook.nowhere.guess",)), "does not exist: dpbook.nowhere.guess"),
        (replace(GOOD, verdict="perhaps"), "has the unknown verdict 'perhaps'"),
        (replace(GOOD, kind="rumour"), "is of the unknown kind 'rumour'"),
        (replace(GOOD, table="nobody"), "is in the unknown table 'nobody'"),
        (replace(GOOD, remark="", numbers=()), "toy says no more than its verdict"),
        (replace(GOOD, size=None), "toy does not say at which size"),
        (replace(GOOD, size=Size("a", "b", (Deviation("smaller"),))), "has a deviation without a reason: smaller"),
        (replace(GOOD, size=Size("a", "b", (Deviation("c", "d", "some-day"),))), "waits for unknown work: some-day"),
        (replace(GOOD, remark="in 68 rows"), "toy does not quote 67"),
        (replace(GOOD, remark="in 67 of 70 rows"), "toy quotes 70 without saying where it comes from"),
        (
            replace(GOOD, remark="in 66 rows", numbers=(replace(NUMBER, text="66"),)),
            "toy quotes 66 where the results have 67",
        ),
        (replace(GOOD, numbers=(replace(NUMBER, where="nothing > 1"),)), "which cannot be computed"),
        (replace(GOOD, numbers=(replace(NUMBER, yardstick=""),)), "toy counts 67 without a yardstick"),
        (replace(GOOD, numbers=(replace(NUMBER, yardstick="p_holm < 0.05"),)), "has a yardstick that it does not use"),
    ],
)
def test_a_broken_claim_is_caught(broken: Claim, because: str) -> None:
    assert any(because in each for each in problems(broken, LEDGER))


def test_two_yardsticks_in_one_table_are_caught() -> None:
    other = replace(NUMBER, text="68", where="method == 'naive' and p_holm < 0.05", yardstick="p_holm < 0.05")
    second = replace(GOOD, id="other", remark="in 68 rows", numbers=(other,))
    assert problems(second, LEDGER) == []
    both = Ledger((GOOD, second), (), {"amitai": "a table"})
    assert problems_of_all(both) == ["table amitai measures rejections by 2 yardsticks"]
    assert problems_of_all(replace(both, claims=(GOOD,))) == []


def test_an_id_that_is_given_twice_an_empty_table_and_a_lost_erratum_are_caught() -> None:
    toy = Ledger((GOOD, GOOD), (Erratum("A1", "a slip"),), {"amitai": "a", "zheng": "b"}, {"work": "words"})
    assert problems_of_all(toy) == [
        "toy is the id of 2 claims",
        "table zheng is empty",
        "A1 concerns no claim",
        "nothing waits for the work work",
    ]
    named = replace(GOOD, evidence=("erratum-a1",))
    assert problems_of_all(replace(toy, claims=(named,), tables={"amitai": "a"}, work={})) == []


def test_a_misspelt_key_raises() -> None:
    with pytest.raises(TypeError, match="verdikt"):
        read_claim({"id": "toy", "where": "§1", "says": "x", "kind": "figure", "verdikt": "agrees", "table": "amitai"})


def test_a_page_that_was_edited_by_hand_is_caught() -> None:
    page = "before\n\n% ledger: erratum A1\n\nsomething else\n\n% ledger: end\n\nafter\n"
    new = filled(page, LEDGER)
    assert new != page
    assert "(erratum-a1)=\n### A1. The sensitivity of a sum" in new
    assert new.startswith("before\n")
    assert new.endswith("\nafter\n")
    assert filled(new, LEDGER) == new


@pytest.mark.parametrize(
    ("evidence", "link"),
    [
        ("thm-mechanisms-laplace", "{prf:ref}`thm-mechanisms-laplace`"),
        ("fig-coins-densities", "{numref}`fig-coins-densities`"),
        ("erratum-a1", "{ref}`A1 <erratum-a1>`"),
        ("eq-where-input", "{eq}`eq-where-input`"),
        ("related-vi", "{ref}`related-vi`"),
        ("book/background/mechanisms", "{doc}`/book/background/mechanisms`"),
        ("book/theory/results/ledger.csv", "study `ledger`"),
        ("dpbook.regression.infer", "`dpbook.regression.infer`"),
    ],
)
def test_evidence_is_shown_as_a_link(evidence: str, link: str) -> None:
    assert shown(evidence) == link


def test_labels_of_every_kind_are_found() -> None:
    assert {"thm-mechanisms-laplace", "fig-coins-densities", "tab-errata-privacy", "eq-where-input"} <= labels()
    assert {"related-vi", "erratum-z5", "ex-coins-limit", "alg-gibbs-samplers"} <= labels()
