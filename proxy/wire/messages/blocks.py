"""The content blocks of an answer, and the events of each:

content_block_start ─► content_block_delta ... ─► content_block_stop
"""

from abc import ABC, abstractmethod

import orjson

from proxy.wire.openai.answer import JSONObject, event, new_id

Event = tuple[str, JSONObject]
"""An event's type and its other fields."""


def written(events: list[Event]) -> bytes:
    return b"".join([event(orjson.dumps({"type": kind, **fields}), kind) for kind, fields in events])


class Block(ABC):
    """One block. A block opens when something of it is released, so indices have no gaps."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def begin(self) -> list[Event]:
        return [("content_block_start", {"index": self.index, "content_block": self.empty()})]

    def add(self, text: str) -> list[Event]:
        self._pieces.append(text)
        return [("content_block_delta", {"index": self.index, "delta": self.delta(text)})]

    def end(self) -> list[Event]:
        return [("content_block_stop", {"index": self.index})]

    @abstractmethod
    def empty(self) -> JSONObject:
        """The block before its first delta."""

    @abstractmethod
    def delta(self, text: str) -> JSONObject: ...

    @abstractmethod
    def whole(self) -> JSONObject:
        """The block with all deltas."""


class Text(Block):
    def empty(self) -> JSONObject:
        return {"type": "text", "text": ""}

    def delta(self, text: str) -> JSONObject:
        return {"type": "text_delta", "text": text}

    def whole(self) -> JSONObject:
        return {"type": "text", "text": self.text}


class Thinking(Block):
    """Reasoning. No server of the original has signed it, so its signature is empty."""

    def empty(self) -> JSONObject:
        return {"type": "thinking", "thinking": "", "signature": ""}

    def delta(self, text: str) -> JSONObject:
        return {"type": "thinking_delta", "thinking": text}

    def whole(self) -> JSONObject:
        return {"type": "thinking", "thinking": self.text, "signature": ""}


class ToolUse(Block):
    """A call of a tool. Weir gives it its id: an upstream's own id is text that no hook has seen.

    Its text is a JSON object, or empty. The whole block has it as it is, as a stream does: a parser would
    round long numbers, and orjson does not write every depth.
    """

    def __init__(self, index: int, name: str) -> None:
        super().__init__(index)
        self.id = new_id("toolu", "_")
        self.name = name

    def empty(self) -> JSONObject:
        return {"type": "tool_use", "id": self.id, "name": self.name, "input": {}}

    def delta(self, text: str) -> JSONObject:
        return {"type": "input_json_delta", "partial_json": text}

    def whole(self) -> JSONObject:
        return {**self.empty(), "input": orjson.Fragment(self.text) if self.text.strip() else {}}
