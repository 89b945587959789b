"""Conjugate posteriors given exact sums, for whole batches: what a regression without privacy draws from.

Samplers draw from them given latent sums, the naive method given noisy sums, and the non-private comparator given the
data's own.
"""

from __future__ import annotations

import numpy as np

from dpbook._arrays import Array, times
from dpbook.priors import cholesky, draw_normal_inverse_wishart
from dpbook.regression.layout import Layout
from dpbook.regression.task import CovariatePrior, ParameterPrior

__all__: list[str] = []


def draw_parameters(
    prior: ParameterPrior, matrix: Array, n: Array, rng: np.random.Generator, spread: float = 1.0
) -> tuple[Array, Array]:
    """Draw theta (..., q) and sigma2 (...) given exact sums ``sum (w, y)(w, y)'``: conjugate posteriors of a batch.

    ``spread`` stretches theta about its mean: more than 1 for starting points that lie apart.
    """
    q = matrix.shape[-1] - 1
    gram, cross, square = matrix[..., :q, :q], matrix[..., :q, q], matrix[..., q, q]
    precision = gram + prior.precision
    root = cholesky(precision)
    upper = np.swapaxes(root, -1, -2)
    target = cross + times(prior.precision, prior.mean)
    centre = np.linalg.solve(upper, np.linalg.solve(root, target[..., None]))[..., 0]
    # The least penalised sum of squares, as a sum of two squares: the difference y'y - … can cancel to below zero.
    residual = square - 2 * (centre * cross).sum(axis=-1) + (centre * times(gram, centre)).sum(axis=-1)
    away = centre - prior.mean
    penalty = (away * times(prior.precision, away)).sum(axis=-1)
    rate = prior.rate + (np.maximum(residual, 0.0) + penalty) / 2
    shape = np.broadcast_to(prior.shape + n / 2, rate.shape)
    # A gamma of tiny shape can underflow to zero, and the variance would be infinite.
    sigma2 = np.minimum(rate / np.maximum(rng.standard_gamma(shape), 1e-300), 1e150)
    z = rng.standard_normal(centre.shape) * np.sqrt(sigma2)[..., None]
    return centre + spread * np.linalg.solve(upper, z[..., None])[..., 0], sigma2


def draw_covariate_parameters(
    covariates: CovariatePrior, sums: Array, n: Array, layout: Layout, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw the covariates' mean and covariance given exact sums (their own among them): the conjugate posterior."""
    d = layout.d
    matrix = layout.matrix(sums, n)
    size = np.asarray(n, dtype=np.float64)
    total = matrix[..., 0, 1 : d + 1]
    mean = total / size[..., None]
    scatter = matrix[..., 1 : d + 1, 1 : d + 1] - total[..., :, None] * mean[..., None, :]
    strength = covariates.strength + size
    away = mean - covariates.mean
    pull = (covariates.strength * size / strength)[..., None, None]
    scale = covariates.scale + scatter + pull * away[..., :, None] * away[..., None, :]
    centre = (covariates.strength[..., None] * covariates.mean + total) / strength[..., None]
    # Scatter is positive semidefinite up to rounding; the prior's scale makes the sum definite.
    scale = (scale + np.swapaxes(scale, -1, -2)) / 2
    return draw_normal_inverse_wishart(centre, strength, scale, covariates.dof + size, rng)
