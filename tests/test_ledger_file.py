"""Ledgers in files: what a crash, another process, a full disk or a foreign file may and may not do."""

import errno
import multiprocessing
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dpbook import BudgetExceeded, PrivacyBudget, expfam
from dpbook.budget import charge, fingerprint

TOOLS = Path(__file__).parent.parent / "tools"
ROOT = TOOLS.parent
DESIGN = "order of arrival"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "project.ledger"


def opened(path, **terms):
    return PrivacyBudget.open(path, **({"epsilon": 1.0, "delta": 1e-6, "unit": "one patient"} | terms))


def test_a_ledger_is_found_again_with_everything_that_was_entered(path):
    budget = opened(path)
    budget.spend(0.25, label="mean age")
    budget.spend(0.1, delta=1e-7, label='a µ-table, "quoted"; DROP TABLE charges', mu=0.02)
    again = PrivacyBudget.open(path)
    assert again.ledger == budget.ledger
    assert (again.spent, again.unit, again.accounting) == (budget.spent, "one patient", "addition")
    assert again.ledger[1].mu == 0.02
    assert all(line.time.endswith("+00:00") for line in again.ledger)


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ({"epsilon": 2.0}, "epsilon"),
        ({"delta": 1e-5}, "delta"),
        ({"unit": "one visit"}, "unit"),
        ({"accounting": "zcdp"}, "accounting"),
    ],
)
def test_a_ledger_with_other_terms_is_refused_by_name(path, terms, named):
    opened(path).spend(0.5)
    with pytest.raises(ValueError, match=f"{named} must be as in the ledger"):
        opened(path, **terms)
    assert PrivacyBudget.open(path).spent[0] == 0.5


def test_a_ledger_that_is_not_there_needs_terms(path):
    with pytest.raises(FileNotFoundError):
        PrivacyBudget.open(path)
    assert not path.exists()


def test_two_budgets_on_one_file_see_each_other(path):
    one, other = opened(path), opened(path)
    one.spend(0.6)
    assert other.remaining == pytest.approx(0.4)
    with pytest.raises(BudgetExceeded):
        other.spend(0.5)
    other.spend(0.4)
    assert one.remaining == 0
    assert [line.epsilon for line in one.ledger] == [0.6, 0.4]


def test_threads_cannot_overspend_a_file(path):
    budgets = [opened(path) for _ in range(2)]
    paid = []

    def spend(budget):
        for _ in range(20):
            try:
                budget.spend(1 / 16)
                paid.append(1)
            except BudgetExceeded:
                return

    threads = [threading.Thread(target=spend, args=(budgets[i % 2],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paid) == 16
    assert budgets[0].spent[0] == 1.0


def spend_all(path, out):
    budget = PrivacyBudget.open(path)
    count = 0
    try:
        while True:
            budget.spend(1 / 32)
            count += 1
    except BudgetExceeded:
        out.put(count)


def test_processes_share_what_there_is_and_no_more(path):
    opened(path)
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    workers = [context.Process(target=spend_all, args=(path, out)) for _ in range(2)]
    for worker in workers:
        worker.start()
    counts = [out.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    assert sum(counts) == 32
    assert PrivacyBudget.open(path).spent == (1.0, 0.0)


def test_a_fork_opens_the_ledger_again(path):
    budget = opened(path)
    pid = os.fork()
    if pid == 0:
        try:
            budget.spend(0.1)
        except RuntimeError as error:
            PrivacyBudget.open(path).spend(0.25)
            os._exit(0 if "PrivacyBudget.open" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert budget.spent[0] == 0.25
    with pytest.raises(TypeError):
        pickle.dumps(budget)


def test_parallel_groups_cost_their_dearest_branch_after_a_restart_too(path):
    budget = opened(path)
    budget.spend(0.125)
    with budget.parallel(n=20, parts={"a": 10, "b": 10}, fixed_by=DESIGN) as group:
        group.branch("a").spend(0.25)
        with group.branch("b").parallel(n=10, parts={1: 5, 2: 5}, fixed_by=DESIGN) as inner:
            inner.branch(1).spend(0.25, label="first")
            inner.branch(2).spend(0.5)
        inside = PrivacyBudget.open(path)  # another process, in the middle of it
        assert inside.spent == budget.spent == (0.625, 0.0)
        group.branch("a").spend(0.5)
    again = PrivacyBudget.open(path)
    assert again.spent == inside.spent == budget.spent == (0.875, 0.0)
    (_, line) = again.ledger
    assert [key for key, _ in line.branches] == ["'a'", "'b'"]
    with pytest.raises(BudgetExceeded):
        again.spend(0.2)


# What is no ledger, or a damaged one


def database(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE charges (number INTEGER)")
    connection.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("a,b\n1,2\n"),
        lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(100)),
        lambda path: path.write_bytes(os.urandom(5000)),
        database,
        lambda path: path.mkdir(),
    ],
)
def test_a_foreign_file_is_refused_and_left_as_it_was(path, make):
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises((ValueError, OSError), match="ledger"):
        opened(path)
    assert before is None or path.read_bytes() == before


def edited(path, statement):
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE charges SET epsilon = 0.01 WHERE number = 2",
        "DELETE FROM charges WHERE number = 1",
        "DELETE FROM charges WHERE number = 2",
        "UPDATE charges SET label = 'other' WHERE number = 3",
        'UPDATE charges SET path = \'[["x", "y", "z"]]\' WHERE number = 2',
        "PRAGMA user_version = 9",
    ],
)
def test_a_row_that_was_changed_is_seen(path, statement):
    budget = opened(path)
    for _ in range(3):
        budget.spend(0.1)
    edited(path, statement)
    with pytest.raises(ValueError, match=r"damaged|format"):
        PrivacyBudget.open(path)


