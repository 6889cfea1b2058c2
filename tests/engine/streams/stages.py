"""Stages and an engine for tests of flows."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.protocol import Delta, Rewind
from engine.protocol.flow import Flow
from engine.streams.flow import Stage


class Answer(Stage):
    """The last stage: keeps what it is fed."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.is_closed = False

    @property
    def texts(self) -> list[str]:
        return [delta.text for delta in self.deltas]

    def feed(self, delta: Delta) -> None:
        self.deltas.append(delta)

    async def close(self) -> None:
        self.is_closed = True


class Passing(Stage):
    """Calls a function with each delta, and feeds it."""

    def __init__(self, see: Callable[["Passing", Delta], object]) -> None:
        self.see = see
        self.is_closed = False

    def feed(self, delta: Delta) -> None:
        self.see(self, delta)
        self.next.feed(delta)

    async def close(self) -> None:
        self.is_closed = True


class Waiting(Stage):
    """Waits for an event before it feeds a delta of some texts."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.go_on = asyncio.Event()
        self.seen: list[str] = []

    def feed(self, delta: Delta) -> None:
        self.seen.append(delta.text)
        if delta.text in self.texts:
            self.flow.wait_for(self._wait(delta))
        else:
            self.next.feed(delta)

    async def _wait(self, delta: Delta) -> None:
        await self.go_on.wait()
        self.go_on.clear()
        self.next.feed(delta)


class Pushing:
    """An engine that feeds what the test says, in the test's turns of the event loop."""

    def __init__(self) -> None:
        self.flow: Flow | None = None
        self.rewinds: list[Rewind] = []
        self.is_cancelled = False
        self._end: asyncio.Future[None] | None = None

    async def __call__(self, flow: Flow) -> None:
        self.flow, self._end = flow, asyncio.get_running_loop().create_future()
        flow.on_rewind = self.rewinds.append
        try:
            await self._end
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise

    def end(self, error: Exception | None = None) -> None:
        assert self._end is not None
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)

    def say(self, *texts: str, index: int = 0) -> None:
        assert self.flow is not None
        for text in texts:
            self.flow.feed(Delta(index=index, text=text))


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
