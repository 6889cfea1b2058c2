"""Weir with each engine. All engines play the model of the agent's conversation."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from engine.protocol import Engine, EngineStats
from engine.streams.recording import Recording, TimedDelta
from engine.upstream.replay import ReplayEngine
from hooks.pipeline.pipeline import Pipeline
from proxy.deployment.deployment import Deployment
from proxy.deployment.engines import make_engine
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings
from tests.clients.agent import LONG, MODEL, Turn
from tests.clients.model import GATE, chat_frames, messages_frames, model_with_tools
from tests.clients.session import Request, recorded
from tests.engine.upstream.conftest import Script, fake_upstream
from tests.helpers import until

PARSERS: dict[str, Any] = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
SCRIPTED = {
    "name": "scripted",
    "path": "tests.clients.model:ScriptedModel",
    "mandatory": True,
    "args": {"gate": GATE.path},
}
VLLM: dict[str, Any] = {
    "engine": "vllm",
    "vllm": {"dtype": "float32", "enforce_eager": True, "max_num_seqs": 8},
}
SECONDS_PER_DELTA = 0.005
"""The time between two deltas of a long answer that is replayed."""


@dataclass(frozen=True)
class Weir:
    """A server, and the one behind it."""

    server: Server
    url: str
    behind: "Weir | None" = None

    @property
    def stats(self) -> list[EngineStats]:
        """Of its engine, and of the engine behind it."""
        behind = [] if self.behind is None else self.behind.stats
        return [*(model.engine.stats() for model in self.server.service.deployment.models.values()), *behind]

    async def wait_until_idle(self) -> None:
        """Returns once no request runs, and the model has gone on: another request would wait at the gate of
        the one before it."""
        await self.server.service.deployments.wait_until_idle()
        if self.behind is not None:
            await self.behind.wait_until_idle()
        GATE.open()
        await until(lambda: not any(stats.num_running + stats.num_waiting for stats in self.stats))

    async def replay(self, sessions: Sequence[Sequence[Request]]) -> list[list[Turn]]:
        """Each session's answers. Requests of the same place in their sessions are sent at the same time, but
        clients leave one after another."""
        turns: list[list[Turn]] = [[] for _ in sessions]
        async with aiohttp.ClientSession() as http:
            for requests in zip(*sessions, strict=True):
                if requests[0].leaves:
                    for request in requests:
                        GATE.close()
                        assert await request.send(http, self.url) is None
                        await self.wait_until_idle()
                    continue
                answers = await asyncio.gather(*(request.send(http, self.url) for request in requests))
                for session, turn in zip(turns, answers, strict=True):
                    assert turn is not None
                    session.append(turn)
        return turns


@asynccontextmanager
async def serving(
    hooks: list[str], own: Engine | None = None, behind: Weir | None = None, **settings: Any
) -> AsyncIterator[Weir]:
    """A started server with these settings. `own` replaces the engine of the settings."""
    made = ServeSettings(port=0, hooks=hooks, served_model_name=[MODEL], **settings)
    model, policy = made.base_model, made.base_policy
    pipeline = await Pipeline.load(made.hook_specs, policy.allowed_hooks, policy.options)
    server = Server(Deployment.of_one(own or make_engine(model), pipeline, model, [MODEL]), made)
    url = await server.start()
    try:
        yield Weir(server, url, behind)
    finally:
        GATE.open()
        await server.stop()


@asynccontextmanager
async def scripted(hooks: list[str], **settings: Any) -> AsyncIterator[Weir]:
    """The demo model, forced to say each reply. Tokenizer, parsers and engine are the real ones."""
    with TemporaryDirectory() as folder:
        settings |= {"model": model_with_tools(Path(folder)), "logits_processors": [SCRIPTED]}
        async with serving(hooks, **PARSERS, **settings) as weir:
            yield weir


local = partial(scripted, num_threads=1)


@asynccontextmanager
async def upstream(
    hooks: list[str], engine: str = "openai", script: Script = chat_frames
) -> AsyncIterator[Weir]:
    """In front of a server that parses the model's output itself."""
    async with fake_upstream() as fake:
        fake.script = script
        async with serving(hooks, **_in_front_of(fake.url, engine)) as weir:
            yield weir


@asynccontextmanager
async def weir_upstream(hooks: list[str], engine: str = "openai") -> AsyncIterator[Weir]:
    """In front of another Weir, with the local engine."""
    async with local([]) as behind:
        async with serving(hooks, behind=behind, **_in_front_of(behind.url, engine)) as weir:
            yield weir


def _in_front_of(url: str, engine: str) -> dict[str, Any]:
    # The demo model's context has no room for the default of the Messages API's engine.
    return {"engine": engine, "upstream": [url], "upstream_max_tokens": 256}


@asynccontextmanager
async def replay(hooks: list[str]) -> AsyncIterator[Weir]:
    """Recordings that another Weir made of the same sessions, with the local engine."""
    with TemporaryDirectory() as folder:
        async with local([], record=Path(folder)) as weir:
            await weir.replay(list(recorded().values()))
        recordings = [Recording.load(path) for path in Path(folder).iterdir()]  # noqa: ASYNC240
    # A client left: the recording of its request is cut.
    whole = [_spaced(one) for one in recordings if one.deltas[-1].delta.finish_reason is not None]
    async with serving(hooks, ReplayEngine(whole, speed=1), **PARSERS) as weir:
        yield weir


def _spaced(recording: Recording) -> Recording:
    """The recording with deltas at regular times. A client can leave within a long answer."""
    text = "".join(timed.delta.text for timed in recording.deltas)
    step = SECONDS_PER_DELTA if LONG in text else 0.0
    deltas = [TimedDelta(number * step, timed.delta) for number, timed in enumerate(recording.deltas)]
    return replace(recording, deltas=tuple(deltas))


ENGINES: dict[str, Callable[[list[str]], AbstractAsyncContextManager[Weir]]] = {
    "local": local,
    "vllm": partial(scripted, **VLLM),
    "openai": upstream,
    "openai, a Weir": weir_upstream,
    "messages": partial(upstream, engine="messages", script=messages_frames),
    "messages, a Weir": partial(weir_upstream, engine="messages"),
    "replay": replay,
}
