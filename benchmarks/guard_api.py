"""What a gateway's questions about a stream cost: `make bench NAME=guard_api`.

    python -m benchmarks.guard_api [--rounds 400] [--piece 20] [--streams 64] [--open 2000]
        [--length 1000 4000]

A server without an engine judges texts for LiteLLM with `pii`, `secrets` and `phrases`. Each question has the
whole text so far. Shown are:

- the processor time of a stream of `rounds` questions in the hooks, beside one pass over its text;
- the time of a question about `piece` new characters in a text of 4,000, while `streams` other texts are open
  and get a question each in turn;
- the memory of `open` texts of `length` characters, whose guards are all open, for each length.
"""

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from benchmarks.guards import PROSE
from benchmarks.machine import processor
from engine.protocol import Delta, GenerationRequest, Token
from hooks.loading.loader import HookSpec
from hooks.pipeline.pipeline import Pipeline

PATH = "/beta/litellm_basic_guardrail_api"
LENGTH = 4000
TOKEN = 4
PHRASES = ["blue bird", "project bluebird", "the crown jewels"]
CONFIG = f"""
engine: none
guard_api: litellm
hooks: [pii, secrets, {{path: phrases, args: {{phrases: {PHRASES}}}}}]
"""


@contextmanager
def serving() -> Iterator[tuple[str, int]]:
    """A server's address, and its process."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(CONFIG)
        file.flush()
        options = ["--config", file.name, "--port", "0", "--no-access-log"]
        command = [sys.executable, "-m", "proxy", "serve", *options]
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout
            found = re.search(r"http://[\w.:]+", process.stdout.readline())
            assert found
            print(f"started in {time.monotonic() - started:.2f} s")
            yield found[0] + PATH, process.pid
        finally:
            process.terminate()
            process.wait()


def memory(pid: int) -> float:
    """Resident MB."""
    with open(f"/proc/{pid}/status") as status:
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read())
    assert found
    return int(found[1]) / 1024


def texts(length: int, piece: int) -> list[str]:
    """A text that grows by `piece` characters."""
    text = (PROSE * (length // len(PROSE) + 1))[:length]
    return [text[:end] for end in range(piece, length + 1, piece)]


async def ask(http: aiohttp.ClientSession, url: str, call: str, text: str) -> float:
    """The seconds of one question."""
    body = {"input_type": "response", "texts": [text], "litellm_call_id": call, "request_data": {}}
    started = time.perf_counter()
    async with http.post(url, json=body) as answer:
        said = await answer.json()
    assert said["action"] in ("NONE", "GUARDRAIL_INTERVENED"), said
    return time.perf_counter() - started


async def in_hooks(num_rounds: int, piece: int) -> tuple[float, float, float]:
    """Processor seconds of one pass over a text in tokens, of one in the rounds' pieces, and of the rounds,
    each of which also looks ahead."""
    specs = [HookSpec("pii"), HookSpec("secrets"), HookSpec("phrases", {"phrases": PHRASES})]
    pipeline = await Pipeline.load(specs)
    request = GenerationRequest(request_id="r", model="m", endpoint="guard")
    *_, text = texts(num_rounds * piece, piece)

    async def read(length: int, looks_ahead: bool = False) -> float:
        pieces = [text[start : start + length] for start in range(0, len(text), length)]
        started = time.process_time()
        guard = pipeline.open(request)
        for one in pieces:
            delta = Delta(text=one, tokens=(Token(1, one, one.encode()),))
            await guard.feed(delta)
            if looks_ahead:
                await guard.look_ahead()
        await guard.feed(Delta(finish_reason="stop"))
        return time.process_time() - started

    await read(piece, True)  # the automata are built
    passes = [(await read(TOKEN), await read(piece), await read(piece, True)) for _ in range(7)]
    in_tokens, once, rounds = (statistics.median(column) for column in zip(*passes, strict=True))
    return in_tokens, once, rounds


async def measure(options: argparse.Namespace) -> None:
    in_tokens, once, rounds = await in_hooks(options.rounds, options.piece)
    print(
        f"hooks, a stream of {options.rounds} rounds: {rounds * 1e3:.1f} ms; one pass in tokens of {TOKEN} "
        f"characters: {in_tokens * 1e3:.1f} ms; one pass in pieces of {options.piece}: {once * 1e3:.1f} ms"
    )
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        with serving() as (url, _):
            await measure_rounds(http, url, options)
        for length in options.length:
            with serving() as (url, pid):
                await measure_memory(http, url, pid, length, options)


async def measure_rounds(http: aiohttp.ClientSession, url: str, options: argparse.Namespace) -> None:
    growing = texts(LENGTH, options.piece)
    for call in range(options.streams):
        for text in growing[:2]:
            await ask(http, url, f"beside {call}", text)
    seconds = []
    for call in range(10):
        for i, text in enumerate(growing):
            taken = await ask(http, url, f"call {call}", text)
            if len(text) > LENGTH - 20 * options.piece:
                seconds.append(taken)
            at = min(2 + (call * len(growing) + i) // options.streams, len(growing) - 1)
            await ask(http, url, f"beside {i % options.streams}", growing[at])
    seconds.sort()
    p50, p99 = (1e3 * seconds[int(len(seconds) * share)] for share in (0.5, 0.99))
    beside = f"beside {options.streams} open texts"
    print(f"{options.piece} characters in {LENGTH}, {beside}: p50 {p50:.2f} ms, p99 {p99:.2f} ms")


async def measure_memory(
    http: aiohttp.ClientSession, url: str, pid: int, length: int, options: argparse.Namespace
) -> None:
    """The texts grow in turn, in rounds of five tokens: one that is idle for a minute counts as ended."""
    growing = texts(length, options.piece)
    for text in growing[:2]:
        await ask(http, url, "first", text)
    before = memory(pid)
    for text in growing:
        for call in range(options.open):
            await ask(http, url, f"open {call}", text)
    more = memory(pid) - before
    each = more / options.open * 1e3
    print(f"{options.open} open texts of {length} characters: {more:.0f} MB, {each:.0f} KB each", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--piece", type=int, default=20)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--open", type=int, default=2000)
    parser.add_argument("--length", type=int, nargs="+", default=[1000, 4000])
    options = parser.parse_args()
    print(processor())
    asyncio.run(measure(options))


if __name__ == "__main__":
    main()
