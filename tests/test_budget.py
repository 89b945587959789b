"""The ledger adds up, refuses to overspend, and cannot be raced."""

import copy
import datetime
import enum
import math
import multiprocessing
import os
import pickle
import threading
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbook import BudgetExceeded, PrivacyBudget
from dpbook.budget import ParallelGroup, charge

DESIGN = "a design that is public"


def in_parts(budget: PrivacyBudget, *keys: object, label: str | None = None) -> ParallelGroup:
    """Open a group of parts of ten records each."""
    return budget.parallel(n=10 * len(keys), parts=dict.fromkeys(keys, 10), fixed_by=DESIGN, label=label)


def test_spending_lowers_what_remains_and_is_written_down():
    budget = PrivacyBudget(1.0, delta=1e-5)
    budget.spend(0.25, delta=1e-6, label="mean")
    assert budget.remaining == 0.75
    assert budget.remaining_delta == pytest.approx(9e-6, rel=1e-12)
    assert [(c.label, c.epsilon, c.delta) for c in budget.ledger] == [("mean", 0.25, 1e-6)]


def test_overspending_raises_and_leaves_the_ledger_as_it_was():
    budget = PrivacyBudget(1.0)
    budget.spend(0.9, label="first")
    before = budget.ledger
    with pytest.raises(BudgetExceeded, match=r"epsilon 0\.2"):
        budget.spend(0.2)
    assert budget.ledger == before
    assert budget.remaining == pytest.approx(0.1)


def test_delta_cannot_be_spent_from_a_pure_budget():
    budget = PrivacyBudget(1.0)
    with pytest.raises(BudgetExceeded, match="delta"):
        budget.spend(0.1, delta=1e-9)
    assert budget.ledger == ()


@pytest.mark.parametrize(("total", "parts"), [(1.0, 10), (1.0, 3), (0.3, 7), (2.0, 1000)])
def test_equal_shares_of_the_budget_can_all_be_spent(total, parts):
    budget = PrivacyBudget(total)
    for _ in range(parts):
        budget.spend(total / parts)
    assert budget.remaining == pytest.approx(0, abs=1e-12 * total)
    with pytest.raises(BudgetExceeded):
        budget.spend(1e-6 * total)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=30))
def test_what_was_spent_never_exceeds_the_total_by_more_than_crumbs(amounts):
    budget = PrivacyBudget(1.0)
    for amount in amounts:
        try:
            budget.spend(amount)
        except BudgetExceeded:
            assert budget.spent[0] + amount > 1.0
    assert budget.spent[0] <= 1.0 + 1e-11


def test_crumbs_are_forgiven_once_and_not_each_time():
    budget = PrivacyBudget(1.0, delta=1e-6)
    budget.spend(1.0, delta=1e-6)
    budget.spend(9e-13)
    for _ in range(3):
        with pytest.raises(BudgetExceeded, match="epsilon 9e-13: 0 of 1 remains"):
            budget.spend(9e-13)
    assert budget.remaining == 0
    budget.spend(0, delta=9e-19)
    with pytest.raises(BudgetExceeded, match="delta"):
        budget.spend(0, delta=9e-19)
    assert budget.remaining_delta == 0
    with in_parts(budget, 0) as group, pytest.raises(BudgetExceeded):
        group.branch(0).spend(9e-13)


def test_the_remainder_can_be_spent_exactly():
    budget = PrivacyBudget(1.0)
    for _ in range(9):
        budget.spend(0.1)
    budget.spend(budget.remaining)
    assert budget.remaining == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"epsilon": 1, "delta": 1.0}, "delta"),
        ({"epsilon": 1, "delta": -1e-9}, "delta"),
    ],
)
def test_a_budget_refuses_bad_totals_by_name(arguments, named):
    with pytest.raises((TypeError, ValueError), match=named):
        PrivacyBudget(**arguments)


@pytest.mark.parametrize("bad", [-0.1, float("nan"), "0.1", None])
def test_a_bad_amount_is_refused_by_name_and_spends_nothing(bad):
    budget = PrivacyBudget(1.0)
    with pytest.raises((TypeError, ValueError), match="epsilon"):
        budget.spend(bad)
    with pytest.raises(ValueError, match="nothing to spend"):
        budget.spend(0.0)
    assert budget.ledger == ()


def test_parallel_branches_cost_the_largest_sum():
    budget = PrivacyBudget(1.0)
    with in_parts(budget, "a", "b", label="wards") as group:
        group.branch("a").spend(0.2)
        group.branch("a").spend(0.3)
        group.branch("b").spend(0.4)
    assert budget.remaining == pytest.approx(0.5)
    (line,) = budget.ledger
    assert (line.label, line.epsilon) == ("wards", pytest.approx(0.5))
    assert [(key, sum(c.epsilon for c in lines)) for key, lines in line.branches] == [("a", 0.5), ("b", 0.4)]


