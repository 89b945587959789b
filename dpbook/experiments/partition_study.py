"""The studies of chapter 2: how near sample-and-aggregate comes to the full-data posterior, and what decides it.

Every study simulates many data sets at once, splits them, asks all partitions of all data sets for their posteriors in
one batch, and compares the aggregates, with and without noise, with the full-data answer. Each is a function that
returns a table, and a command, ``python -m dpbook.experiments.partition_study NAME``. Studies measure methods; they
publish nothing and spend no budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special
from tqdm import tqdm

from dpbook._validation import integer, one_of
from dpbook.aggregate import (
    ConjugateRegression,
    Moments,
    SemiConjugateRegression,
    Zellner,
    centred_bounds,
    combine,
    doubled_bounds,
    fisher_probability,
    fisher_slope,
    preview_probability,
    probability_nonprivate,
    quantile_nonprivate,
    release_probability,
    release_quantile,
    rescale_probability,
    residual_sd,
)
from dpbook.aggregate.splitting import moments_of_groups
from dpbook.datasets import load_cps_earnings
from dpbook.experiments._studies import Study, cell_rng, load_table, results_of, run_command
from dpbook.release import Release

__all__ = [
    "CUTOFFS",
    "RESULTS",
    "STUDIES",
    "coverage",
    "doubling",
    "earnings",
    "load",
    "main",
    "probabilities",
    "quantiles",
    "simulate",
    "sizes",
    "unequal",
    "z_scores",
]

Array = NDArray[np.float64]

RESULTS = results_of("sample-and-aggregate")
SEED = 2018
N = 100_000
SLOPE = 2.0
CUTOFFS = tuple(np.arange(-3.0, 3.01, 0.5))  # in full-data posterior sds from the true slope
P_MIN = 0.001
LARGEST = -2 * math.log(P_MIN)
PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
DESIGNS = ("normal", "skewed")
_BATCH = 10  # data sets simulated at a time

EARNINGS = ConjugateRegression(response="log_earnings", covariates=["education"], coefficient="education")


# Simulated data sets


def simulate(
    trials: int,
    partitions: int,
    rng: np.random.Generator,
    *,
    n: int = N,
    noise_sd: float = 1.0,
    design: str = "normal",
    unequal: float = 0.0,
) -> Iterator[tuple[Moments, Moments]]:
    """Simulate data sets y = 1 + 2x + error, split, and yield the moments of their partitions and of the whole.

    Records are independent, so that cutting them in order is a random split. With n not a multiple of the number of
    partitions, n is rounded down to one.

    Parameters
    ----------
    trials : int
        Data sets.
    partitions : int
        M.
    rng : numpy.random.Generator
        Source of everything.
    n : int
        Records a data set.
    noise_sd : float
        Of the errors.
    design : {"normal", "skewed"}
        Standard normal x and normal errors; or log-normal x and exponential errors, both standardised.
    unequal : float
        Sd of the logarithm of the factor by which x is spread in each partition; 0 for equal partitions.

    Yields
    ------
    tuple of Moments
        Of the partitions, (data sets · M), and of the whole data sets, a batch at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.partition_study import simulate
    >>> parts, whole = next(simulate(3, 10, np.random.default_rng(0), n=1000))
    >>> parts.n.shape, whole.n
    ((30,), array([1000., 1000., 1000.]))

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    one_of("design", design, DESIGNS)
    size = n // partitions
    for start in range(0, integer("trials", trials, least=1), _BATCH):
        batch = min(_BATCH, trials - start)
        shape = (batch * partitions, size)
        if design == "normal":
            x, error = rng.standard_normal(shape), rng.standard_normal(shape)
        else:
            x = (np.exp(rng.standard_normal(shape)) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)
            error = rng.standard_exponential(shape) - 1
        if unequal:
            x *= np.exp(unequal * rng.standard_normal((len(x), 1)))
        parts = moments_of_groups([x, 1 + SLOPE * x + noise_sd * error])
        yield parts, _pool(parts, batch)


