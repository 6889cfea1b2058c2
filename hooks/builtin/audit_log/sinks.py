"""Places for records that several processes may write at once: a rotated file of lines, or a table."""

import errno
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

_MODE = 0o600


class LineFile:
    """Records as JSON, one a line, in `path`; older files are `path.1`, `path.2` and so on.

    Several processes may write to it at once and every line stays whole: they take turns with a lock
    (`path.lock`), and first check whether the file is renamed. A write that a full disk cuts short is undone.
    """

    def __init__(self, path: str | Path, max_size: int, keep: int) -> None:
        """`max_size`: bytes. `keep`: older files. Raises `OSError` if `path` cannot be written."""
        self._path = Path(path).expanduser().absolute()
        self._max_size = max_size
        self._keep = keep
        self._file: int | None = None
        with _locked(self._path):
            self._opened()
        self.close()

    def write(self, records: Sequence[dict[str, Any]]) -> int:
        lines = [json.dumps(record).encode() + b"\n" for record in records]
        with _locked(self._path):
            file = self._opened()
            size = os.fstat(file).st_size
            if size and size + len(lines[0]) > self._max_size:
                self._turn_over()
                file, size = self._opened(), 0
            count = sum(size + length <= self._max_size for length in accumulate(map(len, lines))) or 1
            self._append(file, size, b"".join(lines[:count]))
        return count

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        if self._file is not None and not self._is_current(self._file):
            self.close()
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, _MODE)
        return self._file

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _append(self, file: int, size: int, data: bytes) -> None:
        if size and os.pread(file, 1, size - 1) != b"\n":  # the last writer was killed while writing
            data = b"\n" + data
        try:
            if os.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(file, size)
            raise

    def _turn_over(self) -> None:
        """Rename each file to the next number, to make room for a new one. The oldest is deleted."""
        names = [self._path, *(Path(f"{self._path}.{i}") for i in range(1, self._keep + 1))]
        count = next((i for i, name in enumerate(names) if not name.exists()), len(names))
        if count == len(names):
            names[-1].unlink()
            count -= 1
        for i in range(count, 0, -1):
            names[i - 1].rename(names[i])


class Table:
    """Records as rows of the table `decisions` of an SQLite database, in write-ahead mode."""

    def __init__(self, path: str | Path, columns: Sequence[str], added: Sequence[str] = ()) -> None:
        """`added`: those of `columns` that a table of an earlier version lacks; it gets them. Raises
        `OSError` or `sqlite3.Error` if the database cannot be written."""
        self._path = Path(path).expanduser().absolute()
        self._columns = columns
        self._added = added
        self._connection: sqlite3.Connection | None = None
        # SQLite does not wait for its own lock where two processes set the write-ahead mode at once.
        with _locked(self._path):
            self._create()

    def _create(self) -> None:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, _MODE))
        with closing(self._connect()) as connection, connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"CREATE TABLE IF NOT EXISTS decisions ({', '.join(self._columns)})")
            known = {row[1] for row in connection.execute("PRAGMA table_info(decisions)")}
            for column in self._added:
                if column not in known:
                    connection.execute(f"ALTER TABLE decisions ADD COLUMN {column}")
            connection.execute("CREATE INDEX IF NOT EXISTS decisions_time ON decisions (time)")
            connection.execute(f"SELECT {', '.join(self._columns)} FROM decisions LIMIT 0")

    def write(self, records: Sequence[dict[str, Any]]) -> int:
        if self._connection is None:
            self._connection = self._connect()
        rows = [[_storable(record.get(name)) for name in self._columns] for record in records]
        names, marks = ", ".join(self._columns), ", ".join("?" * len(self._columns))
        try:
            with self._connection as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(f"INSERT INTO decisions ({names}) VALUES ({marks})", rows)
        except sqlite3.Error:
            self.close()
            raise
        return len(records)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=5.0, isolation_level=None)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes out of `path`, by a lock on the file `path.lock`."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, _MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _storable(value: Any) -> Any:
    """Escape half surrogate pairs, because SQLite does not accept them as text."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
