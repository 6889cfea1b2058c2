"""Metrics in prometheus_client's form, from plain values. All names begin with `weir_`."""

from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from engine.protocol.stats import Histogram

Labels = tuple[str, ...]


def gauge(name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, float]]) -> Metric:
    family = GaugeMetricFamily(f"weir_{name}", text, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family


def counter(name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, float]]) -> Metric:
    family = CounterMetricFamily(f"weir_{name}", text, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family


def histogram(name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, Histogram]]) -> Metric:
    family = HistogramMetricFamily(f"weir_{name}", text, labels=labels)
    for of, histogram in values:
        family.add_metric(of, list(_buckets(histogram)), histogram.sum)
    return family


def _buckets(histogram: Histogram) -> Iterable[tuple[str, float]]:
    ends = [*map(str, map(float, histogram.bounds)), "+Inf"]
    return zip(ends, accumulate(histogram.counts), strict=True)
