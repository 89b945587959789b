"""Regression without a stated prior: laws against simulation, beliefs against densities, coverage on others' data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

from dpbook import regression
from dpbook.moments import NoisySums, _Likelihood, normal_nodes, sample
from dpbook.regression.clipped_records import ClippedRecords
from dpbook.regression.fixed_design import FixedDesign
from dpbook.regression.latent import LatentRegression
from dpbook.regression.layout import Layout
from dpbook.regression.scale_free import Softened, Straightened
from dpbook.regression.task import CovariatePrior, ParameterPrior

SHAPES = [(1, True), (3, True), (2, False)]


def clipped(d, intercept, size=64):
    low = -np.ones((1, d + 1)) if intercept else np.array([[0.0] * d + [-0.5]])
    return ClippedRecords(Layout(d, intercept), low, np.ones((1, d + 1)), normal_nodes(size, d))


@pytest.mark.parametrize(("d", "intercept"), SHAPES)
@pytest.mark.parametrize("law_of", [lambda d, i: FixedDesign(Layout(d, i)), clipped], ids=["design", "clipped"])
@pytest.mark.parametrize("coordinates", ["as it is", "straightened", "height too"])
def test_the_gradient_is_that_of_the_log_density(law_of, d, intercept, coordinates):
    law, rng = law_of(d, intercept), np.random.default_rng(1)
    k = Layout(d, intercept).size
    sums = NoisySums(50 * rng.normal(size=(4, k)), np.full((4, 1), 7.0), np.full(4, 100.0), True)
    law = {"as it is": law, "straightened": Straightened(law), "height too": Straightened(law, sums)}[coordinates]
    density = _Likelihood(law, sums).density(rng.gamma(2, 50, size=(4, k)))
    at = 0.5 * rng.normal(size=(law.dim, 4))
    steps = 1e-6 * np.eye(law.dim)[..., None]
    slope = np.stack([(density(at + h)[0] - density(at - h)[0]) / 2e-6 for h in steps])
    gradient = density(at)[1]
    np.testing.assert_allclose(slope, gradient, atol=1e-7 * np.abs(gradient).max())


def test_moments_of_clipped_records_are_those_of_simulated_ones():
    """Means within five standard errors of 400,000 records, covariances within 2 % of their size."""
    law, rng = clipped(2, True, 4096), np.random.default_rng(2)
    at = np.array([0.3, 0.8, -0.4, np.log(0.5), 0.2, -0.3, np.log(0.5), np.log(0.4), 0.7])[:, None]
    mean, cov, _ = law.moments(at)
    theta, sigma2 = law.parameters(at)
    root = law.covariate_root(at)
    n = 400_000
    x = at[law.places.centre].T + rng.normal(size=(n, 2)) @ root[0].T
    y = theta[0, 0] + x @ theta[0, 1:] + np.sqrt(sigma2) * rng.normal(size=n)
    u = np.column_stack([np.ones(n), np.clip(x, -1, 1), np.clip(y, -1, 1)])
    layout = law.places.layout
    drawn = u[:, layout.rows] * u[:, layout.columns]
    spread = np.cov(drawn, rowvar=False)
    assert (np.abs(drawn.mean(axis=0) - mean[0]) < 5 * np.sqrt(np.diag(spread) / n) + 1e-3).all()
    np.testing.assert_allclose(cov[0], spread, atol=0.02 * np.abs(spread).max())


def test_moments_of_a_fixed_design_are_those_of_new_responses_to_skewed_and_binary_covariates():
    rng = np.random.default_rng(3)
    n, trials = 40, 40_000
    x = np.column_stack([np.minimum(rng.exponential(0.2, n), 1), rng.random(n) < 0.2])
    w = np.column_stack([np.ones(n), x])
    theta, sigma = np.array([0.1, 0.5, -0.3]), 0.3
    y = w @ theta + sigma * rng.normal(size=(trials, n))
    sums = np.column_stack([y @ w, (y**2).sum(axis=1)])
    root = np.linalg.cholesky(w.T @ w / n)
    law = FixedDesign(Layout(2, True))
    at = np.zeros((law.dim, 1))
    tau = root.T @ theta
    sd = np.sqrt((root[1:, 1:] ** 2).sum(axis=1))
    share = sd / np.sqrt(1 - root[1:, 0] ** 2)
    at[:, 0] = [
        tau[0],
        *tau[1:] / sigma,
        np.log(sigma),
        *np.arctanh(root[1:, 0]),
        *np.log(share / (1 - share)),
        root[2, 1] / root[2, 2],
    ]
    mean, cov, _ = law.moments(at)
    order = [*law.places.with_y, law.places.y_squared]
    np.testing.assert_allclose(law.parameters(at)[0][0], theta, atol=1e-12)
    np.testing.assert_allclose(n * mean[0][law.places.of_x], (w.T @ w)[*np.triu_indices(3)][1:], atol=1e-10)
    spread = np.cov(sums, rowvar=False)
    assert (np.abs(n * mean[0][order] - sums.mean(axis=0)) < 5 * np.sqrt(np.diag(spread) / trials)).all()
    np.testing.assert_allclose(n * cov[0][np.ix_(order, order)], spread, atol=0.03 * np.abs(spread).max())


@pytest.mark.parametrize(("d", "intercept"), SHAPES)
def test_conjugate_beliefs_are_the_densities_of_the_parameters(d, intercept):
    """Differences of log densities of positions, against SciPy's and the volume of the map."""
    rng, q = np.random.default_rng(4), d + intercept
    law = clipped(d, intercept)
    scale = np.cov(rng.normal(size=(d, 20))).reshape(d, d) + np.eye(d)
    prior = ParameterPrior(rng.normal(size=(2, q)), np.tile(np.diag(rng.gamma(2, size=q)), (2, 1, 1)), *np.ones((2, 2)))
    covariates = CovariatePrior(np.zeros((2, d)), np.full(2, 1.5), np.tile(scale, (2, 1, 1)), np.full(2, d + 3.0))
    at = 0.5 * rng.normal(size=(law.dim, 2))
    value, gradient = law.conjugate_prior(at, prior, covariates)

    def natural(p):
        theta, sigma2 = law.parameters(p[:, None])
        root = law.covariate_root(p[:, None])[0]
        return np.concatenate([theta[0], sigma2, p[law.places.centre], (root @ root.T)[np.tril_indices(d)]])

    expected = []
    for b in range(2):
        steps = 1e-6 * np.eye(law.dim)
        volume = np.stack([(natural(at[:, b] + h) - natural(at[:, b] - h)) / 2e-6 for h in steps], axis=1)
        theta, sigma2, mean, rest = np.split(natural(at[:, b]), [q, q + 1, q + 1 + d])
        cov = np.zeros((d, d))
        cov[np.tril_indices(d)] = rest
        cov = cov + np.tril(cov, -1).T
        spread = sigma2 * np.linalg.inv(prior.precision[b])
        expected.append(
            stats.multivariate_normal.logpdf(theta, prior.mean[b], spread)
            + stats.invgamma.logpdf(sigma2[0], 1.0, scale=1.0)
            + stats.invwishart.logpdf(cov, d + 3.0, scale)
            + stats.multivariate_normal.logpdf(mean, np.zeros(d), cov / 1.5)
            + np.linalg.slogdet(volume)[1]
        )
    assert value[0] - value[1] == pytest.approx(expected[0] - expected[1], abs=1e-6)
    steps = 1e-6 * np.eye(law.dim)[..., None]
    ends = [[law.conjugate_prior(at + s * h, prior, covariates)[0] for s in (1, -1)] for h in steps]
    np.testing.assert_allclose(gradient, [(up - down) / 2e-6 for up, down in ends], atol=1e-5 * np.abs(gradient).max())


