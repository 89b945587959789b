"""The studies of chapter 3: what they simulate is what the package releases, and the committed tables can be repeated.

Statistical tests use fixed seeds; each states what it would take for a right program to fail them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from loading import BOOK, load_study
from scipy import stats

from dpbook import Release, expfam, studies

study, worlds, printed = (load_study("exponential-families", f"study{part}") for part in ("", "_worlds", "_printed"))
MODELS, STUDIES, posterior_draws, simulate = study.MODELS, study.STUDIES, study.posterior_draws, study.simulate
NOISE_AWARE = ("exact", "collapsed", "gibbs")


def load(name: str) -> pd.DataFrame:
    return studies.load(BOOK / "exponential-families" / "results" / f"{name}.csv")


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def treatments(name: str) -> tuple[str, ...]:
    return ("all",) if MODELS[name].family.bounded else ("clip", "redact")


def row(table: pd.DataFrame, **where: object) -> pd.Series:
    chosen = table
    for column, value in where.items():
        chosen = chosen[chosen[column] == value]
    assert len(chosen) == 1, where
    return chosen.iloc[0]


# What is simulated is what would be released --------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_simulated_sums_and_scales_are_those_of_a_release(name: str) -> None:
    """At epsilon = 10⁹ noise is negligible, so values agree to the fixed-point grid's 2⁻³² a record."""
    world = simulate(name, 25, 1e9, trials=4, rng=rng_of(1))
    for outside in treatments(name):
        how = "clip" if outside == "all" else outside
        for x, noisy in zip(world.records, world.noisy[outside], strict=True):
            made = expfam.release(x, MODELS[name].family, epsilon=1e9, outside=how, rng=rng_of(2))
            assert made["sum"] == pytest.approx(noisy, abs=1e-6)
            assert made.scale["sum"] == pytest.approx(world.scale[outside], rel=1e-6)


@pytest.mark.parametrize("name", ["binomial", "multinomial", "normal"])
def test_simulated_noise_has_the_law_of_a_release(name: str) -> None:
    """Two-sample Kolmogorov–Smirnov on 600 noises a side, in units of the scale; false alarm 0.001."""
    trials = 600
    world = simulate(name, 3, 0.5, trials=trials, rng=rng_of(3))
    exact = simulate(name, 3, 1e12, trials=trials, rng=rng_of(3))
    outside = treatments(name)[0]
    assert np.array_equal(world.records, exact.records)
    simulated = (world.noisy[outside] - exact.noisy[outside])[:, 0]
    seeded = rng_of(4)
    released = [
        expfam.release(x, MODELS[name].family, epsilon=0.5, rng=seeded)["sum"][0] - total
        for x, total in zip(world.records, exact.noisy[outside][:, 0], strict=True)
    ]
    assert stats.ks_2samp(simulated, released).pvalue > 0.001


def test_a_wrapped_value_is_read_as_a_release_of_the_same_numbers() -> None:
    world = simulate("exponential", 40, 1.0, trials=2, rng=rng_of(5))
    for outside in ("clip", "redact"):
        first = next(iter(worlds.releases_of(world, outside)))
        assert isinstance(first, Release)
        made = expfam.release(
            world.records[0], MODELS["exponential"].family, epsilon=1.0, outside=outside, rng=rng_of(6)
        )
        assert first.settings == made.settings
        assert first.bounds == made.bounds
        assert first.sensitivity["sum"] == pytest.approx(made.sensitivity["sum"], rel=1e-6)
        assert first["sum"] == world.noisy[outside][0]


