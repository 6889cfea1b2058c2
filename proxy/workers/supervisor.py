"""The process that supervises: it starts the workers, kills those that hang, replaces those that die, and
ends all of them.

It runs no engine and no hook, and takes no connection. A worker that dies costs its own requests only. Models
on this machine run in one process more, without which the service ends.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from proxy.http.app import Ending
from proxy.network.listener import base_url, reserved_sockets
from proxy.service.peers import Questions
from proxy.service.reload import Read, ReloadError, check_reloadable, read_again
from proxy.settings.serve import ServeSettings, has_own_models
from proxy.workers.board import Board, create_board
from proxy.workers.engine_process import EngineProcess
from proxy.workers.folder import own_folder
from proxy.workers.messages import Answer, AskAll, Asked, Drain, Failed, Question, Start, StartEngines
from proxy.workers.metrics import forget_gauges
from proxy.workers.reload import (
    RELOAD_SECONDS,
    FinishReload,
    PrepareReload,
    ReloadAll,
    ReloadBySignal,
    Reloaded,
)
from proxy.workers.run import in_
from proxy.workers.worker_process import LOOK_INTERVAL, WorkerError, WorkerProcess

logger = logging.getLogger("weir.proxy")

T = TypeVar("T")

BACKOFF = 0.1
"""Seconds before the first attempt to replace a worker. They double with each that follows."""
MAX_BACKOFF = 5.0
ENGINES = "engines.sock"
"""The socket of the process that runs models, in the folder that the processes share."""
SUPERVISOR = 0
"""The supervisor's number where workers have theirs."""
MAX_FAILURES = 5
"""Attempts in a row to start a worker, while no other one serves, after which the service ends."""


