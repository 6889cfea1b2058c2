"""Micro-batches: what several streams ask of a model at once, in one call on a thread of its own."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batches(Generic[Item, Result]):
    """Runs items in batches: those that are asked about while one batch runs form the next."""

    def __init__(self, run: Callable[[Sequence[Item]], Sequence[Result]], max_size: int) -> None:
        """`run` gives one result for each of up to `max_size` items, which is 1 or more."""
        self._run = run
        self._max_size = max_size
        self._waiting: deque[tuple[Item, Future[Result]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weir-batches")

    async def ask(self, items: Sequence[Item]) -> list[Result]:
        """A result for each item, in order; on any event loop. If `run` raises for a batch, its items are run
        one by one, and what it raises for one of these is raised here. Items of a call that is cancelled
        before their turn has come are not run."""
        futures: list[Future[Result]] = [Future() for _ in items]
        self._waiting += zip(items, futures, strict=True)
        for _ in items:  # one turn for each is enough, whoever's they are; a turn that finds nothing ends
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
        except Exception as error:  # noqa: BLE001 - whatever it is, it is for those who wait
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for one in batch:  # each by itself, so that only the one that fails it fails
                self._settle([one])
        else:
            for (_, future), result in pairs:
                future.set_result(result)
