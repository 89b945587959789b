"""Releases of statistics: sensitivity by brute force, every form of data, by name in JSON, wrong ones refused."""

from __future__ import annotations

import itertools

import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow
import pytest

from dpbook import PrivacyBudget, Release, Schema, models
from dpbook.models.layout import Recipe, layout_of
from dpbook.schema import Category, Flag, Integer, Number

SCHEMA = Schema({"x": Number(-2, 6), "k": Integer(0, 3), "c": Category(["a", "b", "c"]), "f": Flag()})


def frame(n: int, seed: int = 1) -> pd.DataFrame:
    return SCHEMA.example(n, rng=np.random.default_rng(seed))


def log(record):
    return np.log(record["x"])


OWN = models.Own("log x", log, "x", (-1.0, 2.0))
EVERY = [
    models.Powers(["x", "k"], degree=2),
    models.Product(["x", "f"]),
    models.Table(["c", "f"]),
    models.Histogram("x", [0, 3]),
    models.Indicator("c", "b"),
    models.Indicator("k", (1, 3)),
    OWN,
]


def records(size: int = 9) -> dict[str, np.ndarray]:
    """Return a grid of records that holds the extreme ones."""
    grid = np.array(list(itertools.product(np.linspace(-2, 6, size), range(4), range(3), (0, 1))), dtype=float)
    return {name: grid[:, i] for i, name in enumerate(SCHEMA.names)}


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize(
    "statistics",
    [*([each] for each in EVERY), EVERY, EVERY[2:4]],
    ids=lambda each: "-".join(type(one).__name__ for one in each),
)
def test_no_two_records_differ_by_more_than_the_sensitivity_and_some_do_where_it_is_exact(norm, statistics):
    layout = Recipe.of(statistics, SCHEMA)
    bound, exact = layout.sensitivity(norm)
    values = layout.weights * layout.values(records())
    change = np.abs(values[:, None] - values)
    most = (change.sum(axis=2) if norm == 1 else np.sqrt((change**2).sum(axis=2))).max()
    assert most <= bound * (1 + 1e-9)
    if exact:
        assert most >= bound * 0.95  # the worst pair of moments lies between the points of the grid


def test_few_records_have_their_exact_sensitivity():
    layout = Recipe.of([models.Powers(["k", "f"], degree=2), models.Table("k")], SCHEMA)
    bound, exact = layout.sensitivity(1)
    assert exact
    assert bound < 5.34 + 2 - 0.3  # that of a box, and of the table, one after the other
    assert Recipe.of(models.Powers("f", degree=2), SCHEMA).sensitivity(1)[0] == pytest.approx(2.0)


def test_every_form_of_data_gives_the_same_release():
    data = frame(40)
    forms = [
        data,
        data.to_dict("list"),
        data.to_dict("records"),
        pyarrow.Table.from_pandas(data),
        (data.iloc[i : i + 7] for i in range(0, 40, 7)),
        dask.dataframe.from_pandas(data, npartitions=3),
        [tuple(row) for row in data.itertuples(index=False)],
    ]
    made = [models.release(each, EVERY, schema=SCHEMA, epsilon=1.0, rng=np.random.default_rng(3)) for each in forms]
    assert all(each == made[0] for each in made)


def test_without_noise_to_speak_of_the_release_is_the_sums():
    data = frame(200)
    found = models.release(data, EVERY, schema=SCHEMA, epsilon=1e7, rng=np.random.default_rng(3))
    u = (data["x"] + 2) / 4 - 1
    assert found["powers of x, k"][0] == pytest.approx(u.sum(), abs=1e-3)
    assert found["powers of x, k"][3] == pytest.approx((u * (data["k"] / 1.5 - 1)).sum(), abs=1e-3)
    assert found["c is b"][0] == pytest.approx((data["c"] == "b").sum(), abs=1e-3)
    assert found["k in [1, 3)"][0] == pytest.approx(data["k"].between(1, 2).sum(), abs=1e-3)
    assert found["histogram of x"] == pytest.approx([(data["x"] < 0).sum(), data["x"].between(0, 3).sum(),
                                                     (data["x"] >= 3).sum()], abs=1e-3)  # fmt: skip
    with np.errstate(all="ignore"):
        own = np.clip(np.nan_to_num(np.log(data["x"]), nan=-1.0), -1, 2) / 1.5 - 1 / 3
    assert found["log x"][0] == pytest.approx(own.sum(), abs=1e-3)
    assert found["table of c, f"].sum() == pytest.approx(200, abs=1e-2)


