"""The analyst's side: a Markov random field from noisy clique tables, by methods that ignore the noise or know of it.

Chapter 5 explains them. ``fit`` reads a release only; :func:`fit_nonprivate` reads records, and says so in its name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special

from dpbook import _arrays
from dpbook._arrays import Array
from dpbook._validation import (
    Option,
    at_least,
    flag_option,
    integer,
    method_options,
    positive,
    positive_option,
    whole_option,
)
from dpbook.graphical.collective import expectation
from dpbook.graphical.domain import Domain, Groups, checked_groups
from dpbook.graphical.field import FitReport, MarkovRandomField
from dpbook.graphical.junction import LARGEST_TABLE, JunctionTree
from dpbook.graphical.problem import Inferred, Problem
from dpbook.graphical.releases import MODEL, clique_tables, optional
from dpbook.release import Release

__all__ = ["fit", "fit_nonprivate", "noise_aware_ridge", "problem_of", "project_to_simplex"]

OPTIONS: dict[str, dict[str, Option]] = {
    "cgm": {"ridge": optional(positive_option()), "steps": optional(whole_option(0)), "gap": positive_option()},
    "naive": {"ridge": optional(positive_option()), "project": flag_option()},
    "penalised": {"prior_sd": positive_option()},
}

_FLOOR = 1e-300  # keeps logarithms of empty cells finite where no ridge does
_MOVE = 0.25  # how far EM may move a log-potential in all, by default
_MOST_STEPS = 50
_ROUND = 60  # iterations of an optimiser before it measures the curvature anew


def fit(
    release: Release,
    *,
    method: str = "cgm",
    inference: str = "auto",
    tolerance: float | None = None,
    iterations: int = 300,
    limit: int = LARGEST_TABLE,
    **options: Any,
) -> MarkovRandomField:
    """Learn a Markov random field from released clique tables.

    Post-processing: it reads the release alone and costs no privacy. It never fails because of what the noise did.

    Parameters
    ----------
    release : Release
        From :func:`dpbook.graphical.release`.
    method : {"cgm", "naive", "penalised"}
        ``"naive"`` takes the noisy tables for true ones: each is projected on the simplex, then the likelihood is
        maximised with a ridge. ``"cgm"`` treats the true tables as unknown and alternates (EM) between the most
        plausible ones and the potentials that fit them, starting from a regularised naive fit. ``"penalised"``
        maximises the likelihood of the noisy cells, each a normal count plus Laplace noise, with a normal prior on
        the potentials; its answer does not depend on when one stops.
    inference : {"auto", "exact", "loopy"}
        As in :class:`MarkovRandomField`; ``"penalised"`` needs exact inference.
    tolerance : float, optional
        The largest slope, in probability, at which an optimiser stops; by default a hundredth of the standard
        deviation of a cell's share, chance and noise taken together, within 1e-7 and 1e-5.
    iterations : int, default 300
        The most iterations of an optimiser.
    limit : int, default 2**22
        The most entries that a table of the junction tree may have.

    **options
        Of the method; one that it does not take is refused.

        - ``ridge`` (``"naive"``, ``"cgm"``): subtract ``ridge`` times the sum of squared log-potentials from the log
          likelihood. For ``"naive"`` 1e-4 by default, tiny on purpose; it should be tuned. For ``"cgm"`` it
          regularises the start, and is by default 1/2 + 2 b² cells / n: a prior of variance 1, and the noise variance
          2b² beside a cell's count of n / cells.
        - ``project`` (``"naive"``, default True): whether to project the tables on the simplex first; False shows what
          goes wrong otherwise.
        - ``steps`` (``"cgm"``): how many steps of EM. A step moves a log-potential by at most 1/b, b being the noise
          scale. By default all steps together may move it by 1/4: b/4 steps, at most 50, and where b < 4 a single one
          that is cut off at 1/4. Run on, EM forgets its start and ends at the L1 projection of the noisy tables on the
          marginals, which overfits.
        - ``gap`` (``"cgm"``, default 0.02): the duality gap, in nats a cell, at which an E-step stops. The field is
          then within gap · cells / n nats of the exact step's, in KL divergence; chance alone, without any noise,
          leaves a fit about cells / 2n from the truth. (With loopy inference the gap is no certificate.)
        - ``prior_sd`` (``"penalised"``, default 1.0): the standard deviation of the log-potentials in the prior.

    Returns
    -------
    MarkovRandomField
        With a :class:`FitReport` as ``.report``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> noisy = graphical.release(np.array([[300, 100], [100, 500]]), {"a": 2, "b": 2}, [("a", "b")], epsilon=1.0,
    ...                           rng=np.random.default_rng(0))
    >>> graphical.fit(noisy).marginal(("a", "b")).round(2)
    array([[0.3, 0.1],
           [0.1, 0.5]])

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    chosen = method_options(method, options, OPTIONS)
    iterations = integer("iterations", iterations, least=1)
    if tolerance is not None:
        tolerance = positive("tolerance", tolerance)
    problem = problem_of(release, inference=inference, limit=limit)
    if tolerance is None:
        tolerance = _default_tolerance(problem)
    if method == "naive":
        return _fit_naive(problem, tolerance, iterations, **chosen)
    if method == "cgm":
        return _fit_cgm(problem, tolerance, iterations, **chosen)
    if not isinstance(problem.engine, JunctionTree):
        raise ValueError("method 'penalised' needs exact inference; use method='cgm' where the graph is too entangled")
    return _fit_penalised(problem, tolerance, iterations, **chosen)


