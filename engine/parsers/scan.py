"""What parsers are made of: generators over a `Tape`, which yield where they need more text.

Each decides text as soon as it can belong to one thing only, so how the text was cut makes no difference. At
the tape's end nothing waits for more: what would have become a marker is text again.
"""

from collections.abc import Generator
from typing import TypeVar

from engine.parsers.tape import CONTENT, Stream, Tape
from engine.protocol import ToolCall
from engine.text.text_search import find_stop, num_held

T = TypeVar("T")
Scan = Generator[None, None, T]
"""Runs until it needs more text, and at last returns what it found."""


class Calls:
    """The tool calls that an output has made so far."""

    def __init__(self) -> None:
        self.count = 0

    def begin(self, name: str) -> Stream:
        self.count += 1
        return Stream("tool_call", ToolCall(self.count - 1, name))


def at(tape: Tape, *markers: str) -> Scan[int]:
    """Where the marker ends that the text begins with, blanks aside; 0 if it begins with none. Decides
    nothing."""
    while True:
        text = tape.text.lstrip()
        for marker in markers:
            if text.startswith(marker):
                return len(tape.text) - len(text) + len(marker)
        if tape.ended or not any(marker.startswith(text) for marker in markers):
            return 0
        yield


def until(tape: Tape, stream: Stream, *markers: str) -> Scan[int]:
    """Give the stream all text up to a marker; returns the marker's length, or 0 if none came. The marker
    stays undecided."""
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
    """Consume the marker that the text begins with, blanks aside; returns 0 if it begins with none."""
    end = yield from at(tape, *markers)
    tape.drop(end)
    return end


def next_call(tape: Tape, calls: Calls, opening: str) -> Scan[int]:
    """Where the next `opening` ends, all before it content; 0 if none came. Blanks by themselves, before
    the first call, between calls and after the last, are nobody's text."""
    if end := (yield from at(tape, opening)):
        return end
    if calls.count and tape.ended and tape.text.isspace():
        tape.drop(len(tape.text))
    return (yield from until(tape, CONTENT, opening))
