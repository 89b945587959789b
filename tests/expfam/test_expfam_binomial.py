"""Yes-or-no records: the release is what it says, the posterior is exact, the naive one is not."""

import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, special, stats

from dpbook import BudgetExceeded, Posterior, PrivacyBudget, Release, expfam
from dpbook.audit import epsilon_lower_bound
from dpbook.diagnostics import calibrate
from dpbook.expfam import Beta, Binomial, GridDensity, posterior_density


def noisy_count(value, n, epsilon, mechanism="laplace", delta=0.0, scale=None):
    """A release that a curator with this noisy count would publish."""
    return Release(
        values={"sum": [value]},
        model="binomial",
        mechanism=mechanism,
        scale={"sum": 1 / epsilon if scale is None else scale},
        sensitivity={"sum": 1.0},
        epsilon=epsilon,
        delta=delta,
        n=n,
        float_safe=False,
    )


# --- the release ------------------------------------------------------------------------------------------------


def test_the_noise_has_the_stated_scale_on_both_paths():
    """KS test at the 1e-4 level for the seeded path, 1e-4 for the real one."""
    x = np.repeat([1, 0], [30, 70])
    rng = np.random.default_rng(1)
    seeded = [expfam.release(x, Binomial(), epsilon=0.5, rng=rng)["sum"][0] - 30 for _ in range(2000)]
    real = [expfam.release(x, Binomial(), epsilon=0.5)["sum"][0] - 30 for _ in range(500)]
    for noise in (seeded, real):
        assert stats.kstest(noise, stats.laplace(scale=2.0).cdf).pvalue > 1e-4


def test_gaussian_noise_has_the_stated_scale_on_both_paths():
    """KS test at the 1e-4 level for each path."""
    x = np.repeat([1, 0], [30, 70])
    rng = np.random.default_rng(2)
    loss = {"epsilon": 0.5, "delta": 1e-5, "mechanism": "gaussian"}
    scale = expfam.release(x, Binomial(), rng=rng, **loss).scale["sum"]
    seeded = [expfam.release(x, Binomial(), rng=rng, **loss)["sum"][0] - 30 for _ in range(1500)]
    real = [expfam.release(x, Binomial(), **loss)["sum"][0] - 30 for _ in range(500)]
    for noise in (seeded, real):
        assert stats.kstest(noise, stats.norm(scale=scale).cdf).pvalue > 1e-4


def test_the_same_data_in_any_form_give_the_same_release():
    dask = pytest.importorskip("dask.dataframe")
    pyarrow = pytest.importorskip("pyarrow")
    x = np.random.default_rng(3).integers(0, 2, 1000)
    frame = pd.DataFrame({"x": x})
    forms = [
        x,
        x.tolist(),
        x.astype(bool),
        x.astype(float),
        frame["x"],
        frame,
        pyarrow.table({"x": x}),
        (part for part in np.array_split(x, 7)),
        dask.from_pandas(frame, npartitions=3),
    ]
    releases = [expfam.release(form, Binomial(), epsilon=1.0, rng=np.random.default_rng(4)) for form in forms]
    assert len(set(releases)) == 1


def test_a_release_says_what_it_is():
    release = expfam.release([0, 1, 1], Binomial(), epsilon=0.25)
    assert (release.model, release.mechanism, release.n) == ("binomial", "laplace", 3)
    assert (release.epsilon, release.delta, release.neighbours) == (0.25, 0.0, "replace-one")
    assert release.scale["sum"] == pytest.approx(4.0)
    assert release.sensitivity["sum"] == 1.0
    assert release.float_safe
    assert not expfam.release([0, 1], Binomial(), epsilon=1.0, rng=np.random.default_rng(0)).float_safe
    assert set(release.values) == {"sum"}


