"""Reads a tool call that is written as a call in Python: `f(city="Paris", days=[1, 2])`.

Values are Python's literals, and JSON's words for them. Python's own parser reads a call when it is whole.
Its tokens are withheld, because the text of the arguments differs from theirs.
"""

import ast
import math
import re
import warnings
from typing import Any

from engine.parsers.call_format import give_call
from engine.parsers.json_reader import NotACallError, Reader
from engine.parsers.scan import Calls, Scan

_NAME = re.compile(r"[A-Za-z_][\w.]*")
_WORDS = {"null": None, "true": True, "false": False}
_MAX_DEPTH = 64
_OUTSIDE = re.compile(r"[\"'()\[\]{}]")
_INSIDE = {quote: re.compile(rf"[{quote}\\\n]") for quote in "\"'"}
"""Characters outside a string, and inside one, that show where a call ends."""
_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Errors of Python's parser for text that it cannot read."""


def pythonic(reader: Reader, calls: Calls) -> Scan[None]:
    name = yield from reader.until("(")
    begin = reader.position
    if not _NAME.fullmatch(name := name.strip()):
        raise NotACallError
    arguments = yield from reader.hold(CallSearch())
    give_call(reader, begin, name, _arguments(arguments), calls)


class CallSearch:
    """Finds the bracket that closes a call in Python, in a text that comes in pieces and begins with the
    bracket that opens it."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._is_escaped = False

    def __call__(self, piece: str) -> int | None:
        """The end of the call in this piece, or None. Raises `NotACallError`."""
        position = 0
        while position < len(piece):
            if self._is_escaped:
                self._is_escaped = False
                position += 1
                continue
            pattern = _INSIDE[self._quote] if self._quote else _OUTSIDE
            if not (found := pattern.search(piece, position)):
                break
            position = found.end()
            self._read(found[0])
            if not self._depth:
                return position
        return None

    def _read(self, character: str) -> None:
        match character:
            case "\\":
                self._is_escaped = True
            case "\n":
                raise NotACallError
            case '"' | "'":
                self._quote = "" if self._quote else character
            case "(" | "[" | "{":
                self._depth += 1
                if self._depth > _MAX_DEPTH:
                    raise NotACallError
            case _:
                self._depth -= 1


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call, in brackets. Raises `NotACallError` unless all are literals with a name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            call = ast.parse(f"f{text}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise NotACallError
        return {_name(keyword): _literal(keyword.value) for keyword in call.keywords}
    except _ERRORS:
        raise NotACallError from None


def _name(keyword: ast.keyword) -> str:
    if keyword.arg is None:
        raise NotACallError
    return keyword.arg


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Constant(None | bool() | int() | str()):
            return node.value
        case ast.Constant(float() as value) if math.isfinite(value):
            return value
        case ast.Name(name) if name in _WORDS:
            return _WORDS[name]
        case ast.List(items) | ast.Tuple(items) | ast.Set(items):
            return [_literal(item) for item in items]
        case ast.Dict(keys, values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
        case ast.UnaryOp(ast.USub() | ast.UAdd() as sign, ast.Constant(int() | float() as value)):
            if not isinstance(value, bool) and math.isfinite(value):
                return -value if isinstance(sign, ast.USub) else value
    raise NotACallError


def _key(node: ast.expr | None) -> Any:
    match node:
        case ast.Constant(None | bool() | int() | str()):
            return node.value
    raise NotACallError
