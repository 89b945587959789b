"""Posterior densities of one parameter, held exactly: finite mixtures of Betas, and densities on an adaptive grid.

Both offer ``pdf``, ``cdf``, ``mean``, ``sd``, ``quantile`` and ``draw``, so that figures can show a density where a
:class:`~dpbook.Posterior` holds draws of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from dpbook._validation import analyst_generator, finite_array, integer, interval

__all__ = ["BetaMixture", "GridDensity"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BetaMixture:
    """A finite mixture of Beta distributions.

    Parameters
    ----------
    weights, alpha, beta : array
        One entry a component; the weights are normalised.

    Examples
    --------
    >>> from dpbook.expfam import BetaMixture
    >>> mixture = BetaMixture([1, 1], [1, 3], [3, 1])
    >>> mixture.mean, round(mixture.sd, 4), round(float(mixture.cdf(0.5)), 4)
    (0.5, 0.3162, 0.5)

    Explained in :doc:`/book/background/after-a-release`.
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
        keep = weights > weights.max() * 1e-18
        object.__setattr__(self, "weights", weights[keep] / weights[keep].sum())
        object.__setattr__(self, "alpha", alpha[keep])
        object.__setattr__(self, "beta", beta[keep])

    def _parts(self) -> tuple[Array, Array, Array]:
        return np.asarray(self.weights), np.asarray(self.alpha), np.asarray(self.beta)

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
        """Return the density at ``theta``.

        Parameters
        ----------
        theta : array
            Points in [0, 1].

        Returns
        -------
        ndarray
            The density, of theta's shape.

        Examples
        --------
        >>> from dpbook.expfam import BetaMixture
        >>> BetaMixture([1], [2], [2]).pdf([0.5])
        array([1.5])

        Explained in :doc:`/book/background/after-a-release`.
        """
        weights, alpha, beta = self._parts()
        return np.asarray(stats.beta.pdf(np.asarray(theta)[..., None], alpha, beta) @ weights)

    def cdf(self, theta: ArrayLike) -> Array:
        """Return the probability of at most ``theta``.

        Parameters
        ----------
        theta : array
            Points in [0, 1].

        Returns
        -------
        ndarray
            The cumulative probability, of theta's shape.

        Examples
        --------
        >>> from dpbook.expfam import BetaMixture
        >>> BetaMixture([1], [1], [1]).cdf([0.2])
        array([0.2])

        Explained in :doc:`/book/background/after-a-release`.
        """
        weights, alpha, beta = self._parts()
        return np.asarray(special.betainc(alpha, beta, np.asarray(theta, dtype=float)[..., None]) @ weights)

    def quantile(self, q: float) -> float:
        """Return the point below which a share ``q`` of the probability lies.

        Parameters
        ----------
        q : float
            In [0, 1].

        Returns
        -------
        float
            The quantile.

        Examples
        --------
        >>> from dpbook.expfam import BetaMixture
        >>> round(BetaMixture([1], [1], [1]).quantile(0.9), 6)
        0.9

        Explained in :doc:`/book/background/after-a-release`.
        """
        _share("q", q)
        return float(optimize.brentq(lambda t: float(self.cdf(t)) - q, 0.0, 1.0, xtol=1e-14))

    def draw(self, count: int, rng: np.random.Generator | None = None) -> Array:
        """Return independent draws.

        Parameters
        ----------
        count : int
            How many.
        rng : numpy.random.Generator, optional
            The source of randomness.

        Returns
        -------
        ndarray
            The draws.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.expfam import BetaMixture
        >>> BetaMixture([1, 1], [1, 30], [30, 1]).draw(3, np.random.default_rng(0)).round(2)
        array([0.95, 0.02, 0.19])

        Explained in :doc:`/book/background/after-a-release`.
        """
        count, rng = integer("count", count, least=1), analyst_generator(rng)
        weights, alpha, beta = self._parts()
        component = rng.choice(weights.size, size=count, p=weights)
        return rng.beta(alpha[component], beta[component])


