"""What a receipt of each answer costs: `make bench NAME=receipts`.

    python -m benchmarks.receipts [--requests 1000] [--streams 16] [--seconds 4] [--rounds 7]

Two servers that differ in `--receipts` alone get the same requests in turns, over real sockets: whole
answers of a few words, which the engine `echo` makes at once, and streams of 400 chunks through Weir from the
upstream of `benchmarks.relay`. Each is measured without hooks, and with `phrases`, `pii` and `secrets`. The
CPU time is that of the server's process, with the thread that signs and writes. A ratio is the median over
the rounds, each of which measures both sides, in changing order.
"""

import argparse
import http.client
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from benchmarks import relay
from benchmarks.machine import processor
from benchmarks.relay import LENGTH, ChunkStream, guards_file, own, running, weir
from benchmarks.workers import read_for

PLAIN, KEPT = "without", "with receipts"
BODY = {"model": "echo", "messages": [{"role": "user", "content": "Where does the heron stand today?"}]}
Measure = Callable[[str, int, argparse.Namespace], float]
"""The server's microseconds of CPU time for a request."""


def cpu_seconds(pid: int) -> float:
    """Of a process and its threads, to the microsecond: the clock that `clock_getcpuclockid` names."""
    return time.clock_gettime((~pid << 3) | 2)


def whole_answers(base_url: str, pid: int, options: argparse.Namespace) -> float:
    return cost_of_requests(base_url, pid, BODY, options.requests)


def cost_of_requests(base_url: str, pid: int, fields: Mapping[str, Any], num_requests: int) -> float:
    """Microseconds of the process's CPU time for a request with these fields, one after another."""
    parts = urlsplit(base_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    body, headers = orjson.dumps(fields), {"Content-Type": "application/json"}

    def ask(times: int) -> None:
        for _ in range(times):
            connection.request("POST", relay.CHAT, body, headers)
            response = connection.getresponse()
            if response.status != 200 or not response.read():
                raise SystemExit(f"the server answered with status {response.status}")

    ask(num_requests // 10)
    before = cpu_seconds(pid)
    ask(num_requests)
    connection.close()
    return float((cpu_seconds(pid) - before) / num_requests * 1e6)


def streams(base_url: str, pid: int, options: argparse.Namespace) -> float:
    parts = urlsplit(base_url)
    opened = [ChunkStream(parts.hostname or "", parts.port or 0, relay.BODY) for _ in range(options.streams)]
    read_for(1.0, opened)
    before, num_before = cpu_seconds(pid), sum(one.num_events for one in opened)
    read_for(options.seconds, opened)
    seconds, num_after = cpu_seconds(pid) - before, sum(one.num_events for one in opened)
    for one in opened:
        one.close()
    return seconds / (num_after - num_before) * LENGTH * 1e6


def compare(
    name: str, commands: Mapping[str, list[str]], measure: Measure, options: argparse.Namespace
) -> None:
    with ExitStack() as stack:
        started = {side: stack.enter_context(running(command)) for side, command in commands.items()}
        costs: dict[str, list[float]] = {side: [] for side in started}
        for number in range(options.rounds):
            for side in [*started][:: 1 if number % 2 else -1]:
                costs[side].append(measure(*started[side], options))
    plain, kept = (statistics.median(costs[side]) for side in (PLAIN, KEPT))
    ratios = [b / a for a, b in zip(costs[PLAIN], costs[KEPT], strict=True)]
    print(
        f"{name:<34}{plain:12,.0f}{kept:16,.0f}{statistics.median(ratios):8.3f}"
        f"   {min(ratios):.3f} to {max(ratios):.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--step", type=float, default=5.0, help="milliseconds between a stream's chunks")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        upstream, _ = stack.enter_context(running(own("--serve-upstream", str(options.step))))
        guards = ["--config", guards_file(folder)]
        echo = [sys.executable, "-m", "proxy", "serve", "--log-level", "error", "--port", "0"]
        echo += ["--engine", "echo"]
        cases = [
            ("a whole answer, no hooks", echo, whole_answers),
            ("a whole answer, three guards", [*echo, *guards], whole_answers),
            (f"a stream of {LENGTH}, no hooks", weir(upstream), streams),
            (f"a stream of {LENGTH}, three guards", weir(upstream, *guards), streams),
        ]
        print(f"{processor()}\n\n{'CPU µs a request':<34}{PLAIN:>12}{KEPT:>16}{'ratio':>8}")
        for number, (case, command, measure) in enumerate(cases):
            kept = [*command, "--receipts", str(folder / str(number))]
            compare(case, {PLAIN: command, KEPT: kept}, measure, options)


if __name__ == "__main__":
    main()
