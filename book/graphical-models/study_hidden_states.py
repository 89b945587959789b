"""The studies of hidden states: attacks in Iraq by place and month, and whether private posteriors are calibrated.

One event (an attack or a find, with its place, month and type) is the unit of privacy. Studies measure methods; they
publish nothing and spend no budget.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpbook import ConvergenceWarning, Posterior, Release, diagnostics
from dpbook.datasets import load_iraq_sigacts
from dpbook.graphical import hmm
from dpbook.studies import Study, cell_rng

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

SEED = 56
TYPES = ("direct_fire", "indirect_fire", "suicide_attack", "ied_attack", "ied_clear")
ORDER_BY = TYPES.index("ied_clear")  # states are numbered by their share of cleared devices
EPSILONS = (0.03, 0.1, 0.3, 1.0, 10.0)
METHODS = ("noise-aware", "naive", "exponential")
PRIOR = hmm.Prior(stay=2.0)
ACTIVITY = (2.0, 15.0)
CHAINS: dict[str, Any] = {"prior": PRIOR, "draws": 720, "chains": 1, "burn_in": 150}  # of the calibration


class Events(NamedTuple):
    """The table of events, (18, 61, 5), and what its axes stand for."""

    counts: Counts
    places: tuple[str, ...]
    months: tuple[str, ...]
    types: tuple[str, ...]


def events() -> Events:
    """Return 159,634 attacks and finds in Iraq's 18 governorates, February 2004 to February 2009, by month and type."""
    frame = load_iraq_sigacts().sort_values(["governorate", "month"])
    places = tuple(str(name) for name in frame["governorate"].cat.categories)
    months = tuple(sorted(frame["month"].dt.strftime("%Y-%m").unique()))
    counts = frame[list(TYPES)].to_numpy().reshape(len(places), len(months), len(TYPES))
    return Events(counts.astype(np.int64), places, months, TYPES)


def reference(states: int, *, draws: int = 800, counts: Counts | None = None, seed: int = SEED) -> Posterior:
    """Return the non-private posterior of the events (or of other counts), against which private ones are held."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        table = events().counts if counts is None else counts
        rng = cell_rng(seed, "reference", states)
        return hmm.infer_nonprivate(table, states=states, order_by=ORDER_BY, draws=draws, rng=rng)


@functools.cache
def _reference(states: int, seed: int) -> Posterior:
    return reference(states, seed=seed)


def posteriors_of(
    method: str,
    states: int,
    epsilon: float,
    *,
    trials: int,
    draws: int = 400,
    counts: Counts | None = None,
    seed: int = SEED,
) -> list[Posterior]:
    """Release the events ``trials`` times and infer from each release: noisy counts read in two ways, or the chain.

    The first two methods read the same releases. The private chain has 20 sweeps.
    """
    counts = events().counts if counts is None else counts
    rng = cell_rng(seed, method, states, epsilon)
    if method == "exponential":
        chain = [hmm.release_gibbs(counts, states=states, epsilon=epsilon, rng=rng) for _ in range(trials)]
        return hmm.infer(chain, order_by=ORDER_BY)
    noise = cell_rng(seed, "noise", epsilon)
    noisy = [hmm.release_counts(counts, epsilon=epsilon, rng=noise) for _ in range(trials)]
    options: dict[str, Any] = {"order_by": ORDER_BY, "draws": draws, "chains": 2, "burn_in": 100, "states": states}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return hmm.infer(noisy, method=method, rng=rng, **options)


def _one(method: str, states: int, epsilon: float, seed: int) -> Posterior:
    """Return the posterior of one release, or the non-private one."""
    if method == "non-private":
        return _reference(states, seed)
    return posteriors_of(method, states, epsilon, trials=1, seed=seed)[0]


class Fit(NamedTuple):
    """How near a posterior is to the non-private one, states matched as well as they can be."""

    distance: float  # half the sum of absolute differences of mean emission probabilities, averaged over states
    agreement: float  # the share of governorate-months whose most probable state is the same
    agreement_of_events: float  # the share of events in such months: quiet months hardly count
    log_likelihood: float  # of the true events under the posterior's mean parameters, nats per event


def compare(posterior: Posterior, truth: Posterior, counts: Counts) -> Fit:
    """Measure a posterior against the non-private one, states renamed so that most events agree."""
    states = len(truth.mean("initial"))
    mine, theirs = _likeliest(posterior, states), _likeliest(truth, states)
    weight = counts.sum(axis=-1)
    best = max(
        itertools.permutations(range(states)),
        key=lambda names: float((weight * (np.array(names)[mine] == theirs)).sum()),
    )
    same = np.array(best)[mine] == theirs
    gaps = [np.abs(posterior.mean("emission")[s] - truth.mean("emission")[best[s]]).sum() / 2 for s in range(states)]
    fitted = hmm.log_likelihood(
        counts, posterior.mean("emission"), posterior.mean("transition"), posterior.mean("initial")
    )
    events_that_agree = float((weight * same).sum() / weight.sum())
    return Fit(float(np.mean(gaps)), float(same.mean()), events_that_agree, float(fitted / counts.sum()))


def _likeliest(posterior: Posterior, states: int) -> NDArray[np.int64]:
    """Return the state that most draws give each governorate and month."""
    drawn = posterior.draws["states"]
    votes = np.stack([(drawn == s).mean(axis=(0, 1)) for s in range(states)])
    return np.asarray(votes.argmax(axis=0), dtype=np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# Iraq


def emissions(states: int, epsilon: float, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Infer emission probabilities from one release, or without privacy (epsilon infinite), with 95 % intervals."""
    posterior = _one(method, states, epsilon, seed)
    mean, interval = posterior.mean("emission"), posterior.interval(0.95, "emission")
    rows = [
        (states, epsilon, method, s, TYPES[k], mean[s, k], *interval[s, k])
        for s, k in itertools.product(range(states), range(len(TYPES)))
    ]
    return pd.DataFrame(rows, columns=["states", "epsilon", "method", "state", "type", "mean", "low", "high"])


