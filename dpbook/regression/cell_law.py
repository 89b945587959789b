"""The covariates as they are, where they have labels: unknown counts and means by cell, no law.

As in the fixed design, what the sums with the response depend on is the mean E of r r' over the records, r the carriers
of a :class:`~dpbook.regression.design.Design`, whatever their distribution. Of E only what can differ is unknown: the
shares p of the cells, a Dirichlet with weights 1/2; in every cell the mean of each number, uniform in its bounds; and
the numbers' covariance around these means, the same for all cells or, where slopes differ, one for each. With
coefficients theta of the regressors w = L r and error variance s: the sums of r y have mean n E L'theta and covariance
n s E; that of y² has mean n (theta'L E L'theta + s). Slopes are scaled by the covariance of w, so that it does not
matter which label is the reference.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array
from dpbook.moments import NoisySums, Pullback
from dpbook.regression.design import Design
from dpbook.regression.scale_free import by_partial, correlation_root, line_prior, spread_prior

__all__: list[str] = []

WEIGHT = 0.5  # of each cell in the Dirichlet prior of their shares
_RIDGE = 1e-10  # relative, on the diagonal of the regressors' covariance
_LEAST = 1e-4  # variance of a start


class CellPlaces:
    """Where a position keeps what: the line, then what describes the covariates, cell by cell."""

    def __init__(self, design: Design) -> None:
        self.design, self.first, self.q = design, 1, len(design.regressors)
        self.d = self.q - 1
        self.cells, self.m = design.cells, len(design.products)
        self.spreads = self.cells if design.crossed else 1
        of_m = self.spreads * self.m
        sizes = [1, self.d, 1, self.cells - 1, self.cells * self.m, of_m, of_m * (self.m - 1) // 2]
        ends = [int(end) for end in np.cumsum(sizes)]
        self.height, self.slopes, self.log_error = slice(0, 1), slice(1, ends[1]), ends[1]
        self.logits, self.centre = slice(ends[2], ends[3]), slice(ends[3], ends[4])
        self.spread, self.partial = slice(ends[4], ends[5]), slice(ends[5], ends[6])
        self.dim = ends[6]
        rows, columns = design.pairs.T
        y = design.carriers
        self.of_x = columns < y
        self.with_y = np.flatnonzero((columns == y) & (rows < y))
        self.y_squared = len(rows) - 1
        self.rows, self.columns, self.carried = rows, columns, rows[self.with_y]
        # Rows and columns of E: of the cells (K,), and of the numbers (K, m).
        self.cell = np.array([design.place(k) for k in range(self.cells)], dtype=np.int64)
        place = [design.place(k, j) for k in range(self.cells) for j in range(self.m)]
        self.place = np.array(place, dtype=np.int64).reshape(self.cells, self.m)
        self.total = self.with_y[np.isin(rows[self.with_y], self.cell)]  # the responses' sum is that of the cells

    def mean_of_y(self, sums: NoisySums) -> tuple[Array, Array]:
        """Return the responses' noisy means, and what the noise of their sum adds to a variance of one record."""
        mean = sums.noisy[:, self.total].sum(axis=1) / sums.n
        return np.clip(mean, -1.0, 1.0), sums.variance[:, self.total].sum(axis=1) / sums.n

    def open_shares(self, sums: NoisySums, *, bounded: bool) -> Array:
        """Return what noise leaves open of the shares of response and covariates, (1 + spreads, release)."""
        del bounded  # always
        noise = np.sqrt(sums.variance[:, self.y_squared]) / sums.n
        centre, _ = self.mean_of_y(sums)
        v = np.clip(sums.noisy[:, self.y_squared] / sums.n - centre**2, 0.0, 1.0)
        units = [np.maximum(noise * np.sqrt(1 + 4 * centre**2) / (1 + v), 0.1 * np.minimum(v, 1.0) / (1 + v))]
        guess = first_guess(self, sums)
        weight = guess.p if self.design.crossed else np.ones((1, len(noise)))
        for at, share in enumerate(guess.share.reshape(self.spreads, self.m, len(noise))):
            units += list(np.maximum(2 * noise / weight[at], 0.1 * np.minimum(share**2, 1 - share**2)))
        return np.asarray(np.clip(units, 1e-5, 0.25), dtype=np.float64)


