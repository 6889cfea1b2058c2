"""Results are written as JSON, with medians and ratios."""

import math

import orjson
import pytest

from tests.weir_bench.conftest import CLOSED, NASTY, make_results
from weir_bench.measure import METRICS, PERCENTILES
from weir_bench.page import page
from weir_bench.plan import Level, Run
from weir_bench.results import Results


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


def test_detailed_json_has_every_requests_times() -> None:
    run = orjson.loads(make_results().to_json(detailed=True))["runs"][0]
    assert [request["times"] for request in run["requests"]] == [[0.5, 0.6, 0.8], [1.5, 1.75, 2.5]]
    assert run["requests"][0]["usage_tokens"] == 6


def test_a_rate_of_infinity_is_json() -> None:
    results = make_results(levels=(Level(request_rate=math.inf),))
    assert orjson.loads(results.to_json())["runs"][0]["request_rate"] == "inf"
    assert "inf requests/s" in page(results).lower()


def test_the_api_key_is_in_no_report() -> None:
    results = make_results()
    assert b"secret" not in results.to_json(detailed=True)
    assert "secret" not in page(results)


def test_an_interrupted_bench_reports_what_was_measured() -> None:
    whole = make_results()
    results = Results(whole.plan, [*whole.runs[:3], Run(whole.plan.targets[0], CLOSED[1])], interrupted=True)
    found = orjson.loads(results.to_json())
    assert found["interrupted"] is True
    assert [(s["target"], s["repetitions"]) for s in found["summary"]] == [("weir", 1), (NASTY, 2)]
    assert "Interrupted" in page(results)
