"""The study of synthetic people: adults of the American Community Survey, released as tables, redrawn as records.

The unit of privacy is a person. The graph comes from subject knowledge, but was revised once after a look at these
records (``FIRST_TRY`` is the first one): a real release would have to pay for that. A private field is drawn from like
a population; what an analyst then computes needs an error that knows of sampling *and* of noise.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from dpbook import Release, graphical
from dpbook.datasets import domains, load_acs2019
from dpbook.graphical import Analysis, MarkovRandomField
from dpbook.studies import Study, cell_rng

Array = NDArray[np.float64]

SEED = 57
EPSILONS = (0.1, 0.3, 1.0, 3.0)
METHODS = ("naive", "ridge", "cgm", "penalised", "mbi", "non-private")
DOMAIN: Mapping[str, int] = {name: len(states) for name, states in domains("acs2019").items()}
# Chosen from subject knowledge and from the question to be asked, not by a search in the data: earnings go with age and
# schooling together, and with sex and marriage together; a regression needs its covariates beside each other, too.
CLIQUES: list[tuple[str, ...]] = [
    ("age", "education", "income"),
    ("sex", "married", "income"),
    ("sex", "education"),
    ("married", "education"),
    ("age", "married"),
    ("age", "tenure"),
    ("tenure", "income"),
    ("age", "mobility_diff"),
    ("mobility_diff", "cognitive_diff"),
]
# A first try without the pairs of covariates: its regression is far off even without noise, a lesson for the section.
FIRST_TRY: list[tuple[str, ...]] = [clique for clique in CLIQUES if clique[-1] != "education"]
REGRESSED = ("education", "age", "sex", "married", "income")
COEFFICIENTS = ("intercept", "education", "age", "male", "married")
MEASURES = ("released", "unreleased", "correlation", "regression", "divergence")
SHAPE = tuple(DOMAIN[name] for name in REGRESSED)


@functools.cache
def _people() -> pd.DataFrame:
    frame = load_acs2019(expand=True)
    return pd.DataFrame({name: frame[name].cat.codes.astype(np.int64) for name in DOMAIN})


def people() -> pd.DataFrame:
    """Return the 22,062 adults, one row per person, eight attributes as codes in the order of the public code book."""
    return _people().copy()


def release(epsilon: float, rng: np.random.Generator) -> Release:
    """Return noisy tables of the survey."""
    return graphical.release(people(), DOMAIN, CLIQUES, epsilon=epsilon, rng=rng)


# ---------------------------------------------------------------------------------------------------------------------
# The downstream regression


class Regression(NamedTuple):
    """Intercept, education and age (in steps of their categories), male, married; and their squared standard errors."""

    coefficients: Array
    variances: Array


def regress(records: pd.DataFrame | MarkovRandomField | NDArray[Any]) -> Regression:
    """Regress a high income (the upper two of four groups) on education, age, sex and marriage.

    In records; in a field, whose population is then regressed, as if one record; or in the table of counts of
    ``REGRESSED``. Maximum likelihood by Newton's method, with a ridge of a millionth of a record that keeps it finite.
    """
    if isinstance(records, MarkovRandomField):
        table = records.marginal(REGRESSED)
    else:
        table = _tabulated(records) if isinstance(records, pd.DataFrame) else np.asarray(records, dtype=float)
    table = table.reshape(-1, SHAPE[-1])
    yes, trials = table[:, 2:].sum(axis=1), table.sum(axis=1)
    grid = np.indices(SHAPE[:-1]).reshape(4, -1).T.astype(float)
    design = np.column_stack([np.ones(len(grid)), grid])
    beta, ridge = np.zeros(5), 1e-6 * np.eye(5)
    for _ in range(50):
        chance = special.expit(design @ beta)
        slope = design.T @ (yes - trials * chance) - ridge @ beta
        curvature = (design.T * (trials * chance * (1 - chance))) @ design + ridge
        step = np.linalg.solve(curvature, slope)
        beta = beta + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-9:
            break
    return Regression(beta, np.diag(np.linalg.inv(curvature)).copy())


def _tabulated(records: pd.DataFrame) -> Array:
    cells = np.ravel_multi_index(tuple(records[name].to_numpy() for name in REGRESSED), SHAPE)
    return np.bincount(cells, minlength=math.prod(SHAPE)).reshape(SHAPE).astype(float)


# ---------------------------------------------------------------------------------------------------------------------
# Private fields


def learn(release: Release, method: str, *, tolerance: float = 1e-4) -> MarkovRandomField:
    """Learn a field from noisy tables: as ``graphical.fit``, with a ridge of 1 (``"ridge"``), or by Private-PGM."""
    if method == "mbi":
        return fit_mbi(release)
    options: dict[str, Any] = {"method": "naive", "ridge": 1.0} if method == "ridge" else {"method": method}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return graphical.fit(release, tolerance=tolerance, iterations=500, **options)


def fit_mbi(release: Release, *, iterations: int = 1000) -> MarkovRandomField:
    """Fit the noisy tables by Private-PGM (McKenna, Sheldon and Miklau 2019): squared error, mirror descent."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mbi = importlib.import_module("mbi")
            estimation = importlib.import_module("mbi.estimation")
            importlib.import_module("jax").config.update("jax_enable_x64", True)
    except ImportError as error:
        raise ImportError("the comparison needs the package mbi: pip install dpbook[compare]") from error
    settings = release.settings["domain"]
    domain = mbi.Domain(tuple(settings["names"]), tuple(settings["sizes"]))
    cliques = [tuple(group[0]) for group in release.settings["cliques"]]
    measured = [
        mbi.LinearMeasurement(np.asarray(table).ravel(), clique, math.sqrt(2) * release.scale[name])
        for (name, table), clique in zip(release.values.items(), cliques, strict=True)
    ]
    model = estimation.MirrorDescent().estimate(domain, measured, known_total=float(release.n), iters=iterations)
    potentials = [np.asarray(model.potentials[clique].values, dtype=float) for clique in cliques]
    known = graphical.Domain.of_settings(settings)
    return MarkovRandomField(known, cliques, [table - table.max() for table in potentials])


