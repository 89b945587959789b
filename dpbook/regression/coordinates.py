"""From the data's units to the coordinates in which statistics are released, and back, exactly.

Each column, the response included, is centred and scaled so that its public bounds become [-1, 1]; without an
intercept it is scaled only (centring would bring one in), so that the farther bound becomes 1 or -1. The map depends
on public bounds alone. Coefficients, error variance and priors follow it by exact linear algebra, so that results do
not depend on the units: a posterior computed in coordinates and mapped back is the posterior in the data's units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook._validation import finite_array, interval
from dpbook.regression.priors import NormalInverseGamma, NormalInverseWishart

__all__ = ["Coordinates", "column_bounds", "weak_covariates"]

Array = NDArray[np.float64]


def column_bounds(x_bounds: Any, y_bounds: Any, d: int | None = None) -> tuple[Array, Array]:
    """Return the lower and upper bounds of every column, the response last; raise on what is no pair of bounds.

    Parameters
    ----------
    x_bounds : (low, high)
        Two numbers, the same for all covariates, or two sequences of length d.
    y_bounds : (low, high)
        Two numbers.
    d : int, optional
        How many covariates there are; without it, two numbers describe one covariate.

    Returns
    -------
    tuple of array
        Lower and upper bounds, each of length d + 1.

    Examples
    --------
    >>> column_bounds((0, 1), (-5, 5), d=2)
    (array([ 0.,  0., -5.]), array([1., 1., 5.]))

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    try:
        low, high = x_bounds
    except (TypeError, ValueError):
        raise TypeError(f"x_bounds must be a pair (low, high) of numbers or of sequences, got {x_bounds!r}") from None
    lows, highs = finite_array("x_bounds[0]", low), finite_array("x_bounds[1]", high)
    if max(lows.ndim, highs.ndim) > 1 or min(lows.size, highs.size) == 0:
        raise ValueError(f"x_bounds must hold numbers or sequences, got shapes {lows.shape} and {highs.shape}")
    count = max(lows.size if lows.ndim else 0, highs.size if highs.ndim else 0) or (1 if d is None else d)
    if (d is not None and count != d) or any(part.ndim and part.size != count for part in (lows, highs)):
        sizes = f"{lows.shape} and {highs.shape}"
        raise ValueError(f"x_bounds must have one bound for each of the {d or count} covariates, got shapes {sizes}")
    lows, highs = np.broadcast_to(lows, (count,)), np.broadcast_to(highs, (count,))
    pairs = zip(lows.tolist(), highs.tolist(), strict=True)
    sides = [interval(f"x_bounds of covariate {j}", pair) for j, pair in enumerate(pairs)]
    sides.append(interval("y_bounds", y_bounds))
    lower, upper = np.array(sides).T
    return lower, upper


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The public map from columns in their own units to columns in [-1, 1].

    Parameters
    ----------
    lower, upper : array (d + 1,)
        The bounds of every column, the response last.
    intercept : bool
        True: columns are centred and scaled; False: scaled only.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression.coordinates import Coordinates
    >>> inside = Coordinates(np.array([0.0, 0.0]), np.array([10.0, 4.0]), intercept=True)
    >>> inside.records(np.array([[0.0, 4.0], [5.0, 99.0]])).tolist()  # the second response is clipped
    [[-1.0, 1.0], [0.0, 1.0]]

    The line y = 1 + 0.2 x reaches from (0, 1) to (10, 3), and in coordinates from (-1, -0.5) to (1, 0.5):

    >>> theta = np.array([1.0, 0.2])
    >>> inside.theta_in(theta).tolist()
    [0.0, 0.5]
    >>> inside.theta_out(inside.theta_in(theta)).round(12).tolist(), inside.sigma2_out(np.array(1.0)).tolist()
    ([1.0, 0.2], 4.0)

    Explained in :doc:`/book/regression/private-least-squares`.
    """

    lower: Array
    upper: Array
    intercept: bool

    @property
    def d(self) -> int:
        """The number of covariates."""
        return len(self.lower) - 1

    @property
    def centre(self) -> Array:
        """What is subtracted from each column, the response last; 0 without an intercept."""
        return self.lower + (self.upper - self.lower) / 2 if self.intercept else np.zeros(len(self.lower))

    @property
    def unit(self) -> Array:
        """What each centred column is divided by (half the width, or without an intercept the farther bound)."""
        if self.intercept:
            return np.asarray((self.upper - self.lower) / 2)
        return np.maximum(np.abs(self.lower), np.abs(self.upper))

    @property
    def box(self) -> tuple[Array, Array]:
        """The bounds in coordinates, as the very floats that records are clipped to."""
        if self.intercept:
            return -np.ones(self.d + 1), np.ones(self.d + 1)
        return self.lower / self.unit, self.upper / self.unit

    def records(self, rows: Array) -> Array:
        """Return records in coordinates, clipped to the bounds.

        Parameters
        ----------
        rows : array (records, d + 1)
            In the data's units, the response last.

        Returns
        -------
        array
            Of the same shape, in :attr:`box`.
        """
        return np.clip((rows - self.centre) / self.unit, *self.box)

    def theta_in(self, theta: Array) -> Array:
        """Return coefficients in coordinates.

        Parameters
        ----------
        theta : array (..., q)
            In the data's units.

        Returns
        -------
        array (..., q)
            Slopes times their covariate's unit over the response's; the intercept is the line's height at the centre.
        """
        return np.asarray((theta @ self._slopes().T + self._shift()) / self.unit[-1])

    def theta_out(self, theta: Array) -> Array:
        """Return coefficients in the data's units.

        Parameters
        ----------
        theta : array (..., q)
            In coordinates.

        Returns
        -------
        array (..., q)
            The inverse of :meth:`theta_in`.
        """
        q = int(self.intercept)
        slopes = theta[..., q:] * self.unit[-1] / self.unit[:-1]
        if not self.intercept:
            return np.asarray(slopes)
        height = self.centre[-1] + self.unit[-1] * theta[..., :1] - (slopes @ self.centre[:-1])[..., None]
        return np.concatenate([height, slopes], axis=-1)

    def sigma2_out(self, sigma2: Array) -> Array:
        """Return the error variance in the data's units.

        Parameters
        ----------
        sigma2 : array
            In coordinates.

        Returns
        -------
        array
            Times the square of the response's unit.
        """
        return np.asarray(sigma2 * self.unit[-1] ** 2)

    def prior_in(self, prior: NormalInverseGamma) -> NormalInverseGamma:
        """Return the prior of the coefficients and the error variance in coordinates.

        Parameters
        ----------
        prior : NormalInverseGamma
            In the data's units.

        Returns
        -------
        NormalInverseGamma
            The same belief: with theta' = A theta + b and sigma2' = sigma2 / unit², the precision becomes
            A'^-1 precision A^-1 / unit².

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.regression import NormalInverseGamma
        >>> from dpbook.regression.coordinates import Coordinates
        >>> inside = Coordinates(np.array([0.0, 0.0]), np.array([2.0, 20.0]), intercept=True)
        >>> inside.prior_in(NormalInverseGamma([10, 0], 1.0, 2, 50)).rate
        0.5
        """
        q = self.d + int(self.intercept)
        mean, precision = prior._sized(q, "prior")
        back = np.linalg.inv(self._slopes())  # theta = back (unit theta' - shift); the units cancel in the precision
        mapped = back.T @ precision @ back
        rate = prior.rate / self.unit[-1] ** 2
        return NormalInverseGamma(self.theta_in(mean), (mapped + mapped.T) / 2, prior.shape, rate)

    def covariates_in(self, covariates: NormalInverseWishart | None) -> NormalInverseWishart:
        """Return the prior of the covariates in coordinates; for None the weak one of :func:`weak_covariates`.

        Parameters
        ----------
        covariates : NormalInverseWishart or None
            In the data's units.

        Returns
        -------
        NormalInverseWishart
            The same belief.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbook.regression.coordinates import Coordinates
        >>> Coordinates(np.zeros(2), np.array([10.0, 1.0]), intercept=True).covariates_in(None).scale.tolist()
        [[0.25]]
        """
        if covariates is None:
            covariates = weak_covariates(self.lower[:-1], self.upper[:-1])
        mean, scale = covariates._sized(self.d, "covariates")
        centre, unit = self.centre[:-1], self.unit[:-1]
        mapped = scale / unit / unit[:, None]
        return NormalInverseWishart((mean - centre) / unit, covariates.strength, mapped, covariates.dof)

    def _slopes(self) -> Array:
        """Return A with unit_y theta' = A theta + shift: the intercept gathers the slopes at the centre."""
        unit, centre = self.unit[:-1], self.centre[:-1]
        if not self.intercept:
            return np.diag(unit)
        matrix = np.diag(np.concatenate([[1.0], unit]))
        matrix[0, 1:] = centre
        return matrix

    def _shift(self) -> Array:
        shift = np.zeros(self.d + int(self.intercept))
        if self.intercept:
            shift[0] = -self.centre[-1]
        return shift


def weak_covariates(lower: Array, upper: Array) -> NormalInverseWishart:
    """Return the weak prior of the covariates that their bounds suggest.

    With h half the width of each column: mean in the middle, worth one record; scale diag(h²/4), d + 2 degrees of
    freedom. Then E[cov_x] = diag(h²/4), and 90 % of the prior puts a covariate's standard deviation between .18 h and
    .84 h.

    Parameters
    ----------
    lower, upper : array (d,)
        Bounds of the covariates.

    Returns
    -------
    NormalInverseWishart
        In the units of the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> weak_covariates(np.array([0.0]), np.array([10.0]))
    NormalInverseWishart(mean=[5.0], strength=1.0, scale=[[6.25]], dof=3.0)

    Explained in :doc:`/book/regression/private-covariates`.
    """
    half = (np.asarray(upper) - np.asarray(lower)) / 2
    return NormalInverseWishart(np.asarray(lower) + half, 1.0, np.diag(half**2 / 4), half.size + 2.0)
