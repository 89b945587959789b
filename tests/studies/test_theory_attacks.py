"""Searches for counterexamples: they find those that are known, repeat what is committed, and break nothing proved."""

import math

import numpy as np
import pytest
from loading import BOOK, load_study
from scipy import stats

from dpbook import theory
from dpbook.studies import load
from dpbook.theory import BetaBernoulli

attacks, claims = load_study("theory", "attacks"), load_study("theory", "claims")
STORED = load(BOOK / "theory" / "results" / "attacks.csv").set_index("claim")
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
    mended = claims.claim("coins-IV-mended")
    assert (mended.verdict, mended.proof) == ("proved", ("thm-coins-poisson",))
    assert r"+ \varepsilon" in mended.statement
    false = claims.claim("coins-IV-without-epsilon").check()
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


@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_a_short_search_refutes_what_is_false_and_nothing_else(name):
    found = attacks.attack(name, starts=60 if name in SLOW else 150, steps=3 if name in SLOW else 60, seed=11)
    claim = claims.claim(name)
    assert found.refuted == (claim.verdict == "fails")
    low_high = attacks.ATTACKS[name].ranges
    assert all(low * 0.999 <= found.at[key] <= high * 1.001 or low <= 0 for key, (low, high) in low_high.items())


def test_the_committed_searches_cover_every_claim_that_is_not_proved():
    table = STORED
    assert list(table.index) == list(attacks.ATTACKS)
    for claim in claims.CLAIMS:
        if claim.verdict == "not refuted":
            assert claim.name in table.index
            assert not table.loc[claim.name, "refuted"]
            assert table.loc[claim.name, "evaluations"] > 1500
        if claim.name in table.index:
            assert table.loc[claim.name, "searched"] == attacks.ATTACKS[claim.name].over


@pytest.mark.parametrize("name", ["bells-II-constant", "coins-IV-pure-kept", "bells-III-IV-approximate"])
def test_a_committed_search_can_be_repeated(name):
    row = STORED.loc[name]
    found = attacks.attack(name, seed=int(row["seed"]))
    assert found.evaluations == row["evaluations"]
    assert found.worst == pytest.approx(row["worst"], rel=2e-3, abs=1e-7)


def test_the_searches_can_break_claims_that_are_almost_true():
    """Each constant a little worse than the theorem's is found out: the searches come near the truth."""
    base = attacks.ATTACKS["bells-II-constant"]
    almost = attacks._bell(lambda p: p["epsilon"] * math.sqrt(4 / 2.29 / (p["log_delta"] ** 2 + p["epsilon"])))
    root_two = attacks._bell(lambda p: 1.01 * attacks._record_shift(p))
    half = attacks._draw(lambda p: 0.9 * p["log_delta"] / (2 * attacks._log_cosh(p["epsilon"] / 2)))
    for name, ranges, violation in (
        ("almost", base.ranges, almost),
        ("root-two", base.ranges, root_two),
        ("half", attacks.ATTACKS["coins-II-mended"].ranges, half),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(attacks.ATTACKS, name, attacks.Attack(name, ranges, violation))
            assert attacks.attack(name, starts=1500, seed=1).refuted, name


def test_several_draws_have_the_profile_of_one_where_there_is_one_and_of_two_by_quadrature():
    for a, b, epsilon in ((110.0, 10.0, 0.5), (3.0, 7.0, 1.0), (1.2, 0.8, 0.2)):
        one = attacks.log_draws_delta(a, b, 1, epsilon)
        exact = theory.pair_profile("sample", BetaBernoulli(a, b), [1], [0], epsilon=epsilon, log=True)
        assert one == pytest.approx(exact, abs=2e-4)
    y = (np.arange(2000) + 0.5) / 2000
    f, g = stats.beta.pdf(y, 4, 7), stats.beta.pdf(y, 3, 8)
    brute = np.maximum(f[:, None] * f - math.exp(0.6) * g[:, None] * g, 0).mean()
    assert attacks.log_draws_delta(3.0, 7.0, 2, 0.6) == pytest.approx(math.log(brute), abs=1e-3)


def test_unknown_attacks_and_wrong_starts_are_named():
    with pytest.raises(ValueError, match="claim must be one of"):
        attacks.attack("no-such-claim")
    with pytest.raises(ValueError, match="starts"):
        attacks.attack("bells-II-constant", starts=0)
