"""The time to the first token of responses over SSE and over a WebSocket: `make bench NAME=first_token`.

    python -m benchmarks.first_token [--streams 16] [--turns 10] [--rounds 3] [--read 1.0]

The upstream is that of `benchmarks.relay`: it sends the first word of an answer at once. Clients ask for one
answer after another, and read each for a second. In turns they ask the upstream itself for chats, and Weir
for responses, by `POST` and over a WebSocket. Weir has `phrases`, `pii` and `secrets` as guards. What it adds
is the difference of two percentiles. The client runs on the same machine, and its delays are in all figures.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from statistics import median

import aiohttp

from benchmarks.load.figures import percentile
from benchmarks.machine import processor
from benchmarks.relay import BODY, guards_file, running, weir
from benchmarks.relay_streams import upstream

STEP = 20.0
"""Milliseconds between the words of an answer."""
RESPONSE = {"model": "m", "input": "Hi", "stream": True}

Ask = Callable[[], Awaitable[float]]
"""Asks for an answer. Returns the seconds to its first word."""


async def by_post(http: aiohttp.ClientSession, url: str, body: object, mark: bytes, read: float) -> float:
    """`read`: seconds for which the answer is read after its first word."""
    began = time.perf_counter()
    async with http.post(url, json=body) as response:
        seen = b""
        async for data in response.content.iter_any():
            seen += data
            if mark in seen:
                break
        first = time.perf_counter() - began
        await read_on(response.content.readany, read)
    return first


async def read_on(receive: Callable[[], Awaitable[object]], seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while await receive():
                pass


class Socket:
    """A client's WebSocket. An answer is left by closing the socket: it is opened again for the next one."""

    def __init__(self, http: aiohttp.ClientSession, url: str, read: float) -> None:
        self._http, self._url, self._read = http, url, read

    async def ask(self) -> float:
        async with self._http.ws_connect(self._url) as ws:
            began = time.perf_counter()
            await ws.send_json({"type": "response.create", **RESPONSE})
            async for message in ws:
                if "response.output_text.delta" in message.data:
                    break
            first = time.perf_counter() - began
            await read_on(ws.receive, self._read)
        return first


async def firsts(ask: Ask, num_streams: int, num_turns: int, pause: float) -> list[float]:
    """Milliseconds to the first words, in ascending order."""

    async def one(client: int) -> list[float]:
        rng = random.Random(client)
        found = []
        for _ in range(num_turns):
            await asyncio.sleep(rng.random() * pause)  # clients do not ask all at once
            found.append(1000 * await ask())
        return found

    return sorted(chain.from_iterable(await asyncio.gather(*map(one, range(num_streams)))))


async def measure(base: str, guarded: str, options: argparse.Namespace) -> None:
    measured: dict[str, list[list[float]]] = {}
    read = options.read
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        ways: dict[str, Ask] = {
            "the upstream": lambda: by_post(http, f"{base}/chat/completions", BODY, b'"content":"', read),
            "Weir, SSE": lambda: by_post(http, f"{guarded}/responses", RESPONSE, b"output_text.delta", read),
            "Weir, WebSocket": Socket(http, f"{guarded}/responses", read).ask,
        }
        for _ in range(options.rounds):
            for name, ask in ways.items():
                measured.setdefault(name, []).append(await firsts(ask, options.streams, options.turns, read))
    print(f"{options.streams} streams, a word each {STEP:g} ms. Milliseconds, medians of the rounds.")
    base_50, base_99 = points(measured["the upstream"])
    for name, rounds in measured.items():
        p50, p99 = points(rounds)
        print(f"{name:<18} p50 {p50:6.2f}  p99 {p99:6.2f}  added {p50 - base_50:6.2f} {p99 - base_99:6.2f}")


def points(rounds: list[list[float]]) -> tuple[float, float]:
    p50, p99 = (median(percentile(times, percent) for times in rounds) for percent in (50, 99))
    return p50, p99


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--read", type=float, default=1.0, help="seconds for which an answer is read")
    options = parser.parse_args()
    print(processor())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack, suppress(KeyboardInterrupt):
        base = upstream(stack, STEP)
        guarded, _ = stack.enter_context(running(weir(base, "--config", guards_file(Path(folder)))))
        asyncio.run(measure(base, guarded, options))


if __name__ == "__main__":
    main()
