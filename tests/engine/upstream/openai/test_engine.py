"""The upstream backend over a real socket: what it says, what it makes of failures, and that it hangs up."""

import asyncio
import base64
import gzip
import logging
import traceback
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiohttp import web
from multidict import CIMultiDict

from engine.protocol import (
    Delta,
    EngineError,
    GenerationRequest,
    QueueFullError,
    RequestError,
    SamplingParams,
    Usage,
)
from engine.protocol.deltas import join
from engine.upstream import answer as upstream_answer
from engine.upstream import engine as upstream_engine
from engine.upstream.limits import LONG_TEXT, UpstreamOptions
from engine.upstream.openai.engine import OpenAIEngine
from tests.helpers import options_with, until

CHAT = GenerationRequest(
    request_id="r", model="m", endpoint="chat", messages=({"role": "user", "content": "Hi"},)
)
DONE = b"data: [DONE]\n\n"
USAGE = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


@asynccontextmanager
async def started(url: str, **settings: Any) -> AsyncIterator[OpenAIEngine]:
    names = {*UpstreamOptions.model_fields, *UpstreamOptions.__class_vars__}
    given = {name: settings.pop(name) for name in names & settings.keys()}
    engine = OpenAIEngine(url, options=options_with(UpstreamOptions, **given), **settings)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.aclose()


async def collect(engine: OpenAIEngine, request: GenerationRequest = CHAT) -> list[Delta]:
    async with aclosing(engine.generate(request)) as stream:
        return [delta async for delta in stream]


async def ask(upstream: Any, *frames: Any, request: GenerationRequest = CHAT, **settings: Any) -> list[Delta]:
    upstream.script = lambda body: frames
    async with started(upstream.url, **settings) as engine:
        return await collect(engine, request)


