"""The soak: the servers, what breaks, and what is compared."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from engine.streams.recording import Recording
from tools.abuse.measure import GAUGES, PROBE, calm, counts, metrics
from tools.abuse.server import ROOT, Served, served
from tools.abuse.soak import upstream
from tools.abuse.soak.traffic import ACTIONS, SECRET, WITH_TOKENIZER, Caller, Report, act, leaks_in

KEYS = [f"key-{number}" for number in range(4)]
MAX_STORED = 40
SAMPLE_SECONDS = 5.0
SHUTDOWN_SECONDS = 10.0

GUARDS = f"""\
api_key: [{", ".join(KEYS)}]
shutdown_timeout: {SHUTDOWN_SECONDS:g}
max_stored_responses: {MAX_STORED}
log_level: warning
hooks:
  - path: phrases
    args: {{phrases: [{SECRET!r}, bluebird], word_boundaries: false}}
  - pii
  - secrets
  - repetition
  - path: audit
    args: {{path: FOLDER/audit-NAME.jsonl, max_size: 100000, keep: 2, include_text: true}}
"""
RECORDED = tuple(
    [dict(message) for message in Recording.load(file).request.messages]
    for file in sorted((ROOT / "tests" / "recordings").glob("*.jsonl"))
)
"""The chats that the replay answers."""
ALLOWED = f"allowed_hooks: [{PROBE}]\n"
"""For the servers whose hooks run in the service's process. The probe counts what that process holds."""


@dataclass(frozen=True)
class State:
    """All that a server holds while nobody asks."""

    memory: int
    descriptors: int
    children: int
    counts: dict[str, int]
    """Tasks and objects (`hooks.Probe`), and requests and blocks of the engine."""


@dataclass
class Deployment:
    """One of the servers, and what its clients saw."""

    name: str
    config: str
    may_fail: bool = False
    server: Served = field(init=False)
    report: Report = field(default_factory=Report)
    memory: list[int] = field(default_factory=list)
    """A sample every few seconds, in bytes."""

    @property
    def has_probe(self) -> bool:
        return ALLOWED in self.config

    @property
    def has_tokenizer(self) -> bool:
        return "engine:" not in self.config

    async def state(self, http: aiohttp.ClientSession) -> State:
        """Raises `RuntimeError` if the server is not idle after a while."""
        server = self.server
        if not await calm(server, http):
            raise RuntimeError(f"{self.name} is not idle: {await metrics(server, http)}")
        held = await counts(server.url, http, KEYS[0]) if self.has_probe else {}
        values = await metrics(server, http)
        held |= {name: int(values.get(name, 0)) for name in GAUGES}
        return State(server.family_memory, server.num_descriptors, len(server.children), held)


def deployments(upstream_url: str) -> list[Deployment]:
    proxied = f"engine: openai\nupstream: {upstream_url}\nrecord: FOLDER/record\nrecord_max_bytes: 1000000\n"
    return [
        # The cache of keys and values counts only once it was written to: a small one is soon full.
        Deployment("local", GUARDS + ALLOWED + "kv_cache_memory: 40000000\n"),
        Deployment("workers", GUARDS + "engine: echo\nhook_workers: 2\n", may_fail=True),
        Deployment("upstream", GUARDS + ALLOWED + proxied, may_fail=True),
        Deployment("replay", GUARDS + ALLOWED + f"engine: replay\nrecordings: {ROOT}/tests/recordings\n"),
    ]


async def soak(seconds: float, folder: Path, num_clients: int, seed: int, max_growth: int) -> list[str]:
    """Run everything. Returns what is wrong."""
    print(f"seed {seed}", flush=True)
    async with AsyncExitStack() as stack:
        hostile = await stack.enter_async_context(upstream.listening(seed))
        running = deployments(hostile.url)
        for one in running:
            config = folder / f"{one.name}.yaml"
            config.write_text(one.config.replace("FOLDER", str(folder)).replace("NAME", one.name))
            one.server = stack.enter_context(served("--config", str(config), folder=folder))
        await _busy(running, seconds / 5, num_clients, seed)
        async with aiohttp.ClientSession() as http:
            before = [await one.state(http) for one in running]
        _print_states("after the warm-up", running, before)
        await _busy(running, seconds * 4 / 5, num_clients, seed + 1)
        async with aiohttp.ClientSession() as http:
            after = [await one.state(http) for one in running]
        _print_states("at the end", running, after)
        errors = [
            f"{one.name}: {error}"
            for one, old, new in zip(running, before, after, strict=True)
            for error in (*grown(old, new, max_growth), *_wrong(one))
        ]
        return [*errors, *[f"{one.name}: {error}" for one in running for error in await _ended(one)]]


