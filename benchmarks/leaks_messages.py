"""Does anything of a forbidden span get out over the Messages API? A part of `make bench NAME=leaks`.

Clients ask a server for random answers with reasoning, text and calls of tools. At times the name of a tool,
an upstream's id of a call and the stop string are forbidden, too. Each request names a guard: it redacts,
suppresses, terminates, holds all to the end, rewinds or raises. Each request comes twice, streamed and not.
Both answers must be equal and follow the API's grammar. No event, body, header, log line, metric, trace or
decision may hold a forbidden span, nor may the joined pieces of a text.
"""

import asyncio
import logging
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import orjson

from benchmarks.leak_guards import GUARDS, MATCH, PHRASES, Observer, WithholdNames
from benchmarks.leaks import ENDS, FIELDS, INFO, End, random_tokens, without_beginning
from engine.protocol import Channel, Delta, Deltas, GenerationRequest, Rewind, Token, ToolCall, Usage
from engine.upstream.request_tracker import TrackedEngine
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from proxy.deployment.deployment import Deployment
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings
from proxy.storage.records import DecisionRecord
from proxy.telemetry.logs import JSONFormatter
from tools.collector import Collector, Span

PATH = "/v1/messages"
NUM_CLIENTS = 8

_ID = re.compile("(?:msg|toolu|req)_[0-9a-f]{32}")
"""The ids that Weir makes are random, and may look like a phrase."""
_NAMES = {"stop": "stop_sequences"}
"""The API's names for fields of a chat."""
_TEXTS = {"text": "text", "thinking": "thinking", "tool_use": "input"}


@dataclass
class Said:
    """What the engine says to one request, all made from the request's number."""

    guard: str
    pieces: list[tuple[Channel, ToolCall | None, Token]]
    end: End
    sizes: list[int]
    """Tokens of each delta, over and over."""
    more: random.Random
    """Makes the text that the engine writes after a rewind."""


def said(number: str) -> Said:
    rng = random.Random(number)
    guard = rng.choice([*GUARDS])
    pieces: list[tuple[Channel, ToolCall | None, Token]] = []
    for _ in range(rng.randint(0, 3)):
        channel: Channel = rng.choice(("reasoning", "content"))
        pieces += [(channel, None, token) for token in random_tokens(rng)]
    # What an engine says otherwise is text, which could not be the rest of a call.
    for index in range(0 if guard == "rewind" else rng.randint(0, 2)):
        text = orjson.dumps({"said": "".join(token.text for token in random_tokens(rng))}).decode()
        name, upstream = rng.choice((f"f{index}", f"f_{rng.choice(PHRASES)}")), f"call_{rng.choice(PHRASES)}"
        call = ToolCall(index, name, upstream)
        while text:
            size = rng.randint(1, 6)
            piece, text = text[:size], text[size:]
            pieces.append(("tool_call", call, Token(1, piece, piece.encode(), -0.5)))
    return Said(guard, pieces, rng.choice(ENDS), [rng.randint(1, 6) for _ in range(5)], rng)


class _Engine(TrackedEngine):
    """Says what the number in the prompt makes it say."""

    fields = FIELDS

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(INFO, can_rewind=True)

    async def generate(self, request: GenerationRequest) -> Deltas:
        scene = said(request.messages[0]["content"])
        pieces, place, number = scene.pieces, 0, 0
        while True:
            delta = _next_delta(scene, place, scene.sizes[number % len(scene.sizes)])
            place, number = place + len(delta.tokens), number + 1
            delta.usage = Usage(3, number)
            back = yield delta
            if isinstance(back, Rewind):
                place = back.num_tokens
                pieces[place:] = [("content", None, token) for token in random_tokens(scene.more)]
            elif delta.finish_reason is not None:
                return


def _next_delta(scene: Said, place: int, size: int) -> Delta:
    """At most `size` tokens of one stream, and such without text up to the next with text."""
    pieces = scene.pieces
    if place == len(pieces):
        return replace(scene.end.last)
    channel, call, _ = pieces[place]
    tokens: list[Token] = []
    for piece in pieces[place:]:
        if piece[:2] != (channel, call) or (len(tokens) >= size and tokens[-1].text):
            break
        tokens.append(piece[2])
    text = "".join(token.text for token in tokens)
    return Delta(text=text, tokens=tuple(tokens), channel=channel, tool_call=call)


