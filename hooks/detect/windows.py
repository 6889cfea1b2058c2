"""Windows: the pieces of a text that are judged one by one, at places that depend on the text alone.

A window takes as many whole units as it has room for. The next one begins `stride` further on, so that they
overlap, and what may be let go is the text before it: all windows over that have been seen.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

Unit = Literal["characters", "tokens", "sentences"]


class Units(Protocol):
    """What a text is cut into before it is cut into windows: whole characters, words or sentences."""

    longest: int
    """Most characters of one."""

    def end(self, text: str, start: int, is_final: bool) -> int | None:
        """Where the unit ends that begins at `start`; None: more text could still change that."""

    def size(self, unit: str) -> int:
        """What it takes of a window's room: 1 or more."""


class Characters:
    longest = 1

    def end(self, text: str, start: int, is_final: bool) -> int | None:
        return start + 1

    def size(self, unit: str) -> int:
        return 1


class Sentences:
    _END = re.compile(r"[.!?…][\"'”’)\]]{0,3}\s|[。！？]|\n")

    def __init__(self, longest: int = 400) -> None:
        """`longest`: characters after which a sentence is taken for whole."""
        self.longest = longest

    def end(self, text: str, start: int, is_final: bool) -> int | None:
        limit = start + self.longest
        if found := self._END.search(text, start, limit):
            return found.end()
        return min(len(text), limit) if is_final or limit <= len(text) else None

    def size(self, unit: str) -> int:
        return 1


class Words:
    """Words with the white space before them, each as large as the number of tokens that it has by itself.

    How a whole text is cut into tokens is not settled before its end; how a word is cut by itself, is.
    """

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
    """How streams are cut into windows: `size` units' worth each, and `stride` from one to the next."""

    units: Units
    size: int
    stride: int

    @property
    def longest(self) -> int:
        """Most characters at the end of a text that still wait for a window over them to be cut."""
        return self.size * self.units.longest - 1

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.size:
            raise ValueError(
                f"stride is from 1 up to window, so that nothing goes unseen: {self.stride}, {self.size}"
            )


def make_windows(
    unit: Unit, size: int, stride: int | None, num_tokens: Callable[[str], int] | None = None
) -> Windows:
    """`stride` None: three quarters of `size`. `num_tokens` counts a text's tokens; None: they cannot be.

    Raises `ValueError` for what makes no windows.
    """
    units: dict[str, Units] = {"characters": Characters(), "sentences": Sentences()}
    if num_tokens is not None:
        units["tokens"] = Words(num_tokens)
    if unit not in units:
        raise ValueError(f"unit is {' or '.join(units)}, not {unit!r}")
    return Windows(units[unit], size, max(1, size * 3 // 4) if stride is None else stride)


class Cutter:
    """Cuts one stream into windows as it grows. It remembers the units of the window that is being filled."""

    __slots__ = ("_found", "_has_new", "_length", "_size", "_start", "_units", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._units: deque[tuple[int, int]] = deque()
        """The units of the window, each with its length in characters and its size."""
        self._length = 0
        """Their length together."""
        self._size = 0
        """Their size together."""
        self._has_new = False
        """Whether one of them has been in no window yet."""
        self._start = 0
        """Where in the text the first of them begins."""
        self._found: list[tuple[int, int]] = []
        """The windows that this call of `cut` has cut."""

    def cut(self, text: str, start: int, is_final: bool) -> tuple[list[tuple[int, int]], int]:
        """The windows that are whole now, and where the next one begins; `start` is where that was before.

        All of them together, over any number of calls, depend on the whole text alone.
        """
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
        """The window is full: cut it, and go on to the next."""
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
