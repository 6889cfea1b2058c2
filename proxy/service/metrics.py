"""`/metrics` in Prometheus' text format. Names are vLLM's, with the prefix `weir_`.

The engine, the hooks and the requests count with plain values; prometheus_client formats them when a client
asks. No label contains text of a caller or a model.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from engine.protocol import RequestError, Usage
from engine.protocol.stats import Histogram
from hooks.decisions.failure import HookError
from proxy.deployment.counts import Counts
from proxy.deployment.deployment import Deployment
from proxy.telemetry.engine_metrics import engine_metrics
from proxy.telemetry.families import Labels, counter, histogram
from proxy.telemetry.genai_metrics import GenAICounts, GenAIMetric, genai_metrics
from proxy.telemetry.hook_metrics import hook_metrics
from proxy.wire.errors import APIError, CancelledByOperator

TTFT_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 20, 80)
ITL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 10, 80)
REQUEST_SECONDS = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 20, 30, 40, 60, 120, 480, 1920)
TOKENS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))


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
        self.genai = GenAICounts()


class TenantMetrics:
    """The counts of one tenant's requests."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        """`prompt` and `completion`."""


class RequestMetrics:
    """One request's metrics: when it begins to be answered, what is released, and how it ends."""

    def __init__(
        self, endpoint: EndpointMetrics, tenant: TenantMetrics, is_ending: Callable[[], bool]
    ) -> None:
        """`is_ending`: whether the server ends what still runs, because it stops."""
        self._endpoint = endpoint
        self.inter_token_latency = endpoint.inter_token_latency
        """The answer counts each text in it."""
        self._tenant = tenant
        self._arrived = perf_counter()
        self._first: float | None = None
        """The time of the first text."""
        self._finished: dict[str, None] = {}
        """The outputs' finish reasons."""
        self.usage: Usage | None = None
        """As the client got it last."""
        self.waited: dict[int, float] = {}
        """The seconds that a person took to decide on calls of an output, by output, until its next text.
        They are no latency of this server."""
        self._outcome: str | None = None
        self._is_ending = is_ending
        self.on_usage: Callable[[Usage | None], object] | None = None
        """Is called at the end with the usage that the client got, if any."""

    def begin(self, now: float) -> None:
        """An output's first delta leaves for the client. `now`: of `perf_counter`."""
        if self._first is None:
            self._first = now
            self._endpoint.time_to_first_token.observe(now - self._arrived)

    def finish(self, reason: str) -> None:
        """An output has ended, with this finish reason."""
        self._endpoint.finished[reason] += 1
        self._finished[reason] = None

    def fail(self, error: BaseException) -> None:
        """The request ends with this error."""
        outcome = _outcome(error)
        self.end("shutdown" if outcome in ("failed", "closed") and self._is_ending() else outcome)

    def end(self, outcome: str) -> None:
        """`outcome`: `finished`, `refused`, `failed`, `closed` or `shutdown`. Only the first call counts."""
        if self._outcome is not None:
            return
        self._outcome = outcome
        endpoint = self._endpoint
        endpoint.outcomes[outcome] += 1
        self._tenant.outcomes[outcome] += 1
        on_usage, self.on_usage = self.on_usage, None  # it refers to the flow, which refers to this
        if on_usage is not None:
            on_usage(self.usage)
        if self.usage is not None:
            self._tenant.tokens["prompt"] += self.usage.prompt_tokens
            self._tenant.tokens["completion"] += self.usage.completion_tokens
        seconds = perf_counter() - self._arrived
        first = None if self._first is None else self._first - self._arrived
        endpoint.genai.end(outcome, seconds, first, self.usage)
        if outcome != "finished":
            return
        endpoint.e2e_latency.observe(seconds)
        if self.usage is not None:
            endpoint.prompt_tokens.observe(self.usage.prompt_tokens)
            endpoint.generation_tokens.observe(self.usage.completion_tokens)

    @property
    def outcome(self) -> str | None:
        """None: the request has not ended."""
        return self._outcome

    def summary(self) -> dict[str, str | int | float | None]:
        """The request in a few values: as the log has them. None: not known, or not there."""
        first, usage = self._first, self.usage
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
    if isinstance(error, HookError) and error.param is not None:
        return "refused"
    return "failed" if isinstance(error, Exception) else "closed"


