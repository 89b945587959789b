"""Tables as they come: the same records give the same release as a frame, a file, a data set or a stream."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpbook import PrivacyBudget, Release, Schema, aggregate, expfam, graphical, regression
from dpbook.records import as_chunks, exact_sum
from dpbook.schema import Category, Flag, Integer, Number

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
feather = pytest.importorskip("pyarrow.feather")
pq = pytest.importorskip("pyarrow.parquet")

N = 3000


class OneShot:
    """A stream of another library, DuckDB for example: known by Arrow's interface alone, and given out once."""

    def __init__(self, table: Any) -> None:
        self._reader = table.to_reader(max_chunksize=700)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader, self._reader = self._reader, None
        assert reader is not None, "the stream was asked for twice"
        return reader.__arrow_c_stream__(requested_schema)


class Lazy:
    """A lazy frame, as polars has them."""

    __module__ = "polars.lazyframe.frame"

    def __init__(self, table: Any) -> None:
        self._table = table

    def collect(self) -> Any:
        return OneShot(self._table)


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, N),
            "wage": np.round(rng.lognormal(3, 0.5, N), 3),
            "region": np.array(["north", "south", "east"])[rng.integers(3, size=N)],
            "smoker": rng.integers(2, size=N).astype(bool),
        }
    )


Form = Callable[[pd.DataFrame, Path], Any]


def written(frame: pd.DataFrame, path: Path) -> Path:
    """Write a file of this name's kind, in several row groups where it has such."""
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=900)
    else:
        feather.write_feather(pa.Table.from_pandas(frame), path)
    return path


def folder(frame: pd.DataFrame, path: Path) -> Path:
    for part, start in enumerate(range(0, len(frame), 1100)):
        written(frame[start : start + 1100], path / f"part-{part}.parquet")
    return path


def arrow(frame: pd.DataFrame) -> Any:
    return pa.Table.from_pandas(frame, preserve_index=False)


FORMS: dict[str, Form] = {
    "arrow": lambda frame, _: arrow(frame),
    "batches": lambda frame, _: iter(arrow(frame).to_batches(max_chunksize=800)),
    "reader": lambda frame, _: arrow(frame).to_reader(max_chunksize=800),
    "data set": lambda frame, _: ds.dataset(arrow(frame)),
    "scanner": lambda frame, _: ds.dataset(arrow(frame)).scanner(),
    "one shot": lambda frame, _: OneShot(arrow(frame)),
    "lazy": lambda frame, _: Lazy(arrow(frame)),
    "parquet": lambda frame, path: written(frame, path / "people.parquet"),
    "parquet text": lambda frame, path: str(written(frame, path / "people.parquet")),
    "folder": lambda frame, path: folder(frame, path),
    "feather": lambda frame, path: written(frame, path / "people.feather"),
    "csv": lambda frame, path: written(frame, path / "people.csv"),
}

SCHEMA = Schema(
    {"age": Integer(18, 90), "wage": Number(0, 100), "region": Category(["north", "south", "east"]), "smoker": Flag()}
)


def seeded() -> np.random.Generator:
    return np.random.default_rng(3)


def slope(data: Any, **more: Any) -> Release:
    asked = aggregate.ConjugateRegression(covariates=["age"], response="wage", coefficient="age")
    return aggregate.release_probability(data, 0.0, posterior=asked, partitions=10, epsilon=1.0, rng=seeded(), **more)


class Share:
    """A posterior of one's own, which sees frames."""

    def probability(self, partition: pd.DataFrame, cutoff: float) -> float:
        return float((partition["wage"] <= np.ravel(cutoff)[0]).mean())


