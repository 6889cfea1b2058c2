"""Streams of the embedded model that a guard takes back: safe, whole, and no dearer than what was taken."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI

from benchmarks.rewind import QUESTIONS, measure
from tests.serve.test_guided import ASK, FORMAT, SCHEMA, TEXT

FORBIDDEN = ("bluebird", "help@", "sent")
CONFIG = """\
hooks:
  - path: phrases
    args: {phrases: [bluebird, "help@", sent], word_boundaries: false, action: rewind}
"""


async def test_streams_that_are_taken_back_end_well() -> None:
    result = await measure(num_streams=60, num_neighbours=4, num_threads=1)
    assert result.num_rewinds > result.num_streams / 2
    assert result.num_leaks == 0
    assert result.num_cut <= 0.05 * result.num_streams
    assert result.num_more_steps <= result.num_withdrawn + result.num_rewinds
    assert result.num_changed == 0


@pytest.fixture(params=[(), ("--hook-workers", "1")], scope="module")
def client(
    request: pytest.FixtureRequest, weir_serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenAI]:
    config = tmp_path_factory.mktemp("rewind") / "weir.yaml"
    config.write_text(CONFIG)
    url = weir_serve("--config", str(config), *request.param)
    with OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("question", [QUESTIONS[0], QUESTIONS[3]])
def test_a_stream_that_was_taken_back_is_the_whole_answer(client: OpenAI, question: str) -> None:
    """Contract 2.5, and seeds: what comes instead does not depend on how far the engine was ahead."""
    fields: dict[str, Any] = {
        "model": "weir-demo",
        "messages": [{"role": "user", "content": question}],
        "n": 2,
        "seed": 5,
        "temperature": 1.0,
        "logprobs": True,
        "top_logprobs": 3,
    }
    whole = client.chat.completions.create(**fields)
    texts, told = ["", ""], ["", ""]
    for chunk in client.chat.completions.create(stream=True, **fields):
        assert not any(phrase in chunk.model_dump_json().lower() for phrase in FORBIDDEN)
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            for token in (choice.logprobs and choice.logprobs.content) or ():
                told[choice.index] += token.token
    assert texts == [choice.message.content for choice in whole.choices]
    assert all(text in of_tokens for text, of_tokens in zip(texts, told, strict=True))
    assert {choice.finish_reason for choice in whole.choices} == {"stop"}
    assert not any(phrase in whole.model_dump_json().lower() for phrase in FORBIDDEN)
    assert whole.usage is not None
    num_given = sum(
        len(choice.logprobs.content or ()) for choice in whole.choices if choice.logprobs is not None
    )
    assert whole.usage.completion_tokens > num_given, "what was withdrawn counts (contract 6.1)"


def test_json_stays_what_its_schema_says(client: OpenAI) -> None:
    fields: dict[str, Any] = {"model": "weir-demo", "temperature": 1.0}
    found = []
    for seed in range(6):
        answer = client.chat.completions.create(messages=ASK, response_format=FORMAT, seed=seed, **fields)
        assert answer.choices[0].finish_reason == "stop"
        found.append(json.loads(answer.choices[0].message.content or ""))
    question = ASK[0]["content"]
    response = client.responses.create(input=question, text=TEXT, extra_body={"seed": 0}, **fields)
    assert json.loads(response.output_text) == found[0]
    for document in found:
        Draft202012Validator(SCHEMA).validate(document)
        assert document["status"] == "lost"
