"""The studies of chapter 4: whether posteriors of private regressions are calibrated, what they are worth and cost.

Every study simulates many worlds at once (parameters from the prior, covariates, responses, a seeded release) and lets
each method infer; each is a function that returns a table, and a command, ``python -m
dpbook.experiments.regression_study NAME``. Studies measure methods; they publish nothing and spend no budget.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from dpbook import diagnostics, sensitivity
from dpbook._validation import integer, one_of, positive
from dpbook.experiments._studies import (
    Study,
    cell_rng,
    corrected_over_study,
    judge,
    load_table,
    results_of,
    run_command,
)
from dpbook.posterior import Posterior
from dpbook.regression import gibbs
from dpbook.regression.gibbs import Variant
from dpbook.regression.inference import sample
from dpbook.regression.problem import CovariatePrior, Draws, Layout, ParameterPrior, Problem

__all__ = [
    "DESIGNS",
    "EPSILONS",
    "METHODS",
    "QUANTITIES",
    "RESULTS",
    "SIZES",
    "STUDIES",
    "World",
    "calibration",
    "clipped",
    "dimension",
    "gold_standard",
    "infer_world",
    "load",
    "main",
    "mixing",
    "moment_noise",
    "output_perturbation",
    "point_estimates",
    "printed",
    "ranks",
    "runtime",
    "simulate",
]

Array = NDArray[np.float64]

SIZES = (10, 100, 1000, 10_000)
EPSILONS = (0.1, 1.0, 10.0)
METHODS = ("non-private", "naive", "gibbs-noisy", "gibbs-prior", "gibbs-update", "collapsed")
QUANTITIES = ("intercept", "slope", "sigma2")
RESULTS = results_of("regression")
SEED = 40

# Prior variance of each coefficient, and whether records are clipped to [-1, 1] before they are summed.
DESIGNS: Mapping[str, tuple[float, bool]] = {"source": (1.0, False), "clipped": (0.06, True)}
SHAPE, RATE = 20.0, 0.5  # of sigma2
DOF = 50.0  # of the covariates' variance, 1 / 48 on average
_BLOCK = 2_000_000  # records simulated at once
_CHAINS, _KEPT = 2, 200  # of every sampler in a grid
_BURN_IN, _THIN = 2000, 20  # of the Gibbs samplers
_INDEPENDENT = ("non-private", "naive")  # methods whose draws are
_LEAST, _MOST = 10, 200  # how many draws may count as independent


class World(NamedTuple):
    """Simulated regressions of one size and privacy loss, one a trial, on the bounds [-1, 1].

    Attributes
    ----------
    theta : array (trial, d + 1)
    sigma2 : array (trial,)
        The parameters behind each trial.
    sums : array (trial, k)
        The sums that no analyst sees.
    problem : dpbook.regression.problem.Problem
        What the analyst has: the noisy sums and the priors they were drawn from.
    with_moments : dpbook.regression.problem.Problem
        The same data released with third and fourth moments of x, at the joint sensitivity; what "gibbs-noisy" needs.
    split : dpbook.regression.problem.Problem
        The same with half of epsilon for the moments, as in the source.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.regression_study import simulate
    >>> simulate(50, 1.0, trials=3, rng=np.random.default_rng(1)).problem.noisy.shape
    (3, 5)

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """

    theta: Array
    sigma2: Array
    sums: Array
    problem: Problem
    with_moments: Problem
    split: Problem

    def truth(self, quantity: str) -> Array:
        """Return the true value of one of ``QUANTITIES`` in every trial.

        Parameters
        ----------
        quantity : str
            One of ``QUANTITIES``.

        Returns
        -------
        array (trial,)

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.experiments.regression_study import simulate
        >>> simulate(50, 1.0, trials=3, rng=np.random.default_rng(1)).truth("slope").shape
        (3,)

        Explained in :doc:`/book/regression/calibration-utility-cost`.
        """
        one_of("quantity", quantity, QUANTITIES)
        return self.sigma2 if quantity == "sigma2" else self.theta[:, QUANTITIES.index(quantity)]


def simulate(
    n: int, epsilon: float, *, trials: int, rng: np.random.Generator, design: str = "source", d: int = 1
) -> World:
    """Draw parameters from the prior, records from the parameters, and a release from the records, for each trial.

    Parameters
    ----------
    n : int
        Records of a trial.
    epsilon : float
        The privacy loss of the release.
    trials : int
        How many worlds.
    rng : numpy.random.Generator
        Draws everything.
    design : {"source", "clipped"}
        The source's prior, under which a third of the responses leave the bounds and are summed all the same; or a
        tighter prior, with records clipped to the bounds, as a release clips them.
    d : int, default 1
        Number of covariates.

    Returns
    -------
    World
        The worlds and what an analyst gets of them.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.regression_study import simulate
    >>> world = simulate(100, 1.0, trials=4, rng=np.random.default_rng(1))
    >>> print(round(world.problem.scale[0], 3))
    5.333

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    n, trials, d = integer("n", n, least=1), integer("trials", trials, least=1), integer("d", d, least=1)
    epsilon = positive("epsilon", epsilon)
    variance, clip = DESIGNS[one_of("design", design, tuple(DESIGNS))]
    layout = Layout(d, True)
    precision = RATE / (SHAPE - 1) / variance
    prior = ParameterPrior(
        np.zeros((trials, d + 1)),
        np.broadcast_to(precision * np.eye(d + 1), (trials, d + 1, d + 1)),
        np.full(trials, SHAPE),
        np.full(trials, RATE),
    )
    dof = DOF + d - 1
    covariates = CovariatePrior(
        np.zeros((trials, d)), np.ones(trials), np.broadcast_to(np.eye(d), (trials, d, d)), np.full(trials, dof)
    )
    sigma2 = RATE / rng.gamma(SHAPE, size=trials)
    theta = rng.normal(size=(trials, d + 1)) * np.sqrt(sigma2 / precision)[:, None]
    root = _inverse_wishart_root(dof, d, trials, rng)
    mean = np.einsum("tij,tj->ti", root, rng.normal(size=(trials, d)))
    sums, higher = _sums(theta, sigma2, mean, root, n, clip, layout, rng)
    low, high = -np.ones(d + 1), np.ones(d + 1)
    alone = sensitivity.second_moments(low, high, intercept=True)

    def released(values: Array, scale: float) -> Array:
        return np.asarray(values + rng.laplace(scale=scale, size=values.shape))

    base = Problem(
        layout,
        released(sums, alone / epsilon),
        np.full(trials, alone / epsilon),
        "laplace",
        np.full(trials, float(n)),
        prior,
        covariates,
    )
    if d > 1:
        return World(theta, sigma2, sums, base, base, base)
    joint = sensitivity.fourth_moments(low, high, intercept=True) / epsilon
    both = replace(base, noisy=released(sums, joint), scale=np.full(trials, joint), moments=released(higher, joint))
    # Halves of epsilon. On [-1, 1] a record moves x³ and x⁴ together by at most 2 + max (t³ - t⁴) = 2 + 27/256.
    half, of_moments = 2 * alone / epsilon, 2 * (2 + 27 / 256) / epsilon
    split = replace(base, noisy=released(sums, half), scale=np.full(trials, half), moments=released(higher, of_moments))
    return World(theta, sigma2, sums, base, both, split)


