"""The tests that grade the exercises of chapter 1, with typical wrong answers: for instructors.

``grade("ex-…", answer)`` runs the public check and then the hidden tests, whose numbers come from a generator;
``exercises.wrong_answers`` holds answers that people give, by name, and what the check says to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from checks import (
    at,
    at_cells,
    count_posterior,
    exercises,
    noisy_count,
    numbers,
    pairs_that_expose,
    stops,
    uniform,
)
from scipy import optimize, special, stats

from dpbook.accounting import (
    advanced_composition,
    gaussian_delta,
    gaussian_scale,
    group_privacy,
    pure_composition_delta,
)
from dpbook.datasets import load_fair
from dpbook.exercises import calibrated, close, expect, number, private

grade, wrong = exercises.grade, exercises.wrong

Rng = np.random.Generator

STUDENT = "reader"  # whose numbers the wrong answers have


# 1.1 Why aggregates leak ---------------------------------------------------------------------------------------------


@exercises.hidden("ex-why-aggregates-leak-leaver")
def leaver(pay: Any, rng: Rng, given: dict[str, Any]) -> None:
    n = given["people"]
    right = n * given["mean_before"] - (n - 1) * given["mean_after"]
    expect(abs(number(pay) - right) < 1, "It is not within a pound of the pay.")


_firm = numbers("ex-why-aggregates-leak-leaver", STUDENT)
wrong(
    "ex-why-aggregates-leak-leaver",
    difference_of_means=(_firm["mean_before"] - _firm["mean_after"], "Compare the totals"),
    same_number_of_people=(_firm["people"] * (_firm["mean_before"] - _firm["mean_after"]), "one person less"),
)


@exercises.hidden("ex-why-aggregates-leak-overlap")
def overlap(asked: Any, rng: Rng) -> None:
    expect(len({row.tobytes() for row in np.asarray(asked)}) == 3, "Two of the questions are the same.")


def _crowds(*ages: float, her: bool) -> Any:
    age = load_fair()["age"].to_numpy()
    alone = np.arange(len(age)) == 3
    one, two = (age == a for a in ages)
    return [one | (alone if her else False), one, two]


wrong(
    "ex-why-aggregates-leak-overlap",
    the_old_difference=(_crowds(22, 27, her=True), "fewer than 100 women"),
    without_her=([c := _crowds(22, 27, her=False), c[1] | c[2], c[1], c[2]][1:], "wife 3 alone"),
)


@exercises.hidden("ex-why-aggregates-leak-rounding")
def rounding(pairs_needed: Callable[[int], int], rng: Rng) -> None:
    for r in (2, 100, int(rng.integers(6, 80))):
        expect(number(pairs_needed(r)) == pairs_that_expose(r), f"It is wrong for r = {r}.")


wrong(
    "ex-why-aggregates-leak-rounding",
    approximation=(lambda r: 4.6 * r, "Round up|should|A pair exposes"),
    not_rounded=(lambda r: np.log(0.01) / np.log(1 - 1 / r), "whole numbers"),
    rounded_down=(lambda r: int(np.log(0.01) / np.log(1 - 1 / r)), "round up"),
)


# 1.2 The definition --------------------------------------------------------------------------------------------------


@exercises.hidden("ex-definition-most")
def most(function: Callable[[float, float], float], rng: Rng) -> None:
    before, epsilon = rng.uniform(0.01, 0.9, size=5), rng.uniform(0.05, 4, size=5)
    got = [number(function(p, e)) for p, e in zip(before, epsilon, strict=True)]
    close(got, special.expit(special.logit(before) + epsilon), "It is wrong for other beliefs.")


wrong(
    "ex-definition-most",
    probability_times_e=(lambda p, e: p * np.exp(e), "odds"),
    capped=(lambda p, e: min(1 - 1e-9, p * np.exp(e)), "Multiply the odds"),
)


@exercises.hidden("ex-definition-tester")
def tester(advantage: Callable[[float], float], rng: Rng) -> None:
    epsilon = rng.uniform(0.05, 6, size=5)
    close([number(advantage(e)) for e in epsilon], -np.expm1(-epsilon / 2), "It is wrong for other epsilons.")


wrong(
    "ex-definition-tester",
    the_bound=(lambda e: np.tanh(e / 2), "bound on every tester"),
    threshold_at_a_count=(lambda e: 0.5 - 0.5 * np.exp(-e), "half way"),
)


@exercises.hidden("ex-definition-excess")
def excess(delta_of: Callable[[float, float], float], rng: Rng) -> None:
    for epsilon, mu in zip(rng.uniform(0.2, 2, size=3), rng.uniform(0.5, 1.5, size=3), strict=True):
        close(number(delta_of(epsilon, mu)), gaussian_delta(epsilon, mu), "It is wrong elsewhere.", within=2e-3)


wrong(
    "ex-definition-excess",
    probability_of_a_large_loss=(lambda e, mu: stats.norm.sf(e, mu**2 / 2, mu), "only the excess"),
    pure=(lambda e, mu: 0.0, "The mean of"),
)


def laplace_rows(scale: float) -> Callable[..., Any]:
    """Return the release of a histogram with Laplace noise of some scale at epsilon = 1."""
    return lambda cells, epsilon, rng, trials: cells + rng.laplace(scale=scale / epsilon, size=(trials, len(cells)))


@exercises.hidden("ex-definition-promise")
def promise(release: Callable[..., Any], rng: Rng) -> None:
    epsilon = float(rng.uniform(0.5, 2))
    cells = rng.integers(5, 50, size=6).astype(float)
    moved = cells + np.eye(6)[4] - np.eye(6)[1]
    private(
        at(release, epsilon), cells, moved, epsilon=epsilon, trials=60_000, seed=int(rng.integers(99)), batched=True
    )
    noise = np.asarray(release(cells, epsilon, rng, 4000)) - cells
    expect(noise.std() < 3.2 / epsilon, "It has more noise than it takes.")


wrong(
    "ex-definition-promise",
    sensitivity_1=(laplace_rows(1), "refutes"),
    noise_for_many=(laplace_rows(4), "more noise than it takes"),
    one_noise_for_all=(lambda c, e, rng, t: c + rng.laplace(scale=2 / e, size=(t, 1)), "refutes"),
)


# 1.3 Whose privacy? --------------------------------------------------------------------------------------------------


@exercises.hidden("ex-unit-of-privacy-caption")
def caption(factor: Any, rng: Rng) -> None:
    close(number(factor), np.exp(2.7), "It is not e^2.7.", within=5e-3)


wrong(
    "ex-unit-of-privacy-caption",
    one_record=(np.exp(0.3), "one record"),
    the_exponent=(2.7, "Which factor"),
    ten_records=(np.exp(3.0), "Nine records"),
)


@exercises.hidden("ex-unit-of-privacy-wifi")
def wifi(per_user: Callable[[float, float, int], Any], rng: Rng) -> None:
    epsilon, days = float(rng.uniform(0.1, 1)), int(rng.integers(2, 15))
    close(
        per_user(epsilon, 1e-8, days), group_privacy(epsilon, days, delta=1e-8), "It is wrong elsewhere.", within=1e-4
    )


wrong(
    "ex-unit-of-privacy-wifi",
    deltas_add_up=(lambda e, d, k: (k * e, k * d), "do not just add up"),
    epsilon_only=(lambda e, d, k: (k * e, d), "delta of a group"),
)


@exercises.hidden("ex-unit-of-privacy-club")
def club(sensitivity: Any, rng: Rng) -> None:
    close(number(sensitivity), 360, "It is not 360.")


wrong("ex-unit-of-privacy-club", one_record=(30, "one visit"), records_only=(12, "How much"), twice=(720, "not 60"))


# 1.4 Mechanisms ------------------------------------------------------------------------------------------------------


@exercises.hidden("ex-mechanisms-scale")
def scale(answer: Any, rng: Rng, given: dict[str, Any]) -> None:
    right = (given["high"] - given["low"]) / (given["n"] * given["epsilon"])
    close(number(answer), right, "It is not (high - low)/(n ε).", within=5e-3)


_mean = numbers("ex-mechanisms-scale", STUDENT)
wrong(
    "ex-mechanisms-scale",
    of_the_sum=((_mean["high"] - _mean["low"]) / _mean["epsilon"], "for the sum"),
    add_remove=(_mean["high"] / (_mean["n"] * _mean["epsilon"]), "add/remove"),
    without_epsilon=((_mean["high"] - _mean["low"]) / _mean["n"], "Divide by epsilon"),
)


@exercises.hidden("ex-mechanisms-widths")
def widths(answer: Any, rng: Rng) -> None:
    close([number(part) for part in answer], [9, 3], "It is not 9 and 3.")


wrong("ex-mechanisms-widths", the_papers=((3, 1), "what the paper says"), no_epsilon=((9, 1), "sums can move by 9"))


@exercises.hidden("ex-mechanisms-people")
def people(answer: Any, rng: Rng) -> None:
    exact = [(stats.norm.ppf(0.975) * np.exp(0.25) / np.expm1(0.5) / 0.01) ** 2, 2 * np.log(20) / 0.01]
    close([number(part) for part in answer], exact, "It is not about 150,000 and 600.", within=0.01)


wrong(
    "ex-mechanisms-people",
    one_standard_deviation=((39_170, 600), "1.96"),
    variance_of_the_sum=((150, 600), "variance of randomised response"),
    normal_tail=((150_500, 554), "A curator"),
)


def exponential_mechanism(factor: float) -> Callable[..., Any]:
    """Return a choice by the exponential mechanism, with some factor in place of a half."""

    def choose(utilities: Any, epsilon: float, rng: Rng, trials: int) -> Any:
        noisy = factor * epsilon * np.asarray(utilities) + rng.gumbel(size=(trials, len(utilities)))
        return noisy.argmax(axis=1)

    return choose


@exercises.hidden("ex-mechanisms-choose")
def choose(function: Callable[..., Any], rng: Rng) -> None:
    epsilon, utilities = float(rng.uniform(0.3, 2)), rng.integers(0, 6, size=5).astype(float)
    shares = np.bincount(function(utilities, epsilon, rng, 40_000), minlength=5) / 40_000
    expected = special.softmax(epsilon * utilities / 2)
    expect(np.abs(shares - expected).max() < 0.015, "The probabilities are wrong for other utilities.")
    far = np.array([700.0, 2100.0])
    expect(
        np.all(np.asarray(function(far, 1.0, rng, 50)) == 1), "It breaks for large counts: subtract the largest first."
    )


wrong(
    "ex-mechanisms-choose",
    without_the_2=(exponential_mechanism(1.0), "refutes"),
    the_best=(lambda u, e, rng, t: np.full(t, np.argmax(u)), "refutes|shares"),
    uniform=(exponential_mechanism(0.0), "should be"),
)


# 1.5 Where to add the noise ------------------------------------------------------------------------------------------


@exercises.hidden("ex-where-two-errors")
def two_errors(sd: Callable[[int, float], float], rng: Rng) -> None:
    n, epsilon = int(rng.integers(50, 5000)), float(rng.uniform(0.01, 2))
    close(number(sd(n, epsilon)), np.hypot(np.sqrt(0.25 / n), np.sqrt(2) / (n * epsilon)), "It is wrong elsewhere.")


wrong(
    "ex-where-two-errors",
    sds_added=(lambda n, e: np.sqrt(0.25 / n) + np.sqrt(2) / (n * e), "Variances add up"),
    noise_alone=(lambda n, e: np.sqrt(2) / (n * e), "sample, too"),
    scale_for_sd=(lambda n, e: np.hypot(np.sqrt(0.25 / n), 1 / (n * e)), "2 b²"),
)


@exercises.hidden("ex-where-local-price")
def local_price(worth: Callable[[float, float], float], rng: Rng) -> None:
    local, central = float(rng.uniform(0.5, 4)), float(rng.uniform(0.05, 1))
    right = 8 * np.sinh(local / 2) ** 2 / central**2
    expect(abs(number(worth(local, central)) - right) <= max(1.0, 1e-3 * right), "It is wrong elsewhere.")


wrong(
    "ex-where-local-price",
    small_epsilon=(lambda a, b: 2 * a**2 / b**2, "only for small x"),
    ratio=(lambda a, b: a / b, "Set the two noise terms equal"),
)


# 1.6 Composition -----------------------------------------------------------------------------------------------------


@exercises.hidden("ex-composition-ledger")
def ledger(total: Any, rng: Rng) -> None:
    close(number(total), 1.0, "It is not 1.")


wrong("ex-composition-ledger", everything_added=(2.2, "charged all four"), the_dearest=(0.4, "add up"))


@exercises.hidden("ex-composition-helpful")
def helpful(answer: Any, rng: Rng) -> None:
    close(
        [number(part) for part in answer],
        [np.expm1(1) / (2 * np.expm1(3)), 13.6638],
        "Not to three digits.",
        within=2e-3,
    )


wrong(
    "ex-composition-helpful",
    rejected_draws=((np.exp(-3), 13.7), "only one count reach"),
    tail_of_the_noise=((np.expm1(1) / (2 * np.expm1(3)), np.log(1e6)), "Solve delta"),
)


def year_of_releases() -> list[float]:
    """Return the noise's standard deviations of the four ways to count a year."""
    advanced = optimize.brentq(lambda each: advanced_composition(each, 365, slack=1e-6)[0] - 1, 1e-6, 1)
    optimal = optimize.brentq(lambda each: pure_composition_delta(each, 365, 1.0) - 1e-6, 1 / 730, 1)
    gauss = gaussian_scale(sensitivity=np.sqrt(365), epsilon=1, delta=1e-6)
    return [np.sqrt(2) * 365, np.sqrt(2) / advanced, np.sqrt(2) / optimal, gauss]


