"""Figures of records made by hand."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.figures import METRICS, PERCENTILES, figures, median_figures, percentile, ratio_figures
from tests.benchmarks.load.conftest import make_record

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
        make_record(1.0, 1.5, 2.5, sent=0.5, ended=3.0, usage_tokens=5),
        make_record(2.0, 2.25, sent=1.0, ended=2.5),
    ]
    found = figures(records, duration=4.0)
    assert found["tokens/s"] == 7 / 4
    assert found["requests/s"] == 0.5
    assert found["tokens/chunk"] == 7 / 5
    assert found["TTFT mean, ms"] == 750
    assert found["ITL p50, ms"] == 500
    assert found["ITL p99, ms"] == pytest.approx(990)
    assert found["TPOT mean, ms"] == pytest.approx((1500 / 4 + 250) / 2)
    assert found["E2EL mean, ms"] == 2000


def test_gaps_per_token_have_the_tpot_as_their_mean() -> None:
    record = make_record(1.0, 1.2, 1.8, usage_tokens=9)
    assert METRICS["ITL/token"](record) == pytest.approx([0.2 * 2 / 8, 0.6 * 2 / 8])
    assert statistics.fmean(METRICS["ITL/token"](record)) == pytest.approx(record.tpot)


def test_medians_and_ratios_skip_missing_figures() -> None:
    several: list[dict[str, float | None]] = [
        {"a": 1.0, "b": None},
        {"a": 3.0, "b": None},
        {"a": 10.0, "b": 2.0},
    ]
    median = median_figures(several)
    assert median == {"a": 3.0, "b": 2.0}
    assert ratio_figures(median, {"a": 6.0, "b": 0.0}) == {"a": 0.5, "b": None}
    assert ratio_figures(several[0], median) == {"a": 1 / 3, "b": None}
