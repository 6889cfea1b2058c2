"""Every error is an error object with the right status, and the server works on."""

import asyncio
import json
from typing import Any

import orjson
import pytest

from engine.protocol import Delta, EngineError, QueueFullError, RequestError
from tests.helpers import ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, COMPLETION, Client, Serve

CHATS = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
TOOL = {"type": "function", "function": {"name": "f"}}


def hello(request: Any) -> list[Delta]:
    return make_deltas(["Hello"])


async def send(client: Client, path: str, data: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    async with client.http.post(client.url + path, data=data, headers=headers) as response:
        body = orjson.loads(await response.read())
        assert list(body) == ["error"]
        assert list(body["error"]) == ["message", "type", "param", "code"]
        return response.status, body["error"]


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
        ("top_logprobs", 2),  # without logprobs
        ("logprobs", 3),
        ("stop", 7),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop_token_ids", [-1]),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),  # without stream
        ("seed", 2**70),
        ("seed", 1.5),
        ("tools", [{"type": "function"}]),
        ("tools", [{"type": "other"}]),
        ("tool_choice", "required"),  # without tools
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
async def test_what_a_chats_caller_got_wrong_is_named(serve: Serve, field: str, value: Any) -> None:
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
async def test_what_a_completions_caller_got_wrong_is_named(serve: Serve, field: str, value: Any) -> None:
    client = await serve(ScriptedEngine(hello))
    status, error = await send(client, COMPLETIONS, orjson.dumps({**COMPLETION, field: value}))
    assert status == 400
    assert error["param"].startswith(field)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'"text"', 400),
        (b"null", 400),
        (b'{"messages": "\xff"}', 400),
        (b'{"temperature": NaN}', 400),
        (b"[" * 100_000, 400),
        (orjson.dumps(CHAT)[:-1] + b',"x":' + b"[" * 900 + b"]" * 900 + b"}", 400),
        (b'{"model": "m"}', 400),
    ],
    ids=lambda v: repr(v)[:30],
)
async def test_a_body_that_is_no_request_is_the_callers_fault(serve: Serve, data: bytes, status: int) -> None:
    client = await serve(ScriptedEngine(hello))
    assert (await send(client, CHATS, data))[0] == status
    assert (await client.post(CHATS, CHAT))[0] == 200


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml"]
)
async def test_another_content_type_is_refused(serve: Serve, content_type: str) -> None:
    client = await serve(ScriptedEngine(hello))
    status, _ = await send(client, CHATS, orjson.dumps(CHAT), Content_Type=content_type)
    assert status == 415


async def test_json_with_a_charset_is_read(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    headers = {"Content-Type": "application/json; charset=utf-8"}
    async with client.http.post(client.url + CHATS, data=orjson.dumps(CHAT), headers=headers) as response:
        assert response.status == 200


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br", "snappy"])
async def test_an_encoding_it_cannot_read_is_refused(serve: Serve, encoding: str) -> None:
    client = await serve(ScriptedEngine(hello))
    status, _ = await send(client, CHATS, b"\x00\x01", Content_Encoding=encoding)
    assert status == 415


async def test_a_body_over_the_limit_is_refused(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), max_body_size=1000)
    long = {**CHAT, "messages": [{"role": "user", "content": "x" * 2000}]}
    assert (await send(client, CHATS, orjson.dumps(long)))[0] == 413
    assert (await client.post(CHATS, CHAT))[0] == 200


async def test_unknown_models_and_paths_and_methods(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    status, error = await send(client, CHATS, orjson.dumps({**CHAT, "model": "other"}))
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert (await send(client, "/v1/nothing", b"{}"))[0] == 404
    async with client.http.get(client.url + CHATS) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert orjson.loads(await response.read())["error"]["message"]
    assert (await client.get("/v1/models/other"))[0] == 404


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (
            RequestError("maximum context length is 9 tokens", param="messages"),
            400,
            "invalid_request_error",
        ),
        (QueueFullError(), 429, "rate_limit_error"),
        (EngineError("gone", status=503), 503, "server_error"),
        (EngineError("upstream broke", status=502), 502, "server_error"),
        (RuntimeError("internal detail"), 500, "server_error"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Exception) else "",
)
async def test_a_failure_before_the_first_event_has_a_status(
    serve: Serve, stream: bool, error: Exception, status: int, kind: str
) -> None:
    client = await serve(ScriptedEngine(lambda r: [error]))
    got, body, headers = await client.post(CHATS, {**CHAT, "stream": stream})
    assert (got, body["error"]["type"]) == (status, kind)
    assert "internal detail" not in str(body)
    assert ("Retry-After" in headers) == (status in (429, 503))


async def test_an_engine_failure_after_the_first_event_is_one_error_event_and_done(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda r: [Delta(text="a"), EngineError("gone", status=503)]))
    stream = await client.stream(CHATS, CHAT)
    assert stream.content() == "a"
    assert stream.events[-2:] == [
        (
            "error",
            {"error": {"message": "gone", "type": "server_error", "param": None, "code": None}},
        ),
        (None, "[DONE]"),
    ]
    assert [name for name, _ in stream.events].count("error") == 1


async def test_the_key_is_checked_everywhere_but_on_health_and_ready(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), api_key=["k1", "k2"])
    for path in ("/v1/models", "/metrics", "/version", "/openapi.json", "/nothing"):
        assert (await client.get(path))[0] == 401
    assert (await send(client, CHATS, orjson.dumps(CHAT)))[0] == 401
    for wrong in ("Bearer k3", "Bearer ", "Basic k1", "k1", "Bearer k\u00e91"):
        assert (await send(client, CHATS, orjson.dumps(CHAT), Authorization=wrong))[0] == 401
    for path in ("/health", "/ready"):
        assert (await client.get(path))[0] == 200
    for key in ("k1", "k2"):
        status, _, _ = await client.post(CHATS, CHAT, headers={"Authorization": f"Bearer {key}"})
        assert status == 200


async def test_a_silent_stream_is_kept_alive_by_comments(serve: Serve) -> None:
    go = asyncio.Event()
    client = await serve(ScriptedEngine(lambda r: [go, *hello(r)]), keep_alive_interval=0.02)
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        assert response.status == 200
        assert await response.content.readline() == b": keep-alive\n"
        go.set()
        rest = await response.read()
    assert rest.endswith(b"data: [DONE]\n\n")
    assert b'"content":"Hello"' in rest
