"""``tools/study.py`` on a made-up chapter: progress, resumption, both cores, and tables that say how they were made."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pandas as pd
import pytest

from dpbook import __version__
from dpbook.studies import load

ROOT = Path(__file__).resolve().parents[2]

STUDY = """
import os, time
from pathlib import Path

import pandas as pd

from dpbook.studies import Study, cell_rng
from scale import SCALE  # a module beside this one

HERE = Path(__file__).parent


def measure(n, *, trials, seed):
    with (HERE / "log").open("a") as log:
        log.write(f"{n}\\\\n")
    if n == 3 and (HERE / "stuck").exists():
        time.sleep(600)
    time.sleep(0.4 if n >= 10 else 0)
    drawn = SCALE * cell_rng(seed, "toy", n).normal(size=(trials, n))
    return pd.DataFrame({"n": [n], "mean": [drawn.mean()], "worker": [os.getpid()]})


def share(table):
    return table.assign(share=table["n"] / table["n"].sum())


STUDIES = {
    "toy": Study(measure, [(1,), (2,), (3,), (4,)], trials=50, seed=5, finish=share),
    "slow": Study(measure, [(n,) for n in range(10, 16)], trials=2, seed=1),
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a repository with one chapter and the runner."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "study.py", tmp_path / "tools")
    (tmp_path / "book" / "toy").mkdir(parents=True)
    (tmp_path / "book" / "toy" / "study.py").write_text(STUDY.replace("\\\\", "\\"), encoding="utf-8")
    (tmp_path / "book" / "toy" / "scale.py").write_text("SCALE = 1.0\n", encoding="utf-8")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "A chapter"]):
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    return tmp_path


def start(tree: Path, *words: str) -> subprocess.Popen[str]:
    """Start the runner on the made-up chapter."""
    command = [sys.executable, "tools/study.py", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=tree, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, and return what it said."""
    process = start(tree, *words)
    said, complained = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, said, complained)


def table_of(tree: Path, name: str = "toy") -> pd.DataFrame:
    return load(tree / "book" / "toy" / "results" / f"{name}.csv")


def measured(tree: Path) -> list[int]:
    """Return the cells that were measured since the last look, in order."""
    log = tree / "book" / "toy" / "log"
    found = [int(line) for line in log.read_text().split()] if log.exists() else []
    log.unlink(missing_ok=True)
    return found


def test_a_table_is_written_under_a_line_that_says_how_it_was_made(tree: Path) -> None:
    said = run(tree, "toy", "toy", "--jobs", "1")
    assert said.returncode == 0, said.stderr
    assert re.fullmatch(r"toy: 4 rows, \d+\.\d s of work\n", said.stdout)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True, check=True).stdout
    table = table_of(tree)
    assert {name: table.attrs[name] for name in ("study", "seed", "trials", "version")} == {
        "study": "toy",
        "seed": 5,
        "trials": 50,
        "version": __version__,
    }
    assert table.attrs["commit"] == head[:10]
    assert table.attrs["seconds"] >= 0
    assert table["share"].tolist() == [0.1, 0.2, 0.3, 0.4]  # finished over all rows
    assert measured(tree) == [1, 2, 3, 4]
    assert not (tree / "_build" / "studies" / "toy" / "toy").exists()  # nothing is left of a table that is complete


def test_a_tree_that_differs_from_its_commit_is_marked(tree: Path) -> None:
    (tree / "book" / "toy" / "scale.py").write_text("SCALE = 2.0\n", encoding="utf-8")
    run(tree, "toy", "toy", "--jobs", "1", "--trials", "3", "--seed", "8")
    attributes = table_of(tree).attrs
    assert re.fullmatch(r"[0-9a-f]{10}\+", attributes["commit"])
    assert (attributes["trials"], attributes["seed"]) == (3, 8)


def test_what_two_workers_make_is_what_one_makes(tree: Path) -> None:
    assert run(tree, "toy", "slow", "--jobs", "1", "--out", "one").returncode == 0
    assert run(tree, "toy", "slow", "--jobs", "2").returncode == 0
    alone, shared = load(tree / "one" / "slow.csv"), table_of(tree, "slow")
    assert alone["mean"].tolist() == shared["mean"].tolist()
    assert alone["n"].tolist() == shared["n"].tolist()  # in the order of the grid
    assert (alone["worker"].nunique(), shared["worker"].nunique()) == (1, 2)


def killed_in_the_third_cell(tree: Path) -> None:
    """Start the toy study, and kill it while it measures its third cell."""
    (tree / "book" / "toy" / "stuck").touch()
    process = start(tree, "toy", "toy", "--jobs", "1")
    log = tree / "book" / "toy" / "log"
    for _ in range(600):
        if log.exists() and log.read_text().split()[-1:] == ["3"]:
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert measured(tree) == [1, 2, 3]
    assert not (tree / "book" / "toy" / "results").exists()
    (tree / "book" / "toy" / "stuck").unlink()


def test_a_killed_run_goes_on_where_it_stopped(tree: Path) -> None:
    killed_in_the_third_cell(tree)
    assert run(tree, "toy", "toy", "--jobs", "1").returncode == 0
    assert measured(tree) == [3, 4]
    resumed = table_of(tree)
    run(tree, "toy", "toy", "--jobs", "1")
    assert measured(tree) == [1, 2, 3, 4]  # a complete table is measured anew
    assert resumed["mean"].tolist() == table_of(tree)["mean"].tolist()


@pytest.mark.parametrize("changed", ["the code", "the seed", "the trials"])
def test_cells_of_another_code_seed_or_size_are_not_taken_up(tree: Path, changed: str) -> None:
    killed_in_the_third_cell(tree)
    if changed == "the code":
        (tree / "book" / "toy" / "scale.py").write_text("SCALE = 2.0\n", encoding="utf-8")
    options = {"the seed": ["--seed", "6"], "the trials": ["--trials", "4"]}.get(changed, [])
    assert run(tree, "toy", "toy", "--jobs", "1", *options).returncode == 0
    assert measured(tree) == [1, 2, 3, 4]


def test_progress_is_shown_on_a_terminal_and_not_in_a_log(tree: Path) -> None:
    assert run(tree, "toy", "toy", "--jobs", "1").stderr == ""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [sys.executable, "tools/study.py", "toy", "toy", "--jobs", "1"]
    subprocess.run(command, cwd=tree, stdout=subprocess.DEVNULL, stderr=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "toy: 100%" in shown
    assert "4/4" in shown


def test_names_are_listed_and_unknown_ones_refused(tree: Path) -> None:
    assert run(tree, "toy").stdout == "toy: 4 cells, 50 trials, seed 5\nslow: 6 cells, 2 trials, seed 1\n"
    wrong = run(tree, "toy", "toy", "tyo")
    assert wrong.returncode != 0
    assert "no study 'tyo' in toy; there are toy, slow" in wrong.stderr
    assert measured(tree) == []  # the known one was not begun
    elsewhere = run(tree, "other")
    assert elsewhere.returncode != 0
    assert "no studies in 'other'; chapters with studies: toy" in elsewhere.stderr


def test_all_runs_all(tree: Path) -> None:
    assert run(tree, "toy", "all", "--trials", "1", "--jobs", "2").returncode == 0
    assert sorted(path.name for path in (tree / "book" / "toy" / "results").iterdir()) == ["slow.csv", "toy.csv"]
