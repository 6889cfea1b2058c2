"""Reads a tool call whose arguments are bare texts between tags, such as `<parameter=city>Paris</parameter>`.

The values are typed by the tool's schema (`typed`). A call is read when it is whole. Its tokens are withheld,
because the text of the arguments differs from theirs.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from engine.parsers.call_format import Call, give_call, read_name
from engine.parsers.json_reader import MarkerSearch, NotACallError, Reader
from engine.parsers.scan import Calls, Scan
from engine.parsers.typed import read_json, typed_arguments

_QUOTES = "\"'"
_BLANKS = re.compile(r"\s*")


class Tags(NamedTuple):
    """The texts of a call after its first marker."""

    name_end: str
    """The text after the tool's name. Empty: the first argument, or the call's end, comes after the name."""
    argument: str
    """The text before an argument's name."""
    key_end: str
    """A regular expression of the text between an argument's name and its value. Its group `kind`, if it has
    one, is `true` for a string, and anything else for JSON."""
    value_end: str
    end: str
    """The text after the last argument."""
    may_be_open: bool = False
    """Whether the next argument ends a value, too."""
    trims: str = ""
    """A character that belongs to no value: one before a value, and one after it."""
    strips: bool = False
    """Whether blanks around a value do not belong to it."""
    is_known: bool = False
    """Whether text with the name of no tool of the request is no call."""


def tagged(tags: Tags) -> Call:
    begin, end = re.escape(tags.argument), re.escape(tags.value_end)
    end = f"(?:{end}|(?={begin}))" if tags.may_be_open else end
    pattern = re.compile(f"{begin}(?P<key>.*?){tags.key_end}(?P<value>.*?){end}", re.DOTALL)
    return partial(_read_tagged, tags, pattern)


def _read_tagged(tags: Tags, pattern: re.Pattern[str], reader: Reader, calls: Calls) -> Scan[None]:
    if tags.name_end:
        name = yield from read_name(reader, tags.name_end)
        reader.position += len(tags.name_end)
    else:
        name = yield from read_name(reader, tags.argument, tags.end)
    name = name.strip(_QUOTES)
    schema = calls.schema_of(name)
    if not name or (tags.is_known and schema is None):
        raise NotACallError
    begin = reader.position
    if not (yield from reader.optional(tags.argument, tags.end)):
        raise NotACallError
    reader.position = begin
    body = yield from reader.hold(MarkerSearch(tags.end))
    values = _values(tags, pattern, body.removesuffix(tags.end))
    give_call(reader, begin, name, typed_arguments(values, schema), calls)


def _values(tags: Tags, pattern: re.Pattern[str], body: str) -> Mapping[str, Any]:
    """The arguments in a body that has nothing else. Raises `NotACallError`."""
    values: dict[str, Any] = {}
    position = 0
    while (position := _after_blanks(body, position)) < len(body):
        if not (found := pattern.match(body, position)):
            raise NotACallError
        position = found.end()
        groups = found.groupdict()
        if key := groups["key"].strip().strip(_QUOTES):
            values[key] = _value(tags, groups)
    return values


def _value(tags: Tags, groups: Mapping[str, str | None]) -> Any:
    text = groups["value"] or ""
    if tags.strips:
        text = text.strip()
    if tags.trims:
        text = text.removeprefix(tags.trims).removesuffix(tags.trims)
    return read_json(text) if groups.get("kind", "true") != "true" else text


def _after_blanks(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    return found.end() if found else position
