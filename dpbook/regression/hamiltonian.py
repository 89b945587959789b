"""The Hamiltonian sampler of private regressions: all chains of all releases advance together.

A target says what is drawn, ``dpbook.hamiltonian`` moves it. What a regression adds is here: the variances of the
Laplace noise, drawn between the moves, and mirror images of theta now and then, because the sign of a coefficient can
be all that a release leaves open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from dpbook._arrays import Array
from dpbook._batch_last import times
from dpbook.hamiltonian import Info, Kernel, State, Tuning, WarmUp, by_chain
from dpbook.latent_noise import draw_noise_variance
from dpbook.regression.parametrisation import Parametrisation, second_moments
from dpbook.regression.starts import noise_variance, start_of
from dpbook.regression.target import Target
from dpbook.regression.task import Draws, Task
from dpbook.sampling import run

__all__: list[str] = []

_WARM_UP = 400  # iterations before the first that counts
_MIRROR_EVERY = 3
_CACHE = 50_000  # numbers of a covariance batch that a block of releases may hold


def draw(
    target_of: Callable[[Task, int], Target],
    task: Task,
    *,
    per_chain: int,
    chains: int,
    rng: np.random.Generator,
    warm_up: int | None = None,
    progress: bool = False,
    label: str = "sampling",
) -> Draws:
    """Sample the posteriors of a batch of releases, some hundred releases at a time, so that they fit in the cache."""
    warm_up = _WARM_UP if warm_up is None else warm_up
    size = batch_size(task.layout.size, chains)
    theta = np.empty((task.releases, chains, per_chain, task.layout.regressors))
    sigma2 = np.empty((task.releases, chains, per_chain))
    with np.errstate(all="ignore"):  # a hopeless proposal may overflow; it is refused
        for start in range(0, task.releases, size):
            block = slice(start, start + size)
            part = task.part(block)
            step, state = _begin(target_of(part, chains), part, chains, rng)
            kept = run(
                step,
                state,
                per_chain=per_chain,
                burn_in=warm_up,
                record=step.record,
                adapt=partial(_adapt, warm_up=WarmUp(warm_up), length=warm_up),
                rng=rng,
                progress=progress,
                label=label if size >= task.releases else f"{label} {start}/{task.releases}",
            )
            theta[block], sigma2[block] = (np.moveaxis(kept[name], 2, 0) for name in ("theta", "sigma2"))
    return Draws(theta, sigma2)


def batch_size(statistics: int, chains: int) -> int:
    """Return how many releases go into a batch: as many as the cache holds covariances of."""
    return max(1, _CACHE // (max(1, statistics) ** 2 * chains))


class _Chains(NamedTuple):
    """Where the chains are, the variances (k, B) of their noise, and how many sweeps they have made."""

    at: State
    variance: Array | None  # None for a target that takes Laplace noise as it is
    sweeps: int


@dataclass(frozen=True, eq=False)
class _Sweep:
    """One step: draw the noise variances, mirror theta now and then, then move the position."""

    target: Target
    space: Parametrisation
    task: Task
    tuning: Tuning
    first: int = 0  # the sweep from which mirror moves are counted

    def density(self, variance: Array | None) -> Callable[[Array], tuple[Array, Array]]:
        return lambda position: self.target.evaluate(self.space, position, variance)

    def __call__(self, rng: np.random.Generator, chains: _Chains) -> tuple[_Chains, Info]:
        at, variance, sweeps = chains
        if self.task.laplace and variance is not None:
            residual = self.target.noise(self.space, at.position, variance, rng)
            variance = draw_noise_variance(residual, np.tile(self.task.scale, self.tuning.chains), rng)
            at = State(at.position, *self.target.evaluate(self.space, at.position, variance))
        kernel = Kernel(self.density(variance), self.tuning)
        if (sweeps - self.first) % _MIRROR_EVERY == 0:
            at = _mirrored(kernel, self.space, at, rng)
        at, info = kernel(rng, at)
        return _Chains(at, variance, sweeps + 1), info

    def record(self, rng: np.random.Generator, chains: _Chains, _: Info) -> dict[str, Array]:
        """Draw the parameters that a position stands for."""
        theta, sigma2 = self.target.parameters(self.space.natural(chains.at.position), rng)
        return {name: by_chain(each, self.tuning.chains) for name, each in {"theta": theta, "sigma2": sigma2}.items()}


def _begin(target: Target, task: Task, chains: int, rng: np.random.Generator) -> tuple[_Sweep, _Chains]:
    """Return the first step, and where the chains begin."""
    space, position, root = start_of(target, task, chains, rng)
    variance = None if task.laplace and not target.mixture else noise_variance(task, chains)
    step = _Sweep(target, space, task, Tuning.first(root, chains))
    return step, _Chains(State(position, *target.evaluate(space, position, variance)), variance, 0)


def _adapt(step: _Sweep, chains: _Chains, info: Info, iteration: int, *, warm_up: WarmUp, length: int) -> _Sweep:
    """Return the step with what the last one taught; after the last of the warm-up, mirror moves begin anew."""
    tuning = warm_up.learn(step.tuning, chains.at.position, info, iteration)
    return replace(step, tuning=tuning, first=length if iteration + 1 == length else 0)


def _mirrored(kernel: Kernel, space: Parametrisation, state: State, rng: np.random.Generator) -> State:
    """Mirror theta so that the expected y² stays: theta' -> theta - 2 v (v'E theta) / (v'E v), E = E[w w'].

    The release of y² then fits as before; others may not, which decides on acceptance. The mirror's normal v does not
    depend on theta, so that the move is its own inverse, and it keeps volumes. One chain in two changes the signs of
    all slopes and keeps the mean of y instead.
    """
    layout, batch = space.layout, state.value.shape[0]
    q, first = layout.regressors, int(layout.intercept)
    natural = space.natural(state.position)
    theta, mean = natural.theta, natural.mean_x
    normal = rng.standard_normal((q, batch))
    axis = rng.integers(q, size=batch)
    single = rng.random(batch) < 0.5
    normal = np.where(single, np.arange(q)[:, None] == axis, normal)
    image = times(second_moments(natural, layout), normal)
    mirrored = theta - 2 * normal * (image * theta).sum(axis=0) / (image * normal).sum(axis=0)
    flipped = -theta
    if first:
        flipped[0] = theta[0] + 2 * (theta[1:] * mean).sum(axis=0)
    proposal = np.where(rng.random(batch) < 0.5, mirrored, flipped)
    # theta is linear in the first entries, by a factor that only sigma enters: volumes are kept there too.
    position = state.position.copy()
    position[:q] = space.theta_entries(proposal, natural.sigma2)
    new = kernel.start(position)
    return state.moved(new, np.log(rng.random(batch)) < new.value - state.value)
