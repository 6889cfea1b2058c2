"""Conditions on the values of a call's arguments."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from posixpath import isabs, normpath
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from hooks.api.extras import from_extra
from hooks.builtin.link_rules.hosts import addresses_in
from hooks.builtin.tool_policy.addresses import host_of, hosts_in, is_listed
from hooks.builtin.tool_policy.arguments import Number
from hooks.builtin.tool_policy.places import Pointer, UnreadableError, text_of
from hooks.builtin.tool_policy.said import Said

with from_extra("guards", "regex"):
    import regex

TIMEOUT = 0.1
"""Seconds that one search for a pattern may take."""
MAX_VALUES = 256
"""Most values at one place, and most addresses in one text. More are denied, because each of them may be
looked for in all of a conversation."""


_EXACT = ConfigDict(extra="forbid")


@with_config(_EXACT)
class ResultPlace(TypedDict):
    """A place in the results of tools."""

    tool: str
    at: str


_Names = Annotated[Sequence[str], Field(min_length=1)]
_Bounds = tuple[float | None, float | None]
_Value = str | bool | int | float
Origin = Literal["user", "system"] | ResultPlace
Written = TypedDict(
    "Written",
    {
        "values": Annotated[Sequence[_Value], Field(min_length=1)],
        "pattern": str,
        "host": _Names,
        "links": Sequence[str],
        "path": _Names,
        "range": _Bounds,
        "length": _Bounds,
        "from": Annotated[Sequence[Origin], Field(min_length=1)],
    },
    total=False,
)
"""A condition as a configuration writes it. All that it says must hold.

`values`: the value is one of these. `pattern`: it is a text that the pattern matches as a whole. `host`: it
is an address of one of these hosts. `links`: every address in the text has one of these hosts, or is the
user's own. `path`: it is the path of something in one of these folders. `range`: a number from the first to
the second, both included. `length`: the least and the most characters of a text or items of an array.
`from`: it stands in the words of the `user` or the `system`, or in a tool's result at a place. Without
anything, every value is right.
"""
with_config(_EXACT)(Written)

Test = Callable[[Any, Said], bool]
"""Whether a value is right. Raises `UnreadableError` for a value of another kind."""


class Condition:
    """A condition on one place in a call's arguments. The place must meet all of one alternative."""

    def __init__(
        self, pointer: str, written: Written | Sequence[Written], *, is_optional: bool = False
    ) -> None:
        """`is_optional`: the value may be missing. Raises `ValueError` for an invalid pointer, pattern or
        bound."""
        self.pointer = Pointer(pointer)
        alternatives: Sequence[Any] = [written] if isinstance(written, Mapping) else written
        self.reads_prompt = any("from" in one or "links" in one for one in alternatives)
        """Whether it depends on what the conversation says."""
        self._is_optional = is_optional
        self._alternatives = [[_TESTS[name](value) for name, value in one.items()] for one in alternatives]

    def holds(self, members: dict[str, Any], said: Said, *, is_for_all: bool) -> bool:
        """`is_for_all`: whether all values must be right, and there must be one. Otherwise one right value is
        enough, and so is a value that cannot be judged."""
        try:
            values = self.pointer.values(members)
        except UnreadableError:
            return not is_for_all
        if len(values) > MAX_VALUES:
            return not is_for_all
        right = (self._is_right(value, said, in_doubt=not is_for_all) for value in values)
        if not is_for_all:
            return any(right)
        return all(right) and (bool(values) or self._is_optional)

    def _is_right(self, value: Any, said: Said, *, in_doubt: bool) -> bool:
        doubts = False
        for tests in self._alternatives:
            try:
                if all(test(value, said) for test in tests):
                    return True
            except UnreadableError:
                doubts = True
        return doubts and in_doubt


def _values(allowed: Sequence[_Value]) -> Test:
    numbers = {Decimal(str(one)) for one in allowed if not isinstance(one, str | bool)}
    others = {(type(one), one) for one in allowed if isinstance(one, str | bool)}

    def test(value: Any, said: Said) -> bool:
        if isinstance(value, Number):
            return _decimal(value) in numbers
        if isinstance(value, str | bool):
            return (type(value), value) in others
        raise UnreadableError

    return test


def _pattern(written: str) -> Test:
    pattern = compiled(written)
    return lambda value, said: pattern.fullmatch(text_of(value), timeout=TIMEOUT) is not None


def compiled(written: str) -> "regex.Pattern[str]":
    """Raises `ValueError` for a text that is no pattern."""
    try:
        return regex.compile(written)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"{written!r} is no pattern: {error}") from error


def _host(globs: Sequence[str]) -> Test:
    return lambda value, said: is_listed(host_of(_string(value)), globs)


def _links(globs: Sequence[str]) -> Test:
    def test(value: Any, said: Said) -> bool:
        text = text_of(value)
        hosts = {**dict(hosts_in(text)), **addresses_in(text)}
        others = {address for address, host in hosts.items() if not is_listed(host, globs)}
        return len(others) <= MAX_VALUES and all(said.has(address, "user") for address in others)

    return test


def _path(folders: Sequence[str]) -> Test:
    known = [normpath(folder) for folder in folders]

    def test(value: Any, said: Said) -> bool:
        written = _string(value)
        if not written or any(char in written for char in "\\\0~%$"):
            return False
        path = normpath(written)
        return any(_is_inside(path, folder) for folder in known)

    return test


def _is_inside(path: str, folder: str) -> bool:
    if folder == ".":
        return not isabs(path) and path.split("/", 1)[0] != ".."
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _range(bounds: _Bounds) -> Test:
    least, most = _bounds(bounds)

    def test(value: Any, said: Said) -> bool:
        if not isinstance(value, Number):
            raise UnreadableError
        return least <= _decimal(value) <= most

    return test


def _length(bounds: _Bounds) -> Test:
    least, most = _bounds(bounds)

    def test(value: Any, said: Said) -> bool:
        if not isinstance(value, str | list):
            raise UnreadableError
        return least <= len(value) <= most

    return test


def _from(origins: Sequence[Origin]) -> Test:
    places = [(one["tool"], Pointer(one["at"])) for one in origins if isinstance(one, Mapping)]
    sources = [one for one in origins if not isinstance(one, Mapping)]

    def test(value: Any, said: Said) -> bool:
        text = text_of(value)
        return any(said.has(text, source) for source in sources) or any(
            said.has_result(text, *place) for place in places
        )

    return test


def _bounds(bounds: _Bounds) -> tuple[Decimal, Decimal]:
    least, most = bounds
    low = Decimal("-Infinity") if least is None else Decimal(str(least))
    high = Decimal("Infinity") if most is None else Decimal(str(most))
    if not low <= high:
        raise ValueError("the first bound is over the second")
    return low, high


def _decimal(number: Number) -> Decimal:
    try:
        return Decimal(number.text)
    except InvalidOperation as error:  # of more digits in the exponent than Decimal takes
        raise UnreadableError from error


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise UnreadableError
    return value


_TESTS: dict[str, Callable[[Any], Test]] = {
    "values": _values,
    "pattern": _pattern,
    "host": _host,
    "links": _links,
    "path": _path,
    "range": _range,
    "length": _length,
    "from": _from,
}
