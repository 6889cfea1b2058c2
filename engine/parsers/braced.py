"""Reads a tool call of Gemma: `call:f{city:<|"|>Paris<|"|>,days:[1,2]}`.

Names and words have no quotes, and strings have marks around them. Words are typed by the tool's schema, and
without one they are JSON, or else strings. A call is read when it is whole. Its tokens are withheld, because
the text of the arguments differs from theirs.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from engine.parsers.call_format import Call, give_call, read_name
from engine.parsers.json_reader import NotACallError, Reader
from engine.parsers.scan import Calls, Scan
from engine.parsers.typed import Bare, typed_arguments

MARK = '<|"|>'
"""The text around a string."""
_MAX_DEPTH = 64

_STRING = re.compile(rf"{re.escape(MARK)}(.*?){re.escape(MARK)}", re.DOTALL)
_KEY = re.compile(r"[^:,{}\[\]]+")
_WORD = re.compile(r"[^,{}\[\]]+")
_BLANKS = re.compile(r"\s*")


def braced(end: str) -> Call:
    """`end`: the marker after the arguments. It may be missing at the output's end."""
    return partial(_read_braced, end)


def _read_braced(end: str, reader: Reader, calls: Calls) -> Scan[None]:
    name = yield from read_name(reader, "{", "(")
    begin = reader.position
    body = yield from reader.until_long(end, may_end=True)
    try:
        arguments = _Braced(body.removesuffix(end)).arguments()
    except NotACallError:
        if not body.endswith(end):
            reader.tape.absent.add(end)
        raise
    give_call(reader, begin, name, typed_arguments(arguments, calls.schema_of(name)), calls)


class _Braced:
    """Reads arguments with the braces, or brackets, around them. Raises `NotACallError`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0

    def arguments(self) -> dict[str, Any]:
        opening = self._text[:1]
        read = self._object("}" if opening == "{" else ")")
        self._skip_blanks()
        if self._position < len(self._text):
            raise NotACallError
        return read

    def _object(self, end: str) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for _ in self._items(end):
            key = self._match(_STRING, 1) if self._is_next(MARK) else self._match(_KEY).strip()
            self._skip_blanks()
            self._expect(":")
            self._skip_blanks()
            read[key] = self._value()
        return read

    def _items(self, end: str) -> Iterator[None]:
        """Yield before each item, with the position at its beginning, up to the end, which is read."""
        self._position += 1
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise NotACallError
        self._skip_blanks()
        while not self._is_next(end):
            yield
            self._skip_blanks()
            if not self._is_next(end):
                self._expect(",")
                self._skip_blanks()
        self._position += len(end)
        self._depth -= 1

    def _value(self) -> Any:
        if self._is_next(MARK):
            return self._match(_STRING, 1)
        if self._is_next("{"):
            return self._object("}")
        if self._is_next("["):
            return [self._value() for _ in self._items("]")]
        return Bare(self._match(_WORD).strip())

    def _is_next(self, text: str) -> bool:
        return self._text.startswith(text, self._position)

    def _expect(self, text: str) -> None:
        if not self._is_next(text):
            raise NotACallError
        self._position += len(text)

    def _match(self, pattern: re.Pattern[str], group: int = 0) -> str:
        found = pattern.match(self._text, self._position)
        if not found:
            raise NotACallError
        self._position = found.end()
        return str(found[group])

    def _skip_blanks(self) -> None:
        found = _BLANKS.match(self._text, self._position)
        self._position = found.end() if found else self._position
