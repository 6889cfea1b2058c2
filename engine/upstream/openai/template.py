"""Reads events that differ from an earlier one in their text alone, without parsing all of their JSON.

The bytes of such an event are those before the text's JSON string, the string, and those after it. All bytes
are accounted for: those around the string are compared, and the string is parsed. So the event means what the
earlier one meant, with another text. Neither the string nor a learned event has a line's end.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from engine.protocol import Delta
from engine.protocol.characters import has_whole_characters
from engine.upstream.limits import LONG_TEXT, OutputCount, TooMuchError

_MARK = b"WeirTextMark"
"""Letters that are no JSON without quotes."""
_OTHER_TEXT = ("reasoning_content", "reasoning", "tool_calls", "function_call")
"""The fields of a chat's delta that have other text than content."""
_MOST = 8
"""Events that are learned without use. Some upstreams change another field with each event."""


def _text_in_json(data: bytes) -> str:
    """The same for a chunk's JSON: see `text_in`. Raises `ValueError`."""
    return text_in(orjson.loads(data))


def text_in(chunk: Mapping[str, Any]) -> str:
    """The content of a chunk that has one choice with content, and nothing else. Empty for other chunks."""
    choices: Sequence[Any] = chunk.get("choices") or ()
    has_more = chunk.get("usage") or chunk.get("error") or len(choices) != 1
    return "" if has_more else text_alone(choices[0])


def text_alone(choice: Mapping[str, Any]) -> str:
    """The content of a chat's choice without other text, tokens and an end. Empty for other choices."""
    if choice.get("finish_reason") or choice.get("logprobs") or choice.get("token_ids") or choice.get("text"):
        return ""
    delta = choice.get("delta") or {}
    content = delta.get("content")
    if not isinstance(content, str) or (len(delta) > 1 and any(map(delta.get, _OTHER_TEXT))):
        return ""
    # Half a character is joined with the other half, which another event has.
    return content if has_whole_characters(content) else ""


class TextTemplate:
    """The event that was learned last, and the output whose content its text continues."""

    __slots__ = ("_after", "_before", "_between", "_count", "_left", "_shortest")

    def __init__(self, count: OutputCount) -> None:
        self._count = count
        self._before = self._after = self._between = b""
        self._shortest = sys.maxsize
        """Bytes of the event with an empty text. Before an event is learned, no data are longer."""
        self._left = _MOST

    def delta_of(self, data: bytes) -> Delta | None:
        """The delta of bytes that are whole events like the learned one. None for any other bytes, for an
        empty text, for a long one, and for one that is too much: nothing is counted then."""
        before, after = self._before, self._after
        if len(data) <= self._shortest or not (data.startswith(before) and data.endswith(after)):
            return None
        strings = data[len(before) : len(data) - len(after)].split(self._between)
        text = ""
        for string in strings:
            if not (string.startswith(b'"') and string.endswith(b'"')):
                return None
            try:
                more: str = orjson.loads(string)
            except orjson.JSONDecodeError:
                return None
            if not more:
                return None
            text += more
        if len(text) > LONG_TEXT:
            return None
        self._left = _MOST
        try:
            usage = self._count.add("content", len(text), len(strings), len(strings))
        except TooMuchError:
            return None  # the texts before the one that is too much are good
        return Delta(text=text, usage=usage)

    def learn(self, data: bytes, text: str) -> None:
        """Learn the event `data`, whose text is `text`.

        A mark takes the place of the text. If the mark is then the event's text, the place is the text's:
        inside another string the quotes around the mark would end that string, or belong to it.
        """
        if not self._left:
            return
        self._left -= 1
        before, found, after = data.rpartition(orjson.dumps(text))
        if not found or _MARK in data or b"\n" in data:
            return
        with suppress(ValueError, TypeError, AttributeError, LookupError):  # the mark may stand for a name
            if _text_in_json(b'%b"%b"%b' % (before, _MARK, after)) == _MARK.decode():
                self._before, self._after = b"data: " + before, after + b"\n\n"
                self._between = self._after + self._before
                self._shortest = len(self._between) + len(b'""')