def _inverse_wishart_root(dof: float, d: int, trials: int, rng: np.random.Generator) -> Array:
    """Return matrices A with A Aᵀ ~ InverseWishart(identity, dof), by Bartlett's decomposition."""
    lower = np.zeros((trials, d, d))
    for i in range(d):
        lower[:, i, i] = np.sqrt(rng.chisquare(dof - i, size=trials))
        lower[:, i, :i] = rng.normal(size=(trials, i))
    return np.asarray(np.swapaxes(np.linalg.inv(lower), -1, -2))


def _sums(
    theta: Array, sigma2: Array, mean: Array, root: Array, n: int, clip: bool, layout: Layout, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Simulate n records of every trial and return the sums of their statistics, and of the powers x³, x⁴."""
    trials = len(theta)
    sums = np.zeros((trials, layout.size))
    higher = np.zeros((trials, 2))
    at_once = max(1, _BLOCK // (trials * layout.width))
    for start in range(0, n, at_once):
        count = min(at_once, n - start)
        x = mean[:, None] + np.einsum("tij,trj->tri", root, rng.normal(size=(trials, count, layout.d)))
        error = np.sqrt(sigma2)[:, None] * rng.normal(size=(trials, count))
        y = theta[:, :1] + np.einsum("trj,tj->tr", x, theta[:, 1:]) + error
        u = np.concatenate([np.ones((trials, count, 1)), x, y[..., None]], axis=-1)
        if clip:
            u = np.clip(u, -1, 1)
        sums += layout.vector(np.swapaxes(u, -1, -2) @ u)
        if layout.d == 1:
            higher += np.stack([(u[..., 1] ** power).sum(axis=1) for power in (3, 4)], axis=-1)
    return sums, higher


def infer_world(
    world: World,
    method: str,
    *,
    rng: np.random.Generator,
    chains: int = _CHAINS,
    draws: int = _KEPT,
    **options: Any,
) -> Draws:
    """Let a method infer from every trial of a world, in one batch.

    Parameters
    ----------
    world : World
        From :func:`simulate`.
    method : str
        One of ``METHODS``, or another method of :func:`dpbook.regression.infer`.
    rng : numpy.random.Generator
        Of the sampler.
    chains, draws : int
        Chains of a trial, and draws kept in each.
    **options
        Of the sampler; Gibbs samplers run 2,000 sweeps and keep one in 20 where these say nothing else.

    Returns
    -------
    Draws
        With axes (trial, chain, draw).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.regression_study import infer_world, simulate
    >>> rng = np.random.default_rng(1)
    >>> world = simulate(100, 1.0, trials=5, rng=rng)
    >>> infer_world(world, "naive", rng=rng).sigma2.shape
    (5, 2, 200)

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    problem = world.with_moments if method == "gibbs-noisy" else world.problem
    if method == "non-private":
        problem, method = replace(world.problem, noisy=world.sums), "naive"
    if method in gibbs.KINDS:
        options = {"burn_in": _BURN_IN, "thin": _THIN, **options}
    return sample(problem, method=method, draws=chains * draws, chains=chains, rng=rng, **options)


def _drawn(world: World, method: str, cell: tuple[Any, ...]) -> tuple[Draws, np.random.Generator]:
    """Return a method's draws in one cell, and the generator that made them: the same in every study."""
    rng = cell_rng(*cell, method)
    return infer_world(world, method, rng=rng), rng


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
    world: World, drawn: Draws, quantity: str, rng: np.random.Generator, *, independent: bool
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


def calibration(
    *,
    trials: int = 300,
    sizes: Sequence[int] = SIZES,
    epsilons: Sequence[float] = EPSILONS,
    methods: Sequence[str] = METHODS,
    design: str = "source",
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Judge every method by simulation-based calibration, coverage and scores, on a grid of sizes and privacy losses.

    Parameters
    ----------
    trials : int, default 300
        Worlds a cell.
    sizes, epsilons, methods : sequences
        The grid.
    design : {"source", "clipped"}
        As in :func:`simulate`.
    seed : int
        Each cell has a generator of its own, so that a part of the grid repeats the same part of the whole.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    pandas.DataFrame
        One row a cell, method and quantity: the scores of calibration (``p_study`` is corrected over all the rows of
        the method), effective size and share of trials with R-hat above 1.05, the squared MMD to the non-private
        posterior with a kernel of width 1 (``mmd``) and of the panel's median non-private sd (``mmd_scaled``).

    Examples
    --------
    >>> from dpbook.experiments.regression_study import calibration
    >>> table = calibration(trials=100, sizes=[100], epsilons=[1.0], methods=["non-private", "naive"])
    >>> table.query("quantity == 'slope'").set_index("method")["ks"].idxmax()
    'naive'

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    cells = [(n, epsilon) for n in sizes for epsilon in epsilons]
    rows = []
    for n, epsilon in tqdm(cells, disable=not progress):
        world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, design, n, epsilon), design=design)
        reference, _ = _drawn(world, "non-private", (seed, design, n, epsilon))
        for method in methods:
            drawn, rng = _drawn(world, method, (seed, design, n, epsilon))
            for quantity in QUANTITIES:
                row, _ = _judged(world, drawn, quantity, rng, independent=method in _INDEPENDENT)
                mine, theirs = (_quantity(each, quantity).reshape(trials, -1)[:, ::2] for each in (drawn, reference))
                width = float(np.median(theirs.std(axis=1)))
                distances = {"mmd": _distance(mine, theirs, 1.0), "mmd_scaled": _distance(mine, theirs, width)}
                rows.append({"method": method, "n": n, "epsilon": epsilon, "quantity": quantity, **row, **distances})
    return corrected_over_study(pd.DataFrame(rows))


