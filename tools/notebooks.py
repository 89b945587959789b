"""Write the executed notebooks of the book from their text sources, and check that the two agree.

The source of a section is a jupytext text notebook, ``book/<chapter>/<section>.md``; its executed twin
``<section>.ipynb`` lies beside it and both are committed. Run without options, this tool brings every twin up to
date: it executes a notebook when its code changed and carries the stored outputs over when only its prose did.
What it writes is a function of the source and the outputs alone (stable cell ids, no timestamps), so a second run
changes no byte. ``--check`` writes nothing and fails where a twin is out of step.

    python tools/notebooks.py                     # refresh what changed
    python tools/notebooks.py --force             # execute everything again (after a change in dpbook)
    python tools/notebooks.py book/background     # one chapter, or one section
    python tools/notebooks.py --check             # used by the tests
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import yaml
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
SECONDS_ALLOWED = 60  # the time budget of one notebook
CELL_TIMEOUT = 300  # a cell that hangs is stopped after this many seconds

# What a run must not depend on: hash order, the number of cores, the width of a terminal, a user's matplotlibrc.
KERNEL_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "COLUMNS": "80",
    "NO_COLOR": "1",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}

# Long chains amplify the last digit, and wider processors round it differently. So all that can run AVX2 run just that:
# the same kernels of linear algebra and the same loops of NumPy, whichever processor wrote the stored outputs.
_CPU = Path("/proc/cpuinfo")
if _CPU.exists() and " avx2 " in _CPU.read_text(encoding="utf-8", errors="replace"):
    KERNEL_ENVIRONMENT["OPENBLAS_CORETYPE"] = "Haswell"
    KERNEL_ENVIRONMENT["NPY_DISABLE_CPU_FEATURES"] = "X86_V4 AVX512_ICL AVX512_SPR"

NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

# Tags under which a cell would be published without having been run or compared.
FORBIDDEN_TAGS = {"skip-execution", "nbval-skip"}


# Reading -------------------------------------------------------------------------------------------------------------


def front_matter(source: Path) -> dict[str, Any]:
    """Return the YAML block at the head of a text file; an empty dict where there is none."""
    found = re.match(r"\A---\n(.*?)\n---\n", source.read_text(encoding="utf-8"), flags=re.DOTALL)
    return (yaml.safe_load(found.group(1)) or {}) if found else {}


def is_notebook(source: Path) -> bool:
    """Tell a section (front matter names a kernel) from a plain page such as the glossary."""
    return "kernelspec" in front_matter(source)


def find_sources(paths: Sequence[Path]) -> list[Path]:
    """Return the text notebooks at and below ``paths`` (a notebook's twin stands for its source)."""
    found: set[Path] = set()
    for path in paths:
        if path.is_dir():
            found.update(p for p in path.rglob("*.md") if is_notebook(p) and not hidden(p, path))
        elif path.with_suffix(".md").exists():
            found.add(path.with_suffix(".md"))
        else:
            raise SystemExit(f"no such section: {path}")
    return sorted(found)


def hidden(path: Path, below: Path) -> bool:
    """Say whether a folder between ``below`` and ``path`` is a hidden or a build folder."""
    return any(part.startswith((".", "_build")) for part in path.relative_to(below).parts)


def read_source(source: Path) -> NotebookNode:
    """Return the notebook that ``source`` describes, without outputs, with stable ids and minimal metadata."""
    text = jupytext.read(source, fmt="md:myst")
    cells = []
    for number, cell in enumerate(text.cells, start=1):
        kept = {"metadata": dict(cell.metadata), "id": f"{source.stem[:60]}-{number:03d}"}
        if cell.cell_type == "code":
            cells.append(nbformat.v4.new_code_cell(cell.source, **kept))
        else:
            cells.append(nbformat.v4.new_markdown_cell(cell.source, **kept))
    notebook: NotebookNode = nbformat.v4.new_notebook(cells=cells, metadata=NOTEBOOK_METADATA, nbformat_minor=5)
    return notebook


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the code cells in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: NotebookNode) -> set[str]:
    """Return the tags of a cell."""
    return set(cell.metadata.get("tags", []))


def same_code(one: NotebookNode, other: NotebookNode) -> bool:
    """Say whether two notebooks run the same: the same code, in the same order, raising in the same places."""

    def run(notebook: NotebookNode) -> list[tuple[str, bool]]:
        return [(cell.source, "raises-exception" in tags(cell)) for cell in code_cells(notebook)]

    return run(one) == run(other)


