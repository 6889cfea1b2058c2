"""A failure stays with the requests that it concerns. Only the loss of the device concerns all of them."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

import pytest
import torch

from engine.core.isolation import attempt, draw_apart, read_apart, run_what_fits
from engine.device import cuda
from engine.protocol import EngineError, LogitsProcessorError
from engine.protocol.errors import DeviceLostError
from engine.scheduling.sequence import ScheduledSequence, SequenceGroup
from tests.engine.conftest import completion
from tests.engine.core.sequences import sequences


class FailingSampler:
    """Draws the number of its row's value, and fails on a batch with a negative one."""

    def __init__(self, error: Callable[..., Exception] = RuntimeError) -> None:
        self.error = error
        self.sizes: list[int] = []

    def draw(self, logits: torch.Tensor, states: list[Any]) -> Any:
        self.sizes.append(len(states))
        assert len(logits) == len(states)
        if (logits < 0).any():
            raise self.error("hush")
        return logits.flatten().int().tolist()


def test_halves_are_tried_until_only_the_row_at_fault_fails(caplog: pytest.LogCaptureFixture) -> None:
    sampler, rows = FailingSampler(), sequences(5)
    logits = torch.tensor([[4.0], [5.0], [6.0], [-1.0], [8.0]])
    *draws, (failed, error), last = draw_apart(sampler, logits, range(5), rows)  # type: ignore[arg-type]
    assert [*draws, last] == [(rows[:2], [4, 5]), (rows[2:3], [6]), (rows[4:], [8])]
    assert failed == rows[3:4]
    assert isinstance(error, EngineError)
    assert error.status == 500
    assert sampler.sizes == [5, 2, 3, 1, 2, 1, 1]
    assert "sampling failed for one sequence" in caplog.text


def test_a_batch_without_failure_is_one_call() -> None:
    sampler, rows = FailingSampler(), sequences(3)
    logits = torch.ones(3, 1)
    assert draw_apart(sampler, logits, range(3), rows) == [(rows, [1, 1, 1])]  # type: ignore[arg-type]
    assert sampler.sizes == [3]
    assert draw_apart(sampler, torch.ones(0, 1), [], []) == []  # type: ignore[arg-type]


def test_a_sequence_draws_from_its_own_row() -> None:
    sampler, two = FailingSampler(), sequences(2)
    logits = torch.tensor([[4.0], [-1.0], [6.0]])
    assert draw_apart(sampler, logits, [2, 0], two) == [(two, [6, 4])]  # type: ignore[arg-type]


def test_a_draw_that_finds_too_little_memory_is_tried_in_halves() -> None:
    sampler, rows = FailingSampler(torch.OutOfMemoryError), sequences(3)
    logits = torch.tensor([[4.0], [5.0], [-1.0]])
    *draws, (_, error) = draw_apart(sampler, logits, range(3), rows)  # type: ignore[arg-type]
    assert draws == [(rows[:1], [4]), (rows[1:2], [5])]
    assert isinstance(error, EngineError)
    assert error.status == 503


class FailingDraw:
    """Fails once its tokens are read, as kernels do that run later."""

    def read(self) -> list[Any]:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")


def test_a_draw_that_cannot_be_read_fails_its_sequences_or_tells_the_loss_of_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two, draw = sequences(2), FailingDraw()
    read = read_apart(two, draw)  # type: ignore[arg-type]
    assert [type(one) for one in read.values()] == [EngineError] * 2
    monkeypatch.setattr(cuda, "synchronize", draw.read)
    with pytest.raises(DeviceLostError):
        read_apart(two, draw)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [torch.AcceleratorError, RuntimeError])
def test_the_loss_of_the_device_is_raised(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise error("CUDA error: device-side assert triggered")

    monkeypatch.setattr(cuda, "synchronize", fails)
    sampler = FailingSampler(error)
    with pytest.raises(DeviceLostError):
        draw_apart(sampler, -torch.ones(2, 1), range(2), sequences(2))  # type: ignore[arg-type]
    assert sampler.sizes == [2]
    with pytest.raises(DeviceLostError):
        attempt("a step", sampler.draw, -torch.ones(1, 1), [None])


def test_a_loss_that_is_known_already_is_raised_without_asking_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Logits processors ask the device themselves when they fail."""
    asked: list[None] = []
    monkeypatch.setattr(cuda, "synchronize", lambda: asked.append(None))
    sampler = FailingSampler(lambda _: DeviceLostError())
    with pytest.raises(DeviceLostError):
        draw_apart(sampler, -torch.ones(2, 1), range(2), sequences(2))  # type: ignore[arg-type]
    assert sampler.sizes == [2]
    assert not asked


def test_an_error_of_a_device_that_still_answers_is_no_loss() -> None:
    sampler = FailingSampler(torch.AcceleratorError)
    error = attempt("a step", sampler.draw, -torch.ones(1, 1), [None])
    assert isinstance(error, EngineError)
    assert error.status == 500


def test_a_lack_of_memory_is_told_as_such_in_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    error = attempt("a draw", FailingSampler(torch.OutOfMemoryError).draw, -torch.ones(1, 1), [None])
    assert isinstance(error, EngineError)
    assert error.status == 503
    assert [(r.getMessage(), r.exc_info) for r in caplog.records] == [
        ("a draw finds too little memory", None)
    ]


def test_an_error_says_nothing_about_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    error = attempt("a step", FailingSampler().draw, -torch.ones(1, 1), [None])
    assert isinstance(error, EngineError)
    assert "hush" not in str(error)
    assert "a step failed" in caplog.text


def test_a_logits_processor_s_own_error_is_kept() -> None:
    error = LogitsProcessorError("likes")

    def fail() -> None:
        raise error

    assert attempt("one sequence", fail) is error
    assert attempt("one sequence", lambda: 7) == 7


def test_the_newest_requests_are_left_out_one_then_two_then_four() -> None:
    groups = [SequenceGroup(completion((5,))) for _ in range(10)]
    scheduled = []
    for arrival, group in enumerate(groups):
        group.arrival = arrival
        seq = group.add((5,), max_tokens=1, detokenizer=None)  # type: ignore[arg-type]
        scheduled.append(ScheduledSequence(seq, 0, 1))
    sizes = []

    def run(some: Seq[ScheduledSequence]) -> str:
        sizes.append(len(some))
        if len(some) > 3:
            raise MemoryError
        return "done"

    assert run_what_fits(run, scheduled) == ("done", scheduled[:3], set(groups[3:]))
    assert sizes == [10, 9, 7, 3]


def test_other_errors_of_a_step_are_raised_at_once() -> None:
    with pytest.raises(ZeroDivisionError):
        run_what_fits(lambda some: 1 // 0, [ScheduledSequence(sequences(1)[0], 0, 1)])
