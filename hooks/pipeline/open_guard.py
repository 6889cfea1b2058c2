"""The interfaces of guards, the same in this process and in hook workers: a request's, and their factory."""

from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import Protocol

from engine.protocol import Delta, GenerationRequest
from engine.protocol.guard_models import GuardModels
from hooks.api.decision import Held, Listener, Mode
from hooks.api.probe_needs import ProbeNeeds
from hooks.decisions.tally import Tallies
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
        """Whether a hook looks at the images, sounds and files of prompts."""

    @property
    def withholds_alternatives(self) -> bool:
        """Whether a hook withholds the top alternatives of the content's tokens."""

    @property
    def may_rewind(self) -> bool:
        """Whether a hook may rewind outputs, and the engine can. The deltas must then pass an
        `engine.streams.rewindable.Rewindable`: tokens with positions, and an output from its start after a
        rewind."""

    def admit(self, shown: GenerationRequest) -> Awaitable[Step]:
        """Show the hooks the request, its prompts as text. Raises `HookError`.

        If a hook refuses, the step has the reason in `refused`. If the hook answers in the engine's place,
        the step releases that answer, and is over.
        """

    def feed(self, delta: Delta) -> Step | Awaitable[Step]:
        """Show one delta to the hooks. The step comes at once, unless a hook must be awaited. The next delta
        may be fed after the step. Raises `HookError`, and `EngineError` for an invalid delta."""

    async def look_ahead(self) -> str | None:
        """The text of the only output's content that the hooks would release if it ended here. The stream
        itself does not change. None: a hook cannot be asked."""

    def held(self) -> Iterable[Held]:
        """The text that hooks hold now, hooks in shadow mode left out. A guard whose hooks run in a worker
        knows it only if it was opened with a listener."""

    async def close(self) -> None:
        """Give every open stream its last call, aborted (contract 2.6). Closing twice is fine."""


class GuardFactory(Protocol):
    """The configured hooks, wherever they run: a `Pipeline` in this process, or a `WorkerPool`."""

    tallies: Tallies
    """The counts of each hook, by name."""

    @property
    def is_ready(self) -> bool:
        """Whether a request's hooks can run now."""

    @property
    def modes(self) -> Mapping[str, Mode]:
        """The mode of each hook, by name."""

    async def start(self, models: GuardModels | None = None) -> None:
        """Give the hooks of this process `models`, and make sure that every hook works. Raises
        `HookLoadError` (contract 1.4, 1.9)."""

    @property
    def allowed(self) -> Collection[str]:
        """The names of the hooks that run only for requests that name them."""

    @property
    def prompt_readers(self) -> Collection[str]:
        """The names of the hooks that read prompts."""

    @property
    def needed_probes(self) -> Mapping[str, ProbeNeeds]:
        """The needs that the hooks of every request have of the guarded model's probes, by the hooks' names
        (contract 1.10)."""

    @property
    def rewinders(self) -> frozenset[str]:
        """The names of the hooks that may return `rewind`."""

    def open(
        self,
        request: GenerationRequest,
        *,
        can_rewind: bool = False,
        can_ask: bool = False,
        listener: Listener | None = None,
        min_held: float = 0.0,
        num_repeated: int = 0,
    ) -> OpenGuard:
        """A guard for the request. `can_rewind`: whether the engine can rewind outputs. `can_ask`: whether a
        person can be asked about tool calls, which are then in `Step.questions`. `listener`: receives the
        hooks' decisions. Without one, and without a hook that listens, no decision is made.
        `min_held`: seconds; a shorter hold whose text was released untouched is not reported, and costs less.
        `num_repeated`: the first characters of the only output, which an earlier guard has judged: neither
        hooks nor `listener` receive their decisions again. They come as deltas of their own.

        Raises `RequestError` if the request names a hook that it may not (contract 1.3).
        """

    async def aclose(self) -> None: ...


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
