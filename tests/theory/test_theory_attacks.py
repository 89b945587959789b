"""Searches for counterexamples: they find those that are known, repeat what is committed, and break nothing proved."""

import math

import numpy as np
import pytest
from scipy import stats

from dpbook import theory
from dpbook.experiments import theory_study as study
from dpbook.theory import BetaBernoulli, NormalKnownVariance, adversary

SLOW = ("exponential-mechanism", "coins-many-draws")


def h(u):
    return (1 + u) * math.log1p(u) - u


# The false condition --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("c1", "epsilon", "delta", "n", "alpha", "true"),
    [(20, 8.0, 0.1, 2000, 1.6201, 0.1455), (20, 16.0, 1e-3, 2000, 1.3386, 0.0040)],
)
def test_the_condition_without_epsilon_is_false(c1, epsilon, delta, n, alpha, true):
    allowed = math.log(1 / delta) / (c1 * h(epsilon / c1))
    assert allowed == pytest.approx(alpha, abs=1e-4)
    found = theory.privacy_profile("synthetic-bayes", BetaBernoulli(allowed, allowed), n, m=c1 * n, epsilon=epsilon)
    assert found == pytest.approx(true, rel=0.02)
    assert found > delta
    # independently, by scipy, for the pair of nobody against one person
    k = np.arange(20 * c1 + 400)
    p, q = (stats.binom.pmf(k, c1 * n, (allowed + more) / (2 * allowed + n)) for more in (1, 0))
    brute = max(np.maximum(x - math.exp(epsilon) * y, 0).sum() for x, y in ((p, q), (q, p)))
    assert found >= brute * (1 - 1e-9)
    assert brute > delta


def test_the_ledger_no_longer_calls_the_false_condition_true():
    mended = theory.claim("coins-IV-mended")
    assert (mended.verdict, mended.proof) == ("proved", ("thm-coins-poisson",))
    assert r"+ \varepsilon" in mended.statement
    false = theory.claim("coins-IV-without-epsilon").check()
    assert false.verdict == "fails"
    assert "δ = 0.145" in false.counterexample


def test_in_the_limit_of_many_records_the_false_condition_is_a_gaussian_mechanism():
    """μ = ε/√(2 ln(1/δ)): at ε = 8 and δ = .01 the mechanism has .023."""
    epsilon, delta, c1 = 8.0, 0.01, 4000.0
    w = math.log(1 / delta) / (c1 * h(epsilon / c1))
    k = np.arange(int(c1 * w + 10 * c1 + 12 * math.sqrt(c1 * w)))
    p, q = stats.poisson.pmf(k, c1 * (w + 1)), stats.poisson.pmf(k, c1 * w)
    found = max(np.maximum(x - math.exp(epsilon) * y, 0).sum() for x, y in ((p, q), (q, p)))
    mu = epsilon / math.sqrt(2 * math.log(1 / delta))
    limit = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    assert limit == pytest.approx(0.023, abs=5e-4)
    assert found == pytest.approx(limit, rel=0.03)


def test_the_mended_condition_holds_for_every_size_of_file():
    """The theorem is for all n: over all pairs, from one person on, for few and for many records per person."""
    rng = np.random.default_rng(8)
    for _ in range(120):
        c1, epsilon = 10 ** rng.uniform(-1.5, 2), 10 ** rng.uniform(-1.5, 1.3)
        delta, n = math.exp(-(10 ** rng.uniform(-3, 1.3))), int(rng.integers(1, 60))
        m = math.floor(c1 * n)
        if m < 1:
            continue
        weak = (math.log(1 / delta) + epsilon) / (c1 * h(epsilon / c1))
        prior = BetaBernoulli(weak, weak * (1 + rng.exponential() * rng.integers(0, 2)))
        assert theory.privacy_profile("synthetic-bayes", prior, n, m=m, epsilon=epsilon) <= delta


# The searches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", theory.attacks)
def test_a_short_search_refutes_what_is_false_and_nothing_else(name):
    found = theory.attack(name, starts=60 if name in SLOW else 150, steps=3 if name in SLOW else 60, seed=11)
    claim = theory.claim(name)
    assert found.refuted == (claim.verdict == "fails")
    low_high = theory.attacks[name].ranges
    assert all(low * 0.999 <= found.at[key] <= high * 1.001 or low <= 0 for key, (low, high) in low_high.items())


def test_the_committed_searches_cover_every_claim_that_is_not_proved():
    table = study.load("attacks").set_index("claim")
    assert list(table.index) == list(theory.attacks)
    for claim in theory.claims:
        if claim.verdict == "not refuted":
            assert claim.name in table.index
            assert not table.loc[claim.name, "refuted"]
            assert table.loc[claim.name, "evaluations"] > 1500
        if claim.name in table.index:
            assert table.loc[claim.name, "searched"] == theory.attacks[claim.name].over


