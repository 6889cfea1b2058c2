"""`/metrics`, in Prometheus' text form, named as vLLM names its own, under `weir_`.

What the engine and the hooks count is read when it is asked for; nothing here runs for each token.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.protocol import Engine
from hooks.pipeline import Opener

_TTFT_BUCKETS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
)


class Metrics:
    """This server's metrics, in a registry of their own."""

    def __init__(self, engine: Engine, pipeline: Opener) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Counted(engine, pipeline))
        self.time_to_first_token = Histogram(
            "weir_time_to_first_token_seconds",
            "From a request's arrival to its first vetted piece.",
            ["endpoint"],
            buckets=_TTFT_BUCKETS,
            registry=self._registry,
        )
        self.requests = Counter(
            "weir_requests",
            "Generations, by end: finished, refused (the caller's fault), failed, closed (the caller left).",
            ["endpoint", "outcome"],
            registry=self._registry,
        )

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _Counted(Collector):
    def __init__(self, engine: Engine, pipeline: Opener) -> None:
        self._engine = engine
        self._pipeline = pipeline

    def collect(self) -> Iterator[Metric]:
        stats = self._engine.stats()
        gauges = {
            "weir_num_requests_running": ("Requests that the engine works on.", stats.num_running),
            "weir_num_requests_waiting": ("Requests that wait for the engine.", stats.num_waiting),
            "weir_kv_blocks_used": ("Blocks of the key-value cache in use.", stats.kv_blocks_used),
            "weir_kv_blocks": ("Blocks of the key-value cache.", stats.kv_blocks),
        }
        counters = {
            "weir_prompt_tokens": ("Prompt tokens taken in.", stats.prompt_tokens_total),
            "weir_generation_tokens": ("Tokens generated.", stats.generation_tokens_total),
            "weir_requests_aborted": ("Requests whose work was cancelled.", stats.aborted_total),
            "weir_engine_steps": ("Steps of the engine.", stats.steps_total),
            "weir_num_preemptions": ("Times that an output gave up its blocks.", stats.preemptions_total),
            "weir_prefix_cache_queries": (
                "Prompt tokens looked for in the cache.",
                stats.prefix_cache_queries_total,
            ),
            "weir_prefix_cache_hits": (
                "Prompt tokens found in the cache, and so not computed.",
                stats.prefix_cache_hits_total,
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value=value)
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(name, text, value=value)
        verdicts = CounterMetricFamily(
            "weir_hook_verdicts", "Verdicts, by hook and what they did.", labels=["hook", "action"]
        )
        for hook, tally in self._pipeline.tallies.items():
            for action, count in tally.verdicts.items():
                verdicts.add_metric([hook, action], count)
        yield verdicts
