"""Tests of dpbook.mechanisms: their laws, their charges, their errors, and audits that try to refute their epsilon.

Tests on real noise cannot be seeded; each of their checks rejects a right mechanism with probability at most 10⁻⁶.
An audit that does not refute proves nothing, so every audit here has a twin that a broken mechanism does not survive.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from dpbook import BudgetExceeded, PrivacyBudget, mechanisms, noise
from dpbook.audit import epsilon_lower_bound
from dpbook.mechanisms import (
    above_threshold,
    exponential,
    gaussian,
    gaussian_scale,
    geometric,
    laplace,
    private_quantile,
    randomized_response,
)

Floats = NDArray[np.float64]
FALSE_ALARM = 1e-6
SOURCES = pytest.mark.parametrize("seed", [21, None], ids=["seeded", "real"])

CALLS: dict[str, Callable[..., Any]] = {
    "laplace": lambda **k: laplace(3.0, sensitivity=1, **k),
    "geometric": lambda **k: geometric(3, **k),
    "gaussian": lambda **k: gaussian([3.0, 4.0], sensitivity=1, delta=1e-6, **k),
    "exponential": lambda **k: exponential("abc", [1, 2, 3], sensitivity=1, **k),
    "above_threshold": lambda **k: above_threshold([1, 2, 3], 2, sensitivity=1, **k),
    "private_quantile": lambda **k: private_quantile([1, 2, 3], 0.5, bounds=(0, 10), **k),
    "randomized_response": lambda **k: randomized_response([0, 1, 1], **k),
}
EVERY = pytest.mark.parametrize("name", CALLS)
NOISE_FUNCTIONS = ("add_laplace", "add_geometric", "add_gaussian", "choose", "flip")


def source(seed: int | None) -> np.random.Generator | None:
    return None if seed is None else np.random.default_rng(seed)


def assert_counts(counts: NDArray[Any], probabilities: Any) -> None:
    """Fail, with probability 10⁻⁶ for the right law, unless the counts pass the chi-square test."""
    expected = counts.sum() * np.asarray(probabilities) / np.sum(probabilities)
    assert expected.min() > 20  # where the chi-square law is a fair approximation
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


# The laws -------------------------------------------------------------------------------------------------------------


@SOURCES
def test_laplace_has_scale_sensitivity_over_epsilon(seed: int | None) -> None:
    noisy = laplace(np.full(4000, 10.0), sensitivity=3, epsilon=0.5, rng=source(seed))
    assert stats.kstest(noisy, stats.laplace(10, 6).cdf).pvalue > FALSE_ALARM


@SOURCES
def test_gaussian_has_the_standard_deviation_that_gaussian_scale_gives(seed: int | None) -> None:
    noisy = gaussian(np.full(3000, 10.0), sensitivity=3, epsilon=0.5, delta=1e-5, rng=source(seed))
    scale = gaussian_scale(sensitivity=3, epsilon=0.5, delta=1e-5)
    assert stats.kstest(noisy, stats.norm(10, scale).cdf).pvalue > FALSE_ALARM


@SOURCES
def test_geometric_is_the_laplace_law_on_whole_numbers(seed: int | None) -> None:
    noisy = geometric(np.full(4000, 7), epsilon=1.0, sensitivity=2, rng=source(seed))
    law = stats.dlaplace(0.5).pmf(np.arange(-6, 7))
    law[[0, -1]] = stats.dlaplace(0.5).cdf(-6)
    assert_counts(np.bincount(np.clip(noisy - 7, -6, 6) + 6, minlength=13), law)


@SOURCES
def test_exponential_draws_candidates_by_their_utilities(seed: int | None) -> None:
    rng, runs = source(seed), 4000 if seed else 1500
    drawn = [exponential("abcd", [0, 1, 2, 4], sensitivity=2, epsilon=1.5, rng=rng) for _ in range(runs)]
    counts = np.array([drawn.count(letter) for letter in "abcd"])
    assert_counts(counts, np.exp(1.5 * np.array([0, 1, 2, 4]) / 4))


@SOURCES
def test_randomized_response_tells_the_truth_with_odds_e_to_the_epsilon(seed: int | None) -> None:
    reports = randomized_response(np.ones(3000, dtype=bool), epsilon=1.0, rng=source(seed))
    assert_counts(np.bincount(reports, minlength=2), [1, math.e])
    reports = randomized_response(np.full(1200, 2), epsilon=1.0, categories=3, rng=source(seed))
    assert_counts(np.bincount(reports, minlength=3), [1, 1, math.e])


def first_above(queries: list[float], threshold: float, bar_scale: float, query_scale: float) -> Floats:
    """Return the law of the first noisy query at or above the noisy threshold, the last entry for none."""

    def probability(index: int) -> float:
        def integrand(bar: float) -> float:
            below = math.prod(stats.laplace.cdf(bar - q, scale=query_scale) for q in queries[:index])
            above = stats.laplace.sf(bar - queries[index], scale=query_scale)
            return float(below * above * stats.laplace.pdf(bar - threshold, scale=bar_scale))

        pieces = sorted({threshold, *queries, threshold - 60, threshold + 60})
        return float(sum(integrate.quad(integrand, *piece)[0] for piece in itertools.pairwise(pieces)))

    found = [probability(index) for index in range(len(queries))]
    return np.array([*found, 1 - sum(found)])


@SOURCES
@pytest.mark.parametrize("monotone", [False, True])
def test_above_threshold_stops_at_each_query_with_the_exact_probability(seed: int | None, monotone: bool) -> None:
    rng, runs = source(seed), 6000 if seed else 600
    queries, epsilon = [2.0, 5.0, 4.0], 2.0
    stops = [
        above_threshold(queries, 4.0, sensitivity=1, epsilon=epsilon, monotone=monotone, rng=rng) for _ in range(runs)
    ]
    counts = np.bincount([3 if stop is None else stop for stop in stops], minlength=4)
    assert_counts(counts, first_above(queries, 4.0, 2 / epsilon, (2 if monotone else 4) / epsilon))


def quantile_law(values: list[float], q: float, bounds: tuple[float, float], epsilon: float, edges: Floats) -> Floats:
    """Return the probability of each interval between edges under the exponential mechanism, by fine integration."""
    points = np.linspace(*bounds, 200_001)
    middle = (points[:-1] + points[1:]) / 2
    rank = np.sum(np.asarray(values)[:, None] < middle, axis=0)
    density = np.exp(-epsilon / 2 * np.abs(rank - q * len(values)))
    return np.asarray(np.histogram(middle, edges, weights=density)[0] / density.sum())


@SOURCES
@pytest.mark.parametrize("q", [0.5, 0.9])
def test_private_quantile_has_the_law_of_the_exponential_mechanism(seed: int | None, q: float) -> None:
    rng, runs = source(seed), 4000 if seed else 1200
    values, bounds = [2.0, 2.0, 3.0, 7.0, 12.0], (0.0, 10.0)  # a tie, and a value that is clipped
    drawn = [private_quantile(values, q, bounds=bounds, epsilon=1.5, grid=200, rng=rng) for _ in range(runs)]
    edges = np.array([0, 2, 3, 5, 7, 8.5, 10])
    law = quantile_law(np.clip(values, *bounds).tolist(), q, bounds, 1.5, edges)
    assert_counts(np.histogram(drawn, edges)[0], law)


def test_the_noise_of_a_generator_is_reproducible() -> None:
    for name, call in CALLS.items():
        one, other = (call(epsilon=1.0, rng=np.random.default_rng(4)) for _ in range(2))
        assert np.array_equal(one, other), name


def test_values_keep_their_type_and_shape() -> None:
    for rng in (None, np.random.default_rng(1)):
        assert type(laplace(1, sensitivity=1, epsilon=1, rng=rng)) is float
        assert type(geometric(1, epsilon=1, rng=rng)) is int
        assert type(gaussian(np.float64(1), sensitivity=1, epsilon=1, delta=0.1, rng=rng)) is float
        assert laplace(np.ones((1, 2)), sensitivity=1, epsilon=1, rng=rng).shape == (1, 2)
        assert geometric(np.zeros((3, 1), dtype=np.int64), epsilon=1, rng=rng).shape == (3, 1)
        assert type(private_quantile([1], 0, bounds=(0, 2), epsilon=1, rng=rng)) is float


# Charges --------------------------------------------------------------------------------------------------------------


@EVERY
def test_a_mechanism_charges_exactly_what_it_promises_under_its_label(name: str) -> None:
    for rng in (None, np.random.default_rng(1)):
        budget = PrivacyBudget(1.0, delta=1e-5)
        CALLS[name](epsilon=0.25, rng=rng, budget=budget)
        CALLS[name](epsilon=0.25, rng=rng, budget=budget, label="mine")
        assert [charge.label for charge in budget.ledger] == [name, "mine"]
        delta = 1e-6 if name == "gaussian" else 0.0
        assert [(charge.epsilon, charge.delta) for charge in budget.ledger] == [(0.25, delta)] * 2


@EVERY
def test_the_budget_is_charged_before_noise_is_drawn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A noise source that fails has cost its epsilon: the failure itself may depend on the noise."""

    def broken(*arguments: Any) -> Any:
        raise OSError("no entropy")

    class Broken(np.random.Generator):
        def gumbel(self, *arguments: Any, **keywords: Any) -> Any:
            raise OSError("no entropy")

    for function in NOISE_FUNCTIONS:
        monkeypatch.setattr(noise, function, broken)
    for rng in (None, Broken(np.random.PCG64(1))):
        budget = PrivacyBudget(1.0, delta=1e-5)
        with pytest.raises(OSError, match="no entropy"):
            CALLS[name](epsilon=0.25, rng=rng, budget=budget)
        assert budget.spent[0] == 0.25


