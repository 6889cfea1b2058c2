"""Keys of clients that the operator made. A key itself is not kept: only its SHA-256.

A revoked key keeps its row, so that its name stays known, and a server whose last key is revoked is not open
to everybody.
"""

import json
import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from proxy.storage.operator import changes
from proxy.storage.query import Query, Row, Steps
from proxy.storage.records import Change

TABLES = (
    "CREATE TABLE IF NOT EXISTS weir_keys (name TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE,"
    " settings TEXT NOT NULL, created BIGINT NOT NULL, revoked BIGINT)",
)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A client's key."""

    name: str
    digest: str
    """The SHA-256 of the key, in hexadecimal digits."""
    settings: dict[str, Any]
    """The key's rights: the fields of a key in the configuration, without its hash. `previous`: the digest of
    the value before a rotation, and the time (seconds since 1970) until which it is valid."""
    created: int
    """Seconds since 1970."""
    revoked: int | None = None
    """Since then the key is not valid."""


class Keys(NamedTuple):
    """All keys of the store."""

    version: int
    """It grows with each change."""
    keys: list[StoredKey]


def version() -> Steps[int]:
    ((value,),) = yield Query("SELECT value FROM weir_store WHERE name = 'keys'")
    return int(value)


def everything() -> Steps[Keys]:
    number = yield from version()
    rows = yield Query(f"SELECT {_COLUMNS} FROM weir_keys ORDER BY created, name")
    return Keys(number, [_key(row) for row in rows])


def find(name: str) -> Steps[StoredKey | None]:
    rows = yield Query(f"SELECT {_COLUMNS} FROM weir_keys WHERE name = $1", (name,))
    return _key(rows[0]) if rows else None


def create(key: StoredKey, operator: str) -> Steps[bool]:
    """Add a key. Returns whether it was added: a key with this name may be valid already."""
    found = yield from find(key.name)
    if found is not None and found.revoked is None:
        return False
    yield Query("DELETE FROM weir_keys WHERE name = $1", (key.name,))
    values = key.name, key.digest, json.dumps(key.settings), key.created, key.revoked
    yield Query("INSERT INTO weir_keys VALUES ($1, $2, $3, $4, $5)", values)
    yield from _changed(Change(operator, "create_key", key.name, key.settings))
    return True


def update(name: str, given: dict[str, Any], operator: str) -> Steps[StoredKey | None]:
    """Replace some settings of a valid key; None takes a field out. Returns the key as it is now, or None
    if there is none."""
    found = yield from find(name)
    if found is None or found.revoked is not None:
        return None
    merged = {**found.settings, **given}
    settings = {field: value for field, value in merged.items() if value is not None}
    yield Query("UPDATE weir_keys SET settings = $2 WHERE name = $1", (name, json.dumps(settings)))
    yield from _changed(Change(operator, "change_key", name, given))
    return replace(found, settings=settings)


def rotate(name: str, digest: str, until: float, operator: str) -> Steps[StoredKey | None]:
    """Give a valid key another value. Its value so far stays valid until then. Returns the key as it is now,
    or None if there is none."""
    found = yield from find(name)
    if found is None or found.revoked is not None:
        return None
    settings = {**found.settings, "previous": {"digest": found.digest, "until": until}}
    values = name, digest, json.dumps(settings)
    yield Query("UPDATE weir_keys SET digest = $2, settings = $3 WHERE name = $1", values)
    yield from _changed(Change(operator, "rotate_key", name, {"previous_until": until}))
    return replace(found, digest=digest, settings=settings)


def revoke(name: str, operator: str) -> Steps[bool]:
    """Make a key invalid. Returns whether it was valid."""
    found = yield from find(name)
    if found is None or found.revoked is not None:
        return False
    yield Query("UPDATE weir_keys SET revoked = $2 WHERE name = $1", (name, int(time.time())))
    yield from _changed(Change(operator, "revoke_key", name, {}))
    return True


def _changed(change: Change) -> Steps[None]:
    yield Query("UPDATE weir_store SET value = value + 1 WHERE name = 'keys'")
    yield from changes.add(change)


_COLUMNS = "name, digest, settings, created, revoked"


def _key(row: Row) -> StoredKey:
    name, digest, settings, created, revoked = row
    return StoredKey(name, digest, json.loads(settings), created, revoked)
