"""An upstream that never ends its answer: the client gets one error or the answer, and others are served."""

import asyncio
import gzip
import itertools
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from aiohttp import web

from engine.upstream import limits
from engine.upstream.limits import UpstreamOptions
from engine.upstream.openai.engine import OpenAIEngine
from tests.engine.upstream.conftest import FakeUpstream
from tests.engine.upstream.conftest import upstream as _upstream
from tests.helpers import options_with
from tests.proxy.conftest import CHAT, COMPLETION, Client, Serve

upstream = _upstream
DONE = b"data: [DONE]\n\n"
CHATS, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ASKS: dict[str, dict[str, Any]] = {
    CHATS: {**CHAT, "max_tokens": 16},
    COMPLETIONS: {**COMPLETION, "max_tokens": 16},
    RESPONSES: {"model": "m", "input": "Hi", "max_output_tokens": 16},
}
WITHOUT_MAX_TOKENS: dict[str, dict[str, Any]] = {
    CHATS: CHAT,
    COMPLETIONS: COMPLETION,
    RESPONSES: {"model": "m", "input": "Hi"},
}
ENDPOINTS = pytest.mark.parametrize("path", list(ASKS))
STREAMING = pytest.mark.parametrize("stream", [False, True])
pytestmark = pytest.mark.sampled


def many(frame: Any) -> bytes:
    """The frame a hundred times, in one piece."""
    return (frame if isinstance(frame, bytes) else b"data: %b\n\n" % orjson.dumps(frame)) * 100


async def in_front_of(serve: Serve, upstream: FakeUpstream, **options: Any) -> Client:
    return await serve(OpenAIEngine(upstream.url, options=options_with(UpstreamOptions, **options)), names=[])


def piece(body: dict[str, Any], text: str, finish: str | None = None) -> dict[str, Any]:
    content = {"delta": {"content": text}} if "messages" in body else {"text": text}
    return {"choices": [{"index": 0, "finish_reason": finish, **content}]}


async def failure_of(client: Client, path: str, body: dict[str, Any], stream: bool) -> dict[str, Any]:
    """The one error that the client gets, and how long the text before it is."""
    if not stream:
        status, answer, _ = await client.post(path, body)
        return {"status": status, "message": answer["error"]["message"], "length": 0}
    got = await client.stream(path, body)
    if got.status != 200:
        return {"status": got.status, "message": got.events[0][1]["error"]["message"], "length": 0}
    assert got.events[-1] == (None, "[DONE]")
    errors = [data["error"] for name, data in got.events if name == "error"]
    assert len(errors) == 1
    length = 0 if path == RESPONSES else len(got.content())
    return {"status": errors[0].get("code"), "message": errors[0]["message"], "length": length}


@ENDPOINTS
@STREAMING
@pytest.mark.parametrize("text", ["a", "word " * 20_000])
async def test_text_without_an_end_is_cut_off_near_max_tokens(
    serve: Serve, upstream: FakeUpstream, path: str, stream: bool, text: str
) -> None:
    upstream.script = lambda body: itertools.repeat(piece(body, text))
    client = await in_front_of(serve, upstream)
    failure = await failure_of(client, path, ASKS[path], stream)
    assert "more than an answer may have" in failure["message"]
    assert failure["length"] <= 256 * 32
    assert (await client.get("/health"))[0] == 200


@ENDPOINTS
@STREAMING
async def test_text_without_an_end_is_cut_off_without_max_tokens(
    serve: Serve, upstream: FakeUpstream, path: str, stream: bool
) -> None:
    upstream.script = lambda body: itertools.repeat(piece(body, "word " * 50))
    client = await in_front_of(serve, upstream, max_upstream_output=5000)
    failure = await failure_of(client, path, WITHOUT_MAX_TOKENS[path], stream)
    assert "more than an answer may have" in failure["message"]
    assert failure["length"] <= 5000


SILENT = {
    "roles": lambda body: {"choices": [{"index": 0, "delta": {"role": "assistant"}, "text": ""}]},
    "empty": lambda body: piece(body, ""),
    "no choices": lambda body: {"choices": []},
    "usage": lambda body: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 5}},
    "hidden tokens": lambda body: {
        "choices": [{"index": 0, "delta": {}, "logprobs": {"content": [{"token": "z", "logprob": -1}]}}]
    },
    "a call's name": lambda body: {
        "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"name": "f" * 99}}]}}]
    },
    "comments": lambda body: b": hi\n",
    "blank lines": lambda body: b"\n" * 20,
    "ids": lambda body: b"id: x\nevent: y\nretry: 5\n",
}


