"""Noisy gradients: their accounting, their privacy, their gradients, and that they learn.

Statistical tests use fixed seeds; each states what it would take for a right program to fail it.
"""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from dpbook import PrivacyBudget, Release
from dpbook.accounting import gaussian_scale
from dpbook.audit import epsilon_lower_bound
from dpbook.budget import BudgetExceeded
from dpbook.graphical import (
    MarkovRandomField,
    Training,
    chain,
    dpsgd,
    field_of,
    fit_nonprivate,
    gradient_noise,
    random_field,
    release_dpsgd,
    training,
    tune_dpsgd_nonprivate,
)
from dpbook.graphical.counting import layout_of
from dpbook.graphical.domain import Domain, checked_groups
from dpbook.graphical.nonprivate import _mean_log_likelihood

DOMAIN = {"a": 3, "b": 2, "c": 2}
CLIQUES = [("a", "b"), ("b", "c")]


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


SETTINGS = {each.name for each in dataclasses.fields(Training)}


def released(data, domain, cliques, **options):
    """Release potentials; options that are settings of the training are handed on as such."""
    chosen = {name: options.pop(name) for name in SETTINGS & set(options)}
    return release_dpsgd(data, domain, cliques, training=Training(**chosen), **options)


def units_of(data, domain, groups, person=None, null=None):
    return dpsgd.units_of(data, domain, groups, layout_of(domain, None, person, null))


def sample(n, seed):
    rng = rng_of(seed)
    potentials = [rng.normal(size=(3, 2)), rng.normal(size=(2, 2))]
    return MarkovRandomField(DOMAIN, CLIQUES, potentials).sample(n, rng)


# Accounting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-3), (1.0, 1e-5)])
def test_one_step_with_all_records_is_the_gaussian_mechanism_of_sensitivity_two(epsilon, delta):
    exact = gaussian_scale(sensitivity=2.0, epsilon=epsilon, delta=delta)
    assert exact <= gradient_noise(epsilon=epsilon, delta=delta, sampling=1.0, steps=1) * (1 + 1e-8)
    assert gradient_noise(epsilon=epsilon, delta=delta, sampling=1.0, steps=1) < 1.002 * exact


@pytest.mark.parametrize(("epsilon", "sampling"), [(0.5, 0.2), (1.0, 0.5)])
def test_one_step_with_a_batch_has_the_delta_of_the_worst_pair(epsilon, sampling):
    """By quadrature: the mass of (1-q) N(0) + q N(1) beyond e^epsilon times its mirror image."""
    delta = 1e-3
    sd = gradient_noise(epsilon=epsilon, delta=delta, sampling=sampling, steps=1)

    def excess(x):
        one, other = ((1 - sampling) * stats.norm.pdf(x, 0, sd) + sampling * stats.norm.pdf(x, m, sd) for m in (1, -1))
        return max(one - np.exp(epsilon) * other, 0.0)

    found = integrate.quad(excess, -12 * sd, 1 + 12 * sd, limit=500, points=[0, 1])[0]
    assert found <= delta
    assert found > 0.97 * delta


def test_many_steps_with_all_records_compose_as_one_gaussian():
    exact = gaussian_scale(sensitivity=2.0 * np.sqrt(40), epsilon=1.0, delta=1e-4)
    assert gradient_noise(epsilon=1.0, delta=1e-4, sampling=1.0, steps=40) == pytest.approx(exact, rel=2e-3)


def test_noise_for_adding_or_removing_a_record_would_be_too_little(monkeypatch):
    right = gradient_noise(epsilon=1.0, delta=1e-4, sampling=0.1, steps=20)
    monkeypatch.setattr(training, "RELATION", "ADD_OR_REMOVE_ONE")
    training._calibrated.cache_clear()
    try:
        assert gradient_noise(epsilon=1.0, delta=1e-4, sampling=0.1, steps=20) < 0.75 * right
    finally:
        training._calibrated.cache_clear()


