"""The law of records as the release clipped them: normal covariates and a normal response, cut at the public bounds.

Covariates are mean + root times a fixed quasi-random sample of normal vectors, then clipped. Given them the response is
normal, and its moments after clipping have a formula (:func:`dpbook.moments.clipped_normal`), so that no response is
simulated and the likelihood is smooth. Averages over the sample are the mean and covariance of a record's statistics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook import moments
from dpbook._arrays import Array, times
from dpbook.moments import ClippedNormal, Nodes, NoisySums, Pullback, clipped_normal, normal_nodes
from dpbook.regression.layout import Layout
from dpbook.regression.scale_free import Places, Softened, by_partial, correlation_root, first_guess, log_prior
from dpbook.regression.task import CovariatePrior, Draws, ParameterPrior, Task, drawn

__all__: list[str] = []

_SMALLEST, _LARGEST = 64, 1024  # numbers of nodes
_BEST, _BEST_OF_MANY = {1: 1024}, 16_384  # nodes that the others are judged by: in one dimension, in more
_ERROR = 0.05  # what the nodes may move a sum by on average, in sds of sampling plus noise
_LOOKS, _LOOK = 4, 20_201  # positions at which that is looked at, and the seed that chooses them
_ROOM = 4_000_000  # numbers of a batch of statistics


def sample(
    task: Task,
    *,
    per_chain: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool = False,
    warm_up: int | None = None,
) -> Draws:
    """Draw from posteriors that know of the clipping, some releases at a time; see :func:`dpbook.moments.sample`."""
    found = []
    done = 0
    while done < task.releases:
        nodes, _ = nodes_for(task.part(slice(done, done + 1)))
        size = max(1, _ROOM // (len(nodes.points) * task.layout.size * chains))
        part = task.part(slice(done, done + size))
        law = Softened(_law(part, *nodes_for(part), chains), part.sums)
        position = moments.sample(
            law, part.sums, per_chain=per_chain, chains=chains, rng=rng, warm_up=warm_up, progress=progress
        )
        found.append(drawn(law.parameters, position))
        done += size
    return Draws(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _law(task: Task, nodes: Nodes, offset: Array | None = None, chains: int = 1) -> ClippedRecords:
    """Return the law of a task's records, for all its chains."""
    low, high = (np.tile(each, (chains, 1)) for each in task.box)
    priors = None if task.prior is None else task.beliefs(chains)
    return ClippedRecords(
        task.layout, low, high, nodes, priors, 0.0 if offset is None else np.tile(offset, (chains, 1))
    )


def nodes_for(task: Task) -> tuple[Nodes, Array]:
    """Return nodes for the averages over covariates, and what to add to the means that they give, (release, k).

    What few nodes err by hardly changes over a posterior. So it is computed once, at the mode, by very many nodes, and
    taken off everywhere; then there are so many nodes that the rest is small at positions around the mode.
    """
    d, sums = task.layout.d, task.sums
    best, few = normal_nodes(_BEST.get(d, _BEST_OF_MANY), d), normal_nodes(4 * _SMALLEST, d)
    offset = np.zeros_like(task.noisy)
    for _ in range(2):  # the second time from a mode that the first has put right
        at = moments.mode(_law(task, few, offset), sums)
        offset = _means(task, best, at) - _law(task, few).mean(at)
    look = moments.around_mode(_law(task, few, offset), sums, _LOOKS, np.random.default_rng(_LOOK))
    truth, size = _means(task, best, look), _SMALLEST
    while True:
        nodes = normal_nodes(size, d)
        raw = _law(task, nodes, chains=_LOOKS)
        offset = (truth - raw.mean(look))[: task.releases]
        law = _law(task, nodes, offset, _LOOKS)
        error = moments.sample_error(law, truth, sums.repeated(_LOOKS), look).reshape(_LOOKS, -1)
        if size == _LARGEST or error[1:].mean(axis=0).max() <= _ERROR:  # at the first, the mode, there is none
            return nodes, offset
        size *= 2


def _means(task: Task, nodes: Nodes, position: Array) -> Array:
    """Return the means of a record's statistics at positions (dim, looks × release), one release at a time."""
    found = np.empty((position.shape[1], task.layout.size))
    for i in range(task.releases):
        among = slice(i, None, task.releases)
        part = task.part(slice(i, i + 1))
        found[among] = _law(part, nodes, chains=position[:, among].shape[1]).mean(position[:, among])
    return found


