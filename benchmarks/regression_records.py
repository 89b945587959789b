"""What a latent record for everyone costs: one iteration of one chain at n = 1000, in a batch of a hundred.

Run with ``python benchmarks/regression_records.py`` (some seconds). The comparison is 8.6 ms, what an iteration of
another implementation, in R, was measured to take at this n. It is processor time, so other work does not count.
"""

from __future__ import annotations

import time

import numpy as np

from dpbook import regression
from dpbook.latent_records import Sweep
from dpbook.regression.latent import LatentRegression
from dpbook.regression.task import task_of

N, CHAINS, SWEEPS = 1000, 100, 20
ELSEWHERE = 8.6e-3  # seconds


def main() -> None:
    """Time the sweeps of a hundred chains, clipping included."""
    rng = np.random.default_rng(1)
    releases = []
    for _ in range(CHAINS):
        x = rng.normal(0, 0.3, N)
        y = 0.5 * x + rng.normal(0, 0.15, N)
        box = {"x_bounds": (-1, 1), "y_bounds": (-0.4, 0.4)}
        releases.append(regression.release(x, y, **box, epsilon=1.0, rng=rng))
    task = task_of(releases, None, method="records")
    low, high = (each[:, None] for each in task.box)
    model = LatentRegression(task.layout, low, high)
    sums = task.sums.repeated(1)
    sweep = Sweep(model, sums)
    state = sweep.start(model.start(sums), rng)
    state, _ = sweep(rng, state)
    begun = time.process_time()
    for _ in range(SWEEPS):
        state, info = sweep(rng, state)
    each = (time.process_time() - begun) / SWEEPS / CHAINS
    print(f"{1e3 * each:.2f} ms per chain and iteration, records accepted {info.acceptance.mean():.2f}")
    print(f"{ELSEWHERE / each:.0f} times as fast as 8.6 ms")


if __name__ == "__main__":
    main()
