"""Posterior densities of one parameter, held exactly: finite mixtures of Betas, and densities on an adaptive grid.

Both offer ``pdf``, ``cdf``, ``mean``, ``sd``, ``quantile`` and ``draw``, so that figures can show a density where a
:class:`~dpbook.Posterior` holds draws of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbook._arrays import Array
from dpbook._late import optimize
from dpbook._validation import analyst_generator, finite_array, integer, interval
from dpbook.priors import Beta

__all__ = ["BetaMixture", "GridDensity", "HalfLineDensity", "density_of", "times_likelihood"]

# The half-line is covered from e^-700 to e^700, the range of double precision.
_LOG_RANGE = 700.0


@dataclass(frozen=True, eq=False)
class BetaMixture:
    """A finite mixture of Beta distributions. Explained in :doc:`/book/background/after-a-release`.

    Parameters
    ----------
    weights, alpha, beta : array
        One entry a component; the weights are normalised.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.expfam import BetaMixture
    >>> mixture = BetaMixture([1, 1], [1, 3], [3, 1])
    >>> mixture.mean, round(mixture.sd, 4), round(float(mixture.cdf(0.5)), 4)
    (0.5, 0.3162, 0.5)
    >>> BetaMixture([1], [2], [2]).pdf([0.5]), round(BetaMixture([1], [1], [1]).quantile(0.9), 6)
    (array([1.5]), 0.9)
    >>> BetaMixture([1, 1], [1, 30], [30, 1]).draw(3, np.random.default_rng(0)).round(2)
    array([0.95, 0.02, 0.19])
    """

    weights: ArrayLike
    alpha: ArrayLike
    beta: ArrayLike

    def __post_init__(self) -> None:
        weights, alpha, beta = np.broadcast_arrays(
            *(finite_array(name, getattr(self, name)) for name in ("weights", "alpha", "beta"))
        )
        if weights.ndim != 1 or (weights < 0).any() or not weights.sum() > 0:
            raise ValueError("weights must be one-dimensional, non-negative and not all 0")
        if (alpha <= 0).any() or (beta <= 0).any():
            raise ValueError("alpha and beta must be greater than 0")
        weights = weights / weights.max()
        keep = np.flatnonzero(weights > 1e-18)
        keep = keep[np.argsort(alpha[keep] / (alpha[keep] + beta[keep]), kind="stable")]  # by mean, for _near
        object.__setattr__(self, "weights", weights[keep] / weights[keep].sum())
        object.__setattr__(self, "alpha", alpha[keep])
        object.__setattr__(self, "beta", beta[keep])

    def _parts(self) -> tuple[Array, Array, Array]:
        return np.asarray(self.weights), np.asarray(self.alpha), np.asarray(self.beta)

    def _near(self, theta: Array, log_tail: float) -> Iterator[slice]:
        """Yield, for each point, the components that put more than e^log_tail of their mass beyond it.

        A Beta is sub-Gaussian with variance proxy 1 / (4 (alpha + beta + 1)) (Marchal and Arbel 2017): it strays by
        more than d from its mean with probability at most exp(-2 d² (alpha + beta + 1)) on either side. So a million
        components cost no more memory or time than the thousands that matter at a point.
        """
        _, alpha, beta = self._parts()
        means = alpha / (alpha + beta)
        reach = math.sqrt(-log_tail / (2 * (alpha + beta + 1).min()))
        first, last = (
            np.searchsorted(means, theta - reach),
            np.searchsorted(means, theta + reach, side="right"),
        )
        return map(slice, first.tolist(), last.tolist())

    @property
    def mean(self) -> float:
        """The mixture's mean."""
        weights, alpha, beta = self._parts()
        return float(weights @ (alpha / (alpha + beta)))

    @property
    def sd(self) -> float:
        """The mixture's standard deviation."""
        weights, alpha, beta = self._parts()
        centre = alpha / (alpha + beta)
        within = centre * (1 - centre) / (alpha + beta + 1)
        return float(np.sqrt(weights @ (within + (centre - self.mean) ** 2)))

    def pdf(self, theta: ArrayLike) -> Array:
        """Return the density at ``theta``, points in [0, 1]."""
        weights, alpha, beta = self._parts()
        points = np.asarray(theta, dtype=float)
        inside = np.clip(points, 0.0, 1.0).ravel()
        log_scale = np.log(weights) - special.betaln(alpha, beta)
        near = self._near(inside, -800.0)  # beyond it a density is below the smallest double
        heights = [
            np.exp(special.xlogy(alpha[i] - 1, at) + special.xlog1py(beta[i] - 1, -at) + log_scale[i]).sum()
            for at, i in zip(inside, near, strict=True)
        ]
        return np.where((points < 0) | (points > 1), 0.0, np.reshape(heights, points.shape))

    def cdf(self, theta: ArrayLike) -> Array:
        """Return the probability of at most ``theta``, points in [0, 1]."""
        weights, alpha, beta = self._parts()
        points = np.clip(np.asarray(theta, dtype=float), 0.0, 1.0)
        below = np.concatenate([[0.0], np.cumsum(weights)])  # components that lie below the point altogether
        near = self._near(points.ravel(), -45.0)
        shares = [
            below[i.start] + special.betainc(alpha[i], beta[i], at) @ weights[i]
            for at, i in zip(points.ravel(), near, strict=True)
        ]
        return np.minimum(np.reshape(shares, points.shape), 1.0)

    def quantile(self, q: float) -> float:
        """Return the point below which a share ``q`` of the probability lies."""
        _share("q", q)
        low, high = (
            -708.0,
            36.7,
        )  # the logits of the smallest normal double and of the largest below 1
        if self.cdf(special.expit(low)) >= q:
            return 0.0
        if self.cdf(special.expit(high)) <= q:
            return 1.0
        # On the logit scale, so that a quantile next to 0 is found to as many digits as any other.
        logit = optimize.brentq(
            lambda u: float(self.cdf(special.expit(u))) - q,
            low,
            high,
            xtol=1e-12,
            rtol=1e-14,
        )
        return float(special.expit(logit))

    def draw(self, count: int, rng: np.random.Generator | None = None) -> Array:
        """Return ``count`` independent draws by ``rng``."""
        count, rng = integer("count", count, least=1), analyst_generator(rng)
        weights, alpha, beta = self._parts()
        component = rng.choice(weights.size, size=count, p=weights)
        return rng.beta(alpha[component], beta[component])


