"""The metrics of OpenTelemetry's conventions for generative AI servers, for a collector.

The names, units and buckets are those of https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/
(in development). `/metrics` has the same facts by vLLM's names.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from engine.protocol import Usage
from engine.protocol.stats import Histogram
from proxy.telemetry.attributes import PROVIDER, operation

DURATION = tuple(0.01 * 2**power for power in range(14))
FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = tuple(4.0**power for power in range(14))


class GenAICounts:
    """The requests of one endpoint to one model, as clients see them: after the hooks."""

    def __init__(self) -> None:
        self.duration: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(DURATION))
        """By outcome."""
        self.time_to_first_token = Histogram(FIRST_TOKEN)
        self.time_per_output_token = Histogram(PER_TOKEN)
        self.input_tokens = Histogram(TOKENS)
        self.output_tokens = Histogram(TOKENS)

    def end(self, outcome: str, seconds: float, first: float | None, usage: Usage | None) -> None:
        """A request has ended. `first`: seconds to its first text; None: there was none."""
        self.duration[outcome].observe(seconds)
        if usage is not None:
            self.input_tokens.observe(usage.prompt_tokens)
            self.output_tokens.observe(usage.completion_tokens)
        if outcome != "finished" or first is None:
            return
        self.time_to_first_token.observe(first)
        if usage is not None and usage.completion_tokens > 1:
            self.time_per_output_token.observe((seconds - first) / (usage.completion_tokens - 1))


class GenAIMetric(NamedTuple):
    """A histogram by its attributes."""

    name: str
    unit: str
    text: str
    points: list[tuple[Mapping[str, str], Histogram]]


def genai_metrics(each: Iterable[tuple[str, str, GenAICounts]]) -> Iterator[GenAIMetric]:
    """`each`: the endpoint, the model's configured name and the counts."""
    counted = [
        (
            {
                "gen_ai.operation.name": operation(endpoint),
                "gen_ai.provider.name": PROVIDER,
                "gen_ai.request.model": model,
            },
            one,
        )
        for endpoint, model, one in each
    ]
    yield GenAIMetric(
        "gen_ai.server.request.duration",
        "s",
        "From a request's arrival to its end.",
        [
            (own if outcome == "finished" else {**own, "error.type": outcome}, seconds)
            for own, one in counted
            for outcome, seconds in one.duration.items()
        ],
    )
    yield GenAIMetric(
        "gen_ai.server.time_to_first_token",
        "s",
        "To the first released text of a request that finished.",
        [(own, one.time_to_first_token) for own, one in counted],
    )
    yield GenAIMetric(
        "gen_ai.server.time_per_output_token",
        "s",
        "For each token after the first of a request that finished.",
        [(own, one.time_per_output_token) for own, one in counted],
    )
    tokens = [(own, one.input_tokens, "input") for own, one in counted]
    tokens += [(own, one.output_tokens, "output") for own, one in counted]
    yield GenAIMetric(
        "gen_ai.client.token.usage",
        "{token}",
        "Tokens of a request.",
        [({**own, "gen_ai.token.type": kind}, number) for own, number, kind in tokens],
    )
