"""The studies of chapter 5 on simulated graphs, and a list of all its studies; other topics are in modules beside this.

Graphs have ten variables of ten or twenty states; the potentials of every edge are the logarithms of a flat Dirichlet
draw, as in the source. Trials are nested: five populations, each with its own potentials, and releases of each. Studies
measure methods; they publish nothing and spend no budget.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import study_hidden_states
import study_mobility
import study_people
from numpy.typing import NDArray

from dpbook import Release, graphical
from dpbook.graphical import MarkovRandomField, chain, fit, fit_nonprivate, noise_aware_ridge, release, tables_of
from dpbook.sensitivity import histogram
from dpbook.studies import Study, cell_rng

Array = NDArray[np.float64]

SEED = 50
NODES = 10
GRAPHS = ("chain", "third", "er")
EDGE_PROBABILITY = 0.25  # of the Erdős–Rényi graphs, which are redrawn until connected and of treewidth 3 or less
RIDGES = (1e-4, 1.0, 10.0, 100.0, 1000.0)
POPULATIONS = 5
STATES = (10, 20)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
EPSILONS = (0.1, 1.0, 10.0)
GRADIENTS: Mapping[str, Sequence[float]] = {
    "learning_rate": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    "clip": (1.0, 3.0),
    "sampling": (0.25,),
    "steps": (50, 200),
}
_NO_PENALTY = 0.5  # the ridge of the non-private fit: a normal prior of variance 1 on log-potentials


def draw_graph(kind: str, states: int, rng: np.random.Generator) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return domain and edges of a chain, of one with edges up to three steps apart, or of an Erdős–Rényi graph."""
    if kind not in GRAPHS:
        raise ValueError(f"kind must be one of {GRAPHS}, got {kind!r}")
    names = [f"x{i}" for i in range(NODES)]
    domain = dict.fromkeys(names, states)
    if kind != "er":
        return domain, chain(names, order=3 if kind == "third" else 1)
    while True:
        edges = [pair for pair in itertools.combinations(range(NODES), 2) if rng.random() < EDGE_PROBABILITY]
        if connected(edges) and treewidth(edges) <= 3:
            return domain, [(names[i], names[j]) for i, j in edges]


def connected(edges: Sequence[tuple[int, int]]) -> bool:
    """Say whether every variable can be reached from the first."""
    reached = {0}
    for _ in range(NODES):
        reached |= {v for edge in edges if reached & set(edge) for v in edge}
    return len(reached) == NODES


def treewidth(edges: Sequence[tuple[int, int]]) -> int:
    """Return the number of variables of the largest node of a junction tree, less one."""
    cliques = [(str(i), str(j)) for i, j in edges]
    flat = [np.zeros((2, 2)) for _ in cliques]
    tree: Any = MarkovRandomField({str(i): 2 for i in range(NODES)}, cliques, flat, inference="exact").engine
    return int(tree.treewidth)


class Population(NamedTuple):
    """A true field, records drawn from it, and their domain and edges."""

    truth: MarkovRandomField
    records: pd.DataFrame
    domain: dict[str, int]
    cliques: list[tuple[str, str]]

    def release(self, epsilon: float, rng: np.random.Generator) -> Release:
        """Return noisy tables of all edges."""
        return release(self.records, self.domain, self.cliques, epsilon=epsilon, rng=rng)


def population(kind: str, states: int, n: int, *, index: int, seed: int = SEED) -> Population:
    """Draw potentials, the same for every n, and n records."""
    rng = cell_rng(seed, "potentials", kind, states, index)
    domain, cliques = draw_graph(kind, states, rng)
    potentials = [np.log(rng.dirichlet(np.ones(states**2))).reshape(states, states) for _ in cliques]
    truth = MarkovRandomField(domain, cliques, potentials)
    return Population(truth, truth.sample(n, cell_rng(seed, "records", kind, states, index, n)), domain, cliques)


# ---------------------------------------------------------------------------------------------------------------------
# How far learned fields are from the truth

