"""The promises of every engine, on vLLM in the process of the engines, as `--workers` has it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from proxy.deployment.engine_process.remote import RemoteEngine
from proxy.settings.model import ModelSettings
from tests.engine.upstream.test_contract import *  # noqa: F403
from tests.engine.upstream.test_contract import Backend, request
from tests.engine_process import hosting

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("default"),
]
bad = request(prompts=((10**9,),))


class Kept:
    """The session's engine, which goes on when a connection ends."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def start(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


@pytest_asyncio.fixture(loop_scope="session")  # type: ignore[no-redef]
async def backend(vllm_engine: Any) -> AsyncIterator[Backend]:
    async with hosting(lambda: Kept(vllm_engine)) as path:
        load = lambda: vllm_engine.tokenizer  # noqa: E731
        engine = RemoteEngine(path, ModelSettings(engine="vllm"), load, can_withhold=True)
        await engine.start()
        yield Backend(engine, bad)
        await engine.aclose()
