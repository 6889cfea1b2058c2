"""Reads an upstream's JSON. A text with wrong bytes, or with half a character, does not end an answer.

JSON can write a character beyond U+FFFF as two escapes (`\\ud83d\\ude00`), and some servers cut a text
between them. Such a half is no text: nothing can write it as UTF-8.
"""

import json
import re
from collections.abc import Hashable
from typing import Any

import orjson

REPLACEMENT = "\ufffd"
"""The character that stands for wrong bytes, and for half a character without the other half."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_TEXTS = frozenset(
    {"content", "reasoning_content", "reasoning", "refusal", "text", "arguments", "name"}
    | {"thinking", "partial_json"}
)
"""Fields whose texts go on in later events."""


def read_object(data: bytes) -> dict[str, Any]:
    """A JSON object, which has whole characters alone. Wrong bytes become U+FFFD, and a byte order mark is
    dropped. Python servers also write `-Infinity` and `NaN`, which are not JSON.

    Raises `TypeError` for other JSON, `ValueError` and `RecursionError`.
    """
    return _object(read_json(data))


def read_json(data: bytes) -> Any:
    """As `read_object`, for any JSON."""
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
    """As `read_object`, for one event of a stream: a text of the answer may begin or end with half a
    character. `HalfCharacters` has to join them."""
    return _object(_read(data, _TEXTS))


def whole_characters(text: str) -> str:
    """The text with its pairs of halves joined, and U+FFFD for any other half."""
    if has_whole_characters(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def has_whole_characters(text: str) -> bool:
    """Whether the text has no half of a character."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def with_whole_characters(value: Any) -> Any:
    """JSON with `whole_characters` in all of its texts and names."""
    return _mended(value, keeps_edges=False, texts=frozenset())


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
        value = json.loads(text, parse_constant=float)
        return _mended(value, keeps_edges=False, texts=texts) if _ESCAPED_HALF.search(text) else value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


def _mended(value: Any, *, keeps_edges: bool, texts: frozenset[str]) -> Any:
    """The value with whole characters. `texts`: names of fields whose texts keep a half at their edges."""
    if isinstance(value, str):
        return _inside_mended(value) if keeps_edges else whole_characters(value)
    if isinstance(value, list):
        return [_mended(one, keeps_edges=keeps_edges, texts=texts) for one in value]
    if isinstance(value, dict):
        return {
            whole_characters(name): _mended(one, keeps_edges=name in texts, texts=texts)
            for name, one in value.items()
        }
    return value


def _inside_mended(text: str) -> str:
    first = text[:1] if "\udc00" <= text[:1] <= "\udfff" else ""
    rest = text[len(first) :]
    last = rest[-1:] if "\ud800" <= rest[-1:] <= "\udbff" else ""
    return first + whole_characters(rest[: len(rest) - len(last)]) + last
