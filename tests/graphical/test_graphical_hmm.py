"""Hidden Markov models: releases are as private as they say, draws are exact, and posteriors are calibrated.

Statistical tests use fixed seeds; each states what it would take for a right program to fail it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings

import arviz as az
import numpy as np
import pytest
from scipy import special, stats

from dpbook import PrivacyBudget, Release, sensitivity
from dpbook.audit import epsilon_lower_bound
from dpbook.budget import BudgetExceeded
from dpbook.diagnostics import calibrate
from dpbook.graphical import hmm
from dpbook.graphical.hmm.model import draw_paths, log_emission, tally
from dpbook.graphical.hmm.noisy_counts import draw_counts, log_noisy_count
from dpbook.graphical.hmm.releases import _draw_on_lattice
from dpbook.graphical.hmm.sampler import Exact, Noisy, Settings, State, sample
from dpbook.graphical.hmm.temperatures import assignment_loss, emission_loss
from dpbook.posterior import ConvergenceWarning

TABLE = np.array([[[45, 5]] * 4 + [[10, 40]] * 4, [[40, 8]] * 8])


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def random_model(rng, states, types):
    return (
        rng.dirichlet(np.ones(types), states),
        rng.dirichlet(np.ones(states), states),
        rng.dirichlet(np.ones(states)),
    )


def path_weights(counts, emission, transition, initial):
    """Return every path of one place and its joint probability with the data, by enumeration."""
    months, states = len(counts), len(initial)
    paths = list(itertools.product(range(states), repeat=months))
    weights = []
    for path in paths:
        p = initial[path[0]] * math.prod(transition[a, b] for a, b in itertools.pairwise(path))
        weights.append(p * math.prod((emission[s] ** x).prod() for s, x in zip(path, counts, strict=True)))
    return paths, np.array(weights)


# Forward filtering, backward sampling ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("states", "months"), [(2, 1), (2, 6), (3, 5), (4, 4)])
def test_the_likelihood_equals_the_sum_over_all_paths(states, months):
    rng = rng_of(states * 10 + months)
    emission, transition, initial = random_model(rng, states, 3)
    counts = rng.poisson(2, (2, months, 3))
    exact = sum(math.log(path_weights(each, emission, transition, initial)[1].sum()) for each in counts)
    assert hmm.log_likelihood(counts, emission, transition, initial) == pytest.approx(exact, abs=1e-10)


def test_drawn_paths_have_the_probabilities_of_enumeration():
    """Chi-squared over all 27 paths of 3 states and 3 months, 40,000 draws; false alarm 0.001."""
    rng = rng_of(1)
    emission, transition, initial = random_model(rng, 3, 3)
    counts = rng.poisson(0.7, (3, 3))
    paths, weights = path_weights(counts, emission, transition, initial)
    logs = np.broadcast_to(log_emission(counts[None].astype(float), emission), (40_000, 1, 3, 3))
    batch = (np.broadcast_to(each, (40_000, *each.shape)) for each in (transition, initial))
    drawn = draw_paths(logs, *batch, rng)[:, 0].astype(int)
    seen = np.bincount(drawn @ np.array([9, 3, 1]), minlength=27)
    assert [tuple(map(int, np.base_repr(i, 3).zfill(3))) for i in range(27)] == paths
    assert stats.chisquare(seen, 40_000 * weights / weights.sum()).pvalue > 0.001


def test_a_batch_is_filtered_as_its_members_are():
    rng = rng_of(2)
    models = [random_model(rng, 2, 3) for _ in range(4)]
    counts = rng.poisson(3, (4, 2, 5, 3))
    together = hmm.log_likelihood(counts, *(np.stack(part) for part in zip(*models, strict=True)))
    alone = [hmm.log_likelihood(x, *model) for x, model in zip(counts, models, strict=True)]
    np.testing.assert_allclose(together, alone)


# Counts behind noise --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0, 8.0])
@pytest.mark.parametrize("mean", [0.02, 4.0, 60.0])
def test_the_law_of_a_noisy_count_equals_its_sum(epsilon, mean):
    ratio = math.exp(-epsilon / 2)
    x, y = np.arange(4000.0), np.arange(-30.0, 200.0)
    terms = stats.poisson.logpmf(x, mean) + np.abs(y[:, None] - x) * math.log(ratio)
    peak = terms.max(axis=1)
    exact = peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1)) + math.log((1 - ratio) / (1 + ratio))
    np.testing.assert_allclose(log_noisy_count(y, np.array(mean), np.array(ratio)), exact, atol=1e-9, rtol=1e-10)


def test_the_law_of_a_noisy_count_survives_the_far_tails():
    """References with 50 digits: a count of mean 3000 seen as 4, and one of mean 0.5 seen as 900."""
    import mpmath

    mpmath.mp.dps = 50
    for y, mean, ratio in [(4, 3000.0, 0.3), (900, 0.5, 0.2), (-50, 2000.0, 0.1), (0, 2500.0, 0.001)]:
        reach = 6000
        total, pmf = mpmath.mpf(0), mpmath.exp(-mpmath.mpf(mean))
        for x in range(reach):
            total += pmf * mpmath.mpf(ratio) ** abs(y - x)
            pmf *= mpmath.mpf(mean) / (x + 1)
        exact = float(mpmath.log(total * (1 - mpmath.mpf(ratio)) / (1 + mpmath.mpf(ratio))))
        found = log_noisy_count(np.array([float(y)]), np.array([mean]), np.array([ratio]))
        assert found[0] == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize(
    ("y", "mean", "epsilon"),
    [(5, 3.0, 0.3), (-3, 2.0, 1.0), (50, 20.0, 0.1), (10, 300.0, 2.0), (0, 0.01, 0.1), (4, 4.0, 9.0)],
)
def test_drawn_true_counts_have_their_exact_law(y, mean, epsilon):
    """Chi-squared on cells of expectation at least 5, 40,000 draws; false alarm 0.001 a case."""
    ratio, size = math.exp(-epsilon / 2), 40_000
    x = np.arange(2000)
    log_weight = stats.poisson.logpmf(x, mean) + np.abs(x - y) * math.log(ratio)
    law = np.exp(log_weight - log_weight.max())
    law /= law.sum()
    full = [np.full(size, float(each)) for each in (y, mean, ratio)]
    drawn = draw_counts(*full, log_noisy_count(*full), rng_of(3)).astype(int)
    seen = np.bincount(drawn, minlength=2000)
    common = size * law >= 5
    seen_cells = np.append(seen[common], seen[~common].sum())
    expected = size * np.append(law[common], law[~common].sum())
    if expected[-1] < 1e-6:
        assert seen_cells[-1] == 0
        seen_cells, expected = seen_cells[:-1], expected[:-1] / expected[:-1].sum() * size
    assert len(expected) == 1 or stats.chisquare(seen_cells, expected).pvalue > 0.001


def test_lattice_draws_have_the_probabilities_of_enumeration():
    """Chi-squared over the 21 points of a lattice of 3 types, 20,000 draws (10,000 for each of two states)."""
    rng, power = rng_of(4), np.array([[0.5, 1.2, 0.0]])
    points = [j for j in itertools.product(range(1, 8), repeat=3) if sum(j) == 8]
    weights = np.array([math.prod((j / 8) ** p for j, p in zip(point, power[0], strict=True)) for point in points])
    drawn = np.concatenate([_draw_on_lattice(np.repeat(power, 100, axis=0), 1, 8, rng) for _ in range(200)])
    index = {point: i for i, point in enumerate(points)}
    seen = np.bincount([index[tuple(round(8 * v) for v in row)] for row in drawn], minlength=len(points))
    assert stats.chisquare(seen, len(drawn) * weights / weights.sum()).pvalue > 0.001


# Posteriors -----------------------------------------------------------------------------------------------------------

PRIOR = hmm.Prior(stay=2.0)
ACTIVITY = (2.0, 15.0)
EMISSION = "emission[0,0]"


def draw_parameters(rng, trials):
    emission = rng.dirichlet(np.ones(3), (trials, 2))
    rows = np.stack([rng.dirichlet(PRIOR.transitions(2)[s], trials) for s in range(2)], axis=1)
    initial = rng.dirichlet(np.ones(2), trials)
    ordered = hmm.sort_states({"emission": emission, "transition": rows, "initial": initial})
    return {name: ordered[name] for name in ("emission", "transition")} | {"first": ordered["initial"]}


def draw_table(parameters, rng):
    trials = len(parameters["emission"])
    paths = hmm.simulate_states(parameters["transition"], parameters["first"], (3, 8), rng=rng)
    activity = rng.gamma(ACTIVITY[0], ACTIVITY[1] / ACTIVITY[0], paths.shape)
    emission = np.take_along_axis(parameters["emission"][:, None], paths.reshape(trials, 1, -1, 1)[:, 0, :, None], 2)
    return rng.poisson(activity[..., None] * emission.reshape(trials, 3, 8, 3))


def calibration(method, trials, epsilon, seed):
    def simulate(parameters, rng):
        tables = draw_table(parameters, rng)
        tables[:, 0, 0, 0] += tables.sum(axis=(1, 2, 3)) == 0
        return [hmm.release_counts(x, epsilon=epsilon, rng=rng) for x in tables] if method != "non-private" else tables

    options = {"prior": PRIOR, "draws": 200, "chains": 1, "burn_in": 100}

    def infer(data, rng):
        if method == "non-private":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                settings = Settings(**options, rng=rng)
                return sample(Exact(data.astype(float), PRIOR), settings, order_by=0, paths=False, method="")
        known = {"activity": ACTIVITY} if method == "noise-aware" else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return hmm.infer(data, method=method, paths=False, rng=rng, **options, **known)

    def fit(parameters, data):
        tables = data if method == "non-private" else np.stack([np.maximum(each["counts"], 0) for each in data])
        first = np.full((*parameters["transition"].shape[:2], 2), 0.5)
        return hmm.log_likelihood(tables[:, None], parameters["emission"], parameters["transition"], first)

    return calibrate(
        draw_parameters, simulate, infer, trials, draws=50, quantities={"log-likelihood": fit}, rng=rng_of(seed)
    )


def test_the_nonprivate_posterior_is_calibrated():
    """KS and variance tests of 11 quantities, Holm-corrected; false alarm 0.01."""
    found = calibration("non-private", 250, 1.0, 5)
    assert found.passed(0.01), found.summary()
    assert found.contraction[EMISSION] > 0.8


def test_the_noise_aware_posterior_is_calibrated():
    """KS and variance tests of 11 quantities, Holm-corrected; false alarm 0.01. Noise has scale 4, counts mean 5."""
    found = calibration("noise-aware", 200, 0.5, 6)
    assert found.passed(0.01), found.summary()
    assert found.contraction[EMISSION] > 0.5


def test_the_naive_posterior_is_not_calibrated():
    found = calibration("naive", 100, 0.5, 7)
    assert not found.passed(0.001)


def exact_posterior_of_two_months(noisy, epsilon, prior, activity):
    """Integrate numerically: one place, two months, two types, two states with emission probabilities p < q of type 0.

    Returns the posterior means of p and q and the probability that both months have the same state.
    """
    r = math.exp(-epsilon / 2)
    a = np.linspace(0.02, 7, 250) * activity[1]
    prior_of_a = stats.gamma.pdf(a, activity[0], scale=activity[1] / activity[0])
    p = (np.arange(100) + 0.5) / 100
    x = np.arange(0, 160)
    likelihood = []
    for month in noisy:
        parts = []
        for y, share in zip(month, (p, 1 - p), strict=True):
            seen = (1 - r) / (1 + r) * r ** np.abs(y - x)
            table = stats.poisson.pmf(x, (share[:, None] * a)[..., None]) @ seen  # (p, a)
            parts.append(table)
        likelihood.append((parts[0] * parts[1] * prior_of_a).sum(axis=1))
    one, two = likelihood
    stays = (prior.transition + prior.stay) / (2 * prior.transition + prior.stay)
    low, high = np.tril_indices(100, -1)[::-1]  # p[low] < p[high]
    same = stays * (one * two)[:, None] * np.ones(100)
    same = (same + same.T)[low, high]
    moved = (1 - stays) * (np.outer(one, two) + np.outer(two, one))[low, high]
    total = (same + moved).sum()
    return ((same + moved) * p[low]).sum() / total, ((same + moved) * p[high]).sum() / total, same.sum() / total


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_the_noise_aware_posterior_equals_numerical_integration(epsilon):
    """Means within 4.5 Monte Carlo standard errors: a right sampler fails one of six with probability 4e-5."""
    prior, activity, noisy = hmm.Prior(stay=1.0), (2.0, 15.0), np.array([[14, 3], [-2, 9]])
    release = hmm.release_counts(np.array([[[12, 4], [1, 8]]]), epsilon=epsilon, rng=rng_of(15))
    release = dataclasses.replace(release, values={"counts": noisy[None]})
    exact = exact_posterior_of_two_months(noisy, epsilon, prior, activity)
    draws = hmm.infer(release, prior=prior, activity=activity, draws=20_000, chains=20, rng=rng_of(16)).draws
    same = (draws["states"][..., 0, 0] == draws["states"][..., 0, 1]).astype(float)
    for value, chain in zip(exact, (*np.moveaxis(draws["emission"][..., 0], -1, 0), same), strict=True):
        error = chain.std() / math.sqrt(az.ess(chain))
        assert abs(chain.mean() - value) < 4.5 * error < 0.05


def test_leaps_of_an_activity_keep_its_law():
    """400 chains of 150 leaps end within 4 standard errors of the law's mean and mean logarithm, by integration."""
    noisy, shape, mean, r = np.array([9.0, 2.0]), 2.0, 8.0, math.exp(-1)
    law, chains = np.array([0.7, 0.3]), 400
    observed = Noisy(noisy[None, None, None], hmm.Prior(), np.array([r]), np.array([shape]), np.array([mean]))
    flat = np.full((chains, 1, 1, 1), mean)
    rows = np.broadcast_to([0.5, 0.5], (chains, 1, 2, 2))
    state = State(np.broadcast_to(law, (chains, 1, 2, 2)), rows, rows[..., 0, :], 0 * flat, flat, 0)
    norm = log_noisy_count(noisy, state.activity[..., None] * law, np.array(r))
    rng, kept = rng_of(17), []
    for step in range(150):
        activity, norm = observed._leap_activity(rng, state, state.states, norm, 1.0)
        state = state._replace(activity=activity)
        if step >= 30 and step % 10 == 0:
            kept.append(activity.ravel())
    a = (np.arange(20_000) + 0.5) / 400
    weight = stats.gamma.pdf(a, shape, scale=mean / shape)
    for y, share in zip(noisy, law, strict=True):
        x = np.arange(120)
        weight = weight * (stats.poisson.pmf(x, share * a[:, None]) @ r ** np.abs(y - x))
    for function in (np.asarray, np.log):
        values = function(np.array(kept))
        error = values.mean(axis=0).std() / math.sqrt(chains)
        assert abs(values.mean() - (weight * function(a)).sum() / weight.sum()) < 4 * error < 0.2


