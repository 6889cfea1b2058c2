"""A guard whose hooks want to know what all of them decide."""

import contextlib
from time import monotonic

from engine.protocol import Delta, GenerationRequest
from hooks.loading.loader import LoadedHook
from hooks.pipeline.decision import Decision
from hooks.pipeline.guard import Guard
from hooks.pipeline.stage import HookError, PipelineOptions, count_failure
from hooks.pipeline.tally import Tallies
from hooks.prompts.admission import RefusedError


class ListeningGuard(Guard):
    """Tells what was decided before anything that comes of it gets out."""

    def __init__(
        self,
        request: GenerationRequest,
        hooks: list[LoadedHook],
        tallies: Tallies,
        options: PipelineOptions,
        can_rewind: bool = False,
    ) -> None:
        self._news: list[Decision] = []
        """What is still to be told."""
        super().__init__(request, hooks, tallies, options, can_rewind, self._news)
        self._listeners = [hook for hook in hooks if hook.on_decision is not None]

    async def admit(self, shown: GenerationRequest) -> list[Delta] | None:
        try:
            answer = await super().admit(shown)
        except (HookError, RefusedError):
            self._tell()
            raise
        self._tell()
        return answer

    async def feed(self, delta: Delta) -> list[Delta]:
        try:
            released = await super().feed(delta)
        except HookError:
            self._tell()
            raise
        self._tell()
        return released

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            with contextlib.suppress(HookError):  # nothing gets out any more
                self._tell()

    def _tell(self) -> None:
        """Raises `HookError` for a hook that fails at it, once all others have been told."""
        if not self._news:
            return
        told = self._news[:]
        self._news.clear()
        failed: HookError | None = None
        for listener in self._listeners[:]:
            try:
                self._tell_one(listener, told)
            except BaseException as error:  # noqa: BLE001 - as in a call
                self._listeners.remove(listener)
                count_failure(listener, self._tallies[listener.name], error)
                if not listener.is_shadow:
                    failed = HookError(listener.name)
                    failed.__cause__ = error
        if failed is not None:
            raise failed

    def _tell_one(self, listener: LoadedHook, told: list[Decision]) -> None:
        assert listener.on_decision is not None
        tally = self._tallies[listener.name]
        for decision in told:
            started = monotonic()
            listener.on_decision(decision)
            took = monotonic() - started
            tally.seconds += took
            if took > self._options.hook_timeout:
                raise TimeoutError("its deadline passed")
