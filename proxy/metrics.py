"""`/metrics` in Prometheus' text format. Names are vLLM's, with the prefix `weir_`.

The engine, the hooks and the requests count with plain values; prometheus_client formats them when a client
asks. No label contains text of a caller or a model.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from time import perf_counter
from types import TracebackType
from typing import Self, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.backends.pool.totals import stats_of
from engine.protocol import Delta, EngineStats, RequestError, Usage
from engine.stats import Histogram, ReplicaState, ReplicaStats
from hooks.pipeline.tally import Tallies, Tally
from proxy.errors import APIError, CancelledByOperator
from proxy.policies.deployment import Deployment

TTFT_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 20, 80)
ITL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 10, 80)
REQUEST_SECONDS = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 20, 30, 40, 60, 120, 480, 1920)
TOKENS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))

Labels = tuple[str, ...]


class EndpointMetrics:
    """The counts and times of one endpoint's requests, as clients see them: after the hooks."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.time_to_first_token = Histogram(TTFT_SECONDS)
        self.inter_token_latency = Histogram(ITL_SECONDS)
        self.e2e_latency = Histogram(REQUEST_SECONDS)
        self.prompt_tokens = Histogram(TOKENS)
        self.generation_tokens = Histogram(TOKENS)


class RequestMetrics:
    """One request's metrics: what is released, when, and how the request ends. A context manager."""

    __slots__ = ("_arrived", "_endpoint", "_finished", "_first", "_outcome", "_released", "_usage")

    def __init__(self, endpoint: EndpointMetrics) -> None:
        self._endpoint = endpoint
        self._arrived = perf_counter()
        self._released: dict[int, float] = {}
        """The time of the last text of each output."""
        self._first: float | None = None
        """The time of the first text."""
        self._finished: dict[str, None] = {}
        """The outputs' finish reasons."""
        self._usage: Usage | None = None
        self._outcome: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.end("closed")
        else:
            self.fail(error)

    def release(self, delta: Delta) -> None:
        """Count a delta that the client gets now."""
        now = perf_counter()
        last = self._released.get(delta.index)
        if last is None:
            if self._first is None:
                self._first = now
                self._endpoint.time_to_first_token.observe(now - self._arrived)
            self._released[delta.index] = now
        elif delta.text:
            self._endpoint.inter_token_latency.observe(now - last)
            self._released[delta.index] = now
        if delta.usage is not None:
            self._usage = delta.usage
        if delta.finish_reason is not None:
            self._endpoint.finished[delta.finish_reason] += 1
            self._finished[delta.finish_reason] = None

    def fail(self, error: BaseException) -> None:
        """The request ends with this error."""
        self.end(_outcome(error))

    def end(self, outcome: str) -> None:
        """`outcome`: `finished`, `refused`, `failed` or `closed`. Only the first call counts."""
        if self._outcome is not None:
            return
        self._outcome = outcome
        endpoint = self._endpoint
        endpoint.outcomes[outcome] += 1
        if outcome != "finished":
            return
        endpoint.e2e_latency.observe(perf_counter() - self._arrived)
        if self._usage is not None:
            endpoint.prompt_tokens.observe(self._usage.prompt_tokens)
            endpoint.generation_tokens.observe(self._usage.completion_tokens)

    def summary(self) -> dict[str, str | int | float | None]:
        """The request in a few values: what the log says of it. None: not known, or not there."""
        first, usage = self._first, self._usage
        return {
            "outcome": self._outcome,
            "finish_reason": ",".join(self._finished) or None,
            "ttft_seconds": None if first is None else round(first - self._arrived, 6),
            "prompt_tokens": None if usage is None else usage.prompt_tokens,
            "completion_tokens": None if usage is None else usage.completion_tokens,
        }


def _outcome(error: BaseException) -> str:
    if isinstance(error, CancelledByOperator):
        return "closed"
    if isinstance(error, RequestError) or (isinstance(error, APIError) and error.status < 500):
        return "refused"
    return "failed" if isinstance(error, Exception) else "closed"


