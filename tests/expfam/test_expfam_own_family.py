"""A family of one's own, written from the documented protocol alone: exact posteriors, calibration, privacy, errors."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpbook import Release, expfam
from dpbook.diagnostics import calibrate
from dpbook.expfam import Beta, Dirichlet, Exponential, Family, Gamma
from dpbook.expfam.releases import _grid, _sums

pytestmark = pytest.mark.filterwarnings("ignore::dpbook.posterior.ConvergenceWarning")


@dataclass(frozen=True)
class Geometric(Family):
    """Failures before a success, with probability theta; P(x > b) = (1-theta)^(b+1), and what follows forgets b."""

    bounds: tuple[float, float]
    name = "geometric"
    prior_type = Beta
    statistic_range = (0.0, math.inf)
    whole_numbers = True

    def check_records(self, records):
        if ((records < 0) | (records != np.rint(records))).any():
            raise ValueError("data must hold whole numbers from 0 on")

    def statistics(self, records):
        return records

    def mean_and_covariance(self, theta, outside):
        _, b = self.bounds
        p, x = theta[..., None], np.arange(b + 1)
        mass, tail, mean = p * (1 - p) ** x, (1 - theta) ** (b + 1), (1 - theta) / theta
        end = b if outside == "clip" else 0.0
        first, second = (mass * x).sum(-1) + end * tail, (mass * x**2).sum(-1) + end**2 * tail
        both = (mass * x**2).sum(-1) + end * tail * (b + 1 + mean)
        cross = both - first * mean
        cov = np.stack([np.stack([second - first**2, cross], -1), np.stack([cross, mean / theta], -1)], -2)
        return np.stack([first, mean], -1), cov

    def draw_parameter(self, prior, sums, n, rng):
        return rng.beta(prior.alpha + n, prior.beta + sums[..., 0])

    def natural(self, theta):
        return np.log1p(-theta), -np.log(theta)

    def simulate_sums(self, theta, n, rng):
        return rng.negative_binomial(n, theta)[..., None].astype(float)


FAMILY = Geometric((0.0, 20.0))


def made(n=300, seed=1, **options):
    rng = np.random.default_rng(seed)
    return expfam.release(rng.geometric(0.25, n) - 1, FAMILY, rng=rng, **{"epsilon": 0.5, **options})


def exact_posterior(release, prior, outside, points=1500):
    """Mean and sd without the central limit theorem: the law of the released sum is an n-fold convolution (FFT)."""
    n, b = release.n, 20
    theta = np.r_[np.geomspace(1e-5, 0.02, 300)[:-1], np.linspace(0.02, 0.8, points)]  # redacted, it has two modes
    x = np.arange(b + 1)
    law = theta[:, None] * (1 - theta[:, None]) ** x
    law[:, b if outside == "clip" else 0] += (1 - theta) ** (b + 1)
    size = 2 ** math.ceil(math.log2(n * b + 1))
    sums = np.maximum(np.fft.irfft(np.fft.rfft(law, size) ** n, size), 0.0)[:, : n * b + 1]
    noise = stats.laplace.pdf(release["sum"][0], np.arange(n * b + 1), release.scale["sum"])
    mass = sums @ noise * np.exp(prior.log_density(theta)) * np.gradient(theta)
    mass /= mass.sum()
    mean = mass @ theta
    return mean, math.sqrt(mass @ (theta - mean) ** 2)


@pytest.mark.parametrize("outside", ["clip", "redact"])
def test_its_moments_are_those_of_a_long_sum(outside):
    theta, x = np.array([0.05, 0.3, 0.9]), np.arange(2000.0)
    mass = theta[:, None] * (1 - theta[:, None]) ** x
    both = np.stack([np.minimum(x, 20) if outside == "clip" else np.where(x <= 20, x, 0), x])
    mean = mass @ both.T
    cov = np.einsum("tx,ix,jx->tij", mass, both, both) - mean[:, :, None] * mean[:, None, :]
    found = FAMILY.moments(theta, outside)
    np.testing.assert_allclose(found[0], mean, rtol=1e-12)
    np.testing.assert_allclose(found[1], cov, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize(("n", "epsilon"), [(100, 0.2), (300, 1.0)])
def test_the_collapsed_posterior_agrees_with_the_exact_one(n, epsilon, outside):
    """The normal approximation errs by less than a twentieth of an sd here; nothing is random."""
    release, prior = made(n, epsilon=epsilon, outside=outside), Beta(2, 5)
    mean, sd = exact_posterior(release, prior, outside)
    density = expfam.posterior_density(release, prior, family=FAMILY)
    assert density.mean == pytest.approx(mean, abs=0.05 * sd)
    assert density.sd == pytest.approx(sd, rel=0.03)


@pytest.mark.parametrize(("n", "epsilon"), [(100, 0.2), (300, 1.0)])
def test_gibbs_agrees_with_the_exact_posterior(n, epsilon):
    """At least 1,000 effective draws: a mean is off by 0.15 sds, or a sd by 10 %, in less than one of 10,000 runs."""
    release, prior, rng = made(n, epsilon=epsilon), Beta(2, 5), np.random.default_rng(2)
    mean, sd = exact_posterior(release, prior, "clip")
    gibbs = expfam.infer(release, prior, method="gibbs", family=FAMILY, draws=8000, chains=40, rng=rng)
    assert gibbs.ess("theta") > 1000
    assert gibbs.mean("theta") == pytest.approx(mean, abs=0.15 * sd)
    assert gibbs.sd("theta") == pytest.approx(sd, rel=0.1)


def test_it_is_calibrated_and_its_naive_posterior_is_not():
    """200 trials; KS and variance tests, Holm-corrected, at the 1e-3 level."""

    def result(method):
        return calibrate(
            lambda rng, count: {"theta": Beta(6, 12).draw(count, rng)},
            lambda parameters, rng: [
                expfam.release(rng.geometric(t, 100) - 1, FAMILY, epsilon=0.3, rng=rng) for t in parameters["theta"]
            ],
            lambda releases, rng: expfam.infer(
                releases, Beta(6, 12), method=method, draws=100, chains=1, family=FAMILY, rng=rng
            ),
            200,
            rng=np.random.default_rng(3),
        )

    assert result("collapsed").passed(level=1e-3)
    assert not result("naive").passed(level=1e-3)


def test_everything_else_takes_it_too():
    prior, rng = Beta(2, 5), np.random.default_rng(4)
    release = Release.from_json(made().to_json())
    assert expfam.methods_of(FAMILY) == ("collapsed", "gibbs", "naive")
    look = expfam.preview(FAMILY, n=300, epsilon=0.5, theta=0.25, prior=prior)
    assert look.posterior_sd == pytest.approx(expfam.posterior_density(release, prior, family=FAMILY).sd, rel=0.2)
    draw = expfam.release_posterior_samples(
        [0, 3, 40], FAMILY, prior, epsilon=1.0, support=(0.1, 0.9), rng=np.random.default_rng(5)
    )
    assert 0.1 <= draw["theta"][0] <= 0.9
    without = expfam.infer_nonprivate([0, 3, 40], FAMILY, prior, draws=4000, rng=rng)
    assert without.mean("theta") == pytest.approx(5 / 53, abs=0.01)
    with pytest.raises(ValueError, match="naive"):
        expfam.posterior_density(release, prior, family=FAMILY, method="naive")


def test_records_outside_its_domain_and_other_mistakes_are_named():
    for wrong in ([0.5], [-1]):
        for call in (expfam.release, expfam.infer_nonprivate):
            with pytest.raises(ValueError, match="data must"):
                call(
                    wrong,
                    FAMILY,
                    *([Beta(1, 1)] * (call is not expfam.release)),
                    **({"epsilon": 1.0, "rng": np.random.default_rng(0)} if call is expfam.release else {}),
                )
    with pytest.raises(ValueError, match="pass its family"):
        expfam.infer(made(), Beta(1, 1))
    with pytest.raises(ValueError, match="family must be the one"):
        expfam.infer(made(), Beta(1, 1), family=Geometric((0.0, 30.0)))
    with pytest.raises(TypeError, match="prior must be a Beta"):
        expfam.infer(made(), Gamma(1, 1), family=FAMILY)
    with pytest.raises(TypeError, match="theta must be given"):
        expfam.preview(FAMILY, n=10, epsilon=1.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"name": "poisson"}, "name"),
        ({"name": ""}, "name"),
        ({"bounds": (0.0, math.inf)}, "bounds"),
        ({"bounds": (3.0, 3.0)}, "bounds"),
        ({"bounds": (0.0, 1e200)}, "bounds"),
        ({"inside_range": (0.0, math.nan)}, "inside_range"),
    ],
)
def test_a_family_with_impossible_public_numbers_is_refused(changes, named):
    family = type("Wrong", (Geometric,), {k: v for k, v in changes.items() if k != "bounds"})(
        changes.get("bounds", (0.0, 20.0))
    )
    for call in (
        lambda: expfam.release([1], family, epsilon=1.0, rng=np.random.default_rng(0)),
        lambda: expfam.preview(family, n=10, epsilon=1.0, theta=0.5),
    ):
        with pytest.raises(ValueError, match=f"family.*{named}"):
            call()


def test_what_a_family_must_write_is_what_its_page_says():
    assert Family.__abstractmethods__ == {"statistics", "mean_and_covariance", "draw_parameter"}
    with pytest.raises(TypeError, match="draw_parameter"):
        type("Half", (Geometric,), {"draw_parameter": Family.draw_parameter})((0.0, 1.0))


# Privacy: whatever the statistic does, as long as a row is of its own record ------------------------------------------


class Nasty(Family):
    """Its statistic leaves the range that it claims, and is no whole number although it says so."""

    name, prior_type, bounds = "nasty", Gamma, (0.0, 1.0)

    def __init__(self, statistic, whole=False):
        self.statistic, self.whole_numbers = statistic, whole

    def statistics(self, records):
        return self.statistic(records)

    def mean_and_covariance(self, theta, outside):
        raise NotImplementedError

    def draw_parameter(self, prior, sums, n, rng):
        raise NotImplementedError


STATISTICS = {
    "far": lambda x: 1e6 * x,
    "negative": lambda x: -1e6 * x,
    "infinite": lambda x: np.where(x > 0.3, np.inf, x),
    "a fraction": lambda x: x + 0.37,
}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize("name", STATISTICS)
@given(data=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, -3.0, 7.0, np.inf]), min_size=2, max_size=6))
def test_no_statistic_can_move_the_sum_by_more_than_the_noise_is_for(name, outside, whole, data):
    family = Nasty(STATISTICS[name], whole)
    unit = _grid(family, outside)[1]
    allowed = family.sensitivity(outside) + (0 if whole else unit)
    for last in (0.0, 0.5, 9.0):
        one, other = (_sums(np.array(x), family, outside) for x in (data, [*data[:-1], last]))
        assert abs(int(one.totals[0]) - int(other.totals[0])) * unit <= allowed


# Several statistics ---------------------------------------------------------------------------------------------------


class Pair(Family):
    """A multinomial of three categories, told by two of its counts and without closed forms: the defaults for k > 1."""

    name, prior_type, bounds = "pair", Dirichlet, (0.0, 2.0)
    size, parameters, bounded, whole_numbers = 2, 3, True, True
    inside_range = (0.0, 1.0)

    def statistics(self, records):
        return (records == [0.0, 1.0]).astype(float)

    def mean_and_covariance(self, theta, outside):
        p = theta[..., :2]
        return p, np.eye(2) * p[..., None] - p[..., :, None] * p[..., None, :]

    def draw_parameter(self, prior, sums, n, rng):
        rest = np.maximum(n - sums.sum(-1), 0.0)
        counts = np.concatenate([sums, rest[..., None]], axis=-1)
        gammas = rng.standard_gamma(np.asarray(prior.alpha) + counts)
        return gammas / gammas.sum(-1, keepdims=True)


def test_several_statistics_have_a_safe_sensitivity_and_the_posterior_of_the_table():
    """Means within a fifth of an sd and sds within 15 % of a table's with two thirds of the noise on each count."""
    family, rng = Pair(), np.random.default_rng(6)
    assert family.sensitivity() == 2.0
    assert family.sensitivity(norm=2) == pytest.approx(math.sqrt(2))
    x = rng.choice(3, 2000, p=[0.5, 0.3, 0.2])
    release = expfam.release(x, family, epsilon=1.0, rng=rng)
    posterior = expfam.infer(release, Dirichlet([1, 1, 1]), family=family, draws=4000, rng=rng)
    without = expfam.infer_nonprivate(x, family, Dirichlet([1, 1, 1]), draws=4000, rng=rng)
    assert np.abs(posterior.mean("theta") - without.mean("theta")).max() < 0.2 * without.sd("theta").max() + 4 / 2000
    np.testing.assert_allclose(posterior.sd("theta"), without.sd("theta"), rtol=0.15)


def test_a_subclass_of_a_family_may_keep_its_name():
    class Slower(Exponential):
        """An exponential with one method of its own."""

        def methods(self, mechanism="laplace"):
            return ("gibbs",)

    release = expfam.release([0.5, 1.0], Slower(0, 2), epsilon=1.0, rng=np.random.default_rng(7))
    assert expfam.infer(release, Gamma(2, 1), draws=40).method == "records"  # as its name says
    assert expfam.infer(release, Gamma(2, 1), family=Slower(0, 2), draws=40).method == "gibbs"
