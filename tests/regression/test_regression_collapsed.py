"""The collapsed sampler: its density and gradient, its moves, agreement with brute force, calibration, extremes."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpbook import Doubt, regression
from dpbook.diagnostics import Calibration
from dpbook.hamiltonian import Kernel, Tuning
from dpbook.regression import collapsed
from dpbook.regression.collapsed import CollapsedTarget
from dpbook.regression.hamiltonian import _mirrored
from dpbook.regression.layout import Layout
from dpbook.regression.moments import from_normal, record_moments
from dpbook.regression.parametrisation import Natural, Parametrisation, parametrisation_of, released_moments
from dpbook.regression.task import CovariatePrior, ParameterPrior, Task, task_of


def random_task(d, intercept, releases, rng, n=100.0, scale=5.0, mechanism="laplace"):
    """Releases of noise, under priors with no special values."""
    layout = Layout(d, intercept)
    q, one = layout.regressors, np.ones(releases)

    def tiled(matrix):
        return np.tile(matrix, (releases, 1, 1))

    return Task(
        layout,
        rng.normal(size=(releases, layout.size)) * 10,
        scale * one,
        mechanism,
        n * one,
        ParameterPrior(
            0.1 * rng.normal(size=(releases, q)), np.tile(0.5 * np.eye(q) + 0.1, (releases, 1, 1)), 5 * one, 0.5 * one
        ),
        CovariatePrior(
            0.1 * rng.normal(size=(releases, d)), 2 * one, np.tile(np.eye(d) + 0.2, (releases, 1, 1)), (d + 9) * one
        ),
    )


def partly_centred(task, chains, rng):
    """Coordinates with random centring, so that no term of the gradient vanishes."""
    plain = parametrisation_of(task, chains)
    d, batch = task.layout.d, len(plain.shape)
    return replace(
        plain,
        centred_theta=rng.uniform(size=plain.centred_theta.shape),
        centred_mean=rng.uniform(size=plain.centred_mean.shape),
        sigma_star=rng.uniform(0.5, 2, size=batch),
        root_star=np.tril(np.ones((d, d)))[..., None] * rng.uniform(0.5, 1, size=(d, d, batch)),
    )


def designed(count, n, epsilon, rng, *, mechanism="laplace", delta=16 / 3):
    """The source's design: parameters, covariates and data from the prior, statistics not clipped; and the truth."""
    layout, one = Layout(1, True), np.ones(count)
    sigma2 = 0.5 / rng.gamma(20.0, size=count)
    theta = rng.normal(size=(count, 2)) * np.sqrt(sigma2 / (0.5 / 19))[:, None]
    tau2 = 1 / rng.chisquare(50, size=count)
    x = np.sqrt(tau2)[:, None] * (rng.normal(size=(count, 1)) + rng.normal(size=(count, n)))
    y = theta[:, :1] + theta[:, 1:] * x + np.sqrt(sigma2)[:, None] * rng.normal(size=(count, n))
    exact = np.stack([x.sum(1), y.sum(1), (x * x).sum(1), (x * y).sum(1), (y * y).sum(1)], axis=1)
    scale = delta / epsilon
    draw = rng.laplace if mechanism == "laplace" else rng.normal
    task = Task(
        layout,
        exact + draw(scale=scale, size=exact.shape),
        scale * one,
        mechanism,
        n * one,
        ParameterPrior(np.zeros((count, 2)), np.tile(0.5 / 19 * np.eye(2), (count, 1, 1)), 20 * one, 0.5 * one),
        CovariatePrior(np.zeros((count, 1)), one, np.ones((count, 1, 1)), 50 * one),
    )
    return task, np.column_stack([theta, sigma2])


def by_moments(natural, task):
    """Mean and covariance of a record's statistics, by the module that the Gibbs samplers use."""
    theta, cov_x = natural.theta.T, np.moveaxis(natural.cov_x, -1, 0)
    record = record_moments(theta, natural.sigma2, natural.mean_x.T, cov_x, task.layout)
    return from_normal(*record, task.layout)


def pooled(drawn):
    """Draws (release, draw, parameter) of theta and sigma2."""
    values = np.concatenate([drawn.theta, drawn.sigma2[..., None]], axis=-1)
    return values.reshape(len(values), -1, values.shape[-1])


