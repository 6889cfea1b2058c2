"""A small guard that is right, and that can be made wrong in one way at a time: the judges are tested on it.

    python -m streamguard_bench.reference --upstream http://127.0.0.1:9000 --port 8000 [--fault NAME]

It is no guard for use: it holds more text than it needs, leaves out logprobs and token ids, and holds tool
calls to their end.
"""

import argparse
import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

PATTERNS = re.compile(
    r"(?P<email>[\w.+-]+@[\w-]+\.[a-z]{2,})|(?P<card>4\d{3}(?: ?\d{4}){3})|(?P<ssn>\d{3}-\d{2}-\d{4})"
    r"|(?P<aws_key>AKIA[A-Z2-7]{16})|(?P<iban>DE\d{20})|(?P<phone>\(\d{3}\) \d{3}-\d{4})"
    r"|(?P<github_token>ghp_\w{36})"
)
HOLD = 48
"""Characters at the end of a text that may still become a value."""
FAULTS = {
    "pieces alone": "leak",
    "beginnings pass": "part",
    "reasoning passes": "leak",
    "calls pass": "leak",
    "escapes pass": "leak",
    "logprobs pass": "leak",
    "alternatives pass": "leak",
    "ids pass": "leak",
    "first choice alone": "leak",
    "whole answers pass": "leak",
    "answers after an echo pass": "leak",
    "messages pass": "leak",
    "value in an error": "leak",
    "value in a header": "leak",
    "text is lost": "changed",
    "text comes twice": "changed",
    "characters are broken": "changed",
    "channels change places": "order",
    "calls are cut": "call",
    "calls lose their name": "call",
    "no finish reason": "end",
    "no end": "end",
    "broken streams end well": "broken",
    "upstream goes on": "left",
    "history is lost": "request",
    "tools are lost": "request",
    "prompt passes": "mask",
    "nothing comes back": "restore",
    "wrong value comes back": "restore",
    "harmless is refused": "refused",
    "never ends": "hangs",
    "passes when down": "leak",
    "passes when slow": "leak",
    "passes when wrong": "leak",
    "late": "time",
    "all is held": "time",
    "busy": "time",
}
"""By fault, the judge that has to find it; `time`: the measurement of times."""


class GuardError(Exception):
    """The guard cannot say what is in a text."""


