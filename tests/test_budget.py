"""The ledger adds up, refuses to overspend, and cannot be raced."""

import copy
import pickle
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbook import BudgetExceeded, PrivacyBudget
from dpbook.budget import charge


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
    with budget.parallel() as group, pytest.raises(BudgetExceeded):
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
    with budget.parallel(label="wards") as group:
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
    with budget.parallel() as group:
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
    with budget.parallel() as group:
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
    with budget.parallel() as group:
        group.branch(0).spend(0.7)
        with pytest.raises(BudgetExceeded):
            budget.spend(0.4)


def test_parallel_groups_nest():
    budget = PrivacyBudget(1.0)
    with budget.parallel() as outer:
        north = outer.branch("north")
        north.spend(0.1)
        with north.parallel() as inner:
            inner.branch(1).spend(0.2)
            inner.branch(2).spend(0.3)
        outer.branch("south").spend(0.35)
    assert budget.remaining == pytest.approx(0.6)


def test_a_closed_group_takes_no_more_charges_and_an_empty_one_leaves_no_line():
    budget = PrivacyBudget(1.0)
    with budget.parallel() as group:
        branch = group.branch("a")
    assert budget.ledger == ()
    with pytest.raises(ValueError, match="closed"):
        branch.spend(0.1)
    with pytest.raises(ValueError, match="with"):
        group.branch("b")
    with pytest.raises(ValueError, match="with"):
        budget.parallel().branch("a")
    assert budget.remaining == 1.0


def test_a_group_inside_a_closed_group_takes_no_charges_that_nobody_would_count():
    """The outer group, empty at its end, has left the ledger: a later charge below it would be lost."""
    budget = PrivacyBudget(1.0)
    with budget.parallel() as outer:
        north = outer.branch("north")
        late = north.parallel()
        early = north.parallel()
        early.__enter__()
        inner = early.branch(1)
    with pytest.raises(ValueError, match="closed"):
        late.__enter__()
    with pytest.raises(ValueError, match="closed"):
        inner.spend(0.5)
    with pytest.raises(ValueError, match="with"):
        early.branch(2)
    assert not inner.can_spend(0.5)
    assert (budget.ledger, north.spent, budget.remaining) == ((), (0.0, 0.0), 1.0)


def test_an_error_inside_a_parallel_block_keeps_what_was_charged():
    budget = PrivacyBudget(1.0)

    def fail():
        with budget.parallel() as group:
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

    with budget.parallel() as one, budget.parallel() as other:
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
    with budget.parallel() as group:
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
    with budget.parallel() as group:
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
    group = budget.parallel()
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
