"""How many connections there may be, and how long each may keep the service waiting for its client.

A connection waits for its client until the head and the body of a request are complete, then until the
client has read the answer, then until the next request begins. Over TLS, the handshake belongs to the first
head. Each of these waits has a deadline. If there are too many connections, the one that has waited longest
for a request makes room for a new one.
"""

import asyncio
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from functools import partial
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from proxy.network.addresses import client_address
from proxy.network.errors import api_error, response_of
from proxy.settings.network import ConnectionOptions
from proxy.wire.errors import APIError

LINGERING_TIME = 2.0
"""Seconds in which the rest of a body that nobody reads is taken, so that its client can read the answer."""


class Wait(Enum):
    """Which part of a request the client has not sent yet."""

    HEAD = auto()
    BODY = auto()
    NEXT = auto()
    MESSAGE = auto()
    """The next message, over a WebSocket."""
    END = auto()
    """Nothing: the connection closes once the client has read the rest, and over TLS has said so."""


class Connection(web.RequestHandler):
    """One connection: aiohttp's HTTP protocol, with deadlines for its client."""

    __slots__ = (
        *("_accepted", "_connecting", "_heard_at", "_options", "_request", "_taken", "_taken_at"),
        *("_wait_began", "_wire", "_writer", "_written", "address", "connections", "num_held", "wait"),
    )

    def __init__(
        self, connections: "Connections", address: str | None, manager: web.Server, **options: Any
    ) -> None:
        """`address`: the client's; None if the peer is a trusted forwarder. `options`: those of aiohttp."""
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=connections.options.client_timeout,
            lingering_time=LINGERING_TIME,
            **options,
        )
        self.connections = connections
        self.address = address
        self.wait: Wait | None = Wait.HEAD
        self.num_held = 0
        """Bytes of a request that is not complete."""
        self._request: web.Request | None = None
        self._options = connections.options
        self._accepted: socket.socket | None = None
        # aiohttp forgets its transport when it closes it, though data may be left to send.
        self._wire: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._heard_at = self._wait_began = self._taken_at = connections.now
        self._writer: AbstractStreamWriter | None = None
        self._written = 0
        self._taken = 0

    def serve(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Serve the client at the other end of a socket; over TLS, once the handshake is complete."""
        self._accepted = accepted
        self.connections.add(self)
        self._connecting = asyncio.get_running_loop().create_task(self._connect(accepted, tls))
        self._connecting.add_done_callback(lambda _: self._has_connected(accepted))

    async def _connect(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        ending = self._options.client_timeout if tls else None
        with suppress(OSError):  # the client has disconnected, or its handshake fails
            await loop.connect_accepted_socket(lambda: self, accepted, ssl=tls, ssl_shutdown_timeout=ending)

    def _has_connected(self, accepted: socket.socket) -> None:
        self._connecting = None
        if self._wire is None:
            self.connections.remove(self)
            accepted.close()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._connecting is not None and self._connecting.cancelling():
            return  # it made room for another. uvloop calls this even so, and no `connection_lost` after it
        self._wire = cast(asyncio.Transport, transport)  # uvloop's is of no common class
        self.connections.note(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._wire = self._accepted = None
        self._writer = None  # the two refer to each other: their memory is free at once
        self.connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if data and self.wait is not Wait.END:
            self._heard_at = self.connections.now
            if self.wait is Wait.NEXT:
                self._begin_wait(Wait.HEAD)
            if self.wait is not None:
                self.connections.note(self, len(data))
        super().data_received(data)

    # Called by the door, and by those who serve a WebSocket.

    @contextmanager
    def serving(self, request: web.Request) -> Iterator[str]:
        """One request, from its complete head until its handler has returned. Yields the client's address.
        Raises `APIError` 429 for too many requests that a trusted forwarder passes on from one address."""
        self._request = request
        if self._writer is not None:
            self._written += self._writer.output_size
        self._writer = request.writer
        if request.content.is_eof():  # the body came with the head, or there is none
            self._begin_wait(None)
        else:
            self._begin_wait(Wait.BODY)
            request.content.on_eof(self._body_is_complete)
        try:
            if self.address is not None:
                yield self.address
            else:
                with self.connections.counted(address := client_address(request)):
                    yield address
        finally:
            self._request = None
            if request.content.is_eof():
                self._begin_wait(Wait.NEXT)
            else:  # aiohttp drops the part of the body that the handler did not read
                self._begin_wait(None)
                request.content.on_eof(partial(self._begin_wait, Wait.NEXT))

    def await_message(self, is_awaited: bool) -> None:
        """Whether a WebSocket waits for its client's next message. It may then make room for a connection."""
        self._begin_wait(Wait.MESSAGE if is_awaited else None)

    def _body_is_complete(self) -> None:
        if self.wait is Wait.BODY:
            self._begin_wait(None)

    def _begin_wait(self, wait: Wait | None) -> None:
        self.wait = wait
        self._wait_began = self._heard_at = self.connections.now
        # The first bytes of a body may have come with the head.
        self.connections.note(self, 0 if wait is Wait.BODY else -self.num_held)

    # Deadlines.

    def check(self) -> None:
        """Close the connection, or fail its request, if its client is late."""
        now = self.connections.now
        is_head_late = self.wait is Wait.HEAD and now - self._wait_began >= self._options.header_timeout
        if self._wire is None:
            if is_head_late:
                self.abort()
        elif self._reads_nothing(self._wire, now):
            self.abort()
        elif self._wire.is_closing() and self._request is None:
            if self.wait is not Wait.END:
                self._begin_wait(Wait.END)
            if self.connections.is_closing:
                self._end_session()
        elif is_head_late:
            self.refuse(APIError(408, "The request's headers did not arrive in time."))
        elif self.wait is Wait.BODY and self._body_is_late(now):
            self.refuse(APIError(408, "The request's body did not arrive in time."))

    def refuse(self, error: APIError) -> None:
        """Answer with an error instead of waiting for the rest of the request. Close a WebSocket."""
        if self.wait is Wait.MESSAGE:
            self.abort()
        self._begin_wait(None)
        if self._request is not None:
            self._request.content.set_exception(error)
        elif self._wire is not None:
            self._wire.write(error.raw())
            self.force_close()

    def close_when_done(self) -> None:
        """Close the connection after the answer to its request, if it has one."""
        if self._wire is None:
            self.abort()
        elif self._request is None:
            self.force_close()
            self._end_session()
        else:
            self.close()

    def _end_session(self) -> None:
        """End the session of TLS of a connection that is closing. Some clients never do.
        Nothing changes while data is left to send."""
        wire, accepted = self._wire, self._accepted
        if wire is None or accepted is None or wire.get_extra_info("ssl_object") is None:
            return
        # The end of the input ends the session, as if the client had closed the connection.
        if not wire.get_write_buffer_size():
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RD)  # no transport of uvloop can

    def abort(self) -> None:
        """Close the connection at once. Unsent data is lost, and the request is cancelled."""
        if self._wire is not None:
            self._wire.abort()
        elif self._connecting is not None:
            self._connecting.cancel()

    def _body_is_late(self, now: float) -> bool:
        is_paused = now - self._heard_at >= self._options.body_idle_timeout
        return is_paused or now - self._wait_began >= self._options.client_timeout

    def _reads_nothing(self, wire: asyncio.Transport, now: float) -> bool:
        unsent = wire.get_write_buffer_size()
        taken = self._written + (self._writer.output_size if self._writer else 0) - unsent
        if not unsent or taken != self._taken:
            self._taken, self._taken_at = taken, now
        return now - self._taken_at >= self._options.client_timeout

    # Errors that no middleware sees.

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The API's error object. aiohttp's own answer repeats what the client sent."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun")
        if status == 400:
            error = APIError(400, "The request is not valid HTTP, or its headers are too long.")
        else:
            error = api_error(exc if isinstance(exc, Exception) else RuntimeError(f"status {status}"))
        response = response_of(error)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException):  # such as 417, which comes before all middleware
            resp = response_of(api_error(resp))
        return await super().finish_response(request, resp, start_time)


