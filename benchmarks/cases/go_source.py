"""Reads the test strings of a Go source file: assignments of strings and lists of strings in each function.

Only what such a file of rules needs is evaluated: literals, `+`, `append`, lists, maps, and calls whose
meaning the caller gives. A statement that needs more is skipped.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<raw>`[^`]*`)|(?P<quoted>"(?:\\.|[^"\\\n])*")|(?P<rune>'(?:\\.|[^'\\\n])+')
    |(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<mark>:=|\.\.\.|[^\w\s])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|(.))", re.DOTALL)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_FUNCTION = re.compile(r"^func (\w+)\([^)]*\)[^{\n]*\{\n", re.MULTILINE)
_STATEMENT = re.compile(r"^(?:\t\t?|var )(\w+) +:?= ", re.MULTILINE)
_CONSTANTS = {"true": True, "false": False, "nil": None}
Call = Callable[..., Any]


def functions(source: str) -> Iterator[tuple[str, str]]:
    """Return the name and the body of each function of a file that gofmt has formatted."""
    for found in _FUNCTION.finditer(source):
        depth = 1
        for token in _TOKEN.finditer(source, found.end()):
            if token.lastgroup == "mark":
                depth += (token[0] == "{") - (token[0] == "}")
            if not depth:
                yield found[1], source[found.end() : token.start()]
                break


def assigned(body: str, calls: Mapping[str, Call], known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the variables that a function's body, or a file outside its functions, sets, if their values can
    be evaluated. `known`: variables that are set before."""
    values: dict[str, Any] = dict(known or {})
    for found in _STATEMENT.finditer(body):
        try:
            values[found[1]] = Expression(body[found.end() :], calls, values).value()
        except (LookupError, ValueError, TypeError):
            continue
    return values


def unquoted(text: str) -> str:
    """Return the string that a Go literal stands for."""
    if text[0] == "`":
        return text[1:-1]

    def char(found: re.Match[str]) -> str:
        hexadecimal = found[1] or found[2]
        return chr(int(hexadecimal, 16)) if hexadecimal else _SHORT.get(found[3], found[3])

    return _ESCAPE.sub(char, text[1:-1])


class Expression:
    """The expression that a source text begins with."""

    def __init__(self, source: str, calls: Mapping[str, Call], values: Mapping[str, Any]) -> None:
        self._tokens = _tokens(source)
        self._calls = calls
        self._values = values
        self._kind, self._text = "", ""
        self._next()

    def value(self) -> Any:
        total = self._operand()
        while self._text == "+":
            self._next()
            total = total + self._operand()
        return total

    def _next(self) -> str:
        before = self._text
        self._kind, self._text = next(self._tokens, ("end", ""))
        return before

    def _expect(self, text: str) -> None:
        if self._next() != text:
            raise ValueError(f"{text} is missing")

    def _operand(self) -> Any:
        kind, text = self._kind, self._text
        self._next()
        if kind in ("raw", "quoted"):
            return unquoted(text)
        if kind == "number":
            return float(text) if "." in text else int(text)
        if text == "[":
            self._expect("]")
            if self._text == "*":
                self._next()
            self._type()
            return self._converted() if self._text == "(" else self._braced()
        if text == "map":
            self._expect("[")
            self._next()
            self._expect("]")
            self._type()
            return self._braced()
        if text == "&":
            return self._operand()
        if kind == "name":
            return self._named(text)
        raise ValueError(f"{text} is no expression")

    def _converted(self) -> Any:
        self._expect("(")
        value = self.value()
        self._expect(")")
        return value

    def _type(self) -> None:
        while self._text in "[]*":
            self._next()
        self._next()
        while self._text == ".":
            self._next()
            self._next()

    def _named(self, name: str) -> Any:
        while self._text == ".":
            self._next()
            name += "." + self._next()
        if self._text == "(":
            return self._call(name)
        if self._text == "{":
            return self._braced()
        return _CONSTANTS[name] if name in _CONSTANTS else self._values[name]

    def _call(self, name: str) -> Any:
        self._expect("(")
        arguments: list[Any] = []
        while self._text != ")":
            value = self.value()
            if self._text == "...":
                self._next()
                arguments += value
            else:
                arguments.append(value)
            if self._text == ",":
                self._next()
        self._expect(")")
        if name == "append":
            return [*arguments[0], *arguments[1:]]
        return self._calls[name](*arguments)

    def _braced(self) -> Any:
        """A list, a map, or a struct: its fields that can be evaluated."""
        self._expect("{")
        items: list[Any] = []
        pairs: dict[Any, Any] = {}
        while self._text != "}":
            if self._kind == "end":
                raise ValueError("a brace is missing")
            field = self._text if self._kind == "name" else None
            if self._text == "{":
                value = self._braced()
            else:
                try:
                    value = self.value()
                except (LookupError, TypeError):
                    if self._text != ":" or field is None:
                        raise
                    value = field
            if self._text == ":":
                self._next()
                pairs[value] = self._braced() if self._text == "{" else self.value()
            else:
                items.append(value)
            if self._text == ",":
                self._next()
        self._expect("}")
        return pairs or items


def _tokens(source: str) -> Iterator[tuple[str, str]]:
    for found in _TOKEN.finditer(source):
        if found.lastgroup != "blank":
            yield str(found.lastgroup), found[0]
