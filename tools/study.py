"""Run the studies behind a chapter's figures and write their tables.

``python tools/study.py CHAPTER NAME...`` runs studies of ``book/CHAPTER/study.py`` (its mapping ``STUDIES``) and
writes ``book/CHAPTER/results/NAME.csv``, under a line that names seed, trials, version, commit and time. Cells are
shared among the cores; each finished cell is kept under ``_build/studies`` until its table is complete, so that an
interrupted run goes on where it stopped, unless the code has changed since.

    python tools/study.py regression                          # list the studies of a chapter
    python tools/study.py regression calibration mixing       # run two of them
    python tools/study.py regression all --trials 10 --out x  # all, smaller, elsewhere
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
from tqdm import tqdm

from dpbook import __version__
from dpbook.studies import Study

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "_build" / "studies"


def studies_of(chapter: str) -> Mapping[str, Study]:
    """Return the studies of a chapter, by name; its folder must hold a ``study.py``."""
    folder = ROOT / "book" / chapter
    if not (folder / "study.py").exists():
        known = sorted(path.parent.name for path in (ROOT / "book").glob("*/study.py"))
        raise SystemExit(f"no studies in {chapter!r}; chapters with studies: {', '.join(known)}")
    sys.path.insert(0, str(folder))
    found: Mapping[str, Study] = importlib.import_module("study").STUDIES
    return found


def commit() -> str:
    """Return the commit of the working tree, with a plus sign where the tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "dpbook", "book")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if changed else "")


def sources(chapter: str) -> str:
    """Return a digest of the code behind a chapter's studies: the package and the modules beside the notebooks."""
    files = [*sorted((ROOT / "dpbook").rglob("*.py")), *sorted((ROOT / "book" / chapter).glob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:20]


def measured(study: Study, cell: tuple[Any, ...], trials: int, seed: int, file: Path) -> tuple[pd.DataFrame, float]:
    """Return the rows of one cell and the seconds it took, from ``file`` where an earlier run left them there."""
    if file.exists():
        kept: tuple[pd.DataFrame, float] = pickle.loads(file.read_bytes())
        return kept
    start = time.perf_counter()
    rows = study.measure(*cell, trials=trials, seed=seed)
    found = rows, time.perf_counter() - start
    part = file.with_suffix(".part")
    part.write_bytes(pickle.dumps(found))
    part.replace(file)  # whole or not at all
    return found


def run(study: Study, folder: Path, *, trials: int, seed: int, jobs: int, label: str) -> tuple[pd.DataFrame, float]:
    """Measure all cells of a study, resuming from ``folder``; return its table and the seconds of work."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = []
    for cell in study.cells:
        digest = hashlib.sha256(repr((cell, trials, seed)).encode()).hexdigest()[:20]
        tasks.append(joblib.delayed(measured)(study, cell, trials, seed, folder / f"{digest}.pickle"))
    results = joblib.Parallel(n_jobs=jobs, return_as="generator")(tasks)
    parts = list(tqdm(results, total=len(tasks), desc=label, disable=None))
    return study.combine([rows for rows, _ in parts]), sum(seconds for _, seconds in parts)


def head_line(study: str, **facts: object) -> str:
    """Return the first line of a committed table: how it was made, by which version and commit."""
    made = {"study": study, **facts, "version": __version__, "commit": commit()}
    return f"# {' '.join(f'{name}={value}' for name, value in made.items())}\n"


def save(table: pd.DataFrame, path: Path, *, digits: str = "%.4g", **facts: object) -> None:
    """Write a table under a line that says how it was made, with four significant digits unless told otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = table.to_csv(index=False, float_format=digits, lineterminator="\n")
    path.write_text(head_line(path.stem, **facts) + text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("chapter", help="a folder of the book, such as regression")
    parser.add_argument("studies", nargs="*", help="names of studies, or all; none: list them")
    parser.add_argument("--trials", type=int, default=None, help="worlds per cell; by default the study's own number")
    parser.add_argument("--seed", type=int, default=None, help="by default the study's own")
    parser.add_argument("--jobs", type=int, default=-1, help="cores; by default all")
    parser.add_argument("--out", type=Path, default=None, help="folder of the tables; by default the chapter's results")
    chosen = parser.parse_args(arguments)
    known = studies_of(chosen.chapter)
    if unknown := [name for name in chosen.studies if name not in known and name != "all"]:
        parser.error(f"no study {unknown[0]!r} in {chosen.chapter}; there are {', '.join(known)}")
    if not chosen.studies:
        for name, study in known.items():
            print(f"{name}: {len(study.cells)} cells, {study.trials} trials, seed {study.seed}")
    for name in known if "all" in chosen.studies else chosen.studies:
        study = known[name]
        trials = study.trials if chosen.trials is None else chosen.trials
        seed = study.seed if chosen.seed is None else chosen.seed
        kept = KEPT / chosen.chapter / name
        folder = kept / sources(chosen.chapter)
        table, seconds = run(study, folder, trials=trials, seed=seed, jobs=chosen.jobs, label=name)
        out = ROOT / "book" / chosen.chapter / "results" if chosen.out is None else chosen.out
        save(table, out / f"{name}.csv", seed=seed, trials=trials, seconds=f"{seconds:.1f}")
        shutil.rmtree(kept)
        print(f"{name}: {len(table)} rows, {seconds:.1f} s of work")


if __name__ == "__main__":
    main()
