"""A hidden Markov model of event counts: priors, the forward filter, draws of hidden states; no data and no noise.

Each place has a chain of hidden states, one a month; an event in a month is of a type drawn from the state's emission
probabilities. Both sides of the barrier use these: the curator in a private chain, the analyst in a sampler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbook._arrays import Array
from dpbook._validation import analyst_generator, at_least, finite_array, integer, positive

__all__ = ["Prior", "log_likelihood", "simulate_states", "sort_states"]

COUNTS_MODEL = "hmm counts"  # what releases call their model
GIBBS_MODEL = "hmm gibbs"
_MOST_VISITS = 1e12  # of a prior: beyond, sums of Gamma draws may overflow


@dataclass(frozen=True)
class Prior:
    """Dirichlet priors of a hidden Markov model, the same for every state, so that labels are exchangeable.

    ``emission`` is the concentration of each state's emission probabilities, 1 being uniform; ``transition`` that of
    each row of the transition matrix; ``stay`` is added on its diagonal: prior visits that stayed where they were;
    ``initial`` that of the first month's state probabilities. Explained in :doc:`/book/graphical-models/hidden-states`.

    Examples
    --------
    >>> from dpbook.graphical import hmm
    >>> hmm.Prior(stay=5.0)
    Prior(emission=1.0, transition=1.0, stay=5.0, initial=1.0)
    >>> hmm.Prior(stay=5.0).transitions(2)
    array([[6., 1.],
           [1., 6.]])
    """

    emission: float = 1.0
    transition: float = 1.0
    stay: float = 0.0
    initial: float = 1.0

    def __post_init__(self) -> None:
        for name in ("emission", "transition", "initial", "stay"):
            given = getattr(self, name)
            number = at_least(name, given, 0) if name == "stay" else positive(name, given)
            if number > _MOST_VISITS:
                raise ValueError(f"{name} must be at most {_MOST_VISITS:g}, got {number}")
            object.__setattr__(self, name, number)

    def transitions(self, states: int) -> Array:
        """Return the concentrations of the transition matrix of so many ``states``, row by row."""
        return np.full((states, states), self.transition) + self.stay * np.eye(states)


def checked_prior(prior: Any) -> Prior:
    """Return the prior, the uniform one for None."""
    if prior is not None and not isinstance(prior, Prior):
        raise TypeError(f"prior must be a hmm.Prior, got {type(prior).__name__}")
    return Prior() if prior is None else prior


def log_likelihood(counts: ArrayLike, emission: ArrayLike, transition: ArrayLike, initial: ArrayLike) -> Any:
    """Return the log-probability of a table of counts, hidden states summed out, given each month's total.

    Explained in :doc:`/book/graphical-models/hidden-states`.

    Parameters
    ----------
    counts : array, shape (..., places, months, types)
        Tables.
    emission : array, shape (..., states, types)
        Emission probabilities; leading axes broadcast with those of ``counts``.
    transition, initial : array, shape (..., states, states) and (..., states)
        Row: from; column: to. And the probabilities of the first month's state.

    Returns
    -------
    float or array
        The sum over places of log p(types of the events, in their order), without multinomial coefficients.

    Examples
    --------
    >>> from dpbook.graphical import hmm
    >>> round(hmm.log_likelihood([[[3, 1]]], [[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1], [0.1, 0.9]], [0.5, 0.5]), 3)
    -2.773
    """
    given = {"counts": counts, "emission": emission, "transition": transition, "initial": initial}
    table, phi, rows, first = (finite_array(name, each) for name, each in given.items())
    logs = log_emission(table, phi)
    total = filter_forward(logs, rows, first)[1].sum(axis=-1)
    return float(total) if np.ndim(total) == 0 else total


def simulate_states(
    transition: ArrayLike, initial: ArrayLike, shape: tuple[int, int], *, rng: np.random.Generator | None = None
) -> NDArray[np.int64]:
    """Draw hidden states from the chain itself, without any events.

    Explained in :doc:`/book/graphical-models/hidden-states`.

    Parameters
    ----------
    transition, initial
        As in :func:`log_likelihood`.
    shape : (places, months)
        How many chains, and how long.
    rng : numpy.random.Generator, optional

    Returns
    -------
    ndarray of int, shape (..., places, months)

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import hmm
    >>> hmm.simulate_states([[0, 1], [1, 0]], [1, 0], (2, 4))
    array([[0, 1, 0, 1],
           [0, 1, 0, 1]])
    """
    rows, first = finite_array("transition", transition), finite_array("initial", initial)
    if rows.shape[-2:] != 2 * first.shape[-1:] or rows.shape[:-2] != first.shape[:-1]:
        raise ValueError(f"transition must have a row and a column for each state of initial, got {rows.shape}")
    places, months = (integer("shape", size, least=1) for size in shape)
    flat = np.zeros((*first.shape[:-1], places, months, first.shape[-1]))
    return draw_paths(flat, rows, first, analyst_generator(rng)).astype(np.int64)


def sort_states(draws: Mapping[str, Array], order_by: int = 0) -> dict[str, Array]:
    """Rename hidden states, draw by draw, so that their emission probabilities of one type increase.

    Explained in :doc:`/book/graphical-models/hidden-states`.

    Parameters
    ----------
    draws : mapping of str to array
        ``emission`` (..., state, type), ``transition`` (..., state, state), ``initial`` (..., state) and, where it is
        there, ``states`` (..., place, month).
    order_by : int, default 0
        The type.

    Returns
    -------
    dict of str to array
        The same, renamed.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import hmm
    >>> draws = {"emission": np.array([[0.9, 0.1], [0.2, 0.8]]), "transition": np.array([[0.7, 0.3], [0.4, 0.6]]),
    ...          "initial": np.array([1.0, 0.0]), "states": np.array([[0.0, 0.0, 1.0]])}
    >>> hmm.sort_states(draws)["states"]
    array([[1., 1., 0.]])
    """
    order = np.argsort(draws["emission"][..., order_by], axis=-1)
    ordered = {
        "emission": np.take_along_axis(draws["emission"], order[..., None], axis=-2),
        "transition": np.take_along_axis(
            np.take_along_axis(draws["transition"], order[..., None], axis=-2), order[..., None, :], axis=-1
        ),
        "initial": np.take_along_axis(draws["initial"], order, axis=-1),
    }
    if "states" in draws:
        rank = np.argsort(order, axis=-1)
        old = draws["states"].astype(np.int64)
        flat = np.take_along_axis(rank, old.reshape(*old.shape[:-2], -1), axis=-1)
        ordered["states"] = flat.reshape(old.shape).astype(float)
    return ordered


class Chain(NamedTuple):
    """Parameters and hidden states: what a sweep draws."""

    emission: Array  # (..., state, type)
    transition: Array  # (..., state, state)
    initial: Array  # (..., state)
    states: Array  # (..., place, month)


def dirichlet(concentration: Array, rng: np.random.Generator) -> Array:
    """Draw from Dirichlet laws along the last axis; tiny concentrations are kept from dividing 0 by 0."""
    gammas = rng.gamma(concentration) + 1e-300
    return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))


def log_emission(table: Array, emission: Array) -> Array:
    """Return sum_k x_k log phi_sk for every month and state: (..., place, month, state)."""
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(emission), -1e300)
    return np.asarray(table @ np.swapaxes(logs, -1, -2)[..., None, :, :])


def tally(table: Array, paths: Array, states: int) -> Array:
    """Return the counts of each type that fall in months of each state: (..., state, type)."""
    member = (paths[..., None] == np.arange(states)).astype(float)
    spread = np.broadcast_to(table, (*paths.shape, table.shape[-1]))
    return np.asarray(np.einsum("...rts,...rtk->...sk", member, spread))


def draw_moves(paths: Array, states: int, prior: Prior, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw transition and initial probabilities given the hidden states; no data are looked at."""
    member = (paths[..., None] == np.arange(states)).astype(float)  # (..., place, month, state)
    moves = np.einsum("...rts,...rtu->...su", member[..., :-1, :], member[..., 1:, :])
    rows = dirichlet(prior.transitions(states) + moves, rng)
    return rows, dirichlet(prior.initial + member[..., 0, :].sum(axis=-2), rng)


