"""Priors: draws, densities and moments have the stated laws, each exists once, and mistakes are named."""

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from dpbook import aggregate, expfam, models, priors, regression
from dpbook.priors import (
    Beta,
    Dirichlet,
    Gamma,
    IndependentPrior,
    NormalInverseGamma,
    NormalInverseWishart,
    Zellner,
    draw_normal_inverse_wishart,
)


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


def test_the_normal_inverse_gamma_of_one_mean_has_the_textbook_marginals():
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
        (lambda: NormalInverseGamma(0, 0, 1, 1), "precision"),
        (lambda: NormalInverseGamma(0, 1, -1, 1), "shape"),
        (lambda: NormalInverseGamma(0, 1, 1, 0), "rate"),
        (lambda: Beta(1, 1).draw(2, 7), "rng"),
    ],
)
def test_errors_name_the_argument(make, named):
    with pytest.raises((TypeError, ValueError), match=named):
        make()


def test_draws_of_coefficients_have_the_stated_law():
    """Each marginal is Student-t with 2 shape degrees of freedom; KS at the 1e-4 level."""
    precision = np.array([[2.0, 0.6], [0.6, 1.0]])
    prior = NormalInverseGamma([1.0, -2.0], precision, 3.0, 2.0)
    drawn = prior.draw(4000, np.random.default_rng(1))
    theta, sigma2 = drawn[:, :-1], drawn[:, -1]
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
    mean, precision = NormalInverseGamma(1.0, 2.0, 3.0, 4.0).sized(3, "prior")
    assert mean.tolist() == [1.0, 1.0, 1.0]
    assert precision.tolist() == (2 * np.eye(3)).tolist()
    assert NormalInverseGamma(0.0, [1.0, 2.0], 3.0, 4.0).draw(5).shape == (5, 3)
    mean, scale = NormalInverseWishart(0.0, 1.0, [1.0, 4.0], 5.0).sized(2, "covariates")
    assert scale.tolist() == [[1.0, 0.0], [0.0, 4.0]]


@pytest.mark.parametrize(
    "prior",
    [
        NormalInverseGamma([0, 1], 2, 3, 4),
        NormalInverseWishart([0, 1], 2, 3, 4),
        IndependentPrior([0, 1], 2, 3, 4),
        Dirichlet([0.5, 1]),
    ],
)
def test_a_prior_survives_pickling_and_shows_its_numbers(prior):
    again = pickle.loads(pickle.dumps(prior))
    assert repr(again) == repr(prior)
    assert "1.0]" in repr(prior)
    assert again == prior
    assert hash(again) == hash(prior)


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
        (lambda: IndependentPrior([0, 0], [[1, 0.5], [0, 1]], 1, 1), ValueError, "covariance must be symmetric"),
        (lambda: IndependentPrior([0], [[-1]], 1, 1), ValueError, "covariance must be symmetric and positive definite"),
        (
            lambda: NormalInverseGamma([0], [[-1]], 1, 1),
            ValueError,
            "precision must be symmetric and positive definite",
        ),
        (lambda: NormalInverseGamma([0], [[1]], 1, 0), ValueError, "rate must be greater than 0"),
        (lambda: Zellner(0.0), ValueError, "g must be greater than 0"),
        (lambda: NormalInverseWishart([0, 0, 0], 1, 1, 2), ValueError, "dof must be greater than d - 1 = 2"),
        (lambda: NormalInverseWishart([0], 0, 1, 2), ValueError, "strength must be greater than 0"),
        (lambda: NormalInverseWishart([0], 1, np.ones((1, 2)), 2), ValueError, "scale must be a number, a sequence"),
        (
            lambda: NormalInverseGamma([0, 0], 1, 2, 3).sized(3, "prior"),
            ValueError,
            "prior must be for 3 coefficients",
        ),
        (lambda: NormalInverseGamma(0, np.eye(2), 2, 3).sized(3, "prior"), ValueError, "prior must be for 3 coeff"),
    ],
)
def test_what_cannot_be_a_prior_is_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("name", priors.__all__)
def test_a_chapter_has_no_prior_of_its_own(name):
    """One class a name: what a chapter offers under a prior's name is this module's class."""
    for chapter in (expfam, regression, aggregate, models):
        assert getattr(chapter, name, getattr(priors, name)) is getattr(priors, name)


