"""The studies of chapter 4: whether posteriors of private regressions are calibrated, what they are worth and cost.

Each simulates many worlds at once (parameters from the prior, records, a seeded release) and lets methods infer.
Studies measure methods; they publish nothing and spend no budget. Those of the cases are in ``study_cases.py``.
``python tools/study.py regression NAME`` runs one.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import study_cases
import study_labels
from numpy.typing import NDArray
from study_cases import quiet_infer

from dpbook import Posterior, Release, diagnostics, sensitivity
from dpbook.regression import Layout, NormalInverseGamma, NormalInverseWishart, moments
from dpbook.studies import Study, cell_rng, corrected, judge

Array = NDArray[np.float64]

SIZES = (10, 100, 1000, 10_000)
EPSILONS = (0.1, 1.0, 10.0)
METHODS = ("non-private", "naive", "gibbs-noisy", "gibbs-prior", "gibbs-update", "collapsed")
QUANTITIES = ("intercept", "slope", "sigma2")
SEED = 40

# Prior variance of each coefficient, and whether records are clipped to [-1, 1] before they are summed.
DESIGNS: dict[str, tuple[float, bool]] = {
    "source": (1.0, False),  # a third of the responses leave the bounds and are summed all the same
    "clipped": (0.06, True),  # tighter, and clipped as a release clips
    "wide, clipped": (1.0, True),
}
SHAPE, RATE = 20.0, 0.5  # of sigma2
DOF = 50.0  # of the covariates' variance, 1 / 48 on average
_BLOCK = 2_000_000  # records simulated at once
_CHAINS, _DRAWS = 2, 400  # of every sampler in a grid
_BURN_IN, _THIN = 2000, 20  # of the Gibbs samplers
_INDEPENDENT = ("non-private", "naive")  # methods whose draws are
_LEAST, _MOST = 10, 200  # how many draws may count as independent


# Worlds -------------------------------------------------------------------------------------------------------------


class Draws(NamedTuple):
    """Posterior draws of all trials."""

    theta: Array  # (trial, chain, draw, coefficient)
    sigma2: Array  # (trial, chain, draw)


class World(NamedTuple):
    """Simulated regressions of one size and privacy loss, one a trial, on the bounds [-1, 1]."""

    theta: Array  # (trial, d + 1)
    sigma2: Array  # (trial,)
    sums: Array  # (trial, statistic), which no analyst sees
    releases: list[Release]
    with_moments: list[Release]  # the same with third and fourth moments of x, at the joint sensitivity
    split: list[Release]  # the same with half of epsilon for the moments, as in the source
    prior: NormalInverseGamma
    covariates: NormalInverseWishart

    @property
    def noisy(self) -> Array:
        """The noisy sums (trial, statistic)."""
        return np.stack([each["sums"] for each in self.releases])

    def truth(self, quantity: str) -> Array:
        """Return the true value of one of ``QUANTITIES`` in every trial."""
        return self.sigma2 if quantity == "sigma2" else self.theta[:, QUANTITIES.index(quantity)]


def simulate(
    n: int, epsilon: float, *, trials: int, rng: np.random.Generator, design: str = "source", d: int = 1
) -> World:
    """Draw parameters from the prior, records from the parameters, and a release from the records, for each trial."""
    variance, clip = DESIGNS[design]
    precision, dof = RATE / (SHAPE - 1) / variance, DOF + d - 1
    prior = NormalInverseGamma(np.zeros(d + 1), precision * np.eye(d + 1), SHAPE, RATE)
    covariates = NormalInverseWishart(np.zeros(d), 1.0, np.eye(d), dof)
    sigma2 = RATE / rng.gamma(SHAPE, size=trials)
    theta = rng.normal(size=(trials, d + 1)) * np.sqrt(sigma2 / precision)[:, None]
    root = _inverse_wishart_root(dof, d, trials, rng)
    mean = np.einsum("tij,tj->ti", root, rng.normal(size=(trials, d)))
    sums, higher = _sums(theta, sigma2, mean, root, n, clip, rng)
    low, high = -np.ones(d + 1), np.ones(d + 1)
    alone = sensitivity.second_moments(low, high, intercept=True)
    releases = _released({"sums": (sums, alone / epsilon)}, n, epsilon, rng)
    if d > 1:
        return World(theta, sigma2, sums, releases, releases, releases, prior, covariates)
    joint = sensitivity.fourth_moments(low, high, intercept=True) / epsilon
    both = _released({"sums": (sums, joint), "moments": (higher, joint)}, n, epsilon, rng)
    # Halves of epsilon. On [-1, 1] a record moves x³ and x⁴ together by at most 2 + max (t³ - t⁴) = 2 + 27/256.
    half, of_moments = 2 * alone / epsilon, 2 * (2 + 27 / 256) / epsilon
    split = _released({"sums": (sums, half), "moments": (higher, of_moments)}, n, epsilon, rng)
    return World(theta, sigma2, sums, releases, both, split, prior, covariates)


def _inverse_wishart_root(dof: float, d: int, trials: int, rng: np.random.Generator) -> Array:
    """Return matrices A with A Aᵀ ~ InverseWishart(identity, dof), by Bartlett's decomposition."""
    lower = np.zeros((trials, d, d))
    for i in range(d):
        lower[:, i, i] = np.sqrt(rng.chisquare(dof - i, size=trials))
        lower[:, i, :i] = rng.normal(size=(trials, i))
    return np.asarray(np.swapaxes(np.linalg.inv(lower), -1, -2))


