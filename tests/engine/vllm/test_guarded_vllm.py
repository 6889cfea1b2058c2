"""What a client can steer and what a hook takes back, on vLLM with the model that ships."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
from openai import OpenAI

from benchmarks.rewind import QUESTIONS
from engine.protocol.demo import MODEL_DIR
from tests.serve.test_cuts import config as config
from tests.serve.test_cuts import (
    test_an_answer_that_the_client_ends_inside_a_phrase_has_no_part_of_it as test_cuts,
)
from tests.serve.test_guided import ASK, FORMAT
from tests.serve.test_rewind import FORBIDDEN
from tests.serve.test_rewind import client as client
from tests.serving import serving

__all__ = ["test_cuts"]

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

WEIR = (sys.executable, "-m", "proxy")
ON_VLLM = (
    *("--engine", "vllm", "--model", str(MODEL_DIR), "--served-model-name", "weir-demo"),
    *("--vllm-dtype", "float32", "--vllm-enforce-eager", "--vllm-max-num-seqs", "4"),
)


@pytest.fixture(scope="module")
def weir_serve(vllm_environment: None) -> Iterator[Callable[..., str]]:
    """As the fixture of all tests, on vLLM. Each start takes a minute."""
    with ExitStack() as stack:
        yield cache(lambda *options: stack.enter_context(serving(*ON_VLLM, *options, weir=WEIR)))


def fields_of(question: str) -> dict[str, Any]:
    return {
        "model": "weir-demo",
        "messages": [{"role": "user", "content": question}],
        "seed": 5,
        "temperature": 1.0,
        "max_tokens": 60,
        "logprobs": True,
        "top_logprobs": 3,
    }


@pytest.mark.parametrize("question", QUESTIONS)
def test_nothing_that_was_taken_back_reaches_a_client(client: OpenAI, question: str) -> None:
    """Contract 2.5, 8.3: neither by text nor by logprobs, streamed or whole."""
    whole = client.chat.completions.create(**fields_of(question))
    text = ""
    for chunk in client.chat.completions.create(stream=True, **fields_of(question)):
        assert not any(phrase in chunk.model_dump_json().lower() for phrase in FORBIDDEN)
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert not any(phrase in whole.model_dump_json().lower() for phrase in FORBIDDEN)


def test_usage_counts_what_was_taken_back(client: OpenAI) -> None:
    """Contract 6.1."""
    answer = client.chat.completions.create(**fields_of(QUESTIONS[0]))
    assert answer.usage is not None
    assert answer.choices[0].logprobs is not None
    assert answer.usage.completion_tokens > len(answer.choices[0].logprobs.content or ())


def test_a_phrase_in_json_ends_the_request(client: OpenAI) -> None:
    """With a grammar, vLLM cannot go back: contract 8.3 has the rewind end the request."""
    answers = [
        client.chat.completions.create(
            model="weir-demo", messages=ASK, response_format=FORMAT, seed=seed, max_tokens=200
        )
        for seed in range(4)
    ]
    assert not any(phrase in one.model_dump_json().lower() for one in answers for phrase in FORBIDDEN)
    assert {one.choices[0].finish_reason for one in answers} <= {"stop", "length", "content_filter"}
