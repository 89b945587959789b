"""The curator's side of hidden states: the table of events noised once, or a Gibbs chain that pays for every look.

The data are events; one event is the unit of privacy, replace-one neighbours, n public. The count table (place by
month by type) is all that the Gibbs updates need, so it can be noised once (:func:`release_counts`), or every update
can be made private by itself (:func:`release_gibbs`), which costs again and again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpbook import noise
from dpbook._arrays import Array
from dpbook._validation import analyst_generator, flag, integer, seeded_generator, whole_array
from dpbook.budget import PrivacyBudget, charge
from dpbook.graphical.hmm.model import (
    COUNTS_MODEL,
    GIBBS_MODEL,
    Chain,
    Prior,
    checked_prior,
    dirichlet,
    draw_moves,
    draw_paths,
    log_emission,
    tally,
)
from dpbook.graphical.hmm.temperatures import assignment_loss, emission_loss, lattice_of
from dpbook.graphical.releases import checked_epsilon
from dpbook.release import Release
from dpbook.sensitivity import histogram

__all__ = ["release_counts", "release_gibbs"]

_MOST_EVENTS = 2**53  # whole numbers up to here are exact as floats


def release_counts(
    data: ArrayLike,
    *,
    epsilon: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the whole count table with two-sided geometric noise: the Laplace mechanism on whole numbers, once.

    epsilon-DP for replace-one neighbours, n public; the unit is one event. Proof: a replaced event leaves one cell of
    the table (its place, month and type) and enters another, so the table moves by 2 in L1, whatever the events are;
    noise with ratio ``exp(-epsilon/2)`` on each cell then changes the density by at most ``exp(epsilon)``. Everything
    computed from the noisy table, by however many Gibbs sweeps, is post-processing and costs nothing more. Someone
    who was present at k events is protected at k epsilon. Explained in :doc:`/book/graphical-models/hidden-states`.

    Parameters
    ----------
    data : array of int, shape (places, months, types)
        The sensitive table, as an array of any library that NumPy can read. A missing, negative or fractional count,
        and one beyond 64 bits, raises; only the curator may see that error.
    epsilon : float
        The privacy loss; not so small that noise would exceed 64-bit counts.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    Release
        With the noisy table as ``.values["counts"]`` (whole numbers, some negative) and the number of events as
        ``.n``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import hmm
    >>> table = np.array([[[9, 1], [8, 3], [0, 7]]])  # one place, three months, two types
    >>> noisy = hmm.release_counts(table, epsilon=1.0, rng=np.random.default_rng(1))
    >>> noisy["counts"].shape, noisy.n, noisy.sensitivity["counts"]
    ((1, 3, 2), 28, 2.0)
    """
    sensitivity = int(histogram())
    epsilon, rng = checked_epsilon(epsilon, sensitivity), seeded_generator(rng)
    table = count_table(data)
    paid = charge(budget, epsilon, 0.0, label="hmm counts")
    made = Release(
        values={"counts": noise.add_geometric(table, sensitivity, epsilon, rng)},
        model=COUNTS_MODEL,
        mechanism="geometric",
        scale={"counts": sensitivity / epsilon},
        sensitivity={"counts": float(sensitivity)},
        epsilon=epsilon,
        n=int(table.sum()),
        settings={"unit": "one event"},
        float_safe=rng is None,
    )
    return paid.entered(made)


