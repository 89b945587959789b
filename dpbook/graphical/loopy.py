"""Approximate inference where a junction tree would be too large: loopy belief propagation on the factor graph.

Messages are damped, live in the log domain, and report whether they settled. On trees the answer is exact; on graphs
with loops the marginals agree with each other on single variables (they lie in the local polytope), and the log
partition function is Bethe's approximation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import at_least, flag, integer, positive

__all__ = ["LoopyBeliefs", "LoopyGraph"]


@dataclass(frozen=True)
class LoopyBeliefs:
    """What loopy belief propagation returns.

    ``log_partition`` (1,) is Bethe's approximation of A(θ), ``marginals`` a table (1, ...) for each clique, ``singles``
    the marginal of each variable, ``iterations`` the sweeps over all messages, ``residual`` the largest change of a
    normalised log-message in the last; ``converged`` says whether it fell below the tolerance.
    """

    log_partition: Array
    marginals: list[Array]
    singles: list[Array]
    iterations: int
    residual: float
    converged: bool


class LoopyGraph:
    """A factor graph on which messages are passed until they settle, or ``iterations`` sweeps are over.

    ``damping`` is the share of the old message in the new one, from 0 to below 1; messages that change by less than
    ``tolerance`` have settled.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        cliques: Sequence[tuple[int, ...]],
        *,
        damping: float = 0.5,
        iterations: int = 500,
        tolerance: float = 1e-9,
    ) -> None:
        self.sizes = tuple(sizes)
        self.cliques = [tuple(clique) for clique in cliques]
        self.damping = at_least("damping", damping, 0)
        if self.damping >= 1:
            raise ValueError(f"damping must be below 1, got {damping}")
        self.iterations, self.tolerance = integer("iterations", iterations, least=1), positive("tolerance", tolerance)
        self._messages: dict[tuple[int, int], Array] = {}

    def infer(self, tables: Sequence[Array], *, warm: bool = False) -> LoopyBeliefs:
        """Pass messages until they settle, from flat ones or, as an optimiser does, from those of the last call."""
        if len(tables) != len(self.cliques):
            raise ValueError(f"tables must hold one for each of {len(self.cliques)} cliques, got {len(tables)}")
        factors = [table[0] for table in tables]
        flat = {(f, v): np.zeros(self.sizes[v]) for f, clique in enumerate(self.cliques) for v in clique}
        sent = dict(self._messages) if flag("warm", warm) and self._messages else flat
        inward = [sum((sent[f, v] for f, c in enumerate(self.cliques) if v in c), np.zeros(d)) for v, d in self._each()]
        residual, sweep = np.inf, 0
        while residual > self.tolerance and sweep < self.iterations:
            residual, sweep = 0.0, sweep + 1
            for f, clique in enumerate(self.cliques):
                belief = self._belief(f, factors[f], sent, inward)
                for axis, v in enumerate(clique):
                    others = tuple(a for a in range(len(clique)) if a != axis)
                    new = _log_sum_exp(belief, others) - (inward[v] - sent[f, v])
                    new = (1 - self.damping) * (new - new.max()) + self.damping * sent[f, v]
                    new -= new.max()
                    residual = max(residual, float(np.abs(new - sent[f, v]).max()))
                    inward[v] = inward[v] + new - sent[f, v]
                    sent[f, v] = new
        self._messages = sent
        singles = [np.exp(each - _log_sum_exp(each, (0,))) for each in inward]
        logs = [self._belief(f, factors[f], sent, inward) for f in range(len(factors))]
        marginals = [np.exp(each - _log_sum_exp(each, tuple(range(each.ndim)))) for each in logs]
        value = self._bethe(factors, marginals, singles)
        return LoopyBeliefs(
            np.array([value]), [m[None] for m in marginals], singles, sweep, residual, residual <= self.tolerance
        )

    def _each(self) -> list[tuple[int, int]]:
        return list(enumerate(self.sizes))

    def _belief(self, f: int, factor: Array, sent: dict[tuple[int, int], Array], inward: list[Array]) -> Array:
        clique = self.cliques[f]
        total = factor
        for axis, v in enumerate(clique):
            shape = [1] * len(clique)
            shape[axis] = self.sizes[v]
            total = total + (inward[v] - sent[f, v]).reshape(shape)
        return total

    def _bethe(self, factors: list[Array], marginals: list[Array], singles: list[Array]) -> float:
        """Return energy plus Bethe entropy: of the cliques, less that of each variable counted too often."""
        value = sum(float((m * f).sum()) + _entropy(m) for m, f in zip(marginals, factors, strict=True))
        for v, single in enumerate(singles):
            degree = sum(v in clique for clique in self.cliques)
            value -= (degree - 1) * _entropy(single)
        return value


def _log_sum_exp(table: Array, axes: tuple[int, ...]) -> Array:
    top = table.max(axis=axes, keepdims=True) if axes else table
    if not axes:
        return table
    return np.asarray(np.log(np.exp(table - top).sum(axis=axes)) + np.squeeze(top, axis=axes))


def _entropy(table: Array) -> float:
    held = table[table > 0]
    return -float((held * np.log(held)).sum())
