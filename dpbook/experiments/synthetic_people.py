"""The study of synthetic people: adults of the American Community Survey, released as tables, redrawn as records.

The unit of privacy is a person. The graph comes from subject knowledge, but was revised once after a look at these
records (``FIRST_TRY`` is the first one): a real release would have to pay for that. A private field is drawn from like
a population; what an analyst then computes needs an error that knows of sampling *and* of noise. Each
study is a function that returns a table, and a command, ``python -m dpbook.experiments.synthetic_people NAME``.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from dpbook import graphical
from dpbook._validation import finite_array, integer, one_of, positive
from dpbook.datasets import load_acs2019
from dpbook.datasets.codebook import ACS2019
from dpbook.experiments._studies import cell_rng, load_table, results_of, run_command
from dpbook.graphical import MarkovRandomField
from dpbook.release import Release

__all__ = [
    "CLIQUES",
    "COEFFICIENTS",
    "EPSILONS",
    "FIRST_TRY",
    "METHODS",
    "RESULTS",
    "STUDIES",
    "Combined",
    "Regression",
    "combine",
    "fit_mbi",
    "learn",
    "load",
    "main",
    "people",
    "people_coverage",
    "people_intervals",
    "people_marginals",
    "people_mbi",
    "people_quality",
    "regress",
    "replicates",
    "synthetic_sets",
]

Array = NDArray[np.float64]

RESULTS = results_of("graphical-models")
SEED = 57
EPSILONS = (0.1, 0.3, 1.0, 3.0)
METHODS = ("naive", "ridge", "cgm", "penalised", "mbi", "non-private")
DOMAIN: Mapping[str, int] = {name: len(states) for name, states in ACS2019.items()}
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
_MEASURES = ("released", "unreleased", "correlation", "regression", "divergence")
_SHAPE = tuple(DOMAIN[name] for name in REGRESSED)


@functools.cache
def _people() -> pd.DataFrame:
    frame = load_acs2019(expand=True)
    return pd.DataFrame({name: frame[name].cat.codes.astype(np.int64) for name in DOMAIN})


def people() -> pd.DataFrame:
    """Return the 22,062 adults, one row a person, eight attributes.

    Returns
    -------
    pandas.DataFrame
        Codes, in the order of the public code book (``dpbook.datasets.codebook.ACS2019``).

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import people
    >>> people().shape
    (22062, 8)

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    return _people().copy()


# ---------------------------------------------------------------------------------------------------------------------
# The downstream regression


class Regression(NamedTuple):
    """A logistic regression of a high income (the upper two of four groups) on four attributes.

    Attributes
    ----------
    coefficients : ndarray, (5,)
        Intercept, education and age (in steps of their categories), male, married.
    variances : ndarray, (5,)
        Their squared standard errors, as software prints them.

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import people, regress
    >>> regress(people()).coefficients.round(1)  # schooling, age, being a man and being married all help
    array([-3. ,  0.8,  0.1,  0.8,  0.6])

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """

    coefficients: Array
    variances: Array


