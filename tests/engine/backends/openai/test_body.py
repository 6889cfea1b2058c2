"""An upstream's body, piece by piece."""

import asyncio
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol

from engine.backends.openai.body import pieces_of
from engine.backends.request_tracker import RequestTracker


async def test_a_connection_closed_between_two_reads_is_an_error_of_the_network() -> None:
    """aiohttp raises `RuntimeError` then, which would be taken for an error of Weir."""
    loop = asyncio.get_running_loop()
    content = aiohttp.StreamReader(BaseProtocol(loop), limit=2**16, loop=loop)  # it is not connected
    content.feed_data(b"data: 1")
    response: Any = SimpleNamespace(headers={}, content=content)
    pieces = pieces_of(response, RequestTracker().wait)
    assert await anext(pieces) == b"data: 1"
    with pytest.raises(aiohttp.ClientError):
        await anext(pieces)
