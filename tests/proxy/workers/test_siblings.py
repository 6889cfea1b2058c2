"""Questions between workers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hooks.workers.messages import Connection
from proxy.deployment.deployment import Deployment
from proxy.service.metrics import Metrics
from proxy.service.peers import Answerer, Peers
from proxy.settings.model import ModelSettings
from proxy.workers.messages import Answer, AskAll, Asked, Question
from proxy.workers.metrics import CommonMetrics
from proxy.workers.siblings import Siblings
from tests.helpers import ScriptedEngine, pipeline_of


@dataclass(frozen=True)
class Double:
    number: int


@asynccontextmanager
async def worker(
    folder: Path, answers: dict[type, Answerer] | None = None
) -> AsyncIterator[tuple[Siblings, Connection]]:
    """A worker, and the supervisor's end of its connection."""
    ours, theirs = [Connection(*await asyncio.open_connection(sock=sock)) for sock in socket.socketpair()]
    deployment = Deployment.of_one(ScriptedEngine(lambda _: []), pipeline_of(), ModelSettings(), ["m"])
    metrics = CommonMetrics(Metrics(lambda: [deployment]), folder, 1)
    siblings = Siblings(theirs, metrics, answers or {})
    listening = asyncio.get_running_loop().create_task(siblings.listen())
    yield siblings, ours
    await ours.close()
    await listening
    await theirs.close()
    metrics.close()


async def test_a_question_is_answered_by_its_type_and_a_failure_answers_nothing(tmp_path: Path) -> None:
    async def double(question: Double) -> int:
        return 100 // question.number

    async with worker(tmp_path, {Double: double}) as (_, supervisor):
        for key, number in enumerate((2, 0)):
            supervisor.send(Question(3, key, Double(number)))
            assert await supervisor.receive() == [Answer(3, key, None if number == 0 else 50)]


async def test_the_answers_of_all_that_were_asked_are_awaited(tmp_path: Path) -> None:
    async with worker(tmp_path) as (siblings, supervisor):
        asking = asyncio.get_running_loop().create_task(siblings.ask(Double(1)))
        assert await supervisor.receive() == [AskAll(0, Double(1))]
        supervisor.send(Asked(0, frozenset({2, 3})))
        supervisor.send(Answer(2, 0, "two"))
        supervisor.flush()
        supervisor.send(Answer(3, 0, "three"))
        assert await asking == ["two", "three"]


async def test_one_that_is_busy_has_no_answer(tmp_path: Path) -> None:
    async with worker(tmp_path) as (siblings, supervisor):
        asking = asyncio.get_running_loop().create_task(siblings.ask(Double(1), patience=0.2))
        await supervisor.receive()
        supervisor.send(Asked(0, frozenset({2, 3})))
        supervisor.send(Answer(2, 0, "two"))
        assert await asking == ["two"]


async def test_a_process_alone_asks_nobody() -> None:
    assert await Peers().ask(Double(1)) == []
