"""Windows: the pieces of a text that are judged one by one. Their places depend only on the text.

A window takes as many whole units as it has room for. The next window begins `stride` further on, so windows
overlap. The text before the next window is decided, because all windows over it have been judged.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

Unit = Literal["characters", "tokens", "sentences"]
Place = tuple[int, int]
"""The start and the end of a window in its text."""


class Units(Protocol):
    """Cuts a text into units: whole characters, words or sentences. Windows consist of units."""

    longest: int
    """Most characters of a unit."""

    def end(self, text: str, start: int, is_final: bool) -> int | None:
        """Return the end of the unit that begins at `start`; None if more text could change the end."""

    def size(self, unit: str) -> int:
        """Return how much of a window's `size` the unit takes: 1 or more."""
        return 1


class Characters(Units):
    longest = 1

    def end(self, text: str, start: int, is_final: bool) -> int | None:
        return start + 1


class Sentences(Units):
    _END = re.compile(r"[.!?…][\"'”’)\]]{0,3}\s|[。！？]|\n")

    def __init__(self, longest: int = 400) -> None:
        """`longest`: most characters of a sentence. A longer one is cut there."""
        self.longest = longest

    def end(self, text: str, start: int, is_final: bool) -> int | None:
        limit = start + self.longest
        if found := self._END.search(text, start, limit):
            return found.end()
        return min(len(text), limit) if is_final or limit <= len(text) else None


class Words(Units):
    """Words with the white space before them. A word's size is its number of tokens when it is alone: the
    tokens of a single word are fixed, but the tokens of a whole text can change until its end."""

    longest = 32
    _WORD = re.compile(r"\s{0,16}\S{1,16}|\s{1,16}")

    def __init__(self, num_tokens: Callable[[str], int]) -> None:
        self._num_tokens = num_tokens

    def end(self, text: str, start: int, is_final: bool) -> int | None:
        found = self._WORD.match(text, start)
        end = found.end() if found else len(text)
        return end if end < len(text) or is_final else None

    def size(self, unit: str) -> int:
        return max(1, self._num_tokens(unit))


@dataclass(frozen=True)
class Windows:
    """The way to cut streams into windows: each has `size` units, and the next begins `stride` further on."""

    units: Units
    size: int
    stride: int

    @property
    def longest(self) -> int:
        """Most characters at the end of a text that are in no complete window yet."""
        return self.size * self.units.longest - 1

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.size:
            given = f"{self.stride}, {self.size}"
            raise ValueError(f"stride is from 1 up to window, so that nothing goes unseen: {given}")


def make_windows(
    unit: Unit, size: int, stride: int | None, num_tokens: Callable[[str], int] | None = None
) -> Windows:
    """`stride`: None is three quarters of `size`. `num_tokens`: counts a text's tokens; None: no token units.
    Raises `ValueError` for an unknown unit or a `stride` above `size`."""
    units: dict[str, Units] = {"characters": Characters(), "sentences": Sentences()}
    if num_tokens is not None:
        units["tokens"] = Words(num_tokens)
    if unit not in units:
        raise ValueError(f"unit is {' or '.join(units)}, not {unit!r}")
    return Windows(units[unit], size, max(1, size * 3 // 4) if stride is None else stride)


class Cutter:
    """Cuts one stream into windows as it grows. It keeps the units of the window that is not full yet."""

    __slots__ = ("_found", "_has_new", "_length", "_size", "_start", "_units", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._units: deque[tuple[int, int]] = deque()
        """The units of the open window, each with its length in characters and its size."""
        self._length = self._size = 0
        """The length and the size of all units in `_units`."""
        self._has_new = False
        """Whether a unit in `_units` has been in no window yet."""
        self._start = 0
        """The place in the text where the first unit begins."""
        self._found: list[Place] = []
        """The windows that this call of `cut` has cut."""

    def cut(self, text: str, start: int, is_final: bool) -> tuple[list[Place], int]:
        """Return the windows that are complete now, and the start of the next one. `start` is the start that
        the last call returned. The windows of all calls together depend only on the whole text."""
        self._start, self._found = start, []
        units = self._windows.units
        place = start + self._length
        while place < len(text) and (end := units.end(text, place, is_final)) is not None:
            self._add(end - place, units.size(text[place:end]))
            place = end
        if is_final and self._has_new:
            self._take()
        return self._found, len(text) if is_final else self._start

    def _add(self, length: int, size: int) -> None:
        room = self._windows.size - size
        if self._has_new and self._size > room:
            self._take()
        while self._units and self._size > room:
            self._drop()
        self._units.append((length, size))
        self._length += length
        self._size += size
        self._has_new = True
        if self._size >= self._windows.size:
            self._take()

    def _take(self) -> None:
        """Cut the full window and begin the next one."""
        self._found.append((self._start, self._start + self._length))
        self._has_new = False
        kept = self._size - self._windows.stride
        while self._units and self._size > kept:
            self._drop()

    def _drop(self) -> None:
        length, size = self._units.popleft()
        self._start += length
        self._length -= length
        self._size -= size
