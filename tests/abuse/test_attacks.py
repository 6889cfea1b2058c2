"""Every attack of the catalogue, for a moment: another client is answered, and nothing is left of the attack.

`make abuse` runs them for longer, and measures how long the other client waits. Here no time counts.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from tests.abuse.held import held, returns_to
from tools.abuse.attack import Attack, Target
from tools.abuse.catalogue import ATTACKS
from tools.abuse.client import ADDRESS
from tools.abuse.measure import run, until
from tools.abuse.server import BAD_KEY, GOOD_KEY, Served

CHAT = {
    "messages": [{"role": "user", "content": "Tell me a story about an otter"}],
    "max_tokens": 4,
    "stream": True,
}

LONG = {"15 MB of messages", "15 MB to tokenize", "tokenize 130,000 messages"}
"""Larger bodies of a kind that another attack sends."""


def _case(attack: Attack) -> Any:
    return pytest.param(attack, id=attack.name, marks=[pytest.mark.slow] if attack.name in LONG else [])


@pytest.mark.parametrize("attack", [_case(attack) for attack in ATTACKS.values()])
async def test_another_client_is_answered_and_nothing_stays(
    attack: Attack, server_of: Callable[..., Served]
) -> None:
    server = server_of(*attack.options, num_files=attack.num_files)
    async with _neighbour() as neighbour, aiohttp.ClientSession() as probing, _many() as http:
        before = await held(server, probing)
        descriptors = server.num_descriptors
        target = Target(server.url, http, BAD_KEY, GOOD_KEY)
        attacking = asyncio.get_running_loop().create_task(run(attack, target))
        try:
            await until(lambda: target.num_sent or attacking.done())
            answer = await _answer(neighbour, server.url)
        finally:
            attacking.cancel()
            with suppress(asyncio.CancelledError):
                assert await attacking is None
    assert answer == (200, 200)
    async with aiohttp.ClientSession() as probing:
        await returns_to(server, probing, before, descriptors)
    assert server.log_size < 1_000_000


def _neighbour() -> aiohttp.ClientSession:
    """Another caller. A server that accepts no connection is noticed only by the time that it takes."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True, local_addr=(ADDRESS, 0)),
        headers={"Authorization": f"Bearer {GOOD_KEY}"},
        timeout=aiohttp.ClientTimeout(total=None, sock_read=60),
    )


def _many() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def _answer(http: aiohttp.ClientSession, url: str) -> tuple[int, int]:
    """The statuses of `/health` and of a chat, whose stream is read to its end."""
    async with http.get(url + "/health") as health:
        await health.read()
    async with http.post(url + "/v1/chat/completions", json=CHAT) as chat:
        stream = await chat.text()
    assert chat.status != 200 or stream.endswith("data: [DONE]\n\n")
    return health.status, chat.status
