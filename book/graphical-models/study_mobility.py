"""The mobility study: itineraries over Chicago, learned as a chain that is homogeneous in time, private or not.

The city publishes trips, not itineraries, and one table of trips is one saturated clique with nothing to reconcile. So
itineraries are simulated, by a generator documented here, from the real table of taxi trips; everything measured is
measured on those. The unit of privacy is a person with all of their days.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpbook import graphical
from dpbook.datasets import load_chicago_areas, load_chicago_taxi
from dpbook.graphical import MarkovRandomField
from dpbook.studies import Study, cell_rng

Array = NDArray[np.float64]

SEED = 55
STOPS = ("s1", "s2", "s3", "s4", "s5", "s6")
AT_HOME = 0  # the state of every stop on a day without travel; areas are 1 to 77
DOMAIN: Mapping[str, int] = dict.fromkeys(STOPS, 78)
CLIQUES = graphical.chain(STOPS, tied=True)  # a table for the first stop, one for all steps
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
METHODS = ("naive", "cgm", "penalised", "dp-sgd", "non-private", "random")
RIDGES = (1.0, 10.0, 100.0)  # of naive fits with hindsight: the best on the hold-out, which nobody could choose
PERSONS = 20_000
GRID: Mapping[str, Sequence[float]] = {
    "learning_rate": (5.0, 10.0, 20.0),
    "clip": (0.3, 1.0),
    "sampling": (0.1,),
    "steps": (60, 240, 1000),
}
_SHOWN = 12  # areas in the picture of flows


class Trips(NamedTuple):
    """The chain that the generator walks on: where trips begin, and, row by row, where they go from each area."""

    start: Array  # (77,)
    steps: Array  # (77, 77)


def taxi_chain() -> Trips:
    """Return the start and step probabilities of the real table of 191,593 taxi trips.

    Areas from which no trip starts send a walker anywhere, in proportion to where trips start.
    """
    trips = load_chicago_taxi()
    table = np.zeros((77, 77))
    table[trips["pickup_area"] - 1, trips["dropoff_area"] - 1] = trips["trips"]
    start = table.sum(axis=1) / table.sum()
    rows = table.sum(axis=1, keepdims=True)
    return Trips(start, np.where(rows > 0, table / np.maximum(rows, 1), start))


def itineraries(
    persons: int = PERSONS, *, days: int = 3, travel: float = 0.6, rng: np.random.Generator
) -> pd.DataFrame:
    """Simulate people's days: on some they stay at home, on others they visit six areas one after another.

    Each day of each person is, independently, a day of travel with probability ``travel``. A travelling day starts
    where taxi trips start and moves five times as taxi trips move: a Markov chain with the shares of the real table.
    A day at home is a row of the state ``AT_HOME`` (0), which a release leaves out as null.
    """
    walk, size = taxi_chain(), persons * days
    edges, first = np.cumsum(walk.steps, axis=1), np.cumsum(walk.start)
    out = rng.random(size) < travel
    stops = np.empty((size, len(STOPS)), dtype=np.int64)
    stops[:, 0] = np.minimum(np.searchsorted(first, rng.random(size)), 76)
    for t in range(1, len(STOPS)):
        ahead = edges[stops[:, t - 1]]
        stops[:, t] = np.minimum((rng.random(size)[:, None] > ahead).sum(axis=1), 76)
    frame = pd.DataFrame(np.where(out[:, None], stops + 1, AT_HOME), columns=list(STOPS))
    frame.insert(0, "person", np.repeat(np.arange(persons), days))
    return frame


def hold_out(people: pd.DataFrame, rng: np.random.Generator, share: float = 0.25) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split people, with all of their days, into those to learn from and the share to be tested on."""
    names = people["person"].unique()
    tested = rng.permutation(names)[: round(share * len(names))]
    chosen = people["person"].isin(tested)
    return people[~chosen], people[chosen]


def days_out(people: pd.DataFrame) -> pd.DataFrame:
    """Return the days of travel."""
    return people[people["s1"] != AT_HOME]


def log_likelihood(field: MarkovRandomField, people: pd.DataFrame) -> float:
    """Return the mean log probability of a day of travel, in nats."""
    return float(field.log_prob(days_out(people)[list(STOPS)]).mean())


def learn(
    method: str,
    people: pd.DataFrame,
    epsilon: float,
    rng: np.random.Generator,
    *,
    settings: Mapping[str, float] | None = None,
    ridge: float | None = None,
) -> MarkovRandomField:
    """Learn the chain from people's days by one of ``METHODS``: four private ones, two references.

    A person adds 1/K to the table of steps for each of their K steps, and likewise to the table of first stops; days
    at home add nothing. Two tables: the release of both has sensitivity 4 under replacing a person. Noisy gradients
    have delta = 1/n and ``settings``; naive fits a ridge of 1e-4 by default, tiny on purpose, since the source says
    that it must be tuned and gives no number.
    """
    options: dict[str, Any] = {"person": "person", "null": AT_HOME}
    if method == "random":
        return graphical.random_field(DOMAIN, CLIQUES, rng=rng)
    if method == "non-private":
        return graphical.fit_nonprivate(people, DOMAIN, CLIQUES, ridge=0.1, tolerance=1e-6, **options)
    if method == "dp-sgd":
        chosen: dict[str, Any] = {"steps": 60} | dict(settings or {})
        training = graphical.Training(**(chosen | {"steps": int(chosen["steps"])}))
        potentials = graphical.release_dpsgd(
            people, DOMAIN, CLIQUES, epsilon=epsilon, training=training, rng=rng, **options
        )
        return graphical.field_of(potentials)
    noisy = graphical.release(people, DOMAIN, CLIQUES, epsilon=epsilon, rng=rng, **options)
    penalty: dict[str, Any] = {} if ridge is None else {"ridge": ridge}
    return graphical.fit(noisy, method=method, tolerance=1e-5, iterations=300, **penalty)


