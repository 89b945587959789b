"""Collective graphical models: the most plausible true tables behind noisy ones, given the model's potentials.

Chapter 5 derives what is here. With Laplace noise of scale b, the approximate posterior mode of the tables n solves

    maximise  θᵀn + H(n) − |y − n|/b   over tables n that are marginals of some law of n records,

whose dual has a box for a constraint: minimise N A(θ + λ) − λᵀy over |λ| ≤ 1/b, with n = N μ(θ + λ) at the solution.
The gap between the two, Σ |y − n|/b − λ(y − n), certifies how far a step is from its optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dpbook._arrays import Array
from dpbook._validation import Option, finite_array, integer, method_options, non_negative_array, positive
from dpbook.graphical.boxed import minimise_in_box
from dpbook.graphical.domain import Domain, Groups, checked_groups
from dpbook.graphical.junction import JunctionTree
from dpbook.graphical.tables import NoisyTables

__all__ = ["Expectation", "Passed", "expectation", "log_multiplicity", "nlbp", "objective"]


class Expectation(NamedTuple):
    """The result of one E-step.

    ``means`` are the inferred tables over n, laid end to end: marginals of the field at
    ``theta + multipliers / copies``; ``multipliers`` the dual variables, each within 1/b, and within the reach; ``gap``
    the duality gap, in nats: how far the tables are from the most plausible ones; ``evaluations`` how many times
    inference ran. Explained in :doc:`/book/graphical-models/collective-graphical-models`.

    Examples
    --------
    >>> Expectation(np.array([0.5, 0.5]), np.zeros(2), 0.0, 1).gap
    0.0
    """

    means: Array
    multipliers: Array
    gap: float
    evaluations: int


def expectation(
    tables: NoisyTables,
    theta: Array,
    *,
    start: Array | None = None,
    reach: float | None = None,
    tolerance: float = 1e-3,
    iterations: int = 1000,
) -> Expectation:
    """Infer the true tables behind noisy ones, given potentials: the E-step, through its dual.

    The duality gap certifies the answer where inference is exact. With loopy inference it is a stopping rule, no more:
    Bethe's approximation of the log partition function need not be convex. Explained in
    :doc:`/book/graphical-models/collective-graphical-models`.

    Parameters
    ----------
    tables : NoisyTables
        The noisy tables and the scales of their noise.
    theta : ndarray
        Log-potentials, laid end to end.
    start : ndarray, optional
        Multipliers to start from, such as those of the last step.
    reach : float, optional
        Hold the multipliers within this, too: a shorter step, that of tables whose noise had scale 1/reach or more.
    tolerance : float, default 1e-3
        The duality gap, in nats, at which to stop.
    iterations : int, default 1000
        The most iterations of the quasi-Newton method.

    Returns
    -------
    Expectation

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import Domain, NoisyTables, expectation
    >>> noisy = NoisyTables.of(Domain.of({"a": 2}), ((("a",),),), [np.array([90.0, 30.0])], [2.0], 100)
    >>> (100 * expectation(noisy, np.zeros(2)).means).round(1)
    array([70., 30.])
    """
    theta, tolerance = _of_cells("theta", theta, tables), positive("tolerance", tolerance)
    start = None if start is None else _of_cells("start", start, tables)
    iterations = integer("iterations", iterations, least=1)
    observed, bound = tables.counts / tables.n, 1 / tables.scales
    if reach is not None:
        bound = np.minimum(bound, positive("reach", reach))
    best = _Best()

    def dual(multipliers: Array) -> tuple[float, Array]:
        found = tables.infer(theta + multipliers / tables.copies)
        residual = observed - found.means
        best.offer(
            multipliers, found.means, tables.n * float((np.abs(residual) * bound - multipliers * residual).sum())
        )
        return found.log_partition - float(multipliers @ observed), -residual

    _, slope = dual(np.zeros_like(theta) if start is None else np.clip(start, -bound, bound))
    # Where a residual is far from 0 its multiplier sits at a corner of the box: one step of sign finds most of them.
    if best.gap > tolerance:
        dual(-np.sign(slope) * bound)
    if best.gap > tolerance:
        # A cell's curvature is about its probability over the number of cliques that share its table.
        curvature = np.maximum(best.means, 1e-9) / tables.copies
        minimise_in_box(
            dual,
            best.multipliers,
            bound,
            curvature=curvature,
            settled=lambda: best.gap <= tolerance,
            iterations=iterations,
        )
    return Expectation(best.means, best.multipliers, best.gap, best.evaluations)


def _of_cells(name: str, given: Any, tables: NoisyTables) -> Array:
    """Return a vector with one number a cell."""
    vector = finite_array(name, given, ndim=1)
    if vector.size != tables.counts.size:
        raise ValueError(f"{name} must have one entry for each of {tables.counts.size} cells, got {vector.size}")
    return vector


class _Best:
    """Keeps the evaluation with the smallest duality gap."""

    def __init__(self) -> None:
        self.gap = math.inf
        self.means = self.multipliers = np.empty(0)
        self.evaluations = 0

    def offer(self, multipliers: Array, means: Array, gap: float) -> None:
        self.evaluations += 1
        if gap < self.gap:
            self.gap, self.multipliers, self.means = gap, multipliers, means


def objective(tables: NoisyTables, theta: Array, means: Array) -> float:
    """Return what an E-step maximises, ``θᵀn + H(n) − Σ |y − n| / b``, for cliques that are those of a junction tree.

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.

    Parameters
    ----------
    tables, theta
        As in :func:`expectation`.
    means : ndarray
        Consistent tables of probabilities, laid end to end: n over the number of records.

    Returns
    -------
    float
        In nats.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import Domain, NoisyTables, objective
    >>> noisy = NoisyTables.of(Domain.of({"a": 2}), ((("a",),),), [np.array([50.0, 50.0])], [2.0], 100)
    >>> round(objective(noisy, np.zeros(2), np.array([0.5, 0.5])), 3)
    69.315
    """
    theta, means = _of_cells("theta", theta, tables), _of_cells("means", means, tables)
    misfit = float((np.abs(tables.counts - tables.n * means) / tables.scales).sum())
    energy = tables.n * float((tables.copies * theta) @ means)
    return energy + tables.n * _tree_sum(tables, means, special.entr) - misfit


def _tree_sum(tables: NoisyTables, vector: Array, function: Callable[[Array], Array]) -> float:
    """Return the sum of a function over all cells of the tree's nodes, less that over its separators."""
    tree = tables.engine
    if not isinstance(tree, JunctionTree) or any(len(group) > 1 for group in tables.groups):
        raise ValueError("cliques must be those of a junction tree, and none of them tied")
    homes = {frozenset(clique): position for position, clique in enumerate(tree.cliques)}
    if any(frozenset(node.variables) not in homes for node in tree.nodes):
        raise ValueError("cliques must be those of a junction tree: theirs has larger ones")
    split = tables.split(vector)
    total = 0.0
    for position, node in enumerate(tree.nodes):
        home = homes[frozenset(node.variables)]
        own = tuple(tree.cliques[home].index(v) for v in node.variables[: node.own])
        total += float(function(split[home]).sum())
        if position:  # an empty separator, between parts of the graph, is a table of one cell
            total -= float(function(split[home].sum(axis=own)).sum())
    return total


