"""Tools and values that Weir does not know: the request is answered, and a header names them."""

from typing import Any

import pytest

from engine.protocol.fields.support import FieldSupport
from engine.upstream.openai.engine import OpenAIEngine
from hooks import emit
from tests.engine.upstream.conftest import FakeUpstream, fake_upstream
from tests.engine.upstream.messages.asked import answer, block
from tests.helpers import Script, ScriptedEngine
from tests.proxy.conftest import CHAT, Serve, hello
from tests.proxy.wire.messages.conftest import ASK, TOOL
from tests.proxy.wire.messages.masks import Masks, front_of

IGNORED = "X-Weir-Ignored-Fields"
CHATS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
CODE = {"type": "code_execution_20250825", "name": "code_execution"}
CUSTOM = {"type": "custom", "custom": {"name": "patch"}}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ODD = {"type": "odd", "name": ["f"]}
ANSWERED: list[tuple[str, dict[str, Any], str]] = [
    (MESSAGES, {"tools": [SEARCH, TOOL, CODE]}, "tools.web_search_20250305, tools.code_execution_20250825"),
    (CHATS, {"tools": [CUSTOM, FUNCTION]}, "tools.custom"),
    (CHATS, {"tools": [ODD, FUNCTION]}, "tools.odd"),
    (MESSAGES, {"tools": [ODD, TOOL]}, "tools.odd"),
    (RESPONSES, {"tools": [ODD, {"type": "function", "name": "f"}]}, "tools.odd"),
]

BODIES = {CHATS: CHAT, MESSAGES: ASK, RESPONSES: {"model": "m", "input": "Hi"}}


def honouring() -> ScriptedEngine:
    engine = ScriptedEngine(hello)
    engine.fields = FieldSupport(honoured=frozenset({"tools", "max_tokens"}))
    return engine


# contract 5.3
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "fields", "named"), ANSWERED)
async def test_no_model_is_offered_a_tool_that_is_no_function(
    serve: Serve, path: str, fields: dict[str, Any], named: str, stream: bool
) -> None:
    engine = honouring()
    client = await serve(engine)
    body = {**BODIES[path], **fields, "stream": stream}
    async with client.http.post(client.url + path, json=body) as response:
        assert (response.status, response.headers[IGNORED]) == (200, named)
    (request,) = engine.requests
    assert [tool["function"]["name"] for tool in request.tools] == ["f"]


async def test_a_server_tool_does_not_reach_an_upstream_of_this_api(serve: Serve) -> None:
    async with fake_upstream() as upstream:
        upstream.script = lambda body: answer(block(0, "text", "ok"))
        client = await front_of(serve, upstream, Masks())
        status, _, headers = await client.post(MESSAGES, {**ASK, "tools": [SEARCH, TOOL]})
        assert (status, headers[IGNORED]) == (200, "tools.web_search_20250305")
        assert upstream.bodies[-1]["tools"] == [TOOL]
        await client.post(MESSAGES, {**ASK, "tools": [SEARCH]})
        assert "tools" not in upstream.bodies[-1]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (MESSAGES, {"tools": [SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}),
        (MESSAGES, {"tools": [SEARCH], "tool_choice": {"type": "any"}}),
        (CHATS, {"tools": [CUSTOM], "tool_choice": "required"}),
    ],
)
async def test_a_call_of_such_a_tool_cannot_be_forced(
    serve: Serve, path: str, fields: dict[str, Any]
) -> None:
    client = await serve(honouring())
    status, body, _ = await client.post(path, {**(CHAT if path == CHATS else ASK), **fields})
    assert status == 400
    assert body["error"]["message"].endswith("tools that are no functions are not available here")


@pytest.mark.parametrize(
    ("path", "tool", "param"),
    [
        (CHATS, {"type": "function"}, "tools.0.function"),
        (CHATS, {"function": {"name": "f"}}, "tools.0.type"),
        (CHATS, {"type": 3}, "tools.0.type"),
        (MESSAGES, {"name": "f"}, "tools.0.input_schema"),
    ],
)
async def test_a_function_without_what_it_needs_is_refused(
    serve: Serve, path: str, tool: dict[str, Any], param: str
) -> None:
    client = await serve(honouring())
    body = (CHAT if path == CHATS else ASK) | {"tools": [tool]}
    status, error, _ = await client.post(path, body)
    assert status == 400
    assert param in error["error"]["message"]


@pytest.mark.parametrize(
    ("thinking", "named"),
    [
        (
            {"type": "enabled", "budget_tokens": 1024, "display": "updates"},
            "thinking.budget_tokens, thinking.display",
        ),
        ({"type": "deep"}, "thinking.type"),
        ({"type": "adaptive", "display": "omitted"}, None),
    ],
)
async def test_an_unknown_value_of_thinking_is_named_and_changes_nothing(
    serve: Serve, thinking: dict[str, Any], named: str | None
) -> None:
    client = await serve(honouring())
    status, body, headers = await client.post(MESSAGES, {**ASK, "max_tokens": 2000, "thinking": thinking})
    assert (status, headers.get(IGNORED)) == (200, named)
    assert body["content"] == [{"type": "text", "text": "Hello"}]


async def test_an_unknown_value_of_thinking_goes_on_to_an_upstream_of_this_api(serve: Serve) -> None:
    seen = Script(lambda chunk: emit(chunk.pending))
    thinking = {"type": "deep", "display": "updates"}
    async with fake_upstream() as upstream:
        upstream.script = lambda body: answer(block(0, "text", "ok"))
        client = await front_of(serve, upstream, seen)
        status, _, headers = await client.post(MESSAGES, {**ASK, "thinking": thinking})
    assert (status, IGNORED in headers) == (200, False)
    assert upstream.bodies[-1]["thinking"] == thinking


