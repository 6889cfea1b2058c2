"""A tool call's arguments as they read: JSON whose strings' escapes are taken for what they stand for.

`\\n` in them is a line's end, not the letter n, and `\\u0040` is an @. A guard that did not know would miss
what follows an escape, or cut one in two.
"""

import json
import re
from collections.abc import Iterator

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

_STRUCTURE = re.compile(r"[\s{}\[\]:,]+")
_NUMBER = re.compile(r"[-+.\deE]+")
_WORD = re.compile(r"t?r?u?e?|f?a?l?s?e?|n?u?l?l?")
"""One of the three that JSON has, or what is left of it where a place begins or ends."""


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

    def write(self, new: str, text: str, position: int) -> str:
        """`new` as it has to be written at `position` of what was read: in place of a number, with quotes."""
        is_inside = self._is_inside ^ (sum(quote < position for quote in self._quotes) % 2 == 1)
        is_value = text[:position].rstrip()[-1:] in (":", ",", "[") and text[position] in "-0123456789"
        quoted = json.dumps(new, ensure_ascii=False)
        return quoted if is_value and not is_inside else quoted[1:-1]

    def parts(self, text: str, start: int, end: int, *, is_whole: bool) -> list[tuple[int, int]]:
        """The parts of `text[start:end]` that a text may stand in place of: what is in strings, values, and
        what is no JSON at all.

        `is_whole`: it may begin and end within a number, which then stays. Else, what has no quotes in it is
        one part.
        """
        quotes = [quote for quote in self._quotes if start <= quote < end]
        if not is_whole and not quotes:
            return [(start, end)]
        is_inside = self._is_inside ^ (sum(quote < start for quote in self._quotes) % 2 == 1)
        edges = (start, end) if is_whole else ()
        parts: list[tuple[int, int]] = []
        for stop in [*quotes, end]:
            if not is_inside:
                parts += _outside(text, start, stop, edges)
            elif start < stop:
                parts.append((start, stop))
            start, is_inside = stop + 1, not is_inside
        return parts

    def forget(self, count: int) -> None:
        """Forget the first `count` characters."""
        gone = sum(quote < count for quote in self._quotes)
        self._is_inside ^= gone % 2 == 1
        self._quotes = [quote - count for quote in self._quotes[gone:]]
        self._escapes = [(at - count, more) for at, more in self._escapes if at >= count]


def _outside(text: str, start: int, end: int, edges: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Between strings: numbers, unless they begin or end at one of the edges, and what is no JSON."""
    between = [found.span() for found in _STRUCTURE.finditer(text, start, end)]
    starts, ends = [start, *(stop for _, stop in between)], [*(begin for begin, _ in between), end]
    for begin, stop in zip(starts, ends, strict=True):
        if _NUMBER.fullmatch(text, begin, stop):
            if begin not in edges and stop not in edges:
                yield begin, stop
        elif not _WORD.fullmatch(text, begin, stop):
            yield begin, stop


def _read(token: re.Match[str]) -> str:
    if token.lastgroup in ("quote", "unfinished"):
        return token[0]
    read = json.loads(f'"{token[0]}"')
    return read if not "\ud800" <= read <= "\udfff" else "\ufffd"