def filter_forward(logs: Array, transition: Array, initial: Array) -> tuple[Array, Array]:
    """Filter forward: p(state | months so far), and the log-likelihood of each place.

    ``logs`` is (..., place, month, state); ``transition`` (..., state, state) and ``initial`` (..., state) lack the
    axes of place and month.
    """
    peak = logs.max(axis=-1, keepdims=True)
    weight = np.exp(logs - peak)
    filtered = np.empty(np.broadcast_shapes(logs.shape, (*transition.shape[:-2], 1, 1, logs.shape[-1])))
    loglik = np.broadcast_to(peak[..., 0].sum(axis=-1), filtered.shape[:-2]).copy()
    ahead = np.broadcast_to(initial[..., None, :], filtered[..., 0, :].shape)
    for t in range(logs.shape[-2]):
        now = ahead * weight[..., t, :] + 1e-300
        norm = now.sum(axis=-1, keepdims=True)
        now = now / norm
        filtered[..., t, :] = now
        loglik += np.log(norm[..., 0])
        ahead = now @ transition
    return filtered, loglik


def draw_paths(logs: Array, transition: Array, initial: Array, rng: np.random.Generator) -> Array:
    """Draw hidden states by forward filtering and backward sampling: (..., place, month)."""
    filtered, _ = filter_forward(logs, transition, initial)
    months = filtered.shape[-2]
    uniform = rng.random(filtered.shape[:-1])
    paths = np.empty(filtered.shape[:-1])
    into = np.swapaxes(transition, -1, -2)  # row: the next state
    chance = filtered[..., -1, :]
    for t in range(months - 1, -1, -1):
        steps = np.cumsum(chance, axis=-1)
        drawn = (uniform[..., t, None] * steps[..., -1:] >= steps[..., :-1]).sum(axis=-1)
        paths[..., t] = drawn
        if t:
            back = np.take_along_axis(into, drawn[..., None], axis=-2)  # (..., place, state): p(drawn | from)
            chance = filtered[..., t - 1, :] * back + 1e-300
    return paths