class Guess(NamedTuple):
    """What noisy sums, made possible, say of the covariates: E, shares, means and spreads as shares of the largest."""

    second: Array  # (release, carriers, carriers)
    p: Array  # (K, release)
    mean: Array  # (K, m, release)
    share: Array  # (spreads × m, release)


def first_guess(at: CellPlaces, sums: NoisySums) -> Guess:
    """Return about where the covariates' moments are."""
    design, releases = at.design, len(sums.noisy)
    found = np.zeros((releases, design.carriers + 1, design.carriers + 1))
    found[:, at.rows, at.columns] = found[:, at.columns, at.rows] = sums.noisy / sums.n[:, None]
    noise = np.sqrt(sums.variance[:, 0]) / sums.n
    cell, place = at.cell, at.place
    p = found[:, cell, cell].T if at.cells > 1 else np.ones((1, releases))
    p = np.maximum(p, np.maximum(noise, 1 / sums.n) / 2)
    p = p / p.sum(axis=0)
    sums_of_x = np.moveaxis(found[:, cell[:, None], place], 0, -1)
    mean = np.clip(sums_of_x / p[:, None], -0.9, 0.9) * design.held[..., None]
    squares = np.moveaxis(found[:, place, place], 0, -1)  # (K, m, release)
    if design.crossed:
        within, room = squares / p[:, None] - mean**2, 1 - mean**2
    else:
        room = (p[:, None] * design.held[..., None] * (1 - mean**2)).sum(axis=0, keepdims=True)
        within = squares[:1] - (p[:, None] * mean**2).sum(axis=0, keepdims=True)
    share = np.sqrt(np.clip(within / room, _LEAST, 0.8)).reshape(at.spreads * at.m, releases)
    return Guess(found, p, mean, share)


