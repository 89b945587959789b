"""Where the chains of a Hamiltonian sampler of private regressions begin, and in which metric.

Chains start at the released statistics made valid, some of them at draws from the prior, and climb to a mode of their
own; the information there tells how to parametrise the posterior and how wide it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpbook._arrays import Array
from dpbook._batch_last import times
from dpbook.regression.parametrisation import Natural, Parametrisation, parametrisation_of, released_moments
from dpbook.regression.target import Target
from dpbook.regression.task import Task

__all__: list[str] = []

_SCORING = 15  # steps of Fisher scoring before the first chain moves
_CANDIDATES = 6  # of each kind, for the start of a chain
_FLOOR = 1e-3  # smallest variance of a start, in coordinates where the bounds are [-1, 1]
_FAR = 3.0  # largest mean of a start in those coordinates: statistics of records that nobody clipped may leave [-1, 1]
_HOPELESS = 30.0  # a start whose log density is this much below that of another chain begins there instead
_ENTRIES = 1_000_000  # of moments that one call computes


def noise_variance(task: Task, chains: int) -> Array:
    """Return the variances (k, B) of the noise of every statistic."""
    return np.broadcast_to(np.tile(task.noise_variance, chains), (task.layout.size, chains * task.releases))


def start_of(target: Target, task: Task, chains: int, rng: np.random.Generator) -> tuple[Parametrisation, Array, Array]:
    """Return a centred parametrisation, over-dispersed positions (dim, B) in it, and a first root of the metric.

    Chains begin at candidates near the released statistics and from the prior, chosen by how well they fit with
    inflated noise; Fisher scoring takes each to a mode; the information there says what to centre, and the metric.
    """
    space = parametrisation_of(task, chains)
    noise = noise_variance(task, chains)
    position = _candidate(target, space, task, chains, 4 * noise, rng)
    position = _scored(target, space, task, position, noise)
    if not target.mixture:
        position = _pinned(target, space, task, position, noise)
    natural = space.natural(position)
    information = information_at(target, space, task, position, noise)
    space = _centred(space, natural, information, chains, task.releases)
    position = space.position_of(natural)
    information = information_at(target, space, task, position, noise)
    dim = position.shape[0]
    pooled = information.reshape(chains, -1, dim, dim).mean(axis=0)
    factor = np.tile(np.moveaxis(_inverse_root(pooled), 0, -1), chains)
    start = position + 1.5 * times(factor, rng.standard_normal(position.shape))
    fine = np.isfinite(target.value(space, start, noise))
    return space, np.where(fine, start, position), factor


def _inverse_root(information: Array) -> Array:
    """Return roots (R, d, d) of the inverses of information matrices."""
    sd = np.sqrt(np.diagonal(information, axis1=-2, axis2=-1))
    scaled = information / (sd[:, :, None] * sd[:, None, :])
    values, vectors = np.linalg.eigh(scaled)
    return np.asarray(vectors / np.sqrt(np.maximum(values, 1e-8))[:, None, :] / sd[:, :, None])


def _candidate(
    target: Target,
    space: Parametrisation,
    task: Task,
    chains: int,
    noise: Array,
    rng: np.random.Generator,
) -> Array:
    """Return one position a chain, chosen among candidates by their fit: (dim, B)."""
    candidates = [space.prior_draw(rng) for _ in range(_CANDIDATES)]
    for spread in np.linspace(0.0, 1.5, _CANDIDATES):
        shape = (chains, *task.noisy.shape)
        noisy = task.noisy + spread * rng.laplace(scale=task.scale[:, None], size=shape)
        candidates.append(space.position_of(_fitted(noisy, task)))
    fits = np.stack([target.value(space, each, noise) - space.log_prior(each) for each in candidates])
    fits = np.where(np.isnan(fits), -np.inf, fits)
    fits = np.where(np.isfinite(fits).any(axis=0), fits, 0.0)
    chosen = np.argmax(fits + rng.gumbel(size=fits.shape), axis=0)
    return np.asarray(np.take_along_axis(np.stack(candidates), chosen[None, None], axis=0)[0])


def _fitted(noisy: Array, task: Task, *, shrunk: bool = True) -> Natural:
    """Return parameters fitted to noisy sums (chain, release, k) made valid, under the prior or alone; the batch last.

    Means move into the bounds; the centred scatter, not the whole matrix, moves to the nearest positive one, since
    that leaves n and the means alone. No variance is taken to be smaller than the noise of its mean can tell.
    """
    layout = task.layout
    first, n = int(layout.intercept), task.n
    q = layout.regressors
    sums = layout.matrix(noisy, n) / n[:, None, None]  # second moments of u
    if first:
        mean = np.clip(sums[..., 0, 1:], -_FAR, _FAR)
        scatter = sums[..., 1:, 1:] - mean[..., :, None] * mean[..., None, :]
    else:
        mean = np.zeros_like(sums[..., 0])
        scatter = sums
    values, vectors = np.linalg.eigh(scatter)
    floor = np.minimum(_FLOOR, task.scale / n)[:, None]
    scatter = (vectors * np.clip(values, floor, _FAR**2)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    covariates, prior, d = task.covariates, task.stated(), layout.d
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


def _pinned(target: Target, space: Parametrisation, task: Task, position: Array, noise: Array) -> Array:
    """Return the released statistics' own fit, scored from there, for chains that scoring left far from it.

    Scoring moves in units of the prior. Where noise is small and the prior far from the data, the mode is hundreds of
    such units away, and no larger than the noise: it is read off the release instead.
    """
    chains = position.shape[1] // task.releases
    fit = space.position_of(_fitted(np.tile(task.noisy, (chains, 1, 1)), task, shrunk=False))
    better = target.value(space, fit, noise) > target.value(space, position, noise) + _HOPELESS
    if not better.any():
        return position
    return np.where(better, _scored(target, space, task, np.where(better, fit, position), noise), position)


def _solved(matrix: Array, vector: Array) -> Array:
    return np.asarray(np.linalg.solve(matrix, vector[..., None])[..., 0], dtype=np.float64)


def _scored(target: Target, space: Parametrisation, task: Task, position: Array, noise: Array) -> Array:
    """Return positions nearer to a mode, by damped Fisher scoring with the noise at its mean variance."""
    value, gradient = target.evaluate(space, position, noise)
    damping = np.full(value.shape, 0.1)
    for _ in range(_SCORING):
        information = information_at(target, space, task, position, noise)
        diagonal = np.diagonal(information, axis1=-2, axis2=-1)
        damped = information + (damping[:, None] * diagonal)[:, :, None] * np.eye(diagonal.shape[-1])
        damped = np.where(np.isfinite(damped), damped, np.eye(diagonal.shape[-1]))
        move = _solved(damped, np.nan_to_num(gradient.T)).T
        move = np.clip(move, -2.0, 2.0)
        new_value, new_gradient = target.evaluate(space, position + move, noise)
        better = new_value > value
        done = not (new_value > value + 0.01).any()
        position = np.where(better, position + move, position)
        value, gradient = np.where(better, new_value, value), np.where(better, new_gradient, gradient)
        damping = np.clip(np.where(better, damping / 4, damping * 6), 1e-4, 1e6)
        if done and damping.min() > 1:
            break
    value, position = value.reshape(-1, task.releases), position.reshape(len(position), -1, task.releases)
    best = np.take_along_axis(position, np.argmax(value, axis=0)[None, None], axis=1)
    return np.where(value > value.max(axis=0) - _HOPELESS, position, best).reshape(len(position), -1)


def information_at(target: Target, space: Parametrisation, task: Task, position: Array, noise: Array) -> Array:
    """Return the information (B, dim, dim) at positions, given noise variances (k, B).

    It is the prior's plus J'S^-1 J, with J the derivatives of the expected sums and S the covariance of the noisy ones.
    """
    jacobian = _jacobian(space, task, position)
    spread = np.moveaxis(target.spread(space, position, noise), -1, 0)
    jacobian = np.where(np.isfinite(jacobian), jacobian, 0.0)
    spread = np.where(np.isfinite(spread), spread, np.eye(spread.shape[-1]))
    information = np.swapaxes(jacobian, -1, -2) @ np.linalg.solve(spread, jacobian)
    return information + space.prior_curvature(position).T[:, :, None] * np.eye(position.shape[0])


def _jacobian(space: Parametrisation, task: Task, position: Array) -> Array:
    """Return the derivatives (B, k, dim) of the expected sums by the position, many directions at a time."""
    dim, batch = position.shape
    n, step = np.tile(task.n, batch // task.releases), 1e-6
    here = released_moments(space.natural(position), n, task.layout)[2]
    many = min(dim, max(1, _ENTRIES // (batch * task.layout.width**2)))
    columns = []
    for first in range(0, dim, many):
        count = min(many, dim - first)
        moved = np.tile(position[..., None, :], (1, count, 1))
        moved[first + np.arange(count), np.arange(count)] += step
        natural = space.repeated(count).natural(moved.reshape(dim, -1))
        there = released_moments(natural, np.tile(n, count), task.layout)[2]
        columns.append((there.reshape(-1, count, batch) - here[:, None]) / step)
    return np.moveaxis(np.concatenate(columns, axis=1), -1, 0)


def _centred(
    space: Parametrisation, natural: Natural, information: Array, chains: int, releases: int
) -> Parametrisation:
    """Return the parametrisation in which theta and mean_x are centred as far as the release tells them.

    With nothing centred the prior's precision is 1, so that 1 - 1/precision is the share of the prior's variance that
    the release takes away. The chains of a release share one parametrisation: that of their mean.
    """
    q, d = space.layout.regressors, space.layout.d
    pooled = information.reshape(chains, releases, *information.shape[1:]).mean(axis=0)
    values, vectors = np.linalg.eigh(pooled[:, :q, :q])
    turned = np.tile(np.moveaxis(vectors, 0, -1), chains)
    theta_share = np.clip(1 - 1 / np.maximum(values, 1.0), 0.0, 1.0)
    inverse = np.linalg.inv(pooled[:, q + 1 : q + 1 + d, q + 1 : q + 1 + d])
    mean_share = np.clip(1 - np.diagonal(inverse, axis1=-2, axis2=-1), 0.0, 1.0)
    log_sigma2 = np.log(natural.sigma2).reshape(chains, releases).mean(axis=0)
    cov = np.moveaxis(natural.cov_x.reshape(d, d, chains, releases).mean(axis=2), -1, 0)
    root_star = np.moveaxis(np.linalg.cholesky(cov), 0, -1)
    rotated = np.stack([times(space.theta_root, turned[:, j]) for j in range(q)], axis=1)
    return replace(
        space,
        theta_root=rotated,
        centred_theta=np.tile(theta_share.T, chains),
        centred_mean=np.tile(mean_share.T, chains),
        sigma_star=np.tile(np.exp(0.5 * log_sigma2), chains),
        root_star=np.tile(root_star, chains),
    )
