"""Collapsed posteriors: against brute-force integration, the prior, the data, and the ranks of true parameters."""

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from dpbook import Release, expfam
from dpbook.diagnostics import calibrate
from dpbook.expfam import (
    Beta,
    Binomial,
    Dirichlet,
    Exponential,
    Gamma,
    GridDensity,
    HalfLineDensity,
    Multinomial,
    Normal,
    NormalInverseGamma,
    Poisson,
    posterior_density,
)
from dpbook.latent_noise import normal_laplace_logpdf

pytestmark = pytest.mark.filterwarnings("ignore::dpbook.posterior.ConvergenceWarning")


def released(family, value, n, scale, mechanism="laplace", outside="clip"):
    """A release with this noisy sum."""
    return Release(
        values={"sum": [value]},
        model=family.name,
        mechanism=mechanism,
        scale={"sum": scale},
        sensitivity={"sum": 1.0},
        epsilon=1.0,
        delta=1e-6 if mechanism == "gaussian" else 0.0,
        n=n,
        bounds={"x": family.bounds},
        settings=dict(family.settings) | {"outside": outside},
        float_safe=False,
    )


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize(
    ("family", "noisy", "n", "scale"),
    [
        (Exponential(0.0063, 1.1717), 25.0, 100, 11.0),
        (Exponential(0, 3), -5.0, 10, 3.0),
        (Poisson(1, 9), 370.0, 100, 8.0),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_the_collapsed_posterior_is_prior_times_the_density_of_normal_plus_noise(
    family, noisy, n, scale, outside, mechanism
):
    """By adaptive quadrature over theta, with the latent sum integrated numerically at two points."""
    prior = Gamma(8, 2)
    density = posterior_density(released(family, noisy, n, scale, mechanism, outside), prior, method="collapsed")
    noise = stats.laplace(scale=scale) if mechanism == "laplace" else stats.norm(scale=scale)

    def likelihood(theta):
        mean, cov = family.moments(np.asarray(theta), outside)
        centre, sd = n * mean[..., 0], np.sqrt(n * cov[..., 0, 0])
        if mechanism == "gaussian":
            return stats.norm.pdf(noisy, centre, np.hypot(sd, scale))
        return np.exp(normal_laplace_logpdf(noisy, centre, sd**2, scale))

    for theta in (2.0, 5.0):
        mean, cov = family.moments(np.array(theta), outside)
        law = stats.norm(n * mean[0], np.sqrt(n * cov[0, 0]))
        ends = (law.mean() - 10 * law.std(), law.mean() + 10 * law.std())
        inner, _ = integrate.quad(
            lambda s, law=law: law.pdf(s) * noise.pdf(noisy - s),
            *ends,
            points=sorted(np.clip([noisy], *ends)),
            epsabs=0,
        )
        assert likelihood(theta) == pytest.approx(inner, rel=1e-6)
    grid = np.linspace(1e-3, 25, 6001)
    heights = np.exp(prior.log_density(grid)) * likelihood(grid)
    total = integrate.simpson(heights, x=grid)
    mean = integrate.simpson(grid * heights, x=grid) / total
    sd = np.sqrt(integrate.simpson((grid - mean) ** 2 * heights, x=grid) / total)
    assert density.mean == pytest.approx(mean, rel=1e-6)
    assert density.sd == pytest.approx(sd, rel=1e-5)
    for at in (400, 1400):
        assert density.pdf(grid[at]) == pytest.approx(heights[at] / total, rel=1e-6)
        below = integrate.simpson(heights[: at + 1], x=grid[: at + 1]) / total
        assert density.cdf(grid[at]) == pytest.approx(below, abs=2e-5)


def test_draws_and_quantiles_come_from_the_density():
    """KS at the 1e-4 level."""
    release, prior = released(Exponential(0, 2), 30.0, 100, 10.0), Gamma(8, 2)
    density = posterior_density(release, prior)
    draws = expfam.infer(release, prior, draws=5000, rng=np.random.default_rng(1)).draws["theta"].ravel()
    assert stats.kstest(draws, density.cdf).pvalue > 1e-4
    for q in (0.001, 0.3, 0.999):
        assert density.cdf(density.quantile(q)) == pytest.approx(q, abs=1e-9)


def test_the_naive_density_is_the_conjugate_posterior_of_the_noisy_sum():
    for family, law in (
        (Exponential(0, 2), stats.gamma(108, scale=1 / 32)),
        (Poisson(0, 9), stats.gamma(38, scale=1 / 102)),
    ):
        density = posterior_density(released(family, 30.0, 100, 10.0), Gamma(8, 2), method="naive")
        assert density.mean == pytest.approx(law.mean(), rel=1e-9)
        assert density.sd == pytest.approx(law.std(), rel=1e-8)
        np.testing.assert_allclose(density.pdf(law.ppf([0.1, 0.5, 0.9])), law.pdf(law.ppf([0.1, 0.5, 0.9])), rtol=1e-8)
        impossible = posterior_density(released(family, -50.0, 100, 10.0), Gamma(8, 2), method="naive")
        assert np.isfinite(impossible.mean)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize("family", [Exponential(0, 2), Exponential(0.5, 2), Poisson(0, 10), Poisson(2, 10)], ids=str)
def test_no_release_makes_the_density_fail(family, outside, mechanism):
    """One record or a million, tiny and huge noise, sums far outside of what is possible."""
    for noisy in (0.0, -1e4, 5.0, 1e7):
        for n in (1, 100, 10**6):
            for scale in (1e-3, 1.0, 1e4):
                density = posterior_density(released(family, noisy, n, scale, mechanism, outside), Gamma(3, 1))
                assert np.isfinite([density.mean, density.sd, density.quantile(0.5)]).all()
                assert density.mean > 0
                assert density.sd >= 0


@pytest.mark.parametrize("outside", ["clip", "redact"])
def test_the_posterior_tends_to_the_prior_and_to_the_nonprivate_posterior(outside):
    prior, rng = Gamma(8, 2), np.random.default_rng(2)
    x = rng.exponential(0.25, 400)
    family = Exponential(0, 50)  # wide bounds: nothing is clipped or redacted
    vague = posterior_density(expfam.release(x, family, epsilon=1e-5, outside=outside, rng=rng), prior)
    assert vague.mean == pytest.approx(prior.mean, rel=1e-2)
    assert vague.sd == pytest.approx(np.sqrt(prior.variance), rel=1e-2)
    sharp = posterior_density(expfam.release(x, family, epsilon=1e4, outside=outside, rng=rng), prior)
    exact = stats.gamma(408, scale=1 / (2 + x.sum()))
    assert sharp.mean == pytest.approx(exact.mean(), rel=0.01)  # the CLT's error at n = 400
    assert sharp.sd == pytest.approx(exact.std(), rel=0.05)


def test_clipping_is_tighter_than_redaction():
    """Posterior sds at the source's bounds: the reference values of an independent computation, within 6 %."""
    family, prior, rng = Exponential(0.0063, 1.1717), Gamma(8, 2), np.random.default_rng(3)
    expected = {("clip", 100, 0.1): 1.221, ("clip", 1000, 0.1): 0.320, ("redact", 1000, 0.1): 0.439}
    for (outside, n, epsilon), sd in expected.items():
        found = []
        for theta in prior.draw(150, rng):
            release = expfam.release(rng.exponential(1 / theta, n), family, epsilon=epsilon, outside=outside, rng=rng)
            found.append(posterior_density(release, prior).sd)
        assert np.mean(found) == pytest.approx(sd, rel=0.08)


# --- the grid -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "rate"), [(4, 2), (0.05, 1), (1e4, 1e2), (1, 1e-9), (3, 1e12), (1e6, 1)])
def test_the_half_line_holds_any_gamma(shape, rate):
    law = stats.gamma(shape, scale=1 / rate)
    density = HalfLineDensity(law.logpdf)
    assert density.mean == pytest.approx(law.mean(), rel=2e-7)
    assert density.sd == pytest.approx(law.std(), rel=1e-6)
    for q in (0.01, 0.5, 0.99):
        assert law.cdf(density.quantile(q)) == pytest.approx(q, abs=2e-5)


def test_the_grid_holds_two_narrow_peaks_of_unequal_weight():
    law = [stats.norm(-0.5, 1e-3), stats.norm(0.7, 1e-4)]
    density = GridDensity(
        lambda t: np.logaddexp(np.log(0.3) + law[0].logpdf(t), np.log(0.7) + law[1].logpdf(t)), (-1, 1)
    )
    assert density.mean == pytest.approx(0.3 * -0.5 + 0.7 * 0.7, rel=1e-6)
    assert density.cdf(0.0) == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize("n", [1000, 10**6])
def test_redaction_leaves_two_peaks_and_both_are_found(n):
    """E[x; x < 1] is not monotone in the rate: two rates explain the release, each with its share by Laplace's rule."""
    family, prior, scale = Exponential(0, 1), Gamma(3, 1), 1.0

    def mean(theta):
        return float(family.moments(np.array(theta), "redact")[0][0])

    rates = (0.9, optimize.brentq(lambda t: mean(t) - mean(0.9), 1.9, 20))
    density = posterior_density(released(family, n * mean(0.9), n, scale, outside="redact"), prior)
    shares = []
    for theta in rates:
        slope = (mean(theta * (1 + 1e-5)) - mean(theta * (1 - 1e-5))) / (2e-5 * theta)
        shares.append(np.exp(prior.log_density(theta)) / abs(slope))
    expected = shares[0] / sum(shares)
    assert density.cdf(1.8) == pytest.approx(expected, abs=0.1 if n == 1000 else 0.003)


def test_a_density_that_is_nowhere_is_refused():
    with pytest.raises(ValueError, match="log_density"):
        GridDensity(lambda t: np.full_like(t, -np.inf), (0, 1))


# --- calibration --------------------------------------------------------------------------------------------------

MODELS = {
    "binomial": (Binomial(), Beta(10, 10), lambda t, n, g: (g.random(n) < t).astype(int)),
    "multinomial": (Multinomial(3), Dirichlet([10, 10, 10]), lambda t, n, g: g.choice(3, n, p=t)),
    "exponential": (Exponential(0.0063, 1.1717), Gamma(8, 2), lambda t, n, g: g.exponential(1 / t, n)),
    "poisson": (Poisson(0, 10), Gamma(8, 2), lambda t, n, g: g.poisson(t, n)),
    "normal": (Normal(0, 20), NormalInverseGamma(10, 2, 6, 20), lambda t, n, g: g.normal(t[0], np.sqrt(t[1]), n)),
}


def calibration(model, n, epsilon, method, seed, outside="clip", trials=300):
    """Ranks of the truth; Gibbs draws are thinned to 40 a trial, below their effective number."""
    family, prior, draw = MODELS[model]

    def simulate(parameters, rng):
        return [
            expfam.release(draw(theta, n, rng), family, epsilon=epsilon, outside=outside, rng=rng)
            for theta in parameters["theta"]
        ]

    def infer(releases, rng):
        if method == "gibbs":
            return expfam.infer(releases, prior, method=method, draws=160, chains=4, rng=rng)
        return expfam.infer(releases, prior, method=method, draws=400, chains=1, rng=rng)

    return calibrate(
        lambda rng, count: {"theta": prior.draw(count, rng)},
        simulate,
        infer,
        trials,
        draws=40 if method == "gibbs" else None,
        rng=np.random.default_rng(seed),
    )


@pytest.mark.parametrize(
    ("model", "n", "epsilon", "method", "outside"),
    [
        ("binomial", 100, 0.1, "collapsed", "clip"),
        ("binomial", 1000, 0.01, "gibbs", "clip"),
        ("multinomial", 100, 0.1, "gibbs", "clip"),
        ("exponential", 100, 0.1, "collapsed", "clip"),
        ("exponential", 100, 0.1, "collapsed", "redact"),
        ("exponential", 1000, 0.1, "gibbs", "clip"),
        ("poisson", 100, 0.1, "collapsed", "clip"),
        ("normal", 100, 0.1, "gibbs", "clip"),
    ],
)
def test_noise_aware_posteriors_are_calibrated(model, n, epsilon, method, outside):
    """300 trials; KS and variance tests, Holm-corrected: a right posterior fails with probability 1e-3 a case."""
    assert calibration(model, n, epsilon, method, 4, outside).passed(level=1e-3)


@pytest.mark.parametrize(
    ("model", "n", "epsilon"),
    [("multinomial", 100, 0.1), ("exponential", 100, 0.1), ("poisson", 100, 0.1), ("normal", 100, 0.1)],
)
def test_naive_posteriors_are_not(model, n, epsilon):
    """300 trials; a right posterior would fail with probability 1e-3 a case."""
    naive = calibration(model, n, epsilon, "naive", 5)
    assert not naive.passed(level=1e-3)
    assert max(naive.ks.values()) > 0.12


def test_the_calibration_test_sees_a_posterior_that_is_too_narrow():
    """A mutant whose noise scale is taken a third too small fails where the right one passes."""
    family, prior, draw = MODELS["exponential"]

    def simulate(parameters, rng):
        return [expfam.release(draw(t, 1000, rng), family, epsilon=0.1, rng=rng) for t in parameters["theta"]]

    def mutated(releases, rng):
        less = [released(family, each["sum"][0], each.n, each.scale["sum"] / 1.5) for each in releases]
        return expfam.infer(less, prior, draws=400, chains=1, rng=rng)

    found = calibrate(
        lambda rng, count: {"theta": prior.draw(count, rng)}, simulate, mutated, 300, rng=np.random.default_rng(6)
    )
    assert not found.passed(level=1e-3)
