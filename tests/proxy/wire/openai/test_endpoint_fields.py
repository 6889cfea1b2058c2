"""What becomes of a request's fields: the ones that have no effect are named in a header of the answer."""

from typing import Any

import pytest
from aiohttp import web

from engine.protocol.fields.support import FieldSupport, Treatment
from engine.upstream.echo import EchoEngine
from engine.upstream.messages.engine import MessagesEngine
from proxy.wire.messages.fields import CountFields
from proxy.wire.openai.chat import ChatRequest
from proxy.wire.openai.endpoint_fields import HEADER, MAX_NAMES, known_names
from tests.engine.upstream.conftest import fake_upstream
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, COMPLETION, Serve, hello

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
ASK = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
RESPOND = {"input": "Hi"}
MISSPELT = "max_tokenz;meant=max_tokens, my_own, store"
"""A list of RFC 8941: each name is an item, and what was probably meant its parameter."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        (CHATS, CHAT, None),
        (CHATS, {**CHAT, "n": 1, "service_tier": None, "modalities": ["text"]}, None),
        (CHATS, {**CHAT, "service_tier": "flex", "store": True}, "service_tier, store"),
        (CHATS, {**CHAT, "top_p": 0.5, "seed": 7}, "top_p, seed"),  # the engine has no model
        (COMPLETIONS, {**COMPLETION, "temprature": 0.2}, "temprature;meant=temperature"),
        (CHATS, {**CHAT, "max_tokenz": 5, "my_own": 1, "store": True}, MISSPELT),
        (CHATS, {**CHAT, "enable_thinking": False, "store": False, "unheard_of": None}, "enable_thinking"),
        (CHATS, {**CHAT, "detokenize": False}, "detokenize"),  # a field of completions
        (
            RESPONSES,
            {**RESPOND, "reasoning": {"effort": "low", "summary": "auto"}},
            "reasoning.effort, reasoning.summary",
        ),
        (RESPONSES, {**RESPOND, "truncation": "auto", "background": False}, "truncation"),
        (MESSAGES, {**ASK, "container": "c", "thinking": {"type": "adaptive"}}, "container"),
    ],
)
async def test_a_field_without_effect_is_named_in_a_header(
    serve: Serve, path: str, body: dict[str, Any], ignored: str | None, stream: bool
) -> None:
    client = await serve(EchoEngine())
    async with client.http.post(client.url + path, json={**body, "stream": stream}) as response:
        assert (response.status, response.headers.get(HEADER)) == (200, ignored)


async def test_an_option_of_the_stream_without_effect_is_named(serve: Serve) -> None:
    client = await serve(EchoEngine())
    events = await client.stream(CHATS, {**CHAT, "stream_options": {"include_obfuscation": True}})
    assert events.headers[HEADER] == "stream_options.include_obfuscation"


async def test_a_count_of_tokens_names_ignored_fields(serve: Serve) -> None:
    async with fake_upstream() as upstream:
        upstream.script = lambda body: web.json_response({"input_tokens": 5})
        client = await serve(MessagesEngine(upstream.url))
        body = {"messages": ASK["messages"], "speed": "fast"}
        status, _, headers = await client.post(f"{MESSAGES}/count_tokens", body)
        assert (status, headers[HEADER]) == (200, "speed")


async def test_fields_of_tools_and_blocks_of_messages_are_named(serve: Serve) -> None:
    client = await serve(EchoEngine())
    source = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
    document = {"type": "document", "source": source, "context": "c", "citations": {"enabled": True}}
    marked = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}, "citations": None}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r", "zzz": 1}]}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}}
    turns = [
        {"role": "user", "content": [document]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result, marked]},
    ]
    tool = {"name": "f", "input_schema": {"type": "object"}, "defer_loading": True}
    fields = CountFields.model_validate({"messages": turns, "tools": [tool], "system": [marked]})
    names = ["tools.defer_loading", "citations", "context", "zzz"]
    expected = ["tools", names[0], *(f"messages.content.{name}" for name in names[1:])]
    assert fields.ignored(EchoEngine().fields) == expected
    _, _, headers = await client.post(MESSAGES, {**ASK, "tools": [tool], "tool_choice": {"type": "none"}})
    assert "tools.defer_loading" in headers[HEADER].split(", ")


async def test_the_header_holds_few_names_and_no_other_text(serve: Serve) -> None:
    client = await serve(EchoEngine())
    many = {f"field_{i}": 1 for i in range(100)}
    _, _, headers = await client.post(CHATS, {**CHAT, "a b\r\nSet-Cookie: x": 1, "é": 2, "x" * 65: 3, **many})
    named = headers[HEADER].split(", ")
    assert named[:2] == ["other", "field_0"]
    assert len(named) <= MAX_NAMES + 1


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHATS, {**CHAT, "best_of": 2}, "best_of"),
        (RESPONSES, {**RESPOND, "logprobs": 2}, "logprobs"),
        (MESSAGES, {**ASK, "logprobs": True}, "logprobs"),
        (MESSAGES, {**ASK, "thread": {"type": "create"}}, "thread"),
    ],
)
async def test_a_field_that_the_endpoint_cannot_honour_is_refused(
    serve: Serve, path: str, body: dict[str, Any], field: str
) -> None:
    client = await serve(ScriptedEngine(hello))
    status, answer, _ = await client.post(path, body)
    assert status == 400
    assert field in answer["error"]["message"]


@pytest.mark.parametrize(
    ("rest", "name", "treatment"),
    [
        (Treatment.REFUSED, "audio", "refused"),
        (Treatment.REFUSED, "guided_poetry", "refused"),
        (Treatment.REFUSED, "service_tier", "ignored"),
        (Treatment.REFUSED, "unheard_of", "ignored"),
        (Treatment.REFUSED, "typical_p", "relayed"),
        (Treatment.IGNORED, "typical_p", "relayed"),
        (Treatment.REFUSED, "n_predict", "relayed"),
        (Treatment.REFUSED, "max_completion_tokens", "relayed"),
        (Treatment.IGNORED, "audio", "ignored"),
        (Treatment.IGNORED, "seed", "honoured"),
        (Treatment.IGNORED, "best_of", "refused"),
        (Treatment.IGNORED, "metadata", "honoured"),
        (Treatment.IGNORED, "stream_options.include_usage", "honoured"),
        (Treatment.IGNORED, "stream_options.unheard_of", "ignored"),
        (Treatment.IGNORED, "chat_template", "refused"),
    ],
)
def test_the_treatment_of_a_chats_fields(rest: Any, name: str, treatment: str) -> None:
    relayed = frozenset({"max_tokens", "typical_p"})
    support = FieldSupport(honoured=frozenset({"seed"}), relayed=relayed, rest=rest)
    assert ChatRequest.treatment(name, support) == treatment


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHATS, CHAT),
        (COMPLETIONS, COMPLETION),
        (RESPONSES, RESPOND),
        (MESSAGES, ASK),
        ("/v1/embeddings", {"input": "Hi"}),
    ],
)
async def test_a_guard_asked_for_as_another_gateway_has_it_is_refused(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:
    client = await serve(EchoEngine())
    status, answer, _ = await client.post(path, {**body, "guardrails": ["pii"]})
    assert status == 400
    assert answer["error"]["message"].startswith("guardrails is refused: here the field is hooks")
    status, *_ = await client.post(path, {**body, "guardrails": []})
    assert status == (501 if path == "/v1/embeddings" else 200)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["temprature"], "temprature (temperature?)"),
        (["max_token", "ann@initech.com", "hunter2", "seed"], "max_token (max_tokens?), other, seed"),
        (["temperature of Ann"], "other"),
        ([*(f"own_{i}" for i in range(5)), "temprature"], "other"),
    ],
)
def test_the_log_names_a_field_that_was_misspelt_and_none_that_a_caller_made_up(
    names: list[str], shown: str
) -> None:
    assert known_names(names) == shown
