"""Posteriors from noisy sums of records whose law can be averaged, clipped as the release clipped them.

A :class:`Law` says, for unconstrained parameters, the mean and covariance of the statistics that one record adds to
the sums. By the central limit theorem the sums are then normal, and noise is added to them: :func:`sample` draws the
parameters by Hamiltonian dynamics, with the variances of Laplace noise drawn in between. Where a mean has no formula it
is an average over fixed points, :func:`normal_nodes`, which makes the likelihood smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook._arrays import Array, times
from dpbook._late import stats
from dpbook._validation import analyst_generator, integer
from dpbook.hamiltonian import Info, Kernel, State, Tuning, WarmUp, by_chain
from dpbook.latent_noise import draw_noise_variance
from dpbook.sampling import run

__all__: list[str] = []

Pullback = Callable[[Array, Array], Array]

_WARM_UP = 400
_SCORING = 20  # steps of Fisher scoring before the first chain moves
_FIRST_SCRAMBLE, _SECOND_SCRAMBLE = 20190207, 20200501
_REACH = 7.0  # of a grid of standard normal points: 3e-12 are beyond
_WILD = 1e7  # beyond that, no position is taken seriously
_JITTER = 1e-12  # relative, on the diagonal of a correlation matrix before it is factorised


def normal_scores(size: int, dimension: int, *, second: bool = False) -> Array:
    """Return one fixed, scrambled Sobol sample of standard normal vectors, the same in every call.

    Half of it is the other half mirrored, and the whole has covariance one: odd moments and second moments, the largest
    part of what a sample errs by, are exact.

    Parameters
    ----------
    size : int
        How many vectors: a power of two, larger than twice the dimension.
    dimension : int
        Of each.
    second : bool, default False
        Another scramble of the same sequence, to see how much the sample matters.

    Returns
    -------
    array (size, dimension)

    Examples
    --------
    >>> from dpbook.moments import normal_scores
    >>> scores = normal_scores(1024, 2)
    >>> scores.shape, bool(abs((scores**2).mean() - 1) < 1e-12)
    ((1024, 2), True)
    """
    size, dimension = integer("size", size, least=1), integer("dimension", dimension, least=1)
    if size & (size - 1) or size <= 2 * dimension:
        raise ValueError(f"size must be a power of two, larger than twice the dimension {dimension}, got {size}")
    uniform = stats.qmc.Sobol(dimension, rng=_SECOND_SCRAMBLE if second else _FIRST_SCRAMBLE).random(size // 2)
    half = special.ndtri(1e-12 + (1 - 2e-12) * uniform)
    root = np.linalg.cholesky(2 * half.T @ half / size)
    half = np.linalg.solve(root, half.T).T
    return np.asarray(np.concatenate([half, -half]), dtype=np.float64)


class Nodes(NamedTuple):
    """Points (m, d) and weights (m,), which add up to one: what an average over standard normal vectors is taken of."""

    points: Array
    weights: Array


def normal_nodes(size: int, dimension: int, *, second: bool = False) -> Nodes:
    """Return fixed nodes for averages over standard normal vectors: a grid in one dimension, else a Sobol sample.

    An equidistant grid with the density as weights errs by nothing to speak of where the integrand is smooth at the
    scale of its step, and by the square of the step where clipping makes a kink.

    Parameters
    ----------
    size : int
        How many; a power of two.
    dimension : int
        Of each point.
    second : bool, default False
        Other nodes of the same kind (the grid moved by half a step, another scramble), to see how much they matter.

    Returns
    -------
    Nodes

    Examples
    --------
    >>> from dpbook.moments import normal_nodes
    >>> nodes = normal_nodes(64, 1)
    >>> round(float(nodes.weights @ nodes.points[:, 0] ** 4), 6)
    3.0
    """
    if integer("dimension", dimension, least=1) > 1:
        return Nodes(normal_scores(size, dimension, second=second), np.full(size, 1 / size))
    step = 2 * _REACH / integer("size", size, least=1)
    grid = -_REACH + step * (np.arange(size) + (0.75 if second else 0.25))
    weights = np.exp(-0.5 * grid**2)
    return Nodes(np.asarray(grid[:, None], dtype=np.float64), np.asarray(weights / weights.sum(), dtype=np.float64))


class ClippedNormal(NamedTuple):
    """The first four moments of a normal variable clipped to [low, high], with their derivatives.

    Attributes
    ----------
    moments, by_mean, by_sd : array (4, ...)
        Of orders one to four.
    inside : array
        The probability that nothing is clipped.
    """

    moments: Array
    by_mean: Array
    by_sd: Array
    inside: Array


def clipped_normal(mean: Array, sd: Array, low: Array | float = -1.0, high: Array | float = 1.0) -> ClippedNormal:
    """Return moments of a clipped normal variable, in closed form.

    With the partial moments ``J_k = E[v^k; low < v < high]``, which follow from each other by integration by parts, the
    clipped variable has ``E[v^k] = J_k + low^k P(v < low) + high^k P(v > high)``, and derivatives ``k J_(k-1)`` by the
    mean and ``k (J_k - mean J_(k-1)) / sd`` by the standard deviation.

    Parameters
    ----------
    mean, sd : arrays that broadcast
        Before clipping.
    low, high : float or arrays, default -1 and 1
        The bounds.

    Returns
    -------
    ClippedNormal

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.moments import clipped_normal
    >>> clipped_normal(np.array(0.0), np.array(1.0)).moments[1].round(3)  # the variance of N(0, 1) cut at ±1
    np.float64(0.516)
    """
    a, b = (low - mean) / sd, (high - mean) / sd
    below, above = special.ndtr(a), special.ndtr(-b)
    at_low, at_high = (np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi) for x in (a, b))
    partial_moments = [1 - below - above]
    for k in range(1, 5):
        ends = high ** (k - 1) * at_high - low ** (k - 1) * at_low
        earlier = (k - 1) * sd**2 * partial_moments[k - 2] if k > 1 else 0.0
        partial_moments.append(mean * partial_moments[k - 1] + earlier - sd * ends)
    orders = range(1, 5)
    return ClippedNormal(
        np.stack([partial_moments[k] + low**k * below + high**k * above for k in orders]),
        np.stack([k * partial_moments[k - 1] for k in orders]),
        np.stack([k * (partial_moments[k] - mean * partial_moments[k - 1]) / sd for k in orders]),
        np.asarray(partial_moments[0]),
    )


@dataclass(frozen=True, eq=False)
class NoisySums:
    """A batch of releases of noisy sums, of one shape.

    Parameters
    ----------
    noisy : array (release, k)
        The noisy sums.
    scale : array (release,) or (release, k)
        Of the noise: b of Laplace noise, the standard deviation of Gaussian noise.
    n : array (release,)
        Numbers of records.
    laplace : bool
        Which of the two noises it is.
    several : pair of array, optional
        Where ``noisy`` and ``scale`` are of means: the noisy sums (observation, release, k) that were put together, and
        their scales (observation, release), or (observation, release, k).
    """

    noisy: Array
    scale: Array
    n: Array
    laplace: bool
    several: tuple[Array, Array] | None = None

    @property
    def variance(self) -> Array:
        """The variances (release, k) of the noise."""
        scale = np.reshape(self.scale, (len(self.noisy), -1))
        return np.broadcast_to((2.0 if self.laplace else 1.0) * scale**2, self.noisy.shape)

    def side_by_side(self) -> NoisySums:
        """Return the noisy sums of all observations in a row, (release, observation times k); a single one stays."""
        if self.several is None:
            return self
        noisy, scale = self.several
        shape = (len(self.noisy), -1)
        each = np.broadcast_to(scale if scale.ndim == noisy.ndim else scale[..., None], noisy.shape)
        flat = [np.moveaxis(array, 0, 1).reshape(shape) for array in (noisy, each)]
        return NoisySums(flat[0], flat[1], self.n, self.laplace)

    def repeated(self, chains: int) -> NoisySums:
        """Return the same for every chain, chains slowest."""
        return NoisySums(
            np.tile(self.noisy, (chains, 1)),
            np.tile(np.reshape(self.scale, (len(self.noisy), -1)), (chains, 1)),
            np.tile(self.n, chains),
            self.laplace,
        )


class Law(Protocol):
    """The law of one record's statistics, as a function of unconstrained parameters; batches are (dim, B).

    Attributes
    ----------
    dim : int
        Of a position.
    certain : array of bool (k,)
        Statistics that a position determines without a sampling error, such as sums that are parameters themselves:
        their covariance is zero, and noise on them enters by its own density.
    """

    dim: int
    certain: NDArray[np.bool_]

    def moments(self, position: Array) -> tuple[Array, Array, Pullback]:
        """Return mean (B, k) and covariance (B, k, k) of a record's statistics, and the map of derivatives.

        The map takes derivatives of a scalar by mean and covariance (each entry of the symmetric covariance by itself)
        and returns that scalar's gradient (dim, B).
        """
        ...

    def mean(self, position: Array) -> Array:
        """Return the mean (B, k) alone."""
        ...

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the log prior density (B,) of positions, and its gradient (dim, B)."""
        ...

    def start(self, sums: NoisySums) -> Array:
        """Return positions (dim, B) near which the noisy sums are likely."""
        ...