def _sums(
    theta: Array, sigma2: Array, mean: Array, root: Array, n: int, clip: bool, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Simulate n records of every trial and return the sums of their statistics, and of the powers x³, x⁴."""
    trials, d = mean.shape
    layout = Layout(d, True)
    sums, higher = np.zeros((trials, layout.size)), np.zeros((trials, 2))
    at_once = max(1, _BLOCK // (trials * layout.width))
    for start in range(0, n, at_once):
        count = min(at_once, n - start)
        x = mean[:, None] + np.einsum("tij,trj->tri", root, rng.normal(size=(trials, count, d)))
        error = np.sqrt(sigma2)[:, None] * rng.normal(size=(trials, count))
        y = theta[:, :1] + np.einsum("trj,tj->tr", x, theta[:, 1:]) + error
        u = np.concatenate([np.ones((trials, count, 1)), x, y[..., None]], axis=-1)
        if clip:
            u = np.clip(u, -1, 1)
        sums += layout.vector(np.swapaxes(u, -1, -2) @ u)
        if d == 1:
            higher += np.stack([(u[..., 1] ** power).sum(axis=1) for power in (3, 4)], axis=-1)
    return sums, higher


def _released(
    values: Mapping[str, tuple[Array, float]], n: int, epsilon: float, rng: np.random.Generator | None
) -> list[Release]:
    """Return one release a trial: values with Laplace noise of their scales, or as they are where there is no rng.

    They are written by hand, since :func:`regression.release` would clip what the source does not.
    """
    noisy = {
        name: array if rng is None else array + rng.laplace(scale=scale, size=array.shape)
        for name, (array, scale) in values.items()
    }
    d = next(d for d in itertools.count(1) if Layout(d, True).size == noisy["sums"].shape[1])
    columns = [f"x{j + 1}" for j in range(d)]
    scales = {name: scale for name, (_, scale) in values.items()}
    return [
        Release(
            values={name: array[trial] for name, array in noisy.items()},
            model="linear regression",
            mechanism="laplace",
            scale=scales,
            sensitivity={name: scale * epsilon for name, scale in scales.items()},
            epsilon=epsilon,
            n=n,
            bounds=dict.fromkeys([*columns, "y"], (-1.0, 1.0)),
            settings={"intercept": True, "columns": columns, "response": "y"},
            float_safe=False,
        )
        for trial in range(len(noisy["sums"]))
    ]


def infer_releases(
    releases: Sequence[Release], world: World, method: str, *, rng: np.random.Generator, **options: Any
) -> Draws:
    """Let a method infer from releases with the priors of a world, in one batch, and say nothing of convergence."""
    found = quiet_infer(releases, world.prior, covariates=world.covariates, method=method, rng=rng, **options)
    return Draws(*(np.stack([each.draws[name] for each in found]) for name in Draws._fields))


def infer_world(
    world: World,
    method: str,
    *,
    rng: np.random.Generator,
    chains: int = _CHAINS,
    draws: int = _DRAWS,
    **options: Any,
) -> Draws:
    """Let one of ``METHODS``, or another method of :func:`regression.infer`, infer from every trial, in one batch.

    Gibbs samplers run 2,000 sweeps and keep one in 20 where the options say nothing else.
    """
    releases = world.with_moments if method == "gibbs-noisy" else world.releases
    if method == "non-private":
        first = releases[0]
        releases = _released({"sums": (world.sums, first.scale["sums"])}, first.n, first.epsilon, None)
        method = "naive"
    if method.startswith("gibbs"):
        options = {"burn_in": _BURN_IN, "thin": _THIN, **options}
    return infer_releases(releases, world, method, rng=rng, chains=chains, draws=draws, **options)


# Scores -------------------------------------------------------------------------------------------------------------


def _quantity(draws: Draws, quantity: str) -> Array:
    """Return the draws of one scalar, (trial, chain, draw)."""
    return draws.sigma2 if quantity == "sigma2" else draws.theta[..., QUANTITIES.index(quantity)]


def _mixing(chains: Array, look_at: int = 30) -> tuple[float, float]:
    """Return the median effective size and the share of trials with R-hat above 1.05, over the first trials."""
    found = [Posterior({"x": one}) for one in chains[:look_at]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = [float(each.ess("x")) for each in found]
        rhats = [float(each.rhat("x")) for each in found]
    return float(np.median(sizes)), float(np.mean(np.asarray(rhats) > 1.05))


def _judged(
    world: World, drawn: Draws, quantity: str, rng: np.random.Generator, *, independent: bool = False
) -> tuple[dict[str, float], Array]:
    """Return scores and ranks of one quantity; dependent draws are thinned to their effective number."""
    chains = _quantity(drawn, quantity)
    pooled = chains.reshape(len(chains), -1)
    size, unmixed = (float(pooled.shape[1]), 0.0) if independent else _mixing(chains)
    row, rank = judge(world.truth(quantity), pooled, int(np.clip(size, _LEAST, _MOST)), rng)
    return {**row, "ess": size, "rhat_above": unmixed}, rank


def _distance(drawn: Array, reference: Array, bandwidth: float) -> float:
    """Return the mean over trials of the squared MMD between two sets of draws of a scalar."""
    return float(np.mean([diagnostics.mmd2(a, b, bandwidth) for a, b in zip(drawn, reference, strict=True)]))


# Calibration --------------------------------------------------------------------------------------------------------


def calibration(n: int, epsilon: float, method: str, *, trials: int, seed: int, design: str = "source") -> pd.DataFrame:
    """Judge a method by simulation-based calibration, coverage and scores.

    One row a quantity, with the squared MMD to the non-private posterior, by a kernel of width 1 (``mmd``) and of the
    median non-private sd (``mmd_scaled``).
    """
    world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, design, n, epsilon), design=design)
    rng = cell_rng(seed, design, n, epsilon, method)
    drawn = infer_world(world, method, rng=rng)
    reference = infer_world(world, "non-private", rng=cell_rng(seed, design, n, epsilon, "non-private"))
    rows = []
    for quantity in QUANTITIES:
        row, _ = _judged(world, drawn, quantity, rng, independent=method in _INDEPENDENT)
        mine, theirs = (_quantity(each, quantity).reshape(trials, -1)[:, ::2] for each in (drawn, reference))
        width = float(np.median(theirs.std(axis=1)))
        distances = {"mmd": _distance(mine, theirs, 1.0), "mmd_scaled": _distance(mine, theirs, width)}
        rows.append({"method": method, "n": n, "epsilon": epsilon, "quantity": quantity, **row, **distances})
    return pd.DataFrame(rows)


def ranks(n: int, epsilon: float, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Return the ranks of the truth among posterior draws in a cell of ``calibration``: what a quantile plot shows."""
    world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "source", n, epsilon))
    rng = cell_rng(seed, "source", n, epsilon, method)
    drawn = infer_world(world, method, rng=rng)
    found = {q: _judged(world, drawn, q, rng, independent=method in _INDEPENDENT)[1] for q in QUANTITIES}
    return pd.DataFrame({"method": method, "n": n, "epsilon": epsilon, **found})


VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "corrected": {},
    "printed covariance": {"covariance": "printed"},
    "clipped matrix": {"invalid": "clip"},
    "projected scatter": {"invalid": "project"},
    "prior start": {"start": "prior"},
}


def printed(n: int, epsilon: float, name: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Judge "gibbs-update" corrected, or with one of the printed slips.

    ``flipped`` is the share of trials in which some chain's mean slope has the wrong sign although the true slope is
    more than two of the chain's own sds away from 0.
    """
    world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "source", n, epsilon))
    rng = cell_rng(seed, "printed", n, epsilon, name)
    drawn = infer_world(world, "gibbs-update", rng=rng, **VARIANTS[name])
    slopes = drawn.theta[..., 1].mean(axis=2)
    far = np.abs(world.theta[:, 1:]) > 2 * drawn.theta[..., 1].std(axis=2)
    flipped = float(np.mean(np.any(far & (np.sign(slopes) != np.sign(world.theta[:, 1:])), axis=1)))
    label = {"method": name, "n": n, "epsilon": epsilon}
    scores = {quantity: _judged(world, drawn, quantity, rng)[0] for quantity in QUANTITIES}
    return pd.DataFrame(
        [{**label, "quantity": quantity, **row, "flipped": flipped} for quantity, row in scores.items()]
    )


def moment_noise(n: int, epsilon: float, name: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Judge "gibbs-noisy" with moments at one sensitivity, their noise ignored or accounted for, or at half of epsilon.

    The last, as in the source, takes the noisy moments for the truth too.
    """
    world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "source", n, epsilon))
    rng = cell_rng(seed, "moments", n, epsilon, name)
    if name == "halves":
        world = world._replace(with_moments=world.split)
    options = {"account_for_moments": True} if name == "joint, accounted for" else {}
    drawn = infer_world(world, "gibbs-noisy", rng=rng, **options)
    label = {"method": name, "n": n, "epsilon": epsilon}
    scores = {quantity: _judged(world, drawn, quantity, rng)[0] for quantity in QUANTITIES}
    return pd.DataFrame([{**label, "quantity": quantity, **row} for quantity, row in scores.items()])