def test_a_huge_epsilon_gives_the_nonprivate_posterior():
    """Means agree within 0.02, several times their Monte Carlo error."""
    noisy = hmm.release_counts(TABLE, epsilon=200.0, rng=rng_of(8))
    np.testing.assert_array_equal(noisy["counts"], TABLE)
    private = hmm.infer(noisy, draws=2000, rng=rng_of(9))
    exact = hmm.infer_nonprivate(TABLE, draws=2000, rng=rng_of(10))
    for name in ("emission", "transition", "initial"):
        np.testing.assert_allclose(private.mean(name), exact.mean(name), atol=0.02)
        np.testing.assert_allclose(private.sd(name), exact.sd(name), atol=0.02)
    np.testing.assert_array_equal(private.mean("states").round(), exact.mean("states").round())


def test_a_tiny_epsilon_gives_about_the_prior():
    """Ordered uniform probabilities of two types have means 1/3 and 2/3; with noise of scale 2000 nothing is learnt."""
    noisy = hmm.release_counts(TABLE, epsilon=0.001, rng=rng_of(11))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        posterior = hmm.infer(noisy, draws=4000, chains=40, paths=False, activity=(2.0, 50.0), rng=rng_of(12))
    np.testing.assert_allclose(posterior.mean("emission")[:, 0], [1 / 3, 2 / 3], atol=0.06)


