"""A Hamiltonian sampler for private regressions that advances all chains of all releases together.

A target says what is drawn: ``dpbook.regression.collapsed`` and ``dpbook.regression.exact`` each hold one. This
module does the rest, the same for both: starts at the released statistics made valid, moves by Hamiltonian dynamics
(step sizes and metric learnt for each release), draws the variances of the Laplace noise in between, and mirrors
theta now and then, because the sign of a coefficient can be all that a release leaves open.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from dpbook._arrays import Array
from dpbook.latent_noise import draw_noise_variance
from dpbook.regression._unconstrained import Natural, Unconstrained, coordinates_for, times
from dpbook.regression.problem import CovariatePrior, Draws, ParameterPrior, Problem

__all__ = ["draw", "information_at", "part_of", "released_moments", "start_of"]

_WARM_UP = 400  # iterations before the first that counts
_WINDOWS = (0.15, 0.35, 0.6)  # shares of the warm-up after which the metric is learnt anew
_ACCEPTANCE = 0.8  # what step sizes aim at
_LENGTH = 1.7  # of a trajectory, in posterior standard deviations: about a quarter of an orbit
_MOST_STEPS = 10
_MIRROR_EVERY = 3
_SCORING = 15  # steps of Fisher scoring before the first chain moves
_CANDIDATES = 6  # of each kind, for the start of a chain
_FLOOR = 1e-3  # smallest variance of a start, in coordinates where the bounds are [-1, 1]
_FAR = 3.0  # largest mean of a start in those coordinates: statistics of records that nobody clipped may leave [-1, 1]
_HOPELESS = 30.0  # a start whose log density is this much below that of another chain begins there instead
_CACHE = 50_000  # numbers of a covariance batch that a block of releases may hold


class Target(Protocol):
    """A posterior of the parameters (or of what stands for them) given the noise variances of each statistic.

    Examples
    --------
    >>> from dpbook.regression.collapsed import CollapsedTarget
    >>> sorted(name for name in dir(CollapsedTarget) if not name.startswith("_"))
    ['evaluate', 'mixture', 'noise', 'parameters', 'spread', 'value']

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """

    @property
    def mixture(self) -> bool:
        """Whether Laplace noise is taken as normal given its variances, which are drawn between the moves."""
        ...

    def evaluate(self, coordinates: Unconstrained, position: Array, variance: Array | None) -> tuple[Array, Array]:
        """Return the log density (B,) at positions (dim, B) given noise variances (k, B), and its gradient.

        Without variances Laplace noise is taken as it is; only targets that are no mixture can do that.
        """
        ...

    def value(self, coordinates: Unconstrained, position: Array, variance: Array) -> Array:
        """Return the log density alone."""
        ...

    def noise(self, coordinates: Unconstrained, position: Array, variance: Array, rng: np.random.Generator) -> Array:
        """Draw the noise (k, B) of each statistic given positions and noise variances; for mixtures only."""
        ...

    def spread(self, coordinates: Unconstrained, position: Array, variance: Array) -> Array:
        """Return the covariance (k, k, B) of the noisy sums given the position."""
        ...

    def parameters(self, natural: Natural, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw theta (q, B) and sigma2 (B,) given what the position stands for."""
        ...


class _TargetOf(Protocol):
    """Makes the target of a problem, for a number of chains."""

    def __call__(self, problem: Problem, chains: int, /) -> Target:
        """Return the target."""
        ...


class _State(NamedTuple):
    position: Array  # (dim, B)
    variance: Array | None  # (k, B); None for a target that takes Laplace noise as it is
    value: Array  # (B,)
    gradient: Array  # (dim, B)


