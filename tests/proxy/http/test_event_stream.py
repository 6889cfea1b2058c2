"""Streams of events over HTTP: their start, their silences, and clients that leave."""

import asyncio
from typing import Any

import orjson
import pytest

from engine.protocol import Delta
from hooks import emit, hold
from tests.helpers import Script, ScriptedEngine, make_deltas, until
from tests.proxy.conftest import CHAT, Client, Serve, hello

CHATS = "/v1/chat/completions"


async def test_a_silent_stream_is_kept_alive_by_comments(serve: Serve) -> None:
    go = asyncio.Event()
    client = await serve(ScriptedEngine(lambda r: [go, *hello(r)]), keep_alive_interval=0.02)
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        assert response.status == 200
        assert await response.content.readline() == b": keep-alive\n"
        go.set()
        rest = await response.read()
    assert rest.endswith(b"data: [DONE]\n\n")
    assert b'"content":"Hello"' in rest


async def open_request(client: Client, body: dict[str, Any], version: str = "1.1") -> Any:
    """Send a chat over a plain socket. Returns its reader and writer."""
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = orjson.dumps(body)
    head = (
        f"POST /v1/chat/completions HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("holding", [True, False])
async def test_a_client_that_leaves_frees_its_slot(serve: Serve, stream: bool, holding: bool) -> None:
    forever = asyncio.Event()
    engine = ScriptedEngine(lambda r: [*make_deltas(["a", "b"], finish=False), forever])
    hook = Script(lambda c: hold() if holding and not c.is_final else emit(c.pending))
    client = await serve(
        engine, hook, keep_alive_interval=3600
    )  # a comment would also notice that the client is gone
    reader, writer = await open_request(client, {**CHAT, "stream": stream})
    if stream and not holding:
        assert b"200 OK" in await reader.readline()
    await until(lambda: any(c.text == "ab" for c in hook.chunks))
    assert engine.running == 1
    writer.close()
    await until(lambda: not engine.running)
    assert engine.aborted == 1
    await until(lambda: hook.chunks[-1].is_final)  # the guard is closed after the engine
    assert hook.chunks[-1].aborted


@pytest.mark.parametrize("before", [0, 1, 3])
async def test_text_that_cannot_be_written_fails_its_stream(serve: Serve, before: int) -> None:
    deltas = [*(Delta(text="a") for _ in range(before)), Delta(text="\ud800"), Delta(text="b")]
    client = await serve(ScriptedEngine(lambda r: deltas))
    got = await client.stream(CHATS, CHAT)
    if before:
        assert got.content() == "a" * before
        assert [name for name, _ in got.events][-2:] == ["error", None]
    else:
        assert got.status == 500


async def test_http_1_0_gets_no_chunked_encoding(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda r: make_deltas(["a", "b"])))
    reader, writer = await open_request(client, {**CHAT, "stream": True}, version="1.0")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"200 OK" in head
    assert b"chunked" not in head.lower()
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")


async def test_a_connection_serves_one_stream_after_another(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda r: [Delta(text="a"), Delta(finish_reason="stop")]))
    reader, writer = await open_request(client, {**CHAT, "stream": True})
    assert (await reader.readuntil(b"[DONE]\n\n\r\n0\r\n\r\n")).startswith(b"HTTP/1.1 200")
    data = orjson.dumps(CHAT)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data
    )
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()
