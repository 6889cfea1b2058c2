"""A model that is in a loop and repeats the same text again and again: `--hook repetition`.

Only the text's structure counts. The end of a text is a loop if it repeats itself exactly, with one period,
often enough and for long enough. With the defaults a loop has four repeats and 2,000 characters: a sentence
thirty times, a paragraph of 600 characters four times, a word or a dash that fills a page. A rule of dashes,
indentation, a table with empty cells, a refrain, or a list whose items differ in a letter or a number is not
a loop; a page of zeros is one, and so is a page of the same line.

The guard holds nothing: when it finds a loop, the client already has as much of it as the limits allow.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Unpack

from pydantic import Field

from hooks import checked
from hooks.detect.acting_guard import Options
from hooks.detect.argument_types import Count
from hooks.detect.detector import Findings, Match
from hooks.detect.span_guard import SpanGuard

ENTITY = "repetition"
_PROBE = 32
"""Characters that are searched first."""


class Repetition(SpanGuard):
    """Finds outputs that repeat themselves in a loop."""

    default_scope = "output"
    thread_safe = True

    @checked
    def __init__(
        self,
        *,
        min_repeats: Annotated[int, Field(ge=2)] = 4,
        min_length: Count = 2000,
        max_period: Count = 1000,
        **options: Unpack[Options],
    ) -> None:
        """`min_repeats`: the least number of repeats. `min_length`: the least characters of a whole loop.
        `max_period`: the most characters of the repeated part. The guard keeps the last `min_repeats` times
        `max_period` characters of each stream, or `min_length` if that is more.

        `action` is `terminate` by default, and ends only the output that loops. `redact` and `suppress`
        withhold a loop until it ends, as `prompt: redact` does: a tool call may then be invalid JSON.
        """
        options.setdefault("action", "terminate")
        super().__init__(LoopDetector(min_repeats, min_length, max_period), **options)


class LoopDetector:
    """Finds every character at which the text so far ends in a loop.

    A loop of period p ends at a place if the last `_equal(p)` characters equal the characters p before them.
    To find the possible periods, the detector searches earlier text for the last characters before the new
    ones, as many as every period needs. A text without loops does not contain them a second time.
    """

    longest = 0

    def __init__(self, min_repeats: int, min_length: int, max_period: int) -> None:
        self._min_repeats = min_repeats
        self._min_length = min_length
        self._max_period = max_period
        self._fewest = min(map(self._equal, range(1, max_period + 1)))
        self.reach = max(min_repeats * max_period, min_length)

    def _equal(self, period: int) -> int:
        """Return how many characters in a row must equal the ones a period before them to be a loop."""
        return max(self._min_repeats * period, self._min_length) - period

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        """Find loops. A loop in `taken` that continues is returned again with its new end."""
        matches = [match for match in taken if match.end == start]
        step = max(1, self._fewest // 2)
        for begin in range(start, len(text), step):
            for first, last in self._loops(text, begin, min(begin + step, len(text))):
                if matches and first <= matches[-1].end:
                    matches[-1] = Match(matches[-1].start, max(last, matches[-1].end), ENTITY)
                else:
                    matches.append(Match(first, last, ENTITY))
        return [match for match in matches if match.end > start], len(text)

    def _loops(self, text: str, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of `text[begin:end]`, in order, in which a loop ends at every character."""
        parts: list[tuple[int, int]] = []
        for period in self._periods(text, begin, self._fewest - (end - begin)):
            equal = self._equal(period)
            run = equal - (end - begin)
            known = begin - run
            if known < period or not text.startswith(text[known - period : begin - period], known):
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
        """Yield the distances at which the `length` characters before `begin` occur once more before it.

        Multiples of the least distance are left out, because they need more equal characters. By Fine and
        Wilf's theorem no other distance lies between the least one and `length` less the least one.
        """
        if begin <= length:
            return
        anchor = text[begin - length : begin]
        lowest = max(0, begin - length - self._max_period)
        least, ends = 0, begin - 1
        while ends >= lowest and (place := _last(anchor, text, lowest, ends)) >= 0:
            period = begin - length - place
            yield period
            least = least or period
            ends = begin - max(period, length - least) - 1


def _last(anchor: str, text: str, lowest: int, ends: int) -> int:
    """Return `text.rfind(anchor, lowest, ends)`. A search for a long text takes long to begin. Therefore the
    anchor's end is searched first, and most texts do not contain it."""
    ahead = max(0, len(anchor) - _PROBE)
    place = text.rfind(anchor[ahead:], lowest + ahead, ends) - ahead
    if place < lowest:
        return -1
    if text.startswith(anchor, place):
        return place
    return text.rfind(anchor, lowest, place + len(anchor))
