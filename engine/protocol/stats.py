"""The numbers that an engine counts, for metrics."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

ReplicaState = Literal["closed", "half_open", "open", "draining"]
"""The state of a replica's circuit breaker. A draining replica gets no new request either."""

ReplicaOutcome = Literal["finished", "refused", "full", "failed", "closed", "shutdown"]
"""The end of a request at a replica: `refused` by the caller's fault, `full` for a full queue, `closed` by
the caller, `shutdown` by this server, which stops."""


class Histogram:
    """The number of values in each bucket. One thread writes; a reader may find the sum one behind.

    Observing a value takes a quarter of a microsecond and no lock. prometheus_client's takes a lock, and five
    times as long.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: the upper ends of the buckets, ascending. Values above the last have a bucket too."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """Gauges, counters and a histogram of one engine in a pool. The engine keeps counting."""

    outstanding: int
    """Requests that run there."""
    outcomes: Mapping[ReplicaOutcome, int]
    retries_total: int
    """Requests that another replica got because they failed here."""
    state: ReplicaState
    first_token_seconds: Histogram
    problem: str | None = None
    """The engine's fault, in general words; None: no fault is known."""
    last_request_failed: bool = False
    """Whether the latest request that the engine answered or failed was a failure. The breaker may still be
    closed: it opens after several failures."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Gauges, counters and histograms of an engine. Counters end in `_total`."""

    num_running: int = 0
    num_waiting: int = 0
    prompt_tokens_total: int = 0
    generation_tokens_total: int = 0
    computed_tokens_total: int = 0
    """Tokens that the model computed: of prompts except cached ones, of outputs, and guesses. A token counts
    again if it is computed again."""
    aborted_total: int = 0
    steps_total: int = 0
    preemptions_total: int = 0
    prefix_cache_queries_total: int = 0
    """Prompt tokens that the engine looked for in the cache."""
    prefix_cache_hits_total: int = 0
    """Prompt tokens that the engine found in the cache."""
    kv_blocks_used: int = 0
    """Blocks in use. Blocks that are only cached do not count."""
    kv_blocks: int = 0
    spec_decode_drafts_total: int = 0
    spec_decode_draft_tokens_total: int = 0
    spec_decode_accepted_tokens_total: int = 0
    """Draft tokens that were equal to the drawn tokens."""
    step_seconds: Mapping[str, Histogram] = field(default_factory=dict)
    """Seconds that each phase of a step took, by the phase's name. The engine keeps counting."""
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    """Other histograms, by name."""
    replicas: Mapping[str, ReplicaStats] = field(default_factory=dict)
    """The engines of a pool, by name."""

    @property
    def kv_cache_usage(self) -> float:
        """The share of the key-value cache in use, from 0 to 1."""
        return self.kv_blocks_used / self.kv_blocks if self.kv_blocks else 0.0


def counted_since(stats: EngineStats, before: EngineStats) -> EngineStats:
    """The stats of an engine, whose counters and histograms have what was added to those of `before`."""
    counters = {
        one.name: getattr(stats, one.name) - getattr(before, one.name)
        for one in fields(EngineStats)
        if one.name.endswith("_total")
    }
    return replace(
        stats,
        **counters,
        step_seconds=_added(stats.step_seconds, before.step_seconds),
        histograms=_added(stats.histograms, before.histograms),
    )


def _added(all_: Mapping[str, Histogram], before: Mapping[str, Histogram]) -> dict[str, Histogram]:
    added: dict[str, Histogram] = {}
    for name, histogram in all_.items():
        known = before.get(name) or Histogram(histogram.bounds)
        added[name] = one = Histogram(histogram.bounds)
        one.counts = [now - then for now, then in zip(histogram.counts, known.counts, strict=True)]
        one.sum = histogram.sum - known.sum
    return added
