"""A ledger of privacy loss: :class:`PrivacyBudget` adds up what is spent and refuses to overspend.

Sequential composition adds epsilons and deltas; parallel composition over disjoint parts of the records, fixed before
anybody saw them, charges the dearest part only. The composition section of chapter 1 proves both. Neighbours:
replace-one, n public.
"""

from __future__ import annotations

import datetime
import enum
import math
import numbers
import os
import threading
from collections.abc import Hashable, Iterator, Mapping, Set
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook import _html
from dpbook._validation import at_least, delta_value, integer, positive

__all__ = ["BudgetExceeded", "Charge", "ParallelGroup", "PrivacyBudget", "charge"]

# Ten spends of 0.1 add up to 1 only within rounding; this much, relative to the limit, is forgiven.
_CRUMBS = 1e-12
_MOST_RECORDS = 2**30 - 1  # of a group: one byte each while its parts are compared
_BY_VALUE = (
    "A part is a set of positions, or a number of records, that was fixed before anybody saw the records. A value in a "
    "record does not fix its part: one replaced record would leave one part and enter another, and the sizes of both, "
    "which are public, would tell. See the section on composition"
)


class BudgetExceeded(RuntimeError):
    """Raised when a charge would exceed the budget; the ledger is then as it was before.

    Explained in :doc:`/book/background/composition`.

    Examples
    --------
    >>> from dpbook import BudgetExceeded, PrivacyBudget
    >>> try:
    ...     PrivacyBudget(epsilon=1.0).spend(2.0)
    ... except BudgetExceeded as error:
    ...     print(error)
    cannot spend epsilon 2: 1 of 1 remains
    """


@dataclass(frozen=True)
class Charge:
    """One line of a ledger: ``label``, what it was for, ``epsilon`` and ``delta``.

    ``branches`` holds, for a parallel group, every branch's key and its own ledger, and is empty otherwise. Explained
    in :doc:`/book/background/composition`.

    Examples
    --------
    >>> from dpbook import PrivacyBudget
    >>> budget = PrivacyBudget(1.0)
    >>> budget.spend(0.25, label="mean age")
    >>> budget.ledger[0]
    Charge(label='mean age', epsilon=0.25, delta=0.0, branches=())
    """

    label: str
    epsilon: float
    delta: float = 0.0
    branches: tuple[tuple[Hashable, tuple[Charge, ...]], ...] = ()


