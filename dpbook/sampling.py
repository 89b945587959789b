"""The one sampling loop: it advances a batch of chains together, and keeps what they pass through.

A sampler is a state (a ``NamedTuple`` of arrays whose leading axes are the batch: chains first, then releases, then
trials) and a pure function ``step(rng, state) -> (state, info)``; what a step tells of itself (acceptance, energy) is
``info``, ``None`` where there is nothing to tell. Burn-in (in which a step may learn), thinning, storage and the
progress bar are written here, once. The Bayesian primer of chapter 1 explains Gibbs sampling; samplers never see data,
only releases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from dpbook._validation import analyst_generator, integer, one_of
from dpbook.posterior import Posterior

__all__ = ["Step", "posteriors", "run"]

State = TypeVar("State", bound=NamedTuple)
Record: TypeAlias = Callable[[np.random.Generator, State, Any], Mapping[str, NDArray[Any]]]


class Step(Protocol[State]):
    """One sweep of a sampler over the whole batch: the old state in, a new state and what it tells out.

    Examples
    --------
    >>> import numpy as np
    >>> from typing import NamedTuple
    >>> class Walk(NamedTuple):
    ...     position: np.ndarray  # (chain,)
    >>> def step(rng, state):
    ...     return Walk(0.5 * state.position + rng.normal(size=state.position.shape)), None
    >>> state, info = step(np.random.default_rng(1), Walk(np.zeros(3)))
    >>> state.position.shape
    (3,)

    Explained in :doc:`/book/background/bayesian-primer`.
    """

    def __call__(self, rng: np.random.Generator, state: State, /) -> tuple[State, Any]:
        """Return the state that follows ``state``, with arrays of the same shapes, and what the step tells."""
        ...


def run(
    step: Step[State],
    state: State,
    *,
    per_chain: int,
    burn_in: int | None = None,
    thin: int = 1,
    keep: Sequence[str] | None = None,
    record: Record[State] | None = None,
    adapt: Callable[[Any, State, Any, int], Step[State]] | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    label: str = "sampling",
) -> dict[str, NDArray[np.float64]]:
    """Advance ``state`` by ``step`` and return the draws that its fields pass through.

    It takes ``burn_in + per_chain * thin`` steps, and keeps the last of every ``thin`` after the burn-in. A step that
    learns in the burn-in, through ``adapt``, is in :mod:`dpbook.hamiltonian`. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    step : callable
        ``step(rng, state) -> (state, info)``, which advances every member of the batch.
    state : NamedTuple of arrays
        Where the chains start; it is not kept. The first axis of every kept field is the chain. Start chains far
        apart, or R-hat cannot tell that they have not met.
    per_chain : int
        How many states each chain keeps.
    burn_in : int, optional
        Steps taken before the first that counts. By default half as many as after it, which follows the rule
        "warm up for 20 autocorrelation times, keep 50".
    thin : int, default 1
        Steps from one kept state to the next. It saves memory; it adds no information.
    keep : sequence of str, optional
        Fields to keep; by default all.
    record : callable, optional
        ``record(rng, state, info) -> {name: array}``, called where a state is kept: what to keep in place of its
        fields, such as parameters that are drawn given the state, or an acceptance rate.
    adapt : callable, optional
        ``adapt(step, state, info, iteration) -> step``, called after every step of the burn-in: the step to go on
        with, such as one with a better step size. After the burn-in nothing changes, so that draws have their target.
    rng : numpy.random.Generator, optional
    progress, label : bool, default False, and str
        Whether to show a progress bar, on standard error, and what it is called.

    Returns
    -------
    dict of str to array
        For each kept field an array of shape (chain, draw, ...), where the dots are the field's axes after the
        first: release, trial, then the field's own. With one release this is what
        :class:`~dpbook.posterior.Posterior` takes; with several, see :func:`posteriors`.

    Examples
    --------
    A Gibbs sampler of two standard normals with correlation 0.9, twenty chains at once:

    >>> import numpy as np
    >>> from typing import NamedTuple
    >>> class Pair(NamedTuple):
    ...     x: np.ndarray
    ...     y: np.ndarray
    >>> def step(rng, state):
    ...     x = rng.normal(0.9 * state.y, np.sqrt(1 - 0.9**2))
    ...     return Pair(x, rng.normal(0.9 * x, np.sqrt(1 - 0.9**2))), None
    >>> rng = np.random.default_rng(1)
    >>> start = Pair(*rng.normal(scale=3, size=(2, 20)))
    >>> kept = run(step, start, per_chain=1000, rng=rng)
    >>> print(kept["x"].shape, np.corrcoef(kept["x"].ravel(), kept["y"].ravel())[0, 1].round(2))
    (20, 1000) 0.9
    """
    rng = analyst_generator(rng)
    per_chain, thin = integer("per_chain", per_chain, least=1), integer("thin", thin, least=1)
    burn_in = per_chain * thin // 2 if burn_in is None else integer("burn_in", burn_in, least=0)
    if record is not None and keep is not None:
        raise ValueError("keep and record exclude each other: record says what is kept")
    take = _recorder(state, keep) if record is None else record
    kept = _room(per_chain, "state", take(rng, state, None)) if record is None else {}
    for iteration in tqdm(range(burn_in + per_chain * thin), desc=label, disable=not progress, leave=False):
        state, info = step(rng, state)
        if iteration < burn_in:
            step = step if adapt is None else adapt(step, state, info, iteration)
            continue
        draw, rest = divmod(iteration - burn_in, thin)
        if rest == thin - 1:
            now = take(rng, state, info)
            kept = kept or _room(per_chain, "record", now)
            for name, array in kept.items():
                array[draw] = _same_shape(name, now[name], array.shape[1:])
    return {name: np.moveaxis(array, 0, 1) for name, array in kept.items()}


def posteriors(kept: Mapping[str, NDArray[np.float64]], *, method: str = "") -> list[Posterior]:
    """Split the draws of one batched run into one posterior per release.

    Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    kept : mapping of str to array
        What :func:`run` returned for a state of shape (chain, release, ...): arrays (chain, draw, release, ...).
    method : str, optional
        Passed on to each :class:`~dpbook.posterior.Posterior`.

    Returns
    -------
    list of Posterior
        In the order of the releases. Axes after the release's (trials, components) are the parameter's shape.

    Examples
    --------
    >>> import numpy as np
    >>> kept = {"theta": np.zeros((4, 100, 3))}  # 4 chains, 100 draws, 3 releases
    >>> posteriors(kept, method="gibbs")[0]
    Posterior(4 chains of 100 draws, theta: scalar, method='gibbs')
    """
    by_release: dict[str, NDArray[np.float64]] = {}
    for name, array in kept.items():
        if np.ndim(array) < 3:
            raise ValueError(f"kept[{name!r}] must have shape (chain, draw, release, ...), got {np.shape(array)}")
        by_release[name] = np.array(np.moveaxis(array, 2, 0), order="C")
        by_release[name].flags.writeable = False  # so that a Posterior need not copy its share
    counts = {name: len(array) for name, array in by_release.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"kept must hold arrays with the same number of releases, got {counts}")
    releases = next(iter(counts.values()))
    return [Posterior({name: array[i] for name, array in by_release.items()}, method) for i in range(releases)]


def _recorder(state: Any, keep: Sequence[str] | None) -> Record[Any]:
    """Return the record of some of a state's fields, by default all."""
    fields: tuple[str, ...] | None = getattr(state, "_fields", None)
    if fields is None:
        raise TypeError(f"state must be a NamedTuple of arrays, got {type(state).__name__}")
    if keep is not None and (isinstance(keep, str) or not len(keep)):
        raise ValueError(f"keep must be a sequence of one or more field names, got {keep!r}")
    names = fields if keep is None else tuple(one_of("keep", name, fields) for name in keep)
    return lambda _, now, __: {name: getattr(now, name) for name in names}


def _room(draws: int, what: str, first: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Return room for draws like these; the draw is the slowest axis while we write, so that each is one block."""
    shapes = {name: np.shape(value) for name, value in first.items()}
    chains = {shape[:1] for shape in shapes.values()}
    if len(chains) != 1 or chains == {()}:
        raise ValueError(f"{what} must hold arrays whose first axis is the chain, one length for all, got {shapes}")
    return {name: np.empty((draws, *shape)) for name, shape in shapes.items()}


def _same_shape(name: str, value: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    # Assignment would broadcast in silence, and every chain would hold the same draw.
    if np.shape(value) != shape:
        raise ValueError(f"step must keep the shape of every field: {name!r} was {shape}, became {np.shape(value)}")
    return value