def _default_tolerance(problem: Problem) -> float:
    chance = 1 / (problem.n * np.mean([math.prod(shape) for shape in problem.shapes]))
    sd = math.sqrt(chance + 2 * (float(np.median(problem.scales)) / problem.n) ** 2)
    return float(np.clip(0.01 * sd, 1e-7, 1e-5))


def problem_of(release: Release, *, inference: str = "auto", limit: int = LARGEST_TABLE) -> Problem:
    """Return the tables of a release as the problem of fitting a field to them.

    Where a table's total depends on the data (null records), it is estimated by its noisy cells' sum, and the table
    and its noise are scaled up to n records. A record that counts in a table also counts in every table whose cliques
    contain that table's: where the noisy sums have the opposite order, they are pooled by their precision.

    Parameters
    ----------
    release : Release
        From :func:`dpbook.graphical.release`.
    inference, limit
        As in :func:`fit`.

    Returns
    -------
    Problem
        Tables, noise scales, and what runs inference on them.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> from dpbook.graphical.learning import problem_of
    >>> noisy = graphical.release(np.array([30, 10]), {"a": 2}, [("a",)], epsilon=1.0, rng=np.random.default_rng(0))
    >>> problem_of(noisy).counts.round(1)
    array([30.6,  8.8])

    Explained in :doc:`/book/graphical-models/learning-from-noisy-tables`.
    """
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release of clique tables, got {type(release).__name__}")
    release.require(model=MODEL, mechanisms=("laplace",))
    domain = Domain.of_settings(release.settings["domain"])
    groups = checked_groups([list(group) for group in release.settings["cliques"]], domain)
    tables = [np.asarray(table, dtype=float) for table in release.values.values()]
    scales = [release.scale[name] for name in release.values]
    if not release.settings["totals known"]:
        factors = [release.n / total for total in _totals(groups, tables, scales, release.n)]
        tables = [table * factor for table, factor in zip(tables, factors, strict=True)]
        scales = [scale * factor for scale, factor in zip(scales, factors, strict=True)]
    return Problem.of(domain, groups, tables, scales, release.n, inference=inference, limit=limit)


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


