"""Reads server-sent events from bytes as they come. No I/O.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html. Packages for it read from an
HTTP client of their own, or block, and none limits the size of an event.
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.upstream.limits import MAX_EVENT, Patience, TooMuchError

MESSAGE = "message"
"""The type of an event that names none."""


@dataclass(slots=True)
class Event:
    data: bytes
    event: str = MESSAGE


def framed(data: bytes) -> bytes:
    """The bytes of an event with this line of data, as most servers write it."""
    return b"data: %b\n\n" % data


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
        if not self._has_begun:
            data = bytes(self._unfinished) + data
            self._unfinished.clear()
            self._has_begun = len(data) >= len(_BYTE_ORDER_MARK) or not _BYTE_ORDER_MARK.startswith(data)
            data = data.removeprefix(_BYTE_ORDER_MARK)
        if self._has_return or b"\r" in data:
            data = b"\r" * self._has_return + data
            self._has_return = data.endswith(b"\r")
            data = data[: len(data) - self._has_return].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = data.split(b"\n")
        if lines and self._unfinished:
            lines[0] = bytes(self._unfinished) + lines[0]
            self._unfinished.clear()
        self._unfinished += rest
        events: list[Event] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(Event(b"\n".join(self._data), self._event or MESSAGE))
                    self._data, self._size = [], 0
                self._event = ""
                continue
            if self._size + len(line) > self.max_event:
                raise self._too_long()
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
                self._size += len(line) + 1
            elif field == b"event":
                self._event = value.removeprefix(b" ").decode("utf-8", "replace")
        if rest and self._size + len(self._unfinished) > self.max_event:
            raise self._too_long()
        self.is_between = not (self._unfinished or self._size or self._event)
        return events

    def flush(self) -> list[Event]:
        """The stream has ended: the last event, if its empty line is missing."""
        return self.feed(b"\n\n")

    def _too_long(self) -> EventTooLongError:
        return EventTooLongError(f"an event of more than {self.max_event} bytes")


@dataclass(slots=True)
class EventReader:
    """The events of an answer within its bounds, up to the one for which `is_last` is true. Once the answer
    has its finish, the stream may end in any way."""

    patience: Patience
    decoder: SSEDecoder
    is_last: Callable[[Event], bool]
    has_ended: bool = False
    is_complete: bool = False
    """Whether the last event came."""
    max_alike: int = 0
    """Bytes of whole events that may be read in another way now, without `feed`. None inside an event."""

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. `data`: the next bytes; empty at the end.

        Raises `TooMuchError` and `EventTooLongError`.
        """
        try:
            self.patience.received(len(data))
            self.has_ended = not data
            if data:
                events = self.decoder.feed(data)
            else:  # the last event may lack its empty line; one that the deadline cuts off is dropped
                events = [] if self.patience.is_over() else self.decoder.flush()
        except (TooMuchError, EventTooLongError):
            if not self.patience.has_finish:
                raise
            self.has_ended = True
            return []
        self.max_alike = self.decoder.max_event if self.decoder.is_between else 0
        for number, event in enumerate(events):
            if self.is_last(event):
                self.is_complete = self.has_ended = True
                return events[:number]
        return events