def test_a_branch_may_catch_up_with_the_dearest_but_not_pass_what_remains():
    budget = PrivacyBudget(1.0)
    budget.spend(0.5)
    with in_parts(budget, 0, 1) as group:
        group.branch(0).spend(0.5)
        second = group.branch(1)
        assert second.remaining == pytest.approx(0.5)
        second.spend(0.5)
        with pytest.raises(BudgetExceeded):
            second.spend(0.01)
        with pytest.raises(BudgetExceeded):
            group.branch(0).spend(0.01)
    assert budget.remaining == 0
    assert len(budget.ledger) == 2


def test_parallel_branches_cost_the_largest_delta_too_and_may_catch_up_with_it():
    budget = PrivacyBudget(1.0, delta=1e-6)
    with in_parts(budget, 0, 1) as group:
        group.branch(0).spend(0.1, delta=6e-7)
        group.branch(1).spend(0.2, delta=2e-7)
        assert budget.remaining_delta == pytest.approx(4e-7)
        assert group.branch(1).remaining_delta == pytest.approx(8e-7)
        group.branch(1).spend(0.1, delta=8e-7)
        with pytest.raises(BudgetExceeded, match="delta"):
            group.branch(0).spend(0.1, delta=5e-7)
    assert budget.remaining_delta == 0
    assert (budget.ledger[0].epsilon, budget.ledger[0].delta) == pytest.approx((0.3, 1e-6))


def test_the_group_is_charged_as_it_spends_not_at_its_end():
    budget = PrivacyBudget(1.0)
    with in_parts(budget, 0, 1) as group:
        group.branch(0).spend(0.7)
        with pytest.raises(BudgetExceeded):
            budget.spend(0.4)


def test_parallel_groups_nest():
    budget = PrivacyBudget(1.0)
    with in_parts(budget, "north", "south") as outer:
        north = outer.branch("north")
        north.spend(0.1)
        with north.parallel(n=10, parts={1: 5, 2: 5}, fixed_by=DESIGN) as inner:
            inner.branch(1).spend(0.2)
            inner.branch(2).spend(0.3)
        outer.branch("south").spend(0.35)
    assert budget.remaining == pytest.approx(0.6)


def test_a_closed_group_takes_no_more_charges_and_an_empty_one_leaves_no_line():
    budget = PrivacyBudget(1.0)
    with in_parts(budget, "a", "b") as group:
        branch = group.branch("a")
    assert budget.ledger == ()
    with pytest.raises(ValueError, match="closed"):
        branch.spend(0.1)
    with pytest.raises(ValueError, match="with"):
        group.branch("b")
    with pytest.raises(ValueError, match="with"):
        in_parts(budget, "a").branch("a")
    assert budget.remaining == 1.0


def test_a_group_inside_a_closed_group_takes_no_charges_that_nobody_would_count():
    """The outer group, empty at its end, has left the ledger: a later charge below it would be lost."""
    budget = PrivacyBudget(1.0)
    with in_parts(budget, "north") as outer:
        north = outer.branch("north")
        late = in_parts(north, 1)
        early = in_parts(north, 1)
        early.__enter__()
        inner = early.branch(1)
    with pytest.raises(ValueError, match="closed"):
        late.__enter__()
    with pytest.raises(ValueError, match="closed"):
        inner.spend(0.5)
    with pytest.raises(ValueError, match="with"):
        early.branch(1)
    assert not inner.can_spend(0.5)
    assert (budget.ledger, north.spent, budget.remaining) == ((), (0.0, 0.0), 1.0)


def test_an_error_inside_a_parallel_block_keeps_what_was_charged():
    budget = PrivacyBudget(1.0)

    def fail():
        with in_parts(budget, "a") as group:
            group.branch("a").spend(0.3)
            raise KeyError("a")

    with pytest.raises(KeyError):
        fail()
    assert budget.remaining == pytest.approx(0.7)


