"""The checks that help with the exercises of chapter 1: ``check("ex-…", answer)`` in any of its sections.

Each says what is wrong, and where it can, why. The tests that grade are elsewhere, and use other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from dpbook.accounting import gaussian_delta, gaussian_scale, group_privacy
from dpbook.datasets import load_fair
from dpbook.exercises import Exercises, calibrated, close, expect, number, private

exercises = Exercises()
check, numbers = exercises.check, exercises.numbers

Floats = NDArray[np.float64]


def whole(answer: Any, expected: int, message: str) -> None:
    """Expect a whole number."""
    expect(number(answer) == expected, message)


# 1.1 Why aggregates leak ---------------------------------------------------------------------------------------------


@exercises.generated("ex-why-aggregates-leak-leaver")
def leaver_numbers(rng: np.random.Generator) -> dict[str, Any]:
    people = int(rng.integers(12, 40))
    pay = rng.integers(2100, 5200, size=people)
    return {
        "people": people,
        "mean_before": float(pay.mean().round(4)),
        "mean_after": float(pay[:-1].mean().round(4)),
    }


@exercises.public("ex-why-aggregates-leak-leaver")
def leaver(pay: Any, given: dict[str, Any]) -> None:
    before, after, people = given["mean_before"], given["mean_after"], given["people"]
    got = number(pay)
    expect(abs(got - (before - after)) > 1, "That is how far the mean moved. Compare the totals, not the means.")
    expect(abs(got - people * (before - after)) > 1, "After the departure the mean is over one person less.")
    expect(got > 1000, "A monthly pay is some thousands: subtract the later total from the earlier one.")


@exercises.public("ex-why-aggregates-leak-overlap")
def overlap(asked: Any) -> None:
    sets = np.asarray(asked)
    people = len(load_fair())
    expect(sets.shape == (3, people), f"Give three selections of {people} wives, as arrays of True and False.")
    expect(sets.dtype == bool, "A selection is an array of True and False.")
    expect(sets.sum(axis=1).min() >= 100, f"A question is about fewer than 100 women: {sets.sum(axis=1).tolist()}.")
    apart = [int((one ^ two).sum()) for one, two in combinations(sets, 2)]
    expect(min(apart) >= 100, f"Two of the sets differ in fewer than 100 women: {apart}. The curator would refuse.")
    her = np.arange(people) == 3
    weights, *_ = np.linalg.lstsq(sets.T.astype(float), her.astype(float), rcond=None)
    alone = np.allclose(weights @ sets, her, atol=1e-8)
    expect(alone, "No sum or difference of the three answers is about wife 3 alone.")


def pairs_that_expose(r: int, chance: float = 0.99) -> int:
    """Return how many pairs of rounded answers expose a yes with some chance."""
    return int(np.ceil(np.log1p(-chance) / np.log1p(-1 / r)))


@exercises.public("ex-why-aggregates-leak-rounding")
def rounding(pairs_needed: Callable[[int], int]) -> None:
    got = number(pairs_needed(5), "pairs_needed(5)")
    expect(got == round(got), f"Pairs come in whole numbers: {got:.2f} is between two, and the smaller is too few.")
    expect(got != 20, "20 pairs expose her with 98.8 %: round up, not down.")
    whole(got, 21, "A pair exposes her with probability 1/5. After how many pairs is a miss rarer than 1 %?")


# 1.2 The definition --------------------------------------------------------------------------------------------------


@exercises.public("ex-definition-most")
def most(function: Callable[[float, float], float]) -> None:
    half, tenth = number(function(0.5, 1.0)), number(function(0.1, 1.0))
    expect(half < 1, "At epsilon = 1 a belief of one half became certainty: the bound is on the odds, not on p.")
    expect(
        not np.isclose(tenth, 0.1 * np.exp(1), rtol=1e-3),
        "You multiplied the probability by e. Multiply the odds p/(1 - p).",
    )
    close(
        [half, tenth], special.expit(special.logit([0.5, 0.1]) + 1), "The odds may grow by a factor of e, and no more."
    )


@exercises.public("ex-definition-tester")
def tester(advantage: Callable[[float], float]) -> None:
    got = np.array([number(advantage(e)) for e in (0.5, 2.0)])
    bound = np.tanh([0.25, 1.0])
    expect(not np.allclose(got, bound), "That is the bound on every tester. This one does a little worse.")
    expect(np.all(got <= bound + 1e-9), "No tester can have that: it exceeds the bound of the corollary.")
    close(got, -np.expm1([-0.25, -1.0]), "Put the threshold half way between the two counts.")


@exercises.public("ex-definition-excess")
def excess(delta_of: Callable[[float, float], float]) -> None:
    got, mu = number(delta_of(1.0, 0.8)), 0.8
    exceeds = stats.norm.sf(1.0, loc=mu**2 / 2, scale=mu)
    expect(not np.isclose(got, exceeds, rtol=1e-3), "That is Pr(L > epsilon). Delta counts only the excess.")
    close(got, gaussian_delta(1.0, mu), "The mean of max(1 - exp(epsilon - L), 0) for L normal.", within=1e-3)


@exercises.public("ex-definition-promise")
def promise(release: Callable[..., Floats]) -> None:
    here, there = np.array([50.0, 50.0, 0.0]), np.array([49.0, 51.0, 0.0])
    rows = np.asarray(release(here, 1.0, np.random.default_rng(1), 4000))
    expect(rows.shape == (4000, 3), f"Return one row for each trial, shape (4000, 3), not {rows.shape}.")
    private(at(release, 1.0), here, there, epsilon=1.0, trials=30_000, seed=2, batched=True)
    expect(
        rows.std(axis=0).max() < 4, "It is private, but with more noise than it takes: two cells change by one each."
    )


def at(release: Callable[..., Any], epsilon: float) -> Callable[..., Any]:
    """Return a release with its epsilon fixed, for an audit."""
    return lambda data, rng, trials: release(data, epsilon, rng, trials)


# 1.3 Whose privacy? --------------------------------------------------------------------------------------------------


@exercises.public("ex-unit-of-privacy-caption")
def caption(factor: Any) -> None:
    got = number(factor)
    expect(
        not np.isclose(got, np.exp(0.3), rtol=1e-2), "That is for one record. How many differ on the pair as printed?"
    )
    expect(not np.isclose(got, 2.7, rtol=1e-2), "2.7 is the epsilon of the group. Which factor is that?")
    close(got, np.exp(2.7), "Nine records differ: group privacy.", within=0.01)


@exercises.public("ex-unit-of-privacy-wifi")
def wifi(per_user: Callable[[float, float, int], Any]) -> None:
    pure = per_user(1.0, 0.0, 21)
    expect(np.shape(pure) == (2,), "Return a pair: epsilon and delta.")
    close(pure, [21.0, 0.0], "Twenty-one days at epsilon = 1 each, and no delta.")
    epsilon, delta = per_user(1.0, 1e-9, 21)
    expect(
        not np.isclose(delta, 21e-9, rtol=1e-3),
        "Deltas do not just add up: each is multiplied by e^epsilon on its way.",
    )
    close([epsilon, delta], group_privacy(1.0, 21, delta=1e-9), "The delta of a group is in the theorem.", within=1e-4)


@exercises.public("ex-unit-of-privacy-club")
def club(sensitivity: Any) -> None:
    got = number(sensitivity)
    expect(got != 30, "30 is what one visit can change. A member may come on 12 days.")
    expect(got != 12, "12 is how many records a member has. How much can each of them change?")
    expect(got != 720, "Replacing a person changes each value from one end of [0, 30] to the other: 30, not 60.")
    close(got, 360, "A replaced member changes up to 12 records, each by up to 30 minutes.")


# 1.4 Mechanisms ------------------------------------------------------------------------------------------------------


@exercises.generated("ex-mechanisms-scale")
def scale_numbers(rng: np.random.Generator) -> dict[str, Any]:
    low = int(rng.integers(1, 20))
    return {
        "n": int(rng.integers(200, 2000)),
        "low": low,
        "high": low + int(rng.integers(20, 80)),
        "epsilon": float(rng.choice([0.05, 0.1, 0.2, 0.5])),
    }


@exercises.public("ex-mechanisms-scale")
def scale(answer: Any, given: dict[str, Any]) -> None:
    n, low, high, epsilon = (given[key] for key in ("n", "low", "high", "epsilon"))
    got = number(answer)
    expect(not np.isclose(got, (high - low) / epsilon), "That is for the sum. A mean moves n times less.")
    expect(
        not np.isclose(got, high / (n * epsilon)),
        "That is for add/remove neighbours: a replaced value moves by high - low.",
    )
    expect(not np.isclose(got, (high - low) / n), "That is the sensitivity. Divide by epsilon.")
    expect(got > 0, "A scale is positive.")


@exercises.public("ex-mechanisms-widths")
def widths(answer: Any) -> None:
    sensitivity, epsilon = (number(part) for part in answer)
    expect(sensitivity != 3, "3 is what the paper says. Replace the record (1, 1) by (2, 2) and add up the changes.")
    close(sensitivity, 9, "Each of the three sums runs over [1, 4].")
    close(epsilon, 3, "The noise was made for a sensitivity of 3, and the sums can move by 9.")


@exercises.public("ex-mechanisms-people")
def people(answer: Any) -> None:
    local, central = (number(part) for part in answer)
    sd = np.exp(0.25) / np.expm1(0.5)
    expect(
        not np.isclose(local, (sd / 0.01) ** 2, rtol=0.02),
        "That makes one standard deviation 1 %. An interval has 1.96.",
    )
    expect(abs(local / (1.96 * sd / 0.01) ** 2 - 1) < 0.01, "Look at the variance of randomised response for k = 2.")
    expect(abs(central / 600 - 1) < 0.02, "A curator: noise of scale 2/n, and Pr(|noise| > t) = exp(-t n / 2).")


@exercises.public("ex-mechanisms-choose")
def choose(function: Callable[..., Any]) -> None:
    rng = np.random.default_rng(3)
    picks = np.asarray(function(np.array([0.0, 4.0, 4.0]), 1.0, rng, 20_000))
    expect(picks.shape == (20_000,), "Return the index of a candidate for each trial.")
    expect(set(np.unique(picks)) <= {0, 1, 2}, "Return indices of candidates: 0, 1 or 2 here.")
    private(
        at(function, 1.0), np.array([0.0, 4.0]), np.array([1.0, 3.0]), epsilon=1.0, trials=60_000, seed=4, batched=True
    )
    shares = np.bincount(picks, minlength=3) / len(picks)
    expected = special.softmax(np.array([0.0, 2.0, 2.0]))
    expect(
        np.abs(shares - expected).max() < 0.02, f"The shares are {shares.round(2)}, and should be {expected.round(2)}."
    )


# 1.5 Where to add the noise ------------------------------------------------------------------------------------------


@exercises.public("ex-where-two-errors")
def two_errors(sd: Callable[[int, float], float]) -> None:
    got = number(sd(1000, 0.1))
    sampling, noise = np.sqrt(0.25 / 1000), np.sqrt(2) / (1000 * 0.1)
    expect(not np.isclose(got, sampling + noise), "Variances add up, standard deviations do not.")
    expect(not np.isclose(got, noise), "That is the noise alone. The respondents are a sample, too.")
    expect(not np.isclose(got, np.hypot(sampling, noise / np.sqrt(2))), "Laplace noise of scale b has variance 2 b².")
    close(got, np.hypot(sampling, noise), "Sampling: 1/(4n). Noise in the share: scale 1/(n epsilon).")


@exercises.public("ex-where-local-price")
def local_price(worth: Callable[[float, float], float]) -> None:
    got = number(worth(2.0, 0.1))
    expect(
        not np.isclose(got, 2 * 2.0**2 / 0.1**2, rtol=0.02),
        "sinh(x) is x only for small x, and at epsilon = 2 it is not small.",
    )
    close(got, 8 * np.sinh(1.0) ** 2 / 0.01, "Set the two noise terms equal; the sampling terms cancel.", within=1e-3)


# 1.6 Composition -----------------------------------------------------------------------------------------------------


@exercises.public("ex-composition-ledger")
def ledger(total: Any) -> None:
    got = number(total)
    expect(not np.isclose(got, 2.2), "You charged all four weeks. A respondent is in one of them, fixed by arrival.")
    expect(not np.isclose(got, 0.4), "The other releases read the same records: they add up.")
    close(got, 1.0, "Sequential releases add up; disjoint parts cost what the dearest costs.")


@exercises.public("ex-composition-helpful")
def helpful(answer: Any) -> None:
    delta, width = (number(part) for part in answer)
    expect(
        not np.isclose(delta, np.exp(-3), rtol=0.02),
        "That is how often a draw is rejected. What can only one count reach?",
    )
    close(
        delta,
        np.expm1(1) / (2 * np.expm1(3)),
        "The interval of length 1 that only one of the counts reaches.",
        within=0.01,
    )
    close(width, np.log1p(np.expm1(1) / 2e-6), "Solve delta(w) = 1e-6 for w.", within=0.01)


@exercises.public("ex-composition-year")
def year(noise: Any) -> None:
    got = np.array([number(sd) for sd in noise])
    expect(got.shape == (4,), "Give four standard deviations: sum, advanced, optimal, Gaussian.")
    expect(not np.isclose(got[0], np.sqrt(2)), "That is for epsilon = 1 a day, and 365 of them.")
    expect(not np.isclose(got[0], 365), "365 is the scale of the noise; its standard deviation is larger.")
    close(got[0], np.sqrt(2) * 365, "Each day gets 1/365.", within=1e-3)
    expect(np.all(np.diff(got) < 0), "Each way of counting should need less noise than the one before.")
    gauss = gaussian_scale(sensitivity=np.sqrt(365), epsilon=1, delta=1e-6)
    close(got[3], gauss, "A year is one Gaussian release with L2 sensitivity √365.", within=1e-3)


@exercises.public("ex-composition-histogram")
def many_histograms(first: Any) -> None:
    got = number(first)
    sigma = gaussian_scale(sensitivity=1, epsilon=1, delta=1e-6)
    crossover = sigma**2 / 2
    expect(got != np.floor(crossover) + 1, "That is how many answers it takes. A histogram changes in two cells.")
    whole(got, int(np.floor(crossover / 2)) + 1, "Compare √2 · 2m with σ √(2m).")


# 1.7 Sparse vector and private quantiles -----------------------------------------------------------------------------


def stops(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the release of a list of counts that an audit runs: where the function stopped, -1 for nowhere."""

    def release(counts: Any, rng: np.random.Generator) -> int:
        found = function(list(counts), 0.0, 1.0, rng)
        return -1 if found == "nowhere" else int(found)

    return release


