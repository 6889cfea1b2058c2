"""Guided decoding through `weir serve` and the official SDK, on the model that ships."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI

from tests.serving import ROOT

ASK: Any = [{"role": "user", "content": "Where is my order 48213?"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 1, "maximum": 99999},
        "status": {"enum": ["sent", "lost"]},
        "note": {"type": "string", "maxLength": 20},
    },
    "required": ["number", "status", "note"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "order", "schema": SCHEMA, "strict": True}}
TEXT: Any = {"format": {"type": "json_schema", "name": "order", "schema": SCHEMA, "strict": True}}


@pytest.fixture
def client(weir_serve: Callable[..., str]) -> Iterator[OpenAI]:
    with OpenAI(base_url=weir_serve() + "/v1", api_key="none", max_retries=0) as client:
        yield client


def test_every_endpoint_gives_what_the_schema_says_streaming_or_not(client: OpenAI) -> None:
    fields: dict[str, Any] = {"model": "weir-demo", "temperature": 1.0, "seed": 7}
    whole = client.chat.completions.create(messages=ASK, response_format=FORMAT, n=3, **fields)
    texts = [choice.message.content or "" for choice in whole.choices]
    assert {choice.finish_reason for choice in whole.choices} == {"stop"}
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(
        messages=ASK, response_format=FORMAT, n=3, stream=True, **fields
    ):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts
    response = client.responses.create(
        input=ASK[0]["content"], text=TEXT, extra_body={"seed": 7}, model="weir-demo"
    )
    assert response.output_text == texts[0]
    completion = client.completions.create(
        prompt="An order:", max_tokens=200, extra_body={"response_format": FORMAT}, **fields
    )
    for text in (*texts, completion.choices[0].text):
        Draft202012Validator(SCHEMA).validate(json.loads(text))


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ({"guided_choice": ["yes", "no"]}, ["yes", "no"]),
        ({"guided_regex": "(a|b)c"}, ["ac", "bc"]),
        ({"guided_grammar": 'root ::= "x" | "y"'}, ["x", "y"]),
        ({"guided_json": {"enum": [1, 2]}}, ["1", "2"]),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, ["yes", "no"]),
        ({"structured_outputs": {"json_object": True}, "max_tokens": 200, "seed": 4}, None),
    ],
)
def test_the_fields_of_vllm_are_taken(body: dict[str, Any], texts: list[str] | None, client: OpenAI) -> None:
    answer = client.completions.create(model="weir-demo", prompt="So:", extra_body=body).choices[0]
    assert answer.finish_reason == "stop"
    if texts is None:
        assert isinstance(json.loads(answer.text), dict)
    else:
        assert answer.text in texts


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": {"type": "yaml"}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}},
            "response_format.json_schema.schema",
        ),
        (
            {
                "guided_json": {
                    "allOf": [{"type": "integer", "multipleOf": n} for n in (9973, 9967, 9949, 9941)]
                }
            },
            "guided_json",
        ),
        ({"guided_regex": "("}, "guided_regex"),
        ({"structured_outputs": {"grammar": "?"}}, "structured_outputs.grammar"),
    ],
)
def test_what_is_no_grammar_is_a_400_with_the_field(body: dict[str, Any], param: str, client: OpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="weir-demo", messages=ASK, stream=stream, extra_body=body)
        assert caught.value.param == param
    text: Any = {"format": {"type": "json_schema", "name": "n", "schema": {"type": "x"}}}
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="weir-demo", input="Hello", text=text)
    assert caught.value.param == "text.format.schema"


def test_the_example_prints_an_object_and_a_choice(weir_serve: Callable[..., str]) -> None:
    command = [sys.executable, "examples/structured_output.py", weir_serve() + "/v1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("number=")
    assert second in ("Yes.", "No.", "I do not know.")