def _pool(parts: Moments, groups: int) -> Moments:
    """Return the moments of consecutive partitions put together."""
    k = parts.mean.shape[1]
    n = parts.n.reshape(groups, -1)
    mean = parts.mean.reshape(groups, -1, k)
    total = n.sum(axis=1)
    centre = (n[..., None] * mean).sum(axis=1) / total[:, None]
    gap = mean - centre[:, None]
    within = parts.scatter.reshape(groups, -1, k, k).sum(axis=1)
    return Moments(total, centre, within + np.einsum("gm,gmi,gmj->gij", n, gap, gap))


def _cutoffs(n: int, noise_sd: float = 1.0) -> Array:
    return SLOPE + np.array(CUTOFFS) * noise_sd / math.sqrt(n)


def _partition_probabilities(
    trials: int,
    partitions: int,
    cutoffs: Array,
    rng: np.random.Generator,
    model: ConjugateRegression | None = None,
    **options: Any,
) -> tuple[Array, Array]:
    """Return the full-data probabilities, (trials, K), and those of the partitions, (trials, M, K)."""
    asked = ConjugateRegression() if model is None else model
    full, parts = [], []
    for split, whole in simulate(trials, partitions, rng, **options):
        full.append(ConjugateRegression()._batch_probability(whole, cutoffs, power=1.0, prior_power=1.0))
        p = asked._batch_probability(split, cutoffs, power=1.0, prior_power=1 / partitions)
        parts.append(p.reshape(len(whole.n), partitions, len(cutoffs)))
    return np.concatenate(full), np.concatenate(parts)


def _aggregates(p: Array) -> tuple[Array, Array]:
    """Return the means, and the sums of clipped -2 log p, over partitions."""
    with np.errstate(divide="ignore"):
        return p.mean(axis=1), np.minimum(-2 * np.log(p), LARGEST).sum(axis=1)


# Figures 3.1 to 3.4


