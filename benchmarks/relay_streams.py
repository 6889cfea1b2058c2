"""Measures streams through Weir beside streams through a bare relay: `make bench NAME=relay_streams`.

    python -m benchmarks.relay_streams [--streams 1 64 512] [--rounds 3] [--idle 2000] [--also NAME=COMMAND]

The servers and the upstream are those of `benchmarks.relay`. The upstream sends the first word of an answer
at once, and then a word each 10, 20 and 100 milliseconds for 1, 64 and 512 streams: more would keep the
client busy. In turns:

- the time to the first token of streams that begin one after another, and how late a gap between two chunks
  is, at the median and at p99;
- the memory and the processor time of streams that wait for their next word;
- the time to the first token of a chat of 100,000 tokens, and the gaps of 16 other streams meanwhile.

One client runs on the same machine. Its own delays are in all figures alike: quote the ratios.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks.guards import PROSE
from benchmarks.load.client import Client, RequestRecord
from benchmarks.load.figures import percentile
from benchmarks.machine import processor
from benchmarks.relay import BODY, FAST_RELAY, middles, own, running
from benchmarks.workers import cpu_seconds

Server = tuple[str, int]
"""A base URL and a process."""

STEPS = {1: 10.0, 64: 20.0}
"""Milliseconds between a stream's chunks, by the number of streams."""
MANY_STEP = 100.0
NUM_BESIDE = 16
"""Streams beside the long prompt."""
LONG_PROMPT = 100_000
"""Tokens."""
CHARACTERS_A_TOKEN = 4
MESSAGE = 2_000
"""Tokens of a message of the long chat."""
NUM_LONG = 8
"""Long chats a turn, one after another."""
BEGIN = 2.0
"""Seconds within which streams begin."""
LONG_SECONDS = 0.5
"""Seconds of a long chat's answer that are read."""
TIMEOUT = 120.0


class Feel(NamedTuple):
    """Milliseconds."""

    first: list[float]
    """To the first token, in ascending order."""
    late: list[float]
    """By which a gap is longer than the upstream's, in ascending order."""


def step_for(num_streams: int) -> float:
    return STEPS.get(num_streams, MANY_STEP)