def paths(*, trials: int, seed: int) -> pd.DataFrame:
    """Tell how probable the second of two states is in every place and month, one column per method and epsilon."""
    data = events()
    table = pd.DataFrame(itertools.product(data.places, data.months), columns=["place", "month"])
    table["events"] = data.counts.sum(axis=-1).ravel()
    table["non-private"] = _reference(2, seed).mean("states").ravel()
    for method, epsilon in itertools.product(METHODS, (0.1, 1.0, 10.0)):
        table[f"{method} {epsilon:g}"] = _one(method, 2, epsilon, seed).mean("states").ravel()
    return table


def utility(states: int, epsilon: float, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Measure how near a method comes to the non-private posterior, release by release."""
    truth, counts = _reference(states, seed), events().counts
    private = method != "non-private"
    found = posteriors_of(method, states, epsilon, trials=trials, seed=seed) if private else [truth]
    rows = [(states, epsilon, method, trial, *compare(one, truth, counts)) for trial, one in enumerate(found)]
    return pd.DataFrame(rows, columns=["states", "epsilon", "method", "trial", *Fit._fields])


@functools.cache
def _made_and_its_posterior(name: str, seed: int) -> tuple[Counts, Posterior]:
    """Return Iraq's events, or as many that the fitted model has made, and their non-private posterior."""
    counts = events().counts
    if name == "simulated":
        fitted = _reference(2, seed)
        counts = as_the_model_would(fitted, counts, cell_rng(seed, "misfit"))
    return counts, reference(2, counts=counts, seed=seed)


def as_the_model_would(truth: Posterior, counts: Counts, rng: np.random.Generator) -> Counts:
    """Draw states from the fitted chain, and events of their types, as many as each month had."""
    drawn = hmm.simulate_states(truth.mean("transition"), truth.mean("initial"), counts.shape[:2], rng=rng)
    made = rng.multinomial(counts.sum(axis=-1), truth.mean("emission")[drawn])
    return np.asarray(made, dtype=np.int64)


def misfit(name: str, epsilon: float, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Ask whether the model is to blame: hold Iraq's events beside as many that the model itself has made.

    The ``distance`` from the non-private posterior of the same events, and how many of its ten means of emission
    probabilities the 95 % intervals ``held``.
    """
    counts, truth = _made_and_its_posterior(name, seed)
    base, rows = truth.mean("emission"), []
    for trial, one in enumerate(posteriors_of(method, 2, epsilon, trials=trials, draws=600, counts=counts, seed=seed)):
        low, high = np.moveaxis(one.interval(0.95, "emission"), -1, 0)
        held = int(((low <= base) & (base <= high)).sum())
        rows.append((name, epsilon, method, trial, compare(one, truth, counts).distance, held))
    return pd.DataFrame(rows, columns=["events", "epsilon", "method", "trial", "distance", "held"])


# ---------------------------------------------------------------------------------------------------------------------
# Calibration


class World(NamedTuple):
    """Simulated events (trial, place, month, type) and their releases."""

    counts: Counts
    releases: list[Release]


def simulate(parameters: Mapping[str, Array], rng: np.random.Generator, epsilon: float) -> World:
    """Simulate events of 3 places, 10 months and 3 types from the model that the noise-aware posterior believes in.

    ``parameters`` are ``emission`` (trial, 2, 3), ``transition`` (trial, 2, 2) and ``first`` (trial, 2).
    """
    trials = len(parameters["emission"])
    drawn = hmm.simulate_states(parameters["transition"], parameters["first"], (3, 10), rng=rng)
    activity = rng.gamma(ACTIVITY[0], ACTIVITY[1] / ACTIVITY[0], drawn.shape)
    chosen = parameters["emission"][np.arange(trials)[:, None, None], drawn]
    counts = rng.poisson(activity[..., None] * chosen)
    counts[:, 0, 0, 0] += counts.sum(axis=(1, 2, 3)) == 0  # a release needs an event
    return World(counts, [hmm.release_counts(x, epsilon=epsilon, rng=rng) for x in counts])


def _prior_draw(rng: np.random.Generator, trials: int) -> dict[str, Array]:
    rows = np.stack([rng.dirichlet(PRIOR.transitions(2)[s], trials) for s in range(2)], axis=1)
    drawn = {
        "emission": rng.dirichlet(np.ones(3), (trials, 2)),
        "transition": rows,
        "initial": rng.dirichlet(np.ones(2), trials),
    }
    ordered = hmm.sort_states(drawn)
    return {"emission": ordered["emission"], "transition": ordered["transition"], "first": ordered["initial"]}


def _infer_all(world: World, rng: np.random.Generator, *, method: str) -> list[Posterior]:
    """Infer from all releases; at epsilon 100 the noise is 0, and naive reading is that of the true table."""
    if method == "non-private":
        assert all(np.array_equal(each["counts"], x) for each, x in zip(world.releases, world.counts, strict=True))
    options = CHAINS | ({"activity": ACTIVITY} if method == "noise-aware" else {})
    reading = "naive" if method == "non-private" else method
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return hmm.infer(world.releases, method=reading, paths=False, rng=rng, **options)


def _likelihood_of(parameters: Mapping[str, Array], world: World) -> Array:
    """Return a data-dependent quantity: the log-likelihood of the released counts, taken for true where positive."""
    noisy = np.stack([np.maximum(each["counts"], 0) for each in world.releases])
    half = np.full((*parameters["transition"].shape[:2], 2), 0.5)
    return np.asarray(hmm.log_likelihood(noisy[:, None], parameters["emission"], parameters["transition"], half))


def calibration(epsilon: float, method: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Calibrate a posterior by simulation; ``p`` is Holm-corrected within the cell, the smaller of both tests."""
    found = diagnostics.calibrate(
        _prior_draw,
        partial(simulate, epsilon=min(epsilon, 100.0)),
        partial(_infer_all, method=method),
        trials,
        draws=60,
        quantities={"log-likelihood": _likelihood_of},
        rng=cell_rng(seed, "calibration", epsilon, method),
    )
    rows = []
    for name in found.ks:
        smallest = min(p for (quantity, _), p in found.p_values.items() if quantity == name)
        shrunk = found.contraction.get(name, math.nan)
        rows.append((epsilon, method, name, found.ks[name], found.variance[name], smallest, shrunk))
    return pd.DataFrame(rows, columns=["epsilon", "method", "quantity", "ks", "variance", "p", "contraction"])


_CELLS: list[tuple[Any, ...]] = [
    (states, *cell)
    for states, epsilons in ((2, EPSILONS), (3, (0.3, 1.0, 10.0)))
    for cell in [(math.inf, "non-private"), *itertools.product(epsilons, METHODS)]
]
_CALIBRATED: list[tuple[Any, ...]] = [
    (math.inf, "non-private"),
    *itertools.product((0.1, 0.5, 2.0), ("noise-aware", "naive")),
]

STUDIES: dict[str, Study] = {
    "hmm_emissions": Study(emissions, _CELLS, seed=SEED),
    "hmm_paths": Study(paths, seed=SEED),
    "hmm_utility": Study(utility, _CELLS, trials=3, seed=SEED),
    "hmm_calibration": Study(calibration, _CALIBRATED, trials=200, seed=SEED),
    "hmm_misfit": Study(
        misfit,
        list(itertools.product(("Iraq", "simulated"), (0.1, 0.3, 1.0, 10.0), ("noise-aware", "naive"))),
        trials=5,
        seed=SEED,
    ),
}
