"""What streams feel of each other on the in-process engine: `make bench NAME=streams`.

    python -m benchmarks.streams [--shape tiny] [--minutes 3]

- the gaps between tokens of 8 running streams, alone and while a prompt of 4,000 tokens is prefilled;
- the time to the first token of a prompt of 1,000 tokens, new and asked again;
- the process's memory after each minute of requests of mixed lengths.

Random weights, wall time, everything in turn within one run: quote the ratios.
"""

import argparse
import asyncio
import random
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path

from benchmarks.machine import processor
from benchmarks.random_models import SHAPES, make_model
from engine.local.engine import LocalEngine
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import EngineConfig

STREAMS = 8
LONG_PROMPT = 4000
SHARED_PROMPT = 1000
LONGEST = 32768
MIXED_CACHE = 2**27
"""Bytes of the cache under mixed requests. All of its memory is touched within the first minute."""


def request(prompt: list[int], max_tokens: int) -> GenerationRequest:
    sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    return GenerationRequest(
        request_id="r", model="m", endpoint="completions", prompts=(tuple(prompt),), sampling=sampling
    )


def random_prompt(length: int) -> list[int]:
    return [random.randrange(300, 2000) for _ in range(length)]


@asynccontextmanager
async def started(model: str, threads: int | None, kv_cache_memory: int) -> AsyncIterator[LocalEngine]:
    config = EngineConfig(model=model, num_threads=threads, kv_cache_memory=kv_cache_memory)
    engine = LocalEngine(config)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.aclose()


async def first_token(engine: LocalEngine, prompt: list[int]) -> float:
    """Seconds."""
    begin = time.perf_counter()
    async with aclosing(engine.generate(request(prompt, 1))) as deltas:
        async for _ in deltas:
            break
    return time.perf_counter() - begin


async def arrivals(engine: LocalEngine, times: list[float]) -> None:
    async with aclosing(engine.generate(request(random_prompt(32), LONGEST // 2))) as deltas:
        async for delta in deltas:
            times += [time.perf_counter()] * bool(delta.tokens)


def gaps(streams: list[list[float]], begin: float, end: float) -> list[float]:
    """Between tokens that came within the time."""
    return [b - a for times in streams for a, b in pairwise(times) if begin < a and b < end]


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


async def beside_a_long_prompt(engine: LocalEngine, seconds: float, repeats: int) -> None:
    streams: list[list[float]] = [[] for _ in range(STREAMS)]
    tasks = [asyncio.get_running_loop().create_task(arrivals(engine, times)) for times in streams]
    try:
        await asyncio.sleep(2)
        alone: list[float] = []
        beside: list[float] = []
        prefills: list[float] = []
        for _ in range(repeats):
            begin = time.perf_counter()
            await asyncio.sleep(seconds / 2)
            prompted = time.perf_counter()
            prefills.append(await first_token(engine, random_prompt(LONG_PROMPT)))
            prefilled = time.perf_counter()
            # Before and after, since the streams' own texts, and with them their steps, grow meanwhile.
            await asyncio.sleep(seconds / 2)
            alone += gaps(streams, begin, prompted) + gaps(streams, prefilled, time.perf_counter())
            beside += gaps(streams, prompted, prefilled)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(f"gaps between tokens of {STREAMS} streams, ms: alone, and beside a prompt of {LONG_PROMPT} tokens")
    for percent in (50, 90, 99):
        a, b = percentile(alone, percent), percentile(beside, percent)
        print(f"  p{percent}: {1e3 * a:.2f}, {1e3 * b:.2f} ({b / a:.2f} times)")
    print(f"  that prompt's first token after {statistics.median(prefills):.2f} s")


async def asked_again(engine: LocalEngine, repeats: int) -> None:
    new: list[float] = []
    again: list[float] = []
    for _ in range(repeats):
        prompt = random_prompt(SHARED_PROMPT)
        new.append(await first_token(engine, prompt))
        again.append(await first_token(engine, [*prompt, *random_prompt(8)]))
    a, b = statistics.median(new), statistics.median(again)
    print(
        f"first token of {SHARED_PROMPT} tokens: {1e3 * a:.1f} ms; asked again, and 8 more: {1e3 * b:.1f} ms "
        f"({a / b:.1f} times sooner)"
    )


def resident_bytes() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def mixed_requests(engine: LocalEngine, end: float) -> None:
    """One request after another, each of other lengths than the one before."""
    while time.perf_counter() < end:
        prompt = random_prompt(int(2 ** random.uniform(0, 11)))
        async with aclosing(engine.generate(request(prompt, int(2 ** random.uniform(0, 8))))) as deltas:
            async for _ in deltas:
                if time.perf_counter() >= end:
                    break


async def memory_by_minute(engine: LocalEngine, minutes: int) -> None:
    print(f"memory in MiB after each minute of mixed requests, {2 * STREAMS} at a time:", end="", flush=True)
    for _ in range(minutes):
        end = time.perf_counter() + 60
        await asyncio.gather(*(mixed_requests(engine, end) for _ in range(2 * STREAMS)))
        print(f" {resident_bytes() / 2**20:.0f}", end="", flush=True)
    print()


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minutes", type=int, default=3, help="of mixed requests")
    options = parser.parse_args()
    print(processor())
    with tempfile.TemporaryDirectory() as folder:
        make_model(options.shape, options.dtype, Path(folder))
        async with started(folder, options.threads, 2**31) as engine:
            await asked_again(engine, 3 * options.repeats)
            await beside_a_long_prompt(engine, 3.0, options.repeats)
        if options.minutes:
            async with started(folder, options.threads, MIXED_CACHE) as engine:
                await memory_by_minute(engine, options.minutes)


if __name__ == "__main__":
    asyncio.run(main())
