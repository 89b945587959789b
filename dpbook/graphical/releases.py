"""The curator's side of chapter 5: noisy clique tables, and a preview of how noisy they would be.

Every release is private for replace-one neighbours, n public. In each table a replaced record leaves one cell and
enters another, so that |C| tables have sensitivity 2|C| together. A record of several segments gives each of its
segments the weight 1/K, so that it weighs at most 1 in a table, as any other record does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpbook import noise
from dpbook._validation import Option, finite_array, integer, positive, seeded_generator
from dpbook.budget import PrivacyBudget, charge
from dpbook.graphical.domain import Domain, Groups, checked_groups, group_name
from dpbook.records import ExactSum
from dpbook.release import Release
from dpbook.sensitivity import histogram

__all__ = ["MODEL", "CliqueTables", "Preview", "clique_tables", "preview", "release"]

MODEL = "clique tables"

_WEIGHT = 2**32  # a record's weight in whole units: 1/K is rounded down, so that K of them never exceed it
_MOST_RECORDS = 2**30 - 1  # times _WEIGHT stays below 2**63
_WIDEST = 2.0**53  # steps of the grid: at this scale, noise beyond 64 bits has probability e^(-1024)
_LARGEST_EPSILON = 1e100


class CliqueTables(NamedTuple):
    """Exact tables of all cliques, in whole units; not private.

    Attributes
    ----------
    tables : list of ndarray of int64
        One table a clique (a group of tied cliques).
    unit : float
        What one unit of the tables is worth: 1 for counts, 2**-32 for weights.
    n : int
        The number of records: of rows or, where a column names the person, of persons.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import clique_tables
    >>> clique_tables(np.array([[3, 0], [1, 2]]), {"a": 2, "b": 2}, [("a",)]).tables[0]
    array([3, 3])

    Explained in :doc:`/book/graphical-models/log-linear-models`.
    """

    tables: list[NDArray[np.int64]]
    unit: float
    n: int


def release(
    records: Any,
    domain: Domain | Mapping[str, Any],
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
    may see it. All else is checked before anything is read.

    Parameters
    ----------
    records : DataFrame, pyarrow Table, iterator of such, Dask DataFrame, or array
        Rows of codes or labels, one column a variable; or the table of counts of all variables together, an array
        with one axis for each variable of the domain. What belongs to one record, its states, its count and its
        person, stands in one row of one table.
    domain : Domain or mapping of str to int or sequence
        Each variable's number of states, or its states' labels; public.
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

    Explained in :doc:`/book/graphical-models/log-linear-models`.
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    sensitivity = histogram(tables=len(groups))
    epsilon = checked_epsilon(epsilon, sensitivity / _unit(groups, person, null))
    rng = seeded_generator(rng)
    exact = _exact_tables(records, known, groups, counts, person, null)
    charge(budget, epsilon, 0.0, label=f"{len(groups)} clique table{'s' * (len(groups) > 1)}")
    flat = np.concatenate([table.ravel() for table in exact.tables])
    noisy, scale = noise.add_laplace_to_sum(ExactSum(flat, exact.unit, exact.n), sensitivity, epsilon, rng)
    names = [group_name(group) for group in groups]
    ends = np.cumsum([table.size for table in exact.tables])[:-1]
    parts = np.split(noisy, ends)
    return Release(
        values={k: part.reshape(t.shape) for k, part, t in zip(names, parts, exact.tables, strict=True)},
        model=MODEL,
        mechanism="laplace",
        scale=dict.fromkeys(names, scale),
        sensitivity=dict.fromkeys(names, sensitivity),
        epsilon=epsilon,
        n=exact.n,
        settings={"domain": known.settings, "cliques": groups, "totals known": null is None},
        float_safe=rng is None,
    )


def clique_tables(
    records: Any,
    domain: Domain | Mapping[str, Any],
    cliques: Sequence[Any],
    *,
    counts: str | None = None,
    person: str | None = None,
    null: Any = None,
) -> CliqueTables:
    """Return the exact tables that :func:`release` adds noise to; they are not private.

    Parameters
    ----------
    records, domain, cliques, counts, person, null
        As in :func:`release`.

    Returns
    -------
    CliqueTables
        Whole numbers of units, exact in any order and any chunking of the records.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpbook.graphical import chain, clique_tables
    >>> trips = pd.DataFrame({"first": [0, 1], "then": [1, 1], "last": [1, 0]})
    >>> exact = clique_tables(trips, {"first": 2, "then": 2, "last": 2}, chain(list(trips), tied=True))
    >>> exact.tables[1] * exact.unit
    array([[0. , 0.5],
           [0.5, 1. ]])

    Explained in :doc:`/book/graphical-models/log-linear-models`.
    """
    known = Domain.of(domain)
    return _exact_tables(records, known, checked_groups(cliques, known), counts, person, null)


def optional(option: Option) -> Option:
    """Return an option that takes None, too, which means the method's own default."""
    return Option(f"{option.takes}, or None", lambda name, value: None if value is None else option.check(name, value))


