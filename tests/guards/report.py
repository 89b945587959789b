"""The two tables that the book shows: which guards there are, and what a long run of them found."""

from __future__ import annotations

import math

import pandas as pd
from tqdm import tqdm

from guards import mutants, run
from guards.registry import GUARDS, promising


def name_of(function: object) -> str:
    """Return the shortest name under which the book's readers call a function: of its package, not of its file."""
    full = promising()[function]  # type: ignore[index]
    parts = full.removeprefix("dpbook.").split(".")
    files = ("releases", "shape_releases", "estimator", "bounds", "dpsgd")
    return ".".join(part for part in parts if part not in files)


def guards_table() -> pd.DataFrame:
    """Return one row a guard: what it guards, how, where the promise is proved, which breaks it must notice."""
    breaks = {function: sorted({m.kind for m in mutants.MUTANTS if m.of is function}) for function in GUARDS}
    rows = [
        {
            "release": name_of(function),
            "unit": guard.unit,
            "observed": guard.observed,
            "proof": guard.proof,
            "paths": " and ".join(guard.paths),
            "breaks": "; ".join(breaks[function]),
        }
        for function, guard in GUARDS.items()
    ]
    return pd.DataFrame(rows).sort_values("release", ignore_index=True)


def attack_all(cases: int, *, seed: int, only: str = "", progress: bool = False) -> pd.DataFrame:
    """Attack every guard on every path, with at least so many cases in all; raise at the first broken promise."""
    chosen = [(f, path) for f, guard in GUARDS.items() for path in guard.paths if only in name_of(f)]
    share = cases / sum(GUARDS[function].weight for function, _ in chosen)
    rows = []
    for function, path in tqdm(chosen, disable=not progress):
        count = math.ceil(share * GUARDS[function].weight)
        tally = run.guarded(function, path, count, seed=seed, shrink=True)
        rows.append({"release": name_of(function), "path": path, "cases": tally.cases, "worst": tally.worst})
    return pd.DataFrame(rows).sort_values(["release", "path"], ignore_index=True)
