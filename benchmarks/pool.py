"""A pool of upstreams that fail, and of upstreams with prefix caches: `make bench NAME=pool`.

    python -m benchmarks.pool [--router PATH/TO/vllm-router] [faults] [affinity] [cost]

- faults: 12 requests at once over two upstreams, one of which fails in one way; how many answers are whole.
  With `--router`, vllm-router does the same beside Weir, once with its circuit breaker and once without.
- affinity: chats of five turns over two Weir upstreams with the model that ships; prompt tokens that the
  upstreams had to compute with `--routing affinity`, as a share of those with `least`.
- cost: CPU time of a chunk through the pool, as a share of the time without it; and of one choice.
"""

import argparse
import asyncio
import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.machine import processor
from engine.protocol import Engine, GenerationRequest, SamplingParams
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.replica import Replica, attempts
from engine.upstream.pool.routing import LeastOutstanding, PrefixAffinity, Routing

REQUESTS = 12
TIMEOUT = 6.0
"""Seconds that a client waits."""
WORDS = ["one ", "two ", "three ", "four ", "five ", "six ", "seven"]
CHATS, TURNS = 24, 5
THINKING = 2.0
"""Most seconds between two turns. Without them, least outstanding would be affinity: the upstream that ends a
turn is the one with the fewest requests when the next turn begins."""
NOUNS = [" tree", " river", " stone", " bird", " cloud", " house", " road", " light", " winter", " music"]
SYSTEM = "You are a helpful assistant of a library. You answer shortly, and you name your sources. " * 3
DONE = b"data: [DONE]\n\n"
WORD = " word"


def frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + orjson.dumps(body) + b"\n\n"


ROLE = frame({"role": "assistant", "content": ""})
TOKENS = [frame({"content": word}) for word in WORDS]
WELL = [ROLE, *TOKENS, frame({}, "stop"), DONE]
ERROR = b'data: {"error": {"message": "it failed", "code": 500}}\n\n'
FAULTS: dict[str, Any] = {
    "503": 503,
    "429": 429,
    "400": 400,
    "200, then hangs": ["hang"],
    "200, cut before the first token": [ROLE, "cut"],
    "200, an error event first": [ERROR, DONE],
    "a role-only frame, then hangs": [ROLE, "hang"],
    "port refused": None,
    "cut after 5 tokens": [ROLE, *TOKENS[:5], "cut"],
}


class Upstream:
    """A server whose answer the benchmark sets."""

    def __init__(self) -> None:
        self.script: Any = WELL
        self.app = web.Application()
        for path in ("/health", "/v1/models", "/get_model_info", "/get_server_info", "/server_info"):
            self.app.router.add_get(path, self.list_models)
        self.app.router.add_post("/v1/chat/completions", self.answer)

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        if isinstance(self.script, int):
            return web.json_response({"error": {"message": "no"}}, status=self.script)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in self.script:
            if part == "hang":
                await asyncio.Event().wait()
            elif part == "cut":
                assert request.transport
                request.transport.abort()
            else:
                await response.write(part)
                await asyncio.sleep(0)
        return response


@asynccontextmanager
async def listening(upstream: Upstream) -> AsyncIterator[str]:
    runner = web.AppRunner(upstream.app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextmanager
def weir(*options: str) -> Iterator[str]:
    """`weir serve` in a process of its own. Its base URL."""
    command = [sys.executable, "-m", "proxy", "serve", "--port", "0", "--log-level", "error", *options]
    with running(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().split(" at ")[1].split("/v1")[0]


@contextmanager
def router(path: str, urls: Sequence[str], *options: str) -> Iterator[str]:
    port = random.randrange(30000, 40000)
    command = [path, "--worker-urls", *urls, "--port", str(port), "--policy", "round_robin"]
    command += ["--prometheus-port", str(port + 1), "--log-level", "error", *options]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with running(command, **quiet):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def ready(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with http.get(url + "/health") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def outcome(http: aiohttp.ClientSession, url: str, number: int) -> str:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"question {number}"}]}
    received = b""
    try:
        async with asyncio.timeout(TIMEOUT):
            async with http.post(url + "/v1/chat/completions", json=body) as response:
                if response.status != 200:
                    return f"error {response.status}"
                while data := await response.content.readany():
                    received += data
    except TimeoutError:
        return "hangs"
    except aiohttp.ClientError:
        return "broken"
    return kind_of(received)


