"""Copies of a store in SQLite, made and brought back while servers use it.

A file's copy alone is no backup: the latest changes may be in the file `-wal` beside it, such as that a key
is revoked.
"""

import asyncio
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from proxy.settings.storage import StoreOptions
from proxy.storage.operator import changes
from proxy.storage.operator.keys import StoredKey
from proxy.storage.operator.store import TABLES, Store
from proxy.storage.records import Change
from proxy.storage.sqlite import SQLiteDatabase

TIMEOUT = 60.0
"""Seconds to wait for servers that write."""


class BackupError(Exception):
    """The message says what is wrong, and what can be done."""


class Contents(NamedTuple):
    num_keys: int
    """Valid ones."""
    num_revoked: int
    num_decisions: int


class Restored(NamedTuple):
    contents: Contents
    num_invalid: int
    """Keys of the backup that were revoked or rotated since, and stay so."""


def back_up(store: Path, copy: Path) -> Contents:
    """Copy a store into a new file, as it is at one moment. Servers that use it go on.

    Raises `BackupError`.
    """
    with _errors(store):
        if not store.is_file():
            raise BackupError(f"there is no store {store}")
        if copy.exists():
            raise BackupError(f"{copy} exists; a backup is a new file")
        with _temporary(copy) as file:
            with closing(_opened(store)) as source, closing(_opened(file)) as target:
                _check_store(source, store)
                source.backup(target)  # in one step: another writer would have several begin anew
                target.execute("PRAGMA journal_mode = DELETE")  # one file holds all
                _check_whole(target, store)
                contents = _contents_of(target)
            _sync(file)
            os.replace(file, copy)
    return contents


def restore(copy: Path, store: Path) -> Restored:
    """Give a store the contents of a backup, in one transaction. Servers that use the store go on, and see
    the change as one of another process.

    A key that the store knows stays as it is, so none becomes valid again that was revoked or rotated since.
    The list of changes says that the store was restored. Raises `BackupError`.
    """
    with _errors(copy):
        if not copy.is_file():
            raise BackupError(f"there is no backup {copy}")
        with _temporary(store) as file:
            with closing(_opened(copy)) as source, closing(_opened(file)) as target:
                _check_store(source, copy)
                source.backup(target)
                _check_whole(target, copy)
            asyncio.run(_make_current(file))
            with _errors(store):
                return _take_over(file, store, copy.name)


def _take_over(file: Path, store: Path, name: str) -> Restored:
    SQLiteDatabase.make_file(str(store))
    with closing(_opened(store)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("ATTACH ? AS backup", (str(file),))
        database.execute("BEGIN IMMEDIATE")
        try:
            num_invalid = _replace_tables(database)
            for query in changes.add(Change("weir store", "restore_store", name, {})):
                database.execute(query.sql.replace("$", "?"), query.values)
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")
        return Restored(_contents_of(database), num_invalid)


def _replace_tables(database: sqlite3.Connection) -> int:
    """Returns how many keys are not as valid as in the backup."""
    before = [name for (name,) in database.execute(_TABLES_OF.format("main"))]
    known: dict[str, StoredKey] = {}
    version = _version(database, "backup")
    if before:
        known, version = _keys(database, "main"), max(version, _version(database, "main"))
    for table in before:
        database.execute(f"DROP TABLE main.{table}")
    for sql in TABLES:
        database.execute(sql.format(serial=SQLiteDatabase.serial))
    for (table,) in database.execute(_TABLES_OF.format("main")).fetchall():
        columns = ", ".join(row[1] for row in database.execute(f"PRAGMA main.table_info({table})"))
        database.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM backup.{table}")
    database.execute("UPDATE weir_store SET value = ? WHERE name = 'keys'", (version + 1,))
    restored = _keys(database, "main")
    for key in known.values():
        database.execute("DELETE FROM weir_keys WHERE name = ?", (key.name,))
        database.execute("INSERT INTO weir_keys VALUES (?, ?, ?, ?, ?)", _row(key))
    valid = {key.digest for key in known.values() if key.revoked is None}
    return sum(
        key.revoked is None and name in known and key.digest not in valid for name, key in restored.items()
    )


def _keys(database: sqlite3.Connection, of: str) -> dict[str, StoredKey]:
    rows = database.execute(f"SELECT name, digest, settings, created, revoked FROM {of}.weir_keys")
    return {
        name: StoredKey(name, digest, json.loads(settings), created, revoked)
        for name, digest, settings, created, revoked in rows
    }


def _row(key: StoredKey) -> tuple[str, str, str, int, int | None]:
    return key.name, key.digest, json.dumps(key.settings), key.created, key.revoked


def _version(database: sqlite3.Connection, of: str) -> int:
    ((version,),) = database.execute(f"SELECT value FROM {of}.weir_store WHERE name = 'keys'")
    return int(version)


_TABLES_OF = "SELECT name FROM {}.sqlite_master WHERE type = 'table' AND name LIKE 'weir\\_%' ESCAPE '\\'"


async def _make_current(file: Path) -> None:
    """Bring a backup of an earlier schema to this version's, as a start of the server does."""
    store = Store(StoreOptions(store=SecretStr(f"sqlite:///{file}")), has_admin_key=False)
    try:
        await store.start()
    except ValueError as error:
        raise BackupError(f"the backup cannot be used: {error}") from error
    finally:
        await store.aclose()


def _opened(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file, timeout=TIMEOUT, isolation_level=None)
    database.execute("PRAGMA secure_delete = FAST")
    return database


def _check_store(database: sqlite3.Connection, file: Path) -> None:
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'weir_store'").fetchall():
        raise BackupError(f"{file} is no store of Weir")


def _check_whole(database: sqlite3.Connection, file: Path) -> None:
    ((told,),) = database.execute("PRAGMA quick_check(1)").fetchall()
    if told != "ok":
        raise BackupError(f"{file} is damaged")


def _contents_of(database: sqlite3.Connection) -> Contents:
    ((num_keys, num_revoked),) = database.execute(
        "SELECT COUNT(*) - COUNT(revoked), COUNT(revoked) FROM weir_keys"
    )
    ((num_decisions,),) = database.execute("SELECT COUNT(*) FROM weir_decisions")
    return Contents(num_keys, num_revoked, num_decisions)


@contextmanager
def _temporary(beside: Path) -> Iterator[Path]:
    """A new file in the same folder, which only its owner reads. It is removed at the end."""
    file = beside.with_name(f".{beside.name}.{os.getpid()}.tmp")
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600))
    try:
        yield file
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            file.with_name(file.name + end).unlink(missing_ok=True)


def _sync(file: Path) -> None:
    with open(file, "rb") as written:
        os.fsync(written.fileno())


@contextmanager
def _errors(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise BackupError(f"{file} cannot be used now: {error}") from error
    except sqlite3.DatabaseError as error:
        raise BackupError(f"{file} is damaged, or no store of Weir") from error
    except OSError as error:
        raise BackupError(f"{error.filename or file}: {error.strerror}") from error