def test_the_last_row_taken_away_is_seen_by_a_process_that_read_it(path):
    """A file cannot know of it afterwards: nothing but the process's memory tells."""
    budget = opened(path)
    budget.spend(0.1)
    budget.spend(0.2)
    edited(path, "DELETE FROM charges WHERE number = 2")
    with pytest.raises(ValueError, match="damaged"):
        budget.spend(0.1)


@pytest.mark.parametrize("seed", range(8))
def test_random_damage_is_a_value_error_or_harmless(path, seed):
    """Whatever happens to a page, either the charges are all there or the file is refused."""
    budget = opened(path)
    for i in range(40):
        budget.spend(0.01, label=f"charge {i}")
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    at = int(rng.integers(100, len(content)))
    content[at : at + 64] = rng.bytes(64)[: len(content) - at]
    path.write_bytes(content)
    try:
        found = PrivacyBudget.open(path)
    except (ValueError, OSError):
        return
    assert [line.label for line in found.ledger] == [f"charge {i}" for i in range(40)]


def test_a_full_disk_is_an_error_and_nothing_is_spent(path):
    """The limit on the size of files stands in for a full disk."""
    opened(path)
    code = f"""
import resource
from dpbook import PrivacyBudget
budget = PrivacyBudget.open({str(path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
try:
    budget.spend(0.5, label="x")
except OSError as error:
    print("OSError", budget.spent)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "OSError (0.0, 0.0)"
    assert PrivacyBudget.open(path).ledger == ()


def test_a_file_that_may_not_be_written_is_an_error_and_nothing_is_spent(path):
    opened(path).spend(0.25)
    path.chmod(0o444)
    path.parent.chmod(0o755)
    for folder in path.parents[:3]:
        folder.chmod(0o755)
    pid = os.fork()
    if pid == 0:  # as nobody, for root may write everything
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            PrivacyBudget.open(path).spend(0.1)
        except OSError as error:
            os._exit(0 if error.errno in (errno.EACCES, errno.EPERM) else 1)
        except BaseException:
            os._exit(2)
        os._exit(3)
    assert os.waitpid(pid, 0)[1] == 0
    assert PrivacyBudget.open(path).spent[0] == 0.25


def test_another_process_that_holds_the_file_is_waited_for_and_then_named(path, monkeypatch):
    budget = opened(path)
    monkeypatch.setattr("dpbook.ledger_file._PATIENCE", 0.1)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(OSError, match="another process"):
        budget.spend(0.1)
    holder.execute("ROLLBACK")
    holder.close()
    budget.spend(0.1)
    assert budget.spent[0] == 0.1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_no_kill_leaves_a_release_without_its_charge_or_an_overspent_total(monkeypatch):
    """The same as the committed run of 500 kills, with fewer."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import crash

    found = crash.run(kills=12, seed=2)
    assert (found.unpaid, found.overspent, found.unreadable) == (0, 0, 0)
    assert found.charges > 0


# What was released


def test_a_release_is_entered_beside_its_charge(path):
    budget = opened(path)
    paid = charge(budget, 0.5, 0.0, label="answers")
    made = expfam.release([0, 1, 1, 1], expfam.Binomial(), epsilon=0.5, rng=np.random.default_rng(1))
    assert paid.entered(made) is made
    assert [line.fingerprint for line in PrivacyBudget.open(path).ledger] == [fingerprint(made)]
    assert [line.fingerprint for line in budget.ledger] == [fingerprint(made)]


def test_a_release_that_was_paid_for_is_not_lost_when_the_file_is(path):
    budget = opened(path)
    paid = charge(budget, 0.5, 0.0, label="answers")
    made = expfam.release([0, 1, 1, 1], expfam.Binomial(), epsilon=0.5, rng=np.random.default_rng(1))
    path.unlink()
    with pytest.warns(UserWarning, match="charged, but its fingerprint is not in the ledger"):
        assert paid.entered(made) is made
