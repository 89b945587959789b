"""The Gibbs samplers: each conditional against its own density, the whole against its prior, limits, variants."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from dpbook import regression
from dpbook.diagnostics import calibrate
from dpbook.posterior import ConvergenceWarning
from dpbook.regression import gibbs
from dpbook.regression.gibbs import State, _draw_sums, _law_of_sums, _plan, _sweep
from dpbook.regression.inference import sample
from dpbook.regression.layout import Layout
from dpbook.regression.moments import nearest_valid
from dpbook.regression.task import CovariatePrior, ParameterPrior, Task, task_of

SHAPES = [(1, True), (1, False), (2, True)]


def batch_of(prior, count):
    return [np.repeat(np.asarray(part, dtype=float)[None], count, axis=0) for part in prior]


def task(layout, count, n, scale, *, centre=0.8, strength=1.0, mechanism="laplace", dof=None):
    """A batch of one and the same task; priors are worth ``strength`` times the records."""
    q, d, worth = layout.regressors, layout.d, n * strength
    mean = np.linspace(0.3, centre, q)
    prior = (mean, np.diag(np.where(np.arange(q) < layout.intercept, 0.3, 0.03)) * worth, worth / 2, worth / 2 * 0.025)
    covariates = (np.full(d, 0.1), worth / 2, 0.1 * worth * np.eye(d), dof or worth)
    return Task(
        layout,
        np.zeros((count, layout.size)),
        np.full(count, scale),
        mechanism,
        np.full(count, float(n)),
        ParameterPrior(*batch_of(prior, count)),
        CovariatePrior(*batch_of(covariates, count)),
    )


def public_prior(p):
    return regression.NormalInverseGamma(p.prior.mean[0], p.prior.precision[0], p.prior.shape[0], p.prior.rate[0])


def public_covariates(p):
    c = p.covariates
    return regression.NormalInverseWishart(c.mean[0], c.strength[0], c.scale[0], c.dof[0])


def sums_of(x, theta, sigma2, layout, rng):
    """Exact sums of simulated data sets (batch, n, d)."""
    y = np.sqrt(sigma2)[:, None] * rng.normal(size=x.shape[:2])
    w = np.concatenate([np.ones((*x.shape[:2], 1)), x], axis=2) if layout.intercept else x
    u = np.concatenate([w, (y + (w @ theta[..., None])[..., 0])[..., None]], axis=2)
    return layout.vector(np.swapaxes(u, 1, 2) @ u)


# ---------------------------------------------------------------------------------------------------------------------
# Each conditional


@pytest.mark.parametrize(("d", "intercept"), SHAPES)
@pytest.mark.parametrize("kind", ["gibbs-update", "gibbs-prior"])
def test_sums_are_drawn_from_the_product_of_their_law_and_the_noise(d, intercept, kind):
    """Against (Σ⁻¹ + D⁻¹)⁻¹ by plain inversion: mean and covariance of 20,000 draws within 5 standard errors.

    Without an intercept the covariates' own sums are drawn too, though nothing of them is released.
    """
    count, n, rng = 20_000, 5000, np.random.default_rng(1)
    layout = Layout(d, intercept)
    p = task(layout, count, n, 20.0, dof=200.0)
    plan = _plan(p, kind, False, False, "reject")
    q, latent = layout.regressors, plan.latent
    one = State(
        np.full((1, 1, q), 0.4),
        np.full((1, 1), 0.1),
        np.zeros((1, 1, latent.size)),
        np.full((1, 1), float(n)),
        rng.uniform(100, 900, size=(1, 1, layout.size)),
        np.full((1, 1, d), 0.1),
        np.full((1, 1, d, d), 0.02) + 0.1 * np.eye(d),
    )
    single = dataclasses.replace(plan, task=task(layout, 1, n, 20.0, dof=200.0))
    single = dataclasses.replace(single, second=plan.second[:1], xi=plan.xi[:1])
    mean, cov = (part[0, 0] * n for part in _law_of_sums(one, single))
    noisy = mean[plan.observed] + 30 * rng.normal(size=layout.size)
    plan = dataclasses.replace(plan, task=dataclasses.replace(p, noisy=np.tile(noisy, (count, 1))))
    state = one._replace(variance=np.broadcast_to(one.variance, (1, count, layout.size)))
    wide = np.broadcast_to(mean, (1, count, latent.size)), np.broadcast_to(cov, (1, count, latent.size, latent.size))
    drawn, records = _draw_sums(*wide, state, plan, np.full((1, count), float(n)), rng)
    shown = np.zeros(latent.size)
    shown[plan.observed] = 1 / one.variance[0, 0]
    value = np.zeros(latent.size)
    value[plan.observed] = noisy
    after = np.linalg.inv(np.linalg.inv(cov) + np.diag(shown))
    centre = after @ (np.linalg.solve(cov, mean) + shown * value)
    centred = drawn[0] - centre
    sd = np.sqrt(np.diag(after))
    assert np.abs(centred.mean(axis=0) / sd).max() < 5 / np.sqrt(count)
    correlation = after / sd / sd[:, None]
    found = np.cov(centred.T) / sd / sd[:, None]
    assert np.abs(found - correlation).max() < 5 * np.sqrt(2 / count)
    assert (records == n).all()


def test_a_singular_law_of_the_sums_is_no_obstacle():
    """Without error variance y is a line: the drawn sums lie on it, and nothing is inverted."""
    layout, rng = Layout(1, True), np.random.default_rng(2)
    p = task(layout, 50, 1000, 5.0)
    plan = _plan(p, "gibbs-update", False, False, "project")
    state = State(
        np.tile([0.2, 0.5], (1, 50, 1)),
        np.full((1, 50), 0.0),
        np.zeros((1, 50, 5)),
        np.full((1, 50), 1000.0),
        np.full((1, 50, 5), 50.0),
        np.zeros((1, 50, 1)),
        np.full((1, 50, 1, 1), 0.1),
    )
    mean, cov = _law_of_sums(state, plan)
    n = np.full((1, 50), 1000.0)
    drawn, _ = _draw_sums(1000 * mean, 1000 * cov, state, plan, n, rng)
    x, y, xx, xy, _ = np.moveaxis(drawn, -1, 0)
    np.testing.assert_allclose(y, 0.2 * 1000 + 0.5 * x, atol=1e-2)
    np.testing.assert_allclose(xy, 0.2 * x + 0.5 * xx, atol=1e-2)


def test_the_covariates_parameters_are_drawn_from_their_conjugate_posterior():
    """The marginals that the textbook gives for real records: inverse gamma and Student-t, KS at the 1e-4 level."""
    rng, layout, n = np.random.default_rng(3), Layout(2, True), 30
    x = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.4], [0.0, 0.5]]) + [0.3, -0.2]
    u = np.column_stack([np.ones(n), x, np.zeros(n)])
    prior = (np.array([0.5, 0.0]), 3.0, np.array([[2.0, 0.3], [0.3, 1.0]]), 5.0)
    batch = CovariatePrior(*batch_of(prior, 4000))
    sums = np.broadcast_to(layout.vector(u.T @ u), (4000, layout.size))
    mean, cov = gibbs.draw_covariate_parameters(batch, sums, np.full(4000, float(n)), layout, rng)
    away = x.mean(axis=0) - prior[0]
    scale = prior[2] + (x - x.mean(axis=0)).T @ (x - x.mean(axis=0)) + 3 * n / (3 + n) * np.outer(away, away)
    centre, dof = (3 * prior[0] + x.sum(axis=0)) / (3 + n), 5.0 + n
    for j in range(2):
        variance = stats.invgamma((dof - 1) / 2, scale=scale[j, j] / 2)
        assert stats.kstest(cov[:, j, j], variance.cdf).pvalue > 1e-4
        t = stats.t(dof - 1, loc=centre[j], scale=np.sqrt(scale[j, j] / (dof - 1) / (3 + n)))
        assert stats.kstest(mean[:, j], t.cdf).pvalue > 1e-4
    theirs = stats.invwishart(dof, scale).rvs(4000, random_state=4)
    assert stats.ks_2samp(cov[:, 0, 1], theirs[:, 0, 1]).pvalue > 1e-4


@pytest.mark.parametrize(("d", "intercept"), SHAPES)
def test_prior_moments_are_those_of_the_student_t(d, intercept):
    """200,000 draws of x through mean_x and cov_x; 12 degrees of freedom, so that 5 % is many standard errors."""
    layout, rng = Layout(d, intercept), np.random.default_rng(5)
    scale = 0.5 * np.eye(d) + 0.2
    covariates = regression.NormalInverseWishart(np.full(d, 0.4), 2.0, scale, d + 29.0)
    mean_x, cov_x = covariates.draw(200_000, rng)
    x = mean_x + (np.linalg.cholesky(cov_x) @ rng.normal(size=(200_000, d, 1)))[..., 0]
    w = np.column_stack([np.ones(len(x)), x]) if intercept else x
    i, j = layout.rows[layout.of_regressors], layout.columns[layout.of_regressors]
    parts = covariates.mean, covariates.strength, covariates.scale, covariates.dof
    second, xi = gibbs.prior_moments(CovariatePrior(*batch_of(parts, 1)), layout)
    np.testing.assert_allclose(second[0], w.T @ w / len(w), rtol=0.03, atol=2e-3)
    products = w[:, i] * w[:, j]
    np.testing.assert_allclose(xi[0], np.atleast_2d(np.cov(products.T)), rtol=0.08, atol=2e-3)


# ---------------------------------------------------------------------------------------------------------------------
# The whole: Geweke's joint test. Start 3,000 chains from the joint law of parameters, data and release; then alternate
# sweeps with new noise. Every marginal stays what it was if the conditionals belong to that joint law.


def joint_test(layout, n, epsilon, rng, *, kind="gibbs-update", printed=False, mechanism="laplace", chains=3000):
    """Return mean and variance of the normal scores of theta and sigma2 under their prior, after 25 sweeps."""
    scale = 16 / 3 / epsilon
    p = task(layout, chains, n, scale, mechanism=mechanism)
    drawn = public_prior(p).draw(chains, rng)
    theta, sigma2 = drawn[:, :-1], drawn[:, -1]
    mean_x, cov_x = public_covariates(p).draw(chains, rng)
    sums = []
    for part in np.array_split(np.arange(chains), 12):
        shape = (len(part), n, layout.d)
        if kind == "gibbs-prior":  # everyone has a mean and covariance of their own: no two share them
            people = [public_covariates(p).draw(n, rng) for _ in part[:50]]
            each = [m + np.sqrt(c[:, :, 0]) * rng.normal(size=(n, 1)) for m, c in people]
            x = np.stack([each[k % len(each)][rng.integers(n, size=n)] for k in range(len(part))])
        else:
            root = np.linalg.cholesky(cov_x[part])
            x = mean_x[part][:, None] + rng.normal(size=shape) @ np.swapaxes(root, -1, -2)
        sums.append(sums_of(x, theta[part], sigma2[part], layout, rng))
    latent = np.concatenate(sums)
    plan = _plan(p, kind, False, printed, "reject")
    full = np.zeros((chains, plan.latent.size))
    full[:, plan.observed] = latent
    spread = 2 * rng.exponential(size=latent.shape) if mechanism == "laplace" else np.ones(latent.shape)
    state = State(
        theta[None],
        sigma2[None],
        full[None],
        np.full((1, chains), float(n)),
        spread[None] * scale**2,
        mean_x[None],
        cov_x[None],
    )
    for _ in range(25):
        shown = state.sums[0][:, plan.observed]
        noisy = shown + np.sqrt(state.variance[0]) * rng.normal(size=shown.shape)
        state, _ = _sweep(rng, state, plan=dataclasses.replace(plan, task=dataclasses.replace(p, noisy=noisy)))
    shape, rate = p.prior.shape[0], p.prior.rate[0]
    scales = np.sqrt(rate / shape * np.diag(np.linalg.inv(p.prior.precision[0])))
    scores = [
        stats.norm.ppf(stats.t(2 * shape).cdf((state.theta[0][:, j] - p.prior.mean[0, j]) / scales[j]))
        for j in range(layout.regressors)
    ]
    scores.append(stats.norm.ppf(np.clip(stats.invgamma(shape, scale=rate).cdf(state.sigma2[0]), 1e-12, 1 - 1e-12)))
    return np.array([(z.mean(), z.var()) for z in scores])


def departures(found, chains=3000):
    """How many standard errors the means are from 0 and the variances from 1."""
    return np.abs(found - [0, 1]) / [np.sqrt(1 / chains), np.sqrt(2 / chains)]


@pytest.mark.parametrize(
    ("d", "intercept", "kind", "mechanism"),
    [
        (1, True, "gibbs-update", "laplace"),
        (1, True, "gibbs-update", "gaussian"),
        (1, False, "gibbs-update", "laplace"),
        (2, True, "gibbs-update", "laplace"),
        (1, True, "gibbs-prior", "laplace"),
    ],
)
def test_the_conditionals_belong_to_one_joint_law_from_a_thousand_records_on(d, intercept, kind, mechanism):
    """At most 8 figures beyond 4.5 standard errors: a false alarm with probability below 1e-4."""
    found = joint_test(Layout(d, intercept), 1000, 1.0, np.random.default_rng(6), kind=kind, mechanism=mechanism)
    assert departures(found).max() < 4.5, found


def test_at_ten_records_they_do_not():
    """The normal law of the sums and the exact conjugate draws disagree: sigma2 comes out too large by .1 to .2 sds."""
    found = joint_test(Layout(1, True), 10, 1.0, np.random.default_rng(7))
    assert departures(found)[-1, 0] > 5
    assert 0.05 < found[-1, 0] < 0.3


def test_the_covariance_as_printed_fails_the_joint_test():
    found = joint_test(Layout(1, True), 1000, 1.0, np.random.default_rng(8), printed=True)
    assert departures(found).max() > 8


# ---------------------------------------------------------------------------------------------------------------------
# Limits


def line(n, seed=0):
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(0.5, 0.15, size=n), 0, 1)
    return x, 1 + 2 * x + 0.3 * rng.normal(size=n)


BOUNDS = {"x_bounds": (0, 1), "y_bounds": (-1, 5)}
PRIOR = regression.NormalInverseGamma(0.0, 0.05, 3.0, 0.3)


@pytest.mark.parametrize("kind", gibbs.KINDS)
@pytest.mark.parametrize(("n", "epsilon"), [(500, 1e7), (300_000, 300.0)])
def test_where_noise_is_negligible_every_sampler_meets_the_nonprivate_posterior(kind, n, epsilon):
    """Means within .15 posterior sds, sds within 10 %; 4,000 draws have Monte-Carlo errors of .02 and 1 %."""
    x, y = line(n)
    rng = np.random.default_rng(9)
    made = regression.release(x, y, **BOUNDS, epsilon=epsilon, moments=True, rng=rng)
    found = regression.infer(made, PRIOR, method=kind, rng=rng, burn_in=50, thin=1)
    exact = regression.infer_nonprivate(x, y, PRIOR, rng=rng)
    for name in ("theta", "sigma2"):
        np.testing.assert_allclose((found.mean(name) - exact.mean(name)) / exact.sd(name), 0, atol=0.15)
        np.testing.assert_allclose(found.sd(name), exact.sd(name), rtol=0.1)


def test_the_update_sampler_is_calibrated_and_the_naive_posterior_is_not():
    """200 releases of clipped data in one call: a false alarm with probability at most 1e-3 (Holm, KS and variance)."""
    prior = regression.NormalInverseGamma([0.0, 0.0], 0.44, 20, 0.5)  # Var(theta) = .06: few responses are clipped
    covariates = regression.NormalInverseWishart([0.0], 1.0, 1.0, 50)

    def draw(rng, trials):
        drawn = prior.draw(trials, rng)
        theta, sigma2 = drawn[:, :-1], drawn[:, -1]
        return {"theta": theta, "sigma2": sigma2}

    def simulate(truth, rng):
        mean_x, cov_x = covariates.draw(200, rng)
        x = mean_x + np.sqrt(cov_x[:, 0]) * rng.normal(size=(200, 300))
        noise = np.sqrt(truth["sigma2"])[:, None] * rng.normal(size=x.shape)
        y = truth["theta"][:, :1] + truth["theta"][:, 1:] * x + noise
        pairs = zip(x, y, strict=True)
        return [regression.release(*p, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=5.0, rng=rng) for p in pairs]

    def calibration(method, **options):
        def infer(made, rng):
            batch = task_of(made, prior, covariates)
            drawn = sample(batch, method=method, draws=100, chains=2, rng=rng, **options)
            return {"theta": drawn.theta.reshape(200, -1, 2), "sigma2": drawn.sigma2.reshape(200, -1)}

        return calibrate(draw, simulate, infer, 200, rng=np.random.default_rng(10))

    assert calibration("gibbs-update", burn_in=400, thin=12).passed(level=1e-3)
    assert not calibration("naive").passed(level=1e-3)


# ---------------------------------------------------------------------------------------------------------------------
# Noisy moments, starts, variants, arguments


def test_accounting_for_the_noise_of_the_moments_makes_the_fourth_ones_irrelevant():
    """Given the regressors' sums those of the response do not depend on them: not one draw changes."""
    x, y = line(200)
    made = regression.release(x, y, **BOUNDS, epsilon=1.0, moments=True, rng=np.random.default_rng(11))
    p = task_of([made], PRIOR, method="gibbs-noisy")
    other = dataclasses.replace(p, moments=p.moments + 37.0)

    def draws(of, account):
        settings = {"per_chain": 50, "chains": 4, "burn_in": 20, "thin": 1, "account_for_moments": account}
        return gibbs.sample(of, kind="gibbs-noisy", rng=np.random.default_rng(12), **settings).theta

    np.testing.assert_array_equal(draws(p, True), draws(other, True))
    assert (draws(p, False) != draws(other, False)).any()


