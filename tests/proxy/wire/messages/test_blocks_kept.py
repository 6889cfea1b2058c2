"""An upstream of the Messages API gets its caller's own blocks. Only what guards changed differs."""

from dataclasses import replace
from typing import Any

import orjson
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import GenerationRequest
from hooks import emit
from proxy.wire.messages.blocks_kept import tools_with_changes, with_changes
from proxy.wire.messages.fields import MessagesRequest
from tests.engine.upstream.conftest import FakeUpstream
from tests.engine.upstream.messages.asked import begin, block, end
from tests.proxy.conftest import Serve
from tests.proxy.wire.messages.conftest import ASK, PATH
from tests.proxy.wire.messages.masks import (
    EPHEMERAL,
    HOUR,
    MASK,
    PIXEL,
    SECRET,
    Masks,
    changed,
    front_of,
    masked,
)

AGENT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>\nToday is Sunday.\n</system-reminder>\n"},
                {"type": "text", "text": "Fix the build. The key is hunter2.", "cache_control": HOUR},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                {
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                    "type": "document",
                    "title": "plan.pdf",
                },
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "One.\n\nTwo hunter2."},
                    "title": "notes",
                    "context": "Of the team.",
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I look at the files.", "signature": "EqQBCkYIBRgCKkD+/w=="},
                {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4a"},
                {"type": "text", "text": "I look."},
                {
                    "type": "tool_use",
                    "id": "toolu_01A",
                    "name": "Bash",
                    "input": {"command": "ls -la hunter2", "timeout": 1.0},
                    "caller": {"type": "direct"},
                },
                {"type": "text", "text": "And once more.", "citations": None},
                {"type": "tool_use", "id": "toolu_01B", "name": "Read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "tool_use_id": "toolu_01A",
                    "type": "tool_result",
                    "content": "total 0: hunter2\n",
                    "is_error": False,
                },
                {
                    "type": "tool_result",
                    "content": [{"type": "text", "text": "no such file: hunter2"}],
                    "is_error": True,
                    "tool_use_id": "toolu_01B",
                    "cache_control": EPHEMERAL,
                },
            ],
        },
        {"role": "user", "content": "Go on, hunter2"},
    ],
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1"},
        {"type": "text", "text": "You are an agent.", "cache_control": {**HOUR, "scope": "global"}},
        {"type": "text", "text": "\nCWD: /home/hunter2\n\nGit: hunter2", "cache_control": EPHEMERAL},
    ],
    "tools": [
        {
            "name": "Bash",
            "description": "Runs a command. Never writes hunter2.",
            "input_schema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
                "required": ["command"],
                "additionalProperties": False,
            },
        },
        {
            "name": "Read",
            "input_schema": {"type": "object", "properties": {}},
            "eager_input_streaming": True,
            "cache_control": EPHEMERAL,
        },
    ],
    "metadata": {"user_id": "user_1_account__session_2"},
    "max_tokens": 32000,
    "thinking": {"budget_tokens": 31999, "type": "enabled"},
    "temperature": 1,
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "stream": True,
}
BETAS = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27"


class Prepends:
    """A guard that puts a message in front of chats."""

    def __call__(self, chunk: Any) -> Any:
        return emit(chunk.pending)

    def on_request(self, request: GenerationRequest) -> GenerationRequest:
        rule = ({"role": "system", "content": "A rule."},) if request.messages else ()
        return replace(request, messages=(*rule, *request.messages))


async def test_the_upstream_gets_an_agents_body_as_it_was(serve: Serve, upstream: FakeUpstream) -> None:
    client = await front_of(serve, upstream)
    status, _, headers = await client.post(
        PATH, {**AGENT, "stream": False}, headers={"anthropic-beta": BETAS}
    )
    assert status == 200
    assert orjson.dumps(upstream.bodies[-1]) == orjson.dumps(AGENT)
    assert upstream.headers[-1]["anthropic-beta"] == BETAS
    assert "X-Weir-Ignored-Fields" not in headers
    assert (await client.stream(PATH, AGENT)).status == 200
    assert orjson.dumps(upstream.bodies[-1]) == orjson.dumps(AGENT)


# contract 8.6
async def test_a_guards_change_stands_in_its_block_and_the_marks_behind_it_remain(
    serve: Serve, upstream: FakeUpstream
) -> None:
    client = await front_of(serve, upstream, Masks())
    status, body, _ = await client.post(PATH, {**AGENT, "stream": False})
    assert status == 200, body
    sent = upstream.bodies[-1]
    assert len(sent["metadata"]["user_id"]) == 64  # a hash
    expected = changed({**AGENT, "metadata": sent["metadata"]})
    assert orjson.dumps(sent) == orjson.dumps(expected)
    assert SECRET not in str(sent)


async def test_count_tokens_asks_with_the_same_blocks(serve: Serve, upstream: FakeUpstream) -> None:
    client = await front_of(serve, upstream, Masks())
    upstream.script = lambda body: web.json_response({"input_tokens": 9})
    fields = {k: v for k, v in AGENT.items() if k not in ("max_tokens", "stream", "temperature", "metadata")}
    status, body, _ = await client.post(f"{PATH}/count_tokens", fields)
    assert (status, body) == (200, {"input_tokens": 9})
    assert orjson.dumps(upstream.bodies[-1]) == orjson.dumps(changed(fields))


