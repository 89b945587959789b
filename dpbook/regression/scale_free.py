"""Default beliefs about a regression that keep their meaning when units change and when bounds are doubled.

In coordinates where the public bounds are [-1, 1]: the line's height at the covariates' mean is N(0, 1); the error's
standard deviation is log-normal around 0.1, times or divided by e² for one sd; each covariate's around 0.2, by e^1.5;
correlations are uniform; and the slopes, times the covariates' root covariance and divided by the error's sd, are
multivariate Cauchy with scale 1/sqrt(d) (a prior of Zellner and Siow's kind). Both laws of the default methods
have their positions here: height, scaled slopes, log error sd, then what describes the covariates.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpbook._arrays import Array
from dpbook.moments import Law, NoisySums, Pullback
from dpbook.regression.layout import Layout

__all__: list[str] = []

HEIGHT_SD = 1.0
ERROR_MEDIAN, ERROR_SPREAD = 0.1, 2.0  # of the error's sd, and of its logarithm
COVARIATE_MEDIAN, COVARIATE_SPREAD = 0.2, 1.5
_LEAST = 1e-4  # variance of a start
_FARTHEST = 60.0  # in logarithms, that a share goes towards 0 or 1


class LinePlaces(Protocol):
    """Where a position keeps the line and the spreads, and what noise leaves open of them."""

    d: int  # slopes
    first: int  # 1 with an intercept
    height: slice
    slopes: slice
    log_error: int
    spread: slice

    def mean_of_y(self, sums: NoisySums) -> tuple[Array, Array]:
        """Return the responses' noisy means, and what the noise of their sum adds to a variance of one record."""
        ...

    def open_shares(self, sums: NoisySums, *, bounded: bool) -> Array:
        """Return what noise leaves open of the shares of response and covariates, (1 + spreads, release)."""
        ...