def test_one_place_of_one_month_can_be_inferred():
    posterior = hmm.infer_nonprivate([[[3, 1]]], draws=100, rng=rng_of(13))
    assert posterior.draws["states"].shape == (4, 25, 1, 1)


def test_states_are_in_the_order_that_was_asked_for():
    for kind in (0, 1):
        emission = hmm.infer_nonprivate(TABLE, order_by=kind, draws=200, rng=rng_of(14)).draws["emission"]
        assert (np.diff(emission[..., kind], axis=-1) >= 0).all()


def test_simulated_states_move_as_the_chain_says():
    """40,000 steps and 2,000 starts, each share within 5 standard errors."""
    rows, first = np.array([[0.8, 0.2], [0.5, 0.5]]), np.array([0.3, 0.7])
    paths = hmm.simulate_states(rows, first, (2000, 21), rng=rng_of(31))
    assert abs(paths[:, 0].mean() - 0.7) < 5 * math.sqrt(0.21 / 2000)
    for state in (0, 1):
        after = paths[:, 1:][paths[:, :-1] == state]
        share = rows[state, 1]
        assert abs(after.mean() - share) < 5 * math.sqrt(share * (1 - share) / after.size)


def test_simulated_states_have_the_leading_axes_of_the_parameters():
    rows = np.array([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    paths = hmm.simulate_states(rows, [[1.0, 0.0], [0.0, 1.0]], (3, 4), rng=rng_of(32))
    np.testing.assert_array_equal(paths, np.broadcast_to([[[0, 1, 0, 1]], [[1, 1, 1, 1]]], (2, 3, 4)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"transition": [[1.0]]}, "transition"),
        ({"transition": [[np.nan, 1], [1, 0]]}, "transition"),
        ({"initial": [[0.5, 0.5]]}, "transition"),
        ({"shape": (0, 2)}, "shape"),
        ({"rng": 3}, "rng"),
    ],
)
def test_bad_arguments_of_a_simulation_are_named(change, named):
    arguments = {"transition": [[0.5, 0.5], [0.5, 0.5]], "initial": [0.5, 0.5], "shape": (2, 2)} | change
    with pytest.raises((TypeError, ValueError), match=named):
        hmm.simulate_states(**arguments)


