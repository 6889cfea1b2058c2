"""The part of a stream that a guard keeps: what is undecided, and as much before it as is looked at.

What is kept is bounded, however long the stream is.
"""

from collections.abc import Iterable

from hooks import PromptText
from hooks.detect.detector import Match
from hooks.json.editing import JsonText


class Excerpt:
    """The part of a stream that may still matter: some decided text, and all that is pending.

    Positions are in its `text`, which of JSON is what it reads, not as it is written.
    """

    __slots__ = ("_json", "_waiting", "covered", "owed", "pending", "start", "taken", "text")

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
        self.owed = ""
        """What stands in its place, but has not been written, since all of it was JSON's structure."""
        self._waiting: list[Match] = []
        """Matches that have been found, and cannot be acted on yet."""

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

    def settled(
        self, text: str, matches: Iterable[Match], undecided: int, is_final: bool
    ) -> tuple[list[Match], int]:
        """Let the detector, which has found `matches`, go on from `undecided`.

        Returns the matches to act on, and where the text begins that has to wait. In JSON, a number or word
        at the end of the text may go on, and one in which a match may begin is replaced as a whole. Both
        wait, and so does the part of a match that reaches into the first.
        """
        found = [*self._waiting, *matches]
        if found or self.taken:
            # One that is given again, longer, takes its own place.
            known = {(match.start, match.rule): match for match in (*self.taken, *found)}
            self.taken = [match for match in known.values() if match.end >= undecided]
        self.start = undecided
        begin = len(text)
        if self._json is not None and not is_final:
            begin = self._json.open_scalar(text, self.pending)
            undecided = min(begin, self._json.scalar_at(text, undecided, self.pending)[0])
        if not found or is_final:
            return found, undecided
        self._waiting = [match for match in found if match.start >= undecided or match.end > begin]
        return [m._replace(end=min(m.end, begin)) for m in found if m.start < undecided], undecided

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

    def move(self, text: str, pending: int, reach: int) -> None:
        """Forget the text before `pending` that is more than `reach` before the detector's next place."""
        gone = max(0, min(self.start - reach, pending))
        self.text = text[gone:]
        self.start -= gone
        self.pending = pending - gone
        self.covered = max(0, self.covered - gone)
        if self._json is not None:
            self._json.forget(text, gone)
        self.taken = _moved(self.taken, gone)
        self._waiting = _moved(self._waiting, gone)


def _moved(matches: list[Match], by: int) -> list[Match]:
    return [Match(start - by, end - by, entity, rule) for start, end, entity, rule in matches]


def excerpt_of(prompt: PromptText) -> "Excerpt":
    return Excerpt(is_json=prompt.is_json)
