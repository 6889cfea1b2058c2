"""The screen of a `Reader`: it reads the written text and its reading, while these have the same length."""

import re
from collections.abc import Callable, Mapping

from hooks.loading.screen import Mark, Screen

_OF_VALUE = re.compile(r"[\w/+=.~-]").match
_NONE, _SMALL, _VALUE = range(3)
"""The characters before a place: no part of a value, ending in a small letter, or maybe a part of a value
that continues after a line break and blanks. Such a part has a digit, or a small letter before a capital one,
as `VALUES` has it."""


_QUOTE = '"'


class ReadingScreen:
    """Implements `Screen`. Gives up at the second character of what may be a token of the reading, but for
    tokens of one character that read as one. It holds the first one until then."""

    def __init__(
        self,
        screen: Screen,
        is_sign: Callable[[str], object],
        may_begin: Callable[[str, int], bool],
        even: Mapping[str, str],
        dressed: Callable[[str], str],
        reach: int,
    ) -> None:
        """`screen`: of the reader's detector. `is_sign`: whether a token may begin with a character.
        `may_begin`: see `Reading.may_begin`. `even`: the tokens of one character that read as one, and these.
        `dressed`: puts a character in plain form. `reach`: of the reader."""
        self._screen = screen
        self._is_sign = is_sign
        self._may_begin = may_begin
        self._heeds_quotes = not may_begin(":", 0) and may_begin('":', 1)
        """Whether a quote before a character decides if a token may begin there."""
        self._even = even
        self._dressed = dressed
        self.width = max(reach, screen.width)
        self.start = Mark(0, ("", _NONE, screen.start.before, None))
        last = _QUOTE if self._heeds_quotes else ""
        self.anywhere = Mark(0, (last, _VALUE, screen.anywhere.before, None))

    def step(self, mark: Mark, char: str) -> Mark | None:
        last, value, before, read_before = mark.before
        opened, read_opened = mark.open or ((), ())
        char = self._dressed(char)
        if last and last != _QUOTE and self._may_begin(f"{_QUOTE}{last}{char}", 1):
            return None
        num_held = 0
        if self._is_sign(char) and char not in self._even and (char not in "\r\n" or value == _VALUE):
            if self._may_begin(last[-1:] + char, len(last)):
                last, num_held = char, mark.held + 1
            else:
                last = ""
        else:
            last = self._last(char)
        written = self._screen.step(Mark(0, before, opened), char)
        if written is None:
            return None
        num_held = max(num_held, written.held)
        value, read_char = _further(value, char), self._even.get(char, char)
        if read_before is None and read_char == char:
            return Mark(num_held, (last, value, written.before, None), (written.open, ()))
        read = Mark(0, before, opened) if read_before is None else Mark(0, read_before, read_opened)
        stepped = self._screen.step(read, read_char)
        if stepped is None:
            return None
        if stepped == written:
            return Mark(num_held, (last, value, written.before, None), (written.open, ()))
        opens = (written.open, stepped.open)
        num_held = max(num_held, stepped.held)
        return Mark(num_held, (last, value, written.before, stepped.before), opens)

    def step_over(self, mark: Mark, char: str) -> Mark:
        _, value, before, read_before = mark.before
        char = self._dressed(char)
        read_mark = Mark(0, before if read_before is None else read_before)
        written = self._screen.step_over(Mark(0, before), char).before
        read = self._screen.step_over(read_mark, self._even.get(char, char)).before
        same_read = None if read == written else read
        return Mark(0, (self._last(char), _further(value, char), written, same_read))

    def _last(self, char: str) -> str:
        """The part of a state that tells the character before: a quote, or a sign that may begin a token."""
        return char if char == _QUOTE and self._heeds_quotes else ""


def _further(value: int, char: str) -> int:
    if not _OF_VALUE(char):
        return _NONE
    if value == _VALUE or char.isdigit() or (value == _SMALL and char.isupper()):
        return _VALUE
    return _SMALL if char.islower() else _NONE
