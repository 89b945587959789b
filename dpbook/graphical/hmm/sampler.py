"""The Gibbs sampler of a hidden Markov model, batched over chains and tables: tables exact, or seen through noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from dpbook._arrays import Array
from dpbook._validation import Option, analyst_generator, flag_option, optional, whole_option
from dpbook.doubts import speak
from dpbook.graphical.hmm.model import (
    Prior,
    checked_prior,
    dirichlet,
    draw_moves,
    draw_paths,
    log_emission,
    sort_states,
    tally,
)
from dpbook.graphical.hmm.noisy_counts import draw_counts, log_noisy_count
from dpbook.posterior import Posterior
from dpbook.sampling import posteriors, run

__all__ = ["OPTIONS", "Exact", "Noisy", "Settings", "sample"]

ANNEALING = 150  # warm-up sweeps over which the likelihood grows from a hundredth of its weight to all of it
_WEIGHTS = np.geomspace(0.01, 1.0, ANNEALING)


@dataclass(frozen=True)
class Settings:
    """How long to sample: what :func:`infer` and :func:`infer_nonprivate` take as options, checked."""

    states: int = 2
    prior: Prior | None = None
    draws: int = 1000
    chains: int = 4
    burn_in: int | None = None
    rng: np.random.Generator | None = None
    progress: bool = False


# What a caller may say of them, each with its check.
OPTIONS: dict[str, Option] = {
    "states": whole_option(2),
    "prior": optional(Option("a hmm.Prior", lambda name, value: checked_prior(value))),
    "draws": whole_option(1),
    "chains": whole_option(1),
    "burn_in": optional(whole_option(0)),
    "rng": Option("a numpy.random.Generator, or None", lambda name, value: analyst_generator(value)),
    "progress": flag_option(),
}


def sample(observed: Exact, settings: Settings, *, order_by: int, paths: bool, method: str) -> list[Posterior]:
    """Run the Gibbs sampler on a batch of tables; return one posterior each, with a warning where chains disagree."""
    types = observed.table.shape[-1]
    check_type(order_by, types)
    rng, each = analyst_generator(settings.rng), math.ceil(settings.draws / settings.chains)
    burn_in = each if settings.burn_in is None else settings.burn_in
    kept = run(
        observed.step,
        observed.start(settings.chains, settings.states, rng),
        per_chain=each,
        burn_in=ANNEALING + burn_in,
        keep=("emission", "transition", "initial", *(["states"] if paths else [])),
        rng=rng,
        progress=settings.progress,
        label="hmm",
    )
    return speak(posteriors(sort_states(kept, order_by), method=method), of=("emission", "transition", "initial"))


def check_type(order_by: int, types: int) -> None:
    """Raise unless a type of that number exists."""
    if order_by >= types:
        raise ValueError(f"order_by must be a type, 0 to {types - 1}, got {order_by}")


class State(NamedTuple):
    """Where the chains are: parameters, hidden states, activities, and how far the warm-up is."""

    emission: Array  # (chain, table, state, type)
    transition: Array  # (chain, table, state, state)
    initial: Array  # (chain, table, state)
    states: Array  # (chain, table, place, month)
    activity: Array  # (chain, table, place, month): expected events; not used where the table is exact
    sweeps: int  # so far: the likelihood gains weight over the first of them


class Exact:
    """The sampler where the table is, or is taken for, the truth."""

    def __init__(self, table: Array, prior: Prior) -> None:
        self.table = table  # (table, place, month, type)
        self.prior = prior

    def start(self, chains: int, states: int, rng: np.random.Generator) -> State:
        """Draw where the chains start, from the prior."""
        batch, prior = (chains, len(self.table)), self.prior
        types = self.table.shape[-1]
        rows = dirichlet(np.broadcast_to(prior.transitions(states), (*batch, states, states)), rng)
        return State(
            emission=dirichlet(np.full((*batch, states, types), prior.emission), rng),
            transition=rows,
            initial=dirichlet(np.full((*batch, states), prior.initial), rng),
            states=rng.integers(0, states, (*batch, *self.table.shape[1:3])).astype(float),
            activity=np.ones((*batch, *self.table.shape[1:3])),
            sweeps=0,
        )

    def step(self, rng: np.random.Generator, state: State) -> tuple[State, None]:
        """Sweep once over all unknowns; the likelihood's weight grows to 1 over the first sweeps."""
        power = float(_WEIGHTS[min(state.sweeps, ANNEALING - 1)])
        return self.sweep(rng, state, power)._replace(sweeps=state.sweeps + 1), None

    def sweep(self, rng: np.random.Generator, state: State, power: float) -> State:
        """Draw states, transitions and emissions, the likelihood raised to a power."""
        states = state.emission.shape[-2]
        logs = power * log_emission(self.table, state.emission)
        paths = draw_paths(logs, state.transition, state.initial, rng)
        rows, first = draw_moves(paths, states, self.prior, rng)
        emission = dirichlet(self.prior.emission + power * tally(self.table, paths, states), rng)
        return state._replace(emission=emission, transition=rows, initial=first, states=paths)


