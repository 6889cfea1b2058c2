"""Compiling: the `Schema` of each keyword, and the schemas that are refused."""

from decimal import Decimal
from typing import Any

import pytest

from hooks.json.schema_compiler import MAX_DEPTH, MAX_PATTERNS, MAX_SCHEMAS, compile_schema


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


def test_true_allows_everything_and_false_nothing() -> None:
    assert compile_schema(True).root.kinds is None
    assert compile_schema(False).root.is_impossible


@pytest.mark.parametrize(
    ("schema", "attribute", "value"),
    [
        ({"type": ["string", "null"]}, "kinds", {"string", "null"}),
        ({"type": "integer"}, "is_integer", True),
        ({"type": ["integer", "number"]}, "is_integer", False),
        ({"enum": ["a", 1], "type": "string"}, "kinds", {"string"}),
        ({"exclusiveMinimum": 0.1}, "exclusive_minimum", Decimal("0.1")),
        ({"maxLength": 3.0}, "max_length", 3),
        ({"dependencies": {"a": ["b"]}}, "dependent", {"a": ("b",)}),
        ({"then": False, "else": False}, "consequence", None),
    ],
)
def test_a_keyword_sets_its_attribute(schema: Any, attribute: str, value: Any) -> None:
    assert getattr(compile_schema(schema).root, attribute) == value


def test_a_schema_with_several_references_is_compiled_once() -> None:
    part = {"$ref": "#/$defs/a~1b%20c"}
    root = compile_schema({"$defs": {"a/b c": {"minimum": 1}}, "items": part, "prefixItems": [part]}).root
    (in_items,), (in_prefix,) = root.of_item(1).all_of, root.of_item(0).all_of
    assert in_items is in_prefix
    assert in_items.minimum == 1


def test_values_are_needed_only_to_compare_whole_arrays_or_objects() -> None:
    assert compile_schema({"uniqueItems": True}).needs_values
    assert compile_schema({"items": {"enum": [[1]]}}).needs_values
    assert not compile_schema({"enum": ["a", 1, None]}).needs_values


@pytest.mark.parametrize(
    "schema",
    [
        5,
        {"type": "any"},
        {"type": 5},
        {"properties": []},
        {"properties": {"a": 5}},
        {"anyOf": {}},
        {"required": "a"},
        {"maxLength": -1},
        {"maxLength": 1.5},
        {"minimum": "1"},
        {"minimum": True},
        {"exclusiveMinimum": True},
        {"multipleOf": 0},
        {"pattern": "("},
        {"pattern": 5},
        {"pattern": "a" * 10_000},
        {"$ref": "#/nowhere"},
        {"$ref": "#nowhere"},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/allOf/0"}]},
        {"unevaluatedProperties": False},
        {"$dynamicRef": "#x"},
        {"properties": {str(i): {"type": "null"} for i in range(MAX_SCHEMAS + 1)}},
        {"anyOf": [{"const": i} for i in range(600)]},
        {"minimum": float("nan")},
        {"properties": {str(i): {"pattern": "a" * 900} for i in range(MAX_PATTERNS // 900 + 1)}},
    ],
)
def test_what_is_no_schema_or_cannot_be_checked_is_refused(schema: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has a message of its own
        compile_schema(schema)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def test_hostile_schemas_are_refused() -> None:
    for depth in (MAX_DEPTH + 1, 900):
        with pytest.raises(ValueError, match="too large"):
            compile_schema(nested(depth))
    doubling = {
        "$defs": {str(i): {"allOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(40)} | {"40": {}}
    }
    with pytest.raises(ValueError, match="too many"):
        compile_schema({**doubling, "$ref": "#/$defs/0"})
