"""Steps are counted and timed; only a step that computed something teaches the budget."""

import pytest

from engine.core.metrics import PHASES, EngineMetrics
from engine.core.scheduler import ScheduledSequence
from engine.core.sequence import SequenceGroup
from engine.core.step_budget import StepBudget
from engine.core.step_timer import StepTimer
from tests.engine.conftest import completion


class Budget(StepBudget):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.observed: list[tuple[int, int]] = []

    def observe(self, num_decodes: int, num_prefill_tokens: int, seconds: float) -> None:
        assert seconds > 0
        self.observed.append((num_decodes, num_prefill_tokens))


def plan() -> list[ScheduledSequence]:
    """A sequence that decodes, and a chunk of five prompt tokens."""
    group = SequenceGroup(completion((5,) * 9, n=2))
    for _ in range(2):
        group.add((5,) * 9, max_tokens=4, detokenizer=None)  # type: ignore[arg-type]
    first, second = group.sequences
    return [ScheduledSequence(first, 8, 9), ScheduledSequence(second, 0, 5)]


def test_a_step_tells_its_phases_and_its_tokens() -> None:
    metrics, budget = EngineMetrics(), Budget()
    timer = StepTimer(metrics, budget)
    with timer:
        timer.end_schedule(plan())
        for phase in PHASES[1:]:
            timer.end_phase(phase)
    assert [sum(metrics.step_seconds[phase].counts) for phase in PHASES] == [1, 1, 1, 1]
    assert (timer.num_steps, budget.observed) == (1, [(1, 5)])


def test_a_step_without_sequences_or_with_a_fatal_error_does_not_count() -> None:
    budget = Budget()
    timer = StepTimer(EngineMetrics(), budget)
    with timer:
        timer.end_schedule(plan())
    with timer:
        pass
    with pytest.raises(RuntimeError), timer:
        timer.end_schedule(plan())
        raise RuntimeError
    assert (timer.num_steps, budget.observed) == (1, [(1, 5)])
