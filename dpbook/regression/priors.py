"""Conjugate priors of linear regression: what is believed of the coefficients, and of the covariates.

:class:`NormalInverseGamma` is the prior of the coefficients and the error variance, as in ordinary Bayesian regression.
:class:`NormalInverseWishart` is the prior of the covariates' mean and covariance; without privacy nobody needs it,
because one conditions on the covariates, but a private release hides them. Both are given in the data's own units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbook._validation import analyst_generator, finite_array, finite_number, integer, positive

__all__ = ["NormalInverseGamma", "NormalInverseWishart"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NormalInverseGamma:
    """A prior of regression coefficients and error variance.

    ``sigma2 ~ InverseGamma(shape, rate)`` and, given it, ``theta ~ N(mean, sigma2 precision^-1)``: ``precision`` is how
    many records the prior is worth, so that Var(theta) is about ``rate / (shape - 1) / precision``.

    Parameters
    ----------
    mean : float or sequence of float
        Of the coefficients, the intercept first; one number holds for all.
    precision : float, sequence of float or matrix
        One number for all coefficients, one for each, or a positive definite matrix.
    shape, rate : float
        Of the inverse gamma distribution of the error variance, greater than 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression import NormalInverseGamma
    >>> prior = NormalInverseGamma(mean=[0, 0], precision=[0.25, 0.25], shape=20, rate=0.5)
    >>> theta, sigma2 = prior.draw(1000, np.random.default_rng(1))
    >>> theta.shape, round(float(sigma2.mean()), 3)  # rate / (shape - 1)
    ((1000, 2), 0.026)

    Explained in :doc:`/book/regression/private-least-squares`.
    """

    mean: ArrayLike
    precision: ArrayLike
    shape: float
    rate: float

    def __post_init__(self) -> None:
        mean, precision = _vector("mean", self.mean), _positive_definite("precision", self.precision)
        _same_length("precision", precision, mean)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "precision", precision)
        for name in ("shape", "rate"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.mean, self.precision, self.shape, self.rate)

    def __repr__(self) -> str:
        return _shown(self, ("mean", "precision", "shape", "rate"))

    def draw(self, count: int, rng: np.random.Generator | None = None) -> tuple[Array, Array]:
        """Return independent draws from the prior.

        Parameters
        ----------
        count : int
            How many.
        rng : numpy.random.Generator, optional
            The source of randomness.

        Returns
        -------
        theta : ndarray, shape (count, coefficients)
        sigma2 : ndarray, shape (count,)
        """
        rng, count = analyst_generator(rng), integer("count", count, least=1)
        mean, precision = self._sized(max(np.size(self.mean), len(np.atleast_1d(self.precision))), "prior")
        sigma2 = self.rate / rng.standard_gamma(self.shape, count)
        z = rng.standard_normal((count, mean.size, 1))
        spread = np.linalg.solve(np.swapaxes(np.linalg.cholesky(precision), -1, -2), z)[..., 0]
        return mean + np.sqrt(sigma2)[:, None] * spread, sigma2

    def _sized(self, size: int, name: str) -> tuple[Array, Array]:
        """Return mean and precision for this many coefficients; raise, naming the argument, where they do not fit."""
        return _fit(name, self.mean, self.precision, size, "coefficients (the intercept counts)")


@dataclass(frozen=True, eq=False)
class NormalInverseWishart:
    """A prior of the mean and covariance of the covariates, seen as normal.

    ``cov_x ~ InverseWishart(scale, dof)``, whose mean is ``scale / (dof - d - 1)`` for ``dof > d + 1``; given it,
    ``mean_x ~ N(mean, cov_x / strength)``.

    Parameters
    ----------
    mean : float or sequence of float
        Prior mean of the covariates' mean; one number holds for all.
    strength : float
        How many records the prior of the mean is worth, greater than 0.
    scale : float, sequence of float or matrix
        One number for all covariates, one for each, or a positive definite matrix.
    dof : float
        Degrees of freedom, greater than d - 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression import NormalInverseWishart
    >>> covariates = NormalInverseWishart(mean=[0.0], strength=1, scale=1, dof=50)
    >>> mean_x, cov_x = covariates.draw(1000, np.random.default_rng(1))
    >>> mean_x.shape, cov_x.shape, round(float(cov_x.mean()), 3)  # 1 / (50 - 2)
    ((1000, 1), (1000, 1, 1), 0.021)

    Explained in :doc:`/book/regression/private-covariates`.
    """

    mean: ArrayLike
    strength: float
    scale: ArrayLike
    dof: float

    def __post_init__(self) -> None:
        mean, scale = _vector("mean", self.mean), _positive_definite("scale", self.scale)
        _same_length("scale", scale, mean)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "strength", positive("strength", self.strength))
        object.__setattr__(self, "dof", positive("dof", self.dof))
        self._check_dof(max(np.size(mean), len(np.atleast_1d(scale))))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.mean, self.strength, self.scale, self.dof)

    def __repr__(self) -> str:
        return _shown(self, ("mean", "strength", "scale", "dof"))

    def draw(self, count: int, rng: np.random.Generator | None = None) -> tuple[Array, Array]:
        """Return independent draws from the prior.

        Parameters
        ----------
        count : int
            How many.
        rng : numpy.random.Generator, optional
            The source of randomness.

        Returns
        -------
        mean_x : ndarray, shape (count, d)
        cov_x : ndarray, shape (count, d, d)
        """
        rng, count = analyst_generator(rng), integer("count", count, least=1)
        mean, scale = self._sized(max(np.size(self.mean), len(np.atleast_1d(self.scale))), "covariates")
        wide = np.broadcast_to(scale, (count, *scale.shape))
        return draw_normal_inverse_wishart(mean, np.full(count, self.strength), wide, np.full(count, self.dof), rng)

    def _check_dof(self, d: int) -> None:
        if self.dof <= d - 1:
            raise ValueError(f"dof must be greater than d - 1 = {d - 1}, got {self.dof}")

    def _sized(self, d: int, name: str) -> tuple[Array, Array]:
        self._check_dof(d)
        return _fit(name, self.mean, self.scale, d, "covariates")


def draw_normal_inverse_wishart(
    mean: Array, strength: Array, scale: Array, dof: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw (mean_x, cov_x) for a batch of parameters; the batch is ``scale``'s leading axes.

    Bartlett: with scale = L L' and a lower triangular A, independent normals below a diagonal of chis with
    dof, dof - 1, … degrees, ``cov = R R'`` with ``R = L A'^-1`` is inverse Wishart.
    """
    d = scale.shape[-1]
    batch = scale.shape[:-2]
    freedom = np.broadcast_to(dof, batch)[..., None] - np.arange(d)
    bartlett = np.sqrt(2 * rng.standard_gamma(freedom / 2))[..., None] * np.eye(d)
    if d > 1:
        below = np.tril_indices(d, -1)
        bartlett[..., below[0], below[1]] = rng.standard_normal((*batch, len(below[0])))
    root = cholesky(scale)
    # R' = A^-1 L'
    right = np.linalg.solve(bartlett, np.swapaxes(root, -1, -2)) if d > 1 else root / bartlett
    cov = np.swapaxes(right, -1, -2) @ right
    z = rng.standard_normal((*batch, 1, d)) / np.sqrt(np.broadcast_to(strength, batch))[..., None, None]
    return mean + (z @ right)[..., 0, :], np.asarray(cov, dtype=np.float64)


