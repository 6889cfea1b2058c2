"""Finds values once more that a guard found only because of the words before them: alone, without the words.

`token = 'V' | 'V'`: the words show the first V alone. The guard keeps hashes of V, and not V.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from hooks.detect.detector import Findings, Match

MOST_VALUES = 64
"""Most values of a stream. Later ones are not kept."""
_LEAST = 6
"""Fewest characters of a value that is kept."""
_LEAST_LETTERS = 16
"""Fewest characters of one that has letters alone: a shorter one may be a word."""
_KNOWN = 32
"""Characters at the beginning of a value by which a text that may become the value is known."""
_AFTER_RULES = 1 << 30
"""The rule of a value that comes again: no rule of a guard has a greater number."""
_PLACE = re.compile(r"(?<![^\W_])[^\W_]|[^\w\s]|_")
"""A place where a value may begin: not within a run of letters and digits."""


class FoundAgain:
    """The values of one stream, by hash. Implements `Detector`: a match's rule numbers its value."""

    reach = 1

    def __init__(self) -> None:
        self.longest = 0
        self.start = 0
        """The search continues here."""
        self._entities: list[str] = []
        self._since: list[int] = []
        """For each value, the place from which on it counts: the end of the match that showed it."""
        self._numbers: dict[tuple[int, int], int] = {}
        """The values' numbers, by length and hash."""
        self._beginnings: dict[int, int] = {}
        """For hashes of the first characters of values (of one, two, ... up to `_KNOWN`), the length of the
        longest value that begins so."""
        self._lengths: list[int] = []

    def copied(self) -> Self:
        made = type(self)()
        made.longest, made.start = self.longest, self.start
        made._since, made._lengths = self._since[:], self._lengths[:]
        made._entities, made._numbers = self._entities[:], self._numbers.copy()
        made._beginnings = self._beginnings.copy()
        return made

    def add(self, forms: Iterable[str], match: Match) -> None:
        """Keep the value of a match. `forms`: the value as a text may have it."""
        for value in forms:
            if len(value) < (_LEAST_LETTERS if value.isalpha() else _LEAST):
                continue
            key = len(value), hash(value)
            number = self._numbers.get(key)
            if number is None:
                if len(self._numbers) >= MOST_VALUES:
                    return
                self._numbers[key] = len(self._since)
                self._since.append(match.end)
                self._entities.append(match.entity)
                self._lengths = sorted({*self._lengths, len(value)})
                self.longest = self._lengths[-1]
                for n in range(min(len(value), _KNOWN)):
                    beginning = hash(value[: n + 1])
                    self._beginnings[beginning] = max(len(value), self._beginnings.get(beginning, 0))
            elif match.end < self._since[number]:
                self._since[number] = match.end
            else:
                continue
            self.start = min(self.start, match.end)

    def counting(self, matches: Iterable[Match]) -> Iterator[Match]:
        """The matches of a `Reader` of this that come after the places that showed their values.

        Where a rule finds the same text, the rule's match goes first (`order`)."""
        counted = (match for match in matches if match.start >= self._since[match.rule // 2])
        return (match._replace(rule=_AFTER_RULES) for match in counted)

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        matches: list[Match] = []
        for found in _PLACE.finditer(text, start):
            place = found.start()
            if hash(found[0]) not in self._beginnings:
                continue
            if not is_final and self._may_become(text, place):
                return matches, place
            matches += self._values_at(text, place)
        return matches, len(text)

    def _may_become(self, text: str, place: int) -> bool:
        """Whether the text from `place` on may become a value, or a value may continue after its end."""
        return len(text) - place <= self._beginnings.get(hash(text[place : place + _KNOWN]), 0)

    def _values_at(self, text: str, place: int) -> Iterator[Match]:
        for length in self._lengths:
            end = place + length
            if end > len(text):
                break
            if text[end - 1].isalnum() and text[end : end + 1].isalnum():
                continue
            number = self._numbers.get((length, hash(text[place:end])))
            if number is not None:
                yield Match(place, end, self._entities[number], number)

    def move(self, gone: int) -> None:
        """The first `gone` characters of the text are gone."""
        if gone:
            self.start -= gone
            self._since = [since - gone for since in self._since]
