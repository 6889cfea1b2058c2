"""Speculation changes the number of steps, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.protocol import GenerationRequest
from tests.engine.conftest import cramped_core

REPETITIVE = [
    [5, 6, 7, 8, 9, 10] * 6,
    [20, 21, 22, 20, 21, 22, 20, 21],
    [30, 31] * 15,
    [7] * 20,
    [40, 41, 42],
]


@pytest.mark.parametrize("is_cramped", [False, True], ids=["roomy", "cramped"])
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"repetition_penalty": 1.05, "frequency_penalty": 0.1, "min_tokens": 8, "n": 2},
        {"temperature": 0.3, "seed": 3},
        {"temperature": 1.0, "top_p": 0.3, "seed": 4, "n": 2},
    ],
)
@pytest.mark.parametrize("family", ["qwen3", "mistral", "gemma3"])
def test_drafts_change_only_the_number_of_steps(
    family: str,
    sampling: dict[str, Any],
    is_cramped: bool,
    tiny_core: Callable[..., Any],
    completion_request: Callable[..., GenerationRequest],
) -> None:
    """Ids and logprobs are the same as without drafts, for greedy outputs and for seeded draws."""
    results, steps = [], []
    for num_speculative_tokens in (0, 4):
        # The number of steps must not depend on the time they take.
        settings = {"num_speculative_tokens": num_speculative_tokens, "max_num_prefill_tokens": 1000}
        core = cramped_core(tiny_core, family, **settings) if is_cramped else tiny_core(family, **settings)
        groups = [
            core.add(
                completion_request(tuple(prompt), max_tokens=30, logprobs=2, ignore_eos=True, **sampling)
            )
            for prompt in REPETITIVE
        ]
        core.run()
        results.append([answer for group in groups for answer in core.answers(group)])
        stats = core.core.stats()
        steps.append(stats.steps_total)
        assert (stats.spec_decode_draft_tokens_total > 0) == (num_speculative_tokens > 0)
        assert core.core.block_manager.num_used == 0
    for without, with_drafts in zip(*results, strict=True):
        assert with_drafts.ids == without.ids
        assert with_drafts.finish_reason == without.finish_reason
        assert [t.logprob for t in with_drafts.tokens] == pytest.approx(
            [t.logprob for t in without.tokens], abs=1e-4
        )
    assert steps[1] <= steps[0]


def test_each_draft_token_that_comes_true_saves_a_step(
    tiny_core: Callable[..., Any], completion_request: Callable[..., GenerationRequest]
) -> None:
    core = tiny_core("gemma3", num_speculative_tokens=4)
    accepted = 0
    for prompt in REPETITIVE:
        before = core.core.stats()
        core.add(completion_request(tuple(prompt), max_tokens=60, ignore_eos=True))
        core.run()
        stats = core.core.stats()
        newly = stats.spec_decode_accepted_tokens_total - before.spec_decode_accepted_tokens_total
        assert stats.steps_total - before.steps_total == 60 - newly
        accepted += newly
    assert accepted


def test_a_draft_never_goes_beyond_the_end_of_its_output(
    tiny_core: Callable[..., Any], completion_request: Callable[..., GenerationRequest]
) -> None:
    """The end (a length, a stop token or a stop string) lies inside a draft."""
    for stopping in ({"max_tokens": 11}, {"stop_token_ids": [0]}, {"stop": [""]}):
        requests = []
        core = tiny_core(num_speculative_tokens=5)
        free = core.add(completion_request(tuple([7] * 20), max_tokens=40, ignore_eos=True))
        core.run()
        answer = core.answers(free)[0]
        if "stop" in stopping:
            stopping = {"stop": [answer.text[15:18]], "max_tokens": 40}
        elif "stop_token_ids" in stopping:
            stopping = {"stop_token_ids": [answer.ids[13]], "max_tokens": 40}
        for settings in ({}, {"num_speculative_tokens": 5}):
            core = tiny_core(**settings)
            group = core.add(completion_request(tuple([7] * 20), ignore_eos=True, **stopping))
            core.run()
            requests.append(core.answers(group)[0])
        assert requests[0].ids == requests[1].ids
        assert requests[0].text == requests[1].text
        assert (requests[0].finish_reason, requests[0].stop_reason) == (
            requests[1].finish_reason,
            requests[1].stop_reason,
        )
        assert requests[0].usage == requests[1].usage
