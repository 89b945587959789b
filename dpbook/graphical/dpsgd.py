"""The general-purpose rival: potentials learned by noisy stochastic gradients, with its accounting and its tuning.

Each step draws a batch, clips every record's gradient, adds Gaussian noise and moves the potentials. What is released
is the potentials, (epsilon, delta)-DP for replace-one neighbours, n public; chapter 5 compares them with noisy tables.
Needs the extra ``dpsgd`` (the package dp-accounting).
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from dpbook import noise
from dpbook._arrays import Array
from dpbook._validation import (
    analyst_generator,
    delta_value,
    flag,
    integer,
    one_of,
    positive,
    seeded_generator,
)
from dpbook.budget import PrivacyBudget, charge
from dpbook.graphical.domain import Domain, Groups, checked_groups, group_name
from dpbook.graphical.field import FitReport, MarkovRandomField
from dpbook.graphical.problem import Problem
from dpbook.graphical.releases import _check_columns, _null_codes, record_chunks
from dpbook.mechanisms import gaussian_scale
from dpbook.release import Release

__all__ = [
    "GRID",
    "field_of",
    "gradient_noise",
    "random_field",
    "release_dpsgd",
    "tune_dpsgd_nonprivate",
]

MODEL = "log-linear potentials"
RELATION = "REPLACE_ONE"  # the library's default, adding or removing a record, would give half the noise or so

_LEAST_GUESS = 0.3  # the search for a noise multiplier starts here or above
_LEAST_DELTA = 1e-12  # the accountant cuts off tails of about 1e-15
_LARGEST_EPSILON = 500.0  # above, noise for this one is drawn: the accountant computes exp(epsilon)
_MOST_STEPS = 1_000_000
_LARGEST = 1e6  # of a rate or a norm
_FARTHEST = 1e8  # from 0, a potential may be: no law changes beyond, and sums stay finite
_TUNING = ("uncharged", "charged", "public")

# The settings that a search tries, all combinations. Rates are large because a cell's gradient is a small probability.
GRID: Mapping[str, tuple[float, ...]] = {
    "learning_rate": (3.0, 10.0, 30.0),
    "clip": (0.5, 1.5),
    "sampling": (0.05, 0.25),
    "steps": (50, 200),
}


def release_dpsgd(
    records: Any,
    domain: Domain | Mapping[str, Any],
    cliques: Sequence[Any],
    *,
    epsilon: float,
    delta: float | None = None,
    learning_rate: float | None = None,
    clip: float = 1.5,
    sampling: float = 0.25,
    steps: int = 100,
    tuned_over: int = 1,
    tuning: str = "uncharged",
    counts: str | None = None,
    person: str | None = None,
    null: Any = None,
    insecure: bool = False,
    inference: str = "auto",
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the potentials of a log-linear model, learned by differentially private stochastic gradients.

    (epsilon, delta)-DP for replace-one neighbours, n public; the unit is one row or, with ``person``, all rows of one
    person. Proof sketch: each step takes every record with probability ``sampling`` and sums their gradients, clipped
    to the norm ``clip``. A record's gradient is its indicator in each table less the model's marginals. Between
    neighbours, the sum's law moves from ``(1 - q) N(0) + q N(g)`` to ``(1 - q) N(0) + q N(h)``, with g and h no longer
    than ``clip``; the worst pair has h = -g. The noise multiplier that makes all steps together (epsilon, delta)-DP
    comes from the privacy loss distribution of that pair (dp-accounting's ``PLDAccountant`` with ``REPLACE_ONE``).

    The settings matter, and whoever tries several on the records spends epsilon for each. Say how many runs there were
    with ``tuned_over``: k runs, this one the last, are charged k epsilon and k delta, and that is what the release
    then promises. Proof: each run is (epsilon, delta)-DP whatever the outputs of the runs before it, so that all k
    outputs together are (k epsilon, k delta)-DP by sequential composition, which lets a run's settings depend on
    earlier outputs. A choice made from those outputs is post-processing. A choice that looks at the records again is
    not: where settings won by their exact likelihood, as in ``tune_dpsgd_nonprivate``, no multiple of epsilon is
    proved. (The source chooses in that way and counts one run; so does our comparison, and its numbers flatter this
    method.)

    Parameters
    ----------
    records : DataFrame, pyarrow Table, iterator of such, Dask DataFrame, or array
        As in :func:`dpbook.graphical.release`. A missing value and a state outside the domain raise; only the curator
        may see that error.
    domain, cliques
        As in :func:`dpbook.graphical.release`; gradients of tied cliques are averaged, not added.
    epsilon : float
        The privacy loss of one run, all steps together.
    delta : float, optional
        Of one run, at least 1e-12. By default 1/n, the source's choice. That is large: it permits publishing one
        record chosen at random.
    learning_rate : float, optional
        The step taken along the mean gradient, at most 10⁶; by default the square root of the mean number of cells of
        a table.
    clip : float, default 1.5
        The largest norm of a record's gradient, at most 10⁶.
    sampling : float, default 0.25
        The probability with which a record is in a batch; 1 uses all of them in every step.
    steps : int, default 100
        How many steps, at most 10⁶. The potentials released are the mean over the second half of them.
    tuned_over : int, default 1
        How many runs on records found the settings above, this one included.
    tuning : {"uncharged", "charged", "public"}
        Who pays for the earlier runs. ``"uncharged"``: this call does, k epsilon and k delta in all. ``"charged"``:
        each was charged when it was made, and this call charges one run. ``"public"``: they read other records, which
        are public, and cost nothing.
    counts, person, null
        As in :func:`dpbook.graphical.release`.
    insecure : bool, default False
        Must be True for a real release (``rng=None``): batches and clipped sums are computed in floating point, for
        which there is no safe sampler. The release says ``float_safe=False`` in any case.
    inference : {"auto", "exact", "loopy"}
        As in ``MarkovRandomField``.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, means a real release.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.

    Returns
    -------
    Release
        With the log-potentials of each clique as values (``dpsgd.field_of`` makes a field of them), the standard
        deviation of the noise on a step's summed gradient as ``scale``, what was charged as ``epsilon`` and ``delta``,
        and in ``settings`` the loss of one run and of all that tuning read.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from dpbook.graphical import dpsgd
    >>> table = np.array([[300, 100], [100, 500]])
    >>> release = dpsgd.release_dpsgd(table, {"a": 2, "b": 2}, [("a", "b")], epsilon=2.0,
    ...                                   rng=np.random.default_rng(0))
    >>> release.delta, round(release.settings["noise_multiplier"], 2)
    (0.001, 7.22)
    >>> dpsgd.field_of(release).marginal(("a", "b")).round(1)
    array([[0.3, 0.1],
           [0.1, 0.5]])

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    rate = _default_rate(known, groups) if learning_rate is None else _at_most("learning_rate", learning_rate, _LARGEST)
    clip, sampling = _at_most("clip", clip, _LARGEST), _at_most("sampling", sampling, 1)
    steps, tuned_over = _million("steps", steps), _million("tuned_over", tuned_over)
    one_of("tuning", tuning, _TUNING)
    epsilon = positive("epsilon", epsilon)
    if delta is not None:
        delta = _checked_delta(delta)
    rng = seeded_generator(rng)
    if not flag("insecure", insecure) and rng is None:
        raise ValueError("insecure must be True for a real release: noisy gradients have no safe sampler")
    _accounting()
    units = _units(records, known, groups, counts, person, null)
    delta = 1 / max(units.n, 2) if delta is None else delta
    multiplier = gradient_noise(epsilon=epsilon, delta=delta, sampling=sampling, steps=steps)
    problem = _empty_problem(known, groups, units.n, inference)
    all_runs = (epsilon, delta) if tuning == "public" else _of_all_runs(tuned_over, epsilon, delta)
    charged = all_runs if tuning == "uncharged" else (epsilon, delta)
    charge(budget, *charged, label="noisy gradients")
    theta = _descend(units, problem, rate, clip, sampling, steps, multiplier * clip, analyst_generator(rng))
    names = [group_name(group) for group in groups]
    return Release(
        values=dict(zip(names, problem.split(theta), strict=True)),
        model=MODEL,
        mechanism="gaussian",
        scale=dict.fromkeys(names, multiplier * clip),
        sensitivity=dict.fromkeys(names, 2 * clip),
        epsilon=charged[0],
        delta=charged[1],
        n=units.n,
        settings={
            "domain": known.settings,
            "cliques": groups,
            "learning_rate": rate,
            "clip": clip,
            "sampling": sampling,
            "steps": steps,
            "noise_multiplier": multiplier,
            "accountant": "privacy loss distribution, replace-one",
            "tuned_over": tuned_over,
            "tuning": tuning,
            "epsilon_a_run": epsilon,
            "delta_a_run": delta,
            "epsilon_with_tuning": all_runs[0],
            "delta_with_tuning": all_runs[1],
        },
        float_safe=False,
    )


def _of_all_runs(runs: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Return what so many runs cost by sequential composition; raise where that is no promise any more."""
    if runs * delta >= 1:
        raise ValueError(
            f"tuned_over times delta must be below 1, got {runs} runs of delta {delta:g}: name a smaller delta"
        )
    return positive("tuned_over times epsilon", runs * epsilon), runs * delta