@pytest.mark.parametrize(("mechanism", "delta"), [("laplace", 0.0), ("gaussian", 1e-6)])
def test_a_heavier_statistic_has_less_noise_at_the_others_expense(mechanism, delta):
    given = {"schema": SCHEMA, "epsilon": 1.0, "mechanism": mechanism, "delta": delta, "rng": np.random.default_rng(1)}
    even = models.release(frame(50), [models.Table("c"), models.Powers("x")], **given)
    heavy = models.release(frame(50), [models.Table("c", weight=3.0), models.Powers("x")], **given)
    assert heavy.scale["table of c"] < even.scale["table of c"]
    assert heavy.scale["powers of x"] > even.scale["powers of x"]
    assert heavy.sensitivity["powers of x"] == pytest.approx(3 * heavy.sensitivity["table of c"])


def test_statistics_travel_by_name_and_own_functions_are_compared():
    text = models.release(frame(30), EVERY, schema=SCHEMA, epsilon=1.0, rng=np.random.default_rng(1)).to_json()
    release = Release.from_json(text)
    found = layout_of(release, OWN)
    assert found.schema == SCHEMA
    assert [each.settings() for each in found.statistics] == [each.settings() for each in EVERY]
    with pytest.raises(ValueError, match="must hold the release's own function 'log x'"):
        layout_of(release)
    other = models.Own("log x", lambda record: np.log1p(record["x"]), "x", (-1.0, 2.0))
    with pytest.raises(ValueError, match="another function than the release's"):
        layout_of(release, other)
    lumped = models.Own("log x", lambda record: np.log(record["x"]) + 0 * record["x"].mean() + record["x"].size - 1,
                        "x", (-1.0, 2.0))  # fmt: skip
    with pytest.raises(ValueError, match="entry by entry"):
        layout_of(release, lumped)
    with pytest.raises(ValueError, match="other columns, range or weight"):
        layout_of(release, models.Own("log x", log, "x", (-1.0, 3.0)))


def test_real_noise_is_float_safe_and_the_ledger_is_charged():
    budget = PrivacyBudget(1.0)
    made = models.release(frame(30), EVERY[:2], schema=SCHEMA, epsilon=0.75, budget=budget)
    assert made.float_safe
    assert budget.remaining == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("statistics", "words"),
    [
        ([], "one statistic or more"),
        (["x"], "statistics must be Powers"),
        (models.Powers("wage"), "columns of the schema"),
        (models.Powers("c"), "powers must be of Number"),
        (models.Table("x"), "a table must be of Category"),
        (models.Histogram("x", [-5, 0]), "edges of histogram of x"),
        (models.Indicator("c", "z"), "no value of column 'c'"),
        ([models.Powers("x"), models.Powers("x", degree=2)], "different names"),
    ],
)
def test_statistics_that_do_not_fit_the_schema_are_refused_before_anything_is_spent(statistics, words):
    budget = PrivacyBudget(1.0)
    with pytest.raises((ValueError, TypeError), match=words):
        models.release(frame(9), statistics, schema=SCHEMA, epsilon=0.5, budget=budget)
    assert budget.remaining == 1.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: models.Powers("x", degree=5), "degree"),
        (lambda: models.Powers(["x", "x"]), "each column once"),
        (lambda: models.Powers([]), "one or more names"),
        (lambda: models.Table("c", weight=0.0), "weight"),
        (lambda: models.Histogram("x", [3, 1]), "increasing"),
        (lambda: models.Product(["x"]), "two to four"),
        (lambda: models.Own("", log, "x", (0, 1)), "name of the statistic"),
        (lambda: models.Own("log", 3, "x", (0, 1)), "function must be callable"),
        (lambda: models.Own("log", log, "x", (1, 0)), "low < high"),
    ],
)
def test_statistics_that_make_no_sense_are_refused(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_numbers_that_may_be_missing_are_refused_and_labels_that_may_be_have_a_cell():
    kept = Schema({"x": Number(0, 1), "c": Category(["a", "b"])}, missing="category")
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="what replaces missing values of column 'x'"):
        models.release([[0.1, "a"]], models.Powers("x"), schema=kept, epsilon=1.0, rng=rng)
    found = models.release([[0.1, "a"], [0.2, None]], models.Table("c"), schema=kept, epsilon=1e6, rng=rng)
    assert found["table of c"].round(2).tolist() == [1.0, 0.0, 1.0]


def test_the_preview_tells_the_noise_and_what_a_model_would_learn():
    statistics = [models.Powers("x"), models.Table("c")]
    look = models.preview(statistics, schema=SCHEMA, n=100, epsilon=0.5)
    made = models.release(frame(100), statistics, schema=SCHEMA, epsilon=0.5, rng=np.random.default_rng(1))
    assert look.noise_scale == pytest.approx(made.scale["powers of x"], rel=1e-6)
    assert look.noise_sd == pytest.approx(np.sqrt(2) * look.noise_scale)
    model = models.Model({"mu": models.NormalPrior(0, 1)}, lambda p, u: p["mu"] + u[0])
    with pytest.raises(ValueError, match="at must hold"):
        models.preview(models.Powers("x"), schema=SCHEMA, n=9, epsilon=1.0, model=model, at={"nu": 1.0})