def test_release_charges_the_budget_before_it_draws_noise():
    budget = PrivacyBudget(1.0)
    rng = np.random.default_rng(5)
    expfam.release([0, 1], Binomial(), epsilon=0.9, rng=rng, budget=budget)
    state = rng.bit_generator.state
    with pytest.raises(BudgetExceeded):
        expfam.release([0, 1], Binomial(), epsilon=0.2, rng=rng, budget=budget)
    assert rng.bit_generator.state == state
    assert budget.remaining == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("x", "changes", "named"),
    [
        ([0, 2], {}, "data must"),
        ([0.5], {}, "data must"),
        ([0, float("nan")], {}, "data must"),
        ([], {}, "data must"),
        ([[0, 1]], {}, "data must"),
        (["a"], {}, "data must"),
        ([0, 1], {"epsilon": 0}, "epsilon"),
        ([0, 1], {"epsilon": float("nan")}, "epsilon"),
        ([0, 1], {"delta": 1e-6}, "delta"),
        ([0, 1], {"mechanism": "gaussian"}, "delta"),
        ([0, 1], {"mechanism": "uniform"}, "mechanism"),
        ([0, 1], {"rng": 3}, "rng"),
        ([0, 1], {"family": "binomial"}, "family"),
    ],
)
def test_bad_arguments_are_named_and_cost_nothing(x, changes, named):
    budget = PrivacyBudget(10.0)
    arguments = {"family": Binomial(), "epsilon": 1.0, "budget": budget} | changes
    with pytest.raises((TypeError, ValueError), match=named):
        expfam.release(x, **arguments)
    assert budget.ledger == ()


def test_an_audit_does_not_refute_epsilon_on_either_path_and_catches_half_the_noise():
    """Each bound exceeds the true epsilon with probability at most 1e-3."""
    data, neighbour = np.array([1, 1, 0]), np.array([1, 0, 0])

    def count(x, rng, epsilon=1.0):
        return expfam.release(x, Binomial(), epsilon=epsilon, rng=rng)["sum"][0]

    rng = np.random.default_rng(6)
    assert 0.4 < epsilon_lower_bound(count, data, neighbour, trials=3000, rng=rng) <= 1.0
    assert epsilon_lower_bound(lambda x, _: count(x, None), data, neighbour, trials=800, rng=rng) <= 1.0
    half_the_noise = epsilon_lower_bound(lambda x, r: count(x, r, 2.0), data, neighbour, trials=3000, rng=rng)
    assert half_the_noise > 1.0


def test_an_audit_does_not_refute_randomised_response():
    """The bound exceeds the true epsilon with probability at most 1e-3."""
    data, neighbour = np.array([1, 1, 0]), np.array([1, 0, 0])

    def reports(x, rng):
        return expfam.release_randomized_response(x, epsilon=1.0, rng=rng)["reports"][0]

    rng = np.random.default_rng(7)
    assert epsilon_lower_bound(reports, data, neighbour, trials=2000, rng=rng) <= 1.0


# --- the posterior ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize(("n", "noisy", "epsilon"), [(1, 0.3, 1.0), (12, 4.7, 0.3), (12, -6.0, 0.3), (40, 55.0, 2.0)])
def test_the_exact_posterior_equals_brute_force_integration(n, noisy, epsilon, mechanism):
    prior = Beta(1.5, 2.5)
    scale = 1 / epsilon
    noise = stats.laplace(scale=scale) if mechanism == "laplace" else stats.norm(scale=scale)
    counts = np.arange(n + 1)

    def joint(theta):
        return stats.beta.pdf(theta, 1.5, 2.5) * (stats.binom.pmf(counts, n, theta) @ noise.pdf(noisy - counts))

    evidence, _ = integrate.quad(joint, 0, 1, epsabs=0, epsrel=1e-12)
    release = noisy_count(noisy, n, epsilon, mechanism, 1e-5 if mechanism == "gaussian" else 0.0)
    density = posterior_density(release, prior)
    for theta in (0.05, 0.3, 0.5, 0.9):
        assert density.pdf(theta) == pytest.approx(joint(theta) / evidence, rel=1e-9)
    mean, _ = integrate.quad(lambda t: t * joint(t) / evidence, 0, 1, epsabs=0, epsrel=1e-12)
    assert density.mean == pytest.approx(mean, rel=1e-10)
    assert density.cdf(density.quantile(0.3)) == pytest.approx(0.3, abs=1e-10)


