"""Figures of a run. Values in, values out: this module has no I/O and does not know how the load was made.

Names and definitions are those of vLLM's `bench serve`. TTFT is the time from sending to the first chunk with
text. ITL is a gap between chunks with text. TPOT is a request's time after its first token, divided by its
other tokens. E2EL is the time from sending to the end. Latencies count only requests that did not fail.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from weir_bench.client import RequestRecord

PERCENTILES = (50, 90, 95, 99)

Figures = dict[str, float | None]


def _itl_per_token(record: RequestRecord) -> list[float]:
    """The gaps as if tokens had come one at a time. The mean over a request is its TPOT."""
    num_gaps = len(record.times) - 1
    return [gap * num_gaps / max(record.num_tokens - 1, 1) for gap in record.gaps]


METRICS: Mapping[str, Callable[[RequestRecord], Sequence[float]]] = {
    "ttft": lambda record: (record.ttft,),
    "itl": lambda record: record.gaps,
    "itl_per_token": _itl_per_token,
    "tpot": lambda record: () if record.tpot is None else (record.tpot,),
    "e2el": lambda record: (record.e2el,),
    "client_queue_time": lambda record: (record.sent - record.due,),
}
"""The values, in seconds, that one request adds to each latency."""


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The percentile of at least one value, in ascending order. Between two values it is interpolated
    linearly, as numpy does by default."""
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def values_of(metric: str, records: Iterable[RequestRecord]) -> list[float]:
    """The values of a latency, in seconds, in ascending order."""
    return sorted(value for record in records for value in METRICS[metric](record))


def figures(
    records: Sequence[RequestRecord], duration: float, slos: Mapping[str, float] | None = None
) -> Figures:
    """All figures of a run that took `duration` seconds. A figure without values is None."""
    done = [record for record in records if record.failure is None]
    output_tokens = sum(record.num_tokens for record in done)
    input_tokens = sum(record.num_prompt_tokens for record in done)
    num_chunks = sum(len(record.times) for record in done)
    found: Figures = {
        "duration": duration,
        "completed": len(done),
        "failed": len(records) - len(done),
        "total_input_tokens": input_tokens,
        "total_output_tokens": output_tokens,
        "tokens_per_chunk": output_tokens / num_chunks if num_chunks else None,
        "request_throughput": len(done) / duration,
        "request_goodput": sum(meets(slos, record) for record in done) / duration if slos else None,
        "output_throughput": output_tokens / duration,
        "total_token_throughput": (input_tokens + output_tokens) / duration,
    }
    for metric in METRICS:
        found |= _latency_figures(metric, values_of(metric, done))
    return found


def _latency_figures(metric: str, ordered: Sequence[float]) -> Figures:
    """Mean and percentiles, in milliseconds."""
    found: Figures = {f"mean_{metric}_ms": statistics.fmean(ordered) * 1e3 if ordered else None}
    for percent in PERCENTILES:
        found[f"p{percent}_{metric}_ms"] = percentile(ordered, percent) * 1e3 if ordered else None
    return found


def meets(slos: Mapping[str, float], record: RequestRecord) -> bool:
    """Whether every value of the request is within the objectives, in milliseconds. For `itl`, this is its
    longest gap."""
    return all(max(METRICS[metric](record), default=0.0) * 1e3 <= limit for metric, limit in slos.items())


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


@dataclass(frozen=True, slots=True)
class ErrorCount:
    count: int
    example: str


def count_errors(records: Iterable[RequestRecord]) -> dict[str, ErrorCount]:
    """Failures by kind, the most frequent kind first, each with the message of its first failure."""
    failures = [record.failure for record in records if record.failure]
    counts = Counter(failure.kind for failure in failures)
    examples = {failure.kind: failure.message for failure in reversed(failures)}
    return {kind: ErrorCount(count, examples[kind]) for kind, count in counts.most_common()}


@dataclass(frozen=True, slots=True)
class Moment:
    """The time from `start` to `end`, in seconds since the run began."""

    start: float
    end: float
    tokens_per_second: float
    num_open: int
    """Requests open in the middle of it."""
    itl: tuple[float, float] | None
    """Median and 99th percentile, in milliseconds, of the gaps that ended in it."""


def timeline(records: Sequence[RequestRecord], duration: float, max_moments: int = 60) -> list[Moment]:
    """A run, divided into at most about `max_moments` moments of a round width. Each chunk counts as its
    request's mean number of tokens per chunk."""
    width = _round_up(duration / max_moments)
    last = max(round(duration / width), 1) - 1
    tokens = [0.0] * (last + 1)
    gaps: list[list[float]] = [[] for _ in tokens]
    done = [record for record in records if record.failure is None]
    for record in done:
        for time in record.times:
            tokens[min(int(time / width), last)] += record.num_tokens / len(record.times)
        for time, gap in zip(record.times[1:], record.gaps, strict=True):
            gaps[min(int(time / width), last)].append(gap)

    def moment(i: int) -> Moment:
        start, end = i * width, duration if i == last else (i + 1) * width
        num_open = sum(record.sent <= (start + end) / 2 < record.ended for record in done)
        return Moment(start, end, tokens[i] / (end - start), num_open, _itl(sorted(gaps[i])))

    return [moment(i) for i in range(last + 1)]


def _itl(ordered: list[float]) -> tuple[float, float] | None:
    return (percentile(ordered, 50) * 1e3, percentile(ordered, 99) * 1e3) if ordered else None


def _round_up(value: float) -> float:
    """Rounds up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)