@pytest.mark.parametrize(("name", "outside"), [("exponential", "redact"), ("poisson", "clip"), ("binomial", "all")])
@pytest.mark.parametrize(("n", "epsilon"), [(10, 1.0), (1000, 0.1)])
def test_collapsed_draws_on_one_grid_follow_the_package_posterior(
    name: str, outside: str, n: int, epsilon: float
) -> None:
    """Each draw through its posterior's own cdf: 4 x 2,500 uniforms, Kolmogorov–Smirnov, false alarm 0.001 a case."""
    world = simulate(name, n, epsilon, trials=4, rng=rng_of(7))
    drawn, independent = posterior_draws(world, "collapsed", outside, draws=2500, rng=rng_of(8))
    assert independent == 2500
    releases = worlds.releases_of(world, outside)
    densities = [expfam.posterior_density(each, world.model.prior, method="collapsed") for each in releases]
    uniform = np.concatenate([density.cdf(each) for density, each in zip(densities, drawn, strict=True)])
    assert stats.kstest(uniform, "uniform").pvalue > 0.001
    for density, each in zip(densities, drawn, strict=True):  # five standard errors of a sd, which is 1.4 % of it
        assert each.std() == pytest.approx(density.sd, rel=0.09)


def test_simulated_posterior_samples_have_the_law_of_the_release() -> None:
    """Two-sample Kolmogorov–Smirnov, 2,000 draws a side of one data set; false alarm 0.001."""
    world = simulate("binomial", 300, 60.0, trials=20, rng=rng_of(9))  # a temperature of 7: data and heat both matter
    same = world._replace(sufficient=np.repeat(world.sufficient[:1], 20, axis=0))
    drawn, count = posterior_draws(same, "posterior samples", "all", rng=rng_of(10))
    x = world.records[0]
    seeded = rng_of(11)
    made = [
        expfam.release_posterior_samples(
            x, expfam.Binomial(), expfam.Beta(10, 10), epsilon=60.0, count=count, support=(0.1, 0.9), rng=seeded
        )
        for _ in range(20)
    ]
    released = np.concatenate([each["theta"] for each in made])
    assert drawn.shape == (20, 100)
    assert stats.ks_2samp(drawn.ravel(), released).pvalue > 0.001


def test_regions_of_the_printed_sampler_add_up_to_the_moments_of_the_family() -> None:
    world = simulate("exponential", 50, 1.0, trials=6, rng=rng_of(12))
    tail, centre = printed.regions(world, world.theta, literal=False)
    mean, cov = world.model.family.moments(world.theta, "redact")
    assert centre.mean == pytest.approx(50 * mean[:, 0])
    assert centre.variance == pytest.approx(50 * cov[:, 0, 0])
    assert centre.mean + tail.mean == pytest.approx(50 * mean[:, 1])
    assert centre.variance + tail.variance + 2 * tail.covariance == pytest.approx(50 * cov[:, 1, 1])
    assert (tail.dependence > 0).all()


def test_a_cell_does_not_depend_on_what_else_is_run() -> None:
    both = STUDIES["calibration"](cells=[("binomial", 10, 0.1), ("binomial", 50, 0.1)], trials=20)
    alone = STUDIES["calibration"](cells=[("binomial", 50, 0.1)], trials=20)
    some = study.calibration("binomial", 50, 0.1, trials=20, methods=["exact"])
    picked = both[both["n"] == 50].reset_index(drop=True)
    pd.testing.assert_frame_equal(picked.drop(columns="p_study"), alone.drop(columns="p_study"))
    exact = picked[picked["method"] == "exact"].reset_index(drop=True)
    pd.testing.assert_frame_equal(exact.drop(columns="p_study"), some)


def test_cells_have_different_noise() -> None:
    first, second = (simulate("binomial", n, 1.0, trials=50, rng=study.cell_rng(1, "binomial", n)) for n in (10, 20))
    assert not np.isclose(first.theta, second.theta).any()


# The committed tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_committed_at_full_size_without_gaps(name: str) -> None:
    table = load(name)
    assert table.attrs["trials"] == STUDIES[name].trials
    assert table.attrs["trials"] >= 300 or name == "traces"
    assert table.attrs["seed"] == STUDIES[name].seed
    assert table.attrs["commit"]
    assert table.notna().all().all()


