"""Five placements of the noise: each keeps its epsilon, each mutant is caught, each variance is the one derived.

Audits have confidence 0.999, so a correct placement fails one with probability at most 0.001 over seeds; the seeds
are fixed. Comparisons of simulated with derived variances use bands of four standard errors or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from loading import load_study
from scipy import integrate, optimize, special

from dpbook import Release, expfam
from dpbook.audit import epsilon_lower_bound
from dpbook.expfam import Beta
from dpbook.theory import BetaBernoulli, epsilon_for

placements = load_study("background", "placements")
PLACEMENTS = placements.PLACEMENTS
asymptotic_variance, compare, temperature = placements.asymptotic_variance, placements.compare, placements.temperature
input_perturbation, objective_perturbation = placements.input_perturbation, placements.objective_perturbation
output_perturbation, posterior_sample = placements.output_perturbation, placements.posterior_sample
sufficient_statistic, noise_aware_mean = placements.sufficient_statistic, placements.noise_aware_mean

Placement = Callable[..., Any]


def log_odds_output(counts: Any, n: int, **options: Any) -> Any:
    return output_perturbation(counts, n, of="log-odds", **options)


# The worst pair of neighbouring counts for each placement: (release, n, count, neighbour's count).
WORST: dict[str, tuple[Placement, int, int, int]] = {
    "input": (input_perturbation, 1, 0, 1),
    "objective": (objective_perturbation, 5, 2, 3),
    "output": (output_perturbation, 5, 2, 3),
    "output of log-odds": (log_odds_output, 5, 0, 1),
    "posterior sample": (posterior_sample, 1, 0, 1),
    "sufficient statistic": (sufficient_statistic, 5, 2, 3),
}
LAPLACE = ["objective", "output", "output of log-odds", "sufficient statistic"]


def audited(placement: str, epsilon: float, trials: int = 40_000) -> float:
    """Return a lower bound, of confidence 0.999, on the epsilon of a placement at its worst pair."""
    release, n, count, neighbour = WORST[placement]

    def runs(data: int, rng: np.random.Generator, trials: int) -> Any:
        return release(np.full(trials, data), n, epsilon=epsilon, rng=rng)

    return epsilon_lower_bound(runs, count, neighbour, trials=trials, batched=True, rng=np.random.default_rng(5))


# Privacy --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", WORST)
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_an_audit_does_not_refute_the_placement(placement: str, epsilon: float) -> None:
    bound = audited(placement, epsilon)
    assert bound <= epsilon
    # One draw at n = 1 costs half of epsilon (test below); the others are seen to spend most of theirs.
    assert bound > (0.1 if placement == "posterior sample" else 0.8) * epsilon


@pytest.mark.parametrize("placement", LAPLACE)
def test_an_audit_catches_half_the_laplace_noise(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(value: Any, sensitivity: float, epsilon: float, rng: Any) -> Any:
        return value + rng.laplace(scale=sensitivity / epsilon / 2, size=value.shape)

    monkeypatch.setattr(placements, "_with_laplace", half)
    assert audited(placement, 1.0) > 1.5


def test_an_audit_catches_reports_that_are_true_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placements, "_truth", lambda epsilon: 1 - math.exp(-epsilon) / 2)
    assert audited("input", 1.0) > 1.3


def test_an_audit_catches_a_posterior_sample_that_is_not_flattened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placements, "temperature", lambda epsilon, floor: 1.0)
    assert audited("posterior sample", 1.0) > 1.3


def test_an_audit_catches_log_odds_noised_as_if_they_moved_as_little_as_the_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log-odds of the posterior mean move by log 2.4 between counts 0 and 1 of 5, the mean by 1/7."""
    honest = placements._with_laplace
    monkeypatch.setattr(placements, "_with_laplace", lambda value, _, eps, rng: honest(value, 1 / 7, eps, rng))
    assert audited("output of log-odds", 1.0) > 3


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("prior", [Beta(1, 1), Beta(0.5, 4)])
def test_the_output_is_given_its_exact_sensitivity(n: int, prior: Beta, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def spy(value: Any, sensitivity: float, epsilon: float, rng: Any) -> Any:
        given.append(sensitivity)
        return value

    monkeypatch.setattr(placements, "_with_laplace", spy)
    for of in ("share", "log-odds"):
        exact = output_perturbation(np.arange(n + 1), n, epsilon=1.0, prior=prior, of=of, rng=np.random.default_rng(0))
        moved = np.abs(np.diff(exact if of == "share" else special.logit(exact)))
        assert given[-1] == pytest.approx(moved.max(), rel=1e-9)


def exact_epsilon(n: int, *, floor: float = 0.1, heat: float = 1.0) -> float:
    """Return the epsilon of one posterior draw under a uniform prior, as the section computes it."""
    return epsilon_for("sample", BetaBernoulli(1, 1), n, delta=0.0, truncate=(floor, 1 - floor), temperature=heat)


def brute_force_epsilon(n: int, floor: float, heat: float) -> float:
    """Return the largest log density ratio over all neighbouring counts and a fine grid of shares."""
    grid = np.linspace(floor, 1 - floor, 401)

    def log_density(s: int) -> Any:
        def log_height(theta: Any) -> Any:
            return (s * np.log(theta) + (n - s) * np.log1p(-theta)) / heat

        top = float(log_height(grid).max())
        area, _ = integrate.quad(lambda t: math.exp(log_height(t) - top), floor, 1 - floor, limit=200, epsabs=0)
        return log_height(grid) - top - math.log(area)

    rows = np.array([log_density(s) for s in range(n + 1)])
    return float(np.abs(np.diff(rows, axis=0)).max())


@pytest.mark.parametrize(("n", "floor", "heat"), [(1, 0.1, 1.0), (10, 0.1, 1.0), (25, 0.02, 3.0), (12, 0.3, 1.7)])
def test_the_epsilon_of_a_posterior_draw_is_the_largest_log_ratio(n: int, floor: float, heat: float) -> None:
    assert exact_epsilon(n, floor=floor, heat=heat) == pytest.approx(brute_force_epsilon(n, floor, heat), rel=1e-6)


def test_the_epsilon_of_a_posterior_draw_tends_to_twice_the_sensitivity_of_the_log_likelihood() -> None:
    """With a uniform prior Z_0 and Z_1 are elementary integrals: Z_1/Z_0 = (n+1)/(0.9 n) - 1 but for 0.1^n."""
    bound = math.log(9)
    for n in (10, 100, 1000, 100_000):
        exact = exact_epsilon(n)
        assert exact == pytest.approx(bound - math.log((n + 1) / (0.9 * n) - 1), abs=1e-6)
        assert exact < 2 * bound
    assert 2 * bound - exact < 1e-3


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("n", [1, 2, 10, 1000])
def test_the_temperature_suffices_and_half_of_it_does_not(epsilon: float, n: int) -> None:
    heat = temperature(epsilon)
    assert exact_epsilon(n, heat=heat) <= epsilon
    if n > 1 and heat >= 2:  # a draw is never sharper than the posterior
        assert exact_epsilon(n, heat=heat / 2) > epsilon


def test_a_posterior_draw_follows_the_flattened_truncated_posterior() -> None:
    """Kolmogorov-Smirnov at level 0.001 against the truncated Beta(α + s/T, β + (n-s)/T)."""
    n, count, prior, draws = 60, 9, Beta(2, 3), 20_000
    heat, rng = temperature(1.5), np.random.default_rng(11)
    drawn = posterior_sample(np.full(draws, count), n, epsilon=1.5, prior=prior, rng=rng)
    assert drawn.min() > 0.1
    assert drawn.max() < 0.9
    a, b = prior.alpha + count / heat, prior.beta + (n - count) / heat
    low, high = special.betainc(a, b, 0.1), special.betainc(a, b, 0.9)
    rank = np.sort((special.betainc(a, b, drawn) - low) / (high - low))
    gap = np.abs(rank - (np.arange(draws) + 0.5) / draws).max()
    assert gap < 1.95 / math.sqrt(draws) + 2 / placements.GRID


def test_a_posterior_draw_survives_counts_far_outside_its_support() -> None:
    drawn = posterior_sample([0, 100_000], 100_000, epsilon=10.0, rng=np.random.default_rng(0))
    assert np.allclose(drawn, [0.1, 0.9], atol=1e-3)


# What each placement computes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.01, 1.0, 30.0])
def test_objective_perturbation_maximises_the_perturbed_log_likelihood(ridge: float) -> None:
    counts, n = np.array([0, 3, 8, 20]), 20
    slopes = sufficient_statistic(counts, n, epsilon=0.3, rng=np.random.default_rng(2))
    found = objective_perturbation(counts, n, epsilon=0.3, ridge=ridge, rng=np.random.default_rng(2))
    assert (slopes < 0).any() or (slopes > n).any()  # a maximum without the ridge would not exist
    for slope, share in zip(slopes, found, strict=True):
        best = optimize.minimize_scalar(
            lambda eta, slope=slope: n * np.logaddexp(0, eta) - slope * eta + ridge * eta**2 / 2, tol=1e-12
        )
        assert special.logit(share) == pytest.approx(best.x, abs=1e-5)


def test_the_noisy_count_can_be_read_off_the_perturbed_objective() -> None:
    counts, n = np.arange(51), 50
    noisy = sufficient_statistic(counts, n, epsilon=0.5, rng=np.random.default_rng(3))
    share = objective_perturbation(counts, n, epsilon=0.5, ridge=2.0, rng=np.random.default_rng(3))
    assert np.allclose(n * share + 2.0 * special.logit(share), noisy, atol=1e-8)


def test_output_perturbation_is_the_naive_posterior_mean_of_the_noisy_count() -> None:
    counts, n, prior = np.arange(51), 50, Beta(2, 7)
    noisy = sufficient_statistic(counts, n, epsilon=0.5, rng=np.random.default_rng(3))
    output = output_perturbation(counts, n, epsilon=0.5, prior=prior, rng=np.random.default_rng(3))
    assert np.allclose(output, (noisy + prior.alpha) / (n + prior.alpha + prior.beta), atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 5.0])
