"""Reads an upstream's JSON. A text with wrong bytes, or with half a character, does not end an answer.

JSON can write a character beyond U+FFFF as two escapes (`\\ud83d\\ude00`), and some servers cut a text
between them. Such a half is no text: nothing can write it as UTF-8.
"""

import json
from collections.abc import Hashable
from typing import Any

import orjson

from engine.protocol.characters import ESCAPED_HALF, REPLACEMENT, whole_characters, with_whole_characters

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TEXTS = frozenset(
    {"content", "reasoning_content", "reasoning", "refusal", "text", "arguments", "name"}
    | {"thinking", "partial_json"}
)
"""Fields whose texts go on in later events."""


def read_object(data: bytes) -> dict[str, Any]:
    """A JSON object, which has whole characters alone. Wrong bytes become U+FFFD, and a byte order mark is
    dropped. Some servers also write `-Infinity` and `NaN`, or control characters in strings, which are not
    JSON.

    Raises `TypeError` for other JSON, `ValueError` and `RecursionError`.
    """
    return _object(read_json(data))


def read_json(data: bytes) -> Any:
    """The same for any JSON: see `read_object`."""
    return _read(data, frozenset())


def strict_json(data: bytes) -> bytes:
    """The same object, as every reader takes it. Bytes that are strict JSON already stay as they are. Raises
    as `read_object` does."""
    try:
        _object(orjson.loads(data))
    except orjson.JSONDecodeError:
        return orjson.dumps(read_object(data))
    return data


def read_event(data: bytes) -> dict[str, Any]:
    """The same for one event of a stream: see `read_object`. A text of the answer may begin or end with half
    a character. `HalfCharacters` has to join the halves."""
    return _object(_read(data, _TEXTS))


class HalfCharacters:
    """The halves with which the texts of streams ended. Each waits for the next text of its stream."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[Hashable, str] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def join(self, stream: Hashable, text: str) -> str:
        """The whole characters of the stream's next text, with the half before it."""
        if not text:
            return ""
        if self._held:
            text = self._held.pop(stream, "") + text
        if "\ud800" <= text[-1] <= "\udbff":
            self._held[stream] = text[-1]
            text = text[:-1]
        return whole_characters(text)

    def end(self, stream: Hashable) -> str:
        """The stream has ended: U+FFFD if its half is alone, and otherwise nothing."""
        return REPLACEMENT if self._held.pop(stream, "") else ""


def _read(data: bytes, texts: frozenset[str]) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        text = data.removeprefix(_BYTE_ORDER_MARK).decode("utf-8", "replace")
        value = json.loads(text, parse_constant=float, strict=False)
        return with_whole_characters(value, texts) if ESCAPED_HALF.search(text) else value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value