def clipped(*, trials: int = 300, seed: int = SEED, progress: bool = False) -> pd.DataFrame:
    """Calibrate with records clipped to the bounds, as a release clips them, under a prior that mostly respects them.

    Parameters
    ----------
    trials, seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        As :func:`calibration`, for 100 and 1,000 records.

    Examples
    --------
    >>> from dpbook.experiments.regression_study import load
    >>> sorted(load("clipped")["n"].unique().tolist())
    [100, 1000]

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    return calibration(
        trials=trials,
        sizes=(100, 1000),
        epsilons=(0.1, 1.0),
        methods=("non-private", "naive", "gibbs-update", "collapsed"),
        design="clipped",
        seed=seed,
        progress=progress,
    )


def ranks(
    *,
    trials: int = 300,
    cells: Sequence[tuple[int, float]] = ((10, 0.1), (1000, 0.1), (1000, 1.0)),
    methods: Sequence[str] = METHODS,
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Return the ranks of the truth among posterior draws: what a quantile plot shows.

    Parameters
    ----------
    trials, methods, seed, progress
        As in :func:`calibration`, whose worlds these are.
    cells : sequence of (n, epsilon)
        Which worlds.

    Returns
    -------
    pandas.DataFrame
        One row a cell, method and trial, one column a quantity.

    Examples
    --------
    >>> from dpbook.experiments.regression_study import ranks
    >>> ranks(trials=20, cells=[(100, 1.0)], methods=["naive"]).shape
    (20, 6)

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    tables = []
    for n, epsilon in tqdm(cells, disable=not progress):
        world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "source", n, epsilon))
        for method in methods:
            drawn, rng = _drawn(world, method, (seed, "source", n, epsilon))
            found = {q: _judged(world, drawn, q, rng, independent=method in _INDEPENDENT)[1] for q in QUANTITIES}
            label = {"method": method, "n": n, "epsilon": epsilon}
            tables.append(pd.DataFrame({**label, **found}))
    return pd.concat(tables, ignore_index=True)


def printed(*, trials: int = 300, seed: int = SEED, progress: bool = False) -> pd.DataFrame:
    """Judge "gibbs-update" as printed, one slip at a time, beside the corrected sampler.

    Parameters
    ----------
    trials, seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        One row a variant, cell and quantity; ``flipped`` is the share of trials in which some chain's mean slope has
        the wrong sign although the true slope is more than two of the chain's own sds away from 0.

    Examples
    --------
    >>> from dpbook.experiments.regression_study import load
    >>> load("printed")["method"].unique().tolist()[:2]
    ['corrected', 'printed covariance']

    Explained in :doc:`/book/regression/gibbs-samplers`.
    """
    variants = {
        "corrected": Variant(),
        "printed covariance": Variant(covariance="printed"),
        "clipped matrix": Variant(invalid="clip"),
        "projected scatter": Variant(invalid="project"),
        "prior start": Variant(start="prior"),
    }
    rows = []
    for n, epsilon in tqdm([(100, 1.0), (100, 10.0), (1000, 1.0)], disable=not progress):
        world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "source", n, epsilon))
        for name, variant in variants.items():
            rng = cell_rng(seed, "printed", n, epsilon, name)
            drawn = infer_world(world, "gibbs-update", rng=rng, variant=variant)
            slopes = drawn.theta[..., 1].mean(axis=2)
            far = np.abs(world.theta[:, 1:]) > 2 * drawn.theta[..., 1].std(axis=2)
            flipped = float(np.mean(np.any(far & (np.sign(slopes) != np.sign(world.theta[:, 1:])), axis=1)))
            for quantity in QUANTITIES:
                row, _ = _judged(world, drawn, quantity, rng, independent=False)
                label = {"method": name, "n": n, "epsilon": epsilon, "quantity": quantity}
                rows.append({**label, **row, "flipped": flipped})
    return corrected_over_study(pd.DataFrame(rows))


def output_perturbation(
    world: World, epsilon: float, *, ridge: float, radius: float, rng: np.random.Generator
) -> Array:
    """Return the coefficients of a ridge regression with noise on the coefficients themselves.

    epsilon-DP for replace-one neighbours, n public, given records in [-1, 1]. The estimate minimises half the sum of
    squared errors plus half of ``ridge`` times the squared length of theta, over the ball of the given radius. The
    loss of one record has a gradient of length at most L = sqrt(q) (1 + sqrt(q) radius) there, q the number of
    coefficients, and the objective curves by at least ``ridge``, so replacing a record moves the estimate by at most
    2 L / ridge; the noise has a density proportional to exp(-epsilon length ridge / (2 L)).

    Parameters
    ----------
    world : World
        From :func:`simulate` with the design "clipped": the promise needs records within the bounds.
    epsilon : float
        The privacy loss.
    ridge, radius : float
        Public numbers greater than 0.
    rng : numpy.random.Generator
        Of the noise.

    Returns
    -------
    array (trial, q)
        Noisy coefficients, moved back into the ball.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.regression_study import output_perturbation, simulate
    >>> world = simulate(1000, 1.0, trials=3, rng=np.random.default_rng(1), design="clipped")
    >>> output_perturbation(world, 1.0, ridge=10.0, radius=1.0, rng=np.random.default_rng(2)).shape
    (3, 2)

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    epsilon, ridge, radius = positive("epsilon", epsilon), positive("ridge", ridge), positive("radius", radius)
    layout = world.problem.layout
    q = layout.regressors
    full = layout.matrix(world.sums, world.problem.n)
    gram, cross = full[:, :q, :q], full[:, :q, q]
    estimate = _ball_ridge(gram, cross, ridge, radius)
    steepest = np.sqrt(q) * (1 + np.sqrt(q) * radius)
    length = rng.gamma(q, 2 * steepest / (ridge * epsilon), size=len(estimate))
    direction = rng.normal(size=estimate.shape)
    noisy = estimate + length[:, None] * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    return np.asarray(noisy / np.maximum(np.linalg.norm(noisy, axis=1, keepdims=True) / radius, 1))


