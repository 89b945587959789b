"""Ways to add up a ledger: limits, what charges cost, and that choosing by earlier answers gains nothing."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from dp_accounting.pld import privacy_loss_distribution
from scipy import special, stats

from dpbook import BudgetExceeded, PrivacyBudget, expfam, regression
from dpbook.accountants import Loss, accountant
from dpbook.accounting import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_scale,
    plan_epsilon,
    pure_mu,
    zcdp_epsilon,
)
from dpbook.budget import fingerprint

DESIGN = "order of arrival"


@pytest.mark.parametrize("name", ["zcdp", "gaussian"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-9), (1.0, 1e-6), (8.0, 1e-5), (50.0, 0.01)])
def test_a_limit_is_as_large_as_the_total_allows_and_no_larger(name, epsilon, delta):
    made = accountant(name, epsilon, delta)
    assert epsilon * (1 - 1e-8) <= made.stated(made.limit)[0] <= epsilon
    assert made.stated((made.limit[0] * 1.001, 0.0))[0] > epsilon


def test_five_gaussian_releases_cost_less_than_their_sum():
    """Five of (.2, 10⁻⁷): 1.0 by addition; .45 by zCDP and .42 exactly, at 10⁻⁶."""
    mu = 1 / gaussian_scale(sensitivity=1.0, epsilon=0.2, delta=1e-7)
    spent = {}
    for name in ("addition", "zcdp", "gaussian"):
        budget = PrivacyBudget(1.0, delta=1e-6, accounting=name)
        for _ in range(5):
            budget.spend(0.2, delta=1e-7, rho=mu**2 / 2, mu=mu)
        spent[name] = budget.spent[0]
    assert spent["addition"] == pytest.approx(1.0)
    assert spent["zcdp"] == pytest.approx(0.45, abs=0.005)
    assert spent["gaussian"] == pytest.approx(0.415, abs=0.001)


def test_sums_agree_with_a_second_implementation():
    """dp-accounting's Rényi accountant, and its numerical composition of Gaussian losses."""
    mu = [0.05, 0.1, 0.2, 0.3]
    budget = PrivacyBudget(5.0, delta=1e-6, accounting="zcdp")
    other = rdp.RdpAccountant(orders=np.linspace(1.5, 200, 3000).tolist())
    for each in mu:
        budget.spend(1.0, delta=1e-7, rho=each**2 / 2)
        other.compose(dp_event.GaussianDpEvent(1 / each))
    assert budget.spent[0] == pytest.approx(other.get_epsilon(1e-6), rel=1e-3)
    exact = privacy_loss_distribution.from_gaussian_mechanism(1 / math.hypot(*mu)).get_epsilon_for_delta(1e-6)
    assert gaussian_epsilon(math.hypot(*mu), 1e-6) == pytest.approx(exact, rel=1e-3)
    assert plan_epsilon(delta=1e-6, mu=mu) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 7.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3])
def test_epsilon_of_gaussian_noise_is_the_inverse_of_its_delta(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert epsilon == 0 or gaussian_delta(epsilon * (1 - 1e-6), mu) > delta


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, 5.0, 40.0])
def test_a_pure_release_tests_no_better_than_gaussian_noise_of_its_mu(epsilon):
    """The least error of the second kind at every error of the first: two lines, above a convex curve, which they "
    "touch."""
    mu = pure_mu(epsilon)
    first = np.concatenate([np.logspace(-15, -1, 400), np.linspace(0.1, 1, 400)])
    pure = np.maximum(0, np.maximum(1 - np.exp(epsilon) * first, np.exp(-epsilon) * (1 - first)))
    gaussian = special.ndtr(special.ndtri(1 - first) - mu)
    assert (pure >= gaussian - 1e-12).all()
    corner = special.expit(-epsilon)
    assert special.ndtr(-special.ndtri(corner) - mu) == pytest.approx(corner, rel=1e-9)


def test_discrete_noise_has_the_mu_of_the_gaussian_that_it_is_a_rounding_of():
    assert gaussian_mu(sensitivity=1.0, scale=10.0, unit=1.0) == pytest.approx(1 / math.sqrt(96), rel=1e-8)
    assert gaussian_mu(sensitivity=1.0, scale=10.0, unit=1e-9) == pytest.approx(0.1, rel=1e-8)
    assert gaussian_mu(sensitivity=1.0, scale=1.9, unit=1.0) is None


def two_steps(mu, adaptive, epsilon):
    """Return the delta of two Gaussian releases, the second with a mu that depends on the first answer, by quadrature.

    Between 0 and 1, in units of the sensitivity: the first answer is y ~ N(0 or mu[0], 1); given it, the second has the
    profile of Gaussian noise, at what the first left of epsilon.
    """
    y = np.linspace(-12, 12 + mu, 40_001)
    loss = mu * y - mu**2 / 2  # of "1" against "0"
    left = [epsilon - each for each in loss]
    below = [hockey(each, m) for each, m in zip(left, adaptive(y), strict=True)]
    return float(np.trapezoid(stats.norm.pdf(y, mu) * np.array(below), y))


