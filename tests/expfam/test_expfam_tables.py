"""The default prior of a noisy table: exact for tiny tables, calibrated, and honest where noise drowns the counts."""

import itertools
import warnings

import numpy as np
import pytest
from scipy import special, stats

from dpbook import expfam
from dpbook.doubts import ManyClipped, PriorDecides
from dpbook.expfam.simulated import share_widths
from dpbook.expfam.table_counts import (
    NoisyTable,
    draw_mixed_counts,
    draw_own_shares,
    draw_probabilities,
    log_evidence,
    shared_out,
)


def enumerated(noisy, scale, n, alpha, laplace):
    """Return all tables of n records, and their log probabilities together with the noisy one, n! left out."""
    tables = np.array([h for h in itertools.product(range(n + 1), repeat=noisy.size) if sum(h) == n], dtype=float)
    away = (noisy - tables) / scale
    noise = -np.abs(away).sum(axis=1) if laplace else -0.5 * (away**2).sum(axis=1)
    of = special.gammaln(alpha + tables) - special.gammaln(alpha) - special.gammaln(tables + 1)
    total = special.gammaln(alpha.sum()) - special.gammaln(alpha.sum() + n)
    return tables, of.sum(axis=1) + total + noise


@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize("noisy", [[5.0, -2.0, 1.0], [30.0, -2.0, -9.0], [1.0, 1.0, 3.0]])
@pytest.mark.parametrize("total", [0.05, 1.5, 50.0])
def test_the_evidence_of_a_release_is_that_of_enumeration(laplace, noisy, total):
    noisy, alpha = np.array(noisy), np.full(3, total / 3)
    _, log_joint = enumerated(noisy, 2.0, 6, alpha, laplace)
    assert log_evidence(NoisyTable(noisy, 2.0, 6, alpha, laplace)) == pytest.approx(special.logsumexp(log_joint))


def test_counts_under_the_mixture_are_those_of_enumeration():
    """20,000 draws of 28 tables: a χ² beyond its 1e-4 quantile is a false alarm in one of 10,000."""
    noisy, (alphas, weights) = np.array([6.0, 3.5, -4.0]), shared_out(3)
    parts = [enumerated(noisy, 3.0, 6, alpha, True) for alpha in alphas]
    log_joint = np.stack([each + np.log(w) for (_, each), w in zip(parts, weights, strict=True)])
    expected = np.exp(log_joint - special.logsumexp(log_joint)).sum(axis=0)
    table = NoisyTable(noisy, 3.0, 6, alphas[0], True)
    drawn, which = draw_mixed_counts(table, alphas, weights, 20_000, np.random.default_rng(1))
    found = (drawn[:, None] == parts[0][0]).all(axis=2).sum(axis=0)
    assert stats.chisquare(found, 20_000 * expected / expected.sum()).pvalue > 1e-4
    of_prior = np.exp(log_joint - special.logsumexp(log_joint)).sum(axis=1)
    assert stats.chisquare(np.bincount(which, minlength=7), 20_000 * of_prior).pvalue > 1e-4


def test_shares_are_calibrated_where_they_come_from_the_prior():
    """Ranks of 300 tables of 8 cells: KS and variance tests at .001 each, two cells, a false alarm in 250."""
    rng, (alphas, weights) = np.random.default_rng(2), shared_out(8)
    ranks = []
    for _ in range(300):
        alpha = alphas[rng.choice(len(weights), p=weights)]
        truth = draw_probabilities(np.zeros(8), alpha, rng)
        noisy = rng.multinomial(80, truth) + rng.laplace(scale=6.0, size=8)
        table = NoisyTable(noisy, 6.0, 80, alpha, True)
        counts, which = draw_mixed_counts(table, alphas, weights, 99, rng)
        shares = draw_probabilities(counts, alphas[which], rng)
        largest = np.argsort(noisy)[[-1, 0]]  # chosen by the release, which a posterior must bear
        ranks.append(((shares[:, largest] < truth[largest]).sum(axis=0) + rng.random(2)) / 100)
    for each in np.array(ranks).T:
        assert stats.kstest(each, "uniform").pvalue > 0.001
        spread = np.var(each) * 300 / (1 / 12)
        assert 300 - 3.3 * np.sqrt(300 * 0.8) < spread < 300 + 3.3 * np.sqrt(300 * 0.8)


