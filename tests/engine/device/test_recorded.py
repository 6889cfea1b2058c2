"""The stand-in for CUDA graphs finds what a graph would refuse, or would not do again."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.execution.cuda_graphs import Run
from tests.engine.device.recorded import RecordingPool, RefuseToWait, host_is_refused

READS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda t: t.sum().item(),
    "float": lambda t: float(t[0]),
    "bool": lambda t: bool(t[0]),
    "mask": lambda t: t[t > 0],
    "nonzero": lambda t: t.nonzero(),
    "write by a mask": lambda t: t.__setitem__(t > 0, torch.zeros(2)),
}
OTHER_READS: dict[str, Callable[[Tensor], Any]] = {
    "tolist": lambda t: t.tolist(),
    "cpu": lambda t: t.cpu(),
    "numpy": lambda t: t.numpy(),
}
COPIES: dict[str, Callable[[Tensor], Any]] = {
    "from a list": lambda t: t + torch.tensor([1.0, 2.0, 3.0]),
    "a number": lambda t: t.new_tensor(3.0),
}
MODES = [torch.no_grad, torch.inference_mode]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("read", READS)
def test_operators_that_wait_are_found(read: str, mode: Any) -> None:
    with pytest.raises(AssertionError), mode(), RefuseToWait():
        READS[read](torch.tensor([1.0, -1.0, 2.0]))


@pytest.mark.parametrize("read", OTHER_READS)
def test_reads_without_an_operator_are_found(read: str) -> None:
    with pytest.raises(AssertionError, match=read), host_is_refused():
        OTHER_READS[read](torch.ones(3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [*READS, *OTHER_READS, *COPIES])
def test_a_capture_refuses_what_cuda_refuses(kind: str, mode: Any) -> None:
    given = torch.tensor([1.0, -1.0, 2.0])

    def run() -> Tensor:
        (READS | OTHER_READS | COPIES)[kind](given)
        return given + 1

    with mode(), pytest.raises(AssertionError):
        RecordingPool()(run)


def captured(run: Run, pool: RecordingPool | None = None) -> Run:
    with torch.inference_mode():
        return (pool or RecordingPool())(run)


def test_a_replay_computes_from_the_numbers_that_are_there_now() -> None:
    static, kept = torch.zeros(3), torch.zeros(3)

    def run() -> Tensor:
        doubled = static * 2
        kept.copy_(doubled[:2].sum())
        return doubled.view(3, 1) + kept

    replay = captured(run)
    for values in ([1.0, 2.0, 3.0], [5.0, 0.0, 1.0]):
        static.copy_(torch.tensor(values))
        expected = run().clone()
        kept.zero_()
        assert torch.equal(replay(), expected)
        assert kept[0] == 2 * sum(values[:2])


def test_a_replay_runs_no_code_of_python_again() -> None:
    static, calls = torch.ones(2), []

    def run() -> Tensor:
        calls.append(len(calls))
        return static + len(calls)

    replay = captured(run)
    assert [replay().tolist() for _ in range(3)] == [[3.0, 3.0]] * 3
    assert len(calls) == 2


def test_a_result_that_is_kept_from_one_run_to_the_next_is_garbage_in_a_replay() -> None:
    """As a batch keeps masks: only the first run makes them."""
    static = torch.ones(2)
    kept: dict[str, Tensor] = {}
    num_runs = 0

    def run() -> Tensor:
        nonlocal num_runs
        num_runs += 1
        if num_runs == 2:  # the one that is recorded
            kept["mask"] = static + 1
        return static * 3

    pool = RecordingPool()
    captured(run, pool)()
    replay = captured(lambda: static * 2, pool)
    assert replay().tolist() == [2.0, 2.0]
    assert kept["mask"][0] > 1e30
    with pytest.raises(AssertionError, match="another graph has made"):
        captured(lambda: static + kept["mask"], pool)


def test_memory_that_is_freed_after_the_capture_is_found() -> None:
    static, passing = torch.ones(2), [torch.ones(2)]
    replay = captured(lambda: static + passing[0])
    assert replay().tolist() == [2.0, 2.0]
    passing.clear()
    with pytest.raises(AssertionError, match="was freed"):
        replay()


def test_results_last_until_the_next_replay() -> None:
    static, pool = torch.ones(2), RecordingPool()
    one, other = captured(lambda: static + 1, pool), captured(lambda: static + 2, pool)
    first = one()
    assert first.tolist() == [2.0, 2.0]
    assert other().tolist() == [3.0, 3.0]
    assert first[0] > 1e30
