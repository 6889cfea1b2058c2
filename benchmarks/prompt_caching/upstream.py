"""A server of the Messages API and of chats that answers every prompt with two words, and counts its cache's
hits."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from aiohttp import web

from benchmarks.prompt_caching.cache import MarkedCache, PrefixCache


class Upstream:
    def __init__(self) -> None:
        self.prefixes, self.marks = PrefixCache(), MarkedCache()
        self.num_requests = 0

    def app(self) -> web.Application:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_post("/v1/messages", self._messages)
        application.router.add_post("/v1/chat/completions", self._chat)
        application.router.add_get("/v1/models", self._models)
        return application

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    async def _read(self, http: web.Request) -> dict[str, Any]:
        body: dict[str, Any] = orjson.loads(await http.read())
        self.prefixes.read(body)
        self.num_requests += 1
        return body

    async def _messages(self, http: web.Request) -> web.StreamResponse:
        usage = {**self.marks.usage(await self._read(http)), "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []}
        text = {"type": "text_delta", "text": "Well done."}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": text},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ]
        return await _streamed(
            http, [f"event: {one['type']}\ndata: {orjson.dumps(one).decode()}" for one in events]
        )

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        await self._read(http)
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
        choice = {"index": 0, "delta": {"content": "Well done."}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        events = [{**chunk, "choices": [choice]}, {**chunk, "choices": [], "usage": usage}]
        return await _streamed(
            http, [*(f"data: {orjson.dumps(one).decode()}" for one in events), "data: [DONE]"]
        )


async def _streamed(http: web.Request, events: list[str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(http)
    for event in events:
        await response.write(f"{event}\n\n".encode())
    return response


@contextmanager
def serving(app: web.Application) -> Iterator[str]:
    """The URL of a server that runs on a thread meanwhile."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
