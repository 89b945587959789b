"""The gauntlet: whether the default intervals hold on data, bounds and budgets that nobody chose for them.

Sixty cells are drawn by lot from real files, bounds, privacy losses and sizes. In each, data sets of n records are
drawn from the file with replacement and released, and the default method reads the releases as one batch. The page
*Does it hold on your data?* shows the results. Studies measure methods; they publish nothing and spend no budget.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from gauntlet_problems import Cell, Problem, bounds_of, draw_cells, records_of
from gauntlet_rivals import (
    LEVEL,
    Box,
    Estimates,
    adassp,
    bootstrap,
    diffprivlib_mean,
    diffprivlib_regression,
    least_squares,
    naive,
)
from numpy.typing import NDArray
from scipy import stats

from dpbook import ConvergenceWarning, Release, aggregate, expfam, regression
from dpbook.diagnostics import holm
from dpbook.doubts import FewDraws
from dpbook.studies import Study, cell_rng

Array = NDArray[np.float64]

SEED = 2026
TRIALS = 200
OF_TRIALS = {0: 1.0, 1: 0.3, 2: 0.15}  # by covariates of a regression, whose posteriors take longest: 60 and 30 of 200
DRAWS, DRAWS_OF_LINES = 1000, 400  # of each posterior; of a regression's
GOAL, GIVEN_UP = 0.92, 0.03  # coverage that is enough, and how much less than without privacy is allowed
CHECK = 0.1  # share of epsilon that the check of a family or of a regression takes
BINS = 8  # of a histogram
LEAST_SHARE = 0.01  # of the records in a bin that is judged
RECORDS_PER_PARTITION = 100
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


class Measured(NamedTuple):
    """What the trials of a cell gave; arrays are (trial, parameter)."""

    names: Sequence[str]
    truth: Array  # (parameter,) or (trial, parameter)
    target: str  # what the truth is
    ours: Estimates
    posteriors: Sequence[Any]
    warned: NDArray[np.bool_]  # (trial,) whether the posterior raised a doubt
    nonprivate: Estimates
    rivals: Mapping[str, Estimates]
    clipped: float  # share of records of which the release cut something off


def resamples(problem: Problem, n: int, trials: int, rng: np.random.Generator) -> tuple[Array, list[Array]]:
    """Return the file's columns, and data sets of n records drawn from it with replacement."""
    file = records_of(problem)
    return file, [file[rng.integers(len(file), size=n)] for _ in range(trials)]


# Five kinds of question


def regress(cell: Cell, trials: int, rng: np.random.Generator) -> Measured:
    """Ask for a linear regression with its check; the truth is least squares on the whole file, unclipped."""
    problem = cell.problem
    file, samples = resamples(problem, cell.n, trials, rng)
    ends = [bounds_of(problem.file, name, cell.bounds) for name in (*problem.covariates, problem.response)]
    box = Box(*np.array(ends, dtype=float).T)
    bounds: dict[str, Any] = {"x_bounds": ends[:-1], "y_bounds": ends[-1]}
    releases = [
        regression.release(rows[:, :-1], rows[:, -1], **bounds, epsilon=cell.epsilon, check=CHECK, rng=rng)
        for rows in samples
    ]
    posteriors = read(regression.infer, releases, rng, draws=DRAWS_OF_LINES)
    layout = regression.Layout(len(problem.covariates), True)
    plain = [regression.release(rows[:, :-1], rows[:, -1], **bounds, epsilon=cell.epsilon, rng=rng) for rows in samples]
    one = np.stack([np.column_stack([np.ones(cell.n), box.inside(rows)]) for rows in samples])
    published, ridge = adassp(one.swapaxes(1, 2) @ one, cell.n, cell.epsilon, box, rng)
    return Measured(
        ("(intercept)", *problem.covariates),
        least_squares(file)[0],
        "least squares on the whole file, unclipped",
        of_posteriors(posteriors, "theta"),
        posteriors,
        doubted(posteriors),
        Estimates(*(np.stack(part) for part in zip(*map(least_squares, samples), strict=True))),
        {
            "naive": naive(plain, layout, box),
            "bootstrap": bootstrap(plain, layout, box, rng),
            "adassp": ridge._replace(point=published),
        },
        outside(file, ends),
    )


