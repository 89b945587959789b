"""Conjugate priors: what is believed of a family's parameter before the data, and how statistics update it.

Each prior can be drawn from, has a log density, and draws the parameter given exact sufficient statistics; the
last works on whole batches, because the samplers advance many chains at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpbook._validation import (
    analyst_generator,
    at_least,
    finite_array,
    finite_number,
    positive,
)

__all__ = ["Beta", "Dirichlet", "Gamma", "NormalInverseGamma"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Beta:
    """A Beta(alpha, beta) prior for a probability.

    Parameters
    ----------
    alpha, beta : float
        Greater than 0; ``Beta(1, 1)`` is uniform.

    Examples
    --------
    >>> from dpbook.expfam import Beta
    >>> Beta(1, 3).mean
    0.25
    >>> Beta(1, 1).updated(7, 10)
    Beta(alpha=8.0, beta=4.0)

    Explained in :doc:`/book/background/bayesian-primer`.
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", positive("alpha", self.alpha))
        object.__setattr__(self, "beta", positive("beta", self.beta))

    @property
    def mean(self) -> float:
        """The prior mean."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def variance(self) -> float:
        """The prior variance."""
        return self.mean * (1 - self.mean) / (self.alpha + self.beta + 1)

    @property
    def support(self) -> tuple[float, float]:
        """Where the parameter can lie."""
        return (0.0, 1.0)

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws from the prior.

        Parameters
        ----------
        shape : int or tuple of int
            The shape of the result.
        rng : numpy.random.Generator, optional
            The source of randomness.

        Returns
        -------
        ndarray
            The draws.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.expfam import Beta
        >>> Beta(2, 2).draw(2, np.random.default_rng(0)).round(2)
        array([0.41, 0.21])

        Explained in :doc:`/book/background/bayesian-primer`.
        """
        return analyst_generator(rng).beta(self.alpha, self.beta, shape)

    def log_density(self, theta: ArrayLike) -> Array:
        """Return the logarithm of the prior density.

        Parameters
        ----------
        theta : array
            Points in (0, 1).

        Returns
        -------
        ndarray
            The log density, of theta's shape.

        Examples
        --------
        >>> from dpbook.expfam import Beta
        >>> Beta(1, 1).log_density([0.3])
        array([0.])

        Explained in :doc:`/book/background/bayesian-primer`.
        """
        theta = np.asarray(theta, dtype=float)
        kernel = special.xlogy(self.alpha - 1, theta) + special.xlog1py(self.beta - 1, -theta)
        return np.asarray(kernel - special.betaln(self.alpha, self.beta))

    def updated(self, successes: float, n: float) -> Beta:
        """Return the posterior after ``successes`` in ``n`` exact yes-or-no records.

        Parameters
        ----------
        successes : float
            Between 0 and n; may be a fraction, as a projected noisy count is.
        n : float
            The number of records.

        Returns
        -------
        Beta
            ``Beta(alpha + successes, beta + n - successes)``.

        Examples
        --------
        >>> from dpbook.expfam import Beta
        >>> Beta(2, 2).updated(3, 10)
        Beta(alpha=5.0, beta=9.0)

        Explained in :doc:`/book/background/bayesian-primer`.
        """
        n = at_least("n", n, 0.0)
        successes = at_least("successes", successes, 0.0)
        if successes > n:
            raise ValueError(f"successes must be at most n = {n}, got {successes}")
        return Beta(self.alpha + successes, self.beta + n - successes)