def regress(records: pd.DataFrame | MarkovRandomField | NDArray[Any], *, n: int | None = None) -> Regression:
    """Regress a high income on education, age, sex and marriage: in records, in a table, or in a field itself.

    Parameters
    ----------
    records : DataFrame, MarkovRandomField, or array of counts
        Records with the attributes; or a field, whose population is then regressed; or the table of counts of
        ``education, age, sex, married, income``.
    n : int, optional
        How many records a field stands for in the variances; 1 by default.

    Returns
    -------
    Regression
        Maximum likelihood, by Newton's method, with a ridge of a millionth of a record that keeps it finite.

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import people, regress
    >>> (regress(people()).variances ** 0.5).round(3)
    array([0.05 , 0.014, 0.015, 0.032, 0.033])

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    if isinstance(records, MarkovRandomField):
        table = records.marginal(REGRESSED) * (1 if n is None else integer("n", n, least=1))
    elif isinstance(records, pd.DataFrame):
        table = _tabulated(records)
    else:
        table = finite_array("records", records)
    table = table.reshape(-1, _SHAPE[-1])
    yes, trials = table[:, 2:].sum(axis=1), table.sum(axis=1)
    grid = np.indices(_SHAPE[:-1]).reshape(4, -1).T.astype(float)
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
    cells = np.ravel_multi_index(tuple(records[name].to_numpy() for name in REGRESSED), _SHAPE)
    return np.bincount(cells, minlength=math.prod(_SHAPE)).reshape(_SHAPE).astype(float)


class Combined(NamedTuple):
    """What several synthetic sets say together of each coefficient.

    Attributes
    ----------
    estimate, variance : ndarray
        The mean over sets, and its variance by the rule. The noise-aware analyses of the studies put in place of the
        mean twice the field's own coefficient less the mean, which takes off the bias.
    lower, upper : ndarray
        The 95 % interval.

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import Combined
    >>> Combined(1.0, 0.25, 0.0, 2.0).upper
    2.0

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """

    estimate: Any
    variance: Any
    lower: Any
    upper: Any


def combine(estimates: Array, variances: Array, *, rule: str = "fully synthetic") -> Combined:
    """Combine the analyses of m synthetic sets.

    With the variance b between sets and the mean variance u within them, ``"fully synthetic"`` takes
    ``(1 + 1/m) b - u`` (Raghunathan, Reiter and Rubin 2003): right where each set is drawn from a field of its own
    that varies as much as the truth is uncertain, for the sampling and for the noise. It is set to u where the noise
    of the rule itself makes it negative. ``"partially synthetic"`` takes ``u + b/m`` (Reiter 2003): all sets come from
    one field, which it trusts.

    Parameters
    ----------
    estimates, variances : ndarray, (m, coefficients)
        From each set.
    rule : {"fully synthetic", "partially synthetic"}
        Which variance.

    Returns
    -------
    Combined
        Student intervals with the rule's own degrees of freedom.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.synthetic_people import combine
    >>> found = combine(np.array([[1.0], [2.0], [3.0]]), np.full((3, 1), 0.1))
    >>> found.estimate, found.variance.round(3)
    (array([2.]), array([1.233]))

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    one_of("rule", rule, ("fully synthetic", "partially synthetic"))
    q, u = finite_array("estimates", estimates, ndim=2), finite_array("variances", variances, ndim=2)
    m = len(q)
    if m < 2 or u.shape != q.shape:
        raise ValueError(f"estimates must come from at least 2 sets, as variances do; got {q.shape} and {u.shape}")
    between, within = q.var(axis=0, ddof=1), u.mean(axis=0)
    if rule == "fully synthetic":
        total = (1 + 1 / m) * between - within
        freedom = (m - 1) * (1 - within / ((1 + 1 / m) * between)) ** 2
        total, freedom = np.where(total > 0, total, within), np.where(total > 0, np.maximum(freedom, 1), m - 1)
    else:
        total = within + between / m
        freedom = (m - 1) * (1 + m * within / np.maximum(between, 1e-300)) ** 2
    reach = stats.t.ppf(0.975, freedom) * np.sqrt(total)
    centre = q.mean(axis=0)
    return Combined(centre, total, centre - reach, centre + reach)


# ---------------------------------------------------------------------------------------------------------------------
# Private fields and what they generate


def learn(release: Release, method: str, *, tolerance: float = 1e-4) -> MarkovRandomField:
    """Learn a field from noisy tables by one method.

    Parameters
    ----------
    release : Release
        Noisy tables of the cliques.
    method : {"naive", "ridge", "cgm", "penalised", "mbi"}
        As in :func:`dpbook.graphical.fit`; ``"ridge"`` for naive with a ridge of 1 instead of 1e-4; or Private-PGM
        where the package ``mbi`` is installed.
    tolerance : float, default 1e-4
        Of the fit, in probability; replicates need no better.

    Returns
    -------
    MarkovRandomField
        Of the eight attributes.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> from dpbook.experiments.synthetic_people import CLIQUES, DOMAIN, learn, people
    >>> noisy = graphical.release(people(), DOMAIN, CLIQUES, epsilon=1.0, rng=np.random.default_rng(0))
    >>> learn(noisy, "cgm").marginal("sex").round(1)
    array([0.5, 0.5])

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    if method == "mbi":
        return fit_mbi(release)[0]
    options: dict[str, Any] = {"method": "naive", "ridge": 1.0} if method == "ridge" else {"method": method}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return graphical.fit(release, tolerance=tolerance, iterations=500, **options)


def fit_mbi(release: Release, *, iterations: int = 1000) -> tuple[MarkovRandomField, float]:
    """Fit the noisy tables by Private-PGM (McKenna, Sheldon and Miklau 2019): squared error, mirror descent.

    Parameters
    ----------
    release : Release
        Noisy tables.
    iterations : int, default 1000
        Of mirror descent, the package's default.

    Returns
    -------
    tuple
        The field, in our class, and the seconds of processor time that the fit took.

    Raises
    ------
    ImportError
        Where the package is not installed; it names the extra.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> from dpbook.experiments.synthetic_people import fit_mbi
    >>> noisy = graphical.release(np.array([30, 10]), {"a": 2}, [("a",)], epsilon=1.0, rng=np.random.default_rng(0))
    >>> try:
    ...     agrees = abs(fit_mbi(noisy)[0].marginal("a")[0] - 0.76) < 0.02
    ... except ImportError:  # the comparison is an extra
    ...     agrees = True
    >>> bool(agrees)
    True

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    iterations = integer("iterations", iterations, least=1)
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
    start = time.process_time()
    model = estimation.MirrorDescent().estimate(domain, measured, known_total=float(release.n), iters=iterations)
    potentials = [np.asarray(model.potentials[clique].values, dtype=float) for clique in cliques]
    seconds = time.process_time() - start
    known = graphical.Domain.of_settings(settings)
    return MarkovRandomField(known, cliques, [table - table.max() for table in potentials]), seconds


