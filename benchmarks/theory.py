"""What exact profiles at a million records cost, against naive summation: ratios, all measured in one run.

Run with ``python benchmarks/theory.py`` (half a minute). A full curve is 100 epsilons, maximised over all neighbours.
The naive way sums P(k) - e^ε Q(k) over every count k, with SciPy's probabilities, for one pair of neighbours only, or
integrates the densities of a draw by adaptive quadrature. Ratios, not seconds, are what to compare between machines.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from scipy import integrate, stats

from dpbook import theory
from dpbook.theory import BetaBernoulli


def seconds(work: Callable[[], object]) -> float:
    """Return the best CPU time of three runs."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def naive_counts(one: stats.rv_discrete, other: stats.rv_discrete, m: int, epsilons: np.ndarray) -> np.ndarray:
    """Sum over all counts, for each epsilon, in both orders of one pair."""
    k = np.arange(m + 1)
    p, q = one.pmf(k), other.pmf(k)
    found = []
    for epsilon in epsilons:
        grow = math.exp(epsilon)
        found.append(max(np.maximum(p - grow * q, 0).sum(), np.maximum(q - grow * p, 0).sum()))
    return np.array(found)


def naive_draw(alpha: float, n: int, epsilons: np.ndarray) -> np.ndarray:
    """Integrate the densities of a draw, for each epsilon, in both orders of one pair."""
    one, other = stats.beta(alpha + 1, alpha + n - 1), stats.beta(alpha, alpha + n)
    edge = float(other.isf(1e-14)) * 4
    found = []
    for epsilon in epsilons:
        grow = math.exp(epsilon)
        sides = [
            integrate.quad(lambda t: max(p.pdf(t) - grow * q.pdf(t), 0.0), 0, edge, limit=200)[0]  # noqa: B023
            for p, q in ((one, other), (other, one))
        ]
        found.append(max(sides))
    return np.array(found)


def main() -> None:
    """Compare times and values for a draw, redrawn records and records of one draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=10**6, help="records, and synthetic records")
    n = parser.parse_args().n
    alpha, epsilons = 10.0, np.linspace(0, 2, 100)
    model, total = BetaBernoulli(alpha, alpha), 2 * alpha + n
    cases: list[tuple[str, Callable[[], np.ndarray], Callable[[], np.ndarray]]] = [
        (
            "II, one draw",
            lambda: theory.privacy_profile("sample", model, n, epsilon=epsilons),
            lambda: naive_draw(alpha, n, epsilons),
        ),
        (
            "IV, redrawn",
            lambda: theory.privacy_profile("synthetic-bayes", model, n, epsilon=epsilons, m=n),
            lambda: naive_counts(stats.binom(n, (alpha + 1) / total), stats.binom(n, alpha / total), n, epsilons),
        ),
        (
            "IV, one draw",
            lambda: theory.privacy_profile("synthetic-bayes", model, n, epsilon=epsilons, m=n, redraw=False),
            lambda: naive_counts(
                stats.betabinom(n, alpha + 1, alpha + n - 1), stats.betabinom(n, alpha, alpha + n), n, epsilons
            ),
        ),
    ]
    print(f"A curve of 100 epsilons, n = m = {n}, α = β = {alpha:g} (CPU seconds)")
    print(
        f"{'release':>14} {'exact, all neighbours':>22} {'naive, one pair':>16} {'ratio':>8} {'largest difference':>19}"
    )
    for name, exact, naive in cases:
        quick = seconds(exact)
        start = time.process_time()
        reference = naive()
        slow = time.process_time() - start
        gap = float(np.max(np.abs(exact() - reference)))
        print(f"{name:>14} {quick:>20.3f} s {slow:>14.2f} s {slow / quick:>8.0f} {gap:>19.1e}")


if __name__ == "__main__":
    main()