def test_renamed_states_keep_the_likelihood():
    rng = rng_of(15)
    emission, transition, initial = (each[None, None] for each in random_model(rng, 3, 4))
    kept = {"emission": emission, "transition": transition, "initial": initial}
    ordered = hmm.sort_states(kept, 2)
    counts = rng.poisson(3, (2, 5, 4))
    one, other = (
        hmm.log_likelihood(counts, each["emission"], each["transition"], each["initial"]) for each in (kept, ordered)
    )
    np.testing.assert_allclose(one, other)


def test_a_batch_of_releases_is_inferred_in_one_run():
    rng = rng_of(16)
    batch = [hmm.release_counts(TABLE, epsilon=e, rng=rng) for e in (2.0, 4.0)]
    found = hmm.infer(batch, draws=400, rng=rng)
    assert len(found) == 2
    for each in found:
        np.testing.assert_allclose(each.mean("emission"), [[0.2, 0.8], [0.87, 0.13]], atol=0.08)


# Privacy of the table -------------------------------------------------------------------------------------------------


def test_a_replaced_event_moves_the_table_by_two():
    events = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1]])
    tables = []
    for other in itertools.product(range(2), repeat=3):
        changed = np.vstack([events[1:], other])
        table = np.zeros((2, 2, 2), dtype=int)
        np.add.at(table, tuple(changed.T), 1)
        tables.append(table)
    distances = [np.abs(a - b).sum() for a, b in itertools.combinations(tables, 2)]
    assert max(distances) == sensitivity.histogram() == 2


def geometric_score(x, y, ratio):
    """Return a scorer: the log-likelihood ratio of two tables under two-sided geometric noise."""

    def score(output):
        out = np.asarray(output)
        return float((np.abs(out - y.ravel()).sum() - np.abs(out - x.ravel()).sum()) * -math.log(ratio))

    return score


