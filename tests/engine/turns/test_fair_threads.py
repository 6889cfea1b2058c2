"""Work runs on a few threads, by turns of the callers."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine.protocol import EngineError
from engine.protocol.prompt_size import LONG_PROMPT
from engine.turns.fair_threads import FairThreads
from engine.turns.prompt_threads import PromptThreads
from tests.helpers import until


class Room:
    """Work that says when it begins, and ends when it is told. The caller is its name's first letter."""

    def __init__(self, threads: FairThreads) -> None:
        self.threads = threads
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[str]] = {}
        self._ends: dict[str, threading.Event] = {}

    def come(self, *names: str) -> None:
        for name in names:
            end = self._ends[name] = threading.Event()

            def work(name: str = name, end: threading.Event = end) -> str:
                self.begun.append(name)
                assert end.wait(60)
                return name

            running = self.threads.run(work, name[0])
            self.tasks[name] = asyncio.get_running_loop().create_task(running, name=name)

    async def has_begun(self, *names: str) -> None:
        await until(lambda: len(self.begun) >= len(names))
        assert self.begun == list(names)

    def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()

    async def close(self) -> None:
        self.threads.close()
        self.end(*self._ends)
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


@asynccontextmanager
async def room(num_threads: int, max_per_caller: int | None = None) -> AsyncIterator[Room]:
    made = Room(FairThreads(num_threads, max_per_caller=max_per_caller))
    try:
        yield made
    finally:
        await made.close()


async def test_callers_take_turns() -> None:
    async with room(1) as work:
        work.come("a1", "a2", "a3", "b1", "c1")
        work.end(*work.tasks)
        assert await asyncio.gather(*work.tasks.values()) == ["a1", "a2", "a3", "b1", "c1"]
        assert work.begun == ["a1", "a2", "b1", "c1", "a3"]


async def test_the_caller_with_the_fewest_threads_goes_first() -> None:
    async with room(2) as work:
        work.come("a1", "a2", "a3", "b1")
        await work.has_begun("a1", "a2")
        work.end("a1")
        await work.has_begun("a1", "a2", "b1")


async def test_a_thread_is_kept_for_others() -> None:
    async with room(2, max_per_caller=1) as work:
        work.come("a1", "a2", "b1")
        await work.has_begun("a1", "b1")
        work.end("b1")
        await work.tasks["b1"]
        assert work.begun == ["a1", "b1"], "the thread stays free"
        work.end("a1")
        await work.has_begun("a1", "b1", "a2")


async def test_a_caller_that_leaves_keeps_its_thread_until_the_work_ends() -> None:  # contract 8.5
    async with room(2, max_per_caller=1) as work:
        work.come("a1", "a2", "a3")
        await work.has_begun("a1")
        for name in ("a1", "a2"):
            work.tasks[name].cancel()
            with pytest.raises(asyncio.CancelledError):
                await work.tasks[name]
        work.come("b1")
        await work.has_begun("a1", "b1")
        work.end("a1", "b1")
        await work.has_begun("a1", "b1", "a3")
        work.end("a3")
        assert await work.tasks["a3"] == "a3"


async def test_an_error_of_the_work_is_raised_and_the_thread_goes_on() -> None:
    def fail() -> None:
        raise SystemExit("no")

    async with room(1) as work:
        with pytest.raises(SystemExit, match="no"):
            await work.threads.run(fail, "a")
        work.come("a1")
        await work.has_begun("a1")


async def test_nothing_begins_once_it_is_closed() -> None:
    async with room(1) as work:
        work.come("a_running", "a_waiting")
        await work.has_begun("a_running")
        work.threads.close()
        work.come("a_late")
        for name in ("a_waiting", "a_late"):
            with pytest.raises(EngineError, match="shutting down"):
                await work.tasks[name]
        work.end("a_running")
        assert await work.tasks["a_running"] == "a_running"
        assert work.begun == ["a_running"]


@pytest.mark.parametrize(("many", "one"), [(LONG_PROMPT, LONG_PROMPT - 1), (1, 1)])
async def test_one_callers_prompts_keep_no_short_prompt_of_another_waiting(many: int, one: int) -> None:
    threads, end = PromptThreads(2), threading.Event()
    begun: list[str] = []

    def work(name: str) -> str:
        begun.append(name)
        assert name != "a" or end.wait(60)
        return name

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(threads.run(lambda: work("a"), size=many, caller="a")) for _ in range(100)]
    await until(lambda: begun == ["a", "a"])
    short = loop.create_task(threads.run(lambda: work("b"), size=one, caller="b"))
    if one < LONG_PROMPT <= many:
        assert await short == "b"
    end.set()
    await asyncio.gather(short, *tasks)
    assert begun.index("b") <= 4, "one turn of each thread at most"
    threads.close()