def hockey(epsilon, mu):
    """Return the delta of Gaussian noise at any epsilon, also below zero."""
    if mu == 0:
        return max(0.0, 1 - math.exp(epsilon))
    return float(special.ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * special.ndtr(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize("threshold", [-1.0, 0.3, 1.2])
def test_choosing_mu_by_an_earlier_answer_gains_nothing_within_the_limit(threshold):
    """The filter: whoever spends the rest only after a surprising answer is covered as if it had always been spent."""
    first, rest = 0.6, 0.8
    limit = math.hypot(first, rest)
    for epsilon in (0.1, 0.5, 1.5, 3.0):
        always = two_steps(first, lambda y: np.full(y.shape, rest), epsilon)
        assert always == pytest.approx(gaussian_delta(epsilon, limit), rel=1e-4)
        for spend in (lambda y: np.where(y > threshold, rest, 0.0), lambda y: np.where(y < threshold, rest, 0.2)):
            assert two_steps(first, spend, epsilon) <= always * (1 + 1e-6)


def test_to_choose_the_accountant_after_an_answer_is_no_filter():
    """Why the way to add up is fixed beforehand: filling one of two limits by an earlier answer breaks their common
    delta.

    Here each limit is on its own (ε, δ), the largest of two-valued losses and of Gaussian noise; after the first
    answer the analyst takes whichever rest has the larger delta there.
    """
    epsilon, first = 1.0, 0.2
    mu = math.sqrt(accountant("gaussian", epsilon, 1e-3).limit[0] - first**2)
    y = np.linspace(-12, 12 + first, 40_001)
    left = epsilon - (first * y - first**2 / 2)
    density = stats.norm.pdf(y, first)
    gaussian = np.array([hockey(each, mu) for each in left])

    def response(pure):  # the worst pure release
        high, low = special.expit(pure), special.expit(-pure)
        return np.maximum(0, high - np.exp(left) * low) + np.maximum(0, low - np.exp(left) * high)

    def delta(rest):
        return float(np.trapezoid(density * rest, y))

    low, high = 0.0, 10.0  # the pure epsilon whose delta, after the first answer, is the same
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(response(middle)) < 1e-3 else (low, middle)
    assert delta(gaussian) == pytest.approx(1e-3, rel=1e-3)
    assert delta(response(low)) == pytest.approx(1e-3, rel=1e-3)
    assert delta(np.maximum(gaussian, response(low))) > 1.05e-3


def test_pure_releases_enter_zcdp_as_half_a_square():
    made = accountant("zcdp", 1.0, 1e-6)
    assert made.cost(Loss(0.3, 0.0)) == (0.045, 0.0)
    budget = PrivacyBudget(1.0, delta=1e-6, accounting="zcdp")
    budget.spend(budget.remaining)
    assert budget.spent[0] == pytest.approx(1.0, rel=1e-6)
    assert budget.remaining == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(BudgetExceeded, match="a pure release of epsilon 0 remains of a total of 1 at delta 1e-06"):
        budget.spend(0.01)


@pytest.mark.parametrize("name", ["zcdp", "gaussian"])
def test_a_loss_that_cannot_be_counted_is_refused_before_anything_is_spent(name):
    budget = PrivacyBudget(1.0, delta=1e-6, accounting=name)
    with pytest.raises(ValueError, match="says too little for this budget"):
        budget.spend(0.1, delta=1e-7)
    assert budget.ledger == ()
    with pytest.raises(ValueError, match="delta must be greater than 0"):
        PrivacyBudget(1.0, accounting=name)
    with pytest.raises(ValueError, match="accounting must be one of"):
        PrivacyBudget(1.0, accounting="pld")


@pytest.mark.parametrize("name", ["zcdp", "gaussian"])
def test_parallel_branches_cost_the_dearest_under_every_accounting(name):
    budget = PrivacyBudget(1.0, delta=1e-6, accounting=name)
    with budget.parallel(n=10, parts={"a": 5, "b": 5}, fixed_by=DESIGN) as group:
        group.branch("a").spend(0.1)
        group.branch("a").spend(0.1)
        group.branch("b").spend(0.12)
    alone = PrivacyBudget(1.0, delta=1e-6, accounting=name)
    alone.spend(0.1)
    alone.spend(0.1)
    assert budget.spent == pytest.approx(alone.spent)
    assert budget.ledger[0].epsilon == pytest.approx(alone.spent[0])


def test_zcdp_beats_addition_for_many_small_releases_and_not_for_one():
    many = PrivacyBudget(1.0, delta=1e-6, accounting="zcdp")
    count = 0
    while many.can_spend(0.01):
        many.spend(0.01)
        count += 1
    assert count > 400
    assert PrivacyBudget(1.0, delta=1e-6, accounting="zcdp").remaining < 0.25
    assert zcdp_epsilon(0.01**2 / 2 * count, 1e-6) <= 1.0


def test_gaussian_releases_of_every_package_can_be_counted_and_enter_their_fingerprints():
    rng = np.random.default_rng(3)
    x = rng.normal(size=200)
    budget = PrivacyBudget(4.0, delta=1e-5, accounting="gaussian")
    paid = {"epsilon": 0.2, "delta": 1e-7, "mechanism": "gaussian", "rng": rng, "budget": budget}
    made = [
        expfam.release((x > 0).astype(int), expfam.Binomial(), **paid),
        expfam.release_mean(x, (-3, 3), **paid),
        expfam.release_histogram(x, [-1, 0, 1], **paid),
        regression.release(x[:, None], x, x_bounds=(-3, 3), y_bounds=(-3, 3), **paid),
    ]
    assert [line.fingerprint for line in budget.ledger] == [fingerprint(each) for each in made]
    assert all(line.mu is not None and line.rho == pytest.approx(line.mu**2 / 2, rel=1e-3) for line in budget.ledger)
    single = gaussian_epsilon(budget.ledger[0].mu, 1e-7)
    assert single == pytest.approx(0.2, rel=1e-2)
    assert budget.spent[0] < 4 * 0.2
