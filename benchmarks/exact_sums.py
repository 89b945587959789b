"""What exactness costs: fixed-point sums of clipped records against a plain float sum of the same, in one run.

Run with ``python benchmarks/exact_sums.py``. Also prints the peak memory of a stream of chunks, flat in n.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from dpbook.records import exact_sum, grid_unit


def clipped(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(rows, 0.0, 1.0)


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best


def stream(chunks: int, rows: int = 100_000) -> Iterator[NDArray[np.float64]]:
    rng = np.random.default_rng(1)
    for _ in range(chunks):
        yield rng.random(rows)


def peak_megabytes(chunks: int) -> float:
    tracemalloc.start()
    exact_sum(stream(chunks), clipped, unit=grid_unit(1.0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    records = np.random.default_rng(1).random(1_000_000)
    plain = seconds(lambda: clipped(records).sum())
    exact = seconds(lambda: exact_sum(records, clipped, unit=grid_unit(1.0)))
    print(
        f"10⁶ records: exact sum {exact / plain:.1f} times a float sum ({1e9 * exact / records.size:.1f} ns a record)"
    )
    for chunks in (10, 100):
        print(f"stream of {chunks * 100_000:>10,} records: peak memory {peak_megabytes(chunks):.1f} MB")


if __name__ == "__main__":
    main()
