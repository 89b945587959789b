"""Random disjoint partitions of records that do not look at the records.

Which partition a record goes to depends on its place in the data and on random labels, never on its values, so two
data sets that differ in one record differ in one partition: all that chapter 2's proofs need. Data may be an array, a
table, a stream of chunks or a Dask collection. Conjugate models need no more of a partition than its count, means and
scatter (:class:`Moments`), which are gathered in one pass, in memory that does not grow with the number of records.
"""

from __future__ import annotations

import abc
import importlib
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from dpbook._arrays import Array, IntArray
from dpbook._columns import Named, Rows, Table, element_by_element, holds_tables, own_frame, pieces_of
from dpbook._dask import dask_partitions, is_dask
from dpbook._late import pd
from dpbook._sources import Stream, source_of
from dpbook.records import as_chunks
from dpbook.schema import Schema

__all__ = ["Moments", "partition_frames", "partition_labels"]

# Records whose labels are drawn, and whose moments are added up, at a time. Every form of data is cut at the same
# places, so that the same records give the same floats.
_BLOCK = 2**16
_WAVE = 32  # Dask partitions in flight at a time


class Moments(NamedTuple):
    """Count, means and scatter of each of M partitions; the response is the last of k columns.

    ``n`` (M,) are the records in each partition, ``mean`` (M, k) the means of the columns, ``scatter`` (M, k, k) the
    sums of products of deviations from the partition's own means. Explained in
    :doc:`/book/sample-and-aggregate/any-model-any-size`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> x, y = np.array([[0.0, 2.0]]), np.array([[1.0, 5.0]])  # one partition of two records
    >>> aggregate.Moments.of_groups([x, y]).scatter[0]
    array([[2., 4.],
           [4., 8.]])
    """

    n: Array
    mean: Array
    scatter: Array

    @classmethod
    def of_groups(cls, columns: Sequence[Array]) -> Moments:
        """Return the moments of ``columns``, covariates and the response last, each (M, records per partition)."""
        groups, size = columns[0].shape
        k = len(columns)
        means = [column.mean(axis=1) for column in columns]
        deviations = [column - mean[:, None] for column, mean in zip(columns, means, strict=True)]
        scatter = np.empty((groups, k, k))
        for i in range(k):
            for j in range(i + 1):
                scatter[:, i, j] = scatter[:, j, i] = np.einsum("gr,gr->g", deviations[i], deviations[j])
        return cls(np.full(groups, float(size)), np.stack(means, axis=1), scatter)


def partition_labels(
    n: int | None, partitions: int, rng: np.random.Generator, *, block: int = _BLOCK
) -> Iterator[IntArray]:
    """Yield, block after block, the partition that each record goes to.

    With n known, all splits into partitions whose sizes differ by at most one are equally likely: each block's counts
    are multivariate hypergeometric given what is left, and their order is shuffled, so memory does not grow with n.
    With n unknown the labels are independent and uniform, and the sizes binomial. Explained in
    :doc:`/book/sample-and-aggregate/split-compute-average`.

    Parameters
    ----------
    n : int or None
        The public number of records.
    partitions : int
        How many partitions.
    rng : numpy.random.Generator
        Source of the labels. It need not be secret: privacy holds for every fixed split.
    block : int
        Labels at a time.

    Yields
    ------
    ndarray of int
        Labels 0, ..., partitions - 1; endless where n is None.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> labels = np.concatenate(list(aggregate.partition_labels(10, 3, np.random.default_rng(0))))
    >>> np.bincount(labels)
    array([4, 3, 3])
    """
    for order, counts in _orders(n, partitions, rng, block):
        labels = np.empty(len(order), dtype=np.int64)
        labels[order] = np.repeat(np.arange(partitions), counts)
        yield labels