def test_cells_run_again_are_the_rows_of_the_committed_tables() -> None:
    """Same seeds, same cells: the numbers of the files, to their four digits."""
    for name, cells in {"efficiency": [(1000, 0.1)], "traces": None, "printed": [(100, 1.0)]}.items():
        kept = (BOOK / "exponential-families" / "results" / f"{name}.csv").read_text(encoding="utf-8").splitlines()
        again = STUDIES[name](cells=cells).to_csv(index=False, float_format="%.4g", lineterminator="\n").splitlines()
        assert set(again) <= set(kept)


def test_the_calibration_table_holds_the_whole_grid() -> None:
    table = load("calibration")
    cells = len(study.SIZES) * len(study.EPSILONS)
    assert len(table) == cells * sum(len(model.methods) * len(model.quantities) for model in MODELS.values())


def test_noise_aware_posteriors_pass_and_naive_ones_fail_where_noise_is_not_negligible() -> None:
    """Holm's correction over all rows of a method: 5 % that a right method fails anywhere."""
    table = load("calibration")
    for method in NOISE_AWARE:
        assert (table[table["method"] == method]["p_study"] > 0.05).all()
    naive = table[table["method"].isin(["naive", "cheating naive"]) & (table["epsilon"] == 0.01)]
    assert (naive["p_study"] < 1e-6).all()
    assert (naive["ks"] > 0.2).all()
    assert (naive["coverage"] < 0.7).all()


def test_posterior_sampling_is_too_wide() -> None:
    table = load("calibration")
    samples = table[table["method"] == "posterior samples"]
    assert (samples["variance"] < 0.5).all()
    assert (samples["coverage"] > 0.98).all()


def test_gibbs_and_the_collapsed_posterior_agree_where_the_normal_approximation_holds() -> None:
    """At n = 10 an exponential rate has incompatible conditionals; redacted, chains stay in one of two modes."""
    table = load("calibration").set_index(["family", "outside", "n", "epsilon"])
    gibbs, collapsed = (table[table["method"] == method]["sd"] for method in ("gibbs", "collapsed"))
    ratio = (gibbs / collapsed).dropna()
    assert len(ratio) == 36
    trapped = ratio["exponential", "redact", 1000, 1.0]
    assert 0.88 < trapped < 0.96
    small = ratio.index.get_level_values("n") == 10
    assert ratio[~small].drop(("exponential", "redact", 1000, 1.0)).between(0.95, 1.05).all()
    assert ratio["exponential", "clip", 10, 0.01] > 1.02


@pytest.mark.parametrize(
    ("name", "n", "epsilon"), [("binomial", 100, 0.1), ("exponential", 1000, 0.1), ("poisson", 100, 1.0)]
)
def test_a_reduced_run_with_another_seed_agrees_with_the_committed_cells(name: str, n: int, epsilon: float) -> None:
    """200 against 400 trials: a Kolmogorov–Smirnov distance moves by less than 1.95 √(1/200 + 1/400) = 0.17 but once
    in 1,000 runs; sds vary by 2 % between runs (they vary by up to 30 % between worlds)."""
    committed = load("calibration")
    methods = ["non-private", "naive", "collapsed"]
    again = study.calibration(name, n, epsilon, trials=200, methods=methods, seed=77)
    for _, fresh in again.iterrows():
        where = {key: fresh[key] for key in ("family", "outside", "method", "n", "epsilon", "quantity")}
        old = row(committed, **where)
        assert abs(fresh["ks"] - old["ks"]) < 0.17
        assert abs(fresh["coverage"] - old["coverage"]) < 0.16
        assert fresh["sd"] == pytest.approx(old["sd"], rel=0.12)


