"""What a partition is shown depends on its own records alone: generated tables, one replaced record, many containers.

Every test is derandomised, so it draws the same cases each time. The last part breaks the package on purpose and sees
the checks fail.
"""

from __future__ import annotations

import datetime
import decimal
import zlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from dpbook import Schema
from dpbook.aggregate import (
    ConjugateRegression,
    FromSampler,
    IndependentPrior,
    NormalInverseGamma,
    SemiConjugateRegression,
    partition_frames,
    partition_labels,
    partition_probabilities,
    partition_quantiles,
)
from dpbook.aggregate import asking as asking_module
from dpbook.aggregate import regression as regression_module
from dpbook.aggregate import splitting as splitting_module
from dpbook.schema import Category, Flag, Integer, Number

pa = pytest.importorskip("pyarrow")

CASES = settings(
    max_examples=120, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
NAMES = ("a", "b")


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# What a fit could see of a frame -------------------------------------------------------------------------------------


def look(frame):
    """Everything about a frame, memory layout included, that could tell one frame from another."""
    blocks = [
        (str(block.dtype), block.mgr_locs.as_array.tolist(), block.shape, strides(block.values))
        for block in frame._mgr.blocks
    ]
    columns = [(str(frame.dtypes.iloc[j]), contents(frame.iloc[:, j])) for j in range(frame.shape[1])]
    header = (type(frame.columns).__name__, str(frame.columns.dtype), frame.columns.tolist(), frame.columns.names)
    index = (type(frame.index).__name__, str(frame.index.dtype), frame.index.tolist(), frame.index.names)
    return repr((header, index, columns, blocks, frame.attrs))


def strides(values):
    array = values.codes if isinstance(values, pd.Categorical) else values
    return array.strides, array.flags.c_contiguous, array.flags.writeable


def contents(series):
    if isinstance(series.dtype, pd.CategoricalDtype):
        known = series.cat
        return str(known.categories.dtype), known.categories.tolist(), known.ordered, known.codes.to_numpy().tobytes()
    if series.dtype == object:
        return [(type(value).__name__, repr(value)) for value in series]
    return series.to_numpy().tobytes()


def memory(frame):
    return [
        block.values.codes if isinstance(block.values, pd.Categorical) else block.values for block in frame._mgr.blocks
    ]


def check_others(data, neighbour, place, *, partitions=3, seed=0, n, schema=None):
    """Assert that a record replaced at one place leaves every other partition as it was, and none share memory."""
    options = {"partitions": partitions, "schema": schema}
    frames, changed = (partition_frames(form, rng=rng_of(seed), **options) for form in (data, neighbour))
    labels = np.concatenate(list(partition_labels(n, partitions, rng_of(seed))))
    for j, (one, other) in enumerate(zip(frames, changed, strict=True)):
        assert j == labels[place] or look(one) == look(other)
    for j, one in enumerate(frames):
        for other in frames[:j]:
            assert not any(np.shares_memory(a, b) for a in memory(one) for b in memory(other))


# Generated tables ----------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-5, 5),
    st.integers(2**53, 2**70),
    st.booleans(),
    st.floats(),
    st.sampled_from([10**400, -(10**400), np.float32(0.1), np.int8(3), np.bool_(True), decimal.Decimal("1.5")]),
)
TEXT = st.one_of(st.text(alphabet="abcxyz1", max_size=6), st.just("n/a"), st.just("12"))
GAPS = st.sampled_from([None, np.nan, pd.NA, pd.NaT])
MOMENTS = st.one_of(
    st.datetimes(min_value=datetime.datetime(1900, 1, 1), max_value=datetime.datetime(2100, 1, 1)),
    st.sampled_from([pd.Timestamp("2020-01-01").as_unit("s"), pd.Timestamp("2020-01-01 00:00:00.000000001")]),
    st.dates(min_value=datetime.date(1900, 1, 1)),
)
VALUES = st.one_of(NUMBERS, TEXT, GAPS, MOMENTS, st.binary(max_size=3), st.lists(st.integers(0, 3), max_size=2))
COLUMNS = st.sampled_from([NUMBERS, TEXT, MOMENTS, st.one_of(NUMBERS, GAPS), st.one_of(TEXT, GAPS), VALUES])


