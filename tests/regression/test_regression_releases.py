"""Releases of regressions: the exact joint sensitivity, the stated privacy, any form of data, the budget first."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpbook import BudgetExceeded, PrivacyBudget, Release, regression
from dpbook.audit import epsilon_lower_bound
from dpbook.mechanisms import gaussian_scale, laplace
from dpbook.regression.coordinates import Coordinates, coordinates_of
from dpbook.regression.layout import Layout
from dpbook.regression.releases import join
from dpbook.sensitivity import fourth_moments, second_moments

UNIT = {"x_bounds": (-1, 1), "y_bounds": (-1, 1)}


def data(n=200, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 3, size=(n, d))
    return X, X.sum(axis=1) + rng.normal(size=n)


def exact_statistics(rows, layout, box=None):
    """Sums of the unique statistics of records in coordinates, by the definition."""
    u = np.clip(rows, *(box or (-1, 1)))
    u = np.column_stack([np.ones(len(u)), u]) if layout.intercept else u
    return (u[:, layout.rows] * u[:, layout.columns]).sum(axis=0)


# ---------------------------------------------------------------------------------------------------------------------
# What is released


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 10])
def test_without_noise_to_speak_of_the_sums_are_those_of_the_columns_in_coordinates(d, intercept):
    X, y = data(d=d)
    noisy = regression.release(
        X, y, x_bounds=(-1, 3), y_bounds=(-20, 30), epsilon=1e9, intercept=intercept, rng=np.random.default_rng(0)
    )
    layout = Layout(d, intercept)
    inside = Coordinates(np.array([-1.0] * d + [-20.0]), np.array([3.0] * d + [30.0]), intercept)
    expected = exact_statistics(inside.records(np.column_stack([X, y])), layout)
    np.testing.assert_allclose(noisy["sums"], expected, atol=1e-5)
    assert noisy.n == 200
    assert noisy["sums"].shape == (layout.size,)
    assert dict(noisy.settings) == {
        "intercept": intercept,
        "columns": tuple(f"x{j + 1}" for j in range(d)),
        "response": "y",
    }
    np.testing.assert_array_equal(coordinates_of(noisy).lower, inside.lower)


def test_records_outside_the_bounds_are_clipped():
    one = regression.release([5.0, 0.5], [0.5, -9.0], **UNIT, epsilon=1.0, rng=np.random.default_rng(1))
    other = regression.release([1.0, 0.5], [0.5, -1.0], **UNIT, epsilon=1.0, rng=np.random.default_rng(1))
    assert one == other


@pytest.mark.parametrize(
    ("d", "expected"), [(1, 16 / 3), (2, 3 * 25 / 8), (3, 4 * 36 / 10), (5, 6 * 64 / 14), (10, 11 * 169 / 24)]
)
def test_the_sensitivity_is_p_p_plus_2_squared_over_2_p_plus_2_whatever_the_bounds(d, expected):
    """Of p = d + 1 columns; the source's widths give 24 where d = 1."""
    X, y = data(d=d)
    for bounds in (UNIT, {"x_bounds": (1, 2), "y_bounds": (1, 2)}, {"x_bounds": (0, 1e6), "y_bounds": (-1e-3, 0)}):
        noisy = regression.release(X, y, **bounds, epsilon=0.5, rng=np.random.default_rng(0))
        assert noisy.sensitivity["sums"] == pytest.approx(expected, rel=1e-6)
        assert noisy.sensitivity["sums"] >= expected
        assert noisy.scale["sums"] == pytest.approx(expected / 0.5, rel=1e-6)


def test_the_exact_sensitivity_saves_most_of_the_sources_noise():
    """On [-1, 1], with an intercept: w_x² d(d+1)/2 + w_x w_y d + w_y² = 24, n's own noise included."""
    width, d = 2.0, 2  # the source's d counts the column of ones
    printed = width**2 * d * (d + 1) / 2 + width**2 * d + width**2
    assert printed == 24
    assert printed / second_moments([-1, -1], [1, 1], intercept=True) == pytest.approx(4.5)


