"""Reads JSON (RFC 8259) piece by piece: it reports each value, and where the text stops being JSON.

The libraries jiter and ijson cannot continue after any character, or do not report the first wrong character.
"""

import re
from collections.abc import Callable
from typing import Literal, Protocol

Kind = Literal["object", "array", "string", "number", "boolean", "null"]
Word = Literal["true", "false", "null"]
MAX_NUMBER = 400
"""Most characters of a number. A text with a longer one does not count as JSON."""

_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_SPACE = " \t\n\r"
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = frozenset("0123456789abcdefABCDEF")
_WORDS: dict[str, Word] = {"t": "true", "f": "false", "n": "null"}
_CLASSES = {"0": "0", **dict.fromkeys("123456789", "1"), **dict.fromkeys("eE", "e")}
_NUMBER = {
    # The part of a number that has been read, and the characters that may follow.
    "": {"-": "-", "0": "zero", "1": "whole"},
    "-": {"0": "zero", "1": "whole"},
    "zero": {".": ".", "e": "e"},
    "whole": {"0": "whole", "1": "whole", ".": ".", "e": "e"},
    ".": {"0": "part", "1": "part"},
    "part": {"0": "part", "1": "part", "e": "e"},
    "e": {"0": "power", "1": "power", "+": "sign", "-": "sign"},
    "sign": {"0": "power", "1": "power"},
    "power": {"0": "power", "1": "power"},
}
_NUMBER_ENDS = ("zero", "whole", "part", "power")


class Listener(Protocol):
    """Receives each part of the document as soon as it is read, and may end the reading."""

    @property
    def is_done(self) -> bool:
        """Whether reading ends: nothing acceptable can follow the last character."""

    def begin(self, kind: Kind) -> None:
        """A value begins: the document's value, an item, or the value of the last key."""

    def begin_key(self) -> None: ...

    def add(self, piece: str) -> int:
        """The string or key continues with `piece`. If the listener `is_done` after this call, it returns how
        many of the last characters are too many."""

    def end_string(self) -> None:
        """The string or key is complete."""

    def end_number(self, text: str) -> None: ...

    def end_word(self, word: Word) -> None: ...

    def go_on(self) -> None:
        """A comma was read: the object or array continues."""

    def close(self) -> None:
        """The object or array is complete."""