def yes_reports(reports, n, epsilon):
    """A release that a collector of randomised responses would publish."""
    return Release(
        values={"reports": [reports]},
        model="binomial",
        mechanism="randomized response",
        scale={"reports": 1.0},
        sensitivity={"reports": 1.0},
        epsilon=epsilon,
        n=n,
        settings={"truth": 1 / (1 + math.exp(-epsilon))},
        float_safe=False,
    )


@pytest.mark.parametrize("prior", [Beta(2, 3), Beta(0.5, 0.5), Beta(1e-3, 2e-3)])
@pytest.mark.parametrize(("n", "reports", "epsilon"), [(1, 1, 0.5), (15, 9, 1.0), (15, 0, 0.2), (30, 30, 3.0)])
def test_the_posterior_after_randomised_response_equals_enumeration_over_true_counts(n, reports, epsilon, prior):
    truth = 1 / (1 + math.exp(-epsilon))
    density = posterior_density(yes_reports(reports, n, epsilon), prior)
    counts = np.arange(n + 1)
    # P(r | s): r is the sum of true "yes" among s and false "yes" among n - s.
    likelihood = np.array(
        [
            sum(stats.binom.pmf(j, s, truth) * stats.binom.pmf(reports - j, n - s, 1 - truth) for j in range(s + 1))
            for s in counts
        ]
    )
    weights = likelihood * stats.betabinom.pmf(counts, n, prior.alpha, prior.beta)
    exact = expfam.BetaMixture(weights, prior.alpha + counts, prior.beta + n - counts)
    assert density.mean == pytest.approx(exact.mean, rel=1e-8)
    assert density.sd == pytest.approx(exact.sd, rel=1e-7)
    for theta in (0.1, 0.5, 0.8):
        assert density.cdf(theta) == pytest.approx(float(exact.cdf(theta)), abs=1e-5)
        assert density.pdf(theta) == pytest.approx(float(exact.pdf(theta)), rel=1e-6)


@pytest.mark.parametrize("width", [1e-1, 1e-3, 1e-6])
def test_the_adaptive_grid_finds_narrow_and_off_centre_peaks(width):
    density = GridDensity(lambda t: -0.5 * ((t - 0.123456) / width) ** 2, (-1.0, 1.0))
    assert density.mean == pytest.approx(0.123456, abs=width * 1e-6)
    assert density.sd == pytest.approx(width, rel=1e-6)


def test_the_adaptive_grid_integrates_a_density_with_an_infinite_end():
    density = GridDensity(lambda t: -0.5 * np.log(t) - 0.5 * np.log1p(-t), (0.0, 1.0))
    assert density.cdf(0.1) == pytest.approx(stats.beta.cdf(0.1, 0.5, 0.5), abs=2e-4)


@pytest.mark.parametrize("method", ["exact", "naive"])
@pytest.mark.parametrize("noisy", [-1e6, -3.0, 0.0, 5.5, 10.0, 1e6])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e3])
def test_no_noise_makes_inference_fail(noisy, epsilon, method):
    posterior = expfam.infer(
        noisy_count(noisy, 10, epsilon), Beta(1, 1), method=method, draws=200, rng=np.random.default_rng(0)
    )
    draws = posterior.draws["theta"]
    assert np.isfinite(draws).all()
    assert (draws >= 0).all()
    assert (draws <= 1).all()


def test_the_posterior_tends_to_the_prior_and_to_the_nonprivate_posterior():
    prior = Beta(2, 5)
    vague = posterior_density(noisy_count(3.0, 10, 1e-4), prior)
    assert vague.mean == pytest.approx(prior.mean, abs=1e-3)
    assert vague.sd == pytest.approx(math.sqrt(prior.variance), abs=1e-3)
    sharp = posterior_density(noisy_count(3.0, 10, 1e3), prior)
    assert sharp.mean == pytest.approx(5 / 17, rel=1e-9)


def test_one_record_and_all_zeros_are_ordinary_data():
    for x in ([0], [1], [0] * 50):
        release = expfam.release(x, Binomial(), epsilon=1.0, rng=np.random.default_rng(1))
        assert 0 < posterior_density(release, Beta(1, 1)).mean < 1


