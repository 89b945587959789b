"""The ways to install agree: pyproject.toml is the source, environment.yml and requirements.txt follow it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dpbook import __version__

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKED_EXTRAS = ("book", "test", "scale", "pymc", "sklearn", "formula", "dpsgd", "browser")
NOT_ON_CONDA = {"opendp"}  # pip installs it with the package itself


def conda_dependencies() -> tuple[dict[str, Requirement], list[str]]:
    """Return what environment.yml takes from conda, by name, and what it takes from pip."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    conda = [Requirement(entry) for entry in entries if isinstance(entry, str)]
    pip = [line for entry in entries if isinstance(entry, dict) for line in entry["pip"]]
    return {canonicalize_name(requirement.name): requirement for requirement in conda}, pip


def project_dependencies(*extras: str) -> dict[str, Requirement]:
    """Return what the package needs, by name, with some of its extras."""
    lines = [*PROJECT["dependencies"], *(line for e in extras for line in PROJECT["optional-dependencies"][e])]
    return {canonicalize_name(Requirement(line).name): Requirement(line) for line in lines}


def test_conda_gets_the_versions_that_the_package_asks_for() -> None:
    conda, _ = conda_dependencies()
    python, _ = conda.pop("python"), conda.pop("pip")
    assert str(python.specifier) == PROJECT["requires-python"]
    wanted = {name: r.specifier for name, r in project_dependencies().items() if name not in NOT_ON_CONDA}
    assert {name: r.specifier for name, r in conda.items()} == wanted


def test_conda_users_get_the_package_with_the_extras_of_the_book_and_its_tests() -> None:
    _, pip = conda_dependencies()
    assert pip == [f"-e .[{','.join(LOCKED_EXTRAS)}]"]
    assert set(LOCKED_EXTRAS) <= set(PROJECT["optional-dependencies"])


def test_the_lock_pins_everything_that_the_package_and_the_book_need() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins: dict[str, list[str]] = {}
    for line in filter(None, lines):
        pinned = Requirement(line)
        pins.setdefault(canonicalize_name(pinned.name), []).append(str(pinned.specifier).removeprefix("=="))
    for name, wanted in project_dependencies(*LOCKED_EXTRAS).items():
        assert name in pins, f"{name} is not in requirements.txt: run `make lock`"
        assert all(wanted.specifier.contains(version) for version in pins[name]), (
            f"{name}: {pins[name]} against {wanted}"
        )


def test_the_lock_names_no_host() -> None:
    assert not re.search(r"https?:|--index|--find", (ROOT / "requirements.txt").read_text(encoding="utf-8"))


def test_the_repository_has_its_address_in_one_place() -> None:
    address = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    naming = [
        path.relative_to(ROOT).as_posix()
        for pattern in ("*.yml", "*.md", "*.toml", "Makefile", "book/**/*.md", "dpbook/**/*.py", ".github/**/*.yml")
        for path in ROOT.glob(pattern)
        if address in path.read_text(encoding="utf-8")
    ]
    assert naming == ["_config.yml"]


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    def found(name: str, pattern: str) -> str:
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.M)
        assert match is not None, name
        return match.group(1)

    written = {
        "CITATION.cff": r"^version: (\S+)$",
        "README.md": r"textbook\.\* Version (\S+)\.$",
        "CHANGELOG.md": r"^## (\S+) \((?:unreleased|\d{4}-\d\d-\d\d)\)$",  # the newest comes first
    }
    assert {name: found(name, pattern) for name, pattern in written.items()} == dict.fromkeys(written, __version__)


def test_what_runs_before_a_commit_is_local_and_part_of_what_runs_after() -> None:
    """A hook downloads nothing, and refuses nothing that `make test` would accept."""
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [each["repo"] for each in repositories] == ["local"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(PY)", ".venv/bin/python")
    for hook in repositories[0]["hooks"]:
        assert hook["language"] == "system"
        command = hook["entry"].replace(" --force-exclude", "").split(" -q")[0]
        assert command in makefile, hook["id"]
