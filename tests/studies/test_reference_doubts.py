"""Doubts are seldom false: the committed table says how seldom, and a few of its cells are measured again."""

from __future__ import annotations

import numpy as np
import pytest
from loading import BOOK, load_study
from scipy import stats

from dpbook import studies

study = load_study("reference")
TABLE = studies.load(BOOK / "reference" / "results" / "doubts.csv")


def test_in_no_case_more_than_a_tenth_of_right_posteriors_are_doubted() -> None:
    """A tenth is refuted where so many doubts have a probability below 0.05, Holm's correction left out: stricter."""
    doubted = (TABLE["any"] * TABLE["trials"]).round()
    assert (stats.binom.sf(doubted - 1, TABLE["trials"], 0.1) > 0.05).all()
    assert np.average(TABLE["any"], weights=TABLE["trials"]) < 0.05
    assert set(TABLE["case"]) == set(study.CASES)


@pytest.mark.parametrize(
    "cell", [("binomial", 1000, 1.0), ("poisson, two releases", 100, 0.5), ("mean, no family", 100, 0.5)]
)
def test_a_cell_measured_again_is_that_of_the_table(cell: tuple[str, int, float]) -> None:
    again = study.measure(*cell, trials=study.TRIALS, seed=study.SEED).iloc[0]
    row = TABLE[(TABLE["case"] == cell[0]) & (TABLE["n"] == cell[1])].iloc[0]
    for kind in study.KINDS:
        assert again[kind] == pytest.approx(row[kind], abs=0.021), kind
