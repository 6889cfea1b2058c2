"""A case for each endpoint and mode: `tests.contract.case`."""

import logging
from collections.abc import AsyncIterator

import pytest

from engine.local.engine import LocalEngine
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from tests.contract.case import Case
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


@pytest.fixture
async def demo() -> AsyncIterator[LocalEngine]:
    """The in-process engine with the model that ships."""
    engine = LocalEngine(EngineConfig(model=str(MODEL_DIR), num_threads=1))
    yield engine
    await engine.aclose()