class GridDensity:
    """A one-dimensional density on a bounded interval, normalised on a grid that is refined where it has mass.

    Moments and ``pdf`` are accurate to about 1e-7 for smooth densities; ``cdf``, ``quantile`` and ``draw`` interpolate
    linearly between some two thousand points, to about 1e-5 in probability. Explained in
    :doc:`/book/exponential-families/noise-aware-inference`.

    Parameters
    ----------
    log_density : callable
        Maps an array of points to the logarithm of the density, up to a constant.
    support : (low, high)
        The interval.
    points : int, default 400
        The number of cells of the grid, three points in each.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.expfam import GridDensity
    >>> density = GridDensity(lambda t: -0.5 * (t / 0.01) ** 2, (-1.0, 1.0))
    >>> round(density.sd, 6), round(density.quantile(0.975), 6)
    (0.01, 0.0196)
    >>> flat = GridDensity(np.zeros_like, (0.0, 2.0))
    >>> flat.pdf([1.0, 3.0]).round(6), flat.cdf([0.5]).round(6), flat.draw(2, np.random.default_rng(0)).round(2)
    (array([0.5, 0. ]), array([0.25]), array([1.27, 0.54]))
    """

    def __init__(
        self,
        log_density: Callable[[Array], Array],
        support: tuple[float, float],
        points: int = 400,
    ) -> None:
        low, high = interval("support", support)
        points = integer("points", points, least=100)
        self._log_density = log_density
        self._support = (low, high)
        self._edges, nodes, log_mass = _refined(log_density, low, high, points)
        self._values = self._from_grid(nodes)
        self._log_total = float(special.logsumexp(log_mass))
        self._mass = np.exp(log_mass - self._log_total)
        within = np.maximum.accumulate(np.maximum(self._mass @ _PARTIAL, 0.0), axis=1)
        before = np.concatenate([[0.0], np.cumsum(self._mass.sum(axis=1))[:-1]])
        self._cdf = np.maximum.accumulate(np.append(0.0, (before[:, None] + within).ravel()))
        self._cdf /= self._cdf[-1]
        steps = np.diff(self._edges)[:, None] * np.arange(1, _PARTS + 1) / _PARTS
        self._grid = np.append(self._edges[0], (self._edges[:-1, None] + steps).ravel())

    @property
    def mean(self) -> float:
        """The density's mean."""
        held = self._mass > 0
        return float(np.sum(self._mass[held] * self._values[held]))

    @property
    def sd(self) -> float:
        """The density's standard deviation."""
        held = self._mass > 0  # points without mass may lie where a square overflows
        return float(np.sqrt(np.sum(self._mass[held] * (self._values[held] - self.mean) ** 2)))

    def pdf(self, theta: ArrayLike) -> Array:
        """Return the density at the points ``theta``, 0 outside the support."""
        points = np.asarray(theta, dtype=float)
        inside = (points >= self._support[0]) & (points <= self._support[1])
        height = np.exp(self._log_density(np.where(inside, points, self._values[0, 0])) - self._log_total)
        return np.where(inside, height, 0.0)

    def cdf(self, theta: ArrayLike) -> Array:
        """Return the probability of at most each of the points ``theta``."""
        return np.asarray(np.interp(self._to_grid(np.asarray(theta, dtype=float)), self._grid, self._cdf))

    def quantile(self, q: float) -> float:
        """Return the point below which a share ``q`` of the probability lies."""
        return float(self._from_grid(np.interp(_share("q", q), self._cdf, self._grid)))

    def draw(self, count: int, rng: np.random.Generator | None = None) -> Array:
        """Return ``count`` independent draws by ``rng``, through the inverse of the piecewise linear cdf."""
        count, rng = integer("count", count, least=1), analyst_generator(rng)
        return self._from_grid(np.interp(rng.random(count), self._cdf, self._grid))

    # The grid may be laid on another coordinate than the parameter; here it is the parameter itself.

    def _to_grid(self, theta: Array) -> Array:
        return theta

    def _from_grid(self, points: ArrayLike) -> Array:
        return np.asarray(points, dtype=float)


