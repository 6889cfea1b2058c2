"""Reads JSON on a tape while it comes.

Libraries for partial JSON return values. Here the positions in the text matter: arguments continue in the
model's own words, character by character, and the text after the call must stay unread.
"""

import re
from collections.abc import Callable

import orjson

from engine.parsers.scan import Scan, hold
from engine.parsers.tape import Tape
from engine.text.text_search import find_stop

MAX_STRING = 256
"""Most characters of a name or a key, with quotes. Longer text is not a call, and is not held."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STRING_PART = re.compile(r'(?:[^"\\]+|\\.)*', re.DOTALL)
_WORD = re.compile(r"[\w.-]+")


class NotACallError(ValueError):
    """The text is not a tool call, or its call is broken from here on."""


class Reader:
    """Reads ahead on a tape, skips blanks, and decides no text. Raises `NotACallError`."""

    def __init__(self, tape: Tape, position: int = 0) -> None:
        self.tape = tape
        self.position = position
        """The end of the text that was read."""

    def peek(self) -> Scan[str]:
        """The next character that is not blank."""
        while True:
            text = self.tape.text
            while self.position < len(text):
                if not text[self.position].isspace():
                    return text[self.position]
                self.position += 1
            yield from self.more()

    def expect(self, *characters: str) -> Scan[str]:
        character = yield from self.peek()
        if character not in characters:
            raise NotACallError
        self.position += 1
        return character

    def string(self) -> Scan[str]:
        """Read a JSON string, and return its value."""
        yield from self.expect('"')
        self.position -= 1
        while not (found := _STRING.match(self.tape.text, self.position, self.position + MAX_STRING)):
            if len(self.tape.text) - self.position >= MAX_STRING:
                raise NotACallError
            yield from self.more()
        self.position = found.end()
        try:
            return str(orjson.loads(found[0]))
        except orjson.JSONDecodeError:
            raise NotACallError from None

    def word(self) -> Scan[str]:
        yield from self.peek()
        while (found := _WORD.match(self.tape.text, self.position)) and found.end() == len(self.tape.text):
            if len(found[0]) > MAX_STRING or self.tape.ended:
                break
            yield from self.more()
        if not found or len(found[0]) > MAX_STRING:
            raise NotACallError
        self.position = found.end()
        return found[0]

    def optional(self, *markers: str) -> Scan[bool]:
        """Read one of the markers, if one is next."""
        yield from self.peek()
        while True:
            text = self.tape.text[self.position : self.position + max(map(len, markers))]
            for marker in markers:
                if text.startswith(marker):
                    self.position += len(marker)
                    return True
            if not any(marker.startswith(text) for marker in markers):
                return False
            yield from self.more()

    def until(self, *markers: str) -> Scan[str]:
        """Read the short text before the first of the markers, and return it. The marker is not read."""
        while True:
            text = self.tape.text[self.position : self.position + MAX_STRING]
            if found := find_stop(text, markers, 0):
                self.position += found[0]
                return text[: found[0]]
            if len(text) >= MAX_STRING:
                raise NotACallError
            yield from self.more()

    def hold(self, search: Callable[[str], int | None], *, may_end: bool = False) -> Scan[str]:
        """Read the text of any length up to the end that `search` finds (`scan.hold`), and return it.
        `may_end`: the output's end is an end, too."""
        begin = self.position
        end = yield from hold(self.tape, begin, search)
        if end is None and not may_end:
            raise NotACallError
        self.position = len(self.tape.text) if end is None else end
        return self.tape.text[begin : self.position]

    def object(self) -> Scan[None]:
        """Read the JSON object that begins here."""
        nesting = Nesting()
        while not nesting.is_closed:
            if self.position == len(self.tape.text):
                yield from self.more()
            self.position = nesting.end(self.tape.text, self.position)
        if nesting.depth:
            raise NotACallError

    def long_string(self) -> Scan[None]:
        """Read the JSON string of any length that begins here."""
        yield from self.expect('"')
        while True:
            part = _STRING_PART.match(self.tape.text, self.position)
            assert part is not None  # it may be empty
            self.position = part.end()
            if self.tape.text.startswith('"', self.position):
                self.position += 1
                return
            yield from self.more()

    def until_long(self, marker: str, *, may_end: bool = False) -> Scan[str]:
        """Read the text of any length up to the marker's end, and return it. `may_end` as in `hold`."""
        tape = self.tape
        if tape.ended and marker in tape.absent:
            raise NotACallError
        try:
            return (yield from self.hold(MarkerSearch(marker), may_end=may_end))
        except NotACallError:
            tape.absent.add(marker)
            raise

    def more(self) -> Scan[None]:
        """Wait for more text."""
        if self.tape.ended:
            raise NotACallError
        yield


class MarkerSearch:
    """Finds the end of a marker in a text that comes in pieces."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._tail = ""

    def __call__(self, piece: str) -> int | None:
        """The end of the marker in this piece, or None."""
        text = self._tail + piece
        begin = text.find(self._marker)
        if begin >= 0:
            return begin + len(self._marker) - len(self._tail)
        self._tail = text[max(0, len(text) - len(self._marker) + 1) :]
        return None


class Nesting:
    """Finds the end of a JSON object, list or string while it comes."""

    _INSIDE_STRING = re.compile(r'["\\]')
    _OUTSIDE = re.compile(r"[^\w\s:,.+-]")
    """Quotes, brackets, and characters that JSON does not have outside strings."""

    def __init__(self, *, skips_other: bool = False) -> None:
        """`skips_other`: characters that JSON does not have outside strings do not end the reading."""
        self.depth = 0
        self.is_closed = False
        """The value has ended, or the text stopped being JSON. In the second case `depth` is not 0."""
        self._skips_other = skips_other
        self._in_string = False
        self._is_escaped = False

    @property
    def is_open(self) -> bool:
        """Whether more of the value must come. A number or a word shows no end, and is never open."""
        return not self.is_closed and (self.depth > 0 or self._in_string)

    @property
    def is_whole(self) -> bool:
        return self.is_closed and self.depth == 0

    def end(self, text: str, position: int) -> int:
        """The end of the value's part of `text`. `position`: the end of the part that was read before."""
        while position < len(text) and not self.is_closed:
            if self._is_escaped:
                self._is_escaped = False
                position += 1
                continue
            found = (self._INSIDE_STRING if self._in_string else self._OUTSIDE).search(text, position)
            if not found:
                return len(text)
            position = found.end()
            if not self._read(found[0]):
                self.is_closed = True
                return found.start()
        return position

    def _read(self, character: str) -> bool:
        match character:
            case "\\" if self._in_string:
                self._is_escaped = True
            case '"':
                self._in_string = not self._in_string
                self.is_closed = self.depth == 0 and not self._in_string
            case "{" | "[":
                self.depth += 1
            case "}" | "]":
                self.depth -= 1
                self.is_closed = self.depth == 0
            case _:
                return self._skips_other
        return True