def _ball_ridge(gram: Array, cross: Array, ridge: float, radius: float) -> Array:
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


def point_estimates(
    *,
    trials: int = 200,
    sizes: Sequence[int] = (30, 100, 300, 1000, 3000, 10_000),
    epsilons: Sequence[float] = (0.3, 1.0, 10.0),
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Compare point estimates of the slope: root mean squared error across sizes and privacy losses.

    Records are clipped. Noise-aware and naive estimates are posterior means; "least squares" divides the noisy
    cross-product by the noisy square, without a prior; output perturbation takes the best ridge of a public grid,
    chosen by its true error, which favours it.

    Parameters
    ----------
    trials, sizes, epsilons, seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        One row a method and cell: ``rmse``, the median absolute error, and the error of the prior mean beside it.

    Examples
    --------
    >>> from dpbook.experiments.regression_study import point_estimates
    >>> table = point_estimates(trials=60, sizes=[1000], epsilons=[10.0]).set_index("method")
    >>> bool(table.loc["output", "rmse"] > table.loc["naive", "rmse"])
    True

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    rows = []
    for n, epsilon in tqdm([(n, epsilon) for n in sizes for epsilon in epsilons], disable=not progress):
        world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "points", n, epsilon), design="clipped")
        rng = cell_rng(seed, "points", n, epsilon, "noise")
        slope = world.theta[:, 1]
        estimates = {
            method: infer_world(world, method, rng=rng).theta[..., 1].mean(axis=(1, 2))
            for method in ("non-private", "naive", "collapsed")
        }
        estimates["least squares"] = _least_squares(world.problem)
        tried = [
            output_perturbation(world, epsilon, ridge=ridge, radius=1.0, rng=rng)[:, 1]
            for ridge in np.geomspace(1.0, 1e4, 9)
        ]
        estimates["output"] = min(tried, key=lambda each: float(np.mean((each - slope) ** 2)))
        estimates["prior"] = np.zeros(trials)
        for method, estimate in estimates.items():
            error = np.abs(estimate - slope)
            label = {"method": method, "n": n, "epsilon": epsilon}
            rows.append({**label, "rmse": np.sqrt(np.mean(error**2)), "median_error": np.median(error)})
    return pd.DataFrame(rows)