class _SideBySide:
    """A law of statistics that were observed several times, each time with a noise of its own.

    The statistics stand side by side, observation after observation: equal, so that their covariance is singular, and
    what the noise adds to it makes it regular.
    """

    def __init__(self, law: Law, times: int) -> None:
        self._law, self._times = law, times
        self.dim, self.certain = law.dim, np.tile(law.certain, times)

    def moments(self, position: Array) -> tuple[Array, Array, Pullback]:
        """Return mean and covariance, repeated, and the map of derivatives, which adds up those of all copies."""
        mean, cov, pullback = self._law.moments(position)
        batch, k = mean.shape

        def added_up(by_mean: Array, by_cov: Array) -> Array:
            of_cov = by_cov.reshape(batch, self._times, k, self._times, k).sum(axis=(1, 3))
            return pullback(by_mean.reshape(batch, self._times, k).sum(axis=1), of_cov)

        return np.tile(mean, (1, self._times)), np.tile(cov, (1, self._times, self._times)), added_up

    def mean(self, position: Array) -> Array:
        """Return the mean alone, repeated."""
        return np.tile(self._law.mean(position), (1, self._times))

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the law's own."""
        return self._law.log_prior(position)

    def start(self, sums: NoisySums) -> Array:
        """Return where the law would start from the means of all observations."""
        shape = (len(sums.noisy), self._times, -1)
        scale = np.broadcast_to(np.reshape(sums.scale, (len(sums.noisy), -1)), sums.noisy.shape).reshape(shape)
        total = (scale**-2).sum(axis=1)
        mean = (sums.noisy.reshape(shape) * scale**-2).sum(axis=1) / total
        return self._law.start(NoisySums(mean, total**-0.5, sums.n, sums.laplace))


