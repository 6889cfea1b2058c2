"""JSON schemas made ready: what each asks of a value, keyword by keyword (draft 2020-12, and what it replaced
of draft 7).

`format` and the other annotations assert nothing, as the specification has it. What cannot be said of a value
before all is read around it (`unevaluatedProperties`, `$dynamicRef`) is refused, and so is what is too large.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from time import monotonic
from typing import Any, get_args
from urllib.parse import unquote

from hooks.builtin.json_reader import Kind

try:
    import regex
except ImportError as error:
    raise ImportError("the guard needs regex: pip install 'weir[guards]'") from error

MAX_SCHEMAS = 2000
"""Subschemas of a schema."""
MAX_DEPTH = 100
"""Schemas within one another."""
MAX_CHECKS = 500
"""Schemas that apply to one value at a time."""
MAX_PATTERN = 1000
"""Characters of a pattern."""
PATTERN_TIMEOUT = 0.1
"""Seconds that all searches for patterns in one piece of a text may take."""
EARLY = 256
"""Characters of a string that patterns are looked for in before it ends."""

KINDS: tuple[Kind, ...] = get_args(Kind)
_REFUSED = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")
_LOOKING_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])|\\[bBAZ1-9]")
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
_SPACE = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""What `\\s` is there: ECMA-262, WhiteSpace and LineTerminator."""


class Stopwatch:
    """Bounds the time that the patterns of a schema take together."""

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
    """A regular expression, found anywhere in a string unless it says otherwise."""

    def __init__(self, pattern: str, stopwatch: Stopwatch) -> None:
        """Raises `ValueError`."""
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
    """One schema. What is None, or empty, asks nothing."""

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
        """Those that apply to the same value, by what each group is there for: `all`, `any`, `one`, `not`,
        `if`, `then`, `else`, or `with NAME` for an object that has such a property."""
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
        """Those of a property's value. Raises `TimeoutError`."""
        named = [self.properties[name]] if name in self.properties else []
        named += [schema for pattern, schema in self.patterns if pattern.is_in(name)]
        yield from named or ([self.additional] if self.additional is not None else [])

    def of_item(self, index: int) -> "Schema | None":
        return self.prefix[index] if index < len(self.prefix) else self.items


@dataclass(frozen=True, slots=True)
class Compiled:
    """A schema with all that it refers to."""

    root: Schema
    needs_values: bool
    """Whether values must be known as a whole, not only as they come."""
    stopwatch: Stopwatch
    """For all its patterns."""


def compile_schema(document: Any) -> Compiled:
    """Raises `ValueError` for what is no schema, or cannot be used."""
    try:
        return _Compiler(document).compiled
    except RecursionError as error:
        raise ValueError("the schema is too large") from error


