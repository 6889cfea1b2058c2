"""A hostile upstream: its answers are whole, cut, damaged, slow, packed, or at odds with themselves."""

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
from aiohttp import web

from tools.abuse.soak.traffic import SECRET

WORDS = f"the otter says {SECRET} to the water and then {SECRET} again".split(" ")


def _token(text: str, raw: bytes | None = None) -> dict[str, Any]:
    data = list(text.encode() if raw is None else raw)
    top = [{"token": text, "logprob": -0.1, "bytes": data}]
    return {"token": text, "logprob": -0.1, "bytes": data, "top_logprobs": top}


class Upstream:
    """The server. It draws from `rng` how it treats a request."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.url = ""

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "upstream", "max_model_len": 4096}]})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        is_chat = request.path.endswith("/chat/completions")
        fault = self.rng.choice(("none",) * 8 + ("error", "bomb", "cut", "garbage", "slow", "odds", "usage"))
        if fault == "error":
            return web.json_response({"error": {"message": f"broken: {SECRET}"}}, status=500)
        if fault == "bomb":
            packed = gzip.compress(b" " * 30_000_000, 1)
            return web.Response(body=packed, status=500, headers={"Content-Encoding": "gzip"})
        if not body.get("stream"):
            return web.json_response({"choices": [], "usage": None} if fault != "none" else _whole(is_chat))
        return await self._stream(request, fault, is_chat)

    async def _stream(self, request: web.Request, fault: str, is_chat: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionError):
            for number, word in enumerate(WORDS):
                if number == len(WORDS) // 2 and fault in ("cut", "garbage"):
                    if fault == "cut":
                        assert request.transport
                        request.transport.abort()
                        return response
                    await response.write(b'data: {"choices": [{"index": "no"\n\ndata: \xff\xfe\n\n')
                text = word if number == 0 else f" {word}"
                odd = fault == "odds" and number % 3 == 0
                token = _token(SECRET, f"{SECRET}\xff".encode("latin-1", "replace")) if odd else _token(text)
                await response.write(_event(_frame(is_chat, text, token)))
                await asyncio.sleep(0.2 if fault == "slow" else 0)
            await response.write(_event(_frame(is_chat, "", None, "stop")))
            count = self.rng.choice((-5, 2**70, 1.5, "many")) if fault == "usage" else 5
            usage = {"prompt_tokens": count, "completion_tokens": count, "total_tokens": count}
            await response.write(_event({"id": "u", "choices": [], "usage": usage}))
            await response.write(b"data: [DONE]\n\n")
        return response


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _frame(
    is_chat: bool, text: str, token: dict[str, Any] | None, finish: str | None = None
) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if is_chat:
        choice |= {"delta": {"content": text}, "logprobs": {"content": [token]} if token else None}
    else:
        choice |= {"text": text, "logprobs": None}
    return {"id": "u", "object": "chunk", "model": "upstream", "choices": [choice]}


def _whole(is_chat: bool) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    text = " ".join(WORDS)
    choice |= {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
    return {"id": "u", "model": "upstream", "choices": [choice], "usage": None}


@asynccontextmanager
async def listening(seed: int) -> AsyncIterator[Upstream]:
    upstream = Upstream(seed)
    app = web.Application()
    app.router.add_get("/v1/models", upstream.models)
    handler: Callable[[web.Request], Any] = upstream.answer
    app.router.add_post("/v1/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    upstream.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield upstream
    finally:
        await runner.cleanup()