def message_of(events: bytes) -> dict[str, Any]:
    """The message that a stream makes. Raises `AssertionError` if it breaks the API's grammar."""
    content: list[dict[str, Any]] = []
    is_open = False
    fields: dict[str, Any] = {}
    assert events.endswith(b"\n\n")
    for block in events.decode().removesuffix("\n\n").split("\n\n"):
        assert "error" not in fields, "nothing follows an error"
        data = orjson.loads(block.partition("data: ")[2])
        kind = data["type"]
        if kind == "content_block_start":
            assert not is_open
            assert data["index"] == len(content)
            content.append({**data["content_block"], "pieces": ""})
            is_open = True
        elif kind == "content_block_delta":
            assert is_open
            assert data["index"] == len(content) - 1
            content[-1]["pieces"] += next(v for k, v in data["delta"].items() if k != "type")
        elif kind == "content_block_stop":
            is_open = False
        elif kind == "message_delta":
            fields |= {**data["delta"], "usage": data["usage"]}
        elif kind == "error":
            fields["error"] = data["error"]
    assert "error" in fields or (kind == "message_stop" and not is_open)
    for one in content:
        pieces = one.pop("pieces")
        one[_TEXTS[one["type"]]] = orjson.loads(pieces) if one["type"] == "tool_use" else pieces
    return {"content": content, **fields}


