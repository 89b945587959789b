"""The one sampling loop: it advances a batch of chains together, and keeps what they pass through.

A sampler is a state (a ``NamedTuple`` of arrays whose leading axes are the batch: chains first, then releases, then
trials) and a pure function ``step(rng, state) -> (state, info)``; what a step tells of itself (acceptance, energy) is
``info``, ``None`` where there is nothing to tell. Burn-in, thinning, storage and the progress bar are written here,
once. The Bayesian primer of chapter 1 explains Gibbs sampling; samplers never see data, only releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from dpbook._validation import analyst_generator, integer, one_of
from dpbook.posterior import Posterior

__all__ = ["Step", "posteriors", "run"]

State = TypeVar("State", bound=NamedTuple)


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
    draws: int,
    burn_in: int | None = None,
    thin: int = 1,
    keep: Sequence[str] | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    label: str = "sampling",
) -> dict[str, NDArray[np.float64]]:
    """Advance ``state`` by ``step`` and return the draws that its fields pass through.

    It takes ``burn_in + draws * thin`` steps, and keeps the last of every ``thin`` after the burn-in.

    Parameters
    ----------
    step : callable
        ``step(rng, state) -> (state, info)``, which advances every member of the batch.
    state : NamedTuple of arrays
        Where the chains start; it is not kept. The first axis of every kept field is the chain. Start chains far
        apart, or R-hat cannot tell that they have not met.
    draws : int
        How many states each chain keeps.
    burn_in : int, optional
        Steps taken before the first that counts. By default half as many as after it, which follows the rule
        "warm up for 20 autocorrelation times, keep 50".
    thin : int, default 1
        Steps from one kept state to the next. It saves memory; it adds no information.
    keep : sequence of str, optional
        Fields to keep; by default all.
    rng : numpy.random.Generator, optional
        The source of randomness; by default a fresh one.
    progress : bool, default False
        Whether to show a progress bar, on standard error.
    label : str, default "sampling"
        What the progress bar is called.

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
    >>> kept = run(step, start, draws=1000, rng=rng)
    >>> kept["x"].shape
    (20, 1000)
    >>> print(np.corrcoef(kept["x"].ravel(), kept["y"].ravel())[0, 1].round(2))
    0.9

    Explained in :doc:`/book/background/bayesian-primer`.
    """
    rng = analyst_generator(rng)
    draws, thin = integer("draws", draws, least=1), integer("thin", thin, least=1)
    burn_in = draws * thin // 2 if burn_in is None else integer("burn_in", burn_in, least=0)
    fields = _kept_fields(state, keep)
    shapes = _batch_shapes(state, fields)
    # The draw is the slowest axis while we write, so that each state is one contiguous block.
    kept = {name: np.empty((draws, *shape)) for name, shape in shapes.items()}
    for iteration in tqdm(range(burn_in + draws * thin), desc=label, disable=not progress, leave=False):
        state, _ = step(rng, state)
        draw, rest = divmod(iteration - burn_in + 1, thin)
        if draw >= 1 and rest == 0:
            for name in fields:
                kept[name][draw - 1] = _same_shape(name, getattr(state, name), shapes[name])
    return {name: np.moveaxis(array, 0, 1) for name, array in kept.items()}


def posteriors(kept: Mapping[str, NDArray[np.float64]], *, method: str = "") -> list[Posterior]:
    """Split the draws of one batched run into one posterior a release.

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

    Explained in :doc:`/book/background/bayesian-primer`.
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


def _kept_fields(state: Any, keep: Sequence[str] | None) -> tuple[str, ...]:
    fields: tuple[str, ...] | None = getattr(state, "_fields", None)
    if fields is None:
        raise TypeError(f"state must be a NamedTuple of arrays, got {type(state).__name__}")
    if keep is None:
        return fields
    if isinstance(keep, str) or not len(keep):
        raise ValueError(f"keep must be a sequence of one or more field names, got {keep!r}")
    return tuple(one_of("keep", name, fields) for name in keep)


def _batch_shapes(state: Any, fields: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    shapes = {name: np.shape(getattr(state, name)) for name in fields}
    chains = {shape[:1] for shape in shapes.values()}
    if len(chains) != 1 or chains == {()}:
        raise ValueError(f"state must hold arrays whose first axis is the chain, one length for all, got {shapes}")
    return shapes


def _same_shape(name: str, value: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    # Assignment would broadcast in silence, and every chain would hold the same draw.
    if np.shape(value) != shape:
        raise ValueError(f"step must keep the shape of every field: {name!r} was {shape}, became {np.shape(value)}")
    return value
