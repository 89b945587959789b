"""Conjugate priors: draws, densities and moments agree with the textbook's, and mistakes are named."""

import numpy as np
import pytest
from scipy import integrate, stats

from dpbook.expfam import Beta, Dirichlet, Gamma, NormalInverseGamma


@pytest.mark.parametrize(
    ("prior", "law", "grid"),
    [
        (Beta(2, 3), stats.beta(2, 3), np.linspace(0.05, 0.95, 9)),
        (Beta(0.4, 0.7), stats.beta(0.4, 0.7), np.linspace(0.05, 0.95, 9)),
        (Gamma(8, 2), stats.gamma(8, scale=0.5), np.linspace(0.1, 9, 9)),
        (Gamma(0.5, 30), stats.gamma(0.5, scale=1 / 30), np.linspace(0.001, 1, 9)),
    ],
    ids=lambda v: str(v) if isinstance(v, (Beta, Gamma)) else "",
)
def test_draws_density_and_moments_are_those_of_the_distribution(prior, law, grid):
    """KS at the 1e-4 level."""
    np.testing.assert_allclose(prior.log_density(grid), law.logpdf(grid), rtol=1e-10)
    assert prior.mean == pytest.approx(law.mean())
    assert prior.variance == pytest.approx(law.var())
    assert stats.kstest(prior.draw(5000, np.random.default_rng(1)), law.cdf).pvalue > 1e-4
    low, high = prior.support
    total, _ = integrate.quad(lambda t: np.exp(prior.log_density(t)), low, high, limit=200)
    assert total == pytest.approx(1, abs=1e-4)


def test_the_dirichlet_draws_shares_whose_marginals_are_betas():
    """KS at the 1e-4 level for each of three marginals."""
    prior = Dirichlet([1, 2, 5])
    draws = prior.draw((4, 1000), np.random.default_rng(2))
    assert draws.shape == (4, 1000, 3)
    np.testing.assert_allclose(draws.sum(axis=-1), 1)
    np.testing.assert_allclose(prior.mean, [1 / 8, 2 / 8, 5 / 8])
    for column, a in zip(np.reshape(draws, (-1, 3)).T, (1, 2, 5), strict=True):
        assert stats.kstest(column, stats.beta(a, 8 - a).cdf).pvalue > 1e-4


def test_the_normal_inverse_gamma_has_the_textbook_marginals():
    """KS at the 1e-4 level for each of two marginals."""
    draws = NormalInverseGamma(5, 2, 3, 4).draw(5000, np.random.default_rng(3))
    assert stats.kstest(draws[:, 1], stats.invgamma(3, scale=4).cdf).pvalue > 1e-4
    assert stats.kstest(draws[:, 0], stats.t(6, 5, np.sqrt(4 / 3 / 2)).cdf).pvalue > 1e-4
    given = (draws[:, 0] - 5) / np.sqrt(draws[:, 1] / 2)
    assert stats.kstest(given, stats.norm.cdf).pvalue > 1e-4


def test_an_update_adds_what_was_counted():
    assert Beta(1, 2).updated(3, 10) == Beta(4, 9)
    assert Beta(1, 2).updated(2.5, 10) == Beta(3.5, 9.5)
    for successes, n in ((11, 10), (-1, 10), (1, -1)):
        with pytest.raises(ValueError, match=r"successes|n must"):
            Beta(1, 2).updated(successes, n)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Beta(-1, 1), "alpha"),
        (lambda: Beta(1, np.nan), "beta"),
        (lambda: Gamma(0, 1), "shape"),
        (lambda: Gamma(1, np.inf), "rate"),
        (lambda: Dirichlet([1]), "alpha"),
        (lambda: Dirichlet([1, 0]), "alpha"),
        (lambda: Dirichlet([[1, 2]]), "alpha"),
        (lambda: NormalInverseGamma(np.nan, 1, 1, 1), "mean"),
        (lambda: NormalInverseGamma(0, 0, 1, 1), "strength"),
        (lambda: NormalInverseGamma(0, 1, -1, 1), "shape"),
        (lambda: NormalInverseGamma(0, 1, 1, 0), "rate"),
        (lambda: Beta(1, 1).draw(2, 7), "rng"),
    ],
)
def test_errors_name_the_argument(make, named):
    with pytest.raises((TypeError, ValueError), match=named):
        make()
