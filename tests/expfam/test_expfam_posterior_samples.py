"""One-posterior sampling: the law on the grid, the temperature, the exact privacy loss, and audits."""

import numpy as np
import pytest
from scipy import stats

from dpbook import BudgetExceeded, PrivacyBudget, expfam
from dpbook.audit import epsilon_lower_bound
from dpbook.expfam import Beta, Binomial, CustomFamily, Dirichlet, Exponential, Gamma, Multinomial, Normal, Poisson
from dpbook.expfam.releases import _log_posterior, _sums

WEIBULL = CustomFamily(
    "weibull-2",
    0.0,
    2.0,
    (0.0, np.inf),
    statistic=lambda x: x**2,
    log_density=lambda x, theta: np.log(2 * theta * x) - theta * x**2,
    conjugate=lambda prior, s, n, rng: rng.standard_gamma(prior.shape + n, np.shape(s)) / (prior.rate + s),
    prior_type=Gamma,
)
CASES = [
    (Binomial(), Beta(2, 2), (0.1, 0.9), [1, 0], [0, 0]),
    (Binomial(), Beta(1, 3), (0.05, 0.4), [1, 1], [0, 1]),
    (Exponential(0.5, 3), Gamma(3, 2), (0.2, 4.0), [3.0, 1.0], [0.5, 1.0]),
    (Poisson(0, 5), Gamma(3, 2), (0.5, 6.0), [5, 1], [0, 1]),
    (WEIBULL, Gamma(3, 2), (0.2, 3.0), [2.0, 1.0], [0.0, 1.0]),
]


def law(x, family, prior, support, temperature, grid=401):
    """The probabilities that the exponential mechanism gives the grid."""
    theta = np.linspace(*support, grid)
    utility, _ = _log_posterior(_sums(np.array(x, dtype=float), family, "clip"), family, prior, theta)
    weights = np.exp((utility - utility.max()) / temperature)
    return theta, weights / weights.sum()


@pytest.mark.parametrize(
    ("family", "prior", "support", "x", "neighbour"), CASES, ids=lambda v: getattr(v, "name", None)
)
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 50.0])
def test_the_exact_privacy_loss_at_the_worst_neighbours_is_at_most_epsilon(
    family, prior, support, x, neighbour, epsilon
):
    """Computed from the probabilities, not sampled; more records bring it nearer to the limit."""
    for copies in (1, 40):
        one, other = (np.concatenate([[each[0]], np.repeat(each[1], copies)]) for each in (x, neighbour))
        release = expfam.release_posterior_samples(
            one, family, prior, epsilon=epsilon, support=support, grid=401, rng=np.random.default_rng(0)
        )
        temperature = release.scale["theta"]
        (_, p), (_, q) = (law(each, family, prior, support, temperature) for each in (one, other))
        loss = np.abs(np.log(p) - np.log(q)).max()
        assert loss <= epsilon * (1 + 1e-9)
        assert temperature == pytest.approx(max(1.0, 2 * release.sensitivity["theta"] / epsilon))


def test_the_sensitivity_of_yes_or_no_records_has_its_closed_form_and_the_loss_tends_to_twice_it():
    """At a = 0.1 the exact epsilon of a posterior sample is 2.197, 3.701, 4.299 at n = 1, 10, 100; the limit 4.394."""
    sample = expfam.release_posterior_samples(
        [0, 1], Binomial(), Beta(1, 1), epsilon=100.0, support=(0.1, 0.9), rng=np.random.default_rng(0)
    )
    assert sample.sensitivity["theta"] == pytest.approx(np.log(9), rel=1e-9)
    assert sample.scale["theta"] == 1.0
    for n, expected in ((1, 2.197), (10, 3.701), (100, 4.299)):
        losses = []
        for k in range(n):
            one, other = (np.repeat([1, 0], [c, n - c]) for c in (k, k + 1))
            (_, p), (_, q) = (law(each, Binomial(), Beta(1, 1), (0.1, 0.9), 1.0, 8001) for each in (one, other))
            losses.append(np.abs(np.log(p) - np.log(q)).max())
        assert max(losses) == pytest.approx(expected, abs=2e-3)