def covered(shares, n, epsilon, trials, seed, alone=False):
    """Return how often the 95 % interval of each cell holds its share."""
    rng, truth = np.random.default_rng(seed), np.asarray(shares)
    noisy = [
        expfam.release_histogram(
            rng.choice(truth.size, n, p=truth), labels=list(range(truth.size)), epsilon=epsilon, rng=rng
        )
        for _ in range(trials)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = expfam.infer(noisy, draws=400, rng=rng)
    ends = np.array([(each.alone() if alone else each).interval(0.95, "probabilities") for each in found])
    return ((ends[..., 0] <= truth) & (truth <= ends[..., 1])).mean(axis=0), found


ONE_LARGE = [0.85, 0.13] + [0.02 / 18] * 18


def test_one_large_cell_among_empty_ones_is_covered():
    """80 tables of 20 cells, n = 2000, epsilon .3, where half a record in each cell covered .0 to .8."""
    found, _ = covered(ONE_LARGE, 2000, 0.3, 80, 3)
    assert found[:2].min() >= 0.87  # .95 gives less with a probability of .003


def test_where_noise_drowns_the_counts_the_posterior_says_so_and_each_share_by_itself_still_holds():
    """60 tables of 10 cells, n = 60, epsilon .3."""
    shares = [0.85, 0.13] + [0.02 / 8] * 8
    held, found = covered(shares, 60, 0.3, 60, 4, alone=True)
    assert held[:2].min() >= 0.86
    assert all([type(doubt) for doubt in each.doubts] == [PriorDecides] for each in found)
    assert "alone()" in found[0].doubts[0].remedy


def test_a_table_with_little_noise_and_one_with_a_prior_of_ones_own_are_not_doubted():
    rng = np.random.default_rng(5)
    clear = expfam.release_histogram(rng.choice(4, 2000), labels=list(range(4)), epsilon=1.0, rng=rng)
    assert expfam.infer(clear, rng=rng).doubts == ()
    drowned = expfam.release_histogram(rng.choice(4, 20), labels=list(range(4)), epsilon=0.1, rng=rng)
    assert expfam.infer(drowned, expfam.Dirichlet([1, 1, 1, 1]), rng=rng).doubts == ()
    with pytest.warns(PriorDecides, match="the prior decides"):
        expfam.infer(drowned, rng=rng)


def test_a_share_by_itself_is_that_of_its_noisy_count():
    """Against the mixture over all counts of a binomial with Jeffreys's prior."""
    table = NoisyTable(np.array([14.0, 2.0]), 5.0, 40, np.ones(2), True)
    drawn = draw_own_shares(table, 20_000, np.random.default_rng(6))[:, 0]
    h = np.arange(41.0)
    mass = np.exp(special.betaln(h + 0.5, 40.5 - h) - special.betaln(h + 1, 41 - h) - np.abs(14 - h) / 5)
    at = np.linspace(0.05, 0.9, 30)
    exact = stats.beta.cdf(at[:, None], h + 0.5, 40.5 - h) @ (mass / mass.sum())
    assert np.abs(np.mean(drawn[:, None] <= at, axis=0) - exact).max() < 0.016  # 4.5 standard errors


def test_a_quantile_beyond_the_bins_is_doubted_unless_the_ends_are_stated():
    rng = np.random.default_rng(7)
    posterior = expfam.infer(
        expfam.release_histogram(rng.exponential(1, 5000), [0, 1, 2], epsilon=2.0, rng=rng), rng=rng
    )
    with pytest.warns(ManyClipped, match="above 2 with probability 1"):
        outside = posterior.population_quantile(0.99)
    assert outside.mean("quantile") == 2.0
    stated = posterior.population_quantile(0.99, tail=(0, 20))
    assert stated.doubts == ()
    assert stated.mean("highest") == 20.0
    assert 2 < stated.mean("quantile") < 20
    assert posterior.population_quantile(0.5).doubts == ()
    with pytest.raises(ValueError, match="tail must reach beyond"):
        posterior.population_quantile(0.5, tail=(0, 1))


def test_the_preview_of_sparse_tables_has_the_widths_of_infer():
    """60 releases; a median width is off by 5 % or less, and the preview's own error is about as large."""
    shares, n, epsilon = [0.02] * 10 + [0.8], 1000, 0.3
    _, found = covered(shares, n, epsilon, 60, 8)
    widths = np.median([np.ptp(each.interval(0.95, "probabilities"), axis=1) for each in found], axis=0)
    alphas, weights = shared_out(11)
    look = np.median(share_widths(np.array(shares), alphas, weights, n, 2 / epsilon, True), axis=0)
    assert look[-1] == pytest.approx(widths[-1], rel=0.1)
    assert look[:10].mean() == pytest.approx(widths[:10].mean(), rel=0.1)
