"""Other intervals for the gauntlet's regressions: naive, a parametric bootstrap, AdaSSP. All batched over trials.

Everything is computed in coordinates where the public bounds are [-1, 1]; :class:`Box` maps coefficients back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpbook import Release
from dpbook.regression import Layout
from dpbook.regression.moments import nearest_valid

Array = NDArray[np.float64]

LEVEL = 0.95
REPLICATES = 200  # of a bootstrap
DELTA = 1e-6  # of AdaSSP
FAILURE = 0.05  # of AdaSSP's regularisation, as in its source
_FLOOR = 1e-9  # of a variance in coordinates


class Estimates(NamedTuple):
    """Point estimates (trial, coefficient), and the ends of intervals (trial, coefficient)."""

    point: Array
    low: Array
    high: Array


class Box(NamedTuple):
    """Public bounds of covariates and response, the response last."""

    low: Array
    high: Array

    @property
    def centre(self) -> Array:
        """The middle of every column."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> Array:
        """Half the width of every column."""
        return (self.high - self.low) / 2

    def inside(self, rows: Array) -> Array:
        """Return clipped records in coordinates."""
        return np.clip((rows - self.centre) / self.half, -1.0, 1.0)

    def out(self, theta: Array) -> Array:
        """Return coefficients (..., q), the intercept first, in the data's units."""
        slopes = theta[..., 1:] * self.half[-1] / self.half[:-1]
        first = self.centre[-1] + self.half[-1] * theta[..., 0] - slopes @ self.centre[:-1]
        return np.concatenate([first[..., None], slopes], axis=-1)


def least_squares(rows: Array) -> tuple[Array, Array, Array]:
    """Return coefficients and ends of the classical 95 % intervals of one table, the response last."""
    x = np.column_stack([np.ones(len(rows)), rows[:, :-1]])
    theta, *_ = np.linalg.lstsq(x, rows[:, -1], rcond=None)
    free = len(rows) - x.shape[1]
    variance = np.sum((rows[:, -1] - x @ theta) ** 2) / free * np.diag(np.linalg.pinv(x.T @ x))
    reach = stats.t.ppf((1 + LEVEL) / 2, free) * np.sqrt(variance)
    return np.asarray(theta), np.asarray(theta - reach), np.asarray(theta + reach)


def solved(matrix: Array, n: float) -> tuple[Array, Array]:
    """Return least squares from matrices (..., p, p) of sums, and the error variance."""
    q = matrix.shape[-1] - 1
    xx, xy = matrix[..., :q, :q], matrix[..., :q, q]
    theta = (np.linalg.pinv(xx, hermitian=True) @ xy[..., None])[..., 0]
    left = matrix[..., q, q] - (theta * xy).sum(axis=-1)
    return theta, np.maximum(left / max(n - q, 1), _FLOOR)


def naive(releases: Sequence[Release], layout: Layout, box: Box) -> Estimates:
    """Take the noisy sums for the truth, and the classical interval of least squares from them."""
    n = float(releases[0].n)
    matrix = _noisy_matrices(releases, layout)
    theta, sigma2 = solved(matrix, n)
    q = layout.regressors
    # An affine map of theta: the covariance in the data's units is that of its image.
    turn = np.stack([box.out(row) - box.out(np.zeros(q)) for row in np.eye(q)], axis=1)
    cov = turn @ np.linalg.pinv(matrix[:, :q, :q], hermitian=True) @ turn.T
    reach = stats.t.ppf((1 + LEVEL) / 2, n - q) * np.sqrt(
        np.maximum(sigma2[:, None] * np.diagonal(cov, axis1=1, axis2=2), 0)
    )
    point = box.out(theta)
    return Estimates(point, point - reach, point + reach)


