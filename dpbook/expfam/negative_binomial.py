"""Counts that spread more widely than Poisson counts: the negative binomial family, mean and size unknown.

No few sums hold all that such records say, so the release is of two moments of clipped records, in which the second
costs nothing, and the posterior is that of the law of their sums: :class:`CountLaw`, for the engine of
:mod:`dpbook.moments`. The section on whether the family is right explains it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbook import sensitivity as exact
from dpbook._arrays import Array
from dpbook.expfam.clipped_powers import ClippedPowers, between, halving_edges, last_counts, matrix_of, shifted
from dpbook.moments import NoisySums, Pullback
from dpbook.priors import Gamma, MeanAndDispersion

__all__ = ["CountLaw", "NegativeBinomial"]

_LARGEST = 20_000  # upper bound: every count up to it has a probability of its own
_HALVES = np.array([1.0, 0.5])  # weights of the scaled record and of its square


@dataclass(frozen=True)
class NegativeBinomial(ClippedPowers):
    """Counts with mean and size unknown; the variance is mean + mean²/size, and theta = (mean, size).

    Records are scaled to [-1, 1] by the public bounds; their sum and half the sum of their squares are released,
    clipped or redacted. One record moves the two by no more than it moves the sum alone. The smaller the size, the
    more people differ; a Poisson law is the limit of a large one. Explained in
    :doc:`/book/exponential-families/is-the-family-right`.

    Parameters
    ----------
    lower, upper : int
        Public bounds, whole numbers, 0 ≤ lower < upper ≤ 20,000.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> rng = np.random.default_rng(1)
    >>> visits = rng.negative_binomial(0.5, 0.5 / (0.5 + 3), 2000)  # mean 3, size 0.5
    >>> noisy = expfam.release(visits, expfam.NegativeBinomial(0, 50), epsilon=1.0, rng=rng)
    >>> low, high = expfam.infer(noisy, rng=rng).interval(0.95, "theta")[0]
    >>> bool(low < 3 < high)
    True
    """

    lower: float
    upper: float
    name = "negative binomial"
    prior_type = MeanAndDispersion
    inside_range = (-1.0, 1.0)
    parameters = 2
    size = 2
    labels = ("mean", "size")

    def __post_init__(self) -> None:
        self.set_bounds(least=0.0)
        if not (self.lower.is_integer() and self.upper.is_integer() and self.upper <= _LARGEST):
            raise ValueError(
                f"(lower, upper) must be whole numbers up to {_LARGEST} for counts, got ({self.lower}, {self.upper})"
            )

    @property
    def default_prior(self) -> MeanAndDispersion:
        """Wide for the mean, on the scale of the bounds, and for the dispersion, from Poisson counts to zeros."""
        return MeanAndDispersion(Gamma(0.5, 1 / self.upper), Gamma(1.0, 0.5))

    @property
    def check_edges(self) -> tuple[float, ...]:
        """Whole edges that halve the distance to the lower bound."""
        return halving_edges(self.lower, self.upper, whole=True)

    def check_records(self, records: Array) -> None:
        """Raise at what is no count."""
        if ((records < 0) | (records != np.rint(records))).any():
            raise ValueError("data must hold whole numbers from 0 on: a value lies outside the domain")

    def check_parameter(self, theta: ArrayLike) -> Array:
        """Raise at what is no mean and size."""
        guess = super().check_parameter(theta)
        if guess.min() <= 0:
            raise ValueError(f"theta must have a mean and a size greater than 0, got {guess}")
        return guess

    def standardised(self, records: Array) -> Array:
        """Return the records in half-widths from the middle of the bounds."""
        return (records - (self.lower + self.upper) / 2) / ((self.upper - self.lower) / 2)

    def statistics(self, records: Array) -> Array:
        """Return the scaled record and half its square."""
        return np.asarray(super().statistics(records) * _HALVES)

    def released(self, records: Array, outside: str) -> Array:
        """Return the same of the clipped record; of a redacted one, zeros."""
        return np.asarray(super().released(records, outside) * _HALVES)

    def largest_change(self, outside: str, norm: int) -> float:
        """Return 2, in both norms: at half weight the square is free, and a redacted record's zeros are nearer."""
        return exact.mean_and_shape(squares=0.5, cells=0.0, norm=norm)

    def full_moments(self, theta: Array) -> tuple[Array, Array]:
        """Return mean and covariance of the first two powers of the scaled record."""
        raw = self._scaled_moments(theta, 0.0)
        mean = np.stack(raw[1:3], axis=-1)
        return mean, matrix_of([[raw[i + j] - raw[i] * raw[j] for j in (1, 2)] for i in (1, 2)])

    def partial_moments(self, theta: Array, centre: Array) -> tuple[list[Array], list[Array], list[Array]]:
        """Sum over the counts up to the upper bound; what remains of the whole lies above."""
        x = np.arange(self.upper + 1.0)
        mass, gap = np.exp(log_probabilities(theta, x)), self.standardised(x) - centre[..., None]
        inner = x >= self.lower
        powers = [mass * gap**k for k in range(5)]
        below, inside = ([each[..., part].sum(axis=-1) for each in powers] for part in (~inner, inner))
        above = [t - b - i for t, b, i in zip(self._scaled_moments(theta, centre), below, inside, strict=True)]
        return below, inside, above

    def mean_and_covariance(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return those of the powers, with the squares halved."""
        mean, cov = super().mean_and_covariance(theta, outside)
        weights = np.tile(_HALVES, 2)
        return mean * weights, cov * np.outer(weights, weights)

    def _scaled_moments(self, theta: Array, centre: Array | float) -> list[Array]:
        """Return E[(u - c)^k], k = 0 … 4, by factorial moments, E[x(x-1)…] = r(r+1)… (mean/r)^k."""
        mean, r = theta[..., 0], theta[..., 1]
        f = [np.ones_like(mean)]
        for k in range(4):
            f.append(f[-1] * (r + k) * (mean / r))
        raw = [f[0], f[1], f[2] + f[1], f[3] + 3 * f[2] + f[1], f[4] + 6 * f[3] + 7 * f[2] + f[1]]
        half = (self.upper - self.lower) / 2
        at = (self.lower + self.upper) / 2 / half + centre
        return shifted([each / half**k for k, each in enumerate(raw)], -np.asarray(at))

    def cell_probabilities(self, theta: Array, edges: Array) -> Array:
        """Return differences of the distribution function."""
        mean, r, last = theta[..., :1], theta[..., 1:], last_counts(edges)
        below = special.betainc(r, np.maximum(last, 0.0) + 1, r / (r + mean))
        return between(np.where(last < 0, 0.0, below))

    def draw_parameter(self, prior: MeanAndDispersion, sums: Array, n: Array, rng: np.random.Generator) -> Array:
        """Raise: no few sums hold all that the records say."""
        raise TypeError("NegativeBinomial has no conjugate prior: its posterior comes from infer(release) alone")

    def methods(self, mechanism: str = "laplace") -> tuple[str, ...]:
        """Return moments, which is all there is."""
        return ("moments",)

    def prior_information(self, prior: MeanAndDispersion) -> Array:
        """Return the precision of the mean; the size, whose variance may be infinite, has none."""
        return np.diag([1 / prior.mean.variance, 0.0])


def log_probabilities(theta: Array, x: Array) -> Array:
    """Return log P(x) for the counts x = 0, 1, …, in order, on a last axis: by the ratios of successive ones."""
    mean, r = theta[..., :1], theta[..., 1:]
    # Each ratio is (r + j)/(r + mean) · mean/(j + 1): for large r nothing is lost to cancellation.
    steps = np.log1p((x[:-1] - mean) / (r + mean)) + np.log(mean / (x[:-1] + 1))
    first = -r * np.log1p(mean / r)
    return np.concatenate([first, first + np.cumsum(steps, axis=-1)], axis=-1)


class CountLaw:
    """Mean and covariance of the released statistics of a count, with derivatives by log mean and log size.

    Every moment is linear in the probabilities of the counts up to the bound: beyond it, a record adds a constant.
    """

    dim = 2
    certain = np.zeros(2, dtype=bool)

    def __init__(self, family: NegativeBinomial, prior: MeanAndDispersion, outside: str) -> None:
        self._family, self._prior = family, prior
        self._x = np.arange(family.upper + 1.0)
        values = family.released(np.append(self._x, family.upper + 1.0)[:, None], outside)
        one, two = values.T
        table = np.stack([one, two, one**2, one * two, two**2])
        self._beyond, self._steps = table[:, -1], table[:, :-1] - table[:, -1:]

    def moments(self, position: Array) -> tuple[Array, Array, Pullback]:
        """Return mean (B, 2), covariance (B, 2, 2) and the map of derivatives."""
        mass = self._mass(position)
        m1, m2, m11, m12, m22 = (self._beyond + mass @ self._steps.T).T
        cov = matrix_of([[m11 - m1**2, m12 - m1 * m2], [m12 - m1 * m2, m22 - m2**2]])

        def pullback(by_mean: Array, by_cov: Array) -> Array:
            across = by_cov[:, 0, 1] + by_cov[:, 1, 0]
            by_m1 = by_mean[:, 0] - 2 * by_cov[:, 0, 0] * m1 - across * m2
            by_m2 = by_mean[:, 1] - 2 * by_cov[:, 1, 1] * m2 - across * m1
            weights = np.stack([by_m1, by_m2, by_cov[:, 0, 0], across, by_cov[:, 1, 1]], axis=-1)
            pull = mass * (weights @ self._steps)
            return np.stack([np.asarray((pull * score).sum(axis=-1)) for score in self._scores(position)])

        return np.stack([m1, m2], axis=-1), cov, pullback

    def mean(self, position: Array) -> Array:
        """Return the mean (B, 2) alone."""
        return np.asarray(self._beyond[:2] + self._mass(position) @ self._steps[:2].T)

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the log prior density of log mean and log size, and its gradient."""
        parts, sign = (self._prior.mean, self._prior.dispersion), np.array([[1.0], [-1.0]])
        shape, rate = (np.array([[getattr(each, name)] for each in parts]) for name in ("shape", "rate"))
        scaled = rate * np.exp(sign * position)
        return (shape * sign * position - scaled).sum(axis=0), sign * (shape - scaled)

    def start(self, sums: NoisySums) -> Array:
        """Return log mean and log size by the method of moments, within reason."""
        first, second = (sums.noisy / sums.n[:, None]).T
        low, high = self._family.bounds
        half = (high - low) / 2
        mean = np.clip((low + high) / 2 + half * first, 0.01 * high, high)
        variance = half**2 * np.maximum(2 * second - np.clip(first, -1, 1) ** 2, 0.0)
        size = mean**2 / np.maximum(variance - mean, 1e-3 * mean**2)
        return np.asarray(np.log(np.stack([mean, np.clip(size, 0.05, 100.0)])))

    def theta_at(self, position: Array) -> Array:
        """Return mean and size at positions (..., 2)."""
        return np.asarray(np.exp(position))

    def _mass(self, position: Array) -> Array:
        return np.asarray(np.exp(log_probabilities(np.exp(position.T), self._x)))

    def _scores(self, position: Array) -> tuple[Array, Array]:
        """Return the derivatives of log P(x) by log mean and log size, (B, x)."""
        mean, r = np.exp(position)[..., None]
        x = self._x
        harmonic = np.cumsum(np.concatenate([np.zeros_like(r), 1 / (r + x[:-1])], axis=-1), axis=-1)
        by_size = r * (harmonic - np.log1p(mean / r) + (mean - x) / (r + mean))
        return r * (x - mean) / (r + mean), by_size
