"""When requests are sent: a closed loop keeps streams open, an open loop sends at times drawn beforehand.

In a closed loop a slow server is asked less often, so that its latencies are those at a chosen concurrency.
In an open loop requests come as users do, whether the server keeps up or not.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import nullcontext

from weir_bench.client import Clock

Send = Callable[[bytes, float | None], Awaitable[None]]
"""Sends a body; the second argument is when it was due (None: now)."""


async def closed_loop(send: Send, bodies: Iterator[bytes], concurrency: int) -> None:
    """Keep `concurrency` requests open until there are no more `bodies`."""

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
    """Send at each of `arrivals` (seconds by `now`), whatever is still open; if `max_concurrency` are, as
    soon as one of them ends."""
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
    """When requests arrive, in seconds: `rate` a second, up to `num_requests` and before `duration`.

    Times between arrivals are gamma distributed with shape `burstiness`: 1 is a Poisson process, less comes
    in bursts, more is more even (as vLLM has it). A rate of infinity has them all arrive at once.
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
