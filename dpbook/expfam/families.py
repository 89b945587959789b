"""The families of the book: binomial, multinomial, exponential, Poisson and normal; what one of them is called, once.

Each says of itself what :class:`~dpbook.expfam.family.Family` asks: the statistics of a record, their moments given
the parameter, the conjugate step. Chapter 3 explains them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbook import sensitivity as exact
from dpbook._arrays import Array, project_to_simplex
from dpbook._validation import fraction, integer, interval
from dpbook.expfam.clipped_powers import (
    FAR,
    ClippedPowers,
    between,
    gauss_nodes,
    halving_edges,
    last_counts,
    matrix_of,
    normal_partial,
    poisson_partial,
    scaled_gamma,
    shifted,
)
from dpbook.expfam.family import Family, require_moderate
from dpbook.expfam.latent_sums import TableSums
from dpbook.expfam.negative_binomial import NegativeBinomial
from dpbook.expfam.noisy_count import after_noisy_count, after_randomized_response
from dpbook.expfam.one_parameter import BetaMixture, GridDensity, times_likelihood
from dpbook.expfam.table_counts import NoisyTable, draw_counts, draw_probabilities
from dpbook.expfam.whole_sums import MOST, WholeSum
from dpbook.priors import Beta, Dirichlet, Gamma, NormalInverseGamma, of_one_mean
from dpbook.release import Release
from dpbook.schema import Category

__all__ = [
    "FAMILIES",
    "Binomial",
    "Exponential",
    "Multinomial",
    "Normal",
    "Poisson",
    "family_of",
    "require_family",
]

_LOCAL = "randomized response"
_FEW_SUMS = 2048  # values of a sum of counts, up to which its law is computed by default
_FEW_RECORDS = 50  # up to which the records themselves are drawn by default
_EXACT = 100  # categories: with more, draws of a whole table take seconds


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
    bounds = (0.0, 1.0)
    bounded = True
    whole_numbers = True
    mechanisms = (*Family.mechanisms, _LOCAL)
    cautious_theta = 0.5  # the most pessimistic for the sampling error
    default_prior = Beta(1, 1)

    def check_records(self, records: Array) -> None:
        """Raise at what is neither 0 nor 1."""
        if not np.isin(records, (0.0, 1.0)).all():
            raise ValueError("data must hold 0 and 1 only: a value lies outside the domain")

    def check_parameter(self, theta: ArrayLike) -> Array:
        """Raise at what is no share."""
        share = super().check_parameter(theta)
        fraction("theta", share[0])
        return share

    def statistics(self, records: Array) -> Array:
        """Return the records."""
        return records

    def mean_and_covariance(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return theta and theta (1 - theta)."""
        return theta[..., None], (theta * (1 - theta))[..., None, None]

    def natural(self, theta: Array) -> tuple[Array, Array]:
        """Return the log odds of theta and -log(1 - theta)."""
        return np.asarray(special.logit(theta)), -np.log1p(-theta)

    def draw_parameter(self, prior: Beta, sums: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw from Beta(alpha + s, beta + n - s)."""
        count = sums[..., 0]
        return rng.beta(prior.alpha + count, prior.beta + n - count)

    def simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw binomial counts."""
        return np.asarray(rng.binomial(n.astype(np.int64), theta), dtype=float)[..., None]

    def updated(self, prior: Beta, total: float, n: int) -> Beta:
        """Return Beta(alpha + s, beta + n - s)."""
        return prior.updated(total, n)

    def methods(self, mechanism: str = "laplace") -> tuple[str, ...]:
        """Return the exact posterior first; it is all there is beside the naive one after randomised responses."""
        return ("exact", "naive") if mechanism == _LOCAL else ("exact", *super().methods(mechanism))

    def exact_density(self, release: Release, prior: Beta) -> BetaMixture | GridDensity:
        """Return the posterior of a noisy count or of randomised responses."""
        return (after_randomized_response if release.mechanism == _LOCAL else after_noisy_count)(release, prior)


@dataclass(frozen=True, repr=False)
class Multinomial(Family):
    """Records in one of k categories; the statistics are the k counts, of L1 sensitivity 2.

    Parameters
    ----------
    k : int
        The number of categories, at least 2; records are coded 0 … k-1. Not needed where there are labels.
    labels : sequence of str or numbers, or Category, optional
        What the categories are called, in order: records then hold these labels, a release carries them, and a
        posterior is labelled by them. A :class:`~dpbook.schema.Category` may have a label for all other values.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> expfam.Multinomial(3).sensitivity()
    2.0
    >>> rng, family = np.random.default_rng(1), expfam.Multinomial(labels=["north", "south"])
    >>> noisy = expfam.release(["south", "north", "south"], family, epsilon=1.0, rng=rng)
    >>> expfam.infer(noisy, expfam.Dirichlet([1, 1]), draws=40, method="naive", rng=rng).labels["theta"]
    ('north', 'south')

    Explained in :doc:`/book/exponential-families/naive-posterior`.
    """

    k: int = 0
    labels: Any = ()
    name = "multinomial"
    prior_type = Dirichlet
    inside_range = (0.0, 1.0)
    bounded = True
    whole_numbers = True

    def __post_init__(self) -> None:
        categories: tuple[Any, ...] = ()
        if isinstance(self.labels, Category) or np.size(self.labels):
            kind = self.labels if isinstance(self.labels, Category) else Category(self.labels)
            categories = kind.states
            object.__setattr__(self, "other", kind.other)
        labels = tuple(map(str, categories))
        if len(set(labels)) < len(labels):
            raise ValueError(f"labels must be different as text, got {categories!r}")
        k = integer("k", self.k if self.k or not categories else len(categories), least=2)
        if categories and k != len(categories):
            raise ValueError(f"k must be the number of labels, {len(categories)}, got {k}")
        public = {"labels": labels, "categories": categories, "bounds": (0.0, float(k - 1))}
        for name, value in {"k": k, "size": k, "parameters": k, **public}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Multinomial(labels={list(self.categories)})" if self.categories else f"Multinomial(k={self.k})"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The number of categories, and their labels where they have some."""
        return {"k": self.k, **({"labels": self.categories} if self.categories else {})}

    @property
    def free_directions(self) -> Array:
        """The directions in which the probabilities keep their sum."""
        return np.linalg.svd(np.eye(self.k) - 1 / self.k)[0][:, : self.k - 1]

    def check_records(self, records: Array) -> None:
        """Raise at what is no code."""
        if not np.isin(records, np.arange(self.k)).all():
            raise ValueError(f"data must hold codes 0 to {self.k - 1}: a value lies outside the domain")

    def check_parameter(self, theta: ArrayLike) -> Array:
        """Raise at what are no probabilities."""
        guess = super().check_parameter(theta)
        if guess.min() <= 0 or abs(guess.sum() - 1) > 1e-9:
            raise ValueError(f"theta must hold probabilities greater than 0 that add up to 1, got {guess}")
        return guess

    def check_prior(self, prior: Any) -> None:
        """Raise unless there is a pseudo-count for each category."""
        super().check_prior(prior)
        if np.size(prior.alpha) != self.k:
            raise ValueError(f"prior must have {self.k} pseudo-counts, got {np.size(prior.alpha)}")

    def statistics(self, records: Array) -> Array:
        """Return one indicator for each category."""
        return np.asarray(records == np.arange(self.k), dtype=float)

    def largest_change(self, outside: str, norm: int) -> float:
        """Return 2, or √2 in the L2 norm: one count falls by one, another rises."""
        return exact.histogram(tables=1, norm=norm)

    def mean_and_covariance(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return theta and diag(theta) - theta thetaᵀ."""
        return theta, np.eye(self.k) * theta[..., None] - theta[..., :, None] * theta[..., None, :]

    def released_moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return theta and theta (1 - theta), without the matrix."""
        return theta, theta * (1 - theta)

    def law_of_sums(self, theta: Array, n: Array, outside: str) -> TableSums:
        """Return the law of a table, which needs no matrix."""
        return TableSums(self, theta, n)

    def draw_parameter(self, prior: Dirichlet, sums: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw from Dirichlet(alpha + counts), as normalised gamma variables."""
        gammas = rng.standard_gamma(np.asarray(prior.alpha) + sums)
        gammas = np.maximum(gammas, np.finfo(float).tiny)
        return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))

    def methods(self, mechanism: str = "laplace") -> tuple[str, ...]:
        """Return the exact posterior first, up to a hundred categories; beyond, it is slow, and Gibbs is first."""
        return ("exact", "gibbs", "naive") if self.k <= _EXACT else ("gibbs", "exact", "naive")

    def exact_draws(self, release: Release, prior: Dirichlet, count: int, rng: np.random.Generator) -> Array:
        """Draw whole tables behind the noisy one, then the probabilities that each suggests: independent draws."""
        alpha = np.asarray(prior.alpha, dtype=float)
        return draw_probabilities(draw_counts(NoisyTable.of(release, "sum", alpha), count, rng), alpha, rng)

    def simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw multinomial counts."""
        return np.asarray(rng.multinomial(n.astype(np.int64), theta), dtype=float)

    def nearest_valid(self, sums: Array, n: Array) -> Array:
        """Project the counts on the simplex of non-negative counts with total n."""
        return project_to_simplex(sums, n)

    def prior_information(self, prior: Dirichlet) -> Array:
        """Return the precision of the probabilities, their sum fixed."""
        mean, free = prior.mean, self.free_directions
        cov = (np.diag(mean) - np.outer(mean, mean)) / (np.sum(prior.alpha) + 1)
        return np.asarray(np.linalg.inv(free.T @ cov @ free))


@dataclass(frozen=True)
class Exponential(ClippedPowers):
    """Waiting times with rate theta; the statistic is their sum, of records clipped or redacted to [lower, upper].

    Explained in :doc:`/book/exponential-families/unbounded-statistics`.

    Parameters
    ----------
    lower, upper : float
        Public bounds, 0 ≤ lower < upper.

    Examples
    --------
    >>> from dpbook.expfam import Exponential
    >>> Exponential(1, 5).sensitivity("clip"), Exponential(1, 5).sensitivity("redact")
    (4.0, 5.0)
    """

    lower: float
    upper: float
    name = "exponential"
    prior_type = Gamma
    statistic_range = (0.0, math.inf)

    def __post_init__(self) -> None:
        self.set_bounds(least=0.0)

    def check_parameter(self, theta: ArrayLike) -> Array:
        """Raise at what is no rate."""
        return _above_zero(super().check_parameter(theta))

    def statistics(self, records: Array) -> Array:
        """Return the records, checked not to be negative."""
        if (records < 0).any():
            raise ValueError("data must hold numbers from 0 on: a value lies outside the domain")
        return super().statistics(records)

    def full_moments(self, theta: Array) -> tuple[Array, Array]:
        """Return 1/theta and 1/theta²."""
        with np.errstate(divide="ignore", over="ignore"):  # tiny rates have an infinite variance
            return (1 / theta)[..., None], (1 / theta**2)[..., None, None]

    def partial_moments(self, theta: Array, centre: Array) -> tuple[list[Array], list[Array], list[Array]]:
        """By lack of memory every region is an exponential that starts at its left end: nothing is subtracted."""
        low, high, width = self.lower, self.upper, self.upper - self.lower
        below = [low**k * scaled_gamma(k, theta * low) for k in range(3)]
        inside = [np.exp(-theta * low) * width**k * scaled_gamma(k, theta * width) for k in range(3)]
        with np.errstate(divide="ignore", over="ignore"):
            above = [np.exp(-theta * high) * math.factorial(k) / theta**k for k in range(3)]
        return shifted(below, -centre), shifted(inside, low - centre), shifted(above, high - centre)

    @property
    def check_edges(self) -> tuple[float, ...]:
        """Edges that halve the distance to the lower bound."""
        return halving_edges(self.lower, self.upper, whole=False)

    def cell_probabilities(self, theta: Array, edges: Array) -> Array:
        """Return differences of 1 - exp(-theta x)."""
        return between(-np.expm1(-theta[..., None] * edges))

    def natural(self, theta: Array) -> tuple[Array, Array]:
        """Return -theta and -log theta."""
        return -theta, -np.log(theta)

    def updated(self, prior: Gamma, total: float, n: int) -> Gamma:
        """Return Gamma(shape + n, rate + s)."""
        return Gamma(prior.shape + n, prior.rate + total)

    def draw_parameter(self, prior: Gamma, sums: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw from Gamma(shape + n, rate + s)."""
        return np.asarray(rng.standard_gamma(prior.shape + n, sums.shape[:-1]) / (prior.rate + sums[..., 0]))

    def simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw a gamma variable of shape n."""
        return np.asarray(rng.standard_gamma(n, theta.shape) / theta)[..., None]

    def methods(self, mechanism: str = "laplace") -> tuple[str, ...]:
        """Return latent records, too: exact, for few of them."""
        return ("collapsed", "records", "gibbs", "naive")

    def default_method(self, release: Release) -> str:
        """Return latent records where they are few: there sums are not normal."""
        return "records" if release.n <= _FEW_RECORDS else "collapsed"

    def draw_records(self, theta: Array, n: int, rng: np.random.Generator) -> Array:
        """Draw exponential records."""
        return np.asarray(rng.standard_exponential((*theta.shape, n)) / theta[..., None])

    def stretched(
        self, prior: Gamma, theta: Array, records: Array, rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """Move log theta; the records shrink as it grows."""
        log_step = np.exp(rng.uniform(-4, 0.5, theta.shape)) * rng.normal(size=theta.shape)
        moved = theta * np.exp(log_step)
        log_ratio = prior.log_density(moved) - prior.log_density(theta) + log_step
        return moved, records * np.exp(-log_step)[..., None], log_ratio


@dataclass(frozen=True)
class Poisson(ClippedPowers):
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
    instead = "NegativeBinomial"
    statistic_range = (0.0, math.inf)

    def __post_init__(self) -> None:
        self.set_bounds(least=0.0)
        object.__setattr__(self, "whole_numbers", self.lower.is_integer() and self.upper.is_integer())

    def check_records(self, records: Array) -> None:
        """Raise at what is no count."""
        if ((records < 0) | (records != np.rint(records))).any():
            raise ValueError("data must hold whole numbers from 0 on: a value lies outside the domain")

    def check_parameter(self, theta: ArrayLike) -> Array:
        """Raise at what is no mean of counts."""
        return _above_zero(super().check_parameter(theta))

    def full_moments(self, theta: Array) -> tuple[Array, Array]:
        """Return theta twice."""
        return theta[..., None], theta[..., None, None]

    def partial_moments(self, theta: Array, centre: Array) -> tuple[list[Array], list[Array], list[Array]]:
        """Sum over the counts inside where they are few; the tails have closed forms."""
        first, last = math.ceil(self.lower), math.floor(self.upper)
        below = poisson_partial(theta, -math.inf, first - 1)
        above = poisson_partial(theta, last + 1, math.inf)
        if last - first > 64:
            inside = shifted(poisson_partial(theta, first, last), -centre)
        else:
            x = np.arange(first, last + 1.0)
            mass = np.exp(special.xlogy(x, theta[..., None]) - theta[..., None] - special.gammaln(x + 1))
            gap = x - centre[..., None]
            inside = [mass.sum(axis=-1), (mass * gap).sum(axis=-1), (mass * gap**2).sum(axis=-1)]
        return shifted(below, -centre), inside, shifted(above, -centre)

    @property
    def check_edges(self) -> tuple[float, ...]:
        """Whole edges that halve the distance to the lower bound."""
        return halving_edges(self.lower, self.upper, whole=True)

    def cell_probabilities(self, theta: Array, edges: Array) -> Array:
        """Return differences of the distribution function."""
        last = last_counts(edges)
        return between(np.where(last < 0, 0.0, special.pdtr(np.maximum(last, 0.0), theta[..., None])))

    def natural(self, theta: Array) -> tuple[Array, Array]:
        """Return log theta and theta."""
        return np.log(theta), theta

    def updated(self, prior: Gamma, total: float, n: int) -> Gamma:
        """Return Gamma(shape + s, rate + n)."""
        return Gamma(prior.shape + total, prior.rate + n)

    def draw_parameter(self, prior: Gamma, sums: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw from Gamma(shape + s, rate + n)."""
        return np.asarray(rng.standard_gamma(prior.shape + sums[..., 0]) / (prior.rate + n))

    def simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw a Poisson variable of mean n theta."""
        return np.asarray(rng.poisson(np.minimum(n * theta, 1e18)), dtype=float)[..., None]

    def methods(self, mechanism: str = "laplace") -> tuple[str, ...]:
        """Return the exact posterior, too, where sums are whole numbers."""
        return ("collapsed", "exact", "gibbs", "naive") if self.whole_numbers else super().methods(mechanism)

    def default_method(self, release: Release) -> str:
        """Return the exact posterior where the sum takes few values."""
        return "exact" if self.whole_numbers and release.n * self._width(release) <= _FEW_SUMS else "collapsed"

    def exact_density(self, release: Release, prior: Gamma) -> BetaMixture | GridDensity:
        """Return the posterior by convolution."""
        if release.n * self._width(release) > MOST:
            raise ValueError(f"method must not be 'exact' where a sum takes more than {MOST} values: use 'collapsed'")
        return times_likelihood(prior, WholeSum(release, self.lower, self.upper))

    def _width(self, release: Release) -> float:
        return self.upper - (self.lower if release.settings.get("outside", "clip") == "clip" else 0.0)


def _above_zero(theta: Array) -> Array:
    if theta[0] <= 0:
        raise ValueError(f"theta must be greater than 0, got {theta[0]}")
    return theta


@dataclass(frozen=True)
class Normal(ClippedPowers):
    """Normal records, mean and variance unknown; theta = (mean, variance).

    Records are centred and scaled to [-1, 1] by the public bounds before their sum and sum of squares are released, so
    that nothing depends on units; the prior is mapped in, and draws are mapped back. Explained in
    :doc:`/book/exponential-families/unbounded-statistics`.

    Parameters
    ----------
    lower, upper : float
        Public bounds, lower < upper.

    Examples
    --------
    >>> from dpbook.expfam import Normal
    >>> Normal(0, 200).sensitivity("clip")
    2.25
    """

    lower: float
    upper: float
    name = "normal"
    prior_type = NormalInverseGamma
    inside_range = (-1.0, 1.0)
    parameters = 2
    size = 2
    labels = ("mean", "variance")

    def __post_init__(self) -> None:
        self.set_bounds()

    @property
    def centre(self) -> float:
        """The middle of the bounds."""
        return (self.lower + self.upper) / 2

    @property
    def half_width(self) -> float:
        """Half the distance of the bounds."""
        return (self.upper - self.lower) / 2

    def check_parameter(self, theta: ArrayLike) -> Array:
        """Raise at what is no mean and variance."""
        guess = super().check_parameter(theta)
        if guess[1] <= 0:
            raise ValueError(f"theta must have a variance greater than 0 as its second entry, got {guess[1]}")
        return guess

    def check_prior(self, prior: Any) -> None:
        """Raise unless the prior is of one mean."""
        super().check_prior(prior)
        of_one_mean(prior, "prior")

    def standardised(self, records: Array) -> Array:
        """Return the records in half-widths from the middle of the bounds."""
        with np.errstate(over="ignore"):  # a record may lie more than the largest float of half-widths away
            return (records - self.centre) / self.half_width

    def largest_change(self, outside: str, norm: int) -> float:
        """Return the largest change of x and x²; a redacted record has zeros, at the distance ‖t(x)‖ from others."""
        within = exact.second_moments([-1.0], [1.0], intercept=True, norm=norm)
        to_zero = float(np.linalg.norm([1.0, 1.0], ord=norm))
        return within if outside == "clip" else max(within, to_zero)

    def _to_standard(self, theta: Array) -> tuple[Array, Array]:
        """Return mean and variance in the released coordinates."""
        return (theta[..., 0] - self.centre) / self.half_width, theta[..., 1] / self.half_width**2

    def full_moments(self, theta: Array) -> tuple[Array, Array]:
        """Return those of x and x²."""
        mean, variance = self._to_standard(theta)
        cross = 2 * mean * variance
        cov = matrix_of([[variance, cross], [cross, 2 * variance**2 + 4 * mean**2 * variance]])
        return np.stack([mean, mean**2 + variance], axis=-1), cov

    def partial_moments(self, theta: Array, centre: Array) -> tuple[list[Array], list[Array], list[Array]]:
        """Return them by the recursion for the standard normal, or by quadrature where it would cancel."""
        mean, variance = self._to_standard(theta)
        sd = np.sqrt(variance)
        low, high = ((edge - mean) / sd for edge in self.inside_range)
        parts = (normal_partial(None, low), normal_partial(low, high), normal_partial(high, None))
        below, inside, above = (shifted([sd**k * each for k, each in enumerate(part)], mean - centre) for part in parts)
        close = sd > 2.0
        if not close.any():
            return below, inside, above
        # Between bounds less than an sd apart the recursion would cancel; there a few Gauss nodes are exact.
        nodes, weights = gauss_nodes(*self.inside_range, 16)
        z = np.clip((nodes - mean[..., None]) / sd[..., None], -FAR, FAR)
        mass = weights * np.exp(-0.5 * z**2) / (math.sqrt(2 * math.pi) * sd[..., None])
        gap = nodes - centre[..., None]
        inside = [np.where(close, (mass * gap**k).sum(axis=-1), each) for k, each in enumerate(inside)]
        return below, inside, above

    def cell_probabilities(self, theta: Array, edges: Array) -> Array:
        """Return differences of the normal distribution function."""
        return between(special.ndtr((edges - theta[..., :1]) / np.sqrt(theta[..., 1:])))

    def draw_parameter(self, prior: NormalInverseGamma, sums: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw variance, then mean, from the conjugate posterior, in the data's own units."""
        mean, precision = of_one_mean(prior, "prior")
        prior_mean = (mean - self.centre) / self.half_width
        prior_rate = prior.rate / self.half_width**2
        total, squares = sums[..., 0], sums[..., 1]
        strength = precision + n
        centre = (precision * prior_mean + total) / strength
        scatter = np.maximum(squares - total**2 / n, 0.0) + precision * n / strength * (total / n - prior_mean) ** 2
        variance = (prior_rate + scatter / 2) / rng.standard_gamma(prior.shape + np.asarray(n) / 2, total.shape)
        drawn = rng.normal(centre, np.sqrt(variance / strength))
        return np.stack([self.centre + self.half_width * drawn, self.half_width**2 * variance], axis=-1)

    def simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw a normal sum and a chi-squared scatter, in the released coordinates."""
        mean, variance = self._to_standard(theta)
        total = n * mean + np.sqrt(n * variance) * rng.normal(size=mean.shape)
        scatter = 2 * variance * rng.standard_gamma(np.maximum(n - 1, 0) / 2, mean.shape)
        return np.stack([total, scatter + total**2 / n], axis=-1)

    def methods(self, mechanism: str = "laplace") -> tuple[str, ...]:
        """Return latent records, too: exact, for few of them."""
        return ("gibbs", "records", "naive")

    def default_method(self, release: Release) -> str:
        """Return latent records where they are few: there sums are not normal, and Gibbs is off."""
        return "records" if release.n <= _FEW_RECORDS else "gibbs"

    def draw_records(self, theta: Array, n: int, rng: np.random.Generator) -> Array:
        """Draw normal records."""
        mean, sd = theta[..., :1], np.sqrt(theta[..., 1:])
        return np.asarray(mean + sd * rng.normal(size=(*theta.shape[:-1], n)))

    def stretched(
        self, prior: NormalInverseGamma, theta: Array, records: Array, rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """Move mean, in standard deviations, and log standard deviation; records keep their standardised values."""
        mean, sd = theta[..., 0], np.sqrt(theta[..., 1])
        step = np.exp(rng.uniform(-4, 0.5, (2, *mean.shape))) * rng.normal(size=(2, *mean.shape))
        new_sd = sd * np.exp(step[1])
        # The mean moves by the geometric mean of both standard deviations: as likely there as back.
        new_mean = mean + np.sqrt(sd * new_sd) * step[0]
        moved = new_mean[..., None] + (records - mean[..., None]) * (new_sd / sd)[..., None]
        new = np.stack([new_mean, new_sd**2], axis=-1)
        return new, moved, self._log_prior(prior, new) - self._log_prior(prior, theta)

    @staticmethod
    def _log_prior(prior: NormalInverseGamma, theta: Array) -> Array:
        """Return the log prior density of mean and log standard deviation, up to a constant."""
        centre, precision = of_one_mean(prior, "prior")
        mean, variance = theta[..., 0], theta[..., 1]
        scaled = (prior.rate + 0.5 * precision * (mean - centre) ** 2) / variance
        return np.asarray(-(prior.shape + 0.5) * np.log(variance) - scaled)

    def nearest_released(self, sums: Array, n: Array) -> Array:
        """Keep the mean in [-1, 1] and the mean square between its square and 1, in the released coordinates."""
        total = np.clip(sums[..., 0], -n, n)
        return np.stack([total, np.clip(sums[..., 1], total**2 / n, n)], axis=-1)

    def nearest_valid(self, sums: Array, n: Array) -> Array:
        """Keep the centred scatter at 0 or above; the mean stays."""
        total, squares = sums[..., 0], sums[..., 1]
        return np.stack([total, np.maximum(squares, total**2 / n)], axis=-1)

    def prior_information(self, prior: NormalInverseGamma) -> Array:
        """Return the precisions of mean and variance, 0 where the prior's own variance is infinite."""
        variance = prior.rate / (prior.shape - 1) if prior.shape > 1 else math.inf
        of_variance = variance**2 / (prior.shape - 2) if prior.shape > 2 else math.inf
        return np.diag([of_one_mean(prior, "prior")[1] / variance, 1 / of_variance])


FAMILIES: Mapping[str, type[Family]] = {
    each.name: each for each in (Binomial, Multinomial, Exponential, Poisson, Normal, NegativeBinomial)
}


def family_of(release: Release) -> Family:
    """Return the family that a release of one of these models carries in its settings."""
    if release.model not in FAMILIES:
        raise ValueError(f"release is of model {release.model!r}: pass its family, or use another infer function")
    made = FAMILIES[release.model]
    names = [field.name for field in fields(made)]  # type: ignore[arg-type]
    return made(**{name: release.settings[name] for name in names if name in release.settings})


def require_family(family: Any) -> None:
    """Raise unless this is a family with moderate bounds, under a name that no family here of another type has."""
    if not isinstance(family, Family):  # whose text is not shown: it may be records, where arguments were swapped
        kind = type(family).__name__
        raise TypeError(
            f"family must be a Family such as Binomial() or Exponential(0, 10), got an object of type {kind}"
        )
    if not isinstance(family.name, str) or not family.name or not isinstance(family, FAMILIES.get(family.name, Family)):
        raise ValueError(f"family must have a name other than {', '.join(FAMILIES)}, got {family.name!r}")
    for what in ("bounds", "inside_range"):
        require_moderate(f"family.{what}", interval(f"family.{what}", getattr(family, what)))