@STREAMING
@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("kind", list(SILENT))
async def test_events_without_text_end_the_request(
    serve: Serve, upstream: FakeUpstream, kind: str, stream: bool, begins: bool
) -> None:
    def say(body: dict[str, Any]) -> Iterator[Any]:
        if begins:
            yield piece(body, "well")
        yield from itertools.repeat(many(SILENT[kind](body)))

    upstream.script = say
    client = await in_front_of(serve, upstream, max_upstream_event=20_000)
    failure = await failure_of(client, CHATS, ASKS[CHATS], stream)
    assert "more than an answer may have" in failure["message"]


@pytest.mark.parametrize("line", [b": hi\n", b"\n", b"data: {}\n\n"])
async def test_a_stream_that_inflates_to_nothing_ends_the_request(
    serve: Serve, upstream: FakeUpstream, line: bytes
) -> None:
    bomb = gzip.compress(line * 1_000_000)
    upstream.script = lambda body: web.Response(body=bomb, headers={"Content-Encoding": "gzip"})
    client = await in_front_of(serve, upstream, max_upstream_event=20_000)
    failure = await failure_of(client, CHATS, ASKS[CHATS], False)
    assert failure["status"] == 502


@STREAMING
@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("kind", list(SILENT))
async def test_only_text_extends_the_time(
    serve: Serve, upstream: FakeUpstream, kind: str, stream: bool, begins: bool
) -> None:
    def say(body: dict[str, Any]) -> Iterator[Any]:
        if begins:
            yield piece(body, "well")
        while True:
            yield SILENT[kind](body)
            yield 0.01

    upstream.script = say
    client = await in_front_of(serve, upstream, upstream_timeout=0.2)
    failure = await failure_of(client, CHATS, ASKS[CHATS], stream)
    assert "did not answer in time" in failure["message"]


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_an_answer_that_does_not_begin_ends_the_request(serve: Serve, sent: bytes) -> None:
    async def say_little(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if (await reader.readline()).startswith(b"GET"):
                writer.write(b"HTTP/1.1 404 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            else:
                while not writer.is_closing():
                    writer.write(sent)
                    await writer.drain()
                    await asyncio.sleep(0.01)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(say_little, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        engine = OpenAIEngine(url, options=UpstreamOptions(upstream_timeout=0.2))
        client = await serve(engine, names=[])
        failure = await failure_of(client, CHATS, ASKS[CHATS], False)
        assert failure["status"] == 504


AFTER: dict[str, Any] = {
    "text": lambda body: itertools.repeat(many(piece(body, " after"))),
    "usage": lambda body: itertools.repeat(many(SILENT["usage"](body))),
    "comments": lambda body: itertools.repeat(b": hi\n" * 1000),
    "one line": lambda body: itertools.repeat(b"x" * 10_000),
    "nothing": lambda body: ["hang"],
    "drops": lambda body: itertools.cycle([b": hi\n", 0.01]),
}


@ENDPOINTS
@STREAMING
@pytest.mark.parametrize("kind", list(AFTER))
async def test_a_finished_answer_ends_whatever_follows(
    serve: Serve, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, path: str, stream: bool, kind: str
) -> None:
    """The client gets the text and the finish reason, without an error."""
    if kind in ("nothing", "drops"):
        monkeypatch.setattr(limits, "_AFTER_FINISH", 0.1)

    def say(body: dict[str, Any]) -> Iterator[Any]:
        yield piece(body, "one")
        yield piece(body, " two", "stop")
        yield from AFTER[kind](body)

    upstream.script = say
    client = await in_front_of(serve, upstream)
    if stream:
        events = (await client.stream(path, ASKS[path])).events
        assert events[-1] == (None, "[DONE]")
        assert "error" not in [name for name, _ in events]
        got = str(events)
    else:
        status, answer, _ = await client.post(path, ASKS[path])
        assert status == 200
        assert "one two" in str(answer)
        got = str(answer)
    assert "two" in got
    assert "after" not in got
