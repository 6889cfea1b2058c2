"""The messages between the service and its hook workers: frames over a socket.

A frame is its length (4 bytes, big-endian) and a pickled list of messages: all that one side has sent since
its last frame. Both ends run this program and share a private socket pair: no stranger can send a pickle.
"""

import asyncio
import contextlib
import logging
import pickle
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.protocol import Delta, GenerationRequest
from hooks.api.decision import Decision, Held
from hooks.api.probe_needs import ProbeNeeds
from hooks.decisions.tally import Tallies
from hooks.loading.async_call import GRACE
from hooks.loading.loader import HookSpec
from hooks.loading.options import PipelineOptions
from hooks.pipeline.ask import Step

_LENGTH = struct.Struct(">I")

MAX_SILENCE = 0.02
"""Seconds of work after which a busy process sends what it has."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a worker. Only import paths and arguments cross the boundary (contract 1.5)."""

    specs: tuple[HookSpec, ...]
    allowed: tuple[HookSpec, ...]
    options: PipelineOptions
    log_level: int
    log_formatter: logging.Formatter | None = None
    """Makes the worker's log lines; None: they are lines of text."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Every hook was built and passed its self-test, or `error` says why not."""

    error: str | None = None
    prompt_readers: frozenset[str] = frozenset()
    """The names of the hooks that read prompts."""
    media_readers: frozenset[str] = frozenset()
    """The names of the hooks that look at the images, sounds and files of prompts."""
    alternative_withholders: frozenset[str] = frozenset()
    """The names of the hooks that withhold the top alternatives of the content's tokens."""
    rewinders: frozenset[str] = frozenset()
    """The names of the hooks that may return `rewind`."""
    needed_probes: Mapping[str, ProbeNeeds] = field(default_factory=dict)
    """The hooks' needs of the guarded model's probes, by the hooks' names."""


@dataclass(frozen=True, slots=True)
class Open:
    key: int
    """Identifies the request in all later messages."""
    request: GenerationRequest
    can_rewind: bool = False
    """Whether the engine can rewind outputs."""
    can_ask: bool = False
    """Whether a person can be asked about tool calls."""
    min_held: float | None = None
    """If the service listens, replies have the hooks' decisions, and say which text hooks hold: see
    `GuardFactory.open`. None: nobody listens."""
    num_repeated: int = 0
    """As `GuardFactory.open` has it."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """The headers of the request's trace."""


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
class LookAhead:
    """See `OpenGuard.look_ahead`."""

    key: int


@dataclass(frozen=True, slots=True)
class Close:
    key: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to an `Admit`, a `Feed`, a `LookAhead` or a `Close`."""

    key: int
    step: Step | None = None
    """None: the guard raised an error, and one of the next two fields describes it."""
    failed: str | None = None
    """The name of the hook that failed."""
    param: str | None = None
    """As in `HookError`, for the hook that failed."""
    engine_error: tuple[str, int] | None = None
    """Message and status of an `EngineError`."""
    request: GenerationRequest | None = None
    """To an `Admit`: the request that the hooks returned."""
    ahead: str | None = None
    """To a `LookAhead`: the text."""
    is_closed: bool = False
    """To a `Close`: every stream has had its last call."""
    decisions: tuple[Decision, ...] = ()
    """The hooks' decisions since the last reply, if the service listens."""
    held: tuple[Held, ...] = ()
    """The text that hooks hold now, if the service listens."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of what each hook did since the last such message."""

    tallies: Tallies


@dataclass(frozen=True, slots=True)
class Alive:
    """Sent after a piece of work if nothing else was sent for a while: the process is not stuck."""


@contextlib.asynccontextmanager
async def beating(
    beat: Callable[[], None], is_waiting: Callable[[], object] = lambda: True
) -> AsyncIterator[None]:
    """While the block waits, and `is_waiting` is true, call `beat` now and then."""

    async def keep_beating() -> None:
        while True:
            await asyncio.sleep(GRACE / 4)
            if is_waiting():
                beat()

    task = asyncio.get_running_loop().create_task(keep_beating())
    try:
        yield
    finally:
        task.cancel()


class Connection:
    """One end. All messages that are sent within one turn of the event loop go out as one frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._unsent: list[Any] = []
        self._last = time.monotonic()
        """The time at which this end last received or flushed something."""

    @property
    def is_closing(self) -> bool:
        return self._writer.is_closing()

    def send(self, message: Any) -> None:
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self.flush)
        self._unsent.append(message)

    def flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self._writer.is_closing():
            self._last = time.monotonic()
            frame = pickle.dumps(unsent, protocol=pickle.HIGHEST_PROTOCOL)
            self._writer.write(_LENGTH.pack(len(frame)) + frame)

    def beat(self) -> None:
        """Called between two pieces of work: the other end gets a message every `MAX_SILENCE`, unless a piece
        does not end."""
        if time.monotonic() - self._last > MAX_SILENCE:
            self.send(Alive())
            self.flush()

    async def receive(self) -> list[Any]:
        """The next frame's messages. Raises `EOFError` if the other end is gone, and errors of `pickle`."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            frame = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise EOFError("the other end is gone") from error
        self._last = time.monotonic()
        messages: list[Any] = pickle.loads(frame)
        return messages

    async def close(self) -> None:
        """Send what is unsent, then close. `abort` does not wait for the other end to read it."""
        self.flush()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        transport = self._writer.transport
        if not transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()
