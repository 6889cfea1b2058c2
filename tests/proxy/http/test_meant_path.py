"""A client whose address lacks `/v1`, or has one too many, is told so, in its own shape of errors."""

from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic import NotFoundError as AnthropicNotFound
from openai import AsyncOpenAI, NotFoundError

from engine.upstream.echo import EchoEngine
from tests.proxy.conftest import Serve

AT_END = "Clients of OpenAI's API take this server's address with /v1 at its end."
ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/chat/completions", f" Did you mean /v1/chat/completions? {AT_END}"),
        ("/completions/", f" Did you mean /v1/completions? {AT_END}"),
        ("/models/m", f" Did you mean /v1/models/{{id}}? {AT_END}"),
        (
            "/v1/v1/chat/completions",
            " Did you mean /v1/chat/completions? The client takes this server's address with one /v1.",
        ),
        ("/v1/v1/", ""),
        ("/v1/chat/complétions", ""),
        ("/v1/models/", ""),
        ("/chat/completions/sk-hunter2", ""),
        ("/", ""),
    ],
)
async def test_the_error_names_the_path_that_was_meant(serve: Serve, path: str, hint: str) -> None:
    client = await serve(EchoEngine(), page=False)
    status, body, _ = await client.post(path, ASK)
    assert status == 404
    assert body["error"]["message"] == f"There is no such path.{hint}"
    assert body["error"]["type"] == "not_found_error"


async def test_a_client_of_openai_without_the_version_is_told(serve: Serve) -> None:
    client = await serve(EchoEngine())
    async with AsyncOpenAI(base_url=client.url, api_key="k", max_retries=0) as openai:
        with pytest.raises(NotFoundError, match="Did you mean /v1/chat/completions"):
            await openai.chat.completions.create(**ASK)


@pytest.mark.parametrize("key", ["k", None])
async def test_a_client_of_the_messages_api_with_the_version_is_told_in_its_shape(
    serve: Serve, key: str | None
) -> None:
    """Its key comes as this API has it: the hint must not be hidden behind a refusal of the key."""
    client = await serve(EchoEngine(), **({"api_key": [key]} if key else {}))
    async with AsyncAnthropic(base_url=f"{client.url}/v1", api_key="k", max_retries=0) as anthropic:
        with pytest.raises(AnthropicNotFound) as raised:
            await anthropic.messages.create(max_tokens=5, **ASK)
    body: Any = raised.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    hint = "Did you mean /v1/messages? Clients of the Messages API take this server's address without /v1."
    assert body["error"]["message"] == f"There is no such path. {hint}"


async def test_the_port_of_the_operator_knows_no_path_of_clients(serve: Serve) -> None:
    client = await serve(EchoEngine(), admin_port=0)
    admin = client.server.admin_url
    async with client.http.post(f"{admin}/chat/completions", json=ASK) as response:
        assert (await response.json())["error"]["message"] == "There is no such path."


async def test_no_answer_names_the_libraries_that_serve_it(serve: Serve) -> None:
    client = await serve(EchoEngine())
    for path in ("/v1/chat/completions", "/nowhere", "/"):
        async with client.http.post(client.url + path, json=ASK) as response:
            assert response.headers["Server"] == "Weir"
    stream = await client.stream("/v1/chat/completions", ASK)
    assert stream.headers["Server"] == "Weir"
