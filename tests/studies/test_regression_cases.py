"""The cases of chapter 4: simulator, baseline and scores against direct computations, and the committed tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from loading import BOOK, load_study
from scipy import optimize

from dpbook import regression
from dpbook.studies import load

cases = load_study("regression", "study_cases")
observed_sensitivity, simulate_tracts = cases.observed_sensitivity, cases.simulate_tracts
tract_estimates = cases.tract_estimates


def table(name: str) -> pd.DataFrame:
    return load(BOOK / "regression" / "results" / f"{name}.csv")


@pytest.fixture(scope="module")
def tracts():
    return simulate_tracts(400, rng=np.random.default_rng(1))


# Cirrhosis


def test_the_sources_prior_is_the_same_belief_in_the_data_s_units():
    """Posterior of scaled data under the printed prior, mapped back, equals ours; slope first in the source."""
    states = cases.load_cirrhosis()
    x, y = states["wine_per_capita"].to_numpy(float)[:, None], states["cirrhosis_death_rate"].to_numpy(float)
    setting = cases.cirrhosis_design("source", x, y)
    ours = regression.infer_nonprivate(x, y, setting.prior, draws=4000, rng=np.random.default_rng(1))
    scaled_x, scaled_y = (x - x.min()) / np.ptp(x), (y - y.min()) / np.ptp(y)
    printed = regression.NormalInverseGamma(mean=[0, 1], precision=0.25, shape=20, rate=0.5)
    theirs = regression.infer_nonprivate(scaled_x, scaled_y, printed, draws=4000, rng=np.random.default_rng(2))
    slope = theirs.mean("theta")[1] * np.ptp(y) / np.ptp(x)
    assert ours.mean("theta")[1] == pytest.approx(slope, rel=0.02)
    assert ours.mean("sigma2") == pytest.approx(theirs.mean("sigma2") * np.ptp(y) ** 2, rel=0.02)


def test_public_bounds_hold_the_records():
    states = cases.load_cirrhosis()
    for names in cases.DRINKS.values():
        assert states[list(names)].to_numpy().max() <= cases._RATE[1]


# Neighbourhoods


def test_the_state_has_the_sizes_and_ranks_it_documents(tracts):
    assert tracts.size.min() >= 20
    assert tracts.size.max() <= 446
    assert 70 < np.median(tracts.size) < 90
    ranks = np.concatenate([*tracts.parent, *tracts.child])
    assert ranks.min() >= 0
    assert ranks.max() <= 1


def test_the_true_mean_rank_is_that_of_many_children(tracts):
    """200,000 simulated children of three tracts: within 0.003, five standard errors."""
    rng = np.random.default_rng(2)
    few = cases.Tracts(tracts.size[:3], tracts.theta[:3], tracts.parent[:3], tracts.child[:3])
    for mean, (intercept, slope) in zip(cases.mean_rank(few), few.theta, strict=True):
        drawn = np.clip(intercept + slope * 0.25 + rng.normal(0, 0.25, 200_000), 0, 1).mean()
        assert mean == pytest.approx(drawn, abs=0.003)


def test_the_observed_sensitivity_is_what_refitting_finds(tracts):
    x, y = tracts.parent[0], tracts.child[0]
    before = np.polyval(np.polyfit(x, y, 1), 0.25)
    refitted = [
        abs(np.polyval(np.polyfit(np.append(x, new), np.append(y, height), 1), 0.25) - before)
        for new in np.linspace(0, 1, 201)
        for height in (0.0, 1.0)
    ]
    assert observed_sensitivity(x, y) == pytest.approx(max(refitted), rel=1e-9)
    assert observed_sensitivity([0.5, 0.5], [0.1, 0.2]) == np.inf


def test_a_replaced_record_can_move_the_baseline_s_estimate_far_beyond_what_its_noise_was_scaled_for():
    """What its guarantee lacks: on a tract of equal parents' ranks the prediction moves by more than all noise."""

    def predicted(x, y):
        return np.polyval(np.polyfit(x, y, 1), 0.25)

    x, y = np.r_[np.full(19, 0.8), 0.82], np.full(20, 0.5)
    scale = observed_sensitivity(np.linspace(0, 1, 20), y)  # what an ordinary tract suggests
    worst = optimize.brute(
        lambda record: -abs(predicted(np.r_[x[:-1], record[0]], np.r_[y[:-1], record[1]]) - predicted(x, y)),
        [(0.81, 0.9), (0, 1)],
        Ns=8,
        full_output=True,
        finish=None,
    )
    assert -worst[1] > 10 * scale