def test_a_reduced_run_of_gibbs_agrees_with_the_committed_cell() -> None:
    """120 against 400 trials: Kolmogorov–Smirnov within 0.2 (false alarm 0.001); sds within 10 %."""
    again = study.calibration("multinomial", 100, 0.1, trials=120, methods=["gibbs", "naive"], seed=78)
    for _, fresh in again.iterrows():
        old = row(load("calibration"), family="multinomial", method=fresh["method"], n=100, epsilon=0.1)
        assert abs(fresh["ks"] - old["ks"]) < 0.2
        assert fresh["sd"] == pytest.approx(old["sd"], rel=0.1)


def test_the_committed_ranks_are_those_judged_in_the_calibration_table() -> None:
    ranks, table = load("ranks"), load("calibration")
    for column in ranks.columns:
        family, outside, method, quantity = (part.replace("_", " ") for part in column.split(" "))
        where = {"family": family, "outside": outside, "method": method, "quantity": quantity}
        judged = row(table, n=1000, epsilon=0.01, **where)["ks"]
        assert stats.kstest(ranks[column], "uniform").statistic == pytest.approx(judged, abs=2e-3)


def test_a_noisy_count_is_worth_what_the_finite_sample_formula_says() -> None:
    """Four standard errors of each ratio, in 24 rows: false alarm 0.2 %."""
    table = load("efficiency")
    table = table[(table["n"] >= 10_000) | ((table["n"] == 1000) & (table["estimator"] == "noisy-count mean"))]
    gap = (table["measured"] - table["predicted_finite_n"]).abs()
    assert (gap < 4 * table["standard_error"]).all()
    fresh = study.efficiency(100_000, 0.1, trials=5000, seed=79)
    assert ((fresh["measured"] - fresh["predicted_finite_n"]).abs() < 4.5 * fresh["standard_error"]).all()


def test_the_unit_kernel_sees_means_and_the_proper_scores_prefer_noise_aware_posteriors() -> None:
    table = load("utility")
    for family, aware in (("binomial", "exact"), ("multinomial", "gibbs")):
        for n in (10, 30, 100, 300, 1000):
            for epsilon in (0.01, 0.1):
                naive, honest = (
                    row(table, family=family, method=method, n=n, epsilon=epsilon) for method in ("naive", aware)
                )
                assert honest["crps"] < naive["crps"]
                assert honest["interval_score"] < naive["interval_score"]


def test_bounds_from_the_data_spoil_calibration_and_fixed_ones_do_not() -> None:
    table = load("bounds")
    assert (table[table["bounds"] == "fixed"]["p_holm"] > 0.05).all()
    oracle = table[table["bounds"] == "oracle: data"].set_index(["outside", "n", "epsilon"])["p_holm"]
    assert oracle["redact", 100, 1.0] < 1e-3
    assert oracle["redact", 1000, 1.0] < 1e-3
    assert (oracle["clip"] > 0.05).all()


def test_line_10_as_printed_widens_the_posterior_and_the_literal_mean_ruins_it() -> None:
    table = load("printed")
    at = {"n": 100, "epsilon": 1.0}
    assert row(table, variant="corrected", **at)["sd_ratio"] == pytest.approx(1.0, abs=0.02)
    assert row(table, variant="line 10 only", **at)["sd_ratio"] == pytest.approx(1.13, abs=0.03)
    assert row(table, variant="as printed", **at)["sd_ratio"] == pytest.approx(1.10, abs=0.03)
    assert (table[table["variant"] == "literal m = nq"]["ks"] > 0.9).all()
    fresh = study.printed(100, 1.0, trials=60, variants=["as printed"], seed=80)
    assert 1.03 < fresh["sd_ratio"].iloc[1] < 1.17


def test_traces_start_apart_and_end_near_the_truth() -> None:
    table = load("traces")
    assert table.groupby("chain").size().tolist() == [500, 500, 500]
    late = table[table["iteration"] > 250]
    for name in ("binomial", "exponential redact", "exponential clip"):
        assert late[name].mean() == pytest.approx(late[f"{name} truth"].iloc[0], rel=0.3)
    fresh = study.traces(iterations=10, chains=2)
    assert fresh["iteration"].tolist() == [*range(1, 11), *range(1, 11)]
