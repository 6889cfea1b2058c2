"""The part of a stream that a guard keeps: the undecided text, and the text before it that detectors read.

Its length has a bound, however long the stream is.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import InitVar, dataclass, field

from hooks.detect.detector import Match, going_on, moved
from hooks.detect.found_again import FoundAgain
from hooks.detect.lead import Lead
from hooks.detect.placeholders import CallerValues, Placeholders
from hooks.detect.restoring import acted_on
from hooks.detect.unmasked import Unmasked
from hooks.detect.view import View
from hooks.json.editing import JsonText

_SLACK = 512
"""Characters that a plain excerpt may keep beyond what it needs, so that it is seldom cut."""


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Excerpt:
    """The part of a stream that may still matter: some decided text, and all pending text.

    Positions count the characters of `text`. For JSON, `text` has the characters that escapes stand for.
    """

    is_json: InitVar[bool]
    leads: list[Lead] = field(default_factory=list)
    """The searches that begin in the lead, one for each form that the lead may have in the prompt. A search
    that can find nothing more is not among them."""
    placeholders: Placeholders | None = None
    """The placeholders that this guard brings back in this stream. None: there are none."""
    values: CallerValues | None = None
    """The values that any guard brings back. None: there are none."""
    restored: list[tuple[int, int]] = field(default_factory=list)
    """The places at which guards before this one brought values back."""
    again: FoundAgain | None = None
    """The values to find where they come again by themselves. None: there are none."""
    unmasked: Unmasked | None = None
    """The search of the text with the values of its placeholders. None: it finds the same as the detector."""
    keeps_alternatives: bool = True
    """Whether the released tokens keep their top alternatives."""
    text: str = ""
    start: int = 0
    """The detector continues here. Text between `start` and `pending` belongs to a replaced match."""
    pending: int = 0
    """The beginning of the pending text."""
    taken: list[Match] = field(default_factory=list)
    """Matches that end at `start` or later."""
    covered: int = 0
    """The end of the last replaced match."""
    owed: str = ""
    """The replacement of that match if it is not written yet: the match was only JSON structure."""
    is_plain: bool = False
    """Whether `text` is the stream as it is written, and no earlier match reaches beyond `start`."""
    num_read: int = 0
    """Characters of `text` that a `Reader` has searched for tokens of its reading."""
    view: View | None = None
    """The reading of `text` by a `Reader`. None: it is `text`."""
    _waiting: list[Match] = field(default_factory=list)
    """Matches that were found, and that the guard cannot act on yet."""
    _json: JsonText | None = field(init=False)

    def __post_init__(self, is_json: bool) -> None:
        self._json = JsonText() if is_json else None

    def __deepcopy__(self, memo: dict[int, object]) -> "Excerpt":
        made = Excerpt(  # `copy` takes five times as long
            is_json=False,
            leads=self.leads[:],
            placeholders=self.placeholders,
            values=self.values,
            restored=self.restored[:],
            again=self.again and self.again.copied(),
            unmasked=self.unmasked and self.unmasked.copied(),
            keeps_alternatives=self.keeps_alternatives,
            text=self.text,
            start=self.start,
            pending=self.pending,
            taken=self.taken[:],
            covered=self.covered,
            owed=self.owed,
            is_plain=self.is_plain,
            num_read=self.num_read,
            _waiting=self._waiting,
        )
        if self.view is not None or self._json is not None:
            made.view, made._json = deepcopy(self.view, memo), deepcopy(self._json, memo)
        return made

    def read(self, piece: str, is_final: bool, num_read: int = 0) -> str:
        """The new characters of `text` in the next piece of the stream. `num_read`: the characters that were
        read since `text` was last moved on."""
        return piece if self._json is None else self._json.read(piece, len(self.text) + num_read, is_final)

    def came_back(self, start: int, end: int) -> None:
        """A guard before this one brought back the value from `start` to `end`, or a part of one."""
        if self.restored and self.restored[-1][1] == start:
            start, _ = self.restored.pop()
        self.restored.append((start, end))

    def written(self, position: int) -> int:
        """The number of pending characters before `position`, as they are written in the stream."""
        if self._json is None:
            return position - self.pending
        return self._json.length(self.pending, position)

    def held(self, text: str, decided: int) -> int:
        """The number of characters from `decided` on, as they are written in the stream."""
        if self._json is None:
            return len(text) - decided
        return self._json.length(decided, len(text)) + len(self._json.unread)

    def settled(
        self,
        text: str,
        matches: Sequence[Match],
        undecided: int,
        is_final: bool,
        others: Iterable[Match] = (),
    ) -> tuple[list[Match], int]:
        """Add the detector's new `matches`, and have it continue from `undecided`. `others`: new matches of
        the searches that begin in the lead, of values that come again, and of text with values.

        Returns the matches to act on, and the start of the text that must wait. In JSON two more things wait:
        a number or word at the end of the text, because it may continue, with the part of a match that
        reaches into it; and a number or word in which a match may begin, because it is replaced as a whole.
        """
        if matches or self.taken:
            self.taken = going_on(self.taken, matches, undecided)
        found = [*self._waiting, *matches, *others]
        self.start = undecided
        begin = len(text)
        restored: list[Match] = []
        if self.placeholders is not None:
            restored, begin = self.placeholders.scan(text, self.pending, is_final)
            undecided = min(begin, undecided if is_final else self._open_value(found, undecided, text))
        undecided = self.open_from(undecided)
        if self._json is not None and not is_final:
            begin = min(begin, self._json.open_scalar(text, self.pending))
            undecided = min(begin, self._json.scalar_at(text, undecided, self.pending)[0])
        if is_final or not (found or restored):
            return self._acted_on(found, restored, undecided, text), undecided
        ready: list[Match] = []
        self._waiting = []
        for match in found:
            if match.end > begin:
                self._waiting.append(match)
                match = match._replace(end=begin)
            elif match.start >= undecided:
                self._waiting.append(match)
            if match.start < undecided:
                ready.append(match)
        return self._acted_on(ready, restored, undecided, text), undecided

    def open_from(self, undecided: int) -> int:
        """The first pending place at which a match may have begun that is not decided. `undecided`: what the
        detector leaves undecided; the other searches may leave more."""
        places = [undecided, *(lead.start for lead in self.leads)]
        if self.again is not None:
            places.append(self.again.start)
        if self.unmasked is not None:
            places.append(self.unmasked.start)
        return max(self.pending, min(places))

    def _open_value(self, found: Iterable[Match], undecided: int, text: str) -> int:
        """The start of the first match that is a value of the caller's and may still become longer; else
        `undecided`."""
        values = (m.start for m in found if m.end >= undecided and self._is_value(m, text))
        return min([undecided, *values])

    def _is_value(self, match: Match, text: str) -> bool:
        """Whether the match is a value of the caller's."""
        assert self.placeholders is not None
        is_back = any(start <= match.start and match.end <= end for start, end in self.restored)
        return is_back or text[match.start : match.end] in self.placeholders.passing

    def _acted_on(
        self, matches: list[Match], restored: list[Match], undecided: int, text: str
    ) -> list[Match]:
        if self.placeholders is None or not (matches or restored):
            return matches
        return acted_on(matches, restored, self.restored, undecided, lambda one: self._is_value(one, text))

    def widened(self, text: str, match: Match) -> tuple[int, int]:
        """The place to replace for a match: in JSON, whole numbers and words."""
        if self._json is None:
            return match.start, match.end
        start, end = self._json.widened(text, max(0, match.start), match.end, self.pending)
        return min(start, match.start), end

    def escaped(self, value: str, position: int) -> str:
        """The value as it is written at `position`: in a string of JSON, with escapes."""
        return value if self._json is None else self._json.escaped(value, position)

    def edits(self, text: str, start: int, end: int, new: str) -> Iterable[tuple[int, int, str]]:
        """The edits (start, end, text as written) that replace the place by `new`."""
        return [(start, end, new)] if self._json is None else self._json.edits(text, start, end, new)

    def replaceable(self, text: str, match: Match, window: tuple[int, int]) -> list[Match]:
        """The parts of a window's match that another text can replace: in JSON, those that leave it JSON. The
        window may begin and end anywhere."""
        if self._json is None:
            return [match]
        parts = self._json.parts(text, match.start, match.end, is_whole=match[:2] == window)
        return [match._replace(start=start, end=end) for start, end in parts]

    def move(self, text: str, pending: int, reach: int) -> None:
        """Forget the text before `pending` that is more than `reach` before the detector's next place."""
        gone = max(0, min(self.start - reach, pending))
        if self.leads:
            gone = self._move_leads(gone, reach)
        if self.again is not None:
            gone = max(0, min(gone, self.again.start - reach))
            self.again.move(gone)
        if self.unmasked is not None:
            self.unmasked.forget(gone)
            if self.unmasked.is_idle(self.start - gone, self.taken):
                self.unmasked = None
        if self.restored:
            self.restored = [(start - gone, end - gone) for start, end in self.restored if end > gone]
        self.text = text[gone:]
        self.start -= gone
        self.pending = pending - gone
        self.covered = max(0, self.covered - gone)
        self._forget_read(gone)
        if self._json is not None:
            self._json.forget(text, gone)
        if gone and self.taken:
            self.taken = moved(self.taken, -gone)
        if gone and self._waiting:
            self._waiting = moved(self._waiting, -gone)
        matters = self._json or self.leads or self.taken or self._waiting or self.restored or self.unmasked
        self.is_plain = not matters and self.covered <= self.start

    def go_on(self, text: str, undecided: int, reach: int) -> None:
        """Do what `settled` and `move` do for a plain excerpt without a match."""
        self.text = text
        self.start = self.pending = undecided
        if undecided - reach > _SLACK:
            gone = undecided - reach
            self.text = text[gone:]
            self.start = self.pending = reach
            self.covered = max(0, self.covered - gone)
            self._forget_read(gone)
            if self.again is not None:
                self.again.move(gone)

    def resume(self, before: str, *, has_tokens: bool) -> None:
        """Go on with a plain excerpt after `before`, which is decided. `has_tokens`: whether tokens of a
        reading are in it."""
        self.forget()
        self.text = before
        self.start = self.pending = len(before)
        self.num_read = 0 if has_tokens else len(before)

    def forget(self) -> None:
        """Forget the text of a plain excerpt that has no undecided text."""
        self.text = ""
        self.start = self.pending = self.covered = self.num_read = 0
        self.view = None

    def _forget_read(self, gone: int) -> None:
        self.num_read = max(0, self.num_read - gone)
        if self.view is not None:
            self.view.forget(gone)

    def _move_leads(self, gone: int, reach: int) -> int:
        """Move the searches on that begin in the lead. Returns how many of the first `gone` characters to
        forget."""
        at = (self.start, self.taken)
        self.leads = [one for one in self.leads if one.start < reach or (one.start, one.taken) != at]
        gone = max(0, min([gone, *(lead.start - reach for lead in self.leads)]))
        if gone:
            self.leads = [lead.forget(gone) for lead in self.leads]
        return gone
