"""A server with the page and answers that a test scripts, event by event. It runs in a thread of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from aiohttp import web

from proxy.http.page.files import add_page
from proxy.wire.openai.answer import DONE, event
from tests.processes import WAIT_LIMIT

Script = Callable[["Wire"], Awaitable[None]]

DECISION = {
    "time": "2026-01-01T12:00:00.000Z",
    "request_id": "chatcmpl-1",
    "tenant": "default",
    "key": "anonymous",
    "policy": "default",
    "model": "m",
    "endpoint": "chat",
    "user": None,
    "hook": "pii",
    "action": "redact",
    "reason": None,
    "mode": "enforce",
    "output_index": 0,
    "channel": "content",
    "tool_name": None,
    "offset": 0,
    "num_withheld": 0,
    "num_released": 0,
    "held_seconds": 0.0,
}


class Wire:
    """One streamed answer."""

    def __init__(self, response: web.StreamResponse, body: dict[str, Any]) -> None:
        self._response = response
        self.body = body
        """The request."""

    async def text(self, text: str, channel: str = "content") -> None:
        await self.chunk({"reasoning_content" if channel == "reasoning" else channel: text})

    async def chunk(self, delta: dict[str, Any], **choice: Any) -> None:
        chunk = {
            "id": "chatcmpl-1",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None, **choice}],
        }
        await self._response.write(event(orjson.dumps(chunk)))

    async def decision(self, **fields: Any) -> None:
        await self._response.write(event(orjson.dumps(DECISION | fields), "weir.decision"))

    async def held(self, num: int, hook: str = "pii") -> None:
        told = {"output_index": 0, "channel": "content", "num_held": num, "hook": hook}
        await self._response.write(event(orjson.dumps(told), "weir.held"))

    async def end(self, reason: str = "stop") -> None:
        await self.chunk({}, finish_reason=reason)
        await self._response.write(DONE)

    async def error(self, message: str, kind: str = "guardrail_error") -> None:
        error = {"error": {"message": message, "type": kind, "param": None, "code": None}}
        await self._response.write(event(orjson.dumps(error), "error") + DONE)

    def cut(self) -> None:
        """Close the connection in the middle of the answer."""
        transport = self._response._req.transport
        assert transport is not None
        transport.close()


class FakeServer:
    """`script` answers each chat; `refusal` refuses one instead, with a status, an error and headers."""

    def __init__(self) -> None:
        self.url = ""
        self.script: Script | None = None
        self.refusal: Callable[[web.Request], tuple[int, dict[str, Any], dict[str, str]] | None] = lambda _: (
            None
        )
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.closed = threading.Event()
        """An answer's client has left."""

    async def chat(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        self.bodies.append(body)
        self.headers.append(dict(http.headers))
        if (refused := self.refusal(http)) is not None:
            status, error, headers = refused
            return web.json_response(error, status=status, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        assert self.script is not None
        try:
            await self.script(Wire(response, body))
        except (ConnectionError, asyncio.CancelledError):
            self.closed.set()
            raise
        return response

    def app(self) -> web.Application:
        app = web.Application()
        add_page(app)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/admin/explain", self._explain)
        return app

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m"}, {"id": "other"}]})

    async def _explain(self, _: web.Request) -> web.Response:
        hooks = [{"name": "pii", "mode": "enforce"}, {"name": "trial", "mode": "shadow"}]
        allowed = [{"name": "repetition", "mode": "enforce"}]
        return web.json_response({"policy": "strict", "hooks": hooks, "allowed_hooks": allowed})


@contextmanager
def running(fake: FakeServer) -> Iterator[FakeServer]:
    loop = asyncio.new_event_loop()
    started = threading.Event()
    runner = web.AppRunner(fake.app(), handler_cancellation=True, shutdown_timeout=0)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        started.set()

    def run() -> None:
        loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(10)
        yield fake
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_LIMIT)
