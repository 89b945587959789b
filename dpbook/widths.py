"""How wide intervals will be: posteriors of releases that are simulated from a design, and the noise for a width.

A design is what a steward knows or supposes before anything is released. Some noisy sums are drawn from it, always the
same random numbers times the scale of the noise, so that the widths change smoothly with it. The posterior of each is
taken as normal around its mode, in coordinates that a law chooses; where there are few of them, draws from a wider law
are weighted by the posterior itself, which is how heavy tails are seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook._arrays import Array, times
from dpbook._validation import positive
from dpbook.accounting import gaussian_scale
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.moments import NoisySums
from dpbook.preview import EpsilonPlan

__all__: list[str] = []

OUTER = (0.025, 0.975)  # quantiles that a 95 % interval lies between
NORMAL = 2 * float(special.ndtri(OUTER[1]))  # its width in standard deviations, where a posterior is normal
RANGE = (0.1, 0.9)  # of the widths over releases, that previews state
_PLANNED = (0.05, 0.95)  # and that plans do
_READING = 0.015  # relative error of a width that is read from 4,000 draws of a normal posterior
_SEED = 20210517
_CLIMB = 10  # steps of Fisher scoring from the design to a mode
_FEW = 15  # coordinates, up to which weights do not degenerate
_ROUNDS = 2  # of weighted draws, the second from a law that the first has corrected
_ENOUGH = 8  # weighted draws, below which the normal approximation is better
_WIDER, _DEGREES = 1.2, 6.0  # of the law whose draws are weighted: Student's t around the mode
_STEPS, _CLOSE = 30, 0.004  # of the search for a scale, and the relative error at which it ends
_QUIET = 1e-3  # noise that counts as none, in sds of sampling
_LOUD = 1e7  # noise from which a prior alone speaks


class SimulatedLaw(Protocol):
    """What a preview asks of a law: like :class:`dpbook.moments.Law`, without derivatives of the covariance."""

    dim: int
    certain: NDArray[np.bool_]

    def mean(self, position: Array) -> Array:
        """Return the mean (B, k) of a record's statistics at positions (dim, B)."""
        ...

    def moments(self, position: Array) -> Any:
        """Return a tuple that begins with mean (B, k) and covariance (B, k, k) of a record's statistics."""
        ...

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the log prior density (B,) of positions, and its gradient (dim, B)."""
        ...


class Chance(NamedTuple):
    """The random numbers of simulated releases: normal ones for sampling, and the noise in units of its scale."""

    sampling: Array
    noise: Array

    @classmethod
    def drawn(cls, releases: int, statistics: int, laplace: bool) -> Chance:
        """Return the same numbers in every call, each statistic's spread evenly over its law."""
        rng = np.random.default_rng(_SEED)
        ranks = rng.permuted(np.tile(np.arange(releases), (2 * statistics, 1)), axis=1).T
        uniform = (ranks + rng.random(ranks.shape)) / releases
        of_noise = uniform[:, statistics:]
        if laplace:
            noise = -np.sign(of_noise - 0.5) * np.log1p(-2 * np.abs(of_noise - 0.5))
        else:
            noise = np.asarray(special.ndtri(of_noise))
        return cls(np.asarray(special.ndtri(uniform[:, :statistics])), noise)

    def sums(self, mean: Array, cov: Array, n: int, scale: Array | float, laplace: bool) -> NoisySums:
        """Return noisy sums of n records whose statistics have this mean (k,) and covariance (k, k)."""
        size, axes = np.linalg.eigh(cov)
        spread = self.sampling @ (axes * np.sqrt(np.maximum(size, 0.0))).T
        releases = len(self.noise)
        each = np.broadcast_to(scale, self.noise.shape)
        noisy = n * mean + math.sqrt(n) * spread + each * self.noise
        return NoisySums(noisy, np.array(each), np.full(releases, float(n)), laplace)


def posterior_widths(
    law: SimulatedLaw, sums: NoisySums, start: Array, quantities: Callable[[Array], Array], draws: int
) -> Array:
    """Return the widths (release, q) of 95 % intervals of quantities (B, q) of positions, climbing from ``start``."""
    with np.errstate(all="ignore"):  # a hopeless draw may overflow; it gets no weight
        mode, information = _climbed(law, sums, start)
        cov = _inverse(information)
        linear = _linear_widths(mode, cov, quantities)
        if law.dim > _FEW:
            return linear
        position, weights = _weighted_draws(law, sums, mode, cov, draws)
        found = _interval_widths(quantities(position.reshape(law.dim, -1)).reshape(*weights.shape, -1), weights)
        worth = 1 / (weights**2).sum(axis=0)  # draws without weights that these are worth
    return np.where((worth > _ENOUGH)[:, None] & np.isfinite(found), found, linear)


