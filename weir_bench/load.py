"""When requests are sent: a closed loop keeps streams open, and an open loop sends at times drawn beforehand.

In a closed loop, a slow server gets fewer requests, and latencies are measured at a chosen concurrency. In an
open loop, requests arrive as users do, whether the server keeps up or not.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import nullcontext

from weir_bench.client import Clock

Send = Callable[[bytes, float | None], Awaitable[None]]
"""Sends a body. The second argument is the time to send it at (None: now)."""


async def closed_loop(send: Send, bodies: Iterator[bytes], concurrency: int) -> None:
    """Keep `concurrency` requests open until `bodies` ends."""

    async def stream() -> None:
        for body in bodies:
            await send(body, None)

    async with asyncio.TaskGroup() as streams:
        for _ in range(concurrency):
            streams.create_task(stream())


async def open_loop(
    send: Send,
    bodies: Iterator[bytes],
    arrivals: Iterable[float],
    now: Clock,
    *,
    max_concurrency: int | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Send a request at each of `arrivals` (seconds by `now`), even if earlier ones are still open. If
    `max_concurrency` are open, the request waits until one of them ends."""
    turn = asyncio.Semaphore(max_concurrency) if max_concurrency else nullcontext()

    async def request(body: bytes, due: float) -> None:
        async with turn:
            await send(body, due)

    async with asyncio.TaskGroup() as requests:
        for due in arrivals:
            if (wait := due - now()) > 0:
                await sleep(wait)
            requests.create_task(request(next(bodies), due))


def arrival_times(
    rate: float,
    seed: int | str,
    *,
    burstiness: float = 1.0,
    num_requests: int | None = None,
    duration: float | None = None,
) -> list[float]:
    """The arrivals of requests, in seconds: `rate` a second, at most `num_requests`, and before `duration`.

    Times between arrivals are gamma distributed with shape `burstiness`, as in vLLM: at 1 arrivals are a
    Poisson process, below 1 they come in bursts, and above 1 they are more even. At an infinite rate, all
    arrive at once.
    """
    if num_requests is None and (duration is None or rate == float("inf")):
        raise ValueError("arrivals need a number of requests or a duration")
    draw = random.Random(seed)
    times: list[float] = []
    time = 0.0
    while num_requests is None or len(times) < num_requests:
        time += draw.gammavariate(burstiness, 1 / (rate * burstiness)) if rate != float("inf") else 0.0
        if duration is not None and time >= duration:
            break
        times.append(time)
    return times
