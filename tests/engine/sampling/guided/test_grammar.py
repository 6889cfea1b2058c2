"""The fields of a request ask for a grammar, or are refused by name."""

from typing import Any

import pytest

from engine.protocol import GenerationRequest, RequestError
from engine.sampling.guided.grammar import WHITESPACE, Grammar, requested_grammar

SCHEMA = {"type": "integer"}
TEXT = '{"type":"integer"}'


def request_with(endpoint: Any = "chat", **extra: Any) -> GenerationRequest:
    return GenerationRequest(request_id="r", model="m", endpoint=endpoint, extra=extra)


@pytest.mark.parametrize(
    ("extra", "grammar", "field"),
    [
        (
            {"response_format": {"type": "json_object"}},
            Grammar("json", '{"type":"object"}'),
            "response_format",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            Grammar("json", TEXT),
            "response_format.json_schema.schema",
        ),
        ({"guided_json": SCHEMA}, Grammar("json", TEXT), "guided_json"),
        ({"guided_json": TEXT}, Grammar("json", TEXT), "guided_json"),
        ({"guided_json": True}, Grammar("json", "{}"), "guided_json"),
        ({"guided_regex": "a+"}, Grammar("regex", "a+"), "guided_regex"),
        ({"guided_choice": ["a", "é"]}, Grammar("choice", '["a","é"]'), "guided_choice"),
        ({"guided_grammar": 'root ::= "a"'}, Grammar("grammar", 'root ::= "a"'), "guided_grammar"),
        (
            {"guided_json": SCHEMA, "guided_whitespace_pattern": "x?"},
            Grammar("json", TEXT, "x?"),
            "guided_json",
        ),
        (
            {"response_format": {"type": "json_object"}, "guided_whitespace_pattern": "x?"},
            Grammar("json", '{"type":"object"}', "x?"),
            "response_format",
        ),
        ({"structured_outputs": {"json": SCHEMA}}, Grammar("json", TEXT), "structured_outputs.json"),
        (
            {"structured_outputs": {"json_object": True}},
            Grammar("json", '{"type":"object"}'),
            "structured_outputs.json_object",
        ),
        ({"structured_outputs": {"regex": "a"}}, Grammar("regex", "a"), "structured_outputs.regex"),
        (
            {"structured_outputs": {"choice": ["a"], "json": None}},
            Grammar("choice", '["a"]'),
            "structured_outputs.choice",
        ),
        (
            {"structured_outputs": {"grammar": 'start: "a"'}},
            Grammar("grammar", 'start: "a"'),
            "structured_outputs.grammar",
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            Grammar("json", TEXT, ""),
            "structured_outputs.json",
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": "[ ]?"}},
            Grammar("json", TEXT, "[ ]?"),
            "structured_outputs.json",
        ),
    ],
)
def test_each_field_asks_for_a_grammar(extra: dict[str, Any], grammar: Grammar, field: str) -> None:
    assert requested_grammar(request_with(**extra)) == (grammar, field)


def test_the_responses_endpoint_calls_the_field_text_format() -> None:
    extra = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
    assert requested_grammar(request_with("responses", **extra)) == (
        Grammar("json", TEXT, WHITESPACE),
        "text.format.schema",
    )


@pytest.mark.parametrize(
    "extra", [{}, {"response_format": {"type": "text"}}, {"guided_json": None}, {"response_format": None}]
)
def test_a_request_without_such_fields_has_no_grammar(extra: dict[str, Any]) -> None:
    assert requested_grammar(request_with(**extra)) is None


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}},
            "response_format.json_schema.schema",
        ),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": 3}, "guided_json"),
        ({"guided_json": 0}, "guided_json"),
        ({"guided_choice": 0}, "guided_choice"),
        ({"guided_json": {"const": object()}}, "guided_json"),
        ({"guided_regex": ["a"]}, "guided_regex"),
        ({"guided_regex": "\ud800"}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": [1]}, "guided_choice"),
        ({"guided_choice": "ab"}, "guided_choice"),
        ({"guided_grammar": {}}, "guided_grammar"),
        ({"guided_json": SCHEMA, "guided_whitespace_pattern": 3}, "guided_whitespace_pattern"),
        ({"structured_outputs": []}, "structured_outputs"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": "a", "tag": "x"}}, "structured_outputs.tag"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
    ],
)
def test_an_invalid_field_is_refused_by_its_name(extra: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        requested_grammar(request_with(**extra))
    assert caught.value.param == param
    assert param in str(caught.value)
