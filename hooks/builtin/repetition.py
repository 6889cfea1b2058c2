"""A model that has fallen into a loop, and says the same again and again: `--hook repetition`.

Only the text's structure counts: its end is a loop if it repeats itself, character for character, with one
period, often enough and for long enough. With the defaults that takes four times the same, and 2,000
characters of it: a sentence said thirty times over, a paragraph of 600 characters said four times, a word or
a dash that fills a page. A rule of dashes, indentation, a table with empty cells, a refrain, or a list whose
items differ in a letter or a number do not trip it; a page of zeros does, or of one line.

Nothing is held: what a client has when it trips is the loop's beginning, as long as it may be.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Unpack

from pydantic import Field

from hooks import checked
from hooks.detect.actor import Options
from hooks.detect.argument_types import Count
from hooks.detect.detector import Match
from hooks.detect.spans import SpanGuard

ENTITY = "repetition"


class Repetition(SpanGuard):
    """Finds outputs that repeat themselves in a loop."""

    default_scope = "output"

    @checked
    def __init__(
        self,
        *,
        min_repeats: Annotated[int, Field(ge=2)] = 4,
        min_length: Count = 2000,
        max_period: Count = 1000,
        **options: Unpack[Options],
    ) -> None:
        """`min_repeats`: how often it must have been said. `min_length`: how many characters that must be
        together. `max_period`: how many are repeated, at most. Of each stream, the last `min_repeats` times
        `max_period` characters are kept, or `min_length` if that is more.

        `action` is `terminate` here, and ends only the output that loops. `redact` and `suppress` withhold
        what goes on repeating until something else is said: in a tool call, that may leave no JSON. So does
        `prompt: redact` in a prompt.
        """
        options.setdefault("action", "terminate")
        super().__init__(LoopDetector(min_repeats, min_length, max_period), **options)


class LoopDetector:
    """Finds every character at which the text so far ends in a loop.

    A loop of period p ends where the last `_equal(p)` characters equal those p before them. To find for which
    periods that may be, the fewest characters that any period asks for, but for the new ones, are looked for
    in front of themselves. In a text without loops they stand nowhere else.
    """

    longest = 0

    def __init__(self, min_repeats: int, min_length: int, max_period: int) -> None:
        self._min_repeats = min_repeats
        self._min_length = min_length
        self._max_period = max_period
        self._fewest = min(map(self._equal, range(1, max_period + 1)))
        self.reach = max(min_repeats * max_period, min_length)

    def _equal(self, period: int) -> int:
        """How many characters in a row must equal those a period before them for the last to end a loop."""
        return max(self._min_repeats * period, self._min_length) - period

    def scan(
        self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()
    ) -> tuple[list[Match], int]:
        """A loop that was taken, and goes on, is given again as far as it goes."""
        matches = [match for match in taken if match.end == start]
        step = max(1, self._fewest // 2)
        for begin in range(start, len(text), step):
            for first, last in self._loops(text, begin, min(begin + step, len(text))):
                if matches and first <= matches[-1].end:
                    matches[-1] = matches[-1]._replace(end=max(last, matches[-1].end))
                else:
                    matches.append(Match(first, last, ENTITY))
        return [match for match in matches if match.end > start], len(text)

    def _loops(self, text: str, begin: int, end: int) -> list[tuple[int, int]]:
        """The parts of `text[begin:end]`, in order, in which every character ends a loop."""
        parts: list[tuple[int, int]] = []
        for period in self._periods(text, begin, self._fewest - (end - begin)):
            equal = self._equal(period)
            run = equal - (end - begin)
            known = begin - run
            if known < period or text[known:begin] != text[known - period : begin - period]:
                continue
            while known > period and run < equal and text[known - 1] == text[known - 1 - period]:
                known -= 1
                run += 1
            last = begin
            while last < end and text[last] == text[last - period]:
                last += 1
            first = begin + max(1, equal - run) - 1
            if first < last:
                parts.append((first, last))
            if (first, last) == (begin, end):
                break
        return sorted(parts)

    def _periods(self, text: str, begin: int, length: int) -> Iterator[int]:
        """How far before themselves the `length` characters before `begin` stand once more.

        Left out are multiples of the least such distance, which ask for more than that does. By Fine and
        Wilf's theorem there is nothing else between it and `length` less itself.
        """
        if begin <= length:
            return
        anchor = text[begin - length : begin]
        lowest = max(0, begin - length - self._max_period)
        least, ends = 0, begin - 1
        while ends >= lowest and (place := text.rfind(anchor, lowest, ends)) >= 0:
            period = begin - length - place
            yield period
            least = least or period
            ends = begin - max(period, length - least) - 1
