"""Running scores, token by token, are what their definitions say of the whole text."""

from math import exp, fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Smoothing
from hooks.builtin.probe_scores.smoothing import AttentionMean, running_score

scores = st.lists(st.floats(-50, 50), min_size=1, max_size=40)
spans = st.integers(1, 12)


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


def run(smoothing: Smoothing, span: int, values: list[float]) -> tuple[list[float | None], float | None]:
    running = running_score(smoothing, span)
    return [running.add(value) for value in values], running.end()


@given(scores, spans)
def test_an_ema_weighs_each_token_less_than_the_next(values: list[float], span: int) -> None:
    decay = 1 - 2 / (span + 1)
    found, last = run("ema", span, values)
    for i, value in enumerate(found):
        weights = [decay ** (i - j) for j in range(i + 1)]
        expected = fsum(w * v for w, v in zip(weights, values, strict=False)) / fsum(weights)
        assert value == pytest.approx(expected, abs=1e-9)
    assert last is None


@given(scores, spans)
def test_a_rolling_mean_is_of_the_last_tokens(values: list[float], span: int) -> None:
    found, last = run("rolling_mean", span, values)
    windows = [values[max(0, i + 1 - span) : i + 1] for i in range(len(values))]
    assert (found, last) == ([fsum(window) / len(window) for window in windows], None)


@given(scores, spans)
def test_only_whole_windows_count_or_a_whole_short_stream(values: list[float], span: int) -> None:
    found, last = run("max_of_means", span, values)
    windows = [values[i : i + span] for i in range(max(1, len(values) - span + 1))]
    known = [value for value in (*found, last) if value is not None]
    assert known == [fsum(window) / len(window) for window in windows]
    assert found[: span - 1] == [None] * min(span - 1, len(values))


@pytest.mark.parametrize("smoothing", ["ema", "rolling_mean", "max_of_means"])
def test_a_span_of_one_changes_no_score(smoothing: Smoothing) -> None:
    assert run(smoothing, 1, [0.5, -3.0, 7.25]) == ([0.5, -3.0, 7.25], None)


@given(st.lists(st.tuples(st.floats(-300, 300), st.floats(-50, 50)), min_size=1, max_size=30))
def test_an_attention_mean_is_that_of_the_whole_text(pairs: list[tuple[float, float]]) -> None:
    mean = AttentionMean()
    for i, (weight, score) in enumerate(pairs, 1):
        greatest = max(w for w, _ in pairs[:i])
        shares = [exp(w - greatest) for w, _ in pairs[:i]]
        expected = fsum(share * s for share, (_, s) in zip(shares, pairs, strict=False)) / fsum(shares)
        assert mean.add(weight, score) == pytest.approx(expected, abs=1e-9)
