"""Audits: valid, strong enough to find known faults, and at ease with any kind of output.

Each audit with confidence 0.999 claims too much with probability at most 0.001 (over seeds; seeds are fixed).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from scipy.stats import binom, binomtest

from dpbook import Release
from dpbook.audit import AuditResult, _bound, _DensityRatio, audit, epsilon_lower_bound

Batched = Callable[..., Any]


def laplace(scale: float) -> Batched:
    return lambda data, rng, trials: data + rng.laplace(scale=scale, size=(trials, *np.shape(data)))


def audit_batch(release: Batched, data: Any, neighbour: Any, trials: int = 100_000, **options: Any) -> AuditResult:
    options = {"rng": default_rng(20), **options}
    return audit(release, data, neighbour, trials=trials, batched=True, **options)


# --- validity --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_bound_exceeds_epsilon_with_at_most_the_stated_probability_exactly(delta: float) -> None:
    # No simulation: all pairs of counts are enumerated, for a release that has only this event and its complement.
    runs, error = 60, 0.05
    counts = np.arange(runs + 1)
    bounds = _bound((counts[:, None], counts[None, :]), runs, delta, error)
    grid = np.linspace(0.01, 0.99, 25)
    chances = []
    for p, q in itertools.product(grid, grid):
        terms = [(p - delta) / q, (q - delta) / p, (1 - p - delta) / (1 - q), (1 - q - delta) / (1 - p), 1.0]
        exceeds = bounds > math.log(max(terms)) + 1e-12
        chances.append(binom.pmf(counts, runs, p) @ exceeds @ binom.pmf(counts, runs, q))
    assert max(chances) <= 2 * error
    assert max(chances) >= error / 2  # and it is not idle: where one frequency is nearly certain, one limit decides


@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_bound_is_clopper_pearson_at_half_the_error_for_each_frequency(delta: float) -> None:
    result = audit_batch(laplace(0.7), 0.0, 1.0, 4000, delta=delta, confidence=0.98)
    hits = result.hits if result.likelier_under == "data" else result.hits[::-1]
    # A two-sided interval of level 0.98 has one-sided error 0.01, which is half of 1 - 0.98.
    low, high = (binomtest(k, result.tested).proportion_ci(0.98, method="exact") for k in hits)
    event = math.log((low.low - delta) / high.high)
    complement = math.log((1 - high.high - delta) / (1 - low.low))
    assert result.epsilon == pytest.approx(max(event, complement), rel=1e-9)
    assert result.epsilon > 0.5


@pytest.mark.parametrize(
    ("release", "epsilon"),
    [
        (lambda bit, rng, trials: np.where(rng.random(trials) < 0.75, bit, 1 - bit), math.log(3)),
        (lambda data, rng, trials: rng.integers(64, size=trials), 0.0),  # ignores the data
        (laplace(1.0), 1.0),
        (lambda data, rng, trials: rng.normal(size=(trials, 3)), 0.0),  # many scores to be lucky with
    ],
    ids=["randomised response", "64 labels", "laplace", "vector"],
)
def test_repeated_audits_overclaim_no_more_often_than_stated(release: Batched, epsilon: float) -> None:
    # 100 audits with confidence 0.5: at most 50 false claims are expected, in fact 10 to 28, for the two
    # limits err together less often than one of them. More than 50 if the true rate is 0.28: probability
    # below 1e-5. An event tested on the runs that chose it makes nearly 100 on the second and the last.
    rng = default_rng(7)
    bounds = [audit_batch(release, 0, 1, 200, confidence=0.5, rng=rng).epsilon for _ in range(100)]
    assert sum(bound > epsilon + 1e-12 for bound in bounds) <= 50
    assert epsilon == 0 or np.median(bounds) > 0.5 * epsilon


def test_the_event_does_not_depend_on_the_runs_that_test_it() -> None:
    rng = default_rng(3)
    first, second = rng.laplace(size=(2, 1000)), 1 + rng.laplace(size=(2, 1000))

    def replay(test_half: int) -> AuditResult:
        recorded = {0: np.r_[first[0], first[test_half]], 1: np.r_[second[0], second[test_half]]}
        return audit_batch(lambda data, rng, trials: recorded[data], 0, 1, 2000)

    assert replay(0).event == replay(1).event
    assert replay(0).hits != replay(1).hits


def test_half_of_the_runs_are_tested_and_each_data_set_is_run_trials_times() -> None:
    calls: list[int] = []

    def release(data: int, rng: Generator) -> int:
        calls.append(data)
        return data

    result = audit(release, 0, 1, trials=101, rng=default_rng(0))
    assert (calls.count(0), calls.count(1)) == (101, 101)
    assert (result.trials, result.tested) == (101, 51)


def test_rounding_errors_of_floats_do_not_pass_for_a_broken_epsilon() -> None:
    # |x - b| - |x - a| is constant beyond a and b but for its last bit, which differs between the data sets.
    a, b = np.zeros(4), np.array([1.0, -1.0, 1.0, -1.0])
    result = audit_batch(laplace(2.0), a, b, score=lambda x: (np.abs(x - b) - np.abs(x - a)).sum(axis=-1))
    assert 1.6 < result.epsilon <= 2


# --- power -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_laplace_at_its_worst_pair_shows_four_fifths_of_epsilon_in_1e5_runs(epsilon: float) -> None:
    # In 60 other seeds the least share was 0.83, 0.92, 0.94, 0.92 and 0.81 (rounded down).
    for seed in range(3):
        bound = audit_batch(laplace(1 / epsilon), 0.0, 1.0, rng=default_rng(seed)).epsilon
        assert 0.8 * epsilon <= bound <= epsilon


def test_small_epsilon_is_found_within_sampling_error() -> None:
    result = audit_batch(laplace(10.0), 0.0, 1.0, 400_000)
    assert 0.07 < result.epsilon <= 0.1


def test_randomised_response_shows_nearly_all_of_its_epsilon() -> None:
    result = audit_batch(lambda bit, rng, trials: np.where(rng.random(trials) < 0.75, bit, 1 - bit), 0, 1)
    assert 0.95 * math.log(3) < result.epsilon <= math.log(3)


def test_half_the_noise_is_exposed_by_single_runs_too() -> None:
    claimed = 1.0
    bound = epsilon_lower_bound(
        lambda data, rng: data + rng.laplace(scale=0.5 / claimed), 0.0, 1.0, trials=10_000, rng=default_rng(4)
    )
    assert isinstance(bound, float)
    assert 1.6 < bound <= 2


def test_histogram_with_the_factor_two_forgotten_is_exposed() -> None:
    tables = np.array([5.0, 5.0, 5.0]), np.array([4.0, 6.0, 5.0])  # one record moved to another cell
    assert 1.7 < audit_batch(laplace(1.0), *tables).epsilon <= 2
    assert 0.8 < audit_batch(laplace(2.0), *tables).epsilon <= 1


def test_half_noise_clique_tables_need_a_likelihood_ratio_and_the_audit_finds_it() -> None:
    data = np.zeros(8)  # two cliques of four cells; a record moves in both: true epsilon 2, claimed 1
    neighbour = np.array([1.0, -1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0])
    automatic = audit_batch(laplace(2.0), data, neighbour)
    coordinate = audit_batch(laplace(2.0), data, neighbour, score=lambda table: table[0])
    contrast = audit_batch(laplace(2.0), data, neighbour, score=lambda table: table @ neighbour)
    assert 1.65 < automatic.epsilon <= 2
    assert 0.3 < coordinate.epsilon <= 0.5
    assert coordinate.epsilon < contrast.epsilon < automatic.epsilon
    assert automatic.verdict(1.0).startswith("Refuted")


def shared_noise(data: Any, rng: Generator, trials: int) -> Any:
    return data + rng.laplace(scale=10.0, size=(trials, 1))


def masked_bit(bit: int, rng: Generator, trials: int) -> Any:
    masks = rng.integers(2, size=(4, trials))
    return np.column_stack([*masks, (masks.sum(axis=0) + bit + (rng.random(trials) < 0.2)) % 2])


def correlated(sign: int, rng: Generator, trials: int) -> Any:
    z = rng.normal(size=(trials, 2))
    return np.column_stack([z[:, 0], sign * 0.8 * z[:, 0] + 0.6 * z[:, 1]])


def spread(scale: int, rng: Generator, trials: int) -> Any:
    return rng.normal(scale=scale, size=trials)


def rare_truth(data: float, rng: Generator, trials: int) -> Any:
    return np.where(rng.random(trials) < 0.005, data, data + rng.laplace(size=trials))


@pytest.mark.parametrize(
    ("release", "pair", "least"),
    [
        (shared_noise, (np.array([10.0, 20.0, 30.0]), np.array([9.0, 21.0, 30.0])), 5.5),  # differences are exact
        (masked_bit, (0, 1), 1.25),  # any four bits are fair coins; epsilon = log 4 is in all five
        (correlated, (1, -1), 4.5),  # the marginals are the same
        (spread, (1, 2), 2.0),  # no threshold on the output itself does it
        (rare_truth, (0.0, 1.0), 1.5),  # a point mass of 0.005 inside a continuous output
    ],
    ids=["shared noise", "masked bit", "correlation", "spread", "rare truth"],
)
def test_leaks_that_no_single_threshold_shows_are_found(release: Batched, pair: tuple[Any, Any], least: float) -> None:
    assert audit_batch(release, *pair, 40_000).epsilon > least


def test_exchanging_the_data_sets_changes_little() -> None:
    # A Laplace output cut at 0 tells more in one direction; the audit looks in both.
    def cut(data: float, rng: Generator, trials: int) -> Any:
        return np.maximum(data + rng.laplace(size=trials), 0)

    there, back = audit_batch(cut, 0.0, 1.0).epsilon, audit_batch(cut, 1.0, 0.0).epsilon
    assert min(there, back) > 0.85
    assert max(there, back) <= 1


# --- delta -----------------------------------------------------------------------------------------------


def test_gaussian_mechanism_is_not_refuted_and_a_quarter_of_its_noise_is() -> None:
    def gaussian(scale: float) -> Batched:
        return lambda data, rng, trials: data + rng.normal(scale=scale, size=trials)

    scale = 3.7306  # analytic calibration for epsilon = 1, delta = 1e-5, sensitivity 1
    assert 0.3 < audit_batch(gaussian(scale), 0.0, 1.0, delta=1e-5).epsilon <= 1
    assert audit_batch(gaussian(scale / 4), 0.0, 1.0, delta=1e-5).epsilon > 2


def test_a_leak_of_probability_delta_is_allowed_by_delta_and_only_by_it() -> None:
    def leaky(data: float, rng: Generator, trials: int) -> Any:
        return np.where(rng.random(trials) < 0.05, 100 + data, rng.laplace(size=trials))

    assert audit_batch(leaky, 0.0, 1.0).epsilon > 5
    assert audit_batch(leaky, 0.0, 1.0, delta=0.05).epsilon <= 0.001


# --- outputs of every kind --------------------------------------------------------------------------------


def label(data: int, rng: Generator) -> str:
    return str(rng.choice(["rent", "own", "other"], p=[0.6, 0.2, 0.2] if data else [0.2, 0.6, 0.2]))


def nan_or_noise(data: int, rng: Generator) -> float:
    return math.nan if rng.random() < 0.1 * data else rng.laplace()


def none_or_noise(data: int, rng: Generator) -> float | None:
    return None if rng.random() < 0.1 * data else rng.laplace()


def infinite(data: int, rng: Generator) -> float:
    return math.inf if rng.random() < 0.2 + 0.6 * data else -math.inf


def length(data: int, rng: Generator) -> Any:
    return rng.laplace(size=2 + (rng.random() < 0.2 + 0.6 * data))


def nested(data: int, rng: Generator) -> Any:
    return {"mean": data + rng.laplace(scale=0.5), "table": [np.ones(2), ("a", None)]}


@pytest.mark.parametrize(
    ("release", "epsilon"),
    [
        (label, math.log(3)),
        (nan_or_noise, math.inf),
        (none_or_noise, math.inf),
        (infinite, math.log(4)),
        (length, math.log(4)),
        (nested, 2.0),
    ],
)
def test_labels_missing_infinite_and_ragged_outputs_are_outcomes(release: Any, epsilon: float) -> None:
    bound = epsilon_lower_bound(release, 0, 1, trials=6000, rng=default_rng(5))
    assert 0.75 * min(epsilon, 4) < bound <= epsilon


def test_nan_has_a_density_ratio_of_its_own() -> None:
    rng = default_rng(6)
    data, neighbour = rng.normal(size=(2, 1000))
    data[:200], neighbour[:50] = np.nan, np.nan
    ratio = _DensityRatio.fit(data, neighbour, 12)
    assert ratio(np.array([np.nan]))[0] == pytest.approx(math.log(200.5 / 50.5))
    assert (np.abs(ratio(np.array([-9.0, 0.0, 9.0]))) < 1).all()


def test_the_values_of_a_release_are_what_an_audit_of_it_looks_at() -> None:
    def publish(data: float, rng: Generator) -> Release:
        noisy = {"sum": np.array([data + rng.laplace(scale=0.5)]), "count": np.array([3])}
        scales = dict.fromkeys(noisy, 0.5)
        return Release(
            values=noisy,
            model="m",
            mechanism="laplace",
            scale=scales,
            sensitivity=scales,
            epsilon=1,
            n=3,
            float_safe=False,
        )

    bound = epsilon_lower_bound(publish, 0.0, 1.0, trials=4000, rng=default_rng(8))
    assert 1.4 < bound <= 2


def test_none_and_nan_are_different_outcomes() -> None:
    result = audit(lambda data, rng: None if data else math.nan, 0, 1, trials=1000)
    assert result.epsilon == result.ceiling > 4


def test_noiseless_release_reaches_the_ceiling_and_a_constant_one_stays_at_zero() -> None:
    result = audit(lambda data, rng: data, 0, 1, trials=2000)
    assert sorted(result.hits) == [0, 1000]
    limit = 0.0005 ** (1 / 1000)  # Clopper-Pearson for 1000 of 1000 hits
    assert result.epsilon == result.ceiling == pytest.approx(math.log(limit / (1 - limit)))
    constants: list[Any] = [5, math.nan, None, "same", [], np.zeros(3)]
    for constant in constants:
        assert epsilon_lower_bound(lambda data, rng, constant=constant: constant, 0, 1, trials=100) == 0


def test_outputs_of_another_shape_give_the_data_away() -> None:
    assert audit_batch(lambda data, rng, trials: rng.normal(size=(trials, data)), 2, 3, 400).hits in [
        (200, 0),
        (0, 200),
    ]


def test_outputs_first_seen_in_the_test_half_do_no_harm() -> None:
    def late(data: float, rng: Generator, trials: int) -> list[Any]:
        return [data + x for x in rng.laplace(scale=0.2, size=trials - 2)] + ["late", [1.0, 2.0, 3.0]]

    assert 1 < audit_batch(late, 0.0, 1.0, 2000).epsilon <= 5


@pytest.mark.parametrize(("factor", "offset"), [(1e-30, 0.0), (1e30, 0.0), (1.0, 1e12)])
def test_the_unit_of_the_output_does_not_matter(factor: float, offset: float) -> None:
    release = laplace(1.0)
    bound = audit_batch(lambda data, rng, trials: offset + factor * release(data, rng, trials), 0.0, 1.0).epsilon
    assert 0.9 < bound <= 1


# --- calling conventions -----------------------------------------------------------------------------------


def test_a_batched_release_may_take_the_number_of_runs_or_not() -> None:
    def third(data: float, rng: Generator, count: int, /) -> Any:
        return data + rng.laplace(size=count)

    def keyword(data: float, rng: Generator, *, trials: int) -> Any:
        return data + rng.laplace(size=trials)

    def default(data: float, rng: Generator, scale: float = 1.0, size: int = 1) -> Any:
        return data + rng.laplace(scale=scale, size=size)

    def closure(data: float, rng: Generator) -> Any:
        return data + rng.laplace(size=20_000)

    def pieces(data: float, rng: Generator, scale: float = 1.0) -> Any:
        return data + rng.laplace(scale=scale, size=5_000)

    def too_many(data: float, rng: Generator) -> Any:
        return data + rng.laplace(size=30_000)

    results = [audit_batch(each, 0.0, 1.0, 20_000) for each in (third, keyword, default, closure, pieces, too_many)]
    assert results[:5] == results[:1] * 5  # the same noise, however it is asked for
    assert (results[5].trials, results[5].tested) == (20_000, 10_000)
    assert 0.8 < results[5].epsilon <= 1


@pytest.mark.parametrize("batch", [3.0, np.float64(3), np.array(3.0), np.zeros(0), []])
def test_a_batched_release_without_rows_is_refused(batch: Any) -> None:
    with pytest.raises(ValueError, match="release must return an array with a run in each row"):
        epsilon_lower_bound(lambda data, rng: batch, 0, 1, trials=10, batched=True)


def test_a_score_sees_one_run_or_the_whole_batch() -> None:
    data, neighbour = np.zeros(3), np.array([1.0, -1.0, 0.0])
    scores: list[Callable[[Any], Any]] = [
        lambda x: x[0] - x[1],
        lambda x: x[:, 0] - x[:, 1],
        lambda x: np.subtract(x[..., 0], x[..., 1]),
    ]
    results = [audit_batch(laplace(1.0), data, neighbour, 10_000, score=score) for score in scores]
    assert results[0] == results[1] == results[2]
    assert "coordinate" not in results[0].event
    assert 1 < results[0].epsilon <= 2
    single = audit(
        lambda x, rng: x + rng.laplace(size=3), data, neighbour, trials=10_000, score=scores[0], rng=default_rng(20)
    )
    assert single == results[0]
    with pytest.raises(ValueError, match="score must return a number for each of 100 runs"):
        audit_batch(laplace(1.0), data, neighbour, 100, score=lambda x: x[:, 0].sum())


def test_one_generator_is_handed_to_every_run_and_makes_the_audit_reproducible() -> None:
    rng, seen = default_rng(1), set()

    def release(data: int, rng: Generator) -> float:
        seen.add(id(rng))
        return data + rng.laplace()

    first = audit(release, 0, 1, trials=500, rng=rng)
    assert seen == {id(rng)}
    assert first == audit(release, 0, 1, trials=500, rng=default_rng(1))
    assert isinstance(epsilon_lower_bound(release, 0, 1, trials=10), float)


def test_noise_from_elsewhere_can_be_audited() -> None:
    # Fails with probability below 1e-8: unseeded noise, confidence 1 - 1e-9, bound far above 1.
    system = random.SystemRandom()
    bound = epsilon_lower_bound(
        lambda data, rng: data + system.expovariate(2) - system.expovariate(2),
        0.0,
        1.0,
        trials=20_000,
        confidence=1 - 1e-9,
    )
    assert 1 < bound <= 2


def test_an_exception_in_the_release_is_passed_on() -> None:
    def fails(data: int, rng: Generator) -> float:
        raise RuntimeError("no answer")

    with pytest.raises(RuntimeError, match="no answer"):
        epsilon_lower_bound(fails, 0, 1, trials=10)


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"trials": 3}, ValueError, "trials must be at least 4"),
        ({"trials": 10.0}, TypeError, "trials must be a whole number"),
        ({"delta": 1.0}, ValueError, "delta must lie in"),
        ({"delta": -0.1}, ValueError, "delta must lie in"),
        ({"confidence": 1.0}, ValueError, "confidence must lie strictly between"),
        ({"rng": 5}, TypeError, "rng must be"),
    ],
)
def test_wrong_arguments_are_named_before_anything_runs(options: Any, error: type[Exception], named: str) -> None:
    def never(data: int, rng: Generator) -> float:
        raise AssertionError("ran")

    with pytest.raises(error, match=named):
        epsilon_lower_bound(never, 0, 1, **{"trials": 10, **options})


def test_a_verdict_refutes_or_says_that_nothing_is_proved() -> None:
    result = audit(lambda data, rng: data, 0, 1, trials=2000)
    assert result.verdict(1.0).startswith("Refuted: epsilon is at least 4.88")
    assert "proves nothing" in result.verdict(result.epsilon)
    assert "2000 trials have no power against a claimed 6" in result.verdict(6.0)
    with pytest.raises(ValueError, match="claimed must be at least 0"):
        result.verdict(-1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.epsilon = 0.0  # type: ignore[misc]
    for function in (audit, epsilon_lower_bound):
        assert "can refute, never prove" in str(function.__doc__)


def test_1e5_batched_runs_are_audited_within_a_second_of_processor_time() -> None:
    start = time.process_time()
    audit_batch(laplace(1.0), 0.0, 1.0)
    assert time.process_time() - start < 1
