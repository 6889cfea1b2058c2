"""A journal whose own thread writes the records, so that no caller waits for a disk."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol

logger = logging.getLogger("weir.audit")

Record = dict[str, Any]
LIMIT = 10_000
"""Most records that may wait."""
BATCH = 500
"""Most records in one write."""
RETRY = 1.0
"""Seconds between a failed write and the next try."""
REMIND = 60.0
"""Seconds between two log messages that writing fails."""
CLOSING = 5.0
"""Most seconds that `close` waits for the last records to be written."""


class Sink(Protocol):
    """A place to write records to. One thread uses it at a time."""

    def write(self, records: Sequence[Record]) -> int:
        """Write the first records, at least one, and return how many. An error means that it wrote none."""

    def close(self) -> None:
        """Close the open file or connection. A later `write` opens it again."""


class Journal:
    """Takes records without delay, and writes them as soon as it can, in batches."""

    def __init__(self, sink: Sink, name: str, *, writes_losses: bool = True) -> None:
        """`name`: the journal's name in log messages. `writes_losses`: the sink gets a record of the records
        that were lost before it."""
        self._sink = sink
        self._name = name
        self._writes_losses = writes_losses
        self.num_written = self.num_lost = 0
        """All records that were written, and all that were lost, so far."""
        self._waiting: deque[Record] = deque()
        self._is_changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._num_lost = 0
        """Records that were lost since the last write."""
        self._reminded: float | None = None
        self.error: Exception | None = None
        """The error of the last write; None: no error is known."""

    def put(self, record: Record) -> bool:
        """Queue a record. Returns whether there was room; a record without room is lost and counted."""
        with self._is_changed:
            if len(self._waiting) >= LIMIT:
                self._num_lost += 1
                self.num_lost += 1
                if self._num_lost == 1:
                    logger.error("%s: records are lost from now on: %d wait to be written", self._name, LIMIT)
                return False
            self._waiting.append(record)
            if self._thread is None:
                self._is_closing = False
                self._thread = threading.Thread(target=self._run, name="weir-audit", daemon=True)
                self._thread.start()
            self._is_changed.notify()
        return True

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Return once all is written, the last try has failed, or `CLOSING` seconds have passed."""
        with self._is_changed:
            thread = self._thread
            self._is_closing = True
            self._is_changed.notify()
        if thread is not None:
            thread.join(CLOSING)
        if num_left := len(self._waiting) + self._num_lost:
            logger.error("%s: %d records could not be written", self._name, num_left)

    def _run(self) -> None:
        while batch := self._next():
            is_last_try = self._is_closing
            try:
                self._wrote(self._sink.write(batch))
            except Exception as error:  # noqa: BLE001 - any error is logged, and the write is tried again
                self._failed(error)
                if is_last_try:
                    self._end()
                    return

    def _next(self) -> list[Record]:
        """Wait for records and return the first ones. An empty list, after `close`, ends the thread."""
        with self._is_changed:
            self._is_changed.wait_for(lambda: self._waiting or self._is_closing)
            if not self._waiting:
                self._end()
            return list(islice(self._waiting, BATCH))

    def _wrote(self, count: int) -> None:
        with self._is_changed:
            for _ in range(count):
                self._waiting.popleft()
            if self.error is not None:
                self.error = self._reminded = None
                logger.warning("%s: it can be written again", self._name)
            self.num_written += count
            if self._num_lost:
                lost = f"{self._num_lost} records"
                if self._writes_losses:
                    self._waiting.append({"time": now(), "action": "lost", "reason": lost})
                logger.warning("%s: %s are lost", self._name, lost)
                self._num_lost = 0

    def _failed(self, error: Exception) -> None:
        """Log the error, and wait `RETRY` seconds or until `close`."""
        with self._is_changed:
            self.error = error
            self._remind(error)
            self._is_changed.wait_for(lambda: self._is_closing, RETRY)

    def _remind(self, error: Exception) -> None:
        if self._reminded is not None and time.monotonic() - self._reminded < REMIND:
            return
        self._reminded = time.monotonic()
        # The error's message is left out, because it may contain the record.
        why = getattr(error, "strerror", None) or getattr(error, "sqlite_errorname", type(error).__name__)
        counts = len(self._waiting), self._num_lost
        logger.error("%s cannot be written: %s (%d records wait, %d are lost)", self._name, why, *counts)

    def _end(self) -> None:
        with self._is_changed:
            self._thread = None
            self._sink.close()


def now() -> str:
    """Return the time as UTC in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