class PrivacyBudget:
    """A total privacy loss that releases draw from, and the record of what they drew.

    Spending is safe across threads: a charge is checked and entered under one lock, so two threads
    cannot both spend the last of the budget. It belongs to the process that made it: a budget refuses to be pickled,
    and after a fork the child cannot spend, because the parent would not know of it. Explained in
    :doc:`/book/background/composition`.

    Parameters
    ----------
    epsilon, delta : float
        The total loss; epsilon greater than 0, delta in [0, 1), by default 0.

    Examples
    --------
    >>> from dpbook import PrivacyBudget
    >>> budget = PrivacyBudget(epsilon=1.0, delta=1e-6)
    >>> budget.spend(0.4, label="histogram")
    >>> budget.spend(0.1, delta=1e-7, label="gaussian sum")
    >>> budget.spent, budget.remaining, budget.can_spend(0.7)
    ((0.5, 1e-07), 0.5, False)
    >>> [charge.label for charge in budget.ledger]
    ['histogram', 'gaussian sum']
    """

    def __init__(self, epsilon: float, delta: float = 0.0) -> None:
        self._epsilon = positive("epsilon", epsilon)
        self._delta = delta_value("delta", delta)
        self._lock: threading.RLock = threading.RLock()
        self._entries: list[Charge | ParallelGroup] = []
        self._group: ParallelGroup | None = None
        self._records: int | None = None  # how many a branch may read; of the whole budget nobody said
        self._process = os.getpid()

    @classmethod
    def _branch_of(cls, group: ParallelGroup, records: int) -> PrivacyBudget:
        """Return a budget whose charges count towards ``group`` and, through it, towards the root."""
        branch = cls.__new__(cls)
        branch._epsilon, branch._delta = group._parent._epsilon, group._parent._delta
        branch._lock, branch._entries, branch._group = group._parent._lock, [], group
        branch._records, branch._process = records, group._parent._process
        return branch

    def _check_process(self) -> None:
        """Raise in a forked process, before the lock: a thread that no longer exists may have held it at the fork."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "a budget is spent in the process that made it: this is a fork of that process, and the ledger there "
                "would not see the charge. Make the release before the fork, or in the process of the budget, and "
                "hand the Release on"
            )

    @property
    def epsilon(self) -> float:
        """The total epsilon (of the whole budget, also in a branch)."""
        return self._epsilon

    @property
    def delta(self) -> float:
        """The total delta (of the whole budget, also in a branch)."""
        return self._delta

    @property
    def spent(self) -> tuple[float, float]:
        """What has been charged here so far, as (epsilon, delta)."""
        with self._lock:
            return (
                math.fsum(entry.epsilon for entry in self._entries),
                math.fsum(entry.delta for entry in self._entries),
            )

    @property
    def remaining(self) -> float:
        """The epsilon that can still be spent here."""
        return max(0.0, self._left()[0])

    @property
    def remaining_delta(self) -> float:
        """The delta that can still be spent here."""
        return max(0.0, self._left()[1])

    def _left(self) -> tuple[float, float]:
        """Return what is left; a forgiven crumb makes it negative, so that crumbs are forgiven once, not each time."""
        with self._lock:
            epsilon, delta = self.spent
            if self._group is None:
                return self._epsilon - epsilon, self._delta - delta
            # A branch may first catch up with the dearest branch, which is already paid for.
            above = self._group._parent._left()
            return above[0] + self._group.epsilon - epsilon, above[1] + self._group.delta - delta

    def _is_closed(self) -> bool:
        """Say whether this is a branch of a group that has ended, or of one inside such a group."""
        return self._group is not None and (self._group._closed or self._group._parent._is_closed())

    def _shortage(self, epsilon: float, delta: float) -> str:
        """Return why this much cannot be spent now, or nothing if it can."""
        left = self._left()
        for name, amount, room, total in (
            ("epsilon", epsilon, left[0], self._epsilon),
            ("delta", delta, left[1], self._delta),
        ):
            if amount > room + _CRUMBS * total:
                return f"cannot spend {name} {amount:g}: {max(0.0, room):g} of {total:g} remains"
        return ""

    @property
    def ledger(self) -> tuple[Charge, ...]:
        """Every charge in the order it was made, as immutable :class:`Charge` lines."""
        with self._lock:
            return tuple(entry if isinstance(entry, Charge) else entry._as_charge() for entry in self._entries)

    def spend(self, epsilon: float, delta: float = 0.0, label: str = "") -> None:
        """Charge ``epsilon`` and ``delta``, not both 0, or raise and leave the ledger as it was.

        ``label`` says in the ledger what the charge is for.

        Raises
        ------
        BudgetExceeded
            If less than that remains.
        RuntimeError
            In a process that was forked after the budget was made.
        """
        epsilon, delta = _amounts(epsilon, delta)
        if not isinstance(label, str):
            raise TypeError(f"label must be a string, got {label!r}")
        self._check_process()
        with self._lock:
            if self._is_closed():
                raise ValueError("this branch's parallel group is closed: its `with` block has ended")
            if shortage := self._shortage(epsilon, delta):
                raise BudgetExceeded(shortage)
            self._entries.append(Charge(label, epsilon, delta))
            if self._group is not None:
                self._group._raise_to(self.spent)

    def can_spend(self, epsilon: float, delta: float = 0.0) -> bool:
        """Return whether ``spend`` would succeed now.

        ``epsilon`` and ``delta`` must remain, a branch must be open still, and this must be the budget's process.
        """
        epsilon, delta = _amounts(epsilon, delta)
        if os.getpid() != self._process:
            return False
        with self._lock:
            return not self._is_closed() and not self._shortage(epsilon, delta)

    def parallel(
        self,
        *,
        n: int | None = None,
        parts: Mapping[Hashable, Any] | None = None,
        fixed_by: str | None = None,
        label: str | None = None,
    ) -> ParallelGroup:
        """Open a group of branches over disjoint parts of the records; it costs the dearest branch.

        Replacing one record then changes one part only, whichever the record and whatever its value. That is so
        because positions fix the parts. Groups by a value, such as the answers of each religion, are no parts: a
        replaced record can leave one and enter another, both change, and so do their sizes, which releases publish.
        The loss is then up to twice the dearest branch, or unbounded. Where a value is public for every person, as a
        design stratum may be, and the promise is to replace a record within its stratum only, strata are parts; say so
        in ``fixed_by`` and where you state the guarantee.

        Parameters
        ----------
        n : int
            The public number of records: of the data or, in a branch, of its part.
        parts : mapping of key to range, sequence of int, or int
            For each part's public name the positions of its records among 0, …, n - 1, no two parts with a position
            in common; or for every part its number of records, the parts then following each other in order. Keys are
            strings, numbers other than NaN, dates, enumeration members, None, or tuples of such.
        fixed_by : str
            What fixed the parts before anybody saw the records, such as ``"order of arrival"`` or ``"random draw"``.
        label : str, optional
            The group's label in the ledger; by default ``"parallel by "`` and what fixed the parts.

        Returns
        -------
        ParallelGroup
            To be used in a ``with`` statement.

        Raises
        ------
        TypeError, ValueError
            Where ``parts`` overlap, leave 0, …, n - 1, are masks of True and False, which is what a comparison of
            values gives, or have keys that cannot be told apart; nothing is spent.

        Examples
        --------
        >>> from dpbook import PrivacyBudget
        >>> budget = PrivacyBudget(1.0)
        >>> halves = {"first": range(0, 500), "second": range(500, 1000)}
        >>> with budget.parallel(n=1000, parts=halves, fixed_by="order of arrival") as group:
        ...     group.branch("first").spend(0.2)
        ...     group.branch("first").spend(0.2)
        ...     group.branch("second").spend(0.3)
        >>> budget.remaining
        0.6
        """
        if not isinstance(fixed_by, str) or not fixed_by.strip():
            raise TypeError(f"fixed_by must say what fixed the parts, got {fixed_by!r}. {_BY_VALUE}")
        if label is not None and not isinstance(label, str):
            raise TypeError(f"label must be a string, got {label!r}")
        if n is None or parts is None:
            raise TypeError(f"n and parts must be given: the parts are declared before any is read. {_BY_VALUE}")
        n = integer("n", n, least=1)
        if n > _MOST_RECORDS:
            raise ValueError(f"n must be at most {_MOST_RECORDS}, got {n}")
        if self._records is not None and n != self._records:
            raise ValueError(f"n must be the number of records of this branch's part, {self._records}, got {n}")
        self._check_process()
        return ParallelGroup(self, f"parallel by {fixed_by}" if label is None else label, _disjoint(parts, n))

    def __repr__(self) -> str:
        delta = f", delta={self._delta:g}" if self._delta else ""
        return f"PrivacyBudget(epsilon={self._epsilon:g}{delta}; remaining {self.remaining:g})"

    def _repr_html_(self) -> str:
        with self._lock:  # one moment's ledger and totals
            ledger, spent, left = self.ledger, self.spent, (self.remaining, self.remaining_delta)
        delta = f", δ = {self._delta:.4g}" if self._delta else ""
        return _html.table(
            f"Privacy budget: ε = {self._epsilon:.4g}{delta}",
            ["charge", "ε", "δ"],
            [[_line_name(line), line.epsilon, line.delta] for line in ledger],
            footer=[["spent", *spent], ["remaining", *left]],
        )


def _line_name(line: Charge) -> str:
    """Return what a line of the ledger is called in a table."""
    name = line.label or "(no label)"
    return f"{name} (dearest of {len(line.branches)})" if line.branches else name


class ParallelGroup:
    """Branches of a budget over disjoint parts that positions fix; made by :meth:`PrivacyBudget.parallel`.

    Its cost, charged to the budget it came from as it grows, is the maximum over branches of the sum within each.
    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    parent : PrivacyBudget
        The budget that the group is charged to.
    label : str
        The group's label in the ledger.
    parts : dict of key to positions
        Checked, as :meth:`PrivacyBudget.parallel` does.

    Examples
    --------
    >>> from dpbook import PrivacyBudget
    >>> budget = PrivacyBudget(1.0)
    >>> with budget.parallel(n=5, parts={"a": 2, "b": 3}, fixed_by="order of arrival") as group:
    ...     group.branch("a").spend(0.5)
    ...     group.branch("b").spend(0.5)
    >>> budget.remaining, group.positions("b")
    (0.5, range(2, 5))
    """

    def __init__(self, parent: PrivacyBudget, label: str, parts: dict[Hashable, _Positions]) -> None:
        self._parent = parent
        self._label = label
        self._parts = parts
        self._branches: dict[Hashable, PrivacyBudget] = {}
        self._cost = (0.0, 0.0)
        self._entered = False
        self._closed = False

    @property
    def epsilon(self) -> float:
        """The epsilon of the dearest branch, which is the group's."""
        return self._cost[0]

    @property
    def delta(self) -> float:
        """The delta of the dearest branch, which is the group's."""
        return self._cost[1]

    def branch(self, key: Hashable) -> PrivacyBudget:
        """Return the budget for releases that read the part called ``key`` only; for one key always the same."""
        self._parent._check_process()
        with self._parent._lock:
            if not self._entered or self._closed or self._parent._is_closed():
                raise ValueError("branches exist inside the group's `with` block only")
            positions = self.positions(key)
            if key not in self._branches:
                self._branches[key] = PrivacyBudget._branch_of(self, len(positions))
            return self._branches[key]

    def positions(self, key: Hashable) -> range | NDArray[np.int64]:
        """Return the positions of the records of the part called ``key``, to take them from the data with.

        They are as they were declared; for numbers of records, the block that is this part's.
        """
        try:
            known = key in self._parts
        except TypeError:  # a list, a set, ...: what has no hash was not declared
            known = False
        if not known:
            names = ", ".join(map(repr, list(self._parts)[:5])) + ", …" * (len(self._parts) > 5)
            raise ValueError(f"key must be one of the parts that the group was opened with, {names}; got {key!r}")
        return self._parts[key]

    def __enter__(self) -> ParallelGroup:
        self._parent._check_process()
        with self._parent._lock:
            if self._entered:
                raise ValueError("a parallel group is entered once; open another with budget.parallel()")
            if self._parent._is_closed():
                raise ValueError("the parallel group that this one is part of is closed: its `with` block has ended")
            self._entered = True
            self._parent._entries.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._parent._process:  # a fork inside the block: this copy of the ledger counts nothing
            return
        with self._parent._lock:
            self._closed = True
            if self._cost == (0.0, 0.0):
                self._parent._entries.remove(self)

    def _raise_to(self, spent: tuple[float, float]) -> None:
        """Let the group cost at least what one of its branches has spent, and tell the groups above."""
        self._cost = (max(self._cost[0], spent[0]), max(self._cost[1], spent[1]))
        if self._parent._group is not None:
            self._parent._group._raise_to(self._parent.spent)

    def _as_charge(self) -> Charge:
        return Charge(self._label, *self._cost, branches=tuple(self._lines()))

    def _lines(self) -> Iterator[tuple[Any, tuple[Charge, ...]]]:
        return ((key, branch.ledger) for key, branch in self._branches.items())


