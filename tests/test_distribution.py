"""What is handed out: the wheel is the library and nothing else, the source distribution can run its own tests."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[1]
BY_SUFFIX = {".py", ".csv", ".typed"}  # what the library consists of

pytestmark = pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="uv builds the distributions")

IMPORT_ALL = """
import importlib, pkgutil, sys
import dpbook
for module in pkgutil.walk_packages(dpbook.__path__, "dpbook."):
    importlib.import_module(module.name)
print(dpbook.__file__)
"""
CLIENT = """
import numpy as np
from dpbook import PrivacyBudget, expfam, mechanisms, regression

release = expfam.release(np.array([0, 1, 1]), expfam.Binomial(), epsilon=1.0, budget=PrivacyBudget(1.0))
reveal_type(release)
reveal_type(release.epsilon)
reveal_type(mechanisms.laplace(3.0, sensitivity=1, epsilon=1.0))
reveal_type(expfam.infer(release, expfam.Beta(1, 1)))
reveal_type(expfam.infer([release, release], expfam.Beta(1, 1)))
PrivacyBudget(epsilon="one")
regression.release([[1.0]], [1.0], espilon=1.0)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command without this checkout on its path."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean | environment, capture_output=True, text=True, check=False
    )


def succeed(*command: str | Path, cwd: Path, **environment: str) -> str:
    result = run(*command, cwd=cwd, **environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@dataclass(frozen=True)
class Built:
    """The two files, and an environment with the wheel."""

    wheel: Path
    sdist: Path
    folder: Path
    python: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the source distribution, the wheel from it, and an environment with the wheel and what it asks for alone.

    The versions are those of the lock, which the checkout's own environment was made from: they are taken from where
    uv keeps what it once downloaded, and from the network only where something is missing there.
    """
    folder = tmp_path_factory.mktemp("built")
    uv = (sys.executable, "-m", "uv")
    succeed(*uv, "build", "--quiet", "--out-dir", folder, ROOT, cwd=folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    home = folder / "environment"
    succeed(*uv, "venv", "--quiet", "--python", sys.executable, home, cwd=folder)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = (*uv, "pip", "install", "--quiet", "--python", python, "--constraints", ROOT / "requirements.txt", wheel)
    if run(*install, "--offline", cwd=folder).returncode:
        succeed(*install, cwd=folder)
    return Built(wheel, sdist, folder, python)


def tracked(under: str = "") -> set[str]:
    """Return the files of the repository; skip where there is none, as in an unpacked source distribution."""
    listed = run("git", "ls-files", "-z", "--", under or ".", cwd=ROOT)
    if listed.returncode or not (ROOT / ".git").exists():
        pytest.skip("not a checkout of the repository")
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def names_in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_the_library_its_data_sets_and_its_types(built: Built) -> None:
    library = {name for name in names_in_wheel(built.wheel) if ".dist-info/" not in name}
    assert {PurePosixPath(name).parts[0] for name in library} == {"dpbook"}
    assert {PurePosixPath(name).suffix for name in library} == BY_SUFFIX
    assert "dpbook/py.typed" in library
    assert {"dpbook/datasets/adult.csv", "dpbook/datasets/cirrhosis.csv"} <= library
    assert {str(PurePosixPath(name).parent) for name in library if name.endswith(".csv")} == {"dpbook/datasets"}
    of_the_book = r"(^|/)(book|experiments|results|study\w*|tests?|conftest|test_\w+)(\.py|/|$)"
    assert not [name for name in library if re.search(of_the_book, name)]


def test_the_wheel_holds_every_file_of_the_package_and_the_licences(built: Built) -> None:
    names = names_in_wheel(built.wheel)
    assert {name for name in names if name.startswith("dpbook/")} == tracked("dpbook")
    assert {"LICENSE", "LICENSE-text"} <= {PurePosixPath(name).name for name in names}


def test_the_source_distribution_is_the_repository(built: Built) -> None:
    """Nothing less, since tests read the book and the files around it; nothing more, such as what lies about here."""
    with tarfile.open(built.sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert names - {"PKG-INFO"} == tracked()


def test_the_source_distribution_runs_its_tests(built: Built, tmp_path: Path) -> None:
    """All are collected, which imports them and reads what they need; three files that read around them are run."""
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    pytest_here = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    succeed(*pytest_here, "--collect-only", "tests", cwd=unpacked, PYTHONPATH=str(unpacked))
    some = ("tests/test_datasets.py", "tests/test_readme.py", "tests/book/test_environments_agree.py")
    passed = succeed(*pytest_here, *some, cwd=unpacked, PYTHONPATH=str(unpacked))
    assert re.search(r"\d+ passed", passed)


def test_the_installed_wheel_imports_every_module(built: Built) -> None:
    """In an environment that has none of the extras."""
    where = Path(succeed(built.python, "-c", IMPORT_ALL, cwd=built.folder).strip())
    assert where.is_relative_to(built.folder)
    assert run(built.python, "-c", "import sklearn", cwd=built.folder).returncode != 0


def test_the_installed_wheel_runs_the_code_of_the_readme(built: Built) -> None:
    block = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert block is not None
    result = run(built.python, "-c", block.group(1), cwd=built.folder)
    assert result.returncode == 0, result.stderr
    assert "theta" in result.stdout
    assert "ess_tail" in result.stdout
    assert "**Guarantee.**" in result.stdout


def test_the_installed_wheel_gives_its_types_to_a_client(built: Built) -> None:
    """Without ``py.typed`` a checker would take everything for Any, and a mistake for none."""
    pytest.importorskip("mypy")
    client = built.folder / "client.py"
    client.write_text(CLIENT, encoding="utf-8")
    options = ("--python-executable", built.python, "--cache-dir", built.folder / "cache", "--config-file", "")
    found = run(sys.executable, "-m", "mypy", *options, client, cwd=built.folder).stdout
    revealed = [line.split('"')[1].replace("builtins.", "") for line in found.splitlines() if "Revealed type" in line]
    assert revealed == [
        "dpbook.release.Release",
        "float",
        "float",
        "dpbook.posterior.Posterior",
        "list[dpbook.posterior.Posterior]",
    ], found
    assert 'Argument "epsilon" to "PrivacyBudget" has incompatible type "str"' in found, found
    assert 'Unexpected keyword argument "espilon" for "release"' in found, found
    assert len([line for line in found.splitlines() if "error:" in line]) == 2 + found.count("Missing named argument")