def has_mbi() -> bool:
    """Say whether Private-PGM is installed; print it where not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("mbi")
    except ImportError:
        print("mbi is not installed (pip install dpbook[compare]): its rows are left out")
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# How good the fields are


@functools.cache
def population() -> MarkovRandomField:
    """Return the field that the whole survey has, without noise: the population of the repetitions."""
    return graphical.fit_nonprivate(people(), DOMAIN, CLIQUES, ridge=1.0, tolerance=1e-7)


@functools.cache
def _survey() -> tuple[dict[tuple[str, str], Array], Regression]:
    """Return the survey's pair tables and its regression."""
    tables = {}
    for pair in itertools.combinations(DOMAIN, 2):
        exact = graphical.clique_tables(people(), DOMAIN, [pair])
        tables[pair] = exact.tables[0] / exact.n
    return tables, regress(people())


_RELEASED = {frozenset(pair) for clique in CLIQUES for pair in itertools.combinations(clique, 2)}


def judged(field: MarkovRandomField) -> tuple[float, float, float, float, float]:
    """Return how far a field is from the survey, in each of ``MEASURES``.

    The mean total variation distance of pair tables, for the pairs that were released (also within a table of three)
    and for all others; the mean absolute error of Cramér's V over all pairs; that of the regression's coefficients, in
    the survey's standard errors; the KL divergence from the non-private field.
    """
    tables, truth = _survey()
    gaps: dict[bool, list[float]] = {True: [], False: []}
    association = []
    for pair, table in tables.items():
        mine = field.marginal(pair)
        gaps[frozenset(pair) in _RELEASED].append(float(np.abs(mine - table).sum() / 2))
        association.append(abs(_cramer(mine) - _cramer(table)))
    error = np.abs(regress(field).coefficients - truth.coefficients) / np.sqrt(truth.variances)
    means = (float(np.mean(gaps[True])), float(np.mean(gaps[False])), float(np.mean(association)))
    return *means, float(error.mean()), population().kl(field)


