"""Counts of an upstream's tokens: its own counts if they are valid, and Weir's until they come."""

from dataclasses import dataclass
from typing import Any

from engine.protocol import EngineError, Usage
from engine.upstream.json_text import read_object

_MAX_COUNT = 10**9
"""No request has so many tokens."""


@dataclass(slots=True)
class UsageCount:
    """The usage of a request so far, which its outputs share."""

    usage: Usage


def count_of(source: Any, name: str, otherwise: int) -> int:
    """The count `name` of an upstream's object, or `otherwise` if it is missing or invalid."""
    value = source.get(name) if isinstance(source, dict) else None
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else otherwise


def count_in(answer: bytes, name: str) -> int:
    """The count `name` in an upstream's whole answer. Raises `EngineError` if it is missing or invalid."""
    number = count_of(read_object(answer), name, -1)
    if number < 0:
        raise EngineError("The upstream engine sent an invalid response.", status=502)
    return number