class Noisy(Exact):
    """The sampler where true counts are latent: Poisson given activity and state, seen through geometric noise."""

    def __init__(self, table: Array, prior: Prior, ratio: Array, shape: Array, mean: Array) -> None:
        super().__init__(table, prior)
        self.ratio = ratio[:, None, None, None]  # of the geometric noise, by table
        self._variance = 2 * self.ratio / (1 - self.ratio) ** 2  # of the noise on a cell
        self.shape, self.mean = shape[:, None, None], mean[:, None, None]

    def start(self, chains: int, states: int, rng: np.random.Generator) -> State:
        """Draw where the chains start: parameters from the prior, activities about as large as the noisy counts."""
        state = super().start(chains, states, rng)
        # A month's noisy total less up to two sds of its noise: quiet months must not start as loud as their noise,
        # or a state for noise is found that the sampler takes long to leave.
        spread = np.sqrt(self.table.shape[-1] * self._variance[..., 0])
        total = np.maximum(self.table.sum(axis=-1) - 2 * rng.random(state.states.shape) * spread, 0)
        rough = rng.gamma(self.shape + total) / (1 + self.shape / self.mean)
        return state._replace(activity=np.maximum(rough, 1e-6))

    def sweep(self, rng: np.random.Generator, state: State, power: float) -> State:
        """Draw states with true counts summed out, transitions, activities, emissions, and the counts in between."""
        states, prior = state.emission.shape[-2], self.prior
        # Expected counts under each state: (chain, table, place, month, state, type). A power below 1, in the warm-up
        # only, is not applied to the draws of counts and activities: no law is stationary then, and none needs to be.
        mean = state.activity[..., None, None] * state.emission[:, :, None, None]
        logs = log_noisy_count(self.table[..., None, :], mean, self.ratio[..., None])
        paths = draw_paths(power * logs.sum(axis=-1), state.transition, state.initial, rng)
        rows, first = draw_moves(paths, states, prior, rng)
        norm = np.take_along_axis(logs, paths.astype(np.int64)[..., None, None], axis=-2)[..., 0, :]
        activity, norm = self._leap_activity(rng, state, paths, norm, power)
        emission, norm = self._leap_emission(rng, state.emission, activity, paths, norm, power)
        mean = activity[..., None] * _of_path(emission, paths)
        counts = draw_counts(self.table, mean, self.ratio, norm, rng)
        emission = dirichlet(prior.emission + power * tally(counts, paths, states), rng)
        activity = rng.gamma(self.shape + counts.sum(axis=-1)) / (1 + self.shape / self.mean)
        return State(emission, rows, first, paths, np.maximum(activity, 1e-12), state.sweeps)

    def _leap_activity(
        self, rng: np.random.Generator, state: State, paths: Array, norm: Array, power: float
    ) -> tuple[Array, Array]:
        """Propose activities as far away as noisy counts leave them free, counts summed out; accept by Metropolis.

        Given its true counts an activity can move by the root of their sum only, and given the activity the counts
        move by little: where the noise is large, going back and forth between the two would take thousands of sweeps.
        """
        law = _of_path(state.emission, paths)
        here = state.activity
        step = self._reach(here)
        there = here * np.exp(step * rng.normal(size=here.shape))
        back = self._reach(there)
        new = log_noisy_count(self.table, there[..., None] * law, self.ratio)
        moved = np.log(there / here)
        log_accept = power * (new - norm).sum(axis=-1) + self.shape * (moved - (there - here) / self.mean)
        log_accept += np.log(step / back) + 0.5 * moved**2 * (step**-2 - back**-2)
        taken = np.log(rng.random(here.shape)) < log_accept
        return np.where(taken, there, here), np.where(taken[..., None], new, norm)

    def _reach(self, activity: Array) -> Array:
        """Return about how uncertain the logarithm of an activity is, given noisy counts; the width of a leap."""
        sd = np.sqrt(activity + self.table.shape[-1] * self._variance[..., 0])
        return np.asarray(np.minimum(sd / activity, 1.5))

    def _leap_emission(
        self,
        rng: np.random.Generator,
        here: Array,
        activity: Array,
        paths: Array,
        norm: Array,
        power: float,
    ) -> tuple[Array, Array]:
        """Propose emission probabilities in the same way, each state's around the present ones."""
        states, types = here.shape[-2:]
        member = (paths[..., None] == np.arange(states)).astype(float)
        events = np.einsum("...rts,...rt->...s", member, activity)
        # n events in m months, seen through noise of variance v a cell, tell as much as n / (1 + v m types / n).
        noise = self._variance[:, 0, 0] * member.sum(axis=(-3, -2)) * types
        weight = power * events**2 / (events + noise + 1e-300)
        there = dirichlet(1 + weight[..., None] * here, rng)
        new = log_noisy_count(self.table, activity[..., None] * _of_path(there, paths), self.ratio)
        gain = np.einsum("...rts,...rt->...s", member, (new - norm).sum(axis=-1))
        log_accept = power * gain + (self.prior.emission - 1) * np.log(there / here).sum(axis=-1)
        log_accept += _log_dirichlet(here, 1 + weight[..., None] * there)
        log_accept -= _log_dirichlet(there, 1 + weight[..., None] * here)
        taken = np.log(rng.random(log_accept.shape)) < log_accept
        emission = np.where(taken[..., None], there, here)
        return emission, np.where(_of_path(taken[..., None], paths), new, norm)


def _of_path(of_states: Array, paths: Array) -> Array:
    """Return the row of each month's state: (..., place, month, column) from (..., state, column)."""
    flat = paths.astype(np.int64).reshape(*paths.shape[:-2], -1)
    return np.take_along_axis(of_states, flat[..., None], axis=-2).reshape(*paths.shape, of_states.shape[-1])


def _log_dirichlet(at: Array, concentration: Array) -> Array:
    """Return the log density of Dirichlet laws along the last axis."""
    norm = special.gammaln(concentration.sum(axis=-1)) - special.gammaln(concentration).sum(axis=-1)
    return np.asarray(norm + special.xlogy(concentration - 1, np.maximum(at, 1e-300)).sum(axis=-1))
