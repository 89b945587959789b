"""What batching saves for posteriors of many partitions, and what a stream costs in memory: all measured in one run.

Run with ``python benchmarks/aggregate.py`` (a minute). Three questions. How much faster are the posteriors of 1,000
partitions in one batch than a statsmodels fit, or a NumPy fit, for each? How long do 200 releases of 100,000 records
take? And does memory grow with the number of streamed records? Ratios, not seconds, are what to compare between
machines.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import statsmodels.api as sm
from scipy import special

from dpbook.aggregate import ConjugateRegression, Flat, Moments, release_probability

RECORDS, PARTITIONS, CUTOFF = 100_000, 1000, 2.0
MODEL = ConjugateRegression(prior=Flat())


def simulate(rng: np.random.Generator) -> np.ndarray:
    """Return covariate and response of one data set, (records, 2)."""
    x = rng.standard_normal(RECORDS)
    return np.column_stack([x, 1 + 2 * x + rng.standard_normal(RECORDS)])


def by_statsmodels(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return each partition's posterior probability under a flat prior, by a least-squares fit each."""
    found = np.empty(len(x))
    for j in range(len(x)):
        fit = sm.OLS(y[j], sm.add_constant(x[j])).fit()
        found[j] = special.stdtr(fit.df_resid, (CUTOFF - fit.params[1]) / fit.bse[1])
    return found


def by_numpy_loop(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the same by normal equations, one partition after another."""
    found = np.empty(len(x))
    for j in range(len(x)):
        design = np.column_stack([np.ones_like(x[j]), x[j]])
        inverse = np.linalg.inv(design.T @ design)
        beta = inverse @ (design.T @ y[j])
        residual = y[j] - design @ beta
        df = len(residual) - 2
        found[j] = special.stdtr(df, (CUTOFF - beta[1]) / np.sqrt(residual @ residual / df * inverse[1, 1]))
    return found


def batched(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the same for all partitions at once, as a release computes them."""
    return MODEL.probability(Moments.of_groups([x, y]), CUTOFF, prior_power=1 / len(x))


def cpu_seconds(task: Callable[[], object], repeats: int) -> float:
    """Return the least CPU time of a task over a few repeats, after one that warms up."""
    task()
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        task()
        times.append(time.process_time() - begun)
    return min(times)


def compare_fits() -> None:
    """Compare three ways to the same 1,000 probabilities, given the partitions."""
    data = simulate(np.random.default_rng(1))
    x, y = (np.ascontiguousarray(data[:, k].reshape(PARTITIONS, -1)) for k in (0, 1))
    assert np.allclose(by_statsmodels(x[:50], y[:50]), batched(x[:50], y[:50]))
    assert np.allclose(by_numpy_loop(x[:50], y[:50]), batched(x[:50], y[:50]))
    ours = cpu_seconds(lambda: batched(x, y), 20)
    print(f"Posterior probabilities of {PARTITIONS} partitions of {RECORDS // PARTITIONS} records (CPU time)")
    print(f"{'one batch':>22} {1e3 * ours:>8.2f} ms")
    for name, task in (("statsmodels each", by_statsmodels), ("NumPy loop", by_numpy_loop)):
        theirs = cpu_seconds(lambda task=task: task(x, y), 3)
        print(f"{name:>22} {1e3 * theirs:>8.2f} ms  {theirs / ours:>6.0f} times")


def whole_releases(replications: int) -> None:
    """Time releases from the array to the noisy mean: a new random split, all posteriors, noise."""
    rng = np.random.default_rng(2)
    data = simulate(rng)

    def release() -> None:
        release_probability(data, CUTOFF, posterior=MODEL, partitions=PARTITIONS, epsilon=0.25, rng=rng)

    release()
    begun = time.process_time()
    for _ in range(replications):
        release()
    ours = time.process_time() - begun
    labels = rng.permutation(RECORDS).reshape(PARTITIONS, -1)
    split = cpu_seconds(lambda: by_statsmodels(data[labels, 0], data[labels, 1]), 2)
    print(f"\n{replications} releases of {RECORDS} records, random split included: {ours:.2f} s of CPU")
    theirs = replications * split
    print(f"a statsmodels fit per partition would take {theirs:.0f} s, {theirs / ours:.0f} times")


def stream(records: int) -> Iterator[np.ndarray]:
    """Yield chunks of simulated records."""
    rng = np.random.default_rng(3)
    for start in range(0, records, 50_000):
        x = rng.standard_normal(min(50_000, records - start))
        yield np.column_stack([x, 1 + 2 * x + rng.standard_normal(len(x))])


def memory_of(records: int) -> None:
    """Release from a stream and print the peak memory of this process, in megabytes, and the CPU time."""
    import resource

    begun = time.process_time()
    rng = np.random.default_rng(4)
    release_probability(
        stream(records), CUTOFF, posterior=MODEL, partitions=PARTITIONS, epsilon=0.25, n=records, rng=rng
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{records:>12,} {peak:>10.0f} MB {time.process_time() - begun:>8.1f} s")


def main() -> None:
    """Run all comparisons; each stream in a process of its own, so that peaks do not mix."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--replications", type=int, default=200, help="releases to time")
    parser.add_argument("--stream", type=int, default=None, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.stream is not None:
        memory_of(chosen.stream)
        return
    compare_fits()
    whole_releases(chosen.replications)
    print(f"\nPeak memory of a release from a stream, {PARTITIONS} partitions")
    for records in (100_000, 1_000_000, 10_000_000):
        subprocess.run([sys.executable, __file__, "--stream", str(records)], check=True)


if __name__ == "__main__":
    main()
