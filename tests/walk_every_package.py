"""A seeded release and an inference of every package, in one process: run by ``test_package.py``.

Any interpreter can run it that has the dependencies. ``--refuse NAME`` refuses every import of a package first.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


class Refuse:
    """A finder that refuses a package."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] == self.name:
            raise ImportError(f"{self.name} is refused")


def import_all() -> None:
    import dpbook

    for module in pkgutil.walk_packages(dpbook.__path__, "dpbook."):
        if "__main__" not in module.name:
            importlib.import_module(module.name)


def walk() -> None:
    from dpbook import aggregate, expfam, graphical, regression
    from dpbook.graphical import hmm

    rng = np.random.default_rng(1)
    binomial = expfam.release([1] * 30 + [0] * 70, expfam.Binomial(), epsilon=1.0, rng=rng)
    expfam.infer(binomial, draws=100, rng=rng).summary()
    mean = expfam.release_mean(rng.random(100), bounds=(0, 1), epsilon=1.0, rng=rng)
    assert "posterior" in str(expfam.infer(mean, draws=100, rng=rng).to_arviz())
    x = rng.normal(0, 0.3, 200)
    line = regression.release(x, 0.5 * x, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=5.0, rng=rng)
    regression.infer([line, line], draws=80, rng=rng, keep="summary")[0].summary()
    rows = np.column_stack([rng.normal(size=2000), rng.normal(size=2000)])
    parts = {"posterior": aggregate.ConjugateRegression(), "partitions": 50, "epsilon": 2.0, "rng": rng}
    aggregate.infer(aggregate.release_probability(rows, 0.0, **parts)).summary()
    table = np.array([[30, 10], [10, 50]])
    graphical.fit(graphical.release(table, {"a": 2, "b": 2}, [("a", "b")], epsilon=1.0, rng=rng))
    counts = hmm.release_counts(np.array([[[45, 5]] * 3 + [[10, 40]] * 3]), epsilon=1.0, rng=rng)
    hmm.infer(counts, draws=80, rng=rng).summary()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--refuse", help="a package whose imports are refused")
    refused = parser.parse_args().refuse
    warnings.simplefilter("ignore", UserWarning)
    if refused:
        sys.meta_path.insert(0, Refuse(refused))
    import_all()
    walk()
    if refused:
        from dpbook import expfam

        try:
            expfam.release([1, 0], expfam.Binomial(), epsilon=1.0)  # real noise
        except ImportError as error:
            print(error)
    print("walked")


if __name__ == "__main__":
    main()
