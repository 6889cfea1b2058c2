"""Reads an upstream's body in small pieces. It decompresses a body that the upstream compressed unasked.

aiohttp would decompress each piece from the network at once, and a megabyte can become a gigabyte.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import aiohttp

_PIECE = 64 * 1024
"""Most bytes that are decompressed at once."""

Wait = Callable[[Awaitable[bytes]], Awaitable[bytes]]


async def pieces_of(
    response: aiohttp.ClientResponse, wait: Wait, most: int | None = None
) -> AsyncGenerator[bytes, None]:
    """The body as it comes. `wait` awaits a read. `most`: bytes to read before decompression; None: all.

    Raises `ValueError` for a compression other than gzip and deflate, and for data that cannot be read.
    """
    inflater = _inflater(response.headers.get("Content-Encoding", "identity").strip().lower())
    num_read = 0
    while (most is None or num_read < most) and (data := await wait(next_piece(response.content))):
        num_read += len(data)
        if inflater is None:
            yield data
            continue
        while data and not inflater.eof:
            try:
                yield inflater.decompress(data, _PIECE)
            except zlib.error as error:
                raise ValueError("a compressed body that cannot be read") from error
            data = inflater.unconsumed_tail
            await asyncio.sleep(0)  # a small piece can become a thousand large ones: let others work


async def next_piece(content: aiohttp.StreamReader) -> bytes:
    """The next bytes of a body; empty at its end. Raises `aiohttp.ClientError` if the connection is closed:
    aiohttp says this with a `RuntimeError`, if it was closed between two reads."""
    try:
        return await content.readany()
    except RuntimeError as error:
        raise aiohttp.ServerDisconnectedError from error


async def beginning_of(response: aiohttp.ClientResponse, wait: Wait, length: int) -> bytes:
    """The body's first `length` bytes, after decompression. Raises `ValueError` as `pieces_of` does."""
    body = bytearray()
    async with aclosing(pieces_of(response, wait, most=length)) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) >= length:
                break
    return bytes(body[:length])


def _inflater(encoding: str) -> "zlib._Decompress | None":
    if encoding in ("identity", ""):
        return None
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError("the body has an unknown compression")
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32: either format, told by its first bytes
