"""Matches that begin in the text that an output continues, and go on in the output.

The output is also searched by itself: a match in it counts whatever stands before the output.
"""

from typing import NamedTuple, Self

from hooks.detect.detector import Detector, Match

MAX_LEAD = 2048
"""Most characters of a lead that are searched. A match that begins before them is not found."""


class Lead(NamedTuple):
    """The end of a lead and the output behind it, as far as the detector still needs them."""

    text: str
    first: int
    """The place in `text` where the output begins. Negative once the output's beginning is forgotten."""
    start: int
    """The place where the detector goes on."""
    taken: tuple[Match, ...]
    """Matches that begin in the lead and may go on."""

    @classmethod
    def of(cls, detector: Detector, lead: str) -> Self | None:
        """None: no match that begins in the lead can go on."""
        text = lead[-min(detector.longest + detector.reach, MAX_LEAD) :] if detector.longest else ""
        return cls(text, len(text), 0, ()).read(detector, "", is_final=False)[0]

    def read(self, detector: Detector, piece: str, *, is_final: bool) -> tuple[Self | None, list[Match]]:
        """Take the output's next piece.

        Returns what is left to search for, if anything, and the matches that begin in the lead. A match
        counts from the end of the text, so that its places are negative.
        """
        text = self.text + piece
        found, start = detector.scan(text, self.start, is_final, self.taken)
        known = {(match.start, match.rule): match for match in (*self.taken, *found)}
        begun = [match for match in known.values() if match.start < self.first]
        taken = [match for match in begun if match.end >= start]
        gone = max(0, start - detector.reach)
        rest = type(self)(text[gone:], self.first - gone, start - gone, tuple(_moved(taken, -gone)))
        is_over = is_final or (start >= self.first and not taken)
        reaching = [match._replace(start=max(match.start, self.first)) for match in begun]
        matches = [match for match in reaching if match.end > match.start]
        return None if is_over else rest, _moved(matches, -len(text))

    @property
    def is_open(self) -> bool:
        """Whether a match may still begin in the lead. Then all of the output is undecided."""
        return self.start < self.first


def _moved(matches: list[Match], by: int) -> list[Match]:
    return [match._replace(start=match.start + by, end=match.end + by) for match in matches]
