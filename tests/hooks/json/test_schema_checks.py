"""Checks: when a value can no longer become valid, and whether a complete value is valid."""

from decimal import Decimal
from typing import Any

import pytest

from hooks.json.schema import Schema
from hooks.json.schema_checks import (
    Check,
    checks_of,
    first_wrong,
    is_array,
    is_full_array,
    is_full_object,
    is_number,
    is_object,
    is_string,
    may_be_string,
)
from hooks.json.schema_compiler import compile_schema


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


def schema_of(source: Any) -> Schema:
    compiled = compile_schema(source)
    compiled.stopwatch.start()
    return compiled.root


@pytest.mark.parametrize(
    ("keyword", "lost", "is_valid"),
    [
        ("allOf", [], True),
        ("allOf", [1], False),
        ("anyOf", [0], True),
        ("anyOf", [0, 1], False),
        ("oneOf", [1], True),
        ("oneOf", [], False),
        ("oneOf", [0, 1], False),
    ],
)
def test_a_check_depends_on_its_parts(keyword: str, lost: list[int], is_valid: bool) -> None:
    check, *parts = checks_of(schema_of({keyword: [{}, {}]}))
    for i in lost:
        parts[i].lose()
    check.end()
    assert check.is_lost != is_valid


@pytest.mark.parametrize(
    ("lost", "is_valid"), [([], True), (["then"], False), (["if"], True), (["if", "else"], False)]
)
def test_a_condition_chooses_the_part_that_counts(lost: list[str], is_valid: bool) -> None:
    check = checks_of(schema_of({"if": {}, "then": {}, "else": {}}))[0]
    for role in lost:
        check.parts[role][0].lose()
    check.end()
    assert check.is_lost != is_valid


def test_a_condition_is_lost_before_the_end_if_no_part_can_make_it_true() -> None:
    check = checks_of(schema_of({"if": {}, "then": {}, "else": {}}))[0]
    check.parts["then"][0].lose()
    assert not check.is_lost
    check.parts["else"][0].lose()
    assert check.is_lost


def test_a_negated_schema_must_be_lost_and_a_dependent_one_needs_its_key() -> None:
    check = checks_of(schema_of({"not": {}}))[0]
    check.end()
    assert check.is_lost
    for keys, is_lost in ((["b"], False), (["a"], True)):
        check = checks_of(schema_of({"dependentSchemas": {"a": {}}}))[0]
        check.parts["with a"][0].lose()
        check.end(keys)
        assert check.is_lost == is_lost


def test_a_loss_is_told_to_all_owners() -> None:
    outer, inner, innermost = checks_of(schema_of({"allOf": [{"anyOf": [{}]}]}))
    innermost.lose()
    assert inner.is_lost
    assert outer.is_lost


def test_items_that_count_have_a_least_and_a_most_number() -> None:
    check = Check(schema_of({"contains": {}, "minContains": 1, "maxContains": 1}))
    assert not is_array(check, 2)
    check.contain()
    assert is_array(check, 2)
    check.contain()
    assert check.is_lost


@pytest.mark.parametrize("length", range(5))
def test_the_first_wrong_character_is_found_by_halving(length: int) -> None:
    assert first_wrong(lambda text: len(text) <= length, "abcd", 0) == length + 1


def test_the_beginning_of_a_string_may_be_a_value_or_a_match() -> None:
    assert may_be_string(schema_of({"enum": ["red", 5]}), "re")
    assert not may_be_string(schema_of({"enum": ["red", 5]}), "5")
    assert not may_be_string(schema_of({"pattern": "^ab"}), "b")
    schema = schema_of({"minLength": 2, "maxLength": 3, "pattern": "a"})
    assert [is_string(schema, text) for text in ("a", "ab", "abc", "abcd", "bb")] == [
        False,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("keywords", "good", "bad"),
    [
        ({"minimum": 1, "exclusiveMaximum": 2}, "1", "2"),
        ({"exclusiveMinimum": 1, "maximum": 2}, "2", "1"),
        ({"type": "integer"}, "1.50e1", "1.5"),
        ({"enum": [0.1]}, "1e-1", "0.11"),
        ({"multipleOf": 0.1}, "1e400", "0.15"),
        ({"multipleOf": 3}, "0e-9", "1e99999"),
    ],
)
def test_a_number_keeps_its_exact_value(keywords: dict[str, Any], good: str, bad: str) -> None:
    schema = schema_of(keywords)
    assert is_number(schema, Decimal(good))
    assert not is_number(schema, Decimal(bad))


def test_an_object_needs_its_keys_and_may_be_full() -> None:
    schema = schema_of({"required": ["a"], "minProperties": 2, "dependentRequired": {"a": ["b"]}})
    assert is_object(schema, {"a", "b"})
    assert not is_object(schema, {"a", "c"})
    assert not is_object(schema, {"a"})
    closed = schema_of({"properties": {"a": {}}, "additionalProperties": False})
    assert [is_full_object(closed, keys) for keys in (set(), {"a"})] == [False, True]
    assert is_full_object(schema_of({"maxProperties": 1}), {"x"})


def test_an_array_is_full_where_no_item_can_follow() -> None:
    schema = schema_of({"prefixItems": [{}], "items": False})
    assert [is_full_array(schema, count) for count in range(2)] == [False, True]
    assert is_full_array(schema_of({"maxItems": 2}), 2)