async def test_asks_for_a_stream_with_usage(upstream: Any) -> None:
    async with started(upstream.url, api_key="sesame", model="theirs") as engine:
        await collect(engine)
    assert upstream.bodies == [
        {
            "model": "theirs",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]
    assert upstream.headers[0]["Authorization"] == "Bearer sesame"


async def test_the_responses_endpoint_asks_for_a_chat(upstream: Any) -> None:
    upstream.script = lambda body: [chunk("a", "stop"), DONE]
    chat, responses = (GenerationRequest(**{**_fields(CHAT), "endpoint": e}) for e in ("chat", "responses"))
    async with started(upstream.url) as engine:
        assert await collect(engine, chat) == await collect(engine, responses)
    assert upstream.bodies[0] == upstream.bodies[1]


async def test_a_base_url_with_a_path_is_taken_as_it_is(upstream: Any) -> None:
    for url in (upstream.url, upstream.url + "/", upstream.url + "/v1/"):
        async with started(url) as engine:
            assert await collect(engine)
    async with started(upstream.url + "/other") as engine:
        with pytest.raises(RequestError):
            await collect(engine)
    with pytest.raises(ValueError, match="not an http"):
        OpenAIEngine("localhost:8000")


async def test_learns_the_longest_context(upstream: Any) -> None:
    upstream.models = [{"id": "a", "max_model_len": 10}, {"id": "b", "max_model_len": 20}]
    for model, length in ((None, 10), ("b", 20), ("c", None)):
        async with started(upstream.url, model=model) as engine:
            assert engine.info.max_model_len == length


async def test_usage_comes_with_the_end(upstream: Any) -> None:
    deltas = await ask(upstream, chunk("a"), chunk("b"), chunk("", "stop"), USAGE, DONE)
    assert "".join(d.text for d in deltas) == "ab"
    assert [d.finish_reason for d in deltas] == [None] * (len(deltas) - 1) + ["stop"]
    assert deltas[-1].usage == Usage(1, 2)


async def test_done_and_usage_may_lack(upstream: Any) -> None:
    deltas = await ask(upstream, chunk("a"), chunk("b", "stop"))
    assert (deltas[-1].finish_reason, deltas[-1].usage) == ("stop", Usage(0, 2))


async def test_deltas_come_as_they_are_sent(upstream: Any) -> None:
    upstream.script = lambda body: [chunk("a"), "hang"]
    async with started(upstream.url) as engine, aclosing(engine.generate(CHAT)) as stream:
        assert (await anext(stream)).text == "a"


async def test_events_that_come_together_are_joined(upstream: Any) -> None:
    """Hooks are called once for them, and the client gets one event."""
    together = b"".join(map(_event, (chunk("a"), chunk("b"), chunk("c"))))
    deltas = await ask(upstream, together, 0.0, chunk("", "stop"), DONE)
    assert [delta.text for delta in deltas] == ["abc", ""]
    assert deltas[0].usage == Usage(0, 3)


async def test_text_before_an_error_in_the_same_read_comes_first(upstream: Any) -> None:
    together = b"".join(map(_event, (chunk("a"), {"error": {"message": "no", "code": 400}}, chunk("b"))))
    upstream.script = lambda body: [together, DONE]
    texts: list[str] = []
    async with started(upstream.url) as engine, aclosing(engine.generate(CHAT)) as stream:
        with pytest.raises(EngineError):
            async for delta in stream:
                texts.append(delta.text)
    assert texts == ["a"]


async def test_others_get_their_turn_while_a_burst_is_read(upstream: Any) -> None:
    """A reader that never waits itself must not keep the event loop from others."""
    burst = b"".join(_event(chunk("a")) for _ in range(1000))
    upstream.script = lambda body: [burst, chunk("", "stop"), DONE]
    turns: list[int] = []
    longest = length = 0

    async def take_turns() -> None:
        while True:
            turns.append(length)
            await asyncio.sleep(0)

    async with started(upstream.url) as engine, aclosing(engine.generate(CHAT)) as stream:
        other = asyncio.get_running_loop().create_task(take_turns())
        async for delta in stream:
            length += len(delta.text)
            longest = max(longest, length - turns[-1] if turns else 0)
        other.cancel()
    assert length == 1000
    assert longest <= 2 * upstream_answer._BURST


async def test_others_get_their_turn_while_a_long_text_is_read(upstream: Any) -> None:
    """A guard may take long for a text that comes at once."""
    upstream.script = lambda body: [chunk("a" * 50_000), chunk("", "stop"), DONE]
    turns: list[int] = []
    length = most = 0

    async def take_turns() -> None:
        while True:
            turns.append(length)
            await asyncio.sleep(0)

    async with started(upstream.url) as engine, aclosing(engine.generate(CHAT)) as stream:
        other = asyncio.get_running_loop().create_task(take_turns())
        async for delta in stream:
            length += len(delta.text)
            most = max(most, length - turns[-1] if turns else 0)
        other.cancel()
    assert length == 50_000
    assert most <= 2 * LONG_TEXT


async def test_minus_infinity_is_read(upstream: Any) -> None:
    data = b"""data: {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop",
data: "logprobs": {"content": [{"token": "a", "logprob": -Infinity}]}}]}\n\n"""
    request = GenerationRequest(**{**_fields(CHAT), "sampling": SamplingParams(logprobs=0)})
    deltas = await ask(upstream, data, DONE, request=request)
    assert deltas[0].tokens[0].logprob == -9999.0


def _fields(request: GenerationRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in ("request_id", "model", "endpoint", "messages")}


async def test_closing_hangs_up_at_once(upstream: Any) -> None:
    upstream.script = lambda body: [chunk("a"), "hang"]
    async with started(upstream.url) as engine:
        async with aclosing(engine.generate(CHAT)) as stream:
            await anext(stream)
            assert not upstream.has_lost_client.is_set()
        await upstream.has_lost_client.wait()
        assert engine.stats().aborted_total == 1


async def test_cancelling_before_the_first_byte_hangs_up(upstream: Any) -> None:
    upstream.script = lambda body: ["hang"]
    async with started(upstream.url) as engine:
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(collect(engine))
            await until(lambda: upstream.bodies)
            reader.cancel()
        await upstream.has_lost_client.wait()


async def test_connections_are_used_again(upstream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_DRAIN", "_KEEPALIVE"):  # a slow machine must not exceed them
        monkeypatch.setattr(upstream_engine, limit, 600.0)
    async with started(upstream.url) as engine:
        for _ in range(5):
            await collect(engine)
    assert len(upstream.connections) == 1


@pytest.mark.parametrize("status", [400, 404, 413, 422])
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no such role", "param": "messages", "code": "bad_role"}},
        {"object": "error", "message": "no such role", "param": "messages", "code": "bad_role"},
    ],
)
async def test_the_callers_fault_keeps_the_upstreams_words(
    upstream: Any, status: int, body: dict[str, Any]
) -> None:
    upstream.script = lambda _: web.json_response(body, status=status)
    async with started(upstream.url) as engine:
        with pytest.raises(RequestError, match="no such role") as error:
            await collect(engine)
    assert (error.value.status, error.value.param, error.value.code) == (status, "messages", "bad_role")