# Point estimates ----------------------------------------------------------------------------------------------------


def output_perturbation(
    world: World, epsilon: float, *, ridge: float, radius: float, rng: np.random.Generator
) -> Array:
    """Return the coefficients (trial, q) of a ridge regression with noise on the coefficients themselves.

    epsilon-DP for replace-one neighbours, n public, given records in [-1, 1] (the design "clipped"). The estimate
    minimises half the sum of squared errors plus half of ``ridge`` times the squared length of theta, over the ball of
    the given radius. The loss of one record has a gradient of length at most L = sqrt(q) (1 + sqrt(q) radius) there, q
    the number of coefficients, and the objective curves by at least ``ridge``, so replacing a record moves the
    estimate by at most 2 L / ridge; the noise has a density proportional to exp(-epsilon length ridge / (2 L)).
    """
    q = world.theta.shape[1]
    full = Layout(q - 1, True).matrix(world.sums, float(world.releases[0].n))
    estimate = ball_ridge(full[:, :q, :q], full[:, :q, q], ridge, radius)
    steepest = np.sqrt(q) * (1 + np.sqrt(q) * radius)
    length = rng.gamma(q, 2 * steepest / (ridge * epsilon), size=len(estimate))
    direction = rng.normal(size=estimate.shape)
    noisy = estimate + length[:, None] * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    return np.asarray(noisy / np.maximum(np.linalg.norm(noisy, axis=1, keepdims=True) / radius, 1))


def ball_ridge(gram: Array, cross: Array, ridge: float, radius: float) -> Array:
    """Return the ridge estimates within a ball: a larger ridge, by bisection, where the plain one leaves it."""
    eye = np.eye(gram.shape[-1])

    def solved(amount: Array) -> Array:
        return np.asarray(np.linalg.solve(gram + amount[:, None, None] * eye, cross[..., None])[..., 0])

    low = np.full(len(gram), ridge)
    high = np.maximum(low, np.linalg.norm(cross, axis=1) / radius)  # there the estimate is inside
    outside = np.linalg.norm(solved(low), axis=1) > radius
    for _ in range(80):
        middle = np.sqrt(low * high)
        above = np.linalg.norm(solved(middle), axis=1) > radius
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return solved(np.where(outside, high, ridge))


def _least_squares(world: World) -> Array:
    """Return the slope of the noisy sums, centred, as a plain quotient."""
    sx, sy, sxx, sxy, _ = world.noisy.T
    n = world.releases[0].n
    return np.asarray((sxy - sx * sy / n) / (sxx - sx**2 / n))


