"""Values that a model writes as bare text, typed by the tool's schema."""

import json
from typing import Any

import pytest

from engine.parsers.typed import Bare, dumped, typed, typed_arguments

NESTED = {"type": "object", "properties": {"n": {"type": "number"}, "s": {"type": "string"}}}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "integer"}, 5),
        ("-5", {"type": ["integer", "null"]}, -5),
        ("five", {"type": "integer"}, "five"),
        ("5.5", {"type": "integer"}, 5.5),
        ("5.0", {"type": "number"}, 5),
        ("1e999", {"type": "number"}, "1e999"),
        ("nan", {"type": "number"}, "nan"),
        ("TRUE", {"type": "boolean"}, True),
        ("0", {"type": "boolean"}, False),
        ("null", {"type": "null"}, None),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("null", {"type": "string"}, "null"),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ('{"a": 1}', {"type": "string"}, '{"a": 1}'),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ("[1e999]", {"type": "array"}, "[1e999]"),
        ("[" * 100_000, {"type": "array"}, "[" * 100_000),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {"enum": ["1", "2"]}, "2"),
        ("7", {"type": "int32"}, 7),
        ("7", {}, "7"),
        ("7", None, "7"),
        ("7", True, "7"),
        ("9" * 5000, {"type": "integer"}, "9" * 5000),
        (Bare("7"), None, 7),
        (Bare("seven"), None, "seven"),
        (Bare("7"), {"type": "string"}, "7"),
    ],
)
def test_a_text_becomes_the_first_type_that_it_can_be(text: str, schema: Any, value: Any) -> None:
    made = typed(text, schema)
    assert (made, type(made)) == (value, type(value))


def test_values_within_values_have_their_own_schemas() -> None:
    schema = {"properties": {"o": NESTED, "l": {"type": "array", "items": NESTED}}}
    given = {"o": {"n": "1", "s": 2, "other": Bare("3")}, "l": [{"n": "x"}, {"s": None}]}
    assert typed_arguments(given, schema) == {
        "o": {"n": 1, "s": "2", "other": 3},
        "l": [{"n": "x"}, {"s": "null"}],
    }
    for odd in (None, {}, {"properties": None}, {"properties": []}, {"properties": {"o": 5}}):
        assert typed_arguments({"o": "5"}, odd) == {"o": "5"}


def test_half_a_surrogate_pair_is_no_character() -> None:
    assert json.loads(dumped({"a": "x\ud83d"})) == {"a": "x\ufffd"}