@EVERY
def test_overspending_raises_and_draws_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: Any) -> Any:
        pytest.fail("noise was drawn")

    for function in NOISE_FUNCTIONS:
        monkeypatch.setattr(noise, function, forbidden)
    rng = np.random.default_rng(2)
    before = rng.bit_generator.state
    for generator in (None, rng):
        budget = PrivacyBudget(0.2, delta=1e-5)
        with pytest.raises(BudgetExceeded):
            CALLS[name](epsilon=0.25, rng=generator, budget=budget)
        assert budget.ledger == ()
    assert rng.bit_generator.state == before


def test_gaussian_needs_delta_in_the_budget() -> None:
    budget = PrivacyBudget(1.0)
    with pytest.raises(BudgetExceeded, match="delta"):
        gaussian(0.0, sensitivity=1, epsilon=0.5, delta=1e-6, budget=budget)
    assert budget.remaining == 1.0


# Errors ---------------------------------------------------------------------------------------------------------------

untyped: Any = mechanisms  # what the type checker would not let through
HIDDEN = np.ma.masked_array([1, 0], mask=[False, True])

BAD: list[tuple[str, Callable[..., Any], str]] = [
    ("laplace-nan", lambda **k: untyped.laplace(math.nan, sensitivity=1, epsilon=1, **k), "value"),
    ("laplace-text", lambda **k: untyped.laplace("x", sensitivity=1, epsilon=1, **k), "value"),
    ("laplace-sensitivity", lambda **k: untyped.laplace(1.0, sensitivity=0, epsilon=1, **k), "sensitivity"),
    ("laplace-epsilon", lambda **k: untyped.laplace(1.0, sensitivity=1, epsilon=math.nan, **k), "epsilon"),
    (
        "laplace-no-noise",
        lambda **k: untyped.laplace(1.0, sensitivity=1e-250, epsilon=1e90, **k),
        "sensitivity / epsilon",
    ),
    (
        "laplace-infinite-noise",
        lambda **k: untyped.laplace(1.0, sensitivity=1e300, epsilon=0.1, **k),
        "sensitivity / epsilon",
    ),
    ("geometric-float", lambda **k: untyped.geometric(1.5, epsilon=1, **k), "value"),
    ("geometric-wide", lambda **k: untyped.geometric(np.array([2**64 - 1], dtype=np.uint64), epsilon=1, **k), "value"),
    ("geometric-mask", lambda **k: untyped.geometric(HIDDEN, epsilon=1, **k), "value"),
    ("geometric-masked-row", lambda **k: untyped.geometric([HIDDEN, [1, 2]], epsilon=1, **k), "value"),
    ("geometric-missing", lambda **k: untyped.geometric([1, None], epsilon=1, **k), "value"),
    ("geometric-text", lambda **k: untyped.geometric(np.array([1, "2"], dtype=object), epsilon=1, **k), "value"),
    ("geometric-large", lambda **k: untyped.geometric([1, 10**400], epsilon=1, **k), "value"),
    ("geometric-sensitivity", lambda **k: untyped.geometric(1, sensitivity=1.5, epsilon=1, **k), "sensitivity"),
    ("geometric-epsilon", lambda **k: untyped.geometric(1, epsilon=-1, **k), "epsilon"),
    ("geometric-too-wide", lambda **k: untyped.geometric(1, epsilon=1e-25, **k), "sensitivity / epsilon"),
    ("gaussian-delta", lambda **k: untyped.gaussian(1.0, sensitivity=1, epsilon=1, delta=0, **k), "delta"),
    ("gaussian-delta-1", lambda **k: untyped.gaussian(1.0, sensitivity=1, epsilon=1, delta=1, **k), "delta"),
    (
        "gaussian-sensitivity",
        lambda **k: untyped.gaussian(1.0, sensitivity=-1, epsilon=1, delta=0.1, **k),
        "sensitivity",
    ),
    ("gaussian-inf", lambda **k: untyped.gaussian([math.inf], sensitivity=1, epsilon=1, delta=0.1, **k), "value"),
    (
        "exponential-nan",
        lambda **k: untyped.exponential("ab", [1, math.nan], sensitivity=1, epsilon=1, **k),
        "utilities",
    ),
    ("exponential-length", lambda **k: untyped.exponential("abc", [1, 2], sensitivity=1, epsilon=1, **k), "candidates"),
    ("exponential-none", lambda **k: untyped.exponential([], [], sensitivity=1, epsilon=1, **k), "candidates"),
    ("exponential-no-sequence", lambda **k: untyped.exponential(5, [1], sensitivity=1, epsilon=1, **k), "candidates"),
    ("exponential-matrix", lambda **k: untyped.exponential("ab", [[1, 2]], sensitivity=1, epsilon=1, **k), "utilities"),
    ("threshold-nan", lambda **k: untyped.above_threshold([1], math.nan, sensitivity=1, epsilon=1, **k), "threshold"),
    (
        "threshold-queries",
        lambda **k: untyped.above_threshold([1, math.inf], 1, sensitivity=1, epsilon=1, **k),
        "queries",
    ),
    ("threshold-number", lambda **k: untyped.above_threshold(3, 1, sensitivity=1, epsilon=1, **k), "queries"),
    (
        "threshold-monotone",
        lambda **k: untyped.above_threshold([1], 1, sensitivity=1, epsilon=1, monotone=1, **k),
        "monotone",
    ),
    ("threshold-epsilon", lambda **k: untyped.above_threshold([1], 1, sensitivity=1, epsilon=1e-12, **k), "epsilon"),
    ("quantile-empty", lambda **k: untyped.private_quantile([], 0.5, bounds=(0, 1), epsilon=1, **k), "values"),
    ("quantile-nan", lambda **k: untyped.private_quantile([math.nan], 0.5, bounds=(0, 1), epsilon=1, **k), "values"),
    ("quantile-q", lambda **k: untyped.private_quantile([1], 1.01, bounds=(0, 1), epsilon=1, **k), "q"),
    ("quantile-negative-q", lambda **k: untyped.private_quantile([1], -0.1, bounds=(0, 1), epsilon=1, **k), "q"),
    ("quantile-bounds", lambda **k: untyped.private_quantile([1], 0.5, bounds=(1, 1), epsilon=1, **k), "bounds"),
    ("quantile-one-bound", lambda **k: untyped.private_quantile([1], 0.5, bounds=1, epsilon=1, **k), "bounds"),
    ("quantile-wide", lambda **k: untyped.private_quantile([1], 0.5, bounds=(-1e308, 1e308), epsilon=1, **k), "bounds"),
    ("quantile-grid", lambda **k: untyped.private_quantile([1], 0.5, bounds=(0, 1), epsilon=1, grid=1, **k), "grid"),
    ("response-code", lambda **k: untyped.randomized_response([0, 2], epsilon=1, **k), "answers"),
    ("response-negative", lambda **k: untyped.randomized_response([-1], epsilon=1, **k), "answers"),
    ("exponential-set", lambda **k: untyped.exponential({1, 2}, [1, 2], sensitivity=1, epsilon=1, **k), "candidates"),
    (
        "exponential-mapping",
        lambda **k: untyped.exponential({1: 0, 2: 0}, [1, 2], sensitivity=1, epsilon=1, **k),
        "candidates",
    ),
    ("response-mask", lambda **k: untyped.randomized_response(HIDDEN, epsilon=1, **k), "answers"),
    ("response-masked-list", lambda **k: untyped.randomized_response([np.ma.masked, 1], epsilon=1, **k), "answers"),
    ("response-large", lambda **k: untyped.randomized_response([1, 10**400], epsilon=1, **k), "answers"),
    ("response-float", lambda **k: untyped.randomized_response([0.5], epsilon=1, **k), "answers"),
    ("response-categories", lambda **k: untyped.randomized_response([0], epsilon=1, categories=1, **k), "categories"),
]


