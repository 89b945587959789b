"""Several releases of the same data are read as one: their noises are independent, the sums behind them the same."""

import itertools

import numpy as np
import pytest
from scipy import special, stats

from dpbook import expfam, together
from dpbook.diagnostics import calibrate
from dpbook.expfam import (
    Beta,
    Binomial,
    Dirichlet,
    Exponential,
    Gamma,
    Multinomial,
    Normal,
    NormalInverseGamma,
    Poisson,
)
from dpbook.expfam.noisy_moments import NoisyMoments, draw_mean_and_sd
from dpbook.expfam.table_counts import NoisyTable, draw_counts
from dpbook.latent_noise import normal_laplace_logpdf, normal_laplaces_logpdf

pytestmark = pytest.mark.filterwarnings("ignore::dpbook.Doubt")


def released(data, family, epsilons, rng, **options):
    return [expfam.release(data, family, epsilon=each, rng=rng, **options) for each in epsilons]


@pytest.mark.parametrize("n", [5, 60])
@pytest.mark.parametrize("epsilons", [(0.5, 0.5), (0.1, 3.0, 0.7)])
def test_the_binomial_posterior_is_that_of_an_enumeration_of_all_counts(n, epsilons):
    rng = np.random.default_rng(n)
    prior = Beta(2.0, 1.0)
    parts = released(rng.integers(0, 2, n), Binomial(), epsilons, rng)
    s = np.arange(n + 1)
    noise = sum(stats.laplace.logpdf(part["sum"][0], s, part.scale["sum"]) for part in parts)
    weights = special.softmax(stats.betabinom.logpmf(s, n, 2.0, 1.0) + noise)
    density = expfam.posterior_density(together(*parts), prior)
    theta = np.linspace(0.01, 0.99, 9)
    exact = np.sum(weights[:, None] * stats.beta.pdf(theta, 2.0 + s[:, None], 1.0 + n - s[:, None]), axis=0)
    np.testing.assert_allclose(density.pdf(theta), exact, rtol=1e-9, atol=1e-14)


def test_the_exact_posterior_of_few_counts_is_that_of_all_data_sets():
    """4 counts up to 3, by the law of their sum."""
    parts = released([0, 2, 3, 1], Poisson(0, 3), (0.7, 1.5), np.random.default_rng(2))
    theta = np.linspace(0.3, 5, 12)
    one = np.array([[*stats.poisson.pmf([0, 1, 2], t), stats.poisson.sf(2, t)] for t in theta])
    four = np.array([np.convolve(np.convolve(p, p), np.convolve(p, p)) for p in one])
    noise = np.exp(sum(stats.laplace.logpdf(part["sum"][0], np.arange(13), part.scale["sum"]) for part in parts))
    exact = np.log(four @ noise) + Gamma(2, 1).log_density(theta)
    density = np.log(expfam.posterior_density(together(*parts), Gamma(2, 1), method="exact").pdf(theta))
    np.testing.assert_allclose(density - density[0], exact - exact[0], atol=1e-6)


def test_a_million_records_and_noisy_counts_far_outside_are_no_trouble():
    rng = np.random.default_rng(3)
    parts = released(np.ones(1_000_000), Binomial(), (0.01, 0.02), rng)
    density = expfam.posterior_density(together(*parts), Beta(1, 1))
    assert 0.999 < density.mean <= 1
    far = [expfam.posterior_density(together(*released(np.ones(20), Binomial(), (0.01, 0.01), rng)), Beta(1, 1))]
    assert all(np.isfinite(each.sd) for each in far)


@pytest.mark.parametrize(("family", "prior", "data"), [
    (Poisson(0, 12), Gamma(2, 1), np.random.default_rng(1).poisson(3, 40)),
    (Exponential(0, 8), Gamma(2, 1), np.random.default_rng(2).exponential(1.5, 40)),
])  # fmt: skip
def test_a_collapsed_posterior_is_that_of_the_sum_integrated_out_by_quadrature(family, prior, data):
    parts = released(data, family, (0.4, 0.9), np.random.default_rng(4))
    theta = np.linspace(0.2, 6, 25)
    mean, each = family.released_moments(theta, "clip")
    s = np.linspace(-400, 800, 240_001)
    log_likelihood = []
    for m, v in zip(40 * mean[:, 0], 40 * each[:, 0], strict=True):
        log_terms = stats.norm.logpdf(s, m, np.sqrt(v))
        log_terms += sum(stats.laplace.logpdf(part["sum"][0], s, part.scale["sum"]) for part in parts)
        log_likelihood.append(special.logsumexp(log_terms))
    log_posterior = np.array(log_likelihood) + prior.log_density(theta)
    density = np.log(expfam.posterior_density(together(*parts), prior, method="collapsed").pdf(theta))
    np.testing.assert_allclose(density - density[5], log_posterior - log_posterior[5], atol=2e-4)