@pytest.mark.parametrize(("d", "intercept"), SHAPES)
def test_straightened_coordinates_keep_the_density(d, intercept):
    """The log prior grows by the log of the map's volume, and the map is undone by its inverse."""
    rng, law = np.random.default_rng(11), FixedDesign(Layout(d, intercept))
    sums = NoisySums(20 * rng.normal(size=(2, Layout(d, intercept).size)), np.full((2, 1), 7.0), np.full(2, 50.0), True)
    other = Straightened(law, sums)
    at = 0.7 * rng.normal(size=(law.dim, 2))
    np.testing.assert_allclose(other.straight(other.bent(at)), at, atol=1e-12)
    steps = 1e-6 * np.eye(law.dim)[..., None]
    volume = np.stack([(other.bent(at + h) - other.bent(at - h)) / 2e-6 for h in steps], axis=1)
    sizes = [np.linalg.slogdet(volume[..., b])[1] for b in range(2)]
    np.testing.assert_allclose(other.log_prior(at)[0] - law.log_prior(other.bent(at))[0], sizes, atol=1e-7)


@pytest.mark.parametrize(("d", "intercept"), SHAPES)
@pytest.mark.parametrize("law_of", [lambda d, i: FixedDesign(Layout(d, i)), clipped], ids=["design", "clipped"])
def test_softened_coordinates_keep_the_density(law_of, d, intercept):
    """Gradient, volume and inverse, from variances far below the noise to shares near one."""
    rng, law = np.random.default_rng(12), law_of(d, intercept)
    k = Layout(d, intercept).size
    sums = NoisySums(20 * rng.normal(size=(3, k)), np.full((3, 1), 1.0), np.full(3, 50.0), True)
    inner, other = Straightened(law, sums), Softened(law, sums)
    at = 0.7 * rng.normal(size=(law.dim, 3))
    at[law.places.log_error] = [-6.0, 0.3, 0.7 / other._unit[0, 2]]
    at[law.places.spread] = np.array([1.1 / other._unit[1, 0], -5.0, 0.5 / other._unit[1, 2]])
    np.testing.assert_allclose(other.soft(other._bent(at)[0]), at, rtol=1e-7)
    steps = 1e-6 * np.eye(law.dim)[..., None]
    volume = np.stack([(other._bent(at + h)[0] - other._bent(at - h)[0]) / 2e-6 for h in steps], axis=1)
    sizes = [np.linalg.slogdet(volume[..., b])[1] for b in range(3)]
    np.testing.assert_allclose(other.log_prior(at)[0] - inner.log_prior(other._bent(at)[0])[0], sizes, atol=1e-6)
    density = _Likelihood(other, sums).density(rng.gamma(2, 50, size=(3, k)))
    slope = np.stack([(density(at + h)[0] - density(at - h)[0]) / 2e-6 for h in steps])
    gradient = density(at)[1]
    np.testing.assert_allclose(slope, gradient, atol=1e-6 * np.abs(gradient).max())