def _least_squares(problem: Problem) -> Array:
    """Return the slope of the noisy sums, centred, as a plain quotient."""
    sx, sy, sxx, sxy, _ = problem.noisy.T
    return np.asarray((sxy - sx * sy / problem.n) / (sxx - sx**2 / problem.n))


def gold_standard(
    *,
    trials: int = 24,
    cells: Sequence[tuple[int, float]] = ((10, 1.0), (10, 10.0), (100, 1.0), (100, 10.0), (1000, 1.0), (1000, 10.0)),
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Compare collapsed posteriors with the exact law of the sums, and with latent records by PyMC's NUTS.

    Parameters
    ----------
    trials : int, default 24
        Releases a cell for "exact"; "individual" gets the first four at n = 100, epsilon = 1.
    cells : sequence of (n, epsilon)
        Where to compare.
    seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        One row a cell, quantity and reference: the mean over releases of the difference of posterior means in sds of
        the reference (signed and absolute) and of the ratio of sds, with the Monte-Carlo error of the mean
        difference.

    Examples
    --------
    >>> from dpbook.experiments.regression_study import load
    >>> load("gold_standard")["reference"].unique().tolist()
    ['exact', 'individual']

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    rows = []
    for n, epsilon in tqdm(cells, disable=not progress):
        world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "gold", n, epsilon))
        rng = cell_rng(seed, "gold", n, epsilon, "samplers")
        ours = infer_world(world, "collapsed", rng=rng, chains=4, draws=1000)
        references = {"exact": infer_world(world, "exact", rng=rng, chains=4, draws=1000)}
        if (n, epsilon) == (100, 1.0):
            few = _first(world, min(4, trials))
            references["individual"] = infer_world(few, "individual", rng=rng, chains=2, draws=500)
        for name, reference in references.items():
            for quantity in QUANTITIES:
                theirs = _quantity(reference, quantity)
                mine = _quantity(ours, quantity)[: len(theirs)]
                sd = theirs.std(axis=(1, 2))
                gap = (mine.mean(axis=(1, 2)) - theirs.mean(axis=(1, 2))) / sd
                error = np.sqrt(_error_of_mean(mine, sd) ** 2 + _error_of_mean(theirs, sd) ** 2)
                rows.append(
                    {
                        "reference": name,
                        "n": n,
                        "epsilon": epsilon,
                        "quantity": quantity,
                        "releases": len(theirs),
                        "difference": gap.mean(),
                        "absolute": np.abs(gap).mean(),
                        "monte_carlo": np.sqrt(np.mean(error**2)),
                        "sd_ratio": np.mean(mine.std(axis=(1, 2)) / sd),
                    }
                )
    return pd.DataFrame(rows)