Measured = tuple[float, bool, float]  # divergence, whether the fit converged, seconds of processor time
Found = dict[tuple[str, float], list[Measured]]


def divergence(
    kind: str,
    states: int,
    n: int,
    epsilon: float,
    *,
    ridges: Sequence[float] = RIDGES,
    gradients_to: int = 100_000,
    trials: int,
    seed: int,
) -> pd.DataFrame:
    """Measure the divergence of the truth from learned fields (the source's Figure 3.4); trials are a multiple of five.

    For each method: the mean ``kl`` over trials and its standard error ``se`` between populations, the share of trials
    where the fit ``converged``, of those where it was ``worse`` than naive with the smallest ridge and where it
    ``beats`` the cell's best ridge, ``most``, the largest ratio of its divergence to that of naive with the smallest
    ridge in any trial, and CPU ``seconds`` per fit. Up to ``gradients_to`` records noisy gradients learn too, with
    delta 1/n and the settings of ``GRADIENTS`` that fit the first population's records best; that search costs privacy
    which is not counted, as in the source.
    """
    replicates = math.ceil(trials / POPULATIONS)
    iterations = 100 if kind == "third" and states == 20 else 200  # tables of 160,000 entries
    found: Found = {}
    settings: dict[str, Any] = {}
    for index in range(POPULATIONS):
        world = population(kind, states, n, index=index, seed=seed)
        rng = cell_rng(seed, "release", kind, states, n, epsilon, index)
        guess = _measured(world, partial(graphical.random_field, world.domain, world.cliques, rng=rng))
        found.setdefault(("random", math.nan), []).extend([guess] * replicates)
        found.setdefault(("non-private", math.nan), []).extend([_open_fit(world)] * replicates)
        if n <= gradients_to:
            of_gradients = cell_rng(seed, "gradients", kind, states, n, epsilon, index)
            settings = settings or _tuned(world, epsilon, of_gradients)
            learn = partial(_by_gradients, world, epsilon, settings, of_gradients)
            found.setdefault(("dp-sgd", math.nan), []).extend(_measured(world, learn) for _ in range(replicates))
        for _ in range(replicates):
            for key, fitting in _private_fits(world.release(epsilon, rng), ridges, iterations).items():
                found.setdefault(key, []).append(_measured(world, fitting))
    return _summarised(found, {"graph": kind, "states": states, "n": n, "epsilon": epsilon}, ridges)


def _private_fits(
    noisy: Release, ridges: Sequence[float], iterations: int
) -> dict[tuple[str, float], partial[MarkovRandomField]]:
    fits = {("naive", ridge): partial(_naive, noisy, ridge, iterations) for ridge in ridges}
    for method in ("cgm", "penalised"):
        fits[method, math.nan] = partial(fit, noisy, method=method, iterations=iterations)
    return fits


def _naive(noisy: Release, ridge: float, iterations: int) -> MarkovRandomField:
    """Fit naively; below a ridge of 0.01 the maximum is out of reach of any optimiser, and 60 steps towards it do."""
    return fit(noisy, method="naive", ridge=ridge, iterations=iterations if ridge >= 0.01 else 60)


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
    tried = graphical.tune_dpsgd_nonprivate(
        world.records, world.domain, world.cliques, epsilon=epsilon, grid=GRADIENTS, rng=rng
    )
    return {name: tried[name].tolist()[0] for name in GRADIENTS}


def _by_gradients(
    world: Population, epsilon: float, settings: dict[str, Any], rng: np.random.Generator
) -> MarkovRandomField:
    training = graphical.Training(**settings)
    noisy = graphical.release_dpsgd(
        world.records, world.domain, world.cliques, epsilon=epsilon, training=training, rng=rng
    )
    return graphical.field_of(noisy)


def _summarised(found: Found, cell: dict[str, Any], ridges: Sequence[float]) -> pd.DataFrame:
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
    return pd.DataFrame(rows)


# ---------------------------------------------------------------------------------------------------------------------
# What decides it


