"""A hook worker: a process with hooks of its own, which runs the guards of the requests that it is given.

It serves the connection that it inherited, until the other end closes it.
"""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from engine.protocol import EngineError
from engine.protocol.prompt_size import prompt_size
from engine.protocol.tracing import CURRENT_SPAN, NoSpan, Span
from engine.turns.fair_queue import FairQueue
from engine.turns.prompt_threads import PromptThreads
from hooks.api.decision import Decision
from hooks.decisions.failure import HookError
from hooks.decisions.tally import Tally
from hooks.loading.alarm import interrupt
from hooks.loading.loader import HookLoadError, HookSpec, LoadedHook, load_hook
from hooks.pipeline.ask import Step
from hooks.pipeline.driver import READ_ON_THREAD
from hooks.pipeline.open_guard import OpenGuard
from hooks.pipeline.pipeline import Pipeline
from hooks.workers.deadlines import with_alarm
from hooks.workers.messages import (
    Admit,
    Close,
    Connection,
    Counts,
    Feed,
    LookAhead,
    Open,
    Ready,
    Reply,
    Setup,
    beating,
)
from hooks.workers.process import inherited

logger = logging.getLogger("weir.hooks")

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
PROMPT_THREADS = 1
"""Threads on which hooks read long prompts, during the calls for other requests."""
ALIVE_INTERVAL = 1.0
"""Seconds between two looks at the models that the process has loaded."""
PATIENCE = 0.005
"""Seconds of work on a frame after which callers take turns. To look for other callers' messages takes a
twentieth of a millisecond, which many short calls would notice."""


class Worker:
    """Serves one connection with one pipeline, until the other end closes it."""

    def __init__(self, connection: Connection, pipeline: Pipeline) -> None:
        self._connection = connection
        self._pipeline = pipeline
        hooks = (*pipeline.hooks, *pipeline.allowed.values())
        self._is_async = any(hook.is_async or hook.is_request_async for hook in hooks)
        self._guards: dict[int, OpenGuard] = {}
        self._spans: dict[int, Span] = {}
        """The requests' parts in their traces. Set before each call of a guard."""
        self._decisions: dict[int, list[Decision]] = {}
        """Decisions to send with the next reply, by the requests that the service listens to."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._feeding: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Serve until the other end is gone; then every stream that is still open gets its last call."""
        # Async hooks wait, or a thread reads a prompt.
        async with beating(self._connection.beat, lambda: self._tasks):
            try:
                messages = await self._connection.receive()
                while True:
                    messages = await self._obey_all(messages)
            except EOFError:
                pass
            finally:
                await asyncio.gather(*self._tasks, return_exceptions=True)
                for key in list(self._guards):
                    await self._close(key)

    async def _obey_all(self, messages: list[Any]) -> list[Any]:
        """Obey a frame's messages, in order. Returns the next frame's.

        Once that has taken a while, callers take turns: their messages that have arrived meanwhile, and the
        rest of these.
        """
        until = monotonic() + PATIENCE
        for at, message in enumerate(messages, start=1):
            await self._obey(message)
            if monotonic() >= until:
                self._count()
                return await self._take_turns(messages[at:])
        self._count()
        return await self._connection.receive()

    async def _take_turns(self, messages: list[Any]) -> list[Any]:
        """Obey these messages, and all that arrive, until none is left. Returns the next frame's."""
        turns = Turns(self._guards)
        turns.add(messages)
        receiving = self._receive()
        try:
            while turns:
                if await _is_done(receiving):
                    turns.add(receiving.result())
                    receiving = self._receive()
                else:
                    until = monotonic() + PATIENCE
                    await self._obey(turns.dequeue())
                    while turns and monotonic() < until:
                        await self._obey(turns.dequeue())
                    self._count()
            return await receiving
        finally:
            receiving.cancel()

    def _receive(self) -> asyncio.Task[list[Any]]:
        return asyncio.get_running_loop().create_task(self._connection.receive())

    async def _obey(self, message: Any) -> None:
        match message:
            case Open():
                self._open(message)
            case Admit(key, shown) if self._is_async or prompt_size(shown) >= READ_ON_THREAD:
                self._feeding[key] = self._spawn(self._ask(message))
            case Feed(key) | LookAhead(key) if self._is_async:
                self._feeding[key] = self._spawn(self._ask(message))
            case Admit() | Feed() | LookAhead():
                await self._ask(message)
            case Close(key) if self._is_async:
                self._spawn(self._close(key))
            case Close(key):
                await self._close(key)
        self._connection.beat()

    def _open(self, message: Open) -> None:
        listener = None
        if message.min_held is not None:
            self._decisions[message.key] = []
            listener = self._decisions[message.key].append
        self._spans[message.key] = NoSpan(message.trace)
        self._guards[message.key] = self._pipeline.open(
            message.request,
            can_rewind=message.can_rewind,
            can_ask=message.can_ask,
            listener=listener,
            min_held=message.min_held or 0.0,
            num_repeated=message.num_repeated,
        )

    async def _ask(self, message: Admit | Feed | LookAhead) -> None:
        key, guard = message.key, self._guards[message.key]
        CURRENT_SPAN.set(self._spans[key])
        try:
            if isinstance(message, Admit):
                reply = Reply(key, await guard.admit(message.shown), request=guard.request)
            elif isinstance(message, LookAhead):
                reply = Reply(key, Step([]), ahead=await guard.look_ahead())
            else:
                reply = Reply(key, await guard.feed(message.delta))
        except HookError as error:
            reply = Reply(key, failed=error.hook, param=error.param)
        except EngineError as error:
            reply = Reply(key, engine_error=(str(error), error.status))
        except Exception:
            logger.exception("a guard failed")
            reply = Reply(key, failed="guard")
        self._reply(reply, guard)
        if self._is_async or isinstance(message, Admit):
            self._count()

    async def _close(self, key: int) -> None:
        feeding = self._feeding.pop(key, None)
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        guard = self._guards.pop(key)
        CURRENT_SPAN.set(self._spans.pop(key))
        try:
            await guard.close()
        finally:
            self._reply(Reply(key, is_closed=True), guard)
            self._decisions.pop(key, None)

    def _reply(self, reply: Reply, guard: OpenGuard) -> None:
        if (decisions := self._decisions.get(reply.key)) is not None:
            reply = replace(reply, decisions=tuple(decisions), held=tuple(guard.held()))
            decisions.clear()
        self._connection.send(reply)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it in a task of its own: an async hook that waits must not make other requests wait."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _count(self) -> None:
        nothing = Tally()
        counted = {name: tally.drain() for name, tally in self._pipeline.tallies.items() if tally != nothing}
        if counted:
            self._connection.send(Counts(counted))


