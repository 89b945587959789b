"""What batching and integrating out save for noisy exponential families: ratios, all measured in one run.

Run with ``python benchmarks/expfam.py`` (half a minute). Two questions. How much faster per chain is a calibration
study of 300 noisy counts, 7,000 sweeps each, as one batch than one release at a time? And how much faster is the
collapsed posterior than a Gibbs run that is as accurate? Ratios, not seconds, are what to compare between machines.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from dpbook import expfam
from dpbook.expfam import (
    Beta,
    Binomial,
    Exponential,
    Gamma,
    HalfLineDensity,
    gibbs_start,
    gibbs_step,
    posterior_density,
)
from dpbook.sampling import run


def sweep_time(releases: int, sweeps: int, *, leap: bool) -> float:
    """Return seconds for ``sweeps`` sweeps over one chain for each of ``releases`` noisy counts (n = 100, ε = 0.1)."""
    rng = np.random.default_rng(1)
    noisy = 50 + rng.laplace(scale=10.0, size=(releases, 1))
    problem = (Binomial(), Beta(10, 10), noisy, np.full(releases, 100.0), np.full(releases, 10.0))
    step = gibbs_step(*problem, outside="clip", laplace=True, leap=leap)
    state = gibbs_start(*problem, 1, rng)
    begun = time.perf_counter()
    run(step, state, per_chain=sweeps, burn_in=0, keep=["theta"], rng=rng)
    return time.perf_counter() - begun


def batched_study(sweeps: int) -> None:
    """Compare one release at a time with a batch of 300, with and without leaps."""
    print(f"A calibration study of yes-or-no counts: 300 releases, {sweeps} sweeps")
    print(f"{'sampler':>12} {'one at a time':>26} {'in one batch':>26} {'ratio':>8} {'study':>9}")
    for name, leap in (("plain Gibbs", False), ("with leaps", True)):
        sweep_time(1, 50, leap=leap)
        single = sweep_time(1, sweeps // 4, leap=leap) / (sweeps // 4)
        whole = sweep_time(300, sweeps, leap=leap)
        each = whole / (300 * sweeps)
        print(
            f"{name:>12} {1e6 * single:>14.1f} µs / sweep {1e6 * each:>14.2f} µs / sweep "
            f"{single / each:>8.0f} {whole:>7.1f} s"
        )


def collapsed_against_gibbs() -> None:
    """Compare times at equal accuracy: a Gibbs run long enough that its mean is good to 1 % of the posterior sd.

    That takes 10,000 nearly independent draws. Errors are in posterior sds: of the binomial against its exact
    posterior, so that they hold the error of the normal approximation too; of the exponential against a finer grid.
    """
    rng = np.random.default_rng(2)
    models: list[tuple[str, expfam.Family, Any, Any]] = [
        ("binomial", Binomial(), Beta(10, 10), rng.integers(0, 2, 1000)),
        ("exponential", Exponential(0.0063, 1.1717), Gamma(8, 2), rng.exponential(0.25, 1000)),
    ]
    print("\nThe collapsed posterior against Gibbs at equal accuracy (n = 1000, ε = 0.1; errors of the mean, in sds)")
    print(f"{'family':>12} {'collapsed':>12} {'error':>9} {'gibbs':>10} {'error':>9} {'ratio':>8}")
    for name, family, prior, x in models:
        release = expfam.release(x, family, epsilon=0.1, rng=rng)
        expfam.infer(release, prior, method="gibbs", draws=40, rng=rng)  # warm up
        begun = time.perf_counter()
        for _ in range(20):
            density = posterior_density(release, prior, method="collapsed")
            mean, sd = density.mean, density.sd
        collapsed = (time.perf_counter() - begun) / 20
        reference = posterior_density(release, prior).mean if name == "binomial" else finer_mean(density)
        begun = time.perf_counter()
        drawn = expfam.infer(release, prior, method="gibbs", draws=10_000, rng=rng).mean("theta")
        gibbs = time.perf_counter() - begun
        print(
            f"{name:>12} {1e3 * collapsed:>9.1f} ms {abs(mean - reference) / sd:>9.0e} {gibbs:>8.2f} s "
            f"{abs(drawn - reference) / sd:>9.0e} {gibbs / collapsed:>8.0f}"
        )


def finer_mean(density: Any) -> float:
    """Return the mean of the same density on ten times as many cells."""
    return HalfLineDensity(density._of_parameter, points=4000).mean


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sweeps", type=int, default=7000, help="sweeps of the calibration study")
    batched_study(parser.parse_args().sweeps)
    collapsed_against_gibbs()


if __name__ == "__main__":
    main()
