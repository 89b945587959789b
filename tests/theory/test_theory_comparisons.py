"""The exponential mechanism, Rényi divergences and noisy statistics beside exact profiles."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from dpbook import theory
from dpbook.accounting import gaussian_delta
from dpbook.theory import BetaBernoulli, NormalKnownVariance


def test_renyi_divergences_of_beta_draws_agree_with_quadrature_over_all_neighbours():
    model, n = BetaBernoulli(3.2, 4.5), 6
    for order in (1.5, 2.0, 3.7):
        best = 0.0
        for ones in range(n):
            p, q = (stats.beta(3.2 + s, 4.5 + n - s) for s in (ones, ones + 1))
            for x, y in ((p, q), (q, p)):
                value, _ = integrate.quad(
                    lambda t: math.exp(order * x.logpdf(t) + (1 - order) * y.logpdf(t)),  # noqa: B023
                    0,
                    1,
                    epsabs=1e-12,
                )
                best = max(best, math.log(value) / (order - 1))
        assert theory.renyi_divergence(model, n, order=order) == pytest.approx(best, rel=1e-8)


def test_renyi_divergence_of_a_beta_draw_ends_at_the_prior_and_of_a_bell_is_quadratic():
    assert theory.renyi_divergence(BetaBernoulli(3, 5), 10**6, order=4.0) == math.inf
    assert theory.renyi_divergence(BetaBernoulli(3, 5), 10**6, order=3.99) < math.inf
    bells = NormalKnownVariance(2.0, 0, 1.0, 1.5)
    mu = 2 * 1.5 * bells.posterior_sd(30) / 4
    assert theory.renyi_divergence(bells, 30, order=7.0) == pytest.approx(7 * mu**2 / 2)


def test_large_and_exhaustive_meshes_agree():
    """Beyond 5000 records only a mesh is looked at; on 5000 it gives the same maximum."""
    from dpbook.theory import comparisons

    model = BetaBernoulli(2.5, 7.0)
    exact = theory.renyi_divergence(model, 5000, order=[1.2, 3.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparisons, "_mesh", lambda n: np.array([0.0, 10.0, n / 2, n - 1.0]))
        assert theory.renyi_divergence(model, 5000, order=[1.2, 3.0]) == pytest.approx(exact)


@pytest.mark.parametrize("model", [BetaBernoulli(4, 9), BetaBernoulli(60, 60), NormalKnownVariance(bound=1.0)], ids=str)
def test_renyi_epsilon_is_an_upper_bound_that_is_not_far_off(model):
    for delta in (1e-3, 1e-9):
        exact = theory.epsilon_for("sample", model, 50, delta=delta)
        assert exact <= theory.renyi_epsilon(model, 50, delta=delta) < 1.6 * exact


def test_the_exponential_mechanism_bounds_every_exact_epsilon():
    rng = np.random.default_rng(1)
    for _ in range(12):
        model, n = BetaBernoulli(*rng.uniform(0.5, 20, 2)), int(rng.integers(1, 200))
        low = rng.uniform(0.02, 0.3)
        view = theory.exponential_view(model, n, truncate=(low, 1 - low), temperature=rng.uniform(1, 4))
        assert view.exact <= view.bound
        reach = rng.uniform(0.2, 3)
        bells = NormalKnownVariance(bound=rng.uniform(0.2, 2))
        view = theory.exponential_view(bells, n, truncate=(-reach, reach))
        assert view.exact <= view.bound * (1 + 1e-12)


def test_the_exponential_mechanism_is_twice_too_careful_at_one_record_and_tight_at_many():
    views = [theory.exponential_view(BetaBernoulli(1, 1), n, truncate=(0.1, 0.9)) for n in (1, 10_000)]
    assert views[0].looseness == pytest.approx(2.0, rel=1e-9)
    assert views[1].looseness < 1.001
    with_delta = theory.exponential_view(BetaBernoulli(10, 10), 1000, truncate=(0.1, 0.9), delta=1e-6)
    assert with_delta.looseness > 3  # delta = 1e-6 buys what the bound cannot see


def test_the_exact_temperature_is_enough_and_below_the_bound():
    model, options = BetaBernoulli(2, 2), {"truncate": (0.2, 0.8)}
    bound, exact = theory.temperature_for(model, 60, epsilon=0.7, **options)
    assert 1 < exact < bound == pytest.approx(2 * math.log(4) / 0.7)
    assert theory.epsilon_for("sample", model, 60, delta=0.0, temperature=exact, **options) == pytest.approx(
        0.7, rel=1e-6
    )
    assert theory.temperature_for(model, 60, epsilon=50.0, **options) == (1.0, 1.0)


@pytest.mark.parametrize(
    "model", [BetaBernoulli(), NormalKnownVariance(0.5, 0.2, math.inf, 1.0)], ids=["coins", "bells"]
)
def test_the_errors_of_the_comparison_agree_with_simulation(model):
    """200,000 runs: a relative Monte-Carlo error of .2 % in an rmse, and 1.5 % allowed (7 standard errors)."""
    n, truth, trials = 60, 0.4, 200_000
    table = theory.compare_with_noise(model, n, epsilon=1.0, delta=1e-3, truth=truth).set_index("release")
    rng = np.random.default_rng(2)
    coins = isinstance(model, BetaBernoulli)
    mean = rng.binomial(n, truth, trials) / n if coins else rng.normal(truth, 0.5 / math.sqrt(n), trials)
    strength = table["strength"].to_dict()
    outputs = {"non-private": mean, "laplace": mean + rng.laplace(scale=(1.0 if coins else 2.0) / n, size=trials)}
    for name in ("sample", "plug-in", "bayes", "bayes, one draw"):
        s = strength[name]
        if coins:
            a, b = s + n * mean, s + n * (1 - mean)
            theta = rng.beta(a, b)
            p = {"sample": theta, "plug-in": a / (a + b), "bayes": a / (a + b), "bayes, one draw": theta}[name]
            outputs[name] = p if name == "sample" else rng.binomial(n, p) / n
        else:
            centre, sd = (s * 0.2 + n * mean) / (s + n), 0.5 / math.sqrt(s + n)
            theta = rng.normal(centre, sd)
            extra = {"sample": 0.0, "plug-in": 0.5, "bayes": math.hypot(0.5, sd), "bayes, one draw": 0.5}[name]
            start = theta if name in ("sample", "bayes, one draw") else centre
            outputs[name] = start + rng.normal(0, extra / math.sqrt(n), trials)
    for name, values in outputs.items():
        assert math.sqrt(np.mean((values - truth) ** 2)) == pytest.approx(table["rmse"][name], rel=0.015)


def test_every_bayesian_release_of_the_comparison_is_as_private_as_asked():
    for model in (BetaBernoulli(), NormalKnownVariance(bound=3.0)):
        table = theory.compare_with_noise(model, 200, epsilon=0.5, delta=1e-5).set_index("release")
        strength = float(table["strength"]["sample"])
        prior = (
            BetaBernoulli(strength, strength)
            if isinstance(model, BetaBernoulli)
            else NormalKnownVariance(1.0, 0.0, 1 / math.sqrt(strength), 3.0)
        )
        assert theory.privacy_profile("sample", prior, 200, epsilon=0.5) == pytest.approx(1e-5, rel=1e-4)


def test_noisy_statistics_lose_less_than_a_posterior_draw():
    """At every size and epsilon looked at, the noisy count beats the draw, whose own scatter alone costs √2."""
    for n in (100, 10_000):
        for epsilon in (0.3, 1.0):
            table = theory.compare_with_noise(BetaBernoulli(), n, epsilon=epsilon, delta=1e-6).set_index("release")
            assert table["relative"]["laplace"] < table["relative"]["sample"]
    assert table["relative"]["sample"] == pytest.approx(math.sqrt(2), rel=0.01)


def test_the_gaussian_noise_of_the_comparison_is_private():
    from dpbook.accounting import gaussian_scale

    assert gaussian_delta(1.0, 1 / gaussian_scale(sensitivity=1.0, epsilon=1.0, delta=1e-6)) <= 1e-6 * (1 + 1e-6)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="order"):
        theory.renyi_divergence(BetaBernoulli(), 5, order=1.0)
    with pytest.raises(ValueError, match="truth"):
        theory.compare_with_noise(BetaBernoulli(), 5, epsilon=1.0, delta=0.1, truth=1.5)
    with pytest.raises(ValueError, match="release_type"):
        theory.equal_information("sample", BetaBernoulli(), 5)
    with pytest.raises(ValueError, match="delta"):
        theory.renyi_epsilon(BetaBernoulli(), 5, delta=0.0)
