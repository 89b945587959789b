"""The exact sampler: its density against the law of simulated sums, its gradient, agreement, the gap at small n."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpbook import regression
from dpbook.regression import collapsed, exact
from dpbook.regression.exact import ExactTarget
from dpbook.regression.hamiltonian import draw
from dpbook.regression.layout import Layout
from dpbook.regression.parametrisation import Parametrisation, parametrisation_of
from dpbook.regression.task import CovariatePrior, ParameterPrior, Task

PRIOR = regression.NormalInverseGamma(0.0, 1.0, 4, 0.3)


def one_task(noisy, n, scale, *, d=1, intercept=True, mechanism="laplace"):
    """One release of the given sums, under a proper but wide prior."""
    layout, one = Layout(d, intercept), np.ones(1)
    q = layout.regressors
    return Task(
        layout,
        np.asarray(noisy, dtype=float).reshape(1, -1),
        scale * one,
        mechanism,
        n * one,
        ParameterPrior(np.full((1, q), 0.1), np.eye(q)[None] + 0.2, 4 * one, 0.3 * one),
        CovariatePrior(np.full((1, d), -0.1), 2 * one, np.eye(d)[None], (d + 6) * one),
    )


def parameters(drawn):
    """Draws (chain, draw) of each coefficient and of sigma2, of the first release."""
    return [*np.moveaxis(drawn.theta[0], -1, 0), drawn.sigma2[0]]


def prior_sums(task, count, rng):
    """Parameters from the prior, and exact sums of n records from them: the model itself, record by record."""
    layout, d, n = task.layout, task.layout.d, int(task.n[0])
    plain = Parametrisation.of(task, count)
    natural = plain.natural(plain.prior_draw(rng))
    root = np.linalg.cholesky(np.moveaxis(natural.cov_x, -1, 0))
    x = natural.mean_x.T[:, None] + rng.normal(size=(count, n, d)) @ np.swapaxes(root, -1, -2)
    w = np.concatenate([np.ones((count, n, 1)), x], axis=2) if layout.intercept else x
    y = (w @ natural.theta.T[..., None])[..., 0] + np.sqrt(natural.sigma2)[:, None] * rng.normal(size=(count, n))
    u = np.concatenate([w, y[..., None]], axis=2)
    return natural, layout.vector(np.swapaxes(u, -1, -2) @ u)


@pytest.mark.parametrize(("d", "intercept"), list(itertools.product((1, 3), (True, False))))
@pytest.mark.parametrize("laplace", [True, False])
def test_the_gradient_is_that_of_the_density(d, intercept, laplace):
    rng = np.random.default_rng(d)
    layout = Layout(d, intercept)
    task = one_task(10 * rng.normal(size=layout.size), 30.0, 5.0, d=d, intercept=intercept)
    space, target = parametrisation_of(task, 3), ExactTarget(task, 3)
    space = replace(space, centred_theta=np.full_like(space.centred_theta, 0.6))
    position = 0.3 * rng.normal(size=(space.dim, 3))
    variance = None if laplace else 20 + rng.exponential(size=(layout.size, 3))
    _, gradient = target.evaluate(space, position, variance)
    for i in range(space.dim):
        step = np.zeros_like(position)
        step[i] = 1e-6
        above, below = (target.value(space, position + sign * step, variance) for sign in (1, -1))
        np.testing.assert_allclose(gradient[i], (above - below) / 2e-6, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("n", "d", "intercept"), [(4, 1, True), (3, 1, False), (12, 2, True)])
def test_without_information_the_sums_have_the_law_of_simulated_records(n, d, intercept):
    # Noise without bound: draws of theta and sigma2 are then draws of the prior. KS over at least 500 effective draws
    # of each parameter, each at level .0005.
    rng = np.random.default_rng(n)
    layout = Layout(d, intercept)
    task = one_task(np.zeros(layout.size), float(n), 1e7, d=d, intercept=intercept)
    drawn = exact.sample(task, per_chain=200, chains=20, rng=rng, warm_up=200)
    plain = Parametrisation.of(task, 20_000)
    prior = plain.natural(plain.prior_draw(rng))
    pairs = [(drawn.theta[0, ..., j], prior.theta[j]) for j in range(layout.regressors)] + [
        (drawn.sigma2[0], prior.sigma2)
    ]
    for ours, theirs in pairs:
        assert stats.ks_2samp(ours[:, ::10].ravel(), theirs).pvalue > 0.0005


@pytest.mark.parametrize(("n", "intercept"), [(3, True), (10, True), (10, False)])
def test_draws_agree_with_simulating_records_and_weighting_them_by_the_noise(n, intercept):
    # Rejection-free brute force: 200,000 data sets from the model, each weighted by the Laplace density of the release.
    rng = np.random.default_rng(n)
    layout = Layout(1, intercept)
    truth = one_task(np.zeros(layout.size), float(n), 1.0, intercept=intercept)
    _, sums = prior_sums(truth, 1, rng)
    scale = 1.5
    task = one_task(sums + rng.laplace(scale=scale, size=sums.shape), float(n), scale, intercept=intercept)
    natural, simulated = prior_sums(task, 200_000, rng)
    weight = np.exp(-np.abs(simulated - task.noisy[0]).sum(axis=1) / scale)
    weight /= weight.sum()
    effective = 1 / (weight**2).sum()
    assert effective > 250
    drawn = exact.sample(task, per_chain=200, chains=20, rng=rng, warm_up=200)
    for ours, theirs in [
        *zip(np.moveaxis(drawn.theta[0], -1, 0), natural.theta, strict=True),
        (drawn.sigma2[0], natural.sigma2),
    ]:
        mean = weight @ theirs
        sd = np.sqrt(weight @ (theirs - mean) ** 2)
        # At least 1,500 effective draws of ours: 4.5 standard errors of a difference. Of a log sd the error is
        # sqrt((kurtosis - 1) / 4) times as large, 1.3 times at a kurtosis of 8.
        error = np.sqrt(1 / effective + 1 / 1500)
        assert abs(ours.mean() - mean) < 4.5 * sd * error
        assert abs(np.log(ours.std() / sd)) < 4.5 * 1.3 * error


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_at_a_thousand_records_it_agrees_with_the_collapsed_sampler(mechanism):
    # 20 chains of 200 draws each, at least 1,000 effective ones: five standard errors of a difference.
    rng = np.random.default_rng(6)
    x = rng.normal(0, 0.3, size=1000)
    y = 0.2 + 0.5 * x + rng.normal(0, 0.2, size=1000)
    sums = np.array([x.sum(), y.sum(), x @ x, x @ y, y @ y])
    task = one_task(sums + rng.laplace(scale=5.3, size=5), 1000.0, 5.3, mechanism=mechanism)
    ours = exact.sample(task, per_chain=200, chains=20, rng=rng, warm_up=200)
    theirs = collapsed.sample(task, per_chain=200, chains=20, rng=rng, warm_up=200)
    for one, other in zip(parameters(ours), parameters(theirs), strict=True):
        assert abs(one.mean() - other.mean()) < 5 * other.std() * np.sqrt(2 / 1000)
        assert abs(np.log(one.std() / other.std())) < 5 * np.sqrt(2 / 1000)


def test_at_ten_records_the_central_limit_theorem_costs_less_than_a_quarter_of_a_standard_deviation():
    # What is reported as the gap of the normal approximation: small, but there.
    rng = np.random.default_rng(8)
    x = rng.normal(0, 0.4, size=10)
    y = 0.2 + 0.5 * x + rng.normal(0, 0.2, size=10)
    task = one_task([x.sum(), y.sum(), x @ x, x @ y, y @ y], 10.0, 0.5)
    ours = exact.sample(task, per_chain=200, chains=20, rng=rng, warm_up=200)
    theirs = collapsed.sample(task, per_chain=200, chains=20, rng=rng, warm_up=200)
    gap = abs(ours.theta[..., 1].mean() - theirs.theta[..., 1].mean()) / ours.theta[..., 1].std()
    assert gap < 0.25
    ratio = theirs.sigma2.mean() / ours.sigma2.mean()
    assert 0.7 < ratio < 1.3


def test_without_noise_it_is_the_conjugate_posterior_even_at_five_records():
    rng = np.random.default_rng(9)
    x, y = rng.uniform(-1, 1, size=5), rng.uniform(-1, 1, size=5)
    release = regression.release(x, y, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=1e6, rng=rng)
    ours = regression.infer(release, PRIOR, method="exact", draws=4000, rng=rng)
    theirs = regression.infer_nonprivate(x, y, PRIOR, draws=20_000, rng=rng)
    np.testing.assert_allclose(
        ours.mean("theta"), theirs.mean("theta"), atol=5 * theirs.sd("theta").max() / np.sqrt(1500)
    )
    np.testing.assert_allclose(ours.sd("theta"), theirs.sd("theta"), rtol=0.15)


def test_too_few_records_are_refused_by_name():
    with pytest.raises(ValueError, match="at least 3 records"):
        exact.sample(one_task(np.zeros(5), 2.0, 1.0), per_chain=1, chains=1, rng=np.random.default_rng(0))


def test_a_wrong_law_is_caught_by_the_same_comparison():
    # The mutant forgets that least squares has fitted theta: its sigma2 is biased at n = 10, eps large.
    class Mutant(ExactTarget):
        def _law(self, natural):
            value, by = super()._law(natural)
            extra = 0.5 * self._layout.regressors
            return value + extra * np.log(natural.sigma2), by._replace(sigma2=by.sigma2 + extra / natural.sigma2)

    rng = np.random.default_rng(10)
    task = one_task(np.zeros(5), 4.0, 1e7)
    drawn = draw(Mutant, task, per_chain=200, chains=20, rng=rng, warm_up=200)
    plain = Parametrisation.of(task, 20_000)
    prior = plain.natural(plain.prior_draw(rng)).sigma2
    assert stats.ks_2samp(drawn.sigma2[0, :, ::10].ravel(), prior).pvalue < 1e-6


def test_a_sum_of_squares_far_below_zero_leaves_one_sane_mode():
    # Forty noise scales below zero: by the normal approximation a huge variance of y² would explain it, by the exact
    # law nothing does but the noise.
    rng = np.random.default_rng(11)
    drawn = exact.sample(one_task([0, 0, 20, 0, -200], 100.0, 5.0), per_chain=100, chains=8, rng=rng, warm_up=200)
    means = drawn.theta[0].mean(axis=1)
    assert (np.abs(means) < 0.5).all()
    assert drawn.sigma2.max() < 2


def test_many_dimensions_round_the_force_and_never_the_density(monkeypatch):
    """Proposals move by a rounded force; what accepts them is the density of Laplace noise itself."""
    rng = np.random.default_rng(1)
    layout = Layout(5, True)
    task = one_task(10 * rng.normal(size=layout.size), 30.0, 5.0, d=5)
    space, target = parametrisation_of(task, 3), ExactTarget(task, 3)
    position = 0.3 * rng.normal(size=(space.dim, 3))
    found = {}
    for rounded in (1e-9, 0.1, 1.0):
        monkeypatch.setattr(exact, "_ROUNDED", rounded)
        found[rounded] = target.evaluate(space, position, None)
    np.testing.assert_array_equal(found[0.1][0], found[1e-9][0])
    np.testing.assert_array_equal(found[1.0][0], found[1e-9][0])
    gap = target.noise(space, position, np.ones((layout.size, 3)), rng)
    np.testing.assert_allclose(target._fit(gap, None)[1], -(np.abs(gap) / 5.0).sum(axis=0))
    assert not np.allclose(found[1.0][1], found[1e-9][1])  # or the test shows nothing
    monkeypatch.setattr(exact, "_ROUNDED", 1e-9)
    step = 1e-6 * np.ones_like(position)
    slope = (target.value(space, position + step, None) - target.value(space, position - step, None)) / 2e-6
    np.testing.assert_allclose(found[1e-9][1].sum(axis=0), slope, rtol=1e-4)


@pytest.mark.parametrize("d", [5, 8])
def test_the_exact_sampler_mixes_with_many_covariates(d):
    # With kinked forces and a metric from too few draws R-hat was 1.05 at d = 5 and 1.23 at d = 8.
    rng = np.random.default_rng(1)
    x = rng.normal(0, 0.3, size=(1000, d))
    y = 0.5 * x.sum(axis=1) / d + rng.normal(0, 0.15, size=1000)
    noisy = regression.release(x, y, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=10.0, rng=rng)
    prior = regression.NormalInverseGamma(np.zeros(d + 1), 0.1, 5.0, 0.1)
    posterior = regression.infer(noisy, prior, method="exact", rng=np.random.default_rng(1))
    assert posterior.doubts == ()
    assert max(float(np.max(posterior.rhat(name))) for name in posterior.draws) < 1.04
    assert min(float(np.min(posterior.ess(name))) for name in posterior.draws) > 400
