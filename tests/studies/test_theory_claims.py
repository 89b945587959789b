"""Every claim of the posters: it holds with a constant on its grid, or fails with a printed counterexample."""

import math
import re

import numpy as np
import pytest
from loading import BOOK, load_study
from scipy import stats

from dpbook import theory
from dpbook.theory import BetaBernoulli, NormalKnownVariance

claims = load_study("theory", "claims")


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.name)
def test_the_claim_has_the_verdict_that_the_ledger_records(claim):
    finding = claim.check()
    print(f"{claim.name}: {finding.verdict}. {finding.evidence}. {finding.counterexample}")
    assert finding.verdict == claim.verdict
    assert claim.verdict in claims.VERDICTS
    assert finding.evidence
    assert bool(finding.counterexample) == (claim.verdict not in ("proved", "not refuted"))
    assert bool(claim.proof) == claim.verdict.startswith("proved")
    if claim.verdict == "proved with a condition":
        assert claim.condition


def test_names_are_unique_and_all_four_verdicts_occur():
    names = [claim.name for claim in claims.CLAIMS]
    assert len(set(names)) == len(names) >= 27
    assert {claim.verdict for claim in claims.CLAIMS} == set(claims.VERDICTS)


# The constants, against closed forms and limits that are derived independently ----------------------------------------


def test_the_constant_of_a_coin_draw_tends_to_six_at_two_records():
    """ε = 1, n = 2: the exponent of δ is that of a = b = α, 2α ln cosh(1/2), over α ln 2: the limit is 6.005."""
    limit = 1 / (2 * math.log(math.cosh(0.5)) * math.log(2))
    assert limit == pytest.approx(6.005, abs=1e-3)
    grid = {"n": [2], "epsilon": [1.0], "delta": [1e-10, 1e-50, 1e-280]}
    ratios = [claims.smallest_constant("coins-II-approximate", {**grid, "delta": [d]}).value for d in grid["delta"]]
    assert ratios == sorted(ratios)
    assert 0.97 * limit < ratios[-1] < limit


def test_one_record_leaves_the_printed_condition_empty():
    assert (
        claims.smallest_constant("coins-II-approximate", {"n": [1], "epsilon": [1.0], "delta": [0.1]}).value == math.inf
    )
    assert theory.privacy_profile("sample", BetaBernoulli(1, 1), 1, epsilon=1.0) == pytest.approx(1 / (1 + math.e))


def test_the_mended_condition_of_a_coin_draw_is_never_violated_on_random_settings():
    rng = np.random.default_rng(1)
    for _ in range(60):
        epsilon, delta = rng.uniform(0.05, 5), 10 ** -rng.uniform(0.3, 12)
        least = math.log(1 / delta) / (2 * math.log(math.cosh(epsilon / 2)))
        alpha, beta = least * (1 + rng.exponential(size=2) * rng.integers(0, 2, 2))
        n = int(10 ** rng.uniform(0, 5))
        assert theory.privacy_profile("sample", BetaBernoulli(alpha, beta), n, epsilon=epsilon) <= delta


def poisson_need(c1, epsilon, delta):
    """The α that the Poisson limit of redrawn records needs, by scipy."""

    def delta_of(alpha):
        k = np.arange(int(c1 * alpha + 60 * math.sqrt(c1 * alpha + 1) + 200))
        p, q = stats.poisson.pmf(k, c1 * (alpha + 1)), stats.poisson.pmf(k, c1 * alpha)
        return max(np.maximum(x - math.exp(epsilon) * y, 0).sum() for x, y in ((p, q), (q, p)))

    low, high = 1e-3, 1e5
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize(("c1", "limit"), [(0.25, 0.597), (1.0, 1.629), (4.0, 5.547)])
def test_the_constants_of_redrawn_coins_are_those_of_the_poisson_limit(c1, limit):
    """The reference limits, ε ≤ 1 and δ ≥ 1e-6, are largest at ε = 1, δ = 1e-6."""
    exact = poisson_need(c1, 1.0, 1e-6) / math.log(1e6)
    assert exact == pytest.approx(limit, rel=2e-3)
    grid = {"c1": [c1], "n": [10**5], "epsilon": [1.0], "delta": [1e-6]}
    assert claims.smallest_constant("coins-IV-approximate", grid).value == pytest.approx(exact, rel=2e-3)


def test_the_constant_of_the_mode_has_its_closed_form():
    for m, epsilon in ((1, 1.0), (10, 3.0), (5, 50.0)):
        u = epsilon / m
        found = claims.smallest_constant("coins-III-pure-mode", {"m": [m], "epsilon": [epsilon]}).value
        assert found == pytest.approx(u / (1 - math.exp(-u)), rel=1e-9)


