"""`weir serve --workers`: real processes, which start, serve, die and end."""

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import sys
from pathlib import Path

import aiohttp
import pytest

from proxy.settings.serve import ServeSettings
from proxy.workers import supervisor as module
from proxy.workers.supervisor import WorkerError, supervised
from tests.processes import WAIT_LIMIT
from tests.proxy.service.test_metrics import Samples
from tests.proxy.worker_helpers import (
    CHATS,
    Stream,
    Workers,
    asker,
    begin,
    is_running,
    let_end,
    recorded,
    waiting,
    workers,
)
from tests.weir import run_weir

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, as Linux has it")

HOOK = """
from pathlib import Path
from hooks import emit

class NeedsFile:
    def __init__(self, file):
        if not Path(file).exists():
            raise ValueError("no such phrase list")
    def __call__(self, chunk):
        return emit(chunk.pending)
"""


def needs_file(folder: Path) -> dict[str, object]:
    """A hook that cannot be built without a file in the folder."""
    (folder / "guards.py").write_text(HOOK)
    return {"path": f"{folder}/guards.py:NeedsFile", "args": {"file": str(folder / "phrases")}}


def one_connection_each() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))


async def test_a_worker_that_is_killed_costs_its_own_requests_and_is_replaced(tmp_path: Path) -> None:
    with workers(tmp_path, *waiting(tmp_path)) as service:
        async with one_connection_each() as session:
            streams = [await begin(session, service) for _ in range(2)]
            while len({stream.pid for stream in streams}) < 2:
                streams.append(await begin(session, service))
            number, pid = next(iter(service.pids().items()))
            os.kill(pid, signal.SIGKILL)
            await service.replaced(number, pid)
            more = [await begin(session, service)]
            while service.pids()[number] not in {stream.pid for stream in more}:
                more.append(await begin(session, service))
            let_end(tmp_path)
            assert [await stream.ended_well() for stream in streams] == [s.pid != pid for s in streams]
            assert all([await stream.ended_well() for stream in more])
        assert f"worker {number} was killed by signal 9; it is replaced" in service.log.read_text()


