"""One request's deltas on their way from the engine to the client.

    engine ─feed─► echo ─► rewindable ─► parsers ─► gate ─► guard ─► answer
           ◄─ rewind, is_full, cancel

Each stage feeds the next one in the same turn of the event loop, and takes all that it is fed. The engine's
task feeds. Back go a rewind of an output, whether the flow is full, and the flow's end: whatever ends it, the
engine's task is cancelled. Only the stages after the gate can wait, in the request's task: a hook for what it
awaits, and the answer for its client. Meanwhile the flow is full, and the gate keeps the deltas that still
come, and joins them. Afterwards these stages catch up in fewer and longer deltas.

The gate holds at most the rest of the request's outputs. An upstream is read no further while the flow is
full. An engine in this process goes on: a paused output would keep its blocks of the cache from other
requests.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import Any

from engine.protocol import Delta, Rewind
from engine.protocol.deltas import join
from engine.protocol.flow import Flow

Feed = Callable[[Flow], Coroutine[Any, Any, None]]
"""Feeds all deltas of an answer, and returns. Cancelling it cancels the work."""


class Stage:
    """A place that deltas pass."""

    __slots__ = ("flow", "next", "source")
    flow: "StagedFlow"
    next: "Stage"
    source: "Stage | StagedFlow"
    """The stage before this one."""

    def feed(self, delta: Delta) -> None:
        """Pass a delta, changed or not, to the next stage. An error ends the flow."""
        raise NotImplementedError

    def rewind(self, rewind: Rewind) -> None:
        """Rewind an output, in answer to a delta of it. Its next deltas continue after the kept tokens."""
        self.source.rewind(rewind)

    async def close(self) -> None:
        """Called once when the flow has ended, after an error as well."""


class _Gate(Stage):
    """Keeps deltas while the stages after it wait: its source then feeds it. Open, it is passed by: its
    source feeds the next stage."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept: list[Delta] = []

    def feed(self, delta: Delta) -> None:
        self.kept.append(delta)

    def rewind(self, rewind: Rewind) -> None:
        self.kept = [delta for delta in self.kept if delta.index != rewind.index]
        self.source.rewind(rewind)

    def open(self) -> None:
        """Feed the kept deltas, until a stage waits again."""
        self.source.next = self.next
        self.kept = join(self.kept)
        while self.kept and not (self.flow.is_full or self.flow.is_finished):
            self.next.feed(self.kept.pop(0))


class StagedFlow:
    """A request's flow. `run` it once. Implements `engine.protocol.flow.Flow`."""

    next: Stage
    """The first stage."""

    def __init__(self, feed: Feed, stages: Sequence[Stage] = (), guard: Sequence[Stage] = ()) -> None:
        """`stages`: those that never wait, in order. `guard`: those after the gate."""
        self.on_first: Callable[[], None] | None = None
        self.on_rewind: Callable[[Rewind], None] | None = None
        self.on_end: Callable[[], None] | None = None
        """Called once when no delta comes any more. It may have the flow wait."""
        self.is_full = False
        self.is_over = False
        self.is_finished = False
        """Whether a stage has finished the flow: see `finish`."""
        self.num_characters = 0
        """Characters that the engine has fed, those of tokens that were rewound among them."""
        self._feed_all = feed
        self._engine: asyncio.Task[None] | None = None
        """Runs `feed`. No frame keeps it: its error refers to the frames that it passes."""
        self._gate = _Gate()
        self._stages = [*stages, self._gate, *guard]
        self._error: BaseException | None = None
        self._works: deque[Coroutine[Any, Any, None]] = deque()
        """The works that stages wait for. The first one runs."""
        self._room = asyncio.Event()
        self._sleep: asyncio.Future[None] | None = None
        """Set while `run` has nothing to do."""

    async def run(self, answer: Stage) -> None:
        """Feed all deltas to `answer`, the last stage. Raises the error of the engine, or of a stage.

        Whatever ends it, the engine's work has then ended, and all stages are closed.
        """
        stages = [*self._stages, answer]
        source: Stage | StagedFlow = self
        for stage in stages:
            stage.flow, stage.source, source.next = self, source, stage
            source = stage
        # Stages run in the caller's context, whoever feeds.
        self._in_context = copy_context().run
        self._engine = asyncio.get_running_loop().create_task(self._feed_all(self))
        self._engine.add_done_callback(self._wake)
        try:
            while True:
                while self._works:
                    await self._works[0]
                    del self._works[0]
                self.is_full = False
                self._gate.open()
                if self._works:
                    continue
                if self._error is not None:
                    raise self._error
                self._room.set()
                if self.is_over or self._engine.done():
                    if not self.is_over:
                        self._engine.result()
                    if self.on_end is None:
                        break
                    on_end, self.on_end = self.on_end, None
                    on_end()
                    continue
                self._sleep = asyncio.get_running_loop().create_future()
                try:
                    await self._sleep
                finally:
                    self._sleep = None
        finally:
            self._end()
            await self._close(stages)

    def feed(self, delta: Delta) -> None:
        if self.is_over:
            return
        self.num_characters += len(delta.text)
        try:
            if self.on_first is not None:
                on_first, self.on_first = self.on_first, None
                on_first()
            self._in_context(self.next.feed, delta)
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._error = error
            self._end()

    def rewind(self, rewind: Rewind) -> None:
        """An engine that cannot rewind ignores it."""
        if self.on_rewind is not None:
            self.on_rewind(rewind)

    def wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Await `work`, after all earlier work. Until all work has ended, the gate keeps deltas."""
        self._works.append(work)
        self.is_full = True
        self._gate.source.next = self._gate
        self._wake()

    def finish(self) -> None:
        """End the flow: no output has more text for the client. The kept deltas are dropped."""
        self.is_finished = True
        self._end()

    async def has_room(self) -> None:
        while self.is_full:
            self._room.clear()
            await self._room.wait()

    def _end(self) -> None:
        """Cancel the engine's work, also while a stage waits: a slow client must not keep it."""
        self.is_over = True
        if self._engine is not None:
            self._engine.cancel()
        self._wake()

    def _wake(self, _: object = None) -> None:
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    async def _close(self, stages: Sequence[Stage]) -> None:
        for work in self._works:
            work.close()
        try:
            if self._engine is not None and not _has_ended(self._engine):
                await asyncio.gather(self._engine, return_exceptions=True)
        finally:
            self._engine = None
            for stage in reversed(stages):
                await stage.close()
            # They refer to this flow, which would wait for a garbage collection.
            for stage in stages:
                del stage.flow, stage.source
            self._error = self.on_first = self.on_rewind = self.on_end = None


def _has_ended(task: asyncio.Task[None]) -> bool:
    """Whether the task has ended. Its error counts as seen."""
    if task.done() and not task.cancelled():
        task.exception()
    return task.done()
