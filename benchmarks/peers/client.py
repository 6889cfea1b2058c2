"""A client of a system: it notes the text of each channel, and when it comes."""

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from benchmarks.peers.systems import KEY
from benchmarks.peers.upstream import VALUES, Answer

HEADERS = {"Authorization": f"Bearer {KEY}"}
FEWEST = 6
"""A shorter part of a value does not count."""


@dataclass
class Received:
    status: int = 200
    texts: dict[str, str] = field(default_factory=lambda: defaultdict(str))
    """By channel and choice."""
    times: list[float] = field(default_factory=list)
    """When text came."""
    error: str = ""
    ended: bool = False

    def outcome(self, answer: Answer) -> str:
        """`whole`, `part` or `none` of the value reached the client; `absent`: neither did its channel."""
        longest = max((_longest_part(VALUES[answer.value], text) for text in self.texts.values()), default=0)
        if longest == len(VALUES[answer.value]):
            return "whole"
        if longest >= FEWEST:
            return "part"
        channel = "content" if answer.channel == "n=2" else answer.channel
        names = [f"{channel} {i}" for i in range(2 if answer.channel == "n=2" else 1)]
        return "none" if all(self.texts.get(name) for name in names) else "absent"

    def add(self, choice: dict[str, Any], message: dict[str, Any]) -> None:
        index, before = choice.get("index", 0), sum(map(len, self.texts.values()))
        self.texts[f"content {index}"] += message.get("content") or ""
        for name in ("reasoning_content", "reasoning"):
            self.texts[f"reasoning {index}"] += message.get(name) or ""
        for call in message.get("tool_calls") or ():
            self.texts[f"tool_call {index}"] += (call.get("function") or {}).get("arguments") or ""
        for token in (choice.get("logprobs") or {}).get("content") or ():
            self.texts[f"logprobs {index}"] += token.get("token") or ""
            for top in token.get("top_logprobs") or ():
                self.texts[f"alternatives {index}"] += top.get("token") or ""
        if sum(map(len, self.texts.values())) > before:
            self.times.append(time.perf_counter())


def _longest_part(value: str, text: str) -> int:
    return max(
        (
            end - start
            for start in range(len(value))
            for end in range(start, len(value) + 1)
            if value[start:end] in text
        ),
        default=0,
    )


async def ask(
    http: aiohttp.ClientSession, base_url: str, answer: Answer, *, is_streaming: bool, **fields: Any
) -> Received:
    """Ask for `answer`. `fields`: others of the request."""
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": answer.name}], **fields}
    body |= {"stream": True} if is_streaming else {}
    body |= {"logprobs": True, "top_logprobs": 1} if answer.channel == "logprobs" else {}
    body |= {"n": 2} if answer.channel == "n=2" else {}
    if answer.channel == "tool_call":
        parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
        body["tools"] = [{"type": "function", "function": {"name": "write", "parameters": parameters}}]
    received = Received()
    async with http.post(base_url + "/chat/completions", json=body, headers=HEADERS) as response:
        received.status = response.status
        if not is_streaming or response.status != 200:
            _read_whole(received, await response.read())
            return received
        try:
            async for line in response.content:
                _read_line(received, line.strip())
        except aiohttp.ClientError as error:
            received.error = type(error).__name__
    return received


def _read_whole(received: Received, data: bytes) -> None:
    answer: dict[str, Any] = orjson.loads(data) if data[:1] == b"{" else {"error": data.decode()}
    received.error = str(answer.get("error") or answer.get("detail") or "")
    for choice in answer.get("choices") or ():
        received.add(choice, choice["message"])
    received.ended = True


def _read_line(received: Received, line: bytes) -> None:
    if line == b"data: [DONE]":
        received.ended = True
    elif line.startswith(b"data: "):
        event = orjson.loads(line[6:])
        if event.get("error"):
            received.error = str(event["error"])
        for choice in event.get("choices") or ():
            received.add(choice, choice.get("delta") or {})