class CellLaw:
    """The law of a record's statistics given counts and means by cell, which are part of the position."""

    def __init__(self, design: Design) -> None:
        self.design, self.places = design, CellPlaces(design)
        self.dim = self.places.dim
        self.bounded = True
        self.certain: NDArray[np.bool_] = self.places.of_x
        self._line = design.from_carriers

    def moments(self, position: Array) -> tuple[Array, Array, Pullback]:
        """Return mean, covariance and the map of derivatives; see :class:`dpbook.moments.Law`."""
        at, shape = self.places, (position.shape[1], len(self.places.rows))
        table = _Covariates(at, position)
        line = _Line(self._line, table.second, position, at)
        second, s, cross, size = table.second, line.variance, line.cross, line.size
        mean = np.empty(shape)
        mean[:, at.of_x] = second[:, at.rows[at.of_x], at.columns[at.of_x]]
        mean[:, at.with_y], mean[:, at.y_squared] = cross[:, at.carried], size + s
        cov = np.zeros((*shape, shape[1]))
        of_y = second[:, at.carried[:, None], at.carried]
        cov[:, at.with_y[:, None], at.with_y] = s[:, None, None] * of_y
        cov[:, at.with_y, at.y_squared] = cov[:, at.y_squared, at.with_y] = 2 * s[:, None] * cross[:, at.carried]
        cov[:, at.y_squared, at.y_squared] = s * (4 * size + 2 * s)

        def pullback(by_mean: Array, by_cov: Array) -> Array:
            ww = by_cov[:, at.with_y[:, None], at.with_y]
            wy, yy = by_cov[:, at.with_y, at.y_squared], by_cov[:, at.y_squared, at.y_squared]
            of_y2 = by_mean[:, at.y_squared]
            by_second = np.zeros_like(second)
            half = by_mean[:, at.of_x] / 2
            by_second[:, at.rows[at.of_x], at.columns[at.of_x]] += half
            by_second[:, at.columns[at.of_x], at.rows[at.of_x]] += half
            by_second[:, at.carried[:, None], at.carried] += s[:, None, None] * ww
            by_cross = np.zeros_like(cross)
            by_cross[:, at.carried] = by_mean[:, at.with_y] + 4 * s[:, None] * wy
            by_s = of_y2 + (ww * of_y).sum(axis=(1, 2)) + 4 * (wy * cross[:, at.carried]).sum(axis=1)
            by_s = by_s + yy * (4 * size + 4 * s)
            gradient = np.zeros_like(position)
            by_second = by_second + line.carried_back(gradient, by_cross, of_y2 + 4 * s * yy, by_s)
            table.carried_back(gradient, by_second)
            return gradient

        return mean, cov, pullback

    def mean(self, position: Array) -> Array:
        """Return the mean of a record's statistics."""
        at, table = self.places, _Covariates(self.places, position)
        line = _Line(self._line, table.second, position, at)
        mean = np.empty((position.shape[1], len(at.rows)))
        mean[:, at.of_x] = table.second[:, at.rows[at.of_x], at.columns[at.of_x]]
        mean[:, at.with_y], mean[:, at.y_squared] = line.cross[:, at.carried], line.size + line.variance
        return mean

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the log prior density and its gradient."""
        at = self.places
        value, gradient = line_prior(at, position)
        per = at.m * (at.m - 1) // 2
        for k in range(at.spreads):
            spread = slice(at.spread.start + k * at.m, at.spread.start + (k + 1) * at.m)
            partial = slice(at.partial.start + k * per, at.partial.start + (k + 1) * per)
            value = value + spread_prior(position, gradient, spread, partial, at.m)
        centre = position[at.centre]
        value = value - 2 * np.logaddexp(centre, -centre).sum(axis=0)  # of 1 - tanh², up to a constant
        gradient[at.centre] = -2 * np.tanh(centre)
        p = _shares(position[at.logits])
        value = value + WEIGHT * np.log(np.maximum(p, 1e-300)).sum(axis=0)
        gradient[at.logits] = WEIGHT * (1 - at.cells * p[1:])
        return value, gradient

    def start(self, sums: NoisySums) -> Array:
        """Return positions that fit the noisy sums, made possible, about."""
        at, guess = self.places, first_guess(self.places, sums)
        position = np.zeros((at.dim, len(sums.noisy)))
        position[at.logits] = np.log(guess.p[1:]) - np.log(guess.p[:1])
        position[at.centre] = np.arctanh(guess.mean.reshape(at.cells * at.m, len(sums.noisy)))
        position[at.spread] = np.log(guess.share / (1 - guess.share))
        height, _ = at.mean_of_y(sums)
        total = np.clip(sums.noisy[:, at.y_squared] / sums.n - height**2, _LEAST, 1.0)
        table = _Covariates(at, position)
        root, mean = _root_of(self._line, table.second)
        cross = (self._line @ guess.second[:, :-1, -1, None])[:, 1:, 0] - mean * height[:, None]
        along = root.solve(cross)
        size = (along**2).sum(axis=1)
        along = along * np.sqrt(np.minimum(0.8 * total / np.maximum(size, 1e-12), 1.0))[:, None]
        error = np.sqrt(total - (along**2).sum(axis=1))
        position[at.height], position[at.log_error] = height, np.log(error)
        position[at.slopes] = (along / error[:, None]).T
        return position

    def parameters(self, position: Array) -> tuple[Array, Array]:
        """Return theta (B, q) and the error variance (B,), in coordinates."""
        line = _Line(self._line, _Covariates(self.places, position).second, position, self.places)
        return line.theta, line.variance


def _shares(logits: Array) -> Array:
    """Return the shares (K, B) of the cells."""
    whole = np.concatenate([np.zeros((1, logits.shape[1])), logits])
    weights = np.exp(whole - whole.max(axis=0))
    return np.asarray(weights / weights.sum(axis=0))


class _Covariates:
    """E of some positions, and the way back from derivatives by its entries."""

    def __init__(self, at: CellPlaces, position: Array) -> None:
        self.at, self.position = at, position
        shape = (at.cells, at.m, position.shape[1])
        self.held = at.design.held[..., None]
        self.p = _shares(position[at.logits])
        self.mean = np.tanh(position[at.centre]).reshape(shape) * self.held
        self.share = (1 / (1 + np.exp(-position[at.spread]))).reshape(at.spreads, at.m, shape[2])
        if at.design.crossed:
            self.room = np.asarray((1 - self.mean**2) * self.held)
        else:
            self.room = (self.p[:, None] * self.held * (1 - self.mean**2)).sum(axis=0, keepdims=True)
        self.sd = self.share * np.sqrt(self.room)
        per = at.m * (at.m - 1) // 2
        self.partial = position[at.partial].reshape(at.spreads, per, shape[2])
        found = [correlation_root(each, at.m) for each in self.partial]
        self.correlation = np.stack([root for root, _ in found])
        self.lengths = [lengths for _, lengths in found]
        self.roots = self.sd[:, :, None] * self.correlation  # (spreads, m, m, B)
        self.second = self._filled()

    def _filled(self) -> Array:
        at, p, mean = self.at, self.p, self.mean
        second = np.zeros((p.shape[1], at.design.carriers, at.design.carriers))
        second[:, at.cell, at.cell] = p.T
        first = np.moveaxis(p[:, None] * mean, -1, 0)  # (B, K, m)
        second[:, at.cell[:, None], at.place] = first
        second[:, at.place, at.cell[:, None]] = first
        around = np.einsum("kijb,kljb->bkil", self.roots, self.roots)
        between = np.einsum("kib,kjb->bkij", mean, mean)
        if at.design.crossed:
            second[:, at.place[:, :, None], at.place[:, None]] = p.T[:, :, None, None] * (between + around)
        else:
            inner = (p.T[:, :, None, None] * between).sum(axis=1) + around[:, 0]
            second[:, at.place[0][:, None], at.place[0]] = inner
        return second

    def carried_back(self, gradient: Array, by_second: Array) -> None:
        """Add to a gradient (dim, B) what derivatives (B, carriers, carriers) by E make of it."""
        at, p, mean = self.at, self.p, self.mean
        by_p = by_second[:, at.cell, at.cell].T
        by_first = 2 * np.moveaxis(by_second[:, at.cell[:, None], at.place], 0, -1)  # (K, m, B)
        if at.design.crossed:
            by_inner = np.moveaxis(by_second[:, at.place[:, :, None], at.place[:, None]], 0, -1)
            around = np.einsum("kijb,kljb->kilb", self.roots, self.roots)
            by_p = by_p + (by_inner * (around + mean[:, :, None] * mean[:, None])).sum(axis=(1, 2))
            by_roots = 2 * p[:, None, None] * np.einsum("kilb,kljb->kijb", by_inner, self.roots)
        else:
            inner = np.moveaxis(by_second[:, at.place[0][:, None], at.place[0]], 0, -1)
            by_inner = np.broadcast_to(inner, (at.cells, *inner.shape))
            by_p = by_p + (by_inner * mean[:, :, None] * mean[:, None]).sum(axis=(1, 2))
            by_roots = 2 * np.einsum("ilb,kljb->kijb", inner, self.roots)
        by_p = by_p + (by_first * mean).sum(axis=1)
        by_mean = by_first * p[:, None] + 2 * p[:, None] * (by_inner * mean[:, None]).sum(axis=2)
        by_sd = (by_roots * self.correlation).sum(axis=2)
        by_room = by_sd * self.share / (2 * np.sqrt(np.maximum(self.room, 1e-300)))
        if at.design.crossed:
            by_mean = by_mean - 2 * by_room * mean
        else:
            by_p = by_p + (by_room * self.held * (1 - mean**2)).sum(axis=1)
            by_mean = by_mean - 2 * by_room * p[:, None] * mean
        gradient[at.logits] += p[1:] * (by_p[1:] - (p * by_p).sum(axis=0))
        gradient[at.centre] += (by_mean * (1 - mean**2) * self.held).reshape(at.cells * at.m, p.shape[1])
        gradient[at.spread] += (by_sd * self.sd * (1 - self.share)).reshape(at.spreads * at.m, p.shape[1])
        per = [
            by_partial(partial, lengths, sd[:, None] * by_root)
            for partial, lengths, sd, by_root in zip(self.partial, self.lengths, self.sd, by_roots, strict=True)
        ]
        gradient[at.partial] += np.concatenate(per)


class _Line:
    """The coefficients of some positions, the response's moments, and the way back from derivatives by them."""

    def __init__(self, matrix: Array, second: Array, position: Array, at: CellPlaces) -> None:
        self.matrix, self.second, self.at = matrix, second, at
        self.root, self.mean = _root_of(matrix, second)
        self.error = np.exp(position[at.log_error])
        self.variance = self.error**2
        scaled = (self.error * position[at.slopes]).T
        self.slopes = self.root.solve_turned(scaled)
        first = position[at.height][0] - (self.mean * self.slopes).sum(axis=1)
        self.theta = np.concatenate([first[:, None], self.slopes], axis=1)
        self.weights = self.theta @ matrix
        self.cross = (second @ self.weights[..., None])[..., 0]
        self.size = (self.weights * self.cross).sum(axis=1)

    def carried_back(self, gradient: Array, by_cross: Array, by_size: Array, by_variance: Array) -> Array:
        """Add to a gradient (dim, B), and return the derivatives by E."""
        at, weights = self.at, self.weights
        by_cross = by_cross + by_size[:, None] * weights
        by_weights = by_size[:, None] * self.cross + (self.second @ by_cross[..., None])[..., 0]
        outer = by_cross[:, :, None] * weights[:, None]
        by_theta = by_weights @ self.matrix.T
        by_mean = -by_theta[:, :1] * self.slopes
        by_slopes = by_theta[:, 1:] - by_theta[:, :1] * self.mean
        back = self.root.solve(by_slopes)
        gradient[at.height] += by_theta[:, 0]
        gradient[at.slopes] += self.error * back.T
        gradient[at.log_error] += 2 * self.variance * by_variance + (by_slopes * self.slopes).sum(axis=1)
        by_cov = self.root.back(-self.slopes, back)
        by_cov = by_cov + _RIDGE * by_cov * np.eye(at.d)
        by_mean = by_mean - 2 * (by_cov @ self.mean[..., None])[..., 0]
        of_w = np.zeros((len(by_cov), at.q, at.q))
        of_w[:, 1:, 1:] = by_cov
        of_w[:, 1:, 0] = of_w[:, 0, 1:] = by_mean / 2
        return np.asarray((outer + outer.swapaxes(1, 2)) / 2 + self.matrix.T @ of_w @ self.matrix)


