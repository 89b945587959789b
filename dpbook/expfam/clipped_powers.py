"""What the exponential, the Poisson and the normal family share: powers of a record that is clipped or redacted.

Moments of clipped powers follow from partial moments, E[(x-c)^k; region] below, inside and above the bounds. They are
taken about a point near the released value, so that no variance is lost to cancellation.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dpbook._arrays import Array
from dpbook._validation import interval
from dpbook.expfam.family import Family, require_moderate

__all__ = [
    "ClippedPowers",
    "between",
    "gauss_nodes",
    "halving_edges",
    "last_counts",
    "matrix_of",
    "normal_partial",
    "poisson_partial",
    "scaled_gamma",
    "shifted",
]

FAR = 40.0  # standard normal densities beyond it are 0 in double precision


class ClippedPowers(Family):
    """An unbounded family whose statistics are x, …, x^size of a record, clipped or redacted to public bounds."""

    lower: float
    upper: float

    def set_bounds(self, least: float | None = None) -> None:
        """Check the bounds and store them as floats."""
        low, high = interval("(lower, upper)", (self.lower, self.upper))
        if least is not None and low < least:
            raise ValueError(f"lower must be at least {least:g}, got {low}")
        require_moderate("(lower, upper)", (low, high))
        for name, value in {"lower": low, "upper": high, "bounds": (low, high)}.items():
            object.__setattr__(self, name, value)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The bounds."""
        return {"lower": self.lower, "upper": self.upper}

    def standardised(self, records: Array) -> Array:
        """Return the records in the coordinates whose powers are released, in which the bounds are ``inside_range``."""
        return records

    def statistics(self, records: Array) -> Array:
        """Return the powers of each record."""
        return np.asarray(self.standardised(records) ** np.arange(1, self.size + 1))

    def released(self, records: Array, outside: str) -> Array:
        """Return the powers of the clipped record, or of the record where it lies inside and zeros elsewhere."""
        self.check_records(records)
        low, high = self.inside_range
        x = self.standardised(records)
        powers = np.clip(x, low, high) ** np.arange(1, self.size + 1)
        return np.asarray(powers) if outside == "clip" else np.where((x >= low) & (x <= high), powers, 0.0)

    @abstractmethod
    def full_moments(self, theta: Array) -> tuple[Array, Array]:
        """Return mean and covariance of the powers of a record that is neither clipped nor redacted."""

    @abstractmethod
    def partial_moments(self, theta: Array, centre: Array) -> tuple[list[Array], list[Array], list[Array]]:
        """Return E[(x-c)^k; x < lower], E[(x-c)^k; inside] and E[(x-c)^k; x > upper] for k = 0 … 2·size."""

    def mean_and_covariance(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and covariance of (released powers, powers of the record).

        With u = g - c for the released value g (clipped, or 0 if redacted) and v = x - E x, covariances of powers of u
        and v are computed first; those of g and x follow by the binomial theorem.
        """
        k, powers = self.size, range(1, self.size + 1)
        full_mean, full_cov = self.full_moments(theta)
        at = self._regions(theta, full_mean[..., 0], outside)
        delta = at.centre - full_mean[..., 0]
        with np.errstate(invalid="ignore", over="ignore"):
            u = [at.power(i) for i in range(2 * k + 1)]
            v = [np.ones(()), np.zeros(()), full_cov[..., 0, 0]]
            within = matrix_of([[u[i + j] - u[i] * u[j] for j in powers] for i in powers])
            cross = matrix_of([[at.cross(i, j, delta) - u[i] * v[j] for j in powers] for i in powers])
            mean = np.stack([_about_zero(u, at.centre, i) for i in powers], axis=-1)
            if k > 1:
                to_g, to_x = _binomials(at.centre, k), np.swapaxes(_binomials(full_mean[..., 0], k), -1, -2)
                within, cross = to_g @ within @ np.swapaxes(to_g, -1, -2), to_g @ cross @ to_x
        top = np.concatenate([within, cross], axis=-1)
        bottom = np.concatenate([np.swapaxes(cross, -1, -2), full_cov], axis=-1)
        return np.concatenate([mean, full_mean], axis=-1), np.concatenate([top, bottom], axis=-2)

    def released_moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and variance of each released power, (..., size)."""
        if self.size > 1:
            return super().released_moments(theta, outside)
        at = self._regions(theta, self.full_moments(theta)[0][..., 0], outside)
        first, second = at.power(1), at.power(2)
        return (at.centre + first)[..., None], np.maximum(second - first**2, 0.0)[..., None]

    def _regions(self, theta: Array, mean: Array, outside: str) -> _Regions:
        low, high = self.inside_range
        centre = np.clip(mean, low, high)
        parts = self.partial_moments(theta, centre)
        if outside == "clip":
            return _Regions(centre, *parts, low - centre, high - centre)
        centre = np.where(parts[1][0] > 0.5, centre, 0.0)  # where most records are redacted, most values are 0
        return _Regions(centre, *self.partial_moments(theta, centre), -centre, -centre)


class _Regions(NamedTuple):
    """Partial moments about ``centre`` below, inside and above the bounds, and u = g - centre below and above."""

    centre: Array
    below: list[Array]
    inside: list[Array]
    above: list[Array]
    u_below: Array
    u_above: Array

    def power(self, i: int) -> Array:
        """Return E[u^i]."""
        return self.inside[i] + self.u_below**i * self.below[0] + self.u_above**i * self.above[0]

    def cross(self, i: int, j: int, delta: Array) -> Array:
        """Return E[u^i v^j], where v = (x - centre) + delta."""
        terms = (
            math.comb(j, m)
            * delta ** (j - m)
            * (self.inside[i + m] + self.u_below**i * self.below[m] + self.u_above**i * self.above[m])
            for m in range(j + 1)
        )
        return np.asarray(sum(terms))


def halving_edges(low: float, high: float, whole: bool) -> tuple[float, ...]:
    """Return edges that halve the distance to the lower bound again and again: for records that crowd there."""
    edges = low + (high - low) * 0.5 ** np.arange(6, -1, -1.0)
    inner = np.ceil(edges[:-1]) if whole else edges[:-1]
    return tuple(sorted({low, high, *inner[(inner > low) & (inner < high)].tolist()}))


def between(below: Array) -> Array:
    """Return the probabilities of cells from those of lying below each edge, on the last axis."""
    ends = [np.full((*below.shape[:-1], 1), float(end)) for end in (0, 1)]
    return np.maximum(np.diff(np.concatenate([ends[0], below, ends[1]], axis=-1), axis=-1), 0.0)


def last_counts(edges: Array) -> Array:
    """Return the last whole number below each edge, of the last edge at it or below: cells are closed on the left."""
    return np.append(np.ceil(edges[:-1]) - 1, np.floor(edges[-1]))


def matrix_of(rows: list[list[Array]]) -> Array:
    """Return matrices from their entries, row by row, each a batch."""
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _binomials(centre: Array, order: int) -> Array:
    """Return the matrix that turns covariances of powers about ``centre`` into those of powers about 0."""
    zero, powers = np.zeros_like(centre), range(1, order + 1)
    return matrix_of([[math.comb(i, m) * centre ** (i - m) if m <= i else zero for m in powers] for i in powers])


def _about_zero(moments: list[Array], centre: Array, i: int) -> Array:
    return np.asarray(sum(math.comb(i, m) * centre ** (i - m) * moments[m] for m in range(1, i + 1)) + centre**i)


def shifted(moments: list[Array], by: Array) -> list[Array]:
    """Turn partial moments of y into those of y + by."""
    if not np.any(by):
        return moments
    return [
        np.asarray(sum(math.comb(k, j) * by ** (k - j) * moments[j] for j in range(k + 1))) for k in range(len(moments))
    ]


def scaled_gamma(k: int, t: Array) -> Array:
    """Return the integral of s^k e^-s over (0, t), divided by t^k; near 0 its limit t / (k+1)."""
    usual = np.maximum(t, 1e-8)
    return np.where(t < 1e-8, t / (k + 1), math.factorial(k) * special.gammainc(k + 1, usual) / usual**k)


def poisson_partial(theta: Array, first: float, last: float) -> list[Array]:
    """Return E[x^k; first ≤ x ≤ last], k = 0 … 2, from E[x(x-1)…; first ≤ x ≤ last] = θ^k P(first-k ≤ x ≤ last-k)."""

    def probability(low: float, high: float) -> Array:  # by the smaller tail, so that little is subtracted
        above_low = special.pdtrc(low - 1, theta) if low > 0 else np.ones_like(theta)
        above_high = special.pdtrc(high, theta) if 0 <= high < math.inf else np.full_like(theta, float(high < 0))
        to_low = special.pdtr(low - 1, theta) if low > 0 else np.zeros_like(theta)
        to_high = special.pdtr(high, theta) if 0 <= high < math.inf else np.full_like(theta, float(high > 0))
        return np.where(theta < low, above_low - above_high, to_high - to_low)

    p0, p1, p2 = (probability(first - k, last - k) for k in range(3))
    return [p0, theta * p1, theta * (theta * p2 + p1)]


def normal_partial(low: Array | None, high: Array | None) -> list[Array]:
    """Return E[z^k; low < z < high] for a standard normal z, k = 0 … 4; None is an infinite end.

    By parts, J_k = (k-1) J_(k-2) + low^(k-1) φ(low) - high^(k-1) φ(high).
    """
    ends = [None if end is None else np.clip(end, -FAR, FAR) for end in (low, high)]
    heights = [None if end is None else np.exp(-0.5 * end**2) / math.sqrt(2 * math.pi) for end in ends]

    def boundary(k: int) -> Array:  # low^(k-1) φ(low) - high^(k-1) φ(high)
        terms = [
            sign * end ** (k - 1) * height
            for sign, end, height in zip((1, -1), ends, heights, strict=True)
            if end is not None and height is not None
        ]
        return np.asarray(sum(terms))

    parts = [_normal_mass(ends[0], ends[1]), boundary(1)]
    for k in range(2, 5):
        parts.append((k - 1) * parts[k - 2] + boundary(k))
    return parts


def _normal_mass(low: Array | None, high: Array | None) -> Array:
    """Return P(low < z < high), by the tails on the side of 0 where both ends lie."""
    if low is None:
        return np.asarray(special.ndtr(high))
    if high is None:
        return np.asarray(special.ndtr(-low))
    right, left = special.ndtr(-low) - special.ndtr(-high), special.ndtr(high) - special.ndtr(low)
    return np.asarray(np.where(low > 0, right, left))


@functools.lru_cache(maxsize=8)
def _gauss(count: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return nodes, weights


def gauss_nodes(low: float, high: float, count: int) -> tuple[Array, Array]:
    """Return nodes and weights of Gauss–Legendre quadrature between two ends."""
    nodes, weights = _gauss(count)
    half = (high - low) / 2
    return (low + high) / 2 + half * nodes, half * weights
