"""A student's desk: the course edition, and programs that see nothing of this checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
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


@pytest.fixture(scope="session")
def edition() -> Path:
    """Return the folder that ``make course`` wrote."""
    if not (EDITION / "dpbook-student.zip").exists():
        pytest.fail(f"there is no course edition in {EDITION}: run `make course`")
    return EDITION


@pytest.fixture(scope="session")
def python(edition: Path) -> Path:
    """Return the Python of an environment with the edition's wheel and its extra; made once for one wheel and lock."""
    (wheel,) = (edition / "student").glob("*.whl")
    constraints = ROOT / "requirements.txt"
    made_of = wheel.read_bytes() + constraints.read_bytes() + sys.version.encode()
    home = edition.parent / "course-environment"
    stamp, name = home / "made-of", hashlib.sha256(made_of).hexdigest()
    found = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    uv = (sys.executable, "-m", "uv")
    home.parent.mkdir(exist_ok=True)
    with open(home.parent / "course-environment.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the workers of one run share it
        if not stamp.exists() or stamp.read_text() != name:
            made = run(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, home, cwd=edition)
            assert made.returncode == 0, made.stderr
            what = f"dpbook[course] @ {wheel.as_uri()}"
            how = ("--quiet", "--compile-bytecode", "--constraint", constraints, "--python", found)
            installed = run(*uv, "pip", "install", *how, what, cwd=edition)
            assert installed.returncode == 0, installed.stderr
            stamp.write_text(name)
    return found
