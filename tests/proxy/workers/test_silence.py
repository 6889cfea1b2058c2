"""Workers that hang: they get no new request, and are killed and replaced. So are any number of dead ones."""

import asyncio
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from proxy.settings.serve import ServeSettings, load_settings
from proxy.workers.board import Board, create_board
from proxy.workers.messages import Start
from proxy.workers.reload import PrepareReload, ReloadAnswers, Reloaded
from proxy.workers.supervisor import supervised
from proxy.workers.worker_process import MAX_SILENCE, WorkerProcess
from tests.helpers import until
from tests.proxy.http.admin.test_reload import Reloadable
from tests.proxy.worker_helpers import Workers, begin, let_end, waiting, workers
from tests.proxy.workers.test_reload import HOOK, call, marks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, as Linux has it")

SOON = 8
"""Looks without a sign of a worker: enough for one that lives on a busy machine, and short to wait for."""


async def ask_until_replaced(service: Workers, replaced: "asyncio.Future[Any]") -> int:
    """Asks over new connections until the worker is replaced. Returns the number of answers."""
    num_answers = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        while not replaced.done():
            async with session.get(f"{service.url}/v1/models") as response:
                assert response.status == 200
            num_answers += 1
            await asyncio.sleep(0.01)
    await replaced
    return num_answers


async def test_a_worker_that_hangs_gets_no_new_request_and_is_replaced(tmp_path: Path) -> None:
    with workers(tmp_path, *waiting(tmp_path), max_silence=SOON) as service:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True)
        ) as session:
            streams = [await begin(session, service) for _ in range(2)]
            while len({stream.pid for stream in streams}) < 2:
                streams.append(await begin(session, service))
            number, pid = next(iter(service.pids().items()))
            os.kill(pid, signal.SIGSTOP)
            replaced = asyncio.get_running_loop().create_task(service.replaced(number, pid))
            async with asyncio.timeout(120):
                assert await ask_until_replaced(service, replaced)
            let_end(tmp_path)
            assert [await stream.ended_well() for stream in streams] == [s.pid != pid for s in streams]
        log = service.log.read_text()
        assert f"worker {number} was silent for 4 seconds and is killed; it is replaced" in log
        assert log.count("it is replaced") == 1


@pytest.mark.slow
async def test_three_of_four_that_are_stopped_or_killed_at_once_are_all_replaced(tmp_path: Path) -> None:
    """`make bench NAME=lost_workers` measures how long that takes."""
    with workers(tmp_path, "--engine", "echo", number=4) as service:
        lost = dict(list(service.pids().items())[:3])
        for pid, number in zip(lost.values(), (signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP), strict=True):
            os.kill(pid, number)
        all_replaced = asyncio.gather(*(service.replaced(number, pid) for number, pid in lost.items()))
        async with asyncio.timeout(120):
            assert await ask_until_replaced(service, all_replaced)
        assert service.log.read_text().count("was silent for 10 seconds and is killed; it is replaced") == 2


@pytest.mark.parametrize(
    "by_signal", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["by request", "by signal"]
)
async def test_a_reload_ends_though_a_worker_hangs(tmp_path: Path, by_signal: bool) -> None:
    if by_signal and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        pytest.skip("the tests run under `nohup`")
    (tmp_path / "marks.py").write_text(HOOK)
    one = Reloadable(tmp_path)
    one.write("A")
    with workers(tmp_path, "--config", str(one.file), max_silence=SOON) as service:
        pid = service.pids()[1]
        os.kill(pid, signal.SIGSTOP)
        one.write("B")
        async with asyncio.timeout(120):
            if by_signal:
                service.process.send_signal(signal.SIGHUP)
                await until(lambda: "signal: reload configuration 2" in service.log.read_text())
            else:
                status, answer = await call(service, "POST", "/admin/reload")
                assert (status, answer["number"]) == (200, 2), answer
            assert await marks(service) == {"B"}
            await service.replaced(1, pid)
            assert await marks(service) == {"B"}


