"""Families of distributions: a record's statistics, what of them is released, and their moments given the parameter.

A *bounded* family releases its sufficient statistics as they are. An *unbounded* one releases statistics of records
that were clipped to public bounds, or of those inside the bounds only (redacted), and then the released sum and the
sufficient statistic are two correlated quantities: :meth:`Family.moments` gives the mean and covariance of both.
"""

from __future__ import annotations

import functools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbook import sensitivity as exact
from dpbook._arrays import Array
from dpbook._validation import finite_array, integer, interval, one_of
from dpbook.priors import Beta, Dirichlet, Gamma, NormalInverseGamma
from dpbook.records import grid_unit

__all__ = [
    "Binomial",
    "CustomFamily",
    "Exponential",
    "Family",
    "Multinomial",
    "Normal",
    "Poisson",
]

OUTSIDE = ("clip", "redact")
_NARROW = 1024.0  # bounds whose width is a smaller share of their distance from zero are rounded from one of them on
_LARGEST, _CLOSEST = 1e100, 1e-100  # of bounds: beyond, sums and squares of some records would leave the floats
_NAMES = ("binomial", "multinomial", "exponential", "poisson", "normal")  # of the families here


class Family(ABC):
    """What a release and an inference need to know of a family; the base of every family here.

    Examples
    --------
    >>> from dpbook.expfam import Binomial, Family
    >>> isinstance(Binomial(), Family)
    True

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.
    """

    name: str
    prior_type: Any
    bounded: bool = False  # whether the sufficient statistics themselves are released
    parameters: int = 1  # 1: theta has no axis of its own

    def sensitivity(self, outside: str = "clip", norm: int = 1) -> float:
        """Return the exact sensitivity of the released sums (replace-one neighbours, n public).

        Parameters
        ----------
        outside : {"clip", "redact"}
            What becomes of records outside the bounds of an unbounded family.
        norm : {1, 2}
            L1 for Laplace noise, L2 for Gaussian noise.

        Returns
        -------
        float
            The largest change when one record is replaced.

        Examples
        --------
        >>> from dpbook.expfam import Exponential
        >>> Exponential(1, 5).sensitivity("clip"), Exponential(1, 5).sensitivity("redact")
        (4.0, 5.0)

        Explained in :doc:`/book/reference/sensitivities`.
        """
        if norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {norm!r}")
        return self._sensitivity(one_of("outside", outside, OUTSIDE), norm)

    def moments(self, theta: ArrayLike, outside: str = "clip") -> tuple[Array, Array]:
        """Return mean and covariance of one record's statistics given theta.

        Parameters
        ----------
        theta : array
            The parameter, batched: (...) for one parameter, (..., p) for several.
        outside : {"clip", "redact"}
            What becomes of records outside the bounds of an unbounded family.

        Returns
        -------
        tuple of ndarray
            Bounded families: of the k sufficient statistics, (..., k) and (..., k, k). Unbounded ones: of the released
            statistics followed by the sufficient ones, (..., 2k) and (..., 2k, 2k).

        Examples
        --------
        >>> from dpbook.expfam import Exponential
        >>> mean, covariance = Exponential(0, 2).moments(1.0)
        >>> mean.round(3)
        array([0.865, 1.   ])

        Explained in :doc:`/book/exponential-families/unbounded-statistics`.
        """
        values = finite_array("theta", theta)
        if self.parameters > 1 and values.shape[-1:] != (self.parameters,):
            raise ValueError(f"theta must have a last axis of {self.parameters} parameters, got shape {values.shape}")
        return self._moments(values, one_of("outside", outside, OUTSIDE))

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """The public bounds of a record."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many statistics a record has."""

    @abstractmethod
    def _released(self, rows: Array, outside: str) -> Array:
        """Return the statistics of each record that are summed and released, (rows, size)."""

    def _sufficient(self, rows: Array) -> Array:
        """Return the sufficient statistics of each record, neither clipped nor redacted, (rows, size)."""
        return self._released(rows, "clip")

    @abstractmethod
    def _sensitivity(self, outside: str = "clip", norm: int = 1) -> float:
        """Return the exact sensitivity of the released sum (replace-one neighbours, n public)."""

    @abstractmethod
    def _moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and covariance of one record's statistics given theta.

        Bounded families: of the sufficient statistics, shapes (..., k) and (..., k, k). Unbounded ones: of the released
        statistics followed by the sufficient ones, (..., 2k) and (..., 2k, 2k).
        """

    def _released_moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and variance of each released statistic, (..., k)."""
        mean, cov = self._moments(theta, outside)
        k = self.size
        return mean[..., :k], np.maximum(np.diagonal(cov, axis1=-2, axis2=-1)[..., :k], 0.0)

    def _natural(self, theta: Array) -> tuple[Array, Array]:
        """Return η and A of a one-parameter family, whose log likelihood of n records with sum s is η s - n A."""
        raise TypeError(f"{type(self).__name__} has no one-dimensional likelihood")

    def _log_likelihood(self, statistics: Array, n: Array, theta: Array) -> Array:
        """Return the log likelihood of exact sums, up to what does not depend on theta (one-parameter families)."""
        eta, normaliser = self._natural(theta)
        return eta * statistics - n * normaliser

    @abstractmethod
    def _draw_parameter(self, prior: Any, statistics: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw theta given exact sufficient statistics (..., k): the conjugate step."""

    def _simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array | None:
        """Draw the sufficient sums of n made-up records exactly, (..., k); None where a family cannot."""
        return None

    @abstractmethod
    def _nearest_valid(self, statistics: Array, n: Array) -> Array:
        """Move sums of sufficient statistics to the nearest ones that n records could have."""

    def _nearest_released(self, released: Array, n: Array) -> Array:
        """Move released sums to the nearest ones that n records could have."""
        low, high = self.released_range
        size = np.asarray(n, dtype=float)[..., None]
        return np.clip(released, size * low, size * high)

    @property
    def magnitude(self) -> float:
        """The largest absolute value of a released statistic, from the bounds."""
        return max(abs(bound) for bound in self.bounds)

    @property
    def released_range(self) -> tuple[float, float]:
        """What one record can add to a released sum; zero is in it, since a redacted record adds nothing."""
        return min(self.bounds[0], 0.0), max(self.bounds[1], 0.0)

    @property
    def statistic_range(self) -> tuple[float, float]:
        """What one record can add to the sufficient statistic."""
        return self.released_range if self.bounded else (0.0, math.inf)

    def _grid(self, outside: str) -> tuple[float, float]:
        """Return what is subtracted from every released statistic before it is rounded, and the step of the grid.

        Both depend on public numbers alone. The grid has some 2³² steps over the largest magnitude that a rounded
        number can have, and for most bounds that is the width, give or take a factor. Where clipped statistics lie
        further from zero than 1024 times their width, the end nearest to zero is subtracted first, so that the grid
        follows the width. The subtraction is exact: both numbers are within a factor of two (Sterbenz).
        """
        return 0.0, grid_unit(self.magnitude)

    def _on_grid(self, outside: str) -> bool:
        """Whether every released statistic is a whole number, so that the fixed-point grid rounds nothing."""
        return self.bounded

    @property
    def settings(self) -> Mapping[str, Any]:
        """What a release must carry for an analyst to rebuild the family."""
        return {}


def _check_outside(outside: str) -> str:
    return one_of("outside", outside, OUTSIDE)


@dataclass(frozen=True)
class Binomial(Family):
    """Yes-or-no records, 0 or 1; the statistic is the number of ones, of sensitivity 1.

    Examples
    --------
    >>> from dpbook.expfam import Binomial
    >>> Binomial().name, Binomial().sensitivity()
    ('binomial', 1.0)

    Explained in :doc:`/book/background/after-a-release`.
    """

    name = "binomial"
    prior_type = Beta
    bounded = True

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of a record."""
        return (0.0, 1.0)

    @property
    def size(self) -> int:
        """One statistic, the record itself."""
        return 1

    def _released(self, rows: Array, outside: str = "clip") -> Array:
        """Return the records, checked to be 0 or 1."""
        if not np.isin(rows, (0.0, 1.0)).all():
            raise ValueError("x must hold 0 and 1 only: a value lies outside the domain")
        return rows

    def _sensitivity(self, outside: str = "clip", norm: int = 1) -> float:
        """Return 1 in either norm."""
        return exact.bounded_sum(0.0, 1.0)

    def _moments(self, theta: Array, outside: str = "clip") -> tuple[Array, Array]:
        """Return theta and theta (1 - theta)."""
        return theta[..., None], (theta * (1 - theta))[..., None, None]

    def _natural(self, theta: Array) -> tuple[Array, Array]:
        """Return the log odds of theta and -log(1 - theta)."""
        return np.asarray(special.logit(theta)), -np.log1p(-theta)

    def _draw_parameter(self, prior: Beta, statistics: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw from Beta(alpha + s, beta + n - s)."""
        count = statistics[..., 0]
        return rng.beta(prior.alpha + count, prior.beta + n - count)

    def _simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw binomial counts."""
        return np.asarray(rng.binomial(n.astype(np.int64), theta), dtype=float)[..., None]

    def _nearest_valid(self, statistics: Array, n: Array) -> Array:
        """Clip the count to [0, n]."""
        return np.clip(statistics, 0.0, np.asarray(n)[..., None])


@dataclass(frozen=True)
class Multinomial(Family):
    """Records in one of k categories, coded 0 … k-1; the statistics are the k counts, of L1 sensitivity 2.

    Parameters
    ----------
    k : int
        The number of categories, at least 2.

    Examples
    --------
    >>> from dpbook.expfam import Multinomial
    >>> Multinomial(3).sensitivity()
    2.0

    Explained in :doc:`/book/exponential-families/naive-posterior`.
    """

    k: int
    name = "multinomial"
    prior_type = Dirichlet
    bounded = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", integer("k", self.k, least=2))

    @property
    def parameters(self) -> int:  # type: ignore[override]
        """One probability a category."""
        return self.k

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of a code."""
        return (0.0, float(self.k - 1))

    @property
    def size(self) -> int:
        """One count a category."""
        return self.k

    @property
    def magnitude(self) -> float:
        """An indicator is at most 1."""
        return 1.0

    @property
    def settings(self) -> Mapping[str, Any]:
        """The number of categories."""
        return {"k": self.k}

    def _released(self, rows: Array, outside: str = "clip") -> Array:
        """Return one indicator a category, after a check of the codes."""
        codes = rows[:, 0]
        if not np.isin(codes, np.arange(self.k)).all():
            raise ValueError(f"x must hold codes 0 to {self.k - 1}: a value lies outside the domain")
        return np.asarray(codes[:, None] == np.arange(self.k), dtype=float)

    def _sensitivity(self, outside: str = "clip", norm: int = 1) -> float:
        """Return 2, or √2 in the L2 norm: one count falls by one, another rises."""
        return exact.histogram(tables=1, norm=norm)

    def _moments(self, theta: Array, outside: str = "clip") -> tuple[Array, Array]:
        """Return theta and diag(theta) - theta thetaᵀ."""
        return theta, np.eye(self.k) * theta[..., None] - theta[..., :, None] * theta[..., None, :]

    def _released_moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return theta and theta (1 - theta), without the matrix."""
        return theta, theta * (1 - theta)

    def _draw_counts(
        self, theta: Array, n: Array, noisy: Array, noise_variance: Array, rng: np.random.Generator
    ) -> Array:
        """Draw counts from N(n theta, n(diag theta - theta thetaᵀ)) given noisy ones: Kalman form, no matrix.

        The covariance is a diagonal minus a rank-one matrix, so a draw from it is √(n theta) e less its share of the
        total, and the solve is Sherman and Morrison's; its factor Σ theta d / (n theta + d) cannot vanish.
        """
        size = np.asarray(n, dtype=float)[..., None]
        expected = size * theta
        spread = np.sqrt(expected) * rng.normal(size=expected.shape)
        draw = expected + spread - theta * spread.sum(axis=-1, keepdims=True)
        gap = noisy - draw - np.sqrt(noise_variance) * rng.normal(size=expected.shape)
        diagonal = expected + noise_variance
        weighted = gap / diagonal
        factor = np.sum(theta * noise_variance / diagonal, axis=-1, keepdims=True)
        shift = size * np.sum(theta * weighted, axis=-1, keepdims=True) / factor
        solved = weighted + theta / diagonal * shift
        return np.asarray(draw + expected * (solved - np.sum(theta * solved, axis=-1, keepdims=True)))

    def _draw_parameter(self, prior: Dirichlet, statistics: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw from Dirichlet(alpha + counts), as normalised gamma variables."""
        gammas = rng.standard_gamma(np.asarray(prior.alpha) + statistics)
        gammas = np.maximum(gammas, np.finfo(float).tiny)
        return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))

    def _simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw multinomial counts."""
        return np.asarray(rng.multinomial(n.astype(np.int64), theta), dtype=float)

    def _nearest_valid(self, statistics: Array, n: Array) -> Array:
        """Project the counts on the simplex of non-negative counts with total n."""
        total = np.broadcast_to(np.asarray(n, dtype=float), statistics.shape[:-1])[..., None]
        ordered = -np.sort(-statistics, axis=-1)
        excess = (np.cumsum(ordered, axis=-1) - total) / np.arange(1, self.k + 1)
        last = np.sum(ordered > excess, axis=-1, keepdims=True) - 1
        return np.asarray(np.maximum(statistics - np.take_along_axis(excess, last, axis=-1), 0.0))


class _Bounded(Family):
    """What the unbounded one-dimensional families share: powers of a record, clipped or redacted to public bounds."""

    lower: float
    upper: float
    order: int = 1  # statistics x, …, x^order

    @property
    def bounds(self) -> tuple[float, float]:
        """The public bounds that a record is clipped or redacted to."""
        return (self.lower, self.upper)

    @property
    def size(self) -> int:
        """One statistic a power."""
        return self.order

    @property
    def settings(self) -> Mapping[str, Any]:
        """The bounds."""
        return {"lower": self.lower, "upper": self.upper}

    def _standardised(self, rows: Array) -> Array:
        return rows

    @property
    def _edges(self) -> tuple[float, float]:
        return (self.lower, self.upper)

    @property
    def _inside_range(self) -> tuple[float, float]:
        """The range of the released statistics of a record inside the bounds."""
        return self._edges

    def _grid(self, outside: str) -> tuple[float, float]:
        low, high = self._inside_range
        if outside == "redact" or max(abs(low), abs(high)) <= _NARROW * (high - low):
            return super()._grid(outside)  # a redacted record adds 0, so that there the width reaches to 0
        return (low if low > 0 else high), grid_unit(high - low)

    def _released(self, rows: Array, outside: str) -> Array:
        """Return the powers of the clipped record, or of the record where it lies inside and zeros elsewhere."""
        _check_outside(outside)
        low, high = self._edges
        x = self._standardised(rows)
        powers = np.arange(1, self.order + 1)
        if outside == "clip":
            return np.asarray(np.clip(x, low, high) ** powers)
        return np.where((x >= low) & (x <= high), np.clip(x, low, high) ** powers, 0.0)

    def _sensitivity(self, outside: str = "clip", norm: int = 1) -> float:
        """Return the exact sensitivity of the released sum: the range, or with redaction also the distance to zero."""
        _check_outside(outside)
        low, high = self._edges
        within = (
            exact.bounded_sum(low, high)
            if self.order == 1
            else exact.second_moments([low], [high], intercept=True, norm=norm)
        )
        if outside == "clip":
            return within
        # A record outside the bounds contributes zeros, so it is at the distance ‖t(x)‖ from one inside.
        largest = max(abs(low), abs(high))
        to_zero = float(np.linalg.norm(largest ** np.arange(1, self.order + 1), ord=norm))
        return max(within, to_zero)

    def _sufficient(self, rows: Array) -> Array:
        """Return the powers of each record."""
        return np.asarray(self._standardised(rows) ** np.arange(1, self.order + 1))

    @abstractmethod
    def _full_moments(self, theta: Array) -> tuple[Array, Array]:
        """Return mean and covariance of the powers of a record that is neither clipped nor redacted."""

    @abstractmethod
    def _partial_moments(self, theta: Array, centre: Array) -> tuple[list[Array], list[Array], list[Array]]:
        """Return E[(x-c)^k; x < lower], E[(x-c)^k; inside] and E[(x-c)^k; x > upper] for k = 0 … 2·order."""

    def _regions(self, theta: Array, mean: Array, outside: str) -> _Regions:
        """Return partial moments about a point near the released value, so that no variance is lost to cancellation."""
        low, high = self._edges
        centre = np.clip(mean, low, high)
        parts = self._partial_moments(theta, centre)
        if outside == "clip":
            return _Regions(centre, *parts, low - centre, high - centre)
        centre = np.where(parts[1][0] > 0.5, centre, 0.0)  # where most records are redacted, most values are 0
        return _Regions(centre, *self._partial_moments(theta, centre), -centre, -centre)

    def _moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and covariance of (released powers, powers of the record).

        With u = g - c for the released value g (clipped, or 0 if redacted) and v = x - E x, covariances of powers of u
        and v are computed first; those of g and x follow by the binomial theorem.
        """
        _check_outside(outside)
        k, powers = self.order, range(1, self.order + 1)
        full_mean, full_cov = self._full_moments(theta)
        at = self._regions(theta, full_mean[..., 0], outside)
        delta = at.centre - full_mean[..., 0]
        with np.errstate(invalid="ignore", over="ignore"):
            u = [at.power(i) for i in range(2 * k + 1)]
            v = [np.ones(()), np.zeros(()), full_cov[..., 0, 0]]
            within = _matrix([[u[i + j] - u[i] * u[j] for j in powers] for i in powers])
            cross = _matrix([[at.cross(i, j, delta) - u[i] * v[j] for j in powers] for i in powers])
            mean = np.stack([_about_zero(u, at.centre, i) for i in powers], axis=-1)
            if k > 1:
                to_g, to_x = _binomials(at.centre, k), np.swapaxes(_binomials(full_mean[..., 0], k), -1, -2)
                within, cross = to_g @ within @ np.swapaxes(to_g, -1, -2), to_g @ cross @ to_x
        top = np.concatenate([within, cross], axis=-1)
        bottom = np.concatenate([np.swapaxes(cross, -1, -2), full_cov], axis=-1)
        return np.concatenate([mean, full_mean], axis=-1), np.concatenate([top, bottom], axis=-2)

    def _released_moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and variance of each released power, (..., order)."""
        if self.order > 1:
            return super()._released_moments(theta, outside)
        at = self._regions(theta, self._full_moments(theta)[0][..., 0], _check_outside(outside))
        first, second = at.power(1), at.power(2)
        return (at.centre + first)[..., None], np.maximum(second - first**2, 0.0)[..., None]


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


@dataclass(frozen=True)
class Exponential(_Bounded):
    """Waiting times with rate theta; the statistic is their sum, of records clipped or redacted to [lower, upper].

    Parameters
    ----------
    lower, upper : float
        Public bounds, 0 ≤ lower < upper.

    Examples
    --------
    >>> from dpbook.expfam import Exponential
    >>> Exponential(1, 5).sensitivity("clip"), Exponential(1, 5).sensitivity("redact")
    (4.0, 5.0)

    Explained in :doc:`/book/exponential-families/unbounded-statistics`.
    """

    lower: float
    upper: float
    name = "exponential"
    prior_type = Gamma

    def __post_init__(self) -> None:
        _set_bounds(self, least=0.0)

    def _full_moments(self, theta: Array) -> tuple[Array, Array]:
        with np.errstate(divide="ignore", over="ignore"):  # tiny rates have an infinite variance
            return (1 / theta)[..., None], (1 / theta**2)[..., None, None]

    def _partial_moments(self, theta: Array, centre: Array) -> tuple[list[Array], list[Array], list[Array]]:
        # By lack of memory every region is an exponential that starts at its left end: nothing is subtracted.
        low, high, width = self.lower, self.upper, self.upper - self.lower
        below = [low**k * _scaled_gamma(k, theta * low) for k in range(3)]
        inside = [np.exp(-theta * low) * width**k * _scaled_gamma(k, theta * width) for k in range(3)]
        with np.errstate(divide="ignore", over="ignore"):
            above = [np.exp(-theta * high) * math.factorial(k) / theta**k for k in range(3)]
        return _shifted(below, -centre), _shifted(inside, low - centre), _shifted(above, high - centre)

    def _natural(self, theta: Array) -> tuple[Array, Array]:
        """Return -theta and -log theta."""
        return -theta, -np.log(theta)

    def _sufficient(self, rows: Array) -> Array:
        """Return the records, checked not to be negative."""
        if (rows < 0).any():
            raise ValueError("x must hold numbers from 0 on: a value lies outside the domain")
        return super()._sufficient(rows)

    def _updated(self, prior: Gamma, total: float, n: int) -> Gamma:
        """Return the posterior after n exact records with this sum."""
        return Gamma(prior.shape + n, prior.rate + total)

    def _draw_parameter(self, prior: Gamma, statistics: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw from Gamma(shape + n, rate + s)."""
        return np.asarray(
            rng.standard_gamma(prior.shape + n, statistics.shape[:-1]) / (prior.rate + statistics[..., 0])
        )

    def _simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw a gamma variable of shape n."""
        return np.asarray(rng.standard_gamma(n, theta.shape) / theta)[..., None]

    def _nearest_valid(self, statistics: Array, n: Array) -> Array:
        """Keep the sum at 0 or above."""
        return np.maximum(statistics, 0.0)


@dataclass(frozen=True)
class Poisson(_Bounded):
    """Counts with mean theta; the statistic is their sum, of records clipped or redacted to [lower, upper].

    Parameters
    ----------
    lower, upper : float
        Public bounds, 0 ≤ lower < upper.

    Examples
    --------
    >>> from dpbook.expfam import Poisson
    >>> Poisson(0, 20).sensitivity("clip")
    20.0

    Explained in :doc:`/book/exponential-families/unbounded-statistics`.
    """

    lower: float
    upper: float
    name = "poisson"
    prior_type = Gamma

    def __post_init__(self) -> None:
        _set_bounds(self, least=0.0)

    def _on_grid(self, outside: str) -> bool:
        """Whether the bounds are whole numbers, as the counts are, and the grid holds every whole number up to them."""
        return self.lower.is_integer() and self.upper.is_integer() and self._grid(outside)[1] <= 1

    def _released(self, rows: Array, outside: str) -> Array:
        """Return the clipped or redacted counts, after a check that they are counts."""
        return super()._released(self._counts(rows), outside)

    def _sufficient(self, rows: Array) -> Array:
        """Return the counts."""
        return super()._sufficient(self._counts(rows))

    @staticmethod
    def _counts(rows: Array) -> Array:
        if ((rows < 0) | (rows != np.rint(rows))).any():
            raise ValueError("x must hold whole numbers from 0 on: a value lies outside the domain")
        return rows

    def _full_moments(self, theta: Array) -> tuple[Array, Array]:
        return theta[..., None], theta[..., None, None]

    def _partial_moments(self, theta: Array, centre: Array) -> tuple[list[Array], list[Array], list[Array]]:
        first, last = math.ceil(self.lower), math.floor(self.upper)
        below = _poisson_partial(theta, -math.inf, first - 1)
        above = _poisson_partial(theta, last + 1, math.inf)
        if last - first > 64:
            inside = _shifted(_poisson_partial(theta, first, last), -centre)
        else:
            x = np.arange(first, last + 1.0)
            mass = np.exp(special.xlogy(x, theta[..., None]) - theta[..., None] - special.gammaln(x + 1))
            gap = x - centre[..., None]
            inside = [mass.sum(axis=-1), (mass * gap).sum(axis=-1), (mass * gap**2).sum(axis=-1)]
        return _shifted(below, -centre), inside, _shifted(above, -centre)

    def _natural(self, theta: Array) -> tuple[Array, Array]:
        """Return log theta and theta."""
        return np.log(theta), theta

    def _updated(self, prior: Gamma, total: float, n: int) -> Gamma:
        """Return the posterior after n exact records with this sum."""
        return Gamma(prior.shape + total, prior.rate + n)

    def _draw_parameter(self, prior: Gamma, statistics: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw from Gamma(shape + s, rate + n)."""
        return np.asarray(rng.standard_gamma(prior.shape + statistics[..., 0]) / (prior.rate + n))

    def _simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw a Poisson variable of mean n theta."""
        return np.asarray(rng.poisson(np.minimum(n * theta, 1e18)), dtype=float)[..., None]

    def _nearest_valid(self, statistics: Array, n: Array) -> Array:
        """Keep the sum at 0 or above."""
        return np.maximum(statistics, 0.0)


@dataclass(frozen=True)
class Normal(_Bounded):
    """Normal records, mean and variance unknown; theta = (mean, variance).

    Records are centred and scaled to [-1, 1] by the public bounds before their sum and sum of squares are released, so
    that nothing depends on units; the prior is mapped in, and draws are mapped back.

    Parameters
    ----------
    lower, upper : float
        Public bounds, lower < upper.

    Examples
    --------
    >>> from dpbook.expfam import Normal
    >>> Normal(0, 200).sensitivity("clip")
    2.25

    Explained in :doc:`/book/exponential-families/unbounded-statistics`.
    """

    lower: float
    upper: float
    name = "normal"
    prior_type = NormalInverseGamma
    parameters = 2
    order = 2

    def __post_init__(self) -> None:
        _set_bounds(self)

    @property
    def centre(self) -> float:
        """The middle of the bounds."""
        return (self.lower + self.upper) / 2

    @property
    def half_width(self) -> float:
        """Half the distance of the bounds."""
        return (self.upper - self.lower) / 2

    @property
    def magnitude(self) -> float:
        """Standardised statistics are at most 1."""
        return 1.0

    @property
    def _edges(self) -> tuple[float, float]:
        return (-1.0, 1.0)

    def _standardised(self, rows: Array) -> Array:
        with np.errstate(over="ignore"):  # a record may lie more than the largest float of half-widths away
            return (rows - self.centre) / self.half_width

    def _to_standard(self, theta: Array) -> Array:
        """Return (mean, variance) in the released coordinates."""
        return np.stack(
            [
                (theta[..., 0] - self.centre) / self.half_width,
                theta[..., 1] / self.half_width**2,
            ],
            axis=-1,
        )

    def _full_moments(self, theta: Array) -> tuple[Array, Array]:
        mean, variance = np.moveaxis(self._to_standard(theta), -1, 0)
        cross = 2 * mean * variance
        cov = _matrix([[variance, cross], [cross, 2 * variance**2 + 4 * mean**2 * variance]])
        return np.stack([mean, mean**2 + variance], axis=-1), cov

    def _partial_moments(self, theta: Array, centre: Array) -> tuple[list[Array], list[Array], list[Array]]:
        mean, variance = np.moveaxis(self._to_standard(theta), -1, 0)
        sd = np.sqrt(variance)
        low, high = ((edge - mean) / sd for edge in self._edges)
        parts = (_normal_partial(None, low), _normal_partial(low, high), _normal_partial(high, None))
        below, inside, above = (
            _shifted([sd**k * each for k, each in enumerate(part)], mean - centre) for part in parts
        )
        close = sd > 2.0
        if not close.any():
            return below, inside, above
        # Between bounds less than an sd apart the recursion would cancel; there a few Gauss nodes are exact.
        nodes, weights = _legendre(*self._edges, 16)
        z = np.clip((nodes - mean[..., None]) / sd[..., None], -_FAR, _FAR)
        mass = weights * np.exp(-0.5 * z**2) / (math.sqrt(2 * math.pi) * sd[..., None])
        gap = nodes - centre[..., None]
        inside = [np.where(close, (mass * gap**k).sum(axis=-1), each) for k, each in enumerate(inside)]
        return below, inside, above

    def _draw_parameter(
        self,
        prior: NormalInverseGamma,
        statistics: Array,
        n: Array,
        rng: np.random.Generator,
    ) -> Array:
        """Draw variance, then mean, from the conjugate posterior, in the data's own units."""
        mean, precision = prior._alone("prior")
        prior_mean = (mean - self.centre) / self.half_width
        prior_rate = prior.rate / self.half_width**2
        total, squares = statistics[..., 0], statistics[..., 1]
        strength = precision + n
        centre = (precision * prior_mean + total) / strength
        scatter = np.maximum(squares - total**2 / n, 0.0) + precision * n / strength * (total / n - prior_mean) ** 2
        variance = (prior_rate + scatter / 2) / rng.standard_gamma(prior.shape + np.asarray(n) / 2, total.shape)
        drawn = rng.normal(centre, np.sqrt(variance / strength))
        return np.stack(
            [self.centre + self.half_width * drawn, self.half_width**2 * variance],
            axis=-1,
        )

    def _simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw a normal sum and a chi-squared scatter, in the released coordinates."""
        mean, variance = np.moveaxis(self._to_standard(theta), -1, 0)
        total = n * mean + np.sqrt(n * variance) * rng.normal(size=mean.shape)
        scatter = 2 * variance * rng.standard_gamma(np.maximum(n - 1, 0) / 2, mean.shape)
        return np.stack([total, scatter + total**2 / n], axis=-1)

    def _nearest_released(self, released: Array, n: Array) -> Array:
        """Keep the mean in [-1, 1] and the mean square between its square and 1, in the released coordinates."""
        total = np.clip(released[..., 0], -n, n)
        return np.stack([total, np.clip(released[..., 1], total**2 / n, n)], axis=-1)

    def _nearest_valid(self, statistics: Array, n: Array) -> Array:
        """Keep the centred scatter at 0 or above; the mean stays."""
        total, squares = statistics[..., 0], statistics[..., 1]
        return np.stack([total, np.maximum(squares, total**2 / n)], axis=-1)


@dataclass(frozen=True, eq=False)
class CustomFamily(_Bounded):
    """A one-parameter family of your own: give its density, its statistic and its conjugate step.

    Moments are computed by Gauss–Legendre quadrature inside the bounds and in both tails (continuous records), or by
    summation (discrete ones). A custom family cannot travel in JSON: pass it to ``infer(…, family=…)``.

    Parameters
    ----------
    name : str
        The model's name in the release.
    lower, upper : float
        Public bounds of a record.
    support : (low, high)
        Where records can lie; high may be infinite.
    statistic : callable
        Maps records to the sufficient statistic t(x). Records come to it one at a time, and what it returns for one
        inside the bounds is clipped to ``range_inside``; an error or NaN counts as the lower end. So a release is
        private whatever the function does with the record that it is given.
    log_density : callable
        ``log_density(x, theta)``, broadcasting; the logarithm of the density, or of the probability of a whole number.
    conjugate : callable
        ``conjugate(prior, s, n, rng)`` draws theta given exact sums s of the statistic, batched.
    prior_type : type
        What priors it takes; a prior has ``draw``, ``log_density`` and ``support``.
    discrete : bool, default False
        Whether records are whole numbers.
    range_inside : (low, high), optional
        The range of the statistic for records inside the bounds, from the formula and not from data. By default its
        values at the two bounds, which is right for a monotone statistic; others are refused without it.

    Examples
    --------
    Weibull waiting times with known shape 2, whose statistic x² is exponential:

    >>> import numpy as np
    >>> from dpbook.expfam import CustomFamily, Gamma
    >>> weibull = CustomFamily(
    ...     "weibull-2", 0.0, 3.0, (0.0, np.inf), statistic=lambda x: x**2,
    ...     log_density=lambda x, theta: np.log(2 * theta * x) - theta * x**2,
    ...     conjugate=lambda prior, s, n, rng: rng.gamma(prior.shape + n, 1 / (prior.rate + s)),
    ...     prior_type=Gamma,
    ... )
    >>> mean, _ = weibull.moments(np.array(1.0), "clip")
    >>> bool(abs(mean[1] - 1.0) < 1e-9)
    True

    Explained in :doc:`/book/exponential-families/unbounded-statistics`.
    """

    name: str
    lower: float
    upper: float
    support: tuple[float, float]
    statistic: Callable[[Array], Array]
    log_density: Callable[[Array, Array], Array]
    conjugate: Callable[..., Array]
    prior_type: type
    discrete: bool = False
    range_inside: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name in _NAMES:
            raise ValueError(f"name must be text other than {', '.join(_NAMES)}, got {self.name!r}")
        for what in ("statistic", "log_density", "conjugate"):
            if not callable(getattr(self, what)):
                raise TypeError(f"{what} must be callable, got {getattr(self, what)!r}")
        _set_bounds(self)
        low, high = self.support
        if not low <= self.lower < self.upper <= high:
            raise ValueError(f"support must contain (lower, upper) = {self.bounds}, got {self.support}")
        if self.discrete and not math.isfinite(low):
            raise ValueError(f"support must begin somewhere for whole numbers, got {self.support}")
        if self.range_inside is not None:
            object.__setattr__(self, "range_inside", interval("range_inside", self.range_inside))
        _require_moderate("range_inside", self._inside_range)
        if self.range_inside is None:
            self._require_monotone()

    def _require_monotone(self) -> None:
        """Raise where the statistic leaves the range of its ends at one of some 300 public records in between."""
        low, high = self._inside_range
        x = self._nodes[0]
        with np.errstate(all="ignore"):
            values = np.asarray(self.statistic(x[(x >= self.lower) & (x <= self.upper)]), dtype=float)
        least, most = float(np.nanmin(values)), float(np.nanmax(values))
        if least < low - 1e-9 * (high - low) or most > high + 1e-9 * (high - low):
            raise ValueError(
                f"statistic must be monotone between the bounds, or range_inside be given: it reaches from {least:.6g} "
                f"to {most:.6g} inside them, and from {low:.6g} to {high:.6g} at the two bounds"
            )

    @functools.cached_property
    def _inside_range(self) -> tuple[float, float]:
        """The range that statistics are clipped to; found once, so that clipping and sensitivity cannot differ."""
        if self.range_inside is not None:
            return self.range_inside
        ends = np.asarray(self.statistic(np.array([self.lower, self.upper])), dtype=float)
        if ends.shape != (2,) or not np.isfinite(ends).all() or ends[0] == ends[1]:
            raise ValueError(
                f"statistic must give two different finite numbers for the bounds {self.bounds}, got {ends}; where it "
                "cannot, give its range_inside"
            )
        return float(ends.min()), float(ends.max())

    @property
    def settings(self) -> Mapping[str, Any]:
        """The bounds, and the range of the statistic where it was given."""
        return {**super().settings, **({} if self.range_inside is None else {"range_inside": self.range_inside})}

    @property
    def released_range(self) -> tuple[float, float]:
        """What one record can add to a released sum."""
        low, high = self._inside_range
        return min(low, 0.0), max(high, 0.0)

    @functools.cached_property
    def statistic_range(self) -> tuple[float, float]:
        """What one record can add to the sufficient statistic: its values inside and at the ends of the support."""
        with np.errstate(all="ignore"):
            ends = np.asarray(self.statistic(np.array(self.support)), dtype=float)
        reached = [*self._inside_range, *ends[~np.isnan(ends)].tolist()]
        return min(reached), max(reached)

    @property
    def magnitude(self) -> float:
        """The largest absolute value of the statistic inside the bounds."""
        return max(abs(v) for v in self._inside_range)

    def _sufficient(self, rows: Array) -> Array:
        """Return the statistic of each record."""
        return np.asarray(self.statistic(rows))

    def _released(self, rows: Array, outside: str) -> Array:
        """Return the statistic of the clipped record, or of the record where it lies inside and 0 elsewhere."""
        _check_outside(outside)
        value = self._one_by_one(np.clip(rows, self.lower, self.upper))
        return value if outside == "clip" else np.where((rows >= self.lower) & (rows <= self.upper), value, 0.0)

    def _one_by_one(self, records: Array) -> Array:
        """Return the statistic of each record by itself, within its range, without a sign of what went on inside it."""
        low, _ = self._inside_range
        # Zeros have one sign: 1/x tells 0 from -0, np.unique does not, and one record would speak for others.
        different, place = np.unique(records + 0.0, return_inverse=True)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = np.array([self._one(record) for record in different.tolist()])
        tame = np.clip(np.where(np.isnan(values), low, values), *self._inside_range)
        return np.asarray(tame[place].reshape(records.shape))

    def _one(self, record: float) -> float:
        """Return what the statistic says of one record, or the lower end where it fails: errors would tell of it."""
        try:
            return float(np.asarray(self.statistic(np.array([record])), dtype=float).reshape(()))
        except KeyboardInterrupt:
            raise
        except BaseException:
            return self._inside_range[0]

    def _sensitivity(self, outside: str = "clip", norm: int = 1) -> float:
        """Return the range of the statistic inside the bounds, or with redaction also its distance to zero."""
        width = exact.bounded_sum(*self._inside_range)
        return width if _check_outside(outside) == "clip" else max(width, self.magnitude)

    def _full_moments(self, theta: Array) -> tuple[Array, Array]:
        raise TypeError("a custom family has no closed form; its moments come from quadrature")

    def _partial_moments(self, theta: Array, centre: Array) -> tuple[list[Array], list[Array], list[Array]]:
        raise TypeError("a custom family has no closed form; its moments come from quadrature")

    def _moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and covariance of (released statistic, sufficient statistic), by quadrature or summation."""
        return self._expectations(theta, [self._at_nodes(outside), self.statistic(self._nodes[0])])

    def _released_moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and variance of the released statistic."""
        mean, cov = self._expectations(theta, [self._at_nodes(outside)])
        return mean, cov[..., 0]

    def _at_nodes(self, outside: str) -> Array:
        """Return the released statistic at the nodes, clipped as a release clips it; computed once."""
        kept: dict[str, Array] = self.__dict__.setdefault("_kept_at_nodes", {})
        if outside not in kept:
            kept[outside] = self._released(self._nodes[0][:, None], outside)[:, 0]
        return kept[outside]

    def _expectations(self, theta: Array, values: list[Array]) -> tuple[Array, Array]:
        x, weights = self._nodes
        with np.errstate(all="ignore"):
            mass = weights * np.exp(self.log_density(x, np.asarray(theta, dtype=float)[..., None]))
        mass = np.where(np.isfinite(mass), mass, 0.0)
        missing = 1 - mass.sum(axis=-1)
        mass[..., np.argmax(x)] += np.where(missing > 1e-3, missing, 0.0)  # what lies beyond all nodes is at the last
        mass = mass / mass.sum(axis=-1, keepdims=True)
        mean = np.stack([(mass * value).sum(axis=-1) for value in values], axis=-1)
        gaps = [value - mean[..., i, None] for i, value in enumerate(values)]
        return mean, _matrix([[(mass * one * other).sum(axis=-1) for other in gaps] for one in gaps])

    def _total_mass(self, theta: Array) -> Array:
        """Return what the density sums to over all nodes: 1, if it is a density and the nodes resolve it."""
        x, weights = self._nodes
        with np.errstate(all="ignore"):
            return np.asarray((weights * np.exp(self.log_density(x, theta[..., None]))).sum(axis=-1))

    def _natural(self, theta: Array) -> tuple[Array, Array]:
        """Return η and A up to constants, from the density at two records; a third must agree."""
        step = (math.floor(self.upper) - math.ceil(self.lower)) // 2 if self.discrete else self.width / 3
        first = float(math.ceil(self.lower)) if self.discrete else self.lower + self.width / 6
        x = first + step * np.arange(3.0)
        t = np.asarray(self.statistic(x), dtype=float)
        gap = self.log_density(x, theta[..., None]) - self.log_density(x, theta.ravel()[:1])
        eta = (gap[..., 2] - gap[..., 0]) / (t[2] - t[0]) if t[2] != t[0] else np.full(theta.shape, np.nan)
        normaliser = eta * t[0] - gap[..., 0]
        if not np.allclose(eta * t[1] - normaliser, gap[..., 1], rtol=1e-6, atol=1e-6):
            raise ValueError(
                "family must be an exponential family in its statistic: its log_density is not η(θ) t(x) - A(θ)"
            )
        return eta, normaliser

    @functools.cached_property
    def _nodes(self) -> tuple[Array, Array]:
        """Records and weights that integrate, or sum, over the support: inside the bounds and in both tails."""
        low, high = self.support
        if self.discrete:
            first, last = math.ceil(self.lower), math.floor(self.upper)
            ends = ((math.ceil(low), first - 1), (first, last), (last + 1, high))
            pieces = [_whole_numbers(start, end) for start, end in ends if end >= start]
        else:
            pieces = [_panels(self.lower, self.upper)]
            if low < self.lower:
                finite = math.isfinite(low)
                pieces.append(_panels(low, self.lower) if finite else _half_line(self.lower, -self.width))
            if high > self.upper:
                finite = math.isfinite(high)
                pieces.append(_panels(self.upper, high) if finite else _half_line(self.upper, self.width))
        return np.concatenate([p[0] for p in pieces]), np.concatenate([p[1] for p in pieces])

    @property
    def width(self) -> float:
        """The distance of the bounds."""
        return self.upper - self.lower

    def _draw_parameter(self, prior: Any, statistics: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw theta by the conjugate step that was given."""
        return np.asarray(self.conjugate(prior, statistics[..., 0], n, rng))

    def _nearest_valid(self, statistics: Array, n: Array) -> Array:
        """Move the sum into n times the statistic's range over the support."""
        low, high = self.statistic_range
        size = np.asarray(n, dtype=float)[..., None]
        return np.clip(statistics, size * low, size * high)


def _set_bounds(family: Any, least: float | None = None) -> None:
    low, high = interval("(lower, upper)", (family.lower, family.upper))
    if least is not None and low < least:
        raise ValueError(f"lower must be at least {least:g}, got {low}")
    _require_moderate("(lower, upper)", (low, high))
    object.__setattr__(family, "lower", low)
    object.__setattr__(family, "upper", high)


def _require_moderate(name: str, ends: tuple[float, float]) -> None:
    """Raise unless every sum of records between the bounds is an ordinary float: else errors would tell of records."""
    low, high = ends
    if max(abs(low), abs(high)) > _LARGEST or high - low < _CLOSEST:
        raise ValueError(
            f"{name} must be at most {_LARGEST:g} in magnitude and at least {_CLOSEST:g} apart: rescale the records; "
            f"got ({low}, {high})"
        )


def _matrix(rows: list[list[Array]]) -> Array:
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _binomials(centre: Array, order: int) -> Array:
    """Return the matrix that turns covariances of powers about ``centre`` into those of powers about 0."""
    zero, powers = np.zeros_like(centre), range(1, order + 1)
    return _matrix([[math.comb(i, m) * centre ** (i - m) if m <= i else zero for m in powers] for i in powers])


def _about_zero(moments: list[Array], centre: Array, i: int) -> Array:
    return np.asarray(sum(math.comb(i, m) * centre ** (i - m) * moments[m] for m in range(1, i + 1)) + centre**i)


def _shifted(moments: list[Array], by: Array) -> list[Array]:
    """Turn partial moments of y into those of y + by."""
    if not np.any(by):
        return moments
    return [
        np.asarray(sum(math.comb(k, j) * by ** (k - j) * moments[j] for j in range(k + 1))) for k in range(len(moments))
    ]


def _scaled_gamma(k: int, t: Array) -> Array:
    """Return the integral of s^k e^-s over (0, t), divided by t^k; near 0 its limit t / (k+1)."""
    usual = np.maximum(t, 1e-8)
    return np.where(t < 1e-8, t / (k + 1), math.factorial(k) * special.gammainc(k + 1, usual) / usual**k)


def _poisson_partial(theta: Array, first: float, last: float) -> list[Array]:
    """Return E[x^k; first ≤ x ≤ last], k = 0 … 2, from E[x(x-1)…; first ≤ x ≤ last] = θ^k P(first-k ≤ x ≤ last-k)."""

    def probability(low: float, high: float) -> Array:  # by the smaller tail, so that little is subtracted
        above_low = special.pdtrc(low - 1, theta) if low > 0 else np.ones_like(theta)
        above_high = special.pdtrc(high, theta) if 0 <= high < math.inf else np.full_like(theta, float(high < 0))
        to_low = special.pdtr(low - 1, theta) if low > 0 else np.zeros_like(theta)
        to_high = special.pdtr(high, theta) if 0 <= high < math.inf else np.full_like(theta, float(high > 0))
        return np.where(theta < low, above_low - above_high, to_high - to_low)

    p0, p1, p2 = (probability(first - k, last - k) for k in range(3))
    return [p0, theta * p1, theta * (theta * p2 + p1)]


_FAR = 40.0  # standard normal densities beyond it are 0 in double precision


def _normal_partial(low: Array | None, high: Array | None) -> list[Array]:
    """Return E[z^k; low < z < high] for a standard normal z, k = 0 … 4; None is an infinite end.

    By parts, J_k = (k-1) J_(k-2) + low^(k-1) φ(low) - high^(k-1) φ(high).
    """
    ends = [None if end is None else np.clip(end, -_FAR, _FAR) for end in (low, high)]
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


def _legendre(low: float, high: float, count: int) -> tuple[Array, Array]:
    nodes, weights = _gauss(count)
    half = (high - low) / 2
    return (low + high) / 2 + half * nodes, half * weights


def _panels(low: float, high: float) -> tuple[Array, Array]:
    """Eight Gauss nodes in each of some forty panels, which halve towards both ends: densities pile up there."""
    small = 0.5 ** np.arange(4.0, 25.0)
    edges = low + (high - low) * np.unique(np.concatenate([np.linspace(0, 1, 9), small, 1 - small[:12]]))
    nodes, weights = _legendre(0.0, 1.0, 8)
    widths = np.diff(edges)[:, None]
    return (edges[:-1, None] + widths * nodes).ravel(), (widths * weights).ravel()


def _half_line(start: float, scale: float) -> tuple[Array, Array]:
    """Nodes and weights for an integral from ``start`` to infinity towards ``scale``: x = start + scale u/(1-u)."""
    u, weights = _legendre(0.0, 1.0, 200)
    return start + scale * u / (1 - u), abs(scale) * weights / (1 - u) ** 2


def _whole_numbers(first: int, last: float) -> tuple[Array, Array]:
    """Whole numbers from ``first`` to ``last``: 100 one by one, then, in the smooth tail, three of each longer block.

    Ends and middle of a block of 2h + 1 numbers sum cubics exactly if each end weighs (2h+1)(h+1)/6h.
    """
    x = list(np.arange(first, min(last, first + 99) + 1.0))
    weights = [1.0] * len(x)
    start = first + 100
    while start <= last and start - first < 10**8:
        half = int(min((start - first) // 12, (last - start) // 2))
        if half == 0:
            x, weights = [*x, float(start)], [*weights, 1.0]
        else:
            end = (2 * half + 1) * (half + 1) / (6 * half)
            x += [float(start), float(start + half), float(start + 2 * half)]
            weights += [end, 2 * half + 1 - 2 * end, end]
        start += 2 * half + 1
    return np.array(x), np.array(weights)
