"""The building blocks of parsers: generators over a `Tape` that yield when they need more text.

A scan decides text as soon as only one meaning is possible, so the places where the stream was cut make no
difference. At the tape's end nothing waits: an incomplete marker is text.
"""

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from engine.parsers.tape import CONTENT, Stream, Tape
from engine.protocol import ToolCall
from engine.text.text_search import find_stop, num_held

T = TypeVar("T")
Scan = Generator[None, None, T]
"""A scan: it yields when it needs more text, and returns its result at the end."""


class Calls:
    """Numbers the tool calls of an output, and knows the request's tools."""

    def __init__(self, limit: float = math.inf, tools: Iterable[Mapping[str, Any]] = ()) -> None:
        """`limit`: later calls are withheld, with their tokens. `tools`: as in the request."""
        self.count = 0
        self.limit = limit
        self._tools = tools

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        """The schema of a tool's arguments. Empty if it has none. None: the request has no such tool."""
        for tool in self._tools:
            function = tool.get("function")
            if isinstance(function, Mapping) and function.get("name") == name:
                schema = function.get("parameters")
                return schema if isinstance(schema, Mapping) else {}
        return None

    def begin(self, name: str) -> Stream:
        self.count += 1
        return Stream("tool_call", ToolCall(self.count - 1, name))


def at(tape: Tape, *markers: str) -> Scan[int]:
    """The end of the marker at the text's beginning, after any blanks. 0: no marker. Decides no text."""
    while True:
        text = tape.text.lstrip()
        for marker in markers:
            if text.startswith(marker):
                return len(tape.text) - len(text) + len(marker)
        if tape.ended or (text and not any(marker.startswith(text) for marker in markers)):
            return 0
        yield


def until(tape: Tape, stream: Stream, *markers: str) -> Scan[int]:
    """Give the stream all text before a marker, and return the marker's length, or 0 if no marker came. The
    marker itself stays undecided."""
    while True:
        if found := find_stop(tape.text, markers, 0):
            begin, marker = found
            tape.give(begin, stream)
            return len(marker)
        tape.give(len(tape.text) - (0 if tape.ended else num_held(tape.text, markers)), stream)
        if tape.ended:
            return 0
        yield


def skip(tape: Tape, *markers: str) -> Scan[int]:
    """Consume the marker at the text's beginning, with blanks before it. Returns its end, or 0 for none."""
    end = (yield from at(tape, *markers)) if markers else 0
    tape.drop(end)
    return end


def next_call(tape: Tape, calls: Calls, openings: Sequence[str]) -> Scan[int]:
    """The end of the next one of `openings`, or 0 if none came. Text before it is content. Blanks alone,
    before the first call, between calls and after the last, belong to no stream."""
    if end := (yield from at(tape, *openings)):
        return end
    if calls.count and tape.ended and tape.text.isspace():
        tape.drop(len(tape.text))
    return (yield from until(tape, CONTENT, *openings))


def hold(tape: Tape, position: int, search: Callable[[str], int | None]) -> Scan[int | None]:
    """Hold the text from `position` until `search` finds an end, and return this end. None: the output ended
    first.

    `search` gets each piece of the text once, and returns the end in the piece, or None. So a long text costs
    no more for each delta than a short one.
    """
    piece = tape.text[position:]
    tape.held = []
    try:
        while (end := search(piece)) is None and not tape.ended:
            position += len(piece)
            num_seen = len(tape.held)
            yield
            piece = "".join(tape.held[num_seen:])
    finally:
        tape.release()
    return None if end is None else position + end
