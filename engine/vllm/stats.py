"""The numbers of vLLM's schedulers. vLLM has one scheduler for each data parallel rank."""

from typing import Any

from vllm.config import VllmConfig
from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.stats import IterationStats, SchedulerStats


class SchedulerCounts(PrometheusStatLogger):
    """Counts what the schedulers of one engine report after each step.

    It stands in for vLLM's own counters, which vLLM adds if no other logger of their class is given. They
    cost time for each token, nobody would read them, and a wrong number of a connector ends the engine there.
    """

    def __init__(self, vllm_config: VllmConfig, engine_indexes: list[int] | None = None) -> None:
        self._cache = vllm_config.cache_config
        self._latest: dict[int, SchedulerStats] = {}
        """By rank."""
        self.num_steps = 0
        self.num_preempted = 0
        self.num_cache_queries = 0
        """Prompt tokens."""
        self.num_cache_hits = 0

    @property
    def num_running(self) -> int:
        """vLLM's requests: outputs of Weir's requests."""
        return sum(int(one.num_running_reqs) for one in self._latest.values())

    @property
    def num_waiting(self) -> int:
        return sum(int(one.num_waiting_reqs) for one in self._latest.values())

    @property
    def num_blocks(self) -> int:
        num: int = (self._cache.num_gpu_blocks or 0) * max(1, len(self._latest))
        return num

    @property
    def num_used_blocks(self) -> int:
        usage = sum(float(one.kv_cache_usage) for one in self._latest.values())
        return round(usage * int(self._cache.num_gpu_blocks or 0))

    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: IterationStats | None,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        if iteration_stats is not None:
            self.num_preempted += iteration_stats.num_preempted_reqs
        if scheduler_stats is not None:
            self.num_steps += 1
            self._latest[engine_idx] = scheduler_stats
            self.num_cache_queries += scheduler_stats.prefix_cache_stats.queries
            self.num_cache_hits += scheduler_stats.prefix_cache_stats.hits

    def log_engine_initialized(self) -> None:
        pass

    def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
        pass

    def record_admission_rejection(self, reason: str) -> None:
        pass
