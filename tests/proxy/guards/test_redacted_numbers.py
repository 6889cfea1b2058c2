"""Numbers in JSON that guards redact: on every endpoint the whole value becomes a string; the rest stays."""

from typing import Any

import orjson
import pytest

from engine.protocol import Delta, ToolCall, Usage
from hooks.builtin.pii import Pii
from tests.helpers import ScriptedEngine, make_deltas
from tests.proxy.conftest import Client, Serve

VALUE = {
    "arn": "arn:aws:iam::508508109046:role/deploy",
    "account": 508508109046,
    "since": 1804223974633,
    "ratio": -12.5e3,
    "ssn": 536904399,
    "card": [4111111111111111, 7],
}
WRITTEN = orjson.dumps(VALUE).decode()
EXPECTED = {**VALUE, "ssn": "[US_SSN]", "card": ["[CREDIT_CARD]", 7]}
"""Accounts and times stay numbers. What is redacted is a string as a whole."""
TOOL: dict[str, Any] = {"name": "f", "parameters": {"type": "object"}}
USER = [{"role": "user", "content": "Hi"}]


def pieces(size: int) -> list[str]:
    return [WRITTEN[i : i + size] for i in range(0, len(WRITTEN), size)]


def calling(size: int) -> ScriptedEngine:
    call = ToolCall(0, "f", "upstreams-own")
    deltas = [Delta(text=piece, channel="tool_call", tool_call=call) for piece in pieces(size)]
    return ScriptedEngine(lambda _: [*deltas, Delta(finish_reason="tool_calls", usage=Usage(3, len(deltas)))])


def saying(size: int) -> ScriptedEngine:
    return ScriptedEngine(lambda _: make_deltas(pieces(size)))


async def chat(client: Client) -> Any:
    body = {"model": "m", "messages": USER, "tools": [{"type": "function", "function": TOOL}]}
    _, answer, _ = await client.post("/v1/chat/completions", body)
    streamed = await client.stream("/v1/chat/completions", body)
    calls = [
        call
        for chunk in streamed.chunks
        for one in chunk["choices"]
        for call in one["delta"].get("tool_calls", ())
    ]
    whole = answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    return whole, "".join(call["function"]["arguments"] for call in calls)


async def responses(client: Client) -> Any:
    body = {"model": "m", "input": "Hi", "tools": [{"type": "function", **TOOL}]}
    _, answer, _ = await client.post("/v1/responses", body)
    streamed = await client.stream("/v1/responses", body)
    done = next(data for name, data in streamed.events if name == "response.completed")
    items = [item for one in (answer, done["response"]) for item in one["output"]]
    return tuple(item["arguments"] for item in items if item["type"] == "function_call")


async def messages(client: Client) -> Any:
    tool = {"name": "f", "input_schema": {"type": "object"}}
    body = {"model": "m", "max_tokens": 64, "messages": USER, "tools": [tool]}
    _, answer, _ = await client.post("/v1/messages", body)
    streamed = await client.stream("/v1/messages", body)
    whole = next(block["input"] for block in answer["content"] if block["type"] == "tool_use")
    parts = [
        data["delta"].get("partial_json", "")
        for name, data in streamed.events
        if name == "content_block_delta"
    ]
    return orjson.dumps(whole).decode(), "".join(parts)


@pytest.mark.parametrize("ask", [chat, responses, messages])
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_redacted_number_in_arguments_is_a_string_and_other_numbers_stay(
    serve: Serve, ask: Any, size: int
) -> None:
    client = await serve(calling(size), Pii())
    for arguments in await ask(client):
        assert orjson.loads(arguments) == EXPECTED


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_so_it_is_in_an_answer_that_the_request_wants_as_json(serve: Serve, size: int) -> None:
    client = await serve(saying(size), Pii())
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
    for path, asked, body in (
        ("/v1/chat/completions", {"response_format": schema}, {"model": "m", "messages": USER}),
        ("/v1/completions", {"response_format": {"type": "json_object"}}, {"model": "m", "prompt": "Hi"}),
    ):
        _, answer, _ = await client.post(path, body | asked)
        choice = answer["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        assert orjson.loads(text) == EXPECTED
        assert orjson.loads((await client.stream(path, body | asked)).content()) == EXPECTED