# Executing -----------------------------------------------------------------------------------------------------------


def execute(notebook: NotebookNode, folder: Path) -> float:
    """Run all cells in a fresh kernel of this Python, in the notebook's own folder; return the seconds it took."""
    environment = {**os.environ, **KERNEL_ENVIRONMENT}
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=CELL_TIMEOUT,
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=40"],  # errors only: the kernel's start-up notes say nothing about the book
        resources={"metadata": {"path": str(folder)}},
    )
    start = time.monotonic()
    client.execute(env=environment)
    seconds = time.monotonic() - start
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    for cell in code_cells(notebook):
        cell.outputs = [tidy(output) for output in cell.outputs]
    return seconds


def tidy(output: NotebookNode) -> NotebookNode:
    """Drop from an output what names this machine: the frames of a traceback hold its paths."""
    if output.output_type == "error":
        output.traceback = [f"{output.ename}: {output.evalue}"]
    return output


def carry_outputs(notebook: NotebookNode, stored: NotebookNode) -> None:
    """Give the cells of ``notebook`` the outputs of the same cells in ``stored``."""
    for cell, old in zip(code_cells(notebook), code_cells(stored), strict=True):
        cell.outputs, cell.execution_count = old.outputs, old.execution_count


def keep_unchecked_outputs(notebook: NotebookNode, stored: NotebookNode) -> None:
    """Keep the stored output of a cell whose numbers are real noise, unless more than its numbers changed."""

    def shape(cell: NotebookNode) -> str:
        return re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?", "#", json.dumps(cell.outputs, sort_keys=True))

    for cell, old in zip(code_cells(notebook), code_cells(stored), strict=True):
        if "nbval-ignore-output" in tags(cell) and shape(cell) == shape(old):
            cell.outputs = old.outputs


# Writing -------------------------------------------------------------------------------------------------------------


def as_text(notebook: NotebookNode) -> str:
    """Return the bytes of the .ipynb file, one way for one content."""
    return str(nbformat.writes(notebook, version=4)).rstrip("\n") + "\n"


def refresh(source: Path, *, force: bool = False) -> tuple[str, float | None]:
    """Bring the twin of ``source`` up to date; return what was done and, if it was executed, the seconds it took."""
    target = source.with_suffix(".ipynb")
    notebook = read_source(source)
    stored = nbformat.read(target, as_version=4) if target.exists() else None
    reusable = stored is not None and same_code(notebook, stored)
    seconds = None
    if stored is not None and reusable and not force and not faults(stored):
        carry_outputs(notebook, stored)
    else:
        try:
            seconds = execute(notebook, source.parent)
        except CellExecutionError as error:
            return f"FAILED\n{error}", None
        if stored is not None and reusable:
            keep_unchecked_outputs(notebook, stored)
    after = as_text(notebook)
    if stored is not None and target.read_text(encoding="utf-8") == after:
        return ("executed, same outputs" if seconds is not None else "up to date"), seconds
    partial = target.with_suffix(".ipynb.partial")
    partial.write_text(after, encoding="utf-8")
    partial.replace(target)
    return ("executed" if seconds is not None else "prose updated"), seconds


