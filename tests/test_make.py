"""``make`` works where a checkout lies in a path with spaces, and after an environment was left half made.

Nothing is installed here: the environment's Python is a stand-in that says what it was asked for. A real installation
in such a path takes a minute and a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None or os.name == "nt", reason="make and a shell are needed")

# Writes what it was asked for; imports what is asked for as the real one does; installs nothing.
WORKING = """#!/bin/sh
echo "$*" >> "{log}"
case "$2" in
  pip) [ "$3" = --version ] && exit {pip}; exit 0;;
  ensurepip) exit {ensurepip};;
  uv) exit 0;;
esac
[ "$1" = -m ] && exit 0
case "$2" in
  *jupyter_book*) exit 0;;
  *version_info*) exit {old};;
esac
exec "{python}" "$@"
"""


@pytest.fixture
def checkout(tmp_path):
    place = tmp_path / "a path with spaces" / "dp book"
    place.mkdir(parents=True)
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, place)
    (place / "_build" / "html").mkdir(parents=True)
    return place


def stand_in(path, log, *, pip=0, ensurepip=0, old=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(WORKING.format(log=log, pip=pip, ensurepip=ensurepip, old=old, python=sys.executable))
    path.chmod(0o755)
    return path


def make(place, *arguments):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    found = subprocess.run(
        ["make", *arguments], cwd=place, capture_output=True, text=True, timeout=60, check=False, env=clean
    )
    return found.returncode, found.stdout + found.stderr


def asked(place):
    log = place / "log"
    return log.read_text().splitlines() if log.exists() else []


def test_the_book_is_built_in_a_path_with_spaces_by_python_itself_and_its_page_is_an_address(checkout):
    """The first line of a script in .venv/bin holds the path of its Python, and the system splits it at the space."""
    stand_in(checkout / ".venv/bin/python", checkout / "log")
    code, said = make(checkout, "book")
    assert code == 0, said
    assert any("jupyter_book.cli.main" in line and "build . --all" in line for line in asked(checkout))
    assert "a%20path%20with%20spaces/dp%20book/_build/html/index.html" in said
    assert ".venv/bin/jupyter" not in (ROOT / "Makefile").read_text()


def test_an_environment_without_pip_gets_one(checkout):
    stand_in(checkout / ".venv/bin/python", checkout / "log", pip=1)
    code, said = make(checkout, ".venv/.installed")
    assert code == 0, said
    lines = asked(checkout)
    assert "-m ensurepip" in lines
    assert lines.index("-m ensurepip") < next(i for i, line in enumerate(lines) if "pip install" in line)


def test_an_environment_that_can_get_no_pip_is_named_with_what_to_do(checkout):
    stand_in(checkout / ".venv/bin/python", checkout / "log", pip=1, ensurepip=1)
    code, said = make(checkout, "lint")
    assert code != 0
    assert "has no pip and cannot get one. Remove it: make clean ALL=1" in said
    assert not (checkout / ".venv/.installed").exists()
    assert make(checkout, "clean", "ALL=1")[0] == 0
    assert not (checkout / ".venv").exists()


def test_an_environment_of_an_old_python_is_named_with_what_to_do(checkout):
    stand_in(checkout / ".venv/bin/python", checkout / "log", old=1)
    code, said = make(checkout, "lint")
    assert code != 0
    assert "older than 3.11. Remove it: make clean ALL=1" in said


@pytest.mark.parametrize("state", ["no environment", "an empty one", "a dangling link", "complete, then broken"])
def test_an_environment_without_a_working_python_is_made_again(checkout, state):
    """The interpreter that makes it is itself in a path with a space."""
    python = stand_in(checkout / "other tools/python3", checkout / "log")
    home = checkout / ".venv/bin"
    if state != "no environment":
        home.mkdir(parents=True)
    if state in ("a dangling link", "complete, then broken"):
        (home / "python").symlink_to(checkout / "gone")
    if state == "complete, then broken":
        (checkout / ".venv/.installed").touch()
    made = f'rm -f .venv/bin/python && mkdir -p .venv/bin && cp "{python}" .venv/bin/python'
    python.write_text(python.read_text().replace('[ "$1" = -m ]', f'[ "$2" = venv ] && {made}\n[ "$1" = -m ]'))
    code, said = make(checkout, "lint", f"PYTHON={python}")
    assert code == 0, said
    lines = asked(checkout)
    assert "-m venv --clear .venv" in lines
    assert any(line.startswith("-m ruff check") for line in lines)


def test_an_interpreter_that_is_too_old_is_refused_by_name(checkout):
    python = stand_in(checkout / "other tools/python3", checkout / "log", old=1)
    code, said = make(checkout, "lint", f"PYTHON={python}")
    assert code != 0
    assert "needs Python 3.11 or newer" in said
    assert not (checkout / ".venv").exists()


def test_a_working_environment_is_left_alone(checkout):
    stand_in(checkout / ".venv/bin/python", checkout / "log")
    assert make(checkout, "lint")[0] == 0
    (checkout / "log").unlink()
    assert make(checkout, "lint")[0] == 0
    assert not any("pip" in line or "venv" in line for line in asked(checkout))


@pytest.mark.parametrize(("minutes", "ran"), [(None, ["test"]), ("14", ["test"]), ("60", ["test", "nightly"])])
def test_the_gate_runs_the_nightly_tests_where_there_is_time_and_says_where_there_is_not(tmp_path, minutes, ran):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    programs = tmp_path / "bin"
    for name in ("make", "chromium"):
        programs.mkdir(exist_ok=True)
        (programs / name).write_text(f'#!/bin/sh\necho "$1 $DPBOOK_BROWSER" >> "{tmp_path}/log-{name}"\n')
        (programs / name).chmod(0o755)
    surroundings = {name: value for name, value in os.environ.items() if name != "DPBOOK_MINUTES"}
    surroundings |= {"PATH": f"{programs}:{os.environ['PATH']}"} | ({"DPBOOK_MINUTES": minutes} if minutes else {})
    late = "SECONDS=1200; source .ci/run"  # as if twenty minutes had gone by
    done = subprocess.run(
        ["bash", "-c", late], cwd=tmp_path, capture_output=True, text=True, check=False, env=surroundings
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log-make").read_text().splitlines() == [f"{target} 1" for target in ran]
    assert ("make nightly was not run" in done.stdout) == ("nightly" not in ran)
