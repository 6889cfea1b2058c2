"""Does anything of a forbidden span get out over the Messages API? A part of `make bench-leaks`.

Random answers with reasoning, text and calls of tools go through the guards of `benchmarks.leaks`, and become
events and a whole message. Both must be the same, follow the API's grammar, and hold no forbidden span.
"""

import random
from collections.abc import AsyncGenerator
from typing import Any

import orjson

from benchmarks.leaks import MATCH, EndAtPhrases, RedactPhrases, random_deltas, random_tokens
from engine.protocol import Channel, Delta, GenerationRequest, ToolCall
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted
from proxy.messages.answer import MessagesAnswer
from proxy.messages.fields import MessagesRequest

_FIELDS = MessagesRequest.model_validate(
    {"max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}], "tools": []}
)
_REQUEST = _FIELDS.to_request("msg_1", "m")
_TEXTS = {"text": "text", "thinking": "thinking", "tool_use": "input"}


def random_answer(rng: random.Random) -> tuple[list[Delta], list[tuple[str, str]]]:
    """The deltas, and the texts: each with its channel, in order."""
    deltas: list[Delta] = []
    texts: list[tuple[str, str]] = []
    for _ in range(rng.randint(0, 3)):
        channel: Channel = rng.choice(("reasoning", "content"))
        pieces = [*random_deltas(rng, random_tokens(rng))][:-1]
        texts.append((channel, "".join(piece.text for piece in pieces)))
        deltas += [Delta(text=piece.text, tokens=piece.tokens, channel=channel) for piece in pieces]
    for index in range(rng.randint(0, 2)):
        said = "".join(token.text for token in random_tokens(rng))
        written = orjson.dumps({"said": said}).decode()
        texts.append(("tool_call", written))
        call = ToolCall(index, f"f{index}")
        while written:
            size = rng.randint(1, 6)
            deltas.append(Delta(text=written[:size], channel="tool_call", tool_call=call))
            written = written[size:]
    return [*deltas, Delta(finish_reason="stop")], texts


def message_of(events: bytes) -> dict[str, Any]:
    """The message that a stream makes. Raises `AssertionError` if it breaks the API's grammar."""
    content: list[dict[str, Any]] = []
    is_open = False
    reasons: dict[str, Any] = {}
    for block in events.decode().removesuffix("\n\n").split("\n\n"):
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
            reasons = data["delta"]
    assert not is_open
    assert kind == "message_stop"
    for one in content:
        pieces = one.pop("pieces")
        one[_TEXTS[one["type"]]] = orjson.loads(pieces) if one["type"] == "tool_use" else pieces
    return {"content": content, "stop_reason": reasons["stop_reason"]}


async def answered(pipeline: Pipeline, deltas: list[Delta]) -> tuple[bytes, bytes]:
    """The answer as events, and as a whole."""

    async def source(request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        for delta in deltas:
            yield delta

    released = [delta async for delta in vetted(pipeline.open(_REQUEST), source)]
    stream, whole = MessagesAnswer(_FIELDS, _REQUEST), MessagesAnswer(_FIELDS, _REQUEST)
    events = b"".join([stream.chunk(delta) for delta in released])
    await stream.settle()
    for delta in released:
        whole.fold(delta)
    await whole.settle()
    return events + stream.end(), whole.whole()


def texts_of(content: list[dict[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"text": [], "thinking": [], "tool_use": []}
    for block in content:
        told = block[_TEXTS[block["type"]]]
        found[block["type"]].append(told["said"] if block["type"] == "tool_use" else told)
    return found


async def run(num_streams: int, seed: int) -> None:
    """Run so many streams. Raises `AssertionError`."""
    rng = random.Random(seed)
    for _ in range(num_streams):
        ends = rng.random() < 0.3
        guard = EndAtPhrases() if ends else RedactPhrases()
        deltas, texts = random_answer(rng)
        events, whole = await answered(Pipeline([LoadedHook("guard", guard, False)]), deltas)
        message = orjson.loads(whole)
        streamed = message_of(events)
        for block in (*message["content"], *streamed["content"]):
            block.pop("id", None)
        assert streamed["content"] == message["content"]
        assert streamed["stop_reason"] == message["stop_reason"]
        told = texts_of(message["content"])
        assert not any(MATCH.search(text) for parts in told.values() for text in parts)
        if ends:
            continue
        for kind, channel in (("text", "content"), ("thinking", "reasoning")):
            said = "".join(text for name, text in texts if name == channel)
            assert "".join(told[kind]) == MATCH.sub("*", said)
        calls = [orjson.loads(MATCH.sub("*", text))["said"] for name, text in texts if name == "tool_call"]
        assert told["tool_use"] == calls
