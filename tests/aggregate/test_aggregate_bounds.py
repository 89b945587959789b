"""Private bounds: where they settle, how often they fail, and that an audit does not refute them."""

from __future__ import annotations

import numpy as np
import pytest

from dpbook import BudgetExceeded, PrivacyBudget
from dpbook.aggregate import Centred, SparseVector, release_bounds
from dpbook.aggregate import releases as module
from dpbook.audit import epsilon_lower_bound


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def centred_bounds(data, *, public_range, epsilon, resolution=1024, **options):
    return release_bounds(data, Centred(public_range, resolution=resolution), epsilon=epsilon, **options)


def doubled_bounds(data, *, epsilon, rng=None, budget=None, **plan):
    return release_bounds(data, SparseVector(**plan), epsilon=epsilon, rng=rng, budget=budget)


@pytest.mark.parametrize(("centre", "sd"), [(2.0, 0.3), (-7.0, 0.05), (0.0, 1.5)])
def test_centred_bounds_hold_nearly_all_values_and_little_else(centre, sd):
    """Forty searches with 1,000 values at ε = .5; a failure has probability below 1e-40 (the stated bound)."""
    rng = rng_of(1)
    for _ in range(40):
        values = rng.normal(centre, sd, 1000)
        low, high, _ = centred_bounds(values, public_range=(-10, 10), epsilon=0.5, rng=rng)
        assert ((low <= values) & (values <= high)).mean() > 0.93
        assert 3.5 * sd < high - low < 12 * sd


def test_centred_bounds_stay_in_the_public_range_whatever_the_values():
    for values in (np.full(50, 1e9), np.full(50, -1e9), np.full(50, np.nan), np.array([3.0])):
        for epsilon in (1e-6, 1.0, 1e3):
            low, high, _ = centred_bounds(values, public_range=(-1, 2), epsilon=epsilon, rng=rng_of(2))
            assert -1 <= low < high <= 2


def test_candidates_cover_the_range_and_grow_narrow_to_the_resolution():
    starts, widths, rewards = Centred((-1.0, 3.0), resolution=64)._candidates()
    assert starts.min() == -1
    assert (starts + widths).max() <= 3 + 1e-12
    assert widths.max() == 4
    assert widths.min() == pytest.approx(4 / 64)
    assert rewards[np.argmax(widths)] == 0
    assert rewards[np.argmin(widths)] == pytest.approx(1)
    for width in np.unique(widths):
        at = np.sort(starts[widths == width])
        assert at[-1] + width >= 3 - width / 8 - 1e-9  # no gap at the upper end
        if len(at) > 1:
            assert np.diff(at) == pytest.approx(width / 8)


def test_the_failure_bound_holds_where_failures_can_be_seen():
    """60 values at ε = .3: misses are counted in 300 searches; the bound is not below their rate (by 4 sds)."""
    rng = rng_of(3)
    misses = 0
    for _ in range(300):
        values = rng.normal(1.0, 0.01, 60)
        low, high, _ = centred_bounds(values, public_range=(-10, 10), epsilon=0.3, rng=rng)
        misses += not (low < 1.0 < high)
    search = Centred((-10, 10))
    bound = search._failure(60, 0.3)
    assert misses / 300 <= bound + 4 * np.sqrt(bound / 300)
    assert search._failure(60, 0.3, width=10.0) < search._failure(60, 0.3, width=0.2) <= bound


def test_doubled_bounds_are_the_first_power_of_two_that_holds_theta_of_the_values():
    """(1 - θ)M = 50 exceeds (4/ε) ln(1/β) for β = 1e-10 at ε = 2: no search of twenty stops elsewhere."""
    rng = rng_of(4)
    for _ in range(20):
        found = doubled_bounds(rng.normal(2.9, 0.1, 1000), epsilon=2.0, rng=rng)
        assert found == (-4.0, 4.0, True)
    found = doubled_bounds(rng.normal(0.01, 0.001, 1000), epsilon=2.0, start=0.002, rng=rng)
    assert found.high == pytest.approx(0.016)


def test_a_doubling_search_that_finds_nothing_takes_the_widest_bounds():
    found = doubled_bounds(np.full(1000, 1e9), epsilon=1.0, doublings=5, rng=rng_of(5))
    assert found == (-32.0, 32.0, False)
    assert doubled_bounds(np.full(1000, 1e9), epsilon=1.0, doublings=0, rng=rng_of(5)) == (-1.0, 1.0, False)


def test_the_threshold_is_a_share_of_the_partitions():
    """As printed, θ times the number of records (here 100 a partition) can never be reached."""
    found = doubled_bounds(np.full(1000, 0.5), epsilon=5.0, rng=rng_of(6))
    assert found.found
    assert found.high == 1.0


def test_failed_partitions_do_not_stop_a_doubling_search():
    values = np.where(np.arange(1000) < 300, np.nan, 0.5)
    assert doubled_bounds(values, epsilon=5.0, rng=rng_of(7)).high == 1.0


