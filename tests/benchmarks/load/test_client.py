"""One request, from its first byte to its end or its failure."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.client import AnswerReader, Client, RequestFailed, RequestRecord
from tests.benchmarks.load.conftest import DONE, Scripted, chat_frames, frame, hello, stream


class TickingClock:
    """Its time grows by one at each call."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 1.0
        return self.time


async def ask(url: str, *, limit: float = 60.0, body: bytes = b"{}") -> RequestRecord:
    record = RequestRecord(sent=0.0)
    async with Client(url + "/chat/completions", api_key="key", timeout=limit) as client:
        await client.send(body, record, TickingClock())
    return record


def read(frames: Iterable[bytes]) -> RequestRecord:
    """The record of a stream whose frames arrive one second apart."""
    record = RequestRecord(sent=0.0)
    reader = AnswerReader(record)
    now = 0.0
    for now, data in enumerate(frames, 1):
        reader.feed(data, now)
    record.ended = now
    reader.close(now)
    return record


def test_only_chunks_with_text_count() -> None:
    record = read(chat_frames(["a", "", "b", "c"], num_tokens=9))
    # The role arrived at 1, "a" at 2, an empty text at 3; finish, usage and end arrived after 5.
    assert list(record.times) == [2.0, 4.0, 5.0]
    assert (record.ttft, record.gaps, record.e2el) == (2.0, [2.0, 1.0], 8.0)
    assert (record.num_tokens, record.finish_reason) == (9, "stop")
    assert record.tpot == pytest.approx(3 / 8)


def test_without_usage_each_chunk_with_text_is_a_token() -> None:
    assert read(chat_frames(["a", "b"])).num_tokens == 2
    assert read(chat_frames(["a"])).tpot is None


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
    ],
)
def test_reasoning_and_tool_calls_are_text_too(delta: dict[str, Any]) -> None:
    assert len(read([frame({"choices": [{"index": 0, "delta": delta}]}), DONE]).times) == 1


def test_the_text_of_a_completion_counts() -> None:
    texts = ["a", "", "b"]
    frames = [frame({"choices": [{"index": 0, "text": text, "finish_reason": None}]}) for text in texts]
    assert list(read([*frames, DONE]).times) == [1.0, 3.0]


@given(st.data())
def test_counts_do_not_depend_on_where_a_stream_is_cut(data: st.DataObject) -> None:
    whole = b": a comment\r\n\r\n" + b"".join(chat_frames(["Grüße", "b", "c"], num_tokens=4))
    places = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    record = read(whole[start:end] for start, end in zip([0, *places], [*places, len(whole)], strict=True))
    assert (len(record.times), record.num_tokens, record.finish_reason) == (3, 4, "stop")
    assert sum(record.gaps) == record.times[-1] - record.times[0]


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (chat_frames(["a"], finish=None)[:-1], "cut short"),
        (chat_frames([]), "no text"),
        ([frame({"error": {"message": "The engine has failed."}}), DONE], "error event"),
        ([b"data: {\n\n", DONE], "not understood"),
        ([b"data: []\n\n", DONE], "not understood"),
        ([b'data: {"choices": null}\n\n', DONE], "not understood"),
    ],
)
def test_a_stream_that_is_no_answer_is_a_failure(frames: list[bytes], kind: str) -> None:
    with pytest.raises(RequestFailed) as failed:
        read(frames)
    assert failed.value.failure.kind == kind


async def test_an_answer_over_a_socket_is_measured(scripted: Scripted) -> None:
    server = await scripted(hello)
    record = await ask(server.url, body=b'{"model": "m"}')
    assert record.failure is None
    assert (len(record.times), record.num_tokens) == (3, 6)
    assert 0 < record.ttft <= record.times[-1] <= record.ended
    assert server.bodies == [{"model": "m"}]
    assert server.headers[0]["Authorization"] == "Bearer key"


async def test_a_connection_is_used_again(scripted: Scripted) -> None:
    ports = []

    async def answer(request: web.Request, body: Any) -> web.StreamResponse:
        assert request.transport
        ports.append(request.transport.get_extra_info("peername")[1])
        return await hello(request, body)

    server = await scripted(answer)
    async with Client(server.url, api_key=None, timeout=60.0) as client:
        for _ in range(3):
            await client.send(b"{}", RequestRecord(0.0), TickingClock())
    assert len(ports) == 3
    assert len(set(ports)) == 1


async def refuse(request: web.Request, body: Any) -> web.StreamResponse:
    return web.json_response({"error": {"message": "Too many requests."}}, status=429)


async def crash(request: web.Request, body: Any) -> web.StreamResponse:
    return web.Response(status=502, text="<html>Bad gateway</html>")


async def hang_up(request: web.Request, body: Any) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(chat_frames(["a"])[1])
    assert request.transport
    request.transport.abort()
    return response


async def say_nothing(request: web.Request, body: Any) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def end_early(request: web.Request, body: Any) -> web.StreamResponse:
    return await stream(request, chat_frames(["a", "b"], finish=None)[:2])


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (refuse, "HTTP 429", "Too many requests."),
        (crash, "HTTP 502", "Bad gateway"),
        (hang_up, "connection", ""),
        (end_early, "cut short", "[DONE]"),
        (say_nothing, "timeout", "0.2 s"),
    ],
)
async def test_a_failure_has_a_kind_and_a_message(
    scripted: Scripted,
    answer: Callable[[web.Request, Any], Awaitable[web.StreamResponse]],
    kind: str,
    message: str,
) -> None:
    server = await scripted(answer)
    record = await ask(server.url, limit=0.2 if kind == "timeout" else 60.0)
    assert record.failure
    assert record.failure.kind == kind
    assert message in record.failure.message
    assert record.ended > record.sent


async def test_a_missing_server_is_a_failure(scripted: Scripted, unused_tcp_port: int) -> None:
    record = await ask(f"http://127.0.0.1:{unused_tcp_port}/v1")
    assert record.failure
    assert record.failure.kind == "connection"
