"""A schema: what it refuses, what it makes of any value in any container, and that it looks at one value at a time."""

from __future__ import annotations

import copy
import dataclasses
import decimal
import fractions
import json
import math
import pickle
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbook import Schema, graphical
from dpbook.graphical import Domain
from dpbook.schema import Category, Flag, Integer, Number

COLUMNS = {
    "age": Number(0, 120),
    "visits": Integer(0, 50),
    "region": Category(["north", "south"], other="elsewhere"),
    "smoker": Flag(),
}
FILLED = Schema(COLUMNS, missing={"age": 40, "visits": 0, "region": "north", "smoker": False})
KEPT = Schema(COLUMNS, missing="category")
STRICT = Schema({**COLUMNS, "region": Category(["north", "south"])})


def values(schema, name, data):
    return schema.apply({**dict.fromkeys(schema.names, [None] * len(data)), name: data})[name].tolist()


# Values --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (31, 31.0),
        (np.int8(31), 31.0),
        (np.float32(0.5), 0.5),
        (True, 1.0),
        (np.bool_(True), 1.0),
        (math.inf, 120.0),
        (-math.inf, 0.0),
        (2**64, 120.0),
        (10**400, 120.0),
        (-(10**400), 0.0),
        (decimal.Decimal("1e400"), 120.0),
        (decimal.Decimal("1.5"), 1.5),
        (fractions.Fraction(1, 4), 0.25),
        (3 + 0j, 3.0),
        (np.array(7.0), 7.0),
        (-0.0, 0.0),
    ],
    ids=lambda v: f"{type(v).__name__} {v}"[:30],
)
def test_numbers_of_any_type_are_clipped(value, expected):
    (found,) = values(FILLED, "age", [value])
    assert found == expected
    assert math.copysign(1, found) == 1


@pytest.mark.parametrize(
    "value",
    [
        *(None, math.nan, pd.NA, pd.NaT, np.ma.masked, decimal.Decimal("sNaN"), np.ma.array(5, mask=True)),
        *("12", "", "inf", b"12", [1], {}, 1j, object()),
        *(np.datetime64("2020"), np.timedelta64(3), np.datetime64("NaT"), pd.Timestamp("2020")),
    ],
    ids=lambda v: type(v).__name__ if type(v) is object else f"{type(v).__name__} {v}"[:30],
)
@pytest.mark.parametrize("name", ["age", "visits", "smoker"])
def test_what_is_no_number_is_missing_where_a_number_is_due(name, value):
    assert values(FILLED, name, [value]) == [FILLED.missing[name]]
    assert math.isnan(values(KEPT, name, [value])[0])
    with pytest.raises(ValueError, match=f"no missing values in column {name!r}"):
        Schema({name: COLUMNS[name]}).apply({name: [value]})


def test_whole_numbers_are_rounded_and_clipped():
    assert values(FILLED, "visits", [2.6, 2.5, -3, 50.4, math.inf, 10**400, "3"]) == [3, 2, 0, 50, 50, 50, 0]


def test_flags_are_true_and_false_and_one_and_zero():
    assert values(FILLED, "smoker", [True, 1, 1.0, np.int8(1), "true", 2, 0.5, math.inf, 0]) == [True] * 4 + [False] * 5


def test_labels_are_known_other_or_missing():
    found = values(
        KEPT, "region", ["north", np.str_("south"), b"south", "North", 3, [1], True, None, math.nan, "missing"]
    )
    assert found == ["north", "south", "south"] + ["elsewhere"] * 4 + ["missing"] * 3
    with pytest.raises(ValueError, match=r"known labels in column 'region'.*other="):
        STRICT.apply([(1, 1, "North", True)])
    codes = Schema({"c": Category([1, 2.5, "1"], other=1)})
    assert codes.apply({"c": [1, 1.0, True, "1", np.int64(1), 2.5, 9, 10**400, "x"]})["c"].tolist() == [
        1, 1, 1, "1", 1, 2.5, 1, 1, 1
    ]  # fmt: skip


def test_one_missing_column_can_be_filled_and_another_refused():
    schema = Schema({"a": Number(0, 1), "b": Number(0, 1)}, missing={"a": 0.5})
    assert schema.apply({"a": [None], "b": [1]})["a"].tolist() == [0.5]
    with pytest.raises(ValueError, match="'b'"):
        schema.apply({"a": [1], "b": [None]})


