"""Runs hooks on a stream, and returns what a client would get."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from engine.protocol import Channel, Delta, Deltas, EngineError, GenerationRequest, Token, Tokenizer
from engine.streams.feeding import feed_all, iterated
from engine.streams.flow import StagedFlow
from engine.streams.recording import Recording
from hooks.decisions.failure import HookError
from hooks.loading.coroutines import run
from hooks.loading.given import Hooks, load
from hooks.loading.loader import HookSpec, LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.admission import RefusedError
from hooks.pipeline.driver import Guarding, admit
from hooks.pipeline.open_guard import GuardFactory, OpenGuard
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.probe import Judgement, Probe
from hooks.testing.streams import Source, source_of, stream_of
from hooks.workers.messages import Connection
from hooks.workers.pool import WorkerPool, WorkerProcess
from hooks.workers.worker import Worker

Generate = Callable[[GenerationRequest], Deltas]
"""Answers a request, as `Engine.generate` does."""

Finish = tuple[str | None, str | int | None]
"""`finish_reason` and `stop_reason`; (None, None) if the output has no end."""

StreamKey = tuple[int, Channel, int | None, str | None]
"""Output, channel, the tool call's index and its name."""


class PlayedCall(NamedTuple):
    """A tool call that a client would get."""

    name: str
    arguments: str
    """As the model wrote them: mostly JSON, and maybe empty."""


@dataclass(frozen=True)
class Outcome:
    """The part of a result that must not depend on where the stream is cut."""

    texts: dict[StreamKey, str]
    finishes: dict[int, Finish]
    failed: str | None = None
    """The hook that failed."""
    refused: str | None = None
    """The reason of a refusal without an answer."""


@dataclass(frozen=True)
class Released:
    """The result of a run: everything that a client would get."""

    deltas: tuple[Delta, ...]
    judgements: tuple[Judgement, ...] = ()
    """Each hook's verdict on each chunk, in order."""
    failure: HookError | RefusedError | EngineError | None = None
    request: GenerationRequest | None = None
    """The request that the engine got; None: it got none."""

    @property
    def refused(self) -> str | None:
        """The reason that a hook gave for refusing the prompt, with an answer of its own or without one."""
        if isinstance(self.failure, RefusedError):
            return self.failure.reason
        return str(self.stop_reason) if self.deltas and self.request is None else None

    @property
    def content(self) -> str:
        return self.text("content")

    @property
    def reasoning(self) -> str:
        return self.text("reasoning")

    @property
    def tool_calls(self) -> list[PlayedCall]:
        """The tool calls of the first output."""
        calls = {key: text for key, text in self.outcome.texts.items() if key[:2] == (0, "tool_call")}
        return [PlayedCall(name or "", text) for (*_, name), text in calls.items()]

    @property
    def finish_reason(self) -> str | None:
        return self.finish()[0]

    @property
    def stop_reason(self) -> str | int | None:
        return self.finish()[1]

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The first output's tokens, in the order delivered."""
        return tuple(token for delta in self.deltas if not delta.index for token in delta.tokens)

    @property
    def outcome(self) -> Outcome:
        texts: dict[StreamKey, str] = {}
        finishes: dict[int, Finish] = {}
        for delta in self.deltas:
            call = delta.tool_call
            if delta.text or call:
                which = (call.index, call.name) if call else (None, None)
                key = delta.index, delta.channel, *which
                texts[key] = texts.get(key, "") + delta.text
            if delta.finish_reason is not None:
                finishes[delta.index] = delta.finish_reason, delta.stop_reason
        failed = self.failure.hook if isinstance(self.failure, HookError) else None
        refused = self.failure.reason if isinstance(self.failure, RefusedError) else None
        return Outcome(texts, finishes, failed, refused)

    def text(self, channel: Channel, output_index: int = 0) -> str:
        """A channel's text. The arguments of several tool calls are one after another."""
        texts = self.outcome.texts.items()
        return "".join(text for (*where, _, _), text in texts if where == [output_index, channel])

    def finish(self, output_index: int = 0) -> Finish:
        return self.outcome.finishes.get(output_index, (None, None))


def play(hooks: Hooks, source: Source, *, streaming: bool = True, in_worker: bool = False) -> Released:
    """Run hooks on a stream, chunk by chunk. `streaming` and `in_worker` change nothing in the result.

    No model can continue the stream, so a `rewind` ends it, as `terminate` would. Raises a failing hook's own
    exception, `BadVerdictError` for a return value that is not a verdict, and `HookLoadError`.
    """
    released = play_loaded(load(hooks), stream_of(source), streaming=streaming, in_worker=in_worker)
    if isinstance(released.failure, HookError):
        raise released.failure.__cause__ or released.failure
    return released


