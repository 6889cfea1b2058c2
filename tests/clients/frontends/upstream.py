"""An upstream of Weir's that answers from a script: `python upstream.py`."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from aiohttp import web

ANSWER = "The answer is forty-two."
REPORT = {"city": "Paris", "degrees": 21}
TEXTS = {
    "what is the answer?": ANSWER,
    "what is the address?": "Write to ada@initech.com today.",
    "tell me of bluebird": "The secret project is called Project Bluebird, and it is late.",
    "tell me of osprey": "The secret project is called Project Osprey, and it is late.",
    "please fail.": "The answer is",
}
"""The answers to users' messages with these words."""
FAILS = "please fail."
WEATHER = "how is the weather?"
FORM = "fill in the form"
"""Asks for `REPORT`."""


def app() -> web.Application:
    application = web.Application()
    application.router.add_post("/v1/chat/completions", chat)
    application.router.add_get("/v1/models", models)
    return application


async def models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "scripted", "object": "model"}]})


async def chat(http: web.Request) -> web.StreamResponse:
    """Stream the answer, as Weir always asks."""
    body = await http.json()
    assert body["stream"] is True
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(http)
    for choice in choices(body):
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
        await response.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())
        await asyncio.sleep(0)
    if FAILS not in asked(body):
        usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
        await response.write(f"data: {json.dumps({**chunk, 'choices': [], 'usage': usage})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
    elif http.transport is not None:
        http.transport.abort()
    return response


def asked(body: dict[str, Any]) -> str:
    """The users' words."""
    users = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return json.dumps(users).lower()


def choices(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    called = called_tool(body)
    text = "" if called else text_for(body)
    yield choice({"role": "assistant", "content": ""})
    for word in text.split(" "):
        yield choice({"content": word if text.startswith(word) else f" {word}"})
    if FAILS in asked(body):
        return
    if called:
        name, arguments = called
        function = {"name": name, "arguments": ""}
        yield choice({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})
        for piece in (arguments[:5], arguments[5:]):
            yield choice({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield choice({}, "tool_calls" if called else "stop")


def choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}


def called_tool(body: dict[str, Any]) -> tuple[str, str] | None:
    """The tool to call and its arguments: each tool once."""
    tools = [tool["function"]["name"] for tool in body.get("tools") or []]
    if not tools or body["messages"][-1]["role"] == "tool":
        return None
    if WEATHER in asked(body) and "get_weather" in tools:
        return "get_weather", json.dumps({"city": "Paris"})
    return (tools[0], filled_in(body)) if FORM in asked(body) else None


def filled_in(body: dict[str, Any]) -> str:
    return json.dumps({**REPORT, "city": "Project Bluebird"} if "form of bluebird" in asked(body) else REPORT)


def text_for(body: dict[str, Any]) -> str:
    if body["messages"][-1]["role"] == "tool":
        return "It is 21 degrees in Paris."
    if FORM in asked(body):
        return filled_in(body)
    return next(text for word, text in TEXTS.items() if word in asked(body))


if __name__ == "__main__":
    web.run_app(app(), host="127.0.0.1", port=0, print=lambda told: print(told, flush=True))