@pytest.mark.parametrize(
    ("theirs", "ours", "word"),
    [
        (401, 502, "credentials"),
        (403, 502, "credentials"),
        (500, 502, "failed"),
        (503, 503, "available"),
        (302, 502, "failed"),
    ],
)
async def test_the_upstreams_fault_gets_general_words(
    upstream: Any, caplog: pytest.LogCaptureFixture, theirs: int, ours: int, word: str
) -> None:
    error = {"message": "inner secret", "type": "secret_type"}
    upstream.script = lambda body: web.json_response({"error": error}, status=theirs)
    with caplog.at_level(logging.DEBUG):
        async with started(upstream.url, api_key="sesame") as engine:
            with pytest.raises(EngineError, match=word) as caught:
                await collect(engine)
    assert caught.value.status == ours
    assert "secret" not in str(caught.value)
    assert f"upstream answered {theirs}" in caplog.text
    assert "secret" not in caplog.text
    assert "sesame" not in caplog.text


@pytest.mark.parametrize("page", ["<html>secret", "{}"])
async def test_an_answer_that_is_none_is_in_the_log(
    upstream: Any, caplog: pytest.LogCaptureFixture, page: str
) -> None:
    upstream.script = lambda body: web.Response(text=page, content_type="text/html")
    async with started(upstream.url) as engine:
        with pytest.raises(EngineError, match="broke off"):
            await collect(engine)
    assert "upstream's answer broke off, or is no answer of this API" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
async def test_no_log_has_an_upstreams_words(
    upstream: Any, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    words = {"error": {"message": "hunter2", "type": "hunter2", "param": "hunter2", "code": "hunter2"}}
    headers = [
        ("Set-Cookie", "hunter2[]=hunter2"),
        ("Set-Cookie", "a=hunter2; Domain=hunter2"),
        ("X-A", "hunter2"),
    ]
    data = b"data: %b\n\n" % orjson.dumps(words) if status == 200 else orjson.dumps(words)
    upstream.script = lambda body: web.Response(
        body=data, status=status, reason="hunter2", headers=CIMultiDict(headers)
    )
    with caplog.at_level(logging.DEBUG):
        async with started(upstream.url) as engine:
            for _ in range(2):
                with pytest.raises((EngineError, RequestError)):
                    await collect(engine)
    assert "hunter2" not in caplog.text
    assert "Cookie" not in upstream.headers[-1]


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("piece", [b"data: hunter2", b"data: hunter2\n"], ids=["one line", "many lines"])
async def test_an_event_that_does_not_end_is_not_kept(
    upstream: Any, caplog: pytest.LogCaptureFixture, has_begun: bool, piece: bytes
) -> None:
    endless = [*([chunk("a")] if has_begun else []), *[piece * 100] * 100, "hang"]
    upstream.script = lambda body: endless
    async with started(upstream.url, max_upstream_event=50_000) as engine:
        with pytest.raises(EngineError, match="sent an event that is too long") as caught:
            await collect(engine)
    assert caught.value.status == 502
    assert "an event of more than 50000 bytes" in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_stream_that_begins_with_a_refusal_says_the_models_limit(upstream: Any) -> None:
    """SGLang finds out inside the stream that a prompt is too long."""
    message = "hunter2: The input (9 tokens) is longer than the model's context length (8 tokens)."
    error = {"error": {"message": message, "type": "BadRequestError", "code": 400}}
    with pytest.raises(RequestError, match="maximum context length is 8 tokens") as refused:
        await ask(upstream, error)
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")
    assert "hunter2" not in str(refused.value)


async def test_a_refusal_can_be_told_without_the_upstreams_words(upstream: Any) -> None:
    for param, known in (("messages[0].hunter2", "messages"), ("hunter2", None)):
        error = {"message": "cannot parse hunter2", "param": param, "code": "hunter2"}
        upstream.script = lambda _, error=error: web.json_response({"error": error}, status=422)
        async with started(upstream.url) as engine:
            with pytest.raises(RequestError, match="hunter2") as caught:
                await collect(engine)
        unquoted = caught.value.unquoted
        assert unquoted is not None
        assert "hunter2" not in str(unquoted)
        assert (unquoted.status, unquoted.param, unquoted.code) == (422, known, None)


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate"])
async def test_a_compressed_answer_is_read(upstream: Any, encoding: str) -> None:
    """Though it was asked not to, an upstream may compress, and a front of its may as well."""

    def packed(data: bytes, status: int = 200) -> web.Response:
        packs: dict[str, Callable[[bytes], bytes]] = {
            "identity": bytes,
            "gzip": gzip.compress,
            "deflate": zlib.compress,
        }
        headers = {"Content-Encoding": encoding, "Content-Type": "text/event-stream"}
        return web.Response(body=packs[encoding](data), status=status, headers=headers)

    events = b"".join(map(_event, [*(chunk("word ") for _ in range(2000)), chunk("", "stop")]))
    async with started(upstream.url) as engine:
        upstream.script = lambda body: packed(events + DONE)
        assert "".join(delta.text for delta in await collect(engine)) == "word " * 2000
        upstream.script = lambda body: packed(b'{"error": {"message": "too long"}}', 400)
        with pytest.raises(RequestError, match="too long"):
            await collect(engine)


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "gzip"])
async def test_a_body_that_cannot_be_decompressed_is_no_answer(
    upstream: Any, status: int, encoding: str
) -> None:
    headers = {"Content-Encoding": encoding}
    upstream.script = lambda body: web.Response(body=b"hunter2" * 9, status=status, headers=headers)
    async with started(upstream.url) as engine:
        with pytest.raises((EngineError, RequestError)) as caught:
            await collect(engine)
    assert "hunter2" not in str(caught.value)
    assert getattr(caught.value, "status", None) == (400 if status == 400 else 502)


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_a_body_that_grows_when_decompressed_takes_no_memory(upstream: Any, status: int) -> None:
    bomb = gzip.compress(bytes(256 * 1024 * 1024), compresslevel=1)
    headers = {"Content-Encoding": "gzip"}
    upstream.script = lambda body: web.Response(body=bomb, status=status, headers=headers)
    async with started(upstream.url) as engine:
        tracemalloc.start()
        try:
            with pytest.raises((EngineError, RequestError)):
                await collect(engine)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 24 * 1024 * 1024


