"""The memory of a request is free when the request ends. Nothing of it waits for the garbage collector, which
comes by seldom: until then, a server would grow with each request."""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import orjson
import pytest

from engine.local.engine import LocalEngine
from engine.protocol.demo import STREAM_GUARD_DIR
from engine.protocol.options import EngineConfig
from engine.upstream.openai.engine import OpenAIEngine
from hooks.loading.loader import HookSpec
from hooks.pipeline.pipeline import Pipeline
from tests.engine.upstream.conftest import FakeUpstream, vllm
from tests.engine.upstream.conftest import upstream as upstream
from tests.helpers import slow
from tests.proxy.conftest import CHAT, Client, Serve

NUM_REQUESTS = 4
HOOKS = [HookSpec("pii"), HookSpec("phrases", {"phrases": ["heron"]})]
GUARD = [HookSpec("stream_guard", {"model": str(STREAM_GUARD_DIR)})]
BODY: dict[str, Any] = {**CHAT, "max_tokens": 12, "ignore_eos": True, "temperature": 0}
STREAM = BODY | {"stream": True}
BEAMS = {"model": "m", "prompt": "Hi", "max_tokens": 4, "n": 2, "best_of": 2, "use_beam_search": True}


@contextmanager
def left_for_the_collector() -> Iterator[Counter[str]]:
    """Counts Weir's objects that only the garbage collector frees, by their types. Filled at the end."""
    left: Counter[str] = Counter()
    gc.freeze()  # what was made before is visited no more
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield left
        gc.collect()
        types = [type(one) for one in gc.garbage]
        ours = [t for t in types if str(t.__module__).startswith(("engine.", "hooks.", "proxy."))]
        left.update(t.__qualname__ for t in ours)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


async def ask(client: Client, path: str, body: dict[str, Any], *, to_the_end: bool) -> None:
    """Ask on a connection of its own, read the first part of the answer, and the rest of it if wanted."""
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = orjson.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await reader.readuntil(b"data: " if body.get("stream") and not to_the_end else b"\r\n\r\n")
    if to_the_end:
        await reader.read()
    writer.transport.abort()


@pytest.mark.parametrize(
    ("hooks", "path", "body", "to_the_end"),
    [
        slow([], "/v1/chat/completions", BODY, True),
        (HOOKS, "/v1/chat/completions", STREAM | {"n": 2, "logprobs": True, "top_logprobs": 2}, True),
        (GUARD, "/v1/messages", STREAM, True),
        ([], "/v1/completions", BEAMS, True),
        slow([], "/v1/chat/completions", BODY | {"max_tokens": 10**6}, True),
        slow(HOOKS, "/v1/chat/completions", STREAM | {"max_tokens": 500}, False),
        (GUARD, "/v1/chat/completions", STREAM | {"max_tokens": 500}, False),
    ],
    ids=["whole", "guarded", "judged", "beams", "refused", "left", "left while judged"],
)
async def test_a_request_that_has_ended_leaves_no_memory_behind(
    serve: Serve, hooks: list[HookSpec], path: str, body: dict[str, Any], to_the_end: bool
) -> None:
    engine = LocalEngine(EngineConfig(num_threads=1))
    client = await serve(engine, pipeline=await Pipeline.load(hooks))
    await ask(client, path, body, to_the_end=to_the_end)
    with left_for_the_collector() as left:
        for _ in range(NUM_REQUESTS):
            await ask(client, path, body, to_the_end=to_the_end)
    assert left == {}


@pytest.mark.parametrize("hooks", [[], HOOKS], ids=["plain", "guarded"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_an_answer_of_an_upstream_leaves_no_memory_behind(
    serve: Serve, upstream: FakeUpstream, hooks: list[HookSpec], stream: bool
) -> None:
    upstream.script = lambda body: chain.from_iterable((frame, 0.001) for frame in vllm(body))
    client = await serve(OpenAIEngine(upstream.url), pipeline=await Pipeline.load(hooks))
    body = CHAT | {"stream": stream}
    await ask(client, "/v1/chat/completions", body, to_the_end=True)
    with left_for_the_collector() as left:
        for _ in range(NUM_REQUESTS):
            await ask(client, "/v1/chat/completions", body, to_the_end=True)
    assert left == {}
