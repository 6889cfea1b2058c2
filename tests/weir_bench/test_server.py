"""A client asks a server for its models."""

from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.weir_bench import conftest
from tests.weir_bench.conftest import Scripted, hello
from weir_bench.server import NoModelError, error_message, first_model


async def test_the_first_model_is_the_default(scripted: Scripted) -> None:
    server = await scripted(hello)
    async with aiohttp.ClientSession() as session:
        assert await first_model(session, server.url) == "first"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, {"error": {"message": "A key is needed."}}, "401: A key is needed."),
        (200, {"data": []}, "the server names no models"),
        (200, [], "the server names no models"),
    ],
)
async def test_a_server_without_models_is_refused(
    monkeypatch: pytest.MonkeyPatch, scripted: Scripted, status: int, body: Any, message: str
) -> None:
    async def models(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    monkeypatch.setattr(conftest, "models", models)
    server = await scripted(hello)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(NoModelError, match=message):
            await first_model(session, server.url)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"error": "text"}', b"[]"])
def test_an_error_without_a_message_has_a_general_one(body: bytes) -> None:
    assert error_message(body) == "no reason given"