class _Averaged(NamedTuple):
    """What the averages over the sample were made of; arrays are (B, m, ...)."""

    root: Array  # (B, d, d) of the covariates' covariance
    inside: NDArray[np.bool_]  # (B, m, d) which covariates are not clipped
    w: Array  # (B, m, q) regressors
    response: ClippedNormal  # of each point
    centred: Array  # (B, m, k) statistics, the response averaged, less their mean
    spread: tuple[Array, Array, Array]  # Var(y), Cov(y, y²) and Var(y²) given the covariates


class ClippedRecords:
    """The law of a clipped record's statistics.

    ``low`` and ``high`` are the bounds in coordinates, (B, d + 1) or (1, d + 1), the response last; ``nodes`` what
    averages over the covariates are taken of, and ``offset`` (B, k) what is added to their means; ``priors`` the
    conjugate beliefs of each member of the batch, without which they are free of scale.
    """

    def __init__(
        self,
        layout: Layout,
        low: Array,
        high: Array,
        nodes: Nodes,
        priors: tuple[ParameterPrior, CovariatePrior] | None = None,
        offset: Array | float = 0.0,
    ) -> None:
        self.places = Places(layout, centred=True)
        self.dim = self.places.dim
        self.bounded = False
        self.certain: NDArray[np.bool_] = np.zeros(layout.size, dtype=bool)
        self._low, self._high, self._priors = low, high, priors
        self._scores, self._weights = nodes
        self._offset = offset

    def moments(self, position: Array) -> tuple[Array, Array, Pullback]:
        """Return mean, covariance and the map of derivatives; see :class:`dpbook.moments.Law`."""
        mean, parts = self._averages(position)
        weights, (with_y, y2) = self._weights[:, None], (self.places.with_y, self.places.y_squared)
        of_y, of_both, of_squares = parts.spread
        cov = parts.centred.swapaxes(1, 2) @ (weights * parts.centred)
        mixed = ((self._weights * of_both)[:, None] @ parts.w)[:, 0]
        cov[:, with_y[:, None], with_y] += (parts.w * of_y[..., None]).swapaxes(1, 2) @ (weights * parts.w)
        cov[:, with_y, y2] += mixed
        cov[:, y2, with_y] += mixed
        cov[:, y2, y2] += of_squares @ self._weights
        return mean + self._offset, cov, lambda by_mean, by_cov: self._carried_back(position, parts, by_mean, by_cov)

    def mean(self, position: Array) -> Array:
        """Return the mean of a record's statistics."""
        return np.asarray(self._averages(position)[0] + self._offset)

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the log prior density and its gradient; free of scale, the covariates' means are N(0, 1)."""
        if self._priors is not None:
            return self.conjugate_prior(position, *self._priors)
        value, gradient = log_prior(self.places, position)
        centre = position[self.places.centre]
        gradient[self.places.centre] = -centre
        return value - 0.5 * (centre**2).sum(axis=0), gradient

    def start(self, sums: NoisySums) -> Array:
        """Return positions that fit the noisy sums, made possible, about."""
        at = self.places
        height, slopes, log_error, centre, sd = first_guess(at, sums)
        position = np.zeros((at.dim, len(height)))
        position[at.slopes], position[at.log_error], position[at.centre] = slopes, log_error, centre
        position[at.spread] = np.log(sd)
        if at.first:
            position[at.height] = height
        return position

    def parameters(self, position: Array) -> tuple[Array, Array]:
        """Return theta (B, q) and the error variance (B,), in coordinates."""
        at = self.places
        error = np.exp(position[at.log_error])
        root = self.covariate_root(position)
        slopes = np.linalg.solve(root.swapaxes(1, 2), (error * position[at.slopes]).T[..., None])[..., 0]
        if not at.first:
            return slopes, error**2
        height = position[at.height].T - (slopes * position[at.centre].T).sum(axis=1, keepdims=True)
        return np.concatenate([height, slopes], axis=1), error**2

    def position_of(self, theta: Array, sigma2: Array, mean_x: Array, cov_x: Array) -> Array:
        """Return the positions (dim, B) of parameters in coordinates: the inverse of :meth:`parameters`."""
        at = self.places
        root = np.asarray(np.linalg.cholesky(cov_x), dtype=np.float64)
        position = np.empty((at.dim, len(sigma2)))
        error = np.sqrt(sigma2)
        slopes = theta[:, at.first :]
        position[at.slopes] = times(root.swapaxes(1, 2), slopes).T / error
        position[at.log_error], position[at.centre] = np.log(error), mean_x.T
        if at.first:
            position[at.height] = theta[:, 0] + (slopes * mean_x).sum(axis=1)
        position[at.spread] = np.log(np.sqrt((root**2).sum(axis=2))).T
        ratio = root / np.einsum("bii->bi", root)[:, :, None]
        position[at.partial] = ratio[:, *np.tril_indices(at.d, -1)].T
        return position

    def clipped_share(self, position: Array) -> Array:
        """Return the share of responses (B,) that a release clips, on average over the covariates."""
        return np.asarray(1 - self._averages(position)[1].response.inside @ self._weights)

    def conjugate_prior(
        self, position: Array, prior: ParameterPrior, covariates: CovariatePrior
    ) -> tuple[Array, Array]:
        """Return the log density of positions under conjugate priors, and its gradient.

        With the root L of cov_x, the slopes are error × L'^-1 times the scaled ones, and log volumes add up to
        (d + 2) log error - log |L| for the coefficients and the error variance, (d + 1) log |L| for cov_x.
        """
        at, d, gradient = self.places, self.places.d, np.zeros_like(position)
        theta, variance = self.parameters(position)
        root = self.covariate_root(position)
        inverse = np.asarray(np.linalg.inv(root), dtype=np.float64)
        off = theta - prior.mean
        pulled = times(prior.precision, off)
        power = prior.shape + 1 + 0.5 * at.q
        value = -0.5 * (off * pulled).sum(axis=1) / variance - power * np.log(variance) - prior.rate / variance
        away = position[at.centre].T - covariates.mean
        white = times(inverse, away)
        scaled = inverse @ covariates.scale @ inverse.swapaxes(1, 2)
        log_size = np.log(np.einsum("bii->bi", root)).sum(axis=1)
        value = value - 0.5 * covariates.strength * (white**2).sum(axis=1) - 0.5 * np.einsum("bii->b", scaled)
        value = value + (d + 2) * position[at.log_error] - (covariates.dof + 2) * log_size
        by_theta = -pulled / variance[:, None]
        slopes, by_slopes = theta[:, at.first :], by_theta[:, at.first :]
        by_centre = -covariates.strength[:, None] * times(inverse.swapaxes(1, 2), white)
        if at.first:
            gradient[at.height] = by_theta[:, :1].T
            by_slopes = by_slopes - by_theta[:, :1] * position[at.centre].T
            by_centre = by_centre - by_theta[:, :1] * slopes
        back = times(inverse, by_slopes)
        error = np.exp(position[at.log_error])
        gradient[at.slopes] = error * back.T
        of_variance = 0.5 * (off * pulled).sum(axis=1) / variance - power + prior.rate / variance  # times the variance
        gradient[at.log_error] = 2 * of_variance + (slopes * by_slopes).sum(axis=1) + d + 2
        gradient[at.centre] = by_centre.T
        inner = covariates.strength[:, None, None] * white[:, :, None] * white[:, None] + scaled
        inner = inner - (covariates.dof + 2)[:, None, None] * np.eye(d)
        by_root = inverse.swapaxes(1, 2) @ inner - slopes[:, :, None] * back[:, None]
        self._of_root(position, by_root, gradient)
        return value, gradient

    def _of_root(self, position: Array, by_root: Array, gradient: Array) -> None:
        """Write derivatives by the covariates' spread and partial correlations, from those by the root."""
        at = self.places
        correlation, lengths = correlation_root(position[at.partial], at.d)
        of_root, sd = np.moveaxis(by_root, 0, -1), np.exp(position[at.spread])
        gradient[at.spread] = sd * (of_root * correlation).sum(axis=1)
        gradient[at.partial] = by_partial(position[at.partial], lengths, sd[:, None] * of_root)

    def covariate_root(self, position: Array) -> Array:
        """Return the lower root (B, d, d) of the covariates' covariance."""
        correlation, _ = correlation_root(position[self.places.partial], self.places.d)
        return np.moveaxis(np.exp(position[self.places.spread])[:, None] * correlation, -1, 0)

    def _height(self, position: Array, root: Array) -> Array:
        """Return the response's mean (B,) at the covariates' mean: without an intercept the slopes say it."""
        at = self.places
        if at.first:
            return np.asarray(position[0])
        scaled = np.linalg.solve(root, position[at.centre].T[..., None])[..., 0]
        return np.asarray(np.exp(position[at.log_error]) * (scaled * position[at.slopes].T).sum(axis=1))

    def _averages(self, position: Array) -> tuple[Array, _Averaged]:
        at, layout, error = self.places, self.places.layout, np.exp(position[self.places.log_error])
        root = self.covariate_root(position)
        raw = position[at.centre].T[:, None] + self._scores @ root.swapaxes(1, 2)
        x = np.clip(raw, self._low[:, None, :-1], self._high[:, None, :-1])
        w = np.concatenate([np.ones((*x.shape[:2], 1)), x], axis=-1) if at.first else x
        line = self._height(position, root)[:, None] + (error * (self._scores @ position[at.slopes])).T
        response = clipped_normal(line, error[:, None], self._low[:, -1:], self._high[:, -1:])
        first, second, third, fourth = response.moments
        statistics = np.empty((*x.shape[:2], layout.size))
        statistics[..., at.of_x] = w[..., layout.rows[at.of_x]] * w[..., layout.columns[at.of_x]]
        statistics[..., at.with_y], statistics[..., at.y_squared] = w * first[..., None], second
        mean = np.asarray(self._weights @ statistics)
        spread = second - first**2, third - first * second, fourth - second**2
        return mean, _Averaged(root, raw == x, w, response, statistics - mean[:, None], spread)

    def _carried_back(self, position: Array, parts: _Averaged, by_mean: Array, by_cov: Array) -> Array:
        """Return the gradient by the position: back through averages, response and covariates."""
        at, w, weights = self.places, parts.w, self._weights
        first, second = parts.response.moments[:2]
        of_y, of_both, _ = parts.spread
        each = weights[:, None] * (by_mean[:, None] + 2 * (parts.centred @ by_cov))  # by the statistics of every point
        ww = by_cov[:, at.with_y[:, None], at.with_y]
        wy, yy = by_cov[:, at.with_y, at.y_squared], by_cov[:, at.y_squared, at.y_squared]
        weighted = weights[:, None] * (w @ ww)
        by_of_y = np.einsum("bmq,bmq->bm", weighted, w)
        by_of_both = 2 * weights * (w @ wy[..., None])[..., 0]
        by_squares = yy[:, None] * weights
        cross = each[..., at.with_y]
        by_w = (
            2 * (of_y[..., None] * weighted + (weights * of_both)[..., None] * wy[:, None]) + cross * first[..., None]
        )
        for k in np.flatnonzero(at.of_x):
            i, j = at.layout.rows[k], at.layout.columns[k]
            by_w[..., i] += each[..., k] * w[..., j]
            by_w[..., j] += each[..., k] * w[..., i]
        by_moment = (
            np.einsum("bmq,bmq->bm", cross, w) - 2 * first * by_of_y - second * by_of_both,
            each[..., at.y_squared] + by_of_y - first * by_of_both - 2 * second * by_squares,
            by_of_both,
            by_squares,
        )
        by_line = sum(by * of for by, of in zip(by_moment, parts.response.by_mean, strict=True))
        by_error = sum(by * of for by, of in zip(by_moment, parts.response.by_sd, strict=True))
        by_x = np.where(parts.inside, by_w[..., at.first :], 0.0)
        return self._gathered(position, parts.root, np.asarray(by_line), np.asarray(by_error).sum(axis=1), by_x)

    def _gathered(self, position: Array, root: Array, by_line: Array, by_error: Array, by_x: Array) -> Array:
        """Sum the derivatives of all points into those of the position."""
        at, gradient = self.places, np.zeros_like(position)
        error, slopes = np.exp(position[at.log_error]), position[at.slopes]
        along = self._scores.T @ by_line.T
        height = by_line.sum(axis=1)
        gradient[at.slopes] = error * along
        gradient[at.log_error] = error * (by_error + (along * slopes).sum(axis=0))
        by_centre = np.ones(len(self._scores)) @ by_x
        by_root = by_x.swapaxes(1, 2) @ self._scores
        if at.first:
            gradient[at.height] = height
        else:  # the height is error × slopes' root^-1 centre
            scaled = np.linalg.solve(root, position[at.centre].T[..., None])[..., 0]
            gradient[at.slopes] += error * height * scaled.T
            gradient[at.log_error] += error * height * (scaled.T * slopes).sum(axis=0)
            pulled = np.linalg.solve(root.swapaxes(1, 2), (error * height * slopes).T[..., None])[..., 0]
            by_centre = by_centre + pulled
            by_root = by_root - pulled[:, :, None] * scaled[:, None]
        gradient[at.centre] = by_centre.T
        self._of_root(position, by_root, gradient)
        return gradient
