"""The package as a newcomer meets it: light to import, every module at hand, nothing from the extras needed."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dpbook

WALK = str(Path(__file__).parent / "walk_every_package.py")
MODULES = sorted(m.name for m in pkgutil.walk_packages(dpbook.__path__, "dpbook."))


def run(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_every_module_imports_without_the_extras():
    """The packages that only the extras install are hidden from the import system."""
    extras = [
        "statsmodels",
        "dask",
        "distributed",
        "pyarrow",
        "myst_nb",
        "jupytext",
        "sklearn",
        "formulaic",
        "pymc",
        "mpmath",
        "nbclient",
    ]
    run(
        "import importlib, sys\n"
        f"for hidden in {extras!r}: sys.modules[hidden] = None\n"
        f"for name in {MODULES!r}: importlib.import_module(name)\n"
    )


HEAVY = ("opendp", "arviz", "matplotlib", "statsmodels", "pandas", "pyarrow", "scipy.stats", "scipy.optimize", "joblib")


def test_importing_the_package_loads_nothing_heavy():
    """With these it takes .7 s of processor time, without them .11; what is loaded does not depend on the machine."""
    heavy = run(f"import sys, dpbook; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert heavy == "[]"


def test_a_package_of_a_chapter_loads_neither_pandas_nor_statistics():
    heavy = run(
        "import sys, dpbook.expfam, dpbook.regression, dpbook.graphical, dpbook.theory, dpbook.diagnostics\n"
        "print([m for m in ('opendp', 'arviz', 'matplotlib', 'pandas', 'scipy.stats') if m in sys.modules])"
    )
    assert heavy == "[]"


def test_convergence_is_judged_without_arviz():
    code = (
        "import sys, numpy as np; sys.modules['arviz'] = None; from dpbook import Posterior\n"
        "posterior = Posterior({'theta': np.random.default_rng(1).normal(size=(4, 500, 2))})\n"
        "posterior.summary(); print(posterior.rhat('theta').shape, posterior.ess('theta', 'tail').shape)"
    )
    assert run(code) == "(2,) (2,)"


def test_everything_but_real_noise_runs_without_opendp():
    """A finder refuses every import of OpenDP; each package then makes a seeded release and infers from it."""
    told = subprocess.run([sys.executable, WALK, "--refuse", "opendp"], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert "opendp is refused" in told.stdout


NEWER = ("python3.12", "python3.13", "python3.14", "python3.15")


@pytest.mark.parametrize("name", NEWER)
def test_every_package_runs_under_a_newer_interpreter(name):
    """Where the machine has one with the dependencies; ``DPBOOK_PYTHONS`` may list others, separated by colons."""
    listed = [path for path in os.environ.get("DPBOOK_PYTHONS", "").split(":") if path]
    mine = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [path for path in (*listed, shutil.which(name) or "") if path and _version_of(path) == name != mine]
    needed = "import numpy, scipy, pandas, arviz, matplotlib, tqdm, joblib"
    for path in candidates:
        if not subprocess.run([path, "-c", needed], capture_output=True, check=False).returncode:
            break
    else:
        pytest.skip(f"no other {name} with the dependencies on this machine")
    told = subprocess.run(
        [path, "-W", "error::DeprecationWarning:dpbook", WALK], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert "walked" in told.stdout


def _version_of(path: str) -> str:
    code = "import sys; print('python%d.%d' % sys.version_info[:2])"
    return subprocess.run([path, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


@pytest.mark.parametrize("name", sorted(m.removeprefix("dpbook.") for m in MODULES if m.count(".") == 1))
def test_every_public_module_is_an_attribute_of_the_package(name):
    if not name.startswith("_"):
        assert getattr(dpbook, name).__name__ == f"dpbook.{name}"
        assert name in dir(dpbook)


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        dpbook.nonsense  # noqa: B018


def test_every_module_says_what_it_offers():
    import importlib

    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__doc__, name
        if not name.rsplit(".", 1)[-1].startswith("_"):
            assert hasattr(module, "__all__"), name
            assert all(hasattr(module, public) for public in module.__all__), name


def test_a_public_name_is_that_of_one_class():
    found = {}
    for module in map(importlib.import_module, (name for name in MODULES if "._" not in name)):
        for name in module.__all__:
            if inspect.isclass(thing := getattr(module, name)):
                found.setdefault(name, set()).add(thing)
    assert {name: classes for name, classes in found.items() if len(classes) > 1} == {}
    assert {"Posterior", "NormalInverseGamma", "Preview"} <= set(found)