class Passed(NamedTuple):
    """The result of non-linear belief propagation.

    ``means`` are the inferred tables over n, laid end to end, ``history`` the objective after every iteration.
    Explained in :doc:`/book/graphical-models/collective-graphical-models`.

    Examples
    --------
    >>> Passed(np.array([0.5, 0.5]), (1.0, 2.0)).history[-1]
    2.0
    """

    means: Array
    history: tuple[float, ...]


def _weight(name: str, value: Any) -> float:
    if positive(name, value) > 1:
        raise ValueError(f"{name} must lie in (0, 1], got {value}")
    return float(value)


RULES: dict[str, dict[str, Option]] = {
    "decreasing": {},
    "printed": {"damping": Option("a number in (0, 1]", _weight)},
    "averaged": {},
}


def nlbp(
    tables: NoisyTables, theta: Array, *, rule: str = "decreasing", iterations: int = 200, **options: Any
) -> Passed:
    """Run non-linear belief propagation, the source's E-step; for teaching, since :func:`expectation` is faster.

    Each iteration adds the slope of the noise's log density, sign(y − n)/b, to the potentials and runs belief
    propagation. The slope jumps where n passes y, so that a fixed damping never settles. Explained in
    :doc:`/book/graphical-models/collective-graphical-models`.

    Parameters
    ----------
    tables, theta
        As in :func:`expectation`; cliques must be those of a junction tree.
    rule : {"decreasing", "printed", "averaged"}
        The new tables' weight in the next ones: 2/(t + 3), or ``damping`` at every iteration, as printed. With
        ``"averaged"`` the slopes are averaged instead of the tables.
    iterations : int, default 200
        How many.
    **options
        ``damping`` (default 0.1), the weight of the rule ``"printed"``, in (0, 1]; other rules refuse it.

    Returns
    -------
    Passed

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import Domain, NoisyTables, nlbp
    >>> noisy = NoisyTables.of(Domain.of({"a": 2}), ((("a",),),), [np.array([90.0, 30.0])], [2.0], 100)
    >>> (100 * nlbp(noisy, np.zeros(2), iterations=1000).means).round(1)
    array([70., 30.])
    """
    damping = method_options(rule, options, RULES, name="rule").get("damping", 0.1)
    theta, iterations = _of_cells("theta", theta, tables), integer("iterations", iterations, least=1)
    means = tables.infer(theta).means
    mean_slope = np.zeros_like(theta)
    history = []
    for t in range(iterations):
        slope = np.sign(tables.counts - tables.n * means) / tables.scales
        if rule == "averaged":
            mean_slope += (slope - mean_slope) / (t + 1)
            means = tables.infer(theta + mean_slope / tables.copies).means
        else:
            weight = damping if rule == "printed" else 2 / (t + 3)
            means = (1 - weight) * means + weight * tables.infer(theta + slope / tables.copies).means
        history.append(objective(tables, theta, means))
    return Passed(means, tuple(history))


