"""Connections that ask for nothing, or for something very slowly, or do not take the answer."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial

import orjson

from tools.abuse.attack import Target, again, attack
from tools.abuse.bodies import CHAT
from tools.abuse.greed import LOOP

HALF_HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


@asynccontextmanager
async def _opened(
    target: Target, sent: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await target.open(sent)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _stand(target: Target, sent: bytes, num: int) -> None:
    """Keep `num` connections open that sent `sent` and nothing more. One that is closed is opened again."""

    async def strike() -> None:
        async with _opened(target, sent) as (reader, _):
            while await reader.read(4096):
                pass

    await again(strike, num)


@attack(4, num_files=128)
async def half_heads_140(target: Target) -> None:
    """More connections than the server has descriptors, none of which finishes its head."""
    await _stand(target, HALF_HEAD, 140)


@attack(4)
async def half_heads_800(target: Target) -> None:
    await _stand(target, HALF_HEAD, 800)


@attack(4)
async def idle_connections_800(target: Target) -> None:
    await _stand(target, b"", 800)


@attack(4)
async def unfinished_bodies(target: Target) -> None:
    """Bodies of 15 MB of which the last byte is missing."""
    length = 15_000_000
    await _stand(target, target.head(CHAT, length) + b" " * (length - 1), 12)


@attack("new")
async def a_byte_a_second(target: Target) -> None:
    """Heads and bodies that arrive byte by byte."""
    head = target.head(CHAT, 10_000)

    async def strike(sent: bytes, rest: Iterable[bytes]) -> None:
        async with _opened(target, sent) as (_, writer):
            for byte in rest:
                writer.write(byte)
                await writer.drain()
                await asyncio.sleep(1)

    async with asyncio.TaskGroup() as tasks:
        slow_head = [head[i : i + 1] for i in range(len(head))]
        tasks.create_task(again(lambda: strike(b"", slow_head), 100))
        tasks.create_task(again(lambda: strike(head, [b" "] * 10_000), 100))


@attack(10)
async def readers_that_never_read(target: Target) -> None:
    """Streams with long events, whose client takes not a byte."""
    fields = {"ignore_eos": True, "max_tokens": 900, "logprobs": True, "top_logprobs": 20, "stream": True}
    body = orjson.dumps({"messages": [LOOP], **fields})
    sent = target.head(CHAT, len(body)) + body

    async def strike() -> None:
        async with _opened(target) as (reader, writer):
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(sent)
            await asyncio.sleep(60)

    await again(strike, 32)


@attack("held")
async def connections_reset(target: Target) -> None:
    """Connections that are reset as soon as they stand."""

    async def strike() -> None:
        _, writer = await target.open(HALF_HEAD)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    await again(strike, 100)


@attack(11)
async def malformed_http(target: Target) -> None:
    """Request lines and headers that are none."""
    wrong = (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"G" * 100_000, b"\x00" * 1000)

    async def strike(sent: bytes) -> None:
        async with _opened(target, sent) as (reader, writer):
            writer.write_eof()
            while await reader.read(4096):
                pass

    async with asyncio.TaskGroup() as tasks:
        for sent in wrong:
            tasks.create_task(again(partial(strike, sent), 8))


@attack("new")
async def clients_that_leave(target: Target) -> None:
    """Streams whose client leaves at the first byte."""
    body = orjson.dumps({"messages": [LOOP], "ignore_eos": True, "max_tokens": 900, "stream": True})

    async def strike() -> None:
        async with _opened(target, target.head(CHAT, len(body)) + body) as (reader, _):
            await reader.read(1)

    await again(strike, 32)
