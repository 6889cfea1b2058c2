"""Counts the functions of this project that one guarded request passes, and one delta of it.

    python -m tools.path            # the two numbers, streaming and not
    python -m tools.path --list     # the functions of a delta too, in the order of their first call
    python -m tools.path --request  # and those of the request, by file

A server on loopback runs the echo engine behind a hook that holds text. A client asks for twelve tokens. A
delta's path is what runs from the engine's delta to the bytes on the socket: the functions that run for the
sixth token and again for the seventh. Comprehensions and generator expressions count as functions.
"""

import argparse
import asyncio
import inspect
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import aiohttp

from engine.upstream import echo
from proxy.deployment.build import build
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings

ROOT = Path(__file__).parents[1]
ENGINES = f"{ROOT / 'engine' / 'upstream'}/"
ROOMS = tuple(f"{ROOT / package}/" for package in ("proxy", "engine", "hooks"))
HOOK = f"{ROOT / 'examples' / 'banned_phrase.py'}:BannedPhrase"
WORDS = "one two three four five six seven eight nine ten eleven twelve"


class Calls:
    """The calls of this project's functions while it is entered."""

    def __init__(self) -> None:
        self.made: list[CodeType] = []
        self.resumed: set[int] = set()
        """The numbers of the calls that only go on behind an await."""
        self.deltas: list[int] = []
        """The number of calls made when each token left the engine."""

    def __enter__(self) -> "Calls":
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOMS):
            self.made.append(code)
            if code.co_flags & inspect.CO_COROUTINE and frame.f_lasti > 0:
                self.resumed.add(len(self.made) - 1)
        elif event == "return" and code is ENGINE and type(value).__name__ == YIELDED:
            self.deltas.append(len(self.made))

    @property
    def of_request(self) -> list[CodeType]:
        return list(dict.fromkeys(self.made))

    @property
    def of_delta(self) -> list[CodeType]:
        sixth, seventh = (self._between(number) for number in (5, 6))
        return [code for code in sixth if code in seventh]

    def _between(self, number: int) -> dict[CodeType, None]:
        """What runs from one token to the next, in order; what the engine runs for itself left out."""
        numbers = range(*self.deltas[number : number + 2])
        begun = (self.made[i] for i in numbers if i not in self.resumed)
        return dict.fromkeys(code for code in begun if not code.co_filename.startswith(ENGINES))


YIELDED = "async_generator_wrapped_value"
"""The type of what an asynchronous generator hands to the interpreter when it yields."""
ENGINE = echo.EchoEngine.generate.__code__


def name_of(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(ROOT)}: {code.co_qualname}"


async def calls_of(stream: bool) -> Calls:
    """The calls of one request, after another one that warmed everything up."""
    settings = ServeSettings.model_validate({"engine": "echo", "port": 0, "hooks": [HOOK]})
    server = Server(await build(settings), settings)
    url = await server.start()
    body = {"model": "echo", "stream": stream, "messages": [{"role": "user", "content": WORDS}]}
    try:
        async with aiohttp.ClientSession() as session:
            await _ask(session, f"{url}/v1/chat/completions", body)
            with Calls() as calls:
                await _ask(session, f"{url}/v1/chat/completions", body)
    finally:
        await server.stop()
    return calls


async def _ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
    async with session.post(url, json=body) as answer:
        assert answer.status == 200, await answer.text()
        assert "twelve" in await answer.text()


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the functions that a request and a delta pass.")
    parser.add_argument("--list", action="store_true", help="print the functions of a delta")
    parser.add_argument("--request", action="store_true", help="print the functions of the request by file")
    chosen = parser.parse_args()
    for stream in (True, False):
        calls = asyncio.run(calls_of(stream))
        files = {code.co_filename for code in calls.of_request}
        kind = "streaming" if stream else "whole    "
        print(f"{kind}  a request: {len(calls.of_request)} functions in {len(files)} files", end="; ")
        print(f"a delta: {len(calls.of_delta)} functions")
        if chosen.list:
            print(*(f"  {name_of(code)}" for code in calls.of_delta), sep="\n")
        if chosen.request:
            print(*(f"  {name_of(code)}" for code in calls.of_request), sep="\n")


if __name__ == "__main__":
    main()
