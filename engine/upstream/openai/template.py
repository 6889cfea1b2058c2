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
from engine.upstream.limits import LONG_TEXT, OutputCount, TooMuchError
from engine.upstream.sse import framed

_MARK = b"WeirTextMark"
"""Letters that are no JSON without quotes."""
_OTHER_FIELDS = ("finish_reason", "logprobs", "token_ids", "text")
"""The fields of a choice that have other text, tokens and an end."""
_OTHER_TEXT = ("reasoning_content", "reasoning", "tool_calls", "function_call")
"""The fields of a chat's delta that have other text than content."""
_MOST = 8
"""Events that are learned without use. Some upstreams change another field with each event."""


def _text_in(chunk: Mapping[str, Any]) -> str:
    """The content of a chunk that has one choice with content, and nothing else. Empty for other chunks."""
    choices: Sequence[Any] = chunk.get("choices") or ()
    if chunk.get("usage") or chunk.get("error") or len(choices) != 1:
        return ""
    choice = choices[0]
    delta = choice.get("delta") or {}
    content = delta.get("content")
    has_more = any(map(choice.get, _OTHER_FIELDS)) or any(map(delta.get, _OTHER_TEXT))
    return content if isinstance(content, str) and not has_more else ""


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

    def learn(self, data: bytes, chunk: Mapping[str, Any]) -> None:
        """Learn the event `data`, whose chunk is `chunk`, if the chunk has content alone.

        A mark takes the place of the text. If the mark is then the event's text, the place is the text's:
        inside another string the quotes around the mark would end that string, or belong to it.
        """
        if not self._left or not (text := _text_in(chunk)):
            return
        self._left -= 1
        if _MARK in data or b"\n" in data:
            return
        # A text may have half a character, which `dumps` refuses, and the mark may stand for a name.
        with suppress(ValueError, TypeError, AttributeError, LookupError):
            before, found, after = data.rpartition(orjson.dumps(text))
            if found and _text_in(orjson.loads(b'%b"%b"%b' % (before, _MARK, after))) == _MARK.decode():
                self._before, _, self._after = framed(b"%b%b%b" % (before, _MARK, after)).partition(_MARK)
                self._between = self._after + self._before
                self._shortest = len(self._between) + len(b'""')
