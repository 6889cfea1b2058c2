"""A step that finds too little memory fails its newest requests alone. The others never notice."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from engine.core.isolation import out_of_memory
from engine.device.layout import Span
from engine.protocol import GenerationRequest
from engine.sampling.logprobs import logprobs_of
from tests.engine.conftest import TinyCore, random_prompts

ERRORS = {
    "device": torch.OutOfMemoryError("CUDA out of memory"),
    "host": RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
    "python": MemoryError(),
    "pinned": torch.AcceleratorError("CUDA error: out of memory"),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "triton": RuntimeError("Triton Error [CUDA]: out of memory"),
}


def limit(core: TinyCore, most: int, error: Exception) -> None:
    """Let no step compute more than `most` sequences."""
    run = core.core.runner.run

    def limited(scheduled: Sequence[Span], token_ids: torch.Tensor | None) -> Any:
        if len(scheduled) > most:
            raise error
        return run(scheduled, token_ids)

    core.core.runner.run = limited  # type: ignore[assignment,method-assign]


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_the_newest_requests_fail_and_the_others_go_on(
    error: Exception, tiny_core: Callable[..., TinyCore], completion_request: Callable[..., GenerationRequest]
) -> None:
    core = tiny_core(max_num_seqs=16)
    requests = [
        completion_request(tuple(p), max_tokens=30, echo=True, logprobs=1, ignore_eos=True)
        for p in random_prompts(9, longest=12)
    ]
    old = [core.add(request) for request in requests[:4]]
    core.step()
    limit(core, 6, error)
    new = [core.add(request) for request in requests[4:]]
    core.run()
    assert core.errors
    assert set(core.errors) <= set(new)
    assert {(e.status, str(e)) for e in core.errors.values()} == {(503, str(out_of_memory()))}
    assert core.core.block_manager.num_used == 0
    roomy = tiny_core()
    for request, group in zip(requests, old, strict=False):
        alone = roomy.add(request)
        roomy.run()
        (answer,), (expected,) = core.answers(group), roomy.answers(alone)
        assert answer.ids == expected.ids
        assert [t.id for t in answer.echo] == [t.id for t in expected.echo]


def test_memory_that_runs_out_while_prompt_logprobs_are_read_gives_none_twice(
    monkeypatch: pytest.MonkeyPatch,
    tiny_core: Callable[..., TinyCore],
    completion_request: Callable[..., GenerationRequest],
) -> None:
    from engine.core import engine_core

    core, calls = tiny_core(), []

    def fails_at_the_third(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise MemoryError
        return logprobs_of(*args, **kwargs)

    monkeypatch.setattr(engine_core, "logprobs_of", fails_at_the_third)
    groups = [
        core.add(completion_request((7, 8, 9, i), max_tokens=1, echo=True, logprobs=1)) for i in (10, 11, 12)
    ]
    core.run()
    assert set(core.errors) == {groups[2]}
    assert [t.id for t in core.answers(groups[0])[0].echo] == [7, 8, 9, 10]
    assert [t.id for t in core.answers(groups[1])[0].echo] == [7, 8, 9, 11]


def test_a_request_too_large_for_a_step_of_its_own_fails_and_the_engine_serves_on(
    tiny_core: Callable[..., TinyCore], completion_request: Callable[..., GenerationRequest]
) -> None:
    core = tiny_core()
    run = core.core.runner.run
    limit(core, 0, MemoryError())
    doomed = core.add(completion_request((5, 6, 7), max_tokens=3))
    core.run()
    assert set(core.errors) == {doomed}
    core.core.runner.run = run  # type: ignore[method-assign]
    served = core.add(completion_request((5, 6, 7), max_tokens=3, ignore_eos=True))
    core.run()
    assert len(core.answers(served)[0].ids) == 3
