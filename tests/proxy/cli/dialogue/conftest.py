"""A server whose answers are scripts of events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from proxy.cli.dialogue.client import ChatClient

WAIT = object()
"""In a script: nothing more comes until the client leaves."""
CUT = object()
"""In a script: the connection breaks."""


def delta(finish_reason: str | None = None, stop_reason: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": fields, "finish_reason": finish_reason, "stop_reason": stop_reason}
    return frame({"choices": [choice]})


def frame(value: Any, event: str = "") -> bytes:
    kind = f"event: {event}\n" if event else ""
    return kind.encode() + b"data: " + orjson.dumps(value) + b"\n\n"


def answer(*texts: str) -> list[Any]:
    return [*(delta(content=text) for text in texts), delta("stop"), b"data: [DONE]\n\n"]


def error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


class FakeServer:
    """Answers each request by the next script: a list of frames, or a status with a message."""

    def __init__(self) -> None:
        self.scripts: list[list[Any] | tuple[int, str]] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.left = asyncio.Event()
        """A client left before its answer's end."""
        self.url = ""

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "first"}, {"id": "second"}]})

    async def chat(self, http: web.Request) -> web.StreamResponse:
        self.requests.append(await http.json())
        self.headers.append(dict(http.headers))
        script = self.scripts.pop(0) if self.scripts else answer("ok")
        if isinstance(script, tuple):
            status, message = script
            return web.json_response(error(message), status=status)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        for step in script:
            if step is CUT:
                assert http.transport
                http.transport.close()
                return response
            if step is WAIT:
                try:
                    await asyncio.Event().wait()
                finally:
                    self.left.set()
            await response.write(step)
        return response

    @property
    def messages(self) -> list[tuple[str, str]]:
        """Role and content of the messages of the latest request."""
        return [(message["role"], message["content"]) for message in self.requests[-1]["messages"]]


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    app = web.Application()
    app.router.add_get("/v1/models", fake.models)
    app.router.add_post("/v1/chat/completions", fake.chat)
    async with TestServer(app) as running:
        fake.url = str(running.make_url("/v1"))
        yield fake


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[Callable[..., ChatClient]]:
    async with aiohttp.ClientSession() as session:

        def make(**options: Any) -> ChatClient:
            return ChatClient(session, server.url, **options)

        yield make
