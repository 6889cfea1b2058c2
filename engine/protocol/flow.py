"""A request's flow, as Weir's own engines see it: it takes their deltas to the client."""

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from engine.protocol import Delta, GenerationRequest, Rewind


class Flow(Protocol):
    """Takes a request's deltas to their client. It lives on one event loop."""

    on_first: Callable[[], None] | None
    """Called before the first delta is taken."""
    on_rewind: Callable[[Rewind], None] | None
    """Rewinds an output. An engine sets it that can (`ModelInfo.can_rewind`). It is called in answer to a
    delta of this output, in the turn of `feed` or later, and before `has_room` returns."""

    @property
    def is_full(self) -> bool:
        """Whether a hook or the client is waited for. Deltas that are fed meanwhile are kept, and joined."""

    @property
    def is_over(self) -> bool:
        """Whether nothing that is fed has an effect any more. The engine's work is about to be cancelled."""

    def feed(self, delta: Delta) -> None:
        """Take a delta through all stages, in this turn. Raises nothing: an error of a stage ends the flow,
        which cancels the engine's work."""

    async def has_room(self) -> None:
        """Wait until the flow is not full."""


@runtime_checkable
class FeedingEngine(Protocol):
    """An engine that feeds flows by itself. Other engines are iterated (`Engine.generate`)."""

    def feed(self, request: GenerationRequest, flow: Flow) -> Awaitable[None]:
        """Feed the request's deltas to `flow` as they come, and return after the last one. Deltas of several
        outputs are mixed.

        Cancelling it cancels the engine's work. Raises `RequestError` before the first delta if the caller is
        at fault, and `EngineError` if the engine is.
        """
