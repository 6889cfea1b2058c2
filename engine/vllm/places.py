"""The order in which outputs go to vLLM: callers take turns. Loads no vLLM.

vLLM itself serves in the order of arrival, or by priority.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import NamedTuple

from engine.turns.fair_queue import FairQueue


class _Waiting(NamedTuple):
    caller: str
    priority: int
    place: asyncio.Future[None]


class FairPlaces:
    """Lets a number of outputs into vLLM at once. Callers with the fewest inside go first, then by turns.

    An output that is cancelled while it waits takes no place.
    """

    def __init__(self, value: int, *, max_per_caller: int | None = None) -> None:
        """`max_per_caller`: outputs of one caller that are in at once; None: as many as `value`."""
        self._num_free = value
        self._max_per_caller = max_per_caller or value
        self._inside: Counter[str] = Counter()
        self._waiting: FairQueue[_Waiting] = FairQueue(key=attrgetter("priority"))

    @asynccontextmanager
    async def turn(self, caller: str, priority: int = 0) -> AsyncIterator[None]:
        """Wait for a place, and hold it inside the context. Lower priorities go first."""
        await self._enter(caller, priority)
        try:
            yield
        finally:
            self._leave(caller)

    async def _enter(self, caller: str, priority: int) -> None:
        one = _Waiting(caller, priority, asyncio.get_running_loop().create_future())
        self._waiting.add(caller, one)
        self._let_in()
        try:
            await one.place
        except asyncio.CancelledError:
            self._waiting.remove(caller, one)
            if not one.place.cancelled():
                self._leave(caller)  # it was let in just before
            raise

    def _leave(self, caller: str) -> None:
        self._num_free += 1
        self._inside[caller] -= 1
        if not self._inside[caller]:
            del self._inside[caller]
        self._let_in()

    def _let_in(self) -> None:
        while self._num_free and (one := self._waiting.first(self._load)) is not None:
            self._waiting.dequeue(one.caller, one)
            if not one.place.cancelled():
                self._num_free -= 1
                self._inside[one.caller] += 1
                one.place.set_result(None)

    def _load(self, caller: str, one: "_Waiting") -> tuple[int, int] | None:
        inside = self._inside[caller]
        return (one.priority, inside) if inside < self._max_per_caller else None