def replicates(
    release: Release, field: MarkovRandomField, method: str, count: int, rng: np.random.Generator
) -> list[MarkovRandomField]:
    """Repeat, from public things alone, everything that made a field: n people, their tables, noise, the fit.

    The parametric bootstrap of a private release: post-processing, which costs no privacy. The fields vary around
    the released one as that one varies around the truth, if the graph is right.

    Parameters
    ----------
    release : Release
        The noisy tables that were published: their cliques, epsilon and n are used again.
    field : MarkovRandomField
        What was learned from them.
    method : str
        How; as in :func:`learn`.
    count : int
        How many replicates.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    list of MarkovRandomField
        One a replicate.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> from dpbook.experiments.synthetic_people import CLIQUES, DOMAIN, learn, people, replicates
    >>> rng = np.random.default_rng(0)
    >>> noisy = graphical.release(people(), DOMAIN, CLIQUES, epsilon=1.0, rng=rng)
    >>> len(replicates(noisy, learn(noisy, "cgm"), "cgm", 2, rng))
    2

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    cliques = [list(group) for group in release.settings["cliques"]]
    found = []
    for _ in range(integer("count", count, least=1)):
        again = field.sample(release.n, rng)
        found.append(learn(graphical.release(again, field.domain, cliques, epsilon=release.epsilon, rng=rng), method))
    return found


def synthetic_sets(
    release: Release,
    method: str,
    count: int,
    rng: np.random.Generator,
    *,
    noise_aware: bool = True,
    size: int | None = None,
) -> list[pd.DataFrame]:
    """Make several synthetic data sets from one release.

    Parameters
    ----------
    release : Release
        Noisy tables.
    method : str
        As in :func:`learn`.
    count : int
        How many sets.
    rng : numpy.random.Generator
        The source of randomness.
    noise_aware : bool, default True
        Whether each set comes from a replicate of its own, so that the sets differ as much as one knows too little;
        otherwise all come from the one field.
    size : int, optional
        Records a set; n by default.

    Returns
    -------
    list of pandas.DataFrame
        Records.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> from dpbook.experiments.synthetic_people import CLIQUES, DOMAIN, people, synthetic_sets
    >>> rng = np.random.default_rng(0)
    >>> noisy = graphical.release(people(), DOMAIN, CLIQUES, epsilon=1.0, rng=rng)
    >>> [len(each) for each in synthetic_sets(noisy, "cgm", 2, rng, noise_aware=False)]
    [22062, 22062]

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    field = learn(release, method)
    count = integer("count", count, least=1)
    fields = replicates(release, field, method, count, rng) if noise_aware else [field] * count
    return [each.sample(release.n if size is None else integer("size", size, least=1), rng) for each in fields]


# ---------------------------------------------------------------------------------------------------------------------
# The studies


@functools.cache
def _population() -> MarkovRandomField:
    """Return the field that the whole survey has, without noise: the population of the repetitions."""
    return graphical.fit_nonprivate(people(), DOMAIN, CLIQUES, ridge=1.0, tolerance=1e-7)


def _has_mbi() -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("mbi")
    except ImportError:
        print("mbi is not installed (pip install dpbook[compare]): its rows are left out")
        return False
    return True


