"""Recorded sessions of agents: the HTTP requests as an SDK wrote them, byte for byte, as JSON lines."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from tests.clients.agent import JSONObject, Turn
from tests.proxy.conftest import Events, read_events
from tests.proxy.response_helpers import check_events
from tests.proxy.wire.messages.conftest import folded

FOLDER = Path(__file__).parent / "sessions"
HEADERS = ("accept", "anthropic-version", "authorization", "content-type", "user-agent", "x-api-key")
"""The headers that are recorded. The others say which machine the SDK runs on, or belong to a connection."""

TEXT_BEGINS = (b'"delta":{"content":"', b"event: response.output_text.delta", b'"type":"text_delta"')
"""Parts of the first event that has text of an answer, in each API."""


@dataclass(frozen=True)
class Request:
    """One request of a session."""

    method: str
    path: str
    headers: dict[str, str]
    body: str
    leaves: bool = False
    """Whether the client leaves after the answer's first text."""

    async def send(self, http: aiohttp.ClientSession, url: str) -> Turn | None:
        """The answer. None if the client left."""
        asked = http.request(self.method, url + self.path, data=self.body.encode(), headers=self.headers)
        async with asked as response:
            if self.leaves:
                async for line in response.content:
                    if any(begin in line for begin in TEXT_BEGINS):
                        response.close()
                        return None
            answer = await response.read()
            assert response.status == 200, answer
            if response.content_type == "text/event-stream":
                return turn_of(self.path, fold(self.path, Events(200, {}, *read_events(answer))))
            return turn_of(self.path, orjson.loads(answer))


def load(path: Path) -> list[Request]:
    return [Request(**orjson.loads(line)) for line in path.read_bytes().splitlines()]


def save(path: Path, requests: Iterable[Request]) -> None:
    path.write_bytes(b"".join(orjson.dumps(asdict(request)) + b"\n" for request in requests))


def recorded() -> dict[str, list[Request]]:
    """The sessions, by the names of their files."""
    return {path.stem: load(path) for path in sorted(FOLDER.glob("*.jsonl"))}


def fold(path: str, stream: Events) -> JSONObject:
    """The whole answer that a stream makes. Fails unless the stream is well formed."""
    if path.endswith("/messages"):
        return folded(stream.events)
    return check_events(stream) if path.endswith("/responses") else _folded_chat(stream)


def _folded_chat(stream: Events) -> JSONObject:
    message: JSONObject = {"content": "", "reasoning_content": "", "tool_calls": []}
    reason = None
    for chunk in stream.chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            reason = choice["finish_reason"] or reason
            for name in ("content", "reasoning_content"):
                message[name] += delta.get(name) or ""
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"function": {**call["function"], "arguments": ""}})
                function = message["tool_calls"][call["index"]]["function"]
                function["arguments"] += call["function"]["arguments"]
    return {"choices": [{"message": message, "finish_reason": reason}]}


def turn_of(path: str, answer: JSONObject) -> Turn:
    """The answer of an API, in no API's words."""
    if path.endswith("/messages"):
        return _turn_of_message(answer)
    return _turn_of_response(answer) if path.endswith("/responses") else _turn_of_chat(answer)


def _turn_of_chat(answer: JSONObject) -> Turn:
    (choice,) = answer["choices"]
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return Turn(
        message.get("content") or "",
        message.get("reasoning_content") or "",
        tuple((call["name"], orjson.loads(call["arguments"])) for call in calls),
        choice["finish_reason"],
    )


def _turn_of_response(answer: JSONObject) -> Turn:
    assert answer["status"] == "completed"
    items = answer["output"]
    calls = [(one["name"], orjson.loads(one["arguments"])) for one in items if one["type"] == "function_call"]
    return Turn(
        _joined(part["text"] for item in items if item["type"] == "message" for part in item["content"]),
        _joined(part["text"] for item in items if item["type"] == "reasoning" for part in item["content"]),
        tuple(calls),
        "tool_calls" if calls else "stop",
    )


def _turn_of_message(answer: JSONObject) -> Turn:
    blocks = answer["content"]
    reasons: Any = {"end_turn": "stop", "tool_use": "tool_calls"}
    return Turn(
        _joined(block["text"] for block in blocks if block["type"] == "text"),
        _joined(block["thinking"] for block in blocks if block["type"] == "thinking"),
        tuple((block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"),
        reasons[answer["stop_reason"]],
    )


def _joined(texts: Iterable[str]) -> str:
    return "".join(texts)