def test_taking_noisy_moments_for_the_truth_is_overconfident():
    """n = 1000, epsilon = 1, 120 lines: sds come out smaller than with the noise accounted for, and cover less."""
    rng, count, n = np.random.default_rng(13), 120, 1000
    prior = regression.NormalInverseGamma([0.0, 0.0], 0.5 / 19, 20, 0.5)
    drawn = prior.draw(count, rng)
    theta, sigma2 = drawn[:, :-1], drawn[:, -1]
    x = rng.normal(scale=0.15, size=(count, n))
    y = theta[:, :1] + theta[:, 1:] * x + np.sqrt(sigma2)[:, None] * rng.normal(size=x.shape)
    records = np.stack([x, y, x * x, x * y, y * y, x**3, x**4], axis=-1).sum(axis=1)
    noisy = records + rng.laplace(scale=7.375, size=records.shape)
    plain = ParameterPrior(*batch_of(([0, 0], 0.5 / 19 * np.eye(2), 20, 0.5), count))
    unused = CovariatePrior(*batch_of(([0.0], 1.0, [[1.0]], 50.0), count))
    p = Task(
        Layout(1, True),
        noisy[:, :5],
        np.full(count, 7.375),
        "laplace",
        np.full(count, float(n)),
        plain,
        unused,
        noisy[:, 5:],
    )
    covered = []
    for account in (False, True):
        drawn = gibbs.sample(
            p, kind="gibbs-noisy", per_chain=100, chains=4, burn_in=300, thin=5, rng=rng, account_for_moments=account
        ).theta.reshape(count, -1, 2)
        low, high = np.quantile(drawn[..., 1], [0.05, 0.95], axis=1)
        covered.append(np.mean((low <= theta[:, 1]) & (theta[:, 1] <= high)))
    assert covered[0] < 0.85 < covered[1]


