"""Deltas of an engine's steps are fed as they come. Those of several steps are joined, and say the same."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from engine.local.stream import LocalStream
from engine.protocol import Delta, EngineError, Rewind
from engine.protocol.flow import Flow
from engine.streams.flow import Stage, StagedFlow
from tests.engine.streams.stages import Answer, Passing, Waiting
from tests.helpers import until


class Core:
    """The engine of a flow with one local stream, whose steps are the test's."""

    def __init__(self, num_outputs: int = 1) -> None:
        self.num_outputs = num_outputs
        self.stream: LocalStream | None = None
        self.rewinds: list[Rewind] = []

    async def __call__(self, flow: Flow) -> None:
        self.stream = LocalStream(flow, self.num_outputs)
        flow.on_rewind = self._rewind
        await self.stream.wait()

    def _rewind(self, rewind: Rewind) -> None:
        assert self.stream is not None
        self.rewinds.append(rewind)
        self.stream.rewind(rewind.index)

    def step(self, *deltas: Delta) -> None:
        assert self.stream is not None
        for delta in deltas:
            self.stream.put(delta)
        self.stream.feed()


async def running(core: Core, answer: Stage, *guard: Stage) -> "asyncio.Task[None]":
    task = asyncio.get_running_loop().create_task(StagedFlow(core, guard=guard).run(answer))
    await until(lambda: core.stream is not None)
    return task


END = Delta(finish_reason="stop")


async def test_a_flow_that_keeps_up_gets_each_delta_as_it_came() -> None:
    core, answer = Core(), Answer()
    task = await running(core, answer)
    for text in "abc":
        delta = Delta(text=text)
        core.step(delta)
        assert answer.deltas[-1] is delta
    core.step(END)
    await task
    assert answer.texts == ["a", "b", "c", ""]


async def test_deltas_that_were_put_together_are_joined() -> None:
    core, answer = Core(2), Answer()
    task = await running(core, answer)
    core.step(Delta(text="a"), Delta(index=1, text="b"), Delta(text="c"))
    core.step(END, Delta(index=1, finish_reason="stop"))
    await task
    assert [(delta.index, delta.text) for delta in answer.deltas] == [(1, "b"), (0, "ac"), (0, ""), (1, "")]


async def test_an_answer_ends_with_the_last_of_its_outputs() -> None:
    core = Core(2)
    task = await running(core, Answer())
    core.step(END)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    core.step(Delta(index=1, finish_reason="stop"))
    await task


async def test_an_error_comes_after_what_was_put() -> None:
    core, answer = Core(), Answer()
    task = await running(core, answer)
    assert core.stream is not None
    core.stream.put(Delta(text="a"))
    core.stream.fail(EngineError("gone"))
    core.stream.put(Delta(text="b"))
    with pytest.raises(EngineError, match="gone"):
        await task
    assert answer.texts == ["ab"]


async def test_an_error_comes_after_what_a_waiting_flow_has_kept() -> None:
    core, answer, waiting = Core(), Answer(), Waiting("a")
    task = await running(core, answer, waiting)
    core.step(Delta(text="a"))
    core.step(Delta(text="b"))
    assert core.stream is not None
    core.stream.fail(EngineError("gone"))
    core.step(Delta(text="c"))
    waiting.go_on.set()
    with pytest.raises(EngineError, match="gone"):
        await task
    assert answer.texts == ["a", "bc"]


async def test_what_was_said_of_a_rewound_output_is_void_until_the_engine_has_heard_of_it() -> None:
    core, answer = Core(2), Answer()
    task = await running(core, answer)
    stream = core.stream
    assert stream is not None
    stream.put(Delta(text="a"))
    stream.put(Delta(index=1, text="b"))
    stream.rewind(0)
    stream.put(Delta(text="c", finish_reason="stop"))
    core.step(Delta(index=1, text="d", finish_reason="stop"))
    assert [(d.index, d.text) for d in answer.deltas] == [(1, "bd")]
    assert not task.done()
    stream.resume(0)
    core.step(Delta(text="e"))
    core.step(END)
    await task
    assert [(d.index, d.text) for d in answer.deltas[1:]] == [(0, "e"), (0, "")]


async def test_a_rewind_at_one_delta_voids_those_that_came_with_it() -> None:
    def rewind(stage: Passing, delta: Delta) -> None:
        if delta.text == "bad":
            stage.rewind(Rewind(0, 0))

    core, answer = Core(), Answer()
    task = await running(core, answer, Passing(rewind))
    core.step(Delta(text="bad"), Delta(text="x", channel="reasoning"), END)
    assert answer.texts == ["bad"]
    assert core.stream is not None
    core.stream.resume(0)
    core.step(Delta(text="good", finish_reason="stop"))
    await task
    assert answer.texts == ["bad", "good"]


class Rewinding(Waiting):
    """Waits, and rewinds the output."""

    async def _wait(self, delta: Delta) -> None:
        await self.go_on.wait()
        self.source.rewind(Rewind(delta.index, 0))


def said_again(core: Core) -> Any:
    assert core.stream is not None
    core.stream.resume(0)
    core.step(Delta(text="good", finish_reason="stop"))


def failed(core: Core) -> Any:
    assert core.stream is not None
    core.stream.fail(EngineError("gone"))


@pytest.mark.parametrize("then", [said_again, failed])
async def test_an_output_that_a_hook_waits_at_the_end_of_may_still_be_rewound(
    then: Callable[[Core], Any],
) -> None:
    core, answer, waiting = Core(), Answer(), Rewinding("bad")
    task = await running(core, answer, waiting)
    core.step(Delta(text="bad"), END)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    waiting.go_on.set()
    await until(lambda: core.rewinds)
    then(core)
    if then is failed:
        with pytest.raises(EngineError, match="gone"):
            await task
    else:
        await task
        assert answer.texts == ["good"]


async def test_a_flow_that_was_cancelled_gets_nothing() -> None:
    core, answer = Core(), Answer()
    task = await running(core, answer)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    core.step(Delta(text="a"))
    assert answer.texts == []