def _cramer(table: Array) -> float:
    """Return Cramér's V: the chi-squared statistic per record over the smaller number of categories less one."""
    expected = np.outer(table.sum(axis=1), table.sum(axis=0))
    return math.sqrt(float(((table - expected) ** 2 / np.maximum(expected, 1e-12)).sum()) / (min(table.shape) - 1))


def quality(epsilon: float, *, methods: Sequence[str] = METHODS[:4], trials: int, seed: int) -> pd.DataFrame:
    """Compare private fields with the survey; all methods read the same releases, ``seconds`` are processor time."""
    names = ["epsilon", "method", "trial", *MEASURES, "seconds"]
    if epsilon == math.inf:
        first = graphical.fit_nonprivate(people(), DOMAIN, FIRST_TRY, ridge=1.0, tolerance=1e-6)
        exact = {"non-private": population(), "non-private, first graph": first}
        return pd.DataFrame([(epsilon, name, 0, *judged(field), 0.0) for name, field in exact.items()], columns=names)
    rows = []
    for trial in range(trials):
        noisy = release(epsilon, cell_rng(seed, "noise", epsilon, trial))
        for method in methods:
            start = time.process_time()
            field = learn(noisy, method, tolerance=1e-6)
            seconds = time.process_time() - start
            rows.append((epsilon, method, trial, *judged(field), seconds))
    return pd.DataFrame(rows, columns=names)


def marginals(*, trials: int, seed: int) -> pd.DataFrame:
    """Tell the pair tables of the survey and of a private field, cell by cell, for a picture."""
    tables, _ = _survey()
    fields = {
        epsilon: learn(release(epsilon, cell_rng(seed, "noise", epsilon, 0)), "cgm", tolerance=1e-6)
        for epsilon in (0.1, 1.0)
    }
    rows = []
    for pair, table in tables.items():
        private = {epsilon: field.marginal(pair).ravel() for epsilon, field in fields.items()}
        for cell, value in enumerate(table.ravel()):
            shown = (private[epsilon][cell] for epsilon in private)
            rows.append((" × ".join(pair), frozenset(pair) in _RELEASED, cell, value, *shown))
    return pd.DataFrame(rows, columns=["pair", "released", "cell", "survey", *(f"cgm {e:g}" for e in fields)])


