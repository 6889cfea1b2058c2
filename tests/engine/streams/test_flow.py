"""A request's deltas are fed through stages. Some wait, and whatever ends the flow ends its engine."""

import asyncio
import weakref
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from engine.protocol import Delta, EngineError, Rewind
from engine.protocol.flow import Flow
from engine.streams.flow import Feed, Stage, StagedFlow
from tests.engine.streams.stages import Answer, Passing, Pushing, Waiting, without_collector
from tests.helpers import make_deltas, until


async def begun(flow: StagedFlow, engine: Pushing, answer: Stage) -> "asyncio.Task[None]":
    task = asyncio.get_running_loop().create_task(flow.run(answer))
    await until(lambda: engine.flow is not None)
    return task


def failing(text: str) -> Passing:
    def fail(_: Passing, delta: Delta) -> None:
        if delta.text == text:
            raise ValueError("broke")

    return Passing(fail)


def saying(*texts: str) -> Feed:
    async def feed(flow: Flow) -> None:
        for text in texts:
            flow.feed(Delta(text=text))

    return feed


async def test_a_delta_reaches_the_answer_in_the_turn_that_feeds_it() -> None:
    engine, answer = Pushing(), Answer()
    task = await begun(StagedFlow(engine, [Passing(lambda *_: None)]), engine, answer)
    for text in "abc":
        engine.say(text)
        assert answer.texts[-1] == text
    engine.end()
    await task
    assert answer.texts == ["a", "b", "c"]


async def test_an_engine_that_never_awaits_is_fed_from_and_an_empty_answer_ends() -> None:
    answer = Answer()
    await StagedFlow(saying("a", "b")).run(answer)
    assert answer.texts == ["a", "b"]
    await StagedFlow(saying()).run(empty := Answer())
    assert (empty.deltas, empty.is_closed) == ([], True)


@pytest.mark.parametrize("place", ["before the gate", "after the gate", "the answer"])
async def test_an_error_of_a_stage_ends_the_flow_and_cancels_the_engine(place: str) -> None:
    stage = failing("b")
    stages, guard = (
        [stage] if place == "before the gate" else [],
        [stage] if place == "after the gate" else [],
    )
    engine, answer = Pushing(), Answer()
    if place == "the answer":
        answer.feed = partial(feed_but, answer, "b")  # type: ignore[method-assign]
    task = await begun(StagedFlow(engine, stages, guard), engine, answer)
    engine.say("a", "b", "c")  # raises nothing
    assert engine.flow is not None
    assert engine.flow.is_over
    with pytest.raises(ValueError, match="broke"):
        await task
    assert answer.texts == ["a"]
    assert (engine.is_cancelled, answer.is_closed) == (True, True)


def feed_but(answer: Answer, text: str, delta: Delta) -> None:
    if delta.text == text:
        raise ValueError("broke")
    answer.deltas.append(delta)


async def test_an_error_comes_after_what_was_kept_before_it() -> None:
    engine, answer, waiting = Pushing(), Answer(), Waiting("a")
    flow = StagedFlow(engine, [failing("c")], [waiting])
    task = await begun(flow, engine, answer)
    engine.say("a", "b", "c", "d")
    waiting.go_on.set()
    with pytest.raises(ValueError, match="broke"):
        await task
    assert answer.texts == ["a", "b"]


@pytest.mark.parametrize("error", [None, EngineError("gone", status=502)])
async def test_what_came_while_a_stage_waited_goes_on_joined_and_in_order(error: Exception | None) -> None:
    engine, answer, waiting = Pushing(), Answer(), Waiting("b")
    task = await begun(StagedFlow(engine, guard=[waiting]), engine, answer)
    engine.say("a", "b", "c", "d")
    engine.say("other", index=1)
    engine.say("e")
    assert answer.texts == ["a"]
    engine.end(error)
    for _ in range(3):
        await asyncio.sleep(0)
    assert (answer.texts, waiting.seen) == (["a"], ["a", "b"])
    waiting.go_on.set()
    if error is None:
        await task
    else:
        with pytest.raises(EngineError, match="gone"):
            await task
    assert [(delta.index, delta.text) for delta in answer.deltas] == [
        (0, "a"),
        (0, "b"),
        (1, "other"),
        (0, "cde"),
    ]


async def test_each_wait_keeps_what_comes_after_it() -> None:
    engine, answer, waiting = Pushing(), Answer(), Waiting("a", "bc")
    task = await begun(StagedFlow(engine, guard=[waiting]), engine, answer)
    engine.say("a", "b", "c")
    waiting.go_on.set()
    await until(lambda: answer.texts == ["a"] and not waiting.go_on.is_set())
    engine.say("d")
    assert waiting.seen == ["a", "bc"]
    waiting.go_on.set()
    engine.end()
    await task
    assert (waiting.seen, answer.texts) == (["a", "bc", "d"], ["a", "bc", "d"])


