"""The counts behind a noisy table, as whole numbers, by exact and independent draws: no normal approximation, no chain.

With a Dirichlet prior the counts h have a product law, Γ(α_j + h_j)/h_j! in each cell, conditioned on their total;
given a release with independent noise they still have. Multiplying each cell's law by e^(λ h_j) changes nothing given
the total, so λ is chosen such that the cells add up to n on average. Then all cells but one are drawn by themselves,
the last is what remains of n, and the table is kept with the probability of that remainder over its largest one.

The same laws give the probability of the release itself, the chance that the tilted cells add up to n times what
tilting took away, and with it the weights of a mixture of Dirichlet priors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from dpbook._arrays import Array
from dpbook.release import Release

__all__ = [
    "NoisyTable",
    "draw_counts",
    "draw_mixed_counts",
    "draw_own_shares",
    "draw_probabilities",
    "log_evidence",
    "shared_out",
]

_POINTS = 8192  # of the lattice on which a cell's law is held; up to as many counts, the lattice is all of them
_REACH = 45.0  # e^-45 is below double precision
_FLAT = 0.5  # of the noise's own decay: a tilt beyond it leaves the law of a cell with a long tail
_MOST = 400_000  # counts drawn in one call
_LEAST_IN_ALL, _MOST_EACH = 0.5, 0.5  # pseudo-counts: of all cells together where few are filled; of each where all are
_TOTALS = 7  # of pseudo-counts between the two, each as likely as the others
_NEGLIGIBLE = 1e-6  # weight of a prior in a mixture, below which it is not drawn from


class NoisyTable(NamedTuple):
    """Noisy counts in k cells, the scale of their noise, the number of records, and the pseudo-counts of the prior."""

    noisy: Array
    scale: float
    n: int
    alpha: Array
    laplace: bool
    several: tuple[Array, Array] | None = None  # where ``noisy`` is a mean: (observation, k) counts, their scales

    @classmethod
    def of(cls, release: Release, name: str, alpha: Array) -> NoisyTable:
        """Return the table that a release, or several put together, holds under a name."""
        noisy, scale = np.asarray(release[name], dtype=float), release.scale[name]
        table = cls(noisy, scale, release.n, alpha, release.mechanism == "laplace")
        seen = release.observations
        if len(seen) == 1:
            return table
        parts = np.stack([np.asarray(each[name], dtype=float) for each in seen])
        return table._replace(several=(parts, np.array([each.scale[name] for each in seen])))

    def log_noise(self, counts: Array) -> Array:
        """Return the log density of the noise that counts (k, points) imply, up to a constant."""
        noisy, scale = (self.noisy[None], np.array([self.scale])) if self.several is None else self.several
        away = (noisy[:, :, None] - counts) / scale[:, None, None]
        return np.asarray((-np.abs(away) if self.laplace else -0.5 * away**2).sum(axis=0))

    @property
    def apart(self) -> float:
        """How far the observations of a cell lie from their mean, at most."""
        return 0.0 if self.several is None else float(np.abs(self.several[0] - self.noisy).max())


def shared_out(cells: int) -> tuple[Array, Array]:
    """Return the default prior of a table's shares: Dirichlet priors (total, cell), and their weights.

    A total of pseudo-counts is shared out evenly; how large it is, from half a record in all to half a record in each
    cell, is itself unknown.
    """
    totals = np.geomspace(_LEAST_IN_ALL, _MOST_EACH * max(cells, 2), _TOTALS)
    return np.repeat(totals[:, None] / cells, cells, axis=1), np.full(_TOTALS, 1 / _TOTALS)


def draw_counts(table: NoisyTable, draws: int, rng: np.random.Generator) -> Array:
    """Draw tables of whole counts given a noisy one, (draw, k)."""
    return _draw(_law(table), table.n, draws, rng)


def draw_mixed_counts(
    table: NoisyTable, alphas: Array, weights: Array, draws: int, rng: np.random.Generator
) -> tuple[Array, NDArray[np.int64]]:
    """Draw counts (draw, k) under a mixture of Dirichlet priors (prior, k), and which of them each draw is from."""
    laws = [_law(table._replace(alpha=alpha)) for alpha in alphas]
    log_weight = np.log(weights) + [law.log_evidence for law in laws]
    chance = np.exp(log_weight - log_weight.max())
    chance[chance < _NEGLIGIBLE * chance.sum()] = 0.0
    which = rng.choice(len(laws), size=draws, p=chance / chance.sum())
    counts = np.empty((draws, table.noisy.size))
    for g, law in enumerate(laws):
        at = np.flatnonzero(which == g)
        if at.size:
            counts[at] = _draw(law, table.n, at.size, rng)
    return counts, which


def log_evidence(table: NoisyTable) -> float:
    """Return the log probability of the noisy counts under the table's Dirichlet prior, up to a constant of n."""
    return _law(table).log_evidence


