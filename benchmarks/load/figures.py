"""Figures of runs. Values in, values out.

TTFT is the time from sending a request to its first chunk with text. ITL is a gap between two chunks with
text; per token, it is the gap as if tokens had come one at a time. TPOT is a request's time after its first
token, divided by its other tokens. E2EL is the time from sending to the end. No request of a run has failed.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from benchmarks.load.client import RequestRecord

PERCENTILES = (50, 90, 99)

Figures = dict[str, float | None]


def _itl_per_token(record: RequestRecord) -> list[float]:
    """The mean over a request is its TPOT."""
    num_gaps = len(record.times) - 1
    return [gap * num_gaps / max(record.num_tokens - 1, 1) for gap in record.gaps]


METRICS: Mapping[str, Callable[[RequestRecord], Sequence[float]]] = {
    "TTFT": lambda record: (record.ttft,),
    "ITL": lambda record: record.gaps,
    "ITL/token": _itl_per_token,
    "TPOT": lambda record: () if record.tpot is None else (record.tpot,),
    "E2EL": lambda record: (record.e2el,),
}
"""The values, in seconds, that one request adds to each latency."""


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The percentile of at least one value, in ascending order. Between two values it is interpolated
    linearly, as numpy does by default."""
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def figures(records: Sequence[RequestRecord], duration: float) -> Figures:
    """All figures of a run that took `duration` seconds. A figure without values is None."""
    output_tokens = sum(record.num_tokens for record in records)
    num_chunks = sum(len(record.times) for record in records)
    found: Figures = {
        "requests/s": len(records) / duration,
        "tokens/s": output_tokens / duration,
        "tokens/chunk": output_tokens / num_chunks if num_chunks else None,
    }
    for metric, values_of in METRICS.items():
        found |= _latencies(metric, sorted(value for record in records for value in values_of(record)))
    return found


def _latencies(metric: str, ordered: Sequence[float]) -> Figures:
    """Mean and percentiles, in milliseconds."""
    found: Figures = {f"{metric} mean, ms": statistics.fmean(ordered) * 1e3 if ordered else None}
    for percent in PERCENTILES:
        found[f"{metric} p{percent}, ms"] = percentile(ordered, percent) * 1e3 if ordered else None
    return found


def median_figures(several: Sequence[Figures]) -> Figures:
    """The median of each figure over the runs that have it."""
    median: Figures = {}
    for name in several[0]:
        values = [value for one in several if (value := one[name]) is not None]
        median[name] = statistics.median(values) if values else None
    return median


def ratio_figures(figures: Figures, base: Figures) -> Figures:
    """Each figure divided by the figure of `base`; None if one is missing, or the divisor is 0."""

    def ratio(name: str) -> float | None:
        value, other = figures[name], base[name]
        return None if value is None or not other else value / other

    return {name: ratio(name) for name in figures}
