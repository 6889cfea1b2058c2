"""Reads a tool call whose arguments are bare texts between tags, such as `<parameter=city>Paris</parameter>`.

The values are typed by the tool's schema (`typed`). A call is read when it is whole. Its tokens are withheld,
because the text of the arguments differs from theirs.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from engine.parsers.call_format import Call, give_call, read_name
from engine.parsers.json_reader import NotACallError, Reader
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
    ends = (tags.value_end, tags.argument) if tags.may_be_open else (tags.value_end,)
    value_end = re.compile("|".join(map(re.escape, ends)))
    return partial(_read_tagged, tags, re.compile(tags.key_end), value_end)


def _read_tagged(
    tags: Tags, key_end: re.Pattern[str], value_end: re.Pattern[str], reader: Reader, calls: Calls
) -> Scan[None]:
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
    body = (yield from reader.until_long(tags.end)).removesuffix(tags.end)
    values = dict(_arguments(tags, key_end, value_end, body))
    give_call(reader, begin, name, typed_arguments(values, schema), calls)


def _arguments(
    tags: Tags, key_end: re.Pattern[str], value_end: re.Pattern[str], body: str
) -> Iterator[tuple[str, Any]]:
    """The arguments in a body that has nothing else. Each search goes on where the last one ended, so that no
    text is looked at often. Raises `NotACallError`."""
    position = 0
    while (position := _after_blanks(body, position)) < len(body):
        begin = position + len(tags.argument)
        if not body.startswith(tags.argument, position) or not (key := key_end.search(body, begin)):
            raise NotACallError
        if not (value := value_end.search(body, key.end())):
            raise NotACallError
        position = value.start() if value[0] == tags.argument else value.end()
        if name := body[begin : key.start()].strip().strip(_QUOTES):
            yield name, _value(tags, key, body[key.end() : value.start()])


def _value(tags: Tags, key: re.Match[str], text: str) -> Any:
    if tags.strips:
        text = text.strip()
    if tags.trims:
        text = text.removeprefix(tags.trims).removesuffix(tags.trims)
    is_json = key.groupdict().get("kind", "true") != "true"
    return read_json(text) if is_json else text


def _after_blanks(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    return found.end() if found else position
