"""Execute a notebook with the Python that runs this file, in the notebook's own folder, and write what it printed.

It is run by the environment that a student has, which holds nothing of this repository but the wheel.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

# A reader may skip folded code. So a generator that it draws from is set back: had shown code drawn from it
# afterwards, it would print other numbers than are stored.
BEFORE = """
_states = [(g, g.bit_generator.state) for g in list(globals().values()) if hasattr(g, "bit_generator")]
"""
AFTER = """
for _generator, _state in _states:
    _generator.bit_generator.state = _state
"""


def probe(source: str) -> nbformat.NotebookNode:
    """Return a cell of this run alone."""
    cell: nbformat.NotebookNode = nbformat.v4.new_code_cell(source, metadata={"probe": True})
    return cell


def execute(source: Path, target: Path) -> None:
    """Run all cells of one notebook and write it with its outputs."""
    notebook = nbformat.read(source, as_version=4)
    cells = []
    for cell in notebook.cells:
        folds = cell.metadata.get("jupyter", {}).get("source_hidden", False)
        cells += [probe(BEFORE), cell, probe(AFTER)] if folds else [cell]
    notebook.cells = cells
    client = NotebookClient(
        notebook,
        timeout=300,
        startup_timeout=180,
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=40"],
        resources={"metadata": {"path": str(source.parent)}},
    )
    client.execute(env=dict(os.environ))
    notebook.cells = [cell for cell in notebook.cells if "probe" not in cell.metadata]
    nbformat.write(notebook, target)


if __name__ == "__main__":
    execute(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
