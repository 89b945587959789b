"""Exact profiles of a posterior draw, against 50-digit arithmetic, quadrature and the analytic Gaussian formula."""

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from dpbook import theory
from dpbook.accounting import gaussian_delta
from dpbook.theory._draws import log1mexp, log_beta_delta, log_gamma_growth, log_gaussian_delta


def beta_reference(a, b, epsilon):
    """log delta of Beta(a+1, b) against Beta(a, b+1), from the definition, in 60 digits."""
    with mpmath.workdps(60):
        a, b, grow = mpmath.mpf(a), mpmath.mpf(b), mpmath.exp(mpmath.mpf(epsilon))
        x = b / (grow * a + b)
        peak = mpmath.exp(
            mpmath.loggamma(a + b + 1) - mpmath.loggamma(a + 1) - mpmath.loggamma(b + 1)
            + a * mpmath.log(1 - x) + b * mpmath.log(x)
        )  # fmt: skip
        tail = peak * a * x / (b + 1) * mpmath.hyp2f1(a + b + 1, 1, b + 2, x)  # I_x(b + 1, a)
        # delta = I_x(b, a + 1) - e^ε I_x(b + 1, a), and I_x(b, a + 1) - I_x(b + 1, a) is the peak
        return mpmath.log(peak - (grow - 1) * tail)


def gaussian_reference(mu, epsilon):
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.log(
            mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        )


def random_beta_cases(count=150):
    rng = np.random.default_rng(1)
    a, b = 10 ** rng.uniform(-4, 4, (2, count))
    return np.stack([a, b, 10 ** rng.uniform(-4, 1, count)], axis=1)


def test_a_beta_draw_agrees_with_fifty_digits_on_random_parameters():
    worst, seen = 0.0, 0
    for a, b, epsilon in random_beta_cases():
        exact = beta_reference(a, b, epsilon)
        if exact > -600:
            seen += 1
            worst = max(worst, abs(float(mpmath.mpf(float(log_beta_delta(a, b, epsilon))) - exact)))
    assert seen > 80
    assert worst < 1e-12


@pytest.mark.parametrize(
    ("a", "b", "epsilon"),
    [
        (1e-8, 1e-8, 1.0),  # n = 1 with priors near 0
        (1e-8, 1e6, 1.0),
        (1e6, 1e-8, 1.0),
        (1e-8, 1e6, 1e-7),
        (1e6, 1e-8, 1e-7),
        (5e5, 5e5, 0.01),
        (5e5, 5e5, 1e-9),
        (1.0, 1e6, 0.5),
        (30.0, 1e6, 1.6),  # delta about 1e-12
        (0.5, 0.5, 40.0),
        (3.0, 3.0, 300.0),
        (1e-6, 50.0, 13.0),
    ],
)
def test_extreme_parameters_keep_their_digits(a, b, epsilon):
    exact = beta_reference(a, b, epsilon)
    assert float(log_beta_delta(a, b, epsilon)) == pytest.approx(float(exact), abs=2e-12)


def test_a_beta_draw_agrees_with_brute_force_quadrature():
    rng = np.random.default_rng(2)
    for _ in range(25):
        a, b, epsilon = *rng.uniform(0.5, 30, 2), rng.uniform(0, 2)
        p, q = stats.beta(a + 1, b), stats.beta(a, b + 1)
        tau = math.exp(epsilon) * a / (math.exp(epsilon) * a + b)
        exact, _ = integrate.quad(lambda t: p.pdf(t) - math.exp(epsilon) * q.pdf(t), tau, 1, epsabs=1e-13)  # noqa: B023
        assert math.exp(float(log_beta_delta(a, b, epsilon))) == pytest.approx(exact, abs=1e-11)


