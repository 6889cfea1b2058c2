"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).

The response starts with its first event, so that an earlier failure can have a status of its own. aiohttp-sse
is not used: it starts the response before the first event, and it formats each event again.
"""

import asyncio
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from proxy.wire.sse import COMMENT

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # otherwise nginx collects the stream before it passes it on
}


class EventStream:
    """Writes events to a client, and `filler` after `keep_alive` seconds without an event."""

    def __init__(
        self, request: web.Request, *, keep_alive: float, headers: dict[str, str], filler: bytes = COMMENT
    ) -> None:
        self._request = request
        self._protocol = request.protocol
        self._keep_alive = keep_alive
        self._filler = filler
        self._starting = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._last_write = monotonic()
        self._filling: asyncio.Task[None] | None = None
        self._writer: AbstractStreamWriter | None = None
        """Writes the response's body. The response's own `write` would only pass each event on to it."""
        self._chunked: asyncio.Transport | None = None
        """The client's connection, once the response has begun on it in HTTP's chunked coding."""
        self.response = web.StreamResponse(headers={**_HEADERS, **headers})

    async def __aenter__(self) -> Self:
        self._timer = self._loop.call_later(self._keep_alive, self._break_silence)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)

    @property
    def started(self) -> bool:
        return self.response.prepared

    def write_now(self, frames: bytes) -> bool:
        """Send whole events without waiting. False: nothing is sent, and `write` has to send them.

        Most events go this way, past aiohttp's writer, whose coroutine takes four times as long.
        """
        transport, writer = self._chunked, self._writer
        if transport is None or writer is None or transport.is_closing() or self._protocol.writing_paused:
            return False
        chunk = b"%x\r\n%b\r\n" % (len(frames), frames)
        writer.output_size += len(chunk)
        self._last_write = monotonic()
        transport.write(chunk)
        return True

    async def write(self, frames: bytes) -> None:
        """Send whole events. Waits while the client has too much unread data. Raises `ConnectionError` if the
        client is gone."""
        if self._writer is None:
            async with self._starting:  # the response starts once
                self._writer = self._writer or await self.response.prepare(self._request)
        writer = self._writer
        assert writer is not None
        self._last_write = monotonic()
        await writer.write(frames)  # the first time with the headers
        if self.response.headers.get("Transfer-Encoding") == "chunked":
            self._chunked = self._protocol.transport
        await writer.drain()

    def _break_silence(self) -> None:
        left = self._last_write + self._keep_alive - monotonic()
        if left <= 0:
            left = self._keep_alive
            if self._filling is None or self._filling.done():
                self._filling = self._loop.create_task(self._fill())
        self._timer = self._loop.call_later(left, self._break_silence)

    async def _fill(self) -> None:
        with suppress(ConnectionError):  # whoever writes the next event learns of it
            await self.write(self._filler)
