"""The parts of an attack.

An attack is a coroutine function that gets a `Target` and goes on until it is cancelled. It raises `Breach`
if it gets what it must not get.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

PAUSE = 0.05
"""Seconds between two requests on one connection. An attack is heavy requests, not many light ones."""


class Breach(Exception):
    """An attacker got what a client must not get."""


@dataclass
class Target:
    """A server, as one caller sees it."""

    url: str
    http: aiohttp.ClientSession
    key: str | None = None
    neighbour: str | None = None
    """The key of the well-behaved client. An attack uses it only to see what the client lost."""
    num_sent: int = field(default=0, init=False)
    """Requests that were sent, or connections that were opened."""

    def headers(self, key: str | None = None) -> dict[str, str]:
        key = key or self.key
        return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    async def post(self, path: str, body: Any, key: str | None = None) -> tuple[int, bytes]:
        """The status and the body of the answer. `body`: bytes, or a value to send as JSON."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        self.num_sent += 1
        sent = io.BytesIO(data)  # in pieces, so that a large body does not hold this event loop
        async with self.http.post(self.url + path, data=sent, headers=self.headers(key)) as response:
            return response.status, await response.read()

    async def open(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which `sent` was written."""
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=4096)
        writer.write(sent)
        self.num_sent += 1
        return reader, writer

    def head(self, path: str, length: int) -> bytes:
        """The head of a POST request with a JSON body of `length` bytes."""
        lines = [f"POST {path} HTTP/1.1", f"Host: {urlsplit(self.url).netloc}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in self.headers().items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


Run = Callable[[Target], Awaitable[None]]


@dataclass(frozen=True)
class Attack:
    """One entry of the catalogue."""

    name: str
    finding: str
    """The finding that it repeats: a number of the first attack's findings, or `new`."""
    run: Run
    options: tuple[str, ...] = ()
    """Options of the server that it needs."""
    num_files: int | None = None
    """`ulimit -n` of the server, if the attack needs a low one."""
    client_asks_schema: bool = False
    """The well-behaved client asks for answers of a schema, a new one each time."""


ATTACKS: dict[str, Attack] = {}
"""The catalogue, by name."""


def add(attack: Attack) -> None:
    assert attack.name not in ATTACKS, attack.name
    ATTACKS[attack.name] = attack


def attack(finding: int | str, **fields: Any) -> Callable[[Run], Run]:
    """Adds a function to the catalogue, under its own name."""

    def register(run: Run) -> Run:
        name = run.__name__.replace("_", " ")
        add(Attack(name, str(finding), run, **fields))
        return run

    return register


def posting(path: str, make: Callable[[], Any], at_once: int = 2) -> Run:
    """An attack that posts what `make` returns, again and again, on `at_once` connections."""

    async def run(target: Target) -> None:
        body = orjson.dumps(make())

        async def strike() -> None:
            await target.post(path, body)

        await again(strike, at_once)

    return run


async def again(strike: Callable[[], Awaitable[None]], at_once: int = 1) -> None:
    """Run `strike` for ever, `at_once` times at the same time. The server may end any connection."""

    async def repeat() -> None:
        while True:
            with suppress(aiohttp.ClientError, OSError):
                await strike()
            await asyncio.sleep(PAUSE)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(repeat())
