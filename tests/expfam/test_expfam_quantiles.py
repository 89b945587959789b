"""Quantiles with intervals: exact counts, least squares, intervals that hold whatever the law of the records."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpbook import PrivacyBudget, Release, expfam
from dpbook.expfam.quantile_inference import ends_of
from dpbook.expfam.quantile_tree import CountTree
from dpbook.sensitivity import histogram

Q = [0.1, 0.5, 0.9]


def released(records: Any, q: Any = 0.5, bounds: Any = (0, 10), **given: Any) -> Release:
    settings = {"epsilon": 1.0, "rng": np.random.default_rng(3)} | given
    return expfam.release_quantiles(records, q, bounds, **settings)


def test_counts_of_all_levels_are_those_of_a_plain_count() -> None:
    rng = np.random.default_rng(1)
    records = np.r_[rng.normal(5, 3, 500), -np.inf, np.inf, 0.0, 10.0, 5.0]
    noisy = released(records, branches=(2, 5), epsilon=1e9)
    clipped = np.clip(records, 0, 10)
    expected = [np.histogram(clipped, np.linspace(0, 10, cells + 1))[0] for cells in (2, 10)]
    np.testing.assert_allclose(noisy["counts"], np.concatenate(expected), atol=1e-6)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("branches", [(2,), (2, 3), (3, 2, 2)])
def test_the_sensitivity_is_attained_and_never_exceeded(branches: tuple[int, ...], norm: int) -> None:
    tree = CountTree((0.0, 1.0), branches)
    cells = [tree.levels(row) for row in np.eye(tree.cells, dtype=np.int64)]
    moves = [np.linalg.norm(one - other, ord=norm) for one, other in itertools.product(cells, repeat=2)]
    assert max(moves) == pytest.approx(histogram(tables=len(branches), norm=norm))


@pytest.mark.parametrize("branches", [(4,), (3, 4), (2, 3, 2), (5, 2, 2, 2)])
def test_the_two_passes_are_weighted_least_squares_given_n(branches: tuple[int, ...]) -> None:
    tree, rng = CountTree((0.0, 1.0), branches), np.random.default_rng(2)
    noisy, n = rng.normal(size=sum(tree.sizes)) * 30 + 20, 100.0
    design = np.stack([tree.levels(row) for row in np.eye(tree.cells, dtype=np.int64)], axis=1)
    # Minimise |design h - noisy|² subject to Σh = n, by its Lagrange equations.
    k = tree.cells
    system = np.block([[design.T @ design, np.ones((k, 1))], [np.ones((1, k)), np.zeros((1, 1))]])
    cells = np.linalg.solve(system, np.r_[design.T @ noisy, n])[:k]
    np.testing.assert_allclose(tree.below(noisy, n), np.r_[0.0, np.cumsum(cells)], atol=1e-9)


def test_ends_are_those_of_the_cells_that_no_test_leaves_out() -> None:
    """By enumeration: a cell stays at level α where its right edge is not too low and its left edge not too high."""
    rng = np.random.default_rng(4)
    edges = np.arange(8.0)
    for _ in range(200):
        least, most = np.sort(np.clip(np.linspace(-0.2, 1.2, 6) + rng.normal(0, 0.2, (2, 6)), 0, 1), axis=0)
        least, most = np.r_[0.0, least, 1.0], np.r_[0.0, most, 1.0]
        for alpha in (0.05, 0.3, 0.8):
            low, high = ends_of(least, most, edges, np.array([alpha / 2, 1 - alpha / 2]))
            kept = [k for k in range(7) if most[k + 1] >= alpha / 2 and least[k] <= 1 - alpha / 2]
            assert low == edges[min(kept)]
            assert high == edges[max(kept) + 1]


def test_a_mean_over_edges_beside_is_a_plain_mean() -> None:
    tree, below = CountTree((0.0, 1.0), (2, 3)), np.random.default_rng(1).normal(size=(4, 7))
    for window in (1, 3, 6):
        left = [below[:, max(0, t - window + 1) : t + 1].mean(axis=1) for t in range(7)]
        right = [below[:, t : t + window].mean(axis=1) for t in range(7)]
        np.testing.assert_allclose(tree.beside(below, window, right=False), np.stack(left, axis=1))
        np.testing.assert_allclose(tree.beside(below, window, right=True), np.stack(right, axis=1))


LAWS = {
    "skewed": (stats.lognorm(0.8, scale=20.0), (0.0, 200.0)),
    "whole numbers": (stats.poisson(3), (0.0, 40.0)),
    "heavy tails, clipped": (stats.t(2), (-3.0, 3.0)),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("n", "epsilon"), [(60, 3.0), (2000, 0.5), (1000, 30.0)])
def test_intervals_cover_the_quantiles_of_population_and_records(law: str, n: int, epsilon: float) -> None:
    """40 releases, 90 % intervals of three quantiles: fewer than 29 of 40 hold with probability below 4e-4 each.

    That is if they held as often as they say; a hull of cells holds more often.
    """
    chance, bounds = LAWS[law]
    rng = np.random.default_rng(11)
    samples = [chance.rvs(n, random_state=rng) for _ in range(40)]
    noisy = [released(x, Q, bounds, epsilon=epsilon, rng=rng) for x in samples]
    found = [each.interval(0.9) for each in expfam.infer(noisy, draws=1000, rng=rng)]
    truths = {
        "quantiles": np.tile(np.clip(chance.ppf(Q), *bounds), (40, 1)),
        "record_quantiles": np.array([np.quantile(np.clip(x, *bounds), Q, method="inverted_cdf") for x in samples]),
    }
    for name, truth in truths.items():
        ends = np.array([each[name] for each in found])
        held = ((ends[..., 0] <= truth) & (truth <= ends[..., 1])).sum(axis=0)
        assert (held >= 29).all(), (name, held)


def test_with_little_noise_the_interval_of_the_population_is_that_of_order_statistics() -> None:
    """Without noise the test is the sign test, whose interval for the median lies between two order statistics."""
    rng = np.random.default_rng(5)
    records = rng.normal(5, 1, 400)
    posterior = expfam.infer(released(records, epsilon=1e6, branches=(40, 40)), draws=20_000, rng=rng)
    low, high = stats.binom(400, 0.5).ppf([0.025, 0.975])
    expected = np.sort(records)[[int(low) - 1, int(high)]]
    np.testing.assert_allclose(posterior.interval(0.95, "quantiles")[0], expected, atol=0.04)
    np.testing.assert_allclose(posterior.interval(0.95, "record_quantiles")[0], np.median(records), atol=0.02)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_where_noise_drowns_all_the_interval_is_the_bounds(mechanism: str) -> None:
    noise = {"mechanism": mechanism, "delta": 1e-6 if mechanism == "gaussian" else 0.0}
    posterior = expfam.infer(released(np.full(5, 3.0), epsilon=0.03, **noise), rng=np.random.default_rng(1))
    assert posterior.interval(0.95, "quantiles")[0].tolist() == [0.0, 10.0]


def test_draws_of_quantiles_are_in_order_and_a_release_travels_as_json() -> None:
    noisy = released(np.random.default_rng(1).normal(5, 2, 300), [0.2, 0.3, 0.31, 0.9])
    posterior = expfam.infer(Release.from_json(noisy.to_json()), rng=np.random.default_rng(2))
    assert posterior.component_labels("quantiles") == [f"quantiles[{q}%]" for q in (20, 30, 31, 90)]
    for draws in posterior.draws.values():
        assert (np.diff(draws, axis=-1) >= 0).all()


def test_a_real_release_is_drawn_safely_and_charged() -> None:
    budget = PrivacyBudget(1.0)
    noisy = expfam.release_quantiles([1.0, 2.0, 3.0], Q, (0, 10), epsilon=0.5, budget=budget)
    assert noisy.float_safe
    assert (noisy["counts"] == np.rint(noisy["counts"])).all()
    assert budget.spent[0] == 0.5


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"q": [0.5, 0.5]}, "q must be one or more increasing"),
        ({"q": []}, "q must be one or more increasing"),
        ({"q": 1.0}, "q must be one or more increasing"),
        ({"bounds": (1, 1)}, "bounds"),
        ({"branches": (10**6,)}, "branches must make from 2"),
        ({"branches": (1, 5)}, "branches must be"),
        ({"bounds": (1.0, 1.0 + 1e-14)}, "branches must make cells that floats can tell apart"),
        ({"records": [[1.0, 2.0]]}, "data must have one column"),
        ({"records": [1.0, np.nan]}, "missing"),
    ],
)
def test_wrong_arguments_are_named_and_cost_nothing(given: dict[str, Any], words: str) -> None:
    budget = PrivacyBudget(1.0)
    with pytest.raises((ValueError, TypeError), match=words):
        released(**({"records": [1.0, 2.0], "budget": budget} | given))
    assert budget.spent[0] == 0


def test_a_preview_foresees_the_widths_and_its_inverse_the_loss() -> None:
    """Over 40 releases; the median of the widths has a standard error of some 5 %."""
    law, bounds = LAWS["skewed"]
    guess = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    look = expfam.preview_quantiles(Q, bounds, n=1000, epsilon=1.0, guess=guess)
    rng = np.random.default_rng(6)
    noisy = [released(law.rvs(1000, random_state=rng), Q, bounds, rng=rng) for _ in range(40)]
    ends = np.array([each.interval(0.95, "quantiles") for each in expfam.infer(noisy, draws=1000, rng=rng)])
    np.testing.assert_allclose(np.median(np.ptp(ends, axis=2), axis=0), look.width, rtol=0.2, atol=0.2)
    plan = expfam.solve_epsilon_quantiles(float(look.width[1]), Q, bounds, n=1000, guess=guess, of="50%")
    assert plan.epsilon == pytest.approx(1.0, rel=0.15)
    with pytest.raises(ValueError, match="width must be greater"):
        expfam.solve_epsilon_quantiles(0.01, Q, bounds, n=1000, guess=guess)
