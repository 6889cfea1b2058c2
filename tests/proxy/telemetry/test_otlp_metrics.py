"""The collector and `/metrics` get the same numbers."""

from typing import Any

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from prometheus_client.parser import text_string_to_metric_families

from engine.protocol import Delta, GenerationRequest, Usage
from hooks import emit
from tests.helpers import Script, ScriptedEngine, make_deltas, until
from tests.proxy.conftest import CHAT, Serve
from tools.collector import Collector


def points_of(metric: Any) -> list[Any]:
    return [*getattr(metric, metric.WhichOneof("data")).data_points]


def labels_of(point: Any) -> frozenset[tuple[str, str]]:
    return frozenset((pair.key, pair.value.string_value) for pair in point.attributes)


async def test_the_collector_gets_the_numbers_of_metrics(collector: Collector, serve: Serve) -> None:
    engine = ScriptedEngine(lambda _: make_deltas(["a", "b"]))
    client = await serve(engine, Script(lambda chunk: emit(chunk.pending)), otlp_endpoint=collector.url)
    for _ in range(3):
        await client.post("/v1/chat/completions", CHAT)
    _, body = await client.get("/metrics")
    found = text_string_to_metric_families(body.decode())
    families = {family.name: family for family in found if family.samples}
    collector.metrics.clear()
    await until(lambda: collector.metrics)
    assert {name for name in collector.metrics if not name.startswith("gen_ai.")} == families.keys()
    for name, family in families.items():
        points = {labels_of(point): point for point in points_of(collector.metrics[name])}
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key != "le"}
            point = points[frozenset(labels.items())]
            if sample.name.endswith("_bucket"):
                bounds = [*point.explicit_bounds, float("inf")]
                place = bounds.index(float(sample.labels["le"]))
                assert sum(point.bucket_counts[: place + 1]) == sample.value
            elif family.type == "histogram":
                of = point.count if sample.name.endswith("_count") else point.sum
                assert of == sample.value
            elif "weir_http_responses" not in name:  # /metrics itself is counted in between
                assert point.as_double == sample.value, name


class Named:
    """A meter that notes what is made of it."""

    def create_histogram(self, name: str, description: str, unit: str) -> tuple[str, str]:
        return name, unit


async def test_requests_are_counted_by_the_conventions_for_generative_ai(
    collector: Collector, serve: Serve
) -> None:
    def script(request: GenerationRequest) -> list[Any]:
        if request.user == "fails":
            return [RuntimeError("oops")]
        return [*make_deltas(["a", "b", "c"], finish=False), Delta(finish_reason="stop", usage=Usage(7, 3))]

    client = await serve(ScriptedEngine(script), otlp_endpoint=collector.url)
    await client.post("/v1/chat/completions", CHAT)
    await client.post("/v1/chat/completions", {**CHAT, "user": "fails"})
    collector.metrics.clear()
    await until(lambda: collector.metrics)
    found = {name: one for name, one in collector.metrics.items() if name.startswith("gen_ai.")}
    made = [getattr(gen_ai_metrics, f"create_{name.replace('.', '_')}")(Named()) for name in found]
    assert {(name, one.unit) for name, one in found.items()} == set(made)
    assert len(made) == 4
    known = vars(gen_ai_attributes).values()
    own = {("gen_ai.operation.name", "chat"), ("gen_ai.provider.name", "weir"), ("gen_ai.request.model", "m")}
    for name, metric in found.items():
        points = {labels_of(point) - own: point for point in points_of(metric)}
        assert all(label in known or label == "error.type" for one in points for label, _ in one)
        if name == "gen_ai.server.request.duration":
            assert {labels: one.count for labels, one in points.items()} == {
                frozenset(): 1,
                frozenset({("error.type", "failed")}): 1,
            }
        elif name == "gen_ai.client.token.usage":
            assert {labels: one.sum for labels, one in points.items()} == {
                frozenset({("gen_ai.token.type", "input")}): 7,
                frozenset({("gen_ai.token.type", "output")}): 3,
            }
        else:
            assert {labels: one.count for labels, one in points.items()} == {frozenset(): 1}
            assert points[frozenset()].sum > 0