@pytest.mark.parametrize(("seed", "trials"), [(17, 20_000), (None, 3000)])
def test_the_audit_does_not_refute_the_noisy_table(seed, trials):
    """Seeded and real noise; the real one has no seed, so the bound's confidence is one in a million."""
    one, other = np.array([[[4, 6]]]), np.array([[[5, 5]]])

    def release(table, rng):
        return hmm.release_counts(table, epsilon=1.0, rng=None if seed is None else rng)["counts"].ravel()

    score, confidence = geometric_score(one, other, math.exp(-0.5)), 0.999 if seed is not None else 1 - 1e-6
    bound = epsilon_lower_bound(release, one, other, trials=trials, score=score, confidence=confidence, rng=rng_of(17))
    assert bound <= 1.0
    assert bound > (0.8 if seed is not None else 0.2)


def test_the_audit_catches_a_table_noised_for_sensitivity_one(monkeypatch):
    monkeypatch.setattr(hmm.releases, "histogram", lambda: 1.0)
    one, other = np.array([[[4, 6]]]), np.array([[[5, 5]]])

    def release(table, rng):
        return hmm.release_counts(table, epsilon=1.0, rng=rng)["counts"].ravel()

    score = geometric_score(one, other, math.exp(-1.0))
    assert epsilon_lower_bound(release, one, other, trials=10_000, score=score, rng=rng_of(18)) > 1.5


# Privacy of the Gibbs chain -------------------------------------------------------------------------------------------


def exact_law_of_a_sweep(table, epsilon, looks):
    """Return p(emission, states) after one sweep from a uniform start, by enumeration: 2 states, 2 types, lattice 6.

    ``looks`` is how many looks at the data epsilon is divided by: 2 in the release; 1 would leave one unpaid.
    """
    grid, least, places = 6, 1, len(table)
    step = epsilon / looks
    shares = np.arange(least, grid - least + 1) / grid
    points = [np.array([[a, 1 - a], [b, 1 - b]]) for a in shares for b in shares]
    paths = list(itertools.product(range(2), repeat=places))
    law = {}
    for start in paths:
        heat = max(1.0, emission_loss(least, grid, 2) / step)
        tallies = tally(table.astype(float), np.array(start, dtype=float)[:, None], 2)
        logs = np.array([(tallies * np.log(phi)).sum() / heat for phi in points])
        first = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
        for i, phi in enumerate(points):
            heat = max(1.0, assignment_loss(phi) / step)
            logs = np.array([(table[:, 0] * np.log(phi[list(path)])).sum() / heat for path in paths])
            second = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
            for path, p in zip(paths, second, strict=True):
                law[i, path] = law.get((i, path), 0) + first[i] * p / len(paths)
    return np.array([law[key] for key in sorted(law)])


def neighbouring_tables():
    """Yield pairs of tables of two places, one month, two types and five events that differ in one event."""
    cells = [c for c in itertools.product(range(6), repeat=4) if sum(c) == 5]
    for cell in cells:
        for gone, come in itertools.permutations(range(4), 2):
            if cell[gone]:
                other = list(cell)
                other[gone] -= 1
                other[come] += 1
                yield tuple(cell), tuple(other)


def worst_loss(epsilon, looks):
    pairs = list(neighbouring_tables())
    laws = {c: np.log(exact_law_of_a_sweep(np.array(c).reshape(2, 1, 2), epsilon, looks)) for c, _ in pairs}
    return max(float((laws[a] - laws[b]).max()) for a, b in pairs)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 20.0])
def test_the_exact_loss_of_a_sweep_is_at_most_epsilon(epsilon):
    """Over every output and all neighbouring tables of five events: enumeration, not sampling."""
    assert worst_loss(epsilon, 2) <= epsilon


def loss_between(logs, others):
    """Return the largest log-ratio of two laws given by unnormalised logarithms, either way."""
    gap = special.log_softmax(logs) - special.log_softmax(others)
    return float(np.abs(gap).max())


def test_a_look_at_the_emissions_costs_what_it_is_said_to_cost_and_no_less():
    """1,000 events of one type in one state, one of them replaced: the exact loss comes within 1 % of its bound."""
    least, grid, step = 1, 20, 0.5
    heat = emission_loss(least, grid, 2) / step
    shares = np.arange(least, grid - least + 1) / grid
    logs = [(a * np.log(shares) + b * np.log(1 - shares)) / heat for a, b in ((1000, 0), (999, 1))]
    assert 0.99 * step < loss_between(*logs) <= step


@pytest.mark.parametrize("share", [0.6, 0.9, 0.99])
def test_a_look_at_the_hidden_states_costs_what_it_is_said_to_cost_and_no_less(share):
    """Two places, each sure of its state; an event moves from one to the other: within 1 % of the bound."""
    emission, step, many = np.array([[share, 1 - share], [1 - share, share]]), 0.5, 10_000
    heat = assignment_loss(emission) / step
    paths = list(itertools.product(range(2), repeat=2))
    tables = (np.array([[many, 0], [0, many]]), np.array([[many - 1, 0], [1, many]]))
    logs = [np.array([(x * np.log(emission[list(path)])).sum() / heat for path in paths]) for x in tables]
    assert 0.99 * step < loss_between(*logs) <= step * (1 + 1e-9)


def test_a_sweep_that_does_not_pay_for_the_latent_states_exceeds_epsilon():
    assert worst_loss(2.0, 1) > 2.0