def release_gibbs(
    data: ArrayLike,
    *,
    states: int,
    epsilon: float,
    sweeps: int = 20,
    prior: Prior | None = None,
    floor: float = 0.01,
    grid: int = 200,
    insecure: bool = False,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release a Gibbs chain whose every look at the data is an exponential mechanism; the cost adds over all of them.

    epsilon-DP for replace-one neighbours, n public; the unit is one event. A sweep looks at the events twice, to draw
    the emission probabilities and to draw the hidden states; each look gets ``epsilon / (2 sweeps)``. Transition and
    initial probabilities are drawn from the hidden states, which are already public, and cost nothing. The likelihood
    is raised to the power 1/T in each draw; the priors, which hold no data, are not flattened. An unconverged chain
    is as private as a converged one, because every state of it is paid for, and no more.

    Proof sketch. A draw with probability proportional to ``base(r) exp(u(r)/T)`` has privacy loss at most
    ``(max d - min d)/T``, where ``d(r)`` is the change of ``u(r)`` between neighbours. For the emissions
    ``u = sum n_sk log phi_sk``; a replaced event takes 1 from one of the n and adds 1 to another, so
    ``d = log phi_s'k' - log phi_sk`` and, on the public lattice where ``floor <= phi <= top = 1 - (K-1) floor``, its
    range is ``2 log(top/floor)``. For the hidden states given phi, drawn for all places at once by forward filtering
    and backward sampling, the replaced event changes the likelihood of at most two months, so the range of d is at
    most ``2 max_k log(max_s phi_sk / min_s phi_sk)``: phi is public by then, so this T is chosen from the phi just
    drawn. T is never below 1. Explained in :doc:`/book/graphical-models/hidden-states`.

    Parameters
    ----------
    data : array of int, shape (places, months, types)
        The sensitive table. A missing, negative or fractional count, and one beyond 64 bits, raises; only the curator
        may see that error.
    states : int
        The number of hidden states, at least 2.
    epsilon : float
        The privacy loss of the whole chain.
    sweeps : int, default 20
        How many sweeps, all of them published. More sweeps means hotter ones.
    prior : Prior, optional
        By default uniform.
    floor : float, default 0.01
        No emission probability is below it: without a floor the log-likelihood is unbounded and nothing is private.
    grid : int, default 200
        Emission probabilities are multiples of 1/grid, at most 10,000; on this lattice the draw is exact, by dynamic
        programming.
    insecure : bool, default False
        Must be True for a real release (``rng=None``): the draws are exact on the lattice, but their probabilities
        are floats, for which no safe sampler exists. The release says ``float_safe=False`` in any case.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, means a real release.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.

    Returns
    -------
    Release
        With ``emission`` (sweep, state, type), ``states`` (sweep, place, month), ``transition`` (sweep, state, state)
        and ``initial`` (sweep, state) as values; ``scale`` is the temperature of the emission draws, which is also the
        hottest that a draw of the states can be.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import hmm
    >>> table = np.array([[[90, 10], [80, 30], [5, 70]]])
    >>> chain = hmm.release_gibbs(table, states=2, epsilon=1.0, sweeps=5, rng=np.random.default_rng(1))
    >>> chain["states"].shape, round(chain.scale["emission"], 1)  # 2 sweeps looks of 2 log(0.99/0.01) each
    ((5, 1, 3), 91.9)
    """
    states, sweeps = integer("states", states, least=2), integer("sweeps", sweeps, least=1)
    epsilon, prior = checked_epsilon(epsilon, 2.0 * sweeps), checked_prior(prior)
    rng = seeded_generator(rng)
    if not flag("insecure", insecure) and rng is None:
        raise ValueError("insecure must be True for a real release: exponential-mechanism Gibbs has no safe sampler")
    table = count_table(data)
    least, grid = lattice_of(floor, grid, table.shape[2])
    step, loss = epsilon / (2 * sweeps), emission_loss(least, grid, table.shape[2])
    paid = charge(budget, epsilon, 0.0, label="hmm gibbs")
    generator = analyst_generator(rng)
    chain = _private_chain(table, states, sweeps, step, loss, prior, (least, grid), generator)
    hottest = max(1.0, loss / step)
    made = Release(
        values={
            "emission": chain.emission,
            "states": chain.states.astype(np.int64),
            "transition": chain.transition,
            "initial": chain.initial,
        },
        model=GIBBS_MODEL,
        mechanism="exponential",
        scale={"emission": hottest, "states": hottest, "transition": hottest, "initial": hottest},
        sensitivity={"emission": loss / 2, "states": loss / 2, "transition": loss / 2, "initial": loss / 2},
        epsilon=epsilon,
        n=int(table.sum()),
        bounds={"emission": (least / grid, 1.0)},
        settings={"unit": "one event", "sweeps": sweeps, "grid": grid, "epsilon_a_look": step, "looks": 2 * sweeps},
        float_safe=False,
    )
    return paid.entered(made)


def count_table(data: ArrayLike) -> NDArray[np.int64]:
    """Return the true table, checked."""
    try:
        np.shape(data)
    except ValueError:
        raise ValueError("data must have shape (places, months, types), got rows of different lengths") from None
    table = whole_array("data", data)
    if table.ndim != 3 or 0 in table.shape or table.shape[2] < 2:
        raise ValueError(f"data must have shape (places, months, types) with at least 2 types, got {table.shape}")
    if (table < 0).any():
        raise ValueError("data must not be negative")
    if not table.any():
        raise ValueError("data must hold at least one event")
    if float(table.sum(dtype=float)) > _MOST_EVENTS:
        raise ValueError(f"data must hold at most {_MOST_EVENTS} events: totals would not be exact beyond")
    return table


def _private_chain(
    table: NDArray[np.int64],
    states: int,
    sweeps: int,
    step: float,
    loss: float,
    prior: Prior,
    lattice: tuple[int, int],
    rng: np.random.Generator,
) -> Chain:
    """Run the sweeps. Every look at ``table`` is at a temperature that makes it ``step``-DP."""
    rows = dirichlet(prior.transitions(states), rng)
    first = dirichlet(np.full(states, prior.initial), rng)
    paths = draw_paths(np.zeros((*table.shape[:2], states)), rows, first, rng)  # from the prior: no data yet
    kept = []
    for _ in range(sweeps):
        tallies = tally(table.astype(float), paths, states)
        emission = _draw_on_lattice(tallies / max(1.0, loss / step) + prior.emission - 1, *lattice, rng)
        heat = max(1.0, assignment_loss(emission) / step)
        paths = draw_paths(log_emission(table.astype(float), emission) / heat, rows, first, rng)
        rows, first = draw_moves(paths, states, prior, rng)
        kept.append(Chain(emission, rows, first, paths))
    return Chain(*(np.stack(field) for field in zip(*kept, strict=True)))


def _draw_on_lattice(power: Array, least: int, grid: int, rng: np.random.Generator) -> Array:
    """Draw each row of probabilities j/grid, all at least ``least/grid``, in proportion to the product of phi^power.

    ``power`` has shape (state, type). Backward sums over the remaining mass, then types drawn one after another: exact.
    """
    states, types = power.shape
    mass = np.arange(grid + 1)
    weights = power[..., None] * np.log(np.maximum(mass, 1) / grid)  # (state, type, numerator)
    weights[..., :least] = -np.inf
    left = mass[:, None] - mass  # mass that remains when a type takes the column's share
    rest = [weights[:, -1]]
    for k in range(types - 2, 0, -1):
        both = weights[:, k, None, :] + np.where(left >= 0, rest[-1][:, np.maximum(left, 0)], -np.inf)
        rest.append(special.logsumexp(both, axis=-1))
    remaining = np.full(states, grid)
    drawn = np.empty((states, types))
    for k in range(types - 1):
        left = remaining[:, None] - mass
        tail = np.take_along_axis(rest[types - 2 - k], np.maximum(left, 0), axis=1)
        chances = np.where(left >= 0, weights[:, k] + tail, -np.inf)
        drawn[:, k] = np.argmax(chances + rng.gumbel(size=chances.shape), axis=1)
        remaining = remaining - drawn[:, k].astype(np.int64)
    drawn[:, -1] = remaining
    return drawn / grid
