"""`GET /v1/responses`: responses over a WebSocket, one after another.

Each message of the client is a request of its own, as if it had come by `POST`: it has its own `Arrival`, and
passes the same admission. Only the last step differs, which sends events as messages. Messages that come
while a response runs wait for its end.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self

from aiohttp import WSCloseCode, WSMsgType, web

from proxy.http.access.bodies import max_body_size, parsed
from proxy.http.door import ARRIVAL, Arrival
from proxy.http.handlers import response_over_socket
from proxy.http.websocket import Socket
from proxy.network.errors import api_error
from proxy.service.service import Service
from proxy.wire.errors import APIError
from proxy.wire.openai.responses import MAX_STREAM_ID

logger = logging.getLogger("weir.proxy")

MAX_WAITING = 16
"""Messages that wait while a response runs. One more is an error."""
CLOSING_SECONDS = 2.0
"""How long the client may take to answer that the server closes the socket."""


async def responses_socket(http: web.Request) -> web.StreamResponse:
    """Serves the client until it leaves, or the server stops. Raises `HTTPMethodNotAllowed` for a GET that
    asks for no WebSocket."""
    arrival = http[ARRIVAL]
    service, address = arrival.service, arrival.address
    lengths = [model.info.max_model_len for model in arrival.deployment.models_of(arrival.key)]
    limit = max(max_body_size(service.settings, length) for length in [*lengths, 0])
    # Compression would cost more than it saves, and a small message could stand for a huge one.
    ws = web.WebSocketResponse(compress=False, max_msg_size=limit, timeout=CLOSING_SECONDS)
    if not ws.can_prepare(http):
        raise web.HTTPMethodNotAllowed("GET", ["POST"])
    await ws.prepare(http)
    arrival.status = ws.status
    socket = Socket(http, ws, limit, service, arrival.owner.caller)
    try:
        async with Inbox(ws, socket, limit, arrival) as inbox:
            number = 0
            while (body := await inbox.take()) is not None:
                number += 1
                current = service.deployments.current
                made = Arrival(http, service, current, address, body=body, socket=socket, message=number)
                await inbox.while_client_stays(_answer(made))
    finally:
        socket.forget()
    await ws.close(code=WSCloseCode.GOING_AWAY if service.stopping.is_set() else WSCloseCode.OK)
    return ws


async def _answer(arrival: Arrival) -> None:
    """Answer one message. As the door does for a request."""
    http, socket = arrival.http, arrival.socket
    assert socket is not None
    http[ARRIVAL], socket.stream_id = arrival, None
    with arrival.logged():
        try:
            response = await arrival.let_in(response_over_socket, is_operators=False)
            arrival.status = response.status
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - every error is answered
            arrival.note(error)
            failure = api_error(error)
            arrival.status = failure.status
            if socket.stream_id is None and arrival.body is not None:
                socket.stream_id = await _lane_of(arrival.body, arrival.service)
            await socket.send_error(failure, arrival.answer_headers())
        finally:
            http.pop(ARRIVAL, None)


async def _lane_of(message: bytes, service: Service) -> str | None:
    """The `stream_id` of a message that is refused, as far as it can be read."""
    with suppress(APIError):
        value = await parsed(message, service.settings)
        lane = value.get("stream_id") if isinstance(value, dict) else None
        return lane if isinstance(lane, str) and 0 < len(lane) <= MAX_STREAM_ID else None
    return None


class Inbox:
    """The messages of a client that wait for their turn. Owns the tasks that read them."""

    def __init__(self, ws: web.WebSocketResponse, socket: Socket, max_bytes: int, arrival: Arrival) -> None:
        """`max_bytes`: of all messages that wait. `arrival`: of the request that opened the socket. The
        messages count for its caller."""
        self._ws = ws
        self._socket = socket
        self._max_bytes = max_bytes
        self._arrival = arrival
        self._service = arrival.service
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        """None: the client has left, or the server stops."""
        self._num_bytes = 0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._reading = self._loop.create_task(self._read())
        self._stopping = self._loop.create_task(self._service.stopping.wait())
        self._pinging = self._loop.create_task(self._ping())
        for ending in (self._reading, self._stopping):
            ending.add_done_callback(lambda _: self._waiting.put_nowait(None))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (self._reading, self._stopping, self._pinging):
            task.cancel()
        await asyncio.gather(self._reading, self._stopping, self._pinging, return_exceptions=True)
        self._arrival.release_bytes(self._num_bytes)

    async def take(self) -> bytes | None:
        """The next message. None: there is none, because the client has left or the server stops."""
        self._socket.connection.await_message(self._waiting.empty())
        message = await self._waiting.get()
        self._socket.connection.await_message(False)
        if message is None or self._reading.done():
            return None
        self._num_bytes -= len(message)
        self._arrival.release_bytes(len(message))
        return message

    async def while_client_stays(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, and cancel it if the client leaves."""
        doing = self._loop.create_task(work)
        try:
            await asyncio.wait((doing, self._reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            doing.cancel()
            (error,) = await asyncio.gather(doing, return_exceptions=True)
            if isinstance(error, Exception) and not isinstance(error, ConnectionError):
                logger.error("a response over a WebSocket failed (%s)", type(error).__name__)

    async def _read(self) -> None:
        """Read all messages, also while a response runs: only so is it known that the client closes."""
        async for message in self._ws:
            if message.type is WSMsgType.ERROR:
                return
            if message.type is not WSMsgType.TEXT:
                await self._socket.refuse(APIError(400, "A message is the text of a JSON object."))
                continue
            body = message.data.encode()
            is_full = self._num_bytes and self._num_bytes + len(body) > self._max_bytes
            if is_full or self._waiting.qsize() >= MAX_WAITING:
                await self._socket.refuse(_too_many(), await _lane_of(body, self._service))
                continue
            try:
                self._arrival.count_bytes(len(body))
            except APIError as error:
                await self._socket.refuse(error, await _lane_of(body, self._service))
                continue
            self._num_bytes += len(body)
            self._waiting.put_nowait(body)

    async def _ping(self) -> None:
        """Proxies close a connection that is silent for long."""
        while not self._ws.closed:
            await asyncio.sleep(self._service.settings.keep_alive_interval)
            await self._ws.ping()


def _too_many() -> APIError:
    reason = "Too many messages wait for the response that runs on this connection."
    return APIError(429, reason, "rate_limit_error", code="rate_limit_exceeded", retry_after=1)