def draw(
    target_of: _TargetOf,
    problem: Problem,
    *,
    draws: int,
    chains: int,
    rng: np.random.Generator,
    warm_up: int | None = None,
    progress: bool = False,
    label: str = "sampling",
) -> Draws:
    """Sample the posteriors of a batch of releases, some hundred releases at a time, so that they fit in the cache.

    Parameters
    ----------
    target_of : callable
        ``target_of(problem, chains)`` makes the ``Target``.
    problem : Problem
        The releases and priors, in coordinates.
    draws : int
        How many draws each chain keeps.
    chains : int
        How many chains a release has.
    rng : numpy.random.Generator
        The source of randomness.
    warm_up : int, optional
        Iterations before the first draw that is kept; by default 400.
    progress : bool, default False
        Whether to show a progress bar.
    label : str, default "sampling"
        What the progress bar is called.

    Returns
    -------
    Draws
        Of theta and sigma2, in coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression.collapsed import CollapsedTarget
    >>> from dpbook.regression.hamiltonian import draw
    >>> from dpbook.regression.problem import CovariatePrior, Layout, ParameterPrior, Problem
    >>> one = np.ones(1)
    >>> problem = Problem(
    ...     Layout(1, True), np.array([[0.0, 50.0, 10.0, 5.0, 30.0]]), one, "laplace", 100 * one,
    ...     ParameterPrior(np.zeros((1, 2)), np.eye(2)[None], 5 * one, 0.5 * one),
    ...     CovariatePrior(np.zeros((1, 1)), one, np.ones((1, 1, 1)), 10 * one),
    ... )
    >>> drawn = draw(CollapsedTarget, problem, draws=50, chains=4, rng=np.random.default_rng(1), warm_up=50)
    >>> drawn.theta.shape
    (1, 4, 50, 2)

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    warm_up = _WARM_UP if warm_up is None else warm_up
    size = max(1, _CACHE // (problem.layout.size**2 * chains))
    starts = range(0, problem.releases, size)
    theta = np.empty((problem.releases, chains, draws, problem.layout.regressors))
    sigma2 = np.empty((problem.releases, chains, draws))
    bar = tqdm(total=len(starts) * (warm_up + draws), desc=label, disable=not progress, leave=False)
    with np.errstate(all="ignore"):  # a hopeless proposal may overflow; it is refused
        for start in starts:
            block = slice(start, start + size)
            part = part_of(problem, block)
            kept = _run(target_of(part, chains), part, draws, chains, warm_up, rng, bar)
            # (draw, q + 1, chain * release) -> (release, chain, draw, q + 1)
            kept = np.moveaxis(kept.reshape(draws, -1, chains, part.releases), (3, 2, 0, 1), (0, 1, 2, 3))
            theta[block], sigma2[block] = kept[..., :-1], kept[..., -1]
    bar.close()
    return Draws(theta, sigma2)


def released_moments(natural: Natural, n: Array, problem: Problem) -> tuple[Array, Array, Array]:
    """Return the mean of a record, its covariance, and the expected sums of its statistics.

    Parameters
    ----------
    natural : Natural
        The parameters of a batch of B.
    n : array (B,)
        Numbers of records.
    problem : Problem
        For its layout.

    Returns
    -------
    mean : array (p, B)
        m, of the record u = (w, y).
    cov : array (p, p, B)
        C, its covariance; the row and column of the constant are 0.
    sums : array (k, B)
        n (C + m m') at the unique statistics.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression.problem import Layout
    >>> from types import SimpleNamespace
    >>> natural = Natural(np.array([[1.0], [2.0]]), np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> released_moments(natural, np.array([10.0]), SimpleNamespace(layout=Layout(1, True)))[2][:, 0]
    array([ 0., 10., 10., 20., 60.])

    Explained in :doc:`/book/regression/private-covariates`.
    """
    layout = problem.layout
    q, first, batch = layout.regressors, int(layout.intercept), natural.theta.shape[-1]
    mean, cov = np.empty((q + 1, batch)), np.zeros((q + 1, q + 1, batch))
    mean[:first], mean[first:q] = 1.0, natural.mean_x
    mean[q] = (natural.theta * mean[:q]).sum(axis=0)
    slope = natural.theta[first:]
    cov[first:q, first:q] = natural.cov_x
    with_y = times(natural.cov_x, slope)
    cov[first:q, q] = cov[q, first:q] = with_y
    cov[q, q] = natural.sigma2 + (slope * with_y).sum(axis=0)
    rows, columns = layout.rows, layout.columns
    return mean, cov, n * (cov[rows, columns] + mean[rows] * mean[columns])


def part_of(problem: Problem, block: slice | NDArray[np.bool_]) -> Problem:
    """Return the problem of some of the releases, without their higher moments.

    Parameters
    ----------
    problem : Problem
        The batch.
    block : slice or array of bool
        Which releases.

    Returns
    -------
    Problem
        A smaller batch.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> from dpbook.regression.inference import problem_of
    >>> rng = np.random.default_rng(1)
    >>> noisy = regression.release([0.1, 0.5], [0.2, 0.4], x_bounds=(0, 1), y_bounds=(0, 1), epsilon=1.0, rng=rng)
    >>> problem = problem_of([noisy] * 3, regression.NormalInverseGamma(0, 1, 20, 0.5))
    >>> part_of(problem, slice(1, 3)).releases
    2

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    return replace(
        problem,
        noisy=problem.noisy[block],
        scale=problem.scale[block],
        n=problem.n[block],
        prior=ParameterPrior(*(each[block] for each in problem.prior)),
        covariates=CovariatePrior(*(each[block] for each in problem.covariates)),
        moments=None,
    )


def _run(
    target: Target,
    problem: Problem,
    draws: int,
    chains: int,
    warm_up: int,
    rng: np.random.Generator,
    bar: tqdm,
) -> Array:
    """Warm up and sample one block; return draws (draw, q + 1, B) of (theta, sigma2)."""
    scale = np.tile(problem.scale, chains)
    coordinates, position, factor = start_of(target, problem, chains, rng)
    noise = np.broadcast_to((2.0 if problem.laplace else 1.0) * scale**2, (problem.layout.size, len(scale)))
    variance = None if problem.laplace and not target.mixture else noise
    state = _State(position, variance, *target.evaluate(coordinates, position, variance))
    step = np.full(problem.releases, np.log(0.6))
    steps, edges, window = 3, [int(share * warm_up) for share in _WINDOWS], list[Array]()
    since = 0
    for iteration in range(warm_up):
        state, accepted = _sweep(target, coordinates, state, factor, step, steps, chains, problem, iteration, rng)
        since += 1
        rate = accepted.reshape(chains, -1).mean(axis=0)
        step = np.clip(step + 1.5 * (rate - _ACCEPTANCE) / (2 + since) ** 0.6, -9.0, 0.7)
        window.append(state.position)
        if iteration + 1 in edges:
            factor = _learnt(np.stack(window), factor, chains)
            window, since, step = [], 0, np.full_like(step, np.log(0.6))
        if since % 20 == 0:
            steps = _step_count(step)
        bar.update()
    steps = _step_count(step)
    kept = np.empty((draws, problem.layout.regressors + 1, len(scale)))
    for iteration in range(draws):
        state, _ = _sweep(target, coordinates, state, factor, step, steps, chains, problem, iteration, rng)
        kept[iteration, :-1], kept[iteration, -1] = target.parameters(coordinates.natural(state.position), rng)
        bar.update()
    return kept


def _step_count(step: Array) -> int:
    """Return how many leapfrog steps make a trajectory of the wanted length, for most of the releases."""
    return int(np.clip(round(_LENGTH / np.exp(np.quantile(step, 0.3))), 2, _MOST_STEPS))


def _sweep(
    target: Target,
    coordinates: Unconstrained,
    state: _State,
    factor: Array,
    step: Array,
    steps: int,
    chains: int,
    problem: Problem,
    iteration: int,
    rng: np.random.Generator,
) -> tuple[_State, Array]:
    """Draw the noise variances, then move the position; return the new state and the chances of acceptance."""
    if problem.laplace and state.variance is not None:
        residual = target.noise(coordinates, state.position, state.variance, rng)
        variance = draw_noise_variance(residual, np.tile(problem.scale, chains), rng)
        state = _State(state.position, variance, *target.evaluate(coordinates, state.position, variance))
    if iteration % _MIRROR_EVERY == 0:
        state = _mirrored(target, coordinates, state, rng)
    size = np.minimum(np.exp(step), 1.3 * _LENGTH / steps)
    size = np.tile(size, chains) * rng.uniform(0.7, 1.15, size=state.value.shape)
    return _hamiltonian(target, coordinates, state, factor, size, steps, rng)


def _hamiltonian(
    target: Target,
    coordinates: Unconstrained,
    state: _State,
    factor: Array,
    size: Array,
    steps: int,
    rng: np.random.Generator,
) -> tuple[_State, Array]:
    """Follow Hamiltonian dynamics for some leapfrog steps; ``factor`` times its transpose is the inverse mass."""
    back = np.swapaxes(factor, 0, 1)
    momentum = rng.standard_normal(state.position.shape)
    energy = state.value - 0.5 * (momentum**2).sum(axis=0)
    position, value, gradient = state.position, state.value, state.gradient
    for _ in range(steps):
        momentum = momentum + 0.5 * size * times(back, gradient)
        position = position + size * times(factor, momentum)
        value, gradient = target.evaluate(coordinates, position, state.variance)
        momentum = momentum + 0.5 * size * times(back, gradient)
    gain = value - 0.5 * (momentum**2).sum(axis=0) - energy
    gain = np.where(np.isnan(gain), -np.inf, gain)
    accepted = np.log(rng.random(gain.shape)) < gain
    new = _chosen(accepted, _State(position, state.variance, value, gradient), state)
    return new, np.exp(np.minimum(gain, 0.0))


def _chosen(accepted: NDArray[np.bool_], new: _State, old: _State) -> _State:
    position, gradient = np.where(accepted, new.position, old.position), np.where(accepted, new.gradient, old.gradient)
    return _State(position, old.variance, np.where(accepted, new.value, old.value), gradient)


def _mirrored(target: Target, coordinates: Unconstrained, state: _State, rng: np.random.Generator) -> _State:
    """Mirror theta so that the expected y² stays: theta' -> theta - 2 v (v'E theta) / (v'E v), E = E[w w'].

    The release of y² then fits as before; others may not, which decides on acceptance. The mirror's normal v does not
    depend on theta, so that the move is its own inverse, and it keeps volumes. One chain in two changes the signs of
    all slopes and keeps the mean of y instead.
    """
    layout, batch = coordinates.layout, state.value.shape[0]
    q, first = layout.regressors, int(layout.intercept)
    natural = coordinates.natural(state.position)
    theta, mean = natural.theta, natural.mean_x
    normal = rng.standard_normal((q, batch))
    axis = rng.integers(q, size=batch)
    single = rng.random(batch) < 0.5
    normal = np.where(single, np.arange(q)[:, None] == axis, normal)
    second = np.zeros((q, q, batch))
    second[first:, first:] = natural.cov_x + mean[:, None] * mean[None]
    if first:
        second[0, 0] = 1.0
        second[0, 1:] = second[1:, 0] = mean
    image = times(second, normal)
    mirrored = theta - 2 * normal * (image * theta).sum(axis=0) / (image * normal).sum(axis=0)
    flipped = -theta
    if first:
        flipped[0] = theta[0] + 2 * (theta[1:] * mean).sum(axis=0)
    proposal = np.where(rng.random(batch) < 0.5, mirrored, flipped)
    # theta is linear in the first coordinates, by a factor that only sigma enters: volumes are kept there too.
    position = state.position.copy()
    position[:q] = coordinates.theta_coordinates(proposal, natural.sigma2)
    value, gradient = target.evaluate(coordinates, position, state.variance)
    accepted = np.log(rng.random(batch)) < value - state.value
    return _chosen(accepted, _State(position, state.variance, value, gradient), state)


def _learnt(window: Array, factor: Array, chains: int) -> Array:
    """Return the factor of the covariance of a window (iteration, dim, B), pooled over the chains of each release.

    The estimate is drawn towards the old metric, the more the fewer draws there are for its entries.
    """
    dim, batch = window.shape[1:]
    releases = batch // chains
    window = window[len(window) // 3 :]  # the first third still moves towards the others
    pooled: Array = np.moveaxis(window.reshape(len(window), dim, chains, releases), (3, 1), (0, 3))
    pooled = pooled.reshape(releases, -1, dim)
    pooled = pooled - pooled.mean(axis=1, keepdims=True)
    count = pooled.shape[1]
    root = np.moveaxis(factor[..., :releases], -1, 0)
    old = root @ np.swapaxes(root, -1, -2)
    weight = 2.0 * dim + 10
    new = (np.swapaxes(pooled, -1, -2) @ pooled + weight * old) / (count + weight)
    return np.tile(np.moveaxis(_safe_cholesky(new), 0, -1), chains)


def _safe_cholesky(matrix: Array) -> Array:
    """Return lower roots (R, d, d); a member that is not positive definite keeps its diagonal only."""
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    good = np.asarray(np.isfinite(matrix).all(axis=(-2, -1)) & (diagonal > 0).all(axis=-1))
    matrix = np.where(good[:, None, None], matrix, np.eye(matrix.shape[-1]))
    try:
        return np.asarray(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        sd = np.sqrt(np.diagonal(matrix, axis1=-2, axis2=-1))
        values, vectors = np.linalg.eigh(matrix / (sd[:, :, None] * sd[:, None, :]))
        root = sd[:, :, None] * vectors * np.sqrt(np.maximum(values, 1e-10))[:, None, :]
        # A lower root is not needed, any is.
        return np.asarray(root)


def start_of(
    target: Target, problem: Problem, chains: int, rng: np.random.Generator
) -> tuple[Unconstrained, Array, Array]:
    """Return centred coordinates, over-dispersed positions in them, and a first metric.

    Chains begin at candidates near the released statistics and from the prior, chosen by how well they fit with
    inflated noise; Fisher scoring takes each to a mode; the information there says what to centre, and the metric.

    Parameters
    ----------
    target : Target
        What is sampled.
    problem : Problem
        The releases and priors, in coordinates.
    chains : int
        How many chains a release has.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    coordinates : Unconstrained
    position : array (dim, B)
        Where the chains start, one and a half standard deviations about a mode.
    factor : array (dim, dim, B)
        A root of the covariance that the information promises.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> from dpbook.regression.collapsed import CollapsedTarget
    >>> from dpbook.regression.inference import problem_of
    >>> rng = np.random.default_rng(1)
    >>> noisy = regression.release([0.1, 0.5], [0.2, 0.4], x_bounds=(0, 1), y_bounds=(0, 1), epsilon=1.0, rng=rng)
    >>> problem = problem_of([noisy], regression.NormalInverseGamma(0, 1, 20, 0.5))
    >>> start_of(CollapsedTarget(problem, 4), problem, 4, rng)[1].shape
    (5, 4)

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    coordinates = coordinates_for(problem, chains)
    scale = np.tile(problem.scale, chains)
    noise = np.broadcast_to((2.0 if problem.laplace else 1.0) * scale**2, (problem.layout.size, len(scale)))
    position = _candidate(target, coordinates, problem, chains, 4 * noise, rng)
    position = _scored(target, coordinates, problem, position, noise)
    if not target.mixture:
        position = _pinned(target, coordinates, problem, position, noise)
    natural = coordinates.natural(position)
    information = information_at(target, coordinates, problem, position, noise)
    coordinates = _centred(coordinates, natural, information, chains, problem.releases)
    position = coordinates.position_of(natural)
    information = information_at(target, coordinates, problem, position, noise)
    dim = position.shape[0]
    pooled = information.reshape(chains, -1, dim, dim).mean(axis=0)
    factor = np.tile(np.moveaxis(_inverse_root(pooled), 0, -1), chains)
    start = position + 1.5 * times(factor, rng.standard_normal(position.shape))
    fine = np.isfinite(target.value(coordinates, start, noise))
    return coordinates, np.where(fine, start, position), factor


def _inverse_root(information: Array) -> Array:
    """Return roots (R, d, d) of the inverses of information matrices."""
    sd = np.sqrt(np.diagonal(information, axis1=-2, axis2=-1))
    scaled = information / (sd[:, :, None] * sd[:, None, :])
    values, vectors = np.linalg.eigh(scaled)
    return np.asarray(vectors / np.sqrt(np.maximum(values, 1e-8))[:, None, :] / sd[:, :, None])


def _candidate(
    target: Target,
    coordinates: Unconstrained,
    problem: Problem,
    chains: int,
    noise: Array,
    rng: np.random.Generator,
) -> Array:
    """Return one position a chain, chosen among candidates by their fit: (dim, B)."""
    candidates = [coordinates.prior_draw(rng) for _ in range(_CANDIDATES)]
    for spread in np.linspace(0.0, 1.5, _CANDIDATES):
        shape = (chains, *problem.noisy.shape)
        noisy = problem.noisy + spread * rng.laplace(scale=problem.scale[:, None], size=shape)
        candidates.append(coordinates.position_of(_fitted(noisy, problem)))
    fits = np.stack([target.value(coordinates, each, noise) - coordinates.log_prior(each) for each in candidates])
    fits = np.where(np.isnan(fits), -np.inf, fits)
    fits = np.where(np.isfinite(fits).any(axis=0), fits, 0.0)
    chosen = np.argmax(fits + rng.gumbel(size=fits.shape), axis=0)
    return np.asarray(np.take_along_axis(np.stack(candidates), chosen[None, None], axis=0)[0])


def _fitted(noisy: Array, problem: Problem, *, shrunk: bool = True) -> Natural:
    """Return parameters fitted to noisy sums (chain, release, k) made valid, under the prior or alone; the batch last.

    Means move into the bounds; the centred scatter, not the whole matrix, moves to the nearest positive one, since
    that leaves n and the means alone. No variance is taken to be smaller than the noise of its mean can tell.
    """
    layout = problem.layout
    first, n = int(layout.intercept), problem.n
    q = layout.regressors
    sums = layout.matrix(noisy, n) / n[:, None, None]  # second moments of u
    if first:
        mean = np.clip(sums[..., 0, 1:], -_FAR, _FAR)
        scatter = sums[..., 1:, 1:] - mean[..., :, None] * mean[..., None, :]
    else:
        mean = np.zeros_like(sums[..., 0])
        scatter = sums
    values, vectors = np.linalg.eigh(scatter)
    floor = np.minimum(_FLOOR, problem.scale / n)[:, None]
    scatter = (vectors * np.clip(values, floor, _FAR**2)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    covariates, prior, d = problem.covariates, problem.prior, layout.d
    if not shrunk:
        covariates = covariates._replace(strength=0 * n, scale=0 * covariates.scale, dof=0 * n)
        prior = prior._replace(precision=0 * prior.precision, shape=0 * n, rate=0 * n)
    off = mean[..., :d] - covariates.mean
    weight = covariates.strength / (covariates.strength + n)
    cov_x = covariates.scale + n[:, None, None] * scatter[..., :d, :d]
    cov_x += (n * weight)[:, None, None] * off[..., :, None] * off[..., None, :]
    cov_x /= (covariates.dof + n)[:, None, None]
    mean_x = mean[..., :d] - weight[:, None] * off
    second = np.zeros((*noisy.shape[:-1], q + 1, q + 1))
    second[..., first:, first:] = scatter + mean[..., :, None] * mean[..., None, :]
    if first:
        second[..., 0, 0] = 1.0
        second[..., 0, 1:] = second[..., 1:, 0] = mean
    second *= n[:, None, None]
    precision = prior.precision + second[..., :q, :q]
    weighted = (prior.precision @ prior.mean[..., None])[..., 0]
    theta = _solved(precision, weighted + second[..., :q, q])
    left = second[..., q, q] + (prior.mean * weighted).sum(axis=-1) - (theta * (weighted + second[..., :q, q])).sum(-1)
    sigma2 = (prior.rate + 0.5 * np.maximum(left, 0.0)) / (prior.shape + 0.5 * n)

    def last(array: Array) -> Array:
        return np.moveaxis(array.reshape(-1, *array.shape[2:]), 0, -1)

    return Natural(last(theta), sigma2.reshape(-1), last(mean_x), last(cov_x))


def _pinned(target: Target, coordinates: Unconstrained, problem: Problem, position: Array, noise: Array) -> Array:
    """Return the released statistics' own fit, scored from there, for chains that scoring left far from it.

    Scoring moves in units of the prior. Where noise is small and the prior far from the data, the mode is hundreds of
    such units away, and no larger than the noise: it is read off the release instead.
    """
    chains = position.shape[1] // problem.releases
    fit = coordinates.position_of(_fitted(np.tile(problem.noisy, (chains, 1, 1)), problem, shrunk=False))
    better = target.value(coordinates, fit, noise) > target.value(coordinates, position, noise) + _HOPELESS
    if not better.any():
        return position
    return np.where(better, _scored(target, coordinates, problem, np.where(better, fit, position), noise), position)


def _solved(matrix: Array, vector: Array) -> Array:
    return np.asarray(np.linalg.solve(matrix, vector[..., None])[..., 0], dtype=np.float64)


def _scored(target: Target, coordinates: Unconstrained, problem: Problem, position: Array, noise: Array) -> Array:
    """Return positions nearer to a mode, by damped Fisher scoring with the noise at its mean variance."""
    value, gradient = target.evaluate(coordinates, position, noise)
    damping = np.full(value.shape, 0.1)
    for _ in range(_SCORING):
        information = information_at(target, coordinates, problem, position, noise)
        diagonal = np.diagonal(information, axis1=-2, axis2=-1)
        damped = information + (damping[:, None] * diagonal)[:, :, None] * np.eye(diagonal.shape[-1])
        damped = np.where(np.isfinite(damped), damped, np.eye(diagonal.shape[-1]))
        move = _solved(damped, np.nan_to_num(gradient.T)).T
        move = np.clip(move, -2.0, 2.0)
        new_value, new_gradient = target.evaluate(coordinates, position + move, noise)
        better = new_value > value
        done = not (new_value > value + 0.01).any()
        position = np.where(better, position + move, position)
        value, gradient = np.where(better, new_value, value), np.where(better, new_gradient, gradient)
        damping = np.clip(np.where(better, damping / 4, damping * 6), 1e-4, 1e6)
        if done and damping.min() > 1:
            break
    value, position = value.reshape(-1, problem.releases), position.reshape(len(position), -1, problem.releases)
    best = np.take_along_axis(position, np.argmax(value, axis=0)[None, None], axis=1)
    return np.where(value > value.max(axis=0) - _HOPELESS, position, best).reshape(len(position), -1)


def information_at(
    target: Target, coordinates: Unconstrained, problem: Problem, position: Array, noise: Array
) -> Array:
    """Return the information at positions: the prior's plus J'S^-1 J, with J the derivatives of the expected sums.

    Parameters
    ----------
    target : Target
        For the covariance S of the noisy sums.
    coordinates : Unconstrained
        In which coordinates.
    problem : Problem
        The releases and priors.
    position : array (dim, B)
        Where.
    noise : array (k, B)
        Variances of the noise.

    Returns
    -------
    array (B, dim, dim)

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> from dpbook.regression.collapsed import CollapsedTarget
    >>> from dpbook.regression.inference import problem_of
    >>> rng = np.random.default_rng(1)
    >>> noisy = regression.release([0.1, 0.5], [0.2, 0.4], x_bounds=(0, 1), y_bounds=(0, 1), epsilon=1.0, rng=rng)
    >>> problem = problem_of([noisy], regression.NormalInverseGamma(0, 1, 20, 0.5))
    >>> coordinates = Unconstrained.of(problem, 1)
    >>> at, noise = np.zeros((5, 1)), np.ones((5, 1))
    >>> information_at(CollapsedTarget(problem, 1), coordinates, problem, at, noise).shape
    (1, 5, 5)

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    jacobian = _jacobian(coordinates, problem, position)
    spread = np.moveaxis(target.spread(coordinates, position, noise), -1, 0)
    jacobian = np.where(np.isfinite(jacobian), jacobian, 0.0)
    spread = np.where(np.isfinite(spread), spread, np.eye(spread.shape[-1]))
    information = np.swapaxes(jacobian, -1, -2) @ np.linalg.solve(spread, jacobian)
    return information + coordinates.prior_curvature(position).T[:, :, None] * np.eye(position.shape[0])


def _jacobian(coordinates: Unconstrained, problem: Problem, position: Array) -> Array:
    """Return the derivatives (B, k, dim) of the expected sums by the coordinates, many directions at a time."""
    dim, batch = position.shape
    n, step = np.tile(problem.n, batch // problem.releases), 1e-6
    here = released_moments(coordinates.natural(position), n, problem)[2]
    many = min(dim, max(1, _CACHE * 20 // (batch * problem.layout.width**2)))
    columns = []
    for first in range(0, dim, many):
        count = min(many, dim - first)
        moved = np.tile(position[..., None, :], (1, count, 1))
        moved[first + np.arange(count), np.arange(count)] += step
        natural = coordinates.repeated(count).natural(moved.reshape(dim, -1))
        there = released_moments(natural, np.tile(n, count), problem)[2]
        columns.append((there.reshape(-1, count, batch) - here[:, None]) / step)
    return np.moveaxis(np.concatenate(columns, axis=1), -1, 0)


def _centred(
    coordinates: Unconstrained, natural: Natural, information: Array, chains: int, releases: int
) -> Unconstrained:
    """Return coordinates in which directions of theta and of mean_x are centred as far as the release tells them.

    In coordinates with nothing centred the prior's precision is 1, so that 1 - 1/precision is the share of the prior's
    variance that the release takes away. The chains of a release share one system of coordinates: that of their mean.
    """
    q, d = coordinates.layout.regressors, coordinates.layout.d
    pooled = information.reshape(chains, releases, *information.shape[1:]).mean(axis=0)
    values, vectors = np.linalg.eigh(pooled[:, :q, :q])
    turned = np.tile(np.moveaxis(vectors, 0, -1), chains)
    theta_share = np.clip(1 - 1 / np.maximum(values, 1.0), 0.0, 1.0)
    inverse = np.linalg.inv(pooled[:, q + 1 : q + 1 + d, q + 1 : q + 1 + d])
    mean_share = np.clip(1 - np.diagonal(inverse, axis1=-2, axis2=-1), 0.0, 1.0)
    log_sigma2 = np.log(natural.sigma2).reshape(chains, releases).mean(axis=0)
    cov = np.moveaxis(natural.cov_x.reshape(d, d, chains, releases).mean(axis=2), -1, 0)
    root_star = np.moveaxis(np.linalg.cholesky(cov), 0, -1)
    rotated = np.stack([times(coordinates.theta_root, turned[:, j]) for j in range(q)], axis=1)
    return replace(
        coordinates,
        theta_root=rotated,
        centred_theta=np.tile(theta_share.T, chains),
        centred_mean=np.tile(mean_share.T, chains),
        sigma_star=np.tile(np.exp(0.5 * log_sigma2), chains),
        root_star=np.tile(root_star, chains),
    )