class _Root:
    """A root of the covariance of the regressors: of their correlations, and their standard deviations beside it.

    Labels may be so rare that their variances differ by any factor, which a root of the correlations does not see.
    """

    def __init__(self, cov: Array) -> None:
        self.sd = np.sqrt(np.maximum(np.einsum("bii->bi", cov), 1e-280))
        self.unit = _lower_root(cov / self.sd[:, :, None] / self.sd[:, None])

    def solve(self, vectors: Array) -> Array:
        """Return root^-1 times vectors (B, d)."""
        return _forward(self.unit, (vectors / self.sd)[..., None])[..., 0]

    def solve_turned(self, vectors: Array) -> Array:
        """Return root'^-1 times vectors (B, d)."""
        return np.asarray(_backward(self.unit, vectors[..., None])[..., 0] / self.sd)

    def back(self, left: Array, right: Array) -> Array:
        """Return derivatives (B, d, d) by the covariance where those by the root are left right'."""
        inner = np.tril((self.unit.swapaxes(1, 2) @ (self.sd * left)[..., None]) * right[:, None])
        inner = inner - inner * np.eye(inner.shape[1]) / 2
        both = _backward(self.unit, _backward(self.unit, inner).swapaxes(1, 2))
        both = both / self.sd[:, :, None] / self.sd[:, None]
        return np.asarray((both + both.swapaxes(1, 2)) / 2)


