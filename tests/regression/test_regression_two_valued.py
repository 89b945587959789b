"""A fixed design whose covariates sit at their bounds: dummies, rare events, skewed columns in generous bounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dpbook import regression
from dpbook._mixing import rhat
from dpbook.moments import NoisySums
from dpbook.regression.fixed_design import FixedDesign
from dpbook.regression.layout import Layout

pytestmark = pytest.mark.filterwarnings("ignore::dpbook.Doubt")  # responses fill their bounds, and chains are short

SHARE = 1 / (1 + 5 * np.exp(-1.5 * 1.5**2))  # from which on the belief about a covariate's sd is no longer log-normal


def beliefs_about_a_spread(log_odds):
    """The log density of a covariate's log odds and its derivative, up to a constant, the other unknowns at zero."""
    law = FixedDesign(Layout(1, True))
    at = np.zeros((law.dim, len(log_odds)))
    at[law.places.spread] = log_odds
    value, gradient = law.log_prior(at)
    return value, gradient[law.places.spread][0]


def test_shares_up_to_085_have_log_normal_odds_and_the_rest_the_tail_of_a_beta_law():
    joint = np.log(SHARE / (1 - SHARE))
    below = np.linspace(-8.0, joint, 50)
    value, slope = beliefs_about_a_spread(below)
    np.testing.assert_allclose(np.diff(value), np.diff(stats.norm.logpdf(below, np.log(0.2), 1.5)), atol=1e-12)
    assert slope[-1] == pytest.approx(-1.5)
    far = np.array([joint + 15, joint + 16])
    assert np.diff(beliefs_about_a_spread(far)[0]) == pytest.approx(-0.5, abs=1e-5)  # of the odds; beta's (1-p)^(-1/2)
    past = joint + np.linspace(0.01, 20, 40)
    numeric = (beliefs_about_a_spread(past + 1e-5)[0] - beliefs_about_a_spread(past - 1e-5)[0]) / 2e-5
    np.testing.assert_allclose(beliefs_about_a_spread(past)[1], numeric, atol=1e-6)


@pytest.mark.parametrize("share_of_ones", [0.5, 0.1, 0.002])
def test_chains_start_within_the_noise_of_the_sums_of_a_dummy(share_of_ones):
    n, scale = 20_000.0, 0.5
    centre = 2 * share_of_ones - 1
    rng = np.random.default_rng(1)
    exact = n * np.array([centre, 0.1, 1.0, 0.1 * centre, 0.05])  # x, y, x², xy, y²
    sums = NoisySums(exact + rng.laplace(scale=scale, size=(50, 5)), np.full(50, scale), np.full(50, n), True)
    law = FixedDesign(Layout(1, True))
    off = law.mean(law.start(sums))[:, law.places.of_x] - (exact / n)[law.places.of_x]
    assert np.abs(off).max() < 20 * scale / n


def releases_of(count, n, epsilon, seed, columns, slopes, sigma):
    """Releases of a line through columns in (0, 1), with uniform errors that stay in the response's bounds (0, 1)."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        x = columns(rng, n)
        y = 0.5 + (x - 0.5) @ slopes + sigma * np.sqrt(3) * rng.uniform(-1, 1, n)
        assert np.abs(y - 0.5).max() <= 0.5
        found.append(regression.release(x, y, x_bounds=(0, 1), y_bounds=(0, 1), epsilon=epsilon, rng=rng))
    return found


def three_columns(rng, n):
    return np.column_stack([rng.random(n) < 0.5, rng.random(n) < 0.1, rng.beta(4, 4, n)]).astype(float)


def in_generous_bounds(rng, n):
    return np.minimum(rng.lognormal(0, 0.7, (n, 1)), 100) / 100


@pytest.mark.parametrize(
    ("columns", "slopes"), [(three_columns, [0.2, 0.2, 0.2]), (in_generous_bounds, [0.5])], ids=["dummies", "skewed"]
)
def test_chains_agree_where_covariates_sit_at_their_bounds(columns, slopes):
    """R-hat was 2 to 5 in both designs while every chain started far from the bounds."""
    releases = releases_of(2, 20_000, 10.0, 2, columns, np.array(slopes), 0.02)
    for each in regression.infer(releases, method="fixed-design", draws=1600, chains=8, rng=np.random.default_rng(3)):
        drawn = np.concatenate([np.moveaxis(each.draws["theta"], -1, 0), each.draws["sigma2"][None]])
        assert rhat(drawn).max() < 1.05


def test_intervals_hold_for_the_effect_of_a_dummy_that_explains_nearly_all():
    """Sixty releases: ranks of true values average one half up to four standard errors, and 95 % intervals hold 54.

    By the tail of log-normal odds, which keeps the variance of a dummy from its bound, slopes had a mean rank of 0.17.
    """

    def dummy(rng, n):
        return (rng.random((n, 1)) < 0.5).astype(float)

    releases = releases_of(60, 2000, 1.0, 11, dummy, np.array([0.7]), 0.05)
    found = regression.infer(releases, method="fixed-design", draws=800, chains=4, rng=np.random.default_rng(5))
    drawn = np.stack([np.c_[each.draws["theta"].reshape(-1, 2), each.draws["sigma2"].ravel()] for each in found])
    ranks = (drawn < [0.15, 0.7, 0.05**2]).mean(axis=1)
    assert (np.abs(ranks.mean(axis=0) - 0.5) < 4 / np.sqrt(12 * 60)).all(), ranks.mean(axis=0)
    assert ((np.abs(ranks - 0.5) < 0.475).sum(axis=0) >= 54).all()


def test_without_noise_to_speak_of_a_dummys_posterior_is_that_of_least_squares():
    """Means within a fifth of a standard error, spreads within a tenth."""
    rng, n = np.random.default_rng(6), 400
    x = np.column_stack([rng.random(n) < 0.05, rng.random(n)]).astype(float)
    y = 0.3 + x @ [0.2, 0.3] + 0.05 * rng.normal(size=n)
    made = regression.release(x, y, x_bounds=(0, 1), y_bounds=(-0.5, 1.5), epsilon=1e5, rng=rng)
    found = regression.infer(made, method="fixed-design", draws=4000, rng=rng).draws["theta"].reshape(-1, 3)
    w = np.column_stack([np.ones(n), x])
    theta, (rest,) = np.linalg.lstsq(w, y)[:2]
    error = np.sqrt(rest / (n - 3) * np.diag(np.linalg.inv(w.T @ w)))
    assert (np.abs(found.mean(axis=0) - theta) < 0.2 * error).all()
    np.testing.assert_allclose(found.std(axis=0), error, rtol=0.1)
