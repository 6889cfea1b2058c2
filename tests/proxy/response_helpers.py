"""Asks for responses, and checks that their events are well formed."""

from collections import Counter
from typing import Any

from engine.protocol import Delta, ToolCall, Usage
from tests.helpers import ScriptedEngine, make_deltas
from tests.proxy.conftest import Client, Events

PATH = "/v1/responses"

ASK = {"model": "m", "input": "Hi"}

LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}

CALL = ToolCall(0, "f", "upstreams-own")

PAIRS = {
    "response.completed": "response.created",
    "response.output_item.done": "response.output_item.added",
    "response.content_part.done": "response.content_part.added",
    "response.output_text.done": "response.output_text.delta",
    "response.reasoning_text.done": "response.reasoning_text.delta",
    "response.function_call_arguments.done": "response.function_call_arguments.delta",
    "response.custom_tool_call_input.done": "response.custom_tool_call_input.delta",
}

PAIRS |= {"response.incomplete": "response.created", "response.failed": "response.created"}


def saying(*words: str, **finish: Any) -> ScriptedEngine:
    end = Delta(finish_reason=finish.pop("finish_reason", "stop"), usage=Usage(3, len(words), 1, 0), **finish)
    return ScriptedEngine(lambda r: [*make_deltas(words, finish=False), end])


def thinking(request: Any) -> list[Delta]:
    """An answer with every kind of item."""
    return [
        *make_deltas(["Let ", "me ", "think."], channel="reasoning", finish=False),
        *make_deltas(["I ", "call."], first_id=10, finish=False),
        *make_deltas(['{"a":', "1}"], first_id=20, channel="tool_call", tool_call=CALL, finish=False),
        Delta(channel="tool_call", tool_call=ToolCall(1, "g")),
        Delta(finish_reason="tool_calls", usage=Usage(3, 7, 1, 3)),
    ]


def check_events(stream: Events) -> dict[str, Any]:
    """The response at the end of a stream. Fails unless its events are numbered, named and nested in pairs,
    and contain the same texts as the response."""
    assert stream.status == 200
    assert stream.events[-1] == (None, "[DONE]")
    events = [data for _, data in stream.events[:-1]]
    assert [name for name, _ in stream.events[:-1]] == [data["type"] for data in events]
    assert [data["sequence_number"] for data in events] == list(range(len(events)))
    assert [data["type"] for data in events[:2]] == ["response.created", "response.in_progress"]
    events = [data for data in events if data["type"] not in ("error", "response.in_progress")]
    stack: list[str] = []
    for data in events:
        kind = data["type"]
        if kind in PAIRS:
            if kind != "response.failed":  # after a failure, open items stay open
                assert stack.pop() == PAIRS[kind]
        elif not stack or stack[-1] != kind or not kind.endswith(".delta"):
            stack.append(kind)
    response: dict[str, Any] = events[-1]["response"]
    assert events[0]["response"]["id"] == response["id"]
    assert (events[0]["response"]["status"], events[0]["response"]["output"]) == ("in_progress", [])
    texts: Counter[int] = Counter()
    spoken = dict.fromkeys(range(len(response["output"])), "")
    for data in events:
        if data["type"].endswith(".delta"):
            item = response["output"][data["output_index"]]
            assert data["item_id"] == item["id"]
            assert data.get("content_index", 0) == 0
            spoken[data["output_index"]] += data["delta"]
        elif data["type"] == "response.output_item.done":
            assert data["item"] == response["output"][data["output_index"]]
            texts[data["output_index"]] += 1
    assert set(texts.values()) <= {1}
    assert list(spoken.values()) == [text_of(item) for item in response["output"]]
    return response


def text_of(item: dict[str, Any]) -> str:
    fields = {"function_call": "arguments", "custom_tool_call": "input"}
    if item["type"] in ("local_shell_call", "tool_search_call"):
        return ""
    field = fields.get(item["type"])
    return str(item["content"][0]["text"] if field is None else item[field])


def without_identity(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_identity(v) for k, v in value.items() if k not in ("id", "call_id", "created_at")}
    return [without_identity(one) for one in value] if isinstance(value, list) else value


async def both(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """The whole answer. Fails unless a stream ends with the same answer."""
    status, whole, _ = await client.post(PATH, body)
    assert status == 200, whole
    assert without_identity(check_events(await client.stream(PATH, body))) == without_identity(whole)
    return dict(whole)


async def asked(client: Client, engine: ScriptedEngine, **fields: Any) -> Any:
    """Send a request, and return it as the engine gets it."""
    status, body, _ = await client.post(PATH, {**ASK, **fields})
    assert status == 200, body
    return engine.requests[-1]
