"""The engines of the process that runs models, and their connections to the processes that serve.

Processes that ask for an engine of the same settings share one. It ends with its last connection.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import perf_counter
from typing import Any

from engine.protocol import DeadEngineError, Delta, Engine, EngineError, EngineStats, RequestError, Rewind
from engine.protocol.engine import check_processors
from engine.protocol.stats import counted_since
from engine.protocol.tracing import NO_SPAN, NoSpan, current
from engine.streams.feeding import feed
from hooks.workers.messages import Connection
from proxy.deployment.engine_process.messages import (
    Checked,
    CheckProcessors,
    Ended,
    Generate,
    Leave,
    NotOpened,
    Opened,
    OpenEngine,
    Phase,
    RewindOutput,
    Rewound,
    Stats,
)
from proxy.deployment.guard_models import fault_of
from proxy.deployment.start_errors import START_ERRORS, start_error

logger = logging.getLogger("weir.engine")

STATS_INTERVAL = 0.25
"""Seconds between two times at which the engines' numbers are told. They are also told with a request's first
delta and with an output's end."""

MakeEngine = Callable[[OpenEngine], Engine]
"""Makes the engine, not yet started. Raises `START_ERRORS`."""


class EngineHost:
    """All engines of this process."""

    def __init__(self, make: MakeEngine) -> None:
        self._make = make
        self._engines: list[_HostedEngine] = []
        self._serving: dict[asyncio.Task[None], Connection] = {}

    def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until it closes, or until `aclose`."""
        connection = Connection(reader, writer)
        task = asyncio.get_running_loop().create_task(self._serve_until_over(connection))
        self._serving[task] = connection
        task.add_done_callback(self._serving.pop)

    async def _serve_until_over(self, connection: Connection) -> None:
        try:
            with suppress(EOFError):
                (asked,) = await connection.receive()
                await self._serve(asked, connection)
        finally:
            await connection.close()

    async def _serve(self, asked: OpenEngine, connection: Connection) -> None:
        hosted = next((one for one in self._engines if one.asked == asked), None)
        try:
            if hosted is None:
                hosted = _HostedEngine(asked, self._make(asked))
                self._engines.append(hosted)
        except START_ERRORS as error:
            connection.send(NotOpened(start_error(error)))
            return
        hosted.connections.append(connection)
        try:
            try:
                await hosted.start()
            except START_ERRORS as error:
                connection.send(NotOpened(start_error(error)))
                return
            engine = hosted.engine
            connection.send(Opened(engine.info, engine.fields, engine.tokenizer is not None))
            await _Front(engine, connection, hosted.tell).serve()
        finally:
            hosted.leave(connection)
            if not hosted.connections:
                self._engines.remove(hosted)
                await hosted.engine.aclose()

    async def watch(self) -> None:
        """Tell the engines' numbers now and then. Returns once an engine has failed for good."""
        while not any(isinstance(fault_of(hosted.engine), DeadEngineError) for hosted in self._engines):
            await asyncio.sleep(STATS_INTERVAL)
            for hosted in self._engines:
                hosted.tell()

    async def aclose(self) -> None:
        """Close all connections, and with them the engines. None of them is cancelled: it may close an engine
        already."""
        for connection in self._serving.values():
            connection.abort()
        await asyncio.gather(*self._serving, return_exceptions=True)


class _HostedEngine:
    def __init__(self, asked: OpenEngine, engine: Engine) -> None:
        self.asked = asked
        self.engine = engine
        self.connections: list[Connection] = []
        """The oldest first. It is told the engine's numbers."""
        self._starting = asyncio.Lock()
        self._has_started = False
        self._told = EngineStats()
        """The numbers when the connection that is told them became the oldest."""
        self._latest = EngineStats()
        """Those that were told last."""

    async def start(self) -> None:
        """Start the engine, unless it runs. Raises `START_ERRORS`."""
        async with self._starting:
            if not self._has_started:
                await self.engine.start()
                self._has_started = True

    def leave(self, connection: Connection) -> None:
        if connection is self.connections[0]:
            self._told = self._latest
        self.connections.remove(connection)

    def tell(self) -> None:
        """Tell the numbers to the oldest connection."""
        if not self._has_started or not self.connections:
            return
        self._latest = counted_since(self.engine.stats(), EngineStats())  # a copy: the engine counts on
        self.connections[0].send(Stats(counted_since(self._latest, self._told)))


