"""A family from its density alone: a statistic, a log density and a conjugate step; moments come from quadrature.

What the user's functions do with a record stays with that record, whatever they are: :class:`CustomFamily` asks them
record by record and clips what they say. Chapter 3 shows one.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import interval
from dpbook.expfam.clipped_powers import gauss_nodes, matrix_of
from dpbook.expfam.families import FAMILIES
from dpbook.expfam.family import Family, require_moderate

__all__ = ["CustomFamily"]


@dataclass(frozen=True, eq=False)
class CustomFamily(Family):
    """A one-parameter family of your own without closed forms: its density, its statistic and its conjugate step.

    Moments are computed by Gauss–Legendre quadrature inside the bounds and in both tails (continuous records), or by
    summation (discrete ones). A custom family cannot travel in JSON: pass it to ``infer(…, family=…)``. Where you know
    the moments of clipped records, a :class:`Family` of your own is faster, and may have several parameters. Explained
    in :doc:`/book/exponential-families/unbounded-statistics`.

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
    >>> bool(abs(weibull.moments(1.0, "clip")[0][1] - 1.0) < 1e-9)
    True
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
        if not isinstance(self.name, str) or not self.name or self.name in FAMILIES:
            raise ValueError(f"name must be text other than {', '.join(FAMILIES)}, got {self.name!r}")
        for what in ("statistic", "log_density", "conjugate"):
            if not callable(getattr(self, what)):
                raise TypeError(f"{what} must be callable, got {getattr(self, what)!r}")
        bounds = interval("(lower, upper)", (self.lower, self.upper))
        require_moderate("(lower, upper)", bounds)
        for what, value in zip(("lower", "upper", "bounds"), (*bounds, bounds), strict=True):
            object.__setattr__(self, what, value)
        low, high = self.support
        if not low <= self.lower < self.upper <= high:
            raise ValueError(f"support must contain (lower, upper) = {self.bounds}, got {self.support}")
        if self.discrete and not math.isfinite(low):
            raise ValueError(f"support must begin somewhere for whole numbers, got {self.support}")
        if self.range_inside is not None:
            object.__setattr__(self, "range_inside", interval("range_inside", self.range_inside))
        require_moderate("range_inside", self.inside_range)
        if self.range_inside is None:
            self._require_monotone()

    def _require_monotone(self) -> None:
        """Raise where the statistic leaves the range of its ends at one of some 300 public records in between."""
        low, high = self.inside_range
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
    def inside_range(self) -> tuple[float, float]:
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
        ends = {"lower": self.lower, "upper": self.upper}
        return ends if self.range_inside is None else {**ends, "range_inside": self.range_inside}

    @functools.cached_property
    def statistic_range(self) -> tuple[float, float]:
        """What one record can add to the sufficient statistic: its values inside and at the ends of the support."""
        with np.errstate(all="ignore"):
            ends = np.asarray(self.statistic(np.array(self.support)), dtype=float)
        reached = [*self.inside_range, *ends[~np.isnan(ends)].tolist()]
        return min(reached), max(reached)

    def statistics(self, records: Array) -> Array:
        """Return the statistic of each record."""
        return np.asarray(self.statistic(records))

    def released(self, records: Array, outside: str) -> Array:
        """Return the statistic of the clipped record, or of the record where it lies inside and 0 elsewhere."""
        value = self._one_by_one(np.clip(records, self.lower, self.upper))
        inside = (records >= self.lower) & (records <= self.upper)
        return value if outside == "clip" else np.where(inside, value, 0.0)

    def _one_by_one(self, records: Array) -> Array:
        """Return the statistic of each record by itself, within its range, without a sign of what went on inside it."""
        low, _ = self.inside_range
        # Zeros have one sign: 1/x tells 0 from -0, np.unique does not, and one record would speak for others.
        different, place = np.unique(records + 0.0, return_inverse=True)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = np.array([self._one(record) for record in different.tolist()])
        tame = np.clip(np.where(np.isnan(values), low, values), *self.inside_range)
        return np.asarray(tame[place].reshape(records.shape))

    def _one(self, record: float) -> float:
        """Return what the statistic says of one record, or the lower end where it fails: errors would tell of it."""
        try:
            return float(np.asarray(self.statistic(np.array([record])), dtype=float).reshape(()))
        except KeyboardInterrupt:
            raise
        except BaseException:
            return self.inside_range[0]

    def mean_and_covariance(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and covariance of (released statistic, sufficient statistic), by quadrature or summation."""
        return self._expectations(theta, [self._at_nodes(outside), self.statistic(self._nodes[0])])

    def released_moments(self, theta: Array, outside: str) -> tuple[Array, Array]:
        """Return mean and variance of the released statistic."""
        mean, cov = self._expectations(theta, [self._at_nodes(outside)])
        return mean, cov[..., 0]

    def _at_nodes(self, outside: str) -> Array:
        """Return the released statistic at the nodes, clipped as a release clips it; computed once."""
        kept: dict[str, Array] = self.__dict__.setdefault("_kept_at_nodes", {})
        if outside not in kept:
            kept[outside] = self.released(self._nodes[0][:, None], outside)[:, 0]
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
        return mean, matrix_of([[(mass * one * other).sum(axis=-1) for other in gaps] for one in gaps])

    def check_prior(self, prior: Any) -> None:
        """Raise, too, unless the density integrates to 1, as it does for most values that the prior gives."""
        super().check_prior(prior)
        theta = np.asarray(prior.draw(64, np.random.default_rng(0)), dtype=float)
        x, weights = self._nodes
        with np.errstate(all="ignore"):
            mass = np.median((weights * np.exp(self.log_density(x, theta[..., None]))).sum(axis=-1))
        if not abs(mass - 1) < 0.01:
            raise ValueError(f"family must have a log_density that integrates to 1, got {mass:.3g}")

    def natural(self, theta: Array) -> tuple[Array, Array]:
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

    def draw_parameter(self, prior: Any, sums: Array, n: Array, rng: np.random.Generator) -> Array:
        """Draw theta by the conjugate step that was given."""
        return np.asarray(self.conjugate(prior, sums[..., 0], n, rng))


def _panels(low: float, high: float) -> tuple[Array, Array]:
    """Eight Gauss nodes in each of some forty panels, which halve towards both ends: densities pile up there."""
    small = 0.5 ** np.arange(4.0, 25.0)
    edges = low + (high - low) * np.unique(np.concatenate([np.linspace(0, 1, 9), small, 1 - small[:12]]))
    nodes, weights = gauss_nodes(0.0, 1.0, 8)
    widths = np.diff(edges)[:, None]
    return (edges[:-1, None] + widths * nodes).ravel(), (widths * weights).ravel()


def _half_line(start: float, scale: float) -> tuple[Array, Array]:
    """Nodes and weights for an integral from ``start`` to infinity towards ``scale``: x = start + scale u/(1-u)."""
    u, weights = gauss_nodes(0.0, 1.0, 200)
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