async def test_a_worker_is_replaced_though_the_state_does_not_answer(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    options = ("--state", f"sqlite:///{file}")
    with workers(tmp_path, *recorded(tmp_path), *options) as service, sqlite3.connect(file) as database:
        database.execute("BEGIN EXCLUSIVE")
        number, pid = next(iter(service.pids().items()))
        os.kill(pid, signal.SIGKILL)
        await service.replaced(number, pid)
        with asker(service, service.pids()[number]) as ask:
            assert ask("GET", "/ready")[0] == 200
            assert ask("GET", "/v1/responses/resp_1")[0] == 503
            database.rollback()
            while ask("GET", "/v1/responses/resp_1")[0] != 404:
                pass


def scrape(service: Workers, pid: int) -> Samples:
    """The metrics that the worker with this process tells."""
    with asker(service, pid) as ask:
        status, body = ask("GET", "/metrics")
        assert status == 200
        return Samples(body.decode())


def scrape_until(service: Workers, pid: int, *, running: int, begun: int) -> Samples:
    """The same, once all workers tell of so many requests. One that is late is not waited for."""
    while True:
        samples = scrape(service, pid)
        counted = samples.count("weir_time_to_first_token_seconds", endpoint="chat")
        if (samples("weir_num_requests_running"), counted) == (running, begun):
            return samples


async def test_metrics_add_up_before_and_after_a_worker_is_killed(tmp_path: Path) -> None:
    with workers(tmp_path, *recorded(tmp_path, seconds=3600, num_words=2)) as service:
        async with one_connection_each() as session:
            streams: list[Stream] = []
            while len({stream.pid for stream in streams}) < 2:
                streams.append(await begin(session, service))
            (number, pid), (_, other) = service.pids().items()
            for one in (pid, other):
                scrape_until(service, one, running=len(streams), begun=len(streams))
            os.kill(pid, signal.SIGKILL)
            await service.replaced(number, pid)
            for one in service.pids().values():
                left = [stream for stream in streams if stream.pid != pid]
                samples = scrape_until(service, one, running=len(left), begun=len(streams))
                assert samples("weir_time_to_first_token_seconds_bucket", endpoint="chat", le="+Inf") == len(
                    streams
                )
            for stream in streams:
                stream.response.close()


async def test_a_signal_to_the_whole_group_lets_streams_finish(tmp_path: Path) -> None:
    """A hang-up, which asks for a reload, is in the way of nobody. The log tells which worker says what."""
    options = ("--hook", "pii", "--log-level", "debug")
    with workers(tmp_path, *waiting(tmp_path), *options) as service:
        pids = service.pids()
        assert len(pids) == 2
        async with one_connection_each() as session:
            streams = [await begin(session, service) for _ in range(4)]
            os.killpg(service.process.pid, signal.SIGHUP)
            os.killpg(service.process.pid, signal.SIGTERM)
            await service.drains()
            let_end(tmp_path)
            assert all([await stream.ended_well() for stream in streams])
        assert await asyncio.to_thread(service.process.wait, WAIT_LIMIT) == 0
        assert not any(map(is_running, pids.values()))
        log = service.log.read_text()
        assert "ERROR" not in log
        assert {"worker 1 weir.hooks", "worker 2 weir.hooks"} <= set(re.findall(r"worker \d weir.hooks", log))


async def test_a_stream_that_does_not_finish_is_told_so_in_time(tmp_path: Path) -> None:
    timeout = ("--shutdown-timeout", "4")
    with workers(tmp_path, *recorded(tmp_path, seconds=3600, num_words=3600), *timeout) as service:
        async with one_connection_each() as session:
            stream = await begin(session, service)
            service.process.send_signal(signal.SIGTERM)
            assert b"event: error" in await stream.response.read()
        assert await asyncio.to_thread(service.process.wait, WAIT_LIMIT) == 0


def test_no_key_is_on_a_worker_s_command_line_or_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_API_KEY", "a-secret-key")
    with workers(tmp_path, "--engine", "echo") as service:
        for pid in service.pids().values():
            with asker(service, pid) as ask:
                assert ask("GET", "/v1/models")[0] == 401
            for file in ("cmdline", "environ"):
                assert b"a-secret-key" not in Path(f"/proc/{pid}/{file}").read_bytes()


async def test_a_supervisor_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    with workers(tmp_path, "--engine", "echo") as service:
        service.process.kill()
        service.process.wait(WAIT_LIMIT)
        while any(map(is_running, service.pids().values())):
            await asyncio.sleep(0.01)


def ended(*options: str) -> tuple[int, str]:
    """The exit status and the errors of a service that does not start."""
    done = run_weir("serve", "--workers", "2", "--engine", "echo", *options)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_port_in_use_is_told_before_any_worker_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, error = ended("--port", str(taken.getsockname()[1]))
    assert status == 1
    assert "in use" in error
    assert "worker" not in error


async def test_two_services_do_not_share_a_port(tmp_path: Path) -> None:
    with workers(tmp_path, "--engine", "echo") as service:
        status, error = await asyncio.to_thread(ended, "--port", service.url.rpartition(":")[2])
        assert (status, "in use" in error) == (1, True)
        async with aiohttp.ClientSession() as session:
            body = {"messages": [{"role": "user", "content": "Hi"}]}
            async with session.post(service.url + CHATS, json=body) as response:
                assert response.status == 200


def test_a_service_that_cannot_start_tells_its_reason_once(tmp_path: Path) -> None:
    (tmp_path / "weir.json").write_text(json.dumps({"hooks": [needs_file(tmp_path)]}))  # JSON is YAML
    status, error = ended("--port", "0", "--config", str(tmp_path / "weir.json"))
    assert status == 1
    assert error.count("no such phrase list") == 1
    assert "\nweir serve: " in error


async def test_a_service_without_workers_ends_with_their_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FAILURES", 1)
    (tmp_path / "phrases").touch()
    settings = ServeSettings(engine="echo", port=0, workers=2, hooks=[needs_file(tmp_path)])
    async with supervised(settings) as (supervisor, _):
        (tmp_path / "phrases").unlink()
        for worker in supervisor._serving.values():
            worker.kill()
        with pytest.raises(WorkerError, match="no such phrase list"):
            await supervisor.wait(asyncio.Event())
