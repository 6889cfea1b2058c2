"""The text of a stream is kept for the hooks that read it, and for no other (contract 2.15)."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta
from hooks import Chunk, Verdict, emit, hold
from hooks.api.decision import Decision
from hooks.decisions.failure import HookError
from tests.helpers import guard_all, make_deltas, make_request, pipeline_of, text_of

PIECE = 1000


class HoldsTwo:
    """Holds the last two characters if it may, at every second chunk."""

    def __init__(self, *, reads_text: bool) -> None:
        self.reads_text = reads_text

    def __call__(self, chunk: Chunk) -> Verdict:
        is_held = len(chunk.pending) > len(chunk.text_diff)
        return emit(chunk.pending) if chunk.is_final or is_held else hold(min(2, len(chunk.pending)))


def _ignore(decision: Decision) -> None:
    pass


@pytest.mark.parametrize("listener", [None, _ignore], ids=["alone", "listened to"])
@pytest.mark.parametrize("reads_text", [False, True])
async def test_a_long_stream_is_kept_only_for_a_hook_that_reads_its_text(
    reads_text: bool, listener: Any
) -> None:
    guard = pipeline_of(HoldsTwo(reads_text=reads_text)).open(make_request(), listener=listener)
    tracemalloc.start()
    try:
        for i in range(200):
            await guard.feed(Delta(text=str(i % 10) * PIECE))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (kept > 150 * PIECE) is reads_text
    await guard.close()


async def test_a_hook_that_reads_text_without_saying_so_fails_its_request() -> None:
    class Reads(HoldsTwo):
        def __call__(self, chunk: Chunk) -> Verdict:
            return emit(chunk.text)

    assert text_of(await guard_all(pipeline_of(Reads(reads_text=True)), make_deltas(["a"]))) == "aa"
    with pytest.raises(HookError):
        await guard_all(pipeline_of(Reads(reads_text=False)), make_deltas(["a"]))


@given(pieces=st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=8))
async def test_decisions_and_counts_are_the_same_without_the_text(pieces: list[str]) -> None:
    seen = []
    for reads_text in (True, False):
        pipeline, decisions = pipeline_of(HoldsTwo(reads_text=reads_text)), list[Decision]()
        released = text_of(await guard_all(pipeline, make_deltas(pieces), listener=decisions.append))
        tally = pipeline.tallies["hook0"]
        places = [(decision.action, decision.offset) for decision in decisions]
        seen.append((released, places, tally.verdicts, tally.num_characters))
    assert seen[0] == seen[1]
    assert seen[0][-1] == len("".join(pieces))