def against_mbi(epsilon: float, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Compare with Private-PGM on the same noisy tables.

    ``seconds`` are processor time (the first fit of Private-PGM also compiles), ``objective`` is the squared error of
    the released cells in noise standard deviations, which Private-PGM minimises. No rows where it is not installed.
    """
    if method == "mbi" and not has_mbi():
        return pd.DataFrame()
    rows = []
    for trial in range(trials):
        noisy = release(epsilon, cell_rng(seed, "noise", epsilon, trial))
        start = time.process_time()
        field = learn(noisy, method, tolerance=1e-6)
        seconds = time.process_time() - start
        rows.append((epsilon, method, trial, seconds, _squared_error(noisy, field), *judged(field)))
    return pd.DataFrame(rows, columns=["epsilon", "method", "trial", "seconds", "objective", *MEASURES])


def _squared_error(noisy: Release, field: MarkovRandomField) -> float:
    """Return the squared distance of the released cells from the field's, in noise standard deviations."""
    total = 0.0
    for (name, table), clique in zip(noisy.values.items(), CLIQUES, strict=True):
        total += float(((table - noisy.n * field.marginal(clique)) ** 2).sum()) / (2 * noisy.scale[name] ** 2)
    return total


# ---------------------------------------------------------------------------------------------------------------------
# Intervals


def as_printed(fit: Regression) -> Analysis:
    """Return the intervals that software prints."""
    return Analysis(fit.coefficients, np.sqrt(fit.variances), np.full(5, np.inf), COEFFICIENTS)


def analyses(noisy: Release, sets: int, rng: np.random.Generator) -> dict[str, Analysis]:
    """Return three analyses of one release: of one file, of several from one field, and the noise-aware one.

    Fields are fitted with a ridge, the fastest way, which is as good as any for few cells and many people.
    """
    field = learn(noisy, "ridge")
    same = [regress(field.sample(noisy.n, rng)) for _ in range(sets)]
    one_field = graphical.combine(
        [each.coefficients for each in same], [each.variances for each in same],
        rule="partially synthetic", labels=COEFFICIENTS,
    )  # fmt: skip
    aware = graphical.analyse(
        noisy, field, regress, replicates=sets, population=regress(field).coefficients,
        learn=partial(learn, method="ridge"), labels=COEFFICIENTS, rng=rng,
    )  # fmt: skip
    return {"plain": as_printed(same[0]), "one field": one_field, "noise-aware": aware}


def intervals(epsilon: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Give the survey's regression as three analysts would, from as many synthetic sets as there are trials."""
    if epsilon == math.inf:
        found = {"survey": as_printed(regress(people()))}
    else:
        rng = cell_rng(seed, "intervals", epsilon)
        found = analyses(release(epsilon, rng), trials, rng)
    rows = []
    for analysis, each in found.items():
        ends = each.interval().T
        rows += [(epsilon, analysis, *row) for row in zip(COEFFICIENTS, each.mean, *ends, strict=True)]
    return pd.DataFrame(rows, columns=["epsilon", "analysis", "coefficient", "estimate", "lower", "upper"])


def coverage(epsilon: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Measure, by repetition, how often 95 % intervals of the regression hold the truth.

    The population is the field of the whole survey, so the graph is right and the true coefficients are known. Each
    repetition draws 10,000 people from it, releases their tables once, and analyses 20 synthetic sets. ``error`` is
    root mean square, ``claimed`` the root mean square of the standard errors that the analysis claims.
    """
    truth, rng = regress(population()).coefficients, cell_rng(seed, "coverage", epsilon)
    seen: dict[str, list[Analysis]] = {}
    for _ in range(trials):
        sample = population().sample(10_000, rng)
        noisy = graphical.release(sample, DOMAIN, CLIQUES, epsilon=epsilon, rng=rng)
        for analysis, each in {"survey": as_printed(regress(sample)), **analyses(noisy, 20, rng)}.items():
            seen.setdefault(analysis, []).append(each)
    rows = []
    for analysis, found in seen.items():
        low, high = np.moveaxis(np.array([each.interval() for each in found]), -1, 0)
        errors = np.array([each.mean for each in found]) - truth
        error, bias = np.sqrt((errors**2).mean(axis=0)), errors.mean(axis=0)
        claimed = np.sqrt(np.mean([each.sd**2 for each in found], axis=0))
        held = ((low <= truth) & (truth <= high)).mean(axis=0)
        columns = (held, (high - low).mean(axis=0), error, bias, claimed)
        rows += [(epsilon, analysis, *row) for row in zip(COEFFICIENTS, *columns, strict=True)]
    names = ["coverage", "width", "error", "bias", "claimed"]
    return pd.DataFrame(rows, columns=["epsilon", "analysis", "coefficient", *names])


STUDIES: dict[str, Study] = {
    "people_quality": Study(quality, [(math.inf,), *((epsilon,) for epsilon in EPSILONS)], trials=10, seed=SEED),
    "people_marginals": Study(marginals, seed=SEED),
    "people_mbi": Study(against_mbi, list(itertools.product((0.3, 3.0), METHODS[:5])), trials=10, seed=SEED),
    "people_intervals": Study(intervals, [(math.inf,), (0.3,), (1.0,), (3.0,)], trials=10, seed=SEED),
    "people_coverage": Study(coverage, [(0.3,), (1.0,), (3.0,)], trials=100, seed=SEED),
}