def checked_epsilon(epsilon: Any, steps: float) -> float:
    """Return epsilon; raise unless noise for a sensitivity of so many steps of its grid can be drawn in 64 bits."""
    checked, least = positive("epsilon", epsilon), steps / _WIDEST
    if not least <= checked <= _LARGEST_EPSILON:
        raise ValueError(
            f"epsilon must lie between {least:.3g}, below which noise would not fit in 64-bit counts, and "
            f"{_LARGEST_EPSILON:g}; got {checked}"
        )
    return checked


def _unit(groups: Groups, person: str | None, null: Any) -> float:
    """Return what one unit of the tables is worth: a record, or 2**-32 of it where records are split."""
    split = person is not None or null is not None or any(len(group) > 1 for group in groups)
    return 1.0 / _WEIGHT if split else 1.0


def _exact_tables(
    records: Any, known: Domain, groups: Groups, counts: str | None, person: str | None, null: Any
) -> CliqueTables:
    _check_columns(known, counts, person)
    codes_of_null = _null_codes(known, null)
    unit = _unit(groups, person, null)
    chunks = record_chunks(records, known, groups, counts, person)
    tables = [np.zeros(known.shape(group[0]), dtype=np.int64) for group in groups]
    n = 0
    for codes, times, persons in chunks:
        n += int(times.sum()) if persons is None else int(persons.max(initial=-1)) + 1
        _check_number(n)
        for table, group in zip(tables, groups, strict=True):
            table += _table(codes, times, persons, group, known, codes_of_null, unit < 1)
    if n == 0:
        raise ValueError("records must hold at least one record, got none")
    return CliqueTables(tables, unit, n)


class _Chunk(NamedTuple):
    codes: NDArray[np.int64]  # (rows, variables)
    times: NDArray[np.int64]  # how many records each row stands for
    persons: NDArray[np.int64] | None  # whose row it is, numbered from 0


def record_chunks(
    records: Any, domain: Domain, groups: Groups, counts: str | None, person: str | None
) -> Iterator[_Chunk]:
    """Return the records' codes, chunk by chunk, from rows in any accepted form or from a table of counts."""
    if not isinstance(records, (np.ndarray, list, tuple)):
        return _chunks(records, domain, groups, counts, person)
    for name, column in (("person", person), ("counts", counts)):
        if column is not None:
            raise ValueError(f"{name} names a column, but records is a table of counts, which has none")
    return iter([_from_counts(records, domain)])


def _check_columns(domain: Domain, counts: str | None, person: str | None) -> None:
    for name, column in (("counts", counts), ("person", person)):
        if column is not None and not isinstance(column, str):
            raise TypeError(f"{name} must name a column, got {column!r}")
        if column in domain.names:
            raise ValueError(f"{name} must not be a variable of the domain, got {column!r}")
    if counts is not None and person is not None:
        raise ValueError("counts and person cannot both be given: a row that stands for many has no one person")


def _null_codes(domain: Domain, null: Any) -> dict[str, int]:
    """Return each variable's code of the state that means "not seen"; variables without that state have none."""
    if null is None:
        return {}
    found = {}
    for name, size, labels in zip(domain.names, domain.sizes, domain.labels, strict=True):
        if labels is not None and null in labels:
            found[name] = labels.index(null)
        elif labels is None and isinstance(null, (int, np.integer)) and 0 <= null < size:
            found[name] = int(null)
    if not found:
        raise ValueError(f"null must be a state of at least one variable, got {null!r}")
    return found


