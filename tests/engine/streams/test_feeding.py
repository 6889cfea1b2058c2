"""Flows from iterators of deltas, and iterators from flows. Neither runs ahead of who takes the deltas."""

import asyncio
import weakref
from collections.abc import Callable
from contextlib import aclosing
from functools import partial

import pytest

from engine.protocol import Delta, Deltas, EngineError, GenerationRequest, Rewind
from engine.protocol.flow import FeedingEngine, Flow
from engine.streams.feeding import feed, feed_all, feed_given, iterated
from engine.streams.flow import Stage, StagedFlow
from engine.streams.rewindable import Rewindable
from engine.upstream.echo import EchoEngine
from tests.engine.streams.stages import Answer, Passing, Pushing, Waiting, without_collector
from tests.helpers import ScriptedEngine, Source, make_deltas, make_request, until


class Endless:
    """An iterator that never awaits and never ends, and counts what it yields."""

    def __init__(self) -> None:
        self.num = 0
        self.is_closed = False

    async def __call__(self) -> Deltas:
        try:
            while True:
                self.num += 1
                yield Delta(text=f"{self.num} ")
        finally:
            self.is_closed = True


def next_of(deltas: Deltas) -> "asyncio.Task[Delta]":
    return asyncio.get_running_loop().create_task(anext(deltas))


def broken(stage: Passing, delta: Delta) -> None:
    if delta.text == "3 ":
        raise ValueError("broke")


@pytest.mark.parametrize("end", ["finish", "error"])
async def test_a_source_that_never_awaits_is_stopped_and_closed(end: str) -> None:
    source = Endless()
    guards: dict[str, Callable[[Passing, Delta], object]] = {
        "finish": lambda stage, delta: stage.flow.finish() if delta.text == "3 " else None,
        "error": broken,
    }
    flow = StagedFlow(partial(feed_all, source()), guard=[Passing(guards[end])])
    if end == "error":
        with pytest.raises(ValueError, match="broke"):
            await flow.run(Answer())
    else:
        await flow.run(Answer())
    assert (source.num, source.is_closed) == (3, True)


async def test_a_source_is_not_read_while_the_flow_is_full() -> None:
    source, answer, client = Endless(), Answer(), Waiting("2 ", "4 ")
    task = asyncio.get_running_loop().create_task(
        StagedFlow(partial(feed_all, source()), guard=[client]).run(answer)
    )
    for most in (2, 4):
        await until(lambda most=most: client.seen[-1:] == [f"{most} "])
        for _ in range(5):
            await asyncio.sleep(0)
        assert source.num == most
        if most == 4:
            task.cancel()
        client.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert answer.texts == ["1 ", "2 ", "3 "]
    assert source.is_closed


async def test_the_source_gets_a_rewind_in_answer_to_its_delta() -> None:
    sent: list[Rewind | None] = []

    async def source() -> Deltas:
        sent.append((yield Delta(text="a")))
        sent.append((yield Delta(text="b")))
        sent.append((yield Delta(text="c", finish_reason="stop")))

    class Rewinding(Waiting):
        async def _wait(self, delta: Delta) -> None:
            await asyncio.sleep(0)
            self.source.rewind(Rewind(0, 0))

    def rewind(stage: Passing, delta: Delta) -> None:
        if delta.text == "a":
            stage.rewind(Rewind(0, 1))

    flow = StagedFlow(partial(feed_all, source()), [Passing(rewind)], [Rewinding("b")])
    await flow.run(answer := Answer())
    assert sent == [Rewind(0, 1), Rewind(0, 0), None]
    assert answer.texts == ["a", "c"]


async def test_the_error_of_a_source_comes_after_its_deltas() -> None:
    source = Source(make_deltas(["a", "b"], finish=False), EngineError("gone"))
    answer, waiting = Answer(), Waiting("b")
    waiting.go_on.set()
    with pytest.raises(EngineError, match="gone"):
        await StagedFlow(partial(feed_all, source(make_request())), guard=[waiting]).run(answer)
    assert answer.texts == ["a", "b"]


async def test_an_engine_feeds_by_itself_if_it_can_and_is_iterated_if_not() -> None:
    class Feeding(ScriptedEngine):
        async def feed(self, request: GenerationRequest, flow: Flow) -> None:
            flow.feed(Delta(text="fed", finish_reason="stop"))

    scripted = ScriptedEngine(lambda request: make_deltas(["iterated"]))
    feeding = Feeding(scripted.script)
    assert isinstance(feeding, FeedingEngine)
    assert not isinstance(scripted, FeedingEngine)
    for engine, text in ((feeding, "fed"), (scripted, "iterated")):
        await StagedFlow(partial(feed, engine, make_request())).run(answer := Answer())
        assert answer.texts[0] == text
    assert (feeding.requests, len(scripted.requests)) == ([], 1)


