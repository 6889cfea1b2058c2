"""The pipeline counts each hook's verdicts."""

import asyncio
import time
from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.stats import Histogram
from hooks import Chunk, Verdict, emit
from hooks.decisions.tally import CALL_SECONDS, UNJUDGED_TOKENS, JudgedTokens, Tally
from hooks.loading.options import PipelineOptions
from hooks.pipeline.driver import GuardDriver
from tests.helpers import Script, examples, guard_all, make_deltas, make_request, pipeline_of, verdicts_of

PAUSE = 0.02


def waits(chunk: Chunk) -> Verdict:
    time.sleep(PAUSE)
    return emit(chunk.pending)


class Awaits:
    async def __call__(self, chunk: Chunk) -> Verdict:
        await asyncio.sleep(PAUSE)
        return emit(chunk.pending)


@pytest.mark.parametrize("slow", [Script(waits), Awaits()], ids=["plain", "async"])
async def test_a_hooks_time_is_its_own(slow: object) -> None:
    pipeline = pipeline_of(slow, Script(lambda c: emit(c.pending)))
    await guard_all(pipeline, make_deltas(["a", "b", "c"]))
    assert verdicts_of(pipeline) == {"hook0": {"emit": 4}, "hook1": {"emit": 4}}
    assert pipeline.tallies["hook0"].seconds >= 4 * PAUSE * 0.9
    assert pipeline.tallies["hook1"].seconds > 0


def test_what_is_taken_is_counted_once() -> None:
    ours, theirs = Tally(), Tally()
    for actions in (["emit", "hold", "emit"], ["error"]):
        for action in actions:
            theirs.count(action)
        theirs.seconds += 0.5
        ours.add(theirs.drain())
    assert theirs == Tally()
    assert ours == Tally(2, 1, Counter(error=1), 1.0)
    assert ours.verdicts == {"emit": 2, "hold": 1, "error": 1}


def test_the_buckets_of_unjudged_tokens_double() -> None:
    assert list(UNJUDGED_TOKENS) == [0, *(2**power for power in range(10))]
    tally = Tally()
    for num_tokens in (0, 1, 2, 3, 4, 512, 513):
        tally.count_unjudged(num_tokens)
    assert tally.unjudged == {0: 1, 1: 1, 2: 1, 3: 2, 10: 1, 11: 1}


def called(tally: Tally, *times: float) -> None:
    """A driver counts calls that took so long."""
    guard = GuardDriver(make_request(), [], {}, PipelineOptions())
    for seconds in times:
        with patch("hooks.pipeline.driver.monotonic", lambda seconds=seconds: seconds):
            guard._count(tally, 0.0)


@given(st.lists(st.sampled_from([0.0, *CALL_SECONDS, *(1.5 * end for end in CALL_SECONDS)])))
def test_each_call_is_in_the_bucket_of_its_time(times: list[float]) -> None:
    tally, expected = Tally(), Histogram(CALL_SECONDS)
    called(tally, *times)
    for seconds in times:
        expected.observe(seconds)
    assert [tally.calls[place] for place in range(len(expected.counts))] == expected.counts
    assert tally.call_seconds == pytest.approx(expected.sum)


def test_a_call_that_three_guards_share_counts_whole_for_each() -> None:
    reading, guards = Tally(), [Tally() for _ in range(3)]
    called(reading, 0.003, 0.00001)
    for guard in guards:
        guard.count_shared(reading, 3)
    assert sum(guard.seconds for guard in guards) == pytest.approx(0.00301)
    assert [guard.call_seconds for guard in guards] == pytest.approx([0.00301] * 3)
    assert [guard.calls for guard in guards] == [{0: 1, 5: 1}] * 3


PIECES = st.lists(st.tuples(st.text("a", max_size=9), st.none() | st.integers(0, 3)), max_size=3)


@given(st.lists(st.tuples(PIECES, st.none() | st.integers(0, 20)), max_size=8))
@examples(200)
def test_a_token_is_judged_once_a_verdict_covers_its_text(
    releases: list[tuple[list[tuple[str, int | None]], int | None]],
) -> None:  # contract 3.17
    judged = JudgedTokens()
    length = num_released = num_judged = most = 0
    left: list[tuple[int, int]] = []
    for pieces, unjudged in releases:
        for text, num_tokens in pieces:
            length += len(text)
            size = (len(text) + 3) // 4 if num_tokens is None else num_tokens  # text without tokens
            left.append((length, size))
            num_released += size
        if unjudged is None:  # the judge was not asked: only a verdict on all of it covers any of it
            left = [(length, num_released - num_judged)]
        elif unjudged > length:
            with pytest.raises(ValueError, match="out of range"):
                judged.release(pieces, unjudged)
            return
        else:
            num_judged += sum(size for end, size in left if end <= length - unjudged)
            left = [(end, size) for end, size in left if end > length - unjudged]
            most = max(most, num_released - num_judged)
        (text, num_tokens), *others = pieces or [("", None)]
        if others or unjudged != 0 or num_tokens is None or not judged.pass_on(text, num_tokens):
            judged.release(pieces, unjudged)
        assert (judged.num_released, judged.num_judged) == (num_released, num_judged)
        assert (judged.max_unjudged, judged.is_asked) == (most, unjudged is not None)
    assert judged.was_asked == any(unjudged is not None for _, unjudged in releases)
