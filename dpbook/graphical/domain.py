"""Discrete records: which variables they have, which states each takes, and which tables a model looks at.

Chapter 5 explains them. A domain and its cliques are public: they come from the code book and the modeller, never from
the data.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook._late import pd
from dpbook._validation import integer, present_array, unmasked
from dpbook.schema import MISSING, Category, Flag, Number, Schema

__all__ = ["Clique", "Domain", "chain"]

TABLES_MODEL = "clique tables"  # what a release of tables, and one of potentials, calls its model
POTENTIALS_MODEL = "log-linear potentials"

Clique = tuple[str, ...]
Groups = tuple[tuple[Clique, ...], ...]

_MOST_LABELS = 10**6  # of whole numbers that do not start at 0, each of which gets a label


@dataclass(frozen=True)
class Domain:
    """The variables of a record and the states of each, known without the data.

    ``names`` are the variables, in order; ``sizes`` how many states each has, two or more; ``labels`` what these are
    called, or None where states are the codes 0, 1, …. Explained in :doc:`/book/graphical-models/log-linear-models`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import Domain
    >>> domain = Domain.of({"age": 3, "work": ["no", "yes"]})
    >>> domain.sizes, domain.shape(("work", "age")), domain.size(("work", "age")), domain.indices(("work",))
    ((3, 2), (2, 3), 6, (1,))
    >>> domain.codes("work", ["yes", "no"]), domain.frame(np.array([[2, 1]]))["work"][0]
    (array([1, 0]), 'yes')
    >>> Domain.of_settings(domain.settings) == domain
    True
    >>> from dpbook import Schema
    >>> from dpbook.schema import Category, Integer
    >>> Domain.of(Schema({"age": Integer(0, 2), "work": Category(["no", "yes"])})) == domain
    True
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    labels: tuple[tuple[Any, ...] | None, ...]

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) != len(self.names):
            raise ValueError(f"names must hold one or more different variables, got {self.names}")
        if not len(self.names) == len(self.sizes) == len(self.labels):
            raise ValueError(f"sizes and labels must have an entry for each of {self.names}")
        for name, size, labels in zip(self.names, self.sizes, self.labels, strict=True):
            if integer(f"domain[{name!r}]", size) < 2:
                raise ValueError(f"domain[{name!r}] must have two states or more, got {size}")
            if labels is not None and len(labels) != size:
                raise ValueError(f"domain[{name!r}] must have a label for each of {size} states, got {labels!r}")

    @classmethod
    def of(cls, domain: Domain | Schema | Mapping[str, Any]) -> Domain:
        """Return the domain that a mapping or a schema describes; raise, naming the variable, where it describes none.

        A mapping ``domain`` gives each variable's number of states, or its states' labels. A schema's categories, flags
        and integers are variables; with ``missing="category"``, each has the state ``"missing"`` too.
        """
        if isinstance(domain, Domain):
            return domain
        if isinstance(domain, Schema):
            return cls.of({name: _states(name, domain) for name in domain.names})
        if not isinstance(domain, Mapping) or not domain:
            raise TypeError(f"domain must map names to numbers of states or to labels, got {domain!r}")
        sizes, labels = [], []
        for name, states in domain.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"domain must have non-empty strings as names, got {name!r}")
            known = None if isinstance(states, numbers.Integral) else _labels(name, states)
            sizes.append(integer(f"domain[{name!r}]", states) if known is None else len(known))
            labels.append(known)
        return cls(tuple(domain), tuple(sizes), tuple(labels))

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> Domain:
        """Return the domain that a release carries in its ``settings``, as :attr:`settings` gave it."""
        labels = tuple(None if each is None else tuple(each) for each in settings["labels"])
        return cls(tuple(settings["names"]), tuple(settings["sizes"]), labels)

    @property
    def settings(self) -> dict[str, Any]:
        """The domain as numbers and strings that a release can carry."""
        return {"names": self.names, "sizes": self.sizes, "labels": self.labels}

    def size(self, clique: Iterable[str]) -> int:
        """Return how many cells the table of a ``clique``, names of variables, has."""
        return math.prod(self.shape(clique))

    def shape(self, clique: Iterable[str]) -> tuple[int, ...]:
        """Return the shape of the table of a ``clique``: numbers of states, in the clique's order."""
        return tuple(self.sizes[self.names.index(name)] for name in clique)

    def indices(self, clique: Iterable[str]) -> tuple[int, ...]:
        """Return the positions of the variables of a ``clique`` in the domain, in the clique's order."""
        return tuple(self.names.index(name) for name in clique)

    def codes(self, name: str, column: Any, *, argument: str = "data") -> NDArray[np.int64]:
        """Return the states of the variable ``name`` as codes; raise where a value in ``column`` is no state of it.

        Values are labels where the domain has labels, else codes 0, 1, …. The error, which calls the data ``argument``,
        is not private: only the curator may see it.
        """
        position = self.names.index(name)
        labels, size = self.labels[position], self.sizes[position]
        column = unmasked(column)
        if np.ndim(column) != 1:
            raise ValueError(f"{argument} must have one column {name!r}, got values of shape {np.shape(column)}")
        if labels is not None:
            try:
                found = pd.Index(np.asarray(labels, dtype=object)).get_indexer(
                    pd.Index(np.asarray(column, dtype=object))
                )
            except TypeError:  # what has no hash is no label
                found = np.array([-1])
            if (found < 0).any():
                raise ValueError(f"{argument} must hold states of the domain: {name!r} has a value that is no label")
            return np.asarray(found, dtype=np.int64)
        values = present_array(f"{argument}[{name!r}]", column)
        if not (values == np.rint(values)).all():
            raise ValueError(f"{argument} must hold whole codes: {name!r} has a value that is none")
        if values.size and (values.min() < 0 or values.max() >= size):
            raise ValueError(f"{argument} must hold codes from 0 to {size - 1} in {name!r}: a value lies outside")
        return values.astype(np.int64)

    def frame(self, codes: NDArray[np.int64]) -> pd.DataFrame:
        """Return ``codes``, (rows, variables), as a table of labels, or of codes where the domain has none."""
        columns: dict[str, Any] = {}
        for position, (name, labels) in enumerate(zip(self.names, self.labels, strict=True)):
            column = codes[:, position]
            columns[name] = column if labels is None else pd.Index(labels).take(column)
        return pd.DataFrame(columns)


