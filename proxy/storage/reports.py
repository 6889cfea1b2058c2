"""Reports that add to sums, each once. A process sends one again if it cannot know whether it has arrived."""

from typing import NamedTuple

from proxy.storage.query import Query, Steps

REMEMBERED = 24 * 60
"""Minutes for which the last report of a source is known. An operation late by more may count twice."""

TABLES = (
    "CREATE TABLE IF NOT EXISTS weir_reports (source TEXT PRIMARY KEY, number BIGINT NOT NULL,"
    " until BIGINT NOT NULL)",
)


class Report(NamedTuple):
    """A report's name."""

    source: str
    """The subject that one process reports of. No other process has it."""
    number: int
    """From 1. A source sends a report until it has arrived, and then the next one."""


def is_new(report: Report, minute: int) -> Steps[bool]:
    """Whether no earlier operation had this report, or a later one of its source. Runs alone. `minute`: the
    present one, counted from 1970."""
    yield Query("DELETE FROM weir_reports WHERE until < $1", (minute,))
    rows = yield Query("SELECT number FROM weir_reports WHERE source = $1", (report.source,))
    if rows and rows[0][0] >= report.number:
        return False
    yield Query(
        "INSERT INTO weir_reports VALUES ($1, $2, $3)"
        " ON CONFLICT (source) DO UPDATE SET number = $2, until = $3",
        (*report, minute + REMEMBERED),
    )
    return True
