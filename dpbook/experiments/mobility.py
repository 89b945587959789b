"""The mobility study: itineraries over Chicago, learned as a chain that is homogeneous in time, private or not.

The city publishes trips, not itineraries, and one table of trips is one saturated clique with nothing to reconcile. So
itineraries are simulated, by a generator documented here, from the real table of taxi trips; everything measured is
measured on those. The unit of privacy is a person with all of their days. Each study is a function that returns a
table, and a command, ``python -m dpbook.experiments.mobility NAME``.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpbook import graphical
from dpbook._validation import analyst_generator, fraction, integer, one_of
from dpbook.datasets import load_chicago_areas, load_chicago_taxi
from dpbook.experiments._studies import cell_rng, load_table, results_of, run_command
from dpbook.graphical import MarkovRandomField, dpsgd

__all__ = [
    "AT_HOME",
    "CLIQUES",
    "DOMAIN",
    "EPSILONS",
    "METHODS",
    "RESULTS",
    "STOPS",
    "STUDIES",
    "Trips",
    "days_out",
    "hold_out",
    "itineraries",
    "learn",
    "load",
    "log_likelihood",
    "main",
    "mobility_flows",
    "mobility_holdout",
    "mobility_tuning",
    "taxi_chain",
]

Array = NDArray[np.float64]

RESULTS = results_of("graphical-models")
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
    """The chain that the generator walks on.

    Attributes
    ----------
    start : ndarray, (77,)
        The share of trips that begin in each area.
    steps : ndarray, (77, 77)
        Row by row, where trips from an area go.

    Examples
    --------
    >>> from dpbook.experiments.mobility import taxi_chain
    >>> bool(abs(taxi_chain().steps.sum(axis=1) - 1).max() < 1e-12)
    True

    Explained in :doc:`/book/graphical-models/mobility`.
    """

    start: Array
    steps: Array


def taxi_chain() -> Trips:
    """Return the start and step probabilities of the real table of 191,593 taxi trips.

    Areas from which no trip starts send a walker anywhere, in proportion to where trips start.

    Returns
    -------
    Trips
        Probabilities.

    Examples
    --------
    >>> from dpbook.experiments.mobility import taxi_chain
    >>> int(taxi_chain().start.argmax()) + 1  # the Near North Side
    8

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    trips = load_chicago_taxi()
    table = np.zeros((77, 77))
    table[trips["pickup_area"] - 1, trips["dropoff_area"] - 1] = trips["trips"]
    start = table.sum(axis=1) / table.sum()
    rows = table.sum(axis=1, keepdims=True)
    return Trips(start, np.where(rows > 0, table / np.maximum(rows, 1), start))


def itineraries(
    persons: int = PERSONS, *, days: int = 3, travel: float = 0.6, rng: np.random.Generator | None = None
) -> pd.DataFrame:
    """Simulate people's days: on some they stay at home, on others they visit six areas one after another.

    Each day of each person is, independently, a day of travel with probability ``travel``. A travelling day starts
    where taxi trips start and moves five times as taxi trips move: a Markov chain with the shares of the real table.
    A day at home is a row of the state ``AT_HOME`` (0), which a release leaves out as null.

    Parameters
    ----------
    persons : int, default 20000
        How many people.
    days : int, default 3
        Days a person.
    travel : float, default 0.6
        The probability of a day of travel.
    rng : numpy.random.Generator, optional
        The source of randomness; a fresh one by default.

    Returns
    -------
    pandas.DataFrame
        ``person`` and the stops ``s1`` to ``s6``, one row a day.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.mobility import itineraries
    >>> itineraries(2, days=2, rng=np.random.default_rng(0))
       person  s1  s2  s3  s4  s5  s6
    0       0   0   0   0   0   0   0
    1       0  76  76   4   6   5   6
    2       1  32  32  32   8  32  77
    3       1  32   3   3   6   8  76

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    persons, days = integer("persons", persons, least=1), integer("days", days, least=1)
    travel, generator = fraction("travel", travel), analyst_generator(rng)
    chain, size = taxi_chain(), persons * days
    edges, first = np.cumsum(chain.steps, axis=1), np.cumsum(chain.start)
    out = generator.random(size) < travel
    stops = np.empty((size, len(STOPS)), dtype=np.int64)
    stops[:, 0] = np.minimum(np.searchsorted(first, generator.random(size)), 76)
    for t in range(1, len(STOPS)):
        ahead = edges[stops[:, t - 1]]
        stops[:, t] = np.minimum((generator.random(size)[:, None] > ahead).sum(axis=1), 76)
    frame = pd.DataFrame(np.where(out[:, None], stops + 1, AT_HOME), columns=list(STOPS))
    frame.insert(0, "person", np.repeat(np.arange(persons), days))
    return frame


def hold_out(people: pd.DataFrame, rng: np.random.Generator, share: float = 0.25) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split people, with all of their days, into those to learn from and those to be tested on.

    Parameters
    ----------
    people : pandas.DataFrame
        From :func:`itineraries`.
    rng : numpy.random.Generator
        The source of randomness.
    share : float, default 0.25
        The share held out, as in the source.

    Returns
    -------
    tuple of pandas.DataFrame
        To learn from, to be tested on.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.mobility import hold_out, itineraries
    >>> learn, test = hold_out(itineraries(40, rng=np.random.default_rng(0)), np.random.default_rng(1))
    >>> learn["person"].nunique(), test["person"].nunique()
    (30, 10)

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    names = people["person"].unique()
    tested = rng.permutation(names)[: round(share * len(names))]
    chosen = people["person"].isin(tested)
    return people[~chosen], people[chosen]


def days_out(people: pd.DataFrame) -> pd.DataFrame:
    """Return the days of travel.

    Parameters
    ----------
    people : pandas.DataFrame
        From :func:`itineraries`.

    Returns
    -------
    pandas.DataFrame
        The rows that are not at home.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.mobility import days_out, itineraries
    >>> len(days_out(itineraries(2, days=2, rng=np.random.default_rng(0))))
    3

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    return people[people["s1"] != AT_HOME]


