"""What inference and learning on clique tables cost, as ratios within one run: `python benchmarks/graphical.py`.

- One pass of belief propagation on ten variables with twenty states, against the same pass written as a loop over
  table entries; and a batch of models against one at a time.
- Collective graphical models against the naive fit (the source reports 4 to 15 times naive), for each graph.
- The package `mbi` (Private-PGM, extra `compare`) on the same noisy tables of a chain, run until its L1 distance to
  them is that of our fit: its results waited for, its compilation stated apart. Skipped with a message where `mbi` is
  not installed.
"""

from __future__ import annotations

import importlib
import itertools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpbook.graphical import fit, tables_of
from dpbook.graphical.junction import JunctionTree

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book" / "graphical-models"))
population: Any = importlib.import_module("study").population

GAP = 0.02  # of an E-step, in nats a cell: the default


def best_of(action: Callable[[], Any], repeats: int) -> float:
    """Return the CPU time of the quickest of several runs."""
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        action()
        times.append(time.process_time() - begun)
    return min(times)


def chain_by_loops(tables: list[np.ndarray]) -> float:
    """Return the log partition function of a chain, entry by entry: what vectorised inference avoids."""
    message = [0.0] * tables[0].shape[0]
    for table in tables:
        rows, columns = table.shape
        new = []
        for j in range(columns):
            total = 0.0
            for i in range(rows):
                total += math.exp(message[i] + float(table[i, j]))
            new.append(math.log(total))
        message = new
    return math.log(sum(math.exp(each) for each in message))


def propagation() -> None:
    rng = np.random.default_rng(0)
    cliques = list(itertools.pairwise(range(10)))
    tree = JunctionTree([20] * 10, cliques)
    tables = [rng.normal(size=(1, 20, 20)) for _ in cliques]
    many = [np.repeat(table, 25, axis=0) for table in tables]
    assert abs(chain_by_loops([t[0] for t in tables]) - tree.infer(tables).log_partition[0]) < 1e-9
    one = best_of(lambda: tree.infer(tables), 50)
    # The loop computes one message an edge; a full pass has two and the marginals, four times the work at least.
    loop = 4 * best_of(lambda: chain_by_loops([t[0] for t in tables]), 5)
    batch = best_of(lambda: tree.infer(many), 20)
    print("Belief propagation, chain of 10 variables with 20 states")
    print(f"  vectorised {1e3 * one:.2f} ms; entry by entry {1e3 * loop:.1f} ms: {loop / one:.0f} times")
    print(f"  25 models together {1e3 * batch:.2f} ms: {25 * one / batch:.1f} times the throughput of one at a time")


def learning() -> None:
    print("\nLearning, n = 10,000, ε = 1, 10 states (CPU time; naive with the source's ridge, and with ridge 100)")
    print(f"{'graph':>8} {'naive 1e-4':>12} {'naive 100':>12} {'cgm':>10} {'penalised':>10} {'cgm / naive 100':>16}")
    for kind in ("chain", "er", "third"):
        world = population(kind, 10, 10_000, index=0)
        noisy = world.release(1.0, np.random.default_rng(1))
        untuned = best_of(lambda y=noisy: fit(y, method="naive"), 1)
        naive = best_of(lambda y=noisy: fit(y, method="naive", ridge=100.0), 3)
        cgm = best_of(lambda y=noisy: fit(y), 3)
        penalised = best_of(lambda y=noisy: fit(y, method="penalised"), 1)
        print(
            f"{kind:>8} {untuned:>10.2f} s {naive:>10.3f} s {cgm:>8.3f} s {penalised:>8.2f} s {cgm / naive:>16.1f}",
            flush=True,
        )


def against_mbi() -> None:
    try:
        import jax

        jax.config.update("jax_enable_x64", True)
        import mbi
    except ImportError:
        print("\nmbi is not installed (pip install 'dpbook[compare]'): comparison skipped")
        return
    world = population("chain", 10, 10_000, index=0)
    noisy = world.release(1.0, np.random.default_rng(1))
    tables = tables_of(noisy)

    def misfit(means: np.ndarray) -> float:
        return float(np.abs(tables.counts - tables.n * means).sum())

    ours = fit(noisy, gap=GAP)
    target = misfit(np.concatenate([ours.marginal(c).ravel() for c in world.cliques]))
    mine = best_of(lambda: fit(noisy, gap=GAP), 5)
    domain = mbi.Domain(tuple(world.domain), tuple(world.domain.values()))
    sd = math.sqrt(2) * next(iter(noisy.scale.values()))
    measured = [
        mbi.LinearMeasurement(table.ravel(), clique, stddev=sd)
        for clique, table in zip(world.cliques, noisy.values.values(), strict=True)
    ]
    print(f"\nPrivate-PGM on the same tables, to the same L1 distance ({target:.0f}); ours {1e3 * mine:.0f} ms")
    print("  CPU time; mbi's results are waited for, and what compiling its program takes is stated apart")
    for iterations in (50, 100, 150, 200, 400, 800, 1600):

        def estimate(k: int = iterations) -> Any:
            model = mbi.estimation.MirrorDescent().estimate(domain, measured, known_total=noisy.n, iters=k)
            tables = [model.project(clique).datavector() for clique in world.cliques]
            return jax.block_until_ready(tables)

        begun = time.process_time()
        tables_found = estimate()
        cold = time.process_time() - begun
        warm = best_of(estimate, 3)
        means = np.concatenate([np.asarray(each) / noisy.n for each in tables_found])
        print(
            f"  mbi, {iterations} iterations: {misfit(means):.0f}; {1e3 * warm:.0f} ms, compiling {cold - warm:.1f} s; "
            f"ours / mbi {mine / warm:.2f}",
            flush=True,
        )
        if misfit(means) <= target:
            return


if __name__ == "__main__":
    propagation()
    learning()
    against_mbi()
