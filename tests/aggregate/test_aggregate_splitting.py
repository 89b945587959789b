"""Random partitions: disjoint, balanced, blind to the records, the same for every form of data."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpbook.aggregate import Moments, partition_frames, partition_labels
from dpbook.aggregate.splitting import _BLOCK, count_records, partition_moments

ROWS = np.random.default_rng(0).normal(size=(1003, 3)) * [1.0, 5.0, 2.0] + [0.0, 100.0, -3.0]
NAMES = ["a", "b", "y"]


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def moments(data, partitions=7, seed=1, n=None):
    return partition_moments(data, ["a", "b"], "y", partitions=partitions, n=n, rng=rng_of(seed))


@pytest.mark.parametrize(("n", "partitions", "block"), [(10, 3, 4), (1000, 7, 64), (7, 7, 100), (100_000, 1000, 2**16)])
def test_every_record_goes_to_one_partition_and_sizes_differ_by_at_most_one(n, partitions, block):
    labels = np.concatenate(list(partition_labels(n, partitions, rng_of(2), block=block)))
    counts = np.bincount(labels, minlength=partitions)
    assert len(labels) == n
    assert counts.max() - counts.min() <= 1


def test_all_balanced_splits_are_equally_likely_whatever_the_block():
    """Six splits of 4 records into 2 pairs, 6,000 draws: chi-squared, false alarm 0.001 a block size."""
    for block in (1, 3, 4):
        rng = rng_of(3)
        seen = ["".join(map(str, np.concatenate(list(partition_labels(4, 2, rng, block=block))))) for _ in range(6000)]
        counts = pd.Series(seen).value_counts()
        assert len(counts) == 6
        assert stats.chisquare(counts).pvalue > 0.001


def test_labels_of_a_stream_without_end_are_uniform():
    """Chi-squared over 10 partitions, one block; false alarm 0.001."""
    labels = next(partition_labels(None, 10, rng_of(4)))
    assert len(labels) == _BLOCK
    assert stats.chisquare(np.bincount(labels)).pvalue > 0.001


def test_moments_are_those_of_the_records_that_the_labels_send_there():
    labels = np.concatenate(list(partition_labels(len(ROWS), 7, rng_of(1))))
    found = moments(ROWS)
    for j in range(7):
        part = ROWS[labels == j]
        assert found.n[j] == len(part)
        assert found.mean[j] == pytest.approx(part.mean(axis=0), rel=1e-13)
        assert found.scatter[j] == pytest.approx(np.cov(part.T) * (len(part) - 1), rel=1e-11)


def chunks(*sizes):
    cuts = np.cumsum(sizes)
    return iter(np.split(ROWS, cuts))


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame(ROWS, columns=NAMES),
        pd.DataFrame(ROWS[:, ::-1], columns=NAMES[::-1]).assign(unused=1.0),
        lambda: chunks(1, 500),
        lambda: (pd.DataFrame(part, columns=NAMES) for part in np.split(ROWS, [10, 20])),
    ],
    ids=["table", "columns in another order", "chunks", "chunks of tables"],
)
def test_the_same_records_and_rng_give_the_same_moments_to_the_bit_in_any_form(data):
    expected = moments(ROWS)
    found = moments(data() if callable(data) else data, n=len(ROWS))
    assert all((one == other).all() for one, other in zip(expected, found, strict=True))


def test_an_arrow_table_gives_the_same_moments_to_the_bit():
    pa = pytest.importorskip("pyarrow")
    found = moments(pa.Table.from_pandas(pd.DataFrame(ROWS, columns=NAMES)))
    assert all((one == other).all() for one, other in zip(moments(ROWS), found, strict=True))


def test_a_dask_data_frame_gives_the_same_moments_but_for_rounding():
    dd = pytest.importorskip("dask.dataframe")
    table = dd.from_pandas(pd.DataFrame(ROWS, columns=NAMES), npartitions=5)
    found = moments(table)
    for one, other in zip(moments(ROWS), found, strict=True):
        assert other == pytest.approx(one, rel=1e-9, abs=1e-9)


class Growing:
    """Gives a Dask partition one record more, or fewer, from its k-th reading on."""

    def __init__(self, readings, before, after):
        self.left, self.before, self.after = readings, before, after

    def __call__(self):
        self.left -= 1
        return pd.DataFrame(ROWS[: self.before if self.left >= 0 else self.after], columns=NAMES)


@pytest.mark.parametrize(("before", "after"), [(100, 101), (100, 99), (0, 5), (5, 0)])
@pytest.mark.parametrize("readings", [1, 2])
def test_dask_data_that_change_between_two_readings_are_refused(readings, before, after):
    """Records are counted twice and then read; labels for another number of records would pair or lose them wrongly."""
    dask = pytest.importorskip("dask")
    dd = pytest.importorskip("dask.dataframe")
    steady = dask.delayed(lambda: pd.DataFrame(ROWS, columns=NAMES), pure=False)()
    parts = [steady, dask.delayed(Growing(readings, before, after), pure=False)()]
    table = dd.from_delayed(parts, meta=pd.DataFrame(ROWS[:0], columns=NAMES), verify_meta=False)
    with dask.config.set(scheduler="synchronous"), pytest.raises(ValueError, match="data must not change"):
        moments(table)


def test_an_empty_dask_partition_changes_nothing():
    dask = pytest.importorskip("dask")
    dd = pytest.importorskip("dask.dataframe")
    cuts = (ROWS[:400], ROWS[400:400], ROWS[400:])
    parts = [dask.delayed(pd.DataFrame(cut, columns=NAMES)) for cut in cuts]
    found = moments(dd.from_delayed(parts))
    assert found.n.sum() == len(ROWS)
    for one, other in zip(moments(ROWS), found, strict=True):
        assert other == pytest.approx(one, rel=1e-9, abs=1e-9)


def test_a_stream_longer_than_a_block_is_cut_at_the_same_places_whatever_its_chunks():
    rows = rng_of(5).normal(size=(2 * _BLOCK + 17, 2))
    whole = partition_moments(rows, ["x"], "y", partitions=9, rng=rng_of(6))
    for size in (1000, 70_000):
        pieces = (rows[start : start + size] for start in range(0, len(rows), size))
        found = partition_moments(pieces, ["x"], "y", partitions=9, n=len(rows), rng=rng_of(6))
        assert all((one == other).all() for one, other in zip(whole, found, strict=True))


def test_memory_does_not_grow_with_a_stream():
    """Four times the records, the same peak of NumPy's memory but for a tenth."""

    def peak(n):
        rng = rng_of(12)
        chunks_of = (rng.normal(size=(20_000, 2)) for _ in range(n // 20_000))
        tracemalloc.start()
        partition_moments(chunks_of, ["x"], "y", partitions=100, n=n, rng=rng_of(13))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(800_000) < 1.1 * peak(200_000)


def test_without_n_a_stream_is_split_at_random_and_no_record_is_lost():
    found = moments(chunks(300, 300))
    assert found.n.sum() == len(ROWS)
    total = (found.n[:, None] * found.mean).sum(axis=0) / len(ROWS)
    assert total == pytest.approx(ROWS.mean(axis=0), rel=1e-12)


@pytest.mark.parametrize("n", [1002, 1004, 10])
def test_a_wrong_n_is_refused(n):
    with pytest.raises(ValueError, match="n must be the number of records"):
        moments(chunks(300), n=n)
    with pytest.raises(ValueError, match="n must be the number of records"):
        moments(ROWS, n=n)
    with pytest.raises(ValueError, match="n must be the number of records"):
        partition_frames(ROWS, partitions=2, n=n)


def test_wrong_columns_and_nan_are_refused():
    with pytest.raises(ValueError, match="columns must each occur once"):
        partition_moments(pd.DataFrame(ROWS, columns=NAMES), ["z"], "y", partitions=2)
    with pytest.raises(ValueError, match="data must have 2 columns"):
        partition_moments(ROWS, ["a"], "y", partitions=2)
    with pytest.raises(ValueError, match="NaN"):
        moments(np.where(ROWS[3, 1] == ROWS, np.nan, ROWS))
    with pytest.raises(ValueError, match="at least one record"):
        moments(iter([]))
    with pytest.raises(TypeError, match="data must be"):
        count_records(3.0)


def test_a_large_mean_costs_no_digits():
    """A year of about 2000 with a spread of 1e-3: sums of squares would lose ten digits."""
    x = 2000 + 1e-3 * rng_of(7).normal(size=600)
    found = partition_moments(np.column_stack([x, x]), ["x"], "y", partitions=3, rng=rng_of(8))
    labels = np.concatenate(list(partition_labels(600, 3, rng_of(8))))
    for j in range(3):
        part = x[labels == j]
        assert found.scatter[j, 0, 0] == pytest.approx(((part - part.mean()) ** 2).sum(), rel=1e-9)


def test_frames_are_disjoint_and_complete():
    table = pd.DataFrame({"x": np.arange(11.0), "sex": list("fmfmfmfmfmf")})
    frames = partition_frames(table, partitions=4, rng=rng_of(9))
    assert sorted(len(frame) for frame in frames) == [2, 3, 3, 3]
    assert sorted(pd.concat(frames)["x"]) == sorted(table["x"])
    assert {frame["sex"].dtype for frame in frames} == {np.dtype(object)}  # never the type of the whole table
    again = partition_frames((piece for piece in (table[:4], table[4:])), partitions=4, rng=rng_of(9))
    assert all(one.equals(other) for one, other in zip(frames, again, strict=True))


def test_frames_and_moments_of_one_seed_hold_the_same_records():
    frames = partition_frames(pd.DataFrame(ROWS, columns=NAMES), partitions=7, rng=rng_of(1))
    assert moments(ROWS).mean == pytest.approx(np.array([frame.mean() for frame in frames]), rel=1e-12)


def test_groups_that_are_split_already_have_the_same_moments():
    x = rng_of(10).normal(3, 2, size=(4, 50))
    y = rng_of(11).normal(size=(4, 50))
    found = Moments.of_groups([x, y])
    for j in range(4):
        assert found.scatter[j] == pytest.approx(np.cov(x[j], y[j]) * 49, rel=1e-11)
        assert found.mean[j] == pytest.approx([x[j].mean(), y[j].mean()])
