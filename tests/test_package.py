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
    code = """
import sys, warnings
import numpy as np

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "opendp":
            raise ImportError(f"{name} is refused")

sys.meta_path.insert(0, Refuse())
warnings.simplefilter("ignore")
import importlib
for name in %r:
    importlib.import_module(name)
from dpbook import aggregate, expfam, graphical, mechanisms, regression, theory
from dpbook.graphical import hmm

rng = np.random.default_rng(1)
binomial = expfam.release([1] * 30 + [0] * 70, expfam.Binomial(), epsilon=1.0, rng=rng)
expfam.infer(binomial, draws=100, rng=rng).summary()
expfam.infer(expfam.release_mean(rng.random(100), bounds=(0, 1), epsilon=1.0, rng=rng), draws=100, rng=rng).summary()
x = rng.normal(0, 0.3, 200)
line = regression.release(x, 0.5 * x, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=5.0, rng=rng)
regression.infer(line, draws=80, rng=rng).summary()
rows = np.column_stack([rng.normal(size=2000), rng.normal(size=2000)])
parts = aggregate.release_probability(
    rows, 0.0, posterior=aggregate.ConjugateRegression(), partitions=50, epsilon=2.0, rng=rng
)
aggregate.infer(parts).summary()
graphical.fit(graphical.release(np.array([[30, 10], [10, 50]]), {"a": 2, "b": 2}, [("a", "b")], epsilon=1.0, rng=rng))
counts = hmm.release_counts(np.array([[[45, 5]] * 3 + [[10, 40]] * 3]), epsilon=1.0, rng=rng)
hmm.infer(counts, draws=80, rng=rng).summary()
try:
    expfam.release([1, 0], expfam.Binomial(), epsilon=1.0)
except ImportError as error:
    print(error)
"""
    assert "opendp" in run(code % ([name for name in MODULES if "__main__" not in name],))


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
