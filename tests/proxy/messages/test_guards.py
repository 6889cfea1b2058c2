"""Hooks' promises over the Messages API: verdicts, failures, nothing forbidden on any channel."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import leaks_messages
from engine.protocol import Delta
from hooks import Chunk, Verdict, emit, hold, rewind, suppress, terminate
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import Serve
from tests.proxy.messages.conftest import ASK, PATH, TOOL, both, call, calling, saying

CHANNELS = ["content", "reasoning", "tool_call"]


@given(seed=st.integers(0, 2**32))
async def test_nothing_of_a_forbidden_span_gets_out(seed: int) -> None:
    await leaks_messages.run(5, seed)


def on(channel: str) -> ScriptedEngine:
    """Says a word that guards look for, on this channel."""
    if channel == "tool_call":
        return calling(call('{"a": "well '), call("hunter2"), call(' more"}'))
    return ScriptedEngine(lambda r: [*make_deltas(["well ", "hunter2", " more"], channel=channel)])


@pytest.mark.parametrize("channel", CHANNELS)
async def test_terminate_cancels_the_engine_on_every_channel(serve: Serve, channel: str) -> None:
    """Contract 3.3."""

    def guard(chunk: Chunk) -> Verdict:
        return terminate("no_secrets") if "hunter2" in chunk.text else emit(chunk.pending)

    engine = on(channel)
    client = await serve(engine, Script(guard))
    message = await both(client, tools=[TOOL])
    assert message["stop_details"]["explanation"] == "no_secrets"
    assert "hunter2" not in str(message)
    assert (engine.running, engine.aborted) == (0, 2)


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_hook_that_fails_ends_the_request(serve: Serve, channel: str, at_once: bool) -> None:
    """Contract 4.1, 4.2: a status before the first event, an error event after it."""

    def guard(chunk: Chunk) -> Verdict:
        if chunk.request.model == "m" and ("hunter2" in chunk.text or at_once):
            raise ValueError(chunk.text)
        return emit(chunk.pending)

    engine = on(channel)
    client = await serve(engine, Script(guard))
    status, body, _ = await client.post(PATH, {**ASK, "tools": [TOOL]})
    assert (status, body["error"]["type"]) == (500, "api_error")
    stream = await client.stream(PATH, {**ASK, "tools": [TOOL]})
    if at_once:
        assert stream.status == 500
    else:
        assert [name for name, _ in stream.events].count("error") == 1
        assert stream.events[-1][0] == "error"
    assert not any(word in f"{body}{stream.events}" for word in ("hunter2", "ValueError"))
    assert (engine.running, engine.aborted) == (0, 2)


@pytest.mark.parametrize("channel", CHANNELS[:2])
async def test_streamed_and_whole_answers_are_the_same(serve: Serve, channel: str) -> None:
    """Contract 2.5; `both` compares."""

    def guard(chunk: Chunk) -> Verdict:
        if chunk.is_final:
            return emit(chunk.pending)
        return suppress() if "hunter2" in chunk.text_diff else hold(min(3, len(chunk.pending)))

    message = await both(await serve(on(channel), Script(guard)))
    assert "hunter2" not in str(message)


async def test_a_rewind_that_an_engine_cannot_do_is_a_refusal(serve: Serve) -> None:  # contract 8.3
    class Rewinds:
        may_rewind = True

        def __call__(self, chunk: Chunk) -> Verdict:
            return rewind("bad") if "bad" in chunk.pending else emit(chunk.pending)

    message = await both(await serve(saying("So ", "bad"), Rewinds()))
    assert (message["content"], message["stop_reason"]) == ([{"type": "text", "text": "So "}], "refusal")


async def test_a_hook_sees_the_conversation_as_a_chat(serve: Serve) -> None:
    """Contract 8.1: the same prompt as on the other endpoints."""
    seen: list[Any] = []

    def look(chunk: Chunk) -> Verdict:
        seen.append((chunk.request.endpoint, [m["role"] for m in chunk.request.messages], chunk.request.user))
        return emit(chunk.pending)

    engine = ScriptedEngine(lambda r: [*make_deltas(["Hi"], finish=False), Delta(finish_reason="stop")])
    client = await serve(engine, Script(look))
    await client.post(PATH, {**ASK, "system": "Be brief.", "metadata": {"user_id": "u"}})
    assert seen[-1] == ("messages", ["system", "user"], "u")


async def test_the_text_that_an_answer_goes_on_from_is_the_lead(serve: Serve) -> None:  # contract 2.8
    leads: list[str] = []

    def look(chunk: Chunk) -> Verdict:
        leads.append(chunk.lead)
        return emit(chunk.pending)

    client = await serve(saying("upon"), Script(look))
    await client.post(
        PATH, {**ASK, "messages": [*ASK["messages"], {"role": "assistant", "content": "Once "}]}
    )
    assert leads[-1] == "Once "
