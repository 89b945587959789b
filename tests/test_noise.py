"""Tests of dpbook.noise: both sources draw from the right law, and the real one leaks nothing through its floats.

Tests on real noise cannot be seeded. Each of their checks rejects a right sampler with probability at most 10⁻⁷.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpbook import noise, regression
from dpbook.accounting import discrete_gaussian_delta, gaussian_loss, gaussian_scale
from dpbook.audit import epsilon_lower_bound
from dpbook.records import ExactSum

Floats = NDArray[np.float64]
FALSE_ALARM = 1e-7
SOURCES = pytest.mark.parametrize("seed", [11, None], ids=["seeded", "real"])


def source(seed: int | None) -> np.random.Generator | None:
    return None if seed is None else np.random.default_rng(seed)


def assert_law(sample: Floats, cdf: Callable[[Floats], Floats]) -> None:
    """Fail, with probability 10⁻⁷ for a right sampler, unless the sample passes Kolmogorov and Smirnov's test."""
    assert stats.kstest(sample, cdf).pvalue > FALSE_ALARM


def assert_counts(counts: NDArray[Any], probabilities: Floats) -> None:
    """Fail, with probability 10⁻⁷ for a right sampler, unless the counts pass the chi-square test."""
    probabilities = np.asarray(probabilities) / np.sum(probabilities)
    assert stats.chisquare(counts, counts.sum() * probabilities).pvalue > FALSE_ALARM


# The laws -------------------------------------------------------------------------------------------------------------


def assert_chi_square(statistic: float, freedom: int) -> None:
    """Fail, with probability 10⁻⁷ under that law, unless the statistic is one that a chi-square variable takes."""
    low, high = stats.chi2(freedom).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    assert low < statistic < high


@SOURCES
def test_laplace_noise_has_the_laplace_law(seed: int | None) -> None:
    runs = 50_000 if seed else 6000
    noisy, scale = noise.add_laplace(np.full(runs, 40.0), 3.0, 0.5, source(seed))
    assert scale == pytest.approx(6.0, rel=1e-12)
    assert_law(noisy, stats.laplace(40, 6).cdf)
    assert_chi_square(2 * np.sum(np.abs(noisy - 40)) / 6, 2 * runs)  # sees a scale that is wrong by 10 %


@SOURCES
def test_gaussian_noise_has_the_normal_law(seed: int | None) -> None:
    runs = 50_000 if seed else 4000
    noisy = noise.add_gaussian(np.full(runs, -7.0), 2.5, source(seed))
    assert_law(noisy, stats.norm(-7, 2.5).cdf)
    assert_chi_square(np.sum((noisy + 7) ** 2) / 2.5**2, runs)


@SOURCES
def test_entries_of_an_array_get_independent_noise_and_keep_their_places(seed: int | None) -> None:
    value = np.array([[0.0, 1e6], [2e6, 3e6]])
    for noisy in (
        noise.add_laplace(value, 1.0, 1.0, source(seed))[0],
        noise.add_gaussian(value, 1.0, source(seed)),
    ):
        assert noisy.shape == (2, 2)
        assert np.abs(noisy - value).max() < 100  # fails with probability below 10⁻⁴²
        assert len(np.unique(noisy - value)) == 4


@SOURCES
@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1, 0.7), (2, 3.0), (1, 4.0)])
def test_geometric_noise_has_the_two_sided_geometric_law(seed: int | None, sensitivity: int, epsilon: float) -> None:
    runs, ratio = 8000, math.exp(-epsilon / sensitivity)
    noisy = noise.add_geometric(np.full(runs, 100), sensitivity, epsilon, source(seed)) - 100
    assert noisy.dtype == np.int64
    reach = math.floor(math.log(runs / 50) / -math.log(ratio))  # clipped there, each end still expects about 50 draws
    steps = np.arange(-reach, reach + 1)
    law = (1 - ratio) / (1 + ratio) * ratio ** np.abs(steps)
    law[[0, -1]] = ratio**reach / (1 + ratio)
    assert law.sum() == pytest.approx(1)
    assert_counts(np.bincount(np.clip(noisy, -reach, reach) + reach, minlength=2 * reach + 1), law)


@SOURCES
def test_a_choice_falls_on_each_candidate_in_proportion_to_its_weight(seed: int | None) -> None:
    rng, runs = source(seed), 8000 if seed else 2500
    utilities = np.array([3.0, 1.0, 0.0, 2.5, -2.0])
    drawn = [noise.choose(utilities, 2.0, 3.0, rng) for _ in range(runs)]
    assert_counts(np.bincount(drawn, minlength=5), np.exp(3.0 * utilities / (2 * 2.0)))


