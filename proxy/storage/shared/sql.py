"""Shared state in the tables of a database."""

import secrets
import time
from collections.abc import Iterable, Mapping

from proxy.settings.storage import StateOptions
from proxy.storage import reports
from proxy.storage.query import Database, Query, Row, Steps
from proxy.storage.reports import Report
from proxy.storage.shared.protocol import LEASE, ItemIds, Owner, Slot, StoredResponse

ALL = ""
"""The shelf that counts all responses. No caller has this name."""

SCHEMA = "1"


class SQLState:
    """A `State` in a database. Each operation has its steps in a generator (`proxy.storage.query`)."""

    def __init__(self, database: Database, options: StateOptions) -> None:
        self.salt = b""
        self._options = options
        self._run = database.run
        self._database = database

    async def aclose(self) -> None:
        await self._database.aclose()

    async def start(self) -> None:
        await self._database.start()
        self.salt = await self._run(self._start())

    async def put(self, owner: Owner, response_id: str, response: StoredResponse, ids: ItemIds) -> None:
        await self._run(self._put(owner, response_id, response, ids))

    async def get(self, owner: Owner, response_id: str) -> StoredResponse | None:
        return await self._run(self._get(owner, response_id), alone=False)

    async def remove(self, owner: Owner, response_id: str) -> bool:
        return await self._run(self._remove(owner, response_id))

    async def item(self, owner: Owner, item_id: str) -> bytes | None:
        return await self._run(self._item(owner, item_id), alone=False)

    async def count(self, process: str, requests: Mapping[str, int]) -> dict[str, int]:
        return await self._run(self._count(process, requests))

    async def forget(self, process: str) -> None:
        await self._run(self._forget(process))

    async def spend(
        self, report: Report, minute: int, amounts: Mapping[Slot, int]
    ) -> dict[Slot, tuple[int, int]]:
        return await self._run(self._spend(report, minute, amounts))

    def _start(self) -> Steps[bytes]:
        """Make the tables. Returns the salt. Raises `ValueError` for tables that another version made."""
        for sql in (*_TABLES, *reports.TABLES):
            yield Query(sql.format(blob=self._database.blob))
        for name, value in (("schema", SCHEMA), ("salt", secrets.token_hex(16))):
            yield Query("INSERT INTO weir_facts VALUES ($1, $2) ON CONFLICT DO NOTHING", (name, value))
        facts: dict[str, str] = dict((yield Query("SELECT name, value FROM weir_facts")))
        if facts["schema"] != SCHEMA:
            raise ValueError(
                f"the state has schema {facts['schema']}, and this version of Weir needs schema {SCHEMA}:"
                " start the version that made it, or name another state (--state)"
            )
        return bytes.fromhex(facts["salt"])

    def _put(self, owner: Owner, response_id: str, response: StoredResponse, ids: ItemIds) -> Steps[None]:
        options, size = self._options, response.size(len(ids))
        if size > min(options.max_stored_bytes_per_caller, options.max_stored_bytes):
            return
        yield from self._remove(owner, response_id)
        now, name = time.time_ns(), (*owner, response_id)
        yield Query(
            "INSERT INTO weir_responses VALUES ($1, $2, $3, $4, $5, $6, $7)",
            (*name, response.body, response.items, size, now),
        )
        if ids:
            rows = tuple((*owner, item_id, response_id, place, now) for item_id, place in ids.items())
            yield Query("INSERT INTO weir_items VALUES ($1, $2, $3, $4, $5, $6)", many=rows)
        yield from self._resize(owner.caller, 1, size)
        yield from self._make_room(owner.caller)

    def _get(self, owner: Owner, response_id: str) -> Steps[StoredResponse | None]:
        name = (*owner, response_id)
        found = yield Query(f"SELECT body, items FROM weir_responses WHERE {_NAME}", name)
        if not found:
            return None
        yield Query(f"UPDATE weir_responses SET used = $4 WHERE {_NAME}", (*name, time.time_ns()))
        return StoredResponse(*map(bytes, found[0]))

    def _remove(self, owner: Owner, response_id: str) -> Steps[bool]:
        name = (*owner, response_id)
        found = yield Query(f"SELECT size FROM weir_responses WHERE {_NAME}", name)
        if not found:
            return False
        yield Query(f"DELETE FROM weir_responses WHERE {_NAME}", name)
        yield Query(f"DELETE FROM weir_items WHERE {_NAME}", name)
        yield from self._resize(owner.caller, -1, -found[0][0])
        return True

    def _item(self, owner: Owner, item_id: str) -> Steps[bytes | None]:
        found = yield Query(
            "SELECT r.items, i.place FROM weir_items i JOIN weir_responses r"
            " ON r.caller = i.caller AND r.key = i.key AND r.id = i.id"
            " WHERE i.caller = $1 AND i.key = $2 AND i.item = $3 ORDER BY i.stored DESC LIMIT 1",
            (*owner, item_id),
        )
        return bytes(found[0][0]).split(b"\n")[found[0][1]] if found else None

    def _count(self, process: str, requests: Mapping[str, int]) -> Steps[dict[str, int]]:
        expires = f"{self._database.now} + {round(LEASE)}"
        yield Query(f"DELETE FROM weir_processes WHERE expires <= {self._database.now}")
        yield Query("DELETE FROM weir_under_way WHERE process NOT IN (SELECT process FROM weir_processes)")
        yield Query(
            f"INSERT INTO weir_processes VALUES ($1, {expires})"
            f" ON CONFLICT (process) DO UPDATE SET expires = {expires}",
            (process,),
        )
        set_count = (
            "INSERT INTO weir_under_way VALUES ($1, $2, $3)"
            " ON CONFLICT (caller, process) DO UPDATE SET num = $3"
        )
        if running := tuple((caller, process, num) for caller, num in requests.items() if num):
            yield Query(set_count, many=running)
        if ended := tuple((caller, process) for caller, num in requests.items() if not num):
            yield Query("DELETE FROM weir_under_way WHERE caller = $1 AND process = $2", many=ended)
        totals = {}
        for caller in requests:
            total = "SELECT CAST(COALESCE(SUM(num), 0) AS BIGINT) FROM weir_under_way WHERE caller = $1"
            ((totals[caller],),) = yield Query(total, (caller,))
        return totals

    def _spend(
        self, report: Report, minute: int, amounts: Mapping[Slot, int]
    ) -> Steps[dict[Slot, tuple[int, int]]]:
        yield Query("DELETE FROM weir_slots WHERE until < $1", (minute,))
        spent = tuple((slot.name, slot.start, slot.until, num) for slot, num in amounts.items() if num)
        if spent and (yield from reports.is_new(report, minute)):
            yield Query(
                "INSERT INTO weir_slots VALUES ($1, $2, $3, $4)"
                " ON CONFLICT (name, start) DO UPDATE SET amount = weir_slots.amount + $4",
                many=spent,
            )
        totals = {}
        for slot in amounts:
            rows = yield Query("SELECT start, amount FROM weir_slots WHERE name = $1", (slot.name,))
            found: dict[int, int] = dict(rows)
            totals[slot] = found.get(slot.previous, 0), found.get(slot.start, 0)
        return totals

    def _forget(self, process: str) -> Steps[None]:
        for table in ("weir_processes", "weir_under_way"):
            yield Query(f"DELETE FROM {table} WHERE process = $1", (process,))

    def _resize(self, caller: str, num: int, size: int) -> Steps[None]:
        """Count a response that came or went."""
        yield Query(
            "INSERT INTO weir_shelves VALUES ($1, $2, $3) ON CONFLICT (caller)"
            " DO UPDATE SET num = weir_shelves.num + $2, size = weir_shelves.size + $3",
            many=((caller, num, size), (ALL, num, size)),
        )
        yield Query("DELETE FROM weir_shelves WHERE caller = $1 AND num = 0", (caller,))

    def _make_room(self, caller: str) -> Steps[None]:
        options = self._options
        share = options.max_stored_responses_per_caller, options.max_stored_bytes_per_caller
        while _exceeds((yield from self._shelf(caller)), share):
            yield from self._drop(caller)
        for order, most in (
            ("num", (options.max_stored_responses, _ANY)),
            ("size", (_ANY, options.max_stored_bytes)),
        ):
            while _exceeds((yield from self._shelf(ALL)), most):
                ((largest,),) = yield Query(
                    "SELECT caller FROM weir_shelves WHERE caller <> $1"
                    f" ORDER BY {order} DESC, caller DESC LIMIT 1",
                    (ALL,),
                )
                yield from self._drop(largest)

    def _shelf(self, caller: str) -> Steps[Row]:
        """The number and the size of a caller's responses."""
        ((num, size),) = yield Query("SELECT num, size FROM weir_shelves WHERE caller = $1", (caller,))
        return num, size

    def _drop(self, caller: str) -> Steps[None]:
        """Remove the caller's response that was not used for the longest time."""
        ((key, response_id),) = yield Query(
            "SELECT key, id FROM weir_responses WHERE caller = $1 ORDER BY used LIMIT 1", (caller,)
        )
        yield from self._remove(Owner(caller, key), response_id)