def test_a_missing_accountant_is_named_with_its_extra(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    budget = PrivacyBudget(1.0, 0.5)
    with pytest.raises(ImportError, match=r"dpbook\[dpsgd\]"):
        released(sample(10, 1), DOMAIN, CLIQUES, epsilon=1.0, rng=rng_of(1), budget=budget)
    assert budget.ledger == ()


# Gradients ------------------------------------------------------------------------------------------------------------


def dense_gradients(units, means, ends):
    shares = np.repeat(units.shares, np.diff(ends), axis=1)
    return units.cells.toarray() - shares * means


@pytest.mark.parametrize("clip", [0.3, 0.9, 10.0])
def test_the_clipped_sum_is_that_of_dense_gradients(clip):
    records = sample(50, 2)
    known, groups = Domain.of(DOMAIN), checked_groups(CLIQUES, Domain.of(DOMAIN))
    units = units_of(records, known, groups)
    problem = dpsgd.empty_tables(known, groups, 50, "auto")
    means, ends = problem.infer(rng_of(3).normal(size=10)).means, [0, 6, 10]
    each = dense_gradients(units, means, ends)
    norms = np.linalg.norm(each, axis=1)
    expected = (each * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
    lengths = np.asarray(units.cells.multiply(units.cells).sum(axis=1)).ravel()
    np.testing.assert_allclose(dpsgd._clipped_sum(units, means, lengths, ends, clip), expected, atol=1e-12)


def test_the_gradient_is_the_slope_of_the_log_likelihood():
    records = sample(30, 4)
    known, groups = Domain.of(DOMAIN), checked_groups(CLIQUES, Domain.of(DOMAIN))
    units = units_of(records, known, groups)
    problem = dpsgd.empty_tables(known, groups, 30, "auto")
    theta = rng_of(5).normal(size=10)
    gradient = dense_gradients(units, problem.infer(theta).means, [0, 6, 10]).mean(axis=0)
    for i in range(10):
        ahead, behind = theta.copy(), theta.copy()
        ahead[i] += 1e-5
        behind[i] -= 1e-5
        slope = (_mean_log_likelihood(units, problem, ahead) - _mean_log_likelihood(units, problem, behind)) / 2e-5
        assert gradient[i] == pytest.approx(slope, abs=1e-8)


def test_a_person_of_several_rows_weighs_one_in_each_table_and_nulls_weigh_nothing():
    steps = pd.DataFrame(
        {"who": [1, 1, 2, 3], "x": [0, 1, 2, 2], "y": [1, 1, 2, 0], "z": [0, 0, 2, 2]}
    )  # state 2 means "not seen"
    known = Domain.of({"x": 3, "y": 3, "z": 3})
    groups = checked_groups(chain(["x", "y", "z"], tied=True), known)
    units = units_of(steps, known, groups, "who", 2)
    assert units.n == 3
    np.testing.assert_allclose(units.shares, [[1, 1], [0, 0], [0, 1]])
    tables = units.cells.toarray()
    np.testing.assert_allclose(tables[0, :3], [0.5, 0.5, 0])
    np.testing.assert_allclose(tables[0, 3:].reshape(3, 3), [[0, 0.25, 0], [0.5, 0.25, 0], [0, 0, 0]])
    np.testing.assert_allclose(tables[1], 0)
    np.testing.assert_allclose(tables[2, 3:].reshape(3, 3), [[0, 0, 0.5], [0, 0, 0], [0.5, 0, 0]])


def test_counts_rows_and_tables_are_the_same_records():
    table = np.array([[3, 1], [0, 2]])
    rows = pd.DataFrame({"a": [0, 0, 0, 0, 1, 1], "b": [0, 0, 0, 1, 1, 1]})
    counted = pd.DataFrame({"a": [0, 0, 1], "b": [0, 1, 1], "times": [3, 1, 2]})
    made = [
        released(
            records,
            {"a": 2, "b": 2},
            [("a", "b")],
            epsilon=1.0,
            delta=0.01,
            sampling=1.0,
            steps=3,
            rng=rng_of(6),
            counts=counts,
        )["a,b"]
        for records, counts in ((table, None), (rows, None), (counted, "times"))
    ]
    np.testing.assert_allclose(made[1], made[0])
    np.testing.assert_allclose(made[2], made[0])


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_where_delta_covers_ever_being_drawn_the_search_for_the_noise_ends_at_once(epsilon):
    """Coupled batches are the same but for a chance of 1 - (1 - q)^steps, whatever the noise."""
    assert gradient_noise(epsilon=epsilon, delta=0.01, sampling=1e-4, steps=100) == 0.3
    assert gradient_noise(epsilon=epsilon, delta=0.01, sampling=1e-9, steps=1) == 0.3


# Privacy --------------------------------------------------------------------------------------------------------------


def one_step(record, rng):
    """Return what one step on three records says of the first, whose clipped gradient is as long as it may be."""
    known = Domain.of({"a": 2})
    groups = checked_groups([("a",)], known)
    units = units_of(pd.DataFrame({"a": [record, 0, 1]}), known, groups)
    noise_sd = 0.5 * gradient_noise(epsilon=1.0, delta=0.02, sampling=1.0, steps=1)
    problem = dpsgd.empty_tables(known, groups, 3, "auto")
    settings = Training(learning_rate=1.0, clip=0.5, sampling=1.0, steps=1)
    theta = [dpsgd.descend(units, problem, settings, noise_sd, rng) for _ in range(4000)]
    return np.array(theta) @ [1.0, -1.0]


def test_the_audit_does_not_refute_a_noisy_step_and_catches_noise_for_adding_a_record(monkeypatch):
    """A false alarm has probability 0.001. Noise for adding or removing a record is half of what replacing needs."""
    audit = {"trials": 4000, "delta": 0.02, "batched": True}
    assert 0 < epsilon_lower_bound(one_step, 0, 1, rng=rng_of(7), **audit) <= 1.0
    monkeypatch.setattr(training, "RELATION", "ADD_OR_REMOVE_ONE")
    training._calibrated.cache_clear()
    try:
        assert epsilon_lower_bound(one_step, 0, 1, rng=rng_of(8), **audit) > 1.0
    finally:
        training._calibrated.cache_clear()


@pytest.mark.parametrize(("clip", "rate"), [(0.2, 1.0), (5.0, 0.5)])
def test_a_release_adds_the_noise_that_the_accountant_asked_for(clip, rate):
    """One step on all records, undone: 4,000 noises, Kolmogorov–Smirnov, false alarm 1e-4; clip is not 1 on purpose."""
    n, states = 60, 400
    records = pd.DataFrame({"a": np.arange(n) % 3})
    multiplier = gradient_noise(epsilon=1.0, delta=1e-3, sampling=1.0, steps=1)
    each = np.eye(states)[records["a"]] - 1 / states
    gradient = (each * np.minimum(1, clip / np.linalg.norm(each, axis=1))[:, None]).sum(axis=0)
    noise = []
    for seed in range(10):
        made = released(
            records, {"a": states}, [("a",)], epsilon=1.0, delta=1e-3, clip=clip, learning_rate=rate, sampling=1.0,
            steps=1, rng=rng_of(100 + seed),
        )  # fmt: skip
        assert made.scale["a"] == pytest.approx(multiplier * clip)
        noise.append(made["a"] * n / rate - gradient)
    assert stats.kstest(np.concatenate(noise), stats.norm(scale=multiplier * clip).cdf).pvalue > 1e-4


def test_a_release_pays_for_all_its_steps_and_its_own_batches():
    made = released(
        sample(50, 21), DOMAIN, CLIQUES, epsilon=1.0, delta=1e-3, clip=0.7, sampling=0.4, steps=6, rng=rng_of(21)
    )
    multiplier = gradient_noise(epsilon=1.0, delta=1e-3, sampling=0.4, steps=6)
    assert made.settings["noise_multiplier"] == multiplier
    assert made.scale["a,b"] == pytest.approx(0.7 * multiplier)


def test_batches_are_drawn_record_by_record_as_the_accountant_assumes():
    """Sizes of 800 batches of 20 records have mean and variance of a binomial law, each within 5 standard errors.

    Batches of one size would have no variance, and another, larger privacy loss.
    """
    known = Domain.of({"a": 2})
    groups = checked_groups([("a",)], known)
    units = units_of(pd.DataFrame({"a": [0] * 20}), known, groups)
    problem, rng, q = dpsgd.empty_tables(known, groups, 20, "auto"), rng_of(22), 0.3
    settings = Training(learning_rate=1.0, clip=10.0, sampling=q, steps=1)
    moved = [dpsgd.descend(units, problem, settings, 1e-9, rng) for _ in range(800)]
    sizes = 2 * 20 * q * np.array(moved)[:, 0]  # each record in the batch moves its cell by 1/2, over q n
    variance = 20 * q * (1 - q)
    assert np.allclose(sizes, np.rint(sizes), atol=1e-6)
    assert abs(sizes.mean() - 20 * q) < 5 * np.sqrt(variance / 800)
    assert abs(sizes.var() / variance - 1) < 5 * np.sqrt(2 / 800)


@pytest.mark.parametrize(("size", "angle"), [(1.0, 2.6), (1.0, 1.6), (0.6, np.pi), (0.0, 0.0)])
def test_no_other_pair_of_gradients_is_told_apart_better_than_opposite_ones(size, angle):
    """The accountant takes the worst pair: delta between mixtures of N(0) with N(g) or N(h) in the plane, on a grid."""
    q, sd, epsilon, step = 0.3, 0.8, 0.7, 0.05
    x, y = np.meshgrid(np.arange(-6, 6, step), np.arange(-6, 6, step))

    def mixture(point):
        parts = [np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * sd**2)) for a, b in ((0.0, 0.0), point)]
        return ((1 - q) * parts[0] + q * parts[1]) / (2 * np.pi * sd**2) * step**2

    def delta(point):
        one, other = mixture((1.0, 0.0)), mixture(point)
        return max(np.maximum(a - np.exp(epsilon) * b, 0).sum() for a, b in ((one, other), (other, one)))

    assert delta((size * np.cos(angle), size * np.sin(angle))) < delta((-1.0, 0.0))