@exercises.hidden("ex-composition-year")
def year(noise: Any, rng: Rng) -> None:
    close([number(sd) for sd in noise], year_of_releases(), "One of the four is wrong.", within=5e-3)


wrong(
    "ex-composition-year",
    epsilon_1_a_day=([1.414, 1.4, 1.3, 1.2], "365"),
    the_scale=([365, 130, 120, 90], "standard deviation is larger"),
    in_any_order=([516.2, 90, 120, 95], "less noise than the one before"),
    L1_for_the_gaussian=([516.2, 130, 125, 1.0], "L2 sensitivity"),
)


@exercises.hidden("ex-composition-histogram")
def many_histograms(first: Any, rng: Rng) -> None:
    m, sigma = number(first), gaussian_scale(sensitivity=1, epsilon=1, delta=1e-6)
    expect(2 * np.sqrt(2) * m > np.sqrt(2 * m) * sigma, "Laplace noise is still the smaller one there.")


_answers = gaussian_scale(sensitivity=1, epsilon=1, delta=1e-6) ** 2 / 2
wrong(
    "ex-composition-histogram",
    answers_for_histograms=(int(_answers) + 1, "two cells"),
    one_too_few=(int(_answers / 2), "Compare"),
)


# 1.7 Sparse vector and private quantiles -----------------------------------------------------------------------------