async def _busy(running: list[Deployment], seconds: float, num_clients: int, seed: int) -> None:
    """Traffic and faults for so many seconds."""
    async with AsyncExitStack() as stack:
        for one in running:
            for number in range(num_clients):
                caller = await stack.enter_async_context(_caller(one, number, f"{seed}/{one.name}/{number}"))
                actions = WITH_TOKENIZER if one.has_tokenizer else ACTIONS
                await stack.enter_async_context(_going(act(caller, actions)))
            await stack.enter_async_context(_going(_sample(one)))
        workers = next(one for one in running if one.name == "workers")
        await stack.enter_async_context(_going(_break(workers.server, random.Random(seed))))
        await asyncio.sleep(seconds)
    workers.server.limit_file_size(-1)


@asynccontextmanager
async def _caller(one: Deployment, number: int, seed: str) -> AsyncIterator[Caller]:
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        key = KEYS[number % len(KEYS)]
        chats = RECORDED if one.name == "replay" else ()
        yield Caller(one.server.url, key, http, one.report, random.Random(seed), chats, one.may_fail)


@asynccontextmanager
async def _going(work: Awaitable[None]) -> AsyncIterator[None]:
    """Do `work` until the body of the `async with` ends. An error of the work ends the body, too."""
    async with asyncio.TaskGroup() as tasks:

        async def run() -> None:
            await work

        task = tasks.create_task(run())
        try:
            yield
        finally:
            task.cancel()


async def _sample(one: Deployment) -> None:
    while True:
        one.memory.append(one.server.family_memory)
        await asyncio.sleep(SAMPLE_SECONDS)


async def _break(server: Served, rng: random.Random) -> None:
    """Kill a worker, or fill the disk, again and again."""
    while True:
        await asyncio.sleep(2 + rng.random() * 4)
        if rng.random() < 0.6:
            if workers := server.children:
                os.kill(rng.choice(workers), rng.choice((signal.SIGKILL, signal.SIGTERM)))
        else:
            server.limit_file_size(1)
            await asyncio.sleep(1)
            server.limit_file_size(-1)


def grown(old: State, new: State, max_growth: int) -> list[str]:
    errors = []
    if new.memory > old.memory + max_growth:
        errors.append(f"memory grew by {(new.memory - old.memory) / 1e6:.0f} MB")
    if new.descriptors > old.descriptors + 2:
        errors.append(f"descriptors grew from {old.descriptors} to {new.descriptors}")
    if new.children > old.children:
        errors.append(f"processes grew from {old.children} to {new.children}")
    for name, count in new.counts.items():
        limit = MAX_STORED if name == "StoredResponse" else old.counts[name]
        if count > limit:
            errors.append(f"{name} grew from {old.counts[name]} to {count}")
    return errors


def _wrong(one: Deployment) -> list[str]:
    """The findings of clients and of the log about the server."""
    log = one.server.log.read_bytes()
    errors = list(one.report.examples)
    if one.report.num_leaked:
        errors.append(f"{one.report.num_leaked} characters of secrets leaked to clients")
    if leaked := leaks_in(log):
        errors.append(f"{leaked} characters of secrets are in the log")
    errors += [
        f"the log contains {words.decode()!r}"
        for words in (b"internal error", b"was never retrieved", b"was never awaited", b"Task was destroyed")
        if words in log
    ]
    return errors


async def _ended(one: Deployment) -> list[str]:
    """End the server, as a supervisor does."""
    began = time.monotonic()
    one.server.process.terminate()
    try:
        async with asyncio.timeout(SHUTDOWN_SECONDS + 10):
            code = await asyncio.to_thread(one.server.process.wait)
    except TimeoutError:
        return ["SIGTERM does not end it"]
    took = time.monotonic() - began
    return [f"exit code {code} after {took:.0f} s"] if code else []


def _print_states(when: str, running: list[Deployment], states: list[State]) -> None:
    print(f"\n{when}")
    for one, state in zip(running, states, strict=True):
        counts = "  ".join(f"{name.removeprefix('weir_')} {num}" for name, num in state.counts.items())
        megabytes = f"{state.memory / 1e6:.0f} MB (most {max(one.memory, default=0) / 1e6:.0f})"
        print(f"  {one.name:<9} {megabytes:<22} {state.descriptors} descriptors  {counts}")
        print(f"  {'':<9} {dict(sorted(one.report.statuses.items()))}, {one.report.num_cut} cut", flush=True)
