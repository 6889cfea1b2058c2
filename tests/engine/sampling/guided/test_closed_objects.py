"""Objects have the properties that their schema names: an absent `additionalProperties` counts as false."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from engine.sampling.guided import check, closed_objects
from engine.sampling.guided.closed_objects import with_closed_objects
from engine.sampling.guided.compiler import GrammarCompiler
from engine.sampling.guided.grammar import Grammar
from tests.engine.sampling.guided.schemas import Schemas

BYTES = LLTokenizer(TokenizerWrapper(check.Bytes(257)))


def closed(schema: Any) -> Any:
    return json.loads(with_closed_objects(json.dumps(schema)))


def accepts(schema: Any, value: Any) -> bool:
    """Whether the closed schema lets the model write the value."""
    grammar = check.convert("json", json.dumps(closed(schema)), " ?")
    matcher = LLMatcher(BYTES, grammar, log_level=0, limits=check.limits())
    assert not matcher.is_error(), matcher.get_error()
    text = json.dumps(value).encode()
    return bool(matcher.try_consume_tokens(list(text)) == len(text) and matcher.is_accepting())


def named(*names: str, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "integer"} for name in names}, **keywords}


BASE = {"$defs": {"base": named("a", required=["a"])}}
REF = {"$ref": "#/$defs/base"}
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "plain": (named("a"), [{"a": 1}, {}], [{"b": 1}, {"a": 1, "b": 1}]),
    "no property named": ({"type": "object"}, [{}, {"x": {"y": 1}}], []),
    "an empty list of properties": (named(), [{}], [{"x": 1}]),
    "explicitly open": (named("a", additionalProperties=True), [{"a": 1, "b": "c"}], []),
    "a schema for others": (
        named("a", additionalProperties={"type": "boolean"}),
        [{"a": 1, "b": True}],
        [{"b": 1}],
    ),
    "patterns": (
        named("a", patternProperties={"^x": {"type": "integer"}}),
        [{"a": 1, "xy": 2}],
        [{"xy": "no"}, {"y": 1}],
    ),
    "patterns alone": ({"patternProperties": {"^x": {}}, "type": "object"}, [{"xy": 2}], [{"y": 1}]),
    "required and not named": (named("a", required=["z"]), [{"a": 1, "z": [2]}], [{"a": 1, "z": 1, "y": 2}]),
    "any type": ({"properties": {"a": {}}}, [3, {"a": 3}], [{"b": 3}]),
    "nested": (
        {
            "type": "array",
            "prefixItems": [named("b"), {"anyOf": [named("c"), {"type": "null"}]}],
            "items": named("a"),
        },
        [[{"b": 1}, {"c": 1}, {"a": 1}], [{}, None]],
        [[{"a": 1}], [{}, {"a": 1}], [{}, {}, {"b": 1}]],
    ),
    "in values of other properties": (
        {"type": "object", "additionalProperties": named("a")},
        [{"x": {"a": 1}}],
        [{"x": {"b": 1}}],
    ),
    "a property called properties": (
        {"type": "object", "properties": {"properties": named("a"), "$ref": {"type": "integer"}}},
        [{"properties": {"a": 1}, "$ref": 1}],
        [{"properties": {"additionalProperties": False}}],
    ),
    "values that look like schemas": (
        {"enum": [{"properties": {"a": 1}}, {"properties": 2}]},
        [{"properties": {"a": 1}}],
        [{"properties": {"a": 1}, "additionalProperties": False}],
    ),
    "a reference": ({**BASE, "type": "array", "items": REF}, [[{"a": 1}]], [[{"a": 1, "b": 2}]]),
    "a reference to the root": (
        {"type": "object", "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}},
        [{"next": {"next": None}}],
        [{"next": {"other": 1}}],
    ),
    "a choice": (
        {"anyOf": [named("a", required=["a"]), named("b", required=["b"])]},
        [{"a": 1}, {"b": 1}],
        [{"a": 1, "b": 1}, {"c": 1}],
    ),
    "one of": ({"oneOf": [named("a"), {"type": "string"}]}, [{"a": 1}, "x"], [{"a": 1, "b": 1}]),
    "all of one": ({**BASE, "allOf": [REF]}, [{"a": 1}], [{"a": 1, "b": 1}]),
    "all of several": (
        {**BASE, "allOf": [REF, named("b"), named("c")]},
        [{"a": 1, "b": 2, "c": 3}],
        [{"a": 1, "d": 2}, {"a": "x"}, {"b": 1}],
    ),
    "properties beside a reference": (
        {**BASE, **REF, **named("b")},
        [{"a": 1, "b": 2}],
        [{"a": 1, "b": 1, "d": 2}, {"a": "x", "b": 1}],
    ),
    "properties beside a choice": (
        {**named("a"), "anyOf": [named("b", required=["b"]), {"required": ["a"]}]},
        [{"a": 1, "b": 2}, {"a": 1}],
        [{"a": 1, "d": 2}, {}],
    ),
    "a definition that is a part here and a whole there": (
        {**BASE, "type": "array", "prefixItems": [REF, {"allOf": [REF, named("b")]}]},
        [[{"a": 1}, {"a": 1, "b": 2}]],
        [[{"a": 1, "b": 2}], [{"a": 1}, {"a": 1, "c": 2}]],
    ),
    "values inside of parts": (
        {"allOf": [{"properties": {"x": named("a")}}, {"properties": {"y": named("b")}}]},
        [{"x": {"a": 1}, "y": {"b": 1}}],
        [{"x": {"b": 1}}],
    ),
    "parts of parts": (
        {
            "$defs": {"one": named("a"), "two": {"allOf": [{"$ref": "#/$defs/one"}, named("b")]}},
            "allOf": [{"$ref": "#/$defs/two"}, named("c")],
        },
        [{"a": 1, "b": 2, "c": 3}],
        [{"d": 1}],
    ),
    "a part that is open": (
        {"allOf": [named("a"), named("b", additionalProperties=True)]},
        [{"a": 1, "b": 1, "c": 1}],
        [],
    ),
    "parts that name nothing": ({"allOf": [{"type": "object"}, {"required": ["a"]}]}, [{"a": 1, "b": 1}], []),
}


@pytest.mark.parametrize("case", CASES)
def test_an_object_has_the_named_properties_only(case: str) -> None:
    schema, right, wrong = CASES[case]
    for value in right:
        Draft202012Validator(schema).validate(value)
        assert accepts(schema, value), value
    for value in wrong:
        assert not accepts(schema, value), value


@pytest.mark.parametrize(
    "schema",
    [
        True,
        3,
        named("a", unevaluatedProperties=False),
        {"allOf": [{"$ref": "https://example.com/x"}, named("a")]},
        {"allOf": [{"$ref": "#somewhere"}, named("a")]},
        {"allOf": [{"$ref": "#/$defs/absent"}, named("a")]},
        {"allOf": [{"$ref": ["#"]}, named("a")]},
        {"properties": {"x": named("a", **{"$id": "https://example.com/x"})}},
        {"properties": 3, "required": True, "allOf": "x", "items": 5, "$defs": []},
        {"required": [{}, 1], "allOf": [1, {"anyOf": {}}], "patternProperties": []},
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_closed_stays_as_it_is(schema: Any) -> None:
    assert closed(schema) == schema


def test_closing_takes_a_bounded_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each definition has the parts of all that follow."""
    num_calls = 0
    count = closed_objects._Document._count

    def counting(self: Any, num: int = 1) -> None:
        nonlocal num_calls
        num_calls += 1
        count(self, num)

    monkeypatch.setattr(closed_objects._Document, "_count", counting)
    parts = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, named(f"p{i}")]} for i in range(999)}
    schema = {"$defs": parts | {"d999": named("q")}, "$ref": "#/$defs/d0"}
    assert closed(schema) == schema
    assert num_calls <= closed_objects.MAX_STEPS + 1


def test_random_schemas_that_decide_for_themselves_stay_the_same() -> None:
    drawn = Schemas(seed=1)
    for schema in [drawn.draw() for _ in range(200)]:
        assert closed(schema) == schema


@pytest.fixture
def compiler(tiny_core: Callable[..., Any]) -> Iterator[GrammarCompiler]:
    guidance = tiny_core().processor.guidance
    yield guidance._compiler
    guidance.close()


def test_the_grammar_that_vllm_gets_is_closed(compiler: GrammarCompiler) -> None:
    source = compiler.compile(Grammar("json", json.dumps(named("a")))).source
    assert json.loads(source.text) == named("a", additionalProperties=False)
