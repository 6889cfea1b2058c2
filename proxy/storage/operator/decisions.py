"""Hooks' decisions: one row for each. Rows are read from the newest to the oldest."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from proxy.storage.query import Query, Row, Steps
from proxy.storage.records import JUDGED, PLACES, DecisionRecord

_NUMBERS = {"output_index", "text_offset", "num_withheld", "num_released", *JUDGED}
_SECONDS = {"time", "held_seconds"}
_OTHER_NAMES = {"user": "user_name", "offset": "text_offset"}  # words of SQL
_STORED = [field for field in DecisionRecord._fields if field not in PLACES]
_COLUMNS = [_OTHER_NAMES.get(field, field) for field in _STORED]


def _type(column: str) -> str:
    return "BIGINT" if column in _NUMBERS else "DOUBLE PRECISION" if column in _SECONDS else "TEXT"


TABLES = (
    "CREATE TABLE IF NOT EXISTS weir_decisions (id {serial}, "
    + ", ".join(f"{column} {_type(column)}" for column in _COLUMNS)
    + ")",
    "CREATE INDEX IF NOT EXISTS weir_decisions_time ON weir_decisions (time)",
)

SINCE_2 = tuple(f"ALTER TABLE weir_decisions ADD COLUMN {column} {_type(column)}" for column in JUDGED)
"""Brings a table of schema 1 to schema 2."""

SINCE_3 = (f"ALTER TABLE weir_decisions ADD COLUMN revision {_type('revision')}",)
"""Brings a table of schema 2 to schema 3."""

FILTERS = ("tenant", "key", "policy", "revision", "model", "hook", "action", "mode", "request_id")
"""The fields that rows can be found by."""

MAX_SUMS = 1000
"""Most rows of `sums`: those with the most decisions."""


class Found(NamedTuple):
    records: list[DecisionRecord]
    """The newest first."""
    cursor: int | None
    """The beginning of the next older ones; None: there are none."""


def add(records: Iterable[DecisionRecord]) -> Steps[None]:
    marks = ", ".join(f"${i}" for i in range(1, len(_COLUMNS) + 1))
    rows = tuple(tuple(map(_storable, record[: len(_STORED)])) for record in records)
    yield Query(f"INSERT INTO weir_decisions ({', '.join(_COLUMNS)}) VALUES ({marks})", many=rows)


def find(
    equal: Mapping[str, str],
    *,
    since: float | None = None,
    until: float | None = None,
    limit: int = 100,
    cursor: int | None = None,
) -> Steps[Found]:
    """The newest records that have these values. `since`, `until`: seconds since 1970."""
    where, values = conditions(equal, since, until)
    if cursor is not None:
        values.append(cursor)
        where.append(f"id < ${len(values)}")
    values.append(limit + 1)
    rows = yield Query(
        f"SELECT id, {', '.join(_COLUMNS)} FROM weir_decisions"
        f" WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ${len(values)}",
        tuple(values),
    )
    records = [DecisionRecord(*row[1:]) for row in rows[:limit]]
    return Found(records, rows[limit - 1][0] if len(rows) > limit else None)


def prune(before: float, max_rows: int) -> Steps[None]:
    """Remove the rows from before this time, and the oldest of those beyond `max_rows`."""
    yield Query("DELETE FROM weir_decisions WHERE time < $1", (before,))
    ((newest,),) = yield Query("SELECT MAX(id) FROM weir_decisions")
    if newest is not None:
        yield Query("DELETE FROM weir_decisions WHERE id <= $1", (newest - max_rows,))


def sums(
    by: Sequence[str], equal: Mapping[str, str], since: float | None, until: float | None
) -> Steps[list[Row]]:
    """For each value of the fields `by`: decisions, requests, withheld characters. Without clean holds, and
    without the accounts of what was judged."""
    where, values = conditions(equal, since, until)
    names = ", ".join(by)
    return (
        yield Query(
            f"SELECT {names}, COUNT(*), COUNT(DISTINCT request_id), CAST(SUM(num_withheld) AS BIGINT)"
            f" FROM weir_decisions WHERE {' AND '.join(where)}"
            " AND (action NOT IN ('hold', 'judged') OR num_withheld > 0)"
            f" GROUP BY {names} ORDER BY COUNT(*) DESC, {names} LIMIT {MAX_SUMS}",
            tuple(values),
        )
    )


def conditions(
    equal: Mapping[str, str], since: float | None, until: float | None, *, time: str = "time"
) -> tuple[list[str], list[Any]]:
    """SQL that these fields have these values, within a time, and its parameters. `time`: the column."""
    values: list[Any] = [since or 0.0, 1e11 if until is None else until]
    where = [f"{time} >= $1", f"{time} < $2"]
    for name, value in equal.items():
        values.append(value)
        where.append(f"{name} = ${len(values)}")
    return where, values


def _storable(value: Any) -> Any:
    """Neither database takes half of a surrogate pair, and PostgreSQL takes no NUL in a text."""
    if not isinstance(value, str):
        return value
    return value.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
