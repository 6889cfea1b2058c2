"""Measures the cost of the page: `make bench NAME=page`.

    python -m benchmarks.page [--streams 1000] [--seconds 10] [--loads 20]

- how long a turn of the event loop takes while streams run behind the guard `pii`, with nobody at the
  dashboard and with three who watch it, in turns; and the time to make a snapshot, and to note a second;
- from asking for the page to its first paint in Chromium, over loopback, with nothing in the browser's cache.
"""

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import time
from asyncio.events import Handle
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch

import aiohttp

from benchmarks.machine import processor
from engine.upstream.echo import EchoEngine
from hooks.loading.loader import HookSpec
from hooks.pipeline.pipeline import Pipeline
from proxy.deployment.deployment import Deployment
from proxy.http.admin import live
from proxy.http.admin.past import Past
from proxy.http.app import Server
from proxy.service.peers import Peers
from proxy.settings.serve import ServeSettings
from proxy.workers.run import freeze_objects

DELAY = 0.25
"""Seconds between two tokens of a stream."""
WATCHING = 3
ROUNDS = 3

CLIENT = """
import asyncio, sys, aiohttp
BODY = {"messages": [{"role": "user", "content": "What is your address, and who may I write to?"}],
        "stream": True, "ignore_eos": True, "max_tokens": 100000}
async def stream(http, url):
    async with http.post(url + "/v1/chat/completions", json=BODY) as response:
        async for _ in response.content.iter_any():
            pass
async def main(url, num):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await asyncio.gather(*(stream(http, url) for _ in range(num)))
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


class Turns:
    """How long each turn of the event loop took, in seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @contextmanager
    def measured(self) -> Iterator[None]:
        run = Handle._run

        def timed(handle: Handle) -> None:
            begin = time.thread_time()
            run(handle)
            self.seconds.append(time.thread_time() - begin)

        with patch.object(Handle, "_run", timed):
            yield

    def __str__(self) -> str:
        worst = sorted(self.seconds)[-3:]
        longest = ", ".join(f"{1000 * one:.1f}" for one in reversed(worst))
        return f"longest turns {longest} ms of {len(self.seconds):,}; {sum(self.seconds):.2f} s in all"


@asynccontextmanager
async def serving(num_streams: int) -> AsyncIterator[tuple[str, Server]]:
    """A server with that many running streams."""
    settings = ServeSettings(
        port=0, max_requests_per_caller=2 * num_streams, max_connections=6 * num_streams, shutdown_timeout=2
    )
    engine = EchoEngine(delay=DELAY)
    pipeline = await Pipeline.load([HookSpec("pii")])
    server = Server(Deployment.of_one(engine, pipeline, settings.base_model, ["m"]), settings)
    url = await server.start()
    freeze_objects()  # as `weir serve` does
    arguments = [sys.executable, "-c", CLIENT, url, str(num_streams)]
    client = await asyncio.create_subprocess_exec(*arguments, stderr=subprocess.DEVNULL)
    try:
        while engine.stats().num_running < num_streams:  # noqa: ASYNC110 - it has no event to await
            await asyncio.sleep(0.1)
        yield url, server
    finally:
        client.kill()
        await client.wait()
        await server.stop()


@asynccontextmanager
async def watched(url: str, num: int) -> AsyncIterator[None]:
    async def watch(http: aiohttp.ClientSession) -> None:
        async with http.get(url + "/admin/live") as response:
            async for _ in response.content.iter_any():
                pass

    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch(http)) for _ in range(num)]
        yield
        for task in tasks:
            task.cancel()


async def dashboard(num_streams: int, seconds: float) -> None:
    print(f"\n{num_streams} streams of {1 / DELAY:.0f} tokens/s behind pii")
    async with serving(num_streams) as (url, server):
        sums: dict[str, Turns] = {"nobody watches": Turns(), f"{WATCHING} watch": Turns()}
        for _ in range(ROUNDS):
            for name, turns in sums.items():
                async with watched(url, 0 if name == "nobody watches" else WATCHING):
                    await asyncio.sleep(1)
                    with turns.measured():
                        await asyncio.sleep(seconds)
        for name, turns in sums.items():
            print(f"  {name}: {turns}")
        metrics = server.service.metrics
        past = Past(metrics.collect, Peers())
        works: dict[str, Callable[[], object]] = {
            "a snapshot": lambda: live.snapshot([live.samples_of(metrics.collect())], [], time.time()),
            "noting a second": lambda: past.note(time.time()),
        }
        for name, work in works.items():
            made = []
            for _ in range(20):
                await asyncio.sleep(0.1)  # as often as in service, other work has the processor's caches
                begin = time.thread_time()
                work()
                made.append(time.thread_time() - begin)
            print(f"  {name}: {1000 * statistics.median(made):.2f} ms, at most {1000 * max(made):.2f} ms")


def first_paint(num_loads: int) -> None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("\nFirst paint: Playwright is not installed (make test-page installs it)")
        return
    command = [sys.executable, "-m", "proxy", "serve", "--engine", "echo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().split(" at ")[1].split("/v1")[0]
            with sync_playwright() as playwright:
                chromium = shutil.which("chromium")
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                paints = [_paint(browser, url) for _ in range(num_loads + 1)][
                    1:
                ]  # the first starts processes
                browser.close()
        finally:
            process.terminate()
    median, worst = statistics.median(paints), max(paints)
    print(f"\nFirst contentful paint: median {median:.0f} ms, at most {worst:.0f} ms of {num_loads} loads")


def _paint(browser: Any, url: str) -> float:
    """Milliseconds from the navigation's start."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    first_paint = page.evaluate(
        """() => new Promise((resolve) => new PerformanceObserver((list) => {
            const paint = list.getEntriesByName("first-contentful-paint")[0];
            if (paint) resolve(paint.startTime);
        }).observe({ type: "paint", buffered: true }))"""
    )
    context.close()
    return float(first_paint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each of three rounds")
    parser.add_argument("--loads", type=int, default=20)
    options = parser.parse_args()
    print(processor())
    first_paint(options.loads)
    asyncio.run(dashboard(options.streams, options.seconds))


if __name__ == "__main__":
    main()
