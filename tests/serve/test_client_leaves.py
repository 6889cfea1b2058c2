"""A client that leaves frees its slot in the real engine."""

import asyncio
from collections.abc import Callable

import aiohttp
import pytest

LOOP = "Please repeat the word tea forever."


async def metric(http: aiohttp.ClientSession, url: str, name: str) -> float:
    async with http.get(url + "/metrics") as response:
        (line,) = [row for row in (await response.text()).splitlines() if row.startswith(name + " ")]
    return float(line.split()[1])


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_slot(weir_serve: Callable[..., str], stream: bool) -> None:
    url = weir_serve()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        aborted = await metric(http, url, "weir_requests_aborted_total")
        # So many outputs take longer than any pause of this process.
        body = {
            "messages": [{"role": "user", "content": LOOP}],
            "ignore_eos": True,
            "n": 64,
            "stream": stream,
        }
        if stream:
            async with http.post(url + "/v1/chat/completions", json=body) as response:
                for _ in range(10):
                    await response.content.readline()
                assert await metric(http, url, "weir_num_requests_running") == 1
                response.close()
        else:
            asking = asyncio.get_running_loop().create_task(
                http.post(url + "/v1/chat/completions", json=body)
            )
            while not await metric(http, url, "weir_num_requests_running"):
                pass
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        while await metric(http, url, "weir_num_requests_running"):
            pass
        assert await metric(http, url, "weir_requests_aborted_total") == aborted + 1
        assert await metric(http, url, "weir_kv_blocks_used") == 0