def _linear_widths(mode: Array, cov: Array, quantities: Callable[[Array], Array]) -> Array:
    """Return the widths (release, q) of normal posteriors, with the derivatives of the quantities at the modes."""
    steps = 1e-4 * np.eye(len(mode))[:, :, None]
    slope = np.stack([quantities(mode + e) - quantities(mode - e) for e in steps], axis=-1) / 2e-4
    return np.asarray(NORMAL * np.sqrt(np.einsum("bqi,bij,bqj->bq", slope, cov, slope)))


def _weighted_draws(law: SimulatedLaw, sums: NoisySums, mode: Array, cov: Array, draws: int) -> tuple[Array, Array]:
    """Return positions (dim, draw, release) and their weights, drawn in rounds, each around what the last one found."""
    rng, each = np.random.default_rng(_SEED), draws // _ROUNDS
    many = sums.repeated(each)
    parts, heights, laws = [], [], []
    centre, spread = mode.T, cov
    for _ in range(_ROUNDS):
        laws.append(_StudentLaw(centre, spread))
        parts.append(laws[-1].drawn(each, rng))
        heights.append(_log_posterior(law, many, parts[-1].reshape(law.dim, -1)).reshape(each, -1))
        position, height = np.concatenate(parts, axis=1), np.concatenate(heights)
        mixture = np.logaddexp.reduce([one.log_density(position) for one in laws], axis=0)
        weights = _weights(height - mixture)
        centre = np.einsum("idb,db->bi", position, weights)
        away = position - centre.T[:, None]
        spread = np.einsum("idb,jdb,db->bij", away, away, weights) + 0.05 * spread
    return position, weights


class _StudentLaw:
    """Student's t around each release's centre (release, dim), somewhat wider than a normal of this covariance."""

    def __init__(self, centre: Array, cov: Array) -> None:
        self._centre, self._root = centre, _WIDER * np.asarray(np.linalg.cholesky(cov))
        self._log_volume = np.log(np.einsum("bii->bi", self._root)).sum(axis=1)

    def drawn(self, draws: int, rng: np.random.Generator) -> Array:
        """Draw positions (dim, draw, release)."""
        shape = (draws, *self._centre.shape)
        z = rng.standard_normal(shape) / np.sqrt(rng.chisquare(_DEGREES, (*shape[:2], 1)) / _DEGREES)
        return np.moveaxis(self._centre + times(self._root, z), -1, 0)

    def log_density(self, position: Array) -> Array:
        """Return log densities (draw, release), up to a constant that all such laws share."""
        away = np.moveaxis(position, -1, 0) - self._centre[..., None]
        size = (np.linalg.solve(self._root, away) ** 2).sum(axis=1).T
        return np.asarray(-0.5 * (_DEGREES + len(position)) * np.log1p(size / _DEGREES) - self._log_volume)


def information_at(law: SimulatedLaw, position: Array, n: int, noise_variance: float) -> Array:
    """Return the information (dim, dim) that a release is expected to give about one position, and its prior."""
    mean = law.mean(position)
    variance = np.full(mean.shape, noise_variance)
    sums = NoisySums(n * mean, np.sqrt(variance), np.full(1, float(n)), laplace=False)
    return np.asarray(_scores(law, sums, position, variance)[0][0])


def _climbed(law: SimulatedLaw, sums: NoisySums, start: Array) -> tuple[Array, Array]:
    """Return modes (dim, release), noise taken as normal, and the information (release, dim, dim) there.

    Fisher scoring by the means alone, damped: what covariances say of a position is little beside it.
    """
    position, variance = start, np.array(sums.variance)
    value = _log_posterior(law, sums, position, smooth=True)
    damping = np.full(position.shape[1], 1e-2)
    for _ in range(_CLIMB):
        information, gradient = _scores(law, sums, position, variance)
        diagonal = np.einsum("bii->bi", information)[:, :, None] * np.eye(law.dim)
        step = np.linalg.solve(information + damping[:, None, None] * diagonal, gradient[..., None])[..., 0].T
        there = position + np.clip(step, -1.0, 1.0)
        new = _log_posterior(law, sums, there, smooth=True)
        better = new > value
        position, value = np.where(better, there, position), np.where(better, new, value)
        damping = np.where(better, np.maximum(damping / 4, 1e-6), np.minimum(damping * 8, 1e6))
    return position, _scores(law, sums, position, variance)[0]


