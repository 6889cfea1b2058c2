"""vLLM answers as Weir's own engine does with the same model, and leaves nothing running."""

import asyncio
import math
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from engine.protocol import EngineError, GenerationRequest, LogitsProcessorError, RequestError, Rewind
from engine.protocol.processor_specs import ForcedTokenSequenceSpec, NamedProcessorSpec, PythonProcessorSpec
from engine.vllm.limits import RunnerLimits
from tests.engine.core.test_rewind import PROMPT, expected, ids_of, once, play
from tests.engine.sampling.logits_processors.builtin.rows import START
from tests.helpers import until

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("default"),
]
Complete = Callable[..., GenerationRequest]

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {"max_tokens": 30},
    "two prompts, two outputs": {"prompts": ("hello", PROMPT), "n": 2, "max_tokens": 5},
    "logprobs": {"max_tokens": 10, "logprobs": 3},
    "logprobs of some tokens": {"max_tokens": 4, "logprobs": 0, "logprob_token_ids": (7, 300, 5)},
    "echo": {"max_tokens": 3, "echo": True},
    "echo with logprobs": {"max_tokens": 3, "echo": True, "logprobs": 2},
    "echo alone, with logprobs": {"max_tokens": 0, "echo": True, "logprobs": 2},
    "logprobs of the prompt": {"max_tokens": 2, "prompt_logprobs": 2},
    "logprobs of both": {"max_tokens": 2, "echo": True, "logprobs": 2, "prompt_logprobs": 0},
    "no token": {"max_tokens": 0},
    "a character in parts": {"max_tokens": 40, "logit_bias": dict.fromkeys(range(100, 200), 5.0)},
    "a stop string": {"max_tokens": 60, "stop": ("e", "th")},
    "a stop string, later": {"max_tokens": 60, "min_tokens": 9, "stop": ("e", "t", "o", " ")},
    "a stop id": {"max_tokens": 60, "stop_token_ids": tuple(range(100, 180))},
    "the end": {"max_tokens": 9, "logit_bias": {1: 200.0}, "ignore_eos": False},
    "the end, later": {"max_tokens": 9, "min_tokens": 4, "logit_bias": {1: 200.0}, "ignore_eos": False},
    "the end ignored": {"max_tokens": 5, "logit_bias": {1: 200.0}},
    "penalties": {"max_tokens": 20, "frequency_penalty": 1.5, "presence_penalty": 1.0},
    "a repetition penalty": {"max_tokens": 20, "repetition_penalty": 1.7},
    "a regular expression": {"max_tokens": 30, "extra": {"guided_regex": "[a-c]{3} [0-9]{1,3}z"}},
    "a schema": {"max_tokens": 200, "extra": {"guided_json": SCHEMA}},
    "a schema, compact": {
        "max_tokens": 60,
        "extra": {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
    },
    "a choice": {"max_tokens": 20, "extra": {"structured_outputs": {"choice": ["fox", "dog", "the fox"]}}},
    "a grammar": {"max_tokens": 20, "extra": {"guided_grammar": 'root ::= "quick " ("fox" | "dog")'}},
    "a budget of thinking": {
        "prompts": ((START, 70),),
        "max_tokens": 9,
        "extra": {"thinking_token_budget": 3},
    },
    "no thinking": {"prompts": ((START, 70),), "max_tokens": 9, "extra": {"thinking_token_budget": 0}},
    "bad words": {
        "max_tokens": 20,
        "logits_processors": (NamedProcessorSpec("bad_words", {"bad_words": ["the", "fox"]}),),
    },
    "bad words as vLLM names them": {
        "max_tokens": 20,
        "extra": {"vllm_xargs": {"allowed": {"token_ids": [100, 101, 102, 103]}}},
    },
    "by place": {"max_tokens": 20, "logits_processors": (NamedProcessorSpec("by_place"),)},
    "a forced answer": {
        "max_tokens": 20,
        "ignore_eos": False,
        "logits_processors": (ForcedTokenSequenceSpec((110, 111, 112), 1),),
    },
    "a grammar and a processor": {
        "max_tokens": 30,
        "extra": {
            "guided_regex": "[a-c]{3} [0-9]{1,3}z",
            "vllm_xargs": {"bad_words": {"bad_words": ["a", "1"]}},
        },
    },
    "allowed tokens": {"max_tokens": 20, "extra": {"allowed_token_ids": [100, 101, 102, 103]}},
    "words of a field": {"max_tokens": 40, "extra": {"bad_words": ["the", "fox", *"abcdeilmnorstuy"]}},
    "words that the prompt begins": {
        "prompts": ("over the la",),
        "max_tokens": 20,
        "logit_bias": dict.fromkeys(range(60, 100), 8.0),
        "extra": {"bad_words": ["lazy", "the lax", "over the lab", "the last dog", "lap"]},
    },
    "more than the second model runner has room for": {
        "max_tokens": 20,
        "min_tokens": 4,
        "stop_token_ids": tuple(range(100, 240)),
        "extra": {"bad_words": [first + last for first in "abcdefghijklm" for last in "nopqrstuvwxyz"]},
    },
    "special tokens as text": {
        "max_tokens": 20,
        "logit_bias": dict.fromkeys(range(4), 9.0),
        "extra": {"skip_special_tokens": False},
    },
    "a truncated prompt": {"max_tokens": 5, "echo": True, "extra": {"truncate_prompt_tokens": 2}},
    "beams": {"max_tokens": 6, "n": 2, "extra": {"use_beam_search": True}},
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_answers_as_the_in_process_engine_does(
    vllm_engine: Any, local_engine: Any, completion_request: Complete, name: str
) -> None:
    fields = {"ignore_eos": True, "prompts": (PROMPT,), **REQUESTS[name]}
    request = completion_request(*fields.pop("prompts"), **fields)
    answers, others = await vllm_engine.collect(request), await local_engine.collect(request)
    assert len(answers) == len(others)
    for answer, other in zip(answers, others, strict=True):
        assert (answer.text, answer.ids) == (other.text, other.ids)
        assert (answer.finish_reason, answer.stop_reason) == (other.finish_reason, other.stop_reason)
        assert [t.id for t in answer.echo] == [t.id for t in other.echo]
        for token, like in zip([*answer.echo, *answer.tokens], [*other.echo, *other.tokens], strict=True):
            assert token.raw == like.raw
            assert token.logprob == (None if like.logprob is None else pytest.approx(like.logprob, abs=1e-3))
            assert [t.id for t in token.top] == [t.id for t in like.top]
            assert token.rank == like.rank
    assert answers[-1].deltas[0].prompt_token_ids == others[-1].deltas[0].prompt_token_ids
    totals = [max(a.usage.completion_tokens for a in some) for some in (answers, others)]
    assert totals[0] == totals[1]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look"}}])
async def test_forced_calls_are_those_of_the_in_process_engine(
    vllm_engine: Any, local_engine: Any, completion_request: Complete, choice: Any
) -> None:
    plain = completion_request(max_tokens=400, logit_bias={1: 50.0})
    message = {"role": "user", "content": "hello"}
    request = replace(plain, endpoint="chat", messages=(message,), tools=(TOOL,), tool_choice=choice)
    assert not vllm_engine.info.can_rewind_for(request)
    ((answer,), (other,)) = await vllm_engine.collect(request), await local_engine.collect(request)
    assert answer.ids == other.ids
    assert '"name": "look"' in answer.text


async def test_best_of_gives_the_likeliest_of_its_candidates(vllm_engine: Any) -> None:
    fields = {"max_tokens": 8, "temperature": 1.0, "seed": 3, "ignore_eos": True, "logprobs": 0}
    candidates = await vllm_engine.complete(PROMPT, n=4, **fields)
    (best,) = await vllm_engine.complete(PROMPT, n=1, best_of=4, **fields)
    assert best.ids == max(candidates, key=lambda a: sum(t.logprob for t in a.tokens)).ids


async def test_each_output_has_its_own_seed(vllm_engine: Any) -> None:
    fields = {"max_tokens": 8, "temperature": 1.0, "ignore_eos": True}
    both = await vllm_engine.complete(PROMPT, n=2, seed=5, **fields)
    assert both[0].ids != both[1].ids
    for i, answer in enumerate(both):
        (alone,) = await vllm_engine.complete(PROMPT, seed=5 + i, **fields)
        assert alone.ids == answer.ids


async def test_a_slow_reader_gets_a_logprob_for_each_token(
    vllm_engine: Any, completion_request: Complete
) -> None:
    request = completion_request(PROMPT, max_tokens=200, ignore_eos=True, logprobs=2)
    (quick,) = await vllm_engine.collect(request)
    tokens, num_deltas = [], 0
    async with aclosing(vllm_engine.generate(request)) as stream:
        async for delta in stream:
            tokens += delta.tokens
            num_deltas += 1
            if num_deltas == 1:
                enough = vllm_engine.stats().steps_total + 20
                await until(lambda enough=enough: vllm_engine.stats().steps_total >= enough)
    assert num_deltas < len(quick.deltas)
    assert ids_of(tokens) == quick.ids
    for token, other in zip(tokens, quick.tokens, strict=True):
        assert token.logprob == pytest.approx(other.logprob, abs=1e-3)
        assert [t.id for t in token.top] == [t.id for t in other.top]


async def test_a_reader_that_leaves_frees_vllm_within_two_steps(
    vllm_engine: Any, completion_request: Complete
) -> None:
    (scheduler,) = vllm_engine._schedulers
    other = asyncio.create_task(vllm_engine.complete(PROMPT, max_tokens=400, ignore_eos=True))  # noqa: TID251
    async with aclosing(vllm_engine.generate(completion_request("hi", max_tokens=400, n=2))) as stream:
        await anext(stream)
        await until(lambda: scheduler.num_running == 3)
    steps = scheduler.num_steps
    await until(lambda: scheduler.num_running == 1)
    assert scheduler.num_steps - steps <= 2
    other.cancel()
    await asyncio.wait([other])
    await until(lambda: scheduler.num_running == scheduler.num_waiting == 0)
    assert not vllm_engine._runtime.llm.output_processor.request_states


@pytest.mark.parametrize("keep", [0, 1, 10, 26, 39])
async def test_a_rewound_output_continues_from_the_kept_tokens(
    vllm_engine: Any, completion_request: Complete, keep: int
) -> None:
    request = completion_request(PROMPT, max_tokens=40, ignore_eos=True, logprobs=2)
    outputs, last = await play(vllm_engine, request, once(0, keep + 1, Rewind(0, keep)))
    assert ids_of(outputs[0]) == await expected(vllm_engine, 40, keep)
    assert all(math.isfinite(token.logprob or -math.inf) for token in outputs[0])
    assert last.finish_reason == "length"
    (whole,) = await vllm_engine.complete(PROMPT, max_tokens=40, ignore_eos=True)
    assert whole.ids[keep] not in [top.id for top in outputs[0][keep].top]


async def test_a_rewound_output_leaves_its_siblings_alone(
    vllm_engine: Any, completion_request: Complete
) -> None:
    fields = {"max_tokens": 20, "n": 2, "seed": 4, "temperature": 1.0, "ignore_eos": True}
    plain = await vllm_engine.complete(PROMPT, **fields)
    request = completion_request(PROMPT, **fields)
    outputs, last = await play(vllm_engine, request, once(1, 6, Rewind(1, 5)))
    assert ids_of(outputs[0]) == plain[0].ids
    assert ids_of(outputs[1])[:5] == plain[1].ids[:5]
    assert ids_of(outputs[1])[5] != plain[1].ids[5]
    assert len(outputs[1]) == 20
    assert last.usage is not None
    assert last.usage.completion_tokens >= 41


async def test_rewinds_forbid_several_tokens_at_one_place_and_an_output_s_end(
    vllm_engine: Any, completion_request: Complete
) -> None:
    request = completion_request(PROMPT, max_tokens=6, ignore_eos=True)
    (whole,) = await vllm_engine.collect(request)
    banned = [whole.ids[5]]

    def plan(delta: Any, tokens: list[Any]) -> Rewind | None:
        if delta.finish_reason is None or len(banned) > 3:
            return None
        if ids_of(tokens)[5] not in banned:
            banned.append(ids_of(tokens)[5])
        return Rewind(0, 5)

    outputs, _ = await play(vllm_engine, request, plan)
    assert ids_of(outputs[0])[:5] == whole.ids[:5]
    assert ids_of(outputs[0])[5] not in banned[:3]
    assert len(set(banned)) == 4


async def test_an_output_without_room_for_its_rewinds_fails_alone(
    vllm_engine: Any, completion_request: Complete
) -> None:  # contract 8.5
    limits = replace(RunnerLimits.of_second_runner(), logit_bias=2)
    vllm_engine._runtime = replace(vllm_engine._runtime, limits=limits)
    request = completion_request(PROMPT, max_tokens=8, ignore_eos=True)
    with pytest.raises(EngineError, match="after a rewind"):
        await play(vllm_engine, request, once(0, 5, Rewind(0, 4, banned=(7, 8, 9))))
    outputs, _ = await play(vllm_engine, request, once(0, 5, Rewind(0, 4, banned=(7,))))
    assert len(outputs[0]) == 8


async def test_a_processor_counts_from_the_prompt_s_end_after_a_rewind(
    vllm_engine: Any, completion_request: Complete
) -> None:
    request = completion_request(
        PROMPT, max_tokens=8, ignore_eos=True, logits_processors=(NamedProcessorSpec("by_place"),)
    )
    outputs, _ = await play(vllm_engine, request, once(0, 5, Rewind(0, 4, banned=(7,))))
    assert ids_of(outputs[0]) == list(range(100, 108))


async def test_bad_words_do_not_come_across_a_rewind(
    vllm_engine: Any, local_engine: Any, completion_request: Complete
) -> None:  # contract 7.7, 8.3
    (whole,) = await vllm_engine.complete(PROMPT, max_tokens=12, ignore_eos=True)
    pairs = {vllm_engine.tokenizer.decode(whole.ids[i : i + 2]) for i in range(12)}
    words = sorted(text.strip() for text in pairs if "\ufffd" not in text and text.strip())
    assert words
    request = completion_request(PROMPT, max_tokens=12, ignore_eos=True, extra={"bad_words": words})
    for keep in (0, 1, 3, 6):
        told = []
        for engine in (vllm_engine, local_engine):
            outputs, _ = await play(engine, request, once(0, keep + 2, Rewind(0, keep)))
            told.append(ids_of(outputs[0]))
        assert told[0] == told[1]


async def test_limits_that_leave_no_token_fail_the_request(vllm_engine: Any) -> None:  # contract 7.5
    first, second = vllm_engine.tokenizer.encode("the lazy dog", add_special_tokens=False)[:2]
    word = vllm_engine.tokenizer.decode((first, second))
    extra = {"allowed_token_ids": [first, second], "bad_words": [word, vllm_engine.tokenizer.decode([first])]}
    with pytest.raises(RequestError, match="leave no token"):
        await vllm_engine.complete((5, first), max_tokens=2, extra=extra)


async def test_a_failing_processor_fails_its_own_request(
    vllm_engine: Any, completion_request: Complete, caplog: pytest.LogCaptureFixture
) -> None:
    spec = NamedProcessorSpec("failing", {"after": 3})
    request = completion_request(PROMPT, max_tokens=20, ignore_eos=True, logits_processors=(spec,))
    other = asyncio.create_task(vllm_engine.complete(PROMPT, max_tokens=60, ignore_eos=True))  # noqa: TID251
    tokens: list[Any] = []
    with pytest.raises(LogitsProcessorError) as error:
        async for delta in vllm_engine.generate(request):
            tokens += delta.tokens
    assert error.value.processor == "failing"
    (alone,) = await vllm_engine.complete(PROMPT, max_tokens=20, ignore_eos=True)
    assert ids_of(tokens) == alone.ids[: len(tokens)]
    assert len(tokens) <= 3
    (answer,) = await other
    assert answer.ids[:20] == alone.ids


@pytest.mark.parametrize(
    "fields",
    [{"logits_processors": (NamedProcessorSpec("by_place"),)}, {"extra": {"allowed_token_ids": [22]}}],
    ids=["processor", "allowed tokens"],
)
async def test_an_output_with_no_other_way_to_go_on_ends(
    vllm_engine: Any, completion_request: Complete, fields: dict[str, Any]
) -> None:
    """Contract 8.3: masks and bans together leave no token, so the engine cannot go back."""
    request = completion_request(PROMPT, max_tokens=8, ignore_eos=True, **fields)
    outputs, last = await play(vllm_engine, request, once(0, 5, Rewind(0, 4)))
    assert (len(outputs[0]), last.finish_reason) == (4, "content_filter")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 3.0}, "temperature"),
        ({"logits_processors": (NamedProcessorSpec("absent"),)}, "logits_processors[0].name"),
        ({"logits_processors": (PythonProcessorSpec(object),)}, None),
        ({"priority": 1}, "priority"),
        ({"extra": {"guided_regex": "("}}, "guided_regex"),
        ({"extra": {"suffix": "x"}}, "suffix"),
        ({"extra": {"documents": [{}]}}, "documents"),
        ({"max_tokens": 600}, "prompt"),
    ],
)
async def test_a_request_that_cannot_be_honoured_is_refused(
    vllm_engine: Any, completion_request: Complete, fields: dict[str, Any], param: str | None
) -> None:
    with pytest.raises((RequestError, LogitsProcessorError)) as error:
        await vllm_engine.collect(completion_request(PROMPT, **fields))
    assert getattr(error.value, "param", None) == param
    assert vllm_engine.stats().num_running == 0


async def test_the_prefix_cache_shares_prompts_and_no_outputs(vllm_engine: Any) -> None:
    # contract 6.4
    prompt = tuple(range(30, 130))
    fields = {"max_tokens": 64, "ignore_eos": True}
    (first,) = await vllm_engine.complete(prompt, **fields)
    (again,) = await vllm_engine.complete(prompt, **fields)
    (guessed,) = await vllm_engine.complete((*prompt, *first.ids), **fields)
    (salted,) = await vllm_engine.complete(prompt, cache_salt="other", **fields)
    assert first.ids == again.ids == salted.ids
    counts = [answer.usage.cached_tokens for answer in (first, again, guessed, salted)]
    assert (counts[0], counts[3]) == (0, 0)
    assert 0 < counts[1] == counts[2] <= len(prompt)


async def test_an_abort_from_outside_is_an_error(vllm_engine: Any, completion_request: Complete) -> None:
    with pytest.raises(EngineError):
        async for _ in vllm_engine.generate(completion_request(PROMPT, max_tokens=400, ignore_eos=True)):
            states = vllm_engine._runtime.llm.output_processor.request_states
            await vllm_engine._runtime.llm.abort(list(states), internal=True)
