"""Schemas: patterns as JSON schemas write them, the schemas of a value's parts, and comparable values."""

import time
from decimal import Decimal
from typing import Any

import pytest

from hooks.json.schema import MAX_PATTERN, PATTERN_TIMEOUT, Pattern, Schema, Stopwatch, canonical, number_of
from hooks.json.schema_compiler import compile_schema


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


def pattern(source: Any) -> Pattern:
    stopwatch = Stopwatch()
    stopwatch.start()
    return Pattern(source, stopwatch)


@pytest.mark.parametrize(
    ("source", "text", "is_in"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("c$", "abc", True),
        ("c$", "abc\n", False),
        (r"^\d$", "٣", False),
        (r"^\p{Nd}$", "٣", True),
        (r"a\sb", "a\ufeffb", True),
        (r"a[\s-]b", "a\u2029b", True),
        (r"a\Sb", "a\u00a0b", False),
        (r"\$", "$", True),
    ],
)
def test_a_pattern_matches_as_ecma_262_says(source: str, text: str, is_in: bool) -> None:
    assert pattern(source).is_in(text) == is_in


def test_a_pattern_tells_early_that_no_match_can_follow() -> None:
    assert pattern("^ab+c$").may_be_in("abb")
    assert not pattern("^ab+c$").may_be_in("abd")
    assert pattern("^a(?=b)").may_be_in("c")  # with look-around, only the whole text tells


@pytest.mark.parametrize("source", ["(", 5, "a" * (MAX_PATTERN + 1)])
def test_a_pattern_that_cannot_be_used_is_refused(source: Any) -> None:
    with pytest.raises(ValueError, match="pattern"):
        pattern(source)


def test_patterns_have_little_time_after_each_start() -> None:
    stopwatch = Stopwatch()
    with pytest.raises(TimeoutError), stopwatch:
        pass
    stopwatch.start()
    with stopwatch as seconds:
        assert seconds == PATTERN_TIMEOUT


def test_a_pause_in_a_search_takes_nothing_of_the_time_for_patterns() -> None:
    stopwatch = Stopwatch()
    stopwatch.start()
    with stopwatch:
        time.sleep(PATTERN_TIMEOUT)
    with stopwatch as seconds:
        assert seconds > 0


def test_what_is_computed_between_searches_takes_nothing_of_the_time_for_patterns() -> None:
    stopwatch = Stopwatch()
    stopwatch.start()
    end = time.thread_time() + PATTERN_TIMEOUT
    while time.thread_time() < end:
        pass
    with stopwatch as seconds:
        assert seconds == PATTERN_TIMEOUT


def test_what_other_threads_compute_takes_nothing_of_the_time_for_patterns() -> None:
    """The library counts it, and gives up early."""

    class Early(Stopwatch):
        seconds = iter((1e-6, 1e-6, 600.0))

        def __enter__(self) -> float:
            return next(self.seconds)

    stopwatch = Early()
    assert not Pattern("^(a|aa)+$", stopwatch).is_in("a" * 25 + "b")
    assert not [*stopwatch.seconds], "the search began anew"


def test_patterns_that_take_too_long_are_told() -> None:
    slow = pattern("^(a|aa)+$")
    with pytest.raises(TimeoutError):
        slow.is_in("a" * 60 + "b")


def test_a_property_has_the_schemas_of_its_name_and_of_its_patterns() -> None:
    compiled = compile_schema(
        {"properties": {"ab": {}}, "patternProperties": {"^a": {}, "c": {}}, "additionalProperties": False}
    )
    compiled.stopwatch.start()
    root = compiled.root
    assert list(root.of_property("ab")) == [root.properties["ab"], root.patterns[0][1]]
    assert list(root.of_property("xc")) == [root.patterns[1][1]]
    assert list(root.of_property("x")) == [root.additional]
    assert not root.is_closed
    assert compile_schema({"additionalProperties": False}).root.is_closed


def test_an_item_has_the_schema_of_its_place() -> None:
    first, others = Schema(), Schema()
    schema = Schema(prefix=(first,), items=others)
    assert [schema.of_item(i) for i in range(3)] == [first, others, others]
    assert Schema(prefix=(first,)).of_item(1) is None


def test_schemas_for_the_same_value_come_by_role() -> None:
    root = compile_schema(
        {"anyOf": [True, False], "not": {}, "if": {}, "else": {}, "dependentSchemas": {"a": {}}, "items": {}}
    ).root
    assert [(role, len(schemas)) for role, schemas in root.in_place()] == [
        ("any", 2),
        ("not", 1),
        ("if", 1),
        ("else", 1),
        ("with a", 1),
    ]


def test_equal_json_values_have_equal_forms() -> None:
    assert canonical({"a": [1, 2.0], "b": None}) == canonical({"b": None, "a": [1.0, 2]})
    distinct = [1, True, 0, False, "1", None, [1], [[1]], {"1": 1}, {}, [], ""]
    assert len({canonical(value) for value in distinct}) == len(distinct)


def test_a_number_is_exact() -> None:
    assert number_of(0.1) == Decimal("0.1")
    for value in (True, "1", float("nan"), float("inf"), None):
        with pytest.raises(ValueError, match="a number of the schema is not a number"):
            number_of(value)