@pytest.mark.parametrize(
    ("tuning", "charged", "total"),
    [
        ("uncharged", (12.0, 0.24), (12.0, 0.24)),
        ("charged", (0.5, 0.01), (12.0, 0.24)),
        ("public", (0.5, 0.01), (0.5, 0.01)),
    ],
)
def test_runs_that_found_the_settings_are_charged_unless_the_caller_says_who_paid(tuning, charged, total):
    budget = PrivacyBudget(20.0, 0.5)
    named = {} if tuning == "uncharged" else {"tuning": tuning}
    made = released(
        sample(100, 9), DOMAIN, CLIQUES, epsilon=0.5, steps=2, sampling=1.0, tuned_over=24, rng=rng_of(9),
        budget=budget, **named,
    )  # fmt: skip
    assert budget.spent == pytest.approx(charged)
    assert (made.epsilon, made.delta) == pytest.approx(charged)
    told = [made.settings[f"{name}_{which}"] for which in ("a_run", "with_tuning") for name in ("epsilon", "delta")]
    assert told == pytest.approx([0.5, 0.01, *total])
    assert (made.settings["tuned_over"], made.settings["tuning"]) == (24, tuning)
    assert made.sensitivity["a,b"] == 2 * made.settings["clip"]
    assert Release.from_json(made.to_json()) == made