def log_multiplicity(domain: Any, cliques: Sequence[Any], tables: Sequence[Any]) -> tuple[float, float]:
    """Return the log of how many ordered data sets have given clique tables: exactly, and by Stirling's formula.

    The second is n times the entropy of the field with these marginals (Proposition 4 of the source). Explained in
    :doc:`/book/graphical-models/collective-graphical-models`.

    Parameters
    ----------
    domain, cliques
        As in :func:`dpbook.graphical.release`; the cliques must be those of a junction tree.
    tables : sequence of array
        Whole counts, consistent with each other, one table per clique.

    Returns
    -------
    tuple of float
        The exact logarithm and its approximation.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import log_multiplicity
    >>> exact, stirling = log_multiplicity({"a": 2}, [("a",)], [np.array([3, 2])])
    >>> round(float(np.exp(exact))), round(float(np.exp(stirling)))
    (10, 29)
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    counts = _checked_counts(tables, groups, known)
    n = float(counts[0].sum())
    laid = NoisyTables.of(known, groups, counts, [1.0] * len(counts), round(n), inference="exact")
    if not np.allclose(laid.consistent(laid.counts), laid.counts, atol=1e-6):
        raise ValueError("tables must agree on the variables that they share")
    exact = float(special.gammaln(n + 1)) + _tree_sum(laid, laid.counts, lambda t: -special.gammaln(t + 1))
    return exact, n * _tree_sum(laid, laid.counts / n, special.entr)


def _checked_counts(tables: Sequence[Any], groups: Groups, domain: Domain) -> list[Array]:
    """Return tables of whole counts with one positive total, each of its clique's shape."""
    if len(tables) != len(groups):
        raise ValueError(f"tables must hold one table for each of {len(groups)} cliques, got {len(tables)}")
    counts = []
    for position, (table, group) in enumerate(zip(tables, groups, strict=True)):
        array = non_negative_array(f"tables[{position}]", table)
        if array.shape != domain.shape(group[0]):
            raise ValueError(f"tables[{position}] must have shape {domain.shape(group[0])}, got {array.shape}")
        if (array != np.round(array)).any():
            raise ValueError(f"tables[{position}] must hold whole counts")
        counts.append(array)
    totals = sorted({float(table.sum()) for table in counts})
    if len(totals) > 1 or totals[0] == 0:
        raise ValueError(f"tables must have one total, above 0, got {totals}")
    return counts
