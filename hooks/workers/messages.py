"""What the service and its hook workers say to each other: frames of messages over a socket.

A frame is its length (4 bytes, big-endian) and a pickled list of messages: everything that one side had to
say since its last frame. Both ends are this very program, so that pickle is no door to anybody.
"""

import asyncio
import contextlib
import pickle
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from engine.protocol import Delta, GenerationRequest, Rewind
from hooks.loading.loader import HookSpec
from hooks.pipeline.stage import PipelineOptions
from hooks.pipeline.tally import Tallies

_LENGTH = struct.Struct(">I")

MAX_SILENCE = 0.02
"""Seconds of work after which what there is to say is said, though more was asked."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a worker: only import paths and arguments cross the boundary (contract 1.5)."""

    specs: tuple[HookSpec, ...]
    allowed: tuple[HookSpec, ...]
    options: PipelineOptions
    log_level: int


@dataclass(frozen=True, slots=True)
class Ready:
    """Every hook was built and passed its self-test, or `error` says why not."""

    error: str | None = None
    prompt_readers: frozenset[str] = frozenset()
    """The hooks that want to be shown prompts."""
    rewinders: frozenset[str] = frozenset()
    """The hooks that may say `rewind`."""


@dataclass(frozen=True, slots=True)
class Open:
    key: int
    request: GenerationRequest
    can_rewind: bool = False
    """Whether the engine can."""


@dataclass(frozen=True, slots=True)
class Admit:
    key: int
    shown: GenerationRequest
    """The request, its prompts as text."""


@dataclass(frozen=True, slots=True)
class Feed:
    key: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class Close:
    key: int


@dataclass(frozen=True, slots=True)
class Reply:
    """To an `Admit`, a `Feed` or a `Close`: what is released, or the hook that failed."""

    key: int
    released: list[Delta] = field(default_factory=list)
    cut_short: bool = False
    rewind: Rewind | None = None
    """To a `Feed`: what to answer the delta with."""
    failed: str | None = None
    engine_error: tuple[str, int] | None = None
    """Message and status of an `EngineError` that the guard raised."""
    admitted: GenerationRequest | None = None
    """To an `Admit`: the request as it goes on. None: it does not, and what is released is the answer."""
    refused: str | None = None
    """To an `Admit`: the reason of a refusal without an answer."""
    is_closed: bool = False
    """To a `Close`: every stream has had its last call."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What each hook did since the last time."""

    tallies: Tallies


@dataclass(frozen=True, slots=True)
class Alive:
    """Something came to its end, and nothing else was said for a while: it is busy, and not stuck."""


class Channel:
    """One end. What is said within one turn of the event loop goes out as one frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._said: list[Any] = []
        self._last = time.monotonic()
        """When it last heard or flushed something."""

    @property
    def is_closing(self) -> bool:
        return self._writer.is_closing()

    def say(self, message: Any) -> None:
        if not self._said:
            asyncio.get_running_loop().call_soon(self.flush)
        self._said.append(message)

    def flush(self) -> None:
        said, self._said = self._said, []
        if said and not self._writer.is_closing():
            self._last = time.monotonic()
            frame = pickle.dumps(said, protocol=pickle.HIGHEST_PROTOCOL)
            self._writer.write(_LENGTH.pack(len(frame)) + frame)

    def beat(self) -> None:
        """Call it between two pieces of work: the other end then hears something every `MAX_SILENCE`, unless
        one piece does not end."""
        if time.monotonic() - self._last > MAX_SILENCE:
            self.say(Alive())
            self.flush()

    async def hear(self) -> list[Any]:
        """The next frame's messages. Raises `EOFError` when the other end is gone, and for a frame that
        cannot be read whatever `pickle` does."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            frame = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise EOFError("the other end is gone") from error
        self._last = time.monotonic()
        messages: list[Any] = pickle.loads(frame)
        return messages

    async def close(self) -> None:
        """What was said still goes out; `abort` does not wait for the other end to take it."""
        self.flush()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        transport = self._writer.transport
        if not transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()
