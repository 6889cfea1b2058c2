"""The Messages API over a real socket: headers, failures, and bytes that come cut."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, EngineError, GenerationRequest, QueueFullError, RequestError
from engine.upstream.limits import UpstreamOptions
from engine.upstream.messages.engine import MessagesEngine
from engine.upstream.messages.options import MessagesOptions
from engine.upstream.messages.stream import StreamTranslator
from engine.upstream.sse import SSEDecoder
from tests.engine.upstream.conftest import event_of
from tests.engine.upstream.messages.asked import (
    STOP,
    Event,
    answer,
    begin,
    block,
    end,
    piece,
    signature,
    start,
    stop,
)
from tests.engine.upstream.openai.asked import HI, chat
from tests.helpers import options_with


@asynccontextmanager
async def started(url: str, **settings: Any) -> AsyncIterator[MessagesEngine]:
    engine = MessagesEngine(url, **settings)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.aclose()


async def ask(upstream: Any, *frames: Any, request: GenerationRequest | None = None) -> list[Delta]:
    upstream.script = lambda body: frames
    async with started(upstream.url) as engine, aclosing(engine.generate(request or chat())) as stream:
        return [delta async for delta in stream]


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


async def test_the_key_and_the_version_are_headers(upstream: Any) -> None:
    upstream.script = lambda body: answer(block(0, "text", "a"))
    options = options_with(MessagesOptions, upstream_version="2026-10-21")
    async with started(upstream.url, api_key="sesame", messages=options) as engine:
        async with aclosing(engine.generate(chat())) as stream:
            assert text_of([delta async for delta in stream]) == "a"
    (headers,) = upstream.headers
    assert (headers["x-api-key"], headers["Authorization"]) == ("sesame", "Bearer sesame")
    assert headers["anthropic-version"] == "2026-10-21"


async def test_names_of_betas_are_a_header_and_no_field(upstream: Any) -> None:
    asked = chat(endpoint="messages", extra={"anthropic_beta": "one-2025-05-14, two"})
    await ask(upstream, *answer(block(0, "text", "a")), request=asked)
    (headers,) = upstream.headers
    assert headers["anthropic-beta"] == "one-2025-05-14, two"
    assert "anthropic_beta" not in upstream.bodies[-1]


@pytest.mark.parametrize("betas", ["a\r\nx-api-key: b", "é", ["a"], {"a": 1}])
async def test_betas_that_are_no_names_are_refused(upstream: Any, betas: Any) -> None:
    with pytest.raises(RequestError) as caught:
        await ask(upstream, request=chat(extra={"anthropic_beta": betas}))
    assert caught.value.param == "anthropic_beta"


def test_a_base_url_is_that_of_the_apis_clients() -> None:
    for given_url, url in (
        ("http://a", "http://a/v1"),
        ("http://a/v1/", "http://a/v1"),
        ("http://a/anthropic", "http://a/anthropic/v1"),
    ):
        assert MessagesEngine(given_url).url == url


async def test_a_list_of_some_of_the_models_names_none(upstream: Any) -> None:
    for has_more, names in ((False, ("m",)), (True, ())):
        upstream.list_fields = {"has_more": has_more}
        async with started(upstream.url) as engine:
            assert engine.info.names == names


def refusal(status: int, kind: str) -> web.Response:
    error = {"type": "error", "error": {"type": kind, "message": "This is hunter2."}}
    return web.json_response(error, status=status, headers={"Retry-After": "7"})


@pytest.mark.parametrize(
    ("status", "kind", "error", "told"),
    [
        (400, "invalid_request_error", RequestError, 400),
        (404, "not_found_error", RequestError, 404),
        (413, "request_too_large", RequestError, 413),
        (401, "authentication_error", EngineError, 502),
        (429, "rate_limit_error", QueueFullError, 429),
        (500, "api_error", EngineError, 502),
        (504, "timeout_error", EngineError, 504),
        (529, "overloaded_error", EngineError, 503),
    ],
)
async def test_an_error_is_the_callers_or_the_upstreams(
    upstream: Any, status: int, kind: str, error: Any, told: int
) -> None:
    upstream.script = lambda body: refusal(status, kind)
    async with started(upstream.url) as engine:
        with pytest.raises(error) as caught:
            await anext(engine.generate(chat()))
        assert caught.value.status == told
        if isinstance(caught.value, RequestError | QueueFullError):
            assert "hunter2" not in str(caught.value.unquoted)
        else:
            assert "hunter2" not in str(caught.value)
    # The same inside of a stream, before its first text. Then no words of the upstream's are told.
    event = {"type": "error", "error": {"type": kind, "message": "This is hunter2."}}
    with pytest.raises(error) as caught:
        await ask(upstream, begin(), event)
    assert caught.value.status == told
    assert "hunter2" not in str(caught.value)


async def test_an_error_after_the_first_text_is_the_upstreams(upstream: Any) -> None:
    event = {"type": "error", "error": {"type": "invalid_request_error", "message": "hunter2"}}
    with pytest.raises(EngineError, match="failed") as caught:
        await ask(upstream, begin(), *block(0, "text", "a"), event)
    assert caught.value.status == 502


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([begin(), *block(1, "text", "a"), end(), STOP], "sent an invalid response"),
        ([*block(0, "text", "a"), end(), STOP], "sent an invalid response"),
        ([begin(), *block(0, "text", "a"), end()], "broke off"),
        ([begin(), *block(0, "text", "a"), STOP], "broke off"),
        ([begin(), start(0, "text"), STOP], "broke off"),
        ([b"data: hunter2\n\n"], "sent an invalid response"),
        ([b'data: ["message_stop"]\n\n'], "sent an invalid response"),
        ([], "broke off"),
    ],
)
async def test_a_stream_that_breaks_the_grammar_ends_with_an_error(
    upstream: Any, frames: list[Any], told: str
) -> None:
    with pytest.raises(EngineError, match=told) as caught:
        await ask(upstream, *frames)
    assert caught.value.status == 502


async def test_nothing_is_read_after_the_last_event(upstream: Any) -> None:
    deltas = await ask(upstream, *answer(block(0, "text", "a")), *answer(block(0, "text", "hunter2")), "hang")
    assert text_of(deltas) == "a"


async def test_the_name_of_an_event_inside_of_a_text_ends_nothing(upstream: Any) -> None:
    text = '{"type": "message_stop"} "message_stop"'
    assert text_of(await ask(upstream, *answer(block(0, "text", text, "b")))) == f"{text}b"


async def test_reasoning_that_comes_back_unchanged_gets_its_signature_again(upstream: Any) -> None:
    signed = [start(0, "thinking"), piece(0, "thinking", "a"), signature(0, "theirs"), stop(0)]
    upstream.script = lambda body: answer(signed, block(1, "text", "b"))
    said = {"role": "assistant", "content": "b"}
    async with started(upstream.url) as engine:
        for reasoning in (None, "a", "***"):
            past = (*HI, {**said, "reasoning_content": reasoning}, *HI) if reasoning else HI
            async with aclosing(engine.generate(chat(messages=past))) as stream:
                assert "theirs" not in str([delta async for delta in stream])
    _, unchanged, changed = [body["messages"] for body in upstream.bodies]
    assert unchanged[1]["content"][0] == {"type": "thinking", "thinking": "a", "signature": "theirs"}
    assert [one["type"] for one in changed[1]["content"]] == ["text"]


@pytest.mark.parametrize("count", [None, -1, "7", True])
async def test_a_count_that_makes_no_sense_is_an_error(upstream: Any, count: Any) -> None:
    upstream.script = lambda body: web.json_response({"input_tokens": count})
    async with started(upstream.url) as engine:
        with pytest.raises(EngineError, match="sent an invalid response"):
            await engine.count_tokens(chat())


async def test_the_prompt_alone_is_sent_to_be_counted(upstream: Any) -> None:
    upstream.script = lambda body: web.json_response({"input_tokens": 7})
    async with started(upstream.url, model="theirs") as engine:
        assert await engine.count_tokens(chat(user="u")) == 7
    assert upstream.bodies == [
        {"model": "theirs", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    ]


WHOLE: list[Event] = answer(
    block(0, "thinking", "Lä", "ß"), block(1, "text", "so 😀"), block(2, "tool_use", '{"a":', "1}")
)
BYTES = b"".join(event_of(event) for event in WHOLE)


def read(pieces: list[bytes]) -> list[Delta]:
    """The deltas of a stream that comes in these pieces."""
    decoder, translator = SSEDecoder(), StreamTranslator(chat(), UpstreamOptions())
    deltas: list[Delta] = []
    for data in pieces:
        for event in decoder.feed(data):
            if MessagesEngine.is_last(event):
                return deltas + translator.finish(complete=True)
            deltas += translator.feed(orjson.loads(event.data))
    return deltas + translator.finish(complete=False)


@given(st.lists(st.integers(0, len(BYTES))), st.booleans())
def test_any_cut_of_the_bytes_gives_the_same_deltas(cuts: list[int], returns: bool) -> None:
    data = BYTES.replace(b"\n", b"\r\n") if returns else BYTES
    places = [0, *sorted(cuts), len(data)]
    assert read([data[a:b] for a, b in pairwise(places)]) == read([BYTES])
