"""Moments of a record's statistics: against simulation for normal and other covariates, and against each other."""

import itertools

import numpy as np
import pytest

from dpbook.regression.layout import Layout
from dpbook.regression.moments import (
    from_fourth_moments,
    from_normal,
    is_valid,
    nearest_valid,
    product_cov,
    record_moments,
)

SHAPES = [(1, True), (1, False), (2, True), (2, False), (3, True)]
MORE = [*SHAPES, (5, True), (10, True), (10, False)]


def parameters(rng, layout):
    root = rng.normal(size=(layout.d, layout.d))
    return (
        rng.normal(size=layout.regressors),
        np.array(rng.uniform(0.2, 1.0)),
        rng.normal(scale=0.5, size=layout.d),
        root @ root.T / layout.d + 0.1 * np.eye(layout.d),
    )


def statistics(x, theta, sigma2, layout, rng):
    """The statistics of simulated records, one row each."""
    w = np.column_stack([np.ones(len(x)), x]) if layout.intercept else x
    u = np.column_stack([w, w @ theta + np.sqrt(sigma2) * rng.normal(size=len(x))])
    return u[:, layout.rows] * u[:, layout.columns]


def standard_errors_off(t, mu, cov):
    """By how many standard errors each entry of the sample mean and covariance is off."""
    centred = t - mu
    mean_off = centred.mean(axis=0) / (t.std(axis=0) / np.sqrt(len(t)))
    products = centred[:, :, None] * centred[:, None, :]
    cov_off = (products.mean(axis=0) - cov) / (products.std(axis=0) / np.sqrt(len(t)))
    return np.abs(mean_off).max(), np.abs(cov_off).max()


def raw_fourth(x, layout):
    """1, the means of all statistics (those with y are not read), and of the higher monomials, of a discrete law."""
    w = np.column_stack([np.ones(len(x)), x]) if layout.intercept else x
    u = np.column_stack([w, np.full(len(x), np.nan)])
    second = (u[:, layout.rows] * u[:, layout.columns]).mean(axis=0)
    higher = [np.prod(x[:, list(factors)], axis=1).mean() for factors in layout.higher]
    return np.concatenate([[1.0], second, higher])


@pytest.mark.parametrize(("d", "intercept"), SHAPES)
def test_moments_for_normal_covariates_equal_those_of_a_simulation(d, intercept):
    """100,000 records; the largest of at most 1+90 deviations exceeds 5 standard errors with probability < 1e-4."""
    rng, layout = np.random.default_rng(10 * d + intercept), Layout(d, intercept)
    theta, sigma2, mean_x, cov_x = parameters(rng, layout)
    mu, cov = from_normal(*record_moments(theta, sigma2, mean_x, cov_x, layout), layout)
    t = statistics(rng.multivariate_normal(mean_x, cov_x, size=100_000), theta, sigma2, layout, rng)
    assert max(standard_errors_off(t, mu, cov)) < 5


@pytest.mark.parametrize(("d", "intercept"), SHAPES)
def test_moments_for_other_covariates_equal_those_of_a_simulation(d, intercept):
    """Skewed, discrete, dependent covariates: a law on 40 points, whose moments are exact; 5 standard errors."""
    rng, layout = np.random.default_rng(20 * d + intercept), Layout(d, intercept)
    theta, sigma2, *_ = parameters(rng, layout)
    points = rng.exponential(size=(40, d)) * rng.choice([-0.3, 1.0], size=(40, 1))
    moments = raw_fourth(points, layout)
    w = np.column_stack([np.ones(40), points]) if intercept else points
    mu, cov = from_fourth_moments(theta, sigma2, w.T @ w / 40, product_cov(moments, layout), layout)
    t = statistics(points[rng.integers(40, size=100_000)], theta, sigma2, layout, rng)
    assert max(standard_errors_off(t, mu, cov)) < 5
    assert np.linalg.eigvalsh(cov).min() > -1e-10 * np.linalg.eigvalsh(cov).max()


