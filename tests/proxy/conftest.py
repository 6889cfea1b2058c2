"""A server on a real socket, started as `weir serve` starts it, and a client that reads its answers."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest
from pydantic import BaseModel

from engine.protocol import Delta
from hooks.pipeline.pipeline import Pipeline
from proxy.deployment.deployment import Deployment
from proxy.deployment.read import keys_of
from proxy.http.app import Server
from proxy.settings.groups import options_of
from proxy.settings.serve import ServeSettings
from tests.helpers import constants_of, make_deltas, pipeline_of

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
COMPLETION = {"model": "m", "prompt": "Hi"}


@dataclass
class Events:
    """The events of a stream, as pairs of a name and JSON or `[DONE]`, and its comment lines."""

    status: int
    headers: Any
    events: list[tuple[str | None, Any]]
    comments: list[str]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [data for name, data in self.events if name is None and data != "[DONE]"]

    def content(self, index: int = 0) -> str:
        return "".join(
            c["delta"].get("content") or "" if "delta" in c else c["text"]
            for chunk in self.chunks
            for c in chunk["choices"]
            if c["index"] == index
        )


def read_events(body: bytes) -> tuple[list[tuple[str | None, Any]], list[str]]:
    """Parse server-sent events. Fails if they are not well formed."""
    events: list[tuple[str | None, Any]] = []
    comments: list[str] = []
    text = body.decode()
    assert text.endswith("\n\n"), "the stream was cut"
    for block in text[:-2].split("\n\n"):
        name = None
        for line in block.split("\n"):
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                events.append((name, value if value == "[DONE]" else orjson.loads(value)))
            else:
                assert line.startswith(":"), line
                comments.append(line)
    return events, comments


@dataclass
class Client:
    """A client of one server."""

    url: str
    server: Server
    http: aiohttp.ClientSession

    @property
    def engine(self) -> Any:
        (model,) = self.server.service.deployment.models.values()
        return model.engine

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, Any, Any]:
        async with self.http.post(self.url + path, json=body, **options) as response:
            return response.status, orjson.loads(await response.read()), response.headers

    async def get(self, path: str, **options: Any) -> tuple[int, bytes]:
        async with self.http.get(self.url + path, **options) as response:
            return response.status, await response.read()

    async def stream(self, path: str, body: dict[str, Any]) -> Events:
        async with self.http.post(self.url + path, json={**body, "stream": True}) as response:
            raw = await response.read()
            if response.status != 200:
                return Events(response.status, response.headers, [(None, orjson.loads(raw))], [])
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            return Events(200, response.headers, *read_events(raw))


def set_constants(
    monkeypatch: pytest.MonkeyPatch, options: type[BaseModel], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Set those of `given` that are constants of the options' classes. Returns the others."""
    for name, value in constants_of(options, given).items():
        owner = next(cls for cls in options.__mro__ if name in vars(cls))
        monkeypatch.setattr(owner, name, value)
    return {name: value for name, value in given.items() if name in options_of(options)}


Serve = Callable[..., Awaitable[Client]]


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Start a server: `client = await serve(engine, hook, ..., names=[...], **settings)`."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        )

        async def start(
            engine: Any,
            *hooks: Any,
            pipeline: Pipeline | None = None,
            names: list[str] | None = None,
            clock: Callable[[], float] = time.time,
            **settings: Any,
        ) -> Client:
            given = {"port": 0, "state_timeout": 600.0, "store_timeout": 600.0} | settings
            made = ServeSettings(**set_constants(monkeypatch, ServeSettings, given))
            deployment = Deployment.of_one(
                engine,
                pipeline or pipeline_of(*hooks),
                made.base_model,
                ["m"] if names is None else names,
                keys=keys_of(made),
            )
            server = Server(deployment, made, clock=clock)
            url = await server.start()
            stack.push_async_callback(server.stop)
            return Client(url, server, http)

        yield start


def hello(request: Any) -> list[Delta]:
    return make_deltas(["Hello"])


async def send(client: Client, path: str, data: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """Post `data`. Returns the status and the error; fails if the body is no error object."""
    headers = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    async with client.http.post(client.url + path, data=data, headers=headers) as response:
        body = orjson.loads(await response.read())
        assert list(body) == ["error"]
        assert list(body["error"]) == ["message", "type", "param", "code"]
        return response.status, body["error"]
