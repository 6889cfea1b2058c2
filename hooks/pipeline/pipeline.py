"""The configured hooks: `Pipeline`, and what a service asks of it.

    request ─► Pipeline.open ─► guarded(guard, engine.generate) ─► deltas that a client may have

A guard shows the request to the hooks that want to see it. Of the answer it keeps a stream for every channel
of every output, and in each stream a stage for every hook, which sees what the one before it released
(contract 1.3). It knows values only: neither HTTP nor which engine runs.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Protocol

from engine.protocol import (
    Delta,
    Deltas,
    GenerationRequest,
    QueueFullError,
    RequestError,
    Rewind,
    Token,
    Tokenizer,
)
from hooks.loading.alarm import interrupted
from hooks.loading.async_call import GRACE
from hooks.loading.loader import HookSpec, LoadedHook, load_hook
from hooks.pipeline.guard import Guard
from hooks.pipeline.listening import ListeningGuard
from hooks.pipeline.stage import HookError, PipelineOptions
from hooks.pipeline.tally import Tallies, Tally
from hooks.prompts.admission import RefusedError
from hooks.prompts.ids import in_ids, in_text
from hooks.prompts.texts import without_unread

logger = logging.getLogger("weir.hooks")


class Guarding(Protocol):
    """A guard, wherever it runs."""

    @property
    def request(self) -> GenerationRequest:
        """As it was opened for; after `admit`, as the hooks let it go on."""
        ...

    @property
    def reads_prompts(self) -> bool:
        """Whether there is a hook to show the request to."""
        ...

    @property
    def decides_prompts(self) -> bool:
        """Whether there is one whose word on it has an effect."""
        ...

    async def admit(self, shown: GenerationRequest) -> list[Delta] | None:
        """Show the hooks the request, its prompts as text. Returns the answer, if a hook gave one in place of
        the engine's. Raises `RefusedError` and `HookError`."""
        ...

    async def feed(self, delta: Delta) -> list[Delta]:
        """Take one delta through the hooks; returns what is released now. Raises `HookError`."""
        ...

    @property
    def may_rewind(self) -> bool:
        """Whether there is a hook that may, and the engine can. The guard must then be told of tokens'
        positions, and of an output from its beginning when it was taken back (`engine.rewindable`)."""
        ...

    @property
    def rewind(self) -> Rewind | None:
        """What to answer the delta with that was fed last."""
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

    @property
    def rewinders(self) -> frozenset[str]:
        """The hooks that may say `rewind`."""
        ...

    def open(self, request: GenerationRequest, *, can_rewind: bool = False) -> Guarding:
        """`can_rewind`: whether the engine can. Raises `RequestError` if the request names a hook that it may
        not."""
        ...

    async def aclose(self) -> None: ...


class PassThrough:
    """The guard of a request without hooks."""

    cut_short = False
    may_rewind = False
    rewind = None
    reads_prompts = False
    decides_prompts = False

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request

    async def admit(self, shown: GenerationRequest) -> None:
        pass

    async def feed(self, delta: Delta) -> list[Delta]:
        return [delta]

    async def close(self) -> None:
        pass


def check_named(request: GenerationRequest, allowed: Container[str]) -> None:
    """Raise `RequestError` for a hook that the request names and may not (contract 1.3)."""
    for name in request.hooks:
        if name not in allowed:
            raise RequestError(f"The hook '{name}' is not one that a request may name.", param="hooks")


async def guarded(
    guard: Guarding,
    generate: Callable[[GenerationRequest], Deltas],
    tokenizer: Tokenizer | None = None,
) -> AsyncGenerator[Delta, None]:
    """What a client may have of an answer, as soon as it may. `generate` is asked for it once the hooks have
    admitted the request, and is closed however this ends itself. `tokenizer`: the engine's.

    Each output's last delta, and only that, has a finish reason. Raises `RefusedError`, `HookError`, and what
    `generate` raises, with hooks without another server's words, which they were not shown (contract 5.3).
    Every stream's hooks have had their last call when it returns (contract 2.6).
    """
    try:
        admitted = await _admitted(guard, tokenizer)
        if not isinstance(admitted, GenerationRequest):
            for delta in admitted:
                yield delta
            return
        rewind: Rewind | None = None
        async with aclosing(generate(admitted)) as deltas:
            while True:
                try:
                    delta = await deltas.asend(rewind)
                except StopAsyncIteration:
                    return
                for released in await guard.feed(delta):
                    yield released
                if guard.cut_short:
                    return
                rewind = guard.rewind
    except (RequestError, QueueFullError) as error:
        if error.unquoted is None or isinstance(guard, PassThrough):
            raise
        raise error.unquoted from None
    finally:
        await guard.close()


