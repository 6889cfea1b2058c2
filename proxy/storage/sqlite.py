"""An SQLite database: a file, which several processes on one machine open, or memory."""

import asyncio
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from proxy.storage.query import Database, Query, Row, StateError, Steps, T

MEMORY = ":memory:"

RETRY = 0.01
"""Seconds between two attempts to open a file that other processes open, too."""


class SQLiteDatabase(Database):
    """The database is used on one thread of its own, never on the event loop's."""

    blob = "BLOB"
    serial = "INTEGER PRIMARY KEY AUTOINCREMENT"
    now = "CAST(strftime('%s', 'now') AS INTEGER)"

    def __init__(self, file: str, timeout: float) -> None:
        """`timeout`: seconds in which an operation must end."""
        self._file = file
        self._timeout = timeout
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        self._database: sqlite3.Connection | None = None

    async def start(self) -> None:
        """The first operation opens the file."""

    async def aclose(self) -> None:
        if self._database is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
            self._database = None
        self._thread.shutdown(wait=False)

    async def run(self, steps: Steps[T], *, alone: bool = True) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, steps)
        except (sqlite3.Error, TimeoutError) as error:
            raise StateError(f"SQLite does not answer ({type(error).__name__})") from error

    def _transact(self, steps: Steps[T]) -> T:
        database = self._database = self._database or self._open()
        database.execute("BEGIN IMMEDIATE")  # a transaction that has read could not always write later
        try:
            result = _drive(database, steps)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        return result

    @staticmethod
    def make_file(file: str) -> None:
        """Make the file if there is none. Only its owner reads it: it holds callers' texts."""
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, mode=0o600))

    def _open(self) -> sqlite3.Connection:
        if self._file != MEMORY:
            self.make_file(self._file)
        database = sqlite3.connect(self._file, timeout=self._timeout, isolation_level=None)
        try:
            _share(database, time.monotonic() + self._timeout)
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA secure_delete = FAST")
        except BaseException:
            database.close()
            raise
        return database


def _share(database: sqlite3.Connection, deadline: float) -> None:
    """Let readers and a writer use the file at once. SQLite does not wait here for other processes."""
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY)
        else:
            return


def _drive(database: sqlite3.Connection, steps: Steps[T]) -> T:
    rows: Any = None
    while True:
        try:
            query = steps.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result
        rows = _rows(database, query)


def _rows(database: sqlite3.Connection, query: Query) -> list[Row]:
    sql = query.sql.replace("$", "?")
    if query.many is not None:
        database.executemany(sql, query.many)
        return []
    return database.execute(sql, query.values).fetchall()