def first_above(bar: float, query: float) -> Callable[..., Any]:
    """Return the search for the first count above a threshold, with noise of some scales at epsilon = 1."""

    def search(counts: Any, threshold: float, epsilon: float, rng: Rng) -> Any:
        noisy = threshold + (rng.laplace(scale=bar / epsilon) if bar else 0.0)
        for k, count in enumerate(counts):
            if count + (rng.laplace(scale=query / epsilon) if query else 0.0) >= noisy:
                return k
        return "nowhere"

    return search


@exercises.hidden("ex-sparse-vector-and-quantiles-write")
def write(function: Callable[..., Any], rng: Rng) -> None:
    counts = rng.integers(-2, 2, size=8).astype(float)
    moved = counts + rng.choice([-1.0, 1.0], size=8)
    private(stops(function), counts, moved, epsilon=1.0, trials=20_000, seed=int(rng.integers(99)))
    early = np.mean([function([-30.0, 30.0], 0.0, 1.0, rng) == 1 for _ in range(400)])
    expect(early > 0.95, "It stops in the wrong place too often: the noise is larger than it must be.")


wrong(
    "ex-sparse-vector-and-quantiles-write",
    exact_threshold=(first_above(0, 2), "refutes"),
    exact_counts=(first_above(1, 0), "refutes"),
    half_the_noise=(first_above(1, 1), "refutes"),
    reports_the_end=(lambda c, t, e, rng: len(c), "index 2"),
)