@st.composite
def tables(draw, values=VALUES, columns=COLUMNS):
    """Draw columns of mostly one kind, a place, and a record of any kind to put there."""
    n = draw(st.integers(6, 12))
    data = [draw(st.lists(draw(columns), min_size=n, max_size=n)) for _ in NAMES]
    place = draw(st.integers(0, n - 1))
    return data, place, [draw(values) for _ in NAMES], draw(st.integers(0, 5))


def replaced(columns, place, record):
    return [[*column[:place], value, *column[place + 1 :]] for column, value in zip(columns, record, strict=True)]


def frame_of(columns):
    return pd.DataFrame(dict(zip(NAMES, columns, strict=True)))


def categories(columns):
    hashable = [[tuple(v) if isinstance(v, list) else v for v in column] for column in columns]
    try:
        return frame_of(hashable).astype("category")
    except (OverflowError, TypeError, ValueError):  # pandas cannot sort such labels
        reject()


def chunks_of(columns):
    rows = list(zip(*columns, strict=True))
    return (pd.DataFrame(rows[start : start + 4], columns=list(NAMES)) for start in range(0, len(rows), 4))


CONTAINERS = {
    "frame": frame_of,
    "frame with a data index": lambda columns: frame_of(columns).set_index("a", drop=False),
    "nullable": lambda columns: frame_of(columns).convert_dtypes(),
    "categories": categories,
    "rows": lambda columns: [list(row) for row in zip(*columns, strict=True)],
    "tuples": lambda columns: list(zip(*columns, strict=True)),
    "dicts": lambda columns: [dict(zip(NAMES, row, strict=True)) for row in zip(*columns, strict=True)],
    "mapping": lambda columns: dict(zip(NAMES, columns, strict=True)),
    "chunks": chunks_of,
}


@pytest.mark.parametrize("container", CONTAINERS)
@CASES
@given(tables())
def test_a_replaced_record_leaves_every_other_partition_as_it_was(container, case):
    columns, place, record, seed = case
    make = CONTAINERS[container]
    check_others(
        make(columns), make(replaced(columns, place, record)), place, seed=seed, n=len(columns[0]), partitions=3
    )


SCHEMA = Schema({"a": Number(-3, 4), "b": Category(["a", "n/a", 2], other="else")}, missing="category")
MAPPED = Schema({"b": Integer(-3, 4), "a": Flag()}, missing={"b": 0, "a": False})


@pytest.mark.parametrize("schema", [SCHEMA, MAPPED], ids=["category", "mapped"])
@pytest.mark.parametrize("container", CONTAINERS)
@CASES
@given(tables())
def test_with_a_schema_the_types_are_public_and_the_other_partitions_the_same(container, schema, case):
    columns, place, record, seed = case
    make = CONTAINERS[container]
    data, neighbour = make(columns), make(replaced(columns, place, record))
    check_others(data, neighbour, place, seed=seed, n=len(columns[0]), schema=schema)
    frames = partition_frames(make(columns), partitions=2, schema=schema)
    assert all(frame.dtypes.to_dict() == schema.dtypes for frame in frames)


PLAIN = st.one_of(st.integers(-(2**60), 2**60), st.none())
FLOATS = st.one_of(st.floats(width=64), st.none())
LABELS = st.one_of(st.text(alphabet="abc", max_size=5), st.none())


@CASES
@given(
    st.sampled_from([(PLAIN, PLAIN), (PLAIN, FLOATS), (FLOATS, FLOATS), (LABELS, LABELS), (st.booleans(), PLAIN)]),
    st.data(),
)
def test_arrow_columns_and_dictionaries_keep_the_other_partitions_too(pair, data):
    """One value makes integers floats, or adds an entry to a dictionary; Arrow's own types are column-wide."""
    column = data.draw(st.lists(pair[0], min_size=8, max_size=8))
    place, value = data.draw(st.integers(0, 7)), data.draw(pair[1])

    def make(values):
        kinds = {type(each) for each in values} - {type(None)}
        array = pa.array([None if v is None else float(v) for v in values]) if len(kinds) > 1 else pa.array(values)
        return pa.table({"x": array.dictionary_encode() if kinds == {str} else array})

    for form in (lambda v: make(v), lambda v: make(v).to_batches(max_chunksize=3), lambda v: iter([make(v)])):
        check_others(form(column), form([*column[:place], value, *column[place + 1 :]]), place, n=8)