@pytest.mark.parametrize("prior", [Beta(1, 1), Beta(0.5, 12)])
def test_the_noise_aware_mean_is_that_of_the_exact_posterior(epsilon: float, prior: Beta) -> None:
    n = 37
    noisy = np.array([-50.0, -0.2, 0.0, 0.4, 5.0, 17.7, 36.9, 37.0, 90.0])
    for z, mean in zip(noisy, noise_aware_mean(noisy, n, epsilon=epsilon, prior=prior), strict=True):
        release = Release(
            values={"sum": np.array([z])},
            model="binomial",
            mechanism="laplace",
            scale={"sum": 1 / epsilon},
            sensitivity={"sum": 1.0},
            epsilon=epsilon,
            n=n,
            bounds={"x": (0.0, 1.0)},
            float_safe=False,
        )
        assert mean == pytest.approx(expfam.posterior_density(release, prior).mean, rel=1e-9)


@pytest.mark.parametrize("share", [0.3, 0.5])
@pytest.mark.parametrize(("n", "epsilon"), [(20_000, 0.2), (20_000, 1.0)])
def test_simulated_errors_are_the_derived_ones(share: float, n: int, epsilon: float) -> None:
    """8,000 trials: the relative standard error of a root mean squared error is 0.8 %, of Laplace-like ones 1.3 %."""
    errors = compare(share, n, epsilon=epsilon, trials=8000, rng=np.random.default_rng(17))
    for placement in ("non-private", *PLACEMENTS):
        derived = math.sqrt(asymptotic_variance(placement, share=share, n=n, epsilon=epsilon))
        assert errors[placement] == pytest.approx(derived, rel=0.05)


