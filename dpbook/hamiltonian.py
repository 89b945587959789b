"""Hamiltonian Monte Carlo for smooth log densities: many posteriors at once, each with chains of its own.

A density is a function from positions (dim, B) to log densities (B,) and gradients (dim, B). The batch is the last
axis, B = chains × posteriors, chains slowest. A :class:`Kernel` is a step for :func:`dpbook.sampling.run`; in the
burn-in :class:`WarmUp` teaches it a step size and a metric for each posterior. Chapter 4 explains the sampler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array
from dpbook._batch_last import times

__all__ = ["Density", "Info", "Kernel", "State", "Tuning", "WarmUp", "by_chain"]

Density: TypeAlias = Callable[[Array], tuple[Array, Array]]

_WINDOWS = (0.15, 0.35, 0.6)  # shares of the warm-up after which the metric is learnt anew
_ACCEPTANCE = 0.8  # what step sizes aim at
_LENGTH = 1.7  # of a trajectory, in posterior standard deviations: about a quarter of an orbit
_FIRST_STEP = 0.6
_FEWEST_STEPS, _MOST_STEPS = 2, 10
# In many dimensions a window holds too few draws for a covariance, and steps are small: the metric is then drawn
# towards the old one as far as chance explains their difference, and trajectories have more steps.
_MANY, _STEPS_IN_MANY = 20, 25


class State(NamedTuple):
    """Where the chains are: ``position`` (dim, B), and there the log density ``value`` (B,) and ``gradient`` (dim, B).

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.hamiltonian import State
    >>> old, new = (State(np.full((1, 2), at), np.full(2, -at), np.zeros((1, 2))) for at in (0.0, 1.0))
    >>> old.moved(new, np.array([True, False])).position
    array([[1., 0.]])
    """

    position: Array
    value: Array
    gradient: Array

    def moved(self, new: State, accepted: NDArray[np.bool_]) -> State:
        """Return the ``new`` state where it is ``accepted`` (B,), this one elsewhere."""
        return State(*(np.where(accepted, one, other) for one, other in zip(new, self, strict=True)))


class Info(NamedTuple):
    """What a move tells of itself.

    ``acceptance`` (B,) is the chance with which the proposal was accepted, ``energy`` (B,) minus the log density of
    position and momentum together, where the move ended. Explained in :doc:`/book/regression/a-sampler-that-mixes`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.hamiltonian import Kernel, Tuning
    >>> kernel = Kernel(lambda x: (-0.5 * (x**2).sum(axis=0), -x), Tuning.first(np.ones((1, 1, 4)), chains=4))
    >>> _, info = kernel(np.random.default_rng(1), kernel.start(np.zeros((1, 4))))
    >>> bool((info.acceptance > 0.9).all())
    True
    """

    acceptance: Array
    energy: Array


@dataclass(frozen=True, eq=False)
class Tuning:
    """How far to go, and in which metric.

    ``root`` (dim, dim, B) times its own transpose is the inverse mass: at best the posterior's covariance. ``log_step``
    (posterior,) are logarithms of the step sizes, in units of the metric; ``steps`` are the leapfrog steps of a
    trajectory. Explained in :doc:`/book/regression/a-sampler-that-mixes`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.hamiltonian import Tuning
    >>> Tuning.first(np.ones((1, 1, 20)), chains=4).log_step.shape  # of five posteriors
    (5,)
    """

    root: Array
    log_step: Array
    steps: int

    @classmethod
    def first(cls, root: Array, chains: int) -> Tuning:
        """Return the tuning to begin a warm-up with, for ``chains`` chains per posterior.

        ``root`` (dim, dim, B) is a first guess of the metric's root; the identity will do.
        """
        log_step = np.full(root.shape[-1] // chains, np.log(_FIRST_STEP))
        return cls(root, log_step, _step_count(log_step, len(root)))

    @property
    def chains(self) -> int:
        """How many chains a posterior has."""
        return int(self.root.shape[-1] // len(self.log_step))


@dataclass(frozen=True, eq=False)
class Kernel:
    """A step that follows Hamiltonian dynamics for some leapfrog steps, then accepts or refuses.

    Parameters
    ----------
    density : callable
        ``density(position) -> (log density, gradient)``, for positions (dim, B). A log density of minus infinity or
        NaN is refused.
    tuning : Tuning
        Step sizes and metric.

    Examples
    --------
    Two posteriors at once, normal with standard deviations (1, 100) and (3, 0.01), ten chains each:

    >>> import numpy as np
    >>> from dpbook.hamiltonian import Kernel, Tuning, WarmUp, by_chain
    >>> from dpbook.sampling import run
    >>> sd = np.tile([[1.0, 3.0], [100.0, 0.01]], 10)
    >>> def density(position):
    ...     return -0.5 * ((position / sd) ** 2).sum(axis=0), -position / sd**2
    >>> rng = np.random.default_rng(1)
    >>> kernel = Kernel(density, Tuning.first(np.tile(np.eye(2)[..., None], 20), chains=10))
    >>> start = kernel.start(rng.normal(size=(2, 20)) * sd)
    >>> def record(rng, state, info):
    ...     return {"x": by_chain(state.position, 10), "acceptance": by_chain(info.acceptance, 10)}
    >>> kept = run(kernel, start, per_chain=500, burn_in=400, adapt=WarmUp(400), record=record, rng=rng)
    >>> kept["x"].shape, bool(0.6 < kept["acceptance"].mean() < 0.95)  # (chain, draw, posterior, dim)
    ((10, 500, 2, 2), True)
    >>> (kept["x"][:, :, 1].std(axis=(0, 1)) / [3.0, 0.01]).round(1)
    array([1., 1.])

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """

    density: Density
    tuning: Tuning

    def start(self, position: Array) -> State:
        """Return the state at ``position`` (dim, B)."""
        return State(position, *self.density(position))

    def __call__(self, rng: np.random.Generator, state: State) -> tuple[State, Info]:
        """Return the next state, and what the move tells."""
        root, back = self.tuning.root, np.swapaxes(self.tuning.root, 0, 1)
        size = np.minimum(np.exp(self.tuning.log_step), 1.3 * _LENGTH / self.tuning.steps)
        # Sizes vary, so that no trajectory closes on itself.
        size = np.tile(size, self.tuning.chains) * rng.uniform(0.7, 1.15, size=state.value.shape)
        momentum = rng.standard_normal(state.position.shape)
        before = state.value - 0.5 * (momentum**2).sum(axis=0)
        new = state
        for _ in range(self.tuning.steps):
            momentum = momentum + 0.5 * size * times(back, new.gradient)
            new = self.start(new.position + size * times(root, momentum))
            momentum = momentum + 0.5 * size * times(back, new.gradient)
        after = new.value - 0.5 * (momentum**2).sum(axis=0)
        gain = after - before
        gain = np.where(np.isnan(gain), -np.inf, gain)
        accepted = np.log(rng.random(gain.shape)) < gain
        info = Info(np.exp(np.minimum(gain, 0.0)), -np.where(accepted, after, before))
        return state.moved(new, accepted), info


class WarmUp:
    """What :func:`dpbook.sampling.run` calls ``adapt``: it learns step sizes all along, and the metric three times.

    The chains of a posterior share what they learn; no posterior learns from another. Explained in
    :doc:`/book/regression/a-sampler-that-mixes`.

    Parameters
    ----------
    length : int
        Steps of the warm-up: the ``burn_in`` of the run.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.hamiltonian import Kernel, Tuning, WarmUp
    >>> kernel = Kernel(lambda x: (-0.5 * (x**2).sum(axis=0), -x), Tuning.first(np.ones((1, 1, 4)), chains=4))
    >>> warm_up, rng = WarmUp(100), np.random.default_rng(1)
    >>> state, info = kernel(rng, kernel.start(np.zeros((1, 4))))
    >>> bool(warm_up.learn(kernel.tuning, state.position, info, 0).log_step > kernel.tuning.log_step)
    True
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._edges = {int(share * length) for share in _WINDOWS}
        self._window: list[Array] = []
        self._since = 0

    def __call__(self, kernel: Kernel, state: State, info: Info, iteration: int) -> Kernel:
        """Return the kernel with what the last step taught."""
        return replace(kernel, tuning=self.learn(kernel.tuning, state.position, info, iteration))

    def learn(self, tuning: Tuning, position: Array, info: Info, iteration: int) -> Tuning:
        """Return better step sizes, and at the end of a window a better metric: for steps that hold more than a kernel.

        ``tuning`` is that of the last step, ``position`` (dim, B) where it ended, ``info`` what it told, ``iteration``
        which step of the warm-up it was, from 0 on.
        """
        chains = tuning.chains
        self._since += 1
        rate = info.acceptance.reshape(chains, -1).mean(axis=0)
        log_step = np.clip(tuning.log_step + 1.5 * (rate - _ACCEPTANCE) / (2 + self._since) ** 0.6, -9.0, 0.7)
        self._window.append(position)
        root, steps = tuning.root, tuning.steps
        if iteration + 1 in self._edges:
            root = _learnt(np.stack(self._window), root, chains)
            self._window, self._since = [], 0
            log_step = np.full_like(log_step, np.log(_FIRST_STEP))
        if self._since % 20 == 0 or iteration + 1 == self._length:
            steps = _step_count(log_step, len(root))
        return Tuning(root, log_step, steps)


