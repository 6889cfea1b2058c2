"""The content blocks of an answer, and the events of each:

content_block_start ─► content_block_delta ... ─► content_block_stop
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import orjson

from proxy.wire.openai.answer import Event, JSONObject


class Block(ABC):
    """One block. A block opens when something of it is released, so indices have no gaps."""

    delta: ClassVar[tuple[str, str]]
    """The type of its deltas, and the field that has their text."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def begin(self) -> list[Event]:
        return [("content_block_start", {"index": self.index, "content_block": self.whole()})]

    def add(self, text: str) -> list[Event]:
        self._pieces.append(text)
        kind, field = self.delta
        return [("content_block_delta", {"index": self.index, "delta": {"type": kind, field: text}})]

    def end(self) -> list[Event]:
        return [("content_block_stop", {"index": self.index})]

    @abstractmethod
    def whole(self) -> JSONObject:
        """The block with all deltas so far."""


class Text(Block):
    delta = ("text_delta", "text")

    def whole(self) -> JSONObject:
        return {"type": "text", "text": self.text}


class Thinking(Block):
    """Reasoning. No server of the original has signed it, so its signature is empty."""

    delta = ("thinking_delta", "thinking")

    def whole(self) -> JSONObject:
        return {"type": "thinking", "thinking": self.text, "signature": ""}


class ToolUse(Block):
    """A call of a tool. Weir gives it its id: an upstream's own id is text that no hook has seen.

    Its text is a JSON object, or empty. The whole block has it as it is, as a stream does: a parser would
    round long numbers, and orjson does not write every depth.
    """

    delta = ("input_json_delta", "partial_json")

    def __init__(self, index: int, name: str, key: str) -> None:
        """`key`: see `engine.protocol.call_ids`."""
        super().__init__(index)
        self.id = f"toolu_{key}"
        self.name = name

    def whole(self) -> JSONObject:
        call_input = orjson.Fragment(self.text) if self.text.strip() else {}
        return {"type": "tool_use", "id": self.id, "name": self.name, "input": call_input}