def test_deciles_are_tenths_of_the_ranking():
    tenth = cases._decile(np.arange(100.0)[::-1])
    assert tenth[0] == 9
    assert tenth[-1] == 0
    assert (np.bincount(tenth) == 10).all()


def test_with_a_large_epsilon_the_private_estimates_are_the_non_private_ones(tracts):
    few = slice(0, 30)
    parent, child = tracts.parent[few], tracts.child[few]
    open_ones = tract_estimates(parent, child, "non-private", epsilon=1.0, rng=np.random.default_rng(3))
    private = tract_estimates(parent, child, "collapsed", epsilon=1e5, rng=np.random.default_rng(4))
    assert np.abs(private.point - open_ones.point).max() < 0.3 * open_ones.sd.max()
    assert np.median(private.sd / open_ones.sd) == pytest.approx(1, abs=0.15)


# The committed tables


@pytest.mark.parametrize("name", cases.STUDIES)
def test_the_committed_table_is_of_full_size_and_of_this_seed(name):
    made = table(name).attrs
    assert (made["trials"], made["seed"]) == (cases.STUDIES[name].trials, cases.STUDIES[name].seed)


def test_the_committed_tables_have_a_row_for_every_cell():
    keys = {
        "cirrhosis": ["design", "drink", "epsilon", "method"],
        "neighbourhoods": ["epsilon", "method"],
        "neighbourhood_cells": ["epsilon", "method"],
        "earnings": ["n", "epsilon", "method"],
    }
    for name, columns in keys.items():
        found = list(dict.fromkeys(table(name)[columns].itertuples(index=False, name=None)))
        assert found == list(cases.STUDIES[name].cells), name


def test_the_neighbourhood_intervals_cover_the_truth_and_the_naive_ones_do_not():
    rows = table("neighbourhoods").query("size == 'all'").set_index(["method", "epsilon"])
    ours = rows.loc["collapsed"]
    # Tracts differ less than the prior allows: intervals that lean on it, at a small epsilon, cover a little too much.
    assert ours["covers_truth_90"].between(0.88, 0.97).all()
    assert ours["covers_truth_50"].between(0.48, 0.62).all()
    assert ours["covers_truth_90"].is_monotonic_decreasing
    assert (rows.loc["naive"]["covers_truth_90"] < ours["covers_truth_90"]).all()
    assert (ours["error_truth"] < rows.loc["naive"]["error_truth"]).all()
    assert (rows["tracts"] == 3108).all()


def test_the_tracts_behind_the_ranking_are_those_of_the_grid():
    tracts = table("deciles")
    grid = table("neighbourhoods").query("size == 'all' and epsilon == 4").set_index("method")
    for method in ("naive", "output", "collapsed"):
        error = np.abs(tracts[method] - tracts["non-private"]).mean()
        assert error == pytest.approx(grid.loc[method, "error_nonprivate"], rel=0.01)


def test_privacy_is_nearly_free_for_sixty_thousand_workers_at_a_large_epsilon():
    rows = table("earnings").query("method == 'collapsed' and n == 61395").set_index(["coefficient", "epsilon"])
    assert rows.loc[("education", 10.0), "sd_ratio"] < 1.2
    assert rows.loc[("education", 0.1), "sd_ratio"] > 5
    assert (rows["coverage"] >= 0.7).all()  # 20 releases a row: below 14 hits has probability 1e-4 at 95 %


def test_a_cirrhosis_cell_run_again_gives_the_committed_row():
    old = table("cirrhosis").query("design == 'public' and drink == 'wine' and epsilon == 1 and method == 'naive'")
    fresh = cases.STUDIES["cirrhosis"](cells=[("public", "wine", 1.0, "naive")])
    for column in ("coverage_50", "coverage_90", "width_90", "error"):
        assert fresh[column].iloc[0] == pytest.approx(old[column].iloc[0], rel=2e-3)


def test_a_few_tracts_and_few_releases_have_the_columns_of_their_tables():
    found = {
        "neighbourhoods": cases.neighbourhoods(4.0, "naive", trials=60, seed=1),
        "neighbourhood_cells": cases.neighbourhood_cells(4.0, "naive", trials=1, seed=1),
        "earnings": cases.earnings(1000, 10.0, "naive", trials=2, seed=1),
        "deciles": cases.deciles(trials=30, seed=1),
    }
    for name, rows in found.items():
        assert list(rows.columns) == list(table(name).columns), name
    assert found["neighbourhoods"]["size"].tolist() == ["all", "20-49", "50-99", "100-199", "200-446"]
    assert found["earnings"]["coefficient"].tolist() == ["education", "age", "woman"]