@CASES
@given(st.lists(st.text(alphabet="abc", max_size=9), min_size=8, max_size=8), st.text(max_size=40), st.integers(0, 7))
def test_the_width_of_a_string_array_is_not_shown(words, word, place):
    other = [*words[:place], word, *words[place + 1 :]]
    check_others(np.array(words), np.array(other), place, n=8)
    one, two = (np.array(list(zip(range(8), each, strict=True)), dtype=[("i", int), ("w", f"U{k}")]) for each, k in
                ((words, 9), (other, 40)))  # fmt: skip
    check_others(one, two, place, n=8)


@CASES
@given(st.lists(st.lists(NUMBERS, max_size=4), min_size=8, max_size=8), st.lists(VALUES, max_size=6), st.integers(0, 7))
def test_rows_of_any_width_or_keys_of_any_name_are_a_partitions_own(rows, row, place):
    other = [*rows[:place], row, *rows[place + 1 :]]
    check_others(rows, other, place, n=8)
    named, named_other = ([{f"k{len(r)}{j}": v for j, v in enumerate(r)} for r in each] for each in (rows, other))
    check_others(named, named_other, place, n=8)


ELEMENTS = {
    "frame": lambda row: pd.DataFrame([row], columns=list(NAMES), dtype=object),
    "dict": lambda row: dict(zip(NAMES, row, strict=True)),
    "tuple": tuple,
    "list": list,
    "series": lambda row: pd.Series(row, index=list(NAMES), dtype=object),
}
FORMS = st.sampled_from(list(ELEMENTS))


def elements_of(columns, forms):
    return [ELEMENTS[form](row) for form, row in zip(forms, zip(*columns, strict=True), strict=True)]


@pytest.mark.parametrize("schema", [None, MAPPED], ids=["none", "mapped"])
@CASES
@given(tables(), st.data())
def test_each_element_of_a_list_is_read_by_its_own_type(schema, case, data):
    """A list may mix tables of one record with records: whatever the first one is, it does not speak for the others."""
    columns, place, record, seed = case
    n = len(columns[0])
    forms = data.draw(st.lists(st.one_of(st.just("frame"), FORMS), min_size=n, max_size=n))
    other = [*forms[:place], data.draw(FORMS), *forms[place + 1 :]]
    lists = elements_of(columns, forms), elements_of(replaced(columns, place, record), other)
    check_others(*lists, place, seed=seed, n=n, schema=schema)


def test_a_first_element_of_another_type_leaves_the_other_partitions_alone():
    tables_of_one = [pd.DataFrame({"x": [float(i)], "y": [float(i % 3)]}) for i in range(9)]
    whole = [look(frame) for frame in partition_frames(pd.concat(tables_of_one), partitions=3, rng=rng_of(0))]
    assert [look(frame) for frame in partition_frames(tables_of_one, partitions=3, rng=rng_of(0))] == whole
    for record in ({"x": 5.0, "y": 1.0}, (5.0, 1.0), "text", pa.table({"x": [5.0], "y": [1.0]}), None):
        check_others(tables_of_one, [record, *tables_of_one[1:]], 0, n=9)
    options = {"posterior": ConjugateRegression(), "partitions": 3}
    one, other = (
        partition_probabilities(data, 0.2, rng=rng_of(0), **options)
        for data in (tables_of_one, [(8.0, -1.0), *tables_of_one[1:]])
    )
    assert (one != other).sum() == 1


def dictionary_chunks(*chunks):
    """A column of Arrow dictionaries, each with one-byte codes of its own labels."""
    arrays = [
        pa.DictionaryArray.from_arrays(pa.array(range(len(labels)), pa.int8()), pa.array(labels)) for labels in chunks
    ]
    return pa.table({"x": pa.chunked_array(arrays)})


