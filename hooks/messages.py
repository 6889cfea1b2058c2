"""What the service and its hook workers say to each other: frames of messages over a socket.

A frame is its length (4 bytes, big-endian) and a pickled list of messages: everything that one side had to
say since its last frame. Both ends are this very program, so that pickle is no door to anybody.
"""

import asyncio
import contextlib
import pickle
import struct
from dataclasses import dataclass, field
from typing import Any

from engine.protocol import Delta, GenerationRequest
from hooks.loader import HookSpec
from hooks.stage import PipelineOptions
from hooks.tally import Tallies

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a worker: only import paths and arguments cross the boundary (contract 1.5)."""

    specs: tuple[HookSpec, ...]
    allowed: tuple[HookSpec, ...]
    options: PipelineOptions
    path: tuple[str, ...]
    """The service's `sys.path`."""
    log_level: int


@dataclass(frozen=True, slots=True)
class Ready:
    """Every hook was built and passed its self-test, or `error` says why not."""

    error: str | None = None


@dataclass(frozen=True, slots=True)
class Open:
    key: int
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Feed:
    key: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class Close:
    key: int


@dataclass(frozen=True, slots=True)
class Reply:
    """To a `Feed` or a `Close`: what is released, or the hook that failed."""

    key: int
    released: list[Delta] = field(default_factory=list)
    cut_short: bool = False
    failed: str | None = None
    engine_error: tuple[str, int] | None = None
    """Message and status of an `EngineError` that the guard raised."""
    is_closed: bool = False
    """To a `Close`: every stream has had its last call."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What each hook did since the last time."""

    tallies: Tallies


class Channel:
    """One end. What is said within one turn of the event loop goes out as one frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._said: list[Any] = []

    @property
    def is_closing(self) -> bool:
        return self._writer.is_closing()

    def say(self, message: Any) -> None:
        if not self._said:
            asyncio.get_running_loop().call_soon(self.flush)
        self._said.append(message)

    def flush(self) -> None:
        if self._said and not self._writer.is_closing():
            frame = pickle.dumps(self._said, protocol=pickle.HIGHEST_PROTOCOL)
            self._writer.write(_LENGTH.pack(len(frame)) + frame)
        self._said = []

    async def hear(self) -> list[Any]:
        """The next frame's messages. Raises `EOFError` when the other end is gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            messages: list[Any] = pickle.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise EOFError("the other end is gone") from error
        return messages

    async def close(self) -> None:
        self.flush()
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
