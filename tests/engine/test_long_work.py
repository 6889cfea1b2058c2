"""Long work runs on a few threads, by turns of the callers, and short work does not wait for it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial

import pytest

from engine.long_work import LongWork
from engine.prompt_size import LONG_PROMPT
from engine.protocol import EngineError
from tests.helpers import until


@pytest.fixture
async def work() -> AsyncIterator[LongWork]:
    work = LongWork(1)
    yield work
    work.close()


class Gate:
    """Work that says when it begins, and ends when it may."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = threading.Semaphore(0)

    def __call__(self, name: str) -> str:
        self.begun.append(name)
        assert self.may_end.acquire(timeout=60)
        return name


def begin(work: LongWork, gate: Gate, *names: str) -> list[asyncio.Task[str]]:
    """Tasks, each with long work of the caller that its name begins with."""
    loop = asyncio.get_running_loop()
    return [
        loop.create_task(work.run(partial(gate, name), size=LONG_PROMPT, caller=name[0])) for name in names
    ]


async def test_long_work_waits_for_a_thread_and_short_work_does_not(work: LongWork) -> None:
    gate = Gate()
    first, second = begin(work, gate, "a_first", "a_second")
    await until(lambda: gate.begun)
    assert await work.run(lambda: "short", size=LONG_PROMPT - 1, caller="a") == "short"
    assert gate.begun == ["a_first"]
    gate.may_end.release(2)
    assert (await first, await second) == ("a_first", "a_second")


async def test_callers_take_turns(work: LongWork) -> None:
    gate = Gate()
    tasks = begin(work, gate, "a1", "a2", "a3", "b1")
    await until(lambda: gate.begun)
    gate.may_end.release(4)
    await asyncio.gather(*tasks)
    assert gate.begun.index("b1") < gate.begun.index("a3")


async def test_nothing_begins_once_it_is_closed(work: LongWork) -> None:
    gate = Gate()
    running, waiting = begin(work, gate, "a_running", "a_waiting")
    await until(lambda: gate.begun)
    work.close()
    gate.may_end.release()
    assert await running == "a_running"
    with pytest.raises(EngineError, match="shutting down"):
        await waiting
    assert gate.begun == ["a_running"]
