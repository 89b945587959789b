"""Plans of families, means and histograms: the width that was planned for is the one that releases then have.

Each plan is kept by 300 releases, made from records of the design: their median width must be within 10 % of the
planned one. The error of a median of 300 widths, at a relative spread of .05 to .2, is .4 to 1.5 %.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpbook import expfam
from dpbook.expfam import (
    Beta,
    Binomial,
    Dirichlet,
    Exponential,
    Family,
    Gamma,
    Multinomial,
    NegativeBinomial,
    Normal,
    NormalInverseGamma,
    Poisson,
)

TRIALS = 300
NOISES = [("laplace", 0.0), ("gaussian", 1e-6)]
SHARES = [0.5, 0.3, 0.2]


def widths(posteriors: Any, name: str, which: int | None = None) -> np.ndarray:
    """Return the widths of 95 % intervals of a parameter, or of one of its components."""
    drawn = [each.draws[name] if which is None else each.draws[name][..., which] for each in posteriors]
    return np.array([np.ptp(np.quantile(each, [0.025, 0.975])) for each in drawn])


FAMILIES = {
    "binomial": (Binomial(), Beta(1, 1), 0.3, lambda rng: rng.binomial(1, 0.3, 1000), 0.1, None),
    "binomial, rare": (Binomial(), Beta(1, 1), 0.1, lambda rng: rng.binomial(1, 0.1, 1000), 0.05, None),
    "poisson": (Poisson(0, 10), Gamma(2, 1), 2.0, lambda rng: rng.poisson(2.0, 1000), 0.4, None),
    "exponential": (Exponential(0, 3), Gamma(2, 1), 1.5, lambda rng: rng.exponential(1 / 1.5, 1000), 0.3, None),
    "multinomial": (Multinomial(3), Dirichlet([1, 1, 1]), SHARES, lambda rng: rng.choice(3, 1000, p=SHARES), 0.1, 1),
    "negative binomial": (
        NegativeBinomial(0, 50),
        None,
        [3, 0.5],
        lambda rng: rng.negative_binomial(0.5, 0.5 / 3.5, 1000),
        1.5,
        0,
    ),
    "normal": (
        Normal(120, 220),
        NormalInverseGamma(170, 0.1, 3, 200),
        [172, 90],
        lambda rng: rng.normal(172, 90**0.5, 1000),
        2.0,
        0,
    ),
}


@pytest.mark.filterwarnings("ignore")  # chains are short: there are 300 of each
@pytest.mark.parametrize(("mechanism", "delta"), NOISES)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_planned_epsilon_of_a_family_gives_the_wanted_width(name: str, mechanism: str, delta: float) -> None:
    family, prior, theta, draw, wanted, which = FAMILIES[name]
    noise: dict[str, Any] = {"mechanism": mechanism, "delta": delta}
    plan = expfam.solve_epsilon(wanted, family, n=1000, theta=theta, prior=prior, of=which, **noise)
    rng = np.random.default_rng(1)
    noisy = [expfam.release(draw(rng), family, epsilon=plan.epsilon, rng=rng, **noise) for _ in range(TRIALS)]
    found = widths(expfam.infer(noisy, prior, draws=400, chains=4, rng=rng), "theta", which)
    assert np.median(found) == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize(("mechanism", "delta"), NOISES)
@pytest.mark.parametrize(("n", "wanted"), [(2000, 4.0), (200, 9.0)])
def test_the_planned_epsilon_of_a_mean_gives_the_wanted_width_though_records_are_skewed(
    n: int, wanted: float, mechanism: str, delta: float
) -> None:
    noise: dict[str, Any] = {"mechanism": mechanism, "delta": delta}
    plan = expfam.solve_epsilon_mean(wanted, (0, 200), n=n, mean=30, sd=25, **noise)
    rng = np.random.default_rng(2)
    noisy = [
        expfam.release_mean(rng.gamma(1.44, 30 / 1.44, n), (0, 200), epsilon=plan.epsilon, rng=rng, **noise)
        for _ in range(TRIALS)
    ]
    found = widths(expfam.infer(noisy, draws=400, rng=rng), "mean")
    assert np.median(found) == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize(("mechanism", "delta"), NOISES)
@pytest.mark.parametrize(
    ("shares", "n", "wanted"), [([0.3, 0.6, 0.1], 1000, 0.08), ([0.02] * 10 + [0.8], 1000, 0.06), (SHARES, 300, 0.2)]
)
def test_the_planned_epsilon_of_a_histogram_gives_the_wanted_width(
    shares: list[float], n: int, wanted: float, mechanism: str, delta: float
) -> None:
    noise: dict[str, Any] = {"mechanism": mechanism, "delta": delta}
    plan = expfam.solve_epsilon_histogram(wanted, shares, n=n, **noise)
    rng, labels = np.random.default_rng(3), list(range(len(shares)))
    noisy = [
        expfam.release_histogram(
            rng.choice(len(shares), n, p=shares), labels=labels, epsilon=plan.epsilon, rng=rng, **noise
        )
        for _ in range(TRIALS)
    ]
    which = int(np.argmin(np.abs(np.array(shares) - 0.5)))
    found = widths(expfam.infer(noisy, draws=400, rng=rng), "probabilities", which)
    assert np.median(found) == pytest.approx(wanted, rel=0.1)


def test_eight_of_ten_widths_are_in_the_range_of_the_preview() -> None:
    """300 widths of waiting times, 4,000 draws each: the share inside is .8 ± .08, beyond three standard errors."""
    family, prior = Exponential(0, 3), Gamma(2, 1)
    look = expfam.preview(family, n=800, epsilon=0.2, theta=1.5, prior=prior)
    rng = np.random.default_rng(4)
    noisy = [expfam.release(rng.exponential(1 / 1.5, 800), family, epsilon=0.2, rng=rng) for _ in range(TRIALS)]
    found = widths(expfam.infer(noisy, prior, rng=rng), "theta")
    assert np.mean((found >= look.width_low) & (found <= look.width_high)) == pytest.approx(0.8, abs=0.08)
    assert np.median(found) == pytest.approx(look.width, rel=0.05)


@pytest.mark.parametrize("epsilon", [0.03, 0.3, 3.0, 30.0])
def test_a_plan_inverts_a_preview(epsilon: float) -> None:
    look = expfam.preview(Poisson(0, 10), n=500, epsilon=epsilon, theta=2.0, prior=Gamma(2, 1))
    wanted = float(look.width)
    least = expfam.preview(Poisson(0, 10), n=500, epsilon=1e6, theta=2.0, prior=Gamma(2, 1)).width
    if wanted < 1.01 * least:
        pytest.skip("noise is too small to be found from the width")
    plan = expfam.solve_epsilon(wanted, Poisson(0, 10), n=500, theta=2.0, prior=Gamma(2, 1))
    again = expfam.preview(Poisson(0, 10), n=500, epsilon=plan.epsilon, theta=2.0, prior=Gamma(2, 1))
    assert again.width == pytest.approx(wanted, rel=0.01)


def test_more_noise_never_narrows_what_is_expected() -> None:
    looks = [expfam.preview(Normal(0, 10), n=500, epsilon=e, theta=[4, 2]) for e in (3.0, 1.0, 0.3, 0.1, 0.03)]
    assert (np.diff([look.width[0] for look in looks]) > 0).all()


class Delayed(Family):
    """Waiting times that begin at 1: a family of one's own, with what the protocol demands and no more."""

    name, prior_type = "delayed", Gamma
    statistic_range = (0.0, np.inf)

    def __init__(self) -> None:
        self.bounds, self.beyond = (1.0, 5.0), Exponential(0.0, 4.0)

    @property
    def inside_range(self) -> tuple[float, float]:
        return (0.0, 4.0)

    def statistics(self, records):
        return records - 1.0

    def mean_and_covariance(self, theta, outside):
        return self.beyond.mean_and_covariance(theta, outside)

    def draw_parameter(self, prior, sums, n, rng):
        return rng.standard_gamma(prior.shape + n, sums.shape[:-1]) / (prior.rate + sums[..., 0])

    def check_parameter(self, theta):
        return self.beyond.check_parameter(theta)