def test_positions_and_parameters_are_inverse_to_each_other():
    law, rng = clipped(3, True), np.random.default_rng(5)
    at = 0.5 * rng.normal(size=(law.dim, 4))
    root = law.covariate_root(at)
    back = law.position_of(*law.parameters(at), at[law.places.centre].T, root @ root.swapaxes(1, 2))
    np.testing.assert_allclose(back, at, atol=1e-10)


def made(rng, n, *, slope=0.6, noise=0.2, spread=0.3, y_bounds=(-1, 1), epsilon=1.0, x_bounds=(-1, 1)):
    x = rng.normal(0, spread, n)
    y = 0.1 + slope * x + noise * rng.normal(size=n)
    return regression.release(x, y, x_bounds=x_bounds, y_bounds=y_bounds, epsilon=epsilon, rng=rng)


def test_the_method_is_chosen_by_what_the_release_shows():
    rng = np.random.default_rng(6)
    releases = [made(rng, 2000), made(rng, 2000, y_bounds=(-0.2, 0.2)), made(rng, 12, epsilon=5.0)]
    found = regression.infer(releases, draws=200, chains=4, rng=rng)
    assert [each.method for each in found] == ["fixed-design", "fixed-design or moments", "records"]
    x = rng.uniform(0, 1, 500)
    yes = (rng.random(500) < 0.2 + 0.5 * x).astype(float)
    answers = regression.release(x, yes, x_bounds=(0, 1), y_bounds=(0, 1), epsilon=3.0, rng=rng)
    assert regression.infer(answers, draws=40, chains=2, rng=rng).method == "fixed-design"
    assert found[1].draws["theta"].shape == (4, 50, 2)
    assert "The sums do not tell" in found[1].notes[0]
    assert "n = 12" in repr(found[2].summary())
    with pytest.raises(ValueError, match="prior must be left out for method 'fixed-design'"):
        regression.infer(releases[0], regression.NormalInverseGamma(0, 1, 2, 1), method="fixed-design")
    with pytest.raises(ValueError, match="covariates can be stated only together with prior"):
        regression.infer(releases[0], covariates=regression.NormalInverseWishart(0, 1, 1, 3))
    with pytest.raises(TypeError, match="prior must be"):
        regression.infer(releases[0], method="collapsed")