def point_estimates(n: int, epsilon: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Compare point estimates of the slope by their root mean squared and median absolute errors.

    Records are clipped. Noise-aware and naive estimates are posterior means; "least squares" divides the noisy
    cross-product by the noisy square, without a prior; output perturbation takes the best ridge of a public grid,
    chosen by its true error, which favours it.
    """
    world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "points", n, epsilon), design="clipped")
    rng = cell_rng(seed, "points", n, epsilon, "noise")
    slope = world.theta[:, 1]
    estimates = {
        method: infer_world(world, method, rng=rng).theta[..., 1].mean(axis=(1, 2))
        for method in ("non-private", "naive", "collapsed")
    }
    estimates["least squares"] = _least_squares(world)
    tried = [
        output_perturbation(world, epsilon, ridge=ridge, radius=1.0, rng=rng)[:, 1]
        for ridge in np.geomspace(1.0, 1e4, 9)
    ]
    estimates["output"] = min(tried, key=lambda each: float(np.mean((each - slope) ** 2)))
    estimates["prior"] = np.zeros(trials)
    rows = []
    for method, estimate in estimates.items():
        error = np.abs(estimate - slope)
        label = {"method": method, "n": n, "epsilon": epsilon}
        rows.append({**label, "rmse": np.sqrt(np.mean(error**2)), "median_error": np.median(error)})
    return pd.DataFrame(rows)


# Against the gold standard, and the clock -----------------------------------------------------------------------------


def gold_standard(n: int, epsilon: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Compare collapsed posteriors with the exact law of the sums, and with latent records by PyMC's NUTS.

    "individual" gets the first four releases at n = 100, epsilon = 1. Differences of posterior means are in sds of the
    reference, with their Monte-Carlo error beside them.
    """
    world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "gold", n, epsilon))
    rng = cell_rng(seed, "gold", n, epsilon, "samplers")
    ours = infer_world(world, "collapsed", rng=rng, chains=4, draws=4000)
    references = {"exact": infer_world(world, "exact", rng=rng, chains=4, draws=4000)}
    if (n, epsilon) == (100, 1.0):
        references["individual"] = infer_releases(
            world.releases[:4], world, "individual", rng=rng, chains=2, draws=1000
        )
    rows = []
    for name, reference in references.items():
        for quantity in QUANTITIES:
            theirs = _quantity(reference, quantity)
            mine = _quantity(ours, quantity)[: len(theirs)]
            label = {"reference": name, "n": n, "epsilon": epsilon, "quantity": quantity, "releases": len(theirs)}
            rows.append({**label, **_compared(mine, theirs)})
    return pd.DataFrame(rows)


def _compared(mine: Array, theirs: Array) -> dict[str, float]:
    """Return how two samplers' posteriors differ, on average over the releases."""
    sd = theirs.std(axis=(1, 2))
    gap = (mine.mean(axis=(1, 2)) - theirs.mean(axis=(1, 2))) / sd
    error = np.sqrt(_error_of_mean(mine, sd) ** 2 + _error_of_mean(theirs, sd) ** 2)
    return {
        "difference": gap.mean(),
        "absolute": np.abs(gap).mean(),
        "monte_carlo": np.sqrt(np.mean(error**2)),
        "sd_ratio": np.mean(mine.std(axis=(1, 2)) / sd),
    }


def _error_of_mean(chains: Array, sd: Array) -> Array:
    """Return the Monte-Carlo error of each release's posterior mean, in units of ``sd``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = np.array([float(Posterior({"x": one}).ess("x")) for one in chains])
    return np.asarray(chains.std(axis=(1, 2)) / np.sqrt(sizes) / sd)


def mixing(n: int, epsilon: float, method: str, *, trials: int, seed: int, sweeps: int = 10_000) -> pd.DataFrame:
    """Measure how well a sampler mixes: effective draws of the slope per second of computing.

    The first tenth of a Gibbs chain's sweeps is not counted. Seconds are of one machine and one run: compare rows.
    """
    world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "mixing", n, epsilon))
    options = {"draws": 2000}
    if method != "collapsed":
        thin = max(sweeps // 1000, 1)
        options = {"burn_in": sweeps // 10, "thin": thin, "draws": 4 * ((sweeps - sweeps // 10) // thin)}
    rng = cell_rng(seed, "mixing", n, epsilon, method)
    start = time.process_time()
    drawn = infer_world(world, method, rng=rng, chains=4, **options)
    seconds = time.process_time() - start
    size, unmixed = _mixing(drawn.theta[..., 1], trials)
    row = {"method": method, "n": n, "epsilon": epsilon, "ess": size, "seconds": seconds}
    return pd.DataFrame([{**row, "ess_per_second": size * trials / seconds, "rhat_above": unmixed}])


def runtime(n: int, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Time a method on releases in one batch, 1,000 draws each; the seconds are for one of them.

    "individual" runs one release.
    """
    world = simulate(n, 1.0, trials=trials, rng=cell_rng(seed, "runtime", n))
    rng = cell_rng(seed, "runtime", n, method)
    if method == "individual":
        world = world._replace(releases=world.releases[:1])
    start = time.process_time()
    drawn = infer_world(world, method, rng=rng, chains=4, draws=1000)
    seconds = (time.process_time() - start) / len(drawn.sigma2)
    size, _ = _mixing(drawn.theta[..., 1])
    return pd.DataFrame([{"method": method, "n": n, "seconds": seconds, "ess_per_second": size / seconds}])