@SOURCES
@pytest.mark.parametrize(("count", "runs"), [(2, 20_000), (4, 2000)])
def test_flips_keep_the_truth_with_the_right_odds_and_lie_evenly(seed: int | None, count: int, runs: int) -> None:
    epsilon = 1.2
    reported = noise.flip(np.ones((runs // 10, 10), dtype=np.int64), count, epsilon, source(seed))
    assert reported.shape == (runs // 10, 10)
    weights = np.ones(count)
    weights[1] = math.exp(epsilon)
    assert_counts(np.bincount(reported.ravel(), minlength=count), weights)


def test_real_flips_of_neighbouring_bits_are_independent_and_keep_their_places() -> None:
    bits = np.arange(11) % 2
    assert np.array_equal(noise.flip(bits, 2, 60.0, None), bits)  # a flip has probability below 10⁻²⁵
    pairs = noise.flip(np.zeros((20_000, 2), dtype=np.int64), 2, 0.5, None)
    lie = 1 / (1 + math.exp(0.5))
    cells = np.bincount(2 * pairs[:, 0] + pairs[:, 1], minlength=4)
    assert_counts(cells, np.array([(1 - lie) ** 2, lie * (1 - lie), lie * (1 - lie), lie**2]))


@SOURCES
def test_noise_on_a_fixed_point_sum_has_the_right_law(seed: int | None) -> None:
    total = ExactSum(np.full(4000, 5 << 20), 2.0**-20, 10)
    noisy, scale = noise.add_laplace_to_sum(total, 3.0, 0.5, source(seed))
    assert scale == pytest.approx(6.0, rel=1e-12)
    assert_law(noisy, stats.laplace(5, 6).cdf)
    assert_chi_square(2 * np.sum(np.abs(noisy - 5)) / 6, 8000)
    noisy = noise.add_gaussian_to_sum(total, 2.0, source(seed))
    assert_law(noisy, stats.norm(5, 2).cdf)
    assert_chi_square(np.sum((noisy - 5) ** 2) / 4, 4000)


def test_real_noise_on_a_fixed_point_sum_stays_on_its_grid() -> None:
    total = ExactSum(np.array([5, -5, 1 << 40]), 2.0**-10, 10)
    for noisy in (noise.add_laplace_to_sum(total, 1.0, 0.5, None)[0], noise.add_gaussian_to_sum(total, 2.0, None)):
        assert np.array_equal(noisy * 2.0**10, np.rint(noisy * 2.0**10))


@pytest.mark.parametrize("unit", [2.0**-32, 2.0**-3, 1.0, 8.0])
@pytest.mark.parametrize("sensitivity", [0.3, 1.0, 2.5, 17.0])
@pytest.mark.parametrize("epsilon", [1e-3, 0.7, 8.0, 200.0])
def test_laplace_noise_on_a_grid_keeps_its_promise_however_coarse(
    unit: float, sensitivity: float, epsilon: float
) -> None:
    """Totals move by whole steps; a vector of L1 norm k steps costs exactly k steps / scale, however many entries."""
    total = ExactSum(np.array([0, 0, 0]), unit, 1)
    for rng in (None, np.random.default_rng(2)):
        scale = Fraction(noise.add_laplace_to_sum(total, sensitivity, epsilon, rng)[1])
        farthest = math.floor(Fraction(sensitivity) / Fraction(unit))
        assert farthest * Fraction(unit) / scale <= Fraction(epsilon) * (1 + Fraction(1, 2**50))


def test_gaussian_noise_of_a_regression_knows_its_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an intercept nothing can be centred, so that narrow bounds far from zero span few steps of its grid."""
    seen: list[tuple[ExactSum, float]] = []
    original = noise.add_gaussian_to_sum
    monkeypatch.setattr(noise, "add_gaussian_to_sum", lambda *a: seen.append(a[:2]) or original(*a))
    for bounds in ((0.0, 1.0), (1e9, 1e9 + 1), (1e10, 1e10 + 1)):
        release = regression.release(
            np.full(3, bounds[0]),
            np.full(3, bounds[1]),
            x_bounds=bounds,
            y_bounds=bounds,
            epsilon=8.0,
            delta=1e-4,
            mechanism="gaussian",
            intercept=False,
        )
        total, scale = seen.pop()
        needed = gaussian_scale(
            sensitivity=release.sensitivity["sums"], epsilon=8.0, delta=1e-4, unit=total.unit, statistics=3
        )
        assert scale == release.scale["sums"] == needed
        if scale < 2**16 * total.unit:
            shift = math.floor(release.sensitivity["sums"] / total.unit)
            assert discrete_gaussian_delta(8.0, shift, scale / total.unit) <= 1e-4


def test_a_sensitivity_off_the_grid_is_rounded_up_to_it() -> None:
    total = ExactSum(np.array([0]), 1.0, 1)
    for rng in (None, np.random.default_rng(1)):
        assert noise.add_laplace_to_sum(total, 2.5, 1.0, rng)[1] == pytest.approx(3.0, rel=1e-12)


@SOURCES
def test_counts_at_the_end_of_64_bits_saturate_and_never_wrap_around(seed: int | None) -> None:
    limits = np.iinfo(np.int64)
    high = noise.add_geometric(np.full(200, limits.max), 1, 0.01, source(seed))
    low = noise.add_geometric(np.full(200, limits.min), 1, 0.01, source(seed))
    assert high.min() > 0
    assert low.max() < 0
    assert (high == limits.max).any()  # half of the draws, each
    assert (low == limits.min).any()


def test_a_seeded_choice_survives_utilities_that_overflow() -> None:
    rng = np.random.default_rng(1)
    assert noise.choose(np.array([1e308, 1.1e308, -1e308]), 1e-5, 1e3, rng) == 1
    assert noise.choose(np.array([1e308, 1.1e308, -1e308]), 1e-5, 1e3, None) == 1


# What OpenDP's own accounting says ------------------------------------------------------------------------------------

ARGUMENTS = list(itertools.product([1.0, 0.1, 1 / 3, 7.3, 1e-6, 1e6], [1e-3, 0.1, 1 / 3, 1.0, math.pi, 1e3]))


def test_the_real_scale_satisfies_opendps_privacy_map_and_is_hardly_wider_than_needed() -> None:
    dp = noise._opendp()

    floats = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    integers = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    for sensitivity, epsilon in ARGUMENTS:
        _, scale = noise.add_laplace(np.zeros(1), sensitivity, epsilon, None)
        assert dp.m.make_laplace(*floats, scale=scale).map(sensitivity) <= epsilon
        assert 0 <= scale * epsilon / sensitivity - 1 + 1e-15 < 1e-13
        unit = 2.0**-30
        _, scale = noise.add_laplace_to_sum(ExactSum(np.zeros(1, dtype=np.int64), unit, 1), sensitivity, epsilon, None)
        steps = math.ceil(sensitivity / unit)
        assert dp.m.make_laplace(*integers, scale=scale / unit).map(steps) <= epsilon


def test_a_real_choice_satisfies_opendps_privacy_map() -> None:
    for sensitivity, epsilon in ARGUMENTS:
        assert noise._noisy_max(sensitivity, epsilon).map(sensitivity) <= epsilon**2 / 8


@pytest.mark.parametrize("count", [2, 3, 10])
def test_real_flips_satisfy_opendps_privacy_map(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record the probabilities that are handed to OpenDP's samplers and ask its accounting about the last."""
    dp = noise._opendp()
    used: list[float] = []
    bits, codes = dp.m.make_randomized_response_bitvec, dp.m.make_randomized_response

    def recorded_bits(*space: Any, f: float) -> Any:
        used.append(1 - f / 2)
        return bits(*space, f=f)

    def recorded_codes(names: list[int], truth: float) -> Any:
        used.append(truth)
        return codes(names, truth)

    monkeypatch.setattr(dp.m, "make_randomized_response_bitvec", recorded_bits)
    monkeypatch.setattr(dp.m, "make_randomized_response", recorded_codes)
    for epsilon in (1e-12, 1e-3, 0.1, 1.0, math.pi, 20.0, 36.0, 1e3):
        noise.flip(np.zeros(1, dtype=np.int64), count, epsilon, None)
        assert codes(list(range(count)), used[-1]).map(1) <= epsilon
        wanted = 1 / (1 + (count - 1) * math.exp(-epsilon))
        assert used[-1] == pytest.approx(wanted, rel=1e-13)


# The attack on floating-point noise (Mironov 2012) --------------------------------------------------------------------
#
# A textbook Laplace sampler turns a uniform k/2⁵³ into f + noise(k). An attacker who sees y can try all k near the one
# that y - f asks for: if none gives y to the last bit, the exact answer was not f.

log = np.vectorize(math.log)  # the C library's logarithm, which NumPy's sampler uses
log1p = np.vectorize(math.log1p)


def inverse_cdf(k: Floats, f: float) -> Floats:
    """Textbook noise: the inverse distribution function at a uniform number."""
    u = k * 2.0**-53 - 0.5
    inside = np.abs(u) < 0.5
    return np.where(inside, f - np.sign(u) * log1p(np.where(inside, -2 * np.abs(u), 0.0)), np.nan)


def numpy_laplace(k: Floats, f: float) -> Floats:
    """What ``f + rng.laplace()`` computes from the generator's uniform k/2⁵³."""
    u = k * 2.0**-53
    twice = np.where(u >= 0.5, 2.0 - u - u, u + u)
    inside = (twice > 0) & (twice <= 1)
    return np.where(inside, f + np.where(u >= 0.5, -1, 1) * log(np.where(inside, twice, 1.0)), np.nan)


def reachable(y: Floats, f: float, sampler: Callable[[Floats, float], Floats]) -> NDArray[np.bool_]:
    """Return which outputs a sampler can produce, for some uniform, when the exact answer is f."""
    tail = np.exp(-np.abs(y - f)) / 2
    k = np.rint(np.where(y > f, 1 - tail, tail) * 2.0**53)
    return np.asarray(np.any([sampler(k + step, f) == y for step in range(-8, 9)], axis=0))


@pytest.mark.parametrize("sampler", [inverse_cdf, numpy_laplace])
def test_textbook_noise_betrays_the_exact_answer_by_the_doubles_it_can_reach(sampler: Any) -> None:
    rng = np.random.default_rng(5)

    def draw(f: float) -> Floats:
        if sampler is numpy_laplace:
            return np.asarray(f + rng.laplace(size=2000))
        return np.asarray(sampler(np.floor(rng.random(2000) * 2.0**53), f))

    from_zero, from_one = draw(0.0), draw(1.0)
    assert reachable(from_zero, 0.0, sampler).all()  # the attacker's model of the sampler is exact …
    assert reachable(from_one, 1.0, sampler).all()
    assert reachable(from_zero, 1.0, sampler).mean() < 0.25  # … and about 80 % of answers give themselves away
    assert reachable(from_one, 0.0, sampler).mean() < 0.25


def attack_scores(add: Callable[[Floats], Floats]) -> Callable[..., Floats]:
    """Return a release whose output is the attacker's verdict: 1 if y can come from 0 but not from 1."""

    def release(f: float, rng: np.random.Generator, trials: int) -> Floats:
        y = add(np.full(trials, f))
        return (reachable(y, 0.0, numpy_laplace) & ~reachable(y, 1.0, numpy_laplace)).astype(float)

    return release


def test_the_attack_refutes_epsilon_for_seeded_noise_and_not_for_real_noise() -> None:
    """The claim is epsilon = 1 for sensitivity 1; the audit of real noise errs with probability 10⁻⁷."""
    rng = np.random.default_rng(6)
    teaching = attack_scores(lambda value: noise.add_laplace(value, 1.0, 1.0, rng)[0])
    assert epsilon_lower_bound(teaching, 0.0, 1.0, trials=4000, batched=True, rng=rng) > 4
    real = attack_scores(lambda value: noise.add_laplace(value, 1.0, 1.0, None)[0])
    bound = epsilon_lower_bound(real, 0.0, 1.0, trials=4000, batched=True, confidence=1 - FALSE_ALARM, rng=rng)
    assert bound <= 1


def test_small_outputs_of_real_noise_have_all_their_bits_whatever_the_exact_answer() -> None:
    """Float addition 1 + noise drops the low bits of a result near 0; an exact sum, rounded once, keeps them.

    A double in (2⁻⁵, 2⁻⁴) has spacing 2⁻⁵⁷, so a right sampler hits a multiple of 2⁻⁵³ there one time in 16. Real
    outputs are tested by the binomial law at 10⁻⁷.
    """

    def on_coarse_grid(y: Floats) -> NDArray[np.bool_]:
        near = y[(np.abs(y) > 2.0**-5) & (np.abs(y) < 2.0**-4)]
        assert len(near) > 50
        return np.asarray(near * 2.0**53 == np.rint(near * 2.0**53))

    teaching = noise.add_laplace(np.ones(8000), 1.0, 1.0, np.random.default_rng(7))[0]
    assert on_coarse_grid(teaching).all()
    for exact in (0.0, 1.0):
        coarse = on_coarse_grid(noise.add_laplace(np.full(8000, exact), 1.0, 1.0, None)[0])
        assert stats.binomtest(int(coarse.sum()), coarse.size, 1 / 16).pvalue > FALSE_ALARM


# Scale ----------------------------------------------------------------------------------------------------------------


def test_large_arrays_and_empty_ones_are_served_by_both_sources() -> None:
    for rng in (None, np.random.default_rng(3)):
        size = 1_000_000 if rng else 20_000
        assert noise.add_geometric(np.zeros(size, dtype=np.int64), 1, 1.0, rng).shape == (size,)
        assert noise.add_laplace(np.zeros(0), 1.0, 1.0, rng)[0].shape == (0,)
        assert noise.add_gaussian(np.zeros((0, 3)), 1.0, rng).shape == (0, 3)
        assert noise.flip(np.zeros(0, dtype=np.int64), 2, 1.0, rng).shape == (0,)
    assert noise.flip(np.zeros(200_000, dtype=np.int64), 2, 1.0, None).shape == (200_000,)


def test_a_scale_that_opendp_keeps_rejecting_is_an_error_and_not_a_release() -> None:
    with pytest.raises(RuntimeError, match="rejects the noise scale"):
        noise._widen(1.0, lambda scale: True)


@pytest.mark.parametrize(
    ("ask", "because"),
    [
        (lambda: noise.require_laplace_on_sum(2.0**-32, 1.0, 1e-9, None), r"epsilon must be at least 5\.96e-08"),
        (lambda: noise.require_laplace_on_sum(2.0**-900, 2.0**-900, 1e20, None), "the noise has no scale"),
        (lambda: noise.require_gaussian_on_sum(2.0**-32, 1e9), r"a scale of 1e\+09 exceeds 1\.68e\+07"),
        (lambda: noise.require_choice(1.0, 1e-200, None), "epsilon must lie between 1e-100 and 1e100, got 1e-200"),
        (lambda: noise.require_choice(1e250, 1e-60, None), "sensitivity / epsilon must lie between"),
        (lambda: noise.require_flips(2, 1e101, None), r"epsilon must lie between 1e-100 and 1e100, got 1e\+101"),
        (lambda: noise.require_flips(2**21, 1.0, None), "categories must be at most 1048576"),
    ],
)
def test_what_cannot_be_drawn_is_said_beforehand(ask: Callable[[], None], because: str) -> None:
    with pytest.raises(ValueError, match=because):
        ask()


def test_noise_by_its_mechanism_is_that_of_the_mechanism_and_tells_its_scale():
    total = ExactSum(np.array([5, -3], dtype=np.int64), 0.5, 10)
    given = {"unit": 0.5, "statistics": 2}
    laplace = noise.on_sum("laplace", 2.0, 1.0, 0.0, source(1), **given).add(total)
    assert laplace[0].tolist() == noise.add_laplace_to_sum(total, 2.0, 1.0, source(1))[0].tolist()
    assert laplace[1] == 2.0
    gaussian = noise.on_sum("gaussian", 2.0, 1.0, 1e-5, source(1), **given)
    noisy, scale = gaussian.add(total)
    assert gaussian.loss == gaussian_loss(sensitivity=2.0, scale=scale, unit=0.5)
    assert scale == gaussian_scale(sensitivity=2.0, epsilon=1.0, delta=1e-5, **given)
    assert noisy.tolist() == noise.add_gaussian_to_sum(total, scale, source(1)).tolist()
    with pytest.raises(ValueError, match="epsilon must be at least"):
        noise.on_sum("laplace", 1.0, 1e-9, 0.0, None, unit=2.0**-32, statistics=1)  # before there is a sum


def test_noise_of_many_entries_is_drawn_in_parts_that_keep_their_order():
    value = np.arange(2 * noise._SIDE_BY_SIDE + 7).reshape(-1, 1)
    sizes = []

    def measurement(entries):
        sizes.append(len(entries))
        return [entry + 1 for entry in entries]

    found = noise._entrywise(measurement, value, np.int64)
    np.testing.assert_array_equal(found, value + 1)
    assert found.shape == value.shape
    assert len(sizes) == 3
    assert max(sizes) <= noise._SIDE_BY_SIDE
