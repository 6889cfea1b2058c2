"""Closed loops on several servers in turns. A closed loop keeps a fixed number of streams open.

Servers take turns, in reverse order every second time. A slow change of the machine then affects all alike.
A ratio is the median, over the turns, of a server's figure divided by that of the first server.
"""

import asyncio
import gc
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import orjson

from benchmarks.load.client import Client, RequestRecord
from benchmarks.load.figures import Figures, figures, median_figures, ratio_figures

_WORDS = (  # noqa: SIM905
    "river stone paper light garden window letter summer market winter bridge forest candle silver orange "
    "travel doctor island engine mirror pocket ladder castle button planet harbour meadow copper"
).split()
_NUM_WORDS = 18
_NUM_WARMUPS = 2
_TIMEOUT = 600.0
"""Seconds that one request may take."""


@dataclass(frozen=True, slots=True)
class Load:
    """`concurrency`: how many streams to keep open, one number after the other. `fields`: of each body."""

    concurrency: Sequence[int]
    repetitions: int
    fields: Mapping[str, object]


class LoadError(Exception):
    """A request failed. The message says which server's, and why."""


async def compare(urls: Mapping[str, str], load: Load) -> list[str]:
    """The figures of the servers, by name and base URL, as lines of a table. Raises `LoadError`."""
    numbers = itertools.count(1)
    lines: list[str] = []
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(
                Client(f"{url}/chat/completions", api_key=None, timeout=_TIMEOUT)
            )
            for name, url in urls.items()
        }
        for name, client in clients.items():
            await _run(name, client, _bodies(load, 0, _NUM_WARMUPS), _NUM_WARMUPS)
        for concurrency in load.concurrency:
            found: dict[str, list[Figures]] = defaultdict(list)
            for repetition in range(load.repetitions):
                number = next(numbers)
                for name in list(clients)[:: -1 if repetition % 2 else 1]:
                    bodies = _bodies(load, number, max(4 * concurrency, 8))
                    found[name].append(await _run(name, clients[name], bodies, concurrency))
            lines += ["", *table(f"concurrency {concurrency}", {name: found[name] for name in clients})]
    return lines


async def _run(name: str, client: Client, bodies: Sequence[bytes], concurrency: int) -> Figures:
    """Send each body once, `concurrency` at a time."""
    gc.collect()
    began, cpu = time.perf_counter(), time.process_time()
    records: list[RequestRecord] = []
    waiting = iter(bodies)

    def now() -> float:
        return time.perf_counter() - began

    async def stream() -> None:
        for body in waiting:
            record = RequestRecord(sent=now())
            records.append(record)
            await client.send(body, record, now)

    async with asyncio.TaskGroup() as streams:
        for _ in range(concurrency):
            streams.create_task(stream())
    duration = now()
    for failure in filter(None, (record.failure for record in records)):
        raise LoadError(f"{name}: {failure.kind}: {failure.message}")
    return figures(records, duration) | {"client's cores": (time.process_time() - cpu) / duration}


def _bodies(load: Load, run: int, count: int) -> list[bytes]:
    """Chats of random words. No two prompts are the same, from their first word on."""
    return [
        orjson.dumps({**load.fields, "messages": [{"role": "user", "content": prompt}]})
        for prompt in itertools.islice(_prompts(run), count)
    ]


def _prompts(run: int) -> Iterator[str]:
    draw = random.Random(run)
    for number in itertools.count():
        yield " ".join([f"{run}.{number}", *draw.choices(_WORDS, k=_NUM_WORDS - 1)])


def table(title: str, found: Mapping[str, Sequence[Figures]]) -> list[str]:
    """A row for each figure: its median for each server, and the ratio of each to the first."""
    base, *peers = found
    medians = {name: median_figures(own) for name, own in found.items()}
    ratios = {
        name: median_figures([ratio_figures(*pair) for pair in zip(found[name], found[base], strict=True)])
        for name in peers
    }
    rows = [[title, *found, *(f"{name}/{base}" for name in peers)]]
    for figure in medians[base]:
        values = [*(medians[name][figure] for name in found), *(ratios[name][figure] for name in peers)]
        rows.append([figure, *("-" if value is None else f"{value:.2f}" for value in values)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
