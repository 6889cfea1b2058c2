"""The deltas that an engine has produced and a reader has not taken yet. It lives on one event loop.

A reader that keeps up gets each delta as it came. For a slow reader (a guard at work, a client that reads
slowly) waiting deltas are joined. The reader then catches up in fewer and longer deltas: hooks are called
less often, and fewer events are written. So no delta is handed over while the event loop is behind the
engine.

The queue holds at most the rest of the request's outputs, so `max_tokens` bounds it. Generation does not
pause for a slow reader. A paused output would keep its blocks of the cache from other requests for as long as
the reader likes, while an output that runs to its end frees them.
"""

import asyncio

from engine.protocol import Delta, EngineError, RequestError, Take
from engine.protocol.deltas import join


class DeltaQueue:
    """The deltas of one request, for one reader."""

    def __init__(self) -> None:
        self._untaken: list[Delta] = []
        """The delta that `take` did not take, if the reader does not have it yet. It is never joined."""
        self._waiting: list[Delta] = []
        self._error: EngineError | RequestError | None = None
        self._void: set[int] = set()
        self._is_ready = asyncio.Event()
        self._is_read = False
        """Whether the reader waits for a delta."""
        self.take: Take | None = None
        """Gets deltas at once, while the reader waits."""

    def put(self, delta: Delta, *, may_hand_over: bool = True) -> None:
        """`may_hand_over`: False if the event loop has later deltas to put."""
        if delta.index in self._void:
            return
        # A reader that is woken has a delta to take.
        may_hand_over = may_hand_over and self._is_read and not (self._untaken or self._waiting)
        if may_hand_over and self.take is not None and delta.finish_reason is None:
            if self.take(delta):
                return
            self._untaken.append(delta)
        else:
            self._waiting.append(delta)
        self._is_ready.set()

    def rewind(self, index: int) -> None:
        """Drop the output's deltas until `resume`: the engine does not know of the rewind yet."""
        self._void.add(index)
        self._untaken = [delta for delta in self._untaken if delta.index != index]
        self._waiting = [delta for delta in self._waiting if delta.index != index]

    def resume(self, index: int) -> None:
        """The engine has rewound the output: its next deltas are valid again."""
        self._void.discard(index)

    def fail(self, error: EngineError | RequestError) -> None:
        """Raise `error` in the reader, once it has taken what waits."""
        self._error = error
        self._is_ready.set()

    async def get(self) -> list[Delta]:
        """Wait for a delta, and take all that wait, joined: none if a rewind dropped them. Raises the error
        of `fail` once no delta is left."""
        self._is_read = True
        try:
            await self._is_ready.wait()
        finally:
            self._is_read = False
        got = self._untaken + join(self._waiting)
        if not got and self._error is not None:
            raise self._error
        self._untaken, self._waiting = [], []
        if self._error is None:
            self._is_ready.clear()
        return got