@pytest.mark.parametrize("tier", ["flex", "priority", 3])
async def test_an_unknown_tier_is_named_and_does_not_reach_the_upstream(serve: Serve, tier: Any) -> None:
    async with fake_upstream() as upstream:
        upstream.script = lambda body: answer(block(0, "text", "ok"))
        client = await front_of(serve, upstream)
        for path, body in ((CHATS, CHAT), (MESSAGES, ASK)):
            status, _, headers = await client.post(path, {**body, "service_tier": tier})
            assert (status, headers.get(IGNORED)) == (200, "service_tier")
            assert "service_tier" not in upstream.bodies[-1]


RESULT = [
    {"type": "tool_reference", "tool_name": "mcp__hunter2__read"},
    {"type": "tool_reference", "tool_name": "g"},
]
FOUND: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": RESULT}]},
    ]
}


# contract 8.1, 8.6
async def test_a_tool_reference_is_the_tools_name_to_hooks_and_to_a_chat(serve: Serve) -> None:
    engine = honouring()
    client = await serve(engine, Masks())
    assert (await client.post(MESSAGES, {**ASK, **FOUND}))[0] == 200
    texts = [{"type": "text", "text": "mcp__***__read"}, {"type": "text", "text": "g"}]
    assert engine.requests[-1].messages[-1]["content"] == texts
    async with fake_upstream() as upstream:
        client = await serve(OpenAIEngine(upstream.url), Masks(), names=[])
        await client.post(MESSAGES, {**ASK, **FOUND})
        assert upstream.bodies[-1]["messages"][-1]["content"] == texts


# contract 8.1
async def test_a_tool_reference_goes_on_to_an_upstream_of_this_api(serve: Serve) -> None:
    async with fake_upstream() as upstream:
        upstream.script = lambda body: answer(block(0, "text", "ok"))
        for hooks, name in (((), "mcp__hunter2__read"), ((Masks(),), "mcp__***__read")):
            client = await front_of(serve, upstream, *hooks)
            status, _, headers = await client.post(MESSAGES, {**ASK, **FOUND})
            assert (status, IGNORED in headers) == (200, False)
            (result,) = upstream.bodies[-1]["messages"][-1]["content"]
            assert result["content"] == [{**RESULT[0], "tool_name": name}, RESULT[1]]


def _hidden(upstream: FakeUpstream) -> None:
    thought = [
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "aGk="},
    ]
    starts = [
        {"type": "content_block_start", "index": i, "content_block": one} for i, one in enumerate(thought)
    ]
    stops = [{"type": "content_block_stop", "index": i} for i in range(2)]
    hidden = [event for pair in zip(starts, stops, strict=True) for event in pair]
    called = block(2, "tool_use", '{"a": 1}') + block(3, "tool_use", "{}")
    upstream.script = lambda body: answer(hidden, called, reason="tool_use")


HIDDEN = [
    {"type": "thinking", "thinking": "", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "aGk="},
]


async def test_reasoning_without_text_comes_back_to_the_upstream_by_the_call_that_it_led_to(
    serve: Serve,
) -> None:
    async with fake_upstream() as upstream:
        _hidden(upstream)
        client = await front_of(serve, upstream, Masks())
        asked = {**ASK, "tools": [TOOL], "thinking": {"type": "adaptive", "display": "omitted"}}
        _, message, _ = await client.post(MESSAGES, asked)
        assert [one["type"] for one in message["content"]] == ["tool_use", "tool_use"]
        assert "c2ln" not in str(message)
        results = [{"type": "tool_result", "tool_use_id": one["id"]} for one in message["content"]]
        turns = [
            *ASK["messages"],
            {"role": "assistant", "content": message["content"]},
            {"role": "user", "content": results},
        ]
        await client.post(MESSAGES, {**asked, "messages": turns})
        sent = upstream.bodies[-1]["messages"][1]["content"]
        assert sent == [*HIDDEN, *message["content"]]
        # Another caller does not get it, and neither does a call with another id.
        other = {"headers": {"Authorization": "Bearer other"}}
        await client.post(MESSAGES, {**asked, "messages": turns}, **other)
        turns[1]["content"][0]["id"] = "toolu_0"
        turns[2]["content"][0]["tool_use_id"] = "toolu_0"
        await client.post(MESSAGES, {**asked, "messages": turns})
        assert upstream.bodies[-1]["messages"][1]["content"] == message["content"]


async def test_a_chats_client_gets_reasoning_without_text_back_too(serve: Serve) -> None:
    tools = [FUNCTION]
    async with fake_upstream() as upstream:
        client = await front_of(serve, upstream, Masks())
        for stream in (False, True):
            _hidden(upstream)
            if stream:
                chunks = (await client.stream(CHATS, {**CHAT, "tools": tools})).chunks
                calls = [call for one in chunks for call in one["choices"][0]["delta"].get("tool_calls", ())]
                calls = [{**call, "type": "function"} for call in calls if "id" in call]
            else:
                _, body, _ = await client.post(CHATS, {**CHAT, "tools": tools})
                calls = body["choices"][0]["message"]["tool_calls"]
            results = [{"role": "tool", "tool_call_id": call["id"], "content": "1"} for call in calls]
            said = {"role": "assistant", "content": None, "tool_calls": calls}
            await client.post(
                CHATS, {**CHAT, "messages": [*CHAT["messages"], said, *results], "tools": tools}
            )
            sent = upstream.bodies[-1]["messages"][1]["content"]
            assert [one["type"] for one in sent] == ["thinking", "redacted_thinking", "tool_use", "tool_use"]
