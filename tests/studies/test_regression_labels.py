"""The study of labels: the same workers in both codings, and the committed table."""

from __future__ import annotations

import numpy as np
import pytest
from loading import BOOK, load_study

from dpbook.regression.planning import designed
from dpbook.studies import load

labels = load_study("regression", "study_labels")


def test_both_readings_are_of_the_same_regression():
    """The columns of the box are those that the formula makes, in the order of its coefficients."""
    table = labels.workers().iloc[:500]
    design = designed(labels.SCHEMA, None, labels.FORMULA, None, None)
    x, y = labels.as_numbers(table)
    assert design.labels == labels.NAMES
    assert design.covariates(table) == pytest.approx(x)
    assert design.outcome.values(table) == pytest.approx(np.asarray(y))
    rng = np.random.default_rng(1)
    by_cell, box = (labels.released(reading, table, 1.0, rng) for reading in ("by cell", "box"))
    assert by_cell.sensitivity["sums"] == pytest.approx(8.0)
    assert box.sensitivity["sums"] == pytest.approx(35.4375)


def test_the_committed_intervals_hold_and_are_narrower_by_cell():
    """60 trials: a 95 % interval that holds covers less than 0.85 with a probability of 0.002."""
    table = load(BOOK / "regression" / "results" / "labels.csv").set_index(["reading", "coefficient"])
    assert table.loc["by cell", "coverage"].min() >= 0.85
    assert (table.loc["box", "width"] > 1.5 * table.loc["by cell", "width"]).all()