def fit_nonprivate(
    records: Any,
    domain: Domain | Mapping[str, Any],
    cliques: Sequence[Any],
    *,
    ridge: float = 1e-4,
    counts: str | None = None,
    person: str | None = None,
    null: Any = None,
    inference: str = "auto",
    tolerance: float = 1e-8,
    iterations: int = 5000,
    limit: int = LARGEST_TABLE,
) -> MarkovRandomField:
    """Learn a Markov random field from the records themselves, by maximum likelihood; not private.

    Parameters
    ----------
    records, domain, cliques, counts, person, null
        As in :func:`dpbook.graphical.release`.
    ridge : float, default 1e-4
        As in :func:`fit`; it keeps potentials of empty cells finite. 0 asks for the likelihood's own maximum, which
        has a closed form where the cliques are those of a junction tree.
    inference, tolerance, iterations, limit
        As in :func:`fit`.

    Returns
    -------
    MarkovRandomField
        Whose marginals on the cliques are those of the data, up to the ridge.

    Examples
    --------
    >>> from dpbook import graphical
    >>> model = graphical.fit_nonprivate([[30, 10], [10, 50]], {"a": 2, "b": 2}, [("a", "b")], ridge=0)
    >>> model.marginal(("a", "b"))
    array([[0.3, 0.1],
           [0.1, 0.5]])

    Explained in :doc:`/book/graphical-models/log-linear-models`.
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    ridge, tolerance = at_least("ridge", ridge, 0), positive("tolerance", tolerance)
    iterations = integer("iterations", iterations, least=1)
    exact = clique_tables(records, known, [list(group) for group in groups], counts=counts, person=person, null=null)
    tables: list[Array] = [np.asarray(table * exact.unit, dtype=np.float64) for table in exact.tables]
    if null is not None:  # a record that is null throughout tells nothing: each table is taken for its own total
        tables = [exact.n * table / max(float(table.sum()), 1e-9) for table in tables]
    problem = Problem.of(known, groups, tables, [0.0] * len(groups), exact.n, inference=inference, limit=limit)
    shares = problem.counts / problem.n
    closed = _closed_form(problem, shares) if ridge == 0 else None
    if closed is not None:
        value = problem.n * (float(problem.copies * shares @ closed) - problem.infer(closed).log_partition)
        report = FitReport("non-private", 0, True, "closed form: the cliques are those of a junction tree", value)
        return problem.field(closed, report)
    best = _maximum_likelihood(problem, shares, ridge, tolerance=tolerance, iterations=iterations)
    return problem.field(best.theta, _report("non-private", problem, best, tolerance, {"ridge": ridge}))


def _report(method: str, problem: Problem, best: _Optimum, tolerance: float, settings: dict[str, Any]) -> FitReport:
    return FitReport(
        method,
        best.iterations,
        best.converged,
        f"largest slope {best.slope:.1e}, in probability; tolerance {tolerance:.0e}",
        -problem.n * best.value,
        evaluations=best.evaluations,
        settings=settings,
    )


def _fit_naive(
    problem: Problem, tolerance: float, iterations: int, *, ridge: float | None = None, project: bool = True
) -> MarkovRandomField:
    ridge = 1e-4 if ridge is None else ridge
    shares = _projected(problem) if project else problem.counts / problem.n
    best = _maximum_likelihood(problem, shares, ridge, tolerance=tolerance, iterations=iterations)
    return problem.field(best.theta, _report("naive", problem, best, tolerance, {"ridge": ridge, "project": project}))


def noise_aware_ridge(problem: Problem) -> float:
    """Return the ridge at which cgm starts: that of a prior of variance 1, stronger where the counts are noisy.

    Without noise a normal prior of variance 1 on log-potentials asks for 1/2. A cell's count of about n / cells tells
    n / cells about its log-potential; with noise of variance 2b² it tells less by the factor 1 + 2b² cells / n, and a
    likelihood that ignores the noise needs its prior stronger by that factor. Cells below the average tell less still,
    and too strong a prior is the lesser evil, so that the noise is counted twice.

    Parameters
    ----------
    problem : Problem
        Tables and noise scales.

    Returns
    -------
    float
        1/2 + 2 b² cells / n, averaged over cells.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> from dpbook.graphical.learning import noise_aware_ridge, problem_of
    >>> noisy = graphical.release(np.array([30, 10]), {"a": 2}, [("a",)], epsilon=1.0, rng=np.random.default_rng(0))
    >>> noise_aware_ridge(problem_of(noisy))
    0.9

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    cells = np.concatenate([np.full(table.size, table.size) for table in problem.split(problem.counts)])
    return 0.5 + float(np.mean(2 * problem.scales**2 * cells)) / problem.n


