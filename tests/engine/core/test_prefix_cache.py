"""Cached blocks change no answer, and only requests that may share them find them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.protocol import GenerationRequest

Core = Callable[..., Any]
Complete = Callable[..., GenerationRequest]

PROMPT = tuple(range(20, 60))


def count_computed(core: Any) -> list[int]:
    """A list that grows by the number of tokens of each later step."""
    counts: list[int] = []
    run = core.core.runner.run

    def counted(scheduled: Any, token_ids: Any) -> Any:
        counts.append(sum(s.end - s.start for s in scheduled))
        return run(scheduled, token_ids)

    core.core.runner.run = counted
    return counts


def answer(core: Any, request: GenerationRequest) -> Any:
    group = core.add(request)
    core.run()
    (answer,) = core.answers(group)
    return answer


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "deepseek_v3", "gpt2"])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 5, "repetition_penalty": 1.2}])
def test_a_cached_prompt_gets_the_same_answer_as_a_new_one(
    family: str, sampling: dict[str, Any], tiny_core: Core, completion_request: Complete
) -> None:
    core, request = tiny_core(family), completion_request(PROMPT, max_tokens=20, logprobs=1, **sampling)
    first, again = answer(core, request), answer(core, request)
    assert (first.usage.cached_tokens, again.usage.cached_tokens) == (0, 32)
    assert first.ids == again.ids
    assert [t.logprob for t in first.tokens] == pytest.approx([t.logprob for t in again.tokens], abs=1e-4)


def test_the_next_turn_of_a_dialogue_reuses_the_blocks_of_the_last_answer(
    tiny_core: Core, completion_request: Complete
) -> None:
    core = tiny_core()
    first = answer(core, completion_request(PROMPT, max_tokens=30, ignore_eos=True))
    turn = (*PROMPT, *first.ids, 5, 6, 7)
    computed = count_computed(core)
    second = answer(core, completion_request(turn, max_tokens=8, ignore_eos=True))
    assert second.usage.cached_tokens == 64
    assert computed[0] == len(turn) - 64
    fresh = answer(tiny_core(), completion_request(turn, max_tokens=8, ignore_eos=True))
    assert second.ids == fresh.ids


def test_requests_share_blocks_only_within_one_salt(tiny_core: Core, completion_request: Complete) -> None:
    core, cached = tiny_core(), []
    for salt in (None, "tenant a", "tenant b", "tenant a", None):
        request = completion_request(PROMPT, max_tokens=1, cache_salt=salt)
        cached.append(answer(core, request).usage.cached_tokens)
    assert cached == [0, 0, 0, 32, 32]
    stats = core.core.stats()
    assert (stats.prefix_cache_queries_total, stats.prefix_cache_hits_total) == (200, 64)


def test_the_unsalted_beginning_is_shared_by_all_and_the_rest_within_one_salt(
    tiny_core: Core, completion_request: Complete
) -> None:
    core = tiny_core(share_outputs=False)
    request = completion_request(PROMPT, max_tokens=1)
    salted = [replace(request, cache_salt=salt, num_unsalted_tokens=20) for salt in "aab"]
    assert [answer(core, one).usage.cached_tokens for one in salted] == [0, 32, 16]
    assert answer(core, request).usage.cached_tokens == 16
    alone = tiny_core(share_outputs=False, enable_prefix_caching=False)
    assert [answer(alone, one).usage.cached_tokens for one in salted] == [0, 0, 0]


def test_without_prefix_caching_requests_share_nothing(tiny_core: Core, completion_request: Complete) -> None:
    core = tiny_core(enable_prefix_caching=False)
    request = completion_request(PROMPT, max_tokens=1)
    assert [answer(core, request).usage.cached_tokens for _ in range(2)] == [0, 0]


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_the_outputs_of_one_prompt_compute_it_once(
    enable_prefix_caching: bool, tiny_core: Core, completion_request: Complete
) -> None:
    core = tiny_core(enable_prefix_caching=enable_prefix_caching, max_num_prefill_tokens=1000)
    computed = count_computed(core)
    group = core.add(completion_request(PROMPT, n=8, max_tokens=4, temperature=1.0, seed=1, ignore_eos=True))
    core.step()
    core.step()
    assert computed == [40, 1 + 7 * 8], "each of the others computes the tokens that are in no full block"
    assert core.core.block_manager.num_used == 2 + 8
    core.run()
    together = core.answers(group)
    for i, output in enumerate(together):
        alone = completion_request(PROMPT, max_tokens=4, temperature=1.0, seed=1 + i, ignore_eos=True)
        assert output.ids == answer(tiny_core(), alone).ids
    assert together[0].usage.prompt_tokens == 40
    assert max(o.usage.completion_tokens for o in together) == 32
    assert {o.usage.cached_tokens for o in together} == {0}, "no block was known before"


@pytest.mark.parametrize("fields", [{"echo": True, "logprobs": 1}, {"prompt_logprobs": 1}])
def test_logprobs_of_a_prompt_compute_the_whole_prompt_once(
    tiny_core: Core, completion_request: Complete, fields: dict[str, Any]
) -> None:
    core = tiny_core()
    request = completion_request(PROMPT, n=2, max_tokens=2, **fields)
    first = answer(core, completion_request(PROMPT, max_tokens=2, **fields))
    computed = count_computed(core)
    group = core.add(request)
    core.run()
    assert computed[0] == 40
    assert sum(computed) <= 40 + 8 + 4
    for output in core.answers(group):
        assert [t.logprob for t in output.echo[1:]] == pytest.approx(
            [t.logprob for t in first.echo[1:]], abs=1e-4
        )
        assert output.usage.cached_tokens == 0


def test_the_blocks_of_an_aborted_request_can_be_reused(
    tiny_core: Core, completion_request: Complete
) -> None:
    core = tiny_core()
    group = core.add(completion_request(PROMPT, n=2, max_tokens=50, ignore_eos=True))
    core.step()
    core.core.abort(group)
    core.check_blocks()
    assert (core.core.block_manager.num_used, core.core.has_work) == (0, False)
    assert answer(core, completion_request(PROMPT, max_tokens=1)).usage.cached_tokens == 32
