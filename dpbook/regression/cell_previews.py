"""What a release on a schema would be worth: a design in which labels are equally likely, and numbers as stated.

The same questions as in :mod:`dpbook.regression.previews`, answered with the law of records in cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import finite_array, fraction, positive
from dpbook.regression.cell_law import CellLaw
from dpbook.regression.design import Design
from dpbook.regression.scale_free import Straightened
from dpbook.regression.sensitivities import sensitivity_by_cell
from dpbook.widths import Chance, information_at, posterior_widths

__all__: list[str] = []

_SPREAD, _R_SQUARED = 0.2, 0.25  # as in previews
_RELEASES, _DRAWS = 24, 600


@dataclass(frozen=True, eq=False)
class CellPlan:
    """A release on a schema to come: its noise, and where its law is."""

    n: int
    design: Design
    laplace: bool
    spreads: Array  # of the numbers, in coordinates
    sd_y: float  # in coordinates
    r_squared: float

    first = 1  # coefficients that are no slopes

    @classmethod
    def of(cls, n: int, design: Design, mechanism: str, sd_x: Any, sd_y: Any, r_squared: Any) -> CellPlan:
        """Check what is stated of the design and return the plan."""
        y = design.outcome
        of_y = 2 * _SPREAD if sd_y is None else positive("sd_y", sd_y) / y.unit
        explained = _R_SQUARED if r_squared is None else fraction("r_squared", r_squared)
        if of_y >= 1:
            raise ValueError(f"sd_y must be less than half the width of the bounds, {y.unit:g}, got {sd_y:g}")
        return cls(n, design, mechanism == "laplace", _spreads(design, sd_x), of_y, explained)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the coefficients are called."""
        return self.design.labels

    @property
    def sensitivity(self) -> float:
        """Of the rounded sums."""
        return sensitivity_by_cell(self.design, "laplace" if self.laplace else "gaussian")

    @cached_property
    def turn(self) -> Array:
        """The linear part of the map from coefficients in coordinates to the data's units, (q, q)."""
        size = len(self.labels)
        return np.asarray((self.design.theta_out(np.eye(size)) - self.design.theta_out(np.zeros(size))).T)

    @cached_property
    def _law(self) -> CellLaw:
        return CellLaw(self.design)

    @cached_property
    def _position(self) -> Array:
        """Where the design is, (dim, 1): cells equally likely, numbers uncorrelated, coefficients of one effect."""
        at, position = self._law.places, np.zeros((self._law.dim, 1))
        of_products = [np.prod(self.spreads ** np.array(powers)) for powers in self.design.products]
        held = self.design.held if self.design.crossed else self.design.held.mean(axis=0, keepdims=True)
        share = np.clip(np.broadcast_to(of_products, held.shape) / np.sqrt(np.maximum(held, 1e-3)), 1e-3, 0.999)
        position[at.spread, 0] = np.log(share / (1 - share)).ravel()
        position[at.slopes] = np.sqrt(self.r_squared / (1 - self.r_squared) / at.d)
        position[at.log_error] = np.log(self.sd_y * np.sqrt(1 - self.r_squared))
        return position

    def cov(self, noise_variance: float) -> Array:
        """Return the covariance (q, q) of the coefficients, in coordinates, by the information at the design."""
        law = self._law
        information = information_at(law, self._position, self.n, noise_variance)
        steps = 1e-5 * np.eye(law.dim)[:, :, None]
        ends = [law.parameters(self._position + e)[0] - law.parameters(self._position - e)[0] for e in steps]
        slope = np.concatenate(ends) / 2e-5
        return np.asarray(slope.T @ np.linalg.solve(information, slope))

    def hidden(self, scale: float) -> float:
        """Return the noise of a cell's sums over the least that records say of a carrier."""
        at = self._law.places
        mean, held = self._law.mean(self._position)[0], self.design.pairs[:, 0] == self.design.pairs[:, 1]
        squares = mean[held & at.of_x]
        noise = np.sqrt(2 if self.laplace else 1) * scale
        return float(noise / (self.n * squares.min())) if len(squares) else 0.0

    def widths(self, scale: float) -> Array:
        """Return the widths (release, q) of intervals in the data's units, over simulated releases."""
        mean, cov = self._law.moments(self._position)[:2]
        chance = Chance.drawn(_RELEASES, mean.shape[1], self.laplace)
        sums = chance.sums(mean[0], cov[0], self.n, scale, self.laplace)
        law = Straightened(self._law, sums)
        start = law.straight(np.repeat(self._position, _RELEASES, axis=1))
        return posterior_widths(law, sums, start, lambda at: self.design.theta_out(law.parameters(at)[0]), _DRAWS)


def _spreads(design: Design, sd_x: Any) -> Array:
    """Return the standard deviation of each number, in coordinates."""
    names = [each.source.text for each in design.numerics]
    units = np.array([each.unit for each in design.numerics])
    if sd_x is None:
        return np.full(len(names), 2 * _SPREAD)
    if isinstance(sd_x, Mapping):
        if set(sd_x) != set(names):
            raise ValueError(f"sd_x must name the numbers {names}, it names {list(sd_x)}")
        sd_x = [sd_x[name] for name in names]
    given = finite_array("sd_x", sd_x)
    if given.shape not in ((), (len(names),)) or (given <= 0).any() or (given >= units).any():
        raise ValueError(f"sd_x must be positive, less than half the width of the bounds, for {names}; got {sd_x!r}")
    return np.asarray(np.broadcast_to(given, (len(names),)) / units)
