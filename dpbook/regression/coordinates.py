"""From the data's units to the coordinates in which statistics are released, and back, exactly.

Each column, the response included, is centred and scaled so that its public bounds become [-1, 1]; without an
intercept it is scaled only (centring would bring one in), so that the farther bound becomes 1 or -1. The map depends
on public bounds alone. Coefficients, error variance and priors follow it by exact linear algebra, so that results do
not depend on the units: a posterior computed in coordinates and mapped back is the posterior in the data's units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import interval
from dpbook.priors import NormalInverseGamma, NormalInverseWishart

__all__ = ["Coordinates", "column_bounds", "covariate_bounds", "weak_covariates"]

Pair = tuple[float, float]

WHERE_FROM = (
    "public bounds (low, high) that records are clipped to. They come from what is known without the data, such as a "
    "code book or the question asked, never from the data; where nothing is known, dpbook.expfam.private_bounds finds "
    "some and spends budget on them"
)
_ONE_FOR_EACH = "a list with a tuple (low, high) for each covariate, or a mapping from column names to such pairs"
_NARROWEST = 2.0**-990  # half of it and its inverse are normal floats


def covariate_bounds(x_bounds: Any) -> Pair | list[Pair] | dict[str, Pair]:
    """Return the covariates' bounds as checked pairs; raise on what is none, and on what can be read in two ways.

    Parameters
    ----------
    x_bounds : (low, high), list of (low, high) or mapping of str to (low, high)
        One pair for all covariates; a list with one pair for each; or a mapping from the names of the columns. Two
        sequences in a tuple, or two lists in a list, could be the bounds of two covariates as well as all lows and
        all highs, and are refused.

    Returns
    -------
    tuple, list of tuple or dict
        The same, in floats.

    Examples
    --------
    >>> covariate_bounds([(0, 1), (5, 10)])
    [(0.0, 1.0), (5.0, 10.0)]

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    if x_bounds is None:
        raise TypeError(f"x_bounds must be given: {WHERE_FROM}")
    if isinstance(x_bounds, Mapping):
        if not x_bounds:
            raise ValueError("x_bounds must have a pair (low, high) for each column, got an empty mapping")
        return {name: _wide_enough(f"x_bounds[{name!r}]", pair) for name, pair in x_bounds.items()}
    try:
        parts = list(x_bounds)
        nested = [hasattr(part, "__len__") and not isinstance(part, str) and np.ndim(part) > 0 for part in parts]
    except (TypeError, ValueError):
        raise TypeError(f"x_bounds must be a pair (low, high), {_ONE_FOR_EACH}; got {x_bounds!r}") from None
    if not any(nested):
        return _wide_enough("x_bounds", tuple(parts))
    if len(parts) == 2 and not (isinstance(x_bounds, list) and all(isinstance(part, tuple) for part in parts)):
        raise ValueError(
            f"x_bounds can be read in two ways, as the pairs of two covariates or as all lows and all highs. Give "
            f"{_ONE_FOR_EACH}; two sequences lows and highs become one by list(zip(lows, highs)). Got {x_bounds!r}"
        )
    return [_wide_enough(f"x_bounds of covariate {j}", pair) for j, pair in enumerate(parts)]


def column_bounds(
    x_bounds: Any, y_bounds: Any, d: int | None = None, names: Sequence[str] | None = None
) -> tuple[Array, Array]:
    """Return the lower and upper bounds of every column, the response last; raise on what is no pair of bounds.

    Parameters
    ----------
    x_bounds : (low, high), list of (low, high) or mapping of str to (low, high)
        As :func:`covariate_bounds` takes them.
    y_bounds : (low, high)
        Two numbers.
    d : int, optional
        How many covariates there are; without it, one pair describes one covariate.
    names : sequence of str, optional
        The covariates' names in order, where they have some: what the keys of a mapping refer to.

    Returns
    -------
    tuple of array
        Lower and upper bounds, each of length d + 1.

    Examples
    --------
    >>> column_bounds((0, 1), (-5, 5), d=2)
    (array([ 0.,  0., -5.]), array([1., 1., 5.]))
    >>> column_bounds({"age": (0, 99), "pay": (0, 9)}, (-5, 5), names=["pay", "age"])
    (array([ 0.,  0., -5.]), array([ 9., 99.,  5.]))

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    given = covariate_bounds(x_bounds)
    if isinstance(given, dict):
        order = list(given) if names is None else list(names)
        if set(order) != set(given):
            raise ValueError(f"x_bounds must name the columns of X, which are {order}; it names {list(given)}")
        sides = [given[name] for name in order]
    else:
        sides = given if isinstance(given, list) else [given] * (1 if d is None else d)
    if d is not None and len(sides) != d:
        raise ValueError(f"x_bounds must have one pair for each of the {d} covariates, got {len(sides)}")
    if y_bounds is None:
        raise TypeError(f"y_bounds must be given: {WHERE_FROM}")
    lower, upper = np.array([*sides, _wide_enough("y_bounds", y_bounds)]).T
    return lower, upper


def _wide_enough(name: str, pair: Any) -> Pair:
    """Return a pair of bounds whose width is a number that columns can be divided by."""
    low, high = interval(name, pair)
    if not _NARROWEST <= high - low < np.inf:
        raise ValueError(f"{name} must be at least 2**-990 apart, and at most the largest float; got ({low}, {high})")
    return low, high


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
