"""Readings: a text with its escapes decoded and without its markup, searched in addition to the written text.

An answer may show JSON or a program, in which a line's end is `\\n` and an h is `\\u0068`. It may show an
address of the web, in which an @ is `%40`, or HTML, in which it is `&#64;` and a word is `<b>t</b>his`. A few
characters, as `C:\\new`, do not show whether an escape is meant. Therefore a reader searches both texts and
reports the matches of either.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from hooks.detect import reading_tokens as tokens
from hooks.detect.detector import Detector, Findings, Match, Screenable, Worded, screen_of
from hooks.detect.dress import HOMOGLYPHS, TYPOGRAPHY
from hooks.detect.excerpt import Excerpt
from hooks.detect.reading_screen import ReadingScreen
from hooks.detect.view import Place, View


class Reading:
    """The tokens of a text that read as one character, or as none."""

    def __init__(
        self,
        signs: str,
        begins: str,
        kinds: Mapping[str, str],
        longest: int,
        *,
        single: str = "",
        even: Mapping[str, str] = {},
        dress: Mapping[int, str] | None = None,
    ) -> None:
        """`signs`: the first characters of tokens, for a character class. `begins`: a pattern of such a
        character, which also looks at the next one, and may look whether a quote is before it. `single`: the
        characters that are tokens. `even`: those of them that a screen reads, and the character that each
        reads as. `kinds`: patterns of tokens by name; `unfinished_` ones match an incomplete token at the
        end. `longest`: most characters of a token. `dress`: characters that stand for other ones. It also
        leaves out characters that are not seen."""
        self.longest = longest
        self.dress = dress
        self.even = even
        self._first = re.compile(begins)
        self._any = re.compile(f"{begins}|[{single}]" if single else begins)
        self.find_sign = re.compile(f"[{signs}{single}]").search
        self._match = re.compile("|".join(f"(?P<{kind}>{one})" for kind, one in kinds.items())).match

    def tokens(self, text: str, place: int) -> Iterator[tuple[int, int, str | None]]:
        """The tokens from `place` on, as start, end, and the character that they read as. None: a token that
        is not complete at the end of `text`."""
        for found in self._any.finditer(text, place):
            begin = found.start()
            if begin < place or (token := self._match(text, begin)) is None:
                continue
            kind, end = token.lastgroup or "", token.end()
            if kind.endswith("wrap") and not tokens.IS_VALUE_BEFORE(text, max(0, begin - 24), begin):
                continue
            if kind.startswith("unfinished"):
                place = end
                yield begin, end, None
                continue
            char = tokens.read(kind, token[0])
            if kind == "wrap" and (group := tokens.GROUP_BEFORE(text, max(0, begin - 8), begin)):
                char = group[1]
            if self.dress is not None:
                char = "" if tokens.IS_UNSEEN(char) else char.translate(self.dress)
            if len(char) > 1:
                continue  # a character reference that HTML does not know
            place = end
            yield begin, end, char

    def may_begin(self, text: str, place: int) -> bool:
        """Whether a token may begin at `place`: a cheap check."""
        return self._any.match(text, place) is not None

    def may_be_in(self, text: str, place: int) -> bool:
        """Whether a token may begin at `place` or later: a cheap check."""
        found = self.find_sign(text, place)
        return found is not None and self._any.search(text, found.start()) is not None

    def may_reach(self, text: str, place: int) -> bool:
        """Whether a token may begin before `place` and end after it: a cheap check."""
        return self._first.search(text, max(0, place - self.longest), place + 1) is not None

    def read(self, text: str) -> str:
        return self.view(text, 0, is_final=True).text

    def view(self, text: str, left: int, *, is_final: bool) -> View:
        view = View(left)
        view.grow(text, self.tokens(text, left), is_final=is_final)
        return view


ESCAPES = Reading(r"\\%&", tokens.OF_ESCAPES, tokens.ESCAPES, longest=32)
ADDRESSES = Reading(
    r"\\%&",
    f"{tokens.OF_ESCAPES}|{tokens.OF_PUNCTUATION}",
    {**tokens.ESCAPES, **tokens.OF_ADDRESSES},
    longest=48,
)
"""The reading of `ESCAPES`, also with those of Markdown, and with HTML's references without a semicolon."""
MARKUP = Reading(
    r"\\%&<",
    f"{tokens.OF_ESCAPES}|{tokens.OF_TAGS}",
    {**tokens.MARKUP, **tokens.ESCAPES},
    longest=64,
    single=f"*_~`{tokens.BLANK}",
    even={
        **dict.fromkeys("*_~`", tokens.READ["emphasis"]),
        **dict.fromkeys(tokens.BLANK, tokens.READ["blank"]),
    },
)
"""The reading of `ESCAPES`, also without tags and emphasis."""
LOOSE = Reading(
    r"\\%&<:\]",
    f"{tokens.OF_ESCAPES}|{tokens.OF_TAGS}|{tokens.OF_BETWEEN}",
    {**tokens.BETWEEN, **tokens.MARKUP, **tokens.ESCAPES},
    longest=64,
    single=f"*_~`{tokens.BLANK}{tokens.UNSEEN}",
)
"""The reading of `MARKUP`, also without other text between words: targets of links, values that are no
strings, and invisible characters."""
_OF_VALUES = rf"{tokens.OF_ESCAPES}|[\r\n](?=[ \t\n]|\Z)|[{tokens.UNSEEN}]"
VALUES = Reading(
    rf"\\%&\r\n{tokens.UNSEEN}", _OF_VALUES, {**tokens.WITHIN, **tokens.ESCAPES}, longest=64, dress=TYPOGRAPHY
)
"""The reading of `ESCAPES`, also without invisible characters and line breaks inside a value, for data in
plain characters: numbers, addresses and keys."""
KEYS = Reading(
    rf"\\%&\r\n{tokens.UNSEEN}", _OF_VALUES, {**tokens.WITHIN, **tokens.ESCAPES}, longest=64, dress=HOMOGLYPHS
)
"""The reading of `VALUES`, also with letters of other alphabets that look like Latin ones."""