def _first(world: World, count: int) -> World:
    """Return the first trials of a world."""
    from dpbook.regression.hamiltonian import part_of

    problem = part_of(world.problem, slice(0, count))
    return World(world.theta[:count], world.sigma2[:count], world.sums[:count], problem, problem, problem)


def _error_of_mean(chains: Array, sd: Array) -> Array:
    """Return the Monte-Carlo error of each release's posterior mean, in units of ``sd``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = np.array([float(Posterior({"x": one}).ess("x")) for one in chains])
    return np.asarray(chains.std(axis=(1, 2)) / np.sqrt(sizes) / sd)


def moment_noise(*, trials: int = 300, seed: int = SEED, progress: bool = False) -> pd.DataFrame:
    """Ask whether the noise of the released fourth moments matters: taken for the truth, or accounted for.

    Parameters
    ----------
    trials, seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        One row a treatment, cell and quantity: "joint" (one sensitivity for everything), "joint, accounted for", and
        "halves" (epsilon split evenly, as in the source).

    Examples
    --------
    >>> from dpbook.experiments.regression_study import load
    >>> load("moment_noise")["method"].unique().tolist()
    ['joint', 'joint, accounted for', 'halves']

    Explained in :doc:`/book/regression/gibbs-samplers`.
    """
    rows = []
    for n, epsilon in tqdm([(100, 1.0), (1000, 1.0), (1000, 10.0)], disable=not progress):
        world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "source", n, epsilon))
        treatments: dict[str, tuple[Problem, dict[str, Any]]] = {
            "joint": (world.with_moments, {}),
            "joint, accounted for": (world.with_moments, {"account_for_moments": True}),
            "halves": (world.split, {}),
        }
        for name, (problem, options) in treatments.items():
            rng = cell_rng(seed, "moments", n, epsilon, name)
            drawn = infer_world(world._replace(with_moments=problem), "gibbs-noisy", rng=rng, **options)
            for quantity in QUANTITIES:
                row, _ = _judged(world, drawn, quantity, rng, independent=False)
                rows.append({"method": name, "n": n, "epsilon": epsilon, "quantity": quantity, **row})
    return corrected_over_study(pd.DataFrame(rows))


def mixing(
    *,
    trials: int = 12,
    cells: Sequence[tuple[int, float]] = ((100, 0.1), (100, 1.0), (1000, 0.1), (1000, 1.0), (1000, 10.0)),
    sweeps: int = 10_000,
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Compare how well samplers mix: effective draws of the slope for a second of computing.

    Parameters
    ----------
    trials : int, default 12
        Releases a cell.
    cells : sequence of (n, epsilon)
        Where to look.
    sweeps : int, default 10,000
        Sweeps of a Gibbs chain, the first tenth of which is not counted.
    seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        One row a method and cell: the median effective size of all chains together, seconds, effective draws a
        second, and the share of releases with R-hat above 1.05. Seconds are of one machine and one run: compare rows.

    Examples
    --------
    >>> from dpbook.experiments.regression_study import mixing
    >>> mixing(trials=3, cells=[(100, 1.0)], sweeps=200)["method"].tolist()
    ['gibbs-update', 'gibbs-prior', 'collapsed']

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    rows = []
    for n, epsilon in tqdm(cells, disable=not progress):
        world = simulate(n, epsilon, trials=trials, rng=cell_rng(seed, "mixing", n, epsilon))
        thin = max(sweeps // 1000, 1)
        long = {"burn_in": sweeps // 10, "thin": thin, "draws": (sweeps - sweeps // 10) // thin}
        runs: dict[str, dict[str, Any]] = {"gibbs-update": long, "gibbs-prior": long, "collapsed": {"draws": 500}}
        for method, options in runs.items():
            rng = cell_rng(seed, "mixing", n, epsilon, method)
            start = time.process_time()
            drawn = infer_world(world, method, rng=rng, chains=4, **options)
            seconds = time.process_time() - start
            size, unmixed = _mixing(drawn.theta[..., 1], trials)
            rows.append(
                {
                    "method": method,
                    "n": n,
                    "epsilon": epsilon,
                    "ess": size,
                    "seconds": seconds,
                    "ess_per_second": size * trials / seconds,
                    "rhat_above": unmixed,
                }
            )
    return pd.DataFrame(rows)


def runtime(*, trials: int = 10, seed: int = SEED, progress: bool = False) -> pd.DataFrame:
    """Time every method against the number of records, for 1,000 draws of one release.

    Parameters
    ----------
    trials : int, default 10
        Releases in a batch; the seconds are for one of them. "individual" runs one release, up to n = 100.
    seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        One row a method and n: seconds of processor time, and effective draws of the slope a second.

    Examples
    --------
    >>> from dpbook.experiments.regression_study import load
    >>> sorted(load("runtime")["n"].unique().tolist())
    [10, 100, 1000, 10000]

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    rows = []
    for n in tqdm(SIZES, disable=not progress):
        world = simulate(n, 1.0, trials=trials, rng=cell_rng(seed, "runtime", n))
        methods = [method for method in METHODS if method != "non-private"]
        for method in [*methods, "individual"] if n <= 100 else methods:
            rng = cell_rng(seed, "runtime", n, method)
            mine = _first(world, 1) if method == "individual" else world
            start = time.process_time()
            drawn = infer_world(mine, method, rng=rng, chains=4, draws=250)
            seconds = (time.process_time() - start) / len(mine.theta)
            size, _ = _mixing(drawn.theta[..., 1])
            rows.append({"method": method, "n": n, "seconds": seconds, "ess_per_second": size / seconds})
    return pd.DataFrame(rows)