@pytest.mark.parametrize("place", ["one budget", "branches of two groups"])
def test_two_threads_cannot_both_spend_the_last_of_it(monkeypatch, place):
    """A pause between looking and charging makes every unlocked race visible: without the lock all eight succeed."""
    looked = PrivacyBudget._left

    def look_slowly(self):
        left = looked(self)
        time.sleep(0.01)
        return left

    monkeypatch.setattr(PrivacyBudget, "_left", look_slowly)
    budget = PrivacyBudget(1.0)
    barrier = threading.Barrier(8)
    outcomes = []

    def race(account):
        barrier.wait()
        try:
            account.spend(0.6)
            outcomes.append("spent")
        except BudgetExceeded:
            outcomes.append("refused")

    with in_parts(budget, "a") as one, in_parts(budget, "a") as other:
        # Two groups read the same records, so that their costs add up.
        shared = [budget] * 8 if place == "one budget" else [one.branch("a"), other.branch("a")] * 4
        threads = [threading.Thread(target=race, args=[account]) for account in shared]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["spent"]
    assert len(budget.ledger) == 1


def test_thousands_of_branches_are_cheap():
    budget = PrivacyBudget(1.0)
    with in_parts(budget, *range(3108)) as group:
        for tract in range(3108):
            group.branch(tract).spend(0.5)
            group.branch(tract).spend(0.5)
    assert budget.remaining == 0


def test_can_spend_says_what_spend_would_do():
    budget = PrivacyBudget(1.0)
    budget.spend(0.9)
    assert budget.can_spend(np.float64(0.1))
    assert not budget.can_spend(0.2)
    assert not budget.can_spend(0.1, delta=1e-9)
    for bad in ({"epsilon": -1}, {"epsilon": 0.1, "delta": 1.0}, {"epsilon": 0}):
        for ask in (budget.spend, budget.can_spend):
            with pytest.raises(ValueError, match=r"epsilon|delta"):
                ask(**bad)
    with in_parts(budget, 0, 1) as group:
        branch = group.branch(0)
        assert branch.can_spend(0.1)
    assert not branch.can_spend(0.1)


def test_a_budget_cannot_be_copied_into_another_process():
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(PrivacyBudget(1.0))
    with pytest.raises(TypeError, match="pickle"):
        copy.deepcopy(PrivacyBudget(1.0))


def test_a_group_is_entered_once():
    budget = PrivacyBudget(1.0)
    group = in_parts(budget, 0)
    with group:
        group.branch(0).spend(0.5)
        with pytest.raises(ValueError, match="once"):
            group.__enter__()
    assert budget.remaining == 0.5


def test_charging_takes_a_budget_or_none_only():
    charge(None, 1.0, 0.0, label="x")
    budget = PrivacyBudget(1.0, delta=1e-6)
    charge(budget, 1e-6, 1e-9, label="x")
    assert [(line.label, line.epsilon, line.delta) for line in budget.ledger] == [("x", 1e-6, 1e-9)]
    with pytest.raises(TypeError, match="budget"):
        charge(1.0, 1.0, 0.0, label="x")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------------------
# Parts are declared, disjoint, and fixed by position


def test_a_group_without_declared_parts_is_refused_and_the_error_says_why():
    budget = PrivacyBudget(1.0)
    with pytest.raises(TypeError, match="fixed_by must say what fixed the parts"):
        budget.parallel(label="by county")
    with pytest.raises(TypeError, match=r"n and parts must be given.*value in a record does not fix its part"):
        budget.parallel(fixed_by="county")
    with pytest.raises(TypeError, match="fixed_by"):
        budget.parallel(n=2, parts={"a": 2}, fixed_by=" ")
    assert budget.ledger == ()


@pytest.mark.parametrize(
    "north",
    [
        pd.Series(["north", "south", "north", "south"]) == "north",
        np.array([True, False, True, False]),
        [True, False, True, False],
        pd.Series(["north", "south"]),
        ["north", "south"],
        "north",
        {0, 2},
        frozenset([0, 2]),
        {0: 1}.keys(),
        iter([0, 2]),
        [0.0, 2.0],
        [[0, 2]],
        None,
        True,
    ],
)
def test_masks_values_and_sets_are_no_parts(north):
    """A comparison of values gives a mask: as positions, which are declared, it cannot pass."""
    budget = PrivacyBudget(1.0)
    with pytest.raises(TypeError, match=r"parts\['north'\].*one replaced record would leave one part"):
        budget.parallel(n=4, parts={"north": north, "south": [1]}, fixed_by="county")