def _from_counts(records: Any, domain: Domain) -> _Chunk:
    """Return a table of counts as one row a cell."""
    table = finite_array("records", records)
    if table.shape != domain.sizes:
        raise ValueError(
            f"records must, as an array, be the table of counts of all variables, of shape {domain.sizes}, got "
            f"{table.shape}; for rows of codes pass a DataFrame"
        )
    _check_counts(table)
    held = np.nonzero(table)
    return _Chunk(np.stack(held, axis=1).astype(np.int64), table[held].astype(np.int64), None)


def _chunks(records: Any, domain: Domain, groups: Groups, counts: str | None, person: str | None) -> Iterator[_Chunk]:
    if person is not None and not isinstance(records, pd.DataFrame):
        raise TypeError("records must be one DataFrame where person is given: a person's rows must not be split")
    used = dict.fromkeys(name for group in groups for member in group for name in member)
    for frame in _frames(records):
        missing = [name for name in [*used, *filter(None, (counts, person))] if name not in frame.columns]
        if missing:
            raise ValueError(f"records must have the columns {sorted(missing)}, it has {list(frame.columns)}")
        codes = np.zeros((len(frame), len(domain.names)), dtype=np.int64)
        for name in used:
            codes[:, domain.names.index(name)] = domain.codes(name, frame[name].to_numpy())
        times = np.ones(len(frame), dtype=np.int64) if counts is None else _whole_counts(frame[counts])
        persons = None
        if person is not None:
            persons = _owners(frame[person], person)
        yield _Chunk(codes, times, persons)


def _frames(records: Any) -> Iterator[pd.DataFrame]:
    library = type(records).__module__.split(".")[0]
    if isinstance(records, pd.DataFrame):
        yield records
    elif (
        library == "dask" and hasattr(type(records), "columns") and records.ndim == 2
    ):  # a Delayed claims any attribute
        for partition in records.to_delayed():
            yield partition.compute()
    elif library == "pyarrow" and hasattr(records, "column_names") and hasattr(records, "to_pandas"):
        yield records.to_pandas()
    elif isinstance(records, Iterator):
        for each in records:
            yield from _frames(each)
    else:
        raise TypeError(
            "records must be a pandas DataFrame, a pyarrow Table or RecordBatch, an iterator of such, a Dask "
            f"DataFrame, or an array of counts, got {type(records).__name__} of {library}; {_advice(library)}"
        )


def _advice(library: str) -> str:
    """Say how to turn what a library calls a table into one that is taken."""
    ways = {"polars": "call its to_pandas() first", "dask": "call its to_dask_dataframe() or compute() first"}
    return ways.get(library, "make a DataFrame of it with the variables as columns")


def _whole_counts(column: pd.Series[Any]) -> NDArray[np.int64]:
    values = finite_array("records[counts]", column.to_numpy(), ndim=1)
    _check_counts(values)
    return values.astype(np.int64)


def _check_counts(counts: NDArray[np.float64]) -> None:
    if (counts < 0).any():
        raise ValueError("records must hold counts of 0 or more: a count is negative")
    if (counts != np.rint(counts)).any():
        raise ValueError("records must hold whole counts")
    _check_number(float(counts.sum()))  # as floats, which do not wrap around


def _check_number(n: float) -> None:
    if n > _MOST_RECORDS:
        raise ValueError(f"records must number at most {_MOST_RECORDS}: 64-bit totals could overflow beyond")


def _owners(column: pd.Series[Any], person: str) -> NDArray[np.int64]:
    """Return the persons of a column, numbered from 0; a row that is nobody's has no unit of privacy."""
    if column.ndim != 1:
        raise ValueError(f"records must have one column {person!r}")
    numbers = np.asarray(pd.factorize(column)[0], dtype=np.int64)
    if (numbers < 0).any():
        raise ValueError(f"records must say whose each row is: {person!r} has a missing value")
    return numbers