def test_laplace_noise_on_the_count_dominates_where_n_is_small() -> None:
    """The 2/(eps n)² term: with 5 surveys' worth of noise, four standard errors are 8 %."""
    errors = compare(0.5, 400, epsilon=0.02, trials=8000, rng=np.random.default_rng(18))
    derived = math.sqrt(asymptotic_variance("output", share=0.5, n=400, epsilon=0.02))
    assert derived > 5 * errors["non-private"]
    # Clipping to [0, 1] shortens the tails, so the simulated error lies below the derived one, and not by much.
    assert 0.75 * derived < errors["output"] < derived
    assert errors["noise-aware"] < errors["sufficient statistic"]


def test_randomised_response_is_unbiased() -> None:
    """Four standard errors of the mean of 40,000 estimates."""
    estimates = input_perturbation(np.full(40_000, 30), 100, epsilon=0.7, rng=np.random.default_rng(4))
    truth = 1 / (1 + math.exp(-0.7))
    sd = math.sqrt(truth * (1 - truth) / 100) / (2 * truth - 1)
    assert abs(estimates.mean() - 0.3) < 4 * sd / 200
    assert estimates.std() == pytest.approx(sd, rel=0.02)


@pytest.mark.parametrize("placement", [input_perturbation, objective_perturbation, posterior_sample, log_odds_output])
def test_a_batch_keeps_its_shape(placement: Placement) -> None:
    answer = placement(np.full((3, 2), 4), 9, epsilon=1.0, rng=np.random.default_rng(0))
    assert answer.shape == (3, 2)
    assert placement(4, 9, epsilon=1.0, rng=np.random.default_rng(0)).shape == ()


# Arguments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"successes": 11}, ValueError, "successes must"),
        ({"successes": [-1, 3]}, ValueError, "successes must"),
        ({"successes": 2.5}, ValueError, "successes must"),
        ({"n": 0}, ValueError, "successes must .* n at least 1"),
        ({"epsilon": 0}, ValueError, "epsilon must"),
        ({"epsilon": math.nan}, ValueError, "epsilon must"),
        ({"rng": None}, TypeError, "rng must"),
        ({"rng": 3}, TypeError, "rng must"),
    ],
)
@pytest.mark.parametrize(
    "placement",
    [input_perturbation, objective_perturbation, output_perturbation, posterior_sample, sufficient_statistic],
)
def test_a_wrong_argument_is_named(
    placement: Placement, change: dict[str, Any], error: type[Exception], named: str
) -> None:
    arguments = {"successes": 3, "n": 10, "epsilon": 1.0, "rng": np.random.default_rng(0)} | change
    with pytest.raises(error, match=f"^{named}"):
        placement(arguments.pop("successes"), arguments.pop("n"), **arguments)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: asymptotic_variance("prayer", share=0.3, n=10, epsilon=1), "placement"),
        (lambda: output_perturbation(1, 3, epsilon=1, of="odds", rng=np.random.default_rng(0)), "of"),
        (lambda: objective_perturbation(1, 3, epsilon=1, ridge=0, rng=np.random.default_rng(0)), "ridge"),
    ],
)
def test_a_wrong_setting_is_named(call: Callable[[], Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named} must"):
        call()
