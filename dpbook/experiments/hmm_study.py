"""The studies of hidden states: attacks in Iraq by place and month, and whether private posteriors are calibrated.

One event (an attack or a find, with its place, month and type) is the unit of privacy. Each study is a function that
returns a table, and a command, ``python -m dpbook.experiments.hmm_study NAME``. Studies measure methods; they publish
nothing and spend no budget.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpbook import diagnostics
from dpbook._validation import integer
from dpbook.datasets import load_iraq_sigacts
from dpbook.experiments._studies import cell_rng, load_table, results_of, run_command
from dpbook.graphical import hmm
from dpbook.posterior import ConvergenceWarning, Posterior
from dpbook.release import Release

__all__ = [
    "EPSILONS",
    "METHODS",
    "ORDER_BY",
    "RESULTS",
    "STUDIES",
    "TYPES",
    "Events",
    "Fit",
    "compare",
    "events",
    "hmm_calibration",
    "hmm_emissions",
    "hmm_misfit",
    "hmm_paths",
    "hmm_utility",
    "load",
    "main",
    "posteriors_of",
    "reference",
    "simulate",
]

Array = NDArray[np.float64]

RESULTS = results_of("graphical-models")
SEED = 56
TYPES = ("direct_fire", "indirect_fire", "suicide_attack", "ied_attack", "ied_clear")
ORDER_BY = TYPES.index("ied_clear")  # states are numbered by their share of cleared devices
EPSILONS = (0.03, 0.1, 0.3, 1.0, 10.0)
METHODS = ("noise-aware", "naive", "exponential")
PRIOR = hmm.Prior(stay=2.0)
ACTIVITY = (2.0, 15.0)
CHAINS: dict[str, Any] = {"prior": PRIOR, "draws": 720, "chains": 1, "burn_in": 150}  # of the calibration
CELLS = (  # of the calibration
    (float("inf"), "non-private"),
    *((epsilon, method) for epsilon in (0.1, 0.5, 2.0) for method in ("noise-aware", "naive")),
)


class Events(NamedTuple):
    """The table of events and what its axes stand for.

    Attributes
    ----------
    counts : ndarray of int, (18, 61, 5)
        Events by governorate, month and type.
    places, months, types : tuple of str
        The labels.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import events
    >>> events().months[0]
    '2004-02'

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """

    counts: NDArray[np.int64]
    places: tuple[str, ...]
    months: tuple[str, ...]
    types: tuple[str, ...]


def events() -> Events:
    """Return the attacks and finds in Iraq's 18 governorates, February 2004 to February 2009, by month and type.

    Returns
    -------
    Events
        159,634 events.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import events
    >>> events().counts.shape, int(events().counts.sum())
    ((18, 61, 5), 159634)

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    frame = load_iraq_sigacts().sort_values(["governorate", "month"])
    places = tuple(str(name) for name in frame["governorate"].cat.categories)
    months = tuple(sorted(frame["month"].dt.strftime("%Y-%m").unique()))
    counts = frame[list(TYPES)].to_numpy().reshape(len(places), len(months), len(TYPES))
    return Events(counts.astype(np.int64), places, months, TYPES)


