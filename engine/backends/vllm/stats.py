"""The numbers of vLLM's schedulers. vLLM has one scheduler for each data parallel rank."""

from typing import Any

from vllm.config import VllmConfig
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import IterationStats, SchedulerStats


class SchedulerCounts(StatLoggerBase):
    """Counts what one scheduler tells after each of its steps."""

    def __init__(self, vllm_config: VllmConfig, engine_index: int = 0) -> None:
        self._cache = vllm_config.cache_config
        self._usage = 0.0
        self.num_running = 0
        """vLLM's requests: outputs of Weir's requests."""
        self.num_waiting = 0
        self.num_steps = 0
        self.num_preempted = 0
        self.num_cache_queries = 0
        """Prompt tokens."""
        self.num_cache_hits = 0

    @property
    def num_blocks(self) -> int:
        return self._cache.num_gpu_blocks or 0

    @property
    def num_used_blocks(self) -> int:
        return round(self._usage * self.num_blocks)

    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: IterationStats | None,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        if iteration_stats is not None:
            self.num_preempted += iteration_stats.num_preempted_reqs
        if scheduler_stats is None:
            return
        self.num_steps += 1
        self.num_running = scheduler_stats.num_running_reqs
        self.num_waiting = scheduler_stats.num_waiting_reqs
        self._usage = scheduler_stats.kv_cache_usage
        self.num_cache_queries += scheduler_stats.prefix_cache_stats.queries
        self.num_cache_hits += scheduler_stats.prefix_cache_stats.hits

    def log_engine_initialized(self) -> None:
        pass