def _at_most(name: str, value: Any, most: float) -> float:
    number = positive(name, value)
    if number > most:
        raise ValueError(f"{name} must be at most {most:g}, got {number}")
    return number


def _million(name: str, value: Any) -> int:
    """Return a whole number from 1 to a million."""
    number = integer(name, value, least=1)
    if number > _MOST_STEPS:
        raise ValueError(f"{name} must be at most {_MOST_STEPS}, got a larger number")
    return number


def _checked_delta(value: Any) -> float:
    delta = delta_value("delta", value, zero=False)
    if delta < _LEAST_DELTA:
        raise ValueError(f"delta must be at least {_LEAST_DELTA:g}, where the accountant is exact enough, got {delta}")
    return delta


def gradient_noise(*, epsilon: float, delta: float, sampling: float, steps: int) -> float:
    """Return the smallest noise multiplier, noise sd over clipping norm, that makes noisy gradients private.

    (epsilon, delta)-DP for replace-one neighbours, n public, of ``steps`` steps that take each record with probability
    ``sampling``: by the privacy loss distribution, rounded up.

    Parameters
    ----------
    epsilon : float
        The privacy loss of all steps; above 500 the noise is that of 500.
    delta : float
        At least 1e-12, below which the accountant's own rounding shows.
    sampling : float
        In (0, 1].
    steps : int
        From 1 to 10⁶.

    Returns
    -------
    float
        The multiplier.

    Raises
    ------
    ImportError
        Where dp-accounting is not installed; it names the extra.

    Examples
    --------
    One step with all records is the Gaussian mechanism of sensitivity 2:

    >>> from dpbook.graphical.dpsgd import gradient_noise
    >>> from dpbook.mechanisms import gaussian_scale
    >>> round(gradient_noise(epsilon=1.0, delta=1e-5, sampling=1.0, steps=1), 2)
    7.46
    >>> round(gaussian_scale(sensitivity=2.0, epsilon=1.0, delta=1e-5), 2)
    7.46

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    epsilon, delta = min(positive("epsilon", epsilon), _LARGEST_EPSILON), _checked_delta(delta)
    return _calibrated(epsilon, delta, _at_most("sampling", sampling, 1), _million("steps", steps))


@lru_cache(maxsize=256)
def _calibrated(epsilon: float, delta: float, sampling: float, steps: int) -> float:
    """Search for the multiplier; every trial is a composed privacy loss distribution, an upper bound on epsilon.

    The search starts where the steps would be one Gaussian mechanism of sensitivity ``2 q sqrt(steps)``, keeps a
    bracket, and returns its safe end, within one part in a thousand of the smallest multiplier.
    """
    if sampling < 1 and -math.expm1(steps * math.log1p(-sampling)) <= delta:
        return _LEAST_GUESS  # delta alone covers ever being drawn: no noise would do, and the search would not end
    unit = 1e-4 * max(1.0, 2 * epsilon)  # of the privacy loss's grid; a coarse one rounds upwards, on the safe side

    def excess(log_multiplier: float) -> float:
        found = _epsilon_of(math.exp(log_multiplier), delta, sampling, steps, unit)
        return math.log(max(found, 1e-300) / epsilon)

    guess = gaussian_scale(sensitivity=2 * sampling * math.sqrt(steps), epsilon=epsilon, delta=delta)
    high = low = math.log(max(guess, _LEAST_GUESS))
    above = below = excess(high)
    while above > 0:
        low, below = high, above
        high += 0.2
        above = excess(high)
    while below <= 0 and low > math.log(1e-2):
        high, above = low, below
        low -= 0.2
        below = excess(low)
    while high - low > 1e-3 and below > 0:
        # Between the secant's root and the middle, and a little on the safe side.
        root = low + (high - low) * below / (below - above) if math.isfinite(below) else (low + high) / 2
        middle = min(max(root + 4e-4, low + 0.05 * (high - low)), high - 0.05 * (high - low))
        value = excess(middle)
        if value > 0:
            low, below = middle, value
        else:
            high, above = middle, value
    return math.exp(high)


def _epsilon_of(multiplier: float, delta: float, sampling: float, steps: int, unit: float) -> float:
    dp, pld = _accounting()
    accountant = pld.PLDAccountant(getattr(dp.NeighboringRelation, RELATION), value_discretization_interval=unit)
    gaussian = dp.GaussianDpEvent(multiplier)
    event = gaussian if sampling == 1 else dp.PoissonSampledDpEvent(sampling, gaussian)
    accountant.compose(event, steps)
    return float(accountant.get_epsilon(delta))


def _accounting() -> tuple[Any, Any]:
    """Import dp-accounting on first use: only noisy gradients need it."""
    try:
        return importlib.import_module("dp_accounting"), importlib.import_module("dp_accounting.pld")
    except ImportError as error:
        raise ImportError("noisy gradients need the package dp-accounting: pip install dpbook[dpsgd]") from error


def field_of(release: Release, *, inference: str = "auto") -> MarkovRandomField:
    """Return the field whose potentials a release holds; post-processing.

    Parameters
    ----------
    release : Release
        From ``release_dpsgd``.
    inference : {"auto", "exact", "loopy"}
        As in ``MarkovRandomField``.

    Returns
    -------
    MarkovRandomField
        With ``report.method`` "dp-sgd".

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import dpsgd
    >>> release = dpsgd.release_dpsgd(np.array([60, 40]), {"a": 2}, [("a",)], epsilon=5.0,
    ...                                   rng=np.random.default_rng(0))
    >>> dpsgd.field_of(release).report.method
    'dp-sgd'

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release of potentials, got {type(release).__name__}")
    release.require(model=MODEL)
    domain = Domain.of_settings(release.settings["domain"])
    steps = int(release.settings["steps"])
    report = FitReport("dp-sgd", steps, True, f"{steps} noisy steps", float("nan"))
    cliques = [list(group) for group in release.settings["cliques"]]
    return MarkovRandomField(domain, cliques, release.values, inference=inference, report=report)