def test_the_noise_is_that_of_one_run_whatever_tuning_cost():
    made = [
        released(sample(60, 9), DOMAIN, CLIQUES, epsilon=0.5, steps=2, sampling=1.0, rng=rng_of(9), **more)
        for more in ({}, {"tuned_over": 24}, {"tuned_over": 24, "tuning": "public"})
    ]
    assert all(np.array_equal(each["a,b"], made[0]["a,b"]) and each.scale == made[0].scale for each in made)


def test_more_runs_than_the_budget_or_delta_allows_are_refused():
    budget, rng = PrivacyBudget(1.0, 0.5), rng_of(9)
    before = rng.bit_generator.state
    options = {"epsilon": 0.5, "steps": 2, "sampling": 1.0, "budget": budget, "rng": rng}
    with pytest.raises(BudgetExceeded):
        released(sample(100, 9), DOMAIN, CLIQUES, tuned_over=3, **options)
    with pytest.raises(ValueError, match="tuned_over times delta"):
        released(sample(100, 9), DOMAIN, CLIQUES, tuned_over=100, **options)
    assert budget.ledger == ()
    assert rng.bit_generator.state == before
    released(sample(100, 9), DOMAIN, CLIQUES, tuned_over=2, **options)
    assert budget.spent == pytest.approx((1.0, 0.02))