def worst_rhat(drawn):
    """Split R-hat of the worst parameter of each release."""
    values = np.concatenate([drawn.theta, drawn.sigma2[..., None]], axis=-1)
    releases, chains, draws, size = values.shape
    halves = values[:, :, : draws // 2 * 2].reshape(releases, 2 * chains, draws // 2, size)
    within, between = halves.var(axis=2, ddof=1).mean(axis=1), halves.mean(axis=2).var(axis=1, ddof=1)
    return np.sqrt(1 + between / within).max(axis=-1)


@pytest.mark.parametrize(("d", "intercept"), list(itertools.product((1, 2, 3, 5), (True, False))))
def test_the_gradient_is_that_of_the_density(d, intercept):
    rng = np.random.default_rng(d)
    task = random_task(d, intercept, 2, rng)
    target, space = CollapsedTarget(task, 2), partly_centred(task, 2, rng)
    position = 0.5 * rng.normal(size=(space.dim, 4))
    variance = 20 * rng.exponential(size=(task.layout.size, 4))
    value, gradient = target.evaluate(space, position, variance)
    np.testing.assert_allclose(value, target.value(space, position, variance), rtol=1e-12)
    for i in range(space.dim):
        step = np.zeros_like(position)
        step[i] = 1e-5
        above, below = (target.value(space, position + sign * step, variance) for sign in (1, -1))
        np.testing.assert_allclose(gradient[i], (above - below) / 2e-5, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("d", "intercept"), [(1, True), (2, False), (3, True)])
def test_mean_and_covariance_are_those_of_the_moments_module(d, intercept):
    rng = np.random.default_rng(d)
    task = random_task(d, intercept, 3, rng)
    space, target = parametrisation_of(task, 1), CollapsedTarget(task, 1)
    position = 0.5 * rng.normal(size=(space.dim, 3))
    natural = space.natural(position)
    by_record = record_moments(
        natural.theta.T, natural.sigma2, natural.mean_x.T, np.moveaxis(natural.cov_x, -1, 0), task.layout
    )
    mu, cov = from_normal(*by_record, task.layout)
    np.testing.assert_allclose(released_moments(natural, task.n, task.layout)[2], 100 * mu.T)
    spread = target.spread(space, position, np.ones((task.layout.size, 3)))
    np.testing.assert_allclose(spread, np.moveaxis(100 * cov + np.eye(task.layout.size), 0, -1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [1, 3])
def test_coordinates_and_parameters_are_each_others_inverse(d, intercept):
    rng = np.random.default_rng(d)
    space = partly_centred(random_task(d, intercept, 2, rng), 2, rng)
    position = rng.normal(size=(space.dim, 4))
    np.testing.assert_allclose(space.position_of(space.natural(position)), position, atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [1, 2])
def test_prior_draws_and_the_density_in_coordinates_are_those_of_the_prior(d, intercept):
    # The log density of positions less the log volume of the map is the density of the parameters.
    rng = np.random.default_rng(d)
    task = random_task(d, intercept, 1, rng)
    space = partly_centred(task, 6, rng)
    position = 0.7 * rng.normal(size=(space.dim, 6))
    zero = Natural(*(np.zeros_like(each) for each in space.natural(position)))
    volume, _ = space.volume_gradient(position, space.forward(position), zero)
    natural, prior, covariates = space.natural(position), task.prior, task.covariates
    expected, unit = [], np.linalg.inv(prior.precision[0])
    for i in range(6):
        s2, cov = natural.sigma2[i], natural.cov_x[..., i]
        expected.append(
            stats.invgamma.logpdf(s2, 5, scale=0.5)
            + stats.multivariate_normal.logpdf(natural.theta[:, i], prior.mean[0], s2 * unit)
            + stats.invwishart.logpdf(cov, d + 9, covariates.scale[0])
            + stats.multivariate_normal.logpdf(natural.mean_x[:, i], covariates.mean[0], cov / 2)
        )
    gap = space.log_prior(position) - volume - expected
    # Centring differs from chain to chain; the constants of both densities do not.
    np.testing.assert_allclose(gap, gap[0], atol=1e-8)
    many = parametrisation_of(task, 20_000)
    drawn = many.natural(many.prior_draw(rng))
    assert abs(drawn.sigma2.mean() - 0.5 / 4) < 5 * drawn.sigma2.std() / np.sqrt(20_000)
    mean_cov = covariates.scale[0] / (d + 9 - d - 1)
    np.testing.assert_allclose(drawn.cov_x.mean(axis=-1), mean_cov, atol=0.01)


def test_the_noise_is_drawn_from_its_conditional_law():
    # Given all else, noise is N(D S^-1 gap, D - D S^-1 D). 40,000 draws: five standard errors.
    rng = np.random.default_rng(4)
    count = 40_000
    task = random_task(1, True, 1, rng, n=20.0)
    space, target = Parametrisation.of(task, count), CollapsedTarget(task, count)
    position = np.tile(0.4 * rng.normal(size=(5, 1)), count)
    variance = np.tile(rng.uniform(5, 40, size=(5, 1)), count)
    drawn = target.noise(space, position, variance, rng)
    spread = target.spread(space, position[:, :1], variance[:, :1])
    # spread of one member only
    matrix, diagonal = spread[..., 0], np.diag(variance[:, 0])
    gap = task.noisy[0] - released_moments(space.natural(position), np.full(count, 20.0), task.layout)[2][:, 0]
    cov = diagonal - diagonal @ np.linalg.solve(matrix, diagonal)
    error = (drawn.mean(axis=1) - diagonal @ np.linalg.solve(matrix, gap)) / np.sqrt(np.diag(cov) / count)
    assert np.abs(error).max() < 5
    np.testing.assert_allclose(np.cov(drawn), cov, atol=5 * np.sqrt(2 / count) * np.diag(cov).max())


@pytest.mark.parametrize(("d", "intercept"), [(1, True), (3, True), (2, False)])
def test_a_mirrored_theta_keeps_the_mean_of_y_squared(d, intercept):
    rng = np.random.default_rng(d)
    task = random_task(d, intercept, 1, rng, scale=1e9)  # a release that says nothing: most moves are accepted
    space, target = partly_centred(task, 200, rng), CollapsedTarget(task, 200)
    position = 0.3 * rng.normal(size=(space.dim, 200))
    variance = np.full((task.layout.size, 200), 1e18)
    kernel = Kernel(lambda at: target.evaluate(space, at, variance), Tuning.first(np.ones((1, 1, 200)), 200))
    moved = _mirrored(kernel, space, kernel.start(position), rng)
    changed = (moved.position != position).any(axis=0)
    assert changed.mean() > 0.3
    n = np.full(200, 100.0)
    before = released_moments(space.natural(position), n, task.layout)[2][-1]
    after = released_moments(space.natural(moved.position), n, task.layout)[2][-1]
    np.testing.assert_allclose(after, before, rtol=1e-8)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_draws_agree_with_importance_sampling_from_the_prior(mechanism):
    # Brute force without positions, gradients or mixing variables: 60,000 draws of the prior, each weighted by the
    # average likelihood over 12 draws of the variances (Laplace), or by its likelihood (Gaussian).
    rng = np.random.default_rng(7)
    task, _ = designed(1, 50, 1.0, rng, mechanism=mechanism)
    drawn = pooled(collapsed.sample(task, per_chain=200, chains=20, rng=rng, warm_up=200))[0]
    count = 60_000
    many = Parametrisation.of(task, count)
    natural = many.natural(many.prior_draw(rng))
    _, _, sums = released_moments(natural, np.full(count, 50.0), task.layout)
    by_record = record_moments(
        natural.theta.T, natural.sigma2, natural.mean_x.T, np.moveaxis(natural.cov_x, -1, 0), task.layout
    )
    cov = 50 * from_normal(*by_record, task.layout)[1]
    gap, scale, weight = (task.noisy[0] - sums.T), task.scale[0], np.zeros(count)
    rounds = 12 if mechanism == "laplace" else 1
    for _ in range(rounds):
        variance = (
            rng.exponential(2 * scale**2, size=(count, 5)) if mechanism == "laplace" else np.full((count, 5), scale**2)
        )
        total = cov + variance[:, :, None] * np.eye(5)
        quadratic = (gap * np.linalg.solve(total, gap[..., None])[..., 0]).sum(axis=1)
        weight += np.exp(-0.5 * (quadratic + np.linalg.slogdet(total)[1]))
    weight /= weight.sum()
    effective = 1 / (weight**2).sum()
    assert effective > 300
    values = np.column_stack([natural.theta.T, natural.sigma2])
    mean = weight @ values
    sd = np.sqrt(weight @ (values - mean) ** 2)
    # The brute-force error dominates: 4.5 standard errors of its mean, and as many of its sd.
    assert np.abs(drawn.mean(axis=0) - mean).max() / sd.max() < 4.5 / np.sqrt(effective)
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=4.5 / np.sqrt(effective))


@pytest.mark.parametrize(("n", "epsilon"), [(100, 0.1), (100, 1.0), (1000, 0.1), (1000, 1.0)])
def test_posteriors_are_calibrated(n, epsilon):
    # 100 trials. KS and variance tests of three parameters, Holm-corrected: .002 a case, .8 % for the four of them.
    rng = np.random.default_rng(n + int(10 * epsilon))
    task, truth = designed(100, n, epsilon, rng)
    drawn = collapsed.sample(task, per_chain=100, chains=4, rng=rng, warm_up=250)
    values = pooled(drawn)
    ranks = ((values < truth[:, None]).sum(axis=1) + rng.random(truth.shape)) / (values.shape[1] + 1)
    assert np.quantile(worst_rhat(drawn), 0.9) < 1.1
    assert Calibration(dict(zip(("intercept", "slope", "sigma2"), ranks.T, strict=True))).passed(0.002)
    covered = ((ranks > 0.025) & (ranks < 0.975)).mean(axis=0)
    assert covered.min() > 0.86  # 95 % less four standard errors


def test_chains_from_far_apart_find_the_sign_of_the_slope():
    # The source's sampler, started from the prior, sat in a flipped mode in a fifth of the runs at n = 1000, epsilon 1.
    rng = np.random.default_rng(11)
    task, truth = designed(40, 1000, 1.0, rng)
    drawn = collapsed.sample(task, per_chain=150, chains=4, rng=rng, warm_up=300)
    assert np.quantile(worst_rhat(drawn), 0.9) < 1.1
    steep = np.abs(truth[:, 1]) > 1.0
    slopes = drawn.theta[steep, ..., 1].mean(axis=2)
    assert (np.sign(slopes) == np.sign(truth[steep, 1])[:, None]).mean() > 0.97


def test_both_modes_are_visited_where_the_sign_is_open():
    # The sum of y² demands a large slope (the prior of sigma2 is tight), that of xy is lost in noise: both signs.
    rng = np.random.default_rng(3)
    task, _ = designed(1, 1000, 1.0, rng)
    task = replace(task, noisy=np.array([[0.0, 0.0, 20.0, 0.0, 120.0]]), scale=np.array([12.0]))
    drawn = collapsed.sample(task, per_chain=250, chains=8, rng=rng, warm_up=250)
    positive = (drawn.theta[0, ..., 1] > 0).mean(axis=1)
    assert np.abs(drawn.theta[0, ..., 1]).mean() > 1
    assert positive.min() > 0.2
    assert positive.max() < 0.8


@pytest.mark.parametrize("d", [1, 2, 3, 5, 10])
def test_with_many_records_and_a_large_epsilon_the_posterior_is_the_non_private_one(d):
    rng = np.random.default_rng(d)
    x = rng.normal(0, 0.25, size=(20_000, d)).clip(-1, 1)
    y = (0.1 + x @ np.linspace(0.1, 0.4, d) + rng.normal(0, 0.1, size=20_000)).clip(-1, 1)
    prior = regression.NormalInverseGamma(0.0, 1.0, 3, 0.1)
    release = regression.release(x, y, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=1e5, rng=rng)
    private = regression.infer(release, prior, draws=800, chains=8, rng=rng, warm_up=150)
    open_ = regression.infer_nonprivate(x, y, prior, rng=rng)
    np.testing.assert_allclose(private.mean("theta"), open_.mean("theta"), atol=0.3 * open_.sd("theta").max())
    np.testing.assert_allclose(private.sd("theta"), open_.sd("theta"), rtol=0.2)
    assert abs(private.mean("sigma2") - open_.mean("sigma2")) < 0.4 * open_.sd("sigma2")


def skewed(seed, d=10, n=500):
    """Covariates of unequal spread, some of them nearly dependent; bounds (-2, 2) and (-5, 5) would do."""
    rng = np.random.default_rng(seed)
    x = 0.3 * rng.normal(size=(n, d)) @ (rng.normal(size=(d, d)) / np.sqrt(d) + np.eye(d)).T
    return x, 1 + x @ rng.normal(size=d) + 0.5 * rng.normal(size=n)


@pytest.mark.parametrize(
    ("seed", "wide", "epsilon", "settings"),
    [
        (0, 5, 1e6, {}),
        (2, 20, 1e9, {"mechanism": "gaussian"}),
        (3, 20, 1e9, {"intercept": False}),
        (5, 50, 1e12, {}),
    ],
)
def test_bounds_far_too_wide_leave_the_non_private_posterior_where_noise_is_nothing(seed, wide, epsilon, settings):
    """1,200 nearly independent draws: of 11 means and sds, one is off by .16 sd or 10 % in a right sampler with
    probability below 10⁻⁵. The normal law of the sums alone was off by 22 sd, with R² of -.5 where .8 is possible."""
    x, y = skewed(seed)
    rng = np.random.default_rng(seed)
    prior = regression.NormalInverseGamma(0.0, 1e-3, 1.0, 0.1)
    bounds = {"x_bounds": (-2 * wide, 2 * wide), "y_bounds": (-5 * wide, 5 * wide)}
    intercept = settings.get("intercept", True)
    release = regression.release(x, y, epsilon=epsilon, intercept=intercept, rng=rng, **bounds)
    if "mechanism" in settings:  # noise so small that its law does not matter; the sampler's own does
        release = replace(release, mechanism="gaussian", delta=1e-6)
    private = regression.infer(release, prior, draws=1200, chains=8, rng=rng, warm_up=150)
    open_ = regression.infer_nonprivate(x, y, prior, intercept=intercept, draws=20_000, rng=rng)
    for name in ("theta", "sigma2"):
        mean, sd = open_.mean(name), open_.sd(name)
        assert np.abs((private.mean(name) - mean) / sd).max() < 0.16
        np.testing.assert_allclose(private.sd(name), sd, rtol=0.1)
    w = np.column_stack([np.ones(len(x)), x]) if intercept else x
    least = ((y - w @ np.linalg.lstsq(w, y, rcond=None)[0]) ** 2).mean()
    assert ((y - private.predict(x)) ** 2).mean() < 1.01 * least


def test_many_directions_that_each_fall_a_little_short_are_seen_together():
    """In no direction is less than 80 % of the variance left, and yet the normal law alone has an R² of -.4."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (500, 10))
    y = x @ rng.normal(size=10) + rng.normal(size=500)
    prior = regression.NormalInverseGamma(0.0, 1e-3, 1.0, 0.1)
    bounds = {"x_bounds": (-10, 10), "y_bounds": (-50, 50)}
    release = regression.release(x, y, epsilon=1e8, rng=np.random.default_rng(1), **bounds)
    private = regression.infer(release, prior, draws=1200, chains=8, rng=np.random.default_rng(2), warm_up=150)
    open_ = regression.infer_nonprivate(x, y, prior, draws=20_000, rng=np.random.default_rng(4))
    assert np.abs((private.mean("theta") - open_.mean("theta")) / open_.sd("theta")).max() < 0.16
    np.testing.assert_allclose(private.sd("theta"), open_.sd("theta"), rtol=0.1)


def test_the_prior_overrules_where_bounds_are_too_wide_and_the_noise_small_and_nowhere_else():
    def overruled(wide, epsilon, n=500, d=10):
        x, y = skewed(0, d, n)
        settings = {"x_bounds": (-2 * wide, 2 * wide), "y_bounds": (-5 * wide, 5 * wide), "epsilon": epsilon}
        release = regression.release(x, y, **settings, rng=np.random.default_rng(0))
        task = task_of([release], regression.NormalInverseGamma(0.0, 1.0, 2, 0.2))
        return bool(collapsed.prior_overrules(task)[0])

    assert [overruled(wide, 1e6) for wide in (0.5, 5, 50)] == [False, True, True]
    assert [overruled(50, epsilon) for epsilon in (1, 100, 1e5)] == [False, False, True]
    assert not overruled(5, 1e6, n=200_000)
    assert not overruled(50, 1e6, n=20)  # too few records for the exact law


def test_a_batch_may_hold_releases_of_both_kinds():
    x, y = skewed(0, d=2)
    prior = regression.NormalInverseGamma(0.0, 1e-3, 1.0, 0.1)
    releases = [
        regression.release(x, y, x_bounds=(-wide, wide), y_bounds=(-5, 5), epsilon=1e9, rng=np.random.default_rng(0))
        for wide in (2, 200, 2)
    ]
    assert collapsed.prior_overrules(task_of(releases, prior)).tolist() == [False, True, False]
    found = regression.infer(releases, prior, draws=1600, chains=16, rng=np.random.default_rng(1))
    open_ = regression.infer_nonprivate(x, y, prior, draws=20_000, rng=np.random.default_rng(2))
    for posterior in found:  # at least 600 effective draws: five standard errors
        off = (posterior.mean("theta") - open_.mean("theta")) / open_.sd("theta")
        assert np.abs(off).max() < 5 / np.sqrt(600)


@pytest.mark.parametrize(
    ("n", "epsilon", "d", "intercept"),
    [(1, 1e-3, 1, True), (1, 1e6, 1, False), (2, 1.0, 3, True), (10, 1e6, 1, True), (10, 1e-3, 2, False)],
)
def test_tiny_data_and_extreme_epsilon_give_a_posterior_without_a_numerical_warning(n, epsilon, d, intercept):
    rng = np.random.default_rng(n)
    x, y = rng.uniform(-1, 1, size=(n, d)), rng.uniform(-1, 1, size=n)
    release = regression.release(
        x, y, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=epsilon, intercept=intercept, rng=rng
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", Doubt)
        posterior = regression.infer(
            release, regression.NormalInverseGamma(0.0, 1.0, 2, 0.2), draws=200, chains=4, rng=rng
        )
    assert np.isfinite(posterior.draws["theta"]).all()
    assert (posterior.draws["sigma2"] > 0).all()


def test_a_wild_release_gives_a_sane_posterior():
    # Negative variances ten noise scales below zero, means that the second moments forbid, nothing at all, covariates
    # that do not vary.
    noisy = [[0, 0, -50, 0, 20], [0, 0, 20, 0, -50], [40, -40, 1, 30, 1], [0, 0, 0, 0, 0], [90, 90, 90, 90, 90]]
    rng = np.random.default_rng(0)
    task, _ = designed(len(noisy), 100, 1.0, rng)
    task = replace(task, noisy=np.array(noisy, dtype=float))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = collapsed.sample(task, per_chain=200, chains=6, rng=rng, warm_up=300)
    assert np.isfinite(drawn.theta).all()
    assert worst_rhat(drawn).max() < 1.3
    means = drawn.sigma2.mean(axis=(1, 2))
    assert means.min() > 0.001
    assert means.max() < 10


@pytest.mark.parametrize("epsilon", [1.0, 1e6])
def test_without_an_intercept_chains_agree_although_mean_and_variance_of_x_are_not_told_apart(epsilon):
    # E[x²] is known, its parts are not: parametrised by mean and variance R-hat of sigma2 was 1.2 to 1.5.
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, size=1000)
    y = (0.3 * x + 0.2 * rng.normal(size=1000)).clip(-1, 1)
    bounds = {"x_bounds": (-1, 1), "y_bounds": (-1, 1)}
    release = regression.release(x, y, epsilon=epsilon, intercept=False, rng=rng, **bounds)
    prior = regression.NormalInverseGamma(0.0, 1.0, 2, 0.2)
    posterior = regression.infer(release, prior, draws=800, chains=8, warm_up=200, rng=rng)
    assert max(posterior.rhat("sigma2"), *posterior.rhat("theta")) < 1.1


def test_releases_in_one_batch_need_not_share_anything_but_their_shape():
    # Each posterior of a mixed batch is the one that it has alone.
    rng = np.random.default_rng(5)
    first, _ = designed(1, 100, 10.0, rng)
    second, _ = designed(1, 1000, 1.0, rng)
    both = Task(
        first.layout,
        np.concatenate([first.noisy, second.noisy]),
        np.concatenate([first.scale, second.scale]),
        "laplace",
        np.concatenate([first.n, second.n]),
        ParameterPrior(*(np.concatenate(pair) for pair in zip(first.prior, second.prior, strict=True))),
        CovariatePrior(*(np.concatenate(pair) for pair in zip(first.covariates, second.covariates, strict=True))),
    )
    together = pooled(collapsed.sample(both, per_chain=150, chains=16, rng=rng, warm_up=200))
    for values, task in zip(together, (first, second), strict=True):
        alone = pooled(collapsed.sample(task, per_chain=150, chains=16, rng=rng, warm_up=200))[0]
        # at least 600 effective draws each: five standard errors
        assert (np.abs(values.mean(axis=0) - alone.mean(axis=0)) / alone.std(axis=0)).max() < 5 * np.sqrt(2 / 600)


def test_the_same_generator_gives_the_same_draws():
    task, _ = designed(2, 100, 1.0, np.random.default_rng(1))
    one, other = (
        collapsed.sample(task, per_chain=5, chains=2, rng=np.random.default_rng(2), warm_up=20) for _ in range(2)
    )
    np.testing.assert_array_equal(one.theta, other.theta)
