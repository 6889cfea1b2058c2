"""Both event loops that a server may have."""

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def both() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The hook `pytest_asyncio_loop_factories` of a folder whose async tests run under each of them."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