class HalfLineDensity(GridDensity):
    """A density on the positive half-line, normalised on a grid of u with theta = exp(sinh(u)).

    The grid is fine where the parameter is of order one and reaches to the ends of double precision. Explained in
    :doc:`/book/exponential-families/noise-aware-inference`.

    Parameters
    ----------
    log_density : callable
        Maps an array of positive points to the logarithm of the density, up to a constant.
    points : int, default 400
        The number of cells of the grid, three points in each.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.expfam import HalfLineDensity
    >>> density = HalfLineDensity(lambda t: 3 * np.log(t) - 2 * t)  # Gamma(4, 2)
    >>> round(density.mean, 6), round(density.sd, 6), density.pdf([-1.0, 1.5]).round(4)
    (2.0, 1.0, array([0.    , 0.4481]))
    """

    def __init__(self, log_density: Callable[[Array], Array], points: int = 400) -> None:
        self._of_parameter = log_density
        end = math.asinh(_LOG_RANGE)
        super().__init__(self._log_density_on_grid, (-end, end), points)

    def _log_density_on_grid(self, u: Array) -> Array:
        log_theta = np.sinh(u)
        with np.errstate(all="ignore"):
            values = np.asarray(self._of_parameter(np.exp(log_theta)), dtype=float) + log_theta + np.log(np.cosh(u))
        return np.where(np.isnan(values), -np.inf, values)  # far outside, a density may be 0 · ∞

    def pdf(self, theta: ArrayLike) -> Array:
        """Return the density at ``theta``, 0 below 0."""
        points = np.asarray(theta, dtype=float)
        at = np.where(points > 0, points, 1.0)
        return np.where(points > 0, np.exp(self._of_parameter(at) - self._log_total), 0.0)

    def _to_grid(self, theta: Array) -> Array:
        return np.asarray(np.arcsinh(np.log(np.maximum(theta, np.finfo(float).tiny))))

    def _from_grid(self, points: ArrayLike) -> Array:
        return np.asarray(np.exp(np.sinh(np.asarray(points, dtype=float))))


