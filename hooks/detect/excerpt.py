"""The part of a stream that a guard keeps: what is undecided, and as much before it as is looked at.

What is kept is bounded, however long the stream is.
"""

from collections.abc import Iterable

from hooks import PromptText
from hooks.detect.detector import Match
from hooks.json.text import JsonText


class Excerpt:
    """The part of a stream that may still matter: some decided text, and all that is pending.

    Positions are in its `text`, which of JSON is what it reads, not as it is written.
    """

    __slots__ = ("_json", "covered", "pending", "start", "taken", "text")

    def __init__(self, *, is_json: bool) -> None:
        self._json = JsonText() if is_json else None
        self.text = ""
        self.start = 0
        """Where the detector goes on. What lies between `start` and `pending` is part of a match already."""
        self.pending = 0
        """Where the text begins that a verdict is about."""
        self.taken: list[Match] = []
        """Matches that reach up to `start` or beyond."""
        self.covered = 0
        """Where what was replaced ends."""

    def read(self, piece: str, is_final: bool) -> str:
        return piece if self._json is None else self._json.read(piece, len(self.text), is_final)

    def written(self, position: int) -> int:
        """How many characters of what is pending stand before `position`, as they are written."""
        if self._json is None:
            return position - self.pending
        return self._json.length(self.pending, position)

    def held(self, text: str, decided: int) -> int:
        """How many characters there are from `decided` on, as they are written."""
        if self._json is None:
            return len(text) - decided
        return self._json.length(decided, len(text)) + len(self._json.unread)

    def settled(self, text: str, matches: list[Match], undecided: int) -> tuple[list[Match], int]:
        """Of what the detector has decided, that which stays decided though a JSON number or word at the end
        of the text may go on: nothing that reaches into it."""
        if self._json is None:
            return matches, undecided
        begin = self._json.open_scalar(text, self.pending)
        starts = (max(match.start, self.start) for match in matches if match.end > begin)
        return [match for match in matches if match.end <= begin], min(undecided, begin, *starts)

    def widened(self, text: str, match: Match) -> tuple[int, int]:
        """Where what has to be replaced for a match begins and ends: of JSON, whole numbers and words."""
        if self._json is None:
            return match.start, match.end
        start, end = self._json.widened(text, max(0, match.start), match.end, self.pending)
        return min(start, match.start), end

    def edits(self, text: str, start: int, end: int, new: str) -> Iterable[tuple[int, int, str]]:
        """What to put where, as it has to be written, to replace what lies between."""
        return [(start, end, new)] if self._json is None else self._json.edits(text, start, end, new)

    def replaceable(self, text: str, match: Match, window: tuple[int, int]) -> list[Match]:
        """The parts of what was found in a window that another text can stand in place of: of arguments,
        those that leave JSON what is JSON. A window may begin and end anywhere."""
        if self._json is None:
            return [match]
        parts = self._json.parts(text, match.start, match.end, is_whole=match[:2] == window)
        return [match._replace(start=start, end=end) for start, end in parts]

    def move(self, text: str, start: int, pending: int, found: list[Match], reach: int) -> None:
        """Go on from `start`, and forget what lies more than `reach` before it."""
        gone = max(0, start - reach)
        self.text = text[gone:]
        self.start = start - gone
        self.pending = pending - gone
        self.covered = max(0, self.covered - gone)
        if self._json is not None:
            self._json.forget(text, gone)
        if found or self.taken:
            # One that is given again, longer, takes its own place.
            ahead = {(m.start, m.rule): m for m in (*self.taken, *found) if m.end >= start}
            self.taken = [Match(s - gone, e - gone, entity, rule) for s, e, entity, rule in ahead.values()]


def excerpt_of(prompt: PromptText) -> "Excerpt":
    return Excerpt(is_json=prompt.is_json)