class _Front:
    """A process that serves, and its requests to one engine."""

    def __init__(self, engine: Engine, connection: Connection, tell: Callable[[], None]) -> None:
        """`tell` tells the engine's numbers."""
        self._engine = engine
        self._connection = connection
        self._tell = tell
        self._flows: dict[int, _FrontFlow] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Until the connection closes, which ends all its requests."""
        try:
            with suppress(EOFError):
                while True:
                    for message in await self._connection.receive():
                        self._take(message)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(self, message: object) -> None:
        match message:
            case Generate(key):
                flow = self._flows[key] = _FrontFlow(message, self._connection, self._tell)
                flow.task = self._begin(self._generate(message, flow))
            case RewindOutput(key, rewind):
                if (known := self._flows.get(key)) is not None:
                    known.rewind(rewind)
            case Leave(key):
                if (known := self._flows.get(key)) is not None:
                    known.leave()
            case CheckProcessors():
                self._begin(self._check_processors(message))

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _generate(self, asked: Generate, flow: "_FrontFlow") -> None:
        error: EngineError | RequestError | None = None
        phases: list[Phase] = []
        try:
            with current(_Parts(phases) if asked.is_traced else NO_SPAN):
                await feed(self._engine, asked.request, flow)
        except (EngineError, RequestError) as caught:
            error = caught.with_traceback(None)
        except Exception as unknown:  # its text may be a caller's
            logger.error("a request failed (%s)", type(unknown).__name__)
            logger.debug("a request failed", exc_info=True)
            error = EngineError("The engine failed the request.")
        finally:
            del self._flows[asked.key]
            self._tell()
            self._connection.send(Ended(asked.key, error, tuple(phases)))

    async def _check_processors(self, asked: CheckProcessors) -> None:
        error = None
        try:
            await check_processors(self._engine, asked.specs)
        except ValueError as caught:
            error = caught.with_traceback(None)
        self._connection.send(Checked(asked.key, error))


class _FrontFlow:
    """Implements `engine.protocol.flow.Flow`: the request's deltas go to the process that serves it. It is
    full from the last output's end until that process has taken all, because a hook may rewind until then."""

    def __init__(self, asked: Generate, connection: Connection, tell: Callable[[], None]) -> None:
        self.on_first: Callable[[], None] | None = tell
        self.on_rewind: Callable[[Rewind], None] | None = None
        self.is_over = False
        self.task: asyncio.Task[None] | None = None
        self._send = connection.send
        self._tell = tell
        self._key = asked.key
        self._unfinished = asked.request.num_outputs
        self._finished: set[int] = set()
        self._room = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return not self._unfinished and not self.is_over

    def feed(self, delta: Delta) -> None:
        if self.on_first is not None:
            on_first, self.on_first = self.on_first, None
            on_first()
        if delta.finish_reason is not None:
            self._finished.add(delta.index)
            self._unfinished -= 1
            self._room.clear()
            self._tell()
        self._send((self._key, delta))

    async def has_room(self) -> None:
        while self.is_full:
            await self._room.wait()

    def rewind(self, rewind: Rewind) -> None:
        if rewind.index in self._finished:
            self._finished.remove(rewind.index)
            self._unfinished += 1
            self._room.set()
        if self.on_rewind is not None:
            self.on_rewind(rewind)
        self._send(Rewound(self._key, rewind.index))

    def leave(self) -> None:
        self.is_over = True
        self._room.set()
        if self.task is not None:
            self.task.cancel()


class _Parts(NoSpan):
    """Keeps the parts of a request's work that the engine tells. The process that serves has the trace."""

    def __init__(self, phases: list[Phase]) -> None:
        super().__init__()
        self._phases = phases

    def child(self, name: str, *, is_remote: bool = False, began: float | None = None) -> NoSpan:
        return _Part(self._phases, name, perf_counter() if began is None else began)


class _Part(NoSpan):
    def __init__(self, phases: list[Phase], name: str, began: float) -> None:
        super().__init__()
        self._phases = phases
        self._name = name
        self._began = began

    def end(self, error: BaseException | str | None = None, *, ended: float | None = None) -> None:
        self._phases.append(Phase(self._name, self._began, perf_counter() if ended is None else ended))