async def test_an_error_without_an_end_ends(upstream: Any) -> None:
    class Endless(web.Response):
        async def write_eof(self, data: bytes = b"") -> None:
            while True:
                await self.write(b"x" * 65536)

    upstream.script = lambda body: Endless(status=400, headers={"Content-Length": str(2**40)})
    async with started(upstream.url) as engine:
        with pytest.raises(RequestError, match="refused the request"):
            await collect(engine)


async def test_a_password_in_the_url_becomes_a_header(
    upstream: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with started(upstream.url.replace("//", "//me:hunter%402@")) as engine:
            await collect(engine)
        assert upstream.headers[-1]["Authorization"] == "Basic " + base64.b64encode(b"me:hunter@2").decode()
        async with started("http://me:hunter2@127.0.0.1:1") as engine:
            with pytest.raises(EngineError) as caught:
                await collect(engine)
    assert "cannot be reached" in caplog.text
    assert "hunter" not in caplog.text + str(caught.value) + engine.url


@pytest.mark.parametrize(
    "url",
    [
        "ftp://me:hunter2@host",
        "http://me:hunter2@[::1",
        "me:hunter2@host",
        "http://me:hunter2@ho\uff0fst",
        "http://host/v1?api_key=hunter2",
        "http://host/v1#hunter2",
        "http://me:hunter2/x@host",
        "http://me:4111/hunter2@host",
        "http://host:hunter2/v1",
    ],
)
def test_an_error_of_the_url_does_not_quote_it(url: str) -> None:
    with pytest.raises(ValueError, match="upstream") as caught:
        OpenAIEngine(url)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_password_with_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="one of them"):
        OpenAIEngine("http://me:hunter2@host", api_key="key")


@pytest.mark.parametrize("length", [-1, 0, True, 2**70, "9", 1.5])
async def test_a_longest_context_that_makes_no_sense_is_not_known(upstream: Any, length: Any) -> None:
    upstream.models = [{"id": "a", "max_model_len": length}]
    async with started(upstream.url) as engine:
        assert (engine.info.max_model_len, engine.info.names) == (None, ("a",))


async def test_a_full_queue_is_passed_on(upstream: Any) -> None:
    upstream.script = lambda body: web.json_response({"error": {"message": "slow down"}}, status=429)
    async with started(upstream.url) as engine:
        with pytest.raises(QueueFullError, match="slow down"):
            await collect(engine)


async def test_an_error_that_is_no_json(upstream: Any) -> None:
    upstream.script = lambda body: web.Response(status=400, text="<html>")
    async with started(upstream.url) as engine:
        with pytest.raises(RequestError, match="refused the request"):
            await collect(engine)