class Places:
    """Where a position keeps what, for d covariates with or without an intercept, and with or without a centre."""

    def __init__(self, layout: Layout, *, centred: bool) -> None:
        d, first = layout.d, int(layout.intercept)
        self.layout, self.d, self.first, self.q = layout, d, first, layout.regressors
        ends = [int(end) for end in np.cumsum([first, d, 1, d if centred else 0, d, d * (d - 1) // 2])]
        self.height = slice(0, first)
        self.slopes = slice(ends[0], ends[1])
        self.log_error = ends[1]
        self.centre = slice(ends[2], ends[3])
        self.spread = slice(ends[3], ends[4])
        self.partial = slice(ends[4], ends[5])
        self.dim = ends[5]
        self.of_x = layout.columns < self.q  # statistics without the response
        where = layout.position
        self.with_y = np.array([where[i, self.q] for i in range(self.q)], dtype=np.intp)
        self.y_squared = int(where[self.q, self.q])

    def mean_of_y(self, sums: NoisySums) -> tuple[Array, Array]:
        """Return the responses' noisy means, and what the noise of their sum adds to a variance of one record."""
        y = self.with_y[0]
        return np.clip(sums.noisy[:, y] / sums.n, -1.0, 1.0), sums.variance[:, y] / sums.n

    def open_shares(self, sums: NoisySums, *, bounded: bool) -> Array:
        """Return what noise leaves open of the shares of response and covariates (1 + d, release); see Softened."""
        return _unit_of_shares(self, sums, bounded=bounded)


def correlation_root(partial: Array, d: int) -> tuple[Array, list[Array]]:
    """Return lower roots (d, d, B) of correlation matrices, and the lengths of their rows before they were scaled.

    Row i is (v, 1) / |(v, 1)| with i free numbers v: any numbers give a correlation matrix.
    """
    root = np.zeros((d, d, partial.shape[1]))
    lengths, done = [], 0
    for i in range(d):
        v = partial[done : done + i]
        length = np.sqrt(1 + (v**2).sum(axis=0))
        root[i, :i], root[i, i] = v / length, 1 / length
        lengths.append(length)
        done += i
    return root, lengths


def by_partial(partial: Array, lengths: list[Array], by_root: Array) -> Array:
    """Return derivatives by the free numbers from those by the entries of the roots."""
    out, done = np.empty_like(partial), 0
    for i, length in enumerate(lengths):
        v = partial[done : done + i]
        along = (by_root[i, :i] * v).sum(axis=0) + by_root[i, i]
        out[done : done + i] = by_root[i, :i] / length - v / length**3 * along
        done += i
    return out


def log_prior(places: Places, position: Array) -> tuple[Array, Array]:
    """Return the log density (B,) of everything but the covariates' centre, and its gradient (dim, B)."""
    value, gradient = line_prior(places, position)
    return value + spread_prior(position, gradient, places.spread, places.partial, places.d), gradient


def line_prior(places: LinePlaces, position: Array) -> tuple[Array, Array]:
    """Return the log density (B,) of height, scaled slopes and error, and a gradient (dim, B) with theirs."""
    d, gradient = places.d, np.zeros_like(position)
    height, slopes = position[places.height], position[places.slopes]
    value = -0.5 * ((height / HEIGHT_SD) ** 2).sum(axis=0)
    gradient[places.height] = -height / HEIGHT_SD**2
    size = d * (slopes**2).sum(axis=0)
    value = value - 0.5 * (d + 1) * np.log1p(size)
    gradient[places.slopes] = -(d + 1) * d * slopes / (1 + size)
    off = position[places.log_error] - np.log(ERROR_MEDIAN)
    value = value - 0.5 * (off / ERROR_SPREAD) ** 2
    gradient[places.log_error] = -off / ERROR_SPREAD**2
    return value, gradient


def spread_prior(position: Array, gradient: Array, spread: slice, partial: slice, d: int) -> Array:
    """Return the log density (B,) of the spreads and correlations of d covariates; put its gradient into its places."""
    away = position[spread] - np.log(COVARIATE_MEDIAN)
    value = -0.5 * ((away / COVARIATE_SPREAD) ** 2).sum(axis=0)
    gradient[spread] = -away / COVARIATE_SPREAD**2
    # Uniform correlations: a row's free numbers v then have a density proportional to (1 + v'v)^(-(d+1)/2).
    _, lengths = correlation_root(position[partial], d)
    done = 0
    for i, length in enumerate(lengths):
        if i:
            value = value - (d + 1) * np.log(length)
            rows = slice(partial.start + done, partial.start + done + i)
            gradient[rows] = -(d + 1) * position[rows] / length**2
        done += i
    return np.asarray(value)


def first_guess(places: Places, sums: NoisySums, *, bounded: bool = False) -> tuple[Array, Array, Array, Array, Array]:
    """Return height, scaled slopes, log error sd, and mean and sd of the covariates, from noisy sums made possible.

    Where covariates are ``bounded``, the guess comes as near as noise allows to the bounds, where a rare event has its
    mean, and to the largest variance around it, which a column of two values has.
    """
    where, d, first = places.layout.position, places.d, places.first
    mean = (sums.noisy / sums.n[:, None]).T
    squares = np.stack([mean[where[i, i]] for i in range(first, places.q)])
    noise = np.maximum(2 * np.sqrt(sums.variance[:, 0]) / sums.n, 1e-9) if bounded else np.ones(mean.shape[1])
    far = np.maximum(0.9, 1 - noise)
    centre = np.clip(mean[where[0, 1 : places.q]], -far, far) if first else np.zeros((d, mean.shape[1]))
    height = np.clip(mean[where[0, places.q]], -1.0, 1.0) if first else np.zeros(mean.shape[1])
    room = 1 - centre**2
    most = np.maximum(0.8 * room, room - noise * np.sqrt(1 + 4 * centre**2))
    sd = np.sqrt(np.clip(squares - centre**2, np.minimum(_LEAST, noise), most))
    of_y = np.clip(mean[places.y_squared] - height**2, _LEAST, 1.0)
    cross = mean[places.with_y[first:]] - centre * height
    correlation = np.clip(cross / sd / np.sqrt(of_y), -0.95, 0.95) / np.sqrt(d)
    error = np.sqrt(of_y * (1 - np.minimum((correlation**2).sum(axis=0), 0.9)))
    return height, correlation * np.sqrt(of_y) / error, np.log(error), centre, sd


class RegressionLaw(Law, Protocol):
    """A law whose positions are laid out by :class:`Places`."""

    @property
    def places(self) -> LinePlaces:
        """Where a position keeps what."""
        ...

    bounded: bool  # whether a covariate's spread is the logit of its sd's share of the largest possible, else log sd

    def parameters(self, position: Array) -> tuple[Array, Array]:
        """Return theta (B, q) and the error variance (B,), in coordinates."""
        ...


class Straightened:
    """A law in coordinates in which its posterior is neither a curved ridge nor a funnel.

    Noise hides how much of the response's variance the covariates explain, but hardly the variance itself: where slopes
    are steep the error is small, and scaled slopes t can be very large. So the walk is over log(error sqrt(1 + |t|²)),
    the response's sd, in place of the log error, and over v with t = sinh(|v|) v / |v| in place of t. A small error
    pins the height down; where ``sums`` are given, its distance from their noisy mean is measured in units of
    sqrt(error² + noise variance / n).
    """

    def __init__(self, law: RegressionLaw, sums: NoisySums | None = None) -> None:
        self._law, self._places = law, law.places
        self.dim: int = law.dim
        self.certain: NDArray[np.bool_] = law.certain
        self._centre, self._floor = np.zeros(1), None
        if sums is not None and self._places.first:
            self._centre, self._floor = self._places.mean_of_y(sums)

    def moments(self, position: Array) -> tuple[Array, Array, Pullback]:
        """Return mean, covariance and the map of derivatives; see :class:`dpbook.moments.Law`."""
        mean, cov, pullback = self._law.moments(self.bent(position))
        return mean, cov, lambda by_mean, by_cov: self._pulled(position, pullback(by_mean, by_cov))

    def mean(self, position: Array) -> Array:
        """Return the mean of a record's statistics."""
        return self._law.mean(self.bent(position))

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the log prior density and its gradient, with the volume of the map.

        That is cosh r (sinh r / r)^(d - 1) for the slopes, and the unit of the height.
        """
        at, d = self._places, self._places.d
        bent = self.bent(position)
        value, gradient = self._law.log_prior(bent)
        unit, share = self._unit(bent)
        gradient[at.log_error] += share
        gradient, v = self._pulled(position, gradient), position[at.slopes]
        r, ratio, by_r = _stretch(v)
        gradient[at.slopes] += v * (_over(np.tanh(r), r) + (d - 1) * by_r / ratio)
        return value + np.log(unit) + np.log(np.cosh(r)) + (d - 1) * np.log(ratio), gradient

    def start(self, sums: NoisySums) -> Array:
        """Return positions near which the noisy sums are likely."""
        return self.straight(self._law.start(sums))

    def parameters(self, position: Array) -> tuple[Array, Array]:
        """Return theta (B, q) and the error variance (B,), in coordinates."""
        return self._law.parameters(self.bent(position))

    def straight(self, position: Array) -> Array:
        """Return where a position of the law itself is, in these coordinates."""
        at, out = self._places, position.copy()
        t = position[at.slopes]
        size = np.sqrt((t**2).sum(axis=0))
        out[at.slopes] = t * np.where(size > 0, np.arcsinh(size) / np.where(size > 0, size, 1.0), 1.0)
        out[at.log_error] += 0.5 * np.log1p(size**2)
        out[at.height] = (position[at.height] - self._tiled(self._centre, position)) / self._unit(position)[0]
        return out

    def bent(self, position: Array) -> Array:
        """Return the law's own position."""
        at, out = self._places, position.copy()
        r, ratio, _ = _stretch(position[at.slopes])
        out[at.slopes] = position[at.slopes] * ratio
        out[at.log_error] -= np.log(np.cosh(r))
        out[at.height] = self._tiled(self._centre, position) + position[at.height] * self._unit(out)[0]
        return out

    def _unit(self, bent: Array) -> tuple[Array, Array]:
        """Return the unit of the height, and the derivative of its logarithm by the law's log error."""
        if self._floor is None:
            return np.ones(bent.shape[1]), np.zeros(bent.shape[1])
        error2 = np.exp(2 * bent[self._places.log_error])
        whole = error2 + self._tiled(self._floor, bent)
        return np.sqrt(whole), error2 / whole

    @staticmethod
    def _tiled(of_releases: Array, position: Array) -> Array:
        return np.tile(of_releases, position.shape[1] // len(of_releases))

    def _pulled(self, position: Array, gradient: Array) -> Array:
        """Return derivatives by these coordinates from those by the law's own."""
        at, out, v = self._places, gradient.copy(), position[self._places.slopes]
        unit, share = self._unit(self.bent(position))
        out[at.height] = gradient[at.height] * unit
        out[at.log_error] += share * (position[at.height] * out[at.height]).sum(axis=0)
        r, ratio, by_r = _stretch(v)
        along = (v * gradient[at.slopes]).sum(axis=0)
        out[at.slopes] = ratio * gradient[at.slopes] + v * (by_r * along - _over(np.tanh(r), r) * out[at.log_error])
        return out


class Softened:
    """A straightened law, walked over variances where noise tells them and over their logarithms elsewhere.

    A variance is a difference of noisy sums, v = mean square - mean², known up to about c: above c its posterior is a
    peak of width c, and below a plateau as long as the prior of log v. Neither v nor log v suits both. So the walk is
    over u, in which the share p = v / (1 + v), or a covariate's v as a share of the largest that bounds allow, is
    linear, and beyond both ends of (0, 1) log p or log (1 - p) is: p = c log((1 + e^u) / (1 + e^(u - 1/c))).
    """

    def __init__(self, law: RegressionLaw, sums: NoisySums) -> None:
        self._law, self.places = Straightened(law, sums), law.places
        self.dim: int = law.dim
        self.certain: NDArray[np.bool_] = law.certain
        self._bounded = law.bounded
        self._unit = law.places.open_shares(sums, bounded=law.bounded)

    def moments(self, position: Array) -> tuple[Array, Array, Pullback]:
        """Return mean, covariance and the map of derivatives; see :class:`dpbook.moments.Law`."""
        inner, slope, _ = self._bent(position)
        mean, cov, pullback = self._law.moments(inner)
        return mean, cov, lambda by_mean, by_cov: slope * pullback(by_mean, by_cov)

    def mean(self, position: Array) -> Array:
        """Return the mean of a record's statistics."""
        return self._law.mean(self._bent(position)[0])

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the log prior density and its gradient, with the volume of the map."""
        inner, slope, by_volume = self._bent(position)
        value, gradient = self._law.log_prior(inner)
        value = value + np.log(slope).sum(axis=0)
        return np.where(self._beyond(position), -np.inf, value), slope * gradient + by_volume

    def start(self, sums: NoisySums) -> Array:
        """Return positions near which the noisy sums are likely."""
        return self.soft(self._law.start(sums))

    def parameters(self, position: Array) -> tuple[Array, Array]:
        """Return theta (B, q) and the error variance (B,), in coordinates."""
        return self._law.parameters(self._bent(position)[0])

    def natural(self, position: Array) -> Array:
        """Return the positions of the law itself."""
        return self._law.bent(self._bent(position)[0])

    def soft(self, straight: Array) -> Array:
        """Return where a straightened position is, in these coordinates."""
        at, out, unit = self.places, straight.copy(), self._tiled(straight)
        logit = np.concatenate([2 * straight[[at.log_error]], 2 * straight[at.spread]])
        if self._bounded:
            share = expit(straight[at.spread])
            logit[1:] = 2 * np.log(share) - np.log1p(-(share**2))
        of_part, of_rest = (expit(each) / unit for each in (logit, -logit))
        u = of_part + np.log(-np.expm1(-of_part)) - np.log(-np.expm1(-of_rest))
        out[at.log_error], out[at.spread] = u[0], u[1:]
        return out

    def _bent(self, position: Array) -> tuple[Array, Array, Array]:
        """Return straightened positions, the diagonal of the map's derivative, and that of the log of its volume."""
        at, out, unit = self.places, position.copy(), self._tiled(position)
        slope, by_volume = np.ones_like(position), np.zeros_like(position)
        u = np.clip(self._walked(position), -_FARTHEST, 1 / unit + _FARTHEST)  # beyond, the density is zero
        part, rest, by_u, change = _two_sided(u, unit)
        log_sd = 0.5 * (np.log(part) - np.log(rest))
        steep, turn = by_u / (2 * part * rest), change - by_u / part + by_u / rest
        if self._bounded:  # the logit of the share's root, in place of half its own
            share = np.sqrt(part[1:])
            log_sd[1:] += np.log1p(share) - 0.5 * np.log(rest[1:])
            turn[1:] += by_u[1:] / (2 * share * (1 + share))
            steep[1:] *= 1 + share
        out[at.log_error], out[at.spread] = log_sd[0], log_sd[1:]
        slope[at.log_error], slope[at.spread] = steep[0], steep[1:]
        by_volume[at.log_error], by_volume[at.spread] = turn[0], turn[1:]
        return out, slope, by_volume

    def _walked(self, position: Array) -> Array:
        return np.concatenate([position[[self.places.log_error]], position[self.places.spread]])

    def _beyond(self, position: Array) -> NDArray[np.bool_]:
        """Return where a share is so near 0 or 1 that no number tells it from them."""
        end = 1 / self._tiled(position)
        return np.asarray((np.abs(self._walked(position) - end / 2) > end / 2 + _FARTHEST).any(axis=0))

    def _tiled(self, position: Array) -> Array:
        return np.tile(self._unit, position.shape[1] // self._unit.shape[1])


def _two_sided(u: Array, unit: Array) -> tuple[Array, Array, Array, Array]:
    """Return a share p of u, 1 - p, the derivative of p, and that of the derivative's logarithm."""
    end = 1 / unit
    low = u < end / 2
    near, far = np.where(low, u, end - u), np.where(low, u - end, -u)  # from the nearer end of (0, 1)
    small = unit * (np.logaddexp(0.0, near) - np.logaddexp(0.0, far))
    first, second = expit(near), expit(far)
    gap = first - second
    turn = (first * (1 - first) - second * (1 - second)) / gap
    return np.where(low, small, 1 - small), np.where(low, 1 - small, small), unit * gap, np.where(low, turn, -turn)


def _unit_of_shares(places: Places, sums: NoisySums, *, bounded: bool) -> Array:
    """Return what noise leaves open of the shares of response and covariates (1 + d, release), or a tenth of them."""
    where, q, first = places.layout.position, places.q, places.first
    mean = (sums.noisy / sums.n[:, None]).T
    noise = (np.sqrt(sums.variance) / sums.n[:, None]).T
    units = []
    for column in (q, *range(first, q)):
        square = where[column, column]
        far = np.maximum(0.99, 1 - 2 * noise[square]) if bounded and column != q else 0.99
        centre = np.clip(mean[where[0, column]], -far, far) if first else np.zeros(mean.shape[1])
        v = np.clip(mean[square] - centre**2, 0.0, 1.0)
        room = 1 - centre**2 if bounded and column != q else 1 + v
        share = np.minimum(v / room, 1.0)
        open_ = noise[square] * np.sqrt(1 + 4 * centre**2) / room
        units.append(np.maximum(open_, 0.1 * np.minimum(share, 1 - share)))
    return np.asarray(np.clip(units, 1e-5, 0.25), dtype=np.float64)


def _stretch(v: Array) -> tuple[Array, Array, Array]:
    """Return r = |v|, sinh(r) / r, and the derivative of that by r, divided by r."""
    r = np.sqrt((v**2).sum(axis=0))
    ratio = _over(np.sinh(r), r)
    small = r < 1e-3
    safe = np.where(small, 1.0, r)
    by_r = np.where(small, 1 / 3 + r**2 / 30, (np.cosh(safe) - np.sinh(safe) / safe) / safe**2)
    return r, ratio, by_r


def _over(value: Array, r: Array) -> Array:
    """Return sinh(r) / r or tanh(r) / r, 1 at zero."""
    return np.asarray(np.where(r < 1e-8, 1.0, value / np.where(r < 1e-8, 1.0, r)))