@exercises.hidden("ex-sparse-vector-and-quantiles-doubling")
def doubling(share: Any, rng: Rng) -> None:
    expect(0.11 < number(share) < 0.17, "It is not about 14 %.")


wrong(
    "ex-sparse-vector-and-quantiles-doubling",
    share_of_the_records=(1.0, "never stops"),
    no_noise=(0.0, "scale 4/epsilon"),
    more_than_4=(0.3, "four doublings"),
)


@exercises.hidden("ex-sparse-vector-and-quantiles-utility")
def utility(function: Callable[[Any, float, float], float], rng: Rng) -> None:
    data = rng.uniform(0, 100, size=40)
    for q, r in zip(rng.uniform(0.1, 0.9, size=5), rng.uniform(0, 100, size=5), strict=True):
        close(number(function(data, r, q)), -abs(np.sum(data <= r) - q * 40), "It is wrong on other data.")
        neighbour = np.r_[data[1:], rng.uniform(0, 100)]
        expect(abs(function(data, r, q) - function(neighbour, r, q)) <= 1, "One record moves it by more than 1.")


wrong(
    "ex-sparse-vector-and-quantiles-utility",
    distance_in_dollars=(lambda x, r, q: -abs(r - np.quantile(x, q)), "quantile exactly|in people"),
    shares=(lambda x, r, q: -abs(np.mean(np.asarray(x) <= r) - q), "1.5 people"),
    one_sided=(lambda x, r, q: np.sum(np.asarray(x) <= r) - q * len(x), "absolute value"),
)