RELEASES: dict[str, tuple[list[str], Callable[[Any], Release]]] = {
    "mean": (["wage"], lambda data: expfam.release_mean(data, (0, 100), epsilon=1.0, rng=seeded())),
    "histogram": (["wage"], lambda data: expfam.release_histogram(data, [0, 20, 40], epsilon=1.0, rng=seeded())),
    "labels": (
        ["region"],
        lambda data: expfam.release_histogram(data, labels=["north", "south", "east"], epsilon=1.0, rng=seeded()),
    ),
    "multinomial": (
        ["region"],
        lambda data: expfam.release(
            data, expfam.Multinomial(labels=["north", "south", "east"]), epsilon=1.0, rng=seeded()
        ),
    ),
    "binomial": (["smoker"], lambda data: expfam.release(data, expfam.Binomial(), epsilon=1.0, rng=seeded())),
    "normal": (["wage"], lambda data: expfam.release(data, expfam.Normal(0, 99), epsilon=1.0, rng=seeded())),
    "responses": (["smoker"], lambda data: expfam.release_randomized_response(data, epsilon=1.0, rng=seeded())),
    "samples": (
        ["smoker"],
        lambda data: expfam.release_posterior_samples(
            data, expfam.Binomial(), expfam.Beta(1, 1), epsilon=1.0, support=(0.1, 0.9), rng=seeded()
        ),
    ),
    "regression": (
        ["age", "wage"],
        lambda data: regression.release(
            data, "wage", x_bounds={"age": (18, 90)}, y_bounds=(0, 100), epsilon=1.0, rng=seeded()
        ),
    ),
    "tables": (
        ["region", "smoker"],
        lambda data: graphical.release(
            data,
            {"region": ["north", "south", "east"], "smoker": 2},
            [("region", "smoker")],
            epsilon=1.0,
            rng=seeded(),
        ),
    ),
    "tables of a schema": (
        ["region", "age"],
        lambda data: graphical.release(
            data, SCHEMA.part(["region", "age"]), [("region", "age")], epsilon=1.0, rng=seeded()
        ),
    ),
    "slope of parts": (["age", "wage"], lambda data: slope(data, n=N)),
    "slope of parts, a schema": (["age", "wage"], lambda data: slope(data, n=N, schema=SCHEMA.part(["age", "wage"]))),
    "share of parts": (
        ["wage"],
        lambda data: aggregate.release_probability(
            data, 20.0, posterior=Share(), partitions=10, epsilon=1.0, n=N, rng=seeded()
        ),
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("release", RELEASES)
def test_the_same_records_give_the_same_release_in_any_form(
    people: pd.DataFrame, release: str, form: str, tmp_path: Path
) -> None:
    columns, make = RELEASES[release]
    table = people[columns]
    made, expected = make(FORMS[form](table, tmp_path)), make(table)
    assert made.to_json() == expected.to_json()


@pytest.mark.parametrize("form", FORMS)
def test_a_schema_reads_every_form_alike(people: pd.DataFrame, form: str, tmp_path: Path) -> None:
    found = SCHEMA.apply(FORMS[form](people, tmp_path))
    frames = list(found) if isinstance(found, Iterator) else [found]
    pd.testing.assert_frame_equal(pd.concat(frames, ignore_index=True), SCHEMA.apply(people))


@pytest.mark.parametrize("form", ["data set", "parquet", "csv"])
def test_partitions_of_a_file_have_equal_sizes_without_being_told_n(
    people: pd.DataFrame, form: str, tmp_path: Path
) -> None:
    table = people[["age", "wage"]]
    assert slope(FORMS[form](table, tmp_path)).to_json() == slope(table).to_json()
    with pytest.raises(ValueError, match="n must be the number of records"):
        slope(FORMS[form](table, tmp_path), n=N + 1)


def test_of_a_file_only_the_columns_that_are_used_are_read(people: pd.DataFrame, tmp_path: Path) -> None:
    """Two of four columns hold text; were they read as numbers, that would be an error."""
    for name in ("people.parquet", "people.csv"):
        rows = np.concatenate(list(as_chunks(written(people, tmp_path / name), columns=["wage", "age"])))
        np.testing.assert_array_equal(rows, people[["wage", "age"]].to_numpy(float))


def test_of_a_data_set_only_the_columns_that_are_used_are_asked_for(people: pd.DataFrame) -> None:
    asked = []

    class Watched:
        __module__ = "pyarrow._dataset"

        def __init__(self, data: Any) -> None:
            self.schema, self.count_rows, self._data = data.schema, data.count_rows, data

        def to_batches(self, *, columns: list[str], **settings: Any) -> Any:
            asked.append(columns)
            return self._data.to_batches(columns=columns, **settings)

    domain = {"smoker": 2}
    graphical.release(Watched(ds.dataset(arrow(people))), domain, [("smoker",)], epsilon=1.0, rng=seeded())
    assert asked == [["smoker"]]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (
            "nowhere.parquet",
            FileNotFoundError,
            "X must, as a text or a path, name a file: there is no 'nowhere.parquet'",
        ),
        (Path(__file__), ValueError, r"X must, as a path, end in one of \.parquet"),
    ],
)
def test_a_path_that_cannot_be_read_is_named_and_nothing_is_spent(
    data: Any, error: type[Exception], words: str
) -> None:
    budget = PrivacyBudget(1.0)
    with pytest.raises(error, match=words):
        regression.release(data, "wage", x_bounds=(0, 1), y_bounds=(0, 1), epsilon=1.0, budget=budget, rng=seeded())
    assert budget.spent[0] == 0


