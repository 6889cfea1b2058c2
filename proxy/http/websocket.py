"""A WebSocket of one client: the events of answers go out as messages, and answers are remembered."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from proxy.network.connections import Connection
from proxy.service.service import Service
from proxy.service.stored_responses import Conversation
from proxy.wire.errors import APIError

REMEMBERED = 8
"""Conversations of a socket that are remembered: the last ones."""

_TEXT = 0x81
"""The first byte of a whole message of text (RFC 6455, 5.2)."""


class Socket:
    """Its methods that send raise `ConnectionError` if the client is gone."""

    def __init__(
        self, http: web.Request, ws: web.WebSocketResponse, max_bytes: int, service: Service, caller: str
    ) -> None:
        """`max_bytes`: of the items of remembered conversations. They count for the caller."""
        assert isinstance(http.protocol, Connection)
        self.connection = http.protocol
        self._http = http
        self._ws = ws
        self._max_bytes = max_bytes
        self._service = service
        self._caller = caller
        self.stream_id: str | None = None
        """The client's name for the lane of the request that runs. Its events have it."""
        self._remembered: OrderedDict[str, Conversation] = OrderedDict()
        self._num_bytes = 0
        """Bytes of the items of remembered conversations."""

    def send_now(self, frames: bytes) -> bool:
        """Send messages, unless the client has too much unread data, or is gone. Returns
        whether they are sent."""
        transport = self.connection.transport
        if transport is None or transport.is_closing() or self.connection.writing_paused:
            return False
        self._http.writer.output_size += len(frames)
        transport.write(frames)
        return True

    async def send(self, message: bytes) -> None:
        """Send one message. Waits while the client has too much unread data."""
        await self._ws.send_frame(message, WSMsgType.TEXT)

    async def send_error(self, error: APIError, headers: Mapping[str, str]) -> None:
        """The event of the request that runs, which failed before its first event."""
        await self._send_error(error, {"headers": headers, **self.lane()})

    async def refuse(self, error: APIError, stream_id: str | None = None) -> None:
        """The event of a message that gets no turn."""
        await self._send_error(error, {"headers": {}, **_lane(stream_id)})

    async def _send_error(self, error: APIError, fields: dict[str, Any]) -> None:
        retry = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        fields["headers"] = {**fields["headers"], **retry}
        await self.send(orjson.dumps({"type": "error", "status": error.status, **error.body(), **fields}))

    def lane(self) -> dict[str, Any]:
        """The field that every event has."""
        return _lane(self.stream_id)

    def remember(self, response_id: str, conversation: Conversation) -> None:
        """Keep what `response_id` ends, for this client on this socket alone."""
        held = self._service.remembered_bytes
        most = self._service.settings.max_body_bytes_per_caller
        self._remembered[response_id] = conversation
        held[self._caller] += _size(conversation)
        self._num_bytes += _size(conversation)
        while (
            len(self._remembered) > REMEMBERED
            or (len(self._remembered) > 1 and self._num_bytes > self._max_bytes)
            or (self._remembered and held[self._caller] > most)
        ):
            self._forget_oldest()

    def forget(self) -> None:
        """The socket has closed."""
        while self._remembered:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        size = _size(self._remembered.popitem(last=False)[1])
        self._num_bytes -= size
        held = self._service.remembered_bytes
        held[self._caller] -= size
        if not held[self._caller]:
            del held[self._caller]

    def recall(self, response_id: str | None) -> Conversation | None:
        return None if response_id is None else self._remembered.get(response_id)


def _size(conversation: Conversation) -> int:
    return sum(len(item.json) for item in conversation)


def _lane(stream_id: str | None) -> dict[str, Any]:
    return {} if stream_id is None else {"stream_id": stream_id}


def messages(events: bytes, first: Mapping[str, Any], each: Mapping[str, Any]) -> Iterator[bytes]:
    """The JSON of server-sent events, without comments and `[DONE]`. `each`: fields that all events have in
    addition, and `first` those of the first one."""
    extra = {**first, **each}
    for block in events.split(b"\n\n"):
        head, _, data = block.partition(b"data: ")
        if not data.startswith(b"{"):
            continue
        if not data.startswith(b'{"type":'):  # the name of a decision's event is beside its data
            extra = {"type": head.decode().removeprefix("event: ").strip(), **extra}
        yield data[:-1] + b"," + orjson.dumps(extra)[1:] if extra else data
        extra = dict(each)


def frame(message: bytes) -> bytes:
    """The frame of a whole message of text."""
    size = len(message)
    if size < 126:
        head = bytes((_TEXT, size))
    elif size < 1 << 16:
        head = bytes((_TEXT, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((_TEXT, 127)) + size.to_bytes(8, "big")
    return head + message
