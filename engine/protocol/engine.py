"""An engine: turns requests into streams of deltas."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from engine.protocol.deltas import Deltas
from engine.protocol.fields.support import FieldSupport
from engine.protocol.probe_info import ProbeInfo
from engine.protocol.processor_specs import NamedProcessorSpec
from engine.protocol.request import GenerationRequest
from engine.protocol.stats import EngineStats
from engine.protocol.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that an engine serves."""

    max_model_len: int | None = None
    """Most tokens of a prompt and its output together. None: not known."""
    vocab_size: int | None = None
    names: tuple[str, ...] = ()
    """The model names that an upstream answers to. Empty for other engines."""
    parses_tool_calls: bool = True
    """Whether the engine puts tool calls on their channel, or may (an upstream). False: a parser has to find
    them in the content."""
    can_rewind: bool = False
    """Whether the engine accepts a `Rewind`, except for requests with `GenerationRequest.is_searched`."""
    can_rewind_guided: bool = True
    """Whether the engine also accepts a `Rewind` for requests with `GenerationRequest.is_guided`."""
    max_prompt_bytes: int | None = None
    """A longer text has more than `max_model_len` tokens, whatever it is. None: not known."""
    probes: tuple[ProbeInfo, ...] = ()
    """The probes that score every token that the model reads."""
    eos_token_ids: frozenset[int] | None = None
    """The ids by which the model ends an output. None: not known."""

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of the scores in `Token.scores`, in order."""
        return tuple(name for probe in self.probes for name in probe.score_names)

    def can_rewind_for(self, request: GenerationRequest) -> bool:
        """Whether the engine accepts a `Rewind` for this request."""
        if not self.can_rewind or request.is_searched:
            return False
        return self.can_rewind_guided or not request.is_guided


class Engine(Protocol):
    """Turns requests into streams of deltas. A new engine is a folder beside `engine.upstream`."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def fields(self) -> FieldSupport:
        """The engine's treatment of each field of a request."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None if the engine has no tokenizer."""

    async def start(self) -> None:
        """Get ready to serve, and return when ready. Raises the error that prevents it."""

    def generate(self, request: GenerationRequest) -> Deltas:
        """Yield the request's deltas as they come. Deltas of several outputs are mixed.

        No work begins before the first iteration, and closing the iterator cancels the work. Raises
        `RequestError` before the first delta if the caller is at fault, and `EngineError` if the engine is.
        """

    def stats(self) -> EngineStats: ...

    def check_room(self, caller: str) -> None:
        """Raise `QueueFullError` if this caller may not add a request now. `generate` checks it again."""

    def check_health(self) -> None:
        """Raise `EngineError` if the engine can no longer serve."""

    async def aclose(self) -> None:
        """Abort all requests and free all resources."""


@runtime_checkable
class ProcessorCheck(Protocol):
    """An engine that runs logits processors."""

    async def check_processors(self, specs: Iterable[NamedProcessorSpec]) -> None:
        """Make sure that every request can get these registered processors. The engine has started. Raises
        `ValueError`."""


async def check_processors(engine: Engine, specs: Iterable[NamedProcessorSpec]) -> None:
    """As `ProcessorCheck.check_processors`. Raises `ValueError`, also for an engine without logits."""
    if not isinstance(engine, ProcessorCheck):
        raise ValueError("this engine has no logits of its own to process")
    await engine.check_processors(specs)