class GridDensity:
    """A one-dimensional density on a bounded interval, normalised on a grid that is refined where it has mass.

    Moments and ``pdf`` are accurate to about 1e-8 for smooth densities; ``cdf``, ``quantile`` and ``draw`` interpolate
    linearly between some thousands of grid points, to about 1e-5 in probability.

    Parameters
    ----------
    log_density : callable
        Maps an array of points to the logarithm of the density, up to a constant.
    support : (low, high)
        The interval.
    points : int, default 2000
        The number of grid points of the final, refined grid.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.expfam import GridDensity
    >>> density = GridDensity(lambda t: -0.5 * (t / 0.01) ** 2, (-1.0, 1.0))
    >>> round(density.sd, 6), round(density.quantile(0.975), 6)
    (0.01, 0.0196)

    Explained in :doc:`/book/background/after-a-release`.
    """

    def __init__(self, log_density: Callable[[Array], Array], support: tuple[float, float], points: int = 2000) -> None:
        low, high = interval("support", support)
        points = integer("points", points, least=100)
        self._log_density = log_density
        self._grid = _refined(log_density, low, high, points)
        self._nodes, log_mass = _node_masses(log_density, self._grid)
        self._log_total = float(special.logsumexp(log_mass))
        self._mass = np.exp(log_mass - self._log_total)
        self._cdf = np.concatenate([[0.0], np.cumsum(self._mass.sum(axis=1))])
        self._cdf /= self._cdf[-1]

    @property
    def mean(self) -> float:
        """The density's mean."""
        return float(np.sum(self._mass * self._nodes))

    @property
    def sd(self) -> float:
        """The density's standard deviation."""
        return float(np.sqrt(np.sum(self._mass * (self._nodes - self.mean) ** 2)))

    def pdf(self, theta: ArrayLike) -> Array:
        """Return the density at ``theta``, 0 outside the support.

        Parameters
        ----------
        theta : array
            Points.

        Returns
        -------
        ndarray
            The density, of theta's shape.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.expfam import GridDensity
        >>> GridDensity(np.zeros_like, (0.0, 2.0)).pdf([1.0, 3.0]).round(6)
        array([0.5, 0. ])

        Explained in :doc:`/book/background/after-a-release`.
        """
        points = np.asarray(theta, dtype=float)
        inside = (points >= self._grid[0]) & (points <= self._grid[-1])
        height = np.exp(self._log_density(np.where(inside, points, self._nodes[0, 0])) - self._log_total)
        return np.where(inside, height, 0.0)

    def cdf(self, theta: ArrayLike) -> Array:
        """Return the probability of at most ``theta``.

        Parameters
        ----------
        theta : array
            Points.

        Returns
        -------
        ndarray
            The cumulative probability, of theta's shape.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.expfam import GridDensity
        >>> GridDensity(np.zeros_like, (0.0, 2.0)).cdf([0.5]).round(6)
        array([0.25])

        Explained in :doc:`/book/background/after-a-release`.
        """
        return np.asarray(np.interp(np.asarray(theta, dtype=float), self._grid, self._cdf))

    def quantile(self, q: float) -> float:
        """Return the point below which a share ``q`` of the probability lies.

        Parameters
        ----------
        q : float
            In [0, 1].

        Returns
        -------
        float
            The quantile.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.expfam import GridDensity
        >>> round(GridDensity(np.zeros_like, (0.0, 2.0)).quantile(0.25), 6)
        0.5

        Explained in :doc:`/book/background/after-a-release`.
        """
        return float(np.interp(_share("q", q), self._cdf, self._grid))

    def draw(self, count: int, rng: np.random.Generator | None = None) -> Array:
        """Return independent draws, by the inverse of the piecewise linear cdf.

        Parameters
        ----------
        count : int
            How many.
        rng : numpy.random.Generator, optional
            The source of randomness.

        Returns
        -------
        ndarray
            The draws.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.expfam import GridDensity
        >>> GridDensity(np.zeros_like, (0.0, 2.0)).draw(2, np.random.default_rng(0)).round(2)
        array([1.27, 0.54])

        Explained in :doc:`/book/background/after-a-release`.
        """
        count, rng = integer("count", count, least=1), analyst_generator(rng)
        return np.asarray(np.interp(rng.random(count), self._cdf, self._grid))


def _share(name: str, q: float) -> float:
    if not 0 <= q <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {q}")
    return q


def _refined(log_density: Callable[[Array], Array], low: float, high: float, points: int) -> Array:
    """Return cell edges, half of them at equal shares of the mass and half evenly over the region that has any.

    The first kind finds narrow peaks, as long as the coarse grid sees their slope, and resolves infinite ends; the
    second kind resolves the tails, where cells of equal mass are too wide for a Gauss rule.
    """
    edges = np.linspace(low, high, points // 2 + 1)
    for _ in range(20):
        _, log_mass = _node_masses(log_density, edges)
        mass = np.exp(log_mass - special.logsumexp(log_mass)).sum(axis=1)
        if mass.max() < 6 / points:
            break
        cdf = np.concatenate([[0.0], np.cumsum(mass)])
        blend = 0.9 * cdf / cdf[-1] + 0.1 * (edges - low) / (high - low)
        edges = np.interp(np.linspace(0, 1, edges.size), blend, edges)
        edges[0], edges[-1] = low, high
    by_mass = edges
    for _ in range(3):
        nodes, _ = _node_masses(log_density, edges)
        heights = np.asarray(log_density(nodes.ravel())).reshape(nodes.shape).max(axis=1)
        seen = np.flatnonzero(heights > heights.max() - 45)  # e^-45 of the peak is below double precision
        first, last = max(seen[0] - 1, 0), min(seen[-1] + 2, edges.size - 1)
        edges = np.union1d(by_mass, np.linspace(edges[first], edges[last], points // 2 + 1))
    return edges


def _node_masses(log_density: Callable[[Array], Array], edges: Array) -> tuple[Array, Array]:
    """Return the nodes of a three-point Gauss–Legendre rule in every cell, and the log mass that each stands for."""
    nodes, weights = np.polynomial.legendre.leggauss(3)
    half = np.diff(edges)[:, None] / 2
    points = (edges[1:] + edges[:-1])[:, None] / 2 + half * nodes
    log_values = np.asarray(log_density(points.ravel()), dtype=float).reshape(points.shape)
    with np.errstate(divide="ignore"):  # a cell may have no width
        return points, log_values + np.log(half * weights)