class _Point(NamedTuple):
    """What a law says at some positions, and where they are too wild to be taken seriously."""

    mean: Array
    cov: Array
    pullback: Pullback
    prior: Array
    by_prior: Array
    wild: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Likelihood:
    """The posterior density of positions given noisy sums and, for Laplace noise, the variances of its mixture."""

    law: Law
    sums: NoisySums  # one entry per chain and release
    smooth: bool = False  # whether Laplace noise counts as normal throughout: for the climb to a mode

    def density(self, variance: Array) -> Callable[[Array], tuple[Array, Array]]:
        return lambda position: self.evaluate(self.point(position), variance)

    def point(self, position: Array) -> _Point:
        """Return what the density needs of the law at some positions, whatever the variances of the noise."""
        wild = np.asarray(~(np.abs(position) < _WILD).all(axis=0))
        position = np.where(wild, 0.0, position)
        return _Point(*self.law.moments(position), *self.law.log_prior(position), wild)

    def evaluate(self, point: _Point, variance: Array) -> tuple[Array, Array]:
        """Return log density and gradient."""
        n, sure = self.sums.n, self.law.certain
        mean, cov, pullback, prior, by_prior, wild = point
        gap = self.sums.noisy - n[:, None] * mean
        by_mean, by_cov = np.zeros_like(mean), np.zeros_like(cov)
        value = np.zeros(len(n))
        if sure.any():
            value, by_mean[:, sure] = self._certain(gap[:, sure], n)
        free = np.flatnonzero(~sure)
        fit, pull, by_spread = _normal(gap[:, free], n, cov[:, free[:, None], free], variance[:, free])
        by_mean[:, free], by_cov[:, free[:, None], free] = pull, by_spread
        value, gradient = value + fit + prior, pullback(by_mean, by_cov) + by_prior
        refused = wild | ~np.isfinite(value)
        return np.where(refused, -np.inf, value), np.where(refused | ~np.isfinite(gradient), 0.0, gradient)

    def _certain(self, gap: Array, n: Array) -> tuple[Array, Array]:
        """Return the noise's own log density where the position says what the sums are, and its derivative by mean."""
        if self.sums.laplace and not self.smooth:
            scale = self.sums.scale[:, self.law.certain] if self.sums.scale.shape[1] > 1 else self.sums.scale
            return -(np.abs(gap) / scale).sum(axis=1), n[:, None] * np.sign(gap) / scale
        variance = self.sums.variance[:, self.law.certain]
        return -0.5 * (gap**2 / variance).sum(axis=1), n[:, None] * gap / variance

    def draw_variance(self, point: _Point, variance: Array, rng: np.random.Generator) -> Array:
        """Draw the variances of Laplace noise given positions: first the noise itself, then its variances."""
        mean, cov = point.mean, point.cov
        free = np.flatnonzero(~self.law.certain)
        gap = (self.sums.noisy - self.sums.n[:, None] * mean)[:, free]
        spread = self.sums.n[:, None, None] * cov[:, free[:, None], free]
        noise = variance[:, free, None] * np.eye(len(free))
        gain = np.asarray(np.linalg.solve(spread + noise, noise), dtype=np.float64)
        left = noise - noise @ gain
        size, axes = np.linalg.eigh((left + left.swapaxes(1, 2)) / 2)
        root = np.asarray(axes * np.sqrt(np.maximum(size, 0.0))[:, None], dtype=np.float64)
        drawn = times(gain.swapaxes(1, 2), gap) + times(root, rng.standard_normal(gap.shape))
        new = variance.copy()
        scale = self.sums.scale if self.sums.scale.shape[1] == 1 else self.sums.scale[:, free]
        new[:, free] = draw_noise_variance(drawn, np.broadcast_to(scale, drawn.shape), rng)
        return new

    def information(self, position: Array, variance: Array) -> Array:
        """Return about the information (B, dim, dim) about the position: that of the means, and of a unit prior."""
        n = self.sums.n[:, None, None]
        _, cov, _ = self.law.moments(position)
        steps = 1e-4 * np.eye(self.law.dim)[:, :, None]
        slope = np.stack([self.law.mean(position + h) - self.law.mean(position - h) for h in steps], axis=-1) / 2e-4
        spread = n * cov + variance[:, :, None] * np.eye(variance.shape[1])
        found = (n * slope).swapaxes(1, 2) @ np.linalg.solve(spread, n * slope)
        return np.asarray((found + found.swapaxes(1, 2)) / 2 + 0.25 * np.eye(self.law.dim))


