"""JSON as it reads: escapes in it taken for what they stand for. And what may be put in the place of it.

`\\n` in it is a line's end, not the letter n, and `\\u0040` is an @. A guard that did not know would miss
what follows an escape, or cut one in two. What is replaced leaves JSON what was JSON: text within strings is,
and numbers, `true`, `false` and `null` as a whole, by a string; what holds them together stays.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hooks import GenerationRequest

MAX_SCALAR = 64
"""Characters of a number that is replaced as a whole. Of a longer one, digits are made other digits."""

LONGEST_ESCAPE = 12
"""Characters that one may be written with: a pair of surrogates, as `\\ud83d\\ude00`."""

_TOKEN = re.compile(
    r"""
    (?P<quote>")
  | (?P<pair>\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2})
  | (?P<unfinished>\\u[dD][89abAB][\da-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][\da-fA-F]?)?)?)?)?\Z
                  |\\(?:u[\da-fA-F]{0,3})?\Z)
  | (?P<code>\\u[\da-fA-F]{4})
  | (?P<escape>\\["\\/bfnrt])
    """,
    re.VERBOSE,
)
_STRUCTURE = frozenset(' \t\n\r{}[]:,"')
_BARE = re.compile(r'[^\s{}\[\]:,"]+')
_RUN = re.compile(r'[^{}\[\]:,"]+')
"""Between what is structure: a scalar, or words that are no JSON, and the space around."""
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_OPEN = re.compile(r"[-+.\deE]+|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?")
"""What may become a scalar."""
_NUMERIC = re.compile(r"[-+.\deE]+")
_WORD = re.compile(r"t?r?u?e?|f?a?l?s?e?|n?u?l?l?")
"""One of the three that JSON has, or what is left of it where a place begins or ends."""

Edit = tuple[int, int, str]
"""From where to where, and what to put there as it is written."""


def asks_for_json(request: GenerationRequest) -> bool:
    """Whether the answer is to be JSON."""
    extra: Mapping[str, Any] = request.extra
    asked = extra.get("response_format")
    if isinstance(asked, Mapping) and asked.get("type") in ("json_object", "json_schema"):
        return True
    guided = extra.get("structured_outputs")
    of_guided = guided if isinstance(guided, Mapping) else {}
    wanted = [(extra.get(f"guided_{kind}"), of_guided.get(kind)) for kind in ("json", "json_object")]
    return any(one is not None and one is not False for pair in wanted for one in pair)


class JsonText:
    """Reads a piece at a time, and knows of what it read how it was written. Positions count from where
    `forget` left off, or from the beginning."""

    def __init__(self) -> None:
        self.unread = ""
        """An escape that has only begun, as it was written."""
        self._escapes: list[tuple[int, int]] = []
        """Where an escape was read, and how many characters more it is written with."""
        self._quotes: list[int] = []
        """Where strings begin and end."""
        self._is_inside = False
        """Whether the text that is remembered begins inside a string."""
        self._before = ""
        """The last character but space before it; none: there was none."""
        self._is_cut = False
        """Whether it begins within what may be a number, where JSON has a value."""

    def read(self, piece: str, position: int, is_final: bool) -> str:
        """What `piece` reads as, from `position` on."""
        if not self.unread and "\\" not in piece and '"' not in piece:
            return piece
        written, self.unread = self.unread + piece, ""
        read: list[str] = []
        done = 0
        for token in _TOKEN.finditer(written):
            plain = written[done : token.start()]
            read.append(plain)
            position += len(plain)
            done = token.end()
            if token.lastgroup == "unfinished" and not is_final:
                self.unread = token[0]
                break
            if token.lastgroup == "quote":
                self._quotes.append(position)
            char = _read(token)
            read.append(char)
            if len(char) < len(token[0]):
                self._escapes.append((position, len(token[0]) - len(char)))
            position += len(char)
        return "".join([*read, written[done:]])

    def length(self, start: int, end: int) -> int:
        """How many characters the text from `start` to `end` is written with."""
        return end - start + sum(more for at, more in self._escapes if start <= at < end)

    def open_scalar(self, text: str, start: int) -> int:
        """Where a scalar begins, at `start` or later, that may go on behind `text`; where that ends: none
        does."""
        begin = self._begin(text, len(text), start)
        may_be = begin >= start and len(text) - begin <= MAX_SCALAR and _OPEN.fullmatch(text, begin)
        return begin if may_be and self._is_value(text, begin) else len(text)

    def widened(self, text: str, start: int, end: int, first: int) -> tuple[int, int]:
        """A place, and the whole of the scalars that it begins and ends in, if they begin at `first` or
        later."""
        for edge in {start, end - 1} if start < end else ():
            begin, stop = self.scalar_at(text, edge, first)
            if begin < stop:
                start, end = min(start, begin), max(end, stop)
        return start, end

    def scalar_at(self, text: str, position: int, first: int) -> tuple[int, int]:
        """The whole scalar that `position` is in, if it begins at `first` or later; else nothing there."""
        if position < len(text) and text[position] not in _STRUCTURE:
            begin, stop = self._begin(text, position, first), self._end(text, position)
            if first <= begin < stop and self._is_scalar(text, begin, stop):
                return begin, stop
        return position, position

    def edits(self, text: str, start: int, end: int, new: str) -> Iterator[Edit]:
        """What to put where, so that `new` stands for that place."""
        for begin, stop, is_inside in self._stretches(start, end):
            if is_inside:
                yield begin, stop, _quoted(new)[1:-1]
                new = ""
                continue
            for run in _RUN.finditer(text, begin, stop):
                # Space goes with the words before it, so that it does not matter how a place was cut.
                after = run.start() + len(run[0]) - len(run[0].lstrip())
                first = run.start() if self._follows_words(text, run.start()) else after
                if first < run.end():
                    yield first, run.end(), self._bare(text, after, run.end(), new)
                    new = ""

    def parts(self, text: str, start: int, end: int, *, is_whole: bool) -> list[tuple[int, int]]:
        """The parts of `text[start:end]` that a text may stand in place of: what is in strings, values, and
        what is no JSON at all.

        `is_whole`: it may begin and end within a number, which then stays. Else, what has no quotes in it is
        one part.
        """
        if not is_whole and not any(start <= quote < end for quote in self._quotes):
            return [(start, end)]
        edges = (start, end) if is_whole else ()
        parts: list[tuple[int, int]] = []
        for begin, stop, is_inside in self._stretches(start, end):
            parts += [(begin, stop)] if is_inside else _between(text, begin, stop, edges)
        return parts

    def forget(self, text: str, count: int) -> None:
        """Forget the first `count` characters of `text`."""
        if not count:
            return
        begin = self._begin(text, count, 0)
        self._is_cut = begin < count and self._is_number(text, begin, count)
        self._before = text[:count].rstrip()[-1:] or self._before
        gone = sum(quote < count for quote in self._quotes)
        self._is_inside ^= gone % 2 == 1
        self._quotes = [quote - count for quote in self._quotes[gone:]]
        self._escapes = [(at - count, more) for at, more in self._escapes if at >= count]

    def _stretches(self, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """What lies between quotes, and whether it is inside a string."""
        is_inside = self._inside(start)
        for quote in [*(quote for quote in self._quotes if start <= quote < end), end]:
            if start < quote:
                yield start, quote, is_inside
            start, is_inside = quote + 1, not is_inside

    def _inside(self, position: int) -> bool:
        return self._is_inside ^ (sum(quote < position for quote in self._quotes) % 2 == 1)

    def _begin(self, text: str, position: int, least: int) -> int:
        """Where what stands at or before `position` begins, if that is outside of strings; below `least`, it
        need not be exact."""
        if self._inside(position):
            return position
        while position >= least and position > 0 and text[position - 1] not in _STRUCTURE:
            position -= 1
        return position

    def _end(self, text: str, position: int) -> int:
        """Where what stands at `position` ends, if that is outside of strings."""
        if self._inside(position):
            return position
        while position < len(text) and text[position] not in _STRUCTURE:
            position += 1
        return position

    def _is_scalar(self, text: str, start: int, end: int) -> bool:
        is_short = end - start <= MAX_SCALAR
        return is_short and bool(_SCALAR.fullmatch(text, start, end)) and self._is_value(text, start)

    def _follows_words(self, text: str, position: int) -> bool:
        before = text[:position].rstrip()[-1:] or self._before
        return before != "" and before not in _STRUCTURE

    def _is_value(self, text: str, start: int) -> bool:
        """Whether it stands where JSON has a value."""
        if start == 0 and self._is_cut:
            return True
        return (text[:start].rstrip()[-1:] or self._before) in ("", ":", ",", "[")

    def _bare(self, text: str, start: int, end: int, new: str) -> str:
        """What to put in the place of words outside of strings. The first word decides: when it is replaced,
        nobody may know yet whether others follow."""
        begin, stop = self._begin(text, start, 0), self._end(text, start)
        if stop <= end and self._is_scalar(text, start, stop):
            return _quoted(new)
        number = self._number_end(text, begin, stop)
        is_part = number - begin > MAX_SCALAR or (number == stop and (begin < start or end < stop))
        if start < number and is_part:
            return re.sub(r"\d", "1", text[start : min(number, end)])
        return _quoted(new)[1:-1]

    def _number_end(self, text: str, begin: int, stop: int) -> int:
        """Where what may be a number ends with which the word from `begin` to `stop` begins."""
        found = _NUMERIC.match(text, begin, stop) if self._is_value(text, begin) else None
        return found.end() if found else begin

    def _is_number(self, text: str, start: int, end: int) -> bool:
        """Whether it is one, or a part of one, as far as it goes."""
        return bool(_NUMERIC.fullmatch(text, start, end)) and self._is_value(text, start)


def _between(text: str, start: int, end: int, edges: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Between strings: numbers, unless they begin or end at one of the edges, and what is no JSON."""
    for found in _BARE.finditer(text, start, end):
        begin, stop = found.span()
        if _NUMERIC.fullmatch(text, begin, stop):
            if begin not in edges and stop not in edges:
                yield begin, stop
        elif not _WORD.fullmatch(text, begin, stop):
            yield begin, stop


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _read(token: re.Match[str]) -> str:
    if token.lastgroup in ("quote", "unfinished"):
        return token[0]
    read = json.loads(f'"{token[0]}"')
    return read if not "\ud800" <= read <= "\udfff" else "\ufffd"