def not_quite_text(last):
    """A column of Arrow strings, the last of which need not be UTF-8."""
    buffers = pa.array([b"abc"] * 7 + [last], pa.binary()).buffers()
    return pa.table({"x": pa.Array.from_buffers(pa.string(), 8, buffers)})


@pytest.mark.parametrize("form", [lambda t: t, lambda t: t.to_pandas(types_mapper=pd.ArrowDtype)])
def test_arrow_text_that_arrow_cannot_join_or_read_is_its_records_own(form):
    """Arrow raises where the joint dictionary needs wider codes, holds a null, or where text is not UTF-8."""
    words = [f"a{i}" for i in range(100)]
    few, many = (dictionary_chunks(words, [*words[:27], *more]) for more in (["a50"], ["new"]))
    check_others(form(few), form(many), 127, n=128)
    rest = [f"b{i}" for i in range(27)]
    check_others(
        form(dictionary_chunks(words, [*rest, "a0"])), form(dictionary_chunks(words, [*rest, "b99"])), 127, n=128
    )
    check_others(
        form(dictionary_chunks(["u", "v"], ["u", "w"])), form(dictionary_chunks(["u", "v"], ["u", None])), 3, n=4
    )
    check_others(form(not_quite_text(b"abc")), form(not_quite_text(b"\xff\xfe")), 7, n=8)


@pytest.mark.parametrize("as_category", [False, True])
@pytest.mark.parametrize("last", [None, pd.Interval(0.5, 1.5), "none"])
def test_the_ends_of_intervals_are_numbers_of_one_kind(last, as_category):
    """One missing interval, or one with a fraction, makes floats of all the whole ends of a column of intervals."""
    values = [pd.Interval(i, i + 1) for i in range(8)]
    kind = pd.Categorical if as_category else list
    check_others(pd.DataFrame({"x": kind(values)}), pd.DataFrame({"x": kind([*values[:7], last])}), 7, n=8)


def test_a_complex_number_does_not_change_the_sign_of_zeros():
    check_others(pd.DataFrame({"x": [-0.0] * 8}), pd.DataFrame({"x": [-0.0] * 7 + [1j]}), 7, n=8)


def test_what_a_mask_hides_is_missing_and_never_shown():
    hidden = np.ma.array([[1.0, 2.0], [3.0, 77.0]] * 4, mask=[[False, False], [False, True]] * 4)
    structured = np.ma.array([(1, 77.0)] * 6, mask=[(False, True)] * 6, dtype=[("x", int), ("y", float)])
    for data in (hidden, list(hidden), {"x": hidden[:, 0], "y": hidden[:, 1]}, structured, list(structured)):
        shown = pd.concat(partition_frames(data, partitions=2)).to_numpy(dtype=float)
        assert not (shown == 77).any()
        assert np.isnan(shown).any()


def test_a_table_brings_no_attributes_index_or_categories_along():
    table = pd.DataFrame({"x": [1, 2, 3, 4]}, index=list("wxyz"))
    table.attrs["seen"] = "all records"
    for frame in partition_frames(table, partitions=2):
        assert frame.attrs == {}
        assert isinstance(frame.index, pd.RangeIndex)
        assert frame.index.name is None
        assert frame.dtypes.tolist() == [np.dtype(np.float64)]


def test_the_same_records_give_the_same_frames_in_any_container():
    table = pd.DataFrame({"x": [1, 2, None, 4] * 3, "s": ["a", None, "b", "c"] * 3, "f": [True, False, None, True] * 3})
    rows = [dict(zip(table, row, strict=True)) for row in table.astype(object).itertuples(index=False)]
    dd = pytest.importorskip("dask.dataframe")
    expected = [look(frame) for frame in partition_frames(table, partitions=3, rng=rng_of(1))]
    arrow = pa.Table.from_pandas(table)
    forms = [rows, table.convert_dtypes(), table.astype("category"), arrow, arrow.to_batches(max_chunksize=5)]
    forms += [arrow.to_reader(max_chunksize=5), table.to_dict("list")]
    forms += [dd.from_pandas(table.convert_dtypes(), npartitions=3)]  # of objects Dask itself would make text
    forms += [table.convert_dtypes(dtype_backend="pyarrow"), iter([table[:5], rows[5:]]), Polars(arrow)]
    for form in forms:
        assert [look(frame) for frame in partition_frames(form, partitions=3, rng=rng_of(1))] == expected


