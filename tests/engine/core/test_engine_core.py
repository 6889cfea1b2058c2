"""The whole core generates the same as transformers, whatever else it runs meanwhile."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.protocol import GenerationRequest
from tests.engine.conftest import cramped_core, random_prompts
from tests.helpers import slow

FAMILIES = ["qwen3", "llama", "mistral", "gemma2", "gemma3", "gpt_oss", "deepseek_v3", "gpt2"]
IMPLEMENTATIONS: dict[str, dict[str, Any]] = {
    "own": {},
    "own in torch": {"cpu_kernels": "torch"},
    "transformers": {"model_impl": "transformers"},
}
RUNS = [
    *((family, implementation) for family in FAMILIES[:3] for implementation in IMPLEMENTATIONS),
    *((family, "transformers") for family in FAMILIES[3:]),
]
# In every cache, implementation and family once.
FEW_RUNS = {("qwen3", "own"), ("llama", "own in torch"), ("mistral", "transformers"), *RUNS[9:]}


@pytest.mark.parametrize(
    ("family", "implementation"), [run if run in FEW_RUNS else slow(*run) for run in RUNS]
)
@pytest.mark.parametrize("is_cramped", [False, True], ids=["roomy", "cramped"])
def test_greedy_output_equals_that_of_transformers(
    family: str,
    implementation: str,
    is_cramped: bool,
    tiny_core: Callable[..., Any],
    tiny_model: Callable[[str], Any],
    completion_request: Callable[..., GenerationRequest],
) -> None:
    settings = IMPLEMENTATIONS[implementation]
    core = cramped_core(tiny_core, family, **settings) if is_cramped else tiny_core(family, **settings)
    prompts = random_prompts(6, longest=40)
    groups, num_preempted = [], 0
    for prompt in prompts:
        groups.append(core.add(completion_request(tuple(prompt), max_tokens=28, ignore_eos=True)))
        for _ in range(3):
            core.step()
    while core.core.has_work:
        core.step()
        num_preempted += any(s.num_output_tokens for s in core.core.scheduler.waiting)
    assert is_cramped == bool(num_preempted)
    assert core.core.block_manager.num_used == 0
    for prompt, group in zip(prompts, groups, strict=True):
        assert core.answers(group)[0].ids == tiny_model(family).generate(prompt, 28)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "top_p": 0.95, "top_k": 200, "seed": 7}])
def test_each_of_64_streams_equals_its_solo_run(
    sampling: dict[str, Any],
    tiny_core: Callable[..., Any],
    completion_request: Callable[..., GenerationRequest],
) -> None:
    core, rng = tiny_core(max_num_seqs=64, max_num_batched_tokens=128), random.Random(2)
    requests = [
        completion_request(tuple(prompt), max_tokens=rng.randint(1, 24), logprobs=2, **sampling)
        for prompt in random_prompts(64, longest=50, seed=1)
    ]
    groups = []
    for request in requests:
        groups.append(core.add(request))
        if rng.random() < 0.3:
            core.step()
    core.run()
    for request, group in zip(requests, groups, strict=True):
        alone = core.add(request)
        core.run()
        together, solo = core.answers(group)[0], core.answers(alone)[0]
        assert together.ids == solo.ids
        assert [t.logprob for t in together.tokens] == pytest.approx(
            [t.logprob for t in solo.tokens], abs=1e-4
        )


def test_a_preempted_stream_continues_as_without_preemption(
    tiny_core: Callable[..., Any], completion_request: Callable[..., GenerationRequest]
) -> None:
    """Its draws and prompt logprobs are the same as in an engine with room for all sequences."""
    requests = [
        completion_request(
            tuple(p), max_tokens=20, temperature=1.0, seed=3, logprobs=3, echo=True, ignore_eos=True
        )
        for p in random_prompts(5, longest=45, seed=4)
    ]
    results = []
    for core in (tiny_core(), cramped_core(tiny_core, "llama")):
        groups = [core.add(request) for request in requests]
        core.run()
        results.append([core.answers(group)[0] for group in groups])
    for roomy, cramped in zip(*results, strict=True):
        assert roomy.ids == cramped.ids
        assert [t.id for t in roomy.echo] == [t.id for t in cramped.echo]
        assert cramped.echo[0].logprob is None
        for tokens in ("echo", "tokens"):
            of_roomy, of_cramped = (
                [t.logprob for t in getattr(a, tokens) if t.logprob] for a in (roomy, cramped)
            )
            assert of_roomy == pytest.approx(of_cramped, abs=1e-4)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
def test_half_precision_gives_nearly_the_same_logprobs(
    family: str, tiny_core: Callable[..., Any], completion_request: Callable[..., GenerationRequest]
) -> None:
    request = completion_request(tuple(random_prompts(1, 40, seed=5)[0]), echo=True, logprobs=0, max_tokens=2)
    logprobs = []
    for core in (tiny_core(family), tiny_core(family, dtype="bfloat16", max_num_batched_tokens=16)):
        group = core.add(request)
        core.run()
        logprobs.append(torch.tensor([t.logprob for t in core.answers(group)[0].echo[1:]]))
    assert (logprobs[0] - logprobs[1]).abs().median() < 0.2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("family", FAMILIES)
def test_cuda_and_cpu_give_the_same_outputs(
    family: str, tiny_core: Callable[..., Any], completion_request: Callable[..., GenerationRequest]
) -> None:
    outputs = []
    for core in (
        tiny_core(family, device="cpu"),
        tiny_core(family, device="cuda", max_num_batched_tokens=16),
    ):
        groups = [
            core.add(completion_request(tuple(p), max_tokens=20, logprobs=2))
            for p in random_prompts(6, longest=40)
        ]
        core.run()
        outputs.append([core.answers(group)[0].ids for group in groups])
    assert outputs[0] == outputs[1]


def test_abort_frees_blocks_within_one_step(
    tiny_core: Callable[..., Any], completion_request: Callable[..., GenerationRequest]
) -> None:
    core = tiny_core()
    group = core.add(completion_request((5, 6, 7), (8, 9), n=2, max_tokens=50))
    other = core.add(completion_request((5, 6, 7), max_tokens=50, ignore_eos=True))
    core.step()
    assert core.core.block_manager.num_used == 5
    core.core.abort(group)
    core.step()
    assert core.core.block_manager.num_used == 1
    assert core.core.stats().aborted_total == 1
    core.run()
    assert len(core.answers(other)[0].ids) == 50


@pytest.mark.parametrize("seed", range(3))
def test_no_block_is_lost_when_requests_come_and_leave_at_random(
    seed: int, tiny_core: Callable[..., Any], completion_request: Callable[..., GenerationRequest]
) -> None:
    rng, core = random.Random(seed), cramped_core(tiny_core, "qwen3")
    live = []
    for prompt in random_prompts(25, longest=45, seed=seed):
        live.append(
            core.add(completion_request(tuple(prompt), max_tokens=rng.randint(0, 20), n=rng.randint(1, 2)))
        )
        for _ in range(rng.randint(0, 4)):
            core.step()
        if rng.random() < 0.4:
            core.core.abort(live.pop(rng.randrange(len(live))))
            core.check_blocks()
    core.run()
    assert core.core.block_manager.num_used == 0
    for group in live:
        core.answers(group)


def test_stats_count_requests_blocks_steps_and_tokens(
    tiny_core: Callable[..., Any], completion_request: Callable[..., GenerationRequest]
) -> None:
    core = tiny_core()
    core.add(completion_request((5, 6, 7), n=2, max_tokens=4, ignore_eos=True))
    core.step()
    stats = core.core.stats()
    assert (stats.num_running, stats.num_waiting, stats.kv_blocks_used) == (1, 0, 2)
    core.run()
    stats = core.core.stats()
    assert (stats.num_running, stats.kv_blocks_used, stats.steps_total) == (0, 0, 4)
    assert (stats.prompt_tokens_total, stats.generation_tokens_total) == (3, 8)
