"""Conditions on the values of a call's arguments."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from hooks.api.extras import from_extra
from hooks.builtin.link_rules.hosts import addresses_in
from hooks.builtin.tool_policy.addresses import hosts_in, is_listed
from hooks.builtin.tool_policy.arguments import Number
from hooks.builtin.tool_policy.conversation import Conversation
from hooks.builtin.tool_policy.hosts import Hosts
from hooks.builtin.tool_policy.paths import Folders
from hooks.builtin.tool_policy.places import Pointer, UnreadableError, text_of
from hooks.builtin.tool_policy.truth import Truth, agreed, all_of, any_of, true_if
from hooks.builtin.tool_policy.values import as_meant, plain

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
"""A condition as a configuration writes it. All of its tests must hold.

`values`: the value is one of these. `pattern`: it is a text that the pattern matches as a whole. `host`: it
is an address of one of these hosts, of http or https unless the host is written with another scheme. `links`:
every address in the text has one of these hosts, or is the user's own. `path`: it is the path of something in
one of these folders. `range`: a number from the first to the second, both included. `length`: the least and
the most characters of a text or items of an array. `from`: it is in the words of the `user` or the
`system`, or in a tool's result at a place. Without anything, every value is right.
"""
with_config(_EXACT)(Written)

Test = Callable[[Any, Conversation], Truth]
"""Whether a value is right. Raises `UnreadableError` for a value of another kind: nobody can tell."""


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
        """Whether it depends on the conversation's words."""
        self._is_optional = is_optional
        self._alternatives = [[_TESTS[name](value) for name, value in one.items()] for one in alternatives]

    def holds(self, members: dict[str, Any], conversation: Conversation, *, is_for_all: bool) -> Truth:
        """Whether there is a value and all values are right. Not `is_for_all`: whether one value is right."""
        try:
            values = self.pointer.values(members)
        except UnreadableError:
            return Truth.UNKNOWN
        if len(values) > MAX_VALUES:
            return Truth.UNKNOWN
        right = (self._is_right(value, conversation) for value in values)
        if not is_for_all:
            return any_of(right)
        return all_of(right) if values else true_if(self._is_optional)

    def _is_right(self, value: Any, conversation: Conversation) -> Truth:
        return any_of(
            all_of(_answer(test, value, conversation) for test in tests) for tests in self._alternatives
        )


def _answer(test: Test, value: Any, conversation: Conversation) -> Truth:
    try:
        return test(value, conversation)
    except UnreadableError:
        return Truth.UNKNOWN


def _values(allowed: Sequence[_Value]) -> Test:
    numbers = {Decimal(str(one)) for one in allowed if not isinstance(one, str | bool)}
    others = {(type(one), one) for one in allowed if isinstance(one, str | bool)}
    meant = {form for one in allowed for form in as_meant(one)}
    has_truth = any(isinstance(one, bool) for one in allowed)

    def test(value: Any, conversation: Conversation) -> Truth:
        if isinstance(value, Number) and _decimal(value) in numbers:
            return Truth.YES
        if isinstance(value, str | bool) and (type(value), value) in others:
            return Truth.YES
        if has_truth and not isinstance(value, bool):
            return Truth.UNKNOWN  # many programs take every value for a truth value
        return Truth.NO if meant.isdisjoint(as_meant(value)) else Truth.UNKNOWN

    return test


def _pattern(written: str) -> Test:
    pattern = compiled(written)

    def matches(text: str) -> bool:
        return pattern.fullmatch(text, timeout=TIMEOUT) is not None

    def test(value: Any, conversation: Conversation) -> Truth:
        text = text_of(value)
        if matches(text):
            return Truth.YES
        return Truth.UNKNOWN if (other := plain(text)) != text and matches(other) else Truth.NO

    return test


def compiled(written: str) -> "regex.Pattern[str]":
    """Raises `ValueError` for a text that is no pattern."""
    try:
        return regex.compile(written)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"{written!r} is no pattern: {error}") from error


def _host(entries: Sequence[str]) -> Test:
    hosts = Hosts(entries)
    return lambda value, conversation: hosts.have(_string(value))


def _links(globs: Sequence[str]) -> Test:
    def test(value: Any, conversation: Conversation) -> Truth:
        text = text_of(value)
        hosts = addresses_in(text).union(hosts_in(text))
        others = {address for address, host in hosts if not is_listed(host, globs)}
        if len(others) > MAX_VALUES:
            return Truth.UNKNOWN
        return all_of(conversation.has(address, "user") for address in others)

    return test


def _path(written: Sequence[str]) -> Test:
    folders = Folders(written)
    return lambda value, conversation: folders.have(_string(value))


def _range(bounds: _Bounds) -> Test:
    least, most = _bounds(bounds)

    def test(value: Any, conversation: Conversation) -> Truth:
        if not isinstance(value, Number):
            raise UnreadableError
        exact = _decimal(value)
        # Most readers of JSON keep as much of a number as a float has.
        return agreed((true_if(least <= exact <= most), true_if(float(least) <= float(exact) <= float(most))))

    return test


def _length(bounds: _Bounds) -> Test:
    least, most = _bounds(bounds)

    def test(value: Any, conversation: Conversation) -> Truth:
        if not isinstance(value, str | list):
            raise UnreadableError
        return true_if(least <= len(value) <= most)

    return test


def _from(origins: Sequence[Origin]) -> Test:
    places = [(one["tool"], Pointer(one["at"])) for one in origins if isinstance(one, Mapping)]
    sources = [one for one in origins if not isinstance(one, Mapping)]

    def test(value: Any, conversation: Conversation) -> Truth:
        text = text_of(value)
        by_source = (conversation.has(text, source) for source in sources)
        return any_of(chain(by_source, (conversation.has_result(text, *place) for place in places)))

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