def kind_of(received: bytes) -> str:
    data = [line[6:] for line in received.split(b"\n") if line.startswith(b"data: ")]
    if not data or data[-1] != b"[DONE]":
        return "broken"
    try:
        events = [orjson.loads(one) for one in data[:-1]]
    except orjson.JSONDecodeError:
        return "broken"
    if any("error" in event for event in events):
        return "one error" if events[-1].get("error") else "broken"
    text = "".join(c["delta"].get("content") or "" for event in events for c in event["choices"])
    return {"".join(WORDS): "whole", "": "empty"}.get(text, "wrong")


async def faults(path: str | None) -> None:
    print(f"{REQUESTS} requests at once, two upstreams, one of which fails:")
    for name, script in FAULTS.items():
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(aiohttp.ClientSession())
            good, bad, life = Upstream(), Upstream(), AsyncExitStack()
            urls = [await stack.enter_async_context(listening(good))]
            urls.append(await life.enter_async_context(listening(bad)))
            sides = {"weir": stack.enter_context(weir(*pool_options(urls)))}
            if path:
                sides["vllm-router"] = stack.enter_context(router(path, urls))
                no_breaker = router(path, urls, "--disable-circuit-breaker")
                sides["vllm-router, no breaker"] = stack.enter_context(no_breaker)
            for url in sides.values():
                await ready(http, url)
            bad.script = script
            if script is None:
                await life.aclose()
            for side, url in sides.items():
                ends = await asyncio.gather(*(outcome(http, url, n) for n in range(REQUESTS)))
                counts = ", ".join(f"{ends.count(end)} {end}" for end in sorted(set(ends), reverse=True))
                print(f"  {name:34} {side:24} {counts}", flush=True)
            await life.aclose()


def pool_options(urls: Sequence[str]) -> list[str]:
    upstreams = [f"--upstream={url}" for url in urls]
    return ["--engine=openai", *upstreams, "--routing=least", "--upstream-first-token-timeout=2"]