def by_chain(array: Array, chains: int) -> Array:
    """Return an array (..., B) as (chain, posterior, ...): what :func:`dpbook.sampling.run` can keep.

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.

    Parameters
    ----------
    array, chains : array (..., B), int
        Positions, or anything else with the batch last; and how many chains a posterior has.

    Returns
    -------
    array (chain, posterior, ...)

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.hamiltonian import by_chain
    >>> by_chain(np.arange(12.0).reshape(2, 6), 3)[0]  # two posteriors, in two dimensions
    array([[0., 6.],
           [1., 7.]])
    """
    return np.moveaxis(array.reshape(*array.shape[:-1], chains, -1), (-2, -1), (0, 1))


def _step_count(log_step: Array, dim: int) -> int:
    """Return how many leapfrog steps make a trajectory of the wanted length, for most of the posteriors."""
    most = _STEPS_IN_MANY if dim > _MANY else _MOST_STEPS
    return int(np.clip(round(_LENGTH / np.exp(np.quantile(log_step, 0.3))), _FEWEST_STEPS, most))


def _learnt(window: Array, root: Array, chains: int) -> Array:
    """Return a root of the covariance of a window (iteration, dim, B), pooled over the chains of each posterior.

    The estimate is drawn towards the old metric, the more the fewer draws there are for its entries.
    """
    dim, batch = window.shape[1:]
    posteriors = batch // chains
    window = window[len(window) // 3 :]  # the first third still moves towards the others
    each: Array = np.moveaxis(window.reshape(len(window), dim, chains, posteriors), (3, 1), (0, 3))
    if dim > _MANY:
        return np.tile(np.moveaxis(_shrunk(each, np.moveaxis(root[..., :posteriors], -1, 0)), 0, -1), chains)
    pooled = each.reshape(posteriors, -1, dim)
    pooled = pooled - pooled.mean(axis=1, keepdims=True)
    count = pooled.shape[1]
    before = np.moveaxis(root[..., :posteriors], -1, 0)
    old = before @ np.swapaxes(before, -1, -2)
    weight = 2.0 * dim + 10
    new = (np.swapaxes(pooled, -1, -2) @ pooled + weight * old) / (count + weight)
    return np.tile(np.moveaxis(_safe_root(new), 0, -1), chains)


def _shrunk(window: Array, before: Array) -> Array:
    """Return roots (R, dim, dim) of covariances of draws (R, iteration, chain, dim), shrunk towards those before.

    In the old metric's coordinates, where it is the identity, the sample covariance S of N independent normal draws is
    off by (tr S² + (tr S)²)/N on average, in squared norm; as large a share of its squared distance from the identity
    is put down to chance (after Ledoit and Wolf). N counts draws by how far the means of chains lie apart.
    """
    count, dim = window.shape[1] * window.shape[2], window.shape[3]
    white = np.linalg.solve(before[:, None], np.swapaxes(window - window.mean(axis=(1, 2), keepdims=True), -1, -2))
    white = np.swapaxes(white, -1, -2)
    flat = white.reshape(len(white), count, dim)
    sample = np.swapaxes(flat, -1, -2) @ flat / count
    variances = np.diagonal(sample, axis1=-2, axis2=-1)
    apart = ((white.mean(axis=1) ** 2).mean(axis=1) / np.maximum(variances, 1e-300)).mean(axis=1) * window.shape[1]
    worth = count / np.clip(apart, 1.0, window.shape[1])  # apart is 1 for independent draws
    identity = np.eye(dim)
    distance = ((sample - identity) ** 2).sum(axis=(1, 2))
    chance = ((sample**2).sum(axis=(1, 2)) + variances.sum(axis=1) ** 2) / worth
    share = np.clip(chance / np.maximum(distance, 1e-300), 0.0, 1.0)[:, None, None]
    return before @ _safe_root((1 - share) * sample + share * identity)


def _safe_root(matrix: Array) -> Array:
    """Return roots (R, d, d), lower or not; a member that is not positive definite keeps its diagonal only."""
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    good = np.asarray(np.isfinite(matrix).all(axis=(-2, -1)) & (diagonal > 0).all(axis=-1))
    matrix = np.where(good[:, None, None], matrix, np.eye(matrix.shape[-1]))
    try:
        return np.asarray(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        sd = np.sqrt(np.diagonal(matrix, axis1=-2, axis2=-1))
        values, vectors = np.linalg.eigh(matrix / (sd[:, :, None] * sd[:, None, :]))
        return np.asarray(sd[:, :, None] * vectors * np.sqrt(np.maximum(values, 1e-10))[:, None, :])
