"""Documents under a schema: valid ones are, others stop being possible where nothing valid can follow."""

import json
import random
import time
from itertools import accumulate
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hooks.json.document import Document
from hooks.json.schema_compiler import compile_schema
from tests.hooks.builtin.streams import PLACES, cut


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


def good(schema: Any, text: str) -> int:
    """How many characters of `text` are good, read at once and one by one."""
    whole = Document(compile_schema(schema)).feed(text)
    one_by_one = Document(compile_schema(schema))
    assert sum(one_by_one.feed(char) for char in text) == whole
    return whole


def is_valid(schema: Any, text: str) -> bool:
    document = Document(compile_schema(schema))
    return document.feed(text) == len(text) and document.finish()


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}},
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (PERSON, '{"name": "Ann", "age": 7}'),
        (PERSON, ' {\n"age":7.0 ,"name" : "\\u0041\\n\\ud83d\\ude00\\/"} '),
        (PERSON, '{"\\u006eame": ""}'),
        (True, '[1, -0, 1e5, 0.5E-3, {"a": [null, true, false]}, "\\ud83d"]'),
        ({"type": "number", "multipleOf": 0.01}, "12.34"),
        ({"multipleOf": 9999991}, "1999998200e-2"),
        ({"enum": ["a", {"b": [1, 2]}]}, '{"b": [1.0, 2]}'),
        (TREE, '{"next": {"next": {}}}'),
        ({"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "null"}}}, "null"),
        ({"items": [{"type": "null"}], "additionalItems": {"type": "string"}}, '[null, "a"]'),
        ({"dependencies": {"a": ["b"]}}, '{"b": 1, "a": 2}'),
        ({"type": "string", "format": "date", "description": "no assertion"}, '"no date"'),
        ({"pattern": "^\\d+$"}, '"12"'),
        ({"pattern": "^\\p{L}$"}, '"ü"'),
        ({"pattern": "^a\\sb[\\s\\d]c[+-\\s]$"}, '"a\u00a0b\ufeffc+"'),
    ],
)
def test_a_valid_document_is_good_to_its_end(schema: Any, text: str) -> None:
    assert good(schema, text) == len(text)
    assert is_valid(schema, text)