def dimension(
    *,
    trials: int = 4,
    dimensions: Sequence[int] = (1, 2, 5, 10, 20, 35, 50),
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Time one evaluation of a record's covariance and one of its inverse against the number of covariates.

    A sweep of any sampler here needs both; the source counts d⁶ operations for the inverse of a matrix with about
    d⁴ / 4 entries.

    Parameters
    ----------
    trials : int, default 4
        Repetitions; the least time counts.
    dimensions : sequence of int
        Numbers of covariates.
    seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        One row a d: the number of statistics, seconds for the moments and for the factorisation, and megabytes of
        one covariance matrix.

    Examples
    --------
    >>> from dpbook.experiments.regression_study import dimension
    >>> dimension(trials=1, dimensions=[1, 2])["statistics"].tolist()
    [5, 9]

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    from dpbook.regression.moments import from_normal, record_moments

    rng = cell_rng(seed, "dimension")
    rows = []
    for d in tqdm(dimensions, disable=not progress):
        layout = Layout(d, True)
        theta, cov_x = rng.normal(size=d + 1), np.eye(d) + 0.1
        moments, inverse = [], []
        for _ in range(trials):
            start = time.process_time()
            means = record_moments(theta, np.asarray(0.1), np.zeros(d), cov_x, layout)
            _, cov = from_normal(*means, layout)
            middle = time.process_time()
            np.linalg.cholesky(100 * cov + np.eye(layout.size))
            moments.append(middle - start)
            inverse.append(time.process_time() - middle)
        rows.append(
            {
                "d": d,
                "statistics": layout.size,
                "seconds_moments": min(moments),
                "seconds_factor": min(inverse),
                "megabytes": 8e-6 * layout.size**2,
            }
        )
    return pd.DataFrame(rows)


STUDIES: Mapping[str, Study] = {
    "calibration": calibration,
    "clipped": clipped,
    "ranks": ranks,
    "printed": printed,
    "point_estimates": point_estimates,
    "gold_standard": gold_standard,
    "moment_noise": moment_noise,
    "mixing": mixing,
    "runtime": runtime,
    "dimension": dimension,
}


def load(name: str, folder: Any = RESULTS) -> pd.DataFrame:
    """Return the committed result of a study at full size.

    Parameters
    ----------
    name : str
        A key of ``STUDIES``.
    folder : path, optional
        Where the tables are; by default those of the book.

    Returns
    -------
    pandas.DataFrame
        With ``attrs``: seed, trials, version and seconds that it took.

    Examples
    --------
    >>> from dpbook.experiments.regression_study import load
    >>> load("calibration").attrs["trials"]
    300

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    return load_table(name, STUDIES, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run studies and write their tables: ``python -m dpbook.experiments.regression_study calibration --progress``.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; by default those of the process.

    Examples
    --------
    >>> import tempfile
    >>> from dpbook.experiments.regression_study import main
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     main(["dimension", "--trials", "1", "--out", folder])  # doctest: +ELLIPSIS
    dimension: 7 rows, ... s

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    run_command(arguments, STUDIES, folder=RESULTS, seed=SEED, doc=main.__doc__)


if __name__ == "__main__":
    main()
