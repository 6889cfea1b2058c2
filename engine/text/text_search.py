"""Finding strings in a text that is still coming: stop strings, and the markers that parsers look for."""

from collections.abc import Sequence


def find_stop(text: str, stop: Sequence[str], num_seen: int) -> tuple[int, str] | None:
    """Where the stop string begins that ends first after `num_seen` characters (of several, the longest).

    That is the one found if the text comes character by character, so how it is cut makes no difference.
    """
    found = [
        (begin + len(s), begin, s)
        for s in stop
        if (begin := text.find(s, max(0, num_seen - len(s) + 1))) >= 0
    ]
    return min(found)[1:] if found else None


def num_held(text: str, stop: Sequence[str]) -> int:
    """Length of the longest suffix that some stop string begins with, but does not consist of."""
    for length in range(min(len(text), max(map(len, stop), default=0) - 1), 0, -1):
        if any(len(s) > length and s.startswith(text[-length:]) for s in stop):
            return length
    return 0
