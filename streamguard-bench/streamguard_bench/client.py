"""A client of the server under test. It notes all that comes, and when."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from streamguard_bench.scripts import TOOLS, Script
from streamguard_bench.upstream import Tokens

MAX_SECONDS = 30.0
"""A server that has not answered by then hangs."""


@dataclass(slots=True)
class Call:
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Seen:
    """All that a client saw of an answer."""

    status: int = 0
    raw: bytearray = field(default_factory=bytearray)
    headers: str = ""
    pieces: list[tuple[float, str, int, str]] = field(default_factory=list)
    """When it came (seconds, of `time.perf_counter`), the channel, the choice, and the text."""
    calls: dict[int, Call] = field(default_factory=lambda: defaultdict(Call))
    logprobs: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    """By choice: the tokens of the logprobs, as one text."""
    alternatives: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    ids: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    """By choice: the text of the token ids."""
    reasons: dict[int, str] = field(default_factory=dict)
    error: str = ""
    is_over: bool = False
    """Whether the answer ended as its interface has it."""
    is_hanging: bool = False
    began: float = 0.0
    ended: float = 0.0

    def text(self, channel: str, choice: int = 0) -> str:
        return "".join(text for _, c, i, text in self.pieces if c == channel and i == choice)

    @property
    def is_refused(self) -> bool:
        """Whether the server answered no request of this form."""
        return self.status >= 400

    def texts(self) -> Iterator[tuple[str, str]]:
        """Each channel's name and its text: all places where a client finds text."""
        for channel, choice in dict.fromkeys((c, i) for _, c, i, _ in self.pieces):
            yield channel, self.text(channel, choice)
        for call in self.calls.values():
            yield "call", call.arguments
            yield "call", _decoded(call.arguments)
        for name, found in (
            ("logprobs", self.logprobs),
            ("logprobs", self.alternatives),
            ("token ids", self.ids),
        ):
            for text in found.values():
                yield name, text
        yield "error", self.error
        yield "headers", self.headers


def _decoded(arguments: str) -> str:
    """The text of the arguments' values, without JSON's escapes. If they are no JSON: the arguments."""
    try:
        return " ".join(_strings(json.loads(arguments)))
    except ValueError:
        try:
            return str(json.loads(f'"{arguments.replace(chr(34), "")}"'))
        except ValueError:
            return arguments


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def request_of(script: Script, model: str) -> tuple[str, dict[str, Any]]:
    """The path and the body of the request that asks for the script."""
    prompt = f"{script.prompt} ({script.name})" if script.prompt else f"Answer as {script.name} says."
    body: dict[str, Any] = {"model": model, "stream": script.is_streamed}
    if script.api == "completions":
        # The name comes first: the answer continues the prompt.
        return "/completions", body | {
            "prompt": f"{script.name}: {script.prompt}",
            "echo": script.is_echoed,
            "max_tokens": 500,
        }
    if script.api == "messages":
        body |= {"messages": [{"role": "user", "content": prompt}], "max_tokens": 2000}
        if script.has_calls:
            function = TOOLS[0]["function"]
            names = {"name": function["name"], "description": function["description"]}
            body["tools"] = [{**names, "input_schema": function["parameters"]}]
        if script.text("reasoning"):
            body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        return "/messages", body
    body["messages"] = [*script.history, {"role": "user", "content": prompt}]
    if script.has_calls or script.history:
        body["tools"] = TOOLS
    if script.n > 1:
        body["n"] = script.n
    if script.has_logprobs:
        body |= {"logprobs": True, "top_logprobs": 2}
    if script.has_ids:
        body["return_token_ids"] = True
    return "/chat/completions", body


class Client:
    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        model: str,
        tokens: Tokens,
        headers: Mapping[str, str],
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        """`url`: with `/v1`."""
        self._http = http
        self._url = url
        self._model = model
        self._tokens = tokens
        self._headers = {"anthropic-version": "2023-06-01", **headers}
        self._max_seconds = max_seconds

    async def ask(self, script: Script, leave_after: float | None = None) -> Seen:
        """`leave_after`: seconds after which the client leaves."""
        path, body = request_of(script, self._model)
        seen = Seen(began=time.perf_counter())
        try:
            async with asyncio.timeout(leave_after or self._max_seconds):
                await self._ask(path, body, script, seen)
        except TimeoutError:
            seen.is_hanging = leave_after is None
        except (aiohttp.ClientError, ConnectionError) as error:
            seen.error = seen.error or type(error).__name__
        seen.ended = time.perf_counter()
        return seen

    async def _ask(self, path: str, body: dict[str, Any], script: Script, seen: Seen) -> None:
        reader = _READERS[script.api](seen, self._tokens)
        async with self._http.post(self._url + path, json=body, headers=self._headers) as response:
            seen.status = response.status
            seen.headers = " ".join(f"{name}: {value}" for name, value in response.headers.items())
            if (
                not script.is_streamed
                or response.status != 200
                or "event-stream" not in response.content_type
            ):
                seen.raw += await response.read()
                reader.whole(seen.raw)
                return
            data: list[str] = []
            async for line in response.content:
                seen.raw += line
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                if text.startswith("data:"):
                    data.append(text[5:].removeprefix(" "))
                elif not text and data:
                    reader.event("\n".join(data))
                    data = []
            if data:
                reader.event("\n".join(data))


