"""The pipeline counts each hook's verdicts."""

import asyncio
import time
from collections import Counter

import pytest

from hooks import Chunk, Verdict, emit
from hooks.decisions.tally import Tally
from tests.helpers import Script, guard_all, make_deltas, pipeline_of, verdicts_of

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
