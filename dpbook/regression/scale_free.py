"""Default beliefs about a regression that keep their meaning when units change and when bounds are doubled.

In coordinates where the public bounds are [-1, 1]: the line's height at the covariates' mean is N(0, 1); the error's
standard deviation is log-normal around 0.1, times or divided by e² for one sd; each covariate's around 0.2, by e^1.5;
correlations are uniform; and the slopes, times the covariates' root covariance and divided by the error's sd, are
multivariate Cauchy with scale 1/sqrt(d) (Zellner and Siow's prior, worth one record). Both laws of the default methods
have their positions here: height, scaled slopes, log error sd, then what describes the covariates.
"""

from __future__ import annotations

import numpy as np

from dpbook._arrays import Array
from dpbook.moments import NoisySums
from dpbook.regression.layout import Layout

__all__: list[str] = []

HEIGHT_SD = 1.0
ERROR_MEDIAN, ERROR_SPREAD = 0.1, 2.0  # of the error's sd, and of its logarithm
COVARIATE_MEDIAN, COVARIATE_SPREAD = 0.2, 1.5
_LEAST = 1e-4  # variance of a start


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
    away = position[places.spread] - np.log(COVARIATE_MEDIAN)
    value = value - 0.5 * ((away / COVARIATE_SPREAD) ** 2).sum(axis=0)
    gradient[places.spread] = -away / COVARIATE_SPREAD**2
    # Uniform correlations: a row's free numbers v then have a density proportional to (1 + v'v)^(-(d+1)/2).
    partial = position[places.partial]
    _, lengths = correlation_root(partial, d)
    done = 0
    for i, length in enumerate(lengths):
        if i:
            value = value - (d + 1) * np.log(length)
            rows = slice(places.partial.start + done, places.partial.start + done + i)
            gradient[rows] = -(d + 1) * position[rows] / length**2
        done += i
    return value, gradient


def first_guess(places: Places, sums: NoisySums) -> tuple[Array, Array, Array, Array, Array]:
    """Return height, scaled slopes, log error sd, and mean and sd of the covariates, from noisy sums made possible."""
    where, d, first = places.layout.position, places.d, places.first
    mean = (sums.noisy / sums.n[:, None]).T
    squares = np.stack([mean[where[i, i]] for i in range(first, places.q)])
    centre = np.clip(mean[where[0, 1 : places.q]], -0.9, 0.9) if first else np.zeros((d, mean.shape[1]))
    height = np.clip(mean[where[0, places.q]], -1.0, 1.0) if first else np.zeros(mean.shape[1])
    sd = np.sqrt(np.clip(squares - centre**2, _LEAST, 0.8 * (1 - centre**2)))
    of_y = np.clip(mean[places.y_squared] - height**2, _LEAST, 1.0)
    cross = mean[places.with_y[first:]] - centre * height
    correlation = np.clip(cross / sd / np.sqrt(of_y), -0.95, 0.95) / np.sqrt(d)
    error = np.sqrt(of_y * (1 - np.minimum((correlation**2).sum(axis=0), 0.9)))
    return height, correlation * np.sqrt(of_y) / error, np.log(error), centre, sd