async def test_several_stages_wait_one_after_the_other() -> None:
    engine, answer, first, second = Pushing(), Answer(), Waiting("a"), Waiting("a", "b")
    task = await begun(StagedFlow(engine, guard=[first, second]), engine, answer)
    engine.say("a", "b")
    second.go_on.set()  # nothing reaches it yet
    await asyncio.sleep(0)
    assert second.seen == []
    first.go_on.set()
    await until(lambda: answer.texts == ["a"])
    assert (first.seen, second.seen) == (["a", "b"], ["a", "b"])
    second.go_on.set()
    engine.end()
    await task
    assert answer.texts == ["a", "b"]


async def test_what_waits_has_ended_before_the_next_begins() -> None:
    order: list[str] = []

    async def wait(name: str) -> None:
        order.append(name)
        await asyncio.sleep(0)
        order.append(f"{name} ends")

    def wait_twice(stage: Passing, delta: Delta) -> None:
        for name in ("first", "second"):
            stage.flow.wait_for(wait(name))

    await StagedFlow(saying("a"), guard=[Passing(wait_twice)]).run(Answer())
    assert order == ["first", "first ends", "second", "second ends"]


async def test_an_engine_can_wait_until_the_flow_is_not_full() -> None:
    waiting, steps = Waiting("a"), list[Any]()

    async def feed(flow: Flow) -> None:
        flow.feed(Delta(text="a"))
        steps.append(flow.is_full)
        await flow.has_room()
        steps.append(flow.is_full)
        flow.feed(Delta(text="b"))

    answer = Answer()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(StagedFlow(feed, guard=[waiting]).run(answer))
        await until(lambda: steps)
        assert steps == [True]
        waiting.go_on.set()
    assert (steps, answer.texts) == ([True, False], ["a", "b"])


async def test_a_rewind_drops_what_is_kept_of_the_output_and_reaches_the_engine() -> None:
    class Rewinding(Waiting):
        async def _wait(self, delta: Delta) -> None:
            await self.go_on.wait()
            self.source.rewind(Rewind(delta.index, 1))

    passed: list[Rewind] = []

    class Watched(Passing):
        def rewind(self, rewind: Rewind) -> None:
            passed.append(rewind)
            super().rewind(rewind)

    engine, answer, waiting = Pushing(), Answer(), Rewinding("bad")
    flow = StagedFlow(engine, [Watched(lambda *_: None)], [waiting])
    task = await begun(flow, engine, answer)
    engine.say("a", "bad", "void")
    engine.say("other", index=1)
    engine.say("void, too")
    waiting.go_on.set()
    await until(lambda: engine.rewinds)
    engine.say("good")
    engine.end()
    await task
    assert passed == engine.rewinds == [Rewind(0, 1)]
    assert [(delta.index, delta.text) for delta in answer.deltas] == [(0, "a"), (1, "other"), (0, "good")]


async def test_an_engine_that_cannot_rewind_ignores_it() -> None:
    def rewind(stage: Passing, delta: Delta) -> None:
        stage.rewind(Rewind(0, 0))

    answer = Answer()
    await StagedFlow(saying("a", "b"), [Passing(rewind)]).run(answer)
    assert answer.texts == ["a", "b"]


async def test_a_finish_drops_the_rest_and_cancels_the_engine() -> None:
    engine, answer = Pushing(), Answer()
    guard = Passing(lambda stage, delta: stage.flow.finish() if delta.text == "b" else None)
    task = await begun(StagedFlow(engine, guard=[guard]), engine, answer)
    engine.say("a", "b", "c")
    await task
    engine.say("d")
    assert answer.texts == ["a", "b"]
    assert (engine.is_cancelled, guard.is_closed, answer.is_closed) == (True, True, True)


async def test_a_finish_after_a_wait_drops_what_was_kept() -> None:
    class Finishing(Waiting):
        async def _wait(self, delta: Delta) -> None:
            await super()._wait(delta)
            self.flow.finish()

    engine, answer, waiting = Pushing(), Answer(), Finishing("b")
    task = await begun(StagedFlow(engine, guard=[waiting]), engine, answer)
    engine.say("a", "b", "c")
    engine.end(EngineError("too late to matter"))
    waiting.go_on.set()
    await task
    assert answer.texts == ["a", "b"]