def _table(
    codes: NDArray[np.int64],
    times: NDArray[np.int64],
    persons: NDArray[np.int64] | None,
    group: tuple[tuple[str, ...], ...],
    domain: Domain,
    null: dict[str, int],
    weighted: bool,
) -> NDArray[np.int64]:
    """Return one table's total: each record's cells, weighted 1/K in whole units rounded down, exactly."""
    shape = domain.shape(group[0])
    cells = np.stack(
        [np.ravel_multi_index(tuple(codes[:, domain.indices(member)].T), shape) for member in group], axis=1
    )
    seen = np.ones(cells.shape, dtype=bool)
    for position, member in enumerate(group):
        if all(name in null for name in member):
            columns = [codes[:, domain.names.index(name)] == null[name] for name in member]
            seen[:, position] = ~np.logical_and.reduce(columns)
    size = math.prod(shape)
    if not weighted:
        return _count(cells[:, 0], times, size).reshape(shape)
    parts = np.asarray(seen.sum(axis=1), dtype=np.int64)
    if persons is not None:
        parts = np.asarray(np.bincount(persons, weights=parts), dtype=np.int64)[persons]
    total = np.zeros(size, dtype=np.int64)
    # One exact count for each K: K weights of floor(2**32 / K) stay within 1.
    for k in np.unique(parts[parts > 0]).tolist():
        chosen, members = np.nonzero(seen & (parts == k)[:, None])
        total += _count(cells[chosen, members], times[chosen], size) * (_WEIGHT // k)
    return total.reshape(shape)


def _count(cells: NDArray[np.int64], times: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return how many records fall in each cell; sums of whole numbers below 2**53 are exact."""
    return np.bincount(cells, weights=times, minlength=size).astype(np.int64)


@dataclass(frozen=True)
class Preview:
    """What a release of clique tables would be worth, from public numbers alone.

    Attributes
    ----------
    sensitivity : float
        Of all tables together: 2 for each.
    noise_scale, noise_sd : float
        The Laplace scale and standard deviation of the noise on every cell's count.
    cells : int
        How many noisy numbers would be released.
    sampling_sd : float
        The sampling error of the count in a cell of average size, of the largest table.
    relative_error : float
        The noise's sd over the average count of a cell of the largest table: above 1, most cells are noise.
    break_even_n : float
        The n at which, in that table, noise and sampling contribute alike; beyond it privacy is the smaller worry.

    Examples
    --------
    >>> from dpbook import graphical
    >>> look = graphical.preview({"a": 10, "b": 10}, [("a", "b")], n=1000, epsilon=1.0)
    >>> look.noise_scale, look.cells
    (2.0, 100)

    Explained in :doc:`/book/graphical-models/log-linear-models`.
    """

    sensitivity: float
    noise_scale: float
    noise_sd: float
    cells: int
    sampling_sd: float
    relative_error: float
    break_even_n: float


def preview(domain: Domain | Mapping[str, Any], cliques: Sequence[Any], *, n: int, epsilon: float) -> Preview:
    """Say, before anything is spent, how noisy the tables would be.

    Parameters
    ----------
    domain, cliques
        As in :func:`release`.
    n : int
        The public number of records.
    epsilon : float
        The privacy loss.

    Returns
    -------
    Preview
        Noise scale, number of cells, relative error and break-even n.

    Examples
    --------
    >>> from dpbook import graphical
    >>> look = graphical.preview(dict.fromkeys("abc", 10), [("a", "b"), ("b", "c")], n=10_000, epsilon=1.0)
    >>> round(look.relative_error, 3), round(look.break_even_n)
    (0.057, 3232)

    Explained in :doc:`/book/graphical-models/learning-from-noisy-tables`.
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    n, epsilon = integer("n", n, least=1), positive("epsilon", epsilon)
    sizes = [known.size(group[0]) for group in groups]
    share = 1 / max(sizes)
    sensitivity = histogram(tables=len(groups))
    scale = sensitivity / epsilon
    sd = math.sqrt(2) * scale
    return Preview(
        sensitivity=sensitivity,
        noise_scale=scale,
        noise_sd=sd,
        cells=sum(sizes),
        sampling_sd=math.sqrt(n * share * (1 - share)),
        relative_error=sd / (n * share),
        break_even_n=sd**2 / (share * (1 - share)),
    )