def test_at_epsilon_zero_a_beta_draw_gives_total_variation():
    for a, b in ((1.0, 1.0), (0.3, 7.0), (40.0, 2.0)):
        p, q = stats.beta(a + 1, b), stats.beta(a, b + 1)
        centre = a / (a + b)  # where the densities cross
        assert math.exp(float(log_beta_delta(a, b, 0.0))) == pytest.approx(p.sf(centre) - q.sf(centre), rel=1e-12)


def test_a_gaussian_mechanism_agrees_with_fifty_digits():
    rng = np.random.default_rng(3)
    worst = 0.0
    for _ in range(200):
        mu, epsilon = 10 ** rng.uniform(-5, 2), 10 ** rng.uniform(-4, 2)
        exact = gaussian_reference(mu, epsilon)
        if exact > -650:
            worst = max(worst, abs(float(mpmath.mpf(float(log_gaussian_delta(mu, epsilon))) - exact)))
    assert worst < 1e-11
    for mu in (1e-4, 0.5, 0.999999, 1.0, 30.0):
        assert float(log_gaussian_delta(mu, 0.0)) == pytest.approx(float(gaussian_reference(mu, 0.0)), abs=1e-13)


def test_a_gaussian_mechanism_agrees_with_balle_and_wang():
    rng = np.random.default_rng(4)
    for mu, epsilon in zip(rng.uniform(0.1, 5, 50), rng.uniform(0, 5, 50), strict=True):
        assert math.exp(float(log_gaussian_delta(mu, epsilon))) == pytest.approx(gaussian_delta(epsilon, mu), rel=1e-10)


def test_a_bell_draw_is_the_gaussian_mechanism_of_its_shift():
    """Prior, spread and bound at random: delta is that of mu = 2 R sd / sigma², computed here from scratch."""
    rng = np.random.default_rng(5)
    for _ in range(30):
        sigma, prior_sd, bound, epsilon = rng.uniform(0.2, 4, 4)
        n, m = (int(v) for v in rng.integers(1, 200, 2))
        k = int(rng.integers(2, 6))
        model = theory.NormalKnownVariance(sigma, rng.normal(), prior_sd, bound)
        variance = 1 / (1 / prior_sd**2 + n / sigma**2)
        move = 2 * bound * variance / sigma**2
        shifts = {
            ("sample", 1, True): move / math.sqrt(variance),
            ("synthetic-plugin", m, True): math.sqrt(m) * move / sigma,
            ("synthetic-bayes", m, True): math.sqrt(m) * move / math.sqrt(sigma**2 + variance),
            ("synthetic-bayes", m, False): move / math.sqrt(variance + sigma**2 / m),
            ("synthetic-bayes", k * m, k): math.sqrt(k) * move / math.sqrt(variance + sigma**2 / m),
        }
        for (kind, records, redraw), mu in shifts.items():
            found = theory.privacy_profile(kind, model, n, epsilon=epsilon, m=records, redraw=redraw)
            assert found == pytest.approx(gaussian_delta(epsilon, mu), rel=1e-7, abs=1e-300)


def test_logarithms_of_gamma_ratios_agree_with_fifty_digits():
    with mpmath.workdps(50):
        for x in (0.01, 3.0, 19.9, 25.0, 1e4, 1e9):
            for step in (1.7, 12.0, -0.005 if x < 1 else -min(x, 40) / 2):
                y, s = mpmath.mpf(x), mpmath.mpf(step)
                exact = mpmath.loggamma(y + s) - mpmath.loggamma(y) - s * mpmath.log(y)
                assert float(log_gamma_growth(x, step)) == pytest.approx(float(exact), rel=1e-11, abs=1e-13)


def test_log1mexp_is_accurate_at_both_ends():
    for x in (1e-300, 1e-12, 0.5, math.log(2), 1.0, 50.0, 700.0):
        with mpmath.workdps(400):
            exact = mpmath.log(1 - mpmath.exp(-mpmath.mpf(x)))
        assert float(log1mexp(x)) == pytest.approx(float(exact), rel=1e-14)
