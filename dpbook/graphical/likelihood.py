"""Potentials that maximise a likelihood: what fits to noisy tables and fits to exact ones share.

Chapter 5 explains them. All of it works on tables, noisy or not; none of it reads data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array
from dpbook._late import optimize
from dpbook.graphical.field import FitReport
from dpbook.graphical.junction import JunctionTree
from dpbook.graphical.tables import Inferred, NoisyTables, project_to_simplex

__all__ = ["LastInference", "Optimum", "closed_form", "maximum_likelihood", "minimise", "projected", "report_of"]

_FLOOR = 1e-300  # keeps logarithms of empty cells finite where no ridge does
_ROUND = 60  # iterations of an optimiser before it measures the curvature anew


class Optimum(NamedTuple):
    """Where an optimiser ended, and whether it was done."""

    theta: Array
    value: float
    slope: float
    iterations: int
    evaluations: int
    converged: bool


def minimise(
    objective: Callable[[Array], tuple[float, Array]],
    curvature: Callable[[Array], Array],
    start: Array,
    tolerance: float,
    iterations: int,
) -> Optimum:
    """Minimise a smooth function by L-BFGS, in rounds, until its largest slope is below the tolerance.

    Potentials of rare cells are nearly flat and those of common ones are not, so that each round measures every
    potential in units of one over the root of its curvature, taken where the last round ended.
    """
    theta, used, evaluations = start, 0, 1
    value, slope = objective(theta)
    while used < iterations and np.abs(slope).max() > tolerance:
        unit = 1 / np.sqrt(curvature(theta))
        seen: dict[str, Array] = {}

        def scaled(x: Array, unit: Array = unit, seen: dict[str, Array] = seen) -> tuple[float, Array]:
            found, gradient = objective(unit * x)
            seen["at"], seen["slope"] = x.copy(), gradient
            return found, unit * gradient

        def settled(x: Array, seen: dict[str, Array] = seen) -> None:
            if np.array_equal(x, seen["at"]) and np.abs(seen["slope"]).max() <= tolerance:
                raise StopIteration

        found = optimize.minimize(
            scaled,
            theta / unit,
            jac=True,
            method="L-BFGS-B",
            callback=settled,
            options={"maxiter": min(_ROUND, iterations - used), "ftol": 0.0, "gtol": 0.0, "maxcor": 20},
        )
        evaluations += int(found.nfev)
        used += max(int(found.nit), 1)
        if float(found.fun) >= value and found.nit == 0:  # rounding errors are all that is left
            break
        theta, value = unit * found.x, float(found.fun)
        slope = np.asarray(found.jac) / unit
    steepest = float(np.abs(slope).max())
    return Optimum(theta, value, steepest, used, evaluations, steepest <= tolerance)


def maximum_likelihood(
    tables: NoisyTables, shares: Array, ridge: float, *, tolerance: float, iterations: int
) -> Optimum:
    """Maximise θᵀ(n · shares) − N A(θ) − ridge ‖θ‖², per record; shares are tables that sum to 1 or nearly so."""
    weights, penalty = tables.copies * tables.consistent(shares), ridge / tables.n
    last = LastInference(tables)

    def loss(theta: Array) -> tuple[float, Array]:
        found = last.infer(theta)
        value = found.log_partition - float(weights @ theta) + penalty * float(theta @ theta)
        return value, tables.copies * found.means - weights + 2 * penalty * theta

    def curvature(theta: Array) -> Array:
        return tables.copies * np.maximum(last.infer(theta).means, 1e-9) + 2 * penalty

    start = tables.consistent(tables.start(_smoothed(tables, weights / tables.copies, ridge)))
    return minimise(loss, curvature, start, tolerance, iterations)


class LastInference:
    """Remembers the last inference, which an optimiser's stopping rule asks for again."""

    def __init__(self, tables: NoisyTables) -> None:
        self.tables = tables
        self.theta: Array = np.empty(0)
        self.found: Inferred | None = None

    def infer(self, theta: Array) -> Inferred:
        """Run inference, unless the last one was at these potentials."""
        if self.found is None or not np.array_equal(theta, self.theta):
            self.theta, self.found = theta.copy(), self.tables.infer(theta)
        return self.found


def _smoothed(tables: NoisyTables, shares: Array, ridge: float) -> Array:
    """Return shares pulled towards uniform tables, by about as much as a ridge pulls; all positive."""
    parts = []
    for table in tables.split(shares):
        weight = min(0.5, (1 + ridge) * table.size / (tables.n + table.size))
        positive_part = project_to_simplex(table)
        parts.append(((1 - weight) * positive_part + weight / table.size).ravel())
    return np.concatenate(parts)


def projected(tables: NoisyTables) -> Array:
    """Return the shares of all tables, each projected on the simplex."""
    return np.concatenate([project_to_simplex(t / tables.n).ravel() for t in tables.split(tables.counts)])


def report_of(method: str, tables: NoisyTables, best: Optimum, tolerance: float, settings: dict[str, Any]) -> FitReport:
    """Tell how an optimiser found the potentials of a field."""
    return FitReport(
        method,
        best.iterations,
        best.converged,
        f"largest slope {best.slope:.1e}, in probability; tolerance {tolerance:.0e}",
        -tables.n * best.value,
        evaluations=best.evaluations,
        settings=settings,
    )


def closed_form(tables: NoisyTables, shares: Array) -> Array | None:
    """Return the maximum of the likelihood where it has a closed form, else None: p(x) = ∏ p(x_C) / ∏ p(x_S)."""
    tree = tables.engine
    if not isinstance(tree, JunctionTree) or any(len(group) > 1 for group in tables.groups):
        return None
    split = tables.split(shares)
    homes: dict[frozenset[int], int] = {frozenset(clique): i for i, clique in enumerate(tree.cliques)}
    if any(frozenset(node.variables) not in homes for node in tree.nodes):
        return None
    potentials = [np.zeros(shape) for shape in tables.shapes]
    for node in tree.nodes:
        position = homes[frozenset(node.variables)]
        table, clique = split[position], tree.cliques[position]
        own = tuple(clique.index(v) for v in node.variables[: node.own])
        above = table.sum(axis=own, keepdims=True)
        potentials[position] = np.log(np.maximum(table, _FLOOR)) - np.log(np.maximum(above, _FLOOR))
    return np.concatenate([table.ravel() for table in potentials])