class Supervisor:
    """Keeps one worker for each number from 1 to `settings.workers`."""

    def __init__(
        self,
        settings: ServeSettings,
        folder: Path,
        *,
        sockets: Sequence[Sequence[socket.socket]] = (),
        shared: Mapping[str, Any] | None = None,
        read: Read | None = None,
    ) -> None:
        """`folder`: for files of all workers. `sockets`: those of the port, then those of the operator's
        port if there is one. `stop` closes them. `shared`: options that hold for all workers, whatever
        `settings` say. `read`: reads the settings again, for a reload."""
        self.ending = Ending.within(settings.shutdown_timeout)
        self._shared = shared or {}
        self._given = settings
        """The settings as they were read, without those that the workers share."""
        self._settings = settings.model_copy(update=self._shared)
        self._configuration = 1
        self._is_draining = False
        self._sockets = sockets
        self._reloading: asyncio.Task[None] | None = None
        self._signalled: set[asyncio.Task[None]] = set()
        self._questions = Questions()
        self._read = read
        self._folder = folder
        self._engines = EngineProcess() if has_own_models(settings) else None
        """The process that runs models. None: no model is on this machine."""
        self._serving: dict[int, WorkerProcess] = {}
        self._working: list[asyncio.Task[None]] = []
        """The tasks that keep the workers. They end with an error alone."""
        self._processes: dict[int, str] = {}
        """The name of the latest process of each number."""
        self._salt: bytes | None = None
        self.model = self.names = ""
        """The name that requests may use, and all models in words. Known once a worker serves."""
        self.needs_keys = False

    async def start(self) -> None:
        """Start every worker. Raises `WorkerError` if one of them cannot start."""
        create_board(self._folder, self._settings.workers)
        if self._engines is not None:
            settings = self._settings
            await self._engines.start(
                StartEngines(settings.log_level, settings.log_format, self._folder / ENGINES)
            )
        numbers = range(1, self._settings.workers + 1)
        starting = [_task(self._start(number)) for number in numbers]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            raise
        self._working = [_task(self._keep(number)) for number in numbers]
        self._working.append(_task(self._watch()))
        if self._engines is not None:
            self._working.append(_task(self._keep_engines(self._engines)))

    async def wait(self, signalled: asyncio.Event) -> None:
        """Returns once `signalled` is set. Raises `WorkerError` if no worker serves and none can start."""
        waiting = _task(signalled.wait())
        await asyncio.wait([waiting, *self._working], return_when=asyncio.FIRST_COMPLETED)
        for working in self._working:
            if working.done():
                waiting.cancel()
                working.result()

    async def drain(self) -> None:
        """Have the workers say that they are not ready, for `drain_delay` seconds in which they serve on.
        Raises `WorkerError` as `wait` does."""
        if not (seconds := self._settings.drain_delay):
            return
        logger.info("stopping: not ready from now on, and serving for %g more seconds", seconds)
        self._is_draining = True
        await asyncio.gather(self._ask(Drain(), [*self._serving], seconds), self.wait(in_(seconds)))

    async def stop(self) -> None:
        """End all workers, within `ending`. Those that do not end are killed."""
        tasks = [*self._working, *self._signalled, *([self._reloading] if self._reloading else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in chain.from_iterable(self._sockets):
            sock.close()  # else clients would wait for a worker that does not come
        seconds = (self.ending.close + self.ending.leave) / 2
        await asyncio.gather(*(worker.stop_within(seconds) for worker in self._serving.values()))
        if self._engines is not None and self._engines.process is not None:
            await self._engines.stop()

    async def _start(self, number: int) -> None:
        """Start the worker, again if a reload comes meanwhile."""
        while True:
            start = Start(
                number,
                self._settings,
                self._configuration,
                self._processes.get(number),
                self._salt,
                self._folder,
                tuple(tuple(sock.fileno() for sock in port) for port in self._sockets),
                self._is_draining,
                None if self._engines is None else self._folder / ENGINES,
            )
            worker = WorkerProcess(start, self._take)
            ready = await worker.start()
            self.model, self.names, self.needs_keys = ready.model, ready.names, ready.needs_keys
            self._processes[number], self._salt = ready.process, ready.salt
            if start.configuration == self._configuration:
                break
            worker.kill()
            await worker.stop()
        self._serving[number] = worker
        assert worker.process is not None
        logger.info("worker %d serves (process %d)", number, worker.process.pid)

    async def _keep_engines(self, engines: EngineProcess) -> None:
        """Raises `WorkerError` once the process of the engines is gone."""
        raise WorkerError(await engines.run())

    async def _watch(self) -> None:
        """Look for the workers' signs of life."""
        board = Board(self._folder)
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            for number, worker in self._serving.items():
                worker.look(board.signs[number - 1])

    async def _keep(self, number: int) -> None:
        """Replace the worker whenever it dies. Only closing stops this, or `WorkerError`."""
        backoff = BACKOFF
        while True:
            began = time.monotonic()
            end = await self._serving[number].run()
            await self._serving.pop(number).stop()
            self._questions.forget(number)
            forget_gauges(self._folder, number)
            logger.error("worker %d %s; it is replaced", number, end)
            if time.monotonic() - began > MAX_BACKOFF:
                backoff = BACKOFF
            backoff = await self._replace(number, backoff)

    async def _replace(self, number: int, backoff: float) -> float:
        """Start the worker anew. Returns the seconds to wait before the next time."""
        failures = 0
        while True:
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF)
            try:
                await self._start(number)
            except OSError as error:
                failures += 1
                logger.error("worker %d cannot be replaced: %s", number, error)
                if failures >= MAX_FAILURES and not self._serving:
                    raise
            else:
                return backoff

    def reload_by_signal(self) -> None:
        """Let one worker ask for a reload, as the operator may: it logs and keeps how that ends."""
        signalled = _task(self._ask_for_reload())
        self._signalled.add(signalled)
        signalled.add_done_callback(self._signalled.discard)

    async def _ask_for_reload(self) -> None:
        """If the worker that is asked dies, the next one is asked."""
        while self._serving:
            number = min(self._serving, key=lambda number: self._serving[number].silence)
            if await self._ask(ReloadBySignal(), [number], patience=None):
                return

    def _start_reload(self, answer: Callable[[Reloaded], None]) -> None:
        """Replace the configuration of all workers. `answer` gets how that ends."""
        if self._reloading is not None and not self._reloading.done():
            answer(Reloaded(is_busy=True))
        else:
            self._reloading = _task(self._reload(answer))

    async def _reload(self, answer: Callable[[Reloaded], None]) -> None:
        reason = ""
        try:
            await self._replace_settings()
        except ReloadError as error:
            reason = str(error)
        answer(Reloaded(reason))

    async def _replace_settings(self) -> None:
        """All workers prepare the new configuration. If all can use it, all take it. Raises `ReloadError`."""
        if self._read is None:
            raise ReloadError("this server was not started from settings that can be read again")
        given = await read_again(self._read)
        check_reloadable(self._given, given)
        settings = given.model_copy(update=self._shared)
        try:
            await self._prepare(settings)
        except ReloadError:
            await self._ask(FinishReload(takes=False), self._serving, RELOAD_SECONDS)
            raise
        # Nothing is awaited since all workers prepared: a worker that starts later starts with these.
        self._given, self._settings = given, settings
        self._configuration += 1
        await self._ask(FinishReload(takes=True), self._serving, RELOAD_SECONDS)

    async def _prepare(self, settings: ServeSettings) -> None:
        """All workers prepare a configuration, also those that replace a worker meanwhile. Raises
        `ReloadError` unless all can use it. One that is killed because it is silent does not count."""
        prepared: set[WorkerProcess] = set()
        while asked := {n: worker for n, worker in self._serving.items() if worker not in prepared}:
            answers = await self._ask(PrepareReload(settings), asked, RELOAD_SECONDS)
            for number, worker in asked.items():
                reason = answers.get(number)
                if reason is None and not worker.is_silent:
                    reason = f"worker {number} did not answer"
                if reason:
                    raise ReloadError(reason)
                prepared.add(worker)
        if not self._serving:
            raise ReloadError("no worker serves")

    async def _ask(
        self, question: Any, numbers: Collection[int], patience: float | None
    ) -> Mapping[int, Any]:
        """The answers of the workers with these numbers, by number."""

        def send(key: int) -> None:
            self._questions.expect(key, numbers)
            for number in numbers:
                self._send(number, Question(SUPERVISOR, key, question))

        return await self._questions.ask(send, patience)

    def _take(self, number: int, message: object) -> None:
        """Pass on a worker's questions and answers. Log why it fails."""
        match message:
            case AskAll(key, ReloadAll()):
                connection = self._serving[number].connection  # its successor has asked nothing
                connection.send(Asked(key, frozenset({SUPERVISOR})))
                self._start_reload(lambda end: connection.send(Answer(SUPERVISOR, key, end)))
            case AskAll(key, question):
                peers = [other for other in self._serving if other != number]
                self._send(number, Asked(key, frozenset(peers)))
                for peer in peers:
                    self._send(peer, Question(number, key, question))
            case Failed(reason):
                logger.error("worker %d failed: %s", number, reason)
            case Answer(asker, key, value) if asker == SUPERVISOR:
                self._questions.take(key, number, value)
            case Answer(asker, key, value):
                self._send(asker, Answer(number, key, value))

    def _send(self, number: int, message: object) -> None:
        if number in self._serving:
            self._serving[number].connection.send(message)


@asynccontextmanager
async def supervised(
    settings: ServeSettings, read: Read | None = None
) -> AsyncIterator[tuple[Supervisor, str]]:
    """The supervisor of workers that serve, and their base URL. At the end all of them stop. `read`: reads
    the settings again, for a reload.

    Raises `OSError` if the port cannot be used or a worker cannot start.
    """
    sockets = [await reserved_sockets(settings.host, settings.port)]
    host, port = sockets[0][0].getsockname()[:2]
    shared: dict[str, Any] = {"port": port}
    if settings.admin_port is not None:
        sockets.append(await reserved_sockets(settings.admin_host, settings.admin_port))
        shared["admin_port"] = sockets[1][0].getsockname()[1]
    with own_folder() as folder:
        shared["state"] = settings.state or SecretStr(f"sqlite:///{folder}/state.sqlite")
        if settings.store is None and not settings.admin_key:
            shared["store"] = SecretStr(f"sqlite:///{folder}/store.sqlite")
        supervisor = Supervisor(settings, folder, sockets=sockets, shared=shared, read=read)
        try:
            await supervisor.start()
            yield supervisor, base_url(host, port, over_tls=settings.ssl_certfile is not None)
        finally:
            await supervisor.stop()


def _task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work)