@exercises.public("ex-sparse-vector-and-quantiles-write")
def write(first_above: Callable[..., Any]) -> None:
    rng = np.random.default_rng(5)
    sure = [first_above([-1e4, -1e4, 1e4, 0.0], 0.0, 1.0, rng) for _ in range(20)]
    expect(set(sure) == {2}, f"The third count is far above: it should stop at index 2, not {sure[0]}.")
    never = first_above([-1e4] * 5, 0.0, 1.0, rng)
    expect(never == "nowhere", f'Return "nowhere" where no count gets above, not {never!r}.')
    up, down = [0.0, 1.0] * 2, [1.0, 0.0] * 2
    private(stops(first_above), up, down, epsilon=1.0, trials=12_000, seed=6)
    long = [0.0] * 12, [1.0] * 11 + [0.0]
    private(stops(first_above), *long, epsilon=1.0, trials=12_000, seed=7)


@exercises.public("ex-sparse-vector-and-quantiles-doubling")
def doubling(share: Any) -> None:
    got = number(share)
    expect(got < 0.9, "It never stops: the threshold must be a share of the 100 statistics, not of the records.")
    expect(got > 0.02, "The noise has scale 4/epsilon on each count and 2/epsilon on the threshold.")
    expect(0.11 < got < 0.17, "Count the runs with b = 16 or more: four doublings, or five.")


