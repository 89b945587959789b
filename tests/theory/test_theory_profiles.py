"""Profiles over the worst neighbours: exhaustive searches, general properties, audits, errors that name arguments."""

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from dpbook import theory
from dpbook.audit import audit
from dpbook.theory import BetaBernoulli, NormalKnownVariance
from dpbook.theory._draws import log_beta_delta, log_gaussian_delta

EPSILONS = np.array([0.0, 0.05, 0.3, 1.0, 2.5])
COIN_RELEASES = [
    ("sample", {}),
    ("synthetic-plugin", {"m": 3}),
    ("synthetic-plugin", {"m": 7, "estimator": "mean"}),
    ("synthetic-bayes", {"m": 6}),
    ("synthetic-bayes", {"m": 6, "redraw": False}),
    ("synthetic-bayes", {"m": 6, "redraw": 3}),
]
BELL_RELEASES = [
    ("sample", {}),
    ("synthetic-plugin", {"m": 3}),
    ("synthetic-bayes", {"m": 4, "redraw": 2}),
    ("sample", {"truncate": (-1.0, 1.0)}),
    ("sample", {"truncate": (-1.0, 0.5), "restriction": "clamp"}),
    ("synthetic-plugin", {"truncate": (-1.0, 1.0)}),
    ("synthetic-bayes", {"truncate": (-1.0, 1.0)}),
]


