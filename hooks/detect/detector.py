"""What detectors are, and what they find. A detector knows text and nothing of streams."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Match(NamedTuple):
    """Characters `start` up to `end` are an `entity`. `rule` tells a detector's rules apart."""

    start: int
    end: int
    entity: str
    rule: int = 0


class Detector(Protocol):
    """Finds matches in a text, or in the beginning of one. It knows of no stream, and keeps no state."""

    longest: int
    """Most characters at the end of a text that it leaves undecided."""
    reach: int
    """Characters to the left of a place that it may look at to decide it."""

    def scan(
        self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()
    ) -> tuple[list[Match], int]:
        """The matches that begin in `text[start:undecided]`, in any order, and `undecided`: the first place
        at which more text could still bring a match about, or change one. With `is_final` all is decided.

        `text` begins at least `reach` characters before `start`, or where the stream does. `taken` are
        matches found earlier that reach up to `start` or beyond. One of them may be given again, longer.
        """


def order(match: Match) -> tuple[int, int, int]:
    """First the one that begins first, of those the longest, of those the one whose rule stands first."""
    return match.start, -match.end, match.rule