def record_time(book: Path, section: str, seconds: float) -> None:
    """Write the running time of a section to ``timings.json``, in whole seconds.

    A recorded time stays while the new one is close to it (2 s, or a quarter), so that reruns leave the file alone.
    """
    path = book / "timings.json"
    with open(path, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # two authors may refresh two sections at once
        file.seek(0)
        before = file.read()
        times: dict[str, int] = json.loads(before or "{}")
        old, new = times.get(section), max(1, round(seconds))
        close = old is not None and abs(new - old) <= max(2, old / 4)
        times[section] = old if old is not None and close and new <= SECONDS_ALLOWED else new
        present = {name: t for name, t in times.items() if (book / f"{name}.md").exists()}
        after = json.dumps(dict(sorted(present.items())), indent=1) + "\n"
        if after != before:
            file.truncate(0)
            file.write(after)


# Checking ------------------------------------------------------------------------------------------------------------


def faults(notebook: NotebookNode) -> list[str]:
    """Say what is wrong with the outputs of a notebook that claims to be executed."""
    found = []
    for number, cell in enumerate(code_cells(notebook), start=1):
        where = f"code cell {number}"
        if cell.execution_count != number:
            found.append(f"{where}: execution count {cell.execution_count}, not {number}; it was not run top to bottom")
        if tags(cell) & FORBIDDEN_TAGS or "NBVAL_SKIP" in cell.source:
            found.append(f"{where}: tagged so that nothing would test it")
        for output in cell.outputs:
            if output.output_type == "error" and "raises-exception" not in tags(cell):
                found.append(f"{where}: raised {output.ename}: {output.evalue}")
            if output.output_type == "stream" and output.name == "stderr":
                found.append(f"{where}: wrote to stderr: {output.text.strip()[:200]}")
            if output.output_type != "error" and re.search(r" at 0x[0-9a-f]{6,}", json.dumps(output)):
                found.append(f"{where}: its output holds a memory address, which changes with every run")
    return found


def differences(source: Path) -> list[str]:
    """Say how the twin of ``source`` is out of step with it; an empty list when it is not."""
    target = source.with_suffix(".ipynb")
    if not target.exists():
        return ["there is no .ipynb; run `make notebooks`"]
    text, stored = read_source(source), nbformat.read(target, as_version=4)
    found = faults(stored)
    if [cell.cell_type for cell in text.cells] != [cell.cell_type for cell in stored.cells]:
        return [*found, f"{len(text.cells)} cells in the text, {len(stored.cells)} in the notebook, or of other types"]
    for number, (cell, old) in enumerate(zip(text.cells, stored.cells, strict=True), start=1):
        for field in ("source", "metadata", "id"):
            if cell[field] != old.get(field):
                found.append(f"cell {number} ({cell.cell_type}): its {field} differs from the text")
    if not found:
        carry_outputs(text, stored)
        if as_text(text) != target.read_text(encoding="utf-8"):
            found.append("the file was not written by this tool (other metadata or formatting)")
    return found


def orphans(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the notebooks below ``paths`` that have no text source."""
    for path in paths:
        for notebook in sorted(path.rglob("*.ipynb")) if path.is_dir() else []:
            source = notebook.with_suffix(".md")
            if not hidden(notebook, path) and not (source.exists() and is_notebook(source)):
                yield notebook


def check(sources: Sequence[Path], paths: Sequence[Path]) -> int:
    """Print every disagreement between text and notebooks; return their number."""
    problems = [(source, what) for source in sources for what in differences(source)]
    problems += [(notebook, "no text source (.md with a kernelspec) beside it") for notebook in orphans(paths)]
    for path in paths:
        for page in sorted(path.rglob("*.md")) if path.is_dir() else []:
            if not hidden(page, path) and not is_notebook(page) and "{code-cell}" in page.read_text(encoding="utf-8"):
                problems.append((page, "holds code cells, but its front matter names no kernelspec"))
    for path, what in problems:
        print(f"{shown(path)}: {what}")
    return len(problems)


# The command ---------------------------------------------------------------------------------------------------------


def shown(path: Path) -> str:
    """Return a path as the user would type it."""
    return os.path.relpath(path)


def book_of(source: Path) -> Path:
    """Return the folder whose ``timings.json`` records a section: ``book`` above it, else its own folder."""
    return next((folder for folder in source.parents if folder.name == "book"), source.parent)


def refresh_all(sources: Sequence[Path], *, force: bool, jobs: int) -> int:
    """Refresh the notebooks, ``jobs`` at a time; return how many failed."""
    failed = 0
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        running = {source: pool.submit(refresh, source, force=force) for source in sources}
        for source, future in running.items():
            done, seconds = future.result()
            failed += done.startswith("FAILED")
            took = ""
            if seconds is not None:
                book = book_of(source)
                record_time(book, source.relative_to(book).with_suffix("").as_posix(), seconds)
                took = f" ({seconds:.1f} s)" + (f", OVER its {SECONDS_ALLOWED} s" if seconds > SECONDS_ALLOWED else "")
            print(f"{shown(source)}: {done}{took}", flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="sections or folders (default: the whole book)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a notebook is out of step")
    parser.add_argument("--force", action="store_true", help="execute even where the code did not change")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="notebooks executed at a time (default: 2)")
    options = parser.parse_args(arguments)
    paths = [path.resolve() for path in options.paths] or [ROOT / "book"]
    sources = find_sources(paths)
    if options.check:
        return min(1, check(sources, paths))
    failed = refresh_all(sources, force=options.force, jobs=options.jobs)
    # The faults of what was just written are reported at once, not first by the tests.
    return min(1, failed + check([s for s in sources if s.with_suffix(".ipynb").exists()], []))


if __name__ == "__main__":
    sys.exit(main())