def law_of_counts(kind, model, n, ones, m, redraw, estimator):
    """The probabilities of all outcomes, by scipy, from the definition of the release."""
    a, b = model.alpha + ones, model.beta + n - ones
    if kind == "synthetic-plugin":
        if estimator == "mean":
            p = a / (a + b)
        else:
            found = optimize.minimize_scalar(
                lambda t: -stats.beta(a, b).logpdf(t), bounds=(0, 1), method="bounded", options={"xatol": 1e-12}
            )
            p = (a - 1) / (a + b - 2)
            assert p == pytest.approx(found.x, abs=1e-5)  # it is the mode
        return stats.binom(m, p).pmf(np.arange(m + 1))
    blocks = m if redraw is True else max(int(redraw), 1)
    single = stats.betabinom(m // blocks, a, b).pmf(np.arange(m // blocks + 1))
    return np.array([math.prod(each) for each in itertools.product(single, repeat=blocks)])


def brute_profile(kind, model, n, *, m=1, redraw=True, estimator="mode"):
    best = np.zeros(len(EPSILONS))
    for ones in range(n):
        p, q = (law_of_counts(kind, model, n, s, m, redraw, estimator) for s in (ones, ones + 1))
        for x, y in ((p, q), (q, p)):
            best = np.maximum(best, [np.maximum(x - math.exp(e) * y, 0).sum() for e in EPSILONS])
    return best


@pytest.mark.parametrize(("kind", "options"), COIN_RELEASES[1:], ids=str)
def test_synthetic_coins_agree_with_a_search_over_all_neighbours(kind, options):
    """Priors from weak to far stronger than the data, where the worst pair is not at an end."""
    for alpha, beta, n in ((1.5, 1.5, 5), (10.0, 10.0, 5), (1.1, 30.0, 4), (40.0, 12.0, 6)):
        model = BetaBernoulli(alpha, beta)
        found = theory.privacy_profile(kind, model, n, epsilon=EPSILONS, **options)
        np.testing.assert_allclose(found, brute_profile(kind, model, n, **options), rtol=2e-6, atol=1e-13)


def test_a_draw_of_coins_agrees_with_a_search_over_all_neighbours_and_is_worst_at_an_end():
    """40 random priors and sizes up to 300, every pair in both orders, epsilons from 0 to where delta is 1e-12."""
    rng = np.random.default_rng(7)
    for _ in range(40):
        alpha, beta = 10 ** rng.uniform(-2, 2.5, 2)
        n = int(rng.integers(1, 300))
        model = BetaBernoulli(alpha, beta)
        most = theory.epsilon_for("sample", model, n, delta=1e-12)
        epsilon = np.concatenate([[0.0], np.geomspace(0.01, 1, 6)]) * most
        a = alpha + np.arange(n)[:, None]
        b = alpha + beta + n - 1 - a
        every = np.maximum(log_beta_delta(a, b, epsilon), log_beta_delta(b, a, epsilon))
        found = theory.privacy_profile("sample", model, n, epsilon=epsilon, log=True)
        np.testing.assert_allclose(found, every.max(axis=0), atol=1e-9)
        np.testing.assert_allclose(found, np.maximum(every[0], every[-1]), atol=1e-9)


def test_the_worst_pair_of_synthetic_coins_can_lie_between_the_ends():
    pair = theory.worst_pair("synthetic-bayes", BetaBernoulli(10, 10), 5, epsilon=0.0, m=3)
    assert 0 < min(pair.data, pair.neighbour) < 4
    ends = theory.pair_profile("synthetic-bayes", BetaBernoulli(10, 10), [1, 0, 0, 0, 0], [0] * 5, epsilon=0.0, m=3)
    assert pair.delta > 1.01 * ends


@pytest.mark.parametrize("options", [{}, {"m": 20}, {"m": 20, "redraw": False}, {"m": 20, "redraw": 5}], ids=str)
def test_more_data_of_either_kind_makes_a_pair_more_private(options):
    """The monotonicity on which the search rests: delta falls in a and in b."""
    kind = "synthetic-bayes" if options else "sample"
    rng = np.random.default_rng(8)
    for _ in range(10):
        alpha, beta = 10 ** rng.uniform(-1, 1.5, 2)
        ones, zeros = [1, 0, 0], [0, 0, 0]
        before, after_a, after_b = (
            theory.pair_profile(kind, BetaBernoulli(*prior), ones, zeros, epsilon=EPSILONS, **options)
            for prior in ((alpha, beta), (alpha + rng.exponential(), beta), (alpha, beta + rng.exponential()))
        )
        assert np.all(after_a <= before * (1 + 1e-9))
        assert np.all(after_b <= before * (1 + 1e-9))


@pytest.mark.parametrize("truncate", [(0.1, 0.9), (0.02, 0.6)])
def test_a_truncated_draw_of_coins_agrees_with_sums_over_a_fine_mesh(truncate):
    model, n = BetaBernoulli(0.7, 2.0), 12
    theta = np.linspace(*truncate, 200_001)
    middle = (theta[1:] + theta[:-1]) / 2
    laws = []
    for ones in range(n + 1):
        weights = stats.beta(model.alpha + ones, model.beta + n - ones).pdf(middle)
        laws.append(weights / weights.sum())
    best = np.zeros(len(EPSILONS))
    for one, other in itertools.pairwise(laws):
        for p, q in ((one, other), (other, one)):
            best = np.maximum(best, [np.maximum(p - math.exp(e) * q, 0).sum() for e in EPSILONS])
    found = theory.privacy_profile("sample", model, n, epsilon=EPSILONS, truncate=truncate)
    np.testing.assert_allclose(found, best, rtol=1e-6, atol=1e-9)
    pure = max(np.abs(np.log(one) - np.log(other)).max() for one, other in itertools.pairwise(laws))
    assert theory.epsilon_for("sample", model, n, delta=0.0, truncate=truncate) == pytest.approx(pure, abs=1e-3)


@pytest.mark.parametrize("restriction", ["reject", "clamp"])
def test_restricted_bells_are_never_worse_than_the_search_says(restriction):
    """200 random neighbours for each of several sizes; the search is attained, and no pair exceeds it."""
    rng = np.random.default_rng(9)
    for n, prior_sd in ((1, math.inf), (4, math.inf), (9, 0.5)):
        model = NormalKnownVariance(0.8, 0.2, prior_sd, 1.0)
        options = {"truncate": (-1.0, 0.7), "restriction": restriction}
        worst = theory.privacy_profile("sample", model, n, epsilon=EPSILONS, **options)
        seen = np.zeros(len(EPSILONS))
        for _ in range(200):
            x = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=n)
            y = x.copy()
            x[0], y[0] = rng.permutation([-1.0, rng.choice([1.0, 0.3])])
            seen = np.maximum(seen, theory.pair_profile("sample", model, x, y, epsilon=EPSILONS, **options))
        assert np.all(seen <= worst * (1 + 1e-5))  # the place of the others is found to 1e-7 of the range
        assert np.all(seen[:3] >= 0.9 * worst[:3])


