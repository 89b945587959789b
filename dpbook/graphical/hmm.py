"""Hidden Markov models of event counts: private releases of the table, private Gibbs sampling, and inference.

Each place has a chain of hidden states, one a month; an event in a month is of a type drawn from the state's emission
probabilities. The data are the events; one event is the unit of privacy, replace-one neighbours, n public. The count
table (place by month by type) is all that the Gibbs updates need, so it can be noised once (:func:`release_counts`),
or every update can be made private by itself (:func:`release_gibbs`), which costs again and again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpbook import noise
from dpbook._arrays import Array
from dpbook._validation import (
    Option,
    analyst_generator,
    at_least,
    finite_array,
    flag,
    flag_option,
    fraction,
    integer,
    method_options,
    one_of,
    positive,
    seeded_generator,
    whole_array,
    whole_option,
)
from dpbook.budget import PrivacyBudget, charge
from dpbook.graphical.releases import checked_epsilon, optional
from dpbook.posterior import Posterior, warn_if_unconverged
from dpbook.release import Release
from dpbook.sampling import posteriors, run
from dpbook.sensitivity import histogram

__all__ = [
    "METHODS",
    "Preview",
    "Prior",
    "infer",
    "infer_nonprivate",
    "log_likelihood",
    "preview",
    "release_counts",
    "release_gibbs",
]

METHODS = ("noise-aware", "naive")
COUNTS_MODEL = "hmm counts"
GIBBS_MODEL = "hmm gibbs"
_LEAST_RATIO = math.exp(-15)  # below, geometric noise is zero but for a chance of 6 in 10 million a cell
_MOST_EVENTS = 2**53  # whole numbers up to here are exact as floats
_MOST_VISITS = 1e12  # of a prior: beyond, sums of Gamma draws may overflow
_FINEST_GRID = 10_000  # the exact draw on the lattice needs its square
_ANNEALING = 150  # warm-up sweeps over which the likelihood grows from a hundredth of its weight to all of it


@dataclass(frozen=True)
class Prior:
    """Dirichlet priors of a hidden Markov model, the same for every state, so that labels are exchangeable.

    Attributes
    ----------
    emission : float
        Concentration of each state's emission probabilities; 1 is uniform.
    transition : float
        Concentration of each row of the transition matrix.
    stay : float
        Added to the concentration of the diagonal: prior visits that stayed where they were.
    initial : float
        Concentration of the first month's state probabilities.

    Examples
    --------
    >>> from dpbook.graphical import hmm
    >>> hmm.Prior(stay=5.0)
    Prior(emission=1.0, transition=1.0, stay=5.0, initial=1.0)

    Explained in :doc:`/book/graphical-models/hidden-states`.
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

    def _transition(self, states: int) -> Array:
        return np.full((states, states), self.transition) + self.stay * np.eye(states)


# ---------------------------------------------------------------------------------------------------------------------
# The curator's side