def _orders(
    n: int | None, partitions: int, rng: np.random.Generator, block: int = _BLOCK
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield, for each block of records, an order that puts partition after partition, and the partitions' counts."""
    while n is None:
        # Short integers sort by radix; up to 2**16 partitions fit.
        labels = rng.integers(partitions, size=block).astype(np.uint16 if partitions <= 2**16 else np.int64)
        yield np.argsort(labels, kind="stable"), np.bincount(labels, minlength=partitions)
    left = n // partitions + (np.arange(partitions) < n % partitions)
    missing = n
    while missing > 0:
        size = min(block, missing)
        counts = left if size == missing else rng.multivariate_hypergeometric(left, size, method="marginals")
        left, missing = left - counts, missing - size
        yield rng.permutation(size) if partitions > 1 else np.arange(size), counts


def count_records(data: Any) -> int | None:
    """Return the number of records, or None for what cannot be counted without being read, such as an iterator."""
    if isinstance(data, (str, os.PathLike, Stream)) or _is_data_set(data):
        return int(source_of(data).count())
    if is_dask(data):
        return sum(_dask_lengths(dask_partitions(data, None, "data")))
    if isinstance(data, Iterator) or (not hasattr(data, "__len__") and _comes_late(data)):
        return None
    try:
        if holds_tables(data):
            return sum(map(len, element_by_element(data)))
        return len(next(iter(data.values()), ())) if isinstance(data, Mapping) else len(data)
    except TypeError:
        kind = type(data).__name__
        raise TypeError(
            f"data must be an array, a table, an iterator of chunks or a Dask collection, got {kind}"
        ) from None


def _comes_late(data: Any) -> bool:
    """Say whether this is another library's stream, or a frame of it that is still to be computed."""
    return hasattr(data, "__arrow_c_stream__") or type(data).__module__.split(".")[0] == "polars"


def _is_data_set(data: Any) -> bool:
    return type(data).__module__.split(".")[0] == "pyarrow" and hasattr(data, "count_rows")


def partition_moments(
    data: Any,
    covariates: Sequence[str],
    response: str,
    *,
    partitions: int,
    n: int | None = None,
    rng: np.random.Generator | None = None,
) -> Moments:
    """Split records at random and return the count, means and scatter of each partition. Not private.

    An array has the covariates first, in their order, and the response last. NaN raises, which only the curator may
    see. The same rng and records give the same floats in memory or, with n, in chunks; a Dask DataFrame is cut at other
    places and agrees up to rounding.
    """
    columns = [*covariates, response]
    generator = np.random.default_rng() if rng is None else rng
    known = count_records(data)
    data = _readable(data)
    if known is not None and n is not None and n != known:
        raise ValueError(f"n must be the number of records, {known}, got {n}")
    size = n if known is None else known
    if is_dask(data):
        parts = _dask_moments(data, columns, partitions, size or 0, generator)
    else:
        parts = _block_moments(data, columns, partitions, size, generator)
    k = len(columns)
    total = Moments(np.zeros(partitions), np.zeros((partitions, k)), np.zeros((partitions, k, k)))
    for part in parts:
        total = _merge(total, part)
    read = int(total.n.sum())
    if read == 0:
        raise ValueError("data must hold at least one record, got none")
    if size is not None and read != size:
        raise ValueError(f"n must be the number of records, {read}, got {size}")
    return total


def partition_frames(
    data: Any,
    *,
    partitions: int,
    n: int | None = None,
    rng: np.random.Generator | None = None,
    schema: Schema | None = None,
) -> list[pd.DataFrame]:
    """Split records at random into data frames, for models that need the records themselves.

    Each frame is a function of its own records alone: nothing of it, the type of a column included, tells of another
    partition. All records are held in memory, an iterator's chunks and a Dask collection's partitions put together.
    Explained in :doc:`/book/sample-and-aggregate/any-model-any-size`.

    Parameters
    ----------
    data : array_like, DataFrame, pyarrow Table, mapping of columns, list of rows, chunks of these, or Dask collection
        One row per record; columns of any type.
    partitions : int
        How many partitions.
    n : int, optional
        The number of records, checked where given.
    rng : numpy.random.Generator, optional
        Source of the labels; a fresh one by default.
    schema : Schema, optional
        What a record is. The frames then have its columns and types. Without one, a column is float64 where all of
        the partition's own values are numbers or missing, and object otherwise, with NaN for a missing value; truth
        values are numbers; moments are pandas Timestamps in microseconds. The table's own types, categories and
        index are not used: they depend on all records.

    Returns
    -------
    list of DataFrame
        Disjoint, together all records, sizes that differ by at most one; records keep their order.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> frames = aggregate.partition_frames(np.arange(5.0), partitions=2, rng=np.random.default_rng(0))
    >>> [len(frame) for frame in frames]
    [3, 2]
    """
    return records_of(data, schema).split(partitions, n, rng)


def records_of(data: Any, schema: Schema | None) -> _Records:
    """Return the records of data in any form, held in memory, typed by a schema where there is one."""
    if schema is None:
        return _Pieces(list(pieces_of(data)))
    made = schema.apply(data)
    frames = list(made) if isinstance(made, Iterator) else [made.compute() if is_dask(made) else made]
    return _Typed(pd.concat(frames, ignore_index=True) if len(frames) != 1 else frames[0])


class _Records(abc.ABC):
    """Records in memory, that can be split into frames of their own."""

    n: int
    header: tuple[Hashable, ...]

    @abc.abstractmethod
    def take(self, rows: IntArray) -> pd.DataFrame:
        """Return a frame made of these records alone."""

    def split(self, partitions: int, n: int | None, rng: np.random.Generator | None) -> list[pd.DataFrame]:
        """Return a frame for each partition of a random split."""
        return self._frames(self._labels(partitions, n, rng), partitions)

    def halved(
        self, partitions: int, n: int | None, rng: np.random.Generator | None
    ) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
        """Return a frame for each partition, and one for each half: those of partition j at j and M + j."""
        labels = self._labels(2 * partitions, n, rng)
        return self._frames(labels % partitions, partitions), self._frames(labels, 2 * partitions)

    def _labels(self, partitions: int, n: int | None, rng: np.random.Generator | None) -> IntArray:
        if self.n == 0:
            raise ValueError("data must hold at least one record, got none")
        if n is not None and n != self.n:
            raise ValueError(f"n must be the number of records, {self.n}, got {n}")
        generator = np.random.default_rng() if rng is None else rng
        return np.concatenate(list(partition_labels(self.n, partitions, generator)))

    def _frames(self, labels: IntArray, partitions: int) -> list[pd.DataFrame]:
        order = np.argsort(labels, kind="stable")
        cuts = np.cumsum(np.bincount(labels, minlength=partitions))[:-1]
        return [self.take(rows) for rows in np.split(order, cuts)]


class _Typed(_Records):
    """Records in the frame that a schema made: its types are public, and each frame takes copies of its rows."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._columns = {name: frame[name].array for name in frame.columns}
        self.n, self.header = len(frame), tuple(frame.columns)

    def take(self, rows: IntArray) -> pd.DataFrame:
        return pd.DataFrame({name: values.take(rows) for name, values in self._columns.items()})


class _Pieces(_Records):
    """Records as they came, piece by piece; each frame is built from the values of its rows."""

    def __init__(self, pieces: Sequence[Table | Rows]) -> None:
        self._pieces = pieces
        self._starts = np.cumsum([0, *(piece.n for piece in pieces)])
        self.n, self.header = int(self._starts[-1]), pieces[0].header if pieces else ()

    def take(self, rows: IntArray) -> pd.DataFrame:
        cuts = np.searchsorted(rows, self._starts)
        own: list[Named] = []
        sizes = []
        for piece, start, low, high in zip(self._pieces, self._starts, cuts[:-1], cuts[1:], strict=False):
            if low < high:  # a piece without a record of this partition has no say in its columns
                own.append(piece.take(rows[low:high] - start))
                sizes.append(int(high - low))
        return own_frame(own, sizes)


def _readable(data: Any) -> Any:
    """Return data in a form that sums over records take: columns by name, a list of tables as a stream."""
    if holds_tables(data):
        return element_by_element(data)
    data = source_of(data)
    if isinstance(data, Mapping) or getattr(getattr(data, "dtype", None), "names", None):
        return _Pieces(list(pieces_of(data))).take(np.arange(count_records(data) or 0))
    return data


def _rows(data: Any, columns: list[str]) -> Iterator[Array]:
    """Yield float chunks with the covariates first and the response last, from named columns or in their order."""
    pieces = data if isinstance(data, Iterator) else iter([data])  # of a reader, its batches
    for piece in map(_readable, pieces):
        named = hasattr(piece, "columns") or isinstance(piece, Stream)
        for chunk in as_chunks(piece, columns if named else None):
            if chunk.shape[1] != len(columns):
                raise ValueError(
                    f"data must have {len(columns)} columns, the covariates and then the response, got {chunk.shape[1]}"
                )
            yield chunk


def _blocks(chunks: Iterator[Array]) -> Iterator[Array]:
    """Yield the same rows in blocks of one size (the last may be shorter), whatever the chunks."""
    held: list[Array] = []
    rows = 0
    for chunk in chunks:
        while rows + len(chunk) >= _BLOCK:
            cut = _BLOCK - rows
            yield np.concatenate([*held, chunk[:cut]])
            chunk, held, rows = chunk[cut:], [], 0
        if len(chunk):
            held.append(chunk)
            rows += len(chunk)
    if held:
        yield np.concatenate(held)


def _block_moments(
    data: Any, columns: list[str], partitions: int, n: int | None, rng: np.random.Generator
) -> Iterator[Moments]:
    orders = _orders(n, partitions, rng)
    count = None if n is None else -(-n // _BLOCK)
    for block in tqdm(_blocks(_rows(data, columns)), total=count, desc="records", delay=2, disable=None):
        order, counts = next(orders, (None, None))
        if order is None or counts is None or (n is not None and len(order) != len(block)):
            raise ValueError(f"n must be the number of records: data hold another number than {n}")
        if len(order) > len(block):  # the last block of an iterator whose end nobody knew
            labels = np.repeat(np.arange(partitions), counts)[order < len(block)]
            order, counts = order[order < len(block)], np.bincount(labels, minlength=partitions)
        yield _moments_of(block, order, counts)


def _moments_of(rows: Array, order: IntArray, counts: IntArray) -> Moments:
    """Return the moments of the rows of each partition: the first ``counts[0]`` rows of the order, and so on.

    Every partition is added up by itself, so that its floats do not depend on the records of another.
    """
    present = np.flatnonzero(counts)
    sizes = counts[present]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    ordered = np.take(np.ascontiguousarray(rows.T), order, axis=1)
    k, partitions = len(ordered), len(counts)
    mean, scatter = np.zeros((partitions, k)), np.zeros((partitions, k, k))
    with np.errstate(all="ignore"):  # an overflow makes this partition fail, silently
        for i in range(k):
            mean[present, i] = np.add.reduceat(ordered[i], starts) / sizes
            ordered[i] -= np.repeat(mean[present, i], sizes)
            for j in range(i + 1):
                product = np.add.reduceat(ordered[i] * ordered[j], starts)
                scatter[present, i, j] = scatter[present, j, i] = product
    return Moments(counts.astype(np.float64), mean, scatter)


def pair_up(halves: Moments) -> Moments:
    """Return the moments of partitions whose halves are given: those of partition j at j and M + j."""
    count = len(halves.n) // 2
    return _merge(Moments(*(each[:count] for each in halves)), Moments(*(each[count:] for each in halves)))


def _merge(one: Moments, other: Moments) -> Moments:
    """Return the moments of two disjoint sets of records together (the pairwise update of means and scatters)."""
    if not one.n.any():
        return other
    n = one.n + other.n
    share = np.divide(other.n, n, out=np.zeros_like(n), where=n > 0)
    with np.errstate(all="ignore"):
        gap = other.mean - one.mean
        mean = one.mean + gap * share[:, None]
        between = (one.n * share)[:, None, None] * gap[:, :, None] * gap[:, None, :]
        return Moments(n, mean, one.scatter + other.scatter + between)


def _dask_lengths(parts: list[Any]) -> list[int]:
    dask: Any = importlib.import_module("dask")
    return list(dask.compute(*[dask.delayed(len, pure=False)(part) for part in parts]))


def _dask_moments(
    data: Any, columns: list[str], partitions: int, n: int, rng: np.random.Generator
) -> Iterator[Moments]:
    """Reduce each Dask partition where it lives; only moments come back, some partitions at a time."""
    dask: Any = importlib.import_module("dask")
    parts = dask_partitions(data, columns if hasattr(data, "columns") else None, "data")
    lengths = _dask_lengths(parts)
    if sum(lengths) != n:
        raise ValueError(f"data must not change while they are read: {n} records at first, then {sum(lengths)}")
    stream = _Slices(partition_labels(n, partitions, rng))
    reduce = dask.delayed(_piece_moments, pure=False)
    for start in tqdm(range(0, len(parts), _WAVE), desc="waves", delay=2, disable=None):
        wave = range(start, min(start + _WAVE, len(parts)))
        pieces = [reduce(parts[i], stream.take(lengths[i]), columns, partitions) for i in wave]
        yield from (piece for piece in dask.compute(*pieces) if piece is not None)


def _piece_moments(piece: Any, labels: IntArray, columns: list[str], partitions: int) -> Moments | None:
    """Return the moments of a Dask partition's records, or None where it is empty, as it was when it was counted."""
    chunks = list(_rows(piece, columns)) if len(piece) else []
    read = sum(map(len, chunks))
    if read != len(labels):
        raise ValueError(f"data must not change while they are read: {len(labels)} records at first, then {read}")
    if not read:
        return None
    order, counts = np.argsort(labels, kind="stable"), np.bincount(labels, minlength=partitions)
    return _moments_of(np.concatenate(chunks), order, counts)


class _Slices:
    """Serves a stream of label blocks in slices of any length."""

    def __init__(self, blocks: Iterator[IntArray]) -> None:
        self._blocks = blocks
        self._held = np.empty(0, dtype=np.int64)

    def take(self, count: int) -> IntArray:
        held = [self._held]
        while sum(map(len, held)) < count:
            held.append(next(self._blocks))
        labels = np.concatenate(held[1:] if len(held) > 1 and not len(held[0]) else held)
        self._held = labels[count:]
        return labels[:count]