@exercises.public("ex-sparse-vector-and-quantiles-utility")
def utility(function: Callable[[Any, float, float], float]) -> None:
    data = np.array([1.0, 2.0, 3.0, 4.0, 50.0])
    close(
        number(function(data, 3.0, 0.6)), 0.0, "Three of five values are at most 3: that is the 0.6 quantile exactly."
    )
    moved = abs(number(function(data, 3.0, 0.5)) - number(function(np.array([1.0, 2.0, 3.0, 4.0, 9.0]), 3.0, 0.5)))
    expect(moved <= 1, "Replacing 50 by 9 moved it by more than 1: measure in people, not in dollars.")
    close(number(function(data, 1.0, 0.5)), -1.5, "One value is at most 1, and 2.5 should be: 1.5 people off.")
    expect(number(function(data, 50.0, 0.5)) < 0, "Too far up is as bad as too far down: take the absolute value.")


# 1.8 Where privacy really breaks -------------------------------------------------------------------------------------


def at_cells(publish: Callable[..., Any], edges: Floats) -> Callable[..., Any]:
    """Return the release of incomes with cells and epsilon fixed, for an audit."""
    return lambda incomes, rng: publish(incomes, edges, 1.0, rng)


@exercises.public("ex-where-privacy-breaks-mistakes")
def mistakes(publish: Callable[..., Any]) -> None:
    edges, rng = np.linspace(0, 100, 3), np.random.default_rng(8)
    poor, rich = np.full(40, 10.0), np.r_[np.full(39, 10.0), 90.0]
    rows = np.array([publish(poor, edges, 1.0, rng) for _ in range(200)], dtype=float)
    expect(rows.shape == (200, 2), "Publish the noisy counts of the cells, and nothing else.")
    expect(np.array_equal(rows, rows.round()), "Counts are whole: take noise that is, too.")
    rich_club = np.full(40, 5e6)
    total = float(np.mean([np.sum(publish(rich_club, edges, 1.0, rng)) for _ in range(200)]))
    expect(abs(total - 40) < 3, "An income above the last edge falls out of the table. Clip first: n is public.")
    private(at_cells(publish, edges), poor, rich, epsilon=1.0, trials=6000, seed=9)


