"""Writes the decisions of all requests to a file, for programs that collect logs."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.core import Metric

from hooks.builtin.audit_log.journal import Journal
from hooks.builtin.audit_log.sinks import LineFile
from proxy.settings.storage import AuditFormat, AuditOptions
from proxy.storage.records import DecisionRecord
from proxy.telemetry.families import counter, gauge
from proxy.telemetry.feed import DecisionFeed
from proxy.telemetry.ocsf import detection_finding


def _own_json(record: DecisionRecord) -> dict[str, Any]:
    return record.json(with_text=True)


_FORMS: dict[AuditFormat, Callable[[DecisionRecord], dict[str, Any]]] = {
    "json": _own_json,
    "ocsf": detection_finding,
}


class Audit:
    """Subscribes to the decisions of all requests, from its making to `aclose`. No request waits for the
    file: a thread writes to it. Does nothing without `--audit`."""

    def __init__(self, options: AuditOptions, feed: DecisionFeed) -> None:
        """Raises `ValueError` for a file that cannot be written."""
        self._journal: Journal | None = None
        if options.audit is None:
            return
        try:
            size = options.audit_max_bytes // options.audit_files
            file = LineFile(options.audit, size, options.audit_files - 1)
        except OSError as error:
            raise ValueError(f"audit: {options.audit} cannot be written: {error.strerror}") from error
        self._journal = Journal(file, str(options.audit), writes_losses=False)
        self._form = _FORMS[options.audit_format]
        self._end = feed.subscribe(self._put, hears_holds=False)

    def _put(self, record: DecisionRecord) -> None:
        """A hold is an event of the stream, and no decision, unless its text was withheld."""
        if self._journal is not None and (record.action != "hold" or record.num_withheld):
            self._journal.put(self._form(record))

    def metrics(self) -> Iterable[Metric]:
        if (journal := self._journal) is None:
            return
        yield counter("audit_records", "Decisions written to --audit.", (), [((), journal.num_written)])
        text = "Decisions that --audit has no room for: the file cannot be written, or not fast enough."
        yield counter("audit_records_lost", text, (), [((), journal.num_lost)])
        yield gauge("audit_records_waiting", "Decisions to be written.", (), [((), journal.num_waiting)])

    async def aclose(self) -> None:
        """Write the decisions that wait. No request runs any more."""
        if self._journal is not None:
            self._end()
            await asyncio.to_thread(self._journal.close)