def test_the_failure_bound_of_doubling_holds_where_failures_can_be_seen():
    """30 values beyond 1, θ = .6, ε = 1.5: searches that stop at 1 are counted in 2,000; bound plus 4 sds."""
    rng = rng_of(8)
    early = sum(
        doubled_bounds(np.full(30, 1.5), epsilon=1.5, theta=0.6, doublings=1, rng=rng).high == 1 for _ in range(2000)
    )
    bound = SparseVector(theta=0.6, doublings=0)._failure(30, 1.5)
    assert early / 2000 <= bound + 4 * np.sqrt(bound / 2000)
    assert SparseVector(theta=0.4)._failure(10, 1.0) == 1.0


def test_a_public_range_cuts_what_doubling_finds():
    search = SparseVector(start=4.0, public_range=(-1.0, 6.0))
    assert release_bounds(np.full(1000, 0.5), search, epsilon=5.0, rng=rng_of(6)) == (-1.0, 4.0, True)


# Privacy -------------------------------------------------------------------------------------------------------------

PAIR = (np.array([0.3]), np.array([0.7]))  # one partition, all of it replaced


def centred(values, rng):
    found = centred_bounds(values, public_range=(0, 1), epsilon=2.0, resolution=2, rng=rng)
    return found.low, found.high


def doubled(values, rng):
    found = doubled_bounds(values, epsilon=2.0, start=0.5, doublings=2, theta=0.5, rng=rng)
    return found.high


@pytest.mark.parametrize("search", [centred, doubled])
def test_an_audit_does_not_refute_a_search_and_sees_some_of_its_epsilon(search):
    """The bound exceeds a true epsilon of 2 with probability at most 1e-3."""
    found = epsilon_lower_bound(search, *PAIR, trials=4000, rng=rng_of(9))
    assert 0.25 < found <= 2.0


def test_an_audit_refutes_a_search_with_too_little_noise(monkeypatch):
    """Mutants: the exponential mechanism and the sparse vector with a sixth of their noise."""
    choose, above = module.noise.choose, module.above_threshold
    monkeypatch.setattr(module.noise, "choose", lambda u, s, e, rng: choose(u, s, 6 * e, rng))
    monkeypatch.setattr(module, "above_threshold", lambda *a, epsilon, **k: above(*a, epsilon=6 * epsilon, **k))
    for search in (centred, doubled):
        assert epsilon_lower_bound(search, *PAIR, trials=3000, rng=rng_of(10)) > 2.0


def test_the_counts_of_a_replaced_value_change_by_one_and_in_one_direction():
    """What the proofs need, by brute force: utilities move by at most 1, nested counts all the same way."""
    rng = rng_of(11)
    starts, widths, _ = Centred((-5.0, 5.0), resolution=32)._candidates()
    for _ in range(200):
        values = rng.normal(0, 3, 12)
        other = values.copy()
        other[rng.integers(12)] = rng.choice([rng.normal(0, 3), 1e12, -1e12, 0.0])
        counts = [
            ((np.clip(each, -5, 5)[:, None] >= starts) & (np.clip(each, -5, 5)[:, None] <= starts + widths)).sum(axis=0)
            for each in (values, other)
        ]
        assert np.abs(counts[0] - counts[1]).max() <= 1
        nested = [np.array([(np.abs(each) <= 2.0**t).sum() for t in range(10)]) for each in (values, other)]
        change = nested[0] - nested[1]
        assert np.abs(change).max() <= 1
        assert (change >= 0).all() or (change <= 0).all()


def test_budgets_are_charged_before_anything_is_drawn():
    budget = PrivacyBudget(0.5)
    before = rng_of(12)
    for search in (
        lambda rng: centred_bounds([1.0], public_range=(0, 2), epsilon=1.0, rng=rng, budget=budget),
        lambda rng: doubled_bounds([1.0], epsilon=1.0, rng=rng, budget=budget),
    ):
        with pytest.raises(BudgetExceeded):
            search(before)
    assert before.random() == rng_of(12).random()
    doubled_bounds([1.0], epsilon=0.3, rng=before, budget=budget)
    centred_bounds([1.0], public_range=(0, 2), epsilon=0.2, rng=before, budget=budget)
    assert budget.remaining == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: centred_bounds([], public_range=(0, 1), epsilon=1.0), "data must be a list"),
        (lambda: centred_bounds([1.0], public_range=(1, 0), epsilon=1.0), "public_range must have low < high"),
        (lambda: centred_bounds([1.0], public_range=(0, 1), epsilon=0.0), "epsilon must be greater than 0"),
        (lambda: centred_bounds([1.0], public_range=(0, 1), epsilon=1.0, resolution=1), "resolution must be at least"),
        (lambda: centred_bounds([1.0], public_range=(0, 1), epsilon=1.0, rng=3), "rng must be None"),
        (lambda: doubled_bounds([1.0], epsilon=1.0, theta=1.0), "theta must lie strictly"),
        (lambda: doubled_bounds([1.0], epsilon=1.0, start=0.0), "start must be greater"),
        (lambda: doubled_bounds([1.0], epsilon=1.0, doublings=-1), "doublings must be at least 0"),
        (lambda: doubled_bounds([1.0], epsilon=1.0, doublings=2000), "doublings must keep"),
        (lambda: release_bounds([1.0], (0.0, 1.0), epsilon=1.0), "search must be Centred"),
        (lambda: Centred((0, 1), share=0.0), "share must lie strictly"),
        (lambda: SparseVector(share=1.5), "share must lie strictly"),
        (lambda: SparseVector(public_range=(1, 1)), "public_range must have low < high"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
