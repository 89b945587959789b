"""The case studies of chapter 4: drink and cirrhosis, opportunity by neighbourhood, earnings and schooling.

Each study repeats releases of the same records with seeded noise to see how methods behave; that is what a researcher
does with data that are public anyway, and what a curator must not. Bounds and priors come from the subject, never from
the records, except where a study shows what a source did.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from dpbook import ConvergenceWarning, Release, diagnostics, regression
from dpbook.datasets import load_cirrhosis, load_cps_earnings, load_opportunity_cells
from dpbook.regression import NormalInverseGamma, NormalInverseWishart, RegressionPosterior
from dpbook.studies import Study, cell_rng

Array = NDArray[np.float64]

SEED = 41

# Cirrhosis: one round scale for rates whose unit the sources do not print (see the data sets' page).
DRINKS: Mapping[str, tuple[str, ...]] = {
    "wine": ("wine_per_capita",),
    "liquor": ("liquor_per_capita",),
    "both": ("wine_per_capita", "liquor_per_capita"),
}
_RATE = (0.0, 200.0)
_TRAINING = 36

# Neighbourhoods: expected rank of children whose parents' income is at the 25th percentile.
LOW_INCOME = 0.25
TRACT_PRIOR = NormalInverseGamma(mean=[0.3, 0.4], precision=0.5, shape=3.0, rate=0.12)
TRACT_COVARIATES = NormalInverseWishart(mean=[0.5], strength=1.0, scale=[[0.4]], dof=8.0)

# Earnings: dollars an hour on a log scale, years of schooling, years of age, and whether a woman.
COVARIATES = ("education", "age", "woman")
EARNINGS_BOUNDS: Mapping[str, Any] = {
    "x_bounds": [(0.0, 20.0), (16.0, 65.0), (0.0, 1.0)],
    "y_bounds": (0.0, math.log(100.0)),
}
EARNINGS_PRIOR = NormalInverseGamma(
    mean=[2.0, 0.0, 0.0, 0.0], precision=np.diag([0.25, 2.5, 250.0, 0.25]), shape=3.0, rate=0.5
)


# Cirrhosis ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Design:
    """Bounds and prior of a cirrhosis regression."""

    x_bounds: list[tuple[float, float]]
    y_bounds: tuple[float, float]
    prior: NormalInverseGamma


def cirrhosis_design(kind: str, x: Array, y: Array) -> Design:
    """Return bounds and prior: from the subject, or, as in the source, from the records themselves."""
    d = x.shape[1]
    if kind == "public":
        prior = NormalInverseGamma(
            mean=[50.0, *[0.0] * d], precision=np.diag([0.16, *[400.0] * d]), shape=3.0, rate=800.0
        )
        return Design([_RATE] * d, _RATE, prior)
    low, high, height = x.min(axis=0), x.max(axis=0), float(y.max() - y.min())
    # NIG([1, 0], .25, 20, .5) on data scaled to [0, 1]: the slope comes first there.
    slope_unit = height / (high - low)
    to_units = np.diag([1.0, *slope_unit])
    to_units[0, 1:] = -slope_unit * low / height
    to_units[0] *= height
    mean = to_units @ np.array([0.0, *[1.0 / d] * d]) + np.array([y.min(), *[0.0] * d])
    back = np.linalg.inv(to_units / height)
    prior = NormalInverseGamma(mean=mean, precision=0.25 * back.T @ back, shape=20.0, rate=0.5 * height**2)
    pairs = list(zip(low.tolist(), high.tolist(), strict=True))
    return Design(pairs, (float(y.min()), float(y.max())), prior)


def cirrhosis(design: str, drink: str, epsilon: float, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Predict deaths from cirrhosis in ten states from a private regression on 36 others, over random splits.

    Bounds and prior are "public", or those of the "source", which come from the records and are not private.
    """
    states = load_cirrhosis()
    y = states["cirrhosis_death_rate"].to_numpy(dtype=float)
    x = states[list(DRINKS[drink])].to_numpy(dtype=float)
    setting = cirrhosis_design(design, x, y)
    shuffle = cell_rng(seed, "splits")
    orders = [shuffle.permutation(len(y)) for _ in range(trials)]
    baseline = np.mean([np.abs(y[o[_TRAINING:]] - y[o[:_TRAINING]].mean()).mean() for o in orders])
    rng = cell_rng(seed, design, drink, epsilon, method)
    row = _predictive_scores(_split_posteriors(x, y, orders, setting, epsilon, method, rng), x, y, orders)
    label = {"design": design, "drink": drink, "epsilon": epsilon, "method": method}
    return pd.DataFrame([{**label, **row, "mean_error": baseline}])


