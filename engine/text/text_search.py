"""Finds strings in a text that is still growing: stop strings, and the markers of parsers."""

from collections.abc import Sequence

WINDOW = 4096
"""Characters that are searched first."""


def find_stop(text: str, stop: Sequence[str], num_seen: int) -> tuple[int, str] | None:
    """The beginning of a stop string, and the string, or None.

    It is the stop string that ends first after the first `num_seen` characters, and of several that end
    there, the longest. A search at every single character finds the same one, so the places where the text
    was cut make no difference.
    """
    end = num_seen + WINDOW
    while True:
        found = [
            (begin + len(s), begin, s)
            for s in stop
            if (begin := text.find(s, max(0, num_seen - len(s) + 1), end)) >= 0
        ]
        if found or end >= len(text):
            return min(found)[1:] if found else None
        end *= 4  # a string that is missing is not looked for in a long text behind one that is there


def num_held(text: str, stop: Sequence[str]) -> int:
    """Characters at the text's end that could still become a stop string: the longest such suffix."""
    for length in range(min(len(text), max(map(len, stop), default=0) - 1), 0, -1):
        if any(len(s) > length and s.startswith(text[-length:]) for s in stop):
            return length
    return 0