@dataclass(slots=True)
class Guard:
    """The search for values, and the ways in which it may fail."""

    fault: str
    failure: str
    placeholders: dict[str, str] = field(default_factory=dict)
    """The prompt's values, by placeholder."""

    def redacted(self, text: str) -> str:
        if self.failure and self.fault != f"passes when {self.failure}":
            raise GuardError(self.failure)
        if self.failure:
            return text
        if self.fault == "beginnings pass":
            return PATTERNS.sub(lambda found: found[0][: len(found[0]) * 3 // 4] + "***", text)
        return PATTERNS.sub(lambda found: f"[{(found.lastgroup or '').upper()}]", text)

    def masked(self, text: str) -> str:
        def placeholder(found: re.Match[str]) -> str:
            name = f"<{(found.lastgroup or '').upper()}_{len(self.placeholders) + 1}>"
            self.placeholders[name] = found[0]
            return name

        return text if self.fault == "prompt passes" else PATTERNS.sub(placeholder, text)

    def restored(self, text: str) -> str:
        if self.fault == "nothing comes back":
            return text
        for name, value in self.placeholders.items():
            text = text.replace(name, value[::-1] if self.fault == "wrong value comes back" else value)
        return text


@dataclass(slots=True)
class Text:
    """The text of a channel on its way."""

    guard: Guard
    pending: str = ""

    def add(self, text: str) -> str:
        """The text that may go."""
        fault = self.guard.fault
        if fault == "pieces alone":
            return self.guard.redacted(text)
        self.pending += text
        hold = 10**6 if fault == "all is held" else HOLD
        return self._release(max(0, len(self.pending) - hold))

    def end(self) -> str:
        return self._release(len(self.pending))

    def _release(self, end: int) -> str:
        for found in PATTERNS.finditer(self.pending):
            if found.start() < end < found.end():
                end = found.start()
        opened = self.pending.rfind("<", 0, end)
        if opened >= 0 and ">" not in self.pending[opened:end] and end < len(self.pending):
            end = opened
        out, self.pending = self.pending[:end], self.pending[end:]
        return self.guard.restored(self.guard.redacted(out))


def redacted_call(guard: Guard, arguments: str) -> str:
    """The arguments without values, as JSON."""
    if guard.fault == "calls pass":
        return arguments
    if guard.fault in ("escapes pass", "calls are cut"):
        redacted = guard.redacted(arguments)
        return (
            redacted[: redacted.find("[")] if guard.fault == "calls are cut" and "[" in redacted else redacted
        )
    try:
        value = json.loads(arguments)
    except ValueError:
        return guard.redacted(arguments)
    redacted_value = _each_text(value, guard.redacted)
    return arguments if redacted_value == value else json.dumps(redacted_value, ensure_ascii=False)


def _each_text(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(k): _each_text(v, change) for k, v in value.items()}
    return [_each_text(v, change) for v in value] if isinstance(value, list) else value


class Relay:
    def __init__(self, upstream: str, fault: str, failure: str, masks: bool) -> None:
        self._upstream = upstream
        self._fault = fault
        self._failure = failure
        self._masks = masks
        self._left: set[asyncio.Task[None]] = set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**24)
        app.cleanup_ctx.append(self._session)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _session(self, app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._http:
            yield
        for task in self._left:
            task.cancel()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"data": [{"id": "m"}]})
        body = await request.json()
        guard = Guard(self._fault, self._failure)
        if self._fault == "harmless is refused":
            return web.json_response({"error": {"message": "not allowed"}}, status=400)
        self._change_request(body, guard)
        if self._fault == "late":
            await asyncio.sleep(0.5)
        if body.get("stream"):
            return await self._stream(request, body, guard)
        async with self._http.post(self._upstream + request.path, json=body) as got:
            answer = await got.json()
        try:
            return web.json_response(self._whole(answer, guard))
        except GuardError:
            return web.json_response({"error": {"message": "the guard failed"}}, status=500)

    def _change_request(self, body: dict[str, Any], guard: Guard) -> None:
        if self._fault == "history is lost" and "messages" in body:
            body["messages"] = body["messages"][-1:]
        if self._fault == "tools are lost":
            body.pop("tools", None)
        if self._masks and "messages" in body:
            last = body["messages"][-1]
            last["content"] = guard.masked(last["content"])

    def _whole(self, answer: dict[str, Any], guard: Guard) -> dict[str, Any]:
        if self._fault == "whole answers pass" or (self._fault == "messages pass" and "content" in answer):
            return answer
        for choice in answer.get("choices", ()):
            choice.pop("logprobs", None)
            choice.pop("token_ids", None)
            for holder in (choice, choice.get("message", {})):
                for name in ("text", "content", "reasoning_content"):
                    if isinstance(holder.get(name), str):
                        holder[name] = guard.restored(guard.redacted(holder[name]))
            for call in choice.get("message", {}).get("tool_calls", ()):
                call["function"]["arguments"] = redacted_call(guard, call["function"]["arguments"])
        for block in answer.get("content", ()):
            for name in ("text", "thinking"):
                if name in block:
                    block[name] = guard.redacted(block[name])
            if "input" in block:
                block["input"] = json.loads(redacted_call(guard, json.dumps(block["input"])))
        return answer

    async def _stream(self, request: web.Request, body: dict[str, Any], guard: Guard) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream"}
        if self._fault == "value in a header":
            headers["X-Seen"] = await self._first_value(request.path, body)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        writer = Events(guard, is_messages="/messages" in request.path, is_echoed=bool(body.get("echo")))
        got = await self._http.post(self._upstream + request.path, json=body)
        try:
            async for line in got.content:
                if self._fault == "busy":
                    until = time.perf_counter() + 0.003
                    while time.perf_counter() < until:
                        pass
                if line.startswith(b"data:"):
                    for event in writer.read(line[5:].strip().decode()):
                        await response.write(event)
            if self._fault == "never ends":
                await asyncio.sleep(3600)
        except GuardError:
            await response.write(b'data: {"error":{"message":"the guard failed"}}\n\n')
        except aiohttp.ClientError:
            if self._fault == "broken streams end well":
                for event in writer.ended():
                    await response.write(event)
            elif request.transport is not None:
                request.transport.abort()
        except (ConnectionError, asyncio.CancelledError):
            if self._fault == "upstream goes on":
                self._left.add(asyncio.create_task(_drained(got)))  # noqa: TID251 (it is the fault)
                raise
            got.close()
            raise
        if self._fault == "value in an error":
            await response.write(
                f'data: {{"error":{{"message":{json.dumps("withheld: " + writer.seen)}}}}}\n\n'.encode()
            )
        await response.write_eof()
        return response

    async def _first_value(self, path: str, body: dict[str, Any]) -> str:
        async with self._http.post(self._upstream + path, json=body) as got:
            text = "".join(re.findall(r'"(?:content|text)":"((?:[^"\\]|\\.)*)"', await got.text()))
        found = PATTERNS.search(text)
        return found[0] if found else ""


