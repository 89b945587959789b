"""Exact posteriors from noisy sums by drawing the records themselves, as the release saw them: clipped.

A Gibbs sampler (Ju, Awan, Gong and Rao 2022): given parameters every record in turn is proposed anew from the model
and kept with the ratio of the noise's densities; given records the parameters have their usual posterior. No central
limit theorem is used, so it is right at any n; it costs a pass over n records per sweep and is the gold standard for
everything faster. All releases and chains of a batch advance together.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import analyst_generator, integer
from dpbook.moments import NoisySums
from dpbook.sampling import run

__all__: list[str] = []

_MOVES = 4  # of parameters and records together, per sweep

Parameters = TypeVar("Parameters", bound=NamedTuple)


class RecordModel(Protocol[Parameters]):
    """What the sampler needs of a model; batches are (B, ...), records (B, n, columns)."""

    def propose(self, parameters: Parameters, n: int, rng: np.random.Generator) -> Array:
        """Return records (B, n, columns) drawn from the model."""
        ...

    def statistics(self, records: Array) -> Array:
        """Return what each record adds to the released sums, (B, n, k), after the release's own clipping."""
        ...

    def update(self, parameters: Parameters, records: Array, rng: np.random.Generator) -> Parameters:
        """Return parameters drawn from, or moved within, their posterior given the records."""
        ...

    def move(self, parameters: Parameters, records: Array, rng: np.random.Generator) -> tuple[Parameters, Array, Array]:
        """Propose parameters and the records that they make of the same innovations; return their log prior ratio too.

        Given records, parameters can barely move, and the other way round. Moved together they can, and the noise's
        density alone decides (the ratio of what a proposal's own density contributes goes into the third value).
        """
        ...


class State(NamedTuple, Generic[Parameters]):
    """Parameters, records (B, n, columns) and their statistics (B, n, k)."""

    parameters: Parameters
    records: Array
    statistics: Array


class Info(NamedTuple):
    """What a sweep tells: the share of proposed records that were accepted, (B,)."""

    acceptance: Array


