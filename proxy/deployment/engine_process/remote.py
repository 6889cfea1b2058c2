"""An engine in another process of the service, seen from one that serves.

Its deltas come in one frame for each of the engine's steps, and take the way of those of an engine in this
process: a `LocalStream` for each request. The tokenizer is a second one of the same model.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from engine.local.stream import LocalStream
from engine.protocol import (
    DeadEngineError,
    Delta,
    Deltas,
    EngineStats,
    GenerationRequest,
    ModelInfo,
    Rewind,
    ShutdownError,
    Tokenizer,
)
from engine.protocol.errors import Failure, not_started
from engine.protocol.fields.support import FieldSupport
from engine.protocol.flow import Flow
from engine.protocol.processor_specs import NamedProcessorSpec
from engine.protocol.tracing import CURRENT_SPAN, NO_SPAN, Span
from engine.streams.feeding import iterated
from engine.streams.flow import StagedFlow
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
    RewindOutput,
    Rewound,
    Stats,
)
from proxy.settings.model import ModelSettings

logger = logging.getLogger("weir.engine")


class RemoteEngine:
    """Implements `engine.protocol.Engine` and `FeedingEngine`. Use it from the event loop that it was started
    on."""

    fields = FieldSupport()
    tokenizer: Tokenizer | None = None

    def __init__(
        self,
        path: Path,
        settings: ModelSettings,
        load_tokenizer: Callable[[], Tokenizer],
        *,
        can_withhold: bool,
    ) -> None:
        """`path`: the socket of the engine's process. `load_tokenizer`: runs on a thread."""
        self.info = ModelInfo()
        """`start` fills it, `fields` and `tokenizer`."""
        self._path = path
        self._open = OpenEngine(settings, can_withhold)
        self._load_tokenizer = load_tokenizer
        self._connection: Connection | None = None
        self._listening: asyncio.Task[None] | None = None
        self._failure: Failure | None = not_started
        self._keys = itertools.count()
        self._streams: dict[int, LocalStream] = {}
        self._unfed: dict[LocalStream, None] = {}
        """The streams with deltas that are not fed yet."""
        self._ends: dict[int, asyncio.Future[Any]] = {}
        """By key: what waits for `Ended` or `Checked`."""
        self._stats = EngineStats()

    async def start(self) -> None:
        """Wait until the engine has started. Raises `ValueError` with the reason why it cannot."""
        connection = Connection(*await asyncio.open_unix_connection(self._path))
        try:
            await self._begin(connection)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        self._failure = None
        self._listening = asyncio.get_running_loop().create_task(self._listen(connection))

    async def _begin(self, connection: Connection) -> None:
        connection.send(self._open)
        try:
            (answer,) = await connection.receive()
        except EOFError:
            raise DeadEngineError("The process of the engine has ended.") from None
        if isinstance(answer, NotOpened):
            raise ValueError(answer.reason)
        assert isinstance(answer, Opened)
        self.info, self.fields = answer.info, answer.fields
        if answer.has_tokenizer:
            self.tokenizer = await asyncio.to_thread(self._load_tokenizer)

    def generate(self, request: GenerationRequest) -> Deltas:
        return iterated(StagedFlow(partial(self.feed, request)))

    async def feed(self, request: GenerationRequest, flow: Flow) -> None:
        self.check_health()
        key, span = next(self._keys), CURRENT_SPAN.get()
        is_traced = span is not NO_SPAN
        stream = self._streams[key] = LocalStream(flow, request.num_outputs)
        flow.on_rewind = partial(self._rewind, key, stream)
        ended = self._end_of(key) if is_traced else None
        self._send(Generate(key, request, is_traced))
        try:
            await stream.wait()
        finally:
            del self._streams[key]
            self._send(Leave(key))
            if ended is not None:
                # The client has its answer. Only its trace waits.
                ended.add_done_callback(partial(_trace, span))

    def _rewind(self, key: int, stream: LocalStream, rewind: Rewind) -> None:
        stream.rewind(rewind.index)
        self._send(RewindOutput(key, rewind))

    async def check_processors(self, specs: Iterable[NamedProcessorSpec]) -> None:
        """Raises `ProcessorLoadError`."""
        key = next(self._keys)
        checked = self._end_of(key)
        self._send(CheckProcessors(key, tuple(specs)))
        answer = await checked
        if answer is not None and answer.error is not None:
            raise answer.error

    def check_room(self, caller: str) -> None:
        """The engine's process counts the requests of all processes. It refuses one that has no room."""

    def stats(self) -> EngineStats:
        """The numbers that were told last."""
        return self._stats

    def check_health(self) -> None:
        if self._failure is not None:
            raise self._failure()

    async def aclose(self) -> None:
        self._fail(ShutdownError)
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    def _send(self, message: object) -> None:
        assert self._connection is not None
        self._connection.send(message)

    def _end_of(self, key: int) -> "asyncio.Future[Any]":
        """Its result is the message with which the engine's work for this key ends; None: the process is
        gone."""
        end = self._ends[key] = asyncio.get_running_loop().create_future()
        return end

    async def _listen(self, connection: Connection) -> None:
        try:
            while True:
                for message in await connection.receive():
                    self._take(message)
        except EOFError:
            pass  # the process is gone
        except Exception as error:
            logger.critical("the process of an engine is not understood (%s)", type(error).__name__)
            raise
        finally:
            self._fail(partial(DeadEngineError, "The engine has failed."))

    def _take(self, message: object) -> None:
        match message:
            case (int(key), Delta() as delta):
                if (stream := self._streams.get(key)) is not None:
                    if not self._unfed:
                        # Frames that are there already are read first: a loop that is behind joins deltas.
                        asyncio.get_running_loop().call_soon(self._feed)
                    stream.put(delta)
                    self._unfed[stream] = None
            case Rewound(key, index):
                if (stream := self._streams.get(key)) is not None:
                    stream.resume(index)
            case Ended(key, error):
                if error is not None and (stream := self._streams.get(key)) is not None:
                    stream.fail(error)
                self._end(key, message)
            case Checked(key):
                self._end(key, message)
            case Stats(stats):
                self._stats = stats

    def _end(self, key: int, message: object) -> None:
        end = self._ends.pop(key, None)
        if end is not None and not end.done():
            end.set_result(message)

    def _feed(self) -> None:
        unfed, self._unfed = self._unfed, {}
        for stream in unfed:
            stream.feed()

    def _fail(self, failure: Failure) -> None:
        """Only the first failure of a started engine counts."""
        if self._failure is None:
            self._failure = failure
        for stream in self._streams.values():
            stream.fail(failure())
        for key in [*self._ends]:
            self._end(key, None)


def _trace(span: Span, ended: "asyncio.Future[Any]") -> None:
    if not ended.cancelled() and isinstance(answer := ended.result(), Ended):
        for phase in answer.phases:
            span.child(phase.name, began=phase.began).end(ended=phase.ended)
