"""Reads server-sent events from bytes as they come. No I/O.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html. Packages for it read from an
HTTP client of their own, or block, and none limits the size of an event.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Event:
    data: bytes
    event: str = "message"


_SHORT = 16 * 1024
"""Bytes of an unfinished event that are looked at again with each piece that follows."""
MAX_EVENT = 4 * 1024 * 1024
"""Bytes of an event. An answer of 8,000 tokens with their top alternatives needs about two million."""


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""One may stand in front of a stream, and is no part of it."""


class EventTooLongError(ValueError):
    """An event of more than `max_event` bytes."""


class SSEDecoder:
    """Turns bytes, cut anywhere, into events. `max_event`: most bytes of an event's lines of data with the
    line ends between them, and of any other line."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self.max_event = max_event
        self._has_begun = False
        """Whether so much was read that no byte order mark is to come."""
        self._unread = b""
        """The short beginning of an event, of which no line was read."""
        self._is_inside = False
        """Whether lines of an event were read that has not ended."""
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
        if self._unread:
            data, self._unread = self._unread + data, b""
        if not self._has_begun:
            if len(data) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(data):
                self._unread = data
                return []
            self._has_begun = True
            data = data.removeprefix(_BYTE_ORDER_MARK)
        if self._is_inside or len(data) > self.max_event or data.find(b"\r") >= 0:
            return self._read_lines(data)
        # Most pieces are one event, and most events are one line of data. They are not read line by line.
        line, _, rest = data.partition(b"\n")
        if rest == b"\n" and line.startswith(b"data: "):
            return [Event(line[6:])]
        *blocks, rest = data.split(b"\n\n")
        events: list[Event] = []
        for number, block in enumerate(blocks):
            if not block.startswith(b"data: ") or b"\n" in block:
                return events + self._read_lines(b"\n\n".join((*blocks[number:], rest)))
            events.append(Event(block[6:]))
        if len(rest) > _SHORT:
            events += self._read_lines(rest)
        else:
            self._unread = rest
        return events

    @property
    def is_between(self) -> bool:
        """Whether nothing was read of an event that has not ended."""
        return not (self._unread or self._is_inside)

    def flush(self) -> list[Event]:
        """The stream has ended: the last event, if its empty line is missing."""
        return self.feed(b"\n\n")

    def _read_lines(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        for line in self._lines(data):
            if line:
                self._read(line)
            elif self._data:
                events.append(Event(b"\n".join(self._data), self._event or "message"))
                self._data, self._size, self._event = [], 0, ""
            else:
                self._event = ""
        if self._unfinished:
            self._check_size(len(self._unfinished))
        self._is_inside = bool(self._unfinished or self._size or self._event or self._has_return)
        return events

    def _check_size(self, num_more: int) -> None:
        """Raise `EventTooLongError` for a line of so many bytes behind the event's lines so far."""
        if self._size + num_more > self.max_event:
            raise EventTooLongError(f"an event of more than {self.max_event} bytes")

    def _lines(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends."""
        if self._has_return:
            data = b"\r" + data
        self._has_return = data.endswith(b"\r")
        data = data[: len(data) - self._has_return]
        lines = data.splitlines()
        rest = b"" if data.endswith((b"\n", b"\r")) or not lines else lines.pop()
        if lines and self._unfinished:
            lines[0] = bytes(self._unfinished) + lines[0]
            self._unfinished.clear()
        self._unfinished += rest
        return lines

    def _read(self, line: bytes) -> None:
        self._check_size(len(line))
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(line) + 1
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")
