"""Conjugate and semi-conjugate regressions of partitions: against textbook formulas, statsmodels and quadrature."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from scipy.special import logsumexp

from dpbook import aggregate
from dpbook.aggregate import ConjugateRegression, Flat, IndependentPrior, NormalInverseGamma, SemiConjugateRegression
from dpbook.aggregate.splitting import Moments, partition_moments

RNG = np.random.default_rng(3)
X = np.column_stack([RNG.normal(5, 2, 60), RNG.normal(size=60)])
Y = 1 + X @ [2.0, -1.0] + 1.5 * RNG.normal(size=60)
ROWS = np.column_stack([X, Y])
DESIGN = sm.add_constant(X)
NAMES = ("intercept", "a", "b")
MEAN = np.array([1.0, 0.0, 0.5])
PRECISION = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 0.5]])
SHAPE, RATE = 3.0, 2.0
POWERS = [(1.0, 1.0), (5.0, 1.0), (1.0, 0.2)]


def conjugate(name, prior, intercept=True):
    return ConjugateRegression(covariates=["a", "b"], coefficient=name, prior=prior, intercept=intercept)


@pytest.mark.parametrize(("k", "name"), list(enumerate(NAMES)))
def test_a_flat_prior_gives_the_t_of_least_squares(k, name):
    fit = sm.OLS(Y, DESIGN).fit()
    model = conjugate(name, Flat())
    cutoff = fit.params[k] + 0.3 * fit.bse[k]
    assert model.probability(ROWS, cutoff) == pytest.approx(stats.t.cdf(0.3, 57), rel=1e-11)
    expected = fit.params[k] + fit.bse[k] * stats.t.ppf([0.1, 0.9], 57)
    assert model.quantile(ROWS, [0.1, 0.9]) == pytest.approx(expected, rel=1e-11)


def test_a_flat_prior_without_an_intercept_gives_the_t_of_least_squares():
    fit = sm.OLS(Y, X).fit()
    found = conjugate("b", Flat(), intercept=False).quantile(ROWS, 0.2)
    assert found == pytest.approx(fit.params[1] + fit.bse[1] * stats.t.ppf(0.2, 58), rel=1e-11)


@pytest.mark.parametrize(("power", "prior_power"), POWERS)
@pytest.mark.parametrize(("k", "name"), list(enumerate(NAMES)))
def test_a_conjugate_posterior_is_the_textbook_one_with_powers(k, name, power, prior_power):
    precision = prior_power * PRECISION + power * DESIGN.T @ DESIGN
    mean = np.linalg.solve(precision, prior_power * PRECISION @ MEAN + power * DESIGN.T @ Y)
    a = prior_power * (SHAPE + 1.5) - 1.5 + power * 30
    b = prior_power * RATE + 0.5 * (power * Y @ Y + prior_power * MEAN @ PRECISION @ MEAN - mean @ precision @ mean)
    scale = np.sqrt(b / a * np.linalg.inv(precision)[k, k])
    model = conjugate(name, NormalInverseGamma(MEAN, PRECISION, SHAPE, RATE))
    found = model.quantile(ROWS, [0.1, 0.7], power=power, prior_power=prior_power)
    assert found == pytest.approx(stats.t.ppf([0.1, 0.7], 2 * a, mean[k], scale), rel=1e-10)


@pytest.mark.parametrize("power", [1.0, 4.0])
def test_zellners_prior_is_the_textbook_one_with_g_the_number_of_all_records(power):
    fit = sm.OLS(Y, DESIGN).fit()
    g = 60 * power
    mean = g / (1 + g) * fit.params
    b = power * (Y @ Y - g / (1 + g) * Y @ DESIGN @ fit.params) / 2
    scale = np.sqrt(b / (30 * power) * g / (1 + g) * np.linalg.inv(DESIGN.T @ DESIGN)[1, 1] / power)
    found = conjugate("a", aggregate.Zellner()).quantile(ROWS, 0.3, power=power)
    assert found == pytest.approx(stats.t.ppf(0.3, 60 * power, mean[1], scale), rel=1e-11)


def test_a_given_g_is_used():
    small, large = (conjugate("a", aggregate.Zellner(g)).quantile(ROWS, 0.5) for g in (1.0, 1e9))
    assert small == pytest.approx(large / 2, rel=1e-6)


@pytest.mark.parametrize("prior", [Flat(), NormalInverseGamma(MEAN, PRECISION, SHAPE, RATE)], ids=["flat", "proper"])
@pytest.mark.parametrize("name", NAMES)
def test_partition_posteriors_with_a_shared_prior_multiply_to_the_full_posterior(name, prior):
    """Five equal partitions: the fifth power of one's joint posterior, with respect to dβ dσ²/σ², is the whole's.

    A normal-inverse-gamma density to the power M keeps its mean, has M Λ and M b, and a + p/2 becomes M (a + p/2).
    """
    model = conjugate(name, prior)
    df_part, at_part, scale_part = model._student(partition_moments(ROWS, ["a", "b"], "y", partitions=1), 1.0, 1 / 5)
    fivefold = partition_moments(np.tile(ROWS, (5, 1)), ["a", "b"], "y", partitions=1)
    df, at, scale = model._student(fivefold, 1.0, 1.0)
    assert at == pytest.approx(at_part, rel=1e-11)
    assert df + 3 == pytest.approx(5 * (df_part + 3), rel=1e-12)
    assert scale**2 == pytest.approx(scale_part**2 * df_part / df, rel=1e-10)


def test_the_share_of_a_prior_has_the_degrees_of_freedom_of_that_product():
    """With prior_power = 1/M the marginal is the t that the product form gives: df = n - p + (2a + p)/M."""
    prior = NormalInverseGamma(MEAN, PRECISION, SHAPE, RATE)
    moments = partition_moments(ROWS, ["a", "b"], "y", partitions=1)
    df, _, _ = conjugate("a", prior)._student(moments, 1.0, 0.1)
    assert df[0] == pytest.approx(60 - 3 + (2 * SHAPE + 3) * 0.1)
    df, _, _ = conjugate("a", Flat())._student(moments, 1.0, 0.1)
    assert df[0] == 57


def semi_reference(cutoff, power, prior_power, records):
    """Quadrature over 40,001 values of log σ², with dense matrices."""
    design, y = DESIGN[:records], Y[:records]
    t = np.linspace(-8, 12, 40_001)
    u = power * np.exp(-t)
    precision = prior_power * PRECISION + u[:, None, None] * (design.T @ design)
    covariance = np.linalg.inv(precision)
    mean = np.einsum("tij,tj->ti", covariance, prior_power * PRECISION @ MEAN + u[:, None] * (design.T @ y))
    quadratic = u * (y @ y) + prior_power * MEAN @ PRECISION @ MEAN
    quadratic -= np.einsum("ti,tij,tj->t", mean, precision, mean)
    log = -(power * records / 2 + prior_power * SHAPE) * t - prior_power * RATE * np.exp(-t)
    log += -(np.linalg.slogdet(precision)[1] + quadratic) / 2
    weight = np.exp(log - logsumexp(log))
    return float(weight @ stats.norm.cdf((cutoff - mean[:, 1]) / np.sqrt(covariance[:, 1, 1])))


@pytest.mark.parametrize(("power", "prior_power", "records"), [*((*each, 60) for each in POWERS), (1.0, 1.0, 4)])
def test_a_semi_conjugate_posterior_agrees_with_quadrature(power, prior_power, records):
    prior = IndependentPrior(MEAN, np.linalg.inv(PRECISION), SHAPE, RATE)
    model = SemiConjugateRegression(covariates=["a", "b"], coefficient="a", prior=prior)
    found = model.probability(ROWS[:records], 1.9, power=power, prior_power=prior_power)
    assert found == pytest.approx(semi_reference(1.9, power, prior_power, records), abs=1e-8)
    back = model.quantile(ROWS[:records], found, power=power, prior_power=prior_power)
    assert back == pytest.approx(1.9, abs=1e-7)


def test_a_weak_semi_conjugate_prior_approaches_least_squares():
    prior = IndependentPrior(np.zeros(3), 1e8 * np.eye(3), shape=1e-6, rate=1e-6)
    model = SemiConjugateRegression(covariates=["a", "b"], coefficient="b", prior=prior)
    fit = sm.OLS(Y, DESIGN).fit()
    # The prior of σ² is 1/σ² and coefficients are flat, so n - 3 degrees of freedom.
    expected = fit.params[2] + fit.bse[2] * stats.t.ppf([0.05, 0.5, 0.95], 57)
    assert model.quantile(ROWS, [0.05, 0.5, 0.95]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("model", [ConjugateRegression(), SemiConjugateRegression()], ids=["conjugate", "semi"])
def test_a_batch_gives_what_its_partitions_give_one_by_one(model):
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(2, 5, 30))
    batch = Moments.of_groups([x, y])
    points = np.array([0.1, 0.6])
    together = model.quantile(batch, points, power=5.0)
    alone = [model.quantile(np.column_stack(each), points, power=5.0) for each in zip(x, y, strict=True)]
    assert together == pytest.approx(np.array(alone), rel=1e-12)


@pytest.mark.parametrize("model", [ConjugateRegression(), SemiConjugateRegression()], ids=["conjugate", "semi"])
def test_partitions_that_cannot_be_fitted_are_nan_and_leave_the_others_alone(model):
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(2, 4, 20))
    expected = model.probability(Moments.of_groups([x, y]), [0.0], prior_power=0.25)
    x[1] = 3.0  # rank-deficient; a proper prior still has a posterior
    y[2, 0] = 1e200  # overflows
    with np.errstate(all="ignore"):
        moments = Moments.of_groups([x, y])
    found = model.probability(moments, [0.0], prior_power=0.25)
    assert found[[0, 3]] == pytest.approx(expected[[0, 3]], rel=0, abs=0)
    assert np.isnan(found[2]).all()
    assert np.isnan(found[1]).all() == isinstance(model, ConjugateRegression)
    empty = Moments(np.zeros(1), np.zeros((1, 2)), np.zeros((1, 2, 2)))
    assert np.isnan(model.quantile(empty, [0.5])).all()


def test_collinear_covariates_are_nan():
    rows = np.column_stack([X[:, 0], 2 * X[:, 0], Y])
    assert np.isnan(conjugate("a", Flat()).probability(rows, 0.0))


def test_an_exact_fit_is_a_step():
    x = np.arange(6.0)
    model = ConjugateRegression(prior=Flat())
    assert model.probability(np.column_stack([x, 2 * x]), [1.9, 2.1]) == pytest.approx([0.0, 1.0], abs=1e-6)


def test_units_do_not_matter():
    model = conjugate("a", Flat())
    scaled = ROWS * [1e-6, 1e5, 1e3]
    assert model.probability(scaled, 2.1e9) == pytest.approx(model.probability(ROWS, 2.1), rel=1e-8)


def test_tables_are_read_by_name():
    table = pd.DataFrame(ROWS, columns=["a", "b", "y"])[["y", "b", "a"]]
    assert conjugate("a", Flat()).quantile(table, 0.4) == conjugate("a", Flat()).quantile(ROWS, 0.4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coefficient": "z"}, "coefficient must be one of"),
        ({"covariates": "x"}, "covariates must be a sequence"),
        ({"covariates": []}, "covariates at least one"),
        ({"covariates": ["x", "y"]}, "different columns"),
        ({"coefficient": "intercept", "intercept": False}, "coefficient must be one of"),
        ({"intercept": 1}, "intercept must be True or False"),
        ({"prior": "flat"}, "prior must be"),
    ],
)
@pytest.mark.parametrize("kind", [ConjugateRegression, SemiConjugateRegression])
def test_wrong_models_are_refused_by_name(kind, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        kind(**options)


def test_wrong_priors_are_refused_by_name():
    with pytest.raises(ValueError, match="prior must be for 2 coefficients"):
        ConjugateRegression(prior=NormalInverseGamma([0.0], [[1.0]], 1.0, 1.0))
    with pytest.raises(ValueError, match="prior must be for 2 coefficients"):
        SemiConjugateRegression(prior=IndependentPrior([0.0], [[1.0]], 1.0, 1.0))


def test_both_regressions_are_posteriors_in_the_sense_of_the_protocol():
    assert isinstance(ConjugateRegression(), aggregate.PartitionPosterior)
    assert isinstance(SemiConjugateRegression(), aggregate.PartitionPosterior)


def test_moments_of_other_columns_are_refused():
    three = Moments.of_groups([np.ones((2, 5))] * 3)
    for ask in (ConjugateRegression().probability, SemiConjugateRegression().quantile):
        with pytest.raises(ValueError, match="partition must hold moments of 2 columns"):
            ask(three, 0.5)