def dimension(d: int, *, trials: int, seed: int) -> pd.DataFrame:
    """Time one evaluation of a record's covariance and one of its factor for d covariates; the least time counts.

    A sweep of any sampler here needs both; the source counts d⁶ operations for the inverse of a matrix with about
    d⁴ / 4 entries.
    """
    layout = Layout(d, True)
    theta, cov_x = cell_rng(seed, "dimension", d).normal(size=d + 1), np.eye(d) + 0.1
    of_moments, of_factor = [], []
    for _ in range(trials):
        start = time.process_time()
        means = moments.record_moments(theta, np.asarray(0.1), np.zeros(d), cov_x, layout)
        _, cov = moments.from_normal(*means, layout)
        middle = time.process_time()
        np.linalg.cholesky(100 * cov + np.eye(layout.size))
        of_moments.append(middle - start)
        of_factor.append(time.process_time() - middle)
    row = {"d": d, "statistics": layout.size, "seconds_moments": min(of_moments), "seconds_factor": min(of_factor)}
    return pd.DataFrame([{**row, "megabytes": 8e-6 * layout.size**2}])


# The grids ----------------------------------------------------------------------------------------------------------


def _grid(cells: Sequence[tuple[Any, ...]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    return [(*cell, name) for cell in cells for name in names]


_ALL = list(itertools.product(SIZES, EPSILONS))
_FEW = [(100, 1.0), (100, 10.0), (1000, 1.0)]
_MIXING = [(100, 0.1), (100, 1.0), (1000, 0.1), (1000, 1.0), (1000, 10.0)]
_TIMED = [method for method in METHODS if method != "non-private"]

STUDIES: dict[str, Study] = {
    "calibration": Study(calibration, _grid(_ALL, METHODS), 300, SEED, corrected),
    "clipped": Study(
        partial(calibration, design="clipped"),
        _grid(list(itertools.product((100, 1000), (0.1, 1.0))), ("non-private", "naive", "gibbs-update", "collapsed")),
        300,
        SEED,
        corrected,
    ),
    "ranks": Study(ranks, _grid([(10, 0.1), (1000, 0.1), (1000, 1.0)], METHODS), 300, SEED),
    "printed": Study(printed, _grid(_FEW, list(VARIANTS)), 300, SEED, corrected),
    "point_estimates": Study(
        point_estimates, list(itertools.product((30, 100, 300, 1000, 3000, 10_000), (0.3, 1.0, 10.0))), 200, SEED
    ),
    "gold_standard": Study(gold_standard, list(itertools.product((10, 100, 1000), (1.0, 10.0))), 24, SEED),
    "moment_noise": Study(
        moment_noise,
        _grid([(100, 1.0), (1000, 1.0), (1000, 10.0)], ("joint", "joint, accounted for", "halves")),
        300,
        SEED,
        corrected,
    ),
    "mixing": Study(mixing, _grid(_MIXING, ("gibbs-update", "gibbs-prior", "collapsed")), 12, SEED),
    "runtime": Study(runtime, [(n, each) for n in SIZES for each in [*_TIMED, *["individual"] * (n <= 100)]], 10, SEED),
    "dimension": Study(dimension, [(d,) for d in (1, 2, 5, 10, 20, 35, 50)], 4, SEED),
    **study_cases.STUDIES,
    **study_labels.STUDIES,
}
