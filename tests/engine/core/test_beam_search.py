"""Beam search in the running engine finds the same outputs as transformers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.protocol import QueueFullError, RequestError
from engine.turns.prompt_threads import PromptThreads
from tests.engine.conftest import completion

PROMPT = (17, 40, 201, 99, 17, 40)


def by_transformers(model: Any, width: int, max_tokens: int, **options: Any) -> list[list[int]]:
    output = model.generate(
        torch.tensor([PROMPT]),
        attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
        max_new_tokens=max_tokens,
        num_beams=width,
        num_return_sequences=width,
        do_sample=False,
        pad_token_id=0,
        **options,
    )
    return output[:, len(PROMPT) :].tolist()


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
async def test_the_outputs_equal_those_of_transformers(
    family: str, width: int, start_engine: Any, tiny_model: Callable[[str], Any]
) -> None:
    engine = await start_engine(family)
    request = {"n": width, "max_tokens": 20, "ignore_eos": True, "extra": {"use_beam_search": True}}
    answers = await engine.complete(PROMPT, **request)
    expected = by_transformers(tiny_model(family).model, width, 20, eos_token_id=None)
    assert [a.ids for a in answers] == expected
    assert {a.finish_reason for a in answers} == {"length"}


@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 1.0])
async def test_hypotheses_that_end_early_compete_by_their_score(
    length_penalty: float, start_engine: Any, tiny_model: Callable[[str], Any]
) -> None:
    """A frequent token ends outputs, so that hypotheses of all lengths end."""
    engine = await start_engine("llama")
    free = (await engine.complete(PROMPT, n=4, max_tokens=12, ignore_eos=True, extra=BEAMS))[0].ids
    end = free[5]
    extra = BEAMS | {"length_penalty": length_penalty}
    request = {
        "n": 4,
        "max_tokens": 12,
        "ignore_eos": True,
        "stop_token_ids": (end,),
        "extra": extra,
        "logprobs": 1,
    }
    answers = await engine.complete(PROMPT, **request)
    expected = by_transformers(
        tiny_model("llama").model, 4, 12, eos_token_id=end, length_penalty=length_penalty
    )
    ended = [ids[: ids.index(end)] if end in ids else ids for ids in expected]
    assert [a.ids for a in answers] == ended
    assert length_penalty > 0 or "stop" in {a.finish_reason for a in answers}
    assert {a.stop_reason for a in answers if a.finish_reason == "stop"} <= {end}


BEAMS = {"use_beam_search": True}


async def test_one_beam_equals_a_greedy_output(engine: Any) -> None:
    greedy = (await engine.complete(PROMPT, max_tokens=15, logprobs=3))[0]
    beam = (await engine.complete(PROMPT, max_tokens=15, logprobs=3, extra=BEAMS))[0]
    assert (beam.ids, beam.text, beam.finish_reason) == (greedy.ids, greedy.text, greedy.finish_reason)
    assert [t.logprob for t in beam.tokens] == pytest.approx([t.logprob for t in greedy.tokens], abs=1e-4)
    assert [len(t.top) for t in beam.tokens] == [len(t.top) for t in greedy.tokens]


async def test_the_prompt_counts_once_for_all_steps_of_a_search(start_engine: Any) -> None:
    engine = await start_engine("llama")
    await engine.complete(PROMPT, n=3, max_tokens=5, ignore_eos=True, extra=BEAMS)
    stats = engine.stats()
    assert stats.prompt_tokens_total == len(PROMPT)
    assert stats.generation_tokens_total == 1 + 4 * 3


async def test_each_hypothesis_is_given_once_as_a_whole_prompt_by_prompt(engine: Any) -> None:  # contract 5.5
    request = completion(PROMPT, (5, 6, 7), n=3, max_tokens=6, extra=BEAMS)
    deltas = [delta async for delta in engine.generate(request)]
    assert [d.index for d in deltas] == [0, 1, 2, 3, 4, 5]
    assert all(d.finish_reason and d.text == "".join(t.text for t in d.tokens) for d in deltas)
    assert {d.prompt_token_ids for d in deltas[3:]} == {(5, 6, 7)}
    usage = deltas[-1].usage
    assert usage.prompt_tokens == len(PROMPT) + 3
    assert usage.completion_tokens == 2 * (1 + 5 * 3), "each step gives every live hypothesis a token"


async def test_a_closed_search_leaves_nothing_behind(engine: Any) -> None:
    deltas = engine.generate(completion(PROMPT, (5, 6, 7), n=2, max_tokens=6, extra=BEAMS))
    assert await anext(deltas)
    await deltas.aclose()
    await engine.complete(PROMPT, max_tokens=1)
    assert engine.stats().num_running == engine.stats().num_waiting == 0


async def test_an_admitted_search_is_not_refused_because_of_later_requests(start_engine: Any) -> None:
    engine = await start_engine(max_num_seqs=2, max_queue_len=1)
    search = engine.generate(completion(PROMPT, (5, 6, 7), n=2, max_tokens=6, extra=BEAMS))
    first = await anext(search)
    many = engine.generate(completion((8, 9), n=20, max_tokens=40, ignore_eos=True))
    assert await anext(many)
    with pytest.raises(QueueFullError):
        await engine.complete(PROMPT, n=2, max_tokens=6, extra=BEAMS)
    assert [first.index, *[delta.index async for delta in search]] == [0, 1, 2, 3]
    await many.aclose()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 11}, "n"),
        ({"stop": ("x",)}, "stop"),
        ({"echo": True}, "echo"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"logit_bias": {4: 1.0}}, "logit_bias"),
        ({"extra": {"length_penalty": "much"}}, "length_penalty"),
        ({"extra": {"length_penalty": 5000}}, "length_penalty"),
        ({"extra": {"length_penalty": -10.5}}, "length_penalty"),
        ({"max_tokens": 10_000}, "prompt"),
    ],
)
async def test_fields_that_a_search_cannot_honour_are_refused(
    engine: Any, fields: dict[str, Any], param: str
) -> None:
    extra = BEAMS | fields.pop("extra", {})
    with pytest.raises(RequestError) as caught:
        await engine.complete(PROMPT, extra=extra, **fields)
    assert caught.value.param == param


async def test_the_prompt_is_tokenized_when_it_is_its_caller_s_turn(
    start_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # contract 8.5
    engine = await start_engine("llama")
    turns = []
    run = PromptThreads.run

    async def recorded(self: PromptThreads, work: Callable[[], Any], *, size: int, caller: str) -> Any:
        turns.append((caller, size))
        return await run(self, work, size=size, caller=caller)

    monkeypatch.setattr(PromptThreads, "run", recorded)
    await engine.complete("hello", n=2, max_tokens=1, caller="a", extra=BEAMS)
    assert turns[0] == ("a", len("hello"))