def test_one_prior_of_coefficients_serves_noisy_sums_and_partitions():
    rng = np.random.default_rng(5)
    x = rng.uniform(0, 1, 200)
    y = 1 + 2 * x + rng.normal(0, 0.3, 200)
    prior = NormalInverseGamma([0, 0], [[0.1, 0.0], [0.0, 0.1]], 3, 1)
    whole = regression.infer_nonprivate(x[:, None], y, prior, draws=4000, rng=rng).draws["theta"][..., 1]
    model = aggregate.ConjugateRegression(prior=prior)
    low, high = model.quantile(np.column_stack([x, y]), [0.05, 0.95])
    # 4,000 independent draws: the share between the 5 % and the 95 % quantile has sd .005; 4 sd, false alarm 6e-5.
    assert np.mean((low < whole) & (whole < high)) == pytest.approx(0.9, abs=0.02)
    assert model.quantile(np.column_stack([x, y]), 0.5) == pytest.approx(np.median(whole), abs=0.02)


def test_one_number_for_all_coefficients_is_the_same_prior_as_a_matrix():
    rows = np.random.default_rng(6).normal(size=(50, 2))
    for kind, prior in (
        (aggregate.ConjugateRegression, NormalInverseGamma),
        (aggregate.SemiConjugateRegression, IndependentPrior),
    ):
        short, long = (kind(prior=prior(*given, 3, 1)) for given in ((0, 0.5), ([0, 0], [[0.5, 0], [0, 0.5]])))
        assert short.quantile(rows, 0.3) == long.quantile(rows, 0.3)


def test_a_normal_family_takes_one_mean_and_no_coefficients():
    release = expfam.release([1.0, 2.0, 3.0], expfam.Normal(0, 5), epsilon=1.0, rng=np.random.default_rng(0))
    for prior in (NormalInverseGamma([1, 2], 1, 3, 1), NormalInverseGamma(1, [[1.0]], 3, 1)):
        with pytest.raises(ValueError, match="prior must have one number for mean and one for precision"):
            expfam.infer(release, prior)
        with pytest.raises(ValueError, match="prior must have one number for mean and one for precision"):
            expfam.preview(expfam.Normal(0, 5), n=10, epsilon=1.0, theta=[2.0, 1.0], prior=prior)


def test_priors_with_the_same_numbers_are_equal():
    assert NormalInverseGamma(0, 1, 2, 3) == NormalInverseGamma(0.0, 1.0, 2.0, 3.0)
    assert NormalInverseGamma([0, 0], [1, 1], 2, 3) == NormalInverseGamma([0, 0], np.eye(2), 2, 3)
    assert NormalInverseGamma(0, 1, 2, 3) != NormalInverseGamma(0, 1, 2, 3.1)
    assert NormalInverseGamma(0, 1, 2, 3) != IndependentPrior(0, 1, 2, 3)


def test_a_batch_of_draws_has_the_parameters_on_one_more_axis():
    """The same numbers in any shape of the batch; the variance is last."""
    for prior, size in ((NormalInverseGamma(1, 2, 3, 4), 2), (NormalInverseGamma([1, 2], 2, 3, 4), 3)):
        flat, square = (prior.draw(shape, np.random.default_rng(7)) for shape in (12, (3, 4)))
        assert square.shape == (3, 4, size)
        np.testing.assert_array_equal(square.reshape(12, size), flat)


def test_priors_stand_on_the_analyst_side():
    """The module imports no more of the package than the checks of arguments."""
    tree = ast.parse(Path(priors.__file__).read_text(encoding="utf-8"))
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert [name for name in modules if name.startswith("dpbook")] == ["dpbook._arrays", "dpbook._validation"]


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        (priors.NormalPrior(1, 2), stats.norm(1, 2)),
        (priors.HalfNormal(2), stats.halfnorm(scale=2)),
        (priors.LogNormal(3, 0.5), stats.lognorm(0.5, scale=3)),
        (priors.Uniform(-1, 4), stats.uniform(-1, 5)),
        (priors.Cauchy(1, 2), stats.cauchy(1, 2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_prior_of_one_number_has_the_density_and_the_draws_of_its_law(prior, law):
    """Against SciPy; draws by Kolmogorov and Smirnov, 1,000 of them, false-alarm rate 1 in 1,000 at a fixed seed."""
    theta = law.ppf([0.01, 0.2, 0.5, 0.9, 0.999])
    np.testing.assert_allclose(prior.log_density(theta), law.logpdf(theta), rtol=1e-10)
    draws = prior.draw((10, 100), np.random.default_rng(1))
    assert draws.shape == (10, 100)
    assert stats.kstest(draws.ravel(), law.cdf).pvalue > 0.001
    assert prior.support == tuple(law.support())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: priors.NormalPrior(0, 0), "sd must be greater than 0"),
        (lambda: priors.HalfNormal(-1), "sd must be greater than 0"),
        (lambda: priors.LogNormal(0, 1), "median must be greater than 0"),
        (lambda: priors.Uniform(1, 1), "low < high"),
        (lambda: priors.Cauchy(np.inf, 1), "median must be finite"),
    ],
)
def test_priors_of_one_number_refuse_what_makes_no_sense(make, words):
    with pytest.raises(ValueError, match=words):
        make()
