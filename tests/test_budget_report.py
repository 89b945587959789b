"""The page about a ledger: what it says, and that nothing in a label becomes markup."""

import math

import numpy as np
import pytest

from dpbook import PrivacyBudget, expfam
from dpbook.budget import charge
from dpbook.budget_report import most

DESIGN = "order of arrival"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "project.ledger"


@pytest.mark.parametrize(("guess", "epsilon"), [(0.1, 1.0), (0.5, 0.01), (0.001, 30.0), (0.5, 2000.0)])
def test_odds_are_multiplied_and_probabilities_stay_below_one(guess, epsilon):
    odds = guess / (1 - guess) * (math.exp(epsilon) if epsilon < 700 else math.inf)
    assert most(guess, epsilon) == pytest.approx(1.0 if odds == math.inf else odds / (1 + odds))


@pytest.mark.parametrize("accounting", ["addition", "zcdp", "gaussian"])
def test_every_accounting_is_explained_and_an_empty_ledger_too(accounting):
    budget = PrivacyBudget(1.0, delta=1e-6, accounting=accounting)
    assert "0 charges; spent together: ε = 0." in budget.report()
    budget.spend(0.05, label="a count")
    text, page = budget.report(), budget.report("html")
    assert "1 charge; spent together" in text
    assert {"addition": "ε to ε", "zcdp": "zero-concentrated", "gaussian": "squares of μ"}[accounting] in text
    assert "a count" in page
    assert "δ is a probability for which nothing is promised" in page
    assert "What is left pays for one pure release" in budget.afford(delta=1e-8)


def test_a_report_of_a_project_is_for_people(path):
    budget = PrivacyBudget.open(path, epsilon=1.0, delta=1e-6, unit="one patient")
    charge(budget, 0.5, 0.0, label="answers | *bold* <b>").entered(
        expfam.release([0, 1, 1, 1], expfam.Binomial(), epsilon=0.5, rng=np.random.default_rng(1))
    )
    with budget.parallel(n=20, parts={"north": 10, "south": 10}, fixed_by=DESIGN) as group:
        group.branch("north").spend(0.25, label="mean")
    text, page = budget.report(), PrivacyBudget.open(path).report("html")
    for said in (
        "one patient",
        "ε = 1 and δ = 1e-06 (one in 1,000,000)",
        "73.1 %",
        "part north: mean",
        "seeded teaching noise",
    ):
        assert said in text, said
    for said in ("one patient", "ε = 1 and δ = 1e-06", "73.1 %", "part 'north': mean", "&lt;b&gt;", "<details>"):
        assert said in page.replace("&#x27;", "'"), said
    assert "<b>" not in page
    assert "http" not in page
    assert "src=" not in page
    with pytest.raises(ValueError, match="format"):
        budget.report("pdf")


def test_what_is_left_is_said_in_words(path):
    budget = PrivacyBudget.open(path, epsilon=1.0, delta=1e-6, unit="one patient")
    budget.spend(0.5)
    assert "0.5 of ε = 1 is spent" in budget.afford()
    assert "ε up to 0.5" in budget.afford()
    budget.spend(0.5)
    assert budget.afford().endswith("Nothing is left.")
