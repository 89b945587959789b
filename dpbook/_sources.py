"""Records read as they come: files, Arrow data sets and the streams of other libraries, in memory that stays flat.

A file is known by its path. A CSV file holds texts, and each is read by itself: a reader that guesses the type of a
whole column lets one record change all others.
"""

from __future__ import annotations

import abc
import csv
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dpbook._validation import present_columns

__all__: list[str] = []

_ROWS = 2**16  # read at a time
_AHEAD = 2  # batches that a data set may read before they are asked for
_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".csv": "csv"}


class Stream(abc.ABC):
    """Records that can be read again and again, piece by piece, and of them only the columns that are asked for."""

    texts = False  # whether every value is a text, of which the reader decides what it means

    @property
    @abc.abstractmethod
    def column_names(self) -> list[str]:
        """What the columns are called."""

    @abc.abstractmethod
    def count(self) -> int:
        """Return the number of records."""

    @abc.abstractmethod
    def _batches(self, columns: list[str]) -> Iterator[Any]:
        """Yield Arrow batches or data frames that have these columns."""

    def batches(self, columns: list[str] | None, name: str) -> Iterator[Any]:
        """Yield Arrow batches or data frames of some columns, by default all; raise where one does not occur once."""
        held = self.column_names
        return self._batches(present_columns(held, held if columns is None else columns, name))


def source_of(data: Any, name: str = "data") -> Any:
    """Return a file, a data set or another library's table as what is read piece by piece; anything else as it is."""
    if isinstance(data, (str, os.PathLike)):
        return _file(Path(data), name)
    if isinstance(data, (Stream, type)):
        return data
    library = type(data).__module__.split(".")[0]
    if library == "pyarrow" and hasattr(data, "to_batches") and hasattr(data, "count_rows"):  # a Dataset or a Scanner
        return _DataSet(data)
    if library == "polars" and not hasattr(data, "__arrow_c_stream__"):
        if not hasattr(data, "collect"):
            raise TypeError(f"{name} is a polars {type(data).__name__}, which is not read: pass its to_pandas()")
        return source_of(data.collect(), name)
    if library in ("pyarrow", "pandas") or not hasattr(data, "__arrow_c_stream__"):
        return data
    return _foreign(data, _arrow(f"{name} is a {library} {type(data).__name__}"))


def _foreign(data: Any, pyarrow: Any) -> Any:
    """Return a reader of another library's table, which takes its stream once; a column of it as an Arrow column."""
    try:
        return pyarrow.RecordBatchReader.from_stream(data)
    except pyarrow.ArrowInvalid:  # the stream is one of plain values: a column
        return pyarrow.chunked_array(data)


def _arrow(what: str, load: Callable[[], Any] = lambda: importlib.import_module("pyarrow")) -> Any:
    try:
        return load()
    except ImportError as error:
        raise ImportError(f'{what}: reading it needs pyarrow, pip install "dpbook[scale]"') from error


def _file(path: Path, name: str) -> Stream:
    """Return the stream that a path names, by the name alone."""
    if not path.exists():
        raise FileNotFoundError(f"{name} must, as a text or a path, name a file: there is no {os.fspath(path)!r:.200}")
    kind = "parquet" if path.is_dir() else _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise ValueError(
            f"{name} must, as a path, end in one of {', '.join(_SUFFIXES)}, or be a folder of Parquet files; got "
            f"{os.fspath(path)!r:.200}"
        )
    if kind == "csv":
        return _Csv(path, name)
    if kind == "parquet" and path.is_file():
        return _Parquet(path, name)
    arrow = _arrow(f"{name} is {path.name}", lambda: importlib.import_module("pyarrow.dataset"))
    return _DataSet(arrow.dataset(path, format=kind))


class _Parquet(Stream):
    """A Parquet file, of which one row group at a time is held."""

    def __init__(self, path: Path, name: str) -> None:
        arrow = _arrow(f"{name} is {path.name}", lambda: importlib.import_module("pyarrow.parquet"))
        self._file = arrow.ParquetFile(path, pre_buffer=False)

    @property
    def column_names(self) -> list[str]:
        return [str(each) for each in self._file.schema_arrow.names]

    def count(self) -> int:
        return int(self._file.metadata.num_rows)

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        yield from self._file.iter_batches(batch_size=_ROWS, columns=columns, use_threads=False)


class _DataSet(Stream):
    """An Arrow data set, or a scanner of one, whose batches come in the order of its files."""

    def __init__(self, data: Any) -> None:
        self._data = data

    @property
    def column_names(self) -> list[str]:
        schema = self._data.schema if hasattr(self._data, "schema") else self._data.projected_schema
        return [str(each) for each in schema.names]

    def count(self) -> int:
        return int(self._data.count_rows())

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        if not hasattr(self._data, "schema"):  # a scanner was told what to read
            yield from self._data.to_batches()
            return
        settings: dict[str, Any] = {
            "batch_size": _ROWS,
            "batch_readahead": _AHEAD,
            "fragment_readahead": 1,
            "use_threads": False,
        }
        if getattr(getattr(self._data, "format", None), "default_extname", "") == "parquet":
            options = importlib.import_module("pyarrow.dataset").ParquetFragmentScanOptions
            # By default whole files are read ahead of their batches.
            settings["fragment_scan_options"] = options(pre_buffer=False, use_buffered_stream=True)
        yield from self._data.to_batches(columns=columns, **settings)


class _Csv(Stream):
    """A CSV file with a line of names, its values as texts; a blank one is an empty text."""

    texts = True

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name

    @property
    def column_names(self) -> list[str]:
        with open(self._path, encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file), [])
        if not names or any(not name.strip() for name in names) or len(set(names)) < len(names):
            raise ValueError(f"{self._path}: the first line must hold the names of the columns, each once")
        return names

    def count(self) -> int:
        first = self.column_names[:1]
        return sum(map(len, self._batches(first)))

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        pandas = importlib.import_module("pandas")
        settings = {"dtype": object, "keep_default_na": False, "usecols": columns, "encoding": "utf-8-sig"}
        with pandas.read_csv(self._path, chunksize=_ROWS, **settings) as chunks:
            yield from (chunk[columns] for chunk in chunks)  # a file has an order of its own