def test_a_real_release_must_be_asked_for_as_insecure():
    records, budget = sample(20, 10), PrivacyBudget(1.0, 0.1)
    with pytest.raises(ValueError, match="insecure"):
        released(records, DOMAIN, CLIQUES, epsilon=1.0, budget=budget)
    assert budget.ledger == ()
    made = released(records, DOMAIN, CLIQUES, epsilon=1.0, sampling=1.0, steps=2, insecure=True, budget=budget)
    assert not made.float_safe
    assert budget.remaining == 0


def test_the_budget_is_charged_before_anything_is_drawn():
    rng = rng_of(11)
    before = rng.bit_generator.state
    with pytest.raises(BudgetExceeded):
        released(
            sample(20, 11), DOMAIN, CLIQUES, epsilon=1.0, delta=1e-3, sampling=1.0, rng=rng, budget=PrivacyBudget(1.0)
        )
    assert rng.bit_generator.state == before


# Learning -------------------------------------------------------------------------------------------------------------


def test_with_a_huge_epsilon_noisy_gradients_reach_the_maximum_likelihood():
    records = sample(3000, 12)
    made = released(
        records, DOMAIN, CLIQUES, epsilon=200.0, delta=1e-3, steps=300, sampling=1.0, clip=3.0, learning_rate=1.0,
        rng=rng_of(12),
    )  # fmt: skip
    best = fit_nonprivate(records, DOMAIN, CLIQUES)
    assert best.kl(field_of(made)) < 2e-3


def test_a_tiny_epsilon_gives_a_field_all_the_same():
    made = released(sample(50, 13), DOMAIN, CLIQUES, epsilon=0.01, sampling=1.0, steps=5, rng=rng_of(13))
    field = field_of(made)
    assert field.marginal(("a", "b")).sum() == pytest.approx(1)
    assert field.report is not None
    assert field.report.method == "dp-sgd"


def test_tied_chains_are_learned():
    names = ["s1", "s2", "s3"]
    domain, cliques = dict.fromkeys(names, 3), chain(names, tied=True)
    rng = rng_of(14)
    truth = MarkovRandomField(domain, cliques, [rng.normal(size=3), rng.normal(size=(3, 3))])
    records = truth.sample(4000, rng)
    made = released(records, domain, cliques, epsilon=3.0, steps=50, sampling=1.0, learning_rate=2.0, rng=rng)
    assert truth.kl(field_of(made)) < 0.02


def test_the_search_reports_every_setting_best_first():
    grid = {"learning_rate": [0.01, 2.0], "clip": [1.0], "steps": [20, 40], "sampling": [1.0]}
    tried = tune_dpsgd_nonprivate(sample(500, 15), DOMAIN, CLIQUES, epsilon=2.0, grid=grid, rng=rng_of(15))
    assert len(tried) == 4
    assert tried["log_likelihood"].is_monotonic_decreasing
    assert tried["learning_rate"][0] == 2.0


def test_the_random_field_is_far_from_the_data_and_repeats_itself():
    records = sample(3000, 16)
    best = fit_nonprivate(records, DOMAIN, CLIQUES)
    one, again, other = (random_field(DOMAIN, CLIQUES, rng=rng_of(seed)) for seed in (17, 17, 18))
    assert best.kl(one) > 0.1
    assert one.kl(again) == pytest.approx(0, abs=1e-9)
    assert one.kl(other) > 0.01