def reference(states: int, *, draws: int = 800, counts: NDArray[np.int64] | None = None, seed: int = SEED) -> Posterior:
    """Return the non-private posterior of the events, against which private ones are held.

    Parameters
    ----------
    states : int
        The number of hidden states.
    draws : int, default 800
        Draws in all.
    counts : ndarray of int, optional
        Another table of the same types in place of Iraq's.
    seed : int
        Of the sampler.

    Returns
    -------
    Posterior
        As from :func:`dpbook.graphical.hmm.infer_nonprivate`.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import reference
    >>> reference(2, draws=80).mean("emission")[:, 4].round(1)  # the share of cleared devices
    array([0. , 0.2])

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    rng = cell_rng(seed, "reference", integer("states", states, least=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        table = events().counts if counts is None else counts
        return hmm.infer_nonprivate(table, states=states, order_by=ORDER_BY, draws=draws, rng=rng)


def posteriors_of(
    method: str,
    states: int,
    epsilon: float,
    *,
    trials: int,
    draws: int = 400,
    chains: int = 2,
    burn_in: int = 100,
    counts: NDArray[np.int64] | None = None,
    seed: int = SEED,
) -> list[Posterior]:
    """Release the events ``trials`` times and infer from each release.

    Parameters
    ----------
    method : {"noise-aware", "naive", "exponential"}
        Noisy counts read in two ways, or the private chain.
    states : int
        The number of hidden states.
    epsilon : float
        The privacy loss of a release.
    trials : int
        How many independent releases. The first two methods read the same ones.
    draws, chains, burn_in : int
        As in :func:`dpbook.graphical.hmm.infer`; the private chain has 20 sweeps.
    counts : ndarray of int, optional
        Another table of the same types in place of Iraq's.
    seed : int
        Of everything.

    Returns
    -------
    list of Posterior
        One a release.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import posteriors_of
    >>> posteriors_of("exponential", 2, 10.0, trials=1)[0].draws["emission"].shape
    (1, 10, 2, 5)

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    counts = events().counts if counts is None else counts
    options: dict[str, Any] = {
        "order_by": ORDER_BY,
        "draws": draws,
        "chains": chains,
        "burn_in": burn_in,
        "states": states,
    }
    if method == "exponential":
        rng = cell_rng(seed, method, states, epsilon)
        chain = [hmm.release_gibbs(counts, states=states, epsilon=epsilon, rng=rng) for _ in range(trials)]
        return hmm.infer(chain, order_by=ORDER_BY)
    noise = cell_rng(seed, "noise", epsilon)
    noisy = [hmm.release_counts(counts, epsilon=epsilon, rng=noise) for _ in range(trials)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return hmm.infer(noisy, method=method, rng=cell_rng(seed, method, states, epsilon), **options)


class Fit(NamedTuple):
    """How near a posterior is to the non-private one, states matched as well as they can be.

    Attributes
    ----------
    distance : float
        Half the sum of absolute differences between mean emission probabilities, averaged over states.
    agreement : float
        The share of governorate-months whose most probable state is the same.
    agreement_of_events : float
        The share of events in such months: quiet months hardly count.
    log_likelihood : float
        Of the true events under the posterior's mean parameters, nats an event.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import compare, events, reference
    >>> one = reference(2, draws=80)
    >>> compare(one, one, events().counts).agreement
    1.0

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """

    distance: float
    agreement: float
    agreement_of_events: float
    log_likelihood: float


def compare(posterior: Posterior, truth: Posterior, counts: NDArray[np.int64]) -> Fit:
    """Measure a posterior against the non-private one.

    Parameters
    ----------
    posterior, truth : Posterior
        The private and the non-private one, of the same number of states.
    counts : ndarray of int
        The events.

    Returns
    -------
    Fit
        Under the renaming of states with the most events in agreement.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import compare, events, posteriors_of, reference
    >>> private = posteriors_of("exponential", 2, 100.0, trials=1)[0]
    >>> compare(private, reference(2, draws=80), events().counts).agreement > 0.8
    True

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
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
# The studies


def hmm_emissions(*, trials: int = 1, seed: int = SEED) -> pd.DataFrame:
    """Infer emission probabilities of 2 and 3 states: non-private, and from one release for each epsilon and method.

    Parameters
    ----------
    trials : int, default 1
        Releases a cell; the table holds the first.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        ``states``, ``epsilon`` (infinite where not private), ``method``, ``state``, ``type``, ``mean``, ``low``,
        ``high`` (95 % interval).

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import STUDIES
    >>> STUDIES["hmm_emissions"].__name__
    'hmm_emissions'

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    rows = []
    for states, epsilons in ((2, EPSILONS), (3, (0.3, 1.0, 10.0))):
        cells = [("non-private", float("inf"), reference(states, seed=seed))]
        for epsilon, method in itertools.product(epsilons, METHODS):
            cells.append((method, epsilon, posteriors_of(method, states, epsilon, trials=trials, seed=seed)[0]))
        for method, epsilon, posterior in cells:
            mean, interval = posterior.mean("emission"), posterior.interval(0.95, "emission")
            for s, k in itertools.product(range(states), range(len(TYPES))):
                low, high = interval[s, k]
                rows.append((states, epsilon, method, s, TYPES[k], mean[s, k], low, high))
    return pd.DataFrame(rows, columns=["states", "epsilon", "method", "state", "type", "mean", "low", "high"])


def hmm_paths(*, trials: int = 1, seed: int = SEED) -> pd.DataFrame:
    """Tell how probable the second of two states is in every governorate and month, for a few methods and epsilons.

    Parameters
    ----------
    trials : int, default 1
        Releases a cell; the table holds the first.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        ``place``, ``month``, ``events``, and one column a method and epsilon, such as ``noise-aware 0.1``.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import load
    >>> load("hmm_paths").shape[0]
    1098

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    data = events()
    table = pd.DataFrame(itertools.product(data.places, data.months), columns=["place", "month"])
    table["events"] = data.counts.sum(axis=-1).ravel()
    truth = reference(2, seed=seed)
    table["non-private"] = truth.mean("states").ravel()
    for method, epsilon in itertools.product(METHODS, (0.1, 1.0, 10.0)):
        posterior = posteriors_of(method, 2, epsilon, trials=trials, seed=seed)[0]
        table[f"{method} {epsilon:g}"] = posterior.mean("states").ravel()
    return table


def hmm_utility(*, trials: int = 3, seed: int = SEED) -> pd.DataFrame:
    """Measure how near each method comes to the non-private posterior, for 2 states and, in fewer cells, for 3.

    Parameters
    ----------
    trials : int, default 3
        Releases a cell.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        ``states``, ``epsilon``, ``method``, ``trial``, and the fields of :class:`Fit`.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import STUDIES
    >>> STUDIES["hmm_utility"].__name__
    'hmm_utility'

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    counts, rows = events().counts, []
    for states, epsilons in ((2, EPSILONS), (3, (0.3, 1.0, 10.0))):
        truth = reference(states, seed=seed)
        rows.append((states, float("inf"), "non-private", 0, *compare(truth, truth, counts)))
        for epsilon, method in itertools.product(epsilons, METHODS):
            found = posteriors_of(method, states, epsilon, trials=trials, seed=seed)
            rows += [(states, epsilon, method, t, *compare(one, truth, counts)) for t, one in enumerate(found)]
    return pd.DataFrame(rows, columns=["states", "epsilon", "method", "trial", *Fit._fields])


def hmm_misfit(*, trials: int = 5, seed: int = SEED) -> pd.DataFrame:
    """Ask whether the model is to blame: hold Iraq's events beside as many that the model itself has made.

    Parameters
    ----------
    trials : int, default 5
        Releases a cell.
    seed : int
        Of everything.

    Returns
    -------
    pandas.DataFrame
        For ``events`` "Iraq" and "simulated", each ``epsilon``, ``method`` and ``trial``: the ``distance`` of
        :class:`Fit` from the non-private posterior of the same events, and how many of the ten non-private means of
        emission probabilities the 95 % intervals ``held``.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import STUDIES
    >>> STUDIES["hmm_misfit"].__name__
    'hmm_misfit'

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    real = events().counts
    made = _as_the_model_would(reference(2, seed=seed), real, cell_rng(seed, "misfit"))
    rows = []
    for name, counts in (("Iraq", real), ("simulated", made)):
        truth = reference(2, counts=counts, seed=seed)
        base = truth.mean("emission")
        for epsilon, method in itertools.product((0.1, 0.3, 1.0, 10.0), ("noise-aware", "naive")):
            found = posteriors_of(method, 2, epsilon, trials=trials, draws=600, counts=counts, seed=seed)
            for trial, one in enumerate(found):
                low, high = np.moveaxis(one.interval(0.95, "emission"), -1, 0)
                held = int(((low <= base) & (base <= high)).sum())
                rows.append((name, epsilon, method, trial, compare(one, truth, counts).distance, held))
    return pd.DataFrame(rows, columns=["events", "epsilon", "method", "trial", "distance", "held"])


def _as_the_model_would(truth: Posterior, counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw states from the fitted chain, and events of their types, as many as each month had."""
    rows, first = truth.mean("transition"), truth.mean("initial")
    paths = hmm._draw_paths(np.zeros((*counts.shape[:2], len(first))), rows, first, rng).astype(np.int64)
    drawn = rng.multinomial(counts.sum(axis=-1), truth.mean("emission")[paths])
    return np.asarray(drawn, dtype=np.int64)


class _World(NamedTuple):
    counts: NDArray[np.int64]  # (trial, place, month, type)
    releases: list[Release]


def simulate(parameters: Mapping[str, Array], epsilon: float, rng: np.random.Generator) -> _World:
    """Simulate events from the model that the noise-aware posterior believes in, and release them.

    Parameters
    ----------
    parameters : mapping
        ``emission`` (trial, 2, 3), ``transition`` (trial, 2, 2) and ``first`` (trial, 2).
    epsilon : float
        Of the releases.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    tuple
        Counts of 3 places, 10 months and 3 types, and their releases.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.hmm_study import simulate
    >>> half = np.full((1, 2, 2), 0.5)
    >>> simulate({"emission": np.full((1, 2, 3), 1 / 3), "transition": half, "first": half[:, 0]}, 1.0,
    ...          np.random.default_rng(0)).counts.shape
    (1, 3, 10, 3)

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    trials, states, _ = parameters["emission"].shape
    flat = np.zeros((trials, 3, 10, states))
    paths = hmm._draw_paths(flat, parameters["transition"], parameters["first"], rng).astype(np.int64)
    activity = rng.gamma(ACTIVITY[0], ACTIVITY[1] / ACTIVITY[0], paths.shape)
    chosen = parameters["emission"][np.arange(trials)[:, None, None], paths]
    counts = rng.poisson(activity[..., None] * chosen)
    counts[:, 0, 0, 0] += counts.sum(axis=(1, 2, 3)) == 0  # a release needs an event
    return _World(counts, [hmm.release_counts(x, epsilon=epsilon, rng=rng) for x in counts])


def _prior_draw(rng: np.random.Generator, trials: int) -> dict[str, Array]:
    rows = np.stack([rng.dirichlet(PRIOR._transition(2)[s], trials) for s in range(2)], axis=1)
    kept = {
        "emission": rng.dirichlet(np.ones(3), (trials, 2)),
        "transition": rows,
        "initial": rng.dirichlet(np.ones(2), trials),
    }
    ordered = hmm._in_order(kept, 0, paths=False)
    return {"emission": ordered["emission"], "transition": ordered["transition"], "first": ordered["initial"]}


def hmm_calibration(*, trials: int = 200, seed: int = SEED, cells: Sequence[tuple[float, str]] = CELLS) -> pd.DataFrame:
    """Calibrate the non-private, the noise-aware and the naive posterior by simulation.

    Parameters
    ----------
    trials : int, default 200
        Simulated worlds a cell.
    seed : int
        Of everything.
    cells : sequence of (epsilon, method)
        Which cells; each has random numbers of its own.

    Returns
    -------
    pandas.DataFrame
        ``epsilon``, ``method``, ``quantity``, ``ks``, ``variance``, ``p`` (Holm-corrected within the cell, the smaller
        of both tests), ``contraction``.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import load
    >>> load("hmm_calibration").columns.tolist()[:3]
    ['epsilon', 'method', 'quantity']

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    rows: list[tuple[Any, ...]] = []
    for epsilon, method in cells:
        found = diagnostics.calibrate(
            _prior_draw,
            partial(_simulate_at, epsilon=min(epsilon, 100.0)),
            partial(_infer_all, method=method),
            trials,
            draws=60,
            quantities={"log-likelihood": _likelihood_of},
            rng=cell_rng(seed, "calibration", epsilon, method),
        )
        p_values = found.p_values
        for name in found.ks:
            smallest = min(p for (quantity, _), p in p_values.items() if quantity == name)
            shrunk = found.contraction.get(name, float("nan"))
            rows.append((epsilon, method, name, found.ks[name], found.variance[name], smallest, shrunk))
    return pd.DataFrame(rows, columns=["epsilon", "method", "quantity", "ks", "variance", "p", "contraction"])


def _simulate_at(parameters: Mapping[str, Array], rng: np.random.Generator, *, epsilon: float) -> _World:
    return simulate(parameters, epsilon, rng)


def _infer_all(world: _World, rng: np.random.Generator, *, method: str) -> list[Posterior]:
    if method == "non-private":
        exact = hmm._Exact(world.counts.astype(float))
        return hmm._sample(exact, 0, False, method, **CHAINS, rng=rng)
    options = CHAINS | ({"activity": ACTIVITY} if method == "noise-aware" else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return hmm.infer(world.releases, method=method, paths=False, rng=rng, **options)


def _likelihood_of(parameters: Mapping[str, Array], world: _World) -> Array:
    """Return a data-dependent quantity: the log-likelihood of the released counts, taken for true where positive."""
    noisy = np.stack([np.maximum(each["counts"], 0) for each in world.releases])
    half = np.full((*parameters["transition"].shape[:2], 2), 0.5)
    return np.asarray(hmm.log_likelihood(noisy[:, None], parameters["emission"], parameters["transition"], half))


STUDIES = {
    "hmm_emissions": hmm_emissions,
    "hmm_paths": hmm_paths,
    "hmm_utility": hmm_utility,
    "hmm_calibration": hmm_calibration,
    "hmm_misfit": hmm_misfit,
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
    >>> from dpbook.experiments.hmm_study import load
    >>> load("hmm_calibration").attrs["trials"]
    200

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    return load_table(name, STUDIES, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run studies and write their tables: ``python -m dpbook.experiments.hmm_study hmm_utility``.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; by default those of the process.

    Examples
    --------
    >>> from dpbook.experiments.hmm_study import main
    >>> try:
    ...     main(["hmm_weather"])
    ... except SystemExit as stop:
    ...     stop.code
    2

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    run_command(arguments, STUDIES, folder=RESULTS, seed=SEED, doc=main.__doc__)


if __name__ == "__main__":
    main()