def number_of(value: Any) -> Decimal:
    """A number of a schema's, exactly as it is written. Raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("a number of the schema is none")
    return Decimal(str(value))


def canonical(value: Any) -> Any:
    """A JSON value, so that two are equal if JSON says so: 1 is 1.0, and is not true."""
    if isinstance(value, Mapping):
        return object_of({name: canonical(one) for name, one in value.items()})
    if isinstance(value, list):
        return array_of(map(canonical, value))
    if value is None or isinstance(value, str):
        return value
    return TRUE if value is True else FALSE if value is False else number_of(value)


TRUE, FALSE = ("boolean", True), ("boolean", False)
"""As `canonical` has them."""


def object_of(values: Mapping[str, Any]) -> Any:
    """An object as `canonical` has it, of its values."""
    return "object", frozenset(values.items())


def array_of(values: Iterable[Any]) -> Any:
    return "array", *values


class _Compiler:
    def __init__(self, document: Any) -> None:
        self._document = document
        self._anchors: dict[str, Any] = {}
        self._made: dict[int, Schema] = {}
        self._kept: list[Any] = []  # what `_made` knows by its id must stay
        self._stopwatch = Stopwatch()
        self.needs_values = False
        root = self._schema(document, 0)
        self.compiled = Compiled(root, self.needs_values, self._stopwatch)
        self._measure()

    def _schema(self, source: Any, depth: int) -> Schema:
        if id(source) in self._made:
            return self._made[id(source)]
        if len(self._made) >= MAX_SCHEMAS or depth > MAX_DEPTH:
            raise ValueError("the schema is too large")
        if isinstance(source, bool):
            return Schema() if source else Schema(frozenset())
        if not isinstance(source, Mapping):
            raise ValueError("a schema is an object, true or false")
        made = self._made[id(source)] = Schema()
        self._kept.append(source)
        for name in _REFUSED:
            if name in source:
                raise ValueError(f"{name} cannot be checked in a stream")
        self._assertions(made, source)
        self._parts(made, source, lambda part: self._schema(part, depth + 1))
        return made

    def _assertions(self, made: Schema, source: Mapping[str, Any]) -> None:
        if "type" in source:
            kinds = _texts([source["type"]] if isinstance(source["type"], str) else source["type"], "type")
            made.is_integer = "integer" in kinds and "number" not in kinds
            if not {*kinds} <= {"integer", *KINDS}:
                raise ValueError("type is no type")
            named = {"number" if kind == "integer" else kind for kind in kinds}
            made.kinds = frozenset(kind for kind in KINDS if kind in named)
        if "enum" in source or "const" in source:
            values = [source["const"]] if "const" in source else _list(source, "enum")
            made.values = frozenset(map(canonical, values))
            made.texts = tuple(value for value in values if isinstance(value, str))
            possible = frozenset(map(_kind, values))
            made.kinds = possible if made.kinds is None else made.kinds & possible
            self.needs_values = self.needs_values or not possible.isdisjoint({"array", "object"})
        for name, attribute in _NUMBERS.items():
            if name in source:
                setattr(made, attribute, number_of(source[name]))
        if made.multiple_of is not None and made.multiple_of <= 0:
            raise ValueError("multipleOf is above 0")
        for name, attribute in _COUNTS.items():
            if name in source:
                count = source[name]
                if isinstance(count, bool) or not isinstance(count, int | float) or count < 0 or count % 1:
                    raise ValueError(f"{name} is no count")
                setattr(made, attribute, int(count))
        made.pattern = self._pattern(source["pattern"]) if "pattern" in source else None
        made.required = tuple(_texts(source.get("required", []), "required"))
        made.has_unique_items = source.get("uniqueItems") is True
        self.needs_values = self.needs_values or made.has_unique_items

    def _pattern(self, pattern: Any) -> Pattern:
        return Pattern(pattern, self._stopwatch)

    def _parts(self, made: Schema, source: Mapping[str, Any], schema: Callable[[Any], Schema]) -> None:
        made.properties = {name: schema(part) for name, part in _map(source, "properties").items()}
        made.patterns = [
            (self._pattern(p), schema(part)) for p, part in _map(source, "patternProperties").items()
        ]
        made.dependent_schemas = {k: schema(v) for k, v in _map(source, "dependentSchemas").items()}
        made.dependent = {k: tuple(_texts(v, k)) for k, v in _map(source, "dependentRequired").items()}
        for name, part in _map(source, "dependencies").items():
            if isinstance(part, list):
                made.dependent[name] = tuple(_texts(part, name))
            else:
                made.dependent_schemas[name] = schema(part)
        is_old = isinstance(source.get("items"), list)
        made.prefix = tuple(map(schema, _list(source, "items" if is_old else "prefixItems")))
        for name, attribute in {**_PARTS, "additionalItems" if is_old else "items": "items"}.items():
            if name in source:
                setattr(made, attribute, schema(source[name]))
        made.all_of = tuple(map(schema, _list(source, "allOf")))
        if "const" in source and "enum" in source:
            made.all_of += (schema({"enum": source["enum"]}),)
        if "$ref" in source:
            made.all_of += (schema(self._found(source["$ref"])),)
        made.any_of = tuple(map(schema, _list(source, "anyOf")))
        made.one_of = tuple(map(schema, _list(source, "oneOf")))
        if made.condition is None:
            made.consequence = made.alternative = None

    def _found(self, reference: Any) -> Any:
        """What a `$ref` within the document stands for."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ValueError("$ref leads outside of the schema")
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            return self._anchored(pointer)
        found = self._document
        try:
            for step in pointer.split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                found = found[int(name)] if isinstance(found, list) else found[name]
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError("$ref leads nowhere") from error
        return found

    def _anchored(self, name: str) -> Any:
        if not self._anchors:
            left = [self._document]
            while left:
                one = left.pop()
                left += one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else []
                if isinstance(one, Mapping) and isinstance(one.get("$anchor"), str):
                    self._anchors[one["$anchor"]] = one
        if name not in self._anchors:
            raise ValueError("$ref leads nowhere")
        return self._anchors[name]

    def _measure(self) -> None:
        """How many schemas apply to one value must be bounded, and none may need itself to be told."""
        sizes: dict[int, int] = {}

        def size(schema: Schema) -> int:
            if sizes.get(id(schema)) == 0:
                raise ValueError("a schema refers to itself")
            if id(schema) not in sizes:
                sizes[id(schema)] = 0
                sizes[id(schema)] = 1 + sum(size(one) for _, group in schema.beside() for one in group)
            if sizes[id(schema)] > MAX_CHECKS:
                raise ValueError("too many schemas apply to one value")
            return sizes[id(schema)]

        for schema in self._made.values():
            size(schema)


_NUMBERS = {
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusiveMinimum": "exclusive_minimum",
    "exclusiveMaximum": "exclusive_maximum",
    "multipleOf": "multiple_of",
}
_KINDS: dict[type, Kind] = {
    bool: "boolean",
    str: "string",
    dict: "object",
    list: "array",
    type(None): "null",
}
_COUNTS = {
    "minLength": "min_length",
    "maxLength": "max_length",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
    "minItems": "min_items",
    "maxItems": "max_items",
    "minContains": "min_contains",
    "maxContains": "max_contains",
}
_PARTS = {
    "additionalProperties": "additional",
    "propertyNames": "names",
    "contains": "contains",
    "not": "negated",
    "if": "condition",
    "then": "consequence",
    "else": "alternative",
}


def _kind(value: Any) -> Kind:
    return _KINDS.get(type(value), "number")


def _list(source: Mapping[str, Any], name: str) -> list[Any]:
    value = source.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"{name} is a list")
    return value


def _map(source: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = source.get(name, {})
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is an object")
    return value


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{name} is a list of texts")
    return value
