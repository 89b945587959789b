"""The committed tables of chapter 6 are those of its studies, and can be repeated."""

import numpy as np
import pandas as pd
import pytest
from loading import BOOK, load_study

from dpbook.studies import load

study, claims = load_study("theory"), load_study("theory", "claims")
KEYS = {
    "comparison": ["model", "n", "epsilon", "release"],
    "decisions": ["release", "n", "m", "epsilon", "delta"],
    "looseness": ["view", "n", "alpha", "delta"],
}


def stored(name):
    return load(BOOK / "theory" / "results" / f"{name}.csv")


def repeated(name, cells):
    """Run cells of a study and return them beside the same rows of its committed table."""
    again = study.STUDIES[name](cells=cells)
    return again, again[KEYS[name]].merge(stored(name), on=KEYS[name], how="left", validate="one_to_one")


def test_the_committed_ledger_holds_every_claim_with_its_verdict():
    table = stored("ledger").set_index("claim")
    assert list(table.index) == [claim.name for claim in claims.CLAIMS]
    for claim in claims.CLAIMS:
        row = table.loc[claim.name]
        assert (row["verdict"], row["statement"], row["condition"]) == (claim.verdict, claim.statement, claim.condition)


@pytest.mark.parametrize(
    "name", ["coins-III-pure-mode", "coins-IV-pure-kept", "bells-II-pure", "bells-III-IV-pure-clamped"]
)
def test_a_committed_row_of_the_ledger_can_be_repeated(name):
    again = study.STUDIES["ledger"](cells=[(name,)])
    row = stored("ledger").set_index("claim").loc[[name]].reset_index()
    pd.testing.assert_frame_equal(again, row, rtol=1e-3, check_dtype=False)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("comparison", [("coins", 100, 1.0), ("bells", 1000, 0.5)]),
        ("decisions", study.STUDIES["decisions"].cells[::23]),
        ("looseness", [(10, 10.0, 1e-6), (100, 1.0, 0.0), (1000, 1.0, 1e-6)]),
    ],
)
def test_committed_cells_can_be_repeated(name, cells):
    again, row = repeated(name, cells)
    assert list(again.columns) == list(stored(name).columns)
    pd.testing.assert_frame_equal(again, row[list(again.columns)], rtol=1e-3, check_dtype=False)


@pytest.mark.parametrize("name", study.STUDIES)
def test_every_study_is_committed_with_all_its_cells(name):
    """A comparison has seven releases per cell, a positive delta of the looseness two views."""
    cells, rows = study.STUDIES[name].cells, stored(name)
    per_cell = {"comparison": 7, "looseness": 5 / 3}.get(name, 1)
    assert len(rows) == len(cells) * per_cell


def test_noise_beats_draws_in_every_committed_cell():
    """The chapter's answer to which loses less, over all sizes and epsilons of the study."""
    table = stored("comparison").pivot_table(index=["model", "n", "epsilon"], columns="release", values="relative")
    for release in ("sample", "plug-in", "bayes", "bayes, one draw"):
        assert (table["laplace"] < table[release]).all()
    assert np.isfinite(table["laplace"]).all()
