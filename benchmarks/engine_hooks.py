"""What guarding costs the in-process engine: tokens a second through the service, with hooks and without.

    python -m benchmarks.engine_hooks [--model DIR] [--streams 16,32] [--max-tokens 128] [--hooks 3]

One server and one engine; the requests with hooks name them. Both take turns within one run; medians, and the
median of the ratios of neighbours. The client shares the process, and so the event loop, with the service.
"""

import argparse
import asyncio
import statistics
import time
from typing import Any

import aiohttp

from benchmarks.hooks import PATH, PassThrough
from benchmarks.machine import processor
from engine.local.engine import LocalEngine
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from proxy.deployment.deployment import Deployment
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings


async def tokens_per_second(
    http: aiohttp.ClientSession, url: str, streams: int, body: dict[str, Any]
) -> float:
    async def one(seed: int) -> None:
        async with http.post(url + PATH, json={**body, "seed": seed}) as response:
            async for _ in response.content.iter_any():
                pass

    started = time.perf_counter()
    await asyncio.gather(*map(one, range(streams)))
    return streams * int(body["max_tokens"]) / (time.perf_counter() - started)


async def measure(options: argparse.Namespace) -> None:
    names = [f"pass{i}" for i in range(options.hooks)]
    allowed = [LoadedHook(name, PassThrough(), is_async=False) for name in names]
    engine = LocalEngine(EngineConfig(model=options.model, max_num_seqs=64))
    settings = ServeSettings(port=0)
    server = Server(
        Deployment.of_one(engine, Pipeline(allowed=allowed), settings.base_model, ["m"]), settings
    )
    url = await server.start()
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Please repeat the word tea forever."}],
        "max_tokens": options.max_tokens,
        "ignore_eos": True,
        "stream": True,
    }
    print(f"tokens/s          no hooks    {options.hooks} hooks   ratio", flush=True)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        for streams in map(int, options.streams.split(",")):
            await tokens_per_second(http, url, streams, body)
            rates: dict[str, list[float]] = {"none": [], "hooks": []}
            for i in range(options.repetitions):
                turns = list({"none": [], "hooks": names}.items())
                for kind, named in turns if i % 2 else reversed(turns):
                    asked = {**body, "hooks": named}
                    rates[kind].append(await tokens_per_second(http, url, streams, asked))
            ratio = statistics.median(b / a for a, b in zip(*rates.values(), strict=True))
            none, hooked = map(statistics.median, rates.values())
            print(f"  {streams:3} streams     {none:9,.0f} {hooked:10,.0f}   {ratio:.3f}", flush=True)
    await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(MODEL_DIR))
    parser.add_argument("--streams", default="16,32")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--hooks", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=9)
    options = parser.parse_args()
    print(processor())
    asyncio.run(measure(options))


if __name__ == "__main__":
    main()
