"""Reads server-sent events from bytes as they come. No I/O.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html. Packages for it read from an
HTTP client of their own, or block, and none limits the size of an event.
"""

import re
from dataclasses import dataclass

_END_OF_LINE = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a CR at the very end may be half of a CRLF


@dataclass(frozen=True, slots=True)
class Event:
    data: bytes
    event: str = "message"


MAX_EVENT = 4 * 1024 * 1024
"""Bytes of an event. An answer of 8,000 tokens with their top alternatives needs about two million."""


class EventTooLongError(ValueError):
    """An event of more than `max_event` bytes."""


class SSEDecoder:
    """Turns bytes, cut anywhere, into events. `max_event`: the largest event, and line, in bytes."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self.max_event = max_event
        self._buffer = bytearray()
        self._searched = 0
        self._data: list[bytes] = []
        self._size = 0
        self._event = ""

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises `EventTooLongError`."""
        self._buffer += data
        events: list[Event] = []
        start = 0
        while end := _END_OF_LINE.search(self._buffer, self._searched):
            events += self._line(bytes(self._buffer[start : end.start()]))
            start = self._searched = end.end()
        del self._buffer[:start]
        self._searched = max(len(self._buffer) - 1, 0)
        if len(self._buffer) + self._size > self.max_event:
            raise EventTooLongError(f"an event of more than {self.max_event} bytes")
        return events

    def flush(self) -> list[Event]:
        """The stream has ended: the last event, if its empty line is missing."""
        return self.feed(b"\n\n")

    def _line(self, line: bytes) -> list[Event]:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value) + 1  # with its end of line, so that empty lines count too
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")
        return []

    def _dispatch(self) -> list[Event]:
        events = [Event(b"\n".join(self._data), self._event or "message")] if self._data else []
        self._data, self._size, self._event = [], 0, ""
        return events