@pytest.mark.parametrize(
    ("schema", "first", "rest"),
    [
        (PERSON, '{"', 'email": "x"}'),
        (PERSON, '{"name": ', "7}"),
        (PERSON, "", "[]"),
        (PERSON, '{"age": 7', "}"),
        (PERSON, '{"name": "", "age": 7.5', "}"),
        (PERSON, '{"name": "", "age": 7', ", "),
        (PERSON, '{"name": "', '\n"}'),
        (PERSON, '{"name": "\\', 'x"}'),
        (PERSON, '{"name": "", "', 'name": ""}'),
        (PERSON, '{"name": "x"} ', "x"),
        (True, '{"a": 1, "a', '": 2}'),
        (True, "[1", "2]x"[2:]),
        (True, "[0", "1]"),
        (True, "-", "a"),
        (True, "tr", "ee"),
        (True, "[1, ", "]"),
        (True, '{"a": 1, ', "}"),
        (True, "", "'a'"),
        (False, "", "1"),
        ({"enum": ["red", "reed", 5]}, '"re', 'x"'),
        ({"const": "a\nb"}, '"a\\', 't"'),
        ({"pattern": "^ab+$"}, '"abb', 'c"'),
        ({"pattern": "^a$"}, '"a\\', 'n"'),
        ({"pattern": "^\\S+$"}, '"a', '\u00a0"'),
        ({"pattern": "\\bx\\b"}, '"xx', '"'),
        ({"maxLength": 2}, '"ab', 'c"'),
        ({"maxLength": 1}, '"\\ud83d\\ude00', 'c"'),
        ({"minLength": 2}, '"a', '"'),
        ({"items": {"maximum": 10}}, "[11", ", 1]"),
        ({"maxItems": 2}, "[1, 2", ", 3]"),
        ({"maxItems": 0}, "[", "1]"),
        ({"maxProperties": 0}, "{", '"a": 1}'),
        ({"additionalProperties": False}, "{ ", '"a": 1}'),
        ({"const": [1]}, "[1, 1", "]"),
        ({"prefixItems": [True], "items": False}, "[1", ", 2]"),
        ({"maxProperties": 1}, '{"a": 1', ', "b": 2}'),
        ({"propertyNames": {"maxLength": 1}}, '{"a', 'b": 1}'),
        ({"additionalProperties": {"type": "null"}, "patternProperties": {"^x": True}}, '{"a": ', "1}"),
        ({"patternProperties": {"^x": True}, "additionalProperties": False}, '{"ax', '": 1}'),
        ({"uniqueItems": True}, "[1, true, 1.0", "]"),
        ({"uniqueItems": True}, "[[1], [true], [1.0", "]]"),
        ({"contains": {"const": 1}}, "[2", "]"),
        ({"contains": True, "maxContains": 1}, "[2, 3", "]"),
        ({"dependentRequired": {"a": ["b"]}}, '{"a": 1', "}"),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, '{"a": 1', "}"),
        ({"not": {"required": ["a"]}}, '{"a": 1', "}"),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, '{"a": 1, "b": 2', "}"),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "", "{}"),
        ({"anyOf": [{"maxLength": 2}, {"pattern": "^abx"}]}, '"ab', 'c"'),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, '{"a": 1', "}"),
        ({"if": {"type": "string"}, "then": True, "else": {"type": "null"}}, "", "5"),
        ({"allOf": [{"type": "object"}], "const": 1, "enum": [1, 2]}, "", "1"),
        (TREE, '{"next": {"next": {"', 'x": 1}}}'),
    ],
)  # fmt: skip
def test_it_ends_at_the_first_character_that_cannot_be(schema: Any, first: str, rest: str) -> None:
    assert good(schema, first + rest) == len(first)


@pytest.mark.parametrize("text", ["", " ", "{", '{"a"', '"abc', "[1, ", "tru", "1.", "-", "1e+", '"\\u12'])
def test_what_is_incomplete_is_not_valid(text: str) -> None:
    assert good(True, text) == len(text)
    assert not is_valid(True, text)


def test_a_number_at_the_end_is_judged_there() -> None:
    assert good({"type": "integer"}, "1.5") == 3
    assert not is_valid({"type": "integer"}, "1.5")
    assert is_valid({"type": "integer"}, "1.5e1")


TEXTS = st.sampled_from(["", "a", "b", "ab", "abc", "ba", "é", "😀", "\t", '"', "\\", "x y"])
NUMBERS = st.sampled_from([0, 1, 2, -1, 3, 10, 0.5, 1.5, 1e10, -0.0, 2.0])
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
COUNTS = st.integers(0, 3)
ASSERTIONS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.lists(
            st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"]),
            min_size=1,
            max_size=4,
            unique=True,
        ),
        "enum": st.lists(VALUES, min_size=1, max_size=4),
        "const": VALUES,
        "minimum": NUMBERS,
        "maximum": NUMBERS,
        "exclusiveMinimum": NUMBERS,
        "exclusiveMaximum": NUMBERS,
        "multipleOf": st.sampled_from([1, 2, 0.5, 3]),
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "pattern": st.sampled_from(["a", "^a", "^a+$", "b$", "^[ab]*$", "^(a|ab)(c|bc)$", "(?=ab)", "x\\b"]),
        "minItems": COUNTS,
        "maxItems": COUNTS,
        "uniqueItems": st.booleans(),
        "minProperties": COUNTS,
        "maxProperties": COUNTS,
        "required": st.lists(TEXTS, max_size=2, unique=True),
        "dependentRequired": st.dictionaries(TEXTS, st.lists(TEXTS, max_size=2, unique=True), max_size=2),
    },
)
MOST = dict[str, Any]


