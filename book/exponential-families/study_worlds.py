"""Simulated worlds of chapter 3 (a parameter from the prior, records, a release) and what each method infers from them.

All trials of a world are advanced at once. Worlds are for measuring methods: they publish nothing and spend no budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook import Release
from dpbook.expfam import (
    Beta,
    Binomial,
    Dirichlet,
    Exponential,
    Family,
    Gamma,
    GibbsState,
    Multinomial,
    Normal,
    NormalInverseGamma,
    Poisson,
    gibbs_start,
    gibbs_step,
    posterior_density,
)
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.sampling import run

Array: TypeAlias = NDArray[np.float64]

OPS_FLOOR = 0.1  # the support of posterior samples is [floor, 1 - floor]
OPS_COUNT = 100  # posterior samples, each at a hundredth of epsilon


@dataclass(frozen=True)
class Model:
    """A family with its prior, how records are drawn, the scalars that are judged, and the methods compared."""

    family: Family
    prior: Any
    records: Callable[[Array, int, np.random.Generator], Array]  # (trials, n) given theta
    quantities: Mapping[str, int | None]  # the component of theta
    strength: float  # how many records the prior is worth, for the mixing time of Gibbs
    methods: tuple[tuple[str, str], ...]  # (outside, method)


def _codes(theta: Array, n: int, rng: np.random.Generator) -> Array:
    edges = np.cumsum(theta, axis=-1)[:, None, :-1]
    return np.asarray((rng.random((len(theta), n))[..., None] > edges).sum(axis=-1), dtype=float)


_BOUNDED = (("all", "non-private"), ("all", "naive"))
_UNBOUNDED = (
    ("all", "non-private"),
    ("redact", "naive"),
    ("redact", "cheating naive"),
    ("redact", "collapsed"),
    ("redact", "gibbs"),
    ("clip", "naive"),
    ("clip", "collapsed"),
    ("clip", "gibbs"),
)
MODELS: Mapping[str, Model] = {
    "binomial": Model(
        Binomial(),
        Beta(10, 10),
        lambda theta, n, rng: np.asarray(rng.random((len(theta), n)) < theta[:, None], dtype=float),
        {"theta": None},
        20.0,
        (*_BOUNDED, ("all", "exact"), ("all", "collapsed"), ("all", "gibbs"), ("all", "posterior samples")),
    ),
    "multinomial": Model(
        Multinomial(3), Dirichlet([10, 10, 10]), _codes, {"theta[0]": 0}, 30.0, (*_BOUNDED, ("all", "gibbs"))
    ),
    "exponential": Model(
        Exponential(0.0063, 1.1717),
        Gamma(8, 2),
        lambda theta, n, rng: rng.exponential(1 / theta[:, None], (len(theta), n)),
        {"theta": None},
        8.0,
        _UNBOUNDED,
    ),
    "poisson": Model(
        Poisson(0, 8),
        Gamma(40, 10),
        lambda theta, n, rng: rng.poisson(theta[:, None], (len(theta), n)).astype(float),
        {"theta": None},
        10.0,
        tuple(each for each in _UNBOUNDED if each != ("redact", "gibbs")),
    ),
    "normal": Model(
        Normal(-3, 3),
        NormalInverseGamma(0, 20, 10, 9),
        lambda theta, n, rng: rng.normal(theta[:, :1], np.sqrt(theta[:, 1:]), (len(theta), n)),
        {"mean": 0, "variance": 1},
        20.0,
        (("all", "non-private"), ("clip", "naive"), ("clip", "gibbs")),
    ),
}


class World(NamedTuple):
    """Simulated trials of one model: truths, exact sums, and releases of them.

    Released sums, and the scale of their noise, are named by what was done to records outside the bounds; ``"none"`` is
    the sum of all records with the noise of the redacted release, which no privacy mechanism offers.
    """

    model: Model
    n: int
    epsilon: float
    theta: Array  # (trials, ...)
    records: Array  # (trials, n)
    sufficient: Array  # (trials, k)
    noisy: dict[str, Array]  # (trials, k)
    scale: dict[str, float]


def simulate(name: str, n: int, epsilon: float, *, trials: int, rng: np.random.Generator) -> World:
    """Draw parameters, records and releases, all trials at once: exact sums plus noise, as ``expfam.release`` makes.

    The same noise, scaled, serves all treatments of records outside the bounds.
    """
    model = MODELS[name]
    family = model.family
    theta = model.prior.draw(trials, rng)
    records = model.records(theta, n, rng)
    rows = records.reshape(-1, 1)

    def sums(statistics: Array) -> Array:
        return np.asarray(statistics.reshape(trials, n, -1).sum(axis=1))

    unit = rng.laplace(size=(trials, family.size))
    treatments = {"all": "clip"} if family.bounded else {"redact": "redact", "clip": "clip"}
    exact = {key: sums(family.released(rows, how)) for key, how in treatments.items()}
    scale = {key: family.sensitivity(how) / epsilon for key, how in treatments.items()}
    sufficient = sums(family.statistics(rows))
    if not family.bounded:
        exact["none"], scale["none"] = sufficient, scale["redact"]
    noisy = {key: exact[key] + scale[key] * unit for key in exact}
    return World(model, n, epsilon, theta, records, sufficient, noisy, scale)


def treatment(outside: str) -> str:
    """Return what a release of these sums says of records outside the bounds."""
    return "clip" if outside == "all" else outside


def posterior_draws(
    world: World, method: str, outside: str, *, draws: int = 400, rng: np.random.Generator
) -> tuple[Array, int]:
    """Let one method infer from every release; return draws, and how many, evenly spaced, are about independent.

    Gibbs gives 150 draws of each posterior, posterior sampling 100.
    """
    if method == "gibbs":
        return gibbs_draws(world, outside, package_sampler(world, outside), rng)
    if method == "posterior samples":
        return _flattened_draws(world, rng), OPS_COUNT
    if method == "exact":
        found = [posterior_density(each, world.model.prior).draw(draws, rng) for each in releases_of(world, outside)]
        return np.stack(found), draws
    if method == "collapsed":
        return _collapsed_draws(world, outside, draws, rng), draws
    family, n = world.model.family, np.asarray(world.n)
    source = {"non-private": None, "naive": outside, "cheating naive": "none"}[method]
    sums = world.sufficient if source is None else family.nearest_valid(world.noisy[source], n)
    many = np.broadcast_to(sums[:, None, :], (len(sums), draws, family.size))
    return family.draw_parameter(world.model.prior, many, n, rng), draws


def releases_of(world: World, outside: str) -> Iterator[Release]:
    """Wrap released values as the releases that an analyst would hold."""
    family, how = world.model.family, treatment(outside)
    settings = dict(family.settings) if family.bounded else {**family.settings, "outside": how}
    for noisy in world.noisy[outside]:
        yield Release(
            values={"sum": noisy},
            model=family.name,
            mechanism="laplace",
            scale={"sum": world.scale[outside]},
            sensitivity={"sum": family.sensitivity(how)},
            epsilon=world.epsilon,
            n=world.n,
            bounds={"x": family.bounds},
            settings=settings,
            float_safe=False,
        )


def parameter_grid(prior: Any, points: int = 2000) -> tuple[Array, Array]:
    """Return one grid for all trials, even in logit or log theta, and the logarithms of its cell widths."""
    if prior.support == (0.0, 1.0):
        u = np.linspace(-7.0, 7.0, points)
        theta = special.expit(u)
        return theta, np.log(theta * (1 - theta))
    u = np.linspace(math.log(0.1), math.log(25.0), points)
    return np.exp(u), u


def _collapsed_draws(world: World, outside: str, draws: int, rng: np.random.Generator) -> Array:
    """Draw from the collapsed posteriors of all trials on one grid; the package's own adapts its grid to each."""
    theta, log_width = parameter_grid(world.model.prior)
    mean, cov = world.model.family.moments(theta, treatment(outside))
    log_density = normal_laplace_logpdf(
        world.noisy[outside], world.n * mean[:, 0], world.n * np.maximum(cov[:, 0, 0], 0.0), world.scale[outside]
    )
    log_density = log_density + world.model.prior.log_density(theta) + log_width
    return inverse_cdf_draws(theta, log_density, draws, rng)


