"""Results as one HTML file without other files: tables and plots, in light and dark.

The page is built as a tree and then written, so that no name can become markup.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

import orjson

from weir_bench.measure import Moment, percentile, timeline, values_of
from weir_bench.plan import Level
from weir_bench.plots import NUM_COLOURS, Axis, Line, Point, line_plot
from weir_bench.results import Results, Summary
from weir_bench.tables import Table, latency_table, throughput_table

Colours = Mapping[str, int]
"""A target's colour, by its name."""

_PERCENTS = [*range(100), *(99 + i / 10 for i in range(11))]
_LEAST_MS = 0.01  # a logarithmic axis has no place for a gap of 0
_LIGHT = ("#2563c9", "#c8521b", "#12805c", "#8e3fb5", "#946c00", "#b92d57")
_DARK = ("#7aaeff", "#ff9e6b", "#4fd1a1", "#d29bf2", "#e6bf55", "#ff8fb0")
_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --text: #1c1c1a; --soft: #66655f; --rule: #e3e2dc; LIGHT }
@media (prefers-color-scheme: dark) {
  :root { --page: #171716; --text: #ebeae6; --soft: #a09f97; --rule: #33322f; DARK }
}
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; background: var(--page); color: var(--text);
  overflow-wrap: anywhere; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
p, figcaption, caption, dt { color: var(--soft); } p { margin: .2rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
caption { text-align: left; padding-bottom: .3rem; }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; white-space: nowrap; }
thead th { border-bottom: 1px solid var(--rule); font-weight: 600; }
th.label, td.label { text-align: left; white-space: pre; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1.5rem;
  align-items: end; }
figure { margin: 0; } figcaption { margin-bottom: .3rem; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.grid, .axis { stroke: var(--rule); fill: none; } .axis { stroke: var(--soft); }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .dashed { stroke-dasharray: 5 4; }
.dot { stroke: var(--page); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; }
.legend svg { display: inline; width: 1.6rem; height: .7rem; margin-right: .4rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; } dd { margin: 0; }
.warning { color: var(--s1); }
"""


def page(results: Results) -> str:
    """The text of the whole file."""
    html = Element("html", {"lang": "en"})
    head = SubElement(html, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    SubElement(head, "title").text = "Weir bench"
    SubElement(head, "style").text = _style()
    body = SubElement(html, "body")
    body.extend(_opening(results))
    colours = {target.name: i for i, target in enumerate(results.plan.targets)}
    levels = list(dict.fromkeys(summary.level for summary in results.summaries))
    if len(levels) > 1:
        body.extend([_text("h2", "All loads"), _legend(colours)])
        body.append(_grid(_load_plots(results.summaries, colours)))
    for level in levels:
        body.extend(_level(level, [s for s in results.summaries if s.level == level], colours))
    body.extend([_text("h2", "Settings"), _settings(results)])
    return "<!DOCTYPE html>\n" + tostring(html, encoding="unicode", method="html") + "\n"


def _opening(results: Results) -> Iterable[Element]:
    targets = results.plan.targets
    yield _text("h1", "Weir bench: " + ", ".join(target.name for target in targets))
    for note in results.notes:
        yield _text("p", note)
    for target, errors in results.errors.items():
        for kind, error in errors.items():
            yield _text("p", f"{target.name}: {error.count} × {kind}: {error.example}", "warning")
    yield _table(throughput_table(results.summaries))


def _level(level: Level, summaries: Sequence[Summary], colours: Colours) -> Iterable[Element]:
    yield _text("h2", str(level).capitalize())
    yield _table(latency_table(summaries))
    yield _legend(colours)
    yield _grid([*_distribution_plots(summaries, colours), *_timeline_plots(summaries, colours)])


def _load_plots(summaries: Sequence[Summary], colours: Colours) -> Iterable[Element]:
    """Plots of medians over repetitions, by load."""
    finite = [summary for summary in summaries if summary.level.load != float("inf")]
    label = "concurrency" if finite and finite[0].level.concurrency else "requests/s"
    x = Axis.over(label, (summary.level.load for summary in finite))

    def lines(figure: str, *, dashed: bool = False) -> list[Line]:
        points: dict[str, list[Point]] = {}
        for summary in sorted(finite, key=lambda summary: summary.level.load):
            if (value := summary.figures[figure]) is not None:
                points.setdefault(summary.target.name, []).append((summary.level.load, value))
        return [Line(name, own, colours[name], dashed) for name, own in points.items()]

    yield _plot("Output tokens per second", lines("output_throughput"), x, "tokens/s")
    for metric, name in (("ttft", "Time to first token"), ("itl", "Inter-token latency")):
        both = [*lines(f"p50_{metric}_ms"), *lines(f"p99_{metric}_ms", dashed=True)]
        yield _plot(f"{name}, 99th percentile dashed", both, x, "ms")


def _distribution_plots(summaries: Sequence[Summary], colours: Colours) -> Iterable[Element]:
    """Plots over the requests of all repetitions together."""
    titles = {"ttft": "Time to first token", "itl": "Inter-token latency", "e2el": "End-to-end latency"}
    for metric, title in titles.items():
        lines = []
        for summary in summaries:
            if ordered := values_of(metric, summary.records):
                points = [(max(percentile(ordered, p) * 1e3, _LEAST_MS), p) for p in _PERCENTS]
                lines.append(Line(summary.target.name, points, colours[summary.target.name]))
        x = Axis.over("ms", (across for line in lines for across, _ in line.points))
        unit = "gaps" if metric == "itl" else "requests"
        yield line_plot(f"{title}: share within", lines, x, Axis(f"% of {unit}", 0, 100))


def _timeline_plots(summaries: Sequence[Summary], colours: Colours) -> Iterable[Element]:
    """Plots of the last repetition."""
    runs = {summary.target.name: summary.runs[-1] for summary in summaries}
    moments = {name: timeline(run.records, run.duration) for name, run in runs.items()}
    x = Axis("seconds", 0.0, max(run.duration for run in runs.values()))

    def lines(value: Callable[[Moment], float | None], *, dashed: bool = False) -> list[Line]:
        return [Line(name, list(_points(own, value)), colours[name], dashed) for name, own in moments.items()]

    yield _plot("Output tokens per second, over time", lines(lambda m: m.tokens_per_second), x, "tokens/s")
    gaps = [*lines(lambda m: m.itl and m.itl[0]), *lines(lambda m: m.itl and m.itl[1], dashed=True)]
    yield _plot("Inter-token latency, over time, 99th percentile dashed", gaps, x, "ms")
    yield _plot("Open requests, over time", lines(lambda m: m.num_open), x, "requests")


def _points(moments: Iterable[Moment], value: Callable[[Moment], float | None]) -> Iterable[Point]:
    for moment in moments:
        if (found := value(moment)) is not None:
            yield (moment.start + moment.end) / 2, found


def _plot(title: str, lines: Sequence[Line], x: Axis, unit: str) -> Element:
    y = Axis.over(unit, (up for line in lines for _, up in line.points), from_zero=True)
    return line_plot(title, lines, x, y)


def _grid(plots: Iterable[Element]) -> Element:
    grid = Element("div", {"class": "plots"})
    grid.extend(plots)
    return grid


def _legend(colours: Colours) -> Element:
    legend = Element("ul", {"class": "legend"})
    for name, colour in colours.items():
        item = SubElement(legend, "li")
        svg = SubElement(item, "svg", {"viewBox": "0 0 26 10", "aria-hidden": "true"})
        SubElement(svg, "polyline", {"class": f"line s{colour % NUM_COLOURS}", "points": "0,5 26,5"})
        svg.tail = name
    return legend


def _table(table: Table) -> Element:
    wide = Element("div", {"class": "wide"})
    html = SubElement(wide, "table")
    SubElement(html, "caption").text = table.caption
    header = SubElement(SubElement(html, "thead"), "tr")
    rows = SubElement(html, "tbody")
    _cells(header, "th", table.header, table.num_labels)
    for row in table.shown_rows():
        _cells(SubElement(rows, "tr"), "td", row, table.num_labels)
    return wide


def _cells(row: Element, tag: str, cells: Sequence[str], num_labels: int) -> None:
    for i, cell in enumerate(cells):
        SubElement(row, tag, {"class": "label"} if i < num_labels else {}).text = cell


def _settings(results: Results) -> Element:
    found = Element("dl")
    for name, value in results.settings.items():
        SubElement(found, "dt").text = name
        SubElement(found, "dd").text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return found


def _text(tag: str, text: str, style: str | None = None) -> Element:
    found = Element(tag, {"class": style} if style else {})
    found.text = text
    return found


def _style() -> str:
    rules = "\n".join(
        f".s{i} {{ stroke: var(--s{i}); }} .dot.s{i} {{ fill: var(--s{i}); stroke: var(--page); }}"
        for i in range(NUM_COLOURS)
    )
    light, dark = ("".join(f"--s{i}: {c}; " for i, c in enumerate(cs)) for cs in (_LIGHT, _DARK))
    return _STYLE.replace("LIGHT", light).replace("DARK", dark) + rules
