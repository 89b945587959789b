"""Noisy tables and potentials as one vector, and inference on it: what every way of fitting a field shares.

Chapter 5 explains them. :func:`tables_of` reads a release; nothing here reads data.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpbook import _arrays
from dpbook._arrays import Array
from dpbook.graphical.domain import TABLES_MODEL, Domain, Groups, checked_groups
from dpbook.graphical.field import FitReport, MarkovRandomField, make_engine
from dpbook.graphical.junction import LARGEST_TABLE, Beliefs, JunctionTree
from dpbook.graphical.loopy import LoopyBeliefs, LoopyGraph
from dpbook.release import Release

__all__ = ["NoisyTables", "project_to_simplex", "tables_of"]


@dataclass(frozen=True)
class NoisyTables:
    """Tables of counts to fit a field to, laid end to end, with the scale of the noise on each cell.

    A table shared by M tied cliques holds the mean of their marginals, times n; its potentials count M times in a
    record's log probability. Everything below works for one table per clique (M = 1) and for tied ones alike. Explained
    in :doc:`/book/graphical-models/learning-from-noisy-tables`.

    Attributes
    ----------
    domain : Domain
        The variables.
    groups : tuple
        The cliques, tied ones together.
    counts : ndarray
        The tables, laid end to end, on the scale of ``n`` records.
    scales : ndarray
        The scale of the Laplace noise on each cell; 0 for exact tables.
    n : int
        The number of records.
    engine : JunctionTree or LoopyGraph
        What runs inference.
    limit : int
        The most entries that a table of a junction tree may have.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import Domain, NoisyTables
    >>> tables = NoisyTables.of(Domain.of({"a": 2}), ((("a",),),), [np.array([3.0, 1.0])], [0.0], 4)
    >>> found = tables.infer(np.zeros(2))
    >>> found.means, tables.tangent(found, np.array([1.0, 0.0]))
    (array([0.5, 0.5]), array([ 0.25, -0.25]))
    >>> theta = tables.start(np.array([0.75, 0.25]))
    >>> tables.field(theta, None).marginal("a"), tables.split(tables.consistent(tables.counts))
    (array([0.75, 0.25]), [array([3., 1.])])
    """

    domain: Domain
    groups: Groups
    counts: Array
    scales: Array
    n: int
    engine: JunctionTree | LoopyGraph
    limit: int = LARGEST_TABLE

    @classmethod
    def of(
        cls,
        domain: Domain,
        groups: Groups,
        tables: Sequence[Array],
        scales: Sequence[float],
        n: int,
        *,
        inference: str = "auto",
        limit: int = LARGEST_TABLE,
    ) -> NoisyTables:
        """Return ``tables`` of ``n`` records, one for each of ``groups``, as one vector, checked, ready for inference.

        ``scales`` are those of the tables' noise; ``domain``, ``inference`` and ``limit`` are as in
        :class:`MarkovRandomField`.
        """
        if not len(tables) == len(scales) == len(groups):
            raise ValueError(
                f"tables and scales must have one entry for each of {len(groups)} cliques, got {len(tables)} and "
                f"{len(scales)}"
            )
        for group, table in zip(groups, tables, strict=True):
            if np.shape(table) != domain.shape(group[0]):
                raise ValueError(
                    f"tables must have shape {domain.shape(group[0])} for {group[0]}, got {np.shape(table)}"
                )
        sizes = [table.size for table in tables]
        return cls(
            domain,
            groups,
            np.concatenate([np.ravel(table) for table in tables]).astype(float),
            np.repeat(np.asarray(scales, dtype=float), sizes),
            n,
            make_engine(domain, groups, inference, limit),
            limit,
        )

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each table."""
        return [self.domain.shape(group[0]) for group in self.groups]

    @cached_property
    def _ends(self) -> list[int]:
        sizes = [self.domain.size(group[0]) for group in self.groups]
        return [0, *np.cumsum(sizes).tolist()]

    @cached_property
    def copies(self) -> Array:
        """How many cliques share each cell's table."""
        sizes = [self.domain.size(group[0]) for group in self.groups]
        return np.repeat([float(len(group)) for group in self.groups], sizes)

    def split(self, vector: Array) -> list[Array]:
        """Return a ``vector``, one number per cell, as tables, one per group."""
        ends = self._ends
        return [vector[a:b].reshape(s) for a, b, s in zip(ends, ends[1:], self.shapes, strict=False)]

    def _members(self, vector: Array) -> list[Array]:
        tables = self.split(vector)
        return [table[None] for table, group in zip(tables, self.groups, strict=True) for _ in group]

    def _mean(self, marginals: Sequence[Array]) -> Array:
        """Return the marginals of tied cliques, averaged, laid end to end."""
        if len(marginals) == len(self.groups):
            return np.concatenate([table.ravel() for table in marginals])
        parts, start = [], 0
        for group in self.groups:
            members = [marginals[start + i].ravel() for i in range(len(group))]
            parts.append(np.mean(members, axis=0))
            start += len(group)
        return np.concatenate(parts)

    def infer(self, theta: Array) -> Inferred:
        """Return the log partition function and the mean tables, in probabilities, at log-potentials ``theta``."""
        members = self._members(theta)
        if isinstance(self.engine, LoopyGraph):
            found: Beliefs | LoopyBeliefs = self.engine.infer(members, warm=True)
        else:
            found = self.engine.infer(members)
        return Inferred(float(found.log_partition[0]), self._mean(found.marginals), found)

    def tangent(self, inferred: Inferred, direction: Array) -> Array:
        """Return the derivative of the mean tables, at ``inferred``, as potentials move in ``direction``; exact."""
        assert isinstance(self.engine, JunctionTree)
        assert isinstance(inferred.beliefs, Beliefs)
        return self._mean(self.engine.tangent(inferred.beliefs, self._members(direction)))

    def field(self, theta: Array, report: FitReport | None) -> MarkovRandomField:
        """Return the field with the log-potentials ``theta``, found as ``report`` says, and the same engine."""
        made = object.__new__(MarkovRandomField)
        made.domain, made.groups, made.limit = self.domain, self.groups, self.limit
        made.engine = (
            self.engine if isinstance(self.engine, JunctionTree) else LoopyGraph(self.engine.sizes, self.engine.cliques)
        )
        made.inference = "exact" if isinstance(self.engine, JunctionTree) else "loopy"
        return made.with_potentials(self.split(theta), report)

    def consistent(self, vector: Array) -> Array:
        """Return the tables nearest to ``vector``, in least squares, that agree where they overlap, tied ones apart.

        A table is the sum of one interaction for each subset of its variables, and these are orthogonal, so that each
        can be averaged by itself over the tables that hold it. What is taken away has no effect on the law of a field
        fitted to the tables: moving a potential from one clique to another that holds the same variables changes
        nothing but the potentials themselves.
        """
        if any(len(group) > 1 for group in self.groups):
            return vector
        cliques = [group[0] for group in self.groups]
        tables = self.split(vector)
        made = [np.zeros_like(table) for table in tables]
        holders: dict[tuple[str, ...], list[int]] = {}
        for position, clique in enumerate(cliques):
            for size in range(len(clique) + 1):
                for subset in itertools.combinations(sorted(clique), size):
                    holders.setdefault(subset, []).append(position)
        for subset, held in holders.items():
            spread = [self.domain.size(set(cliques[i]) - set(subset)) for i in held]  # cells that share one entry
            parts = [_interaction(tables[i], cliques[i], subset) / k for i, k in zip(held, spread, strict=True)]
            common = np.sum(parts, axis=0) / sum(1 / k for k in spread)
            for i, k in zip(held, spread, strict=True):
                kept = [name for name in cliques[i] if name in subset]
                ordered = common.transpose([subset.index(name) for name in kept])
                shape = [self.domain.size([name]) if name in subset else 1 for name in cliques[i]]
                made[i] += ordered.reshape(shape) / k
        return np.concatenate([table.ravel() for table in made])

    def start(self, probabilities: Array) -> Array:
        """Return log-potentials whose field has about these positive tables as marginals; exactly, on consistent trees.

        A clique gets the log of its table, less a share of the logs of its variables' own marginals, so that each
        variable is counted once over all cliques that hold it. ``probabilities`` sum to 1 in each table.
        """
        degree: dict[str, int] = {}
        for member in (member for group in self.groups for member in group):
            for name in member:
                degree[name] = degree.get(name, 0) + 1
        parts = []
        for group, table in zip(self.groups, self.split(probabilities), strict=True):
            theta = np.log(table)
            for axis in range(table.ndim):
                others = tuple(a for a in range(table.ndim) if a != axis)
                extra = float(np.mean([1 - 1 / degree[member[axis]] for member in group]))
                theta = theta - extra * np.log(table.sum(axis=others, keepdims=True))
            parts.append((theta - theta.mean()).ravel())
        return np.concatenate(parts)


