"""Micro-batches: one model call, on a separate thread, for the questions of several streams."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batches(Generic[Item, Result]):
    """Runs items in batches. The items that arrive while a batch runs form the next batch."""

    def __init__(self, run: Callable[[Sequence[Item]], Sequence[Result]], max_size: int) -> None:
        """`run`: returns one result for each item. `max_size`: most items in one call of `run`, 1 or more."""
        self._run = run
        self._max_size = max_size
        self._waiting: deque[tuple[Item, Future[Result]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weir-batches")

    async def ask(self, items: Sequence[Item]) -> list[Result]:
        """Return a result for each item, in order; works on any event loop. If `run` raises for a batch, the
        items run one by one, and each call gets its own item's error. Cancelling withdraws waiting items."""
        futures: list[Future[Result]] = [Future() for _ in items]
        self._waiting += zip(items, futures, strict=True)
        for _ in items:  # a turn may run items of other calls; a turn that finds no item ends
            self._thread.submit(self._take_turn)
        return await asyncio.gather(*map(asyncio.wrap_future, futures))

    def _take_turn(self) -> None:
        batch: list[tuple[Item, Future[Result]]] = []
        while self._waiting and len(batch) < self._max_size:
            item, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                batch.append((item, future))
        if batch:
            self._settle(batch)

    def _settle(self, batch: Sequence[tuple[Item, Future[Result]]]) -> None:
        try:
            results = self._run([item for item, _ in batch])
            pairs = list(zip(batch, results, strict=True))
        except Exception as error:  # noqa: BLE001 - the callers that wait get any error
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for one in batch:  # one by one, so that only the failing item gets the error
                self._settle([one])
        else:
            for (_, future), result in pairs:
                future.set_result(result)