@pytest.mark.parametrize(("d", "intercept"), MORE)
def test_both_formulas_agree_for_a_normal(d, intercept):
    """Isserlis against the general formula with the fourth moments that Isserlis gives the regressors."""
    rng, layout = np.random.default_rng(30 * d + intercept), Layout(d, intercept)
    theta, sigma2, mean_x, cov_x = parameters(rng, layout)
    m, second = record_moments(theta, sigma2, mean_x, cov_x, layout)
    mu, cov = from_normal(m, second, layout)
    inside = layout.of_regressors
    again = from_fourth_moments(theta, sigma2, second[:-1, :-1], cov[np.ix_(inside, inside)], layout)
    np.testing.assert_allclose(again[0], mu, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(again[1], cov, rtol=1e-9, atol=1e-10 * np.abs(cov).max())


def test_a_batch_gives_what_each_member_gives():
    rng, layout = np.random.default_rng(3), Layout(2, True)
    members = [parameters(rng, layout) for _ in range(4)]
    stacked = [np.stack(parts) for parts in zip(*members, strict=True)]
    mu, cov = from_normal(*record_moments(*stacked, layout), layout)
    for i, one in enumerate(members):
        alone = from_normal(*record_moments(*one, layout), layout)
        np.testing.assert_allclose(mu[i], alone[0])
        np.testing.assert_allclose(cov[i], alone[1])


@pytest.mark.parametrize(("d", "intercept"), MORE)
def test_the_layout_counts_and_places_every_statistic_once(d, intercept):
    layout = Layout(d, intercept)
    rng = np.random.default_rng(d)
    u = rng.normal(size=layout.width)
    u[0] = 1.0 if intercept else u[0]
    outer = np.outer(u, u)
    assert layout.vector(outer).shape == (layout.size,)
    np.testing.assert_array_equal(layout.matrix(layout.vector(outer), 1.0), outer)
    assert layout.size == layout.width * (layout.width + 1) / 2 - intercept
    pairs = set(zip(layout.rows.tolist(), layout.columns.tolist(), strict=True))
    assert len(pairs) == layout.size


@pytest.mark.parametrize(("d", "intercept"), SHAPES)
def test_every_fourth_moment_of_the_regressors_is_released_or_already_there(d, intercept):
    layout = Layout(d, intercept)
    w = np.random.default_rng(d).normal(size=layout.regressors)
    w[0] = 1.0 if intercept else w[0]
    u = np.append(w, np.nan)
    x = w[int(intercept) :]
    held = np.concatenate([[1.0], u[layout.rows] * u[layout.columns], [np.prod(x[list(f)]) for f in layout.higher]])
    for where in itertools.product(range(layout.regressors), repeat=4):
        assert held[layout.fourth[where]] == pytest.approx(np.prod(w[list(where)]))


def test_the_covariance_as_printed_is_not_one():
    """With the indices of the source's main text most draws of theta give an indefinite matrix; corrected, none."""
    from dpbook.regression.gibbs import _as_printed

    rng, layout = np.random.default_rng(5), Layout(1, True)
    theta, sigma2 = rng.normal(size=(500, 2)), 0.5 / rng.standard_gamma(20, 500)
    m, second = record_moments(theta, sigma2, np.zeros((500, 1)), np.full((500, 1, 1), 1 / 48), layout)
    _, cov = from_normal(m, second, layout)
    printed = _as_printed(cov, sigma2, second[:, :-1, :-1], layout)

    def indefinite(matrices):
        values = np.linalg.eigvalsh(matrices)
        return (values[:, 0] < -1e-9 * values[:, -1]).mean()

    assert indefinite(printed) > 0.7
    assert indefinite(cov) == 0


def test_valid_sums_stay_and_invalid_ones_move_to_valid_ones():
    rng, layout = np.random.default_rng(6), Layout(2, True)
    records = rng.normal(size=(30, 3))
    u = np.column_stack([np.ones(30), records])
    good = layout.vector(u.T @ u)
    bad = good + 40 * rng.normal(size=(200, layout.size))
    n = np.full(200, 30.0)
    assert bool(is_valid(good, np.array(30.0), layout))
    np.testing.assert_array_equal(nearest_valid(good, np.array(30.0), layout), good)
    moved = nearest_valid(bad, n, layout)
    values = np.linalg.eigvalsh(layout.matrix(moved, n))
    assert (values > -1e-9 * np.abs(values).max()).all()
    kept = is_valid(bad, n, layout)
    assert 0 < kept.mean() < 1
    np.testing.assert_array_equal(moved[kept], bad[kept])
    means = layout.position[0, 1:]
    np.testing.assert_allclose(moved[:, means], bad[:, means], rtol=1e-12)  # only the centred scatter moves


def test_the_projection_is_the_nearest_scatter():
    """No other positive semidefinite scatter, of many tried, is nearer in Frobenius norm."""
    rng, layout = np.random.default_rng(7), Layout(1, False)
    bad = np.array([-1.0, 0.5, 2.0])
    target = layout.matrix(bad, 0.0)
    found = layout.matrix(nearest_valid(bad, np.array(5.0), layout), 0.0)
    best = np.linalg.norm(found - target)
    roots = rng.normal(size=(20_000, 2, 2))
    others = roots @ np.swapaxes(roots, -1, -2) * rng.uniform(0, 2, size=(20_000, 1, 1))
    assert best <= np.linalg.norm(others - target, axis=(1, 2)).min() + 1e-12


@pytest.mark.parametrize("layout", [Layout(1, True), Layout(3, False)])
def test_validity_agrees_with_eigenvalues(layout):
    rng = np.random.default_rng(8)
    sums, n = rng.normal(scale=10, size=(500, layout.size)) + 10 * (layout.rows == layout.columns), np.full(500, 20.0)
    smallest = np.linalg.eigvalsh(layout.matrix(sums, n))[:, 0]
    assert 0.02 < (smallest > 0).mean() < 0.98
    np.testing.assert_array_equal(is_valid(sums, n, layout), smallest > 0)