@pytest.mark.parametrize(
    ("model", "kind", "options"),
    [(BetaBernoulli(2.5, 4), *each) for each in COIN_RELEASES]
    + [(NormalKnownVariance(1.0, 0.3, 2.0, 1.0), *each) for each in BELL_RELEASES],
    ids=str,
)
def test_profiles_fall_from_total_variation_and_invert(model, kind, options):
    epsilon = np.linspace(0, 6, 61)
    delta = theory.privacy_profile(kind, model, 8, epsilon=epsilon, **options)
    assert np.all(np.diff(delta) <= 1e-12)
    assert np.all((delta >= 0) & (delta <= 1))
    slopes = np.diff(delta) / np.diff(np.exp(epsilon))
    assert np.all(np.diff(slopes) >= -1e-9)  # delta is convex in e^ε
    for target in (0.9 * delta[0], 0.1 * delta[0]):
        found = theory.epsilon_for(kind, model, 8, delta=float(target), **options)
        assert theory.privacy_profile(kind, model, 8, epsilon=found, **options) == pytest.approx(target, rel=1e-5)
    assert theory.epsilon_for(kind, model, 8, delta=min(0.999, 1.0001 * float(delta[0])), **options) == 0.0
    pure = theory.epsilon_for(kind, model, 8, delta=0.0, **options)
    if math.isfinite(pure):
        assert theory.privacy_profile(kind, model, 8, epsilon=pure * (1 + 1e-9), **options) < 1e-12
        assert theory.privacy_profile(kind, model, 8, epsilon=pure * 0.99, **options) > 0


@given(
    st.floats(0.05, 50), st.floats(0.05, 50), st.integers(1, 60), st.floats(0, 4), st.floats(0, 2), st.integers(1, 30)
)
def test_delta_never_rises_with_epsilon_and_synthetic_records_never_say_more_than_the_draw(
    alpha, beta, n, epsilon, more, m
):
    model = BetaBernoulli(alpha, beta)
    draw = theory.privacy_profile("sample", model, n, epsilon=[epsilon, epsilon + more])
    kept = theory.privacy_profile("synthetic-bayes", model, n, epsilon=[epsilon, epsilon + more], m=m, redraw=False)
    assert draw[1] <= draw[0] * (1 + 1e-9)
    assert kept[1] <= kept[0] * (1 + 1e-9)
    assert np.all(kept <= draw * (1 + 1e-6) + 1e-300)


def test_pure_epsilons_of_synthetic_coins_have_their_closed_forms():
    model = BetaBernoulli(3.0, 8.0)
    pure = [
        theory.epsilon_for("synthetic-bayes", model, 40, delta=0.0, m=12, redraw=redraw) for redraw in (False, 3, True)
    ]
    assert pure == pytest.approx([math.log1p(12 / 3), 3 * math.log1p(4 / 3), 12 * math.log1p(1 / 3)])
    assert theory.epsilon_for("synthetic-plugin", model, 40, delta=0.0, m=12) == pytest.approx(12 * math.log(3 / 2))
    assert theory.epsilon_for("synthetic-plugin", BetaBernoulli(1, 1), 40, delta=0.0) == math.inf


def test_where_the_mode_is_zero_only_delta_can_help():
    """alpha ≤ 1: with no ones in the data every synthetic record is a zero, so a one gives the neighbour away."""
    model, n, m = BetaBernoulli(1.0, 1.0), 30, 4
    certain = 1 - (1 - 1 / n) ** m
    assert theory.privacy_profile("synthetic-plugin", model, n, epsilon=20.0, m=m) == pytest.approx(certain)
    assert theory.epsilon_for("synthetic-plugin", model, n, delta=certain / 2, m=m) == math.inf
    assert theory.epsilon_for("synthetic-plugin", model, n, delta=certain * 1.01, m=m) < math.inf


def test_exact_epsilons_of_the_truncated_uniform_posterior_are_the_known_ones():
    found = [
        theory.epsilon_for("sample", BetaBernoulli(1, 1), n, delta=0.0, truncate=(0.1, 0.9)) for n in (1, 10, 100, 1000)
    ]
    assert found == pytest.approx([2.197, 3.701, 4.299, 4.384], abs=6e-4)


def test_a_temperature_flattens_the_draw():
    model, n = BetaBernoulli(2.0, 2.0), 30
    plain = theory.privacy_profile("sample", model, n, epsilon=EPSILONS)
    nearly = theory.privacy_profile("sample", model, n, epsilon=EPSILONS, temperature=1 + 1e-9)
    np.testing.assert_allclose(nearly, plain, rtol=1e-6)
    warm = theory.privacy_profile("sample", model, n, epsilon=EPSILONS, temperature=4.0)
    assert np.all(warm < plain)
    bells = NormalKnownVariance(bound=1.0)
    assert theory.privacy_profile("sample", bells, 25, epsilon=0.5, temperature=4.0) == pytest.approx(
        theory.privacy_profile("sample", bells, 100, epsilon=0.5), rel=1e-12
    )