def play_loaded(
    hooks: Iterable[LoadedHook], stream: Recording, *, streaming: bool = True, in_worker: bool = False
) -> Released:
    """Run loaded hooks on a stream. The result holds the error of a hook that failed."""
    judgements: list[Judgement] = []
    probed = [Probe(hook, judgements).hook for hook in hooks]
    released = run(_play(probed, stream, streaming, in_worker))
    return replace(released, judgements=tuple(judgements))


async def _play(hooks: list[LoadedHook], stream: Recording, streaming: bool, in_worker: bool) -> Released:
    async with started(hooks), opened(hooks, in_worker=in_worker) as opener:
        return await play_once(opener, stream, streaming=streaming)


@asynccontextmanager
async def started(hooks: Iterable[LoadedHook]) -> AsyncIterator[None]:
    """The hooks have their models inside, and are closed at the end. Raises `HookLoadError`."""
    async with aclosing(Pipeline(hooks)) as pipeline:
        await pipeline.give_models()
        yield


def opened(
    hooks: Iterable[LoadedHook], *, in_worker: bool = False, options: PipelineOptions | None = None
) -> AbstractAsyncContextManager[GuardFactory]:
    """The hooks as a pipeline, in this process or behind the workers' protocol."""
    pipeline = Pipeline(hooks, options=options)
    return behind_worker(pipeline) if in_worker else nullcontext(pipeline)


@asynccontextmanager
async def behind_worker(pipeline: Pipeline) -> AsyncIterator[WorkerPool]:
    """A pool whose one worker runs `pipeline` on this event loop, so its hooks need no import paths. Messages
    between the two go through a real socket."""
    ours, theirs = socket.socketpair()
    specs, allowed = (
        [HookSpec(hook.name, mode=hook.mode) for hook in hooks]
        for hooks in (pipeline.hooks, pipeline.allowed.values())
    )
    pool = WorkerPool(0, specs, allowed, pipeline.options)
    pool.prompt_readers, pool.rewinders = pipeline.prompt_readers, pipeline.rewinders
    process = WorkerProcess(pool)
    process.connection = Connection(*await asyncio.open_connection(sock=ours))
    connection = Connection(*await asyncio.open_connection(sock=theirs))
    loop = asyncio.get_running_loop()
    worker = Worker(connection, pipeline)
    serving, running = loop.create_task(worker.serve()), loop.create_task(process.run())
    pool._add(process)
    try:
        yield pool
    finally:
        await process.connection.close()
        await asyncio.gather(serving, running, return_exceptions=True)
        await connection.close()


async def play_once(
    opener: GuardFactory, stream: Recording, streaming: bool = True, beat: Callable[[], None] = lambda: None
) -> Released:
    request = replace(stream.request, stream=streaming, hooks=())
    return await collect(opener, request, lambda _: source_of(stream, beat))


async def vetted(
    guard: OpenGuard, generate: Generate, tokenizer: Tokenizer | None = None
) -> AsyncGenerator[Delta, None]:
    """The whole life of a request without a service: admit, generate, guard. Closes the guard."""
    try:
        admitted = await admit(guard, tokenizer)
        if isinstance(admitted, GenerationRequest):
            flow = StagedFlow(partial(feed_all, generate(admitted)), guard=[Guarding(guard)])
            async with aclosing(iterated(flow)) as released:
                async for delta in released:
                    yield delta
        else:
            for delta in admitted:
                yield delta
    finally:
        await guard.close()


async def collect(opener: GuardFactory, request: GenerationRequest, generate: Generate) -> Released:
    """Run the hooks of `opener` on the answer of `generate`. The result holds an error that ended the run."""
    kept: list[Delta] = []
    asked: list[GenerationRequest] = []

    def ask(request: GenerationRequest) -> Deltas:
        asked.append(request)
        return generate(request)

    failure: HookError | RefusedError | EngineError | None = None
    try:
        async with aclosing(vetted(opener.open(request), ask)) as released:
            async for delta in released:
                kept.append(delta)  # noqa: PERF401 (kept if it breaks off)
    except (HookError, RefusedError, EngineError) as error:
        failure = error
    return Released(tuple(kept), failure=failure, request=asked[0] if asked else None)