# 1.8 Where privacy really breaks -------------------------------------------------------------------------------------


def noisy_table(scale: float, *, clip: bool = True, floats: bool = False) -> Callable[..., Any]:
    """Return the release of a table of incomes, with noise of some scale at epsilon = 1."""

    def publish(incomes: Any, edges: Any, epsilon: float, rng: Rng) -> Any:
        inside = np.clip(incomes, edges[0], edges[-1]) if clip else incomes
        counts, _ = np.histogram(inside, bins=edges)
        if floats:
            return counts + rng.laplace(scale=scale / epsilon, size=len(counts))
        success = -np.expm1(-epsilon / scale)
        one, two = rng.geometric(success, size=(2, len(counts)))
        return counts + one - two

    return publish


@exercises.hidden("ex-where-privacy-breaks-mistakes")
def mistakes(publish: Callable[..., Any], rng: Rng) -> None:
    edges = np.array([0.0, 20.0, 50.0, 100.0])
    incomes = rng.uniform(0, 130, size=50)
    changed = np.r_[incomes[1:], 10.0 if incomes[0] > 60 else 120.0]
    private(at_cells(publish, edges), incomes, changed, epsilon=1.0, trials=8000, seed=int(rng.integers(99)))
    same = [tuple(publish(incomes, edges, 1.0, rng)) for _ in range(8)]
    expect(len(set(same)) > 1, "Two releases have the same noise.")


def _by_the_largest(incomes: Any, edges: Any, epsilon: float, rng: Rng) -> Any:
    return noisy_table(2.0)(incomes, np.linspace(0, max(incomes), len(edges)), epsilon, rng)


wrong(
    "ex-where-privacy-breaks-mistakes",
    sensitivity_1=(noisy_table(1.0), "refutes"),
    noise_in_floats=(noisy_table(2.0, floats=True), "Counts are whole"),
    not_clipped=(noisy_table(2.0, clip=False), "falls out of the table"),
    cells_from_the_data=(_by_the_largest, "refutes"),
)


