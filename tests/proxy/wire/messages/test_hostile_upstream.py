"""Whatever events a server of the Messages API sends, no client gets text that a guard withholds."""

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, EngineError, GenerationRequest, RequestError
from engine.upstream.limits import UpstreamOptions
from engine.upstream.messages.engine import MessagesEngine
from engine.upstream.messages.stream import StreamTranslator
from hooks import Chunk, Verdict, emit, terminate
from proxy.wire.messages.answer import MessagesAnswer
from proxy.wire.messages.fields import MessagesRequest
from proxy.wire.openai.answer import Answer
from proxy.wire.openai.chat import ChatAnswer, ChatRequest
from proxy.wire.openai.response_answer import ResponsesAnswer
from proxy.wire.openai.responses import ResponsesRequest
from tests.engine.upstream.conftest import FakeUpstream
from tests.engine.upstream.conftest import upstream as _upstream
from tests.engine.upstream.messages.asked import (
    STOP,
    Event,
    answer,
    block,
    changed,
    places,
    signature,
    start,
    stop,
)
from tests.helpers import Script, examples, guard_all, pipeline_of
from tests.proxy.conftest import CHAT, Serve
from tests.proxy.wire.messages.conftest import ASK, PATH, TOOL

upstream = _upstream
SECRET = "hunter2"
EVENTS: list[Event] = answer(
    [start(0, "thinking"), *block(0, "thinking", "a")[1:-1], signature(0, "b"), stop(0)],
    block(1, "text", "c", "d"),
    block(2, "tool_use", '{"a":', "1}"),
    [start(3, "redacted_thinking", data="e"), stop(3)],
    reason="stop_sequence",
    stop_sequence="f",
    stop_details={"type": "refusal", "explanation": "g"},
)
ORDERS = st.permutations(range(len(EVENTS))) | st.lists(st.integers(0, len(EVENTS) - 1))


def guard(chunk: Chunk) -> Verdict:
    return terminate("found") if SECRET in f"{chunk.tool_name} {chunk.text}" else emit(chunk.pending)


def answers() -> list[tuple[Answer, GenerationRequest]]:
    chat = ChatRequest.model_validate({**CHAT, "stream": True})
    message = MessagesRequest.model_validate({**ASK, "stream": True, "tools": [TOOL]})
    response = ResponsesRequest.model_validate({"model": "m", "input": "Hi", "stream": True})
    asked = [
        chat.to_request("r", "m"),
        message.to_request("r", "m"),
        response.to_request("r", "m", response.input),
    ]
    made = (
        ChatAnswer(chat, asked[0]),
        MessagesAnswer(message, asked[1]),
        ResponsesAnswer(response, asked[2]),
    )
    return list(zip(made, asked, strict=True))


def translated(events: list[Any], request: GenerationRequest) -> list[Delta]:
    """What a client's request gets of these events, up to the first that makes no sense."""
    translator = StreamTranslator(request, UpstreamOptions())
    deltas: list[Delta] = []
    with contextlib.suppress(EngineError, RequestError), MessagesEngine("http://127.0.0.1:1").engine_errors():
        for event in events:
            if event != STOP:
                deltas += translator.feed(event)
        deltas += translator.finish(complete=STOP in events)
    return deltas


@given(st.lists(st.sampled_from(places(EVENTS)[1:]), max_size=3), st.none() | ORDERS)
@examples(100)
def test_no_client_gets_text_that_a_guard_withholds(
    secrets: list[tuple[Any, ...]], order: list[int] | None
) -> None:
    """A secret stands anywhere in the events, which may be repeated, lost or in another order."""
    events: list[Any] = EVENTS
    for place in secrets:
        with contextlib.suppress(LookupError, TypeError, ValueError):  # a place in what is a secret already
            events = changed(events, place, SECRET)
    events = events if order is None else [events[i] for i in order]
    for made, request in answers():
        released = asyncio.run(guard_all(pipeline_of(Script(guard)), translated(events, request), request))
        sent = b"".join([made.chunk(delta) for delta in released])
        assert SECRET.encode() not in sent


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("lost", range(len(EVENTS)))
async def test_a_client_gets_an_end_whichever_event_is_lost(
    serve: Serve, upstream: FakeUpstream, lost: int, stream: bool
) -> None:
    upstream.script = lambda body: [event for i, event in enumerate(EVENTS) if i != lost]
    client = await serve(MessagesEngine(upstream.url), Script(lambda c: emit(c.pending)), names=[])
    asked = {**ASK, "tools": [TOOL]}
    if not stream:
        status, body, _ = await client.post(PATH, asked)
        assert status in (500, 502) or body["stop_reason"]
        return
    got = await client.stream(PATH, asked)
    kinds = [name for name, _ in got.events]
    assert got.status in (500, 502) or kinds[-1] in ("message_stop", "error")
