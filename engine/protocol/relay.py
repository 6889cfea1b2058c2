"""Requests other than generation, for which an engine without a model or a tokenizer asks its upstream."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from engine.protocol import Engine, EngineError, GenerationRequest


@runtime_checkable
class UpstreamRelay(Protocol):
    """An engine that also passes on requests for other things than generation."""

    async def relay(self, request: GenerationRequest, path: str, fields: Mapping[str, Any]) -> bytes:
        """Post `fields` to the upstream's `path`, such as `/embeddings`, with its name for the model. Returns
        the answer, which is a JSON object. Raises as `Engine.generate` does, and `EngineError` (501) for an
        upstream that is known to have no such path."""


async def relayed(engine: Engine, request: GenerationRequest, path: str, fields: Mapping[str, Any]) -> bytes:
    """The answer of `UpstreamRelay.relay`. Raises `EngineError` (501) for an engine without an upstream."""
    if not isinstance(engine, UpstreamRelay):
        raise EngineError(f"This engine cannot answer requests for {path.removeprefix('/')}.", status=501)
    return await engine.relay(request, path, fields)


@runtime_checkable
class UpstreamCounter(Protocol):
    """An engine whose upstream counts a prompt's tokens."""

    async def count_tokens(self, request: GenerationRequest) -> int | None:
        """The tokens of the chat's prompt. Raises as `Engine.generate` does, and `EngineError` (501) for an
        upstream that counts none. None: as `counted`."""


async def counted(engine: Engine, request: GenerationRequest) -> int | None:
    """The count of `UpstreamCounter.count_tokens`. None: neither the engine nor its upstream can count."""
    if not isinstance(engine, UpstreamCounter):
        return None
    try:
        return await engine.count_tokens(request)
    except EngineError as error:
        if error.status == 501:
            return None
        raise
