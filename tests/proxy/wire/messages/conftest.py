"""Asks the Messages API by its own SDK, and checks the grammar of its streams."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import orjson
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from engine.protocol import Delta, ToolCall, Usage
from tests.engine.upstream.conftest import FakeUpstream, fake_upstream
from tests.engine.upstream.messages.asked import answer, block
from tests.helpers import ScriptedEngine, make_deltas
from tests.proxy.conftest import Client

PATH = "/v1/messages"
ASK: dict[str, Any] = {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}
TOOL: dict[str, Any] = {"name": "f", "input_schema": {"type": "object"}}
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
KINDS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def saying(*words: str, **finish: Any) -> ScriptedEngine:
    usage = Usage(3, len(words), 1, 0)
    end = Delta(finish_reason=finish.pop("finish_reason", "stop"), usage=usage, **finish)
    first, *rest = make_deltas(words, finish=False)
    first.usage = Usage(3, 1, 1, 0)
    return ScriptedEngine(lambda r: [first, *rest, end])


def call(text: str, name: str = "f", index: int = 0) -> Delta:
    return Delta(text=text, channel="tool_call", tool_call=ToolCall(index, name, "upstreams-own"))


def calling(*deltas: Delta, finish_reason: Any = "tool_calls", **finish: Any) -> ScriptedEngine:
    end = Delta(finish_reason=finish_reason, usage=Usage(3, len(deltas)), **finish)
    return ScriptedEngine(lambda r: [*deltas, end])


def thinking(request: Any) -> list[Delta]:
    """An answer with every kind of block."""
    return [
        *make_deltas(["Let ", "me ", "think."], channel="reasoning", finish=False),
        *make_deltas(["I ", "call."], first_id=10, finish=False),
        call('{"a":'),
        call("1}"),
        call("", "g", 1),
        Delta(finish_reason="tool_calls", usage=Usage(3, 7, 1, 3)),
    ]


def folded(events: list[tuple[str | None, Any]]) -> dict[str, Any]:
    """The message that a stream makes, up to an error. Fails unless the events follow the API's grammar, each
    valid by the SDK's own types."""
    assert all(name == data["type"] for name, data in events)
    events = [(name, data) for name, data in events if data != {"type": "ping"}]
    is_failed = events[-1][0] == "error"
    end = [] if is_failed else events[-2:]
    events = events[:-1] if is_failed else events[:-2]
    for _, data in (*events, *end):
        EVENT.validate_python(data, strict=True)
    assert events[0][0] == "message_start"
    assert [name for name, _ in end] == ([] if is_failed else ["message_delta", "message_stop"])
    message: dict[str, Any] = orjson.loads(orjson.dumps(events[0][1]["message"]))
    assert message["content"] == []
    is_open, pieces = False, ""
    for _, data in events[1:]:
        if data["type"] == "content_block_start":
            assert not is_open
            assert data["index"] == len(message["content"])
            message["content"].append(dict(data["content_block"]))
            is_open, pieces = True, ""
        elif data["type"] == "content_block_delta":
            block, delta = message["content"][-1], data["delta"]
            assert is_open
            assert delta["type"] == KINDS[block["type"]]
            pieces += delta[FIELDS[delta["type"]]]
            add(block, pieces)
        elif data["type"] == "content_block_stop":
            assert is_open
            assert data["index"] == len(message["content"]) - 1
            is_open = False
    if is_failed:
        return message
    assert not is_open
    last = end[0][1]
    return {**message, "stop_details": None, **last["delta"], "usage": last["usage"]}


def add(block: dict[str, Any], pieces: str) -> None:
    if block["type"] == "tool_use":
        block["input"] = orjson.loads(pieces or "{}")
    else:
        block[block["type"]] = pieces


def without_identity(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_identity(v) for k, v in value.items() if k != "id"}
    return [without_identity(one) for one in value] if isinstance(value, list) else value


async def both(client: Client, **fields: Any) -> dict[str, Any]:
    """The whole answer. Fails unless a stream makes the same one."""
    status, whole, headers = await client.post(PATH, {**ASK, **fields})
    assert status == 200, whole
    assert headers["request-id"] == whole["id"]
    Message.model_validate(whole, strict=True)
    stream = await client.stream(PATH, {**ASK, **fields})
    assert stream.status == 200
    assert without_identity(folded(stream.events)) == without_identity(whole)
    return dict(whole)


@pytest.fixture
async def sdk() -> AsyncIterator[Callable[[Client], AsyncAnthropic]]:
    async with AsyncExitStack() as stack:

        def make(client: Client) -> AsyncAnthropic:
            made = AsyncAnthropic(base_url=client.url, api_key="any", max_retries=0)
            stack.push_async_callback(made.close)
            return made

        yield make


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as fake:
        fake.script = lambda body: answer(block(0, "text", "ok"))
        yield fake
