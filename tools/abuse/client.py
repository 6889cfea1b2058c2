"""A well-behaved client: `/health` ten times a second, and a short streamed chat again and again.

It runs in a process of its own, so that an attack in this process does not slow it, and it has an address of
its own. `python -m tools.abuse.client URL KEY` reads lines from standard input. At each line it answers with
what it saw since the line before, as JSON.
"""

import argparse
import asyncio
import dataclasses
import itertools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

import aiohttp
import orjson

from benchmarks.load.client import Client, RequestRecord
from tools.abuse.server import ROOT

ADDRESS = "127.0.0.2"
"""Not the address that attacks come from."""
TIMEOUT = 120.0
"""Seconds that one request may take."""
HEALTH_PERIOD = 0.1
CHAT_PAUSE = 0.1
CHAT_TOKENS = 8


@dataclass
class Seen:
    """The client's record of a while. A request that has no answer yet counts with the time it has waited."""

    health: list[float] = field(default_factory=list)
    """Seconds to each answer of `/health`."""
    ttft: list[float] = field(default_factory=list)
    """Seconds to each chat's first token."""
    failures: dict[str, int] = field(default_factory=dict)
    """Answers that were no success, by kind: `HTTP 429`, `connection`, `timeout` and so on."""


class FreshClient(Client):
    """A client with a new connection for each request, as a new user has."""

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, force_close=True, local_addr=(ADDRESS, 0))
        self.session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=self._timeout
        )
        return self


class WellBehaved:
    """The two loops of the client, and what they have seen."""

    def __init__(self, url: str, client: FreshClient, *, asks_schema: bool = False) -> None:
        self._url = url
        self._client = client
        self._asks_schema = asks_schema
        self._seen = Seen()
        self._failures: Counter[str] = Counter()
        self._waits: dict[str, float] = {}
        """When the request in flight was sent: of `health` and `ttft`."""
        self._numbers = itertools.count()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask_health())
            tasks.create_task(self._chat())

    def taken(self) -> Seen:
        """The record since the last call."""
        seen, self._seen = self._seen, Seen()
        failures, self._failures = self._failures, Counter()
        now = time.perf_counter()
        for name, sent in self._waits.items():
            getattr(seen, name).append(now - sent)
        seen.failures = dict(failures)
        return seen

    @contextmanager
    def _waiting(self, name: str) -> Iterator[None]:
        self._waits[name] = time.perf_counter()
        try:
            yield
        finally:
            self._waits.pop(name, None)

    async def _ask_health(self) -> None:
        while True:
            due = time.perf_counter() + HEALTH_PERIOD
            with self._waiting("health"):
                sent = time.perf_counter()
                try:
                    async with self._client.session.get(self._url + "/health") as response:
                        await response.read()
                    if response.status != 200:
                        self._failures[f"health: HTTP {response.status}"] += 1
                except (aiohttp.ClientError, OSError, TimeoutError):
                    self._failures["health: connection"] += 1
            self._seen.health.append(time.perf_counter() - sent)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    async def _chat(self) -> None:
        while True:
            record = RequestRecord(sent=time.perf_counter())
            with self._waiting("ttft"):
                await self._client.send(self._body(), record, time.perf_counter)
            if record.times:
                self._seen.ttft.append(record.ttft)
            if record.failure:
                self._failures[f"chat: {record.failure.kind}"] += 1
            await asyncio.sleep(CHAT_PAUSE)

    def _body(self) -> bytes:
        body = {
            "messages": [{"role": "user", "content": "Tell me a story about an otter"}],
            "max_tokens": CHAT_TOKENS,
            "stream": True,
        }
        if self._asks_schema:
            schema = {"type": "object", "properties": {f"p{next(self._numbers)}": {"type": "integer"}}}
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        return orjson.dumps(body)


async def _main(url: str, key: str, asks_schema: bool) -> None:
    loop = asyncio.get_running_loop()
    async with FreshClient(url + "/v1/chat/completions", api_key=key, timeout=TIMEOUT) as client:
        behaved = WellBehaved(url, client, asks_schema=asks_schema)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(behaved.run())
            while await loop.run_in_executor(None, sys.stdin.readline):
                print(orjson.dumps(dataclasses.asdict(behaved.taken())).decode(), flush=True)
            running.cancel()


@contextmanager
def well_behaved(url: str, key: str, *, asks_schema: bool = False) -> Iterator[Callable[[], Seen]]:
    """Run the client beside the body of the `with`. The value returns what it saw since the call before."""
    options = ["--asks-schema"] if asks_schema else []
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.abuse.client", url, key, *options],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    questions, answers = process.stdin, process.stdout

    def taken() -> Seen:
        questions.write("\n")
        questions.flush()
        return Seen(**orjson.loads(answers.readline()))

    try:
        taken()  # the client has started
        yield taken
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("key")
    parser.add_argument("--asks-schema", action="store_true")
    arguments = parser.parse_args()
    asyncio.run(_main(arguments.url, arguments.key, arguments.asks_schema))