@exercises.public("ex-where-privacy-breaks-how-many")
def how_many(runs: Callable[[float], int]) -> None:
    got = number(runs(5.0))
    expect(not np.isclose(got, np.exp(5) * np.log(2000), rtol=0.02), "Half of the runs choose the event: N = 2m.")
    expect(
        not np.isclose(got, 2 * np.exp(5) * np.log(1000), rtol=0.02), "The error is split over two limits: log(2/α)."
    )
    expect(abs(got / (2 * np.exp(5) * np.log(2000)) - 1) < 0.005, "Solve log(m / log(2/α)) = 5 for m, with α = 0.001.")


@exercises.public("ex-where-privacy-breaks-whole")
def whole_noise(function: Callable[..., Any]) -> None:
    draws = np.asarray(function(1.0, 40_000, np.random.default_rng(10)))
    expect(draws.shape == (40_000,), "Return as many draws as were asked for.")
    expect(np.array_equal(draws, np.round(draws)), "The draws are not whole numbers.")
    zero = float(np.mean(draws == 0))
    rounded = -np.expm1(-0.5)
    expect(
        abs(zero - rounded) > 0.01,
        f"Zero comes up in {zero:.0%} of the draws: that is rounded Laplace noise, still a float's. Use rng.geometric.",
    )
    expect(
        abs(zero - np.tanh(0.5)) < 0.01, f"Zero comes up in {zero:.0%} of the draws, and should in {np.tanh(0.5):.0%}."
    )
    expect(abs(draws.mean()) < 0.05, "The noise is not centred at zero.")