def test_integrated_over_one_noisy_value_the_density_is_that_of_the_other():
    y = np.linspace(-80, 80, 801)
    for other in (-3.0, 2.0):
        joint = [normal_laplaces_logpdf([other, each], 1.0, 4.0, [2.0, 3.0]) for each in y]
        assert special.logsumexp(joint) + np.log(0.2) == pytest.approx(
            normal_laplace_logpdf(other, 1.0, 4.0, 2.0), abs=1e-3
        )


def test_the_joint_density_loses_no_digits_where_noise_is_tiny_or_huge():
    tiny = normal_laplaces_logpdf([0.0, 1e-6], np.array([0.0, 300.0]), 1e4, [1e-6, 1e-6])
    np.testing.assert_allclose(np.diff(tiny), -0.5 * 300**2 / 1e4, rtol=1e-4)  # a normal density, at two places
    huge = normal_laplaces_logpdf([0.0, 1e6], np.array([0.0, 5e5]), 1e-4, [1e5, 1e5])
    np.testing.assert_allclose(huge, -10 - 2 * np.log(2e5), rtol=1e-6)


def test_one_with_hardly_any_noise_decides_alone():
    rng = np.random.default_rng(5)
    data = rng.poisson(3, 200)
    loud, quiet = released(data, Poisson(0, 15), (0.05, 200.0), rng)
    alone, both = (expfam.posterior_density(each, Gamma(1, 1)) for each in (quiet, together(loud, quiet)))
    assert both.mean == pytest.approx(alone.mean, rel=1e-3)
    assert both.sd == pytest.approx(alone.sd, rel=1e-2)


CASES = {
    "binomial": (Binomial(), Beta(1, 1), lambda rng: rng.integers(0, 2, 100)),
    "poisson": (Poisson(0, 12), Gamma(2, 1), lambda rng: rng.poisson(3, 100)),
    "multinomial": (Multinomial(3), Dirichlet([1, 1, 1]), lambda rng: rng.integers(0, 3, 100)),
    "normal": (Normal(-4, 4), NormalInverseGamma(0.0, 0.1, 2.0, 1.0), lambda rng: rng.normal(size=100)),
}


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("case", CASES)
def test_together_they_say_more_than_each_alone(case, mechanism):
    """The mean posterior sd over 6 pairs of releases, of the first component."""
    family, prior, draw = CASES[case]
    rng = np.random.default_rng(6)
    delta = {} if mechanism == "laplace" else {"delta": 1e-5}
    pairs = [released(draw(rng), family, (0.2, 0.2), rng, mechanism=mechanism, **delta) for _ in range(6)]
    both = expfam.infer([together(*pair) for pair in pairs], prior, draws=600, rng=rng)
    each = [expfam.infer([pair[i] for pair in pairs], prior, draws=600, rng=rng) for i in (0, 1)]
    width = [np.mean([np.ravel(one.sd("theta"))[0] for one in found]) for found in (both, *each)]
    assert width[0] < 0.93 * min(width[1:])


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_a_multinomial_agrees_with_an_enumeration(method):
    """60 records: the exact law of the counts, against independent draws and 20 chains of 500."""
    rng = np.random.default_rng(7)
    alpha = np.array([1.0, 2.0, 1.0])
    parts = released(rng.integers(0, 3, 60), Multinomial(3), (0.3, 0.5), rng)
    tables = np.array([(a, b, 60 - a - b) for a, b in itertools.product(range(61), repeat=2) if a + b <= 60])
    log_prior = (special.gammaln(tables + alpha) - special.gammaln(tables + 1)).sum(axis=1)
    noise = sum(stats.laplace.logpdf(part["sum"], tables, part.scale["sum"]).sum(axis=1) for part in parts)
    weights = special.softmax(log_prior + noise)
    mean = weights @ (tables + alpha) / 64
    second = weights @ ((tables + alpha) * (tables + alpha + 1)) / (64 * 65)
    found = expfam.infer(together(*parts), Dirichlet(alpha), method=method, draws=10_000, rng=rng)
    np.testing.assert_allclose(found.mean("theta"), mean, atol=0.012)
    np.testing.assert_allclose(found.sd("theta"), np.sqrt(second - mean**2), rtol=0.08)


