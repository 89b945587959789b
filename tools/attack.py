"""Attack every promise of privacy with generated neighbours, for longer than the tests do, and write what was found.

The guards are in ``tests/guards``; the book's page on promises explains them and shows both tables.

    python tools/attack.py --cases 10000            # all guards; writes book/reference/results/guards.csv
    python tools/attack.py --only hmm --cases 500   # some of them; writes nothing
    python tools/attack.py --table                  # which guards there are: guards_table.csv, in a second
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from study import save

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
report: Any = importlib.import_module("guards.report")

RESULTS = ROOT / "book" / "reference" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="at least so many in all")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--only", default="", help="guards whose name holds this text")
    parser.add_argument("--table", action="store_true", help="write the list of guards, and attack nothing")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if options.table:
        save(report.guards_table(), RESULTS / "guards_table.csv")
        return
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    found = report.attack_all(options.cases, seed=options.seed, only=options.only, progress=True)
    print(f"{int(found['cases'].sum())} cases, largest loss over claim {found['worst'].max():.6f}")
    if not options.only:
        facts = {"seed": options.seed, "cases": int(found["cases"].sum())}
        save(found, RESULTS / "guards.csv", **facts, seconds=round(time.perf_counter() - started), digits="%.6f")


if __name__ == "__main__":
    main()
