"""Latent records against posteriors that can be computed exactly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from dpbook._arrays import Array
from dpbook.latent_records import Sweep, sample
from dpbook.moments import NoisySums


class Share(NamedTuple):
    theta: Array  # (B,)


class Answers:
    """Yes-or-no answers with a Beta(2, 3) prior of the share."""

    def propose(self, parameters: Share, n: int, rng: np.random.Generator) -> Array:
        return (rng.random((len(parameters.theta), n, 1)) < parameters.theta[:, None, None]).astype(float)

    def statistics(self, records: Array) -> Array:
        return records

    def update(self, parameters: Share, records: Array, rng: np.random.Generator) -> Share:
        yes = records.sum(axis=(1, 2))
        return Share(rng.beta(2 + yes, 3 + records.shape[1] - yes))

    def move(self, parameters: Share, records: Array, rng: np.random.Generator) -> tuple[Share, Array, Array]:
        return parameters, records, np.zeros(len(records))


@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_draws_follow_the_exact_posterior_of_a_noisy_count(n: int, epsilon: float) -> None:
    """Twenty chains of 1,500 draws: quantiles of the exact posterior are passed with the right frequency within 3 %."""
    rng = np.random.default_rng(1)
    noisy = np.array([[n / 3 + each] for each in (-2.3, 0.4, 3.7)])
    sums = NoisySums(noisy, np.full(3, 1 / epsilon), np.full(3, float(n)), True)
    kept, acceptance = sample(
        Answers(), sums, Share(rng.random(60)), per_chain=1500, chains=20, burn_in=200, thin=2, rng=rng
    )
    assert ((acceptance > 0) & (acceptance <= 1)).all()
    counts = np.arange(n + 1)
    for release, z in enumerate(noisy[:, 0]):
        weight = stats.betabinom.pmf(counts, n, 2, 3) * np.exp(-epsilon * np.abs(z - counts))
        weight /= weight.sum()
        for theta in (0.2, 0.35, 0.5):
            exact = weight @ stats.beta.cdf(theta, 2 + counts, 3 + n - counts)
            assert np.mean(kept["theta"][:, :, release] < theta) == pytest.approx(exact, abs=0.03)


def test_gaussian_noise_is_judged_by_squares() -> None:
    rng = np.random.default_rng(2)
    n, sd, z = 20, 1.5, 9.0
    sums = NoisySums(np.array([[z]]), np.array([sd]), np.array([float(n)]), False)
    kept, _ = sample(Answers(), sums, Share(rng.random(30)), per_chain=1500, chains=30, burn_in=200, thin=2, rng=rng)
    counts = np.arange(n + 1)
    weight = stats.betabinom.pmf(counts, n, 2, 3) * np.exp(-0.5 * ((z - counts) / sd) ** 2)
    weight /= weight.sum()
    exact = weight @ stats.beta.cdf(0.4, 2 + counts, 3 + n - counts)
    assert np.mean(kept["theta"] < 0.4) == pytest.approx(exact, abs=0.02)


def test_a_sweep_wants_releases_of_one_size() -> None:
    sums = NoisySums(np.zeros((2, 1)), np.ones(2), np.array([5.0, 6.0]), True)
    with pytest.raises(ValueError, match="sums must be of one n"):
        Sweep(Answers(), sums)