def average(cell: Cell, trials: int, rng: np.random.Generator) -> Measured:
    """Ask for a mean that assumes little; the truth is the mean of the file's clipped records."""
    problem = cell.problem
    file, samples = resamples(problem, cell.n, trials, rng)
    ends = bounds_of(problem.file, problem.response, cell.bounds)
    releases = [expfam.release_mean(rows[:, 0], ends, epsilon=cell.epsilon, rng=rng) for rows in samples]
    posteriors = read(expfam.infer, releases, rng)
    middle, half = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    total, squares = (np.array([float(each[name][0]) for each in releases]) for name in ("sum", "squares"))
    centre = total / cell.n
    sd = np.sqrt(np.maximum(squares / cell.n - centre**2, 0.0))
    by_t = np.clip([student(np.clip(rows[:, 0], *ends)) for rows in samples], -np.inf, np.inf)
    reach = stats.t.ppf(TAILS[1], cell.n - 1) * sd / np.sqrt(cell.n)
    noise = rng.laplace(scale=releases[0].scale["sum"] / cell.n, size=(2000, 1))
    again = sd / np.sqrt(cell.n) * rng.standard_normal((2000, trials)) + noise
    spread = np.quantile(again, TAILS, axis=0)
    return Measured(
        ("mean",),
        np.array([np.clip(file[:, 0], *ends).mean()]),
        "mean of the file's records, clipped to the bounds",
        of_posteriors(posteriors, "mean"),
        posteriors,
        doubted(posteriors),
        Estimates(*by_t.T[:, :, None]),
        {
            "naive": scaled(centre, centre - reach, centre + reach, middle, half),
            "bootstrap": scaled(centre, centre - spread[1], centre - spread[0], middle, half),
        },
        outside(file, [ends]),
    )


def fit_family(cell: Cell, trials: int, rng: np.random.Generator) -> Measured:
    """Ask for an exponential family with its check; the truth is the mean of the whole file, unclipped."""
    problem = cell.problem
    file, samples = resamples(problem, cell.n, trials, rng)
    ends = bounds_of(problem.file, problem.response, cell.bounds)
    family, prior = family_and_prior(problem.family, ends)
    check = 0.0 if problem.family == "Binomial" else CHECK  # yes or no: there is nothing to misfit
    releases = [expfam.release(rows[:, 0], family, epsilon=cell.epsilon, check=check, rng=rng) for rows in samples]
    posteriors = read(expfam.infer, releases, rng, prior)
    plain = [expfam.release(rows[:, 0], family, epsilon=cell.epsilon, rng=rng) for rows in samples]
    taken = expfam.infer(plain, prior, method="naive", draws=DRAWS, rng=rng)
    by_t = np.array([student(rows[:, 0]) for rows in samples])
    return Measured(
        ("mean",),
        file.mean(axis=0),
        "mean of the whole file, unclipped",
        of_posteriors(posteriors, "theta", MEAN_OF[problem.family]),
        posteriors,
        doubted(posteriors),
        Estimates(*by_t.T[:, :, None]),
        {"naive": of_posteriors(taken, "theta", MEAN_OF[problem.family])},
        0.0 if problem.family == "Binomial" else outside(file, [ends]),
    )


def count(cell: Cell, trials: int, rng: np.random.Generator) -> Measured:
    """Ask for a histogram of bins within the bounds; the truth is the file's shares, of bins with 1 % of it or more."""
    problem = cell.problem
    file, samples = resamples(problem, cell.n, trials, rng)
    ends = bounds_of(problem.file, problem.response, cell.bounds)
    edges = np.linspace(*ends, BINS + 1)
    releases = [expfam.release_histogram(rows[:, 0], edges, epsilon=cell.epsilon, rng=rng) for rows in samples]
    posteriors = read(expfam.infer, releases, rng)
    whole = shares_of(file[:, 0], edges)
    judged = whole >= LEAST_SHARE
    exact = np.array([shares_of(rows[:, 0], edges) * cell.n for rows in samples])
    noisy = np.clip(np.stack([each["histogram"] for each in releases]), 0, cell.n)
    return Measured(
        [name for name, kept in zip(posteriors[0].cells, judged, strict=True) if kept],
        whole[judged],
        "shares of the whole file, of bins that hold 1 % of it or more",
        of_posteriors(posteriors, "probabilities", lambda draws: draws[..., judged]),
        posteriors,
        doubted(posteriors),
        jeffreys(exact[:, judged], cell.n),
        {"naive": jeffreys(noisy[:, judged], cell.n)},
        outside(file, [ends]),
    )


