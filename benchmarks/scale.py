"""What very many releases cost: memory, all cores, a Dask client, tables of a million cells, and the import.

Run with ``python benchmarks/scale.py`` on a machine that does nothing else (some minutes), or name the parts to run:
``python benchmarks/scale.py import cells``. Processor time is that of this process and of all that it started; times by
the clock mean something on idle cores only.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dpbook import Release, graphical, regression


def releases_of(count: int) -> list[Release]:
    """Return releases of one line each, 200 records, epsilon 5."""
    rng, found = np.random.default_rng(1), []
    for _ in range(count):
        x = rng.normal(0, 0.3, size=200)
        y = 0.5 * x + rng.normal(0, 0.15, size=200)
        found.append(regression.release(x, y, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=5.0, rng=rng))
    return found


def clock(label: str, action: Callable[[], Any]) -> float:
    """Print how long an action takes by the clock, and return it."""
    begun = time.perf_counter()
    action()
    taken = time.perf_counter() - begun
    print(f"  {label:<44} {taken:7.1f} s by the clock", flush=True)
    return taken


def imports() -> None:
    """Time ``import dpbook`` in fresh processes: the quickest of five."""
    code = "import time; t = time.process_time(); import dpbook; print(time.process_time() - t)"
    taken = min(float(subprocess.run([sys.executable, "-c", code], capture_output=True).stdout) for _ in range(5))
    print(f"import dpbook: {taken:.2f} s of processor time")


def infer(releases: list[Release], **how: Any) -> Any:
    prior = regression.NormalInverseGamma([0, 0], 0.1, 5.0, 0.1)
    return regression.infer(releases, prior, draws=1000, rng=np.random.default_rng(1), **how)


def many(count: int) -> None:
    """Infer from very many releases in one call that keeps summaries, and say what memory that took."""
    releases = releases_of(count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begun = time.process_time()
    kept = infer(releases, keep="summary")
    taken, peak = time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    draws = count * 1000 * 3 * 8 / 2**20
    print(f"\n{len(kept):,} posteriors of 1,000 draws in one call, keep='summary': {taken:.0f} s of processor time,")
    print(
        f"  peak memory {peak:.0f} MiB, of which {before:.0f} before it began; the draws would be {draws:.0f} MiB more"
    )


def cores() -> None:
    """Compare one batch, blocks on one and on all cores, and a Dask client with default workers."""
    releases = releases_of(600)
    print(f"\n600 releases, 1,000 draws each; {os.cpu_count()} cores")
    whole = clock("one batch", lambda: infer(releases))
    infer(releases, n_jobs=-1)  # starts the processes
    shared = clock("n_jobs=-1", lambda: infer(releases, n_jobs=-1))
    print(f"  {whole / shared:.2f} times as fast")
    try:
        import distributed
    except ImportError:
        print("  distributed is not installed (pip install 'dpbook[scale]'): Dask skipped")
        return
    with distributed.LocalCluster(dashboard_address=None) as cluster, distributed.Client(cluster) as client:
        infer(releases, n_jobs=client)
        clustered = clock("n_jobs=client, default workers", lambda: infer(releases, n_jobs=client))
        print(f"  {whole / clustered:.2f} times as fast")


def cells() -> None:
    """Release a table of a million cells with real noise."""
    print("\nA table of 1,000,000 cells, real noise")
    table = np.random.default_rng(1).poisson(3.0, size=(1000, 1000))
    domain = {"a": 1000, "b": 1000}
    graphical.release(table[:2, :2], {"a": 2, "b": 2}, [("a", "b")], epsilon=1.0)  # loads OpenDP
    begun = time.process_time()
    clock("graphical.release", lambda: graphical.release(table, domain, [("a", "b")], epsilon=1.0))
    print(f"  {time.process_time() - begun:.1f} s of processor time, on all cores together")


def main() -> None:
    """Run the parts that were named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help="of: import, many, cores, cells; all by default")
    parser.add_argument("--count", type=int, default=10_000, help="how many releases are many")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    actions = {"import": imports, "many": lambda: many(arguments.count), "cores": cores, "cells": cells}
    for name in arguments.parts or actions:
        actions[name]()


if __name__ == "__main__":
    main()
