"""Files as a steward has them: the header of a table, which is public, and its records, which are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpbook._late import pd
from dpbook._sources import Stream, source_of
from dpbook.desk.plan import Plan
from dpbook.schema import Category, Flag

__all__: list[str] = []

_TRUE, _FALSE = {"1", "true", "yes"}, {"0", "false", "no"}


class UnreadableData(Exception):
    """The data could not be read; the message says nothing that was read."""


def header(path: Path) -> list[str]:
    """Return the names of a table's columns, and read nothing else of a CSV file than its first line."""
    return list(_stream(path).column_names)


def count(path: Path) -> int | None:
    """Return the number of records where a file says it, else None."""
    stream = _stream(path)
    return None if stream.texts else int(stream.count())


def frames(path: Path, plan: Plan, columns: list[str]) -> Iterator[pd.DataFrame]:
    """Yield some columns of a table, piece by piece, every value read by itself; text that is no number is missing."""
    if absent := [name for name in columns if name not in header(path)]:
        raise ValueError(f"{path}: the plan has columns that the table has not: {', '.join(map(repr, absent))}")
    return _frames(path, plan, columns)


def _frames(path: Path, plan: Plan, columns: list[str]) -> Iterator[pd.DataFrame]:
    try:
        for batch in _stream(path).batches(columns, str(path)):
            piece = batch if isinstance(batch, pd.DataFrame) else batch.to_pandas()
            yield pd.DataFrame({name: _read(piece[name], plan, name) for name in columns})
    except OSError:
        raise
    except Exception as error:
        # What went wrong depends on the records; its kind alone is told.
        raise UnreadableData(f"{path}: the records could not be read ({type(error).__name__})") from None


def _stream(path: Path) -> Stream:
    try:
        stream: Stream = source_of(path, str(path))
    except ImportError:
        raise ValueError(f"{path}: such files need the extra `scale`: pip install 'dpbook[scale]'") from None
    return stream


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
