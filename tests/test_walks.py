"""One walk through each package, as a newcomer would take it: release, to_json, infer, summary.

The files that are entered on the way are those of the map in ``CONTRIBUTING.md``: the curator's, then the analyst's.
What ``tests/test_wall.py`` reads in the imports is seen here as it runs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpbook import PrivacyBudget, Release, Schema, aggregate, expfam, graphical, models, regression
from dpbook.schema import Category, Number

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dpbook"
CURATOR = {"records.py", "noise.py", "mechanisms.py", "budget.py", "sensitivity.py"}
ANALYST = {"posterior.py", "sampling.py", "latent_noise.py", "diagnostics.py"}


@dataclass(frozen=True)
class Walk:
    """A release of made-up data, and what an analyst does with its text."""

    row: str  # of the map: a package, and which way where there are two
    release: Callable[..., Release]
    infer: Callable[[Release], Any]
    summary: Callable[[Any], Any] = lambda found: found.summary()

    @property
    def package(self) -> str:
        return self.row.split(",")[0]


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


X = rng().uniform(0, 10, size=(400, 1))
Y = 2 * X[:, 0] + rng().normal(size=400)
TWO = pd.DataFrame({"a": X[:, 0] > 4, "b": Y > 10}).astype(int)
PAIRS = np.column_stack([X, Y])
EVENTS = rng().poisson(5, size=(3, 6, 2))
REGRESSION = aggregate.ConjugateRegression(prior=aggregate.Flat())
LABELLED = pd.DataFrame({"g": np.where(X[:, 0] > 4, "b", "a"), "x": X[:, 0], "y": Y})
SCHEMA = Schema({"g": Category(["a", "b"]), "x": Number(0, 10), "y": Number(-5, 25)})
SCALED = models.Model({"most": models.Uniform(5, 15)}, lambda parameters, uniforms: parameters["most"] * uniforms[0])
PRIOR = regression.NormalInverseGamma([0.0, 0.0], 0.01, 2.0, 2.0)
WALKS = [
    Walk(
        "aggregate",
        lambda **given: aggregate.release_probability(PAIRS, 2.0, posterior=REGRESSION, partitions=20, **given),
        lambda release: aggregate.infer(release),
    ),
    Walk(
        "expfam",
        lambda **given: expfam.release(TWO["a"], expfam.Binomial(), **given),
        lambda release: expfam.infer(release, expfam.Beta(1, 1), rng=rng()),
    ),
    Walk(
        "expfam, no family",
        lambda **given: expfam.release_mean(X[:, 0], (0, 20), **given),
        lambda release: expfam.infer(release, draws=400, rng=rng()),
    ),
    Walk(
        "regression",
        lambda **given: regression.release(X, Y, x_bounds=[(0, 10)], y_bounds=(-5, 25), **given),
        lambda release: regression.infer(release, draws=400, rng=rng()),
    ),
    Walk(
        "regression, a prior",
        lambda **given: regression.release(X, Y, x_bounds=[(0, 10)], y_bounds=(-5, 25), **given),
        lambda release: regression.infer(release, PRIOR, draws=400, rng=rng()),
    ),
    Walk(
        "regression, a schema",
        lambda **given: regression.release(LABELLED, "y", schema=SCHEMA, **given),
        lambda release: regression.infer(release, draws=80, chains=4, rng=rng()),
    ),
    Walk(
        "graphical",
        lambda **given: graphical.release(TWO, {"a": 2, "b": 2}, [("a", "b")], **given),
        graphical.fit,
        lambda field: field.report,  # a point estimate: how the fit went
    ),
    Walk(
        "graphical/hmm",
        lambda **given: graphical.hmm.release_counts(EVENTS, **given),
        lambda release: graphical.hmm.infer(release, states=2, draws=80, chains=2, rng=rng()),
    ),
    Walk(
        "models",
        lambda **given: models.release(X[:, 0], models.Powers("x"), schema=Schema({"x": Number(0, 10)}), **given),
        lambda release: models.infer(release, SCALED, draws=400, rng=rng()),
    ),
]
pytestmark = pytest.mark.filterwarnings("ignore::dpbook.doubts.Doubt")  # walks are short
EVERY = pytest.mark.parametrize("walk", WALKS, ids=[walk.row for walk in WALKS])


def entered(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what a call returns, and the files of the package whose functions it entered, in order, each once."""
    files: dict[str, None] = {}
    start = f"{PACKAGE}{os.sep}"

    def notice(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(start) and code.co_name != "<module>":
            files[Path(code.co_filename).relative_to(PACKAGE).as_posix()] = None

    sys.setprofile(notice)
    try:
        return call(), list(files)
    finally:
        sys.setprofile(None)


@cache
def walked(walk: Walk) -> tuple[list[str], list[str]]:
    """Return the files that are entered before the text leaves the curator, and those that are entered after it."""
    budget = PrivacyBudget(2.0)
    text, before = entered(lambda: walk.release(epsilon=2.0, rng=rng(), budget=budget).to_json())
    found, after = entered(lambda: walk.summary(walk.infer(Release.from_json(text))))
    assert found is not None
    assert budget.remaining == 0
    return before, after


def is_curators(file: str) -> bool:
    return file in CURATOR or file.endswith("releases.py")  # shape_releases.py too


def is_analysts(file: str) -> bool:
    return file in ANALYST or file.endswith("inference.py")


@EVERY
def test_each_side_is_entered_once_the_curators_first(walk: Walk) -> None:
    before, after = walked(walk)
    assert any(map(is_curators, (file for file in before if file.startswith(walk.package))))
    assert f"{walk.package}/inference.py" in after
    assert [file for file in before if is_analysts(file)] == []
    assert [file for file in after if is_curators(file)] == []


def mapped() -> dict[str, list[list[str]]]:
    """Return the walks of ``CONTRIBUTING.md``, by row: files of the curator, of both sides, of the analyst."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `dpbook/(\S+)`(.*?) \|(.*)\|(.*)\|(.*)\|$", page, re.M)
    return {name + which: [re.findall(r"`(\w+\.py)`", column) for column in columns] for name, which, *columns in rows}


@EVERY
def test_the_map_for_newcomers_shows_the_files_in_the_order_of_the_walk(walk: Walk) -> None:
    """Of the package itself; what they take from the core is the same for all. Both sides share the model alone."""
    paths = [[PurePosixPath(file) for file in files] for files in walked(walk)]
    before, after = ([file.name for file in files if str(file.parent) == walk.package] for files in paths)
    model = [file for file in before if file in after]
    assert [file for file in model if is_curators(file) or is_analysts(file)] == []
    once = [file for file in before if file not in model], model, [file for file in after if file not in model]
    assert mapped()[walk.row] == list(once)


def test_every_row_of_the_map_is_walked_and_every_package() -> None:
    assert list(mapped()) == [walk.row for walk in WALKS]
    releasing = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("releases.py")}
    assert {walk.package for walk in WALKS} == releasing


def test_the_walk_sees_a_function_that_is_entered_on_the_wrong_side() -> None:
    release = WALKS[1].release(epsilon=2.0, rng=rng())
    _, files = entered(lambda: [release.report(unit="one respondent"), WALKS[1].release(epsilon=1.0, rng=rng())])
    assert any(map(is_curators, files))
    assert not any(map(is_analysts, files))
    assert any(map(is_analysts, entered(lambda: WALKS[1].infer(release))[1]))