@pytest.mark.parametrize(
    ("options", "truth", "trials"),
    [
        ({"n": 2000, "epsilon": 1.0, "x_bounds": (-5, 5), "y_bounds": (-5, 5)}, (0.1, 0.6), 100),
        ({"n": 600, "epsilon": 30.0, "spread": 0.03, "slope": 2.0, "noise": 0.1}, (0.1, 2.0), 100),
        ({"n": 2000, "epsilon": 1.0, "y_bounds": (-0.2, 0.2)}, (0.1, 0.6), 40),
    ],
    ids=["bounds five times too wide", "hardly any spread", "half clipped"],
)
def test_intervals_hold_on_designs_of_others(options, truth, trials):
    """Fewer hits of a 95 % interval happen in one of 5,000 runs."""
    rng = np.random.default_rng(7)
    releases = [made(rng, **options) for _ in range(trials)]
    found = regression.infer(releases, draws=2400, chains=4, rng=rng)
    intervals = np.stack([each.interval(0.95, "theta") for each in found])
    hits = ((intervals[..., 0] <= truth) & (truth <= intervals[..., 1])).sum(axis=0)
    assert (hits >= stats.binom.ppf(2e-4, trials, 0.95)).all(), hits


def test_a_skewed_response_that_touches_no_bound_is_not_taken_for_a_clipped_one():
    """By "moments" alone hardly one of 24 holds. Fewer than 19 hits of a 95 % interval: one run in 5,000."""
    rng = np.random.default_rng(10)
    releases = []
    for _ in range(24):
        x = np.minimum(rng.exponential(0.15, 5000), 2.0) - 1
        y = 0.2 + 0.8 * x + 0.1 * rng.uniform(-1, 1, size=5000)
        releases.append(regression.release(x, y, x_bounds=(-1, 1), y_bounds=(-0.7, 0.9), epsilon=3.0, rng=rng))
    found = regression.infer(releases, draws=1000, rng=rng)
    assert all(each.method == "fixed-design or moments" for each in found)
    intervals = np.stack([each.interval(0.95, "theta") for each in found])
    hits = ((intervals[..., 0] <= (0.2, 0.8)) & (intervals[..., 1] >= (0.2, 0.8))).sum(axis=0)
    assert (hits >= 19).all(), hits


def test_moments_and_latent_records_agree_where_half_of_the_responses_are_clipped():
    """Medians within a fifth of an interval's half width, widths within a third."""
    rng = np.random.default_rng(8)
    release = made(rng, 60, y_bounds=(-0.3, 0.3), epsilon=10.0)
    by_moments = regression.infer(release, method="moments", draws=4000, chains=10, rng=rng)
    by_records = regression.infer(release, method="records", draws=4000, chains=10, rng=rng)
    one, other = (each.interval(0.95, "theta") for each in (by_moments, by_records))
    middle = [each.quantile(0.5, "theta") for each in (by_moments, by_records)]
    half = (other[:, 1] - other[:, 0]) / 2
    assert (np.abs(middle[0] - middle[1]) < 0.2 * half).all()
    np.testing.assert_allclose((one[:, 1] - one[:, 0]) / 2, half, rtol=0.34)


