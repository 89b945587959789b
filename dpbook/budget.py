"""A ledger of privacy loss: :class:`PrivacyBudget` adds up what is spent and refuses to overspend.

Sequential composition adds epsilons and deltas, or what zCDP or Gaussian differential privacy add; parallel composition
over disjoint parts of the records, fixed before anybody saw them, charges the dearest part only. The composition
section of chapter 1 proves them. A ledger lives in memory, or in a file that outlives the process. Neighbours:
replace-one, n public.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import hashlib
import math
import numbers
import os
import threading
import uuid
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook import _html, budget_report
from dpbook._validation import at_least, delta_value, integer, one_of, positive
from dpbook.accountants import Accountant, Cost, Loss, accountant
from dpbook.ledger_file import LedgerFile, Row, now
from dpbook.release import Release, Report

__all__ = ["BudgetExceeded", "Charge", "ParallelGroup", "PrivacyBudget", "charge", "fingerprint"]

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

    ``branches`` holds, for a parallel group, every branch's key and its own ledger, and is empty otherwise. ``time``
    is when the charge was entered (UTC); ``rho`` and ``mu`` are its loss as zCDP and as Gaussian differential privacy
    count it, where a release stated them; ``fingerprint`` is that of the :class:`~dpbook.Release` that was paid for,
    empty for what is no Release. Explained in :doc:`/book/background/composition`.

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
    time: str = field(default="", repr=False, compare=False)
    rho: float | None = field(default=None, repr=False)
    mu: float | None = field(default=None, repr=False)
    fingerprint: str = field(default="", repr=False, compare=False)

    @property
    def loss(self) -> Loss:
        """What the release loses, in every way that is known."""
        return Loss(self.epsilon, self.delta, self.rho, self.mu)


class PrivacyBudget:
    """A total privacy loss that releases draw from, and the record of what they drew.

    Spending is safe across threads: a charge is checked and entered under one lock, so two threads
    cannot both spend the last of the budget. It belongs to the process that made it: a budget refuses to be pickled,
    and after a fork the child cannot spend, because the parent would not know of it. A project that lasts longer than a
    process keeps its ledger in a file: :meth:`open`. Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    epsilon, delta : float
        The total loss; epsilon greater than 0, delta in [0, 1), by default 0.
    unit : str, default "one record"
        The unit of privacy in the data's own words, for reports.
    accounting : {"addition", "zcdp", "gaussian"}
        How losses add up. "addition": epsilons and deltas add. "zcdp": every charge counts by its rho, epsilon²/2 for
        a pure release and half the squared sensitivity in noise sds for Gaussian noise, and the sum is stated as
        epsilon at ``delta``, which must be greater than 0. "gaussian": squares of mu add, exact where all noise is
        Gaussian, dearer than zCDP for pure releases. Fixed when the budget is made, which keeps it right when
        releases are chosen by earlier answers.

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
    >>> budget = PrivacyBudget(epsilon=1.0, delta=1e-6, accounting="zcdp")
    >>> for _ in range(40):
    ...     budget.spend(0.03)
    >>> round(budget.spent[0], 2)  # 1.2 by addition
    0.85
    """

    def __init__(
        self, epsilon: float, delta: float = 0.0, *, unit: str = "one record", accounting: str = "addition"
    ) -> None:
        self._epsilon = positive("epsilon", epsilon)
        self._delta = delta_value("delta", delta)
        self._unit = _checked_unit(unit)
        self._accountant: Accountant = accountant(accounting, self._epsilon, self._delta)
        self._lock: threading.RLock = threading.RLock()
        self._entries: list[Charge | ParallelGroup] = []
        self._group: ParallelGroup | None = None
        self._records: int | None = None  # how many a branch may read; of the whole budget nobody said
        self._process = os.getpid()
        self._file: LedgerFile | None = None
        self._last: Row | None = None  # of the file's rows, the last that the entries hold
        self._groups: dict[str, ParallelGroup] = {}
        self._released: dict[int, tuple[str, str]] = {}  # fingerprint and report, by the number of the charge
        self._numbered: dict[int, int] = {}  # the number of a charge, by the identity of its line
        self._named = ""  # what stands before the labels of charges

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        delta: float = 0.0,
        *,
        unit: str = "one record",
        accounting: str = "addition",
    ) -> PrivacyBudget:
        """Open the ledger in a file, or make it, and return its budget.

        Every charge is one transaction of SQLite, on the disk before noise is drawn: a killed process leaves at most a
        charge without a release, never a release without its charge, and two processes cannot spend the same epsilon.
        SQLite does not promise that on network file systems whose locks do not work. A file cannot tell that it was
        replaced by an older copy of itself: do not restore a ledger from a backup. Explained in
        :doc:`/book/background/composition`.

        Parameters
        ----------
        path : str or path
            Of the ledger, on a local disk.
        epsilon, delta, unit, accounting
            As in :class:`PrivacyBudget`. Without ``epsilon`` the ledger must exist, and its own terms hold; with it,
            all of them must be those of the ledger.

        Returns
        -------
        PrivacyBudget

        Raises
        ------
        ValueError
            Where the file is no ledger, is damaged, or has other terms; nothing is spent.
        OSError
            Where it cannot be read or written.

        Examples
        --------
        >>> import os, tempfile
        >>> from dpbook import PrivacyBudget
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "survey.ledger")
        ...     PrivacyBudget.open(path, epsilon=1.0, unit="one patient").spend(0.25, label="mean age")
        ...     PrivacyBudget.open(path).remaining  # another process, another day
        0.75
        """
        terms = None
        if epsilon is not None:
            made = cls(epsilon, delta, unit=unit, accounting=accounting)
            terms = {"epsilon": made.epsilon, "delta": made.delta, "unit": unit, "accounting": accounting}
        file = LedgerFile.open(path, terms)
        stored = file.terms()
        budget = cls(stored["epsilon"], stored["delta"], unit=stored["unit"], accounting=stored["accounting"])
        budget._file = file
        budget._catch_up(file.rows())
        return budget

    @classmethod
    def _branch_of(cls, group: ParallelGroup, records: int | None) -> PrivacyBudget:
        """Return a budget whose charges count towards ``group`` and, through it, towards the root."""
        branch = cls.__new__(cls)
        above = group._parent
        branch._epsilon, branch._delta, branch._unit = above._epsilon, above._delta, above._unit
        branch._accountant = above._accountant
        branch._lock, branch._entries, branch._group = above._lock, [], group
        branch._records, branch._process, branch._file = records, above._process, None
        return branch

    def _check_process(self) -> None:
        """Raise in a forked process, before the lock: a thread that no longer exists may have held it at the fork."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "a budget is spent in the process that made it: this is a fork of that process, and the ledger there "
                "would not see the charge. Make the release before the fork, or in the process of the budget, and "
                "hand the Release on; a ledger in a file can be opened again, by PrivacyBudget.open(path), in every "
                "process"
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
    def unit(self) -> str:
        """The unit of privacy, in the data's own words."""
        return self._unit

    @property
    def accounting(self) -> str:
        """The way in which losses add up, "addition", "zcdp" or "gaussian"."""
        return self._accountant.name

    @property
    def spent(self) -> tuple[float, float]:
        """What has been charged here so far, as (epsilon, delta)."""
        with self._held():
            return self._accountant.stated(self._cost())

    @property
    def remaining(self) -> float:
        """The epsilon of the largest pure release that can still be paid for here."""
        with self._held():
            return self._accountant.pure(max(0.0, self._left()[0]))

    @property
    def remaining_delta(self) -> float:
        """The delta that can still be spent here; 0 where delta is only what the total is stated at."""
        with self._held():
            return max(0.0, self._left()[1])

    def _cost(self) -> Cost:
        """Return what has been charged here, as the accountant counts it."""
        costs = [self._cost_of(entry) for entry in self._entries]
        return math.fsum(cost[0] for cost in costs), math.fsum(cost[1] for cost in costs)

    def _cost_of(self, entry: Charge | ParallelGroup) -> Cost:
        return self._accountant.cost(entry.loss) if isinstance(entry, Charge) else entry._cost

    def _left(self) -> Cost:
        """Return what is left; a forgiven crumb makes it negative, so that crumbs are forgiven once, not each time."""
        cost, limit = self._cost(), self._accountant.limit
        if self._group is None:
            return limit[0] - cost[0], limit[1] - cost[1]
        # A branch may first catch up with the dearest branch, which is already paid for.
        above, group = self._group._parent._left(), self._group._cost
        return above[0] + group[0] - cost[0], above[1] + group[1] - cost[1]

    def _is_closed(self) -> bool:
        """Say whether this is a branch of a group that has ended, or of one inside such a group."""
        return self._group is not None and (self._group._closed or self._group._parent._is_closed())

    def _shortage(self, cost: Cost, loss: Loss) -> str:
        """Return why this much cannot be spent now, or nothing if it can."""
        left, limit = self._left(), self._accountant.limit
        short = [amount > room + _CRUMBS * most for amount, room, most in zip(cost, left, limit, strict=True)]
        if not any(short):
            return ""
        if self.accounting == "addition":
            at = short.index(True)
            name, amount = ("epsilon", "delta")[at], cost[at]
            return f"cannot spend {name} {amount:g}: {max(0.0, left[at]):g} of {limit[at]:g} remains"
        more = self._accountant.pure(max(0.0, left[0]))
        return (
            f"cannot spend epsilon {loss.epsilon:g}{f' with delta {loss.delta:g}' if loss.delta else ''}: a pure "
            "release of "
            f"epsilon {more:g} remains of a total of {self._epsilon:g} at delta {self._delta:g}"
        )

    @property
    def ledger(self) -> tuple[Charge, ...]:
        """Every charge in the order it was made, as immutable :class:`Charge` lines."""
        with self._held():
            self._releases()
            return tuple(map(self._line, self._entries))

    def _line(self, entry: Charge | ParallelGroup) -> Charge:
        if isinstance(entry, ParallelGroup):
            return entry._as_charge()
        found = self._root()._released.get(self._root()._numbered.get(id(entry), 0))
        return entry if found is None else replace(entry, fingerprint=found[0])

    def spend(
        self,
        epsilon: float,
        delta: float = 0.0,
        label: str = "",
        *,
        rho: float | None = None,
        mu: float | None = None,
    ) -> None:
        """Charge ``epsilon`` and ``delta``, not both 0, or raise and leave the ledger as it was.

        ``label`` says in the ledger what the charge is for. ``rho`` and ``mu`` are the loss as zCDP and as Gaussian
        differential privacy state it; a budget that counts by them needs them where delta is not 0.

        Raises
        ------
        BudgetExceeded
            If less than that remains.
        OSError, ValueError
            If the ledger's file cannot be written, or is damaged.
        RuntimeError
            In a process that was forked after the budget was made.
        """
        self._spend(Loss(*_amounts(epsilon, delta), *_optional(rho, mu)), label)

    def _spend(self, loss: Loss, label: str) -> int:
        """Enter a charge and return its number."""
        if not isinstance(label, str):
            raise TypeError(f"label must be a string, got {label!r}")
        cost, label = self._accountant.cost(loss), self._root()._named + label
        self._check_process()
        with self._lock:
            with self._root()._entering() as enter:
                if self._is_closed():
                    raise ValueError("this branch's parallel group is closed: its `with` block has ended")
                if shortage := self._shortage(cost, loss):
                    raise BudgetExceeded(shortage)
                take = enter(self, loss, label)
            return take()

    def _fits(self, losses: Iterable[Loss]) -> bool:
        """Say whether several charges would succeed, one after the other."""
        costs = [self._accountant.cost(loss) for loss in losses]
        total = (math.fsum(cost[0] for cost in costs), math.fsum(cost[1] for cost in costs))
        with self._held():
            return not self._shortage(total, Loss(1.0, 0.0))

    @contextlib.contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Let the labels of charges begin with a name, such as that of a release in a plan."""
        before, self._named = self._named, f"{name}: "
        try:
            yield
        finally:
            self._named = before

    def _root(self) -> PrivacyBudget:
        return self if self._group is None else self._group._parent._root()

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the ledger still, brought up to date with its file."""
        with self._lock:
            root = self._root()
            if root._file is not None:
                root._catch_up(root._file.rows(root._last))
            yield

    @contextlib.contextmanager
    def _entering(self) -> Iterator[Callable[[PrivacyBudget, Loss, str], Callable[[], int]]]:
        """Give the function that enters a charge: in the file first; what it returns, called after, in memory."""
        if self._file is None:
            yield (
                lambda branch, loss, label: lambda: branch._take(_charge(label, loss, now()), len(self._numbered) + 1)
            )
            return
        with self._file.writing(self._last) as (news, add):
            self._catch_up(news)

            def enter(branch: PrivacyBudget, loss: Loss, label: str) -> Callable[[], int]:
                row = add(label=label, **loss._asdict(), path=branch._path(), neighbours="replace-one")

                def take() -> int:
                    self._last = row
                    return branch._take(_charge(label, loss, row.time), row.number)

                return take

            yield enter

    def _take(self, line: Charge, number: int) -> int:
        """Let a charge count in memory."""
        self._entries.append(line)
        self._root()._numbered[id(line)] = number
        if self._group is not None:
            self._group._raise_to(self._cost())
        return number

    def _path(self) -> tuple[tuple[str, str, str], ...]:
        """Return the way from the whole budget to this branch, as a file keeps it."""
        if self._group is None:
            return ()
        key = next(key for key, branch in self._group._branches.items() if branch is self)
        return (*self._group._parent._path(), (self._group._name, self._group._label, repr(key)))

    def _catch_up(self, rows: list[Row]) -> None:
        """Let charges count that other processes, or earlier ones, entered in the file."""
        for row in rows:
            branch: PrivacyBudget = self
            for name, label, key in row.path:
                if name not in self._groups:
                    group = ParallelGroup(branch, label, {}, name=name)
                    group._entered = group._closed = True  # it is not ours: nobody here can add to it
                    branch._entries.append(group)
                    self._groups[name] = group
                branch = self._groups[name]._branches.setdefault(
                    key, PrivacyBudget._branch_of(self._groups[name], None)
                )
            branch._take(_charge(row.label, Loss(row.epsilon, row.delta, row.rho, row.mu), row.time), row.number)
            self._last = row

    def _releases(self) -> dict[int, tuple[str, str]]:
        """Return fingerprint and report of what was released, by the number of its charge."""
        root = self._root()
        if root._file is not None:
            root._released = root._file.releases()
        return root._released

    def _enter_release(self, number: int, release: Release) -> None:
        """Write down, beside its charge, what was released."""
        found = fingerprint(release), release.report(unit=self._unit)
        root = self._root()
        with self._lock:
            root._released[number] = found
        if root._file is None:
            return
        try:
            root._file.enter_release(number, *found)
        except (OSError, ValueError) as error:
            # It is paid for: to raise here would lose it.
            warnings.warn(f"the release is charged, but its fingerprint is not in the ledger: {error}", stacklevel=4)

    def can_spend(
        self, epsilon: float, delta: float = 0.0, *, rho: float | None = None, mu: float | None = None
    ) -> bool:
        """Return whether ``spend`` would succeed now.

        ``epsilon`` and ``delta``, or ``rho`` or ``mu`` where the budget counts those, must remain, a branch must be
        open still, and this must be the process of the budget.
        """
        loss = Loss(*_amounts(epsilon, delta), *_optional(rho, mu))
        cost = self._accountant.cost(loss)
        if os.getpid() != self._process:
            return False
        with self._held():
            return not self._is_closed() and not self._shortage(cost, loss)

    def afford(self, *, delta: float | None = None) -> str:
        """Return in words what can still be released here.

        ``delta`` is the one at which Gaussian releases are stated; by default a tenth of what the budget has.

        Examples
        --------
        >>> from dpbook import PrivacyBudget
        >>> budget = PrivacyBudget(1.0, delta=1e-6)
        >>> budget.spend(0.4)
        >>> print(budget.afford())
        0.4 of ε = 1 is spent. What is left pays for one pure release with ε up to 0.6,
        or ten with ε up to 0.06 each; or for one with Gaussian noise and ε up to 0.6 at δ = 1e-07.
        """
        with self._held():
            left = self._left()
            room = (max(0.0, left[0]), max(0.0, left[1]))
            spent = self._accountant.stated(self._cost())
        at = self._delta / 10 if delta is None else delta_value("delta", delta, zero=False)
        return budget_report.in_words(self, self._accountant, room, spent, at)

    def report(self, format: str = "markdown") -> Report:
        """Return one page about the whole project, for a data-protection officer.

        The guarantee in force, what it means in plain odds, every release with its own report, and how they add up.

        Parameters
        ----------
        format : {"markdown", "html"}
            A text that a notebook shows, or a page of its own that needs nothing else.

        Returns
        -------
        Report

        Examples
        --------
        >>> from dpbook import PrivacyBudget
        >>> budget = PrivacyBudget(1.0, unit="one patient")
        >>> budget.spend(0.25, label="mean age")
        >>> print(budget.report().splitlines()[2])
        Together, all releases listed below are differentially private with ε = 1 for one patient.
        """
        one_of("format", format, ("markdown", "html"))
        with self._held():
            lines, spent, reports = self.ledger, self.spent, dict(self._releases().values())
        page = budget_report.Page(self, lines, spent, reports)
        return Report(page.markdown() if format == "markdown" else page.html())

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
        with self._held():  # one moment's ledger and totals
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
    name : str, optional
        In the file of a ledger; by default a new one.

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

    def __init__(
        self, parent: PrivacyBudget, label: str, parts: dict[Hashable, _Positions], *, name: str | None = None
    ) -> None:
        self._parent = parent
        self._label = label
        self._name = uuid.uuid4().hex if name is None else name  # in the ledger's file
        self._parts = parts
        self._branches: dict[Hashable, PrivacyBudget] = {}
        self._cost: Cost = (0.0, 0.0)
        self._entered = False
        self._closed = False

    @property
    def epsilon(self) -> float:
        """The epsilon of the dearest branch, which is the group's."""
        return self._parent._accountant.stated(self._cost)[0]

    @property
    def delta(self) -> float:
        """The delta of the dearest branch, which is the group's."""
        return self._parent._accountant.stated(self._cost)[1]

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
            self._parent._root()._groups[self._name] = self
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

    def _raise_to(self, cost: Cost) -> None:
        """Let the group cost at least what one of its branches has spent, and tell the groups above."""
        self._cost = (max(self._cost[0], cost[0]), max(self._cost[1], cost[1]))
        if self._parent._group is not None:
            self._parent._group._raise_to(self._parent._cost())

    def _as_charge(self) -> Charge:
        return Charge(self._label, self.epsilon, self.delta, branches=tuple(self._lines()))

    def _lines(self) -> Iterator[tuple[Any, tuple[Charge, ...]]]:
        return ((key, tuple(map(branch._line, branch._entries))) for key, branch in self._branches.items())


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


