"""A case for each endpoint and mode: `tests.contract.case`."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from engine.local.engine import LocalEngine
from engine.protocol import Engine
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from tests.contract.case import Case
from tests.engine_process import hosting, remote
from tests.proxy.conftest import Serve
from tests.proxy.conftest import serve as serve


@pytest.fixture
async def case(
    request: pytest.FixtureRequest, serve: Serve, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Case]:
    caplog.set_level(logging.INFO)  # the default of `weir serve`
    one = Case(*request.param, serve, caplog)
    yield one
    await one.check_withheld()


@pytest.fixture(params=["in this process", "in the engine's process"])
async def demo(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    """The engine with the model that ships, not yet started."""
    config = EngineConfig(model=str(MODEL_DIR), num_threads=1)
    engine: Engine = LocalEngine(config)
    async with AsyncExitStack() as stack:
        if request.param != "in this process":
            hosted = engine
            engine = remote(await stack.enter_async_context(hosting(lambda: hosted)), config)
        yield engine
        await engine.aclose()