def tune_dpsgd_nonprivate(
    records: Any,
    domain: Domain | Mapping[str, Any],
    cliques: Sequence[Any],
    *,
    epsilon: float,
    delta: float | None = None,
    grid: Mapping[str, Sequence[float]] = GRID,
    counts: str | None = None,
    person: str | None = None,
    null: Any = None,
    inference: str = "auto",
    rng: np.random.Generator | None = None,
) -> pd.DataFrame:
    """Try every combination of settings on the records and say how well each run fitted them; not private.

    This is the search of the source. Its result depends on the records through their exact likelihood, which no noise
    protects, so that what is released with the settings that win has no proved guarantee: use it to compare methods,
    or on public records (``tuning="public"``). A search that is covered makes every run by ``release_dpsgd``, chooses
    from what those released, and says how many there were with ``tuned_over``.

    Parameters
    ----------
    records, domain, cliques, epsilon, delta, counts, person, null, inference
        As in ``release_dpsgd``.
    grid : mapping of str to sequence of float
        Values of ``learning_rate``, ``clip``, ``sampling`` and ``steps``.
    rng : numpy.random.Generator, optional
        The source of randomness; a fresh one by default.

    Returns
    -------
    pandas.DataFrame
        One row a combination, best first, with the mean log-likelihood of a record as ``log_likelihood``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import dpsgd
    >>> tried = dpsgd.tune_dpsgd_nonprivate(np.array([[300, 100], [100, 500]]), {"a": 2, "b": 2}, [("a", "b")],
    ...     epsilon=2.0, grid={"learning_rate": [0.01, 2.0], "steps": [50]}, rng=np.random.default_rng(0))
    >>> tried["learning_rate"].tolist()
    [2.0, 0.01]

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    tried = _checked_grid(grid)
    epsilon, generator = positive("epsilon", epsilon), analyst_generator(rng)
    units = _units(records, known, groups, counts, person, null)
    delta = 1 / max(units.n, 2) if delta is None else delta_value("delta", delta, zero=False)
    problem = _empty_problem(known, groups, units.n, inference)
    defaults = {"learning_rate": _default_rate(known, groups), "clip": 1.5, "sampling": 0.25, "steps": 100.0}
    rows = []
    for values in itertools.product(*tried.values()):
        chosen = defaults | dict(zip(tried, values, strict=True))
        clip, sampling, steps = chosen["clip"], chosen["sampling"], int(chosen["steps"])
        noise_sd = clip * gradient_noise(epsilon=epsilon, delta=delta, sampling=sampling, steps=steps)
        theta = _descend(units, problem, chosen["learning_rate"], clip, sampling, steps, noise_sd, generator)
        rows.append(chosen | {"steps": steps, "log_likelihood": _fit_of(units, problem, theta)})
    return pd.DataFrame(rows).sort_values("log_likelihood", ascending=False, ignore_index=True)


def _checked_grid(grid: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return the values to try, each within the range of its setting."""
    if not isinstance(grid, Mapping) or not grid or any(name not in GRID for name in grid):
        raise ValueError(f"grid must hold values of {', '.join(GRID)}, got {list(grid)}")
    most = {"learning_rate": _LARGEST, "clip": _LARGEST, "sampling": 1.0}
    checked: dict[str, list[float]] = {}
    for name, values in grid.items():
        named = f"grid[{name!r}]"
        checked[name] = [
            float(_million(named, each)) if name == "steps" else _at_most(named, each, most[name]) for each in values
        ]
    return checked