async def test_given_deltas_are_fed_as_they_are() -> None:
    given = make_deltas(["a", "b"])
    await StagedFlow(partial(feed_given, given)).run(answer := Answer())
    assert answer.deltas == given


async def test_an_iterated_flow_does_not_run_ahead_of_its_reader() -> None:
    source = Endless()
    async with aclosing(iterated(StagedFlow(partial(feed_all, source())))) as deltas:
        assert source.num == 0
        for number in range(1, 5):
            assert (await anext(deltas)).text == f"{number} "
            for _ in range(5):
                await asyncio.sleep(0)
            assert source.num == number
    assert source.is_closed


async def test_what_an_engine_pushes_while_nobody_reads_is_joined() -> None:
    engine = Pushing()
    async with aclosing(iterated(StagedFlow(engine))) as deltas:
        first = next_of(deltas)
        await until(lambda: engine.flow is not None)
        engine.say("a", "b", "c")
        assert (await first).text == "a"
        engine.say("d")
        assert (await anext(deltas)).text == "bcd"
        engine.say("e")
        engine.end()
        assert [delta.text async for delta in deltas] == ["e"]


async def test_the_error_of_an_engine_comes_to_the_reader_after_the_deltas() -> None:
    source = Source(make_deltas(["a", "b"], finish=False), EngineError("gone"))
    seen = []
    with pytest.raises(EngineError, match="gone"):
        async for delta in iterated(StagedFlow(partial(feed_all, source(make_request())))):
            seen.append(delta.text)
    assert seen == ["a", "b"]


@pytest.mark.parametrize("num_read", [0, 1])
async def test_closing_the_iterator_ends_the_flow(num_read: int) -> None:
    engine, stage = Pushing(), Passing(lambda *_: None)
    deltas = iterated(StagedFlow(engine, [stage]))
    reading = next_of(deltas)
    await until(lambda: engine.flow is not None)
    if num_read:
        engine.say("a", "b")
        await reading
        await deltas.aclose()
    else:
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert (engine.is_cancelled, stage.is_closed) == (True, True)


async def test_a_reader_s_rewind_drops_what_it_has_not_read() -> None:
    class Doubling(Stage):
        def feed(self, delta: Delta) -> None:
            self.next.feed(delta)
            self.next.feed(Delta(index=1, text="other"))
            self.next.feed(delta)

    engine = Pushing()
    async with aclosing(iterated(StagedFlow(engine, guard=[Doubling()]))) as deltas:
        first = next_of(deltas)
        await until(lambda: engine.flow is not None)
        engine.say("a", "void")
        assert (await first).text == "a"
        assert (await deltas.asend(Rewind(0, 0))).index == 1
        assert engine.rewinds == [Rewind(0, 0)]
        engine.say("b")
        engine.end()
        assert [delta.text async for delta in deltas] == ["b", "other", "b"]


async def test_a_flow_that_is_read_by_iteration_can_be_fed_to_another() -> None:
    """Rewinds pass through both."""
    sent: list[Rewind | None] = []

    async def source() -> Deltas:
        sent.append((yield make_deltas(["a"], finish=False)[0]))
        sent.append((yield make_deltas(["b"], finish=False)[0]))
        yield Delta(finish_reason="stop")

    def rewind(stage: Passing, delta: Delta) -> None:
        if delta.text == "b":
            stage.rewind(Rewind(0, 1))

    inner = iterated(StagedFlow(partial(feed_all, source()), [Rewindable()]))
    await StagedFlow(partial(feed_all, inner), guard=[Passing(rewind)]).run(answer := Answer())
    assert sent == [None, Rewind(0, 1)]
    assert answer.texts == ["a", "b", "a", ""]


@pytest.mark.parametrize("is_broken", [False, True])
async def test_an_iterated_flow_waits_for_no_garbage_collection(is_broken: bool) -> None:
    class Flow_(StagedFlow):
        """Can be referred to weakly."""

    async def source() -> Deltas:
        for delta in make_deltas(["a", "b"]):
            yield delta
        if is_broken:
            raise EngineError("gone")

    async def read() -> "weakref.ref[StagedFlow]":
        flow = Flow_(partial(feed_all, source()))
        try:
            async for _ in iterated(flow):
                pass
        except EngineError:
            assert is_broken
        return weakref.ref(flow)

    with without_collector():
        flow = await read()
        await asyncio.sleep(0)
        assert flow() is None


async def test_the_engine_of_a_tool_is_read_to_its_end() -> None:
    request = make_request(messages=({"role": "user", "content": "one two"},))
    deltas = [d async for d in iterated(StagedFlow(partial(feed, EchoEngine(), request)))]
    assert "".join(delta.text for delta in deltas) == "one two"
    assert deltas[-1].finish_reason == "stop"
