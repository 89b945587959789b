"""What a form of the same records costs: CPU time against a data frame, and peak memory of files of growing length.

Run with ``python benchmarks/streams.py``. Times are of the process, so that a busy machine changes little.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from dpbook import expfam, graphical, regression

ROWS = 1_000_000
REGIONS = ["north", "south", "east", "west"]

PEAK = """
import sys
import numpy as np, pyarrow.dataset
from dpbook import expfam, regression
form = {"path": lambda p: p, "data set": pyarrow.dataset.dataset}[sys.argv[2]](sys.argv[1])
at = {"epsilon": 1.0, "rng": np.random.default_rng(0)}
regression.release(form, "y", x_bounds=(-3, 3), y_bounds=(-3, 3), **at)
status = open("/proc/self/status").read()  # what the system calls the peak of a process may be that of its parent
print(int(status.split("VmHWM:")[1].split()[0]) / 1024)
"""


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best


def records(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "x": rng.normal(size=rows),
            "y": rng.normal(size=rows),
            "k": rng.integers(3, size=rows),
            "region": np.array(REGIONS)[rng.integers(4, size=rows)],
        }
    )


def settings() -> dict[str, Any]:
    return {"epsilon": 1.0, "rng": np.random.default_rng(0)}


RELEASES: dict[str, tuple[list[str], Callable[[Any], object]]] = {
    "mean": (["x"], lambda data: expfam.release_mean(data, (-3, 3), **settings())),
    "labels": (["region"], lambda data: expfam.release_histogram(data, labels=REGIONS, **settings())),
    "regression": (
        ["x", "y"],
        lambda data: regression.release(data, "y", x_bounds=(-3, 3), y_bounds=(-3, 3), **settings()),
    ),
    "tables": (["k"], lambda data: graphical.release(data, {"k": 3}, [("k",)], **settings())),
}


def written(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


def compare(folder: Path) -> None:
    """Print, for each release, the CPU time of each form over that of a data frame."""
    whole = records(ROWS)
    for name, (columns, make) in RELEASES.items():
        frame = whole[columns]
        paths = [written(frame, folder / f"{name}.{kind}") for kind in ("parquet", "csv")]
        table = pa.Table.from_pandas(frame, preserve_index=False)
        forms: dict[str, Callable[[], Any]] = {
            "Arrow table": lambda table=table: table,
            "Arrow reader": lambda table=table: table.to_reader(),
            "data set": lambda table=table: pyarrow.dataset.dataset(table),
            "Parquet": lambda path=paths[0]: path,
            "CSV": lambda path=paths[1]: path,
        }
        base = seconds(lambda make=make, frame=frame: make(frame))
        ratios = {form: seconds(lambda make=make, of=of: make(of())) / base for form, of in forms.items()}
        words = ", ".join(f"{form} {ratio:.2f}" for form, ratio in ratios.items())
        print(f"{name}, {ROWS:,} records: data frame {1e9 * base / ROWS:.0f} ns a record; {words}")


def peaks(folder: Path) -> None:
    """Print the peak memory of a process that makes a release from files of one, three and ten million records."""
    for form in ("path", "data set"):
        found = {}
        for millions in (1, 3, 10):
            path = folder / f"{millions}.parquet"
            if not path.exists():
                written(records(millions * 1_000_000)[["x", "y"]], path)
            done = subprocess.run(
                [sys.executable, "-c", PEAK, str(path), form], capture_output=True, text=True, check=True
            )
            found[millions] = float(done.stdout)
        words = ", ".join(f"{millions} million records {peak:.0f} MB" for millions, peak in found.items())
        print(f"Parquet as a {form}, peak memory of the process: {words}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        compare(Path(name))
        peaks(Path(name))


if __name__ == "__main__":
    main()
