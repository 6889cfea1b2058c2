"""The whole service on a simulated device: HTTP, a guard, and a client in a process of its own."""

import asyncio
import json
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

from benchmarks.hooks import BODY, PATH
from benchmarks.simulated_device.device import SimulatedDevice, WallClock, load_runner
from engine.execution.model_runner import ModelRunner
from engine.local.engine import LocalEngine
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from hooks.builtin.pii import Pii
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from proxy.deployment.deployment import Deployment
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings

STREAMS = (1, 16, 64, 256)
TOKENS, TOKENS_ALONE = 200, 800
"""Tokens of each stream among others, and of one alone."""
HOOKS: dict[str, list[str]] = {"none": [], "pii": ["pii"]}


@dataclass(frozen=True)
class ServiceFigures:
    busy: float
    """Percent of the time in which the device works."""
    tokens: float
    """A second."""
    process_us: float
    """Processor time for a token: of the process, the engine's thread, and the event loop."""
    engine_us: float
    loop_us: float


async def measure() -> dict[str, dict[str, dict[str, float]]]:
    """The figures by hook and number of streams."""
    device = SimulatedDevice(WallClock())
    config = EngineConfig(
        model=str(MODEL_DIR),
        num_threads=1,
        max_num_seqs=max(STREAMS),
        kv_cache_memory=2**29,
        async_scheduling=True,
    )
    pipeline = Pipeline(allowed=[LoadedHook("pii", Pii(), is_async=False)])
    settings = ServeSettings(port=0)
    with device.serving_copies(), patch.object(ModelRunner, "load", load_runner(device)):
        server = Server(
            Deployment.of_one(LocalEngine(config), pipeline, settings.base_model, ["m"]), settings
        )
        url = await server.start()
        found: dict[str, dict[str, dict[str, float]]] = {}
        for name, hooks in HOOKS.items():
            for number in STREAMS:
                await _measure(device, url, hooks, number)  # warms up
                figures = await _measure(device, url, hooks, number)
                rounded = {key: round(value, 1) for key, value in asdict(figures).items()}
                found.setdefault(name, {})[str(number)] = rounded
        await server.stop()
    return found


async def _measure(device: SimulatedDevice, url: str, hooks: list[str], num_streams: int) -> ServiceFigures:
    max_tokens = TOKENS_ALONE if num_streams == 1 else TOKENS
    sampling = {"max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}
    body = json.dumps({**BODY, **sampling, "hooks": hooks})
    thread = next(t for t in threading.enumerate() if t.name == "weir-engine")
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)

    def times() -> tuple[float, float, float]:
        return time.process_time(), time.clock_gettime(clock), time.thread_time()

    device.reset()
    before = times()
    client = ("-m", "benchmarks.simulated_device.client", url + PATH, str(num_streams), body)
    process = await asyncio.create_subprocess_exec(sys.executable, *client, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    after = times()
    seconds = json.loads(printed)["seconds"]
    num_tokens = num_streams * max_tokens
    process_us, engine_us, loop_us = (
        1e6 * (end - begin) / num_tokens for begin, end in zip(before, after, strict=True)
    )
    busy = 100 * device.busy_seconds / seconds
    return ServiceFigures(busy, num_tokens / seconds, process_us, engine_us, loop_us)


def print_figures(figures: dict[str, Any]) -> None:
    print("the whole service     streams   busy %   tokens/s   µs a token: process   engine     loop")
    for name, by_number in figures.items():
        for number, found in by_number.items():
            times = "".join(f"{found[key]:9.1f}" for key in ("process_us", "engine_us", "loop_us"))
            figures_of_device = f"{found['busy']:8.1f} {found['tokens']:10,.0f}"
            print(f"  hook: {name:12} {number:>8} {figures_of_device}            {times}")