def test_fourth_moments_are_released_together_with_the_sums_at_less_than_an_even_split():
    """Joint: 7.375 / epsilon. The source: 24 and 5 · 2⁴ = 80, each at epsilon / 2; exact or not, halves cost more."""
    x, y = np.linspace(-1, 1, 50), np.linspace(1, -1, 50)
    noisy = regression.release(x, y, **UNIT, epsilon=1.0, moments=True, rng=np.random.default_rng(0))
    assert noisy.scale["sums"] == noisy.scale["moments"] == pytest.approx(7.375, rel=1e-6)
    assert noisy["moments"].shape == (2,)
    split = 2 * second_moments([-1, -1], [1, 1], intercept=True)
    assert noisy.scale["sums"] < split < 2 * 24
    assert noisy.scale["moments"] < 2 * fourth_moments(-1, 1, response=False) < 2 * 80


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_moments_are_the_monomials_that_the_sums_lack(d, intercept):
    X, y = data(d=d)
    noisy = regression.release(
        X,
        y,
        x_bounds=(-1, 3),
        y_bounds=(-9, 9),
        epsilon=1e9,
        intercept=intercept,
        moments=True,
        rng=np.random.default_rng(0),
    )
    x = coordinates_of(noisy).records(np.column_stack([X, y]))[:, :-1]
    layout = Layout(d, intercept)
    expected = [np.prod(x[:, list(factors)], axis=1).sum() for factors in layout.higher]
    assert len(expected) == math.comb(d + 3, 4) + intercept * math.comb(d + 2, 3)
    np.testing.assert_allclose(noisy["moments"], expected, atol=1e-4)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_the_noise_has_the_stated_law_in_every_coordinate(mechanism):
    """KS at the 1e-4 level for each of 9 sums."""
    X, y = data()
    rng, delta = np.random.default_rng(3), 1e-5 * (mechanism == "gaussian")
    made = [
        regression.release(
            X, y, x_bounds=(-1, 3), y_bounds=(-9, 9), epsilon=0.7, mechanism=mechanism, delta=delta, rng=rng
        )
        for _ in range(400)
    ]
    exact = regression.release(X, y, x_bounds=(-1, 3), y_bounds=(-9, 9), epsilon=1e12, rng=rng)["sums"]
    law = (stats.laplace if mechanism == "laplace" else stats.norm)(scale=made[0].scale["sums"])
    for column in (np.array([each["sums"] for each in made]) - exact).T:
        assert stats.kstest(column, law.cdf).pvalue > 1e-4


@pytest.mark.parametrize(("d", "expected"), [(1, math.sqrt(8)), (2, 4.0), (3, math.sqrt(24)), (10, 12.0)])
def test_gaussian_noise_fits_the_exact_l2_sensitivity(d, expected):
    X, y = data(d=d)
    noisy = regression.release(
        X, y, **UNIT, epsilon=0.5, mechanism="gaussian", delta=1e-6, rng=np.random.default_rng(0)
    )
    assert noisy.sensitivity["sums"] == pytest.approx(expected, rel=1e-6)
    assert noisy.scale["sums"] == pytest.approx(gaussian_scale(sensitivity=expected, epsilon=0.5, delta=1e-6), rel=1e-6)
    assert (noisy.mechanism, noisy.delta) == ("gaussian", 1e-6)


def test_results_do_not_depend_on_the_units():
    """The same noise on columns in other units, with bounds in those units, gives the same numbers."""
    X, y = data()
    one = regression.release(X, y, x_bounds=(-1, 3), y_bounds=(-8, 8), epsilon=1.0, rng=np.random.default_rng(5))
    other = regression.release(
        1024 * X + 512, 4 * y - 8, x_bounds=(-512, 3584), y_bounds=(-40, 24), epsilon=1.0, rng=np.random.default_rng(5)
    )
    np.testing.assert_allclose(one["sums"], other["sums"], atol=1e-6)


def test_a_release_travels_through_json():
    X, y = data()
    noisy = regression.release(
        X, y, x_bounds=[(-1, 3), (0, 2)], y_bounds=(-8, 8), epsilon=1.0, moments=True, rng=np.random.default_rng(5)
    )
    assert Release.from_json(noisy.to_json()) == noisy
    assert pickle.loads(pickle.dumps(noisy)) == noisy
    assert noisy.bounds["x2"] == (0.0, 2.0)
    assert "replace-one" in noisy.report()


def test_a_real_release_says_that_it_is_one():
    X, y = data(n=20)
    noisy = regression.release(X, y, **UNIT, epsilon=1.0)
    assert noisy.float_safe
    assert not regression.release(X, y, **UNIT, epsilon=1.0, rng=np.random.default_rng(0)).float_safe


# ---------------------------------------------------------------------------------------------------------------------
# Any form of data


def forms(X, y):
    table = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
    swapped = table[["y", "a", "b"]]
    cut = [slice(0, 7), slice(7, 60), slice(60, None)]
    other = [slice(0, 100), slice(100, None)]
    yield "array", X, y
    yield "lists", X.tolist(), y.tolist()
    yield "table and series", table[["a", "b"]], table["y"]
    yield "table and a name", table, "y"
    yield "table with the response first", swapped, "y"
    yield "array with the response in it", np.column_stack([X, y]), -1
    yield "array with the response first", np.column_stack([y, X]), 0
    yield "chunks of arrays", (np.column_stack([X, y])[c] for c in cut), 2
    yield "chunks of tables", (swapped.iloc[c] for c in cut), "y"
    yield "two streams cut differently", (X[c] for c in cut), (y[c] for c in other)
    arrow = pytest.importorskip("pyarrow")
    yield "arrow", arrow.Table.from_pandas(swapped), "y"
    yield "arrow reader", arrow.Table.from_pandas(swapped).to_reader(max_chunksize=50), "y"
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    yield "dask table", dd.from_pandas(swapped, npartitions=3), "y"
    yield (
        "dask table and series",
        dd.from_pandas(table[["a", "b"]], npartitions=3),
        dd.from_pandas(table, npartitions=3)["y"],
    )
    yield "dask arrays", da.from_array(X, chunks=(30, 1)), da.from_array(y, chunks=50)
    table = dd.from_pandas(table, npartitions=3)
    yield "dask arrays of unknown lengths", table[["a", "b"]].to_dask_array(), table["y"].to_dask_array()
    yield "dask table and an unnamed array", table[["a", "b"]], table["y"].to_dask_array()
    yield "dask array with the response in it", da.from_array(np.column_stack([X, y]), chunks=(30, 2)), -1


