"""The covariates as they are: unknown sums, no law.

Given the covariates of n records, the sums with the response are normal, and what they depend on is one matrix, E, the
mean of w w' over the records (w = 1 and the covariates), whatever their distribution: skewed, binary, rare. So E itself
is unknown here, with a prior of its own, and the noisy sums of the covariates say what it is up to their noise. With a
root E = G G', tau = G' theta and error variance s: the sums of w y have mean n G tau and covariance n s E; the sum of
y² has mean n (|tau|² + s), variance n (4 s |tau|² + 2 s²) and covariance 2 n s G tau with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook import moments
from dpbook._arrays import Array
from dpbook.moments import NoisySums, Pullback, clipped_normal
from dpbook.regression.layout import Layout
from dpbook.regression.scale_free import (
    COVARIATE_MEDIAN,
    COVARIATE_SPREAD,
    Places,
    Softened,
    by_partial,
    correlation_root,
    first_guess,
    log_prior,
)
from dpbook.regression.task import Draws, Task, drawn

__all__: list[str] = []

_ROOM = 2_000_000  # numbers of a batch of covariances
_JOINED, _TAIL = 1.5, 0.5  # powers of 1 - share in the density of its log odds, at a share of 0.85 and near 1
_LOOK_DRAWS, _LOOK_WARM_UP = 10, 100  # of the run that looks for clipping


def sample(
    task: Task,
    *,
    per_chain: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool = False,
    warm_up: int | None = None,
) -> Draws:
    """Draw from posteriors without a law of the covariates, some releases at a time."""
    size = max(1, _ROOM // (task.layout.size**2 * chains))
    settings: dict[str, Any] = {"per_chain": per_chain, "chains": chains, "warm_up": warm_up, "progress": progress}
    found = []
    for first in range(0, task.releases, size):
        part = task.part(slice(first, first + size))
        law = Softened(FixedDesign(task.layout), part.sums)
        found.append(drawn(law.parameters, moments.sample(law, part.sums, **settings, rng=rng)))
    return Draws(*(np.concatenate(each) for each in zip(*found, strict=True)))


def clipping(task: Task, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return about the share of responses that each release clipped, how far that moved its sums, and the mean of y².

    All from a short run that takes nothing as clipped: the share, which it understates, is that of a normal response
    with the mean and variance of a draw. For normal records clipping leaves cov(x, y) times the share inside. The shift
    is the length of what that does to the sums, in units of sampling plus noise (Mahalanobis): no coefficient
    moves by more of its own standard deviations.
    """
    whole = FixedDesign(task.layout)
    law = Softened(whole, task.sums)
    position = moments.sample(law, task.sums, per_chain=_LOOK_DRAWS, chains=4, warm_up=_LOOK_WARM_UP, rng=rng)
    flat = law.natural(np.moveaxis(position, -1, 0).reshape(law.dim, -1))
    shifts, shares, squares = [], [], []
    for block in np.split(np.arange(flat.shape[1]), 4 * _LOOK_DRAWS):  # the releases of one draw
        share, moved, cov = whole.clipped(flat[:, block], *(each[:, -1] for each in task.box))
        free = np.flatnonzero(~law.certain)
        spread = task.n[:, None, None] * cov[:, free[:, None], free]
        spread = spread + task.noise_variance[:, None, None] * np.eye(len(free))
        by = task.n[:, None] * moved[:, free]
        length = (by * np.linalg.solve(spread, by[..., None])[..., 0]).sum(axis=1)
        shifts.append(np.sqrt(np.maximum(length, 0.0)))
        shares.append(share)
        squares.append(whole.mean(flat[:, block])[:, whole.places.y_squared])
    return np.median(shares, axis=0), np.median(shifts, axis=0), np.median(squares, axis=0)


