"""Flows from iterators of deltas, which engines of packages yield; and iterators from flows, for tools."""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing, suppress

from engine.protocol import Delta, Deltas, Engine, GenerationRequest, Rewind
from engine.protocol.flow import FeedingEngine, Flow
from engine.streams.flow import Stage, StagedFlow


async def feed(engine: Engine, request: GenerationRequest, flow: Flow) -> None:
    """Feed the engine's deltas: the engine does so itself, or is iterated. Raises as `Engine.generate`."""
    if isinstance(engine, FeedingEngine):
        await engine.feed(request, flow)
    else:
        await feed_all(engine.generate(request), flow)


async def feed_all(deltas: Deltas, flow: Flow) -> None:
    """Feed the deltas that an iterator yields, and close it. Rewinds are sent to the iterator (see
    `Engine.generate`)."""
    rewinds: list[Rewind] = []
    flow.on_rewind = rewinds.append
    async with aclosing(deltas):
        with suppress(StopAsyncIteration):
            while not flow.is_over:
                flow.feed(await deltas.asend(rewinds.pop() if rewinds else None))
                if flow.is_full:
                    await flow.has_room()


async def feed_given(deltas: Iterable[Delta], flow: Flow) -> None:
    """Feed deltas that are there already."""
    for delta in deltas:
        flow.feed(delta)


class _Reader(Stage):
    """The last stage of a flow that is read by iteration. The flow is full until all is read."""

    __slots__ = ("_is_read", "_is_waiting", "ready", "unread")

    def __init__(self) -> None:
        self.unread: deque[Delta] = deque()
        self.ready = asyncio.Event()
        """Set if something is unread, and at the end."""
        self._is_read = asyncio.Event()
        self._is_waiting = False

    def feed(self, delta: Delta) -> None:
        self.unread.append(delta)
        self._is_read.clear()
        self.ready.set()
        if not self._is_waiting:
            self._is_waiting = True
            self.flow.wait_for(self._until_read())

    def rewind(self, rewind: Rewind) -> None:
        self.unread = deque(delta for delta in self.unread if delta.index != rewind.index)
        super().rewind(rewind)

    def read_on(self) -> None:
        """All was read, and the next delta is wanted."""
        self.ready.clear()
        self._is_read.set()

    async def _until_read(self) -> None:
        try:
            await self._is_read.wait()
        finally:
            self._is_waiting = False


async def iterated(flow: StagedFlow) -> Deltas:
    """The flow's deltas by iteration. The engine goes on once the next one is asked for, and closing the
    iterator ends the flow."""
    reader = _Reader()
    running = asyncio.get_running_loop().create_task(flow.run(reader))
    running.add_done_callback(lambda _: reader.ready.set())
    try:
        while True:
            await reader.ready.wait()
            while reader.unread:
                sent = yield reader.unread.popleft()
                if sent is not None:
                    reader.rewind(sent)
            if running.done():
                running.result()
                return
            reader.read_on()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        del running  # its error refers to this frame
