"""`truncate_prompt_tokens`: the last tokens of a prompt, as vLLM keeps them."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.input_processor import InputProcessor
from engine.protocol import GenerationRequest, RequestError
from engine.scheduling.sequence import SequenceGroup
from tests.engine.conftest import completion

IDS = tuple(range(5, 55))


@pytest.fixture(scope="module")
def processor(tiny_core: Callable[..., Any]) -> InputProcessor:
    found: InputProcessor = tiny_core(max_model_len=40).processor
    return found


def prompt_of(group: SequenceGroup) -> tuple[int, ...]:
    return tuple(group.sequences[0].prompt_token_ids)


@pytest.mark.parametrize(
    ("kept", "max_tokens", "num"), [(3, 10, 3), (30, 10, 30), (-1, 10, 30), (-1, None, 39), (39, None, 39)]
)
def test_the_last_tokens_are_kept(
    kept: int, max_tokens: int | None, num: int, processor: InputProcessor
) -> None:
    request = completion(IDS, max_tokens=max_tokens, extra={"truncate_prompt_tokens": kept})
    group = processor.process(request)
    assert prompt_of(group) == IDS[-num:]
    assert group.num_prompt_tokens == num


def test_a_short_prompt_stays_whole(processor: InputProcessor) -> None:
    for kept in (3, 9, -1):
        request = completion((5, 6, 7), max_tokens=5, extra={"truncate_prompt_tokens": kept})
        assert prompt_of(processor.process(request)) == (5, 6, 7)


def test_a_text_of_any_length_is_truncated(processor: InputProcessor) -> None:
    text = "the quick brown fox " * 2000 + "jumps over"
    with pytest.raises(RequestError, match="context length"):
        processor.process(completion(text, max_tokens=5))
    group = processor.process(completion(text, max_tokens=5, extra={"truncate_prompt_tokens": -1}))
    whole = processor.tokenizer.fast.encode(text).ids
    assert prompt_of(group) == tuple(whole[-35:])


def test_a_chat_is_truncated_behind_its_template(processor: InputProcessor) -> None:
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="chat",
        messages=({"role": "user", "content": "hello " * 50},),
        extra={"truncate_prompt_tokens": 12},
    )
    text = processor.tokenizer.decode(prompt_of(processor.process(request)))
    assert text.endswith("assistant\n")
    assert len(prompt_of(processor.process(request))) == 12


async def test_echo_ids_and_usage_are_those_of_the_truncated_prompt(engine: Any) -> None:
    text = "hello world, how are you today?"
    extra = {"truncate_prompt_tokens": 4}
    (answer,) = await engine.complete(text, echo=True, max_tokens=2, logprobs=0, extra=extra)
    ids = engine.tokenizer.encode(text)[-4:]
    assert "".join(t.text for t in answer.echo) == engine.tokenizer.decode(ids)
    assert text.endswith(engine.tokenizer.decode(ids))
    assert answer.deltas[0].prompt_token_ids == tuple(ids)
    assert answer.usage.prompt_tokens == 4
    (alone,) = await engine.complete(tuple(ids), max_tokens=2)
    assert answer.ids == alone.ids


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 36}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": "5"}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": True}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 5, "truncation_side": "right"}, "truncation_side"),
        ({"skip_special_tokens": "no"}, "skip_special_tokens"),
        ({"spaces_between_special_tokens": 0}, "spaces_between_special_tokens"),
        ({"add_special_tokens": 1}, "add_special_tokens"),
    ],
)
def test_a_wrong_field_is_refused_by_name(
    extra: dict[str, Any], param: str, processor: InputProcessor
) -> None:
    with pytest.raises(RequestError) as caught:
        processor.process(completion("hello", max_tokens=5, extra=extra))
    assert (caught.value.param, caught.value.status) == (param, 400)
    assert param in str(caught.value)


def test_more_output_than_fits_is_told_by_the_length(processor: InputProcessor) -> None:
    with pytest.raises(RequestError) as caught:
        processor.process(completion("hello", max_tokens=50, extra={"truncate_prompt_tokens": -1}))
    assert caught.value.code == "context_length_exceeded"
