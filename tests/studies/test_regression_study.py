"""The studies of chapter 4: their worlds are what they say, their tables are whole, and parts repeat the whole."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from loading import BOOK, load_study

from dpbook import diagnostics
from dpbook.studies import load

study = load_study("regression")
simulate, infer_world, output_perturbation = study.simulate, study.infer_world, study.output_perturbation


def table(name: str) -> pd.DataFrame:
    return load(BOOK / "regression" / "results" / f"{name}.csv")


@pytest.fixture(scope="module")
def calibration():
    return table("calibration")


# The worlds


def test_a_world_follows_its_prior():
    """Means of 4,000 draws within 4 standard errors: a false alarm with probability below 1e-3."""
    world = simulate(5, 1.0, trials=4000, rng=np.random.default_rng(1))
    assert world.theta.mean() == pytest.approx(0, abs=4 / np.sqrt(8000))
    assert world.theta.var() == pytest.approx(1.0, rel=0.15)
    assert world.sigma2.mean() == pytest.approx(0.5 / 19, rel=0.03)


def test_the_sums_are_those_of_records_on_the_lines():
    """At n = 20,000 the regression of the sums is the truth, within five of its standard errors of about 0.008."""
    world = simulate(20_000, 1.0, trials=3, rng=np.random.default_rng(2))
    sx, sy, sxx, sxy, _ = world.sums.T
    n = world.releases[0].n
    slope = (sxy - sx * sy / n) / (sxx - sx**2 / n)
    assert slope == pytest.approx(world.theta[:, 1], abs=0.05)
    assert sy / n - slope * sx / n == pytest.approx(world.theta[:, 0], abs=0.02)


def test_the_noise_has_the_exact_sensitivity_over_epsilon():
    """Standard deviation of 10,000 noises within 5 %, about four standard errors."""
    world = simulate(3, 2.0, trials=2000, rng=np.random.default_rng(3))
    assert (world.noisy - world.sums).std() == pytest.approx(np.sqrt(2) * 16 / 3 / 2, rel=0.05)
    assert world.with_moments[0].scale["sums"] == pytest.approx(7.375 / 2)
    assert world.split[0].scale["sums"] == pytest.approx(2 * 16 / 3 / 2)


def test_clipping_keeps_every_statistic_within_n():
    world = simulate(50, 1.0, trials=200, rng=np.random.default_rng(4), design="clipped")
    assert np.abs(world.sums).max() <= 50


def test_a_world_of_several_covariates_has_their_statistics():
    assert simulate(10, 1.0, trials=2, rng=np.random.default_rng(5), d=3).noisy.shape == (2, 14)


# Output perturbation


def test_no_neighbour_moves_the_ridge_estimate_by_more_than_its_sensitivity():
    rng = np.random.default_rng(6)
    ridge, radius, q = 3.0, 1.0, 2
    bound = 2 * np.sqrt(q) * (1 + np.sqrt(q) * radius) / ridge
    largest = 0.0
    for _ in range(300):
        x, y = rng.choice([-1, -0.2, 1], size=(2, 8)), rng.choice([-1.0, 1.0], size=(2, 8))
        x[1, 1:], y[1, 1:] = x[0, 1:], y[0, 1:]
        w = np.stack([np.ones_like(x), x], axis=-1)
        found = study.ball_ridge(np.swapaxes(w, 1, 2) @ w, np.einsum("tni,tn->ti", w, y), ridge, radius)
        largest = max(largest, float(np.linalg.norm(found[0] - found[1])))
    assert 0.05 * bound < largest <= bound


def test_the_ridge_estimate_in_a_ball_is_the_constrained_minimum():
    from scipy import optimize

    gram, cross = np.array([[[5.0, 1.0], [1.0, 2.0]]]), np.array([[6.0, -3.0]])
    found = study.ball_ridge(gram, cross, 0.5, 1.0)[0]
    best = optimize.minimize(
        lambda t: 0.5 * t @ gram[0] @ t - cross[0] @ t + 0.25 * t @ t,
        [0.1, 0.1],
        constraints={"type": "ineq", "fun": lambda t: 1 - t @ t},
    )
    assert found == pytest.approx(best.x, abs=1e-4)


def test_output_perturbation_stays_in_the_ball_and_nears_the_truth_without_noise():
    world = simulate(5000, 1.0, trials=50, rng=np.random.default_rng(7), design="clipped")
    loud = output_perturbation(world, 0.01, ridge=1.0, radius=1.0, rng=np.random.default_rng(8))
    quiet = output_perturbation(world, 1e9, ridge=0.1, radius=1.0, rng=np.random.default_rng(8))
    assert np.linalg.norm(loud, axis=1).max() <= 1 + 1e-12
    assert np.median(np.abs(quiet[:, 1] - world.theta[:, 1])) < 0.05


# The committed tables


@pytest.mark.parametrize("name", study.STUDIES)
def test_the_committed_table_is_of_full_size_and_of_this_seed(name):
    made = table(name).attrs
    assert (made["trials"], made["seed"]) == (study.STUDIES[name].trials, study.STUDIES[name].seed)


def test_the_committed_tables_have_a_row_for_every_cell():
    for name in ("calibration", "clipped", "ranks", "printed", "moment_noise", "mixing"):
        found = set(table(name)[["n", "epsilon", "method"]].itertuples(index=False, name=None))
        assert found == set(study.STUDIES[name].cells), name
    assert set(table("runtime")[["n", "method"]].itertuples(index=False, name=None)) == set(
        study.STUDIES["runtime"].cells
    )
    assert [(d,) for d in table("dimension")["d"]] == study.STUDIES["dimension"].cells


def test_the_grid_is_whole(calibration):
    expected = len(study.METHODS) * len(study.SIZES) * len(study.EPSILONS) * len(study.QUANTITIES)
    assert len(calibration) == expected
    assert not calibration.drop(columns=["ess"]).isna().any(axis=None)


def test_the_default_method_is_calibrated_on_the_whole_grid_and_the_naive_one_is_not(calibration):
    ours = calibration.query("method == 'collapsed'")
    naive = calibration.query("method == 'naive'")
    assert not (ours["p_study"] < 0.05).any()
    assert ours["ks"].max() < 0.1  # the threshold of the reference runs
    assert ours["coverage"].between(0.9, 0.99).all()
    assert (naive.query("epsilon <= 1 and n <= 1000")["p_study"] < 0.05).all()


def test_the_non_private_posterior_is_calibrated(calibration):
    assert not (calibration.query("method == 'non-private'")["p_study"] < 0.05).any()


def test_a_cell_run_again_gives_the_committed_row(calibration):
    """To the digits that are stored: the same generator, whichever other cells are run."""
    fresh = study.STUDIES["calibration"](cells=[(100, 1.0, "naive")])
    old = calibration.query("method == 'naive' and n == 100 and epsilon == 1").reset_index(drop=True)
    for column in ("ks", "coverage", "sd", "rmse", "mmd"):
        assert fresh[column].to_numpy() == pytest.approx(old[column].to_numpy(), rel=2e-3)


def test_a_reduced_run_of_the_collapsed_sampler_agrees_with_the_committed_grid(calibration):
    """80 other trials: the mean posterior sd within 15 %, coverage within four standard errors."""
    world = simulate(100, 1.0, trials=80, rng=np.random.default_rng(9))
    drawn = infer_world(world, "collapsed", rng=np.random.default_rng(10))
    old = calibration.query("method == 'collapsed' and n == 100 and epsilon == 1").set_index("quantity")
    slopes = drawn.theta[..., 1].reshape(80, -1)
    low, high = np.quantile(slopes, [0.025, 0.975], axis=1)
    assert slopes.std(axis=1).mean() == pytest.approx(old.loc["slope", "sd"], rel=0.15)
    covered = np.mean((low <= world.theta[:, 1]) & (world.theta[:, 1] <= high))
    assert covered == pytest.approx(old.loc["slope", "coverage"], abs=4 * np.sqrt(0.05 * 0.95 / 80))


def test_collapsed_and_exact_posteriors_agree_at_a_hundred_records_and_more():
    rows = table("gold_standard").query("n >= 100")
    assert (np.abs(rows["sd_ratio"] - 1) < 0.1).all()
    assert (np.abs(rows["difference"]) < 0.15).all()


def test_the_collapsed_sampler_mixes_where_the_printed_one_does_not():
    speed = table("mixing").set_index(["n", "epsilon", "method"])["ess_per_second"].unstack()
    assert (speed["collapsed"] > speed["gibbs-update"]).loc[[(100, 0.1), (1000, 0.1), (1000, 1.0)]].all()


def test_noise_aware_point_estimates_are_never_worse_than_naive_ones_by_more_than_a_tenth():
    rmse = table("point_estimates").set_index(["n", "epsilon", "method"])["rmse"].unstack()
    assert (rmse["collapsed"] < 1.1 * rmse["naive"]).all()
    assert (rmse["collapsed"] < 1.05 * rmse["prior"]).all()


def test_ranks_are_those_of_the_grid(calibration):
    ranks = table("ranks")
    grid = calibration.set_index(["method", "n", "epsilon", "quantity"])["ks"]
    for cell, part in ranks.groupby(["method", "n", "epsilon"]):
        for quantity in study.QUANTITIES:
            found = diagnostics._ks_distance(part[quantity].to_numpy())
            assert found == pytest.approx(grid[(*cell, quantity)], abs=2e-3)


# Parts of studies that are too long for a whole


@pytest.mark.parametrize(
    ("name", "cell", "rows"),
    [
        ("printed", (100, 1.0, "printed covariance"), 3),
        ("moment_noise", (100, 1.0, "joint, accounted for"), 3),
        ("moment_noise", (100, 1.0, "halves"), 3),
        ("clipped", (100, 1.0, "collapsed"), 3),
    ],
)
def test_a_few_trials_of_a_cell_are_judged(name, cell, rows, monkeypatch):
    monkeypatch.setattr(study, "_BURN_IN", 20)
    monkeypatch.setattr(study, "_THIN", 1)
    found = study.STUDIES[name].measure(*cell, trials=12, seed=1)
    assert len(found) == rows
    assert found["coverage"].between(0, 1).all()
    assert list(table(name).drop(columns="p_study").columns) == list(found.columns)


def test_timed_cells_have_the_columns_of_their_tables():
    found = {
        "mixing": study.mixing(100, 1.0, "gibbs-prior", trials=3, seed=1, sweeps=200),
        "runtime": study.runtime(10, "naive", trials=2, seed=1),
        "dimension": study.dimension(2, trials=1, seed=1),
        "gold_standard": study.gold_standard(10, 1.0, trials=2, seed=1),
        "point_estimates": study.point_estimates(30, 1.0, trials=10, seed=1),
    }
    for name, rows in found.items():
        assert list(rows.columns) == list(table(name).columns), name
    assert found["dimension"]["statistics"].tolist() == [9]
    assert (found["mixing"]["ess_per_second"] > 0).all()


def test_a_study_s_method_is_that_of_the_package_on_the_same_releases():
    """Trial by trial, not in one batch, naive draws have the law of the study's: three KS tests at the 1e-4 level."""
    from scipy import stats

    from dpbook import regression

    world = simulate(100, 1.0, trials=3, rng=np.random.default_rng(1))
    drawn = infer_world(world, "naive", rng=np.random.default_rng(2), draws=4000)
    for trial, release in enumerate(world.releases):
        alone = regression.infer(release, world.prior, method="naive", rng=np.random.default_rng(3))
        both = drawn.theta[trial, ..., 1].ravel(), alone.draws["theta"][..., 1].ravel()
        assert stats.ks_2samp(*both).pvalue > 1e-4
