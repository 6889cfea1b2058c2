"""Figures of records made by hand."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.weir_bench.conftest import make_record
from weir_bench.client import Failure
from weir_bench.measure import (
    METRICS,
    PERCENTILES,
    count_errors,
    figures,
    median_figures,
    meets,
    percentile,
    ratio_figures,
    timeline,
    values_of,
)

TIMES = st.floats(0, 1e6, allow_nan=False)


@given(st.lists(TIMES, min_size=2, max_size=60))
def test_percentiles_are_the_inclusive_quantiles_of_statistics(values: list[float]) -> None:
    quantiles = statistics.quantiles(values, n=100, method="inclusive")
    ordered = sorted(values)
    for percent in PERCENTILES:
        assert percentile(ordered, percent) == pytest.approx(quantiles[percent - 1], rel=1e-9, abs=1e-9)
    assert percentile(ordered, 0) == ordered[0]
    assert percentile(ordered, 100) == ordered[-1]


def test_the_percentiles_of_one_value_are_that_value() -> None:
    assert [percentile([3.0], p) for p in (0, 50, 99, 100)] == [3.0] * 4


def test_the_figures_of_two_requests() -> None:
    records = [
        make_record(1.0, 1.5, 2.5, sent=0.5, ended=3.0, usage_tokens=5, num_prompt_tokens=10),
        make_record(2.0, 2.25, sent=1.0, ended=2.5, due=0.75, num_prompt_tokens=20),
    ]
    found = figures(records, duration=4.0)
    assert (found["completed"], found["failed"]) == (2, 0)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (30, 7)
    assert found["output_throughput"] == 7 / 4
    assert found["total_token_throughput"] == 37 / 4
    assert found["request_throughput"] == 0.5
    assert found["tokens_per_chunk"] == 7 / 5
    assert found["mean_ttft_ms"] == 750
    assert found["p50_itl_ms"] == 500
    assert found["p99_itl_ms"] == pytest.approx(990)
    assert found["mean_tpot_ms"] == pytest.approx((1500 / 4 + 250) / 2)
    assert found["mean_e2el_ms"] == 2000
    assert found["mean_client_queue_time_ms"] == 125
    assert found["request_goodput"] is None


def test_gaps_per_token_have_the_tpot_as_their_mean() -> None:
    record = make_record(1.0, 1.2, 1.8, usage_tokens=9)
    assert values_of("itl_per_token", [record]) == pytest.approx([0.2 * 2 / 8, 0.6 * 2 / 8])
    assert statistics.fmean(values_of("itl_per_token", [record])) == pytest.approx(record.tpot)


def test_failed_requests_count_only_as_failures() -> None:
    good, bad = make_record(1.0, 2.0), make_record(0.1, 9.0, failure=Failure("timeout", ""), usage_tokens=50)
    found = figures([good, bad], duration=2.0)
    assert found | {"failed": 0} == figures([good], duration=2.0)
    assert found["failed"] == 1


def test_a_run_in_which_all_requests_failed_has_no_latencies() -> None:
    found = figures([make_record(failure=Failure("timeout", ""))], duration=2.0, slos={"ttft": 1.0})
    assert (found["completed"], found["failed"], found["request_goodput"]) == (0, 1, 0.0)
    assert all(found[f"mean_{metric}_ms"] is None for metric in METRICS)


def test_goodput_counts_requests_within_every_objective() -> None:
    record = make_record(0.2, 0.25, 0.35, ended=0.5)
    assert meets({"ttft": 200, "itl": 101, "e2el": 500}, record)
    assert not meets({"ttft": 199}, record)
    assert not meets({"ttft": 200, "itl": 99}, record)  # the longest gap is too long
    assert meets({"tpot": 76}, record)
    assert meets({"tpot": 1}, make_record(0.2))  # with one token there is no time per other token
    slow = make_record(0.9, 1.0)
    assert figures([record, slow, record], 2.0, {"ttft": 200})["request_goodput"] == 1.0


def test_errors_are_counted_by_kind_with_the_first_message() -> None:
    failures = [Failure("HTTP 429", "first"), Failure("timeout", "late"), Failure("HTTP 429", "second")]
    found = count_errors([make_record(failure=f) for f in failures] + [make_record(1.0)])
    assert [(kind, error.count, error.example) for kind, error in found.items()] == [
        ("HTTP 429", 2, "first"),
        ("timeout", 1, "late"),
    ]


def test_medians_and_ratios_skip_missing_figures() -> None:
    several = [{"a": 1.0, "b": None}, {"a": 3.0, "b": None}, {"a": 10.0, "b": 2.0}]
    median = median_figures(several)
    assert median == {"a": 3.0, "b": 2.0}
    assert ratio_figures(median, {"a": 6.0, "b": 0.0}) == {"a": 0.5, "b": None}
    assert ratio_figures(several[0], median) == {"a": 1 / 3, "b": None}


def test_a_timeline_contains_every_token_and_every_gap() -> None:
    records = [
        make_record(0.5, 1.5, 2.5, 9.9, sent=0.2, ended=10.0, usage_tokens=8),
        make_record(5.1, 5.2, sent=5.0, ended=5.3),
    ]
    moments = timeline(records, duration=10.0, max_moments=10)
    assert [(m.start, m.end) for m in moments] == [(float(i), float(i + 1)) for i in range(10)]
    assert [m.tokens_per_second for m in moments] == [2, 2, 2, 0, 0, 2, 0, 0, 0, 2]
    assert [m.num_open for m in moments] == [1] * 10
    assert [m.itl for m in moments if m.itl] == [
        (1000.0, 1000.0),
        (1000.0, 1000.0),
        pytest.approx((100.0, 100.0)),
        pytest.approx((7400.0, 7400.0)),
    ]


@given(st.lists(st.floats(0.001, 50), min_size=1, max_size=40), st.integers(1, 60))
def test_a_timeline_loses_nothing_at_any_width(times: list[float], max_moments: int) -> None:
    duration = max(times)
    moments = timeline([make_record(*sorted(times))], duration, max_moments)
    assert moments[0].start == 0
    assert moments[-1].end == duration
    tokens = sum(m.tokens_per_second * (m.end - m.start) for m in moments)
    assert tokens == pytest.approx(len(times))
    assert len(moments) <= max_moments