# Containers ----------------------------------------------------------------------------------------------------------

RECORDS = [
    {"age": 31, "visits": 3, "region": "north", "smoker": True},
    {"age": 200, "visits": -1, "region": "Atlantis", "smoker": False},
    {"age": None, "visits": 7, "region": None, "smoker": None},
    {"age": 50, "visits": 2, "region": "south", "smoker": True},
]


def same(found, expected):
    pd.testing.assert_frame_equal(found, expected, check_categorical=True, check_column_type=True)
    assert isinstance(found.index, pd.RangeIndex)
    assert [str(block.dtype) for block in found._mgr.blocks] == [str(block.dtype) for block in expected._mgr.blocks]


@pytest.mark.parametrize("schema", [FILLED, KEPT], ids=["filled", "kept"])
def test_every_container_of_the_same_records_gives_the_same_frame(schema):
    pa = pytest.importorskip("pyarrow")
    expected = schema.apply(RECORDS)
    table = pd.DataFrame(RECORDS)
    arrow = pa.Table.from_pylist(RECORDS)
    structured = np.array(
        [tuple(row.values()) for row in RECORDS],
        dtype=[("age", object), ("visits", int), ("region", object), ("smoker", object)],
    )
    masked = {
        "age": np.ma.array([31, 200, 77, 50], mask=[0, 0, 1, 0]),
        "visits": [3, -1, 7, 2],
        "region": np.ma.array(["north", "Atlantis", "south", "south"], mask=[0, 0, 1, 0]),
        "smoker": np.ma.array([True, False, True, True], mask=[0, 0, 1, 0]),
    }
    forms = [
        table,
        table[["smoker", "region", "visits", "age"]].assign(unused="x"),
        table.set_index("visits", drop=False),
        table.convert_dtypes(),
        table.convert_dtypes(dtype_backend="pyarrow"),
        table.astype(object),
        table.astype("category"),
        arrow,
        arrow.to_batches(max_chunksize=2),
        arrow.set_column(2, "region", arrow["region"].dictionary_encode()),
        [tuple(row.values()) for row in RECORDS],
        [list(row.values()) for row in RECORDS],
        [{name: value for name, value in row.items() if value is not None} for row in RECORDS],
        [pd.Series(row) for row in RECORDS],
        {name: [row[name] for row in RECORDS] for name in schema.names},
        {name: pd.Series([row[name] for row in RECORDS]) for name in schema.names},
        np.array([list(row.values()) for row in RECORDS], dtype=object),
        structured,
        masked,
        expected,
        Exported(arrow),
    ]
    for form in forms:
        same(schema.apply(form), expected)


