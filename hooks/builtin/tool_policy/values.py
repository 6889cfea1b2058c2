"""The readings of a value by programs that take texts for numbers, and numbers for truth values."""

import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from hooks.builtin.tool_policy.places import text_of

_WORDS = {True: ("yes", "y", "on", "t"), False: ("no", "n", "off", "f", "")}
"""Texts that some programs take for a truth value, in addition to `true` and `false`."""
_PREFIX = re.compile(r"[+-]?(?:0[xob][\da-f_]+|[\d_]*\.?[\d_]+(?:e[+-]?\d+)?)")
"""The part that lenient readers take for a number, such as JavaScript's parseFloat."""
_IS_BASED = re.compile(r"[+-]?0[xob]").match
_OCTAL = re.compile(r"[+-]?0[0-7]+(?![\d.])")
"""A number of base eight for YAML 1.1, and for C where the base is not given."""
_LONGEST = 400
"""Most characters of a number, as of one of JSON."""


def plain(text: str) -> str:
    """The text with compatible characters, and without blanks around it and characters that nobody sees."""
    normal = unicodedata.normalize("NFKC", text)
    return "".join(char for char in normal if char.isspace() or unicodedata.category(char)[0] != "C").strip()


def as_meant(value: Any) -> Iterator[str | float]:
    """All that programs may take the value for. Two values with nothing in common are different for all of
    them. Raises `UnreadableError` for a value that is no scalar."""
    text = plain(text_of(value)).casefold().strip("'\"")
    yield text
    if isinstance(value, bool):
        yield from _WORDS[value]
        yield float(value)
        yield str(int(value))
    found = _PREFIX.match(text[:_LONGEST])
    for number in (text, found[0], found[0].partition("_")[0]) if found else ():
        with suppress(ValueError, OverflowError):
            yield float(int(number, 0)) if _IS_BASED(number) else float(number)
    if octal := _OCTAL.match(text[:_LONGEST]):
        with suppress(OverflowError):
            yield float(int(octal[0], 8))