class FixedDesign:
    """The law of a record's statistics given the covariates' second moments, which are part of the position.

    With an intercept a covariate's mean is tanh of its centre, uniform in the bounds, and its sd a share of the largest
    that the bounds allow around that mean, which a column of two values has.
    """

    def __init__(self, layout: Layout) -> None:
        self.places = Places(layout, centred=layout.intercept)
        self.dim = self.places.dim
        self.bounded = True
        self.certain: NDArray[np.bool_] = self.places.of_x

    def moments(self, position: Array) -> tuple[Array, Array, Pullback]:
        """Return mean, covariance and the map of derivatives; see :class:`dpbook.moments.Law`."""
        at, q, with_y, y2 = self.places, self.places.q, self.places.with_y, self.places.y_squared
        root, tau, variance = self._natural(position)
        second, cross = root @ root.swapaxes(1, 2), (root @ tau[..., None])[..., 0]
        size = (tau**2).sum(axis=1)
        mean = np.empty((len(tau), at.layout.size))
        mean[:, at.of_x] = second[:, at.layout.rows[at.of_x], at.layout.columns[at.of_x]]
        mean[:, with_y], mean[:, y2] = cross, size + variance
        cov = np.zeros((len(tau), at.layout.size, at.layout.size))
        cov[:, with_y[:, None], with_y] = variance[:, None, None] * second
        cov[:, with_y, y2] = cov[:, y2, with_y] = 2 * variance[:, None] * cross
        cov[:, y2, y2] = variance * (4 * size + 2 * variance)

        def pullback(by_mean: Array, by_cov: Array) -> Array:
            linear = np.zeros((len(tau), q, q))
            linear[:, at.layout.rows[at.of_x], at.layout.columns[at.of_x]] = by_mean[:, at.of_x]
            of_cross, of_y2 = by_mean[:, with_y], by_mean[:, y2]
            ww, wy, yy = by_cov[:, with_y[:, None], with_y], by_cov[:, with_y, y2], by_cov[:, y2, y2]
            pull = of_cross + 4 * variance[:, None] * wy  # by the cross moments, through mean and covariance
            by_second = linear + linear.swapaxes(1, 2) + 2 * variance[:, None, None] * ww
            by_root = by_second @ root + pull[:, :, None] * tau[:, None]
            by_size = of_y2 + 4 * variance * yy
            by_tau = (root.swapaxes(1, 2) @ pull[..., None])[..., 0] + 2 * by_size[:, None] * tau
            by_variance = of_y2 + (ww * second).sum(axis=(1, 2)) + 4 * (wy * cross).sum(axis=1)
            by_variance = by_variance + yy * (4 * size + 4 * variance)
            return self._carried_back(position, by_root, by_tau, by_variance)

        return mean, cov, pullback

    def mean(self, position: Array) -> Array:
        """Return the mean of a record's statistics."""
        return self.moments(position)[0]

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the log prior density and its gradient: the mean is uniform in the bounds."""
        value, gradient = log_prior(self.places, position)
        centre = position[self.places.centre]
        value = value - 2 * np.logaddexp(centre, -centre).sum(axis=0)  # of 1 - tanh², up to a constant
        gradient[self.places.centre] = -2 * np.tanh(centre)
        beyond, change = _two_valued(position[self.places.spread])
        gradient[self.places.spread] += change
        return value + beyond.sum(axis=0), gradient

    def start(self, sums: NoisySums) -> Array:
        """Return positions that fit the noisy sums, made possible, about."""
        at = self.places
        height, slopes, log_error, centre, sd = first_guess(at, sums, bounded=True)
        position = np.zeros((at.dim, len(height)))
        position[at.height], position[at.slopes], position[at.log_error] = height, slopes, log_error
        share = sd
        if at.first:
            position[at.centre] = np.arctanh(centre)
            share = sd / np.sqrt(1 - centre**2)
        position[at.spread] = np.log(share / (1 - share))
        return position

    def parameters(self, position: Array) -> tuple[Array, Array]:
        """Return theta (B, q) and the error variance (B,), in coordinates."""
        root, tau, variance = self._natural(position)
        return np.asarray(np.linalg.solve(root.swapaxes(1, 2), tau[..., None])[..., 0], dtype=np.float64), variance

    def clipped(self, position: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Return what clipping normal responses at bounds (B,) would do: share clipped, shift of means, covariance.

        The covariance (B, k, k) is that of a record's statistics before clipping.
        """
        at = self.places
        mean, cov, _ = self.moments(position)
        root, tau, variance = self._natural(position)
        centre = tau[:, 0] if at.first else np.zeros(len(tau))
        second = (tau**2).sum(axis=1) + variance
        cut = clipped_normal(centre, np.sqrt(second - centre**2), low, high)
        moved = np.zeros_like(mean)
        of_w = root[:, :, 0] if at.first else np.zeros((len(tau), at.q))  # means of 1 and the covariates
        lost = (1 - cut.inside)[:, None] * (mean[:, at.with_y] - of_w * centre[:, None])
        moved[:, at.with_y] = of_w * (cut.moments[0] - centre)[:, None] - lost
        moved[:, at.y_squared] = cut.moments[1] - second
        return 1 - cut.inside, moved, cov

    def _natural(self, position: Array) -> tuple[Array, Array, Array]:
        """Return the root G (B, q, q) of the second moments, tau (B, q) and the error variance (B,)."""
        at = self.places
        error = np.exp(position[at.log_error])
        correlation, _ = correlation_root(position[at.partial], at.d)
        root = np.zeros((position.shape[1], at.q, at.q))
        root[:, at.first :, at.first :] = np.moveaxis(self._sd(position)[:, None] * correlation, -1, 0)
        tau = np.empty((position.shape[1], at.q))
        tau[:, at.first :] = (error * position[at.slopes]).T
        if at.first:
            root[:, 0, 0] = 1.0
            root[:, 1:, 0] = np.tanh(position[at.centre]).T
            tau[:, 0] = position[0]
        return root, tau, error**2

    def _sd(self, position: Array) -> Array:
        share = 1 / (1 + np.exp(-position[self.places.spread]))
        return np.asarray(share / np.cosh(position[self.places.centre]) if self.places.first else share)

    def _carried_back(self, position: Array, by_root: Array, by_tau: Array, by_variance: Array) -> Array:
        """Return the gradient by the position from derivatives by root, tau and error variance."""
        at, gradient = self.places, np.zeros_like(position)
        error, slopes = np.exp(position[at.log_error]), position[at.slopes]
        of_slopes = by_tau[:, at.first :].T
        gradient[at.slopes] = error * of_slopes
        gradient[at.log_error] = 2 * error**2 * by_variance + error * (slopes * of_slopes).sum(axis=0)
        correlation, lengths = correlation_root(position[at.partial], at.d)
        inner = np.moveaxis(by_root[:, at.first :, at.first :], 0, -1)
        sd = self._sd(position)
        by_sd = (inner * correlation).sum(axis=1)
        gradient[at.partial] = by_partial(position[at.partial], lengths, sd[:, None] * inner)
        share = 1 / (1 + np.exp(-position[at.spread]))
        gradient[at.spread] = by_sd * sd * (1 - share)
        if at.first:
            centre = np.tanh(position[at.centre])
            gradient[at.height] = by_tau[:, :1].T
            gradient[at.centre] = by_root[:, 1:, 0].T * (1 - centre**2) - by_sd * sd * centre
        return gradient


def _two_valued(spread: Array) -> tuple[Array, Array]:
    """Return what is added to the log density of normal log odds of a covariate's share, and its derivative.

    A column of two values, its bounds, has a share of one. Near one the density of normal log odds falls faster than
    any power of 1 - share, and keeps a dummy's variance several sds of the noise from where it is. So beyond a share of
    0.85 the power, which is `_JOINED` there, falls to `_TAIL`, that of the arcsine law.
    """
    joint = np.log(COVARIATE_MEDIAN) + _JOINED * COVARIATE_SPREAD**2
    past = np.maximum(spread - joint, 0.0)
    fading = (_JOINED - _TAIL) * -np.expm1(-past)
    return (_JOINED - _TAIL) * past - fading + 0.5 * (past / COVARIATE_SPREAD) ** 2, fading + past / COVARIATE_SPREAD**2
