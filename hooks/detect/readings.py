"""Readings: a text with its escapes decoded and without its markup, searched besides the written text.

An answer may show JSON or a program, in which a line's end is `\\n` and an h is `\\u0068`. It may show HTML
or Markdown, in which a word is `<b>t</b>his` or `t**his**`. A few characters, as `C:\\new`, do not show
whether an escape is meant. Therefore a reader searches both texts and reports the matches of either.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from hooks.detect.detector import Detector, Findings, Match
from hooks.detect.excerpt import Excerpt

_ESCAPES = {
    # JSON's escapes, also within a string of JSON, where backslashes are doubled and quotes have three.
    "pair": r"\\{1,3}u[dD][89abAB][\da-fA-F]{2}\\{1,3}u[dD][c-fC-F][\da-fA-F]{2}",
    "unfinished_pair": (
        r"\\{1,3}u[dD][89abAB][\da-fA-F]{2}(?:\\{1,3}(?:u(?:[dD](?:[c-fC-F][\da-fA-F]?)?)?)?)?\Z"
    ),
    "code": r"\\{1,3}u[\da-fA-F]{4}",
    "unfinished_escape": r"\\{1,3}(?:u[\da-fA-F]{0,3})?\Z",
    "letter": r"""\\{1,3}[nrt"/]""",
    "backslash": r"(?<!\\)\\\\(?!\\)",
}
_BLANK = "\u115f\u1160\u180e\u2800\u3164\uffa0"
"""Characters that look like spaces, though Unicode counts them as letters, symbols or format characters."""
_TAG = r"<(?=[^<>]{1,62}>)(?:\\{0,3}/)?"
_ATTRIBUTES = r"""(?:[^<>\\]|\\{1,3}["/])*"""
_MARKUP = {
    "block": rf"{_TAG}(?:br|p|li|[uo]l|t[dhr]|div|h\d)\b{_ATTRIBUTES}>",
    "tag": rf"{_TAG}[A-Za-z]{_ATTRIBUTES}>",
    "unfinished_tag": rf"<(?=[^<>]{{0,63}}\Z)(?:\\{{0,3}}/)?(?:[A-Za-z]{_ATTRIBUTES})?\\{{0,3}}\Z",
    "emphasis": r"[*_~`]",
    "blank": f"[{_BLANK}]",
}
_UNSEEN = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
_BETWEEN = {
    "link": r"\]\([^\s()\\]{1,60}\)",
    "unfinished_link": r"\](?:\([^\s()\\]{0,60})?\Z",
    "unseen": f"[{_UNSEEN}]",  # a space here; the written text covers one within a word
    "value": r'(?<="):[ ]?(?:-?\d[\d.]{0,15}|true|false|null)(?=[,}\s])',
    "unfinished_value": r'(?<="):[ ]?(?:-?\d[\d.]{0,15}|-|t(?:ru?e?)?|f(?:al?s?e?)?|n(?:ul?l?)?)?\Z',
}
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "/": "/"}
_READ = {
    # Each token is one character.
    "backslash": "\\",
    "value": ":",
    "link": "]",
    **dict.fromkeys(("block", "blank", "unseen"), " "),
    **dict.fromkeys(("tag", "emphasis"), "\u2060"),
}


class Reading:
    def __init__(self, first: str, kinds: Mapping[str, str], longest: int, single: str = "") -> None:
        """`first`: the first characters of tokens, for a character class. `single`: the characters that are
        tokens. `kinds`: patterns of tokens by name; `unfinished_` ones match an incomplete token at the end.
        `longest`: most characters."""
        self.longest = longest
        self._first = re.compile(f"[{first}]")
        self._any = re.compile(f"[{first}{single}]")
        self._only_first = "\\" if first + single == r"\\" else ""
        self._match = re.compile("|".join(f"(?P<{kind}>{one})" for kind, one in kinds.items())).match

    def tokens(self, text: str, place: int) -> Iterator[re.Match[str]]:
        for found in self._any.finditer(text, place):
            if found.start() >= place and (token := self._match(text, found.start())):
                place = token.end()
                yield token

    def may_be_in(self, text: str, place: int) -> bool:
        """Whether `text[place:]` may contain a token: a cheap check."""
        if self._only_first:
            return text.find(self._only_first, place) >= 0
        return self._any.search(text, place) is not None

    def may_reach(self, text: str, place: int) -> bool:
        """Whether a token may begin before `place` and end behind it: a cheap check."""
        return self._first.search(text, max(0, place - self.longest), place) is not None

    def read(self, text: str) -> str:
        return _View(self, text, 0, is_final=True).text


