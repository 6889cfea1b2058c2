"""The finds of guards in a text, with their places. No finding has the text itself."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from hooks.api.decision import Action
from weir import Guards

_FINDS: frozenset[Action] = frozenset(
    {"redact", "rewrite", "suppress", "terminate", "rewind", "suspect", "ask"}
)
"""The actions of guards that found something. `error` is an exception here."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a text, as SARIF counts it: lines and columns from 1, in characters (Unicode code
    points)."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of a text that a guard would not let through."""

    guard: str
    rule: str
    """The guard's reason, such as `EMAIL_ADDRESS`. Without one, the name of its action."""
    offset: int
    """Characters before it."""
    length: int
    start: Place
    end: Place
    """The place after its last character."""


def find(guard: Guards, text: str) -> Iterator[Finding]:
    """The finds of one guard in a text, in order. A guard that ends a text finds no more after that place.
    One that suspects a text says so once, without a place in it.

    Raises `HookError`.
    """
    lines = Lines(text)
    for one in sorted(guard.text(text).decisions, key=lambda decision: decision.offset):
        if one.action not in _FINDS:
            continue
        end = min(one.offset + one.num_withheld, len(text))
        places = lines.place(one.offset), lines.place(end)
        yield Finding(one.hook, one.reason or one.action, one.offset, end - one.offset, *places)


class Lines:
    """The places of a text's characters."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        start = text.find("\n")
        while start >= 0:
            self._starts.append(start + 1)
            start = text.find("\n", start + 1)

    def place(self, offset: int) -> Place:
        line = bisect_right(self._starts, offset)
        return Place(line, offset - self._starts[line - 1] + 1)