def _states(name: str, schema: Schema) -> int | Sequence[Any]:
    """Return the states of a schema's column: their number where they are 0, 1, …, else their labels."""
    kind = schema.columns[name]
    if isinstance(kind, Number):
        raise ValueError(
            f"domain[{name!r}] must have finitely many states, and a Number has not: bin it, by public edges, into a "
            "Category or an Integer"
        )
    if isinstance(kind, Category):
        return list(schema.dtypes[name].categories)
    kept = schema.missing == "category"
    if not kept and (isinstance(kind, Flag) or kind.low == 0):
        return schema.cardinalities[name]
    if schema.cardinalities[name] > _MOST_LABELS:
        raise ValueError(f"domain[{name!r}] must have at most {_MOST_LABELS} states unless they start at 0: bin it")
    span = (0, 1) if isinstance(kind, Flag) else range(kind.low, kind.high + 1)
    return [*span, MISSING] if kept else span


def _labels(name: str, states: Any) -> tuple[Any, ...]:
    if isinstance(states, (str, bytes, Set)) or not isinstance(states, Iterable):  # a set has no order
        raise TypeError(f"domain[{name!r}] must be a number of states or a sequence of labels, got {states!r}")
    known = tuple(each.item() if isinstance(each, np.generic) else each for each in states)
    if not all(isinstance(each, str) or (isinstance(each, (int, float)) and math.isfinite(each)) for each in known):
        raise TypeError(f"domain[{name!r}] must have strings or finite numbers as labels, got {known!r}")
    if len(set(known)) != len(known):
        raise ValueError(f"domain[{name!r}] must have different labels, got {known!r}")
    return known


