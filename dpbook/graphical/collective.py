"""Collective graphical models: the most plausible true tables behind noisy ones, given the model's potentials.

Chapter 5 derives what is here. With Laplace noise of scale b, the approximate posterior mode of the tables n solves

    maximise  θᵀn + H(n) − |y − n|/b   over tables n that are marginals of some law of n records,

whose dual has a box for a constraint: minimise N A(θ + λ) − λᵀy over |λ| ≤ 1/b, with n = N μ(θ + λ) at the solution.
The gap between the two, Σ |y − n|/b − λ(y − n), certifies how far a step is from its optimum.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from dpbook.graphical.problem import Problem

__all__ = ["Expectation", "expectation"]

Array = NDArray[np.float64]


class Expectation(NamedTuple):
    """The result of one E-step.

    Attributes
    ----------
    means : ndarray
        The inferred tables over n, laid end to end: marginals of the field at ``theta + multipliers / copies``.
    multipliers : ndarray
        The dual variables, each within 1/b.
    gap : float
        The duality gap, in nats: how far the tables are from the most plausible ones.
    evaluations : int
        How many times inference ran.

    Examples
    --------
    >>> Expectation(np.array([0.5, 0.5]), np.zeros(2), 0.0, 1).gap
    0.0

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """

    means: Array
    multipliers: Array
    gap: float
    evaluations: int


class _Settled(Exception):
    """Ends an optimisation whose duality gap is small enough."""


def expectation(
    problem: Problem,
    theta: Array,
    *,
    start: Array | None = None,
    tolerance: float = 1e-3,
    iterations: int = 500,
) -> Expectation:
    """Infer the true tables behind noisy ones, given potentials: the E-step, through its dual.

    Parameters
    ----------
    problem : Problem
        The noisy tables and the scales of their noise.
    theta : ndarray
        Log-potentials, laid end to end.
    start : ndarray, optional
        Multipliers to start from, such as those of the last step.
    tolerance : float, default 1e-3
        The duality gap, in nats, at which to stop.
    iterations : int, default 500
        The most iterations of L-BFGS-B.

    Returns
    -------
    Expectation
        Tables, multipliers and the gap that is left.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical.collective import expectation
    >>> from dpbook.graphical.domain import Domain
    >>> from dpbook.graphical.problem import Problem
    >>> problem = Problem.of(Domain.of({"a": 2}), ((("a",),),), [np.array([90.0, 30.0])], [2.0], 100)
    >>> (100 * expectation(problem, np.zeros(2)).means).round(1)
    array([70., 30.])

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    observed, bound = problem.counts / problem.n, 1 / problem.scales
    best = _Best()

    def dual(unit: Array) -> tuple[float, Array]:
        multipliers = unit * bound
        found = problem.infer(theta + multipliers / problem.copies)
        residual = observed - found.means
        best.offer(
            multipliers, found.means, problem.n * float((np.abs(residual) * bound - multipliers * residual).sum())
        )
        return found.log_partition - float(multipliers @ observed), -residual * bound

    def settled(_: Array) -> None:
        if best.gap <= tolerance:
            raise StopIteration

    first = np.zeros_like(theta) if start is None else start * problem.scales
    # Where a residual is far from 0 its multiplier sits at a corner of the box: one step of sign finds most of them.
    _, slope = dual(first)
    if best.gap > tolerance:
        corner = np.clip(-np.sign(slope), -1, 1)
        dual(corner)
    if best.gap > tolerance:
        optimize.minimize(
            dual,
            best.multipliers * problem.scales,
            jac=True,
            method="L-BFGS-B",
            bounds=optimize.Bounds(-1.0, 1.0),
            callback=settled,
            options={"maxiter": iterations, "maxcor": 20, "ftol": 0.0, "gtol": 0.0, "maxfun": 4 * iterations},
        )
    return Expectation(best.means, best.multipliers, best.gap, best.evaluations)


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