@dataclass(frozen=True)
class Gamma:
    """A Gamma(shape, rate) prior for a rate.

    Parameters
    ----------
    shape, rate : float
        Greater than 0; the mean is shape / rate.

    Examples
    --------
    >>> from dpbook.expfam import Gamma
    >>> Gamma(8, 2).mean, Gamma(8, 2).variance
    (4.0, 2.0)

    Explained in :doc:`/book/background/bayesian-primer`.
    """

    shape: float
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", positive("shape", self.shape))
        object.__setattr__(self, "rate", positive("rate", self.rate))

    @property
    def mean(self) -> float:
        """The prior mean."""
        return self.shape / self.rate

    @property
    def variance(self) -> float:
        """The prior variance."""
        return self.shape / self.rate**2

    @property
    def support(self) -> tuple[float, float]:
        """Where the parameter can lie."""
        return (0.0, math.inf)

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws from the prior.

        Parameters
        ----------
        shape : int or tuple of int
            The shape of the result.
        rng : numpy.random.Generator, optional
            The source of randomness.

        Returns
        -------
        ndarray
            The draws.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.expfam import Gamma
        >>> Gamma(8, 2).draw(2, np.random.default_rng(0)).round(2)
        array([4.01, 4.79])

        Explained in :doc:`/book/background/bayesian-primer`.
        """
        return analyst_generator(rng).gamma(self.shape, 1 / self.rate, shape)

    def log_density(self, theta: ArrayLike) -> Array:
        """Return the logarithm of the prior density.

        Parameters
        ----------
        theta : array
            Points above 0.

        Returns
        -------
        ndarray
            The log density, of theta's shape.

        Examples
        --------
        >>> from dpbook.expfam import Gamma
        >>> Gamma(1, 1).log_density([2.0])
        array([-2.])

        Explained in :doc:`/book/background/bayesian-primer`.
        """
        theta = np.asarray(theta, dtype=float)
        constant = self.shape * math.log(self.rate) - special.gammaln(self.shape)
        return np.asarray(special.xlogy(self.shape - 1, theta) - self.rate * theta + constant)


@dataclass(frozen=True, eq=False)
class Dirichlet:
    """A Dirichlet prior for the probabilities of k categories.

    Parameters
    ----------
    alpha : sequence of float
        One pseudo-count a category, each greater than 0.

    Examples
    --------
    >>> from dpbook.expfam import Dirichlet
    >>> Dirichlet([1, 1, 2]).mean
    array([0.25, 0.25, 0.5 ])

    Explained in :doc:`/book/background/bayesian-primer`.
    """

    alpha: ArrayLike

    def __post_init__(self) -> None:
        alpha = finite_array("alpha", self.alpha, ndim=1)
        if alpha.size < 2 or (alpha <= 0).any():
            raise ValueError(f"alpha must hold two or more numbers greater than 0, got {alpha}")
        object.__setattr__(self, "alpha", alpha)

    @property
    def mean(self) -> Array:
        """The prior mean."""
        alpha = np.asarray(self.alpha)
        return np.asarray(alpha / alpha.sum())

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws from the prior.

        Parameters
        ----------
        shape : int or tuple of int
            The shape of the batch; the categories are one more axis.
        rng : numpy.random.Generator, optional
            The source of randomness.

        Returns
        -------
        ndarray
            The draws.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.expfam import Dirichlet
        >>> Dirichlet([1, 1, 2]).draw(1, np.random.default_rng(0)).shape
        (1, 3)

        Explained in :doc:`/book/background/bayesian-primer`.
        """
        return analyst_generator(rng).dirichlet(np.asarray(self.alpha), shape)


@dataclass(frozen=True)
class NormalInverseGamma:
    """A prior for the mean and variance of a normal distribution.

    The variance is InverseGamma(shape, rate); given it, the mean is N(mean, variance / strength).

    Parameters
    ----------
    mean : float
        The prior mean of the mean.
    strength : float
        How many records the prior of the mean is worth.
    shape, rate : float
        Of the inverse gamma distribution of the variance.

    Examples
    --------
    >>> from dpbook.expfam import NormalInverseGamma
    >>> NormalInverseGamma(0.0, 1.0, 3.0, 2.0)
    NormalInverseGamma(mean=0.0, strength=1.0, shape=3.0, rate=2.0)

    Explained in :doc:`/book/background/bayesian-primer`.
    """

    mean: float
    strength: float
    shape: float
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", finite_number("mean", self.mean))
        for name in ("strength", "shape", "rate"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws of (mean, variance) from the prior.

        Parameters
        ----------
        shape : int or tuple of int
            The shape of the batch; (mean, variance) is one more axis.
        rng : numpy.random.Generator, optional
            The source of randomness.

        Returns
        -------
        ndarray
            The draws.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.expfam import NormalInverseGamma
        >>> NormalInverseGamma(0, 1, 3, 2).draw(4, np.random.default_rng(0)).shape
        (4, 2)

        Explained in :doc:`/book/background/bayesian-primer`.
        """
        rng = analyst_generator(rng)
        variance = self.rate / rng.gamma(self.shape, 1.0, shape)
        return np.stack(
            [rng.normal(self.mean, np.sqrt(variance / self.strength)), variance],
            axis=-1,
        )