@pytest.mark.parametrize(
    "frames",
    [
        [{"error": {"message": "secret"}}],
        [chunk("a"), {"error": {"message": "secret", "code": 400}}],
        [chunk("a"), b'event: error\ndata: {"message": "secret"}\n\n'],
        [chunk("a"), "cut"],
        [chunk("a")],
        [chunk("a"), b"data: {\n\n"],
        [chunk("a"), b"data: []\n\n"],
        [chunk("a"), b'data: {"choices": [{"index": 0, "delta": {"content": "\\ud83d"}}]}\n\n'],
        [b'data: {"choices": [{"index": 0, "delta": 5}]}\n\n'],
        [b'data: {"choices": 5}\n\n'],
        [],
        [DONE],
    ],
    ids=repr,
)
async def test_what_breaks_inside_a_stream_is_the_upstreams_fault(upstream: Any, frames: list[Any]) -> None:
    with pytest.raises(EngineError) as error:
        await ask(upstream, *frames)
    assert error.value.status == 502
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "event", [b"data:\n\n", b"data: \n\n", b"data: null\n\n", b"event: ping\ndata: {}\n\n"]
)
async def test_an_event_that_says_nothing_is_no_fault(upstream: Any, event: bytes) -> None:
    deltas = await ask(upstream, event, chunk("a"), event, chunk("b", "stop"), event, DONE)
    assert join(deltas)[0].text == "ab"


@pytest.mark.parametrize("event", [b"data: [done]\n\n", b"data: bye\n\n", b"data: []\n\n"])
async def test_what_follows_the_finish_is_no_fault(upstream: Any, event: bytes) -> None:
    deltas = await ask(upstream, chunk("a", "stop"), event, USAGE)
    assert (join(deltas)[0].text, deltas[-1].finish_reason) == ("a", "stop")
    assert deltas[-1].usage == Usage(1, 2)


async def test_the_callers_fault_may_come_inside_the_stream(upstream: Any) -> None:
    """In general words: inside a stream, an upstream's own may quote what its model said."""
    with pytest.raises(RequestError) as caught:
        await ask(upstream, {"error": {"message": "cannot parse hunter2", "param": "messages", "code": 400}})
    assert (caught.value.status, caught.value.param) == (400, "messages")
    assert "hunter2" not in str(caught.value)


async def test_silence_is_not_waited_for_forever(upstream: Any) -> None:
    for frames in (["hang"], [chunk("a"), "hang"]):
        with pytest.raises(EngineError) as error:
            await ask(upstream, *frames, upstream_timeout=0.1)
        assert error.value.status == 504


async def test_an_upstream_that_is_down(unused_tcp_port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with started(f"http://127.0.0.1:{unused_tcp_port}") as engine:
        assert "cannot be reached" in caplog.text
        with pytest.raises(EngineError) as error:
            await collect(engine)
        assert error.value.status == 503
        with pytest.raises(EngineError) as error:
            engine.check_health()
        assert error.value.status == 503


async def test_health_comes_back_with_an_answer(upstream: Any) -> None:
    async with started(upstream.url) as engine:
        engine.health.failed()
        with pytest.raises(EngineError):
            engine.check_health()
        await collect(engine)
        engine.check_health()


async def test_before_start_nothing_is_asked(upstream: Any) -> None:
    with pytest.raises(EngineError) as error:
        await collect(OpenAIEngine(upstream.url))
    assert error.value.status == 503


async def test_any_cut_of_the_bytes_reads_the_same(upstream: Any) -> None:
    whole: list[Any] = [*map(_event, (chunk("é"), chunk("b"), chunk("", "stop"), USAGE)), DONE]
    data = b"".join(whole)
    expected = await ask(upstream, *whole)

    def pieces(size: int) -> list[Any]:
        return [frame for i in range(0, len(data), size) for frame in (data[i : i + size], 0.0)]

    for size in (1, 7, 100):
        assert join(await ask(upstream, *pieces(size))) == join(expected)


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\r\n\r\n"


async def test_what_the_caller_gave_is_said_even_if_it_is_our_default(upstream: Any) -> None:
    request = replace(CHAT, given=frozenset({"model", "messages", "temperature", "stop"}))
    await ask(upstream, chunk("a", "stop"), DONE, request=request)
    assert upstream.bodies[-1]["temperature"] == 1.0
    assert upstream.bodies[-1]["stop"] == []
    assert "top_p" not in upstream.bodies[-1]
