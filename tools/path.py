"""Counts the functions of this project that one guarded request passes, and one delta of it.

    python -m tools.path            # the numbers on each way that users take, streaming and not
    python -m tools.path --list     # the functions of a delta too, in the order of their first call
    python -m tools.path --request  # and those of the request, by file

A server on loopback has one plain hook, and runs a model in this process or asks an upstream that sends one
word an event. A delta's path is what runs from the upstream's bytes, or the engine's step, to the bytes on
the socket: the functions that run for a delta and again for the next one, of those from the third on that
need the most: a token may have no text yet. Comprehensions and generator expressions count as functions.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import aiohttp
import orjson
from aiohttp import web

from engine.local.engine import LocalEngine
from engine.protocol.demo import MODEL_DIR
from engine.upstream.body import _Listener
from hooks import Chunk, Verdict, emit
from proxy.deployment.build import build
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings

ROOT = Path(__file__).parents[1]
ROOMS = tuple(f"{ROOT / package}/" for package in ("proxy", "engine", "hooks"))
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
STARTS = {"upstream": _Listener.data_received.__code__, "in process": LocalEngine._deliver.__code__}
"""By the way of a delta, the function that begins it."""


class Emits:
    """A plain hook that lets everything through."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)


class Calls:
    """The calls of this project's functions on this thread while it is entered."""

    def __init__(self, start: CodeType) -> None:
        """`start`: the function that begins a delta."""
        self._start = start
        self.made: list[CodeType] = []
        self.deltas: list[int] = []
        """The number of calls made when each delta began."""

    def __enter__(self) -> "Calls":
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOMS):
            return
        if code is self._start:
            self.deltas.append(len(self.made))
        self.made.append(code)

    @property
    def of_request(self) -> list[CodeType]:
        return list(dict.fromkeys(self.made))

    @property
    def of_delta(self) -> list[CodeType]:
        deltas = [self._between(number) for number in range(2, len(self.deltas) - 1)]
        return max(([code for code in a if code in b] for a, b in pairwise(deltas)), key=len)

    def _between(self, number: int) -> dict[CodeType, None]:
        """The functions that run from one delta to the next, in order."""
        return dict.fromkeys(self.made[slice(*self.deltas[number : number + 2])])


def name_of(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(ROOT)}: {code.co_qualname}"


def files_of(codes: list[CodeType]) -> set[str]:
    return {code.co_filename for code in codes}


class Passed(NamedTuple):
    """The functions that all of some requests pass: what a server does from time to time is left out."""

    request: list[CodeType]
    delta: list[CodeType]

    @classmethod
    def of(cls, made: list[Calls]) -> "Passed":
        first, *others = (calls.of_request for calls in made)
        request = [code for code in first if all(code in other for other in others)]
        return cls(request, min((calls.of_delta for calls in made), key=len))


async def passed(way: str, stream: bool) -> Passed:
    """The functions that requests pass, after one that warmed everything up."""
    async with _upstream() as url:
        engine = {"engine": "openai", "upstream": url} if way == "upstream" else {"model": str(MODEL_DIR)}
        given = {**engine, "port": 0, "hooks": [f"{__name__}:Emits"]}
        settings = ServeSettings.model_validate(given)
        server = Server(await build(settings), settings)
        ours = await server.start()
        messages = [{"role": "user", "content": "Say the numbers."}]
        body = {"model": "m", "stream": stream, "messages": messages, "max_tokens": 24, "temperature": 0}
        try:
            async with aiohttp.ClientSession() as session:
                if way == "in process":
                    async with session.get(f"{ours}/v1/models") as models:
                        body["model"] = (await models.json())["data"][0]["id"]
                await _ask(session, f"{ours}/v1/chat/completions", body)
                made = [Calls(STARTS[way]) for _ in range(3)]
                for calls in made:
                    with calls:
                        await _ask(session, f"{ours}/v1/chat/completions", body)
        finally:
            await server.stop()
    return Passed.of(made)


async def _ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
    async with session.post(url, json=body) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()


@asynccontextmanager
async def _upstream() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/v1/models", _models)
    app.router.add_post("/v1/chat/completions", _say)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}/v1"
    finally:
        await runner.cleanup()


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "m"}]})


async def _say(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {"content": f" {word}"}} for word in WORDS]
    for choice in [*choices, {"index": 0, "delta": {}, "finish_reason": "stop"}]:
        chunk = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "m",
            "choices": [choice],
        }
        await response.write(b"data: " + orjson.dumps(chunk) + b"\n\n")
        await asyncio.sleep(0.01)  # each event comes alone
    await response.write(b"data: [DONE]\n\n")
    return response


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the functions that a request and a delta pass.")
    parser.add_argument("--list", action="store_true", help="print the functions of a delta")
    parser.add_argument("--request", action="store_true", help="print the functions of the request by file")
    chosen = parser.parse_args()
    for way in STARTS:
        for stream in (True, False):
            request, delta = asyncio.run(passed(way, stream))
            kind = "streaming" if stream else "whole"
            print(
                f"{way}, {kind}: a request {len(request)} functions in {len(files_of(request))} files",
                end="; ",
            )
            print(f"a delta {len(delta)} in {len(files_of(delta))}")
            if chosen.list:
                print(*(f"  {name_of(code)}" for code in delta), sep="\n")
            if chosen.request:
                print(*(f"  {name_of(code)}" for code in request), sep="\n")


if __name__ == "__main__":
    main()
