"""The store: the tables of the operator's side, in one database.

Each table's module has its operations (`proxy.storage.query`). `Store.run` runs one of them.
"""

import logging
import time

from proxy import __version__
from proxy.settings.storage import StoreOptions
from proxy.storage.connect import make_database
from proxy.storage.operator import changes, decisions, hook_hours, keys, usage
from proxy.storage.query import Database, Query, StateError, Steps, T
from proxy.storage.records import Change
from proxy.storage.sqlite import MEMORY

logger = logging.getLogger("weir.admin")

DEFAULT = "sqlite:///weir.sqlite"
"""The store of a server that has an admin key, if no other is named."""

SCHEMA = 3

_MADE_BY = "weir "
"""A fact of such a name says when a version of Weir last started with the store."""

_FACTS = "CREATE TABLE IF NOT EXISTS weir_store (name TEXT PRIMARY KEY, value BIGINT NOT NULL)"
TABLES = (_FACTS, *keys.TABLES, *changes.TABLES, *decisions.TABLES, *hook_hours.TABLES, *usage.TABLES)


class Store:
    """Its methods raise `StateError`."""

    def __init__(self, options: StoreOptions, *, has_admin_key: bool) -> None:
        """Raises `ValueError` for a URL that cannot be used, and `ImportError` if it needs a library that is
        not installed."""
        default = DEFAULT if has_admin_key else MEMORY
        url = default if options.store is None else options.store.get_secret_value()
        self.is_kept = url != MEMORY
        """Whether the store outlives the process, and other processes may use it too."""
        try:
            self._database = make_database(url, options.store_timeout)
        except ValueError:  # its message may have a part of the URL, and the URL a password
            raise ValueError("store: this URL cannot be used") from None

    async def start(self) -> None:
        """Make the tables. Raises `ValueError` for tables that another version made, and for a file that
        cannot be opened."""
        await self._database.start()
        try:
            await self._database.run(_start(self._database))
        except OSError as error:
            raise ValueError(f"store: {error.filename} cannot be opened: {error.strerror}") from error

    async def aclose(self) -> None:
        await self._database.aclose()

    async def run(self, steps: Steps[T], *, alone: bool = True) -> T:
        """Run an operation as one transaction, as `Database.run` does."""
        return await self._database.run(steps, alone=alone)

    async def note(self, change: Change) -> None:
        """Keep a change that has been made. While the database does not answer, only the log has it."""
        try:
            await self.run(changes.add(change))
        except StateError as error:
            logger.error("%s: %s %s is in no list of changes", error, change.action, change.object)


def _start(database: Database) -> Steps[None]:
    for sql in TABLES:
        yield Query(sql.format(serial=database.serial))
    yield Query("INSERT INTO weir_store VALUES ('schema', $1) ON CONFLICT DO NOTHING", (SCHEMA,))
    yield Query("INSERT INTO weir_store VALUES ('keys', 0) ON CONFLICT DO NOTHING")
    ((schema,),) = yield Query("SELECT value FROM weir_store WHERE name = 'schema'")
    if schema in (1, 2):
        for sql in (*(decisions.SINCE_2 if schema == 1 else ()), *decisions.SINCE_3):
            yield Query(sql)
        yield Query("UPDATE weir_store SET value = $1 WHERE name = 'schema'", (SCHEMA,))
    elif schema != SCHEMA:
        raise ValueError((yield from _other_schema(schema)))
    yield Query(
        "INSERT INTO weir_store VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
        (_MADE_BY + __version__, int(time.time())),
    )


def _other_schema(schema: int) -> Steps[str]:
    """Why this version cannot use the store, and what can be done."""
    made_by = yield Query(
        "SELECT name FROM weir_store WHERE name LIKE $1 ORDER BY value DESC LIMIT 1", (f"{_MADE_BY}%",)
    )
    other = f"Weir {made_by[0][0].removeprefix(_MADE_BY)}" if made_by else "another version of Weir"
    return (
        f"the store has schema {schema}, of {other}, and this is Weir {__version__}, which needs schema"
        f" {SCHEMA}: start {other} again, or go back to a backup of this version (weir store restore FILE)"
    )
