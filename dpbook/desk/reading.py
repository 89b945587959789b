"""Files as a steward has them: the header of a table, which is public, and its records, which are not."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpbook._late import pd
from dpbook.desk.plan import Plan
from dpbook.schema import Category, Flag

__all__: list[str] = []

_TRUE, _FALSE = {"1", "true", "yes"}, {"0", "false", "no"}
_CHUNK = 200_000


class UnreadableData(Exception):
    """The data could not be read; the message says nothing that was read."""


def header(path: Path) -> list[str]:
    """Return the names of a table's columns, and read nothing else of a CSV file than its first line."""
    if path.suffix.lower() == ".parquet":
        return [str(name) for name in _parquet(path).schema.names]
    with open(path, encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file), [])
    if not names or any(not name.strip() for name in names) or len(set(names)) < len(names):
        raise ValueError(f"{path}: the first line must hold the names of the columns, each once")
    return names


def frame(path: Path, plan: Plan, columns: list[str]) -> pd.DataFrame:
    """Return some columns of a table, every value read by itself; text that is no number becomes a missing one."""
    if absent := [name for name in columns if name not in header(path)]:
        raise ValueError(f"{path}: the plan has columns that the table has not: {', '.join(map(repr, absent))}")
    try:
        pieces = _pieces(path, columns)
        read = [pd.DataFrame({name: _read(piece[name], plan, name) for name in columns}) for piece in pieces]
        return pd.concat(read, ignore_index=True)
    except OSError:
        raise
    except Exception as error:
        # What went wrong depends on the records; its kind alone is told.
        raise UnreadableData(f"{path}: the records could not be read ({type(error).__name__})") from None


def _pieces(path: Path, columns: list[str]) -> Iterator[pd.DataFrame]:
    if path.suffix.lower() == ".parquet":
        for batch in _parquet(path).iter_batches(batch_size=_CHUNK, columns=columns):
            yield batch.to_pandas()
        return
    settings: dict[str, Any] = {"dtype": str, "keep_default_na": False, "usecols": columns, "encoding": "utf-8-sig"}
    yield from pd.read_csv(path, chunksize=_CHUNK, **settings)


def _parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"{path}: Parquet files need the extra `scale`: pip install 'dpbook[scale]'") from None
    return pyarrow.parquet.ParquetFile(path)


def _read(values: pd.Series, plan: Plan, name: str) -> Any:
    kind = plan.column(name)
    if isinstance(kind, Category):
        labels = {str(label): label for label in kind.labels}
        return [_label(value, labels) for value in values]
    if isinstance(kind, Flag):
        return [_truth(value) for value in values]
    return pd.to_numeric(values, errors="coerce")


def _label(value: Any, labels: dict[str, Any]) -> Any:
    """Return the label that a text stands for; a blank is missing, unless it is a label."""
    text = "" if value is None else str(value).strip()
    return labels.get(text, value if text else None)


def _truth(value: Any) -> Any:
    text = str(value).strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None
