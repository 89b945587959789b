"""Outputs restricted to an interval: against integrals in many digits, sums over a fine mesh, and limits."""

import math

import mpmath
import numpy as np
import pytest

from dpbook.theory._draws import log_beta_delta, log_gaussian_delta
from dpbook.theory._intervals import LogOddsPair, NormalPair, largest_loss, log_clamped_delta, log_truncated_delta


def normal_pair(lower, upper, scale):
    return NormalPair(np.asarray(lower), np.asarray(upper), np.asarray(scale))


def odds_pair(ones, zeros, shift):
    return LogOddsPair(*(np.asarray(float(v)) for v in (ones, zeros, shift)))


def normal_reference(lower, upper, scale, low, high, epsilon):
    with mpmath.workdps(100):
        values = [mpmath.mpf(v) for v in (lower, upper, scale, low, high, epsilon)]
        lower, upper, scale, low, high, epsilon = values

        def between(mean, a, b):
            # from the tail on the side of the mean, so that nothing near 1 is subtracted
            sign = 1 if a + b > 2 * mean else -1
            near, far = (sign * (v - mean) / (scale * mpmath.sqrt(2)) for v in (a, b))
            return sign * (mpmath.erfc(near) - mpmath.erfc(far)) / 2

        z1, z0 = between(upper, low, high), between(lower, low, high)
        # log ratio = slope (x - middle) - log(z1/z0) = epsilon
        cut = (upper + lower) / 2 + (epsilon + mpmath.log(z1 / z0)) * scale**2 / (upper - lower)
        if cut >= high:
            return mpmath.mpf("-inf")
        cut = max(cut, low)
        return mpmath.log(between(upper, cut, high) / z1 - mpmath.exp(epsilon) * between(lower, cut, high) / z0)


def test_truncated_normals_agree_with_a_hundred_digits_on_random_parameters():
    rng = np.random.default_rng(1)
    seen = 0
    for _ in range(80):
        scale = 10 ** rng.uniform(-1.5, 1)
        lower = rng.uniform(-2, 1.5)
        upper = lower + 10 ** rng.uniform(-2, 0.3)
        epsilon = rng.uniform(0, 3)
        exact = normal_reference(lower, upper, scale, -1, 1.5, epsilon)
        found = float(log_truncated_delta(normal_pair(lower, upper, scale), -1.0, 1.5, epsilon))
        if exact > -60:
            seen += 1
            assert found == pytest.approx(float(exact), abs=1e-10)
        elif exact == -mpmath.inf:
            assert found == -math.inf
    assert seen > 25


def test_truncated_log_odds_agree_with_forty_digits():
    with mpmath.workdps(40):
        for ones, zeros, shift, low, high, epsilon in (
            (3.0, 9.0, 1.0, 0.1, 0.9, 0.7),
            (1.0, 101.0, 1.0, 0.1, 0.9, 2.0),  # nearly all of the posterior is cut away
            (2.5, 8.0, 0.25, 0.05, 0.6, 0.1),
            (40.0, 3.0, 0.5, 0.2, 0.8, 0.3),
        ):

            def mass(o, z, a, b):
                return mpmath.betainc(o, z, a, b)

            one, two = (ones + shift, zeros - shift), (ones, zeros)
            z1, z0 = mass(*one, low, high), mass(*two, low, high)
            odds = mpmath.exp((epsilon + mpmath.log(z1 / z0)) / shift)
            cut = min(max(odds / (1 + odds), low), high)
            exact = mass(*one, cut, high) / z1 - mpmath.exp(epsilon) * mass(*two, cut, high) / z0
            logit = [math.log(v / (1 - v)) for v in (low, high)]
            found = float(log_truncated_delta(odds_pair(ones, zeros, shift), *logit, epsilon))
            assert found == pytest.approx(float(mpmath.log(exact)), abs=1e-10)


def test_wide_intervals_change_nothing():
    for a, b, epsilon in ((2.0, 5.0, 0.4), (300.0, 40.0, 0.05)):
        pair = odds_pair(a, b + 1, 1.0)
        assert float(log_truncated_delta(pair, -math.inf, math.inf, epsilon)) == pytest.approx(
            float(log_beta_delta(a, b, epsilon)), abs=1e-11
        )
    pair = normal_pair(0.0, 0.3, 1.0)
    for restrict in (log_truncated_delta, log_clamped_delta):
        assert float(restrict(pair, -40.0, 40.0, 0.5)) == pytest.approx(float(log_gaussian_delta(0.3, 0.5)), abs=1e-11)


def test_the_profile_ends_at_the_largest_loss():
    for pair, low, high in ((normal_pair(-1.0, -0.5, 0.7), -1.0, 1.0), (odds_pair(2, 7, 1), -2.0, 2.0)):
        most = float(largest_loss(pair, low, high))
        assert float(log_truncated_delta(pair, low, high, most)) == -math.inf
        assert float(log_truncated_delta(pair, low, high, 0.999 * most)) > -math.inf


def test_clamped_normals_agree_with_a_sum_over_a_fine_mesh():
    from scipy import stats

    rng = np.random.default_rng(2)
    for _ in range(10):
        lower, scale, epsilon = rng.uniform(-1, 0.5), rng.uniform(0.3, 2), rng.uniform(0, 1)
        upper = lower + rng.uniform(0.1, 1)
        edges = np.linspace(-1, 1, 200_001)
        masses = []
        for mean in (lower, upper):
            law = stats.norm(mean, scale)
            masses.append(np.concatenate([[law.cdf(-1)], np.diff(law.cdf(edges)), [law.sf(1)]]))
        exact = np.maximum(masses[1] - math.exp(epsilon) * masses[0], 0).sum()
        found = math.exp(float(log_clamped_delta(normal_pair(lower, upper, scale), -1.0, 1.0, epsilon)))
        assert found == pytest.approx(exact, abs=1e-9)


def test_mirroring_exchanges_the_roles_of_a_pair():
    pair = normal_pair(-0.2, 0.4, 0.8)
    twice = pair.mirrored().mirrored()
    assert (twice.lower, twice.upper) == (pair.lower, pair.upper)
    odds = odds_pair(3, 8, 0.5)
    again = odds.mirrored().mirrored()
    assert (float(again.ones), float(again.zeros)) == (3.0, 8.0)