def test_chains_start_apart_and_near_the_release():
    x, y = line(2000)
    made = regression.release(x, y, **BOUNDS, epsilon=1.0, rng=np.random.default_rng(14))
    p = task_of([made], PRIOR)
    state = gibbs._start(_plan(p, "gibbs-update", False, False, "reject"), 200, False, np.random.default_rng(15))
    away = (state.sums[:, 0] - p.noisy) / p.scale
    assert np.abs(np.median(away, axis=0)).max() < 0.5
    assert (away.std(axis=0) > 0.7).all()
    np.testing.assert_allclose(nearest_valid(state.sums, state.records, p.layout), state.sums, atol=1e-6)
    drawn = gibbs.sample(
        p, kind="gibbs-update", per_chain=100, chains=20, burn_in=300, thin=5, rng=np.random.default_rng(15)
    )
    assert (state.theta[:, 0].std(axis=0) > drawn.theta[0].reshape(-1, 2).std(axis=0)).all()


@pytest.mark.parametrize("variant", [{"start": "prior"}, {"invalid": "clip"}, {"invalid": "project"}])
@pytest.mark.parametrize("kind", gibbs.KINDS)
def test_printed_variants_run(variant, kind):
    x, y = line(20)
    made = regression.release(x, y, **BOUNDS, epsilon=0.2, moments=True, rng=np.random.default_rng(16))
    p = task_of([made] * 3, PRIOR, method=kind)
    drawn = gibbs.sample(
        p, kind=kind, per_chain=30, chains=4, burn_in=10, thin=1, rng=np.random.default_rng(17), **variant
    )
    assert drawn.theta.shape == (3, 4, 30, 2)
    assert np.isfinite(drawn.theta).all()


def test_chains_that_disagree_are_reported():
    x, y = line(2000)
    made = regression.release(x, y, **BOUNDS, epsilon=0.1, rng=np.random.default_rng(18))
    with pytest.warns(ConvergenceWarning, match="R-hat"):
        regression.infer(made, PRIOR, method="gibbs-update", draws=80, burn_in=0, thin=1, rng=np.random.default_rng(19))


def test_what_is_wrong_is_named():
    x, y = line(20)
    made = regression.release(x, y, **BOUNDS, epsilon=1.0, rng=np.random.default_rng(20))
    with pytest.raises(ValueError, match="release must hold moments for method 'gibbs-noisy'"):
        regression.infer(made, PRIOR, method="gibbs-noisy")
    with pytest.raises(ValueError, match="covariates must have dof > d \\+ 3 = 4 for gibbs-prior"):
        regression.infer(made, PRIOR, method="gibbs-prior", covariates=regression.NormalInverseWishart(0, 1, 1, 4))
    with pytest.raises(TypeError, match="thinning"):
        regression.infer(made, PRIOR, method="gibbs-update", thinning=3)
    with pytest.raises(ValueError, match="invalid must be one of"):
        regression.infer(made, PRIOR, method="gibbs-update", invalid="ignore")
