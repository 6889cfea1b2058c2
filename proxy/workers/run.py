"""One service in this process, from its start to the end of its last stream."""

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from engine.protocol import DeadEngineError
from hooks.loading.async_call import open_calls
from proxy.deployment.build import build
from proxy.http.app import Server
from proxy.network.listener import SharedPort, check_free
from proxy.settings.serve import ServeSettings
from proxy.telemetry.logs import flush_log
from proxy.workers.event_loop import running_loop

logger = logging.getLogger("weir.proxy")

ENGINE_FAILED = "the engine has failed; a new process is needed"


def freeze_objects() -> None:
    """Leave the objects that exist now out of garbage collections: they live to the end. A full collection
    would look through all of them, torch and the model included, and every stream would wait for a quarter of
    a second. Enables collections, which `weir serve` disables while it imports code."""
    gc.freeze()
    gc.enable()


@asynccontextmanager
async def running(
    settings: ServeSettings,
    *,
    shared: Sequence[SharedPort] = (),
    salt: bytes | None = None,
    engine_process: Path | None = None,
) -> AsyncIterator[tuple[Server, str]]:
    """The started server and its base URL. At the end it stops, and the process ends if a hook does not.
    `shared`: as in `Server`. `salt`: as in `Server.start`. `engine_process`: as in `make_engine`.

    Raises `START_ERRORS` if the service cannot start.
    """
    if not shared:  # else the supervisor has the ports
        # To load models and hooks takes minutes. Whoever takes a port meanwhile makes `start` fail.
        await check_free(settings.host, settings.port)
        if settings.admin_port is not None:
            await check_free(settings.admin_host, settings.admin_port)
    deployment = await build(settings, engine_process=engine_process)
    try:
        server = Server(deployment, settings, shared=shared)
    except BaseException:
        await deployment.aclose()
        raise
    freeze_objects()  # the collection below then need not look through the imported code
    url = await server.start(salt)
    gc.collect()
    freeze_objects()
    logger.info("the event loop is %s", running_loop())
    try:
        yield server, url
    finally:
        await server.stop()
        if open_calls:
            # A hook that ignores its cancellation would keep the process alive for ever.
            logger.warning("a hook does not end; leaving without it")
            flush_log()
            os._exit(0)


async def drained(server: Server) -> bool:
    """Serve for `drain_delay` seconds more, in which the server says that it is not ready. Returns whether an
    engine has failed for good."""
    service = server.service
    service.is_draining = True
    seconds = service.settings.drain_delay
    if not seconds:
        return False
    logger.info("stopping: not ready from now on, and serving for %g more seconds", seconds)
    return await until_over(in_(seconds), lambda: service.deployment.check_alive())


def in_(seconds: float) -> asyncio.Event:
    """An event that is set in some seconds."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    return over


async def until_over(over: asyncio.Event, check_alive: Callable[[], None], interval: float = 1.0) -> bool:
    """Wait until `over` is set, or an engine fails for good. Returns whether one has failed.

    `check_alive` is called every `interval` seconds."""
    while not over.is_set():
        try:
            check_alive()
        except DeadEngineError:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), interval)
    return False