@pytest.mark.parametrize(
    ("sums_noise", "tolerance"), [(1e-6, 0.05), (2.0, 0.15)], ids=["no noise to speak of", "much noise"]
)
def test_beliefs_keep_their_meaning_when_bounds_are_quadrupled(sums_noise, tolerance):
    """The same sums with the same noise, in the data's units, read in bounds and in bounds four times as wide.

    Interval ends move by less than a share of the interval: without noise by Monte-Carlo error alone, with noise by
    what a tilt of sigma^0.35 and tau^0.62 does besides.
    """
    rng = np.random.default_rng(9)
    n, k = 400, 5
    x = rng.normal(0, 0.2, n)
    y = 0.1 + 0.7 * x + 0.1 * rng.normal(size=n)
    exact = np.array([x.sum(), y.sum(), x @ x, x @ y, y @ y]) + sums_noise * rng.laplace(size=k)
    ends = []
    for factor in (1.0, 4.0):
        unit = factor ** np.array([1, 1, 2, 2, 2])
        sums = NoisySums((exact / unit)[None], (sums_noise / unit)[None], np.array([float(n)]), True)
        law = Softened(FixedDesign(Layout(1, True)), sums)
        position = sample(law, sums, per_chain=800, chains=10, rng=np.random.default_rng(1))
        theta, _ = law.parameters(np.moveaxis(position, -1, 0).reshape(law.dim, -1))
        ends.append(np.quantile(theta * [factor, 1.0], (0.025, 0.975), axis=0))
    width = ends[0][1] - ends[0][0]
    assert (np.abs(ends[0] - ends[1]) < tolerance * width).all(), (ends, width)


def test_what_clipping_moves_is_what_it_moves_in_simulated_records():
    """The shift of the means of w y and y², within five standard errors of 400,000 normal records."""
    rng, law, n = np.random.default_rng(13), FixedDesign(Layout(1, True)), 400_000
    x = 0.2 + 0.3 * rng.normal(size=n)
    y = 0.1 + 0.7 * x + 0.2 * rng.normal(size=n)
    share = 0.3 / np.sqrt(1 - 0.2**2)
    at = np.array([0.24, 0.7 * 0.3 / 0.2, np.log(0.2), np.arctanh(0.2), np.log(share / (1 - share))])[:, None]
    cut = np.clip(y, -0.3, 0.4)
    part, moved, _ = law.clipped(at, np.array([-0.3]), np.array([0.4]))
    assert part[0] == pytest.approx(np.mean(y != cut), abs=0.005)
    for statistic, change in ((law.places.with_y[0], cut - y), (law.places.with_y[1], x * (cut - y))):
        assert abs(moved[0, statistic] - change.mean()) < 5 * change.std() / np.sqrt(n)
    change = cut**2 - y**2
    assert abs(moved[0, law.places.y_squared] - change.mean()) < 5 * change.std() / np.sqrt(n)


