"""The changes by the operator: one row for each, with the time, the name of the key and the object."""

import json
import time

from proxy.storage.query import Query, Steps
from proxy.storage.records import Change

TABLES = (
    "CREATE TABLE IF NOT EXISTS weir_changes (time BIGINT NOT NULL, operator TEXT NOT NULL,"
    " action TEXT NOT NULL, object TEXT NOT NULL, detail TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS weir_changes_time ON weir_changes (time)",
)


def add(change: Change) -> Steps[None]:
    yield Query(
        "INSERT INTO weir_changes VALUES ($1, $2, $3, $4, $5)",
        (time.time_ns() // 1000, change.operator, change.action, change.object, json.dumps(change.detail)),
    )


def latest(limit: int, before: float | None = None) -> Steps[list[Change]]:
    """The latest changes, the newest first. `before`: only those before this time."""
    end = 2**63 - 1 if before is None else round(before * 1e6)
    rows = yield Query(
        "SELECT operator, action, object, detail, time FROM weir_changes WHERE time < $1"
        " ORDER BY time DESC LIMIT $2",
        (end, limit),
    )
    return [Change(who, what, of, json.loads(detail), at / 1e6) for who, what, of, detail, at in rows]