class BetaTimesLikelihood(GridDensity):
    """The density theta^(alpha-1) (1-theta)^(beta-1) L(theta) on [0, 1], with L bounded, however small alpha and beta.

    The grid is laid on u, theta = expit(sinh(u)), the substitution of double-exponential quadrature: on it an infinite
    end of the density becomes a smooth tail.
    """

    def __init__(self, alpha: float, beta: float, log_likelihood: Callable[[Array], Array]) -> None:
        self._alpha, self._beta, self._log_likelihood = alpha, beta, log_likelihood
        # Beyond a logit of 100 the likelihood of any real data set is flat and the tails fall like e^(-alpha |logit|).
        support = (-math.asinh(100 + 50 / alpha), math.asinh(100 + 50 / beta))
        super().__init__(self._log_density_on_grid, support)

    def _log_density_on_grid(self, u: Array) -> Array:
        logit = np.sinh(u)
        log_beta = (self._alpha + self._beta) * special.log_expit(logit) - self._beta * logit
        return np.asarray(log_beta + np.log(np.cosh(u)) + self._log_likelihood(special.expit(logit)))

    def pdf(self, theta: ArrayLike) -> Array:
        """Return the density at ``theta``, 0 outside [0, 1]."""
        points = np.asarray(theta, dtype=float)
        at = np.clip(points, 0.0, 1.0)
        log_beta = special.xlogy(self._alpha - 1, at) + special.xlog1py(self._beta - 1, -at)
        height = np.exp(log_beta + self._log_likelihood(at) - self._log_total)
        return np.where((points < 0) | (points > 1), 0.0, height)

    def _to_grid(self, theta: Array) -> Array:
        return np.asarray(np.arcsinh(special.logit(np.clip(theta, 0.0, 1.0))))

    def _from_grid(self, points: ArrayLike) -> Array:
        return np.asarray(special.expit(np.sinh(points)))


@singledispatch
def density_of(prior: Any) -> BetaMixture | GridDensity:
    """Return the density of a prior of one parameter, by default on the grid that suits its support."""
    return times_likelihood(prior, np.zeros_like)


@density_of.register
def _(prior: Beta) -> BetaMixture:
    return BetaMixture([1.0], [prior.alpha], [prior.beta])


@singledispatch
def times_likelihood(prior: Any, log_likelihood: Callable[[Array], Array]) -> GridDensity:
    """Return the density proportional to prior times likelihood, by default on the grid that suits the support."""
    if prior.support == (0.0, math.inf):
        return HalfLineDensity(lambda theta: prior.log_density(theta) + log_likelihood(theta))
    return GridDensity(lambda theta: prior.log_density(theta) + log_likelihood(theta), prior.support)


@times_likelihood.register
def _(prior: Beta, log_likelihood: Callable[[Array], Array]) -> GridDensity:
    return BetaTimesLikelihood(prior.alpha, prior.beta, log_likelihood)


def _share(name: str, q: float) -> float:
    if not 0 <= q <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {q}")
    return q


_SCAN = 200  # points of each look for the region that holds the mass
_DEPTH = 45.0  # e^-45 of the peak is below double precision


def _refined(log_density: Callable[[Array], Array], low: float, high: float, points: int) -> tuple[Array, Array, Array]:
    """Return cell edges, their nodes and log masses: evenly over every peak that has mass, and finer where it is dense.

    Narrow peaks are found as long as the first look sees their slope. Edges at equal shares of the mass resolve what is
    narrow within a region; cells that halve towards an end resolve a density that is infinite there.
    """
    regions = _regions(log_density, low, high)
    low, high = regions[0][0], regions[-1][1]
    even = edges = np.unique(np.concatenate([np.linspace(*ends, points + 1) for ends in [*regions, (low, high)]]))
    nodes, log_mass = _node_masses(log_density, edges)
    mass = _relative(log_mass).sum(axis=1)
    halves = (high - low) / points * 0.5 ** np.arange(1, 60)
    halves = halves[halves > 1e-14 * max(abs(low), abs(high))]  # so that no node falls on the end itself
    ends = [low + halves * (mass[0] > 1.2 * mass[1]), high - halves * (mass[-1] > 1.2 * mass[-2])]
    for _ in range(20):
        if mass.max() < 20 / points:
            break
        cdf = np.concatenate([[0.0], np.cumsum(mass)])
        blend = 0.9 * cdf / cdf[-1] + 0.1 * (edges - low) / (high - low)
        edges = np.interp(np.linspace(0, 1, edges.size), blend, edges)
        edges[0], edges[-1] = low, high
        mass = _relative(_node_masses(log_density, edges)[1]).sum(axis=1)
    finer = np.unique(np.concatenate([even, edges, *ends]))
    if finer.size == even.size:
        return even, nodes, log_mass
    return finer, *_node_masses(log_density, finer)