def doubts_of(release, prior=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = regression.infer(release, prior, draws=40, chains=2, rng=np.random.default_rng(1), **options)
    return {type(doubt).__name__ for doubt in found.doubts} - {"ConvergenceWarning", "FewDraws"}


def test_a_posterior_speaks_of_clipping_few_records_and_a_prior_in_conflict():
    rng = np.random.default_rng(14)
    cut, whole, few = made(rng, 2000, y_bounds=(-0.2, 0.2)), made(rng, 2000), made(rng, 12, epsilon=1e4)
    assert doubts_of(cut, method="fixed-design", warm_up=20) == {"ManyClipped"}
    assert doubts_of(whole, method="fixed-design", warm_up=20) == set()
    assert doubts_of(few, method="fixed-design", warm_up=20) == {"PoorApproximation"}
    assert doubts_of(whole, regression.NormalInverseGamma(0, 1, 2, 0.1), warm_up=20) == set()
    assert doubts_of(whole, regression.NormalInverseGamma([0.9, 0], 1e4, 50, 0.05), warm_up=20) == {"PriorConflict"}


def test_a_vast_prior_is_told_to_narrow_and_a_narrow_one_to_widen():
    """A million times the variance: nearly all responses that such a prior expects are clipped, and these are not."""
    release = made(np.random.default_rng(14), 2000)
    said = []
    for precision in (1e-6, 1e4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prior = regression.NormalInverseGamma([0.9, 0], precision, 50, 0.05)
            found = regression.infer(release, prior, draws=40, chains=2, warm_up=20, rng=np.random.default_rng(1))
        said += [doubt.remedy for doubt in found.doubts if type(doubt).__name__ == "PriorConflict"]
    assert ["narrow" in remedy for remedy in said] == [True, False]
    assert "widen" in said[1]


def test_latent_records_move_with_their_parameters():
    """A proposal keeps the innovations: taken back by the inverse move, it gives the same records."""
    rng = np.random.default_rng(10)
    ones = np.ones((3, 1, 3))
    model = LatentRegression(Layout(2, True), -ones, ones)
    start = model.start(NoisySums(np.zeros((3, 9)) + 5.0, np.ones(3), np.full(3, 20.0), True))
    records = model.propose(start, 20, rng)
    moved, new, _ = model.move(start, records, rng)
    scores = [
        np.linalg.solve(np.linalg.cholesky(p.cov_x)[:, None], (r[..., :2] - p.mean_x[:, None])[..., None])[..., 0]
        for p, r in ((start, records), (moved, new))
    ]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)


def _log_odds(law, scores):
    """Log odds of a covariate's share from its prior, by the inverse of the distribution function on a grid."""
    grid = np.zeros((law.dim, 60_001))
    grid[law.places.spread] = odds = np.linspace(-12.0, 48.0, 60_001)
    below = np.cumsum(np.exp(law.log_prior(grid)[0] - law.log_prior(grid)[0].max()))
    return np.interp(stats.norm.cdf(scores), below / below[-1], odds)


def from_own_prior(law, rng, size):
    """Positions (dim, size) from the beliefs of a law of one covariate with an intercept."""
    at, places = np.empty((law.dim, size)), law.places
    at[places.height], at[places.slopes] = rng.normal(size=size), rng.standard_cauchy(size)
    at[places.log_error] = np.log(0.1) + 2 * rng.normal(size=size)
    z = rng.normal(size=size)
    at[places.spread] = _log_odds(law, z) if law.bounded else np.log(0.2) + 1.5 * z
    at[places.centre] = np.arctanh(rng.uniform(-1, 1, size)) if law.bounded else rng.normal(size=size)
    return at


@pytest.mark.parametrize("kind", ["fixed-design", "moments"])
def test_posteriors_are_calibrated_under_their_own_beliefs(kind):
    """Ranks of 120 or 50 true values: KS and variance at a false-alarm rate of 1e-4 each, six tests a method."""
    rng, n = np.random.default_rng(15), 500
    trials = 50 if kind == "moments" else 120  # which takes its time
    if kind == "moments":
        law = ClippedRecords(Layout(1, True), -np.ones((1, 2)), np.ones((1, 2)), normal_nodes(64, 1))
    else:
        law = FixedDesign(Layout(1, True))
    truth = from_own_prior(law, rng, trials)
    mean, cov, _ = law.moments(truth)
    size, axes = np.linalg.eigh(n * cov)
    root = axes * np.sqrt(np.maximum(size, 0.0))[:, None]
    exact = n * mean + (root @ rng.normal(size=(trials, 5, 1)))[..., 0]
    sums = NoisySums(exact + 5 * rng.laplace(size=exact.shape), np.full(trials, 5.0), np.full(trials, float(n)), True)
    walk = Softened(law, sums)
    position = sample(walk, sums, per_chain=200, chains=4, rng=rng)[:, ::10]
    shape = position.shape[:3]
    theta, sigma2 = walk.parameters(np.moveaxis(position, -1, 0).reshape(law.dim, -1))
    drawn = np.column_stack([theta, sigma2]).reshape(-1, shape[2], 3)
    true_theta, true_sigma2 = law.parameters(truth)
    ranks = (drawn < np.column_stack([true_theta, true_sigma2])).mean(axis=0)
    for rank in ranks.T:
        assert stats.kstest(rank, "uniform").pvalue > 1e-4
        spread = stats.norm.ppf(np.clip(rank, 0.5 / len(drawn), 1 - 0.5 / len(drawn)))
        low, high = stats.chi2.ppf((5e-5, 1 - 5e-5), trials) / trials
        assert low < np.mean(spread**2) < high
