"""The weakest prior, the smallest n, the largest m: each is enough, and a little less is not."""

import math

import pytest

from dpbook import theory
from dpbook.theory import BetaBernoulli, NormalKnownVariance

RELEASES = [
    ("sample", {}),
    ("synthetic-plugin", {"m": 20}),
    ("synthetic-plugin", {"m": 20, "estimator": "mean"}),
    ("synthetic-bayes", {"m": 20}),
    ("synthetic-bayes", {"m": 20, "redraw": False}),
    ("synthetic-bayes", {"m": 20, "redraw": 5}),
]


@pytest.mark.parametrize(("kind", "options"), RELEASES, ids=str)
@pytest.mark.parametrize("delta", [0.0, 1e-3, 1e-9])
def test_the_weakest_prior_for_coins_is_enough_and_a_weaker_one_is_not(kind, options, delta):
    found = theory.prior_for(kind, BetaBernoulli(), 30, epsilon=0.8, delta=delta, **options)
    if kind == "sample" and delta == 0:
        assert found is None
        return
    exact, weaker = (
        theory.epsilon_for(kind, BetaBernoulli(alpha, alpha), 30, delta=delta, **options)
        for alpha in (found.alpha, 0.99 * found.alpha)
    )
    assert exact == pytest.approx(0.8, rel=1e-5)
    assert weaker > 0.8 * (1 + 1e-4)


def test_the_weakest_prior_for_bells_is_enough_and_a_weaker_one_is_not():
    model = NormalKnownVariance(sigma=1.0, bound=4.0)
    found = theory.prior_for("sample", model, 50, epsilon=1.0, delta=1e-6)
    assert 0 < found.prior_sd < math.inf
    assert theory.epsilon_for("sample", found, 50, delta=1e-6) == pytest.approx(1.0, rel=1e-6)
    assert theory.prior_for("sample", model, 5000, epsilon=1.0, delta=1e-6).prior_sd == math.inf


def test_pure_privacy_of_synthetic_coins_inverts_in_closed_form():
    found = theory.prior_for("synthetic-bayes", BetaBernoulli(), 50, epsilon=2.0, delta=0.0, m=9, redraw=False)
    assert found.alpha == pytest.approx(9 / (math.exp(2) - 1), rel=1e-9)
    found = theory.prior_for("synthetic-plugin", BetaBernoulli(), 50, epsilon=2.0, delta=0.0, m=9)
    assert found.alpha == pytest.approx(1 / (1 - math.exp(-2 / 9)), rel=1e-9)


def test_the_smallest_n_is_enough_and_one_record_less_is_not():
    for kind, model, options in (
        ("sample", NormalKnownVariance(bound=2.0), {}),
        ("synthetic-plugin", NormalKnownVariance(bound=2.0), {"m": 5}),
        ("synthetic-plugin", NormalKnownVariance(bound=2.0), {"truncate": (-2.0, 2.0)}),
        ("synthetic-bayes", BetaBernoulli(3, 3), {"m": 2}),
    ):
        n = theory.smallest_n(kind, model, epsilon=0.5, delta=1e-3, **options)
        assert n == int(n) > 1
        assert theory.privacy_profile(kind, model, int(n), epsilon=0.5, **options) <= 1e-3 * (1 + 1e-9)
        assert theory.privacy_profile(kind, model, int(n) - 1, epsilon=0.5, **options) > 1e-3


def test_no_amount_of_data_makes_a_draw_under_a_weak_prior_private():
    assert theory.smallest_n("sample", BetaBernoulli(2, 2), epsilon=1.0, delta=1e-6) == math.inf
    assert theory.smallest_n("estimate", NormalKnownVariance(), epsilon=1.0, delta=1e-6) == math.inf


@pytest.mark.parametrize(("kind", "options"), RELEASES[1:], ids=str)
def test_the_largest_m_is_private_and_one_more_is_not(kind, options):
    model, more = BetaBernoulli(12, 12), {key: value for key, value in options.items() if key != "m"}
    step = more.get("redraw", 1) if not isinstance(more.get("redraw", 1), bool) else 1
    m = int(theory.largest_m(kind, model, 200, epsilon=0.6, delta=1e-4, **more))
    assert m > 0
    assert theory.privacy_profile(kind, model, 200, epsilon=0.6, m=m, **more) <= 1e-4 * (1 + 1e-9)
    assert theory.privacy_profile(kind, model, 200, epsilon=0.6, m=m + step, **more) > 1e-4


def test_there_is_no_limit_where_the_draw_itself_is_private_and_no_record_where_nothing_is():
    strong, weak = BetaBernoulli(1000, 1000), BetaBernoulli(0.01, 0.01)
    assert theory.largest_m("synthetic-bayes", strong, 10, epsilon=1.0, delta=1e-3, redraw=False) == math.inf
    assert theory.largest_m("synthetic-bayes", weak, 10, epsilon=0.1, delta=1e-6) == 0


def test_truncated_draws_are_refused_because_more_data_may_be_less_private():
    model, options = NormalKnownVariance(bound=0.5), {"truncate": (-0.5, 0.5)}
    few, many = (theory.epsilon_for("sample", model, n, delta=0.0, **options) for n in (1, 1000))
    assert many > 1.5 * few
    with pytest.raises(ValueError, match="truncate"):
        theory.smallest_n("sample", model, epsilon=1.0, delta=0.0, **options)
    with pytest.raises(ValueError, match="release_type"):
        theory.largest_m("sample", BetaBernoulli(), 10, epsilon=1.0, delta=0.1)
