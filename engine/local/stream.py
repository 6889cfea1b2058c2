"""One request's deltas, from the steps of an engine in this process to the request's flow.

When the event loop is behind the engine, the deltas of several steps are joined. The flow then catches up in
fewer and longer deltas: hooks are called less often, and fewer events are written.
"""

import asyncio

from engine.protocol import Delta, EngineError, RequestError
from engine.protocol.deltas import join
from engine.protocol.flow import Flow


class LocalStream:
    """It lives on one event loop."""

    def __init__(self, flow: Flow, num_outputs: int) -> None:
        self._flow = flow
        self._num_outputs = num_outputs
        self._unfed: list[Delta] = []
        self._finished: set[int] = set()
        self._void: set[int] = set()
        """Outputs that the engine does not know to be rewound."""
        self._error: EngineError | RequestError | None = None
        self._may_end = asyncio.Event()

    def put(self, delta: Delta) -> None:
        """Keep a delta for `feed`."""
        if delta.index not in self._void:
            self._unfed.append(delta)

    def feed(self) -> None:
        """Feed what was put."""
        if len(self._unfed) > 1:
            self._unfed = join(self._unfed)
        while self._unfed:
            delta = self._unfed.pop(0)
            if delta.finish_reason is not None:
                self._finished.add(delta.index)
                self._may_end.set()
            self._flow.feed(delta)

    def rewind(self, index: int) -> None:
        """Drop the output's deltas until `resume`: the engine does not know of the rewind yet."""
        self._void.add(index)
        self._finished.discard(index)
        self._unfed = [delta for delta in self._unfed if delta.index != index]

    def resume(self, index: int) -> None:
        """The engine has rewound the output: its next deltas are valid again."""
        self._void.discard(index)

    def fail(self, error: EngineError | RequestError) -> None:
        """Raise `error` in `wait`."""
        self._error = error
        self._may_end.set()

    async def wait(self) -> None:
        """Wait until every output has ended, and the flow has taken all of it: until then, a hook may rewind
        an output. Raises the error of `fail`."""
        while len(self._finished) < self._num_outputs:
            await self._may_end.wait()
            self._may_end.clear()
            if self._error is not None:
                self.feed()
                raise self._error
            if self._flow.is_full and len(self._finished) == self._num_outputs:
                await self._flow.has_room()
