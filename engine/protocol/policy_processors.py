"""The logits processors of policies, before any request has them."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from engine.protocol import Engine
from engine.protocol.processor_specs import NamedProcessorSpec


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