@exercises.hidden("ex-where-privacy-breaks-how-many")
def how_many(runs: Callable[[float], int], rng: Rng) -> None:
    claimed = float(rng.uniform(1, 8))
    right = 2 * np.exp(claimed) * np.log(2000)
    expect(abs(number(runs(claimed)) - right) <= max(3, 0.005 * right), "It is wrong for other claims.")


wrong(
    "ex-where-privacy-breaks-how-many",
    all_runs_test=(lambda e: np.exp(e) * np.log(2000), "Half of the runs"),
    one_limit=(lambda e: 2 * np.exp(e) * np.log(1000), "two limits"),
    no_confidence=(lambda e: 2 * np.exp(e), "Solve"),
)


@exercises.hidden("ex-where-privacy-breaks-whole")
def whole_noise(function: Callable[..., Any], rng: Rng) -> None:
    epsilon = float(rng.uniform(0.3, 2))
    draws, k = np.asarray(function(epsilon, 40_000, rng)), np.arange(-3, 4)
    shares = np.mean(draws[:, None] == k, axis=0)
    expected = np.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(k))
    expect(np.abs(shares - expected).max() < 0.015, "The probabilities do not fall by e^-ε from number to number.")


wrong(
    "ex-where-privacy-breaks-whole",
    rounded_laplace=(lambda e, size, rng: np.round(rng.laplace(scale=1 / e, size=size)), "rounded Laplace"),
    floats=(lambda e, size, rng: rng.laplace(scale=1 / e, size=size), "not whole"),
    one_sided=(lambda e, size, rng: rng.geometric(-np.expm1(-e), size=size) - 1, "should in"),
)


# 1.9 Choosing epsilon ------------------------------------------------------------------------------------------------


@exercises.hidden("ex-choosing-epsilon-even")
def even(break_even: Callable[[float, float], float], rng: Rng) -> None:
    epsilon, theta = float(rng.uniform(0.01, 2)), float(rng.uniform(0.01, 0.5))
    close(number(break_even(epsilon, theta)), 2 / (epsilon**2 * theta * (1 - theta)), "It is wrong elsewhere.")


wrong(
    "ex-choosing-epsilon-even",
    scale_for_sd=(lambda e, t: 1 / (e**2 * t * (1 - t)), "2 b²"),
    without_theta=(lambda e, t: 2 / e**2, "sampling variance"),
    sds=(lambda e, t: np.sqrt(2) / (e * t * (1 - t)), "solve for n"),
)


@exercises.hidden("ex-choosing-epsilon-months")
def months(answer: Any, rng: Rng) -> None:
    right = (special.logit(0.1) - special.logit(0.02)) / 12
    close([number(part) for part in answer], [right, 2 / (right**2 * 0.0196)], "Not to three digits.", within=5e-3)


_ratio = np.log(5) / 12
wrong(
    "ex-choosing-epsilon-months",
    ratio_of_probabilities=((_ratio, 2 / (_ratio**2 * 0.0196)), "bounds odds"),
    the_whole_year=((1.6946, 35.5), "for the year"),
    half_the_people=((0.14122, 1 / (0.14122**2 * 0.0196)), "Noise and sampling"),
)


@exercises.hidden("ex-choosing-epsilon-price")
def price(best: Any, rng: Rng) -> None:
    cheapest = optimize.minimize_scalar(lambda e: 2e9 / (6366 * e) ** 2 + 31830 * np.expm1(e), bounds=(1e-3, 5)).x
    close(number(best), cheapest, "It is not the cheapest.", within=0.01)


wrong(
    "ex-choosing-epsilon-price",
    rule_of_thumb=((4e9 / 5) ** (1 / 3) / 6366, "rule of thumb"),
    epsilon_1=(1.0, "cheaper"),
)


@exercises.hidden("ex-choosing-epsilon-local")
def local(function: Callable[[float], float], rng: Rng) -> None:
    theta = float(rng.uniform(0.02, 0.98))
    close(number(function(theta)), 2 * np.arcsinh(1 / (2 * np.sqrt(theta * (1 - theta)))), "It is wrong elsewhere.")