def test_only_differences_of_the_natural_parameter_matter():
    """On an asymmetric support Δ is half the range of the log odds, not its largest value."""
    sample = expfam.release_posterior_samples(
        [0, 1], Binomial(), Beta(1, 1), epsilon=1.0, support=(0.05, 0.4), rng=np.random.default_rng(0)
    )
    expected = (np.log(0.4 / 0.6) - np.log(0.05 / 0.95)) / 2
    assert sample.sensitivity["theta"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("real", [False, True], ids=["seeded", "real"])
def test_draws_follow_the_flattened_posterior_on_the_grid(real):
    """KS at the 1e-4 level on a fine grid."""
    x, family, prior, support = [1] * 12 + [0] * 28, Binomial(), Beta(2, 2), (0.1, 0.9)
    rng = None if real else np.random.default_rng(1)
    grid, count = 101, 300 if real else 3000
    sample = expfam.release_posterior_samples(
        x, family, prior, epsilon=2.0 * count, count=count, support=support, grid=grid, rng=rng
    )
    assert sample.scale["theta"] == pytest.approx(np.log(9), rel=1e-6)  # each draw has epsilon 2
    theta, probabilities = law(x, family, prior, support, sample.scale["theta"], grid)
    spread = sample["theta"] + np.random.default_rng(2).uniform(-0.004, 0.004, count)
    edges = np.append(theta - 0.004, theta[-1] + 0.004)
    cdf = np.append(0.0, np.cumsum(probabilities))
    assert stats.kstest(spread, lambda t: np.interp(t, edges, cdf)).pvalue > 1e-4


@pytest.mark.parametrize(
    ("family", "prior", "support", "x", "neighbour"), CASES, ids=lambda v: getattr(v, "name", None)
)
def test_an_audit_does_not_refute_a_posterior_sample(family, prior, support, x, neighbour):
    """Each bound exceeds the true epsilon with probability at most 1e-3."""
    one, other = (np.concatenate([[each[0]], np.repeat(each[1], 60)]) for each in (x, neighbour))
    center = [law(each, family, prior, support, 1.0, 101) for each in (one, other)]
    ratio = np.log(center[0][1]) - np.log(center[1][1])

    def sample(data, rng):
        drawn = expfam.release_posterior_samples(data, family, prior, epsilon=3.0, support=support, grid=101, rng=rng)[
            "theta"
        ]
        return float(ratio[np.rint((drawn[0] - support[0]) / (support[1] - support[0]) * 100).astype(int)])

    assert epsilon_lower_bound(sample, one, other, trials=500, rng=np.random.default_rng(3)) <= 3.0


def test_a_hundred_samples_that_do_not_share_the_budget_are_caught():
    """100 draws at epsilon = 1 each, said to cost 1 together; right ones, at epsilon / 100 each, are not refuted."""
    theta, support = np.linspace(0.1, 0.9, 101), (0.1, 0.9)
    score = np.log(theta / (1 - theta))

    def sample(data, rng, total):
        drawn = expfam.release_posterior_samples(
            data, Binomial(), Beta(1, 1), epsilon=total, count=100, support=support, grid=101, rng=rng
        )["theta"]
        return float(score[np.rint((drawn - 0.1) / 0.8 * 100).astype(int)].sum())

    one, other, rng = np.array([1]), np.array([0]), np.random.default_rng(5)
    assert epsilon_lower_bound(lambda d, r: sample(d, r, 100.0), one, other, trials=300, rng=rng) > 1.0
    assert epsilon_lower_bound(lambda d, r: sample(d, r, 1.0), one, other, trials=300, rng=rng) <= 1.0


def test_the_budget_is_charged_before_anything_is_drawn():
    budget, rng = PrivacyBudget(1.0), np.random.default_rng(6)
    arguments = {"family": Binomial(), "prior": Beta(1, 1), "support": (0.1, 0.9), "rng": rng, "budget": budget}
    expfam.release_posterior_samples([0, 1], epsilon=0.8, count=5, **arguments)
    assert budget.remaining == pytest.approx(0.2)
    state = rng.bit_generator.state
    with pytest.raises(BudgetExceeded):
        expfam.release_posterior_samples([0, 1], epsilon=0.8, **arguments)
    assert rng.bit_generator.state == state


def test_many_samples_share_the_budget_and_are_each_flatter():
    one, many = (
        expfam.release_posterior_samples(
            [0, 1], Binomial(), Beta(1, 1), epsilon=1.0, count=count, support=(0.1, 0.9), rng=np.random.default_rng(7)
        )
        for count in (1, 100)
    )
    assert many.scale["theta"] == pytest.approx(100 * one.scale["theta"])
    assert many["theta"].shape == (100,)
    assert ((many["theta"] >= 0.1) & (many["theta"] <= 0.9)).all()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"family": Multinomial(3), "prior": Dirichlet([1, 1, 1])}, "family"),
        ({"family": Normal(0, 1)}, "family"),
        ({"family": "binomial"}, "family"),
        ({"prior": Gamma(1, 1)}, "prior"),
        ({"support": (0.0, 0.9)}, "support"),
        ({"support": (0.9, 0.1)}, "support"),
        ({"count": 0}, "count"),
        ({"grid": 1}, "grid"),
        ({"epsilon": 0}, "epsilon"),
        ({"rng": 1}, "rng"),
        ({"data": [0, 2]}, "data must"),
    ],
)
def test_errors_name_the_argument_and_cost_nothing(changes, named):
    budget = PrivacyBudget(5.0)
    arguments = {
        "data": [0, 1],
        "family": Binomial(),
        "prior": Beta(1, 1),
        "epsilon": 1.0,
        "support": (0.1, 0.9),
        "budget": budget,
    }
    with pytest.raises((TypeError, ValueError), match=named):
        expfam.release_posterior_samples(**arguments | changes)
    assert budget.ledger == ()