# 1.9 Choosing epsilon ------------------------------------------------------------------------------------------------


@exercises.public("ex-choosing-epsilon-even")
def even(break_even: Callable[[float, float], float]) -> None:
    got = number(break_even(0.1, 0.3))
    expect(not np.isclose(got, 1 / (0.01 * 0.21), rtol=1e-3), "Laplace noise of scale b has variance 2 b², not b².")
    expect(not np.isclose(got, 2 / 0.01, rtol=1e-3), "The sampling variance of a share is θ(1 - θ)/n.")
    close(got, 2 / (0.01 * 0.21), "Set 2/(n ε)² equal to θ(1 - θ)/n, and solve for n.")


@exercises.public("ex-choosing-epsilon-months")
def months(answer: Any) -> None:
    monthly, n = (number(part) for part in answer)
    logit = special.logit
    expect(
        not np.isclose(monthly, np.log(5) / 12, rtol=1e-3), "You used the ratio of probabilities. Epsilon bounds odds."
    )
    expect(not np.isclose(monthly, logit(0.1) - logit(0.02), rtol=1e-3), "That is for the year.")
    right = (logit(0.1) - logit(0.02)) / 12
    close(monthly, right, "The year may cost logit(0.10) - logit(0.02).", within=1e-3)
    close(n, 2 / (right**2 * 0.02 * 0.98), "Noise and sampling are equal at 2/(ε² θ(1 - θ)).", within=1e-2)


@exercises.public("ex-choosing-epsilon-price")
def price(best: Any) -> None:
    got = number(best)
    thumb = (4e9 / 5) ** (1 / 3) / 6366
    expect(not np.isclose(got, thumb, rtol=1e-3), "That is the rule of thumb, a little off: minimise the cost itself.")

    def cost(epsilon: float) -> float:
        return float(2e9 / (6366 * epsilon) ** 2 + 6366 * np.expm1(epsilon) * 5)

    expect(0.01 < got < 5, "Look between 0.01 and 5.")
    expect(cost(got) < 1.0001 * min(cost(got * 0.95), cost(got * 1.05)), "A little more or less epsilon is cheaper.")


