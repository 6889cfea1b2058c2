"""Reads an upstream's body in small pieces. It decompresses a body that the upstream compressed unasked.

aiohttp would decompress each piece from the network at once, and a megabyte can become a gigabyte.
"""

import asyncio
import math
import zlib
from types import TracebackType
from typing import Self

import aiohttp

from engine.upstream.limits import SLICE, Patience
from engine.upstream.request_tracker import RequestTracker


class Body:
    """The body of a response. A context manager, which ends its reads when the engine closes.

    A read fails at the deadline of `patience`, if given. One timer serves all reads: a timer for each would
    cost more than the read. It asks again for the deadline when it is due.

    Raises `ValueError` for a compression other than gzip and deflate.
    """

    def __init__(
        self, response: aiohttp.ClientResponse, requests: RequestTracker, patience: Patience | None = None
    ) -> None:
        self._content = response.content
        self._requests = requests
        self._patience = patience
        self._inflater = _inflater(response.headers.get("Content-Encoding", "identity").strip().lower())
        self._unread = b""
        """Bytes that were received, and neither returned nor decompressed."""
        self._is_reading = False
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
            data = self._unread or await self._content.readany()
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


def _inflater(encoding: str) -> "zlib._Decompress | None":
    if encoding in ("identity", ""):
        return None
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError("the body has an unknown compression")
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32: zlib finds the format from the first bytes