@pytest.mark.parametrize(("call", "argument"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_a_wrong_argument_is_named_and_nothing_is_spent_or_drawn(call: Callable[..., Any], argument: str) -> None:
    rng, budget = np.random.default_rng(3), PrivacyBudget(2.0, delta=0.5)
    before = rng.bit_generator.state
    for generator in (rng, None):
        with pytest.raises((ValueError, TypeError), match=rf"^{argument}(\[\d\])? must"):
            call(rng=generator, budget=budget)
    assert budget.ledger == ()
    assert rng.bit_generator.state == before


@EVERY
def test_a_seed_is_not_a_generator_and_a_number_is_not_a_budget(name: str) -> None:
    budget = PrivacyBudget(1.0, delta=0.5)
    with pytest.raises(TypeError, match=r"^rng must"):
        CALLS[name](epsilon=0.5, rng=1, budget=budget)
    assert budget.ledger == ()
    with pytest.raises(TypeError, match=r"^budget must"):
        CALLS[name](epsilon=0.5, rng=np.random.default_rng(1), budget=1.0)


def test_a_lazy_query_is_checked_when_it_comes_and_read_no_further_than_needed() -> None:
    def queries() -> Iterator[float]:
        yield 0.0
        yield 1000.0
        pytest.fail("read beyond the first success")

    rng, budget = np.random.default_rng(1), PrivacyBudget(1.0)
    assert above_threshold(queries(), 500, sensitivity=1, epsilon=1.0, rng=rng, budget=budget) == 1
    with pytest.raises(ValueError, match=r"^queries must be finite"):
        above_threshold(iter([math.nan]), 500, sensitivity=1, epsilon=1.0, rng=rng)


def test_a_quantile_of_records_beyond_all_bounds_is_that_of_the_clipped_ones() -> None:
    def median(values: Any) -> float:
        return private_quantile(values, 0.5, bounds=(0, 1), epsilon=1.0, rng=np.random.default_rng(1))

    for far in (math.inf, 1.7e308, 10**400, 2**64):
        assert median([-far, 0.2, 0.3, 0.4, far]) == median([0, 0.2, 0.3, 0.4, 1])
    for missing in (math.nan, None, np.ma.masked):
        with pytest.raises(ValueError, match=r"^values must have no missing values"):
            median([0.5, missing])


# Extremes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-3, 1e3])
@EVERY
def test_tiny_and_huge_epsilons_work_with_both_sources(name: str, epsilon: float) -> None:
    for rng in (None, np.random.default_rng(1)):
        CALLS[name](epsilon=epsilon, rng=rng)


def test_at_epsilon_1000_answers_are_all_but_exact() -> None:
    for rng in (None, np.random.default_rng(1)):
        assert abs(laplace(5.0, sensitivity=1, epsilon=1e3, rng=rng) - 5) < 0.05  # e^-50 to fail
        assert geometric(5, epsilon=1e3, rng=rng) == 5
        assert exponential("abc", [1, 3, 2], sensitivity=1, epsilon=1e3, rng=rng) == "b"
        assert above_threshold([1, 2, 3], 2.5, sensitivity=1, epsilon=1e3, rng=rng) == 2
        assert above_threshold([1, 2], 2.5, sensitivity=1, epsilon=1e3, rng=rng) is None
        assert 3 <= private_quantile([1, 3, 4, 9], 0.5, bounds=(0, 10), epsilon=1e3, rng=rng) <= 4
        assert randomized_response([1, 0, 1], epsilon=1e3, rng=rng).tolist() == [1, 0, 1]


def test_huge_values_neither_overflow_nor_raise() -> None:
    for rng in (None, np.random.default_rng(1)):
        assert laplace(1e308, sensitivity=1, epsilon=1, rng=rng) == 1e308
        assert gaussian(-1e308, sensitivity=1e200, epsilon=1, delta=1e-12, rng=rng) == -1e308
        assert exponential("ab", [-1e308, 1e308], sensitivity=1e-5, epsilon=1, rng=rng) == "b"
        for far in (1e308, 6e9):  # the threshold itself is beyond the clipping range of ±2⁴² sensitivities, or near it
            assert above_threshold([0, far], 5e9, sensitivity=1e-5, epsilon=1, rng=rng) == 1
        assert above_threshold([1e15], 2e15, sensitivity=1, epsilon=1, rng=rng) is None
        assert 0 <= private_quantile([1e308, -1e308], 0.5, bounds=(0, 1), epsilon=1, rng=rng) <= 1
        assert geometric(2**63 - 1, epsilon=1, rng=rng) > 2**62


def test_huge_arrays_work() -> None:
    rng = np.random.default_rng(1)
    assert laplace(np.zeros(1_000_000), sensitivity=1, epsilon=1, rng=rng).shape == (1_000_000,)
    values = rng.normal(size=1_000_000)
    assert abs(private_quantile(values, 0.5, bounds=(-10, 10), epsilon=1, rng=rng)) < 0.01
    assert abs(private_quantile(values, 0.5, bounds=(-10, 10), epsilon=1)) < 0.01
    options = np.arange(100_000)
    assert exponential(
        options.tolist(), -np.abs(options - 70_000.0), sensitivity=1, epsilon=5, rng=rng
    ) == pytest.approx(7e4, abs=50)


def test_quantiles_at_the_ends_and_of_ties_stay_within_the_bounds() -> None:
    for rng in (None, np.random.default_rng(1)):
        for q in (0.0, 0.25, 1.0):
            assert 0 <= private_quantile(np.full(50, 3.0), q, bounds=(0, 10), epsilon=0.1, rng=rng) <= 10
            assert 0 <= private_quantile(np.full(50, 99.0), q, bounds=(0, 10), epsilon=10, rng=rng) <= 10
        assert private_quantile(np.full(200, 3.0), 0.0, bounds=(0, 10), epsilon=10, rng=rng) <= 3
        assert private_quantile(np.full(200, 3.0), 1.0, bounds=(0, 10), epsilon=10, rng=rng) >= 3


# Audits ---------------------------------------------------------------------------------------------------------------
#
# Each case: a claimed epsilon, a release, neighbours that are (nearly) its worst pair, its delta, the number of seeded
# runs, and what the audit of so many should find at least, lest it pass for want of power. Releases with three
# arguments are batched: noise is independent over the entries of an array, so an array holds many runs.

Case = tuple[float, Callable[..., Any], Any, Any, float, int, float]
CASES: dict[str, Case] = {
    "laplace": (
        *(1.0, lambda x, rng, trials: laplace(np.full(trials, x), sensitivity=1, epsilon=1.0, rng=rng)),
        *(0.0, 1.0, 0.0, 20_000, 0.8),
    ),
    "geometric histogram": (
        *(1.0, lambda x, rng, trials: geometric(np.tile(x, (trials, 1)), sensitivity=2, epsilon=1.0, rng=rng)),
        *((5, 5), (4, 6), 0.0, 20_000, 0.6),
    ),
    "gaussian": (
        *(1.0, lambda x, rng, trials: gaussian(np.full(trials, x), sensitivity=1, epsilon=1.0, delta=0.1, rng=rng)),
        *(0.0, 1.0, 0.1, 20_000, 0.5),
    ),
    "exponential": (
        *(3.0, lambda x, rng: exponential(range(9), x, sensitivity=1, epsilon=3.0, rng=rng)),
        *([1] + 8 * [0], [0] + 8 * [1], 0.0, 10_000, 2.0),
    ),
    "randomised response": (
        *(1.0, lambda x, rng, trials: randomized_response(np.full(trials, x), epsilon=1.0, rng=rng)),
        *(0, 1, 0.0, 20_000, 0.85),
    ),
    "above threshold": (
        *(4.0, lambda x, rng: above_threshold(x, 0, sensitivity=1, epsilon=4.0, rng=rng)),
        *([-0.5, -0.5, -0.5, 0.5], [0.5, 0.5, 0.5, -0.5], 0.0, 4000, 1.4),
    ),
    "monotone above threshold": (
        *(4.0, lambda x, rng: above_threshold(x, 0, sensitivity=1, epsilon=4.0, monotone=True, rng=rng)),
        *([0, 0], [1, 1], 0.0, 4000, 1.1),
    ),
    "private quantile": (
        *(1.0, lambda x, rng: private_quantile(x, 0.5, bounds=(0, 1), epsilon=1.0, grid=30, rng=rng)),
        *([0.0, 0.1], [1.0, 0.1], 0.0, 10_000, 0.4),
    ),
}


# Where the likelihood ratio is a simple function of the output, the audit need not estimate it: the clipped output
# orders the outputs of a Laplace mechanism at 0 and 1 as the ratio does.
SCORES: dict[str, Callable[[Any], Any]] = {"laplace": lambda output: np.clip(output, 0.0, 1.0)}


def audited(name: str, seed: int | None, trials: int, confidence: float = 0.999) -> float:
    """Return the lower bound that an audit finds for a case, with seeded or with real noise."""
    _, release, data, neighbour, delta, _, _ = CASES[name]
    batched = release.__code__.co_argcount == 3

    def one(value: Any, rng: np.random.Generator) -> Any:
        return release(value, rng if seed else None)

    def many(value: Any, rng: np.random.Generator, trials: int) -> Any:
        return release(value, rng if seed else None, trials)

    return epsilon_lower_bound(
        *(many if batched else one, data, neighbour),
        trials=trials,
        delta=delta,
        confidence=confidence,
        batched=batched,
        score=SCORES.get(name),
        rng=np.random.default_rng(seed or 1),
    )


@pytest.mark.parametrize("name", CASES)
def test_an_audit_does_not_refute_seeded_noise_and_comes_close_to_it(name: str) -> None:
    """Seeded; with another seed each case would fail with probability about 10⁻³."""
    epsilon, *_, trials, least = CASES[name]
    assert least <= audited(name, 31, trials) <= epsilon


@pytest.mark.parametrize("name", CASES)
def test_an_audit_does_not_refute_real_noise(name: str) -> None:
    trials = CASES[name][5] // (10 if "threshold" in name else 6)
    assert audited(name, None, trials, confidence=1 - FALSE_ALARM) <= CASES[name][0]


Mutant = tuple[str, Callable[..., Any]]
ADD_LAPLACE, ADD_GEOMETRIC, ADD_GAUSSIAN, CHOOSE, FLIP = (getattr(noise, function) for function in NOISE_FUNCTIONS)


MUTANTS: dict[str, Mutant] = {
    "laplace": ("add_laplace", lambda x, s, e, rng: ADD_LAPLACE(x, s / 2, e, rng)),
    "geometric histogram": ("add_geometric", lambda x, s, e, rng: ADD_GEOMETRIC(x, 1, e, rng)),
    "gaussian": ("add_gaussian", lambda x, scale, rng: ADD_GAUSSIAN(x, scale / 2, rng)),
    "exponential": ("choose", lambda u, s, e, rng: CHOOSE(u, s / 2, e, rng)),
    "randomised response": ("flip", lambda x, k, e, rng: FLIP(x, k, 1.5 * e, rng)),
}


@SOURCES
@pytest.mark.parametrize("name", MUTANTS)
def test_an_audit_refutes_a_mechanism_with_too_little_noise(
    name: str, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the noise, a histogram taken for sensitivity 1, the 2 of the exponential mechanism forgotten.

    With real noise the bound is random; the claim lies more than five of its standard deviations below its mean.
    """
    monkeypatch.setattr(noise, *MUTANTS[name])
    assert audited(name, seed, 3000 if name == "exponential" else 12_000) > CASES[name][0]


def test_an_audit_refutes_a_quantile_whose_factor_2_was_forgotten() -> None:
    def release(values: list[float], rng: np.random.Generator) -> float:
        return private_quantile(values, 0.5, bounds=(0, 1), epsilon=2.0, rng=rng)

    rng = np.random.default_rng(33)
    assert epsilon_lower_bound(release, [0.0, 0.1], [1.0, 0.1], trials=6000, rng=rng) > 1.0


@SOURCES
def test_an_audit_refutes_the_sparse_vector_technique_without_query_noise(
    seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Success at the third query is then impossible for the neighbour: no epsilon holds at all."""

    def quiet(counts: Any, sensitivity: int, epsilon: float, rng: Any) -> Any:
        for_threshold = sensitivity == (1 << 20) + 1  # one step more than the sensitivity 1 on its grid of 2⁻²⁰
        return ADD_GEOMETRIC(counts, sensitivity, epsilon, rng) if for_threshold else counts

    def release(queries: list[float], rng: np.random.Generator) -> int | None:
        return above_threshold(queries, 1, sensitivity=1, epsilon=1.0, rng=rng if seed else None)

    monkeypatch.setattr(noise, "add_geometric", quiet)
    rng = np.random.default_rng(34)
    assert epsilon_lower_bound(release, [0, 0, 1], [1, 1, 0], trials=800, rng=rng) > 1.0


def sparse_vector(
    queries: list[float], rng: np.random.Generator, trials: int, *, bar: float, query: float, values: bool = False
) -> Floats:
    """Return many runs of the sparse vector technique at threshold 0, with any noise scales, in one go.

    A run is the index of the first success and, where the published mistake of releasing it is made, its noisy answer.
    """
    noisy_bar = rng.laplace(scale=bar, size=(trials, 1))
    answers = queries + rng.laplace(scale=query, size=(trials, len(queries)))
    above = answers >= noisy_bar
    index = np.where(above.any(axis=1), above.argmax(axis=1), len(queries))
    if not values:
        return index.astype(float)
    padded = np.column_stack([answers, np.zeros(trials)])
    return np.column_stack([index, padded[np.arange(trials), index]])


def test_the_fast_sparse_vector_of_these_tests_is_the_mechanism() -> None:
    runs = sparse_vector([-3.0, 1.5, -1.0], np.random.default_rng(34), 20_000, bar=1.0, query=2.0)
    assert_counts(np.bincount(runs.astype(int), minlength=4), first_above([-3.0, 1.5, -1.0], 0.0, 1.0, 2.0))


def found_in_sparse_vector(pair: tuple[list[float], list[float]], score: Any = None, **settings: Any) -> float:
    def release(queries: list[float], rng: np.random.Generator, trials: int) -> Floats:
        return sparse_vector(queries, rng, trials, **settings)

    rng = np.random.default_rng(35)
    return epsilon_lower_bound(release, *pair, trials=100_000, batched=True, score=score, rng=rng)


def test_an_audit_refutes_the_sparse_vector_technique_with_a_noise_free_threshold() -> None:
    """Each of thirty failures then costs its own share; the claim is epsilon = 2."""
    pair = ([-1.5] * 30 + [2.0], [-0.5] * 30 + [1.0])
    assert found_in_sparse_vector(pair, bar=1.0, query=2.0) <= 2
    assert found_in_sparse_vector(pair, bar=0.0, query=2.0) > 2


def test_an_audit_refutes_the_sparse_vector_technique_that_releases_the_noisy_answer() -> None:
    """The answer caps the threshold that the failures stayed below; same noise, monotone queries, claim 2."""

    def late_and_low(rows: Floats) -> Floats:
        return np.where(rows[:, 0] == 4, -rows[:, 1], -50.0)

    pair = ([0.0] * 5, [1.0] * 5)
    assert found_in_sparse_vector(pair, bar=1.0, query=1.0) <= 2
    assert found_in_sparse_vector(pair, late_and_low, bar=1.0, query=1.0, values=True) > 2


def test_an_epsilon_too_small_for_a_real_randomised_response_costs_nothing() -> None:
    """The true answer's probability then rounds to less than one in five, which OpenDP refuses."""
    budget = PrivacyBudget(1.0)
    with pytest.raises(ValueError, match="epsilon must be larger for 5 categories"):
        randomized_response([0, 1, 4], epsilon=1e-30, categories=5, budget=budget)
    assert budget.spent == (0.0, 0.0)


@SOURCES
def test_more_categories_than_can_be_listed_cost_nothing(seed: int | None) -> None:
    budget = PrivacyBudget(2.0)
    with pytest.raises(ValueError, match=r"categories must be at most 1048576.* got 2147483648"):
        randomized_response([0, 1, 4], epsilon=1.0, categories=2**31, rng=source(seed), budget=budget)
    assert budget.spent == (0.0, 0.0)
    assert randomized_response([2**20 - 1], epsilon=1.0, categories=2**20, rng=source(seed), budget=budget).shape == (
        1,
    )