class Sweep(Generic[Parameters]):
    """One step for :func:`dpbook.sampling.run`: all records in turn, then the parameters.

    Parameters
    ----------
    model : RecordModel
        Of a record.
    sums : NoisySums
        One entry per chain and release; all of one n.
    times : int, default 1
        How often the sums of the same records were observed: so many times ``sums`` holds them, side by side.
    """

    def __init__(self, model: RecordModel[Parameters], sums: NoisySums, times: int = 1) -> None:
        sizes = np.unique(sums.n)
        if len(sizes) != 1:
            raise ValueError(f"sums must be of one n, got {sizes}")
        self._model, self._sums, self._n = model, sums, int(sizes[0])
        self._times = times
        scale = np.broadcast_to(np.reshape(sums.scale, (len(sums.noisy), -1)), sums.noisy.shape)
        # |gap| / b, or (gap / (sqrt 2 sd))²: what is summed is minus the noise's log density.
        self._weight = 1 / scale if sums.laplace else np.sqrt(0.5) / scale

    def start(self, parameters: Parameters, rng: np.random.Generator) -> State[Parameters]:
        """Return a state with records drawn from the model."""
        records = self._model.propose(parameters, self._n, rng)
        return State(parameters, records, self._statistics(records))

    def _statistics(self, records: Array) -> Array:
        """Return the statistics of records, once for every observation of their sums."""
        return np.tile(self._model.statistics(records), (1, 1, self._times))

    def __call__(self, rng: np.random.Generator, state: State[Parameters]) -> tuple[State[Parameters], Info]:
        """Return the next state, and the share of accepted records."""
        proposed = self._model.propose(state.parameters, self._n, rng)
        new = self._statistics(proposed)
        taken = self._visit(new - state.statistics, state.statistics.sum(axis=1), rng)
        records = np.where(taken[..., None], proposed, state.records)
        statistics = np.where(taken[..., None], new, state.statistics)
        parameters = self._model.update(state.parameters, records, rng)
        state = State(parameters, records, statistics)
        misfit = self._misfit(statistics)
        for _ in range(_MOVES):
            state, misfit = self._moved(state, misfit, rng)
        return state, Info(taken.mean(axis=1))

    def _moved(
        self, state: State[Parameters], misfit: Array, rng: np.random.Generator
    ) -> tuple[State[Parameters], Array]:
        """Move parameters and records together; accept by prior and noise. Return what the noise makes of it, too."""
        parameters, records, log_ratio = self._model.move(state.parameters, state.records, rng)
        statistics = self._statistics(records)
        new = self._misfit(statistics)
        gain = log_ratio + misfit - new
        taken = np.log(rng.random(len(gain))) < np.where(np.isnan(gain), -np.inf, gain)

        def chosen(new: Array, old: Array) -> Array:
            return np.where(np.reshape(taken, (-1, *[1] * (np.ndim(old) - 1))), new, old)

        fields = {name: chosen(getattr(parameters, name), old) for name, old in state.parameters._asdict().items()}
        moved = state.parameters._replace(**fields)
        state = State(moved, chosen(records, state.records), chosen(statistics, state.statistics))
        return state, chosen(new, misfit)

    def _misfit(self, statistics: Array) -> Array:
        """Return minus the log density of the noise that a state implies."""
        gap = (self._sums.noisy - statistics.sum(axis=1)) * self._weight
        return (self._absolute if self._sums.laplace else self._squared)(gap, np.empty_like(gap))

    def _visit(self, change: Array, totals: Array, rng: np.random.Generator) -> Array:
        """Accept or refuse every record's change of the totals in turn; return which were accepted, (B, n)."""
        size = len(totals)
        # Everything in units of the noise, record by record in contiguous memory: seven small calls a record.
        gap = (self._sums.noisy - totals) * self._weight
        steps = np.ascontiguousarray((change * self._weight[:, None]).swapaxes(0, 1))
        limit = rng.standard_exponential((self._n, size))
        taken = np.empty((self._n, size), dtype=bool)
        there, cost = np.empty_like(gap), np.empty(size)
        cost_of = self._absolute if self._sums.laplace else self._squared
        misfit = cost_of(gap, np.empty_like(gap)).copy()
        room = np.empty_like(gap)
        for i in range(self._n):
            np.subtract(gap, steps[i], out=there)
            cost = cost_of(there, room)
            accept = np.less_equal(cost, misfit + limit[i], out=taken[i])
            np.copyto(gap, there, where=accept[:, None])
            np.copyto(misfit, cost, where=accept)
        return taken.T

    @staticmethod
    def _absolute(gap: Array, room: Array) -> Array:
        return np.asarray(np.abs(gap, out=room).sum(axis=1))

    @staticmethod
    def _squared(gap: Array, room: Array) -> Array:
        return np.asarray(np.multiply(gap, gap, out=room).sum(axis=1))


def sample(
    model: RecordModel[Parameters],
    sums: NoisySums,
    start: Parameters,
    *,
    per_chain: int,
    chains: int,
    burn_in: int,
    thin: int = 1,
    rng: np.random.Generator | None = None,
    progress: bool = False,
) -> tuple[dict[str, Array], Array]:
    """Draw parameters from their exact posteriors given noisy sums.

    Parameters
    ----------
    model : RecordModel
        Of a record.
    sums : NoisySums
        One or many releases of one n.
    start : NamedTuple of arrays (chain × release, ...)
        Parameters to begin with, chains slowest.
    per_chain, chains, burn_in, thin : int
        Draws that each chain keeps, chains per release, sweeps before the first and from one to the next.
    rng : numpy.random.Generator, optional
    progress : bool, default False
        Whether to show a progress bar.

    Returns
    -------
    draws : dict of str to array (chain, draw, release, ...)
        For every field of the parameters.
    acceptance : array (release,)
        The mean share of proposed records that were accepted.
    """
    rng = analyst_generator(rng)
    chains = integer("chains", chains, least=1)
    releases = len(sums.noisy)
    times = 1 if sums.several is None else len(sums.several[0])
    sweep = Sweep(model, sums.side_by_side().repeated(chains), times)

    def split(array: Array) -> Array:
        return np.reshape(array, (chains, releases, *np.shape(array)[1:]))

    def record(_: np.random.Generator, state: State[Parameters], info: Info) -> dict[str, Array]:
        fields = {name: split(np.asarray(value)) for name, value in state.parameters._asdict().items()}
        return fields | {"acceptance": split(info.acceptance)}

    kept = run(
        sweep,
        sweep.start(start, rng),
        per_chain=per_chain,
        burn_in=burn_in,
        thin=thin,
        record=record,
        rng=rng,
        progress=progress,
        label="records",
    )
    acceptance = kept.pop("acceptance").mean(axis=(0, 1))
    return kept, acceptance
