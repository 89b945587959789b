"""The package as a newcomer meets it: light to import, every module at hand, nothing from the extras needed."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import dpbook

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


def test_importing_the_package_loads_nothing_heavy():
    heavy = run(
        "import sys, dpbook; print([m for m in ('opendp', 'arviz', 'matplotlib', 'statsmodels') if m in sys.modules])"
    )
    assert heavy == "[]"


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
