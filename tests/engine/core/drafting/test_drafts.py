"""Speculation changes the number of steps, and nothing else."""

import itertools
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core.drafting import draft_model
from engine.device.transfers import HostCopy
from engine.protocol import GenerationRequest, Rewind
from tests.engine.conftest import cramped_core, random_prompts
from tests.helpers import slow

REPETITIVE = [
    [5, 6, 7, 8, 9, 10] * 6,
    [20, 21, 22, 20, 21, 22, 20, 21],
    [30, 31] * 15,
    [7] * 20,
    [40, 41, 42],
]
in_any_cache = pytest.mark.parametrize("is_cramped", [False, True], ids=["roomy", "cramped"])
however_drawn = pytest.mark.parametrize(
    "sampling",
    [
        slow({}),
        {"repetition_penalty": 1.05, "frequency_penalty": 0.1, "min_tokens": 8, "n": 2},
        slow({"temperature": 0.3, "seed": 3}),
        {"temperature": 1.0, "top_p": 0.3, "seed": 4, "n": 2},
    ],
)


@in_any_cache
@however_drawn
@pytest.mark.sampled
@pytest.mark.parametrize("family", ["qwen3", slow("mistral"), "gemma3"])
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
    cases: tuple[dict[str, Any], ...] = ({"max_tokens": 11}, {"stop_token_ids": [0]}, {"stop": [""]})
    for stopping in cases:
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


DRAFT_MODELS = ["qwen3", "llama"]
"""One equals the model, so that all its guesses come true. The other one guesses at random."""


@pytest.fixture
def drafting(tiny_model: Callable[[str], Any]) -> Callable[..., dict[str, Any]]:
    """The settings for drafts by a family's model."""

    def settings(family: str, num_speculative_tokens: int = 4) -> dict[str, Any]:
        path = str(tiny_model(family).path)
        return {"num_speculative_tokens": num_speculative_tokens, "speculative_model": path}

    return settings


@in_any_cache
@however_drawn
def test_drafts_of_a_model_change_only_the_number_of_steps(
    sampling: dict[str, Any],
    is_cramped: bool,
    tiny_core: Callable[..., Any],
    drafting: Callable[..., dict[str, Any]],
    completion_request: Callable[..., GenerationRequest],
) -> None:
    def served(**settings: Any) -> tuple[list[Any], int]:
        """The answers and the number of steps."""
        settings |= {"max_num_prefill_tokens": 1000}
        core = cramped_core(tiny_core, "qwen3", **settings) if is_cramped else tiny_core("qwen3", **settings)
        requests = [
            completion_request(tuple(prompt), max_tokens=30, logprobs=2, ignore_eos=True, **sampling)
            for prompt in [*REPETITIVE, *random_prompts(3, longest=40)]
        ]
        groups = core.serve(requests, random.Random(5))
        stats = core.core.stats()
        assert (stats.preemptions_total > 0) == is_cramped
        assert (stats.spec_decode_draft_tokens_total > 0) == ("speculative_model" in settings)
        assert core.core.block_manager.num_used == 0
        return [answer for group in groups for answer in core.answers(group)], stats.steps_total

    expected, most_steps = served()
    for draft_family, method in itertools.product(DRAFT_MODELS, ("draft_model", None)):
        found, steps = served(**drafting(draft_family), speculative_method=method)
        for without, with_drafts in zip(expected, found, strict=True):
            assert with_drafts.ids == without.ids, (draft_family, method)
            assert with_drafts.finish_reason == without.finish_reason
            assert [t.logprob for t in with_drafts.tokens] == pytest.approx(
                [t.logprob for t in without.tokens], abs=1e-4
            )
        if draft_family == "qwen3" and not is_cramped:
            assert steps < most_steps


@pytest.mark.parametrize("settings", [{}, {"max_num_batched_tokens": 50, "block_size": 4}])
def test_all_greedy_guesses_of_an_equal_model_come_true(
    settings: dict[str, Any],
    tiny_core: Callable[..., Any],
    drafting: Callable[..., dict[str, Any]],
    completion_request: Callable[..., GenerationRequest],
) -> None:
    """Also if prompts are computed in pieces and share a beginning, and outputs begin at different times."""
    core = tiny_core("qwen3", **drafting("qwen3"), **settings, speculative_method="draft_model")
    beginning = tuple(range(30, 70))
    for length in (3, 21, 64, 90):
        core.add(completion_request(beginning + (7,) * length, max_tokens=length, ignore_eos=True, n=2))
        core.step()
    core.run()
    stats = core.core.stats()
    assert stats.spec_decode_accepted_tokens_total == stats.spec_decode_draft_tokens_total > 0


