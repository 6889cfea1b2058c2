"""The screen of a `Reader`: it reads the written text and its reading, while these have the same length."""

import re
from collections.abc import Callable, Mapping

from hooks.loading.screen import Mark, Screen

_OF_VALUE = re.compile(r"[\w/+=.~-]").match
_NONE, _SMALL, _VALUE = range(3)
"""The characters before a place: no part of a value, ending in a small letter, or maybe a part of a value
that continues after a line break and blanks. Such a part has a digit, or a small letter before a capital one,
as `VALUES` has it."""


class ReadingScreen:
    """Implements `Screen`. Gives up at each character that may begin a token of the reading, but for tokens
    of one character that read as one."""

    def __init__(
        self,
        screen: Screen,
        is_sign: Callable[[str], object],
        even: Mapping[str, str],
        dressed: Callable[[str], str],
        reach: int,
    ) -> None:
        """`screen`: of the reader's detector. `is_sign`: whether a token may begin with a character. `even`:
        the tokens of one character that read as one, and these. `dressed`: puts a character in plain form.
        `reach`: of the reader."""
        self._screen = screen
        self._is_sign = is_sign
        self._even = even
        self._dressed = dressed
        self.width = max(reach, screen.width)
        self.start = Mark(0, (_NONE, screen.start.before, None))
        self.anywhere = Mark(0, (_VALUE, screen.anywhere.before, None))

    def step(self, mark: Mark, char: str) -> Mark | None:
        value, before, read_before = mark.before
        opened, read_opened = mark.open or ((), ())
        char = self._dressed(char)
        if self._is_sign(char) and char not in self._even and (char not in "\r\n" or value == _VALUE):
            return None
        written = self._screen.step(Mark(0, before, opened), char)
        if written is None:
            return None
        value, read_char = _further(value, char), self._even.get(char, char)
        if read_before is None and read_char == char:
            return Mark(written.held, (value, written.before, None), (written.open, ()))
        read = Mark(0, before, opened) if read_before is None else Mark(0, read_before, read_opened)
        stepped = self._screen.step(read, read_char)
        if stepped is None:
            return None
        if stepped == written:
            return Mark(written.held, (value, written.before, None), (written.open, ()))
        opens = (written.open, stepped.open)
        return Mark(max(written.held, stepped.held), (value, written.before, stepped.before), opens)

    def step_over(self, mark: Mark, char: str) -> Mark:
        value, before, read_before = mark.before
        char = self._dressed(char)
        read_mark = Mark(0, before if read_before is None else read_before)
        written = self._screen.step_over(Mark(0, before), char).before
        read = self._screen.step_over(read_mark, self._even.get(char, char)).before
        return Mark(0, (_further(value, char), written, None if read == written else read))


def _further(value: int, char: str) -> int:
    if not _OF_VALUE(char):
        return _NONE
    if value == _VALUE or char.isdigit() or (value == _SMALL and char.isupper()):
        return _VALUE
    return _SMALL if char.islower() else _NONE
