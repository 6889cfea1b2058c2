"""A PostgreSQL database, for several machines."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hooks.api.extras import from_extra
from proxy.storage.query import Database, Query, Row, StateError, Steps, T

with from_extra("postgres", "asyncpg", needed_by="URLs that begin with postgresql://"):
    import asyncpg

LOCK = 0x77656972
"""The advisory lock of operations that run alone."""

MAX_CONNECTIONS = 4


class PostgresDatabase(Database):
    blob = "BYTEA"
    serial = "BIGSERIAL PRIMARY KEY"
    now = "CAST(extract(epoch FROM clock_timestamp()) AS BIGINT)"

    def __init__(self, url: str, timeout: float) -> None:
        """`timeout`: seconds in which the server must connect, and an operation must end."""
        self._url = url
        self._timeout = timeout
        self._pool: Any = None
        self._running: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        with _errors():
            self._pool = await asyncpg.create_pool(
                self._url, min_size=0, max_size=MAX_CONNECTIONS, timeout=self._timeout
            )

    async def aclose(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def run(self, steps: Steps[T], *, alone: bool = True) -> T:
        # A transaction is never cancelled: asyncpg would wait for the server to confirm it.
        running = asyncio.get_running_loop().create_task(self._transact(steps, alone))
        self._running.add(running)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def _ended(self, running: asyncio.Task[Any]) -> None:
        self._running.discard(running)
        if not running.cancelled():
            running.exception()  # nobody may wait for it any more

    async def _transact(self, steps: Steps[T], alone: bool) -> T:
        with _errors():
            database = await self._acquired()
            late = asyncio.get_running_loop().call_later(self._timeout, database.terminate)
            try:
                async with database.transaction():
                    if alone:
                        await database.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
                    return await _drive(database, steps)
            finally:
                late.cancel()
                await self._pool.release(database)

    async def _acquired(self) -> Any:
        try:
            return await self._pool.acquire(timeout=self._timeout)
        except ValueError:  # asyncpg reads the URL here, and its message may have the password
            raise StateError("the URL of PostgreSQL cannot be used") from None


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise StateError(f"PostgreSQL does not answer ({type(error).__name__})") from error


async def _drive(database: Any, steps: Steps[T]) -> T:
    rows: Any = None
    while True:
        try:
            query = steps.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result
        rows = await _rows(database, query)


async def _rows(database: Any, query: Query) -> list[Row]:
    if query.many is not None:
        await database.executemany(query.sql, query.many)
        return []
    return list(map(tuple, await database.fetch(query.sql, *query.values)))
