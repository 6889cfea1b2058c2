import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.event_loops import both


def pytest_asyncio_loop_factories(
    item: pytest.Function,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both, unless the test starts `workers`, which are processes with a loop of their own."""
    loops = both()
    starts_workers = "workers" in item.function.__code__.co_names
    return {"uvloop": loops["uvloop"]} if starts_workers else loops
