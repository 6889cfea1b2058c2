"""Reads server-sent events from bytes as they come. No I/O.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html. Packages for it read from an
HTTP client of their own, or block, and none limits the size of an event.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Event:
    data: bytes
    event: str = "message"


MAX_EVENT = 4 * 1024 * 1024
"""Bytes of an event. An answer of 8,000 tokens with their top alternatives needs about two million."""


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""The byte order mark. It may come before a stream, and is not a part of it."""


class EventTooLongError(ValueError):
    """An event of more than `max_event` bytes."""


class SSEDecoder:
    """Turns bytes, cut anywhere, into events. `max_event`: most bytes of an event's lines of data with the
    line ends between them, and of any other line."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self.max_event = max_event
        self.is_between = True
        """Whether nothing was read of an event that has not ended."""
        self._has_begun = False
        """Whether so much was read that no byte order mark is to come."""
        self._unfinished = bytearray()
        """The beginning of a line."""
        self._has_return = False
        """Whether a CR came last: it may be half of a CRLF."""
        self._data: list[bytes] = []
        self._size = 0
        """Bytes of the event's lines of data, each with its end, so that empty lines count too."""
        self._event = ""

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises `EventTooLongError`."""
        *lines, rest = self._with_newlines(data).split(b"\n")
        if lines and self._unfinished:
            lines[0] = bytes(self._unfinished) + lines[0]
            self._unfinished.clear()
        self._unfinished += rest
        events: list[Event] = []
        for line in lines:
            if line:
                self._read(line)
            elif self._data:
                events.append(Event(b"\n".join(self._data), self._event or "message"))
                self._data, self._size, self._event = [], 0, ""
            else:
                self._event = ""
        if rest:
            self._check_size(len(self._unfinished))
        self.is_between = not (self._unfinished or self._size or self._event)
        return events

    def flush(self) -> list[Event]:
        """The stream has ended: the last event, if its empty line is missing."""
        return self.feed(b"\n\n")

    def _with_newlines(self, data: bytes) -> bytes:
        """The data without a byte order mark before the stream. Each line ends with LF."""
        if not self._has_begun:
            data = bytes(self._unfinished) + data
            self._unfinished.clear()
            self._has_begun = len(data) >= len(_BYTE_ORDER_MARK) or not _BYTE_ORDER_MARK.startswith(data)
            data = data.removeprefix(_BYTE_ORDER_MARK)
        if self._has_return or b"\r" in data:
            data = b"\r" * self._has_return + data
            self._has_return = data.endswith(b"\r")
            data = data[: len(data) - self._has_return].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _read(self, line: bytes) -> None:
        self._check_size(len(line))
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(line) + 1
        elif field == b"event":
            self._event = value.removeprefix(b" ").decode("utf-8", "replace")

    def _check_size(self, num_more: int) -> None:
        """Raise `EventTooLongError` for a line of so many bytes after the event's lines so far."""
        if self._size + num_more > self.max_event:
            raise EventTooLongError(f"an event of more than {self.max_event} bytes")
