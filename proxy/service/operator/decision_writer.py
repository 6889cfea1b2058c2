"""Writes decisions, the hooks' work in each hour and each day's usage to the store. No request waits."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice

from proxy.deployment.deployment import Policy
from proxy.service.operator.decision_work import WorkCounts
from proxy.service.usage import UsageCounts
from proxy.settings.storage import DecisionOptions
from proxy.storage.operator import decisions, hook_hours, usage
from proxy.storage.operator.hook_hours import HookWork
from proxy.storage.operator.store import Store
from proxy.storage.query import StateError
from proxy.storage.records import DecisionRecord
from proxy.telemetry.feed import DecisionFeed

logger = logging.getLogger("weir.decisions.store")

MAX_WAITING = 10_000
"""Decisions that may wait to be written. One that finds more waiting is lost, and counted."""
BATCH = 500
"""Most decisions in one transaction."""
GATHER = 0.05
"""Seconds in which decisions gather for a transaction."""
INTERVAL = 10.0
"""Seconds between two times that the hooks' work and the usage are written."""
PRUNING = 60.0
"""Seconds between two times that old rows are removed."""
RETRY = 1.0
"""Seconds between a failed write and the next try."""
MAX_IN_MEMORY = 500
"""Decisions that a store in memory keeps."""
REMIND = 60.0
"""Seconds between two log messages that writing fails."""
DAY = 24 * 60 * 60


class DecisionWriter:
    """Subscribes to the decisions of all requests from `start` to `aclose`."""

    def __init__(
        self,
        store: Store,
        feed: DecisionFeed,
        options: DecisionOptions,
        policies: Callable[[], Iterable[Policy]],
        used: UsageCounts,
    ) -> None:
        """`policies`: those that requests run under now. `used`: the usage that is to be written."""
        self._store = store
        self._feed = feed
        self._max_age = options.decisions_max_age * DAY
        self._max_rows = options.decisions_max_rows if store.is_kept else MAX_IN_MEMORY
        self._pruning = PRUNING if store.is_kept else 0.0
        self._work = WorkCounts(policies, feed)
        self._usage = used
        self._waiting: deque[DecisionRecord] = deque()
        self._num_lost = 0
        self._is_changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        self._is_closing = False
        self._reminded = -REMIND
        self._worked = 0.0
        self._pruned = 0.0

    def start(self) -> None:
        """Does nothing if it has started."""
        if self._running is not None:
            return
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        end = self._feed.subscribe(self.put)
        try:
            while not self._is_closing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL):
                        await self._is_changed.wait()
                await asyncio.sleep(GATHER)
                try:
                    await self._write_all()
                except StateError as error:
                    self._remind(error)
                    await asyncio.sleep(RETRY)
                    self._is_changed.set()
        finally:
            end()

    async def aclose(self) -> None:
        """Write the decisions that wait. Raises `StateError`."""
        if self._running is None:
            return
        # A write that runs is not cancelled: its decisions would be written twice.
        self._is_closing = True
        self._is_changed.set()
        await self._running
        try:
            await self.flush()
        finally:
            if self._waiting:
                logger.error("%d decisions could not be written", len(self._waiting))

    async def flush(self) -> None:
        """Returns once all decisions so far are written. Raises `StateError`."""
        self._worked = 0.0
        await self._write_all()

    def put(self, record: DecisionRecord) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._num_lost += 1
            self._remind("they come faster than they can be written")
            return
        self._waiting.append(record)
        self._is_changed.set()

    async def _write_all(self) -> None:
        async with self._writing:
            self._is_changed.clear()
            while batch := list(islice(self._waiting, BATCH)):
                await self._store.run(decisions.add(batch), alone=False)
                for _ in batch:
                    self._waiting.popleft()
            if self._num_lost:
                logger.error("%d decisions are lost", self._num_lost)
                self._num_lost = 0
            now = time.monotonic()
            if now - self._worked >= INTERVAL:
                if work := self._work.take():
                    await self._keep(work)
                for report, used in self._usage.reports():
                    await self._store.run(usage.add(time.time(), report, used))
                self._worked = now
            if now - self._pruned >= self._pruning:
                before = time.time() - self._max_age
                await self._store.run(decisions.prune(before, self._max_rows))
                await self._store.run(hook_hours.prune(before))
                await self._store.run(usage.prune(time.time()))
                self._pruned = now

    async def _keep(self, work: list[HookWork]) -> None:
        try:
            await self._store.run(hook_hours.add(time.time(), work))
        except StateError:
            self._work.give_back()
            raise

    def _remind(self, reason: object) -> None:
        if time.monotonic() - self._reminded >= REMIND:
            self._reminded = time.monotonic()
            logger.error(
                "decisions cannot be written: %s (%d wait, %d are lost)",
                *(reason, len(self._waiting), self._num_lost),
            )
