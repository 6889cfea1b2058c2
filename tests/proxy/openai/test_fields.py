"""Wrong fields of a request are named."""

import json
from typing import Any

import orjson
import pytest

from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, COMPLETION, Serve, hello, send

CHATS = "/v1/chat/completions"

COMPLETIONS = "/v1/completions"

TOOL = {"type": "function", "function": {"name": "f"}}


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
        ("tools", [{"type": "other"}]),
        ("tool_choice", "required"),  # tools is missing
        ("tool_choice", {"type": "function", "function": {"name": "g"}}),
        ("tool_choice", "maybe"),
        ("include_stop_str_in_output", True),
        ("no_stop_trim", True),
        ("custom_logit_processor", "pickled"),
        ("logits_processors", ["os.system"]),
        ("chat_template", "{{ 1 }}"),
        ("chat_template_kwargs.chat_template", "{{ 1 }}"),
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
        ("suffix", "x"),
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
