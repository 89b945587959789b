"""What every study shares: a cell's seed and its scores, a table on disk with a line on how it was made, a command.

A study is a function ``study(*, trials=..., seed=..., [progress=...]) -> pandas.DataFrame``; a module of studies keeps
them in a mapping from names to functions and calls :func:`load_table` and :func:`run_command`.
"""

from __future__ import annotations

import argparse
import inspect
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpbook import diagnostics
from dpbook._validation import one_of
from dpbook._version import __version__

__all__ = [
    "Study",
    "cell_rng",
    "corrected_over_study",
    "judge",
    "load_table",
    "results_of",
    "run_command",
    "save_table",
]

Study = Callable[..., pd.DataFrame]


def results_of(chapter: str) -> Path:
    """Return the folder of a chapter's committed tables; ``chapter`` is the name of its folder in the book."""
    return Path(__file__).parents[2] / "book" / chapter / "results"


def cell_rng(seed: int, *label: object) -> np.random.Generator:
    """Return a generator of one cell's own, so that a cell gives the same numbers whichever others are run."""
    return np.random.default_rng([seed, zlib.crc32(repr(label).encode())])


def judge(
    truth: NDArray[np.float64], drawn: NDArray[np.float64], independent: int, rng: np.random.Generator
) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Return the scores of one scalar over all trials, and its ranks.

    ``truth`` has one entry a trial, ``drawn`` one row of posterior draws a trial, of which ``independent`` are spread
    out for the ranks.
    """
    calibrated = diagnostics.calibrate(
        lambda _, __: truth, lambda _, __: None, lambda _, __: drawn, len(truth), draws=independent, rng=rng
    )
    raw = calibrated.raw_p_values
    low, high = np.quantile(drawn, [0.025, 0.975], axis=1)
    # From ranks among independent draws: if a method is calibrated, few or dependent draws do not bias its coverage.
    hit = diagnostics.coverage(0.025, 0.975, calibrated.ranks["theta"])
    row = {
        "ks": calibrated.ks["theta"],
        "ks_p": raw["theta", "ks"],
        "variance": calibrated.variance["theta"],
        "variance_p": raw["theta", "variance"],
        "p_holm": min(calibrated.p_values.values()),
        "contraction": 1 - drawn.var(axis=1, ddof=1).mean() / truth.var(ddof=1),
        "coverage": hit.rate,
        "coverage_low": hit.low,
        "coverage_high": hit.high,
        "sd": drawn.std(axis=1, ddof=1).mean(),
        "rmse": math.sqrt(np.mean((drawn.mean(axis=1) - truth) ** 2)),
        "interval_score": np.mean(diagnostics.interval_score(low, high, truth, 0.95)),
        "crps": np.mean(diagnostics.crps(drawn, truth)),
    }
    return row, calibrated.ranks["theta"]


def corrected_over_study(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of :func:`judge` rows with ``p_study``: Holm's correction over all the rows of each method."""
    corrected = np.empty(len(table))
    for method in table["method"].unique():
        among = (table["method"] == method).to_numpy()
        p_values = table.loc[among, ["ks_p", "variance_p"]].to_numpy()
        corrected[among] = diagnostics.holm(p_values.ravel()).reshape(-1, 2).min(axis=1)
    table.insert(list(table.columns).index("p_holm") + 1, "p_study", corrected)
    return table


def load_table(name: str, studies: Mapping[str, Study], folder: str | Path) -> pd.DataFrame:
    """Return the stored table of a study, with seed, trials, version and seconds as ``attrs``."""
    path = Path(folder) / f"{one_of('name', name, tuple(studies))}.csv"
    with path.open(encoding="utf-8") as file:
        header = dict(part.split("=") for part in file.readline().strip("# \n").split())
    table = pd.read_csv(path, comment="#")
    table.attrs = {
        "seed": int(header["seed"]),
        "trials": int(header["trials"]),
        "version": header["version"],
        "seconds": float(header["seconds"]),
    }
    return table


def save_table(table: pd.DataFrame, path: Path, *, seed: int, trials: int, seconds: float) -> None:
    """Write a table with four significant digits, under a line that says how it was made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = f"# study={path.stem} seed={seed} trials={trials} version={__version__} seconds={seconds:.1f}\n"
    path.write_text(header + table.to_csv(index=False, float_format="%.4g", lineterminator="\n"), encoding="utf-8")


def run_command(
    arguments: Sequence[str] | None, studies: Mapping[str, Study], *, folder: Path, seed: int, doc: str | None
) -> None:
    """Run the studies that a command line names and write their tables."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0] if doc else None)
    parser.add_argument("studies", nargs="+", choices=[*studies, "all"], help="which studies")
    parser.add_argument("--trials", type=int, default=None, help="worlds a cell; by default the study's own number")
    parser.add_argument("--seed", type=int, default=seed, help="seed of everything")
    parser.add_argument("--out", type=Path, default=folder, help="folder of the tables")
    parser.add_argument("--progress", action="store_true", help="show a progress bar")
    chosen = parser.parse_args(arguments)
    for name in studies if "all" in chosen.studies else chosen.studies:
        parameters = inspect.signature(studies[name]).parameters
        trials = parameters["trials"].default if chosen.trials is None else chosen.trials
        options = {"progress": chosen.progress} if "progress" in parameters else {}
        start = time.perf_counter()
        table = studies[name](trials=trials, seed=chosen.seed, **options)
        seconds = time.perf_counter() - start
        save_table(table, chosen.out / f"{name}.csv", seed=chosen.seed, trials=trials, seconds=seconds)
        print(f"{name}: {len(table)} rows, {seconds:.1f} s")