def _scores(law: SimulatedLaw, sums: NoisySums, position: Array, variance: Array) -> tuple[Array, Array]:
    """Return information (B, dim, dim) and gradient (B, dim) of log posterior densities, by the means and the prior."""
    n, h = sums.n[:, None, None], 1e-4
    mean, cov = law.moments(position)[:2]
    steps = h * np.eye(law.dim)[:, :, None]
    slope = np.stack([law.mean(position + e) - law.mean(position - e) for e in steps], axis=-1) * (n / (2 * h))
    spread = n * cov + variance[:, :, None] * np.eye(variance.shape[1])
    pulled = np.linalg.solve(spread, np.concatenate([slope, (sums.noisy - n[..., 0] * mean)[..., None]], axis=-1))
    found = slope.swapaxes(1, 2) @ pulled
    by_prior = np.stack([(law.log_prior(position - e)[1] - law.log_prior(position + e)[1]) for e in steps]) / (2 * h)
    curvature = np.moveaxis(by_prior, -1, 0)
    size, axes = np.linalg.eigh((curvature + curvature.swapaxes(1, 2)) / 2)
    prior = (axes * np.maximum(size, 1e-6)[:, None]) @ axes.swapaxes(1, 2)
    information = (found[..., :-1] + found[..., :-1].swapaxes(1, 2)) / 2 + prior
    return information, found[..., -1] + law.log_prior(position)[1].T


def _log_posterior(law: SimulatedLaw, sums: NoisySums, position: Array, *, smooth: bool = False) -> Array:
    """Return log posterior densities (B,), minus infinity where they are none; ``smooth`` takes noise as normal.

    Normal sums plus Laplace noise have no density in closed form, but each by itself has: it takes the place of each
    normal margin, and the dependence stays that of normal sums. Exact where either of the two is small.
    """
    wild = ~(np.abs(position) < 60).all(axis=0)
    position = np.where(wild, 0.0, position)
    mean, cov = law.moments(position)[:2]
    gap, sure = sums.noisy - sums.n[:, None] * mean, law.certain
    value = law.log_prior(position)[0]
    if sure.any():
        away = gap[:, sure] / np.sqrt(sums.variance[:, sure])
        value = value - (0.5 * away**2 if smooth or not sums.laplace else math.sqrt(2) * np.abs(away)).sum(axis=1)
    free = np.flatnonzero(~sure)
    added = sums.variance[:, free]
    spread = sums.n[:, None, None] * cov[:, free[:, None], free] + added[:, :, None] * np.eye(len(free))
    sd = np.sqrt(np.einsum("bii->bi", spread))
    unit = spread / sd[:, :, None] / sd[:, None] + 1e-12 * np.eye(len(free))
    away = (gap[:, free] / sd)[..., None]
    usable = np.isfinite(unit).all(axis=(1, 2)) & np.isfinite(away).all(axis=(1, 2)) & ~wild
    unit, away = np.where(usable[:, None, None], unit, np.eye(len(free))), np.where(usable[:, None, None], away, 0.0)
    fit = (away * np.linalg.solve(unit, away)).sum(axis=(1, 2)) + np.linalg.slogdet(unit)[1]
    value = value - 0.5 * fit - np.log(np.where(usable[:, None], sd, 1.0)).sum(axis=1)
    if sums.laplace and not smooth:
        variance, apart = np.where(usable[:, None], sd**2 - added, 1.0), np.where(usable[:, None], gap[:, free], 0.0)
        margins = normal_laplace_logpdf(apart, 0.0, np.maximum(variance, 0.0), np.sqrt(added / 2))
        value = value + (margins + 0.5 * away[..., 0] ** 2 + np.log(np.where(usable[:, None], sd, 1.0))).sum(axis=1)
    return np.where(usable & np.isfinite(value), value, -np.inf)


def _inverse(information: Array) -> Array:
    cov = np.linalg.inv(information)
    return np.asarray((cov + cov.swapaxes(1, 2)) / 2 + 1e-14 * np.eye(cov.shape[1]))


def _weights(log_weights: Array) -> Array:
    """Return weights (draw, release) that add up to one, the largest cut at the root of the number of draws."""
    weights = np.exp(log_weights - log_weights.max(axis=0))
    weights = np.minimum(weights, weights.mean(axis=0) * math.sqrt(len(weights)))
    return np.asarray(weights / weights.sum(axis=0))


