"""How much a batch saves: the same sampler advanced one chain at a time and three hundred at once, in one run.

Run with ``python benchmarks/batched_sampling.py``. Ratios, not seconds, are what to compare between machines.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook.latent_noise import draw_noise_variance, draw_statistic
from dpbook.sampling import run


class State(NamedTuple):
    """Chains of the noise-aware sampler for a noisy yes-or-no count, under the normal approximation of the count."""

    theta: NDArray[np.float64]
    count: NDArray[np.float64]


def sampler(noisy: float, n: int, epsilon: float):  # type: ignore[no-untyped-def]
    """Return a Gibbs step for (theta, count) given a noisy count, a uniform prior and the Laplace mechanism."""

    def step(rng: np.random.Generator, state: State) -> tuple[State, None]:
        variance = draw_noise_variance(noisy - state.count, 1 / epsilon, rng)
        spread = n * state.theta * (1 - state.theta)
        count = draw_statistic(n * state.theta, spread, noisy, variance, rng)
        count = np.clip(count, 0.0, n)
        return State(rng.beta(1 + count, 1 + n - count), count), None

    return step


def microseconds_per_chain_iteration(chains: int, iterations: int) -> float:
    rng = np.random.default_rng(1)
    start = State(rng.random(chains), np.full(chains, 30.0))
    begun = time.perf_counter()
    run(sampler(31.0, 100, 0.1), start, per_chain=iterations, burn_in=0, rng=rng)
    return 1e6 * (time.perf_counter() - begun) / (chains * iterations)


def main() -> None:
    microseconds_per_chain_iteration(10, 10)  # warm up
    single = microseconds_per_chain_iteration(1, 2000)
    print(f"{'chains':>8} {'µs per chain-iteration':>24} {'speed-up over one chain':>24}")
    print(f"{1:>8} {single:>24.2f} {1:>24.1f}")
    for chains in (10, 100, 300, 3000):
        cost = microseconds_per_chain_iteration(chains, 500)
        print(f"{chains:>8} {cost:>24.2f} {single / cost:>24.1f}")


if __name__ == "__main__":
    main()
