"""From the data's units to the coordinates in which statistics are released, and back, exactly.

Each column, the response included, is centred and scaled so that its public bounds become [-1, 1]; without an
intercept it is scaled only (centring would bring one in), so that the farther bound becomes 1 or -1. The map depends
on public bounds alone. Coefficients, error variance and priors follow it by exact linear algebra, so that a posterior
computed in coordinates and mapped back is the posterior in the data's units. The columns' names travel with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import interval
from dpbook.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.release import Release

__all__: list[str] = []

Pair = tuple[float, float]

MODEL = "linear regression"
INTERCEPT, RESPONSE = "(intercept)", "(response)"
WHERE_FROM = (
    "public bounds (low, high) that records are clipped to. They come from what is known without the data, such as a "
    "code book or the question asked, never from the data; where nothing is known, dpbook.expfam.private_bounds finds "
    "some and spends budget on them"
)
_ONE_FOR_EACH = "a list with a tuple (low, high) for each covariate, or a mapping from column names to such pairs"
_NARROWEST = 2.0**-990  # half of it and its inverse are normal floats


def covariate_bounds(x_bounds: Any) -> Pair | list[Pair] | dict[str, Pair]:
    """Return the covariates' bounds as checked pairs: one for all, a list with one each, or a mapping from names.

    Two sequences in a tuple, or two lists in a list, could be the bounds of two covariates as well as all lows and
    all highs, and are refused.
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

    ``d`` is the number of covariates (without it, one pair describes one), ``names`` what the keys of a mapping are.
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


def column_names(labels: Sequence[Any] | None, d: int, response: Any = None) -> tuple[str, ...]:
    """Return what d covariates are called, and last the response: by their labels, or x1, x2, … and y.

    Labels count where they are different strings, and none that tables of coefficients use themselves.
    """
    named = list(labels or ())
    strings = len(named) == d and all(isinstance(label, str) for label in named)
    if not strings or len(set(named)) < d or {INTERCEPT, RESPONSE} & set(named):
        named = [f"x{j + 1}" for j in range(d)]
    own = response if isinstance(response, str) else "y"
    return (*map(str, named), RESPONSE if own in (*named, INTERCEPT) else own)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The public map from columns in their own units to columns in [-1, 1].

    ``lower`` and ``upper`` are the bounds of every column, the response last; ``names`` is what they are called. With
    an intercept columns are centred and scaled, without one scaled only.
    """

    lower: Array
    upper: Array
    intercept: bool
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", column_names(None, self.d))

    @property
    def d(self) -> int:
        """The number of covariates."""
        return len(self.lower) - 1

    @property
    def regressors(self) -> int:
        """The number of coefficients, an intercept among them."""
        return self.d + int(self.intercept)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the coefficients are called, the intercept first."""
        return (INTERCEPT, *self.names[:-1]) if self.intercept else self.names[:-1]

    @property
    def bounds(self) -> dict[str, Pair]:
        """The bounds of every column by name, as a release shows them."""
        return dict(zip(self.names, zip(self.lower.tolist(), self.upper.tolist(), strict=True), strict=True))

    @property
    def settings(self) -> dict[str, Any]:
        """What a release says beside the bounds, so that an analyst can restore this map."""
        return {"intercept": self.intercept, "columns": list(self.names[:-1]), "response": self.names[-1]}

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
        """Return records (n, d + 1), the response last, in coordinates and clipped to the bounds."""
        return np.clip((rows - self.centre) / self.unit, *self.box)

    def theta_in(self, theta: Array) -> Array:
        """Return coefficients (..., q) in coordinates; the intercept becomes the line's height at the centre."""
        return np.asarray((theta @ self.slopes().T + self._shift()) / self.unit[-1])

    def theta_out(self, theta: Array) -> Array:
        """Return coefficients (..., q) in the data's units."""
        q = int(self.intercept)
        slopes = theta[..., q:] * self.unit[-1] / self.unit[:-1]
        if not self.intercept:
            return np.asarray(slopes)
        height = self.centre[-1] + self.unit[-1] * theta[..., :1] - (slopes @ self.centre[:-1])[..., None]
        return np.concatenate([height, slopes], axis=-1)

    def sigma2_out(self, sigma2: Array) -> Array:
        """Return error variances in the data's units."""
        return np.asarray(sigma2 * self.unit[-1] ** 2)

    def prior_in(self, prior: NormalInverseGamma) -> NormalInverseGamma:
        """Return a prior of the coefficients and the error variance in coordinates: the same belief.

        With theta' = A theta + b and sigma2' = sigma2 / unit², the precision becomes A'^-1 precision A^-1 / unit².
        """
        mean, precision = prior.sized(self.regressors, "prior")
        back = np.linalg.inv(self.slopes())  # theta = back (unit theta' - shift); the units cancel in the precision
        mapped = back.T @ precision @ back
        rate = prior.rate / self.unit[-1] ** 2
        return NormalInverseGamma(self.theta_in(mean), (mapped + mapped.T) / 2, prior.shape, rate)

    def covariates_in(self, covariates: NormalInverseWishart) -> NormalInverseWishart:
        """Return a prior of the covariates in coordinates: the same belief."""
        mean, scale = covariates.sized(self.d, "covariates")
        centre, unit = self.centre[:-1], self.unit[:-1]
        mapped = scale / unit / unit[:, None]
        return NormalInverseWishart((mean - centre) / unit, covariates.strength, mapped, covariates.dof)

    def slopes(self) -> Array:
        """Return A with unit_y theta' = A theta + shift: the intercept gathers the slopes at the centre."""
        unit, centre = self.unit[:-1], self.centre[:-1]
        if not self.intercept:
            return np.diag(unit)
        matrix = np.diag(np.concatenate([[1.0], unit]))
        matrix[0, 1:] = centre
        return matrix

    def _shift(self) -> Array:
        shift = np.zeros(self.regressors)
        if self.intercept:
            shift[0] = -self.centre[-1]
        return shift


def coordinates_of(release: Release) -> Coordinates:
    """Return the map between a release's coordinates and the data's units, from its public bounds."""
    try:
        names = (*release.settings["columns"], release.settings["response"])
        lower, upper = np.array([release.bounds[name] for name in names]).T
        return Coordinates(lower, upper, bool(release.settings["intercept"]), names)
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            "release must have the settings 'intercept', 'columns' and 'response', and bounds for each column, "
            f"got settings {dict(release.settings)} and bounds for {list(release.bounds)}"
        ) from None
