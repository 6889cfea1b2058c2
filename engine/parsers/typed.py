"""Values of arguments that a model writes as bare text, typed by the tool's schema.

Types are tried in the order of `_READERS`, as in vLLM: the first one that the schema allows and the text can
be is the value's. A text that is none of them is JSON, or else a string. Without a schema a text is a string.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]

_CHOICES = ("anyOf", "oneOf", "allOf")
_MAX_NESTED = 16
"""Schemas within schemas that are looked at."""


class Bare(str):
    """A text that the model wrote without quotes. Without a schema it is JSON, or else a string."""

    __slots__ = ()


def typed_arguments(values: Mapping[str, Any], schema: Schema | None) -> dict[str, Any]:
    """The arguments, each typed by its property of the tool's schema."""
    properties = _mapping((schema or {}).get("properties"))
    return {name: typed(value, properties.get(name)) for name, value in values.items()}


def typed(value: Any, schema: Any) -> Any:
    """A value as its schema has it. A schema that is no mapping says nothing."""
    is_known = isinstance(schema, Mapping)
    if isinstance(value, str):
        if not is_known:
            return read_json(value) if isinstance(value, Bare) else value
        return _typed_text(str(value), types_of(schema))
    inner = schema if is_known else {}
    if isinstance(value, Mapping):
        properties = _mapping(inner.get("properties"))
        return {name: typed(one, properties.get(name)) for name, one in value.items()}
    if isinstance(value, list):
        return [typed(one, inner.get("items")) for one in value]
    return _typed_text(json.dumps(value), types_of(schema)) if is_known else value


def types_of(schema: Any, depth: int = 0) -> set[str]:
    """The types that a schema allows, by `type`, `enum` and the schemas that it chooses from. `string` if it
    says none."""
    if not isinstance(schema, Mapping) or depth > _MAX_NESTED:
        return {"string"}
    given = schema.get("type")
    types = {one for one in (given if isinstance(given, list | tuple) else [given]) if isinstance(one, str)}
    values = schema.get("enum")
    if isinstance(values, list | tuple):
        types.update(_type_of(value) for value in values)
    for choice in _CHOICES:
        inner = schema.get(choice)
        if isinstance(inner, list | tuple):
            types.update(*(types_of(one, depth + 1) for one in inner))
    return types or {"string"}


def dumped(arguments: Any) -> str:
    """The arguments as JSON text. Half a surrogate pair is no character, and becomes a replacement."""
    text = json.dumps(arguments, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_json(text: str) -> Any:
    """The value of a text that is JSON, or else the text itself. Numbers that JSON cannot write are none."""
    try:
        return _parsed(text)
    except ValueError:
        return str(text)


def _parsed(text: str) -> Any:
    """Raises `ValueError` for text that is not JSON."""
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("too deep") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("JSON has no such number")
    return number


def _typed_text(text: str, types: set[str]) -> Any:
    names = {_NAMES.get(name, name) for name in (one.strip().lower() for one in types)}
    for name, read in _READERS.items():
        if name in names:
            try:
                return read(text)
            except ValueError:
                continue
    return read_json(text)


def _null(text: str) -> None:
    if text.lower() != "null":
        raise ValueError("not null")


def _number(text: str) -> float:
    number = _finite(text)
    return int(number) if number.is_integer() else number


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "1", "false", "0"):
        raise ValueError("not a boolean")
    return word in ("true", "1")


_READERS: Mapping[str, Callable[[str], Any]] = {
    "null": _null,
    "integer": int,
    "number": _number,
    "boolean": _boolean,
    "object": _parsed,
    "array": _parsed,
    "string": str,
}
_NAMES = {
    **dict.fromkeys(("str", "text", "varchar", "char", "enum"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "uint", "uint32", "uint64", "long", "short"), "integer"),
    **dict.fromkeys(("unsigned",), "integer"),
    **dict.fromkeys(("float", "float32", "float64", "double"), "number"),
    **dict.fromkeys(("arr", "list", "sequence"), "array"),
    "bool": "boolean",
    "dict": "object",
}
"""Names of types that JSON schemas do not have, and that tools are described with all the same."""


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