def test_a_release_of_one_sweep_has_the_law_that_was_enumerated():
    """Chi-squared over emissions and states, 3,000 releases, cells of expectation at least 5; false alarm 0.001."""
    table, rng = np.array([[[3, 0]], [[0, 2]]]), rng_of(19)
    flat = hmm.Prior(transition=1e6, initial=1e6)  # pins transitions and the start to a half
    law = exact_law_of_a_sweep(table, 4.0, 2)
    seen = np.zeros(len(law))
    for _ in range(3000):
        made = hmm.release_gibbs(table, states=2, epsilon=4.0, sweeps=1, prior=flat, floor=1 / 6, grid=6, rng=rng)
        a, b = (np.round(made["emission"][0, :, 0] * 6).astype(int) - 1).tolist()
        first, second = made["states"][0, :, 0].tolist()
        seen[(5 * a + b) * 4 + 2 * first + second] += 1
    rare = law * 3000 < 5
    cells = [np.append(each[~rare], each[rare].sum()) for each in (seen, 3000 * law)]
    assert stats.chisquare(*cells).pvalue > 0.001


def lattice_release(heat):
    """Return one emission draw from a table at a place known to be in state 0, at the temperature ``heat``."""

    def release(table, rng, trials):
        tallies = np.broadcast_to(table, (trials, 2))
        return _draw_on_lattice(tallies / heat, 1, 20, rng)[:, 0]

    return release


def test_the_audit_does_not_refute_an_emission_draw_and_catches_it_too_cold():
    """The worst pair moves one event between types; at half the temperature the loss doubles."""
    one, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    heat = emission_loss(1, 20, 2) / 2.0
    bounds = [
        epsilon_lower_bound(lattice_release(h), one, other, trials=60_000, batched=True, rng=rng_of(20))
        for h in (heat, heat / 3)
    ]
    assert bounds[0] <= 2.0
    assert bounds[1] > 2.0


def test_the_cost_of_the_chain_is_the_sum_over_its_looks():
    made = hmm.release_gibbs(TABLE, states=2, epsilon=1.5, sweeps=7, rng=rng_of(21))
    assert made.settings["looks"] == 14
    assert made.settings["looks"] * made.settings["epsilon_a_look"] == pytest.approx(made.epsilon)
    more = hmm.release_gibbs(TABLE, states=2, epsilon=1.5, sweeps=14, rng=rng_of(21))
    assert more.scale["emission"] == pytest.approx(2 * made.scale["emission"])


def test_a_cold_private_chain_finds_what_the_posterior_knows():
    made = hmm.release_gibbs(TABLE, states=2, epsilon=5000.0, sweeps=30, rng=rng_of(22))
    assert made.scale["emission"] == 1.0
    posterior = hmm.infer(made)
    np.testing.assert_allclose(posterior.mean("emission"), [[0.2, 0.8], [0.87, 0.13]], atol=0.05)
    np.testing.assert_array_equal(posterior.mean("states").round(), [[1, 1, 1, 1, 0, 0, 0, 0], [1] * 8])


def test_emissions_of_a_private_chain_keep_their_floor():
    made = hmm.release_gibbs(TABLE, states=3, epsilon=50.0, floor=0.05, grid=40, rng=rng_of(23))
    assert made["emission"].min() >= 0.05
    np.testing.assert_allclose(made["emission"].sum(axis=-1), 1)


# Arguments ------------------------------------------------------------------------------------------------------------


def test_a_real_chain_must_be_asked_for_as_insecure():
    budget = PrivacyBudget(1.0)
    with pytest.raises(ValueError, match="insecure"):
        hmm.release_gibbs(TABLE, states=2, epsilon=1.0, budget=budget)
    assert budget.ledger == ()
    made = hmm.release_gibbs(TABLE, states=2, epsilon=1.0, sweeps=2, insecure=True, budget=budget)
    assert not made.float_safe
    assert budget.remaining == 0


def test_a_real_table_is_float_safe_and_survives_json():
    made = hmm.release_counts(TABLE, epsilon=1.0)
    assert made.float_safe
    again = Release.from_json(made.to_json())
    one, other = (hmm.infer(each, draws=300, chains=1, rng=rng_of(24), paths=False) for each in (made, again))
    np.testing.assert_array_equal(one.draws["emission"], other.draws["emission"])


