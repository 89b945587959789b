"""What a release and an inference need to know of a model: :class:`Family`, the base of every family, yours included.

A *bounded* family releases its sufficient statistics as they are. An *unbounded* one releases statistics of records
that were clipped to public bounds, or of those inside the bounds only (redacted), and then the released sum and the
sufficient statistic are two correlated quantities, of which :meth:`Family.moments` gives mean and covariance.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbook import sensitivity as exact
from dpbook._arrays import Array
from dpbook._validation import finite_array, one_of
from dpbook.expfam.latent_sums import NormalSums, SumsLaw
from dpbook.expfam.one_parameter import BetaMixture, GridDensity
from dpbook.release import Release

__all__ = ["OUTSIDE", "Family", "require_moderate"]

OUTSIDE = ("clip", "redact")
_LARGEST, _CLOSEST = 1e100, 1e-100  # of bounds: beyond, sums and squares of some records would leave the floats


class Family(ABC):
    """A model of one record. Every family here is one; subclass it to write a family of your own.

    A record is a number x, and the likelihood of the parameter theta depends on n records only through the sums of
    their statistics t(x). A family of your own must have three attributes, ``name``, ``prior_type`` and ``bounds``, and
    three methods: :meth:`statistics`, :meth:`mean_and_covariance` and :meth:`draw_parameter`. With these it can be
    released and inferred, by the collapsed posterior and by Gibbs, and previewed. The rest has defaults, which are
    right for one parameter and one statistic, the record itself. Override :attr:`inside_range` if t(x) is not x,
    :attr:`statistic_range` if t has limits, :meth:`check_records` if not every number is a record,
    :meth:`check_parameter` if not every number is a parameter, :meth:`simulate_sums` to make Gibbs mix where noise
    drowns the sums, :meth:`cell_probabilities` so that a release can check the family, :meth:`draw_records` and
    :meth:`stretched` for the method "records", :meth:`natural` for posterior sampling, and :attr:`settings` if there
    are public numbers beside the bounds. A family of your own cannot travel in a release: pass it to
    ``infer(…, family=…)``.

    *Shapes.* Arguments of methods are batched: theta is (...) for one parameter and (..., p) for several, and may be
    extreme; sums are (..., size); numbers of records n broadcast with the batch. ``outside`` is what becomes of
    records outside the bounds of an unbounded family, ``"clip"`` or ``"redact"``.

    *Privacy.* A release clips the statistics of each record to :attr:`inside_range` (and 0, where records are
    redacted), and with the default :meth:`largest_change` adds noise for that range. So it is private whatever
    :meth:`statistics` computes, as long as each row depends on its own record alone; if you override
    :meth:`largest_change`, the proof is yours. Explained in :doc:`/book/exponential-families/unbounded-statistics`.

    Attributes
    ----------
    name : str
        The model's name in a release.
    prior_type : type
        Of its conjugate priors. A prior has ``draw(shape, rng)`` and, for one parameter, ``log_density(theta)`` and
        ``support``; previews also ask for ``variance``.
    bounds : (low, high)
        The public bounds of a record.
    size : int, default 1
        How many statistics a record has.
    parameters : int, default 1
        How many numbers theta has; for 1, theta has no axis of its own.
    bounded : bool, default False
        Whether the sufficient statistics themselves are released, because records cannot lie outside the bounds.
    whole_numbers : bool, default False
        Whether released statistics are whole numbers; a release then rounds them to such, and nothing is lost.
    labels : tuple of str, default ()
        What the components of theta are called.
    categories : tuple, default ()
        The labels that records hold instead of numbers, in the order of their codes 0, 1, …
    other : optional
        The one of these labels that every unknown one counts as; without it an unknown label raises.
    mechanisms : tuple of str
        The mechanisms whose releases it can be inferred from.
    instead : str, default "another family"
        What to use where a check finds that the family does not fit, beside wider bounds and :func:`release_mean`.
    cautious_theta : optional
        The guess at theta that :func:`preview` takes where none is given.
    default_prior : optional
        The prior that :func:`preview` and :func:`infer` take where none is given.

    Examples
    --------
    Waiting times with a known start at 1: what is beyond 1 is exponential with rate theta.

    >>> import numpy as np
    >>> from dpbook import expfam
    >>> class Delayed(expfam.Family):
    ...     name, prior_type = "delayed", expfam.Gamma
    ...     statistic_range = (0.0, np.inf)
    ...     def __init__(self, upper):
    ...         self.bounds, self.beyond = (1.0, upper), expfam.Exponential(0.0, upper - 1.0)
    ...     @property
    ...     def inside_range(self):
    ...         return (0.0, self.bounds[1] - 1.0)
    ...     def statistics(self, records):
    ...         return records - 1.0
    ...     def mean_and_covariance(self, theta, outside):
    ...         return self.beyond.mean_and_covariance(theta, outside)
    ...     def draw_parameter(self, prior, sums, n, rng):
    ...         return rng.standard_gamma(prior.shape + n, sums.shape[:-1]) / (prior.rate + sums[..., 0])
    >>> rng, family = np.random.default_rng(1), Delayed(5.0)
    >>> noisy = expfam.release(1 + rng.exponential(0.5, 400), family, epsilon=1.0, rng=rng)
    >>> posterior = expfam.infer(noisy, expfam.Gamma(2, 1), family=family, rng=rng)
    >>> bool(abs(posterior.mean("theta") - 2) < 0.3)
    True

    What a family is asked, and what the exponential answers:

    >>> waits, prior = expfam.Exponential(0.0, 2.0), expfam.Gamma(2, 1)
    >>> records, theta, n = np.array([[0.5], [3.0]]), np.array([1.0, 2.0]), np.array(10.0)
    >>> waits.check_records(records), waits.check_prior(prior), waits.check_parameter(1.5)
    (None, None, array([1.5]))
    >>> waits.statistics(records).ravel(), waits.released(records, "clip").ravel(), waits.largest_change("clip", 1)
    (array([0.5, 3. ]), array([0.5, 2. ]), 2.0)
    >>> mean, variance = waits.released_moments(theta, "clip")
    >>> mean.shape, variance.shape, waits.natural(theta)[0]
    ((2, 1), (2, 1), array([-1., -2.]))
    >>> sums = waits.simulate_sums(theta, n, rng)
    >>> waits.draw_parameter(prior, sums, n, rng).shape, waits.nearest_valid(-sums, n).ravel()
    ((2,), array([0., 0.]))
    >>> law, noise = waits.law_of_sums(theta, n, "clip"), np.ones((2, 1))
    >>> law.log_density(sums, noise).shape, waits.nearest_released(sums + 100, n).ravel()
    ((2,), array([20., 20.]))
    >>> waits.methods(), waits.updated(prior, 3.5, 2), waits.prior_information(prior)
    (('collapsed', 'records', 'gibbs', 'naive'), Gamma(shape=4.0, rate=4.5), array([[0.5]]))
    >>> waits.sensitivity("clip"), waits.moments(1.0)[0].round(3)
    (2.0, array([0.865, 1.   ]))
    >>> count = expfam.release([0, 1, 1], expfam.Binomial(), epsilon=1.0, rng=rng)
    >>> expfam.Binomial().exact_density(count, expfam.Beta(1, 1)).weights.size
    4
    >>> expfam.Binomial().exact_draws(count, expfam.Beta(1, 1), 5, rng).shape, expfam.Binomial().default_method(count)
    ((5,), 'exact')
    >>> waits.cell_probabilities(theta, np.array([0.0, 1.0, 2.0])).shape
    (2, 4)
    >>> made_up = waits.draw_records(theta, 3, rng)
    >>> made_up.shape, waits.stretched(prior, theta, made_up, rng)[1].shape
    ((2, 3), (2, 3))
    """

    name: str
    prior_type: Any
    bounds: tuple[float, float]
    size: int = 1
    parameters: int = 1
    bounded: bool = False
    whole_numbers: bool = False
    labels: tuple[str, ...] = ()
    categories: tuple[Any, ...] = ()
    other: Any = None
    mechanisms: tuple[str, ...] = ("laplace", "gaussian")
    instead: str = "another family"
    cautious_theta: Any = None
    default_prior: Any = None

    # What a family must say

    @abstractmethod
    def statistics(self, records: Array) -> Array:
        """Return the sufficient statistics (rows, size) of ``records`` (rows, 1), neither clipped nor redacted.

        Row i must come from record i alone.
        """

    @abstractmethod
    def mean_and_covariance(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return what :meth:`moments` says of ``theta`` and ``outside``, which it has checked."""

    @abstractmethod
    def draw_parameter(self, prior: Any, sums: Array, n: Array, rng: np.random.Generator) -> Array:
        """Return draws of theta given the ``prior`` and exact ``sums`` of ``n`` records, by ``rng``: conjugacy."""

    # What it may say: ranges and domain

    @property
    def settings(self) -> Mapping[str, Any]:
        """Public numbers, beside the bounds, that a release carries; those of the family of ``infer`` must agree."""
        return {}

    @property
    def inside_range(self) -> tuple[float, float]:
        """The range of each released statistic of a record inside the bounds; by default the bounds."""
        return self.bounds

    @property
    def statistic_range(self) -> tuple[float, float]:
        """What one record can add to a sufficient statistic; by default anything, if the family is unbounded."""
        return self.released_range if self.bounded else (-math.inf, math.inf)

    @property
    def magnitude(self) -> float:
        """The largest absolute value of a released statistic."""
        return max(abs(end) for end in self.inside_range)

    @property
    def released_range(self) -> tuple[float, float]:
        """What one record can add to a released sum; zero is in it, since a redacted record adds nothing."""
        return min(self.inside_range[0], 0.0), max(self.inside_range[1], 0.0)

    def check_records(self, records: Array) -> None:
        """Raise where one of the ``records`` lies outside a discrete domain; only the curator may see that error."""
        return

    def check_parameter(self, theta: ArrayLike) -> Array:
        """Return one guess ``theta`` as an array (parameters,); raise where it is no parameter."""
        entries = np.atleast_1d(finite_array("theta", theta))
        if entries.shape != (self.parameters,):
            raise ValueError(f"theta must have {self.parameters} entries for {self!r}, got shape {entries.shape}")
        return entries

    def check_prior(self, prior: Any) -> None:
        """Raise unless the ``prior`` is one of the family's."""
        if not isinstance(prior, self.prior_type):
            raise TypeError(f"prior must be a {self.prior_type.__name__} for {self!r}, got {prior!r}")

    # What it may say: releases

    def released(self, records: Array, outside: str) -> Array:
        """Return the statistics (rows, size) of each of the ``records`` that are summed and released.

        By default those of the clipped record; where ``outside`` says to redact, those of the record inside the bounds
        and zeros elsewhere. Row i must come from record i alone.
        """
        self.check_records(records)
        if self.bounded:
            return self.statistics(records)
        low, high = self.bounds
        values = self.statistics(np.clip(records, low, high))
        return values if outside == "clip" else np.where((records >= low) & (records <= high), values, 0.0)

    def sensitivity(self, outside: str = "clip", norm: int = 1) -> float:
        """Return the exact sensitivity of the released sums (replace-one neighbours, n public).

        ``norm`` 1 is for Laplace noise, 2 for Gaussian noise; ``outside`` is ``"clip"`` or ``"redact"``. Explained in
        :doc:`/book/reference/sensitivities`.
        """
        if norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {norm!r}")
        return self.largest_change(one_of("outside", outside, OUTSIDE), norm)

    def largest_change(self, outside: str, norm: int) -> float:
        """Return what :meth:`sensitivity` of ``outside`` and ``norm`` says; by default the norm of the ranges."""
        low, high = self.inside_range if outside == "clip" else self.released_range
        return exact.bounded_sum([low] * self.size, [high] * self.size, norm=norm)

    @property
    def check_edges(self) -> tuple[float, ...]:
        """Edges of the bins in which ``release(…, check=…)`` counts records; by default eight of equal width."""
        return tuple(np.linspace(*self.bounds, 9).tolist())

    # What it may say: the law of the sums

    def cell_probabilities(self, theta: Array, edges: Array) -> Array | None:
        """Return the probabilities given ``theta`` of the cells around ``edges``, (..., edges + 1); None if not told.

        The first cell lies below the edges, the last above; bins are closed on the left, the last one on both sides.
        """
        return None

    def moments(self, theta: ArrayLike, outside: str = "clip") -> tuple[Array, Array]:
        """Return mean and covariance of one record's statistics given ``theta`` and ``outside``.

        Bounded families: of the k sufficient statistics, (..., k) and (..., k, k). Unbounded ones: of the released
        statistics followed by the sufficient ones, (..., 2k) and (..., 2k, 2k).
        """
        values = finite_array("theta", theta)
        if self.parameters > 1 and values.shape[-1:] != (self.parameters,):
            raise ValueError(f"theta must have a last axis of {self.parameters} parameters, got shape {values.shape}")
        return self.mean_and_covariance(values, one_of("outside", outside, OUTSIDE))

    def released_moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and variance of each released statistic given ``theta`` and ``outside``, both (..., size).

        Override it where that is faster than by way of :meth:`mean_and_covariance`.
        """
        mean, cov = self.mean_and_covariance(theta, outside)
        k = self.size
        return mean[..., :k], np.maximum(np.diagonal(cov, axis1=-2, axis2=-1)[..., :k], 0.0)

    def law_of_sums(self, theta: Array, n: Array, outside: str) -> SumsLaw:
        """Return the law of released and sufficient sums of ``n`` records given ``theta`` and ``outside``.

        By default it is normal with these moments. A law has ``log_density(noisy, noise)``, the log density of noisy
        sums given the noise variances; ``draw(noisy, noise, rng)``, draws of released and sufficient sums given both;
        and ``switched(accepted, other)``, the other law where it was accepted and this one elsewhere.
        """
        return NormalSums(self, *self.mean_and_covariance(theta, outside), n)

    def simulate_sums(self, theta: Array, n: Array, rng: np.random.Generator) -> Array | None:
        """Return the sufficient sums of ``n`` records made up from ``theta`` by ``rng``, exactly; None where it cannot.

        With it Gibbs leaps, without it wide noise slows it.
        """
        return None

    def draw_records(self, theta: Array, n: int, rng: np.random.Generator) -> Array:
        """Return ``n`` records for each of the parameters ``theta`` (B, ...), (B, n), by ``rng``: for ``"records"``."""
        raise TypeError(f"{type(self).__name__} does not say how to draw records")

    def stretched(
        self, prior: Any, theta: Array, records: Array, rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """Return moved parameters, the ``records`` (B, n) that they make of the same innovations, log prior ratios.

        For ``"records"``, where parameters and records hold each other fast; by default nothing moves. The ratio is
        that of the ``prior`` densities in the coordinates in which ``rng`` moved ``theta`` evenly.
        """
        return theta, records, np.zeros(len(records))

    def nearest_valid(self, sums: Array, n: Array) -> Array:
        """Return the sums of sufficient statistics nearest to ``sums`` that ``n`` records could have."""
        return _within(sums, n, self.statistic_range)

    def nearest_released(self, sums: Array, n: Array) -> Array:
        """Return the released sums nearest to ``sums`` that ``n`` records could have."""
        return _within(sums, n, self.released_range)

    # What it may say: the posterior

    def default_method(self, release: Release) -> str:
        """Return the method of :func:`infer` for a ``release`` where none is named; by default the first."""
        return self.methods(release.mechanism)[0]

    def methods(self, mechanism: str = "laplace") -> tuple[str, ...]:
        """Return the methods of :func:`infer` for releases by ``mechanism``, that for large n first."""
        return ("collapsed", "gibbs", "naive") if self.parameters == 1 else ("gibbs", "naive")

    def natural(self, theta: Array) -> tuple[Array, Array]:
        """Return η and A of a one-parameter family at ``theta``: n records with sum s have log likelihood η s - n A."""
        raise TypeError(f"{type(self).__name__} has no one-dimensional likelihood")

    def updated(self, prior: Any, total: float, n: int) -> Any:
        """Return the ``prior`` after ``n`` exact records of a one-parameter family whose statistics sum to ``total``.

        None, the default, where that is not told: then there is no naive density.
        """
        return None

    def exact_density(self, release: Release, prior: Any) -> BetaMixture | GridDensity:
        """Return the posterior density given ``release`` and ``prior`` exactly, where methods has ``"exact"``."""
        raise TypeError(f"{type(self).__name__} has no exact posterior")

    def exact_draws(self, release: Release, prior: Any, count: int, rng: np.random.Generator) -> Array:
        """Return ``count`` draws of theta given ``release`` and ``prior`` by ``rng``, where methods has "exact"."""
        return self.exact_density(release, prior).draw(count, rng)

    # What it may say: previews

    @property
    def free_directions(self) -> Array:
        """An orthonormal basis of the directions in which theta may move, as columns."""
        return np.eye(self.parameters)

    def prior_information(self, prior: Any) -> Array:
        """Return the precision matrix of the ``prior`` in the free directions; default: 1 / its ``variance``."""
        return np.asarray(np.linalg.inv(np.atleast_2d(prior.variance)))


def _within(sums: Array, n: Array, each: tuple[float, float]) -> Array:
    size = np.asarray(n, dtype=float)[..., None]
    return np.clip(sums, size * each[0], size * each[1])


def require_moderate(name: str, ends: tuple[float, float]) -> None:
    """Raise unless every sum of records between the bounds is an ordinary float: else errors would tell of records."""
    low, high = ends
    if max(abs(low), abs(high)) > _LARGEST or high - low < _CLOSEST:
        raise ValueError(
            f"{name} must be at most {_LARGEST:g} in magnitude and at least {_CLOSEST:g} apart: rescale the records; "
            f"got ({low}, {high})"
        )
