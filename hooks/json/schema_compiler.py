"""Compiles a JSON schema (draft 2020-12, and the keywords of draft 7 that it replaced) into `Schema`s.

`format` and the other annotations assert nothing, as the specification says. The compiler refuses keywords
that depend on the text around a value (`unevaluatedProperties`, `$dynamicRef`), and too large schemas.
"""

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, get_args
from urllib.parse import unquote

from pydantic.alias_generators import to_snake

from hooks.json.reader import Kind
from hooks.json.schema import MAX_CHECKS, Compiled, Pattern, Schema, Stopwatch, canonical, number_of

MAX_SCHEMAS = 2000
"""Most subschemas of a schema."""
MAX_DEPTH = 100
"""Most levels of schemas within each other."""
MAX_PATTERNS = 10_000
"""Most characters of all patterns of a schema. Compiling takes up to 10 µs for each character."""

_KIND_NAMES: tuple[Kind, ...] = get_args(Kind)
# Keywords that set an attribute of `Schema` of the same name, in snake case, to a number or a count.
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = (
    *("minLength", "maxLength", "minProperties", "maxProperties"),
    *("minItems", "maxItems", "minContains", "maxContains"),
)
# Keywords that set an attribute of `Schema` to a schema.
_PARTS = {
    "additionalProperties": "additional",
    "propertyNames": "names",
    "contains": "contains",
    "not": "negated",
    "if": "condition",
    "then": "consequence",
    "else": "alternative",
}
_REFUSED = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")


def compile_schema(document: Any, max_checks: int = MAX_CHECKS) -> Compiled:
    """`document`: a schema, as `json.loads` returns it. `max_checks`: most schemas that apply to one value.
    Raises `ValueError` for a schema that is invalid, is too large, or cannot be checked in a stream."""
    try:
        return _Compiler(document, max_checks).compiled
    except RecursionError as error:
        raise ValueError("the schema is too large") from error


class _Compiler:
    """Compiles one schema. A subschema with several references is compiled once."""

    def __init__(self, document: Any, max_checks: int) -> None:
        self._document = document
        self._anchors: dict[str, Any] = {}
        self._made: dict[int, Schema] = {}
        self._kept: list[Any] = []  # keeps the sources alive whose ids are keys of `_made`
        self._stopwatch = Stopwatch()
        self._pattern_size = 0
        self.needs_values = False
        root = self._schema(document, 0)
        self.compiled = Compiled(root, self.needs_values, self._stopwatch, max_checks)
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
            if not {*kinds} <= {"integer", *_KIND_NAMES}:
                raise ValueError("type is not a known type")
            named = {"number" if kind == "integer" else kind for kind in kinds}
            made.kinds = frozenset(kind for kind in _KIND_NAMES if kind in named)
        if "enum" in source or "const" in source:
            values = [source["const"]] if "const" in source else _list(source, "enum")
            made.values = frozenset(map(canonical, values))
            made.texts = tuple(value for value in values if isinstance(value, str))
            possible = frozenset(map(_kind, values))
            made.kinds = possible if made.kinds is None else made.kinds & possible
            self.needs_values = self.needs_values or not possible.isdisjoint({"array", "object"})
        for name in source.keys() & _NUMBERS:
            setattr(made, to_snake(name), number_of(source[name]))
        if made.multiple_of is not None and made.multiple_of <= 0:
            raise ValueError("multipleOf is above 0")
        for name in _COUNTS:
            if name in source:
                count = source[name]
                if isinstance(count, bool) or not isinstance(count, int | float) or count < 0 or count % 1:
                    raise ValueError(f"{name} is not a count")
                setattr(made, to_snake(name), int(count))
        made.pattern = self._pattern(source["pattern"]) if "pattern" in source else None
        made.required = tuple(_texts(source.get("required", []), "required"))
        made.has_unique_items = source.get("uniqueItems") is True
        self.needs_values = self.needs_values or made.has_unique_items

    def _pattern(self, source: Any) -> Pattern:
        pattern = Pattern(source, self._stopwatch)
        self._pattern_size += len(source)
        if self._pattern_size > MAX_PATTERNS:
            raise ValueError(f"the patterns of a schema have at most {MAX_PATTERNS} characters")
        return pattern

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
        """Raise `ValueError` if too many schemas apply to one value, or a schema is a part of itself."""
        sizes: dict[int, int] = {}

        def size(schema: Schema) -> int:
            if sizes.get(id(schema)) == 0:
                raise ValueError("a schema refers to itself")
            if id(schema) not in sizes:
                sizes[id(schema)] = 0
                sizes[id(schema)] = 1 + sum(size(one) for _, group in schema.in_place() for one in group)
            if sizes[id(schema)] > self.compiled.max_checks:
                raise ValueError("too many schemas apply to one value")
            return sizes[id(schema)]

        for schema in self._made.values():
            size(schema)


_KIND_OF: dict[type, Kind] = {bool: "boolean", str: "string", dict: "object", list: "array", NoneType: "null"}


def _kind(value: Any) -> Kind:
    return _KIND_OF.get(type(value), "number")


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
