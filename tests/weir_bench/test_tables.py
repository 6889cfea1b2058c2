"""Results as tables of text."""

from tests.weir_bench.conftest import make_results
from weir_bench.plan import Level
from weir_bench.tables import latency_table, tables, throughput_table


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


def test_goodput_and_queue_times_are_shown_only_if_there_are_any() -> None:
    closed = make_results()
    assert "good/s" in throughput_table(closed.summaries).header
    assert not any("Queue" in row for row in latency_table(closed.summaries).rows)
    opened = make_results(levels=(Level(request_rate=2.0),))
    assert any("Queue" in row for row in latency_table(opened.summaries).rows)