def _draw(law: _Law, n: int, draws: int, rng: np.random.Generator) -> Array:
    kept, found = [], 0
    while found < draws:
        many = int(min(1.2 * (draws - found) / law.accepted + 50, max(_MOST // law.first.size, 50)))
        tables = _proposed(law, n, many, rng)
        kept.append(tables)
        found += len(tables)
    return np.concatenate(kept)[:draws]


def draw_probabilities(counts: Array, alpha: Array, rng: np.random.Generator) -> Array:
    """Draw probabilities from Dirichlet(alpha + counts), as normalised gamma variables."""
    gammas = np.maximum(rng.standard_gamma(alpha + counts), np.finfo(float).tiny)
    return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))


def draw_own_shares(table: NoisyTable, draws: int, rng: np.random.Generator) -> Array:
    """Draw shares (draw, k), each given its own noisy count alone, under Jeffreys's prior of one share."""
    first, step, h = _lattice(table, _REACH * max(table.scale, 1.0) + table.apart)
    log_law = table.log_noise(h)
    for counts in (h, np.maximum(table.n - h, 0)):
        log_law += special.gammaln(counts + 0.5) - special.gammaln(counts + 1)
    log_law[h > table.n] = -np.inf
    cdf = np.cumsum(np.exp(log_law - log_law.max(axis=1, keepdims=True)), axis=1)
    counts = np.minimum(_points(first, step, cdf, draws, rng), table.n)
    return np.asarray(rng.beta(counts + 0.5, table.n - counts + 0.5))


def _lattice(table: NoisyTable, reach: float) -> tuple[Array, int, Array]:
    """Return where the counts of each cell begin, their step, and the counts (k, point) within reach of noisy ones."""
    nearest = np.clip(table.noisy, 0, table.n)
    first = np.floor(np.maximum(nearest - reach, 0))
    length = int(np.max(np.minimum(np.ceil(nearest + reach), table.n) - first)) + 1
    step = -(-length // _POINTS)
    return first, step, np.asarray(first[:, None] + float(step) * np.arange(-(-length // step)))


def _points(first: Array, step: int, cdf: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draw counts (draw, cell), each cell by itself."""
    found = [np.searchsorted(each, rng.random(draws) * each[-1], side="right") for each in cdf]
    counts = first + step * np.minimum(np.stack(found, axis=1), cdf.shape[1] - 1)
    return np.asarray(counts + rng.integers(0, step, counts.shape) if step > 1 else counts, dtype=float)


class _Law(NamedTuple):
    """The tilted laws of all cells on lattices: where they begin, their step, their distribution functions."""

    first: Array
    step: int
    cdf: Array
    last: int  # the cell that takes what remains
    accept: Array  # the probability of keeping a table, at each point of the last cell's lattice
    accepted: float  # on average, roughly
    log_evidence: float


def _law(table: NoisyTable) -> _Law:
    """Return the tilted laws, on as short a lattice as will do."""
    law = _law_on(table, wide=False)
    if law is None:
        law = _law_on(table, wide=True)
    assert law is not None
    return law


def _law_on(table: NoisyTable, wide: bool) -> _Law | None:
    """Return the tilted laws, None where the lattice around the noisy counts is too narrow for them."""
    _, scale, n, alpha, laplace = table[:5]
    reach = n if wide else _REACH * max(scale, 1.0) + table.apart
    first, step, h = _lattice(table, reach)
    log_law = table.log_noise(h) + special.gammaln(alpha[:, None] + h)
    log_law -= special.gammaln(h + 1)
    log_law[h > n] = -np.inf
    left = n - float(first.sum())
    tilt, mass, log_norm = _tilted(log_law, h - first[:, None], left)
    if not wide and abs(tilt) * scale > (_FLAT if laplace else 5.0) and reach < n:
        return None
    relative = mass / mass.max(axis=1, keepdims=True)
    last = int(np.argmax(relative.sum(axis=1)))
    spread = np.sqrt(np.sum(np.sum(mass * h**2, axis=1) - np.sum(mass * h, axis=1) ** 2) + 1.0)
    accepted = min(1.0, float(relative[last].sum()) * step / (2.5 * spread))
    evidence = log_norm - tilt * left + np.log(_chance_of_total(mass, left / step, spread / step))
    evidence += special.gammaln(alpha.sum()) - special.gammaln(alpha.sum() + n) - special.gammaln(alpha).sum()
    return _Law(first, step, np.cumsum(mass, axis=1), last, relative[last], max(accepted, 1e-3), float(evidence))


def _chance_of_total(mass: Array, total: float, spread: float) -> float:
    """Return the probability (cell, point) of lattice points that add up to a total near their mean, by convolution."""
    cells, points = mass.shape
    longest = cells * (points - 1) + 1
    size = fft.next_fast_len(int(min(longest, max(points, 60 * spread))), real=True)
    law = fft.irfft(np.prod(fft.rfft(mass, size, axis=1), axis=0), size)
    below = math.floor(total)
    share = total - below
    found = (1 - share) * law[below % size] + share * law[(below + 1) % size]
    return max(float(found), np.finfo(float).tiny)


def _tilted(log_law: Array, h: Array, total: float) -> tuple[float, Array, float]:
    """Return the tilt at which means add up to ``total``, the tilted laws, and the log of what norms them."""
    widest = max(float(h.max()), 1.0)
    low, high = -60.0, 60.0  # of sinh(tilt · widest): any slope from one end of the lattice to the other

    def tilted(t: float) -> tuple[Array, float]:
        with np.errstate(invalid="ignore"):
            raised = log_law + np.sinh(t) / widest * h
        highest = raised.max(axis=1, keepdims=True)
        mass = np.exp(raised - highest)
        norm = mass.sum(axis=1, keepdims=True)
        return np.asarray(mass / norm), float(np.sum(highest + np.log(norm)))

    middle, (mass, log_norm) = 0.0, tilted(0.0)
    for _ in range(60):
        gap = float((mass * h).sum()) - total
        low, high = (low, middle) if gap > 0 else (middle, high)
        if abs(gap) < 0.02 * np.sqrt(float((mass * h**2).sum() - ((mass * h).sum(axis=1) ** 2).sum()) + 1e-3):
            break
        middle = (low + high) / 2
        mass, log_norm = tilted(middle)
    return float(np.sinh(middle)) / widest, mass, log_norm


def _proposed(law: _Law, n: int, many: int, rng: np.random.Generator) -> Array:
    """Draw tables cell by cell, the last cell as what remains, and return those that are kept."""
    counts = _points(law.first, law.step, law.cdf, many, rng)
    counts[:, law.last] = n - np.delete(counts, law.last, axis=1).sum(axis=1)
    at = np.floor((counts[:, law.last] - law.first[law.last]) / law.step)
    inside = (at >= 0) & (at < law.accept.size) & (counts[:, law.last] >= 0)
    chance = np.where(inside, law.accept[_within(at, law.accept.size)], 0.0)
    return counts[rng.random(many) < chance]


def _within(at: Array, size: int) -> NDArray[np.int64]:
    return np.clip(at, 0, size - 1).astype(np.int64)