def test_deterministic_estimates_and_unrestricted_data_are_never_private():
    for model in (BetaBernoulli(50, 50), NormalKnownVariance(bound=0.01)):
        assert theory.privacy_profile("estimate", model, 1000, epsilon=100.0) == 1.0
        assert theory.epsilon_for("estimate", model, 1000, delta=0.5) == math.inf
    for kind in ("sample", "synthetic-plugin", "synthetic-bayes"):
        unbounded = NormalKnownVariance(bound=math.inf)
        assert theory.privacy_profile(kind, unbounded, 1000, epsilon=100.0) == 1.0
        assert theory.epsilon_for(kind, unbounded, 1000, delta=0.5) == math.inf


def test_extreme_sizes_and_priors_are_finite_and_ordered():
    epsilon = np.linspace(0, 5, 100)
    for alpha, n in ((1e-9, 1), (1e-9, 10**6), (30.0, 10**6), (1e6, 1), (1e5, 10**6)):
        for kind, options in (
            ("sample", {}),
            ("synthetic-bayes", {"m": n}),
            ("synthetic-bayes", {"m": n, "redraw": False}),
        ):
            logs = theory.privacy_profile(kind, BetaBernoulli(alpha, alpha), n, epsilon=epsilon, log=True, **options)
            assert not np.isnan(logs).any()
            assert np.all(logs <= 0)
            assert np.all(np.diff(logs[np.isfinite(logs)]) <= 1e-9)
    found = theory.epsilon_for("sample", BetaBernoulli(30, 30), 10**6, delta=1e-12)
    assert theory.privacy_profile("sample", BetaBernoulli(30, 30), 10**6, epsilon=found) == pytest.approx(
        1e-12, rel=1e-8
    )


# One pair -------------------------------------------------------------------------------------------------------------


def test_a_pair_of_data_sets_has_the_profile_of_its_posteriors():
    model, epsilon = BetaBernoulli(1.3, 2.2), 0.6
    p, q = stats.beta(1.3 + 2, 2.2 + 2), stats.beta(1.3 + 1, 2.2 + 3)
    theta = np.linspace(0, 1, 400_001)
    exact = np.trapezoid(np.maximum(p.pdf(theta) - math.exp(epsilon) * q.pdf(theta), 0), theta)
    assert theory.pair_profile("sample", model, [1, 0, 0, 1], [0, 1, 0, 0], epsilon=epsilon) == pytest.approx(
        exact, abs=1e-9
    )
    assert theory.pair_profile("sample", model, [1, 0], [0, 1], epsilon=0.0) == 0.0


def test_a_pair_of_bells_moves_by_its_record():
    model = NormalKnownVariance(2.0, 0.0, math.inf, 3.0)
    found = theory.pair_profile("sample", model, [3.0, 0.0, 1.0, 1.0], [1.0, 0.0, 2.0, 1.0], epsilon=0.1)
    mu = (3.0 - 2.0) / 4 / (2.0 / 2)
    assert found == pytest.approx(math.exp(float(log_gaussian_delta(mu, 0.1))), rel=1e-12)
    with pytest.raises(ValueError, match="differ in at most one record"):
        theory.pair_profile("sample", model, [3.0, 0.0, 1.0], [1.0, 0.5, 2.0], epsilon=0.1)


# Audits: what is computed is what a program would do ------------------------------------------------------------------


def draws_of(kind, model, m):
    def release(ones, rng, trials):
        theta = rng.beta(model.alpha + ones, model.beta + 20 - ones, trials)
        if kind == "sample":
            return theta
        return rng.binomial(m, theta).astype(float)

    return release