def chain(names: Sequence[str], *, order: int = 1, tied: bool = False) -> list[Any]:
    """Return the cliques of a pairwise chain, for :func:`release` and :func:`fit_nonprivate`.

    Parameters
    ----------
    names : sequence of str
        The variables in time order.
    order : int, default 1
        Edges join variables at most this many steps apart.
    tied : bool, default False
        Whether the chain is homogeneous in time: all pairs at the same distance share one table of potentials, and
        the first variable has a table of its own.

    Returns
    -------
    list
        Cliques; with ``tied``, the first variable's and one list of cliques for each distance.

    Examples
    --------
    >>> from dpbook.graphical import chain
    >>> chain(["a", "b", "c"])
    [('a', 'b'), ('b', 'c')]
    >>> chain(["a", "b", "c"], tied=True)
    [('a',), [('a', 'b'), ('b', 'c')]]

    Explained in :doc:`/book/graphical-models/mobility`.
    """
    given = names if isinstance(names, Mapping) else in_order("names", names)  # a domain is in order
    names, order = list(given), integer("order", order, least=1)
    if len(names) < 2 or len(set(names)) != len(names):
        raise ValueError(f"names must hold two or more different variables, got {names}")
    by_distance = [[(names[i], names[i + k]) for i in range(len(names) - k)] for k in range(1, order + 1)]
    by_distance = [pairs for pairs in by_distance if pairs]
    if tied:
        return [(names[0],), *by_distance]
    return sorted((pair for pairs in by_distance for pair in pairs), key=lambda pair: names.index(pair[0]))


def checked_groups(cliques: Any, domain: Domain) -> Groups:
    """Return cliques as groups that share a table; raise on empty, repeated or unknown ones."""
    if isinstance(cliques, str) or not isinstance(cliques, Iterable):
        raise TypeError(f"cliques must be a list of tuples of names, got {cliques!r}")
    ordered = in_order("cliques", cliques)
    groups = tuple(_group(position, each, domain) for position, each in enumerate(ordered))
    if not groups:
        raise ValueError("cliques must hold at least one clique, got none")
    seen: set[frozenset[str]] = set()
    for member in (member for group in groups for member in group):
        if frozenset(member) in seen:
            raise ValueError(f"cliques must be different sets of variables: {member} occurs twice")
        seen.add(frozenset(member))
    names = [group_name(group) for group in groups]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"cliques must be told apart by their variables joined by commas: {name!r} occurs twice")
    return groups


def _group(position: int, given: Any, domain: Domain) -> tuple[Clique, ...]:
    name = f"cliques[{position}]"
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a tuple of names such as ('a', 'b') or ('a',), got {given!r}")
    items = tuple(in_order(name, given))
    if not items:
        raise ValueError(f"{name} must name at least one variable: it is empty")
    if all(isinstance(each, str) for each in items):
        return (checked_clique(name, items, domain),)
    members = []
    for each in items:
        if isinstance(each, str) or not isinstance(each, Iterable):
            raise TypeError(f"{name} must hold names, or tuples of names that share a table; got {each!r}")
        members.append(checked_clique(name, tuple(in_order(name, each)), domain))
    if len({domain.shape(member) for member in members}) != 1:
        raise ValueError(f"{name} must tie cliques of the same numbers of states, got {members}")
    if len({tuple(domain.labels[v] for v in domain.indices(member)) for member in members}) != 1:
        raise ValueError(f"{name} must tie cliques of variables with the same labels, got {members}")
    return tuple(members)


def in_order(name: str, given: Any) -> Any:
    """Return what is iterated in an order of its own; raise on a set or mapping, whose order may follow a hash seed."""
    if isinstance(given, (Set, Mapping)):
        raise TypeError(f"{name} must have an order, as a list or a tuple has, got {type(given).__name__}")
    return given


def checked_clique(name: str, given: tuple[Any, ...], domain: Domain) -> Clique:
    """Return a clique; raise, naming the argument, on an empty one, and on unknown or repeated variables."""
    if not given:
        raise ValueError(f"{name} must name at least one variable: it is empty")
    unknown = [each for each in given if each not in domain.names]
    if unknown:
        raise ValueError(f"{name} must name variables of the domain: {unknown} are not among {list(domain.names)}")
    if len(set(given)) != len(given):
        raise ValueError(f"{name} must name each variable once, got {given}")
    return given


def group_name(group: tuple[Clique, ...]) -> str:
    """Return what a release calls the table of a group: its variables, and how many cliques share it."""
    joined = ",".join(group[0])
    return joined if len(group) == 1 else f"{joined} and {len(group) - 1} more"