# ---------------------------------------------------------------------------------------------------------------------
# The studies


@functools.cache
def world(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the people to learn from and those to be tested on, the same in all cells."""
    return hold_out(itineraries(rng=cell_rng(seed, "people")), cell_rng(seed, "split"))


def noise_of(seed: int, epsilon: float, trial: int) -> np.random.Generator:
    """Return the noise of a release, the same for all methods that read it."""
    return cell_rng(seed, "noise", epsilon, trial)


def truth() -> MarkovRandomField:
    """Return the generator itself as a field: the log-likelihood that nobody can beat on average."""
    walk = taxi_chain()
    first, steps = np.full(78, -40.0), np.full((78, 78), -40.0)
    with np.errstate(divide="ignore"):
        first[1:] = np.maximum(np.log(walk.start), -40.0)
        steps[1:, 1:] = np.maximum(np.log(walk.steps), -40.0)
    steps[0] = -40.0 - np.log(78)
    return MarkovRandomField(DOMAIN, CLIQUES, [first, steps])


def tuning(epsilon: float, *, trials: int = 1, seed: int) -> pd.DataFrame:
    """Search settings of noisy gradients on the people to learn from, as the source does; not private."""
    people, _ = world(seed)
    tried = graphical.tune_dpsgd_nonprivate(
        people, DOMAIN, CLIQUES, epsilon=epsilon, grid=GRID, person="person", null=AT_HOME,
        rng=cell_rng(seed, "tuning", epsilon),
    )  # fmt: skip
    tried.insert(0, "epsilon", epsilon)
    return tried.assign(rank=np.arange(1, len(tried) + 1))


def holdout(method: str, epsilon: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Measure the hold-out log-likelihood of a method, in nats per day: the counterpart of Figure 3.6.

    ``"truth"`` is the generator itself; naive fits come with ``"naive, best ridge"``, chosen with hindsight. The people
    and their split are the same throughout; epsilon is infinite where a method is not private.
    """
    people, tested = world(seed)
    if method == "truth":
        return _scores([(epsilon, method, 0, log_likelihood(truth(), tested), 0.0)])
    settings = None
    if method == "dp-sgd":
        best = tuning(epsilon, seed=seed).query("rank == 1").iloc[0]
        settings = {name: float(best[name]) for name in GRID}
    rows = []
    for trial in range(1 if method == "non-private" else trials):
        rng = noise_of(seed, epsilon, trial) if method in METHODS[:3] else cell_rng(seed, method, epsilon, trial)
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            field = learn(method, people, epsilon, rng, settings=settings)
        seconds = time.process_time() - start
        rows.append((epsilon, method, trial, log_likelihood(field, tested), seconds))
        if method == "naive":
            tuned = [
                log_likelihood(learn("naive", people, epsilon, noise_of(seed, epsilon, trial), ridge=ridge), tested)
                for ridge in RIDGES
            ]
            rows.append((epsilon, "naive, best ridge", trial, max(tuned), math.nan))
    return _scores(rows)


def _scores(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["epsilon", "method", "trial", "log_likelihood", "seconds"])


def flows(*, trials: int, seed: int) -> pd.DataFrame:
    """Tell the shares of steps between the busiest areas, true and private, for a picture.

    The areas shown are chosen by looking at the data, for display only.
    """
    people, _ = world(seed)
    exact = graphical.clique_tables(people, DOMAIN, CLIQUES, person="person", null=AT_HOME)
    true = exact.tables[1] * exact.unit
    true = true / true.sum()
    shown = np.sort(np.argsort(true.sum(axis=1))[::-1][:_SHOWN])
    names = load_chicago_areas().set_index("area")["name"]
    pairs = list(itertools.product(shown, shown))
    table = pd.DataFrame({"from": [names[a] for a, _ in pairs], "to": [names[b] for _, b in pairs]})
    table["true"] = [true[a, b] for a, b in pairs]
    for method, epsilon in itertools.product(("naive", "cgm", "penalised"), (0.1, 1.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            field = learn(method, people, epsilon, noise_of(seed, epsilon, 0))
        flow = np.mean([field.marginal(pair) for pair in itertools.pairwise(STOPS)], axis=0)
        table[f"{method} {epsilon:g}"] = [flow[a, b] for a, b in pairs]
    return table


_REFERENCES = [(method, math.inf) for method in ("truth", "non-private", "random")]
_PRIVATE = [(method, epsilon) for epsilon, method in itertools.product(EPSILONS, METHODS[:4])]

STUDIES: dict[str, Study] = {
    "mobility_tuning": Study(tuning, [(epsilon,) for epsilon in EPSILONS], seed=SEED),
    "mobility_holdout": Study(holdout, [*_REFERENCES, *_PRIVATE], trials=10, seed=SEED),
    "mobility_flows": Study(flows, seed=SEED),
}