def test_parts_that_come_as_groups_by_value_are_refused():
    table = pd.DataFrame({"county": ["north", "south"], "pay": [1, 2]})
    for parts in (table.groupby("county"), table["county"].value_counts(), table["county"], ["a"], None):
        with pytest.raises(TypeError, match="value in a record does not fix its part"):
            PrivacyBudget(1.0).parallel(n=2, parts=parts, fixed_by="county")


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"a": range(6), "b": range(5, 10)}, r"parts\['b'\] shares one"),
        ({"a": [0, 2], "b": np.array([1, 2])}, r"parts\['b'\] shares one"),
        ({"a": range(0, 10, 2), "b": range(9, 0, -3)}, r"parts\['b'\] shares one"),
        ({"a": [3, 3]}, r"parts\['a'\] must hold each position once"),
        ({"a": range(5, 11)}, r"parts\['a'\].*0 to 9"),
        ({"a": range(-1, 3)}, r"parts\['a'\].*0 to 9"),
        ({"a": [-1]}, r"parts\['a'\].*0 to 9"),
        ({"a": np.array([2**63], dtype=np.uint64)}, r"parts\['a'\].*0 to 9"),
        ({"a": 6, "b": 5}, "at most n = 10 records together, got 11"),
        ({"a": -1}, r"parts\['a'\] must be at least 0"),
        ({}, "at least one part"),
    ],
)
def test_parts_that_overlap_or_leave_the_records_are_refused(parts, complaint):
    budget = PrivacyBudget(1.0)
    with pytest.raises(ValueError, match=complaint):
        budget.parallel(n=10, parts=parts, fixed_by=DESIGN)
    assert budget.ledger == ()


@pytest.mark.parametrize("n", [0, -1, True, 2.5, "9", 2**30])
def test_the_number_of_records_is_checked(n):
    with pytest.raises((TypeError, ValueError), match=r"^n must"):
        PrivacyBudget(1.0).parallel(n=n, parts={"a": 0}, fixed_by=DESIGN)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.randoms())
def test_disjoint_positions_are_taken_in_any_form_and_given_back(owners, shuffler):
    """What the parts hold is checked against plain sets of positions."""
    expected = {key: [i for i, owner in enumerate(owners) if owner == key] for key in range(4)}
    shuffled = {key: shuffler.sample(found, len(found)) for key, found in expected.items()}
    group = PrivacyBudget(1.0).parallel(n=len(owners), parts=shuffled, fixed_by=DESIGN)
    assert {key: sorted(group.positions(key)) for key in range(4)} == expected
    both = dict(shuffled) | {"thief": [shuffler.randrange(len(owners))]}
    with pytest.raises(ValueError, match="shares one"):
        PrivacyBudget(1.0).parallel(n=len(owners), parts=both, fixed_by=DESIGN)


def test_numbers_of_records_are_blocks_in_order_and_positions_cannot_be_changed():
    group = PrivacyBudget(1.0).parallel(n=9, parts={"a": 2, "b": 0, "c": 7}, fixed_by=DESIGN)
    assert [group.positions(key) for key in "abc"] == [range(2), range(2, 2), range(2, 9)]
    given = np.array([1, 0])
    group = PrivacyBudget(1.0).parallel(n=2, parts={"a": given}, fixed_by=DESIGN)
    given[0] = 5
    assert group.positions("a").tolist() == [1, 0]
    with pytest.raises(ValueError, match="read-only"):
        group.positions("a")[0] = 1


def test_a_key_that_was_not_declared_has_no_branch():
    budget = PrivacyBudget(1.0)
    with in_parts(budget, "a", "b") as group:
        for key in ("c", math.nan, ["a"], None, ("a",)):
            with pytest.raises(ValueError, match="opened with, 'a', 'b'; got"):
                group.branch(key)
    assert budget.ledger == ()


class Colour(enum.Enum):
    RED = 1


class Changing:
    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return isinstance(other, Changing) and self.name == other.name

    def __hash__(self):
        return hash(self.name)


@pytest.mark.parametrize(
    "key",
    [math.nan, float("nan"), np.float64("nan"), ("a", math.nan), ((1, (math.nan,)),), pd.NaT, np.datetime64("NaT")],
)
def test_a_key_that_is_not_equal_to_itself_is_refused(key):
    """Ten spends on the part NaN would otherwise be ten branches, paid for as one."""
    budget = PrivacyBudget(1.0)
    with pytest.raises(ValueError, match="equal to themselves"):
        budget.parallel(n=1, parts={key: 1}, fixed_by=DESIGN)
    with in_parts(budget, "a") as group, pytest.raises(ValueError, match="opened with"):
        group.branch(key)
    assert budget.ledger == ()


@pytest.mark.parametrize("key", [Changing("a"), object(), frozenset("a"), pd.NA, ("a", Changing("b")), print])
def test_a_key_that_can_change_or_has_an_equality_of_its_own_is_refused(key):
    with pytest.raises(TypeError, match="parts must have strings"):
        PrivacyBudget(1.0).parallel(n=1, parts={key: 1}, fixed_by=DESIGN)