def _optional(rho: Any, mu: Any) -> tuple[float | None, float | None]:
    return None if rho is None else positive("rho", rho), None if mu is None else positive("mu", mu)


def _checked_unit(unit: Any) -> str:
    if not isinstance(unit, str) or not unit.strip():
        raise TypeError(f"unit must name the unit of privacy, such as 'one patient', got {unit!r}")
    return unit


def _charge(label: str, loss: Loss, time: str) -> Charge:
    return Charge(label, loss.epsilon, loss.delta, time=time, rho=loss.rho, mu=loss.mu)


def fingerprint(release: Release) -> str:
    """Return the SHA-256 of a release's JSON: the same for the same release on every machine.

    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    release : Release

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import Release, expfam
    >>> from dpbook.budget import fingerprint
    >>> made = expfam.release([0, 1, 1], expfam.Binomial(), epsilon=1.0, rng=np.random.default_rng(0))
    >>> fingerprint(made) == fingerprint(Release.from_json(made.to_json()))
    True
    """
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release, got {type(release).__name__}")
    return hashlib.sha256(release.to_json().encode()).hexdigest()


class Paid:
    """The receipt of a charge, with which what was released is entered beside it."""

    def __init__(self, budget: PrivacyBudget | None, number: int) -> None:
        self._budget, self.number = budget, number

    def entered(self, release: Release) -> Release:
        """Write the fingerprint of what was released beside its charge, and return the release."""
        if self._budget is not None:
            self._budget._enter_release(self.number, release)
        return release


def charge(
    budget: PrivacyBudget | None,
    epsilon: float,
    delta: float,
    *,
    label: str,
    rho: float | None = None,
    mu: float | None = None,
) -> Paid:
    """Charge an optional budget: what every release does after its arguments are checked and before it draws noise.

    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    budget : PrivacyBudget or None
        None charges nothing.
    epsilon, delta, label, rho, mu
        As in :meth:`PrivacyBudget.spend`.

    Returns
    -------
    Paid
        The receipt, with which what was released is entered beside its charge.

    Examples
    --------
    >>> from dpbook.budget import PrivacyBudget, charge
    >>> budget = PrivacyBudget(1.0)
    >>> paid = charge(budget, 0.25, 0.0, label="mean")
    >>> budget.remaining
    0.75
    """
    if budget is None:
        return Paid(None, 0)
    if not isinstance(budget, PrivacyBudget):
        raise TypeError(f"budget must be a PrivacyBudget or None, got {budget!r}")
    return Paid(budget, budget._spend(Loss(*_amounts(epsilon, delta), *_optional(rho, mu)), label))