NAMED = {"table and series", "table and a name", "table with the response first", "chunks of tables", "arrow"}
NAMED |= {"arrow reader", "dask table", "dask table and series", "dask table and an unnamed array"}


@pytest.mark.parametrize("moments", [False, True])
def test_every_form_of_data_gives_the_same_release(moments):
    X, y = data()
    settings = {"x_bounds": [(-1, 3), (-1, 2)], "y_bounds": (-8, 8), "epsilon": 1.0, "moments": moments}
    first = None
    for name, covariates, response in forms(X, y):
        made = regression.release(covariates, response, **settings, rng=np.random.default_rng(9))
        columns = ("a", "b") if name in NAMED else ("x1", "x2")
        assert dict(made.settings) == {"intercept": True, "columns": columns, "response": "y"}, name
        assert tuple(made.bounds) == (*columns, "y")
        made = replace(made, settings={}, bounds={})
        first = first or made
        assert made == first, name


# ---------------------------------------------------------------------------------------------------------------------
# Names travel


def names_of(X, y):
    made = regression.release(X, y, x_bounds=(-1, 3), y_bounds=(-8, 8), epsilon=1.0, rng=np.random.default_rng(9))
    assert Release.from_json(made.to_json()) == made
    assert coordinates_of(made).names == (*made.settings["columns"], made.settings["response"]) == tuple(made.bounds)
    return tuple(made.bounds)


def test_columns_keep_their_names_and_those_without_are_numbered():
    X, y = data()
    table = pd.DataFrame(X, columns=["age", "pay"])
    assert names_of(table, pd.Series(y, name="rent")) == ("age", "pay", "rent")
    assert names_of(table.assign(rent=y)[["age", "rent", "pay"]], "rent") == ("age", "pay", "rent")
    assert names_of(table.assign(rent=y)[["age", "rent", "pay"]], 1) == ("age", "pay", "rent")
    assert names_of(table, y) == ("age", "pay", "y")
    assert names_of(X, y) == ("x1", "x2", "y")
    assert names_of(pd.DataFrame(X), pd.Series(y)) == ("x1", "x2", "y")  # numbers are no names


def test_a_name_that_is_taken_gives_way():
    """A name stands for one column, and what tables of coefficients call their own rows stands for none."""
    X, y = data()
    assert names_of(pd.DataFrame(X, columns=["x", "y"]), y) == ("x", "y", "(response)")
    assert names_of(pd.DataFrame(X, columns=["x", "y"]), pd.Series(y, name="x")) == ("x", "y", "(response)")
    assert names_of(pd.DataFrame(X, columns=["x", "x"]), y) == ("x1", "x2", "y")
    assert names_of(pd.DataFrame(X, columns=["x", "(intercept)"]), y) == ("x1", "x2", "y")
    assert names_of(pd.DataFrame(X, columns=["x", "(response)"]), y) == ("x1", "x2", "y")
    assert names_of(pd.DataFrame(X, columns=["x", "z"]), pd.Series(y, name="(intercept)")) == ("x", "z", "(response)")


def test_a_dask_array_s_name_which_is_made_of_its_content_is_not_released():
    da = pytest.importorskip("dask.array")
    X, y = data()
    assert names_of(da.from_array(X, chunks=(50, 2)), da.from_array(y, chunks=50)) == ("x1", "x2", "y")


def test_reports_and_summaries_go_by_the_names():
    X, y = data()
    table = pd.DataFrame(X, columns=["age", "sigma2"])
    made = regression.release(table, y, x_bounds=(-1, 3), y_bounds=(-8, 8), epsilon=1.0, rng=np.random.default_rng(9))
    assert "age in [-1, 3]; sigma2 in [-1, 3]; y in [-8, 8]" in made.report()
    prior = regression.NormalInverseGamma(0, 1, 2, 2)
    posterior = regression.infer(made, prior, method="naive", rng=np.random.default_rng(1))
    assert posterior.labels["theta"] == ("(intercept)", "age", "sigma2")
    assert list(posterior.summary().index) == ["(intercept)", "age", "theta[sigma2]", "sigma2"]
    assert list(posterior.to_arviz().posterior["theta_component"].values) == ["(intercept)", "age", "sigma2"]
    look = regression.preview(n=200, x_bounds={"age": (-1, 3), "pay": (0, 1)}, y_bounds=(-8, 8), epsilon=1.0)
    assert list(look.summary().index) == ["(intercept)", "age", "pay"]


