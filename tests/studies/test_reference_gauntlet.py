"""The gauntlet: its cells are drawn as it says, its rivals are what they claim, its table is whole and parts repeat it.

A repeated cell's coverage may differ from the stored one by four standard errors of a difference of proportions: a
false alarm with probability below 1e-3 for all repeated rows together; seeds are fixed.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from loading import BOOK, load_study
from scipy import stats

from dpbook import regression
from dpbook.diagnostics import holm
from dpbook.studies import load

study = load_study("reference", "study_gauntlet")
problems = load_study("reference", "gauntlet_problems")
rivals = load_study("reference", "gauntlet_rivals")
CELLS = study.CELLS


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return load(BOOK / "reference" / "results" / "gauntlet.csv")


# The cells


def test_sixty_cells_are_drawn_and_the_draw_repeats() -> None:
    assert len(CELLS) == 60
    assert problems.draw_cells() == CELLS


@pytest.mark.parametrize("kind", list(problems.COUNT))
def test_within_a_kind_every_level_of_every_factor_occurs_equally_often_up_to_one(kind: str) -> None:
    among = [cell for cell in CELLS if cell.kind == kind]
    sizes = problems.LARGE if kind == "aggregate" else problems.SIZES
    levels = {
        "problem": problems.PROBLEMS[kind],
        "bounds": problems.SETTINGS,
        "epsilon": problems.EPSILONS,
        "n": sizes,
    }
    for factor, wanted in levels.items():
        counted = Counter(getattr(cell, factor) for cell in among)
        often = [counted[level] for level in wanted]
        assert sum(often) == len(among)
        assert max(often) - min(often) <= 1


@pytest.mark.parametrize(("file", "column"), list(problems.BOUNDS))
def test_right_bounds_follow_the_rule_and_tight_ones_clip(file: str, column: str) -> None:
    values = problems.load(file)[column].to_numpy(dtype=float)
    right, tight = problems.BOUNDS[file, column]
    low, high = np.quantile(values, [0.005, 0.995])
    step = 10.0 ** math.floor(math.log10(high - low))
    assert right == pytest.approx((math.floor(low / step) * step, math.ceil(high / step) * step))
    share = np.mean((values < tight[0]) | (values > tight[1]))
    assert share <= 0.25
    assert share >= 0.05 or len(np.unique(values)) <= 10


def test_wider_bounds_share_their_middle_with_the_right_ones() -> None:
    assert problems.bounds_of("engel", "income", "x2") == (-1500, 4500)
    assert problems.bounds_of("engel", "income", "x5") == (-6000, 9000)


# The rivals


def without_noise(n: int) -> tuple[np.ndarray, list[regression.Layout], list[object], object]:
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 4, size=(n, 2))
    rows = np.column_stack([x, 1 + x @ [0.5, -0.25] + 0.3 * rng.normal(size=n)])
    ends = [(0.0, 4.0), (0.0, 4.0), (-3.0, 6.0)]
    made = regression.release(rows[:, :2], rows[:, 2], x_bounds=ends[:2], y_bounds=ends[2], epsilon=1e9, rng=rng)
    return rows, regression.Layout(2, True), [made], rivals.Box(*np.array(ends).T)


def test_without_noise_the_naive_interval_is_that_of_least_squares() -> None:
    rows, layout, releases, box = without_noise(500)
    for ours, classical in zip(rivals.naive(releases, layout, box), rivals.least_squares(rows), strict=True):
        np.testing.assert_allclose(ours[0], classical, rtol=1e-5, atol=1e-7)


def test_without_noise_the_bootstrap_is_near_the_classical_interval() -> None:
    """Ends from 200 replicates are within half a standard error of the classical ones."""
    rows, layout, releases, box = without_noise(500)
    found = rivals.bootstrap(releases, layout, box, np.random.default_rng(1))
    _, low, high = rivals.least_squares(rows)
    error = (high - low) / 4
    assert (np.abs(found.low[0] - low) < 0.5 * error).all()
    assert (np.abs(found.high[0] - high) < 0.5 * error).all()


def test_with_much_budget_adassp_is_least_squares_and_with_little_it_shrinks() -> None:
    rows, _, _, box = without_noise(500)
    one = np.column_stack([np.ones(500), box.inside(rows)])
    sums, rng = (one.T @ one)[None], np.random.default_rng(2)
    point, found = rivals.adassp(sums, 500, 1e7, box, rng)
    classical = rivals.least_squares(rows)[0]
    np.testing.assert_allclose(point[0], classical, atol=1e-3)
    np.testing.assert_allclose(found.point[0], classical, atol=1e-3)
    little = np.mean([rivals._adassp(sums, 1.0, 3, rng)[0][0] for _ in range(200)], axis=0)
    exact = np.linalg.solve(sums[0, :3, :3], sums[0, :3, 3])
    assert np.linalg.norm(little) < 0.8 * np.linalg.norm(exact)


def test_simulated_sums_have_the_moments_of_normal_records() -> None:
    """Means over 200 replicates of 50 copies are within 4 standard errors: a false alarm below 1e-3."""
    second = np.array([[1.0, 0.2, -0.1], [0.2, 0.3, 0.1], [-0.1, 0.1, 0.5]])
    drawn = rivals.normal_sums(np.tile(second, (50, 1, 1)), 40, np.random.default_rng(3)).reshape(-1, 3, 3) / 40
    error = drawn.std(axis=0) / math.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - second) <= 4 * error + 1e-12).all()


# The table


def test_the_table_has_every_cell_and_every_parameter_once(table: pd.DataFrame) -> None:
    assert sorted(table["cell"].unique()) == list(range(60))
    assert not table.duplicated(["cell", "parameter"]).any()
    for number, rows in table.groupby("cell"):
        cell = CELLS[number]
        assert (rows["problem"] == cell.problem.label).all()
        assert (rows["epsilon"] == cell.epsilon).all()
        assert (rows["n"] == cell.n).all()
        assert (rows["bounds"] == cell.bounds).all()


def test_the_verdicts_follow_from_the_counts(table: pd.DataFrame) -> None:
    floor = np.minimum(0.92, table["nonprivate"] - 0.03)
    np.testing.assert_allclose(table["floor"], floor, rtol=1e-3)
    p = np.where(table["silent"] > 0, stats.binom.cdf(table["silent_hits"], table["silent"], floor.clip(0, 1)), 1.0)
    np.testing.assert_allclose(table["p"], p, rtol=5e-3, atol=1e-12)
    np.testing.assert_allclose(table["p_holm"], holm(p), rtol=1e-2, atol=1e-9)
    assert (table["silent_hits"] <= table["silent"]).all()
    np.testing.assert_allclose(table["silent"], table["trials"] * (1 - table["warned"]), atol=0.51)


@pytest.mark.parametrize("number", [30, 34, 47, 50, 57, 9])
def test_a_cell_repeats(table: pd.DataFrame, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "DRAWS", 400)
    again = study.gauntlet(number, trials=40, seed=7).set_index("parameter")
    made = again["trials"]
    stored = table[table["cell"] == number].set_index("parameter")
    assert set(again.index) == set(stored.index)
    for column in ("coverage", "nonprivate"):
        pooled = (stored[column] * stored["trials"] + again[column] * made) / (stored["trials"] + made)
        pooled = pooled.clip(0.02, 0.98)
        error = np.sqrt(pooled * (1 - pooled) * (1 / made + 1 / stored["trials"]))
        assert (np.abs(again[column] - stored[column]) <= 4 * error).all()


# What the page says


def test_the_cells_that_fail_are_those_that_the_page_explains(table: pd.DataFrame) -> None:
    assert set(table.loc[table["p_holm"] < 0.05, "cell"]) == {0, 4, 5, 10, 41, 49, 59}


def test_a_mean_that_assumes_little_holds_in_every_cell(table: pd.DataFrame) -> None:
    means = table[table["kind"] == "mean"]
    assert len(means) == 12
    assert (means["coverage"] >= means["nonprivate"] - 0.05).all()


def test_the_naive_interval_fails_where_the_default_holds(table: pd.DataFrame) -> None:
    lines = table[(table["kind"] == "regression") & (table["p_holm"] == 1)]
    assert lines["coverage"].median() > 0.9
    assert lines["naive"].median() < 0.5
