"""What every study shares: the seed of a cell, its table on disk with a line that says how it was made, its command.

A study is a function ``study(*, trials=..., seed=..., [progress=...]) -> pandas.DataFrame``; a module of studies keeps
them in a mapping from names to functions and calls :func:`load_table` and :func:`run_command`.
"""

from __future__ import annotations

import argparse
import inspect
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from dpbook._validation import one_of
from dpbook._version import __version__

__all__ = ["Study", "cell_rng", "load_table", "results_of", "run_command", "save_table"]

Study = Callable[..., pd.DataFrame]


def results_of(chapter: str) -> Path:
    """Return the folder of a chapter's committed tables; ``chapter`` is the name of its folder in the book."""
    return Path(__file__).parents[2] / "book" / chapter / "results"


def cell_rng(seed: int, *label: object) -> np.random.Generator:
    """Return a generator of one cell's own, so that a cell gives the same numbers whichever others are run."""
    return np.random.default_rng([seed, zlib.crc32(repr(label).encode())])


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