def random_field(
    domain: Domain | Mapping[str, Any],
    cliques: Sequence[Any],
    *,
    inference: str = "auto",
    rng: np.random.Generator | None = None,
) -> MarkovRandomField:
    """Return a random estimator, the source's reference for "learned nothing"; it sees no data.

    The source draws marginals at random and fits potentials to them. Tables drawn one by one are not the marginals of
    anything, and have no maximum-likelihood fit; so here potentials are drawn, each table of them the log of a uniform
    Dirichlet draw, and the marginals are theirs, of which they are the maximum-likelihood fit.

    Parameters
    ----------
    domain, cliques
        As in :func:`dpbook.graphical.release`.
    inference : {"auto", "exact", "loopy"}
        As in ``MarkovRandomField``.
    rng : numpy.random.Generator, optional
        The source of randomness; a fresh one by default.

    Returns
    -------
    MarkovRandomField
        With ``report.method`` "random".

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import dpsgd
    >>> dpsgd.random_field({"a": 2, "b": 3}, [("a", "b")], rng=np.random.default_rng(0)).marginal("a").round(2)
    array([0.44, 0.56])

    Explained in :doc:`/book/graphical-models/learning-from-noisy-tables`.
    """
    known, generator = Domain.of(domain), analyst_generator(rng)
    groups = checked_groups(cliques, known)
    drawn = [generator.standard_exponential(known.shape(group[0])) for group in groups]
    report = FitReport("random", 0, True, "drawn, not fitted", float("nan"))
    potentials = [np.log(np.maximum(table / table.sum(), 1e-300)) for table in drawn]
    return MarkovRandomField(known, [list(group) for group in groups], potentials, inference=inference, report=report)


