"""The fields that endpoints share, and the names of wrong fields."""

import json
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest

from proxy.wire.openai.chat import ChatRequest, Message
from proxy.wire.openai.completions import CompletionRequest
from proxy.wire.openai.response_input import InputItem
from proxy.wire.openai.responses import ResponsesRequest
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, COMPLETION, Serve, hello, send

CHATS = "/v1/chat/completions"

COMPLETIONS = "/v1/completions"

TOOL = {"type": "function", "function": {"name": "f"}}


def test_messages_reach_the_request_as_they_came() -> None:
    messages = [
        {"role": "system", "content": "Be brief.", "name": None},
        {"role": "user", "content": [{"type": "text", "text": "Hi", "more": {"a": [1]}}, {"type": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "n": 1.0}], "reasoning": ""},
    ]
    fields = ChatRequest.model_validate({"messages": messages})
    assert [*fields.to_request("r", "m").messages] == messages


@pytest.mark.parametrize(
    ("message", "param", "reason"),
    [
        (7, "messages.0", "Input should be a valid dictionary"),
        ({"content": "Hi"}, "messages.0.role", "Field required"),
        (
            {"role": "user", "content": [{"text": "Hi"}]},
            "messages.0.content",
            "Input should be a valid string",
        ),
        ({"role": "user", "name": 7}, "messages.0.name", "Input should be a valid string"),
    ],
)
async def test_the_wrong_part_of_a_message_is_named(
    serve: Serve, message: Any, param: str, reason: str
) -> None:
    client = await serve(ScriptedEngine(hello))
    status, error = await send(client, CHATS, orjson.dumps({**CHAT, "messages": [message]}))
    assert (status, error["param"], error["message"]) == (400, param, f"{param}: {reason}")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", []),
        ("messages", "hi"),
        ("messages.0.content", 7),
        ("messages.0.role", ""),
        ("n", 0),
        ("n", 1000),
        ("max_tokens", 0),
        ("max_tokens", "ten"),
        ("max_completion_tokens", -1),
        ("temperature", -0.1),
        ("temperature", 2.5),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("min_p", 2),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("repetition_penalty", 0),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"five": 1}),
        ("logit_bias", [5]),
        ("logit_bias", {"9" * 5000: 1}),
        ("top_logprobs", 21),
        ("top_logprobs", 2),  # logprobs is missing
        ("logprobs", 3),
        ("stop", 7),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop_token_ids", [-1]),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),  # stream is missing
        ("seed", 2**70),
        ("seed", 1.5),
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),  # tools is missing
        ("tool_choice", {"type": "function", "function": {"name": "g"}}),
        ("tool_choice", "maybe"),
        ("include_stop_str_in_output", True),
        ("no_stop_trim", True),
        ("truncation_side", "right"),
        ("custom_logit_processor", "pickled"),
        ("logits_processors", ["os.system"]),
        ("chat_template", "{{ 1 }}"),
        ("chat_template_kwargs.chat_template", "{{ 1 }}"),
        # The prompt would end with another text than the lead (contract 2.8).
        ("chat_template_kwargs.truncation", True),
        ("chat_template_kwargs.max_length", 0),
        ("chat_template_kwargs.truncation_side", "right"),
        ("chat_template_kwargs.tokenizer_kwargs", {"max_length": 9}),
        ("chat_template_kwargs.eos_token", "Project Blue"),
    ],
    ids=lambda v: repr(v)[:40],
)
async def test_a_wrong_field_of_a_chat_is_named(serve: Serve, field: str, value: Any) -> None:
    client = await serve(ScriptedEngine(hello))
    body = orjson.loads(orjson.dumps({**CHAT, "tools": [TOOL]}))
    if field == "tool_choice" and value == "required":
        del body["tools"]
    at = body
    *parents, last = field.split(".")
    for key in parents:
        at = at[int(key)] if key.isdecimal() else at.setdefault(key, {})
    at[last] = value
    status, error = await send(client, CHATS, json.dumps(body).encode())
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["param"].startswith(field)
    assert (await client.post(CHATS, CHAT))[0] == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", []),
        ("prompt", 7),
        ("prompt", [1, "a"]),
        ("prompt", [[]]),
        ("prompt", [-1]),
        ("prompt", [[1, -1]]),
        ("logprobs", 21),
        ("logprobs", True),
        ("best_of", 0),
        ("best_of", 129),
        ("cache_salt", ""),
        ("cache_salt", 7),
        ("priority", 0.5),
        ("prompt", ["a"] * 5000),
        ("suffix", 5),
        ("echo", "yes"),
        ("max_tokens", -1),
    ],
    ids=lambda v: repr(v)[:40],
)
async def test_a_wrong_field_of_a_completion_is_named(serve: Serve, field: str, value: Any) -> None:
    client = await serve(ScriptedEngine(hello))
    status, error = await send(client, COMPLETIONS, orjson.dumps({**COMPLETION, field: value}))
    assert status == 400
    assert error["param"].startswith(field)


def test_every_endpoint_shares_the_fields_of_a_generation() -> None:
    shared: dict[str, Any] = {
        "temperature": 0.5,
        "top_k": -1,
        "stop": "END",
        "logit_bias": {"17": -100.0},
        "logits_processors": [{"name": "p", "params": {"a": 1}}],
        "cache_salt": "tenant",
        "priority": 3,
        "hooks": ["a", "b", "a"],
        "user": "u",
        "metadata": {"k": "v"},
        "stream": True,
        "return_tokens_as_token_ids": True,
        "unknown": 1,
    }
    requests = [
        ChatRequest(messages=[Message(role="user", content="Hi")], max_tokens=16, **shared).to_request(
            "r", "m"
        ),
        CompletionRequest(prompt="Hi", **shared).to_request("r", "m"),
        ResponsesRequest(input=cast(Any, "Hi"), max_output_tokens=16, **shared).to_request(
            "r", "m", [InputItem(role="user", content=cast(Any, "Hi"))]
        ),
    ]
    assert [request.endpoint for request in requests] == ["chat", "completions", "responses"]
    assert requests[0].sampling.stop == ("END",)
    assert requests[0].sampling.top_k == 0
    assert (requests[0].hooks, requests[0].extra) == (("a", "b"), {"unknown": 1})
    own: dict[str, Any] = {"endpoint": "chat", "messages": (), "prompts": (), "given": frozenset()}
    assert replace(requests[0], **own) == replace(requests[1], **own) == replace(requests[2], **own)