def log_likelihood(field: MarkovRandomField, people: pd.DataFrame) -> float:
    """Return the mean log probability of a day of travel.

    Parameters
    ----------
    field : MarkovRandomField
        Of the six stops.
    people : pandas.DataFrame
        Held-out people.

    Returns
    -------
    float
        Nats a day.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.mobility import CLIQUES, DOMAIN, itineraries, log_likelihood
    >>> from dpbook.graphical import MarkovRandomField
    >>> flat = MarkovRandomField(DOMAIN, CLIQUES, [np.zeros(78), np.zeros((78, 78))])
    >>> round(log_likelihood(flat, itineraries(10, rng=np.random.default_rng(0))), 2)  # six times -log 78
    -26.14

    Explained in :doc:`/book/graphical-models/mobility`.
    """
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
    """Learn the chain from people's days by one method.

    A person adds 1/K to the table of steps for each of their K steps, and likewise to the table of first stops; days
    at home add nothing. Two tables: the release of both has sensitivity 4 under replacing a person.

    Parameters
    ----------
    method : str
        One of ``METHODS``; the first four are private, the last two are references.
    people : pandas.DataFrame
        From :func:`itineraries`.
    epsilon : float
        The privacy loss (with delta = 1/n for ``"dp-sgd"``).
    rng : numpy.random.Generator
        The source of noise.
    settings : mapping, optional
        Of noisy gradients: ``learning_rate``, ``clip``, ``sampling``, ``steps``.
    ridge : float, optional
        Of naive fits; by default 1e-4, tiny on purpose. The source says that it must be tuned and gives no number.

    Returns
    -------
    MarkovRandomField
        Of the six stops.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.mobility import itineraries, learn
    >>> rng = np.random.default_rng(0)
    >>> learn("cgm", itineraries(500, rng=rng), 3.0, rng).marginal("s1").shape
    (78,)

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    one_of("method", method, METHODS)
    options: dict[str, Any] = {"person": "person", "null": AT_HOME}
    if method == "random":
        return dpsgd.random_field(DOMAIN, CLIQUES, rng=rng)
    if method == "non-private":
        return graphical.fit_nonprivate(people, DOMAIN, CLIQUES, ridge=0.1, tolerance=1e-6, **options)
    if method == "dp-sgd":
        chosen: dict[str, Any] = {} if settings is None else {k: v for k, v in settings.items() if k in GRID}
        chosen["steps"] = int(chosen.get("steps", 60))
        release = dpsgd.release_dpsgd(people, DOMAIN, CLIQUES, epsilon=epsilon, rng=rng, **options, **chosen)
        return dpsgd.field_of(release)
    noisy = graphical.release(people, DOMAIN, CLIQUES, epsilon=epsilon, rng=rng, **options)
    penalty: dict[str, Any] = {} if ridge is None else {"ridge": ridge}
    return graphical.fit(noisy, method=method, tolerance=1e-5, iterations=300, **penalty)


# ---------------------------------------------------------------------------------------------------------------------
# The studies


def _world(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    return hold_out(itineraries(rng=cell_rng(seed, "people")), cell_rng(seed, "split"))


def _noise(seed: int, epsilon: float, trial: int) -> np.random.Generator:
    """Return the noise of a release, the same for all methods that read it."""
    return cell_rng(seed, "noise", epsilon, trial)


def mobility_tuning(*, trials: int = 1, seed: int = SEED) -> pd.DataFrame:
    """Search settings of noisy gradients on the people to learn from, as the source does; not private.

    Parameters
    ----------
    trials : int, default 1
        Unused; every study takes it.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        ``epsilon``, the settings, ``log_likelihood`` of those people, ``rank`` (1 is the best).

    Examples
    --------
    >>> from dpbook.experiments.mobility import load
    >>> int(load("mobility_tuning")["rank"].min())
    1

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    people, _ = _world(seed)
    found = []
    for epsilon in EPSILONS:
        tried = dpsgd.tune_dpsgd_nonprivate(
            people, DOMAIN, CLIQUES, epsilon=epsilon, grid=GRID, person="person", null=AT_HOME,
            rng=cell_rng(seed, "tuning", epsilon),
        )  # fmt: skip
        tried.insert(0, "epsilon", epsilon)
        found.append(tried.assign(rank=np.arange(1, len(tried) + 1)))
    return pd.concat(found, ignore_index=True)


