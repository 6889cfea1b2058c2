"""The upstream of the benchmark of short requests says the same, whole and in chunks, at once and paced."""

import asyncio
from collections import defaultdict

import aiohttp
import orjson
import pytest

from benchmarks.relay import CHAT, Upstream
from benchmarks.short_requests import CASES, LENGTH, ShortUpstream


@pytest.mark.parametrize("step", [0, 5])
async def test_the_upstream_answers_whole_and_in_chunks(step: float) -> None:
    connections: defaultdict[float, set[Upstream]] = defaultdict(set)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ShortUpstream(step, connections), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{CHAT}"
    stepping = loop.create_task(_step_always(connections))
    async with aiohttp.ClientSession() as http:
        async with http.post(url, json=CASES["tools"]) as answer:
            whole = (await answer.json())["choices"][0]["message"]["content"]
        async with http.post(url, json=CASES["chunks"]) as answer:
            events = (await answer.text()).removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
    stepping.cancel()
    server.close()
    choices = [orjson.loads(event.removeprefix("data: "))["choices"] for event in events]
    said = [one[0]["delta"]["content"] for one in choices if one]
    assert "".join(said) == whole
    assert len([*filter(None, said)]) == LENGTH


async def _step_always(connections: dict[float, set[Upstream]]) -> None:
    while True:
        for connection in [one for each in connections.values() for one in each]:
            connection.step()
        await asyncio.sleep(0)
