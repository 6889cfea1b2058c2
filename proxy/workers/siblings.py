"""A worker's messages to the other workers, through the supervisor."""

import asyncio
import itertools
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hooks.workers.messages import Connection
from proxy.workers.messages import Answer, AskAll, Asked, Question, WriteMetrics
from proxy.workers.metrics import CommonMetrics
from proxy.workers.others import Answerer

logger = logging.getLogger("weir.proxy")

WRITE_INTERVAL = 1.0
"""Seconds between two copies of a worker's metrics."""
PATIENCE = 1.0
"""Seconds to wait for the other workers' answers. One that is busy for longer has none; of its metrics, the
last copy counts."""


class Siblings:
    """The other workers, seen from one."""

    def __init__(
        self, connection: Connection, metrics: CommonMetrics, answers: Mapping[type, Answerer]
    ) -> None:
        """`answers`: what this worker does with a question, by its type."""
        self._connection = connection
        self._metrics = metrics
        self._answers = answers
        self._answering: set[asyncio.Task[None]] = set()
        self._keys = itertools.count()
        self._asked: dict[int, _Asked] = {}
        """By the key of a question of this worker."""

    async def listen(self) -> None:
        """Copy the metrics now and then, and answer the others until the supervisor closes the connection."""
        writing = asyncio.get_running_loop().create_task(self._write_often())
        try:
            while True:
                for message in await self._connection.receive():
                    self._take(message)
        except EOFError:
            return
        finally:
            tasks = [writing, *self._answering]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, question: Any) -> list[Any]:
        """The others' answers, within `PATIENCE`. One that failed to answer has none."""
        key = next(self._keys)
        asked = self._asked[key] = _Asked()
        self._connection.send(AskAll(key, question))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await asked.is_complete.wait()
        finally:
            del self._asked[key]
        return [value for value in asked.values if value is not None]

    async def render_metrics(self) -> bytes:
        """The metrics of all workers, as they are now."""
        await self.ask(WriteMetrics())
        self._metrics.write()
        return self._metrics.render()

    async def _write_often(self) -> None:
        while True:
            self._metrics.write()
            await asyncio.sleep(WRITE_INTERVAL)

    def _take(self, message: object) -> None:
        match message:
            case Question(asker, key, WriteMetrics()):
                self._metrics.write()
                self._connection.send(Answer(asker, key, None))
            case Question(asker, key, question):
                task = asyncio.get_running_loop().create_task(self._answer(asker, key, question))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case Asked(key, numbers) if key in self._asked:
                self._asked[key].expect(numbers)
            case Answer(number, key, value) if key in self._asked:
                self._asked[key].take(number, value)

    async def _answer(self, asker: int, key: int, question: Any) -> None:
        value = None
        try:
            value = await self._answers[type(question)](question)
        except Exception as error:  # noqa: BLE001 - the asker must not wait for nothing
            logger.error("a question of another worker has no answer (%s)", type(error).__name__)
        self._connection.send(Answer(asker, key, value))


class _Asked:
    """A question of this worker, and its answers so far."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.is_complete = asyncio.Event()
        self._missing: set[int] = set()

    def expect(self, numbers: frozenset[int]) -> None:
        self._missing = set(numbers)
        self._check()

    def take(self, number: int, value: Any) -> None:
        self.values.append(value)
        self._missing.discard(number)
        self._check()

    def _check(self) -> None:
        if not self._missing:
            self.is_complete.set()