@pytest.mark.parametrize("name", ["bells-II-constant", "coins-IV-pure-kept", "bells-III-IV-approximate"])
def test_a_committed_search_can_be_repeated(name):
    row = study.load("attacks").set_index("claim").loc[name]
    found = theory.attack(name, seed=int(row["seed"]))
    assert found.evaluations == row["evaluations"]
    assert found.worst == pytest.approx(row["worst"], rel=2e-3, abs=1e-7)


def test_the_searches_can_break_claims_that_are_almost_true():
    """Each constant a little worse than the theorem's is found out: the searches come near the truth."""
    base = adversary.attacks["bells-II-constant"]
    almost = adversary._bell(lambda p: p["epsilon"] * math.sqrt(4 / 2.29 / (p["log_delta"] ** 2 + p["epsilon"])))
    root_two = adversary._bell(lambda p: 1.01 * adversary._record_shift(p))
    half = adversary._draw(lambda p: 0.9 * p["log_delta"] / (2 * adversary._log_cosh(p["epsilon"] / 2)))
    for name, ranges, violation in (
        ("almost", base.ranges, almost),
        ("root-two", base.ranges, root_two),
        ("half", adversary.attacks["coins-II-mended"].ranges, half),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(adversary.attacks, name, adversary.Attack(name, ranges, violation))
            assert theory.attack(name, starts=1500, seed=1).refuted, name


def test_several_draws_have_the_profile_of_one_where_there_is_one_and_of_two_by_quadrature():
    for a, b, epsilon in ((110.0, 10.0, 0.5), (3.0, 7.0, 1.0), (1.2, 0.8, 0.2)):
        one = adversary.log_draws_delta(a, b, 1, epsilon)
        assert one == pytest.approx(float(theory.profiles.log_beta_delta(a, b, epsilon)), abs=2e-4)
    y = (np.arange(2000) + 0.5) / 2000
    f, g = stats.beta.pdf(y, 4, 7), stats.beta.pdf(y, 3, 8)
    brute = np.maximum(f[:, None] * f - math.exp(0.6) * g[:, None] * g, 0).mean()
    assert adversary.log_draws_delta(3.0, 7.0, 2, 0.6) == pytest.approx(math.log(brute), abs=1e-3)


def test_unknown_attacks_and_wrong_starts_are_named():
    with pytest.raises(ValueError, match="claim must be one of"):
        theory.attack("no-such-claim")
    with pytest.raises(ValueError, match="starts"):
        theory.attack("bells-II-constant", starts=0)


# What the chapter proves, against independent computations ------------------------------------------------------------


def test_the_posters_conditions_hold_with_the_proved_constants():
    epsilon, log_delta = np.meshgrid(np.geomspace(1e-3, 1e5, 81), np.geomspace(1e-3, 300, 61))
    draw = epsilon * np.sqrt(4 / 2.4 / (log_delta**2 + epsilon))
    record = math.sqrt(2) * epsilon / (log_delta + np.sqrt(epsilon))
    for mu in (draw, record):
        assert np.all(theory.profiles.log_gaussian_delta(mu, epsilon) <= -log_delta)
    # with a constant 1 % below √2 the second fails
    assert np.any(theory.profiles.log_gaussian_delta(record / 0.99, epsilon) > -log_delta)


def test_smallest_sizes_of_bells_respect_the_proved_conditions():
    for reach, epsilon, delta in ((1.0, 1.0, 1e-6), (5.0, 0.3, 1e-3), (2.0, 20.0, 0.2)):
        model, log_delta = NormalKnownVariance(bound=reach), math.log(1 / delta)
        draw = theory.smallest_n("sample", model, epsilon=epsilon, delta=delta)
        assert draw <= math.ceil(2.4 * reach**2 / epsilon * (log_delta**2 / epsilon + 1))
        record = theory.smallest_n("synthetic-plugin", model, epsilon=epsilon, delta=delta)
        root = math.sqrt(epsilon)
        assert record <= math.ceil(math.sqrt(2) * reach / root * (log_delta / root + 1))


def test_a_floor_makes_a_draw_a_gaussian_mechanism_at_worst():
    rng = np.random.default_rng(9)
    for _ in range(30):
        low, n, epsilon = rng.uniform(0.01, 0.45), int(rng.integers(1, 200)), rng.gamma(1, 0.5)
        prior = BetaBernoulli(*rng.gamma(1, 2, size=2))
        total = n + prior.alpha + prior.beta
        bound = theory.profiles.log_gaussian_delta(1 / math.sqrt(total * low * (1 - low)), epsilon)
        found = theory.privacy_profile("sample", prior, n, epsilon=epsilon, truncate=(low, 1 - low), log=True)
        assert found <= float(bound) + 1e-9
