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
OPEN_TEXTS = frozenset(
    {"content", "reasoning_content", "reasoning", "refusal", "text", "arguments", "name"}
    | {"thinking", "partial_json"}
)
"""Fields of an event whose texts go on in later events."""


def read_object(data: bytes, open_texts: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A JSON object, which has whole characters alone. Wrong bytes become U+FFFD, and a byte order mark is
    dropped. Some servers also write `-Infinity` and `NaN`, or control characters in strings, which are not
    JSON. `open_texts`: names of fields whose texts may begin or end with half a character, which
    `HalfCharacters` has to join.

    Raises `TypeError` for other JSON, `ValueError` and `RecursionError`.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = read_json(data, open_texts)
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


def read_json(data: bytes, open_texts: frozenset[str] = frozenset()) -> Any:
    """As `read_object`, for any JSON. Slow: most JSON is strict."""
    text = data.removeprefix(_BYTE_ORDER_MARK).decode("utf-8", "replace")
    value = json.loads(text, parse_constant=float, strict=False)
    return with_whole_characters(value, open_texts) if ESCAPED_HALF.search(text) else value


def strict_json(data: bytes) -> bytes:
    """The same object, as every reader takes it. Bytes that are strict JSON already stay as they are. Raises
    as `read_object` does."""
    try:
        if not isinstance(orjson.loads(data), dict):
            raise TypeError("not a JSON object")
    except orjson.JSONDecodeError:
        return orjson.dumps(read_object(data))
    return data


class HalfCharacters(dict[Hashable, str]):
    """The halves with which the texts of streams ended, by stream. Each waits for the next text of its
    stream."""

    def join(self, stream: Hashable, text: str) -> str:
        """The whole characters of the stream's next text, with the half before it."""
        if not self and text.isascii():  # nearly all texts
            return text
        if not text:
            return ""
        text = self.pop(stream, "") + text
        if "\ud800" <= text[-1] <= "\udbff":
            self[stream] = text[-1]
            text = text[:-1]
        return whole_characters(text)

    def end(self, stream: Hashable) -> str:
        """The stream has ended: U+FFFD if its half is alone, and otherwise nothing."""
        return REPLACEMENT if self.pop(stream, "") else ""
