"""Requests share cached prompts; salts, candidates and priorities."""

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import OpenAI

ASK = "Tell me, please: where is my order number 77120 now, and when will it be here?"


@pytest.fixture
def serve(weir_serve: Callable[..., str]) -> Callable[..., OpenAI]:
    def client(*options: str) -> OpenAI:
        return OpenAI(base_url=weir_serve(*options) + "/v1", api_key="none", max_retries=0)

    return client


def chat(client: OpenAI, text: str, **more: Any) -> Any:
    return client.chat.completions.create(
        model="weir-demo", messages=[{"role": "user", "content": text}], temperature=0, **more
    )


def cached(answer: Any) -> int:
    return int(answer.usage.prompt_tokens_details.cached_tokens)


def test_a_prompt_asked_again_is_cached_and_answered_alike(serve: Callable[..., OpenAI]) -> None:
    with serve() as client:
        first, second = (chat(client, ASK, extra_body={"cache_salt": "twice"}) for _ in range(2))
        assert cached(first) == 0
        assert 16 <= cached(second) < second.usage.prompt_tokens
        assert first.choices[0].message.content == second.choices[0].message.content


def test_a_salt_is_not_shared(serve: Callable[..., OpenAI]) -> None:
    with serve() as client:
        salts = ({"cache_salt": "one"}, {"cache_salt": "other"}, {"cache_salt": "one"})
        first, other, again = (cached(chat(client, "Not shared! " + ASK, extra_body=s)) for s in salts)
    assert (first, other) == (0, 0)
    assert again >= 16


def test_a_response_tells_what_was_cached(serve: Callable[..., OpenAI]) -> None:
    with serve() as client:
        made = [
            client.responses.create(
                model="weir-demo", input=ASK, temperature=0, extra_body={"cache_salt": "responses"}
            )
            for _ in range(2)
        ]
    first, second = (response.usage.input_tokens_details.cached_tokens for response in made)
    assert (first, second >= 16) == (0, True)


def test_the_cache_can_be_turned_off(serve: Callable[..., OpenAI]) -> None:
    with serve("--no-enable-prefix-caching") as client:
        assert [cached(chat(client, ASK)) for _ in range(2)] == [0, 0]


def test_the_best_candidates_are_given_and_all_are_counted(serve: Callable[..., OpenAI]) -> None:
    asked: dict[str, Any] = {"model": "weir-demo", "prompt": ASK, "max_tokens": 8, "seed": 1}
    with serve() as client:
        made = client.completions.create(**asked, n=2, best_of=6, extra_body={"ignore_eos": True})
        assert [choice.index for choice in made.choices] == [0, 1]
        assert all(choice.finish_reason == "length" and not choice.logprobs for choice in made.choices)
        assert made.usage.completion_tokens == 6 * 8
        with pytest.raises(openai.BadRequestError, match="best_of"):
            client.completions.create(**asked, best_of=2, stream=True)
        with pytest.raises(openai.BadRequestError, match="best_of"):
            client.completions.create(**asked, n=3, best_of=2)


def test_priorities_need_their_policy(serve: Callable[..., OpenAI]) -> None:
    with serve() as client:
        with pytest.raises(openai.BadRequestError, match="priority"):
            chat(client, "Hello!", extra_body={"priority": -1})
        assert chat(client, "Hello!", extra_body={"priority": 0}).choices
    with serve("--scheduling-policy", "priority") as client:
        assert chat(client, "Hello!", extra_body={"priority": -1}).choices
