"""Connections that make the service wait, and connections over the limits, on real sockets."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.protocol import Delta
from proxy.network import connections
from proxy.network.listener import BATCH
from tests.helpers import ScriptedEngine, examples, make_deltas, until
from tests.proxy.conftest import CHAT, Client, Serve, hello
from tests.serving import serving

CHATS = "/v1/chat/completions"
NEVER = 3600.0


def address_of(client: Client) -> tuple[str, int]:
    host, port = client.url.partition("//")[2].split(":")
    return host, int(port)


@asynccontextmanager
async def connected(
    client: Client, data: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*address_of(client))
    writer.write(data)
    try:
        yield reader, writer
    finally:
        writer.close()


def post(body: bytes, *headers: str, length: int | None = None) -> bytes:
    lines = [
        f"POST {CHATS} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def read_error(answer: bytes, status: int) -> Any:
    """The error of a whole HTTP response that closes its connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode(), answer
    assert head.startswith(b"HTTP/1.0") or b"connection: close" in head.lower()
    assert b"content-type: application/json" in head.lower()
    error = orjson.loads(body)["error"]
    assert list(error) == ["message", "type", "param", "code"]
    return error


async def dripped(byte: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The answer to a client that sends one byte after another."""

    async def drip() -> None:
        while True:
            writer.write(byte)
            await asyncio.sleep(0.01)

    dripping = asyncio.get_running_loop().create_task(drip())
    try:
        return await reader.readuntil(b"}}")
    finally:
        dripping.cancel()


def running(client: Client) -> int:
    return len(client.server.connections)


@pytest.mark.parametrize("begun", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"])
async def test_a_request_whose_headers_do_not_come_is_a_408(serve: Serve, begun: bytes) -> None:
    client = await serve(ScriptedEngine(hello), header_timeout=0.05)
    async with connected(client, begun) as (reader, _):
        assert "headers" in read_error(await reader.read(), 408)["message"]
    await until(lambda: not running(client))


async def test_a_time_in_which_the_server_reads_nothing_counts_for_no_deadline(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), header_timeout=0.8)
    async with connected(client) as (reader, writer):
        await until(lambda: running(client))
        sock = writer.get_extra_info("socket")
        sent = socket.socket(fileno=os.dup(sock.fileno()))
        with sent:
            sent.send(post(orjson.dumps(CHAT)))
        time.sleep(1.0)  # noqa: ASYNC251 - holds the event loop
        assert b" 200 " in await reader.readline()


async def test_headers_that_come_byte_by_byte_have_one_deadline(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), header_timeout=0.2)
    async with connected(client, b"GET /") as (reader, writer):
        read_error(await dripped(b"x", reader, writer), 408)


async def test_a_second_request_has_the_same_deadline(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), header_timeout=0.5, client_timeout=NEVER)
    async with connected(client, post(orjson.dumps(CHAT))) as (reader, writer):
        assert b"200" in await reader.readline()
        await reader.readuntil(b"}]")
        writer.write(b"GET /health HTTP/1.1\r\n")
        assert b"HTTP/1.1 408" in await reader.read()


async def test_a_body_that_pauses_too_long_is_a_408(serve: Serve) -> None:
    engine = ScriptedEngine(hello)
    client = await serve(engine, body_idle_timeout=0.05)
    async with connected(client, post(b'{"mo', length=1000)) as (reader, _):
        assert "body" in read_error(await reader.read(), 408)["message"]
    await until(lambda: not running(client))
    assert not engine.requests


async def test_a_body_that_comes_byte_by_byte_has_a_deadline(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), client_timeout=0.2, body_idle_timeout=NEVER)
    async with connected(client, post(b"", length=1_000_000)) as (reader, writer):
        read_error(await dripped(b" ", reader, writer), 408)


async def test_too_many_bytes_of_unfinished_bodies_refuse_the_one_that_waits_longest(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), max_unfinished_bodies=10_000)
    part = b"{" + b" " * 4_000
    async with (
        connected(client, post(part, length=9_000)) as (first, _),
        connected(client) as (second, second_writer),
    ):
        await until(lambda: client.server.connections.num_held >= 4_000)
        body = orjson.dumps(CHAT)
        second_writer.write(post(part[1:] * 2, length=len(part[1:]) * 2 + len(body)))
        answer = await first.readline()
        assert b" 503 " in answer
        second_writer.write(body)
        assert b" 200 " in await second.readline()
    await until(lambda: not client.server.connections.num_held)


async def test_unfinished_bodies_of_one_address_refuse_none_of_another(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), max_unfinished_bodies=10_000)
    body = orjson.dumps(CHAT)
    other, other_writer = await asyncio.open_connection(*address_of(client), local_addr=("127.0.0.2", 0))
    other_writer.write(post(body[:-1], length=len(body)))
    await until(lambda: client.server.connections.num_held)
    part = post(b"{" + b" " * 4_000, length=9_000)
    async with connected(client, part) as (first, _), connected(client, part), connected(client, part):
        assert b" 503 " in await first.readline()
        other_writer.write(body[-1:])
        assert b" 200 " in await other.readline()
    other_writer.close()


async def test_bytes_that_are_dropped_do_not_count(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), api_key=["k"], max_unfinished_bodies=10_000)
    async with connected(client, post(b"{" + b" " * 4_000, length=8_001)) as (reader, writer):
        assert b" 401 " in await reader.readline()
        assert not client.server.connections.num_held
        writer.write(b" " * 4_000)
        assert b"invalid_api_key" in await reader.readuntil(b"}}")
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in await reader.readline()
    await until(lambda: not client.server.connections.num_held)


@pytest.mark.parametrize("path", ["/nothing", "/health"])
async def test_a_body_that_nobody_reads_does_not_keep_its_connection(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LINGERING_TIME", 0.2)
    client = await serve(ScriptedEngine(hello), header_timeout=0.05, client_timeout=0.05)
    begun = post(b"{", length=1000).replace(CHATS.encode(), path.encode())
    async with connected(client, begun) as (reader, _):
        assert await reader.read()
    await until(lambda: not running(client))


async def test_a_running_request_has_no_deadline_of_a_connection(serve: Serve) -> None:
    go = asyncio.Event()
    deadlines = dict.fromkeys(("header_timeout", "body_idle_timeout", "client_timeout"), 0.5)
    client = await serve(ScriptedEngine(lambda r: [go, *hello(r)]), **deadlines)
    async with connected(client, post(orjson.dumps(CHAT))) as (reader, _):
        began = client.server.connections.now
        await until(lambda: client.server.connections.now > began + 1.0)
        go.set()
        assert b" 200 " in await reader.readline()


async def test_an_idle_connection_is_closed(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), client_timeout=0.5, header_timeout=NEVER)
    async with connected(client, post(orjson.dumps(CHAT))) as (reader, _):
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection: close" not in answer.lower()


@pytest.mark.parametrize("length", [100_000, 4000])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_reads_nothing_is_left(serve: Serve, stream: bool, length: int) -> None:
    engine = ScriptedEngine(lambda r: make_deltas(["x" * length] * (20_000_000 // length)))
    client = await serve(engine, client_timeout=0.05)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, address_of(client))
        await loop.sock_sendall(sock, post(orjson.dumps({**CHAT, "stream": stream})))
        await until(lambda: bool(engine.requests))
        await until(lambda: not running(client) and not engine.running)
    assert engine.aborted == stream


async def test_a_client_that_reads_slowly_gets_all(serve: Serve) -> None:
    """Its deadline starts again whenever it has read something."""
    text = "x" * 100_000
    client = await serve(ScriptedEngine(lambda r: make_deltas([text] * 100)), client_timeout=1.0)
    async with connected(client, post(orjson.dumps({**CHAT, "stream": True}), "Connection: close")) as (r, _):
        size = 0
        while data := await r.read(100_000):
            size += len(data)
            await asyncio.sleep(0.01)
    assert size > 100 * len(text)


def held(engine_go: asyncio.Event) -> ScriptedEngine:
    return ScriptedEngine(lambda r: [Delta(text="a"), engine_go, *make_deltas(["b"])])


STREAM = post(orjson.dumps({**CHAT, "stream": True}))


async def test_an_address_over_its_limit_is_refused(serve: Serve) -> None:
    go = asyncio.Event()
    client = await serve(held(go), max_connections=4)
    async with connected(client, STREAM) as (first, _), connected(client, STREAM) as (second, _):
        await first.readline()
        await second.readline()
        async with connected(client, b"GET /health HTTP/1.1\r\n\r\n") as (reader, _):
            answer = await reader.read()
            error = read_error(answer, 429)
            assert (error["type"], error["code"]) == ("rate_limit_error", "too_many_connections")
            assert b"Retry-After: 1" in answer
        go.set()
        await first.readuntil(b"[DONE]")
        async with connected(client, STREAM) as (reader, _):
            assert b" 200 " in await reader.readline()


async def test_a_server_with_too_many_connections_refuses_politely(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    client = await serve(held(asyncio.Event()), max_connections=2, trusted_forwarders=["127.0.0.1"])
    a, b = (post(orjson.dumps({**CHAT, "stream": True}), f"X-Forwarded-For: 203.0.113.{i}") for i in (1, 2))
    async with connected(client, a) as (first, _), connected(client, b) as (second, _):
        assert b" 200 " in await first.readline()
        assert b" 200 " in await second.readline()
        for _ in range(3):
            async with connected(client, STREAM) as (reader, _):
                answer = await reader.read()
                assert read_error(answer, 503)["type"] == "server_error"
                assert b"Retry-After: 1" in answer
    assert len([record for record in caplog.records if "refused" in record.message]) == 1


@pytest.mark.parametrize("waiting", [b"", b"GET /health HT", post(b"{", length=1000)])
async def test_the_longest_waiting_connection_makes_room(serve: Serve, waiting: bytes) -> None:
    """A client that opens connections and does nothing takes none from a client that asks."""
    client = await serve(ScriptedEngine(hello), max_connections=6)
    async with connected(client, waiting) as (first, _):
        await until(lambda: running(client) == 1)
        async with connected(client, waiting) as (second, _), connected(client, waiting):
            await until(lambda: running(client) == 3)
            for _ in range(2):  # the client of `serve` takes a new connection each time
                assert (await client.post(CHATS, CHAT))[0] == 200
            assert not await first.read()
            assert not second.at_eof()


async def test_connections_that_make_room_before_they_begin_leave_nothing(serve: Serve) -> None:
    """More than are accepted in one turn of the event loop, and more than there is room for."""
    client = await serve(ScriptedEngine(lambda request: []), max_connections=BATCH)
    before = asyncio.all_tasks()
    clients = [socket.create_connection(address_of(client)) for _ in range(6 * BATCH)]
    await until(lambda: running(client) > 0)
    for one in clients:
        one.close()
    await until(lambda: running(client) == 0)
    await until(lambda: asyncio.all_tasks() <= before)


async def test_a_running_request_makes_no_room(serve: Serve) -> None:
    go = asyncio.Event()
    client = await serve(held(go), max_connections=4)
    async with connected(client, STREAM) as (stream, _), connected(client, b"GET"):
        await stream.readline()
        assert (await client.get("/health"))[0] == 200
        go.set()
        assert (await stream.readuntil(b"[DONE]\n\n")).count(b"data:") > 1


async def test_a_trusted_forwarders_clients_are_counted_by_their_own_addresses(serve: Serve) -> None:
    go = asyncio.Event()
    client = await serve(held(go), trusted_forwarders=["127.0.0.0/8"], max_connections=2)
    body = {**CHAT, "stream": True}

    async def status(address: str) -> int:
        headers = {"X-Forwarded-For": address}
        async with client.http.post(client.url + CHATS, json=body, headers=headers) as response:
            return response.status

    async with connected(client, post(orjson.dumps(body), "X-Forwarded-For: 203.0.113.7")) as (stream, _):
        await stream.readline()
        assert [await status(address) for address in ("203.0.113.7", "203.0.113.8")] == [429, 200]
        go.set()
        await stream.readuntil(b"[DONE]")
    assert await status("203.0.113.7") == 200


MALFORMED = [
    b"hunter2\r\n\r\n",
    b"GET / HTTP/9.9 hunter2\r\n\r\n",
    b"GET / HTTP/1.1\r\nhunter2\r\n\r\n",
    b"GET / HTTP/1.1\r\nhunter 2 x\r\n\r\n",
    b"GET / HTTP/1.1\r\nA: " + b"hunter2" * 10_000 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: hunter2\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nhunter2",
    b"\x16\x03\x01\x02\x00hunter2\r\n\r\n",
]


@pytest.mark.parametrize("data", MALFORMED, ids=lambda data: repr(data[:40]))
async def test_malformed_http_gets_an_error_object_that_repeats_nothing(
    serve: Serve, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client = await serve(ScriptedEngine(hello))
    async with connected(client, data) as (reader, _):
        answer = await reader.read()
    read_error(answer, 400)
    assert b"hunter" not in answer
    assert "hunter" not in caplog.text


async def test_an_expectation_that_cannot_be_met_gets_an_error_object(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    async with connected(client, post(b"{}", "Expect: hunter2", "Connection: close")) as (reader, _):
        answer = await reader.read()
    assert read_error(answer, 417)
    assert b"hunter2" not in answer


@pytest.fixture(scope="module")
def raw_server() -> Iterator[tuple[str, int]]:
    with serving("--engine", "echo", "--log-level", "error") as url:
        host, port = url.removeprefix("http://").split(":")
        yield host, int(port)


@settings(
    examples(200),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(st.lists(st.binary(max_size=200) | st.sampled_from([*MALFORMED, STREAM, b"\r\n", b"GET / HTTP/1.1"])))
def test_any_bytes_are_answered_or_refused(raw_server: tuple[str, int], pieces: list[bytes]) -> None:
    """No answer is an error of the server, and none leaves a connection without an end."""
    with socket.create_connection(raw_server, timeout=30) as sock:
        answer = b""
        try:
            for piece in pieces:
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)
            while data := sock.recv(65536):
                answer += data
        except OSError:  # the server has closed the connection
            pass
    assert b"HTTP/1.1 5" not in answer
    assert b"Traceback" not in answer