def _root_of(matrix: Array, second: Array) -> tuple[_Root, Array]:
    """Return a root of the covariance of the regressors, and their mean (B, d)."""
    of_w = matrix @ second @ matrix.T
    mean = of_w[:, 1:, 0]
    cov = of_w[:, 1:, 1:] - mean[:, :, None] * mean[:, None]
    return _Root(cov + _RIDGE * cov * np.eye(cov.shape[1])), mean


def _lower_root(correlation: Array) -> Array:
    """Return Cholesky roots of a batch; where rounding leaves nothing of a column, a tiny number stands."""
    root = np.zeros_like(correlation)
    for j in range(correlation.shape[1]):
        left = correlation[:, j:, j] - (root[:, j:, :j] @ root[:, j, :j, None])[..., 0]
        pivot = np.sqrt(np.maximum(left[:, 0], _RIDGE / 10))
        root[:, j:, j] = left / pivot[:, None]
        root[:, j, j] = pivot
    return root


def _forward(root: Array, columns: Array) -> Array:
    """Return root^-1 times columns (B, d, k), row by row: no pivot is ever taken for zero."""
    found = np.zeros_like(columns)
    for j in range(root.shape[1]):
        found[:, j] = (columns[:, j] - (root[:, None, j, :j] @ found[:, :j])[:, 0]) / root[:, j, j, None]
    return found


def _backward(root: Array, columns: Array) -> Array:
    """Return root'^-1 times columns (B, d, k)."""
    found = np.zeros_like(columns)
    for j in reversed(range(root.shape[1])):
        later = (root[:, None, j + 1 :, j] @ found[:, j + 1 :])[:, 0]
        found[:, j] = (columns[:, j] - later) / root[:, j, j, None]
    return found
