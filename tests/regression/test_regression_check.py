"""Counts of clipped records beside the sums: what they cost, what they say, and what is said without them."""

from __future__ import annotations

import functools
import itertools
import warnings

import numpy as np
import pandas as pd
import pytest

import dpbook
from dpbook import PrivacyBudget, Release, regression
from dpbook.moments import clipped_normal
from dpbook.regression import releases as module
from dpbook.regression.clipping import as_normal, columns_of, look_at
from dpbook.regression.coordinates import Coordinates
from dpbook.regression.layout import Layout
from dpbook.regression.sensitivities import Plan
from dpbook.regression.task import task_of

BOX = {"x_bounds": (-1, 1), "y_bounds": (-1, 1)}
EXACT = {**BOX, "epsilon": 1e8, "check": 0.1}


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def hushed(release, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return regression.infer(release, **{"draws": 400, "chains": 4, "rng": seeded(5)} | options)


def kinds(posterior) -> set[str]:
    return {type(each).__name__ for each in posterior.doubts} - {"ConvergenceWarning", "FewDraws"}


# What is released


def test_a_record_counts_in_equal_parts_for_the_columns_that_were_clipped():
    X = [[0, 0], [-2, 0], [-2, 5], [np.inf, -np.inf], [1, -1]]
    y = [0.5, 0.5, 0.5, 7.0, -1.0]  # the last record lies at its bounds: nothing of it is cut off
    made = regression.release(X, y, **EXACT, rng=seeded())
    third = 1 / 3
    assert np.allclose(made["clipped"], [[1.5, third], [third, 0.5], [0, third]], atol=1e-4)
    assert np.allclose(made["inside"], 2, atol=1e-4)


def test_counts_change_neither_the_sums_nor_the_higher_moments():
    X, y = seeded(1).normal(size=(50, 2)), seeded(2).normal(size=50)
    for changes in ({}, {"moments": True}, {"intercept": False}, {"mechanism": "gaussian", "delta": 1e-5}):
        both = [regression.release(X, y, **EXACT | {"check": each} | changes, rng=seeded()) for each in (0.0, 0.5)]
        for name in both[0].values:
            assert both[1].scale[name] < 0.01
            assert np.allclose(both[0][name], both[1][name], rtol=0, atol=30 * both[1].scale[name])


@pytest.mark.parametrize("check", [0.01, 0.1, 0.5])
def test_the_check_takes_its_share_of_the_loss(check):
    plain, made = (
        regression.release([[0.1, 0.2]] * 3, [0.2] * 3, **BOX, epsilon=2.0, check=each, rng=seeded())
        for each in (0.0, check)
    )
    assert made.scale["sums"] == pytest.approx(plain.scale["sums"] / (1 - check))
    assert made.scale["clipped"] == made.scale["inside"] == pytest.approx(2 / (2.0 * check))
    assert made.settings["check"] == check
    assert "check" not in plain.settings


def test_the_check_takes_its_share_of_the_squared_sensitivity_with_gaussian_noise():
    gaussian = {"epsilon": 1.0, "delta": 1e-6, "mechanism": "gaussian"}
    plain, made = (
        regression.release([0.1] * 3, [0.2] * 3, **BOX, **gaussian, check=each, rng=seeded()) for each in (0.0, 0.2)
    )
    assert made.sensitivity["sums"] ** 2 == pytest.approx(plain.sensitivity["sums"] ** 2 / 0.8)
    assert made.sensitivity["clipped"] == pytest.approx(np.sqrt(2 / 0.2))


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("check", [0.1, 0.5])
def test_the_sensitivity_is_the_largest_change_among_pairs_of_records(norm, check):
    """All pairs from a grid that holds the corners, inside and beyond the bounds: never more, and nearly as much."""
    inside = Coordinates(-np.ones(2), np.ones(2), True)
    plan = Plan.of(inside, False, "laplace" if norm == 1 else "gaussian", check)
    box = module._Box((-1.0, 1.0), (-1.0, 1.0), None, None, True)
    points = [-9.0, *np.linspace(-1, 1, 31), 9.0]
    rows = np.array(list(itertools.product(points, points)))
    plan_in = functools.partial(Plan.of, moments=False, mechanism="laplace" if norm == 1 else "gaussian", check=check)
    table = module._statistics(rows, response=-1, box=box, moments=False, plan_in=plan_in)
    largest = max(np.linalg.norm(table - row, ord=norm, axis=1).max() for row in table)
    assert largest <= plan.bound <= largest * 1.002
    assert plan.bound > plan.shrink * Plan.of(inside, False, "laplace" if norm == 1 else "gaussian").bound


@pytest.mark.parametrize(("d", "check"), [(1, 0.1), (2, 0.5), (6, 0.5), (9, 0.3)])
def test_no_statistic_exceeds_what_the_grid_is_made_for(d, check):
    inside = Coordinates(-np.ones(d + 1), np.ones(d + 1), True)
    plan = Plan.of(inside, False, "laplace", check)
    assert plan.shrink <= 1
    assert plan.weight * plan.shrink <= 1
    assert np.log2(plan.shrink) % 1 == 0
    assert plan.sums == Layout(d, True).size
    assert plan.counts == 2 * (d + 1) + 1
    share = 2 * plan.weight / plan.sensitivity
    assert share == pytest.approx(check, rel=1e-6)


def test_every_container_gives_the_same_release():
    dask = pytest.importorskip("dask.dataframe")
    rows = seeded(3).normal(size=(300, 3))
    frame = pd.DataFrame(rows, columns=["a", "b", "y"])
    sources = [
        (rows[:, :2], rows[:, 2]),
        (frame, "y"),
        ((rows[i : i + 70] for i in range(0, 300, 70)), -1),
        (dask.from_pandas(frame, npartitions=3), "y"),
    ]
    made = [regression.release(X, y, **BOX, epsilon=1.0, check=0.1, rng=seeded(4)) for X, y in sources]
    for each in made[1:]:
        assert all((each[name] == made[0][name]).all() for name in ("sums", "clipped", "inside"))
    assert made[0]["clipped"].shape == (3, 2)


def test_a_check_is_charged_once_and_survives_json():
    budget = PrivacyBudget(epsilon=1.0)
    made = regression.release([0.1, 3.0], [0.2, 0.4], **BOX, epsilon=0.75, check=0.1, rng=seeded(), budget=budget)
    assert budget.spent[0] == 0.75
    assert Release.from_json(made.to_json()) == made


@pytest.mark.parametrize("check", [0.6, 0.001, -0.1, True, "much", np.nan])
def test_a_wrong_check_is_named_before_anything_is_read_or_spent(check):
    budget = PrivacyBudget(epsilon=1.0)
    with pytest.raises((TypeError, ValueError), match="check"):
        regression.release(object(), object(), **BOX, epsilon=1.0, check=check, rng=seeded(), budget=budget)
    assert budget.spent[0] == 0
    with pytest.raises((TypeError, ValueError), match="check"):
        regression.preview(n=100, **BOX, epsilon=1.0, check=check)


# What it costs, beforehand


def test_a_preview_knows_what_a_check_costs():
    made = regression.release([0.1] * 5, [0.2] * 5, **BOX, epsilon=0.7, check=0.2, rng=seeded())
    look = regression.preview(n=5, **BOX, epsilon=0.7, check=0.2)
    assert (look.sensitivity, look.noise_scale) == (made.sensitivity["sums"], pytest.approx(made.scale["sums"]))


def test_the_epsilon_for_a_width_grows_by_what_a_check_takes():
    plain, checked = (
        regression.solve_epsilon(0.1, n=5000, **BOX, sd_x=0.3, sd_y=0.3, check=each).epsilon for each in (0.0, 0.2)
    )
    assert checked == pytest.approx(plain / 0.8, rel=0.01)


# What normal columns would have lost


def test_normal_columns_are_recovered_from_their_clipped_moments():
    rng = seeded(6)
    mean, sd = rng.uniform(-1.2, 1.2, 500), np.exp(rng.uniform(np.log(0.05), np.log(1.5), 500))
    cut = clipped_normal(mean, sd)
    first, second = cut.moments[:2]
    inside = np.abs(first) < 0.99
    found = as_normal(first, second - first**2, -np.ones(500), np.ones(500))
    assert np.allclose(found.cut[inside], 1 - cut.inside[inside], atol=1e-6)
    assert np.allclose(found.sd[inside], sd[inside], rtol=1e-5)


def columns_from(x, y, **bounds):
    made = regression.release(x, y, **bounds, epsilon=1e6, rng=seeded(7))
    return columns_of(task_of([made], None, method="fixed-design"))


def test_nothing_with_a_single_peak_inside_its_bounds_is_crowded():
    """By Khinchine: the peak plus a uniform part of the way to any other point. The uniform itself is at the limit."""
    rng, n = seeded(8), 20_000
    for peak, corner in itertools.product((-1.0, -0.4, 0.0, 0.7), (0.0, 0.5, 1.0)):
        ends = np.where(rng.random(n) < corner, 1.0, -1.0) * 0.995
        x = peak * 0.99 + rng.random(n) * (ends - peak * 0.99)
        assert not columns_from(x, x, **BOX).crowded[0, 0]


def test_a_normal_covariate_cut_at_its_sd_is_crowded_and_a_dummy_is_not():
    x = seeded(9).normal(size=5000)
    assert columns_from(x, x, x_bounds=(-0.7, 0.7), y_bounds=(-9, 9)).crowded.tolist() == [[True, False]]
    dummy = (seeded(9).random(5000) < 0.3).astype(float)
    assert columns_from(dummy, dummy, x_bounds=(0, 1), y_bounds=(-9, 9)).crowded.tolist() == [[False, False]]


def test_slopes_of_clipped_normal_covariates_are_too_steep_by_the_factor_that_is_named():
    x = seeded(10).normal(0, 1, 200_000)
    y = 0.2 * x
    made = regression.release(x, y, x_bounds=(-0.7, 0.7), y_bounds=(-2, 2), epsilon=1e6, rng=seeded(0))
    found = look_at(task_of([made], None, method="fixed-design")).steeper[0, 0]
    clipped = np.clip(x, -0.7, 0.7)
    assert found == pytest.approx(np.cov(clipped, y)[0, 1] / clipped.var() / 0.2, rel=0.01)


# What infer makes of it


@pytest.fixture(scope="module")
def cut_covariates():
    """The slope is 0.2, and half of the covariates are cut off: without counts no sum tells."""
    rng = seeded(11)
    x = rng.normal(size=2000)
    y = 0.2 * x + rng.normal(0, 0.2, size=2000)
    box = {"x_bounds": (-0.7, 0.7), "y_bounds": (-2, 2), "epsilon": 20.0}
    return [regression.release(x, y, **box, check=check, rng=rng) for check in (0.0, 0.1)]


def test_cut_covariates_are_doubted_without_a_check_and_modelled_with_it(cut_covariates):
    alone, counted = hushed(cut_covariates)  # releases with counts and without share a batch
    assert "ManyClipped" in kinds(alone)
    assert "x1" in str(alone.doubts[-1])
    assert "check=0.1" in str(alone.doubts[-1])
    assert any("unchecked" in note for note in alone.notes)
    assert counted.method == "moments"
    assert kinds(counted) == set()
    low, high = counted.interval(0.95, "theta")[1]
    assert low < 0.2 < high < 0.25
    assert any("counted" in note for note in counted.notes)
    for method in ("fixed-design", "collapsed"):
        prior = regression.NormalInverseGamma(0, 0.01, 1, 0.1) if method == "collapsed" else None
        for each in cut_covariates:
            assert "ManyClipped" in kinds(hushed(each, prior=prior, method=method))


def test_counts_tell_clipped_responses_from_skewed_ones():
    rng = seeded(12)
    x = rng.normal(0, 0.3, size=3000)
    normal = 0.05 + 0.6 * x + rng.normal(0, 0.2, size=3000)
    skewed = 0.05 + 0.6 * x + 0.12 * (rng.gamma(2.0, 1.0, size=3000) - 2)
    ends = {"x_bounds": (-2, 2), "epsilon": 5.0, "check": 0.1, "rng": rng}
    cut = regression.release(x, normal, y_bounds=(-0.35, 0.35), **ends)
    whole = regression.release(x, skewed, y_bounds=(skewed.min(), 3.0), **ends)
    found = hushed([cut, whole])
    assert [each.method for each in found] == ["moments", "fixed-design"]
    assert [kinds(each) for each in found] == [set(), set()]


def test_few_clipped_records_with_much_leverage_are_named():
    """Sixty households of 15,000 are five times as rich as the bounds allow."""
    rng = seeded(13)
    x = np.append(rng.gamma(4.0, 1.0, size=14_940), np.full(60, 80.0))
    y = 2 + 0.5 * x + rng.normal(size=15_000)
    table = pd.DataFrame({"income": x, "food": y})
    box = {"x_bounds": (0, 40), "y_bounds": (-10, 60), "epsilon": 10.0, "check": 0.1}
    found = hushed(regression.release(table, "food", **box, rng=rng))
    [doubt] = [each for each in found.doubts if type(each).__name__ == "ManyClipped"]
    assert "income" in str(doubt)
    assert "spread" in doubt.cause
    assert "x_bounds of income" in doubt.remedy


def test_a_method_whose_clipping_the_counts_contradict_is_doubted():
    rng = seeded(14)
    dummy = (rng.random(5000) < 0.4).astype(float)
    y = dummy + rng.normal(0, 0.5, size=5000)
    made = regression.release(dummy, y, x_bounds=(0, 1), y_bounds=(-3, 4), epsilon=5.0, check=0.1, rng=rng)
    assert kinds(hushed(made)) == set()
    assert "Misfit" in kinds(hushed(made, method="moments"))


def test_releases_with_a_check_are_put_together_and_others_are_refused():
    rng = seeded(15)
    x = rng.normal(0, 0.3, 500)
    box = {"x_bounds": (-2, 2), "y_bounds": (-2, 2), "epsilon": 2.0, "rng": rng}
    one, two = (regression.release(x, x, **box, check=0.1) for _ in range(2))
    both = dpbook.together(one, two)
    assert both.scale["clipped"] < one.scale["clipped"]
    assert "counted" in " ".join(hushed(both).notes)
    with pytest.raises(ValueError, match="settings"):
        dpbook.together(one, regression.release(x, x, **box))


def test_counts_of_another_shape_are_refused():
    made = regression.release([0.1] * 30, [0.2] * 30, **BOX, epsilon=1.0, check=0.1, rng=seeded())
    values = {name: made[name] for name in made.values} | {"clipped": np.zeros(4)}
    broken = Release(
        values=values, model=made.model, mechanism="laplace", scale=made.scale, sensitivity=made.sensitivity,
        epsilon=1.0, n=30, bounds=made.bounds, settings=made.settings, float_safe=False,
    )  # fmt: skip
    with pytest.raises(ValueError, match="two counts of clipped records"):
        regression.infer(broken)


def test_the_estimator_checks_too():
    pytest.importorskip("sklearn")
    model = regression.PrivateBayesianRegression(
        epsilon=3.0, **BOX, check=0.2, method="naive", draws=8, chains=2, random_state=1
    )
    x = seeded(16).normal(0, 0.3, size=(100, 1))
    assert model.fit(x, x[:, 0]).release_["clipped"].shape == (2, 2)
    assert model.get_params()["check"] == 0.2
