"""Grade the notebooks that students hand in: run each, then the hidden tests on the answers that it left.

    submissions/<student>/<any folders>/02-definition.ipynb     # one folder a student, names as handed out
    python grade.py submissions --marks marks.csv --secret 4711

The name of the folder is the student's name, from which exercises with numbers of their own take them. Files beside the
notebooks come from this folder, not from the submission. A notebook is a program: grade strangers' in a container.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pandas as pd
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError

HERE = Path(__file__).resolve().parent

# Runs in the student's kernel after everything else. An answer whose name does not exist is an empty one.
GRADE = """
import json as _json, sys as _sys
_sys.path.insert(0, {folder!r})
import grading as _grading

_found = {{}}
for _label, _answer in {answers!r}:
    try:
        _value = eval(_answer)
    except Exception:
        _value = ...
    _verdict = _grading.exercises.grade(_label, _value, student={student!r}, secret={secret!r})
    _found[_label] = [_verdict.passed, _verdict.message]
print(_json.dumps(_found))
"""


def exercises() -> pd.DataFrame:
    """Return the exercises of the course that have a check."""
    table = pd.read_csv(HERE / "exercises.csv", keep_default_na=False)
    return table[table["answer"] != ""]


def verdicts(notebook: Path, student: str, secret: int, timeout: int) -> dict[str, tuple[bool, str]]:
    """Run a notebook beside the files of the course and return what the hidden tests say, by exercise."""
    table = exercises()
    rows = table[table["notebook"].map(lambda name: Path(name).name) == notebook.name]
    chapter = HERE / Path(rows["notebook"].iloc[0]).parent
    cells = nbformat.read(notebook, as_version=4)
    answers = list(zip(rows["exercise"], rows["answer"], strict=True))
    last = GRADE.format(folder=str(chapter), answers=answers, student=student, secret=secret)
    cells.cells.append(nbformat.v4.new_code_cell(last))
    with tempfile.TemporaryDirectory() as desk:
        shutil.copytree(chapter, desk, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.ipynb", "grading.py"))
        client = NotebookClient(cells, timeout=timeout, allow_errors=True, resources={"metadata": {"path": desk}})
        try:
            client.execute()
        except (CellTimeoutError, DeadKernelError) as error:
            return {label: (False, f"the notebook did not end: {type(error).__name__}") for label, _ in answers}
    printed = "".join(output.get("text", "") for output in cells.cells[-1].outputs)
    try:
        found = json.loads(printed.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return {label: (False, "the hidden tests could not be run") for label, _ in answers}
    return {label: (bool(passed), str(message)) for label, (passed, message) in found.items()}


def marks(submissions: Path, secret: int, jobs: int, timeout: int) -> pd.DataFrame:
    """Return one row for each student and checked exercise that was handed in; points are the exercise's level."""
    table = exercises()
    known = set(table["notebook"].map(lambda name: Path(name).name))
    work = [
        (folder.name, notebook)
        for folder in sorted(submissions.iterdir())
        if folder.is_dir()
        for notebook in sorted(folder.rglob("*.ipynb"))
        if notebook.name in known and ".ipynb_checkpoints" not in notebook.parts
    ]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda one: verdicts(one[1], one[0], secret, timeout), work))
    levels = table.set_index("exercise")["level"]
    rows = [
        (student, notebook.name, label, int(levels[label]), int(levels[label]) if passed else 0, message)
        for (student, notebook), of in zip(work, found, strict=True)
        for label, (passed, message) in of.items()
    ]
    return pd.DataFrame(rows, columns=["student", "notebook", "exercise", "out of", "points", "message"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("submissions", type=Path, help="a folder with one folder for each student")
    parser.add_argument("--marks", type=Path, default=Path("marks.csv"), help="the table to write (default: marks.csv)")
    parser.add_argument("--secret", type=int, default=0, help="seed of the hidden tests' numbers: choose your own")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for a cell (default: 120)")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="notebooks at a time (default: 2)")
    options = parser.parse_args(arguments)
    if not options.submissions.is_dir():
        parser.error(f"submissions must be a folder, got {options.submissions}")
    table = marks(options.submissions, options.secret, options.jobs, options.timeout)
    if table.empty:
        sys.exit(f"no notebook of the course below {options.submissions}")
    table.to_csv(options.marks, index=False)
    print(table.groupby("student")[["points", "out of"]].sum().to_string())


if __name__ == "__main__":
    main()
