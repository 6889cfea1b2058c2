"""Reads a tool call's arguments as they come, and keeps those members that a policy looks at."""

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hooks.json.reader import JsonReader, Kind, Word


class Number(NamedTuple):
    """A number of JSON, as it is written."""

    text: str


@dataclass(slots=True)
class _Frame:
    """An object or an array that is being read."""

    value: dict[str, Any] | list[Any]
    is_kept: bool
    keys: set[str] = field(default_factory=set)
    key: str = ""


class Arguments:
    """Reads the arguments' JSON piece by piece. It is a `Listener` of `hooks.json.reader`."""

    def __init__(self, kept: Collection[str | None]) -> None:
        """`kept`: the names of the members whose values are kept. None among them means all names."""
        self._reader = JsonReader(self)
        self._kept = kept
        self._keeps_all = None in kept
        self._folded = {folded(name) for name in kept if name is not None}
        self._frames: list[_Frame] = []
        self._pieces: list[str] = []
        self._is_key = False
        self.members: dict[str, Any] = {}
        """The members that are complete, of those that are kept."""
        self.is_complete = False
        """Whether the object is complete."""
        self.is_refused = False
        """Whether the text is no object, or has names that clients may read in different ways."""

    @property
    def num_known(self) -> int:
        """The number of things to decide on. It grows with each member that is kept, and at the end."""
        return len(self.members) + self.is_complete

    def knows(self, member: str | None) -> bool:
        """Whether all is known that a condition on this member needs. None means all members."""
        return self.is_complete or member in self.members

    @property
    def is_bad(self) -> bool:
        return self.is_refused or self._reader.is_bad

    @property
    def is_blank(self) -> bool:
        return self._reader.is_blank

    def feed(self, text: str) -> int:
        """Read `text`. Returns how many characters were good: all of them, unless it `is_bad` now."""
        return self._reader.feed(text)

    # The methods of `hooks.json.reader.Listener`.

    @property
    def is_done(self) -> bool:
        return self.is_refused

    def begin(self, kind: Kind) -> None:
        if not self._frames and kind != "object":
            self.is_refused = True
        if kind in ("object", "array"):
            value: dict[str, Any] | list[Any] = {} if kind == "object" else []
            self._frames.append(_Frame(value, self._is_kept))
        self._pieces, self._is_key = [], False

    def begin_key(self) -> None:
        self._pieces, self._is_key = [], True

    def add(self, piece: str) -> int:
        if self._is_key or self._is_kept:
            self._pieces.append(piece)
        return 0

    def end_string(self) -> None:
        text = "".join(self._pieces)
        self._pieces = []
        if not self._is_key:
            self._end(text)
            return
        frame = self._frames[-1]
        self.is_refused = self.is_refused or text in frame.keys or self._is_alike(text)
        frame.keys.add(text)
        frame.key = text

    def _is_alike(self, name: str) -> bool:
        """Whether some clients would take the name for a kept one, such as one in another case."""
        is_member = len(self._frames) == 1 and name not in self._kept
        return is_member and folded(name) in self._folded

    def end_number(self, text: str) -> None:
        self._end(Number(text))

    def end_word(self, word: Word) -> None:
        self._end({"true": True, "false": False, "null": None}[word])

    def go_on(self) -> None:
        """Does nothing: an item or a member was counted at its end."""

    def close(self) -> None:
        frame = self._frames.pop()
        if self._frames:
            self._end(frame.value)
        else:
            self.is_complete = True

    @property
    def _is_kept(self) -> bool:
        """Whether the value that begins or continues here is kept."""
        if not self._frames:
            return True
        frame = self._frames[-1]
        if len(self._frames) > 1 or self._keeps_all:
            return frame.is_kept
        return frame.key in self._kept

    def _end(self, value: Any) -> None:
        if not self._frames or not self._is_kept:
            return
        frame = self._frames[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif len(self._frames) == 1:
            self.members[frame.key] = value
        else:
            frame.value[frame.key] = value


def folded(name: str) -> str:
    """The name of a tool or an argument, without differences of case, of compatible characters, and of
    characters that nobody sees."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(char for char in plain if not (char.isspace() or unicodedata.category(char)[0] == "C"))
