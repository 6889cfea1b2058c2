"""Counts the tasks and objects that a server holds, and waits until there are no more than before."""

import asyncio

import aiohttp

from tools.abuse.measure import counts, is_idle, until
from tools.abuse.server import GOOD_KEY, Served


async def held(server: Served, http: aiohttp.ClientSession) -> dict[str, int]:
    """Its tasks, and objects of requests. Stored responses are not among them: an option bounds them."""
    found = await counts(server.url, http, GOOD_KEY)
    del found["StoredResponse"]
    return found


async def returns_to(
    server: Served, http: aiohttp.ClientSession, before: dict[str, int], descriptors: int
) -> None:
    """Wait, as long as pytest allows, until the server is idle and holds no more than before."""
    while not await is_idle(server, http):
        await asyncio.sleep(0.05)
    await until(lambda: server.num_descriptors <= descriptors + 2)
    while any(num > before[name] + 2 for name, num in (await held(server, http)).items()):
        await asyncio.sleep(0.05)
