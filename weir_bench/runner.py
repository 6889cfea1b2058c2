"""Runs a plan. Measured requests are collected in `Runner.runs`, so that they are there after an
interruption."""

import gc
import resource
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import islice, takewhile

import aiohttp

from weir_bench.client import Client, NoModelError, RequestRecord, first_model
from weir_bench.load import closed_loop, open_loop
from weir_bench.plan import Level, Plan, Run, Target
from weir_bench.progress import Progress
from weir_bench.prompts import Endpoint, request_bodies

_PATHS: Mapping[Endpoint, str] = {"chat": "/chat/completions", "completions": "/completions"}
_NUM_FILES = 65536


class BenchError(Exception):
    """No load can be put on a server: there is no server or no model, or the warm-up failed."""


class Runner:
    def __init__(self, plan: Plan, progress: Progress | None = None) -> None:
        self.plan = plan
        self.runs: list[Run] = []
        self._progress = progress or Progress(disable=True)
        self._clients: dict[str, Client] = {}

    async def run(self) -> None:
        """Run the whole plan. Raises `BenchError` if a server cannot be used."""
        _allow_many_files()
        async with AsyncExitStack() as stack:
            for target in self.plan.targets:
                url = target.url + _PATHS[self.plan.endpoint]
                client = Client(url, api_key=self.plan.api_key, timeout=self.plan.timeout)
                self._clients[target.name] = await stack.enter_async_context(client)
            self.plan = replace(self.plan, targets=[await self._with_model(t) for t in self.plan.targets])
            for target in self.plan.targets:
                await self._warm_up(target)
            for number, level, repetition, target in self.plan.order():
                run = Run(target, level, repetition)
                self.runs.append(run)
                await self._run(run, number)

    async def _run(self, run: Run, number: int) -> None:
        arrivals = self.plan.arrivals(run.level, number)
        num_requests = self.plan.num_requests(run.level) if arrivals is None else len(arrivals)
        bodies = self._bodies(run.target, number)
        if num_requests is not None:
            bodies = iter(list(islice(bodies, num_requests)))  # made before the clock starts
        gc.collect()
        async with self._progress.of(run, num_requests, self.plan.repetitions), self._sender(run) as send:
            if arrivals is not None:
                limit = self.plan.max_concurrency
                await open_loop(send, bodies, arrivals, send.now, max_concurrency=limit)
            else:
                until = self.plan.duration or float("inf")
                in_time = takewhile(lambda _: send.now() < until, bodies)
                await closed_loop(send, in_time, run.level.concurrency or 1)

    @asynccontextmanager
    async def _sender(self, run: Run) -> AsyncIterator["_Sender"]:
        sender = _Sender(run, self._clients[run.target.name])
        cpu = time.process_time()
        try:
            yield sender
        finally:
            run.duration = sender.now()
            run.client_cpu = (time.process_time() - cpu) / run.duration

    async def _warm_up(self, target: Target) -> None:
        run = Run(target, Level(concurrency=self.plan.num_warmups))
        bodies = islice(self._bodies(target, 0), self.plan.num_warmups)
        await closed_loop(_Sender(run, self._clients[target.name]), bodies, self.plan.num_warmups)
        for failure in filter(None, (record.failure for record in run.records)):
            raise BenchError(f"{target.name}: warm-up failed: {failure.kind}: {failure.message}")

    def _bodies(self, target: Target, number: int) -> Iterator[bytes]:
        fields = {"model": target.model, **self.plan.fields}
        return request_bodies(self.plan.prompts, number, self.plan.endpoint, fields)

    async def _with_model(self, target: Target) -> Target:
        if target.model is not None:
            return target
        try:
            return replace(target, model=await first_model(self._clients[target.name].session, target.url))
        except (NoModelError, aiohttp.ClientError, TimeoutError) as error:
            raise BenchError(f"{target.name}: {target.url}: {error}") from error


class _Sender:
    """Sends the requests of a loop, and keeps their records. Its clock starts when it is made."""

    def __init__(self, run: Run, client: Client) -> None:
        self._run = run
        self._client = client
        self._began = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._began

    async def __call__(self, body: bytes, due: float | None) -> None:
        sent = self.now()
        record = RequestRecord(sent=sent, due=sent if due is None else due)
        self._run.open.add(record)
        try:
            await self._client.send(body, record, self.now)
            self._run.records.append(record)
        finally:
            self._run.open.discard(record)


def _allow_many_files() -> None:
    """Each stream is a connection, and most systems let a process begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _NUM_FILES if hard == resource.RLIM_INFINITY else min(_NUM_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