class Reader(Screenable):
    """Finds the matches of a detector in the written text and in its reading."""

    def __init__(self, detector: Detector, reading: Reading) -> None:
        self.longest = reading.longest * (detector.longest + 1) if detector.longest else 0
        self.reach = detector.reach + 2 * reading.longest
        self.far_reach = reading.longest * (detector.reach + reading.longest + 1)
        """Most characters to the left of a place that `scan` reads; `follow` reads `reach`."""
        self.dress = reading.dress
        self._detector = detector
        self._reading = reading
        self._find_sign = reading.find_sign
        self._span = self.reach
        """Characters before a place that are read with it, if they contain no tokens."""
        self._clear_span = detector.reach + reading.longest
        """Characters before a place in which no token may begin, for the reading to be the written text."""

    def screen(self) -> ReadingScreen | None:
        """Return the screen for both texts; None: the detector has none."""
        screen = screen_of(self._detector)
        if screen is None:
            return None
        may_begin = self._reading.may_begin
        return ReadingScreen(screen, self._find_sign, may_begin, self._reading.even, self.dressed, self.reach)

    def has_even(self, text: str) -> bool:
        """Whether tokens that a screen reads are in the text."""
        return not self._reading.even.keys().isdisjoint(text)

    def is_worded(self, match: Match) -> bool:
        return isinstance(self._detector, Worded) and self._detector.is_worded(
            match._replace(rule=match.rule // 2)
        )

    def search(self, detector: Detector, text: str, start: int, is_final: bool) -> Findings:
        """Do what `scan` does, for another detector. `text`: in plain form."""
        if not (self._reading.may_reach(text, start) or self._reading.may_be_in(text, start)):
            matches, undecided = detector.scan(text, start, is_final)
            return _in_both(matches), undecided
        return Reader(detector, self._reading).scan(text, start, is_final)

    def read(self, text: str) -> str:
        return self._reading.read(text)

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        """Each rule of the detector becomes two: `2 * rule` for the written text, plus 1 for its reading."""
        text = self.dressed(text)
        left = max(0, start - self._span) if taken else self._left(text, start)
        if not taken and not self._reading.may_be_in(text, left):
            matches, undecided = self._detector.scan(text, start, is_final)
            return _in_both(matches) if matches else matches, undecided
        in_written, in_read = _of_both(taken)
        matches, undecided = self._detector.scan(text, start, is_final, in_written)
        if undecided == start and not is_final:
            return [], start
        view = None
        if in_written != in_read or self._reading.may_be_in(text, left):
            view = self._view(text, start, is_final, left)
            if view.is_as_written(text) and in_written == in_read:
                view = None
        if view is None:
            return _in_both(matches), undecided
        return self._in_view(view, text, start, is_final, in_read, matches, undecided)

    def follow(self, excerpt: Excerpt, text: str, is_final: bool = False) -> Findings:
        """Do what `scan` does from the start of an excerpt on, if `text` is the excerpt's with more
        characters, all in plain form (see `dressed`). Only the new characters are read."""
        start, taken = excerpt.start, excerpt.taken
        if excerpt.view is None and not taken and self._find_sign(text, excerpt.num_read) is None:
            excerpt.num_read = len(text)
            matches, undecided = self._detector.scan(text, start, is_final)
            return (_in_both(matches), undecided) if matches else (matches, undecided)
        view = self._grown(excerpt, text, start, is_final)
        if view is None and not taken:
            matches, undecided = self._detector.scan(text, start, is_final)
            return (_in_both(matches), undecided) if matches else (matches, undecided)
        in_written, in_read = _of_both(taken)
        matches, undecided = self._detector.scan(text, start, is_final, in_written)
        if undecided == start and not is_final:
            return [], start
        if view is None:
            if in_written == in_read:
                return _in_both(matches), undecided
            view = View(0)
            view.grow(text, (), is_final=is_final)
        return self._in_view(view, text, start, is_final, in_read, matches, undecided)

    def reach_in(self, text: str) -> int:
        """Most characters to the left of a place in `text` that `scan` reads."""
        return self.far_reach if self._reading.may_be_in(text, 0) else self.reach

    def is_past(self, text: str) -> bool:
        """Whether the detector reads nothing that is before `text`, once it has read `text`."""
        return len(text) >= self._clear_span and len(self.read(text)) >= self._clear_span

    def dressed(self, text: str) -> str:
        """The text with its characters in plain form."""
        return text if self.dress is None or text.isascii() else text.translate(self.dress)

    def _grown(self, excerpt: Excerpt, text: str, start: int, is_final: bool) -> View | None:
        """The reading of the excerpt. None: it is as written where the detector reads it."""
        view = excerpt.view
        if view is None:
            if not self._reading.may_be_in(text, excerpt.num_read):
                excerpt.num_read = len(text)
                return None
            view = self._view(text, start, is_final, max(0, start - self._span))
        else:
            view.grow(text, self._reading.tokens(text, view.end), is_final=is_final)
            if view.read(start) > 2 * self._clear_span + 1024:
                view.trim(view.read(start) - self._clear_span)
        is_clear = view.last_end < 0 or view.last_end <= start - self._clear_span
        excerpt.view = None if is_clear else view
        excerpt.num_read = view.end
        return view if not is_clear or view.end < len(text) else None

    def _in_view(
        self,
        view: View,
        text: str,
        start: int,
        is_final: bool,
        in_read: Sequence[Match],
        matches: Sequence[Match],
        undecided: int,
    ) -> Findings:
        """Search the reading, too. `in_read`: matches there that are taken. `matches` and `undecided` are the
        findings in the written text."""
        found = [match._replace(rule=2 * match.rule) for match in matches]
        known = [match._replace(start=view.read(match.start), end=view.read(match.end)) for match in in_read]
        matches, open_from = self._detector.scan(view.text, view.read(start), is_final, known)
        if not is_final:  # an incomplete token may begin before `start`; what reads as nothing waits, too
            undecided = max(start, min(undecided, view.written_end(open_from)))
        for begin, end, entity, rule in matches:
            found.append(Match(view.written(begin), view.written_end(end), entity, 2 * rule + 1))
        found, within = _after_escapes(found, view, text)
        if not is_final:
            undecided = min([undecided, *(match.start for match, end in within if end >= undecided)])
        if undecided == start and not is_final:
            return [], start
        return [match for match in found if match.start < undecided], undecided

    def _left(self, text: str, start: int) -> int:
        """Return where the text begins that the detector reads from `start` on, or before it if a token may
        begin there and reach into this text."""
        left = max(0, start - self._detector.reach)
        return max(0, start - self._span) if self._reading.may_reach(text, left) else left

    def _view(self, text: str, start: int, is_final: bool, left: int) -> View:
        """Return a view with all text before `start` that the detector may read, and no token cut in two.
        `left`: see `_left`."""
        reach = self._detector.reach
        if start - left <= reach:
            view = self._reading.view(text, left, is_final=is_final)
            if left == 0 or view.read(start) >= reach:
                return view
        needed = self._span - self._reading.longest
        span = self._span
        while True:
            view = self._reading.view(text, max(0, start - span), is_final=is_final)
            num_read = view.read(start)
            if span >= start or num_read >= needed:
                return view
            span = max(2 * span, span * needed // max(1, num_read))


def _of_both(taken: Sequence[Match]) -> tuple[list[Match], list[Match]]:
    """The matches of the written text, and those of its reading."""
    both = [match._replace(rule=match.rule // 2) for match in taken]
    written = [match for match, one in zip(both, taken, strict=True) if one.rule % 2 == 0]
    return written, [match for match, one in zip(both, taken, strict=True) if one.rule % 2]


def _in_both(matches: Sequence[Match]) -> list[Match]:
    return [match._replace(rule=2 * match.rule + i) for i in (0, 1) for match in matches]


def _after_escapes(
    found: list[Match], view: View, text: str
) -> tuple[list[Match], list[tuple[Match, Place]]]:
    """Move matches that begin within an escape, as nann@initech.org in \\nann@initech.org, to the escape's
    end if a match of the entity is found there, so that the escape stays whole. Also return all matches that
    begin within an escape, each with the escape's end."""
    within = {match: end for match in found if (end := view.end_of_escape(match.start, text)) is not None}
    if not within:
        return found, []
    ends = {(match.start, match.entity): match.end for match in found}
    moved = {match: end for match, end in within.items() if ends.get((end, match.entity), 0) >= match.end}
    return [match._replace(start=moved.get(match, match.start)) for match in found], [*within.items()]
