"""An upstream whose answers hold forbidden values, on every channel that a chat has.

The last message of a request names the answer, as `Answer.name` writes it. Everything follows from the name,
so that each system gets the same pieces.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

VALUES = {
    "phrase": "Project Bluebird",
    "e-mail": "jane.doe@millrace.com",
    "card": "4111 1111 1111 1111",
    "key": "AKIAQ3EGR5T7Y2WXZK4M",
    "none": "nothing of the kind",
}
CHANNELS = ("content", "logprobs", "reasoning", "tool_call", "n=2")
OPENING = "The river runs past the old mill and the boats go by. "
BEFORE = "Here is what you asked me for: "
AFTER = " . The lamps along the quay are lit at dusk, and the ferry goes back once more before night."
CLOSING = " That was all there is to say about it, and the town goes on as it always did."
"""An answer goes on for a while, so that a system that looks back sees the value in the middle."""
IDS = {"id": "chatcmpl-1", "created": 1700000000, "model": "m"}


@dataclass(frozen=True)
class Answer:
    value: str
    """A key of `VALUES`."""
    channel: str
    cut: int
    """A number for the way that the text is cut into pieces."""
    step_ms: int = 0
    """Milliseconds between pieces."""
    repeats: int = 1

    @property
    def name(self) -> str:
        return orjson.dumps(self.__dict__).decode()

    @property
    def text(self) -> str:
        opening = OPENING * random.Random(self.cut).randint(0, 8)
        return (opening + BEFORE + VALUES[self.value] + AFTER + CLOSING) * self.repeats

    @property
    def pieces(self) -> list[str]:
        rng, text, pieces = random.Random(self.cut), self.text, []
        while text:
            size = rng.randint(1, 6)
            pieces.append(text[:size])
            text = text[size:]
        return pieces


def deltas_of(answer: Answer) -> Iterator[dict[str, Any]]:
    """The choice of each event, without its index."""
    yield {"delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    if answer.channel == "tool_call":
        function = {"name": "write", "arguments": ""}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        yield {"delta": {"tool_calls": [call]}, "finish_reason": None}
        for piece in ('{"text": "', *answer.pieces, '"}'):
            call = {"index": 0, "function": {"arguments": piece}}
            yield {"delta": {"tool_calls": [call]}, "finish_reason": None}
        yield {"delta": {}, "finish_reason": "tool_calls"}
        return
    if answer.channel == "reasoning":
        for piece in answer.pieces:
            yield {"delta": {"reasoning_content": piece}, "finish_reason": None}
        yield {"delta": {"content": "The answer is yes."}, "finish_reason": None}
    else:
        for piece in answer.pieces:
            choice = {"delta": {"content": piece}, "finish_reason": None}
            yield choice | ({"logprobs": logprobs_of([piece])} if answer.channel == "logprobs" else {})
    yield {"delta": {}, "finish_reason": "stop"}


def logprobs_of(pieces: list[str]) -> dict[str, Any]:
    tokens = [{"token": piece, "logprob": -0.5, "bytes": list(piece.encode())} for piece in pieces]
    return {"content": [token | {"top_logprobs": [token]} for token in tokens], "refusal": None}


def message_of(answer: Answer) -> dict[str, Any]:
    """The choice of an answer without streaming, without its index."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    reason = "stop"
    if answer.channel == "tool_call":
        arguments = orjson.dumps({"text": answer.text}).decode()
        call = {"id": "call_1", "type": "function", "function": {"name": "write", "arguments": arguments}}
        message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    elif answer.channel == "reasoning":
        message |= {"content": "The answer is yes.", "reasoning_content": answer.text}
    logprobs = logprobs_of(answer.pieces) if answer.channel == "logprobs" else None
    return {"message": message, "finish_reason": reason, "logprobs": logprobs}


async def chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    answer = Answer(**orjson.loads(body["messages"][-1]["content"]))
    indices = range(body.get("n") or 1)
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": len(answer.pieces),
        "total_tokens": 9 + len(answer.pieces),
    }
    if not body.get("stream"):
        choices = [{"index": i, **message_of(answer)} for i in indices]
        return web.json_response({**IDS, "object": "chat.completion", "choices": choices, "usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for delta in deltas_of(answer):
        for i in indices:
            await _send(response, choices=[{"index": i, **delta}])
        if answer.step_ms:
            await asyncio.sleep(answer.step_ms / 1000)
    await _send(response, choices=[], usage=usage)
    await response.write(b"data: [DONE]\n\n")
    return response


async def _send(response: web.StreamResponse, **fields: Any) -> None:
    event = {**IDS, "object": "chat.completion.chunk", **fields}
    await response.write(b"data: " + orjson.dumps(event) + b"\n\n")


async def models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})


def make_app() -> web.Application:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", models)
    return app
