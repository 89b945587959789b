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

from dpbook.posterior import ConvergenceWarning, Posterior
from dpbook.regression import collapsed, exact, individual
from dpbook.regression._unconstrained import Unconstrained
from dpbook.regression.collapsed import CollapsedTarget
from dpbook.regression.exact import ExactTarget
from dpbook.regression.problem import CovariatePrior, Draws, Layout, ParameterPrior, Problem
from dpbook.sensitivity import second_moments

PARTS = ("batch", "pymc", "n", "tracts", "d")


def problem_of(n: np.ndarray, epsilon: float, d: int = 1, seed: int = 1) -> Problem:
    """Return releases of data drawn from the prior of the calibration studies, ``len(n)`` of them."""
    rng, layout, count = np.random.default_rng(seed), Layout(d, True), len(n)
    scale = second_moments(np.full(d + 1, -1.0), np.full(d + 1, 1.0), intercept=True) / epsilon
    noisy = np.empty((count, layout.size))
    for i, size in enumerate(n):
        x = rng.normal(0, 0.3, size=(int(size), d))
        y = 0.5 * x.sum(axis=1) / d + rng.normal(0, 0.15, size=int(size))
        u = np.column_stack([np.ones(int(size)), x, y])
        noisy[i] = layout.vector(u.T @ u)
    one = np.ones(count)
    q = d + 1
    return Problem(
        layout,
        noisy + rng.laplace(scale=scale, size=noisy.shape),
        scale * one,
        "laplace",
        np.asarray(n, dtype=float),
        ParameterPrior(np.zeros((count, q)), np.tile(0.1 * np.eye(q), (count, 1, 1)), 5 * one, 0.1 * one),
        CovariatePrior(np.zeros((count, d)), one, np.tile(0.25 * np.eye(d), (count, 1, 1)), (d + 2) * one),
    )


def seconds(action: object, *args: object, **options: object) -> float:
    """Return the processor time that a call takes."""
    begun = time.process_time()
    action(*args, **options)  # type: ignore[operator]
    return time.process_time() - begun


def chain_iteration(problem: Problem, short: int, long: int) -> float:
    """Return seconds for one iteration of one chain, the start not counted."""
    run = {"chains": 1, "draws": 1}
    first = seconds(collapsed.sample, problem, rng=np.random.default_rng(1), warm_up=short, **run)
    second = seconds(collapsed.sample, problem, rng=np.random.default_rng(1), warm_up=long, **run)
    return (second - first) / (long - short) / problem.releases


def batch() -> None:
    """Compare a chain alone with two thousand at once."""
    alone = chain_iteration(problem_of(np.full(1, 100), 1.0), 50, 450)
    together = chain_iteration(problem_of(np.full(2000, 100), 1.0), 20, 100)
    print("A chain-iteration of the collapsed sampler, d = 1")
    print(f"alone {1e6 * alone:.0f} µs, in a batch of 2,000 {1e6 * together:.1f} µs: {alone / together:.0f} times")


def effective(drawn: Draws, elapsed: float) -> tuple[float, float]:
    """Return effective draws of the worst parameter, and these a second."""
    values = {"theta": drawn.theta[0], "sigma2": drawn.sigma2[0]}
    posterior = Posterior(values)
    least = min(float(np.min(posterior.ess(name))) for name in values)
    return least, least / elapsed


def pymc() -> None:
    """Compare effective draws a second at n = 100 with PyMC's sampler on individual records."""
    problem = problem_of(np.full(1, 100), 1.0)
    samplers = (
        ("collapsed", collapsed.sample, {"draws": 200, "chains": 20}),
        ("exact", exact.sample, {"draws": 200, "chains": 20}),
        ("individual", individual.sample, {"draws": 300, "chains": 2, "warm_up": 300}),
    )
    print("\nEffective draws a second, n = 100, ε = 1, warm-up counted")
    rates = {}
    for name, sample, options in samplers:
        begun = time.process_time()
        drawn = sample(problem, rng=np.random.default_rng(1), **options)  # type: ignore[operator]
        elapsed = time.process_time() - begun
        least, rates[name] = effective(drawn, elapsed)
        print(f"{name:>11} {least:>7.0f} effective draws in {elapsed:>6.1f} s: {rates[name]:>7.1f} a second")
    for name in ("collapsed", "exact"):
        print(f"{name} over individual: {rates[name] / rates['individual']:.0f} times")


def number_of_records() -> None:
    """Time a default posterior for growing n."""
    print("\nA default posterior (20 chains, 4,000 draws), d = 1, ε = 1")
    for n in (100, 10_000, 1_000_000):
        problem = problem_of(np.full(1, n), 1.0)
        run = {"rng": np.random.default_rng(1), "draws": 200, "chains": 20}
        print(f"n = {n:>9,}: {seconds(collapsed.sample, problem, **run):.1f} s")


def tracts() -> None:
    """Time the posteriors of 3,108 areas of 20 to 446 people in one call."""
    rng = np.random.default_rng(2)
    problem = problem_of(rng.integers(20, 447, size=3108), 8.0)
    elapsed = seconds(collapsed.sample, problem, rng=rng, draws=250, chains=4)
    print(f"\n3,108 areas of 20 to 446 people, ε = 8, 4 chains of 250 draws each, in one call: {elapsed:.0f} s")


def dimensions(largest: int) -> None:
    """Time one evaluation of log density and gradient for growing d, and the power of d by which it grows."""
    print("\nOne evaluation of log density and gradient, four chains, by number of covariates")
    print(f"{'d':>4} {'statistics':>11} {'collapsed':>13} {'power of d':>11} {'exact':>13} {'power of d':>11}")
    before: tuple[int, float, float] | None = None
    for d in (1, 2, 3, 5, 10, 20, 30, 50):
        if d > largest:
            break
        problem = problem_of(np.full(1, 1000), 10.0, d)
        coordinates = Unconstrained.of(problem, 4)
        position = np.zeros((coordinates.dim, 4))
        variance = np.ones((problem.layout.size, 4))
        cost = []
        for target in (CollapsedTarget(problem, 4), ExactTarget(problem, 4)):
            repeats = 200 if d <= 5 else 20 if d <= 10 else 2
            begun = time.process_time()
            for _ in range(repeats):
                target.evaluate(coordinates, position, variance)
            cost.append((time.process_time() - begun) / repeats / 4)
        powers = ["", ""]
        if before:
            powers = [
                f"{np.log(now / then) / np.log(d / before[0]):.1f}" for now, then in zip(cost, before[1:], strict=True)
            ]
        shown = [f"{1e3 * each:.3f} ms" for each in cost]
        print(f"{d:>4} {problem.layout.size:>11} {shown[0]:>13} {powers[0]:>11} {shown[1]:>13} {powers[1]:>11}")
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
