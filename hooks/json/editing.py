"""JSON text that is read without its escapes while it streams, and edited so that it stays JSON.

`\\n` in JSON is a line break, not the letter n, and `\\u0040` is an @. A guard that read the text as written
would miss a word after an escape, or cut an escape in two. An edit replaces text inside strings. It replaces
a whole number, `true`, `false` or `null` by a string. Quotes, brackets, colons and commas stay.

Libraries that read partial JSON (jiter, ijson) return values. An edit needs to know where each character of
a value is written, and reading must continue after any character: they offer neither.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hooks import GenerationRequest

MAX_SCALAR = 64
"""Most characters of a number that is replaced as a whole. In a longer number, each digit becomes a 1."""

LONGEST_ESCAPE = 12
"""Most written characters for one character: a pair of surrogates, as `\\ud83d\\ude00`."""

_TOKEN = re.compile(
    r"""
    (?P<quote>")
  | (?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})
  | (?P<unfinished>\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z
                  |\\(?:u[0-9a-fA-F]{0,3})?\Z)
  | (?P<code>\\u[0-9a-fA-F]{4})
  | (?P<escape>\\["\\/bfnrt])
    """,
    re.VERBOSE,
)
_STRUCTURE = frozenset(' \t\n\r{}[]:,"')
_BARE = re.compile(r'[^\s{}\[\]:,"]+')
_RUN = re.compile(r'[^{}\[\]:,"]+')
"""The text between structure: a scalar, or words that are not JSON, and the space around them."""
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_OPEN = re.compile(r"[-+.\deE]+|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?")
"""A beginning of a scalar."""
_NUMERIC = re.compile(r"[-+.\deE]+")
_WORD = re.compile(r"t?r?u?e?|f?a?l?s?e?|n?u?l?l?")
"""`true`, `false` or `null`, or the part of it that a place begins or ends with."""

Edit = tuple[int, int, str]
"""Start, end, and the text as written that replaces the characters between them."""


def asks_for_json(request: GenerationRequest) -> bool:
    extra: Mapping[str, Any] = request.extra
    if not extra:
        return False
    asked = extra.get("response_format")
    if isinstance(asked, Mapping) and asked.get("type") in ("json_object", "json_schema"):
        return True
    guided = extra.get("structured_outputs")
    outputs = guided if isinstance(guided, Mapping) else {}
    wanted = [(extra.get(f"guided_{kind}"), outputs.get(kind)) for kind in ("json", "json_object")]
    return any(one is not None and one is not False for pair in wanted for one in pair)


class JsonText:
    """Reads JSON text piece by piece, and remembers how it was written. Positions count the characters read,
    from the first character that is not forgotten (see `forget`)."""

    def __init__(self) -> None:
        self.unread = ""
        """The beginning of an escape at the end of the text, as written."""
        self._escapes: list[tuple[int, int]] = []
        """The position of each escape, and the number of its written characters minus 1."""
        self._quotes: list[int] = []
        """The positions of the quotes around strings."""
        self._is_inside = False
        """Whether position 0 is inside a string."""
        self._before = ""
        """The last character before position 0 that is not a space; empty if all are spaces."""
        self._is_cut = False
        """Whether position 0 is inside a number (or the beginning of one) in the place of a JSON value."""

    def read(self, piece: str, position: int, is_final: bool) -> str:
        """The characters of the next piece, which begins at `position`."""
        if not self.unread and "\\" not in piece:
            at = piece.find('"')
            while at >= 0:
                self._quotes.append(position + at)
                at = piece.find('"', at + 1)
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
        """The number of written characters of the text from `start` to `end`."""
        return end - start + sum(more for at, more in self._escapes if start <= at < end)

    def open_scalar(self, text: str, start: int) -> int:
        """The start, at `start` or later, of a scalar that may continue after `text`; or the text's end."""
        begin = self._begin(text, len(text), start)
        may_be = begin >= start and len(text) - begin <= MAX_SCALAR and _OPEN.fullmatch(text, begin)
        return begin if may_be and self._is_value(text, begin) else len(text)

    def widened(self, text: str, start: int, end: int, first: int) -> tuple[int, int]:
        """The place from `start` to `end`, with whole scalars at its edges, if they begin from `first` on."""
        for edge in {start, end - 1} if start < end else ():
            begin, stop = self.scalar_at(text, edge, first)
            if begin < stop:
                start, end = min(start, begin), max(end, stop)
        return start, end

    def scalar_at(self, text: str, position: int, first: int) -> tuple[int, int]:
        """Start and end of the scalar at `position`, if it begins from `first` on; else `position` twice."""
        if position < len(text) and text[position] not in _STRUCTURE:
            begin, stop = self._begin(text, position, first), self._end(text, position)
            if first <= begin < stop and self._is_scalar(text, begin, stop):
                return begin, stop
        return position, position

    def edits(self, text: str, start: int, end: int, new: str) -> Iterator[Edit]:
        """The edits that replace the text from `start` to `end` by `new`: the first edit has `new`, and each
        later one an empty text. Text that is only structure and space gets no edits."""
        for begin, stop, is_inside in self._stretches(start, end):
            if is_inside:
                yield begin, stop, _quoted(new)[1:-1]
                new = ""
                continue
            for run in _RUN.finditer(text, begin, stop):
                # Space belongs to the words before it: so the edits do not depend on where a stream was cut.
                after = run.start() + len(run[0]) - len(run[0].lstrip())
                first = run.start() if self._follows_words(text, run.start()) else after
                if first < run.end():
                    yield first, run.end(), self._bare(text, after, run.end(), new)
                    new = ""

    def escaped(self, value: str, position: int) -> str:
        """The value as it is written at `position`: with escapes inside a string."""
        return _quoted(value)[1:-1] if self._inside(position) else value

    def parts(self, text: str, start: int, end: int, *, is_whole: bool) -> list[tuple[int, int]]:
        """The parts of `text[start:end]` that a text can replace: inside strings, values, and text that is
        not JSON.

        `is_whole`: the place may begin or end inside a number, and this number stays. Otherwise, a place
        without quotes is one part.
        """
        if not is_whole and not any(start <= quote < end for quote in self._quotes):
            return [(start, end)]
        edges = (start, end) if is_whole else ()
        parts: list[tuple[int, int]] = []
        for begin, stop, is_inside in self._stretches(start, end):
            parts += [(begin, stop)] if is_inside else _between(text, begin, stop, edges)
        return parts

    def forget(self, text: str, count: int) -> None:
        if not count:
            return
        begin = self._begin(text, count, 0)
        self._is_cut = begin < count == self._number_end(text, begin, count)
        self._before = text[:count].rstrip()[-1:] or self._before
        gone = sum(quote < count for quote in self._quotes)
        self._is_inside ^= gone % 2 == 1
        self._quotes = [quote - count for quote in self._quotes[gone:]]
        self._escapes = [(at - count, more) for at, more in self._escapes if at >= count]

    def _stretches(self, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """The stretches between quotes: start, end, and whether the stretch is inside a string."""
        is_inside = self._inside(start)
        for quote in [*(quote for quote in self._quotes if start <= quote < end), end]:
            if start < quote:
                yield start, quote, is_inside
            start, is_inside = quote + 1, not is_inside

    def _inside(self, position: int) -> bool:
        return self._is_inside ^ (sum(quote < position for quote in self._quotes) % 2 == 1)

    def _begin(self, text: str, position: int, least: int) -> int:
        """The start of the word at or before `position`; in a string, `position`. Inexact below `least`."""
        if self._inside(position):
            return position
        while position >= least and position > 0 and text[position - 1] not in _STRUCTURE:
            position -= 1
        return position

    def _end(self, text: str, position: int) -> int:
        """The end of the word at `position`; inside a string, `position`."""
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
        if start == 0 and self._is_cut:
            return True
        return (text[:start].rstrip()[-1:] or self._before) in ("", ":", ",", "[")

    def _bare(self, text: str, start: int, end: int, new: str) -> str:
        """The replacement of words outside of strings. Depends on the first word: more may come later."""
        begin, stop = self._begin(text, start, 0), self._end(text, start)
        if stop <= end and self._is_scalar(text, start, stop):
            return _quoted(new)
        number = self._number_end(text, begin, stop)
        is_part = number - begin > MAX_SCALAR or (number == stop and (begin < start or end < stop))
        if start < number and is_part:
            return re.sub(r"\d", "1", text[start : min(number, end)])
        return _quoted(new)[1:-1]

    def _number_end(self, text: str, begin: int, stop: int) -> int:
        """The end of the number, whole or begun, at the start of the word `begin` to `stop`; else `begin`."""
        found = _NUMERIC.match(text, begin, stop) if self._is_value(text, begin) else None
        return found.end() if found else begin


def _between(text: str, start: int, end: int, edges: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """The parts between strings: numbers that do not begin or end at an edge, and words that are not JSON."""
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
