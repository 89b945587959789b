"""The analyst's side of quantiles: intervals by inverted tests, which hold whatever the law of the records.

Nothing here reads data. The section on quantiles with intervals explains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array
from dpbook.expfam.quantile_tree import MODEL, CountTree, asked_quantiles
from dpbook.posterior import Posterior
from dpbook.release import Release

__all__ = ["QuantileTests", "ends_of", "infer_quantiles"]

_ERRORS = 2_000  # draws of the noise, from which the law of each test is read
_LEAST = 1e-9  # standard deviation of a test: at the bounds there is none
_METHOD = "inverted tests"


def infer_quantiles(
    releases: Sequence[Release], prior: Any, draws: int, chains: int, rng: np.random.Generator
) -> list[Posterior]:
    """Return, for each release, the quantiles of the population and of the records, all releases of one kind."""
    if prior is not None:
        raise TypeError(f"prior must be None for quantiles, which need none; got {prior!r}")
    tree, asked = _check(releases)
    errors = tree.errors(_ERRORS, releases[0].mechanism == "laplace", rng)
    shape = (chains, -(-draws // chains))
    names = tuple(f"{100 * q:.6g}%" for q in asked)
    tests: dict[Any, QuantileTests] = {}
    made = []
    for each in releases:
        scale, size = each.scale["counts"], shape[0] * shape[1]
        level = (rng.permutation(size) + rng.random(size)) / size
        found = tree.below(np.asarray(each["counts"], dtype=float), each.n)
        parts: dict[str, list[Array]] = {"quantiles": [], "record_quantiles": []}
        for q in asked:
            for name, sampled in (("quantiles", True), ("record_quantiles", False)):
                key = (each.n, scale, q) if sampled else "records"
                if key not in tests:
                    drawn = rng.binomial(each.n, q, size=len(errors)) if sampled else None
                    among = None if drawn is None else np.asarray(drawn - each.n * q, dtype=np.float64)
                    tests[key] = QuantileTests.of(tree, scale * errors if sampled else errors, among)
                rank = each.n * q if sampled else _rank(q, each.n)
                confidence = tests[key].confidences((found - rank) / (1.0 if sampled else scale))
                parts[name].append(ends_of(*confidence, tree.edges, level))
        stacked = {name: _in_order(np.stack(part, axis=-1), level) for name, part in parts.items()}
        shaped = {name: part.reshape(*shape, len(asked)) for name, part in stacked.items()}
        made.append(Posterior(shaped, _METHOD, labels=dict.fromkeys(shaped, names), notes=_notes(tree)))
    return made


def _check(releases: Sequence[Release]) -> tuple[CountTree, tuple[float, ...]]:
    first = releases[0]
    for each in releases:
        each.require(model=MODEL, mechanisms=("laplace", "gaussian"))
        if (each.mechanism, each.settings, dict(each.bounds)) != (first.mechanism, first.settings, dict(first.bounds)):
            raise ValueError("release must be a sequence of one mechanism, and the same quantiles, bounds and branches")
    tree = CountTree.of(first)
    if any(each["counts"].shape != (sum(tree.sizes),) for each in releases):
        raise ValueError(f"release must have a count for each of the {sum(tree.sizes)} cells of all levels")
    return tree, asked_quantiles(first.settings["q"])


def _rank(q: float, n: int) -> float:
    """Return the number of records of which the quantile is the last: the least that makes up a share q of n."""
    return float(min(max(np.ceil(q * n - 1e-9), 1), n))


class QuantileTests(NamedTuple):
    """Two tests at every edge, that too many or too few records lie below it, and their laws where just enough do.

    A test looks at the estimated count there and at its means over edges beside it: to the left, where no more records
    can lie below, to see too many; to the right to see too few. Each is divided by its standard deviation, and the
    largest decides.
    """

    tree: CountTree
    spreads: tuple[list[Array], list[Array]]  # of each window, to the left and to the right
    laws: tuple[Array, Array]  # (draw, edge)

    @classmethod
    def of(cls, tree: CountTree, errors: Array, among: Array | None) -> QuantileTests:
        """Return the tests for these errors of the estimates, and deviations of the count itself from its rank."""
        spreads: list[list[Array]] = []
        laws = []
        for right, sign in ((False, 1.0), (True, -1.0)):
            means = [tree.beside(errors, window, right=right) for window in tree.windows]
            if among is not None:
                means = [mean + among[:, None] for mean in means]
            spreads.append([np.maximum(mean.std(axis=0), _LEAST) for mean in means])
            laws.append(np.max([sign * mean / sd for mean, sd in zip(means, spreads[-1], strict=True)], axis=0))
        return cls(tree, (spreads[0], spreads[1]), (laws[0], laws[1]))

    def confidences(self, excess: Array) -> tuple[Array, Array]:
        """Return, at each edge, how sure one is that the quantile lies left of it: at least, and at most."""
        told = []
        for right, sign, spreads, law in zip((False, True), (1.0, -1.0), self.spreads, self.laws, strict=True):
            means = [self.tree.beside(excess, window, right=right) for window in self.tree.windows]
            seen = np.max([sign * mean / sd for mean, sd in zip(means, spreads, strict=True)], axis=0)
            told.append(np.mean(law <= seen, axis=0) if sign > 0 else np.mean(law > seen, axis=0))
        for each in told:
            each[0], each[-1] = 0.0, 1.0  # every record lies between the bounds
        return told[0], told[1]


def ends_of(least: Array, most: Array, edges: Array, level: Array) -> Array:
    """Return, for each level u, the end of the confidence set of its tail: the lower for u < 1/2, else the upper.

    ``least`` and ``most`` say, at each edge, how sure one is that the quantile lies left of it. A cell is left out from
    below where ``most`` at its right edge is less than u, and from above where ``least`` at its left edge is greater.
    What lies between the α/2 and 1 - α/2 ends covers with probability 1 - α or more.
    """
    reached = np.maximum.accumulate(most[1:])  # the first cell whose right edge is reached
    first = np.minimum(np.searchsorted(reached, np.minimum(level, 0.5), side="left"), len(reached) - 1)
    beyond = np.minimum.accumulate(least[:-1][::-1])[::-1]  # the last cell whose left edge is not passed
    last = np.maximum(np.searchsorted(beyond, level, side="right") - 1, first)
    return np.where(level < 0.5, edges[first], edges[last + 1])


def _in_order(ends: Array, level: Array) -> Array:
    """Return ends (draw, quantile) of which a higher quantile has none inside those of a lower one."""
    lower = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    return np.where(level[:, None] < 0.5, lower, np.maximum.accumulate(ends, axis=1))


def _notes(tree: CountTree) -> list[str]:
    low, high = tree.bounds
    return [
        f"quantiles are those of records clipped to [{low:g}, {high:g}], to within cells of width "
        f"{(high - low) / tree.cells:.3g}; record_quantiles are those of the records at hand. Intervals hold whatever "
        "the law of the records, each by itself: draws of two quantiles say nothing of their difference."
    ]
