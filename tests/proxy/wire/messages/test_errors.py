"""Errors, keys, models and counts for clients of the Messages API."""

from dataclasses import replace
from typing import Any

import anthropic
import pytest

from engine.protocol import EngineError, GenerationRequest, QueueFullError, RequestError
from hooks import emit
from proxy.wire.messages.errors import error_body
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Serve
from tests.proxy.wire.messages.conftest import ASK, PATH, saying

VERSION = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("no", param="messages"), 400, "invalid_request_error"),
        (RequestError("no", status=404), 404, "not_found_error"),
        (QueueFullError(), 429, "rate_limit_error"),
        (EngineError("no"), 500, "api_error"),
        (EngineError("no", status=503), 529, "overloaded_error"),
        (EngineError("no", status=504), 504, "timeout_error"),
    ],
)
async def test_an_error_has_the_apis_shape_and_status(
    serve: Serve, error: Exception, status: int, kind: str
) -> None:
    client = await serve(ScriptedEngine(lambda r: [error]))
    for stream in (False, True):
        found, body, headers = await client.post(PATH, {**ASK, "stream": stream})
        assert (found, body["type"], body["error"]["type"]) == (status, "error", kind)
        assert headers["request-id"] == body["request_id"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", PATH, 405), ("POST", f"{PATH}/batches", 404)])
async def test_errors_of_the_paths_have_the_shape_too(
    serve: Serve, method: str, path: str, status: int
) -> None:
    client = await serve(saying("Hello"))
    async with client.http.request(method, client.url + path, json={}) as response:
        assert response.status == status
        assert (await response.json())["type"] == "error"


async def test_errors_of_other_paths_keep_theirs(serve: Serve) -> None:
    client = await serve(saying("Hello"))
    status, body, _ = await client.post("/v1/chat/completions", {**CHAT, "n": 0})
    assert (status, list(body)) == (400, ["error"])


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "This model's maximum context length is 100 tokens. However, you requested 150 tokens (120 in "
            "the messages, 30 in the completion). Please reduce the length of the messages or completion.",
            "prompt is too long: 120 tokens > 100 maximum",
        ),
        (
            "This model's maximum context length is 100 tokens. However, you requested 110 tokens (80 in the "
            "messages, 30 in the completion). Please reduce the length of the messages or completion.",
            "input length and `max_tokens` exceed context limit: 80 + 30 > 100",
        ),
        (
            "This model's maximum context length is 100 tokens. However, your messages have 120 tokens.",
            "prompt is too long: 120 tokens > 100 maximum",
        ),
        ("The engine has failed.", "The engine has failed."),
        ("Too long.", "prompt is too long: Too long."),
        (
            "This model's maximum context length is 100 tokens. However, the request is longer, as the "
            "upstream engine says: You passed 120 input tokens. However, its context length is 100 tokens.",
            "prompt is too long: 120 tokens > 100 maximum",
        ),
        (
            "This model's maximum context length is 100 tokens. However, the request is longer, as the "
            "upstream engine says: input length and `max_tokens` exceed context limit: 80 + 30 > 100",
            "input length and `max_tokens` exceed context limit: 80 + 30 > 100",
        ),
    ],
)
def test_a_prompt_that_is_too_long_is_told_in_words_that_clients_look_for(message: str, told: str) -> None:
    code = "context_length_exceeded" if "engine says" in message or message == "Too long." else None
    error = {"type": "invalid_request_error", "message": message, "param": None, "code": code}
    assert error_body(error, "r")["error"]["message"] == told


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-api-key": "right"}, 200),
        ({"Authorization": "Bearer right"}, 200),
        ({"x-api-key": "wrong", "Authorization": "Bearer right"}, 401),
        ({"x-api-key": "right", "Authorization": "Bearer wrong"}, 200),
    ],
)
async def test_a_key_comes_in_either_header(serve: Serve, headers: dict[str, str], status: int) -> None:
    client = await serve(saying("Hello"), api_key=["right"])
    found, body, _ = await client.post(PATH, ASK, headers=headers)
    assert found == status, body
    if status == 401:
        assert body["error"]["type"] == "authentication_error"


async def test_other_paths_take_no_such_key(serve: Serve) -> None:
    client = await serve(saying("Hello"), api_key=["right"])
    assert (await client.post("/v1/chat/completions", CHAT, headers={"x-api-key": "right"}))[0] == 401


async def test_models_have_the_shape_of_their_client(serve: Serve, sdk: Any) -> None:
    client = await serve(saying("Hello"), names=["m", "other"])
    page = await sdk(client).models.list()
    assert [model.id for model in page.data] == ["m", "other"]
    assert (page.has_more, page.first_id, page.last_id) == (False, "m", "other")
    assert (await sdk(client).models.retrieve("other")).display_name == "other"
    with pytest.raises(anthropic.NotFoundError):
        await sdk(client).models.retrieve("none")
    _, body = await client.get("/v1/models")
    assert b'"object":"list"' in body


class Counting:
    """A tokenizer that counts words."""

    def encode_chat(self, request: GenerationRequest) -> list[int]:
        return [0 for message in request.messages for _ in message["content"].split()]

    def encode(self, text: str, **_: Any) -> list[int]:
        return []

    def decode(self, ids: Any) -> str:
        return ""

    def raw(self, token_id: int) -> bytes:
        return b""


class Cutting:
    """A hook that changes the prompt."""

    def __call__(self, chunk: Any) -> Any:
        return emit(chunk.pending)

    def on_request(self, request: GenerationRequest) -> GenerationRequest:
        one = ({"role": "user", "content": "one"},)
        return replace(request, messages=one) if request.messages else request


@pytest.mark.parametrize(("hooks", "count"), [((), 4), ((Cutting(),), 1)])
async def test_the_tokens_counted_are_those_that_would_be_sent(
    serve: Serve, sdk: Any, hooks: tuple[Any, ...], count: int
) -> None:
    engine = saying("Hello")
    engine.tokenizer = Counting()  # type: ignore[assignment]
    client = await serve(engine, *hooks)
    counted = await sdk(client).messages.count_tokens(
        model="m", system="Be brief", messages=[{"role": "user", "content": "Hi there"}]
    )
    assert counted.input_tokens == count
    assert not engine.requests


@pytest.mark.parametrize(("hooks", "count"), [((), 100), ((Cutting(),), 1)])
async def test_a_count_without_a_tokenizer_is_an_estimate_that_says_so(
    serve: Serve, hooks: tuple[Any, ...], count: int
) -> None:
    client = await serve(saying("Hello"), *hooks)
    fields = {"model": "m", "messages": [{"role": "user", "content": "four" * 100}]}
    status, body, headers = await client.post(f"{PATH}/count_tokens", fields)
    assert (status, body) == (200, {"input_tokens": pytest.approx(count, rel=0.1)})
    assert headers["X-Weir-Estimated"] == "input_tokens"
