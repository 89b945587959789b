"""The curator's side of chapter 5: noisy clique tables.

Every release is private for replace-one neighbours, n public. In each table a replaced record leaves one cell and
enters another, so that |C| tables have sensitivity 2|C| together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbook import noise
from dpbook._validation import positive, seeded_generator
from dpbook.budget import PrivacyBudget, charge
from dpbook.graphical.counting import exact_tables, layout_of
from dpbook.graphical.domain import TABLES_MODEL, Domain, checked_groups, group_name
from dpbook.records import ExactSum
from dpbook.release import Release
from dpbook.schema import Schema
from dpbook.sensitivity import histogram

__all__ = ["release"]

_WIDEST = 2.0**53  # steps of the grid: at this scale, noise beyond 64 bits has probability e^(-1024)
_LARGEST_EPSILON = 1e100


def release(
    data: Any,
    domain: Domain | Schema | Mapping[str, Any],
    cliques: Sequence[Any],
    *,
    epsilon: float,
    counts: str | None = None,
    person: str | None = None,
    null: Any = None,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the contingency tables of all cliques with Laplace noise.

    epsilon-DP for replace-one neighbours, n public; the unit is one row or, with ``person``, all rows of one person.
    Each table has sensitivity 2, the release 2 for each table, so the noise on every cell has scale 2 ``len(cliques)``
    / epsilon. A missing value and a state outside the domain raise an error, which is not private: only the curator
    may see it. All else is checked before anything is read. Explained in
    :doc:`/book/graphical-models/log-linear-models`.

    Parameters
    ----------
    data : DataFrame, Arrow table, data set or stream, path, iterator of such, Dask DataFrame, or array
        Rows of codes or labels, one column a variable; a path is that of a Parquet, Arrow or CSV file, and is read in
        memory that does not grow with it. Or the table of counts of all variables together, an array
        with one axis for each variable of the domain. What belongs to one record, its states, its count and its
        person, stands in one row of one table.
    domain : Domain, Schema or mapping of str to int or sequence
        Each variable's number of states, or its states' labels; public. A schema's columns are variables, read as it
        says: with ``missing="category"``, a missing value is a state of its own.
    cliques : list of tuple of str
        The tables to release. A list of tuples in place of one ties them: they share one table, to which a record
        gives 1/K for each of its K cliques in the list.
    epsilon : float
        The privacy loss of all tables together; not so small that noise would exceed 64-bit counts.
    counts : str, optional
        The column that says how many records each row stands for.
    person : str, optional
        The column that says whose row it is, where a person's record has several rows (segments); each gives 1/K, K
        the number of the person's rows and tied cliques that count. n is then the number of persons.
    null : optional
        The state that means "not seen". A clique whose variables are all in this state is not counted, and 1/K
        refers to those that are. A record that is null throughout contributes nothing: a table's total then depends
        on the data, and is known only through the noisy cells.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release, with discrete noise on whole counts.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    Release
        With one noisy table a clique in ``.values``, named by its variables (``"age,work"``).

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from dpbook import graphical
    >>> people = pd.DataFrame({"age": [0, 1, 2, 2], "work": ["no", "yes", "yes", "no"]})
    >>> noisy = graphical.release(people, {"age": 3, "work": ["no", "yes"]}, [("age", "work")], epsilon=1.0,
    ...                           rng=np.random.default_rng(0))
    >>> noisy["age,work"].shape, noisy.scale["age,work"]
    ((3, 2), 2.0)
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    sensitivity = histogram(tables=len(groups))
    layout, rng = layout_of(domain, counts, person, null), seeded_generator(rng)
    epsilon = checked_epsilon(epsilon, sensitivity / layout.unit(groups))
    exact = exact_tables(data, known, groups, layout)
    paid = charge(budget, epsilon, 0.0, label=f"{len(groups)} clique table{'s' * (len(groups) > 1)}")
    flat = np.concatenate([table.ravel() for table in exact.tables])
    noisy, scale = noise.add_laplace_to_sum(ExactSum(flat, exact.unit, exact.n), sensitivity, epsilon, rng)
    names = [group_name(group) for group in groups]
    ends = np.cumsum([table.size for table in exact.tables])[:-1]
    parts = np.split(noisy, ends)
    made = Release(
        values={k: part.reshape(t.shape) for k, part, t in zip(names, parts, exact.tables, strict=True)},
        model=TABLES_MODEL,
        mechanism="laplace",
        scale=dict.fromkeys(names, scale),
        sensitivity=dict.fromkeys(names, sensitivity),
        epsilon=epsilon,
        n=exact.n,
        settings={
            "domain": known.settings,
            "cliques": groups,
            "totals known": null is None,
            "unit": "one row" if person is None else "one person",
        },
        float_safe=rng is None,
    )
    return paid.entered(made)


def checked_epsilon(epsilon: Any, steps: float) -> float:
    """Return epsilon; raise unless noise for a sensitivity of so many steps of its grid can be drawn in 64 bits."""
    checked, least = positive("epsilon", epsilon), steps / _WIDEST
    if not least <= checked <= _LARGEST_EPSILON:
        raise ValueError(
            f"epsilon must lie between {least:.3g}, below which noise would not fit in 64-bit counts, and "
            f"{_LARGEST_EPSILON:g}; got {checked}"
        )
    return checked
