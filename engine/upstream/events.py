"""Reads the events of an upstream's answer from bytes as they come, within the answer's bounds. No I/O."""

from collections.abc import Callable

from engine.upstream.limits import Patience, TooMuchError
from engine.upstream.sse import Event, EventTooLongError, SSEDecoder


class EventReader:
    """The events of a stream, up to the one for which `is_last` is true. Once the answer has its finish, the
    stream may end in any way."""

    def __init__(self, patience: Patience, decoder: SSEDecoder, is_last: Callable[[Event], bool]) -> None:
        self._patience = patience
        self._decoder = decoder
        self._is_last = is_last
        self.has_ended = False
        self.is_complete = False
        """Whether the last event came."""
        self.max_alike = 0
        """Bytes of whole events that may be read in another way now, without `feed`. None inside an event."""

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. `data`: the next bytes; empty at the end.

        Raises `TooMuchError` and `EventTooLongError`.
        """
        try:
            self._patience.received(len(data))
            self.has_ended = not data
            if data:
                events = self._decoder.feed(data)
            else:  # the last event may lack its empty line; one that the deadline cuts off is dropped
                events = [] if self._patience.is_over() else self._decoder.flush()
        except (TooMuchError, EventTooLongError):
            if not self._patience.has_finish:
                raise
            self.has_ended = True
            return []
        self.max_alike = self._decoder.max_event if self._decoder.is_between else 0
        for number, event in enumerate(events):
            if self._is_last(event):
                self.is_complete = self.has_ended = True
                return events[:number]
        return events
