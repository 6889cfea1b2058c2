"""The engine measures every step and every output. A step that computed something teaches the budget."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import reduce
from operator import add
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import EngineStats
from engine.protocol.stats import Histogram
from engine.scheduling.metrics import PHASES, EngineMetrics
from engine.scheduling.prompt_cost import num_attended
from engine.scheduling.sequence import ScheduledSequence, SequenceGroup
from engine.scheduling.step_budget import StepBudget
from tests.engine.conftest import completion

NUMBERS = st.floats(-10, 10)


@given(st.sets(NUMBERS, min_size=1).map(sorted), st.lists(NUMBERS))
def test_a_value_is_counted_in_the_bucket_that_prometheus_would_use(
    bounds: list[float], values: list[float]
) -> None:
    """It is the first bucket whose upper end is not below the value."""
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    for i, bound in enumerate(bounds):
        assert sum(histogram.counts[: i + 1]) == sum(value <= bound for value in values)
    assert sum(histogram.counts) == len(values)
    assert histogram.sum == reduce(add, values, 0.0)  # from Python 3.12 on, `sum` corrects rounding


async def test_every_step_and_output_is_measured(start_engine: Callable[..., Awaitable[Any]]) -> None:
    # There are fewer places than outputs, so some wait. A prompt takes several steps.
    engine = await start_engine(max_num_seqs=2, max_num_batched_tokens=8)
    answers = await asyncio.gather(
        *(engine.complete("hello world, hello world", max_tokens=n, n=2, ignore_eos=True) for n in (1, 5))
    )
    stats = engine.stats()
    for phase in PHASES:
        assert sum(stats.step_seconds[phase].counts) == stats.steps_total
        assert stats.step_seconds[phase].sum > 0
    counts = {name: sum(histogram.counts) for name, histogram in stats.histograms.items()}
    assert counts["iteration_tokens_total"] == counts["iteration_sequences"] == stats.steps_total
    assert counts["request_queue_time_seconds"] == counts["request_prefill_time_seconds"] == 4
    assert counts["request_decode_time_seconds"] == 4
    num_prompt = sum(len(output.deltas[0].prompt_token_ids) for answer in answers for output in answer)
    # Every token is computed except the last one of each output.
    assert stats.histograms["iteration_tokens_total"].sum == num_prompt + stats.generation_tokens_total - 4
    assert stats.histograms["iteration_sequences"].sum <= 2 * stats.steps_total
    assert stats.histograms["request_queue_time_seconds"].sum > 0
    assert stats.kv_cache_usage == 0


def test_cache_usage_is_a_share_of_all_blocks() -> None:
    assert EngineStats(kv_blocks_used=3, kv_blocks=12).kv_cache_usage == 0.25
    assert EngineStats().kv_cache_usage == 0


class Budget(StepBudget):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.observed: list[tuple[int, int]] = []

    def observe(
        self, num_decodes: int, num_prefill_tokens: int, seconds: float, attended: float = 0.0
    ) -> None:
        assert seconds > 0
        assert attended == num_attended(5, 0), "the sequence that decodes does not count"
        self.observed.append((num_decodes, num_prefill_tokens))


def plan() -> list[ScheduledSequence]:
    """A sequence that decodes, and a chunk of five prompt tokens."""
    group = SequenceGroup(completion((5,) * 9, n=2))
    for _ in range(2):
        group.add((5,) * 9, max_tokens=4, detokenizer=None)  # type: ignore[arg-type]
    first, second = group.sequences
    return [ScheduledSequence(first, 8, 9), ScheduledSequence(second, 0, 5)]


def test_a_step_tells_its_phases_and_its_tokens() -> None:
    budget = Budget()
    metrics = EngineMetrics(budget)
    with metrics.step():
        metrics.begin(plan())
        for phase in PHASES:
            metrics.end_phase(phase)
    assert [sum(metrics.step_seconds[phase].counts) for phase in PHASES] == [1, 1, 1, 1, 1]
    assert (metrics.num_steps, budget.observed) == (1, [(1, 5)])


def test_a_step_without_sequences_or_with_a_fatal_error_does_not_count() -> None:
    budget = Budget()
    metrics = EngineMetrics(budget)
    with metrics.step():
        metrics.begin(plan())
    with metrics.step():
        pass
    with pytest.raises(RuntimeError), metrics.step():
        metrics.begin(plan())
        raise RuntimeError
    assert (metrics.num_steps, budget.observed) == (1, [(1, 5)])