def mobility_holdout(*, trials: int = 10, seed: int = SEED) -> pd.DataFrame:
    """Measure the hold-out log-likelihood of every method against epsilon: the counterpart of Figure 3.6.

    Parameters
    ----------
    trials : int, default 10
        Releases a cell; the people and their split are the same throughout.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        ``epsilon`` (infinite where not private), ``method``, ``trial``, ``log_likelihood`` (nats a day), ``seconds``
        (of processor time).
        ``"truth"`` is the generator itself; ``"naive, best ridge"`` chooses its ridge with hindsight.

    Examples
    --------
    >>> from dpbook.experiments.mobility import METHODS, load
    >>> set(load("mobility_holdout")["method"]) == {*METHODS, "naive, best ridge", "truth"}
    True

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    people, tested = _world(seed)
    tuned = mobility_tuning(seed=seed).query("rank == 1").set_index("epsilon")
    rows: list[tuple[Any, ...]] = [(float("inf"), "truth", 0, log_likelihood(_truth(), tested), 0.0)]
    cells = [("non-private", float("inf"), 0), *(("random", float("inf"), t) for t in range(trials))]
    cells += [(m, e, t) for e, m, t in itertools.product(EPSILONS, METHODS[:4], range(trials))]
    for method, epsilon, trial in cells:
        rng = _noise(seed, epsilon, trial) if method in METHODS[:3] else cell_rng(seed, method, epsilon, trial)
        settings = {name: float(tuned[name][epsilon]) for name in GRID} if method == "dp-sgd" else None
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            field = learn(method, people, epsilon, rng, settings=settings)
        seconds = time.process_time() - start
        rows.append((epsilon, method, trial, log_likelihood(field, tested), seconds))
        if method == "naive":
            best = [
                log_likelihood(learn("naive", people, epsilon, _noise(seed, epsilon, trial), ridge=ridge), tested)
                for ridge in RIDGES
            ]
            rows.append((epsilon, "naive, best ridge", trial, max(best), float("nan")))
    return pd.DataFrame(rows, columns=["epsilon", "method", "trial", "log_likelihood", "seconds"])


def _truth() -> MarkovRandomField:
    """Return the generator itself as a field: the log-likelihood that nobody can beat on average."""
    chain = taxi_chain()
    first, steps = np.full(78, -40.0), np.full((78, 78), -40.0)
    with np.errstate(divide="ignore"):
        first[1:] = np.maximum(np.log(chain.start), -40.0)
        steps[1:, 1:] = np.maximum(np.log(chain.steps), -40.0)
    steps[0] = -40.0 - np.log(78)
    return MarkovRandomField(DOMAIN, CLIQUES, [first, steps])


def mobility_flows(*, trials: int = 1, seed: int = SEED) -> pd.DataFrame:
    """Tell the flows between the busiest areas, true and private, for a picture.

    Parameters
    ----------
    trials : int, default 1
        Unused; every study takes it.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        ``from``, ``to`` (names), ``true`` (share of all steps in the data) and one column a method and epsilon. The
        areas shown are the twelve busiest, chosen by looking at the data, for display only.

    Examples
    --------
    >>> from dpbook.experiments.mobility import load
    >>> len(load("mobility_flows"))
    144

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    people, _ = _world(seed)
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
            field = learn(method, people, epsilon, _noise(seed, epsilon, 0))
        flow = np.mean([field.marginal(pair) for pair in itertools.pairwise(STOPS)], axis=0)
        table[f"{method} {epsilon:g}"] = [flow[a, b] for a, b in pairs]
    return table


STUDIES = {
    "mobility_tuning": mobility_tuning,
    "mobility_holdout": mobility_holdout,
    "mobility_flows": mobility_flows,
}


def load(name: str, folder: str | Path = RESULTS) -> pd.DataFrame:
    """Return the stored table of a study.

    Parameters
    ----------
    name : str
        A key of ``STUDIES``.
    folder : path, optional
        Where the tables are; by default the chapter's committed ones.

    Returns
    -------
    pandas.DataFrame
        With ``seed``, ``trials``, ``version`` and ``seconds`` in its ``attrs``.

    Examples
    --------
    >>> from dpbook.experiments.mobility import load
    >>> load("mobility_holdout").attrs["trials"]
    10

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    return load_table(name, STUDIES, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run studies and write their tables: ``python -m dpbook.experiments.mobility mobility_holdout``.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; by default those of the process.

    Examples
    --------
    >>> from dpbook.experiments.mobility import main
    >>> try:
    ...     main(["mobility_weather"])
    ... except SystemExit as stop:
    ...     stop.code
    2

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    run_command(arguments, STUDIES, folder=RESULTS, seed=SEED, doc=main.__doc__)


if __name__ == "__main__":
    main()
