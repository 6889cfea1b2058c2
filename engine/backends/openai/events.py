"""Reads the events of an upstream's stream, within the stream's bounds."""

from engine.backends.openai.body import Body
from engine.backends.openai.limits import Patience, TooMuchError
from engine.backends.openai.sse import Event, EventTooLongError, SSEDecoder


class EventReader:
    """The events of a body, up to `[DONE]`. Once the answer has its finish, the stream may end in any way."""

    def __init__(self, body: Body, patience: Patience, decoder: SSEDecoder) -> None:
        self._body = body
        self._patience = patience
        self._decoder = decoder
        self.has_ended = False
        self.is_complete = False
        """Whether `[DONE]` came."""

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
            if event.data.strip() == b"[DONE]":
                self.is_complete = self.has_ended = True
                return events[:number]
        return events