# ---------------------------------------------------------------------------------------------------------------------
# Gradients


class _Units(NamedTuple):
    """What each unit of privacy (a row, or a person) adds to the tables."""

    cells: sparse.csr_matrix  # (unit, cell): weights, within 1 a table
    shares: Array  # (unit, table): the total weight in each table, 1, or 0 where all is null
    n: int


def _units(
    records: Any,
    domain: Domain,
    groups: Groups,
    counts: str | None,
    person: str | None,
    null: Any,
) -> _Units:
    """Return every unit's cells, each table's weights divided by how many of the unit's cliques count in it."""
    _check_columns(domain, counts, person)
    codes_of_null = _null_codes(domain, null)
    chunks = list(record_chunks(records, domain, groups, counts, person))
    if sum(int(chunk.times.sum()) for chunk in chunks) == 0:
        raise ValueError("records must hold at least one record, got none")
    codes = np.concatenate([np.repeat(chunk.codes, chunk.times, axis=0) for chunk in chunks])
    persons = chunks[0].persons
    owners = np.arange(len(codes)) if persons is None else persons
    n = int(owners.max()) + 1
    blocks, shares = [], []
    for group in groups:
        shape = domain.shape(group[0])
        block = sparse.csr_matrix((n, int(np.prod(shape))))
        for member in group:
            seen = np.ones(len(codes), dtype=bool)
            if all(name in codes_of_null for name in member):
                columns = [codes[:, domain.names.index(name)] == codes_of_null[name] for name in member]
                seen = ~np.logical_and.reduce(columns)
            cells = np.ravel_multi_index(tuple(codes[:, domain.indices(member)].T), shape)
            block = block + sparse.csr_matrix(
                (np.ones(int(seen.sum())), (owners[seen], cells[seen])), shape=(n, int(np.prod(shape)))
            )
        total = np.asarray(block.sum(axis=1)).ravel()
        blocks.append(sparse.diags(1 / np.maximum(total, 1)) @ block)
        shares.append((total > 0).astype(float))
    return _Units(sparse.hstack(blocks, format="csr"), np.stack(shares, axis=1), n)


