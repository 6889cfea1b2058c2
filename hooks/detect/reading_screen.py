"""The screen of a `Reader`: it gives up at each character that may begin a token of the reading."""

import re
from collections.abc import Callable

from hooks.loading.screen import Mark, Screen

_IN_RUN = re.compile(r"[\w/+=-]").match
"""A character behind which a line break may be one inside a value: see `VALUES`."""


class ReadingScreen:
    """Implements `Screen`. Between tokens, the reading is the written text."""

    def __init__(
        self, screen: Screen, is_sign: Callable[[str], object], dressed: Callable[[str], str], reach: int
    ) -> None:
        """`screen`: of the reader's detector. `is_sign`: whether a token may begin with a character.
        `dressed`: puts a character in plain form. `reach`: of the reader."""
        self._screen = screen
        self._is_sign = is_sign
        self._dressed = dressed
        self.width = max(reach, screen.width)
        self.start = _with(screen.start, False)
        self.anywhere = _with(screen.anywhere, True)

    def step(self, mark: Mark, char: str) -> Mark | None:
        is_run, before = mark.before
        char = self._dressed(char)
        if self._is_sign(char) and (char != "\n" or is_run):
            return None
        stepped = self._screen.step(Mark(mark.held, before, mark.open), char)
        return None if stepped is None else _with(stepped, _IN_RUN(char) is not None)

    def step_over(self, mark: Mark, char: str) -> Mark:
        char = self._dressed(char)
        _, before = mark.before
        return _with(self._screen.step_over(Mark(0, before), char), _IN_RUN(char) is not None)


def _with(mark: Mark, is_run: bool) -> Mark:
    return Mark(mark.held, (is_run, mark.before), mark.open)