class JsonReader:
    """Reads one document and reports its parts to a listener."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._open: list[bool] = []
        """For each open object or array, whether it is an object."""
        self._state = "value"
        self._is_key = False
        self._text: list[str] = []
        """The characters of the number or word that is being read."""
        self._number = ""
        """The part of the number that has been read: see `_NUMBER`."""
        self._escape = ""
        """An incomplete escape."""
        self._high = 0
        """The first half of a surrogate pair, if the second half may follow."""
        self._num_vain = 0
        """The last result of the listener's `add`."""
        self.is_bad = False
        """The text read so far is not JSON."""

    @property
    def is_blank(self) -> bool:
        """Only white space has been read."""
        return self._state == "value" and not self._open

    def feed(self, text: str) -> int:
        """Read `text`. Returns how many characters were good: all of them, unless the next one is not JSON,
        or makes the listener end the reading."""
        i = 0
        while i < len(text) and not self._is_over():
            following = _READ[self._state](self, text, i)
            if self._is_over():
                return i if self.is_bad else max(i, following - max(1, self._num_vain))
            i = following
        return i

    def finish(self) -> bool:
        """End the document. Returns whether it is complete."""
        if self._state == "number" and not self._open and self._number in _NUMBER_ENDS:
            self._end_number()
        return self._state == "end" and not self.is_bad

    def _is_over(self) -> bool:
        return self.is_bad or self._listener.is_done

    # Each of these methods reads from `text[i]` on, and returns the place where the next one continues.

    def _read_value(self, text: str, i: int) -> int:
        char = text[i]
        if char in _SPACE:
            return i + 1
        if char == "]" and self._state == "first item":
            return self._close(i)
        if char in "{[":
            self._listener.begin("object" if char == "{" else "array")
            self._open.append(char == "{")
            self._state = "first key" if char == "{" else "first item"
        elif char == '"':
            self._listener.begin("string")
            self._begin_string(is_key=False)
        elif char in _WORDS:
            self._listener.begin("null" if char == "n" else "boolean")
            self._state, self._text = "word", [char]
        elif char in _NUMBER[""] or char in "123456789":
            self._listener.begin("number")
            self._state, self._number, self._text = "number", "", []
            return self._read_number(text, i)
        else:
            self.is_bad = True
        return i + 1

    def _read_key(self, text: str, i: int) -> int:
        char = text[i]
        if char == '"':
            self._listener.begin_key()
            self._begin_string(is_key=True)
        elif char == "}" and self._state == "first key":
            return self._close(i)
        else:
            self.is_bad = char not in _SPACE
        return i + 1

    def _read_colon(self, text: str, i: int) -> int:
        if text[i] == ":":
            self._state = "value"
        else:
            self.is_bad = text[i] not in _SPACE
        return i + 1

    def _read_after(self, text: str, i: int) -> int:
        """Read the character after a value: a comma, a closing bracket or white space."""
        char = text[i]
        if self._open and char == ("}" if self._open[-1] else "]"):
            return self._close(i)
        if self._open and char == ",":
            self._listener.go_on()
            self._state = "key" if self._open[-1] else "item"
        else:
            self.is_bad = char not in _SPACE
        return i + 1

    def _read_word(self, text: str, i: int) -> int:
        word = _WORDS[self._text[0]]
        self.is_bad = text[i] != word[len(self._text)]
        self._text.append(text[i])
        if len(self._text) == len(word) and not self.is_bad:
            self._listener.end_word(word)
            self._end_value()
        return i + 1

    def _read_number(self, text: str, i: int) -> int:
        following = _NUMBER[self._number].get(_CLASSES.get(text[i], text[i]))
        if following is None and self._number in _NUMBER_ENDS:
            self._end_number()
            return i if self._listener.is_done else self._read_after(text, i)
        self.is_bad = following is None or len(self._text) == MAX_NUMBER
        self._number = following or ""
        self._text.append(text[i])
        return i + 1

    def _read_string(self, text: str, i: int) -> int:
        if self._escape:
            return self._read_escape(text, i)
        if found := _PLAIN.match(text, i):
            self._add(found[0])
            return found.end()
        if text[i] == "\\":
            self._escape = "\\"
        elif text[i] == '"':
            self._add("")
            self._listener.end_string()
            if self._is_key:
                self._state = "colon"
            else:
                self._end_value()
        else:
            self.is_bad = True
        return i + 1

    def _read_escape(self, text: str, i: int) -> int:
        self._escape += text[i]
        escape = self._escape[1:]
        if escape in _ESCAPES:
            self._escape = ""
            self._add(_ESCAPES[escape])
        elif escape[0] != "u" or not _HEX.issuperset(escape[1:]):
            self.is_bad = True
        elif len(escape) == 5:
            self._escape = ""
            self._add_unit(int(escape[1:], 16))
        return i + 1

    def _begin_string(self, *, is_key: bool) -> None:
        self._state, self._is_key, self._high = "string", is_key, 0

    def _add(self, piece: str) -> None:
        if self._high:
            piece, self._high = chr(self._high) + piece, 0
        self._num_vain = self._listener.add(piece) if piece else 0

    def _add_unit(self, unit: int) -> None:
        """Add the UTF-16 code unit of a `\\u` escape; two units may be one character."""
        if self._high and 0xDC00 <= unit < 0xE000:
            self._high, unit = 0, 0x10000 + ((self._high - 0xD800) << 10) + unit - 0xDC00
        if 0xD800 <= unit < 0xDC00:
            self._add("")
            self._high = unit
        else:
            self._add(chr(unit))

    def _end_number(self) -> None:
        self._listener.end_number("".join(self._text))
        self._end_value()

    def _close(self, i: int) -> int:
        self._listener.close()
        self._open.pop()
        self._end_value()
        return i + 1

    def _end_value(self) -> None:
        self._state = "after" if self._open else "end"


_READ: dict[str, Callable[[JsonReader, str, int], int]] = {
    **dict.fromkeys(("value", "first item", "item"), JsonReader._read_value),
    **dict.fromkeys(("first key", "key"), JsonReader._read_key),
    **dict.fromkeys(("after", "end"), JsonReader._read_after),
    "colon": JsonReader._read_colon,
    "string": JsonReader._read_string,
    "number": JsonReader._read_number,
    "word": JsonReader._read_word,
}
