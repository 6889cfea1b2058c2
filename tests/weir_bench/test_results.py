"""What is told of runs made by hand: JSON, tables, the page."""

import math
from html.parser import HTMLParser
from typing import Any

import orjson
import pytest

from tests.weir_bench.conftest import make_record
from weir_bench.client import Failure, RequestRecord
from weir_bench.measure import METRICS, PERCENTILES
from weir_bench.page import page
from weir_bench.plan import Level, Plan, Run, Target
from weir_bench.plots import Axis, Line, line_plot
from weir_bench.prompts import WordPrompts
from weir_bench.results import Results
from weir_bench.tables import latency_table, tables, throughput_table

NASTY = "<script>alert(1)</script>&\"'"
CLOSED = (Level(concurrency=1), Level(concurrency=8))


def make_results(
    *, levels: tuple[Level, ...] = CLOSED, names: tuple[str, ...] = ("weir", NASTY), **fields: Any
) -> Results:
    """Two repetitions of each; the second target takes twice the first one's time."""
    targets = [Target(name, f"http://{i}/v1", "m") for i, name in enumerate(names)]
    plan = Plan(
        targets=targets,
        levels=levels,
        prompts=WordPrompts(1, 3),
        seed=1,
        repetitions=2,
        slos={"ttft": 600.0},
        api_key="secret",
    )
    runs = [
        Run(target, level, repetition, records(slower), duration=3.0 * slower, client_cpu=0.25)
        for _, level, repetition, target in plan.order()
        for slower in [targets.index(target) + 1]
    ]
    return Results(plan, runs, **fields)


def records(slower: float) -> list[RequestRecord]:
    times = [[0.5, 0.6, 0.8], [1.5, 1.75, 2.5]]
    return [
        make_record(*(time * slower for time in own), sent=start * slower, usage_tokens=6)
        for start, own in enumerate(times)
    ]


def test_json_has_every_figure_of_every_run_and_medians_and_ratios() -> None:
    found = orjson.loads(make_results().to_json())
    assert set(found) == {"weir", "created", "interrupted", "settings", "summary", "runs"}
    assert found["interrupted"] is False
    figures = {
        "duration": float,
        "completed": int,
        "failed": int,
        "total_input_tokens": int,
        "total_output_tokens": int,
        "tokens_per_chunk": float,
        "request_throughput": float,
        "request_goodput": float,
        "output_throughput": float,
        "total_token_throughput": float,
        "client_cpu": float,
    }
    for metric in METRICS:
        figures |= {f"{kind}_{metric}_ms": float for kind in ("mean", *(f"p{p}" for p in PERCENTILES))}
    where = {"target": str, "model": str, "concurrency": int, "request_rate": type(None)}
    assert len(found["runs"]) == 8
    for run in found["runs"]:
        assert run["errors"] == {}
        types = {name: type(value) for name, value in run.items()}
        assert types == where | {"repetition": int, "errors": dict} | figures
    assert [(s["target"], s["concurrency"], s["repetitions"]) for s in found["summary"]] == [
        ("weir", 1, 2),
        (NASTY, 1, 2),
        ("weir", 8, 2),
        (NASTY, 8, 2),
    ]
    first, second = found["summary"][:2]
    assert "ratios" not in first
    assert set(second["ratios"]) == set(figures)
    assert second["ratios"]["mean_ttft_ms"] == pytest.approx(2.0)
    assert second["ratios"]["output_throughput"] == pytest.approx(0.5)
    assert second["mean_e2el_ms"] == pytest.approx(2 * first["mean_e2el_ms"])


def test_the_api_key_is_told_nowhere() -> None:
    results = make_results()
    assert b"secret" not in results.to_json(detailed=True)
    assert "secret" not in page(results)


def test_detailed_json_has_every_requests_times() -> None:
    run = orjson.loads(make_results().to_json(detailed=True))["runs"][0]
    assert [request["times"] for request in run["requests"]] == [[0.5, 0.6, 0.8], [1.5, 1.75, 2.5]]
    assert run["requests"][0]["usage_tokens"] == 6


def test_a_rate_of_infinity_is_json() -> None:
    results = make_results(levels=(Level(request_rate=math.inf),))
    assert orjson.loads(results.to_json())["runs"][0]["request_rate"] == "inf"
    assert "inf requests/s" in page(results).lower()


def test_an_interrupted_bench_tells_what_it_has() -> None:
    whole = make_results()
    results = Results(whole.plan, [*whole.runs[:3], Run(whole.plan.targets[0], CLOSED[1])], interrupted=True)
    found = orjson.loads(results.to_json())
    assert found["interrupted"] is True
    assert [(s["target"], s["repetitions"]) for s in found["summary"]] == [("weir", 1), (NASTY, 2)]
    assert "Interrupted" in page(results)


