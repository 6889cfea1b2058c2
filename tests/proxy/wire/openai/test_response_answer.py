"""Responses as events and as a whole."""

import asyncio
from typing import Any

import pytest

from engine.protocol import Delta, EngineError
from hooks import Chunk, Verdict, emit, hold, suppress, terminate
from tests.helpers import Script, ScriptedEngine, make_deltas, pipeline_of
from tests.proxy.conftest import Serve, read_events
from tests.proxy.response_helpers import (
    ASK,
    CALL,
    LOGPROBS,
    PATH,
    TOOL,
    asked,
    both,
    check_events,
    saying,
    text_of,
    thinking,
)


async def test_a_whole_response_has_every_field(serve: Serve) -> None:
    client = await serve(saying("Hel", "lo"))
    response = await both(client, {**ASK, "metadata": {"a": "b"}, "user": "u", "instructions": "Be brief."})
    assert response["id"].startswith("resp_")
    (message,) = response.pop("output")
    assert message.pop("id").startswith("msg_")
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    assert message == {"type": "message", "role": "assistant", "content": [part], "status": "completed"}
    assert response.pop("created_at") > 1e9
    assert response == {
        "id": response["id"],
        "object": "response",
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "max_output_tokens": None,
        "model": "m",
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 5,
        },
        "user": "u",
        "metadata": {"a": "b"},
    }


@pytest.mark.parametrize("hooks", [(), (Script(lambda c: emit(c.pending)),)])
async def test_items_are_in_order_and_have_ids_of_weir(serve: Serve, hooks: tuple[Any, ...]) -> None:
    client = await serve(ScriptedEngine(thinking), *hooks)
    response = await both(client, {**ASK, "tools": [TOOL, {**TOOL, "name": "g"}]})
    output = response["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
    assert [text_of(item) for item in output] == ["Let me think.", "I call.", '{"a":1}', ""]
    assert output[0]["summary"] == []
    assert [item["name"] for item in output[2:]] == ["f", "g"]
    assert [item["id"].partition("_")[0] for item in output] == ["rs", "msg", "fc", "fc"]
    assert all(item["call_id"].startswith("call_") for item in output[2:])
    assert "upstreams-own" not in str(response)
    assert response["status"] == "completed"
    assert response["tools"][0] == {**TOOL, "description": None}


async def test_include_asks_for_logprobs(serve: Serve) -> None:
    client = await serve(saying("Hel", "lo"))
    response = await both(client, {**ASK, **LOGPROBS})
    first, _ = response["output"][0]["content"][0]["logprobs"]
    assert first == {
        "token": "Hel",
        "logprob": -0.25,
        "bytes": list(b"Hel"),
        "top_logprobs": [{"token": "alt:Hel", "logprob": -0.5, "bytes": list(b"alt:Hel")}],
    }
    stream = await client.stream(PATH, {**ASK, **LOGPROBS})
    deltas = [data for _, data in stream.events if data != "[DONE]" and "delta" in data]
    assert [len(data["logprobs"]) for data in deltas] == [1, 1]


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [("length", "incomplete", "max_output_tokens"), ("content_filter", "incomplete", "content_filter")],
)
async def test_a_response_that_ends_too_early_is_incomplete(
    serve: Serve, finish: Any, status: str, reason: str
) -> None:
    client = await serve(saying("Hel", finish_reason=finish))
    response = await both(client, {**ASK, "max_output_tokens": 1})
    assert (response["status"], response["incomplete_details"]) == (status, {"reason": reason})
    assert response["output"][0]["status"] == "incomplete"


async def test_the_stop_string_is_given(serve: Serve) -> None:
    client = await serve(saying("Hel", stop_reason="lo"))
    response = await both(client, {**ASK, "stop": "lo"})
    assert (response["status"], response["stop_reason"]) == ("completed", "lo")


async def test_a_response_without_text_has_an_empty_message(serve: Serve) -> None:
    client = await serve(saying())
    response = await both(client, ASK)
    assert [text_of(item) for item in response["output"]] == [""]


