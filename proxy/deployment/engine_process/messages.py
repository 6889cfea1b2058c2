"""The messages between an engine's process and one that serves, after `OpenEngine` and its answer.

A delta has no message of its own, but is a pair with its request's key: there is one for each token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.protocol import (
    Delta,
    EngineError,
    EngineStats,
    GenerationRequest,
    ModelInfo,
    RequestError,
    Rewind,
)
from engine.protocol.fields.support import FieldSupport
from engine.protocol.processor_specs import NamedProcessorSpec
from proxy.settings.model import ModelSettings

KeyedDelta = tuple[int, Delta]
"""A delta of the request with this key."""


@dataclass(frozen=True, slots=True)
class OpenEngine:
    """The first message. The engine of these settings is started, unless it runs already."""

    settings: ModelSettings
    can_withhold: bool
    """Whether a hook may ever see its output."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The engine has started."""

    info: ModelInfo
    fields: FieldSupport
    has_tokenizer: bool


@dataclass(frozen=True, slots=True)
class NotOpened:
    """The engine cannot start."""

    reason: str


@dataclass(frozen=True, slots=True)
class Generate:
    key: int
    """Identifies the request in all later messages."""
    request: GenerationRequest
    is_traced: bool
    """Whether `Ended` tells the request's phases."""


@dataclass(frozen=True, slots=True)
class RewindOutput:
    key: int
    rewind: Rewind


@dataclass(frozen=True, slots=True)
class Rewound:
    """The answer to `RewindOutput`: the output's deltas that follow come after the rewind."""

    key: int
    index: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Nobody takes the request's deltas any more, or all of them are taken: no rewind comes."""

    key: int


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a request's work in the engine. Times: of `time.perf_counter`, which all processes share."""

    name: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The engine's work for the request has ended."""

    key: int
    error: EngineError | RequestError | None
    phases: Sequence[Phase] = ()


@dataclass(frozen=True, slots=True)
class CheckProcessors:
    """See `engine.protocol.engine.ProcessorCheck`."""

    key: int
    specs: tuple[NamedProcessorSpec, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer to `CheckProcessors`."""

    key: int
    error: ValueError | None


@dataclass(frozen=True, slots=True)
class Stats:
    """The engine's numbers. Counters have what no other connection was told, so that their sum is right."""

    stats: EngineStats
