"""A service in front of upstreams that die and come back, while clients leave: all over real sockets."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import Any

import aiohttp
import pytest

from engine.upstream.pool.engine import PoolEngine
from hooks import Chunk, Verdict, emit
from proxy.deployment.engines import make_engine
from tests.engine.upstream.conftest import FakeUpstream, fake_upstream
from tests.helpers import Script, pooled, until
from tests.proxy.conftest import CHAT, Client, Serve

CHATS = "/v1/chat/completions"
AT_ONCE = 24
WORDS = 8


def answer_to(question: str) -> list[str]:
    return [f"{question}:{number} " for number in range(WORDS)]


def script(body: dict[str, Any]) -> Iterator[Any]:
    for text in answer_to(body["messages"][0]["content"]):
        yield {"choices": [{"index": 0, "delta": {"content": text}}]}
        yield 0.0
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    yield b"data: [DONE]\n\n"


class Mortal:
    """An upstream that dies, with all its connections, and comes back on the same port."""

    def __init__(self) -> None:
        self._life = AsyncExitStack()
        self._fake: FakeUpstream | None = None
        self.port = 0

    async def live(self) -> None:
        self._fake = await self._life.enter_async_context(fake_upstream(self.port))
        self._fake.script = script
        self.port = int(self._fake.url.rpartition(":")[2])

    async def die(self) -> None:
        fake, self._fake = self._fake, None
        for transport in fake.connections if fake else ():
            if transport is not None:
                transport.abort()
        await self._life.aclose()

    async def change(self) -> None:
        await (self.live() if self._fake is None else self.die())


class Traffic:
    """Requests of clients, many of whom leave, and what the hook was shown."""

    def __init__(self, number: int, seed: int) -> None:
        self.number = number
        self.random = random.Random(seed)
        self.seen: defaultdict[str, list[Chunk]] = defaultdict(list)
        self.num_ended = 0
        self.whole = 0
        self._place = asyncio.Semaphore(AT_ONCE)

    def hook(self, chunk: Chunk) -> Verdict:
        self.seen[chunk.request_id].append(chunk)
        return emit(chunk.pending)

    async def run(self, client: Client) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.number):
                await self._place.acquire()
                group.create_task(self._one(client, f"q{number}"))

    async def _one(self, client: Client, question: str) -> None:
        try:
            with suppress(aiohttp.ClientError, TimeoutError):
                await self._ask(client, question, leaves_after=self.random.choice([None, None, 0, 1, 3, 9]))
        finally:
            self.num_ended += 1
            self._place.release()

    async def _ask(self, client: Client, question: str, leaves_after: int | None) -> None:
        body = {**CHAT, "messages": [{"role": "user", "content": question}], "stream": True}
        if leaves_after == 0:
            async with asyncio.timeout(self.random.random() / 100):
                await client.post(CHATS, body)
        async with client.http.post(client.url + CHATS, json=body) as response:
            received = b""
            while data := await response.content.readany():
                received += data
                if leaves_after is not None and received.count(b"data: ") > leaves_after:
                    return
            self.whole += answer_to(question)[-1].encode() in received


@asynccontextmanager
async def disturbed(upstreams: list[Mortal], traffic: Traffic) -> AsyncIterator[None]:
    """Meanwhile an upstream dies or comes back whenever some requests have ended."""

    async def disturb() -> None:
        for ended in count(20, 20):
            await until(lambda ended=ended: traffic.num_ended >= ended)
            await traffic.random.choice(upstreams).change()

    task = asyncio.get_running_loop().create_task(disturb())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("number", [200, pytest.param(2000, marks=pytest.mark.slow)])
async def test_nothing_is_left_over_and_no_hook_sees_a_text_twice(serve: Serve, number: int) -> None:
    upstreams = [Mortal() for _ in range(3)]
    traffic = Traffic(number, seed=number)
    for upstream in upstreams:
        await upstream.live()
    urls: Any = [f"http://127.0.0.1:{upstream.port}" for upstream in upstreams]
    engine = make_engine(pooled(upstream=urls, upstream_health_interval=0.05, routing="least"))
    assert isinstance(engine, PoolEngine)
    client = await serve(engine, Script(traffic.hook), names=[])
    traffic.seen.clear()  # of the self-test
    async with disturbed(upstreams, traffic):
        await traffic.run(client)
    await until(lambda: engine.stats().num_running == 0)
    replicas = engine.stats().replicas.values()
    assert [replica.outstanding for replica in replicas] == [0, 0, 0]
    outcomes = sum((Counter(replica.outcomes) for replica in replicas), Counter())
    assert outcomes["failed"]
    assert outcomes["closed"]
    assert sum(replica.retries_total for replica in replicas)
    assert traffic.whole > number / 10
    for chunks in traffic.seen.values():
        assert_seen_once(chunks)
    for upstream in upstreams:
        await upstream.die()


def assert_seen_once(chunks: list[Chunk]) -> None:
    """One stream, in order, with one last call, of one upstream's answer."""
    assert [chunk.is_final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    question = chunks[0].request.messages[0]["content"]
    text = "".join(chunk.text_diff for chunk in chunks)
    assert "".join(answer_to(str(question))).startswith(text)
    assert text == chunks[-1].text
