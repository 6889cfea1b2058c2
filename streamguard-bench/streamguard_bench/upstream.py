"""The upstream of the server under test: it says what the scripts say, and notes what it is asked.

It speaks OpenAI's Chat Completions and Completions, and Anthropic's Messages API, streamed and whole. A
request names its script by a word in the prompt (`Names`).
"""

import asyncio
import dataclasses
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from streamguard_bench.scripts import CALL_NAME, Piece, Script

NAME = re.compile(r"case-[bcdfghjklmnpqrstvwxz]{8}")
FIRST_ID = 1000
"""Ids of tokens begin here, so that no id looks like a byte."""


@dataclass(slots=True)
class Asked:
    """What the upstream was asked for one script, and how its answer went."""

    body: Any = None
    raw: str = ""
    sent: list[tuple[float, Piece]] = field(default_factory=list)
    """When each piece was written. Unit: seconds, of `time.perf_counter`."""
    was_left: bool = False
    """Whether the server under test broke off."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    count: int = 0
    """How often it was asked."""


class Tokens:
    """Ids of tokens, given as they come."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._texts: list[str] = []

    def id_of(self, text: str) -> int:
        if text not in self._ids:
            self._ids[text] = FIRST_ID + len(self._texts)
            self._texts.append(text)
        return self._ids[text]

    def text_of(self, token_id: int) -> str:
        """Empty for an id that was never given."""
        at = token_id - FIRST_ID
        return self._texts[at] if 0 <= at < len(self._texts) else ""


class Upstream:
    def __init__(self) -> None:
        self.tokens = Tokens()
        self._scripts: dict[str, Script] = {}
        self._asked: dict[str, Asked] = {}

    def play(self, script: Script) -> Asked:
        """Answer requests that name this script by it. Returns what will be asked."""
        self._scripts[script.name] = script
        asked = self._asked[script.name] = Asked()
        return asked

    def asked(self, script: Script) -> Asked:
        return self._asked[script.name]

    def forget(self, script: Script) -> None:
        del self._scripts[script.name], self._asked[script.name]

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**24)
        for prefix in ("", "/v1"):
            app.router.add_post(f"{prefix}/chat/completions", self._chat)
            app.router.add_post(f"{prefix}/completions", self._completions)
            app.router.add_post(f"{prefix}/messages", self._messages)
            app.router.add_get(f"{prefix}/models", _models)
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, ChatFormat)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, CompletionsFormat)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, MessagesFormat)

    async def _answer(self, request: web.Request, form: "type[Format]") -> web.StreamResponse:
        raw = await request.text()
        body = json.loads(raw)
        named = NAME.findall(raw)
        if not named or named[-1] not in self._scripts:
            return web.json_response(
                {"error": {"message": "no script is named", "type": "invalid"}}, status=400
            )
        script, asked = self._scripts[named[-1]], self._asked[named[-1]]
        asked.body, asked.raw, asked.count = body, raw, asked.count + 1
        if script.kind == "restored":
            script = _repeating(script, body)
        writer = form(script, body, self.tokens)
        try:
            if not body.get("stream"):
                return web.json_response(writer.whole())
            return await _stream(request, script, asked, writer)
        finally:
            asked.is_over.set()


async def _stream(request: web.Request, script: Script, asked: Asked, writer: "Format") -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    waiting, carried = b"".join(writer.begin()), b""
    try:
        for number, piece in enumerate(script.pieces):
            if script.ends_after == number:
                await response.write(carried + waiting)
                assert request.transport is not None
                request.transport.abort()
                return response
            waiting += b"".join(writer.piece(piece))
            asked.sent.append((time.perf_counter(), piece))
            if (number + 1) % script.burst == 0:
                data, waiting = carried + waiting, b""
                cut = len(data) // 2 if script.is_split else len(data)
                carried = data[cut:]
                await response.write(data[:cut])
                await asyncio.sleep(script.pace)
        await response.write(carried + waiting + b"".join(writer.end()))
        await response.write_eof()
    except ConnectionError:
        asked.was_left = True
    except asyncio.CancelledError:
        asked.was_left = True
        raise
    return response


