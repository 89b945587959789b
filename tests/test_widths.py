"""Widths of simulated posteriors, against a law whose posterior is known: records N(theta, 1), theta N(0, 100)."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from dpbook.accounting import gaussian_scale
from dpbook.widths import NORMAL, Chance, expected, information_at, posterior_widths, scale_for


class NormalMean:
    """One unknown mean of records with variance one."""

    dim, certain = 1, np.array([False])

    def mean(self, position):
        return position.T.copy()

    def moments(self, position):
        return self.mean(position), np.ones((position.shape[1], 1, 1))

    def log_prior(self, position):
        return -0.5 * (position[0] / 10) ** 2, -position / 100


def widths(n, scale, laplace, releases=40):
    sums = Chance.drawn(releases, 1, laplace).sums(np.array([0.3]), np.eye(1), n, scale, laplace)
    start = np.full((1, releases), 0.3)
    return sums, posterior_widths(NormalMean(), sums, start, lambda position: position.T, 2000)


def test_random_numbers_are_the_same_in_every_call_and_spread_evenly():
    one, other = Chance.drawn(50, 3, True), Chance.drawn(50, 3, True)
    assert np.array_equal(one.noise, other.noise)
    assert np.array_equal(np.sort(np.floor(50 * stats.laplace.cdf(one.noise)), axis=0)[:, 0], np.arange(50))
    assert np.array_equal(np.sort(np.floor(50 * stats.norm.cdf(one.sampling)), axis=0)[:, 1], np.arange(50))
    assert Chance.drawn(50, 3, False).noise.std() == pytest.approx(1, abs=0.1)


def test_with_gaussian_noise_the_width_is_that_of_the_normal_posterior():
    n, scale = 400, 30.0
    _, found = widths(n, scale, laplace=False)
    sd = 1 / math.sqrt(1 / ((n + scale**2) / n**2) + 1 / 100)
    assert found == pytest.approx(np.full(found.shape, NORMAL * sd), rel=0.06)


@pytest.mark.parametrize("scale", [2.0, 20.0, 80.0])
def test_with_laplace_noise_the_median_width_is_that_of_quadrature(scale):
    """The density of normal plus Laplace, by convolution on a fine grid."""
    n = 400
    sums, found = widths(n, scale, laplace=True)
    theta = np.linspace(-2, 2.6, 401)
    exact = []
    for noisy in sums.noisy[::4, 0]:
        noise = np.linspace(-14 * scale, 14 * scale, 1001)
        density = stats.laplace.pdf(noise, scale=scale)
        likelihood = [
            np.trapezoid(density * stats.norm.pdf(noisy - noise, n * each, math.sqrt(n)), noise) for each in theta
        ]
        cdf = integrate.cumulative_trapezoid(np.array(likelihood) * stats.norm.pdf(theta, 0, 10), theta, initial=0)
        low, high = np.interp([0.025, 0.975], cdf / cdf[-1], theta)
        exact.append(high - low)
    assert np.median(found[::4]) == pytest.approx(np.median(exact), rel=0.05)


def test_information_is_that_of_the_sum_and_of_the_prior():
    found = information_at(NormalMean(), np.array([[0.3]]), 400, 900.0)
    assert found.ravel()[0] == pytest.approx(400**2 / 1300, rel=0.01)


def test_what_to_expect_lies_in_its_range():
    middle, low, high = expected(np.linspace(1, 2, 101))
    assert low < middle < high
    assert middle == pytest.approx(1.5)


def test_a_scale_is_that_of_the_mechanism():
    assert scale_for(2.0, 0.5, 0.0, "laplace") == 4.0
    assert scale_for(2.0, 0.5, 1e-6, "gaussian") == gaussian_scale(sensitivity=2.0, epsilon=0.5, delta=1e-6)
