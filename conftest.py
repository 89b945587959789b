"""What every test run of this repository shares, wherever pytest is started: the kernels' surroundings, and figures.

nbval re-executes each notebook and compares its stored outputs, but leaves images out. With DPBOOK_COMPARE_IMAGES=1
figures are compared byte by byte too; that holds on one machine with the pinned packages, not across processors, so it
is off by default and on in `.ci/run`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

# Property tests draw the same examples in every run, and a busy machine fails none of them for slowness.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Give the kernels that nbval starts the surroundings in which the notebooks were written."""
    if config.getoption("nbval", default=False):
        from notebooks import KERNEL_ENVIRONMENT

        os.environ.update(KERNEL_ENVIRONMENT)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let nbval compare figures where it was asked to."""
    if os.environ.get("DPBOOK_COMPARE_IMAGES") != "1":
        return
    for item in items:
        notebook: Any = item.parent
        if hasattr(notebook, "skip_compare"):
            notebook.skip_compare = tuple(kind for kind in notebook.skip_compare if not kind.startswith("image/"))