def _interaction(table: Array, clique: tuple[str, ...], subset: tuple[str, ...]) -> Array:
    """Return what a table says of a subset of its variables beyond what it says of smaller ones, axes as in subset."""
    rest = tuple(axis for axis, name in enumerate(clique) if name not in subset)
    kept = [name for name in clique if name in subset]
    found = table.sum(axis=rest).transpose([kept.index(name) for name in subset])
    for axis in range(len(subset)):
        found = found - found.mean(axis=axis, keepdims=True)
    return np.asarray(found)


@dataclass(frozen=True)
class Inferred:
    """What inference found at some potentials: the log partition function, mean tables, and all else."""

    log_partition: float
    means: Array
    beliefs: Beliefs | LoopyBeliefs


def tables_of(release: Release, *, inference: str = "auto", limit: int = LARGEST_TABLE) -> NoisyTables:
    """Return the tables of a release, ready to fit a field to them.

    Where a table's total depends on the data (null records), it is estimated by its noisy cells' sum, and the table
    and its noise are scaled up to n records. A record that counts in a table also counts in every table whose cliques
    contain that table's: where the noisy sums have the opposite order, they are pooled by their precision. Explained in
    :doc:`/book/graphical-models/learning-from-noisy-tables`.

    Parameters
    ----------
    release : Release
        From :func:`dpbook.graphical.release`.
    inference, limit
        As in :func:`dpbook.graphical.fit`.

    Returns
    -------
    NoisyTables

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> noisy = graphical.release(np.array([30, 10]), {"a": 2}, [("a",)], epsilon=1.0, rng=np.random.default_rng(0))
    >>> graphical.tables_of(noisy).counts.round(1)
    array([30.6,  8.8])
    """
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release of clique tables, got {type(release).__name__}")
    release.require(model=TABLES_MODEL, mechanisms=("laplace",))
    domain = Domain.of_settings(release.settings["domain"])
    groups = checked_groups([list(group) for group in release.settings["cliques"]], domain)
    tables = [np.asarray(table, dtype=float) for table in release.values.values()]
    scales = [release.scale[name] for name in release.values]
    if not release.settings["totals known"]:
        factors = [release.n / total for total in _totals(groups, tables, scales, release.n)]
        tables = [table * factor for table, factor in zip(tables, factors, strict=True)]
        scales = [scale * factor for scale, factor in zip(scales, factors, strict=True)]
    return NoisyTables.of(domain, groups, tables, scales, release.n, inference=inference, limit=limit)


