"""The fields by which a client may choose where the model's own end comes."""

from typing import Any

import pytest

from engine.core.input_processor import FIELDS
from engine.protocol import GenerationRequest, ModelInfo, SamplingParams
from engine.protocol.fields.asked import steers_end
from engine.protocol.fields.names import BINDING, HINTS
from engine.protocol.fields.support import FieldSupport
from engine.protocol.processor_specs import NamedProcessorSpec
from engine.upstream.echo import EchoEngine

TOOL = {"type": "function", "function": {"name": "f"}}
OWN = ModelInfo(vocab_size=100, eos_token_ids=frozenset({9}))


class _Every(frozenset[str]):
    def __contains__(self, name: object) -> bool:
        return True


UPSTREAM = FieldSupport(relayed=_Every())
"""An upstream whose operator relays every field."""


def request(sampling: dict[str, Any] | None = None, **fields: Any) -> GenerationRequest:
    messages = ({"role": "user", "content": "Hi"},)
    sampled = SamplingParams(**(sampling or {}))
    return GenerationRequest(
        request_id="r", model="m", endpoint="chat", messages=messages, sampling=sampled, **fields
    )


@pytest.mark.parametrize(
    ("sampling", "steers"),
    [
        ({"min_tokens": 1}, True),
        ({"ignore_eos": True}, True),
        ({"logits_processors": (NamedProcessorSpec("p", {}),)}, True),
        ({"logit_bias": {9: -1.0}}, True),
        ({"logit_bias": {9: 1.0, 5: 1.0}}, True),
        ({"logit_bias": dict.fromkeys(range(10, 70), -1.0)}, True),
        ({"logit_bias": {5: 100.0}}, False),
        ({"logit_bias": dict.fromkeys(range(10, 50), -100.0)}, False),
        ({"temperature": 0.0, "top_k": 1, "top_p": 0.5, "min_p": 0.1, "seed": 7}, False),
        ({"presence_penalty": 1.0, "frequency_penalty": 1.0, "repetition_penalty": 1.5}, False),
        ({"stop": ("x",), "stop_token_ids": (3,), "max_tokens": 5, "n": 2, "logprobs": 3}, False),
    ],
)
def test_which_parameters_of_sampling_do(sampling: dict[str, Any], steers: bool) -> None:  # contract 2.9
    assert steers_end(request(sampling), FIELDS, OWN) is steers
    assert steers_end(request(sampling), UPSTREAM, OWN) is steers


@pytest.mark.parametrize(
    ("extra", "steers"),
    [
        *(({name: "x"}, True) for name in ("regex", "guided_regex", "structured_outputs", "stop_regex")),
        *(({name: [3]}, True) for name in ("allowed_token_ids", "bad_words", "eos_token_id", "min_length")),
        ({"structured_outputs": {"regex": "x"}}, True),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, False),
        ({"guided_choice": ["yes", "no"]}, False),
        ({"custom_params": {"p": {}}}, True),
        ({"vllm_xargs": {"p": {}}}, True),
        ({"use_beam_search": True, "length_penalty": 0.5}, True),
        ({"response_format": {"type": "json_object"}}, True),
        ({"response_format": {"type": "text"}}, False),
        ({"a_field_that_nobody_knows": 1}, True),
        ({"a_field_that_nobody_knows": None}, False),
        ({"chat_template_kwargs": {"enable_thinking": False}, "skip_special_tokens": False}, False),
        ({"reasoning_effort": "low", "store": True, "provider": {"order": ["a"]}}, False),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}, "anthropic_beta": "b"}, False),
    ],
    ids=str,
)
def test_which_other_fields_do(extra: dict[str, Any], steers: bool) -> None:  # contract 2.9
    assert steers_end(request(extra=extra), UPSTREAM, OWN) is steers


@pytest.mark.parametrize(
    ("choice", "steers"), [(None, False), ("auto", False), ("none", False), ("required", True)]
)
def test_tools_do_only_if_a_call_is_forced(choice: str | None, steers: bool) -> None:  # contract 2.9
    asked = request(tools=(TOOL,), tool_choice=choice, parallel_tool_calls=False)
    assert steers_end(asked, FIELDS, OWN) is steers


def test_a_field_that_the_engine_ignores_does_not() -> None:
    asked = request({"min_tokens": 3}, extra={"a_field_that_nobody_knows": 1})
    assert not steers_end(asked, EchoEngine.fields, EchoEngine().info)
    assert not steers_end(request(extra={"a_field_that_nobody_knows": 1}), FIELDS, OWN)


@pytest.mark.parametrize(
    "info",
    [ModelInfo(), ModelInfo(vocab_size=100), ModelInfo(eos_token_ids=frozenset({9}))],
    ids=["upstream", "no ids", "no size"],
)
def test_stops_and_any_bias_do_if_the_end_of_sequence_is_not_known(info: ModelInfo) -> None:  # contract 2.9
    assert steers_end(request({"logit_bias": {5: 1.0}}), UPSTREAM, info)
    for name, value in (("stop", ("x",)), ("stop_token_ids", (3,))):
        assert steers_end(request({name: value}), UPSTREAM, info) is (info.eos_token_ids is None)


def test_no_hint_does_and_fields_that_choose_tokens_do() -> None:  # contract 2.9
    steering = {name for name in BINDING | HINTS if steers_end(request(extra={name: "x"}), UPSTREAM, OWN)}
    assert not steering & HINTS
    assert steering >= {"regex", "ebnf", "grammar", "json_schema", "length_penalty", "repetition_detection"}
