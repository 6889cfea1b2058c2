"""An engine behind the connection that processes of one service have to the process that runs models."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from engine.local.engine import LocalEngine
from engine.protocol import Engine
from engine.protocol.options import EngineConfig
from engine.text.tokenizer import LocalTokenizer
from proxy.deployment.engine_process.host import EngineHost
from proxy.deployment.engine_process.remote import RemoteEngine
from proxy.settings.model import ModelSettings


@asynccontextmanager
async def hosting(make: Callable[[], Engine]) -> AsyncIterator[Path]:
    """The socket of a host whose engines `make` makes."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's path has 107 characters at most
        path = Path(folder) / "engines.sock"
        host = EngineHost(lambda _: make())
        server = await asyncio.start_unix_server(host.connect, path)
        watching = asyncio.get_running_loop().create_task(host.watch())
        try:
            yield path
        finally:
            server.close()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await host.aclose()


def remote(path: Path, config: EngineConfig) -> RemoteEngine:
    """The engine there, not yet started."""
    return RemoteEngine(
        path, ModelSettings(model=config.model), lambda: LocalTokenizer.of(config), can_withhold=True
    )


@asynccontextmanager
async def remote_engine(config: EngineConfig) -> AsyncIterator[RemoteEngine]:
    """A started engine, which an engine host of this process runs."""
    async with hosting(lambda: LocalEngine(config)) as path:
        engine = remote(path, config)
        await engine.start()
        yield engine
        await engine.aclose()
