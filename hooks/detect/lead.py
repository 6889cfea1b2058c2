"""The search of an output together with its lead, the text that the output continues.

The detector reads the end of the lead and the output as one text. So it finds a match that begins in the
lead, and a match in the output if the words that show it are in the lead. It also searches the output by
itself, because no lead may hide a match. Once both searches are at the same place, and the detector no
longer reads the lead, they find the same.
"""

from typing import NamedTuple, Self

from hooks.detect.detector import Detector, Match, going_on, moved

MAX_LEAD = 2048
"""Most characters of a lead that are searched."""


class Lead(NamedTuple):
    """The progress of the search. Places count from the start of the output's excerpt (see `Excerpt`), so
    places in the lead are negative."""

    text: str
    """The end of the lead. Empty when the detector no longer reads it."""
    start: int
    """The place where the detector continues."""
    taken: list[Match]
    """Matches that end at `start` or later."""

    @classmethod
    def of(cls, detector: Detector, lead: str) -> Self:
        text = lead[-min(detector.longest + detector.reach, MAX_LEAD) :] if detector.longest else ""
        return cls(text, -len(text), []).read(detector, "", is_final=False)[0]

    def read(self, detector: Detector, output: str, *, is_final: bool) -> tuple[Self, list[Match]]:
        """Search on. `output` is the text of the output's excerpt. Returns how far the search has come, and
        the new matches, each without its part in the lead."""
        first = len(self.text)
        taken = moved(self.taken, first)
        found, undecided = detector.scan(self.text + output, self.start + first, is_final, taken)
        found = moved(found, -first)
        start = undecided - first
        rest = self._replace(start=start, taken=going_on(self.taken, found, start))
        if self.text:
            found = [match._replace(start=max(0, match.start)) for match in found if match.end > 0]
        return rest, found

    def forget(self, count: int) -> Self:
        """Forget the lead, and the first `count` characters of the output's excerpt."""
        return type(self)("", self.start - count, moved(self.taken, -count))