HOLDS_ONE = """
import os, time
from pathlib import Path
from hooks import emit

class Marks:
    def __init__(self, mark):
        self.mark = mark
        if mark == "C":
            os._exit(1)
        if mark == "B":
            try:
                Path(__file__ + ".held").symlink_to(str(os.getpid()))
            except FileExistsError:
                return
            while not Path(__file__ + ".go").exists():
                time.sleep(0.01)
    def __call__(self, chunk):
        return emit(chunk.pending.replace("x", self.mark))
"""


async def test_a_worker_that_dies_during_a_reload_is_replaced_and_takes_the_new_configuration(
    tmp_path: Path,
) -> None:
    """One worker loads its hooks until the other one, which has loaded them, is replaced."""
    (tmp_path / "marks.py").write_text(HOLDS_ONE)
    one = Reloadable(tmp_path)
    one.write("A")
    read = partial(load_settings, ["--config", str(one.file), "--workers", "2"])
    async with asyncio.timeout(120), supervised(read(), read) as (supervisor, url):
        one.write("B")
        ended: asyncio.Future[Reloaded] = asyncio.get_running_loop().create_future()
        supervisor._start_reload(ended.set_result)
        held = tmp_path / "marks.py.held"
        asked = supervisor._questions._asked
        await until(lambda: held.is_symlink() and any(len(one.values) == 1 for one in asked.values()))
        (dies,) = (
            worker for worker in supervisor._serving.values() if str(pid_of(worker)) != os.readlink(held)
        )
        dies.kill()
        await until(lambda: dies not in supervisor._serving.values() and len(supervisor._serving) == 2)
        assert not ended.done()
        (tmp_path / "marks.py.go").touch()
        assert await ended == Reloaded()
        assert await marks(SimpleNamespace(url=url)) == {"B"}  # type: ignore[arg-type]


async def test_a_configuration_that_ends_workers_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "marks.py").write_text(HOLDS_ONE)
    one = Reloadable(tmp_path)
    one.write("A")
    read = partial(load_settings, ["--config", str(one.file), "--workers", "2"])
    async with asyncio.timeout(120), supervised(read(), read) as (supervisor, url):
        one.write("C")
        ended: asyncio.Future[Reloaded] = asyncio.get_running_loop().create_future()
        supervisor._start_reload(ended.set_result)
        assert "did not answer" in (await ended).reason
        await until(lambda: len(supervisor._serving) == 2)
        assert await marks(SimpleNamespace(url=url)) == {"A"}  # type: ignore[arg-type]


def pid_of(worker: WorkerProcess) -> int:
    assert worker.process is not None
    return worker.process.pid


def test_a_worker_is_silent_after_some_looks_in_a_row_without_a_sign(tmp_path: Path) -> None:
    start = Start(1, ServeSettings(), 1, None, None, tmp_path, ())
    worker = WorkerProcess(start, lambda *_: None)
    for sign in (1, 2):
        worker.look(sign)
        for _ in range(MAX_SILENCE - 1):
            worker.look(sign)
            assert not worker.is_silent
    worker.look(2)
    assert worker.is_silent


async def test_a_worker_shows_that_it_lives_while_hooks_are_loaded_on_its_event_loop(tmp_path: Path) -> None:
    create_board(tmp_path, 2)
    board = Board(tmp_path)

    async def load(_: Any) -> None:
        first = board.signs[1]
        while board.signs[1] == first:
            time.sleep(0.01)  # noqa: ASYNC251 - as a hook's module may

    reloads: Any = SimpleNamespace(prepare=load)
    answers = ReloadAnswers(reloads, partial(Board(tmp_path).loading, 1)).answers
    async with Board(tmp_path).living(1):
        assert await answers[PrepareReload](PrepareReload(ServeSettings())) == ""
    assert board.signs[0] == 0