@pytest.mark.parametrize(
    "changes",
    [{"settings": {}}, {"settings": {"intercept": True, "columns": 3, "response": "y"}}, {"bounds": {"x1": (0, 1)}}],
)
def test_a_release_without_what_the_map_back_needs_is_refused_by_name(changes):
    made = regression.release([0.1, 0.5], [0.2, 0.4], **UNIT, epsilon=1.0, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="release must have the settings 'intercept', 'columns' and 'response'"):
        regression.infer(replace(made, **changes), regression.NormalInverseGamma(0, 1, 2, 2), method="naive")
    short = replace(made, values={"sums": made["sums"][:3]})
    with pytest.raises(ValueError, match="release must hold 5 sums for 1 covariates"):
        regression.infer(short, regression.NormalInverseGamma(0, 1, 2, 2), method="naive")


# ---------------------------------------------------------------------------------------------------------------------
# Who is paired with whom


def pieces(n=400, partitions=8):
    """Partitions of one table, each with an index of its own from 0 on, as files give them; y = x exactly."""
    x = np.random.default_rng(0).uniform(size=n)
    size = n // partitions
    return [pd.DataFrame({"x": x[i : i + size], "y": x[i : i + size]}) for i in range(0, n, size)]


def natural_forms(folder):
    """Pairs (X, y) of Dask collections that hold the records of `pieces`, in the order of their rows."""
    dd = pytest.importorskip("dask.dataframe")
    tables = pieces()
    lazy = dd.from_map(lambda i: tables[i], range(len(tables)))
    yield "unknown divisions", lazy[["x"]], lazy["y"]
    yield "one side persisted", lazy[["x"]].persist(), lazy["y"]
    yield "both persisted", lazy[["x"]].persist(), lazy["y"].persist()
    yield "two reads", lazy[["x"]], dd.from_map(lambda i: tables[i]["y"], range(len(tables)))
    yield "repartitioned", lazy.repartition(npartitions=3)[["x"]], lazy.repartition(npartitions=3)["y"]
    yield "computed columns", lazy[["x"]] * 2 - lazy[["x"]], lazy["y"] + 0
    yield "filtered", lazy[lazy["x"] < 9][["x"]], lazy[lazy["x"] < 9]["y"]
    sorted_by_value = lazy.assign(k=lazy["y"]).set_index("k")
    yield "indexed by value", sorted_by_value[["x"]], sorted_by_value["y"]
    yield "cut differently", lazy[["x"]].repartition(npartitions=3), lazy["y"]
    yield "with empty partitions", *(dd.concat([lazy, lazy[lazy["x"] > 9]])[c] for c in (["x"], "y"))
    for i, table in enumerate(tables):
        table.to_csv(folder / f"{i}.csv", index=False)
        table.assign(**{f"z{j}": 0.0 for j in range(40)}).to_parquet(folder / f"{i}.parquet")
    read = dd.read_csv(str(folder / "*.csv"))
    yield "files of text", read[["x"]], read["y"]
    read = dd.read_parquet(str(folder / "*.parquet"))
    yield "files of columns", read[["x"]], read["y"]
    yield "files of columns, one side persisted", read.persist()[["x"]], read["y"]


def test_dask_pairs_records_by_position_or_not_at_all(tmp_path):
    """With y = x every pairing but the right one has a smaller sum of xy; an index never decides."""
    dask = pytest.importorskip("dask")
    refused = []
    settings = {"x_bounds": (0, 1), "y_bounds": (0, 1), "epsilon": 1e9}
    with dask.config.set(scheduler="synchronous"):
        for name, X, y in natural_forms(tmp_path):
            if X.npartitions != y.npartitions:
                with pytest.raises(
                    ValueError, match=r"must have as many partitions.* pass y as the name of its column"
                ):
                    regression.release(X, y, **settings, rng=np.random.default_rng(1))
                refused.append(name)
                continue
            sums = regression.release(X, y, **settings, rng=np.random.default_rng(1))["sums"]
            np.testing.assert_allclose(sums[[0, 2, 2]], sums[[1, 3, 4]], atol=1e-4, err_msg=name)
    assert refused == ["cut differently"]


def test_one_record_moves_the_sums_of_dask_collections_by_no_more_than_stated():
    dd, dask = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask")

    def sums(tables):
        lazy = dd.from_map(lambda i: tables[i], range(len(tables)))
        settings = {"x_bounds": (0, 1), "y_bounds": (0, 1), "epsilon": 1e9, "rng": np.random.default_rng(1)}
        return regression.release(lazy[["x"]].persist(), lazy["y"], **settings)

    with dask.config.set(scheduler="synchronous"):
        here = sums(pieces())
        for row in range(5):
            tables = pieces()
            tables[0].loc[row, "x"] = 1 - tables[0].loc[row, "x"]
            assert np.abs(sums(tables)["sums"] - here["sums"]).sum() <= here.sensitivity["sums"] + 1e-4