class Turns:
    """Messages that wait, by the callers of their requests. The messages of a request stay in order."""

    def __init__(self, guards: Mapping[int, OpenGuard]) -> None:
        """`guards`: the guards of the requests that are open already, by key."""
        self._guards = guards
        self._callers: dict[int, str] = {}
        """The callers of the requests that were opened since, by key."""
        self._waiting: FairQueue[Any] = FairQueue()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, messages: Iterable[Any]) -> None:
        for message in messages:
            if isinstance(message, Open):
                self._callers[message.key] = message.request.caller
            self._waiting.add(self._caller(message), message)

    def dequeue(self) -> Any:
        message = self._waiting.first()
        self._waiting.dequeue(self._caller(message), message)
        if isinstance(message, Close):
            del self._callers[message.key]
        return message

    def _caller(self, message: Any) -> str:
        if message.key not in self._callers:
            self._callers[message.key] = self._guards[message.key].request.caller
        return self._callers[message.key]


async def _is_done(receiving: asyncio.Task[list[Any]]) -> bool:
    """Whether a frame has arrived. Lets the event loop look."""
    await asyncio.wait((receiving,), timeout=0)
    return receiving.done()


async def _load(setup: Setup, connection: Connection) -> Pipeline:
    """Raises `HookLoadError`."""
    log = logging.StreamHandler()
    log.setFormatter(setup.log_formatter or logging.Formatter(LOG_FORMAT))
    logging.basicConfig(level=setup.log_level, handlers=[log])
    signal.signal(signal.SIGALRM, interrupt)
    options, beat = setup.options, connection.beat

    def load(spec: HookSpec) -> LoadedHook:
        hook = load_hook(spec, options.hook_load_timeout)
        beat()
        return with_alarm(hook, options.hook_timeout, beat)

    threads = PromptThreads(PROMPT_THREADS)
    return await Pipeline.load(setup.specs, setup.allowed, options, load=load, prompt_threads=threads)


def main() -> None:
    asyncio.run(_connect_and_serve())


async def _connect_and_serve() -> None:
    connection = await inherited()
    try:
        (setup,) = await connection.receive()
        await _serve(await _load(setup, connection), connection)
    except EOFError:
        pass  # the service ended while this process began
    except HookLoadError as error:
        connection.send(Ready(str(error)))
    await connection.close()


async def _serve(pipeline: Pipeline, connection: Connection) -> None:
    """Raises `HookLoadError` from the self-test."""
    try:
        async with beating(connection.beat):  # a model may load for minutes
            await pipeline.start()
        connection.send(
            Ready(
                prompt_readers=pipeline.prompt_readers,
                media_readers=pipeline.media_readers,
                alternative_withholders=pipeline.alternative_withholders,
                rewinders=pipeline.rewinders,
                needed_probes=pipeline.needed_probes,
            )
        )
        await _serve_while_alive(Worker(connection, pipeline), pipeline)
    finally:
        await pipeline.aclose()


async def _serve_while_alive(worker: Worker, pipeline: Pipeline) -> None:
    """Serve until the other end is gone, or a model of the hooks has failed for good."""
    serving = asyncio.get_running_loop().create_task(worker.serve())
    try:
        while pipeline.is_alive:
            if (await asyncio.wait([serving], timeout=ALIVE_INTERVAL))[0]:
                return serving.result()
        logger.critical("a model of the hooks has failed for good; this hook worker ends")
    finally:
        serving.cancel()
        await asyncio.wait([serving])
