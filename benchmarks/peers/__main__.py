"""Weir beside LiteLLM's proxy and NeMo Guardrails' server, guarding the same answers.

    python -m benchmarks.peers [--cuts 5] [--channels content] [--only leaks,delay,cost,faults]

A local upstream answers through each system with text that holds a phrase, an e-mail address, a card number
or a key, on one channel at a time, cut into pieces in several ways. Printed for each system are what reached
the client, the delay of a stream of pieces 20 ms apart, the CPU time of a piece, and what a client gets if a
guard raises. LiteLLM's and NeMo's environments are `.venv-litellm` and `.venv-nemo`, which `make` makes.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from benchmarks.machine import processor
from benchmarks.peers.client import Received, ask
from benchmarks.peers.systems import LITELLM, NEMO, System, running, systems
from benchmarks.peers.upstream import CHANNELS, VALUES, Answer, make_app
from benchmarks.relay import free_port

PARTS = ("leaks", "delay", "cost", "faults")
STEP_MS = 20
STREAMS, COST_REPEATS = 8, 2
TIMEOUT = aiohttp.ClientTimeout(total=120)

Started = dict[str, tuple[str, int]]


async def leaks(started: Started, num_cuts: int, channels: list[str]) -> None:
    print("\nA forbidden value that reached the client, whole or in part, on any channel")
    values = [value for value in VALUES if value != "none"]
    async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
        for name, (url, _) in started.items():
            print(f"  {name}")
            for channel in channels:
                for is_streaming in (True, False):
                    found: Counter[str] = Counter()
                    for value in values:
                        for cut in range(num_cuts if is_streaming else 1):
                            answer = Answer(value, channel, cut)
                            received = await ask(http, url, answer, is_streaming=is_streaming)
                            found[_outcome(received, answer)] += 1
                    how = "streaming" if is_streaming else "whole"
                    counts = ", ".join(f"{kind} {number}" for kind, number in sorted(found.items()))
                    print(f"    {channel:<10} {how:<10} {counts}", flush=True)


def _outcome(received: Received, answer: Answer) -> str:
    outcome = received.outcome(answer)
    return f"status {received.status}" if received.status != 200 and outcome == "absent" else outcome


async def delay(upstream: str, started: Started, rounds: int = 3) -> None:
    print(
        f"\nPieces {STEP_MS} ms apart: added to the first text, and the longest wait for more (ms, medians)"
    )
    async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ("the upstream", *started)}
        for i in range(rounds):
            for name in times:
                url = started[name][0] if name in started else upstream
                begin = time.perf_counter()
                received = await ask(http, url, Answer("none", "content", i, STEP_MS), is_streaming=True)
                waits = [b - a for a, b in zip(received.times, received.times[1:], strict=False)]
                if received.times:
                    times[name].append((1e3 * (received.times[0] - begin), 1e3 * max(waits, default=0)))
    base = statistics.median(first for first, _ in times["the upstream"])
    for name, own in times.items():
        if own:
            first = statistics.median(first for first, _ in own) - base
            longest = statistics.median(longest for _, longest in own)
            print(f"  {name:<34} first +{first:.0f}   longest wait {longest:.0f}", flush=True)


async def cost(started: Started, rounds: int = 3) -> None:
    print(f"\nCPU microseconds of a piece, {STREAMS} streams at once, a text without a forbidden value")
    answer = Answer("none", "content", 1, 0, COST_REPEATS)
    num_pieces = STREAMS * len(answer.pieces)
    costs: dict[str, list[float]] = {name: [] for name in started}
    async with aiohttp.ClientSession(timeout=TIMEOUT, connector=aiohttp.TCPConnector(limit=0)) as http:
        for _ in range(rounds + 1):
            for name, (url, pid) in started.items():
                before = _cpu_seconds(pid)
                await asyncio.gather(*(ask(http, url, answer, is_streaming=True) for _ in range(STREAMS)))
                costs[name].append(1e6 * (_cpu_seconds(pid) - before) / num_pieces)
    for name, own in costs.items():
        print(f"  {name:<34} {statistics.median(own[1:]):.0f}", flush=True)  # the first round warms up


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of the process and of its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = {int(child) for task in tasks for child in (task / "children").read_text().split()}
    return own + sum(map(_cpu_seconds, children))


async def faults(started: Started) -> None:
    print("\nA guard that raises at each call: what a client gets")
    answer = Answer("key", "content", 1)
    async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
        for name, (url, _) in started.items():
            for is_streaming in (True, False):
                received = await ask(http, url, answer, is_streaming=is_streaming)
                how = "streaming" if is_streaming else "whole"
                length = sum(map(len, received.texts.values()))
                print(
                    f"  {name:<34} {how:<10} status {received.status}, {length} characters of"
                    f" {len(answer.text)}, error {received.error[:60]!r}",
                    flush=True,
                )


@contextmanager
def all_running(some: list[System], folder: Path) -> Iterator[Started]:
    with ExitStack() as stack:
        yield {
            system.name: stack.enter_context(running(system, folder / str(i), free_port()))
            for i, system in enumerate(some)
        }


@contextmanager
def running_upstream() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.peers", "--serve-upstream", str(port)]
    with subprocess.Popen(command) as process:
        try:
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def versions() -> str:
    found = []
    for bin_folder, package in ((LITELLM, "litellm"), (NEMO, "nemoguardrails")):
        code = f"from importlib.metadata import version; print(version('{package}'))"
        version = subprocess.check_output([bin_folder / "python", "-c", code], text=True)
        found.append(f"{package} {version.strip()}")
    return ", ".join(found)


def compare(parts: list[str], num_cuts: int, channels: list[str]) -> None:
    print(f"{processor()}; {versions()}", flush=True)
    with tempfile.TemporaryDirectory() as name, running_upstream() as upstream:
        folder = Path(name)
        if set(parts) - {"faults"}:
            with all_running(systems(upstream, is_raising=False), folder / "guarded") as started:
                if "leaks" in parts:
                    asyncio.run(leaks(started, num_cuts, channels))
                if "delay" in parts:
                    asyncio.run(delay(upstream, started))
                if "cost" in parts:
                    asyncio.run(cost(started))
        if "faults" in parts:
            with all_running(systems(upstream, is_raising=True), folder / "faults") as started:
                asyncio.run(faults(started))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", type=int, default=5)
    parser.add_argument("--channels", default=",".join(CHANNELS))
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--serve-upstream", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_upstream:
        web.run_app(make_app(), host="127.0.0.1", port=options.serve_upstream, print=None)
    else:
        compare(options.only.split(","), options.cuts, options.channels.split(","))


if __name__ == "__main__":
    main()