REQUEST_HISTOGRAMS = (
    ("time_to_first_token_seconds", "From arrival to the first released piece.", "time_to_first_token"),
    ("inter_token_latency_seconds", "Between two released pieces of an output.", "inter_token_latency"),
    ("e2e_request_latency_seconds", "From arrival to the end.", "e2e_latency"),
    ("request_prompt_tokens", "Prompt tokens of a request.", "prompt_tokens"),
    ("request_generation_tokens", "Tokens generated for a request.", "generation_tokens"),
)
"""Name and help, and the attribute of `EndpointMetrics`."""


class Metrics(Collector):
    """All metrics of this server."""

    def __init__(self, current: Callable[[], Deployment]) -> None:
        self._current = current
        self._endpoints: defaultdict[str, EndpointMetrics] = defaultdict(EndpointMetrics)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def request(self, endpoint: str) -> RequestMetrics:
        """The metrics of a request that arrives now."""
        return RequestMetrics(self._endpoints[endpoint])

    async def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        stats = _stats(self._current())
        yield from _engine(stats)
        yield from _steps(stats)
        yield from _upstreams(stats.replicas)
        yield from self._requests()
        yield from self._hooks()

    def _requests(self) -> Iterator[Metric]:
        endpoints = dict(self._endpoints)
        yield _counter(
            "requests",
            "Generations, by end: finished, refused (the caller's fault), failed, closed (the caller left, or"
            " the operator cancelled).",
            ("endpoint", "outcome"),
            [((e, outcome), n) for e, m in endpoints.items() for outcome, n in m.outcomes.items()],
        )
        ends = [((e, reason), n) for e, m in endpoints.items() for reason, n in m.finished.items()]
        labels = "endpoint", "finished_reason"
        yield _counter("request_success", "Outputs that ended, by finish reason.", labels, ends)
        for name, text, attribute in REQUEST_HISTOGRAMS:
            histograms = [((e,), getattr(m, attribute)) for e, m in endpoints.items()]
            yield _histogram(name, text, ("endpoint",), histograms)

    def _hooks(self) -> Iterator[Metric]:
        tallies = _tallies(self._current())
        verdicts = [
            ((hook, action), n) for hook, tally in tallies.items() for action, n in tally.verdicts.items()
        ]
        yield _counter("hook_verdicts", "Verdicts, by hook and action.", ("hook", "action"), verdicts)
        seconds = [((hook,), tally.seconds) for hook, tally in tallies.items()]
        yield _counter("hook_seconds", "Wall time of the hooks' calls.", ("hook",), seconds)


def _stats(deployment: Deployment) -> EngineStats:
    """The sums over all engines."""
    stats = [model.engine.stats() for model in deployment.models.values()]
    replicas = {name: replica for one in stats for name, replica in one.replicas.items()}
    return stats_of(stats, replicas)


def _tallies(deployment: Deployment) -> Tallies:
    """The sums over all policies, by hook."""
    sums: defaultdict[str, Tally] = defaultdict(Tally)
    for policy in deployment.policies.values():
        for name, tally in policy.pipeline.tallies.items():
            sums[name].add(tally)
    return sums


