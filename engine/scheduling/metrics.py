"""Measures the engine's own work, as plain values. Other modules decide how the values are shown.

One thread writes; any thread may read. Names and meanings are vLLM's where it has them. Times are wall time
of the engine's thread, in seconds. Work that a GPU does by itself is seen where the thread waits for it.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from time import perf_counter

from engine.protocol.stats import EngineStats, Histogram
from engine.scheduling.prompt_cost import num_attended
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.sequence import ScheduledSequence, Sequence
from engine.scheduling.step_budget import Budget

# fmt: off
SHORT_TIMES = (
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
)
LONG_TIMES = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1, 2, 5, 10, 20, 40, 60, 120, 480, 1920,
)
# fmt: on
POWERS_OF_TWO = tuple(2**n for n in range(15))

PHASES = ("schedule", "draft", "forward", "sample", "update")
"""The phases of a step. `update` makes text and deltas. If the next step goes ahead, its `schedule` and its
`forward` count to this one, and it has no `draft`."""


class EngineMetrics:
    """Kept by the engine's thread, which says where it is. The `Budget` learns each step's time.

    While the next step runs ahead, a step's time is that from the end of the step before it."""

    def __init__(self, budget: Budget) -> None:
        self.num_steps = 0
        """Steps that computed something."""
        self.num_computed_tokens = 0
        """Tokens that the model computed, guesses too. A token that is computed again counts again."""
        self.step_seconds: Mapping[str, Histogram] = {phase: Histogram(SHORT_TIMES) for phase in PHASES}
        """By phase."""
        self.histograms: Mapping[str, Histogram] = {
            "iteration_tokens_total": Histogram(POWERS_OF_TWO),
            "iteration_sequences": Histogram(POWERS_OF_TWO),
            "request_queue_time_seconds": Histogram(LONG_TIMES),
            "request_prefill_time_seconds": Histogram(LONG_TIMES),
            "request_decode_time_seconds": Histogram(LONG_TIMES),
        }
        """By name. A request has an entry for each of its outputs. An output that is rewound and ends again
        has another entry in `request_decode_time_seconds`."""
        self._budget = budget
        self._now = 0.0
        self._num_decodes = self._num_tokens = 0
        """The counts of this step, as scheduled. No tokens: nothing is scheduled yet."""
        self._spent: dict[str, float] = {}
        """Seconds of this step, by phase."""
        self._attended = 0.0
        """The `num_attended` of the step's prompt tokens."""

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step runs in this context. A step that raises, or that computes nothing, does not count."""
        started = self._now = perf_counter()
        self._num_tokens = 0
        self._spent.clear()
        yield
        if self._num_tokens:
            self.num_steps += 1
            for phase, seconds in self._spent.items():
                self.step_seconds[phase].observe(seconds)
            num_prefill_tokens = self._num_tokens - self._num_decodes
            seconds = perf_counter() - started
            self._budget.observe(self._num_decodes, num_prefill_tokens, seconds, self._attended)

    def end_phase(self, phase: str) -> None:
        """End one of the `PHASES`, or a part of it. It began where the last one ended."""
        began, self._now = self._now, perf_counter()
        self._spent[phase] = self._spent.get(phase, 0.0) + self._now - began

    def queue(self, seq: Sequence) -> None:
        """Note that a sequence was added."""
        seq.queued_at = perf_counter()

    def begin(self, scheduled: Seq[ScheduledSequence]) -> None:
        """Note the sequences that the step runs. Call it before another step is planned."""
        self._budget.begin()
        self._num_decodes = self._num_tokens = num_tokens = 0
        self._attended = 0.0
        for s in scheduled:
            num_tokens += s.num_tokens  # with the draft
            self._num_tokens += s.end - s.start
            if s.is_decode:
                self._num_decodes += 1
            else:
                self._attended += num_attended(s.end - s.start, s.start)
            if not s.sequence.scheduled_at:
                s.sequence.scheduled_at = self._now
                self._observe("request_queue_time_seconds", self._now - s.sequence.queued_at)
        self.num_computed_tokens += num_tokens
        self._observe("iteration_tokens_total", num_tokens)
        self._observe("iteration_sequences", len(scheduled))

    def advance(self, seq: Sequence) -> None:
        """Note that a sequence got a token, or ended."""
        if not seq.first_token_at:
            seq.first_token_at = self._now
            self._observe("request_prefill_time_seconds", self._now - seq.scheduled_at)
        if seq.is_done:
            self._observe("request_decode_time_seconds", self._now - seq.first_token_at)

    def stats(self, scheduler: Scheduler) -> EngineStats:
        """The numbers of every core. Those of requests are for the core to add."""
        blocks = scheduler.block_manager
        return EngineStats(
            num_running=len({seq.group for seq in scheduler.running}),
            num_waiting=len({seq.group for seq in scheduler.waiting}),
            computed_tokens_total=self.num_computed_tokens,
            steps_total=self.num_steps,
            preemptions_total=scheduler.num_preempted,
            prefix_cache_queries_total=scheduler.num_cache_queries,
            prefix_cache_hits_total=scheduler.num_cache_hits,
            kv_blocks_used=blocks.num_used,
            kv_blocks=blocks.num_blocks,
            step_seconds=self.step_seconds,
            histograms=self.histograms,
        )

    def _observe(self, name: str, value: float) -> None:
        self.histograms[name].observe(value)
