"""A step that waits for a hook is closed, though the flow ends before anybody awaits it."""

import asyncio
import gc

import pytest

from engine.streams.flow import StagedFlow
from hooks import Chunk, Verdict, emit
from hooks.pipeline.driver import Guarding, admit
from tests.engine.streams.stages import Answer, Pushing
from tests.engine.streams.test_flow import begun
from tests.helpers import make_request, pipeline_of


class Waits:
    async def __call__(self, chunk: Chunk) -> Verdict:
        await asyncio.sleep(0)
        return emit(chunk.pending)


async def test_a_step_that_never_began_is_closed() -> None:
    """Python warns of a coroutine that nobody awaits, and warnings are errors here."""
    guard, engine, answer = pipeline_of(Waits()).open(make_request()), Pushing(), Answer()
    await admit(guard)
    task = await begun(StagedFlow(engine, guard=[Guarding(guard)]), engine, answer)
    engine.say("a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gc.collect()
    assert answer.texts == []
