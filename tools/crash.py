"""Kill processes that spend from one ledger in a file, at random moments, and see what the file says after every kill.

    python tools/crash.py --kills 500

Two writers at a time open the ledger, spend, and write down what they "released" once the charge is made. Each is
killed without warning. A release without its charge, an overspent total, or a file that does not open is counted. The
result is written to book/background/results/crash.csv.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from study import save

from dpbook import BudgetExceeded, PrivacyBudget

RESULT = Path(__file__).resolve().parent.parent / "book" / "background" / "results" / "crash.csv"
_EPSILON = 1 / 128  # of a charge: a power of two, so that sums are exact
_LONGEST = 0.3  # seconds from the start of a writer to its end


class Found(NamedTuple):
    """What a run found."""

    kills: int
    charges: int
    releases: int
    unpaid: int
    overspent: int
    unreadable: int


def write(ledger: Path, out: Path) -> None:
    """Spend from the ledger until it is exhausted, noting every release that a charge allows."""
    budget = PrivacyBudget.open(ledger)
    with open(out, "a", buffering=1) as file:
        for i in range(10_000):
            label = f"{os.getpid()}-{i}"
            try:
                budget.spend(_EPSILON, label=label)
            except BudgetExceeded:
                return
            file.write(f"{label}\n")


def killed(ledger: Path, out: Path, rng: random.Random) -> None:
    """Start two writers and kill each after a random time."""
    writers = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            try:
                write(ledger, out)
            finally:
                os._exit(0)
        writers.append(pid)
    for pid in writers:
        time.sleep(rng.uniform(0, _LONGEST))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def run(kills: int, seed: int, total: float = 2.0, show: bool = False) -> Found:
    """Return what was found after so many kills; a full ledger is followed by a new one."""
    rng, done = random.Random(seed), 0
    charges = releases = unpaid = overspent = unreadable = 0
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        while done < kills:
            ledger, out = Path(folder, f"{number}.ledger"), Path(folder, f"{number}.out")
            out.touch()
            PrivacyBudget.open(ledger, epsilon=total)
            number += 1
            while done < kills:
                killed(ledger, out, rng)
                done += 2
                try:
                    budget = PrivacyBudget.open(ledger)
                except (OSError, ValueError) as error:
                    print(f"unreadable: {error}", file=sys.stderr)
                    unreadable += 1
                    break
                paid = {charge.label for charge in budget.ledger}
                # A line that was cut off in the middle is no release: nobody could read it.
                made = [line for line in out.read_text().split("\n")[:-1] if line]
                overspent += budget.spent[0] > total
                if show:
                    print(f"\r{done} kills, {charges + len(paid)} charges", end="", file=sys.stderr)
                if not set(made) <= paid or not budget.can_spend(_EPSILON):
                    break
            charges, releases = charges + len(paid), releases + len(made)
            unpaid += len(set(made) - paid)
    return Found(done, charges, releases, unpaid, overspent, unreadable)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    start = time.perf_counter()
    found = run(arguments.kills, arguments.seed, show=True)
    seconds = time.perf_counter() - start
    print(f"\n{found}", file=sys.stderr)
    RESULT.parent.mkdir(exist_ok=True)
    save(pd.DataFrame([found]), RESULT, seed=arguments.seed, seconds=round(seconds))
    return int(bool(found.unpaid or found.overspent or found.unreadable))


if __name__ == "__main__":
    sys.exit(main())
