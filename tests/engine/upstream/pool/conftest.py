"""A pool of scripted engines."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from engine.protocol import GenerationRequest
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.replica import Replica
from tests.helpers import ScriptedEngine

Script = Callable[[GenerationRequest], Iterable[Any]]


class Clock:
    """Time that only a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Pool(PoolEngine):
    """A pool of scripted engines: `engines[name]` answers as `scripts[name]` says."""

    def __init__(self, scripts: dict[str, Script], own: dict[str, dict[str, Any]], **options: Any) -> None:
        self.clock = Clock()
        self.scripts = scripts
        self.engines = {name: ScriptedEngine(self._script_of(name)) for name in scripts}
        replicas = [
            Replica(name, engine, clock=self.clock, **own.get(name, {}))
            for name, engine in self.engines.items()
        ]
        super().__init__(replicas, **options)

    def _script_of(self, name: str) -> Script:
        return lambda request: self.scripts[name](request)

    @property
    def outstanding(self) -> dict[str, int]:
        return {name: stats.outstanding for name, stats in self.stats().replicas.items()}

    @property
    def states(self) -> dict[str, str]:
        return {name: stats.state for name, stats in self.stats().replicas.items()}

    @property
    def asked(self) -> dict[str, int]:
        """How many requests each engine got."""
        return {name: len(engine.requests) for name, engine in self.engines.items()}

    def outcomes(self, name: str) -> dict[str, int]:
        return {str(outcome): n for outcome, n in self.stats().replicas[name].outcomes.items()}


MakePool = Callable[..., Any]


@pytest.fixture
async def make_pool() -> AsyncIterator[MakePool]:
    """Start a pool: `pool = await make_pool(a=script, b=script, own={"a": {"weight": 2}}, retries=1)`."""
    async with AsyncExitStack() as stack:

        async def start(*, own: dict[str, dict[str, Any]] | None = None, **given: Any) -> Pool:
            options = {name: value for name, value in given.items() if name in OPTIONS}
            scripts = {name: script for name, script in given.items() if name not in OPTIONS}
            pool = Pool(scripts, own or {}, **options)
            stack.push_async_callback(pool.aclose)
            await pool.start()
            return pool

        yield start


OPTIONS = ("routing", "first_token_timeout", "retries", "health_interval")