def _fit_cgm(
    problem: Problem,
    tolerance: float,
    iterations: int,
    *,
    ridge: float | None = None,
    steps: int | None = None,
    gap: float = 0.02,
) -> MarkovRandomField:
    """EM: the M-step is free, for the tables that an E-step infers are those of the field at θ + λ."""
    ridge = noise_aware_ridge(problem) if ridge is None else ridge
    # EM moves on from here: the start need be no more exact than the E-steps.
    rough = max(tolerance, min(tolerance * gap / 1e-3, 1e-4))
    best = _maximum_likelihood(problem, _projected(problem), ridge, tolerance=rough, iterations=iterations)
    scale, reach = float(np.median(problem.scales)), None
    if steps is None:
        steps = int(np.clip(round(_MOVE * scale), 1, _MOST_STEPS))
        reach = _MOVE if steps == 1 else None
    theta, multipliers, widest, evaluations = best.theta, None, 0.0, best.evaluations
    history = [_likeness(problem, problem.infer(theta).means)]
    enough = gap * problem.counts.size
    for _ in range(steps):
        found = expectation(problem, theta, start=multipliers, reach=reach, tolerance=enough)
        theta, multipliers = theta + found.multipliers / problem.copies, found.multipliers
        widest, evaluations = max(widest, found.gap), evaluations + found.evaluations
        history.append(_likeness(problem, found.means))
    report = FitReport(
        "cgm",
        steps,
        best.converged and widest <= enough,
        f"{steps} steps of EM from a naive fit with ridge {ridge:.3g}; each moves log-potentials by at most "
        f"{min(1 / scale, reach or np.inf):.3g}; each E-step solved to a duality gap of {widest:.1e} nats",
        history[-1],
        tuple(history),
        widest,
        evaluations,
        {"ridge": ridge, "steps": steps, "gap": gap},
    )
    return problem.field(theta, report)


def _likeness(problem: Problem, means: Array) -> float:
    """Return the log density of the noise that these tables imply, up to a constant."""
    return -float((np.abs(problem.counts - problem.n * means) / problem.scales).sum())


def _fit_penalised(problem: Problem, tolerance: float, iterations: int, *, prior_sd: float = 1.0) -> MarkovRandomField:
    """Maximise the sum of log densities of the cells less half the squared potentials over the prior's variance."""
    n, precision = problem.n, 1 / (prior_sd**2 * problem.n)

    last = _Last(problem)

    def loss(theta: Array) -> tuple[float, Array]:
        found = last.infer(theta)
        density, slope = _cell_likelihood(problem, found)
        pull = problem.copies * problem.tangent(found, -slope / (n * problem.copies))
        return -density / n + 0.5 * precision * float(theta @ theta), pull + precision * theta

    def curvature(theta: Array) -> Array:
        share = np.maximum(last.infer(theta).means, 1e-9)
        return np.asarray(problem.copies * n * share**2 / (n * share + 2 * problem.scales**2) + precision)

    begin = _maximum_likelihood(
        problem, _projected(problem), noise_aware_ridge(problem), tolerance=1e-4, iterations=iterations
    )
    best = _minimise(loss, curvature, begin.theta, tolerance, iterations)
    return problem.field(best.theta, _report("penalised", problem, best, tolerance, {"prior_sd": prior_sd}))


def _cell_likelihood(problem: Problem, found: Inferred) -> tuple[float, Array]:
    """Return Σ log p(y | μ) and its slope in μ, each noisy cell a normal count n μ plus Laplace noise.

    With f the density of the sum, φ that of the normal part and z = y − nμ, f satisfies f − b² f'' = φ, so that the
    slope in the variance is (1 − φ/f)/2b²; the slope in the mean is −f'/f, a hyperbolic tangent over b.
    """
    n, b = problem.n, problem.scales
    share = np.clip(found.means, 1e-12, 1 - 1e-12)
    variance = n * share * (1 - share)
    sd, z = np.sqrt(variance), problem.counts - n * share
    lead = variance / (2 * b**2)
    near = lead - z / b + special.log_ndtr(z / sd - sd / b)
    far = lead + z / b + special.log_ndtr(-z / sd - sd / b)
    log_density = np.logaddexp(near, far) - np.log(2 * b)
    in_mean = np.tanh((near - far) / 2) / b
    log_normal = -0.5 * z**2 / variance - 0.5 * np.log(2 * np.pi * variance)
    in_variance = 0.5 * (1 - np.exp(np.minimum(log_normal - log_density, 50))) / b**2
    return float(log_density.sum()), n * in_mean + n * (1 - 2 * share) * in_variance