def unequal_forms():
    dd, da, pa = (pytest.importorskip(name) for name in ("dask.dataframe", "dask.array", "pyarrow"))
    x, y = np.linspace(0, 1, 150), np.linspace(0, 1, 200)
    frames = pd.DataFrame({"x": x}), pd.DataFrame({"y": y})
    yield "arrays", x, y
    yield "lists", x.tolist(), y.tolist()
    yield "table and series", frames[0], frames[1]["y"]
    yield "one frame's index within the other's", frames[0], frames[1]["y"].iloc[::-1]
    yield "streams", iter([x[:100], x[100:]]), iter([y[:150], y[150:]])
    yield "stream that ends with a chunk", iter([x]), iter([y[:150], y[150:]])
    yield "arrow", pa.table({"x": x}), pa.array(y)
    tables = [dd.from_pandas(frame, npartitions=4) for frame in frames]
    yield "dask", tables[0], tables[1]["y"]
    yield "dask, other partitions", tables[0], tables[1]["y"].repartition(npartitions=3)
    yield "dask, one filtered", tables[1][tables[1]["y"] < 0.7], tables[1]["y"]
    yield "dask arrays", da.from_array(x, chunks=50), da.from_array(y, chunks=50)
    yield "dask arrays of unknown lengths", tables[0].to_dask_array(), tables[1].to_dask_array()
    yield "dask and numpy", tables[0], y
    yield "numpy and dask", x, tables[1]["y"]


def test_unequal_lengths_are_refused_in_every_form_and_nothing_is_spent():
    for name, X, y in unequal_forms():
        for X_, y_ in ((X, y), (y, X)) if not hasattr(X, "__next__") else ((X, y),):
            budget = PrivacyBudget(1.0)
            with pytest.raises((ValueError, TypeError), match=r"must have as many|must both be Dask collections"):
                regression.release(X_, y_, **UNIT, epsilon=1.0, budget=budget, rng=np.random.default_rng(0))
            assert budget.remaining == 1.0, name


def test_an_index_plays_no_part_in_the_pairing():
    X, y = data()
    table = pd.DataFrame(X, columns=["a", "b"])
    expected = regression.release(table, y, **UNIT, epsilon=1.0, rng=np.random.default_rng(3))
    shuffled = pd.Series(y, index=np.random.default_rng(4).permutation(len(y)))
    for response in (shuffled, pd.Series(y, index=np.zeros(len(y))), pd.Series(y, index=np.arange(len(y)) + 10**6)):
        assert regression.release(table, response, **UNIT, epsilon=1.0, rng=np.random.default_rng(3)) == expected


# ---------------------------------------------------------------------------------------------------------------------
# Bounds by name, and values beyond them


def test_bounds_by_name_are_those_of_the_columns_in_any_order_of_either():
    X, y = data()
    table = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
    expected = regression.release(
        X, y, x_bounds=[(-1, 3), (-1, 2)], y_bounds=(-8, 8), epsilon=1.0, rng=np.random.default_rng(3)
    )
    for pairs in ({"a": (-1, 3), "b": (-1, 2)}, {"b": (-1, 2), "a": (-1, 3)}):
        made = regression.release(
            table[["a", "y", "b"]], "y", x_bounds=pairs, y_bounds=(-8, 8), epsilon=1.0, rng=np.random.default_rng(3)
        )
        np.testing.assert_array_equal(made["sums"], expected["sums"])
        assert list(made.bounds) == ["a", "b", "y"]
        assert list(made.bounds.values()) == list(expected.bounds.values())


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("far", [np.inf, 1.7e308, 2**64, 10**400], ids=["inf", "largest", "2**64", "10**400"])
def test_a_record_beyond_the_bounds_counts_as_the_bound_in_silence(far, intercept):
    """Neither an error, nor a warning, nor a floating-point flag tells how far beyond it was."""
    settings = {"x_bounds": (0, 1e-3), "y_bounds": (-1e-290, 1e-290), "intercept": intercept, "epsilon": 1.0}
    expected = regression.release([0.0, 1e-3], [-1e-290, 1e-290], **settings, rng=np.random.default_rng(0))
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        made = regression.release([-far, far], [-far, far], **settings, rng=np.random.default_rng(0))
    assert made == expected


def test_one_covariate_may_be_one_dimensional():
    X, y = data(d=1)
    made = [regression.release(x, y, **UNIT, epsilon=1.0, rng=np.random.default_rng(2)) for x in (X, X[:, 0])]
    assert made[0] == made[1]