def _cirrhosis_cells() -> list[tuple[Any, ...]]:
    """Return the grid; the Gibbs samplers are run where the source ran them, on wine in its own design."""
    methods = ("non-private", "naive", "gibbs-noisy", "gibbs-update", "collapsed")
    grid = itertools.product(("source", "public"), DRINKS, (0.1, 1.0, 10.0, 100.0), methods)
    return [cell for cell in grid if not cell[3].startswith("gibbs") or cell[:2] == ("source", "wine")]


def _split_posteriors(
    x: Array, y: Array, orders: Sequence[NDArray[np.int64]], setting: Design, epsilon: float, method: str, rng: Any
) -> list[RegressionPosterior]:
    """Return one posterior a split, private ones from one batch."""
    parts = [order[:_TRAINING] for order in orders]
    if method == "non-private":
        return [regression.infer_nonprivate(x[part], y[part], setting.prior, draws=1000, rng=rng) for part in parts]
    releases = [
        regression.release(
            x[part],
            y[part],
            x_bounds=setting.x_bounds,
            y_bounds=setting.y_bounds,
            epsilon=epsilon,
            moments=method == "gibbs-noisy",
            rng=rng,
        )
        for part in parts
    ]
    return quiet_infer(releases, setting.prior, method=method, draws=800, rng=rng)


