"""A scripted server on a real socket, and records and results made by hand."""

from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web

from weir_bench.client import RequestRecord
from weir_bench.plan import Level, Plan, Run, Target
from weir_bench.prompts import WordPrompts
from weir_bench.results import Results

DONE = b"data: [DONE]\n\n"
Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def chat_frames(
    texts: Iterable[str], *, finish: str | None = "stop", num_tokens: int | None = None
) -> list[bytes]:
    """The stream of a chat as servers write it: role, texts, finish, usage, end."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": t} for t in texts)]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    frames = [frame(chunk) for chunk in chunks]
    if num_tokens is not None:
        frames.append(frame({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": num_tokens}}))
    return [*frames, DONE]


async def stream(request: web.Request, frames: Iterable[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for data in frames:
        await response.write(data)
    await response.write_eof()
    return response


class ScriptedServer:
    """Answers every request with `answer`. Counts the open requests."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[Any] = []
        self.num_open = 0
        self.most_open = 0
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        self.bodies.append(body)
        self.paths.append(request.path)
        self.headers.append(request.headers)
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        try:
            return await self.answer(request, body)
        finally:
            self.num_open -= 1


async def models(request: web.Request) -> web.StreamResponse:
    return web.json_response({"data": [{"id": "first"}, {"id": "second"}]})


@asynccontextmanager
async def listening(server: ScriptedServer) -> AsyncIterator[ScriptedServer]:
    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


Scripted = Callable[[Answer], Awaitable[ScriptedServer]]


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    """`await scripted(answer)` starts a server, which runs until the test ends."""
    async with AsyncExitStack() as stack:

        async def start(answer: Answer) -> ScriptedServer:
            return await stack.enter_async_context(listening(ScriptedServer(answer)))

        yield start


async def hello(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return await stream(request, chat_frames(["Hel", "lo", "!"], num_tokens=6))


def plan_for(*servers: ScriptedServer, **fields: Any) -> Plan:
    """One run of each server, named a, b, ..., without warm-up."""
    targets = [Target(name, server.url) for name, server in zip("abc", servers, strict=False)]
    defaults: dict[str, Any] = {
        "targets": targets,
        "levels": [Level(concurrency=1)],
        "prompts": WordPrompts(seed=1, num_words=3),
        "seed": 1,
        "num_warmups": 0,
    }
    return Plan(**defaults | fields)


def make_record(*times: float, sent: float = 0.0, ended: float | None = None, **fields: Any) -> RequestRecord:
    """The record of a request whose chunks with text arrived at `times`."""
    return RequestRecord(
        sent=sent,
        due=fields.pop("due", sent),
        times=array("d", times),
        ended=ended if ended is not None else max(times, default=sent),
        **fields,
    )


NASTY = "<script>alert(1)</script>&\"'"
"""A name that would break a page that did not escape it."""
CLOSED = (Level(concurrency=1), Level(concurrency=8))


def make_results(
    *, levels: tuple[Level, ...] = CLOSED, names: tuple[str, ...] = ("weir", NASTY), **fields: Any
) -> Results:
    """Results of two repetitions. The second target takes twice as long as the first."""
    targets = [Target(name, f"http://{i}/v1", "m") for i, name in enumerate(names)]
    plan = Plan(
        targets=targets,
        levels=levels,
        prompts=WordPrompts(1, 3),
        seed=1,
        repetitions=2,
        slos={"ttft": 600.0},
        api_key="secret",
    )
    runs = [
        Run(target, level, repetition, _records(slower), duration=3.0 * slower, client_cpu=0.25)
        for _, level, repetition, target in plan.order()
        for slower in [targets.index(target) + 1]
    ]
    return Results(plan, runs, **fields)


def _records(slower: float) -> list[RequestRecord]:
    times = [[0.5, 0.6, 0.8], [1.5, 1.75, 2.5]]
    return [
        make_record(*(time * slower for time in own), sent=start * slower, usage_tokens=6)
        for start, own in enumerate(times)
    ]
