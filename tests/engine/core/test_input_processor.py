"""Requests become sequences, or are refused with the name of the wrong field."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from engine.core.input_processor import InputProcessor
from engine.protocol import GenerationRequest, RequestError
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.tokenizer import LocalTokenizer

Complete = Callable[..., GenerationRequest]


@pytest.fixture(scope="module")
def processor(tiny_core: Callable[..., Any]) -> InputProcessor:
    found: InputProcessor = tiny_core(max_model_len=100).processor
    return found


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -2}, "top_k"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -1.0}, "min_p"),
        ({"presence_penalty": 3.0}, "presence_penalty"),
        ({"frequency_penalty": -3.0}, "frequency_penalty"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"logit_bias": {400: 1.0}}, "logit_bias"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"logit_bias": {1: float("inf")}}, "logit_bias"),
        ({"logit_bias": {1: -1e31}}, "logit_bias"),
        ({"stop": ("",)}, "stop"),
        ({"stop_token_ids": (400,)}, "stop_token_ids"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprob_token_ids": (1,)}, "logprob_token_ids"),
        ({"logprobs": 0, "logprob_token_ids": (10**6,)}, "logprob_token_ids"),
        ({"logprobs": 0, "logprob_token_ids": tuple(range(129))}, "logprob_token_ids"),
        ({"extra": {"tools": [{"type": "function"}]}}, "tools"),
        ({"extra": {"response_format": {"type": "structural_tag"}}}, "response_format"),
        ({"extra": {"guided_poetry": {}}}, "guided_poetry"),
        ({"extra": {"structured_outputs": {"structural_tag": "a"}}}, "structured_outputs.structural_tag"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"best_of": 129}, "best_of"),
        ({"priority": 1}, "priority"),
        ({"priority": -1}, "priority"),
        ({"extra": {"audio": {"voice": "x"}}}, "audio"),
        ({"extra": {"chat_template": "{{ 1 }}"}}, "chat_template"),
    ],
)
def test_a_field_that_cannot_be_honoured_is_refused_by_name(
    fields: dict[str, Any], param: str, processor: InputProcessor, completion_request: Complete
) -> None:
    with pytest.raises(RequestError) as caught:
        processor.process(completion_request("hello", **fields))
    assert (caught.value.param, caught.value.status) == (param, 400)
    assert param in str(caught.value)


@pytest.mark.parametrize(
    "extra",
    [
        {"tools": [], "response_format": {"type": "text"}, "best_of": 1, "use_beam_search": False},
        {"tools": [{"type": "function"}], "tool_choice": "none"},
        {"service_tier": "auto", "prompt_logprobs": None, "audio": None},
    ],
)
def test_fields_that_change_nothing_are_ignored(
    extra: dict[str, Any], processor: InputProcessor, completion_request: Complete
) -> None:
    processor.process(completion_request("hello", extra=extra))


def test_tools_reach_the_prompt(processor: InputProcessor, tokenizer: PreTrainedTokenizerFast) -> None:
    template = "{% for t in tools or [] %}may call {{ t.function.name }}. {% endfor %}Go on:"
    fast = tokenizer.backend_tokenizer
    made = PreTrainedTokenizerFast(tokenizer_object=fast, chat_template=template)
    local = LocalTokenizer(ModelTokenizer.of(made))
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="chat",
        messages=({"role": "user", "content": "Hi"},),
        tools=({"type": "function", "function": {"name": "weather"}},),
    )
    shown = {}
    for choice in (None, "auto", "none"):
        group = dataclasses.replace(processor, tokenizer=local).process(
            dataclasses.replace(request, tool_choice=choice)
        )
        shown[choice] = local.decode(group.sequences[0].prompt_token_ids)
    assert shown == {None: "may call weather. Go on:", "auto": "may call weather. Go on:", "none": "Go on:"}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_forced_calls_are_refused_without_a_parser(choice: Any, processor: InputProcessor) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="chat",
        messages=({"role": "user", "content": "Hi"},),
        tools=(tool,),
        tool_choice=choice,
    )
    with pytest.raises(RequestError, match="'auto'") as caught:
        processor.process(request)
    assert caught.value.param == "tool_choice"
    processor.process(dataclasses.replace(request, tool_choice="none"))


@pytest.mark.parametrize("prompt", ["", (), (5, 400), (-1,), "a\ud800"])
def test_an_invalid_prompt_is_refused(
    prompt: Any, processor: InputProcessor, completion_request: Complete
) -> None:
    with pytest.raises(RequestError) as caught:
        processor.process(completion_request(prompt))
    assert caught.value.param == "prompt"


def test_a_request_without_prompts_is_refused(
    processor: InputProcessor, completion_request: Complete
) -> None:
    with pytest.raises(RequestError, match="no prompt"):
        processor.process(completion_request())


@pytest.mark.parametrize(("length", "max_tokens"), [(100, None), (101, 0), (50, 51), (1, 10**12)])
def test_a_request_too_long_for_the_model_is_refused(
    length: int, max_tokens: int | None, processor: InputProcessor, completion_request: Complete
) -> None:
    with pytest.raises(RequestError, match="maximum context length is 100 tokens") as caught:
        processor.process(completion_request((5,) * length, max_tokens=max_tokens))
    assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")


@pytest.mark.parametrize(
    ("length", "max_tokens", "room"), [(99, None, 1), (10, None, 90), (100, 0, 0), (50, 50, 50)]
)
def test_a_request_that_fits_is_accepted(
    length: int, max_tokens: int | None, room: int, processor: InputProcessor, completion_request: Complete
) -> None:
    (seq,) = processor.process(completion_request((5,) * length, max_tokens=max_tokens)).sequences
    assert seq.max_tokens == room


def test_a_small_cache_limits_the_length(tiny_core: Callable[..., Any], completion_request: Complete) -> None:
    processor = tiny_core(kv_cache_memory=40_000).processor
    assert processor.max_model_len < 512
    with pytest.raises(RequestError, match=f"context length is {processor.max_model_len} tokens"):
        processor.process(completion_request((5,) * processor.max_model_len))


def test_each_output_of_each_prompt_is_a_sequence(
    processor: InputProcessor, completion_request: Complete
) -> None:
    group = processor.process(completion_request((5, 6), (7,), n=2, seed=10))
    assert [(s.index, s.token_ids, s.sampling.seed) for s in group.sequences] == [
        (0, [5, 6], 10),
        (1, [5, 6], 11),
        (2, [7], 10),
        (3, [7], 11),
    ]
    assert group.num_prompt_tokens == 3
