"""Draws from posteriors without gradients: particles that follow the release as its noise is turned down.

It begins with so much noise that the release says nothing, so that the prior is the posterior. Then the noise is turned
down, step by step, to the one that was published; particles are weighted, resampled and moved, and what the weights
average to multiplies up to the evidence (Del Moral, Doucet and Jasra 2006). Laplace noise is normal with a variance of
its own, which every particle carries. The records simulated per parameter become more as the noise becomes less, so
that their error stays below a share of what is uncertain anyway. All releases and chains advance together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array, IntArray, times
from dpbook.latent_noise import draw_noise_variance
from dpbook.models.model import Law
from dpbook.moments import NoisySums

__all__ = ["Found", "Particles", "tempered"]

_EFFECTIVE = 0.5  # share of the particles that weights may leave effective in one step
_FIRST, _LARGEST = 256, 2**15  # simulated records per parameter
_ROUGH, _FINE = 0.3, 0.05  # their error, in standard deviations of sampling plus noise: on the way, at the end
_LOOKED_AT = 8  # particles per member at which the error is measured
_MOVES, _LAST_MOVES, _FINE_MOVES = 4, 8, 3
_TAIL = 5.0  # degrees of freedom of the proposals that forget where they are
_MOST_STEPS = 200
_JITTER = 1e-12


class Particles(NamedTuple):
    """Particles of some members (a chain of a release each): (member, particle, ...)."""

    position: Array
    prior: Array
    mean: Array
    cov: Array
    variance: Array  # of the noise

    def taken(self, at: IntArray) -> Particles:
        """Return the particles at some places, (member, particle)."""
        return Particles(*(np.take_along_axis(each, _like(at, each), axis=1) for each in self))

    def of(self, members: IntArray) -> Particles:
        """Return the particles of some members."""
        return Particles(*(each[members] for each in self))


def _like(at: Any, array: Array) -> Any:
    """Return what is of members and particles with the axes of an array of them."""
    return at.reshape(*at.shape, *[1] * (array.ndim - 2))


class Found(NamedTuple):
    """Draws (member, particle, dim) and their moments, log evidence (member,), and how they were found."""

    particles: Particles
    log_evidence: Array
    size: int  # simulated records per parameter
    error: Array  # (member,) theirs, in standard deviations of sampling plus noise
    steps: int
    acceptance: Array  # (member,) of the last moves
    first: Particles  # from the prior
    factor: Array  # (member,) how many times as wide as published the noise still is: 1 unless steps ran out


@dataclass(eq=False)
class _Run:
    """Members under way: their sums, and what the particles of each are."""

    law: Law
    sums: NoisySums  # one entry per member, observations side by side
    times: int
    rng: np.random.Generator
    size: int = _FIRST

    def at(self, position: Array, *, second: bool = False) -> tuple[Array, Array]:
        """Return the moments of the statistics at positions (member, particle, dim)."""
        mean, cov = self.law.moments(position.reshape(-1, self.law.dim), self.size, second=second)
        return mean.reshape(*position.shape[:2], -1), cov.reshape(*position.shape[:2], *cov.shape[1:])

    def gap(self, mean: Array, members: IntArray) -> Array:
        """Return how far the noisy sums are from their means."""
        n = self.sums.n[members, None, None]
        return self.sums.noisy[members, None] - np.tile(n * mean, (1, 1, self.times))

    def spread(self, cov: Array, members: IntArray) -> Array:
        """Return the covariance of the sums, without noise."""
        return np.tile(self.sums.n[members, None, None, None] * cov, (1, 1, self.times, self.times))

    def fit(self, at: Particles, factor: Array, members: IntArray) -> Array:
        """Return the log density of the noisy sums, noise ``factor`` (member,) times as wide as it was."""
        noise = factor[:, None, None] ** 2 * at.variance
        return _log_normal(self.gap(at.mean, members), self.spread(at.cov, members), noise)

    @property
    def scale(self) -> Array:
        """Scales (member, k) of the noise."""
        scale = np.reshape(self.sums.scale, (len(self.sums.noisy), -1))
        return np.broadcast_to(scale, self.sums.noisy.shape)

    def start(self, count: int) -> tuple[Particles, Array]:
        """Return particles from the prior, and the log of what their noise variances were drawn with.

        With endless noise, the gap is nothing to it: variances have their law given noise of zero.
        """
        members = len(self.sums.noisy)
        drawn = self.law.model.draw(members * count, self.rng)
        position = self.law.coordinates.position(drawn).reshape(members, count, -1)
        mean, cov = self.at(position)
        scale = np.broadcast_to(self.scale[:, None], (members, count, self.scale.shape[1]))
        offset = np.zeros((members, count))
        if self.sums.laplace:
            variance = draw_noise_variance(np.zeros(scale.shape), scale, self.rng)
            offset = (np.log(2 * scale) - 0.5 * np.log(2 * np.pi * variance)).sum(axis=2)
        else:
            variance = scale**2
        return Particles(position, self.law.coordinates.log_prior(position), mean, cov, variance), offset

    def next_factor(self, at: Particles, factor: Array, members: IntArray, offset: Array | None) -> tuple[Array, Array]:
        """Return smaller factors, and log weights, that leave a share of the particles effective.

        By one eigendecomposition the density is a sum for every factor. ``offset`` is for the first step, from endless
        noise on.
        """
        root = np.sqrt(at.variance)
        unit = self.spread(at.cov, members) / root[..., :, None] / root[..., None, :]
        size, axes = np.linalg.eigh(np.nan_to_num(unit, posinf=0.0, neginf=0.0))
        size = np.maximum(size, 0.0)
        along = np.nan_to_num(times(np.swapaxes(axes, -1, -2), self.gap(at.mean, members) / root), nan=1e150) ** 2
        constant = -0.5 * np.log(2 * np.pi * at.variance).sum(axis=2)

        def fit(log_factor: Array) -> Array:
            total = size + np.exp(2 * log_factor)[:, None, None]
            return np.asarray(constant - 0.5 * (np.log(total) + along / total).sum(axis=2))

        was = offset if offset is not None else fit(np.log(factor))
        high = np.log(factor) if offset is None else np.full(len(members), 60.0)
        low = np.zeros(len(members))
        done = _effective(fit(low) - was) >= _EFFECTIVE
        for _ in range(40):
            middle = (low + high) / 2
            good = _effective(fit(middle) - was) >= _EFFECTIVE
            high, low = np.where(good, middle, high), np.where(good, low, middle)
        chosen = np.where(done, 0.0, high)
        return np.exp(chosen), fit(chosen) - was

    def error(self, at: Particles, factor: Array, members: IntArray) -> Array:
        """Return how far the simulated means are off (member,), in sds: from those of another scramble of the points.

        Two scrambles differ by the root of two times what one errs by.
        """
        count = at.position.shape[1]
        places = np.linspace(0, count - 1, min(_LOOKED_AT, count)).astype(np.int64)
        some = Particles(*(each[:, places] for each in at))
        other, _ = self.at(some.position, second=True)
        n = self.sums.n[members, None, None]
        noise = (factor[:, None, None] * np.sqrt(self._noise_variance(members))[:, None]) ** 2
        sd = np.sqrt(n * np.einsum("mpii->mpi", some.cov) + noise)
        off = n * (some.mean - other) / sd
        return np.asarray(np.sqrt(np.nanmean(off**2, axis=1) / 2).max(axis=1))

    def _noise_variance(self, members: IntArray) -> Array:
        """Return the noise's variances, of all observations of a sum together, (member, k)."""
        each = self.sums.variance[members].reshape(len(members), self.times, -1)
        return np.asarray(1 / (1 / each).sum(axis=1))

    def variances(self, at: Particles, factor: Array, members: IntArray) -> Particles:
        """Draw the variances of Laplace noise given positions: first the noise itself, then its variances."""
        if not self.sums.laplace:
            return at
        wide = factor[:, None, None]
        gap, spread = self.gap(at.mean, members), self.spread(at.cov, members)
        noise = (wide**2 * at.variance)[..., None] * np.eye(gap.shape[-1])
        total = np.where(np.isfinite(spread), spread, 0.0) + noise
        gain = np.asarray(np.linalg.solve(total, noise), dtype=np.float64)
        left = noise - noise @ gain
        sizes, axes = np.linalg.eigh((left + np.swapaxes(left, -1, -2)) / 2)
        root = np.asarray(axes * np.sqrt(np.maximum(sizes, 0.0))[..., None, :], dtype=np.float64)
        drawn = times(np.swapaxes(gain, -1, -2), gap) + times(root, self.rng.standard_normal(gap.shape))
        scale = np.broadcast_to(self.scale[members, None], drawn.shape)
        new = draw_noise_variance(np.where(np.isfinite(drawn), drawn / wide, scale), scale, self.rng)
        return at._replace(variance=new)

    def moved(self, at: Particles, factor: Array, members: IntArray, moves: int) -> tuple[Particles, Array]:
        """Move every particle some times, by turns along the difference of two others and to a new place."""
        crowd, taken = at.position, np.zeros(len(members))
        for move in range(moves):
            at = self.variances(at, factor, members)
            proposed, log_ratio = (_leap if move % 2 else _step)(at.position, crowd, self.rng)
            prior = self.law.coordinates.log_prior(proposed)
            possible = np.isfinite(prior)[..., None]
            mean, cov = self.at(np.where(possible, proposed, at.position))
            there = Particles(proposed, prior, mean, cov, at.variance)
            gain = self.fit(there, factor, members) - self.fit(at, factor, members) + prior - at.prior + log_ratio
            accept = np.log(self.rng.random(gain.shape)) < np.where(np.isnan(gain), -np.inf, gain)
            at = Particles(*(np.where(_like(accept, old), new, old) for new, old in zip(there, at, strict=True)))
            taken += accept.mean(axis=1) / moves
        return at, taken