def _with_parts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    parts = st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(TEXTS, inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b", "^$"]), inner, max_size=2),
            "additionalProperties": inner,
            "propertyNames": inner,
            "dependentSchemas": st.dictionaries(TEXTS, inner, max_size=2),
            "prefixItems": some,
            "items": inner,
            "contains": inner,
            "minContains": COUNTS,
            "maxContains": COUNTS,
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
        },
    )
    return st.builds(lambda a, b: {**a, **b}, ASSERTIONS, parts)


SCHEMAS = st.recursive(st.booleans() | ASSERTIONS, _with_parts, max_leaves=6)


def written(value: Any, seed: int) -> str:
    """JSON, its spaces, escapes and keys' order drawn with `seed`."""
    rng = random.Random(seed)

    def space() -> str:
        return rng.choice(["", "", " ", "\n\t"])

    def write(one: Any) -> str:
        if isinstance(one, dict):
            members = [f"{write(key)}{space()}:{space()}{write(item)}" for key, item in one.items()]
            rng.shuffle(members)
            return "{" + space() + ",".join(members) + space() + "}"
        if isinstance(one, list):
            return "[" + space() + f"{space()},".join(map(write, one)) + space() + "]"
        return json.dumps(one, ensure_ascii=rng.random() < 0.5)

    return space() + write(value) + space()


@given(SCHEMAS, VALUES, st.integers(0, 99), PLACES)
@example({"enum": [1, False]}, True, 0, [])
@example({"not": {"items": {"not": {"const": 1}}}}, [2, 1], 0, [])
def test_it_says_what_another_validator_says_of_the_whole(
    schema: Any, value: Any, seed: int, places: list[int]
) -> None:
    text = written(value, seed)
    expected = jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
    assert is_valid(schema, text) == expected
    pieces = Document(compile_schema(schema))
    count = 0
    for piece in cut(text, places):
        taken = pieces.feed(piece)
        count += taken
        if taken < len(piece):
            break
    assert count == good(schema, text)


@given(VALUES, st.integers(0, 99))
def test_a_document_that_ends_too_soon_is_possible_and_not_complete(value: Any, seed: int) -> None:
    text = written(value, seed).strip()
    schema = {"const": value}
    for end in range(len(text)):
        document = Document(compile_schema(schema))
        assert document.feed(text[:end]) == end
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        assert not document.finish() or is_number


def test_a_value_with_too_much_to_follow_is_too_complex() -> None:
    growing = {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}, "minItems": 0}]}
    document = Document(compile_schema(growing))
    assert document.feed("[" * 50) < 20
    assert document.is_too_complex


@pytest.mark.parametrize(
    "pattern", ["^(a|aa)+$", "(x+x+)+y", "^(a{1,500}){1,500}$", "((((a{0,200}){0,200}){0,200}){0,200})"]
)
def test_a_hostile_pattern_is_bounded(pattern: str) -> None:
    schema = {"anyOf": [{"pattern": f"{pattern}(?:{i})?"} for i in range(50)]}
    document = Document(compile_schema(schema))
    begun = time.process_time()
    try:
        document.feed('"' + "a" * 100 + "x" * 150)
        document.feed('x"')
    except TimeoutError:
        pass
    assert time.process_time() - begun < 20  # as it would not be for centuries


def test_numbers_are_exact_and_bounded() -> None:
    assert is_valid({"multipleOf": 0.1}, "1" + "0" * 300 + ".3")
    assert not is_valid({"multipleOf": 3}, "1e99999")
    assert is_valid({"multipleOf": 3}, "3e99999")
    assert is_valid({"maximum": 1e300}, "-1e99999")
    assert not is_valid({"maximum": 10**350}, "1e351")
    assert not is_valid(True, "1" * 1000)
    assert not is_valid(True, "1e" + "9" * 20)
    assert is_valid({"type": "integer"}, "-0.0")


def test_a_long_string_costs_no_more_at_its_end() -> None:
    schema = {"maxLength": 10**9, "pattern": "^[a-z ]*$"}
    document = Document(compile_schema(schema))
    document.feed('"')
    looks = list(accumulate(document.feed("word ") for _ in range(20_000)))
    assert looks[-1] == 100_000
    assert sum(map(len, document._text)) == 100_000