class Connections:
    """The connections of a server: how many there are, from where, and which wait for their clients."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self.limit = min(options.max_connections, _file_room(2 * options.max_connections) // 2)
        self.address_limit = max(1, self.limit // 2)
        self._all: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}
        """Those that wait for their clients, the longest wait first."""
        self._by_address: Counter[str] = Counter()
        self.num_held = 0
        self.is_closing = False
        """The server stops."""
        self._none = asyncio.Event()
        self._none.set()
        self.now = 0.0
        """Seconds that `watch` has run. Time in which the event loop was blocked does not count: bytes
        that came meanwhile have not been read."""

    def __len__(self) -> int:
        return len(self._all)

    def make_room(self, address: str | None) -> APIError | None:
        """Room for one more connection of `address`. Without room, the error for its client."""
        is_over = address is not None and self._by_address[address] >= self.address_limit
        if is_over and not self.close_one(address):
            return _too_many(self.address_limit)
        if len(self._all) >= self.limit and not self.close_one():
            return APIError(503, "The server has too many connections.", "server_error", retry_after=1)
        return None

    def close_one(self, address: str | None = None) -> bool:
        """Close the connection, perhaps of one address, that has waited longest for its client."""
        for connection in self._waiting:
            if address is None or connection.address == address:
                self.remove(connection)
                connection.abort()
                return True
        return False

    def add(self, connection: Connection) -> None:
        self._all.add(connection)
        self._none.clear()
        if connection.address is not None:
            self._by_address[connection.address] += 1
        self.note(connection)

    def remove(self, connection: Connection) -> None:
        if connection in self._all:
            self._all.remove(connection)
            if not self._all:
                self._none.set()
            if connection.address is not None:
                self._uncount(connection.address)
        self.note(connection, -connection.num_held)

    def note(self, connection: Connection, size: int = 0) -> None:
        """A connection has heard from its client, or begins or ends a wait. `size`: the bytes of a request
        that it has received; less than 0: that it holds no more. Refuses requests if there are too many.
        """
        self._waiting.pop(connection, None)
        if connection.wait is not None and connection in self._all:
            self._waiting[connection] = None
        connection.num_held += size
        self.num_held += size
        while size > 0 and self.num_held > self.options.max_unfinished_bodies:
            by_address: Counter[str | None] = Counter()
            for waiting in self._waiting:
                by_address[waiting.address] += waiting.num_held
            holding = (waiting for waiting in self._waiting if waiting.num_held)
            max(holding, key=lambda waiting: by_address[waiting.address]).refuse(
                APIError(503, "Too many requests are being received.", "server_error", retry_after=1)
            )

    @contextmanager
    def counted(self, address: str) -> Iterator[None]:
        """Counts a request that a trusted forwarder passed on. Raises `APIError` 429 over the limit."""
        if self._by_address[address] >= self.address_limit:
            raise _too_many(self.address_limit)
        self._by_address[address] += 1
        try:
            yield
        finally:
            self._uncount(address)

    def _uncount(self, address: str) -> None:
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def close(self) -> None:
        """Close each connection once its answer is sent. Nobody waits for a client's end of TLS."""
        self.is_closing = True
        for connection in list(self._all):
            connection.close_when_done()

    def abort(self) -> None:
        """Close all connections at once."""
        for connection in list(self._all):
            connection.abort()

    async def closed(self) -> None:
        """Returns once there are no connections."""
        await self._none.wait()

    async def watch(self) -> None:
        """Hold every connection to its deadlines, until cancelled."""
        options = self.options
        deadlines = (options.header_timeout, options.body_idle_timeout, options.client_timeout)
        interval = min(4.0, *deadlines) / 4
        while True:
            slept_at = time.monotonic()
            await asyncio.sleep(interval)
            self.now += min(time.monotonic() - slept_at, 2 * interval)
            for connection in list(self._all):
                connection.check()


def _too_many(limit: int) -> APIError:
    text = f"This address has too many connections; the limit is {limit}, half of --max-connections."
    return APIError(429, text, "rate_limit_error", code="too_many_connections", retry_after=1)


def _file_room(wanted: int) -> int:
    """How many files the process may open, after its soft limit was raised as far as it is wanted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