def _engine(stats: EngineStats) -> Iterator[Metric]:
    for name, text, gauge in (
        ("num_requests_running", "Requests that the engine works on.", stats.num_running),
        ("num_requests_waiting", "Requests that wait for the engine.", stats.num_waiting),
        ("kv_blocks_used", "Blocks of the key-value cache in use.", stats.kv_blocks_used),
        ("kv_blocks", "Blocks of the key-value cache.", stats.kv_blocks),
        ("kv_cache_usage_perc", "Share of the key-value cache in use; 1 is all.", stats.kv_cache_usage),
    ):
        yield GaugeMetricFamily(f"weir_{name}", text, value=gauge)
    for name, text, count in (
        ("prompt_tokens", "Prompt tokens accepted.", stats.prompt_tokens_total),
        ("generation_tokens", "Tokens generated.", stats.generation_tokens_total),
        ("requests_aborted", "Requests whose work was cancelled.", stats.aborted_total),
        ("engine_steps", "Steps of the engine.", stats.steps_total),
        ("num_preemptions", "Times that an output gave up its blocks to another.", stats.preemptions_total),
        ("prefix_cache_queries", "Prompt tokens looked up in the cache.", stats.prefix_cache_queries_total),
        (
            "prefix_cache_hits",
            "Prompt tokens found in the cache, which are not computed.",
            stats.prefix_cache_hits_total,
        ),
        ("spec_decode_num_drafts", "Guesses at the next tokens.", stats.spec_decode_drafts_total),
        ("spec_decode_num_draft_tokens", "Tokens guessed.", stats.spec_decode_draft_tokens_total),
        (
            "spec_decode_num_accepted_tokens",
            "Guessed tokens that were right.",
            stats.spec_decode_accepted_tokens_total,
        ),
    ):
        yield CounterMetricFamily(f"weir_{name}", text, value=count)


def _steps(stats: EngineStats) -> Iterator[Metric]:
    phases = [((phase,), histogram) for phase, histogram in stats.step_seconds.items()]
    yield _histogram("engine_step_seconds", "Wall time of a step, by phase.", ("phase",), phases)
    texts = {
        "iteration_tokens_total": "Tokens computed in a step.",
        "iteration_sequences": "Outputs in a step.",
        "request_queue_time_seconds": "From an output's arrival at the engine to its first step.",
        "request_prefill_time_seconds": "From an output's first step to its first token.",
        "request_decode_time_seconds": "From an output's first token to its last.",
    }
    for name, histogram in stats.histograms.items():
        yield _histogram(name, texts[name], (), [((), histogram)])


def _upstreams(replicas: Mapping[str, ReplicaStats]) -> Iterator[Metric]:
    """Metrics of a pool. An upstream's label is its name, or its host and port."""
    label = ("upstream",)
    each = replicas.items()
    outstanding = [((name,), stats.outstanding) for name, stats in each]
    yield _gauge("upstream_outstanding", "Requests that run at an upstream.", label, outstanding)
    states = [
        ((name, state), state == stats.state) for name, stats in each for state in get_args(ReplicaState)
    ]
    text = "1 for the state of an upstream's circuit breaker, or draining; 0 for other states."
    yield _gauge("upstream_state", text, (*label, "state"), states)
    text = "Requests to an upstream, by end: as weir_requests, and full (it has too many)."
    ends = [((name, outcome), n) for name, stats in each for outcome, n in stats.outcomes.items()]
    yield _counter("upstream_requests", text, (*label, "outcome"), ends)
    text = "Requests that went to another upstream, because this one failed before the first token."
    yield _counter("upstream_retries", text, label, [((name,), stats.retries_total) for name, stats in each])
    seconds = [((name,), stats.first_token_seconds) for name, stats in each]
    text = "From a request's way to an upstream to its first token."
    yield _histogram("upstream_first_token_seconds", text, label, seconds)


def _gauge(name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, float]]) -> Metric:
    family = GaugeMetricFamily(f"weir_{name}", text, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family


def _counter(name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, float]]) -> Metric:
    family = CounterMetricFamily(f"weir_{name}", text, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family


def _histogram(name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, Histogram]]) -> Metric:
    family = HistogramMetricFamily(f"weir_{name}", text, labels=labels)
    for of, histogram in values:
        family.add_metric(of, list(_buckets(histogram)), histogram.sum)
    return family


def _buckets(histogram: Histogram) -> Iterable[tuple[str, float]]:
    ends = [*map(str, map(float, histogram.bounds)), "+Inf"]
    return zip(ends, accumulate(histogram.counts), strict=True)
