"""Exact sums: the same records give the same integers in any order, any chunking and any container."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpbook import records
from dpbook._columns import pieces_of
from dpbook.records import ExactSum, as_chunks, code_chunks, exact_sum, grid_unit

Array = NDArray[np.float64]


def clipped(rows: Array) -> Array:
    return np.clip(rows, -1.0, 1.0)


def moments(rows: Array) -> Array:
    """First and second moments of two columns in [-1, 1]: five statistics."""
    x, y = np.clip(rows, -1.0, 1.0).T
    return np.column_stack([x, y, x * x, x * y, y * y])


def same(left: ExactSum, right: ExactSum) -> bool:
    return left.totals.tolist() == right.totals.tolist() and (left.unit, left.n) == (right.unit, right.n)


def table(n: int, seed: int = 0) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(seed).normal(0.0, 0.7, size=(n, 2)), columns=["x", "y"])


numbers = st.floats(-2.0, 2.0, allow_nan=False)


# The grid


@given(st.floats(2.0**-900, 2.0**900))
def test_the_grid_unit_is_the_power_of_two_the_formula_says(magnitude: float) -> None:
    unit = grid_unit(magnitude)
    assert math.frexp(unit)[0] == 0.5
    assert Fraction(magnitude) <= Fraction(unit) * 2**32 < 2 * Fraction(magnitude)


def test_a_magnitude_whose_totals_could_overflow_is_refused_whatever_the_records() -> None:
    largest = 2.0**990
    unit = grid_unit(largest)
    most = ExactSum(np.array([2**33 * (2**30 - 1)]), unit, 2**30 - 1)  # the largest total that can be
    assert np.isfinite(most.values).all()
    for magnitude in (math.nextafter(largest, math.inf), 1.7e308, math.nextafter(2.0**-991, 0.0), 5e-324):
        with pytest.raises(ValueError, match=r"^magnitude must lie between 2\*\*-990 and 2\*\*990"):
            grid_unit(magnitude)


@pytest.mark.parametrize(
    ("magnitude", "exponent"),
    [(1.0, -32), (2.0, -31), (math.nextafter(2.0, 3.0), -30), (math.nextafter(2.0, 1.0), -31), (100.0, -25)],
)
def test_the_grid_unit_is_exact_next_to_a_power_of_two(magnitude: float, exponent: int) -> None:
    assert grid_unit(magnitude) == 2.0**exponent


@pytest.mark.parametrize("magnitude", [0.0, -1.0, math.nan, math.inf, 1e-305])
def test_the_grid_unit_refuses_a_magnitude_without_a_grid(magnitude: float) -> None:
    with pytest.raises(ValueError, match="magnitude"):
        grid_unit(magnitude)


# Exactness


@given(st.lists(numbers, min_size=1, max_size=60), st.data())
def test_any_chunking_and_any_order_give_the_identical_sum(values: list[float], data: st.DataObject) -> None:
    whole = exact_sum(values, clipped, unit=2.0**-32)
    shuffled = data.draw(st.permutations(values))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=8)))
    ends = [0, *cuts, len(values)]
    pieces = (np.array(shuffled[start:stop]) for start, stop in itertools.pairwise(ends))
    assert same(exact_sum(pieces, clipped, unit=2.0**-32), whole)


@given(st.lists(numbers, min_size=1, max_size=60), st.sampled_from([2.0**-32, 2.0**-10, 0.25]))
def test_the_total_is_the_correctly_rounded_sum_of_the_rounded_values(values: list[float], unit: float) -> None:
    # Python's round() on a Fraction is a second implementation of rounding half to even.
    rounded = [round(Fraction(min(max(value, -1.0), 1.0)) / Fraction(unit)) for value in values]
    result = exact_sum(values, clipped, unit=unit)
    assert result.totals.tolist() == [sum(rounded)]
    assert result.values[0] == math.fsum(multiple * unit for multiple in rounded)
    assert result.n == len(values)


def test_float_sums_depend_on_the_order_where_exact_sums_do_not() -> None:
    x = table(20_000)["x"].to_numpy()
    orders = [x, x[::-1], np.sort(x)]
    assert len({float(np.cumsum(np.clip(order, -1, 1))[-1]) for order in orders}) > 1
    assert len({exact_sum(order, clipped, unit=2.0**-32).totals.item() for order in orders}) == 1


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30), st.tuples(numbers, numbers))
def test_replacing_one_record_moves_a_total_by_at_most_the_range_and_one_unit(
    rows: list[tuple[float, float]], other: tuple[float, float]
) -> None:
    unit = 2.0**-4  # coarse, so that the slack of the grid is felt
    before, after = (exact_sum(data, moments, unit=unit).values for data in (rows, [other, *rows[1:]]))
    exact = moments(np.array([other]))[0] - moments(np.array([rows[0]]))[0]
    assert (np.abs(after - before) <= np.abs(exact) + unit).all()


def test_totals_beyond_the_range_of_a_float_stay_exact() -> None:
    rows = 2**22
    result = exact_sum((np.ones(2**14) for _ in range(rows // 2**14)), clipped, unit=2.0**-33)
    assert result.totals.item() == rows * 2**33 > 2**53
    odd = exact_sum(itertools.chain([np.array([2.0**-33])], [np.ones(2**20)] * 2), clipped, unit=2.0**-33)
    assert odd.totals.item() == 2**54 + 1  # a float total would drop the last unit


# Containers


def containers(frame: pd.DataFrame) -> dict[str, Any]:
    array = frame.to_numpy()
    return {
        "list of rows": array.tolist(),
        "tuple of rows": tuple(map(tuple, array.tolist())),
        "array": array,
        "column-major array": np.asfortranarray(array),
        "data frame": frame,
        "nullable data frame": frame.convert_dtypes(),
        "chunks of a data frame": (frame.iloc[i : i + 999] for i in range(0, len(frame), 999)),
        "chunks of arrays, one empty": iter([array[:10], array[:0], array[10:]]),
        "records backwards": array[::-1],
    }


@pytest.mark.parametrize("form", list(containers(table(3))))
def test_every_container_gives_the_identical_sum(form: str) -> None:
    frame = table(40_000)  # more rows than one block
    unit = grid_unit(1.0)
    multiples = np.rint(moments(frame.to_numpy()) / unit).astype(np.int64)
    expected = ExactSum(multiples.sum(axis=0), unit, 40_000)
    assert same(exact_sum(containers(frame)[form], moments, unit=unit), expected)


@pytest.mark.parametrize(
    "pairs",
    [
        lambda x, y: zip(x, y, strict=True),
        lambda x, y: ((a, b) for a, b in zip(x, y, strict=True)),
        lambda x, y: pd.DataFrame({"x": x, "y": y}).itertuples(index=False),
        lambda x, y: iter([(1, None)]),
    ],
)
def test_an_iterator_of_tuples_is_neither_taken_for_chunks_nor_for_records(pairs: Any) -> None:
    x, y = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
    with pytest.raises(TypeError, match=r"X is an iterator of tuples, as zip makes one.* pass list"):
        exact_sum(pairs(x, y), clipped, unit=2.0**-32, name="X")
    with pytest.raises(TypeError, match="X is an iterator of tuples"):
        list(pieces_of(pairs(x, y), "X"))
    assert exact_sum(list(zip(x, y, strict=True)), clipped, unit=2.0**-32).n == 3
    assert exact_sum(iter([tuple(zip(x, y, strict=True))]), clipped, unit=2.0**-32).n == 3  # a tuple of rows is a chunk


def test_one_dimensional_data_are_one_column() -> None:
    series = table(100)["x"]
    whole = exact_sum(series.to_numpy(), clipped, unit=2.0**-32)
    for form in (series, series.tolist(), series.to_frame(), series.to_numpy()[:, None], iter([series])):
        assert same(exact_sum(form, clipped, unit=2.0**-32), whole)


def test_booleans_and_integers_count() -> None:
    for data in ([True, False, True], np.array([1, 0, 1], dtype=np.uint8), pd.Series([True, False, True])):
        assert exact_sum(data, clipped, unit=0.5).values.tolist() == [2.0]


def test_columns_select_by_name_and_in_the_order_given() -> None:
    frame = table(500).assign(label="text")
    expected = exact_sum(frame[["y", "x"]].to_numpy(), moments, unit=2.0**-32)
    assert same(exact_sum(frame, moments, unit=2.0**-32, columns=["y", "x"]), expected)
    one = exact_sum(frame, clipped, unit=2.0**-32, columns="x")
    assert same(one, exact_sum(frame["x"], clipped, unit=2.0**-32))


def test_arrow_tables_and_batches_give_the_identical_sum() -> None:
    arrow = pytest.importorskip("pyarrow")
    frame = table(40_000)
    expected = exact_sum(frame, moments, unit=2.0**-32)
    held = arrow.Table.from_pandas(frame)
    batch = held.combine_chunks().to_batches()[0]
    for form in (held, batch, iter(held.to_batches(max_chunksize=7_000)), held.to_reader()):
        assert same(exact_sum(form, moments, unit=2.0**-32), expected)
    one = exact_sum(frame["y"], clipped, unit=2.0**-32)
    assert same(exact_sum(held, clipped, unit=2.0**-32, columns="y"), one)
    for form in (held["y"], batch.column(1), arrow.array(frame["y"])):  # a ChunkedArray and two Arrays
        assert same(exact_sum(form, clipped, unit=2.0**-32), one)
    for missing in (arrow.table({"x": [True, None]}), arrow.array([1, None]), arrow.chunked_array([[1.0], [None]])):
        with pytest.raises(ValueError, match="data must have no missing values"):
            exact_sum(missing, clipped, unit=0.5)
    with pytest.raises(TypeError, match="data must be numeric"):
        exact_sum(arrow.table({"x": ["1"]}), clipped, unit=0.5)
    with pytest.raises(TypeError, match="data is a pyarrow Schema, which is not read"):
        exact_sum(held.schema, clipped, unit=0.5)


def test_polars_is_read_through_arrow_or_refused_by_name() -> None:
    """Stand-ins: what polars is known by is its module's name and Arrow's stream protocol."""
    arrow = pytest.importorskip("pyarrow")

    class DataFrame:
        __module__ = "polars.dataframe.frame"

        def __init__(self, held: Any) -> None:
            self._held = held

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self._held.__arrow_c_stream__(requested_schema)

    LazyFrame = type("LazyFrame", (), {"__module__": "polars.lazyframe.frame"})

    frame = table(500)
    held = arrow.Table.from_pandas(frame)
    assert same(exact_sum(DataFrame(held), moments, unit=2.0**-32), exact_sum(frame, moments, unit=2.0**-32))
    column = exact_sum(frame["y"], clipped, unit=2.0**-32)
    assert same(exact_sum(DataFrame(held), clipped, unit=2.0**-32, columns="y"), column)
    assert same(exact_sum(DataFrame(held["y"]), clipped, unit=2.0**-32), column)
    with pytest.raises(ValueError, match="data must have no missing values"):
        exact_sum(DataFrame(arrow.table({"x": [1, None]})), clipped, unit=0.5)
    with pytest.raises(TypeError, match=r"survey is a polars LazyFrame, .* to_pandas\(\)"):
        exact_sum(LazyFrame(), clipped, unit=0.5, name="survey")


def test_dask_collections_give_the_identical_sum() -> None:
    dataframe, array = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask.array")
    frame = table(30_000)
    expected = exact_sum(frame, moments, unit=2.0**-32)
    lazy = dataframe.from_pandas(frame, npartitions=5)
    split = array.from_array(frame.to_numpy(), chunks=(4_000, 1))  # columns in different blocks
    for form in (lazy, split, lazy.to_dask_array(), lazy[lazy["x"] < 99.0]):
        assert same(exact_sum(form, moments, unit=2.0**-32), expected)
    assert same(exact_sum(lazy["x"], clipped, unit=2.0**-32), exact_sum(frame["x"], clipped, unit=2.0**-32))
    swapped = exact_sum(frame[["y", "x"]], moments, unit=2.0**-32)
    assert same(exact_sum(lazy, moments, unit=2.0**-32, columns=["y", "x"]), swapped)
    np.testing.assert_array_equal(np.concatenate(list(as_chunks(lazy))), frame.to_numpy())


def test_dask_sends_back_integers_and_no_records() -> None:
    dask = pytest.importorskip("dask")
    dataframe = pytest.importorskip("dask.dataframe")
    local = pytest.importorskip("dask.local")
    returned: list[Any] = []

    def scheduler(graph: Any, keys: Any, **options: Any) -> Any:
        results = local.get_sync(graph, keys, **options)
        returned.extend(results)
        return results

    lazy = dataframe.from_pandas(table(1_000), npartitions=4)
    with dask.config.set(scheduler=scheduler):
        exact_sum(lazy, moments, unit=2.0**-32)
    assert [(totals.dtype, totals.shape) for totals, _ in returned] == [(np.dtype(np.int64), (5,))] * 4
    assert sum(rows for _, rows in returned) == 1_000


def test_dask_errors_name_the_argument() -> None:
    dataframe = pytest.importorskip("dask.dataframe")
    dask = pytest.importorskip("dask")
    lazy = dataframe.from_pandas(table(30).assign(z=[math.nan] + [0.0] * 29), npartitions=3)
    with pytest.raises(ValueError, match="survey must have no missing values"):
        exact_sum(lazy, clipped, unit=2.0**-32, name="survey")
    with (
        dask.config.set(scheduler=lambda *_, **__: pytest.fail("computed before the columns were checked")),
        pytest.raises(ValueError, match="columns must each occur once in survey"),
    ):
        exact_sum(lazy, clipped, unit=2.0**-32, columns=["w"], name="survey")
    with pytest.raises(ValueError, match="at least one record"):
        exact_sum(lazy[lazy["x"] > 99.0], clipped, unit=2.0**-32)
    with pytest.raises(TypeError, match="data must be a Dask"):
        exact_sum(dask.delayed(1), clipped, unit=2.0**-32)


def test_neither_dask_nor_arrow_is_imported_for_arrays_and_frames() -> None:
    code = (
        "import sys, numpy as np, pandas as pd; before = set(sys.modules); import dpbook.records as r; "
        "r.exact_sum(np.ones(3), lambda rows: rows, unit=0.5); "
        "r.exact_sum(pd.Series([1.0]), lambda rows: rows, unit=0.5); "
        "print([m for m in set(sys.modules) - before if m.split('.')[0] in ('dask', 'pyarrow')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_memory_stays_flat_in_the_length_of_a_stream() -> None:
    def stream(chunks: int) -> Iterator[Array]:
        rng = np.random.default_rng(1)
        return (rng.normal(size=(10_000, 2)) for _ in range(chunks))

    def peak(chunks: int) -> int:
        tracemalloc.start()
        exact_sum(stream(chunks), moments, unit=2.0**-32)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(1)  # imports and caches
    assert peak(100) < 1.1 * peak(10)  # 10**6 rows against 10**5


def test_a_large_array_is_read_in_blocks() -> None:
    data = np.zeros((500_000, 2))
    tracemalloc.start()
    exact_sum(data, moments, unit=2.0**-32)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < data.nbytes  # the statistics of all rows at once would take 2.5 times the data


def test_the_data_of_the_caller_cannot_be_overwritten() -> None:
    def careless(rows: Array) -> Array:
        return np.clip(rows, -1.0, 1.0, out=rows)

    data = np.full(3, 5.0)
    with pytest.raises(ValueError, match="read-only"):
        exact_sum(data, careless, unit=2.0**-32)
    assert data.flags.writeable
    assert data.tolist() == [5.0] * 3


def test_the_totals_cannot_be_overwritten() -> None:
    with pytest.raises(ValueError, match="read-only"):
        exact_sum([1.0], clipped, unit=0.5).totals[0] = 0


# Two collections, side by side


def test_two_collections_are_paired_by_position_and_never_by_index() -> None:
    left, right = table(500)[["x"]], table(500)["y"]
    expected = table(500).to_numpy()
    shuffled = right.set_axis(np.random.default_rng(1).permutation(500))
    streams = (left.iloc[i : i + 77] for i in range(0, 500, 77)), iter([right.iloc[:200], right.iloc[200:]])
    for pair in ((left, right), (left, shuffled), (left, right.set_axis([0] * 500)), streams, (left, right.tolist())):
        np.testing.assert_array_equal(np.concatenate(list(as_chunks(records.side_by_side(*pair)))), expected)
    with pytest.raises(ValueError, match="X must be numeric"):
        list(as_chunks(records.side_by_side([[1.0], [1.0, 2.0]], right)))
    with pytest.raises(ValueError, match="b must have 2 columns, got 1"):
        list(as_chunks(records.side_by_side(left, right, ("a", "b"), right_columns=2)))


@pytest.mark.parametrize("longer", [0, 1])
def test_two_collections_of_unequal_lengths_are_refused(longer: int) -> None:
    sides = [np.zeros(150), np.zeros(200)][:: -1 if longer else 1]
    for forms in (sides, [iter([side[:100], side[100:]]) for side in sides], [pd.Series(side) for side in sides]):
        with pytest.raises(ValueError, match="X and y must have as many rows"):
            list(as_chunks(records.side_by_side(*forms)))


# Values beyond all bounds


@pytest.mark.parametrize(
    "far",
    [math.inf, 1.7e308, 2**63, 2**64, 10**400, Fraction(10**400)],
    ids=["inf", "largest", "2**63", "2**64", "10**400", "fraction"],
)
def test_a_value_beyond_the_bounds_counts_as_the_bound_however_far_it_is(far: Any) -> None:
    """Neither an error, nor a warning, nor the type that one value gives an array may tell how far."""
    expected = exact_sum([0.25, 1.0, -1.0], clipped, unit=2.0**-32)
    forms: list[Any] = [[0.25, far, -far], np.array([0.25, far, -far], dtype=object), iter([[0.25], [far, -far]])]
    forms += [pd.Series([0.25, far, -far], dtype=object), pd.DataFrame({"x": [0.25, far, -far]})]
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for form in forms:
            assert same(exact_sum(form, clipped, unit=2.0**-32), expected)


def test_statistics_may_overflow_on_their_way_to_a_clipped_value() -> None:
    """A user who made NumPy raise must not see an error that depends on the records."""
    with np.errstate(all="raise"):
        for value in (1.0, 1.7e308, 5e-324):
            exact_sum([value], lambda rows: np.clip(rows * rows / 1e-300, 0.0, 1.0), unit=2.0**-32)


def test_as_chunks_hands_infinities_on_only_where_asked() -> None:
    assert [chunk.tolist() for chunk in as_chunks([1.0, math.inf], infinite=True)] == [[[1.0], [math.inf]]]
    with pytest.raises(ValueError, match="data must be finite"):
        list(as_chunks([1.0, math.inf]))
    with pytest.raises(ValueError, match="data must have no missing values"):
        list(as_chunks([1.0, math.nan], infinite=True))
    with pytest.raises(ValueError, match="a value lies outside the domain"):
        list(code_chunks([0.0, math.inf], sizes=[2]))


# Errors


@pytest.mark.parametrize(
    "data",
    [
        [1.0, math.nan],
        [1.0, None],
        [[1.0, 2.0], np.ma.masked_array([3.0, 4.0], mask=[False, True])],
        [1.0, np.ma.masked],
        np.array([1.0, None], dtype=object),
        pd.DataFrame({"x": [1.0, None]}),
        pd.DataFrame({"x": [1.0, 2**70, None]}, dtype=object),
        pd.Series([1, None], dtype="Int64"),
        np.ma.masked_array([1.0, 2.0], mask=[False, True]),
        np.ma.masked_array([1, 2], mask=[False, True]),
        iter([[1.0], [math.nan]]),
    ],
)
def test_missing_values_raise_and_name_the_argument(data: Any) -> None:
    with pytest.raises(ValueError, match="survey must have no missing values"):
        exact_sum(data, clipped, unit=2.0**-32, name="survey")


@pytest.mark.parametrize(
    "data",
    [
        ["1", "2"],
        pd.DataFrame({"x": ["a"]}),
        pd.Series(["a"], dtype="category"),
        pd.Series(pd.to_datetime(["2020-01-01"])),
        np.array([1j]),
        pd.Series([1j]),
        np.array([1.0, "2"], dtype=object),
        pd.DataFrame({"x": [1.0, "2"]}, dtype=object),
        np.ma.masked_array(["1", "2"], mask=[False, True]),
        None,
        {"x": [1.0]},
        np.array(["2020-01-01"], dtype="datetime64[D]"),
    ],
)
def test_what_is_not_numeric_raises_and_names_the_argument(data: Any) -> None:
    with pytest.raises(TypeError, match=r"survey( in column 'x')? must be numeric"):
        exact_sum(data, clipped, unit=2.0**-32, name="survey")


def test_a_text_names_a_file_and_is_refused_as_a_chunk() -> None:
    with pytest.raises(FileNotFoundError, match="survey must, as a text or a path, name a file: there is no 'text'"):
        exact_sum("text", clipped, unit=2.0**-32, name="survey")
    with pytest.raises(TypeError, match="survey is an iterator of texts"):
        exact_sum(iter(["text"]), clipped, unit=2.0**-32, name="survey")


@pytest.mark.parametrize("data", [[], np.empty((0, 2)), pd.DataFrame({"x": []}, dtype=float), iter([]), iter([[], []])])
def test_no_records_raise(data: Any) -> None:
    with pytest.raises(ValueError, match="survey must hold at least one record"):
        exact_sum(data, clipped, unit=2.0**-32, name="survey")


def test_a_shape_that_is_no_table_raises() -> None:
    for data, message in [
        (np.zeros((2, 2, 2)), "1 or 2 dimensions"),
        (3.0, "1 or 2 dimensions"),
        (np.zeros((3, 0)), "at least one column"),
    ]:
        with pytest.raises(ValueError, match=f"survey must have {message}"):
            exact_sum(data, clipped, unit=2.0**-32, name="survey")
    with pytest.raises(ValueError, match="survey must be numeric, in rows of equal length"):
        exact_sum([[1.0], [1.0, 2.0]], clipped, unit=2.0**-32, name="survey")


@pytest.mark.parametrize(
    "chunks",
    [
        [np.zeros((2, 2)), np.zeros((2, 3))],
        [pd.DataFrame({"x": [1.0], "y": [2.0]}), pd.DataFrame({"y": [2.0], "x": [1.0]})],
    ],
)
def test_chunks_with_different_columns_raise(chunks: list[Any]) -> None:
    with pytest.raises(ValueError, match="survey must have the same columns in every chunk"):
        exact_sum(iter(chunks), clipped, unit=2.0**-32, name="survey")


@pytest.mark.parametrize("columns", ["w", ["x", "w"], [], ["x", "x"]])
def test_wrong_columns_raise(columns: Any) -> None:
    with pytest.raises(ValueError, match="columns must"):
        exact_sum(table(3), clipped, unit=2.0**-32, columns=columns)


def test_columns_of_an_array_or_of_a_repeated_name_raise() -> None:
    with pytest.raises(ValueError, match="columns selects from a table"):
        exact_sum(np.ones((3, 2)), clipped, unit=2.0**-32, columns=["x"])
    with pytest.raises(ValueError, match="columns must each occur once"):
        exact_sum(pd.DataFrame(np.ones((3, 2)), columns=["x", "x"]), clipped, unit=2.0**-32, columns=["x"])


@pytest.mark.parametrize("unit", [0.1, 3.0, 0.0, -0.5, math.nan])
def test_a_unit_that_is_no_power_of_two_raises(unit: float) -> None:
    with pytest.raises(ValueError, match="unit must be"):
        exact_sum([1.0], clipped, unit=unit)


@pytest.mark.parametrize("value", [2.0**34, -(2.0**34), 1e300])
def test_statistics_too_large_for_the_unit_raise_and_name_it(value: float) -> None:
    with pytest.raises(ValueError, match="unit is too small"):
        exact_sum([value], lambda rows: rows, unit=1.0 if value < 1e299 else 2.0**-500)


def test_the_largest_statistic_of_the_grid_is_taken() -> None:
    assert exact_sum([-100.0], lambda rows: rows, unit=grid_unit(100.0)).values.tolist() == [-100.0]


def test_too_many_records_raise_before_a_total_can_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert records._LARGEST_MULTIPLE * records._MOST_RECORDS < 2**63
    monkeypatch.setattr(records, "_MOST_RECORDS", 5)
    assert exact_sum(np.ones(5), clipped, unit=0.5).n == 5
    with pytest.raises(ValueError, match="at most 5 records"):
        exact_sum(iter([np.ones(3), np.ones(3)]), clipped, unit=0.5)


@pytest.mark.parametrize(
    ("statistics", "message"),
    [
        (lambda rows: rows[:, 0], "statistics must return one row per record"),
        (lambda rows: rows[:1], "statistics must return one row per record"),
        (lambda rows: rows * math.nan, "output of statistics must be finite"),
    ],
)
def test_a_statistics_function_of_the_wrong_kind_raises(statistics: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exact_sum([1.0, 2.0], statistics, unit=2.0**-32)


def test_a_statistics_function_whose_width_changes_raises() -> None:
    widths = iter([1, 2])
    with pytest.raises(ValueError, match="statistics must return the same k"):
        exact_sum(iter([[1.0], [1.0]]), lambda rows: np.zeros((len(rows), next(widths))), unit=0.5)


# Codes of a discrete domain


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=20))
def test_codes_come_back_as_they_went_in(rows: list[tuple[int, int]]) -> None:
    chunks = list(code_chunks(iter([rows[:3], rows[3:]]), sizes=[2, 5]))
    assert np.concatenate(chunks).tolist() == [list(row) for row in rows]
    assert {chunk.dtype for chunk in chunks} == {np.dtype(np.int64)}


@pytest.mark.parametrize("row", [[2, 0], [0, 5], [-1, 0], [0.5, 0], [1e300, 0]])
def test_codes_outside_the_domain_raise(row: list[float]) -> None:
    with pytest.raises(ValueError, match="survey must hold whole codes"):
        list(code_chunks([[0, 0], row], sizes=[2, 5], name="survey"))


def test_codes_need_one_size_per_column() -> None:
    with pytest.raises(ValueError, match="survey must have 2 columns"):
        list(code_chunks([[0, 0, 0]], sizes=[2, 5], name="survey"))
    with pytest.raises(ValueError, match=r"sizes\[1\]"):
        list(code_chunks([[0, 0]], sizes=[2, 0]))