ESCAPES = Reading(r"\\", _ESCAPES, longest=16)
MARKUP = Reading(r"\\<", {**_MARKUP, **_ESCAPES}, longest=64, single=rf"*_~`{_BLANK}")
"""The reading of `ESCAPES`, also without tags and emphasis."""
LOOSE = Reading(r"\\<:\]", {**_BETWEEN, **_MARKUP, **_ESCAPES}, longest=64, single=rf"*_~`{_BLANK}{_UNSEEN}")
"""The reading of `MARKUP`, also without other text between words: targets of links, values that are no
strings, and invisible characters."""


class Reader:
    """Finds the matches of a detector in the written text and in its reading."""

    def __init__(self, detector: Detector, reading: Reading) -> None:
        self.longest = reading.longest * (detector.longest + 1) if detector.longest else 0
        self.reach = reading.longest * (detector.reach + reading.longest + 1)
        self._detector = detector
        self._reading = reading
        self._span = detector.reach + 2 * reading.longest
        """Characters before a place that are read with it, if they contain no tokens."""
        self._clear_span = detector.reach + reading.longest
        """Characters before a place in which no token may begin, for the reading to be the written text."""

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        """Each rule of the detector becomes two: `2 * rule` for the written text, plus 1 for its reading."""
        left = max(0, start - self._span) if taken else self._left(text, start)
        if not taken and not self._reading.may_be_in(text, left):
            matches, undecided = self._detector.scan(text, start, is_final)
            return _in_both(matches) if matches else matches, undecided
        in_written = [match._replace(rule=match.rule // 2) for match in taken if match.rule % 2 == 0]
        in_read = [match._replace(rule=match.rule // 2) for match in taken if match.rule % 2 == 1]
        matches, undecided = self._detector.scan(text, start, is_final, in_written)
        if undecided == start and not is_final:
            return [], start
        found = [match._replace(rule=2 * match.rule) for match in matches]
        is_same = in_written == in_read
        if not is_same or self._reading.may_be_in(text, left):
            view = self._view(text, start, is_final, left)
            is_same = is_same and view.is_as_written
        if is_same:
            return _in_both(matches), undecided
        known = [match._replace(start=view.read(match.start), end=view.read(match.end)) for match in in_read]
        matches, open_from = self._detector.scan(view.text, view.read(start), is_final, known)
        if not is_final:  # an incomplete token may begin before `start`
            undecided = max(start, min(undecided, view.written(open_from)))
        for begin, end, entity, rule in matches:
            found.append(Match(view.written(begin), view.written(end), entity, 2 * rule + 1))
        found, within = _behind_escapes(found, view)
        if not is_final:
            undecided = min([undecided, *(match.start for match, end in within if end >= undecided)])
        if undecided == start and not is_final:
            return [], start
        return [match for match in found if match.start < undecided], undecided

    def scan_next(self, excerpt: Excerpt, text: str) -> Findings:
        """Do what `scan` does from the start of a plain `excerpt` on, if `text` is the excerpt's with more
        characters. Only the characters that are new are searched for tokens."""
        length, start = len(text), excerpt.start
        if self._reading.may_be_in(text, excerpt.num_read):
            excerpt.clear_from = length
        excerpt.num_read = length
        if excerpt.clear_from and excerpt.clear_from > start - self._clear_span:
            return self.scan(text, start, False)
        findings = self._detector.scan(text, start, False)
        return (_in_both(findings[0]), findings[1]) if findings[0] else findings

    def _left(self, text: str, start: int) -> int:
        """Return where the text begins that the detector reads from `start` on, or before it if a token may
        begin there and reach into this text."""
        left = max(0, start - self._detector.reach)
        return max(0, start - self._span) if self._reading.may_reach(text, left) else left

    def _view(self, text: str, start: int, is_final: bool, left: int) -> "_View":
        """Return a view with all text before `start` that the detector may read, and no token cut in two.
        `left`: see `_left`."""
        reach = self._detector.reach
        if start - left <= reach:
            view = _View(self._reading, text, left, is_final)
            if left == 0 or view.read(start) >= reach:
                return view
        needed = self._span - self._reading.longest
        span = self._span
        while True:
            view = _View(self._reading, text, max(0, start - span), is_final)
            num_read = view.read(start)
            if span >= start or num_read >= needed:
                return view
            span = max(2 * span, span * needed // max(1, num_read))


class _View:
    """The reading of `text[left:]` without an incomplete token at its end, and a map between the places."""

    def __init__(self, reading: Reading, text: str, left: int, is_final: bool) -> None:
        self._written = text
        self._places: list[int] = []
        """The places in the reading where one character stands for several."""
        self._begins: list[int] = []
        """The places in the written text where these tokens begin."""
        self._ahead = [left]
        """The written place minus the place in the reading, after 0, 1, 2, ... of these tokens."""
        pieces: list[str] = []
        done, length, end = left, 0, len(text)
        for token in reading.tokens(text, left):
            kind = token.lastgroup or ""
            if kind.startswith("unfinished"):
                if not is_final:
                    end = token.start()
                continue
            pieces += (text[done : token.start()], _read(kind, token[0]))
            length += token.start() - done
            if len(token[0]) > 1:
                self._places.append(length)
                self._begins.append(token.start())
                self._ahead.append(self._ahead[-1] + len(token[0]) - 1)
            length += 1
            done = token.end()
        self.is_as_written = not pieces and end == len(text)
        self.text = "".join([*pieces, text[done:end]])

    def written(self, place: int) -> int:
        """Return the place in the written text where the character at `place` of the reading begins."""
        return place + self._ahead[bisect_left(self._places, place)]

    def end_of_escape(self, place: int) -> int | None:
        """Return the end of the escape that contains `place` of the written text; None: no escape."""
        i = bisect_left(self._begins, place) - 1
        if i < 0:
            return None
        begin, end = self._begins[i], self._begins[i] + self._ahead[i + 1] - self._ahead[i] + 1
        return end if place < end and self._written[begin] == "\\" else None

    def read(self, place: int) -> int:
        """Return the place in the reading of the first character at or after `place` in the written text."""
        num_before = bisect_left(self._begins, place)
        least = self._places[num_before - 1] + 1 if num_before else 0
        return max(least, place - self._ahead[num_before])


@lru_cache(4096)
def _read(kind: str, token: str) -> str:
    if kind == "letter":
        return _LETTERS[token[-1]]
    if kind == "code":
        code = int(token[-4:], 16)
        return chr(code) if not 0xD800 <= code <= 0xDFFF else "\ufffd"
    if kind == "pair":
        codes = "".join(re.findall("u(.{4})", token))
        return bytes.fromhex(codes).decode("utf-16-be")
    return _READ[kind]


def _in_both(matches: Sequence[Match]) -> list[Match]:
    return [match._replace(rule=2 * match.rule + i) for i in (0, 1) for match in matches]


def _behind_escapes(found: list[Match], view: _View) -> tuple[list[Match], list[tuple[Match, int]]]:
    """Move matches that begin within an escape, as nann@example.org in \\nann@example.org, to the escape's
    end if a match of the entity is found there, so that the escape stays whole. Also return all matches that
    begin within an escape, each with the escape's end."""
    within = {match: end for match in found if (end := view.end_of_escape(match.start)) is not None}
    if not within:
        return found, []
    ends = {(match.start, match.entity): match.end for match in found}
    moved = {match: end for match, end in within.items() if ends.get((end, match.entity), 0) >= match.end}
    return [match._replace(start=moved.get(match, match.start)) for match in found], [*within.items()]