def long_chat() -> bytes:
    """Alternating turns of prose, no two alike."""
    size = MESSAGE * CHARACTERS_A_TOKEN
    text = (PROSE + " ") * (size // len(PROSE) + 1)
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": f"{i}: {text}"[:size]}
        for i in range(LONG_PROMPT // MESSAGE - 1)
    ]
    return orjson.dumps({**BODY, "messages": [*messages, {"role": "user", "content": "Go on."}]})


async def always(client: Client, records: list[RequestRecord], wait: float) -> None:
    """Ask for one answer after another. The first is asked for after `wait` seconds."""
    body = orjson.dumps(BODY)
    await asyncio.sleep(wait)
    while True:
        records.append(RequestRecord(sent=time.perf_counter()))
        await client.send(body, records[-1], time.perf_counter)


@asynccontextmanager
async def streaming(url: str, num_streams: int) -> AsyncIterator[list[RequestRecord]]:
    """The records of streams that run meanwhile. They begin within `BEGIN` seconds."""
    records: list[RequestRecord] = []
    async with Client(f"{url}/chat/completions", api_key=None, timeout=TIMEOUT) as client:
        async with asyncio.TaskGroup() as group:
            waits = (BEGIN * i / num_streams for i in range(num_streams))
            tasks = [group.create_task(always(client, records, wait)) for wait in waits]
            try:
                yield records
            finally:
                for task in tasks:
                    task.cancel()


def late(records: Sequence[RequestRecord], step: float, begin: float, end: float) -> list[float]:
    """Milliseconds by which gaps that ended in the time are longer than `step` milliseconds."""
    return [
        1000 * (after - before) - step
        for record in records
        for before, after in zip(record.times, record.times[1:], strict=False)
        if begin < after < end
    ]


async def felt(url: str, num_streams: int, seconds: float) -> Feel:
    async with streaming(url, num_streams) as records:
        await asyncio.sleep(BEGIN + 0.5)
        begin = time.perf_counter()
        await asyncio.sleep(seconds)
        end = time.perf_counter()
    check(records)
    first = [1000 * record.ttft for record in records if record.times]
    return Feel(sorted(first), sorted(late(records, step_for(num_streams), begin, end)))


def check(records: Sequence[RequestRecord]) -> None:
    if failure := next((record.failure for record in records if record.failure), None):
        raise SystemExit(f"{failure.kind}: {failure.message}")


def resident_kilobytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


class Idle(NamedTuple):
    kilobytes: float
    """The memory of a stream."""
    processor: float
    """The percent of a core that all streams take together."""


async def idle(server: Server, num_streams: int, seconds: float) -> Idle:
    """Streams that have had their first word."""
    url, pid = server
    before = resident_kilobytes(pid)
    async with streaming(url, num_streams) as records:
        async with asyncio.timeout(TIMEOUT):
            while sum(bool(record.times) for record in records) < num_streams:
                check(records)
                await asyncio.sleep(0.1)
        began = cpu_seconds(pid)
        await asyncio.sleep(seconds)
        spent = cpu_seconds(pid) - began
        after = resident_kilobytes(pid)
    return Idle((after - before) / num_streams, 100 * spent / seconds)


async def beside_a_long_chat(url: str, step: float) -> Feel:
    """The time to the first token of long chats, and the gaps of the others while these are read."""
    body = long_chat()
    firsts, gaps = [], []
    async with Client(f"{url}/chat/completions", api_key=None, timeout=TIMEOUT) as client:
        async with streaming(url, NUM_BESIDE) as records:
            await asyncio.sleep(BEGIN + 0.5)
            for _ in range(NUM_LONG):
                record = RequestRecord(sent=time.perf_counter())
                with suppress(TimeoutError):
                    async with asyncio.timeout(LONG_SECONDS):
                        await client.send(body, record, time.perf_counter)
                check([record])
                firsts.append(1000 * record.ttft)
                gaps += late(records, step, record.sent, record.times[0] + 0.05)
    return Feel(sorted(firsts), sorted(gaps))


def upstream(stack: ExitStack, step: float) -> str:
    return stack.enter_context(running(own("--serve-upstream", str(step))))[0]


def show(measured: Mapping[str, list[list[float]]], names: Sequence[str]) -> None:
    """The medians over the rounds, each beside that of the relay under uvloop."""
    base = medians(measured[FAST_RELAY])
    print(f"{'':<26}" + "".join(f"{name:>22}" for name in names))
    for server, rounds in measured.items():
        cells = (
            f"{value:.2f} ({value / relays:.2f})" if relays > 0 else f"{value:.2f}"
            for value, relays in zip(medians(rounds), base, strict=True)
        )
        print(f"{server:<26}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


def medians(rounds: list[list[float]]) -> list[float]:
    return [statistics.median(values) for values in zip(*rounds, strict=True)]


def points(feel: Feel) -> list[float]:
    return [percentile(values, percent) for values in feel for percent in (50, 99)]


FELT = ("first token p50, ms", "p99", "gap late p50, ms", "p99")


def compare(options: argparse.Namespace) -> None:
    print(f"{processor()}\nIn brackets: of the relay under uvloop.")
    gc.disable()
    with tempfile.TemporaryDirectory() as folder:
        for num_streams in options.streams:
            with ExitStack() as stack:
                servers = middles(upstream(stack, step_for(num_streams)), Path(folder), options.also, stack)
                measured: dict[str, list[list[float]]] = {name: [] for name in servers}
                for _ in range(options.rounds):
                    for name, (url, _) in servers.items():
                        measured[name].append(points(asyncio.run(felt(url, num_streams, options.seconds))))
                        gc.collect()
                print(f"\n{num_streams} streams, a chunk each {step_for(num_streams):g} ms")
                show(measured, FELT)
        with ExitStack() as stack:
            servers = middles(upstream(stack, 1e6), Path(folder), options.also, stack) if options.idle else {}
            waiting = {
                name: [list(asyncio.run(idle(server, options.idle, 5.0)))] for name, server in servers.items()
            }
            if waiting:
                print(f"\n{options.idle} streams that wait")
                show(waiting, ("KB a stream", "% of a core"))
        with ExitStack() as stack:
            step = STEPS[64]
            servers = middles(upstream(stack, step), Path(folder), options.also, stack)
            measured = {name: [] for name in servers}
            for _ in range(options.rounds):
                for name, (url, _) in servers.items():
                    measured[name].append(points(asyncio.run(beside_a_long_chat(url, step))))
            print(f"\nA chat of {LONG_PROMPT:,} tokens beside {NUM_BESIDE} streams")
            show(measured, FELT)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 64, 512])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--also", action="append", default=[], metavar="NAME=COMMAND")
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