@exercises.public("ex-choosing-epsilon-local")
def local(function: Callable[[float], float]) -> None:
    got = number(function(0.3))
    right = 2 * np.arcsinh(1 / (2 * np.sqrt(0.21)))
    expect(not np.isclose(got, right / 2), "Half of it: sinh is of epsilon/2.")
    expect(not np.isclose(got, 2 * np.arcsinh(1)), "That is for θ = 1/2.")
    close(got, right, "Set the two variances equal; n cancels.")


# 1.10 Bayesian inference in one section ------------------------------------------------------------------------------


@exercises.public("ex-primer-update")
def update(function: Callable[..., Any]) -> None:
    got = np.asarray(function(3, 10, 1, 1), dtype=float)
    expect(got.shape == (2,), "Return the two parameters of a Beta distribution.")
    expect(not np.array_equal(got, [4, 11]), "The second parameter counts those who said no: n less the yeses.")
    close(got, [4, 8], "Three said yes and seven no, on top of the prior's one and one.")


@exercises.public("ex-primer-rank")
def rank(function: Callable[..., Any]) -> None:
    truth, draws = np.array([0.5, 0.0, 2.0]), np.array([[0.1, 0.2, 0.9, 1.0], [1.0] * 4, [1.0] * 4])
    got = np.asarray(function(truth, draws), dtype=float)
    expect(got.shape == (3,), f"Return one rank for each trial: shape (3,), not {got.shape}.")
    expect(got.max() <= 1, "Divide by the number of draws, so that the rank lies in [0, 1].")
    expect(
        not np.allclose(got, [0.5, 1.0, 0.0]), "You counted the draws above the truth. Its rank is the share below it."
    )
    close(got, [0.5, 0.0, 1.0], "Two of four draws are below 0.5, none is below 0, all are below 2.")


# 1.11 After a release ------------------------------------------------------------------------------------------------


def count_posterior(n: int, *releases: tuple[float, float]) -> Floats:
    """Return the posterior of a count under a uniform prior of the share, given noisy counts and their epsilons."""
    s = np.arange(n + 1)
    log = -sum((epsilon * np.abs(z - s) for z, epsilon in releases), np.zeros(n + 1))
    weights = np.exp(log - log.max())
    posterior: Floats = weights / weights.sum()
    return posterior


@exercises.public("ex-after-below")
def below(expected: Any) -> None:
    got = number(expected)
    expect(got != 0, "Zero is the count nearest to the release. All counts from 0 to 100 could have given it.")
    expect(got > 0, "A count is not negative, and its mean is not either.")
    right = float(count_posterior(100, (-10.0, 0.1)) @ np.arange(101))
    expect(not np.isclose(got, 10, rtol=1e-3), "That would do if counts were not whole and did not end at 100.")
    close(got, right, "Weigh each count from 0 to 100 by exp(-|z - s| ε).", within=1e-3)


@exercises.public("ex-after-two")
def two(function: Callable[..., Any]) -> None:
    got = np.asarray(function(95.0, 0.05, 61.0, 0.2, 200), dtype=float)
    expect(got.shape == (201,), f"Return the probabilities of the counts 0 to 200: 201 of them, not {got.shape}.")
    expect(np.isclose(got.sum(), 1), "The probabilities must add up to 1.")
    averaged = count_posterior(200, ((95 + 61) / 2, 0.25))
    expect(
        not np.allclose(got, averaged), "You averaged the two counts. They have different noise: multiply densities."
    )
    close(got, count_posterior(200, (95.0, 0.05), (61.0, 0.2)), "Given s the noises are independent.", within=1e-5)


def uniform(rng: np.random.Generator, trials: int) -> Floats:
    return rng.uniform(size=trials)


def noisy_count(n: int, epsilon: float) -> Callable[..., Floats]:
    """Return the simulation of a noisy count of n people."""
    return lambda theta, rng: rng.binomial(n, theta) + rng.laplace(scale=1 / epsilon, size=len(theta))


@exercises.public("ex-after-by-hand")
def by_hand(function: Callable[..., Any]) -> None:
    draws = np.asarray(function(-3.0, 60, 0.1, np.random.default_rng(11), 400), dtype=float)
    expect(draws.shape == (400,), f"Return as many draws as were asked for: shape (400,), not {draws.shape}.")
    expect(draws.min() >= 0, "A share lies between 0 and 1, also where the noisy count does not.")
    calibrated(
        lambda z, rng: function(z, 60, 0.1, rng, 100),
        prior=uniform,
        simulate=noisy_count(60, 0.1),
        trials=400,
        seed=12,
    )