@pytest.mark.parametrize("kind", ["sample", "synthetic-bayes"])
@pytest.mark.parametrize("delta", [0.001, 0.02])
def test_a_monte_carlo_audit_does_not_refute_the_exact_epsilon_and_comes_near_it(kind, delta):
    """Each bound exceeds the true epsilon with probability at most 1e-3; a tenth less than the truth is refuted."""
    model, m = BetaBernoulli(2.0, 2.0), 15
    options = {} if kind == "sample" else {"m": m, "redraw": False}
    exact = theory.epsilon_for(kind, model, 20, delta=delta, **options)
    pair = theory.worst_pair(kind, model, 20, epsilon=exact, **options)
    found = audit(
        draws_of(kind, model, m),
        int(pair.data),
        int(pair.neighbour),
        trials=200_000,
        delta=delta,
        batched=True,
        rng=np.random.default_rng(3),
    )
    assert found.epsilon <= exact
    assert found.epsilon > 0.5 * exact


def test_an_audit_catches_a_draw_whose_prior_is_weaker_than_promised():
    """The promise is computed for alpha = 8, the program uses alpha = 2."""
    promised = theory.epsilon_for("sample", BetaBernoulli(8, 8), 20, delta=0.001)
    found = audit(
        draws_of("sample", BetaBernoulli(2, 2), 0),
        0,
        1,
        trials=100_000,
        delta=0.001,
        batched=True,
        rng=np.random.default_rng(4),
    )
    assert found.verdict(promised).startswith("Refuted")


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"release_type": "draw"}, ValueError, "release_type"),
        ({"model": "coins"}, TypeError, "model"),
        ({"n": 0}, ValueError, "n must"),
        ({"n": 2.5}, TypeError, "n must"),
        ({"epsilon": -1.0}, ValueError, "epsilon"),
        ({"epsilon": math.nan}, ValueError, "epsilon"),
        ({"m": 0}, ValueError, "m must"),
        ({"redraw": 3, "m": 10, "release_type": "synthetic-bayes"}, ValueError, "redraw"),
        ({"estimator": "median"}, ValueError, "estimator"),
        ({"truncate": (0.9, 0.1)}, ValueError, "truncate"),
        ({"truncate": (-0.1, 0.9)}, ValueError, "truncate"),
        ({"truncate": (0.1, 0.9), "release_type": "synthetic-bayes"}, ValueError, "truncate"),
        ({"truncate": (0.1, 0.9), "restriction": "clamp"}, ValueError, "restriction"),
        ({"temperature": 0.5}, ValueError, "temperature"),
        ({"temperature": 2.0, "release_type": "synthetic-plugin"}, ValueError, "temperature"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(change, error, word):
    arguments = {"release_type": "sample", "model": BetaBernoulli(), "n": 10, "epsilon": 1.0} | change
    with pytest.raises(error, match=word):
        theory.privacy_profile(**arguments)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: BetaBernoulli(0, 1), "alpha"),
        (lambda: BetaBernoulli(1, math.inf), "beta"),
        (lambda: NormalKnownVariance(sigma=0), "sigma"),
        (lambda: NormalKnownVariance(prior_sd=-1.0), "prior_sd"),
        (lambda: NormalKnownVariance(bound=0.0), "bound"),
        (lambda: theory.epsilon_for("sample", BetaBernoulli(), 5, delta=1.0), "delta"),
        (lambda: theory.pair_profile("sample", BetaBernoulli(), [1, 2], [1, 0], epsilon=1.0), "zeros and ones"),
        (lambda: theory.pair_profile("sample", NormalKnownVariance(), [2.0], [1.0], epsilon=1.0), "bound"),
        (lambda: theory.pair_profile("sample", BetaBernoulli(), [1], [1, 0], epsilon=1.0), "same size"),
    ],
)
def test_wrong_models_and_data_are_named(make, word):
    with pytest.raises(ValueError, match=word):
        make()


def test_truncating_several_synthetic_bells_is_refused():
    with pytest.raises(ValueError, match="m = 1"):
        theory.privacy_profile("synthetic-plugin", NormalKnownVariance(), 5, epsilon=1.0, m=2, truncate=(-1, 1))


@pytest.mark.parametrize("options", [None, {}, {"redraw": False}], ids=["draw", "redrawn", "one draw"])
def test_a_hundred_epsilons_at_a_million_records_take_less_than_a_second_of_work(options):
    """CPU time of one process, so that a busy machine fails nothing; over all neighbours."""
    kind, more = ("sample", {}) if options is None else ("synthetic-bayes", {**options, "m": 10**6})
    epsilon = np.linspace(0, 5, 100)
    start = time.process_time()
    found = theory.privacy_profile(kind, BetaBernoulli(10, 10), 10**6, epsilon=epsilon, **more)
    assert time.process_time() - start < 1.0
    assert found.shape == (100,)
