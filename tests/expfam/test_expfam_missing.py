"""Schemas in releases of one column: labels, bounds, and missing values as a label, a statistic or a filled value."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpbook import PrivacyBudget, Release, Schema, expfam, graphical
from dpbook.expfam.gap_model import missing_weight
from dpbook.expfam.weights import weights_for
from dpbook.schema import Category, Flag, Integer, Number
from dpbook.sensitivity import mean_and_shape, mean_with_missing

PEOPLE = pd.DataFrame(
    {
        "age": [31.0, None, 200.0, 45.0, None, 60.0],
        "region": ["north", None, "south", "north", "south", "north"],
        "smoker": pd.array([True, False, None, True, False, True], dtype="boolean"),
    }
)
KEPT = Schema({"age": Number(0, 100), "region": Category(["north", "south"]), "smoker": Flag()}, missing="category")


def quiet(rng: int = 1) -> dict[str, Any]:
    return {"epsilon": 1e9, "rng": np.random.default_rng(rng)}


def test_a_missing_label_is_a_cell_and_has_a_share() -> None:
    noisy = expfam.release_histogram(PEOPLE, schema=KEPT.part(["region"]), **quiet())
    assert noisy["histogram"].round().tolist() == [3, 2, 1]
    assert expfam.infer(noisy, rng=np.random.default_rng(1)).cells == ("north", "south", "missing")
    flags = expfam.release_histogram(PEOPLE, schema=KEPT.part(["smoker"]), **quiet())
    assert flags["histogram"].round().tolist() == [2, 3, 1]


def test_a_schema_gives_bounds_labels_and_the_place_of_missing_values() -> None:
    filled = Schema({"age": Number(0, 100)}, missing={"age": 40})
    assert expfam.release_mean(PEOPLE, schema=filled, **quiet())["sum"][0] == pytest.approx(
        sum((x - 50) / 50 for x in (31, 40, 100, 45, 40, 60))
    )
    noisy = expfam.release(
        PEOPLE,
        expfam.Multinomial(labels=["north", "south"]),
        schema=Schema({"region": Category(["north", "south"])}, missing={"region": "south"}),
        **quiet(),
    )
    assert noisy["sum"].round().tolist() == [3, 3]
    counts = Schema({"age": Integer(30, 32)}, missing={"age": 30})
    assert expfam.release_histogram(PEOPLE, schema=counts, **quiet())["histogram"].round().tolist() == [2, 1, 3]
    quantiles = expfam.release_quantiles(PEOPLE, 0.5, schema=filled, **quiet())
    assert quantiles.bounds["x"] == (0, 100)


def test_in_a_mean_missing_values_are_counted_and_the_rest_is_averaged() -> None:
    noisy = expfam.release_mean(PEOPLE, schema=KEPT.part(["age"]), bins=2, **quiet())
    assert noisy.n == 6
    assert noisy["missing"][0] == pytest.approx(2)
    assert noisy["histogram"].round().tolist() == [0, 2, 1, 1]
    assert noisy["sum"][0] == pytest.approx(sum((x - 50) / 50 for x in (31, 100, 45, 60)))
    posterior = expfam.infer(Release.from_json(noisy.to_json()), rng=np.random.default_rng(2))
    low, high = posterior.interval(0.5, "mean")
    assert low < np.mean([31, 100, 45, 60]) < high
    assert 0.1 < posterior.mean("missing") < 0.6


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_missing_values_of_a_file_are_those_of_a_frame(suffix: str, tmp_path: Path) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"people.{suffix}"
    PEOPLE.to_csv(path, index=False) if suffix == "csv" else PEOPLE.to_parquet(path)
    for column in ("age", "region", "smoker"):
        schema, make = KEPT.part([column]), expfam.release_mean if column == "age" else expfam.release_histogram
        rng = [np.random.default_rng(5), np.random.default_rng(5)]
        made = [make(data, schema=schema, epsilon=1.0, rng=r) for data, r in zip((path, PEOPLE), rng, strict=True)]
        assert made[0].to_json() == made[1].to_json()
    tables = [
        graphical.release(data, KEPT.part(["region", "smoker"]), [("region", "smoker")], **quiet())
        for data in (path, PEOPLE)
    ]
    assert tables[0].to_json() == tables[1].to_json()
    assert tables[0]["region,smoker"].round().tolist() == [[0, 3, 0], [1, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("shape", [0.01, 0.1, 0.5, 0.99])
def test_the_count_of_missing_records_costs_nothing_and_no_more_would_be_free(norm: int, shape: float) -> None:
    """By brute force over a grid of records and a missing one, each with the cells of a histogram of two bins."""
    squares, cells = weights_for(shape, "laplace" if norm == 1 else "gaussian")
    weight = missing_weight(squares, cells, norm)
    for gap in (weight, 1.1 * weight):
        grid = np.linspace(-1, 1, 41)
        rows = [np.r_[u, squares * u**2, cells * np.eye(2)[int(u >= 0)], 0.0] for u in grid]
        rows.append(np.r_[0, 0, 0, 0, gap])
        most = max(np.linalg.norm(one - other, ord=norm) for one, other in itertools.combinations(rows, 2))
        assert mean_with_missing(squares=squares, cells=cells, missing=gap, norm=norm) == pytest.approx(most, rel=1e-9)
        free = mean_and_shape(squares=squares, cells=cells, norm=norm)
        assert (most <= free * (1 + 1e-12)) == (gap == weight)


@pytest.mark.parametrize(("n", "epsilon", "share"), [(200, 1.0, 0.3), (2000, 0.2, 0.1), (2000, 5.0, 0.6)])
def test_the_mean_of_those_present_and_the_share_of_the_others_are_covered(
    n: int, epsilon: float, share: float
) -> None:
    """100 releases, 90 % intervals, skewed records: fewer than 80 hold with probability 8e-4 each."""
    rng = np.random.default_rng(8)
    schema = Schema({"x": Number(0, 20)}, missing="category")
    held = np.zeros(2)
    for _ in range(100):
        records = np.where(rng.random(n) < share, np.nan, rng.gamma(2, 1.5, n))
        noisy = expfam.release_mean(records, schema=schema, epsilon=epsilon, rng=rng)
        posterior = expfam.infer(noisy, draws=1000, rng=rng)
        for j, (name, truth) in enumerate((("mean", 3.0), ("missing", share))):
            low, high = posterior.interval(0.9, name)
            held[j] += low <= truth <= high
    assert (held >= 80).all(), held


@pytest.mark.parametrize(
    ("make", "schema", "words"),
    [
        (expfam.release_mean, KEPT, "schema must have one column"),
        (expfam.release_mean, Schema({"age": Number(0, 100)}), "no missing values in column 'age'"),
        (expfam.release_histogram, Schema({"age": Number(0, 100)}), "bins or labels must be given"),
        (
            lambda data, **at: expfam.release_quantiles(data, 0.5, **at),
            KEPT.part(["age"]),
            "what becomes of missing values",
        ),
        (
            lambda data, **at: expfam.release(data, expfam.Binomial(), **at),
            KEPT.part(["smoker"]),
            "what becomes of missing",
        ),
        (expfam.release_mean, KEPT.part(["region"]), "bounds"),
    ],
)
def test_what_a_schema_refuses_is_an_error_before_anything_is_spent(make: Any, schema: Schema, words: str) -> None:
    budget = PrivacyBudget(1.0)
    with pytest.raises((ValueError, TypeError), match=words):
        make(PEOPLE, schema=schema, epsilon=1.0, budget=budget, rng=np.random.default_rng(1))
    assert budget.spent[0] == 0
