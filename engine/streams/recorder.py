"""An engine that records the answers of another engine, as they are before any hook sees them.

Each request has a file in one folder, which grows while its answer streams. A thread writes new lines ten
times a second, so that the event loop never waits for a disk. At any time a file holds whole lines only.
"""

import asyncio
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from engine.protocol import (
    Delta,
    Deltas,
    Engine,
    EngineError,
    EngineStats,
    GenerationRequest,
    ModelInfo,
    Rewind,
    Tokenizer,
)
from engine.protocol.engine import check_processors
from engine.protocol.fields.support import FieldSupport
from engine.protocol.flow import Flow
from engine.protocol.processor_specs import NamedProcessorSpec
from engine.protocol.relay import counted, relayed
from engine.streams.feeding import feed, iterated
from engine.streams.flow import StagedFlow
from engine.streams.recording import (
    RECORDING_NAME,
    Failure,
    Line,
    TimedDelta,
    TimedRewind,
    encode,
    seconds_since,
)

logger = logging.getLogger("weir.engine")

INTERVAL = 0.1
"""Seconds between two writes."""
MAX_UNWRITTEN = 20_000
"""Lines of all requests that may wait to be written. A recording that finds more waiting is cut short."""

AGING = 60.0
"""Seconds between two times that old files are looked for, while nothing is recorded."""

_MOMENT = "%Y%m%dT%H%M%S%f"


class RecordingEngine:
    """Passes on another engine's deltas, and writes them to files as they come
    (`engine.streams.recording`).

    Each answer has a file in `folder` from its first delta on. A refused request leaves no file. Recording
    never delays an answer and never fails it. When the files exceed `max_bytes` together, the oldest are
    removed, and so are those that began more than `max_age` days ago.
    """

    def __init__(
        self, engine: Engine, folder: Path | str, *, max_bytes: int, max_age: float | None = None
    ) -> None:
        self._engine = engine
        self._folder = RecordingFolder(Path(folder), max_bytes, max_age)

    @property
    def info(self) -> ModelInfo:
        return self._engine.info

    @property
    def fields(self) -> FieldSupport:
        return self._engine.fields

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self._engine.tokenizer

    async def start(self) -> None:
        """Start the other engine. Also raises `ValueError` if the folder cannot be written to."""
        self._folder.start()
        logger.warning(
            "every request, and what the model writes before any hook sees it, is recorded in %s",
            self._folder.path,
        )
        await self._engine.start()

    async def relay(self, request: GenerationRequest, path: str, fields: Mapping[str, Any]) -> bytes:
        """Not recorded: the answer has no deltas."""
        return await relayed(self._engine, request, path, fields)

    async def count_tokens(self, request: GenerationRequest) -> int | None:
        """Counts are not recorded."""
        return await counted(self._engine, request)

    async def check_processors(self, specs: Iterable[NamedProcessorSpec]) -> None:
        await check_processors(self._engine, specs)

    def generate(self, request: GenerationRequest) -> Deltas:
        return iterated(StagedFlow(partial(self.feed, request)))

    async def feed(self, request: GenerationRequest, flow: Flow) -> None:
        recorded = _RecordedFlow(flow, self._folder, request)
        try:
            await feed(self._engine, request, recorded)
        except EngineError as error:
            recorded.fail(error)
            raise

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def check_room(self, caller: str) -> None:
        self._engine.check_room(caller)

    def check_health(self) -> None:
        self._engine.check_health()

    async def aclose(self) -> None:
        await self._engine.aclose()
        await self._folder.aclose()


class _RecordedFlow:
    """A flow, and the recording of the deltas that it is fed. Implements `engine.protocol.flow.Flow`."""

    def __init__(self, flow: Flow, folder: "RecordingFolder", request: GenerationRequest) -> None:
        self._flow = flow
        self._folder = folder
        self._request = request
        self._file: RecordingFile | None = None
        self._started = time.perf_counter()

    @property
    def on_first(self) -> Callable[[], None] | None:
        return self._flow.on_first

    @on_first.setter
    def on_first(self, begin: Callable[[], None] | None) -> None:
        self._flow.on_first = begin

    @property
    def on_rewind(self) -> Callable[[Rewind], None] | None:
        return self._flow.on_rewind

    @on_rewind.setter
    def on_rewind(self, rewind: Callable[[Rewind], None] | None) -> None:
        self._flow.on_rewind = None if rewind is None else partial(self._rewind, rewind)

    @property
    def is_full(self) -> bool:
        return self._flow.is_full

    @property
    def is_over(self) -> bool:
        return self._flow.is_over

    def feed(self, delta: Delta) -> None:
        if self._flow.is_over:
            return  # the engine goes on until it is cancelled
        self._file = self._file or self._folder.open(self._request)
        self._folder.add(self._file, TimedDelta(seconds_since(self._started), delta))
        self._flow.feed(delta)

    async def has_room(self) -> None:
        await self._flow.has_room()

    def fail(self, error: EngineError) -> None:
        if self._file is not None:
            self._folder.add(self._file, Failure(seconds_since(self._started), str(error), error.status))

    def _rewind(self, rewind_engine: Callable[[Rewind], None], rewind: Rewind) -> None:
        assert self._file is not None
        self._folder.add(self._file, TimedRewind(seconds_since(self._started), rewind))
        rewind_engine(rewind)


