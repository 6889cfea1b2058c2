"""JSON schemas with one attribute for each keyword, and JSON values in a form that can be compared.

`schema_compiler` makes a `Schema` from a written schema.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from time import thread_time
from typing import Any

from hooks.api.extras import from_extra
from hooks.json.reader import Kind

with from_extra("guards", "regex"):
    import regex

MAX_CHECKS = 500
"""Most schemas that apply to one value. Each costs a few microseconds for each value of a document."""
MAX_PATTERN = 1000
"""Most characters of a pattern."""
PATTERN_TIMEOUT = 0.1
"""Most seconds of a core for all pattern searches in one piece of a text. A wait for it is free."""
EARLY = 256
"""Most characters of a string in which patterns are searched before the string ends."""

_LOOKING_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])|\\[bBAZ1-9]")
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
_SPACE = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""The characters of `\\s` in ECMA-262: WhiteSpace and LineTerminator."""


class Stopwatch:
    """Limits the time of all pattern searches of one schema after each `start`, on one thread.

    The time between searches is not counted: it may contain a garbage collection of the whole process.
    """

    def __init__(self) -> None:
        self._left = 0.0
        self._began = 0.0

    def start(self) -> None:
        self._left = PATTERN_TIMEOUT

    def __enter__(self) -> float:
        """The seconds that a search has. Raises `TimeoutError` if none are left."""
        if self._left <= 0:
            raise TimeoutError("the patterns of a schema take too long")
        self._began = thread_time()
        return self._left

    def __exit__(self, *_: object) -> None:
        self._left -= thread_time() - self._began


class Pattern:
    """A regular expression that may match anywhere in a string, unless it is anchored."""

    def __init__(self, pattern: str, stopwatch: Stopwatch) -> None:
        """Raises `ValueError` for an invalid or too long pattern."""
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
            raise ValueError(f"a pattern is a text of at most {MAX_PATTERN} characters")
        python = _PART.sub(_as_python, pattern)
        try:
            # ECMA-262 limits \d and \w to ASCII, but not Unicode properties.
            self._search = regex.compile(python, 0 if r"\p" in pattern else regex.ASCII).search
        except (regex.error, RecursionError, OverflowError, MemoryError) as error:
            raise ValueError(f"pattern {pattern!r} cannot be used: {error}") from error
        self._fails_early = not _LOOKING_AROUND.search(pattern)
        self._stopwatch = stopwatch

    def is_in(self, text: str) -> bool:
        """Whether the text contains a match. Raises `TimeoutError`."""
        return self._finds(text)

    def may_be_in(self, text: str) -> bool:
        """Whether the text contains a match, or may with more text. Raises `TimeoutError`."""
        if not self._fails_early:
            return True
        return self._finds(text[:EARLY], partial=True)

    def _finds(self, text: str, *, partial: bool = False) -> bool:
        while True:
            # The library's clock counts what all threads of the process compute, and the stopwatch this one.
            with self._stopwatch as seconds, suppress(TimeoutError):
                return self._search(text, partial=partial, timeout=seconds) is not None


def _as_python(found: re.Match[str]) -> str:
    """Translate a part of an ECMA-262 pattern. Python's `$` also matches before a final line break."""
    part = found[0]
    if part[0] == "[":
        return re.sub(r"-?\\.", lambda one: _SPACE if one[0] == r"\s" else one[0], part, flags=re.DOTALL)
    return {"$": r"\Z", r"\s": f"[{_SPACE}]", r"\S": f"[^{_SPACE}]"}.get(part, part)


