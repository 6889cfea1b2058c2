"""An engine that records the answers of another engine, as they are before any hook sees them."""

import logging
import time
from contextlib import aclosing
from pathlib import Path

from engine.backends.recording_folder import RecordingFile, RecordingFolder
from engine.protocol import (
    Deltas,
    Engine,
    EngineError,
    EngineStats,
    GenerationRequest,
    ModelInfo,
    Rewind,
    Tokenizer,
)
from engine.recording import Failure, TimedDelta, TimedRewind, seconds_since
from engine.rewindable import answered

logger = logging.getLogger("weir.engine")


class RecordingEngine:
    """Passes on another engine's deltas, and writes them to files as they come (see `engine.recording`).

    Each answer has a file in `folder` from its first delta on. A refused request leaves no file. Recording
    never delays an answer and never fails it. When the files exceed `max_bytes` together, the oldest are
    removed.
    """

    def __init__(self, engine: Engine, folder: Path | str, *, max_bytes: int) -> None:
        self._engine = engine
        self._folder = RecordingFolder(Path(folder), max_bytes)

    @property
    def info(self) -> ModelInfo:
        return self._engine.info

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self._engine.tokenizer

    async def start(self) -> None:
        """Start the other engine. Also raises `ValueError` if the folder cannot be written to."""
        self._folder.start()
        logger.warning(
            "every request, and what the model says before any hook sees it, is recorded in %s",
            self._folder.path,
        )
        await self._engine.start()

    async def generate(self, request: GenerationRequest) -> Deltas:
        file: RecordingFile | None = None
        rewind: Rewind | None = None
        started = time.perf_counter()
        try:
            async with aclosing(self._engine.generate(request)) as deltas:
                while (delta := await answered(deltas, rewind)) is not None:
                    file = file or self._folder.open(request)
                    self._folder.add(file, TimedDelta(seconds_since(started), delta))
                    rewind = yield delta
                    if rewind is not None:
                        self._folder.add(file, TimedRewind(seconds_since(started), rewind))
        except EngineError as error:
            if file is not None:
                self._folder.add(file, Failure(seconds_since(started), str(error), error.status))
            raise

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def check_health(self) -> None:
        self._engine.check_health()

    async def aclose(self) -> None:
        await self._engine.aclose()
        await self._folder.aclose()
