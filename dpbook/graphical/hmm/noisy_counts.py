"""Poisson counts seen through two-sided geometric noise: its law, and exact draws of the true counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from dpbook._arrays import Array

__all__ = ["draw_counts", "log_noisy_count"]


def log_noisy_count(y: Array, mean: Array, ratio: Array) -> Array:
    """Return log p(y) for a Poisson count of the given mean plus two-sided geometric noise: the sum is closed.

    Below y the terms are those of a Poisson law with mean/ratio, above y of one with mean*ratio, so that with their
    distribution functions F and G the sum is ``ratio^y e^(mean/ratio - mean) F(y) + ratio^-y e^(mean ratio - mean)
    (1 - G(y))``, times ``(1 - ratio)/(1 + ratio)``.
    """
    log_ratio = np.log(ratio)
    with np.errstate(over="ignore"):
        below = y * log_ratio + mean / ratio - mean + _log_poisson_cdf(y, mean / ratio)
        above = -y * log_ratio + mean * ratio - mean + _log_poisson_sf(y, mean * ratio)
    return np.asarray(np.logaddexp(below, above) + np.log1p(-ratio) - np.log1p(ratio))


def _log_poisson_cdf(y: Array, mean: Array) -> Array:
    """Return log P(X <= y), far tails included; -inf for negative y."""
    y, mean = np.broadcast_arrays(y, mean)
    with np.errstate(divide="ignore"):
        result = np.where(y < 0, -np.inf, np.log(special.pdtr(np.maximum(y, 0), mean)))
    far = (y >= 0) & (result < -600)
    if far.any():
        k, m = y[far], mean[far]
        # pmf(y) (1 + y/m + y(y-1)/m^2 + ...): a finite sum whose terms fall, because y < m there
        result[far] = _log_poisson(k, m) + np.log(_series(lambda j: np.maximum(k - j, 0) / m))
    return np.asarray(result)


def _log_poisson_sf(y: Array, mean: Array) -> Array:
    """Return log P(X > y), far tails included; 0 for negative y."""
    y, mean = np.broadcast_arrays(y, mean)
    with np.errstate(divide="ignore"):
        result = np.where(y < 0, 0.0, np.log(special.pdtrc(np.maximum(y, 0), mean)))
    far = (y >= 0) & (result < -600)
    if far.any():
        k, m = y[far] + 1, mean[far]
        result[far] = _log_poisson(k, m) + np.log(_series(lambda j: m / (k + 1 + j)))
    return np.asarray(result)


def _log_poisson(k: Array, mean: Array) -> Array:
    return np.asarray(special.xlogy(k, mean) - mean - special.gammaln(k + 1))


def _series(factor: Any) -> Array:
    """Return 1 + f(0) + f(0) f(1) + ..., to a relative 1e-14."""
    term = factor(0)
    total = 1 + term
    for j in range(1, 100_000):
        term = term * factor(j)
        total = total + term
        if (term <= 1e-14 * total).all():
            break
    return np.asarray(total)


def draw_counts(y: Array, mean: Array, ratio: Array, log_norm: Array, rng: np.random.Generator) -> Array:
    """Draw true counts given noisy ones: p(x) in proportion to Poisson(x; mean) ratio^|y - x|, exactly.

    The law is log-concave, so Devroye's (1987) rejection for discrete log-concave laws applies: with the mode m and
    p = p(m), ``p(m + i) <= p min(1, exp(1 + p/2 - p |i|))`` up to rounding to whole numbers, and about one proposal
    in five is accepted, wherever the parameters lie.
    """
    shape = np.broadcast_shapes(y.shape, mean.shape, ratio.shape, log_norm.shape)
    y, mean, ratio, log_norm = (np.ravel(np.broadcast_to(each, shape)) for each in (y, mean, ratio, log_norm))
    low, high = np.floor(mean / ratio), np.floor(mean * ratio)
    mode = np.maximum(np.where(low <= y, low, np.where(high > y, high, y)), 0)
    log_noise = np.log1p(-ratio) - np.log1p(ratio)

    def log_weight(x: Array, at: Any) -> Array:
        return np.asarray(_log_poisson(x, mean[at]) + np.abs(y[at] - x) * np.log(ratio[at]))

    peak = log_weight(mode, slice(None))
    p = np.exp(np.minimum(peak + log_noise - log_norm, 0.0))
    p = np.maximum(p, 1e-12)
    drawn = np.empty(mean.size)
    left = np.arange(mean.size)
    while left.size:
        width = 1 + p[left] / 2
        inner = rng.random(left.size) * (1 + width) <= width
        far = np.where(inner, rng.random(left.size) * width, width + rng.exponential(size=left.size)) / p[left]
        x = mode[left] + np.round(far) * np.where(rng.random(left.size) < 0.5, -1.0, 1.0)
        log_accept = np.where(x >= 0, log_weight(np.maximum(x, 0), left) - peak[left], -np.inf)
        bound = np.minimum(0.0, width - p[left] * far)
        accepted = np.log(rng.random(left.size)) + bound <= log_accept
        drawn[left[accepted]] = x[accepted]
        left = left[~accepted]
    return drawn.reshape(shape)