class Exported:
    """A table of another library, known by Arrow's interface alone."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def test_a_stream_becomes_a_stream_of_frames_made_one_at_a_time():
    pa = pytest.importorskip("pyarrow")
    read = []

    def chunks():
        for start in (0, 2):
            read.append(start)
            yield RECORDS[start : start + 2]

    stream = KEPT.apply(chunks())
    assert read == []
    first = next(stream)
    assert read == [0]
    same(first, KEPT.apply(RECORDS[:2]))
    same(next(stream), KEPT.apply(RECORDS[2:]))
    reader = pa.Table.from_pylist(RECORDS).to_reader(max_chunksize=2)
    for found, expected in zip(KEPT.apply(reader), (RECORDS[:2], RECORDS[2:]), strict=True):
        same(found, KEPT.apply(expected))


def test_dask_collections_become_dask_frames_of_the_schemas_types():
    dd, da, db = (pytest.importorskip(f"dask.{name}") for name in ("dataframe", "array", "bag"))
    table = pd.DataFrame(RECORDS * 5).convert_dtypes()
    expected = KEPT.apply(table)
    for collection in (dd.from_pandas(table, npartitions=3), db.from_sequence(RECORDS * 5, npartitions=4)):
        made = KEPT.apply(collection)
        assert made.dtypes.to_dict() == KEPT.dtypes
        same(made.compute().reset_index(drop=True), expected)
    numeric = Schema({"a": Number(0, 1), "b": Integer(0, 3)})
    array = np.random.default_rng(0).normal(size=(20, 2))
    made = numeric.apply(da.from_array(array, chunks=(7, 1)))
    same(made.compute().reset_index(drop=True), numeric.apply(array))
    with pytest.raises(ValueError, match="'region'"):
        KEPT.apply(dd.from_pandas(table.drop(columns="region"), npartitions=2))


def test_forms_that_cannot_be_read_are_refused_by_their_form():
    cases = [
        (pd.DataFrame({"age": [1]}), ValueError, "each column of the schema once"),
        (pd.DataFrame([[1, 2]], columns=["age", "age"]), ValueError, "each column of the schema once"),
        (np.zeros((3, 2)), ValueError, "have 4 columns"),
        (np.zeros((3, 2, 2)), ValueError, "1 or 2 dimensions"),
        ({"age": [1], "visits": [1, 2]}, ValueError, "columns of one length"),
        ({"age": 3}, TypeError, "a column must be"),
        ({"age": "text"}, TypeError, "a column must be"),
        (3, TypeError, "data must be a table"),
        ("text", FileNotFoundError, "data must, as a text or a path, name a file"),
    ]
    for data, error, message in cases:
        with pytest.raises(error, match=message):
            KEPT.apply(data)


ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["north", "south", "missing", pd.NA, pd.NaT, 10**400, np.float32(2), np.ma.masked]),
    st.lists(st.integers(), max_size=2),
    st.binary(max_size=2),
    st.complex_numbers(),
    st.datetimes(),
    st.decimals(),
)


@pytest.mark.parametrize("schema", [FILLED, KEPT], ids=["filled", "kept"])
@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(st.lists(st.tuples(ANY, ANY, ANY, ANY), min_size=1, max_size=8))
def test_what_becomes_of_a_record_does_not_depend_on_the_others(schema, rows):
    """All records together, in rows and in the columns of a frame, are what each is by itself."""
    alone = [schema.apply([row]).astype(object).iloc[0].tolist() for row in rows]
    together = schema.apply(rows)
    assert together.dtypes.to_dict() == schema.dtypes
    assert [repr(row) for row in together.astype(object).to_numpy().tolist()] == [repr(row) for row in alone]
    frame = pd.DataFrame(rows, columns=list(schema.names))
    same(schema.apply(frame), together)
    same(schema.apply(together), together)


# Made-up records -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [FILLED, KEPT, STRICT], ids=["filled", "kept", "strict"])
def test_made_up_records_are_records_of_the_schema(schema):
    made = schema.example(500, rng=np.random.default_rng(1))
    same(schema.apply(made), made)
    assert made.dtypes.to_dict() == schema.dtypes
    assert made["age"].between(0, 120).sum() + made["age"].isna().sum() == 500
    assert set(made["region"]) == set(schema.dtypes["region"].categories)
    assert set(made["visits"].dropna()) == set(range(51))
    assert len(schema.example(0)) == 0
    same(schema.example(5, rng=np.random.default_rng(2)), schema.example(5, rng=np.random.default_rng(2)))


def test_wide_bounds_do_not_overflow():
    made = Schema({"x": Number(-1.7e308, 1.7e308)}).example(100, rng=np.random.default_rng(1))["x"]
    assert np.isfinite(made).all()
    assert np.abs(made).max() > 1e308


# The schema itself ---------------------------------------------------------------------------------------------------


def test_properties_say_what_is_public():
    assert STRICT.names == ("age", "visits", "region", "smoker")
    assert STRICT.kinds == {"age": "number", "visits": "integer", "region": "category", "smoker": "flag"}
    assert STRICT.bounds == {"age": (0.0, 120.0), "visits": (0, 50), "smoker": (0, 1)}
    assert STRICT.cardinalities == {"visits": 51, "region": 2, "smoker": 2}
    assert KEPT.cardinalities == {"visits": 52, "region": 4, "smoker": 3}
    assert KEPT.dtypes["region"].categories.tolist() == ["north", "south", "elsewhere", "missing"]


def test_a_schema_is_frozen_and_compares_and_copies_by_value():
    for schema in (FILLED, KEPT, STRICT):
        for twin in (pickle.loads(pickle.dumps(schema)), copy.deepcopy(schema), Schema.from_json(schema.to_json())):
            assert twin == schema
            assert hash(twin) == hash(schema)
            assert list(twin.columns) == list(schema.columns)
        assert eval(repr(schema)) == schema
    assert FILLED != KEPT
    assert KEPT != "schema"
    assert Schema({"a": Flag(), "b": Flag()}) != Schema({"b": Flag(), "a": Flag()})  # frames have another order
    with pytest.raises(dataclasses.FrozenInstanceError):
        KEPT.missing = "refuse"
    with pytest.raises(TypeError):
        KEPT.columns["age"] = Flag()
    with pytest.raises(TypeError):
        FILLED.missing["age"] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        KEPT.columns["age"].low = -1


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Number(1, 0), ValueError, "low must be less than high"),
        (lambda: Number("0", 1), TypeError, "low must be a number"),
        (lambda: Number(0, math.inf), ValueError, "high must be finite"),
        (lambda: Integer(0, 2.5), TypeError, "high must be a whole number"),
        (lambda: Integer(3, 3), ValueError, "low must be less than high"),
        (lambda: Integer(0, 2**54), ValueError, r"high must be at most 2\*\*53"),
        (lambda: Integer(-(2**54), 0), ValueError, "low must be at least"),
        (lambda: Category("ab"), TypeError, "labels must be a sequence"),
        (lambda: Category({"a", "b"}), TypeError, "labels must be a sequence"),
        (lambda: Category(3), TypeError, "labels must be a sequence"),
        (lambda: Category([]), ValueError, "labels must hold at least one"),
        (lambda: Category(["a", "a"]), ValueError, "labels must be different"),
        (lambda: Category([1, 1.0]), ValueError, "labels must be different"),
        (lambda: Category([True, False]), TypeError, "labels must be strings or numbers.*Flag"),
        (lambda: Category([math.nan]), ValueError, "labels must be numbers of magnitude"),
        (lambda: Category([2**60]), ValueError, "labels must be numbers of magnitude"),
        (lambda: Category([None]), TypeError, "labels must be strings or numbers"),
        (lambda: Category(["a"], other=["b"]), TypeError, "other must be strings or numbers"),
        (lambda: Schema({}), TypeError, "columns must map names"),
        (lambda: Schema([("a", Flag())]), TypeError, "columns must map names"),
        (lambda: Schema({"": Flag()}), TypeError, "columns must have non-empty strings"),
        (lambda: Schema({1: Flag()}), TypeError, "columns must have non-empty strings"),
        (lambda: Schema({"a": Flag}), TypeError, r"columns\['a'\] must be a Number"),
        (lambda: Schema({"a": (0, 1)}), TypeError, r"columns\['a'\] must be a Number"),
        (lambda: Schema({"a": Flag()}, missing="drop"), ValueError, "missing must be 'refuse', 'category'"),
        (lambda: Schema({"a": Flag()}, missing=None), ValueError, "missing must be 'refuse', 'category'"),
        (lambda: Schema({"a": Flag()}, missing={"b": True}), ValueError, "missing must name columns among"),
        (lambda: Schema({"a": Flag()}, missing={"a": 1}), TypeError, r"missing\['a'\] must be True or False"),
        (lambda: Schema({"a": Number(0, 1)}, missing={"a": 2}), ValueError, r"missing\['a'\] must lie between"),
        (lambda: Schema({"a": Integer(0, 1)}, missing={"a": 0.5}), TypeError, r"missing\['a'\] must be a whole"),
        (lambda: Schema({"a": Integer(0, 1)}, missing={"a": 2}), ValueError, r"missing\['a'\] must lie between"),
        (lambda: Schema({"a": Category(["x"])}, missing={"a": "y"}), ValueError, r"missing\['a'\] must be one of"),
        (lambda: Schema({"a": Category(["missing"])}, missing="category"), ValueError, r"columns\['a'\] has already"),
        (lambda: KEPT.example(-1), ValueError, "n must be at least 0"),
        (lambda: KEPT.example(1, rng=3), TypeError, "rng must be None"),
    ],
)
def test_arguments_that_cannot_work_are_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()


GOOD = json.loads(STRICT.to_json())


def column(**changes):
    return {"format": GOOD["format"], "columns": [{"name": "a", "kind": "number", "low": 0, "high": 1} | changes]}


HOSTILE = [
    "",
    "{",
    "null",
    "[]",
    "[" * 100_000,
    '{"format": ' * 100_000,
    "3",
    '"text"',
    '{"format": "dpbook.Release/1"}',
    '{"format": "dpbook.Schema/1", "format": "dpbook.Schema/1"}',
    json.dumps({**GOOD, "more": 1}),
    json.dumps({**GOOD, "columns": {}}),
    json.dumps({**GOOD, "columns": 3}),
    json.dumps({**GOOD, "columns": [3]}),
    json.dumps({**GOOD, "columns": ["abc"]}),
    json.dumps({**GOOD, "columns": []}),
    json.dumps({**GOOD, "columns": GOOD["columns"] * 2}),
    json.dumps({**GOOD, "missing": None}),
    json.dumps({**GOOD, "missing": ["age"]}),
    json.dumps({**GOOD, "missing": {"age": "x"}}),
    *(
        json.dumps({**column(**changes), "missing": "refuse"})
        for changes in (
            {"low": True},
            {"low": "0"},
            {"low": None},
            {"low": 2},
            {"high": [1]},
            {"high": 10**400},
            {"kind": "text"},
            {"kind": ["number"]},
            {"name": 3},
            {"name": ""},
            {"name": None},
            {"more": 1},
            {"kind": "category"},
        )
    ),
    json.dumps({**column(), "missing": "refuse"}).replace('"high": 1', '"high": NaN'),
    json.dumps({**column(), "missing": "refuse"}).replace('"high": 1', '"high": 1e999'),
    json.dumps({**column(), "missing": "refuse"}).replace('"high": 1', '"high": 1, "high": 2'),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_a_value_error(text):
    with pytest.raises(ValueError, match="text"):
        Schema.from_json(text)


@pytest.mark.parametrize("text", [None, 3, b"{}", {}])
def test_what_is_no_text_is_a_value_error(text):
    with pytest.raises(ValueError, match="text must be a string"):
        Schema.from_json(text)


# Domains of discrete models ------------------------------------------------------------------------------------------


def test_a_domain_is_made_from_a_schema():
    schema = Schema(
        {
            "age": Integer(0, 2),
            "year": Integer(2019, 2021),
            "smoker": Flag(),
            "region": Category(["n", "s"], other="x"),
        },
        missing={"region": "x"},
    )
    domain = Domain.of(schema)
    assert domain == Domain.of({"age": 3, "year": [2019, 2020, 2021], "smoker": 2, "region": ["n", "s", "x"]})
    records = schema.apply([(5, 2018, True, "Atlantis"), (1, 2020.0, 0, None)] * 20)
    release = graphical.release(records, schema, [("age", "region"), ("year", "smoker")], epsilon=1e9)
    assert np.rint(release["year,smoker"]).tolist() == [[0, 20], [20, 0], [0, 0]]
    assert np.rint(release["age,region"]).tolist() == [[0, 0, 0], [0, 0, 20], [0, 0, 20]]
    kept = Domain.of(Schema({"region": Category(["n", "s"])}, missing="category"))
    assert kept.labels == (("n", "s", "missing"),)


@pytest.mark.parametrize(
    ("columns", "missing", "message"),
    [
        ({"a": Number(0, 1)}, "refuse", r"domain\['a'\] must have finitely many states.*bin it"),
        ({"a": Integer(1, 10**7)}, "refuse", "bin it"),
        ({"a": Category(["only"])}, "refuse", "two states or more"),
    ],
)
def test_a_schema_without_finitely_many_states_makes_no_domain(columns, missing, message):
    with pytest.raises(ValueError, match=message):
        Domain.of(Schema(columns, missing=missing))


def test_in_the_domain_of_a_schema_a_missing_value_may_be_a_state_of_any_column():
    schema = Schema({"a": Integer(1, 2), "b": Flag(), "c": Category(["x", "y"])}, missing="category")
    assert Domain.of(schema).labels == ((1, 2, "missing"), (0, 1, "missing"), ("x", "y", "missing"))


def test_a_million_records_of_clean_types_take_about_a_second():
    """The bound is loose, for a busy machine: a loop over values in Python would take five times as long."""
    rng, n = np.random.default_rng(0), 10**6
    table = pd.DataFrame(
        {
            "age": rng.normal(50, 50, n),
            "visits": rng.integers(0, 100, n),
            "region": pd.Categorical.from_codes(rng.integers(0, 2, n), ["north", "south"]),
            "smoker": rng.random(n) < 0.5,
        }
    ).assign(score=rng.random(n))
    schema = Schema({**COLUMNS, "score": Number(0, 1)})
    start = time.process_time()
    assert len(schema.apply(table)) == n
    assert time.process_time() - start < 2.5
