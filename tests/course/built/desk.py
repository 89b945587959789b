"""A student's desk: the course edition, and programs that see nothing of this checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from notebooks import KERNEL_ENVIRONMENT, ROOT

EDITION = Path(os.environ.get("DPBOOK_COURSE", ROOT / "_build" / "course"))
HERE = Path(__file__).resolve().parent


def clean_environment() -> dict[str, str]:
    """Return the variables of a process that does not see this checkout."""
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "JUPYTER_PATH")
    return {name: value for name, value in os.environ.items() if name not in left_out} | KERNEL_ENVIRONMENT


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a student's place."""
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False
    )
