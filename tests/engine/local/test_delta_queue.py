"""Deltas that wait for a slow reader are joined, and say the same."""

import asyncio

import pytest

from engine.local.delta_queue import DeltaQueue
from engine.protocol import Delta, EngineError


async def test_a_reader_that_keeps_up_gets_each_delta_as_it_came() -> None:
    queue = DeltaQueue()
    for text in "abc":
        delta = Delta(text=text)
        queue.put(delta)
        (taken,) = await queue.get()
        assert taken is delta


async def test_a_reader_that_waits_is_woken_by_the_first() -> None:
    queue = DeltaQueue()
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(queue.get())
        await asyncio.sleep(0)
        queue.put(Delta(text="a"))
        queue.put(Delta(text="b"))
    assert reader.result() == [Delta(text="ab")]


async def test_an_error_comes_after_what_waits_and_stays() -> None:
    queue = DeltaQueue()
    queue.put(Delta(text="a"))
    queue.fail(EngineError("gone"))
    queue.put(Delta(text="b"))
    assert await queue.get() == [Delta(text="ab")]
    for _ in range(2):
        with pytest.raises(EngineError, match="gone"):
            await queue.get()


async def test_what_was_said_of_a_rewound_output_is_void_until_the_engine_has_heard_of_it() -> None:
    stream = DeltaQueue()
    stream.put(Delta(text="a"))
    stream.put(Delta(index=1, text="b"))
    stream.rewind(0)
    stream.put(Delta(text="c", finish_reason="stop"))
    stream.put(Delta(index=1, text="d"))
    assert [(d.index, d.text) for d in await stream.get()] == [(1, "bd")]
    stream.resume(0)
    stream.put(Delta(text="e"))
    assert [(d.index, d.text) for d in await stream.get()] == [(0, "e")]


async def test_a_reader_that_waits_is_handed_deltas_but_for_the_last() -> None:
    queue, taken = DeltaQueue(), list[str]()
    queue.take = lambda delta: delta.text != "c" and not taken.append(delta.text)
    queue.put(Delta(text="a"))
    assert await queue.get() == [Delta(text="a")]
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(queue.get())
        await asyncio.sleep(0)
        queue.put(Delta(text="b"))
        queue.put(Delta(text="c"))
        queue.put(Delta(text="d"))
        queue.put(Delta(text="e"))
    # What takes knows what it did not take: this delta comes as it was.
    assert (taken, reader.result()) == (["b"], [Delta(text="c"), Delta(text="de")])
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(queue.get())
        await asyncio.sleep(0)
        queue.put(last := Delta(text="f", finish_reason="stop"))
    assert (taken, reader.result()) == (["b"], [last])


async def test_a_reader_that_was_cancelled_is_handed_nothing() -> None:
    queue, taken = DeltaQueue(), list[Delta]()
    queue.take = lambda delta: not taken.append(delta)
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(queue.get())
        await asyncio.sleep(0)
        reader.cancel()
    queue.put(Delta(text="a"))
    assert taken == []
