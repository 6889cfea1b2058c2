"""The process that runs the models of a service with several workers. The supervisor starts and ends it.

It has no hook, and takes no connection from outside. Without it the service cannot go on: a service whose
engine has failed needs a new process, with one worker or with several.
"""

import asyncio
import contextlib
import gc
import logging

from hooks.workers.messages import Connection
from hooks.workers.process import Child, inherited
from proxy.deployment.engine_process.host import EngineHost
from proxy.deployment.engines import make_hosted
from proxy.telemetry.logs import flush_log, log_to_stderr
from proxy.workers.event_loop import run
from proxy.workers.messages import EnginesReady, StartEngines

logger = logging.getLogger("weir.engine")


class EngineProcess(Child):
    """The process, seen from the supervisor."""

    async def start(self, start: StartEngines) -> None:
        """Returns once it accepts connections. Raises `OSError` if it does not."""
        await self.spawn("proxy.workers.engine_process")
        self.connection.send(start)
        try:
            (ready,) = await self.connection.receive()
        except EOFError:
            raise OSError(await self.run()) from None
        assert isinstance(ready, EnginesReady)

    async def run(self) -> str:
        """Returns the reason why the service must end, once the process is gone."""
        return f"the process of the engine {await self.ended()}; a new service is needed"


def main() -> None:
    run(_serve())


async def _serve() -> None:
    """Serve until the supervisor closes the connection, or an engine has failed for good."""
    connection = await inherited()
    with contextlib.suppress(EOFError):
        (start,) = await connection.receive()
        log_to_stderr(start.log_level, start.log_format, "engine")
        gc.enable()
        host = EngineHost(make_hosted)
        server = await asyncio.start_unix_server(host.connect, start.socket)
        try:
            connection.send(EnginesReady())
            await _until_over(connection, host)
        finally:
            server.close()
            await host.aclose()
    flush_log()
    await connection.close()


async def _until_over(connection: Connection, host: EngineHost) -> None:
    """Raises `SystemExit` with 1 if an engine has failed for good."""
    loop = asyncio.get_running_loop()
    watching = loop.create_task(host.watch())
    tasks = [watching, loop.create_task(connection.receive())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            logger.error("the engine has failed")
            raise SystemExit(1)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
