"""The configured hooks: `Pipeline`, and what a service asks of it.

    request ─► Pipeline.open ─► guarded(guard, engine's deltas) ─► deltas that a client may have

A guard keeps a stream for every channel of every output, and in each stream a stage for every hook, which
sees what the one before it released (contract 1.3). It knows values only: neither HTTP nor which engine runs.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Container, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol

from engine.protocol import Delta, GenerationRequest, RequestError, Token
from hooks.alarm import interrupting
from hooks.api import Chunk
from hooks.async_call import GRACE
from hooks.guard import Guard
from hooks.loader import HookSpec, LoadedHook, load_hook
from hooks.stage import HookError, PipelineOptions
from hooks.tally import Tallies, Tally

logger = logging.getLogger("weir.hooks")


class Guarding(Protocol):
    """A guard, wherever it runs."""

    async def feed(self, delta: Delta) -> list[Delta]:
        """Take one delta through the hooks; returns what is released now. Raises `HookError`."""
        ...

    @property
    def cut_short(self) -> bool:
        """Every output has had its finish reason, some from a hook: the engine has nothing left to do."""
        ...

    async def close(self) -> None:
        """Give every stream still open its last call, aborted (contract 2.6)."""
        ...


class Opener(Protocol):
    """The configured hooks, wherever they run: a `Pipeline` in this process, or a `WorkerPool`."""

    tallies: Tallies
    """What each hook did."""

    @property
    def is_ready(self) -> bool:
        """Whether a request's hooks can run now."""
        ...

    async def start(self) -> None:
        """Make sure that every hook works. Raises `HookLoadError` or `HookError` (contract 1.4)."""
        ...

    def open(self, request: GenerationRequest) -> Guarding:
        """Raises `RequestError` if the request names a hook that it may not."""
        ...

    async def aclose(self) -> None: ...


class PassThrough:
    """The guard of a request without hooks."""

    cut_short = False

    async def feed(self, delta: Delta) -> list[Delta]:
        return [delta]

    async def close(self) -> None:
        pass


def check_named(request: GenerationRequest, allowed: Container[str]) -> None:
    """Raise `RequestError` for a hook that the request names and may not (contract 1.3)."""
    for name in request.hooks:
        if name not in allowed:
            raise RequestError(f"The hook '{name}' is not one that a request may name.", param="hooks")


async def guarded(guard: Guarding, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    """What a client may have of `deltas`, as soon as it may. Closes `deltas` however it ends itself.

    Each output's last delta, and only that, has a finish reason. Raises `HookError`, and what `deltas`
    raises. Every stream's hooks have had their last call when it returns (contract 2.6).
    """
    try:
        async with aclosing(deltas):
            async for delta in deltas:
                for released in await guard.feed(delta):
                    yield released
                if guard.cut_short:
                    return
    finally:
        await guard.close()


class Pipeline:
    """The hooks that a server was configured with, in order. Built once."""

    is_ready = True

    def __init__(
        self,
        hooks: Iterable[LoadedHook] = (),
        allowed: Iterable[LoadedHook] = (),
        options: PipelineOptions | None = None,
    ) -> None:
        """`hooks` run for every request, `allowed` for those that name them (contract 1.3)."""
        self.hooks = tuple(hooks)
        self.allowed: Mapping[str, LoadedHook] = {hook.name: hook for hook in allowed}
        self.options = options or PipelineOptions()
        self.tallies: Tallies = {hook.name: Tally() for hook in (*self.hooks, *self.allowed.values())}

    @classmethod
    def load(
        cls,
        specs: Iterable[HookSpec],
        allowed: Iterable[HookSpec] = (),
        options: PipelineOptions | None = None,
    ) -> "Pipeline":
        """Import and build every hook. Raises `HookLoadError` for the first that cannot be (contract 1.4)."""
        timeout = (options or PipelineOptions()).hook_load_timeout
        hooks, more = ([load_hook(spec, timeout) for spec in some] for some in (specs, allowed))
        return cls(hooks, more, options)

    def open(self, request: GenerationRequest) -> Guarding:
        check_named(request, self.allowed)
        hooks = [*self.hooks, *(self.allowed[name] for name in request.hooks)]
        return Guard(request, hooks, self.tallies, self.options) if hooks else PassThrough()

    async def start(self) -> None:
        """Feed every hook, by itself, a short stream to its end (contract 1.4). Raises `HookError`."""
        request = GenerationRequest(
            request_id="weir-self-test",
            model="weir-self-test",
            endpoint="chat",
            messages=({"role": "user", "content": "Hello?"},),
        )
        for hook in (*self.hooks, *self.allowed.values()):
            tally = Tally()
            guard = Guard(request, [self._interrupted(hook)], {hook.name: tally}, self.options)
            try:
                for i, word in enumerate(("Hello", ", ", "world.")):
                    await guard.feed(Delta(text=word, tokens=(Token(i, word, word.encode(), -0.5),)))
                await guard.feed(Delta(finish_reason="stop"))
            finally:
                await guard.close()
            if tally.verdicts["error"]:  # as a shadow hook's failure is only counted
                raise HookError(hook.name)

    def _interrupted(self, hook: LoadedHook) -> LoadedHook:
        """A plain hook that hangs must not keep the process from saying so."""

        def call(chunk: Chunk) -> Any:
            with interrupting(self.options.hook_timeout):
                return hook.call(chunk)

        return hook if hook.is_async else replace(hook, call=call)

    async def aclose(self) -> None:
        """Wait a moment for calls that go on past their deadlines. The hooks live as long as the process."""
        late = {task: hook.name for hook in (*self.hooks, *self.allowed.values()) for task in hook.late}
        if late:
            _, running = await asyncio.wait(late, timeout=GRACE)
            for task in running:
                logger.warning("hook %s does not end", late[task])
