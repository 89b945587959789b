"""Few records: posteriors that are exact, against enumeration, convolution and simulation; what is said elsewhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from dpbook import Release, expfam
from dpbook.doubts import PoorApproximation
from dpbook.expfam import Dirichlet, Exponential, Gamma, Multinomial, Normal, NormalInverseGamma, Poisson
from dpbook.expfam.remarks import skewness_of_sums
from dpbook.expfam.whole_sums import WholeSum


def released(family, noisy, n, scale, mechanism="laplace", outside="clip"):
    return Release(
        values={"sum": np.atleast_1d(np.asarray(noisy, dtype=float))},
        model=family.name,
        mechanism=mechanism,
        scale={"sum": scale},
        sensitivity={"sum": 1.0},
        epsilon=1.0,
        delta=0.0 if mechanism == "laplace" else 1e-6,
        n=n,
        bounds={"x": family.bounds},
        settings={**family.settings, **({} if family.bounded else {"outside": outside})},
        float_safe=False,
    )


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("noisy", [[3.2, -1.0, 2.9], [-4.0, -4.0, 0.5]])
def test_five_records_in_three_categories_have_the_posterior_of_enumeration(noisy, mechanism):
    """20,000 independent draws: means within 4 standard errors (.0014 each), sds within 3 %."""
    alpha, n, scale = np.array([0.5, 1.0, 3.0]), 5, 1.7
    tables = np.array([h for h in itertools.product(range(n + 1), repeat=3) if sum(h) == n])
    away = (np.array(noisy) - tables) / scale
    fit = -np.abs(away).sum(axis=1) if mechanism == "laplace" else -0.5 * (away**2).sum(axis=1)
    log_weights = fit + stats.dirichlet_multinomial(alpha, n).logpmf(tables)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    after = alpha + tables
    total = after.sum(axis=1, keepdims=True)
    mean = weights @ (after / total)
    square = weights @ (after * (after + 1) / (total * (total + 1)))
    release = released(Multinomial(3), noisy, n, scale, mechanism)
    posterior = expfam.infer(release, Dirichlet(alpha), draws=20_000, rng=np.random.default_rng(1))
    assert posterior.method == "exact"
    sd = np.sqrt(square - mean**2)
    assert np.abs(posterior.mean("theta") - mean).max() < 4 * sd.max() / np.sqrt(20_000)
    assert posterior.sd("theta") == pytest.approx(sd, rel=0.03)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize(("bounds", "n", "noisy"), [((0, 4), 5, 7.3), ((2, 6), 3, 11.0), ((0, 3), 7, -4.0)])
def test_the_likelihood_of_few_counts_is_that_of_a_convolution(bounds, n, noisy, outside, mechanism):
    family, theta, counts = Poisson(*bounds), np.array([0.4, 1.5, 5.0]), np.arange(60.0)
    release = released(family, noisy, n, 2.5, mechanism, outside)
    found = WholeSum(release, *bounds)(theta)
    values = family.released(counts[:, None], outside)[:, 0].astype(int)
    expected = []
    for rate in theta:
        one = np.bincount(values, weights=stats.poisson(rate).pmf(counts), minlength=bounds[1] + 1)
        law = np.ones(1)
        for _ in range(n):
            law = np.convolve(law, one)
        noise = stats.laplace(scale=2.5) if mechanism == "laplace" else stats.norm(scale=2.5)
        expected.append(np.log(law @ noise.pdf(noisy - np.arange(law.size))))
    relative = np.exp(np.array(expected) - max(expected))
    assert np.exp(found - found.max()) == pytest.approx(relative, abs=1e-12)


def simulated(prior, draw, family, release, count, seed):
    """Return parameters from the prior, and their weights: the noise's density at the sums of made-up records."""
    rng = np.random.default_rng(seed)
    theta = prior.draw(count, rng)
    sums = family.released(draw(theta, release.n, rng).reshape(-1, 1), "clip").reshape(count, release.n, -1).sum(axis=1)
    weights = np.exp(-np.abs(release["sum"] - sums).sum(axis=-1) / release.scale["sum"])
    return theta, weights / weights.sum()


