"""A real model as clients use it: outputs, JSON, rewinds, cached prefixes and prompts in pieces."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from jsonschema import Draft202012Validator

from benchmarks.public_text import texts
from tests.serving import serving
from tests.weir import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "languages": {"type": "array", "items": {"enum": ["en", "fr", "de"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "languages"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
LONG = [text[:6000] for text in texts()[:4]]
"""Prompts of more than 1,000 tokens."""
COMMON = ("--served-model-name", "real", "--max-model-len", "4096")


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)


def chat(client: openai.OpenAI, text: str, **fields: Any) -> Any:
    return client.chat.completions.create(
        model="real", messages=[{"role": "user", "content": text}], **fields
    )


def answers(client: openai.OpenAI, **fields: Any) -> list[Any]:
    """To the long prompts: texts, logprobs and the prompts' cached tokens."""
    found = []
    for text in LONG:
        asked = {"temperature": 0.8, "seed": 3, "max_tokens": 32, "logprobs": 1, **fields}
        answer = client.completions.create(model="real", prompt=text + "\n\nIn short:", **asked)
        (choice,) = answer.choices
        assert choice.logprobs is not None
        found.append((choice.text, choice.logprobs.token_logprobs))
    return found


@pytest.fixture(scope="module")
def client(smollm2: Path) -> Iterator[openai.OpenAI]:
    with serving("--model", str(smollm2), *COMMON) as url, client_of(url) as client:
        yield client


def test_outputs_of_one_request_are_streamed_as_they_are_collected(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"n": 4, "seed": 11, "temperature": 1.0, "max_tokens": 40}
    whole = chat(client, "Name an animal, and say why you like it.", **fields)
    collected = [choice.message.content for choice in whole.choices]
    streamed = [""] * 4
    for chunk in chat(client, "Name an animal, and say why you like it.", stream=True, **fields):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == collected
    assert len(set(collected)) == 4


def test_json_is_what_its_schema_says(client: openai.OpenAI) -> None:
    for seed in range(8):
        answer = chat(
            client,
            "Invent a person, as JSON.",
            response_format=FORMAT,
            seed=seed,
            temperature=1.0,
            max_tokens=300,
        )
        assert answer.choices[0].finish_reason == "stop"
        Draft202012Validator(SCHEMA).validate(json.loads(answer.choices[0].message.content))


def test_a_cached_beginning_changes_nothing(client: openai.OpenAI, smollm2: Path) -> None:
    with (
        serving("--model", str(smollm2), *COMMON, "--no-enable-prefix-caching") as url,
        client_of(url) as uncached,
    ):
        expected = answers(uncached)
    assert answers(client) == expected
    assert answers(client) == expected
    repeated = client.completions.create(model="real", prompt=LONG[0] + "\n\nIn short:", max_tokens=1)
    assert repeated.usage is not None
    assert repeated.usage.prompt_tokens_details is not None
    assert (repeated.usage.prompt_tokens_details.cached_tokens or 0) > 500


def test_a_prompt_in_pieces_is_read_as_in_one(client: openai.OpenAI, smollm2: Path) -> None:
    with (
        serving("--model", str(smollm2), *COMMON, "--max-num-batched-tokens", "100") as url,
        client_of(url) as in_pieces,
    ):
        assert answers(in_pieces) == answers(client)


def test_a_rewind_has_the_model_say_it_otherwise(smollm2: Path) -> None:
    hook = f"{ROOT}/examples/say_otherwise.py:SayOtherwise"
    question = "Explain in two sentences what a computer program is."
    with serving("--model", str(smollm2), *COMMON, "--hook", hook) as url, client_of(url) as client:
        fields: dict[str, Any] = {"seed": 5, "temperature": 0.7, "max_tokens": 80, "n": 3}
        whole = [choice.message.content for choice in chat(client, question, **fields).choices]
        streamed = [""] * 3
        for chunk in chat(client, question, stream=True, **fields):
            for choice in chunk.choices:
                streamed[choice.index] += choice.delta.content or ""
    assert streamed == whole
    assert not any("computer" in text.lower() for text in whole)
    assert all(len(text.split()) > 10 for text in whole)
