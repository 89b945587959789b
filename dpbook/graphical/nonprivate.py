"""Comparators that read records and protect nobody: fits to exact tables, and a search of settings on the records."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._late import pd
from dpbook._validation import analyst_generator, at_least, delta_value, integer, positive
from dpbook.graphical.counting import exact_tables, layout_of
from dpbook.graphical.domain import Domain, checked_groups
from dpbook.graphical.dpsgd import Units, descend, empty_tables, units_of, with_rate
from dpbook.graphical.field import FitReport, MarkovRandomField
from dpbook.graphical.junction import LARGEST_TABLE
from dpbook.graphical.likelihood import closed_form, maximum_likelihood, report_of
from dpbook.graphical.tables import NoisyTables
from dpbook.graphical.training import GRID, Training, gradient_noise

__all__ = ["fit_nonprivate", "tune_dpsgd_nonprivate"]


def fit_nonprivate(
    data: Any,
    domain: Domain | Mapping[str, Any],
    cliques: Sequence[Any],
    *,
    ridge: float = 1e-4,
    counts: str | None = None,
    person: str | None = None,
    null: Any = None,
    inference: str = "auto",
    tolerance: float = 1e-8,
    iterations: int = 5000,
    limit: int = LARGEST_TABLE,
) -> MarkovRandomField:
    """Learn a Markov random field from the records themselves, by maximum likelihood; not private.

    Parameters
    ----------
    data, domain, cliques, counts, person, null
        As in :func:`dpbook.graphical.release`.
    ridge : float, default 1e-4
        As in :func:`fit`; it keeps potentials of empty cells finite. 0 asks for the likelihood's own maximum, which
        has a closed form where the cliques are those of a junction tree.
    inference, tolerance, iterations, limit
        As in :func:`fit`.

    Returns
    -------
    MarkovRandomField
        Whose marginals on the cliques are those of the data, up to the ridge.

    Examples
    --------
    >>> from dpbook import graphical
    >>> model = graphical.fit_nonprivate([[30, 10], [10, 50]], {"a": 2, "b": 2}, [("a", "b")], ridge=0)
    >>> model.marginal(("a", "b"))
    array([[0.3, 0.1],
           [0.1, 0.5]])

    Explained in :doc:`/book/graphical-models/log-linear-models`.
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    ridge, tolerance = at_least("ridge", ridge, 0), positive("tolerance", tolerance)
    iterations = integer("iterations", iterations, least=1)
    exact = exact_tables(data, known, groups, layout_of(domain, counts, person, null))
    found: list[Array] = [np.asarray(table * exact.unit, dtype=np.float64) for table in exact.tables]
    if null is not None:  # a record that is null throughout tells nothing: each table is taken for its own total
        found = [exact.n * table / max(float(table.sum()), 1e-9) for table in found]
    tables = NoisyTables.of(known, groups, found, [0.0] * len(groups), exact.n, inference=inference, limit=limit)
    shares = tables.counts / tables.n
    closed = closed_form(tables, shares) if ridge == 0 else None
    if closed is not None:
        value = tables.n * (float(tables.copies * shares @ closed) - tables.infer(closed).log_partition)
        report = FitReport("non-private", 0, True, "closed form: the cliques are those of a junction tree", value)
        return tables.field(closed, report)
    best = maximum_likelihood(tables, shares, ridge, tolerance=tolerance, iterations=iterations)
    return tables.field(best.theta, report_of("non-private", tables, best, tolerance, {"ridge": ridge}))


def tune_dpsgd_nonprivate(
    data: Any,
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
    or on public records (``tuning="public"``). A search that is covered makes every run by
    :func:`dpbook.graphical.release_dpsgd`, chooses from what those released, and says how many there were with
    ``tuned_over``. Explained in :doc:`/book/graphical-models/mobility`.

    Parameters
    ----------
    data, domain, cliques, epsilon, delta, counts, person, null, rng
        As in :func:`dpbook.graphical.release_dpsgd`.
    inference : {"auto", "exact", "loopy"}
        As in :class:`Training`.
    grid : mapping of str to sequence of float
        Values of ``learning_rate``, ``clip``, ``sampling`` and ``steps``.

    Returns
    -------
    pandas.DataFrame
        One row per combination, best first, with the mean log-likelihood of a record as ``log_likelihood``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> tried = graphical.tune_dpsgd_nonprivate(np.array([[300, 100], [100, 500]]), {"a": 2, "b": 2}, [("a", "b")],
    ...     epsilon=2.0, grid={"learning_rate": [0.01, 2.0], "steps": [50]}, rng=np.random.default_rng(0))
    >>> tried["learning_rate"].tolist()
    [2.0, 0.01]
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    tried = _checked_grid(grid)
    epsilon, generator = positive("epsilon", epsilon), analyst_generator(rng)
    units = units_of(data, known, groups, layout_of(domain, counts, person, null))
    delta = 1 / max(units.n, 2) if delta is None else delta_value("delta", delta, zero=False)
    tables = empty_tables(known, groups, units.n, inference)
    rows = []
    for values in itertools.product(*tried.values()):
        chosen: dict[str, Any] = dict(zip(tried, values, strict=True))
        training = with_rate(Training(**chosen), known, groups)
        noise_sd = training.clip * gradient_noise(
            epsilon=epsilon, delta=delta, sampling=training.sampling, steps=training.steps
        )
        theta = descend(units, tables, training, noise_sd, generator)
        settings = {name: getattr(training, name) for name in GRID}
        rows.append(settings | {"log_likelihood": _mean_log_likelihood(units, tables, theta)})
    return pd.DataFrame(rows).sort_values("log_likelihood", ascending=False, ignore_index=True)


def _mean_log_likelihood(units: Units, tables: NoisyTables, theta: Array) -> float:
    """Return that of a unit that was seen, tied cliques counted as often as they occur."""
    mean = np.asarray(units.cells.sum(axis=0)).ravel() / max(units.shares.max(axis=1).sum(), 1.0)
    return float((tables.copies * mean) @ theta - tables.infer(theta).log_partition)


def _checked_grid(grid: Mapping[str, Sequence[float]]) -> dict[str, list[Any]]:
    """Return the values to try, each within the range of its setting."""
    if not isinstance(grid, Mapping) or not grid or any(name not in GRID for name in grid):
        raise ValueError(f"grid must hold values of {', '.join(GRID)}, got {list(grid)}")
    checked: dict[str, list[Any]] = {}
    for name, values in grid.items():
        try:
            one_by_one: list[dict[str, Any]] = [{name: each} for each in values]
            checked[name] = [getattr(Training(**one), name) for one in one_by_one]
        except (TypeError, ValueError) as error:
            raise type(error)(f"grid[{name!r}]: {error}") from None
    return checked