def release_counts(
    counts: ArrayLike,
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
    who was present at k events is protected at k epsilon.

    Parameters
    ----------
    counts : array of int, shape (places, months, types)
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

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    sensitivity = _table_sensitivity()
    epsilon, rng = checked_epsilon(epsilon, sensitivity), seeded_generator(rng)
    table = _count_table(counts)
    charge(budget, epsilon, 0.0, label="hmm counts")
    return Release(
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


def release_gibbs(
    counts: ArrayLike,
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
    drawn. T is never below 1.

    Parameters
    ----------
    counts : array of int, shape (places, months, types)
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

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    states, sweeps = integer("states", states, least=2), integer("sweeps", sweeps, least=1)
    epsilon, prior = checked_epsilon(epsilon, 2.0 * sweeps), _checked_prior(prior)
    rng = seeded_generator(rng)
    if not flag("insecure", insecure) and rng is None:
        raise ValueError("insecure must be True for a real release: exponential-mechanism Gibbs has no safe sampler")
    table = _count_table(counts)
    least, grid = _lattice(floor, grid, table.shape[2])
    step, loss = epsilon / (2 * sweeps), _emission_loss(least, grid, table.shape[2])
    charge(budget, epsilon, 0.0, label="hmm gibbs")
    generator = analyst_generator(rng)
    chain = _private_chain(table, states, sweeps, step, loss, prior, (least, grid), generator)
    hottest = max(1.0, loss / step)
    return Release(
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


@dataclass(frozen=True)
class Preview:
    """What a release of events would be worth, from public numbers alone.

    Attributes
    ----------
    noise_scale, noise_sd : float
        Of the geometric noise on each cell of the table, when it is noised once.
    events_a_cell : float
        The public mean count of a cell, to hold against the noise.
    temperature : float
        The temperature of the emission draws, when every update is an exponential mechanism.
    effective_events : float
        n over the temperature: how many events the exponential mechanism's updates listen to.

    Examples
    --------
    >>> from dpbook.graphical import hmm
    >>> look = hmm.preview((18, 61, 5), n=160_000, epsilon=1.0)
    >>> look.noise_scale, round(look.temperature), round(look.effective_events)
    (2.0, 365, 438)

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """

    noise_scale: float
    noise_sd: float
    events_a_cell: float
    temperature: float
    effective_events: float


def preview(
    shape: tuple[int, int, int],
    *,
    n: int,
    epsilon: float,
    sweeps: int = 20,
    floor: float = 0.01,
    grid: int = 200,
) -> Preview:
    """Say, before anything is spent, how noisy the table would be and how hot the private Gibbs sampler.

    Parameters
    ----------
    shape : (places, months, types)
        Of the table.
    n : int
        The public number of events.
    epsilon : float
        The privacy loss.
    sweeps, floor, grid
        As in :func:`release_gibbs`.

    Returns
    -------
    Preview
        Noise and temperature.

    Examples
    --------
    >>> from dpbook.graphical import hmm
    >>> round(hmm.preview((18, 61, 5), n=160_000, epsilon=0.1).noise_sd, 1)  # against 29 events a cell
    28.3

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    if not isinstance(shape, Sequence) or len(shape) != 3:
        raise TypeError(f"shape must be (places, months, types), got {shape!r}")
    places, months, types = (integer("shape", size, least=1) for size in shape)
    n, epsilon = integer("n", n, least=1), positive("epsilon", epsilon)
    least, grid = _lattice(floor, grid, integer("shape", types, least=2))
    sensitivity = _table_sensitivity()
    ratio = math.exp(-epsilon / sensitivity)
    temperature = max(1.0, _emission_loss(least, grid, types) * 2 * integer("sweeps", sweeps, least=1) / epsilon)
    return Preview(
        noise_scale=sensitivity / epsilon,
        noise_sd=math.sqrt(2 * ratio) / -math.expm1(-epsilon / sensitivity),
        events_a_cell=n / (places * months * types),
        temperature=temperature,
        effective_events=n / temperature,
    )


def _table_sensitivity() -> int:
    return int(histogram())


def _count_table(counts: ArrayLike) -> NDArray[np.int64]:
    try:
        np.shape(counts)
    except ValueError:
        raise ValueError("counts must have shape (places, months, types), got rows of different lengths") from None
    table = whole_array("counts", counts)
    if table.ndim != 3 or 0 in table.shape or table.shape[2] < 2:
        raise ValueError(f"counts must have shape (places, months, types) with at least 2 types, got {table.shape}")
    if (table < 0).any():
        raise ValueError("counts must not be negative")
    if not table.any():
        raise ValueError("counts must hold at least one event")
    if float(table.sum(dtype=float)) > _MOST_EVENTS:
        raise ValueError(f"counts must hold at most {_MOST_EVENTS} events: totals would not be exact beyond")
    return table


def _lattice(floor: float, grid: int, types: int) -> tuple[int, int]:
    """Return the smallest numerator and the denominator of the lattice of emission probabilities."""
    floor, grid = fraction("floor", floor), integer("grid", grid, least=2 * types)
    if grid > _FINEST_GRID:
        raise ValueError(f"grid must be at most {_FINEST_GRID}, got {grid}")
    least = math.ceil(floor * grid - 1e-9)
    if least * types >= grid:
        raise ValueError(f"floor must leave room for {types} types: less than {1 / types:.3g}, got {floor}")
    return least, grid


def _emission_loss(least: int, grid: int, types: int) -> float:
    """Return the range of the change of log-likelihood between neighbours, 2 log(top / floor), on the lattice."""
    return 2 * math.log((grid - (types - 1) * least) / least)


def _assignment_loss(emission: Array) -> float:
    """Return a bound on the range, over hidden states, of the change of log-likelihood between neighbours."""
    return 2 * float(np.log(emission.max(axis=-2) / emission.min(axis=-2)).max())


class _Chain(NamedTuple):
    emission: Array  # (..., state, type)
    transition: Array  # (..., state, state)
    initial: Array  # (..., state)
    states: Array  # (..., place, month)


def _private_chain(
    table: NDArray[np.int64],
    states: int,
    sweeps: int,
    step: float,
    loss: float,
    prior: Prior,
    lattice: tuple[int, int],
    rng: np.random.Generator,
) -> _Chain:
    """Run the sweeps. Every look at ``table`` is at a temperature that makes it ``step``-DP."""
    rows = _dirichlet(prior._transition(states), rng)
    first = _dirichlet(np.full(states, prior.initial), rng)
    paths = _draw_paths(np.zeros((*table.shape[:2], states)), rows, first, rng)  # from the prior: no data yet
    kept = []
    for _ in range(sweeps):
        tallies = _tallies(table.astype(float), paths, states)
        emission = _draw_on_lattice(tallies / max(1.0, loss / step) + prior.emission - 1, *lattice, rng)
        heat = max(1.0, _assignment_loss(emission) / step)
        paths = _draw_paths(_log_emission(table.astype(float), emission) / heat, rows, first, rng)
        rows, first = _draw_moves(paths, states, prior, rng)
        kept.append(_Chain(emission, rows, first, paths))
    return _Chain(*(np.stack(field) for field in zip(*kept, strict=True)))


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


# ---------------------------------------------------------------------------------------------------------------------
# The analyst's side


def _checked_activity(name: str, activity: Any) -> tuple[float, float]:
    try:
        shape, mean = activity
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a pair (shape, mean), got {activity!r}") from None
    return positive(f"{name}[0]", shape), positive(f"{name}[1]", mean)


def _checked_prior(prior: Any) -> Prior:
    if prior is not None and not isinstance(prior, Prior):
        raise TypeError(f"prior must be a hmm.Prior, got {type(prior).__name__}")
    return Prior() if prior is None else prior


_CHAIN = "none, a private chain"
_SAMPLED: dict[str, Option] = {
    "states": whole_option(2),
    "prior": optional(Option("a hmm.Prior", lambda name, value: _checked_prior(value))),
    "draws": whole_option(1),
    "chains": whole_option(1),
    "burn_in": optional(whole_option(0)),
    "rng": Option("a numpy.random.Generator, or None", lambda name, value: analyst_generator(value)),
    "progress": flag_option(),
}
OPTIONS: dict[str, dict[str, Option]] = {
    "noise-aware": _SAMPLED | {"activity": optional(Option("a pair (shape, mean)", _checked_activity))},
    "naive": _SAMPLED,
    _CHAIN: {},
}


@overload
def infer(
    release: Release, *, method: str | None = None, order_by: int = 0, paths: bool = True, **options: Any
) -> Posterior: ...
@overload
def infer(
    release: Sequence[Release], *, method: str | None = None, order_by: int = 0, paths: bool = True, **options: Any
) -> list[Posterior]: ...
def infer(
    release: Release | Sequence[Release],
    *,
    method: str | None = None,
    order_by: int = 0,
    paths: bool = True,
    **options: Any,
) -> Posterior | list[Posterior]:
    """Infer emissions, transitions and hidden states from a release: post-processing, which costs no privacy.

    From noisy counts (:func:`release_counts`), ``"noise-aware"`` treats the true counts as unknown. Each month of each
    place has an activity with a Gamma prior; given the activity and the state, true counts are Poisson, so that given
    the month's total they are multinomial. The sum over a true count is closed, so hidden states are drawn with the
    counts integrated out, then the counts given the states, exactly (no normal approximation); the one thing left
    unused is that the true counts add up to the public n. ``"naive"`` sets negative counts to 0 and takes the table
    for the truth.

    From a private chain (:func:`release_gibbs`) nothing is sampled any more: the second half of the published sweeps
    becomes the posterior's draws. They are draws at a temperature, not from the posterior.

    States have no names of their own: in every draw they are put in the order of their emission probability of the
    type ``order_by``, smallest first.

    Parameters
    ----------
    release : Release or sequence of Release
        Of noisy tables of one shape, run as one batch, or of private chains.
    method : {"noise-aware", "naive"}, optional
        How a noisy table is read; by default ``"noise-aware"``. A private chain is read in one way and takes none.
    order_by : int, default 0
        The type whose emission probability orders the states.
    paths : bool, default True
        Whether to keep the draws of the hidden states, as ``states``.
    **options
        Of a noisy table alone; one that does not apply is refused.

        - ``states`` (int, default 2): the number of hidden states; a private chain has its own.
        - ``prior`` (:class:`Prior`): by default uniform.
        - ``activity`` ((shape, mean), ``"noise-aware"`` only): the Gamma prior of a month's expected number of events
          in a place. By default shape 0.5, and as mean the public n over the number of months and places.
        - ``draws`` (int, default 1000): draws in all, over all chains.
        - ``chains`` (int, default 4): independent chains; each warms up with a likelihood that grows to full weight.
        - ``burn_in`` (int): sweeps before the first that counts, a chain; by default as many as after it.
        - ``rng`` (:class:`numpy.random.Generator`): the source of randomness; by default a fresh one.
        - ``progress`` (bool, default False): whether to show a progress bar.

    Returns
    -------
    Posterior or list of Posterior
        With draws of ``emission`` (state, type), ``transition`` (state, state), ``initial`` (state,) and ``states``
        (place, month).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import hmm
    >>> table = np.array([[[45, 5]] * 5 + [[10, 40]] * 5])
    >>> noisy = hmm.release_counts(table, epsilon=1.0, rng=np.random.default_rng(1))
    >>> posterior = hmm.infer(noisy, draws=1000, rng=np.random.default_rng(2))
    >>> posterior.mean("emission").round(1)
    array([[0.2, 0.8],
           [0.9, 0.1]])
    >>> posterior.mean("states").round()
    array([[1., 1., 1., 1., 1., 0., 0., 0., 0., 0.]])

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    releases = [release] if isinstance(release, Release) else list(release) if isinstance(release, Iterable) else []
    if not releases or not all(isinstance(each, Release) for each in releases):
        raise TypeError("release must be a Release or a non-empty sequence of them")
    order_by, paths = integer("order_by", order_by, least=0), flag("paths", paths)
    if releases[0].model == GIBBS_MODEL:
        if method is not None:
            raise ValueError(f"method must not be given: a private chain is read in one way; got {method!r}")
        method_options(_CHAIN, options, OPTIONS)
        found = [_of_private_chain(each, order_by, paths) for each in releases]
        return found[0] if isinstance(release, Release) else found
    method = "noise-aware" if method is None else one_of("method", method, METHODS)
    chosen = method_options(method, options, OPTIONS)
    activity = chosen.pop("activity", None)
    noisy = _noisy_tables(releases)
    if method == "naive":
        observed: Any = _Exact(np.maximum(noisy, 0.0))
    else:
        ratio = np.array([max(math.exp(-1 / each.scale["counts"]), _LEAST_RATIO) for each in releases])
        gamma = np.array([_activity(each) if activity is None else activity for each in releases])
        observed = _Noisy(noisy, ratio, gamma[:, 0], gamma[:, 1])
    found = _sample(observed, order_by, paths, method, **chosen)
    for each in found:
        warn_if_unconverged(Posterior({k: v for k, v in each.draws.items() if k != "states"}))
    return found[0] if isinstance(release, Release) else found


def infer_nonprivate(
    counts: ArrayLike,
    *,
    states: int = 2,
    prior: Prior | None = None,
    order_by: int = 0,
    draws: int = 1000,
    chains: int = 4,
    burn_in: int | None = None,
    paths: bool = True,
    rng: np.random.Generator | None = None,
    progress: bool = False,
) -> Posterior:
    """Infer emissions, transitions and hidden states from the true table: the comparator, which is not private.

    Parameters
    ----------
    counts : array of int, shape (places, months, types)
        The true table.
    states, prior, order_by, draws, chains, burn_in, paths, rng, progress
        As in :func:`infer`.

    Returns
    -------
    Posterior
        As from :func:`infer`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import hmm
    >>> table = np.array([[[45, 5]] * 5 + [[10, 40]] * 5])
    >>> hmm.infer_nonprivate(table, draws=400, rng=np.random.default_rng(2)).mean("emission").round(1)
    array([[0.2, 0.8],
           [0.9, 0.1]])

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    order_by, paths = integer("order_by", order_by, least=0), flag("paths", paths)
    given = {"states": states, "prior": prior, "draws": draws, "chains": chains, "burn_in": burn_in}
    chosen = method_options("naive", given | {"rng": rng, "progress": progress}, OPTIONS)
    observed = _Exact(_count_table(counts).astype(float)[None])
    found = _sample(observed, order_by, paths, "non-private", **chosen)[0]
    warn_if_unconverged(Posterior({k: v for k, v in found.draws.items() if k != "states"}))
    return found


def log_likelihood(counts: ArrayLike, emission: ArrayLike, transition: ArrayLike, initial: ArrayLike) -> Any:
    """Return the log-probability of a table of counts, hidden states summed out, given each month's total.

    Parameters
    ----------
    counts : array, shape (..., places, months, types)
        Tables.
    emission : array, shape (..., states, types)
        Emission probabilities; leading axes broadcast with those of ``counts``.
    transition : array, shape (..., states, states)
        Row: from; column: to.
    initial : array, shape (..., states)
        Probabilities of the first month's state.

    Returns
    -------
    float or array
        The sum over places of log p(types of the events, in their order), without multinomial coefficients.

    Examples
    --------
    >>> from dpbook.graphical import hmm
    >>> round(hmm.log_likelihood([[[3, 1]]], [[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1], [0.1, 0.9]], [0.5, 0.5]), 3)
    -2.773

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    given = {"counts": counts, "emission": emission, "transition": transition, "initial": initial}
    table, phi, rows, first = (finite_array(name, each) for name, each in given.items())
    logs = _log_emission(table, phi)
    total = _filter(logs, rows, first)[1].sum(axis=-1)
    return float(total) if np.ndim(total) == 0 else total


def _noisy_tables(releases: Sequence[Release]) -> Array:
    for each in releases:
        each.require(model=COUNTS_MODEL)
    shapes = {each["counts"].shape for each in releases}
    if len(shapes) != 1:
        raise ValueError(f"release must hold tables of one shape, got {sorted(shapes)}")
    return np.stack([each["counts"] for each in releases]).astype(float)


def _activity(release: Release) -> tuple[float, float]:
    """Return the default Gamma prior of a month's events, (shape, mean)."""
    return 0.5, release.n / math.prod(release["counts"].shape[:2])


def _of_private_chain(release: Release, order_by: int, paths: bool) -> Posterior:
    release.require(model=GIBBS_MODEL)
    sweeps, types = len(release["emission"]), release["emission"].shape[-1]
    if order_by >= types:
        raise ValueError(f"order_by must be a type, 0 to {types - 1}, got {order_by}")
    kept = {name: release[name][None, sweeps // 2 :].astype(float) for name in _Chain._fields}
    ordered = _in_order(kept, order_by, paths)
    return Posterior(ordered, "exponential")


def _sample(
    observed: _Exact,
    order_by: int,
    paths: bool,
    method: str,
    *,
    states: int = 2,
    prior: Prior | None = None,
    draws: int = 1000,
    chains: int = 4,
    burn_in: int | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
) -> list[Posterior]:
    """Run the Gibbs sampler on a batch of tables and return one posterior each."""
    types = observed.table.shape[-1]
    if order_by >= types:
        raise ValueError(f"order_by must be a type, 0 to {types - 1}, got {order_by}")
    rng, prior = analyst_generator(rng), _checked_prior(prior)
    each = math.ceil(draws / chains)
    burn_in = each if burn_in is None else burn_in
    start = observed.start(chains, states, prior, rng)
    fields = ("emission", "transition", "initial", *(["states"] if paths else []))
    for power in np.geomspace(0.01, 1.0, _ANNEALING):
        start, _ = observed.sweep(rng, start, prior, power)
    step = partial(observed.sweep, prior=prior)
    kept = run(step, start, draws=each, burn_in=burn_in, keep=fields, rng=rng, progress=progress, label="hmm")
    return posteriors(_in_order(kept, order_by, paths), method=method)


def _in_order(kept: dict[str, Array], order_by: int, paths: bool) -> dict[str, Array]:
    """Rename the states of every draw so that their emission probabilities of one type increase."""
    order = np.argsort(kept["emission"][..., order_by], axis=-1)
    ordered = {
        "emission": np.take_along_axis(kept["emission"], order[..., None], axis=-2),
        "transition": np.take_along_axis(
            np.take_along_axis(kept["transition"], order[..., None], axis=-2), order[..., None, :], axis=-1
        ),
        "initial": np.take_along_axis(kept["initial"], order, axis=-1),
    }
    if paths:
        rank = np.argsort(order, axis=-1)
        old = kept["states"].astype(np.int64)
        flat = np.take_along_axis(rank, old.reshape(*old.shape[:-2], -1), axis=-1)
        ordered["states"] = flat.reshape(old.shape).astype(float)
    return ordered


# ---------------------------------------------------------------------------------------------------------------------
# The Gibbs sampler, batched over chains and tables


class _State(NamedTuple):
    emission: Array  # (chain, table, state, type)
    transition: Array  # (chain, table, state, state)
    initial: Array  # (chain, table, state)
    states: Array  # (chain, table, place, month)
    activity: Array  # (chain, table, place, month): expected events; not used where the table is exact


class _Exact:
    """The sampler where the table is, or is taken for, the truth."""

    def __init__(self, table: Array) -> None:
        self.table = table  # (table, place, month, type)

    def start(self, chains: int, states: int, prior: Prior, rng: np.random.Generator) -> _State:
        batch = (chains, len(self.table))
        types = self.table.shape[-1]
        rows = _dirichlet(np.broadcast_to(prior._transition(states), (*batch, states, states)), rng)
        return _State(
            emission=_dirichlet(np.full((*batch, states, types), prior.emission), rng),
            transition=rows,
            initial=_dirichlet(np.full((*batch, states), prior.initial), rng),
            states=rng.integers(0, states, (*batch, *self.table.shape[1:3])).astype(float),
            activity=np.ones((*batch, *self.table.shape[1:3])),
        )

    def sweep(self, rng: np.random.Generator, state: _State, prior: Prior, power: float = 1.0) -> tuple[_State, None]:
        states = state.emission.shape[-2]
        logs = power * _log_emission(self.table, state.emission)
        paths = _draw_paths(logs, state.transition, state.initial, rng)
        rows, first = _draw_moves(paths, states, prior, rng)
        emission = _dirichlet(prior.emission + power * _tallies(self.table, paths, states), rng)
        return _State(emission, rows, first, paths, state.activity), None


class _Noisy(_Exact):
    """The sampler where true counts are latent: Poisson given activity and state, seen through geometric noise."""

    def __init__(self, table: Array, ratio: Array, shape: Array, mean: Array) -> None:
        super().__init__(table)
        self.ratio = ratio[:, None, None, None]  # of the geometric noise, by table
        self._variance = 2 * self.ratio / (1 - self.ratio) ** 2  # of the noise on a cell
        self.shape, self.mean = shape[:, None, None], mean[:, None, None]

    def start(self, chains: int, states: int, prior: Prior, rng: np.random.Generator) -> _State:
        state = super().start(chains, states, prior, rng)
        # A month's noisy total less up to two sds of its noise: quiet months must not start as loud as their noise,
        # or a state for noise is found that the sampler takes long to leave.
        spread = np.sqrt(self.table.shape[-1] * self._variance[..., 0])
        total = np.maximum(self.table.sum(axis=-1) - 2 * rng.random(state.states.shape) * spread, 0)
        rough = rng.gamma(self.shape + total) / (1 + self.shape / self.mean)
        return state._replace(activity=np.maximum(rough, 1e-6))

    def sweep(self, rng: np.random.Generator, state: _State, prior: Prior, power: float = 1.0) -> tuple[_State, None]:
        states = state.emission.shape[-2]
        # Expected counts under each state: (chain, table, place, month, state, type). A power below 1, in the warm-up
        # only, is not applied to the draws of counts and activities: no law is stationary then, and none needs to be.
        mean = state.activity[..., None, None] * state.emission[:, :, None, None]
        logs = _log_noisy_count(self.table[..., None, :], mean, self.ratio[..., None])
        paths = _draw_paths(power * logs.sum(axis=-1), state.transition, state.initial, rng)
        rows, first = _draw_moves(paths, states, prior, rng)
        norm = np.take_along_axis(logs, paths.astype(np.int64)[..., None, None], axis=-2)[..., 0, :]
        activity, norm = self._leap_activity(rng, state, paths, norm, power)
        emission, norm = self._leap_emission(rng, state.emission, activity, paths, norm, prior, power)
        mean = activity[..., None] * _of_path(emission, paths)
        counts = _draw_counts(self.table, mean, self.ratio, norm, rng)
        emission = _dirichlet(prior.emission + power * _tallies(counts, paths, states), rng)
        activity = rng.gamma(self.shape + counts.sum(axis=-1)) / (1 + self.shape / self.mean)
        return _State(emission, rows, first, paths, np.maximum(activity, 1e-12)), None

    def _leap_activity(
        self, rng: np.random.Generator, state: _State, paths: Array, norm: Array, power: float
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
        new = _log_noisy_count(self.table, there[..., None] * law, self.ratio)
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
        prior: Prior,
        power: float,
    ) -> tuple[Array, Array]:
        """Propose emission probabilities in the same way, each state's around the present ones."""
        states, types = here.shape[-2:]
        member = (paths[..., None] == np.arange(states)).astype(float)
        events = np.einsum("...rts,...rt->...s", member, activity)
        # n events in m months, seen through noise of variance v a cell, tell as much as n / (1 + v m types / n).
        noise = self._variance[:, 0, 0] * member.sum(axis=(-3, -2)) * types
        weight = power * events**2 / (events + noise + 1e-300)
        there = _dirichlet(1 + weight[..., None] * here, rng)
        new = _log_noisy_count(self.table, activity[..., None] * _of_path(there, paths), self.ratio)
        gain = np.einsum("...rts,...rt->...s", member, (new - norm).sum(axis=-1))
        log_accept = power * gain + (prior.emission - 1) * np.log(there / here).sum(axis=-1)
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


def _dirichlet(concentration: Array, rng: np.random.Generator) -> Array:
    """Draw from Dirichlet laws along the last axis; tiny concentrations are kept from dividing 0 by 0."""
    gammas = rng.gamma(concentration) + 1e-300
    return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))


def _log_emission(table: Array, emission: Array) -> Array:
    """Return sum_k x_k log phi_sk for every month and state: (..., place, month, state)."""
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(emission), -1e300)
    return np.asarray(table @ np.swapaxes(logs, -1, -2)[..., None, :, :])


def _tallies(table: Array, paths: Array, states: int) -> Array:
    """Return the counts of each type that fall in months of each state: (..., state, type)."""
    member = (paths[..., None] == np.arange(states)).astype(float)
    spread = np.broadcast_to(table, (*paths.shape, table.shape[-1]))
    return np.asarray(np.einsum("...rts,...rtk->...sk", member, spread))


def _draw_moves(paths: Array, states: int, prior: Prior, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw transition and initial probabilities given the hidden states; no data are looked at."""
    member = (paths[..., None] == np.arange(states)).astype(float)  # (..., place, month, state)
    moves = np.einsum("...rts,...rtu->...su", member[..., :-1, :], member[..., 1:, :])
    rows = _dirichlet(prior._transition(states) + moves, rng)
    return rows, _dirichlet(prior.initial + member[..., 0, :].sum(axis=-2), rng)


def _filter(logs: Array, transition: Array, initial: Array) -> tuple[Array, Array]:
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


def _draw_paths(logs: Array, transition: Array, initial: Array, rng: np.random.Generator) -> Array:
    """Draw hidden states by forward filtering and backward sampling: (..., place, month)."""
    filtered, _ = _filter(logs, transition, initial)
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


def _log_noisy_count(y: Array, mean: Array, ratio: Array) -> Array:
    """Return log p(y) for a Poisson count of the given mean plus two-sided geometric noise: the sum is closed.

    Below y the terms are those of a Poisson law with mean/ratio, above y of one with mean*ratio, so that with their
    distribution functions F and G the sum is ``ratio^y e^(mean/ratio - mean) F(y) + ratio^-y e^(mean ratio - mean)
    (1 - G(y))``, times ``(1 - ratio)/(1 + ratio)``.
    """
    log_ratio = np.log(ratio)
    with np.errstate(over="ignore"):
        below = y * log_ratio + mean / ratio - mean + _log_poisson_cdf(y, mean / ratio)
        above = -y * log_ratio + mean * ratio - mean + _log_poisson_sf(y, mean * ratio)
    return np.asarray(np.logaddexp(below, above) + np.log1p(-ratio) - np.log1p(ratio))


def _log_poisson_cdf(y: Array, mean: Array) -> Array:
    """Return log P(X <= y), far tails included; -inf for negative y."""
    y, mean = np.broadcast_arrays(y, mean)
    with np.errstate(divide="ignore"):
        result = np.where(y < 0, -np.inf, np.log(special.pdtr(np.maximum(y, 0), mean)))
    far = (y >= 0) & (result < -600)
    if far.any():
        k, m = y[far], mean[far]
        # pmf(y) (1 + y/m + y(y-1)/m^2 + ...): a finite sum whose terms fall, because y < m there
        result[far] = _log_poisson(k, m) + np.log(_series(lambda j: np.maximum(k - j, 0) / m))
    return np.asarray(result)


def _log_poisson_sf(y: Array, mean: Array) -> Array:
    """Return log P(X > y), far tails included; 0 for negative y."""
    y, mean = np.broadcast_arrays(y, mean)
    with np.errstate(divide="ignore"):
        result = np.where(y < 0, 0.0, np.log(special.pdtrc(np.maximum(y, 0), mean)))
    far = (y >= 0) & (result < -600)
    if far.any():
        k, m = y[far] + 1, mean[far]
        result[far] = _log_poisson(k, m) + np.log(_series(lambda j: m / (k + 1 + j)))
    return np.asarray(result)


def _log_poisson(k: Array, mean: Array) -> Array:
    return np.asarray(special.xlogy(k, mean) - mean - special.gammaln(k + 1))


def _series(factor: Any) -> Array:
    """Return 1 + f(0) + f(0) f(1) + ..., to a relative 1e-14."""
    term = factor(0)
    total = 1 + term
    for j in range(1, 100_000):
        term = term * factor(j)
        total = total + term
        if (term <= 1e-14 * total).all():
            break
    return np.asarray(total)


def _draw_counts(y: Array, mean: Array, ratio: Array, log_norm: Array, rng: np.random.Generator) -> Array:
    """Draw true counts given noisy ones: p(x) in proportion to Poisson(x; mean) ratio^|y - x|, exactly.

    The law is log-concave, so Devroye's (1987) rejection for discrete log-concave laws applies: with the mode m and
    p = p(m), ``p(m + i) <= p min(1, exp(1 + p/2 - p |i|))`` up to rounding to whole numbers, and about one proposal
    in five is accepted, wherever the parameters lie.
    """
    shape = np.broadcast_shapes(y.shape, mean.shape, ratio.shape, log_norm.shape)
    y, mean, ratio, log_norm = (np.ravel(np.broadcast_to(each, shape)) for each in (y, mean, ratio, log_norm))
    low, high = np.floor(mean / ratio), np.floor(mean * ratio)
    mode = np.maximum(np.where(low <= y, low, np.where(high > y, high, y)), 0)
    log_noise = np.log1p(-ratio) - np.log1p(ratio)

    def log_weight(x: Array, at: Any) -> Array:
        return np.asarray(_log_poisson(x, mean[at]) + np.abs(y[at] - x) * np.log(ratio[at]))

    peak = log_weight(mode, slice(None))
    p = np.exp(np.minimum(peak + log_noise - log_norm, 0.0))
    p = np.maximum(p, 1e-12)
    drawn = np.empty(mean.size)
    left = np.arange(mean.size)
    while left.size:
        width = 1 + p[left] / 2
        inner = rng.random(left.size) * (1 + width) <= width
        far = np.where(inner, rng.random(left.size) * width, width + rng.exponential(size=left.size)) / p[left]
        x = mode[left] + np.round(far) * np.where(rng.random(left.size) < 0.5, -1.0, 1.0)
        log_accept = np.where(x >= 0, log_weight(np.maximum(x, 0), left) - peak[left], -np.inf)
        bound = np.minimum(0.0, width - p[left] * far)
        accepted = np.log(rng.random(left.size)) + bound <= log_accept
        drawn[left[accepted]] = x[accepted]
        left = left[~accepted]
    return drawn.reshape(shape)
