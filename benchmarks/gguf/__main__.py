"""Weir and llama.cpp on the same GGUF file: tokens a second, guards' share, perplexity and memory.

    python -m benchmarks.gguf build/models/smollm2.gguf [--llama-python .venv-llama/bin/python]

Weir answers over HTTP, without hooks and with `pii` and `secrets`; llama.cpp decodes its batches without a
server (`llama-cpp-python`, built from source). All take turns on the same prompts. One server of Weir answers
with and without guards, which share no prompt in its cache. Answers are greedy, and have 192 tokens whatever
the model writes. The ratios are Weir's rate over llama.cpp's, and the guards' over Weir's, as medians of the
turns.
"""

import argparse
import asyncio
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import orjson
from transformers import PreTrainedTokenizerBase

from benchmarks.machine import processor
from benchmarks.vllm import Side, ready, running
from engine.sources.transformers_files import read_tokenizer

HERE = Path(__file__).parent
TEXT = HERE.parents[1] / "LICENSE"
PROMPTS = HERE.parents[1] / "docs"
NUM_TOKENS, PROMPT_TOKENS, SHORT_TOKENS = 192, 512, 32
CONTEXT = 8192
GUARDS = ["pii", "secrets"]


@dataclass(frozen=True, slots=True)
class Task:
    prompts: Sequence[Sequence[int]]
    num_tokens: int


class System(Protocol):
    async def seconds(self, task: Task) -> float:
        """The time from the first request to the last token."""
        ...

    async def logprobs(self, tokens: Sequence[int]) -> Sequence[float]:
        """The logprob of each token after the first, given those before it. Unit: nats."""
        ...


class Llama:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def seconds(self, task: Task) -> float:
        return float((await self._ask(task))["seconds"])

    async def logprobs(self, tokens: Sequence[int]) -> Sequence[float]:
        found: Sequence[float] = (await self._ask(Task([tokens], 0)))["logprobs"]
        return found

    async def _ask(self, task: Task) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = orjson.dumps({"prompts": task.prompts, "num_tokens": task.num_tokens})
        self._process.stdin.write(line + b"\n")
        answer = await self._process.stdout.readline()
        if not answer:
            raise SystemExit("llama.cpp ended")
        found: dict[str, Any] = orjson.loads(answer)
        return found


class Weir:
    """It is asked as people ask it, by chats. The template's tokens are not counted."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        tokenizer: PreTrainedTokenizerBase,
        hooks: Sequence[str] = (),
    ) -> None:
        self._http = http
        self._tokenizer = tokenizer
        self._url = f"{url}/v1"
        self._fields = {"model": "m", "hooks": hooks, "cache_salt": "-".join(["m", *hooks])}

    async def seconds(self, task: Task) -> float:
        began = time.perf_counter()
        await asyncio.gather(*(self._stream(prompt, task.num_tokens) for prompt in task.prompts))
        return time.perf_counter() - began

    async def _stream(self, prompt: Sequence[int], num_tokens: int) -> None:
        messages = [{"role": "user", "content": self._tokenizer.decode(list(prompt))}]
        body = {**self._fields, "messages": messages, "max_tokens": num_tokens, "temperature": 0}
        body |= {"ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
        last = b""
        async with self._http.post(f"{self._url}/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data: {"):
                    last = line
        if (num := orjson.loads(last.removeprefix(b"data: "))["usage"]["completion_tokens"]) != num_tokens:
            raise SystemExit(f"a guard ended an answer after {num} tokens")

    async def logprobs(self, tokens: Sequence[int]) -> Sequence[float]:
        body = {**self._fields, "prompt": list(tokens), "max_tokens": 1, "echo": True, "logprobs": 1}
        async with self._http.post(f"{self._url}/completions", json=body) as response:
            response.raise_for_status()
            found: list[float] = (await response.json())["choices"][0]["logprobs"]["token_logprobs"]
        return found[1 : len(tokens)]


@asynccontextmanager
async def llama(python: str, model: Path, threads: int) -> AsyncIterator[Llama]:
    command = [python, str(HERE / "llama_turns.py"), str(model), str(threads)]
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=2**24)
    try:
        assert process.stdout is not None
        if await process.stdout.readline() != b"ready\n":
            raise SystemExit(f"{python} does not run llama.cpp: install llama-cpp-python there")
        yield Llama(process)
    finally:
        with suppress(ProcessLookupError):  # it has ended
            process.kill()
        await process.wait()


def resident(pid: int) -> float:
    """The resident memory of a process, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


