"""Feeds one answer of an upstream to its flow."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.protocol import Delta
from engine.protocol.deltas import in_pieces, join
from engine.protocol.flow import Flow
from engine.upstream.body import Body
from engine.upstream.call import Call
from engine.upstream.errors import stream_error
from engine.upstream.json_text import OPEN_TEXTS, read_object
from engine.upstream.limits import LONG_TEXT, Patience
from engine.upstream.request_tracker import TrackedRequest
from engine.upstream.sse import MESSAGE, Event, EventReader, framed

_BURST = 64
"""Events of one read after which other tasks get a turn: an upstream may send thousands at once."""
_VOID = (b"", b"null")
"""The data of events without content. Some servers send them to keep a connection."""


@dataclass(slots=True)
class UpstreamAnswer:
    """One answer: its events become deltas, which are fed at once."""

    call: Call
    events: EventReader
    flow: Flow
    tracked: TrackedRequest
    patience: Patience
    statuses: Mapping[str, int]
    """The HTTP statuses that types of errors have inside a stream."""
    has_begun: bool = False

    async def feed_stream(self, body: Body) -> None:
        """Feed all of a stream. Raises the errors of `Body.read`, `EventReader.feed` and `feed`."""
        body.consume_by(self.feed_alike)
        while not self.events.has_ended:
            data = await body.read()
            if self.flow.is_full:
                await self.flow.has_room()
                self.patience.received(has_piece=True)
            # Most reads are events like those before them.
            if self.feed_alike(data):
                continue
            events = self.events.feed(data)
            for start in range(0, len(events), _BURST):
                burst = events[start : start + _BURST]
                await self.feed(*translated(self.call, burst, self.statuses, has_begun=self.has_begun))
                if start + _BURST <= len(events):
                    await asyncio.sleep(0)

    def feed_alike(self, data: bytes) -> bool:
        """Feed the delta of the next bytes, if they are whole events like an earlier one. False: they are
        not, or the flow is full, and nothing was fed. Raises `TooMuchError`."""
        translate = self.call.translator.alike
        if translate is None or self.flow.is_full or len(data) > self.events.max_alike:
            return False
        delta = translate(data)
        if delta is None:
            return False
        self.patience.received(len(data), has_piece=True)
        if delta.usage is not None:
            self.tracked.usage = delta.usage
        self.flow.feed(delta)
        return True

    async def feed(self, deltas: Sequence[Delta], error: Exception | None = None) -> None:
        """Feed deltas that came together, and raise the error that came after them. Other tasks get a turn
        between two long ones."""
        for delta in in_pieces(deltas, LONG_TEXT):
            self.has_begun = True
            self.tracked.usage = delta.usage or self.tracked.usage
            self.flow.feed(delta)
            if len(delta.text) >= LONG_TEXT:
                await asyncio.sleep(0)
            if self.flow.is_full:
                await self.flow.has_room()
            self.patience.received(has_piece=True)
        if error is not None:
            try:
                raise error
            finally:
                del error  # it refers to this frame, which refers to all deltas
        if self.call.translator.is_finished:
            self.patience.end()


def translated(
    call: Call, events: Sequence[Event], statuses: Mapping[str, int], *, has_begun: bool
) -> tuple[list[Delta], Exception | None]:
    """The deltas of events that came together, joined; and the error of the event that ends the stream.

    Events come together when Weir reads more slowly than the upstream writes. Joined, they cost little
    more than one: hooks are called once, and the client gets one event. `statuses`: as `UpstreamAnswer` has
    them. `has_begun`: whether earlier events had deltas.
    """
    deltas: list[Delta] = []
    translator = call.translator
    try:
        for event in events:
            # Most of them are like those before them.
            alike = translator.alike if event.event == MESSAGE else None
            if alike is not None and (delta := alike(framed(event.data))) is not None:
                deltas.append(delta)
                continue
            data = event.data.lstrip()
            if not data.startswith(b"{") and (translator.is_finished or data.rstrip() in _VOID):
                continue  # the answer has its finish, or goes on with the next event
            chunk = read_object(event.data, OPEN_TEXTS)
            if event.event == "error" or chunk.get("error"):
                begun = has_begun or bool(deltas)
                raise stream_error(chunk, begun=begun, fields=call.fields, statuses=statuses)
            deltas += translator.feed(chunk, event.data)
    except Exception as error:  # noqa: BLE001 - it is raised once the deltas before it have left
        return join(deltas), error
    return join(deltas), None