def test_the_constants_of_bells_are_the_known_ones():
    fine = {"epsilon": np.geomspace(20, 300, 12), "delta": np.linspace(0.02, 0.3, 15)}
    assert claims.smallest_constant("bells-II-approximate", fine).value == pytest.approx(2.31, abs=0.01)
    assert 7.8 < claims.smallest_constant("bells-II-one-logarithm").value < 8
    assert 1.41 < claims.smallest_constant("bells-III-IV-approximate").value < math.sqrt(2)
    small = {"epsilon": np.geomspace(0.01, 1, 8), "delta": [0.3, 0.1, 0.05, 1e-2, 1e-3, 1e-6]}
    assert claims.smallest_constant("bells-III-IV-approximate", small).value == pytest.approx(0.67, abs=0.01)


def test_truncated_bells_never_exceed_the_linear_bound_and_clamped_ones_do():
    rng = np.random.default_rng(2)
    for _ in range(20):
        reach, n = 10 ** rng.uniform(-1.5, 1), int(rng.integers(1, 500))
        model, interval = NormalKnownVariance(bound=reach), (-reach, reach)
        draw, point = (
            theory.epsilon_for(kind, model, n, delta=0.0, truncate=interval) for kind in ("sample", "synthetic-plugin")
        )
        assert draw <= 4 * reach**2
        assert point <= 4 * reach**2 / n
    model = NormalKnownVariance(bound=0.1)
    clamped = theory.epsilon_for("sample", model, 1, delta=0.0, truncate=(-0.1, 0.1), restriction="clamp")
    assert clamped == pytest.approx(math.log(0.5 / stats.norm.cdf(-0.2)), rel=1e-9)


def test_clamping_one_record_exceeds_the_bound_by_the_known_factors():
    for reach, factor in ((0.4, 1.71), (1.0, 1.19), (5.0, 1.01)):
        grid = {"reach": [reach], "n": [100_000], "release": ["synthetic-plugin"]}
        assert claims.smallest_constant("bells-III-IV-pure-clamped", grid).value / 4 == pytest.approx(factor, abs=0.006)


def test_at_equal_information_bells_are_equally_private_and_coins_differ_in_their_tails_only():
    bells = NormalKnownVariance(1.3, 0.2, 2.0, 1.5)
    n = 40
    weight = n + (1.3 / 2.0) ** 2
    assert theory.equal_information("synthetic-bayes", bells, n) == pytest.approx(weight + 1)
    flat = NormalKnownVariance(bound=1.5)
    epsilon = np.linspace(0, 4, 9)
    draw = theory.privacy_profile("sample", flat, n, epsilon=epsilon)
    np.testing.assert_allclose(theory.privacy_profile("synthetic-plugin", flat, n, epsilon=epsilon, m=n), draw)
    np.testing.assert_allclose(theory.privacy_profile("synthetic-bayes", flat, n, epsilon=epsilon, m=n + 1), draw)
    coins = BetaBernoulli(200, 200)
    m = round(theory.equal_information("synthetic-bayes", coins, 1000))
    one, other = (
        theory.privacy_profile(kind, coins, 1000, epsilon=0.05, **options)
        for kind, options in (("sample", {}), ("synthetic-bayes", {"m": m}))
    )
    assert other == pytest.approx(one, rel=0.02)


# The ledger itself --------------------------------------------------------------------------------------------------


def test_the_table_shows_what_the_claims_say():
    table = claims.claims_table(["coins-picture", "coins-III-pure-mode"])
    assert table["claim"].tolist() == ["coins-picture", "coins-III-pure-mode"]
    assert math.isnan(table["constant"][0])
    assert table["constant"][1] == pytest.approx(1 / (1 - math.exp(-1)))


def test_a_false_claim_is_found_false():
    """The check is not a rubber stamp: the same search refutes c = 1 for the mode, and finds no constant at n = 1."""
    assert claims.smallest_constant("coins-III-pure-mode").value > 1.5
    assert claims._at_most_one("coins-III-pure-mode").verdict == "fails"
    assert claims._sharp("bells-II-pure", 0.6, "").verdict == "fails"


def test_wrong_claims_and_grids_are_named():
    with pytest.raises(ValueError, match="claim must be one of"):
        claims.claim("no-such-claim")
    with pytest.raises(ValueError, match="constant"):
        claims.smallest_constant("coins-picture")
    with pytest.raises(ValueError, match="grid"):
        claims.smallest_constant("coins-III-pure-mode", {"m": [1]})
    with pytest.raises(ValueError, match="grid"):
        claims.smallest_constant("coins-III-pure-mode", {"m": [], "epsilon": [1.0]})


@pytest.mark.parametrize("label", sorted({label for claim in claims.CLAIMS for label in claim.proof}))
def test_the_proof_that_a_claim_names_stands_in_the_book(label):
    """A theorem or proposition with this label, and a proof before the next one."""
    found = []
    for page in BOOK.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        where = text.find(f":label: {label}\n")
        if where >= 0:
            start = text.rfind("```{prf:", 0, where)
            rest = text[where:]
            proof = rest.find("```{prf:proof}")
            following = [m.start() for m in re.finditer(r"```\{prf:(theorem|proposition|definition)\}", rest)]
            found.append((text[start : start + 16], 0 <= proof < min(following, default=len(rest))))
    assert len(found) == 1
    assert found[0][0].startswith(("```{prf:theorem", "```{prf:proposit"))
    assert found[0][1]