def test_counts_behind_several_noisy_tables_follow_the_exact_law():
    """6 records in 3 cells: the law of 28 tables, chi-squared test with a false alarm of 1e-3."""
    noisy, scale = np.array([[3.5, 0.2, 1.0], [1.0, 2.0, 4.0]]), np.array([1.0, 2.0])
    mean = np.average(noisy, axis=0, weights=scale**-2.0)
    alpha = np.array([0.5, 1.0, 2.0])
    table = NoisyTable(mean, float((scale**-2.0).sum() ** -0.5), 6, alpha, True, (noisy, scale))
    drawn = draw_counts(table, 20_000, np.random.default_rng(8))
    tables = np.array([(a, b, 6 - a - b) for a, b in itertools.product(range(7), repeat=2) if a + b <= 6])
    log_law = (special.gammaln(tables + alpha) - special.gammaln(tables + 1)).sum(axis=1)
    log_law -= (np.abs(noisy[:, None] - tables) / scale[:, None, None]).sum(axis=(0, 2))
    expected = 20_000 * special.softmax(log_law)
    counts = np.array([np.all(drawn == each, axis=1).sum() for each in tables])
    often = expected > 5
    assert stats.chisquare(counts[often], expected[often] * counts[often].sum() / expected[often].sum()).pvalue > 1e-3


def test_the_mean_behind_several_noisy_moments_agrees_with_one_of_their_law():
    """Laplace noise on the sum alone matters: the law of S is a product of Laplace densities, by quadrature."""
    one = np.ones(1)
    total, scale = np.array([100.0, 130.0]), np.array([10.0, 20.0])
    parts = [
        NoisyMoments(t * one, 400 * one, b * one, 1e-3 * one, 2000 * one, True)
        for t, b in zip(total, scale, strict=True)
    ]
    weights = scale**-2.0
    mean = NoisyMoments(np.average(total, weights=weights) * one, 400 * one, weights.sum() ** -0.5 * one,
                        1e-3 * one, 2000 * one, True, tuple(parts))  # fmt: skip
    drawn, _ = draw_mean_and_sd(mean, 200_000, np.random.default_rng(9))
    s = np.linspace(-300, 500, 80_001)
    weight = special.softmax(-(np.abs(total[:, None] - s) / scale[:, None]).sum(axis=0))
    centre = weight @ s
    sampling = 400 - centre**2 / 2000  # variance of the sum, at the scatter that is known
    sd = np.sqrt(weight @ (s - centre) ** 2 + sampling)
    assert 2000 * drawn.mean() == pytest.approx(centre, abs=0.3)
    assert 2000 * drawn.std() == pytest.approx(sd, rel=0.02)


def test_means_and_histograms_are_read_together():
    rng = np.random.default_rng(10)
    data = rng.gamma(2, 10, 500)
    means = [[expfam.release_mean(data, (0, 80), epsilon=0.1, rng=rng) for _ in range(2)] for _ in range(8)]
    tables = [
        [expfam.release_histogram(data, [0, 10, 20, 80], epsilon=0.1, rng=rng) for _ in range(2)] for _ in range(8)
    ]
    for pairs, name in ((means, "mean"), (tables, "probabilities")):
        both = expfam.infer([together(*pair) for pair in pairs], rng=rng)
        alone = expfam.infer([pair[0] for pair in pairs], rng=rng)
        wide, narrow = (np.mean([np.ravel(one.sd(name))[-1] for one in found]) for found in (alone, both))
        assert narrow < 0.9 * wide


def test_a_batch_has_equally_many_put_together_where_chains_run_side_by_side():
    rng = np.random.default_rng(11)
    one, two, three = released(rng.integers(0, 3, 50), Multinomial(3), (1.0, 1.0, 1.0), rng)
    with pytest.raises(ValueError, match="equally many are put together"):
        expfam.infer([one, together(two, three)], Dirichlet([1, 1, 1]), method="gibbs")


def test_posteriors_of_releases_put_together_are_calibrated():
    """300 trials of a Poisson mean; KS and variance tests, Holm-corrected: a false alarm with probability 1e-2."""
    prior, family = Gamma(6, 2), Poisson(0, 15)

    def simulate(parameters, rng):
        data = [rng.poisson(t, 80) for t in parameters["theta"]]
        return [together(*released(each, family, (0.3, 0.6), rng)) for each in data]

    found = calibrate(
        lambda rng, count: {"theta": prior.draw(count, rng)},
        simulate,
        lambda made, rng: expfam.infer(made, prior, draws=100, chains=1, rng=rng),
        300,
        rng=np.random.default_rng(12),
    )
    assert found.passed(0.01), found.summary()
    assert found.contraction["theta"] > 0.3