def _fields(
    seed: int, epsilon: float, trial: int, methods: Sequence[str]
) -> dict[str, tuple[MarkovRandomField, float]]:
    """Return each method's field from the same noisy tables of the survey, and the seconds that it took."""
    noisy = graphical.release(people(), DOMAIN, CLIQUES, epsilon=epsilon, rng=cell_rng(seed, "noise", epsilon, trial))
    found = {}
    for method in methods:
        start = time.process_time()
        field = learn(noisy, method, tolerance=1e-6)
        found[method] = field, time.process_time() - start
    return found


def people_quality(*, trials: int = 10, seed: int = SEED) -> pd.DataFrame:
    """Compare private fields with the survey: tables, correlations, the regression, and time.

    Parameters
    ----------
    trials : int, default 10
        Releases a cell; all methods read the same ones.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        ``epsilon``, ``method``, ``trial``, ``released`` and ``unreleased`` (mean total variation distance of pair
        tables from the survey's, for the pairs that were released and for all others), ``correlation`` (mean absolute
        error of Cramér's V over all pairs), ``regression`` (mean absolute error of the coefficients, in standard
        errors of the survey's), ``divergence`` (KL from the non-private field), ``seconds`` (of processor time).
        Pairs within a released table of three count as released.

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import load
    >>> "unreleased" in load("people_quality").columns
    True

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    methods = METHODS[:4]
    first = graphical.fit_nonprivate(people(), DOMAIN, FIRST_TRY, ridge=1.0, tolerance=1e-6)
    rows = [(float("inf"), "non-private", 0, *_judge(_population()), 0.0)]
    rows.append((float("inf"), "non-private, first graph", 0, *_judge(first), 0.0))
    for epsilon, trial in itertools.product(EPSILONS, range(trials)):
        for method, (field, seconds) in _fields(seed, epsilon, trial, methods).items():
            rows.append((epsilon, method, trial, *_judge(field), seconds))
    return pd.DataFrame(rows, columns=["epsilon", "method", "trial", *_MEASURES, "seconds"])


@functools.cache
def _survey() -> tuple[dict[tuple[str, str], Array], Regression]:
    """Return the survey's pair tables and its regression."""
    tables = {}
    for pair in itertools.combinations(DOMAIN, 2):
        exact = graphical.clique_tables(people(), DOMAIN, [pair])
        tables[pair] = exact.tables[0] / exact.n
    return tables, regress(people())


def _judge(field: MarkovRandomField) -> tuple[float, float, float, float, float]:
    tables, truth = _survey()
    released = {frozenset(pair) for clique in CLIQUES for pair in itertools.combinations(clique, 2)}
    gaps: dict[bool, list[float]] = {True: [], False: []}
    association = []
    for pair, table in tables.items():
        mine = field.marginal(pair)
        gaps[frozenset(pair) in released].append(float(np.abs(mine - table).sum() / 2))
        association.append(abs(_cramer(mine) - _cramer(table)))
    error = np.abs(regress(field).coefficients - truth.coefficients) / np.sqrt(truth.variances)
    means = (float(np.mean(gaps[True])), float(np.mean(gaps[False])), float(np.mean(association)))
    return *means, float(error.mean()), _population().kl(field)


def _cramer(table: Array) -> float:
    """Return Cramér's V: the chi-squared statistic per record over the smaller number of categories less one."""
    expected = np.outer(table.sum(axis=1), table.sum(axis=0))
    return math.sqrt(float(((table - expected) ** 2 / np.maximum(expected, 1e-12)).sum()) / (min(table.shape) - 1))


