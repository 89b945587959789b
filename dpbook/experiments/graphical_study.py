"""The studies of chapter 5 on simulated graphs: how far learned fields are from the truth, and what decides it.

Graphs have ten variables of ten or twenty states; the potentials of every edge are the logarithms of a flat Dirichlet
draw, as in the source. Trials are nested: five populations, each with its own potentials, and five releases of each.
Every study is a function that returns a table, and a command, ``python -m dpbook.experiments.graphical_study NAME``.
Studies measure methods; they publish nothing and spend no budget.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from dpbook._validation import integer, one_of
from dpbook.experiments._studies import cell_rng, load_table, results_of, run_command
from dpbook.graphical import (
    MarkovRandomField,
    Problem,
    chain,
    clique_tables,
    dpsgd,
    expectation,
    fit,
    fit_nonprivate,
    noise_aware_ridge,
    problem_of,
    release,
)
from dpbook.graphical.junction import JunctionTree
from dpbook.release import Release
from dpbook.sensitivity import histogram

__all__ = [
    "EDGE_PROBABILITY",
    "GRAPHS",
    "RIDGES",
    "STUDIES",
    "Population",
    "divergence",
    "divergence_chain",
    "divergence_er",
    "divergence_third",
    "draw_graph",
    "load",
    "main",
    "marginal_error",
    "population",
    "projection",
    "regularisation",
    "scatter",
    "stopping",
]

Array = NDArray[np.float64]

RESULTS = results_of("graphical-models")
SEED = 50
NODES = 10
GRAPHS = ("chain", "third", "er")
EDGE_PROBABILITY = 0.25  # of the Erdős–Rényi graphs, which are redrawn until connected and of treewidth 3 or less
RIDGES = (1e-4, 1.0, 10.0, 100.0, 1000.0)
POPULATIONS = 5
STATES = (10, 20)
GRADIENTS: Mapping[str, Sequence[float]] = {
    "learning_rate": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    "clip": (1.0, 3.0),
    "sampling": (0.25,),
    "steps": (50, 200),
}
_NO_PENALTY = 0.5  # the ridge of the non-private fit: a normal prior of variance 1 on log-potentials


def draw_graph(kind: str, states: int, rng: np.random.Generator) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the domain and the edges of one of the studies' graphs.

    Parameters
    ----------
    kind : {"chain", "third", "er"}
        A chain, a chain with edges up to three steps apart, or a connected Erdős–Rényi graph of treewidth at most 3.
    states : int
        How many states every variable has.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    tuple
        Domain and cliques.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.graphical_study import draw_graph
    >>> len(draw_graph("third", 10, np.random.default_rng(0))[1])
    24

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    names = [f"x{i}" for i in range(NODES)]
    domain = dict.fromkeys(names, integer("states", states, least=2))
    if one_of("kind", kind, GRAPHS) != "er":
        return domain, chain(names, order=3 if kind == "third" else 1)
    while True:
        edges = [pair for pair in itertools.combinations(range(NODES), 2) if rng.random() < EDGE_PROBABILITY]
        if _connected(edges) and JunctionTree([2] * NODES, edges).treewidth <= 3:
            return domain, [(names[i], names[j]) for i, j in edges]


def _connected(edges: Sequence[tuple[int, int]]) -> bool:
    reached = {0}
    for _ in range(NODES):
        reached |= {v for edge in edges if reached & set(edge) for v in edge}
    return len(reached) == NODES


class Population(NamedTuple):
    """A true field, records drawn from it, and what an open fit to them would say.

    Attributes
    ----------
    truth : MarkovRandomField
        The law that the records were drawn from.
    records : pandas.DataFrame
        The records.
    domain : dict
        Numbers of states.
    cliques : list
        The edges.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import population
    >>> len(population("chain", 3, 50, index=0, seed=1).records)
    50

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """

    truth: MarkovRandomField
    records: pd.DataFrame
    domain: dict[str, int]
    cliques: list[tuple[str, str]]


def population(kind: str, states: int, n: int, *, index: int, seed: int = SEED) -> Population:
    """Draw potentials (the same for every n) and n records.

    Parameters
    ----------
    kind, states
        As in :func:`draw_graph`.
    n : int
        How many records.
    index : int
        Which of the populations.
    seed : int
        Of everything.

    Returns
    -------
    Population
        The truth and the records.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import population
    >>> population("chain", 3, 50, index=0, seed=1).truth.inference
    'exact'

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    rng = cell_rng(seed, "potentials", kind, states, index)
    domain, cliques = draw_graph(kind, states, rng)
    potentials = [np.log(rng.dirichlet(np.ones(states**2))).reshape(states, states) for _ in cliques]
    truth = MarkovRandomField(domain, cliques, potentials)
    return Population(truth, truth.sample(n, cell_rng(seed, "records", kind, states, index, n)), domain, cliques)


