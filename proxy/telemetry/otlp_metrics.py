"""Metrics in OpenTelemetry's form: those of `/metrics` with the same names, labels and numbers, and those of
the conventions for generative AI."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OTelMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from engine.protocol.stats import Histogram as Counts
from proxy.telemetry.genai_metrics import GenAIMetric

_CUMULATIVE = AggregationTemporality.CUMULATIVE


def metrics_data(
    families: Iterable[Metric], genai: Iterable[GenAIMetric], resource: Resource, began: int, now: int
) -> MetricsData:
    """`families`: of `/metrics`. `began`: when the counting began. Both times are nanoseconds since 1970."""
    metrics = [
        OTelMetric(family.name, family.documentation, "", _data_of(family, began, now))
        for family in families
        if family.samples
    ]
    for name, unit, text, counted in genai:
        points = [_point(labels, one, began, now) for labels, one in counted if any(one.counts)]
        if points:
            metrics.append(OTelMetric(name, text, unit, Histogram(points, _CUMULATIVE)))
    scope = ScopeMetrics(InstrumentationScope("weir"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _data_of(family: Metric, began: int, now: int) -> Gauge | Sum | Histogram:
    if family.type == "histogram":
        return Histogram([*_histogram_points(family.samples, began, now)], _CUMULATIVE)
    points = [NumberDataPoint(sample.labels, began, now, float(sample.value)) for sample in family.samples]
    return Gauge(points) if family.type == "gauge" else Sum(points, _CUMULATIVE, is_monotonic=True)


def _histogram_points(samples: Iterable[Sample], began: int, now: int) -> Iterator[HistogramDataPoint]:
    """The samples of one histogram are together, its buckets first."""
    for labels, group in groupby(samples, _own_labels):
        values: dict[str, list[Sample]] = {}
        for sample in group:
            values.setdefault(sample.name.rpartition("_")[2], []).append(sample)
        buckets = values["bucket"]
        counts = [int(sample.value) for sample in buckets]
        yield HistogramDataPoint(
            labels,
            began,
            now,
            count=counts[-1],
            sum=values["sum"][0].value,
            bucket_counts=[upper - lower for lower, upper in zip([0, *counts], counts, strict=False)],
            explicit_bounds=[float(sample.labels["le"]) for sample in buckets[:-1]],
            min=None,  # not counted
            max=None,
        )


def _point(labels: Mapping[str, str], counted: Counts, began: int, now: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        labels,
        began,
        now,
        count=sum(counted.counts),
        sum=counted.sum,
        bucket_counts=[*counted.counts],
        explicit_bounds=[*counted.bounds],
        min=None,  # not counted
        max=None,
    )


def _own_labels(sample: Sample) -> Mapping[str, Any]:
    return {name: value for name, value in sample.labels.items() if name != "le"}
