"""The body of a request to an upstream."""

from typing import Any

import pytest

from engine.protocol import GenerationRequest, RequestError, SamplingParams
from engine.upstream.openai.request import request_body
from tests.engine.upstream.openai.asked import HI, chat, completion


def test_holds_nothing_that_is_default() -> None:
    assert request_body(chat()) == {
        "model": "m",
        "messages": list(HI),
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_names_parameters_as_upstreams_do() -> None:
    sampling = SamplingParams(
        n=2, max_tokens=0, top_k=3, stop=("a",), logit_bias={7: 1.0}, logprobs=2, min_p=0.1
    )
    body = request_body(completion("a", (1, 2), sampling=sampling, echo=True, user="u"), "upstream-name")
    assert body == {
        "model": "upstream-name",
        "prompt": ["a", (1, 2)],
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "max_tokens": 0,
        "top_k": 3,
        "stop": ("a",),
        "logit_bias": {"7": 1.0},
        "logprobs": 2,
        "min_p": 0.1,
        "echo": True,
        "user": "u",
    }


def test_passes_on_what_is_not_ours() -> None:
    extra = {
        "tools": [1],
        "n": 7,
        "stream": False,
        "stream_options": {},
        "top_logprobs": 3,
        "seed": 1,
        "x": None,
    }
    body = request_body(chat(extra=extra))
    assert body["tools"] == [1]
    assert body["stream"] is True
    assert body.keys() == {"model", "messages", "stream", "stream_options", "tools"}


def test_passes_what_guides_an_output_on_as_it_was_given() -> None:
    extra = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "poem"}}},
        "structured_outputs": {"regex": "("},
        "guided_json": "{",
    }
    for request in (chat(extra=extra), completion("a", extra=extra)):
        assert request_body(request).items() >= extra.items()


def test_passes_tools_on() -> None:
    tools = ({"type": "function", "function": {"name": "f"}},)
    body = request_body(chat(tools=tools, tool_choice="required", parallel_tool_calls=False))
    assert body["tools"] == list(tools)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    assert "parallel_tool_calls" not in request_body(chat(tools=tools))
    assert "parallel_tool_calls" in request_body(chat(given=frozenset({"parallel_tool_calls"})))


def test_the_limit_goes_by_one_name() -> None:
    body = request_body(chat(sampling=SamplingParams(max_tokens=5), given=frozenset({"n_predict"})))
    assert body["max_tokens"] == 5
    assert "n_predict" not in body


@pytest.mark.parametrize(
    ("logprobs", "asked"), [(None, {}), (0, {"logprobs": True}), (3, {"logprobs": True, "top_logprobs": 3})]
)
def test_asks_for_chat_logprobs(logprobs: int | None, asked: dict[str, Any]) -> None:
    body = request_body(chat(sampling=SamplingParams(logprobs=logprobs)))
    assert {name: body[name] for name in body if "logprobs" in name} == asked


def test_asks_for_logprobs_where_token_texts_are_needed() -> None:
    assert request_body(completion("a", echo=True)).get("logprobs") is None
    assert request_body(completion((1,), echo=True))["logprobs"] == 0
    assert request_body(chat(return_token_ids=True))["logprobs"] is True


def test_the_echo_of_a_chat_is_not_the_upstreams() -> None:
    body = request_body(chat(echo=True, return_token_ids=True))
    assert "echo" not in body
    assert body["return_token_ids"] is True


def test_with_token_ids_an_upstream_does_not_echo() -> None:
    body = request_body(completion("a", echo=True, return_token_ids=True))
    assert "echo" not in body
    assert body["return_token_ids"] is True


@pytest.mark.parametrize(
    "asked",
    [
        completion((1, 2), echo=True, return_token_ids=True),
        completion("a", echo=True, return_token_ids=True, sampling=SamplingParams(logprobs=0)),
        completion("a", echo=True, return_token_ids=True, sampling=SamplingParams(max_tokens=0)),
    ],
)
def test_an_echo_whose_parts_an_upstream_does_not_give_together_is_refused(asked: GenerationRequest) -> None:
    with pytest.raises(RequestError) as refused:
        request_body(asked)
    assert refused.value.param == "echo"
