"""CPU time a token outside of vLLM's engine core: `make bench NAME=vllm`.

    python -m benchmarks.vllm [--streams 16] [--max-tokens 128] [--logprobs 1] [--hook ...]

- Weir with vLLM in its process (`--engine vllm`);
- vLLM's own server;
- Weir before vLLM's own server, over HTTP (`--engine openai`).

The same model and the same requests for all three. They take turns within one run. The CPU time of all
processes of a side counts, except that of vLLM's engine core and workers. It needs vLLM (`make test-vllm`
installs it), some gigabytes of memory, and minutes to start.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import orjson

from benchmarks.machine import processor
from benchmarks.random_models import make_model

READY_SECONDS = 300.0
MODEL_ARGUMENTS = {"dtype": "float32", "max-model-len": "2048", "max-num-seqs": "64", "enforce-eager": ""}


class Side(NamedTuple):
    """A server, and the processes whose CPU time counts for it."""

    name: str
    url: str
    roots: tuple[int, ...]


def weir(model: Path, port: int, *options: str) -> list[str]:
    return [sys.executable, "-m", "proxy", "serve", "--port", str(port), "--served-model-name", "m", *options]


def arguments(prefix: str) -> list[str]:
    return [part for name, value in MODEL_ARGUMENTS.items() for part in (f"--{prefix}{name}", value) if part]


@contextmanager
def running(command: list[str], log: Path) -> Iterator[int]:
    """The process id of a command that runs until the end of the context, with all that it started."""
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"} | dict(os.environ)
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True, env=environment)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def processes_of(root: int) -> Iterator[int]:
    """The process and those below it, but for vLLM's engine core and what it started."""
    try:
        if b"VLLM::" in Path(f"/proc/{root}/cmdline").read_bytes():
            return
        tasks = list(Path(f"/proc/{root}/task").iterdir())
        children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    except FileNotFoundError:  # it has ended
        return
    yield root
    for child in children:
        yield from processes_of(child)


def cpu_seconds(roots: Iterable[int]) -> float:
    """Of all threads that live."""
    tasks = [
        task for root in roots for pid in processes_of(root) for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


async def ready(side: Side, http: aiohttp.ClientSession) -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        try:
            async with http.get(f"{side.url}/health") as response:
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.5)
    raise SystemExit(f"{side.name} did not start")


async def stream(side: Side, http: aiohttp.ClientSession, body: dict[str, object]) -> int:
    """The tokens of one answer, by its usage."""
    last = b""
    async with http.post(f"{side.url}/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: {"):
                last = line
    num: int = orjson.loads(last[len(b"data: ") :])["usage"]["completion_tokens"]
    return num


async def turn(side: Side, http: aiohttp.ClientSession, options: argparse.Namespace, number: int) -> float:
    """Microseconds of CPU a token."""
    body = {
        "model": "m",
        "max_tokens": options.max_tokens,
        "logprobs": options.logprobs,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    bodies = [body | {"prompt": f"{number} {i} tell me a story of the river"} for i in range(options.streams)]
    before = cpu_seconds(side.roots)
    tokens = sum(await asyncio.gather(*(stream(side, http, one) for one in bodies)))
    assert tokens == options.streams * options.max_tokens
    return (cpu_seconds(side.roots) - before) / tokens * 1e6


async def measure(sides: list[Side], options: argparse.Namespace) -> None:
    timeout, connector = aiohttp.ClientTimeout(total=None), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=2**20) as http:
        for side in sides:
            await ready(side, http)
        costs: dict[str, list[float]] = {side.name: [] for side in sides}
        for number in range(options.repetitions + 1):
            for side in sides:
                cost = await turn(side, http, options, number)
                if number:  # the first turn warms up
                    costs[side.name].append(cost)
                print(f"{number:3} {side.name:32} {cost:7.0f} us a token", flush=True)
    own = statistics.median(costs[sides[0].name])
    print("\nmedians")
    for name, values in costs.items():
        median = statistics.median(values)
        print(f"{name:32} {median:7.0f} us a token; {sides[0].name} costs {own / median:.2f} of it")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--logprobs", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--port", type=int, default=8700, help="the first of three")
    parser.add_argument("--hook", action="append", default=[], help="for both of Weir's sides")
    options = parser.parse_args()
    print(processor())
    hooks = [part for hook in options.hook for part in ("--hook", hook)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = folder / "model"
        make_model("tiny", "float32", model)
        ports = [options.port + i for i in range(3)]
        own, server, before = (f"http://127.0.0.1:{port}" for port in ports)
        api_server = [
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            str(model),
            "--served-model-name",
            "m",
        ]
        commands = {
            "in-process": weir(
                model, ports[0], "--engine", "vllm", "--model", str(model), *arguments("vllm-"), *hooks
            ),
            "server": [sys.executable, *api_server, "--port", str(ports[1]), *arguments("")],
            "over-http": weir(model, ports[2], "--engine", "openai", "--upstream", f"{server}/v1", *hooks),
        }
        pids = {
            name: stack.enter_context(running(command, folder / name)) for name, command in commands.items()
        }
        sides = [
            Side("weir --engine vllm", own, (pids["in-process"],)),
            Side("vLLM's server", server, (pids["server"],)),
            Side("weir before vLLM's server", before, (pids["over-http"], pids["server"])),
        ]
        asyncio.run(measure(sides, options))


if __name__ == "__main__":
    main()