def test_plain_keys_are_taken():
    keys = [
        "a",
        b"a",
        1,
        2.5,
        np.int64(7),
        None,
        datetime.date(2020, 1, 1),
        pd.Timestamp(0),
        Colour.RED,
        ("a", (1, None)),
    ]
    with in_parts(PrivacyBudget(1.0), *keys) as group:
        assert len({id(group.branch(key)) for key in keys}) == len(keys)
        assert group.branch(np.float64(1.0)) is group.branch(1)


def test_a_group_in_a_branch_has_the_branch_s_number_of_records():
    budget = PrivacyBudget(1.0)
    with budget.parallel(n=30, parts={"a": range(0, 30, 3), "b": [1, 2]}, fixed_by=DESIGN) as group:
        with pytest.raises(ValueError, match="number of records of this branch's part, 10, got 30"):
            group.branch("a").parallel(n=30, parts={1: 30}, fixed_by=DESIGN)
        group.branch("a").parallel(n=10, parts={1: 10}, fixed_by=DESIGN)
        group.branch("b").parallel(n=2, parts={1: 2}, fixed_by=DESIGN)


def test_the_ledger_says_what_fixed_the_parts():
    budget = PrivacyBudget(1.0)
    with budget.parallel(n=2, parts={"a": 2}, fixed_by="order of arrival") as group:
        group.branch("a").spend(0.5)
    assert budget.ledger[0].label == "parallel by order of arrival"


def test_groups_by_value_would_lose_twice_what_their_dearest_branch_pays():
    """Why masks are refused: one replaced record moves two groups' counts, and the exact loss is 2, not 1."""
    outputs = np.arange(-40, 61)

    def log_law(count):  # two-sided geometric noise for a loss of 1, on a grid where nothing is lost
        return math.log(math.tanh(0.5)) - np.abs(outputs - count)

    here = log_law(10)[:, None] + log_law(12)[None, :]
    there = log_law(9)[:, None] + log_law(13)[None, :]
    assert np.abs(here - there).max() == pytest.approx(2.0, abs=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# One process


def in_a_fork(ask):
    """Return what a forked child makes of ``ask``: the name of the error and its words, or that there was none."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = f"no error: {ask()!r}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        return pipe.read()


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
quiet = pytest.mark.filterwarnings("ignore:This process .*is multi-threaded:DeprecationWarning")


@forks
@quiet
def test_after_a_fork_the_child_cannot_spend_and_is_told_what_to_do():
    budget = PrivacyBudget(1.0)
    with in_parts(budget, "a", "b") as group:
        branch = group.branch("a")
        late = in_parts(branch, 1)
        attempts = {
            "spend": lambda: budget.spend(1.0),
            "charge": lambda: charge(budget, 1.0, 0.0, label="x"),
            "spend in a branch": lambda: branch.spend(1.0),
            "open a branch": lambda: group.branch("b"),
            "open a group": lambda: in_parts(budget, "a"),
            "enter a group": late.__enter__,
        }
        for what, attempt in attempts.items():
            said = in_a_fork(attempt)
            assert said.startswith("RuntimeError: a budget is spent in the process that made it"), (what, said)
            assert "Make the release before the fork" in said
        assert in_a_fork(lambda: (budget.can_spend(0.5), branch.can_spend(0.5))) == "no error: (False, False)"
        branch.spend(0.4)
    budget.spend(0.6)
    assert budget.remaining == pytest.approx(0)


@forks
@quiet
def test_a_fork_that_happens_while_another_thread_holds_the_lock_is_refused_too():
    """The thread that would let go of the lock is not in the child: asking for the lock first would wait for ever."""
    budget = PrivacyBudget(1.0)
    held, done = threading.Event(), threading.Event()

    def hold():
        with budget._lock:
            held.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    reader, writer = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: writer.send(_error_of(lambda: budget.spend(0.1))))
    child.start()
    answered = reader.poll(20)
    done.set()
    thread.join()
    if not answered:
        child.kill()
    child.join()
    assert answered
    assert reader.recv().startswith("RuntimeError")


def _error_of(attempt):
    try:
        return f"no error: {attempt()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@forks
@quiet
def test_a_fork_that_leaves_the_with_block_does_not_raise_there():
    budget = PrivacyBudget(1.0)
    group = in_parts(budget, "a")
    group.__enter__()
    assert in_a_fork(lambda: group.__exit__(None, None, None)) == "no error: None"
    group.branch("a").spend(0.5)
    group.__exit__(None, None, None)
    assert budget.remaining == 0.5
