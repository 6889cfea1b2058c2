"""A worker's messages to the other workers, through the supervisor."""

import asyncio
import itertools
from contextlib import suppress

from hooks.workers.messages import Connection
from proxy.workers.messages import Asked, Write, WriteAll, Written
from proxy.workers.metrics import CommonMetrics

WRITE_INTERVAL = 1.0
"""Seconds between two copies of a worker's metrics."""
PATIENCE = 1.0
"""Seconds to wait for the other workers' metrics. One that is busy for longer is told with its last copy."""


class Siblings:
    """The other workers, seen from one."""

    def __init__(self, connection: Connection, metrics: CommonMetrics) -> None:
        self._connection = connection
        self._metrics = metrics
        self._keys = itertools.count()
        self._missing: dict[int, set[int]] = {}
        """By key of a question: the workers that have not answered."""
        self._answered: dict[int, asyncio.Event] = {}

    async def listen(self) -> None:
        """Copy the metrics now and then, and obey the supervisor until it closes the connection."""
        writing = asyncio.get_running_loop().create_task(self._write_often())
        try:
            while True:
                for message in await self._connection.receive():
                    self._take(message)
        except EOFError:
            return
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def render_metrics(self) -> bytes:
        """The metrics of all workers, as they are now."""
        key = next(self._keys)
        answered = self._answered[key] = asyncio.Event()
        self._connection.send(WriteAll(key))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await answered.wait()
        finally:
            del self._answered[key]
            self._missing.pop(key, None)
        self._metrics.write()
        return self._metrics.render()

    async def _write_often(self) -> None:
        while True:
            self._metrics.write()
            await asyncio.sleep(WRITE_INTERVAL)

    def _take(self, message: object) -> None:
        match message:
            case Write(asker, key):
                self._metrics.write()
                self._connection.send(Written(asker, key))
            case Asked(key, numbers) if key in self._answered:
                self._missing[key] = set(numbers)
                self._check(key)
            case Written(number, key) if key in self._missing:
                self._missing[key].discard(number)
                self._check(key)

    def _check(self, key: int) -> None:
        if not self._missing[key]:
            self._answered[key].set()