class RecordingFile:
    """One request's recording."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        self.size = size
        self.takes_more = True
        """Whether lines may still be added."""
        self.is_writable = True
        """Whether added lines may still be written."""

    def append(self, data: bytes) -> None:
        """Write all of `data`, or nothing. Raises `OSError`."""
        create = 0 if self.size else os.O_CREAT | os.O_EXCL
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | create, 0o600)
        try:
            written = 0
            while written < len(data):
                written += os.write(descriptor, data[written:])
            self.size += len(data)
        except OSError:
            os.ftruncate(descriptor, self.size)
            if not self.size:
                self.path.unlink()
            raise
        finally:
            os.close(descriptor)


class RecordingFolder:
    """Its methods run on the event loop, except those that begin with `_write`: they run in a thread."""

    def __init__(self, path: Path, max_bytes: int, max_age: float | None = None) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._max_age = None if max_age is None else timedelta(days=max_age)
        self._aging: asyncio.TimerHandle | None = None
        self._size = 0
        self._files: deque[RecordingFile] = deque()  # the oldest first
        self._unwritten: list[tuple[RecordingFile, Line]] = []
        self._num_writing = 0
        self._writing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, "weir-recordings")
        self._is_closed = False
        self._has_failed = False

    def start(self) -> None:
        """Make the folder if it does not exist. Raises `ValueError` if it cannot be written to."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = RecordingFile(self.path / f".{os.getpid()}")
            probe.path.unlink(missing_ok=True)
            probe.append(bytes(4096))
            probe.path.unlink()
        except OSError as error:
            raise ValueError(f"nothing can be recorded in {self.path}: {error.strerror}") from error
        paths = sorted(path for path in self.path.iterdir() if RECORDING_NAME.fullmatch(path.name))
        self._files.extend(RecordingFile(path, path.stat().st_size) for path in paths)
        self._size = sum(file.size for file in self._files)
        if self._max_age is not None:
            self._age()

    def open(self, request: GenerationRequest) -> RecordingFile:
        """A file for a request. The first write creates it on disk."""
        name = re.sub(r"[^\w.-]", "_", request.request_id, flags=re.ASCII)[:80]
        file = RecordingFile(self.path / f"{datetime.now(UTC):{_MOMENT}}-{name}.jsonl")
        self.add(file, request)
        return file

    def add(self, file: RecordingFile, line: Line) -> None:
        if not (file.takes_more and file.is_writable):
            return
        if self._is_closed:
            self._write([(file, line)])  # closing the engine cut a stream short: these are its last lines
        elif len(self._unwritten) + self._num_writing >= MAX_UNWRITTEN:
            file.takes_more = False
            self._log_failure("lines come faster than they can be written")
        else:
            self._unwritten.append((file, line))
            if self._timer is None and self._writing is None:
                self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._flush)

    async def aclose(self) -> None:
        """Write the lines that wait, and end the thread."""
        if self._aging is not None:
            self._aging.cancel()
        while self._writing is not None or self._unwritten:
            if self._writing is None:
                self._flush()
            assert self._writing is not None
            # Awaiting a future that is done returns before `_flushed` is called: the loop would not end.
            await asyncio.wait([self._writing])
        self._is_closed = True
        self._thread.shutdown()

    def _age(self) -> None:
        if self._writing is None:
            self._flush()
        self._aging = asyncio.get_running_loop().call_later(AGING, self._age)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._unwritten = self._unwritten, []
        self._num_writing = len(batch)
        self._writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, batch)
        self._writing.add_done_callback(self._flushed)

    def _flushed(self, writing: "asyncio.Future[None]") -> None:
        self._writing, self._num_writing = None, 0
        writing.result()
        if self._unwritten:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._flush)

    def _write(self, batch: Iterable[tuple[RecordingFile, Line]]) -> None:
        by_file: dict[RecordingFile, list[Line]] = {}
        for file, line in batch:
            by_file.setdefault(file, []).append(line)
        for file, lines in by_file.items():
            if file.is_writable:
                self._write_file(file, lines)
        self._rotate()

    def _write_file(self, file: RecordingFile, lines: list[Line]) -> None:
        before = file.size
        try:
            file.append(b"".join(encode(line) + b"\n" for line in lines))
        except (OSError, TypeError, ValueError) as error:
            file.is_writable = False
            self._log_failure(error)
        if file.size and not before:
            self._files.append(file)
        self._size += file.size - before

    def _rotate(self) -> None:
        """Remove the oldest files, finished or not, until the rest is within the limits."""
        first = "" if self._max_age is None else f"{datetime.now(UTC) - self._max_age:{_MOMENT}}"
        while self._files and (self._size > self._max_bytes or self._files[0].path.name < first):
            oldest = self._files.popleft()
            oldest.is_writable = False
            self._size -= oldest.size
            try:
                oldest.path.unlink(missing_ok=True)
            except OSError as error:
                self._log_failure(error)

    def _log_failure(self, error: object) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.error("recordings are cut short or missing from here on: %s", error)
