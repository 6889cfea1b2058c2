"""A case for each endpoint and mode: `tests.contract.case`."""

import logging
from collections.abc import AsyncIterator

import pytest

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