def test_a_family_of_ones_own_has_plans_too() -> None:
    own = expfam.solve_epsilon(0.3, Delayed(), n=800, theta=1.5, prior=Gamma(2, 1))
    known = expfam.solve_epsilon(0.3, Exponential(0, 4), n=800, theta=1.5, prior=Gamma(2, 1))
    assert own.epsilon == pytest.approx(known.epsilon, rel=1e-6)


def test_a_width_that_no_epsilon_reaches_is_refused_with_the_least_one() -> None:
    """Without noise a share of .3 among 1000 has an interval of width 2 · 1.96 · sqrt(.21/1000) = .0568, less what a
    flat prior adds."""
    with pytest.raises(ValueError, match=r"width must be greater than 0\.0567"):
        expfam.solve_epsilon(0.05, Binomial(), n=1000, theta=0.3)
    with pytest.raises(ValueError, match="width must be greater than"):
        expfam.solve_epsilon_mean(1.0, (0, 200), n=2000, mean=30, sd=25)
    with pytest.raises(ValueError, match="width must be greater than"):
        expfam.solve_epsilon_histogram(0.05, SHARES, n=1000)


def test_a_width_that_a_prior_has_already_is_refused() -> None:
    with pytest.raises(ValueError, match=r"width must be less than 0\.95, known without a release"):
        expfam.solve_epsilon(0.99, Binomial(), n=1000, theta=0.3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: expfam.solve_epsilon(-1, Binomial(), n=10), ValueError, "width must be greater than 0"),
        (lambda: expfam.solve_epsilon(0.1, Multinomial(3), n=10, theta=SHARES), TypeError, "of must be one of"),
        (lambda: expfam.solve_epsilon(0.1, Multinomial(3), n=10, theta=SHARES, of=3), ValueError, "of must be less"),
        (lambda: expfam.solve_epsilon(0.1, Normal(0, 1), n=10, theta=[0.5, 1], of="sd"), ValueError, "of must be one"),
        (lambda: expfam.solve_epsilon(0.1, Binomial(), n=10, mechanism="gaussian"), ValueError, "delta must"),
        (lambda: expfam.solve_epsilon(0.1, Binomial(), n=10, delta=0.1), ValueError, "delta must be 0"),
        (lambda: expfam.solve_epsilon(0.1, Binomial(), n=0), ValueError, "n must be at least 1"),
        (lambda: expfam.preview_mean((0, 1), n=10, epsilon=1.0, mean=2), ValueError, "mean must lie inside"),
        (lambda: expfam.preview_mean((0, 1), n=10, epsilon=1.0, sd=0.7), ValueError, "sd must be at most"),
        (lambda: expfam.preview_mean((0, 1), n=2, epsilon=1.0), ValueError, "n must be at least 3"),
        (lambda: expfam.preview_histogram([0.5, 0.6], n=10, epsilon=1.0), ValueError, "probabilities must"),
        (lambda: expfam.preview_histogram([1.0], n=10, epsilon=1.0), ValueError, "probabilities must"),
        (
            lambda: expfam.preview_histogram(SHARES, n=10, epsilon=1.0, prior=Dirichlet([1, 1])),
            TypeError,
            "prior must be None or a Dirichlet with 3",
        ),
    ],
)
def test_what_is_wrong_is_named(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()


def test_the_noise_of_a_mean_and_of_a_histogram_is_the_one_of_their_releases() -> None:
    rng = np.random.default_rng(0)
    for mechanism, delta in NOISES:
        noise: dict[str, Any] = {"epsilon": 0.7, "mechanism": mechanism, "delta": delta}
        mean = expfam.release_mean(rng.uniform(0, 1, 50), (0, 1), rng=rng, **noise)
        assert expfam.preview_mean((0, 1), n=50, **noise).noise_scale == pytest.approx(mean.scale["sum"], rel=1e-6)
        table = expfam.release_histogram([0, 1, 1], labels=[0, 1], rng=rng, **noise)
        look = expfam.preview_histogram([0.5, 0.5], n=3, **noise)
        assert look.noise_scale == pytest.approx(table.scale["histogram"], rel=1e-6)