def test_guesses_go_on_behind_a_rewind_and_behind_a_lookup(
    tiny_core: Callable[..., Any],
    drafting: Callable[..., dict[str, Any]],
    completion_request: Callable[..., GenerationRequest],
) -> None:
    """The draft model computes what it missed, and what a rewind changed, and is right again."""
    core = tiny_core("qwen3", **drafting("qwen3"), block_size=4)
    group = core.add(completion_request(tuple([7] * 20), max_tokens=60, ignore_eos=True))
    (seq,) = group.sequences
    while seq.num_output_tokens < 30:
        core.step()
    core.core.rewind(group, Rewind(0, 11))
    before = core.core.stats()
    core.core.speculation.has_lookup = False
    core.run()
    stats = core.core.stats()
    drafted = stats.spec_decode_draft_tokens_total - before.spec_decode_draft_tokens_total
    accepted = stats.spec_decode_accepted_tokens_total - before.spec_decode_accepted_tokens_total
    # The token that the rewind forbids may be guessed once.
    assert accepted >= drafted - 4 > 20


def test_a_rewind_forgets_what_the_draft_model_had_in_blocks_that_are_gone(
    tiny_core: Callable[..., Any],
    drafting: Callable[..., dict[str, Any]],
    completion_request: Callable[..., GenerationRequest],
) -> None:
    """The blocks that the output gets next may hold another text."""
    core = tiny_core("qwen3", **drafting("qwen3"), block_size=4)
    group = core.add(completion_request(tuple([7] * 20), max_tokens=20, ignore_eos=True))
    core.run()
    (seq,) = group.sequences
    assert seq.cache.num_draft_tokens > 0
    core.core.rewind(group, Rewind(0, 11))
    assert seq.cache.num_draft_tokens == seq.cache.num_settled_tokens == 0


def test_drafting_pauses_where_guesses_stay_wrong(
    tiny_core: Callable[..., Any],
    drafting: Callable[..., dict[str, Any]],
    completion_request: Callable[..., GenerationRequest],
) -> None:
    core = tiny_core("qwen3", **drafting("llama"), speculative_method="draft_model")
    core.add(completion_request((5, 6, 7), max_tokens=200, ignore_eos=True))
    core.run()
    assert 0 < core.core.stats().spec_decode_drafts_total < 20


def test_a_draft_model_that_fails_costs_no_output(
    tiny_core: Callable[..., Any],
    drafting: Callable[..., dict[str, Any]],
    completion_request: Callable[..., GenerationRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = tiny_core("qwen3", **drafting("qwen3"))
    plain = tiny_core("qwen3")

    def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(core.core.runner.draft, "run", fail)
    found = []
    for one in (core, plain):
        group = one.add(completion_request((5, 6, 7), max_tokens=20, ignore_eos=True))
        one.run()
        found.append(one.answers(group)[0].ids)
    assert found[0] == found[1]
    assert not core.errors


def test_the_host_waits_once_for_all_tokens_of_a_draft(
    tiny_core: Callable[..., Any],
    drafting: Callable[..., dict[str, Any]],
    completion_request: Callable[..., GenerationRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = tiny_core("qwen3", **drafting("qwen3"))  # its guesses come true, so that it is always asked
    events: list[str] = []
    draft, run = core.core.runner.draft, core.core.runner.draft.run
    monkeypatch.setattr(draft, "run", lambda *spans: events.append("run") or run(*spans))

    class Copy(HostCopy):
        def tensors(self) -> Sequence[torch.Tensor]:
            events.append("read")
            return super().tensors()

    monkeypatch.setattr(draft_model, "HostCopy", Copy)
    core.add(completion_request((5, 6, 7), max_tokens=20, ignore_eos=True))
    core.run()
    most = core.config.num_speculative_tokens
    assert most > 1
    assert "".join(f" {event}" for event in events).count(" run" * most + " read") > 1
    assert not core.errors


def test_both_caches_share_the_memory(
    tiny_core: Callable[..., Any], drafting: Callable[..., dict[str, Any]]
) -> None:
    memory = 2**20
    runner = tiny_core("qwen3", **drafting("llama"), kv_cache_memory=memory).core.runner
    caches = [runner.kv_cache, runner.draft.kv_cache]
    assert caches[0].num_blocks == caches[1].num_blocks
    pools = [pool[:-1] for cache in caches for pool in (*cache.keys.values(), *cache.values.values())]
    assert memory / 2 < sum(pool.nbytes for pool in pools) <= memory


async def test_a_draft_model_of_other_tokens_is_refused(
    start_engine: Callable[..., Any], tiny_model: Callable[[str], Any], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_model("llama").path, other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["added_tokens"][0]["content"] = "<another>"
    tokenizer["model"]["vocab"]["<another>"] = tokenizer["model"]["vocab"].pop("<s>")
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(
        ValueError, match=r"speculative_model: the tokenizer of .*other has another vocabulary"
    ):
        await start_engine("qwen3", num_speculative_tokens=2, speculative_model=str(other))


def test_a_draft_model_with_fewer_tokens_is_refused(
    tiny_core: Callable[..., Any], tiny_model: Callable[[str], Any], tmp_path: Path
) -> None:
    small = tmp_path / "small"
    shutil.copytree(tiny_model("llama").path, small)
    config = json.loads((small / "config.json").read_text()) | {"vocab_size": 390}
    (small / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"speculative_model: .* knows 390 tokens, and the model has 400"):
        tiny_core("qwen3", num_speculative_tokens=2, speculative_model=str(small))