def test_tables_have_aligned_columns_and_ratios() -> None:
    throughput, latency = tables(make_results(names=("weir", "vllm")))
    lines = throughput.text().splitlines()
    assert lines[0] == "Throughput"
    assert len({len(line) for line in lines[2:]}) == 1
    assert lines[2].split()[:5] == ["load", "target", "requests", "failed", "req/s"]
    assert lines[3].split()[:6] == ["concurrency", "1", "weir", "2", "0", "0.67"]
    assert lines[4].split()[:4] == ["vllm", "2", "0", "0.33"]
    assert lines[5].split()[:4] == ["ratio", "-", "-", "×0.50"]
    ttft = [row for row in latency.rows if row[:2] == ["concurrency 1", "TTFT"]]
    assert [row[3:] for row in ttft] == [
        ["500.00", "500.00", "500.00", "500.00", "500.00"],
        ["1000.00"] * 5,
        ["×2.00"] * 5,
    ]


def test_goodput_and_queues_are_shown_where_there_are_any() -> None:
    closed = make_results()
    assert "good/s" in throughput_table(closed.summaries).header
    assert not any("Queue" in row for row in latency_table(closed.summaries).rows)
    opened = make_results(levels=(Level(request_rate=2.0),))
    assert any("Queue" in row for row in latency_table(opened.summaries).rows)


class Checker(HTMLParser):
    """Fails at a tag that is not closed, and keeps what it saw."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: dict[str, list[str]] = {}
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


def test_the_page_is_whole_html_with_an_svg_for_every_plot() -> None:
    text = page(make_results())
    assert text.startswith("<!DOCTYPE html>\n<html")
    found = Checker(text)
    num_plots = found.tags.count("figure")
    assert num_plots == 3 + 2 * 6  # over all loads; for each of them
    assert found.attributes["role"] == ["img"] * num_plots
    assert found.tags.count("svg") == num_plots + 3 * 2  # and in the legends
    numbers = " ".join(found.attributes["points"] + found.attributes["cx"] + found.attributes["cy"])
    assert all(math.isfinite(float(number)) for number in numbers.replace(",", " ").split())


def test_names_cannot_break_out_of_the_page() -> None:
    results = make_results()
    results.runs[0].records.append(make_record(failure=Failure(NASTY, NASTY)))
    found = Checker(page(results))
    assert "script" not in found.tags
    assert found.text.count(NASTY) >= 4


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = page(make_results())
    assert not {"src", "href", "srcset", "action"} & set(Checker(text).attributes)
    assert "url(" not in text
    assert "@import" not in text


@pytest.mark.parametrize("level", [Level(concurrency=2), Level(request_rate=2.0)])
def test_a_page_of_failures_only_is_still_whole(level: Level) -> None:
    plan = Plan([Target("a", "http://a/v1", "m")], [level], WordPrompts(1, 3), seed=1)
    failed = make_record(failure=Failure("HTTP 500", "The engine has failed."))
    results = Results(plan, [Run(plan.targets[0], level, records=[failed], duration=1.0)])
    found = Checker(page(results))
    assert "1 × HTTP 500: The engine has failed." in found.text
    assert found.tags.count("figure") == 6
    assert " -" in tables(results)[1].text()


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis.over("ms", [3.0, 87.0], from_zero=True), [0, 20, 40, 60, 80, 100]),
        (Axis.over("ms", [2.0, 300.0]), [2, 5, 10, 20, 50, 100, 200]),
        (Axis.over("ms", [100.0, 120.0]), [100, 105, 110, 115, 120]),
        (Axis.over("ms", []), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Axis.over("ms", [0.0, 0.0]), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Axis.over("ms", [5.0]), [4.8, 4.9, 5, 5.1, 5.2]),
    ],
)
def test_axes_have_round_ticks(axis: Axis, ticks: list[float]) -> None:
    assert axis.ticks() == pytest.approx(ticks)
    assert all(-1e-9 <= axis.place(tick) <= 1 + 1e-9 for tick in ticks)


def test_a_line_goes_up_as_its_values_do_and_stays_inside() -> None:
    axis = Axis("ms", 0.0, 10.0)
    svg = line_plot("title", [Line("a", [(0.0, 0.0), (5.0, 5.0), (10.0, 99.0)], 1)], axis, axis)[1]
    line = next(element for element in svg if (element.get("class") or "").startswith("line"))
    points = [tuple(map(float, pair.split(","))) for pair in (line.get("points") or "").split()]
    width, height = map(float, (svg.get("viewBox") or "").split()[2:])
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
