"""A process that serves, beside peers that serve the same port. The supervisor starts and ends it."""

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from functools import partial

from engine.protocol import DeadEngineError
from hooks.workers.messages import Connection
from hooks.workers.process import inherited
from proxy.deployment.start_errors import START_ERRORS, start_error
from proxy.http.door import needs_keys
from proxy.network.listener import SharedPort
from proxy.service.service import Service
from proxy.storage.query import StateError
from proxy.telemetry.logs import log_to_stderr
from proxy.workers.board import Board
from proxy.workers.event_loop import run
from proxy.workers.messages import Drain, Failed, Ready, Start
from proxy.workers.metrics import CommonMetrics
from proxy.workers.reload import ReloadAnswers, reload_all
from proxy.workers.run import ENGINE_FAILED, running, until_over
from proxy.workers.siblings import Siblings
from proxy.workers.signals import leave_within


def main() -> None:
    run(_connect_and_serve())


async def _connect_and_serve() -> None:
    """Serve until the supervisor closes the connection."""
    connection = await inherited()
    with contextlib.suppress(EOFError):
        (start,) = await connection.receive()
        await _serve(start, connection)
    await connection.close()


async def _drain(service: Service, _: Drain) -> None:
    service.is_draining = True


def _inherited_sockets(descriptors: Iterable[int]) -> list[socket.socket]:
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    for sock in sockets:
        sock.set_inheritable(False)
        sock.setblocking(False)
    return sockets


async def _serve(start: Start, connection: Connection) -> None:
    settings = start.settings
    log_to_stderr(settings.log_level, settings.log_format, f"worker {start.number}")
    board, index = Board(start.folder), start.number - 1
    shared = [SharedPort(_inherited_sockets(port), board.connections, index) for port in start.sockets]
    try:
        serving = running(settings, shared=shared, salt=start.salt, engine_process=start.engine_process)
        async with board.living(index), serving as (server, _):
            service = server.service
            service.deployment.number = start.configuration
            service.is_draining = start.is_draining
            metrics = CommonMetrics(service.metrics, start.folder, start.number)
            service.peers.answers.update(
                ReloadAnswers(service.reloads, partial(board.loading, index)).answers
            )
            service.peers.answers[Drain] = partial(_drain, service)
            siblings = Siblings(connection, metrics, service.peers.answers)
            model, names = service.deployment.default_name, service.deployment.names_in_words
            ready = Ready(model, names, service.process, service.state.salt, needs_keys(service))
            connection.send(ready)
            connection.flush()  # the supervisor expects this message alone, before any question
            service.render_metrics = siblings.render_metrics
            service.peers.ask = siblings.ask
            service.reloads.run = partial(reload_all, siblings.ask)
            if start.predecessor is not None:
                with contextlib.suppress(StateError):  # its lease will end
                    await service.state.forget(start.predecessor)
            over = asyncio.Event()
            listening = asyncio.get_running_loop().create_task(siblings.listen())
            listening.add_done_callback(lambda _: over.set())
            try:
                has_failed = await until_over(over, lambda: service.deployment.check_alive())
                if not has_failed:
                    listening.result()
            finally:
                leave_within(server.ending.leave)
                listening.cancel()
                await asyncio.wait([listening])
        metrics.close()
        if has_failed:
            raise DeadEngineError(ENGINE_FAILED)
    except START_ERRORS as error:
        connection.send(Failed(start_error(error)))