class Chat:
    """A chat that grows, with words of its own."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._messages: list[dict[str, str]] = [{"role": "system", "content": SYSTEM}]

    async def go_on(self, engine: Engine, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(self._random.random() * THINKING)
            words = "".join(self._random.choice(NOUNS) for _ in range(16))
            self._messages.append({"role": "user", "content": f"Tell me about{words}."})
            sampling = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
            names: dict[str, Any] = {"request_id": "r", "model": "weir-demo", "endpoint": "chat"}
            request = GenerationRequest(**names, messages=tuple(self._messages), sampling=sampling)
            async with aclosing(engine.generate(request)) as deltas:
                text = "".join([delta.text async for delta in deltas])
            self._messages.append({"role": "assistant", "content": text})


async def computed(urls: Sequence[str]) -> int:
    """Prompt tokens that the upstreams had to compute until now."""
    total = 0.0
    async with aiohttp.ClientSession() as http:
        for url in urls:
            async with http.get(url + "/metrics") as response:
                text = await response.text()
            values = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}
            total += values["weir_prefix_cache_queries_total"] - values["weir_prefix_cache_hits_total"]
    return int(total)


@asynccontextmanager
async def pool_of(urls: Sequence[str], routing: Routing) -> AsyncIterator[PoolEngine]:
    engines = [OpenAIEngine(url) for url in urls]
    replicas = [Replica(str(i), engine, probe=engine.probe) for i, engine in enumerate(engines)]
    async with aclosing(PoolEngine(replicas, routing=routing, health_interval=0.2)) as pool:
        await pool.start()
        yield pool


async def affinity() -> None:
    with weir() as one, weir() as other:
        urls = (one, other)
        await tokens_computed(urls)
        await gone_and_back(urls)


async def tokens_computed(urls: Sequence[str]) -> None:
    print(f"{CHATS} chats of {TURNS} turns at once, over two Weir upstreams; prompt tokens computed:")
    routings: dict[str, Routing] = {"least": LeastOutstanding(), "affinity": PrefixAffinity()}
    totals: dict[str, list[int]] = {name: [] for name in routings}
    for number in range(2):
        for name, routing in routings.items():
            async with pool_of(urls, routing) as pool:
                before = await computed(urls)
                chats = [Chat(f"{number} {name} {i}") for i in range(CHATS)]
                await asyncio.gather(*(chat.go_on(pool, TURNS) for chat in chats))
                totals[name].append(await computed(urls) - before)
    least, close = (statistics.median(totals[name]) for name in ("least", "affinity"))
    print(f"  least {totals['least']}, affinity {totals['affinity']}: {close / least:.2f}", flush=True)


async def gone_and_back(urls: Sequence[str]) -> None:
    """The second upstream does not exist for the pool while it is drained: nothing new reaches it."""
    print("one upstream is gone after 4 turns, and back after 8; requests to each, by 4 turns:")
    async with pool_of(urls, PrefixAffinity()) as pool:
        chats = [Chat(f"gone {i}") for i in range(CHATS)]
        before = [0, 0]
        for phase in ("both", "one gone", "back"):
            (pool.drain if phase == "one gone" else pool.resume)("1")
            await asyncio.gather(*(chat.go_on(pool, 4) for chat in chats))
            now = [sum(stats.outcomes.values()) for stats in pool.stats().replicas.values()]
            own = [b - a for a, b in zip(before, now, strict=True)]
            most = max(own) / sum(own) * (1 if phase == "one gone" else 2)
            print(f"  {phase:10} {own}: at most {most:.2f} of a fair share", flush=True)
            before = now


async def cost() -> None:
    command = [sys.executable, "-c", "import asyncio, benchmarks.pool as b; asyncio.run(b.long_answers())"]
    with running(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        alone, pooled = OpenAIEngine(url), PoolEngine([Replica("a", OpenAIEngine(url))])
        async with aclosing(alone), aclosing(pooled):
            await alone.start()
            await pooled.start()
            times: list[list[float]] = [[], []]
            for number in range(200):
                for side in (0, 1) if number % 2 else (1, 0):
                    times[side].append(await cpu_of_a_chunk((alone, pooled)[side]))
    one, other = map(statistics.median, times)
    print(f"CPU of a chunk: {one:.2f} us alone, {other:.2f} us in a pool of one: {other / one:.3f}")
    for number in (2, 8, 64):
        print(f"CPU of a choice for a prompt of 2 KB, {number} replicas: {cpu_of_a_choice(number):.0f} us")


async def long_answers() -> None:
    """The upstream of `cost`, in a process of its own."""
    upstream = Upstream()
    upstream.script = [*(frame({"content": WORD}) for _ in range(2000)), frame({}, "stop"), DONE]
    async with listening(upstream) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


async def cpu_of_a_chunk(engine: Engine) -> float:
    messages = ({"role": "user", "content": "Hello"},)
    gc.collect()
    begin, number = time.process_time(), 0
    request = GenerationRequest(request_id="r", model="m", endpoint="chat", messages=messages)
    async with aclosing(engine.generate(request)) as deltas:
        async for delta in deltas:
            number += delta.text.count(WORD)  # chunks that come in one read are one delta
    return (time.process_time() - begin) / number * 1e6


def cpu_of_a_choice(number: int) -> float:
    """The whole choice: who may get the request, the prompt's hash, and the ranking."""
    replicas = [Replica(str(i), OpenAIEngine("http://127.0.0.1:1")) for i in range(number)]
    messages = ({"role": "system", "content": "s" * 1024}, {"role": "user", "content": "u" * 1024})
    request = GenerationRequest(request_id="r", model="m", endpoint="chat", messages=messages)
    times = []
    for _ in range(20):
        begin = time.process_time()
        for _ in range(100):
            next(attempts(replicas, PrefixAffinity(), request, retries=2))
        times.append((time.process_time() - begin) / 100 * 1e6)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", help="faults, affinity, cost (default: all)")
    parser.add_argument("--router", help="the command of vllm-router")
    arguments = parser.parse_args()
    print(processor())
    parts = {"faults": lambda: faults(arguments.router), "affinity": affinity, "cost": cost}
    for name, part in parts.items():
        if not arguments.parts or name in arguments.parts:
            asyncio.run(part())


if __name__ == "__main__":
    main()
