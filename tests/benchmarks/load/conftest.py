"""A scripted server on a real socket, and records made by hand."""

from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web

from benchmarks.load.client import RequestRecord

DONE = b"data: [DONE]\n\n"
Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def chat_frames(
    texts: Iterable[str], *, finish: str | None = "stop", num_tokens: int | None = None
) -> list[bytes]:
    """The stream of a chat as servers write it: role, texts, finish, usage, end."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": t} for t in texts)]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    frames = [frame(chunk) for chunk in chunks]
    if num_tokens is not None:
        frames.append(frame({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": num_tokens}}))
    return [*frames, DONE]


async def stream(request: web.Request, frames: Iterable[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for data in frames:
        await response.write(data)
    await response.write_eof()
    return response


class ScriptedServer:
    """Answers every request with `answer`. Counts the open requests."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[Any] = []
        self.num_open = 0
        self.most_open = 0
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        self.bodies.append(body)
        self.paths.append(request.path)
        self.headers.append(request.headers)
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        try:
            return await self.answer(request, body)
        finally:
            self.num_open -= 1


@asynccontextmanager
async def listening(server: ScriptedServer) -> AsyncIterator[ScriptedServer]:
    app = web.Application()
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


Scripted = Callable[[Answer], Awaitable[ScriptedServer]]


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    """`await scripted(answer)` starts a server, which runs until the test ends."""
    async with AsyncExitStack() as stack:

        async def start(answer: Answer) -> ScriptedServer:
            return await stack.enter_async_context(listening(ScriptedServer(answer)))

        yield start


async def hello(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return await stream(request, chat_frames(["Hel", "lo", "!"], num_tokens=6))


def make_record(*times: float, sent: float = 0.0, ended: float | None = None, **fields: Any) -> RequestRecord:
    """The record of a request whose chunks with text arrived at `times`."""
    return RequestRecord(
        sent=sent,
        times=array("d", times),
        ended=ended if ended is not None else max(times, default=sent),
        **fields,
    )
