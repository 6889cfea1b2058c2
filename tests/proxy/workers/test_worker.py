"""A worker's first message."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hooks.workers.messages import Connection
from proxy.config import ServeSettings
from proxy.metrics import Metrics
from proxy.policies.deployment import Deployment
from proxy.workers import worker
from proxy.workers.messages import AskAll, Ready, Start, WriteMetrics
from proxy.workers.others import Others
from tests.helpers import ScriptedEngine, pipeline_of


class Service:
    """`/metrics` is asked for while the worker forgets its predecessor."""

    process = "p2"
    salt = b"salt"

    def __init__(self) -> None:
        engine = ScriptedEngine(lambda _: [])
        self.deployment = Deployment.of_one(engine, pipeline_of(), ServeSettings(), ["m"])
        self.metrics = Metrics(lambda: [self.deployment])
        self.render_metrics: Any = self.metrics.render
        self.state = self
        self.others = Others()
        self.reloads = SimpleNamespace(run=None)

    async def forget(self, process: str) -> None:
        assert process == "p1"
        async with asyncio.TaskGroup() as group:
            group.create_task(self.render_metrics())


async def test_a_question_follows_the_first_message_in_a_frame_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor reads one frame, and expects one message."""

    @asynccontextmanager
    async def running(*_: Any, **__: Any) -> AsyncIterator[tuple[Any, str]]:
        yield SimpleNamespace(service=Service(), ending=SimpleNamespace(leave=1.0)), "url"

    monkeypatch.setattr(worker, "running", running)
    monkeypatch.setattr(worker, "log_to_stderr", lambda *_: None)
    monkeypatch.setattr(worker, "leave_within", lambda _: None)
    ours, theirs = [Connection(*await asyncio.open_connection(sock=sock)) for sock in socket.socketpair()]
    start = Start(
        number=1,
        settings={"log_level": "info"},
        configuration=1,
        predecessor="p1",
        salt=None,
        folder=tmp_path,
    )
    serving = asyncio.get_running_loop().create_task(worker._serve(start, theirs))
    assert await ours.receive() == [Ready("m", "p2", b"salt")]
    assert await ours.receive() == [AskAll(0, WriteMetrics())]
    await ours.close()
    await serving
    await theirs.close()