def divergence(
    kind: str,
    *,
    states: int = 10,
    sizes: Sequence[int] = (1_000, 10_000, 100_000, 1_000_000),
    epsilons: Sequence[float] = (0.1, 1.0, 10.0),
    ridges: Sequence[float] = RIDGES,
    trials: int = 25,
    iterations: int = 200,
    gradients_to: int = 0,
    jobs: int = 1,
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Measure the divergence of the truth from learned fields, over n and epsilon (the source's Figure 3.4).

    Parameters
    ----------
    kind, states
        As in :func:`draw_graph`.
    sizes, epsilons : sequence
        The grid.
    ridges : sequence of float
        Of the naive fits.
    trials : int, default 25
        A multiple of five: five populations, a fifth of the trials each.
    iterations : int, default 200
        The most iterations of one fit, 60 where the ridge is below 0.01: its maximum lies at potentials of 10⁵,
        which no optimiser reaches, and each further step takes it farther from the truth.
    gradients_to : int, default 0
        Learn by noisy gradients, too, where n is at most this; delta is 1/n, and the settings are the best of
        ``GRADIENTS`` on the first population's records, as in the source. The search's own privacy cost is not
        counted.
    jobs : int, default 1
        How many processes share the work, a number of records each; -1 for all cores. Results do not depend on it.
    seed, progress
        As in every study.

    Returns
    -------
    pandas.DataFrame
        For each cell and method: the mean ``kl`` over trials and its standard error ``se`` between populations, the
        share of trials where the fit ``converged``, of those where it was ``worse`` than naive with the smallest
        ridge and where it ``beats`` the cell's best ridge, ``most``, the largest ratio of its divergence to that of
        naive with the smallest ridge in any trial, and CPU ``seconds`` a fit.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import divergence
    >>> table = divergence("chain", states=3, sizes=[500], epsilons=[1.0], ridges=[1.0], trials=5)
    >>> list(table["method"])
    ['random', 'non-private', 'naive', 'cgm', 'penalised']

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    measured = partial(
        _divergence_at,
        kind=kind,
        states=states,
        epsilons=epsilons,
        ridges=ridges,
        replicates=math.ceil(integer("trials", trials, least=POPULATIONS) / POPULATIONS),
        iterations=iterations,
        gradients_to=gradients_to,
        seed=seed,
    )
    run = joblib.Parallel(n_jobs=jobs, return_as="generator")
    largest_first = sorted(sizes, reverse=True)  # the longest work must not be left for the end
    found = run(joblib.delayed(measured)(n) for n in largest_first)
    rows = dict(zip(largest_first, tqdm(found, desc=kind, total=len(sizes), disable=not progress), strict=True))
    return pd.DataFrame([row for n in sizes for row in rows[n]])


def _divergence_at(
    n: int,
    *,
    kind: str,
    states: int,
    epsilons: Sequence[float],
    ridges: Sequence[float],
    replicates: int,
    iterations: int,
    gradients_to: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Return the rows of :func:`divergence` for one number of records; populations are the same for every epsilon."""
    worlds = [population(kind, states, n, index=index, seed=seed) for index in range(POPULATIONS)]
    unnoised = [_open_fit(world) for world in worlds]
    rows: list[dict[str, Any]] = []
    for epsilon in epsilons:
        found: Found = {}
        settings: dict[str, Any] = {}
        for index, world in enumerate(worlds):
            rng = cell_rng(seed, "release", kind, states, n, epsilon, index)
            guess = _measured(world, partial(dpsgd.random_field, world.domain, world.cliques, rng=rng))
            found.setdefault(("random", math.nan), []).extend([guess] * replicates)
            found.setdefault(("non-private", math.nan), []).extend([unnoised[index]] * replicates)
            if n <= gradients_to:
                of_gradients = cell_rng(seed, "gradients", kind, states, n, epsilon, index)
                settings = settings or _tuned(world, epsilon, of_gradients)
                learn = partial(_by_gradients, world, epsilon, settings, of_gradients)
                found.setdefault(("dp-sgd", math.nan), []).extend(_measured(world, learn) for _ in range(replicates))
            for _ in range(replicates):
                noisy = release(world.records, world.domain, world.cliques, epsilon=epsilon, rng=rng)
                for key, fitting in _private_fits(noisy, ridges, iterations).items():
                    found.setdefault(key, []).append(_measured(world, fitting))
        rows += _summarised(found, {"graph": kind, "states": states, "n": n, "epsilon": epsilon}, ridges)
    return rows


Measured = tuple[float, bool, float]  # divergence, whether the fit converged, seconds
Found = dict[tuple[str, float], list[Measured]]


def _naive(noisy: Release, ridge: float, iterations: int) -> MarkovRandomField:
    """Fit naively; below a ridge of 0.01 the maximum is out of reach of any optimiser, and 60 steps towards it do."""
    return fit(noisy, method="naive", ridge=ridge, iterations=iterations if ridge >= 0.01 else 60)


def _private_fits(
    noisy: Release, ridges: Sequence[float], iterations: int
) -> dict[tuple[str, float], partial[MarkovRandomField]]:
    fits = {("naive", ridge): partial(_naive, noisy, ridge, iterations) for ridge in ridges}
    for method in ("cgm", "penalised"):
        fits[method, math.nan] = partial(fit, noisy, method=method, iterations=iterations)
    return fits


def _measured(world: Population, fitting: Callable[[], MarkovRandomField]) -> Measured:
    begun = time.process_time()
    model = fitting()
    seconds = time.process_time() - begun
    assert model.report is not None
    return world.truth.kl(model), model.report.converged, seconds


def _open_fit(world: Population) -> Measured:
    return _measured(world, partial(fit_nonprivate, world.records, world.domain, world.cliques, ridge=_NO_PENALTY))


def _tuned(world: Population, epsilon: float, rng: np.random.Generator) -> dict[str, Any]:
    """Return the settings of noisy gradients that fit the records best; the search costs privacy that nobody counts."""
    tried = dpsgd.tune_dpsgd_nonprivate(
        world.records, world.domain, world.cliques, epsilon=epsilon, grid=GRADIENTS, rng=rng
    )
    return {name: tried[name].tolist()[0] for name in GRADIENTS}


def _by_gradients(
    world: Population, epsilon: float, settings: dict[str, Any], rng: np.random.Generator
) -> MarkovRandomField:
    noisy = dpsgd.release_dpsgd(world.records, world.domain, world.cliques, epsilon=epsilon, rng=rng, **settings)
    return dpsgd.field_of(noisy)


def _summarised(found: Found, cell: dict[str, Any], ridges: Sequence[float]) -> list[dict[str, Any]]:
    kls = {key: np.array([each[0] for each in trials]) for key, trials in found.items()}
    naive = {key: values for key, values in kls.items() if key[0] == "naive"}
    best = min(naive.values(), key=lambda values: float(values.mean()))
    untuned = naive[("naive", min(ridges))]
    rows = []
    for key, trials in found.items():
        values = kls[key]
        of_population = values.reshape(POPULATIONS, -1).mean(axis=1)
        rows.append(
            {
                **cell,
                "method": key[0],
                "ridge": key[1],
                "kl": values.mean(),
                "se": of_population.std(ddof=1) / math.sqrt(POPULATIONS),
                "worse": float((values > untuned).mean()),
                "beats": float((values < best).mean()),
                "most": float((values / untuned).max()),
                "converged": float(np.mean([each[1] for each in trials])),
                "seconds": float(np.mean([each[2] for each in trials])),
            }
        )
    return rows


def divergence_chain(*, trials: int = 25, seed: int = SEED, progress: bool = False) -> pd.DataFrame:
    """Run :func:`divergence` on chains of ten variables, with ten and with twenty states.

    Parameters
    ----------
    trials, seed, progress
        As in :func:`divergence`.

    Returns
    -------
    pandas.DataFrame
        Twice twelve cells.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import STUDIES, divergence_chain
    >>> STUDIES["divergence_chain"] is divergence_chain
    True

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    return _for_all_states("chain", trials=trials, seed=seed, progress=progress)


def divergence_er(*, trials: int = 25, seed: int = SEED, progress: bool = False) -> pd.DataFrame:
    """Run :func:`divergence` on connected Erdős–Rényi graphs of treewidth at most 3, with ten and twenty states.

    Parameters
    ----------
    trials, seed, progress
        As in :func:`divergence`.

    Returns
    -------
    pandas.DataFrame
        Twice twelve cells.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import STUDIES, divergence_er
    >>> STUDIES["divergence_er"] is divergence_er
    True

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    return _for_all_states("er", trials=trials, seed=seed, progress=progress)


def divergence_third(*, trials: int = 25, seed: int = SEED, progress: bool = False) -> pd.DataFrame:
    """Run :func:`divergence` on third-order chains: with twenty states, tables of 160,000 entries.

    Parameters
    ----------
    trials, seed, progress
        As in :func:`divergence`.

    Returns
    -------
    pandas.DataFrame
        Twice twelve cells.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import STUDIES, divergence_third
    >>> STUDIES["divergence_third"] is divergence_third
    True

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    return _for_all_states("third", trials=trials, seed=seed, progress=progress)


def _for_all_states(kind: str, **options: Any) -> pd.DataFrame:
    """Run ten and twenty states; where tables have 160,000 entries, with half the iterations."""
    tables = []
    for states in STATES:
        iterations = 100 if kind == "third" and states == 20 else 200
        tables.append(divergence(kind, states=states, iterations=iterations, gradients_to=100_000, jobs=-1, **options))
    return pd.concat(tables, ignore_index=True)


def marginal_error(
    *,
    sizes: Sequence[int] = (1_000, 10_000, 100_000, 1_000_000),
    epsilons: Sequence[float] = (0.1, 1.0, 10.0),
    trials: int = 25,
    seed: int = SEED,
) -> pd.DataFrame:
    """Measure the squared error of marginals over n (the source's Figure 3.1), beside what Proposition 3 predicts.

    Parameters
    ----------
    sizes, epsilons : sequence
        The grid; a chain of ten variables with ten states.
    trials : int, default 25
        Releases, those of five populations in turn.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        ``noisy``, ``learned`` (naive, ridge 1) and ``nonprivate`` errors, averaged over cells and trials; what
        Proposition 3 predicts with sensitivity two a table, ``predicted``, and as printed, ``printed``.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import marginal_error
    >>> table = marginal_error(sizes=[1000], epsilons=[1.0], trials=2)
    >>> bool(0.8 < table["noisy"][0] / table["predicted"][0] < 1.2)
    True

    Explained in :doc:`/book/graphical-models/learning-from-noisy-tables`.
    """
    rows = []
    for n, epsilon in itertools.product(sizes, epsilons):
        errors = []
        for index in range(trials):
            world = population("chain", 10, n, index=index % POPULATIONS, seed=seed)
            rng = cell_rng(seed, "marginal error", n, epsilon, index)
            noisy = release(world.records, world.domain, world.cliques, epsilon=epsilon, rng=rng)
            truth = np.stack([world.truth.marginal(clique) for clique in world.cliques])
            exact = np.stack(clique_tables(world.records, world.domain, world.cliques).tables)
            learned = fit(noisy, method="naive", ridge=1.0)
            model = np.stack([learned.marginal(clique) for clique in world.cliques])
            released = np.stack(list(noisy.values.values()))
            sampling = float((truth * (1 - truth)).mean()) / n
            noise = [2 * (tables / (n * epsilon)) ** 2 for tables in (histogram(len(truth)), len(truth))]
            errors.append(
                [
                    float(((released / n - truth) ** 2).mean()),
                    float(((model - truth) ** 2).mean()),
                    float(((exact / n - truth) ** 2).mean()),
                    sampling + noise[0],
                    sampling + noise[1],
                ]
            )
        names = ("noisy", "learned", "nonprivate", "predicted", "printed")
        means = np.mean(errors, axis=0).tolist()
        rows.append({"n": n, "epsilon": epsilon, **dict(zip(names, means, strict=True))})
    return pd.DataFrame(rows)


def _between(values: Sequence[float]) -> float:
    """Return the standard error of a mean over releases that five populations took in turn."""
    means = [np.mean(values[index::POPULATIONS]) for index in range(min(POPULATIONS, len(values)))]
    return float(np.std(means, ddof=1) / math.sqrt(len(means)))


def projection(
    *,
    sizes: Sequence[int] = (1_000, 10_000, 100_000, 1_000_000),
    epsilon: float = 0.5,
    states: int = 20,
    ridges: Sequence[float] = (10.0, 100.0),
    trials: int = 25,
    seed: int = SEED,
) -> pd.DataFrame:
    """Compare naive fits with and without projection on the simplex (the source's Figure 3.2).

    Parameters
    ----------
    sizes, epsilon, states
        The grid; Erdős–Rényi graphs of ten variables.
    ridges : sequence of float
        Of the naive fits.
    trials : int, default 25
        Releases, those of five populations in turn.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        The mean ``kl`` and its standard error for ``project`` true and false.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import projection
    >>> table = projection(sizes=[1000], states=4, ridges=[1.0], trials=2)
    >>> bool(table["kl"][0] < table["kl"][1])
    True

    Explained in :doc:`/book/graphical-models/learning-from-noisy-tables`.
    """
    rows = []
    for n in sizes:
        found: dict[tuple[float, bool], list[float]] = {}
        for index in range(trials):
            world = population("er", states, n, index=index % POPULATIONS, seed=seed)
            rng = cell_rng(seed, "projection", n, index)
            noisy = release(world.records, world.domain, world.cliques, epsilon=epsilon, rng=rng)
            for ridge, project in itertools.product(ridges, (True, False)):
                model = fit(noisy, method="naive", ridge=ridge, project=project, iterations=200)
                found.setdefault((ridge, project), []).append(world.truth.kl(model))
        for (ridge, project), values in found.items():
            rows.append({"n": n, "ridge": ridge, "project": project, "kl": np.mean(values), "se": _between(values)})
    return pd.DataFrame(rows)


def regularisation(
    *,
    n: int = 10_000,
    epsilon: float = 0.1,
    ridges: Sequence[float] = (0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0),
    trials: int = 25,
    seed: int = SEED,
) -> pd.DataFrame:
    """Vary the ridge, with and without privacy (the source's Figure 3.3).

    Parameters
    ----------
    n, epsilon
        Of a chain of ten variables with ten states.
    ridges : sequence of float
        The grid.
    trials : int, default 25
        Releases, those of five populations in turn.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        The mean ``kl`` of ``"naive"`` and ``"non-private"`` fits for each ridge, and that of ``"cgm"`` and
        ``"penalised"``, which need none; ``default_ridge`` is the noise-aware one at which cgm starts.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import regularisation
    >>> table = regularisation(n=1000, ridges=[100.0], trials=2)
    >>> list(table["method"])
    ['naive', 'non-private', 'cgm', 'penalised']

    Explained in :doc:`/book/graphical-models/learning-from-noisy-tables`.
    """
    found: dict[tuple[str, float], list[float]] = {}
    start = 0.0
    for index in range(trials):
        world = population("chain", 10, n, index=index % POPULATIONS, seed=seed)
        rng = cell_rng(seed, "regularisation", n, epsilon, index)
        noisy = release(world.records, world.domain, world.cliques, epsilon=epsilon, rng=rng)
        start = noise_aware_ridge(problem_of(noisy))
        for ridge in ridges:
            model = fit(noisy, method="naive", ridge=ridge, iterations=10_000)
            found.setdefault(("naive", ridge), []).append(world.truth.kl(model))
            model = fit_nonprivate(world.records, world.domain, world.cliques, ridge=ridge, tolerance=1e-6)
            found.setdefault(("non-private", ridge), []).append(world.truth.kl(model))
        for method in ("cgm", "penalised"):
            found.setdefault((method, math.nan), []).append(world.truth.kl(fit(noisy, method=method)))
    return pd.DataFrame(
        {
            "method": method,
            "ridge": ridge,
            "kl": np.mean(values),
            "se": _between(values),
            "default_ridge": start,
        }
        for (method, ridge), values in found.items()
    )


def scatter(
    *, n: int = 100_000, epsilon: float = 0.5, states: int = 20, trials: int = 1, seed: int = SEED
) -> pd.DataFrame:
    """List true and learned edge marginals of one Erdős–Rényi graph (the source's Figure 3.5).

    Parameters
    ----------
    n, epsilon, states
        The setting.
    trials : int, default 1
        Graphs; the figure shows one.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        One row a cell of the first three edges: ``truth``, ``non-private``, ``naive`` (ridge 1e-4), ``naive best``
        (the noise-aware ridge), ``cgm`` and ``penalised``.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import scatter
    >>> len(scatter(n=1000, states=3))
    27

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    tables = []
    for index in range(trials):
        world = population("er", states, n, index=index, seed=seed)
        noisy = release(
            world.records, world.domain, world.cliques, epsilon=epsilon, rng=cell_rng(seed, "scatter", index)
        )
        aware = noise_aware_ridge(problem_of(noisy))
        models = {
            "truth": world.truth,
            "non-private": fit_nonprivate(
                world.records, world.domain, world.cliques, ridge=_NO_PENALTY, tolerance=1e-6
            ),
            "naive": fit(noisy, method="naive", iterations=100),
            "naive best": fit(noisy, method="naive", ridge=aware, iterations=200),
            "cgm": fit(noisy, iterations=200),
            "penalised": fit(noisy, method="penalised", iterations=200),
        }
        edges = world.cliques[:3]
        columns = {name: np.concatenate([m.marginal(e).ravel() for e in edges]) for name, m in models.items()}
        names = np.repeat(["-".join(edge) for edge in edges], states**2)
        tables.append(pd.DataFrame({"graph": index, "edge": names, **columns}))
    return pd.concat(tables, ignore_index=True)


def stopping(
    *,
    cells: Sequence[tuple[int, float]] = ((1_000, 1.0), (10_000, 1.0), (10_000, 0.1)),
    steps: int = 60,
    trials: int = 5,
    seed: int = SEED,
) -> pd.DataFrame:
    """Follow EM step by step from several starts: all its regularisation is the start and early stopping.

    Parameters
    ----------
    cells : sequence of (n, epsilon)
        Of chains of ten variables with ten states.
    steps : int, default 60
        Steps of EM.
    trials : int, default 5
        Populations, each with one release.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        After each step, for starts ``"flat"`` (all potentials 0), ``"noise-aware ridge"`` and ``"ridge 1"``: the mean
        ``kl``, and ``misfit``, the L1 distance to the noisy tables over what the noise alone would give, b a cell.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import stopping
    >>> table = stopping(cells=[(500, 1.0)], steps=2, trials=1)
    >>> bool(table["misfit"].iloc[2] < table["misfit"].iloc[0])
    True

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    rows: dict[tuple[int, float, str, int], list[tuple[float, float]]] = {}
    for (n, epsilon), index in itertools.product(cells, range(trials)):
        world = population("chain", 10, n, index=index, seed=seed)
        rng = cell_rng(seed, "stopping", n, epsilon, index)
        noisy = release(world.records, world.domain, world.cliques, epsilon=epsilon, rng=rng)
        problem = problem_of(noisy)
        starts = {
            "flat": np.zeros(problem.counts.size),
            "noise-aware ridge": _start(noisy, noise_aware_ridge(problem)),
            "ridge 1": _start(noisy, 1.0),
        }
        for name, theta in starts.items():
            for step, (kl, misfit) in enumerate(_followed(problem, world.truth, theta, steps)):
                rows.setdefault((n, epsilon, name, step), []).append((kl, misfit))
    return pd.DataFrame(
        {"n": n, "epsilon": epsilon, "start": name, "step": step, **_mean_of(values)}
        for (n, epsilon, name, step), values in rows.items()
    )


def _mean_of(values: list[tuple[float, float]]) -> dict[str, float]:
    kl, misfit = np.mean(values, axis=0)
    return {"kl": float(kl), "misfit": float(misfit)}


def _start(noisy: Release, ridge: float) -> Array:
    model = fit(noisy, method="naive", ridge=ridge)
    return np.concatenate([table.ravel() for table in model.potentials])


def _followed(problem: Problem, truth: MarkovRandomField, theta: Array, steps: int) -> list[tuple[float, float]]:
    found, multipliers = [], None
    for step in range(steps + 1):
        if step:
            inferred = expectation(problem, theta, start=multipliers, tolerance=1e-3 * theta.size)
            theta, multipliers = theta + inferred.multipliers / problem.copies, inferred.multipliers
        misfit = np.abs(problem.counts - problem.n * problem.infer(theta).means) / problem.scales
        found.append((truth.kl(problem.field(theta, None)), float(misfit.mean())))
    return found


STUDIES: Mapping[str, Callable[..., pd.DataFrame]] = {
    "divergence_chain": divergence_chain,
    "divergence_er": divergence_er,
    "divergence_third": divergence_third,
    "marginal_error": marginal_error,
    "projection": projection,
    "regularisation": regularisation,
    "scatter": scatter,
    "stopping": stopping,
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
    >>> from dpbook.experiments.graphical_study import load
    >>> sorted(load("stopping")["start"].unique())
    ['flat', 'noise-aware ridge', 'ridge 1']

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    return load_table(name, STUDIES, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run studies and write their tables: ``python -m dpbook.experiments.graphical_study stopping``.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; by default those of the process.

    Examples
    --------
    >>> from dpbook.experiments.graphical_study import main
    >>> main(["unknown"])
    Traceback (most recent call last):
    ...
    SystemExit: 2

    Explained in :doc:`/book/graphical-models/collective-graphical-models`.
    """
    run_command(arguments, STUDIES, folder=RESULTS, seed=SEED, doc=main.__doc__)


if __name__ == "__main__":
    main()
