"""Reads the events of an upstream's answer, within the answer's bounds."""

from collections.abc import Callable

from engine.backends.upstream.body import Body
from engine.backends.upstream.limits import Patience, TooMuchError
from engine.backends.upstream.sse import Event, EventTooLongError, SSEDecoder


class WholeReader:
    """An answer that is no stream, as one event. `longest`: its most bytes; a longer one is cut."""

    def __init__(self, body: Body, longest: int) -> None:
        self._body = body
        self._longest = longest
        self.has_ended = self.is_complete = False

    async def read(self) -> list[Event]:
        """The whole answer. Raises as `Body.read` does."""
        data = await self._body.beginning(self._longest)
        self.has_ended = self.is_complete = True
        return [Event(data)]


class EventReader:
    """The events of a body, up to the one for which `is_last` is true. Once the answer has its finish, the
    stream may end in any way."""

    def __init__(
        self, body: Body, patience: Patience, decoder: SSEDecoder, is_last: Callable[[Event], bool]
    ) -> None:
        self._body = body
        self._patience = patience
        self._decoder = decoder
        self._is_last = is_last
        self.has_ended = False
        self.is_complete = False
        """Whether the last event came."""

    async def read(self) -> list[Event]:
        """The events that the next bytes complete; may be empty.

        Raises as `Body.read` does, and `TooMuchError` and `EventTooLongError`.
        """
        try:
            data = await self._body.read()
            self._patience.take(len(data))
            self.has_ended = not data
            events = self._decoder.feed(data) if data else self._decoder.flush()
        except (TimeoutError, TooMuchError, EventTooLongError):
            if not self._patience.has_finish:
                raise
            self.has_ended = True
            return []
        for number, event in enumerate(events):
            if self._is_last(event):
                self.is_complete = self.has_ended = True
                return events[:number]
        return events
