"""A view: the reading of a text from some place on, and a map between the places of both."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from copy import copy
from typing import Self

Place = int


class View:
    """The reading of a text that grows, up to the first token that is not complete yet."""

    __slots__ = ("_ahead", "_begins", "_ends", "_gone", "_hidden_end", "_places", "end", "last_end", "text")

    def __init__(self, left: Place) -> None:
        """`left`: the place in the written text where the view begins."""
        self.text = ""
        self.end = left
        """The written text is read up to here."""
        self.last_end = -1
        """The end of the last token, in the written text; -1: there is none."""
        self._hidden_end = -1
        """The end of the last token that reads as nothing, in the written text; negative: there is none."""
        self._places: list[Place] = []
        """For each token that reads as fewer characters than it has: its place in the reading. One that reads
        as nothing counts for the character before it."""
        self._begins: list[Place] = []
        self._ends: list[Place] = []
        """The places in the written text where these tokens begin and end."""
        self._ahead = [left]
        """The written place minus the place in the reading, after 0, 1, 2, ... of these tokens."""
        self._gone = 0
        """Characters of the written text that were forgotten since the view began."""

    def __deepcopy__(self, memo: object) -> Self:
        made = copy(self)
        made._places, made._begins, made._ends = self._places[:], self._begins[:], self._ends[:]
        made._ahead = self._ahead[:]
        return made

    def is_as_written(self, text: str) -> bool:
        return self.last_end < 0 and self.end == len(text)

    @property
    def is_even(self) -> bool:
        """Whether each token that is not forgotten reads as just as many characters as it has."""
        return not self._places

    def grow(self, text: str, tokens: Iterable[tuple[Place, Place, str | None]], *, is_final: bool) -> None:
        """Read the text from `end` on. `tokens`: its tokens from there on; see `Reading.tokens`."""
        pieces: list[str] = []
        done, end = self.end, len(text)
        length = len(self.text)
        for begin, stop, char in tokens:
            if char is None:
                if not is_final:
                    end = begin
                continue
            if not char:
                if begin == self._hidden_end:
                    char = text[begin:stop]  # what is left out between two characters has a bound
                self._hidden_end = stop
            pieces += (text[done:begin], char)
            length += begin - done
            if stop - begin != len(char):
                self._places.append(length if char else length - 1)
                self._begins.append(begin + self._gone)
                self._ends.append(stop + self._gone)
                self._ahead.append(self._ahead[-1] + stop - begin - len(char))
            length += len(char)
            done = self.last_end = stop
        self.text = "".join((self.text, *pieces, text[done:end]))
        self.end = end

    def forget(self, count: int) -> None:
        """The first `count` characters of the written text are gone."""
        self._gone += count
        self.end -= count
        self._hidden_end -= count
        self.last_end = max(-1, self.last_end - count) if self.last_end >= 0 else -1

    def trim(self, count: int) -> None:
        """Forget the first `count` characters of the reading."""
        first = bisect_left(self._places, count)
        self.text = self.text[count:]
        self._places = [place - count for place in self._places[first:]]
        self._begins, self._ends = self._begins[first:], self._ends[first:]
        self._ahead = [ahead + count for ahead in self._ahead[first:]]

    def written(self, place: Place) -> Place:
        """Return the place in the written text where the character at `place` of the reading begins."""
        return place + self._ahead[bisect_left(self._places, place)] - self._gone

    def written_end(self, place: Place) -> Place:
        """Return the place in the written text where the characters before `place` of the reading end."""
        end = self.written(place) + self._gone
        i = bisect_right(self._ends, end) - 1
        while i >= 0 and self._ends[i] == end and self._is_nothing(i):
            end = self._begins[i]
            i -= 1
        return end - self._gone

    def _is_nothing(self, i: int) -> bool:
        """Whether the token reads as no character."""
        return self._ahead[i + 1] - self._ahead[i] == self._ends[i] - self._begins[i]

    def read(self, place: Place) -> Place:
        """Return the place in the reading of the first character at or after `place` in the written text."""
        place += self._gone
        num_before = bisect_left(self._begins, place)
        least = self._places[num_before - 1] + 1 if num_before else 0
        return max(least, place - self._ahead[num_before])

    def end_of_escape(self, place: Place, text: str) -> Place | None:
        """Return the end of the escape that begins before `place` of the written `text` and ends after it;
        None: there is none."""
        place += self._gone
        i = bisect_left(self._begins, place) - 1
        if i < 0 or place >= self._ends[i] or text[self._begins[i] - self._gone] not in "\\%&":
            return None
        return self._ends[i] - self._gone
