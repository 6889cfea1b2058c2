"""Feeds one answer of an upstream to its flow."""

import asyncio
from collections.abc import Mapping, Sequence

from engine.protocol import Delta
from engine.protocol.deltas import in_pieces, join
from engine.protocol.flow import Flow
from engine.upstream.call import Call
from engine.upstream.errors import stream_error
from engine.upstream.events import EventReader, WholeReader
from engine.upstream.json_text import read_event
from engine.upstream.limits import LONG_TEXT, Patience
from engine.upstream.request_tracker import TrackedRequest
from engine.upstream.sse import Event

_VOID = (b"", b"null")
"""The data of events that say nothing: some servers send them to keep a connection."""


class UpstreamAnswer:
    """One answer: its events become deltas, which are fed at once."""

    __slots__ = (
        "_call",
        "_events",
        "_flow",
        "_has_begun",
        "_patience",
        "_statuses",
        "_tracked",
        "_translator",
    )

    def __init__(
        self,
        call: Call,
        events: EventReader | WholeReader,
        flow: Flow,
        tracked: TrackedRequest,
        patience: Patience,
        statuses: Mapping[str, int],
    ) -> None:
        """`statuses`: the HTTP statuses that types of errors stand for inside a stream."""
        self._call = call
        self._events = events
        self._flow = flow
        self._tracked = tracked
        self._patience = patience
        self._statuses = statuses
        self._translator = call.translator
        self._has_begun = False

    def feed_alike(self, data: bytes) -> bool:
        """Feed the delta of the next bytes, if they are whole events that are like an earlier one. False:
        nothing was fed, because they are not, or the flow is full. Raises `TooMuchError`."""
        translate = self._translator.alike
        if translate is None or self._flow.is_full or len(data) > self._events.max_alike:
            return False
        delta = translate(data)
        if delta is None:
            return False
        if delta.usage is not None:
            self._tracked.usage = delta.usage
        self._flow.feed(delta)
        self._patience.take(len(data), has_piece=True)
        return True

    async def feed(self, deltas: Sequence[Delta], error: Exception | None = None) -> None:
        """Feed deltas that came together, and raise the error that came after them. Other tasks get a turn
        between two long ones."""
        for delta in in_pieces(deltas, LONG_TEXT):
            self._has_begun = True
            self._tracked.usage = delta.usage or self._tracked.usage
            self._flow.feed(delta)
            if len(delta.text) >= LONG_TEXT:
                await asyncio.sleep(0)
            if self._flow.is_full:
                await self._flow.has_room()
            self._patience.renew()
        if error is not None:
            try:
                raise error
            finally:
                del error  # it refers to this frame, which refers to all deltas
        if self._translator.is_finished:
            self._patience.end()

    def translated(self, events: Sequence[Event]) -> tuple[list[Delta], Exception | None]:
        """The deltas of events that came together, joined; and the error of the event that ends the stream.

        Events come together when Weir reads more slowly than the upstream writes. Joined, they cost little
        more than one: hooks are called once, and the client gets one event.
        """
        deltas: list[Delta] = []
        translator = self._translator
        try:
            for event in events:
                data = event.data.lstrip()
                if not data.startswith(b"{") and (translator.is_finished or data.rstrip() in _VOID):
                    continue  # the answer has its finish, or goes on with the next event
                chunk = read_event(event.data)
                if event.event == "error" or chunk.get("error"):
                    begun = self._has_begun or bool(deltas)
                    raise stream_error(chunk, begun=begun, fields=self._call.fields, statuses=self._statuses)
                deltas += translator.feed(chunk, event.data)
        except Exception as error:  # noqa: BLE001 - it is raised once the deltas before it have left
            return join(deltas), error
        return join(deltas), None