async def _drained(got: aiohttp.ClientResponse) -> None:
    async for _ in got.content.iter_any():
        pass


class Events:
    """Reads the upstream's events, and gives those for the client."""

    def __init__(self, guard: Guard, *, is_messages: bool, is_echoed: bool) -> None:
        self._guard = guard
        self._is_messages = is_messages
        self._is_echoed = is_echoed
        self._texts: dict[tuple[str, int], Text] = {}
        self._arguments: dict[int, str] = {}
        self._late: list[bytes] = []
        self._has_broken = False
        self.seen = ""

    def read(self, data: str) -> Iterator[bytes]:
        if data == "[DONE]":
            yield from self._late
            if self._guard.fault != "no end":
                yield b"data: [DONE]\n\n"
            return
        event = json.loads(data)
        passes = self._guard.fault == "messages pass" and self._is_messages
        if passes:
            yield _line(event, self._is_messages)
        elif self._is_messages:
            yield from self._message(event)
        else:
            yield from self._chunk(event)

    def ended(self) -> Iterator[bytes]:
        """What ends an answer, though the upstream's did not end."""
        yield _line(
            {
                "choices": [
                    {"index": 0, "delta": {"content": self._end("content", 0)}, "finish_reason": "stop"}
                ]
            }
        )
        yield b"data: [DONE]\n\n"

    def _add(self, channel: str, choice: int, text: str) -> str:
        fault = self._guard.fault
        self.seen += text
        if fault == "reasoning passes" and channel == "reasoning":
            return text
        if fault == "first choice alone" and choice:
            return text
        known = self._texts.setdefault((channel, choice), Text(self._guard))
        if fault == "answers after an echo pass" and self._is_echoed:
            return text
        out = known.add(text)
        if fault == "characters are broken" and not out.isascii():
            out = out.encode("ascii", "replace").decode()
        if fault == "text is lost" and out and not self._has_broken:
            self._has_broken = True
            return out[:-1]
        if fault == "text comes twice" and out and not self._has_broken:
            self._has_broken = True
            return out + out
        return out

    def _end(self, channel: str, choice: int) -> str:
        known = self._texts.get((channel, choice))
        return known.end() if known else ""

    def _chunk(self, event: dict[str, Any]) -> Iterator[bytes]:
        fault = self._guard.fault
        for choice in event.get("choices", ()):
            index, delta = choice["index"], choice.get("delta")
            logprobs = choice.pop("logprobs", None)
            ids = choice.pop("token_ids", None)
            if logprobs and fault == "logprobs pass":
                choice["logprobs"] = logprobs
            if logprobs and fault == "alternatives pass":
                choice["logprobs"] = {
                    "content": [{"token": "", "top_logprobs": t["top_logprobs"]} for t in logprobs["content"]]
                }
            if ids and fault == "ids pass":
                choice["token_ids"] = ids
            if delta is None:
                choice["text"] = self._add("content", index, choice.get("text") or "")
                if choice.get("finish_reason"):
                    choice["text"] += self._end("content", index)
            else:
                yield from self._delta(event, choice, delta, index)
            if fault == "no finish reason":
                choice["finish_reason"] = None
        yield _line(event)

    def _delta(
        self, event: dict[str, Any], choice: dict[str, Any], delta: dict[str, Any], index: int
    ) -> Iterator[bytes]:
        head: dict[str, Any] = {
            name: event[name] for name in ("id", "object", "created", "model") if name in event
        }

        def before(delta: dict[str, Any]) -> bytes:
            return _line({**head, "choices": [{"index": index, "delta": delta, "finish_reason": None}]})

        if delta.get("reasoning_content"):
            delta["reasoning_content"] = self._add("reasoning", index, delta["reasoning_content"])
            if self._guard.fault == "channels change places":
                self._late.append(before({"reasoning_content": delta.pop("reasoning_content")}))
        if (delta.get("content") or delta.get("tool_calls") or choice.get("finish_reason")) and (
            rest := self._end("reasoning", index)
        ):
            yield before({"reasoning_content": rest})
        if delta.get("content"):
            delta["content"] = self._add("content", index, delta["content"])
        if (delta.get("tool_calls") or choice.get("finish_reason")) and (rest := self._end("content", index)):
            yield before({"content": rest})
        for call in delta.get("tool_calls", ()):
            if self._guard.fault == "calls lose their name":
                call["function"].pop("name", None)
            if arguments := call["function"].get("arguments"):
                self._arguments[index] = self._arguments.get(index, "") + arguments
                call["function"]["arguments"] = ""
        if choice.get("finish_reason") and (arguments := self._arguments.pop(index, "")):
            arguments = redacted_call(self._guard, arguments)
            yield before({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]})

    def _message(self, event: dict[str, Any]) -> Iterator[bytes]:
        delta = event.get("delta", {})
        for name, channel in (("text", "content"), ("thinking", "reasoning")):
            if delta.get(name):
                delta[name] = self._add(channel, 0, delta[name])
        if delta.get("partial_json"):
            self._arguments[0] = self._arguments.get(0, "") + delta["partial_json"]
            delta["partial_json"] = ""
        if event.get("type") == "content_block_stop":
            for name, kind, text in (
                ("text", "text_delta", self._end("content", 0)),
                ("thinking", "thinking_delta", self._end("reasoning", 0)),
                ("partial_json", "input_json_delta", redacted_call(self._guard, self._arguments.pop(0, ""))),
            ):
                if text:
                    more = {
                        "type": "content_block_delta",
                        "index": event["index"],
                        "delta": {"type": kind, name: text},
                    }
                    yield _line(more, True)
        yield _line(event, self._is_messages)


def _line(event: dict[str, Any], is_named: bool = False) -> bytes:
    name = f"event: {event['type']}\n" if is_named else ""
    return f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument(
        "--failure", default="", choices=["", "down", "slow", "wrong"], help="how its guard fails"
    )
    parser.add_argument("--mask", action="store_true", help="mask values of prompts, and bring them back")
    options = parser.parse_args()
    relay = Relay(options.upstream, options.fault, options.failure, options.mask)
    web.run_app(relay.app(), host="127.0.0.1", port=options.port, handler_cancellation=True, print=None)


if __name__ == "__main__":
    main()
