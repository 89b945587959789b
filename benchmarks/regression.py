"""What the samplers of private regression cost: ratios, all measured in one run, in processor time.

Run with ``python benchmarks/regression.py`` (some minutes; ``--skip pymc`` leaves out the slowest part). Five
questions. How much cheaper is a chain-iteration in a batch than alone? How many effective draws a second does the
collapsed sampler make, against PyMC's No-U-Turn sampler on a latent record for everyone? Does cost depend on n? How
long do posteriors of 3,108 small areas take in one call? And how does cost grow with the number of covariates d?
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from dpbook import Posterior, Release, regression
from dpbook.posterior import ConvergenceWarning
from dpbook.regression.collapsed import CollapsedTarget
from dpbook.regression.exact import ExactTarget
from dpbook.regression.parametrisation import Parametrisation
from dpbook.regression.task import task_of

PARTS = ("batch", "pymc", "n", "tracts", "d")


def releases_of(n: np.ndarray, epsilon: float, d: int = 1, seed: int = 1) -> list[Release]:
    """Return releases of simulated data on the bounds [-1, 1], ``len(n)`` of them."""
    rng, found = np.random.default_rng(seed), []
    for size in map(int, n):
        x = rng.normal(0, 0.3, size=(size, d))
        y = 0.5 * x.sum(axis=1) / d + rng.normal(0, 0.15, size=size)
        found.append(regression.release(x, y, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=epsilon, rng=rng))
    return found


def prior_of(d: int = 1) -> regression.NormalInverseGamma:
    """Return a prior under which such data are likely."""
    return regression.NormalInverseGamma(np.zeros(d + 1), 0.1, 5.0, 0.1)


def seconds(action: object, *args: object, **options: object) -> float:
    """Return the processor time that a call takes."""
    begun = time.process_time()
    action(*args, **options)  # type: ignore[operator]
    return time.process_time() - begun


def chain_iteration(releases: list[Release], short: int, long: int) -> float:
    """Return seconds for one iteration of one chain of "collapsed", the start not counted."""
    first, second = (
        seconds(regression.infer, releases, prior_of(), chains=1, draws=1, warm_up=each, rng=np.random.default_rng(1))
        for each in (short, long)
    )
    return (second - first) / (long - short) / len(releases)


def batch() -> None:
    """Compare a chain alone with two thousand at once."""
    alone = chain_iteration(releases_of(np.full(1, 100), 1.0), 50, 450)
    together = chain_iteration(releases_of(np.full(2000, 100), 1.0), 20, 100)
    print("A chain-iteration of the collapsed sampler, d = 1")
    print(f"alone {1e6 * alone:.0f} µs, in a batch of 2,000 {1e6 * together:.1f} µs: {alone / together:.0f} times")


def effective(posterior: Posterior, elapsed: float) -> tuple[float, float]:
    """Return effective draws of the worst parameter, and these a second."""
    least = min(float(np.min(posterior.ess(name))) for name in posterior.draws)
    return least, least / elapsed


def pymc() -> None:
    """Compare effective draws a second at n = 100 with PyMC's sampler on individual records."""
    release = releases_of(np.full(1, 100), 1.0)[0]
    samplers = {
        "collapsed": {"draws": 4000, "chains": 20},
        "exact": {"draws": 4000, "chains": 20},
        "individual": {"draws": 600, "chains": 2, "warm_up": 300},
    }
    print("\nEffective draws a second, n = 100, ε = 1, warm-up counted")
    rates = {}
    for name, options in samplers.items():
        begun = time.process_time()
        posterior = regression.infer(release, prior_of(), method=name, rng=np.random.default_rng(1), **options)
        elapsed = time.process_time() - begun
        least, rates[name] = effective(posterior, elapsed)
        print(f"{name:>11} {least:>7.0f} effective draws in {elapsed:>6.1f} s: {rates[name]:>7.1f} a second")
    for name in ("collapsed", "exact"):
        print(f"{name} over individual: {rates[name] / rates['individual']:.0f} times")


def number_of_records() -> None:
    """Time a default posterior for growing n."""
    print("\nA default posterior (20 chains, 4,000 draws), d = 1, ε = 1")
    for n in (100, 10_000, 1_000_000):
        release = releases_of(np.full(1, n), 1.0)[0]
        taken = seconds(regression.infer, release, prior_of(), rng=np.random.default_rng(1))
        print(f"n = {n:>9,}: {taken:.1f} s")


def tracts() -> None:
    """Time the posteriors of 3,108 areas of 20 to 446 people in one call."""
    rng = np.random.default_rng(2)
    releases = releases_of(rng.integers(20, 447, size=3108), 8.0)
    elapsed = seconds(regression.infer, releases, prior_of(), rng=rng, draws=1000, chains=4)
    print(f"\n3,108 areas of 20 to 446 people, ε = 8, 4 chains of 250 draws each, in one call: {elapsed:.0f} s")


def dimensions(largest: int) -> None:
    """Time one evaluation of log density and gradient for growing d, and the power of d by which it grows."""
    print("\nOne evaluation of log density and gradient, four chains, by number of covariates")
    print(f"{'d':>4} {'statistics':>11} {'collapsed':>13} {'power of d':>11} {'exact':>13} {'power of d':>11}")
    before: tuple[int, float, float] | None = None
    for d in (1, 2, 3, 5, 10, 20, 30, 50):
        if d > largest:
            break
        task = task_of(releases_of(np.full(1, 1000), 10.0, d), prior_of(d))
        space = Parametrisation.of(task, 4)
        position = np.zeros((space.dim, 4))
        variance = np.ones((task.layout.size, 4))
        cost = []
        for target in (CollapsedTarget(task, 4), ExactTarget(task, 4)):
            repeats = 200 if d <= 5 else 20 if d <= 10 else 2
            begun = time.process_time()
            for _ in range(repeats):
                target.evaluate(space, position, variance)
            cost.append((time.process_time() - begun) / repeats / 4)
        powers = ["", ""]
        if before:
            powers = [
                f"{np.log(now / then) / np.log(d / before[0]):.1f}" for now, then in zip(cost, before[1:], strict=True)
            ]
        shown = [f"{1e3 * each:.3f} ms" for each in cost]
        print(f"{d:>4} {task.layout.size:>11} {shown[0]:>13} {powers[0]:>11} {shown[1]:>13} {powers[1]:>11}")
        before = (d, cost[0], cost[1])


def main() -> None:
    """Run all comparisons that are not skipped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--skip", nargs="*", choices=PARTS, default=[], help="parts to leave out")
    parser.add_argument("--largest", type=int, default=50, help="largest number of covariates")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    actions = (batch, pymc, number_of_records, tracts, lambda: dimensions(arguments.largest))
    for name, action in zip(PARTS, actions, strict=True):
        if name not in arguments.skip:
            action()


if __name__ == "__main__":
    main()