def bootstrap(releases: Sequence[Release], layout: Layout, box: Box, rng: np.random.Generator) -> Estimates:
    """Simulate normal records and new noise from the noisy estimate, re-estimate, take the basic interval.

    The sums of normal records are drawn directly: a mean and a Wishart matrix.
    """
    n, scale = float(releases[0].n), releases[0].scale["sums"]
    matrix = _noisy_matrices(releases, layout)
    theta, _ = solved(matrix, n)
    simulated = normal_sums(matrix / n, int(n), rng)
    noisy = layout.vector(simulated)
    noisy = noisy + rng.laplace(scale=scale, size=noisy.shape)
    flat = nearest_valid(noisy.reshape(-1, layout.size), np.full(noisy.size // layout.size, n), layout)
    again, _ = solved(layout.matrix(flat, np.full(len(flat), n)), n)
    return basic(box.out(theta), box.out(again.reshape(REPLICATES, len(theta), -1)))


def normal_sums(second: Array, n: int, rng: np.random.Generator) -> Array:
    """Draw matrices (REPLICATES, trial, p, p) of sums of n normal records with second moments (trial, p, p)."""
    mean = second[:, 0, 1:]
    root = _root(second[:, 1:, 1:] - mean[:, :, None] * mean[:, None, :])
    trials, k = mean.shape
    shape = (REPLICATES, trials)
    centre = mean + (root @ rng.standard_normal((*shape, k, 1)))[..., 0] / math.sqrt(n)
    lower = np.tril(rng.standard_normal((*shape, k, k)), -1)  # Bartlett's decomposition of a Wishart matrix
    for i in range(k):
        lower[..., i, i] = np.sqrt(rng.chisquare(max(n - 1 - i, 1), size=shape))
    half = root @ lower
    sums = np.empty((*shape, k + 1, k + 1))
    sums[..., 0, 0], sums[..., 0, 1:], sums[..., 1:, 0] = n, n * centre, n * centre
    sums[..., 1:, 1:] = half @ np.swapaxes(half, -1, -2) + n * centre[..., :, None] * centre[..., None, :]
    return sums


def basic(point: Array, again: Array) -> Estimates:
    """Return the basic bootstrap interval: the estimate, less what the replicates are off."""
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Estimates(point, 2 * point - high, 2 * point - low)


def adassp(sums: Array, n: int, epsilon: float, box: Box, rng: np.random.Generator) -> tuple[Array, Estimates]:
    """Run AdaSSP on exact sums (trial, p, p) of clipped records: its point estimates, and estimates with intervals.

    The first are the algorithm as published, (epsilon, 1e-6)-DP when a record is added or removed. An interval needs
    the error variance too, so that the second split the budget in four and release the sum of squares of y.
    """
    published = box.out(_adassp(sums, epsilon, 3, rng)[0])
    theta, xx, yy = _adassp(sums, epsilon, 4, rng)
    q = theta.shape[-1]
    second = np.empty((len(theta), q + 1, q + 1))
    second[:, :q, :q], second[:, 0, 0] = xx / n, 1.0
    second[:, :q, q] = second[:, q, :q] = (second[:, :q, :q] @ theta[..., None])[..., 0]
    explained = (theta * second[:, :q, q]).sum(axis=1)
    second[:, q, q] = np.maximum(yy / n, explained + _FLOOR)
    again, _, _ = _adassp(normal_sums(second, n, rng), epsilon, 4, rng)
    return published, basic(box.out(theta), box.out(again))


def _adassp(sums: Array, epsilon: float, parts: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return ridge estimates, the regularised noisy X'X and the noisy y'y, for any leading axes."""
    q = sums.shape[-1] - 1
    xx, xy = sums[..., :q, :q], sums[..., :q, q]
    log, norm2 = math.log(2 * parts / DELTA), float(q)  # every regressor is in [-1, 1]
    unit, each = math.sqrt(log) / (epsilon / parts), sums.shape[:-2]
    least = np.linalg.eigvalsh(xx)[..., 0] + unit * norm2 * rng.standard_normal(each)
    least = np.maximum(least - log * norm2 / (epsilon / parts), 0.0)
    ridge = np.maximum(unit * norm2 * math.sqrt(q * math.log(2 * q**2 / FAILURE)) - least, 0.0)
    upper = np.triu(rng.standard_normal((*each, q, q)))
    noise = upper + np.swapaxes(np.triu(upper, 1), -1, -2)
    noisy = xx + unit * norm2 * noise + ridge[..., None, None] * np.eye(q)
    cross = xy + unit * math.sqrt(norm2) * rng.standard_normal(xy.shape)
    theta = (np.linalg.pinv(noisy, hermitian=True) @ cross[..., None])[..., 0]
    return theta, noisy, sums[..., q, q] + unit * rng.standard_normal(each)


def _noisy_matrices(releases: Sequence[Release], layout: Layout) -> Array:
    """Return the released sums as matrices, moved to the nearest that data could have."""
    noisy = np.stack([np.asarray(each["sums"], dtype=float) for each in releases])
    n = np.array([float(each.n) for each in releases])
    return layout.matrix(nearest_valid(noisy, n, layout), n)


def _root(cov: Array) -> Array:
    """Return symmetric roots of matrices, negative eigenvalues set to (almost) zero."""
    values, vectors = np.linalg.eigh(cov)
    return np.asarray((vectors * np.sqrt(np.maximum(values, _FLOOR))[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def diffprivlib_regression(rows: Array, ends: Sequence[tuple[float, float]], epsilon: float, seed: int) -> Array:
    """Return diffprivlib's coefficients, the intercept first."""
    from diffprivlib.models import LinearRegression  # type: ignore[import-not-found, unused-ignore]

    low, high = np.array(ends, dtype=float).T
    model = LinearRegression(
        epsilon=epsilon, bounds_X=(low[:-1], high[:-1]), bounds_y=(low[-1], high[-1]), random_state=seed
    )
    model.fit(rows[:, :-1], rows[:, -1])
    return np.concatenate([np.ravel(model.intercept_), np.ravel(model.coef_)])


def diffprivlib_mean(records: Array, ends: tuple[float, float], epsilon: float, seed: int) -> Array:
    """Return diffprivlib's mean of clipped records."""
    from diffprivlib import tools  # type: ignore[import-not-found, unused-ignore]

    return np.array([float(tools.mean(records, epsilon=epsilon, bounds=ends, random_state=seed))])
