"""Mixed requests for a while, after which the server holds as much memory as before.

make test-real ARGS="-k soak" WEIR_SOAK_SECONDS=7200
"""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from benchmarks.public_text import texts
from benchmarks.real_answers import prompts
from tools.abuse.measure import calm
from tools.abuse.server import Served, served

SECONDS = float(os.environ.get("WEIR_SOAK_SECONDS", "60"))
CLIENTS = 6
CACHE = 100_000_000
"""Bytes of keys and values, which count when they are written to: they soon are."""
MAX_GROWTH = 40_000_000
"""Bytes that memory may grow by after the first third of the time."""
FORMAT: Any = {"type": "json_object"}
ASKED = prompts(500, seed=9)
TEXTS = texts()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 600)]


async def one_request(client: openai.AsyncOpenAI, rng: random.Random) -> None:
    """Some of them stream, some have several outputs, and some clients leave."""
    fields: dict[str, Any] = {"model": "m", "max_tokens": rng.randint(1, 80), "temperature": rng.random()}
    if rng.random() < 0.3:
        fields |= {"n": rng.randint(2, 4), "seed": rng.randrange(1000)}
    if rng.random() < 0.3:
        at = rng.randrange(3000)
        prompt = rng.choice(TEXTS)[at : at + rng.randint(1, 2000)] or "Once"
        await client.completions.create(prompt=prompt, logprobs=rng.choice([None, 3]), **fields)
        return
    fields["messages"] = [{"role": "user", "content": rng.choice(ASKED).prompt}]
    if rng.random() < 0.2:
        fields["response_format"] = FORMAT
    if rng.random() < 0.4:
        await client.chat.completions.create(**fields)
        return
    leaves_after = rng.randint(1, 10) if rng.random() < 0.3 else None
    async with await client.chat.completions.create(stream=True, **fields) as stream:
        number = 0
        async for _ in stream:
            number += 1
            if number == leaves_after:
                return


async def busy(url: str, seconds: float, seed: int) -> int:
    """The number of requests that ended well. Any other raises."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds

    async def requests(client: openai.AsyncOpenAI, rng: random.Random) -> int:
        number = 0
        while loop.time() < end:
            await one_request(client, rng)
            number += 1
        return number

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600) as client:
        some = [requests(client, random.Random(f"{seed}/{i}")) for i in range(CLIENTS)]
        return sum(await asyncio.gather(*some))


async def held_when_calm(server: Served) -> tuple[int, int]:
    """Bytes of memory, and open files."""
    async with aiohttp.ClientSession() as http:
        assert await calm(server, http)
    return server.memory, server.num_descriptors


async def test_memory_is_flat_under_mixed_requests(smollm2: Path, tmp_path: Path) -> None:
    hooks = ("--hook", "pii", "--hook", "secrets")
    options = ("--model", str(smollm2), "--served-model-name", "m", "--kv-cache-memory", str(CACHE), *hooks)
    with served(*options, "--max-model-len", "2048", folder=tmp_path) as server:
        await busy(server.url, SECONDS / 3, 1)
        memory, descriptors = await held_when_calm(server)
        number = await busy(server.url, SECONDS * 2 / 3, 2)
        after, descriptors_after = await held_when_calm(server)
    print(f"{number} requests: {memory / 1e6:.0f} MB before, {after / 1e6:.0f} MB after")
    assert after <= memory + MAX_GROWTH
    assert descriptors_after <= descriptors + 2
