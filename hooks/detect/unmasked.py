"""The search of an output as its client reads it: with the caller's values in the places of placeholders.

The model knows no value, but it may write words that are a match together with one: the rest of a key whose
beginning is in the prompt. The detector reads the value and the words around it as one text (contract 9.12).
It also searches the output as it is written, because no value may hide a match.
"""

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable
from copy import copy
from typing import NamedTuple, Self

from hooks.detect.detector import Detector, Match, going_on, moved
from hooks.detect.placeholders import CallerValues
from hooks.detect.restoring import parts_outside

MOST_IN_MATCH = 4
"""Most placeholders in a text that waits because it may become a match: what a guard holds has a bound."""
_SLACK = 512
"""Characters that are kept beyond what the detector reads, so that the text is seldom cut."""


class _Spot(NamedTuple):
    """A placeholder: its place in the output's excerpt, and that of its value in the text that is searched.
    The first one of a text is empty, and says where the text begins."""

    start: int
    end: int
    first: int
    last: int

    def back(self, written: int, read: int) -> "_Spot":
        return _Spot(self.start - written, self.end - written, self.first - read, self.last - read)


class Unmasked:
    """The progress of the search. Its places count from the start of the output's excerpt (see `Excerpt`)."""

    __slots__ = (
        "_detector",
        "_end",
        "_is_past",
        "_passing",
        "_plain",
        "_reach",
        "_spots",
        "_start",
        "_taken",
        "_text",
        "_values",
    )

    def __init__(
        self,
        detector: Detector,
        values: CallerValues,
        passing: Container[str],
        plain: Callable[[str], str],
        reach: Callable[[str], int],
        is_past: Callable[[str], bool],
        start: int,
        taken: list[Match],
    ) -> None:
        """`passing`: the matches of these texts pass. `plain`: a text in the form in which the detector reads
        it. `reach`: most characters of a text that the detector reads to the left of a place. `is_past`:
        whether the detector reads nothing that is before such a text, once it has read the text. `start`,
        `taken`: how far the search of the output as it is written has come, which has read no placeholder
        yet."""
        self._detector = detector
        self._values = values
        self._passing = passing
        self._plain = plain
        self._reach = reach
        self._is_past = is_past
        self._text = ""
        self._end = 0
        """The excerpt is read up to here."""
        self._start = start
        """The place in the text where the detector continues."""
        self._taken = taken[:]
        """The matches of the text that end there or later."""
        self._spots = [_Spot(0, 0, 0, 0)]

    def copied(self) -> Self:
        made = copy(self)
        made._spots, made._taken = self._spots[:], self._taken[:]
        return made

    @property
    def start(self) -> int:
        """The first place of the excerpt that this search leaves undecided: never within a placeholder."""
        return self._written(self._start)

    def is_idle(self, start: int, taken: list[Match]) -> bool:
        """Whether the detector reads no value any more, and the search of the output as it is written, which
        has come as far as this, finds the same."""
        if taken or self._taken or start != self.start:
            return False
        return len(self._spots) == 1 or self._is_past(self._text[self._spots[-1].last : self._start])

    def read(
        self, output: str, others: Iterable[tuple[int, int]], *, is_final: bool, is_cut: bool
    ) -> list[Match]:
        """Search on in the excerpt's text. Returns the parts of new matches that are no value's. `others`:
        places at which other guards brought values back. `is_cut`: no placeholder goes on after the text."""
        places, open_from = self._values.scan(output, self._end, is_final or is_cut)
        found: list[Match] = []
        for start, end in places:
            self._text += output[self._end : start]
            first = len(self._text)
            self._text += self._plain(self._values.value(output[start:end]))
            self._spots.append(_Spot(start, end, first, len(self._text)))
            self._end = end
            found += self._scan(is_final=False)
            if len(self._spots) > MOST_IN_MATCH + 1:
                self._start = max(self._start, self._spots[-MOST_IN_MATCH].first)
        self._text += output[self._end : open_from]
        self._end = open_from
        found += self._scan(is_final=is_final)
        values = sorted([*others, *(spot[:2] for spot in self._spots)])
        self._trim()
        return [part for match in found for part in parts_outside(match, values)]

    def forget(self, count: int) -> None:
        """The first `count` characters of the excerpt are gone."""
        self._end -= count
        self._spots = [spot.back(count, 0) for spot in self._spots]

    def _scan(self, *, is_final: bool) -> list[Match]:
        found, self._start = self._detector.scan(self._text, self._start, is_final, self._taken)
        self._taken = going_on(self._taken, found, self._start)
        return [
            match._replace(start=max(0, self._written(match.start)), end=self._written_end(match.end))
            for match in found
            if self._text[match.start : match.end] not in self._passing
        ]

    def _written(self, place: int) -> int:
        """The place in the excerpt of the character at `place`; for one of a value, its placeholder's."""
        spot = self._spot_of(place)
        return spot.start if place < spot.last else spot.end + place - spot.last

    def _written_end(self, place: int) -> int:
        """The place in the excerpt where the text's characters before `place` end."""
        spot = self._spot_of(place - 1)
        return spot.end if place <= spot.last else spot.end + place - spot.last

    def _spot_of(self, place: int) -> _Spot:
        """The last spot that begins at `place` or before it."""
        return self._spots[max(0, bisect_right(self._spots, place, key=lambda one: one.first) - 1)]

    def _trim(self) -> None:
        """Forget the text that the detector does not read any more."""
        gone = self._start - self._reach(self._text)
        if gone <= _SLACK:
            return
        kept = [spot for spot in self._spots if spot.last > gone]
        if kept and kept[0].first < gone:
            gone = kept[0].first
        begin = self._written(gone)
        self._spots = [_Spot(begin, begin, 0, 0), *(spot.back(0, gone) for spot in kept)]
        self._text = self._text[gone:]
        self._start -= gone
        self._taken = moved(self._taken, -gone)