class Prompts:
    """Pieces of the pages, as ids, drawn anew each time, so that hardly a prompt is in a cache."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
        pages = (page.read_text() for page in sorted(PROMPTS.glob("*.md")))
        self._ids: list[int] = tokenizer.encode("\n".join(pages))
        self._draw = random.Random(seed)

    def some(self, count: int, length: int) -> list[list[int]]:
        starts = (self._draw.randrange(len(self._ids) - length) for _ in range(count))
        return [self._ids[start : start + length] for start in starts]


async def compare(systems: dict[str, System], tasks: dict[str, list[Task]]) -> None:
    """Print each task's tokens a second and their ratios. `tasks` has a task for each turn; the first turn
    warms up."""
    names = list(systems)
    print(f"\n{'tokens a second':24}", *(f"{name:>16}" for name in names), "   ratios to the one before")
    for title, turns in tasks.items():
        rates: dict[str, list[float]] = {name: [] for name in names}
        for number, task in enumerate(turns):
            for name in names[:: -1 if number % 2 else 1]:
                seconds = await systems[name].seconds(task)
                count = task.num_tokens if task.num_tokens > 1 else len(task.prompts[0])
                if number:
                    rates[name].append(count * len(task.prompts) / seconds)
        ratios = [
            statistics.median(a / b for a, b in zip(rates[name], rates[before], strict=True))
            for before, name in itertools.pairwise(names)
        ]
        medians = (f"{statistics.median(rates[name]):16.1f}" for name in names)
        print(f"{title:24}", *medians, "  ", *(f"{ratio:.2f}" for ratio in ratios), flush=True)


async def measure(options: argparse.Namespace, folder: Path, stack: AsyncExitStack) -> None:
    tokenizer = read_tokenizer(options.model)
    systems: dict[str, System] = {}
    if options.llama_python:
        started = llama(options.llama_python, options.model, options.threads)
        systems["llama.cpp"] = await stack.enter_async_context(started)
    http = await stack.enter_async_context(aiohttp.ClientSession(read_bufsize=2**20))
    config = folder / "weir.yaml"
    config.write_text(json.dumps({"allowed_hooks": GUARDS, "max_model_len": 2048, "max_num_seqs": 16}))
    url = f"http://127.0.0.1:{options.port}"
    command = [
        sys.executable,
        "-m",
        "proxy",
        "serve",
        "--model",
        str(options.model),
        "--served-model-name",
        "m",
    ]
    command += ["--port", str(options.port), "--config", str(config), *options.weir]
    pid = stack.enter_context(running(command, folder / "log"))
    await ready(Side("Weir", url, ()), http)
    systems |= {"Weir": Weir(http, url, tokenizer), "Weir, guarded": Weir(http, url, tokenizer, GUARDS)}
    print(f"\nresident memory before the first request: {resident(pid):.0f} MB", flush=True)
    text = tokenizer.encode(TEXT.read_text())[: options.perplexity_tokens]
    print(f"\nperplexity of {len(text)} tokens of {TEXT.name}:")
    for name, system in systems.items():
        print(f"  {name}: {math.exp(-statistics.fmean(await system.logprobs(text))):.4f}", flush=True)
    prompts = Prompts(tokenizer, options.seed)
    turns = range(options.repetitions + 1)
    tasks = {
        f"{count} streams of {NUM_TOKENS}": [
            Task(prompts.some(count, SHORT_TOKENS), NUM_TOKENS) for _ in turns
        ]
        for count in map(int, options.streams.split(","))
    }
    tasks[f"prompt of {PROMPT_TOKENS}"] = [Task(prompts.some(1, PROMPT_TOKENS), 1) for _ in turns]
    await compare(systems, tasks)


async def run(options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        await measure(options, Path(stack.enter_context(tempfile.TemporaryDirectory())), stack)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama-python", help="a Python that has llama-cpp-python; without it, Weir alone")
    parser.add_argument("--streams", default="1,4,8")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of llama.cpp")
    parser.add_argument("--perplexity-tokens", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=8740, help="of Weir")
    parser.add_argument("--weir", type=json.loads, default=[], help="more options of Weir: '[\"--int8\"]'")
    options = parser.parse_args()
    print(processor(), flush=True)
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
