"""The collector and `/metrics` get the same numbers."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

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
    assert collector.metrics.keys() == families.keys()
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