def _relative(log_mass: Array) -> Array:
    mass = np.exp(log_mass - log_mass.max())
    return np.asarray(mass / mass.sum())


def _regions(log_density: Callable[[Array], Array], low: float, high: float) -> list[tuple[float, float]]:
    """Return, in order, the ends of the region around each peak that is not hopelessly below the highest."""
    edges = np.linspace(low, high, _SCAN + 1)
    heights = _heights(log_density, edges)
    found = [_zoom(log_density, float(edges[first]), float(edges[last])) for first, last in _basins(heights)]
    best = max(top for _, _, top in found)
    if not best > -math.inf:
        raise ValueError("log_density must be finite somewhere in the support, and nowhere NaN")
    return [(start, end) for start, end, top in found if top > best - _DEPTH]


def _heights(log_density: Callable[[Array], Array], edges: Array) -> Array:
    return np.asarray(log_density((edges[1:] + edges[:-1]) / 2), dtype=float)


def _basins(heights: Array) -> list[tuple[int, int]]:
    """Return the cells (first, past the last) around each peak of the scan; dips below 0.1 separate none."""
    with np.errstate(invalid="ignore"):  # -inf next to -inf is no fall
        falls = np.diff(heights)
    dips = np.flatnonzero((falls[:-1] < 0) & (falls[1:] > 0)) + 1
    basins, start = [], 0
    for dip in dips:
        after = heights[dip:].max()
        if min(heights[start : dip + 1].max(), after) - heights[dip] > 0.1:
            basins.append((start, int(dip) + 1))
            start = int(dip)
    return [*basins, (start, heights.size)]


def _zoom(log_density: Callable[[Array], Array], low: float, high: float) -> tuple[float, float, float]:
    """Return the ends of the region around one peak, and the height of the peak."""
    top = -math.inf
    for _ in range(60):
        edges = np.linspace(low, high, _SCAN + 1)
        heights = _heights(log_density, edges)
        top = float(heights.max())
        seen = np.flatnonzero(heights > top - _DEPTH)
        if not seen.size:
            break
        width = high - low
        low, high = float(edges[max(seen[0] - 1, 0)]), float(edges[min(seen[-1] + 2, _SCAN)])
        if high - low > 0.7 * width:
            break
    return low, high, top


_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(3)
_PARTS = 5  # into which the distribution function divides each cell


def _partial_weights() -> Array:
    """Return, for each node (row), how much of its mass lies in the first 1/5, 2/5 … of the cell, by the parabola."""
    ends = np.linspace(-1, 1, _PARTS + 1)[1:]
    rows = []
    for i, node in enumerate(_GAUSS_NODES):
        others = np.delete(_GAUSS_NODES, i)
        basis = np.polynomial.Polynomial.fromroots(others) / np.prod(node - others)
        rows.append(basis.integ(lbnd=-1)(ends) / _GAUSS_WEIGHTS[i])
    return np.array(rows)


_PARTIAL = _partial_weights()


def _nodes(edges: Array) -> tuple[Array, Array]:
    """Return the nodes of a three-point Gauss–Legendre rule in every cell, and their weights."""
    half = np.diff(edges)[:, None] / 2
    return (edges[1:] + edges[:-1])[:, None] / 2 + half * _GAUSS_NODES, half * _GAUSS_WEIGHTS


def _at(log_density: Callable[[Array], Array], nodes: Array) -> Array:
    return np.asarray(log_density(nodes.ravel()), dtype=float).reshape(nodes.shape)


def _node_masses(log_density: Callable[[Array], Array], edges: Array) -> tuple[Array, Array]:
    """Return the nodes of every cell, and the logarithm of the mass that each stands for."""
    nodes, weights = _nodes(edges)
    with np.errstate(divide="ignore"):  # a cell may have no width
        return nodes, _at(log_density, nodes) + np.log(weights)
