"""The content blocks of an upstream's answer: the grammar of their events, and the channel of their texts."""

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import orjson

from engine.protocol import Channel, ToolCall
from engine.protocol.characters import whole_characters, with_whole_characters
from engine.upstream.arguments import Arguments
from engine.upstream.json_text import HalfCharacters
from engine.upstream.limits import TooMuchError
from engine.upstream.messages.signatures import MAX_SIGNATURE

Kind = Literal["text", "thinking", "redacted_thinking", "tool_use"]
_CHANNELS: dict[str, Channel] = {"text": "content", "thinking": "reasoning", "tool_use": "tool_call"}
_TEXTS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}
_TEXTS["tool_use"] = ("input_json_delta", "partial_json")
"""The kind of a block's deltas, and their field with the text, by the block's kind."""
_SEALS = {"thinking": "signature", "redacted_thinking": "data"}
"""The field of a block of reasoning that only the upstream can read."""
_MUTE = {"text": "citations_delta", "thinking": "signature_delta"}
"""Deltas without text for hooks. They go no further."""


class Block:
    """One block. `start` (the field `content_block`) has its kind. `call_index`: the number of calls before.

    Raises `LookupError`, `TypeError`, `AttributeError` or `ValueError` for invalid events, and
    `TooMuchError` for a signature that is too long.
    """

    def __init__(self, start: Mapping[str, Any], call_index: int) -> None:
        kind = start["type"]
        if kind not in (*_CHANNELS, "redacted_thinking"):
            raise ValueError("a block of an unknown kind")
        self.kind: Kind = kind
        self.channel = _CHANNELS.get(kind, "content")
        self.call = _call_of(start, call_index) if kind == "tool_use" else None
        self._delta, self._field = _TEXTS.get(kind, ("", ""))
        self._input = start.get("input") or {}
        self._arguments = Arguments()
        self._num_pieces = 0
        self._halves = HalfCharacters()
        self._hash = hashlib.sha256()
        self._signature = ""
        self._has_text = False
        first = _text(start.get(self._field) or "") if kind in ("text", "thinking") else ""
        self.first = self._halves.join(kind, first)
        """Text that comes with the start."""
        if kind in _SEALS:
            self._add_signature(start.get(_SEALS[kind]) or "")

    def text_of(self, delta: Mapping[str, Any]) -> str:
        """The text of a `content_block_delta`. Empty for deltas without text."""
        if delta["type"] != self._delta:
            self._read_mute(delta)
            return ""
        text = _text("" if delta[self._field] is None else delta[self._field])
        if self.call is None:
            return self._halves.join(self.kind, text)
        self._num_pieces += bool(text.strip())
        return self._arguments.feed(self._halves.join(self.kind, text))

    def last(self) -> str:
        """The text that is left when the block ends: half a character, or the input of a call that came with
        the start."""
        if self.call is None:
            return self._halves.end(self.kind)
        if not self._num_pieces:
            return orjson.dumps(with_whole_characters(self._input)).decode()
        if self._input:
            raise ValueError("two inputs of one call")
        return self._arguments.feed(self._halves.end(self.kind)) + self._arguments.end()

    def sign(self, text: str) -> None:
        """Add a part of the reasoning that the signature is for."""
        self._hash.update(text.encode())
        self._has_text = self._has_text or bool(text)

    @property
    def signed(self) -> tuple[bytes, str] | None:
        """The hash of the reasoning, and its signature, if there are both."""
        return (self._hash.digest(), self._signature) if self._has_text and self._signature else None

    @property
    def hidden(self) -> dict[str, Any] | None:
        """The block as the upstream gave it, if it is reasoning without text."""
        if self.kind not in _SEALS or self._has_text or not self._signature:
            return None
        text = {"thinking": ""} if self.kind == "thinking" else {}
        return {"type": self.kind, **text, _SEALS[self.kind]: self._signature}

    def _read_mute(self, delta: Mapping[str, Any]) -> None:
        if delta["type"] != _MUTE.get(self.kind):
            raise ValueError("a delta that does not fit its block")
        if self.kind == "thinking":
            self._add_signature(delta["signature"])

    def _add_signature(self, part: Any) -> None:
        self._signature += _text(part)
        if len(self._signature) > MAX_SIGNATURE:
            raise TooMuchError("a signature is too long")


def _call_of(start: Mapping[str, Any], index: int) -> ToolCall:
    name, call_id, arguments = start["name"], start.get("id"), start.get("input") or {}
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping):
        raise TypeError("a call without a name, or with an input that is not an object")
    return ToolCall(index, whole_characters(name), call_id if isinstance(call_id, str) else None)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return value