class Polars:
    """A table of another library, that gives itself away through Arrow's interface only."""

    def __init__(self, table):
        self._table = table

    def __len__(self):
        return len(self._table)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


# Through the releases' own path --------------------------------------------------------------------------------------


class Nosy:
    """Answers with a checksum of everything that it can see, and leaves marks on all that it is handed."""

    n_jobs = 1
    calls = 0

    def probability(self, partition, cutoff):
        self.calls += 1
        answer = zlib.crc32(f"{look(partition)} {cutoff.tobytes()} {self.calls}".encode()) / 2**32
        cutoff += partition.shape[0] if partition.empty else zlib.crc32(look(partition).encode())
        partition.drop(partition.index, inplace=True)
        return answer


def changed(data, neighbour, posterior=None, **options):
    asked = {"posterior": posterior or Nosy(), "partitions": 20, **options}
    one, other = (partition_probabilities(form, 0.5, rng=rng_of(0), **asked) for form in (data, neighbour))
    return int((one != other).sum())


def evidence():
    """Pairs of neighbours that once changed every partition."""
    y = rng_of(1).normal(1.0, 1.0, 200).round(2).tolist()
    text = [*y[:7], "n/a", *y[8:]]
    x = [0, 1, 2] * 40
    gap = [*x[:3], None, *x[4:]]
    region = pd.Series(["a", "b"] * 60)
    new = region.copy()
    new[0] = "HIV+"
    yield "text", pd.DataFrame({"y": y}), pd.DataFrame({"y": text})
    yield "rows", [[v] for v in y], [[v] for v in text]
    yield "gap", pd.DataFrame({"x": x}), pd.DataFrame({"x": gap})
    yield "label", pd.DataFrame({"c": region.astype("category")}), pd.DataFrame({"c": new.astype("category")})
    yield "index", pd.DataFrame({"y": y}, index=y), pd.DataFrame({"y": text}, index=text)


PAIRS = {name: (data, neighbour) for name, data, neighbour in evidence()}


@pytest.mark.parametrize("pair", PAIRS)
def test_the_nosiest_posterior_sees_a_replaced_record_in_one_partition(pair):
    assert changed(*PAIRS[pair]) == 1


def test_partitions_that_change_what_they_are_handed_do_not_change_the_next():
    """In-place arithmetic on the cutoff, and a posterior that remembers: once, one record moved up to all of them."""
    data = rng_of(0).normal(size=400)
    moved = data.copy()
    moved[0] = 1e6
    assert changed(data, moved) == 1
    posterior = FromSampler(Warm().fit, n_jobs=1)
    assert changed(data, moved, posterior) <= 1


class Warm:
    """Starts where it ended last time."""

    start = 0.0

    def fit(self, frame, rng):
        self.start = (self.start + frame[0].mean()) / 2
        return rng.normal(self.start, 1.0, size=50)


# Batches of the built-in regressions ---------------------------------------------------------------------------------

PRIOR = NormalInverseGamma(np.zeros(3), np.eye(3), shape=1.0, rate=1.0)
BUILT_IN = [
    ConjugateRegression(covariates=("x", "z"), prior=PRIOR),
    SemiConjugateRegression(covariates=("x", "z"), prior=IndependentPrior(np.zeros(3), np.eye(3), shape=1.0, rate=1.0)),
]


def fail_on_a_mark(monkeypatch):
    """Let LAPACK give up on a batch in which a matrix is huge or collinear, as it does when an iteration diverges."""
    for name in ("eigh", "cholesky", "eigvalsh"):
        real = getattr(np.linalg, name)

        def fragile(matrices, real=real):
            collinear = (np.abs(matrices[..., 1, 2]) > 0.9999) & (matrices[..., 1, 1] == 1)
            if (np.abs(matrices) > 1e50).any() or collinear.any():
                raise np.linalg.LinAlgError("did not converge")
            return real(matrices)

        monkeypatch.setattr(np.linalg, name, fragile)


