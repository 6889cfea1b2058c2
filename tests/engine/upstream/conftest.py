"""A scripted upstream on a real socket. It speaks vLLM's dialect, and the Messages API."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web

Frame = bytes | dict[str, Any] | float | str
"""Bytes as they are; an event's JSON; seconds to wait; or "hang", "cut"."""

Script = Callable[[dict[str, Any]], Iterable[Frame] | web.Response]
"""Makes the answer to a body."""


def vllm(
    body: dict[str, Any], reply: str = " well the answer is this and no other", delay: float = 0
) -> Iterator[Frame]:
    """The stream of a vLLM whose model always says `reply`, again and again under `ignore_eos`."""
    is_chat = "messages" in body
    prompts = body.get("prompt", "")
    prompts = prompts if isinstance(prompts, list) and not isinstance(prompts[0], int) else [prompts]
    n = body.get("n", 1)
    words = words_of(reply)
    limit = body.get("max_tokens", len(words))
    if body.get("ignore_eos"):
        words *= limit // len(words) + 1
    words = words[:limit]
    for step in range(max(1, len(words))):
        for index in range(len(prompts) * n):
            prompt = prompts[index // n]
            prompt_words = words_of(prompt) if isinstance(prompt, str) else [f" {i}" for i in prompt]
            new = words[step : step + 1]
            choice: dict[str, Any] = {"index": index, "finish_reason": None, "stop_reason": None}
            told = new
            if body.get("echo") and step == 0:
                told = prompt_words + new
            if body.get("logprobs") is not None and not is_chat:
                numbers: list[float | None] = [-0.5] * len(told)
                if len(told) > 1:
                    numbers[0] = None
                tops = [x and {w: x, "?": -2.0} for w, x in zip(told, numbers, strict=True)]
                choice["logprobs"] = {"tokens": told, "token_logprobs": numbers, "top_logprobs": tops}
            if body.get("logprobs") and is_chat:
                choice["logprobs"] = {"content": [chat_logprob(w, body.get("top_logprobs", 0)) for w in new]}
            if body.get("return_token_ids"):
                choice["token_ids"] = [len(w) for w in new]
                choice["prompt_token_ids"] = [len(w) for w in prompt_words] if step == 0 else None
            if step + 1 >= len(words):
                choice["finish_reason"] = "length" if limit == len(words) else "stop"
            text = "".join(told)
            yield {"choices": [choice | ({"delta": {"content": text}} if is_chat else {"text": text})]}
        if delay:
            yield delay
    counts = {"prompt_tokens": 7, "completion_tokens": len(words) * len(prompts) * n, "total_tokens": 0}
    yield {"choices": [], "usage": counts}
    yield b"data: [DONE]\n\n"


def messages_api(
    body: dict[str, Any], reply: str = " well the answer is this and no other", delay: float = 0
) -> Iterator[Frame]:
    """The stream of a Messages API whose model says `reply` again and again, up to `max_tokens`."""
    words = words_of(reply)
    limit = body["max_tokens"]
    words = (words * (limit // len(words) + 1))[:limit]
    counts = {"input_tokens": 5, "cache_read_input_tokens": 2, "cache_creation_input_tokens": None}
    usage = {**counts, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    yield {"type": "ping"}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for word in words:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
        if delay:
            yield delay
    yield {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": "max_tokens", "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": len(words)}}
    yield {"type": "message_stop"}


def words_of(text: str) -> list[str]:
    return re.findall(r" ?\S+|\s", text)


def chat_logprob(word: str, num_top: int) -> dict[str, Any]:
    def entry(token: str, logprob: float) -> dict[str, Any]:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}

    return entry(word, -0.5) | {"top_logprobs": [entry(word, -0.5), entry("?", -2.0)][:num_top]}


def event_of(frame: Any) -> bytes:
    """The event of a frame's JSON. Those of the Messages API have names."""
    name = b"event: %b\n" % frame["type"].encode() if "type" in frame else b""
    return name + b"data: %b\n\n" % orjson.dumps(frame)


class FakeUpstream:
    def __init__(self) -> None:
        self.script: Script = vllm
        self.models: list[dict[str, Any]] = [{"id": "m", "max_model_len": 4096}]
        self.list_fields: dict[str, Any] = {"object": "list"}
        self.health = 200
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.connections: set[Any] = set()
        self.has_lost_client = asyncio.Event()
        self.url = ""

    async def tell_health(self, request: web.Request) -> web.Response:
        return web.Response(status=self.health)

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": self.models, **self.list_fields})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(orjson.loads(await request.read()))
        self.headers.append(dict(request.headers))
        self.connections.add(request.transport)
        frames = self.script(self.bodies[-1])
        if isinstance(frames, web.Response):
            return frames
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            for frame in frames:
                if isinstance(frame, float):
                    await asyncio.sleep(frame)
                elif frame == "hang":
                    await asyncio.Event().wait()
                elif frame == "cut":
                    assert request.transport
                    request.transport.abort()
                else:
                    await response.write(frame if isinstance(frame, bytes) else event_of(frame))
        except (asyncio.CancelledError, ConnectionError):
            self.has_lost_client.set()
            raise
        return response


@asynccontextmanager
async def fake_upstream(port: int = 0) -> AsyncIterator[FakeUpstream]:
    """A fake that listens on the port. 0: a free one."""
    fake = FakeUpstream()
    app = web.Application()
    app.router.add_get("/health", fake.tell_health)
    app.router.add_get("/v1/models", fake.list_models)
    app.router.add_post("/v1/chat/completions", fake.answer)
    app.router.add_post("/v1/completions", fake.answer)
    app.router.add_post("/v1/messages", fake.answer)
    for path in ("/v1/embeddings", "/v1/rerank", "/v1/score", "/tokenize"):
        app.router.add_post(path, fake.answer)
    app.router.add_post("/v1/messages/count_tokens", fake.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", port))
    await web.SockSite(runner, listening).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield fake
    # asyncio forgets a connection that it accepts in the last turns before its server closes, and leaves the
    # socket open (https://github.com/python/cpython/issues/109564). So accepting ends earlier.
    asyncio.get_running_loop().remove_reader(listening)
    try:
        for _ in range(2):
            await asyncio.sleep(0)
    finally:
        await runner.cleanup()


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as fake:
        yield fake