_Positions = range | NDArray[np.int64]


def _disjoint(parts: Any, n: int) -> dict[Hashable, _Positions]:
    """Return the positions of each part; raise unless they lie in 0, …, n - 1 and no two parts share one."""
    if not isinstance(parts, Mapping):
        raise TypeError(f"parts must map each part's name to its positions, got {type(parts).__name__}. {_BY_VALUE}")
    if not parts:
        raise ValueError("parts must hold at least one part, got none")
    for key in parts:
        _check_key(key)
    if all(_is_count(part) for part in parts.values()):
        return _blocks(parts, n)
    taken = np.zeros(n, dtype=bool)
    found = {}
    for key, given in parts.items():
        part = _positions(f"parts[{key!r}]", given, n)
        # A range becomes a slice, which needs no array of its own.
        at = slice(part[0], part[-1] + 1, part.step) if isinstance(part, range) and len(part) else part
        if taken[at].any():
            raise ValueError(f"parts must have no position in common: parts[{key!r}] shares one with an earlier part")
        taken[at] = True
        found[key] = part
    return found


def _is_count(part: Any) -> bool:
    return isinstance(part, numbers.Integral) and not isinstance(part, (bool, np.bool_))


def _blocks(parts: Mapping[Hashable, Any], n: int) -> dict[Hashable, _Positions]:
    """Return one block of positions after the other, of the sizes given."""
    found: dict[Hashable, _Positions] = {}
    end = 0
    for key, size in parts.items():
        start, end = end, end + integer(f"parts[{key!r}]", size, least=0)
        found[key] = range(start, end)
    if end > n:
        raise ValueError(f"parts must number at most n = {n} records together, got {end}")
    return found