async def test_thinking_that_nobody_signed_or_a_guard_changed_is_left_out(
    serve: Serve, upstream: FakeUpstream
) -> None:
    client = await front_of(serve, upstream, Masks())
    for thinking, signature, is_sent in (
        ("Let me see.", "c2ln", True),
        ("It is hunter2.", "c2ln", False),
        ("Let me see.", "", False),
        ("Let me see.", "not base64: hunter2", False),
    ):
        said = {"type": "thinking", "thinking": thinking, "signature": signature}
        turns = [
            *ASK["messages"],
            {"role": "assistant", "content": [said, {"type": "text", "text": "a"}]},
            *ASK["messages"],
        ]
        await client.post(PATH, {**ASK, "messages": turns})
        content = upstream.bodies[-1]["messages"][1]["content"]
        assert content == ([said] if is_sent else []) + [{"type": "text", "text": "a"}]


async def test_a_chat_that_a_guard_gives_another_shape_is_translated(
    serve: Serve, upstream: FakeUpstream
) -> None:
    client = await front_of(serve, upstream, Prepends())
    await client.post(PATH, {**ASK, "system": "Be brief."})
    assert [one["text"] for one in upstream.bodies[-1]["system"]] == ["A rule.", "Be brief."]


async def test_the_usage_of_the_cache_is_the_upstreams(serve: Serve, upstream: FakeUpstream) -> None:
    by_age = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 70}
    usage = {"input_tokens": 3, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 100}
    upstream.script = lambda body: [
        begin(**usage, cache_creation=by_age),
        *block(0, "text", "ok"),
        end(num_tokens=7),
        {"type": "message_stop"},
    ]
    client = await front_of(serve, upstream)
    _, body, _ = await client.post(PATH, ASK)
    assert body["usage"] == {**usage, "cache_creation": by_age, "output_tokens": 7}
    stream = await client.stream(PATH, ASK)
    first = stream.events[0][1]["message"]["usage"]
    assert (first["input_tokens"], first["cache_creation_input_tokens"]) == (3, 100)
    _, chat, _ = await client.post("/v1/chat/completions", {"model": "m", "messages": ASK["messages"]})
    assert chat["usage"]["prompt_tokens"] == 123


async def test_a_field_that_the_upstream_does_not_get_is_named(serve: Serve, upstream: FakeUpstream) -> None:
    client = await front_of(serve, upstream)
    text = {"type": "text", "text": "Hi", "cache_control": {"type": "words of a caller"}, "hunter2": "x"}
    turns = [{"role": "user", "content": [text]}]
    _, _, headers = await client.post(PATH, {**ASK, "messages": turns, "container": "c"})
    assert upstream.bodies[-1]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    named = headers["X-Weir-Ignored-Fields"].split(", ")
    assert named == ["container", "messages.content.cache_control", "messages.content.hunter2"]


words = st.lists(st.sampled_from(["a", "b\n\n", "hunter2", "é😀", " ", "\n"]), min_size=1, max_size=4).map(
    "".join
)
texts = st.fixed_dictionaries(
    {"type": st.just("text"), "text": words}, optional={"cache_control": st.just(HOUR)}
)
results = st.builds(
    lambda content, failed: {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": content,
        "is_error": failed,
    },
    st.one_of(words, st.lists(texts, max_size=3)),
    st.booleans(),
)
uses = words.map(lambda word: {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": word}})
turns = st.one_of(
    st.fixed_dictionaries(
        {
            "role": st.just("user"),
            "content": st.one_of(words, st.lists(texts | results, min_size=1, max_size=4)),
        }
    ),
    st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "content": st.one_of(words, st.lists(texts | uses, min_size=1, max_size=4)),
        }
    ),
)


@given(
    st.one_of(words, st.lists(texts, min_size=1, max_size=4)),
    st.lists(turns, min_size=1, max_size=5),
    st.lists(words, max_size=2),
)
def test_the_texts_are_those_that_guards_let_go_on(system: Any, drawn: Any, descriptions: Any) -> None:
    """Each text goes on as the guard left it, in its own block unless the guard changed where blocks meet."""
    drawn = [*drawn, {"role": "user", "content": "x"}]
    tools = [{"description": one, "name": "f", "input_schema": {}} for one in descriptions]
    body = {"model": "m", "max_tokens": 9, "system": system, "messages": drawn, "tools": tools}
    asked = MessagesRequest.model_validate(body).to_request("r", "m")
    admitted = masked(asked)
    made = with_changes(body, asked.messages, admitted.messages)
    assert made is not None
    again = MessagesRequest.model_validate({**body, **made}).to_request("r", "m")
    assert again.messages == admitted.messages
    assert tools_with_changes(tools, asked.tools, admitted.tools) == changed(tools)
    if MASK not in str(admitted):
        assert orjson.dumps(made["messages"]) == orjson.dumps(drawn)