def marginal_error(n: int, epsilon: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Measure the squared error of a chain's marginals (the source's Figure 3.1), beside what Proposition 3 predicts.

    ``noisy``, ``learned`` (naive, ridge 1) and ``nonprivate`` errors, averaged over cells and over releases that five
    populations take in turn; what the proposition predicts with sensitivity two per table, ``predicted``, and as
    ``printed``.
    """
    errors = []
    for index in range(trials):
        world = population("chain", 10, n, index=index % POPULATIONS, seed=seed)
        noisy = world.release(epsilon, cell_rng(seed, "marginal error", n, epsilon, index))
        truth = np.stack([world.truth.marginal(clique) for clique in world.cliques])
        exact = np.stack(graphical.clique_tables(world.records, world.domain, world.cliques).tables)
        learned = fit(noisy, method="naive", ridge=1.0)
        model = np.stack([learned.marginal(clique) for clique in world.cliques])
        sampling = float((truth * (1 - truth)).mean()) / n
        noise = [2 * (tables / (n * epsilon)) ** 2 for tables in (histogram(len(truth)), len(truth))]
        seen = (np.stack(list(noisy.values.values())) / n, model, exact / n)
        errors.append([*(float(((each - truth) ** 2).mean()) for each in seen), *(sampling + each for each in noise)])
    names = ("noisy", "learned", "nonprivate", "predicted", "printed")
    means = np.mean(errors, axis=0).tolist()
    return pd.DataFrame([{"n": n, "epsilon": epsilon, **dict(zip(names, means, strict=True))}])


def _between(values: Sequence[float]) -> float:
    """Return the standard error of a mean over releases that five populations took in turn."""
    means = [np.mean(values[index::POPULATIONS]) for index in range(min(POPULATIONS, len(values)))]
    return float(np.std(means, ddof=1) / math.sqrt(len(means)))


def projection(
    n: int, *, states: int = 20, ridges: Sequence[float] = (10.0, 100.0), trials: int, seed: int
) -> pd.DataFrame:
    """Compare naive fits with and without projection on the simplex, epsilon 0.5 (the source's Figure 3.2)."""
    found: dict[tuple[float, bool], list[float]] = {}
    for index in range(trials):
        world = population("er", states, n, index=index % POPULATIONS, seed=seed)
        noisy = world.release(0.5, cell_rng(seed, "projection", n, index))
        for ridge, project in itertools.product(ridges, (True, False)):
            model = fit(noisy, method="naive", ridge=ridge, project=project, iterations=200)
            found.setdefault((ridge, project), []).append(world.truth.kl(model))
    return pd.DataFrame(
        {"n": n, "ridge": ridge, "project": project, "kl": np.mean(values), "se": _between(values)}
        for (ridge, project), values in found.items()
    )


def regularisation(
    n: int,
    epsilon: float,
    *,
    ridges: Sequence[float] = (0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0),
    trials: int,
    seed: int,
) -> pd.DataFrame:
    """Vary the ridge on chains, with and without privacy (the source's Figure 3.3); cgm and penalised need none.

    ``default_ridge`` is the noise-aware one at which cgm starts.
    """
    found: dict[tuple[str, float], list[float]] = {}
    start = 0.0
    for index in range(trials):
        world = population("chain", 10, n, index=index % POPULATIONS, seed=seed)
        noisy = world.release(epsilon, cell_rng(seed, "regularisation", n, epsilon, index))
        start = noise_aware_ridge(tables_of(noisy))
        for ridge in ridges:
            model = fit(noisy, method="naive", ridge=ridge, iterations=10_000)
            found.setdefault(("naive", ridge), []).append(world.truth.kl(model))
            model = fit_nonprivate(world.records, world.domain, world.cliques, ridge=ridge, tolerance=1e-6)
            found.setdefault(("non-private", ridge), []).append(world.truth.kl(model))
        for method in ("cgm", "penalised"):
            found.setdefault((method, math.nan), []).append(world.truth.kl(fit(noisy, method=method)))
    return pd.DataFrame(
        {"method": method, "ridge": ridge, "kl": np.mean(values), "se": _between(values), "default_ridge": start}
        for (method, ridge), values in found.items()
    )


def scatter(n: int, epsilon: float, *, states: int = 20, trials: int, seed: int) -> pd.DataFrame:
    """List true and learned marginals of three edges of Erdős–Rényi graphs, one graph per trial (Figure 3.5).

    ``naive`` has ridge 1e-4, ``naive best`` the noise-aware one.
    """
    tables = []
    for index in range(trials):
        world = population("er", states, n, index=index, seed=seed)
        noisy = world.release(epsilon, cell_rng(seed, "scatter", index))
        aware = noise_aware_ridge(tables_of(noisy))
        exact = fit_nonprivate(world.records, world.domain, world.cliques, ridge=_NO_PENALTY, tolerance=1e-6)
        models = {
            "truth": world.truth,
            "non-private": exact,
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


def stopping(n: int, epsilon: float, *, steps: int = 60, trials: int, seed: int) -> pd.DataFrame:
    """Follow EM on chains step by step from several starts: all its regularisation is the start and early stopping.

    After each step: the mean ``kl``, and ``misfit``, the L1 distance to the noisy tables over what the noise alone
    would give, b per cell.
    """
    rows: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for index in range(trials):
        world = population("chain", 10, n, index=index, seed=seed)
        noisy = world.release(epsilon, cell_rng(seed, "stopping", n, epsilon, index))
        tables = tables_of(noisy)
        starts = {
            "flat": np.zeros(tables.counts.size),
            "noise-aware ridge": _start(noisy, noise_aware_ridge(tables)),
            "ridge 1": _start(noisy, 1.0),
        }
        for name, theta in starts.items():
            for step, both in enumerate(_followed(tables, world.truth, theta, steps)):
                rows.setdefault((name, step), []).append(both)
    found = []
    for (name, step), values in rows.items():
        kl, misfit = np.mean(values, axis=0).tolist()
        found.append({"n": n, "epsilon": epsilon, "start": name, "step": step, "kl": kl, "misfit": misfit})
    return pd.DataFrame(found)


def _start(noisy: Release, ridge: float) -> Array:
    model = fit(noisy, method="naive", ridge=ridge)
    return np.concatenate([table.ravel() for table in model.potentials])


def _followed(
    tables: graphical.NoisyTables, truth: MarkovRandomField, theta: Array, steps: int
) -> list[tuple[float, float]]:
    found, multipliers = [], None
    for step in range(steps + 1):
        if step:
            inferred = graphical.expectation(tables, theta, start=multipliers, tolerance=1e-3 * theta.size)
            theta, multipliers = theta + inferred.multipliers / tables.copies, inferred.multipliers
        misfit = np.abs(tables.counts - tables.n * tables.infer(theta).means) / tables.scales
        found.append((truth.kl(tables.field(theta, None)), float(misfit.mean())))
    return found


def _grid(kind: str) -> list[tuple[Any, ...]]:
    return [(kind, *cell) for cell in itertools.product(STATES, SIZES, EPSILONS)]


STUDIES: dict[str, Study] = {
    **{f"divergence_{kind}": Study(divergence, _grid(kind), trials=25, seed=SEED) for kind in GRAPHS},
    "marginal_error": Study(marginal_error, list(itertools.product(SIZES, EPSILONS)), trials=25, seed=SEED),
    "projection": Study(projection, [(n,) for n in SIZES], trials=25, seed=SEED),
    "regularisation": Study(regularisation, [(10_000, 0.1)], trials=25, seed=SEED),
    "scatter": Study(scatter, [(100_000, 0.5)], trials=1, seed=SEED),
    "stopping": Study(stopping, [(1_000, 1.0), (10_000, 1.0), (10_000, 0.1)], trials=5, seed=SEED),
    **study_mobility.STUDIES,
    **study_people.STUDIES,
    **study_hidden_states.STUDIES,
}