def _interval_widths(found: Array, weights: Array) -> Array:
    """Return widths (release, q) of intervals between quantiles of weighted draws (draw, release, q)."""
    order = np.argsort(found, axis=0)
    values = np.take_along_axis(found, order, axis=0)
    reached = np.cumsum(np.take_along_axis(weights[..., None], order, axis=0), axis=0)
    last = len(values) - 1
    low, high = (
        np.take_along_axis(values, np.minimum((reached < q).sum(axis=0), last)[None], axis=0)[0] for q in OUTER
    )
    return np.asarray(high - low)


def expected(widths: Array) -> tuple[Any, Any, Any]:
    """Return the median of the widths (release, ...) and the range in which eight of ten will lie."""
    return np.median(widths, axis=0), *_range(widths, RANGE)


def _range(widths: Array, outer: tuple[float, float]) -> tuple[Any, Any]:
    """Return quantiles of widths as they are read from draws, whose number adds an error of its own."""
    errors = _READING * special.ndtri((np.arange(20) + 0.5) / 20)
    read = widths * np.exp(errors).reshape(-1, *[1] * widths.ndim)
    low, high = np.quantile(read.reshape(-1, *widths.shape[1:]), outer, axis=0)
    return low, high


def scale_for(sensitivity: float, epsilon: float, delta: float, mechanism: str) -> float:
    """Return the scale of the noise: b of Laplace noise, the standard deviation of Gaussian noise."""
    if mechanism == "laplace":
        return sensitivity / epsilon
    return gaussian_scale(sensitivity=sensitivity, epsilon=epsilon, delta=delta)


def solved(
    width: Any,
    widths_at: Callable[[float], Array],
    *,
    sampling: float,
    sensitivity: float,
    delta: float,
    mechanism: str,
) -> EpsilonPlan:
    """Return the plan for a wanted width, given the widths (release,) at a scale of the noise.

    ``sampling`` is about the standard deviation of a released sum without noise.
    """
    wanted = positive("width", width)
    least = float(np.median(widths_at(_QUIET * sampling)))
    if wanted <= 1.001 * least:
        raise ValueError(
            f"width must be greater than {least:.3g}, that of the 95 % interval without any noise; got {wanted:g}"
        )
    scale, found = _search(wanted, least, widths_at, sampling)
    low, high = _range(found, _PLANNED)
    epsilon = _epsilon_for(scale, sensitivity, delta, mechanism)
    return EpsilonPlan(epsilon, wanted, min(float(low), wanted), max(float(high), wanted))


def _search(wanted: float, least: float, widths_at: Callable[[float], Array], sampling: float) -> tuple[float, Array]:
    """Return the scale at which the median width is the wanted one, and the widths there.

    The squared width grows nearly by a constant times the squared scale, until a prior holds it: the logarithm of what
    noise adds to it is interpolated between the scales next to the wanted one.
    """
    goal, at = math.log(wanted**2 - least**2), math.log(sampling)
    below: tuple[float, float] | None = None
    above: tuple[float, float] | None = None
    found = np.empty(0)
    for tries in range(_STEPS):
        found = widths_at(math.exp(at))
        reached = float(np.median(found))
        if abs(reached / wanted - 1) < _CLOSE:
            break
        height = math.log(max(reached**2 - least**2, 1e-9 * least**2))
        if height < goal:
            below = at, height
        else:
            above = at, height
        if below is None or above is None:
            step = (goal - height) / 2
            at += math.copysign(min(max(abs(step), 0.05 * 2.0 ** max(0, tries - 3)), 3.0), step)
            if at > math.log(_LOUD * sampling):
                raise ValueError(f"width must be less than {reached:.3g}, known without a release; got {wanted:g}")
            continue
        (low, first), (high, last) = below, above
        if high - low < 1e-3:
            break
        share = (goal - first) / max(last - first, 1e-12)
        at = low + (high - low) * min(max(share, 0.1), 0.9)
    return math.exp(at), found


def _epsilon_for(scale: float, sensitivity: float, delta: float, mechanism: str) -> float:
    """Return the privacy loss at which the noise has this scale; by bisection for Gaussian noise."""
    if mechanism == "laplace":
        return sensitivity / scale
    low, high = -18.0, 18.0  # of log epsilon
    for _ in range(60):
        middle = (low + high) / 2
        tight = gaussian_scale(sensitivity=sensitivity, epsilon=math.exp(middle), delta=delta) > scale
        low, high = (middle, high) if tight else (low, middle)
    return math.exp(high)
