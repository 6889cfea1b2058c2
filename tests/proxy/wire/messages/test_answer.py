"""Answers of the Messages API, as events and as a whole."""

import asyncio
from typing import Any

import pytest

from engine.protocol import Delta, EngineError, Usage
from hooks import Chunk, Verdict, emit, hold, redact, refuse, suppress, terminate
from tests.helpers import Script, ScriptedEngine, make_deltas, pipeline_of
from tests.proxy.conftest import Serve, read_events
from tests.proxy.wire.messages.conftest import ASK, PATH, TOOL, both, call, calling, folded, saying, thinking


async def test_a_message_has_every_field(serve: Serve) -> None:
    message = await both(await serve(saying("Hel", "lo")))
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "stop_details": None,
        "usage": {
            "input_tokens": 2,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 1,
            "output_tokens": 2,
        },
    }


@pytest.mark.parametrize("hooks", [(), (Script(lambda c: emit(c.pending)),)])
async def test_blocks_are_in_order_and_have_ids_of_weir(serve: Serve, hooks: tuple[Any, ...]) -> None:
    client = await serve(ScriptedEngine(thinking), *hooks)
    message = await both(client, tools=[TOOL, {**TOOL, "name": "g"}])
    assert [block.pop("id").partition("_")[0] for block in message["content"][2:]] == ["toolu", "toolu"]
    assert message["content"] == [
        {"type": "thinking", "thinking": "Let me think.", "signature": ""},
        {"type": "text", "text": "I call."},
        {"type": "tool_use", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "name": "g", "input": {}},
    ]
    assert message["stop_reason"] == "tool_use"
    assert "upstreams-own" not in str(message)


async def test_the_first_event_tells_the_prompts_tokens(serve: Serve) -> None:
    client = await serve(saying("Hel", "lo"))
    stream = await client.stream(PATH, ASK)
    assert stream.events[0][1]["message"]["usage"]["input_tokens"] == 2


async def test_the_prompts_tokens_are_a_guess_until_the_engine_tells(serve: Serve) -> None:
    deltas = [*make_deltas(["Hello"], finish=False), Delta(finish_reason="stop", usage=Usage(3, 1))]
    client = await serve(ScriptedEngine(lambda r: deltas))
    stream = await client.stream(PATH, ASK)
    assert stream.events[0][1]["message"]["usage"]["input_tokens"] > 0
    assert stream.events[-2][1]["usage"]["input_tokens"] == 3


@pytest.mark.parametrize(
    ("finish", "reason", "sequence"),
    [
        ({"finish_reason": "stop"}, "end_turn", None),
        ({"finish_reason": "length"}, "max_tokens", None),
        ({"finish_reason": "stop", "stop_reason": "END"}, "stop_sequence", "END"),
        ({"finish_reason": "stop", "stop_reason": 7}, "end_turn", None),
        ({"finish_reason": "content_filter"}, "refusal", None),
    ],
)
async def test_the_stop_reason_has_the_apis_name(
    serve: Serve, finish: dict[str, Any], reason: str, sequence: str | None
) -> None:
    message = await both(await serve(saying("Hello", **finish)), stop_sequences=["END"])
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason"), [("content_filter", "refusal"), ("stop", "end_turn")]
)
async def test_an_answer_that_a_guard_ends_has_its_reason(
    serve: Serve, finish_reason: str, stop_reason: str
) -> None:
    def guard(chunk: Chunk) -> Verdict:
        if "bad" in chunk.pending:
            return terminate("harm", after=4, text="!")
        return emit(chunk.pending) if chunk.is_final else hold()

    guards = pipeline_of(Script(guard), terminate_finish_reason=finish_reason)
    client = await serve(saying("So ", "bad", " here"), pipeline=guards)
    message = await both(client)
    assert message["content"] == [{"type": "text", "text": "So b!"}]
    assert message["stop_reason"] == stop_reason
    assert message["stop_details"] == {"type": "refusal", "category": None, "explanation": "harm"}


async def test_a_refused_prompt_is_a_refusal(serve: Serve) -> None:
    client = await serve(saying("never"), Refuses())
    message = await both(client)
    assert message["content"] == [{"type": "text", "text": "I cannot."}]
    assert message["stop_reason"] == "refusal"
    assert not any(message["usage"].values())  # contract 8.8


class Refuses:
    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)

    def on_request(self, request: Any) -> Any:
        return refuse("harm", text="I cannot.")


