"""Families for the sampler that draws the records themselves: exact at any n, affordable where it is small.

:mod:`dpbook.latent_records` runs it: every record is proposed anew from the family, and kept with the ratio of the
noise's densities; given the records, theta has its usual posterior.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array
from dpbook.expfam.family import Family

__all__ = ["FamilyRecords", "Theta"]


class Theta(NamedTuple):
    """The parameter, (B, ...)."""

    theta: Array


class FamilyRecords:
    """A family as the sampler of latent records wants it; records are (B, n, 1)."""

    def __init__(self, family: Family, prior: Any, outside: str) -> None:
        self._family, self._prior, self._outside = family, prior, outside

    def propose(self, parameters: Theta, n: int, rng: np.random.Generator) -> Array:
        """Draw records from the family."""
        return self._family.draw_records(parameters.theta, n, rng)[..., None]

    def statistics(self, records: Array) -> Array:
        """Return what each record adds to the released sums, (B, n, k)."""
        rows = self._family.released(records.reshape(-1, 1), self._outside)
        return np.asarray(rows).reshape(*records.shape[:2], -1)

    def update(self, parameters: Theta, records: Array, rng: np.random.Generator) -> Theta:
        """Draw theta from its conjugate posterior given the records."""
        sums = self._family.statistics(records.reshape(-1, 1)).reshape(*records.shape[:2], -1).sum(axis=1)
        n = np.full(len(sums), float(records.shape[1]))
        return Theta(self._family.draw_parameter(self._prior, sums, n, rng))

    def move(self, parameters: Theta, records: Array, rng: np.random.Generator) -> tuple[Theta, Array, Array]:
        """Move theta and stretch the records with it, so that their innovations stay."""
        theta, moved, log_ratio = self._family.stretched(self._prior, parameters.theta, records[..., 0], rng)
        return Theta(theta), moved[..., None], log_ratio
