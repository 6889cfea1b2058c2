"""A guard on one request's way: `admit` before the engine, `guarded` behind it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from engine.protocol import (
    Delta,
    Deltas,
    GenerationRequest,
    QueueFullError,
    RequestError,
    Rewind,
    Tokenizer,
)
from hooks.pipeline.ask import Step
from hooks.pipeline.stage import HookReply
from hooks.prompts.ids import in_ids, in_text
from hooks.prompts.texts import without_unread


class OpenGuard(Protocol):
    """One request's guard, in this process or in a hook worker."""

    @property
    def request(self) -> GenerationRequest:
        """The request that the guard was opened for; after `admit`, as the hooks let it go on."""
        ...

    @property
    def reads_prompts(self) -> bool:
        """Whether a hook reads prompts."""
        ...

    @property
    def decides_prompts(self) -> bool:
        """Whether a hook reads prompts and is not in shadow mode."""
        ...

    @property
    def may_rewind(self) -> bool:
        """Whether a hook may take outputs back, and the engine can. The deltas must then come from
        `engine.rewindable`: tokens with positions, and an output from its beginning after a rewind."""
        ...

    async def admit(self, shown: GenerationRequest) -> Step:
        """Show the hooks the request, its prompts as text. Raises `RefusedError` and `HookError`.

        If a hook answers in the engine's place, the step releases that answer and is over.
        """
        ...

    def pass_through(self, delta: Delta) -> Delta | HookReply | None:
        """The short way for a delta that every hook lets through: no coroutine, no `Step`. Returns the delta
        for the client. Otherwise `feed` takes the delta, and the result if it is a `HookReply`."""
        ...

    async def feed(self, delta: Delta, first: HookReply | None = None) -> Step:
        """Take one delta through the hooks. Raises `HookError`, and `EngineError` for deltas that no engine
        may send."""
        ...

    async def close(self) -> None:
        """Give every stream that is still open its last call, aborted (contract 2.6). Closing twice is
        fine."""
        ...


class PassThrough:
    """The guard of a request without hooks."""

    may_rewind = False
    reads_prompts = False
    decides_prompts = False

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request

    async def admit(self, shown: GenerationRequest) -> Step:
        return Step([])

    def pass_through(self, delta: Delta) -> Delta:
        return delta

    async def feed(self, delta: Delta, first: HookReply | None = None) -> Step:
        return Step([delta])

    async def close(self) -> None:
        pass


async def admit(guard: OpenGuard, tokenizer: Tokenizer | None = None) -> GenerationRequest | list[Delta]:
    """Show the guard's request to its hooks (contract 8.1).

    Returns the request for the engine, or the answer that a hook gave in the engine's place. `tokenizer`: the
    engine's, to show prompts of token ids as text. Raises `RefusedError`, `HookError`, and `RequestError` for
    a prompt that cannot be shown.
    """
    asked = guard.request
    if not guard.reads_prompts:
        return asked
    try:
        shown = await in_text(asked, tokenizer)
    except RequestError:
        if guard.decides_prompts:
            raise
        return asked  # hooks in shadow mode cannot be shown the prompt, and must have no effect
    step = await guard.admit(shown)
    if step.is_over:
        return step.released
    admitted = await in_ids(guard.request, asked, shown, tokenizer)
    return without_unread(admitted) if guard.decides_prompts else admitted


async def guarded(guard: OpenGuard, deltas: Deltas) -> AsyncGenerator[Delta, None]:
    """The deltas that a client may have, each as soon as it may. Closes `deltas` and the guard at its end.

    Each output's last delta, and only that, has a finish reason. Raises `HookError` and the errors of
    `deltas`. An upstream server's own words are replaced, because no hook was shown them (contract 5.3).
    """
    rewind: Rewind | None = None
    try:
        async with aclosing(deltas):
            while True:
                try:
                    delta = await deltas.asend(rewind)
                except StopAsyncIteration:
                    return
                first = guard.pass_through(delta)
                if isinstance(first, Delta):
                    rewind = None
                    yield first
                    continue
                step = await guard.feed(delta, first)
                for released in step.released:
                    yield released
                if step.is_over:
                    return
                rewind = step.rewind
    except (RequestError, QueueFullError) as error:
        if error.unquoted is None or isinstance(guard, PassThrough):
            raise
        raise error.unquoted from None
    finally:
        await guard.close()


async def as_deltas(answer: list[Delta]) -> Deltas:
    """An answer that is there already, as a stream."""
    for delta in answer:
        yield delta
