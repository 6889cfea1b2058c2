"""A worker's first message."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.protocol import DeadEngineError
from hooks.workers.messages import Connection
from proxy.deployment.deployment import Deployment
from proxy.service.metrics import Metrics
from proxy.service.peers import Peers
from proxy.settings.model import ModelSettings
from proxy.settings.serve import ServeSettings
from proxy.workers import worker
from proxy.workers.board import create_board
from proxy.workers.messages import AskAll, Failed, Ready, Start, WriteMetrics
from tests.helpers import ScriptedEngine, pipeline_of


class Service:
    """`/metrics` is asked for while the worker forgets its predecessor."""

    process = "p2"
    salt = b"salt"

    def __init__(self) -> None:
        engine = ScriptedEngine(lambda _: [])
        self.deployment = Deployment.of_one(engine, pipeline_of(), ModelSettings(), ["m"])
        self.metrics = Metrics(lambda: [self.deployment])
        self.render_metrics: Any = self.metrics.render
        self.state = self
        self.peers = Peers()
        self.reloads = SimpleNamespace(run=None)
        self.operator = SimpleNamespace(keys=SimpleNamespace(has_any=True))

    async def forget(self, process: str) -> None:
        assert process == "p1"
        async with asyncio.TaskGroup() as group:
            group.create_task(self.render_metrics())


@asynccontextmanager
async def serving(
    folder: Path, monkeypatch: pytest.MonkeyPatch, service: Service
) -> AsyncIterator[tuple[Connection, "asyncio.Task[None]"]]:
    """A worker, and the supervisor's end of its connection. Inside, the worker must end."""

    @asynccontextmanager
    async def running(*_: Any, **__: Any) -> AsyncIterator[tuple[Any, str]]:
        yield SimpleNamespace(service=service, ending=SimpleNamespace(leave=1.0)), "url"

    monkeypatch.setattr(worker, "running", running)
    monkeypatch.setattr(worker, "log_to_stderr", lambda *_: None)
    monkeypatch.setattr(worker, "leave_within", lambda _: None)
    ours, theirs = [Connection(*await asyncio.open_connection(sock=sock)) for sock in socket.socketpair()]
    create_board(folder, 1)
    start = Start(1, ServeSettings(), 1, predecessor="p1", salt=None, folder=folder, sockets=())
    task = asyncio.get_running_loop().create_task(worker._serve(start, theirs))
    yield ours, task
    await task
    await ours.close()
    await theirs.close()


async def test_a_question_follows_the_first_message_in_a_frame_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor reads one frame, and expects one message."""
    async with serving(tmp_path, monkeypatch, Service()) as (supervisor, _):
        assert await supervisor.receive() == [Ready("m", "m", "p2", b"salt", needs_keys=True)]
        assert await supervisor.receive() == [AskAll(0, WriteMetrics())]
        await supervisor.close()


async def test_a_worker_whose_model_has_failed_for_good_ends_so_that_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead() -> None:
        raise DeadEngineError("The engine has failed.")

    service = Service()
    monkeypatch.setattr(service.deployment.models["m"].engine, "check_health", dead)
    async with serving(tmp_path, monkeypatch, service) as (supervisor, task):
        await task
        heard: list[Any] = []
        while not any(isinstance(message, Failed) for message in heard):
            heard += await supervisor.receive()
        assert heard[-1] == Failed("the engine has failed; a new process is needed")
