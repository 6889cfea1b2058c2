"""A guard for text that hooks have judged before, in another guard, and read once more."""

from typing import Any

from engine.protocol import Delta, GenerationRequest
from hooks.loading.loader import LoadedHook
from hooks.pipeline.ask import Step
from hooks.pipeline.decision import DecisionLog
from hooks.pipeline.driver import GuardDriver
from hooks.pipeline.failure import HookError
from hooks.pipeline.options import PipelineOptions
from hooks.pipeline.tally import Tallies, Tally


class RepeatingDriver(GuardDriver):
    """Listeners receive no decision about the text that was judged before, and no verdict on it is counted
    twice. Ends and failures are the exception: after one, there is no second reading, so none came before."""

    def __init__(
        self,
        request: GenerationRequest,
        hooks: list[LoadedHook],
        tallies: Tallies,
        options: PipelineOptions,
        *,
        num_repeated: int,
        **others: Any,
    ) -> None:
        """`num_repeated`: the characters of the only output that were judged before. They come as deltas of
        their own. `others`: as `GuardDriver` takes them."""
        own = {hook.name: Tally() for hook in hooks}
        super().__init__(request, hooks, own, options, **others)
        self._own, self._total = own, tallies
        self._num_repeated = num_repeated

    async def feed(self, delta: Delta) -> Step:
        try:
            return await super().feed(delta)
        finally:
            self._add_counts()
            self._num_repeated -= len(delta.text)

    async def close(self) -> None:
        self._num_repeated = 0
        await super().close()
        self._add_counts()

    def _report(self, log: DecisionLog) -> HookError | None:
        if self._num_repeated > 0:
            log.forget_repeated(0)
        return super()._report(log)

    def _add_counts(self) -> None:
        for name, tally in self._own.items():
            counts = tally.drain()
            self._total[name].add(counts.repeated() if self._num_repeated > 0 else counts)
