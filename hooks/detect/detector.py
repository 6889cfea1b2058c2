"""Detectors and the matches that they find. A detector sees only text and knows nothing about streams."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from hooks.loading.screen import Screen


class Match(NamedTuple):
    """The characters from `start` up to `end` are an `entity`. `rule` numbers the detector's rules."""

    start: int
    end: int
    entity: str
    rule: int = 0


Findings = tuple[list[Match], int]
"""Matches, in any order, and `undecided`: see `Detector.scan`."""


class Detector(Protocol):
    """Finds matches in a text, or in the beginning of a text. It keeps no state between calls."""

    longest: int
    """Most characters at the end of a text that the detector leaves undecided."""
    reach: int
    """Most characters to the left of a place that the detector reads to decide the place."""

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        """Return the matches that begin in `text[start:undecided]`, in any order, and `undecided`: the first
        place at which more text could still make or change a match. With `is_final` everything is decided.

        `text` begins at least `reach` characters before `start`, or at the start of the stream. `taken` are
        earlier matches that end at `start` or later. The detector may return one of them again, longer.
        """


class Screenable(ABC):
    """A detector that may have a screen."""

    @abstractmethod
    def screen(self) -> Screen | None:
        """Return the screen of this detector, which holds all text that `scan` leaves undecided, and gives up
        where `scan` may find a match. None: there is none."""


@runtime_checkable
class Worded(Protocol):
    """A detector that finds some values only because of the words before them."""

    def is_worded(self, match: Match) -> bool:
        """Whether only the words before this match show it."""


def screen_of(detector: Detector) -> Screen | None:
    return detector.screen() if isinstance(detector, Screenable) else None


def order(match: Match) -> tuple[int, int, int]:
    """Return a key that sorts matches by their start, then the longest first, then by their rule."""
    return match.start, -match.end, match.rule


def moved(matches: Iterable[Match], by: int) -> list[Match]:
    """Return the matches with their places moved by `by` characters."""
    return [Match(start + by, end + by, entity, rule) for start, end, entity, rule in matches]


def going_on(taken: Iterable[Match], found: Iterable[Match], start: int) -> list[Match]:
    """Return the matches that end at `start` or later. One of `found` that is one of `taken` again, longer,
    replaces its shorter form."""
    known = {(match.start, match.rule): match for match in (*taken, *found)}
    return [match for match in known.values() if match.end >= start]
