"""A collector, and a server that sends it spans and metrics at once."""

from collections.abc import AsyncIterator

import pytest

from tests.proxy.conftest import serve as serve
from tools.collector import Collector


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    collector = await Collector().start()
    yield collector
    await collector.aclose()
