"""The study behind *Groups, labels and formulas*: earnings by schooling, read by cell and as a box of numbers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpbook import Release, Schema, regression
from dpbook.datasets import load_cps_earnings
from dpbook.doubts import Doubt
from dpbook.schema import Category, Number
from dpbook.studies import Study, cell_rng

Array = NDArray[np.float64]

SEED = 44
DEGREES = ("high school", "none", "some college", "bachelor", "graduate")  # the first is the reference
YEARS = (12, 13, 16, 17)  # of education from which on one has left school, been to college, a bachelor's, and more
SCHEMA = Schema(
    {
        "degree": Category(DEGREES),
        "gender": Category(("m", "f")),
        "age": Number(16, 65),
        "earnings": Number(1, 100),
    }
)
FORMULA = "np.log(earnings) ~ C(degree) + C(gender) + age"
NAMES = ("(intercept)", *(f"degree[{each}]" for each in DEGREES[1:]), "gender[f]", "age")


def workers() -> pd.DataFrame:
    """Return 61,395 workers with their degree, by years of education."""
    table = load_cps_earnings()
    order = np.array(["none", "high school", "some college", "bachelor", "graduate"])
    degree = order[np.searchsorted(YEARS, table["education"], side="right")]
    return table.assign(degree=pd.Categorical(degree, list(DEGREES)))[["degree", "gender", "age", "earnings"]]


def as_numbers(table: pd.DataFrame) -> tuple[Array, Array]:
    """Return dummies, woman and age as columns of numbers, and the logarithm of earnings."""
    dummies = [table["degree"] == each for each in DEGREES[1:]]
    columns = [*dummies, table["gender"] == "f", table["age"]]
    return np.stack([np.asarray(each, dtype=np.float64) for each in columns], axis=1), np.log(table["earnings"])


BOX: dict[str, Any] = {"x_bounds": [(0, 1)] * 5 + [(16, 65)], "y_bounds": (0.0, float(np.log(100)))}


def released(reading: str, table: pd.DataFrame, epsilon: float, rng: np.random.Generator) -> Release:
    """Release the regression by cell, or with every dummy as a number of its own."""
    if reading == "by cell":
        return regression.release(table, formula=FORMULA, schema=SCHEMA, epsilon=epsilon, rng=rng)
    x, y = as_numbers(table)
    return regression.release(x, y, **BOX, epsilon=epsilon, rng=rng)


def labels(n: int, epsilon: float, reading: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Draw workers with replacement, release, infer; one row per coefficient: coverage of the whole, and width."""
    everyone = workers()
    x, y = as_numbers(everyone)
    target = np.linalg.lstsq(np.column_stack([np.ones(len(y)), x]), y, rcond=None)[0]
    draws, noise = cell_rng(seed, "labels", n), cell_rng(seed, "labels", n, epsilon, reading)
    parts = [everyone.iloc[draws.integers(len(everyone), size=n)] for _ in range(trials)]
    made = [released(reading, part, epsilon, noise) for part in parts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Doubt)
        found = regression.infer(made, method="fixed-design", draws=400, warm_up=300, rng=noise)
    ends = np.stack([each.interval(0.95, "theta") for each in found])
    low, high = ends[..., 0], ends[..., 1]
    return pd.DataFrame(
        {
            "reading": reading,
            "n": n,
            "epsilon": epsilon,
            "coefficient": NAMES,
            "target": target.round(4),
            "coverage": ((low <= target) & (target <= high)).mean(axis=0).round(4),
            "width": np.median(high - low, axis=0).round(4),
        }
    )


STUDIES = {"labels": Study(labels, [(3000, 1.0, "by cell"), (3000, 1.0, "box")], 60, SEED)}