@dataclass(slots=True, eq=False)
class Schema:
    """One schema. An attribute that is None, empty or a count's default requires nothing."""

    kinds: frozenset[Kind] | None = None
    """The allowed kinds; None: any; empty: the schema `false`."""
    is_integer: bool = False
    """A number must be whole."""
    values: frozenset[Any] | None = None
    """The values of `enum` or `const`, in the form of `canonical`."""
    texts: tuple[str, ...] = ()
    """The strings in `values`."""
    minimum: Decimal | None = None
    maximum: Decimal | None = None
    exclusive_minimum: Decimal | None = None
    exclusive_maximum: Decimal | None = None
    multiple_of: Decimal | None = None
    min_length: int = 0
    max_length: int | None = None
    pattern: Pattern | None = None
    properties: dict[str, "Schema"] = field(default_factory=dict)
    patterns: list[tuple[Pattern, "Schema"]] = field(default_factory=list)
    additional: "Schema | None" = None
    names: "Schema | None" = None
    required: tuple[str, ...] = ()
    dependent: dict[str, tuple[str, ...]] = field(default_factory=dict)
    dependent_schemas: dict[str, "Schema"] = field(default_factory=dict)
    min_properties: int = 0
    max_properties: int | None = None
    prefix: tuple["Schema", ...] = ()
    items: "Schema | None" = None
    contains: "Schema | None" = None
    min_contains: int = 1
    max_contains: int | None = None
    min_items: int = 0
    max_items: int | None = None
    has_unique_items: bool = False
    all_of: tuple["Schema", ...] = ()
    any_of: tuple["Schema", ...] = ()
    one_of: tuple["Schema", ...] = ()
    negated: "Schema | None" = None
    condition: "Schema | None" = None
    consequence: "Schema | None" = None
    alternative: "Schema | None" = None
    _in_place: "list[tuple[str, tuple[Schema, ...]]] | None" = None

    @property
    def is_impossible(self) -> bool:
        return self.kinds is not None and not self.kinds

    @property
    def is_closed(self) -> bool:
        """Only the named properties are allowed."""
        return self.additional is not None and self.additional.is_impossible and not self.patterns

    def in_place(self) -> list[tuple[str, tuple["Schema", ...]]]:
        """Return the other schemas for the same value, in groups by role: `all`, `any`, `one`, `not`, `if`,
        `then`, `else`, or `with NAME` for an object that has the property NAME. The schema must be whole."""
        if self._in_place is None:
            groups = [("all", self.all_of), ("any", self.any_of), ("one", self.one_of)]
            single = [("not", self.negated), ("if", self.condition)]
            single += [("then", self.consequence), ("else", self.alternative)]
            groups += [(role, (one,)) for role, one in single if one is not None]
            groups += [(f"with {name}", (one,)) for name, one in self.dependent_schemas.items()]
            self._in_place = [(role, schemas) for role, schemas in groups if schemas]
        return self._in_place

    def of_property(self, name: str) -> Iterator["Schema"]:
        """Yield the schemas for the value of the property `name`. Raises `TimeoutError` as patterns do."""
        named = [self.properties[name]] if name in self.properties else []
        named += [schema for pattern, schema in self.patterns if pattern.is_in(name)]
        yield from named or ([self.additional] if self.additional is not None else [])

    def of_item(self, index: int) -> "Schema | None":
        """Return the schema of an array's item; `index` counts from 0."""
        return self.prefix[index] if index < len(self.prefix) else self.items


@dataclass(frozen=True, slots=True)
class Compiled:
    """A schema with all schemas that it refers to, ready for any number of documents."""

    root: Schema
    needs_values: bool
    """Whether values are kept until complete: for `uniqueItems`, or arrays or objects in an `enum`."""
    stopwatch: Stopwatch
    """The stopwatch of all patterns in the schema."""
    max_checks: int = MAX_CHECKS
    """Most schemas that apply to one value."""


def number_of(value: Any) -> Decimal:
    """Return a schema's number, exactly as written. Raises `ValueError` for anything but a JSON number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("a number of the schema is not a number")
    return Decimal(str(value))


def canonical(value: Any) -> Any:
    """Return a JSON value in a hashable form. Equal values have equal forms: 1 equals 1.0, but not `true`.
    Raises `ValueError` for anything but a JSON value."""
    if isinstance(value, Mapping):
        return object_of({name: canonical(one) for name, one in value.items()})
    if isinstance(value, list):
        return array_of(map(canonical, value))
    if value is None or isinstance(value, str):
        return value
    return TRUE if value is True else FALSE if value is False else number_of(value)


TRUE, FALSE = ("boolean", True), ("boolean", False)
"""`true` and `false` in the form of `canonical`."""


def object_of(values: Mapping[str, Any]) -> Any:
    """Return an object in the form of `canonical`; `values` already have this form."""
    return "object", frozenset(values.items())


def array_of(values: Iterable[Any]) -> Any:
    """Return an array in the form of `canonical`; `values` already have this form."""
    return "array", *values