async def _admitted(guard: Guarding, tokenizer: Tokenizer | None) -> GenerationRequest | list[Delta]:
    """What to ask the engine, or the answer in its place."""
    asked = guard.request
    if not guard.reads_prompts:
        return asked
    try:
        shown = await in_text(asked, tokenizer)
    except RequestError:
        if guard.decides_prompts:
            raise
        return asked  # hooks in shadow mode cannot be shown it, and must have no effect
    answer = await guard.admit(shown)
    if answer is not None:
        return answer
    admitted = await in_ids(guard.request, asked, shown, tokenizer)
    return without_unread(admitted) if guard.decides_prompts else admitted


_TEST = "weir-self-test"
_CANARIES = (
    GenerationRequest(
        request_id=_TEST, model=_TEST, endpoint="chat", messages=({"role": "user", "content": "Hello?"},)
    ),
    GenerationRequest(request_id=_TEST, model=_TEST, endpoint="completions", prompts=("Hello,",)),
)


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

    @property
    def prompt_readers(self) -> frozenset[str]:
        """The hooks that want to be shown prompts."""
        hooks = (*self.hooks, *self.allowed.values())
        return frozenset(hook.name for hook in hooks if hook.on_request is not None)

    @property
    def rewinders(self) -> frozenset[str]:
        hooks = (*self.hooks, *self.allowed.values())
        return frozenset(hook.name for hook in hooks if hook.may_rewind)

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

    def open(self, request: GenerationRequest, *, can_rewind: bool = False) -> Guarding:
        check_named(request, self.allowed)
        hooks = [*self.hooks, *(self.allowed[name] for name in request.hooks)]
        if not hooks:
            return PassThrough(request)
        guard = ListeningGuard if any(hook.on_decision for hook in hooks) else Guard
        return guard(request, hooks, self.tallies, self.options, can_rewind)

    async def start(self) -> None:
        """Put every hook, by itself, to its self-test (contract 1.4). Raises `HookError`."""
        for hook in (*self.hooks, *self.allowed.values()):
            tally = Tally()
            await self._test(self._interrupted(hook), {hook.name: tally})
            if tally.verdicts["error"]:  # as a shadow hook's failure is only counted
                raise HookError(hook.name)

    async def _test(self, hook: LoadedHook, tallies: Tallies) -> None:
        """Show it requests, whatever it says of them, and then a short stream to its end."""
        chat, *_ = _CANARIES
        for request in _CANARIES if hook.on_request else ():
            with suppress(RefusedError):
                await Guard(request, [hook], tallies, self.options).admit(request)
        guard = Guard(chat, [hook], tallies, self.options)
        try:
            for i, word in enumerate(("Hello", ", ", "world.")):
                await guard.feed(Delta(text=word, tokens=(Token(i, word, word.encode(), -0.5),)))
            await guard.feed(Delta(finish_reason="stop"))
        finally:
            await guard.close()

    def _interrupted(self, hook: LoadedHook) -> LoadedHook:
        """A plain hook that hangs must not keep the process from saying so."""
        return hook.wrapped(lambda call: interrupted(call, self.options.hook_timeout))

    async def aclose(self) -> None:
        """Wait a moment for calls that go on past their deadlines, and close the hooks."""
        hooks = (*self.hooks, *self.allowed.values())
        late = {task: hook.name for hook in hooks for task in hook.late}
        if late:
            _, running = await asyncio.wait(late, timeout=GRACE / 2)  # a worker must be gone within one
            for task in running:
                logger.warning("hook %s does not end", late[task])
        for hook in hooks:
            await hook.close(self.options.hook_timeout)
