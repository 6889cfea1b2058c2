"""The official `openai` SDK, unmodified, against `weir serve`."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.serving import ROOT

ASK: Any = [{"role": "user", "content": "Where is my order 48213?"}]


@pytest.fixture
def url(weir_serve: Callable[..., str]) -> str:
    return weir_serve() + "/v1"


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def test_whole_and_streamed_answers_agree(client: OpenAI) -> None:
    model = client.models.list().data[0].id
    whole = client.chat.completions.create(model=model, messages=ASK, temperature=0)
    assert "48213" in (whole.choices[0].message.content or "")
    assert whole.choices[0].finish_reason == "stop"
    stream = client.chat.completions.create(
        model=model, messages=ASK, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    first, second = whole.usage.model_dump(), chunks[-1].usage.model_dump()
    assert second.pop("prompt_tokens_details")["cached_tokens"] >= 16, "all but the end of the same prompt"
    first.pop("prompt_tokens_details")
    assert first == second


def test_the_stream_helper_puts_the_answer_together(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="weir-demo", messages=ASK, temperature=0, logprobs=True
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert final.choices[0].message.content == text
    assert final.choices[0].logprobs is not None
    assert "48213" in text


async def test_many_async_streams_at_once(url: str) -> None:
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

        async def ask(number: int) -> str:
            stream = await client.chat.completions.create(
                model="weir-demo",
                messages=[{"role": "user", "content": f"Where is my order {number}?"}],
                temperature=0,
                stream=True,
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        import asyncio

        numbers = range(31400, 31416)
        answers = await asyncio.gather(*(ask(number) for number in numbers))
    assert all(answers)
    assert sum(str(number) in answer for number, answer in zip(numbers, answers, strict=True)) >= 14


def test_completions_echo_their_prompt_with_logprobs(client: OpenAI) -> None:
    done = client.completions.create(
        model="weir-demo",
        prompt=["Hello there", "Good evening"],
        max_tokens=4,
        temperature=0,
        echo=True,
        logprobs=2,
    )
    for choice, prompt in zip(done.choices, ("Hello there", "Good evening"), strict=True):
        assert choice.text.startswith(prompt)
        assert choice.logprobs is not None
        assert choice.logprobs.token_logprobs[0] is None
        assert all(lp <= 0 for lp in choice.logprobs.token_logprobs[1:])
        assert "".join(choice.logprobs.tokens or []) == choice.text


def test_a_whole_and_a_streamed_response_agree(client: OpenAI) -> None:
    asked = {"model": "weir-demo", "input": ASK, "temperature": 0}
    whole = client.responses.create(**asked)
    assert "48213" in whole.output_text
    with client.responses.stream(**asked) as stream:
        assert stream.get_final_response().output_text == whole.output_text
    short = client.responses.create(**asked, max_output_tokens=2)
    assert short.status == "incomplete"
    tool = {"type": "function", "name": "f", "parameters": {}, "strict": False}
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.responses.create(**asked, tools=[tool])


def test_errors_are_the_sdks_own(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=ASK)
    with pytest.raises(openai.BadRequestError, match="maximum context length") as caught:
        client.chat.completions.create(
            model="weir-demo", messages=[{"role": "user", "content": "word " * 20_000}]
        )
    assert caught.value.param == "messages"
    with pytest.raises(openai.BadRequestError, match="logit_bias"):
        client.chat.completions.create(model="weir-demo", messages=ASK, logit_bias={"9999999": 1})


def test_the_example_prints_a_streamed_answer(url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "examples/openai_sdk.py", url], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "48213" in ran.stdout
