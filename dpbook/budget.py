"""A ledger of privacy loss: :class:`PrivacyBudget` adds up what is spent and refuses to overspend.

Sequential composition adds epsilons and deltas; parallel composition over disjoint parts of the data
charges the largest part only. The composition section of chapter 1 proves both. Neighbours: replace-one, n public.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from dpbook._validation import at_least, delta_value, positive

__all__ = ["BudgetExceeded", "Charge", "ParallelGroup", "PrivacyBudget", "charge"]

# Ten spends of 0.1 add up to 1 only within rounding; this much, relative to the limit, is forgiven.
_CRUMBS = 1e-12


class BudgetExceeded(RuntimeError):
    """Raised when a charge would exceed the budget; the ledger is then as it was before.

    Examples
    --------
    >>> from dpbook import BudgetExceeded, PrivacyBudget
    >>> budget = PrivacyBudget(epsilon=1.0)
    >>> try:
    ...     budget.spend(2.0)
    ... except BudgetExceeded as error:
    ...     print(error)
    cannot spend epsilon 2: 1 of 1 remains
    >>> budget.remaining
    1.0

    Explained in :doc:`/book/background/composition`.
    """


@dataclass(frozen=True)
class Charge:
    """One line of a ledger, with the lines of each branch where it is a parallel group.

    Attributes
    ----------
    label : str
        What the charge was for.
    epsilon, delta : float
        What was charged.
    branches : tuple of (key, lines)
        For a parallel group, every branch's key and its own ledger; empty otherwise.

    Examples
    --------
    >>> from dpbook import PrivacyBudget
    >>> budget = PrivacyBudget(1.0)
    >>> budget.spend(0.25, label="mean age")
    >>> budget.ledger[0]
    Charge(label='mean age', epsilon=0.25, delta=0.0, branches=())

    Explained in :doc:`/book/background/composition`.
    """

    label: str
    epsilon: float
    delta: float = 0.0
    branches: tuple[tuple[Hashable, tuple[Charge, ...]], ...] = ()


class PrivacyBudget:
    """A total privacy loss that releases draw from, and the record of what they drew.

    Spending is safe across threads: a charge is checked and entered under one lock, so two threads
    cannot both spend the last of the budget. It is not shared between processes: a budget refuses to be pickled, and
    after a fork only one side may spend.

    Parameters
    ----------
    epsilon : float
        The total epsilon, greater than 0.
    delta : float, default 0.0
        The total delta, in [0, 1).

    Examples
    --------
    >>> from dpbook import PrivacyBudget
    >>> budget = PrivacyBudget(epsilon=1.0)
    >>> budget.spend(0.4, label="histogram")
    >>> budget.spend(0.1, label="mean")
    >>> budget.remaining
    0.5
    >>> [charge.label for charge in budget.ledger]
    ['histogram', 'mean']

    Explained in :doc:`/book/background/composition`.
    """

    def __init__(self, epsilon: float, delta: float = 0.0) -> None:
        self._epsilon = positive("epsilon", epsilon)
        self._delta = delta_value("delta", delta)
        self._lock: threading.RLock = threading.RLock()
        self._entries: list[Charge | ParallelGroup] = []
        self._group: ParallelGroup | None = None

    @classmethod
    def _branch_of(cls, group: ParallelGroup) -> PrivacyBudget:
        """Return a budget whose charges count towards ``group`` and, through it, towards the root."""
        branch = cls.__new__(cls)
        branch._epsilon, branch._delta = group._parent._epsilon, group._parent._delta
        branch._lock, branch._entries, branch._group = group._parent._lock, [], group
        return branch

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
        """Charge ``(epsilon, delta)``, or raise and leave the ledger as it was.

        Parameters
        ----------
        epsilon : float
            At least 0; epsilon and delta are not both 0.
        delta : float, default 0.0
            In [0, 1).
        label : str, default ""
            What the charge is for, shown in the ledger.

        Raises
        ------
        BudgetExceeded
            If less than that remains.

        Examples
        --------
        >>> from dpbook import PrivacyBudget
        >>> budget = PrivacyBudget(1.0, delta=1e-6)
        >>> budget.spend(0.5, delta=1e-7, label="gaussian sum")
        >>> budget.spent
        (0.5, 1e-07)

        Explained in :doc:`/book/background/composition`.
        """
        epsilon, delta = _amounts(epsilon, delta)
        if not isinstance(label, str):
            raise TypeError(f"label must be a string, got {label!r}")
        with self._lock:
            if self._is_closed():
                raise ValueError("this branch's parallel group is closed: its `with` block has ended")
            if shortage := self._shortage(epsilon, delta):
                raise BudgetExceeded(shortage)
            self._entries.append(Charge(label, epsilon, delta))
            if self._group is not None:
                self._group._raise_to(self.spent)

    def can_spend(self, epsilon: float, delta: float = 0.0) -> bool:
        """Return whether ``spend`` with these numbers would succeed now.

        Parameters
        ----------
        epsilon, delta : float
            As in :meth:`spend`.

        Returns
        -------
        bool
            Whether that much remains, and the branch, if this is one, is still open.

        Examples
        --------
        >>> from dpbook import PrivacyBudget
        >>> PrivacyBudget(1.0).can_spend(0.7)
        True

        Explained in :doc:`/book/background/composition`.
        """
        epsilon, delta = _amounts(epsilon, delta)
        with self._lock:
            return not self._is_closed() and not self._shortage(epsilon, delta)

    def parallel(self, label: str = "parallel") -> ParallelGroup:
        """Open a group of branches over disjoint parts of the data; it costs the dearest branch.

        Valid when the parts are fixed without looking at the data, such as by row index, and the keys are public:
        then replacing one record changes one part only.

        Parameters
        ----------
        label : str, default "parallel"
            The group's label in the ledger.

        Returns
        -------
        ParallelGroup
            To be used in a ``with`` statement.

        Examples
        --------
        >>> from dpbook import PrivacyBudget
        >>> budget = PrivacyBudget(1.0)
        >>> with budget.parallel(label="by county") as group:
        ...     group.branch("north").spend(0.2)
        ...     group.branch("north").spend(0.2)
        ...     group.branch("south").spend(0.3)
        >>> budget.remaining
        0.6

        Explained in :doc:`/book/background/composition`.
        """
        if not isinstance(label, str):
            raise TypeError(f"label must be a string, got {label!r}")
        return ParallelGroup(self, label)

    def __repr__(self) -> str:
        delta = f", delta={self._delta:g}" if self._delta else ""
        return f"PrivacyBudget(epsilon={self._epsilon:g}{delta}; remaining {self.remaining:g})"


class ParallelGroup:
    """Branches of a budget over disjoint, data-independent parts of the data; made by :meth:`PrivacyBudget.parallel`.

    Its cost, charged to the budget it came from as it grows, is the maximum over branches of the sum within each.

    Parameters
    ----------
    parent : PrivacyBudget
        The budget that the group is charged to.
    label : str
        The group's label in the ledger.

    Examples
    --------
    >>> from dpbook import PrivacyBudget
    >>> budget = PrivacyBudget(1.0)
    >>> with budget.parallel() as group:
    ...     for county in range(100):
    ...         group.branch(county).spend(0.5)
    >>> budget.remaining
    0.5

    Explained in :doc:`/book/background/composition`.
    """

    def __init__(self, parent: PrivacyBudget, label: str) -> None:
        self._parent = parent
        self._label = label
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
        """Return the branch of one part of the data; the same key gives the same branch again.

        Parameters
        ----------
        key : hashable
            The part's public name.

        Returns
        -------
        PrivacyBudget
            A budget to pass to the releases that read this part only.

        Examples
        --------
        >>> from dpbook import PrivacyBudget
        >>> with PrivacyBudget(1.0).parallel() as group:
        ...     group.branch("a") is group.branch("a")
        True

        Explained in :doc:`/book/background/composition`.
        """
        with self._parent._lock:
            if not self._entered or self._closed or self._parent._is_closed():
                raise ValueError("branches exist inside the group's `with` block only")
            if key not in self._branches:
                self._branches[key] = PrivacyBudget._branch_of(self)
            return self._branches[key]

    def __enter__(self) -> ParallelGroup:
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


def _amounts(epsilon: Any, delta: Any) -> tuple[float, float]:
    amounts = at_least("epsilon", epsilon, 0.0), delta_value("delta", delta)
    if amounts == (0.0, 0.0):
        raise ValueError("epsilon and delta are both 0: there is nothing to spend")
    return amounts


def charge(budget: PrivacyBudget | None, epsilon: float, delta: float, *, label: str) -> None:
    """Charge an optional budget: what every release does after its arguments are checked and before it draws noise.

    Parameters
    ----------
    budget : PrivacyBudget or None
        None charges nothing.
    epsilon, delta : float
        The privacy loss.
    label : str
        The charge's label in the ledger.

    Examples
    --------
    >>> from dpbook.budget import PrivacyBudget, charge
    >>> budget = PrivacyBudget(1.0)
    >>> charge(budget, 0.25, 0.0, label="mean")
    >>> budget.remaining
    0.75

    Explained in :doc:`/book/background/composition`.
    """
    if budget is None:
        return
    if not isinstance(budget, PrivacyBudget):
        raise TypeError(f"budget must be a PrivacyBudget or None, got {budget!r}")
    budget.spend(epsilon, delta, label=label)