def quiet_infer(releases: Sequence[Release], prior: NormalInverseGamma, **options: Any) -> list[RegressionPosterior]:
    """Infer without convergence warnings: a study reports what short chains do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return regression.infer(releases, prior, **options)


def _predictive_scores(
    posteriors: Sequence[RegressionPosterior], x: Array, y: Array, orders: Sequence[NDArray[np.int64]]
) -> dict[str, float]:
    """Return coverage, width and error of predictions of the states left out."""
    hits: dict[float, list[float]] = {0.5: [], 0.9: []}
    widths: dict[float, list[float]] = {0.5: [], 0.9: []}
    errors: list[float] = []
    for posterior, order in zip(posteriors, orders, strict=True):
        rest = order[_TRAINING:]
        errors.extend(np.abs(posterior.predict(x[rest]) - y[rest]))
        for level in hits:
            low, high = posterior.predictive_interval(x[rest], level).T
            hits[level].extend((low <= y[rest]) & (y[rest] <= high))
            widths[level].extend(high - low)
    return {
        "states": len(errors),
        "coverage_50": float(np.mean(hits[0.5])),
        "coverage_90": float(np.mean(hits[0.9])),
        "width_50": float(np.mean(widths[0.5])),
        "width_90": float(np.mean(widths[0.9])),
        "error": float(np.mean(errors)),
    }


# Opportunity by neighbourhood ---------------------------------------------------------------------------------------


class Tracts(NamedTuple):
    """Simulated census tracts of one state."""

    size: NDArray[np.int64]  # people
    theta: Array  # (tract, 2): each tract's line of child's rank on parent's, before ranks end at 0 and 1
    parent: list[Array]  # the ranks of each tract's people, in [0, 1]
    child: list[Array]


def simulate_tracts(tracts: int = 3108, *, rng: np.random.Generator) -> Tracts:
    """Simulate the tracts of a state the size of Illinois: 3,108 of them, of 20 to 446 people.

    A tract has a level (normal, sd 0.15) that moves the mean rank of its parents and, in part, the line of its
    children. Sizes are lognormal (median 80), cut to 20 … 446. Parents' ranks are Beta with the tract's mean and a
    concentration of 4. Children's ranks are 0.32 plus 0.35 of the level plus a slope (mean 0.35, sd 0.08) times the
    parent's rank plus noise (sd 0.25), cut to [0, 1]. The numbers are round ones of the size that the literature on
    social mobility reports; no record of a person went into them.
    """
    size = np.clip(np.round(np.exp(rng.normal(math.log(80), 0.65, size=tracts))), 20, 446).astype(np.int64)
    level = rng.normal(0, 0.15, size=tracts)
    theta = np.stack([0.32 + 0.35 * level, rng.normal(0.35, 0.08, size=tracts)], axis=1)
    mean = np.clip(0.5 + level, 0.1, 0.9)
    parent = [rng.beta(4 * m, 4 * (1 - m), size=n) for m, n in zip(mean, size, strict=True)]
    lines = [intercept + slope * x for (intercept, slope), x in zip(theta, parent, strict=True)]
    child = [np.clip(line + rng.normal(0, 0.25, len(line)), 0, 1) for line in lines]
    return Tracts(size, theta, parent, child)


def release_tracts(
    parent: Sequence[ArrayLike], child: Sequence[ArrayLike], *, epsilon: float, rng: np.random.Generator
) -> list[Release]:
    """Release the sums of every tract, each at the same epsilon; tracts are disjoint, so that is the price of them all.

    epsilon-DP for replace-one neighbours within a tract, with every tract's size public.
    """
    return [
        regression.release(x, y, x_bounds=(0, 1), y_bounds=(0, 1), epsilon=epsilon, rng=rng)
        for x, y in zip(parent, child, strict=True)
    ]


def observed_sensitivity(x: ArrayLike, y: ArrayLike, at: float = LOW_INCOME) -> float:
    """Return the largest change of a least-squares prediction by one more record in the unit square.

    This is a property of the data at hand (a local sensitivity), not a bound over all data; infinite where all x are
    equal. A new record (x, y) moves the prediction by ``h (y - f) / (1 + l)``, with f the line at x, ``l = 1/n +
    (x - mean)² / S`` its leverage and ``h = 1/n + (x - mean)(at - mean) / S``. It is linear in y, so y is 0 or 1; x
    runs over a grid of 201 points.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    spread = float(np.sum((x - x.mean()) ** 2))
    if spread == 0:
        return math.inf
    slope = float(np.sum((x - x.mean()) * y)) / spread
    new = np.linspace(0, 1, 201)
    line = y.mean() + slope * (new - x.mean())
    leverage = 1 / len(x) + (new - x.mean()) ** 2 / spread
    weight = 1 / len(x) + (new - x.mean()) * (at - x.mean()) / spread
    return float(np.max(np.abs(weight) * np.maximum(np.abs(line), np.abs(1 - line)) / (1 + leverage)))


def _observed_output(
    parent: Sequence[Array], child: Sequence[Array], epsilon: float, rng: np.random.Generator
) -> Array:
    """Return least-squares predictions with noise scaled by the largest sensitivity, times size, seen in any tract.

    The baseline of Chetty and Friedman (2019). It is not differentially private: the scale is read off the data.
    """
    size = np.array([len(x) for x in parent])
    largest = max(
        n * found
        for n, x, y in zip(size, parent, child, strict=True)
        if math.isfinite(found := observed_sensitivity(x, y))
    )
    lines = np.array([np.polyval(np.polyfit(x, y, 1), LOW_INCOME) for x, y in zip(parent, child, strict=True)])
    return np.asarray(lines + rng.laplace(scale=largest / (epsilon * size)))


class Estimates(NamedTuple):
    """A point estimate a tract, and intervals where the method has them."""

    point: Array
    sd: Array | None = None
    low_90: Array | None = None
    high_90: Array | None = None
    low_50: Array | None = None
    high_50: Array | None = None
    seconds: float = 0.0

    def part(self, chosen: NDArray[np.bool_]) -> Estimates:
        """Return the estimates of some of the tracts."""
        fields: Any = [each[chosen] if isinstance(each, np.ndarray) else each for each in self]
        return Estimates(*fields)