def probabilities(
    *, trials: int = 500, epsilon: float = 0.25, partitions: int = 1000, seed: int = SEED
) -> pd.DataFrame:
    """Compare private posterior probabilities with full-data ones on the source's design (figures 3.1 to 3.4).

    100,000 records, partitions of 100, slope 2, unit noise, thirteen cutoffs, each released with epsilon of its own as
    in the source. The column ``mean`` over data sets is what the source calls, after Rubin, calibration
    probabilities: its equations 3.12 and 3.18 ask that the three means agree.

    Parameters
    ----------
    trials : int, default 500
        Data sets.
    epsilon : float, default 0.25
        Of each cutoff.
    partitions : int, default 1000
        M.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        A row per method, with or without noise, and cutoff (in posterior sds from the true slope): mean and
        quantiles of the probability and of full-data minus it, and the RMSE. ``"normality, small g"`` and
        ``"fisher, small g"`` have Zellner's g as displayed in the source; ``"fisher as printed"`` has its noise.

    Examples
    --------
    >>> from dpbook.experiments.partition_study import probabilities
    >>> table = probabilities(trials=2)
    >>> sorted(set(table["method"]))[:3]
    ['fisher', 'fisher as printed', 'fisher, small g']

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    cutoffs = _cutoffs(N)
    full, p = _partition_probabilities(trials, partitions, cutoffs, cell_rng(seed, "probabilities"))
    # The same seed gives the same data sets, here with g the size of a partition, as displayed in the source.
    small = ConjugateRegression(prior=Zellner(g=N / partitions))
    _, shrunk = _partition_probabilities(trials, partitions, cutoffs, cell_rng(seed, "probabilities"), small)
    rows = _rows_of({"method": "non-private", "noise": False}, full, full)
    noise = cell_rng(seed, "probabilities", "noise").laplace(size=full.shape) / epsilon
    for suffix, values in (("", p), (", small g", shrunk)):
        mean, total = _aggregates(values)
        for noisy in (False, True):
            lifted = mean + noisy * noise / partitions
            summed = total + noisy * noise * LARGEST
            answers = {
                "normality": rescale_probability(lifted, partitions),
                "normality as printed": rescale_probability(lifted, partitions, rescale="source"),
                "fisher": fisher_probability(summed, partitions),
                "fisher as printed": fisher_probability(total + noisy * noise * LARGEST / partitions, partitions),
            }
            for method, answer in answers.items():
                if not (suffix and "printed" in method) and (noisy or method != "fisher as printed"):
                    rows += _rows_of({"method": method + suffix, "noise": noisy}, answer, full)
    return pd.DataFrame(rows)


def _rows_of(label: Mapping[str, Any], answer: Array, full: Array) -> list[dict[str, Any]]:
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    difference = full - answer
    rows = []
    for k, cutoff in enumerate(CUTOFFS):
        row: dict[str, Any] = {**label, "cutoff": cutoff, "mean": answer[:, k].mean()}
        row |= {f"q{round(100 * q):02d}": np.quantile(answer[:, k], q) for q in levels}
        row |= {"difference": difference[:, k].mean(), "difference_sd": difference[:, k].std()}
        row |= {f"d{round(100 * q):02d}": np.quantile(difference[:, k], q) for q in levels}
        rows.append(row | {"rmse": math.sqrt((difference[:, k] ** 2).mean())})
    return rows


# Theory of both methods


def z_scores(
    *, trials: int = 1000, partitions: Sequence[int] = (100, 1000), seed: int = SEED, progress: bool = False
) -> pd.DataFrame:
    """Regress the z-score of each method's answer, before noise, on the full-data z-score.

    Parameters
    ----------
    trials : int, default 1000
        Data sets.
    partitions : sequence of int
        Numbers of partitions.
    seed : int
        Of everything.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    pandas.DataFrame
        Slope, residual sd (all cutoffs within 2 sds, and the middle one), and what theory says of them at z = 0.

    Examples
    --------
    >>> from dpbook.experiments.partition_study import z_scores
    >>> table = z_scores(trials=10, partitions=[100])
    >>> bool(table.set_index("method")["slope"]["normality"] > 0.9)
    True

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    rows = []
    for m in tqdm(partitions, desc="partitions", disable=not progress):
        full, p = _partition_probabilities(trials, m, _cutoffs(N), cell_rng(seed, "z_scores", m))
        mean, total = _aggregates(p)
        z = special.ndtri(full)
        answers = {
            "normality": (math.sqrt(2 * m - 1) * special.ndtri(mean), 1.0, residual_sd(m, size=N // m)),
            "normality as printed": (
                math.sqrt(m) * special.ndtri(mean),
                math.sqrt(m / (2 * m - 1)),
                residual_sd(m, size=N // m) * math.sqrt(m / (2 * m - 1)),
            ),
            "fisher": (
                special.ndtri(fisher_probability(total, m)),
                fisher_slope(),
                residual_sd(m, method="fisher", size=N // m),
            ),
        }
        near = np.abs(z) <= 2
        middle = len(CUTOFFS) // 2
        for method, (answer, slope_theory, sd_theory) in answers.items():
            slope, intercept = np.polyfit(z[near], answer[near], 1)
            left = answer - slope * z - intercept
            rows.append(
                {
                    "method": method,
                    "partitions": m,
                    "slope": slope,
                    "intercept": intercept,
                    "residual_sd": left[near].std(),
                    "residual_sd_middle": left[:, middle].std(),
                    "slope_theory": slope_theory,
                    "residual_sd_theory": sd_theory,
                }
            )
    return pd.DataFrame(rows)


def unequal(
    *, trials: int = 400, spreads: Sequence[float] = (0.0, 0.1, 0.2, 0.4, 0.8), partitions: int = 1000, seed: int = SEED
) -> pd.DataFrame:
    """Show what partitions with unequal posterior variances do: the assumption that both methods make.

    Parameters
    ----------
    trials : int, default 400
        Data sets.
    spreads : sequence of float
        Sds of the log spread of x between partitions; a random split has about 0.
    partitions : int, default 1000
        M.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        Per spread and method: slope and residual sd of the z-score on the full-data one, and the RMSE of the
        probability before noise at the true slope.

    Examples
    --------
    >>> from dpbook.experiments.partition_study import unequal
    >>> unequal(trials=5, spreads=[0.0], partitions=100)["method"].tolist()
    ['normality', 'fisher']

    Explained in :doc:`/book/sample-and-aggregate/when-to-use-it`.
    """
    rows = []
    middle = len(CUTOFFS) // 2
    for spread in spreads:
        rng = cell_rng(seed, "unequal", spread)
        # The sd of the full-data posterior shrinks with the mean square of the spreads.
        cutoffs = SLOPE + (_cutoffs(N) - SLOPE) * math.exp(-(spread**2))
        full, p = _partition_probabilities(trials, partitions, cutoffs, rng, unequal=spread)
        mean, total = _aggregates(p)
        z = special.ndtri(np.clip(full, 1e-12, 1 - 1e-12))
        answers = {
            "normality": rescale_probability(mean, partitions),
            "fisher": fisher_probability(total, partitions),
        }
        near = np.abs(z) <= 2
        for method, answer in answers.items():
            score = special.ndtri(np.clip(answer, 1e-12, 1 - 1e-12))
            slope, intercept = np.polyfit(z[near], score[near], 1)
            rows.append(
                {
                    "spread": spread,
                    "method": method,
                    "slope": slope,
                    "residual_sd": (score - slope * z - intercept)[near].std(),
                    "rmse": math.sqrt(((answer - full)[:, middle] ** 2).mean()),
                }
            )
    return pd.DataFrame(rows)


def sizes(
    *,
    trials: int = 400,
    partitions: Sequence[int] = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000),
    epsilons: Sequence[float] = (0.25, 1.0, 4.0),
    designs: Sequence[str] = DESIGNS,
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Measure the error against the number of partitions at fixed n: the trade between noise and bias.

    Parameters
    ----------
    trials : int, default 400
        Data sets a cell.
    partitions : sequence of int
        Numbers of partitions of 100,000 records.
    epsilons : sequence of float
        Privacy losses.
    designs : sequence of str
        As in :func:`simulate`.
    seed : int
        Of everything.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    pandas.DataFrame
        Per design, M and epsilon (infinity without noise): the RMSE of the corrected probability at the true slope,
        what :func:`preview_probability` expects on average, and mean and sd of the error of the z-score before
        noise.

    Examples
    --------
    >>> from dpbook.experiments.partition_study import sizes
    >>> sizes(trials=5, partitions=[50], epsilons=[1.0], designs=["normal"])["epsilon"].tolist()
    [1.0, inf]

    Explained in :doc:`/book/sample-and-aggregate/when-to-use-it`.
    """
    rows = []
    cells = [(design, m) for design in designs for m in partitions]
    for design, m in tqdm(cells, desc="cells", disable=not progress):
        rng = cell_rng(seed, "sizes", design, m)
        full, p = _partition_probabilities(trials, m, np.array([SLOPE]), rng, design=design)
        mean = p.mean(axis=1)
        error = math.sqrt(2 * m - 1) * special.ndtri(mean) - special.ndtri(full)
        noise = rng.laplace(size=mean.shape)
        for epsilon in (*epsilons, math.inf):
            answer = rescale_probability(mean + noise / (m * epsilon), m)
            expected = preview_probability(n=N, partitions=m, epsilon=min(epsilon, 1e9))
            rows.append(
                {
                    "design": design,
                    "partitions": m,
                    "epsilon": epsilon,
                    "rmse": math.sqrt(((answer - full) ** 2).mean()),
                    "expected": expected.average_rmse,
                    "z_bias": error.mean(),
                    "z_sd": error.std(),
                }
            )
    return pd.DataFrame(rows)


# Figures 4.1 and 4.2


def quantiles(
    *,
    trials: int = 400,
    partitions: Sequence[int] = (100, 1000),
    epsilon: float = 0.9,
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Compare private posterior quantiles with full-data ones on the source's design (figures 4.1 and 4.2).

    100,000 records, slope 2, noise of variance 100, a semi-conjugate prior, partitions of 1,000 as in the source (and
    of 100). Each quantile is released with epsilon of its own: half for bounds by doubling, half for the mean, as in
    the source; or the same epsilon with centred bounds in the public range (-10, 10). Equation 4.6 asks that the
    means agree.

    Parameters
    ----------
    trials : int, default 400
        Data sets.
    partitions : sequence of int
        Numbers of partitions.
    epsilon : float, default 0.9
        Of each quantile.
    seed : int
        Of everything.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    pandas.DataFrame
        Per M, method and probability: mean and quantiles of the answer, and median, 95th and 99th percentile of its
        absolute distance from the full-data quantile, in full-data posterior sds.

    Examples
    --------
    >>> from dpbook.experiments.partition_study import quantiles
    >>> sorted(set(quantiles(trials=2, partitions=[50])["method"]))
    ['averaged', 'centred', 'non-private', 'sparse vector']

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """
    model = SemiConjugateRegression()
    points = np.array(PROBABILITIES)
    rows = []
    for m in partitions:
        rng = cell_rng(seed, "quantiles", m)
        answers: dict[str, list[Array]] = {"non-private": [], "averaged": [], "sparse vector": [], "centred": []}
        worlds = simulate(trials, m, rng, noise_sd=10.0)
        for split, whole in tqdm(worlds, total=-(-trials // _BATCH), desc=f"M = {m}", disable=not progress):
            answers["non-private"].append(model._batch_quantile(whole, points, power=1.0, prior_power=1.0))
            q = model._batch_quantile(split, points, power=float(m), prior_power=1.0)
            q = q.reshape(len(whole.n), m, len(points))
            answers["averaged"].append(q.mean(axis=1))
            answers["sparse vector"].append(_noisy_quantiles(q, epsilon, "sparse-vector", rng))
            answers["centred"].append(_noisy_quantiles(q, epsilon, "centred", rng))
        joined = {method: np.concatenate(parts) for method, parts in answers.items()}
        full = joined["non-private"]
        sd = (full[:, -1] - full[:, 0]) / (special.ndtri(PROBABILITIES[-1]) - special.ndtri(PROBABILITIES[0]))
        for method, answer in joined.items():
            distance = np.abs(answer - full) / sd[:, None]
            for k, p in enumerate(PROBABILITIES):
                row: dict[str, Any] = {"partitions": m, "method": method, "probability": p}
                row |= {"mean": answer[:, k].mean(), "posterior_sd": sd.mean()}
                row |= {f"q{round(100 * q):02d}": np.quantile(answer[:, k], q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
                row |= {f"error{round(100 * q)}": np.quantile(distance[:, k], q) for q in (0.5, 0.95, 0.99)}
                difference = full[:, k] - answer[:, k]
                row |= {f"d{round(100 * q):02d}": np.quantile(difference, q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
                rows.append(row)
    return pd.DataFrame(rows)


def _noisy_quantiles(q: Array, epsilon: float, kind: str, rng: np.random.Generator) -> Array:
    """Return private means of quantiles (data sets, M, K), each with epsilon of its own, as a release makes them."""
    m = q.shape[1]
    spent = epsilon / 2 if kind == "sparse-vector" else min(epsilon / 2, 200 / m)
    answer = np.empty((len(q), q.shape[2]))
    for i in range(len(q)):
        for k in range(q.shape[2]):
            values = q[i, :, k]
            if kind == "centred":
                low, high, _ = centred_bounds(values, public_range=(-10.0, 10.0), epsilon=spent, rng=rng)
            else:
                low, high, _ = doubled_bounds(values, epsilon=spent, rng=rng)
            noisy = np.clip(values, low, high).mean() + rng.laplace(scale=(high - low) / (m * (epsilon - spent)))
            answer[i, k] = min(max(noisy, low), high)
    return answer


def doubling(
    *,
    trials: int = 2000,
    partitions: Sequence[int] = (100, 1000),
    thetas: Sequence[float] = (0.8, 0.95),
    epsilon: float = 0.45,
    seed: int = SEED,
) -> pd.DataFrame:
    """Show where the doubling search stops for quantiles about 2: how often it overshoots, and how far.

    Parameters
    ----------
    trials : int, default 2000
        Searches a cell.
    partitions : sequence of int
        M; the partitions' quantiles have a spread of 10/√(records a partition) about 2.
    thetas : sequence of float
        Shares of the partitions to hold.
    epsilon : float, default 0.45
        Of each search.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        Per M and theta: the share of searches that stop below 4, at 4, at 8, and beyond, the share that come to the
        cap, and the largest bound.

    Examples
    --------
    >>> from dpbook.experiments.partition_study import doubling
    >>> doubling(trials=50, partitions=[1000], thetas=[0.95])["beyond"].tolist()
    [0.0]

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """
    rows = []
    for m in partitions:
        for theta in thetas:
            rng = cell_rng(seed, "doubling", m, theta)
            values = SLOPE + 10 / math.sqrt(N / m) * rng.standard_normal((trials, m))
            found = [doubled_bounds(each, epsilon=epsilon, theta=theta, rng=rng) for each in values]
            high = np.array([each.high for each in found])
            rows.append(
                {
                    "partitions": m,
                    "theta": theta,
                    "below": (high < 4).mean(),
                    "four": (high == 4).mean(),
                    "eight": (high == 8).mean(),
                    "beyond": (high > 8).mean(),
                    "capped": np.mean([not each.found for each in found]),
                    "largest": high.max(),
                }
            )
    return pd.DataFrame(rows)


# Intervals


def coverage(*, trials: int = 1000, level: float = 0.95, seed: int = SEED, progress: bool = False) -> pd.DataFrame:
    """Measure how often the intervals of :func:`combine` hold the full-data answer.

    Parameters
    ----------
    trials : int, default 1000
        Data sets; 400 at most for quantiles.
    level : float, default 0.95
        Of the intervals.
    seed : int
        Of everything.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    pandas.DataFrame
        Per quantity, method, M and epsilon: coverage over data sets and cutoffs (or probabilities), mean width, and
        ``noise_alone``, the coverage of an interval that knows of the Laplace noise only.

    Examples
    --------
    >>> from dpbook.experiments.partition_study import coverage
    >>> table = coverage(trials=5)
    >>> sorted(set(table["quantity"]))
    ['probability', 'quantile']

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    rows: list[dict[str, Any]] = []
    cutoffs = _cutoffs(N)[::3]
    for m in (100, 1000):
        full, p = _partition_probabilities(trials, m, cutoffs, cell_rng(seed, "coverage", m))
        mean, total = _aggregates(p)
        for method, exact in (("normality", mean), ("fisher", total)):
            for epsilon in (0.25, 1.0, 4.0):
                rng = cell_rng(seed, "coverage", m, method, epsilon)
                rows.append({"quantity": "probability", "method": method, "partitions": m, "epsilon": epsilon})
                rows[-1] |= _probability_coverage(exact, full, m, method, epsilon, level, rng)
    cells = [(kind, m, epsilon) for m in (100, 1000) for kind in ("centred", "sparse-vector") for epsilon in (0.9, 4.0)]
    for kind, m, epsilon in tqdm(cells, desc="cells", disable=not progress):
        rng = cell_rng(seed, "coverage", kind, m, epsilon)
        rows.append({"quantity": "quantile", "method": kind, "partitions": m, "epsilon": epsilon})
        rows[-1] |= _quantile_coverage(min(trials, 400), m, kind, epsilon, level, rng)
    return pd.DataFrame(rows)


def _probability_coverage(
    exact: Array, full: Array, m: int, method: str, epsilon: float, level: float, rng: np.random.Generator
) -> dict[str, float]:
    scale = 1 / (m * epsilon) if method == "normality" else LARGEST / epsilon
    name = "mean" if method == "normality" else "sum"
    noisy = exact + rng.laplace(scale=scale, size=exact.shape)
    low, high = combine(_probability_release(name, noisy.ravel(), method, m, epsilon, scale)).interval(level)
    held = (low <= full.ravel()) & (full.ravel() <= high)
    reach = scale * math.log(1 / (1 - level))  # the Laplace distribution's own two-sided quantile
    ends = [_point(noisy + sign * reach, m, method) for sign in (-1, 1)]
    alone = (np.minimum(*ends) <= full) & (full <= np.maximum(*ends))
    return {"coverage": held.mean(), "width": (high - low).mean(), "noise_alone": alone.mean(), "count": held.size}


def _point(noisy: Array, m: int, method: str) -> Array:
    return np.asarray(rescale_probability(noisy, m) if method == "normality" else fisher_probability(noisy, m))


def _probability_release(name: str, noisy: Array, method: str, m: int, epsilon: float, scale: float) -> Release:
    settings = {"method": method, "partitions": m, "cutoff": [0.0] * len(noisy), "rescale": "corrected", "nuisance": 1}
    return Release(
        values={name: noisy},
        model="posterior probability",
        mechanism="laplace",
        scale={name: scale},
        sensitivity={name: scale * epsilon},
        epsilon=epsilon,
        n=N,
        settings=settings | ({} if method == "normality" else {"p_min": P_MIN}),
        float_safe=False,
    )


def _quantile_coverage(
    trials: int, m: int, kind: str, epsilon: float, level: float, rng: np.random.Generator
) -> dict[str, float]:
    """Release a quantile of each simulated data set through the package itself, and count."""
    model = ConjugateRegression()
    held, widths, alone = [], [], []
    for _ in range(trials):
        x = rng.standard_normal(N)
        data = np.column_stack([x, 1 + SLOPE * x + 10 * rng.standard_normal(N)])
        p = rng.uniform(0.05, 0.95)
        full = quantile_nonprivate(data, p, posterior=model)
        options: dict[str, Any] = {"bounds": kind}
        if kind == "centred":
            options["public_range"] = (-10.0, 10.0)
        release = release_quantile(data, p, posterior=model, partitions=m, epsilon=epsilon, rng=rng, **options)
        low, high = combine(release).interval(level)
        held.append(low <= full <= high)
        widths.append(high - low)
        reach = release.scale["quantile"] * math.log(1 / (1 - level))
        alone.append(abs(release["quantile"] - full) <= reach)
    return {
        "coverage": float(np.mean(held)),
        "width": float(np.mean(widths)),
        "noise_alone": float(np.mean(alone)),
        "count": trials,
    }


# Earnings


def earnings(
    *,
    trials: int = 100,
    partitions: Sequence[int] = (100, 300, 600, 1200),
    epsilons: Sequence[float] = (0.25, 1.0, 4.0),
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Release the return to a year of education in 61,395 earnings, many times over, beside the non-private answer.

    The return is the slope of log hourly earnings on years of education. Each trial splits the records anew.

    Parameters
    ----------
    trials : int, default 100
        Releases a cell.
    partitions : sequence of int
        Numbers of partitions.
    epsilons : sequence of float
        Privacy losses, of each quantity.
    seed : int
        Of everything.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    pandas.DataFrame
        Per quantity (the probability of a return above 8 %, and above the full-data posterior median; the 5 % and
        95 % quantiles, released together in the public range (-0.5, 0.5)), M and epsilon: the non-private answer,
        mean, sd, RMSE and quantiles of the released one, and the coverage of its 95 % interval.

    Examples
    --------
    >>> from dpbook.experiments.partition_study import earnings
    >>> table = earnings(trials=2, partitions=[100], epsilons=[1.0])
    >>> table["quantity"].tolist()
    ['above 8 %', 'above the median', '5 % quantile', '95 % quantile']

    Explained in :doc:`/book/sample-and-aggregate/when-to-use-it`.
    """
    table = load_cps_earnings()
    table = table.assign(log_earnings=np.log(table["earnings"]))[["education", "log_earnings"]]
    full_quantiles = quantile_nonprivate(table, [0.05, 0.5, 0.95], posterior=EARNINGS)
    cutoffs = {"above 8 %": 0.08, "above the median": float(full_quantiles[1])}
    rows = []
    for m in tqdm(partitions, desc="partitions", disable=not progress):
        for epsilon in epsilons:
            rng = cell_rng(seed, "earnings", m, epsilon)
            for quantity, cutoff in cutoffs.items():
                truth = 1 - float(probability_nonprivate(table, cutoff, posterior=EARNINGS))
                released, held = [], []
                for _ in range(trials):
                    answer = combine(
                        release_probability(table, cutoff, posterior=EARNINGS, partitions=m, epsilon=epsilon, rng=rng)
                    )
                    low, high = answer.interval(0.95)
                    released.append(1 - answer.probability)  # type: ignore[union-attr]
                    held.append(1 - high <= truth <= 1 - low)
                rows.append(_released_row(quantity, m, epsilon, truth, np.array(released), held))
            both = [_released_quantiles(table, m, epsilon, rng) for _ in range(trials)]
            for k, quantity in enumerate(("5 % quantile", "95 % quantile")):
                truth = float(full_quantiles[2 * k])
                held = [low[k] <= truth <= high[k] for _, low, high in both]
                rows.append(_released_row(quantity, m, epsilon, truth, np.array([q[k] for q, _, _ in both]), held))
    return pd.DataFrame(rows)


def _released_quantiles(table: pd.DataFrame, m: int, epsilon: float, rng: np.random.Generator) -> tuple[Array, ...]:
    release = release_quantile(
        table, [0.05, 0.95], posterior=EARNINGS, partitions=m, epsilon=epsilon, public_range=(-0.5, 0.5), rng=rng
    )
    answer = combine(release)
    return (answer.quantile, *answer.interval(0.95))  # type: ignore[union-attr]


def _released_row(
    quantity: str, m: int, epsilon: float, truth: float, released: Array, held: Sequence[bool]
) -> dict[str, Any]:
    row: dict[str, Any] = {"quantity": quantity, "partitions": m, "epsilon": epsilon, "nonprivate": truth}
    row |= {"mean": released.mean(), "sd": released.std(), "rmse": math.sqrt(((released - truth) ** 2).mean())}
    row |= {f"q{round(100 * q):02d}": np.quantile(released, q) for q in (0.05, 0.5, 0.95)}
    return row | {"coverage": float(np.mean(held))}


# Results on disk, and the command line

STUDIES: Mapping[str, Study] = {
    "probabilities": probabilities,
    "z_scores": z_scores,
    "unequal": unequal,
    "sizes": sizes,
    "quantiles": quantiles,
    "doubling": doubling,
    "coverage": coverage,
    "earnings": earnings,
}


def load(name: str, folder: str | Path = RESULTS) -> pd.DataFrame:
    """Return the committed result of a study at full size.

    Parameters
    ----------
    name : str
        A key of ``STUDIES``.
    folder : path, optional
        Where the tables are; by default those of the book.

    Returns
    -------
    pandas.DataFrame
        With ``attrs``: seed, trials, version and seconds that it took.

    Examples
    --------
    >>> from dpbook.experiments.partition_study import load
    >>> load("z_scores").attrs["trials"]
    1000

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    return load_table(name, STUDIES, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run studies and write their tables: ``python -m dpbook.experiments.partition_study sizes --progress``.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; by default those of the process.

    Examples
    --------
    >>> import tempfile
    >>> from dpbook.experiments.partition_study import main
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     main(["doubling", "--trials", "20", "--out", folder])  # doctest: +ELLIPSIS
    doubling: 4 rows, ... s

    Explained in :doc:`/book/sample-and-aggregate/posterior-probabilities`.
    """
    run_command(arguments, STUDIES, folder=RESULTS, seed=SEED, doc=main.__doc__)


if __name__ == "__main__":
    main()
