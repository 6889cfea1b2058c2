"""With `best_of`, only the best candidates leave the engine."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from engine.protocol import GenerationRequest

Core = Callable[..., Any]
Complete = Callable[..., GenerationRequest]

SAMPLED = {"temperature": 1.0, "seed": 3, "max_tokens": 12}


def with_candidates(request: GenerationRequest, n: int, best_of: int | None) -> GenerationRequest:
    return replace(request, sampling=replace(request.sampling, n=n, best_of=best_of))


def answers(core: Any, request: GenerationRequest) -> list[Any]:
    group = core.add(request)
    core.run()
    found: list[Any] = core.answers(group)
    return found


def mean_logprob(answer: Any) -> float:
    return sum(t.logprob for t in answer.tokens) / len(answer.tokens)


def test_the_candidates_with_the_highest_logprob_per_token_are_given_best_first(
    tiny_core: Core, completion_request: Complete
) -> None:
    prompts = tuple(range(20, 60)), (7, 8, 9)
    request = completion_request(*prompts, logprobs=0, **SAMPLED)
    candidates = answers(tiny_core(), with_candidates(request, 6, None))
    expected = [
        best
        for of_one in (candidates[:6], candidates[6:])
        for best in sorted(of_one, key=mean_logprob, reverse=True)[:2]
    ]
    given = answers(tiny_core(), with_candidates(request, 2, 6))
    assert [a.ids for a in given] == [a.ids for a in expected]
    assert len({tuple(a.ids) for a in candidates}) > 4
    assert [a.deltas[0].prompt_token_ids for a in given] == [prompts[0]] * 2 + [prompts[1]] * 2
    num_generated = sum(len(a.ids) for a in candidates)
    assert all(d.usage.completion_tokens == num_generated for a in given for d in a.deltas)
    assert all(d.usage.prompt_tokens == 43 for a in given for d in a.deltas)


def test_logprobs_are_given_only_if_the_request_asks_for_them(
    tiny_core: Core, completion_request: Complete
) -> None:
    (answer,) = answers(tiny_core(), with_candidates(completion_request((5, 6), **SAMPLED), 1, 3))
    assert answer.tokens
    assert all(t.logprob is None and t.top == () for t in answer.tokens)


def test_nothing_is_given_before_all_candidates_are_finished(
    tiny_core: Core, completion_request: Complete
) -> None:
    core = tiny_core()
    group = core.add(with_candidates(completion_request((5, 6), echo=True, **SAMPLED), 1, 3))
    while core.core.has_work:
        assert core.deltas[group] == []
        core.step()
    (answer,) = core.answers(group)
    assert [t.id for t in answer.echo] == [5, 6]


def test_outputs_are_streamed_if_every_candidate_is_given(
    tiny_core: Core, completion_request: Complete
) -> None:
    core = tiny_core()
    group = core.add(with_candidates(completion_request((5, 6), **SAMPLED), 2, 2))
    while not core.deltas[group]:
        core.step()
    assert core.core.has_work


def test_an_abort_ends_every_candidate(tiny_core: Core, completion_request: Complete) -> None:
    core = tiny_core()
    group = core.add(with_candidates(completion_request((5, 6), **SAMPLED), 1, 3))
    core.step()
    core.core.abort(group)
    core.check_blocks()
    assert (core.core.has_work, core.core.block_manager.num_used, core.deltas[group]) == (False, 0, [])


async def test_the_engine_gives_as_many_outputs_as_requested(
    start_engine: Callable[..., Awaitable[Any]], completion_request: Complete
) -> None:
    engine = await start_engine()
    request = with_candidates(completion_request("hello", "world", **SAMPLED), 2, 4)
    given = await engine.collect(request)
    assert len(given) == 4
    assert engine.stats().generation_tokens_total == given[0].usage.completion_tokens
