"""The studies of chapter 4: their worlds are what they say, their tables are whole, and parts repeat the whole."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from dpbook.experiments import regression_study as study
from dpbook.experiments.regression_study import infer_world, load, output_perturbation, simulate

AWARE = ("gibbs-noisy", "gibbs-prior", "gibbs-update", "collapsed")


@pytest.fixture(scope="module")
def calibration():
    return load("calibration")


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
    n = world.problem.n
    slope = (sxy - sx * sy / n) / (sxx - sx**2 / n)
    assert slope == pytest.approx(world.theta[:, 1], abs=0.05)
    assert sy / n - slope * sx / n == pytest.approx(world.theta[:, 0], abs=0.02)


def test_the_noise_has_the_exact_sensitivity_over_epsilon():
    """Standard deviation of 10,000 noises within 5 %, about four standard errors."""
    world = simulate(3, 2.0, trials=2000, rng=np.random.default_rng(3))
    assert (world.problem.noisy - world.sums).std() == pytest.approx(np.sqrt(2) * 16 / 3 / 2, rel=0.05)
    assert world.with_moments.scale[0] == pytest.approx(7.375 / 2)
    assert world.split.scale[0] == pytest.approx(2 * 16 / 3 / 2)


def test_clipping_keeps_every_statistic_within_n():
    world = simulate(50, 1.0, trials=200, rng=np.random.default_rng(4), design="clipped")
    assert np.abs(world.sums).max() <= 50


def test_a_world_of_several_covariates_has_their_statistics():
    assert simulate(10, 1.0, trials=2, rng=np.random.default_rng(5), d=3).problem.noisy.shape == (2, 14)


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
        found = study._ball_ridge(np.swapaxes(w, 1, 2) @ w, np.einsum("tni,tn->ti", w, y), ridge, radius)
        largest = max(largest, float(np.linalg.norm(found[0] - found[1])))
    assert 0.05 * bound < largest <= bound


def test_the_ridge_estimate_in_a_ball_is_the_constrained_minimum():
    from scipy import optimize

    gram, cross = np.array([[[5.0, 1.0], [1.0, 2.0]]]), np.array([[6.0, -3.0]])
    found = study._ball_ridge(gram, cross, 0.5, 1.0)[0]
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
    table = load(name)
    assert table.attrs["trials"] == inspect.signature(study.STUDIES[name]).parameters["trials"].default
    assert table.attrs["seed"] == study.SEED
    assert len(table) > 0


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
    fresh = study.calibration(sizes=[100], epsilons=[1.0], methods=["naive"])
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
    table = load("gold_standard").query("n >= 100")
    assert (np.abs(table["sd_ratio"] - 1) < 0.1).all()
    assert (np.abs(table["difference"]) < 0.15).all()


def test_the_collapsed_sampler_mixes_where_the_printed_one_does_not():
    table = load("mixing").set_index(["n", "epsilon", "method"])["ess_per_second"].unstack()
    assert (table["collapsed"] > table["gibbs-update"]).loc[[(100, 0.1), (1000, 0.1), (1000, 1.0)]].all()


def test_noise_aware_point_estimates_are_never_worse_than_naive_ones_by_more_than_a_tenth():
    table = load("point_estimates").set_index(["n", "epsilon", "method"])["rmse"].unstack()
    assert (table["collapsed"] < 1.1 * table["naive"]).all()
    assert (table["collapsed"] < 1.05 * table["prior"]).all()


def test_ranks_are_those_of_the_grid(calibration):
    ranks = load("ranks")
    grid = calibration.set_index(["method", "n", "epsilon", "quantity"])["ks"]
    for cell, part in ranks.groupby(["method", "n", "epsilon"]):
        for quantity in study.QUANTITIES:
            found = study.diagnostics._ks_distance(part[quantity].to_numpy())
            assert found == pytest.approx(grid[(*cell, quantity)], abs=2e-3)


@pytest.mark.parametrize(
    ("call", "because"),
    [
        (lambda: simulate(0, 1.0, trials=1, rng=np.random.default_rng(1)), "n must"),
        (lambda: simulate(5, -1.0, trials=1, rng=np.random.default_rng(1)), "epsilon"),
        (lambda: simulate(5, 1.0, trials=1, rng=np.random.default_rng(1), design="wild"), "design"),
        (lambda: load("prayer"), "name"),
    ],
)
def test_wrong_arguments_are_named(call, because):
    with pytest.raises(ValueError, match=because):
        call()
