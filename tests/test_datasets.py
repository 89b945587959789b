"""Data sets: what is loaded is what the sources describe, and the page of the book says what the catalogue says."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpbook import datasets
from dpbook.datasets import DATASETS
from dpbook.records import code_chunks

PAGE = (Path(__file__).parents[1] / "book" / "reference" / "datasets.md").read_text(encoding="utf-8")
NAMES = list(DATASETS)
# name: (column of counts, number of records, number of attributes)
CONTINGENCY = {"acs2019": ("count", 22_062, 8), "adult": ("count", 48_842, 7), "chicago_taxi": ("trips", 191_593, 2)}


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return {name: entry.loader() for name, entry in DATASETS.items()}


def section(name: str) -> str:
    """Return the part of the page on one data set."""
    label = f"(data-{name.replace('_', '-')})="
    assert PAGE.count(label) == 1
    return PAGE.split(label)[1].split("\n(data-")[0]


# The catalogue


def test_every_loader_is_in_the_catalogue_under_its_name() -> None:
    loaders = {name.removeprefix("load_") for name in datasets.__all__ if name.startswith("load_")}
    assert loaders == set(DATASETS)
    for name, entry in DATASETS.items():
        assert entry.name == name
        assert entry.loader is getattr(datasets, f"load_{name}")


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DATASETS["adult"].unit = "a house"  # type: ignore[misc]
    with pytest.raises(TypeError):
        DATASETS["cps_earnings"].bounds["age"] = (21.0, 64.0)  # type: ignore[index]
    datasets.bounds("cps_earnings")["age"] = (21.0, 64.0)
    assert datasets.bounds("cps_earnings")["age"] == (16.0, 65.0)


def test_an_unknown_name_raises_and_names_the_argument() -> None:
    for function in (datasets.bounds, datasets.domains):
        with pytest.raises(ValueError, match="name must be one of 'cirrhosis'"):
            function("iris")


@pytest.mark.parametrize("name", NAMES)
def test_loaders_document_source_licence_unit_and_bounds(name: str) -> None:
    text = " ".join(str(DATASETS[name].loader.__doc__).split())
    for word in ("Source:", "Licence:", "Unit of privacy:", "A-priori bounds:", "/book/reference/datasets"):
        assert word in text
    for column in DATASETS[name].loader().columns:
        assert f"``{column}``" in text


@pytest.mark.parametrize("name", NAMES)
def test_bounds_and_domains_cover_every_column_once(name: str, frames: dict[str, pd.DataFrame]) -> None:
    entry = DATASETS[name]
    free = {"cirrhosis": {"index"}, "chicago_areas": {"name"}, "iraq_sigacts": {"month"}}.get(name, set())
    assert not set(entry.bounds) & set(entry.domains)
    assert set(entry.bounds) | set(entry.domains) | free == set(frames[name].columns)
    assert all(low < high for low, high in entry.bounds.values())


# The data


@pytest.mark.parametrize("name", NAMES)
def test_row_counts_are_those_of_the_catalogue_and_nothing_is_missing(
    name: str, frames: dict[str, pd.DataFrame]
) -> None:
    assert len(frames[name]) == DATASETS[name].rows
    assert not frames[name].isna().any(axis=None)


def test_the_catalogue_has_the_row_counts_of_the_sources() -> None:
    rows = {name: entry.rows for name, entry in DATASETS.items()}
    assert rows == {
        "cirrhosis": 46,
        "opportunity_cells": 10_000,
        "cps_earnings": 61_395,
        "acs2019": 1_671,
        "adult": 1_870,
        "chicago_taxi": 2_521,
        "chicago_areas": 77,
        "iraq_sigacts": 1_098,
        "fair": 6_366,
        "randhie": 20_190,
    }


@pytest.mark.parametrize("name", NAMES)
def test_discrete_values_lie_in_their_domain(name: str, frames: dict[str, pd.DataFrame]) -> None:
    for column, values in DATASETS[name].domains.items():
        assert set(frames[name][column]) <= set(values)
        assert len(set(values)) == len(values)
        if isinstance(values[0], str):
            assert tuple(frames[name][column].cat.categories) == values


def test_bounds_are_not_the_range_of_the_data(frames: dict[str, pd.DataFrame]) -> None:
    # Only the `fair` questionnaire, whose classes all occur, and quantities with a natural end may touch both bounds.
    touching = {
        (name, column)
        for name in ("cirrhosis", "opportunity_cells", "cps_earnings", "randhie")
        for column, (low, high) in DATASETS[name].bounds.items()
        if (frames[name][column].min(), frames[name][column].max()) == (low, high)
    }
    assert touching == {("opportunity_cells", "kid_rank")} | {
        ("randhie", column) for column in ("idp", "physlm", "hlthg", "hlthf", "hlthp")
    }


def test_few_records_are_clipped_by_the_bounds(frames: dict[str, pd.DataFrame]) -> None:
    outside = {
        f"{name}.{column}": int((~frames[name][column].between(low, high)).sum())
        for name in ("cirrhosis", "opportunity_cells", "cps_earnings", "fair", "randhie")
        for column, (low, high) in DATASETS[name].bounds.items()
    }
    assert {key: count for key, count in outside.items() if count} == {"randhie.mdvis": 12}


@pytest.mark.parametrize("name", list(CONTINGENCY))
def test_expanding_a_table_of_counts_gives_one_row_per_record(name: str, frames: dict[str, pd.DataFrame]) -> None:
    count, records, attributes = CONTINGENCY[name]
    cells = frames[name]
    people = getattr(datasets, f"load_{name}")(expand=True)
    assert people.shape == (records, attributes)
    assert people.index.equals(pd.RangeIndex(records))
    assert int(cells[count].sum()) == records
    again = people.groupby(list(people.columns), observed=True, sort=False).size()
    np.testing.assert_array_equal(again.to_numpy(), cells[count].to_numpy())


def test_categories_are_ready_made_codes_of_the_public_domain() -> None:
    people = datasets.load_adult(expand=True)
    codes = people.apply(lambda column: column.cat.codes)
    sizes = [len(values) for values in datasets.domains("adult").values()]
    assert sizes == [6, 5, 3, 3, 2, 3, 2]
    assert sum(len(chunk) for chunk in code_chunks(codes, sizes)) == 48_842


def test_cps_regression_has_the_slopes_of_the_source(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["cps_earnings"]
    design = np.column_stack([np.ones(len(frame)), frame["education"], frame["age"]])
    slopes = np.linalg.lstsq(design, np.log(frame["earnings"]), rcond=None)[0][1:]
    assert slopes.round(4).tolist() == [0.0918, 0.0087]
    assert (frame["earnings"].min(), frame["earnings"].max()) == (2.00, 72.12)
    assert (frame["age"].min(), frame["age"].max()) == (21, 64)
    assert (frame["education"].min(), frame["education"].max()) == (6, 20)


def test_opportunity_cells_have_the_slope_and_sizes_of_the_source(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["opportunity_cells"]
    slope = np.polyfit(frame["parent_rank"], frame["kid_rank"], 1)[0]
    assert round(float(slope), 3) == 0.598
    assert round(float(np.corrcoef(frame["parent_rank"], frame["kid_rank"])[0, 1] ** 2), 2) == 0.75
    sizes = frame.groupby("cell").size()
    assert (len(sizes), sizes.min(), sizes.max()) == (111, 5, 200)


def test_cirrhosis_has_the_values_of_its_first_and_last_rows(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["cirrhosis"]
    assert frame.iloc[0].tolist() == [1, 44, 33.2, 5, 30, 41.2]
    assert frame["index"].tolist() == list(range(1, 47))
    assert frame["urban_pct"].sum() == 2588


def test_chicago_areas_name_every_area_of_the_trips(frames: dict[str, pd.DataFrame]) -> None:
    areas, trips = frames["chicago_areas"], frames["chicago_taxi"]
    assert areas["area"].tolist() == list(range(1, 78))
    assert areas["name"].is_unique
    assert set(trips["pickup_area"]) | set(trips["dropoff_area"]) == set(areas["area"])
    assert not trips[["pickup_area", "dropoff_area"]].duplicated().any()


def test_iraq_has_every_governorate_in_every_month(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["iraq_sigacts"]
    assert (frame.groupby("governorate", observed=False).size() == 61).all()
    assert frame["governorate"].cat.categories.size == 18
    assert frame["month"].min() == pd.Timestamp("2004-02-01")
    assert frame["month"].max() == pd.Timestamp("2009-02-01")
    assert (frame["sigact_excl"] <= frame["sigact_all"]).all()
    assert (frame["sigact_all"] >= frame.loc[:, "direct_fire":].sum(axis=1)).all()


def test_affairs_are_products_of_questionnaire_codes_over_years_of_marriage(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["fair"]
    codes = (0.0, 1.0, 3.5, 5.6, 8.0, 12.0)
    products = {round(first * second, 2) for first in codes for second in codes}
    assert set((frame["affairs"] * frame["yrs_married"]).round(2)) <= products
    assert datasets.bounds("fair")["affairs"] == (0.0, max(codes) ** 2 / datasets.bounds("fair")["yrs_married"][0])
    for column in frame.columns.drop("affairs"):  # coded answers: the bounds are the end codes
        assert (frame[column].min(), frame[column].max()) == DATASETS["fair"].bounds[column]


def test_randhie_diseases_are_percentages_of_lists_of_29_and_23(frames: dict[str, pd.DataFrame]) -> None:
    listed = {round(100 * ticked / items, 1) for items in (29, 23) for ticked in range(items + 1)}
    filled_in = set(frames["randhie"]["disea"]) - listed
    assert len(filled_in) == 4


def test_randhie_logarithms_are_those_of_the_design(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["randhie"]
    assert sorted(np.expm1(frame["lncoins"].unique()).round(2).tolist()) == [0, 25, 50, 95, 100]
    assert math.exp(frame["fmde"].max()) == pytest.approx(1000 / 0.25, rel=1e-5)


@pytest.mark.parametrize("name", ["fair", "randhie"])
def test_without_statsmodels_the_error_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [key for key in sys.modules if key.startswith("statsmodels")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    with pytest.raises(ImportError, match=rf"{name}.*pip install dpbook\[book\]"):
        DATASETS[name].loader()


# The page


@pytest.mark.parametrize("name", NAMES)
def test_the_page_describes_the_data_set_as_the_catalogue_does(name: str) -> None:
    entry = DATASETS[name]
    overview = re.search(rf"^\| \[`{name}`\]\(data-{name.replace('_', '-')}\) \| (.*) \|$", PAGE, re.MULTILINE)
    assert overview is not None
    assert overview[1] == f"{entry.rows:,} | {entry.unit} | {entry.licence}"
    text = " ".join(section(name).split())
    assert f"**Licence:** {entry.licence}." in text
    assert f"**One record is** {entry.unit}" in text
    assert "**Source.**" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_page_gives_bounds_and_a_reason_for_every_column(name: str, frames: dict[str, pd.DataFrame]) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section(name), re.MULTILINE))
    assert list(rows) == list(frames[name].columns)
    for column, row in rows.items():
        stated, reason = row.split(" | ")
        assert reason
        if column in DATASETS[name].bounds:
            low, high = DATASETS[name].bounds[column]
            assert stated == f"{low:.4g} to {high:.4g}"
        elif isinstance(next(iter(DATASETS[name].domains.get(column, (0,)))), str) and name != "iraq_sigacts":
            assert tuple(stated.split(", ")) == DATASETS[name].domains[column]


def test_the_page_states_the_numbers_of_records() -> None:
    for name, (_, records, _) in CONTINGENCY.items():
        assert f"{records:,}" in section(name)