def _positions(name: str, given: Any, n: int) -> _Positions:
    """Return the positions of one part, each once; a mask is refused, for it comes from a comparison of values."""
    if isinstance(given, range):
        part: _Positions = given if given.step > 0 else given[::-1]
        inside = not len(part) or (part[0] >= 0 and part[-1] < n)
    else:
        if isinstance(given, (str, bytes, Mapping, Set, Iterator)) or np.ndim(given) != 1:
            raise TypeError(
                f"{name} must be a range or a sequence of positions, got {type(given).__name__}. {_BY_VALUE}"
            )
        array = np.asarray(given)
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"{name} must hold whole positions, got {array.dtype}. {_BY_VALUE}")
        inside = not array.size or bool(array.min() >= 0 and array.max() < n)
        if np.unique(array).size < array.size:
            raise ValueError(f"{name} must hold each position once")
        part = array.astype(np.int64)
        part.flags.writeable = False
    if not inside:
        raise ValueError(f"{name} must hold positions from 0 to {n - 1}: one lies outside")
    return part


_PLAIN = (str, bytes, numbers.Real, np.generic, datetime.date, datetime.time, datetime.timedelta, enum.Enum)


def _check_key(key: Any) -> None:
    """Raise unless a key stays equal to itself, and only to itself, for as long as the group lives."""
    if isinstance(key, tuple):
        for item in key:
            _check_key(item)
    elif key is not None and not isinstance(key, _PLAIN):
        raise TypeError(
            "parts must have strings, numbers, dates, enumeration members, None or tuples of such as keys, got "
            f"{type(key).__name__}: what can change, or is equal by other rules, does not name a part for good"
        )
    elif key != key:  # NaN, NaT
        raise ValueError(f"parts must have keys that are equal to themselves: {key!r} is not, so it names no part")


def _amounts(epsilon: Any, delta: Any) -> tuple[float, float]:
    amounts = at_least("epsilon", epsilon, 0.0), delta_value("delta", delta)
    if amounts == (0.0, 0.0):
        raise ValueError("epsilon and delta are both 0: there is nothing to spend")
    return amounts


def charge(budget: PrivacyBudget | None, epsilon: float, delta: float, *, label: str) -> None:
    """Charge an optional budget: what every release does after its arguments are checked and before it draws noise.

    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    budget : PrivacyBudget or None
        None charges nothing.
    epsilon, delta, label
        As in :meth:`PrivacyBudget.spend`.

    Examples
    --------
    >>> from dpbook.budget import PrivacyBudget, charge
    >>> budget = PrivacyBudget(1.0)
    >>> charge(budget, 0.25, 0.0, label="mean")
    >>> budget.remaining
    0.75
    """
    if budget is None:
        return
    if not isinstance(budget, PrivacyBudget):
        raise TypeError(f"budget must be a PrivacyBudget or None, got {budget!r}")
    budget.spend(epsilon, delta, label=label)
