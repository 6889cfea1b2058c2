"""Chats with an engine whose model says given tokens, and the tools they may use."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from engine.local.engine import LocalEngine
from engine.parsers import Parsers, Parsing
from engine.protocol import Delta, GenerationRequest
from engine.streams.feeding import iterated
from engine.streams.flow import StagedFlow

HELLO = GenerationRequest(
    request_id="r", model="m", endpoint="chat", messages=({"role": "user", "content": "hello"},)
)


Start = Callable[..., Any]


async def answer(engine: LocalEngine, parsers: Parsers, **fields: Any) -> list[Delta]:
    request = dataclasses.replace(HELLO, **fields)
    parsing = Parsing(parsers, request, engine.tokenizer)
    return [delta async for delta in iterated(StagedFlow(partial(engine.feed, request), [parsing]))]


def text_of(deltas: list[Delta], channel: str) -> str:
    return "".join(delta.text for delta in deltas if delta.channel == channel)


class Says:
    """Makes the model prefer these tokens at the beginning of its output."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def __call__(self, input_ids: Any, logits: Any) -> None:
        num = len(input_ids) - input_ids.num_prompt_tokens
        if num < len(self.ids):
            logits[self.ids[num]] += 1000.0


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city"],
    "additionalProperties": False,
}


TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {
        "type": "function",
        "function": {"name": "größe", "parameters": {"properties": {}, "additionalProperties": False}},
    },
)


SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}


NAMED = {"type": "function", "function": {"name": "weather"}}


def calls_of(deltas: list[Delta]) -> list[tuple[str, str]]:
    """The name and arguments of each call."""
    calls: dict[int, tuple[str, str]] = {}
    for delta in deltas:
        if call := delta.tool_call:
            _, arguments = calls.get(call.index, ("", ""))
            calls[call.index] = call.name, arguments + delta.text
    return list(calls.values())
