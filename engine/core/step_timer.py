"""Times each step: its phases for the metrics, and all of it for the budget that prompts have."""

from collections.abc import Sequence
from time import perf_counter
from types import TracebackType

from engine.core.metrics import EngineMetrics
from engine.core.scheduler import ScheduledSequence
from engine.core.step_budget import StepBudget


class StepTimer:
    """A context manager that a step runs in, and that is told when one of the step's `PHASES` ends."""

    def __init__(self, metrics: EngineMetrics, budget: StepBudget) -> None:
        self.num_steps = 0
        """Steps that computed something."""
        self._metrics = metrics
        self._budget = budget
        self._started = 0.0
        self._num_tokens = 0
        """To be computed in this step; 0: nothing is scheduled yet."""
        self._num_decodes = 0

    def __enter__(self) -> None:
        self._num_tokens = 0
        self._metrics.begin_step()
        self._started = perf_counter()

    def end_schedule(self, scheduled: Sequence[ScheduledSequence]) -> None:
        self._metrics.end_phase("schedule")
        self._metrics.schedule(scheduled)
        self._num_decodes = sum(s.is_decode for s in scheduled)
        self._num_tokens = sum(s.end - s.start for s in scheduled)

    def end_phase(self, phase: str) -> None:
        self._metrics.end_phase(phase)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._num_tokens:
            self.num_steps += 1
            num_prefill_tokens = self._num_tokens - self._num_decodes
            self._budget.observe(self._num_decodes, num_prefill_tokens, perf_counter() - self._started)
