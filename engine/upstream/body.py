"""Reads an upstream's body in small pieces. It decompresses a body that the upstream compressed unasked.

aiohttp would decompress each piece from the network at once, and a megabyte can become a gigabyte.

While a read waits, bytes can be consumed as they come, without a turn of the event loop (`Body.consume_by`).
"""

import asyncio
import math
import zlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp

from engine.upstream.limits import SLICE, Patience
from engine.upstream.request_tracker import RequestTracker

_MOST_CONSUMED = 4096
"""Most bytes to consume at once, without a read. A longer piece goes to a read, so that aiohttp never stops
for good: it stops reading while too many HTTP chunks wait, at least this many (a sixteenth of its
`read_bufsize`), and only a read makes it go on."""

Consume = Callable[[bytes], bool]
"""Consumes bytes that have come. False: it consumed none, and the read returns them."""


class _Listener(asyncio.Protocol):
    """Gets a connection's bytes before aiohttp's protocol does, and notices when aiohttp has read them."""

    __slots__ = ("_consume", "_content", "_is_lost", "_protocol", "_transport", "_waiter")

    def __init__(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        content: aiohttp.StreamReader,
        consume: Consume,
    ) -> None:
        self._transport = transport
        self._protocol = protocol
        self._content = content
        self._consume = consume
        self._is_lost = False
        """Whether the connection has ended."""
        self._waiter: asyncio.Future[bytes] | None = None
        """Set while a read waits."""
        transport.set_protocol(self)

    def leave(self) -> None:
        # A connection that closes serves no other request.
        if not self._transport.is_closing() and self._transport.get_protocol() is self:
            self._transport.set_protocol(self._protocol)

    async def read(self) -> bytes:
        """The bytes that have come, or come next and are not consumed; empty at the end."""
        content = self._content
        while not (data := content.read_nowait()) and not content.is_eof():
            if self._is_lost:
                raise aiohttp.ServerDisconnectedError
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                if data := await self._waiter:
                    break
            finally:
                self._waiter = None
        return data

    def data_received(self, data: bytes) -> None:
        """Let aiohttp read the bytes. A read that waits goes on, unless `consume` takes them."""
        self._protocol.data_received(data)
        waiter, content = self._waiter, self._content
        if waiter is None or waiter.done():
            return
        body = b""
        if content.exception() is None and not content.is_eof():
            body = content.read_nowait()
            try:
                if not body or (len(body) <= _MOST_CONSUMED and self._consume(body)):
                    return
            except Exception as error:  # noqa: BLE001 - the read raises it
                if not waiter.done():
                    waiter.set_exception(error)
                return
        waiter.set_result(body)

    def wake(self) -> None:
        """Let a read that waits look at the connection and the body again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(b"")

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._protocol.connection_lost(exc)
        self.wake()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


class Body:
    """The body of a response. A context manager, which ends its reads when the engine closes.

    A read fails at the deadline of `patience`, if given. One timer serves all reads: a timer for each would
    cost more than the read. It asks again for the deadline when it is due.

    Raises `ValueError` for a compression other than gzip and deflate.
    """

    def __init__(
        self, response: aiohttp.ClientResponse, requests: RequestTracker, patience: Patience | None = None
    ) -> None:
        self._response = response
        self._content = response.content
        self._requests = requests
        self._patience = patience
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        self._inflater = _inflater(encoding) if encoding not in ("", "identity") else None
        self._unread = b""
        """Bytes that were received, and neither returned nor decompressed."""
        self._is_reading = False
        self._listener: _Listener | None = None
        """None until `consume_by` is called: aiohttp alone reads then."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        """When the timer runs."""

    def __enter__(self) -> Self:
        self._requests.on_close(self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.forget(self._stop)
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.leave()
            self._listener = None  # it refers to `consume`, which refers to all of the request

    def consume_by(self, consume: Consume) -> None:
        """Let `consume` have the bytes that come while a read waits, at most `_MOST_CONSUMED` at a time. The
        read raises an error of `consume`."""
        connection = self._response.connection
        # Without a connection, all bytes have come.
        if connection is not None and connection.transport is not None and self._inflater is None:
            assert connection.protocol is not None
            self._listener = _Listener(connection.transport, connection.protocol, self._content, consume)

    async def read(self) -> bytes:
        """The next bytes, at most `SLICE`; empty at the end. Other tasks get a turn between two pieces that
        came at once.

        Raises `ValueError` for a compressed body that cannot be read, `TimeoutError`, `EngineError` when the
        engine closes, and `aiohttp.ClientError`. An answer that has its finish ends at the deadline.
        """
        if self._patience is not None and self._patience.deadline < self._due:
            self._set_timer(self._patience.deadline)
        self._is_reading = True
        try:
            if self._inflater is not None:
                return await self._inflated(self._inflater)
            if self._unread:
                await asyncio.sleep(0)
            reader = self._listener.read if self._listener is not None else self._content.readany
            data = self._unread or await reader()
        except TimeoutError:
            self._requests.check()
            if self._patience is not None and self._patience.has_finish:
                return b""
            raise
        except RuntimeError as error:  # aiohttp, if the connection was closed between two reads
            raise aiohttp.ServerDisconnectedError from error
        finally:
            self._is_reading = False
        self._unread = data[SLICE:]
        return data[:SLICE]

    async def beginning(self, length: int) -> bytes:
        """The first `length` bytes, after decompression. Raises as `read` does."""
        beginning = bytearray()
        while len(beginning) < length and (data := await self.read()):
            beginning += data
        return bytes(beginning[:length])

    async def _inflated(self, inflater: "zlib._Decompress") -> bytes:
        while data := self._unread or await self._content.readany():
            await asyncio.sleep(0)  # a small piece can become a thousand large ones: let other tasks run
            self._unread = b""
            if inflater.eof:
                continue  # whatever follows is dropped
            try:
                piece = inflater.decompress(data, SLICE)
            except zlib.error as error:
                raise ValueError("a compressed body that cannot be read") from error
            self._unread = inflater.unconsumed_tail
            if piece:
                return piece
        return inflater.flush()

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().call_at(due, self._check)

    def _check(self) -> None:
        """End the read if it is late. Without a read nobody waits: the next one sets the timer."""
        assert self._patience is not None
        self._timer, self._due = None, math.inf
        if not self._is_reading:
            return
        if self._patience.is_over():
            self._stop()
        else:
            self._set_timer(self._patience.deadline)

    def _stop(self) -> None:
        self._content.set_exception(TimeoutError())
        if self._listener is not None:
            self._listener.wake()


def _inflater(encoding: str) -> "zlib._Decompress":
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError("the body has an unknown compression")
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32: zlib finds the format from the first bytes