def batch_pair():
    rows = rng_of(3).normal(size=(120, 3))
    other = rows.copy()
    other[5] = (1e60, 1e60, 1.0)
    return rows, other


def check_batches(model):
    rows, other = batch_pair()
    options = {"posterior": model, "partitions": 8}
    p, p_other = (partition_probabilities(d, 0.1, rng=rng_of(4), **options) for d in (rows, other))
    assert (p != p_other).sum() <= 1
    q, q_other = (partition_quantiles(d, 0.3, rng=rng_of(4), **options) for d in (rows, other))
    assert ((q != q_other) & ~(np.isnan(q) & np.isnan(q_other))).sum() <= 1
    assert np.isfinite(q).all()


@pytest.mark.parametrize("model", BUILT_IN, ids=["conjugate", "semi-conjugate"])
def test_a_matrix_that_lapack_gives_up_on_fails_alone(model, monkeypatch):
    check_batches(model)
    fail_on_a_mark(monkeypatch)
    check_batches(model)


def test_factors_found_one_by_one_are_those_of_the_batch_to_the_bit():
    root = rng_of(5).normal(size=(50, 4, 4))
    matrices = root @ root.transpose(0, 2, 1)
    for function in (regression_module._eigen, regression_module._root, regression_module._eigenvalues):
        whole = function(matrices)
        broken = np.concatenate([matrices, -np.eye(4)[None], np.full((1, 4, 4), np.nan)])
        again = regression_module._lapack(function, broken)
        assert all((one == other[:50]).all() for one, other in zip(whole, again, strict=True))
    assert np.isnan(regression_module._lapack(regression_module._root, broken)[0][-2]).all()


# Breaks that the checks above must see -------------------------------------------------------------------------------


def of_the_whole_table(self, rows):
    """A partition cut from one frame of all records: shared types, widths and categories."""
    whole = splitting_module.own_frame([piece.take(np.arange(piece.n)) for piece in self._pieces], [self.n])
    return whole.iloc[rows].reset_index(drop=True)


def with_the_tables_index(self, rows):
    """A partition that keeps what the whole table was indexed by: here, the values of its first column."""
    whole = pd.Index([value for piece in self._pieces for value in piece.columns[0].tolist()])
    return REAL_TAKE(self, rows).set_axis(whole[rows])


def without_copies(question, frame, points, given, seed):
    """Points and posterior as they are, shared by all partitions."""
    extra = {} if seed is None else {"rng": np.random.default_rng(seed)}
    return np.broadcast_to(np.asarray(question(frame, points, **given, **extra), float), points.shape).copy()


REAL_TAKE = splitting_module._Pieces.take
MUTANTS = {
    "shared types": (splitting_module._Pieces, "take", of_the_whole_table, ["text", "rows"]),
    "shared index": (splitting_module._Pieces, "take", with_the_tables_index, ["index", "text"]),
    "shared points": (asking_module, "_call", without_copies, ["text", "gap"]),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_break_on_purpose_is_seen(mutant, monkeypatch):
    owner, name, broken, pairs = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, broken)
    for pair in pairs:
        assert changed(*PAIRS[pair]) > 1


def test_a_posterior_that_is_not_copied_is_seen(monkeypatch):
    monkeypatch.setattr(asking_module, "_copy_of", lambda question: question)
    data = rng_of(0).normal(size=400)
    moved = data.copy()
    moved[0] = 1e6
    counts = []
    for place in range(40):
        moved = data.copy()
        moved[place] = 1e6
        counts.append(changed(data, moved, FromSampler(Warm().fit, n_jobs=1)))
    assert max(counts) > 1


@pytest.mark.parametrize("model", BUILT_IN, ids=["conjugate", "semi-conjugate"])
def test_a_batch_that_fails_for_all_is_seen(model, monkeypatch):
    monkeypatch.setattr(regression_module, "_lapack", lambda function, matrices: function(matrices))
    fail_on_a_mark(monkeypatch)
    with pytest.raises((AssertionError, np.linalg.LinAlgError)):
        check_batches(model)
