"""The analyst's side: a Markov random field from noisy clique tables, by methods that ignore the noise or know of it.

Chapter 5 explains them. Everything here reads a release, and no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

from dpbook._arrays import Array
from dpbook._validation import (
    Option,
    flag_option,
    integer,
    method_options,
    optional,
    positive,
    positive_option,
    whole_option,
)
from dpbook.graphical.collective import expectation
from dpbook.graphical.domain import POTENTIALS_MODEL, Domain
from dpbook.graphical.field import FitReport, MarkovRandomField
from dpbook.graphical.junction import LARGEST_TABLE, JunctionTree
from dpbook.graphical.likelihood import LastInference, maximum_likelihood, minimise, projected, report_of
from dpbook.graphical.tables import Inferred, NoisyTables, tables_of
from dpbook.release import Release

__all__ = ["field_of", "fit", "noise_aware_ridge"]

OPTIONS: dict[str, dict[str, Option]] = {
    "cgm": {"ridge": optional(positive_option()), "steps": optional(whole_option(0)), "gap": positive_option()},
    "naive": {"ridge": optional(positive_option()), "project": flag_option()},
    "penalised": {"prior_sd": positive_option()},
}

_MOVE = 0.25  # how far EM may move a log-potential in all, by default
_MOST_STEPS = 50


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
    Explained in :doc:`/book/graphical-models/collective-graphical-models`.

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
    """
    called = {
        "method": method,
        "inference": inference,
        "tolerance": tolerance,
        "iterations": iterations,
        "limit": limit,
    }
    chosen = method_options(method, options, OPTIONS)
    iterations = integer("iterations", iterations, least=1)
    if tolerance is not None:
        tolerance = positive("tolerance", tolerance)
    tables = tables_of(release, inference=inference, limit=limit)
    enough = _default_tolerance(tables) if tolerance is None else tolerance
    theta, report = _FITS[method](tables, enough, iterations, **chosen)
    return tables.field(theta, replace(report, called=called | options))


def _default_tolerance(tables: NoisyTables) -> float:
    chance = 1 / (tables.n * np.mean([math.prod(shape) for shape in tables.shapes]))
    sd = math.sqrt(chance + 2 * (float(np.median(tables.scales)) / tables.n) ** 2)
    return float(np.clip(0.01 * sd, 1e-7, 1e-5))


def _fit_naive(
    tables: NoisyTables, tolerance: float, iterations: int, *, ridge: float | None = None, project: bool = True
) -> tuple[Array, FitReport]:
    ridge = 1e-4 if ridge is None else ridge
    shares = projected(tables) if project else tables.counts / tables.n
    best = maximum_likelihood(tables, shares, ridge, tolerance=tolerance, iterations=iterations)
    return best.theta, report_of("naive", tables, best, tolerance, {"ridge": ridge, "project": project})


def noise_aware_ridge(tables: NoisyTables) -> float:
    """Return the ridge at which cgm starts: that of a prior of variance 1, stronger where the counts are noisy.

    Without noise a normal prior of variance 1 on log-potentials asks for 1/2. A cell's count of about n / cells tells
    n / cells about its log-potential; with noise of variance 2b² it tells less by the factor 1 + 2b² cells / n, and a
    likelihood that ignores the noise needs its prior stronger by that factor. Cells below the average tell less still,
    and too strong a prior is the lesser evil, so that the noise is counted twice. Explained in
    :doc:`/book/graphical-models/collective-graphical-models`.

    Parameters
    ----------
    tables : NoisyTables

    Returns
    -------
    float
        1/2 + 2 b² cells / n, averaged over cells.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> noisy = graphical.release(np.array([30, 10]), {"a": 2}, [("a",)], epsilon=1.0, rng=np.random.default_rng(0))
    >>> graphical.noise_aware_ridge(graphical.tables_of(noisy))
    0.9
    """
    cells = np.concatenate([np.full(table.size, table.size) for table in tables.split(tables.counts)])
    return 0.5 + float(np.mean(2 * tables.scales**2 * cells)) / tables.n


def _fit_cgm(
    tables: NoisyTables,
    tolerance: float,
    iterations: int,
    *,
    ridge: float | None = None,
    steps: int | None = None,
    gap: float = 0.02,
) -> tuple[Array, FitReport]:
    """EM: the M-step is free, for the tables that an E-step infers are those of the field at θ + λ."""
    ridge = noise_aware_ridge(tables) if ridge is None else ridge
    # EM moves on from here: the start need be no more exact than the E-steps.
    rough = max(tolerance, min(tolerance * gap / 1e-3, 1e-4))
    best = maximum_likelihood(tables, projected(tables), ridge, tolerance=rough, iterations=iterations)
    scale, reach = float(np.median(tables.scales)), None
    if steps is None:
        steps = int(np.clip(round(_MOVE * scale), 1, _MOST_STEPS))
        reach = _MOVE if steps == 1 else None
    theta, multipliers, widest, evaluations = best.theta, None, 0.0, best.evaluations
    history = [_likeness(tables, tables.infer(theta).means)]
    enough = gap * tables.counts.size
    for _ in range(steps):
        found = expectation(tables, theta, start=multipliers, reach=reach, tolerance=enough)
        theta, multipliers = theta + found.multipliers / tables.copies, found.multipliers
        widest, evaluations = max(widest, found.gap), evaluations + found.evaluations
        history.append(_likeness(tables, found.means))
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
    return theta, report