def split_and_average(cell: Cell, trials: int, rng: np.random.Generator) -> Measured:
    """Ask by sample-and-aggregate; the truth is the answer of the full-data posterior, of each data set."""
    problem = cell.problem
    file, samples = resamples(problem, cell.n, trials, rng)
    model = aggregate.ConjugateRegression()
    how: dict[str, Any] = {"posterior": model, "partitions": cell.n // RECORDS_PER_PARTITION, "epsilon": cell.epsilon}
    if problem.asked == "probability":
        cutoff = float(least_squares(file)[0][1])
        releases = [aggregate.release_probability(rows, cutoff, **how, rng=rng) for rows in samples]
        full = [float(np.ravel(aggregate.probability_nonprivate(rows, cutoff, posterior=model))[0]) for rows in samples]
    else:
        search = aggregate.Centred(slopes_within(problem, cell.bounds))
        releases = [aggregate.release_quantile(rows, 0.5, **how, bounds=search, rng=rng) for rows in samples]
        full = [float(np.ravel(aggregate.quantile_nonprivate(rows, 0.5, posterior=model))[0]) for rows in samples]
    answers, warned = zip(*map(spoken, releases), strict=True)
    ends = np.array([each.interval(LEVEL, problem.asked) for each in answers])
    truth = np.array(full)[:, None]
    point = np.array([float(each.estimate) for each in answers])[:, None]
    return Measured(
        (problem.asked,),
        truth,
        f"the full-data posterior's {problem.asked}, of each data set",
        Estimates(point, ends[:, :1], ends[:, 1:]),
        answers,
        np.array(warned),
        Estimates(truth, truth, truth),
        {},
        0.0,
    )


KINDS: Mapping[str, Callable[[Cell, int, np.random.Generator], Measured]] = {
    "regression": regress,
    "mean": average,
    "family": fit_family,
    "histogram": count,
    "aggregate": split_and_average,
}


# What they share


def read(
    infer: Callable[..., Any],
    releases: Sequence[Release],
    rng: np.random.Generator,
    *prior: Any,
    draws: int | None = None,
) -> list[Any]:
    """Read all releases of a cell in one call; what there is to doubt, every posterior says itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return list(infer(releases, *prior, draws=DRAWS if draws is None else draws, rng=rng))


def doubted(posteriors: Sequence[Any]) -> NDArray[np.bool_]:
    """Say which posteriors raise a doubt; one about short chains is the study's own doing, and does not count."""
    return np.array([any(not isinstance(doubt, _OF_CHAINS) for doubt in each.doubts) for each in posteriors])


_OF_CHAINS = (ConvergenceWarning, FewDraws)


def spoken(release: Release) -> tuple[Any, bool]:
    """Return what sample-and-aggregate infers, and whether it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = aggregate.infer(release)
    return answer, len(caught) > 0


def of_posteriors(posteriors: Sequence[Any], name: str, of: Callable[[Array], Array] | None = None) -> Estimates:
    """Return medians and 95 % intervals of a parameter, or of a function of its draws (chain, draw, ...)."""
    found = []
    for each in posteriors:
        draws = np.asarray(each.draws[name]) if of is None else of(np.asarray(each.draws[name]))
        flat = draws.reshape(draws.shape[0] * draws.shape[1], -1)
        found.append(np.quantile(flat, [0.5, *TAILS], axis=0))
    return Estimates(*np.array(found).swapaxes(0, 1))


MEAN_OF: Mapping[str, Callable[[Array], Array] | None] = {
    "Poisson": None,
    "Binomial": None,
    "Exponential": lambda rate: 1 / rate,
    "Normal": lambda theta: theta[..., 0],
}


def family_and_prior(name: str, ends: tuple[float, float]) -> tuple[Any, Any]:
    """Return a family and a weak prior of it that comes from the public bounds."""
    low, high = ends
    middle, half = (low + high) / 2, (high - low) / 2
    if name == "Binomial":
        return expfam.Binomial(), expfam.Beta(0.5, 0.5)
    if name == "Normal":
        return expfam.Normal(low, high), expfam.NormalInverseGamma(middle, 0.01, 0.5, 0.05 * half**2)
    if name == "Exponential":
        return expfam.Exponential(max(low, 0.0), high), expfam.Gamma(0.5, 0.25 * half)
    return expfam.Poisson(max(round(low), 0), round(high)), expfam.Gamma(0.5, 1 / half)


def scaled(point: Array, low: Array, high: Array, middle: float, half: float) -> Estimates:
    """Return estimates (trial,) in coordinates as (trial, 1) in the data's units."""
    return Estimates(*(middle + half * part[:, None] for part in (point, low, high)))


def student(records: Array) -> tuple[float, float, float]:
    """Return mean and ends of Student's 95 % interval."""
    mean = float(records.mean())
    reach = float(stats.t.ppf(TAILS[1], len(records) - 1) * records.std(ddof=1) / np.sqrt(len(records)))
    return mean, mean - reach, mean + reach


def jeffreys(counts: Array, n: int) -> Estimates:
    """Return Jeffreys's intervals for shares."""
    low, high = (stats.beta.ppf(tail, counts + 0.5, n - counts + 0.5) for tail in TAILS)
    return Estimates(counts / n, low, high)


def shares_of(records: Array, edges: Array) -> Array:
    """Return the shares of the cells below, between and above the edges."""
    cells = expfam.release_histogram(records, edges, epsilon=1e6, rng=np.random.default_rng(0))["histogram"]
    return np.asarray(np.rint(np.asarray(cells, dtype=float)) / len(records))


def outside(file: Array, ends: Sequence[tuple[float, float]]) -> float:
    """Return the share of records that lie outside the bounds in some column."""
    low, high = np.array(ends, dtype=float).T
    return float(((file < low) | (file > high)).any(axis=1).mean())


def slopes_within(problem: Problem, setting: str) -> tuple[float, float]:
    """Return a public range of a slope: that of the steepest line through the box of the right bounds, or wider."""
    (x_low, x_high), (y_low, y_high) = (
        bounds_of(problem.file, name, "right") for name in (*problem.covariates, problem.response)
    )
    steepest = {"tight": 1.0, "right": 2.0, "x2": 4.0, "x5": 10.0}[setting] * (y_high - y_low) / (x_high - x_low)
    return -steepest, steepest


# One cell, and all of them


def gauntlet(number: int, *, trials: int, seed: int) -> pd.DataFrame:
    """Measure a cell: a row for each parameter."""
    cell = CELLS[number]
    trials = trials_of(cell, trials)
    found = KINDS[cell.kind](cell, trials, cell_rng(seed, "gauntlet", number))
    warned = found.warned
    truth = np.broadcast_to(found.truth, found.ours.point.shape)
    hit, without = inside(found.ours, truth), inside(found.nonprivate, truth)
    rows = []
    for j, name in enumerate(found.names):
        width, other = width_of(found.ours, j), width_of(found.nonprivate, j)
        row: dict[str, Any] = {
            "cell": number,
            "kind": cell.kind,
            "problem": cell.problem.label,
            "bounds": cell.bounds,
            "epsilon": cell.epsilon,
            "n": cell.n,
            "clipped": found.clipped,
            "parameter": name,
            "truth": truth[:, j].mean(),
            "target": found.target,
            "method": most_frequent(found.posteriors),
            "trials": trials,
            "coverage": hit[:, j].mean(),
            "warned": warned.mean(),
            "silent": int((~warned).sum()),
            "silent_hits": int(hit[~warned, j].sum()),
            "nonprivate": without[:, j].mean(),
            "width": width,
            "width_ratio": width / other if other > 0 else np.nan,
            "rmse": rmse(found.ours, truth, j),
            "rmse_nonprivate": rmse(found.nonprivate, truth, j),
        }
        for rival in ("naive", "bootstrap", "adassp"):
            its = found.rivals.get(rival)
            row |= {
                f"{rival}": np.nan if its is None else inside(its, truth)[:, j].mean(),
                f"{rival}_width": np.nan if its is None else width_of(its, j),
                f"{rival}_rmse": np.nan if its is None else rmse(its, truth, j),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def trials_of(cell: Cell, trials: int) -> int:
    """Return how many data sets a cell is given."""
    share = OF_TRIALS[len(cell.problem.covariates)] if cell.kind == "regression" else 1.0
    return max(1, round(share * trials))


def inside(estimates: Estimates, truth: Array) -> NDArray[np.bool_]:
    """Say where an interval holds the truth."""
    return (estimates.low <= truth) & (truth <= estimates.high)


def width_of(estimates: Estimates, j: int) -> float:
    """Return the median width of the intervals of a parameter."""
    return float(np.median(estimates.high[:, j] - estimates.low[:, j]))


def rmse(estimates: Estimates, truth: Array, j: int) -> float:
    """Return the root mean squared error of the point estimates of a parameter."""
    return float(np.sqrt(np.mean((estimates.point[:, j] - truth[:, j]) ** 2)))


def most_frequent(posteriors: Sequence[Any]) -> str:
    """Return the method that most posteriors of a cell were made by."""
    methods = [str(getattr(each, "method", "")) for each in posteriors]
    return max(set(methods), key=methods.count)


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Add what every row is held to, the probability of so few hits among its silent trials, and Holm's correction.

    A row is held to a coverage of .92, or to .03 less than the non-private interval's. Trials in which the posterior
    itself raised a doubt do not count against it.
    """
    table = table.copy()
    table["floor"] = np.minimum(GOAL, table["nonprivate"] - GIVEN_UP)
    p = stats.binom.cdf(table["silent_hits"], table["silent"], table["floor"].clip(0, 1))
    table["p"] = np.where(table["silent"] > 0, p, 1.0)
    table["p_holm"] = holm(table["p"].to_numpy())
    return table


def diffprivlib(number: int, *, trials: int, seed: int) -> pd.DataFrame:
    """Measure the point estimates of diffprivlib on the data sets of a cell, where it is installed.

    It needs scikit-learn below 1.6, so that it has an environment of its own, with this package beside it.
    """
    cell = CELLS[number]
    problem, regresses = cell.problem, cell.kind == "regression"
    trials = trials_of(cell, trials)
    file, samples = resamples(problem, cell.n, trials, cell_rng(seed, "gauntlet", number))
    ends = [bounds_of(problem.file, name, cell.bounds) for name in (*problem.covariates, problem.response)]
    seeds = cell_rng(seed, "diffprivlib", number).integers(2**31, size=trials).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if regresses:
            names, truth = ("(intercept)", *problem.covariates), least_squares(file)[0]
            found = [
                diffprivlib_regression(rows, ends, cell.epsilon, s) for rows, s in zip(samples, seeds, strict=True)
            ]
        else:
            names, truth = ("mean",), np.array([np.clip(file[:, 0], *ends[0]).mean()])
            found = [
                diffprivlib_mean(rows[:, 0], ends[0], cell.epsilon, s) for rows, s in zip(samples, seeds, strict=True)
            ]
    off = np.sqrt(np.mean((np.array(found) - truth) ** 2, axis=0))
    return pd.DataFrame({"cell": number, "parameter": names, "trials": trials, "diffprivlib_rmse": off})


CELLS = draw_cells()
STUDIES = {
    "gauntlet_diffprivlib": Study(
        diffprivlib,
        [(i,) for i, cell in enumerate(CELLS) if cell.kind in ("regression", "mean")],
        trials=TRIALS,
        seed=SEED,
    ),
    "gauntlet": Study(gauntlet, [(i,) for i in range(len(CELLS))], trials=TRIALS, seed=SEED, finish=judged),
}
