"""Results as rows of text, for a terminal and for the page."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from weir_bench.measure import METRICS, PERCENTILES, Figures
from weir_bench.results import Results, Summary

METRIC_NAMES = {
    "ttft": "TTFT",
    "itl": "ITL",
    "itl_per_token": "ITL/token",
    "tpot": "TPOT",
    "e2el": "E2EL",
    "client_queue_time": "Queue",
}
_RATES = {
    "completed": ("requests", "{:.0f}"),
    "failed": ("failed", "{:.0f}"),
    "request_throughput": ("req/s", "{:.2f}"),
    "request_goodput": ("good/s", "{:.2f}"),
    "output_throughput": ("tok/s", "{:.1f}"),
    "total_token_throughput": ("in+out tok/s", "{:.1f}"),
    "tokens_per_chunk": ("tok/chunk", "{:.2f}"),
    "client_cpu": ("client CPU", "{:.0%}"),
}
_NO_RATIO = {"completed", "failed", "client_cpu"}


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as texts. The first `num_labels` columns are words, and the others are numbers."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_labels: int = 2

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines = [self._line(row, widths) for row in [self.header, *self.shown_rows()]]
        return "\n".join([self.caption, "", *lines])

    def shown_rows(self) -> Iterator[Sequence[str]]:
        """The rows. A row leaves out the first labels that are the same in the row above."""
        for above, row in pairwise([self.header, *self.rows]):
            pairs = zip(above[: self.num_labels], row, strict=False)
            num_same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
            yield [""] * num_same + list(row[num_same:])

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = [
            cell.ljust(width) if i < self.num_labels else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()


def tables(results: Results) -> list[Table]:
    return [throughput_table(results.summaries), latency_table(results.summaries)]


def throughput_table(summaries: Sequence[Summary]) -> Table:
    shown = {
        name: named for name, named in _RATES.items() if any(s.figures[name] is not None for s in summaries)
    }
    rows = []
    for summary in summaries:
        cells = [_cell(summary.figures[name], form) for name, (_, form) in shown.items()]
        rows.append([str(summary.level), summary.target.name, *cells])
        if summary.ratios:
            ratios = {name: None if name in _NO_RATIO else summary.ratios[name] for name in shown}
            rows.append(
                [str(summary.level), "  ratio", *(_cell(ratio, "×{:.2f}") for ratio in ratios.values())]
            )
    return Table("Throughput", ["load", "target", *(name for name, _ in shown.values())], rows)


def latency_table(summaries: Sequence[Summary]) -> Table:
    header = ["load", "latency", "target", "mean", *(f"p{percent}" for percent in PERCENTILES)]
    rows: list[list[str]] = []
    levels = list(dict.fromkeys(summary.level for summary in summaries))
    for level in levels:
        own = [summary for summary in summaries if summary.level == level]
        for metric in METRICS:
            rows += [[str(level), METRIC_NAMES[metric], *cells] for cells in _latency_rows(metric, own)]
    return Table("Latency, in milliseconds", header, rows, num_labels=3)


def _latency_rows(metric: str, summaries: Iterable[Summary]) -> Iterator[list[str]]:
    if metric == "client_queue_time" and all(summary.level.concurrency for summary in summaries):
        return  # a closed loop has no queue
    for summary in summaries:
        yield [summary.target.name, *_latencies(summary.figures, metric, "{:.2f}")]
        if summary.ratios:
            yield ["  ratio", *_latencies(summary.ratios, metric, "×{:.2f}")]


def _latencies(figures: Figures, metric: str, form: str) -> list[str]:
    kinds = ["mean", *(f"p{percent}" for percent in PERCENTILES)]
    return [_cell(figures[f"{kind}_{metric}_ms"], form) for kind in kinds]


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