class Reader:
    """Reads answers of one interface into a `Seen`."""

    def __init__(self, seen: Seen, tokens: Tokens) -> None:
        self.seen = seen
        self.tokens = tokens

    def whole(self, raw: bytes | bytearray) -> None:
        try:
            body = json.loads(raw)
        except ValueError:
            self.seen.error = raw.decode("utf-8", "replace")
            return
        if not isinstance(body, dict) or self.seen.status >= 400 or body.get("error"):
            self.seen.error = json.dumps(body, ensure_ascii=False)
            return
        self.read_whole(body)
        self.seen.is_over = True

    def event(self, data: str) -> None:
        if data.strip() == "[DONE]":
            self.seen.is_over = True
            return
        try:
            body = json.loads(data)
        except ValueError:
            self.seen.error += data
            return
        if isinstance(body, dict) and (body.get("error") or body.get("type") == "error"):
            self.seen.error += json.dumps(body, ensure_ascii=False)
        elif isinstance(body, dict):
            self.read_event(body)

    def read_whole(self, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def read_event(self, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def add(self, channel: str, choice: int, text: str | None) -> None:
        if text:
            self.seen.pieces.append((time.perf_counter(), channel, choice, text))


class OpenAIReader(Reader):
    def read_whole(self, body: dict[str, Any]) -> None:
        for choice in body.get("choices") or ():
            self._choice(choice, choice.get("message") or {"content": choice.get("text")})

    def read_event(self, body: dict[str, Any]) -> None:
        for choice in body.get("choices") or ():
            self._choice(choice, choice.get("delta") or {"content": choice.get("text")})

    def _choice(self, choice: dict[str, Any], message: dict[str, Any]) -> None:
        index = choice.get("index") or 0
        # Names that servers have for the same text come once.
        thought = message.get("reasoning_content") or message.get("reasoning")
        self.add("reasoning", index, thought if isinstance(thought, str) else None)
        content = message.get("content")
        self.add("content", index, content if isinstance(content, str) else None)
        for number, call in enumerate(message.get("tool_calls") or ()):
            self._call(call, number)
        self._logprobs(index, choice.get("logprobs"))
        for token_id in choice.get("token_ids") or ():
            self.seen.ids[index] += self.tokens.text_of(token_id)
        if reason := choice.get("finish_reason"):
            self.seen.reasons[index] = reason

    def _call(self, call: dict[str, Any], number: int) -> None:
        function = call.get("function") or {}
        known = self.seen.calls[call.get("index", number)]
        known.id += call.get("id") or ""
        known.name += function.get("name") or ""
        known.arguments += function.get("arguments") or ""
        self.add("call", 0, function.get("arguments"))

    def _logprobs(self, index: int, logprobs: Any) -> None:
        if not isinstance(logprobs, dict):
            return
        for token in logprobs.get("content") or ():
            self.seen.logprobs[index] += token.get("token") or ""
            for top in (token.get("top_logprobs") or ())[:1]:
                self.seen.alternatives[index] += bytes(top.get("bytes") or ()).decode("utf-8", "replace")
        for text in logprobs.get("tokens") or ():
            self.seen.logprobs[index] += text


class MessagesReader(Reader):
    def read_whole(self, body: dict[str, Any]) -> None:
        for number, block in enumerate(body.get("content") or ()):
            self._block(number, block)
            if block.get("type") == "tool_use":
                self._arguments(number, json.dumps(block.get("input"), ensure_ascii=False))
        self.seen.reasons[0] = body.get("stop_reason") or ""

    def read_event(self, body: dict[str, Any]) -> None:
        match body.get("type"):
            case "content_block_start":
                self._block(body.get("index", 0), body.get("content_block") or {})
            case "content_block_delta":
                delta = body.get("delta") or {}
                self.add("reasoning", 0, delta.get("thinking"))
                self.add("content", 0, delta.get("text"))
                if delta.get("partial_json"):
                    self._arguments(body.get("index", 0), delta["partial_json"])
            case "message_delta":
                if reason := (body.get("delta") or {}).get("stop_reason"):
                    self.seen.reasons[0] = reason
            case "message_stop":
                self.seen.is_over = True

    def _block(self, index: int, block: dict[str, Any]) -> None:
        self.add("reasoning", 0, block.get("thinking"))
        self.add("content", 0, block.get("text"))
        if block.get("type") == "tool_use":
            call = self.seen.calls[index]
            call.id, call.name = block.get("id") or "", block.get("name") or ""

    def _arguments(self, index: int, text: str) -> None:
        self.seen.calls[index].arguments += text
        self.add("call", 0, text)


_READERS: dict[str, type[Reader]] = {
    "chat": OpenAIReader,
    "completions": OpenAIReader,
    "messages": MessagesReader,
}
