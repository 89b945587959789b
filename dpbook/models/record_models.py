"""Models of your own for the sampler that draws the records themselves: exact at any n, affordable where it is small.

:mod:`dpbook.latent_records` runs it. A record is its uniform numbers: it is proposed anew by drawing them anew, and
when parameters move, all records move with them, uniform numbers held. Where a density is given, parameters move given
the records instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array, times
from dpbook.models.model import Law

__all__ = ["GivenRecords", "HeldUniforms", "Place"]

_LENGTHS = np.array([1.0, 0.4, 0.15, 0.05, 0.02])  # of proposals, in posterior sds: one of them by lot
_STEPS = 4  # of parameters given records, where a density is known


class Place(NamedTuple):
    """Parameters, as a position on the real line, (B, dim)."""

    position: Array


class HeldUniforms:
    """Records as uniform numbers followed by their statistics, (B, n, dimension + k)."""

    def __init__(self, law: Law, root: Array) -> None:
        self._law, self._root = law, root  # (B, dim, dim), of proposals
        self._cut = law.model.uniforms + 1  # one more uniform number chooses among weighted answers

    def propose(self, parameters: Place, n: int, rng: np.random.Generator) -> Array:
        """Draw uniform numbers, and what the model makes of them."""
        return self._made(parameters.position, rng.random((len(parameters.position), n, self._cut)))

    def _made(self, position: Array, uniforms: Array) -> Array:
        inside = np.clip(np.moveaxis(uniforms, -1, 0), 2.0**-40, 1 - 2.0**-40)
        found = self._law.simulated(position, inside[:-1])
        values = found.statistics
        if found.weights is not None:
            ends = np.cumsum(found.weights, axis=-1)
            chosen = (inside[-1][..., None] * ends[..., -1:] > ends[..., :-1]).sum(axis=-1)
            values = np.take_along_axis(values, chosen[..., None, None], axis=2)[:, :, 0]
        return np.concatenate([uniforms, values], axis=-1)

    def statistics(self, records: Array) -> Array:
        """Return what each record adds to the released sums."""
        return records[..., self._cut :]

    def update(self, parameters: Place, records: Array, rng: np.random.Generator) -> Place:
        """Leave the parameters: given uniform numbers, only the noise knows of them."""
        return parameters

    def move(self, parameters: Place, records: Array, rng: np.random.Generator) -> tuple[Place, Array, Array]:
        """Propose parameters near by, and the records that they make of the same uniform numbers."""
        position = _near(parameters.position, self._root, rng)
        prior = self._law.coordinates.log_prior
        log_ratio = prior(position) - prior(parameters.position)
        possible = np.isfinite(log_ratio)
        position = np.where(possible[:, None], position, parameters.position)
        return Place(position), self._made(position, records[..., : self._cut]), np.where(possible, log_ratio, -np.inf)


def _near(position: Array, root: Array, rng: np.random.Generator) -> Array:
    length = rng.choice(_LENGTHS, size=(len(position), 1))
    return np.asarray(position + length * times(root, rng.standard_normal(position.shape)))


class GivenRecords:
    """Records as their columns before clipping, (B, n, columns), for a model with a log density or an update."""

    def __init__(self, law: Law, root: Array) -> None:
        self._law, self._root = law, root

    def propose(self, parameters: Place, n: int, rng: np.random.Generator) -> Array:
        """Draw records from the model."""
        shape = (len(parameters.position), n)
        uniforms = np.clip(rng.random((self._law.model.uniforms, *shape)), 2.0**-40, 1 - 2.0**-40)
        columns, weights = self._law.columns(parameters.position, uniforms)
        stacked = np.stack([np.broadcast_to(each, (*shape, *np.shape(each)[2:])) for each in columns.values()], axis=-1)
        if weights is None:
            return np.asarray(stacked, dtype=np.float64)
        ends = np.cumsum(np.broadcast_to(weights, stacked.shape[:-1]), axis=-1)
        chosen = (rng.random((*shape, 1)) * ends[..., -1:] > ends[..., :-1]).sum(axis=-1)
        return np.asarray(np.take_along_axis(stacked, chosen[..., None, None], axis=2)[:, :, 0], dtype=np.float64)

    def _by_name(self, records: Array) -> dict[str, Array]:
        return {name: records[..., i] for i, name in enumerate(self._law.layout.columns)}

    def statistics(self, records: Array) -> Array:
        """Return what each record adds to the released sums, after clipping."""
        layout = self._law.layout
        return layout.values({name: layout.clipped(name, each) for name, each in self._by_name(records).items()})

    def update(self, parameters: Place, records: Array, rng: np.random.Generator) -> Place:
        """Draw parameters given records by the model's own update, or move them by its log density."""
        position, named = parameters.position, self._by_name(records)
        if self._law.model.update is not None:
            now = {name: each[:, None] for name, each in self._law.coordinates.parameters(position).items()}
            return Place(self._law.coordinates.position(_flat(self._law.model.update(now, named, rng), position)))
        value = self._log_density(position, named)
        for _ in range(_STEPS):
            there = _near(position, self._root, rng)
            new = self._log_density(there, named)
            taken = np.log(rng.random(len(new))) < new - value
            position, value = np.where(taken[:, None], there, position), np.where(taken, new, value)
        return Place(position)

    def _log_density(self, position: Array, records: Mapping[str, Array]) -> Array:
        parameters = {name: each[:, None] for name, each in self._law.coordinates.parameters(position).items()}
        density: Any = self._law.model.log_density
        with np.errstate(all="ignore"):
            total = np.asarray(density(parameters, records)).sum(axis=1) + self._law.coordinates.log_prior(position)
        return np.where(np.isnan(total), -np.inf, total)

    def move(self, parameters: Place, records: Array, rng: np.random.Generator) -> tuple[Place, Array, Array]:
        """Propose nothing: what uniform numbers made the records is not known."""
        return parameters, records, np.full(len(records), -np.inf)


def _flat(parameters: Mapping[str, Any], position: Array) -> dict[str, Array]:
    return {name: np.reshape(np.asarray(each, dtype=np.float64), len(position)) for name, each in parameters.items()}
