"""A ledger in an SQLite file: every charge is one transaction, on the disk before the noise is drawn.

The file holds the terms of the budget, one row per charge, and beside a charge what was released for it. Rows are
linked by hashes, so that a damaged or edited row is seen, unless it was the last or the hashes were made anew.
SQLite's locks keep two processes from spending the same epsilon, and its journal undoes what a killed process left
half done. It does not promise that on network file systems whose locks do not work, and no file can know that it was
replaced by an older copy of itself: keep the ledger on a local disk, and do not restore it from a backup without
adding what was released since.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__: list[str] = []

_APPLICATION = 0x64706C67  # "dplg", in the file's header
_FORMAT = 1
_PATIENCE = 60.0  # seconds that a process waits for another one's transaction
_TABLES = """
CREATE TABLE terms (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE charges (
  number INTEGER PRIMARY KEY, time TEXT NOT NULL, label TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL,
  rho REAL, mu REAL, path TEXT NOT NULL, neighbours TEXT NOT NULL, link TEXT NOT NULL
) STRICT;
CREATE TABLE releases (
  charge INTEGER PRIMARY KEY REFERENCES charges (number), time TEXT NOT NULL, fingerprint TEXT NOT NULL,
  report TEXT NOT NULL
) STRICT;
"""


class Row(NamedTuple):
    """One charge as it is stored; ``path`` leads through parallel groups: (group, label of the group, branch)."""

    number: int
    time: str
    label: str
    epsilon: float
    delta: float
    rho: float | None
    mu: float | None
    path: tuple[tuple[str, str, str], ...]
    neighbours: str
    link: str


class LedgerFile:
    """The file of one ledger, opened anew for every transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: str | os.PathLike[str], terms: Mapping[str, Any] | None) -> LedgerFile:
        """Return the ledger at a path, made with these terms where there is none; raise where it has others.

        Without terms it must exist. A new file appears whole, under its name, or not at all.
        """
        file = cls(Path(path))
        if not file.path.exists():
            if terms is None:
                raise FileNotFoundError(errno.ENOENT, "there is no ledger, and no epsilon to make one with", str(path))
            file._make(terms)
        file._check()
        if terms is not None:
            _compare(file.terms(), terms, file.path)
        return file

    def terms(self) -> dict[str, Any]:
        """Return the terms that the ledger was made with."""
        with self._connected() as connection:
            return {name: json.loads(value) for name, value in connection.execute("SELECT name, value FROM terms")}

    def rows(self, after: Row | None = None) -> list[Row]:
        """Return the charges that came after a row, all of them by default; raise where their links do not hold."""
        with self._connected() as connection:
            return self._rows(connection, after)

    @contextlib.contextmanager
    def writing(self, after: Row | None) -> Iterator[tuple[list[Row], Callable[..., Row]]]:
        """Hold the file: give what came after a row, and a function that adds a charge; commit at the end.

        Until the block has ended without an error nothing is charged.
        """
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                news = self._rows(connection, after)
                last = news[-1] if news else after

                def add(**values: Any) -> Row:
                    nonlocal last
                    last = _insert(connection, last, values)
                    return last

                yield news, add
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def enter_release(self, number: int, fingerprint: str, report: str) -> None:
        """Write down what was released for a charge."""
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "INSERT OR REPLACE INTO releases VALUES (?, ?, ?, ?)", (number, now(), fingerprint, report)
            )
            connection.execute("COMMIT")

    def releases(self) -> dict[int, tuple[str, str]]:
        """Return fingerprint and report of what was released, by the number of its charge."""
        with self._connected() as connection:
            return {
                number: (fingerprint, report)
                for number, fingerprint, report in connection.execute(
                    "SELECT charge, fingerprint, report FROM releases"
                )
            }

    def _make(self, terms: Mapping[str, Any]) -> None:
        """Write a new ledger beside its place, then give it its name, unless another process was faster."""
        with _spoken(self.path):
            handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent or ".")
            os.close(handle)
            try:
                with contextlib.closing(_connection(Path(name), "rw")) as connection:
                    connection.executescript(
                        f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_FORMAT};"
                    )
                    connection.executescript(f"BEGIN; {_TABLES}")
                    stored = [(each, json.dumps(value)) for each, value in {**terms, "made": now()}.items()]
                    connection.executemany("INSERT INTO terms VALUES (?, ?)", stored)
                    connection.execute("COMMIT")
                with contextlib.suppress(FileExistsError):
                    os.link(name, self.path)
            finally:
                os.unlink(name)
            _sync_folder(self.path.parent)

    def _check(self) -> None:
        """Raise a ValueError unless the file is a ledger of this format, in order."""
        if not self.path.is_file():
            raise ValueError(f"path must be a ledger, got {str(self.path)!r}, which is no regular file")
        with open(self.path, "rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise ValueError(f"path must be a ledger, got {str(self.path)!r}, which is another kind of file")
        with self._connected() as connection:
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            if found != _APPLICATION:
                raise ValueError(f"path must be a ledger, got {str(self.path)!r}, a database of another program")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != _FORMAT:
                raise ValueError(f"path is a ledger of format {version}, which this version of dpbook does not read")
            broken = connection.execute("PRAGMA quick_check").fetchone()[0]
            if broken != "ok":
                raise ValueError(f"the ledger {str(self.path)!r} is damaged: {broken}. Nothing was spent")
            self._rows(connection, None)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with _spoken(self.path), contextlib.closing(_connection(self.path, "rw")) as connection:
            yield connection

    def _rows(self, connection: sqlite3.Connection, after: Row | None) -> list[Row]:
        number, link = (0, "") if after is None else (after.number, after.link)
        if after is not None:  # what was read before must still be there
            kept = connection.execute("SELECT link FROM charges WHERE number = ?", (number,)).fetchone()
            if kept != (link,):
                raise ValueError(_edited(self.path))
        found = []
        for values in connection.execute("SELECT * FROM charges WHERE number > ? ORDER BY number", (number,)):
            row = _row(values)
            if row.number != number + 1 or row.link != _link(link, row):
                raise ValueError(_edited(self.path))
            number, link = row.number, row.link
            found.append(row)
        return found


def _edited(path: Path) -> str:
    return (
        f"the ledger {str(path)!r} is damaged: rows were changed, or are missing, after they were written. "
        "Nothing was spent"
    )


def _insert(connection: sqlite3.Connection, last: Row | None, values: Mapping[str, Any]) -> Row:
    number = 1 if last is None else last.number + 1
    row = Row(number=number, time=now(), link="", **values)
    row = row._replace(link=_link("" if last is None else last.link, row))
    connection.execute(
        f"INSERT INTO charges VALUES ({', '.join('?' * len(row))})",
        row._replace(path=json.dumps(row.path)),  # type: ignore[arg-type]
    )
    return row


def _row(values: Sequence[Any]) -> Row:
    row = Row(*values)
    return row._replace(path=tuple((str(a), str(b), str(c)) for a, b, c in json.loads(str(row.path))))


def _link(before: str, row: Row) -> str:
    """Return the hash of a row and of all rows before it."""
    content = json.dumps([before, *row._replace(link="")], default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def _compare(found: Mapping[str, Any], terms: Mapping[str, Any], path: Path) -> None:
    for name, value in terms.items():
        if found.get(name) != value:
            raise ValueError(
                f"{name} must be as in the ledger {str(path)!r}, {found.get(name)!r}, got {value!r}: the terms of a "
                "ledger do "
                "not change"
            )


def _connection(path: Path, mode: str) -> sqlite3.Connection:
    """Connect so that a commit is on the disk when it returns; transactions are begun by hand."""
    where = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(where, uri=True, isolation_level=None, timeout=_PATIENCE, check_same_thread=False)
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


def _sync_folder(folder: Path) -> None:
    """Bring a new name to the disk, where a folder can be opened."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def now() -> str:
    """Return the time, as a ledger writes it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


@contextlib.contextmanager
def _spoken(path: Path) -> Iterator[None]:
    """Say what SQLite's errors mean for a ledger."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        unspent = "Nothing was spent"
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
            raise PermissionError(
                errno.EACCES, f"the ledger cannot be written ({error}). {unspent}", str(path)
            ) from error
        if name.startswith(("SQLITE_FULL",)):
            raise OSError(errno.ENOSPC, f"the disk of the ledger is full. {unspent}", str(path)) from error
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            text = f"another process has held the ledger for {_PATIENCE:.0f} s. {unspent}"
            raise OSError(errno.EBUSY, text, str(path)) from error
        if name.startswith("SQLITE_IOERR"):
            raise OSError(errno.EIO, f"the ledger could not be read or written ({error})", str(path)) from error
        raise ValueError(f"path must be a ledger in order, got {str(path)!r}: {error}. {unspent}") from error
