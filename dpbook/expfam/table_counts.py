"""The counts behind a noisy table, as whole numbers, by exact and independent draws: no normal approximation, no chain.

With a Dirichlet prior the counts h have a product law, Γ(α_j + h_j)/h_j! in each cell, conditioned on their total;
given a release with independent noise they still have. Multiplying each cell's law by e^(λ h_j) changes nothing given
the total, so λ is chosen such that the cells add up to n on average. Then all cells but one are drawn by themselves,
the last is what remains of n, and the table is kept with the probability of that remainder over its largest one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook._arrays import Array
from dpbook.release import Release

__all__ = ["NoisyTable", "draw_counts", "draw_probabilities"]

_POINTS = 8192  # of the lattice on which a cell's law is held; up to as many counts, the lattice is all of them
_REACH = 45.0  # e^-45 is below double precision
_FLAT = 0.5  # of the noise's own decay: a tilt beyond it leaves the law of a cell with a long tail
_MOST = 400_000  # counts drawn in one call


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


def draw_counts(table: NoisyTable, draws: int, rng: np.random.Generator) -> Array:
    """Draw tables of whole counts given a noisy one, (draw, k)."""
    law = _law(table, wide=False)
    if law is None:
        law = _law(table, wide=True)
    assert law is not None
    kept, found = [], 0
    while found < draws:
        many = int(min(1.2 * (draws - found) / law.accepted + 50, max(_MOST // law.first.size, 50)))
        tables = _proposed(law, table.n, many, rng)
        kept.append(tables)
        found += len(tables)
    return np.concatenate(kept)[:draws]


def draw_probabilities(counts: Array, alpha: Array, rng: np.random.Generator) -> Array:
    """Draw probabilities from Dirichlet(alpha + counts), as normalised gamma variables."""
    gammas = np.maximum(rng.standard_gamma(alpha + counts), np.finfo(float).tiny)
    return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))


class _Law(NamedTuple):
    """The tilted laws of all cells on lattices: where they begin, their step, their distribution functions."""

    first: Array
    step: int
    cdf: Array
    last: int  # the cell that takes what remains
    accept: Array  # the probability of keeping a table, at each point of the last cell's lattice
    accepted: float  # on average, roughly


def _law(table: NoisyTable, wide: bool) -> _Law | None:
    """Return the tilted laws, None where the lattice around the noisy counts is too narrow for them."""
    noisy, scale, n, alpha, laplace = table[:5]
    nearest = np.clip(noisy, 0, n)
    reach = n if wide else _REACH * max(scale, 1.0) + table.apart
    first = np.floor(np.maximum(nearest - reach, 0))
    length = int(np.max(np.minimum(np.ceil(nearest + reach), n) - first)) + 1
    step = -(-length // _POINTS)
    h = first[:, None] + float(step) * np.arange(-(-length // step))
    log_law = table.log_noise(h) + special.gammaln(alpha[:, None] + h)
    log_law -= special.gammaln(h + 1)
    log_law[h > n] = -np.inf
    tilt, mass = _tilted(log_law, h - first[:, None], n - first.sum())
    if not wide and abs(tilt) * scale > (_FLAT if laplace else 5.0) and reach < n:
        return None
    relative = mass / mass.max(axis=1, keepdims=True)
    last = int(np.argmax(relative.sum(axis=1)))
    spread = np.sqrt(np.sum(np.sum(mass * h**2, axis=1) - np.sum(mass * h, axis=1) ** 2) + 1.0)
    accepted = min(1.0, float(relative[last].sum()) * step / (2.5 * spread))
    return _Law(first, step, np.cumsum(mass, axis=1), last, relative[last], max(accepted, 1e-3))


def _tilted(log_law: Array, h: Array, total: float) -> tuple[float, Array]:
    """Return the tilt at which the means of all cells add up to ``total``, and the tilted laws, by bisection."""
    widest = max(float(h.max()), 1.0)
    low, high = -60.0, 60.0  # of sinh(tilt · widest): any slope from one end of the lattice to the other

    def tilted(t: float) -> Array:
        with np.errstate(invalid="ignore"):
            raised = log_law + np.sinh(t) / widest * h
        mass = np.exp(raised - raised.max(axis=1, keepdims=True))
        return np.asarray(mass / mass.sum(axis=1, keepdims=True))

    middle, mass = 0.0, tilted(0.0)
    for _ in range(60):
        gap = float((mass * h).sum()) - total
        low, high = (low, middle) if gap > 0 else (middle, high)
        if abs(gap) < 0.02 * np.sqrt(float((mass * h**2).sum() - ((mass * h).sum(axis=1) ** 2).sum()) + 1e-3):
            break
        middle = (low + high) / 2
        mass = tilted(middle)
    return float(np.sinh(middle)) / widest, mass


def _proposed(law: _Law, n: int, many: int, rng: np.random.Generator) -> Array:
    """Draw tables cell by cell, the last cell as what remains, and return those that are kept."""
    counts = np.empty((many, law.first.size))
    for j, (first, cdf) in enumerate(zip(law.first, law.cdf, strict=True)):
        if j != law.last:
            found = np.searchsorted(cdf, rng.random(many) * cdf[-1], side="right")
            counts[:, j] = first + law.step * np.minimum(found, cdf.size - 1)
    if law.step > 1:
        counts += rng.integers(0, law.step, counts.shape)
    counts[:, law.last] = n - np.delete(counts, law.last, axis=1).sum(axis=1)
    at = np.floor((counts[:, law.last] - law.first[law.last]) / law.step)
    inside = (at >= 0) & (at < law.accept.size) & (counts[:, law.last] >= 0)
    chance = np.where(inside, law.accept[_within(at, law.accept.size)], 0.0)
    return counts[rng.random(many) < chance]


def _within(at: Array, size: int) -> NDArray[np.int64]:
    return np.clip(at, 0, size - 1).astype(np.int64)