def test_nonprivate_inference_reads_the_same_forms():
    X, y = data()
    prior = regression.NormalInverseGamma(0, 1, 2, 2)
    means = [
        regression.infer_nonprivate(a, b, prior, rng=np.random.default_rng(0), draws=40).mean("theta")
        for _, a, b in forms(X, y)
    ]
    np.testing.assert_allclose(means, np.broadcast_to(means[0], (len(means), 3)), rtol=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Privacy. The sums have five coordinates and more, so that all of epsilon shows only where every noise falls on one
# side: a direct audit of a few thousand releases sees part of it, an audit of many runs at their scale nearly all.


def likelihood_ratio(one, other):
    """Laplace noise: the log likelihood ratio of outputs is proportional to this difference of L1 distances."""
    return lambda z: np.abs(z - other).sum(axis=-1) - np.abs(z - one).sum(axis=-1)


def all_statistics(rows, layout, moments=False):
    x = rows[:, :-1]
    higher = [np.prod(x[:, list(factors)], axis=1).sum() for factors in layout.higher] if moments else []
    return np.concatenate([exact_statistics(rows, layout), higher])


def outputs(made):
    return np.concatenate(list(made.values.values()))


def worst_pair(layout, moments):
    """The record (1, 1) and the one farthest from it on a grid: the pair that the theory names."""
    far, grid = np.ones(2), np.linspace(-1, 1, 49)
    records = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    away = [
        np.abs(all_statistics(far[None], layout, moments) - all_statistics(one[None], layout, moments)).sum()
        for one in records
    ]
    sides = [np.vstack([[0.2, -0.3], [0.5, 0.5], one]) for one in (far, records[np.argmax(away)])]
    return max(away), sides, likelihood_ratio(*(all_statistics(side, layout, moments) for side in sides))


KINDS = [(True, False), (False, False), (True, True)]


@pytest.mark.parametrize(("intercept", "moments"), KINDS)
def test_the_worst_pair_is_at_the_stated_distance(intercept, moments):
    gap, sides, _ = worst_pair(Layout(1, intercept), moments)
    made = regression.release(
        sides[0][:, 0],
        sides[0][:, 1],
        **UNIT,
        epsilon=1.0,
        intercept=intercept,
        moments=moments,
        rng=np.random.default_rng(0),
    )
    assert gap <= made.sensitivity["sums"] < gap * 1.002


@pytest.mark.parametrize(("intercept", "moments"), KINDS)
def test_an_audit_at_the_worst_neighbours_does_not_refute_epsilon(intercept, moments):
    """The bound exceeds the true epsilon with probability at most 1e-3; it must also see a quarter of it."""
    _, sides, score = worst_pair(Layout(1, intercept), moments)

    def noisy(rows, rng):
        made = regression.release(
            rows[:, 0], rows[:, 1], **UNIT, epsilon=4.0, intercept=intercept, moments=moments, rng=rng
        )
        return float(score(outputs(made)))

    found = epsilon_lower_bound(noisy, *sides, trials=1500, rng=np.random.default_rng(11))
    assert 1.0 < found <= 4.0


def test_an_audit_does_not_refute_the_real_noise():
    """The same through OpenDP's samplers, which a real release uses."""
    _, sides, score = worst_pair(Layout(1, True), False)

    def noisy(rows, rng):
        return float(score(regression.release(rows[:, 0], rows[:, 1], **UNIT, epsilon=4.0)["sums"]))

    found = epsilon_lower_bound(noisy, *sides, trials=1000, rng=np.random.default_rng(12))
    assert 1.0 < found <= 4.0


def many_runs(sides, score, claimed, intercept=True, moments=False):
    """Audit 200,000 runs at the scale and around the sums of one release each (whose noise is tested above)."""

    def noisy(rows, rng, trials):
        settings = {**UNIT, "intercept": intercept, "moments": moments, "rng": rng}
        made = regression.release(rows[:, 0], rows[:, 1], **settings, epsilon=claimed)
        exact = regression.release(rows[:, 0], rows[:, 1], **settings, epsilon=1e12)
        size = (trials, len(outputs(exact)))
        return score(outputs(exact) + rng.laplace(scale=made.scale["sums"], size=size))

    return epsilon_lower_bound(noisy, *sides, trials=200_000, batched=True, rng=np.random.default_rng(13))


@pytest.mark.parametrize(("intercept", "moments"), KINDS)
def test_with_many_runs_an_audit_finds_most_of_epsilon_and_not_more(intercept, moments):
    """More than half of it, and it catches the mutant of release with noise for two thirds of the sensitivity."""
    _, sides, score = worst_pair(Layout(1, intercept), moments)
    assert 0.5 < many_runs(sides, score, 1.0, intercept, moments) <= 1.0
    assert many_runs(sides, score, 1.5, intercept, moments) > 1.0


# In the data's own units on [1, 2], where a record's widths say nothing of its products.
RAW = [
    pytest.param(lambda x, y: np.array([x, y, x * x, x * y, y * y]), 11.0, 6.0, id="with intercept"),
    pytest.param(lambda x, y: np.array([x * x, x * y, y * y]), 9.0, 3.0, id="without intercept"),
    pytest.param(lambda x, y: np.array([x, x**2, x**3, x**4]), 26.0, 5.0, id="fourth moments"),
]


@pytest.mark.parametrize(("statistics", "exact", "printed"), RAW)
def test_an_audit_catches_the_sources_widths_on_bounds_from_1_to_2(statistics, exact, printed):
    """The exact sensitivity of the raw sums passes (wrongly refuted with probability 1e-3), the widths' does not."""
    known = {
        11.0: second_moments([1, 1], [2, 2], intercept=True),
        9.0: second_moments([1, 1], [2, 2], intercept=False),
        26.0: fourth_moments(1, 2, response=False),
    }
    assert known[exact] == exact
    sides = [statistics(1.5, 1.5) + statistics(end, end) for end in (2.0, 1.0)]
    score = likelihood_ratio(*sides)

    def found(sensitivity):
        def noisy(sums, rng, trials):
            many = np.broadcast_to(sums, (trials, len(sums)))
            return score(laplace(many, sensitivity=sensitivity, epsilon=1.0, rng=rng))

        return epsilon_lower_bound(noisy, *sides, trials=100_000, batched=True, rng=np.random.default_rng(14))

    assert 0.7 < found(exact) <= 1.0 < found(printed)


# ---------------------------------------------------------------------------------------------------------------------
# The budget first, and errors before it


def test_the_budget_is_charged_before_noise_is_drawn():
    X, y = data()
    budget = PrivacyBudget(1.0)
    rng = np.random.default_rng(0)
    regression.release(X, y, **UNIT, epsilon=0.75, rng=rng, budget=budget)
    state = rng.bit_generator.state
    with pytest.raises(BudgetExceeded):
        regression.release(X, y, **UNIT, epsilon=0.75, rng=rng, budget=budget)
    assert rng.bit_generator.state == state
    assert budget.remaining == 0.25


X2, Y2 = data(n=10)
WRONG = [
    (X2, Y2, {"epsilon": 0}, ValueError, "epsilon must be greater than 0"),
    (X2, Y2, {"epsilon": np.nan}, ValueError, "epsilon must be finite"),
    (X2, Y2, {"x_bounds": (1, -1)}, ValueError, "x_bounds must have low < high"),
    (
        X2,
        Y2,
        {"x_bounds": [(0, 1)] * 3},
        ValueError,
        "x_bounds must have one pair for each of the 2 covariates",
    ),
    (X2, Y2, {"y_bounds": "ab"}, TypeError, r"y_bounds\[0\] must be a number"),
    (X2, Y2, {"intercept": 1}, TypeError, "intercept must be True or False"),
    (X2, Y2, {"moments": "yes"}, TypeError, "moments must be True or False"),
    (X2, Y2, {"mechanism": "uniform"}, ValueError, "mechanism must be one of"),
    (X2, Y2, {"delta": 1e-6}, ValueError, "delta must be 0 for the Laplace"),
    (X2, Y2, {"mechanism": "gaussian"}, ValueError, r"delta must lie in \(0, 1\)"),
    (X2, Y2, {"rng": 7}, TypeError, "rng must be None"),
    (X2, Y2[:-1], {}, ValueError, "X and y must have as many rows"),
    (X2, np.column_stack([Y2, Y2]), {}, ValueError, "y must have one column, got 2"),
    (X2, "y", {}, ValueError, "y can name a column only of a table"),
    (pd.DataFrame(X2, columns=["a", "b"]), "c", {}, ValueError, "y must be an array or the name of a column of X"),
    (X2, 5, {}, ValueError, "y must be the position of a column of X"),
    (X2[:, :1], 0, {}, ValueError, "X must have at least one covariate"),
    (np.where(X2[3, 1] == X2, np.nan, X2), Y2, {}, ValueError, "X must have no missing values"),
    (X2, np.where(Y2[3] == Y2, np.nan, Y2), {}, ValueError, "y must have no missing values"),
    (np.ma.masked_array(X2, mask=X2[3, 1] == X2), Y2, {}, ValueError, "X must have no missing values"),
    ([np.ma.masked_array(X2[0], mask=[True, False]), *X2[1:]], Y2, {}, ValueError, "X must have no missing values"),
    (X2, [None, *Y2[1:]], {}, ValueError, "y must have no missing values"),
    (X2, ["1", *Y2[1:].tolist()], {}, TypeError, "y must be numeric"),
    (X2, Y2, {"x_bounds": None}, TypeError, "x_bounds must be given: public bounds"),
    (X2, Y2, {"y_bounds": None}, TypeError, "y_bounds must be given: public bounds"),
    (X2, Y2, {"x_bounds": ([0, 0], [1, 1])}, ValueError, "x_bounds can be read in two ways"),
    (X2, Y2, {"x_bounds": {"a": (0, 1), "b": (0, 1)}}, ValueError, "x_bounds can be a mapping only where"),
    (
        pd.DataFrame(X2, columns=["a", "b"]),
        Y2,
        {"x_bounds": {"a": (0, 1)}},
        ValueError,
        "x_bounds must name the columns",
    ),
    (X2, Y2, {"epsilon": 1e-300}, ValueError, "epsilon must be at least .* for this sensitivity"),
    (X2, Y2, {"mechanism": "gaussian", "delta": 0.1, "epsilon": 1e200}, ValueError, "epsilon must lie between"),
    (X2[:0], Y2[:0], {}, ValueError, "must hold at least one record"),
    (iter([]), "y", {}, ValueError, "X must hold at least one record"),
    (np.array([["a", "b"]]), [1.0], {}, TypeError, "X must be numeric"),
    (X2[:, :0], Y2, {}, ValueError, "X must have at least one column"),
]


@pytest.mark.parametrize(("X", "y", "changes", "error", "message"), WRONG)
def test_what_is_wrong_is_named_before_anything_is_spent(X, y, changes, error, message):
    budget = PrivacyBudget(1.0)
    settings = {**UNIT, "epsilon": 1.0, "rng": np.random.default_rng(0), "budget": budget, **changes}
    with pytest.raises(error, match=message):
        regression.release(X, y, **settings)
    assert budget.remaining == 1.0


@pytest.mark.parametrize(
    ("X", "y"),
    [
        pytest.param(np.ones((5, 3)), np.zeros(5), id="constant columns and response"),
        pytest.param(np.ones((2, 5)), [1e308, -1e308], id="fewer records than covariates, far out of bounds"),
        pytest.param([[1.0]], [1.0], id="one record"),
        pytest.param(np.repeat(np.arange(6.0)[:, None], 2, axis=1), np.arange(6.0), id="rank-deficient"),
        pytest.param(np.array([[True], [False]]), [True, False], id="booleans"),
    ],
)
def test_nothing_about_the_values_raises(X, y):
    made = regression.release(X, y, **UNIT, epsilon=0.1, rng=np.random.default_rng(0))
    assert np.isfinite(made["sums"]).all()


def test_joined_records_keep_their_order():
    rows = np.concatenate(list(join((c for c in (X2[:3], X2[3:])), Y2).chunks()))
    np.testing.assert_array_equal(rows, np.column_stack([X2, Y2]))


# ---------------------------------------------------------------------------------------------------------------------
# The preview


def test_the_preview_states_the_noise_of_the_release():
    X, y = data()
    for mechanism, delta in (("laplace", 0.0), ("gaussian", 1e-6)):
        settings = {
            "x_bounds": (-1, 3),
            "y_bounds": (-8, 8),
            "epsilon": 0.5,
            "mechanism": mechanism,
            "delta": delta,
            "moments": True,
        }
        made = regression.release(X, y, **settings, rng=np.random.default_rng(0))
        look = regression.preview(n=200, d=2, **settings)
        assert look.noise_scale == pytest.approx(made.scale["sums"], rel=1e-8)
        assert look.sensitivity == made.sensitivity["sums"]


def test_the_preview_expects_the_sd_that_inference_finds():
    """Data drawn at the priors' centre, Gaussian noise; the normal approximation is asked to be within 15 %."""
    rng = np.random.default_rng(4)
    x = rng.normal(5, 2.5, size=4000)
    y = 10 + x + rng.normal(scale=2, size=x.size)
    prior = regression.NormalInverseGamma([10, 1], 0.01, 50, 50 * 4)
    covariates = regression.NormalInverseWishart([5], 1, 50 * 2.5**2, 50)
    settings = {"x_bounds": (-10, 20), "y_bounds": (-10, 40), "epsilon": 3.0, "mechanism": "gaussian", "delta": 1e-6}
    look = regression.preview(n=x.size, **settings, prior=prior, covariates=covariates)
    made = regression.release(x, y, **settings, rng=rng)
    found = regression.infer(
        made, prior, method="gibbs-update", covariates=covariates, rng=rng, draws=6000, chains=60, thin=15, burn_in=300
    )
    np.testing.assert_allclose(look.posterior_sd, found.sd("theta"), rtol=0.15)
    exact = regression.infer_nonprivate(x, y, prior, rng=rng)
    np.testing.assert_allclose(look.nonprivate_sd, exact.sd("theta"), rtol=0.1)
    assert min(look.posterior_sd[1], found.sd("theta")[1]) > 1.5 * look.nonprivate_sd[1]


def test_the_preview_approaches_no_privacy_as_n_grows():
    looks = [regression.preview(n=n, x_bounds=(0, 1), y_bounds=(0, 1), epsilon=1.0) for n in (10**2, 10**4, 10**8)]
    ratios = [look.posterior_sd[1] / look.nonprivate_sd[1] for look in looks]
    assert ratios[0] > ratios[1] > ratios[2] > 0.999
    assert ratios[2] == pytest.approx(1, abs=1e-3)
    assert looks[2].break_even_n == pytest.approx(looks[1].break_even_n, rel=0.2)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n": 0}, ValueError, "n must be at least 1"),
        ({"d": 0}, ValueError, "d must be at least 1"),
        ({"prior": 3}, TypeError, "prior must be a regression.NormalInverseGamma"),
        ({"epsilon": -1}, ValueError, "epsilon must be greater than 0"),
        ({"prior": regression.NormalInverseGamma([0, 0, 0], 1, 1, 1)}, ValueError, "prior must be for 2 coefficients"),
    ],
)
def test_the_preview_names_what_is_wrong(changes, error, message):
    with pytest.raises(error, match=message):
        regression.preview(**{"n": 10, **UNIT, "epsilon": 1.0, **changes})