def inverse_cdf_draws(theta: Array, log_mass: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draw from densities on a grid, (trials, points), by the inverse of the trapezium rule's distribution function."""
    mass = np.exp(log_mass - log_mass.max(axis=1, keepdims=True))
    cdf = np.concatenate([np.zeros((len(mass), 1)), np.cumsum(mass[:, 1:] + mass[:, :-1], axis=1)], axis=1)
    cdf /= cdf[:, -1:]
    u = rng.random((len(mass), draws))
    return np.stack([np.interp(each, row, theta) for each, row in zip(u, cdf, strict=True)])


def _flattened_draws(world: World, rng: np.random.Generator) -> Array:
    """Draw posterior samples of a share, each at epsilon / 100: the law of ``release_posterior_samples``."""
    theta = np.linspace(OPS_FLOOR, 1 - OPS_FLOOR, 2001)
    log_odds = float(special.logit(1 - OPS_FLOOR))
    temperature = max(1.0, 2 * log_odds * OPS_COUNT / world.epsilon)
    eta, normaliser = world.model.family.natural(theta)
    log_likelihood = eta * world.sufficient - np.asarray(world.n) * normaliser
    utility = world.model.prior.log_density(theta) + log_likelihood
    weight = np.exp((utility - utility.max(axis=1, keepdims=True)) / temperature)
    cdf = np.cumsum(weight, axis=1)
    u = rng.random((len(cdf), OPS_COUNT)) * cdf[:, -1:]
    return np.asarray(theta[np.stack([np.searchsorted(row, each) for row, each in zip(cdf, u, strict=True)])])


class Sampler(NamedTuple):
    """Where chains start, given their number, and their sweep."""

    start: Callable[[int, np.random.Generator], GibbsState]
    step: Callable[[np.random.Generator, GibbsState], tuple[GibbsState, None]]


def package_sampler(world: World, outside: str) -> Sampler:
    """Return the package's Gibbs sampler for the releases of a world, without leaps."""
    sizes = np.full(len(world.theta), float(world.n)), np.full(len(world.theta), world.scale[outside])
    problem = (world.model.family, world.model.prior, world.noisy[outside], *sizes)
    how = treatment(outside)
    step = gibbs_step(*problem, outside=how, laplace=True)
    return Sampler(lambda chains, rng: gibbs_start(*problem, chains, rng, outside=how), step)


def _predicted_autocorrelation(world: World, outside: str) -> float:
    """Return about how many sweeps make an independent draw.

    Two blocks, theta and the latent sum, alternate, so that the lag-one autocorrelation of theta is the share of its
    posterior variance that knowing the sum would remove. Of the noise and of the prior, the sharper one limits that
    variance: the time is 2 min(1 + noise / sampling variance, 1 + n / prior strength).
    """
    _, cov = world.model.family.moments(world.theta, treatment(outside))
    sampling = world.n * np.median(cov[..., 0, 0])
    return 2 * min(1 + 2 * world.scale[outside] ** 2 / sampling, 1 + world.n / world.model.strength)


def gibbs_draws(world: World, outside: str, sampler: Sampler, rng: np.random.Generator) -> tuple[Array, int]:
    """Warm up for 10 autocorrelation times, keep 60 of them as 150 draws; 30 of those are far enough apart to rank."""
    time_between = _predicted_autocorrelation(world, outside)
    kept = run(
        sampler.step,
        sampler.start(1, rng),
        per_chain=150,
        burn_in=max(500, math.ceil(10 * time_between)),
        thin=max(5, math.ceil(time_between / 2.5)),
        keep=["theta"],
        rng=rng,
    )["theta"][0]
    return np.moveaxis(kept, 1, 0), 30
