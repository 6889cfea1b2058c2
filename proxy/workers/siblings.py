"""A worker's messages to the other workers, through the supervisor."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from hooks.workers.messages import Connection
from proxy.service.peers import PATIENCE, Answerer, Questions
from proxy.workers.messages import Answer, AskAll, Asked, Question, WriteMetrics
from proxy.workers.metrics import CommonMetrics

logger = logging.getLogger("weir.proxy")

WRITE_INTERVAL = 1.0
"""Seconds between two copies of a worker's metrics."""


class Siblings:
    """The other workers, seen from one."""

    def __init__(
        self, connection: Connection, metrics: CommonMetrics, answers: Mapping[type, Answerer]
    ) -> None:
        """`answers`: the functions that answer a question, by its type."""
        self._connection = connection
        self._metrics = metrics
        self._answers = answers
        self._answering: set[asyncio.Task[None]] = set()
        self._questions = Questions()
        """The questions of this worker."""

    async def listen(self) -> None:
        """Copy the metrics now and then, and answer the other workers, until the supervisor closes the
        connection."""
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

    async def ask(self, question: Any, *, patience: float = PATIENCE) -> list[Any]:
        """As `Ask` says."""
        answers = await self._questions.ask(
            lambda key: self._connection.send(AskAll(key, question)), patience
        )
        return [value for value in answers.values() if value is not None]

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
            case Asked(key, numbers):
                self._questions.expect(key, numbers)
            case Answer(number, key, value):
                self._questions.take(key, number, value)

    async def _answer(self, asker: int, key: int, question: Any) -> None:
        value = None
        try:
            value = await self._answers[type(question)](question)
        except Exception as error:  # noqa: BLE001 - the asker must not wait for nothing
            logger.error("a question of another worker has no answer (%s)", type(error).__name__)
        self._connection.send(Answer(asker, key, value))
