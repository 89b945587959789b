"""The data, questions and public bounds of the gauntlet, and the draw of its cells.

Every column has two pairs of public bounds. *Right* ones are the 0.5 % and 99.5 % quantiles of the file, rounded
outward to one digit of their distance; *tight* ones cut off 10 to 20 % of the records, less where a column has few
values. They were computed once and stand here as constants: a curator would know them without the data. The settings
x2 and x5 are the right ones, wider about their middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpbook import datasets
from dpbook.studies import cell_rng

Array = NDArray[np.float64]
Bounds = tuple[float, float]

DRAWN_WITH = 20260  # seed of the draw of the cells
SETTINGS = ("tight", "right", "x2", "x5")
EPSILONS = (0.3, 1.0, 3.0, 10.0)
SIZES = (60, 200, 600, 2_000, 6_000, 20_000)
WIDER = {"right": 1.0, "x2": 2.0, "x5": 5.0}

# file, column: right bounds, tight bounds
BOUNDS: dict[tuple[str, str], tuple[Bounds, Bounds]] = {
    ("engel", "income"): ((0, 3000), (500, 1800)),
    ("engel", "foodexp"): ((0, 2000), (330, 1010)),
    ("fair", "affairs"): ((0, 20), (0, 1.5)),
    ("fair", "rate_marriage"): ((1, 5), (3, 5)),
    ("fair", "yrs_married"): ((0, 30), (2, 17)),
    ("randhie", "mdvis"): ((0, 30), (0, 6)),
    ("randhie", "lncoins"): ((0, 5), (0, 4.5)),
    ("randhie", "disea"): ((0, 40), (3, 21)),
    ("diabetes", "target"): ((0, 400), (60, 280)),
    ("diabetes", "bmi"): ((10, 40), (21, 33)),
    ("diabetes", "bp"): ((60, 130), (76, 115)),
    ("star98", "share_above"): ((0, 90), (18, 74)),
    ("star98", "LOWINC"): ((0, 90), (12, 73)),
    ("ccard", "AVGEXP"): ((0, 2000), (40, 620)),
    ("ccard", "INCOME"): ((1, 10), (1.9, 5.9)),
    ("ccard", "OWNRENT"): ((0, 1), (0, 1)),
    ("cps", "earnings"): ((0, 60), (7, 35)),
    ("cps", "education"): ((0, 20), (12, 18)),
    ("cps", "age"): ((20, 70), (25, 57)),
    ("cirrhosis", "cirrhosis_death_rate"): ((20, 130), (34, 98)),
    ("cirrhosis", "wine_per_capita"): ((0, 40), (3, 20)),
    ("opportunity", "kid_rank"): ((0, 1), (0.21, 0.79)),
    ("opportunity", "parent_rank"): ((0, 1), (0.08, 0.92)),
    ("anes96", "selfLR"): ((1, 7), (2, 6)),
    ("anes96", "age"): ((20, 90), (26, 74)),
    ("anes96", "educ"): ((1, 7), (3, 6)),
    ("anes96", "popul"): ((0, 8000), (0, 290)),
    ("anes96", "vote"): ((0, 1), (0, 1)),
    ("breast_cancer", "mean area"): ((0, 3000), (300, 1250)),
    ("breast_cancer", "mean radius"): ((0, 30), (10, 20)),
    ("wine", "color_intensity"): ((0, 20), (2.4, 9)),
    ("wine", "alcohol"): ((11, 15), (11.8, 14.2)),
    ("grunfeld", "invest"): ((0, 2000), (0, 320)),
    ("grunfeld", "value"): ((0, 6000), (60, 3300)),
    ("grunfeld", "capital"): ((0, 2000), (5, 670)),
    ("modechoice", "gc"): ((0, 300), (50, 190)),
    ("modechoice", "hinc"): ((0, 70), (6, 60)),
    ("iraq", "direct_fire"): ((0, 900), (0, 95)),
    ("heart", "survival"): ((0, 2000), (0, 870)),
}


class Problem(NamedTuple):
    """A question to a file: the response, or the only column, and the covariates of a regression."""

    file: str
    response: str
    covariates: tuple[str, ...] = ()
    family: str = ""  # of an exponential family
    asked: str = ""  # of sample-and-aggregate: probability or quantile

    @property
    def label(self) -> str:
        """What the problem is called in tables."""
        on = f" on {' + '.join(self.covariates)}" if self.covariates else ""
        return f"{self.file}: {self.response}{on}{self.family and f', {self.family}'}{self.asked and f', {self.asked}'}"


class Cell(NamedTuple):
    """One row of the gauntlet before it is run."""

    kind: str
    problem: Problem
    bounds: str
    epsilon: float
    n: int


PROBLEMS: dict[str, tuple[Problem, ...]] = {
    "regression": (
        Problem("engel", "foodexp", ("income",)),
        Problem("fair", "affairs", ("rate_marriage", "yrs_married")),
        Problem("randhie", "mdvis", ("lncoins", "disea")),
        Problem("diabetes", "target", ("bmi", "bp")),
        Problem("star98", "share_above", ("LOWINC",)),
        Problem("ccard", "AVGEXP", ("INCOME", "OWNRENT")),
        Problem("cps", "earnings", ("education", "age")),
        Problem("cirrhosis", "cirrhosis_death_rate", ("wine_per_capita",)),
        Problem("opportunity", "kid_rank", ("parent_rank",)),
        Problem("anes96", "selfLR", ("age", "educ")),
        Problem("breast_cancer", "mean area", ("mean radius",)),
        Problem("wine", "color_intensity", ("alcohol",)),
        Problem("grunfeld", "invest", ("value", "capital")),
        Problem("modechoice", "gc", ("hinc",)),
    ),
    "mean": (
        Problem("engel", "income"),
        Problem("fair", "affairs"),
        Problem("randhie", "mdvis"),
        Problem("cps", "earnings"),
        Problem("anes96", "popul"),
        Problem("iraq", "direct_fire"),
    ),
    "family": (
        Problem("randhie", "mdvis", family="Poisson"),
        Problem("ccard", "AVGEXP", family="Exponential"),
        Problem("heart", "survival", family="Exponential"),
        Problem("diabetes", "target", family="Normal"),
        Problem("cps", "earnings", family="Normal"),
        Problem("opportunity", "kid_rank", family="Normal"),
        Problem("wine", "alcohol", family="Normal"),
        Problem("anes96", "vote", family="Binomial"),
    ),
    "histogram": (
        Problem("anes96", "age"),
        Problem("cps", "earnings"),
        Problem("randhie", "disea"),
        Problem("diabetes", "bmi"),
        Problem("modechoice", "gc"),
        Problem("cps", "education"),
    ),
    "aggregate": (
        Problem("cps", "earnings", ("education",), asked="quantile"),
        Problem("randhie", "mdvis", ("disea",), asked="probability"),
        Problem("diabetes", "target", ("bmi",), asked="quantile"),
        Problem("opportunity", "kid_rank", ("parent_rank",), asked="probability"),
        Problem("fair", "affairs", ("yrs_married",), asked="quantile"),
        Problem("engel", "foodexp", ("income",), asked="probability"),
    ),
}
COUNT = {"regression": 28, "mean": 12, "family": 8, "histogram": 6, "aggregate": 6}
LARGE = SIZES[3:]  # of sample-and-aggregate, whose partitions must be worth asking


def draw_cells() -> list[Cell]:
    """Draw the 60 cells, a Latin square of sorts: within a kind every level of every factor occurs equally often."""
    cells = []
    for kind, count in COUNT.items():
        rng = cell_rng(DRAWN_WITH, "cells", kind)
        sizes = LARGE if kind == "aggregate" else SIZES
        factors = [_shuffled(levels, count, rng) for levels in (PROBLEMS[kind], SETTINGS, EPSILONS, sizes)]
        cells += [Cell(kind, *levels) for levels in zip(*factors, strict=True)]
    return sorted(cells, key=lambda cell: (list(COUNT).index(cell.kind), PROBLEMS[cell.kind].index(cell.problem)))


def _shuffled(levels: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
    """Return ``count`` levels in random order: whole rounds of all of them, and a random part of a last round."""
    rounds, rest = divmod(count, len(levels))
    chosen = [*list(range(len(levels))) * rounds, *rng.permutation(len(levels))[:rest].tolist()]
    return [levels[chosen[i]] for i in rng.permutation(count)]


def bounds_of(file: str, column: str, setting: str) -> Bounds:
    """Return the public bounds of a column under a setting."""
    right, tight = BOUNDS[file, column]
    if setting == "tight":
        return tight
    middle, half = (right[0] + right[1]) / 2, (right[1] - right[0]) / 2 * WIDER[setting]
    return middle - half, middle + half


@cache
def load(file: str) -> pd.DataFrame:
    """Return a file, its columns as numbers where they are asked for."""
    if file in _OWN:
        return _OWN[file]()
    if file in _SKLEARN:
        from sklearn import datasets as sklearn_datasets

        table = getattr(sklearn_datasets, f"load_{file}")(as_frame=True, **_SKLEARN[file]).frame
    else:
        import statsmodels.datasets

        table = getattr(statsmodels.datasets, file).load_pandas().data
    if file == "star98":
        table["share_above"] = 100 * table["NABOVE"] / (table["NABOVE"] + table["NBELOW"])
    return pd.DataFrame(table)


_OWN: dict[str, Callable[[], pd.DataFrame]] = {
    "cps": datasets.load_cps_earnings,
    "cirrhosis": datasets.load_cirrhosis,
    "opportunity": datasets.load_opportunity_cells,
    "iraq": datasets.load_iraq_sigacts,
}
_SKLEARN: dict[str, dict[str, Any]] = {"diabetes": {"scaled": False}, "breast_cancer": {}, "wine": {}}


def records_of(problem: Problem) -> Array:
    """Return the columns of a problem, covariates first and the response last."""
    return load(problem.file)[[*problem.covariates, problem.response]].to_numpy(dtype=float)
