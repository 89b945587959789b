"""Conditions that chapter 6 proves, against exact profiles: none of them is violated."""

import math

import numpy as np

from dpbook import theory
from dpbook.theory import BetaBernoulli, NormalKnownVariance
from dpbook.theory._draws import log_gaussian_delta


def test_the_posters_conditions_hold_with_the_proved_constants():
    epsilon, log_delta = np.meshgrid(np.geomspace(1e-3, 1e5, 81), np.geomspace(1e-3, 300, 61))
    draw = epsilon * np.sqrt(4 / 2.4 / (log_delta**2 + epsilon))
    record = math.sqrt(2) * epsilon / (log_delta + np.sqrt(epsilon))
    for mu in (draw, record):
        assert np.all(log_gaussian_delta(mu, epsilon) <= -log_delta)
    # with a constant 1 % below √2 the second fails
    assert np.any(log_gaussian_delta(record / 0.99, epsilon) > -log_delta)


def test_smallest_sizes_of_bells_respect_the_proved_conditions():
    for reach, epsilon, delta in ((1.0, 1.0, 1e-6), (5.0, 0.3, 1e-3), (2.0, 20.0, 0.2)):
        model, log_delta = NormalKnownVariance(bound=reach), math.log(1 / delta)
        draw = theory.smallest_n("sample", model, epsilon=epsilon, delta=delta)
        assert draw <= math.ceil(2.4 * reach**2 / epsilon * (log_delta**2 / epsilon + 1))
        record = theory.smallest_n("synthetic-plugin", model, epsilon=epsilon, delta=delta)
        root = math.sqrt(epsilon)
        assert record <= math.ceil(math.sqrt(2) * reach / root * (log_delta / root + 1))


def test_a_floor_makes_a_draw_a_gaussian_mechanism_at_worst():
    rng = np.random.default_rng(9)
    for _ in range(30):
        low, n, epsilon = rng.uniform(0.01, 0.45), int(rng.integers(1, 200)), rng.gamma(1, 0.5)
        prior = BetaBernoulli(*rng.gamma(1, 2, size=2))
        total = n + prior.alpha + prior.beta
        bound = log_gaussian_delta(1 / math.sqrt(total * low * (1 - low)), epsilon)
        found = theory.privacy_profile("sample", prior, n, epsilon=epsilon, truncate=(low, 1 - low), log=True)
        assert found <= float(bound) + 1e-9
