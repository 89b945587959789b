"""The preview of every family against the posteriors that simulated releases give."""

from __future__ import annotations

import numpy as np
import pytest

from dpbook import expfam
from dpbook.expfam import Binomial, Dirichlet, Exponential, Gamma, Multinomial, Normal, NormalInverseGamma, Poisson


def simulated_sd(family, prior, draw, *, n, epsilon, releases, outside="clip", seed=1):
    """Return the mean posterior sd over simulated releases, of each parameter."""
    rng = np.random.default_rng(seed)
    noisy = [expfam.release(draw(rng, n), family, epsilon=epsilon, outside=outside, rng=rng) for _ in range(releases)]
    if family.parameters == 1:
        return np.mean([expfam.posterior_density(each, prior).sd for each in noisy])
    found = expfam.infer(noisy, prior, draws=2000, rng=rng)
    return np.mean([posterior.sd("theta") for posterior in found], axis=0)


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize(("n", "epsilon"), [(1000, 0.2), (4000, 1.0)])
def test_the_preview_of_waiting_times_foretells_the_posterior_sd(n, epsilon, outside):
    """Over 60 releases within 10 %, twice the error of the normal approximation and of the simulation here."""
    family, prior = Exponential(0, 1.5), Gamma(8, 2)
    look = expfam.preview(family, n=n, epsilon=epsilon, outside=outside, theta=3.0, prior=prior)
    found = simulated_sd(
        family, prior, lambda rng, n: rng.exponential(1 / 3, n), n=n, epsilon=epsilon, releases=60, outside=outside
    )
    assert found == pytest.approx(look.posterior_sd, rel=0.1)
    assert look.nonprivate_sd < look.posterior_sd


def test_the_preview_of_counts_foretells_the_posterior_sd():
    """Over 60 releases within 10 %."""
    family, prior = Poisson(0, 8), Gamma(3, 1)
    look = expfam.preview(family, n=500, epsilon=0.5, theta=2.5, prior=prior)
    found = simulated_sd(family, prior, lambda rng, n: rng.poisson(2.5, n), n=500, epsilon=0.5, releases=60)
    assert found == pytest.approx(look.posterior_sd, rel=0.1)


def test_the_preview_of_a_table_foretells_the_posterior_sd_of_every_share():
    """Over 20 releases within 12 %: simulation and Gibbs error are about 4 %."""
    shares = np.array([0.5, 0.3, 0.2])
    family, prior = Multinomial(3), Dirichlet([1, 1, 1])
    look = expfam.preview(family, n=1000, epsilon=0.2, theta=shares, prior=prior)
    found = simulated_sd(
        family, prior, lambda rng, n: rng.choice(3, size=n, p=shares), n=1000, epsilon=0.2, releases=20
    )
    assert look.posterior_sd.shape == (3,)
    assert found == pytest.approx(look.posterior_sd, rel=0.12)


def test_the_preview_of_heights_foretells_the_posterior_sd_of_mean_and_variance():
    """Over 20 releases within 15 %."""
    family, prior = Normal(120, 220), NormalInverseGamma(170, 0.1, 3, 200)
    look = expfam.preview(family, n=2000, epsilon=0.5, theta=[172, 90], prior=prior)
    found = simulated_sd(family, prior, lambda rng, n: rng.normal(172, 90**0.5, n), n=2000, epsilon=0.5, releases=20)
    assert found == pytest.approx(look.posterior_sd, rel=0.15)


def test_without_noise_and_without_bounds_that_bind_the_preview_is_the_fisher_information():
    look = expfam.preview(Exponential(0, 50), n=400, epsilon=1e9, theta=2.0)
    assert look.posterior_sd == pytest.approx(2.0 / 20, rel=1e-6)  # theta / sqrt(n)
    assert look.nonprivate_sd == pytest.approx(2.0 / 20, rel=1e-6)
    table = expfam.preview(Multinomial(3), n=100, epsilon=1e9, theta=[0.5, 0.3, 0.2])
    assert table.sampling_sd == pytest.approx(np.sqrt([0.25, 0.21, 0.16]) / 10, rel=1e-6)


def test_two_categories_are_a_coin():
    coin = expfam.preview(Binomial(), n=800, epsilon=0.3, theta=0.3)
    table = expfam.preview(Multinomial(2), n=800, epsilon=0.3, theta=[0.3, 0.7], prior=Dirichlet([1, 1]))
    assert table.sampling_sd == pytest.approx([coin.sampling_sd] * 2)
    # Each count has twice the noise, and their difference averages two of them.
    assert table.noise_sd == pytest.approx([coin.noise_sd * 2**0.5] * 2)


@pytest.mark.parametrize(
    ("family", "theta", "because"),
    [
        (Exponential(0, 1), None, "theta must be given"),
        (Exponential(0, 1), -1.0, "greater than 0"),
        (Normal(0, 1), [0.0, -1.0], "variance"),
        (Normal(0, 1), [0.0], "2 entries"),
        (Multinomial(3), [0.5, 0.5, 0.5], "add up to 1"),
        (Binomial(), 1.5, "between 0 and 1"),
    ],
)
def test_a_guess_that_is_no_parameter_is_named(family, theta, because):
    with pytest.raises((TypeError, ValueError), match=because):
        expfam.preview(family, n=10, epsilon=1.0, theta=theta)
