"""Reads a text forward for many phrases: which of them may have begun at its end, and since where."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hooks.detect.automaton.screen import MOST_HELD
from hooks.loading.screen import Mark

_LAST = "\U0010ffff"


class _Begun(NamedTuple):
    """Phrases that the end of a text begins: they agree in their first `depth` characters."""

    length: int
    """The characters of the text, which may have runs of spaces."""
    depth: int
    low: int
    high: int
    """The phrases have these places in the list."""


class PhraseScreen:
    """The screen of a `PhraseDetector`. Implements `Screen`."""

    width = 0

    def __init__(
        self,
        phrases: Sequence[str],
        fold: Callable[[str], str],
        continues_word: Callable[[str], bool],
        *,
        joins_spaces: bool,
    ) -> None:
        """`phrases`: in order, and folded. `fold`: folds a character. `continues_word`: whether a folded
        character is one of a word; no phrase begins between two of these. `joins_spaces`: a run of spaces is
        one."""
        self._phrases = phrases
        self._fold = fold
        self._continues_word = continues_word
        self._joins_spaces = joins_spaces
        self.start = self.anywhere = Mark(0, "")

    def step(self, mark: Mark, char: str) -> Mark | None:
        folded = self._fold(char)
        if len(folded) > 1:
            return None
        _, last, open_phrases = mark
        if not folded:
            folded = " " if last == " " else ""
            going = [one._replace(length=one.length + 1) for one in open_phrases]
        elif folded == last == " " and self._joins_spaces:
            going = [one._replace(length=one.length + 1) for one in open_phrases]
        else:
            going = [one for begun in open_phrases if (one := self._further(begun, folded)) is not None]
            if not (self._continues_word(last) and self._continues_word(folded)):
                first = self._further(_Begun(0, 0, 0, len(self._phrases)), folded)
                going += [] if first is None else [first]
        if any(len(self._phrases[one.low]) == one.depth for one in going):
            return None  # a whole phrase
        held = going[0].length if going else 0
        last = "" if folded == "_" else folded  # it may be emphasis: a word may begin after it
        return None if held > MOST_HELD else Mark(held, last, tuple(going))

    def _further(self, begun: _Begun, char: str) -> _Begun | None:
        length, depth, low, high = begun
        start = self._phrases[low][:depth] + char
        low = bisect_left(self._phrases, start, low, high)
        if low == high or not self._phrases[low].startswith(start):
            return None
        return _Begun(length + 1, depth + 1, low, bisect_left(self._phrases, start + _LAST, low, high))

    def step_over(self, mark: Mark, char: str) -> Mark:
        folded = self._fold(char)
        return Mark(0, folded if len(folded) == 1 and folded != "_" else "")