def _default_rate(domain: Domain, groups: Groups) -> float:
    return math.sqrt(float(np.mean([domain.size(group[0]) for group in groups])))


def _empty_problem(domain: Domain, groups: Groups, n: int, inference: str) -> Problem:
    tables = [np.zeros(domain.shape(group[0])) for group in groups]
    return Problem.of(domain, groups, tables, [0.0] * len(groups), n, inference=inference)


def _clipped_sum(units: _Units, means: Array, lengths: Array, ends: Sequence[int], clip: float) -> Array:
    """Return the sum of the units' gradients (cells less means, where anything was seen), each clipped.

    Squared norms come from the sparse cells: those of the cells, less twice their overlap with the means, plus the
    means' own; so no unit's dense gradient is ever made.
    """
    by_table = np.array([means[a:b] @ means[a:b] for a, b in itertools.pairwise(ends)])
    squares = lengths - 2 * (units.cells @ means) + units.shares @ by_table
    factors = np.minimum(1.0, clip / np.sqrt(np.maximum(squares, 1e-300)))
    pull = np.repeat(units.shares.T @ factors, np.diff(ends))
    return np.asarray(units.cells.T @ factors - pull * means)


def _descend(
    units: _Units,
    problem: Problem,
    learning_rate: float,
    clip: float,
    sampling: float,
    steps: int,
    noise_sd: float,
    rng: np.random.Generator,
) -> Array:
    """Take the noisy steps from potentials of zero; return their mean over the second half."""
    ends = [0, *np.cumsum([int(np.prod(shape)) for shape in problem.shapes]).tolist()]
    theta, total = np.zeros(ends[-1]), np.zeros(ends[-1])
    lengths = np.asarray(units.cells.multiply(units.cells).sum(axis=1)).ravel()
    for step in range(steps):
        inside = rng.random(units.n) < sampling if sampling < 1 else np.ones(units.n, dtype=bool)
        batch = _Units(units.cells[inside], units.shares[inside], units.n)
        gradient = _clipped_sum(batch, problem.infer(theta).means, lengths[inside], ends, clip)
        noisy = noise.add_gaussian(gradient, noise_sd, rng)
        theta = np.clip(theta + learning_rate * noisy / (sampling * units.n), -_FARTHEST, _FARTHEST)
        if step >= steps // 2:
            total += theta
    return total / (steps - steps // 2)


def _fit_of(units: _Units, problem: Problem, theta: Array) -> float:
    """Return the mean log-likelihood of a unit that was seen, tied cliques counted as often as they occur."""
    mean = np.asarray(units.cells.sum(axis=0)).ravel() / max(units.shares.max(axis=1).sum(), 1.0)
    return float((problem.copies * mean) @ theta - problem.infer(theta).log_partition)