def tract_estimates(
    parent: Sequence[Array], child: Sequence[Array], method: str, *, epsilon: float, rng: np.random.Generator
) -> Any:
    """Estimate the expected rank at the 25th percentile of parents' income in every tract, in one batch.

    "output" is least squares with noise scaled by the largest observed sensitivity, which is not differentially
    private; it has no intervals.
    """
    start = time.process_time()
    if method == "output":
        point = _observed_output(parent, child, epsilon, rng)
        return Estimates(point, seconds=time.process_time() - start)
    if method == "non-private":
        posteriors = [
            regression.infer_nonprivate(x, y, TRACT_PRIOR, draws=400, rng=rng)
            for x, y in zip(parent, child, strict=True)
        ]
    else:
        releases = release_tracts(parent, child, epsilon=epsilon, rng=rng)
        posteriors = quiet_infer(
            releases, TRACT_PRIOR, method=method, covariates=TRACT_COVARIATES, draws=400, chains=2, rng=rng
        )
    theta = np.stack([each.draws["theta"].reshape(-1, 2) for each in posteriors])
    lines = theta[..., 0] + LOW_INCOME * theta[..., 1]
    low_90, high_90, low_50, high_50 = np.quantile(lines, [0.05, 0.95, 0.25, 0.75], axis=1)
    point = _exact_point(parent, child) if method == "non-private" else lines.mean(axis=1)
    seconds = time.process_time() - start
    return Estimates(point, lines.std(axis=1), low_90, high_90, low_50, high_50, seconds)


def _exact_point(parent: Sequence[Array], child: Sequence[Array]) -> Array:
    """Return the non-private posterior means themselves: what all others are compared with has no Monte-Carlo error."""
    mean = np.asarray(TRACT_PRIOR.mean, dtype=np.float64)
    precision = np.asarray(TRACT_PRIOR.precision, dtype=np.float64) * np.eye(2)
    found = []
    for x, y in zip(parent, child, strict=True):
        w = np.column_stack([np.ones(len(x)), x])
        found.append(np.linalg.solve(precision + w.T @ w, precision @ mean + w.T @ y))
    return np.asarray(np.array(found) @ np.array([1.0, LOW_INCOME]))


def _scores(found: Any, reference: Array, truth: Array | None, fold: int = 10) -> dict[str, float]:
    """Return errors against the non-private estimates and the truth, coverage, and agreement of deciles."""
    row = {
        "error_nonprivate": float(np.mean(np.abs(found.point - reference))),
        "same_decile": float(np.mean(_decile(found.point, fold) == _decile(reference, fold))),
        "within_one": float(np.mean(np.abs(_decile(found.point, fold) - _decile(reference, fold)) <= 1)),
    }
    if truth is not None:
        row["error_truth"] = float(np.mean(np.abs(found.point - truth)))
    if found.sd is not None:
        for level in (50, 90):
            low, high = getattr(found, f"low_{level}"), getattr(found, f"high_{level}")
            row[f"covers_nonprivate_{level}"] = float(np.mean((low <= reference) & (reference <= high)))
            row[f"width_{level}"] = float(np.mean(high - low))
            if truth is not None:
                row[f"covers_truth_{level}"] = float(np.mean((low <= truth) & (truth <= high)))
        if truth is not None:
            row["interval_score_90"] = float(
                np.mean(diagnostics.interval_score(found.low_90, found.high_90, truth, 0.9))
            )
    return row