async def test_a_terminated_response_ends_as_an_incomplete_one(serve: Serve) -> None:  # contract 3.3
    engine = saying("well ", "the ", "secret ", "is out")
    hook = Script(lambda c: terminate("no_secrets") if "secret" in c.text else emit(c.pending))
    client = await serve(engine, hook)
    response = await both(client, {**ASK, **LOGPROBS})
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "content_filter"}
    assert response["stop_reason"] == "no_secrets"
    assert text_of(response["output"][0]) == "well the "
    assert "secret " not in str(response)
    assert (engine.running, engine.aborted) == (0, 2)


async def test_a_response_that_is_suppressed_entirely_has_an_empty_message(serve: Serve) -> None:
    client = await serve(saying("my ", "hunter2"), Script(lambda c: suppress()))
    response = await both(client, {**ASK, **LOGPROBS})
    assert [text_of(item) for item in response["output"]] == [""]
    assert "hunter2" not in str(response)


async def test_text_that_a_hook_releases_late_is_an_item_of_its_own(serve: Serve) -> None:
    engine = ScriptedEngine(thinking)

    def guard(chunk: Chunk) -> Verdict:
        if chunk.is_final or chunk.channel != "content":
            return emit(chunk.pending)
        return hold(min(3, len(chunk.pending)))

    client = await serve(engine, Script(guard))
    response = await both(client, ASK)
    texts = [text_of(item) for item in response["output"]]
    assert texts == ["Let me think.", "I ca", '{"a":1}', "ll.", ""]
    await asked(client, engine, input="Go on.", previous_response_id=response["id"])
    assert engine.requests[-1].messages[1]["content"] == "I call."


async def test_a_call_stays_one_item_whatever_a_hook_holds(serve: Serve) -> None:
    """Otherwise an agent would run two calls, each with a part of the arguments."""
    script = [
        *make_deltas(["I ", "call."], finish=False),
        *make_deltas(['{"a":', "1}"], first_id=20, channel="tool_call", tool_call=CALL, finish=False),
        Delta(finish_reason="tool_calls"),
    ]

    def guard(chunk: Chunk) -> Verdict:
        return emit(chunk.pending) if chunk.is_final else hold(min(1, len(chunk.pending)))

    expected = {"stream": ["I call", '{"a":1}', "."], "whole": ["I call.", '{"a":1}']}
    for tool_calls, texts in expected.items():
        pipeline = pipeline_of(Script(guard), tool_calls=tool_calls)
        client = await serve(ScriptedEngine(lambda r: script), pipeline=pipeline)
        response = await both(client, ASK)
        assert [text_of(item) for item in response["output"]] == texts


async def test_a_hook_that_raises_later_is_one_error_event_then_done(serve: Serve) -> None:  # contract 4.2
    def guard(chunk: Chunk) -> Verdict:
        if "hunter2" in chunk.text:
            raise ValueError(chunk.text)
        return emit(chunk.pending)

    engine = saying("fine ", "hunter2", " more")
    client = await serve(engine, Script(guard))
    stream = await client.stream(PATH, ASK)
    names = [name for name, _ in stream.events]
    assert names[-3:] == ["response.failed", "error", None]
    assert names.count("error") == 1
    failed, (_, error), done = stream.events[-3:]
    assert failed[1]["response"]["status"] == "failed"
    assert failed[1]["response"]["error"]["code"] == "server_error"
    assert [text_of(item) for item in failed[1]["response"]["output"]] == ["fine "]
    assert error["error"]["type"] == "guardrail_error"
    assert (error["type"], error["message"]) == ("error", error["error"]["message"])
    assert done == (None, "[DONE]")
    assert "hunter2" not in str(stream.events)
    check_events(stream)
    status, _ = await client.get(f"{PATH}/{failed[1]['response']['id']}")
    assert status == 404
    assert (engine.running, engine.aborted) == (0, 1)


async def test_a_stream_that_fails_before_any_text_begins_with_created(serve: Serve) -> None:
    error = asyncio.Event()
    client = await serve(
        ScriptedEngine(lambda r: [error, EngineError("It broke.")]), keep_alive_interval=0.01
    )
    async with client.http.post(client.url + PATH, json={**ASK, "stream": True}) as response:
        begun = await response.content.readline()
        error.set()
        events, _ = read_events(begun + await response.read())
    assert [name for name, _ in events[:3]] == ["response.created", "response.in_progress", "response.failed"]
