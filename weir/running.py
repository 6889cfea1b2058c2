"""Runs guards where a program is: in an event loop, or without one.

Plain hooks need no event loop. They run in the thread that asks, one call at a time (contract 8.12). Async
hooks belong to one event loop: that of the program, or one of their own in a thread.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ParamSpec, Protocol, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class Runner(Protocol):
    """Carries out what hooks do, and returns its result."""

    def run(self, work: Callable[P, Awaitable[T]], *args: P.args, **others: P.kwargs) -> T:
        """Without an event loop. Raises `RuntimeError` where that cannot be."""

    async def wait(self, work: Callable[P, Awaitable[T]], *args: P.args, **others: P.kwargs) -> T:
        """In an event loop."""

    def close(self) -> None:
        """Nothing runs any more."""


class PlainRunner:
    """For hooks that await nothing."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def run(self, work: Callable[P, Awaitable[T]], *args: P.args, **others: P.kwargs) -> T:
        with self._lock:
            return finished(work(*args, **others))

    async def wait(self, work: Callable[P, Awaitable[T]], *args: P.args, **others: P.kwargs) -> T:
        return self.run(work, *args, **others)

    def close(self) -> None:
        pass


def finished(awaitable: Awaitable[T]) -> T:
    """The result of an awaitable that waits for nothing. Raises `RuntimeError` if it waits."""
    steps = awaitable.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    steps.close()
    raise RuntimeError("a plain hook does not wait")


class LoopRunner:
    """For hooks of which one is async. The first use chooses their event loop."""

    def __init__(self, start: Callable[[], Awaitable[None]]) -> None:
        """`start`: comes before the first use, in the event loop."""
        self._start = start
        self._is_started = False
        self._starting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        """Runs the loop, if it is their own."""
        self._choosing = threading.Lock()

    def run(self, work: Callable[P, Awaitable[T]], *args: P.args, **others: P.kwargs) -> T:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise TypeError("one of these hooks is async: in an event loop, use the async form")
        with self._choosing:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="weir-guards", daemon=True
                )
                self._thread.start()
        if self._thread is None:
            raise _of_another_loop()
        return asyncio.run_coroutine_threadsafe(self._run(work, *args, **others), self._loop).result()

    async def wait(self, work: Callable[P, Awaitable[T]], *args: P.args, **others: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        with self._choosing:
            self._loop = self._loop or loop
        if self._loop is not loop:
            raise _of_another_loop()
        return await self._run(work, *args, **others)

    async def _run(self, work: Callable[P, Awaitable[T]], *args: P.args, **others: P.kwargs) -> T:
        if not self._is_started:
            async with self._starting:
                if not self._is_started:
                    await self._start()
                    self._is_started = True
        return await work(*args, **others)

    def close(self) -> None:
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._thread = None


def _of_another_loop() -> RuntimeError:
    return RuntimeError(
        "one of these hooks is async, and was used in another event loop: make Guards for each loop"
    )
