"""The building blocks of parsers: generators over a `Tape` that yield when they need more text.

A scan decides text as soon as only one meaning is possible, so the places where the stream was cut make no
difference. At the tape's end nothing waits: an incomplete marker is text.
"""

import math
from collections.abc import Generator
from typing import TypeVar

from engine.parsers.tape import CONTENT, Stream, Tape
from engine.protocol import ToolCall
from engine.text.text_search import find_stop, num_held

T = TypeVar("T")
Scan = Generator[None, None, T]
"""A scan: it yields when it needs more text, and returns its result at the end."""


class Calls:
    """Numbers the tool calls of an output. `limit`: later calls are withheld, with their tokens."""

    def __init__(self, limit: float = math.inf) -> None:
        self.count = 0
        self.limit = limit

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
        if tape.ended or not any(marker.startswith(text) for marker in markers):
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
    end = yield from at(tape, *markers)
    tape.drop(end)
    return end


def next_call(tape: Tape, calls: Calls, opening: str) -> Scan[int]:
    """The end of the next `opening`, or 0 if none came. Text before it is content. Blanks alone, before the
    first call, between calls and after the last, belong to no stream."""
    if end := (yield from at(tape, opening)):
        return end
    if calls.count and tape.ended and tape.text.isspace():
        tape.drop(len(tape.text))
    return (yield from until(tape, CONTENT, opening))