async def test_a_call_that_a_guard_ends_within_its_input_is_never_seen(serve: Serve) -> None:
    """Clients read `{"a": 1, "b": "x` as `{"a": 1}`, a call that looks whole."""

    def guard(chunk: Chunk) -> Verdict:
        return terminate("harm") if "bad" in chunk.pending else emit(chunk.pending)

    client = await serve(calling(call('{"a": 1, "b": "x'), call("bad"), call('"}')), Script(guard))
    message = await both(client, tools=[TOOL])
    assert message["content"] == []
    assert message["stop_reason"] == "refusal"


async def test_a_call_that_the_limit_cuts_is_left_out(serve: Serve) -> None:
    client = await serve(calling(call('{"a": 1, "b'), finish_reason="length"))
    message = await both(client, tools=[TOOL])
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")


async def test_a_withheld_call_takes_no_index(serve: Serve) -> None:
    def guard(chunk: Chunk) -> Verdict:
        return suppress() if chunk.tool_name == "f" else emit(chunk.pending)

    client = await serve(calling(call("{}"), call("{}", "g", 1)), Script(guard))
    message = await both(client, tools=[TOOL, {**TOOL, "name": "g"}])
    names = [block["name"] for block in message["content"]]
    assert names[-1:] == ["g"]


async def test_a_redacted_input_is_an_object(serve: Serve) -> None:
    def guard(chunk: Chunk) -> Verdict:
        place = chunk.pending.find("secret")
        return (
            redact([(place, place + 6, "[x]")])
            if place >= 0
            else hold(len(chunk.pending))
            if not chunk.is_final
            else emit(chunk.pending)
        )

    client = await serve(calling(call('{"a": "my sec'), call('ret"}')), Script(guard))
    message = await both(client, tools=[TOOL])
    assert message["content"][0]["input"] == {"a": "my [x]"}


@pytest.mark.parametrize(
    "call_input", ['{"id": 123456789012345678901234567890}', '{"a": ' + "[" * 500 + "]" * 500 + "}"]
)
async def test_an_input_is_whole_as_it_is_in_a_stream(serve: Serve, call_input: str) -> None:
    client = await serve(calling(call(call_input)))
    async with client.http.post(client.url + PATH, json={**ASK, "tools": [TOOL]}) as response:
        assert f'"input":{call_input}' in await response.text()
    stream = await client.stream(PATH, {**ASK, "tools": [TOOL]})
    assert [
        data["delta"]["partial_json"] for name, data in stream.events if name == "content_block_delta"
    ] == [call_input]


async def test_an_input_that_is_no_object_is_an_error(serve: Serve) -> None:
    client = await serve(calling(call("[1")))
    status, body, _ = await client.post(PATH, {**ASK, "tools": [TOOL]})
    assert (status, body["error"]["type"]) == (500, "api_error")
    stream = await client.stream(PATH, {**ASK, "tools": [TOOL]})
    assert stream.events[-1][0] == "error"


async def test_text_behind_a_call_comes_before_it(serve: Serve) -> None:
    """A call's block comes when its input is whole, and a hook may release text late."""
    client = await serve(calling(call("{}"), *make_deltas(["Done."], finish=False)))
    message = await both(client, tools=[TOOL])
    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]


async def test_thinking_can_be_left_out(serve: Serve) -> None:
    client = await serve(ScriptedEngine(thinking))
    message = await both(client, tools=[TOOL], thinking={"type": "adaptive", "display": "omitted"})
    assert message["content"][0]["type"] == "text"


async def test_a_failure_in_the_stream_is_an_error_event_and_nothing_follows(serve: Serve) -> None:
    script = [*make_deltas(["Hel"], finish=False), EngineError("The engine has failed.")]
    client = await serve(ScriptedEngine(lambda r: script))
    stream = await client.stream(PATH, ASK)
    name, data = stream.events[-1]
    assert (name, data["type"]) == ("error", "error")
    assert data["error"] == {"type": "api_error", "message": "The engine has failed."}


async def test_silence_is_filled_with_pings(serve: Serve) -> None:
    hook = Waits()
    client = await serve(saying("Hello"), hook, keep_alive_interval=0.02)
    hook.may_go_on.clear()
    body = b""
    async with client.http.post(client.url + PATH, json={**ASK, "stream": True}) as response:
        async for data in response.content.iter_any():
            body += data
            if b"event: ping" in body:
                hook.may_go_on.set()
    events, comments = read_events(body)
    assert ("ping", {"type": "ping"}) in events
    assert not comments
    assert folded(events)["content"] == [{"type": "text", "text": "Hello"}]


class Waits:
    """Answers once it may."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def __call__(self, chunk: Chunk) -> Verdict:
        await self.may_go_on.wait()
        return emit(chunk.pending)