@pytest.mark.parametrize("column", ["wage", "region"])
def test_a_blank_or_a_word_in_a_file_of_numbers_is_an_error_before_anything_is_spent(
    column: str, people: pd.DataFrame, tmp_path: Path
) -> None:
    table = people[[column]].copy()
    if column == "wage":
        table.loc[1700, "wage"] = np.nan
    budget = PrivacyBudget(1.0)
    for name in ("people.csv", "people.parquet"):
        with pytest.raises((ValueError, TypeError), match=r"data must (hold numbers|have no missing|be numeric)"):
            expfam.release_mean(written(table, tmp_path / name), (0, 100), epsilon=1.0, budget=budget, rng=seeded())
    assert budget.spent[0] == 0


def test_a_stream_that_was_read_before_is_empty_and_costs_nothing(people: pd.DataFrame) -> None:
    reader, budget = arrow(people[["wage"]]).to_reader(), PrivacyBudget(2.0)
    for _ in range(2):
        try:
            expfam.release_mean(reader, (0, 100), epsilon=1.0, budget=budget, rng=seeded())
        except ValueError as error:
            assert "at least one record" in str(error)  # noqa: PT017 - the first call must not raise
    assert budget.spent[0] == 1.0


def test_one_text_in_a_file_changes_no_other_value(tmp_path: Path) -> None:
    """What a number is read as depends on its own text alone, whatever the rest of its column holds."""
    path = tmp_path / "table.csv"
    path.write_text("x\n1\n2.5\n 3 \n1e400\nTrue\nn/a\n\n")
    schema = Schema({"x": Number(-10, 10)}, missing={"x": -1})
    assert next(schema.apply(path))["x"].tolist() == [1.0, 2.5, 3.0, 10.0, 1.0, -1.0]
    labels = Schema({"x": Category([1, "n/a", "True"], other="else")})
    assert next(labels.apply(path))["x"].tolist() == [1, "else", "else", "else", "True", "n/a"]
    plain = pd.concat(aggregate.partition_frames(path, partitions=1))["x"].tolist()
    assert plain == [1.0, 2.5, 3.0, float("inf"), 1.0, "n/a"]


MEMORY = """
import numpy as np, pyarrow as pa, pyarrow.dataset
from dpbook import expfam, graphical, regression

rows, batches = 50_000, {batches}
schema = pa.schema([("x", pa.float64()), ("y", pa.float64()), ("k", pa.int8())])
def made():
    for seed in range(batches):
        rng = np.random.default_rng(seed)
        values = [rng.normal(size=rows), rng.normal(size=rows), rng.integers(3, size=rows).astype(np.int8)]
        yield pa.record_batch(values, schema=schema)
def stream():
    return pa.RecordBatchReader.from_batches(schema, made())
class Foreign:
    def __arrow_c_stream__(self, requested=None):
        return stream().__arrow_c_stream__(requested)
at = {{"epsilon": 1.0, "rng": np.random.default_rng(0)}}
kept = (batch.select(["x"]) for batch in stream())
expfam.release_mean(kept, (-3, 3), **at)
regression.release(Foreign(), "y", x_bounds=(-3, 3), y_bounds=(-3, 3), **at)
graphical.release(stream(), {{"k": 3}}, [("k",)], **at)
status = open("/proc/self/status").read()  # what the system calls the peak of a process may be that of its parent
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory where Linux shows it")
def test_memory_does_not_grow_with_the_stream() -> None:
    """Streams of 10⁵ and of 3·10⁶ records, three releases: were one of them held, that would take 50 MB more."""
    peaks = []
    for batches in (2, 60):
        code = MEMORY.format(batches=batches)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 25, peaks


def test_exact_sums_of_arrow_columns_of_every_type_are_those_of_pandas() -> None:
    def clipped(rows: Any) -> Any:
        return np.clip(rows, -100, 100)

    values = [3, -7, 100, 0]
    kinds = [pa.int8(), pa.int64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(22, 3)]
    for column in (pa.array(values).cast(kind) for kind in kinds):
        assert exact_sum(pa.table({"x": column}), clipped, unit=2.0**-20).values.tolist() == [96.0]
    assert exact_sum(pa.table({"x": pa.array(values).dictionary_encode()}), clipped, unit=1.0).values.tolist() == [96.0]
