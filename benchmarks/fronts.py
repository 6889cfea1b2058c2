"""The engine in a process of its own, with none, one and two processes that have HTTP and guards.

    python -m benchmarks.fronts [--rounds 3] [--speeds 1 4]

The device is simulated (`benchmarks.simulated_device`), and is as fast as there or several times faster. All
processes and the client share this machine's cores. `none`: engine, HTTP and guards are in one process.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from benchmarks.hooks import BODY, PATH
from benchmarks.machine import processor
from benchmarks.simulated_device.device import SimulatedDevice, WallClock, load_runner
from benchmarks.workers import cpu_seconds
from engine.execution.model_runner import ModelRunner
from engine.local.engine import LocalEngine
from engine.protocol import Engine
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from engine.text.tokenizer import LocalTokenizer
from hooks.builtin.pii import Pii
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from proxy.deployment.deployment import Deployment
from proxy.deployment.engine_process.host import EngineHost
from proxy.deployment.engine_process.remote import RemoteEngine
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings
from proxy.workers import event_loop

STREAMS = (64, 256)
TOKENS = 200
"""Tokens of each stream."""
FRONTS = (0, 1, 2)
CONFIG = EngineConfig(
    model=str(MODEL_DIR),
    num_threads=1,
    max_num_seqs=max(STREAMS),
    kv_cache_memory=2**29,
    async_scheduling=True,
)


class Figures(NamedTuple):
    tokens: float
    """A second."""
    engine_us: float
    """Processor time for a token: of the engine's process, and of those that serve."""
    fronts_us: float


def simulated(speed: float) -> ExitStack:
    """Inside, models run on a simulated device."""
    torch.set_num_threads(1)
    device = SimulatedDevice(WallClock(), speed=speed)
    stack = ExitStack()
    stack.enter_context(device.serving_copies())
    stack.enter_context(patch.object(ModelRunner, "load", load_runner(device)))
    return stack


async def host(path: Path) -> None:
    engines = EngineHost(lambda _: LocalEngine(CONFIG))
    async with await asyncio.start_unix_server(engines.connect, path):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def front(path: Path | None) -> None:
    settings = ServeSettings(port=0)
    engine: Engine = LocalEngine(CONFIG)
    if path is not None:
        load = partial(LocalTokenizer.of, CONFIG)
        engine = RemoteEngine(path, settings.base_model, load, can_withhold=True)
    pipeline = Pipeline(allowed=[LoadedHook("pii", Pii(), is_async=False)])
    server = Server(Deployment.of_one(engine, pipeline, settings.base_model, ["m"]), settings)
    print(await server.start(), flush=True)
    await asyncio.Event().wait()


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, int]]:
    """The first line that this module's process prints, and its number."""
    command = [sys.executable, "-m", "benchmarks.fronts", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout
        try:
            yield started.stdout.readline().strip(), started.pid
        finally:
            started.terminate()


def measure(urls: list[str], engine: int, fronts: list[int], num_streams: int) -> Figures:
    sampling = {"max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
    body = json.dumps({**BODY, **sampling, "hooks": ["pii"]})
    before = cpu_seconds(engine), sum(map(cpu_seconds, fronts))
    client = ("-m", "benchmarks.simulated_device.client", ",".join(url + PATH for url in urls))
    printed = subprocess.run(
        [sys.executable, *client, str(num_streams), body], capture_output=True, check=True
    )
    after = cpu_seconds(engine), sum(map(cpu_seconds, fronts))
    num_tokens = num_streams * TOKENS
    own, others = (1e6 * (end - begin) / num_tokens for begin, end in zip(before, after, strict=True))
    return Figures(num_tokens / json.loads(printed.stdout)["seconds"], own, others)


def compare(rounds: int, speed: float) -> None:
    found: dict[tuple[int, int], list[Figures]] = {}
    device = "--speeds", str(speed)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        served: dict[int, Any] = {}
        for number in FRONTS:
            if number == 0:
                url, pid = stack.enter_context(process("--front", *device))
                served[0] = [url], pid, []
                continue
            path = f"{folder}/{number}.sock"
            _, pid = stack.enter_context(process("--host", path, *device))
            started = [
                stack.enter_context(process("--front", "--engine", path, *device)) for _ in range(number)
            ]
            served[number] = [url for url, _ in started], pid, [pid for _, pid in started]
        for turn in range(rounds + 1):
            for number, (urls, engine, fronts) in served.items():
                for num_streams in STREAMS:
                    figures = measure(urls, engine, fronts, num_streams)
                    if turn:  # the first one warms up
                        found.setdefault((num_streams, number), []).append(figures)
    print(f"\na device of speed {speed:g}")
    print("streams    fronts   tokens/s  of one process   µs a token: engine   fronts")
    for (num_streams, number), rows in sorted(found.items()):
        alone = found[num_streams, 0]
        ratio = statistics.median(one.tokens / base.tokens for one, base in zip(rows, alone, strict=True))
        tokens, own, others = (statistics.median(column) for column in zip(*rows, strict=True))
        print(
            f"{num_streams:7} {number or 'none':>9} {tokens:10,.0f} {ratio:15.2f} {own:20.1f} {others:8.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--speeds", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--host", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--front", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--engine", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host is not None or options.front:
        with simulated(*options.speeds):
            event_loop.run(front(options.engine) if options.front else host(options.host))
    else:
        print(processor())
        for speed in options.speeds:
            compare(options.rounds, speed)


if __name__ == "__main__":
    main()