def _closed_form(problem: Problem, shares: Array) -> Array | None:
    """Return the maximum of the likelihood where it has a closed form, else None: p(x) = ∏ p(x_C) / ∏ p(x_S)."""
    tree = problem.engine
    if not isinstance(tree, JunctionTree) or any(len(group) > 1 for group in problem.groups):
        return None
    tables = problem.split(shares)
    homes: dict[frozenset[int], int] = {frozenset(clique): i for i, clique in enumerate(tree.cliques)}
    if any(frozenset(node.variables) not in homes for node in tree.nodes):
        return None
    potentials = [np.zeros(shape) for shape in problem.shapes]
    for node in tree.nodes:
        position = homes[frozenset(node.variables)]
        table, clique = tables[position], tree.cliques[position]
        own = tuple(clique.index(v) for v in node.variables[: node.own])
        above = table.sum(axis=own, keepdims=True)
        potentials[position] = np.log(np.maximum(table, _FLOOR)) - np.log(np.maximum(above, _FLOOR))
    return np.concatenate([table.ravel() for table in potentials])


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


class _Optimum(NamedTuple):
    theta: Array
    value: float
    slope: float
    iterations: int
    evaluations: int
    converged: bool


def _minimise(
    objective: Callable[[Array], tuple[float, Array]],
    curvature: Callable[[Array], Array],
    start: Array,
    tolerance: float,
    iterations: int,
) -> _Optimum:
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
    return _Optimum(theta, value, steepest, used, evaluations, steepest <= tolerance)


def _maximum_likelihood(
    problem: Problem, shares: Array, ridge: float, *, tolerance: float, iterations: int
) -> _Optimum:
    """Maximise θᵀ(n · shares) − N A(θ) − ridge ‖θ‖², per record; shares are tables that sum to 1 or nearly so."""
    weights, penalty = problem.copies * problem.consistent(shares), ridge / problem.n
    last = _Last(problem)

    def loss(theta: Array) -> tuple[float, Array]:
        found = last.infer(theta)
        value = found.log_partition - float(weights @ theta) + penalty * float(theta @ theta)
        return value, problem.copies * found.means - weights + 2 * penalty * theta

    def curvature(theta: Array) -> Array:
        return problem.copies * np.maximum(last.infer(theta).means, 1e-9) + 2 * penalty

    start = problem.consistent(problem.start(_smoothed(problem, weights / problem.copies, ridge)))
    return _minimise(loss, curvature, start, tolerance, iterations)


class _Last:
    """Remembers the last inference, which an optimiser's stopping rule asks for again."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.theta: Array = np.empty(0)
        self.found: Inferred | None = None

    def infer(self, theta: Array) -> Inferred:
        if self.found is None or not np.array_equal(theta, self.theta):
            self.theta, self.found = theta.copy(), self.problem.infer(theta)
        return self.found


def _smoothed(problem: Problem, shares: Array, ridge: float) -> Array:
    """Return shares pulled towards uniform tables, by about as much as a ridge pulls; all positive."""
    parts = []
    for table in problem.split(shares):
        weight = min(0.5, (1 + ridge) * table.size / (problem.n + table.size))
        positive_part = project_to_simplex(table)
        parts.append(((1 - weight) * positive_part + weight / table.size).ravel())
    return np.concatenate(parts)


def _projected(problem: Problem) -> Array:
    return np.concatenate([project_to_simplex(t / problem.n).ravel() for t in problem.split(problem.counts)])