def _likeness(tables: NoisyTables, means: Array) -> float:
    """Return the log density of the noise that these tables imply, up to a constant."""
    return -float((np.abs(tables.counts - tables.n * means) / tables.scales).sum())


def _fit_penalised(
    tables: NoisyTables, tolerance: float, iterations: int, *, prior_sd: float = 1.0
) -> tuple[Array, FitReport]:
    """Maximise the sum of log densities of the cells less half the squared potentials over the prior's variance."""
    if not isinstance(tables.engine, JunctionTree):
        raise ValueError("method 'penalised' needs exact inference; use method='cgm' where the graph is too entangled")
    n, precision = tables.n, 1 / (prior_sd**2 * tables.n)

    last = LastInference(tables)

    def loss(theta: Array) -> tuple[float, Array]:
        found = last.infer(theta)
        density, slope = _cell_likelihood(tables, found)
        pull = tables.copies * tables.tangent(found, -slope / (n * tables.copies))
        return -density / n + 0.5 * precision * float(theta @ theta), pull + precision * theta

    def curvature(theta: Array) -> Array:
        share = np.maximum(last.infer(theta).means, 1e-9)
        return np.asarray(tables.copies * n * share**2 / (n * share + 2 * tables.scales**2) + precision)

    begin = maximum_likelihood(
        tables, projected(tables), noise_aware_ridge(tables), tolerance=1e-4, iterations=iterations
    )
    best = minimise(loss, curvature, begin.theta, tolerance, iterations)
    return best.theta, report_of("penalised", tables, best, tolerance, {"prior_sd": prior_sd})


def _cell_likelihood(tables: NoisyTables, found: Inferred) -> tuple[float, Array]:
    """Return Σ log p(y | μ) and its slope in μ, each noisy cell a normal count n μ plus Laplace noise.

    With f the density of the sum, φ that of the normal part and z = y − nμ, f satisfies f − b² f'' = φ, so that the
    slope in the variance is (1 − φ/f)/2b²; the slope in the mean is −f'/f, a hyperbolic tangent over b.
    """
    n, b = tables.n, tables.scales
    share = np.clip(found.means, 1e-12, 1 - 1e-12)
    variance = n * share * (1 - share)
    sd, z = np.sqrt(variance), tables.counts - n * share
    lead = variance / (2 * b**2)
    near = lead - z / b + special.log_ndtr(z / sd - sd / b)
    far = lead + z / b + special.log_ndtr(-z / sd - sd / b)
    log_density = np.logaddexp(near, far) - np.log(2 * b)
    in_mean = np.tanh((near - far) / 2) / b
    log_normal = -0.5 * z**2 / variance - 0.5 * np.log(2 * np.pi * variance)
    in_variance = 0.5 * (1 - np.exp(np.minimum(log_normal - log_density, 50))) / b**2
    return float(log_density.sum()), n * in_mean + n * (1 - 2 * share) * in_variance


_FITS: dict[str, Callable[..., tuple[Array, FitReport]]] = {
    "cgm": _fit_cgm,
    "naive": _fit_naive,
    "penalised": _fit_penalised,
}


def field_of(release: Release, *, inference: str = "auto") -> MarkovRandomField:
    """Return the field whose potentials a release holds; post-processing.

    Explained in :doc:`/book/graphical-models/mobility`.

    Parameters
    ----------
    release : Release
        From :func:`dpbook.graphical.release_dpsgd`.
    inference : {"auto", "exact", "loopy"}
        As in :class:`MarkovRandomField`.

    Returns
    -------
    MarkovRandomField
        With ``report.method`` "dp-sgd".

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> release = graphical.release_dpsgd(np.array([60, 40]), {"a": 2}, [("a",)], epsilon=5.0,
    ...                                   rng=np.random.default_rng(0))
    >>> graphical.field_of(release).report.method
    'dp-sgd'
    """
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release of potentials, got {type(release).__name__}")
    release.require(model=POTENTIALS_MODEL, several=False)  # means of potentials are those of no field
    domain = Domain.of_settings(release.settings["domain"])
    steps = int(release.settings["steps"])
    report = FitReport("dp-sgd", steps, True, f"{steps} noisy steps", float("nan"))
    cliques = [list(group) for group in release.settings["cliques"]]
    return MarkovRandomField(domain, cliques, release.values, inference=inference, report=report)