REQUEST_HISTOGRAMS = (
    ("time_to_first_token_seconds", "To the first released piece, but for a person.", "time_to_first_token"),
    ("inter_token_latency_seconds", "Between two released pieces, but for a person.", "inter_token_latency"),
    ("e2e_request_latency_seconds", "From arrival to the end.", "e2e_latency"),
    ("request_prompt_tokens", "Prompt tokens of a request.", "prompt_tokens"),
    ("request_generation_tokens", "Tokens generated for a request.", "generation_tokens"),
)
"""Name and help, and the attribute of `EndpointMetrics`."""


class Metrics(Collector):
    """All metrics of this server."""

    def __init__(self, deployments: Callable[[], Sequence[Deployment]]) -> None:
        """`deployments`: the current one, and those before it that requests still run under."""
        self._deployments = deployments
        self.is_ending = False
        """The server stops, and ends the requests that still run. Their outcome is `shutdown`."""
        self.counts = Counts(deployments)
        self._endpoints: defaultdict[tuple[str, str], EndpointMetrics] = defaultdict(EndpointMetrics)
        """By endpoint and model."""
        self._tenants: defaultdict[str, TenantMetrics] = defaultdict(TenantMetrics)
        self._answers: Counter[tuple[str, int]] = Counter()
        self.others: list[Callable[[], Iterable[Metric]]] = []
        """The metrics of optional parts."""
        self._registry = CollectorRegistry()
        self._registry.register(self)

    @contextmanager
    def request(self, endpoint: str, model: str, tenant: str) -> Iterator[RequestMetrics]:
        """The metrics of a request, from its arrival to its end. `model`: the configured name."""
        counts = self._endpoints[endpoint, model], self._tenants[tenant]
        metrics = RequestMetrics(*counts, lambda: self.is_ending)
        try:
            yield metrics
        except BaseException as error:
            metrics.fail(error)
            raise
        metrics.end("closed")

    def answered(self, path: str, status: int) -> None:
        """Count an answer. `path`: the endpoint's, which holds nothing that the client chose."""
        self._answers[path, status] += 1

    async def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from engine_metrics(self.counts.stats())
        yield from self._requests(self._deployments()[0])
        yield from self._tenants_metrics()
        yield from hook_metrics(self.counts.tallies())
        for metrics in self.others:
            yield from metrics()

    def genai(self) -> Iterator[GenAIMetric]:
        """The requests by the names of OpenTelemetry's conventions."""
        return genai_metrics((*key, one.genai) for key, one in dict(self._endpoints).items())

    def _requests(self, deployment: Deployment) -> Iterator[Metric]:
        each = dict(self._endpoints)
        has_names = len({*deployment.models, *(model for _, model in each)}) > 1
        names: Labels = ("endpoint", "model_name") if has_names else ("endpoint",)
        endpoints = [(key if has_names else key[:1], one) for key, one in each.items()]
        yield counter(
            "requests",
            "Generations, by end: finished, refused (the caller's fault), failed, closed (the caller left, or"
            " the operator cancelled), shutdown (this server stopped).",
            (*names, "outcome"),
            [((*labels, outcome), n) for labels, one in endpoints for outcome, n in one.outcomes.items()],
        )
        ends = [((*labels, reason), n) for labels, one in endpoints for reason, n in one.finished.items()]
        text = "Outputs that ended, by finish reason."
        yield counter("request_success", text, (*names, "finished_reason"), ends)
        for name, text, attribute in REQUEST_HISTOGRAMS:
            histograms = [(labels, getattr(one, attribute)) for labels, one in endpoints]
            yield histogram(name, text, names, histograms)
        text = "Answers to HTTP requests, by the path's endpoint and the status; 499: the client left before."
        answers = [((path, str(status)), n) for (path, status), n in self._answers.items()]
        yield counter("http_responses", text, ("path", "status"), answers)

    def _tenants_metrics(self) -> Iterator[Metric]:
        tenants = dict(self._tenants)
        outcomes = [((t, outcome), n) for t, one in tenants.items() for outcome, n in one.outcomes.items()]
        yield counter("tenant_requests", "Generations, by tenant and end.", ("tenant", "outcome"), outcomes)
        tokens = [((t, kind), n) for t, one in tenants.items() for kind, n in one.tokens.items()]
        yield counter("tenant_tokens", "Tokens, by tenant: prompt or completion.", ("tenant", "kind"), tokens)