@pytest.mark.parametrize("end", ["finish", "error"])
async def test_the_engine_is_cancelled_at_once_though_the_answer_waits_for_its_client(end: str) -> None:
    """A client that does not read must not keep a terminated request's engine at work."""

    def ended(stage: Passing, delta: Delta) -> None:
        if delta.text == "b" and end == "finish":
            stage.flow.finish()
        elif delta.text == "b":
            raise ValueError("broke")

    engine, answer, client = Pushing(), Answer(), Waiting("a")
    task = await begun(StagedFlow(engine, [Passing(ended)], [client]), engine, answer)
    engine.say("a", "b")
    await until(lambda: engine.is_cancelled)
    assert not task.done()
    client.go_on.set()
    if end == "finish":
        await task
    else:
        with pytest.raises(ValueError, match="broke"):
            await task
    assert answer.texts == ["a"]


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_cancelling_the_flow_cancels_the_engine_and_closes_the_stages(is_waiting: bool) -> None:
    engine, answer, before = Pushing(), Answer(), Passing(lambda *_: None)
    task = await begun(StagedFlow(engine, [before], [Waiting("a")]), engine, answer)
    if is_waiting:
        engine.say("a")
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (engine.is_cancelled, before.is_closed, answer.is_closed) == (True, True, True)
    engine.say("b")
    assert answer.texts == []


async def test_the_engine_has_ended_before_the_stages_are_closed() -> None:
    order: list[str] = []

    async def feed(flow: Flow) -> None:
        flow.feed(Delta(text="a"))
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            order.append("the engine ends")

    class Last(Answer):
        def feed(self, delta: Delta) -> None:
            self.flow.finish()

        async def close(self) -> None:
            order.append("closed")

    await StagedFlow(feed).run(Last())
    assert order == ["the engine ends", "closed"]


async def test_work_that_has_not_begun_is_never_begun_once_the_flow_has_ended() -> None:
    begun: list[str] = []

    async def wait(name: str) -> None:
        begun.append(name)
        raise ValueError(name)

    def wait_twice(stage: Passing, delta: Delta) -> None:
        stage.flow.wait_for(wait("first"))
        stage.flow.wait_for(wait("second"))

    with pytest.raises(ValueError, match="first"):
        await StagedFlow(saying("a"), guard=[Passing(wait_twice)]).run(Answer())
    assert begun == ["first"]


NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


async def test_stages_run_in_the_context_of_the_flow_s_caller() -> None:
    """A connection may have been opened by another request, and calls in that request's context."""
    names: list[str] = []
    engine = Pushing()
    NAME.set("the caller")
    flow = StagedFlow(engine, [Passing(lambda *_: names.append(NAME.get()))])
    task = await begun(flow, engine, Answer())
    NAME.set("another request")
    engine.say("a")
    engine.end()
    await task
    assert names == ["the caller"]


async def test_the_first_delta_is_told_of_once_and_before_it_is_taken() -> None:
    order: list[str] = []

    async def feed(flow: Flow) -> None:
        flow.on_first = partial(order.append, "first")
        for text in "ab":
            flow.feed(Delta(text=text))

    await StagedFlow(feed, [Passing(lambda _, delta: order.append(delta.text))]).run(Answer())
    assert order == ["first", "a", "b"]


async def ended_in(way: str) -> "weakref.ref[StagedFlow]":
    """A flow that has run, and is referred to by nobody but itself."""

    class Flow_(StagedFlow):
        """Can be referred to weakly."""

    async def feed(flow: Flow) -> None:
        flow.on_rewind = lambda rewind: flow.feed(Delta(text="never"))
        flow.on_first = lambda: flow.feed(Delta(text="first"))
        for delta in make_deltas(["a", "b", "c"]):
            flow.feed(delta)
        if way == "an error of the engine":
            raise EngineError("gone")
        if way in ("cancelled", "finished"):
            await asyncio.Event().wait()

    stages = {
        "an error of a stage": failing("b"),
        "finished": Passing(lambda stage, delta: stage.flow.finish()),
    }
    guard = Waiting("a") if way == "waited" else Passing(lambda *_: None)
    flow = Flow_(feed, [stages[way]] if way in stages else [], [guard])
    task = asyncio.get_running_loop().create_task(flow.run(Answer()))
    if isinstance(guard, Waiting):
        guard.go_on.set()
    if way == "cancelled":
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    (error,) = await asyncio.gather(task, return_exceptions=True)
    assert (error is None) is (way in ("ended", "finished", "waited"))
    del error
    return weakref.ref(flow)


@pytest.mark.parametrize(
    "way", ["ended", "finished", "waited", "cancelled", "an error of the engine", "an error of a stage"]
)
async def test_a_flow_that_has_ended_waits_for_no_garbage_collection(way: str) -> None:
    with without_collector():
        flow = await ended_in(way)
        await asyncio.sleep(0)
        assert flow() is None