@pytest.mark.parametrize("function", [hmm.release_counts, hmm.release_gibbs])
def test_the_budget_is_charged_before_anything_is_drawn(function):
    rng, budget = rng_of(25), PrivacyBudget(0.5)
    before = rng.bit_generator.state
    options = {"states": 2} if function is hmm.release_gibbs else {}
    with pytest.raises(BudgetExceeded):
        function(TABLE, epsilon=1.0, rng=rng, budget=budget, **options)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data": TABLE[0]}, "data must have shape"),
        ({"data": TABLE.astype(float)}, "data must hold whole"),
        ({"data": -TABLE}, "data must not"),
        ({"data": TABLE[..., :1]}, "data must have shape"),
        ({"data": 0 * TABLE}, "data must hold"),
        ({"data": [[[1, 2]], [[1]]]}, "data must have shape"),
        ({"data": np.full((1, 2, 2), 2**62)}, "data must hold at most"),
        ({"data": np.full((1, 2, 2), 2**63 + 5, dtype=np.uint64)}, "data must fit in signed 64-bit"),
        ({"data": None}, "data must hold whole"),
        (
            {"data": np.ma.masked_equal(TABLE, TABLE.max())},
            "data must hold whole numbers: some entries are missing",
        ),
        (
            {"data": [[np.ma.masked_equal(row, TABLE.max()) for row in place] for place in TABLE]},
            "some entries are missing",
        ),
        ({"data": np.where(TABLE.max() == TABLE, None, TABLE)}, "some entries are missing"),
        ({"data": TABLE.astype(str)}, "data must hold whole"),
        ({"data": TABLE.astype(str).astype(object)}, "data must hold whole"),
        ({"data": np.where(TABLE.max() == TABLE, 10**30, TABLE.astype(object))}, "data must fit in signed 64-bit"),
        ({"data": TABLE > 0}, "data must hold whole"),
        ({"epsilon": 5e-324}, "epsilon must lie between"),
        ({"epsilon": 1e-300}, "epsilon must lie between"),
        ({"epsilon": 1e200}, "epsilon must lie between"),
        ({"sweeps": 10**30}, "epsilon must lie between"),
        ({"grid": 10**6}, "grid"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"states": 1}, "states"),
        ({"sweeps": 0}, "sweeps"),
        ({"floor": 0.5}, "floor"),
        ({"floor": 0.0}, "floor"),
        ({"grid": 3}, "grid"),
        ({"prior": 1.0}, "prior"),
        ({"rng": 3}, "rng"),
        ({"insecure": 1}, "insecure"),
    ],
)
def test_bad_arguments_of_a_private_chain_are_named_and_cost_nothing(change, named):
    budget = PrivacyBudget(1.0)
    arguments = {"data": TABLE, "states": 2, "epsilon": 1.0, "rng": rng_of(26), "budget": budget} | change
    with pytest.raises((TypeError, ValueError), match=named):
        hmm.release_gibbs(arguments.pop("data"), **arguments)
    assert budget.ledger == ()
    if set(change) <= {"data", "epsilon", "rng"}:
        arguments = {"data": TABLE, "epsilon": 1.0, "rng": rng_of(26), "budget": budget} | change
        with pytest.raises((TypeError, ValueError), match=named):
            hmm.release_counts(arguments.pop("data"), **arguments)
        assert budget.ledger == ()


CHAIN = hmm.release_gibbs(TABLE, states=2, epsilon=1.0, sweeps=2, rng=rng_of(27))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"release": "noisy"}, "release"),
        ({"release": []}, "release"),
        ({"release": 3}, "release"),
        ({"release": CHAIN, "order_by": 2}, "order_by"),
        ({"release": CHAIN, "order_by": -1}, "order_by"),
        ({"states": 1}, "states"),
        ({"method": "cgm"}, "method"),
        ({"activity": 3}, "activity"),
        ({"activity": (1, -1)}, "activity"),
        ({"order_by": 2}, "order_by"),
        ({"draws": 0}, "draws"),
        ({"chains": 0}, "chains"),
        ({"burn_in": -1}, "burn_in"),
    ],
)
def test_bad_arguments_of_inference_are_named(change, named):
    arguments = {"release": hmm.release_counts(TABLE, epsilon=1.0, rng=rng_of(27))} | change
    with pytest.raises((TypeError, ValueError), match=named):
        hmm.infer(arguments.pop("release"), **arguments)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"draws": -3}, ["private chain", "'draws'", "Its options: none"]),
        ({"states": 2}, ["private chain", "'states'"]),
        ({"prior": None}, ["private chain", "'prior'"]),
        ({"rng": None}, ["private chain", "'rng'"]),
        ({"bogus": 1}, ["private chain", "'bogus'."]),
        ({"method": "bogus"}, ["method must not be given", "'bogus'"]),
        ({"method": "naive"}, ["method must not be given", "'naive'"]),
        ({"paths": "no"}, ["paths must be True or False"]),
    ],
)
def test_a_private_chain_takes_no_option_of_a_sampler(given, words):
    with pytest.raises((TypeError, ValueError)) as caught:
        hmm.infer(CHAIN, **given)
    assert all(word in str(caught.value) for word in words)
    with pytest.raises((TypeError, ValueError)):
        hmm.infer([CHAIN, CHAIN], **given)


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("naive", {"activity": (1.0, 2.0)}, ["'naive'", "'activity'", "'noise-aware' would", "draws: a whole number"]),
        ("naive", {"drawz": 3}, ["'naive'", "'drawz'.", "states: a whole number of at least 2", "progress:"]),
        ("noise-aware", {"thin": 3}, ["'noise-aware'", "'thin'.", "activity: a pair (shape, mean)"]),
        ("noise-aware", {"progress": "yes"}, ["progress must be True or False"]),
        ("noise-aware", {"prior": 3}, ["prior must be a hmm.Prior"]),
        ("noise-aware", {"rng": 3}, ["rng must be"]),
        ("none, a private chain", {}, ["method must be one of 'noise-aware', 'naive'"]),
    ],
)
def test_an_option_that_a_table_s_method_does_not_take_is_named_with_those_it_takes(method, given, words):
    noisy = hmm.release_counts(TABLE, epsilon=1.0, rng=rng_of(27))
    with pytest.raises((TypeError, ValueError)) as caught:
        hmm.infer(noisy, method=method, **given)
    assert all(word in str(caught.value) for word in words)