def texts_of(content: list[dict[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"text": [], "thinking": [], "tool_use": []}
    for block in content:
        text = block[_TEXTS[block["type"]]]
        found[block["type"]].append(text["said"] if block["type"] == "tool_use" else text)
    return found


@dataclass
class Answer:
    """What a client got, streamed or not."""

    status: int
    headers: str
    raw: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The message, or the error, as `{"error": ...}` beside what came before it."""
        is_stream = "text/event-stream" in self.headers
        message: dict[str, Any] = message_of(self.raw) if is_stream else orjson.loads(self.raw)
        for block in message.get("content", ()):
            block.pop("id", None)
        return message

    def check(self, content: list[dict[str, Any]]) -> None:
        """Raises `AssertionError` for a phrase, whether in one piece or in what the blocks put together."""
        for received in (self.raw.decode(), self.headers):
            assert not MATCH.search(_ID.sub("", received)), received
        for kind, texts in texts_of(content).items():
            for text in texts if kind == "tool_use" else ["".join(texts)]:
                assert not MATCH.search(text), text


class _LogLines(logging.Handler):
    """Keeps the lines with a phrase that the server logs."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JSONFormatter())
        self.leaked: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.look_at(self.format(record))

    def look_at(self, report: str) -> None:
        if MATCH.search(_ID.sub("", report)):
            self.leaked.append(report)


class _Tools(Collector):
    """The operator's tools: a collector, and a subscriber to the decisions. What has a phrase is kept."""

    def __init__(self, lines: _LogLines) -> None:
        super().__init__()
        self._lines = lines
        self.num_spans = self.num_decisions = 0

    def show(self, spans: list[Span]) -> None:
        self.num_spans += len(spans)
        for span in spans:
            self._lines.look_at(f"{span.name} {span.attributes} {span.events}")

    def take_decision(self, record: DecisionRecord) -> None:
        self.num_decisions += 1
        self._lines.look_at(str(record.json()))


@dataclass
class Run:
    """A server, and the clients that ask it."""

    server: Server
    http: aiohttp.ClientSession
    url: str
    counts: Counter[str] = field(default_factory=Counter)
    """Pairs of answers: by the guard; those that it changed, and those that it ended with an error."""

    async def ask(self, number: str, scene: Said, stream: bool) -> Answer:
        asks = {_NAMES.get(name, name): value for name, value in scene.end.asks.items()}
        body = {
            "max_tokens": 1000,
            "messages": [{"role": "user", "content": number}],
            "tools": [{"name": "f0", "input_schema": {"type": "object"}}],
            "hooks": [scene.guard],
            **asks,
            "stream": stream,
        }
        async with self.http.post(self.url + PATH, json=body) as response:
            return Answer(response.status, str(response.headers), await response.read())

    async def compare(self, number: str) -> None:
        """Ask twice, and look at both answers. Raises `AssertionError`."""
        scene = said(number)
        whole, streamed = [await self.ask(number, scene, stream) for stream in (False, True)]
        message, events = whole.message, streamed.message
        self.counts[scene.guard] += 1
        for answer in (whole, streamed):
            answer.check(answer.message.get("content", []))
        assert whole.status == (500 if "error" in events else 200)
        if "error" in events:
            assert message["error"] == events["error"]
            self.counts["ended with an error"] += 1
            return
        for name in ("content", "stop_reason", "stop_sequence", "usage"):
            assert message[name] == events[name], (message, events)
        assert message["stop_details"] == events.get("stop_details")
        assert message["stop_sequence"] is None
        if scene.guard in ("redact", "hold"):
            assert joined(texts_of(message["content"])) == redacted(scene)

    async def all(self, numbers: Iterator[str]) -> None:
        for number in numbers:
            await self.compare(number)


def joined(texts: dict[str, list[str]]) -> dict[str, list[str]]:
    """A channel's text is one, whatever its blocks are; each call is by itself."""
    return {kind: parts if kind == "tool_use" else ["".join(parts)] for kind, parts in texts.items()}


def redacted(scene: Said) -> dict[str, list[str]]:
    """What a client gets of the engine's words if each phrase is redacted, and the beginning of one is
    withheld at a cut. All calls are whole."""
    texts = {"text": "", "thinking": ""}
    calls: dict[ToolCall, str] = {}
    for channel, call, token in scene.pieces:
        if call is not None:
            calls[call] = calls.get(call, "") + token.text
        else:
            texts["thinking" if channel == "reasoning" else "text"] += token.text
    arguments = [MATCH.sub("*", text) for call, text in calls.items() if not MATCH.search(call.name)]
    return {
        **{
            kind: [MATCH.sub("*", without_beginning(text) if scene.end.is_cut else text)]
            for kind, text in texts.items()
        },
        "tool_use": [orjson.loads(text)["said"] for text in arguments],
    }


async def run(num_streams: int, seed: int, *, has_tools: bool = False) -> Counter[str]:
    """Ask for so many answers, each streamed and not. Returns how many pairs each guard had, how many ended
    with an error, and how many spans and decisions an operator received. Raises `AssertionError`.
    `has_tools`: requests are traced, and decisions logged."""
    always = [LoadedHook.of(type(hook).__name__, hook) for hook in (WithholdNames(), Observer())]
    pipeline = Pipeline(always, [LoadedHook.of(name, hook) for name, hook in GUARDS.items()])
    lines = _LogLines()
    tools = _Tools(lines)
    endpoint = (await tools.start()).url if has_tools else None
    settings = ServeSettings(port=0, otlp_endpoint=endpoint, decision_log=has_tools)
    server = Server(Deployment.of_one(_Engine(), pipeline, settings.base_model, ["m"]), settings)
    if has_tools:
        server.service.decisions.subscribe(tools.take_decision)
    log = logging.getLogger("weir")
    level, propagate = log.level, log.propagate
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    log.propagate = False  # a hook that raises is logged each time
    try:
        url = await server.start()
        async with aiohttp.ClientSession() as http:
            asking = Run(server, http, url)
            numbers = iter([f"{seed} {i}" for i in range(num_streams)])
            async with asyncio.TaskGroup() as group:
                for _ in range(NUM_CLIENTS):
                    group.create_task(asking.all(numbers))
            async with http.get(url + "/metrics") as response:
                assert not MATCH.search(await response.text())
            if has_tools:
                await server.service.telemetry.aclose()
                lines.look_at(str(tools.metrics))
                asking.counts |= Counter({"spans": tools.num_spans, "decisions": tools.num_decisions})
        assert not lines.leaked, lines.leaked
        return asking.counts
    finally:
        await server.stop()
        if has_tools:
            await tools.aclose()
        log.removeHandler(lines)
        log.setLevel(level)
        log.propagate = propagate
