"""The model of an agent program: an upstream that plays a script with whatever tools the program offers.

A script is a list of turns. The model plays the turn whose number is that of the tool results since the last
prompt, so a program that asks the same again gets the same again. A request without tools, such as for a
title, is no turn.
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.clients.programs.calls import Edit, Step, Write, call_of
from tests.processes import WAIT_LIMIT

MODEL = "scripted"
SECOND = "Are you still there?"
"""The prompt that continues a session."""
STILL_HERE = "Still here, and ready."


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer: reasoning, then text, then a call of a tool."""

    text: str = ""
    reasoning: str = ""
    step: Step | None = None


@dataclass
class ScriptedModel:
    """`folder`: where the program works. `approves`: the answer of the person who is asked about calls.
    `bodies`: requests of the agent. `others`: those without tools."""

    turns: Sequence[Turn]
    folder: str
    url: str = ""
    approves: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)

    def app(self) -> web.Application:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_post("/person", self._decide)
        application.router.add_post("/v1/chat/completions", self._chat)
        application.router.add_get("/v1/models", self._models)
        return application

    async def _decide(self, http: web.Request) -> web.Response:
        """As the person who is asked about a call."""
        call = await http.json()
        return web.json_response({"approve": self.approves, "digest": call["digest"]})

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        plays = bool(body.get("tools")) or writes_edits(body)
        (self.bodies if plays else self.others).append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        with suppress(ConnectionResetError):  # Weir reads no further where a guard has ended the answer
            for event in self._events(body, plays):
                await response.write(f"data: {event}\n\n".encode())
                await asyncio.sleep(0)
        return response

    def _events(self, body: dict[str, Any], plays: bool) -> Iterator[str]:
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        for choice in self._choices(body) if plays else _spoken(Turn("A title")):
            yield json.dumps({**chunk, "choices": [choice]})
        usage = {"prompt_tokens": 500, "completion_tokens": 70, "total_tokens": 570}
        yield json.dumps({**chunk, "choices": [], "usage": usage})
        yield "[DONE]"

    def _choices(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        last = _last_prompt(body)
        if SECOND in text_of(body["messages"][last]):
            return _spoken(Turn(STILL_HERE))
        if writes_edits(body):
            return _spoken(edits_of(self.turns))
        tools = {one["function"]["name"]: one["function"].get("parameters", {}) for one in body["tools"]}
        number = sum(message["role"] == "tool" for message in body["messages"][last:])
        playable = [
            turn for turn in self.turns if turn.step is None or call_of(turn.step, self.folder, tools)
        ]
        turn = playable[min(number, len(playable) - 1)]
        return _spoken(turn, turn.step and call_of(turn.step, self.folder, tools), f"call_{len(self.bodies)}")


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def _last_prompt(body: dict[str, Any]) -> int:
    """The place of the last message that has a prompt of these tests."""
    numbered = enumerate(body["messages"])
    asks = (FIRST, SECOND)
    return max(
        (at for at, one in numbered if one["role"] == "user" and any(word in text_of(one) for word in asks)),
        default=0,
    )


FIRST = "Please do the task of notes.txt"
"""Is in the prompt that begins a session."""


def writes_edits(body: dict[str, Any]) -> bool:
    """Whether the program, which is aider, wants edits as text."""
    return not body.get("tools") and any("*SEARCH/REPLACE" in text_of(one) for one in body["messages"])


def edits_of(turns: Sequence[Turn]) -> Turn:
    """One answer with the whole script, in aider's form of edits."""
    parts = []
    for turn in turns:
        parts.append(turn.text)
        match turn.step:
            case Write(path, content):
                parts.append(_edit(path, "", content))
            case Edit(path, old, new):
                parts.append(_edit(path, old, new))
    return Turn("\n".join(part for part in parts if part), "\n".join(turn.reasoning for turn in turns))


def _edit(path: str, old: str, new: str) -> str:
    old, new = (text if not text or text.endswith("\n") else f"{text}\n" for text in (old, new))
    return f"{path}\n```\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n"


def _spoken(turn: Turn, call: tuple[str, str] | None = None, call_id: str = "") -> Iterator[dict[str, Any]]:
    """The choices of the chunks."""
    yield _choice({"role": "assistant", "content": ""})
    for name, text in (("reasoning_content", turn.reasoning), ("content", turn.text)):
        for piece in pieces_of(text):
            yield _choice({name: piece})
    if call:
        name, arguments = call
        function = {"name": name, "arguments": ""}
        yield _choice({"tool_calls": [{"index": 0, "id": call_id, "type": "function", "function": function}]})
        for piece in pieces_of(arguments):
            yield _choice({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield _choice({}, "tool_calls" if call else "stop")


def pieces_of(text: str) -> Iterator[str]:
    """The text in pieces of seven characters, which cut words."""
    return (text[at : at + 7] for at in range(0, len(text), 7))


def _choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}


@contextmanager
def serving_model(model: ScriptedModel) -> Iterator[ScriptedModel]:
    """The model, on a thread, with its `url`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = web.AppRunner(model.app(), handler_cancellation=True, shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        model.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result(WAIT_LIMIT)
        yield model
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(WAIT_LIMIT)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_LIMIT)
        loop.close()