def _repeating(script: Script, body: Mapping[str, Any]) -> Script:
    """The script that says what follows "Repeat this: " in the prompt, a few characters at a time."""
    said = str(body["messages"][-1]["content"]).partition("Repeat this: ")[2].rpartition(" (case-")[0]
    pieces = tuple(Piece(said[i : i + 3]) for i in range(0, len(said), 3))
    return dataclasses.replace(script, pieces=pieces)


async def _models(request: web.Request) -> web.Response:
    return web.json_response(
        {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "bench"}]}
    )


def _event(data: Any, name: str = "") -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


class Format:
    """Writes the pieces of a script as an interface has them."""

    def __init__(self, script: Script, body: Mapping[str, Any], tokens: Tokens) -> None:
        self.script = script
        self.body = body
        self.tokens = tokens
        self.created = int(time.time())

    def begin(self) -> Iterator[bytes]:
        return iter(())

    def piece(self, piece: Piece) -> Iterator[bytes]:
        raise NotImplementedError

    def end(self) -> Iterator[bytes]:
        raise NotImplementedError

    def whole(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def choices(self) -> range:
        return range(max((p.choice for p in self.script.pieces), default=0) + 1)

    @property
    def reason(self) -> str:
        return "tool_calls" if self.script.has_calls else "stop"

    @property
    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": 7,
            "completion_tokens": len(self.script.pieces),
            "total_tokens": 7 + len(self.script.pieces),
        }

    def logprob(self, text: str) -> dict[str, Any]:
        top = [
            {"token": text, "logprob": -0.1, "bytes": [*text.encode()]},
            {"token": "the", "logprob": -3.0, "bytes": [*b"the"]},
        ]
        return {**top[0], "top_logprobs": top[: int(self.body.get("top_logprobs") or 0)]}


class ChatFormat(Format):
    def _chunk(self, choice: int, delta: Mapping[str, Any], reason: str | None = None, **more: Any) -> bytes:
        choices = [{"index": choice, "delta": delta, "finish_reason": reason, **more}]
        return _event({**self._head("chat.completion.chunk"), "choices": choices})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.script.name}", "object": kind, "created": self.created, "model": "m"}

    def begin(self) -> Iterator[bytes]:
        for choice in self.choices:
            yield self._chunk(choice, {"role": "assistant", "content": ""})
        self._has_call = False

    def piece(self, piece: Piece) -> Iterator[bytes]:
        if piece.channel == "call":
            if not self._has_call:
                self._has_call = True
                function = {"name": CALL_NAME, "arguments": ""}
                yield self._chunk(
                    0,
                    {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]},
                )
            yield self._chunk(0, {"tool_calls": [{"index": 0, "function": {"arguments": piece.text}}]})
            return
        field_name = "content" if piece.channel == "content" else "reasoning_content"
        more: dict[str, Any] = {}
        if self.script.has_logprobs and self.body.get("logprobs"):
            more["logprobs"] = {"content": [self.logprob(piece.text)]}
        if self.script.has_ids and self.body.get("return_token_ids"):
            more["token_ids"] = [self.tokens.id_of(piece.text)]
        yield self._chunk(piece.choice, {field_name: piece.text}, **more)

    def end(self) -> Iterator[bytes]:
        for choice in self.choices:
            yield self._chunk(choice, {}, self.reason)
        if (self.body.get("stream_options") or {}).get("include_usage"):
            yield _event({**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage})
        yield b"data: [DONE]\n\n"

    def whole(self) -> dict[str, Any]:
        return {
            **self._head("chat.completion"),
            "choices": [self._choice(choice) for choice in self.choices],
            "usage": self.usage,
        }

    def _choice(self, choice: int) -> dict[str, Any]:
        script = self.script
        message: dict[str, Any] = {"role": "assistant", "content": script.text("content", choice) or None}
        if thought := script.text("reasoning", choice):
            message["reasoning_content"] = thought
        if script.has_calls:
            function = {"name": CALL_NAME, "arguments": script.text("call")}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        found: dict[str, Any] = {"index": choice, "message": message, "finish_reason": self.reason}
        said = [p.text for p in script.pieces if p.channel == "content" and p.choice == choice]
        if script.has_logprobs and self.body.get("logprobs"):
            found["logprobs"] = {"content": [*map(self.logprob, said)]}
        if script.has_ids and self.body.get("return_token_ids"):
            found["token_ids"] = [*map(self.tokens.id_of, said)]
        return found