def _totals(groups: Groups, tables: Sequence[Array], scales: Sequence[float], n: int) -> list[float]:
    """Return the number of records that count in each table, at least a hundredth of all."""
    totals = [float(table.sum()) for table in tables]
    precision = [1 / (table.size * scale**2) for table, scale in zip(tables, scales, strict=True)]
    for i, j in itertools.permutations(range(len(groups)), 2):
        within = all(any(set(small) <= set(large) for large in groups[j]) for small in groups[i])
        if within and totals[i] > totals[j]:
            both = precision[i] + precision[j]
            totals[i] = totals[j] = (precision[i] * totals[i] + precision[j] * totals[j]) / both
            precision[i] = precision[j] = both
    return [float(np.clip(total, 0.01 * n, n)) for total in totals]


def project_to_simplex(table: Array) -> Array:
    """Return the nearest table of non-negative entries that sum to 1.

    Parameters
    ----------
    table : ndarray
        Any finite numbers, such as noisy counts over n.

    Returns
    -------
    ndarray
        Of the same shape: each entry less one common threshold, cut off at 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import project_to_simplex
    >>> project_to_simplex(np.array([0.75, 0.5, -0.25]))
    array([0.625, 0.375, 0.   ])

    Explained in :doc:`/book/graphical-models/learning-from-noisy-tables`.
    """
    return _arrays.project_to_simplex(table.ravel()).reshape(table.shape)