@pytest.mark.parametrize(("epsilon", "mechanism"), [(1.0, "laplace"), (1e-4, "laplace"), (1e-4, "gaussian")])
def test_a_million_records_cost_little_time_and_memory(epsilon, mechanism):
    """With a uniform prior and n large, theta is the true share plus noise: normal plus Laplace, or normal."""
    n, scale = 10**6, 1 / epsilon
    tracemalloc.start()
    density = posterior_density(
        noisy_count(3e5, n, epsilon, mechanism, 1e-6 if mechanism == "gaussian" else 0.0), Beta(1, 1)
    )
    grid = np.linspace(0.25, 0.35, 400)
    heights = density.pdf(grid)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400e6  # 400 points by 10⁶ components would be 3 gigabytes
    variance = scale**2 * (2 if mechanism == "laplace" else 1) / n**2 + 0.21 / n
    assert density.mean == pytest.approx(0.3, abs=1e-4)
    assert density.sd == pytest.approx(math.sqrt(variance), rel=0.01)
    if epsilon < 1:  # the grid resolves the peak
        assert np.trapezoid(heights, grid) == pytest.approx(density.cdf(0.35) - density.cdf(0.25), rel=1e-3)


@pytest.mark.parametrize("prior", [Beta(1, 1), Beta(0.3, 0.2), Beta(1e-3, 5), Beta(40, 90), Beta(0.5, 1.5)])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("noisy", [-700.0, 0.4, 333.3, 1250.0])
def test_leaving_out_hopeless_counts_changes_nothing(noisy, mechanism, prior):
    """Against the sum over all counts, with noise so small that most of the 1001 counts are left out."""
    n, scale = 1000, 0.7
    counts = np.arange(n + 1)
    distance = np.abs(noisy - counts) / scale
    log_noise = -distance if mechanism == "laplace" else -0.5 * distance**2
    log_weights = stats.betabinom.logpmf(counts, n, prior.alpha, prior.beta) + log_noise
    weights = np.exp(log_weights - log_weights.max())
    delta = 1e-5 if mechanism == "gaussian" else 0.0
    density = posterior_density(noisy_count(noisy, n, 1.0, mechanism, delta, scale), prior)
    centres = (prior.alpha + counts) / (prior.alpha + prior.beta + n)
    assert density.mean == pytest.approx(np.average(centres, weights=weights), rel=1e-9)
    for theta in (0.001, 0.33, 0.34, 0.99):
        shares = special.betainc(prior.alpha + counts, prior.beta + n - counts, theta)
        assert density.cdf(theta) == pytest.approx(np.average(shares, weights=weights), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("noisy", [-1e20, 1e20, 1e300])
def test_a_release_beyond_all_bounds_is_read_without_loss_of_precision(noisy):
    """Under Laplace noise every impossible value says what the nearest possible one says; Gaussian noise says more."""
    nearest = min(max(noisy, 0.0), 10.0)
    far, near = (posterior_density(noisy_count(y, 10, 1.0), Beta(1, 1)) for y in (noisy, nearest))
    assert far.mean == pytest.approx(near.mean, rel=1e-12)
    gaussian = posterior_density(noisy_count(noisy, 10, 1.0, "gaussian", 1e-6), Beta(1, 1))
    assert gaussian.mean == pytest.approx((1 + nearest) / 12, rel=1e-12)  # the count can only be 0, or n


def test_the_mixture_agrees_with_the_direct_sum_over_all_its_components():
    rng = np.random.default_rng(11)
    weights, alpha, beta = rng.random(300), rng.uniform(0.01, 900, 300), rng.uniform(0.01, 900, 300)
    mixture = expfam.BetaMixture(weights, alpha, beta)
    theta = rng.random((7, 3))
    direct = stats.beta.pdf(theta[..., None], alpha, beta) @ weights / weights.sum()
    np.testing.assert_allclose(mixture.pdf(theta), direct, rtol=1e-9)
    direct = special.betainc(alpha, beta, theta[..., None]) @ weights / weights.sum()
    np.testing.assert_allclose(mixture.cdf(theta), direct, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(mixture.pdf([-0.1, 1.1]), 0)
    np.testing.assert_array_equal(mixture.cdf([-0.1, 1.1]), [0, 1])
    assert expfam.BetaMixture([1], [1], [1]).pdf([0.0, 1.0]).tolist() == [1.0, 1.0]
    assert [expfam.BetaMixture([1], [2], [2]).quantile(q) for q in (0, 1)] == [0.0, 1.0]


def test_quantiles_next_to_zero_are_found_to_many_digits():
    density = posterior_density(noisy_count(0.0, 20, 1.0), Beta(1e-3, 1e-3))
    for q in (0.5, 0.9, 0.975, 0.999):
        assert density.cdf(density.quantile(q)) == pytest.approx(q, abs=1e-9)
    reports = posterior_density(yes_reports(5, 20, 1.0), Beta(1e-3, 1e-3))
    assert reports.cdf(reports.quantile(0.9)) == pytest.approx(0.9, abs=1e-9)
    assert reports.cdf(1.0) == pytest.approx(1.0)


def test_the_posterior_after_a_million_randomised_responses_is_nearly_normal():
    truth = 1 / (1 + math.exp(-1.0))
    yes = (1 - truth) + (2 * truth - 1) * 0.3
    density = posterior_density(yes_reports(round(1e6 * yes), 10**6, 1.0), Beta(1e-3, 1e-3))
    sd = math.sqrt(yes * (1 - yes) / 1e6) / (2 * truth - 1)
    assert density.mean == pytest.approx(0.3, abs=1e-5)
    assert density.sd == pytest.approx(sd, rel=1e-4)
    assert density.pdf(0.3) == pytest.approx(stats.norm.pdf(0, scale=sd), rel=1e-3)


def test_an_epsilon_beyond_reason_still_makes_a_release_of_what_the_budget_was_charged_for():
    budget = PrivacyBudget(1e6)
    release = expfam.release_randomized_response([0, 1, 1], epsilon=5e3, rng=np.random.default_rng(0), budget=budget)
    assert release["reports"][0] == 2
    assert posterior_density(release, Beta(1, 1)).mean == pytest.approx(3 / 5)


def test_infer_draws_from_the_density_in_chains():
    """KS at the 1e-4 level."""
    release = noisy_count(30.0, 100, 0.2)
    posterior = expfam.infer(release, Beta(1, 1), draws=4000, chains=8, rng=np.random.default_rng(2))
    assert isinstance(posterior, Posterior)
    assert posterior.draws["theta"].shape == (8, 500)
    density = posterior_density(release, Beta(1, 1))
    assert stats.kstest(posterior.draws["theta"].ravel(), lambda t: density.cdf(t)).pvalue > 1e-4


def test_a_sequence_of_releases_gives_a_list_of_posteriors():
    releases = [noisy_count(float(k), 10, 1.0) for k in range(3)]
    found = expfam.infer(releases, Beta(1, 1), draws=400, rng=np.random.default_rng(3))
    assert [round(p.mean("theta"), 1) for p in found] == sorted(round(p.mean("theta"), 1) for p in found)
    assert len(found) == 3


def test_infer_refuses_other_releases_priors_and_methods_by_name():
    release = noisy_count(3.0, 10, 1.0)
    with pytest.raises(TypeError, match="release"):
        expfam.infer([1, 0], Beta(1, 1))
    with pytest.raises(TypeError, match="release"):
        expfam.infer(3.0, Beta(1, 1))
    with pytest.raises(TypeError, match="prior"):
        expfam.infer(release, (1, 1))
    with pytest.raises(ValueError, match="method"):
        expfam.infer(release, Beta(1, 1), method="gibbs sampling")
    with pytest.raises(ValueError, match="alpha"):
        Beta(0, 1)
    with pytest.raises(ValueError, match="draws"):
        expfam.infer(release, Beta(1, 1), draws=0)


def test_the_nonprivate_posterior_is_the_conjugate_one():
    """KS at the 1e-4 level."""
    posterior = expfam.infer_nonprivate([1, 1, 0], Binomial(), Beta(1, 1), rng=np.random.default_rng(4))
    assert stats.kstest(posterior.draws["theta"].ravel(), stats.beta(3, 2).cdf).pvalue > 1e-4


# --- calibration ------------------------------------------------------------------------------------------------


def calibration(n, epsilon, method, trials, seed, randomised=False):
    prior = Beta(10, 10)

    def simulate(parameters, rng):
        releases = []
        for theta in parameters["theta"]:
            x = np.repeat([1, 0], np.array([k := rng.binomial(n, theta), n - k]))
            if randomised:
                releases.append(expfam.release_randomized_response(x, epsilon=epsilon, rng=rng))
            else:
                releases.append(expfam.release(x, Binomial(), epsilon=epsilon, rng=rng))
        return releases

    return calibrate(
        lambda rng, count: {"theta": rng.beta(10, 10, count)},
        simulate,
        lambda releases, rng: expfam.infer(releases, prior, method=method, draws=400, chains=1, rng=rng),
        trials,
        rng=np.random.default_rng(seed),
    )


@pytest.mark.parametrize(
    ("n", "epsilon", "naive_ks", "posterior_sd"),
    [(100, 0.01, 0.452, 0.1086), (100, 0.1, 0.194, 0.0858), (1000, 0.1, 0.082, 0.0206)],
)
def test_the_exact_posterior_is_calibrated_and_the_naive_one_is_not(n, epsilon, naive_ks, posterior_sd):
    """Holm-corrected KS and variance tests: a false alarm in each case with probability at most 1e-3.

    The naive KS distances are the reference values; 500 trials estimate one within 0.06 except with probability 1e-2.
    """
    exact = calibration(n, epsilon, "exact", 500, seed=n)
    assert exact.passed(level=1e-3)
    naive = calibration(n, epsilon, "naive", 500, seed=n + 1)
    assert not naive.passed(level=1e-3)
    assert naive.ks["theta"] == pytest.approx(naive_ks, abs=0.06)
    releases = [
        noisy_count(y, n, epsilon) for y in n / 2 + np.random.default_rng(9).laplace(scale=1 / epsilon, size=50)
    ]
    assert np.mean([posterior_density(r, Beta(10, 10)).sd for r in releases]) == pytest.approx(posterior_sd, rel=0.1)


def test_the_posterior_after_randomised_response_is_calibrated_and_the_naive_one_is_not():
    """Holm-corrected KS and variance tests: a false alarm with probability at most 1e-3."""
    assert calibration(200, 1.0, "exact", 300, seed=20, randomised=True).passed(level=1e-3)
    assert not calibration(200, 1.0, "naive", 300, seed=21, randomised=True).passed(level=1e-3)


# --- the preview ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "epsilon"), [(200, 0.05), (1000, 0.1), (5000, 1.0)])
def test_the_preview_foretells_the_posterior_sd(n, epsilon):
    """Averaged over 200 simulated releases, within 12 %: the preview is a normal approximation."""
    rng = np.random.default_rng(10)
    look = expfam.preview(Binomial(), n=n, epsilon=epsilon, theta=0.3)
    found = []
    for _ in range(200):
        y = rng.binomial(n, 0.3) + rng.laplace(scale=1 / epsilon)
        found.append(posterior_density(noisy_count(y, n, epsilon), Beta(1, 1)).sd)
    assert np.mean(found) == pytest.approx(look.posterior_sd, rel=0.12)


def test_the_preview_states_the_break_even_sample_size():
    look = expfam.preview(Binomial(), n=1000, epsilon=0.1, theta=0.3)
    again = expfam.preview(Binomial(), n=round(look.break_even_n), epsilon=0.1, theta=0.3)
    assert again.noise_sd == pytest.approx(again.sampling_sd, rel=1e-2)
    gaussian = expfam.preview(Binomial(), n=1000, epsilon=0.1, mechanism="gaussian", delta=1e-6)
    assert gaussian.noise_scale > 10
    with pytest.raises(ValueError, match="theta"):
        expfam.preview(Binomial(), n=10, epsilon=1, theta=0)