def _decile(values: Array, fold: int = 10) -> NDArray[np.int64]:
    """Return the tenth, 0 to 9, that each value falls in."""
    order = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return np.asarray(order * fold // len(values), dtype=np.int64)


def mean_rank(tracts: Tracts) -> Array:
    """Return the true expected rank at the 25th percentile: the line, with noise of sd 0.25, cut to [0, 1]."""
    centre = tracts.theta[:, 0] + LOW_INCOME * tracts.theta[:, 1]
    low, high = -centre / 0.25, (1 - centre) / 0.25
    inside = stats.norm.cdf(high) - stats.norm.cdf(low)
    return np.asarray(
        centre * inside + 0.25 * (stats.norm.pdf(low) - stats.norm.pdf(high)) + (1 - stats.norm.cdf(high))
    )


def neighbourhoods(epsilon: float, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Estimate all tracts of a simulated state, ``trials`` of them, in one call, and score them by class of size."""
    tracts, truth, reference = _state(trials, seed)
    found = _state_estimates(tracts, method, epsilon, seed)
    rows = []
    for name, chosen in _size_classes(tracts.size).items():
        scores = _scores(found.part(chosen), reference[chosen], truth[chosen])
        label = {"method": method, "epsilon": epsilon, "size": name, "tracts": int(chosen.sum())}
        rows.append({**label, **scores, "seconds": found.seconds})
    return pd.DataFrame(rows)


@lru_cache(maxsize=2)
def _state(tracts: int, seed: int) -> tuple[Tracts, Array, Array]:
    """Return the simulated state, the true mean ranks, and the non-private estimates."""
    state = simulate_tracts(tracts, rng=cell_rng(seed, "tracts"))
    return state, mean_rank(state), _state_estimates(state, "non-private", 1.0, seed).point


def _state_estimates(tracts: Tracts, method: str, epsilon: float, seed: int) -> Any:
    rng = cell_rng(seed, "tracts", method, epsilon)
    return tract_estimates(tracts.parent, tracts.child, method, epsilon=epsilon, rng=rng)


def _size_classes(size: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
    edges = (20, 50, 100, 200, 447)
    classes = {f"{low}-{high - 1}": (size >= low) & (size < high) for low, high in itertools.pairwise(edges)}
    return {"all": np.ones(len(size), dtype=bool), **classes}


def deciles(*, trials: int, seed: int) -> pd.DataFrame:
    """Return every tract's estimates by each method at epsilon = 4: what rankings and scatter plots are drawn from."""
    tracts, truth, reference = _state(trials, seed)
    columns: dict[str, Any] = {"size": tracts.size, "truth": truth, "non-private": reference}
    for method in ("naive", "output", "collapsed"):
        found = _state_estimates(tracts, method, 4.0, seed)
        columns[method] = found.point
    for level, side in itertools.product((50, 90), ("low", "high")):
        columns[f"{side}_{level}"] = getattr(found, f"{side}_{level}")
    return pd.DataFrame(columns)


def cell_records() -> tuple[list[Array], list[Array]]:
    """Return parents' and children's ranks in the 111 cells published by Opportunity Insights."""
    groups = [part for _, part in load_opportunity_cells().groupby("cell")]
    parent, child = ([part[name].to_numpy(dtype=float) for part in groups] for name in ("parent_rank", "kid_rank"))
    return parent, child


def neighbourhood_cells(epsilon: float, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Estimate the 111 published cells many times, with fresh noise, and compare with the non-private estimates."""
    parent, child = cell_records()
    exact = tract_estimates(parent, child, "non-private", epsilon=1.0, rng=cell_rng(seed, "cells")).point
    rng = cell_rng(seed, "cells", method, epsilon)
    if method == "output":
        found = Estimates(np.concatenate([_observed_output(parent, child, epsilon, rng) for _ in range(trials)]))
    else:
        found = tract_estimates(parent * trials, child * trials, method, epsilon=epsilon, rng=rng)
    return pd.DataFrame([{"method": method, "epsilon": epsilon, **_scores(found, np.tile(exact, trials), None)}])


# Earnings -----------------------------------------------------------------------------------------------------------


def earnings_records() -> tuple[pd.DataFrame, pd.Series]:
    """Return education, age and sex (1 for a woman) of 61,395 workers, and their log hourly earnings."""
    workers = load_cps_earnings()
    woman = (workers["gender"] == "f").astype(float)
    x = workers[["education", "age"]].astype(float).assign(woman=woman)
    return x, pd.Series(np.log(workers["earnings"].astype(float)), name="log_earnings")


def earnings(n: int, epsilon: float, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Regress log earnings on education, age and sex, with fresh noise each time; one row a coefficient.

    Below the full size each release is of another random subset. ``away`` is the root mean squared distance to the
    non-private mean in non-private sds, ``coverage`` that of the full-data least-squares value.
    """
    x, y = (table.to_numpy() for table in earnings_records())
    design = np.column_stack([np.ones(len(y)), x])
    target = np.asarray(np.linalg.lstsq(design, y, rcond=None)[0], dtype=np.float64)
    parts, open_ones = _open_earnings(n, trials, seed)
    noise = cell_rng(seed, "earnings", n, epsilon)
    releases = [regression.release(x[p], y[p], epsilon=epsilon, rng=noise, **EARNINGS_BOUNDS) for p in parts]
    rng = cell_rng(seed, "earnings", n, epsilon, method)
    found = quiet_infer(releases, EARNINGS_PRIOR, method=method, draws=1000, rng=rng)
    label = {"method": method, "n": n, "epsilon": epsilon}
    return pd.DataFrame([{**label, **row} for row in _coefficient_rows(found, open_ones, target)])


@lru_cache(maxsize=1)
def _open_earnings(n: int, trials: int, seed: int) -> tuple[list[NDArray[np.int64]], list[RegressionPosterior]]:
    """Return the subsets of the workers, and the non-private posterior of each."""
    x, y = (table.to_numpy() for table in earnings_records())
    rng = cell_rng(seed, "earnings", n)
    if n == len(y):
        return [np.arange(n)] * trials, [
            regression.infer_nonprivate(x, y, EARNINGS_PRIOR, draws=2000, rng=rng)
        ] * trials
    parts = [rng.choice(len(y), n, replace=False) for _ in range(trials)]
    return parts, [regression.infer_nonprivate(x[p], y[p], EARNINGS_PRIOR, draws=2000, rng=rng) for p in parts]


def _coefficient_rows(
    found: Sequence[RegressionPosterior], open_ones: Sequence[RegressionPosterior], target: Array
) -> list[dict[str, Any]]:
    """Return one row a coefficient."""
    mean, sd = (np.stack([getattr(each, what)("theta") for each in found]) for what in ("mean", "sd"))
    open_mean, open_sd = (np.stack([getattr(each, what)("theta") for each in open_ones]) for what in ("mean", "sd"))
    ends = np.stack([each.interval(0.95, "theta") for each in found])
    low, high = ends[..., 0], ends[..., 1]
    rows = []
    for i, name in enumerate(COVARIATES, start=1):
        away = (mean[:, i] - open_mean[:, i]) / open_sd[:, i]
        rows.append(
            {
                "coefficient": name,
                "mean": mean[:, i].mean(),
                "sd": sd[:, i].mean(),
                "open_mean": open_mean[:, i].mean(),
                "open_sd": open_sd[:, i].mean(),
                "sd_ratio": np.mean(sd[:, i] / open_sd[:, i]),
                "away": math.sqrt(np.mean(away**2)),
                "coverage": np.mean((low[:, i] <= target[i]) & (target[i] <= high[:, i])),
            }
        )
    return rows


_TRACT_CELLS = list(itertools.product((1.0, 2.0, 4.0, 8.0), ("non-private", "naive", "collapsed", "output")))

STUDIES: dict[str, Study] = {
    "cirrhosis": Study(cirrhosis, _cirrhosis_cells(), 100, SEED),
    "neighbourhoods": Study(neighbourhoods, [*_TRACT_CELLS, (4.0, "gibbs-update")], 3108, SEED),
    "deciles": Study(deciles, trials=3108, seed=SEED),
    "neighbourhood_cells": Study(
        neighbourhood_cells, [cell for cell in _TRACT_CELLS if cell[1] != "non-private"], 5, SEED
    ),
    "earnings": Study(
        earnings,
        list(itertools.product((1000, 4000, 16_000, 61_395), (0.1, 0.3, 1.0, 3.0, 10.0), ("naive", "collapsed"))),
        20,
        SEED,
    ),
}