_NAME = "caller = $1 AND key = $2 AND id = $3"
_ANY = float("inf")

_TABLES = (
    "CREATE TABLE IF NOT EXISTS weir_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS weir_responses (caller TEXT, key TEXT, id TEXT, body {blob} NOT NULL,"
    " items {blob} NOT NULL, size BIGINT NOT NULL, used BIGINT NOT NULL, PRIMARY KEY (caller, key, id))",
    "CREATE INDEX IF NOT EXISTS weir_responses_used ON weir_responses (caller, used)",
    "CREATE TABLE IF NOT EXISTS weir_items (caller TEXT, key TEXT, item TEXT, id TEXT,"
    " place BIGINT NOT NULL, stored BIGINT NOT NULL, PRIMARY KEY (caller, key, item, id))",
    "CREATE INDEX IF NOT EXISTS weir_items_responses ON weir_items (caller, key, id)",
    "CREATE TABLE IF NOT EXISTS weir_shelves (caller TEXT PRIMARY KEY, num BIGINT NOT NULL,"
    " size BIGINT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS weir_shelves_num ON weir_shelves (num, caller)",
    "CREATE INDEX IF NOT EXISTS weir_shelves_size ON weir_shelves (size, caller)",
    "CREATE TABLE IF NOT EXISTS weir_processes (process TEXT PRIMARY KEY, expires BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS weir_slots (name TEXT, start BIGINT, until BIGINT NOT NULL,"
    " amount BIGINT NOT NULL, PRIMARY KEY (name, start))",
    "CREATE INDEX IF NOT EXISTS weir_slots_until ON weir_slots (until)",
    "CREATE TABLE IF NOT EXISTS weir_under_way (caller TEXT, process TEXT, num BIGINT NOT NULL,"
    " PRIMARY KEY (caller, process))",
)


def _exceeds(shelf: Iterable[float], most: Iterable[float]) -> bool:
    return any(one > bound for one, bound in zip(shelf, most, strict=True))