def people_marginals(*, trials: int = 1, seed: int = SEED) -> pd.DataFrame:
    """Tell the single and pair tables of the survey and of a private field, cell by cell, for a picture.

    Parameters
    ----------
    trials : int, default 1
        Unused; every study takes it.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        ``pair``, ``released``, ``cell``, ``survey`` and one column an epsilon (collective graphical models).

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import load
    >>> load("people_marginals")["pair"].nunique()
    28

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    tables, _ = _survey()
    released = {frozenset(pair) for clique in CLIQUES for pair in itertools.combinations(clique, 2)}
    fields = {epsilon: _fields(seed, epsilon, 0, ["cgm"])["cgm"][0] for epsilon in (0.1, 1.0)}
    rows = []
    for pair, table in tables.items():
        private = {epsilon: field.marginal(pair).ravel() for epsilon, field in fields.items()}
        for cell, value in enumerate(table.ravel()):
            shown = (private[epsilon][cell] for epsilon in private)
            rows.append((" × ".join(pair), frozenset(pair) in released, cell, value, *shown))
    return pd.DataFrame(rows, columns=["pair", "released", "cell", "survey", *(f"cgm {e:g}" for e in fields)])


def people_mbi(*, trials: int = 10, seed: int = SEED, iterations: int = 1000) -> pd.DataFrame:
    """Compare with Private-PGM on the same noisy tables: quality and time.

    Parameters
    ----------
    trials : int, default 10
        Releases a cell.
    seed : int
        Of everything.
    iterations : int, default 1000
        Of mirror descent, the package's default.

    Returns
    -------
    pandas.DataFrame
        ``epsilon``, ``method``, ``trial``, ``seconds`` (of processor time; the first fit of Private-PGM also
        compiles), ``objective`` (squared error of the released cells in noise standard deviations, what Private-PGM
        minimises), and the measures of :func:`people_quality`. Without the rows of ``mbi``, and with a message, where
        that package is not installed.

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import load
    >>> set(load("people_mbi")["method"]) >= {"cgm", "mbi"}
    True

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    methods = [*METHODS[:4], *(["mbi"] if _has_mbi() else [])]
    rows = []
    for epsilon, method, trial in itertools.product((0.3, 3.0), methods, range(trials)):
        rng = cell_rng(seed, "noise", epsilon, trial)
        noisy = graphical.release(people(), DOMAIN, CLIQUES, epsilon=epsilon, rng=rng)
        start = time.process_time()
        field = fit_mbi(noisy, iterations=iterations)[0] if method == "mbi" else learn(noisy, method, tolerance=1e-6)
        seconds = time.process_time() - start
        rows.append((epsilon, method, trial, seconds, _squared_error(noisy, field), *_judge(field)))
    return pd.DataFrame(rows, columns=["epsilon", "method", "trial", "seconds", "objective", *_MEASURES])


def _squared_error(noisy: Release, field: MarkovRandomField) -> float:
    """Return the squared distance of the released cells from the field's, in noise standard deviations."""
    total = 0.0
    for (name, table), clique in zip(noisy.values.items(), CLIQUES, strict=True):
        total += float(((table - noisy.n * field.marginal(clique)) ** 2).sum()) / (2 * noisy.scale[name] ** 2)
    return total