class CompletionsFormat(Format):
    def _head(self) -> dict[str, Any]:
        return {
            "id": f"cmpl-{self.script.name}",
            "object": "text_completion",
            "created": self.created,
            "model": "m",
        }

    def _text(self, text: str, reason: str | None = None) -> dict[str, Any]:
        return {
            **self._head(),
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}],
        }

    @property
    def _echoed(self) -> str:
        prompt = self.body.get("prompt") or ""
        prompt = prompt[0] if isinstance(prompt, list) else prompt
        return str(prompt) if self.body.get("echo") else ""

    def begin(self) -> Iterator[bytes]:
        if self._echoed:
            yield _event(self._text(self._echoed))

    def piece(self, piece: Piece) -> Iterator[bytes]:
        yield _event(self._text(piece.text))

    def end(self) -> Iterator[bytes]:
        yield _event(self._text("", "stop"))
        yield b"data: [DONE]\n\n"

    def whole(self) -> dict[str, Any]:
        return {**self._text(self._echoed + self.script.text("content"), "stop"), "usage": self.usage}


_BLOCKS = {
    "content": ("text", "text_delta"),
    "reasoning": ("thinking", "thinking_delta"),
    "call": ("tool_use", "input_json_delta"),
}
"""By channel, the kinds of the Messages API's block and delta."""


class MessagesFormat(Format):
    def _message(self, content: list[Any], reason: str | None) -> dict[str, Any]:
        usage = {"input_tokens": 7, "output_tokens": len(self.script.pieces)}
        return {
            "id": f"msg_{self.script.name}",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    @property
    def reason(self) -> str:
        return "tool_use" if self.script.has_calls else "end_turn"

    def begin(self) -> Iterator[bytes]:
        self._open: str | None = None
        self._index = -1
        yield _event({"type": "message_start", "message": self._message([], None)}, "message_start")

    def piece(self, piece: Piece) -> Iterator[bytes]:
        kind, delta = _BLOCKS[piece.channel]
        if self._open != piece.channel:
            yield from self._closed()
            self._open, self._index = piece.channel, self._index + 1
            block: dict[str, Any] = {"type": kind}
            block |= (
                {"text": ""}
                if kind == "text"
                else {"thinking": "", "signature": ""}
                if kind == "thinking"
                else {"id": "toolu_1", "name": CALL_NAME, "input": {}}
            )
            yield _event(
                {"type": "content_block_start", "index": self._index, "content_block": block},
                "content_block_start",
            )
        name = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}[delta]
        yield _event(
            {"type": "content_block_delta", "index": self._index, "delta": {"type": delta, name: piece.text}},
            "content_block_delta",
        )

    def _closed(self) -> Iterator[bytes]:
        if self._open is not None:
            yield _event({"type": "content_block_stop", "index": self._index}, "content_block_stop")

    def end(self) -> Iterator[bytes]:
        yield from self._closed()
        delta = {"stop_reason": self.reason, "stop_sequence": None}
        usage = {"output_tokens": len(self.script.pieces)}
        yield _event({"type": "message_delta", "delta": delta, "usage": usage}, "message_delta")
        yield _event({"type": "message_stop"}, "message_stop")

    def whole(self) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if thought := self.script.text("reasoning"):
            content.append({"type": "thinking", "thinking": thought, "signature": ""})
        if said := self.script.text("content"):
            content.append({"type": "text", "text": said})
        if self.script.has_calls:
            content.append(
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": CALL_NAME,
                    "input": json.loads(self.script.text("call")),
                }
            )
        return self._message(content, self.reason)


class Server:
    """An application on a free port of 127.0.0.1."""

    def __init__(self, app: web.Application) -> None:
        # An upstream that sees a client leave stops at once.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        self.url = ""

    async def __aenter__(self) -> "Server":
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(asyncio.TimeoutError):
            await self._runner.cleanup()