def _normal(gap: Array, n: Array, cov: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return the log density of gaps with covariance n cov + noise, and its derivatives by a record's mean and cov."""
    spread = n[:, None, None] * cov + variance[:, :, None] * np.eye(gap.shape[1])
    sd = np.sqrt(np.maximum(np.einsum("bii->bi", spread), 1e-300))
    unit = spread / sd[:, :, None] / sd[:, None] + _JITTER * np.eye(gap.shape[1])
    unit = np.where(np.isfinite(unit).all(axis=(1, 2))[:, None, None], unit, np.eye(gap.shape[1]))
    inverse = np.linalg.inv(unit) / sd[:, :, None] / sd[:, None]
    log_size = np.linalg.slogdet(unit)[1] + 2 * np.log(sd).sum(axis=1)
    pull = times(inverse, gap)
    value = -0.5 * ((gap * pull).sum(axis=1) + log_size)
    return value, n[:, None] * pull, 0.5 * n[:, None, None] * (pull[:, :, None] * pull[:, None] - inverse)


class _Chains(NamedTuple):
    at: State
    variance: Array  # (B, k) of the noise


@dataclass(frozen=True, eq=False)
class _Sweep:
    """One step: draw the noise variances, then move the position."""

    likelihood: _Likelihood
    tuning: Tuning

    def __call__(self, rng: np.random.Generator, chains: _Chains) -> tuple[_Chains, Info]:
        at, variance = chains
        if self.likelihood.sums.laplace:
            point = self.likelihood.point(at.position)
            variance = self.likelihood.draw_variance(point, variance, rng)
            at = State(at.position, *self.likelihood.evaluate(point, variance))
        at, info = Kernel(self.likelihood.density(variance), self.tuning)(rng, at)
        return _Chains(at, variance), info


def sample(
    law: Law,
    sums: NoisySums,
    *,
    per_chain: int,
    chains: int,
    rng: np.random.Generator | None = None,
    warm_up: int | None = None,
    progress: bool = False,
    label: str = "moments",
) -> Array:
    """Draw positions from their posteriors given noisy sums.

    Parameters
    ----------
    law : Law
        Of one record's statistics.
    sums : NoisySums
        One or many releases.
    per_chain, chains : int
        Draws that each chain keeps, and chains per release.
    rng : numpy.random.Generator, optional
    warm_up : int, optional
        Steps before the first draw that is kept; by default 400.
    progress : bool, default False
        Whether to show a progress bar.
    label : str
        What the progress bar is called.

    Returns
    -------
    array (chain, draw, release, dim)
    """
    rng = analyst_generator(rng)
    warm_up = _WARM_UP if warm_up is None else warm_up
    if sums.several is not None:
        law, sums = _SideBySide(law, len(sums.several[0])), sums.side_by_side()
    likelihood = _Likelihood(law, sums.repeated(chains))
    variance = np.tile(sums.variance, (chains, 1))
    with np.errstate(all="ignore"):  # a hopeless proposal may overflow; it is refused
        position, root = _start(likelihood, variance, rng)
        step = _Sweep(likelihood, Tuning.first(root, chains))
        state = _Chains(State(position, *likelihood.density(variance)(position)), variance)
        learner = WarmUp(warm_up)

        def adapt(step: _Sweep, state: _Chains, info: Info, iteration: int) -> _Sweep:
            return replace(step, tuning=learner.learn(step.tuning, state.at.position, info, iteration))

        def record(_: np.random.Generator, state: _Chains, __: Info) -> dict[str, Array]:
            return {"position": by_chain(state.at.position, chains)}

        kept = run(
            step,
            state,
            per_chain=per_chain,
            burn_in=warm_up,
            record=record,
            adapt=adapt,
            rng=rng,
            progress=progress,
            label=label,
        )
    return kept["position"]


def _start(likelihood: _Likelihood, variance: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return dispersed starts (dim, B) around the posteriors' modes, and roots (dim, dim, B) of their metrics.

    Every chain climbs from statistics of its own, the released ones with fresh noise, so that chains which start in
    different modes stay there to be seen.
    """
    sums = likelihood.sums
    noise = np.sqrt(sums.variance) * rng.laplace(scale=np.sqrt(0.5), size=sums.noisy.shape)
    position = likelihood.law.start(replace(sums, noisy=sums.noisy + noise))
    position = _climbed(replace(likelihood, smooth=True), position, variance)
    cov = np.linalg.inv(likelihood.information(position, variance))
    even = (cov + cov.swapaxes(1, 2)) / 2 + 1e-14 * np.eye(likelihood.law.dim)
    root = np.asarray(np.linalg.cholesky(even), dtype=np.float64)
    away = position + times(root, rng.standard_normal(position.T.shape)).T
    value, _ = likelihood.density(variance)(away)
    return np.where(np.isfinite(value), away, position), np.moveaxis(root, 0, -1)


def _climbed(likelihood: _Likelihood, position: Array, variance: Array) -> Array:
    """Climb by damped Fisher scoring."""
    density = likelihood.density(variance)
    value, gradient = density(position)
    damping = np.full(position.shape[1], 1e-2)
    for _ in range(_SCORING):
        information = likelihood.information(position, variance)
        diagonal = np.einsum("bii->bi", information)[:, :, None] * np.eye(len(position))
        step = np.linalg.solve(information + damping[:, None, None] * diagonal, gradient.T[..., None])[..., 0].T
        there = position + np.clip(step, -1.0, 1.0)
        new, slope = density(there)
        better = new > value
        position, gradient = np.where(better, there, position), np.where(better, slope, gradient)
        value = np.where(better, new, value)
        damping = np.where(better, np.maximum(damping / 4, 1e-6), np.minimum(damping * 8, 1e6))
    return position


def mode(law: Law, sums: NoisySums) -> Array:
    """Return about the modes of the posteriors of some releases.

    Parameters
    ----------
    law : Law
        Of one record's statistics.
    sums : NoisySums
        One or many releases.

    Returns
    -------
    array (dim, release)
        Where damped Fisher scoring ended, Laplace noise taken as normal.
    """
    likelihood = _Likelihood(law, sums.repeated(1), smooth=True)
    with np.errstate(all="ignore"):
        return _climbed(likelihood, law.start(sums), np.array(sums.variance))


def around_mode(law: Law, sums: NoisySums, count: int, rng: np.random.Generator) -> Array:
    """Return the modes of the posteriors, and some positions as far away as the information there suggests.

    Parameters
    ----------
    law : Law
        Of one record's statistics.
    sums : NoisySums
        One or many releases.
    count : int
        How many positions per release, the mode among them.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    array (dim, count × release)
        Releases fastest.
    """
    at = mode(law, sums)
    with np.errstate(all="ignore"):
        information = _Likelihood(law, sums.repeated(1)).information(at, np.array(sums.variance))
    root = np.linalg.cholesky(np.linalg.inv(information))
    away = [times(root, rng.standard_normal(at.T.shape)).T for _ in range(count - 1)]
    return np.concatenate([at, *(at + each for each in away)], axis=1)


def sample_error(law: Law, better: Array, sums: NoisySums, position: Array) -> Array:
    """Return how far a law's means of the sums are from better ones at some positions, in sds of sampling plus noise.

    Parameters
    ----------
    law : Law
        Whose means are averages over a fixed sample.
    better : array (B, k)
        The same means from a larger sample, or another scramble.
    sums : NoisySums
        One entry per position.
    position : array (dim, B)

    Returns
    -------
    array (B,)
        The largest of the statistics.
    """
    mean, cov, _ = law.moments(position)
    spread = sums.n[:, None] * np.einsum("bii->bi", cov) + sums.variance
    return np.asarray((sums.n[:, None] * np.abs(mean - better) / np.sqrt(spread)).max(axis=1))