# Arguments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"clip": -1.0}, "clip"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"sampling": 1.5}, "sampling"),
        ({"sampling": 0.0}, "sampling"),
        ({"steps": 0}, "steps"),
        ({"steps": 10**30}, "steps"),
        ({"steps": 2.5}, "steps"),
        ({"tuned_over": 0}, "tuned_over"),
        ({"tuned_over": 10**400}, "tuned_over"),
        ({"tuning": "free"}, "tuning"),
        ({"epsilon": 1e-300}, "epsilon"),
        ({"delta": 1e-30}, "delta"),
        ({"clip": 1e300}, "clip"),
        ({"learning_rate": 1e300}, "learning_rate"),
        ({"counts": 3}, "counts"),
        ({"person": "a"}, "person"),
        ({"data": np.ones((3, 2, 2), dtype=int), "counts": "times"}, "counts"),
        ({"data": np.ma.masked_equal(np.arange(12).reshape(3, 2, 2), 4)}, "data"),
        ({"data": sample(9, 19).astype(object).replace(0, "0")}, "data"),
        ({"cliques": [{"a", "b"}]}, "order"),
        ({"rng": 3}, "rng"),
        ({"insecure": "yes"}, "insecure"),
        ({"cliques": [("a", "q")]}, "cliques"),
        ({"domain": {"a": 1}}, "domain"),
        ({"data": pd.DataFrame({"a": [5], "b": [0], "c": [0]})}, "data"),
        ({"data": pd.DataFrame({"a": [], "b": [], "c": []})}, "data"),
        ({"null": 9}, "null"),
        ({"data": iter([])}, "data"),
        ({"data": np.full((3, 2, 2), 1e300)}, "data"),
        ({"domain": DOMAIN | {"c": [0.0, np.inf]}}, "domain"),
        ({"inference": "quick"}, "inference"),
    ],
)
def test_bad_arguments_are_named_and_cost_nothing(change, named):
    budget = PrivacyBudget(1.0, 0.5)
    arguments = {"data": sample(10, 19), "domain": DOMAIN, "cliques": CLIQUES, "epsilon": 1.0, "rng": rng_of(19)}
    arguments = arguments | {"budget": budget} | change
    with pytest.raises((TypeError, ValueError), match=named):
        released(arguments.pop("data"), arguments.pop("domain"), arguments.pop("cliques"), **arguments)
    assert budget.ledger == ()


@pytest.mark.parametrize("change", [{"epsilon": 1e-90}, {"epsilon": 1e8}, {"learning_rate": 1e6}, {"clip": 1e6}])
def test_extreme_settings_give_potentials_all_the_same(change):
    """What passes the checks does not fail after the charge: potentials stay finite whatever the noise did."""
    options = {"epsilon": 1.0, "delta": 1e-12, "steps": 20, "sampling": 1.0} | change
    made = released(sample(3, 19), DOMAIN, CLIQUES, rng=rng_of(19), **options)
    assert np.abs(made["a,b"]).max() <= 1e8
    assert field_of(made).marginal("a").sum() == pytest.approx(1)


def test_the_settings_of_a_search_are_checked_before_any_run():
    for grid, error in (
        ({"steps": [2.5]}, TypeError),
        ({"steps": [0]}, ValueError),
        ({"sampling": [0.5, 1.5]}, ValueError),
        ({"clip": [-1.0]}, ValueError),
    ):
        with pytest.raises(error, match=r"grid\["):
            tune_dpsgd_nonprivate("nothing is read", DOMAIN, CLIQUES, epsilon=1.0, grid=grid)


def test_settings_are_those_of_a_training_and_nothing_else():
    budget = PrivacyBudget(1.0, 0.5)
    with pytest.raises(TypeError, match=r"training must be a graphical\.Training, got dict"):
        release_dpsgd("nothing is read", DOMAIN, CLIQUES, epsilon=1.0, training={"steps": 5}, budget=budget)
    assert budget.ledger == ()
    assert Training(steps=np.int64(5), clip=1) == Training(steps=5, clip=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Training().steps = 3  # type: ignore[misc]


def test_a_search_over_unknown_settings_and_a_field_of_another_release_are_refused():
    with pytest.raises(ValueError, match="grid"):
        tune_dpsgd_nonprivate(sample(10, 20), DOMAIN, CLIQUES, epsilon=1.0, grid={"momentum": [0.9]})
    with pytest.raises(TypeError, match="release"):
        field_of("potentials")
