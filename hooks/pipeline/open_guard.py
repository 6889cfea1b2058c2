"""A request's guard as the service sees it, wherever its hooks run."""

from collections.abc import Awaitable, Iterable
from typing import Protocol

from engine.protocol import Delta, GenerationRequest
from hooks.api.decision import Held
from hooks.pipeline.ask import Step


class OpenGuard(Protocol):
    """One request's guard, in this process or in a hook worker."""

    @property
    def request(self) -> GenerationRequest:
        """The request that the guard was opened for; after `admit`, the one that the hooks returned."""

    @property
    def reads_prompts(self) -> bool:
        """Whether a hook reads prompts."""

    @property
    def decides_prompts(self) -> bool:
        """Whether a hook reads prompts and is not in shadow mode."""

    @property
    def reads_media(self) -> bool:
        """Whether a hook says that it looks at the images, sounds and files of prompts."""

    @property
    def withholds_alternatives(self) -> bool:
        """Whether a hook says that it withholds the top alternatives of the content's tokens."""

    @property
    def may_rewind(self) -> bool:
        """Whether a hook may rewind outputs, and the engine can. The deltas must then pass an
        `engine.streams.rewindable.Rewindable`: tokens with positions, and an output from its start after a
        rewind."""

    def admit(self, shown: GenerationRequest) -> Awaitable[Step]:
        """Show the hooks the request, its prompts as text. Raises `HookError`.

        If a hook refuses, the step has the reason in `refused`; or, if the hook answers in the engine's
        place, it releases that answer and is over.
        """

    def feed(self, delta: Delta) -> Step | Awaitable[Step]:
        """Take one delta through the hooks. The step comes at once, unless a hook must be awaited. The next
        delta follows after the step. Raises `HookError`, and `EngineError` for an invalid delta."""

    async def look_ahead(self) -> str | None:
        """The text of the only output's content that the hooks would release if it ended here. The stream
        itself does not change. None: a hook cannot say it."""

    def held(self) -> Iterable[Held]:
        """The text that hooks hold now, hooks in shadow mode left out. A guard whose hooks run in a worker
        knows it only if it was opened with a listener."""

    async def close(self) -> None:
        """Give every open stream its last call, aborted (contract 2.6). Closing twice is fine."""


class PassThrough:
    """The guard of a request without hooks."""

    may_rewind = False
    reads_prompts = False
    decides_prompts = False
    reads_media = False
    withholds_alternatives = False

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request

    async def admit(self, shown: GenerationRequest) -> Step:
        return Step([])

    def feed(self, delta: Delta) -> Step:
        return Step([delta])

    async def look_ahead(self) -> str:
        return ""

    def held(self) -> Iterable[Held]:
        return ()

    async def close(self) -> None:
        pass