wrong(
    "ex-choosing-epsilon-local",
    half_of_it=(lambda t: np.arcsinh(1 / (2 * np.sqrt(t * (1 - t)))), "Half of it"),
    one_half=(lambda t: 2 * np.arcsinh(1.0), "θ = 1/2"),
    squared=(lambda t: 2 * np.arcsinh(1 / (4 * t * (1 - t))), "n cancels"),
)


# 1.10 Bayesian inference in one section ------------------------------------------------------------------------------


@exercises.hidden("ex-primer-update")
def update(function: Callable[..., Any], rng: Rng) -> None:
    yes, n, a, b = int(rng.integers(0, 20)), 20 + int(rng.integers(9)), *rng.uniform(0.5, 9, size=2)
    close(np.asarray(function(yes, n, a, b), dtype=float), [a + yes, b + n - yes], "It is wrong for other priors.")


wrong(
    "ex-primer-update",
    all_in_the_second=(lambda yes, n, a, b: (a + yes, b + n), "who said no"),
    without_the_prior=(lambda yes, n, a, b: (yes, n - yes), "on top of the prior"),
    the_mean=(lambda yes, n, a, b: (a + yes) / (a + b + n), "two parameters"),
)


@exercises.hidden("ex-primer-rank")
def rank(function: Callable[..., Any], rng: Rng) -> None:
    truth, draws = rng.normal(size=200), rng.normal(size=(200, 99))
    close(function(truth, draws), (draws < truth[:, None]).mean(axis=1), "It is wrong for other draws.")


wrong(
    "ex-primer-rank",
    above=(lambda truth, draws: (draws > truth[:, None]).mean(axis=1), "above the truth"),
    not_divided=(lambda truth, draws: (draws < truth[:, None]).sum(axis=1), "Divide"),
    over_trials=(lambda truth, draws: (draws < truth[:, None]).mean(axis=0), "for each trial"),
)


# 1.11 After a release ------------------------------------------------------------------------------------------------


@exercises.hidden("ex-after-below")
def below(expected: Any, rng: Rng) -> None:
    right = float(count_posterior(100, (-10.0, 0.1)) @ np.arange(101))
    close(number(expected), right, "It is not the mean of the posterior.", within=1e-3)


wrong("ex-after-below", clipped=(0, "nearest"), face_value=(-10, "not negative"), endless=(10.0, "end at 100"))


@exercises.hidden("ex-after-two")
def two(function: Callable[..., Any], rng: Rng) -> None:
    one, other = (float(rng.uniform(-20, 80)), 0.3), (float(rng.uniform(-20, 80)), 0.1)
    got = np.asarray(function(*one, *other, 50), dtype=float)
    close(got, count_posterior(50, one, other), "It is wrong for other releases.", within=1e-5)


wrong(
    "ex-after-two",
    averaged=(lambda z1, e1, z2, e2, n: count_posterior(n, ((z1 + z2) / 2, e1 + e2)), "averaged"),
    the_better_one=(lambda z1, e1, z2, e2, n: count_posterior(n, (z2, e2)), "independent"),
    not_normalised=(lambda z1, e1, z2, e2, n: count_posterior(n, (z1, e1)) * 2, "add up to 1"),
)


def naive(z: float, n: int, epsilon: float, rng: Rng, draws: int) -> Any:
    """Draw from the posterior that takes the noisy count for the exact one."""
    s = np.clip(z, 0, n)
    return rng.beta(1 + s, 1 + n - s, size=draws)


@exercises.hidden("ex-after-by-hand")
def by_hand(function: Callable[..., Any], rng: Rng) -> None:
    n, epsilon = int(rng.integers(30, 120)), float(rng.uniform(0.05, 0.3))
    calibrated(
        lambda z, rng: function(z, n, epsilon, rng, 100),
        prior=uniform,
        simulate=noisy_count(n, epsilon),
        trials=400,
        seed=int(rng.integers(999)),
    )


wrong(
    "ex-after-by-hand",
    naive=(naive, "calibration test rejects"),
    the_prior=(lambda z, n, e, rng, draws: rng.uniform(size=draws), "learns nothing"),
    a_normal=(lambda z, n, e, rng, draws: rng.normal(z / n, 1 / (e * n), size=draws), "between 0 and 1"),
)