@pytest.mark.parametrize("scale", [0.2, 2.25])
def test_five_normal_records_have_the_posterior_of_simulation(scale):
    """400,000 simulated data sets, 10,000 draws of chains: quantiles' probabilities within .025."""
    family, prior = Normal(0, 20), NormalInverseGamma(10, 0.5, 3, 20)
    release = released(family, [1.1, 0.9], 5, scale)
    theta, weights = simulated(prior, family.draw_records, family, release, 400_000, 2)
    posterior = expfam.infer(release, prior, draws=10_000, rng=np.random.default_rng(3))
    assert posterior.method == "records"
    for q in (0.1, 0.5, 0.9):
        for k, value in enumerate(posterior.quantile(q, "theta")):
            assert weights[theta[:, k] < value].sum() == pytest.approx(q, abs=0.025)


@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_five_exponential_records_have_the_posterior_of_simulation(scale):
    """400,000 simulated data sets, 10,000 draws of chains: quantiles' probabilities within .025."""
    family, prior = Exponential(0, 8), Gamma(1, 1)
    release = released(family, 9.0, 5, scale)
    theta, weights = simulated(prior, family.draw_records, family, release, 400_000, 4)
    posterior = expfam.infer(release, prior, draws=10_000, rng=np.random.default_rng(5))
    assert posterior.method == "records"
    for q in (0.1, 0.5, 0.9):
        assert weights[theta < posterior.quantile(q, "theta")].sum() == pytest.approx(q, abs=0.025)


@pytest.mark.parametrize(("n", "scale"), [(20, 3.0), (60, 1.0), (60, 10.0)])
def test_what_is_said_of_an_approximation_is_about_what_it_errs_by(n, scale):
    """The collapsed posterior of Poisson counts against the exact one, at the ends of the 95 % interval."""
    family, prior = Poisson(0, 10), Gamma(1, 0.3)
    release = released(family, 2.0 * n + 3, n, scale)
    exact, normal = (expfam.posterior_density(release, prior, method=method) for method in ("exact", "collapsed"))
    off = max(abs(exact.quantile(q) - normal.quantile(q)) / exact.sd for q in (0.025, 0.975))
    said = (1.96**2 - 1) / 6 * skewness_of_sums(release, family, np.array(exact.mean))
    assert 0.5 * said < off < 2 * said + 0.005


def test_a_poor_approximation_warns_and_names_a_better_method():
    rng = np.random.default_rng(6)
    normal = expfam.release(rng.normal(10, 3, 5), Normal(0, 20), epsilon=1.0, rng=rng)
    with pytest.warns(PoorApproximation, match="method='records'"):
        expfam.infer(normal, NormalInverseGamma(10, 0.5, 3, 20), method="gibbs", draws=400, rng=rng)
    waits = expfam.release(rng.exponential(2, 5), Exponential(0, 20), epsilon=30.0, rng=rng)
    with pytest.warns(PoorApproximation, match="method='records'"):
        expfam.infer(waits, Gamma(1, 1), method="collapsed", rng=rng)


def test_defaults_are_exact_for_few_records_and_quick_for_many():
    rng = np.random.default_rng(7)
    prior = Gamma(1, 0.3)
    assert (
        expfam.infer(expfam.release(rng.poisson(2, 50), Poisson(0, 20), epsilon=1.0, rng=rng), prior).method == "exact"
    )
    many = expfam.infer(expfam.release(rng.poisson(2, 5000), Poisson(0, 20), epsilon=1.0, rng=rng), prior)
    assert many.method == "collapsed"
    assert "moves an end of the 95 % interval by" in many.notes[1]
    with pytest.raises(ValueError, match="method must not be 'exact'"):
        expfam.infer(expfam.release(rng.poisson(2, 5000), Poisson(0, 20), epsilon=1.0, rng=rng), prior, method="exact")
