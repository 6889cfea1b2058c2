"""What a JSON schema asks of a value, keyword by keyword, and JSON values in a form that can be compared.

`schema_compiler` makes them of a schema as it is written.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from time import monotonic
from typing import Any

from hooks.json.reader import Kind

try:
    import regex
except ImportError as error:
    raise ImportError("the guard needs regex: install the extra 'guards' of weir-proxy") from error

MAX_CHECKS = 500
"""Schemas that may apply to one value."""
MAX_PATTERN = 1000
"""Characters of a pattern."""
PATTERN_TIMEOUT = 0.1
"""Seconds that all searches for patterns in one piece of a text may take."""
EARLY = 256
"""Characters of a string that patterns are looked for in before it ends."""

_LOOKING_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])|\\[bBAZ1-9]")
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
_SPACE = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""What `\\s` is there: ECMA-262, WhiteSpace and LineTerminator."""


class Stopwatch:
    """Bounds the time that all searches for the patterns of one schema take, from each `start` on."""

    def __init__(self) -> None:
        self._end = 0.0

    def start(self) -> None:
        self._end = monotonic() + PATTERN_TIMEOUT

    @property
    def left(self) -> float:
        """Seconds. Raises `TimeoutError` if there are none."""
        left = self._end - monotonic()
        if left <= 0:
            raise TimeoutError("the patterns of a schema take too long")
        return left


class Pattern:
    """A regular expression that is looked for anywhere in a string, unless it is anchored."""

    def __init__(self, pattern: str, stopwatch: Stopwatch) -> None:
        """Raises `ValueError` for what is no pattern, or is too long."""
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
            raise ValueError(f"a pattern is a text of at most {MAX_PATTERN} characters")
        python = _PART.sub(_as_python, pattern)
        try:
            # \d and \w are ASCII's there; properties of Unicode are not.
            self._search = regex.compile(python, 0 if r"\p" in pattern else regex.ASCII).search
        except (regex.error, RecursionError, OverflowError, MemoryError) as error:
            raise ValueError(f"pattern {pattern!r} cannot be used: {error}") from error
        self._tells_early = not _LOOKING_AROUND.search(pattern)
        self._stopwatch = stopwatch

    def is_in(self, text: str) -> bool:
        """Raises `TimeoutError`."""
        return self._search(text, timeout=self._stopwatch.left) is not None

    def may_be_in(self, text: str) -> bool:
        """Whether it is in the text, or may be once the text goes on. Raises `TimeoutError`."""
        if not self._tells_early:
            return True
        return self._search(text[:EARLY], partial=True, timeout=self._stopwatch.left) is not None


def _as_python(found: re.Match[str]) -> str:
    """What a part of ECMA's pattern is here, where `$` is also before a last line's end."""
    part = found[0]
    if part[0] == "[":
        return re.sub(r"-?\\.", lambda one: _SPACE if one[0] == r"\s" else one[0], part, flags=re.DOTALL)
    return {"$": r"\Z", r"\s": f"[{_SPACE}]", r"\S": f"[^{_SPACE}]"}.get(part, part)


@dataclass(slots=True, eq=False)
class Schema:
    """One schema. An attribute that is None or empty asks nothing, and so does a count in its default."""

    kinds: frozenset[Kind] | None = None
    """None: any; none: the schema `false`."""
    is_integer: bool = False
    """A number must be whole."""
    values: frozenset[Any] | None = None
    """`enum` or `const`, as `canonical` has them."""
    texts: tuple[str, ...] = ()
    """Those of `values` that are strings."""
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

    @property
    def is_impossible(self) -> bool:
        return self.kinds is not None and not self.kinds

    @property
    def is_closed(self) -> bool:
        """No property but the named ones may be there."""
        return self.additional is not None and self.additional.is_impossible and not self.patterns

    def beside(self) -> list[tuple[str, tuple["Schema", ...]]]:
        """The other schemas that apply to the same value, in groups by their role: `all`, `any`, `one`,
        `not`, `if`, `then`, `else`, or `with NAME` for an object that has a property of that name."""
        groups = [("all", self.all_of), ("any", self.any_of), ("one", self.one_of)]
        single = {
            "not": self.negated,
            "if": self.condition,
            "then": self.consequence,
            "else": self.alternative,
        }
        groups += [(role, (one,)) for role, one in single.items() if one is not None]
        groups += [(f"with {name}", (one,)) for name, one in self.dependent_schemas.items()]
        return [(role, schemas) for role, schemas in groups if schemas]

    def of_property(self, name: str) -> Iterator["Schema"]:
        """The schemas of the value of the property `name`. Raises `TimeoutError` as its patterns do."""
        named = [self.properties[name]] if name in self.properties else []
        named += [schema for pattern, schema in self.patterns if pattern.is_in(name)]
        yield from named or ([self.additional] if self.additional is not None else [])

    def of_item(self, index: int) -> "Schema | None":
        """The schema of an array's item, counted from 0."""
        return self.prefix[index] if index < len(self.prefix) else self.items


@dataclass(frozen=True, slots=True)
class Compiled:
    """A schema with all that it refers to, ready for any number of documents."""

    root: Schema
    needs_values: bool
    """Whether values must be kept until they are whole: for `uniqueItems`, or an `enum` with arrays or
    objects."""
    stopwatch: Stopwatch
    """Of all its patterns."""


def number_of(value: Any) -> Decimal:
    """A number of a schema, exactly as it is written. Raises `ValueError` for what is no JSON number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("a number of the schema is none")
    return Decimal(str(value))


def canonical(value: Any) -> Any:
    """A JSON value in a hashable form that is equal for equal JSON values: 1 is 1.0, and is not `true`.
    Raises `ValueError` for what is no JSON value."""
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
    """An object in the form of `canonical`; `values` have that form already."""
    return "object", frozenset(values.items())


def array_of(values: Iterable[Any]) -> Any:
    """An array in the form of `canonical`; `values` have that form already."""
    return "array", *values