def test_none_means_the_default_of_an_option():
    noisy = hmm.release_counts(TABLE, epsilon=1.0, rng=rng_of(27))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain = hmm.infer(noisy, draws=8, chains=2, rng=rng_of(1))
        named = hmm.infer(
            noisy, draws=8, chains=2, rng=rng_of(1), method=None, prior=None, activity=None, burn_in=None, states=2,
            progress=False,
        )  # fmt: skip
    assert np.array_equal(plain.draws["emission"], named.draws["emission"])


@pytest.mark.parametrize("name", ["emission", "transition", "initial", "stay"])
def test_a_prior_is_made_of_numbers_that_can_be_drawn_with(name):
    for wrong in (-1.0, 1e13, float("inf"), "", True, None):
        with pytest.raises((TypeError, ValueError), match=name):
            hmm.Prior(**{name: wrong})
    made = hmm.release_gibbs(TABLE, states=2, epsilon=1.0, sweeps=2, prior=hmm.Prior(**{name: 1e12}), rng=rng_of(3))
    assert np.isfinite(made["transition"]).all()


@pytest.mark.parametrize("seeded", [True, False])
def test_the_smallest_epsilon_that_is_taken_has_noise_of_its_scale(seeded):
    """Below it, seeded noise was the difference of two draws cut off at 64 bits: nothing, at any epsilon that small.

    The mean of 36 or more absolute values, in units of the scale, is 1 with a standard deviation below 0.17: a right
    program fails with probability below 1e-4.
    """
    least = 2 / 2.0**53
    with pytest.raises(ValueError, match="epsilon must lie between"):
        hmm.release_counts(TABLE, epsilon=0.99 * least, rng=rng_of(1))
    table = np.broadcast_to(TABLE[:1, :1], (9, 4, TABLE.shape[2]))
    made = hmm.release_counts(table, epsilon=least, rng=rng_of(1) if seeded else None)
    assert 0.3 < np.abs(made["counts"] - table).mean() / 2.0**53 < 1.8


def test_an_array_of_dask_is_read_and_a_mask_that_hides_nothing_too():
    dask_array = pytest.importorskip("dask.array")
    plain = hmm.release_counts(TABLE, epsilon=1.0, rng=rng_of(1))
    for form in (dask_array.from_array(TABLE), np.ma.array(TABLE), TABLE.astype(object), TABLE.astype(np.uint8)):
        assert hmm.release_counts(form, epsilon=1.0, rng=rng_of(1)) == plain


def test_the_likelihood_does_not_read_what_a_mask_hides():
    half = [[0.5, 0.5], [0.5, 0.5]]
    with pytest.raises(ValueError, match="counts must be finite"):
        hmm.log_likelihood(np.ma.masked_equal(TABLE, TABLE.max()), half, half, [0.5, 0.5])


def test_releases_of_another_model_or_of_several_shapes_are_refused():
    rng = rng_of(28)
    other = Release(
        values={"counts": [1.0]}, model="binomial", mechanism="laplace", scale={"counts": 1.0},
        sensitivity={"counts": 1.0}, epsilon=1.0, n=3, float_safe=False,
    )  # fmt: skip
    with pytest.raises(ValueError, match="model"):
        hmm.infer(other)
    with pytest.raises(ValueError, match="shape"):
        hmm.infer([hmm.release_counts(x, epsilon=1.0, rng=rng) for x in (TABLE, TABLE[:1])])


@pytest.mark.parametrize("shape", [(1, 2), 3, (1, 0, 2), (3, 3, 1), (1, 2, 2.5)])
def test_a_preview_names_a_wrong_shape(shape):
    with pytest.raises((TypeError, ValueError), match="shape"):
        hmm.preview(shape, n=3, epsilon=1.0)


@pytest.mark.parametrize("method", ["noise-aware", "naive"])
@pytest.mark.parametrize("noise", ["all negative", "tiny epsilon", "huge epsilon"])
def test_no_noise_breaks_an_inference(method, noise):
    epsilon = {"all negative": 1.0, "tiny epsilon": 1e-6, "huge epsilon": 1e6}[noise]
    made = hmm.release_counts(TABLE, epsilon=epsilon, rng=rng_of(30))
    if noise == "all negative":
        made = dataclasses.replace(made, values={"counts": -1 - np.abs(made["counts"])})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        posterior = hmm.infer(made, method=method, draws=8, chains=2, burn_in=0, rng=rng_of(31))
    assert all(np.isfinite(each).all() for each in posterior.draws.values())


def test_the_preview_says_what_the_releases_do():
    look = hmm.preview(TABLE.shape, n=int(TABLE.sum()), epsilon=0.5, sweeps=4)
    assert look.noise_scale == hmm.release_counts(TABLE, epsilon=0.5, rng=rng_of(29)).scale["counts"]
    chain = hmm.release_gibbs(TABLE, states=2, epsilon=0.5, sweeps=4, rng=rng_of(29))
    assert look.notes["temperature"] == pytest.approx(chain.scale["emission"])
    noise = np.concatenate(
        [(hmm.release_counts(TABLE, epsilon=0.5, rng=rng_of(s))["counts"] - TABLE).ravel() for s in range(400)]
    )
    assert noise.std() == pytest.approx(look.noise_sd, rel=0.03)  # 12,800 noises: 4 standard errors