def _step(position: Array, crowd: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Propose a step along the difference of two particles of the crowd (ter Braak 2006); now and then the whole."""
    members, count, dim = position.shape
    one, other = rng.integers(count, size=(2, members, count, 1))
    apart = np.take_along_axis(crowd, one, axis=1) - np.take_along_axis(crowd, other, axis=1)
    length = 2.38 / np.sqrt(2 * dim) * np.exp(0.5 * rng.standard_normal((members, count, 1)))
    length = np.where(rng.random(length.shape) < 0.1, 1.0, length)
    return position + length * apart, np.zeros((members, count))


def _leap(position: Array, crowd: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Propose a new place from a t distribution like the crowd; return the log ratio of its densities, too."""
    members, count, dim = position.shape
    centre = np.median(crowd, axis=1)
    gap = crowd - centre[:, None]
    reach = 1.4826 * np.median(np.abs(gap), axis=1)
    reach = np.where(reach > 0, reach, np.maximum(np.std(crowd, axis=1), 1e-9))
    tame = np.clip(gap / reach[:, None], -4.0, 4.0)
    cov = tame.swapaxes(1, 2) @ tame / count + 1e-6 * np.eye(dim)
    root = np.asarray(np.linalg.cholesky(cov), dtype=np.float64) * reach[:, :, None]
    chi = np.sqrt(rng.chisquare(_TAIL, size=(members, count, 1)) / _TAIL)
    fresh = rng.standard_normal((members, count, dim)) / chi
    proposed = centre[:, None] + fresh @ root.swapaxes(1, 2)

    def density(z: Array) -> Array:
        return np.asarray(-0.5 * (_TAIL + dim) * np.log1p((z**2).sum(axis=-1) / _TAIL))

    held = np.linalg.solve(root[:, None], (position - centre[:, None])[..., None])[..., 0]
    return proposed, density(np.asarray(held)) - density(fresh)


def _log_normal(gap: Array, spread: Array, noise: Array) -> Array:
    """Return the log density of gaps (..., k) with covariance ``spread`` plus the noise; -inf where unusable."""
    k = gap.shape[-1]
    total = spread + noise[..., None] * np.eye(k)
    sd = np.sqrt(np.einsum("...ii->...i", total))
    usable = np.isfinite(total).all(axis=(-1, -2)) & np.isfinite(gap).all(axis=-1) & (sd > 0).all(axis=-1)
    sd = np.where(usable[..., None], sd, 1.0)
    unit = np.where(usable[..., None, None], total / sd[..., None] / sd[..., None, :], 0.0)
    root = np.linalg.cholesky(unit + np.where(usable, _JITTER, 1.0)[..., None, None] * np.eye(k))
    inside = np.asarray(np.linalg.solve(root, (np.where(usable[..., None], gap, 0.0) / sd)[..., None]))[..., 0]
    size = 2 * np.log(np.einsum("...ii->...i", root) * sd).sum(axis=-1)
    value = -0.5 * ((inside**2).sum(axis=-1) + size + k * np.log(2 * np.pi))
    return np.where(usable, value, -np.inf)


def _effective(log_weights: Array) -> Array:
    """Return the share of the particles (member,) that weights leave effective."""
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    return np.asarray(weights.sum(axis=1) ** 2 / (weights**2).sum(axis=1) / weights.shape[1])


def _resampled(log_weights: Array, rng: np.random.Generator) -> tuple[IntArray, Array]:
    """Return systematic places (member, particle) by weights, and the log of the weights' means."""
    top = log_weights.max(axis=1, keepdims=True)
    weights = np.exp(log_weights - top)
    log_mean = top[:, 0] + np.log(weights.mean(axis=1))
    ends = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    count = weights.shape[1]
    marks = (np.arange(count) + rng.random((len(weights), 1))) / count
    places = np.array([np.searchsorted(end[:-1], mark) for end, mark in zip(ends, marks, strict=True)])
    return places.astype(np.int64), log_mean


def tempered(law: Law, sums: NoisySums, count: int, chains: int, rng: np.random.Generator) -> Found:
    """Return draws from the posteriors of some releases, ``chains`` runs of ``count`` particles each."""
    observed = 1 if sums.several is None else len(sums.several[0])
    run = _Run(law, sums.side_by_side().repeated(chains), observed, rng)
    with np.errstate(all="ignore"):
        return _tempered(run, count)


def _tempered(run: _Run, count: int) -> Found:
    members = np.arange(len(run.sums.noisy))
    at, offset = run.start(count)
    first, evidence, steps, active = at, np.zeros(len(members)), 1, members
    factor, weights = run.next_factor(at, np.full(len(members), np.inf), members, offset)
    while True:
        places, log_mean = _resampled(weights, run.rng)
        evidence[active] += log_mean
        here = at.of(active).taken(places)
        here, evidence[active] = _finer(run, here, factor[active], active, _ROUGH, evidence[active])
        here, _ = run.moved(here, factor[active], active, _MOVES)
        at = Particles(*(_put(old, active, new) for old, new in zip(at, here, strict=True)))
        active = active[factor[active] > 1.0]
        if not active.size or steps >= _MOST_STEPS:
            break
        new, weights = run.next_factor(at.of(active), factor[active], active, None)
        factor, steps = _put(factor, active, new), steps + 1
    # Members that ended early were simulated on fewer points than the last: all have theirs.
    at, evidence = _simulated_anew(run, at, factor, members, evidence)
    at, _ = run.moved(at, factor, members, _LAST_MOVES)
    at, evidence = _finer(run, at, factor, members, _FINE, evidence)
    at, acceptance = run.moved(at, factor, members, _FINE_MOVES)
    return Found(at, evidence, run.size, run.error(at, factor, members), steps, acceptance, first, factor)


def _put(array: Array, members: IntArray, values: Array) -> Array:
    new = array.copy()
    new[members] = values
    return new


def _finer(
    run: _Run, at: Particles, factor: Array, members: IntArray, tolerated: float, evidence: Array
) -> tuple[Particles, Array]:
    """Simulate more records per parameter where the error of the sample matters; weigh the particles anew."""
    while run.size < _LARGEST:
        error = run.error(at, factor, members)
        if (error <= tolerated).all():
            break
        run.size *= 4 if (error > 3 * tolerated).any() and run.size <= _LARGEST // 4 else 2
        at, evidence = _simulated_anew(run, at, factor, members, evidence)
    return at, evidence


def _simulated_anew(
    run: _Run, at: Particles, factor: Array, members: IntArray, evidence: Array
) -> tuple[Particles, Array]:
    mean, cov = run.at(at.position)
    new = at._replace(mean=mean, cov=cov)
    change = run.fit(new, factor, members) - run.fit(at, factor, members)
    places, log_mean = _resampled(np.where(np.isnan(change), -np.inf, change), run.rng)
    return new.taken(places), evidence + log_mean