def people_intervals(*, trials: int = 10, seed: int = SEED) -> pd.DataFrame:
    """Give the survey's regression as three analysts would: plain, combined without the noise, and with it.

    Parameters
    ----------
    trials : int, default 10
        Synthetic sets.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        ``epsilon``, ``analysis``, ``coefficient``, ``estimate``, ``lower``, ``upper``.

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import load
    >>> load("people_intervals")["coefficient"].nunique()
    5

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    rows = []
    survey = regress(people())
    rows += _rows(float("inf"), "survey", _plain(survey))
    for epsilon in (0.3, 1.0, 3.0):
        rng = cell_rng(seed, "intervals", epsilon)
        noisy = graphical.release(people(), DOMAIN, CLIQUES, epsilon=epsilon, rng=rng)
        for analysis, found in _analyses(noisy, "ridge", trials, rng).items():
            rows += _rows(epsilon, analysis, found)
    return pd.DataFrame(rows, columns=["epsilon", "analysis", "coefficient", "estimate", "lower", "upper"])


def _rows(epsilon: float, analysis: str, found: Combined) -> list[tuple[Any, ...]]:
    each = zip(COEFFICIENTS, found.estimate, found.lower, found.upper, strict=True)
    return [(epsilon, analysis, *row) for row in each]


def _plain(fit: Regression) -> Combined:
    reach = stats.norm.ppf(0.975) * np.sqrt(fit.variances)
    return Combined(fit.coefficients, fit.variances, fit.coefficients - reach, fit.coefficients + reach)


def _analyses(noisy: Release, method: str, sets: int, rng: np.random.Generator) -> dict[str, Combined]:
    """Return the three analyses of one release."""
    field = learn(noisy, method)
    same = [regress(field.sample(noisy.n, rng)) for _ in range(sets)]
    # A field can be drawn from as often as one likes: sets of 5 n records keep b well above u, and the rule steady.
    own = [regress(each.sample(5 * noisy.n, rng)) for each in replicates(noisy, field, method, sets, rng)]
    combined = {}
    for name, fits, rule in (("one field", same, "partially synthetic"), ("noise-aware", own, "fully synthetic")):
        combined[name] = combine(
            np.array([each.coefficients for each in fits]), np.array([each.variances for each in fits]), rule=rule
        )
    # Replicates miss the released field by the bias with which it misses the truth: take it off.
    aware = combined["noise-aware"]
    centre = 2 * regress(field).coefficients - aware.estimate
    shifted = Combined(
        centre, aware.variance, aware.lower - aware.estimate + centre, aware.upper - aware.estimate + centre
    )
    return {"plain": _plain(same[0]), "one field": combined["one field"], "noise-aware": shifted}


def people_coverage(
    *, trials: int = 100, seed: int = SEED, epsilons: Sequence[float] = (0.3, 1.0, 3.0)
) -> pd.DataFrame:
    """Measure, by repetition, how often 95 % intervals of the regression hold the truth.

    The population is the field of the whole survey, so the graph is right and the true coefficients are known. Each
    repetition draws 10,000 people from it, releases their tables once, and analyses 20 synthetic sets. Fields are
    fitted with a ridge, the fastest way, which is as good as any where tables have few cells and many people.

    Parameters
    ----------
    trials : int, default 100
        Repetitions a cell.
    seed : int
        Of everything.
    epsilons : sequence of float
        The privacy losses.

    Returns
    -------
    pandas.DataFrame
        ``epsilon``, ``analysis``, ``coefficient``, ``coverage``, ``width`` (mean), ``error`` (root mean square),
        ``bias`` (mean error), and ``claimed``, the root mean square of the standard errors that the analysis claims.

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import load
    >>> set(load("people_coverage")["analysis"]) == {"survey", "plain", "one field", "noise-aware"}
    True

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    truth, population = regress(_population()).coefficients, _population()
    rows = []
    for epsilon in (positive("epsilons", each) for each in epsilons):
        seen: dict[str, list[Combined]] = {}
        rng = cell_rng(seed, "coverage", epsilon)
        for _ in range(trials):
            sample = population.sample(10_000, rng)
            noisy = graphical.release(sample, DOMAIN, CLIQUES, epsilon=epsilon, rng=rng)
            found = {"survey": _plain(regress(sample)), **_analyses(noisy, "ridge", 20, rng)}
            for analysis, each in found.items():
                seen.setdefault(analysis, []).append(each)
        for analysis, all_found in seen.items():
            low, high = np.array([f.lower for f in all_found]), np.array([f.upper for f in all_found])
            errors = np.array([f.estimate for f in all_found]) - truth
            error, bias = np.sqrt((errors**2).mean(axis=0)), errors.mean(axis=0)
            claimed = np.sqrt(np.mean([f.variance for f in all_found], axis=0))
            held = ((low <= truth) & (truth <= high)).mean(axis=0)
            width = (high - low).mean(axis=0)
            columns = (held, width, error, bias, claimed)
            rows += [(epsilon, analysis, *row) for row in zip(COEFFICIENTS, *columns, strict=True)]
    names = ["coverage", "width", "error", "bias", "claimed"]
    return pd.DataFrame(rows, columns=["epsilon", "analysis", "coefficient", *names])


STUDIES = {
    "people_quality": people_quality,
    "people_marginals": people_marginals,
    "people_mbi": people_mbi,
    "people_intervals": people_intervals,
    "people_coverage": people_coverage,
}


def load(name: str, folder: str | Path = RESULTS) -> pd.DataFrame:
    """Return the stored table of a study.

    Parameters
    ----------
    name : str
        A key of ``STUDIES``.
    folder : path, optional
        Where the tables are; by default the chapter's committed ones.

    Returns
    -------
    pandas.DataFrame
        With ``seed``, ``trials``, ``version`` and ``seconds`` in its ``attrs``.

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import load
    >>> load("people_quality").attrs["trials"]
    10

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    return load_table(name, STUDIES, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run studies and write their tables: ``python -m dpbook.experiments.synthetic_people people_quality``.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; by default those of the process.

    Examples
    --------
    >>> from dpbook.experiments.synthetic_people import main
    >>> try:
    ...     main(["people_weather"])
    ... except SystemExit as stop:
    ...     stop.code
    2

    Explained in :doc:`/book/graphical-models/synthetic-people`.
    """
    run_command(arguments, STUDIES, folder=RESULTS, seed=SEED, doc=main.__doc__)


if __name__ == "__main__":
    main()