def cholesky(matrix: Array) -> Array:
    """Return the Cholesky factors of a batch of matrices that are positive definite but for rounding."""
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        # Sums of a billion records round at 1e-7, which may exceed a weak prior's precision.
        trace = np.trace(matrix, axis1=-2, axis2=-1)[..., None, None]
        lifted = matrix + (1e-10 * trace + 1e-250) * np.eye(matrix.shape[-1])
        return np.asarray(np.linalg.cholesky(lifted), dtype=np.float64)


def _vector(name: str, value: ArrayLike) -> Array | float:
    array = finite_array(name, value)
    if array.ndim == 0:
        return finite_number(name, array.item())
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be a number or a sequence of numbers, got shape {array.shape}")
    return _read_only(array)


def _positive_definite(name: str, value: ArrayLike) -> Array | float:
    array = finite_array(name, value)
    if array.ndim == 0:
        return positive(name, array.item())
    if array.ndim == 1:
        if not array.size or (array <= 0).any():
            raise ValueError(f"{name} must hold numbers greater than 0, got {array}")
        return _read_only(np.diag(array))
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"{name} must be a number, a sequence or a square matrix, got shape {array.shape}")
    symmetric = (array + array.T) / 2
    if not np.allclose(array, symmetric, rtol=1e-8, atol=0) or not _is_positive_definite(symmetric):
        raise ValueError(f"{name} must be symmetric and positive definite, got {array.tolist()}")
    return _read_only(symmetric)


def _is_positive_definite(matrix: Array) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def _same_length(name: str, matrix: ArrayLike, mean: ArrayLike) -> None:
    if np.ndim(matrix) == 2 and np.ndim(mean) == 1 and len(np.asarray(matrix)) != np.size(mean):
        raise ValueError(
            f"{name} must have as many rows as mean has entries, got {np.shape(matrix)} and {np.size(mean)}"
        )


def _fit(name: str, mean: ArrayLike, matrix: ArrayLike, size: int, what: str) -> tuple[Array, Array]:
    for part in (np.atleast_1d(mean), np.atleast_1d(matrix)):
        if len(part) not in (1, size) or (len(part) == 1 and size > 1 and np.ndim(part) == 2):
            raise ValueError(f"{name} must be for {size} {what}, got one for {len(part)}")
    wide = np.broadcast_to(np.asarray(mean, dtype=np.float64), (size,))
    square = np.asarray(matrix, dtype=np.float64)
    return wide, square if square.ndim == 2 else square * np.eye(size)


def _shown(prior: object, names: tuple[str, ...]) -> str:
    values = ", ".join(f"{name}={np.asarray(getattr(prior, name)).tolist()}" for name in names)
    return f"{type(prior).__name__}({values})"
