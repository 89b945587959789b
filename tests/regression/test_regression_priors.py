"""Priors of regressions: their draws have the stated laws, and what cannot be one is refused by name."""

import pickle

import numpy as np
import pytest
from scipy import stats

from dpbook.regression import NormalInverseGamma, NormalInverseWishart
from dpbook.regression.priors import draw_normal_inverse_wishart


def test_draws_of_coefficients_have_the_stated_law():
    """Each marginal is Student-t with 2 shape degrees of freedom; KS at the 1e-4 level."""
    precision = np.array([[2.0, 0.6], [0.6, 1.0]])
    prior = NormalInverseGamma([1.0, -2.0], precision, 3.0, 2.0)
    theta, sigma2 = prior.draw(4000, np.random.default_rng(1))
    assert stats.kstest(sigma2, stats.invgamma(3, scale=2).cdf).pvalue > 1e-4
    scale = np.sqrt(2 / 3 * np.diag(np.linalg.inv(precision)))
    for j, mean in enumerate([1.0, -2.0]):
        assert stats.kstest(theta[:, j], stats.t(6, loc=mean, scale=scale[j]).cdf).pvalue > 1e-4
    standard = (theta - [1.0, -2.0]) / np.sqrt(sigma2)[:, None]
    np.testing.assert_allclose(np.cov(standard.T), np.linalg.inv(precision), atol=0.15)


def test_draws_of_covariances_are_inverse_wishart():
    """Against SciPy's: every entry's mean and the determinant's law (two-sample KS at the 1e-4 level)."""
    scale = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 1.5]])
    rng = np.random.default_rng(2)
    mean, cov = draw_normal_inverse_wishart(
        np.array([1.0, 2.0, 3.0]), np.full(4000, 4.0), np.broadcast_to(scale, (4000, 3, 3)), np.full(4000, 9.0), rng
    )
    theirs = stats.invwishart(9, scale).rvs(4000, random_state=3)
    np.testing.assert_allclose(cov.mean(axis=0), scale / 5, atol=0.04)
    for statistic in (np.linalg.det, lambda c: c[:, 0, 0], lambda c: c[:, 0, 1] / np.sqrt(c[:, 0, 0] * c[:, 1, 1])):
        assert stats.ks_2samp(statistic(cov), statistic(theirs)).pvalue > 1e-4
    whitened = np.linalg.solve(np.linalg.cholesky(cov), (mean - [1.0, 2.0, 3.0])[..., None])[..., 0] * 2
    for column in whitened.T:
        assert stats.kstest(column, stats.norm.cdf).pvalue > 1e-4


def test_draws_of_one_covariate_are_inverse_gamma():
    mean, cov = NormalInverseWishart([0.5], 2.0, 3.0, 5.0).draw(4000, np.random.default_rng(4))
    assert stats.kstest(cov[:, 0, 0], stats.invgamma(2.5, scale=1.5).cdf).pvalue > 1e-4
    assert stats.kstest((mean[:, 0] - 0.5) / np.sqrt(cov[:, 0, 0] / 2), stats.norm.cdf).pvalue > 1e-4


def test_one_number_holds_for_all_coefficients():
    mean, precision = NormalInverseGamma(1.0, 2.0, 3.0, 4.0)._sized(3, "prior")
    assert mean.tolist() == [1.0, 1.0, 1.0]
    assert precision.tolist() == (2 * np.eye(3)).tolist()
    assert NormalInverseGamma(0.0, [1.0, 2.0], 3.0, 4.0).draw(5)[0].shape == (5, 2)
    mean, scale = NormalInverseWishart(0.0, 1.0, [1.0, 4.0], 5.0)._sized(2, "covariates")
    assert scale.tolist() == [[1.0, 0.0], [0.0, 4.0]]


@pytest.mark.parametrize("prior", [NormalInverseGamma([0, 1], 2, 3, 4), NormalInverseWishart([0, 1], 2, 3, 4)])
def test_a_prior_survives_pickling_and_shows_its_numbers(prior):
    again = pickle.loads(pickle.dumps(prior))
    assert repr(again) == repr(prior)
    assert "mean=[0.0, 1.0]" in repr(prior)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: NormalInverseGamma([0], -1, 2, 3), ValueError, "precision must be greater than 0"),
        (
            lambda: NormalInverseGamma([0], [[1, 2], [2, 1]], 2, 3),
            ValueError,
            "precision must be symmetric and positive",
        ),
        (lambda: NormalInverseGamma([0, 0], [[1, 2], [0, 1]], 2, 3), ValueError, "precision must be symmetric"),
        (
            lambda: NormalInverseGamma([0, 0, 0], np.eye(2), 2, 3),
            ValueError,
            "precision must have as many rows as mean",
        ),
        (lambda: NormalInverseGamma([[0]], 1, 2, 3), ValueError, "mean must be a number or a sequence"),
        (lambda: NormalInverseGamma([np.nan], 1, 2, 3), ValueError, "mean must be finite"),
        (lambda: NormalInverseGamma([0], 1, 0, 3), ValueError, "shape must be greater than 0"),
        (lambda: NormalInverseGamma([0], 1, 2, "3"), TypeError, "rate must be a number"),
        (lambda: NormalInverseGamma([0], [1, 0], 2, 3), ValueError, "precision must hold numbers greater than 0"),
        (lambda: NormalInverseWishart([0, 0, 0], 1, 1, 2), ValueError, "dof must be greater than d - 1 = 2"),
        (lambda: NormalInverseWishart([0], 0, 1, 2), ValueError, "strength must be greater than 0"),
        (lambda: NormalInverseWishart([0], 1, np.ones((1, 2)), 2), ValueError, "scale must be a number, a sequence"),
        (
            lambda: NormalInverseGamma([0, 0], 1, 2, 3)._sized(3, "prior"),
            ValueError,
            "prior must be for 3 coefficients",
        ),
        (lambda: NormalInverseGamma(0, np.eye(2), 2, 3)._sized(3, "prior"), ValueError, "prior must be for 3 coeff"),
    ],
)
def test_what_cannot_be_a_prior_is_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()
